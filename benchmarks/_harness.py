"""Shared by the benchmarks: a data set ready to be split, its non-private twin, exact figures, means over runs.

All figures are exact counts on held-out rows of public data, for research. Gaps are differences between the largest and
the smallest group: "equal opportunity" compares true positive rates; equalized odds also false positive rates, once as
the larger of the two gaps and once as their mean, because published tables do both.
"""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score

from fairveil import Groupwise, GroupwiseClassifier, Schema
from fairveil.data.datasets import dataset_path
from fairveil.data.encoding import Encoder
from fairveil.errors import BadStructureError
from fairveil.fairness.constraints import Constraint, constrain
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.fairdp.recipe import GroupScale
from fairveil.methods.inputs import TableSource
from fairveil.privacy.queries import CrossEntropy, NoisyMarginRate
from fairveil.privacy.records import Rows
from fairveil.research.dp2dp_forms import ExactProblem

FIRST_SEED = 1000
"""Seeds below 100 were used while the defaults were set."""

TRAIN_SHARE = 0.75
"""Of a random split."""

ROWS_SEED = 77
"""Draws the rows that stand for a larger data set."""

LARGEST_PROGRAM = 100_000
"""Rows for which the fair twin solves the linear program; above, the same optimum by its dual."""

FLAG = "is_train"
"""The column that says which rows the source trains on."""


