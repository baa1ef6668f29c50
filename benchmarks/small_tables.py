"""What a private rule keeps of a fair model's gain on random small tables, beside the signal that forecasts it.

Run r draws its rows by seed 1000 + r (`--first-seed`; seeds below 100 were used while defaults were set): of N rows
three quarters are trained on, and up to 10,000 of all other rows of the data set are held out, so that little of a gap
is chance. Noise is never seeded. "signal" is epsilon x people / sqrt(parameters) of the linear model on the schema's
own bins; "kept" is (accuracy - constant) / (fair twin - constant), where the twin is scikit-learn's model with the best
rule for the same rows, not private ("fair_twin_accuracy", with its gap "floor"), and the constant is the best one.
"loss" is what a choice of defaults goes by: twin - accuracy + the gap above the floor, if any. Without a bound (dpsgd)
the twin has none either. `--people-per-group` replaces that number of `ScoreHistogram`.

    python benchmarks/small_tables.py --tables acs_income@1000,bank@1000 --runs 20 --json
    python benchmarks/small_tables.py --tables adult@2000 --people-per-group 0,160,320 --first-seed 0 --runs 60 --json
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from _harness import FIRST_SEED, TRAIN_SHARE, Answer, Bench, Twin, interval, numbers, read_bench, rounded
from fairveil import (
    DemographicParity,
    Descent,
    Functional,
    FunctionalClassifier,
    Ledger,
    ParityPostprocessor,
    ParityTraining,
    PrivateClassifier,
    RandomizedParityPostprocessor,
    RateConstrainedClassifier,
    Schema,
    ScoreHistogram,
    ToleranceNotMetWarning,
)
from fairveil.data.datasets import dataset_schema
from fairveil.data.encoding import Encoder
from fairveil.forecast import learning_signal
from fairveil.models import LinearSoftmax

MOST_HELD_OUT = 10_000
METHODS = ("dp2dp", "unaware", "parity", "raco", "functional", "dpsgd")
RACO_TOLERANCE = 0.02
"""RaCO-DP needs room below a limit."""


@dataclass(frozen=True)
class SmallTables:
    """Random tables of one data set; called with a run like `Splits`."""

    bench: Bench
    n_rows: int | None
    first_seed: int

    def __call__(self, run: int) -> tuple[np.ndarray, np.ndarray]:
        known = np.flatnonzero(self.bench.y >= 0)
        rows = np.random.default_rng(self.first_seed + run).permutation(known)
        n_train = round(TRAIN_SHARE * (self.n_rows or len(rows)))
        return np.sort(rows[:n_train]), np.sort(rows[n_train:][:MOST_HELD_OUT])


def classifier(method: str, people_per_group: float | None, epsilon: float, schema: Schema) -> PrivateClassifier:
    names, budget, asked = [entry.column for entry in schema.sensitive], (epsilon, 1e-5), DemographicParity()
    if method == "dpsgd":
        return PrivateClassifier(*budget, Descent(), schema, names, ledger=Ledger())
    if method == "parity":
        return RandomizedParityPostprocessor(asked, *budget, schema=schema, sensitive=names, ledger=Ledger())
    if method == "raco":
        asked = DemographicParity(RACO_TOLERANCE)
        return RateConstrainedClassifier(asked, *budget, schema=schema, sensitive=names, ledger=Ledger())
    if method == "functional":
        return FunctionalClassifier(asked, *budget, Functional(), schema, names, ledger=Ledger())
    solver = None
    if people_per_group is not None:
        solver = type("OtherHistogram", (ScoreHistogram,), {"people_per_group": people_per_group})()
    how = ParityTraining(method == "dp2dp", solver)
    return ParityPostprocessor(asked, *budget, how, schema, names, ledger=Ledger())


def twin_answer(tables: SmallTables, run: int, is_fair: bool) -> Answer:
    bench, (train, test) = tables.bench, tables(run)
    both, places = np.concatenate([train, test]), np.arange(len(train) + len(test))
    rows = Encoder(bench.schema).rows(bench.frame.iloc[both])
    twin = Twin.on(rows, bench.y[both], places[: len(train)], places[len(train) :])
    return twin.fair_answer(tables, run, DemographicParity()) if is_fair else twin.answer(bench.people.positive)


def private_answer(tables: SmallTables, run: int, clf: PrivateClassifier) -> Answer:
    bench, (train, test) = tables.bench, tables(run)
    clf.fit(bench.frame.iloc[train], bench.frame[bench.schema.target.column].iloc[train])
    return Answer.of(clf, bench.frame.iloc[test], bench.people.positive)


def figures(tables: SmallTables, run: int, answer: Answer) -> tuple[float, float]:
    """Return accuracy and gap."""
    bench, (_, test) = tables.bench, tables(run)
    return (
        float(np.mean(answer.decisions == bench.y[test])),
        bench.largest_bound(answer.decisions, test, DemographicParity()),
    )


def rows_of(options: argparse.Namespace, table: str, epsilon: float) -> Iterator[dict]:
    name, _, n_rows = table.partition("@")
    bench = read_bench(name, dataset_schema(name), False, (), options.method != "unaware")
    tables = SmallTables(bench, int(n_rows) if n_rows else None, options.first_seed)
    schema, runs = bench.public(len(tables(0)[0])), range(options.runs)
    twins = np.array([figures(tables, run, twin_answer(tables, run, options.method != "dpsgd")) for run in runs])
    labels = [np.bincount(bench.y[tables(run)[1]]) for run in runs]
    constant = float(np.mean([counts.max() / counts.sum() for counts in labels]))
    twin, floor = twins.mean(axis=0).tolist()
    for people in options.people_per_group:
        clf = classifier(options.method, people, epsilon, schema)
        ours = np.array([figures(tables, run, private_answer(tables, run, clf)) for run in runs])
        accuracy, gap = (interval(column) for column in ours.T)
        n_params = LinearSoftmax(Encoder(schema).n_features, bench.people.n_classes).n_params
        yield {
            "table": table, "method": options.method, "epsilon": epsilon, "people": schema.n_public,
            "groups": len(bench.people.codes), "parameters": n_params,
            "signal": learning_signal(schema.n_public or 0, n_params, epsilon), "people_per_group": people,
            "constant": constant, "accuracy_mean": accuracy[0], "accuracy_low": accuracy[1],
            "accuracy_high": accuracy[2], "gap_mean": gap[0], "gap_low": gap[1], "gap_high": gap[2],
            "fair_twin_accuracy": twin, "floor": floor,
            "kept": (accuracy[0] - constant) / (twin - constant) if twin > constant else math.nan,
            "loss": twin - accuracy[0] + max(0.0, gap[0] - floor), "runs": options.runs,
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default="acs_income@1000", help="NAME or NAME@ROWS, several with commas")
    parser.add_argument("--method", default="dp2dp", choices=METHODS)
    parser.add_argument("--epsilon", default="1", help="one or several, with commas")
    parser.add_argument("--people-per-group", type=numbers, default=(None,), help="several; dp2dp; else the default")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    options = parser.parse_args()
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ToleranceNotMetWarning)  # the figures say it
        for table in options.tables.split(","):
            for epsilon in numbers(options.epsilon):
                for row in rows_of(options, table, epsilon):
                    results.append(rounded(row))
                    if not options.json:
                        print("#", results[-1])
    print(json.dumps({"rows": results}, allow_nan=False))


if __name__ == "__main__":
    main()
