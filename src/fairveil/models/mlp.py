"""The multi-layer perceptron: rows -> logits -> clipped gradient sums, in closed form at any depth."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array
from fairveil._validation import check_choice, check_integer
from fairveil.models.base import ignore_float_warnings, model_kind, with_higher_biases
from fairveil.models.clipping import (
    FLOOR,
    blank,
    clip_bound,
    clip_factors,
    squares_by_column,
    squares_by_row,
)
from fairveil.models.linear import class_scores, class_sums

Layer = tuple[Float32Array, Float32Array]


@model_kind("mlp")
@dataclass(frozen=True)
class Perceptron:
    """Dense layers with ReLU or tanh between them, on one flat vector.

    The flat vector holds, for each hidden layer in turn, weights (n_in, n_out) then biases (n_out), and last
    the class weights (n_classes, n_in) then class biases.

    Parameters
    ----------
    n_features : int
        Columns of a row, public.
    hidden : tuple of int
        Widths of the hidden layers, first to last.
    n_classes : int
        Number of classes, public.
    activation : {"relu", "tanh"}
        What stands between the layers.

    Examples
    --------
    >>> model = Perceptron(n_features=100, hidden=(64, 64))
    >>> model.n_params
    10754
    """

    n_features: int
    hidden: tuple[int, ...] = (64, 64)
    n_classes: int = 2
    activation: str = "relu"

    def __post_init__(self) -> None:
        check_integer("n_features", self.n_features)
        check_integer("n_classes", self.n_classes, at_least=2)
        object.__setattr__(self, "hidden", tuple(check_integer("hidden", width) for width in self.hidden))
        check_choice("activation", self.activation, ("relu", "tanh"))

    @cached_property
    def n_params(self) -> int:
        """Length of the flat parameter vector."""
        return sum(rows * columns + n_out for rows, columns, n_out in self._shapes)

    def initial(self, rng: np.random.Generator) -> Float32Array:
        """Return hidden weights drawn by He's rule before a ReLU and Glorot's before tanh; all else is zero.

        With a last layer of zeros all logits start at exactly 0: before any noise is added, no rounding of a product
        can decide how a row is decided.
        """
        params = np.zeros(self.n_params, dtype=np.float32)
        for weights, _ in self.layers(params)[:-1]:
            spread = 2.0 / weights.shape[0] if self.activation == "relu" else 2.0 / sum(weights.shape)
            weights[...] = np.sqrt(spread) * rng.standard_normal(weights.shape)
        return params

    @ignore_float_warnings
    def forward(self, params: Float32Array, X: Float32Array) -> tuple[Float32Array, ...]:
        """Return the hidden activations (B, width) in order, then the logits (n_classes, B)."""
        *inner, (class_weights, class_biases) = self.layers(params)
        activations = []
        rows = X
        for weights, biases in inner:
            rows = self._activate(rows @ weights, biases)
            activations.append(rows)
        scores = class_scores(class_weights, rows)
        scores += class_biases[:, None]
        return (*activations, scores)

    def logits(self, params: Float32Array, X: Float32Array) -> Float32Array:
        """Return the logits, class-major (n_classes, B)."""
        return self.forward(params, X)[-1]

    def shifted(self, params: Float32Array, offsets: NDArray[np.floating]) -> Float32Array:
        """Return parameters whose logits are higher by one offset a class, for every row."""
        return with_higher_biases(params, offsets)

    @ignore_float_warnings
    def clipped_gradient(
        self,
        params: Float32Array,
        X: Float32Array,
        dlogits: Float32Array,
        clip_norm: float | Float32Array,
        *,
        activations: tuple[Float32Array, ...] | None = None,
        row_norms: Float32Array | None = None,
    ) -> Float32Array:
        """Return the sum over records of back-propagated `dlogits_i`, clipped over all layers at once."""
        inputs, deltas = self._backward(params, X, dlogits, activations)
        bound = clip_bound(clip_norm, self._width)
        if bound is not None:
            factors, broken = clip_factors(self._squares(inputs, deltas, row_norms), bound)
            deltas = _scaled(deltas, factors)
            if broken is not None:
                inputs = [blank(broken, rows) for rows in inputs]
                deltas = [*(blank(broken, d) for d in deltas[:-1]), blank(broken, deltas[-1].T).T]
        return self._gradient(inputs, deltas)

    @ignore_float_warnings
    def gradient_norms(
        self,
        params: Float32Array,
        X: Float32Array,
        dlogits: Float32Array,
        *,
        activations: tuple[Float32Array, ...] | None = None,
        row_norms: Float32Array | None = None,
    ) -> Float32Array:
        """Return each record's gradient norm over all layers (B,); infinity where not a finite float32."""
        norms = np.sqrt(self._squares(*self._backward(params, X, dlogits, activations), row_norms))
        return np.where(np.isnan(norms), np.float32(np.inf), norms)

    @cached_property
    def _shapes(self) -> tuple[tuple[int, int, int], ...]:
        sizes = (self.n_features, *self.hidden)
        inner = tuple((n_in, n_out, n_out) for n_in, n_out in pairwise(sizes))
        return (*inner, (self.n_classes, sizes[-1], self.n_classes))

    @cached_property
    def _width(self) -> int:
        # The squares of the class-major deltas are added one by one, not in four lanes.
        inner, (_, n_in, _) = self._shapes[:-1], self._shapes[-1]
        widths = [n_in + n_out for n_in, n_out, _ in inner]
        return max([*widths, n_in + 4 * self.n_classes]) + 4 * len(self._shapes)

    def layers(self, params: Float32Array) -> list[Layer]:
        """Return weights and biases of each layer; weights are (inputs, outputs), of classes (classes, inputs)."""
        layers = []
        start = 0
        for rows, columns, n_out in self._shapes:
            middle = start + rows * columns
            layers.append((params[start:middle].reshape(rows, columns), params[middle : middle + n_out]))
            start = middle + n_out
        return layers

    def _activate(self, rows: Float32Array, biases: Float32Array) -> Float32Array:
        rows += biases
        if self.activation == "tanh":
            return np.tanh(rows, out=rows)
        # A vector of zeros takes the vectorised loop, which a scalar zero does not.
        return np.maximum(rows, np.zeros_like(biases), out=rows)

    def _through(self, delta: Float32Array, rows: Float32Array) -> Float32Array:
        """Multiply `delta` in place with the derivative of the activation, read off its output."""
        if self.activation == "relu":
            # Seen as small integers, the mask takes the faster of two casting loops.
            return np.multiply(delta, (rows > 0).view(np.int8), out=delta)
        slope = np.square(rows)
        np.subtract(1, slope, out=slope)
        return np.multiply(delta, slope, out=delta)

    def _backward(
        self,
        params: Float32Array,
        X: Float32Array,
        dlogits: Float32Array,
        activations: tuple[Float32Array, ...] | None,
    ) -> tuple[list[Float32Array], list[Float32Array]]:
        """Return each layer's inputs and deltas, in order; the last deltas are `dlogits`, class-major."""
        inner = (activations or self.forward(params, X))[:-1]
        layers = self.layers(params)
        deltas = [dlogits]
        for index in range(len(inner) - 1, -1, -1):
            above = layers[index + 1][0]
            is_top = index == len(inner) - 1
            delta = dlogits.T @ above if is_top else deltas[0] @ above.T
            deltas.insert(0, self._through(delta, inner[index]))
        return [X, *inner], deltas

    def _squares(
        self, inputs: list[Float32Array], deltas: list[Float32Array], row_norms: Float32Array | None
    ) -> Float32Array:
        first = squares_by_row(inputs[0]) if row_norms is None else row_norms * row_norms
        by_input = [first, *(squares_by_row(rows) for rows in inputs[1:])]
        by_delta = [*(squares_by_row(delta) for delta in deltas[:-1]), squares_by_column(deltas[-1])]
        total = np.zeros_like(first)
        for squares, pulls in zip(by_input, by_delta, strict=True):
            total += (squares + 1.0) * (pulls + FLOOR)
        return total

    def _gradient(self, inputs: list[Float32Array], deltas: list[Float32Array]) -> Float32Array:
        gradient = np.empty(self.n_params, dtype=np.float32)
        *inner, (class_weights, class_biases) = self.layers(gradient)
        ones = np.ones(len(inputs[0]), dtype=np.float32)
        for (weights, biases), rows, delta in zip(inner, inputs, deltas, strict=False):
            np.matmul(rows.T, delta, out=weights)
            np.matmul(ones, delta, out=biases)
        class_sums(deltas[-1], inputs[-1], class_weights)
        np.add.reduce(deltas[-1], axis=1, out=class_biases)
        return gradient


def _scaled(deltas: list[Float32Array], factors: Float32Array) -> list[Float32Array]:
    """Return the deltas times each record's factor: hidden ones in place, the class-major last as a copy."""
    column = factors[:, None]
    return [*(np.multiply(delta, column, out=delta) for delta in deltas[:-1]), deltas[-1] * factors]
