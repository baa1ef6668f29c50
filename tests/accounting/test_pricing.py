"""One use of each mechanism against direct sums, quadrature and dp-accounting."""

import math
from dataclasses import dataclass
from functools import reduce

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant, privacy_loss_mechanism
from dp_accounting.pld import privacy_loss_distribution as dp_pld
from scipy import stats

from fairveil.accounting.composition import NeighboringRelation, delta_of, epsilon_of
from fairveil.accounting.events import (
    ApproximateDP,
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    Event,
    GaussianRelease,
    Joint,
    LaplaceRelease,
    PoissonSampled,
    Repeated,
)
from fairveil.accounting.pld import Losses, compose, power, split_atoms
from fairveil.accounting.pricing import LossMagnitude, loss_distribution, normal_epsilon, rough_magnitude

DELTA = 1e-5
GRID = 2.0**-10
EPSILONS = np.array([0.0, 0.1, 0.5, 1.0, 2.0])
ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE


def direct_delta(law: np.ndarray, shifted: np.ndarray, epsilon: float, n_uses: int) -> float:
    """Sum the positive part over all outcomes of independent uses."""
    p, q = (reduce(np.multiply.outer, [one] * n_uses) for one in (law, shifted))
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def discrete(weight, shift: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.arange(-60, 61)
    total = weight(np.arange(-400, 401)).sum()
    return weight(x) / total, weight(x - shift) / total


@pytest.mark.parametrize("n_uses", [1, 2])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize(
    ("event", "weight"),
    [
        (DiscreteLaplaceRelease(1.5, 1), lambda x: np.exp(-np.abs(x) / 1.5)),
        (DiscreteLaplaceRelease(2.0, 3), lambda x: np.exp(-np.abs(x) / 2.0)),
        (DiscreteGaussianRelease(0.4, 1), lambda x: np.exp(-0.5 * (x / 0.4) ** 2)),
        (DiscreteGaussianRelease(2.5, 2), lambda x: np.exp(-0.5 * (x / 2.5) ** 2)),
    ],
)
def test_discrete_noise_meets_the_direct_sum(event: Event, weight, relation, n_uses: int) -> None:
    law = discrete(weight, event.sensitivity * (2 if relation is REPLACE else 1))
    for epsilon in (0.1, 0.77, 1.9):
        truth = direct_delta(*law, epsilon, n_uses)
        assert truth - 1e-9 <= delta_of([Repeated(event, n_uses)], epsilon, relation) <= truth * 1.002 + 1e-9


def test_wide_discrete_noise_is_bundled_and_still_tight() -> None:
    value, truth = epsilon_of([DiscreteGaussianRelease(3e6, 10**6)], DELTA), normal_epsilon(1 / 3, DELTA)
    assert truth * (1 - 1e-6) <= value <= truth * 1.001
    wide, narrow = DiscreteLaplaceRelease(1e6, 10**6), LaplaceRelease(1.0)
    assert epsilon_of([wide], DELTA) == pytest.approx(epsilon_of([narrow], DELTA), rel=1e-3)


@dataclass(frozen=True)
class Answer(Event):
    """Randomized response of one record among four, which an unknown record answers uniformly: not symmetric.

    No release of fairveil is asymmetric by itself, so the test brings one.
    """


@loss_distribution.register
def _(event: Answer, grid: float, relation: NeighboringRelation) -> Losses:
    answered, uniform = np.array([0.7, 0.3]), np.array([0.25, 0.75])
    losses = np.log(answered / uniform)
    return Losses(split_atoms(losses, answered, 0.0, grid), split_atoms(-losses, uniform, 0.0, grid))


@rough_magnitude.register
def _(event: Answer) -> LossMagnitude:
    return rough_magnitude(ApproximateDP(math.log(2.8)))


@pytest.mark.parametrize("count", [1, 7, 50])
def test_many_uses_of_an_asymmetric_event_cost_as_many_single_ones(count: int) -> None:
    answer, n_true = Answer(), np.arange(count + 1)
    at_once = loss_distribution(Repeated(answer, count), 2.0**-12, ADD)
    p, q = (stats.binom.pmf(n_true, count, truth) for truth in (0.7, 0.25))
    for epsilon in (0.5, count / 3):
        there = at_once.remove.hockey_stick(np.array([epsilon]))[0]
        back = at_once.add.hockey_stick(np.array([epsilon]))[0]
        truth = np.maximum(p - math.exp(epsilon) * q, 0).sum(), np.maximum(q - math.exp(epsilon) * p, 0).sum()
        assert (there, back) == pytest.approx(truth, rel=5e-3, abs=1e-4)
    one_by_one = reduce(compose, [loss_distribution(answer, 2.0**-8, ADD)] * count)
    at_once = loss_distribution(Repeated(answer, count), 2.0**-8, ADD)
    grid = np.linspace(0, count, 50)
    assert at_once.hockey_stick(grid) == pytest.approx(one_by_one.hockey_stick(grid), abs=1e-12)


@pytest.mark.parametrize("rate", [1e-4, 0.02, 0.5, 0.97])
@pytest.mark.parametrize("multiplier", [0.4, 1.0, 2.6, 30.0])
def test_replacing_in_a_sample_costs_what_dp_accounting_says(rate: float, multiplier: float) -> None:
    replaced = privacy_loss_mechanism.AdjacencyType.REPLACE
    theirs = privacy_loss_mechanism.GaussianPrivacyLoss(multiplier, sampling_prob=rate, adjacency_type=replaced)
    grid = 2.0**-8
    ours = loss_distribution(PoissonSampled(rate, GaussianRelease(multiplier)), grid, REPLACE).remove
    # on the dots themselves connecting them adds nothing
    epsilons = grid * np.arange(-200, 400, 7)
    expected = np.array([theirs.get_delta_for_epsilon(epsilon) for epsilon in epsilons])
    assert ours.hockey_stick(epsilons) == pytest.approx(expected, rel=1e-6, abs=1e-13)


@pytest.mark.parametrize("count", [1, 50])
def test_dp_accounting_forgets_the_count_of_randomized_responses(count: int) -> None:
    """A fault of dp-accounting 0.6.0: 50 answers cost as much as one. If this fails, it was mended."""
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    event = dp_accounting.RandomizedResponseDpEvent(0.5, 2)
    accountant.compose(event, count)
    assert accountant.get_epsilon(1e-9) == pytest.approx(math.log(3), rel=1e-3)


def test_sampling_keeps_the_directions_of_an_asymmetric_base_apart() -> None:
    rate, answered, uniform = 0.3, np.array([0.7, 0.3]), np.array([0.25, 0.75])
    mixed = (1 - rate) * uniform + rate * answered
    losses = loss_distribution(PoissonSampled(rate, Answer()), GRID, ADD)
    for epsilon in (0.0, 0.1, 0.18):
        there = losses.remove.hockey_stick(np.array([epsilon]))[0]
        back = losses.add.hockey_stick(np.array([epsilon]))[0]
        assert there == pytest.approx(direct_delta(mixed, uniform, epsilon, 1), rel=5e-3, abs=1e-4)
        assert back == pytest.approx(direct_delta(uniform, mixed, epsilon, 1), rel=5e-3, abs=1e-4)


def mixture_delta(rate: float, scale: float, sigma: float, epsilon: float, *, remove: bool) -> float:
    """Integrate over the plane: Laplace and Gaussian noise on one batch, one record more or less."""
    x = np.linspace(-14, 15, 2901)[:, None]  # contains the kinks 0 and 1 of the Laplace density
    y = np.linspace(-9 * sigma, 1 + 9 * sigma, 700)[None, :]
    without = stats.laplace.pdf(x, 0, scale) * stats.norm.pdf(y, 0, sigma)
    mixed = (1 - rate) * without + rate * stats.laplace.pdf(x, 1, scale) * stats.norm.pdf(y, 1, sigma)
    upper, lower = (mixed, without) if remove else (without, mixed)
    inner = np.trapezoid(np.maximum(upper - math.exp(epsilon) * lower, 0), x[:, 0], axis=0)
    return float(np.trapezoid(inner, y[0]))


@pytest.mark.parametrize(("rate", "scale", "sigma"), [(0.05, 0.5, 1.5), (0.3, 1.0, 0.7)])
def test_a_shared_batch_meets_quadrature_in_both_directions(rate: float, scale: float, sigma: float) -> None:
    event = PoissonSampled(rate, Joint((LaplaceRelease(scale), GaussianRelease(sigma))))
    losses = loss_distribution(event, 2.0**-12, ADD)
    for epsilon in (0.0, 0.02, 0.2, 0.5):
        for law, remove in ((losses.remove, True), (losses.add, False)):
            truth = mixture_delta(rate, scale, sigma, epsilon, remove=remove)
            value = float(law.hockey_stick(np.array([epsilon]))[0])
            assert value == pytest.approx(truth, rel=1e-3, abs=1e-7)


def test_what_is_infinite_in_the_base_is_sampled_too() -> None:
    event = PoissonSampled(0.25, ApproximateDP(1.0, 0.1))
    losses = loss_distribution(event, 2.0**-10, ADD)
    assert losses.remove.infinite == pytest.approx(0.025)
    assert losses.add.infinite == 0
    worst = np.array([0.99 * -math.log(0.75)])
    box = loss_distribution(ApproximateDP(1.0, 0.1), 2.0**-10, ADD).add
    factor = 1 - math.exp(worst[0]) * 0.75
    base = np.log(np.exp(worst) * 0.25 / factor)
    assert losses.add.hockey_stick(worst)[0] == pytest.approx(factor * box.hockey_stick(base)[0], rel=1e-3)


@pytest.mark.parametrize(
    ("event", "theirs"),
    [
        (GaussianRelease(1.3), dp_pld.from_gaussian_mechanism(1.3, value_discretization_interval=GRID)),
        (LaplaceRelease(1.3), dp_pld.from_laplace_mechanism(1.3, value_discretization_interval=GRID)),
        (
            PoissonSampled(0.07, GaussianRelease(0.9)),
            dp_pld.from_gaussian_mechanism(0.9, value_discretization_interval=GRID, sampling_prob=0.07),
        ),
        (
            PoissonSampled(0.07, LaplaceRelease(0.9)),
            dp_pld.from_laplace_mechanism(0.9, value_discretization_interval=GRID, sampling_prob=0.07),
        ),
        (
            PoissonSampled(0.07, DiscreteLaplaceRelease(0.9)),
            dp_pld.from_discrete_laplace_mechanism(
                1 / 0.9, value_discretization_interval=GRID, sampling_prob=0.07, use_connect_dots=True
            ),
        ),
        (
            DiscreteGaussianRelease(1.3, 2),
            dp_pld.from_discrete_gaussian_mechanism(1.3, 2, value_discretization_interval=GRID, use_connect_dots=True),
        ),
    ],
)
def test_we_agree_with_dp_accounting(event: Event, theirs) -> None:
    ours = power(loss_distribution(event, GRID, ADD), 20)
    curve = theirs.self_compose(20).get_delta_for_epsilon(EPSILONS)
    assert ours.hockey_stick(EPSILONS) == pytest.approx(curve, rel=1e-4, abs=1e-10)


def test_replacing_doubles_what_one_record_moves() -> None:
    # dp-accounting's Rényi accountant does not
    assert epsilon_of([GaussianRelease(3.0)], DELTA, REPLACE) == epsilon_of([GaussianRelease(1.5)], DELTA)
    assert epsilon_of([LaplaceRelease(3.0)], DELTA, REPLACE) == epsilon_of([LaplaceRelease(1.5)], DELTA)
    assert epsilon_of([ApproximateDP(0.2)], DELTA, REPLACE) == epsilon_of([ApproximateDP(0.4)], DELTA)
    twice = DiscreteLaplaceRelease(3.0, 2)
    assert epsilon_of([DiscreteLaplaceRelease(3.0)], DELTA, REPLACE) == epsilon_of([twice], DELTA)
