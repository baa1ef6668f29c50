"""Accuracy and gap on held-out rows, over repeated random splits, beside the non-private twin.

The figures are exact counts on held-out rows of public data, for research: a data holder gets private ones from
`fairveil train`. The twin is scikit-learn's LogisticRegression on the same encoding and the same splits. Splits are
seeded (run r uses seed r); noise never is.

    python benchmarks/quality.py --dataset adult --method dpsgd --epsilon 1 --runs 10 --json
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import math
import sys
import time
from dataclasses import dataclass

import numpy as np
from scipy.stats import t
from sklearn.linear_model import LogisticRegression

from fairveil import Descent, Ledger, OutputPerturbation, PrivateClassifier, load_dataset
from fairveil.data.datasets import Dataset
from fairveil.data.encoding import Encoder
from fairveil.data.schema import Schema
from fairveil.fairness.metrics import CONSTRAINTS, gap_of

TRAIN_SHARE = 0.75
METHODS = {
    "dpsgd": lambda model: Descent(model=model),
    "dpsgdf": lambda model: Descent(model=model, group_clipping=True),
    "output": lambda model: OutputPerturbation(),
}


@dataclass(frozen=True)
class Bench:
    """A data set with its schema, its groups and labels as codes, ready to be split again and again."""

    data: Dataset
    schema: Schema
    sensitive: str
    y: np.ndarray
    groups: np.ndarray

    @classmethod
    def of(cls, name: str, sensitive: str | None, aware: bool) -> "Bench":
        data = load_dataset(name)
        sensitive = sensitive or data.schema.sensitive[0].column
        entry, encoder = data.schema.sensitive_named(sensitive), Encoder(data.schema)
        schema = data.schema.model_copy(update={"sensitive": (entry,), "id_column": None})
        if not aware and sensitive in schema.columns:
            schema = schema.without(sensitive)
        return cls(
            data, schema, sensitive, encoder.targets(data.y), encoder.groups(data.frame[sensitive], entry)
        )

    def split(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        known = np.flatnonzero(self.y >= 0)
        is_train = np.random.default_rng(seed).random(len(known)) < TRAIN_SHARE
        return known[is_train], known[~is_train]

    def figures(self, decisions: np.ndarray, rows: np.ndarray, constraint: str) -> tuple[float, float]:
        """Return exact accuracy and gap of decisions (class codes) on some rows."""
        n_groups, n_classes = len(self.schema.sensitive[0].groups), len(self.schema.target.classes)
        counts = np.zeros((n_groups + 1, n_classes, n_classes))
        np.add.at(counts, (self.groups[rows], self.y[rows], decisions), 1)  # group -1 is the last: none
        positive = self.schema.target.classes.index(self.schema.target.positive)
        gap = gap_of(counts, constraint, 0.0, positive).value
        return float(np.mean(decisions == self.y[rows])), math.nan if gap is None else gap


def private_run(bench: Bench, method: str, model: str, epsilon: float, delta: float, seed: int) -> np.ndarray:
    train, test = bench.split(seed)
    n_public = round(TRAIN_SHARE * len(bench.y))
    schema = bench.schema.model_copy(update={"n_public": n_public})
    frame = bench.data.frame
    clf = PrivateClassifier(epsilon, delta, METHODS[method](model), schema, bench.sensitive, ledger=Ledger())
    clf.fit(frame.iloc[train], bench.data.y.iloc[train])
    return Encoder(schema).targets(clf.predict(frame.iloc[test]))


def twin_run(bench: Bench, rows: np.ndarray, seed: int) -> np.ndarray:
    train, test = bench.split(seed)
    return LogisticRegression(max_iter=1000).fit(rows[train], bench.y[train]).predict(rows[test])


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return the mean and its 95 % interval over runs."""
    mean, n = float(np.mean(values)), len(values)
    half = float(t.ppf(0.975, n - 1) * np.std(values, ddof=1) / math.sqrt(n)) if n > 1 else math.nan
    return mean, mean - half, mean + half


def measure(
    bench: Bench, options: argparse.Namespace, epsilon: float, twins: list[tuple[float, float]]
) -> dict:
    start = time.perf_counter()
    pairs = []
    for seed in range(options.runs):
        decisions = private_run(bench, options.method, options.model, epsilon, options.delta, seed)
        pairs.append(bench.figures(decisions, bench.split(seed)[1], options.constraint))
    seconds = (time.perf_counter() - start) / options.runs
    accuracy, gap = interval([pair[0] for pair in pairs]), interval([pair[1] for pair in pairs])
    return {
        "dataset": options.dataset, "method": options.method, "model": options.model,
        "constraint": options.constraint, "epsilon": epsilon, "delta": options.delta, "tolerance": None,
        "aware": options.aware, "accuracy_mean": accuracy[0], "accuracy_low": accuracy[1],
        "accuracy_high": accuracy[2], "gap_mean": gap[0], "gap_low": gap[1], "gap_high": gap[2],
        "nonprivate_accuracy": float(np.mean([twin[0] for twin in twins])),
        "nonprivate_gap": float(np.mean([twin[1] for twin in twins])),
        "runs": options.runs, "seconds_per_run": seconds, "evaluation": "exact, on public held-out rows",
    }  # fmt: skip


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--method", default="dpsgd", choices=sorted(METHODS))
    parser.add_argument("--model", default="linear", choices=["linear", "mlp"])
    parser.add_argument("--constraint", default="demographic_parity", choices=sorted(CONSTRAINTS))
    parser.add_argument("--sensitive")
    parser.add_argument("--aware", action="store_true")
    parser.add_argument("--epsilon", default="1", help="one number or several, with commas")
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    return parser.parse_args(arguments)


def main() -> None:
    options = options_of(sys.argv[1:])
    bench = Bench.of(options.dataset, options.sensitive, options.aware)
    rows = Encoder(bench.schema).rows(bench.data.frame)
    seeds = range(options.runs)
    twins = [bench.figures(twin_run(bench, rows, s), bench.split(s)[1], options.constraint) for s in seeds]
    results = []
    for epsilon in [float(text) for text in options.epsilon.split(",")]:
        row = measure(bench, options, epsilon, twins)
        results.append({name: round(v, 5) if isinstance(v, float) else v for name, v in row.items()})
        if not options.json:
            print(
                f"# epsilon {epsilon:g}: accuracy {row['accuracy_mean']:.4f} gap {row['gap_mean']:.4f}",
                file=sys.stderr,
            )
    print(json.dumps({"rows": results}))


if __name__ == "__main__":
    main()
