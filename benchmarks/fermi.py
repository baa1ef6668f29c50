"""DP-FERMI here: accuracy at each gap, what a step costs, and whether the coding of groups matters.

"points" are exact counts on held-out rows, means over random 75/25 splits of clean Adult, each person once, at these
weights of the penalty, for both levels of privacy: whole records at delta 1e-5, and the sensitive attribute alone,
where epsilon is for a change of the attribute and delta 1/n^2. "steps" are milliseconds of a whole training step,
linear on Adult, on one thread: ours of DP-FERMI over ours of DP-SGD, in turn in one run. "coding" says by how much
parameters differ, without privacy, when the groups are listed in another order.

    python benchmarks/fermi.py --json
    python benchmarks/fermi.py --parts steps,coding --json
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from statistics import median
from typing import Any

import numpy as np

from _harness import FIRST_SEED, Answer, Bench, Splits, read_bench, rounded
from _pf_ld import known_unknown
from fairveil import DemographicParity, Descent, Fermi, FermiClassifier, Ledger, Schema, load_dataset
from fairveil._random import secret_coins
from fairveil.data.datasets import dataset_schema
from fairveil.fairness.constraints import CONSTRAINT_TYPES
from fairveil.methods.inputs import InputSpec, TableSource
from fairveil.privacy.plan import Plan
from fairveil.privacy.veil import open_veils

DELTA = 1e-5
Setting = tuple[float, bool]
SETTINGS: dict[str, tuple[Setting, ...]] = {
    "record": ((0.0, True), (4.0, True), (12.0, True), (250.0, False), (1000.0, False)),
    "attribute": ((0.0, True), (4.0, True), (10.0, True), (250.0, False), (1000.0, False)),
}
"""Weight of the penalty, and whether it is taken at soft decisions: none, the default, about what closes the gap on
Adult, and on Credit Card, where it is small from the start. All were seen on splits with seeds below 100."""

PRINTED = ((0.0, 0.787, 0.185), (1.0, 0.781, 0.060), (2.5, 0.766, 0.0085))
"""Weight, accuracy and gap that the authors' code printed on clean Adult at epsilon 3."""

PRINTED_MS = (74.0, 2980.0)
"""Milliseconds of a step that their code took there, and that paper 002 (Table 2) prints."""

LEVELS = ("record", "attribute")
FEW = 32
"""Steps that are timed at once."""


@lru_cache(maxsize=256)
def own_epsilon(constraint: str, epsilon: float, delta: float, how: Fermi, facts: str) -> float:
    """Return the known/unknown epsilon whose plan costs `epsilon` for a change of the attribute."""
    schema = Schema.model_validate_json(facts)
    secret = [entry.column for entry in schema.sensitive]

    def plan_at(own: float) -> Plan:
        clf = FermiClassifier(
            CONSTRAINT_TYPES[constraint](), own, delta, how, schema, secret, ledger=Ledger(), protects="attribute"
        )
        return clf.planned()  # type: ignore[return-value]

    return known_unknown(plan_at, epsilon, delta)


def classifier(constraint: str, epsilon: float, how: Fermi, schema: Schema, protects: str) -> FermiClassifier:
    """Return a classifier of this level of privacy; at the attribute level epsilon is for a change of it."""
    delta, own = DELTA, epsilon
    if protects == "attribute":
        assert schema.n_public is not None
        delta = 1 / schema.n_public**2
        own = own_epsilon(constraint, epsilon, delta, replace(how, penalty_weight=1.0), schema.model_dump_json())
    secret = [entry.column for entry in schema.sensitive]
    return FermiClassifier(
        CONSTRAINT_TYPES[constraint](), own, delta, how, schema, secret, ledger=Ledger(), protects=protects
    )


@lru_cache(maxsize=256)
def point(name: str, constraint: str, epsilon: float, setting: Setting, protects: str, runs: int) -> dict[str, float]:
    """Return accuracy and gap of a setting: means over splits, and the lowest and highest gap."""
    bench = unaware(name)
    splits, asked, found = Splits(bench, "random", FIRST_SEED), CONSTRAINT_TYPES[constraint](), []
    how = Fermi(penalty_weight=setting[0], soft=setting[1])
    for run in range(runs):
        train, test = splits(run)
        clf = classifier(constraint, epsilon, how, bench.public(splits.n_public), protects)
        clf.fit(bench.frame.iloc[train], bench.frame[bench.schema.target.column].iloc[train])
        answer = Answer.of(clf, bench.frame.iloc[test], bench.people.positive)
        found.append((np.mean(answer.decisions == bench.y[test]), bench.largest_bound(answer.decisions, test, asked)))
    accuracies, gaps = np.array(found).T
    return {
        "weight": setting[0], "accuracy": float(accuracies.mean()), "gap": float(gaps.mean()),
        "gap_low": float(gaps.min()), "gap_high": float(gaps.max()),
    }  # fmt: skip


