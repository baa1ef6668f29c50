"""The last layer of a model, with its biases as weights of a constant input 1: its norm, its margin, what it reads.

All kinds of model keep it at the end of the flat vector, class weights first, then class biases.
"""

import math

import numpy as np
from scipy.special import ndtr

from fairveil._typing import Float32Array, Float64Array
from fairveil.errors import InvalidParameterError
from fairveil.models.base import Model
from fairveil.models.linear import LinearSoftmax
from fairveil.models.mlp import Perceptron
from fairveil.models.row_stable import row_stable_product
from fairveil.models.torch_module import TorchModel

LayeredModel = LinearSoftmax | Perceptron | TorchModel
"""Models whose last layer is a product of weights and inputs."""


def check_layered(model: Model) -> LayeredModel:
    """Return the model as one with a last layer of its own; refuse others."""
    if not isinstance(model, (LinearSoftmax, Perceptron, TorchModel)):
        raise InvalidParameterError(
            "Expected a linear model, a perceptron or a TorchModel, which have a last layer, got "
            f"{type(model).__name__}."
        )
    return model


def bounded_last_layer(model: LayeredModel, params: Float32Array, bound: float) -> Float32Array:
    """Return the parameters with the last layer scaled down to the Euclidean norm `bound` (Algorithm 1, line 4).

    Examples
    --------
    >>> model = LinearSoftmax(n_features=1, n_classes=2)
    >>> bounded_last_layer(model, np.array([3.0, 0.0, 4.0, 0.0], dtype=np.float32), 1.0).round(2).tolist()
    [0.6000000238418579, 0.0, 0.800000011920929, 0.0]
    """
    norm = last_layer_norm(model, params)
    if norm <= bound:
        return params
    bounded = params.copy()
    bounded[-last_layer_size(model) :] *= bound / norm
    return bounded


def last_layer_norm(model: LayeredModel, params: Float32Array) -> float:
    """Return the Euclidean norm of the last layer, weights and biases of all classes together."""
    return math.sqrt(float(np.square(params[-last_layer_size(model) :], dtype=np.float64).sum()))


def margin_weights(model: LayeredModel, params: Float32Array) -> Float64Array:
    """Return the weights of logit_1 - logit_0 by the inputs of the last layer, that of the constant last."""
    if model.n_classes != 2:
        raise InvalidParameterError(f"Expected a model of two classes, got {model.n_classes}.")
    last = params[-last_layer_size(model) :].astype(np.float64)
    n_biases = 2 if _has_biases(model) else 0
    weights = last[: len(last) - n_biases].reshape(2, -1)
    biases = last[len(last) - n_biases :]
    margin = weights[1] - weights[0]
    return np.append(margin, biases[1] - biases[0]) if n_biases else margin


def last_inputs(model: LayeredModel, activations: tuple[Float32Array, ...], X: Float32Array) -> Float64Array:
    """Return what the last layer reads, (inputs, B), with the constant 1 of its biases last."""
    inputs = (X, *activations[:-1])[-1].T.astype(np.float64)
    return np.concatenate([inputs, np.ones((1, inputs.shape[1]))]) if _has_biases(model) else inputs


def positive_probability(
    margin: Float64Array, inputs: Float64Array, std: float, threshold: float = 0.0
) -> Float64Array:
    """Return P((margin + noise) . inputs > threshold) for each column of inputs, with independent Gaussian noise.

    `std` is the standard deviation of the noise on each margin weight (Equation 5 of FairDP). Where all inputs are 0
    there is no noise: the probability is 0 or 1, and 1/2 exactly at the threshold.
    """
    scores = row_stable_product(margin[None], inputs)[0] - threshold
    spread = std * np.sqrt(np.add.reduce(np.square(inputs), axis=0))
    certain = np.where(scores == 0, 0.0, np.copysign(np.inf, scores))
    return ndtr(np.divide(scores, spread, out=certain, where=spread > 0))


def _has_biases(model: LayeredModel) -> bool:
    return model.bias if isinstance(model, LinearSoftmax) else True


def last_layer_size(model: LayeredModel) -> int:
    """Return the number of weights and biases of the last layer."""
    if isinstance(model, TorchModel):
        return model.n_classes * (model.n_last_inputs + 1)
    n_inputs = model.n_features if isinstance(model, LinearSoftmax) else (model.n_features, *model.hidden)[-1]
    return model.n_classes * (n_inputs + _has_biases(model))
