"""The veil: what comes through is bounded, noisy, planned and paid for."""

from dataclasses import FrozenInstanceError, dataclass
from typing import ClassVar

import numpy as np
import pytest

from fairveil._random import secret_coins
from fairveil.accounting.composition import epsilon_of
from fairveil.errors import (
    BadStructureError,
    BudgetExceededError,
    InvalidParameterError,
    UnplannedReleaseError,
)
from fairveil.models import LinearSoftmax, Perceptron
from fairveil.privacy.ledger import Budget, Ledger
from fairveil.privacy.noise import public_scale
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import Count, CrossEntropy, Sum, one_cell, row_function
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import Veil, open_veils


def make_records(rng, n=300, d=6, k=3, persons=None):
    X = rng.normal(size=(n, d)).astype(np.float32)
    y = rng.integers(0, k, n).astype(np.int16)
    cells = rng.integers(-1, 2, n).astype(np.int16)
    return MemoryRecords(X, y, cells, persons)


def plan_of(*releases, rate=1.0, n_steps=1, epsilon=1.0):
    return Plan((Stage("train", releases, 1.0, {-1: rate}, n_steps),), epsilon, 1e-5)


@row_function
class Raw:
    depends_on_group: ClassVar[bool] = True
    factor: float

    def values_of(self, rows):
        return (rows.X * self.factor).T


@dataclass(frozen=True)
class Stranger:
    def codes_of(self, rows, n_labels):
        return np.zeros(len(rows), dtype=int), 1


def open_train(records, plan, ledger=None):
    return open_veils(records, plan, ledger or Ledger(), secret_coins(), "a test")["train"]


QUIET = Release("gradient", "gaussian", 0.0)


@pytest.mark.parametrize("model", [LinearSoftmax(6, 3), Perceptron(6, (5,), 3)])
@pytest.mark.parametrize("block_rows", [2, 7, 4096])
def test_gradients_equal_a_loop_over_records_whatever_the_block(model, block_rows, rng, monkeypatch):
    monkeypatch.setattr("fairveil.privacy.veil.BLOCK_ROWS", block_rows)
    records = make_records(rng)
    params = rng.normal(size=model.n_params).astype(np.float32)
    veil = open_train(records, plan_of(QUIET, epsilon=np.inf))
    veil.expect(300)
    total = veil.draw().release_gradient(model, params, CrossEntropy(), 0.5)
    expected = np.zeros(model.n_params)
    for i in range(len(records.y)):
        logits = model.logits(params, records.X[i : i + 1])[:, 0].astype(float)
        pull = np.exp(logits - logits.max())
        pull /= pull.sum()
        pull[records.y[i]] -= 1
        one = model.clipped_gradient(params, records.X[i : i + 1], pull[:, None].astype(np.float32), np.inf)
        expected += one * min(1, 0.5 / np.linalg.norm(one))
    assert np.allclose(total, expected, atol=1e-5 * len(records.y) ** 0.5, rtol=1e-4)


def test_noise_is_the_planned_multiple_of_the_enforced_bound(seeded, rng):
    """Sample standard deviation of 4000 coordinates is within 7 % (six standard errors) of the plan's."""
    model = LinearSoftmax(999, 4)
    records = MemoryRecords(np.zeros((1, 999), np.float32), np.zeros(1, np.int16), np.zeros(1, np.int16))
    batch = open_train(records, plan_of(Release("gradient", "gaussian", 3.0))).draw()
    noise = batch.release_gradient(model, np.zeros(4000, np.float32), CrossEntropy(), 0.25)
    assert abs(noise.std() / 0.75 - 1.01) < 0.07


def test_noise_follows_the_largest_of_several_clip_norms(seeded, rng):
    model = LinearSoftmax(999, 4)
    records = MemoryRecords(np.zeros((1, 999), np.float32), np.zeros(1, np.int16), np.zeros(1, np.int16))
    batch = open_train(records, plan_of(Release("gradient", "gaussian", 1.0))).draw()
    norms = np.array([0.1, 8.0], dtype=np.float32)
    noise = batch.release_gradient(model, np.zeros(4000, np.float32), CrossEntropy(), norms)
    assert abs(noise.std() / 8 - 1) < 0.07


def test_sums_of_vectors_are_clipped_record_by_record(rng):
    records = make_records(rng, n=40)
    plan = plan_of(Release("histogram", "gaussian", 0.0), epsilon=np.inf)
    total = open_train(records, plan).draw().release_sums(Sum(one_cell(3), 1, Raw(100.0)), 1.0)[0]
    lengths = np.linalg.norm(records.X, axis=1, keepdims=True)
    assert np.allclose(total, (records.X / lengths).sum(axis=0), atol=1e-4)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e38])
