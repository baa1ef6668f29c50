"""Does every model keep the promises of `Model`?"""

import dataclasses
import math

import numpy as np
import pytest

from _support.norms import row_norms
from fairveil.errors import InvalidParameterError
from fairveil.models import MODELS, LinearSoftmax, Perceptron
from fairveil.models.base import Known


def test_every_registered_model_is_tried(all_models):
    assert {type(model) for model in all_models} == set(MODELS.values())


def test_a_model_is_frozen_and_compares_by_its_public_facts(model):
    assert model.n_params > 0
    assert model == dataclasses.replace(model)
    assert hash(model) == hash(dataclasses.replace(model))
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.n_features = 3


def test_initial_parameters_are_float32_and_repeat_with_the_seed(model):
    first = model.initial(np.random.default_rng(3))
    assert first.dtype == np.float32
    assert first.shape == (model.n_params,)
    assert np.array_equal(first, model.initial(np.random.default_rng(3)))


@pytest.mark.parametrize("n_classes", [2, 3, 9])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_nothing_is_decided_before_the_first_noise(rng, activation, n_classes):
    """Logits start at exactly 0, whatever the rows: no rounding can be aimed at, no gradient reaches a hidden layer."""
    X = rng.normal(scale=100, size=(1991, 7)).astype(np.float32)
    dlogits = rng.normal(size=(n_classes, 1991)).astype(np.float32)
    for model in (LinearSoftmax(7, n_classes), Perceptron(7, (64, 64), n_classes, activation)):
        params = model.initial(np.random.default_rng(0))
        assert not model.logits(params, X).any()
        moved = model.clipped_gradient(params, X, dlogits, 1.0)
        last = n_classes * ((7 if isinstance(model, LinearSoftmax) else 64) + 1)
        assert moved[-last:].any() and not moved[:-last].any()


def test_initial_hidden_weights_have_the_spread_of_their_rule(rng):
    relu = Perceptron(n_features=400, hidden=(300, 200)).initial(rng)[: 400 * 300]
    tanh = Perceptron(n_features=400, hidden=(300, 200), activation="tanh").initial(rng)[: 400 * 300]
    # 120,000 draws: the standard error of a spread is .2 %, so 3 % is 14 standard errors.
    assert relu.std() == pytest.approx(math.sqrt(2 / 400), rel=0.03)
    assert tanh.std() == pytest.approx(math.sqrt(2 / 700), rel=0.03)


def test_logits_are_class_major_float32_and_the_last_of_forward(model, a_batch, rng):
    params, X, _ = a_batch(model, rng)
    activations = model.forward(params, X)
    logits = activations[-1]
    assert logits.shape == (model.n_classes, len(X))
    assert logits.flags.c_contiguous
    assert all(a.dtype == np.float32 for a in activations)
    assert np.array_equal(logits, model.logits(params, X))


def test_logits_match_a_float64_forward_pass(model, a_batch, layers_of, rng):
    params, X, _ = a_batch(model, rng)
    rows = X.astype(np.float64)
    *inner, (weights, biases) = layers_of(model, params)
    for hidden_weights, hidden_biases in inner:
        z = rows @ hidden_weights + hidden_biases
        rows = np.tanh(z) if model.activation == "tanh" else np.maximum(z, 0)
    np.testing.assert_allclose(model.logits(params, X).T, rows @ weights + biases, rtol=1e-4, atol=1e-4)


def test_shifted_parameters_raise_every_rows_logits_by_the_offsets(model, a_batch, rng):
    params, X, _ = a_batch(model, rng)
    offsets = rng.standard_normal(model.n_classes)
    if not getattr(model, "bias", True):
        with pytest.raises(InvalidParameterError, match="biases"):
            model.shifted(params, offsets)
        return
    before = params.copy()
    shifted = model.shifted(params, offsets)
    assert np.array_equal(params, before)
    assert (shifted.dtype, shifted.shape) == (np.float32, params.shape)
    np.testing.assert_allclose(
        model.logits(shifted, X), model.logits(params, X) + offsets[:, None], rtol=1e-5, atol=1e-5
    )
    assert np.array_equal(model.shifted(params, np.zeros(model.n_classes)), params)


