"""The linear softmax model: rows -> logits -> clipped gradient sums, in closed form.

With two or three classes a general matrix product wastes most of its width: one matrix-vector product per class is up
to twice as fast, and its result has the shape (n_classes, n_rows) that everything here uses.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array
from fairveil._validation import check_number
from fairveil.errors import InvalidParameterError
from fairveil.models.base import MODEL_KINDS, NONE, Bound, Known, ignore_float_warnings, with_higher_biases
from fairveil.models.clipping import SQUARE_SLACK, clip_bound, clip_factors, squares_by_column, without

FEW_CLASSES = 3
"""Up to so many classes, one matrix-vector product per class is faster than a matrix product."""


def class_scores(weights: Float32Array, rows: Float32Array) -> Float32Array:
    """Return `weights @ rows.T`, (K, B) C-contiguous, for weights (K, d) and rows (B, d)."""
    if len(weights) > FEW_CLASSES:
        return np.ascontiguousarray(weights @ rows.T)
    scores = np.empty((len(weights), len(rows)), dtype=np.result_type(weights, rows))
    for weight, score in zip(weights, scores, strict=True):
        np.matmul(rows, weight, out=score)
    return scores


def class_sums(deltas: Float32Array, rows: Float32Array, out: Float32Array) -> None:
    """Write `deltas @ rows` to `out` (K, d), for deltas (K, B) and rows (B, d)."""
    if len(deltas) > FEW_CLASSES:
        out[...] = deltas @ rows
        return
    for delta, total in zip(deltas, out, strict=True):
        np.matmul(delta, rows, out=total)


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

    @ignore_float_warnings
    def forward(self, params: Float32Array, X: Float32Array) -> tuple[Float32Array, ...]:
        """Return the logits alone, shape (n_classes, n_rows): a linear model has no hidden activations."""
        n_weights = self.n_classes * self.n_features
        scores = class_scores(params[:n_weights].reshape(self.n_classes, self.n_features), X)
        if self.bias:
            scores += params[n_weights:, None]
        return (scores,)

    def logits(self, params: Float32Array, X: Float32Array) -> Float32Array:
        """Return the logits, shape (n_classes, n_rows)."""
        return self.forward(params, X)[0]

    def shifted(self, params: Float32Array, offsets: NDArray[np.floating]) -> Float32Array:
        """Return parameters whose logits are higher by one offset a class, for every row."""
        if not self.bias:
            raise InvalidParameterError("Expected a model with biases to shift, got one without.")
        return with_higher_biases(params, offsets)

    @ignore_float_warnings
    def clipped_gradient(
        self, params: Float32Array, X: Float32Array, dlogits: Float32Array, bound: Bound, known: Known = NONE
    ) -> Float32Array:
        """Return the sum over records of `dlogits_i (x) [x_i, 1]`, each clipped to `bound`."""
        n_weights = self.n_classes * self.n_features
        # The squares of a column of dlogits are added one by one, not in four lanes.
        limit = clip_bound(bound, self.n_features + 4 * self.n_classes)
        if limit is not None:
            factors, broken = clip_factors(self._squares(X, dlogits, known.row_norms), limit)
            dlogits = dlogits * factors
            if broken is not None:
                X, dlogits = without(broken, X), np.where(broken, np.float32(0), dlogits)
        gradient = np.empty(self.n_params, dtype=np.float32)
        class_sums(dlogits, X, gradient[:n_weights].reshape(self.n_classes, self.n_features))
        if self.bias:
            np.add.reduce(dlogits, axis=1, out=gradient[n_weights:])
        return gradient

    @ignore_float_warnings
    def gradient_norms(
        self, params: Float32Array, X: Float32Array, dlogits: Float32Array, known: Known = NONE
    ) -> Float32Array:
        """Return each record's gradient norm, shape (n_rows,); infinity where it is not a finite float32."""
        norms = np.sqrt(self._squares(X, dlogits, known.row_norms))
        return np.where(np.isnan(norms), np.float32(np.inf), norms)

    def _squares(self, X: Float32Array, dlogits: Float32Array, row_norms: Float32Array | None) -> Float32Array:
        """Return the squared norm of each record's gradient: (||x||^2 + 1) ||dlogits||^2."""
        squares = np.einsum("ij,ij->i", X, X) if row_norms is None else row_norms * row_norms
        squares += np.float32(1) if self.bias else SQUARE_SLACK
        deltas = squares_by_column(dlogits)
        deltas += SQUARE_SLACK
        squares *= deltas
        return squares


MODEL_KINDS["linear"] = LinearSoftmax
