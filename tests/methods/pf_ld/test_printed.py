"""PF-LD's printed form: each step against a loop over records, what a plan buys, what is public, and refusals."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from fairveil._random import reproducible_coins, secret_coins
from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.pricing import NeighboringRelation
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import DemographicParity, EqualizedOdds, ErrorRateParity
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.pf_ld.membership import against_all
from fairveil.methods.pf_ld.printed import DualStep, Epochs
from fairveil.methods.pf_ld.recipe import LagrangianDual
from fairveil.privacy.attribute import AttributeRecords, attribute_unit
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import Veil, open_veils
from fairveil.research.printed_f_ld import PublicTable, lagrangian_gradient, printed_f_ld
from fairveil.training.recipe import Task
from fairveil.training.run import make_plan, run_plan

SIDES = Population((Attribute("side", ("left", "right")),), ("no", "yes"))
UNIT = attribute_unit(["side"], "record")
TASK = Task(4, SIDES, math.sqrt(5), None, math.inf, 1e-5, UNIT)
KINDS = {"demographic_parity": DemographicParity, "equalized_odds": EqualizedOdds, "error_rate_parity": ErrorRateParity}
planned = cache(make_plan)


@pytest.fixture(autouse=True)
def one_thread():
    with threadpool_limits(1):
        yield


def make_records(rng, n=400, unknown=0.0):
    """The group follows from the first feature, which the label follows too."""
    X = rng.uniform(-1, 1, size=(n, 4)).astype(np.float32)
    groups = (X[:, 0] > 0).astype(np.int16)
    y = (2 * X[:, 0] + 3 * X[:, 1] + rng.logistic(size=n) > 0).astype(np.int16)
    groups[rng.random(n) < unknown] = -1
    return MemoryRecords(X, y, groups)


def recipe_of(notion="demographic_parity", rate=0.5, n_epochs=6, **choices):
    return LagrangianDual(
        KINDS[notion](),
        Descent(model="mlp", hidden=(5,), sampling_rate=rate),
        form="printed",
        n_counts=n_epochs,
        **choices,
    )


def run(recipe, records, task=TASK, seed=0, coins=None):
    guarded, coins = AttributeRecords.of(records, SIDES.codes), coins or reproducible_coins(0)
    return run_plan(planned(recipe, task), recipe, task, guarded, Ledger(), coins, np.random.default_rng(seed))


def loop_of(recipe, records, task=TASK):
    """The loop itself, and its veils over these records."""
    guarded = AttributeRecords.of(records, SIDES.codes)
    veils = open_veils(guarded, planned(recipe, task), Ledger(), reproducible_coins(0), "a test")
    model = recipe.model_for(task)
    return recipe._printed(veils, veils["train"].public, model, against_all(recipe.constraint, SIDES), task), veils


def means_of(loop, params, records, notion):
    """Everyone's mean h less each group's, in the order of the differences, one record after the other."""
    values = []
    for row, label in zip(records.X, records.y, strict=True):
        logits = loop.model.logits(params, row[None]).astype(np.float64)[:, 0]
        score = 1 / (1 + math.exp(logits[0] - logits[1]))
        loss = -math.log(score if label else 1 - score)
        values.append(min(loss, loop.loss_bound) if notion == "error_rate_parity" else score)
    values, found = np.array(values), []
    for label in (1, 0) if notion == "equalized_odds" else (None,):
        is_in = np.ones(len(values), bool) if label is None else records.y == label
        found += [values[is_in].mean() - values[is_in & (records.groups == group)].mean() for group in (0, 1)]
    return np.array(found)


@pytest.mark.parametrize("notion", sorted(KINDS))
def test_the_dual_step_is_that_of_equation_10(rng, notion):
    """lambda + s |mu - mu_G|, at most lambda_max, with h cut at C_d; people of unknown group are everyone's alone."""
    records = make_records(rng, 300, unknown=0.2)
    dual_bound = 0.8 if notion == "error_rate_parity" else None
    loop, _ = loop_of(recipe_of(notion, dual_rate=3.0, dual_bound=dual_bound, lambda_max=0.5), records)
    params = rng.normal(size=loop.model.n_params).astype(np.float32)
    expected = means_of(loop, params, records, notion)
    before = DualStep(np.full(len(expected), 0.1), np.ones(len(expected)), np.zeros((loop.sides.n_cells, 2)))
    now, (differences, errors) = loop.dual_step(params, before)
    np.testing.assert_allclose(np.sort(differences), np.sort(expected), atol=1e-5)
    np.testing.assert_allclose(now.multipliers, np.minimum(0.1 + 3.0 * np.abs(differences), 0.5), atol=1e-6)
    assert not errors.any()


