"""What is printed beside a private rule: models and fair rules on the same splits that are not private.

Every yardstick is found on training rows alone and measured on the held-out ones. A rule that reads the group sees
P(label | x) of a model; a rule that does not sees P(group, label | x), learned without the sensitive columns: by a
logistic regression of pairs on the encoding, or by boosted trees on the raw table.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from _harness import Answer, Splits, Twin, twins_of
from fairveil.data.encoding import Encoder
from fairveil.fairness.constraints import Constraint, constrain
from fairveil.fairness.rates import HistogramConstraints
from fairveil.research.boosting import RawTable, class_chances, crossed, groups_by_label, labels_of
from fairveil.research.fair_rules import RuleSearch, chances_of_hidden, chances_of_known, drawn, law


@dataclass(frozen=True)
class PairTwin:
    """A model of pairs on one split: P(group, label | x) of training and of held-out rows, (rows, groups, labels)."""

    train: NDArray[np.float64]
    test: NDArray[np.float64]

    @property
    def labels(self) -> Twin:
        """The same model, asked for labels alone."""
        return Twin(self.train.sum(axis=1), self.test.sum(axis=1))

    def fair_answer(self, splits: Splits, run: int, asked: Constraint) -> Answer:
        """Return decisions of the best rule that does not read the group."""
        bounds = constrain(asked, splits.bench.people)
        seen = [chances_of_hidden(joint, bounds) for joint in (self.train, self.test)]
        return rule_answer(self.labels, splits, run, bounds, seen)


@dataclass(frozen=True)
class Yardsticks:
    """What is compared with on every split; lists are empty where nothing is asked for.

    Attributes
    ----------
    plain, boosted : sequence of Twin
        Logistic regression and boosted trees.
    pairs, boosted_pairs : sequence of PairTwin
        The same of pairs, for rules that do not read the group.
    """

    plain: Sequence[Twin]
    boosted: Sequence[Twin] = ()
    pairs: Sequence[PairTwin] = ()
    boosted_pairs: Sequence[PairTwin] = ()

    @classmethod
    def of(cls, splits: Splits, runs: int, has_boosting: bool, hides_group: bool) -> "Yardsticks":
        """Fit all models; on the source's own split once for all runs."""
        n_fits = 1 if splits.kind == "original" else runs
        times, frame, schema = runs // n_fits, splits.bench.frame, splits.bench.schema
        table = RawTable.of(frame, schema) if has_boosting else None
        pairs, boosted, boosted_pairs = [], [], []
        if hides_group:
            rows = Encoder(schema).rows(frame)
            pairs = [logistic_pairs(splits, rows, run) for run in range(n_fits)]
        if table is not None and hides_group:
            boosted_pairs = [boosted_pairs_of(splits, table, run) for run in range(n_fits)]
            boosted = [pair.labels for pair in boosted_pairs]
        elif table is not None:
            boosted = [boosted_labels(splits, table, run) for run in range(n_fits)]
        return cls(twins_of(splits, runs), boosted * times, pairs * times, boosted_pairs * times)


def boosted_labels(splits: Splits, table: RawTable, run: int) -> Twin:
    """Return boosted trees on one split."""
    bench = splits.bench
    return Twin(*crossed(labels_of(table, bench.y, bench.people.n_classes), *splits(run)))


def boosted_pairs_of(splits: Splits, table: RawTable, run: int) -> PairTwin:
    """Return boosted trees of labels, times boosted trees of groups given the label."""
    bench = splits.bench
    n_groups, n_labels = bench.people.n_groups, bench.people.n_classes
    labels = labels_of(table, bench.y, n_labels)
    groups = groups_by_label(table, bench.groups, bench.y, n_groups, n_labels)
    return PairTwin(*crossed(lambda known, asked: labels(known, asked)[:, None] * groups(known, asked), *splits(run)))


def logistic_pairs(splits: Splits, rows: NDArray[np.float32], run: int) -> PairTwin:
    """Return one logistic regression of all pairs on the encoded rows, over the same folds as boosted trees.

    With probabilities of rows that it has seen, a rule for COMPAS at tolerance .03 had a held-out gap of .050 instead
    of .037 (40 splits with seeds below 100).
    """
    bench = splits.bench
    n_groups, n_labels = bench.people.n_groups, bench.people.n_classes
    pairs = bench.groups.astype(np.int64) * n_labels + bench.y

    def predict(known: NDArray[np.int64], asked: NDArray[np.int64]) -> NDArray[np.float64]:
        learner = LogisticRegression(max_iter=1000)
        found = class_chances(learner, rows[known], pairs[known], n_groups * n_labels, rows[asked])
        return found.reshape(len(asked), n_groups, n_labels)

    return PairTwin(*crossed(predict, *splits(run)))


def aware_answer(twin: Twin, splits: Splits, run: int, asked: Constraint) -> Answer:
    """Return decisions of the best rule that reads the group."""
    bench, bounds = splits.bench, constrain(asked, splits.bench.people)
    sides = zip((twin.train, twin.test), splits(run), strict=True)
    seen = [chances_of_known(chances, bench.groups[rows], bounds) for chances, rows in sides]
    return rule_answer(twin, splits, run, bounds, seen)


def rule_answer(
    twin: Twin, splits: Splits, run: int, bounds: HistogramConstraints, seen: Sequence[NDArray[np.float64]]
) -> Answer:
    """Return decisions for held-out rows by the best rule for the training rows, from P(cell | x) of both."""
    bench, (train, _) = splits.bench, splits(run)
    search = RuleSearch(twin.train, seen[0], bounds.cells[bench.groups[train], bench.y[train]], bounds)
    decided = law(twin.test, seen[1], search.tilts(search.multipliers()))
    return Answer(drawn(decided, splits.first_seed + run), twin.test[:, bench.people.positive])


def has_optimum(asked: Constraint, splits: Splits) -> bool:
    """Say whether the best rule solves a linear program: no denominator depends on decisions (precision's does)."""
    bounds = constrain(asked, splits.bench.people)
    below = bounds.below.reshape(len(bounds.below), bounds.n_cells, bounds.n_classes)
    return bool(np.all(below == below[:, :, :1]))


def tells_labels_apart(asked: Constraint, splits: Splits) -> bool:
    """Say whether the cells of the bounds depend on labels, which no rule sees."""
    cells = constrain(asked, splits.bench.people).cells
    return bool(np.any(cells != cells[:, :1]))
