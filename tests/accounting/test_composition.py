"""The accountant against closed forms, direct sums, quadrature, dp-accounting and its own laws."""

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fairveil.accounting.composition import NeighboringRelation, delta_of, epsilon_of
from fairveil.accounting.events import (
    ApproximateDP,
    Charge,
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    Event,
    GaussianRelease,
    Joint,
    LaplaceRelease,
    NonPrivateRelease,
    PoissonSampled,
    Repeated,
    UnpricedChoice,
)
from fairveil.accounting.pld import compose, power
from fairveil.accounting.pricing import composed, loss_distribution, normal_delta, normal_epsilon
from fairveil.errors import InvalidParameterError, UnsupportedEventError
from fairveil.research.paper_bounds import gdp_epsilon, rdp_epsilon

DELTA = 1e-5
ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
GRID = 2.0**-10
EPSILONS = np.array([0.0, 0.1, 0.5, 1.0, 2.0])
quietly = settings(max_examples=15)

SAMPLED_LAPLACE = PoissonSampled(0.1, LaplaceRelease(1.0))
KNOWN = [
    GaussianRelease(2.0),
    LaplaceRelease(2.0),
    DiscreteLaplaceRelease(2.0, 2),
    DiscreteGaussianRelease(2.0, 2),
    ApproximateDP(0.5),
    ApproximateDP(0.5, 1e-7),
    Joint((GaussianRelease(2.0), LaplaceRelease(2.0))),
    Repeated(GaussianRelease(4.0), 3),
    PoissonSampled(0.1, GaussianRelease(1.0)),
    SAMPLED_LAPLACE,
    PoissonSampled(0.1, Joint((Repeated(DiscreteLaplaceRelease(2.0), 2), ApproximateDP(0.5, 1e-6)))),
    PoissonSampled(0.5, PoissonSampled(0.2, GaussianRelease(1.0))),
]


def steps(rate: float, noise_multiplier: float, n_steps: int) -> Repeated:
    return Repeated(PoissonSampled(rate, GaussianRelease(noise_multiplier)), n_steps)


def never_below(value: float, truth: float, slack: float = 4e-4) -> bool:
    return truth * (1 - 1e-9) <= value <= truth * (1 + slack)


@pytest.mark.parametrize("shift", [1e-3, 0.03, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("count", [1, 30, 10_000])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_gaussians_meet_the_closed_form_from_above(shift: float, count: int, delta: float) -> None:
    noise = math.sqrt(count) / shift
    value, truth = epsilon_of([Repeated(GaussianRelease(noise), count)], delta), normal_epsilon(shift, delta)
    assert never_below(value, truth) if truth > 0 else value <= 1e-3 * shift


def test_the_closed_form_is_the_textbook_one() -> None:
    for epsilon in EPSILONS:
        upper = stats.norm.cdf(0.5 - epsilon) - math.exp(epsilon) * stats.norm.cdf(-0.5 - epsilon)
        assert normal_delta(1.0, epsilon) == pytest.approx(upper, rel=1e-9)
        assert delta_of([GaussianRelease(1.0)], epsilon) == pytest.approx(upper, rel=1e-4)


@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 4.0, 900.0])
def test_boxes_are_what_they_say(epsilon: float) -> None:
    assert epsilon_of([ApproximateDP(epsilon)], 1e-12) == pytest.approx(epsilon, rel=5e-4, abs=1e-11)
    assert delta_of([ApproximateDP(epsilon, 1e-3)], epsilon) == pytest.approx(1e-3, rel=5e-3)
    assert epsilon_of([ApproximateDP(epsilon, 1e-3)], DELTA) == math.inf


def test_pure_epsilons_never_cost_more_than_their_sum() -> None:
    assert epsilon_of([ApproximateDP(0.7), ApproximateDP(0.3)], 1e-12) <= 1.0
    assert epsilon_of([Charge(ApproximateDP(0.7)), Charge(ApproximateDP(0.3), "a", "b")], 1e-12, REPLACE) <= 2.0
    assert epsilon_of([LaplaceRelease(3.0), DiscreteLaplaceRelease(3.0, 2)], 1e-12) <= 1.0
    sampled = PoissonSampled(0.3, Joint((ApproximateDP(0.7), Repeated(ApproximateDP(0.1), 3))))
    assert epsilon_of([sampled], 1e-12) <= math.log1p(0.3 * math.expm1(1.0)) * (1 + 1e-12)


def test_a_tiny_box_is_not_rounded_to_nothing() -> None:
    assert 1.9e-6 < epsilon_of([ApproximateDP(2.2e-5)], DELTA) < 2.1e-6


