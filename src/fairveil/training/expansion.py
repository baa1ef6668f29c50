"""The logistic loss as a quadratic: what rows add to its coefficients, and where the quadratic is least.

With z = [x, 1] / R, so that |z| <= 1, the loss log(1 + e^m) - y m of a margin m = w.z is, to second order, at 0
    log 2 + (1/2 - y) z.w + (z.w)^2 / 8,
and around released weights the Newton quadratic with slope (p - y) z and curvature p (1 - p) z z^T.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fairveil.privacy.moments import Moments, coefficient_sensitivity
from fairveil.privacy.rows import RowMoments, Rows, row_function

__all__ = [
    "NEWTON_SENSITIVITY",
    "START_SENSITIVITY",
    "AroundWeights",
    "AtZero",
    "Quadratic",
    "design_of",
    "laplace_bound",
]

Floats = NDArray[np.float64]

START_SENSITIVITY = coefficient_sensitivity(1.0, 1.0)
"""The L2 norm of what one record adds at 0, with u = 1 - 2y and v = 1."""

_WORST_P = (48 - math.sqrt(128)) / 64
NEWTON_SENSITIVITY = math.hypot(_WORST_P, 4 * _WORST_P * (1 - _WORST_P))
"""The largest sqrt(u^2 + v^2) with u = p - y and v = 4 p (1 - p), about 1.134: at y = 0 the derivative of the square is
2p (32 p^2 - 48 p + 17), which is 0 at `_WORST_P`; y = 1 is its mirror image."""

TRIM = 0.5
"""Eigenvalues are trimmed from below at this part of the edge of the noise's own spectrum."""

LEAST_CURVATURE = 1e-10
"""Without noise they are trimmed at this part of the largest one, which only keeps the solve finite."""


def laplace_bound(n_values: int) -> float:
    """Return the L1 sensitivity of paper 003, Algorithm 2: d^2 / 4 + 3 d for |x_j| <= 1."""
    return n_values**2 / 4 + 3 * n_values


def design_of(X: NDArray[np.floating], norm: float, clips: bool = False) -> Floats:
    """Return z = [x, 1] / norm in double precision, with every |x_j| <= 1 if asked for."""
    design = np.empty((len(X), X.shape[1] + 1))
    design[:, :-1] = np.clip(X, -1.0, 1.0) if clips else X
    design[:, -1] = 1.0
    design /= norm
    return design


@row_function
@dataclass(frozen=True, eq=False)
class AtZero:
    """The coefficients of the loss expanded at 0: u = pull (1 - 2y) and a constant weight v.

    `cells` and `tables` (groups x labels) say where an atom's first and second moments are summed.
    """

    norm: float
    n_values: int
    cells: NDArray[np.int64]
    tables: NDArray[np.int64]
    n_cells: int
    n_tables: int
    pull: float = 1.0
    weight: float = 1.0
    clips: bool = False

    def moments_of(self, rows: Rows) -> RowMoments:
        """Return what each row adds, and where."""
        atoms = rows.joint(2)
        return RowMoments(
            design_of(rows.X, self.norm, self.clips),
            self.cells.ravel().take(atoms, mode="wrap"),
            self.tables.ravel().take(atoms, mode="wrap"),
            self.pull * (1.0 - 2.0 * rows.y),
            np.full(len(rows), self.weight),
        )


@row_function
@dataclass(frozen=True, eq=False)
class AroundWeights:
    """The Newton step around released weights: u = p - y and v = 4 p (1 - p), both summed by table."""

    norm: float
    weights: Floats
    tables: NDArray[np.int64]
    n_tables: int

    @property
    def n_values(self) -> int:
        """The length of z."""
        return len(self.weights)

    @property
    def n_cells(self) -> int:
        """Slopes are summed where curvatures are."""
        return self.n_tables

    def moments_of(self, rows: Rows) -> RowMoments:
        """Return what each row adds, and where."""
        design = design_of(rows.X, self.norm)
        chance = expit(design @ self.weights)
        tables = self.tables.ravel().take(rows.joint(2), mode="wrap")
        return RowMoments(design, tables, tables, chance - rows.y, 4 * chance * (1 - chance))


@dataclass(frozen=True, eq=False)
class Quadratic:
    """slope.(w - centre) + (w - centre)^T curvature (w - centre) / 2, made of noisy sums.

    Attributes
    ----------
    slope, curvature, centre : arrays of shape (d,), (d, d), (d,)
    edge : float
        How far noise alone spreads the eigenvalues of `curvature`: the edge of its semicircle, 0 without noise.
    regularisation : float
        Times half the edge: where eigenvalues are trimmed from below.
    """

    slope: Floats
    curvature: Floats
    centre: Floats
    edge: float
    regularisation: float = 1.0

    @classmethod
    def at_zero(
        cls, moments: Moments, shares: Floats, cell_tables: NDArray[np.int64], step: AtZero
    ) -> "Quadratic":
        """Return the expansion at 0 of the tables' losses, each times its share."""
        by_table = _by_table(moments.first, cell_tables, step.n_tables)
        slope = shares @ by_table / (2 * step.pull)
        return cls._of(moments, shares, slope, 1 / (4 * step.weight), np.zeros(step.n_values))

    @classmethod
    def around(cls, moments: Moments, shares: Floats, step: AroundWeights) -> "Quadratic":
        """Return the Newton quadratic around released weights."""
        return cls._of(moments, shares, shares @ moments.first, 0.25, step.weights)

    @classmethod
    def _of(
        cls, moments: Moments, shares: Floats, slope: Floats, scale: float, centre: Floats
    ) -> "Quadratic":
        curvature = scale * np.tensordot(shares, moments.second, axes=1)
        noise = scale * moments.diagonal_noise * float(np.linalg.norm(shares))
        return cls(slope, curvature, centre, noise * math.sqrt(2 * len(slope)))

    def regularised(self, regularisation: float) -> "Quadratic":
        """Return the same quadratic, trimmed at another level."""
        return replace(self, regularisation=regularisation)

    @cached_property
    def _spectrum(self) -> tuple[Floats, Floats]:
        values, vectors = np.linalg.eigh(self.curvature)
        level = TRIM * self.regularisation * self.edge
        least = max(level, LEAST_CURVATURE * float(np.abs(values).max()), np.finfo(float).tiny)
        return np.maximum(values, least), vectors

    def inverse(self, vectors: Floats) -> Floats:
        """Return the inverse of the trimmed curvature times these columns."""
        values, basis = self._spectrum
        return basis @ ((basis.T @ vectors).T / values).T

    @cached_property
    def minimiser(self) -> Floats:
        """Where the trimmed quadratic is least."""
        return self.centre - self.inverse(self.slope)

    def minimiser_under(self, directions: Floats) -> Floats:
        """Return where it is least among all w with directions @ w = 0; directions (J, d) may depend on each other."""
        steered = self.inverse(directions.T)
        pressure = np.linalg.pinv(directions @ steered, rcond=1e-9, hermitian=True) @ (
            directions @ self.minimiser
        )
        return self.minimiser - steered @ pressure


def _by_table(first: Floats, cell_tables: NDArray[np.int64], n_tables: int) -> Floats:
    """Return first moments of cells added up to their tables."""
    sums = np.zeros((n_tables, first.shape[1]))
    np.add.at(sums, cell_tables, first)
    return sums
