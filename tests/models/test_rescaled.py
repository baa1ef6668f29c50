"""Models on rescaled features: clipped in the coordinates they are trained in, whatever rows and parameters hold.

What is seen is written out here: x_seen = A x, with one row of A for each feature at its scale and one for each coarse
bin. Gradients, norms and logits are compared with those of an ordinary loop over these rows in double precision.
"""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairveil.data.coded import CodedRows, Detail
from fairveil.data.encoding import Encoder
from fairveil.data.schema import Category, Number, Schema, Target
from fairveil.errors import InvalidParameterError
from fairveil.models import Decoupled, LinearSoftmax, Perceptron, products
from fairveil.models.base import Known
from fairveil.models.losses import logits_pull
from fairveil.models.rescaled import Rescaled, Rescaling

N = 41
EXCESS = 1 + 1e-5
KERNELS = pytest.mark.skipif(not products.HAS_KERNELS, reason="no compiler was there when fairveil was installed")
SCHEMA = Schema(
    target=Target(column="y", classes=("no", "yes")),
    columns={
        "age": Number(bounds=(0, 10), cuts=(2, 5)), "score": Number(bounds=(-3, 3), encode="scale"),
        "both": Number(bounds=(-3, 3), cuts=(-1, 1), encode="both"), "town": Category(categories=("a", "b", "c")),
    },
    n_public=1000,
)  # fmt: skip
DETAILS = {"coarse": Detail(), "fine": Detail(4), "pairs": Detail(1, 2), "fine and pairs": Detail(4, 3)}
MODELS = {
    "linear": lambda d: LinearSoftmax(d, 2),
    "linear-5-classes": lambda d: LinearSoftmax(d, 5),
    "linear-20-classes": lambda d: LinearSoftmax(d, 20),
    "linear-no-bias": lambda d: LinearSoftmax(d, 2, bias=False),
    "mlp": lambda d: Perceptron(d, (9, 5), 2),
    "mlp-tanh": lambda d: Perceptron(d, (6,), 3, "tanh"),
    "mlp-no-hidden": lambda d: Perceptron(d, (), 3),
}
EXTREMES = [math.nan, math.inf, -math.inf, 1e30, -3e38, 1e-38, 0.0]


@pytest.fixture(params=[pytest.param(True, marks=KERNELS, id="compiled"), pytest.param(False, id="numpy")])
def compiled(request, monkeypatch):
    if not request.param:
        for module in ("products", "linear", "losses"):
            monkeypatch.setattr(f"fairveil.models.{module}.HAS_KERNELS", False)
    return request.param


def table(rng, n=N):
    """Rows with missing cells, numbers out of bounds, infinities and unlisted categories."""
    return pd.DataFrame(
        {
            "age": rng.choice([-5, 0, 1.2, 2, 4.9, 7, 10, 99, np.nan, np.inf], n),
            "score": rng.choice([-9, -1.5, 0, 2, np.nan, -np.inf], n),
            "both": rng.choice([-3, -2.2, -1, 0.3, 1, 2.5, np.nan], n),
            "town": rng.choice(np.array(["a", "b", "c", "d", None], dtype=object), n),
        }
    )


def coded_rows(rng, detail, n=N) -> CodedRows:
    rows = Encoder(SCHEMA, detail).features(table(rng, n))
    return rows[rng.integers(0, n, n)]  # some twice, in another order than the table's


SHAPES = {
    "coded": coded_rows,
    "dense": lambda rng, detail: coded_rows(rng, detail).dense(),
    "anything": lambda rng, detail: rng.normal(size=(N, Encoder(SCHEMA, detail).n_features)).astype(np.float32),
}


def rescaling_for(rng, detail) -> Rescaling:
    """Scales of any size, a coarse feature above every fine bin."""
    levels = Encoder(SCHEMA, detail).levels
    scales = 10 ** rng.uniform(-1.5, 1.0, levels.n_features)
    parent_scales = 10 ** rng.uniform(-1.0, 0.5, levels.n_parents)
    children, parents = (np.array(one, dtype=np.int64) for one in (levels.children, levels.parents))
    return Rescaling(scales, children, parents, parent_scales, np.ones(levels.n_features))


def seen_by(rescaling: Rescaling) -> np.ndarray:
    """The matrix A of what is seen of a row."""
    matrix = np.zeros((rescaling.n_seen, len(rescaling.scales)))
    for feature, scale in enumerate(rescaling.scales):
        matrix[feature, feature] = scale
    for child, parent in zip(rescaling.children, rescaling.parents, strict=True):
        matrix[len(rescaling.scales) + parent, child] = rescaling.parent_scales[parent]
    return matrix


