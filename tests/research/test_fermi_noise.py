"""The published noise of DP-FERMI and what it costs: against closed forms and against a worst-case record."""

import math

import numpy as np
import pytest

from fairveil import NeighboringRelation
from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.events import GaussianRelease, PoissonSampled, Repeated
from fairveil.errors import InvalidParameterError
from fairveil.research.fermi_noise import PublishedNoise

ADULT = (45_243, 9_000)


def noise(epsilon=3.0, share=0.32, **choices):
    return PublishedNoise(*ADULT, epsilon, 1 / ADULT[0] ** 2, share, 1024, **choices)


def test_the_noise_is_that_of_the_theorem():
    n, n_steps = ADULT
    variance = 16 * n_steps * math.log(n**2) / (3.0**2 * n**2 * 0.32)
    assert noise().std_w == pytest.approx(math.sqrt(variance))
    assert noise(lipschitz=2.0, radius=3.0).std_theta == pytest.approx(6 * math.sqrt(variance))
    assert noise(epsilon=math.inf).std_w == 0.0


def test_the_multiplier_does_not_depend_on_the_smallest_share():
    n, n_steps = ADULT
    formula = 2 * (1024 / n) * math.sqrt(n_steps * math.log(n**2)) / 3.0
    assert noise().multiplier() == pytest.approx(formula)
    assert noise(share=0.05).multiplier() == pytest.approx(formula)
    assert noise().multiplier(2.0) == pytest.approx(formula / 2)


def test_one_known_attribute_changes_the_gradient_by_w_by_no_more(rng):
    """The gradient of -Tr(W E[y y'] W') + 2 Tr(W E[y s'] P^(-1/2)) by W, with and without one attribute."""
    shares, batch, weight = np.array([0.32, 0.68]), 16, 1.5
    y = rng.uniform(size=batch)
    y[0] = 1.0
    s = np.eye(2)[rng.integers(2, size=batch)]
    s[0] = [1.0, 0.0]
    without = s.copy()
    without[0] = 0.0
    moved = weight * 2 * (y @ s - y @ without) / batch / np.sqrt(shares)
    bound = 2 * weight / (batch * math.sqrt(0.32))
    assert np.linalg.norm(moved) == pytest.approx(bound)  # reached
    assert noise().std_w / noise().multiplier(weight) == pytest.approx(2 * weight / (1024 * math.sqrt(0.32)))


def test_both_gradients_of_a_batch_are_priced_together():
    joint = Repeated(PoissonSampled(1024 / ADULT[0], GaussianRelease(noise().multiplier() / math.sqrt(2))), ADULT[1])
    assert noise().cost() == pytest.approx(epsilon_of([joint], 1 / ADULT[0] ** 2), rel=1e-4)
    replaced = noise().cost(relation=NeighboringRelation.REPLACE_ONE)
    assert noise().cost() < replaced < 2.5 * noise().cost()


def test_shuffled_batches_cost_what_their_passes_cost():
    mu = math.sqrt(2 * round(9_000 * 1024 / 45_243)) / noise().multiplier()
    single = epsilon_of([GaussianRelease(1 / mu)], 1 / ADULT[0] ** 2)
    assert noise().cost_of_passes() == pytest.approx(single, rel=1e-3)
    assert noise().cost_of_passes() > noise().cost()


def test_claims_that_make_no_sense_are_refused():
    with pytest.raises(InvalidParameterError):
        noise(epsilon=0.0)
    with pytest.raises(InvalidParameterError):
        noise(share=0.0)
