"""Noisy counts in, accuracy, rates, gaps and bounds out, each with its interval, and whether a bound holds.

The counts are (group x label x decision) with the group codes of a `Population`; with one attribute these are its
groups and, last, people of none of them. Names and values are fairlearn's where it has them.

An interval holds the error of sampling people and the noise on the counts; where a rate is of too few people, the left
side is unknown, never 0. Limits are Clopper's and Pearson's for one rate without noise; docs/proofs/certificates.md
says how noise and several rates enter, and what is proved of it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from scipy.special import betaincinv, ndtri

from fairveil._typing import Float64Array
from fairveil._validation import check_choice
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import CONSTRAINT_TYPES, Constraint, Parity, bounds_of, groups_of
from fairveil.fairness.rates import SMALLEST_GROUP, Bound, Population, Rate

Terms = tuple[tuple[float, Rate], ...]


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
class LeftSide:
    """A weighted sum of noisy rates, ready to be bounded at any level; leading axes are repeats.

    Attributes
    ----------
    weights : array of shape (R,)
    rates, sizes : arrays of shape (..., R)
        Noisy rates, as they come (also below 0 or above 1), and how many people each is of.
    inside, outside : arrays of shape (R,)
        The variance of the noise on those counted in a rate's numerator, and on the rest of its people.
    shared : float
        The error of the sum over that of a sum of rates of different people.
    """

    weights: Float64Array
    rates: Float64Array
    sizes: Float64Array
    inside: Float64Array
    outside: Float64Array
    shared: float = 1.0

    @property
    def value(self) -> Float64Array:
        """The measured left side, from rates kept within 0 and 1."""
        return np.clip(self.rates, 0.0, 1.0) @ self.weights

    def upper(self, level: float) -> Float64Array:
        """Return what the true left side is at most, with probability `level`; no rates can exceed it.

        Errors add up in squares, but a step of the counts and the skewness of rare events do not: they add up plainly.
        """
        # A rate that is subtracted is too large where the rate of the others is too small.
        is_minus = self.weights < 0
        rates = np.where(is_minus, 1 - self.rates, self.rates)
        inside, outside = np.where(is_minus, [self.outside, self.inside], [self.inside, self.outside])
        each = _deviations(rates, self.sizes, inside, outside, level)
        plain = np.minimum(each, max(0.5, (float(ndtri(level)) ** 2 - 1) / 3) / self.sizes)
        squares = np.sqrt(np.square(each - plain) @ np.square(self.weights))
        error = self.shared * (squares + plain @ np.abs(self.weights))
        # A rate outside of [0, 1] is noise: pulling it back must never make a limit tighter.
        center = np.maximum(self.value, self.rates @ self.weights)
        return np.minimum(center + error, np.maximum(self.weights, 0.0).sum())

    def lower(self, level: float) -> Float64Array:
        """Return what the true left side is at least, with probability `level`."""
        return -replace(self, weights=-self.weights).upper(level)


def _deviations(
    rates: Float64Array, sizes: Float64Array, inside: Float64Array, outside: Float64Array, level: float
) -> Float64Array:
    """Return how far above each measured rate the true one may be, noise and sampling together."""
    z, rates = float(ndtri(level)), np.clip(rates, 0.0, 1.0)
    sampling = _exact_deviations(rates, sizes, level)
    if not np.any(inside + outside):
        return sampling
    reach = z * np.sqrt(np.maximum(inside, outside)) / sizes
    ends = [np.clip(rates - reach, 0.0, 1.0), np.clip(rates + reach, 0.0, 1.0)]
    noise = z / sizes * np.sqrt(np.maximum(*(inside * (1 - end) ** 2 + outside * end**2 for end in ends)))
    # The share without noise is unknown too: among those that noise allows, the one nearest 1/2 varies most.
    widest = np.clip(0.5, rates - noise, rates + noise)
    sampling = np.maximum(sampling, _exact_deviations(widest, sizes, level))
    more_people = 1 + z * np.sqrt(inside + outside) / sizes
    return np.sqrt(more_people * sampling**2 + noise**2)


def _exact_deviations(rates: Float64Array, sizes: Float64Array, level: float) -> Float64Array:
    """Return the distance from a rate to its exact upper limit (Clopper and Pearson 1934)."""
    chosen, others = rates * sizes, (1 - rates) * sizes
    high = np.where(others > 0, betaincinv(chosen + 1, np.maximum(others, 1e-9), level), 1.0)
    return np.maximum(high - rates, 0.0)


def left_side(terms: Terms, counts: Float64Array, noise_variance: float, people: Population) -> LeftSide | None:
    """Return a weighted sum of rates of these counts; None where a rate is of too few people to be estimated."""
    weights = np.array([weight for weight, _ in terms])
    # entries that no rate of the sum distinguishes are merged
    forms = np.array([rate.forms(people) for _, rate in terms]).reshape(2 * len(terms), -1)
    kinds, kind = np.unique(forms, axis=1, return_inverse=True)
    above, below = kinds[::2], kinds[1::2]
    merged, n_entries = np.zeros((2, kinds.shape[1]))
    np.add.at(merged, kind.ravel(), counts.ravel())
    np.add.at(n_entries, kind.ravel(), 1.0)
    sizes, inside, everyone = below @ merged, above @ n_entries, below @ n_entries
    if np.any(sizes < SMALLEST_GROUP + 3 * np.sqrt(noise_variance * everyone)):
        return None
    shared = _shared(weights, above, below, np.maximum(merged, 0.0), noise_variance * n_entries)
    noise = noise_variance * inside, noise_variance * (everyone - inside)
    return LeftSide(weights, above @ merged / sizes, sizes, *noise, shared)


def range_of(terms: Terms) -> tuple[float, float]:
    """Return the least and the largest value that the left side can have."""
    weights = [weight for weight, _ in terms]
    return math.fsum(min(weight, 0.0) for weight in weights), math.fsum(max(weight, 0.0) for weight in weights)


def estimate_ratio(pair: LeftSide, level: float) -> tuple[float | None, float, float]:
    """Return the first rate over the second with its limits, each at this level.

    The low end is the largest ratio r for which `r * second - first <= 0` is shown, the high end the smallest for which
    `first - r * second <= 0` is; above 1 it is infinite, for then it is not the smaller of two ratios.
    """
    first, second = np.clip(pair.rates, 0.0, 1.0)

    def is_shown(ratio: float, sign: float) -> bool:
        return bool(replace(pair, weights=sign * np.array([-1.0, ratio])).upper(level) <= 0)

    low = _edge(lambda ratio: is_shown(ratio, 1.0))
    high = _edge(lambda ratio: not is_shown(ratio, -1.0))
    return (float(first / second) if second > 0 else None), low, (high if high < 1 else math.inf)


def _edge(is_below: Callable[[float], bool]) -> float:
    """Return the number in [0, 1] up to which this is true, to 1e-9."""
    low, high = 0.0, 1.0
    if is_below(high):
        return high
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low


def _shared(
    weights: Float64Array, above: Float64Array, below: Float64Array, merged: Float64Array, noise: Float64Array
) -> float:
    """Return the error of the sum over what it would be if no two rates shared people, by the delta method."""
    if not np.any((below > 0).sum(axis=0) > 1):
        return 1.0
    # two more people inside and two outside of each rate's numerator, shared by the rates where they overlap
    parts = np.concatenate([above, below - above])
    enlarged = merged + (2 * parts / np.maximum(parts.sum(axis=1), 1.0)[:, None]).max(axis=0)
    sizes = below @ enlarged
    rates = above @ enlarged / sizes
    slopes = weights[:, None] * (above - rates[:, None] * below) / sizes[:, None]
    apart = np.square(slopes).sum(axis=0) @ (enlarged + noise)
    return math.sqrt(np.square(slopes.sum(axis=0)) @ (enlarged + noise) / apart) if apart > 0 else 0.0


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
        return self._rate(Rate("accuracy"), confidence)

    def rates(
        self, rate: str = "selection_rate", attribute: str | None = None, confidence: float = 0.95
    ) -> dict[str, Interval]:
        """Return one rate (of the positive class) in every group of an attribute, or in every intersection."""
        names = self.people.names if attribute is None else self.people.attribute(attribute).groups
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
        sides = [
            left_side(((1.0, other), (1.0, one)), self.counts, self.noise_variance, self.people) for one, other in pairs
        ]
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
            side = left_side(bound.terms, self.counts, self.noise_variance, self.people)
            value = None if side is None else float(side.value)
            ends = range_of(bound.terms) if side is None else (float(side.lower(level)), float(side.upper(level)))
            estimates.append(BoundEstimate(bound, Interval(value, *ends, confidence)))
        return tuple(estimates)

    def _rate(self, rate: Rate, confidence: float) -> Interval:
        (found,) = self._estimates([Bound(((1.0, rate),), 1.0)], confidence)
        return found.left
