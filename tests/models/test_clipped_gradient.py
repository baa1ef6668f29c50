"""Do clipped sums agree with a per-record loop, with torch, and with differences of the loss?"""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairveil.models import cross_entropy_pull, softmax

CLIP_NORMS = [1e-3, 0.8, 3.0, 1e4, math.inf]


def clipped_sum(gradients, clip_norm):
    norms = np.linalg.norm(gradients, axis=1)
    return np.minimum(1.0, clip_norm / np.maximum(norms, 1e-300)) @ gradients


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5 * max(1e-3, np.linalg.norm(expected)))


@pytest.mark.parametrize("clip_norm", CLIP_NORMS)
def test_the_sum_equals_a_per_record_loop(model, a_batch, record_gradient, rng, clip_norm):
    params, X, dlogits = a_batch(model, rng, n_rows=60)
    gradients = np.array([record_gradient(model, params, x, d) for x, d in zip(X, dlogits.T, strict=True)])
    assert_close(model.clipped_gradient(params, X, dlogits, clip_norm), clipped_sum(gradients, clip_norm))


def test_norms_equal_those_of_a_per_record_loop(model, a_batch, record_gradient, rng):
    params, X, dlogits = a_batch(model, rng, n_rows=60)
    gradients = np.array([record_gradient(model, params, x, d) for x, d in zip(X, dlogits.T, strict=True)])
    norms = model.gradient_norms(params, X, dlogits)
    assert norms.dtype == np.float32
    np.testing.assert_allclose(norms, np.linalg.norm(gradients, axis=1), rtol=1e-5)


def test_a_clip_norm_per_record_holds_per_record(model, a_batch, record_gradient, rng):
    params, X, dlogits = a_batch(model, rng, n_rows=30)
    bounds = rng.choice([0.01, 1.0, math.inf], size=30).astype(np.float32)
    gradients = np.array([record_gradient(model, params, x, d) for x, d in zip(X, dlogits.T, strict=True)])
    expected = clipped_sum(gradients, bounds.astype(np.float64))
    assert_close(model.clipped_gradient(params, X, dlogits, bounds), expected)


def test_equal_clip_norms_per_record_are_the_scalar(model, a_batch, rng):
    params, X, dlogits = a_batch(model, rng)
    scalar = model.clipped_gradient(params, X, dlogits, 0.6)
    per_record = model.clipped_gradient(params, X, dlogits, np.full(len(X), 0.6, np.float32))
    np.testing.assert_allclose(per_record, scalar, rtol=1e-6, atol=1e-7)


def test_the_gradient_is_the_slope_of_the_cross_entropy(model, a_batch, rng):
    params, X, _ = a_batch(model, rng, n_rows=7)
    params, X = params.astype(np.float64), X.astype(np.float64)
    y = rng.integers(0, model.n_classes, size=7)

    def loss(point):
        logits = model.logits(point, X)
        return float(np.sum(np.log(np.exp(logits).sum(axis=0)) - logits[y, np.arange(7)]))

    step = 1e-6
    slopes = [(loss(params + step * axis) - loss(params - step * axis)) / (2 * step) for axis in np.eye(model.n_params)]
    pull = cross_entropy_pull(softmax(model.logits(params, X)), y)
    gradient = model.clipped_gradient(params, X, pull, math.inf)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("clip_norm", CLIP_NORMS)
def test_the_sum_equals_torch_per_sample_gradients(model, a_batch, layers_of, rng, clip_norm):
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'fairveil[torch]'")
    params, X, dlogits = a_batch(model, rng, n_rows=40)
    squash = torch.tanh if getattr(model, "activation", "") == "tanh" else torch.relu

    # torch differentiates with respect to the layers; indices say where each entry stands in the flat vector.
    places = [(w.astype(int), b.astype(int)) for w, b in layers_of(model, np.arange(model.n_params))]
    has_biases = getattr(model, "bias", True)

    def objective(flat, x, dlogit):
        *inner, (weights, biases) = places
        for hidden_weights, hidden_biases in inner:
            x = squash(x @ flat[hidden_weights] + flat[hidden_biases])
        logits = x @ flat[weights]
        return ((logits + flat[biases] if has_biases else logits) * dlogit).sum()

    per_sample = torch.func.vmap(torch.func.grad(objective), in_dims=(None, 0, 0))
    gradients = per_sample(*(torch.from_numpy(a.astype(np.float64)) for a in (params, X, dlogits.T))).numpy()
    assert_close(model.clipped_gradient(params, X, dlogits, clip_norm), clipped_sum(gradients, clip_norm))


@settings(max_examples=25)
@given(cuts=st.lists(st.integers(0, 50), max_size=4), seed=st.integers(0, 2**32 - 1), clip=st.floats(0.01, 10))
def test_chunks_add_up_to_the_whole(model, a_batch, cuts, seed, clip):
    params, X, dlogits = a_batch(model, np.random.default_rng(seed), n_rows=50)
    whole = model.clipped_gradient(params, X, dlogits, clip)
    edges = [0, *sorted(cuts), 50]
    parts = [model.clipped_gradient(params, X[a:b], dlogits[:, a:b], clip) for a, b in pairwise(edges)]
    np.testing.assert_allclose(np.sum(parts, axis=0), whole, rtol=1e-4, atol=1e-5 * clip * 50)


def test_the_order_of_records_does_not_matter(model, a_batch, rng):
    params, X, dlogits = a_batch(model, rng, n_rows=40)
    order = rng.permutation(40)
    shuffled = model.clipped_gradient(params, X[order], dlogits[:, order], 0.5)
    np.testing.assert_allclose(shuffled, model.clipped_gradient(params, X, dlogits, 0.5), rtol=1e-4, atol=1e-5)
