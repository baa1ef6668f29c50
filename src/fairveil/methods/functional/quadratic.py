"""The logistic loss as a quadratic: what rows add to its coefficients, where it is least, what it tells of cells.

With z = [x, 1] / R, so that |z| <= 1, the loss log(1 + e^m) - y m of a margin m = w.z is, to second order, at 0
    log 2 + (1/2 - y) z.w + (z.w)^2 / 8,
and around released weights the Newton quadratic with slope (p - y) z and curvature p (1 - p) z z^T.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float64Array
from fairveil.fairness.rates import SMALLEST_GROUP, HistogramConstraints, minimum_size
from fairveil.privacy.moments import Moments
from fairveil.privacy.queries import LogisticMoments


def coefficient_sensitivity(first: float = 0.5, second: float = 0.125) -> float:
    """Return how far one record with ||x||_2 <= 1 moves (first x, second x x^T) together, in L2.

    The defaults are the coefficients of the logistic loss expanded at 0: (1/2 - y) x and x x^T / 8.

    Examples
    --------
    >>> round(coefficient_sensitivity(), 4), round(coefficient_sensitivity(1.0, 1.0), 4)
    (0.5154, 1.4142)
    """
    return math.hypot(first, second)


START_SENSITIVITY = math.hypot(1.0, 1.0)
"""The L2 norm of what one record adds at 0, with u = 1 - 2y and v = 1."""

_WORST_P = (48 - math.sqrt(128)) / 64
NEWTON_SENSITIVITY = math.hypot(_WORST_P, 4 * _WORST_P * (1 - _WORST_P))
"""The largest sqrt(u^2 + v^2) with u = p - y and v = 4 p (1 - p), about 1.134: at y = 0 the derivative of the square is
2p (32 p^2 - 48 p + 17), which is 0 at `_WORST_P`; y = 1 is its mirror image."""

TRIM = 0.5
"""Eigenvalues are trimmed from below at this part of the edge of the noise's own spectrum."""

LEAST_CURVATURE = 1e-10
"""Without noise they are trimmed at this part of the largest one, which only keeps the solve finite."""

EMPTY_CELL_Z = 3.0
"""Cells whose noisy size is below so many standard deviations of its noise count as empty."""

CLEAR_DIFFERENCE_Z = 3.0
"""A cell's mean differs from everyone's in those coordinates where it does so by so many deviations of its noise."""


def laplace_bound(n_values: int) -> float:
    """Return the L1 sensitivity of FairFM (FairDP, Algorithm 2): d^2 / 4 + 3 d for |x_j| <= 1."""
    return n_values**2 / 4 + 3 * n_values


class CellLayout(NamedTuple):
    """Where the moments of each (group code, label) are summed, and what the cells of first moments are."""

    cells: NDArray[np.int64]
    tables: NDArray[np.int64]
    labels: NDArray[np.int64]
    coarse: NDArray[np.int64]
    cell_tables: NDArray[np.int64]

    @property
    def n_tables(self) -> int:
        """The number of tables of second moments."""
        return int(self.tables.max()) + 1

    @property
    def has_labels(self) -> bool:
        """Whether all people of a cell have one label, so that first moments count them."""
        return len(self.labels) > 1


