"""What draws of a release with and without one record prove about epsilon: the referee of all neighbour games."""

import math

import numpy as np
from scipy.stats import beta

ALPHA = 1e-6


def lower_bound(with_canary, without, delta):
    """Return a lower bound on epsilon that holds with probability 1 - ALPHA: half of the draws choose a threshold."""
    half, best = len(with_canary) // 2, 0.0
    for sign in (1, -1):
        for one, other in ((sign * with_canary, sign * without), (sign * without, sign * with_canary)):
            thresholds = np.quantile(one[:half], np.linspace(0.01, 0.99, 50))
            scores = [_certified(one[:half], other[:half], threshold, delta) for threshold in thresholds]
            best = max(best, _certified(one[half:], other[half:], thresholds[int(np.argmax(scores))], delta))
    return best


def _certified(one, other, threshold, delta):
    """Return what the draws above a threshold that was chosen without them prove, at confidence 1 - ALPHA / 4."""
    hits, misses = np.sum(one > threshold), np.sum(other > threshold)
    low = beta.ppf(ALPHA / 8, hits, len(one) - hits + 1) if hits else 0.0
    high = beta.isf(ALPHA / 8, misses + 1, len(other) - misses) if misses < len(other) else 1.0
    return math.log((low - delta) / high) if low > delta else 0.0
