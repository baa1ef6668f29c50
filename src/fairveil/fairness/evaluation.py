"""Noisy counts in, accuracy, rates, gaps and bounds out, each with its interval, and whether a bound holds.

The counts are (group x label x decision) with the group codes of a `Population`; with one attribute these are its
groups and, last, people of none of them. Names and values are fairlearn's where it has them.

An interval holds the error of sampling people and the noise on the counts; where a rate is of too few people, the left
side is unknown, never 0.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from fairveil._typing import Float64Array
from fairveil._validation import check_choice
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import CONSTRAINT_TYPES, Constraint, Parity, bounds_of, groups_of
from fairveil.fairness.limits import estimate_ratio, left_sides, range_of
from fairveil.fairness.rates import Bound, Population, Rate
from fairveil.report.notebook import Table, evaluation_table

SHOWN_RATES = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")
"""Rates of every group that summaries and tables show."""


@dataclass(frozen=True)
class Interval:
    """A value with the interval that holds the truth at the stated confidence; None means unknown."""

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
    UNKNOWN = "not enough data"
    MEASURED = "measured"
    NOT_REQUESTED = "nothing was asked"


@dataclass(frozen=True)
class BoundEstimate:
    """A bound and what noisy counts say of its left side."""

    bound: Bound
    left: Interval

    @property
    def limit(self) -> float:
        """What the left side may be at most."""
        return self.bound.limit

    @property
    def verdict(self) -> Verdict:
        """Whether the whole interval is on one side of the limit."""
        if self.left.high <= self.limit:
            return Verdict.HOLDS
        return Verdict.BROKEN if self.left.low > self.limit else Verdict.UNKNOWN

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

    Examples
    --------
    >>> from fairveil.fairness.rates import Attribute
    >>> people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    >>> counts = np.array([[[400, 100], [100, 400]], [[300, 200], [50, 450]], [[0, 0], [0, 0]]])
    >>> gap = Evaluation(counts, 4.0, people).gap("demographic_parity")
    >>> round(gap.value, 3), round(gap.low, 3), round(gap.high, 3)
    (0.15, 0.105, 0.194)
    """

    counts: Float64Array
    noise_variance: float
    people: Population

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
        (found,) = self._estimates([Bound(((1.0, Rate("accuracy")),), 1.0)], confidence)
        return found.left

    def rates(
        self, rate: str = "selection_rate", attribute: str | None = None, confidence: float = 0.95
    ) -> dict[str, Interval]:
        """Return one rate (of the positive class) in every group of an attribute, or in every intersection."""
        names = self.people.names if attribute is None else self.people.attribute(attribute).groups
        groups = groups_of(self.people, attribute) if names else []
        found = [self._estimates([Bound(((1.0, Rate(rate, group)),), 1.0)], confidence) for group in groups]
        return {name: one.left for name, (one,) in zip(names, found, strict=True)}

    def gap(self, constraint: str | Parity = "demographic_parity", confidence: float = 0.95) -> Interval:
        """Return the largest difference that a parity compares, over its rates (and classes, if many).

        Groups that are too small are left out; the interval is so wide that all comparisons hold at once.
        """
        bounds = [Bound(((1.0, one), (-1.0, other)), 0.0) for one, other in self._comparisons(constraint)]
        found = [one.left for one in self._estimates(bounds, confidence)]
        known = [left for left in found if left.value is not None]
        if not known:
            return Interval(None, 0.0, 1.0, confidence)
        value, low, high = (max(sides) for sides in zip(*((x.value, x.low, x.high) for x in known), strict=True))
        return Interval(value, max(0.0, low), high, confidence)

    def ratio(self, constraint: str | Parity = "demographic_parity", confidence: float = 0.95) -> Interval:
        """Return the smallest ratio of two rates that a parity compares: 0.8 or more is the four-fifths rule.

        Its low end is the largest ratio that a bound `ratio * one - other <= 0` supports (Fieller's idea).
        """
        pairs = list(self._comparisons(constraint))
        level = 1 - (1 - confidence) / max(2, len(pairs))
        found = []
        for one, other in pairs:
            side, is_known = left_sides(((1.0, other), (1.0, one)), self.counts, self.noise_variance, self.people)
            if is_known:
                found.append(estimate_ratio(side, level))
        values = [value for value, _, _ in found if value is not None]
        if not values:
            return Interval(None, 0.0, 1.0, confidence)
        low, high = (min(sides) for sides in zip(*((low, high) for _, low, high in found), strict=True))
        return Interval(min(values), low, min(1.0, high), confidence)

    def bounds(
        self, constraint: Constraint | Sequence[Constraint], confidence: float = 0.95
    ) -> tuple[BoundEstimate, ...]:
        """Return, for every inequality of any constraints, its left side, its limit, and whether it holds.

        All intervals hold at once, so "every bound says yes" has the stated confidence.
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
        """Return every bound's left side; the intervals are so wide that all of them hold at once (Bonferroni).

        Unknown bounds count too: which ones are known depends on the noise.
        """
        sums = [frozenset(bound.terms) for bound in bounds]
        # one interval speaks for a sum and for its negative
        n_statements = len({frozenset({one, frozenset((-weight, rate) for weight, rate in one)}) for one in sums})
        level = 1 - (1 - confidence) / (2 * max(1, n_statements))  # of each end
        estimates = []
        for bound in bounds:
            side, is_known = left_sides(bound.terms, self.counts, self.noise_variance, self.people)
            value = float(side.value) if is_known else None
            ends = (float(side.lower(level)), float(side.upper(level))) if is_known else range_of(bound.terms)
            estimates.append(BoundEstimate(bound, Interval(value, *ends, confidence)))
        return tuple(estimates)
