"""First and second moments of people: how a symmetric table is laid flat, bounded per record, and unpacked again.

A record adds (u z) to one cell and (v z z^T) to one table. Laid flat, a table is its upper triangle with off-diagonal
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
"""Added to squared lengths: a square that underflows must not make a record look shorter than it is."""


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


def coefficient_sensitivity(first: float = 0.5, second: float = 0.125) -> float:
    """Return how far one record with ||x||_2 <= 1 moves (first x, second x x^T) together, in L2.

    The defaults are the coefficients of the logistic loss expanded at 0: (1/2 - y) x and x x^T / 8.

    Examples
    --------
    >>> round(coefficient_sensitivity(), 4), round(coefficient_sensitivity(1.0, 1.0), 4)
    (0.5154, 1.4142)
    """
    return math.hypot(first, second)


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
    """Return rows each of which moves the flat vector by at most `bound` in L1 or L2; a non-finite one adds nothing.

    Cells and tables come back as slots: those outside 0 .. n - 1 are the last one, to be cut off.
    """
    n_cells, n_tables, _ = shape
    design = np.asarray(rows.design, dtype=np.float64)
    cells, tables = _slots(rows.cells, n_cells), _slots(rows.tables, n_tables)
    pulls = np.where(cells < n_cells, rows.slopes, 0.0).astype(np.float64)
    weights = np.where(tables < n_tables, rows.weights, 0.0).astype(np.float64)
    sizes = _joint_norms(design, pulls, weights, norm)
    is_finite = np.isfinite(sizes)
    scale = np.where(is_finite, bound / np.maximum(sizes, bound), 0.0)
    blank = ~is_finite[:, None]
    return RowMoments(
        np.where(blank, 0.0, design),
        cells,
        tables,
        np.where(is_finite, pulls, 0.0) * scale,
        np.where(is_finite, weights, 0.0) * scale,
    )


def _joint_norms(design: Float64Array, pulls: Float64Array, weights: Float64Array, norm: int) -> Float64Array:
    """Return |(u z, v z z^T)| of each row, never too small: a table has the squared norm of z, in L1 and in L2."""
    if norm == 1:
        lengths = np.abs(design).sum(axis=1) + TINY
        return np.abs(pulls) * lengths + np.abs(weights) * lengths * lengths
    squares = np.einsum("ij,ij->i", design, design) + TINY
    return np.hypot(pulls * np.sqrt(squares), weights * squares)


def _slots(places: NDArray[np.integer], n_places: int) -> NDArray[np.int64]:
    wide = np.asarray(places).astype(np.int64)
    return np.where((wide >= 0) & (wide < n_places), wide, n_places)


def sum_rows(rows: RowMoments, shape: tuple[int, int, int]) -> tuple[Float64Array, Float64Array]:
    """Return the sums in each cell and table of bounded rows, whose design is used up on the way."""
    n_cells, n_tables, n_values = shape
    shares = np.zeros((n_cells + 1, len(rows.cells)))
    shares[rows.cells, np.arange(len(rows.cells))] = rows.slopes
    first = (shares @ rows.design)[:-1]
    second = np.zeros((n_tables, n_values, n_values))
    # a matrix times its own transpose is half the work, and in place no memory is asked for
    scaled = np.multiply(rows.design, np.sqrt(np.abs(rows.weights))[:, None], out=rows.design)
    for table in range(n_tables):
        # those who are in no table have weight 0
        part = scaled if n_tables == 1 else scaled[rows.tables == table]
        negative = scaled[(rows.tables == table) & (rows.weights < 0)]
        second[table] = part.T @ part - 2 * (negative.T @ negative)
    return first, second
