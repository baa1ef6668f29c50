"""First and second moments: how symmetric matrices become a flat vector, are bounded per record, and unpacked.

A record adds (u z) to one cell and (v z z^T) to one matrix. A matrix becomes its upper triangle with off-diagonal
entries times sqrt 2, so that its Euclidean norm is the Frobenius norm (Gaussian noise), or times 2, so that its L1 norm
is that of the coefficients of the polynomial (Laplace noise). The proof is in docs/proofs/moments.md.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float64Array

TINY = 1e-280
"""Added to squared lengths: a square that underflows must not make a record seem shorter than it is."""


class RowMoments(NamedTuple):
    """What rows add to moments: u z to the row's cell, v z z^T to the row's matrix; -1 for none.

    `design` holds z, shape (n_rows, n_values); `slopes` holds u and `weights` holds v, shape (n_rows,).
    """

    design: NDArray[np.floating]
    cells: NDArray[np.integer]
    tables: NDArray[np.integer]
    slopes: NDArray[np.floating]
    weights: NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Moments:
    """Released sums, all of them noisy.

    Attributes
    ----------
    first : array of shape (cells, d)
        The sums of u z in each cell.
    second : array of shape (tables, d, d)
        The sums of v z z^T in each table, symmetric.
    first_noise, diagonal_noise : float
        The standard deviation of the noise on an entry of `first`, and on a diagonal entry of a table; an entry off the
        diagonal has the latter over sqrt 2 under a Gaussian law, over 2 under a Laplace law.
    """

    first: Float64Array
    second: Float64Array
    first_noise: float
    diagonal_noise: float

    @classmethod
    def unpacked(cls, flat: Float64Array, shape: tuple[int, int, int], norm: int, noise: float) -> "Moments":
        """Return the moments in a flat vector of (cells, tables, d) with noise of this standard deviation."""
        n_cells, n_tables, n_values = shape
        first = flat[: n_cells * n_values].reshape(n_cells, n_values)
        upper, factors = _triangle(n_values, norm)
        entries = flat[n_cells * n_values :].reshape(n_tables, -1) / factors
        second = np.zeros((n_tables, n_values, n_values))
        second[:, upper[0], upper[1]] = entries
        second[:, upper[1], upper[0]] = entries
        return cls(first.copy(), second, noise, noise)


def design_of(
    X: NDArray[np.floating], norm: float, clips: bool = False, scales: Float64Array | None = None
) -> Float64Array:
    """Return z = [x, 1] / norm in double precision, shape (n_rows, n_features + 1); `clips` makes every |x_j| <= 1.

    With scales it is [scales x, 1] / norm, x shortened where |z| > 1: the last entry still counts people.
    """
    design = np.empty((len(X), X.shape[1] + 1))
    design[:, :-1] = np.clip(X, -1.0, 1.0) if clips else X
    design[:, -1] = 1.0
    design /= norm
    if scales is not None:
        design[:, :-1] *= scales
        squares, most = np.einsum("ij,ij->i", design[:, :-1], design[:, :-1]), max(0.0, 1 - norm**-2)
        design[:, :-1] *= np.sqrt(most / np.maximum(squares, most + TINY))[:, None]
    return design


def pack(first: Float64Array, second: Float64Array, norm: int) -> Float64Array:
    """Return first moments and the triangles of second moments as one flat vector, to which noise is added."""
    upper, factors = _triangle(first.shape[1], norm)
    triangles = second[:, upper[0], upper[1]] * factors
    return np.concatenate([first.ravel(), triangles.ravel()])


@lru_cache(maxsize=8)
def _triangle(n_values: int, norm: int) -> tuple[tuple[NDArray[np.intp], NDArray[np.intp]], Float64Array]:
    upper = np.triu_indices(n_values)
    factors = np.where(upper[0] == upper[1], 1.0, 2.0 if norm == 1 else math.sqrt(2))
    return upper, factors


def bounded_rows(rows: RowMoments, shape: tuple[int, int, int], bound: float, norm: int) -> RowMoments:
    """Return rows each of which moves the flat vector by at most `bound` in L1 or L2; one not finite adds nothing.

    Cells and matrices outside 0 ... n - 1 come back as an extra last one, which is cut off.
    """
    design = np.asarray(rows.design, dtype=np.float64)
    places, factors = [], []
    for place, factor, n_places in zip(rows[1:3], rows[3:], shape[:2], strict=True):
        wide = np.asarray(place).astype(np.int64)
        places.append(np.where((wide >= 0) & (wide < n_places), wide, n_places))
        factors.append(np.where(places[-1] < n_places, factor, 0.0).astype(np.float64))
    slopes, weights = factors
    # the norm of (u z, v z z^T): a matrix z z^T has the squared norm of z, in L1 and in L2
    if norm == 1:
        lengths = np.abs(design).sum(axis=1) + TINY
        sizes = np.abs(slopes) * lengths + np.abs(weights) * lengths * lengths
    else:
        squares = np.einsum("ij,ij->i", design, design) + TINY
        sizes = np.hypot(slopes * np.sqrt(squares), weights * squares)
    is_finite = np.isfinite(sizes)
    scale = np.where(is_finite, bound / np.maximum(sizes, bound), 0.0)
    return RowMoments(
        np.where(is_finite[:, None], design, 0.0),
        places[0],
        places[1],
        np.where(is_finite, slopes, 0.0) * scale,
        np.where(is_finite, weights, 0.0) * scale,
    )


def sum_rows(rows: RowMoments, shape: tuple[int, int, int]) -> tuple[Float64Array, Float64Array]:
    """Return the sums in each cell and table of bounded rows, whose design is used up on the way."""
    n_cells, n_tables, n_values = shape
    shares = np.zeros((n_cells + 1, len(rows.cells)))
    shares[rows.cells, np.arange(len(rows.cells))] = rows.slopes
    first = (shares @ rows.design)[:-1]
    second = np.zeros((n_tables, n_values, n_values))
    # a matrix times its own transpose is half the work, and in place it needs no memory
    scaled = np.multiply(rows.design, np.sqrt(np.abs(rows.weights))[:, None], out=rows.design)
    for table in range(n_tables):
        # those who are in no table have weight 0
        part = scaled if n_tables == 1 else scaled[rows.tables == table]
        negative = scaled[(rows.tables == table) & (rows.weights < 0)]
        second[table] = part.T @ part - 2 * (negative.T @ negative)
    return first, second
