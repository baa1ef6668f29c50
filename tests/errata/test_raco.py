"""Errata of RaCO-DP (paper 002): what is printed fails an exact computation, what fairveil does passes it.

Each test stands beside an item of docs/errata.md and holds its numbers. Trainings on Adult are in test_raco_adult.py.
"""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, chi2, poisson

from fairveil.accounting.composition import NeighboringRelation, calibrate, delta_of, epsilon_of
from fairveil.accounting.events import GaussianRelease, Joint, LaplaceRelease, PoissonSampled, Repeated
from fairveil.cli import main
from fairveil.fairness.constraints import DemographicParity, EqualizedOdds, constrain
from fairveil.fairness.rates import Attribute, Population
from fairveil.models.losses import softmax
from fairveil.privacy.ledger import Ledger

DELTA = 1e-5
ROOT = Path(__file__).parent.parent.parent


def steps(rate, n_steps, *releases):
    """One joint event a step."""
    return [Repeated(PoissonSampled(rate, Joint(releases)), n_steps)]


def spent(charges, relation=NeighboringRelation.ADD_OR_REMOVE_ONE):
    return epsilon_of(charges, DELTA, relation)


def near(value, decimals=2):
    """Equal to what the page says, to the last digit it prints."""
    return pytest.approx(value, abs=0.6 * 10.0**-decimals)


# --- privacy -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claimed", "b_is_scale", "b_is_inverse"), [(0.1, 0.03, 806), (0.5, 0.15, 5.47), (1.0, 0.32, 1.55)]
)
def test_the_theorems_b_in_the_algorithm_gives_too_little_noise(claimed, b_is_scale, b_is_inverse):
    """Theorem 4.1 asks for b >= 2/epsilon, Algorithm 1 draws Lap(1/b): together epsilon .1 costs 806."""
    rate, n_steps = 0.001, 40_000
    log = math.log(n_steps / DELTA)
    b = 2 * max(1 / claimed, rate * math.sqrt(n_steps * log) / claimed)
    gradient = GaussianRelease(10 * max(log / claimed, rate * math.sqrt(n_steps) * log / claimed))
    literal = spent(steps(rate, n_steps, LaplaceRelease(1 / b), gradient))
    assert literal > claimed
    assert literal == pytest.approx(b_is_inverse, rel=2e-3)
    assert spent(steps(rate, n_steps, LaplaceRelease(b), gradient)) == near(b_is_scale)


def test_three_readings_of_one_laplace_parameter():
    """b = .5 beside sigma = 3: a scale gives each batch an epsilon of 2, Lap(1/b) gives .5, b = 2/epsilon says 4."""
    as_scale, as_inverse = LaplaceRelease(0.5), LaplaceRelease(1 / 0.5)
    assert [epsilon_of([release], 1e-12) for release in (as_scale, as_inverse)] == [near(2), near(0.5)]
    assert spent(steps(0.017, 50, as_scale, GaussianRelease(3))) == near(1.17)
    assert spent(steps(0.017, 50, as_inverse, GaussianRelease(3))) == near(0.27)
    # Theorem 4.1's 2/epsilon is a scale whose epsilon counts for histogram and gradient of the batch together.
    assert 2 * epsilon_of([as_scale], 1e-12) == near(4)


def test_a_variance_is_not_a_standard_deviation():
    """sigma = 3 read as a variance has a standard deviation of 1.73."""
    histogram = LaplaceRelease(0.5)
    assert spent(steps(0.017, 50, histogram, GaussianRelease(3))) == near(1.17)
    assert spent(steps(0.017, 50, histogram, GaussianRelease(math.sqrt(3)))) == near(1.50)


