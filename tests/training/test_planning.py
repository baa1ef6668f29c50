"""Plans of several pieces: each piece of people has the whole budget, parts on one piece share it."""

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from _support.two_sides import TASK, planned
from fairveil.accounting.composition import epsilon_of
from fairveil.fairness.constraints import DemographicParity
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.decoupled_parity import RateFlips
from fairveil.methods.dp2dp import Postprocessed, PrefittedScores
from fairveil.methods.dp2dp.dual_steps import DualSteps
from fairveil.methods.dp2dp.thresholds import ScoreHistogram
from fairveil.methods.dp_sgd import Descent
from fairveil.privacy.plan import Release, Stage
from fairveil.research.dp2dp_forms import NoisyDescent
from fairveil.training.run import make_plan

PARITY = DemographicParity(0.05)
EPSILON = 0.8
PRIVATE = replace(TASK, epsilon=EPSILON)
FITTINGS = {
    "histogram": ScoreHistogram(),
    "steps": DualSteps(),
    "descent": NoisyDescent(),
    "flips": RateFlips(),
}
fittings = pytest.mark.parametrize("fitting", FITTINGS.values(), ids=FITTINGS.keys())
sizes = pytest.mark.parametrize("n_public", [400, None])
holdouts = pytest.mark.parametrize("holdout", [0.0, 0.3])


def plan_of(fitting=None, task=PRIVATE, holdout=0.0, base=None, **choices):
    recipe = Postprocessed(base or Descent(n_steps=50), fitting or ScoreHistogram(), PARITY, **choices)
    return planned(recipe, task, holdout)


def cost_of(plan, *subsets):
    """What people of some pieces pay, if they met all of them, together with what is asked of everyone."""
    parts = [part for part in plan.stages if part.subset in (*subsets, "size")]
    return epsilon_of([part.event for part in parts], plan.delta)


def is_exhausted(cost):
    return 0.999 * EPSILON <= cost <= EPSILON


def noise(plan, part):
    return plan.stage(part).releases[0].noise_multiplier


# --- a part kept apart for the rule -----------------------------------------------------------------------


@fittings
@sizes
@holdouts
def test_each_piece_spends_the_whole_budget(fitting, n_public, holdout):
    plan = plan_of(fitting, replace(PRIVATE, n_public=n_public), holdout, rule_fraction=0.2)
    subsets = dict.fromkeys(part.subset for part in plan.stages if part.subset != "size")
    assert list(subsets) == ["train", "rule", *["holdout"] * (holdout > 0)]
    for subset in subsets:
        assert is_exhausted(cost_of(plan, subset))
    assert is_exhausted(epsilon_of(plan.charges(), plan.delta))


@fittings
def test_people_who_met_both_pieces_would_pay_more_than_the_budget(fitting):
    """So the noises are not those of one piece, and a plan whose pieces overlapped would break its word."""
    assert cost_of(plan_of(fitting, rule_fraction=0.2), "train", "rule") > 1.2 * EPSILON


@fittings
@sizes
def test_training_on_its_own_piece_has_the_noise_of_training_alone(fitting, n_public):
    task = replace(PRIVATE, n_public=n_public)
    alone = noise(make_plan(Descent(n_steps=50), task), "train")
    assert noise(plan_of(fitting, task, rule_fraction=0.2), "train") == pytest.approx(alone, rel=3e-4)
    assert noise(plan_of(fitting, task, rule_fraction=0.5), "train") == pytest.approx(alone, rel=3e-4)


def test_noise_of_a_rule_on_its_own_subset_ignores_the_training():
    short, long = (plan_of(rule_fraction=0.2, base=Descent(n_steps=n)) for n in (5, 50))
    assert noise(short, "rule") == noise(long, "rule")
    assert noise(short, "train") < noise(long, "train")


@fittings
@holdouts
@pytest.mark.parametrize("part", [0.2, 0.5])
def test_the_pieces_share_out_everyone(fitting, holdout, part):
    plan = plan_of(fitting, holdout=holdout, rule_fraction=part)
    expected = {"train": (1 - holdout) * (1 - part), "rule": (1 - holdout) * part}
    if holdout:
        expected["holdout"] = holdout
    assert plan.shares == pytest.approx(expected)
    assert {part.subset for part in plan.stages if part.name in ("groups", "rule", "check")} == {"rule"}


# --- the rule on the training rows ------------------------------------------------------------------------


@fittings
@sizes
@holdouts
def test_parts_of_one_piece_spend_the_budget_together(fitting, n_public, holdout):
    plan = plan_of(fitting, replace(PRIVATE, n_public=n_public), holdout)
    assert {part.subset for part in plan.stages} - {"size", "holdout"} == {"train"}
    assert is_exhausted(cost_of(plan, "train"))
    assert is_exhausted(epsilon_of(plan.charges(), plan.delta))
    for part in plan.stages:
        if part.subset == "train":
            assert epsilon_of([part.event], plan.delta) < 0.999 * EPSILON


@fittings
def test_one_piece_needs_more_noise_than_two(fitting):
    shared, apart = plan_of(fitting), plan_of(fitting, rule_fraction=0.2)
    assert noise(shared, "train") > noise(apart, "train") * (1 + 1e-3)
    assert noise(shared, "rule") > noise(apart, "rule") * 1.5


@fittings
def test_a_larger_share_gives_the_rule_less_noise_and_training_more(fitting):
    plans = [plan_of(fitting, budget_share=share) for share in (0.05, 0.1, 0.3, 0.6)]
    rule, training = ([noise(plan, part) for plan in plans] for part in ("rule", "train"))
    for i in range(3):
        assert rule[i] > 1.1 * rule[i + 1]
        assert 1.005 * training[i] < training[i + 1]
    assert all(is_exhausted(cost_of(plan, "train")) for plan in plans)


