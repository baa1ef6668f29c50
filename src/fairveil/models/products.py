"""Products of rows with weights, and sums over rows: dense rows by matrix products, coded rows weight by weight.

Coded rows (`data/coded.py`) are computed by `_kernels.c` where it could be compiled, otherwise by NumPy; both give the
same numbers up to the order of a sum. Either way every row is computed by itself, in the order of its columns: its
results depend on no other row, to the last bit. Sums over rows are added up in double precision.

Dense rows go through matrix products, which round a row by its position in the block. In a sum, products of at most 32
rows are added up in single precision and these sums in double precision (docs/proofs/veil.md has the argument).
"""

import math
import os
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fairveil._typing import Float32Array, Float64Array
from fairveil.data.coded import CodedRows, Features
from fairveil.errors import InvalidParameterError
from fairveil.models.base import Known, ignore_float_warnings

HAS_KERNELS = find_spec("fairveil._kernels") is not None and not os.environ.get("FAIRVEIL_NO_KERNELS")
"""Whether a compiler was there when fairveil was installed, and its results are wanted."""

if HAS_KERNELS:
    from fairveil import _kernels
else:
    _kernels: Any = None  # type: ignore[no-redef]

FEW_CLASSES = 3
"""Up to so many classes, one matrix-vector product per class is faster than a matrix product."""

SUM_ROWS, FEW_ROWS = 32, 256
"""Products of so many rows are added up in float32; a block of few rows in all is added up at once."""

ROWS_AT_ONCE = 65_536
"""Rows whose features are listed at once, to keep lists small."""

MOST_CLASSES = 16
"""The compiled functions take up to so many classes."""


def _arguments(X: CodedRows) -> tuple[Any, Any, Any, Any, Any]:
    """Return what the compiled functions read of coded rows."""
    layout = X.layout
    return X.codes, X.index, layout.facts, X.numbers if len(layout.scaled) else None, layout.scaled_places


def squared_norms(X: Features, squares: Float64Array | None = None) -> Float32Array:
    """Return the squared norm of each row, shape (n_rows,); of coded rows, feature j may count `squares[j]` times."""
    if not isinstance(X, CodedRows):
        if squares is not None:
            raise InvalidParameterError("Expected the norms of dense rows, got how often their features count.")
        return np.einsum("ij,ij->i", X, X)
    if squares is None:
        return X.squared_norms()
    own = np.square(X.gathered().numbers, dtype=np.float64) @ squares[X.layout.scaled_places]
    return (own + np.append(squares, 0.0).take(X.places()).sum(axis=1)).astype(np.float32)


def row_squares(X: Features, known: Known) -> Float32Array:
    """Return the squared norm of each row in an array of its own: from norms that are known, or from the rows."""
    return squared_norms(X, known.squares) if known.row_norms is None else known.row_norms * known.row_norms


def level_counts(X: CodedRows) -> NDArray[np.int64]:
    """Return how many rows have each level, shape (n_features,); a row is counted once for each column of codes."""
    counts = np.zeros(X.layout.n_features, dtype=np.int64)
    if HAS_KERNELS:
        _kernels.level_counts(*_arguments(X), counts)
        return counts
    for start in range(0, len(X), ROWS_AT_ONCE):
        places = X[start : start + ROWS_AT_ONCE].places()
        counts += np.bincount(places.ravel(), minlength=len(counts) + 1)[:-1]
    return counts


# --- few outputs: the classes of a linear model ----------------------------------------------------------------------


def class_products(weights: NDArray[np.floating], biases: NDArray[np.floating] | None, X: Features) -> NDArray:
    """Return `weights @ X.T + biases`, shape (n_classes, n_rows), in the type of the weights and dense rows."""
    if isinstance(X, CodedRows) and HAS_KERNELS and len(weights) <= MOST_CLASSES:
        out = np.empty((len(weights), len(X)), dtype=weights.dtype)
        _kernels.class_sums(*_arguments(X), np.ascontiguousarray(weights), biases, out)
        return out
    return _class_products_in_numpy(weights, biases, X)


