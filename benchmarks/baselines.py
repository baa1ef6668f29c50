"""The four baselines that PF-LD (privacy of the sensitive attribute alone) is compared with, on the same splits.

CLF: a network with two hidden layers, neither fair nor private. Z (Zafar et al. 2017a, 2017b): logistic regression
whose covariance between group and distance to the boundary is zero; for demographic parity the distance of everyone,
for the other notions that of the misclassified. A (Agarwal et al. 2018): reductions over logistic regression, fair but
not private, as fairlearn has them by default. M (Mozannar, Ohannessian and Srebro 2020): every known attribute passes
once through randomised response, and A is trained with the constraint debiased. Rows with an unknown attribute count
for the loss only; the attribute is never a feature.

The epsilon of M is the one for a change of a person's attribute from a to a', as PF-LD's paper states its own. It does
not hide whether the attribute is known, and dp-accounting's RandomizedResponse event counts that otherwise: under
REPLACE_ONE it agrees with `rr_epsilon`, under REPLACE_SPECIAL an absent record answers at random and costs less.
So M and PF-LD are to be compared at a -> a'.

"violation" is the largest difference between two groups of known attribute on the held-out rows. The answers of A and M
are drawn at random; their scores are the probabilities of deciding 1. Run r uses seed 1000 + r; seeds below 100 were
used while the settings were chosen.

    python benchmarks/baselines.py --dataset adult --constraint demographic_parity --epsilon 1 --runs 10 --json
    python benchmarks/baselines.py --dataset bank --sensitive age --constraint equalized_odds --runs 10 --json
    python benchmarks/baselines.py --dataset compas --sensitive race --constraint error_rate_parity --rivals A,M --json
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from fairlearn.reductions import ExponentiatedGradient, UtilityParity
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from _harness import FIRST_SEED, Answer, Bench, Splits, read_bench, rounded
from fairveil.data.datasets import dataset_schema
from fairveil.data.encoding import Encoder
from fairveil.errors import BadStructureError
from fairveil.fairness.constraints import CONSTRAINT_TYPES

NOTIONS = ("demographic_parity", "equalized_odds", "error_rate_parity")
HIDDEN = (64, 64)
WEIGHT_DECAY, N_EPOCHS, BATCH = 0.1, 8, 256
"""Smallest loss on held-out training rows of Adult and Bank (seeds 11 and 12); more epochs overfit."""

MOST_STEPS = 500
"""Of Z's program; the slowest of our data sets needs about 240."""


@dataclass(frozen=True)
class TrainingRows:
    """Training data of one split: encoded rows, labels (1 = positive class) and groups from 0 on (-1 = unknown)."""

    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray

    @property
    def n_groups(self) -> int:
        return int(self.groups.max()) + 1

    def events(self, notion: str) -> list[np.ndarray]:
        """Return the rows among which groups are compared: all of known group, or those of each label."""
        is_known = self.groups >= 0
        return [is_known & (self.y == label) for label in (0, 1)] if notion == NOTIONS[1] else [is_known]


Rival = Callable[[TrainingRows, np.ndarray, str, float, int], Answer]


