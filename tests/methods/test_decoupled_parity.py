"""Algorithms 1 and 2 of decoupled parity, and what Theorem 3 and Proposition 4 say of them, by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairveil._random import secret_coins
from fairveil.accounting.composition import NeighboringRelation, epsilon_of
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import DemographicParity, EqualizedOdds, constrain
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.decoupled_parity import RateFlips, fewest_changes, flipping_rule, parity_tolerance
from fairveil.methods.dp2dp import Postprocessed, PrefittedScores
from fairveil.methods.dp2dp.gap_bounds import FlipGapBounds
from fairveil.methods.dp2dp.thresholds import RuleProblem
from fairveil.models import PrefittedProbabilities
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import open_veils

CODES = np.array([0, 1])
UNIT = st.floats(0, 1)


def rates_after(rates, rule):
    """What a rule makes of two groups that the model decides for class 1 at these rates."""
    law = [rule.distribution(np.array([[0.0, 0.0], [1.0, -1.0]]), np.full(2, group))[:, 1] for group in CODES]
    return [rate * yes + (1 - rate) * no for rate, (yes, no) in zip(rates, law, strict=True)]


def changes(rates, rule):
    law = [rule.distribution(np.array([[0.0, 0.0], [1.0, -1.0]]), np.full(2, group))[:, 1] for group in CODES]
    return sum(rate * (1 - yes) + (1 - rate) * no for rate, (yes, no) in zip(rates, law, strict=True))


@given(UNIT, UNIT, st.floats(0, 0.5))
def test_algorithm_1_meets_the_tolerance_with_the_fewest_changes(one, other, tolerance):
    rates = np.array([one, other])
    rule = flipping_rule(rates, tolerance, CODES, 3)
    first, second = rates_after(rates, rule)
    assert abs(first - second) <= tolerance + 1e-9
    assert changes(rates, rule) == pytest.approx(fewest_changes(one - other, tolerance), abs=1e-9)


@pytest.mark.parametrize("rates", [(0.0, 0.0), (1.0, 1.0), (0.0, 1.0), (1.0, 0.0)])
def test_rates_of_0_and_1_have_a_limit_and_no_nan(rates):
    rule = flipping_rule(np.array(rates), 0.0, CODES, 3)
    assert np.isfinite(rule.weights).all()
    first, second = rates_after(rates, rule)
    assert first == pytest.approx(second)


def test_at_tolerance_0_both_groups_end_at_the_midpoint():
    rule = flipping_rule(np.array([0.5, 0.1]), 0.0, CODES, 3)
    assert rates_after((0.5, 0.1), rule) == pytest.approx([0.3, 0.3])


def test_people_of_no_group_keep_the_models_decision():
    rule = flipping_rule(np.array([0.5, 0.1]), 0.0, CODES, 3)
    assert rule.distribution(np.array([[0.0, 0.0], [1.0, -1.0]]), np.full(2, 2)).tolist() == [
        [0.0, 1.0],
        [1.0, 0.0],
    ]


def test_only_demographic_parity_of_two_groups_is_taken():
    two = Population((Attribute("g", ("a", "b")),), ("0", "1"))
    three = Population((Attribute("g", ("a", "b", "c")),), ("0", "1"))
    assert parity_tolerance(constrain(DemographicParity(0.1), two)) == 0.1
    for constraint, people in ((DemographicParity(0.1), three), (EqualizedOdds(0.1), two)):
        with pytest.raises(InvalidParameterError, match="two groups"):
            parity_tolerance(constrain(constraint, people))


def test_the_table_costs_1_over_its_scale_and_twice_when_replacing(make_people, make_task):
    """One release of the 2 x 2 counts: epsilon for adding or removing, the sum of both groups' for replacing."""
    task = make_task(make_people(2), 1000, 1.0)
    (part,) = RateFlips().stages(20.0, 1.0, "train", task)
    assert epsilon_of([part.event], 1e-9) == pytest.approx(0.05, rel=1e-6)
    assert epsilon_of([part.event], 1e-9, NeighboringRelation.REPLACE_ONE) == pytest.approx(0.1, rel=1e-6)


def test_each_group_has_noise_for_its_own_epsilon_and_the_larger_counts(make_people, make_task, seeded):
    """epsilon_1 = epsilon_0 / 4: 2,000 fits; a mean |noise| is its scale, within 6 standard errors, not 2/3 or 3/2."""
    flips = RateFlips((400, 400), (1.0, 0.25))
    task = make_task(make_people(2), 800, 0.5)
    (part,) = flips.stages(2.0, 1.0, "train", task)
    assert epsilon_of([part.event], 1e-9) == pytest.approx(0.5, rel=1e-6)
    scales = flips.scales(2.0)
    assert scales == pytest.approx((2.02, 8.08))
    groups, is_positive = np.repeat([0, 1], 400), np.tile(np.arange(400) < 200, 2)
    X = np.where(is_positive[:, None], [0.2, 0.8], [0.8, 0.2]).astype(np.float32)
    records = MemoryRecords(X, is_positive.astype(np.int16), groups.astype(np.int16))
    bounds = constrain(DemographicParity(), task.people)
    scene = RuleProblem(PrefittedProbabilities(2), np.zeros(0, np.float32), task, bounds, 800.0)
    noise, coins = np.empty((2000, 2)), secret_coins()
    for place in range(2000):
        veils = open_veils(records, Plan((part,), 0.5, 1e-5), Ledger(), coins, "a test")
        rates, _ = flips.release_rates(scene, veils["rule"].draw())
        noise[place] = 400 * rates - 200
    for group, scale in enumerate(scales):
        assert abs(np.abs(noise[:, group]).mean() / scale - 1) < 6 / math.sqrt(2000)


