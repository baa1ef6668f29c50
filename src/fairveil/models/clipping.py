"""How each record's gradient is held to its bound, in float32, without ever writing that gradient down.

The gradient of a dense layer for one record is an outer product of its input and its delta, so its squared
norm is `(||input||^2 + 1) * ||delta||^2` (the 1 is the bias); a record's squared norm is the sum over layers.

Why the bound holds in floating point, with u = 2^-24:

* *Rounding.* Summing w squares in four or more lanes errs by at most w/4 u, hence the norm by w/8 u; a dozen
  further roundings come from the square root, the division and the products. The bound aimed at is therefore
  `clip_norm * (1 - (16 + w/8) u)`, about 2e-6 below `clip_norm` for a hundred columns.
* *Underflow.* Squares below 2^-126 may be lost, so `FLOOR`, which is larger than all of them together, is
  added: a norm is never under-estimated.
* *Overflow, NaN, infinity.* A record whose squared norm is not a finite float32 (norm above 1.8e19) adds
  exactly zero: its rows are blanked before the product, because zero times infinity is NaN.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array
from fairveil.errors import InvalidParameterError
from fairveil.models.base import ignore_float_warnings

FLOOR = np.float32(1e-30)
SMALLEST_CLIP, LARGEST_CLIP = 1e-18, 1e18
_CHUNK = 4096
_FEW = 8


@ignore_float_warnings
def row_norms(X: Float32Array) -> Float32Array:
    """Return ||x|| of each row (B,), summed in float64: compute once, pass the batch's part to the model."""
    norms = np.empty(len(X), dtype=np.float32)
    for start in range(0, len(X), _CHUNK):
        rows = X[start : start + _CHUNK].astype(np.float64)
        norms[start : start + _CHUNK] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return norms


def squares_by_row(rows: Float32Array) -> Float32Array:
    """Return ||row||^2 of each row (B,) in float32."""
    return np.einsum("ij,ij->i", rows, rows)


def squares_by_column(columns: Float32Array) -> Float32Array:
    """Return ||column||^2 of each column (B,) of a class-major array in float32."""
    if len(columns) > _FEW:
        return np.einsum("kb,kb->b", columns, columns)
    squares = columns * columns
    total = squares[0]
    for k in range(1, len(squares)):
        total += squares[k]
    return total


def safety_margin(width: int) -> float:
    """Return the factor just below 1 that pays for the rounding of norms of `width` squares."""
    return 1.0 - (16.0 + width / 8.0) * 2.0**-24


def clip_bound(clip_norm: float | Float32Array, width: int) -> np.float32 | Float32Array | None:
    """Return what norms are held to so that `clip_norm` holds after rounding; None for infinity.

    `width` is the number of squares in the longest sum. A bound per record that is NaN, or too small for
    float32, becomes 0: the record adds nothing.
    """
    if not isinstance(clip_norm, np.ndarray):
        return _scalar_bound(clip_norm, width)
    held = np.minimum(clip_norm, LARGEST_CLIP) * safety_margin(width)
    return np.where(clip_norm >= SMALLEST_CLIP, held, 0.0).astype(np.float32)


@lru_cache(maxsize=64)
def _scalar_bound(clip_norm: float, width: int) -> np.float32 | None:
    if not clip_norm >= SMALLEST_CLIP:
        raise InvalidParameterError(f"Expected clip_norm >= {SMALLEST_CLIP}, got {clip_norm!r}.")
    if clip_norm == math.inf:
        return None
    return np.float32(min(clip_norm, LARGEST_CLIP) * safety_margin(width))


def clip_factors(
    squares: Float32Array, bound: np.float32 | Float32Array
) -> tuple[Float32Array, NDArray[np.bool_] | None]:
    """Return what each record's gradient is multiplied with, and which records must be blanked (None: none).

    Overwrites `squares`, the squared norms.
    """
    # The dot product is the cheapest test; it may overflow early, then the slow way finds nothing to blank.
    broken = None if math.isfinite(squares.dot(squares)) else ~np.isfinite(squares)
    norms = np.sqrt(squares, out=squares)
    np.maximum(norms, bound, out=norms)
    if isinstance(bound, np.ndarray):
        np.maximum(norms, SMALLEST_CLIP, out=norms)
    return np.divide(bound, norms, out=norms), broken


def blank(broken: NDArray[np.bool_], rows: Float32Array) -> Float32Array:
    """Return a copy of row-major `rows` with the broken records set to zero."""
    return np.where(broken[:, None], np.float32(0), rows)
