"""Given probabilities in a model's place: logarithms, row by row, whatever the rows hold."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fairveil.errors import InvalidParameterError
from fairveil.models import PrefittedProbabilities, softmax

NOTHING = np.empty(0, dtype=np.float32)
classes = pytest.mark.parametrize("n_classes", [2, 3, 5])
kinds = pytest.mark.parametrize("kind", [np.float32, np.float64])
NO_PROBABILITIES = {
    "NaN": [math.nan, 0.5, 0.5],
    "all NaN": [math.nan] * 3,
    "infinity": [math.inf, 0.5, 0.5],
    "minus infinity": [-math.inf, 0.5, 0.5],
    "infinities of both signs": [math.inf, -math.inf, 0.0],
    "a negative number": [-0.1, 0.6, 0.5],
    "a tiny negative number": [-1e-45, 0.5, 0.5],
    "all zero": [0.0, 0.0, 0.0],
}


def rows_of(rng, n_classes, n=500):
    return rng.dirichlet(np.full(n_classes, 0.3), size=n)


@classes
def test_it_is_a_model_without_parameters(n_classes):
    model = PrefittedProbabilities(n_classes)
    assert (model.n_features, model.n_classes, model.n_params) == (n_classes, n_classes, 0)
    start = model.initial(np.random.default_rng(0))
    assert (start.dtype, start.shape) == (np.float32, (0,))
    assert model == dataclasses.replace(model)
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.n_classes = 4


@pytest.mark.parametrize("n_classes", [1, 0, 2.5])
def test_fewer_than_two_classes_are_refused(n_classes):
    with pytest.raises(InvalidParameterError, match="n_classes"):
        PrefittedProbabilities(n_classes)


@kinds
@classes
def test_logits_are_the_logarithms_class_major(rng, n_classes, kind):
    X = rows_of(rng, n_classes).astype(kind)
    logits = PrefittedProbabilities(n_classes).logits(NOTHING, X)
    assert (logits.dtype, logits.shape) == (kind, (n_classes, 500))
    assert logits.flags.c_contiguous
    expected = [[math.log(max(p, 1e-30)) for p in row] for row in X.tolist()]
    np.testing.assert_allclose(logits.T, expected, rtol=1e-6, atol=1e-7)


@classes
def test_forward_is_the_logits_alone(rng, n_classes):
    model, X = PrefittedProbabilities(n_classes), rows_of(rng, n_classes).astype(np.float32)
    (logits,) = model.forward(NOTHING, X)
    assert np.array_equal(logits, model.logits(NOTHING, X))


@kinds
@classes
def test_softmax_gives_the_probabilities_back(rng, n_classes, kind):
    X = rows_of(rng, n_classes).astype(kind)
    X[0] = np.eye(n_classes)[0]
    X[1] = np.eye(n_classes)[-1]
    np.testing.assert_allclose(softmax(PrefittedProbabilities(n_classes).logits(NOTHING, X)).T, X, atol=1e-6)


@classes
def test_rows_that_do_not_add_up_to_1_count_by_their_proportions(rng, n_classes):
    X = rows_of(rng, n_classes)
    scaled = (X * rng.uniform(0.1, 1000, size=(500, 1))).astype(np.float32)
    np.testing.assert_allclose(softmax(PrefittedProbabilities(n_classes).logits(NOTHING, scaled)).T, X, atol=2e-6)


@classes
def test_a_probability_of_0_is_a_finite_logit_below_all_others(n_classes):
    X = np.full((1, n_classes), 1e-25, np.float32)
    X[0, 0], X[0, 1] = 0.0, 1.0
    logits = PrefittedProbabilities(n_classes).logits(NOTHING, X)
    assert np.isfinite(logits).all()
    assert (logits[0] < logits[1:]).all()


@kinds
@pytest.mark.parametrize("bad", NO_PROBABILITIES.values(), ids=NO_PROBABILITIES.keys())
def test_a_row_without_probabilities_is_undecided_and_alters_no_other(rng, bad, kind):
    X = rows_of(rng, 3, n=9).astype(kind)
    model = PrefittedProbabilities(3)
    clean = model.logits(NOTHING, X)
    X[4] = bad
    logits = model.logits(NOTHING, X)
    assert np.array_equal(logits[:, 4], np.full(3, logits[0, 4]))
    assert np.isfinite(logits[:, 4]).all()
    others = np.arange(9) != 4
    assert np.array_equal(logits[:, others], clean[:, others])


@settings(max_examples=200)
@given(X=arrays(np.float32, (5, 3), elements=st.floats(width=32, allow_nan=True, allow_infinity=True)))
def test_no_row_has_a_logit_that_is_not_finite(X):
    logits = PrefittedProbabilities(3).logits(NOTHING, X)
    assert np.isfinite(logits).all()
    assert not np.isnan(softmax(logits)).any()


@kinds
@classes
def test_the_logits_of_a_row_do_not_depend_on_its_place_bit_for_bit(rng, n_classes, kind):
    model, X = PrefittedProbabilities(n_classes), rows_of(rng, n_classes, n=1000).astype(kind)
    X[::50], X[1::50] = math.nan, 0.0
    whole = model.logits(NOTHING, X)
    order = rng.permutation(1000)
    assert model.logits(NOTHING, X[order]).tobytes() == np.ascontiguousarray(whole[:, order]).tobytes()
    assert model.logits(NOTHING, np.asfortranarray(X)).tobytes() == whole.tobytes()


@kinds
@classes
def test_the_logits_of_a_row_do_not_depend_on_the_size_of_the_batch(rng, n_classes, kind):
    model, X = PrefittedProbabilities(n_classes), rows_of(rng, n_classes, n=300).astype(kind)
    whole = model.logits(NOTHING, X)
    for length in [*range(1, 70), 127, 128, 129, 255, 299]:
        start = int(rng.integers(0, 300 - length + 1))
        part = model.logits(NOTHING, X[start : start + length])
        assert part.tobytes() == np.ascontiguousarray(whole[:, start : start + length]).tobytes()


@classes
def test_no_rows_have_no_logits(n_classes):
    empty = np.empty((0, n_classes), np.float32)
    assert PrefittedProbabilities(n_classes).logits(NOTHING, empty).shape == (n_classes, 0)


def test_the_rows_are_left_alone(rng):
    X = rows_of(rng, 3).astype(np.float32)
    X[0], X[1] = math.nan, -1.0
    before = X.copy()
    PrefittedProbabilities(3).logits(NOTHING, X)
    assert X.tobytes() == before.tobytes()