@lru_cache(maxsize=4)
def unaware(name: str) -> Bench:
    """Return a data set whose sensitive column is no feature."""
    return read_bench(name, dataset_schema(name), keeps_split=False)


def step_ms(recipe: Any, batch: int, protects: str, rounds: int) -> float:
    """Return milliseconds of a step of this recipe on Adult: the median over rounds, at a batch of so many people."""
    people = load_dataset("adult")
    inputs = InputSpec.of(people.schema.without("sex"), "sex", 1.0, DELTA, protects)
    size, times = len(people.y), []
    own = replace(recipe.descent if isinstance(recipe, Fermi) else recipe, model="linear", n_steps=FEW * (rounds + 1))
    own = replace(own, sampling_rate=batch / size)
    recipe = replace(recipe, descent=own) if isinstance(recipe, Fermi) else own
    stages = recipe.stages(1.0, 1.0, inputs.task)
    records = inputs.records(TableSource(people.X, people.y))
    veils = open_veils(records, Plan(stages, 1.0, DELTA, inputs.task.unit), Ledger(), secret_coins(), "speed")
    for veil in veils.values():
        veil.expect(size)

    def timed(steps: range) -> Iterator[int]:
        for step in steps:
            if step % FEW == 0:
                times.append(time.perf_counter())
            yield step
        times.append(time.perf_counter())

    recipe.train(veils, inputs.task, size, np.random.default_rng(0), timed)
    return 1e3 * median(np.diff(times[1:])) / FEW  # without the first steps, which fill caches


def steps(batch: int, rounds: int) -> dict[str, float]:
    """Return milliseconds of our steps, and ours of DP-FERMI over ours of DP-SGD."""
    fermi = Fermi(DemographicParity())
    found = {"dp_sgd": [], "fermi_record": []}  # type: dict[str, list[float]]
    for _ in range(3):  # in turn, because other work on the machine comes and goes
        found["dp_sgd"].append(step_ms(Descent(), batch, "record", rounds))
        found["fermi_record"].append(step_ms(fermi, batch, "record", rounds))
    ms = {f"{name}_ms": median(times) for name, times in found.items()}
    ms["fermi_attribute_ms"] = step_ms(fermi, batch, "attribute", rounds)
    return ms | {"ratio": ms["fermi_record_ms"] / ms["dp_sgd_ms"]}


def coding(n_rows: int) -> float:
    """Return the largest difference of parameters without privacy when the groups are listed the other way around."""
    people, params = load_dataset("adult"), []
    (entry, *_) = people.schema.sensitive
    for groups in (entry.groups, entry.groups[::-1]):
        schema = people.schema.without("sex").model_copy(
            update={"sensitive": (entry.model_copy(update={"groups": groups}),)}
        )
        how = Fermi(descent=Descent(n_steps=50, sampling_rate=1.0))
        clf = FermiClassifier(None, math.inf, DELTA, how, schema, "sex", random_state=0, ledger=Ledger())
        params.append(clf.fit(people.X.head(n_rows), people.y.head(n_rows)).params_)
    return float(np.abs(params[0] - params[1]).max())


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="points,steps,coding", help="some of points, steps, coding")
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--constraint", default="demographic_parity", choices=list(CONSTRAINT_TYPES))
    parser.add_argument("--weights", default="0,4,10,16")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    options = parser.parse_args()
    parts, answer = options.parts.split(","), dict[str, Any]()
    weights = [float(weight) for weight in options.weights.split(",")]
    if "points" in parts:
        answer["points"] = {
            level: [
                point("adult", options.constraint, options.epsilon, (weight, True), level, options.runs)
                for weight in weights
            ]
            for level in LEVELS
        }
    if "steps" in parts:
        answer["steps"] = steps(options.batch, options.rounds)
    if "coding" in parts:
        answer["coding"] = coding(5_000)
    print(json.dumps(rounded(answer), indent=None if options.json else 2))


if __name__ == "__main__":
    main()
