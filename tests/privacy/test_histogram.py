"""Histograms of vectors: each record adds to one cell, and no more than the bound in the norm that is accounted for."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairveil._random import secret_coins
from fairveil.errors import InvalidParameterError, UnplannedReleaseError
from fairveil.models import LinearSoftmax
from fairveil.models.losses import softmax
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.records import LEEWAY, MemoryRecords
from fairveil.privacy.rows import HistogramFunction, row_function
from fairveil.privacy.veil import BLOCK_ROWS, ROUNDING, open_veils

N_CELLS, N_VALUES = 3, 2


@row_function
@dataclass(frozen=True)
class Inputs:
    """The inputs themselves, by cell: whatever stands in a row reaches the bound."""

    n_cells: int = N_CELLS
    n_values: int = N_VALUES
    factor: float = 1.0

    def cells_of(self, rows):
        return rows.cells

    def values_of(self, rows):
        return rows.X.T * np.float32(self.factor)


@row_function
@dataclass(frozen=True, eq=False)
class Soft:
    """Probabilities by cell: the first user of histograms."""

    model: LinearSoftmax
    params: np.ndarray
    n_cells: int = N_CELLS

    @property
    def n_values(self):
        return self.model.n_classes

    def cells_of(self, rows):
        return rows.cells

    def values_of(self, rows):
        return softmax(rows.forward(self.model, self.params)[-1])


def make_records(X, cells):
    X = np.asarray(X, dtype=np.float32)
    return MemoryRecords(X, np.zeros(len(X), np.int16), np.asarray(cells, dtype=np.int16))


def random_records(rng, n=200):
    return make_records(rng.normal(size=(n, N_VALUES)), rng.integers(-2, N_CELLS + 1, n))


def by_loop(records, bound, norm):
    total = np.zeros((N_CELLS, N_VALUES))
    for x, cell in zip(records.X.astype(float), records.cells, strict=True):
        if 0 <= cell < N_CELLS and np.isfinite(x).all():
            total[cell] += x * min(1.0, bound / np.linalg.norm(x, norm))
    return total


def open_batch(records, *releases, epsilon=1.0, rate=1.0):
    part = Stage("train", releases, 1.0, {-1: rate}, 1)
    veil = open_veils(records, Plan((part,), epsilon, 1e-5), Ledger(), secret_coins(), "a test")["train"]
    veil.expect(len(records.y))
    return veil.draw()


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("bound", [0.3, 2.0, 1e3])
def test_sums_equal_a_loop_over_records(norm, bound, rng):
    records = random_records(rng)
    records.X[7] = np.nan
    records.X[8, 0] = np.inf
    total = records.sum_histogram(np.arange(200), Inputs(), bound, norm)
    assert total.shape == (N_CELLS, N_VALUES)
    assert np.allclose(total, by_loop(records, bound, norm), rtol=1e-5, atol=1e-5 * bound)


@given(
    st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), min_size=N_VALUES, max_size=N_VALUES),
    st.integers(-3, N_CELLS + 2),
    st.sampled_from([1, 2]),
    st.sampled_from([1e-6, 1.0, 1e6]),
)
@settings(max_examples=200, deadline=None)
def test_no_record_adds_more_than_the_bound_and_to_one_cell_only(values, cell, norm, bound):
    one = make_records([values], [cell]).sum_histogram(np.arange(1), Inputs(), bound, norm)
    assert np.isfinite(one).all()
    assert np.linalg.norm(one.ravel(), norm) <= bound * LEEWAY * (1 + 1e-12)
    assert len({int(q) for q in np.nonzero(one)[0]} - {cell}) == 0


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38, 1e4])
def test_one_bad_record_leaves_the_others_alone(norm, bad, rng):
    records = random_records(rng, n=50)
    spoiled = make_records(np.vstack([records.X, np.full((1, N_VALUES), bad)]), np.append(records.cells, 1))
    without = records.sum_histogram(np.arange(50), Inputs(), 1.0, norm)
    moved = spoiled.sum_histogram(np.arange(51), Inputs(), 1.0, norm) - without
    assert np.linalg.norm(moved.ravel(), norm) <= LEEWAY + 1e-12


def test_blocks_add_up(rng, monkeypatch):
    records = random_records(rng)
    whole = records.sum_histogram(np.arange(200), Inputs(), 1.0, 2)
    monkeypatch.setattr("fairveil.privacy.veil.BLOCK_ROWS", 16)
    batch = open_batch(records, Release("histogram", "gaussian", 0.0), epsilon=np.inf)
    assert np.allclose(batch.release_histogram(Inputs(), 1.0), whole, rtol=1e-12)


def test_probabilities_stay_as_they_are(rng):
    """Their L1 norm is 1 up to single precision; a bound below it would shrink every count."""
    model = LinearSoftmax(N_VALUES, 5)
    records = random_records(rng)
    function = Soft(model, rng.normal(size=model.n_params).astype(np.float32))
    total = records.sum_histogram(np.arange(200), function, 1.0, 1)
    counted = (records.cells >= 0) & (records.cells < N_CELLS)
    exact = softmax(model.logits(function.params, records.X)).astype(np.float64)[:, counted]
    assert total.sum() == pytest.approx(exact.sum(), rel=1e-13)


@pytest.mark.parametrize(("law", "std"), [("gaussian", 3.0), ("laplace", 3.0 * np.sqrt(2))])
def test_noise_is_the_planned_multiple_of_the_bound(law, std, seeded):
    """The sample standard deviation of 6000 cells is within 8 % (four to six standard errors) of the plan's."""
    wide = replace(Inputs(), n_cells=3000)
    batch = open_batch(make_records(np.zeros((1, 2)), [0]), Release("histogram", law, 3.0))
    noise = batch.release_histogram(wide, 0.5)
    assert noise.shape == (3000, 2)
    assert abs(noise.std() / (0.5 * std * ROUNDING) - 1) < 0.08


