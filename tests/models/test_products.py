"""Coded rows give what dense rows give, compiled or not; each row by itself, to the last bit."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairveil.data.coded import CodedRows, Layout
from fairveil.models import Decoupled, LinearSoftmax, Perceptron, products
from fairveil.models.losses import _plain_pull, _plain_tilted_pull, logits_pull, tilted_pull
from fairveil.models.row_stable import row_stable_forward, row_stable_inputs, row_stable_logits

N = 137
N_LEVELS = (5, 9, 3, 2, 300)
KERNELS = pytest.mark.skipif(not products.HAS_KERNELS, reason="no compiler was there when fairveil was installed")


def made_up(rng, n=N, with_numbers=True, wide=False):
    """Rows of a table, some of them twice, in another order than the table's."""
    n_levels = N_LEVELS if wide else N_LEVELS[:-1]
    first = np.cumsum([0, *n_levels])
    is_number = [with_numbers and level == 2 for level in n_levels]
    scaled = [int(first[3]), int(first[-1])] if with_numbers else []
    layout = Layout(int(first[-1]) + with_numbers, first[:-1].tolist(), n_levels, is_number, scaled)
    codes = rng.integers(0, n_levels, (n, len(n_levels))).astype(layout.code_type)
    rows = CodedRows(layout, codes, rng.uniform(-1, 1, (n, len(scaled))).astype(np.float32))
    return rows[rng.integers(0, n, n)]


MODELS = {
    "linear": lambda d: LinearSoftmax(d, 2),
    "linear-5-classes": lambda d: LinearSoftmax(d, 5),
    "linear-20-classes": lambda d: LinearSoftmax(d, 20),
    "linear-no-bias": lambda d: LinearSoftmax(d, 3, bias=False),
    "mlp": lambda d: Perceptron(d, (64, 64), 2),
    "mlp-odd": lambda d: Perceptron(d, (33, 7, 100), 5),
    "mlp-one": lambda d: Perceptron(d, (1,), 2),
    "mlp-tanh": lambda d: Perceptron(d, (20,), 3, "tanh"),
    "mlp-no-hidden": lambda d: Perceptron(d, (), 3),
}


@pytest.fixture(params=[pytest.param(True, marks=KERNELS, id="compiled"), pytest.param(False, id="numpy")])
def compiled(request, monkeypatch):
    if not request.param:
        for module in ("products", "linear", "losses"):
            monkeypatch.setattr(f"fairveil.models.{module}.HAS_KERNELS", False)
    return request.param


@pytest.fixture(params=sorted(MODELS))
def name(request):
    return request.param


@pytest.fixture(params=["codes", "codes and numbers", "two bytes"])
def X(request, rng):
    return made_up(rng, with_numbers=request.param == "codes and numbers", wide=request.param == "two bytes")


def params_of(model, rng):
    return (model.initial(rng) + 0.3 * rng.normal(size=model.n_params)).astype(np.float32)


