"""Smoothing: the law of drawn decisions, the gap that no people exceed, and a rule that draws by that law."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from fairveil.errors import InvalidParameterError
from fairveil.models import LinearSoftmax, Perceptron
from fairveil.models.last_layer import margin_weights, positive_probability
from fairveil.models.losses import softmax
from fairveil.models.row_stable import row_stable_inputs, row_stable_logits
from fairveil.models.rules import RandomizedByKey
from fairveil.research.fair_smooth import SmoothedModel, smoothed_gap

BASES = {
    "linear": LinearSoftmax(3, 2),
    "no bias": LinearSoftmax(3, 2, bias=False),
    "relu": Perceptron(3, (6,), 2),
    "tanh": Perceptron(3, (5, 4), 2, activation="tanh"),
}
N_DRAWS = 20_000


def drawn(model, rng):
    return rng.normal(size=model.n_params).astype(np.float32)


def close_to(share, law, n=N_DRAWS):
    """Within five standard deviations, which one in a million shares leaves."""
    return np.abs(share - law) <= 5 * np.sqrt(np.maximum(law * (1 - law), 1e-4) / n)


# --- the law --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.0, 0.7, -1.5])
def test_the_law_is_that_of_drawn_weights(rng, threshold):
    margin, inputs = rng.normal(size=4), rng.normal(size=(4, 30))
    noisy = margin + 0.8 * rng.standard_normal((N_DRAWS, 4))
    shares = (noisy @ inputs > threshold).mean(axis=0)
    assert close_to(shares, positive_probability(margin, inputs, 0.8, threshold)).all()
    assert not close_to(shares, positive_probability(margin, inputs, 0.8 * 1.3, threshold)).all()


@pytest.mark.parametrize("name", sorted(BASES))
def test_drawing_both_classes_of_a_real_model_has_that_law(rng, name):
    """Noise of deviation s / sqrt 2 on each class's weights puts s on the margin."""
    base, std = BASES[name], 0.5
    params, X = drawn(base, rng), rng.normal(size=(20, 3)).astype(np.float32)
    inputs = row_stable_inputs(base, params, X)
    n_inputs, ones = len(inputs), np.zeros(20)
    n_last = base.n_classes * n_inputs
    for _ in range(4000):
        noisy = params.astype(np.float64)
        noisy[-n_last:] += std / math.sqrt(2) * rng.standard_normal(n_last)
        ones += base.logits(noisy, X.astype(np.float64)).argmax(axis=0)
    law = softmax(SmoothedModel(base, std).logits(params, X))[1]
    assert close_to(ones / 4000, law, 4000).all()


def test_hidden_layers_are_drawn_too_where_all_are(rng):
    """The law is the mean over draws of the hidden layers; by hand with 4,000 draws, ours with as many."""
    base, std = BASES["relu"], 0.4
    params, X = drawn(base, rng), rng.normal(size=(12, 3)).astype(np.float32)
    law = softmax(SmoothedModel(base, std, "all", 4000).logits(params, X))[1]
    n_last, ones = 2 * 7, np.zeros(12)
    for _ in range(4000):
        spread = np.full(base.n_params, std)
        spread[-n_last:] = std / math.sqrt(2)
        noisy = params + spread * rng.standard_normal(base.n_params)
        ones += base.logits(noisy, X.astype(np.float64)).argmax(axis=0)
    assert np.abs(ones / 4000 - law).max() < 5 * math.sqrt(0.5 / 4000)
    last = softmax(SmoothedModel(base, std, "last").logits(params, X))[1]
    assert np.abs(ones / 4000 - last).max() > 0.06  # not the law of the last layer alone


@pytest.mark.parametrize("layers", ["last", "all"])
@pytest.mark.parametrize("name", sorted(BASES))
def test_a_row_is_answered_by_itself(rng, name, layers):
    """To the last bit: no row's law depends on the others or on its place."""
    model = SmoothedModel(BASES[name], 0.5, layers, 5)
    params, X = drawn(BASES[name], rng), rng.normal(size=(37, 3)).astype(np.float32)
    whole = model.logits(params, X)
    assert np.array_equal(whole, np.hstack([model.logits(params, row[None]) for row in X]))
    assert np.array_equal(whole[:, ::-1], model.logits(params, X[::-1]))
    assert np.array_equal(whole, row_stable_logits(model, params, X))
    assert np.array_equal(whole, model.forward(params, X)[-1])


def test_no_inputs_are_a_fair_coin_and_sure_beside_a_threshold():
    zeros = np.zeros((3, 2))
    assert positive_probability(np.array([5.0, -1, 2]), zeros, 0.1).tolist() == [0.5, 0.5]
    assert positive_probability(np.ones(3), zeros, 0.1, 0.3).tolist() == [0.0, 0.0]
    assert positive_probability(np.ones(3), zeros, 0.1, -0.3).tolist() == [1.0, 1.0]
    base = LinearSoftmax(2, 2, bias=False)
    law = softmax(SmoothedModel(base, 1.0).logits(np.ones(4, np.float32), np.zeros((3, 2), np.float32)))
    assert (law == 0.5).all()


def test_without_noise_the_law_is_the_decision():
    margin, inputs = np.array([1.0, -1.0]), np.array([[2.0, 1.0, 1.0], [1.0, 2.0, 1.0]])
    assert positive_probability(margin, inputs, 0.0).tolist() == [1.0, 0.0, 0.5]


