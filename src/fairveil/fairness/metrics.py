"""Noisy counts in, accuracy and gaps out, each with its interval.

The counts are (group x label x decision), with one more group at the end for rows that belong to none. An interval
holds the error of sampling people and the variance of the noise; a group too small to speak of is unknown, never 0.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from fairveil._validate import check_choice

__all__ = ["CONSTRAINTS", "Evaluation", "Interval", "accuracy_of", "gap_of", "rate_of", "rates_of"]

Counts = NDArray[np.float64]
Mask = NDArray[np.bool_]

SMALLEST_GROUP = 5.0


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


UNKNOWN = Interval(None, 0.0, 1.0)


def _masks(n_classes: int, positive: int) -> dict[str, tuple[Mask, Mask]]:
    """Return (numerator, denominator) entries of the label x decision table for each elementary rate."""
    label, decision = np.indices((n_classes, n_classes))
    everyone = np.ones((n_classes, n_classes), dtype=bool)
    is_true, is_chosen = label == positive, decision == positive
    return {
        "selection": (is_chosen, everyone),
        "true_positive": (is_true & is_chosen, is_true),
        "false_positive": (~is_true & is_chosen, ~is_true),
        "false_negative": (is_true & ~is_chosen, is_true),
        "error": (label != decision, everyone),
    }


CONSTRAINTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "demographic_parity": ("selection",),
        "equalized_odds": ("true_positive", "false_positive"),
        "true_positive_rate_parity": ("true_positive",),
        "false_positive_rate_parity": ("false_positive",),
        "false_negative_rate_parity": ("false_negative",),
        "error_rate_parity": ("error",),
    }
)


@dataclass(frozen=True)
class _Rate:
    value: float
    variance: float


def _estimate(table: Counts, numerator: Mask, denominator: Mask, noise_variance: float) -> _Rate | None:
    """Return a ratio of noisy counts and its variance, by the delta method; None where the group is too small."""
    below = table[denominator].sum()
    if below < SMALLEST_GROUP + 3 * math.sqrt(noise_variance * denominator.sum()):
        return None
    value = min(1.0, max(0.0, table[numerator].sum() / below))
    # n + 4 and a pull to the middle keep the interval honest for small groups (Agresti and Coull).
    middle = (value * below + 2) / (below + 4)
    noise = noise_variance * np.sum((numerator[denominator] - value) ** 2) / below**2
    return _Rate(value, middle * (1 - middle) / (below + 4) + float(noise))


def _interval(value: float, variance: float, confidence: float, n_statements: int = 1) -> Interval:
    width = norm.isf((1 - confidence) / (2 * n_statements)) * math.sqrt(variance)
    return Interval(value, max(0.0, value - width), min(1.0, value + width), confidence)


def accuracy_of(counts: Counts, noise_variance: float, confidence: float = 0.95) -> Interval:
    """Return the share of right decisions over all groups."""
    table = counts.sum(axis=0)
    everyone = np.ones_like(table, dtype=bool)
    rate = _estimate(table, np.eye(len(table), dtype=bool), everyone, noise_variance * len(counts))
    return UNKNOWN if rate is None else _interval(rate.value, rate.variance, confidence)


def rate_of(
    table: Counts, rate: str, noise_variance: float, positive: int = -1, confidence: float = 0.95
) -> Interval:
    """Return one rate ("selection", "true_positive", ...) of one group's label x decision table."""
    numerator, denominator = _masks(len(table), positive % len(table))[rate]
    estimate = _estimate(table, numerator, denominator, noise_variance)
    return UNKNOWN if estimate is None else _interval(estimate.value, estimate.variance, confidence)


def rates_of(
    counts: Counts, rate: str, noise_variance: float, positive: int = -1, confidence: float = 0.95
) -> tuple[Interval, ...]:
    """Return that rate for every group."""
    return tuple(rate_of(table, rate, noise_variance, positive, confidence) for table in counts[:-1])


def gap_of(
    counts: Counts, constraint: str, noise_variance: float, positive: int = -1, confidence: float = 0.95
) -> Interval:
    """Return the largest difference between two groups, over the constraint's rates (and classes, if many).

    With more than two pairs or rates the interval is widened so that all of them hold at once.
    """
    check_choice("constraint", constraint, CONSTRAINTS)
    n_classes = counts.shape[1]
    classes = range(n_classes) if n_classes > 2 else [positive % n_classes]
    differences = [
        difference
        for k in classes
        for rate in CONSTRAINTS[constraint]
        for difference in _differences(counts[:-1], *_masks(n_classes, k)[rate], noise_variance)
    ]
    if not differences:
        return UNKNOWN
    intervals = [_interval(*difference, confidence, len(differences)) for difference in differences]
    return Interval(
        max(interval.value or 0.0 for interval in intervals),
        max(interval.low for interval in intervals),
        max(interval.high for interval in intervals),
        confidence,
    )


def _differences(
    groups: Counts, numerator: Mask, denominator: Mask, noise_variance: float
) -> list[tuple[float, float]]:
    """Return (difference, variance) for each pair of groups large enough to speak of."""
    rates = [_estimate(table, numerator, denominator, noise_variance) for table in groups]
    known = [rate for rate in rates if rate is not None]
    return [
        (abs(one.value - other.value), one.variance + other.variance)
        for i, one in enumerate(known)
        for other in known[:i]
    ]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Noisy outcomes on rows kept apart from training, and what can be said from them.

    Attributes
    ----------
    counts : array of shape (groups + 1, classes, classes)
        Noisy numbers of records by group (the last: no group), label and decision.
    noise_variance : float
        The variance of the noise on each count.
    groups : tuple of str
    positive : int
        The code of the positive class.
    """

    counts: Counts
    noise_variance: float
    groups: tuple[str, ...]
    positive: int

    def accuracy(self, confidence: float = 0.95) -> Interval:
        """Return the share of right decisions."""
        return accuracy_of(self.counts, self.noise_variance, confidence)

    def gap(self, constraint: str = "demographic_parity", confidence: float = 0.95) -> Interval:
        """Return the largest difference between two groups."""
        return gap_of(self.counts, constraint, self.noise_variance, self.positive, confidence)

    def rates(self, rate: str = "selection", confidence: float = 0.95) -> dict[str, Interval]:
        """Return one rate of every group."""
        intervals = rates_of(self.counts, rate, self.noise_variance, self.positive, confidence)
        return dict(zip(self.groups, intervals, strict=True))
