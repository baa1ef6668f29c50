"""RaCO-DP before and beside its steps: the plan and its price, what is refused, who is missing, what cannot be had."""

import math
from dataclasses import replace

import numpy as np
import pytest

from _support.two_sides import TASK, make_records, run
from fairveil._random import secret_coins
from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.events import GaussianRelease, Joint, LaplaceRelease, PoissonSampled, Repeated
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import (
    DemographicParity,
    FalseNegativeRateCap,
    FalsePositiveRateCap,
    PrecisionParity,
)
from fairveil.fairness.rates import Attribute, Population
from fairveil.fairness.rule_parser import Rule
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.raco.recipe import RateConstrained
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.records import MemoryRecords
from fairveil.training.run import make_plan, run_plan

# --- what cannot be had, and who is not there -----------------------------------------------------------------------

IMPOSSIBLE = [Rule("false_negative_rate <= 0.05"), Rule("selection_rate <= 0.02")]


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_what_cannot_be_had_ends_in_the_planned_steps_and_says_so(rng, seeded, epsilon):
    seen = []
    recipe = RateConstrained(IMPOSSIBLE, Descent(n_steps=80))
    task = replace(TASK, epsilon=epsilon, n_public=4000)
    plan = make_plan(recipe, task)
    trained = run_plan(
        plan, recipe, task, make_records(rng, n=4000), Ledger(), secret_coins(), rng,
        lambda steps: (seen.append(step) or step for step in steps),
    )  # fmt: skip
    assert seen == list(range(80))
    assert np.isfinite(trained.fit.params).all()
    assert not trained.fit.check.may_hold
    assert "<= 0." in trained.fit.check.complaint()


PARITIES = [DemographicParity(0.05), FalseNegativeRateCap(0.2, each_group=True), PrecisionParity(0.1)]
NOBODY = np.empty(0, dtype=np.int16)
HARD = {
    "no rows": lambda r: MemoryRecords(np.empty((0, 4), np.float32), NOBODY, NOBODY),
    "one row": lambda r: MemoryRecords(r.X[:1], r.y[:1], r.groups[:1]),
    "a group without rows": lambda r: replace(r, groups=np.zeros_like(r.groups)),
    "a group of one class": lambda r: replace(r, y=np.where(r.groups == 1, 0, r.y).astype(np.int16)),
    "one class": lambda r: replace(r, y=np.zeros_like(r.y)),
    "the other class": lambda r: replace(r, y=np.ones_like(r.y)),
    "no known group": lambda r: replace(r, groups=np.full_like(r.groups, 2)),
    "some of no group": lambda r: replace(r, groups=np.where(r.X[:, 1] > 0, r.groups, -1).astype(np.int16)),
    "NaN": lambda r: replace(r, X=np.where(r.X > 0.99, np.nan, r.X).astype(np.float32)),
    "infinity": lambda r: replace(r, X=np.where(r.X > 0.99, np.inf, r.X).astype(np.float32)),
    "all NaN": lambda r: replace(r, X=np.full_like(r.X, np.nan)),
}


@pytest.mark.parametrize("n_public", [3, 10**6, None])
@pytest.mark.parametrize("name", HARD)
def test_whoever_is_missing_all_numbers_stay_finite(rng, seeded, name, n_public):
    records = HARD[name](make_records(rng))
    task = replace(TASK, epsilon=2.0, n_public=n_public)
    recipe = RateConstrained(PARITIES, Descent(n_steps=20))
    trained = run(recipe, task, records, holdout=0.2, coins=secret_coins())
    _check_finite(trained)


