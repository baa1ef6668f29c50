"""What a rule that does not read the attribute could reach if nothing were secret: a yardstick for the bars of PF-LD.

Among all such rules the most accurate one with a bounded gap decides by sum_{a,y} P(a, y | x) (its gain - its price),
with one price for each difference between two groups. Here P(a, y | x) is learned from the true attributes (boosted
trees, and logistic regression), and prices are swept and picked *on the held-out rows*, by means over runs. So it is
neither private nor honestly chosen: whoever wants both a smaller gap and a higher accuracy than it shows asks for more
than these learners find in the features, with everything known. That is evidence, no proof: a better learner may find
more.

    python benchmarks/oracle_bound.py --dataset compas --constraint demographic_parity --gaps 0.0466,0.0931 --json
    python benchmarks/oracle_bound.py --dataset bank --constraint error_rate_parity --gaps 0.088 --runs 10 --json
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import itertools
import json
import sys

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from _harness import FIRST_SEED, Splits, numbers, read_bench, rounded
from baselines import NOTIONS, TrainingRows, statistics_of
from fairveil.data.datasets import dataset_schema
from fairveil.data.encoding import Encoder
from fairveil.errors import BadStructureError
from fairveil.fairness.constraints import CONSTRAINT_TYPES
from fairveil.research.boosting import class_chances

HIGHEST_PRICE, N_PRICES = 1.5, {1: 151, 2: 41}
"""Of a unit of accuracy for a unit of the difference; how many are tried, by the number of differences."""


def learners() -> dict[str, ClassifierMixin]:
    """Return what learns P(a, y | x)."""
    trees = HistGradientBoostingClassifier(
        max_iter=60, learning_rate=0.08, max_leaf_nodes=8, min_samples_leaf=40, random_state=0
    )
    return {"boosted trees": trees, "logistic regression": LogisticRegression(solver="newton-cholesky")}


def unit_prices(statistics: TrainingRows, notion: str) -> list[np.ndarray]:
    """Return for each difference what deciding 1 costs in each cell (groups x labels), at a price of one.

    The difference is that of group 1 less group 0; deciding 1 for a person of a cell moves a rate by 1 / its people.
    """
    known = statistics.groups >= 0
    groups, y = statistics.groups[known], statistics.y[known]
    sizes = np.array([[np.sum((groups == a) & (y == label)) for label in (0, 1)] for a in (0, 1)], dtype=float)
    sign = np.array([[-1.0], [1.0]])
    of_group = sign * sizes.sum() / sizes.sum(axis=1, keepdims=True)
    if notion == NOTIONS[0]:
        return [np.repeat(of_group, 2, axis=1)]
    if notion == NOTIONS[2]:  # deciding 1 is an error for label 0 and spares one for label 1
        return [of_group * np.array([[1.0, -1.0]])]
    within = sign * sizes.sum(axis=0) / sizes
    return [within * np.array([[1.0, 0.0]]), within * np.array([[0.0, 1.0]])]


def chances(learner: ClassifierMixin, statistics: TrainingRows, X_test: np.ndarray) -> np.ndarray:
    """Return P(a, y | x) of the test rows, shape (rows, groups, labels)."""
    known = statistics.groups >= 0
    cells = 2 * statistics.groups[known] + statistics.y[known]
    found = class_chances(learner, statistics.X[known].astype(float), cells, 4, X_test.astype(float))
    return found.reshape(-1, 2, 2)


def decisions(joint: np.ndarray, prices: list[np.ndarray], weights: tuple[float, ...]) -> np.ndarray:
    """Return the decision of each row that gains most: accuracy less what it costs at these prices."""
    gain = np.array([-1.0, 1.0]) - sum(weight * price for weight, price in zip(weights, prices, strict=True))
    return (np.einsum("ray,ay->r", joint, gain) > 0).astype(int)


def sweep(splits: Splits, rows: np.ndarray, name: str, options: argparse.Namespace) -> dict:
    """Return mean accuracy, gap and share of positives over runs, for every choice of prices."""
    bench, asked = splits.bench, CONSTRAINT_TYPES[options.constraint](0.0)
    found: dict[tuple[float, ...], list[tuple[float, float, float]]] = {}
    for run in range(options.runs):
        train, test = splits(run)
        statistics = statistics_of(bench, rows, train)
        if statistics.n_groups != 2:
            raise BadStructureError(f"Expected two groups, got {statistics.n_groups}; choose another data set.")
        joint, prices = (
            chances(learners()[name], statistics, rows[test]),
            unit_prices(statistics, options.constraint),
        )
        grid = np.linspace(-HIGHEST_PRICE, HIGHEST_PRICE, N_PRICES[len(prices)])
        for weights in itertools.product(grid.tolist(), repeat=len(prices)):
            chosen = decisions(joint, prices, weights)
            coded = np.where(chosen == 1, bench.people.positive, 1 - bench.people.positive)
            figures = (
                float(np.mean(coded == bench.y[test])),
                bench.largest_bound(coded, test, asked),
                float(chosen.mean()),
            )
            found.setdefault(weights, []).append(figures)
    return {weights: np.mean(figures, axis=0) for weights, figures in found.items()}


def best_within(curve: dict, gap: float) -> dict[str, float | None]:
    """Return the most accurate point whose mean gap is at most `gap`; nulls where there is none."""
    within = [point for point in curve.values() if point[1] <= gap]
    best = max(within, key=lambda point: point[0]) if within else [None] * 3
    names = ("accuracy_mean", "gap_mean", "positive_rate_mean")
    return dict(zip(names, (None if one is None else float(one) for one in best), strict=True))


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="compas")
    parser.add_argument("--sensitive", help="a column of two groups; else the schema's first")
    parser.add_argument("--constraint", default=NOTIONS[0], choices=NOTIONS)
    parser.add_argument("--gaps", type=numbers, default=(0.05,), help="one or several, with commas")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, help="of the splits")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    return parser.parse_args(arguments)


def main() -> None:
    options = options_of(sys.argv[1:])
    names = [options.sensitive] if options.sensitive else ()
    bench = read_bench(options.dataset, dataset_schema(options.dataset), False, names)
    splits, rows = Splits(bench, "random", options.first_seed), Encoder(bench.schema).rows(bench.frame)
    results = []
    for name in learners():
        curve = sweep(splits, rows, name, options)
        for gap in options.gaps:
            row = {"dataset": options.dataset, "constraint": options.constraint, "learner": name}
            row |= {"asked_gap": gap, **best_within(curve, gap), "runs": options.runs}
            results.append(rounded(row))
            if not options.json:
                print(f"# {name}, gap <= {gap}: {row['accuracy_mean']} at {row['gap_mean']}", file=sys.stderr)
    print(json.dumps({"rows": results}, allow_nan=False))


if __name__ == "__main__":
    main()
