"""DP-oracle-learner: the auditor's ball, the price of a round, the law of the mixture, what it costs, refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fairveil import DemographicParity, Descent, EqualizedOdds, Key, Ledger
from fairveil._random import reproducible_coins, secret_coins
from fairveil.accounting.composition import epsilon_of
from fairveil.audit.bounds import free_bound
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import constrain
from fairveil.fairness.rates import Attribute, Population
from fairveil.models import LinearSoftmax
from fairveil.models.base import model_from_dict, model_to_dict
from fairveil.models.rules import RandomizedByKey
from fairveil.privacy.attribute import AttributeRecords, attribute_unit
from fairveil.privacy.plan import Plan, Stage
from fairveil.privacy.queries import DecisionPrice, GradientSum
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import open_veils
from fairveil.research.oracle_learner import (
    SHARPNESS,
    MixtureModel,
    OracleClassifier,
    OracleLearner,
    auditor_multipliers,
)
from fairveil.training.recipe import Task
from fairveil.training.run import make_plan, run_plan

PEOPLE = Population((Attribute("side", ("left", "right")),), ("no", "yes"))
UNIT = attribute_unit(["side"], "record")
TASK = Task(3, PEOPLE, 2.0, 2000, 1.0, 1e-6, unit=UNIT)
KEY = Key(bytes(range(16)))
ODDS = constrain(EqualizedOdds(), PEOPLE)


def make_records(rng, n=2000):
    """Two groups whose error rates differ under the best rule, and a feature that tells the groups apart."""
    groups = (rng.random(n) < 0.4).astype(np.int16)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    X[:, 2] = groups + 0.3 * rng.normal(size=n)
    y = (X[:, 0] + 1.5 * groups - 0.5 + rng.logistic(size=n) * 0.5 > 0).astype(np.int16)
    return AttributeRecords.of(MemoryRecords(X, y, groups), PEOPLE.codes)


def run(recipe, task, records):
    plan = make_plan(recipe, task)
    return run_plan(plan, recipe, task, records, Ledger(), reproducible_coins(0), np.random.default_rng(0))


def gap_of(trained, records):
    law = np.exp(trained.model.logits(trained.fit.params, records.public.X))[1]
    y, groups = records.public.y, records.records.groups
    rates = [[law[(y == label) & (groups == code)].mean() for code in (0, 1)] for label in (0, 1)]
    return max(abs(one - other) for one, other in rates)


@pytest.mark.parametrize("bound", [0.5, 4.0])
def test_multipliers_stay_in_the_ball_and_follow_the_worst_bound(rng, bound):
    for sums in (rng.normal(size=4) * 50, np.full(4, -800.0), np.full(4, 900.0)):
        multipliers = auditor_multipliers(sums, bound)
        assert (multipliers >= 0).all() and multipliers.sum() <= bound * (1 + 1e-9)
    assert auditor_multipliers(np.array([300.0, 0.0, -5.0, 1.0]), bound)[0] == pytest.approx(bound)


@pytest.mark.parametrize("epsilon", [math.inf, 20.0])
def test_the_gap_falls_with_the_bound_on_multipliers(rng, epsilon):
    """Means over four tables: in five sets of four, the second mean was .22 to .68 of the first."""
    task, gaps = replace(TASK, epsilon=epsilon), []
    for _ in range(4):
        records = make_records(rng)
        gaps.append(
            [
                gap_of(run(OracleLearner(EqualizedOdds(), rounds=24, steps=12, bound=bound), task, records), records)
                for bound in (0.01, 3.0)
            ]
        )
    loose, tight = np.mean(gaps, axis=0)
    assert loose > 0.12
    assert tight < 0.85 * loose


def test_prices_are_the_derivative_of_multiplied_violations(rng):
    """Moving one person's decision changes sum_j multiplier_j violation_j by price / size."""
    counts, multipliers = rng.integers(50, 400, size=(4, 2)).astype(float), rng.random(len(ODDS.bounds))
    prices = OracleLearner._prices(ODDS, counts, multipliers, counts.sum())
    for cell in range(4):
        moved = counts.copy()
        moved[cell] += [-1e-4, 1e-4]
        change = multipliers @ (ODDS.violation(moved) - ODDS.violation(counts))
        assert (prices[cell, 1] - prices[cell, 0]) * 1e-4 / counts.sum() == pytest.approx(change, rel=1e-3, abs=1e-12)
    assert not prices[-1].any()