@pytest.mark.parametrize("notion", sorted(KINDS))
def test_the_primal_step_is_the_gradient_of_the_printed_lagrangian(rng, notion):
    """Over everyone and without noise or bounds: both parts together against the other implementation of line 4."""
    records = make_records(rng, 200)
    big = 50.0 if notion == "error_rate_parity" else None
    loop, veils = loop_of(recipe_of(notion, rate=1.0, dual_bound=big), records)
    params = rng.normal(size=loop.model.n_params).astype(np.float32)
    now, (differences, _) = loop.dual_step(params, DualStep(*np.zeros((2, len(loop.sides))), np.zeros(())))
    multipliers = rng.uniform(0.5, 1.5, len(loop.sides))
    signed = multipliers * np.sign(differences)
    got = loop.public_gradient(params, np.arange(200), signed)
    got = got + loop.group_gradient(params, veils["train"].draw(), now, signed, 9)
    table = PublicTable(records.X, records.y, records.groups, notion)
    if notion == "equalized_odds":  # ours are of label 1 first, theirs of label 0
        multipliers = multipliers[[2, 3, 0, 1]]
    expected = lagrangian_gradient(loop.model, params, table, multipliers)
    np.testing.assert_allclose(got, expected, atol=1e-4)


@pytest.mark.parametrize("notion", ["demographic_parity", "error_rate_parity"])
def test_no_record_adds_more_than_its_weight_times_the_bound(rng, notion):
    """w_a clip(grad h_i, C_p), added up over the groups by a loop over records of one."""
    records, clip = make_records(rng, 60), 0.05
    loop, veils = loop_of(recipe_of(notion, rate=1.0, primal_bound=clip), records)
    params = rng.normal(size=loop.model.n_params).astype(np.float32)
    now, (differences, _) = loop.dual_step(params, DualStep(*np.zeros((2, 2)), np.zeros(())))
    signed = np.array([0.7, 1.3]) * np.sign(differences)
    got = loop.group_gradient(params, veils["train"].draw(), now, signed, 9)
    table = PublicTable(records.X, records.y, records.groups, notion)
    expected = np.zeros(loop.model.n_params)
    for place in range(60):
        one = np.array([place])
        logits = loop.model.logits(params, records.X[one])
        values, pulls = table.take(one).values(logits)
        if notion == "error_rate_parity" and values[0] >= loop.loss_bound:
            continue
        gradient = loop.model.clipped_gradient(params, records.X[one], np.ascontiguousarray(pulls), clip)
        group = records.groups[place]
        expected -= signed[group] / np.count_nonzero(records.groups == group) * gradient
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize("notion", sorted(KINDS))
def test_the_plan_spends_the_budget_and_its_draws_are_made(rng, notion, monkeypatch):
    drawn, draw = [], Veil.draw
    monkeypatch.setattr(Veil, "draw", lambda veil: drawn.append(veil.stage.name) or draw(veil))
    recipe, task = recipe_of(notion, rate=0.3, n_epochs=4), replace(TASK, epsilon=1.0)
    plan = planned(recipe, task)
    assert 0.98 < epsilon_of(plan.charges(), 1e-5) <= 1.0
    assert epsilon_of(plan.charges(), 1e-5, NeighboringRelation.REPLACE_ONE) > 1.0
    assert {part.name: part.n_steps for part in plan.stages} == {"train": 12, "looks": 4}
    assert [part.by_group for part in plan.stages] == [False, True]
    trained = run(recipe, make_records(rng), task, coins=secret_coins())
    assert (drawn.count("train"), drawn.count("looks"), len(drawn)) == (12, 4, 16)
    assert trained.fit.clip_norm == 1.0
    assert np.isfinite(trained.fit.params).all()