@pytest.mark.parametrize("is_soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("name", [name for name in HARD if "NaN" not in name and name != "infinity"])
def test_whoever_is_missing_it_is_the_same_without_privacy(rng, name, is_soft):
    """Broken inputs are left out: without a clip norm they are the user's own, and the encoder makes none."""
    recipe = RateConstrained(PARITIES, Descent(n_steps=20), soft_rates=is_soft)
    _check_finite(run(recipe, TASK, HARD[name](make_records(rng))))


@pytest.mark.parametrize("histogram", ["gaussian", "laplace"])
@pytest.mark.parametrize("name", ["no rows", "all NaN", "a group without rows"])
def test_soft_rates_stay_finite_too(rng, seeded, name, histogram):
    recipe = RateConstrained(PARITIES, Descent(n_steps=20), soft_rates=True, histogram=histogram)
    task = replace(TASK, epsilon=2.0)
    _check_finite(run(recipe, task, HARD[name](make_records(rng)), coins=secret_coins()))


def _check_finite(trained):
    trace, check = trained.fit.trace, trained.fit.check
    released = (trained.fit.params, trace.values, trace.half_widths, trace.multipliers)
    looked = (check.values, check.standard_errors, check.offsets, check.clipped_share)
    for numbers in (*released, *looked):
        assert np.isfinite(numbers).all()
    assert isinstance(check.complaint(), str)


# --- the plan -------------------------------------------------------------------------------------------------------

KINDS = {
    "gaussian": {},
    "laplace": {"histogram": "laplace"},
    "laplace with a scale": {"histogram": "laplace", "laplace_scale": 9.0},
    "soft": {"soft_rates": True},
    "soft laplace": {"soft_rates": True, "histogram": "laplace"},
    "without a last look": {"final_check": False},
    "discrete": {"histogram": "discrete_gaussian"},
}


@pytest.mark.slow
@pytest.mark.parametrize("n_public", [400, None])
@pytest.mark.parametrize("holdout", [0.0, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_every_plan_meets_its_budget_and_no_more(kind, holdout, n_public):
    recipe = RateConstrained(DemographicParity(0.1), Descent(n_steps=20), **KINDS[kind])
    task = replace(TASK, epsilon=0.7, n_public=n_public)
    plan = make_plan(recipe, task, holdout)
    assert 0.69 < epsilon_of(plan.charges(), task.delta) <= 0.7
    names = [part.name for part in plan.stages]
    expected = [
        *["size"] * (n_public is None),
        "train",
        *["look"] * recipe.final_check,
        *["holdout"] * (holdout > 0),
    ]
    assert names == expected


@pytest.mark.parametrize("law, event", [("gaussian", GaussianRelease), ("laplace", LaplaceRelease)])
def test_a_step_is_one_joint_event_on_one_batch(law, event):
    recipe = RateConstrained(DemographicParity(0.1), Descent(n_steps=20, sampling_rate=0.2), histogram=law)
    part = make_plan(recipe, replace(TASK, epsilon=1.0)).stage("train")
    histogram, gradient = (release.noise_multiplier for release in part.releases)
    step = Joint((event(histogram), GaussianRelease(gradient)))
    assert part.event == Repeated(PoissonSampled(0.2, step), 20)


def test_the_threshold_check_composes_in_sequence_with_the_steps():
    task = replace(TASK, epsilon=1.0)
    plan = make_plan(RateConstrained(DemographicParity(0.1), Descent(n_steps=20)), task, holdout=0.3)
    steps, look, holdout = plan.stages
    assert (steps.subset, look.subset, holdout.subset) == ("train", "train", "holdout")
    assert steps.share == look.share == 0.7
    apart = [epsilon_of([part.event], task.delta) for part in (steps, look)]
    together = epsilon_of([steps.event, look.event], task.delta)
    assert max(apart) < 0.99 < together <= 1.0
    subsets = [charge.part for charge in plan.charges()]
    assert subsets == ["train", "train", "holdout"]


def test_a_set_laplace_scale_is_planned_and_the_gradient_pays_for_it():
    def noises(**choices):
        recipe = RateConstrained(DemographicParity(0.1), Descent(n_steps=20), "laplace", **choices)
        return [r.noise_multiplier for r in make_plan(recipe, replace(TASK, epsilon=1.0)).stage("train").releases]

    for scale in (6.0, 30.0):
        assert noises(laplace_scale=scale)[0] == scale
    assert noises(laplace_scale=6.0)[1] > noises(laplace_scale=30.0)[1]
    assert noises()[0] > 0


def test_without_privacy_no_noise_is_planned():
    recipe = RateConstrained(DemographicParity(0.1), Descent(n_steps=20), "laplace", laplace_scale=5.0)
    plan = make_plan(recipe, TASK)
    assert {release.noise_multiplier for part in plan.stages for release in part.releases} == {0.0}


@pytest.mark.parametrize(
    "choices, words",
    [
        ({"histogram": "cauchy"}, "law"),
        ({"temperature": 0.0}, "temperature"),
        ({"laplace_scale": -1.0, "histogram": "laplace"}, "laplace_scale"),
        ({"laplace_scale": 2.0}, "histogram"),
        ({"headroom": -0.5}, "headroom"),
        ({"headroom": math.inf}, "headroom"),
        ({"headroom": math.nan}, "headroom"),
        ({"descent": Descent(clipping="groups")}, "flat clipping"),
    ],
)
def test_bad_choices_are_refused(choices, words):
    with pytest.raises(InvalidParameterError, match=f"Expected.*{words}"):
        RateConstrained(DemographicParity(0.1), **choices)


@pytest.mark.parametrize(
    "recipe, words",
    [
        (
            RateConstrained(DemographicParity(0.1), soft_rates=True, histogram="discrete_gaussian"),
            "soft rates",
        ),
        (RateConstrained(DemographicParity(0.1), Descent(clip_norm=math.inf)), "finite clip_norm"),
        (RateConstrained(Rule("selection_rate >= 1.1")), "rates between 0 and 1 can meet"),
        (RateConstrained(DemographicParity(0.1), Descent(), "laplace", laplace_scale=0.01), "budget"),
        (RateConstrained(()), "at least one rate"),
        (RateConstrained("demographic_parity"), "constraints such as"),
        (RateConstrained(DemographicParity(0.1, attribute="age")), "sensitive attribute"),
        (RateConstrained(Rule("selection_rate[side=middle] <= 0.1")), "group of 'side'"),
        (RateConstrained(Rule("selection_rate(maybe) <= 0.1")), "classes"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(recipe, words):
    with pytest.raises(InvalidParameterError, match=f"Expected.*{words}"):
        make_plan(recipe, replace(TASK, epsilon=1.0))


def test_one_constraint_and_a_list_of_it_are_the_same(rng):
    records = make_records(rng)
    cap = FalsePositiveRateCap(0.1)
    one, listed = (run(RateConstrained(asked, Descent(n_steps=20)), TASK, records) for asked in (cap, [cap, cap]))
    assert np.array_equal(one.fit.params, listed.fit.params)


def test_a_group_without_people_raises_no_alarm_and_moves_no_threshold(rng):
    people = Population((Attribute("side", ("left", "right", "nobody")),), ("no", "yes"))
    trained = run(RateConstrained(DemographicParity(0.5)), replace(TASK, people=people), make_records(rng))
    check = trained.fit.check
    assert check.may_hold and not check.offsets.any()
    told = [str(bound) for bound, is_told in zip(check.bounds, check.has_enough_people, strict=True) if is_told]
    assert len(told) == 2 and not any("nobody" in bound for bound in told)


@pytest.mark.parametrize("hidden", [(0,), (3.5,)])
def test_a_model_that_cannot_be_built_is_refused_before_the_debit(rng, hidden):
    recipe = RateConstrained(FalsePositiveRateCap(0.5), Descent(model="mlp", hidden=hidden))
    with pytest.raises(InvalidParameterError, match="hidden"):
        make_plan(recipe, TASK)
