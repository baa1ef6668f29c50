"""Noisy counts of scores in, the most plausible curve out: positive, smooth where noise hides it, else exact.

Every release says y = A f + noise about the numbers f of people in the bins of a score: the histogram with A the
identity, a count above thresholds with A the shares of the bins above them. The curve maximizes the posterior of
log f under a prior on its second differences, by Gauss-Newton steps. Thresholds are then chosen on the curves instead
of on the counts. Everything here is post-processing.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fairveil._typing import Float64Array

ROUGHNESS = 0.05
"""The standard deviation of a second difference of log f, beforehand: set on public data sets, docs/defaults.md."""

FREEDOM = 2.0
"""Second differences follow a t-law of so many degrees of freedom: a curve is smooth, but may have peaks."""

SMALLEST_NOISE = 0.5
"""The smallest standard deviation that is used: counts are whole."""

SMALLEST_LOG = -7.0
"""No bin is taken to hold fewer than exp of this many people."""

MOST_STEPS = 60


class Observation(NamedTuple):
    """Noisy sums `values` (m,) of a curve: `weights` (m, bins) @ curve, with noise of standard deviation `noise`."""

    weights: Float64Array
    values: Float64Array
    noise: float


def smooth_curve(observations: Sequence[Observation]) -> Float64Array:
    """Return the most plausible numbers of people in each bin, all positive.

    Examples
    --------
    >>> noisy = Observation(np.eye(5), np.array([9.0, -4.0, 12.0, 30.0, 26.0]), 8.0)
    >>> above = Observation(np.array([[0.0, 0.0, 0.0, 1.0, 1.0]]), np.array([50.0]), 1.0)
    >>> curve = smooth_curve([noisy, above])
    >>> bool(curve.min() > 0), round(float(curve[3:].sum()), 0)
    (True, 50.0)
    """
    scales = [max(one.noise, SMALLEST_NOISE) for one in observations]
    weights = np.concatenate([one.weights / scale for one, scale in zip(observations, scales, strict=True)])
    values = np.concatenate([one.values / scale for one, scale in zip(observations, scales, strict=True)])
    n_bins = weights.shape[1]
    bends = np.diff(np.eye(n_bins), 2, axis=0) / ROUGHNESS
    typical = float(np.maximum(observations[0].values, 0.0).mean())
    logs = np.full(n_bins, np.log(max(typical, 1.0)))
    for _ in range(MOST_STEPS):
        curve = np.exp(logs)
        slopes = weights * curve
        easing = (FREEDOM + 1) / (FREEDOM + np.square(bends @ logs))
        prior = bends.T @ (easing[:, None] * bends) + 1e-6 * np.eye(n_bins)
        step = np.linalg.solve(
            slopes.T @ slopes + prior, slopes.T @ (values - weights @ curve) - prior @ logs
        )
        step = np.clip(step, -1.0, 1.0)
        logs = np.maximum(logs + step, SMALLEST_LOG)
        if np.abs(step).max() < 1e-3:
            break
    return np.exp(logs)
