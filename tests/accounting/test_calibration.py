"""Calibration stops on the private side, close to the edge, after few evaluations."""

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fairveil.accounting.composition import NeighboringRelation, calibrate, epsilon_of
from fairveil.accounting.events import (
    ApproximateDP,
    Charge,
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    GaussianRelease,
    Joint,
    LaplaceRelease,
    NonPrivateRelease,
    PoissonSampled,
    Repeated,
)
from fairveil.accounting.pricing import Compositions
from fairveil.errors import InvalidParameterError

DELTA = 1e-5
REPLACE = NeighboringRelation.REPLACE_ONE
COUNTS = GaussianRelease(20.0)


def steps(rate: float, n_steps: int):
    return lambda scale: [Repeated(PoissonSampled(rate, GaussianRelease(scale)), n_steps)]


PLANS = {
    "ten thousand steps": steps(0.03, 10_000),
    "rare and rough": steps(0.001, 1000),
    "one Gaussian": lambda scale: [GaussianRelease(scale)],
    "one Laplace": lambda scale: [LaplaceRelease(scale)],
    "discrete Laplace": lambda scale: [DiscreteLaplaceRelease(scale, 3)],
    "discrete Gaussian": lambda scale: [DiscreteGaussianRelease(scale)],
    "one batch": lambda scale: [
        Repeated(PoissonSampled(0.01, Joint((LaplaceRelease(scale), GaussianRelease(2 * scale)))), 500)
    ],
    "parts": lambda scale: [
        Charge(Repeated(PoissonSampled(0.05, GaussianRelease(scale)), 200), "split", "train"),
        Charge(DiscreteLaplaceRelease(100 * scale), "split", "check"),
        Charge(GaussianRelease(1000.0)),
    ],
}


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("plan", PLANS)
def test_the_scale_is_private_and_close_to_the_edge(plan: str, epsilon: float) -> None:
    charges_at = PLANS[plan]
    scale = calibrate(charges_at, epsilon, DELTA)
    assert epsilon_of(charges_at(scale), DELTA) <= epsilon
    assert epsilon_of(charges_at(scale / 1.0005), DELTA) > epsilon


@settings(max_examples=10)
@given(
    st.floats(min_value=1e-3, max_value=0.5),
    st.integers(min_value=1, max_value=2000),
    st.floats(min_value=0.05, max_value=20),
    st.sampled_from([1e-3, 1e-5, 1e-8]),
)
def test_any_plan_is_met_from_the_private_side(rate: float, n_steps: int, epsilon: float, delta: float) -> None:
    assume(rate * n_steps > 10 * delta)  # else records are drawn less often than delta, and no noise is needed
    charges_at = steps(rate, n_steps)
    scale = calibrate(charges_at, epsilon, delta)
    assert 0.999 * epsilon <= epsilon_of(charges_at(scale), delta) <= epsilon


FIGURES = [
    (steps(0.064, 100), {0.46: 5.061, 0.5: 4.707, 1.0: 2.638}),
    (steps(0.01985, 100), {0.46: 1.816, 0.5: 1.715, 1.0: 1.159}),
    (lambda z: [*steps(0.064, 100)(z), COUNTS], {0.46: 5.44, 0.5: 5.00, 1.0: 2.68}),
    (lambda z: [*steps(0.01985, 100)(z), COUNTS], {0.46: 1.92, 0.5: 1.79, 1.0: 1.17}),
    (lambda z: [*steps(64 / (6000 * 0.396), 1000)(z), COUNTS], {0.5: 6.49, 1.0: 3.36}),
    (lambda z: [GaussianRelease(z)], {0.46: 7.59, 0.5: 7.03, 1.0: 3.73}),
]


@pytest.mark.parametrize(
    ("charges_at", "epsilon", "figure"),
    [(charges_at, epsilon, figure) for charges_at, row in FIGURES for epsilon, figure in row.items()],
)
def test_figures_derived_independently_are_met(charges_at, epsilon: float, figure: float) -> None:
    assert calibrate(charges_at, epsilon, DELTA) == pytest.approx(figure, rel=5e-3)


@pytest.mark.parametrize(
    "row",
    [
        (0.017, 100, 3, 1, 1.018, 1.158),
        (0.02, 500, 3, 1, 3.014, 2.410),
        (0.02, 500, 1.5, 2, 2.295, 1.935),
        (0.00157, 6360, 1.2, 1, 1.055, 1.095),
        (0.1, 200, 6, 1.5, 6.630, 4.957),
    ],
)
def test_histogram_noise_beside_gradient_noise(row) -> None:
    rate, n_steps, sigma, epsilon, laplace, gaussian = row

    def plan(histogram):
        return lambda std: [Repeated(PoissonSampled(rate, Joint((histogram(std), GaussianRelease(sigma)))), n_steps)]

    by_laplace = calibrate(plan(lambda std: LaplaceRelease(std / math.sqrt(2))), epsilon, DELTA)
    by_gaussian = calibrate(plan(GaussianRelease), epsilon, DELTA)
    assert by_laplace == pytest.approx(laplace, rel=5e-3)
    assert by_gaussian == pytest.approx(gaussian, rel=5e-3)


def test_replacing_one_needs_more_noise() -> None:
    add, replace = calibrate(steps(0.02, 500), 1.0, DELTA), calibrate(steps(0.02, 500), 1.0, DELTA, REPLACE)
    assert replace > 1.5 * add
    assert epsilon_of(steps(0.02, 500)(replace), DELTA, REPLACE) <= 1.0


@pytest.mark.parametrize("plan", ["ten thousand steps", "one Gaussian", "parts"])
def test_few_evaluations_are_needed(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluations = []
    price = Compositions.priced

    def counted(*arguments):
        evaluations.append(1)
        return price(*arguments)

    monkeypatch.setattr(Compositions, "priced", counted)
    calibrate(PLANS[plan], 1.0, DELTA)
    assert len(evaluations) <= 9


@pytest.mark.parametrize(
    "charges_at",
    [
        lambda scale: [GaussianRelease(scale), ApproximateDP(2.0)],
        lambda scale: [GaussianRelease(3.0)],
        lambda scale: [DiscreteGaussianRelease(scale), GaussianRelease(3.6)],
        lambda scale: [GaussianRelease(scale), NonPrivateRelease("no noise")],
    ],
)
def test_an_unreachable_budget_is_refused_in_one_sentence(charges_at) -> None:
    with pytest.raises(InvalidParameterError, match=r"more noise can meet.*raise epsilon or delta"):
        calibrate(charges_at, 1.0, DELTA)


def test_a_budget_just_above_the_fixed_cost_is_met() -> None:
    def charges_at(scale: float):
        return [GaussianRelease(scale), GaussianRelease(3.74)]

    scale = calibrate(charges_at, 1.0, DELTA)
    assert scale > 40
    assert epsilon_of(charges_at(scale), DELTA) <= 1.0


def test_where_any_noise_is_enough_the_least_searched_is_returned() -> None:
    assert calibrate(steps(1e-7, 10), 1.0, DELTA) == pytest.approx(1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(0, DELTA), (-1, DELTA), (math.inf, DELTA), (1.0, 0), (1.0, 1)])
def test_bad_budgets_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(InvalidParameterError):
        calibrate(PLANS["one Gaussian"], epsilon, delta)
