"""Logits whose bits depend on their own row alone: for counts of a model that is known before the rows are chosen.

A matrix product rounds a row by where it stands in the table. While parameters carry fresh noise nobody can aim a row
at an edge of the rounding; at a released model one can, and one row more would then tip the decisions of others. Here
sums are made term by term: each number is multiplied and added by itself, whatever its place.
"""

from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil.models.base import Array, Model, quiet
from fairveil.models.decoupled import Decoupled
from fairveil.models.last_layer import LayeredModel
from fairveil.models.linear import LinearSoftmax
from fairveil.models.mlp import Perceptron
from fairveil.models.prefitted import GivenProbabilities

__all__ = [
    "steady_answer",
    "steady_inputs",
    "steady_logits",
    "steady_product",
]

Floats = NDArray[np.float64]
CHUNK = 8192
"""Rows at a time, to keep copies small; no answer depends on it."""


def steady_product(weights: NDArray[Any], columns: NDArray[Any]) -> Floats:
    """Return `weights @ columns`, (K, B) in double precision; no column depends on the others.

    Examples
    --------
    >>> steady_product(np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    total = np.zeros((len(weights), columns.shape[1]))
    term = np.empty_like(total)
    for weight, column in zip(weights.T.astype(np.float64), columns, strict=True):
        np.multiply(weight[:, None], column, out=term)
        total += term
    return total


@quiet
def steady_logits(model: Model, params: Array, X: Array) -> Floats:
    """Return the logits (n_classes, B) in double precision, each column from its own row alone."""
    chunks = [X[start : start + CHUNK] for start in range(0, len(X), CHUNK)] or [X]
    return np.concatenate([steady_answer(model, params, chunk) for chunk in chunks], axis=1)


@singledispatch
def steady_answer(model: Any, params: Array, X: Array) -> Floats:
    """Return the logits by kind of model; any other kind is asked about each row in a table of its own."""
    rows = [model.logits(params, X[place : place + 1]) for place in range(len(X))]
    return np.concatenate(rows, axis=1) if rows else model.logits(params, X)


@steady_answer.register
def _(model: LinearSoftmax, params: Array, X: Array) -> Floats:
    n_weights = model.n_classes * model.n_features
    total = steady_product(params[:n_weights].reshape(model.n_classes, -1), _columns(X))
    return total + params[n_weights:, None] if model.bias else total


@steady_answer.register
def _(model: Perceptron, params: Array, X: Array) -> Floats:
    class_weights, class_biases = model.layers(params)[-1]
    return steady_product(class_weights, _inputs(model, params, X)) + class_biases[:, None]


@steady_answer.register
def _(model: Decoupled, params: Array, X: Array) -> Floats:
    groups, rows = X[:, -1], X[:, :-1]
    copies = np.array([steady_answer(model.base, copy, rows) for copy in params.reshape(model.n_groups, -1)])
    own = np.mean(copies, axis=0)
    for group, logits in enumerate(copies):
        np.copyto(own, logits, where=groups == group)
    return own


@steady_answer.register
def _(model: GivenProbabilities, params: Array, X: Array) -> Floats:
    return model.logits(params, X.astype(np.float64)).astype(np.float64)


@quiet
def steady_inputs(model: LayeredModel, params: Array, X: Array) -> Floats:
    """Return what the last layer reads, (inputs, B) in double precision, each column from its own row alone.

    Where the layer has biases, the last input is the constant 1 that they belong to.
    """
    chunks = [X[start : start + CHUNK] for start in range(0, len(X), CHUNK)] or [X]
    inputs = np.concatenate([_inputs(model, params, chunk) for chunk in chunks], axis=1)
    if isinstance(model, LinearSoftmax) and not model.bias:
        return inputs
    return np.concatenate([inputs, np.ones((1, inputs.shape[1]))])


def _inputs(model: LayeredModel, params: Array, X: Array) -> Floats:
    columns = _columns(X)
    if isinstance(model, LinearSoftmax):
        return columns
    for weights, biases in model.layers(params)[:-1]:
        columns = steady_product(weights.T, columns) + biases[:, None]
        columns = np.tanh(columns) if model.activation == "tanh" else np.maximum(columns, 0.0)
    return columns


def _columns(X: Array) -> Floats:
    return np.ascontiguousarray(X.T, dtype=np.float64)