@ignore_float_warnings
def _class_products_in_numpy(
    weights: NDArray[np.floating], biases: NDArray[np.floating] | None, X: Features
) -> NDArray:
    if isinstance(X, CodedRows):
        out = np.empty((len(weights), len(X)), dtype=weights.dtype)
        padded = np.column_stack([weights, np.zeros(len(weights), weights.dtype)]).astype(np.float64)
        places, numbers = X.places().T, X.gathered().numbers.T
        for k, own in enumerate(padded):
            total = np.full(len(X), 0.0 if biases is None else biases[k])
            for column in places:
                total += own.take(column)
            for place, column in zip(X.layout.scaled, numbers, strict=True):
                total += own[place] * column
            out[k] = total
        return out
    scores = np.empty((len(weights), len(X)), dtype=np.result_type(weights, X))
    multiply_by_class(weights, X.T, scores)
    if biases is not None:
        scores += biases[:, None]
    return scores


def multiply_by_class(left: NDArray, right: NDArray, out: NDArray) -> None:
    """Write `left @ right` to `out`, C-contiguous; `left` has a row for each class."""
    if len(left) > FEW_CLASSES:
        np.matmul(left, right, out=out)
    else:
        for row, product in zip(left, out, strict=True):
            np.matmul(row, right, out=product)


def sum_by_class(pulls: NDArray[np.floating], X: CodedRows, has_bias: bool) -> Float64Array:
    """Return the flat sum over coded rows of `pulls_i (x) [x_i, 1]`, or of `pulls_i (x) x_i` without a bias."""
    width = len(pulls) * X.layout.n_features
    gradient = np.zeros(width + len(pulls) * has_bias)
    sums = gradient[:width].reshape(len(pulls), -1)
    for start in range(0, len(X), ROWS_AT_ONCE):
        part, own_pulls = X[start : start + ROWS_AT_ONCE], pulls[:, start : start + ROWS_AT_ONCE].astype(np.float64)
        places, numbers = part.places(), part.gathered().numbers
        for k, pull in enumerate(own_pulls):
            each = np.repeat(pull, places.shape[1])
            sums[k] += np.bincount(places.ravel(), each, X.layout.n_features + 1)[:-1]
            sums[k, X.layout.scaled_places] += pull @ numbers
    if has_bias:
        gradient[width:] = np.add.reduce(pulls, axis=1, dtype=np.float64)
    return gradient


def clipped_sum_by_class(
    pulls: Float32Array,
    X: CodedRows,
    bound: float | Float32Array,
    safety: float,
    has_bias: bool,
    squares: Float64Array | None = None,
) -> Float64Array:
    """Return `sum_by_class` of pulls scaled to gradients of norm at most `safety * bound`; infinity clips nothing.

    In the norm, feature j counts `squares[j]` times. Compiled only: a row whose norm is not finite adds nothing.
    """
    gradient = np.empty(len(pulls) * (X.layout.n_features + has_bias))
    is_clipped = isinstance(bound, np.ndarray) or bound != math.inf
    limit = float(bound) if not isinstance(bound, np.ndarray) else bound.astype(np.float32, copy=False)
    n_features, pulls = X.layout.n_features, np.ascontiguousarray(pulls)
    _kernels.clipped_sums(*_arguments(X), n_features, pulls, is_clipped, limit, safety, squares, has_bias, gradient)
    return gradient


def clipped_loss_sum(
    params: Float32Array,
    X: CodedRows,
    y: NDArray[np.int16],
    bound: float | Float32Array,
    safety: float,
    has_bias: bool,
    squares: Float64Array | None = None,
) -> Float64Array:
    """Return what `clipped_sum_by_class` returns for the softmax loss of two classes, in one pass over the rows.

    `y` has a label for each row of the table that `X` holds rows of.
    """
    gradient = np.empty(len(params))
    is_clipped = isinstance(bound, np.ndarray) or bound != math.inf
    limit = float(bound) if not isinstance(bound, np.ndarray) else bound.astype(np.float32, copy=False)
    _kernels.clipped_loss_sums(*_arguments(X), params, y, is_clipped, limit, safety, squares, has_bias, gradient)
    return gradient


# --- many outputs: the first layer of a network --------------------------------------------------------------------


def hidden_products(X: Features, weights: NDArray[np.floating], biases: NDArray[np.floating]) -> NDArray:
    """Return `X @ weights + biases`, shape (n_rows, n_outputs)."""
    if isinstance(X, CodedRows):
        out = np.empty((len(X), weights.shape[1]), dtype=weights.dtype)
        if HAS_KERNELS:
            _kernels.hidden_sums(*_arguments(X), np.ascontiguousarray(weights), np.ascontiguousarray(biases), out)
            return out
        padded = np.concatenate([weights, np.zeros((1, weights.shape[1]), weights.dtype)])
        out[:] = biases
        for column in X.places().T:
            out += padded.take(column, axis=0)
        for place, column in zip(X.layout.scaled, X.gathered().numbers.T, strict=True):
            out += column[:, None].astype(weights.dtype) * weights[place]
        return out
    rows = X @ weights
    rows += biases
    return rows


