"""Early stopping by noisy checks: all planned and debited, the last one that passed is kept, nothing else is read."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from _support.two_sides import SIDES, TASK, make_records, planned, run
from fairveil._random import reproducible_coins, secret_coins
from fairveil.accounting.composition import epsilon_of
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import DemographicParity, EqualizedOdds, TruePositiveRateParity
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.fairdp.early_stopping import REACH, EarlyStopping, EarlyStoppingState
from fairveil.methods.fairdp.recipe import FinalSteps, Groupwise
from fairveil.models import LinearSoftmax
from fairveil.models.last_layer import last_layer_norm, margin_weights
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import NoisyMarginRate, Sum, all_cells
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import Veil, open_veils

PRIVATE = replace(TASK, epsilon=1.0)
FEW = Descent(n_steps=12, sampling_rate=1.0, clip_norm=0.5, learning_rate=0.1)
PARITY = EarlyStopping(DemographicParity(0.2), n_checks=4)


def watched(stopping=PARITY, **choices):
    return Groupwise(FEW, stopping=stopping, **choices)


@pytest.fixture
def scripted(monkeypatch):
    """Looks that see what a script says, and the parameters each of them was given."""
    given = []

    def play(*excesses):
        left = iter(excesses)

        def look(_watch, _stopping, params, veil):
            given.append(params)
            veil.draw()
            return next(left)

        monkeypatch.setattr(EarlyStoppingState, "_excess", look)
        return given

    return play


# --- when it stops --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "excesses, n_steps, kept",
    [
        ((-0.1, 0.1), 3, 0),  # broken at the second look: the parameters of the first
        ((-0.1, -0.1, 0.1), 6, 1),
        ((0.1, -0.1, 0.1), 6, 1),  # a broken look before any was passed stops nothing
        ((-0.1, -0.1, -0.1, -0.1), 12, 3),
        ((-0.1, -0.1, -0.1, 0.1), 12, 2),
        ((0.1, 0.1, 0.1, 0.1), 12, 3),  # none was passed: on to the end
        ((0.1, 0.1, 0.1, -0.1), 12, 3),
        ((0.0, 0.1), 3, 0),  # a bound that is just met is kept
    ],
)
def test_it_stops_at_a_failed_check_after_one_that_was_passed(rng, scripted, excesses, n_steps, kept):
    given, steps = scripted(*excesses), []
    recipe = watched(norm_bound=0.05)
    plan = planned(recipe, TASK, 0.0)
    veils = open_veils(make_records(rng), plan, Ledger(), reproducible_coins(0), "a test")
    fit = recipe.train(veils, TASK, 400.0, np.random.default_rng(0), lambda r: (steps.append(s) or s for s in r))
    assert steps == list(range(n_steps))
    np.testing.assert_array_equal(fit.params, given[kept])  # a look sees what would be released
    assert last_layer_norm(recipe.model_for(TASK), given[kept]) == pytest.approx(0.05)
    looks = fit.last_step.checks
    assert [look.excess for look in looks] == list(excesses)
    assert [look.passed for look in looks] == [excess <= 0 for excess in excesses]
    assert [look.step for look in looks] == [0, 2, 5, 11][: len(excesses)]
    assert veils["looks"]._n_left == 4 - len(excesses)


def test_checks_begin_with_the_first_steps_and_the_last_step_has_one():
    assert sorted(EarlyStopping(DemographicParity(), 4).steps(12)) == [0, 2, 5, 11]
    assert sorted(EarlyStopping(DemographicParity(), 4, first_check=0.25).steps(12)) == [2, 4, 7, 11]
    assert sorted(EarlyStopping(DemographicParity(), 1).steps(12)) == [11]
    for n_checks in (1, 3, 7, 12, 50):
        for first in (1e-9, 0.005, 0.5, 1.0):
            for n_steps in (2, 12, 600):
                steps = EarlyStopping(DemographicParity(), n_checks, first).steps(n_steps)
                assert max(steps) == n_steps - 1
                assert len(steps) == min(n_checks, n_steps)
                assert min(steps) >= 0
    by_default = np.array(sorted(EarlyStopping(DemographicParity()).steps(600)))
    assert by_default[0] == 2
    assert np.searchsorted(by_default, 60) > len(by_default) / 2  # more than half in the first tenth


def test_checks_of_the_first_steps_stop_where_later_ones_see_no_bound_met(rng):
    """The bound is met by a few steps only: checks that begin at a tenth of all steps never see it met."""
    records = make_records(rng, 2000)
    y = (records.X[:, 0] + 0.3 * rng.normal(size=2000) > 0).astype(np.int16)
    records = MemoryRecords(records.X, y, records.groups)
    task = replace(TASK, n_public=2000, epsilon=3.0)
    descent = Descent(n_steps=100, sampling_rate=0.2, clip_norm=0.5, learning_rate=0.05)
    plan, fits, ledgers = {}, {}, {}
    for first in (0.1, 0.005):
        stopping = EarlyStopping(DemographicParity(0.3), n_checks=10, first_check=first)
        recipe, ledgers[first] = Groupwise(descent, stopping=stopping), Ledger()
        plan[first] = planned(recipe, task, 0.0)
        veils = open_veils(records, plan[first], ledgers[first], reproducible_coins(1), "a test")
        fits[first] = recipe.train(veils, task, 2000.0, np.random.default_rng(0))
    late, early = (fits[first].last_step for first in (0.1, 0.005))
    assert len(late.checks) == 10 and not any(check.passed for check in late.checks)
    assert early.checks[0].passed and not early.checks[-1].passed
    assert early.checks[-1].step < 20
    model = LinearSoftmax(4, 2)
    assert smooth_gap_by_hand(model, fits[0.1].params, records, late.margin_std) > 0.6
    assert smooth_gap_by_hand(model, fits[0.005].params, records, early.margin_std) < 0.4
    # both are debited before the first step, and neither plan knows where the checks are: stopping refunds nothing
    assert plan[0.1].charges() == plan[0.005].charges()
    assert [len(ledger.entries) for ledger in ledgers.values()] == [1, 1]


def test_a_training_that_grows_unfair_is_stopped_on_the_way(rng):
    """Groups are told apart by x, slowly: rates at first alike, then not; the end without a watch breaks the bound."""
    records = make_records(rng, 2000)
    y = (records.X[:, 0] + 0.3 * rng.normal(size=2000) > 0).astype(np.int16)
    records = MemoryRecords(records.X, y, records.groups)
    task = replace(TASK, n_public=2000, epsilon=3.0)
    descent = Descent(n_steps=60, sampling_rate=0.2, clip_norm=0.5, learning_rate=0.002)
    recipe = Groupwise(descent, finish=FinalSteps(learning_rate=10.0))
    plain = run(recipe, task, records, coins=reproducible_coins(1)).fit
    stopping = EarlyStopping(DemographicParity(0.3), n_checks=12)
    fit = run(replace(recipe, stopping=stopping), task, records, coins=reproducible_coins(1)).fit
    assert fit.last_step.checks[0].passed and not fit.last_step.checks[-1].passed
    assert len(fit.last_step.checks) < 12
    assert plain.last_step.checks == ()
    std = fit.last_step.margin_std
    model = LinearSoftmax(4, 2)
    assert smooth_gap_by_hand(model, plain.params, records, std) > 0.3
    assert smooth_gap_by_hand(model, fit.params, records, std) < 0.4


# --- what a look sees -----------------------------------------------------------------------------------------------


def smooth_rates_by_hand(model, params, records, std):
    Z = np.column_stack([records.X, np.ones(len(records.y))]).astype(np.float64)
    margin = margin_weights(model, params)
    return norm.cdf(Z @ margin / (std * np.linalg.norm(Z, axis=1)))


def smooth_gap_by_hand(model, params, records, std, among=None):
    law = smooth_rates_by_hand(model, params, records, std)
    among = np.ones(len(law), bool) if among is None else among
    rates = [law[among & (records.groups == group)].mean() for group in (0, 1)]
    return abs(rates[0] - rates[1])


def exact_watch(stopping, records, std):
    sizes = np.zeros((3, 2))
    np.add.at(sizes, (records.groups, records.y), 1)
    return EarlyStoppingState.start(stopping, LinearSoftmax(4, 2), TASK, sizes, std, 10)


def silent_veil(records, noise=0.0, n_steps=9):
    part = Stage("looks", (Release("smooth rates", "gaussian", noise),), 1.0, n_steps=n_steps)
    plan = Plan((part,), math.inf if noise == 0 else 1.0, 1e-5)
    return open_veils(records, plan, Ledger(), reproducible_coins(0), "a test")["looks"]


@pytest.mark.parametrize("std", [0.1, 1.0, 7.0])
def test_without_noise_a_check_sees_the_smooth_rates(rng, std):
    records = make_records(rng)
    params = rng.normal(size=10).astype(np.float32)
    model, ones = LinearSoftmax(4, 2), records.y == 1
    gaps = {
        DemographicParity(0.05): smooth_gap_by_hand(model, params, records, std),
        TruePositiveRateParity(0.05): smooth_gap_by_hand(model, params, records, std, ones),
        EqualizedOdds(0.05): max(smooth_gap_by_hand(model, params, records, std, among) for among in (ones, ~ones)),
    }
    for asked, gap in gaps.items():
        unasked = exact_watch(EarlyStopping(asked, 1), records, std).after(0, params, {})
        assert unasked.checks == ()  # its one look is after the last of the ten steps
        watch = exact_watch(EarlyStopping(asked, 10), records, std)
        watch = watch.after(0, params, {"looks": silent_veil(records)})
        assert watch.checks[0].excess == pytest.approx(gap - 0.05, abs=1e-5)
        assert watch.checks[0].passed == (gap <= 0.05)


def test_checks_draw_with_the_noise_that_the_last_step_will_have(rng, monkeypatch, seeded):
    stds, look = [], EarlyStoppingState._excess

    def noted(watch, stopping, params, veil):
        stds.append(watch.std)
        return look(watch, stopping, params, veil)

    monkeypatch.setattr(EarlyStoppingState, "_excess", noted)
    last = run(watched(), PRIVATE, make_records(rng), coins=secret_coins()).fit.last_step
    assert stds[0] > 0
    assert set(stds) == {last.margin_std}


def test_one_record_moves_a_sum_by_at_most_one_half(rng):
    """Every row, however large, and whatever the weights: P - 1/2 in one (group, label) cell."""
    moved = []
    for size in (1e-6, 1.0, 1e6, 1e30):
        for value in (size, -size, np.nan, np.inf):
            params = rng.normal(size=10).astype(np.float32)
            one = MemoryRecords(np.full((1, 4), value, np.float32), np.array([1], np.int16), np.array([0], np.int16))
            rates = Sum(
                all_cells(3, 2),
                2 * 3,
                NoisyMarginRate(LinearSoftmax(4, 2), params, 1e-9, is_row_stable=False),
            )
            moved.append(np.abs(silent_veil(one).draw().release_sums(rates, REACH, "smooth rates")).sum())
    assert max(moved) == pytest.approx(0.5, abs=1e-5)
    assert max(moved) <= 0.5 * (1 + 1e-6)


def test_groups_too_small_to_speak_of_are_not_seen_to_keep_a_bound(rng):
    records = make_records(rng)
    lonely = MemoryRecords(records.X, records.y, np.zeros(400, np.int16))
    watch = exact_watch(EarlyStopping(DemographicParity(0.01), 10), lonely, 1.0)
    watch = watch.after(0, rng.normal(size=10).astype(np.float32), {"looks": silent_veil(lonely)})
    assert not watch.checks[0].passed and watch.checks[0].excess == math.inf
    assert watch.kept is None and not watch.is_over


# --- what it costs and reads ----------------------------------------------------------------------------------------


def test_all_checks_are_in_the_plan_and_cost_about_a_tenth():
    plans = {n: planned(watched(EarlyStopping(DemographicParity(0.2), n)), PRIVATE, 0.0) for n in (1, 4, 50)}
    bare = planned(Groupwise(FEW), PRIVATE, 0.0)
    for n_checks, plan in plans.items():
        looks = plan.stage("looks")
        assert looks.n_steps == n_checks
        assert looks.subset == "train" and dict(looks.rates) == {-1: 1.0}
        assert 0.98 < epsilon_of(plan.charges(), 1e-5) <= 1.0
        assert epsilon_of([looks.event], 1e-5) < 0.5
        without = [part.event for part in plan.stages if part.name != "looks"]
        assert epsilon_of(without, 1e-5) < 0.99
        noise = plan.stage("train").releases[0].noise_multiplier
        assert 1.01 < noise / bare.stage("train").releases[0].noise_multiplier < 1.12
    # the same precision in all, however often one looks
    costs = [epsilon_of([plan.stage("looks").event], 1e-5) for plan in plans.values()]
    assert max(costs) == pytest.approx(min(costs), rel=0.02)


def test_all_is_debited_before_the_first_check_and_nothing_is_refunded(rng, scripted):
    ledger, booked = Ledger(), []
    given = scripted(-0.1, 0.1)
    recipe = watched()
    plan = planned(recipe, PRIVATE, 0.0)
    veils = open_veils(make_records(rng), plan, ledger, secret_coins(), "a test")
    recipe.train(
        veils,
        PRIVATE,
        400.0,
        np.random.default_rng(0),
        lambda r: (booked.append(ledger.epsilon(1e-5)) or s for s in r),
    )
    assert len(given) == 2 and len(booked) == 3
    assert set(booked) == {ledger.epsilon(1e-5)}
    assert ledger.epsilon(1e-5) == pytest.approx(epsilon_of(plan.charges(), 1e-5))
    assert len(ledger.entries) == 1


def test_no_other_veil_is_opened_than_those_of_the_training_people(rng, monkeypatch):
    """Whoever is held out is read by the outcomes and the smooth rates after training, never on the way."""
    drawn = []
    draw = Veil.draw

    def noted(veil):
        drawn.append(veil.stage.name)
        return draw(veil)

    monkeypatch.setattr(Veil, "draw", noted)
    run(watched(EarlyStopping(DemographicParity(1.0), 4)), TASK, make_records(rng), holdout=0.3)
    order = [name for n_steps in (1, 2, 3) for name in (*["train"] * n_steps, "looks")]
    order = ["groups", *order, *["train"] * 5, "finish", "looks"]
    assert drawn == [*order, "holdout", "smooth rates"]


@pytest.mark.parametrize("how", ["nothing", "one class", "one group", "nobody", "not numbers"])
def test_values_steer_no_more_than_noisy_sums_do(rng, how, seeded):
    records = make_records(rng)
    X, y, cells = records.X.copy(), records.y.copy(), records.groups.copy()
    if how == "one class":
        y[:] = 1
    elif how == "one group":
        cells[:] = 0
    elif how == "nobody":
        X, y, cells = X[:0], y[:0], cells[:0]
    elif how == "not numbers":
        X[:2] = [[np.nan] * 4, [np.inf] * 4]
    fit = run(watched(), PRIVATE, MemoryRecords(X, y, cells), coins=secret_coins()).fit
    assert np.isfinite(fit.params).all()
    assert fit.last_step.checks
    assert not any(math.isnan(look.excess) for look in fit.last_step.checks)


def test_what_cannot_be_watched_is_refused():
    with pytest.raises(InvalidParameterError, match="n_checks"):
        EarlyStopping(DemographicParity(), 0)
    with pytest.raises(InvalidParameterError, match="first_check"):
        EarlyStopping(DemographicParity(), first_check=1.5)
    with pytest.raises(InvalidParameterError, match="sensitive attribute"):
        EarlyStopping(DemographicParity(0.1, attribute="race")).check(TASK)
    three = replace(TASK, people=replace(SIDES, classes=("a", "b", "c")))
    with pytest.raises(InvalidParameterError, match="two classes"):
        EarlyStopping(DemographicParity()).check(three)
    unwatched = EarlyStoppingState.start(None, LinearSoftmax(4, 2), TASK, None, 1.0, 5)
    assert unwatched.after(4, np.zeros(10, dtype=np.float32), {}) is unwatched


def test_smooth_rates_are_of_class_1_in_the_cell_of_their_own_record():
    model = LinearSoftmax(1, 2)
    params = np.array([-1.0, 1.0, 0.0, 0.0], dtype=np.float32)  # class 1 where x is above 0
    people = MemoryRecords(
        np.array([[10.0], [-10.0], [10.0], [0.0]], np.float32),
        np.array([1, 0, 1, 0], np.int16),
        np.array([0, 1, 1, -1], np.int16),
    )
    for is_row_stable in (True, False):
        rates = Sum(all_cells(3, 2), 2 * 3, NoisyMarginRate(model, params, 0.01, is_row_stable=is_row_stable))
        sums = people.answer(np.arange(4), rates, 0.5, 2).reshape(3, 2)
        np.testing.assert_allclose(sums, [[0.0, 0.5], [-0.5, 0.5], [0.0, 0.0]], atol=1e-6)
