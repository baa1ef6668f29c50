"""Bounds on noisy counts: each left side with its interval, and whether it holds.

The counts are (group x label x decision). An interval holds the error of sampling people and the noise on the counts;
where a rate is of too few people to speak of, the left side is unknown, never 0.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fairveil.fairness.cells import Population
from fairveil.fairness.histogram import SMALLEST_GROUP, Bound
from fairveil.fairness.rates import Rate

__all__ = ["BoundEstimate", "Estimate", "Interval", "Verdict", "critical", "estimate", "estimate_bounds"]

Floats = NDArray[np.float64]
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
    """Whether a bound holds at the stated confidence."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


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
    def holds(self) -> Verdict:
        """Whether the whole interval is on one side of the limit."""
        if self.left.high <= self.limit:
            return Verdict.YES
        return Verdict.NO if self.left.low > self.limit else Verdict.UNKNOWN

    @property
    def smallest_tolerance(self) -> float:
        """The smallest limit that holds at the stated confidence; of an unknown side what no rates can exceed."""
        return self.left.high


@dataclass(frozen=True)
class Estimate:
    """A weighted sum of rates and its variance."""

    value: float
    variance: float


def estimate_bounds(
    bounds: Iterable[Bound], counts: Floats, noise_variance: float, people: Population, confidence: float
) -> tuple[BoundEstimate, ...]:
    """Return every bound's left side; the intervals are so wide that all of them hold at once (Bonferroni)."""
    bounds = tuple(bounds)
    estimates = [estimate(bound.terms, counts, noise_variance, people) for bound in bounds]
    known = [bound.terms for bound, found in zip(bounds, estimates, strict=True) if found is not None]
    width = critical(confidence, len({_unsigned(terms) for terms in known}))
    return tuple(
        BoundEstimate(bound, _interval(bound.terms, found, width, confidence))
        for bound, found in zip(bounds, estimates, strict=True)
    )


def critical(confidence: float, n_statements: int) -> float:
    """Return how many standard errors to either side make so many statements hold at once."""
    return float(-ndtri((1 - confidence) / (2 * max(1, n_statements))))


def estimate(terms: Terms, counts: Floats, noise_variance: float, people: Population) -> Estimate | None:
    """Return a weighted sum of rates with its variance, by the delta method; None where a rate is of too few.

    Rates may share people: entries that no rate tells apart are added up, then each counts with its total slope.
    """
    weights = np.array([weight for weight, _ in terms])
    above, below, merged, n_entries = _merged([rate for _, rate in terms], counts, people)
    sizes = below @ merged
    if np.any(sizes < SMALLEST_GROUP + 3 * np.sqrt(noise_variance * (below @ n_entries))):
        return None
    rates = np.clip(above @ merged / sizes, 0.0, 1.0)
    noise = noise_variance * np.sum(n_entries * _slopes(weights, above, below, rates, sizes) ** 2)
    # Two more of each kind keep a rate off 0 and 1, where nothing seems to vary (Agresti and Coull); the size stays.
    enlarged = np.maximum(merged, 0.0) + _two_more(above, below)
    larger = below @ enlarged
    slopes = _slopes(weights, above, below, above @ enlarged / larger, np.sqrt(sizes * larger))
    return Estimate(float(weights @ rates), float(noise + np.sum(enlarged * slopes**2)))


def _merged(
    rates: Sequence[Rate], counts: Floats, people: Population
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return numerators, denominators and counts over entries that these rates tell apart, and how many each joins."""
    forms = np.array([rate.forms(people) for rate in rates]).reshape(2 * len(rates), -1)
    kinds, kind = np.unique(forms, axis=1, return_inverse=True)
    totals: Floats = np.zeros((2, kinds.shape[1]))
    np.add.at(totals[0], kind.ravel(), counts.ravel())
    np.add.at(totals[1], kind.ravel(), 1.0)
    return kinds[::2], kinds[1::2], totals[0], totals[1]


def _slopes(weights: Floats, above: Floats, below: Floats, rates: Floats, sizes: Floats) -> Floats:
    """Return the derivative of the weighted sum along each entry."""
    return weights @ ((above - rates[:, None] * below) / sizes[:, None])


def _two_more(above: Floats, below: Floats) -> Floats:
    """Return two people inside and two outside of each rate's numerator, shared by the rates where they overlap."""
    parts = np.concatenate([above, below - above])
    return (2 * parts / np.maximum(parts.sum(axis=1), 1.0)[:, None]).max(axis=0)


def _interval(terms: Terms, found: Estimate | None, width: float, confidence: float) -> Interval:
    lowest = math.fsum(min(weight, 0.0) for weight, _ in terms)
    highest = math.fsum(max(weight, 0.0) for weight, _ in terms)
    if found is None:
        return Interval(None, lowest, highest, confidence)
    error = width * math.sqrt(found.variance)
    return Interval(
        found.value, max(lowest, found.value - error), min(highest, found.value + error), confidence
    )


def _unsigned(terms: Terms) -> frozenset[frozenset[tuple[float, Rate]]]:
    """Return a key that a sum shares with its negative: one interval speaks for both."""
    return frozenset({frozenset(terms), frozenset((-weight, rate) for weight, rate in terms)})