def test_the_mixture_publishes_the_law_of_a_uniform_draw(rng):
    base = LinearSoftmax(3, 2)
    model, X = MixtureModel(base, 5), rng.normal(size=(400, 3)).astype(np.float32)
    params = rng.normal(size=model.n_params).astype(np.float32)
    votes = np.mean([base.logits(own, X).argmax(axis=0) for own in params.reshape(5, -1)], axis=0)
    law = RandomizedByKey().distribution(model.logits(params, X), np.zeros(400, int))
    assert np.allclose(law[:, 1], votes, atol=1e-5)
    assert model_from_dict(model_to_dict(model)) == model
    assert model.forward(model.initial(rng), X)[0].shape == (2, 400)


def test_rounds_and_steps_are_priced_by_the_accountant():
    plan = make_plan(OracleLearner(EqualizedOdds(), rounds=10, steps=5), TASK)
    stages = [(stage.name, stage.n_steps, stage.by_group) for stage in plan.stages]
    assert stages == [("train", 50, False), ("audit", 10, True)]
    assert 0.98 < epsilon_of(plan.charges(), TASK.delta) <= 1.0


@pytest.mark.attack
@pytest.mark.parametrize("is_broken", [False, True], ids=["honest", "twin"])
def test_the_claim_of_a_step_stands_and_a_heavier_price_is_caught(is_broken, seeded):
    """A twin that clips the gradient of a price of 1 where the price is 4, and multiplies afterwards."""
    model, params, n_draws = LinearSoftmax(1, 2), np.zeros(4, np.float32), 2_000
    gradient, _ = OracleLearner(EqualizedOdds()).stages(1.0, 1.0, TASK)
    stage = Stage("train", gradient.releases, n_steps=n_draws)
    prices = DecisionPrice(np.tile(np.array([0.0, 1.0], np.float32), (6, 1)), SHARPNESS)
    worlds = []
    for cell in (0, -1):
        one = MemoryRecords(np.full((1, 1), 50.0, np.float32), np.ones(1, np.int16), np.full(1, cell, np.int16))
        records = AttributeRecords.of(one, PEOPLE.codes)
        veil = open_veils(records, Plan((stage,), 1.0, 1e-5, UNIT), Ledger(), secret_coins(), "a game")["train"]
        totals = []
        for _ in range(n_draws):
            batch = veil.draw()
            exact = batch._veil._records.answer(batch._drawn, GradientSum(model, params, prices), 0.5, 2, 1)
            noisy = batch.release_gradient(model, params, prices, 0.5)
            totals.append((noisy + 3 * exact if is_broken else noisy)[:2] @ np.array([-1.0, 1.0]))
        worlds.append(np.array(totals))
    shown, claim = free_bound(worlds[0], worlds[1][::-1], 1e-2), epsilon_of([gradient.releases[0].event], 1e-2)
    assert shown > claim if is_broken else shown <= claim


def test_a_classifier_draws_from_the_mixture_and_never_reads_the_attribute(people, tmp_path):
    schema = people.schema.without("sex")
    recipe = OracleLearner(rounds=6, steps=4)
    clf = OracleClassifier(EqualizedOdds(), 1.0, 1e-6, recipe, schema, "sex", ledger=Ledger()).fit(people.X, people.y)
    assert clf.epsilon_spent_ <= 1.0 and clf.plan_.unit == "attribute sex of each record"
    clf.use_key(KEY)
    first = clf.predict(people.X)
    assert np.array_equal(first, clf.predict(people.X.assign(sex="Female")))
    law = clf.predict_proba(people.X)
    assert set(np.unique(law[:, 1].round(4))) <= {0.0, 0.3333, 0.6667, 1.0}
    assert np.mean(first == people.y.to_numpy()) > 0.75


@pytest.mark.parametrize(
    "choices",
    [{"rounds": 0}, {"steps": 0}, {"bound": 0.0}, {"audit_rate": -1.0}, {"descent": Descent(clipping="groups")}],
    ids=lambda choices: next(iter(choices)),
)
def test_bad_choices_are_refused(choices):
    with pytest.raises(InvalidParameterError, match="Expected"):
        OracleLearner(**choices)


def test_whole_records_are_refused(rng):
    with pytest.raises(InvalidParameterError, match="attribute alone is secret"):
        make_plan(OracleLearner(DemographicParity()), replace(TASK, unit="record"))