@dataclass(frozen=True)
class Bench:
    """A data set with its schema, its groups and labels as codes, ready to be split again and again."""

    frame: pd.DataFrame
    schema: Schema
    people: Population
    y: np.ndarray
    groups: np.ndarray

    @classmethod
    def of(cls, frame: pd.DataFrame, schema: Schema, sensitive: Sequence[str] = (), aware: bool = False) -> "Bench":
        """Return the rows that count; without `aware` the sensitive columns are no features."""
        encoder = Encoder(schema)
        frame = frame[encoder.keep(frame)].reset_index(drop=True)
        entries = tuple(schema.sensitive_named(name) for name in sensitive) or schema.sensitive[:1]
        attributes = tuple(Attribute(entry.column, entry.groups) for entry in entries)
        classes = schema.target.classes
        people = Population(attributes, classes, classes.index(schema.target.positive))
        y = encoder.targets(frame[schema.target.column])
        groups = people.code([encoder.groups(frame[entry.column], entry) for entry in entries])
        schema = schema.model_copy(update={"sensitive": entries, "id_column": None})
        if not aware:
            names = [entry.column for entry in entries]
            schema = schema.without(*(name for name in names if name in schema.columns))
        return cls(frame, schema, people, y, groups)

    def subset(self, n_rows: int | None) -> "Bench":
        """Return a random part of so many rows, the same every time; all if there are no more, or without a number."""
        if n_rows is None or len(self.y) <= n_rows:
            return self
        kept = np.sort(np.random.default_rng(ROWS_SEED).choice(len(self.y), n_rows, replace=False))
        frame = self.frame.iloc[kept].reset_index(drop=True)
        return replace(self, frame=frame, y=self.y[kept], groups=self.groups[kept])

    def public(self, n_rows: int) -> Schema:
        """Return the schema for so many rows, a number that the split makes public."""
        return self.schema.model_copy(update={"n_public": n_rows})

    def random_split(self, seed: int, train_share: float) -> tuple[np.ndarray, np.ndarray]:
        """Return training and test rows, each row by its own coin."""
        known = np.flatnonzero(self.y >= 0)
        is_train = np.random.default_rng(seed).random(len(known)) < train_share
        return known[is_train], known[~is_train]

    def stratified_split(self, seed: int, train_share: float) -> tuple[np.ndarray, np.ndarray]:
        """Return training and test rows with the same share of every group and label."""
        rng, known = np.random.default_rng(seed), np.flatnonzero(self.y >= 0)
        strata = self.groups[known].astype(np.int64) * self.people.n_classes + self.y[known]
        shuffled = [rng.permutation(known[strata == stratum]) for stratum in np.unique(strata)]
        cuts = [round(train_share * len(rows)) for rows in shuffled]
        train = [rows[:cut] for rows, cut in zip(shuffled, cuts, strict=True)]
        test = [rows[cut:] for rows, cut in zip(shuffled, cuts, strict=True)]
        return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))

    def source_split(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the training and test rows of the source (`with_source_split`)."""
        is_train, is_known = self.frame[FLAG].to_numpy(dtype=bool), self.y >= 0
        return np.flatnonzero(is_known & is_train), np.flatnonzero(is_known & ~is_train)

    def at_ratio(self, rows: np.ndarray, ratio: float, seed: int) -> np.ndarray:
        """Return the rows with every group cut down at random to at most `ratio` times the smallest one."""
        rng, groups = np.random.default_rng(seed), self.groups[rows]
        parts = [rows[groups == code] for code in self.people.codes]
        most = round(ratio * min(len(part) for part in parts if len(part)))
        kept = [part if len(part) <= most else rng.choice(part, most, replace=False) for part in parts]
        return np.sort(np.concatenate(kept))

    def full_ratio(self, rows: np.ndarray) -> float:
        """Return the size of the largest group over that of the smallest one that is not empty."""
        sizes = [np.count_nonzero(self.groups[rows] == code) for code in self.people.codes]
        return max(sizes) / min(size for size in sizes if size)

    def largest_bound(
        self, decisions: np.ndarray, rows: np.ndarray, constraint: Constraint, smallest: int = 0
    ) -> float:
        """Return the largest left side of the constraint, over bounds on at least `smallest` people each."""
        bounds = constrain(constraint, self.people)
        cells = bounds.cells[self.groups[rows], self.y[rows]]
        counts = np.zeros((bounds.n_cells, bounds.n_classes))
        np.add.at(counts, (cells[cells >= 0], decisions[cells >= 0]), 1)
        is_large = bounds.estimate(counts).smallest_denominators >= smallest
        return float(bounds.values(counts)[is_large].max()) if is_large.any() else math.nan

    def figures(self, answer: "Answer", rows: np.ndarray) -> dict[str, float]:
        """Return accuracy, areas and gaps of the answers to these rows."""
        y, positive = self.y[rows], self.people.positive
        is_known = np.isin(self.groups[rows], self.people.codes)
        gaps = gaps_of(answer.decisions[is_known] == positive, y[is_known] == positive, self.groups[rows][is_known])
        return {
            "accuracy": float(np.mean(answer.decisions == y)),
            **areas_of(answer.scores, y == positive),
            **gaps,
        }


@dataclass(frozen=True)
class Answer:
    """What a classifier says of the held-out rows: class codes, and the probability of the positive class."""

    decisions: np.ndarray
    scores: np.ndarray

    @classmethod
    def of(cls, clf: Any, table: pd.DataFrame, positive: int) -> "Answer":
        """Return the answers of a fitted classifier whose classes stand in the schema's order."""
        codes = {name: code for code, name in enumerate(clf.classes_.tolist())}
        decisions = np.array([codes[name] for name in clf.predict(table).tolist()])
        return cls(decisions, clf.predict_proba(table)[:, positive])


@dataclass(frozen=True)
class Splits:
    """Which rows run r trains on: a random share by its own seed, or the source's own every time."""

    bench: Bench
    kind: str
    first_seed: int

    def __call__(self, run: int) -> tuple[np.ndarray, np.ndarray]:
        if self.kind == "original":
            return self.bench.source_split()
        return self.bench.random_split(self.first_seed + run, TRAIN_SHARE)

    @property
    def n_public(self) -> int:
        return len(self(0)[0]) if self.kind == "original" else round(TRAIN_SHARE * len(self.bench.y))


@dataclass(frozen=True)
class Twin:
    """scikit-learn's model on one split: probabilities of the training and of the held-out rows."""

    train: np.ndarray
    test: np.ndarray

    @classmethod
    def of(cls, splits: Splits, rows: np.ndarray, run: int) -> "Twin":
        return cls.on(rows, splits.bench.y, *splits(run))

    @classmethod
    def on(cls, rows: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> "Twin":
        model = LogisticRegression(max_iter=1000).fit(rows[train], y[train])
        return cls(model.predict_proba(rows[train]), model.predict_proba(rows[test]))

    def answer(self, positive: int) -> Answer:
        return Answer(self.test.argmax(axis=1), self.test[:, positive])

    def fair_answer(self, splits: Splits, run: int, asked: Constraint) -> Answer:
        """Return the decisions of the exact optimum on the training rows, by linear programming or by its dual.

        For bounds whose cells tell no labels apart (demographic parity); `_yardsticks` has the others.
        """
        bench, (train, test) = splits.bench, splits(run)
        bounds = constrain(asked, bench.people)
        problem = ExactProblem(self.train, bounds.cells[bench.groups[train], bench.y[train]], bounds)
        is_small = len(train) <= LARGEST_PROGRAM
        prices = problem.multipliers() if is_small else problem.hard_max_multipliers()
        tilts = problem.tilts(prices)[bounds.cells[bench.groups[test], bench.y[test]]]
        return Answer((self.test - tilts).argmax(axis=1), self.test[:, bench.people.positive])


def twins_of(splits: Splits, runs: int) -> list[Twin]:
    rows = Encoder(splits.bench.schema).rows(splits.bench.frame)
    if splits.kind == "original":
        return [Twin.of(splits, rows, 0)] * runs
    return [Twin.of(splits, rows, run) for run in range(runs)]


def with_source_split(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return the source's own rows with a column `is_train`.

    They come from a column `split` (train or test), else from a file NAME_fairdp_rows.parquet beside the data, which
    holds row numbers and flags.
    """
    if "split" in frame:
        return frame.assign(**{FLAG: (frame["split"] == "train").to_numpy(dtype=bool)})
    listed = path.with_name(f"{path.stem}_fairdp_rows.parquet")
    if not listed.is_file():
        raise BadStructureError(
            f"Expected a column split in {path.name} or a file {listed.name} beside it, got neither; split at random."
        )
    rows = pd.read_parquet(listed)
    return frame.iloc[rows["row"]].assign(**{FLAG: rows[FLAG].to_numpy(dtype=bool)}).reset_index(drop=True)


def read_bench(
    name: str, schema: Schema, keeps_split: bool, sensitive: Sequence[str] = (), aware: bool = False
) -> Bench:
    """Return a data set of this name, with the source's own split where it is kept."""
    path = dataset_path(name)
    frame = pd.read_parquet(path)
    return Bench.of(with_source_split(frame, path) if keeps_split else frame, schema, sensitive, aware)


def spread_of(is_yes: np.ndarray, groups: np.ndarray) -> float:
    """Return the difference between the largest and the smallest share of yes among groups; NaN for one group."""
    shares = [float(np.mean(is_yes[groups == code])) for code in np.unique(groups)]
    return max(shares) - min(shares) if len(shares) > 1 else math.nan


def gaps_of(is_chosen: np.ndarray, is_positive: np.ndarray, groups: np.ndarray) -> dict[str, float]:
    """Return the gaps in the rate of positive decisions: of all, of positives, and of positives and negatives.

    In the place of decisions there may be their probabilities.
    """
    chances = spread_of(is_chosen[is_positive], groups[is_positive])
    alarms = spread_of(is_chosen[~is_positive], groups[~is_positive])
    return {
        "demographic_parity": spread_of(is_chosen, groups),
        "equal_opportunity": chances,
        "equalized_odds_max": max(chances, alarms) if not math.isnan(chances + alarms) else math.nan,
        "equalized_odds_mean": (chances + alarms) / 2,
    }


def paper_taus(
    clf: GroupwiseClassifier, recipe: Groupwise, table: pd.DataFrame, labels: pd.Series, seed: int
) -> dict[str, float]:
    """Return tau_emp as FairDP computes it (Equation 10), from a fresh batch whose gradient has no noise: not private.

    The gaps are those of the rows given, for decisions drawn with the noise of the last step around its true mean.
    """
    front, model, last = clf.inputs_, clf.model_, clf.last_step_
    records = front.records(TableSource(table, labels))
    sizes = np.bincount(records.groups, minlength=front.people.n_groups)[front.people.codes]
    scale = GroupScale.by_group(front.task, sizes.astype(float))
    if recipe.divisors == "common":
        scale = GroupScale.common(front.task, float(len(records.y)))
    is_drawn = np.random.default_rng(seed).random(len(records.y)) < last.sampling_rate
    batch = Rows(records, np.flatnonzero(is_drawn))
    pulls = CrossEntropy(scale.weights).dlogits(model.logits(last.before, batch.X), batch)
    bounds = recipe.descent.numbers_for(front.task).clip_norm * scale.weights[batch.groups]
    total = model.clipped_gradient(last.before, batch.X, pulls, bounds)
    mean = last.before - last.learning_rate * total / (last.sampling_rate * scale.total)
    rates = NoisyMarginRate(model, mean.astype(np.float32), last.margin_std)
    law = 0.5 + rates.values_of(Rows(records, np.arange(len(records.y))))[0]
    return gaps_of(law, records.y == front.people.positive, records.groups)


def tau_of(clf: GroupwiseClassifier, constraint: Constraint, name: str) -> float:
    """Return the number of the noise certificate's statement whose name starts so; NaN where nothing is told."""
    found = [one.gap for one in clf.noise_certificate(constraint).statements if one.name.startswith(name)]
    return math.nan if not found or found[0] is None else found[0]


def misses(figures: dict[str, float], names: Iterable[str]) -> dict[str, float]:
    """Return how far the private tau is from the paper's and from the exact gap on the test rows."""
    return {
        f"miss_{other}{name}": abs(figures[f"tau_{name}"] - figures[f"{other}{name}"])
        for name in names
        for other in ("paper_tau_", "")
    }


def areas_of(scores: np.ndarray, is_positive: np.ndarray) -> dict[str, float]:
    """Return the areas under the precision-recall curve (average precision) and under the ROC curve."""
    if is_positive.all() or not is_positive.any():
        return {"auc_pr": math.nan, "roc_auc": math.nan}
    return {
        "auc_pr": float(average_precision_score(is_positive, scores)),
        "roc_auc": float(roc_auc_score(is_positive, scores)),
    }


def paired(after: Sequence[float], before: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of the differences run by run, and its 95 % interval."""
    return interval([one - other for one, other in zip(after, before, strict=True)])


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and its 95 % interval over runs."""
    mean, n = float(np.mean(values)), len(values)
    half = float(t.ppf(0.975, n - 1) * np.std(values, ddof=1) / math.sqrt(n)) if n > 1 else math.nan
    return mean, mean - half, mean + half


def published_rows(path: str | Path, paper: str) -> list[dict[str, Any]]:
    """Return one paper's rows of a CSV of published figures; a value that is no number is NaN."""
    with open(path, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["paper"] == paper]
    values = pd.to_numeric(pd.Series([row["value"] for row in rows]), errors="coerce")
    return [row | {"value": float(value)} for row, value in zip(rows, values, strict=True)]


def mean_row(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each figure under its name, and the ends of its interval beside; of misses the largest."""
    row = {}
    for name in figures[0]:
        row[name], row[f"{name}_low"], row[f"{name}_high"] = interval([one[name] for one in figures])
        if name.startswith("miss_"):
            row[f"{name}_largest"] = max(one[name] for one in figures)
    return row


def published_cell(path: str | Path, paper: str, table: str, dataset: str, setting: str) -> dict[str, float | str]:
    """Return what one paper prints in a table for a data set and a setting that starts so, by metric."""
    found = [
        row
        for row in published_rows(path, paper)
        if (row["table"], row["dataset"].split()[0]) == (table, dataset) and row["setting"].startswith(setting)
    ]
    return {"method": found[0]["method"]} | {row["metric"]: row["value"] for row in found} if found else {}


def published_curves(path: str | Path, dataset: str | None, constraint: str, epsilon: float) -> list[dict[str, Any]]:
    """Return the points of published curves for one data set, constraint and epsilon."""
    with open(path, newline="") as file:
        found = [
            row
            for row in csv.DictReader(file)
            if (row["dataset"], row["constraint"], float(row["epsilon"])) == (dataset, constraint, epsilon)
        ]
    return [
        {"method": row["method"], "accuracy": 1 - float(row["error_or_accuracy"]), "gap": float(row["gap"])}
        for row in found
    ]


def numbers(text: str) -> tuple[float, ...]:
    """Return the numbers of a text with commas; "full" is infinity."""
    return tuple(math.inf if part == "full" else float(part) for part in text.split(","))


def rounded(value: object) -> object:
    """Return the same structure with floats at five digits, null where they are not finite."""
    if isinstance(value, list):
        return [rounded(one) for one in value]
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, float):
        return round(value, 5) if math.isfinite(value) else None
    return value
