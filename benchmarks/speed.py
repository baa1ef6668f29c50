"""Milliseconds per training step: torch, Opacus and fairveil on the same data, in one run, on one thread.

Our steps go through the real path: the veil draws a Poisson batch from secret coins, bounds, sums and adds noise,
the optimizer steps. Rows are those of a table like Adult: 14 columns of codes, which ours read as codes and the others
written out; "dense" steps of ours read a matrix of numbers. Absolute times move from machine to machine; the ratios are
what counts.

"groupwise" is FairDP's step with two groups where only the average is released, "groupwise_sums" where every group's
sum is; "groupwise_growth" is the largest, over 4 to 32 groups, of (time over that of 2 groups) / (groups over 2): at
most 1 where the time grows at most linearly. "functional_train_s" is a whole fit on Adult at epsilon 1 under a
constraint, from the table to the model, "functional_solve_s" the part after encoding, "functional_frontier_s" 20 models
for 20 tolerances from what it released.

"pfld" is a step of PF-LD as its paper makes it, linear on Adult: the public gradient, decisions counted and groups'
gradients released from a batch of 256 people ("_2048": of so many), the dual step in its turn; "fld" is the same step
at epsilon = infinity, without noise and clipping.

"cli_..._cpu_s" are seconds of processor time of whole commands: a help page, `ledger show`, and a `train` that is
refused once everything is loaded.

    python benchmarks/speed.py --json
    python benchmarks/speed.py --parts groupwise,functional,lagrangian --json
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import itertools
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import opacus_timing
from fairveil import DemographicParity, FunctionalClassifier, Groupwise, LagrangianDual, load_dataset
from fairveil._random import secret_coins
from fairveil.accounting.composition import calibrate
from fairveil.accounting.events import GaussianRelease, PoissonSampled, Repeated
from fairveil.data.coded import CodedRows, Features, Layout
from fairveil.fairness.constraints import Parity, constrain
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.fairdp.recipe import ADAM_RATE, GroupScale
from fairveil.methods.inputs import InputSpec, TableSource
from fairveil.methods.pf_ld.recipe import DUAL_EVERY
from fairveil.methods.raco.recipe import RateAscent
from fairveil.models import Adam, LinearSoftmax, Model, OptimizerState, Perceptron, Sgd
from fairveil.models.last_layer import bounded_last_layer
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import Count, CrossEntropy, Decision, Lagrangian
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import open_veils
from fairveil.training.recipe import Task

N_ROWS = 36_000
GROUP = 32
N_WARMUP = 2
ROUNDS = 15
GROUP_COUNTS = (2, 4, 8, 16, 32)


class Ours:
    """Our own training step, through the veil."""

    def __init__(self, model: Model, X: Features, y: np.ndarray, batch: int, is_private: bool) -> None:
        self.model, self.batch = model, batch
        self.clip_norm = 1.0 if is_private else math.inf
        release = Release("gradient", "gaussian", 1.0 if is_private else 0.0)
        part = Stage("train", (release,), 1.0, {-1: batch / len(X)}, 10**9)
        plan = Plan((part,), 1.0 if is_private else math.inf, 1e-5)
        records = MemoryRecords(X, y.astype(np.int16), np.zeros(len(y), np.int16))
        self.veil = open_veils(records, plan, Ledger(), secret_coins(), "speed")["train"]
        self.veil.expect(len(X))
        self.optimizer = Sgd(0.1, momentum=0.9)
        self.params = model.initial(np.random.default_rng(0))
        self.state = OptimizerState()
        self.ms(N_WARMUP)

    def ms(self, n_groups: int) -> float:
        """Return milliseconds per step: the median over groups of 32 steps, for whose coins are tossed at once."""
        return median(self._group_ms() for _ in range(n_groups))

    def _group_ms(self) -> float:
        objective = CrossEntropy()
        start = time.perf_counter()
        for _ in range(GROUP):
            gradient = self.veil.draw().release_gradient(self.model, self.params, objective, self.clip_norm)
            gradient /= self.batch
            self.params, self.state = self.optimizer.step(self.params, gradient, self.state)
        return 1e3 * (time.perf_counter() - start) / GROUP


class OursRaco(Ours):
    """Our RaCO-DP step, through the veil: histogram, ascent, pull, gradient, descent."""

    def __init__(self, X: Features, y: np.ndarray, groups: np.ndarray, batch: int, constraint: Parity) -> None:
        n_groups = int(groups.max()) + 1
        people = Population((Attribute("group", tuple(map(str, range(n_groups)))),), ("no", "yes"))
        self.constraints = constrain(constraint, people)
        self.model, self.batch, self.clip_norm = LinearSoftmax(X.shape[1], 2), batch, 1.0
        releases = (Release("histogram", "gaussian", 2.0), Release("gradient", "gaussian", 1.0))
        part = Stage("train", releases, 1.0, {-1: batch / len(X)}, 10**9)
        records = MemoryRecords(X, y.astype(np.int16), groups.astype(np.int16))
        self.veil = open_veils(records, Plan((part,), 1.0, 1e-5), Ledger(), secret_coins(), "speed")["train"]
        self.veil.expect(len(X))
        self.ascent = RateAscent(self.constraints, 600, batch, batch / len(X), 4.0)
        self.dual, self.n_done = self.ascent.start(), 0
        self.optimizer = Sgd(0.1, momentum=0.9)
        self.params = self.model.initial(np.random.default_rng(0))
        self.state = OptimizerState()
        self.ms(N_WARMUP)

    def _group_ms(self) -> float:
        start = time.perf_counter()
        for _ in range(GROUP):
            self.n_done += 1
            batch = self.veil.draw()
            query = Count(self.constraints.cells, self.constraints.n_cells, Decision(self.model, self.params))
            counts = batch.release_counts(query, "histogram").reshape(query.n_cells, -1)
            self.dual = self.ascent.observe(self.dual, counts, self.n_done)
            objective = Lagrangian(self.dual.pull, 1.0)
            gradient = batch.release_gradient(self.model, self.params, objective, self.clip_norm)
            gradient /= self.batch
            self.params, self.state = self.optimizer.step(self.params, gradient, self.state)
        return 1e3 * (time.perf_counter() - start) / GROUP


class OursGroupwise(Ours):
    """Our FairDP step, through the veil: gradients by group, noisy average, Adam, the last layer bounded."""

    def __init__(self, descent: Descent, X: Features, y: np.ndarray, batch: int, n_groups: int, released: str) -> None:
        people = Population((Attribute("group", tuple(map(str, range(n_groups)))),), ("no", "yes"))
        self.task = Task(X.shape[1], people, 1.0, len(X), 1.0, 1e-5)
        self.recipe = Groupwise(replace(descent, clip_norm=1.0), released=released)
        self.scale = GroupScale.by_group(self.task, np.full(n_groups, len(X) / n_groups))
        self.model, self.batch = self.recipe.model_for(self.task), batch
        name = "gradient" if released == "average" else "gradients"
        part = Stage("train", (Release(name, "gaussian", 1.0),), 1.0, {-1: batch / len(X)}, 10**9)
        groups = np.random.default_rng(1).integers(n_groups, size=len(X)).astype(np.int16)
        records = MemoryRecords(X, y.astype(np.int16), groups)
        self.veil = open_veils(records, Plan((part,), 1.0, 1e-5), Ledger(), secret_coins(), "speed")["train"]
        self.veil.expect(len(X))
        self.optimizer = Adam(ADAM_RATE)
        self.params = self.model.initial(np.random.default_rng(0))
        self.state = OptimizerState()
        self.ms(N_WARMUP)

    def _group_ms(self) -> float:
        start = time.perf_counter()
        for _ in range(GROUP):
            gradient = self.recipe._average(self.veil.draw(), self.model, self.params, self.scale, self.task)
            gradient /= self.batch
            params, self.state = self.optimizer.step(self.params, gradient, self.state)
            self.params = bounded_last_layer(self.model, params, self.recipe.largest_norm)
        return 1e3 * (time.perf_counter() - start) / GROUP


class OursLagrangian:
    """Our PF-LD step with released gradients, as training makes it; F-LD's where it is not private."""

    def __init__(self, model: str, batch: int, is_private: bool) -> None:
        people, epsilon = load_dataset("adult"), 1.0 if is_private else math.inf
        self.size, schema = len(people.y), people.schema.without("sex")
        length, rate = DUAL_EVERY * (GROUP + 1), batch / self.size
        own = replace(LagrangianDual().descent, model=model, n_steps=length, sampling_rate=rate)
        self.recipe = LagrangianDual(DemographicParity(), own, primal="gradients")
        inputs = InputSpec.of(schema, "sex", epsilon, 1e-5, "attribute")
        self.task, (part,) = inputs.task, self.recipe.stages(1.0 if is_private else 0.0, 1.0, inputs.task)
        plan = Plan((replace(part, n_steps=10**9),), epsilon, 1e-5, inputs.task.unit)
        records = inputs.records(TableSource(people.X, people.y))
        self.veils = open_veils(records, plan, Ledger(), secret_coins(), "speed")
        self.veils["train"].expect(self.size)
        self.rng = np.random.default_rng(0)

    def ms(self) -> float:
        """Return milliseconds per step of one training, without its warm-up and the first dual round."""
        times = []

        def timed(steps: range) -> Iterator[int]:
            for step in steps:
                if step == DUAL_EVERY:
                    times.append(time.perf_counter())
                yield step
            times.append(time.perf_counter())

        self.recipe.train(self.veils, self.task, self.size, self.rng, timed)
        return 1e3 * (times[1] - times[0]) / (self.recipe.length - DUAL_EVERY)


