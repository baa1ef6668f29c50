"""Does one unit leave the others alone, bit for bit? Secret order, blocks by key, and rounding."""

import numpy as np
import pytest

from fairveil._random import secret_coins
from fairveil.models import LinearSoftmax
from fairveil.privacy.queries import CrossEntropy, GradientSum
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import BLOCK_ROWS, ROUNDING


def make_records(rng, n=400, persons=None):
    X = rng.normal(size=(n, 6)).astype(np.float32)
    return MemoryRecords(X, rng.integers(0, 3, n).astype(np.int16), np.zeros(n, np.int16), persons)


@pytest.mark.parametrize("persons", [None, np.repeat(np.arange(200), 2)])
def test_one_unit_changes_one_block_and_no_other_bit(rng, persons):
    records = make_records(rng, persons=persons).arranged(secret_coins())
    everyone = np.arange(400)
    gone = everyone == 123 if persons is None else records.persons == records.persons[123]
    kept = np.flatnonzero(~gone)
    less = MemoryRecords(records.X[kept], records.y[kept], records.groups[kept], keys=records.keys[kept])
    blocks = zip(records.blocks(everyone, 16), less.blocks(np.arange(len(kept)), 16), strict=True)
    assert sum(not np.array_equal(one.X, other.X) for one, other in blocks) == 1


def test_units_lie_in_a_secret_order(rng):
    records = make_records(rng)
    one, other = records.arranged(secret_coins()), records.arranged(secret_coins())
    assert not np.array_equal(one.X, other.X)
    assert np.array_equal(np.sort(one.X[:, 0]), np.sort(records.X[:, 0]))
    assert (np.diff(one.keys) > 0).all()


def test_persons_stay_together(rng):
    persons = rng.integers(0, 50, 400)
    arranged = make_records(rng, persons=persons).arranged(secret_coins())
    n_persons = len(np.unique(persons))
    assert len(np.unique(arranged.keys)) == n_persons
    batch = next(arranged.draw({-1: 1.0}, secret_coins()))
    assert (np.diff(batch) > 0).all()
    assert len(np.unique(arranged.persons[batch])) == len(batch) == n_persons


def gradient_sum(X, keys, n_blocks):
    model = LinearSoftmax(X.shape[1], 2)
    n = len(X)
    records = MemoryRecords(X, np.zeros(n, np.int16), np.zeros(n, np.int16), keys=keys)
    start = np.zeros(model.n_params, np.float32)
    return records.answer(np.arange(n), GradientSum(model, start, CrossEntropy()), 1.0, n_blocks=n_blocks)


@pytest.fixture(scope="module")
def crafted():
    """The worst of 300 blocks of rows whose gradients all point one way, found by shifting the rows by one place."""
    rng = np.random.default_rng(0)
    worst, rows = 0.0, None
    for trial in range(300):
        pattern = (0.7 + 0.2 * rng.random((BLOCK_ROWS, 1 + trial % 2))).astype(np.float32)
        shift = gradient_sum(pattern, None, 1) - gradient_sum(np.roll(pattern, 1, axis=0), None, 1)
        if np.linalg.norm(shift) > worst:
            worst, rows = float(np.linalg.norm(shift)), pattern
    return worst, rows


def move(rows, n_blocks, keyed):
    """How far one record in front moves the sum, in clip norms; without keys all rows are one block."""
    X = np.tile(rows, (n_blocks, 1))
    keys = (np.arange(len(X)) + 0.5) / len(X) if keyed else None
    more = np.concatenate([[0.0], keys]) if keyed else None
    longer = np.concatenate([X[-1:], X])
    return float(np.linalg.norm(gradient_sum(longer, more, n_blocks) - gradient_sum(X, keys, n_blocks)))


def test_rounding_inside_a_block_is_far_below_what_the_noise_covers(crafted):
    assert 0 < crafted[0] < (ROUNDING - 1) / 2


@pytest.mark.parametrize("n_blocks", [1, 40, 400])
def test_with_blocks_by_key_the_excess_does_not_grow_with_the_data(crafted, n_blocks):
    assert move(crafted[1], n_blocks, keyed=True) <= ROUNDING


def test_without_them_it_would(crafted):
    assert move(crafted[1], 400, keyed=False) > ROUNDING
