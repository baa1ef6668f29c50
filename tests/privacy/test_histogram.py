"""Histograms of vectors: each record adds to one cell, and no more than the bound in the norm that is accounted for."""

import re
from dataclasses import dataclass, fields
from typing import ClassVar

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
from fairveil.privacy.queries import (
    PARTS,
    PROBABILITY_SLACK,
    Bin,
    BinPair,
    Count,
    CrossEntropy,
    GradientNorm,
    SoftDecision,
    Sum,
    one_cell,
    row_function,
)
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import BLOCK_ROWS, ROUNDING, open_veils

N_CELLS, N_VALUES = 3, 2


TABLE = np.array([0, 1, 2, -1, -1, -1, -1, -1, -1])[:, None]
"""Group codes 0, 1 and 2 have a cell; 3 to 5 and -3 to -1 have none."""


@row_function
class Inputs:
    """The inputs themselves: whatever stands in a row reaches the bound."""

    depends_on_group: ClassVar[bool] = True
    factor: float = 1.0

    def values_of(self, rows):
        return rows.X.T * np.float32(self.factor)


def inputs(factor=1.0, n_cells=N_CELLS):
    return Sum(TABLE, n_cells, Inputs(factor))


def soft(model, params, table=TABLE, n_cells=N_CELLS):
    """Probabilities by cell: the first use of histograms."""
    return Sum(table, n_cells, SoftDecision(model, params))


def make_records(X, cells):
    X = np.asarray(X, dtype=np.float32)
    return MemoryRecords(X, np.zeros(len(X), np.int16), np.asarray(cells, dtype=np.int16))


def random_records(rng, n=200):
    return make_records(rng.normal(size=(n, N_VALUES)), rng.integers(-2, N_CELLS + 1, n))


def by_loop(records, bound, norm):
    total = np.zeros((N_CELLS, N_VALUES))
    for x, cell in zip(records.X.astype(float), records.groups, strict=True):
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
    total = records.answer(np.arange(200), inputs(), bound, norm)
    assert total.shape == (N_CELLS, N_VALUES)
    assert np.allclose(total, by_loop(records, bound, norm), rtol=1e-5, atol=1e-5 * bound)


@given(
    st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), min_size=N_VALUES, max_size=N_VALUES),
    st.integers(-3, N_CELLS + 2),
    st.sampled_from([1, 2]),
    st.sampled_from([1e-6, 1.0, 1e6]),
)
@settings(max_examples=200)
def test_no_record_adds_more_than_the_bound_and_to_one_cell_only(values, cell, norm, bound):
    one = make_records([values], [cell]).answer(np.arange(1), inputs(), bound, norm)
    assert np.isfinite(one).all()
    assert np.linalg.norm(one.ravel(), norm) <= bound * PROBABILITY_SLACK * (1 + 1e-12)
    assert len({int(q) for q in np.nonzero(one)[0]} - {cell}) == 0


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38, 1e4])
def test_one_bad_record_leaves_the_others_alone(norm, bad, rng):
    records = random_records(rng, n=50)
    spoiled = make_records(np.vstack([records.X, np.full((1, N_VALUES), bad)]), np.append(records.groups, 1))
    without = records.answer(np.arange(50), inputs(), 1.0, norm)
    moved = spoiled.answer(np.arange(51), inputs(), 1.0, norm) - without
    assert np.linalg.norm(moved.ravel(), norm) <= PROBABILITY_SLACK + 1e-12


def test_blocks_add_up(rng, monkeypatch):
    records = random_records(rng)
    whole = records.answer(np.arange(200), inputs(), 1.0, 2)
    monkeypatch.setattr("fairveil.privacy.veil.BLOCK_ROWS", 16)
    batch = open_batch(records, Release("histogram", "gaussian", 0.0), epsilon=np.inf)
    assert np.allclose(batch.release_sums(inputs(), 1.0), whole, rtol=1e-12)


def test_probabilities_stay_as_they_are(rng):
    """Their L1 norm is 1 up to single precision; a bound below it would shrink every count."""
    model = LinearSoftmax(N_VALUES, 5)
    records = random_records(rng)
    params = rng.normal(size=model.n_params).astype(np.float32)
    total = records.answer(np.arange(200), soft(model, params), 1.0, 1)
    counted = (records.groups >= 0) & (records.groups < N_CELLS)
    exact = softmax(model.logits(params, records.X)).astype(np.float64)[:, counted]
    assert total.sum() == pytest.approx(exact.sum(), rel=1e-13)


@pytest.mark.parametrize(("law", "std"), [("gaussian", 3.0), ("laplace", 3.0 * np.sqrt(2))])
def test_noise_is_the_planned_multiple_of_the_bound(law, std, seeded):
    """The sample standard deviation of 6000 cells is within 8 % (four to six standard errors) of the plan's."""
    wide = inputs(n_cells=3000)
    batch = open_batch(make_records(np.zeros((1, 2)), [0]), Release("histogram", law, 3.0))
    noise = batch.release_sums(wide, 0.5)
    assert noise.shape == (3000, 2)
    assert abs(noise.std() / (0.5 * std * ROUNDING) - 1) < 0.08


