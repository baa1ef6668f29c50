"""Figures that were derived independently (exact privacy loss distributions, quadrature, simulation) are met.

delta is 1e-5; a figure counts as met within 0.5 % or one unit of its last printed digit.
"""

import math

import pytest

from fairveil.accounting.composition import (
    NeighboringRelation,
    calibrate,
    delta_of,
    epsilon_of,
    two_step_epsilon,
)
from fairveil.accounting.events import Event, GaussianRelease, Joint, LaplaceRelease, PoissonSampled, Repeated
from fairveil.accounting.pld import Losses
from fairveil.accounting.pricing import composed, count_uses
from fairveil.research.paper_bounds import gdp_epsilon, rdp_epsilon

DELTA = 1e-5
ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE


def meets(value: float, printed: str) -> bool:
    mantissa, _, exponent = printed.partition("e")
    digits = len(mantissa.partition(".")[2])
    unit = 10.0 ** (int(exponent or 0) - digits)
    return abs(value - float(printed)) <= max(unit, 0.005 * float(printed))


def steps(rate: float, noise_multiplier: float, n_steps: int) -> Repeated:
    return Repeated(PoissonSampled(rate, GaussianRelease(noise_multiplier)), n_steps)


SHARED_BATCH = [
    (0.017, 50, 3, 0.5, "1.047", "1.171", "3.8e-5"),
    (0.040, 50, 3, 0.5, "2.647", "2.930", "4.0e-5"),
    (0.020, 500, 3, 2, ".981", "1.046", "2.4e-5"),
    (0.020, 500, 1, 2, "2.906", "3.345", "6.2e-5"),
    (0.010, 1000, 1, 1, "2.179", "3.060", "4.7e-4"),
    (0.010, 1000, 0.8, 0.5, "4.141", "8.516", "9.3e-3"),
    (0.00157, 6360, 1.2, 0.5, "1.061", "1.543", "6.2e-4"),
    (0.00157, 6360, 0.6, 0.5, "3.195", "6.878", "5.8e-3"),
    (0.100, 200, 4, 5, "1.810", "1.865", "1.6e-5"),
]


@pytest.mark.parametrize("row", SHARED_BATCH, ids=str)
def test_laplace_and_gaussian_on_one_batch(row) -> None:
    rate, n_steps, sigma, scale, separate, shared, spent = row
    laplace, gaussian = LaplaceRelease(scale), GaussianRelease(sigma)
    joint = Repeated(PoissonSampled(rate, Joint((laplace, gaussian))), n_steps)
    apart = [
        Repeated(PoissonSampled(rate, laplace), n_steps),
        Repeated(PoissonSampled(rate, gaussian), n_steps),
    ]
    assert meets(epsilon_of([joint], DELTA), shared)
    assert meets(epsilon_of(apart, DELTA), separate)
    assert meets(delta_of([joint], float(separate)), spent)


def test_two_gaussians_on_one_batch_are_one_gaussian() -> None:
    one = GaussianRelease(1.0)
    assert meets(epsilon_of([steps(0.01, 1, 1000), steps(0.01, 1, 1000)], DELTA), "2.58")
    assert meets(epsilon_of([Repeated(PoissonSampled(0.01, Joint((one, one))), 1000)], DELTA), "4.48")


GRADIENT_NOISE = [
    ("1", "51.9", "56.2", "21.9", "24.8", "25.8", "9.65"),
    ("2", "9.53", "11.8", "4.48", "3.68", "4.10", "1.42"),
    ("4", "2.40", "3.98", "1.44", ".680", "1.09", ".402"),
    ("8", ".917", "1.78", ".604", ".256", ".494", ".169"),
    ("10", ".699", "1.39", ".466", ".195", ".387", ".130"),
    ("20.24", ".310", ".642", ".211", ".086", ".179", ".058"),
]


@pytest.mark.parametrize("row", GRADIENT_NOISE, ids=lambda row: row[0])
def test_parity_gradients_stacked_replaced_and_as_one_vector(row) -> None:
    noise, *printed = row
    stacked, vector = float(noise) / math.sqrt(8), float(noise) / 2
    for rate, (add, replace, one_vector) in ((0.064, printed[:3]), (0.01985, printed[3:])):
        assert meets(epsilon_of([steps(rate, stacked, 100)], DELTA), add)
        assert meets(epsilon_of([steps(rate, stacked, 100)], DELTA, REPLACE), replace)
        assert meets(epsilon_of([steps(rate, vector, 100)], DELTA), one_vector)


@pytest.mark.parametrize(("noise", "figure"), [(10, ".341"), (7.0711, ".497"), (5, ".726"), (3.5355, "1.061")])
def test_noisy_group_counts(noise: float, figure: str) -> None:
    assert meets(epsilon_of([GaussianRelease(noise)], DELTA), figure)