def case(rng, name, detail, shape="coded", scale=1.0):
    """A rescaled model, its matrix, parameters, rows, and derivatives by the logits."""
    rescaling = rescaling_for(rng, DETAILS[detail])
    model = Rescaled(MODELS[name](len(rescaling.scales)), rescaling)
    params = (model.initial(rng) + 0.2 * rng.normal(size=model.n_params)).astype(np.float32)
    pulls = (scale * rng.normal(size=(model.n_classes, N))).astype(np.float32)
    return model, seen_by(rescaling), params, SHAPES[shape](rng, DETAILS[detail]), pulls


def gradients_of(record_gradient, model, matrix, params, X, pulls):
    rows = np.asarray(X, dtype=np.float64) @ matrix.T
    pairs = zip(rows, pulls.T, strict=True)
    return np.array([record_gradient(model.inner, params, row, pull) for row, pull in pairs])


def clipped_sum(gradients, bounds):
    norms = np.linalg.norm(gradients, axis=1)
    return np.minimum(1.0, bounds / np.maximum(norms, 1e-300)) @ gradients


def one(X, pulls, row):
    return X[row : row + 1], np.ascontiguousarray(pulls[:, row : row + 1])


# --- the contract ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize("name", MODELS)
def test_the_sum_equals_a_loop_over_rows_as_they_are_seen(compiled, name, detail, shape, record_gradient, rng):
    model, matrix, params, X, pulls = case(rng, name, detail, shape)
    gradients = gradients_of(record_gradient, model, matrix, params, X, pulls)
    norms = np.linalg.norm(gradients, axis=1)
    np.testing.assert_allclose(model.gradient_norms(params, X, pulls), norms, rtol=1e-4)
    median = float(np.median(norms))  # so that half of the records are clipped
    each = rng.choice([0.3 * median, median, math.inf], N).astype(np.float32)
    for bound in (median, math.inf, each):
        expected = clipped_sum(gradients, np.asarray(bound, dtype=np.float64))
        found = model.clipped_gradient(params, X, pulls, bound)
        assert found.dtype == np.float64 and found.shape == (model.n_params,)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5 * np.linalg.norm(expected))


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize("name", MODELS)
def test_the_plain_model_has_the_same_logits(compiled, name, detail, rng):
    model, matrix, params, X, _ = case(rng, name, detail)
    logits = model.logits(params, X)
    assert np.array_equal(model.base.logits(model.plain(params), X), logits)
    seen = np.asarray(X, dtype=np.float64) @ matrix.T
    np.testing.assert_allclose(model.inner.logits(params.astype(np.float64), seen), logits, atol=5e-5, rtol=1e-4)


@KERNELS
@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize("name", ["linear", "linear-no-bias"])
def test_one_pass_over_the_rows_gives_what_its_parts_give(name, detail, rng):
    model, _, params, X, _ = case(rng, name, detail)
    y = rng.integers(0, 2, N).astype(np.int16)
    for bound in (0.3, 5.0, math.inf, rng.uniform(0.1, 9, N).astype(np.float32)):
        expected = model.clipped_gradient(params, X, logits_pull(model.logits(params, X), y[X.index]), bound)
        found = model.clipped_loss_gradient(params, X, y, bound)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    assert model.clipped_loss_gradient(params, X.dense(), y, 1.0) is None


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_copies_for_each_group_are_rescaled_each(compiled, name, detail, record_gradient, rng):
    base, matrix, _, X, pulls = case(rng, name, detail)
    model = Decoupled(base, 2)
    params = (model.initial(rng) + 0.2 * rng.normal(size=model.n_params)).astype(np.float32)
    groups = rng.integers(-1, 2, N)
    expected = []
    for group, copy in enumerate(params.reshape(2, -1)):
        own = groups == group
        gradients = gradients_of(record_gradient, base, matrix, copy, np.asarray(X)[own], pulls[:, own])
        expected.append(clipped_sum(gradients, 2.0))
    rows, plain = X.with_number(groups), Decoupled(base.base, 2)
    found = model.clipped_gradient(params, rows, pulls, 2.0)
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(plain.logits(model.plain(params), rows), model.logits(params, rows), atol=1e-6)


