"""Does one unit leave the others alone, bit for bit? Secret order, blocks by key, and rounding."""

import numpy as np
import pytest

from fairveil._random import secret_coins
from fairveil.models import LinearSoftmax
from fairveil.models.products import FEW_ROWS, SUM_ROWS, sum_products
from fairveil.privacy.queries import CrossEntropy, GradientSum
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import BLOCK_ROWS, ROUNDING


def make_records(rng, n=400, persons=None):
    X = rng.normal(size=(n, 6)).astype(np.float32)
    return MemoryRecords(X, rng.integers(0, 3, n).astype(np.int16), np.zeros(n, np.int16), persons)


@pytest.mark.parametrize("persons", [None, np.repeat(np.arange(200), 2)])
def test_one_unit_changes_one_block_and_no_other_bit(rng, persons):
    records = make_records(rng, persons=persons).arranged(secret_coins()).gathered()
    everyone = np.arange(400)
    gone = everyone == 123 if persons is None else records.persons == records.persons[123]
    kept = np.flatnonzero(~gone)
    less = MemoryRecords(records.X[kept], records.y[kept], records.groups[kept], keys=records.keys[kept])
    blocks = zip(records.blocks(everyone, 16), less.blocks(np.arange(len(kept)), 16), strict=True)
    assert sum(not np.array_equal(one.X, other.X) for one, other in blocks) == 1


def test_units_lie_in_a_secret_order(rng):
    records = make_records(rng)
    one, other = records.arranged(secret_coins()).gathered(), records.arranged(secret_coins()).gathered()
    assert not np.array_equal(one.X, other.X)
    assert np.array_equal(np.sort(one.X[:, 0]), np.sort(records.X[:, 0]))
    assert (np.diff(one.keys) > 0).all()


def test_persons_stay_together(rng):
    persons = rng.integers(0, 50, 400)
    arranged = make_records(rng, persons=persons).arranged(secret_coins()).gathered()
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
    assert 0 < crafted[0] < (ROUNDING - 1) / 10


@pytest.mark.parametrize("n_blocks", [1, 40, 400])
def test_with_blocks_by_key_the_excess_does_not_grow_with_the_data(crafted, n_blocks):
    assert move(crafted[1], n_blocks, keyed=True) <= 1 + (ROUNDING - 1) / 10


def test_without_them_it_would(rng):
    """One record more then moves what the others add; how far depends on the kernel of the processor."""
    moves = []
    for _ in range(8):
        X = np.tile((0.7 + 0.2 * rng.random((BLOCK_ROWS, 1))).astype(np.float32), (1600, 1))
        own, whole, longer = (gradient_sum(rows, None, 1) for rows in (X[:1], X, np.concatenate([X[:1], X])))
        moves.append(np.linalg.norm(longer - whole - own))
    assert max(moves) > ROUNDING - 1


# --- the bound that is argued, whatever the kernel --------------------------------------------------------------------

UNIT = 2.0**-24
"""Half the distance from 1 to the next number of single precision."""

LARGEST_BLOCK = BLOCK_ROWS + 6 * int(np.sqrt(BLOCK_ROWS))
"""A block holds BLOCK_ROWS rows on average, by their own coins; about two in a billion are larger than this."""

MEASURED = 5e-4
"""What other rows' logits were found to move a sum by when their places change: measured, not argued."""


def argued_error(n_rows):
    """The largest error of a sum of n vectors of length 1: a product and its additions, and one last rounding.

    Each of the k terms of a partial sum is rounded at most k times, in whatever order it is added: gamma_k = k u /
    (1 - k u) of the sum of sizes (Higham 2002, section 4.2). The sums of chunks are added in double precision.
    """
    k = n_rows if n_rows <= FEW_ROWS else SUM_ROWS
    return n_rows * (k * UNIT / (1 - k * UNIT) + UNIT * (1 + 1e-3))


def test_the_argued_excess_of_a_block_is_what_the_noise_covers():
    """Two sums, with a record and without it, each err by the argued bound at most."""
    excess = max(2 * argued_error(n_rows) for n_rows in range(1, LARGEST_BLOCK + 1))
    assert 0.005 < excess <= ROUNDING - 1 - MEASURED
    # a block that is added up at once in single precision would need noise for a quarter of a record more
    assert 2 * LARGEST_BLOCK**2 * UNIT > 50 * (ROUNDING - 1)


def crafted_rows(kind, n_rows, width, rng):
    """Rows of length 1 at most, whose partial sums round as badly as possible."""
    if kind == "equal, with low bits":
        X = np.tile(1 + rng.integers(0, 2**23, width) * 2.0**-23, (n_rows, 1))
    elif kind == "nearly equal":
        X = 1 + rng.random((n_rows, width)) * 2.0**-10
    elif kind == "growing":
        X = np.sort(rng.random((n_rows, width)), axis=0)
    else:  # large numbers, then many that vanish beside their sum
        X = np.where(np.arange(n_rows)[:, None] < n_rows // 4, 1.0, 2.0**-14 * (1 + rng.random((n_rows, width))))
    largest = np.sqrt(np.square(X).sum(axis=1).max())
    return np.ldexp(X, -int(np.ceil(np.log2(largest)))).astype(np.float32)  # low bits are kept


@pytest.mark.parametrize("kind", ["equal, with low bits", "nearly equal", "growing", "vanishing"])
def test_crafted_rows_keep_to_the_argued_error(kind, rng):
    for n_rows in (1, 31, 255, 256, 257, 1023, 2048, LARGEST_BLOCK):
        for width in (1, 2, 7, 33):
            X = crafted_rows(kind, n_rows, width, rng)
            for left in (np.ones((1, n_rows), np.float32), np.ones((n_rows, 5), np.float32).T):
                found = np.empty((len(left), width), np.float32)
                sum_products(left, X, found)
                error = np.linalg.norm(found - X.astype(np.float64).sum(axis=0), axis=1).max()
                assert error <= argued_error(n_rows)


def test_a_sum_in_single_precision_would_break_the_argued_error(rng):
    """The twin: a block that is added up at once, as it was before, by a kernel that adds its rows one by one."""
    errors = []
    for _ in range(40):
        X = crafted_rows("equal, with low bits", LARGEST_BLOCK, 1, rng)
        plain = np.cumsum(X, axis=0, dtype=np.float32)[-1]
        errors.append(float(np.linalg.norm(plain - X.astype(np.float64).sum(axis=0))))
    assert max(errors) > argued_error(LARGEST_BLOCK)
