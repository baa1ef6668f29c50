"""One model for each group: does a record meet and move its own copy only, by no more than its bound?"""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from _support.norms import row_norms
from fairveil.errors import InvalidParameterError
from fairveil.models import Decoupled, LinearSoftmax, Perceptron
from fairveil.models.base import Known

BASES = {
    "linear": LinearSoftmax(n_features=4, n_classes=2),
    "linear-5-classes": LinearSoftmax(n_features=4, n_classes=5),
    "linear-no-bias": LinearSoftmax(n_features=4, n_classes=3, bias=False),
    "mlp-relu": Perceptron(n_features=4, hidden=(5,), n_classes=2),
    "mlp-tanh": Perceptron(n_features=4, hidden=(4, 3), n_classes=3, activation="tanh"),
}
N_GROUPS = 3
NO_GROUP = [-1.0, 3.0, 0.5, math.nan, math.inf]
EXCESS = 1 + 1e-5
ANY_FLOAT = st.floats(width=32, allow_nan=True, allow_infinity=True)
CODES = st.one_of(st.sampled_from([0.0, 1.0, 2.0]), ANY_FLOAT)


@pytest.fixture(params=BASES.values(), ids=BASES.keys())
def base(request):
    return request.param


@pytest.fixture
def copies(base):
    return Decoupled(base, N_GROUPS)


def a_batch(model, rng, n_rows=60, codes=(0, 1, 2)):
    """Parameters, rows whose last column is a group's code, and dlogits."""
    params = rng.standard_normal(model.n_params).astype(np.float32)
    X = rng.standard_normal((n_rows, model.n_features)).astype(np.float32)
    X[:, -1] = np.resize(np.array(codes, np.float32), n_rows)
    dlogits = rng.standard_normal((model.n_classes, n_rows)).astype(np.float32)
    return params, X, dlogits


def blocks_of(model, params):
    return params.reshape(N_GROUPS, model.base.n_params)


def norm(gradient):
    return float(np.linalg.norm(gradient.astype(np.float64)))


def loop_over_records(model, record_gradient, params, X, dlogits, bounds):
    """Each record's gradient, clipped and put into its own block, in double precision."""
    total = np.zeros((N_GROUPS, model.base.n_params))
    for x, pull, bound in zip(X, dlogits.T, bounds, strict=True):
        if x[-1] in (0, 1, 2):
            code = int(x[-1])
            gradient = record_gradient(model.base, blocks_of(model, params)[code], x[:-1], pull)
            total[code] += gradient * min(1.0, bound / np.linalg.norm(gradient))
    return total.ravel()


# --- promises of every model ------------------------------------------------------------------------------


