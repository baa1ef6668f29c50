"""The linear softmax model, and how the gradients of every layer are clipped.

Each record's gradient is clipped in float32 without ever being computed by itself. The gradient of a dense layer for
one record is an outer product of its input and its delta, so its squared norm is `(||input||^2 + 1) * ||delta||^2` (the
1 is the bias); a record's squared norm is the sum over layers. Why the bound holds in floating point, with u = 2^-24:

* *Rounding.* Summing w squares in four or more lanes errs by at most w/4 u, hence the norm by w/8 u; a dozen
  further roundings come from the square root, the division and the products. Norms are therefore clipped to
  `clip_norm * (1 - (16 + w/8) u)`, about 2e-6 below `clip_norm` for a hundred columns.
* *Underflow.* Squares below 2^-126 may be lost, so `SQUARE_SLACK`, which is larger than all of them together,
  is added: a norm is never under-estimated.
* *Sums.* Coded rows are added up in float64. Of dense rows `sum_products` adds up the products of at most 32 rows in
  float32 and these sums in float64, so that the sum over n rows of one block errs by at most 34 n u clip norms (up to
  256 rows: n + 2 instead of 34), whatever the kernel and the order in which it adds.
* *Overflow, NaN, infinity.* A record whose squared norm is not a finite float32 (norm above 1.8e19) adds
  exactly zero: its rows are set to zero before the product, because zero times infinity is NaN.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil._validation import check_number
from fairveil.data.coded import CodedRows, Features
from fairveil.errors import InvalidParameterError
from fairveil.models.base import MODEL_KINDS, NONE, Bound, Known, ignore_float_warnings, with_higher_biases
from fairveil.models.products import (
    HAS_KERNELS,
    MOST_CLASSES,
    class_products,
    clipped_loss_sum,
    clipped_sum_by_class,
    row_squares,
    sum_by_class,
    sum_products,
)

SQUARE_SLACK = np.float32(1e-30)
"""Added to squared norms; see underflow above."""

SMALLEST_CLIP, LARGEST_CLIP = 1e-18, 1e18
"""Clip norms whose squares are normal numbers of float32."""


def clip_safety(width: int) -> float:
    """Return what clip norms are multiplied by, so that they hold after rounding; see rounding above."""
    return 1.0 - (16.0 + width / 8.0) * 2.0**-24


def check_clip_norm(clip_norm: Bound) -> None:
    """Refuse a clip norm whose square is no normal number of float32."""
    if not isinstance(clip_norm, np.ndarray) and not clip_norm >= SMALLEST_CLIP:
        raise InvalidParameterError(f"Expected clip_norm >= {SMALLEST_CLIP}, got {clip_norm!r}.")


def clip_factors(squares: Float32Array, clip_norm: Bound, width: int) -> tuple[Float32Array, NDArray[np.bool_] | None]:
    """Return the factor of each record's gradient, and which records must be set to zero (None: none).

    `squares` holds the squared norms and is overwritten; `width` is the number of squares in the longest sum. With a
    clip norm per record, one that is NaN or too small for float32 counts as 0: the record adds nothing.
    """
    safety = clip_safety(width)
    check_clip_norm(clip_norm)
    bound: np.float32 | Float32Array
    if isinstance(clip_norm, np.ndarray):
        bounds = np.minimum(clip_norm, LARGEST_CLIP) * safety
        bound = np.where(clip_norm >= SMALLEST_CLIP, bounds, 0.0).astype(np.float32)
    else:
        bound = np.float32(min(clip_norm, LARGEST_CLIP) * safety)
    # The dot product is the cheapest test; it may overflow early, then the slow way finds nothing to set to zero.
    broken = None if math.isfinite(squares.dot(squares)) else ~np.isfinite(squares)
    norms = np.sqrt(squares, out=squares)
    np.maximum(norms, bound, out=norms)
    if isinstance(bound, np.ndarray):
        np.maximum(norms, SMALLEST_CLIP, out=norms)
    return np.divide(bound, norms, out=norms), broken


@dataclass(frozen=True)
class LinearSoftmax:
    """Multinomial logistic regression on a flat vector: class weights (n_classes, n_features), then biases.

    Without `bias`, classes have no intercept and the flat vector holds the weights only.

    Examples
    --------
    >>> model = LinearSoftmax(n_features=3, n_classes=2)
    >>> X = np.ones((5, 3), dtype=np.float32)
    >>> model.logits(np.zeros(model.n_params, dtype=np.float32), X).shape
    (2, 5)
    """

    n_features: int
    n_classes: int = 2
    bias: bool = True
    n_params: int = field(init=False, repr=False, compare=False)
    reads_codes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("n_features", self.n_features, whole=True)
        check_number("n_classes", self.n_classes, whole=True, at_least=2)
        object.__setattr__(self, "n_params", self.n_classes * (self.n_features + bool(self.bias)))

    def pack(self, weights: NDArray[np.floating], biases: NDArray[np.floating] | None = None) -> Float32Array:
        """Return the flat vector that holds these class weights (n_classes, n_features) and biases."""
        parts = [np.ravel(weights)] if biases is None else [np.ravel(weights), np.ravel(biases)]
        params = np.concatenate(parts).astype(np.float32)
        if params.shape != (self.n_params,) or np.shape(weights) != (self.n_classes, self.n_features):
            raise InvalidParameterError(
                f"Expected class weights of shape {(self.n_classes, self.n_features)} and "
                f"{self.n_classes * bool(self.bias)} biases, got {np.shape(weights)} and "
                f"{0 if biases is None else np.size(biases)}."
            )
        return params

    def initial(self, rng: np.random.Generator) -> Float32Array:
        """Return zeros: the problem is convex, the start carries no information."""
        return np.zeros(self.n_params, dtype=np.float32)

    def forward(self, params: Float32Array, X: Features) -> tuple[Float32Array, ...]:
        """Return the logits alone, shape (n_classes, n_rows): a linear model has no hidden activations."""
        n_weights = self.n_classes * self.n_features
        weights = params[:n_weights].reshape(self.n_classes, self.n_features)
        return (class_products(weights, params[n_weights:] if self.bias else None, X),)

    def logits(self, params: Float32Array, X: Features) -> Float32Array:
        """Return the logits, shape (n_classes, n_rows)."""
        return self.forward(params, X)[0]

    def shifted(self, params: Float32Array, offsets: NDArray[np.floating]) -> Float32Array:
        """Return parameters whose logits are higher by one offset a class, for every row."""
        if not self.bias:
            raise InvalidParameterError("Expected a model with biases to shift, got one without.")
        return with_higher_biases(params, offsets)

    def clipped_gradient(
        self, params: Float32Array, X: Features, dlogits: Float32Array, bound: Bound, known: Known = NONE
    ) -> Float64Array:
        """Return the sum over records of `dlogits_i (x) [x_i, 1]`, each clipped to `bound`."""
        # The squares of a column of dlogits are added one by one, not in four lanes.
        width = self.n_features + 4 * self.n_classes
        if isinstance(X, CodedRows) and HAS_KERNELS and self.n_classes <= MOST_CLASSES:
            check_clip_norm(bound)
            return clipped_sum_by_class(dlogits, X, bound, clip_safety(width), self.bias, known.squares)
        return self._clipped_in_numpy(X, dlogits, bound, width, known)

    def clipped_loss_gradient(
        self,
        params: Float32Array,
        X: Features,
        y: NDArray[np.int16],
        bound: Bound,
        squares: Float64Array | None = None,
    ) -> Float64Array | None:
        """Return `clipped_gradient` for the softmax loss of the table's labels, None where that is not compiled."""
        if not (HAS_KERNELS and self.n_classes == 2 and isinstance(X, CodedRows) and params.dtype == np.float32):
            return None
        check_clip_norm(bound)
        return clipped_loss_sum(params, X, y, bound, clip_safety(self.n_features + 8), self.bias, squares)

    @ignore_float_warnings
    def _clipped_in_numpy(
        self, X: Features, dlogits: Float32Array, bound: Bound, width: int, known: Known
    ) -> Float64Array:
        if isinstance(bound, np.ndarray) or bound != math.inf:
            factors, broken = clip_factors(self._squares(X, dlogits, known), bound, width)
            dlogits = dlogits * factors
            if broken is not None:
                zero = np.float32(0)
                dlogits = np.where(broken, zero, dlogits)
                if not isinstance(X, CodedRows):  # coded rows are always finite
                    X = np.where(broken[:, None], zero, X)
        if isinstance(X, CodedRows):
            return sum_by_class(dlogits, X, self.bias)
        n_weights = self.n_classes * self.n_features
        gradient = np.empty(self.n_params)
        sum_products(dlogits, X, gradient[:n_weights].reshape(self.n_classes, self.n_features))
        if self.bias:
            gradient[n_weights:] = np.add.reduce(dlogits, axis=1, dtype=np.float64)
        return gradient

    @ignore_float_warnings
    def gradient_norms(
        self, params: Float32Array, X: Features, dlogits: Float32Array, known: Known = NONE
    ) -> Float32Array:
        """Return each record's gradient norm, shape (n_rows,); infinity where it is not a finite float32."""
        norms = np.sqrt(self._squares(X, dlogits, known))
        return np.where(np.isnan(norms), np.float32(np.inf), norms)

    def _squares(self, X: Features, dlogits: Float32Array, known: Known) -> Float32Array:
        """Return the squared norm of each record's gradient: (||x||^2 + 1) ||dlogits||^2."""
        squares = row_squares(X, known)
        squares += np.float32(1) if self.bias else SQUARE_SLACK
        deltas = np.add.reduce(dlogits * dlogits, axis=0)
        deltas += SQUARE_SLACK
        squares *= deltas
        return squares


MODEL_KINDS["linear"] = LinearSoftmax
