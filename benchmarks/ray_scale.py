"""How long a private step takes on one Ray worker and on two: rows of 14 codes, 100 features.

Networks (100-64-64-2) at a large and a small batch, and a linear model at one in between, whose steps are the cheapest.

Run: python benchmarks/ray_scale.py   (half a minute; prints one JSON object as its last line)

Steps on one worker and on two alternate, so that a busy machine slows both alike; figures are the least and the median
of all steps. A step is what training does: draw, broadcast of parameters, clipped gradients, sum, noise, update. Where
other programs use the processors, two workers cannot run at once: `large_speedup_processor` compares the processor time
of the busiest worker instead, which is what the speed-up would be if messages and the driver took no time.
"""

import json
import os
import statistics
import time
from typing import Any

import numpy as np

from fairveil._random import secret_coins
from fairveil.data.coded import CodedRows, Layout
from fairveil.models import LinearSoftmax, Model, Perceptron, Sgd
from fairveil.models.optimizers import OptimizerState
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import CrossEntropy
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import Records, open_veils
from fairveil.scale.ray_records import RayRecords, connect, ray_records, workers_for

N_ROWS = 1_048_576
N_LEVELS = (8, 8, 8, 8, 7, 7, 7, 7, 7, 7, 7, 7, 6, 6)  # 100 features
LARGE_BATCH, MEDIUM_BATCH, SMALL_BATCH = 262_144, 100_000, 10_000
N_FEATURES = sum(N_LEVELS)
N_STEPS, N_ROUNDS, N_TRIPS = 4, 5, 200


def coded_table(rng: np.random.Generator) -> MemoryRecords:
    codes = np.stack([rng.integers(0, n, N_ROWS, dtype=np.uint8) for n in N_LEVELS], axis=1)
    first = np.cumsum([0, *N_LEVELS[:-1]]).tolist()
    layout = Layout(N_FEATURES, first, N_LEVELS, [False] * len(N_LEVELS), [])
    y = (codes[:, 0] + rng.integers(0, 8, N_ROWS) > 7).astype(np.int16)
    rows = CodedRows(layout, codes, np.empty((N_ROWS, 0), dtype=np.float32))
    return MemoryRecords(rows, y, np.full(N_ROWS, -1, dtype=np.int16))


def processor_seconds(ray: Any, records: RayRecords) -> list[float]:
    """Return the processor time that each worker has used so far."""
    return ray.get([actor.__ray_call__.remote(lambda shard: time.process_time()) for actor in records._workers.actors])


class Training:
    """Private descent that can be continued step by step."""

    def __init__(self, records: Records, batch: int, model: Model) -> None:
        n_steps = 2 + N_ROUNDS * N_STEPS
        stage = Stage("train", (Release("gradient", "gaussian", 1.0),), 1.0, {-1: batch / N_ROWS}, n_steps)
        plan = Plan((stage,), 1.0, 1e-5, "record")
        self.batch, self.veil = batch, open_veils(records, plan, Ledger(), secret_coins(), "benchmark")["train"]
        self.veil.expect(N_ROWS)
        self.model, self.params = model, model.initial(np.random.default_rng(0))
        self.optimizer, self.state = Sgd(0.1, 0.9), OptimizerState()
        self.step()
        self.step()

    def step(self) -> float:
        """Make a step and return how many seconds it took."""
        started = time.perf_counter()
        gradient = self.veil.draw().release_gradient(self.model, self.params, CrossEntropy(), 1.0)
        self.params, self.state = self.optimizer.step(self.params, gradient / self.batch, self.state)
        return time.perf_counter() - started


def step_figures(records: dict[str, Records], batch: int, model: Model, name: str) -> dict[str, float]:
    """Return the least and the median time of a step on each of these records, in milliseconds, and their ratios."""
    trainings = {key: Training(own, batch, model) for key, own in records.items()}
    seconds: dict[str, list[float]] = {key: [] for key in records}
    for _ in range(N_ROUNDS):
        for key, training in trainings.items():
            seconds[key] += [training.step() for _ in range(N_STEPS)]
    figures = {}
    for key, own in seconds.items():
        figures[f"{name}_{key}_least_ms"] = 1e3 * min(own)
        figures[f"{name}_{key}_median_ms"] = 1e3 * statistics.median(own)
    for how in ("least", "median"):
        figures[f"{name}_speedup_{how}"] = figures[f"{name}_1_worker_{how}_ms"] / figures[f"{name}_2_workers_{how}_ms"]
    return figures


def ray_figures() -> dict[str, float]:
    """Return all figures of the page docs/how-to/ray.md."""
    ray = connect(None, 3)
    table = coded_table(np.random.default_rng(0))
    with ray_records(table, 1) as one, ray_records(table, 2) as two:
        records: dict[str, Records] = {"memory": table, "1_worker": one, "2_workers": two}
        before = [processor_seconds(ray, own) for own in (one, two)]
        figures = step_figures(records, LARGE_BATCH, Perceptron(N_FEATURES), "large")
        after = [processor_seconds(ray, own) for own in (one, two)]
        used = [max(end - start for start, end in zip(*pair, strict=True)) for pair in zip(before, after, strict=True)]
        figures["large_speedup_processor"] = used[0] / used[1]
        figures |= step_figures(records, MEDIUM_BATCH, LinearSoftmax(N_FEATURES, 2), "linear")
        figures |= step_figures(records, SMALL_BATCH, Perceptron(N_FEATURES), "small")
        (actor,) = one._workers.actors
        trips = []
        for _ in range(N_TRIPS):
            started = time.perf_counter()
            ray.get(actor.__ray_ready__.remote())
            trips.append(time.perf_counter() - started)
        figures["round_trip_median_ms"] = 1e3 * statistics.median(trips)
    ray.shutdown()
    figures |= {"large_batch": LARGE_BATCH, "linear_batch": MEDIUM_BATCH, "small_batch": SMALL_BATCH, "n_rows": N_ROWS}
    figures |= {"n_cpus": float(os.cpu_count() or 1), "load_average": os.getloadavg()[0]}
    return figures


def main() -> None:
    for batch in (SMALL_BATCH, LARGE_BATCH):
        print(workers_for(batch, os.cpu_count() or 1)[1])
    print(json.dumps({name: round(figure, 3) for name, figure in ray_figures().items()}))


if __name__ == "__main__":
    main()
