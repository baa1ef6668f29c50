"""Logits that no other row can move: the same bits wherever a row stands, and the same values as a plain product."""

import numpy as np
import pytest

from fairveil.models import Decoupled, LinearSoftmax, Perceptron, PrefittedProbabilities
from fairveil.models.row_stable import CHUNK, row_stable_forward, row_stable_logits, row_stable_product
from fairveil.models.rules import TiltedArgmax

MODELS = {
    "linear": LinearSoftmax(37, 2),
    "linear, no bias": LinearSoftmax(37, 5, bias=False),
    "relu": Perceptron(37, (16, 8), 3),
    "tanh": Perceptron(37, (16,), 2, activation="tanh"),
    "decoupled": Decoupled(LinearSoftmax(36, 2), 3),
    "given": PrefittedProbabilities(37),
}


def rows_of(model, rng, n):
    X = rng.random((n, 37)).astype(np.float32)
    if isinstance(model, Decoupled):
        X[:, -1] = rng.integers(-1, model.n_groups, n)
    return X


@pytest.fixture(params=MODELS, ids=str)
def model(request):
    return MODELS[request.param]


def test_they_are_the_logits(model, rng):
    X = rows_of(model, rng, 300)
    params = rng.normal(size=model.n_params).astype(np.float32)
    np.testing.assert_allclose(row_stable_logits(model, params, X), model.logits(params, X), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 1003, CHUNK + 5])
def test_copies_of_a_row_have_the_same_bits_in_every_table(model, rng, n):
    row = rows_of(model, rng, 1)
    params = rng.normal(size=model.n_params).astype(np.float32)
    alone = row_stable_logits(model, params, row)
    among = row_stable_logits(model, params, np.tile(row, (n, 1)))
    np.testing.assert_array_equal(among, np.tile(alone, (1, n)))


def test_a_row_has_the_same_bits_among_any_others(model, rng):
    X = rows_of(model, rng, 500)
    params = rng.normal(size=model.n_params).astype(np.float32)
    order = rng.permutation(500)
    np.testing.assert_array_equal(
        row_stable_logits(model, params, X)[:, order], row_stable_logits(model, params, X[order][:])
    )
    np.testing.assert_array_equal(row_stable_logits(model, params, X[:77]), row_stable_logits(model, params, X)[:, :77])


def test_nobody_has_no_logits(model, rng):
    params = rng.normal(size=model.n_params).astype(np.float32)
    assert row_stable_logits(model, params, rows_of(model, rng, 0)).shape == (model.n_classes, 0)


def test_products_of_tilts_are_as_steady(rng):
    weights, columns = rng.normal(size=(3, 6)), rng.normal(size=(6, 1))
    np.testing.assert_array_equal(
        row_stable_product(weights, np.tile(columns, (1, 1003))),
        np.tile(row_stable_product(weights, columns), (1, 1003)),
    )
    rule, logits = TiltedArgmax(rng.normal(size=(2, 3, 3))), rng.normal(size=(3, 1))
    for n in (5, 1003):
        scores = rule.scores(np.tile(logits, (1, n)), np.zeros(n, int))
        np.testing.assert_array_equal(scores, np.tile(scores[:, :1], (1, n)))


def test_all_layers_are_those_of_the_model_and_no_row_moves_another(model, rng):
    """Hidden values decide the slopes of a gradient, so they must not depend on other rows either."""
    if isinstance(model, PrefittedProbabilities):
        pytest.skip("nothing of it is trained")
    X = rows_of(model, rng, 500)
    params = rng.normal(size=model.n_params).astype(np.float32)
    found, plain = row_stable_forward(model, params, X), model.forward(params, X)
    assert [(one.shape, one.dtype) for one in found] == [(one.shape, one.dtype) for one in plain]
    order = rng.permutation(500)
    for one, other, moved in zip(found, plain, row_stable_forward(model, params, X[order]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
        by_row = (one, moved) if one.shape[0] == len(X) else (one.T, moved.T)
        np.testing.assert_array_equal(by_row[0][order], by_row[1])