def in_turn(contenders: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Return the milliseconds of each contender in each round; all take turns, so that a slow minute hits all alike."""
    rounds = [{name: measure() for name, measure in contenders.items()} for _ in range(ROUNDS)]
    return {name: [one[name] for one in rounds] for name in contenders}


def ratio(above: list[float], below: list[float]) -> float:
    """Return the median over rounds of a ratio measured within each round."""
    return median(one / other for one, other in zip(above, below, strict=True))


def rows(n_features: int) -> tuple[CodedRows, np.ndarray, np.ndarray]:
    """Return rows of 14 columns with this many levels in all, as Adult has them; the same written out; and labels.

    Ours read the codes, as after any schema; torch and Opacus read the same rows written out.
    """
    rng = np.random.default_rng(0)
    n_levels = [10, 9, 16, 7, 15, 6, 5, 2, 6, 6, 8, 4, 5, n_features - 99]
    first = np.cumsum([0, *n_levels])[:-1].tolist()
    layout = Layout(n_features, first, n_levels, [False] * 14, [])
    codes = (rng.random((N_ROWS, 14)) ** 2 * n_levels).astype(np.uint8)  # low codes are more frequent
    X = CodedRows(layout, codes, np.zeros((N_ROWS, 0), np.float32))
    return X, X.dense(), (codes[:, 0] + 3 * rng.normal(size=N_ROWS) > 3).astype(np.int64)


def dense_rows(n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of scaled numbers, which are no codes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, n_features)).astype(np.float32)
    return X, (X[:, 0] + rng.normal(size=N_ROWS) > 0).astype(np.int64)


def linear() -> dict[str, float]:
    coded, X, y = rows(102)
    ours = {
        (batch, private): Ours(LinearSoftmax(102, 2), coded, y, batch, private)
        for batch in (512, 2048)
        for private in (False, True)
    }
    dense = {private: Ours(LinearSoftmax(102, 2), *dense_rows(102), 512, private) for private in (False, True)}
    raco = {batch: OursRaco(coded, y, y, batch, DemographicParity(0.05)) for batch in (512, 2048)}
    many = OursRaco(coded, y, np.arange(len(y)) % 18, 512, DemographicParity(0.05))
    ms = in_turn(
        {
            "torch": lambda: opacus_timing.torch_sgd_ms(X, y, 512, 100),
            "sgd": lambda: ours[512, False].ms(12),
            "dpsgd": lambda: ours[512, True].ms(12),
            "dense_sgd": lambda: dense[False].ms(12),
            "dense_dpsgd": lambda: dense[True].ms(12),
            "raco": lambda: raco[512].ms(12),
            "raco_many": lambda: many.ms(12),
            "loader": lambda: opacus_timing.opacus_loader_ms(X, y, 512, 40),
            "ghost": lambda: opacus_timing.opacus_ghost_ms(X, y, 512, 60),
            "tensor": lambda: opacus_timing.opacus_tensor_ms(X, y, 512, 60),
            "sgd_2048": lambda: ours[2048, False].ms(8),
            "dpsgd_2048": lambda: ours[2048, True].ms(8),
            "raco_2048": lambda: raco[2048].ms(8),
        }
    )
    return {
        "torch_sgd_ms": median(ms["torch"]),
        "sgd_ms": median(ms["sgd"]),
        "sgd_over_torch": ratio(ms["sgd"], ms["torch"]),
        "dpsgd_ms": median(ms["dpsgd"]),
        "dpsgd_adds_us": 1e3 * median(dp - sgd for dp, sgd in zip(ms["dpsgd"], ms["sgd"], strict=True)),
        "dpsgd_over_sgd": ratio(ms["dpsgd"], ms["sgd"]),
        "raco_ms": median(ms["raco"]),
        "raco_adds_us": 1e3 * median(one - sgd for one, sgd in zip(ms["raco"], ms["sgd"], strict=True)),
        "raco_over_sgd": ratio(ms["raco"], ms["sgd"]),
        "raco_over_sgd_2048": ratio(ms["raco_2048"], ms["sgd_2048"]),
        "raco_306_bounds_over_2": ratio(ms["raco_many"], ms["raco"]),
        "dpsgd_over_sgd_2048": ratio(ms["dpsgd_2048"], ms["sgd_2048"]),
        "dense_sgd_ms": median(ms["dense_sgd"]),
        "dense_dpsgd_ms": median(ms["dense_dpsgd"]),
        "opacus_loader_over_dense_dpsgd": ratio(ms["loader"], ms["dense_dpsgd"]),
        "opacus_loader_ms": median(ms["loader"]),
        "opacus_ghost_ms": median(ms["ghost"]),
        "opacus_tensor_ms": median(ms["tensor"]),
        "opacus_loader_over_dpsgd": ratio(ms["loader"], ms["dpsgd"]),
        "opacus_ghost_over_dpsgd": ratio(ms["ghost"], ms["dpsgd"]),
        "opacus_tensor_over_dpsgd": ratio(ms["tensor"], ms["dpsgd"]),
    }


def mlp() -> dict[str, float]:
    coded, X, y = rows(100)
    hidden = (64, 64)
    sgd, dpsgd = (Ours(Perceptron(100, hidden, 2), coded, y, 2048, private) for private in (False, True))
    dense = Ours(Perceptron(100, hidden, 2), *dense_rows(100), 2048, True)
    ms = in_turn(
        {
            "torch": lambda: opacus_timing.torch_sgd_ms(X, y, 2048, 20, hidden),
            "sgd": lambda: sgd.ms(3),
            "dpsgd": lambda: dpsgd.ms(3),
            "dense": lambda: dense.ms(3),
            "loader": lambda: opacus_timing.opacus_loader_ms(X, y, 2048, 4, hidden),
            "ghost": lambda: opacus_timing.opacus_ghost_ms(X, y, 2048, 10, hidden),
            "tensor": lambda: opacus_timing.opacus_tensor_ms(X, y, 2048, 6, hidden),
        }
    )
    return {
        "mlp_torch_sgd_ms": median(ms["torch"]),
        "mlp_sgd_ms": median(ms["sgd"]),
        "mlp_dpsgd_ms": median(ms["dpsgd"]),
        "mlp_dense_dpsgd_ms": median(ms["dense"]),
        "mlp_dpsgd_over_sgd": ratio(ms["dpsgd"], ms["sgd"]),
        "mlp_opacus_loader_ms": median(ms["loader"]),
        "mlp_opacus_ghost_ms": median(ms["ghost"]),
        "mlp_opacus_ms": median(ms["tensor"]),
        "mlp_opacus_loader_over_dpsgd": ratio(ms["loader"], ms["dpsgd"]),
        "mlp_opacus_over_dpsgd": ratio(ms["tensor"], ms["dpsgd"]),
        "mlp_opacus_ghost_over_dpsgd": ratio(ms["ghost"], ms["dpsgd"]),
    }


def groupwise() -> dict[str, float]:
    """Return FairDP's steps over DP-SGD's, on one model and batch at a time."""
    cases = {
        "": (Descent(), 102, 512, 12),
        "_2048": (Descent(), 102, 2048, 8),
        "_mlp": (Descent(model="mlp", hidden=(64, 64)), 100, 2048, 3),
    }
    figures = {}
    for suffix, (descent, n_features, batch, n_times) in cases.items():
        X, _, y = rows(n_features)
        average, *sums = (
            OursGroupwise(descent, X, y, batch, n_groups, released)
            for n_groups, released in [(2, "average"), *((n, "groups") for n in GROUP_COUNTS)]
        )
        contenders = {"dpsgd": Ours(average.model, X, y, batch, True), "average": average}
        contenders |= dict(zip(GROUP_COUNTS, sums, strict=True))
        ms = in_turn({name: partial(one.ms, n_times) for name, one in contenders.items()})
        figures |= {f"{name}{suffix}": value for name, value in groupwise_ratios(ms).items()}
    return figures


def groupwise_ratios(ms: dict[Any, list[float]]) -> dict[str, float]:
    growths = {n: ratio(ms[n], ms[2]) for n in GROUP_COUNTS}
    return {
        "groupwise_ms": median(ms["average"]),
        "groupwise_sums_ms": median(ms[2]),
        "groupwise_over_dpsgd": ratio(ms["average"], ms["dpsgd"]),
        "groupwise_sums_over_dpsgd": ratio(ms[2], ms["dpsgd"]),
        **{f"groupwise_{n}_groups_over_2": growths[n] for n in GROUP_COUNTS[1:]},
        "groupwise_growth": max(growths[n] / (n / 2) for n in GROUP_COUNTS[1:]),
    }


def lagrangian() -> dict[str, float]:
    """Return PF-LD's steps over F-LD's, on one model and batch at a time."""
    figures = {}
    for model, batch in itertools.product(("linear", "mlp"), (256, 2048)):
        suffix = ("_mlp" if model == "mlp" else "") + ("_2048" if batch == 2048 else "")
        pfld, fld = (OursLagrangian(model, batch, is_private) for is_private in (True, False))
        ms = in_turn({"pfld": pfld.ms, "fld": fld.ms})
        figures |= {f"{name}_ms{suffix}": median(times) for name, times in ms.items()}
        figures[f"pfld_over_fld{suffix}"] = ratio(ms["pfld"], ms["fld"])
    return figures


def functional() -> dict[str, float]:
    """Return seconds of whole fits of the functional mechanism, and of a frontier of 20 tolerances."""
    people = load_dataset("adult")
    seconds: list[tuple[float, float, float]] = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        clf = FunctionalClassifier(DemographicParity(0.05), schema=people.schema, sensitive="sex", ledger=Ledger())
        clf.fit(people.X, people.y)
        fitted = time.perf_counter()
        clf.frontier(np.arange(20) / 100)
        seconds.append((fitted - start, clf.timing_["train"], time.perf_counter() - fitted))
    names = ("functional_train_s", "functional_solve_s", "functional_frontier_s")
    return {name: median(values) for name, values in zip(names, zip(*seconds, strict=True), strict=True)}


def calibration() -> dict[str, float]:
    start = time.perf_counter()
    calibrate(lambda noise: [Repeated(PoissonSampled(0.03, GaussianRelease(noise)), 10_000)], 1.0, 1e-5)
    return {"calibrate_10k_s": time.perf_counter() - start}


def command_line() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as out:
        start = time.perf_counter()
        asked = ["--aware", "--epsilon", "1", "--tolerance", "0.02"]
        command = [sys.executable, "-m", "fairveil.cli", "train", "adult", *asked, "--out", out]
        subprocess.run(command, check=True, capture_output=True)
        seconds = time.perf_counter() - start
        return {"cli_train_adult_s": seconds} | start_up(Path(out, "ledger.jsonl"))


def start_up(ledger: Path) -> dict[str, float]:
    """Return seconds of processor time, which other processes disturb less than the clock, from start to end.

    A `train` that is refused because there is no such file has loaded all that it needs, and done no work.
    """
    commands = {
        "cli_help_cpu_s": ["--help"],
        "cli_ledger_cpu_s": ["ledger", "show", str(ledger)],
        "cli_train_startup_cpu_s": ["train", "nowhere.csv", "--aware", "--tolerance", "0.02"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, words in commands.items():
            before = os.times()
            subprocess.run([sys.executable, "-m", "fairveil.cli", *words], check=False, capture_output=True)
            after = os.times()
            spent = after.children_user + after.children_system - before.children_user - before.children_system
            seconds[name].append(spent)
    return {name: min(values) for name, values in seconds.items()}  # the least disturbed one


PARTS = {one.__name__: one for one in (linear, mlp, groupwise, functional, lagrangian, calibration, command_line)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="with commas")
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    options = parser.parse_args()
    if not set(options.parts.split(",")) <= set(PARTS):
        parser.error(f"Expected some of {', '.join(PARTS)}, got {options.parts!r}.")
    figures: dict[str, float] = {}
    for name in options.parts.split(","):
        figures |= PARTS[name]()
        if not options.json:
            print(f"# {name} done", file=sys.stderr)
    print(json.dumps({name: round(value, 5) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
