"""The last layer: its norm, the bound on it, the margin that decides, and what it reads."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairveil.errors import InvalidParameterError
from fairveil.models import Decoupled, LinearSoftmax, Perceptron, PrefittedProbabilities
from fairveil.models.last_layer import (
    bounded_last_layer,
    check_layered,
    last_inputs,
    last_layer_norm,
    margin_weights,
)
from fairveil.models.row_stable import row_stable_inputs

MODELS = {
    "linear": LinearSoftmax(3, 2),
    "no bias": LinearSoftmax(3, 2, bias=False),
    "three classes": LinearSoftmax(3, 3),
    "relu": Perceptron(3, (5,), 2),
    "tanh": Perceptron(3, (4, 6), 2, activation="tanh"),
}
TWO = sorted(name for name, model in MODELS.items() if model.n_classes == 2)


def drawn(model, rng, scale=1.0):
    return (scale * rng.normal(size=model.n_params)).astype(np.float32)


def by_layers(model, params):
    """Class weights (classes, inputs) and biases, and how many numbers come before them."""
    if isinstance(model, LinearSoftmax):
        n_weights = model.n_classes * model.n_features
        return params[:n_weights].reshape(model.n_classes, -1), params[n_weights:], 0
    weights, biases = model.layers(params)[-1]
    return weights, biases, model.n_params - weights.size - biases.size


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_norm_is_over_weights_and_biases_of_the_last_layer_alone(rng, name):
    model, params = MODELS[name], drawn(MODELS[name], rng)
    weights, biases, n_hidden = by_layers(model, params)
    expected = math.sqrt(np.square(weights, dtype=float).sum() + np.square(biases, dtype=float).sum())
    assert last_layer_norm(model, params) == pytest.approx(expected, rel=1e-12)
    other = params.copy()
    other[:n_hidden] = 1e6
    assert last_layer_norm(model, other) == last_layer_norm(model, params)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(sorted(MODELS)),
    bound=st.floats(1e-3, 1e3),
    scale=st.sampled_from([0.0, 1e-6, 1.0, 1e6, 1e15]),
)
def test_bounding_scales_the_last_layer_down_and_nothing_else(seed, name, bound, scale):
    model, rng = MODELS[name], np.random.default_rng(seed)
    params = drawn(model, rng, scale)
    bounded = bounded_last_layer(model, params, bound)
    _, _, n_hidden = by_layers(model, params)
    before = last_layer_norm(model, params)
    assert bounded.dtype == np.float32
    assert last_layer_norm(model, bounded) <= bound * (1 + 1e-6)
    assert np.array_equal(bounded[:n_hidden], params[:n_hidden])
    if before <= bound:
        assert bounded is params
    else:
        np.testing.assert_allclose(bounded[n_hidden:], params[n_hidden:] * (bound / before), rtol=1e-5)
        assert last_layer_norm(model, bounded) >= bound * (1 - 1e-6)
    again = bounded_last_layer(model, bounded, bound)
    np.testing.assert_allclose(again, bounded, rtol=1e-6)


def test_an_infinite_bound_is_none(rng):
    params = drawn(MODELS["relu"], rng, 1e6)
    assert bounded_last_layer(MODELS["relu"], params, math.inf) is params


@pytest.mark.parametrize("name", sorted(MODELS))
def test_scaling_the_last_layer_changes_no_decision(rng, name):
    """Every logit is multiplied by one number above 0, so the most likely class stays."""
    model, X = MODELS[name], rng.normal(size=(500, 3)).astype(np.float32)
    params = drawn(model, rng, 5.0)
    bounded = bounded_last_layer(model, params, 0.01)
    wide = X.astype(np.float64)
    before, after = (model.logits(p.astype(np.float64), wide) for p in (params, bounded))
    assert np.array_equal(before.argmax(axis=0), after.argmax(axis=0))
    factor = last_layer_norm(model, bounded) / last_layer_norm(model, params)
    assert factor < 0.01
    np.testing.assert_allclose(after, factor * before, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("name", TWO)
def test_margin_times_inputs_is_the_difference_of_logits(rng, name):
    model, params = MODELS[name], drawn(MODELS[name], rng)
    X = rng.normal(size=(40, 3)).astype(np.float32)
    inputs = last_inputs(model, model.forward(params, X), X)
    logits = model.logits(params.astype(np.float64), X.astype(np.float64))
    np.testing.assert_allclose(margin_weights(model, params) @ inputs, logits[1] - logits[0], atol=1e-4)
    np.testing.assert_allclose(inputs, row_stable_inputs(model, params, X), atol=1e-5)
    if name != "no bias":
        assert (inputs[-1] == 1).all()


@pytest.mark.parametrize("name", TWO)
def test_the_margin_is_at_most_sqrt_2_times_the_layer_and_reaches_it(rng, name):
    """The norm of w_1 - w_0: most where w_1 = -w_0. Noise on both classes spreads the margin by as much."""
    model = MODELS[name]
    params = drawn(model, rng)
    assert np.linalg.norm(margin_weights(model, params)) <= math.sqrt(2) * last_layer_norm(model, params)
    opposed = np.ones_like(params)
    weights, biases, _ = by_layers(model, opposed)
    weights[0] = -1
    biases[:1] = -1
    ratio = np.linalg.norm(margin_weights(model, opposed)) / last_layer_norm(model, opposed)
    assert ratio == pytest.approx(math.sqrt(2))


def test_other_models_and_other_numbers_of_classes_are_refused():
    for model in (PrefittedProbabilities(2), Decoupled(LinearSoftmax(2, 2), 2)):
        with pytest.raises(InvalidParameterError, match="last layer"):
            check_layered(model)
    with pytest.raises(InvalidParameterError, match="two classes, got 3"):
        margin_weights(LinearSoftmax(2, 3), np.zeros(9, np.float32))
    assert check_layered(MODELS["relu"]) is MODELS["relu"]