@pytest.mark.parametrize("clip_norm", [0.5, math.inf])
def test_an_empty_batch_adds_nothing(model, clip_norm):
    params = model.initial(np.random.default_rng(0))
    X, dlogits = np.empty((0, model.n_features), np.float32), np.empty((model.n_classes, 0), np.float32)
    gradient = model.clipped_gradient(params, X, dlogits, clip_norm)
    assert np.array_equal(gradient, np.zeros(model.n_params, np.float32))
    assert model.gradient_norms(params, X, dlogits).shape == (0,)
    assert model.logits(params, X).shape == (model.n_classes, 0)


def test_what_is_passed_in_is_left_alone(model, a_batch, rng):
    params, X, dlogits = a_batch(model, rng)
    activations, norms = model.forward(params, X), row_norms(X)
    given = (params, X, dlogits, norms, *activations)
    before = [array.copy() for array in given]
    for clip_norm in (0.1, np.full(len(X), 0.1, np.float32), math.inf):
        model.clipped_gradient(params, X, dlogits, clip_norm, Known(activations, norms))
    model.gradient_norms(params, X, dlogits, Known(activations, norms))
    for array, copy in zip(given, before, strict=True):
        assert np.array_equal(array, copy)


def test_passing_activations_and_norms_changes_nothing(model, a_batch, rng):
    params, X, dlogits = a_batch(model, rng)
    known = Known(model.forward(params, X), row_norms(X))
    plain = model.clipped_gradient(params, X, dlogits, 0.7)
    assert plain.dtype == np.float64
    np.testing.assert_allclose(model.clipped_gradient(params, X, dlogits, 0.7, known), plain, atol=1e-5)
    np.testing.assert_allclose(
        model.gradient_norms(params, X, dlogits, known),
        model.gradient_norms(params, X, dlogits),
        rtol=1e-5,
    )


def test_an_infinite_clip_norm_does_no_norm_work(model, a_batch, rng):
    params, X, dlogits = a_batch(model, rng)
    poisoned = np.full(len(X), np.nan, np.float32)
    plain = model.clipped_gradient(params, X, dlogits, math.inf)
    assert np.array_equal(model.clipped_gradient(params, X, dlogits, math.inf, Known(row_norms=poisoned)), plain)
    assert np.isfinite(plain).all()


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, math.nan, 1e-30])
def test_a_bound_that_is_no_bound_is_refused(model, a_batch, rng, clip_norm):
    with pytest.raises(InvalidParameterError, match="clip_norm"):
        model.clipped_gradient(*a_batch(model, rng), clip_norm)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LinearSoftmax(0, 2),
        lambda: LinearSoftmax(3, 1),
        lambda: Perceptron(3, hidden=(4, 0)),
        lambda: Perceptron(3, activation="swish"),
        lambda: Perceptron(2.5),
    ],
)
def test_sizes_that_make_no_model_are_refused(make):
    with pytest.raises(InvalidParameterError, match="Expected"):
        make()


def test_pack_writes_the_documented_layout(rng):
    model = LinearSoftmax(n_features=4, n_classes=3)
    weights, biases = rng.standard_normal((3, 4)), rng.standard_normal(3)
    X = rng.standard_normal((6, 4)).astype(np.float32)
    logits = model.logits(model.pack(weights, biases), X)
    np.testing.assert_allclose(logits, weights @ X.T + biases[:, None], atol=1e-5)
    for wrong in ((weights.T, biases), (weights, None), (weights, biases[:2])):
        with pytest.raises(InvalidParameterError, match="Expected class weights"):
            model.pack(*wrong)
