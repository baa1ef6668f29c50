"""The ascent of RaCO-DP by itself, and the trace it leaves: speeds, caps, aims, widths of noise."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fairveil._random import reproducible_coins, secret_coins
from fairveil.fairness.constraints import DemographicParity, FalseNegativeRateCap, constrain
from fairveil.fairness.diagnostics import quantile
from fairveil.fairness.rates import Attribute, Population
from fairveil.fairness.rule_parser import Rule
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.raco import recipe as ascent
from fairveil.methods.raco.recipe import RateAscent, RateConstrained
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.noise import noise_distribution
from fairveil.privacy.records import MemoryRecords
from fairveil.training.recipe import Task
from fairveil.training.run import make_plan, run_plan

PEOPLE = Population((Attribute("side", ("left", "right")),), ("no", "yes"))
PARITY = constrain(DemographicParity(0.1), PEOPLE)
COUNTS = np.array([[60.0, 20.0], [50.0, 70.0]])  # rates 1/4 and 7/12 of 200 people: broken by 1/3 - 1/10
GAP = 7 / 12 - 1 / 4


def watch(rule, histograms):
    duals, dual = [], rule.start()
    for step, histogram in enumerate(histograms):
        dual = rule.observe(dual, histogram, step)
        duals.append(dual)
    return duals


def pull_of(state):
    """The pull on each (cell, class); every atom of parity's cells has the pull of its cell."""
    return state.pull.reshape(3, 2, 2)[:2, 0]


def errors_of(rule, states):
    return rule.trace(states, noise_distribution("gaussian")).half_widths / quantile("gaussian", 0.95)


def plain(**choices):
    given = {"n_steps": 100, "expected_batch": 200.0, "sampling_rate": 1.0, "noise_variance": 0.0}
    return RateAscent(PARITY, **(given | {"headroom": 0.0} | choices))


# --- multipliers ----------------------------------------------------------------------------------------------------


def test_equal_histograms_are_smoothed_without_bias_from_the_first_on():
    values = np.array([dual.values for dual in watch(plain(), [COUNTS] * 30)])
    np.testing.assert_allclose(values, np.tile([-GAP, GAP], (30, 1)), atol=1e-12)


def test_a_multiplier_sums_violations_plus_a_share_of_the_present_one():
    multipliers = np.array([dual.multipliers.values[1] for dual in watch(plain(), [COUNTS] * 100)])
    n_rising = np.maximum(np.arange(100) - ascent.WARM_UP * 100 + 1, 0)
    speed = min(1, math.sqrt(80 / 200 / ascent.TYPICAL_SHARE))
    rising = (ascent.DUAL_TRAVEL / 100 * n_rising + ascent.DUAL_GAIN * (n_rising > 0)) * speed * (GAP - 0.1)
    np.testing.assert_allclose(multipliers, np.minimum(rising, ascent.LARGEST_PULL * 80 / 200), atol=1e-9)


def test_multipliers_wait_for_warm_up_keep_their_caps_and_fall():
    fair = np.array([[40.0, 40.0], [60.0, 60.0]])
    duals = watch(plain(n_steps=400), [COUNTS] * 200 + [fair] * 200)
    multipliers = np.array([dual.multipliers.values for dual in duals])
    assert not multipliers[: int(ascent.WARM_UP * 400)].any()
    assert not multipliers[:, 0].any()  # the other order never is broken
    assert (multipliers >= 0).all()
    assert (multipliers <= np.array([dual.pace.caps for dual in duals]) + 1e-12).all()
    assert multipliers[199, 1] > 1
    assert multipliers[399, 1] < multipliers[199, 1] / 2


def test_bounds_on_fewer_people_move_more_slowly_and_pull_less():
    few = np.array([[6.0, 2.0], [80.0, 112.0]])
    many = np.array([[60.0, 20.0], [50.0, 70.0]])
    slow, fast = (watch(plain(), [counts] * 11)[-1] for counts in (few, many))
    np.testing.assert_allclose(slow.values, fast.values, atol=1e-12)
    share = 8 / 200
    ratio = math.sqrt(share / ascent.TYPICAL_SHARE)
    np.testing.assert_allclose(slow.pace.speeds, ratio * fast.pace.speeds)
    np.testing.assert_allclose(slow.pace.caps, ascent.LARGEST_PULL * share)
    assert slow.multipliers.values[1] < fast.multipliers.values[1]


