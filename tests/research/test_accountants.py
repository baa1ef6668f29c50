"""The older accountants: Rényi lies above, the central limit only near, and both refuse the unknown."""

import pytest

from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.events import (
    ApproximateDP,
    Charge,
    DiscreteGaussianRelease,
    Event,
    GaussianRelease,
    Joint,
    LaplaceRelease,
    PoissonSampled,
    Repeated,
)
from fairveil.errors import UnsupportedEventError
from fairveil.research.paper_bounds import NotABound, gdp_epsilon, rdp_epsilon

DELTA = 1e-5


def steps(rate: float, noise_multiplier: float, n_steps: int) -> Repeated:
    return Repeated(PoissonSampled(rate, GaussianRelease(noise_multiplier)), n_steps)


@pytest.mark.parametrize(
    "charges",
    [
        [GaussianRelease(2.0)],
        [LaplaceRelease(2.0), GaussianRelease(3.0)],
        [Joint((LaplaceRelease(2.0), Repeated(GaussianRelease(5.0), 3)))],
        [steps(0.05, 1.0, 300)],
        [Repeated(PoissonSampled(0.05, Joint((GaussianRelease(2.0), GaussianRelease(2.0)))), 100)],
        [Charge(steps(0.05, 1.0, 300), "split", "a"), Charge(LaplaceRelease(1.0), "split", "b")],
    ],
)
def test_renyi_is_a_looser_bound(charges) -> None:
    exact = epsilon_of(charges, DELTA)
    assert exact < rdp_epsilon(charges, DELTA) < 2 * exact


def test_the_central_limit_is_exact_for_gaussians_and_too_low_for_samples() -> None:
    parts = [
        GaussianRelease(3.0),
        Repeated(GaussianRelease(4.0), 5),
        PoissonSampled(1.0, GaussianRelease(2.0)),
    ]
    assert gdp_epsilon(parts, DELTA).epsilon == pytest.approx(epsilon_of(parts, DELTA), rel=4e-4)
    assert gdp_epsilon([steps(0.01, 0.7, 1000)], DELTA).epsilon < 0.8 * epsilon_of([steps(0.01, 0.7, 1000)], DELTA)
    assert gdp_epsilon([], DELTA) == NotABound(0.0)
    assert rdp_epsilon([], DELTA) == 0


@pytest.mark.parametrize(
    "event", [ApproximateDP(1.0), DiscreteGaussianRelease(2.0), PoissonSampled(0.1, LaplaceRelease(1.0))]
)
def test_comparisons_refuse_what_they_do_not_know(event: Event) -> None:
    with pytest.raises(UnsupportedEventError):
        rdp_epsilon([event], DELTA)
    with pytest.raises(UnsupportedEventError):
        gdp_epsilon([event], DELTA)
