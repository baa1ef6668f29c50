"""How each record's gradient is clipped in float32, without ever computing that gradient by itself.

The gradient of a dense layer for one record is an outer product of its input and its delta, so its squared
norm is `(||input||^2 + 1) * ||delta||^2` (the 1 is the bias); a record's squared norm is the sum over layers.

Why the bound holds in floating point, with u = 2^-24:

* *Rounding.* Summing w squares in four or more lanes errs by at most w/4 u, hence the norm by w/8 u; a dozen
  further roundings come from the square root, the division and the products. Norms are therefore clipped to
  `clip_norm * (1 - (16 + w/8) u)`, about 2e-6 below `clip_norm` for a hundred columns.
* *Underflow.* Squares below 2^-126 may be lost, so `SQUARE_SLACK`, which is larger than all of them together,
  is added: a norm is never under-estimated.
* *Overflow, NaN, infinity.* A record whose squared norm is not a finite float32 (norm above 1.8e19) adds
  exactly zero: its rows are set to zero before the product, because zero times infinity is NaN.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array
from fairveil.errors import InvalidParameterError

SQUARE_SLACK = np.float32(1e-30)
"""Added to squared norms; see underflow above."""

SMALLEST_CLIP, LARGEST_CLIP = 1e-18, 1e18
"""Clip norms whose squares are normal numbers of float32."""

FEW_CLASSES = 8
"""Up to so many rows, adding them one by one is faster than einsum."""


def squares_by_column(columns: Float32Array) -> Float32Array:
    """Return ||column||^2 of each column in float32, shape (n_columns,)."""
    if len(columns) > FEW_CLASSES:
        return np.einsum("kb,kb->b", columns, columns)
    squares = columns * columns
    total = squares[0]
    for k in range(1, len(squares)):
        total += squares[k]
    return total


def clip_bound(clip_norm: float | Float32Array, width: int) -> np.float32 | Float32Array | None:
    """Return the bound on computed norms that keeps `clip_norm` after rounding; None for infinity.

    `width` is the number of squares in the longest sum. A bound per record that is NaN, or too small for
    float32, becomes 0: the record adds nothing.
    """
    safety = 1.0 - (16.0 + width / 8.0) * 2.0**-24
    if isinstance(clip_norm, np.ndarray):
        bounds = np.minimum(clip_norm, LARGEST_CLIP) * safety
        return np.where(clip_norm >= SMALLEST_CLIP, bounds, 0.0).astype(np.float32)
    if not clip_norm >= SMALLEST_CLIP:
        raise InvalidParameterError(f"Expected clip_norm >= {SMALLEST_CLIP}, got {clip_norm!r}.")
    return None if clip_norm == math.inf else np.float32(min(clip_norm, LARGEST_CLIP) * safety)


def clip_factors(
    squares: Float32Array, bound: np.float32 | Float32Array
) -> tuple[Float32Array, NDArray[np.bool_] | None]:
    """Return the factor of each record's gradient, and which records must be set to zero (None: none).

    Overwrites `squares`, the squared norms.
    """
    # The dot product is the cheapest test; it may overflow early, then the slow way finds nothing to set to zero.
    broken = None if math.isfinite(squares.dot(squares)) else ~np.isfinite(squares)
    norms = np.sqrt(squares, out=squares)
    np.maximum(norms, bound, out=norms)
    if isinstance(bound, np.ndarray):
        np.maximum(norms, SMALLEST_CLIP, out=norms)
    return np.divide(bound, norms, out=norms), broken


def without(broken: NDArray[np.bool_], rows: Float32Array) -> Float32Array:
    """Return a copy of `rows`, shape (n_rows, width), with the broken records set to zero."""
    return np.where(broken[:, None], np.float32(0), rows)