@dataclass(frozen=True, eq=False)
class Quadratic:
    """slope.(w - center) + (w - center)^T curvature (w - center) / 2, made of noisy sums.

    Attributes
    ----------
    slope, curvature, center : arrays of shape (d,), (d, d), (d,)
    edge : float
        How far noise alone spreads the eigenvalues of `curvature`: the edge of its semicircle, 0 without noise.
    regularization : float
        Times half the edge: where eigenvalues are trimmed from below.
    """

    slope: Float64Array
    curvature: Float64Array
    center: Float64Array
    edge: float
    regularization: float = 1.0

    @classmethod
    def at_zero(
        cls, moments: Moments, shares: Float64Array, cell_tables: NDArray[np.int64], step: LogisticMoments
    ) -> "Quadratic":
        """Return the expansion at 0 of the tables' losses, each times its share."""
        by_table = _by_table(moments.first, cell_tables, step.shape[1])
        slope = shares @ by_table / (2 * step.slope)
        return cls._of(moments, shares, slope, 1 / (4 * step.weight), np.zeros(step.shape[2]))

    @classmethod
    def around(cls, moments: Moments, shares: Float64Array, center: Float64Array) -> "Quadratic":
        """Return the Newton quadratic around released weights."""
        return cls._of(moments, shares, shares @ moments.first, 0.25, center)

    @classmethod
    def _of(
        cls, moments: Moments, shares: Float64Array, slope: Float64Array, scale: float, center: Float64Array
    ) -> "Quadratic":
        curvature = scale * np.tensordot(shares, moments.second, axes=1)
        noise = scale * moments.diagonal_noise * float(np.linalg.norm(shares))
        return cls(slope, curvature, center, noise * math.sqrt(2 * len(slope)))

    def regularized(self, regularization: float) -> "Quadratic":
        """Return the same quadratic, trimmed at another level."""
        return replace(self, regularization=regularization)

    @cached_property
    def _spectrum(self) -> tuple[Float64Array, Float64Array]:
        values, vectors = np.linalg.eigh(self.curvature)
        level = TRIM * self.regularization * self.edge
        least = max(level, LEAST_CURVATURE * float(np.abs(values).max()), np.finfo(float).tiny)
        return np.maximum(values, least), vectors

    def inverse(self, vectors: Float64Array) -> Float64Array:
        """Return the inverse of the trimmed curvature times these columns."""
        values, basis = self._spectrum
        return basis @ ((basis.T @ vectors).T / values).T

    @cached_property
    def minimizer(self) -> Float64Array:
        """Where the trimmed quadratic is least."""
        return self.center - self.inverse(self.slope)

    def minimizer_under(self, directions: Float64Array) -> Float64Array:
        """Return where it is least among all w with directions @ w = 0; directions (J, d) may depend on each other."""
        steered = self.inverse(directions.T)
        pressure = np.linalg.pinv(directions @ steered, rcond=1e-9, hermitian=True) @ (directions @ self.minimizer)
        return self.minimizer - steered @ pressure


