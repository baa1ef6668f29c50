"""Baselines of the five papers that are not DP-FERMI: DPSGD-F, DPSGD-Global-Adapt, DP-ERM mitigation, Jagielski et al.

Figures are exact counts on held-out rows of public data, means over random 75/25 splits. Published points are those of
other people's runs (Lowy, Gupta and Razaviyayn's repository); see the caveats.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from _results import OURS, PUBLISHED, Curves, Result, Run, Table  # makes the modules of benchmarks/ importable

# isort: split
from _harness import FIRST_SEED, Answer, Splits
from fairveil import Descent, EqualizedOdds, Ledger, ParityPostprocessor, ParityTraining, PrivateClassifier
from fairveil.research.dp_erm import Mitigation
from fairveil.research.odds_program import OddsProgram
from fairveil.research.oracle_learner import OracleClassifier, OracleLearner
from published_cells import DELTA, NAMES, Point, bench_of, mean_point

EPSILONS = (0.5, 1.0, 3.0)
GAMMAS = (0.0, 0.3, 1.0, 3.0)
TOLERANCES = (0.0, 0.02, 0.05, 1.0)
BOUNDS = (0.1, 0.5, 1.0, 2.0, 4.0)
ROUNDS = 30
CLIPPINGS = {"flat": "DP-SGD", "groups": "DPSGD-F", "global_adapt": "DPSGD-Global-Adapt"}

TWICE = (
    "The published Adult counts every person twice, and its splits leave copies of training rows among the test rows."
)
SINGLE = (
    "Published DP-ERM points are single runs; their unit and delta are not stored, and lambda was judged on test rows."
)
ODD_ROWS = (
    "Published Jagielski errors are fractions of all rows at epsilon 0.5 and 1, so they are no test errors; at 3 they "
    "fit no row count tried. Their method protects the sensitive attribute alone."
)

Fit = Callable[[Splits, int], Answer]


def answered(clf: Any, splits: Splits, run: int) -> Answer:
    """Return the held-out answers of a classifier that is fitted to one split."""
    bench, (train, test) = splits.bench, splits(run)
    clf.fit(bench.frame.iloc[train], bench.frame[bench.schema.target.column].iloc[train])
    return Answer.of(clf, bench.frame.iloc[test], bench.people.positive)


def of_records(training: Any, epsilon: float, splits: Splits, run: int) -> Answer:
    """Fit `PrivateClassifier`: whole records are secret, delta 1e-5, decisions do not read the group."""
    schema = splits.bench.public(splits.n_public)
    sensitive = schema.sensitive[0].column
    clf = PrivateClassifier(epsilon, DELTA, training, schema, sensitive, ledger=Ledger())
    return answered(clf, splits, run)


# --- the unequal cost of privacy ------------------------------------------------------------------------------------


def group_accuracies(answer: Answer, splits: Splits, rows: np.ndarray) -> np.ndarray:
    """Return the accuracy in each known group."""
    bench = splits.bench
    is_right, groups = answer.decisions == bench.y[rows], bench.groups[rows]
    return np.array([is_right[groups == code].mean() for code in bench.people.codes])


def clipping_row(model: str, clipping: str, epsilon: float, free: Sequence[np.ndarray], run: Run) -> dict[str, Any]:
    """Return one row: accuracy, its gap between groups, and how unequally privacy costs the groups."""
    splits, found = Splits(bench_of("adult", False), "random", FIRST_SEED), []
    training = Descent(model, n_steps=run.pick(None, 20), clipping=clipping)
    for place in range(run.runs):
        rows, answer = splits(place)[1], of_records(training, epsilon, splits, place)
        own = group_accuracies(answer, splits, rows)
        parity = splits.bench.figures(answer, rows)["demographic_parity"]
        accuracy = np.mean(answer.decisions == splits.bench.y[rows])
        found.append([accuracy, np.ptp(own), np.ptp(free[place] - own), parity])
    means = np.mean(found, axis=0)
    spread = np.std(found, axis=0, ddof=1) if len(found) > 1 else np.zeros(4)
    return {
        "method": CLIPPINGS[clipping], "model": model, "epsilon": epsilon, "accuracy": means[0],
        "accuracy_sd": spread[0], "accuracy_gap": means[1], "accuracy_gap_sd": spread[1],
        "cost_gap": means[2], "cost_gap_sd": spread[2], "parity_gap": means[3], "runs": run.runs,
    }  # fmt: skip


def global_adapt(run: Run) -> Iterator[Result]:
    """DP-SGD, DPSGD-F and DPSGD-Global-Adapt on Adult: is the cost of privacy more equal between the sexes?"""
    splits, rows = Splits(bench_of("adult", False), "random", FIRST_SEED), []
    for model in run.pick(("auto", "mlp"), ("auto",)):
        training = Descent(model, n_steps=run.pick(None, 20))
        free = [
            group_accuracies(of_records(training, math.inf, splits, place), splits, splits(place)[1])
            for place in range(run.runs)
        ]
        for epsilon in run.pick((1.0, 3.0), (1.0,)):
            rows += [clipping_row(model, clipping, epsilon, free, run) for clipping in CLIPPINGS]
    caveats = (
        "accuracy_gap is the larger less the smaller accuracy of men and women; cost_gap the difference between what "
        "privacy costs them, against the same descent without noise and clipping on the same split.",
        "Whole records are secret, delta 1e-5. sd is that over splits.",
    )
    yield Table("global_adapt", "Three ways to clip on Adult", rows, caveats)


# --- curves beside published ones ------------------------------------------------------------------------------------


def published_points(run: Run, word: str, dataset: str, epsilon: float) -> list[tuple[float, float]]:
    """Return gap and accuracy of the published points of the method whose name has this word."""
    return [
        (float(row["gap"]), 1 - float(row["error_or_accuracy"]))
        for row in run.published_curves
        if word in row["method"] and row["dataset"] == dataset and float(row["epsilon"]) == epsilon
    ]


def best_within(points: Iterable[Point], gap: float) -> float | None:
    """Return the largest accuracy of points with no larger a gap; None if there are none."""
    return max((point.accuracy for point in points if point.gap <= gap), default=None)


def beside(
    panel: str, published: Sequence[tuple[float, float]], ours: Mapping[str, Sequence[Point]], facts: Mapping[str, Any]
) -> tuple[list[tuple], list[dict[str, Any]]]:
    """Return the points of a picture, and a row for each published point with our best accuracy at no larger gap."""
    points: list[tuple] = [
        (panel, name, OURS, point.gap, point.accuracy) for name, own in ours.items() for point in own
    ]
    points += [(panel, "published", PUBLISHED, gap, accuracy) for gap, accuracy in published]
    rows = [
        {**facts, "gap": gap, "accuracy": accuracy}
        | {f"our_{name}": best_within(own, gap) for name, own in ours.items()}
        for gap, accuracy in published
    ]
    return points, rows


def dp_erm(run: Run) -> Iterator[Result]:
    """DP-ERM mitigation under demographic parity, priced; and which of its two penalties does what."""
    curves: list[tuple] = []
    rows: list[dict[str, Any]] = []
    n_steps = run.pick(None, 20)
    for dataset in run.pick(tuple(NAMES), ("adult",)):
        for epsilon in run.pick(EPSILONS, (1.0,)):
            found = []
            for gamma in run.pick(GAMMAS, (0.0, 1.0)):
                training = Mitigation(gamma, gamma, Descent("linear", n_steps=n_steps))
                fit = partial(of_records, training, epsilon)
                bench = bench_of(NAMES[dataset], False)
                found.append(mean_point(f"{gamma:g}", bench, "demographic_parity", fit, run.runs))
            facts = {"data": dataset, "epsilon": epsilon}
            published = published_points(run, "DP-ERM", dataset, epsilon)
            more, further = beside(f"{dataset}, epsilon {epsilon:g}", published, {"mitigation": found}, facts)
            curves, rows = curves + more, rows + further
    title = "DP-ERM mitigation: published single runs and ours, all of it priced"
    yield Curves("dp_erm_curves", title, "demographic parity gap", "accuracy", curves, (TWICE, SINGLE), "points")
    if rows:
        caveats = (
            TWICE,
            SINGLE,
            "our_mitigation is our largest mean accuracy at no larger a gap, if any.",
        )
        yield Table("dp_erm_points", title, rows, caveats)
    yield Table("dp_erm_parts", "What each penalty does, Adult at epsilon 1", list(penalty_rows(run)), (
        "Without the first penalty, the two mean gradients need not be released, so there is less noise.",
        "accuracy_gap is between men and women: the gap that the paper is about.",
    ))  # fmt: skip


def penalty_rows(run: Run) -> Iterator[dict[str, Any]]:
    """Yield accuracy and gaps with each penalty by itself."""
    splits = Splits(bench_of("adult", False), "random", FIRST_SEED)
    for gamma_1, gamma_2 in run.pick(((0, 0), (1, 0), (10, 0), (0, 1), (0, 3), (1, 1)), ((0, 1),)):
        training, found = Mitigation(gamma_1, gamma_2, Descent("linear", n_steps=run.pick(None, 20))), []
        for place in range(run.runs):
            rows, answer = splits(place)[1], of_records(training, 1.0, splits, place)
            figures = splits.bench.figures(answer, rows)
            names = ("accuracy", "demographic_parity", "equalized_odds_max")
            found.append([*(figures[name] for name in names), np.ptp(group_accuracies(answer, splits, rows))])
        accuracy, parity, odds, gap = np.mean(found, axis=0)
        yield {
            "gamma_1": gamma_1, "gamma_2": gamma_2, "accuracy": accuracy, "accuracy_gap": gap,
            "demographic_parity_gap": parity, "equalized_odds_gap": odds, "runs": run.runs,
        }  # fmt: skip


def of_odds(tolerance: float, epsilon: float, run: Run, splits: Splits, place: int) -> Answer:
    """Fit DP-postprocessing: whole records are secret, the rule reads the group, delta 1e-5."""
    schema = splits.bench.public(splits.n_public)
    training = ParityTraining(solver=OddsProgram(), base=Descent("linear", n_steps=run.pick(None, 20)))
    clf = ParityPostprocessor(
        EqualizedOdds(tolerance), epsilon, DELTA, training, schema, schema.sensitive[0].column, ledger=Ledger()
    )
    return answered(clf, splits, place)


def of_oracle(bound: float, epsilon: float, run: Run, splits: Splits, place: int) -> Answer:
    """Fit DP-oracle-learner: the attribute alone is secret, decisions do not read it, delta 1/n^2."""
    schema, training = splits.bench.public(splits.n_public), OracleLearner(bound=bound, rounds=run.pick(ROUNDS, 3))
    sensitive, delta = schema.sensitive[0].column, 1 / splits.n_public**2
    clf = OracleClassifier(EqualizedOdds(), epsilon, delta, training, schema, sensitive, ledger=Ledger())
    return answered(clf, splits, place)


def jagielski(run: Run) -> Iterator[Result]:
    """DP-postprocessing and DP-oracle-learner under equalized odds, beside the published in-processing curves."""
    curves: list[tuple] = []
    rows: list[dict[str, Any]] = []
    settings = {
        "post": (True, of_odds, run.pick(TOLERANCES, (0.0,))),
        "oracle": (False, of_oracle, run.pick(BOUNDS, (1.0,))),
    }
    for dataset in run.pick(("adult", "credit-card"), ("adult",)):
        for epsilon in run.pick(EPSILONS, (1.0,)):
            ours = {}
            for name, (aware, fit, knobs) in settings.items():
                bench = bench_of(NAMES[dataset], aware)
                ours[name] = [
                    mean_point(f"{knob:g}", bench, "equalized_odds", partial(fit, knob, epsilon, run), run.runs)
                    for knob in knobs
                ]
            published = published_points(run, "in-processing", dataset, epsilon)
            facts = {"data": dataset, "epsilon": epsilon}
            more, further = beside(f"{dataset}, epsilon {epsilon:g}", published, ours, facts)
            curves, rows = curves + more, rows + further
    title = "Jagielski et al.: published in-processing, and ours"
    caveats = (
        ODD_ROWS, TWICE,
        "post is DP-postprocessing: whole records are secret, delta 1e-5, the rule reads the group. oracle is "
        "DP-oracle-learner: the attribute alone is secret, delta 1/n^2, decisions do not read it.",
    )  # fmt: skip
    yield Curves("jagielski_curves", title, "equalized odds gap", "accuracy", curves, caveats, "points")
    if rows:
        yield Table("jagielski_points", title, rows, (
            *caveats, "our_post and our_oracle are our largest mean accuracies at no larger a gap, if any.",
        ))  # fmt: skip


ITEMS = {"global_adapt": global_adapt, "dp_erm": dp_erm, "jagielski": jagielski}
