"""A batch with several releases gathers its rows and asks the model once; nothing that it answers changes."""

import numpy as np
import pytest

from fairveil._random import secret_coins, seeded_for_tests
from fairveil.models import LinearSoftmax, Perceptron
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.output_perturbation import RidgeSoftmax
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import Count, CrossEntropy, Decision, Minimizer, one_cell
from fairveil.privacy.records import MemoryRecords, Rows
from fairveil.privacy.veil import Veil, open_veils

MODEL = Perceptron(4, (3,), 3)
N = 300
COUNTS, GRADIENT = Release("counts", "gaussian", 0.0), Release("gradient", "gaussian", 0.0)


def decided(params):
    return Count(one_cell(3), 1, Decision(MODEL, params))


@pytest.fixture
def records(rng, kept):
    X = rng.normal(size=(N, 4)).astype(np.float32)
    return kept(MemoryRecords(X, rng.integers(0, 3, N).astype(np.int16), rng.integers(-1, 2, N).astype(np.int16)))


@pytest.fixture
def params(rng):
    return rng.normal(size=MODEL.n_params).astype(np.float32)


def open_train(records, releases, rate, n_steps=1) -> Veil:
    plan = Plan((Stage("train", releases, 1.0, {-1: rate}, n_steps),), np.inf, 1e-5)
    return open_veils(records, plan, Ledger(), secret_coins(), "a test")["train"]


@pytest.fixture
def asked(monkeypatch):
    """How many rows were gathered and how many went through the model."""
    seen = {"gathered": 0, "forward": 0}
    gather, forward = Rows.__dict__["inputs"].compute, Perceptron.forward

    def counting_gather(rows):
        seen["gathered"] += len(rows)
        return gather(rows)

    def counting_forward(self, params, X):
        seen["forward"] += len(X)
        return forward(self, params, X)

    counting_gather.__name__ = "inputs"
    monkeypatch.setattr(Rows.__dict__["inputs"], "compute", counting_gather)
    monkeypatch.setattr(Perceptron, "forward", counting_forward)
    return seen


def ask_both(batch, params):
    counts = batch.release_counts(decided(params))
    return counts, batch.release_gradient(MODEL, params, CrossEntropy(), 1.0)


def test_two_releases_of_a_batch_gather_and_ask_once(records, params, asked):
    counts, _ = ask_both(open_train(records, (COUNTS, GRADIENT), 0.5).draw(), params)
    assert asked == {"gathered": counts.sum(), "forward": counts.sum()}


def test_every_batch_is_gathered_anew(records, params, asked):
    veil = open_train(records, (COUNTS, GRADIENT), 0.5, n_steps=3)
    sizes = [ask_both(veil.draw(), params)[0].sum() for _ in range(3)]
    assert asked["gathered"] == sum(sizes)


def test_other_parameters_are_computed_anew(records, params, asked):
    batch = open_train(records, (COUNTS, GRADIENT), 0.5).draw()
    counts = batch.release_counts(decided(params))
    batch.release_gradient(MODEL, params.copy(), CrossEntropy(), 1.0)
    assert asked == {"gathered": counts.sum(), "forward": 2 * counts.sum()}


@pytest.mark.parametrize(("releases", "rate"), [((COUNTS, GRADIENT), 1.0), ((COUNTS,), 0.5)])
def test_a_batch_of_everyone_or_of_one_release_keeps_nothing(releases, rate, records):
    assert isinstance(open_train(records, releases, rate).draw()._drawn, np.ndarray)


@pytest.mark.parametrize("block_rows", [16, 2048])
def test_answers_do_not_depend_on_keeping(records, params, block_rows, monkeypatch):
    monkeypatch.setattr("fairveil.privacy.veil.BLOCK_ROWS", block_rows)
    answers = []
    for keeps in (True, False):
        with seeded_for_tests("the same batch"):
            veil = open_train(records, (COUNTS, GRADIENT), 0.5)
        veil.expect(N)
        veil._keeps = keeps
        answers.append(ask_both(veil.draw(), params))
    for kept, fresh in zip(*answers, strict=True):
        assert np.array_equal(kept, fresh)


def test_minimizers_see_the_rows_of_all_kept_blocks(records, monkeypatch):
    def told(ridge, design, y):
        return np.array([len(y), ridge.loss(np.ones(ridge.n_params), design, y)[0]])

    monkeypatch.setattr("fairveil.privacy.queries.minimize_loss", told)
    arranged, query = records.arranged(secret_coins()), Minimizer(RidgeSoftmax(4, 3, 1.0, 0.1, 100.0))
    batch = np.arange(0, N, 2)
    kept = arranged.blocks(batch, 4)
    assert len(kept) == 4
    assert np.array_equal(arranged.answer(kept, query), arranged.answer(batch, query))
    assert np.array_equal(arranged.answer(batch, query, n_blocks=4), arranged.answer(batch, query))
    assert arranged.answer(kept, query)[0] == len(batch)


def test_joint_codes_number_cell_and_label(records):
    rows = Rows(records, np.arange(N))
    codes = rows.joint(3)
    assert np.array_equal(codes, 3 * records.groups.astype(int) + records.y)
    assert rows.joint(3) is codes
    assert np.array_equal(rows.joint(5), 5 * records.groups.astype(int) + records.y)
    table = np.arange(3 * 3)  # two cells and, last, no cell
    without = records.groups < 0
    assert np.array_equal(table[codes][without], 6 + records.y[without])


def test_what_is_kept_cannot_be_written_to(records):
    model = LinearSoftmax(4, 3)
    rows = Rows(records, np.arange(5))
    logits = rows.forward(model, np.zeros(model.n_params, np.float32))[-1]
    with pytest.raises(ValueError, match="read-only"):
        logits += 1
