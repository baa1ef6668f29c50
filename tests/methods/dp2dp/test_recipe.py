"""Every fitting by registry: what it refuses, what it plans, and that fitted bounds follow what was asked."""

import math

import numpy as np
import pytest

from fairveil.accounting.composition import epsilon_of
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import DemographicParity, EqualizedOdds, PrecisionParity
from fairveil.methods.decoupled_parity import FlipTraining, RateFlips
from fairveil.methods.dp2dp import ParityTraining, Postprocessed, PrefittedScores
from fairveil.methods.dp2dp.dual_steps import DualSteps
from fairveil.methods.dp2dp.thresholds import ScoreHistogram
from fairveil.methods.dp_sgd import Descent
from fairveil.research.dp2dp_forms import NoisyDescent
from fairveil.training.run import make_plan

FITTINGS = {
    "histogram": ScoreHistogram(),
    "histogram in bins": ScoreHistogram(in_bins=True),
    "steps": DualSteps(n_steps=20),
    "sampled steps": DualSteps(n_steps=20, sampling_rate=0.3),
    "descent": NoisyDescent(n_steps=20),
    "descent by group": NoisyDescent(n_steps=20, shares=(0.6, 0.4)),
    "descent in steps of one length": NoisyDescent(n_steps=20, shares=(0.6, 0.4), step_size=0.01),
    "flips": RateFlips(),
    "flips, public sizes": RateFlips((600, 400), (1.0, 0.5)),
}


@pytest.fixture(params=FITTINGS.values(), ids=FITTINGS.keys())
def fitting(request):
    return request.param


@pytest.mark.slow
@pytest.mark.parametrize("part", [None, 0.25])
@pytest.mark.parametrize("n_public", [1000, None])
def test_a_plan_costs_its_budget_whatever_the_fitting(fitting, part, n_public, make_people, make_task):
    recipe = Postprocessed(Descent(n_steps=30), fitting, DemographicParity(0.1), part)
    plan = make_plan(recipe, make_task(make_people(2), n_public, 1.0), holdout=0.2)
    assert 0.99 < epsilon_of(plan.charges(), 1e-5) <= 1.0


def test_more_noise_is_planned_for_less_epsilon(fitting, make_people, make_task):
    def noise(epsilon):
        plan = make_plan(
            Postprocessed(PrefittedScores(), fitting, DemographicParity()),
            make_task(make_people(2), 1000, epsilon),
        )
        return plan.stage("rule").releases[0].noise_multiplier

    assert noise(0.1) > noise(1.0) > noise(5.0) > 0


def test_without_privacy_there_is_no_noise(fitting, make_people, make_task):
    plan = make_plan(Postprocessed(Descent(), fitting, DemographicParity()), make_task(make_people(2), 1000, math.inf))
    assert {release.noise_multiplier for part in plan.stages for release in part.releases} == {0.0}


def test_a_fit_leaves_a_rule_for_every_group_code_and_spends_all_its_draws(
    fitting, rng, seeded, make_people, make_rows, make_task, fitted
):
    people = make_people(2)
    probabilities, groups, y = make_rows(rng, 1000, people)
    groups[:50] = 2  # people of no known group
    recipe = Postprocessed(PrefittedScores(), fitting, DemographicParity(0.1))
    rule = fitted(recipe, make_task(people, 1000, 2.0), probabilities, groups, y).fit.rule
    law = rule.distribution(np.log(probabilities).T, groups)
    assert law.sum(axis=1) == pytest.approx(1.0) and not np.isnan(law).any()
    own = np.eye(2)[probabilities.argmax(axis=1)]
    assert np.array_equal(law[:50], own[:50])


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["nobody", "one person", "one group", "one class", "no probabilities"])
def test_odd_data_give_a_rule_like_any_other(fitting, odd, rng, seeded, make_people, make_rows, make_task, fitted):
    people = make_people(2)
    probabilities, groups, y = make_rows(rng, 200, people)
    n = {"nobody": 0, "one person": 1}.get(odd, 200)
    if odd == "one group":
        groups[:] = 1
    if odd == "one class":
        y[:] = 0
    if odd == "no probabilities":
        probabilities[:] = np.nan
    recipe = Postprocessed(PrefittedScores(), fitting, DemographicParity(0.1))
    rule = fitted(recipe, make_task(people, 200, 1.0), probabilities[:n], groups[:n], y[:n]).fit.rule
    law = rule.distribution(np.log([[0.4, 0.7], [0.6, 0.3]]), np.array([0, 1]))
    assert law.sum(axis=1) == pytest.approx(1.0) and not np.isnan(law).any()