def test_the_bound_is_in_the_norm_of_the_law(rng):
    records = make_records([[3.0, 4.0]], [0])
    for law, expected in (("gaussian", [0.6, 0.8]), ("laplace", [3 / 7, 4 / 7])):
        batch = open_batch(records, Release("histogram", law, 0.0), epsilon=np.inf)
        assert batch.release_sums(inputs(), 1.0)[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("law", ["discrete_laplace", "discrete_gaussian"])
def test_whole_noise_is_for_counts_only(law):
    batch = open_batch(make_records(np.zeros((1, 2)), [0]), Release("histogram", law, 1.0))
    with pytest.raises(UnplannedReleaseError, match="gaussian or laplace, got discrete"):
        batch.release_sums(inputs(), 1.0)


@pytest.mark.parametrize("bound", [0.0, np.inf, np.nan])
def test_a_bound_is_positive_and_finite(bound):
    batch = open_batch(make_records(np.zeros((1, 2)), [0]), Release("histogram", "gaussian", 1.0))
    with pytest.raises(InvalidParameterError, match="bound > 0"):
        batch.release_sums(inputs(), bound)


def test_nobody_is_a_histogram_of_noise():
    records = make_records(np.zeros((0, N_VALUES)), [])
    assert not records.answer(np.arange(0), inputs(), 1.0, 2).any()
    batch = open_batch(records, Release("histogram", "laplace", 1.0), rate=0.5)
    assert np.isfinite(batch.release_sums(inputs(), 1.0)).all()


@row_function
class Twice(Inputs):
    """Answers with two vectors for each row."""

    def values_of(self, rows):
        return np.repeat(rows.X.T, 2, axis=1)


@row_function
class Uneven(Inputs):
    """Answers with fewer values in blocks of few rows, which would be added to every value of the others."""

    def values_of(self, rows):
        return rows.X.T if len(rows) > 100 else rows.X.T[:1]


@dataclass(frozen=True)
class Stranger(Inputs):
    pass


@row_function
class TwiceCounted:
    """Answers with two codes for each row."""

    def codes_of(self, rows, n_labels):
        return np.zeros(2 * len(rows), dtype=int), 1


def test_values_that_do_not_answer_each_row_once_are_refused(rng):
    batch = open_batch(random_records(rng), Release("histogram", "gaussian", 1.0))
    with pytest.raises(UnplannedReleaseError, match="each row once"):
        batch.release_sums(Sum(TABLE, N_CELLS, Twice()), 1.0)


def test_blocks_that_answer_with_different_shapes_are_refused(rng):
    records = random_records(rng).arranged(secret_coins())
    with pytest.raises(UnplannedReleaseError, match="each row once"):
        blocks = [*records.blocks(np.arange(150), 1), *records.blocks(np.arange(150, 200), 1)]
        records.answer(blocks, Sum(TABLE, N_CELLS, Uneven()), 1.0, 2)


def test_codes_that_do_not_answer_each_row_once_are_refused(rng):
    batch = open_batch(random_records(rng), Release("counts", "gaussian", 1.0))
    with pytest.raises(UnplannedReleaseError, match="each row once"):
        batch.release_counts(Count(TABLE, N_CELLS, TwiceCounted()))


@dataclass(frozen=True)
class LooseSum(Sum):
    """A query of a type that is not registered, made of registered parts."""


def test_queries_and_parts_that_are_not_registered_are_refused(rng):
    batch = open_batch(random_records(rng), Release("histogram", "gaussian", 1.0))
    model, params, edges = LinearSoftmax(2), np.zeros(6, np.float32), np.ones(1, np.float32)
    fine, strange = (Bin(GradientNorm(model, params, part), edges) for part in (CrossEntropy(), Stranger()))
    for query in (LooseSum(TABLE, N_CELLS, Inputs()), Sum(TABLE, N_CELLS, Stranger())):
        with pytest.raises(UnplannedReleaseError, match="row_function"):
            batch.release_sums(query, 1.0)
    for code in (Stranger(), Bin(Stranger(), edges), strange, BinPair(fine, strange), BinPair(strange, fine)):
        with pytest.raises(UnplannedReleaseError, match="row_function"):
            batch.release_counts(Count(TABLE, N_CELLS, code), "histogram")
    with pytest.raises(UnplannedReleaseError, match="row_function"):
        batch.release_gradient(model, params, Stranger(), 1.0, "histogram")
    assert list(batch._open) == ["histogram"]  # refused before anything was released


def test_every_part_of_a_query_is_checked():
    """A field that may hold a row function stands in `PARTS`, so that the veil looks at it."""
    kinds = {"Code", "Values", "Objective", *(cls.__name__ for cls in PARTS)}
    listed = {cls: set(names) for cls, names in PARTS.items() if cls.__module__ == "fairveil.privacy.queries"}
    found = {cls: {one.name for one in fields(cls) if kinds & set(re.findall(r"\w+", str(one.type)))} for cls in listed}
    assert listed == found
    assert sum(map(bool, listed.values())) == 8


def test_rounding_of_probabilities_is_far_below_what_the_noise_covers():
    """One record in front moves every other row of its block by one place, and so the rounding of its logits."""
    rng = np.random.default_rng(0)
    worst = 0.0
    for trial in range(60):
        n_features = (1, 5, 102)[trial % 3]
        model = LinearSoftmax(n_features, 2 + trial % 4)
        X = (0.7 + 0.2 * rng.random((BLOCK_ROWS, n_features))).astype(np.float32)
        weights = 30 * rng.normal(size=(model.n_classes, n_features))
        params = model.pack(weights, -weights @ X.mean(axis=0))
        function = soft(model, params, one_cell(1), 1)
        records, less = make_records(X, np.zeros(BLOCK_ROWS)), make_records(X[1:], np.zeros(BLOCK_ROWS - 1))
        own = softmax(model.logits(params, X[:1]))[:, 0]
        moved = records.answer(np.arange(BLOCK_ROWS), function, 1.0, 1)
        moved -= less.answer(np.arange(BLOCK_ROWS - 1), function, 1.0, 1) + own
        worst = max(worst, float(np.abs(moved).sum()))
    assert worst < (ROUNDING - 1) / 2
