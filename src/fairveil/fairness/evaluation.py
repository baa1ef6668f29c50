"""Noisy counts in, accuracy, rates, gaps and bounds out, each with its interval.

The counts are (group x label x decision) with the group codes of a `Population`; with one attribute these are its
groups and, last, people of none of them. Names and values are fairlearn's where it has them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fairveil._typing import Float64Array
from fairveil._validation import check_choice
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import CONSTRAINT_TYPES, Constraint, Parity, bounds_of, groups_of
from fairveil.fairness.groups import Population, Rate
from fairveil.fairness.histogram import Bound
from fairveil.fairness.intervals import (
    BoundEstimate,
    Interval,
    LeftSide,
    Terms,
    estimate_bounds,
    estimate_ratio,
    left_side,
)


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
    >>> from fairveil.fairness.groups import Attribute
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
        return self._rate(Rate("accuracy"), confidence)

    def rates(
        self, rate: str = "selection_rate", attribute: str | None = None, confidence: float = 0.95
    ) -> dict[str, Interval]:
        """Return one rate (of the positive class) in every group of an attribute, or in every intersection."""
        names = self.groups if attribute is None else self.people.attribute(attribute).groups
        groups = groups_of(self.people, attribute) if names else []
        return {name: self._rate(Rate(rate, group), confidence) for name, group in zip(names, groups, strict=True)}

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
        sides = [self._side(((1.0, other), (1.0, one))) for one, other in pairs]
        found = [estimate_ratio(side, level) for side in sides if side is not None]
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

    def _comparisons(self, constraint: str | Parity) -> Iterable[tuple[Rate, Rate]]:
        if isinstance(constraint, str):
            parities = [name for name, kind in CONSTRAINT_TYPES.items() if issubclass(kind, Parity)]
            constraint = CONSTRAINT_TYPES[check_choice("constraint", constraint, parities)]()
        if not isinstance(constraint, Parity):
            raise InvalidParameterError(
                f"Expected a parity constraint or its name, got {type(constraint).__name__}; use bounds() for others."
            )
        return constraint.comparisons(self.people) if self.people.attributes else ()

    def _estimates(self, bounds: Iterable[Bound], confidence: float) -> tuple[BoundEstimate, ...]:
        return estimate_bounds(bounds, self.counts, self.noise_variance, self.people, confidence)

    def _side(self, terms: Terms) -> LeftSide | None:
        return left_side(terms, self.counts, self.noise_variance, self.people)

    def _rate(self, rate: Rate, confidence: float) -> Interval:
        (found,) = self._estimates([Bound(((1.0, rate),), 1.0)], confidence)
        return found.left