def test_sensitivities_of_adding_do_not_serve_a_definition_by_replacing():
    """Replacing a record can move the histogram by 2 in L1 and the gradient by 2 C, not by 1 and C."""
    before, after = (
        np.array([[1.0, 0.0], [0.0, 0.0]]),
        np.array([[0.0, 0.0], [0.0, 1.0]]),
    )  # another cell and class
    assert np.abs(before - after).sum() == 2
    charges = steps(0.02, 500, GaussianRelease(2 * math.sqrt(2)), GaussianRelease(3))
    assert spent(charges) == near(0.89)
    assert spent(charges, NeighboringRelation.REPLACE_ONE) == near(1.71)


def test_the_printed_figure_for_replacing(capsys, monkeypatch, tmp_path):
    """`fairveil explain` prints both figures."""
    monkeypatch.chdir(tmp_path)
    command = "fairveil explain adult --method raco --tolerance 0.05 --unaware --holdout 0 --json"
    monkeypatch.setattr("sys.argv", command.split())
    with pytest.raises(SystemExit):
        main()
    stated = json.loads(capsys.readouterr().out)
    assert f"{stated['epsilon_spent']:.4f}" == "1.0000"
    assert stated["epsilon_replace_one"] == near(2.1345, 4)


def test_the_amplification_of_the_proof_leaves_out_a_factor():
    """Appendix B takes r times epsilon for log(1 + r (e^epsilon - 1)): 1.7 times too little at its own epsilon of 1."""
    rate, epsilon = 0.001, 1.0
    charge = [PoissonSampled(rate, LaplaceRelease(1 / epsilon))]
    amplified = epsilon_of(charge, 1e-12)
    assert amplified == pytest.approx(math.log1p(rate * math.expm1(epsilon)), rel=1e-2)
    assert amplified / (rate * epsilon) == near(1.7, 1)
    assert delta_of(charge, rate * epsilon) > 1e-4


# --- a further count of the batch (Remark 3) -------------------------------------------------------------------


def test_a_further_count_of_the_batch_is_paid_for():
    """One more Laplace count of the same scale: 1.17 becomes 3.77; one for each of 18 constraints: 1.05 becomes 109."""
    count, gradient = LaplaceRelease(0.5), GaussianRelease(3)
    free, paid = steps(0.017, 50, count, gradient), steps(0.017, 50, count, count, gradient)
    assert spent(free) == near(1.17)
    assert spent(paid) == near(3.77)
    assert delta_of(paid, spent(free)) == near(0.020, 3)
    # A record is in one set of each constraint's own partition, so 18 counts move by 18 in all.
    count, all_counts = LaplaceRelease(2), LaplaceRelease(2 / 18)
    assert spent(steps(0.02, 500, count, gradient)) == near(1.05)
    assert spent(steps(0.02, 500, count, count, gradient)) == near(1.48)
    assert spent(steps(0.02, 500, count, all_counts, gradient)) == near(109, 0)


def test_at_equal_cost_the_further_count_is_no_tighter_for_two_classes():
    """A batch budget of 1/b buys a histogram of scale b, or histogram and count of scale 2 b each."""
    b = 2.0
    one, two = [LaplaceRelease(b)], [Joint((LaplaceRelease(2 * b), LaplaceRelease(2 * b)))]
    assert epsilon_of(one, 1e-12) == pytest.approx(epsilon_of(two, 1e-12), rel=1e-3)
    std = math.sqrt(2)
    assert 2 * b * std / b == near(2.83)  # a count of its own, in units of b
    assert [math.sqrt(n_classes) * std for n_classes in (2, 4)] == [
        near(2.00),
        near(2.83),
    ]  # the sum of noisy counts


def test_our_rates_need_no_further_count():
    """Denominators are sums of the same released counts: the bound's left side is a function of the histogram alone."""
    people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    ready = constrain(DemographicParity(0.1), people)
    assert ready.violation(np.array([[30.0, 10.0], [20.0, 20.0]])) == pytest.approx([-0.35, 0.15])