def test_it_is_frozen_and_compares_by_its_public_facts(copies):
    assert copies == dataclasses.replace(copies)
    assert hash(copies) == hash(dataclasses.replace(copies))
    assert copies != dataclasses.replace(copies, n_groups=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        copies.n_groups = 2


def test_its_sizes_are_those_of_the_base_and_one_column_more(copies, base):
    assert copies.n_features == base.n_features + 1
    assert copies.n_classes == base.n_classes
    assert copies.n_params == N_GROUPS * base.n_params


@pytest.mark.parametrize("n_groups", [0, -1, 2.5, "two"])
def test_a_number_of_groups_that_is_none_is_refused(n_groups):
    with pytest.raises(InvalidParameterError, match="n_groups"):
        Decoupled(LinearSoftmax(3), n_groups)


def test_every_copy_starts_alike_and_repeats_with_the_seed(copies, base):
    first = copies.initial(np.random.default_rng(3))
    assert (first.dtype, first.shape) == (np.float32, (copies.n_params,))
    assert np.array_equal(first, copies.initial(np.random.default_rng(3)))
    for block in blocks_of(copies, first):
        assert np.array_equal(block, base.initial(np.random.default_rng(3)))


def test_nothing_is_decided_before_the_first_noise(copies, rng):
    _, X, _ = a_batch(copies, rng, 300, (0, 1, 2, *NO_GROUP))
    X[:, :-1] *= 100
    assert not copies.logits(copies.initial(np.random.default_rng(0)), X).any()


def test_what_is_passed_in_is_left_alone(copies, rng):
    given_arrays = a_batch(copies, rng, codes=(0, 1, 2, -1))
    before = [array.copy() for array in given_arrays]
    for clip_norm in (0.1, np.full(60, 0.1, np.float32), math.inf):
        copies.clipped_gradient(*given_arrays, clip_norm)
    copies.gradient_norms(*given_arrays)
    if getattr(copies.base, "bias", True):
        copies.shifted(given_arrays[0], np.ones(copies.n_classes))
    for array, copy in zip(given_arrays, before, strict=True):
        assert np.array_equal(array, copy)


@pytest.mark.parametrize("clip_norm", [0.5, math.inf])
def test_an_empty_batch_adds_nothing(copies, clip_norm):
    params = copies.initial(np.random.default_rng(0))
    X, dlogits = np.empty((0, copies.n_features), np.float32), np.empty((copies.n_classes, 0), np.float32)
    gradient = copies.clipped_gradient(params, X, dlogits, clip_norm)
    assert np.array_equal(gradient, np.zeros(copies.n_params, np.float32))
    assert copies.gradient_norms(params, X, dlogits).shape == (0,)
    assert copies.logits(params, X).shape == (copies.n_classes, 0)


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, math.nan])
def test_a_bound_that_is_no_bound_is_refused(copies, rng, clip_norm):
    with pytest.raises(InvalidParameterError, match="clip_norm"):
        copies.clipped_gradient(*a_batch(copies, rng), clip_norm)


def test_passing_activations_and_norms_of_whole_rows_changes_nothing(copies, rng):
    """The norms that records keep include the group's code; believing them would clip too much."""
    params, X, dlogits = a_batch(copies, rng)
    known = Known(copies.forward(params, X), row_norms(X))
    plain = copies.clipped_gradient(params, X, dlogits, 0.7)
    assert np.array_equal(copies.clipped_gradient(params, X, dlogits, 0.7, known), plain)
    norms = copies.gradient_norms(params, X, dlogits)
    assert np.array_equal(copies.gradient_norms(params, X, dlogits, known), norms)


# --- logits -----------------------------------------------------------------------------------------------


def test_logits_of_each_row_come_from_its_own_copy(copies, base, rng):
    params, X, _ = a_batch(copies, rng)
    logits = copies.logits(params, X)
    assert (logits.dtype, logits.shape) == (np.float32, (copies.n_classes, 60))
    for row, column in zip(X, logits.T, strict=True):
        own, *others = np.roll(blocks_of(copies, params), -int(row[-1]), axis=0)
        expected = base.logits(np.ascontiguousarray(own), row[None, :-1])[:, 0]
        np.testing.assert_allclose(column, expected, rtol=1e-5, atol=1e-6)
        for other in others:
            assert not np.allclose(column, base.logits(other, row[None, :-1])[:, 0], atol=1e-3)


def test_forward_ends_with_the_logits(copies, rng):
    params, X, _ = a_batch(copies, rng, codes=(0, 1, 2, -1))
    assert np.array_equal(copies.forward(params, X)[-1], copies.logits(params, X))


@pytest.mark.parametrize("code", NO_GROUP)
def test_rows_of_no_group_get_the_mean_logits_of_all_copies(copies, base, rng, code):
    params, X, _ = a_batch(copies, rng, 20, (code,))
    everyone = [base.logits(block, X[:, :-1]) for block in blocks_of(copies, params)]
    np.testing.assert_allclose(copies.logits(params, X), sum(everyone) / N_GROUPS, rtol=1e-5, atol=1e-5)


def test_another_groups_parameters_do_not_move_a_rows_logits(copies, rng):
    params, X, _ = a_batch(copies, rng)
    before = copies.logits(params, X)
    changed = params.copy()
    blocks_of(copies, changed)[1] += 1
    after = copies.logits(changed, X)
    is_other = X[:, -1] != 1
    assert np.array_equal(after[:, is_other], before[:, is_other])
    assert (after[:, ~is_other] != before[:, ~is_other]).any(axis=0).all()


