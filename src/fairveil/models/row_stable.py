"""Outputs of models whose bits depend on their own row alone: for a model that is known before the rows are chosen.

A matrix product rounds a row by where it stands in the table. While parameters carry fresh noise nobody can aim a row
at an edge of the rounding; at a released model one can, and one row more would then tip the decisions of others, or the
slopes of their hidden units. Here sums are made term by term: each number is multiplied and added by itself, whatever
its place.
"""

from collections import deque
from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil.data.coded import CodedRows, Features, dense
from fairveil.models.base import Model, PrefittedProbabilities, ignore_float_warnings
from fairveil.models.decoupled import Decoupled
from fairveil.models.linear import LinearSoftmax
from fairveil.models.mlp import Perceptron
from fairveil.models.products import class_products, hidden_products
from fairveil.models.torch_module import TorchModel

CHUNK = 8192
"""Rows at a time, to keep copies small; no answer depends on it."""


def row_stable_product(weights: NDArray[Any], columns: NDArray[Any]) -> Float64Array:
    """Return `weights @ columns`, (K, B) in double precision; no column depends on the others.

    Examples
    --------
    >>> row_stable_product(np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    total = np.zeros((len(weights), columns.shape[1]))
    term = np.empty_like(total)
    for weight, column in zip(weights.T.astype(np.float64), columns, strict=True):
        np.multiply(weight[:, None], column, out=term)
        total += term
    return total


@ignore_float_warnings
def row_stable_logits(model: Model, params: Float32Array, X: Features) -> Float64Array:
    """Return the logits (n_classes, B) in double precision, each column from its own row alone."""
    chunks = [X[start : start + CHUNK] for start in range(0, len(X), CHUNK)] or [X]
    return np.concatenate([row_stable_answer(model, params, chunk) for chunk in chunks], axis=1)


@singledispatch
def row_stable_answer(model: Any, params: Float32Array, X: Features) -> Float64Array:
    """Return the logits by kind of model; any other kind computes each row in a table of its own."""
    rows = [model.logits(params, X[place : place + 1]) for place in range(len(X))]
    return np.concatenate(rows, axis=1) if rows else model.logits(params, X)


@row_stable_answer.register
def _(model: LinearSoftmax, params: Float32Array, X: Features) -> Float64Array:
    n_weights = model.n_classes * model.n_features
    weights = params[:n_weights].reshape(model.n_classes, -1)
    if isinstance(X, CodedRows):
        wide = params.astype(np.float64)[n_weights:] if model.bias else None
        return class_products(weights.astype(np.float64), wide, X)
    total = row_stable_product(weights, np.ascontiguousarray(X.T, dtype=np.float64))
    return total + params[n_weights:, None] if model.bias else total


@row_stable_answer.register
def _(model: Perceptron, params: Float32Array, X: Features) -> Float64Array:
    class_weights, class_biases = model.layers(params)[-1]
    return row_stable_product(class_weights, _inputs(model, params, X)) + class_biases[:, None]


@row_stable_answer.register
def _(model: Decoupled, params: Float32Array, X: Features) -> Float64Array:
    rows, members = model.members(X)
    copies = np.array([row_stable_answer(model.base, copy, rows) for copy in params.reshape(model.n_groups, -1)])
    own = np.mean(copies, axis=0)
    for logits, is_member in zip(copies, members, strict=True):
        np.copyto(own, logits, where=is_member)
    return own


@row_stable_answer.register
def _(model: TorchModel, params: Float32Array, X: Features) -> Float64Array:
    return model.forward_alone(params.astype(np.float64), X)[-1].astype(np.float64)


@row_stable_answer.register
def _(model: PrefittedProbabilities, params: Float32Array, X: Features) -> Float64Array:
    return model.logits(params, dense(X).astype(np.float64)).astype(np.float64)


@ignore_float_warnings
def row_stable_forward(model: Model, params: Float32Array, X: Features) -> tuple[Float32Array, ...]:
    """Return what `model.forward` returns, each row's activations and logits from that row alone.

    So which side of its edge a hidden unit is on, and with it the slope of a gradient, depends on no other row.
    """
    chunks = [X[start : start + CHUNK] for start in range(0, len(X), CHUNK)] or [X]
    *hidden, logits = zip(*(row_stable_activations(model, params, chunk) for chunk in chunks), strict=True)
    return (*map(np.concatenate, hidden), np.concatenate(logits, axis=1))


@singledispatch
def row_stable_activations(model: Any, params: Float32Array, X: Features) -> tuple[Float32Array, ...]:
    """Return hidden activations and logits by kind of model; any other kind computes each row in a table of its own."""
    rows = [model.forward(params, X[place : place + 1]) for place in range(len(X))] or [model.forward(params, X)]
    *hidden, logits = zip(*rows, strict=True)
    return (*map(np.concatenate, hidden), np.concatenate(logits, axis=1))


@row_stable_activations.register
def _(model: LinearSoftmax, params: Float32Array, X: Features) -> tuple[Float32Array, ...]:
    return (row_stable_answer(model, params, X).astype(np.float32),)


@row_stable_activations.register
def _(model: Perceptron, params: Float32Array, X: Features) -> tuple[Float32Array, ...]:
    layers = list(_layers(model, params, X))
    class_weights, class_biases = model.layers(params)[-1]
    logits = row_stable_product(class_weights, layers[-1]) + class_biases[:, None]
    return (*(np.ascontiguousarray(layer.T, dtype=np.float32) for layer in layers[1:]), logits.astype(np.float32))


@row_stable_activations.register
def _(model: TorchModel, params: Float32Array, X: Features) -> tuple[Float32Array, ...]:
    # the empty array asks `clipped_gradient` to differentiate row by row as well
    return (np.empty((len(X), 0), dtype=np.float32), *model.forward_alone(params, X))


@ignore_float_warnings
def row_stable_inputs(
    model: LinearSoftmax | Perceptron | TorchModel, params: Float32Array, X: Features
) -> Float64Array:
    """Return what the last layer reads, (inputs, B) in double precision, each column from its own row alone.

    Where the layer has biases, the last input is the constant 1 that they belong to.
    """
    chunks = [X[start : start + CHUNK] for start in range(0, len(X), CHUNK)] or [X]
    inputs = np.concatenate([_inputs(model, params, chunk) for chunk in chunks], axis=1)
    if isinstance(model, LinearSoftmax) and not model.bias:
        return inputs
    return np.concatenate([inputs, np.ones((1, inputs.shape[1]))])


def _inputs(model: LinearSoftmax | Perceptron | TorchModel, params: Float32Array, X: Features) -> Float64Array:
    if isinstance(model, TorchModel):
        return model.forward_alone(params.astype(np.float64), X)[0].T.astype(np.float64)
    return deque(_layers(model, params, X), maxlen=1)[0]


def _layers(model: LinearSoftmax | Perceptron, params: Float32Array, X: Features) -> Iterator[Float64Array]:
    """Yield the features and each hidden layer, shape (width, B), in double precision."""
    layers = [] if isinstance(model, LinearSoftmax) else model.layers(params)[:-1]
    is_tanh = isinstance(model, Perceptron) and model.activation == "tanh"
    columns: Float64Array = np.empty((0, len(X)))
    if not (isinstance(X, CodedRows) and layers):
        columns = np.ascontiguousarray(dense(X).T, dtype=np.float64)
    yield columns
    for place, (weights, biases) in enumerate(layers):
        if isinstance(X, CodedRows) and place == 0:
            columns = hidden_products(X, weights.astype(np.float64), biases.astype(np.float64)).T
        else:
            columns = row_stable_product(weights.T, columns) + biases[:, None]
        columns = np.tanh(columns) if is_tanh else np.maximum(columns, 0.0)
        yield columns
