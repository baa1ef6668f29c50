"""The multi-layer perceptron: rows -> logits -> clipped gradient sums, in closed form at any depth."""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil._validation import check_choice, check_number
from fairveil.data.coded import CodedRows, Features
from fairveil.models.base import MODEL_KINDS, NONE, Bound, Known, ignore_float_warnings, with_higher_biases
from fairveil.models.linear import SQUARE_SLACK, check_clip_norm, clip_factors, clip_safety
from fairveil.models.products import (
    class_products,
    clipped_network_sum,
    hidden_products,
    is_compiled,
    network_units,
    row_squares,
    sum_by_class,
    sum_outer,
    sum_products,
)

Layer = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Perceptron:
    """Dense layers with ReLU or tanh between them, on one flat vector.

    The flat vector holds, for each hidden layer in turn, weights (n_in, n_out) then biases (n_out), and last
    the class weights (n_classes, n_in) then class biases.

    `hidden` holds the widths of the hidden layers, first to last; `activation` ("relu" or "tanh") follows each.

    Examples
    --------
    >>> Perceptron(n_features=100, hidden=(64, 64)).n_params
    10754
    """

    n_features: int
    hidden: tuple[int, ...] = (64, 64)
    n_classes: int = 2
    activation: str = "relu"
    n_params: int = field(init=False, repr=False, compare=False)
    _shapes: tuple[tuple[int, int, int], ...] = field(init=False, repr=False, compare=False)
    _sizes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    reads_codes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("n_features", self.n_features, whole=True)
        check_number("n_classes", self.n_classes, whole=True, at_least=2)
        object.__setattr__(self, "hidden", tuple(check_number("hidden", width, whole=True) for width in self.hidden))
        check_choice("activation", self.activation, ("relu", "tanh"))
        sizes = (self.n_features, *self.hidden)
        object.__setattr__(self, "_sizes", (*sizes, self.n_classes))
        inner = tuple((n_in, n_out, n_out) for n_in, n_out in pairwise(sizes))
        shapes = (*inner, (self.n_classes, sizes[-1], self.n_classes))
        object.__setattr__(self, "_shapes", shapes)
        object.__setattr__(self, "n_params", sum(n_in * n_out + n_biases for n_in, n_out, n_biases in shapes))

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
    def forward(self, params: Float32Array, X: Features) -> tuple[Float32Array, ...]:
        """Return the hidden activations (n_rows, width) in order, then the logits (n_classes, n_rows)."""
        if self.activation == "relu" and isinstance(X, CodedRows) and is_compiled(X, params, self._sizes):
            return network_units(X, params, self._sizes)
        *inner, (class_weights, class_biases) = self.layers(params)
        activations: list[Float32Array] = []
        rows: Any = X
        for weights, biases in inner:
            rows = hidden_products(rows, weights, biases)
            if self.activation == "tanh":
                np.tanh(rows, out=rows)
            else:
                # A vector of zeros takes the vectorized loop, which a scalar zero does not.
                np.maximum(rows, np.zeros_like(biases), out=rows)
            activations.append(rows)
        return (*activations, class_products(class_weights, class_biases, rows))

    def logits(self, params: Float32Array, X: Features) -> Float32Array:
        """Return the logits, class-major (n_classes, B)."""
        return self.forward(params, X)[-1]

    def shifted(self, params: Float32Array, offsets: NDArray[np.floating]) -> Float32Array:
        """Return parameters whose logits are higher by one offset a class, for every row."""
        return with_higher_biases(params, offsets)

    @ignore_float_warnings
    def clipped_gradient(
        self, params: Float32Array, X: Features, dlogits: Float32Array, bound: Bound, known: Known = NONE
    ) -> Float64Array:
        """Return the sum over records of back-propagated `dlogits_i`, clipped over all layers at once."""
        # The squares of a column of dlogits are added one by one, not in four lanes.
        widths = [n_in + n_out for n_in, n_out, _ in self._shapes[:-1]]
        width = max([*widths, self._shapes[-1][1] + 4 * self.n_classes]) + 4 * len(self._shapes)
        if self.activation == "relu" and isinstance(X, CodedRows) and is_compiled(X, params, self._sizes):
            check_clip_norm(bound)
            units, safety = (known.activations or self.forward(params, X))[:-1], clip_safety(width)
            return clipped_network_sum(X, params, self._sizes, units, dlogits, bound, safety, known.squares)
        inputs, deltas = self._backward(params, X, dlogits, known)
        if isinstance(bound, np.ndarray) or bound != math.inf:
            factors, broken = clip_factors(self._squares(inputs, deltas, known), bound, width)
            for hidden in deltas[:-1]:
                np.multiply(hidden, factors[:, None], out=hidden)
            deltas[-1] = deltas[-1] * factors  # a copy: the caller's own
            if broken is not None:
                zero, is_row = np.float32(0), broken[:, None]
                # coded rows are always finite
                inputs = [rows if isinstance(rows, CodedRows) else np.where(is_row, zero, rows) for rows in inputs]
                deltas = [*(np.where(is_row, zero, d) for d in deltas[:-1]), np.where(broken, zero, deltas[-1])]
        gradient = np.empty(self.n_params)
        *inner, (class_weights, class_biases) = self.layers(gradient)
        for (weights, biases), rows, delta in zip(inner, inputs, deltas, strict=False):
            sum_outer(rows, delta, weights)
            biases[...] = np.add.reduce(delta, axis=0, dtype=np.float64)
        if isinstance(inputs[-1], CodedRows):  # no hidden layer
            class_weights[:] = sum_by_class(deltas[-1], inputs[-1], False).reshape(class_weights.shape)
        else:
            sum_products(deltas[-1], inputs[-1], class_weights)
        class_biases[...] = np.add.reduce(deltas[-1], axis=1, dtype=np.float64)
        return gradient

    @ignore_float_warnings
    def gradient_norms(
        self, params: Float32Array, X: Features, dlogits: Float32Array, known: Known = NONE
    ) -> Float32Array:
        """Return each record's gradient norm over all layers, shape (n_rows,); infinity where not finite."""
        norms = np.sqrt(self._squares(*self._backward(params, X, dlogits, known), known))
        return np.where(np.isnan(norms), np.float32(np.inf), norms)

    def layers(self, params: NDArray[Any]) -> list[Layer]:
        """Return weights and biases of each layer; weights are (inputs, outputs), of classes (classes, inputs)."""
        layers = []
        start = 0
        for rows, columns, n_out in self._shapes:
            middle = start + rows * columns
            layers.append((params[start:middle].reshape(rows, columns), params[middle : middle + n_out]))
            start = middle + n_out
        return layers

    def _backward(
        self, params: Float32Array, X: Features, dlogits: Float32Array, known: Known
    ) -> tuple[list[Any], list[Float32Array]]:
        """Return each layer's inputs and deltas, in order; the last deltas are `dlogits`, (n_classes, n_rows)."""
        inner = (known.activations or self.forward(params, X))[:-1]
        layers, deltas = self.layers(params), [dlogits]
        for index in range(len(inner) - 1, -1, -1):
            above, rows = layers[index + 1][0], inner[index]
            delta = dlogits.T @ above if index == len(inner) - 1 else deltas[0] @ above.T
            if self.activation == "relu":
                # Seen as small integers, the mask takes the faster of two casting loops.
                np.multiply(delta, (rows > 0).view(np.int8), out=delta)
            else:
                slope = np.square(rows)
                np.multiply(delta, np.subtract(1, slope, out=slope), out=delta)
            deltas.insert(0, delta)
        return [X, *inner], deltas

    def _squares(self, inputs: list[Any], deltas: list[Float32Array], known: Known) -> Float32Array:
        """Return the squared norm of each record's gradient: the sum over layers of (||input||^2 + 1) ||delta||^2."""
        first = row_squares(inputs[0], known)
        by_input = [first, *(np.einsum("ij,ij->i", rows, rows) for rows in inputs[1:])]
        by_delta = [*(np.einsum("ij,ij->i", d, d) for d in deltas[:-1]), np.add.reduce(deltas[-1] * deltas[-1], axis=0)]
        total = np.zeros_like(first)
        for squares, pulls in zip(by_input, by_delta, strict=True):
            total += (squares + 1.0) * (pulls + SQUARE_SLACK)
        return total


MODEL_KINDS["mlp"] = Perceptron