def test_a_noisy_denominator_without_a_minimum_reverses_the_pull():
    """Equation 12 divides by a noisy count: for one expected person and scale .5 it is below 0 in 24 % of steps."""
    people = np.arange(60)
    below_zero = 0.25 * (2 + people / 0.5) * np.exp(-people / 0.5)  # two Laplace noises of scale .5 below -people
    shares = [float(poisson.pmf(people, expected) @ below_zero) for expected in (1, 5)]
    assert shares == [near(0.24), near(0.011, 3)]
    ready = constrain(DemographicParity(0.1), Population((Attribute("sex", ("f", "m")),), ("no", "yes")))
    histogram = np.array([[-1.0, 0.8], [50.0, 50.0]])  # about one woman in the batch, selected
    printed = histogram[:, 1] / histogram.sum(axis=1)
    assert printed[0] == pytest.approx(-4)
    assert 1 / histogram[0].sum() < 0  # the weight of her gradient in Equation 10
    assert ready.ratios(histogram, minimum=1.0).rates == pytest.approx([0.8, 0.5])
    assert ready.pull(histogram, np.array([1.0, 0.0]), minimum=1.0)[0, 1] > 0


# --- choosing on private rows ------------------------------------------------------------------------------------


def test_tuning_without_paying():
    """200 runs of 50 steps calibrated to epsilon 1 cost 11.8 together; with five seeds each, 33.2."""
    noise = calibrate(lambda z: steps(0.017, 50, GaussianRelease(z)), 1.0, DELTA)
    assert spent(steps(0.017, 200 * 50, GaussianRelease(noise))) == near(11.8, 1)
    assert spent(steps(0.017, 1000 * 50, GaussianRelease(noise))) == near(33.2, 1)
    ledger = Ledger()
    ledger.debit_unpriced("200 runs compared on validation rows")
    assert ledger.epsilon(DELTA) == math.inf


def test_noise_that_depends_on_the_smallest_group_betrays_its_size():
    """Theorem D.3 scales the noise by 1/n, n the smallest group: at its own T the noise alone has delta(1) = .03."""
    n, n_params, epsilon = 100, 100, 1.0
    n_steps = int(min((n * epsilon / math.sqrt(n_params)) ** (4 / 3), n * epsilon / 2))
    draws, ratio = (
        n_params * n_steps,
        n / (n - 1),
    )  # all noise drawn; its standard deviation in one world over the other
    edge = 2 * (epsilon + draws * math.log(ratio)) / (1 - ratio**-2)  # where the privacy loss is epsilon
    delta = chi2.sf(edge / ratio**2, draws) - math.exp(epsilon) * chi2.sf(edge, draws)
    assert n_steps == 21
    assert delta == near(0.030, 3)


# --- what the constraints say ---------------------------------------------------------------------------------------


def rest_gaps(rates, weights):
    """Each group's rates less those of everyone else, shape (groups, classes)."""
    rest = (weights @ rates - weights[:, None] * rates) / (1 - weights)[:, None]
    return rates - rest


def counts(rates, weights):
    """A (group x class) histogram with these rates."""
    return weights[:, None] * rates * 1e6


def three_groups(n_classes):
    return Population((Attribute("race", ("a", "b", "c")),), tuple(map(str, range(n_classes))))


@pytest.mark.parametrize("n_groups", [2, 3, 5])
def test_the_one_sided_family_is_two_sided_for_two_classes(n_groups, rng):
    """Equation 7 with both classes listed: the gap of one class is minus that of the other."""
    for _ in range(200):
        positive = rng.random(n_groups)
        gaps = rest_gaps(np.column_stack([1 - positive, positive]), rng.dirichlet(np.ones(n_groups)))
        assert gaps.max() == pytest.approx(np.abs(gaps).max())


def test_the_one_sided_family_is_two_sided_for_two_groups(rng):
    """Each is the other's rest, whatever the number of classes."""
    for n_classes in (2, 3, 7):
        gaps = rest_gaps(rng.dirichlet(np.ones(n_classes), 2), rng.dirichlet(np.ones(2)))
        assert gaps.max(axis=0) == pytest.approx(np.abs(gaps).max(axis=0))


