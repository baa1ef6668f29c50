"""Accountants of a noisy descent: exact, and both branches of the Rényi bound of DP2DP's Theorem 4.1."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairveil.accounting.events import GaussianRelease, PoissonSampled, Repeated
from fairveil.errors import InvalidParameterError
from fairveil.research.dp2dp_forms import NoisyDescent
from fairveil.research.paper_bounds import LastIterate, descent_epsilon, rdp_epsilon

DELTA = 1e-5


@settings(max_examples=15)
@given(st.floats(0.005, 0.2), st.floats(1.0, 8.0), st.integers(100, 2000))
def test_the_first_branch_is_never_below_the_exact_price(rate, noise, n_steps):
    renyi = descent_epsilon(rate, noise, n_steps, DELTA, "renyi")
    assert renyi >= descent_epsilon(rate, noise, n_steps, DELTA)


@pytest.mark.parametrize("numbers", [(0.064, 2.0, 100), (0.01, 1.5, 1000), (0.1, 6.5, 300)])
def test_another_accountant_agrees(numbers):
    """It tries other orders: fractions, and fewer whole numbers."""
    rate, noise, n_steps = numbers
    theirs = rdp_epsilon([Repeated(PoissonSampled(rate, GaussianRelease(noise)), n_steps)], DELTA)
    assert descent_epsilon(rate, noise, n_steps, DELTA, "renyi") == pytest.approx(theirs, rel=0.02)


def test_one_step_of_everyone_is_a_gaussian():
    assert descent_epsilon(1.0, 4.0, 1, DELTA, "renyi") == pytest.approx(
        rdp_epsilon([GaussianRelease(4.0)], DELTA), rel=1e-3
    )


def test_the_second_branch_levels_off_and_the_first_does_not():
    conditions = LastIterate(2, 128, smoothing=0.5, step_size=0.125)
    first, second = (
        [descent_epsilon(0.001, 5.0, n, DELTA, accountant, conditions) for n in (10**8, 10**10)]
        for accountant in ("renyi", "last_iterate")
    )
    assert first[1] > 30 * first[0]
    assert second[1] < 1.02 * second[0] < first[0]


def test_at_the_papers_settings_the_second_branch_gains_nothing():
    """100 steps, smoothing 1e-5, steps of a quarter of it."""
    conditions = LastIterate(2, 128, smoothing=1e-5, step_size=2.5e-6)
    numbers = (0.0131, 2.0, 100, DELTA)
    assert descent_epsilon(*numbers, "last_iterate", conditions) == descent_epsilon(*numbers, "renyi")


def test_a_descent_that_can_be_run_costs_less_by_its_last_iterate():
    """2,000 steps of one length over everyone's 1,000 records: .70 by the second branch, 1.05 by all steps."""
    descent = NoisyDescent(2000, 250, 1.0, 0.05, (0.5, 0.5), step_size=0.25)
    numbers = (0.25, 40.0, descent.n_steps, DELTA)
    exact, last = descent_epsilon(*numbers), descent_epsilon(*numbers, "last_iterate", descent.last_iterate(2))
    assert last < 0.7 * exact
    more = descent_epsilon(0.25, 40.0, 20 * descent.n_steps, DELTA, "last_iterate", descent.last_iterate(2))
    assert more < 1.1 * last  # and further steps cost next to nothing


@pytest.mark.parametrize("descent", [NoisyDescent(), NoisyDescent(step_size=1e-6), NoisyDescent(shares=(0.5, 0.5))])
def test_a_descent_outside_the_conditions_has_no_last_iterate_price(descent):
    with pytest.raises(InvalidParameterError, match="step_size and the public shares"):
        descent.last_iterate(2)


def test_the_second_branch_is_refused_outside_its_conditions():
    with pytest.raises(InvalidParameterError, match="smoothing / 4"):
        LastIterate(2, 128, smoothing=1e-5, step_size=0.1)  # what the experiments use
    with pytest.raises(InvalidParameterError, match="LastIterate"):
        descent_epsilon(0.01, 2.0, 100, DELTA, "last_iterate")
    with pytest.raises(InvalidParameterError, match="accountant"):
        descent_epsilon(0.01, 2.0, 100, DELTA, "gdp")