def test_one_bad_record_moves_a_sum_by_no_more_than_the_bound(bad, rng):
    records = make_records(rng, n=40)
    spoiled = MemoryRecords(records.X.copy(), records.y, records.groups)
    spoiled.X[0] = bad
    plan = plan_of(Release("histogram", "gaussian", 0.0), epsilon=np.inf)
    sums = [
        open_train(one, plan).draw().release_sums(Sum(one_cell(3), 1, Raw(1e3)), 2.0)[0] for one in (records, spoiled)
    ]
    assert np.linalg.norm(sums[0] - sums[1]) <= 4 + 1e-6
    assert np.isfinite(sums[1]).all()


def test_a_batch_answers_only_what_is_planned_and_once(rng):
    records = make_records(rng)
    veil = open_train(records, plan_of(Release("size", "discrete_laplace", 2.0), n_steps=2))
    batch = veil.draw()
    with pytest.raises(UnplannedReleaseError, match="got 'counts'"):
        batch.release_counts(Count(one_cell(2), 1))
    batch.release_counts(Count(one_cell(2), 1), name="size")
    with pytest.raises(UnplannedReleaseError):
        batch.release_counts(Count(one_cell(2), 1), name="size")
    veil.draw()
    with pytest.raises(UnplannedReleaseError, match="at most 2 draws"):
        veil.draw()


def test_the_law_must_fit_the_release(rng):
    batch = open_train(make_records(rng), plan_of(Release("gradient", "discrete_laplace", 1.0))).draw()
    with pytest.raises(UnplannedReleaseError, match="gaussian"):
        batch.release_gradient(LinearSoftmax(6, 3), np.zeros(21, np.float32), CrossEntropy(), 1.0)


def test_an_unregistered_row_function_is_refused(rng):
    batch = open_train(make_records(rng), plan_of(Release("size", "discrete_laplace", 1.0))).draw()
    with pytest.raises(UnplannedReleaseError, match="row_function"):
        batch.release_counts(Stranger(), name="size")
    with pytest.raises(UnplannedReleaseError, match="row_function"):
        batch.release_counts(Count(one_cell(2), 1, Stranger()), name="size")
    assert list(batch._open) == ["size"]  # refused before anything was released


def test_registered_classes_are_frozen():
    class Loose:
        factor: float = 1.0

    one = row_function(Loose)(2.0)
    with pytest.raises(FrozenInstanceError):
        one.factor = 3.0


def test_an_infinite_clip_norm_needs_an_unnoised_plan(rng):
    batch = open_train(make_records(rng), plan_of(Release("gradient", "gaussian", 1.0))).draw()
    with pytest.raises(InvalidParameterError, match="clip_norm"):
        batch.release_gradient(LinearSoftmax(6, 3), np.zeros(21, np.float32), CrossEntropy(), np.inf)


def test_a_veil_needs_a_receipt(rng):
    with pytest.raises(UnplannedReleaseError, match="receipt"):
        Veil(make_records(rng), plan_of(QUIET).stages[0], None, secret_coins())


def test_the_plan_is_debited_before_the_first_draw(rng):
    plan = plan_of(Release("gradient", "gaussian", 2.0), rate=0.05, n_steps=500)
    ledger = Ledger()
    open_veils(make_records(rng), plan, ledger, secret_coins(), "a test")
    assert ledger.epsilon(1e-5) == pytest.approx(epsilon_of(plan.charges(), 1e-5))
    assert ledger.epsilon(1e-5) == pytest.approx(2.53, abs=0.01)


@pytest.mark.parametrize("touch", ["split", "arranged", "draw", "answer"])
def test_records_are_touched_only_after_the_debit(touch, rng, monkeypatch):
    """Splitting, arranging, drawing and answering each find the debit in the ledger."""
    ledger, n_debits, plain = Ledger(), [], getattr(MemoryRecords, touch)

    def watched(self, *arguments, **options):
        n_debits.append(len(ledger.entries))
        return plain(self, *arguments, **options)

    monkeypatch.setattr(MemoryRecords, touch, watched)
    releases = (Release("size", "discrete_laplace", 1.0),)
    plan = Plan((Stage("train", releases, 0.5), Stage("rest", releases, 0.5)), 1.0, 1e-5)
    veil = open_veils(make_records(rng), plan, ledger, secret_coins(), "a test")["train"]
    veil.draw().release_counts(Count(one_cell(3), 1), name="size")
    assert n_debits and set(n_debits) == {1}


def test_a_refused_debit_opens_no_veil(rng):
    ledger = Ledger(budget=Budget(0.1, 1e-5))
    with pytest.raises(BudgetExceededError):
        open_train(make_records(rng), plan_of(Release("size", "discrete_laplace", 1.0)), ledger)
    assert ledger.entries == ()


