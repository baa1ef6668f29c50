"""The best of a random number of runs: its curve from the curve of one run (docs/proofs/selection.md).

Let one run have the law P with a unit and Q without it, K ~ Poisson(m) given K >= 1, and p = P(a run is better than
y). The best run has the density w(p) P(y) with w(p) = m e^(-m p) / (1 - e^-m), and without the unit at least
w(p) e^(-c(p)) Q(y) with c(p) = m (g(p) - p), where g(p) is the most that Q gives to any set to which P gives p. So

    H_A(epsilon) <= sum_k a_k H(epsilon + x_k)    if    sum_k a_k (t - e^x_k)_+ >= max over p of w(p) (t - e^-c(p))_+

for all t >= 0: a mixture of shifted curves of one run. It sums to w(0), a little more than m.
"""

import math

import numpy as np

from fairveil.privacy.losses import Array, Losses, LossLaw, join_curves

__all__ = ["best_of_losses"]

RANKS_PER_ROOT = 360
LARGEST_RANK = 40.0
"""Ranks m p are cut into cells between (i / 360)^2, up to 40, above which a density is below e^-40 of its largest."""

MAX_SHIFTS = 512
"""About how many shifts a mixture has; it errs upwards between them."""

SHIFTS_AHEAD = 2.0
"""Shifts reach this many times as far against epsilon as towards it."""


def best_of_losses(run: Losses, mean: float) -> Losses:
    """Return the losses of the best of Poisson(mean) runs, given that there is one, never below the true ones."""
    if max(run.remove.infinite, run.add.infinite) >= 1:
        return run
    ahead = _chosen(run.remove, run.add, mean)
    back = ahead if run.add is run.remove else _chosen(run.add, run.remove, mean)
    return join_curves(ahead, back, run.remove.grid)


def _chosen(own: LossLaw, opposite: LossLaw, mean: float) -> Array:
    """Return a bound on one direction's curve at 0, grid, 2 grid ...; it may exceed 1."""
    weights, first, stride = _mixture(*_densities(opposite, mean), own.grid)
    last = max(own.first + len(own.masses) - 1, 0) - first * stride
    low, high = first * stride, (first + len(weights) - 1) * stride
    heights = own.hockey_stick(np.arange(low, last + high + 1, dtype=np.float64) * own.grid)
    total = np.zeros(last + 1)
    for k, weight in enumerate(weights):
        total += weight * heights[k * stride : k * stride + last + 1]
    return total


def _densities(opposite: LossLaw, mean: float) -> tuple[Array, Array]:
    """Return for cells of ranks the largest w(p) and the largest c(p), which never falls with the cell."""
    ranks = (
        np.arange(math.ceil(RANKS_PER_ROOT * math.sqrt(min(mean, LARGEST_RANK))) + 1) / RANKS_PER_ROOT
    ) ** 2
    ranks[-1] = mean  # one last cell holds all that is left
    most, given = _trade_off(opposite)
    peak = given[np.argmax(most - given)]
    ends = np.minimum(ranks[1:] / mean, peak)
    shifts = mean * np.maximum(np.interp(ends, given, most) - ends, 0.0)
    return mean * np.exp(-ranks[:-1]) / -math.expm1(-mean), shifts


def _trade_off(opposite: LossLaw) -> tuple[Array, Array]:
    """Return the corners of g: the most that the law gives, and what its opposite then gives, outcome by outcome."""
    masses = opposite.masses[::-1]
    lost = max(opposite.infinite, 1 - float(masses.sum()))  # what rounding lost is taken as the worst
    most = lost + np.concatenate([[0.0], np.cumsum(masses)])
    given = np.concatenate([[0.0], np.cumsum(masses * np.exp(-np.maximum(opposite.losses[::-1], -700.0)))])
    inside = given < 1
    return np.append(np.minimum(most[inside], 1.0), 1.0), np.append(given[inside], 1.0)


def _mixture(densities: Array, shifts: Array, grid: float) -> tuple[Array, int, int]:
    """Return weights of the shifts (first + k) stride grid, k = 0, 1 ..., whose sum is above every cell's line."""
    farthest = float(shifts[-1])
    stride = max(1, math.ceil((1 + SHIFTS_AHEAD) * farthest / (MAX_SHIFTS * grid)))
    first = -math.ceil(farthest / (stride * grid))
    places = np.arange(first, 1 - math.floor(SHIFTS_AHEAD * first)) * (stride * grid)
    t, heights = np.exp(places), np.zeros(len(places))
    for density, offset in zip(densities, np.exp(-shifts), strict=True):
        np.maximum(heights, density * (t - offset), out=heights)
    # chords between places lie above a largest of lines; none is steeper than the first line
    slopes = np.concatenate([[0.0], np.diff(heights) / np.diff(t), [densities[0]]])
    return np.maximum(np.diff(slopes), 0.0), first, stride
