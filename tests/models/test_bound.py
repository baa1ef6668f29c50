"""Can any record, however strange, add more than its clip norm, or disturb the others?"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from _support.norms import row_norms
from fairveil.models import LinearSoftmax, Perceptron
from fairveil.models.base import Known
from fairveil.models.linear import LARGEST_CLIP, SMALLEST_CLIP

EXCESS = 1 + 1e-5
SIZES = [0.0, 1e-45, 1e-38, 1e-30, 1e-22, 1e-19, 1e-9, 1.0, 1e9, 1e15, 1e19, 1e25, 3e38, math.inf, math.nan]
ANY_FLOAT = st.floats(width=32, allow_nan=True, allow_infinity=True)


def norm(gradient):
    return float(np.linalg.norm(gradient.astype(np.float64)))


@pytest.mark.slow
@settings(max_examples=150)
@given(data=st.data(), clip_norm=st.floats(1e-6, 1e6), with_norms=st.booleans())
def test_no_record_adds_more_than_its_clip_norm(model, data, clip_norm, with_norms):
    x = data.draw(arrays(np.float32, (1, model.n_features), elements=ANY_FLOAT))
    dlogits = data.draw(arrays(np.float32, (model.n_classes, 1), elements=ANY_FLOAT))
    params = data.draw(arrays(np.float32, model.n_params, elements=ANY_FLOAT, fill=st.just(0.5)))
    norms = row_norms(x) if with_norms else None
    for bound in (clip_norm, np.array([clip_norm], np.float32)):
        gradient = model.clipped_gradient(params, x, dlogits, bound, Known(row_norms=norms))
        assert np.isfinite(gradient).all()
        assert norm(gradient) <= np.max(bound) * EXCESS


@pytest.mark.parametrize("clip_norm", [SMALLEST_CLIP, 1e-6, 1.0, 1e6, LARGEST_CLIP, 1e300])
def test_the_bound_holds_at_every_magnitude(model, rng, clip_norm):
    params = rng.standard_normal(model.n_params).astype(np.float32)
    shape = rng.standard_normal(model.n_features), rng.standard_normal((model.n_classes, 1))
    with np.errstate(all="ignore"):
        pairs = [
            ((shape[0] * a).astype(np.float32)[None], (shape[1] * b).astype(np.float32)) for a in SIZES for b in SIZES
        ]
    for x, dlogits in pairs:
        for norms in (None, row_norms(x)):
            gradient = model.clipped_gradient(params, x, dlogits, clip_norm, Known(row_norms=norms))
            assert np.isfinite(gradient).all()
            assert norm(gradient) <= clip_norm * EXCESS


@pytest.mark.parametrize("where", ["x", "dlogits"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38])
def test_a_broken_record_leaves_the_others_as_they_are(model, a_batch, rng, where, value):
    params, X, dlogits = a_batch(model, rng, n_rows=12)
    others = np.arange(12) != 5
    clean = model.clipped_gradient(params, X[others], dlogits[:, others], 0.5)
    target = X[5] if where == "x" else dlogits[:, 5]
    target[:] = value
    for bound in (0.5, np.full(12, 0.5, np.float32)):
        gradient = model.clipped_gradient(params, X, dlogits, bound)
        np.testing.assert_allclose(gradient, clean, rtol=1e-5, atol=1e-6)


def test_a_record_too_large_for_float32_reads_an_infinite_norm(model, a_batch, rng):
    params, X, dlogits = a_batch(model, rng, n_rows=4)
    dlogits[:, 1], dlogits[:, 2] = np.nan, 1e30
    norms = model.gradient_norms(params, X, dlogits)
    assert np.array_equal(np.isinf(norms), [False, True, True, False])


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, 1e-40])
def test_a_record_whose_own_clip_norm_is_no_bound_adds_nothing(model, a_batch, rng, bound):
    params, X, dlogits = a_batch(model, rng, n_rows=6)
    bounds = np.full(6, 0.5, np.float32)
    bounds[2] = bound
    others = np.arange(6) != 2
    clean = model.clipped_gradient(params, X[others], dlogits[:, others], 0.5)
    np.testing.assert_allclose(model.clipped_gradient(params, X, dlogits, bounds), clean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "wide",
    [
        LinearSoftmax(n_features=20_000),
        LinearSoftmax(n_features=3, n_classes=2_000),
        Perceptron(n_features=2_000, hidden=(700,)),
    ],
    ids=["features", "classes", "hidden"],
)
def test_the_bound_holds_for_wide_models_and_is_nearly_reached(wide, rng):
    params = wide.initial(rng)
    for _ in range(20):
        x = rng.exponential(size=(1, wide.n_features)).astype(np.float32)
        dlogits = rng.exponential(size=(wide.n_classes, 1)).astype(np.float32)
        reached = norm(wide.clipped_gradient(params, x, dlogits, 0.01))
        assert 0.01 * (1 - 5e-4) <= reached <= 0.01 * EXCESS


def test_row_norms_do_not_overflow_or_underflow():
    X = np.array([[3e20, 4e20], [3e-30, 4e-30], [np.nan, 1.0], [np.inf, 1.0]], np.float32)
    np.testing.assert_allclose(row_norms(X), [5e20, 5e-30, np.nan, np.inf], rtol=1e-6)
    tall = np.ones((10_000, 4), np.float32)
    assert np.array_equal(row_norms(tall), np.full(10_000, 2, np.float32))