# --- the bound ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", MODELS)
def test_no_record_exceeds_its_clip_norm(compiled, name, shape, rng):
    """In the coordinates that noise is added in, at every size of pulls; nearly reached where they are large."""
    for scale in (1e-30, 1e-3, 1.0, 1e6, 1e15):
        model, _, params, X, pulls = case(rng, name, "fine and pairs", shape, scale)
        for row in range(0, N, 8):
            for bound in (1e-6, 1.0, 1e3):
                for own in (bound, np.array([bound], np.float32)):
                    norm = np.linalg.norm(model.clipped_gradient(params, *one(X, pulls, row), own))
                    assert norm <= bound * EXCESS
                    assert norm >= bound * (1 - 1e-4) or scale != 1e6


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", MODELS)
def test_the_bound_holds_for_extreme_parameters_and_pulls(compiled, name, shape, rng):
    model, _, params, X, pulls = case(rng, name, "fine and pairs", shape)
    for value in EXTREMES:
        wild, pulled = params.copy(), pulls.copy()
        wild[rng.random(len(wild)) < 0.3] = value
        pulled[0] = value
        for own_params, own_pulls in ((wild, pulls), (params, pulled), (wild, pulled)):
            for row in range(0, N, 13):
                gradient = model.clipped_gradient(own_params, *one(X, own_pulls, row), 0.5)
                assert np.isfinite(gradient).all()
                assert np.linalg.norm(gradient) <= 0.5 * EXCESS
            assert np.isfinite(model.clipped_gradient(own_params, X, own_pulls, 0.5)).all()
            assert not np.isnan(model.gradient_norms(own_params, X, own_pulls)).any()


@pytest.mark.parametrize("value", EXTREMES)
@pytest.mark.parametrize("name", MODELS)
def test_a_dense_row_that_holds_anything_keeps_its_bound(name, value, rng):
    """One entry, or a whole row, of any size; what other rows add stays as it is."""
    model, _, params, X, pulls = case(rng, name, "fine", "anything")
    rest = np.arange(2, N)
    without = model.clipped_gradient(params, X[rest], np.ascontiguousarray(pulls[:, rest]), 0.5)
    X[0, rng.integers(X.shape[1])] = X[1] = value
    added = np.zeros(model.n_params)
    for row in (0, 1):
        alone = model.clipped_gradient(params, *one(X, pulls, row), 0.5)
        assert np.isfinite(alone).all() and np.linalg.norm(alone) <= 0.5 * EXCESS
        added += alone
    np.testing.assert_allclose(model.clipped_gradient(params, X, pulls, 0.5) - added, without, atol=2e-5)


@pytest.mark.parametrize("size", [1e-25, 1e-19, 1e-9, 1e9, 1e19, 1e25])
@pytest.mark.parametrize("name", ["linear", "linear-no-bias", "mlp"])
def test_the_bound_holds_where_scales_and_entries_are_far_from_1(name, size, rng):
    """Their product is about 1, and neither factor is lost by itself: squares of such scales are no float32."""
    model, _, params, X, pulls = case(rng, name, "fine", "anything")
    own = model.rescaling
    scaled = Rescaling(own.scales * size, own.children, own.parents, own.parent_scales * size, own.counts)
    model = Rescaled(model.base, scaled)
    X = (X / size).astype(np.float32)
    for row in range(0, N, 5):
        assert np.linalg.norm(model.clipped_gradient(params, *one(X, pulls, row), 1e-3)) <= 1e-3 * EXCESS


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, 1e-40])
def test_a_bound_of_one_record_that_is_none_adds_nothing(compiled, bound, rng):
    for name in MODELS:
        model, _, params, X, pulls = case(rng, name, "fine")
        assert not model.clipped_gradient(params, *one(X, pulls, 0), np.full(1, bound, np.float32)).any()


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(-30, 30), bound=st.floats(1e-6, 1e6))
def test_no_coded_row_exceeds_its_bound_at_any_scales(seed, scale, bound):
    rng = np.random.default_rng(seed)
    for name in MODELS:
        model, _, params, X, pulls = case(rng, name, "fine and pairs", scale=10.0**scale)
        for row in range(0, N, 10):
            assert np.linalg.norm(model.clipped_gradient(params, *one(X, pulls, row), bound)) <= bound * EXCESS


@KERNELS
@pytest.mark.parametrize("name", MODELS)
def test_what_a_row_adds_does_not_depend_on_others(name, rng):
    model, _, params, X, pulls = case(rng, name, "fine and pairs")
    whole = model.clipped_gradient(params, X, pulls, 1.0)
    is_in_double = isinstance(model.base, LinearSoftmax) and model.n_classes <= products.MOST_CLASSES
    for row in (0, 20, N - 1):
        rest = np.delete(np.arange(N), row)
        without = model.clipped_gradient(params, X[rest], np.ascontiguousarray(pulls[:, rest]), 1.0)
        alone = model.clipped_gradient(params, *one(X, pulls, row), 1.0)
        assert np.linalg.norm(whole - without - alone) <= (1e-12 if is_in_double else 3e-5)