def test_logits_in_double_precision_agree(copies, rng):
    params, X, _ = a_batch(copies, rng, codes=(0, 1, 2, -1))
    double = copies.logits(params.astype(np.float64), X.astype(np.float64))
    assert double.dtype == np.float64
    np.testing.assert_allclose(copies.logits(params, X), double, rtol=1e-4, atol=1e-4)


def test_shifted_parameters_raise_every_rows_logits_by_the_offsets(copies, base, rng):
    params, X, _ = a_batch(copies, rng, codes=(0, 1, 2, -1))
    offsets = rng.standard_normal(copies.n_classes)
    if not getattr(base, "bias", True):
        with pytest.raises(InvalidParameterError, match="biases"):
            copies.shifted(params, offsets)
        return
    shifted = copies.shifted(params, offsets)
    assert (shifted.dtype, shifted.shape) == (np.float32, params.shape)
    expected = copies.logits(params, X) + offsets[:, None]
    np.testing.assert_allclose(copies.logits(shifted, X), expected, rtol=1e-5, atol=1e-5)


# --- gradients --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip_norm", [1e-3, 0.8, 3.0, 1e4, math.inf])
def test_the_sum_equals_a_per_record_loop(copies, record_gradient, rng, clip_norm):
    params, X, dlogits = a_batch(copies, rng, codes=(0, 1, 2, 1, 1, -1))
    expected = loop_over_records(copies, record_gradient, params, X, dlogits, np.full(60, clip_norm))
    gradient = copies.clipped_gradient(params, X, dlogits, clip_norm)
    assert (gradient.dtype, gradient.shape) == (np.float64, (copies.n_params,))
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-5 * max(1e-3, norm(expected)))
    swapped = np.roll(blocks_of(copies, expected), 1, axis=0).ravel()
    assert not np.allclose(gradient, swapped, rtol=0.1, atol=0.1 * norm(expected) / copies.n_params)


def test_a_clip_norm_per_record_holds_per_record(copies, record_gradient, rng):
    params, X, dlogits = a_batch(copies, rng, codes=(0, 1, 2, 1, 1, -1))
    bounds = rng.choice([0.01, 1.0, math.inf], size=60).astype(np.float32)
    expected = loop_over_records(copies, record_gradient, params, X, dlogits, bounds.astype(np.float64))
    gradient = copies.clipped_gradient(params, X, dlogits, bounds)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-5 * norm(expected))
    turned = copies.clipped_gradient(params, X, dlogits, np.roll(bounds, 1))
    assert not np.allclose(turned, expected, rtol=0.1, atol=0.1 * norm(expected) / copies.n_params)


def test_norms_equal_those_of_a_per_record_loop(copies, record_gradient, rng):
    params, X, dlogits = a_batch(copies, rng)
    expected = [
        np.linalg.norm(record_gradient(copies.base, blocks_of(copies, params)[int(x[-1])], x[:-1], pull))
        for x, pull in zip(X, dlogits.T, strict=True)
    ]
    norms = copies.gradient_norms(params, X, dlogits)
    assert norms.dtype == np.float32
    np.testing.assert_allclose(norms, expected, rtol=1e-5)


@pytest.mark.parametrize("code", NO_GROUP)
@pytest.mark.parametrize("per_record", [False, True], ids=["scalar", "per-record"])
def test_rows_of_no_group_add_nothing(copies, rng, code, per_record):
    params, X, dlogits = a_batch(copies, rng, 20, (code,))
    for clip_norm in (0.5, math.inf):
        bound = np.full(20, clip_norm, np.float32) if per_record else clip_norm
        assert not copies.clipped_gradient(params, X, dlogits, bound).any()
    assert not copies.gradient_norms(params, X, dlogits).any()


