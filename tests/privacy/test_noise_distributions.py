"""Laws of noise by name: plan, ledger and veil take a further one as they take their own."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from fairveil._random import secret_coins
from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.events import Event, GaussianRelease
from fairveil.errors import InvalidParameterError, UnplannedReleaseError, UnsupportedEventError
from fairveil.models import LinearSoftmax
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.noise import (
    NoiseDistribution,
    add_gaussian,
    noise_distribution,
    register_noise_distribution,
)
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import Count, CrossEntropy, Sum, one_cell, row_function
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import ROUNDING, open_veils

DELTA = 1e-5


def doubled(noise_multiplier):
    return GaussianRelease(2 * noise_multiplier)


def add_doubled(total, scale, coins):
    return add_gaussian(total, 2 * scale, coins)


DOUBLED = register_noise_distribution(NoiseDistribution("doubled", doubled, 2, add_doubled, spread=4.0))


@dataclass(frozen=True)
class Unheard(Event):
    noise_multiplier: float


UNHEARD = register_noise_distribution(NoiseDistribution("unheard", Unheard, 2, add_gaussian))


@row_function
class Zero:
    depends_on_group: ClassVar[bool] = False

    def values_of(self, rows):
        return np.zeros((1, len(rows)), dtype=np.float32)


def open_train(law, name, ledger=None):
    records = MemoryRecords(np.zeros((1, 999), np.float32), np.zeros(1, np.int16), np.zeros(1, np.int16))
    plan = Plan((Stage("train", (Release(name, law, 3.0),), 1.0, {-1: 0.5}, 2),), 1.0, DELTA)
    return open_veils(records, plan, ledger or Ledger(), secret_coins(), "a test")["train"]


def test_a_further_law_passes_plan_and_ledger():
    plan = Plan((Stage("train", (Release("gradient", "doubled", 1.0),), 1.0, {-1: 0.05}, 500),), 3.0, DELTA)
    twin = Plan((Stage("train", (Release("gradient", "gaussian", 2.0),), 1.0, {-1: 0.05}, 500),), 3.0, DELTA)
    assert epsilon_of(plan.charges(), DELTA) == epsilon_of(twin.charges(), DELTA)
    assert plan.to_list()[0]["epsilon"] == twin.to_list()[0]["epsilon"] == pytest.approx(2.53, abs=0.01)
    assert Stage.from_dict(plan.stages[0].to_dict()) == plan.stages[0]
    ledger = Ledger()
    open_train("doubled", "gradient", ledger)
    assert ledger.entries[0].charges[0].event == open_train("doubled", "gradient").stage.event
    assert np.isfinite(ledger.epsilon(DELTA))


def test_a_further_law_passes_the_veil(seeded):
    """The sample standard deviation of 4000 numbers is within 7 % (six standard errors) of twice the plan's."""
    model = LinearSoftmax(999, 4)
    start = np.zeros(4000, np.float32)
    gradient = open_train("doubled", "gradient").draw().release_gradient(model, start, CrossEntropy(), 1.0)
    assert abs(gradient.std() / (6 * ROUNDING) - 1) < 0.07
    counts = open_train("doubled", "counts").draw().release_counts(Count(one_cell(2), 4000))
    assert abs(counts.std() / 6 - 1) < 0.07
    histogram = open_train("doubled", "histogram").draw().release_sums(Sum(one_cell(2), 4000, Zero()), 0.5)
    assert abs(histogram.std() / (3 * ROUNDING) - 1) < 0.07


def test_a_law_whose_cost_nobody_knows_opens_nothing():
    plan = Plan((Stage("train", (Release("gradient", "unheard", 1.0),)),), 1.0, DELTA)
    with pytest.raises(UnsupportedEventError, match="Unheard"):
        plan.to_list()
    ledger = Ledger()
    with pytest.raises(UnsupportedEventError, match="Unheard"):
        open_train("unheard", "gradient", ledger)
    assert ledger.entries == ()


def test_a_name_means_one_law_for_good():
    assert register_noise_distribution(DOUBLED) is noise_distribution("doubled")
    with pytest.raises(InvalidParameterError, match="no other noise distribution has, got 'gaussian'"):
        register_noise_distribution(replace(DOUBLED, name="gaussian"))
    assert noise_distribution("gaussian").event(1.0) == GaussianRelease(1.0)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(InvalidParameterError, match=r"one of discrete_gaussian, discrete_laplace.*got 'cauchy'"):
        Release("gradient", "cauchy", 1.0)


def test_a_law_bounds_in_one_of_two_norms():
    with pytest.raises(InvalidParameterError, match="1 or 2, got 3"):
        replace(DOUBLED, norm=3)


@pytest.mark.parametrize("law", ["laplace", "discrete_laplace", "discrete_gaussian"])
def test_a_gradient_is_bounded_in_l2_and_takes_no_other_noise(law):
    with pytest.raises(UnplannedReleaseError, match=f"such as gaussian, got {law}"):
        open_train(law, "gradient").draw().release_gradient(
            LinearSoftmax(999, 4), np.zeros(4000, np.float32), CrossEntropy(), 1.0
        )


@pytest.mark.parametrize("law", ["gaussian", "laplace", "discrete_laplace", "discrete_gaussian", "doubled"])
def test_counts_take_every_law(law):
    few = Count(one_cell(2), 3)
    assert open_train(law, "counts").draw().release_counts(few).shape == (3,)


def test_pure_noise_is_stated_with_delta_0():
    parts = (
        Stage("size", (Release("size", "discrete_laplace", 4.0), Release("again", "laplace", 8.0)), n_steps=2),
        Stage("look", (Release("counts", "laplace", 1.0),), 1.0, {-1: 0.1}),
        Stage("train", (Release("counts", "laplace", 4.0), Release("gradient", "gaussian", 4.0))),
    )
    size, look, train = Plan(parts, 3.0, DELTA).to_list()
    assert (size["epsilon"], size["delta"]) == (pytest.approx(0.75), 0.0)
    assert (look["epsilon"], look["delta"]) == (pytest.approx(np.log1p(0.1 * np.expm1(1.0))), 0.0)
    assert train["delta"] == DELTA