def test_a_minority_drawn_more_often_pays_more() -> None:
    noise = calibrate(lambda z: [steps(0.0131, z, 100)], 0.5, DELTA)
    assert meets(epsilon_of([steps(0.01985, noise, 100)], DELTA), ".782")
    assert meets(epsilon_of([steps(64 / (9768 * 0.67), noise, 100)], DELTA), ".364")


def test_next_to_no_noise_is_priced_and_not_refused() -> None:
    assert meets(delta_of([steps(0.064, 0.056, 100)], 0.5), ".9987")
    assert meets(epsilon_of([steps(0.064, 0.056, 100)], DELTA), "3005")
    assert meets(epsilon_of([steps(0.01985, 0.0409 / math.sqrt(8), 100)], DELTA), "24074")


def test_the_two_directions_differ_and_the_worse_one_counts() -> None:
    losses = composed(count_uses(steps(0.0131, 0.98, 100)), 2.0**-13, ADD)
    assert meets(Losses(losses.remove, losses.remove).smallest_epsilon(DELTA), ".998")
    assert meets(Losses(losses.add, losses.add).smallest_epsilon(DELTA), ".461")
    assert meets(epsilon_of([steps(0.0131, 0.98, 100)], DELTA), ".998")


ADULT = [  # the noise standard deviation is 1.5 times the noise multiplier
    (3.13, "2.831", "3.082", "2.765"),
    (1.5, "8.818", "9.620", "8.351"),
    (3.27, None, "2.914", None),
    (1.56, None, "8.919", None),
    (3.01, "2.979", None, "2.906"),
    (1.45, "9.430", None, "8.922"),
]
CREDIT = [
    (4.44, 750, "2.735", None, None),
    (2.49, 1500, "8.678", None, None),
    (4.65, 750, None, "2.815", None),
    (2.6, 1500, None, "8.810", None),
    (4.3, 750, "2.844", None, "2.782"),
    (2.43, 1500, "8.993", None, "8.796"),
]


@pytest.mark.parametrize(
    "row",
    [(0.034, std, 1500, *rest) for std, *rest in ADULT] + [(0.0683, *row) for row in CREDIT],
)
def test_exact_renyi_and_central_limit_figures(row) -> None:
    rate, std, n_steps, exact, renyi, limit = row
    charges = [steps(rate, std / 1.5, n_steps)]
    assert exact is None or meets(epsilon_of(charges, DELTA), exact)
    assert renyi is None or meets(rdp_epsilon(charges, DELTA), renyi)
    assert limit is None or meets(gdp_epsilon(charges, DELTA).epsilon, limit)


@pytest.mark.parametrize(
    ("rate", "n_steps", "small", "large"), [(0.0453, 1150, "3.38", "10.60"), (0.0435, 1150, "3.23", "10.11")]
)
def test_half_the_rows_cost_more(rate, n_steps, small, large) -> None:
    assert meets(epsilon_of([steps(rate, 3.13 / 1.5, n_steps)], DELTA), small)
    assert meets(epsilon_of([steps(rate, 1.0, n_steps)], DELTA), large)


@pytest.mark.parametrize(
    "row",
    [(0.05, 2, 500, "2.532", "1.636", "3.336"), (0.02, 1, 1000, "3.899", "2.147", "3.918")],
)
def test_releasing_only_the_average_of_two_groups(row) -> None:
    rate, sigma, n_steps, sums, average, replaced = row
    averaged = [steps(rate, sigma * math.sqrt(2), n_steps)]
    assert meets(epsilon_of([steps(rate, sigma, n_steps)], DELTA), sums)
    assert meets(epsilon_of(averaged, DELTA), average)
    assert meets(epsilon_of(averaged, DELTA, REPLACE), replaced)


@pytest.mark.parametrize(
    ("event", "add", "replace", "group"),
    [(steps(0.02, 2, 500), ".921", "1.767", "2.009"), (steps(0.01, 1, 1000), "1.828", "2.843", "4.238")],
)
def test_adding_replacing_and_two_steps_of_group_privacy(event: Event, add, replace, group) -> None:
    assert meets(epsilon_of([event], DELTA), add)
    assert meets(epsilon_of([event], DELTA, REPLACE), replace)
    assert meets(two_step_epsilon(composed(count_uses(event), 2.0**-13, ADD), DELTA), group)


def test_without_sampling_every_pass_counts_in_full() -> None:
    assert meets(epsilon_of([Repeated(GaussianRelease(2.0), 10)], DELTA), "7.51")


def test_two_hundred_runs_of_one_mechanism() -> None:
    noise = calibrate(lambda z: [GaussianRelease(z)], 1.0, DELTA)
    assert meets(epsilon_of([Repeated(GaussianRelease(noise), 200)], DELTA), "22.7")


def test_replacing_costs_twice_where_the_default_relation_hides_it() -> None:
    assert meets(epsilon_of([steps(0.064, 5, 100)], DELTA, REPLACE), ".950")
    assert meets(epsilon_of([steps(0.064, 5, 100)], DELTA), ".466")