def test_coded_rows_give_what_dense_rows_give(compiled, name, X, rng):
    model = MODELS[name](X.shape[1])
    params, pulls = params_of(model, rng), rng.normal(size=(model.n_classes, N)).astype(np.float32)
    for one, other in zip(model.forward(params, X), model.forward(params, X.dense()), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    np.testing.assert_allclose(
        model.gradient_norms(params, X, pulls), model.gradient_norms(params, X.dense(), pulls), rtol=1e-5
    )
    for bound in (0.7, math.inf, rng.uniform(0.1, 2, N).astype(np.float32)):
        gradient = model.clipped_gradient(params, X, pulls, bound)
        expected = model.clipped_gradient(params, X.dense(), pulls, bound)
        np.testing.assert_allclose(gradient, expected, atol=2e-6 * max(1.0, np.abs(expected).max()))
        assert gradient.dtype == np.float64


def test_copies_for_each_group_read_codes(compiled, X, rng):
    model = Decoupled(Perceptron(X.shape[1], (8,), 2), 3)
    X = X.with_number(rng.integers(-1, 3, N))
    params, pulls = params_of(model, rng), rng.normal(size=(2, N)).astype(np.float32)
    np.testing.assert_allclose(model.logits(params, X), model.logits(params, X.dense()), atol=1e-5)
    np.testing.assert_allclose(
        model.clipped_gradient(params, X, pulls, 0.7), model.clipped_gradient(params, X.dense(), pulls, 0.7), atol=1e-5
    )


def test_a_row_is_computed_by_itself_to_the_last_bit(compiled, name, X, rng):
    """Alone, in a block, in another order: the same bits. Matrix products of dense rows do not have this."""
    if name.startswith("mlp") and (not compiled or "tanh" in name):
        pytest.skip("hidden layers of NumPy are matrix products; row_stable_forward is for them")
    model = MODELS[name](X.shape[1])
    params = params_of(model, rng)
    together = model.forward(params, X)
    order = rng.permutation(N)
    for one, other in zip(model.forward(params, X[order])[:-1], together[:-1], strict=True):
        assert np.array_equal(one, other[order])
    assert np.array_equal(model.forward(params, X[order])[-1], together[-1][:, order])
    for row in range(0, N, 17):
        assert np.array_equal(model.forward(params, X[row : row + 1])[-1][:, 0], together[-1][:, row])


@KERNELS
def test_what_a_row_adds_does_not_depend_on_others(name, X, rng):
    """Sums are in double precision: with and without a row they differ by what the row adds, to 1e-6 of its bound."""
    model = MODELS[name](X.shape[1])
    params, pulls = params_of(model, rng), rng.normal(size=(model.n_classes, N)).astype(np.float32)
    whole = model.clipped_gradient(params, X, pulls, 1.0)
    for row in (0, 50, N - 1):
        rest = np.delete(np.arange(N), row)
        without = model.clipped_gradient(params, X[rest], np.ascontiguousarray(pulls[:, rest]), 1.0)
        alone = model.clipped_gradient(params, X[row : row + 1], np.ascontiguousarray(pulls[:, row : row + 1]), 1.0)
        assert np.linalg.norm(alone) <= 1.0
        is_in_double = isinstance(model, LinearSoftmax) and model.n_classes <= products.MOST_CLASSES
        tolerance = 1e-12 if is_in_double else 1e-5
        assert np.linalg.norm(whole - without - alone) <= tolerance


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_a_row_that_is_not_finite_adds_nothing(compiled, name, bad, rng):
    X = made_up(rng, 40)
    model = MODELS[name](X.shape[1])
    params, pulls = params_of(model, rng), rng.normal(size=(model.n_classes, 40)).astype(np.float32)
    rest = np.arange(1, 40)
    expected = model.clipped_gradient(params, X[rest], np.ascontiguousarray(pulls[:, rest]), 0.5)
    pulls[0, 0] = bad
    found = model.clipped_gradient(params, X, pulls, 0.5)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(-30, 30), bound=st.floats(1e-6, 1e6))
def test_no_row_exceeds_its_bound(seed, scale, bound):
    rng = np.random.default_rng(seed)
    X = made_up(rng, 8)
    for name in ("linear", "linear-5-classes", "mlp", "mlp-odd"):
        model = MODELS[name](X.shape[1])
        pulls = (10.0**scale * rng.normal(size=(model.n_classes, 8))).astype(np.float32)
        params = params_of(model, rng)
        for row in range(8):
            one = np.ascontiguousarray(pulls[:, row : row + 1])
            assert np.linalg.norm(model.clipped_gradient(params, X[row : row + 1], one, bound)) <= bound * (1 + 1e-5)


def test_row_stable_functions_read_codes(compiled, name, X, rng):
    model = MODELS[name](X.shape[1])
    params = params_of(model, rng)
    np.testing.assert_allclose(
        row_stable_logits(model, params, X), row_stable_logits(model, params, X.dense()), atol=1e-6
    )
    for one, other in zip(
        row_stable_forward(model, params, X), row_stable_forward(model, params, X.dense()), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-5)
    np.testing.assert_allclose(
        row_stable_inputs(model, params, X), row_stable_inputs(model, params, X.dense()), atol=1e-6
    )
    one, other = row_stable_logits(model, params, X), row_stable_logits(model, params, X[::-1])
    assert np.array_equal(one, other[:, ::-1])