@pytest.mark.parametrize("solver", [ScoreHistogram(), DualSteps(n_steps=60)])
def test_a_larger_tolerance_leaves_a_larger_gap(solver, rng, seeded, make_people, make_rows, make_task, fitted):
    people = make_people(2)
    probabilities, groups, y = make_rows(rng, 20_000, people)
    gaps = []
    for tolerance in (0.0, 0.2):
        recipe = Postprocessed(PrefittedScores(), solver, DemographicParity(tolerance), headroom=0.0)
        rule = fitted(recipe, make_task(people, 20_000, 1.0), probabilities, groups, y).fit.rule
        chosen = rule.distribution(np.log(probabilities).T, groups)[:, 1]
        gaps.append(abs(chosen[groups == 0].mean() - chosen[groups == 1].mean()))
    assert gaps[0] < 0.02 and gaps[1] == pytest.approx(0.2, abs=0.03)


def test_precision_is_refused_by_all(fitting, make_people, make_task):
    recipe = Postprocessed(PrefittedScores(), fitting, PrecisionParity(0.1))
    with pytest.raises(InvalidParameterError, match=r"precision|two groups|demographic|Expected"):
        recipe.check(make_task(make_people(2), 1000, 1.0))


@pytest.mark.parametrize("fitting", [ScoreHistogram(), RateFlips()], ids=str)
def test_rules_of_two_classes_refuse_more(fitting, make_people, make_task):
    with pytest.raises(InvalidParameterError, match="two classes"):
        Postprocessed(PrefittedScores(), fitting, DemographicParity()).check(make_task(make_people(2, 3), 1000, 1.0))


@pytest.mark.parametrize("fitting", [NoisyDescent(), RateFlips()], ids=str)
def test_rules_of_two_groups_refuse_more_and_other_parities(fitting, make_people, make_task):
    for people, constraint in ((make_people(3), DemographicParity()), (make_people(2), EqualizedOdds())):
        with pytest.raises(InvalidParameterError, match="Expected"):
            Postprocessed(PrefittedScores(), fitting, constraint).check(make_task(people, 1000, 1.0))


@pytest.mark.parametrize("fitting", [ScoreHistogram(), NoisyDescent(), RateFlips()], ids=str)
def test_only_steps_fit_a_rule_that_does_not_read_the_group(fitting, make_people, make_task):
    task = make_task(make_people(2), 1000, 1.0, predicts="joint")
    with pytest.raises(InvalidParameterError, match="reads the group"):
        Postprocessed(Descent(), fitting, DemographicParity()).check(task)
    Postprocessed(Descent(), DualSteps(), DemographicParity()).check(task)


def test_the_largest_rate_of_any_group_is_accounted_for(make_people, make_task):
    """DP2DP as written accounts b / N for everyone; the smaller group is drawn more often."""
    task = make_task(make_people(2), 9768, 1.0)
    rates = NoisyDescent(shares=(0.33, 0.67)).rates_for(task)
    assert rates[0] == pytest.approx(128 / (2 * 0.33 * 9768))
    part = next(
        part for part in NoisyDescent(shares=(0.33, 0.67)).stages(1.0, 1.0, "train", task) if part.name == "rule"
    )
    assert part.event.event.rate == rates[0] > 128 / 9768


def test_noise_on_both_blocks_costs_what_noise_on_one_vector_costs(make_people, make_task):
    """Two releases of one vector, each with sqrt(2) times the noise, are one release of the stacked gradient."""
    task = make_task(make_people(2), 9768, 1.0)
    events = []
    for step_size in (None, 0.01):
        solver = NoisyDescent(shares=(0.33, 0.67), step_size=step_size)
        (part,) = (part for part in solver.stages(1.0, 1.0, "train", task) if part.name == "rule")
        events.append(part.event)
    assert epsilon_of([events[0]], 1e-5) == pytest.approx(epsilon_of([events[1]], 1e-5), rel=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Postprocessed(Descent(), ScoreHistogram(), rule_fraction=1.0),
        lambda: Postprocessed(Descent(), ScoreHistogram(), budget_share=0.0),
        lambda: Postprocessed(Descent(), ScoreHistogram(), jitter=-1.0),
        lambda: DualSteps(n_steps=1),
        lambda: DualSteps(smoothing=0.0),
        lambda: NoisyDescent(shares=(0.5,)),
        lambda: NoisyDescent(step_size=0.0),
        lambda: RateFlips(group_sizes=(5, 5), group_epsilons=(1.0, 0.0)),
        lambda: RateFlips(group_epsilons=(1.0, 0.5)),
        lambda: RateFlips(group_sizes=(0, 5)),
        lambda: ParityTraining(aware=False, decoupled=True),
        lambda: FlipTraining(mode="coins"),
        lambda: FlipTraining(mode="scores", group_sizes=(5, 5)),
    ],
)
def test_choices_that_make_no_sense_are_refused(make):
    with pytest.raises(InvalidParameterError, match="Expected"):
        make()