def sum_outer(X: Features, deltas: Float32Array, out: Float64Array) -> None:
    """Write the sum over rows of `x_i (x) deltas_i` to `out`, shape (n_features, n_outputs)."""
    if not isinstance(X, CodedRows):
        sum_products(X.T, deltas, out)
        return
    if HAS_KERNELS:
        out[:] = 0.0
        _kernels.outer_sums(*_arguments(X), np.ascontiguousarray(deltas), out)
        return
    places, wide = X.places(), deltas.astype(np.float64)
    starts = np.arange(0, places.size + 1, places.shape[1])
    ones = sparse.csr_array((np.ones(places.size), places.ravel(), starts), (len(places), X.layout.n_features + 1))
    out[:] = (ones.T @ wide)[:-1]
    out[X.layout.scaled_places] += X.gathered().numbers.T.astype(np.float64) @ wide


# --- whole networks, compiled ---------------------------------------------------------------------------------------


MOST_LAYERS = 15
"""The compiled functions take up to so many hidden layers."""


def is_compiled(X: Features, params: NDArray[Any], sizes: tuple[int, ...]) -> bool:
    """Say whether `network_units` and `clipped_network_sum` can be used: `sizes` holds features, units and classes."""
    fits = HAS_KERNELS and 3 <= len(sizes) <= MOST_LAYERS + 2 and sizes[-1] <= MOST_CLASSES
    return fits and isinstance(X, CodedRows) and params.dtype == np.float32


def network_units(X: CodedRows, params: Float32Array, sizes: tuple[int, ...]) -> tuple[Float32Array, ...]:
    """Return the units of each hidden layer with ReLU, shape (n_rows, n_units), and the logits (n_classes, n_rows)."""
    units = tuple(np.empty((len(X), size), dtype=np.float32) for size in sizes[1:-1])
    logits = np.empty((sizes[-1], len(X)), dtype=np.float32)
    _kernels.network_forward(*_arguments(X), sizes, np.ascontiguousarray(params), units, logits)
    return (*units, logits)


def clipped_network_sum(
    X: CodedRows,
    params: Float32Array,
    sizes: tuple[int, ...],
    units: tuple[Float32Array, ...],
    pulls: Float32Array,
    bound: float | Float32Array,
    safety: float,
    squares: Float64Array | None = None,
) -> Float64Array:
    """Return the sum over rows of the gradients of a ReLU network, each clipped to norm `safety * bound` at most.

    In the norm of a row, feature j counts `squares[j]` times. `units` are those of `network_units`, `pulls` the
    derivatives by the logits. Infinity clips nothing; a row whose norm is not finite adds nothing.
    """
    gradient = np.empty(len(params))
    is_clipped = isinstance(bound, np.ndarray) or bound != math.inf
    limit = float(bound) if not isinstance(bound, np.ndarray) else bound.astype(np.float32, copy=False)
    params, pulls, units = np.ascontiguousarray(params), np.ascontiguousarray(pulls), tuple(units)
    arguments = (sizes, params, tuple(map(np.ascontiguousarray, units)), pulls)
    _kernels.network_sums(*_arguments(X), *arguments, is_clipped, limit, safety, squares, gradient)
    return gradient


def sum_products(left: Float32Array, right: Float32Array, out: NDArray[np.floating]) -> None:
    """Write `left @ right`, a sum over rows, to `out`; `left` is (width, n_rows), `right` is (n_rows, width)."""
    n_rows = len(right)
    if n_rows <= FEW_ROWS:
        sums = np.empty(out.shape, dtype=np.result_type(left, right))
        multiply_by_class(left, right, sums)
        out[...] = sums
        return
    whole = n_rows - n_rows % SUM_ROWS
    chunks = left[:, :whole].reshape(len(left), -1, SUM_ROWS).transpose(1, 0, 2)
    sums = np.matmul(chunks, right[:whole].reshape(-1, SUM_ROWS, right.shape[1]))
    out[...] = np.add.reduce(sums, axis=0, dtype=np.float64) + left[:, whole:] @ right[whole:]