@quietly
@given(
    st.floats(min_value=1e-3, max_value=0.9),
    st.floats(min_value=0.4, max_value=20),
    st.integers(min_value=1, max_value=2000),
    st.floats(min_value=1.01, max_value=2),
    st.booleans(),
)
def test_more_noise_less_sampling_fewer_steps_never_cost_more(rate, noise, count, more, with_laplace) -> None:
    def cost(rate: float, noise: float, count: int) -> float:
        releases = (GaussianRelease(noise), *([LaplaceRelease(noise)] if with_laplace else []))
        return epsilon_of([Repeated(PoissonSampled(rate, Joint(releases)), count)], DELTA)

    # two answers may stand on different grids, each at most 0.04 % too high
    here = cost(rate, noise, count) * 1.0004
    assert cost(rate, noise * more, count) <= here
    assert cost(rate / more, noise, count) <= here
    assert cost(rate, noise, max(1, int(count / more))) <= here


@quietly
@given(st.sampled_from(KNOWN), st.integers(min_value=2, max_value=5))
def test_n_uses_at_once_are_n_uses(event: Event, count: int) -> None:
    losses = loss_distribution(event, 2.0**-8, ADD)
    at_once, one_by_one = power(losses, count), reduce(compose, [losses] * count)
    for first, second in ((at_once.remove, one_by_one.remove), (at_once.add, one_by_one.add)):
        assert first.hockey_stick(EPSILONS) == pytest.approx(second.hockey_stick(EPSILONS), abs=1e-12)


@pytest.mark.parametrize("event", KNOWN, ids=str)
def test_every_known_event_has_a_price(event: Event) -> None:
    price = epsilon_of([event], DELTA)
    assert 0 < price < math.inf
    assert delta_of([event], price) <= DELTA * 1.01
    assert epsilon_of([event, event], DELTA) > price
    assert epsilon_of([event], DELTA, REPLACE) > price


@pytest.mark.parametrize("event", KNOWN, ids=str)
def test_a_coarser_grid_only_errs_upwards(event: Event) -> None:
    coarse, fine = (power(loss_distribution(event, grid, ADD), 5) for grid in (2.0**-4, 2.0**-10))
    assert np.all(fine.hockey_stick(EPSILONS) <= coarse.hockey_stick(EPSILONS) + 1e-13)
    # the transform rounds otherwise on other processors, here by 3e-14
    assert fine.smallest_epsilon(1e-3) <= coarse.smallest_epsilon(1e-3) + 1e-12


@quietly
@given(
    st.floats(min_value=1e-3, max_value=0.5),
    st.floats(min_value=0.5, max_value=5),
    st.floats(min_value=0.5, max_value=5),
    st.integers(min_value=1, max_value=200),
)
def test_one_batch_costs_at_least_two_batches(rate, sigma, scale, count) -> None:
    releases = (GaussianRelease(sigma), LaplaceRelease(scale))
    joint = Repeated(PoissonSampled(rate, Joint(releases)), count)
    apart = [Repeated(PoissonSampled(rate, release), count) for release in releases]
    assert epsilon_of([joint], DELTA) * 1.0005 >= epsilon_of(apart, DELTA)


def test_nested_counts_multiply() -> None:
    nested = Repeated(Repeated(GaussianRelease(5.0), 3), 4)
    assert epsilon_of([nested], DELTA) == epsilon_of([Repeated(GaussianRelease(5.0), 12)], DELTA)
    sampled = PoissonSampled(0.1, Repeated(GaussianRelease(5.0), 25))
    assert epsilon_of([sampled], DELTA) == pytest.approx(epsilon_of([steps(0.1, 1.0, 1)], DELTA), rel=1e-9)
    thinned = PoissonSampled(0.5, PoissonSampled(0.2, LaplaceRelease(1.0)))
    assert epsilon_of([thinned], DELTA) == pytest.approx(epsilon_of([SAMPLED_LAPLACE], DELTA), rel=1e-3)
    assert epsilon_of([PoissonSampled(1.0, ApproximateDP(1.0))], DELTA) == epsilon_of([ApproximateDP(1.0)], DELTA)


def test_the_same_events_in_any_order_cost_the_same() -> None:
    charges = [GaussianRelease(3.0), ApproximateDP(0.1), steps(0.1, 2.0, 10), GaussianRelease(3.0)]
    assert epsilon_of(charges, DELTA) == pytest.approx(epsilon_of(charges[::-1], DELTA), rel=1e-9)


def test_where_replacing_has_no_price_group_privacy_stands_in() -> None:
    charges = [SAMPLED_LAPLACE, GaussianRelease(3.0)]
    epsilon = epsilon_of(charges, DELTA, REPLACE)
    half = epsilon / 2
    assert (1 + math.exp(half)) * delta_of(charges, half) == pytest.approx(DELTA, rel=2e-2)
    assert delta_of(charges, epsilon, REPLACE) == pytest.approx(DELTA, rel=2e-2)
    with pytest.raises(UnsupportedEventError, match="group privacy"):
        loss_distribution(SAMPLED_LAPLACE, GRID, REPLACE)