def test_the_first_epoch_reads_no_attribute(rng):
    """What is trained before the first dual step is the same, whatever the groups are."""
    records = make_records(rng)
    others = replace(records, groups=rng.permutation(records.groups))
    first, second = (run(recipe_of(n_epochs=2, lambda_max=1e-9), one) for one in (records, others))
    np.testing.assert_allclose(first.fit.params, second.fit.params, atol=1e-6)
    assert np.abs(run(recipe_of(n_epochs=2), records).fit.params - first.fit.params).max() > 1e-4


@pytest.mark.parametrize("notion", sorted(KINDS))
def test_differences_of_h_fall_without_noise(rng, notion):
    records = make_records(rng, 2000)
    left = {}
    for lambda_max in (1e-9, 5.0):
        recipe = recipe_of(notion, rate=0.1, n_epochs=20, lambda_max=lambda_max)
        left[lambda_max] = np.abs(run(recipe, records).fit.trace.values[-3:]).mean()
    assert left[5.0] < 0.6 * left[1e-9]


@pytest.mark.parametrize("notion", sorted(KINDS))
def test_the_exactly_printed_loop_brings_violations_down_too(rng, notion):
    records = make_records(rng, 2000)
    model, table = recipe_of().model_for(TASK), PublicTable(records.X, records.y, records.groups, notion)
    left = {}
    for lambda_max in (1e-9, 5.0):
        course = printed_f_ld(
            model, table, np.random.default_rng(0), n_epochs=20, batch=200, learning_rate=0.1, dual_rate=10.0,
            lambda_max=lambda_max,
        )  # fmt: skip
        left[lambda_max] = course.violations[-3:].mean()
        assert course.multipliers.max() <= lambda_max
    assert left[5.0] < 0.6 * left[1e-9]


def test_a_group_of_nobody_is_not_chased(rng):
    records = make_records(rng)
    trained = run(recipe_of(), replace(records, groups=np.ones_like(records.groups)))
    assert not trained.fit.trace.multipliers[:, 0].any()


def test_mini_batches_make_up_everyone():
    assert Epochs.at(0.25, 3) == Epochs(3, 4)
    assert (Epochs.at(1.0, 3).n_steps, Epochs.at(1.0, 3).n_releases) == (3, 2)


@pytest.mark.parametrize(
    "choices, words",
    [
        ({"primal": "memberships"}, "primal"),
        ({"primal_bound": "private"}, "primal_bound"),
        ({"n_counts": 1}, "n_counts"),
        ({"descent": Descent(n_steps=10)}, "n_steps"),
        ({"dual_bound": 0.5}, "dual_bound >= 1"),
        ({"constraint": [DemographicParity(), ErrorRateParity()]}, "error rate parity alone"),
    ],
)
def test_what_the_printed_form_does_not_have_is_refused(choices, words):
    with pytest.raises(InvalidParameterError, match=words):
        LagrangianDual(**({"constraint": DemographicParity(), "form": "printed"} | choices)).check(TASK)


@pytest.mark.parametrize("choice", [{"form": "exact"}, {"dual_rate": 0.0}])
def test_bad_choices_are_refused_at_once(choice):
    with pytest.raises(InvalidParameterError):
        LagrangianDual(**choice)


def test_a_network_that_noise_carries_away_still_ends(rng):
    """Ten layers at a step size that is far too large: the parameters stay numbers, whatever they are worth."""
    descent = Descent(model="mlp", hidden=(4,) * 10, sampling_rate=0.1, learning_rate=1e6)
    recipe = LagrangianDual(ErrorRateParity(), descent, form="printed", n_counts=4)
    trained = run(recipe, make_records(rng), replace(TASK, epsilon=0.1), coins=secret_coins())
    assert not np.isnan(trained.fit.params).any()
    assert np.isfinite(trained.fit.trace.multipliers).all()