def test_no_histogram_makes_a_number_that_is_not_finite(rng):
    strange = [np.zeros((2, 2)), -COUNTS, 1e12 * COUNTS, rng.normal(0, 100, (2, 2)), np.full((2, 2), 1e-300)]
    rule = plain(noise_variance=9.0, headroom=1.0, n_steps=20)
    for counts in strange:
        for dual in watch(rule, [counts] * 20):
            for numbers in (dual.values, *dual.multipliers, pull_of(dual), *dual.pace):
                assert np.isfinite(numbers).all()


def test_nothing_that_is_handed_in_is_changed():
    rule, given = plain(n_steps=10), COUNTS.copy()
    first = watch(rule, [given] * 8)[-1]
    before = [
        np.array(numbers) for numbers in (first.counts.total, first.multipliers.integral, first.multipliers.values)
    ]
    rule.observe(first, given, 8)
    assert np.array_equal(given, COUNTS)
    for numbers, copy in zip(
        (first.counts.total, first.multipliers.integral, first.multipliers.values), before, strict=True
    ):
        assert np.array_equal(numbers, copy)


def test_the_pull_is_the_slope_of_the_weighted_bounds_on_average():
    rule = plain()
    dual = watch(rule, [COUNTS] * 15)[-1]
    slopes = np.empty((2, 2))
    for cell in np.ndindex(2, 2):
        sides = [COUNTS.copy(), COUNTS.copy()]
        sides[0][cell] -= 1e-4
        sides[1][cell] += 1e-4
        low, high = (dual.multipliers.values @ PARITY.values(side) for side in sides)
        slopes[cell] = (high - low) / 2e-4
    np.testing.assert_allclose(pull_of(dual), 200 * slopes, rtol=1e-6)
    assert pull_of(dual)[1, 1] > 0 > pull_of(dual)[0, 1]  # fewer of the right, more of the left


# --- aims -----------------------------------------------------------------------------------------------------------


def test_noise_raises_an_aim_by_at_most_itself_and_little_if_small():
    loose = constrain(DemographicParity(0.0), PEOPLE)
    noise = np.array([0.001, ascent.MEANINGFUL_EXCESS, 5.0])
    exact = RateAscent(loose, 100, 200.0, 1.0, 1.0, headroom=0.0)
    alone = watch(exact, [COUNTS])[0].pace.errors[0]
    rules = [RateAscent(loose, 100, 200.0, 1.0, (std / alone) ** 2, headroom=0.0) for std in noise]
    raised = np.array([watch(rule, [COUNTS])[0].pace.aims[0] for rule in rules])
    assert (raised <= noise).all()
    np.testing.assert_allclose(raised / noise, [0.02, 0.5, 0.99], atol=0.01)


def test_headroom_follows_the_people_not_the_batch():
    """A tenth of the people in each batch: the margin is that of the whole, a tenth of the batch's variance."""
    loose = constrain(DemographicParity(0.9), PEOPLE)
    whole = RateAscent(loose, 100, 200.0, 1.0, 0.0, headroom=1.5)
    batch = RateAscent(loose, 100, 20.0, 0.1, 0.0, headroom=1.5)
    aims = [watch(rule, [counts])[0].pace.aims for rule, counts in ((whole, COUNTS), (batch, COUNTS / 10))]
    np.testing.assert_allclose(*aims)
    spread = math.sqrt(1 / 4 * 3 / 4 / 80 + 7 / 12 * 5 / 12 / 120)
    np.testing.assert_allclose(aims[0], 0.9 - 1.5 * spread)


# --- widths ---------------------------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("law, kind", [("gaussian", "normal"), ("laplace", "laplace")])
def test_smoothed_left_sides_are_within_their_widths_as_often_as_said(rng, law, kind):
    """1,000 repeats at 95 %: the standard error is .7 %. Noise half as large again must be seen (Gaussian: 81 %)."""

    def coverage(times):
        std = 6.0
        rule = plain(noise_variance=std**2, expected_batch=2000.0)
        scale = times * std / (math.sqrt(2) if law == "laplace" else 1)
        hits = 0
        for _ in range(1000):
            noise = getattr(rng, kind)(0.0, scale, (11, 2, 2))
            dual = watch(rule, 10 * COUNTS + noise)[-1]
            hits += abs(dual.values[1] - GAP) <= quantile(law, 0.95) * errors_of(rule, [dual])[0, 1]
        return hits / 1000

    assert 0.92 < coverage(1.0) < (0.98 if law == "gaussian" else 0.99)
    assert coverage(1.5) < 0.9