def test_seeded_noise_is_recorded_as_not_private(seeded, rng):
    ledger = Ledger()
    open_train(make_records(rng), plan_of(Release("size", "discrete_laplace", 1.0)), ledger)
    assert ledger.epsilon(1e-5) == np.inf


def test_parts_of_a_split_cost_the_larger_one(rng):
    parts = (
        Stage("train", (Release("a", "discrete_laplace", 1 / 0.5),), 0.8),
        Stage("holdout", (Release("b", "discrete_laplace", 1 / 0.9),), 0.2),
        Stage("size", (Release("c", "discrete_laplace", 1 / 0.1),)),
    )
    plan = Plan(parts, 1.0, 1e-5)
    assert epsilon_of(plan.charges(), 1e-9) == pytest.approx(1.0, abs=1e-3)
    ledger = Ledger()
    records = make_records(rng)
    veils = open_veils(records, plan, ledger, secret_coins(), "a test")
    rows = [len(veils[name]._records) for name in ("train", "holdout", "size")]
    assert rows[0] + rows[1] == rows[2] == 300
    assert ledger.epsilon(1e-9) == pytest.approx(1.0, abs=1e-3)


def test_joint_releases_are_priced_together():
    part = Stage("train", (Release("a", "gaussian", 1.0), Release("b", "gaussian", 1.0)), 1.0, {-1: 0.01}, 1000)
    assert epsilon_of([part.event], 1e-5) == pytest.approx(4.48, abs=0.01)


def test_rates_of_cells_are_accounted_at_the_largest():
    part = Stage("train", (Release("a", "gaussian", 2.0),), 1.0, {0: 0.01, 1: 0.05}, 500)
    assert epsilon_of([part.event], 1e-5) == pytest.approx(2.53, abs=0.01)


def test_part_survives_json():
    part = Stage("train", (Release("a", "gaussian", 2.0),), 1.0, {0: 0.01, -1: 0.05}, 500)
    assert Stage.from_dict(part.to_dict()) == part


def test_shares_of_a_plan_must_add_up():
    with pytest.raises(InvalidParameterError, match="add up"):
        Plan((Stage("train", (QUIET,), 0.5),), 1.0, 1e-5)


def test_records_of_unequal_length_are_refused():
    with pytest.raises(BadStructureError, match="equal length"):
        MemoryRecords(np.zeros((2, 1), np.float32), np.zeros(3, np.int16), np.zeros(3, np.int16))


def test_records_do_not_show_themselves(rng):
    assert "private" in repr(make_records(rng))


def test_persons_add_one_row_each(rng):
    persons = np.repeat(np.arange(30), 10)
    veil = open_train(make_records(rng, persons=persons), plan_of(Release("size", "gaussian", 0.0), epsilon=np.inf))
    assert veil.draw().release_counts(Count(one_cell(2), 1), name="size")[0] == 30


def test_empty_records_answer_with_noise_alone(rng):
    records = make_records(rng, n=0)
    batch = open_train(records, plan_of(Release("gradient", "gaussian", 1.0), rate=0.1)).draw()
    total = batch.release_gradient(LinearSoftmax(6, 3), np.zeros(21, np.float32), CrossEntropy(), 1.0)
    assert np.isfinite(total).all()


def test_rates_cannot_be_changed_after_the_debit(rng):
    rates = {-1: 0.01}
    plan = Plan((Stage("train", (Release("size", "gaussian", 0.0),), 1.0, rates),), np.inf, 1e-5)
    veil = open_train(make_records(rng), plan)
    rates[-1] = 1.0
    with pytest.raises(TypeError):
        plan.stages[0].rates[-1] = (-1, 1.0)
    assert veil.draw().release_counts(Count(one_cell(2), 1), name="size")[0] < 100


def test_discrete_scales_are_accounted_as_they_are_used():
    release = Release("size", "discrete_gaussian", 1 / 3)
    assert release.noise_multiplier == float(public_scale(release.noise_multiplier)) != 1 / 3


@pytest.mark.parametrize("size", [0.3, 1e18, 1e300])
def test_a_size_that_was_declared_wrongly_costs_neither_memory_nor_bounds(rng, size):
    """It only fixes the number of blocks; one of 10^18 used to exhaust the memory after the debit."""
    veil = open_train(make_records(rng), plan_of(Release("gradient", "gaussian", 0.0)))
    veil.expect(size)
    model = LinearSoftmax(6, 3)
    found = veil.draw().release_gradient(model, np.zeros(model.n_params, np.float32), CrossEntropy(), 1.0)
    assert 0 < np.linalg.norm(found) <= 300
