"""Milliseconds per training step: torch, Opacus and fairveil on the same data, in one run, on one thread.

Our steps go through the real path: the veil draws a Poisson batch from secret coins, bounds, sums and adds noise,
the optimizer steps. Absolute times move from machine to machine; the ratios are what counts.

    python benchmarks/speed.py --json
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from statistics import median

import numpy as np

import peers
from fairveil.coins import secret_coins
from fairveil.models import LinearSoftmax, Model, Perceptron, Sgd
from fairveil.privacy.calibration import calibrate
from fairveil.privacy.events import GaussianRelease, PoissonSampled, Repeated
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Part, Plan, Release
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import open_veils
from fairveil.training.objectives import CrossEntropy

N_ROWS = 36_000
N_WARMUP = 50
ROUNDS = 5


class Ours:
    """Our own step, timed in rounds that alternate with the others, so that a slow minute hits all alike."""

    def __init__(self, model: Model, X: np.ndarray, y: np.ndarray, batch: int, is_private: bool) -> None:
        self.model, self.batch = model, batch
        self.clip_norm = 1.0 if is_private else math.inf
        release = Release("gradient", "gaussian", 1.0 if is_private else 0.0)
        part = Part("train", (release,), 1.0, {-1: batch / len(X)}, 10**9)
        plan = Plan((part,), 1.0 if is_private else math.inf, 1e-5)
        records = MemoryRecords(X, y.astype(np.int16), np.zeros(len(y), np.int16))
        self.veil = open_veils(records, plan, Ledger(), secret_coins(), "speed")["train"]
        self.veil.expect(len(X))
        self.optimizer = Sgd(0.1, momentum=0.9)
        self.params = model.initial(np.random.default_rng(0))
        self.state = self.optimizer.start(self.params)
        self.times: list[float] = []
        self.run(N_WARMUP)
        self.times.clear()

    def run(self, n_steps: int) -> None:
        objective = CrossEntropy()
        for _ in range(n_steps):
            start = time.perf_counter()
            gradient = self.veil.draw().release_gradient(self.model, self.params, objective, self.clip_norm)
            gradient /= self.batch
            self.params, self.state = self.optimizer.step(self.params, gradient, self.state)
            self.times.append(time.perf_counter() - start)

    @property
    def ms(self) -> float:
        return 1e3 * median(self.times)


def in_turn(runners: list[Ours], n_steps: int) -> list[float]:
    """Return the median time of each, measured in alternating rounds."""
    for _ in range(ROUNDS):
        for runner in runners:
            runner.run(n_steps // ROUNDS)
    return [runner.ms for runner in runners]


def rows(n_features: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, n_features)).astype(np.float32)
    return X, (X[:, 0] + rng.normal(size=N_ROWS) > 0).astype(np.int64)


def linear() -> dict[str, float]:
    X, y = rows(102)
    model = LinearSoftmax(102, 2)
    sgd, dpsgd = in_turn([Ours(model, X, y, 512, False), Ours(model, X, y, 512, True)], 3000)
    torch_sgd = peers.torch_sgd_ms(X, y, 512, 500)
    large_sgd, large_dpsgd = in_turn([Ours(model, X, y, 2048, False), Ours(model, X, y, 2048, True)], 2000)
    return {
        "torch_sgd_ms": torch_sgd,
        "sgd_ms": sgd,
        "sgd_over_torch": sgd / torch_sgd,
        "dpsgd_ms": dpsgd,
        "dpsgd_adds_us": 1e3 * (dpsgd - sgd),
        "dpsgd_over_sgd": dpsgd / sgd,
        "sgd_2048_ms": large_sgd,
        "dpsgd_2048_ms": large_dpsgd,
        "dpsgd_over_sgd_2048": large_dpsgd / large_sgd,
        "opacus_loader_over_dpsgd": peers.opacus_loader_ms(X, y, 512, 200) / dpsgd,
        "opacus_ghost_over_dpsgd": peers.opacus_ghost_ms(X, y, 512, 300) / dpsgd,
        "opacus_tensor_over_dpsgd": peers.opacus_tensor_ms(X, y, 512, 300) / dpsgd,
    }


def mlp() -> dict[str, float]:
    X, y = rows(100)
    model, hidden = Perceptron(100, (64, 64), 2), (64, 64)
    sgd, dpsgd = in_turn([Ours(model, X, y, 2048, False), Ours(model, X, y, 2048, True)], 500)
    return {
        "mlp_torch_sgd_ms": peers.torch_sgd_ms(X, y, 2048, 100, hidden),
        "mlp_sgd_ms": sgd,
        "mlp_dpsgd_ms": dpsgd,
        "mlp_dpsgd_over_sgd": dpsgd / sgd,
        "mlp_opacus_over_dpsgd": peers.opacus_tensor_ms(X, y, 2048, 40, hidden) / dpsgd,
        "mlp_opacus_ghost_over_dpsgd": peers.opacus_ghost_ms(X, y, 2048, 40, hidden) / dpsgd,
    }


def calibration() -> dict[str, float]:
    start = time.perf_counter()
    calibrate(lambda noise: [Repeated(PoissonSampled(0.03, GaussianRelease(noise)), 10_000)], 1.0, 1e-5)
    return {"calibrate_10k_s": time.perf_counter() - start}


def command_line() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as out:
        start = time.perf_counter()
        command = [sys.executable, "-m", "fairveil.cli", "train", "adult", "--epsilon", "1", "--out", out]
        subprocess.run(command, check=True, capture_output=True)
        return {"cli_train_adult_s": time.perf_counter() - start}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    quiet = parser.parse_args().json
    figures: dict[str, float] = {}
    for measure in (linear, mlp, calibration, command_line):
        figures |= measure()
        if not quiet:
            print(f"# {measure.__name__} done", file=sys.stderr)
    print(json.dumps({name: round(value, 5) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
