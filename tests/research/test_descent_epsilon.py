"""Accountants of a noisy descent: exact, and both branches of the Rényi bound of DP2DP's Theorem 4.1."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairveil.accounting.events import GaussianRelease, PoissonSampled, Repeated
from fairveil.errors import InvalidParameterError
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


def test_the_second_branch_is_refused_outside_its_conditions():
    with pytest.raises(InvalidParameterError, match="smoothing / 4"):
        LastIterate(2, 128, smoothing=1e-5, step_size=0.1)  # what the experiments use
    with pytest.raises(InvalidParameterError, match="LastIterate"):
        descent_epsilon(0.01, 2.0, 100, DELTA, "last_iterate")
    with pytest.raises(InvalidParameterError, match="accountant"):
        descent_epsilon(0.01, 2.0, 100, DELTA, "gdp")