def test_widths_are_those_of_the_smoothed_mean():
    rules = [plain(noise_variance=v) for v in (0.0, 1.0, 4.0)]
    zero, one, two = (errors_of(rule, watch(rule, [COUNTS] * 11)) for rule in rules)
    assert not zero.any()
    np.testing.assert_allclose(two, 2 * one)
    weights = ascent.SMOOTHING ** np.arange(11)
    shrunk = math.sqrt((weights**2).sum()) / weights.sum()
    np.testing.assert_allclose(one[10], shrunk * one[0])
    # a rate of d people of whom a share r is selected: variance (1-r)^2/d^2 + r^2/d^2
    alone = sum(((1 - r) ** 2 + r**2) / d**2 for r, d in ((1 / 4, 80), (7 / 12, 120)))
    np.testing.assert_allclose(one[0], math.sqrt(alone))


# --- the trace of a training ----------------------------------------------------------------------------------------

TASK = Task(n_features=3, people=PEOPLE, input_norm=2.0, n_public=3000, epsilon=math.inf, delta=1e-5)
ASKED = [DemographicParity(0.05), FalseNegativeRateCap(0.2), Rule("selection_rate <= 0.9")]


def trained_on(rng, epsilon=math.inf, coins=None, **choices):
    X = rng.uniform(-1, 1, (3000, 3)).astype(np.float32)
    y = (X[:, 0] + X[:, 1] + rng.logistic(0, 0.3, 3000) > 0.3).astype(np.int16)
    records = MemoryRecords(X, y, (X[:, 0] > 0).astype(np.int16))
    recipe = RateConstrained(ASKED, Descent(n_steps=60), **choices)
    task = replace(TASK, epsilon=epsilon)
    plan = make_plan(recipe, task)
    return plan, run_plan(plan, recipe, task, records, Ledger(), coins or reproducible_coins(0), rng)


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_a_trace_has_one_row_a_step_and_bound(rng, seeded, epsilon):
    _, trained = trained_on(rng, epsilon, secret_coins())
    trace = trained.fit.trace
    bounds = constrain(ASKED, PEOPLE).bounds
    assert trace.bounds == bounds
    assert trace.values.shape == trace.half_widths.shape == trace.multipliers.shape == (60, 4)
    frame = trace.frame()
    assert list(frame.columns) == ["step", "bound", "value", "low", "high", "limit", "multiplier"]
    assert len(frame) == 240
    assert list(frame["bound"][:4]) == [str(bound) for bound in bounds]
    assert (frame["low"] <= frame["value"]).all() and (frame["value"] <= frame["high"]).all()
    assert np.isfinite(frame.drop(columns="bound").to_numpy()).all()
    assert not trace.multipliers[: int(ascent.WARM_UP * 60)].any()
    assert trace.multipliers.max() > 0.1
    assert (trace.multipliers >= 0).all() and (trace.multipliers <= ascent.LARGEST_PULL * 1.5).all()
    assert not trace.multipliers[:, 3].any()  # "at most 90 % selected" holds anyway


def test_widths_follow_the_noise_of_the_plan_and_are_nothing_without_it(rng, seeded):
    widths = {}
    for name, epsilon, law in (
        ("little", 8.0, "gaussian"),
        ("much", 1.0, "gaussian"),
        ("heavy", 1.0, "laplace"),
    ):
        plan, trained = trained_on(rng, epsilon, secret_coins(), histogram=law)
        noise = plan.stage("train").releases[0].noise_multiplier
        widths[name] = np.median(trained.fit.trace.half_widths[10:, 0]) / noise
    # the same people and nearly the same rates: width over noise is the same, but for how rates of a batch wander
    assert widths["much"] == pytest.approx(widths["little"], rel=0.15)
    assert widths["heavy"] == pytest.approx(widths["much"] * math.sqrt(2) * 2.118 / 1.96, rel=0.15)
    _, exact = trained_on(rng)
    assert not exact.fit.trace.half_widths.any()
