"""The most plausible curve behind noisy counts: positive, smooth where noise hides it, exact where nothing does.

Every release says y = A f + noise about the numbers f of people in the bins of a score: the histogram with A the
identity, a count above thresholds with A the shares of the bins above them. The curve maximises the posterior of
log f under a prior on its second differences, by Gauss-Newton steps. Everything here is post-processing.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Observation", "smooth_curve"]

Floats = NDArray[np.float64]

ROUGHNESS = 0.05
"""The standard deviation of a second difference of log f, beforehand: set on public data sets, docs/defaults.md."""

FREEDOM = 2.0
"""Second differences follow a t-law of so many degrees of freedom: a curve is smooth, but may have peaks."""

LEAST_NOISE = 0.5
"""Counts are whole: finer than this they are not told apart."""

LOWEST = -7.0
N_STEPS = 60


class Observation(NamedTuple):
    """Noisy sums `values` (m,) of a curve: `weights` (m, bins) @ curve, with noise of standard deviation `noise`."""

    weights: Floats
    values: Floats
    noise: float


def smooth_curve(observations: Sequence[Observation]) -> Floats:
    """Return the most plausible numbers of people in each bin, all positive.

    Examples
    --------
    >>> noisy = Observation(np.eye(5), np.array([9.0, -4.0, 12.0, 30.0, 26.0]), 8.0)
    >>> above = Observation(np.array([[0.0, 0.0, 0.0, 1.0, 1.0]]), np.array([50.0]), 1.0)
    >>> curve = smooth_curve([noisy, above])
    >>> bool(curve.min() > 0), round(float(curve[3:].sum()), 0)
    (True, 50.0)
    """
    scales = [max(one.noise, LEAST_NOISE) for one in observations]
    weights = np.concatenate([one.weights / scale for one, scale in zip(observations, scales, strict=True)])
    values = np.concatenate([one.values / scale for one, scale in zip(observations, scales, strict=True)])
    n_bins = weights.shape[1]
    bends = np.diff(np.eye(n_bins), 2, axis=0) / ROUGHNESS
    logs = np.full(n_bins, np.log(max(_typical(observations[0]), 1.0)))
    for _ in range(N_STEPS):
        curve = np.exp(logs)
        slopes = weights * curve
        easing = (FREEDOM + 1) / (FREEDOM + np.square(bends @ logs))
        prior = bends.T @ (easing[:, None] * bends) + 1e-6 * np.eye(n_bins)
        step = np.linalg.solve(
            slopes.T @ slopes + prior, slopes.T @ (values - weights @ curve) - prior @ logs
        )
        step = np.clip(step, -1.0, 1.0)
        logs = np.maximum(logs + step, LOWEST)
        if np.abs(step).max() < 1e-3:
            break
    return np.exp(logs)


def _typical(histogram: Observation) -> float:
    """Return the mean of a histogram, kept positive."""
    return float(np.maximum(histogram.values, 0.0).mean())