def test_group_privacy_of_nothing_is_nothing_and_of_a_sure_leak_infinite() -> None:
    assert epsilon_of([PoissonSampled(1e-9, LaplaceRelease(1.0))], DELTA, REPLACE) == 0
    assert epsilon_of([PoissonSampled(0.5, ApproximateDP(1.0, 1e-2))], DELTA, REPLACE) == math.inf


@quietly
@given(st.lists(st.sampled_from(KNOWN), min_size=1, max_size=3))
def test_replacing_costs_at_least_as_much_as_adding(events: list[Event]) -> None:
    assert epsilon_of(events, DELTA, REPLACE) >= epsilon_of(events, DELTA)


def test_nothing_costs_nothing_and_no_guarantee_costs_everything() -> None:
    assert epsilon_of([], DELTA) == 0
    assert delta_of([], 0.0) == 0
    for event in (NonPrivateRelease("no noise"), UnpricedChoice("grid search")):
        for charge in (event, PoissonSampled(0.01, event), Charge(Joint((event,)), "split", "a")):
            assert epsilon_of([GaussianRelease(9.0), charge], DELTA) == math.inf
            assert delta_of([charge], 5.0) == 1
    assert loss_distribution(NonPrivateRelease("no noise"), GRID, ADD).remove.infinite == 1


def test_an_unknown_event_is_refused() -> None:
    @dataclass(frozen=True)
    class Sorcery(Event):
        pass

    for event in (Sorcery(), Repeated(Sorcery(), 2), PoissonSampled(0.1, Sorcery()), Joint((Sorcery(),))):
        for price in (epsilon_of, delta_of, rdp_epsilon, gdp_epsilon):
            with pytest.raises(UnsupportedEventError, match=r"got (Sorcery|Joint)"):
                price([event], 0.1)
        with pytest.raises(UnsupportedEventError, match="Sorcery"):
            loss_distribution(event, GRID, ADD)


@pytest.mark.parametrize(
    "call",
    [
        lambda: epsilon_of([ApproximateDP(1)], 0),
        lambda: epsilon_of([ApproximateDP(1)], 1.0),
        lambda: epsilon_of([ApproximateDP(1)], DELTA, "REPLACE_ONE"),  # type: ignore[arg-type]
        lambda: epsilon_of(["a mean"], DELTA),  # type: ignore[list-item]
        lambda: delta_of([ApproximateDP(1)], -0.1),
        lambda: delta_of([ApproximateDP(1)], math.nan),
    ],
)
def test_bad_arguments_are_refused(call) -> None:
    with pytest.raises(InvalidParameterError, match="Expected"):
        call()


@pytest.mark.parametrize("noise", [1e-12, 1e-5, 1e-3, 0.1, 1e3, 1e6])
def test_noise_of_any_size_has_a_price(noise: float) -> None:
    exact = normal_epsilon(1 / noise, DELTA)
    assert exact * (1 - 1e-12) <= epsilon_of([GaussianRelease(noise)], DELTA) <= exact * 1.01


@pytest.mark.parametrize(
    ("rate", "noise", "count", "low", "high"),
    [
        (1e-7, 0.01, 10, 0, 0),  # in the batch less often than delta
        (1e-6, 1.0, 10**5, 1e-5, 1e-3),
        (1e-3, 2.0, 10**6, 2.14, 2.145),
        (0.999999, 50.0, 10, 0.18, 0.21),
    ],
)
def test_extreme_rates_and_counts(rate, noise, count, low, high) -> None:
    assert low <= epsilon_of([steps(rate, noise, count)], DELTA) <= high


def test_absurd_noise_ends_at_infinity_and_not_in_an_overflow() -> None:
    assert epsilon_of([GaussianRelease(1e-200)], DELTA) == math.inf
    assert epsilon_of([ApproximateDP(1e200)], DELTA) == pytest.approx(1e200, rel=1e-4)


def test_below_the_rounding_nothing_is_claimed() -> None:
    assert epsilon_of([Repeated(GaussianRelease(300.0), 10**5)], 1e-13) == math.inf


def test_sequences_compose_to_the_same_law_in_any_grouping() -> None:
    uses = {GaussianRelease(2.0): 2, ApproximateDP(0.3): 3}
    whole = composed(uses, GRID, ADD)
    parts = [composed({event: count}, GRID, ADD) for event, count in uses.items()]
    assert whole.hockey_stick(EPSILONS) == pytest.approx(compose(*parts).hockey_stick(EPSILONS), abs=1e-13)