@pytest.mark.parametrize("sizes", [None, (2000, 1000)])
def test_algorithm_2_lands_near_parity_on_fixed_scores(sizes, rng, seeded, make_people, make_task, fitted):
    """Noise of epsilon 1 on groups of 1000 and 2000: rates are off by a few thousandths."""
    people = make_people(2)
    groups = np.repeat([0, 1], [2000, 1000])
    positive = np.concatenate([np.arange(2000) < 1000, np.arange(1000) < 200])
    probabilities = np.where(positive[:, None], [0.2, 0.8], [0.8, 0.2])
    recipe = Postprocessed(PrefittedScores(), RateFlips(sizes), DemographicParity())
    fit = fitted(recipe, make_task(people, 3000, 1.0), probabilities, groups, positive.astype(int)).fit
    first, second = rates_after((0.5, 0.2), fit.rule)
    assert abs(first - second) < 0.02
    assert fit.sizes == pytest.approx([2000, 1000], abs=30)


N_SIMULATIONS = 2000


def simulated(rng, sizes, rates, epsilon, tolerance, are_public):
    """Yield the population's gap and extra changes of Algorithm 2, with what was promised of it."""
    scale, q = 1 / epsilon, math.exp(-epsilon)
    for _ in range(N_SIMULATIONS):
        positives = rng.binomial(sizes, rates)
        if are_public:
            known = np.array(sizes, dtype=float)
            noisy = positives + rng.laplace(scale=scale, size=2)
        else:
            noise = rng.geometric(1 - q, (2, 2)) - rng.geometric(1 - q, (2, 2))  # discrete Laplace
            counts = np.stack([np.array(sizes) - positives, positives], axis=1) + noise
            known, noisy = np.maximum(counts.sum(axis=1), 1.0), counts[:, 1]
        rule = flipping_rule(np.clip(noisy / known, 0, 1), tolerance, CODES, 3)
        first, second = rates_after(rates, rule)
        best = fewest_changes(rates[0] - rates[1], abs(first - second))
        promise = FlipGapBounds(tuple(known), (scale, scale), tolerance, are_public)
        yield abs(first - second), changes(rates, rule) - best, promise


@pytest.mark.statistical
@pytest.mark.parametrize("are_public", [True, False])
@pytest.mark.parametrize("tolerance", [0.0, 0.1])
@pytest.mark.parametrize("sizes", [(300, 900), (5000, 2000)])
def test_theorem_3_and_proposition_4_cover(rng, sizes, tolerance, are_public):
    """2,000 repeats: at 90 % at most a tenth may exceed the bound, six standard errors more are allowed."""
    gaps, extras, promises = zip(*simulated(rng, sizes, (0.35, 0.15), 0.1, tolerance, are_public), strict=True)
    over = np.mean([gap > promise.gap_bound(0.9) for gap, promise in zip(gaps, promises, strict=True)])
    more = np.mean([extra > promise.changes_bound(0.9) for extra, promise in zip(extras, promises, strict=True)])
    allowed = 0.1 + 6 * math.sqrt(0.09 / N_SIMULATIONS)
    assert over <= allowed and more <= allowed
    assert np.mean(gaps) <= np.mean([promise.expected_gap_bound() for promise in promises])
    assert np.mean(extras) <= np.mean([promise.expected_changes_bound() for promise in promises])


def test_the_bounds_shrink_with_people_and_with_epsilon():
    few, many = FlipGapBounds((300, 900), (10.0, 10.0)), FlipGapBounds((30_000, 90_000), (10.0, 10.0))
    assert many.gap_bound() < few.gap_bound() <= 1.0
    assert FlipGapBounds((300, 900), (1.0, 1.0)).gap_bound() < few.gap_bound()
    assert few.gap_bound(0.99) >= few.gap_bound(0.9)
    assert FlipGapBounds((3, 3), (10.0, 10.0)).gap_bound() == 1.0


def test_public_sizes_give_the_printed_numbers():
    """Theorem 3 at n theta = 1000, n theta-bar = 2000, epsilon .05, eta .05; Proposition 4 with its theta-bar."""
    promise = FlipGapBounds((1000, 2000), (20.0, 20.0), 0.0, are_public=True)
    log4, log8 = math.log(4 / 0.05), math.log(8 / 0.05)
    printed = sum(20 * log4 / n + math.sqrt(log8 / (2 * n)) for n in (1000, 2000))
    assert promise.gap_bound(0.95) == pytest.approx(printed)
    assert promise.changes_bound(0.95) == pytest.approx(2.5 * printed)
    assert promise.expected_gap_bound() == pytest.approx(sum(20 / n + math.sqrt(1 / (4 * n)) for n in (1000, 2000)))