def network(statistics: TrainingRows, X_test: np.ndarray, notion: str, epsilon: float, seed: int) -> Answer:
    """CLF: answer with a network that knows nothing of groups."""
    clf = MLPClassifier(HIDDEN, alpha=WEIGHT_DECAY, batch_size=BATCH, max_iter=N_EPOCHS, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is stopped before it overfits
        scores = clf.fit(statistics.X, statistics.y).predict_proba(X_test)[:, 1]
    return Answer((scores > 0.5).astype(int), scores)


@dataclass(frozen=True)
class BoundaryProgram:
    """Logistic regression (C = 1) whose covariances between group and distance to the boundary are zero."""

    statistics: TrainingRows
    notion: str

    @cached_property
    def rows(self) -> np.ndarray:
        """The rows with a last column of ones."""
        return np.column_stack([self.statistics.X, np.ones(len(self.statistics.X))]).astype(np.float32)

    @cached_property
    def signs(self) -> np.ndarray:
        return (2 * self.statistics.y - 1).astype(np.float32)

    @cached_property
    def contrasts(self) -> list[np.ndarray]:
        """For every event and group but the first, the centred indicator of the group over the rows of the event."""
        found = []
        for is_in in self.statistics.events(self.notion):
            for group in range(1, self.statistics.n_groups):
                is_own = is_in & (self.statistics.groups == group)
                n_in = max(int(is_in.sum()), 1)
                found.append((is_own - is_in * (np.count_nonzero(is_own) / n_in)) / n_in)
        return [contrast.astype(np.float32) for contrast in found]

    def loss(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the mean loss with scikit-learn's ridge, which spares the intercept, and its gradient."""
        margins, n = self.signs * (self.rows @ theta.astype(np.float32)), len(self.signs)
        ridge = np.append(theta[:-1], 0.0) / n
        slope = -(self.rows.T @ (self.signs * expit(-margins))).astype(float) / n
        return float(np.logaddexp(0, -margins).mean(dtype=float) + theta @ ridge / 2), slope + ridge

    def slopes(self, theta: np.ndarray) -> np.ndarray:
        """Return the gradients of all covariances; the covariances are their products with theta."""
        weights = np.ones(len(self.signs), np.float32)
        if self.notion != NOTIONS[0]:  # g = min(0, y distance): the distance of the misclassified
            weights = self.signs * (self.signs * (self.rows @ theta.astype(np.float32)) < 0)
        return np.array([(contrast * weights) @ self.rows for contrast in self.contrasts], dtype=float)

    def solve(self) -> np.ndarray:
        """Return the parameters, from the unconstrained ones on; SLSQP meets the covariances by their slopes.

        Beyond demographic parity the program is not convex: what is found is a stationary point.
        """
        plain = LogisticRegression(solver="newton-cholesky").fit(self.statistics.X.astype(float), self.statistics.y)
        start = np.append(plain.coef_[0], plain.intercept_).astype(float)
        zero = {"type": "eq", "fun": lambda theta: self.slopes(theta) @ theta, "jac": self.slopes}
        options = {"maxiter": MOST_STEPS, "ftol": 1e-7}
        return minimize(self.loss, start, jac=True, method="SLSQP", constraints=[zero], options=options).x


def boundary_covariance(statistics: TrainingRows, X_test: np.ndarray, notion: str, epsilon: float, seed: int) -> Answer:
    """Z: answer with the logistic regression whose boundary does not covary with the group."""
    theta = BoundaryProgram(statistics, notion).solve()
    scores = expit(X_test @ theta[:-1] + theta[-1])
    return Answer((scores > 0.5).astype(int), scores)


def truth_probability(epsilon: float, k: int) -> float:
    """Return how often k-ary randomised response tells the truth if it is epsilon-private for a change a -> a'."""
    return 1 / (1 + (k - 1) * math.exp(-epsilon))


def rr_epsilon(truth: float, k: int) -> float:
    """Return the epsilon for a change a -> a' of k-ary randomised response that tells the truth so often."""
    return math.log(truth * (k - 1) / (1 - truth)) if truth < 1 else math.inf


def response_matrix(truth: float, k: int) -> np.ndarray:
    """Return the probability of every answer (row) given the true group (column)."""
    lie = (1 - truth) / (k - 1)
    return np.full((k, k), lie) + (truth - lie) * np.eye(k)


def randomized_response(groups: np.ndarray, truth: float, k: int, coins: np.random.Generator) -> np.ndarray:
    """Return what everyone answers: the own group, or else one of the others; what is unknown stays unknown."""
    others = (groups + coins.integers(1, k, size=len(groups))) % k
    told = np.where(coins.random(len(groups)) < truth, groups, others)
    return np.where(groups >= 0, told, -1)


class DebiasedParity(UtilityParity):
    """fairlearn's parity from the answers of a randomised response, with the inverse of its matrix.

    A row that answers z stands in group a with the weight `inverse[a, z]`, whose mean given the true group is 1 for
    that group and 0 for the others. With the identity for a matrix this is fairlearn's own parity among the rows of
    known group. A share that is smaller than its own standard error is replaced by that error: no mean is divided by
    what may be nobody.
    """

    def __init__(self, notion: str, inverse: np.ndarray) -> None:
        super().__init__()
        self.notion, self.inverse = notion, inverse

    def load_data(self, X: np.ndarray, y: pd.Series, *, sensitive_features: pd.Series) -> None:
        """Load rows, labels and answers; a row without an event counts for no constraint."""
        statistics = TrainingRows(np.asarray(X), np.asarray(y), np.asarray(sensitive_features))
        event = pd.Series(None, index=range(len(statistics.y)), dtype=object)
        for number, is_in in enumerate(statistics.events(self.notion)):
            event[is_in] = f"event {number}"
        is_error = self.notion == NOTIONS[2]
        utilities = np.column_stack([statistics.y, 1 - statistics.y]).astype(float) if is_error else None
        labels, answers = pd.Series(statistics.y), pd.Series(statistics.groups)
        super().load_data(X, labels, sensitive_features=answers, event=event, utilities=utilities)
        for number, is_in in enumerate(statistics.events(self.notion)):
            self._debias(f"event {number}", is_in, statistics.groups)

    def _debias(self, event: str, is_in: np.ndarray, answers: np.ndarray) -> None:
        weights = self.inverse[:, answers[is_in]].T
        shares = np.maximum(weights.mean(axis=0), weights.std(axis=0) / math.sqrt(max(len(weights), 1)))
        shares = shares / shares.sum()  # sums to 1 before the floor: answers' weights do
        for group in self.prob_group_event[event].index if event in self.prob_event else ():
            self.prob_group_event[event, group] = self.prob_event[event] * shares[group]
            pull = np.zeros(len(answers))
            pull[is_in] = (1 - weights[:, group] / shares[group]) / self.prob_event[event]
            self.U["+", event, group], self.U["-", event, group] = pull, -pull


def reduced(
    statistics: TrainingRows,
    answers: np.ndarray,
    inverse: np.ndarray,
    X_test: np.ndarray,
    notion: str,
    seed: int,
) -> Answer:
    """Answer with fairlearn's reductions at their defaults, the constraint read from these answers.

    The base learner is scikit-learn's logistic regression with a solver that reaches the same optimum sooner, in double
    precision because one-hot columns beside a free intercept are nearly dependent.
    """
    X, learner = statistics.X.astype(float), LogisticRegression(solver="newton-cholesky")
    rule = ExponentiatedGradient(learner, DebiasedParity(notion, inverse))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # fairlearn's own use of pandas
        rule.fit(X, pd.Series(statistics.y), sensitive_features=pd.Series(answers))
    scores = np.clip(rule._pmf_predict(X_test)[:, 1], 0, 1)  # the mixture's weights sum to 1 up to rounding
    return Answer(rule.predict(X_test, random_state=seed), scores)


def reductions(statistics: TrainingRows, X_test: np.ndarray, notion: str, epsilon: float, seed: int) -> Answer:
    """A: answer with reductions that see the groups as they are."""
    return reduced(statistics, statistics.groups, np.eye(statistics.n_groups), X_test, notion, seed)


def private_reductions(statistics: TrainingRows, X_test: np.ndarray, notion: str, epsilon: float, seed: int) -> Answer:
    """M: answer with reductions that see the groups through randomised response, once for each person."""
    k = statistics.n_groups
    truth = truth_probability(epsilon, k)
    told = randomized_response(statistics.groups, truth, k, np.random.default_rng([seed, 1]))
    return reduced(statistics, told, np.linalg.inv(response_matrix(truth, k)), X_test, notion, seed)


RIVALS: dict[str, Rival] = {
    "CLF": network,
    "Z": boundary_covariance,
    "A": reductions,
    "M": private_reductions,
}


def measure(splits: Splits, rows: np.ndarray, name: str, options: argparse.Namespace) -> dict:
    """Return means and standard deviations over runs of one rival's exact figures."""
    start = time.perf_counter()
    figures = [figures_of(splits, rows, name, options, run) for run in range(options.runs)]
    table = pd.DataFrame(figures)
    spread = table.std(ddof=1)
    return {
        "dataset": options.dataset, "sensitive": [a.name for a in splits.bench.people.attributes],
        "rival": name, "constraint": options.constraint, "epsilon": options.epsilon if name == "M" else None,
        "accuracy_mean": table["accuracy"].mean(), "accuracy_sd": spread["accuracy"],
        "violation_mean": table["violation"].mean(), "violation_sd": spread["violation"],
        "roc_auc_mean": table["roc_auc"].mean(), "positive_rate_mean": table["positive_rate"].mean(),
        "runs": options.runs, "seconds_per_run": (time.perf_counter() - start) / options.runs,
    }  # fmt: skip


def figures_of(splits: Splits, rows: np.ndarray, name: str, options: argparse.Namespace, run: int) -> dict[str, float]:
    bench, (train, test) = splits.bench, splits(run)
    seed, positive = splits.first_seed + run, bench.people.positive
    answer = RIVALS[name](statistics_of(bench, rows, train), rows[test], options.constraint, options.epsilon, seed)
    coded = Answer(np.where(answer.decisions == 1, positive, 1 - positive), answer.scores)
    found = bench.figures(coded, test)
    asked = CONSTRAINT_TYPES[options.constraint](0.0)
    return {
        "accuracy": found["accuracy"],
        "roc_auc": found["roc_auc"],
        "violation": bench.largest_bound(coded.decisions, test, asked),
        "positive_rate": float(np.mean(answer.decisions)),
    }


def statistics_of(bench: Bench, rows: np.ndarray, train: np.ndarray) -> TrainingRows:
    """Return the training rows with groups counted from 0, whatever their codes."""
    numbers = np.full(max(bench.groups.max(), bench.people.codes.max()) + 1, -1)
    numbers[bench.people.codes] = np.arange(len(bench.people.codes))
    y = (bench.y[train] == bench.people.positive).astype(int)
    return TrainingRows(rows[train], y, numbers[bench.groups[train]])


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--sensitive", help="one or several, with commas; else the schema's first")
    parser.add_argument("--constraint", default=NOTIONS[0], choices=NOTIONS)
    parser.add_argument("--epsilon", type=float, default=1.0, help="of M, for a change a -> a'")
    parser.add_argument("--rivals", default=",".join(RIVALS), help="one or several, with commas")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, help="of the splits")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    options = parser.parse_args(arguments)
    options.rivals = options.rivals.split(",")
    strangers = [name for name in options.rivals if name not in RIVALS]
    if strangers:
        parser.error(f"Expected --rivals among {', '.join(RIVALS)}, got {', '.join(strangers)}.")
    return options


def main() -> None:
    options = options_of(sys.argv[1:])
    names = options.sensitive.split(",") if options.sensitive else ()
    bench = read_bench(options.dataset, dataset_schema(options.dataset), False, names)
    if bench.people.n_classes != 2:
        raise BadStructureError(f"Expected two classes, got {bench.people.n_classes}; choose another data set.")
    splits, rows = Splits(bench, "random", options.first_seed), Encoder(bench.schema).rows(bench.frame)
    results = []
    for name in options.rivals:
        row = measure(splits, rows, name, options)
        results.append(rounded(row))
        if not options.json:
            line = f"accuracy {row['accuracy_mean']:.4f} violation {row['violation_mean']:.4f}"
            print(f"# {name}: {line}", file=sys.stderr)
    print(json.dumps({"rows": results}, allow_nan=False))


if __name__ == "__main__":
    main()