def test_the_bound_is_in_the_norm_of_the_law(rng):
    records = make_records([[3.0, 4.0]], [0])
    for law, expected in (("gaussian", [0.6, 0.8]), ("laplace", [3 / 7, 4 / 7])):
        batch = open_batch(records, Release("histogram", law, 0.0), epsilon=np.inf)
        assert batch.release_histogram(Inputs(), 1.0)[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("law", ["discrete_laplace", "discrete_gaussian"])
def test_whole_noise_is_for_counts_only(law):
    batch = open_batch(make_records(np.zeros((1, 2)), [0]), Release("histogram", law, 1.0))
    with pytest.raises(UnplannedReleaseError, match="gaussian or laplace, got discrete"):
        batch.release_histogram(Inputs(), 1.0)


@pytest.mark.parametrize("bound", [0.0, np.inf, np.nan])
def test_a_bound_is_positive_and_finite(bound):
    batch = open_batch(make_records(np.zeros((1, 2)), [0]), Release("histogram", "gaussian", 1.0))
    with pytest.raises(InvalidParameterError, match="bound > 0"):
        batch.release_histogram(Inputs(), bound)


def test_nobody_is_a_histogram_of_noise():
    records = make_records(np.zeros((0, N_VALUES)), [])
    assert not records.sum_histogram(np.arange(0), Inputs(), 1.0, 2).any()
    batch = open_batch(records, Release("histogram", "laplace", 1.0), rate=0.5)
    assert np.isfinite(batch.release_histogram(Inputs(), 1.0)).all()


@row_function
@dataclass(frozen=True)
class Twice(Inputs):
    """Answers with one row of values, which would be added to every value."""

    def values_of(self, rows):
        return rows.X.T[:1]


@row_function
@dataclass(frozen=True)
class Doubled(Inputs):
    def cells_of(self, rows):
        return np.repeat(rows.cells, 2)


@dataclass(frozen=True)
class Stranger(Inputs):
    pass


@pytest.mark.parametrize(
    ("function", "message"),
    [(Twice(), "each row once"), (Doubled(), "each row once"), (Stranger(), "row_function")],
)
def test_functions_that_answer_wrongly_or_are_not_registered_are_refused(function, message, rng):
    batch = open_batch(random_records(rng), Release("histogram", "gaussian", 1.0))
    with pytest.raises(UnplannedReleaseError, match=message):
        batch.release_histogram(function, 1.0)


def test_the_protocol_is_what_a_function_offers():
    assert isinstance(Inputs(), HistogramFunction)
    assert not isinstance(object(), HistogramFunction)


def test_rounding_of_probabilities_is_far_below_what_the_noise_covers():
    """One record in front moves every other row of its block by one place, and so the rounding of its logits."""
    rng = np.random.default_rng(0)
    worst = 0.0
    for trial in range(60):
        n_features = (1, 5, 102)[trial % 3]
        model = LinearSoftmax(n_features, 2 + trial % 4)
        X = (0.7 + 0.2 * rng.random((BLOCK_ROWS, n_features))).astype(np.float32)
        weights = 30 * rng.normal(size=(model.n_classes, n_features))
        function = Soft(model, model.pack(weights, -weights @ X.mean(axis=0)), n_cells=1)
        records, less = make_records(X, np.zeros(BLOCK_ROWS)), make_records(X[1:], np.zeros(BLOCK_ROWS - 1))
        own = softmax(model.logits(function.params, X[:1]))[:, 0]
        moved = records.sum_histogram(np.arange(BLOCK_ROWS), function, 1.0, 1)
        moved -= less.sum_histogram(np.arange(BLOCK_ROWS - 1), function, 1.0, 1) + own
        worst = max(worst, float(np.abs(moved).sum()))
    assert worst < (ROUNDING - 1) / 2