def test_dead_relus_are_decided_by_the_bias_alone():
    """All hidden units dead: what is left is the constant, so the law is that of the bias against its noise."""
    base = Perceptron(2, (3,), 2)
    params = np.zeros(base.n_params, np.float32)
    base.layers(params)[0][1][:] = -100.0
    params[-1] = 0.6
    law = softmax(SmoothedModel(base, 2.0).logits(params, np.ones((1, 2), np.float32)))[1, 0]
    assert law == pytest.approx(0.5 + math.erf(0.3 / math.sqrt(2)) / 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_values_that_are_no_numbers_do_not_disturb_others(rng, value):
    params, X = drawn(BASES["relu"], rng), rng.normal(size=(5, 3)).astype(np.float32)
    spoilt = X.copy()
    spoilt[2, 1] = value
    model = SmoothedModel(BASES["relu"], 0.5)
    others = [0, 1, 3, 4]
    assert np.array_equal(model.logits(params, spoilt)[:, others], model.logits(params, X)[:, others])


def test_the_surest_answers_have_finite_logits():
    base = LinearSoftmax(1, 2)
    params = np.array([-1e6, 1e6, 0, 0], np.float32)
    logits = SmoothedModel(base, 1e-3).logits(params, np.array([[1.0], [-1.0]], np.float32))
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(softmax(logits)[1], [1, 0], atol=1e-12)


# --- the gap --------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(sorted(BASES)),
    std=st.floats(0.05, 20),
    layers=st.sampled_from(["last", "all"]),
)
def test_no_two_groups_of_any_people_differ_by_more(seed, name, std, layers):
    """The worst groups: those with the highest and with the lowest law."""
    rng, base = np.random.default_rng(seed), BASES[name]
    params = drawn(base, rng)
    X = (10.0 ** rng.uniform(-3, 3, size=(400, 1)) * rng.normal(size=(400, 3))).astype(np.float32)
    model = SmoothedModel(base, std, layers, 3)
    law = softmax(model.logits(params, X))[1]
    margin = np.linalg.norm(margin_weights(base, params))
    assert model.gap_bound(params) == smoothed_gap(margin, std)
    assert law.max() - law.min() <= model.gap_bound(params) + 1e-12


def test_two_opposed_rows_attain_the_gap(rng):
    """Without a bias: rows along and against the margin. With one, rows so long that the constant does not matter."""
    for base, length in ((BASES["no bias"], 1.0), (BASES["linear"], 1e6)):
        params = drawn(base, rng)
        if base.bias:
            params[-2:] = 0
        margin = margin_weights(base, params)[:3]
        X = length * np.stack([margin, -margin]).astype(np.float32)
        law = softmax(SmoothedModel(base, 1.3).logits(params, X))[1]
        bound = SmoothedModel(base, 1.3).gap_bound(params)
        assert 0.1 < bound < 1
        assert law[0] - law[1] == pytest.approx(bound, abs=1e-5)


def test_figures_of_the_gap():
    """Margin over noise of 1, .2 and .1: gaps of .68, .16 and .08, each answer between .46 and .54 at the last."""
    assert [round(smoothed_gap(x, 1.0), 2) for x in (1, 0.2, 0.1)] == [0.68, 0.16, 0.08]
    assert 0.5 + smoothed_gap(0.1, 1.0) / 2 == pytest.approx(0.54, abs=0.001)
    assert 0.5 - smoothed_gap(0.1, 1.0) / 2 == pytest.approx(0.46, abs=0.001)
    assert smoothed_gap(0.0, 1.0) == 0
    for std in (0.0, -1.0, math.nan):
        with pytest.raises(InvalidParameterError, match="std"):
            smoothed_gap(1.0, std)


# --- the rule -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 4])
def test_classes_are_drawn_as_often_as_the_model_says(rng, n_classes):
    logits, rule = rng.normal(size=(n_classes, 3)), RandomizedByKey()
    law = rule.distribution(logits, np.zeros(3, int))
    np.testing.assert_allclose(law, softmax(logits).T)
    uniforms = rng.random((2, 3 * 4000))
    decisions = rule.decide(np.repeat(logits, 4000, axis=1), np.zeros(12_000, int), uniforms).reshape(3, -1)
    for row, own in zip(decisions, law, strict=True):
        counts = np.bincount(row, minlength=n_classes)
        tests = [binomtest(int(k), 4000, p).pvalue for k, p in zip(counts, own, strict=True)]
        assert min(tests) > 1e-6


def test_the_edges_of_a_uniform_stay_among_the_classes():
    logits = np.log([[0.3, 1e-300], [0.7, 1.0]])
    uniforms = np.array([[0.0, np.nextafter(1.0, 0)], [0.5, 0.5]])
    assert RandomizedByKey().decide(logits, np.zeros(2, int), uniforms).tolist() == [0, 1]
    assert RandomizedByKey().fits(3, 2, 2) and not RandomizedByKey().fits(3, 2, 4)
    assert RandomizedByKey().is_random and RandomizedByKey().needs_uniforms and not RandomizedByKey().reads_group


def test_what_cannot_be_smoothed_is_refused():
    for choices, words in (
        ((LinearSoftmax(2, 3), 1.0), "two classes to smooth, got 3"),
        ((LinearSoftmax(2, 2), 0.0), "std"),
        ((LinearSoftmax(2, 2), math.nan), "std"),
        ((LinearSoftmax(2, 2), 1.0, "first"), "layers"),
        ((LinearSoftmax(2, 2), 1.0, "all", 0), "n_draws"),
    ):
        with pytest.raises(InvalidParameterError, match=words):
            SmoothedModel(*choices)
    model = SmoothedModel(LinearSoftmax(5, 2), 1.0)
    assert (model.n_features, model.n_classes, model.n_params) == (5, 2, 12)