def test_with_three_classes_one_sided_limits_allow_twice_the_slack():
    """Equation 7 holds everywhere at .05, and the small group's rate of class 2 is .1 below the rest's."""
    weights, slack = np.array([0.02, 0.49, 0.49]), 0.05
    rates = np.array([[0.4, 0.4, 0.2], [0.35, 0.35, 0.3], [0.35, 0.35, 0.3]])
    gaps = rest_gaps(rates, weights)
    assert gaps.max() == pytest.approx(slack)
    assert gaps.min() == pytest.approx(-2 * slack)  # (classes - 1) x slack, and no family of this kind can lose more
    ready = constrain(DemographicParity(slack, against="rest"), three_groups(3))
    assert ready.violation(counts(rates, weights)).max() == pytest.approx(slack)


def test_limits_on_the_positive_class_alone_allow_five_times_the_slack():
    weights, slack = np.array([0.1, 0.45, 0.45]), 0.05
    positive = np.array([0.5 - 4.95 * slack, 0.5 + 0.55 * slack, 0.5 + 0.55 * slack])
    rates = np.column_stack([1 - positive, positive])
    gaps = rest_gaps(rates, weights)[:, 1]
    assert gaps == pytest.approx([-5.5 * slack, slack, slack])
    ready = constrain(DemographicParity(slack, against="rest"), three_groups(2))
    assert ready.violation(counts(rates, weights)).max() == pytest.approx(4.5 * slack)


def test_a_gap_to_the_rest_is_not_the_largest_gap():
    """Two of three equal groups, each within .05 of the rest, are .0667 apart."""
    weights, slack = np.full(3, 1 / 3), 0.05
    positive = 0.5 + np.array([2, -2, 0]) * slack / 3
    rates = np.column_stack([1 - positive, positive])
    assert np.abs(rest_gaps(rates, weights)).max() == pytest.approx(slack)
    assert np.ptp(positive) == near(0.0667, 4)
    people = three_groups(2)
    assert constrain(DemographicParity(slack, against="rest"), people).violation(counts(rates, weights)).max() < 1e-9
    assert constrain(DemographicParity(slack), people).violation(counts(rates, weights)).max() == near(0.0167, 4)


def test_soft_rates_can_agree_where_decisions_differ_in_everything():
    """Women at .499, men at .501: soft rates differ by .002 (.02 at temperature 10), decisions by 1."""
    women, men = 0.499, 0.501
    margins = np.log([[1 - women, 1 - men], [women, men]])
    for temperature, gap in ((1, 0.002), (10, 0.02)):
        soft = softmax(temperature * margins)[1]
        assert soft[1] - soft[0] == near(gap, 4)
    ready = constrain(DemographicParity(0.05), Population((Attribute("sex", ("f", "m")),), ("no", "yes")))
    decided = np.array([[100.0, 0.0], [0.0, 100.0]])
    assert ready.violation(decided).max() == pytest.approx(0.95)


def test_a_perfect_rule_fails_the_printed_equality_of_odds():
    """Equations 14 and 15 set a conditional probability equal to a joint one: 1 against .25."""
    people = np.full((2, 2), 0.25)  # share of each (label, group)
    correct = np.eye(2)  # decision given label
    left, right = correct[0, 0], people[0, 1] * correct[0, 0]
    assert (left, right) == (1.0, 0.25)
    ready = constrain(EqualizedOdds(0.0), Population((Attribute("sex", ("f", "m")),), ("no", "yes")))
    assert ready.violation(np.array([[9.0, 0.0], [0.0, 4.0], [5.0, 0.0], [0.0, 7.0]])).max() <= 0


