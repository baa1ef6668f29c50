"""Training under the penalty: the gradient it follows, what comes out, what it releases, at both levels of privacy."""

import math
from dataclasses import replace

import numpy as np
import pytest

from _support.two_sides import SIDES, TASK, make_records, run
from fairveil._random import reproducible_coins
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import DemographicParity, EqualizedOdds
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.fermi.penalty import ClosedForm, blocks_of
from fairveil.methods.fermi.recipe import Fermi, PenaltyAscent
from fairveil.models import LinearSoftmax
from fairveil.models.losses import softmax
from fairveil.privacy.attribute import AttributeRecords, PublicRows, attribute_unit
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.queries import GradientSum, Lagrangian
from fairveil.privacy.records import MemoryRecords, Rows
from fairveil.training.recipe import Task
from fairveil.training.run import make_plan, run_plan

QUICK = Descent(n_steps=60, sampling_rate=1.0)
SECRET = replace(TASK, n_public=None, unit=attribute_unit(["side"], "record"))


def fermi(weight=4.0, constraint=None, **choices):
    return Fermi(DemographicParity() if constraint is None else constraint, QUICK, weight, **choices)


def run_secret(recipe, records, task=SECRET, seed=0):
    guarded = AttributeRecords.of(records, task.people.codes)
    plan = make_plan(recipe, task)
    return run_plan(plan, recipe, task, guarded, Ledger(), reproducible_coins(0), np.random.default_rng(seed))


def gap_of(trained, records):
    decided = trained.model.logits(trained.fit.params, records.X).argmax(axis=0)
    rates = [np.mean(decided[records.groups == group] == 1) for group in np.unique(records.groups)]
    return max(rates) - min(rates)


# --- the gradient ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("constraint", [DemographicParity(), EqualizedOdds()])
def test_a_step_follows_the_gradient_of_loss_and_penalty(rng, constraint):
    """Against finite differences of the mean loss plus lambda D of the soft decisions."""
    people = Population((Attribute("side", ("left", "middle", "right")),), ("no", "perhaps", "yes"))
    records, model, weight = make_records(rng, 300, 3, 3), LinearSoftmax(4, 3), 2.5
    params = rng.normal(size=model.n_params).astype(np.float32)
    blocks, n = blocks_of(constraint, people), len(records.y)

    def objective(at):
        soft = softmax(model.logits(at.astype(np.float64), records.X.astype(np.float64)))
        cells, counts = blocks.sides.groups.cells[records.groups, records.y], np.zeros((blocks.n_cells, 3))
        np.add.at(counts, cells, soft.T)
        penalty = ClosedForm().step((), counts, blocks, 1e-9)[2]
        return -np.mean(np.log(soft[records.y, np.arange(n)])) + weight * penalty, counts

    stage = make_plan(fermi(weight, constraint), Task(4, people, 3.0, n, math.inf, 1e-5)).stage("train")
    ascent = PenaltyAscent.of(fermi(weight, constraint), blocks, stage, float(n))
    _, pull, _ = ascent.add(objective(params)[1]).pulled()
    gradient = GradientSum(model, params, Lagrangian(pull)).total(Rows(records, np.arange(n)), math.inf) / n
    for place in range(model.n_params):
        step = np.zeros(model.n_params)
        step[place] = 1e-4
        slope = (objective(params + step)[0] - objective(params - step)[0]) / 2e-4
        assert gradient[place] == pytest.approx(slope, rel=2e-3, abs=2e-4)


# --- what comes out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["histogram", "min_max"])
def test_a_heavier_penalty_leaves_a_smaller_gap(rng, form):
    records = make_records(rng)
    gaps = [gap_of(run(fermi(weight, form=form), TASK, records), records) for weight in (0.0, 2.0, 16.0)]
    assert gaps[0] > 0.2 and gaps[1] < 0.6 * gaps[0]
    assert gaps[2] < 0.12


@pytest.mark.parametrize("primal", ["memberships", "gradients"])
def test_the_gap_closes_where_the_attribute_alone_is_secret(rng, primal):
    records = make_records(rng)
    long = replace(fermi(primal=primal), descent=replace(QUICK, n_steps=400))
    gaps = [gap_of(run_secret(replace(long, penalty_weight=weight), records), records) for weight in (0.0, 16.0)]
    assert gaps[0] > 0.2
    assert gaps[1] < 0.5 * gaps[0]


@pytest.mark.parametrize("trained_by", [run, run_secret])
def test_the_coding_of_groups_does_not_matter_without_noise(rng, trained_by):
    records = make_records(rng, n_groups=3)
    groups = ("left", "middle", "right")
    order = [2, 0, 1]
    found = []
    for names, codes in (
        (groups, records.groups),
        (tuple(groups[i] for i in order), np.argsort(order)[records.groups]),
    ):
        people = Population((Attribute("side", names),), ("no", "yes"))
        own = MemoryRecords(records.X, records.y, codes.astype(np.int16))
        task = replace(TASK if trained_by is run else SECRET, people=people)
        recipe = replace(fermi(), descent=replace(QUICK, n_steps=30))
        found.append(trained_by(recipe, task, own) if trained_by is run else run_secret(recipe, own, task))
    np.testing.assert_allclose(found[0].fit.params, found[1].fit.params, rtol=1e-3, atol=2e-4)


