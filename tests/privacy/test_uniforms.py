"""The secret lots of rows: uniform, two at a time, and decided by nothing about the record or its place.

Chi-square at p 1e-6 with n = 50,000: over 256 bins it accepts uniform lots with probability 1 - 1e-6 and
rejects lots^1.1 (noncentrality 490, where 300 is enough) with probability above 1 - 1e-6; a 16 x 16 table
sees two numbers that are equal in one row of ten just as surely. A correlation with the place of 0.05 is 11
standard errors.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fairveil._random import secret_coins
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.records import MemoryRecords, Rows
from fairveil.privacy.veil import open_veils

P = 1e-6
N = 50_000


def make_records(n=N, persons=None):
    X = np.arange(n, dtype=np.float32)[:, None]
    return MemoryRecords(X, (np.arange(n) % 2).astype(np.int16), (np.arange(n) % 3).astype(np.int16), persons)


def all_rows(records):
    return Rows(records, np.arange(len(records)))


def uniform_p(uniforms):
    return stats.chisquare(np.bincount((256 * uniforms).astype(int), minlength=256)).pvalue


def unrelated_p(one, other):
    table = np.bincount(16 * (16 * one).astype(int) + (16 * other).astype(int), minlength=256)
    return stats.chisquare(table).pvalue


def correlation(one, other):
    return abs(np.corrcoef(one, other)[0, 1])


def test_uniforms_fill_the_unit_interval_evenly(seeded):
    uniforms = all_rows(make_records().arranged(secret_coins()).gathered()).uniforms
    assert uniforms.shape == (2, N)
    assert uniforms.min() >= 0 and uniforms.max() < 1
    for numbers in uniforms:
        assert uniform_p(numbers) > P
        assert uniform_p(numbers**1.1) < P


def test_the_two_numbers_of_a_row_are_independent(seeded):
    one, other = all_rows(make_records().arranged(secret_coins()).gathered()).uniforms
    assert correlation(one, other) < 5 / N**0.5
    assert unrelated_p(one, other) > P
    assert unrelated_p(one, np.where(np.arange(N) % 10 == 0, one, other)) < P


def test_uniforms_do_not_depend_on_the_place_in_the_secret_order(seeded):
    """A twin that reads the key from its fifth bit on is caught: correlation 1/16, 14 standard errors."""
    records = make_records().arranged(secret_coins()).gathered()
    rank = np.arange(N)
    for numbers in all_rows(records).uniforms:
        assert correlation(numbers, rank) < 5 / N**0.5
        assert unrelated_p(numbers, rank / N) > P
    assert correlation(np.ldexp(records.keys, 4) % 1.0, rank) > 5 / N**0.5


def test_uniforms_of_adjacent_rows_in_the_secret_order_are_unrelated(seeded):
    for numbers in all_rows(make_records(N + 1).arranged(secret_coins()).gathered()).uniforms:
        assert correlation(numbers[:-1], numbers[1:]) < 5 / N**0.5
        assert unrelated_p(numbers[:-1], numbers[1:]) > P


def test_uniforms_do_not_depend_on_what_the_records_hold(seeded, rng):
    """The same coins, and other inputs, labels and groups: the same lots, row by row."""
    records = make_records(500)
    others = MemoryRecords(
        rng.normal(size=(500, 3)).astype(np.float32),
        rng.integers(0, 5, 500).astype(np.int16),
        rng.integers(-1, 9, 500).astype(np.int16),
    )
    uniforms = [all_rows(each.arranged(secret_coins()).gathered()).uniforms for each in (records, others)]
    assert len(np.unique(uniforms[0][0])) > 450
    assert np.array_equal(*uniforms)


def test_uniforms_are_unrelated_to_what_the_records_hold(seeded):
    records = make_records().arranged(secret_coins()).gathered()
    for numbers in all_rows(records).uniforms:
        assert correlation(numbers, records.X[:, 0]) < 5 / N**0.5
        assert correlation(numbers, records.y) < 5 / N**0.5


def test_fresh_randomness_gives_unrelated_uniforms(seeded):
    coins, records = secret_coins(), make_records()
    uniforms = []
    for _ in range(2):
        arranged = records.arranged(coins).gathered()
        uniforms.append(all_rows(arranged).uniforms[:, np.argsort(arranged.X[:, 0])])  # by record, not by place
    for one, other in zip(*uniforms, strict=True):
        assert correlation(one, other) < 5 / N**0.5
        assert unrelated_p(one, other) > P


def test_a_row_has_the_same_uniforms_in_every_batch(seeded):
    records = make_records(300).arranged(secret_coins()).gathered()
    uniforms = all_rows(records).uniforms
    some = np.array([3, 50, 51, 299])
    assert np.array_equal(Rows(records, some).uniforms, uniforms[:, some])
    blocks = records.blocks(np.arange(300), 7)
    assert len(blocks) == 7
    assert np.array_equal(np.concatenate([block.uniforms for block in blocks], axis=1), uniforms)


def test_rows_of_one_person_share_their_uniforms_and_persons_do_not(seeded):
    persons = np.repeat(np.arange(100), 3)
    arranged = make_records(300, persons).arranged(secret_coins()).gathered()
    uniforms = all_rows(arranged).uniforms
    for person in range(100):
        own = uniforms[:, arranged.persons == person]
        assert own.shape == (2, 3)
        assert (own == own[:, :1]).all()
    assert len(np.unique(uniforms, axis=1).T) == 100


def test_unarranged_records_have_uniforms_of_one_half():
    records = make_records(20)
    assert np.array_equal(all_rows(records).uniforms, np.full((2, 20), 0.5))
    assert Rows(records, np.arange(0)).uniforms.shape == (2, 0)


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_rows_of_a_veil_have_uniforms(seeded, share):
    """Whatever is counted by lot inside a veil is counted by lots that differ from row to row."""
    release = (Release("counts", "gaussian", 3.0),)
    parts = [Stage("train", release, share)]
    if share < 1:
        parts.append(replace(parts[0], name="rule", subset="rule", share=1 - share))
    veils = open_veils(make_records(2000), Plan(tuple(parts), 1.0, 1e-5), Ledger(), secret_coins(), "a test")
    for veil in veils.values():
        numbers = all_rows(veil._records).uniforms
        assert len(np.unique(numbers[0])) > 0.9 * numbers.shape[1]