def test_equal_rates_of_positive_outcomes_are_not_equalized_odds():
    """Half of each group is selected: of the women the right half, of the men the wrong one."""
    people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    table = np.array([[[50.0, 0.0], [0.0, 50.0]], [[0.0, 50.0], [50.0, 0.0]]])  # sex, label, decision
    assert constrain(DemographicParity(0.0), people).violation(table.sum(axis=1)).max() == pytest.approx(0)
    assert constrain(EqualizedOdds(0.0), people).violation(table.reshape(4, 2)).max() == pytest.approx(1)


# --- lemmas ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rho", "failures"), [(0.05, 0.080), (0.001, 0.0078)])
def test_lemma_c2_fails_more_often_than_it_says(rho, failures):
    """100,000 people sampled at .0142; the lemma says "up to an order", its users do not."""
    n, rate = 100_000, 0.0142
    drawn = np.arange(n + 1)
    outside = np.abs(drawn / (rate * n) - 1) > math.sqrt(math.log(1 / rho) / (rate * n))
    failed = binom.pmf(drawn, n, rate)[outside].sum()
    assert failed > rho
    assert failed == pytest.approx(failures, rel=0.01)


def test_the_proof_of_lemma_c2_bounds_the_wrong_factor():
    """r (1 - r) / r is at most 1, not 1/4: the printed tail is 2.6e-6 where the exact one is .0032."""
    n, rate, off = 100_000, 0.001, 0.3
    drawn = np.arange(n + 1)
    exact = binom.pmf(drawn, n, rate)[np.abs(drawn / (rate * n) - 1) > off].sum()
    printed, mended = (math.exp(-(off**2) * rate * n / (2 * (factor + off / 3))) for factor in (1 / 4, 1))
    assert printed == pytest.approx(2.6e-6, rel=0.01)
    assert exact == pytest.approx(0.0032, rel=0.02)
    assert exact < 2 * mended


def test_lemma_d2_forgets_the_sampling_rate():
    """A group as small as it allows (60 of 36,000) is missing from 42 % of the batches of 512, not from 5 %."""
    n_constraints, n_people, rho = 4, 36_000, 0.05
    smallest, rate = math.ceil(4 * math.log(n_constraints * n_people / rho)), 512 / n_people
    assert smallest == 60
    too_few = binom.cdf(math.ceil(0.5 * rate * smallest) - 1, smallest, rate)
    assert too_few == near(0.42)


def test_the_tempered_softmax_is_smooth_with_the_square_of_the_temperature():
    """Its curvature is .192 tau^2: above the printed tau from tau = 5.2 on, 19.2 at tau = 10."""
    for temperature, curvature in ((1.0, 0.192), (10.0, 19.2)):
        line = np.linspace(-3, 3, 200_001) / temperature
        rate = softmax(temperature * np.array([line, -line]) / math.sqrt(2))[0]  # along the steepest unit direction
        found = np.abs(np.diff(rate, 2)).max() / (line[1] - line[0]) ** 2
        assert found == pytest.approx(curvature, rel=5e-3)
    assert 3 * math.sqrt(3) == near(5.2, 1)


def test_smoothness_of_a_composition_squares_the_other_factor():
    """x -> (10 x)^2 / 2 has curvature 100; Lemma D.9 says G_h beta_g + G_g^2 beta_h = 10, its proof 100."""
    lipschitz_inner, smooth_inner, smooth_outer = 10.0, 0.0, 1.0
    x = np.linspace(-1, 1, 2001)
    curvature = np.diff((lipschitz_inner * x) ** 2 / 2, 2).max() / (x[1] - x[0]) ** 2
    lipschitz_outer = lipschitz_inner  # on this interval
    assert curvature == pytest.approx(100, rel=1e-6)
    assert lipschitz_inner * smooth_outer + lipschitz_outer**2 * smooth_inner == 10
    assert lipschitz_inner**2 * smooth_outer + lipschitz_outer * smooth_inner == 100


# --- the page -----------------------------------------------------------------------------------------------------


def test_every_test_that_the_page_names_exists():
    page = (ROOT / "docs" / "errata.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", page)
    assert len(named) > 20
    for path, name in named:
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{name}"