@KERNELS
def test_empty_batches_add_nothing(name, rng):
    X = made_up(rng, 5)[:0]
    model = MODELS[name](X.shape[1])
    params = params_of(model, rng)
    assert model.forward(params, X)[-1].shape == (model.n_classes, 0)
    assert not model.clipped_gradient(params, X, np.zeros((model.n_classes, 0), np.float32), 1.0).any()


@KERNELS
def test_neither_codes_nor_row_numbers_lead_outside_the_table(rng):
    """Codes beyond their levels and row numbers beyond the table read the last ones."""
    X = made_up(rng, 50, with_numbers=False)
    wild = CodedRows(X.layout, np.full((50, 4), 255, np.uint8), X.numbers, np.array([0, 49, 10**12, -1]))
    model = Perceptron(X.shape[1], (16,), 2)
    params = params_of(model, rng)
    last = model.forward(params, wild)[-1]
    assert np.isfinite(last).all() and (last == last[:, :1]).all()
    gradient = model.clipped_gradient(params, wild, np.ones((2, 4), np.float32), 1.0)
    assert np.isfinite(gradient).all()


@KERNELS
@pytest.mark.parametrize("place, value", [(0, np.zeros((5, 3), np.int64)), (2, np.zeros((3, 2), np.int32)), (5, None)])
def test_arguments_of_other_types_and_shapes_are_refused(place, value, rng):
    X = made_up(rng, 5, with_numbers=False)
    arguments = [*products._arguments(X), np.zeros((2, X.shape[1]), np.float32), None, np.zeros((2, 5), np.float32)]
    products._kernels.class_sums(*arguments)
    arguments[place] = value
    with pytest.raises((ValueError, TypeError)):
        products._kernels.class_sums(*arguments)


@KERNELS
@pytest.mark.parametrize("bias", [True, False])
def test_one_pass_over_the_rows_gives_what_its_parts_give(X, bias, rng):
    model = LinearSoftmax(X.shape[1], 2, bias=bias)
    params, table = (
        params_of(model, rng),
        rng.integers(0, 2, 3 * N).astype(np.int16)[::3],
    )  # of packed rows: not adjacent
    y = table[X.index]
    for bound in (0.3, 5.0, math.inf, rng.uniform(0.1, 2, N).astype(np.float32)):
        expected = model.clipped_gradient(params, X, logits_pull(model.logits(params, X), y), bound)
        np.testing.assert_allclose(model.clipped_loss_gradient(params, X, table, bound), expected, atol=1e-6)
    assert model.clipped_loss_gradient(params, X.dense(), y, 1.0) is None
    params[0] = np.nan  # rows with a 1 there add nothing, all others what they did
    found = model.clipped_loss_gradient(params, X, table, 0.3)
    assert np.isfinite(found).all() and found.any()


@KERNELS
@pytest.mark.parametrize("temperature", [1.0, 2.5, -1.0])
def test_slopes_of_two_classes_are_those_of_numpy(temperature, rng):
    logits = (rng.normal(size=(2, 5000)) * np.repeat([1, 10, 60, 1e3, 1e30], 1000)).astype(np.float32)
    logits[:, :4] = [[np.nan, np.inf, 0, np.inf], [0, 0, np.inf, np.inf]]
    y, tilts = rng.integers(0, 2, 5000).astype(np.int16), rng.normal(size=(4, 2)).astype(np.float32)
    places = rng.integers(-2, 4, 5000)
    np.testing.assert_allclose(logits_pull(logits, y), _plain_pull(logits, y), atol=5e-7)
    np.testing.assert_allclose(
        tilted_pull(logits, y, tilts, places, temperature),
        _plain_tilted_pull(logits, y, tilts, places, temperature),
        atol=2e-6,
    )
