"""How well a score ranks two classes: ROC-AUC and average precision from noisy counts by label and bin of the score.

A bin hides the order of the people in it, so each figure is bounded by the best and the worst order; the interval holds
this, the error of sampling people and the noise on the counts (docs/proofs/certificates.md).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import logit, ndtri

from fairveil._typing import Float64Array
from fairveil.errors import InvalidParameterError
from fairveil.fairness.limits import LeftSide
from fairveil.fairness.rates import SMALLEST_GROUP

N_BINS = 24
"""Bins of the score: more would add noise, fewer would hide more of the order (docs/defaults.md)."""

SCORE_EDGES: Float64Array = logit(np.sin(np.pi / 2 * np.arange(1, N_BINS) / N_BINS) ** 2)
"""Edges of the log-odds of class 1, finest where the probability is near 0 or 1."""

LEAST_SIGNAL = 4.0
"""Bins of the precision curve are merged until their people are as many as this times the noise on their number."""

Figures = Callable[[Float64Array, Float64Array], Float64Array]
"""People of the positive class and the others, arrays of shape (..., bins) from the highest score down, in; the figure
in the worst, in an even and in the best order within bins, shape (..., 3), out."""


@dataclass(frozen=True, eq=False)
class ScoreCounts:
    """Noisy numbers of people by label and bin of their score.

    Attributes
    ----------
    counts : array of shape (2, n_bins)
        People of the negative class, then of the positive class, from the lowest score to the highest.
    noise_variance : float
        The variance of the noise on each count.

    Examples
    --------
    >>> scores = ScoreCounts(np.array([[400.0, 100.0, 0.0], [0.0, 100.0, 400.0]]), 0.0)
    >>> [round(end, 3) for end in scores.roc_auc(0.975)]
    [0.98, 0.947, 1.0]
    """

    counts: Float64Array
    noise_variance: float

    def __post_init__(self) -> None:
        if np.ndim(self.counts) != 2 or len(self.counts) != 2:
            raise InvalidParameterError(f"Expected counts of shape (2, n_bins), got {np.shape(self.counts)}.")

    def roc_auc(self, level: float) -> tuple[float, float, float] | None:
        """Return the area under the ROC curve with both limits, each at this level; None if people are too few.

        It is the probability that a person of the positive class has a higher score than another, ties counted half.
        """
        counts = self.counts[::-1, ::-1]
        return self._estimate(roc_auc_figures, np.ones(counts.shape[1]), counts, counts, level)

    def average_precision(self, level: float) -> tuple[float, float, float] | None:
        """Return the area under the precision-recall curve with both limits, each at this level; None if unknown.

        It is the mean, over people of the positive class, of the precision among those who score at least as high.
        """
        n_merged, merged = self._merged()
        return self._estimate(average_precision_figures, n_merged, merged, np.maximum(merged, 0.0), level)

    def _merged(self) -> tuple[Float64Array, Float64Array]:
        """Return how many bins each merged bin is of, and its counts, from the highest score down.

        A precision is a ratio of noisy numbers, which must not be near 0: bins are merged until they are not.
        """
        ends: list[int] = []
        total = 0.0
        counts = self.counts[::-1, ::-1]
        for place, own in enumerate(counts.sum(axis=0), 1):
            total += float(own)
            n_merged = place - (ends[-1] if ends else 0)
            if total > LEAST_SIGNAL * math.sqrt(2 * n_merged * self.noise_variance):
                ends.append(place)
                total = 0.0
        ends = [*ends[:-1], counts.shape[1]]
        starts = [0, *ends[:-1]]
        return np.diff([0, *ends]).astype(float), np.add.reduceat(counts, starts, axis=1)

    def _estimate(
        self, figures: Figures, n_merged: Float64Array, counts: Float64Array, near: Float64Array, level: float
    ) -> tuple[float, float, float] | None:
        """Return a figure with its limits from counts of merged bins; how fast it moves is taken `near` them."""
        least = SMALLEST_GROUP + 3 * math.sqrt(self.noise_variance * self.counts.shape[1])
        sizes = self.counts.sum(axis=1)
        if float(sizes.min()) < least:
            return None
        found = figures(*counts)
        slopes = _slopes(figures, near)
        people = np.maximum(counts, 0.0)[..., None]
        # a bin without anybody seems to vary by nothing: with one person more in each, it does
        sampling = np.maximum(
            (people * slopes**2).sum(axis=(0, 1)), ((people + 1) * _slopes(figures, near + 1) ** 2).sum(axis=(0, 1))
        )
        noise = self.noise_variance * (n_merged[:, None] * slopes**2).sum(axis=(0, 1))
        # the product of the noise of two counts, which slopes leave out
        noise += self.noise_variance**2 * len(n_merged) ** 2 / 2 / float(np.prod(sizes)) ** 2
        value = float(np.clip(found[1], 0.0, 1.0))
        low, high = (
            _reach(rate, float(sampling[place]), float(noise[place]), float(sizes.min()), level)
            for rate, place in ((1 - float(found[0]), 0), (float(found[2]), 2))
        )
        return value, min(value, max(0.0, 1 - low)), max(value, min(1.0, high))


def roc_auc_figures(positive: Float64Array, others: Float64Array) -> Float64Array:
    """Return the area under the ROC curve in the worst, an even and the best order (see `Figures`)."""
    everyone = others.sum(axis=-1, keepdims=True)
    below = everyone - np.cumsum(others, axis=-1)
    pairs = positive.sum(axis=-1) * everyone[..., 0]
    low, within = (positive * below).sum(axis=-1) / pairs, (positive * others).sum(axis=-1) / pairs
    return np.stack([low, low + within / 2, low + within], axis=-1)


def average_precision_figures(positive: Float64Array, others: Float64Array) -> Float64Array:
    """Return the mean precision in the worst, an even and the best order (see `Figures`).

    With `a` positive people and `c` others above a bin of p and n, precision after the share t of its positive people
    is at least (a + tp) / (a + tp + c + n) and, with ties too, at most (a + p) / (a + p + c). Numbers below 0 are
    noise: set to 0 in the first, they make others seem more and the figure smaller; in the second only whole sums are.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        reached, passed = (np.maximum(np.cumsum(one, axis=-1), 0.0) for one in (positive, others))
        passed = np.concatenate([np.zeros_like(passed[..., :1]), passed[..., :-1]], axis=-1)
        highs = np.where(reached > 0, positive * reached / (reached + passed), 0.0)
        high = highs.sum(axis=-1) / positive.sum(axis=-1)
        positive, others = np.maximum(positive, 0.0), np.maximum(others, 0.0)
        a, c = (np.cumsum(one, axis=-1) - one for one in (positive, others))
        last = c + others
        low = positive - np.where(last > 0, last * np.log1p(positive / (a + last)), 0.0)
        own, above = positive + others, a + c
        share = positive / own
        even = positive * (share + np.where(above > 0, (a - share * above) / own * np.log1p(own / above), 0.0))
    each = [np.where(positive > 0, one, 0.0).sum(axis=-1) / positive.sum(axis=-1) for one in (low, even)]
    return np.stack([*each, np.maximum(high, each[1])], axis=-1)


def _slopes(figures: Figures, counts: Float64Array) -> Float64Array:
    """Return how fast the figures move with each count, shape (2, bins, 3)."""
    step = 1e-6 * float(np.abs(counts).sum())
    moved = counts + step * np.eye(counts.size).reshape(counts.size, *counts.shape)
    slopes = (figures(moved[:, 0], moved[:, 1]) - figures(*counts)) / step
    return slopes.reshape(*counts.shape, 3)


def _reach(rate: float, sampling: float, noise: float, least: float, level: float) -> float:
    """Return what a figure is at most: as a rate of so many people that it varies as much, with noise on top."""
    z, rate = float(ndtri(level)), min(max(rate, 0.0), 1.0)
    widest = min(max(0.5, rate - z * math.sqrt(noise)), rate + z * math.sqrt(noise))
    errors = []
    for one in (rate, widest):
        size = one * (1 - one) / sampling if sampling > 0 and 0 < one < 1 else least
        side = LeftSide(np.ones(1), np.array([one]), np.array([max(1.0, size)]), np.zeros(1), np.zeros(1))
        errors.append(float(side.upper(level)) - one)
    return rate + math.hypot(max(errors), z * math.sqrt(noise))