# --- broken twins ---------------------------------------------------------------------------------------------------


class UnscaledNorm(Rescaling):
    """A twin that clips by the norm of the row itself."""

    @property
    def squares(self):
        return np.ones(len(self.scales))


class SeparateChildren(Rescaled):
    """A twin that takes every dense row to be one-hot: two fine bins of one coarse bin count apart."""

    def _known(self, X, known):
        norms = np.sqrt(np.square(X, dtype=np.float64) @ self.rescaling.squares)
        return Known(known.activations, norms.astype(np.float32))


class FoldedAsNetwork(Rescaled):
    """A twin that takes the classes of a network without hidden layers for its features."""

    @property
    def _is_transposed(self):
        return isinstance(self.base, Perceptron)


def largest(model, params, X, pulls):
    return max(np.linalg.norm(model.clipped_gradient(params, *one(X, pulls, row), 1e-2)) for row in range(N))


@pytest.mark.parametrize("name", MODELS)
def test_a_norm_of_the_unscaled_row_breaks_the_bound(compiled, name, rng):
    model, _, params, X, pulls = case(rng, name, "fine and pairs")
    own = model.rescaling
    facts = (own.scales, own.children, own.parents, own.parent_scales, own.counts)
    assert largest(model, params, X, pulls) <= 1e-2 * EXCESS
    assert largest(Rescaled(model.base, UnscaledNorm(*facts)), params, X, pulls) > 1.2e-2


def test_children_that_count_apart_break_the_bound(rng):
    model, _, params, X, pulls = case(rng, "linear", "fine", "anything")
    X[:] = 0
    X[:, model.rescaling.children] = 10
    assert largest(model, params, X, pulls) <= 1e-2 * EXCESS
    assert largest(SeparateChildren(model.base, model.rescaling), params, X, pulls) > 1.1e-2


def test_classes_taken_for_features_break_the_bound(compiled, rng):
    model, _, params, X, pulls = case(rng, "mlp-no-hidden", "fine")
    assert largest(model, params, X, pulls) <= 1e-2 * EXCESS
    assert largest(FoldedAsNetwork(model.base, model.rescaling), params, X, pulls) > 1.2e-2


def test_dense_rows_with_squares_in_place_of_norms_are_refused(rng):
    model, _, params, X, pulls = case(rng, "linear", "fine", "dense")
    with pytest.raises(InvalidParameterError, match="norms of dense rows"):
        model.base.clipped_gradient(params, X, pulls, 1.0, Known(squares=model.rescaling.squares))


# --- algebra --------------------------------------------------------------------------------------------------------


@st.composite
def rescalings(draw):
    sizes = draw(st.lists(st.integers(1, 5), max_size=6))
    n_rest = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_features = sum(sizes) + n_rest
    # powers of two: in single precision they are what they are in double precision
    scales, parent_scales = (2.0 ** rng.integers(-6, 6, size) for size in (n_features, len(sizes)))
    children = np.sort(rng.choice(n_features, sum(sizes), replace=False))
    parents = np.repeat(np.arange(len(sizes)), sizes)
    return Rescaling(scales, children, parents, parent_scales, np.ones(n_features)), rng


@given(case=rescalings(), n_rows=st.integers(1, 3))
def test_folding_and_unfolding_are_adjoint(case, n_rows):
    """<fold(theta), g> = <theta, unfold(g)>: the gradient by theta is that by the weights, unfolded."""
    own, rng = case
    theta = rng.integers(-9, 9, (n_rows, own.n_seen)).astype(np.float32)
    gradient = rng.integers(-9, 9, (n_rows, len(own.scales))).astype(np.float64)
    assert (own.fold(theta).astype(np.float64) * gradient).sum() == (theta * own.unfold(gradient)).sum()
    matrix = seen_by(own)
    assert np.array_equal(own.unfold(gradient), gradient @ matrix.T)
    assert np.array_equal(own.fold(theta), theta @ matrix)


@given(case=rescalings())
def test_squares_are_the_columns_of_what_is_seen(case):
    own, _ = case
    np.testing.assert_allclose(own.squares, np.square(seen_by(own)).sum(axis=0), rtol=1e-15)
