"""Noisy counts in, accuracy, rates, gaps and bounds out, each with its interval, and whether a bound holds.

The counts are (group x label x decision) with the group codes of a `Population`; with one attribute these are its
groups and, last, people of none of them. Names and values are fairlearn's where it has them.

An interval holds the error of sampling people and the noise on the counts; where a rate is of too few people, the left
side is unknown, never 0. One convention for all: each end holds at the stated confidence. Of accuracy, rates and
shares, of ROC-AUC and average precision both ends hold together; of gaps, ratios and bounds each holds by itself, and
these ends are the limits that decide: a bound holds if its whole interval is within the limit, and is broken if the
whole interval is above it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from fairveil._typing import Float64Array
from fairveil._validation import check_choice
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import CONSTRAINT_TYPES, Constraint, Parity, bounds_of, groups_of
from fairveil.fairness.limits import LeftSide, estimate_ratio, left_sides, range_of
from fairveil.fairness.ranking import ScoreCounts
from fairveil.fairness.rates import SMALLEST_GROUP, Bound, Population, Rate
from fairveil.report.notebook import Table, evaluation_table

SHOWN_RATES = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")
"""Rates of every group that summaries and tables show."""


@dataclass(frozen=True)
class Interval:
    """A value with its interval, whose ends each hold at the stated confidence; a value of None is unknown."""

    value: float | None
    low: float
    high: float
    confidence: float = 0.95

    def to_dict(self) -> dict[str, float | None]:
        """Return value, low and high as plain numbers."""
        return {"value": self.value, "low": self.low, "high": self.high}


class Verdict(StrEnum):
    """Whether a bound holds at the stated confidence; the values are those of summary.json."""

    HOLDS = "holds"
    BROKEN = "does not hold"
    ABOVE = "measured above the tolerance"
    UNKNOWN = "not enough data"
    MEASURED = "measured"
    NOT_REQUESTED = "nothing was asked"


@dataclass(frozen=True)
class BoundEstimate:
    """A bound and what noisy counts say of its left side.

    Attributes
    ----------
    bound : Bound
    left : Interval
        The left side; its ends are the limits that decide.
    rates : tuple of float or None
        The measured rates of the left side, in its order; None if one is of too few people.
    verdict : Verdict
        Whether the whole interval is on one side of the limit, and if not, whether the measured value is above it.
    """

    bound: Bound
    left: Interval
    rates: tuple[float | None, ...]
    verdict: Verdict

    @property
    def limit(self) -> float:
        """What the left side may be at most."""
        return self.bound.limit

    @property
    def pair(self) -> dict[str, Any] | None:
        """What is compared if that is one rate of two groups: its name, its class, and the people and rate of each."""
        (weight, rate), *others = self.bound.terms
        if weight != 1 or [(w, one.name, one.of_class) for w, one in others] != [(-1, rate.name, rate.of_class)]:
            return None
        names = [", ".join(group for _, group in one.where) or "everyone" for _, one in self.bound.terms]
        ends = [
            {"group": f"everyone but {name}" if one.rest else name, "value": value}
            for name, (_, one), value in zip(names, self.bound.terms, self.rates, strict=True)
        ]
        return {"rate": rate.name, "of_class": rate.of_class, "highest": ends[0], "lowest": ends[1]}

    @property
    def smallest_tolerance(self) -> float:
        """The smallest limit that holds at the stated confidence; of an unknown side what no rates can exceed."""
        return self.left.high


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Noisy outcomes on rows kept apart from training, and what can be said from them.

    Attributes
    ----------
    counts : array of shape (n_groups, n_labels, n_decisions)
        Noisy numbers of records by group code, label and decision.
    noise_variance : float
        The variance of the noise on each count.
    people : Population
    scores : ScoreCounts or None
        Noisy numbers of records by label and bin of the model's score, if they were released too (``auc=True``).

    Examples
    --------
    >>> from fairveil.fairness.rates import Attribute
    >>> people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    >>> counts = np.array([[[400, 100], [100, 400]], [[300, 200], [50, 450]], [[0, 0], [0, 0]]])
    >>> gap = Evaluation(counts, 4.0, people).gap("demographic_parity")
    >>> round(gap.value, 3), round(gap.low, 3), round(gap.high, 3)
    (0.15, 0.105, 0.187)
    """

    counts: Float64Array
    noise_variance: float
    people: Population
    scores: ScoreCounts | None = None

    def __post_init__(self) -> None:
        expected = (self.people.n_groups, self.people.n_classes, self.people.n_classes)
        if np.shape(self.counts) != expected:
            raise InvalidParameterError(f"Expected counts of shape {expected}, got {np.shape(self.counts)}.")

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups, or the intersections of groups of several attributes."""
        return self.people.names

    @property
    def positive(self) -> int:
        """The code of the positive class."""
        return self.people.positive

    def accuracy(self, confidence: float = 0.95) -> Interval:
        """Return the share of right decisions."""
        (found,) = self._estimates([Bound(((1.0, Rate("accuracy")),), 1.0)], (1 + confidence) / 2)
        return replace(found.left, confidence=confidence)

    def roc_auc(self, confidence: float = 0.95) -> Interval:
        """Return the area under the ROC curve of the model's score; unknown unless scores were counted (``auc=True``).

        The score is the model's own, before any threshold by group. The interval also holds the order within bins.
        """
        return self._ranked(None if self.scores is None else self.scores.roc_auc((1 + confidence) / 2), confidence)

    def average_precision(self, confidence: float = 0.95) -> Interval:
        """Return the area under the precision-recall curve (AUC-PR) of the model's score; see `roc_auc`."""
        found = None if self.scores is None else self.scores.average_precision((1 + confidence) / 2)
        return self._ranked(found, confidence)

    @staticmethod
    def _ranked(found: tuple[float, float, float] | None, confidence: float) -> Interval:
        return Interval(None, 0.0, 1.0, confidence) if found is None else Interval(*found, confidence)

    def most_common(self, what: str = "label", confidence: float = 0.95) -> tuple[str, Interval]:
        """Return the most common label (or "decision"), and the share of people who have it.

        The share of the most common label is the accuracy of the best rule that decides the same for everyone.
        """
        axis = ("decision", "label").index(check_choice("what", what, ("decision", "label")))
        counts, n_cells = self.counts.sum(axis=(0, axis + 1)), self.people.n_groups * self.people.n_classes
        size, noise = float(counts.sum()), n_cells * self.noise_variance * np.array([1.0, self.people.n_classes - 1])
        most = int(np.argmax(counts))
        if size < SMALLEST_GROUP + 3 * np.sqrt(noise.sum()):
            return self.people.classes[most], Interval(None, 0.0, 1.0, confidence)
        share = LeftSide(np.ones(1), counts[[most]] / size, np.array([size]), noise[:1], noise[1:])
        low, high = (float(end((1 + confidence) / 2)) for end in (share.lower, share.upper))
        return self.people.classes[most], Interval(float(share.value), low, high, confidence)

    def rates(
        self, rate: str = "selection_rate", attribute: str | None = None, confidence: float = 0.95
    ) -> dict[str, Interval]:
        """Return one rate (of the positive class) in every group of an attribute, or in every intersection."""
        names = self.people.names if attribute is None else self.people.attribute(attribute).groups
        groups = groups_of(self.people, attribute) if names else []
        each = [Bound(((1.0, Rate(rate, group)),), 1.0) for group in groups]
        found = [self._estimates([one], (1 + confidence) / 2)[0].left for one in each]
        return {name: replace(one, confidence=confidence) for name, one in zip(names, found, strict=True)}

    def gap(self, constraint: str | Parity = "demographic_parity", confidence: float = 0.95) -> Interval:
        """Return the largest difference that a parity compares, over its rates (and classes, if many).

        Groups that are too small are left out. The high end is the smallest tolerance that holds for the others.
        """
        return self.widest(constraint, confidence)[0]

    def widest(
        self, constraint: str | Parity = "demographic_parity", confidence: float = 0.95
    ) -> tuple[Interval, BoundEstimate | None]:
        """Return the gap of a parity, and the comparison that differs most, larger rate first; None if unknown."""
        bounds = [Bound(((1.0, one), (-1.0, other)), 0.0) for one, other in self._comparisons(constraint)]
        known = [one for one in self._estimates(bounds, confidence) if one.left.value is not None]
        if not known:
            return Interval(None, 0.0, 1.0, confidence), None
        # the largest of all limits needs no correction for several comparisons (docs/proofs/certificates.md)
        low, high = max(one.left.low for one in known), max(one.left.high for one in known)
        most = max(known, key=lambda one: one.left.value or 0.0)
        return Interval(most.left.value, max(0.0, low), high, confidence), most

    def ratio(self, constraint: str | Parity = "demographic_parity", confidence: float = 0.95) -> Interval:
        """Return the smallest ratio of two rates that a parity compares: 0.8 or more is the four-fifths rule.

        Its low end is the largest ratio that the bounds `ratio * one - other <= 0` support (Fieller's idea).
        """
        pairs = list(self._comparisons(constraint))
        of_high_end = 1 - (1 - confidence) / max(1, len(pairs))  # any pair may seem the smallest by chance
        found = []
        for one, other in pairs:
            side, is_known = left_sides(((1.0, other), (1.0, one)), self.counts, self.noise_variance, self.people)
            if is_known:
                found.append(estimate_ratio(side, confidence, of_high_end))
        values = [value for value, _, _ in found if value is not None]
        if not values:
            return Interval(None, 0.0, 1.0, confidence)
        low, high = (min(sides) for sides in zip(*((low, high) for _, low, high in found), strict=True))
        return Interval(min(values), low, min(1.0, high), confidence)

    def bounds(
        self, constraint: Constraint | Sequence[Constraint], confidence: float = 0.95
    ) -> tuple[BoundEstimate, ...]:
        """Return, for every inequality of any constraints, its left side, its limit, and whether it holds.

        "Every bound holds" and "some bound is broken" each have the stated confidence.
        """
        return self._estimates(bounds_of(constraint, self.people), confidence)

    def __str__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()

    def _table(self) -> Table:
        people, tables = self.people, {rate: self.rates(rate) for rate in SHOWN_RATES}
        return evaluation_table(
            {
                "attributes": [attribute.name for attribute in people.attributes],
                "positive": people.classes[people.positive],
                "n_rows": max(0.0, float(np.sum(self.counts))),
                "accuracy": self.accuracy().to_dict(),
                "rates": {rate: {name: one.to_dict() for name, one in table.items()} for rate, table in tables.items()},
                "confidence": 0.95,
            }
        )

    def _comparisons(self, constraint: str | Parity) -> Iterable[tuple[Rate, Rate]]:
        if isinstance(constraint, str):
            parities = [name for name, kind in CONSTRAINT_TYPES.items() if issubclass(kind, Parity)]
            constraint = CONSTRAINT_TYPES[check_choice("constraint", constraint, parities)]()
        if not isinstance(constraint, Parity):
            raise InvalidParameterError(
                f"Expected a parity constraint or its name, got {type(constraint).__name__}; use bounds() for others."
            )
        return constraint.comparisons(self.people) if self.people.attributes else ()

    def _estimates(self, bounds: Sequence[Bound], confidence: float) -> tuple[BoundEstimate, ...]:
        """Return every bound's left side, with the limits that decide.

        "All hold" needs no correction for several bounds, "some is broken" does (docs/proofs/certificates.md). Unknown
        bounds count too: which ones are known depends on the noise.
        """
        of_low_end = 1 - (1 - confidence) / max(1, len(bounds))
        estimates = []
        for bound in bounds:
            side, is_known = left_sides(bound.terms, self.counts, self.noise_variance, self.people)
            value, verdict = None, Verdict.UNKNOWN
            rates: tuple[float | None, ...] = (None,) * len(bound.terms)
            if not is_known:
                low, high = range_of(bound.terms)
            else:
                value, low, high = float(side.value), float(side.lower(of_low_end)), float(side.upper(confidence))
                rates = tuple(np.clip(side.rates, 0.0, 1.0).tolist())
                verdict = Verdict.ABOVE if value > bound.limit else Verdict.UNKNOWN
            if high <= bound.limit:
                verdict = Verdict.HOLDS
            elif low > bound.limit:
                verdict = Verdict.BROKEN
            estimates.append(BoundEstimate(bound, Interval(value, low, high, confidence), rates, verdict))
        return tuple(estimates)