@dataclass(frozen=True, eq=False)
class CellSums:
    """What first and second moments tell of the cells, all of it noisy.

    Attributes
    ----------
    sums : array of shape (cells, d)
        The sum of z over the people of a cell.
    squares : array of shape (d, d)
        The sum of z z^T over everyone who is counted.
    norm : float
        z = [scales x, 1] / norm, so that the last coordinate counts people.
    size_noise : float
        The standard deviation of the noise on the size of a cell.
    minimum : float
        The smallest number of people that a rate is divided by.
    scales : array of shape (d - 1,), optional
        Those of features; None is 1 for all.
    """

    sums: Float64Array
    squares: Float64Array
    norm: float
    size_noise: float
    minimum: float
    scales: Float64Array | None = None

    def unscaled(self, weights: Float64Array) -> Float64Array:
        """Return the weights of [x, 1] / norm whose scores are those of these weights of z."""
        return weights if self.scales is None else weights * np.append(self.scales, 1.0)

    @cached_property
    def means(self) -> Float64Array:
        """The mean of z in each cell: that of everyone, but where the cell's own clearly differs."""
        common = self.sums.sum(axis=0) / self.everyone
        parts = np.maximum(self.sizes, self.minimum)[:, None]
        apart = self.sums / parts - common
        noise = self.size_noise / self.norm / parts
        return common + np.where(np.abs(apart) > CLEAR_DIFFERENCE_Z * noise, apart, 0.0)

    @cached_property
    def sizes(self) -> Float64Array:
        """The number of people in each cell, never negative."""
        return np.maximum(self.sums[:, -1] * self.norm, 0.0)

    @property
    def everyone(self) -> float:
        """The number of people in all cells."""
        return max(float(self.sizes.sum()), self.minimum)

    def spread(self, weights: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Return mean and standard deviation of each score w.z over everyone, for the columns of `weights`."""
        means = self.sums.sum(axis=0) @ weights / self.everyone
        squares = np.einsum("dk,de,ek->k", weights, self.squares, weights) / self.everyone
        return means, np.sqrt(np.maximum(squares - means**2, 1e-12))

    def tilt(self, score: Float64Array, other: Float64Array) -> float:
        """Return the slope of the regression of another score on a first one, over everyone."""
        means, stds = self.spread(np.stack([score, other], axis=1))
        together = score @ self.squares @ other / self.everyone - means[0] * means[1]
        return float(together / stds[0] ** 2)

    def within(self, weights: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Return the mean scores of each cell, shape (cells, k), and their covariance inside cells, shape (k, k)."""
        means = self.means @ weights
        between = (means * self.sizes[:, None]).T @ means
        inside = (weights.T @ self.squares @ weights - between) / self.everyone
        values, vectors = np.linalg.eigh(inside)
        return means, (vectors * np.maximum(values, 0.0)) @ vectors.T


@dataclass(frozen=True, eq=False)
class CellRates:
    """The rates of some bounds as functions of how many people of each cell are decided for class 1.

    Attributes
    ----------
    gain, base, below : arrays of shape (R, cells)
        A rate is (gain.accepted + base.sizes) / below.sizes.
    weights : array of shape (J, R)
    labels : array of shape (cells,)
    """

    gain: Float64Array
    base: Float64Array
    below: Float64Array
    weights: Float64Array
    labels: NDArray[np.int64]

    @classmethod
    def of(cls, bounds: HistogramConstraints, coarse: NDArray[np.int64], labels: NDArray[np.int64]) -> "CellRates":
        """Return the rates over finer cells: `coarse` is the bounds' own cell of each, -1 for none."""
        shape = (len(bounds.above), bounds.n_cells, bounds.n_classes)
        # a last cell of zeros, to which -1 points
        above, below = (
            np.pad(table.reshape(shape), ((0, 0), (0, 1), (0, 0)))[:, coarse] for table in (bounds.above, bounds.below)
        )
        return cls(above[..., 1] - above[..., 0], above[..., 0], below[..., 0], bounds.weights, labels)

    def directions(self, known: CellSums) -> Float64Array:
        """Return d_j with d_j.w the left side of bound j, had decisions been scores; shape (J, d)."""
        parts = np.maximum(self.below @ known.sizes, known.minimum)
        # a ratio other than 1 bends the bound, not what would be fair
        return np.sign(self.weights) @ (self.gain @ (known.means * known.sizes[:, None]) / parts[:, None])

    def is_known(self, known: CellSums) -> NDArray[np.bool_]:
        """Return which bounds are on enough people to speak of."""
        noise = known.size_noise * np.sqrt(np.count_nonzero(self.below, axis=1))
        is_small = self.below @ known.sizes < SMALLEST_GROUP + 3 * noise
        return ~((self.weights != 0) & is_small).any(axis=1)

    def accuracy(self, accepted: Float64Array, sizes: Float64Array) -> Float64Array:
        """Return the share of right decisions."""
        right = accepted @ (2.0 * self.labels - 1) + sizes[self.labels == 0].sum()
        return right / max(float(sizes.sum()), 1.0)

    def sides(
        self, accepted: Float64Array, noises: Float64Array, sizes: Float64Array, minimum: float
    ) -> tuple[Float64Array, Float64Array]:
        """Return left sides and their standard errors, because people are a sample and counts noisy, each (..., J)."""
        parts = np.maximum(self.below @ sizes, minimum)
        rates = np.clip((accepted @ self.gain.T + self.base @ sizes) / parts, 0.0, 1.0)
        middle = np.clip(rates, 0.02, 0.98)
        noise = np.square(noises) @ np.square(self.gain).T / np.square(parts)
        errors = np.sqrt((middle * (1 - middle) / parts + noise) @ np.square(self.weights).T)
        return rates @ self.weights.T, errors


def without_empty_cells(moments: Moments, norm: float) -> Moments:
    """Return moments without the first moments of cells that seem empty: they would add nothing but noise."""
    sizes, noise = np.abs(moments.first[:, -1]) * norm, moments.first_noise * norm
    return replace(moments, first=np.where(sizes[:, None] > EMPTY_CELL_Z * noise, moments.first, 0.0))


def known_from(moments: Moments, start: LogisticMoments, layout: CellLayout, size: float) -> CellSums:
    """Return the sums of z in cells (first moments have the sign of the label) and of z z^T over everyone."""
    sums = moments.first * (1 - 2 * layout.labels)[:, None] / start.slope
    squares = moments.second.sum(axis=0) / start.weight
    noise = moments.first_noise / start.slope * start.norm
    return CellSums(sums, squares, start.norm, noise, minimum_size(size), start.scales)


def _by_table(first: Float64Array, cell_tables: NDArray[np.int64], n_tables: int) -> Float64Array:
    """Return first moments of cells added up to their tables."""
    sums = np.zeros((n_tables, first.shape[1]))
    np.add.at(sums, cell_tables, first)
    return sums