def test_a_slice_plays_no_part_where_the_rule_has_its_own_piece():
    one, other = (plan_of(rule_fraction=0.2, budget_share=share) for share in (0.05, 0.6))
    assert one.stages == other.stages


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_a_slice_is_the_rules_share_of_the_precision(share):
    """Squared signal over noise: of 50 batches at rate q it is 50 q^2 / noise^2, of one count 1 / noise^2."""
    plan = plan_of(budget_share=share)
    steps, rule = plan.stage("train"), plan.stage("rule")
    trained = steps.n_steps * dict(steps.rates)[-1] ** 2 / noise(plan, "train") ** 2
    ruled = sum(1 / release.noise_multiplier**2 for release in rule.releases)
    assert ruled / (ruled + trained) == pytest.approx(share, rel=1e-6)


def test_the_usual_slice_lies_between_5_and_15_per_cent():
    recipe = Postprocessed(Descent(), ScoreHistogram(), PARITY)
    assert recipe.budget_share_for(replace(PRIVATE, n_public=10)) == 0.15  # groups are tiny
    assert recipe.budget_share_for(replace(PRIVATE, n_public=10**6)) == 0.15  # the model converges
    assert recipe.budget_share_for(replace(PRIVATE, n_public=None)) == recipe.budget_share_for(TASK) == 0.1
    assert Postprocessed(Descent(), ScoreHistogram(), PARITY, budget_share=0.4).budget_share_for(PRIVATE) == 0.4


@settings(max_examples=100)
@given(n_public=st.integers(1, 10**7), solver=st.sampled_from([ScoreHistogram(), DualSteps(), RateFlips()]))
def test_the_usual_slice_never_falls_below_the_solvers_least(n_public, solver):
    share = Postprocessed(Descent(), solver, PARITY).budget_share_for(replace(PRIVATE, n_public=n_public))
    assert solver.smallest_budget_share <= share <= 0.15


@pytest.mark.parametrize("solver", [DualSteps(), RateFlips()])
def test_only_thresholds_take_a_larger_slice_where_people_are_few(solver):
    few = replace(PRIVATE, n_public=10)
    assert Postprocessed(Descent(), solver, PARITY).budget_share_for(few) == solver.smallest_budget_share


@pytest.mark.parametrize("n_groups", [2, 5])
@pytest.mark.parametrize("group_size", [1100, 1600, 3000, 20_000])
def test_counts_at_thresholds_are_off_by_a_small_part_of_an_average_group(n_groups, group_size):
    """All counts of the rule together; at 1,100 people a group the share is just below its largest."""
    people = Population((Attribute("side", tuple("abcde"[:n_groups])),), ("no", "yes"))
    plan = plan_of(task=replace(PRIVATE, people=people, n_public=n_groups * group_size))
    together = sum(1 / release.noise_multiplier**2 for release in plan.stage("rule").releases) ** -0.5
    assert together < group_size / 60


# --- other recipes ----------------------------------------------------------------------------------------


@fittings
@sizes
def test_a_rule_for_fixed_scores_has_the_whole_budget_on_everyone(fitting, n_public):
    task = replace(PRIVATE, n_public=n_public)
    plan = plan_of(fitting, task, base=PrefittedScores())
    assert plan.shares == {}
    assert {part.subset for part in plan.stages} - {"size"} == {"train"}
    assert is_exhausted(epsilon_of(plan.charges(), plan.delta))
    assert noise(plan, "rule") <= noise(plan_of(fitting, task, rule_fraction=0.2), "rule") * (1 + 1e-6)


@pytest.mark.parametrize("part", [None, 0.2])
@sizes
def test_without_privacy_no_noise_is_planned(part, n_public):
    plan = plan_of(task=replace(TASK, n_public=n_public), holdout=0.3, rule_fraction=part)
    assert {release.noise_multiplier for each in plan.stages for release in each.releases} == {0.0}


@dataclass(frozen=True)
class ThreePieces:
    """A recipe that asks one piece twice, before and after the others, each at its own multiple of noise."""

    factors: tuple[float, ...] = (1.0, 2.0, 0.5, 3.0)

    def check(self, task):
        """Anything goes."""

    def stages(self, noise_multiplier, share, task):
        asked = (("a", "left"), ("b", "right"), ("c", "middle"), ("d", "left"))
        shares = {"left": 0.5, "right": 0.25, "middle": 0.25}
        return tuple(
            Stage(
                name,
                (Release("sum", "gaussian", factor * noise_multiplier),),
                share * shares[subset],
                subset=subset,
            )
            for (name, subset), factor in zip(asked, self.factors, strict=True)
        )


@sizes
@holdouts
def test_any_recipe_gets_each_of_its_pieces_calibrated(n_public, holdout):
    plan = make_plan(ThreePieces(), replace(PRIVATE, n_public=n_public), holdout)
    assert {part.name for part in plan.stages} - {"size", "holdout"} == {"a", "b", "c", "d"}
    for subset in ("left", "right", "middle"):
        assert is_exhausted(cost_of(plan, subset))
    assert is_exhausted(epsilon_of(plan.charges(), plan.delta))
    # one Gaussian sum has its noise whatever the multiple; two at s and 3 s cost as one at s / sqrt(1 + 1/9)
    assert noise(plan, "b") == pytest.approx(noise(plan, "c"), rel=3e-4)
    assert noise(plan, "d") == pytest.approx(3 * noise(plan, "a"), rel=1e-12)
    assert noise(plan, "a") == pytest.approx(noise(plan, "b") * math.sqrt(1 + 1 / 9), rel=3e-3)