def test_a_group_without_rows_is_left_where_it_is(copies, rng):
    params, X, dlogits = a_batch(copies, rng, codes=(0, 2))
    blocks = blocks_of(copies, copies.clipped_gradient(params, X, dlogits, 0.5))
    assert not blocks[1].any()
    assert blocks[0].any() and blocks[2].any()


def test_a_record_moves_its_own_copy_only_and_by_no_more_than_the_bound(copies, rng):
    params, X, dlogits = a_batch(copies, rng, 30)
    for i in range(30):
        gradient = copies.clipped_gradient(params, X[i : i + 1], dlogits[:, i : i + 1], 0.01)
        others = np.delete(blocks_of(copies, gradient), int(X[i, -1]), axis=0)
        assert not others.any()
        assert 0.01 * (1 - 1e-4) <= norm(gradient) <= 0.01 * EXCESS


@settings(max_examples=80)
@given(data=st.data(), name=st.sampled_from(list(BASES)), clip_norm=st.floats(1e-6, 1e6))
def test_no_record_adds_more_than_its_clip_norm(data, name, clip_norm):
    """Whatever it holds, its code included."""
    model = Decoupled(BASES[name], N_GROUPS)
    x = data.draw(arrays(np.float32, (1, model.n_features), elements=ANY_FLOAT))
    x[0, -1] = data.draw(CODES)
    dlogits = data.draw(arrays(np.float32, (model.n_classes, 1), elements=ANY_FLOAT))
    params = data.draw(arrays(np.float32, model.n_params, elements=ANY_FLOAT, fill=st.just(0.5)))
    for bound in (clip_norm, np.array([clip_norm], np.float32)):
        gradient = model.clipped_gradient(params, x, dlogits, bound)
        assert np.isfinite(gradient).all()
        assert norm(gradient) <= np.max(bound) * EXCESS


@pytest.mark.parametrize("where", ["x", "dlogits", "code"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38])
def test_a_broken_record_leaves_the_others_as_they_are(copies, rng, where, value):
    params, X, dlogits = a_batch(copies, rng, 12)
    others = np.arange(12) != 5
    clean = copies.clipped_gradient(params, X[others], dlogits[:, others], 0.5)
    clean_logits = copies.logits(params, X)[:, others]
    target = {"x": X[5, :-1], "dlogits": dlogits[:, 5], "code": X[5, -1:]}[where]
    target[:] = value
    for bound in (0.5, np.full(12, 0.5, np.float32)):
        gradient = copies.clipped_gradient(params, X, dlogits, bound)
        np.testing.assert_allclose(gradient, clean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(copies.logits(params, X)[:, others], clean_logits, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("where", ["x", "dlogits"])
def test_a_broken_record_of_a_group_reads_an_infinite_norm(copies, rng, where):
    params, X, dlogits = a_batch(copies, rng, 6)
    if where == "x":
        X[4, 0] = math.nan
    else:
        dlogits[0, 4] = math.nan
    assert np.isinf(copies.gradient_norms(params, X, dlogits)).tolist() == [False] * 4 + [True, False]


@settings(max_examples=20)
@given(order=st.permutations(range(N_GROUPS)), seed=st.integers(0, 2**32 - 1), name=st.sampled_from(list(BASES)))
def test_renaming_groups_changes_nothing(order, seed, name):
    """Group g is called order[g] from now on, and its copy stands there."""
    model = Decoupled(BASES[name], N_GROUPS)
    params, X, dlogits = a_batch(model, np.random.default_rng(seed), 30)
    place = np.argsort(order)
    renamed, moved = X.copy(), blocks_of(model, params)[place].ravel()
    renamed[:, -1] = np.array(order)[X[:, -1].astype(int)]
    assert np.array_equal(model.logits(moved, renamed), model.logits(params, X))
    gradient = blocks_of(model, model.clipped_gradient(params, X, dlogits, 0.5))
    other = blocks_of(model, model.clipped_gradient(moved, renamed, dlogits, 0.5))
    assert np.array_equal(other, gradient[place])