def test_without_privacy_it_is_plain_descent_on_the_penalized_loss(rng):
    """A full batch, no momentum, no smoothing to speak of: against a hand-written loop."""
    records, weight, n_steps = make_records(rng), 3.0, 25
    descent = Descent(n_steps=n_steps, sampling_rate=1.0, learning_rate=0.3, momentum=0.0)
    trained = run(Fermi(DemographicParity(), descent, weight), TASK, records)
    X = np.column_stack([records.X, np.ones(len(records.y))]).astype(np.float64)
    blocks, model = blocks_of(DemographicParity(), SIDES), LinearSoftmax(4, 2)
    w, kept, mass, later = np.zeros((2, 5)), np.zeros((2, 2)), 0.0, []
    for step in range(n_steps):
        soft = softmax(w @ X.T)
        counts = np.stack([soft[:, records.groups == group].sum(axis=1) for group in (0, 1)])
        kept, mass = 0.9 * kept + counts, 0.9 * mass + 1
        pull = ClosedForm().step((), kept / mass, blocks, 1.0)[1][records.groups].T * weight * len(X)
        slopes = soft - (np.arange(2)[:, None] == records.y) + soft * (pull - np.sum(soft * pull, axis=0))
        w = w - 0.3 * slopes @ X / len(X)
        if step >= n_steps // 2:
            later.append(w)
    mean = np.mean(later, axis=0)
    theirs = model.logits(trained.fit.params, records.X)
    np.testing.assert_allclose(theirs, mean @ X.T, atol=2e-3)


@pytest.mark.parametrize("trained_by", [run, run_secret])
def test_the_penalty_may_be_taken_at_decisions(rng, trained_by):
    records = make_records(rng)
    long = replace(fermi(0.0), descent=replace(QUICK, n_steps=200), soft=False)
    gaps = []
    for weight in (0.0, 30.0):
        recipe = replace(long, penalty_weight=weight)
        gaps.append(gap_of(run(recipe, TASK, records) if trained_by is run else run_secret(recipe, records), records))
    assert gaps[0] > 0.2
    assert gaps[1] < 0.5 * gaps[0]


def test_it_takes_several_groups_and_classes_and_records_without_a_group(rng):
    people = Population((Attribute("side", ("left", "middle", "right")),), ("no", "perhaps", "yes"))
    records = make_records(rng, 600, 3, 3)
    groups = records.groups.copy()
    groups[:50] = people.n_groups - 1  # the code of people of no group
    some = MemoryRecords(records.X, records.y, groups)
    for constraint in (DemographicParity(), EqualizedOdds()):
        for task in (replace(TASK, people=people), replace(TASK, people=people, epsilon=2.0)):
            assert np.isfinite(run(fermi(4.0, constraint), task, some).fit.params).all()
        assert np.isfinite(run_secret(fermi(4.0, constraint), some, replace(SECRET, people=people)).fit.params).all()


# --- what is released -----------------------------------------------------------------------------------------------


def test_histogram_and_gradient_of_a_step_are_one_joint_event():
    plan = make_plan(fermi(), replace(TASK, epsilon=1.0))
    (train,) = (stage for stage in plan.stages if stage.name == "train")
    assert [release.name for release in train.releases] == ["histogram", "gradient"]
    assert train.to_dict()["releases"][0]["joint_batch"] and train.n_steps == 60


def test_the_public_rows_are_drawn_by_other_coins_than_the_secret_ones(rng, monkeypatch):
    """A public sum over the batch of the groups would tell its members."""
    records, drawn = make_records(rng), []
    sample = PublicRows.sample

    def noted(public, n_rows, coins):
        drawn.append(coins)
        return sample(public, n_rows, coins)

    monkeypatch.setattr(PublicRows, "sample", noted)
    public_coins, secret_coins = np.random.default_rng(0), reproducible_coins(0)
    recipe, guarded = fermi(primal="gradients"), AttributeRecords.of(records, SIDES.codes)
    run_plan(make_plan(recipe, SECRET), recipe, SECRET, guarded, Ledger(), secret_coins, public_coins)
    assert drawn and all(coins is public_coins for coins in drawn)


def test_attributes_reach_the_public_side_through_releases_only(rng):
    """With a weight of 0 nothing of the attribute is left, whatever it is."""
    records = make_records(rng)
    other = MemoryRecords(records.X, records.y, 1 - records.groups)
    found = [run_secret(fermi(0.0), own, replace(SECRET, epsilon=1.0)).fit.params for own in (records, other)]
    np.testing.assert_array_equal(*found)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choices, expected",
    [
        ({"penalty_weight": -1.0}, "penalty_weight >= 0"),
        ({"penalty_weight": math.inf}, "penalty_weight >= 0 and finite"),
        ({"form": "saddle"}, "form"),
        ({"ascent_rate": 0.0}, "ascent_rate > 0"),
        ({"radius": -1.0}, "radius > 0"),
        ({"primal": "guessed"}, "primal"),
        ({"descent": Descent(clipping="groups")}, "flat clipping"),
    ],
)
def test_choices_that_make_no_sense_are_refused(choices, expected):
    with pytest.raises(InvalidParameterError, match=expected):
        Fermi(**choices)


def test_a_way_to_read_the_attribute_is_refused_where_records_are_secret():
    with pytest.raises(InvalidParameterError, match='primal only with protects="attribute"'):
        fermi(primal="gradients").check(TASK)
    with pytest.raises(InvalidParameterError, match="without clipping"):
        Fermi(DemographicParity(), Descent(clip_norm=1.0)).check(SECRET)
