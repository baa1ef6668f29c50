from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from fairveil._random import secret_coins
from fairveil.errors import InvalidParameterError
from fairveil.privacy.records import MemoryRecords, Persons
from fairveil.privacy.sampling import assign_subsets, poisson_batches, poisson_draws


def take(stream, n):
    return [next(stream) for _ in range(n)]


@pytest.mark.parametrize(("n", "rate"), [(50, 0.03), (50, 0.5), (7, 0.9), (3000, 0.2)])
def test_every_unit_is_drawn_with_its_rate(n, rate, seeded):
    batches = take(poisson_draws(n, rate, secret_coins()), 2000)
    drawn = np.bincount(np.concatenate(batches), minlength=n)
    assert len(drawn) == n
    # Binomial counts of all units: chi-square, p 1e-6; a rate off by a factor 1.2 is far outside.
    statistic = ((drawn - 2000 * rate) ** 2 / (2000 * rate * (1 - rate))).sum()
    assert stats.chi2.sf(statistic, n) > 1e-6
    assert stats.chi2.sf(((drawn - 2400 * rate) ** 2 / (2000 * rate * (1 - rate))).sum(), n) < 1e-6


def test_units_are_drawn_independently(seeded):
    """Sizes vary like a binomial's: a fixed-size batch sold as Poisson has no variance at all."""
    sizes = np.array([len(batch) for batch in take(poisson_draws(400, 0.1, secret_coins()), 4000)])
    ratio = sizes.var() / (400 * 0.1 * 0.9)
    assert 0.85 < ratio < 1.15  # six standard errors of a variance of 4000 draws is 0.13


def test_steps_do_not_share_coins(seeded):
    batches = take(poisson_draws(200, 0.3, secret_coins()), 64)
    overlap = [len(np.intersect1d(a, b)) for a, b in pairwise(batches)]
    assert abs(np.mean(overlap) - 200 * 0.09) < 5
    assert all(len(np.unique(batch)) == len(batch) for batch in batches)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, np.nan])
def test_bad_rates_are_refused(rate):
    with pytest.raises(InvalidParameterError, match="sampling_rate"):
        next(poisson_draws(10, rate, secret_coins()))


def test_everyone_and_nobody():
    assert np.array_equal(next(poisson_draws(5, 1.0, secret_coins())), np.arange(5))
    assert len(next(poisson_draws(0, 0.5, secret_coins()))) == 0


def test_strata_have_their_own_rates(seeded):
    strata = [np.arange(0, 100), np.arange(100, 130)]
    batches = take(poisson_batches(strata, [0.05, 0.8], secret_coins()), 1000)
    drawn = np.bincount(np.concatenate(batches), minlength=130) / 1000
    assert abs(drawn[:100].mean() - 0.05) < 0.005
    assert abs(drawn[100:].mean() - 0.8) < 0.02


def test_parts_are_disjoint_complete_and_of_their_share(seeded):
    parts = assign_subsets(20_000, {"train": 0.85, "holdout": 0.15}, secret_coins())
    assert np.array_equal(np.sort(np.concatenate(list(parts.values()))), np.arange(20_000))
    assert abs(len(parts["holdout"]) - 3000) < 6 * np.sqrt(20_000 * 0.15 * 0.85)


def test_parts_follow_each_units_own_coin(seeded):
    """The size of a part varies: a shuffle-and-cut split, which ties units together, would fix it."""
    coins = secret_coins()
    sizes = [len(assign_subsets(1000, {"a": 0.5, "b": 0.5}, coins)["a"]) for _ in range(300)]
    assert 0.5 < np.var(sizes) / 250 < 1.6


def test_shares_must_add_up():
    with pytest.raises(InvalidParameterError, match="add up to 1"):
        assign_subsets(10, {"a": 0.5, "b": 0.4}, secret_coins())


def test_a_person_is_drawn_as_one_of_their_rows(seeded):
    codes = np.array([7, 3, 7, 7, 9, 3])
    persons = Persons.of_codes(codes)
    assert len(persons.sizes) == 3
    coins = secret_coins()
    drawn = [persons.one_row(np.arange(3), coins) for _ in range(300)]
    assert all(sorted(codes[rows].tolist()) == [3, 7, 9] and sorted(rows) == list(rows) for rows in drawn)
    assert {int(row) for rows in drawn for row in rows if codes[row] == 7} == {0, 2, 3}
    assert sorted(persons.rows_of(np.array([1, 2]))) == [0, 2, 3, 4]


@pytest.mark.parametrize("persons", [None, [5, 5, 6]])
def test_units_are_sampled_at_the_rate_of_their_first_row(persons, seeded):
    """Group 1 is always drawn, group 0 hardly ever; without persons each row is a unit."""
    persons = None if persons is None else np.array(persons)
    records = MemoryRecords(np.zeros((3, 1), np.float32), np.zeros(3, np.int16), np.array([1, 0, 0], np.int16), persons)
    batches = take(records.draw({0: 1e-9, 1: 1.0, -1: 1.0}, secret_coins()), 50)
    drawn = {int(row) for batch in batches for row in batch}
    assert drawn == ({0} if persons is None else {0, 1})
