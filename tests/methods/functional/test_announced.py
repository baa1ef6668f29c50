"""Several models counted on people held out in one release: what is counted, and how much one record can move it."""

import math

import numpy as np
import pytest

from fairveil._random import reproducible_coins
from fairveil.methods.functional.recipe import announced_stage, read_announced
from fairveil.models import LinearSoftmax
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Stage
from fairveil.privacy.queries import SeveralDecisions
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import ROUNDING, open_veils

N_GROUPS, N_FEATURES = 3, 4


@pytest.fixture
def people(rng):
    X = rng.normal(size=(200, N_FEATURES)).astype(np.float32)
    return MemoryRecords(
        X,
        rng.integers(2, size=200).astype(np.int16),
        rng.integers(-1, N_GROUPS, size=200).astype(np.int16),
    )


@pytest.fixture
def several(rng):
    size = LinearSoftmax(N_FEATURES, 2).n_params
    return [rng.normal(size=size).astype(np.float32) for _ in range(5)]


def counted(people, several, noise=0.0):
    part = announced_stage(noise, 1.0)
    plan = Plan((Stage(part.name, part.releases, 1.0),), math.inf if not noise else 1.0, 1e-5)
    veil = open_veils(people, plan, Ledger(), reproducible_coins(0), "a test")[part.name]
    return read_announced(veil, several, N_FEATURES, N_GROUPS)


def test_every_model_is_counted_as_it_decides(people, several):
    found = counted(people, several)
    assert found.noise_variance == 0
    model, groups = LinearSoftmax(N_FEATURES, 2), np.where(people.groups >= 0, people.groups, N_GROUPS - 1)
    for counts, params in zip(found.counts, several, strict=True):
        decided = model.logits(params.astype(np.float64), people.X.astype(np.float64)).argmax(axis=0)
        expected = np.zeros((N_GROUPS, 2, 2))
        np.add.at(expected, (groups, people.y, decided), 1)
        np.testing.assert_array_equal(counts, expected)


def test_one_record_moves_all_counts_together_by_the_root_of_their_number(people, several):
    whole = counted(people, several).counts
    for place in range(0, 200, 23):
        kept = np.delete(np.arange(200), place)
        others = MemoryRecords(people.X[kept], people.y[kept], people.groups[kept])
        move = np.linalg.norm(whole - counted(others, several).counts)
        assert move == pytest.approx(math.sqrt(len(several)))


def test_a_record_that_is_no_number_adds_no_more(several):
    X = np.array([[np.nan, np.inf, -np.inf, 3e38]] * 2, dtype=np.float32)
    people = MemoryRecords(X, np.zeros(2, dtype=np.int16), np.array([0, -1], dtype=np.int16))
    found = counted(people, several).counts
    assert np.isfinite(found).all()
    assert np.linalg.norm(found) <= 2 * math.sqrt(len(several)) * (1 + 1e-5)


def test_the_stated_variance_is_that_of_the_noise(people, several, seeded):
    exact = counted(people, several).counts
    noisy = counted(people, several, noise=40.0)
    assert noisy.noise_variance == pytest.approx((0.5 * 40.0 * ROUNDING) ** 2 * len(several))
    errors = (noisy.counts - exact).ravel() / math.sqrt(noisy.noise_variance)
    # 60 squares add up to between 26 and 110 but once in a hundred thousand
    assert 26 < np.square(errors).sum() < 110


def test_what_one_model_answers_depends_on_its_own_row_alone(people, several):
    function = SeveralDecisions(LinearSoftmax(N_FEATURES), tuple(several))
    (rows,) = people.blocks(np.arange(200), 1)
    (one,) = people.blocks(np.array([7]), 1)
    np.testing.assert_array_equal(function.values_of(rows)[:, 7:8], function.values_of(one))
