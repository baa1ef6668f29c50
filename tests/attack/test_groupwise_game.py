"""Can the claims of group-wise training be broken? A game on one step of each form of release, and twins to be caught.

As in `test_neighbour_game`: a step is drawn many times through a real veil, with and without one worst-case record;
half of the draws choose a threshold, the other half bounds epsilon from below at confidence 1 - 1e-6. The statistic is
the release along the record's own gradient, the best there is for Gaussian noise. In 40 simulated games of each kind
honest steps showed 0.29 to 0.56 of their claim (0.2 must be shown), twins 1.17 to 2.5 of it (more than 1 must be
shown). Coins are seeded by the test's name, so nothing fails by chance.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from fairveil._random import secret_coins
from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.events import GaussianRelease, PoissonSampled
from fairveil.audit.bounds import free_bound
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.fairdp.noise_certificate import parted, widened
from fairveil.methods.fairdp.recipe import Groupwise
from fairveil.privacy import noise as laws
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.noise import add_gaussian
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import CrossEntropy, GradientSum
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import open_veils
from fairveil.training.recipe import Task

N_DRAWS = 8_000
DELTA = 1e-2
N_MODELS = 3
PEOPLE = Population((Attribute("side", ("few", "many")),), ("no", "yes"))
TASK = Task(1, PEOPLE, 1.0, 400, 1.0, 1e-5)
OWN = np.array([-1.0, 1.0, 0.0, 0.0]) / math.sqrt(2)
"""Where the record pulls: all but along its only, huge feature."""


def records_with(canary):
    """Nobody, or one of the few, whose gradient is far longer than any clip norm."""
    n = int(canary)
    return MemoryRecords(np.full((n, 1), 1e4, np.float32), np.zeros(n, np.int16), np.zeros(n, np.int16))


def recipe_for(**choices):
    return Groupwise(Descent(n_steps=2, sampling_rate=1.0, clip_norm=0.5), **choices)


def ask_average(recipe):
    model, scale = recipe.model_for(TASK), recipe._scale(TASK, 400.0, None, 1.0)
    start = np.zeros(model.n_params, np.float32)
    return lambda batch, _veil: recipe._average(batch, model, start, scale, TASK) @ OWN


def ask_groups(batch, _veil):
    """All sums are seen, of four groups: the one of the record's own group tells most."""
    model = recipe_for().model_for(TASK)
    plain = CrossEntropy(np.ones(4, np.float32))
    return batch.release_group_gradients(model, np.zeros(4, np.float32), plain, 0.5, 4)[0] @ OWN


def ask_several(batch, veil):
    """All models are seen, and the subset of the record is known to the attacker."""
    model = recipe_for().model_for(TASK)
    wide = replace(model, n_classes=2 * N_MODELS)
    start = widened(model, np.zeros(4, np.float32), N_MODELS)
    objective = CrossEntropy(np.array([1, 1, 0], np.float32), N_MODELS)
    parts = parted(model, batch.release_gradient(wide, start, objective, 0.5), N_MODELS)
    uniforms = veil._records.uniforms
    subset = int(uniforms[0, 0] * N_MODELS) if uniforms.size else 0
    return parts[subset] @ OWN


ASKS = {
    "average, one divisor": (ask_average(recipe_for(divisors="common")), "gradient"),
    "average, a divisor a group": (ask_average(recipe_for(group_sizes=(100.0, 300.0))), "gradient"),
    "group sums": (ask_groups, "gradients"),
    "several models": (ask_several, "gradient"),
}


def play(ask, name, noise, rate=1.0, n_draws=N_DRAWS):
    """Return the bound on epsilon that the draws of two worlds prove."""
    part = Stage("train", (Release(name, "gaussian", noise),), 1.0, {-1: rate}, n_draws)
    worlds = []
    for canary in (True, False):
        veils = open_veils(records_with(canary), Plan((part,), 1.0, 1e-5), Ledger(), secret_coins(), "a game")
        worlds.append(np.array([ask(veils["train"].draw(), veils["train"]) for _ in range(n_draws)]))
    return free_bound(worlds[0], worlds[1][::-1], DELTA)


def claim(noise, rate=1.0):
    event = GaussianRelease(noise)
    return epsilon_of([event if rate == 1 else PoissonSampled(rate, event)], DELTA)


@pytest.mark.parametrize("form", sorted(ASKS))
def test_the_claim_of_a_step_stands(form, seeded):
    ask, name = ASKS[form]
    assert 0.2 * claim(1.0) < play(ask, name, 1.0, n_draws=4_000) <= claim(1.0)


def test_the_claim_of_a_sampled_step_stands(seeded):
    ask, name = ASKS["average, a divisor a group"]
    assert 0.2 * claim(0.5, 0.3) < play(ask, name, 0.5, 0.3) <= claim(0.5, 0.3)


@pytest.mark.parametrize("form", ["average, a divisor a group", "group sums"])
def test_noise_for_half_the_sensitivity_is_caught(form, seeded, monkeypatch):
    law = replace(
        laws.noise_distribution("gaussian"), add=lambda total, std, coins: add_gaussian(total, std / 2, coins)
    )
    monkeypatch.setitem(laws._laws, "gaussian", law)
    ask, name = ASKS[form]
    assert play(ask, name, 1.0) > claim(1.0)


def test_group_sums_debited_as_their_average_are_caught(seeded):
    """A twin that releases the sum of each of four groups at noise sigma and books 2 sigma, that of their average."""
    assert play(ask_groups, "gradients", 1.0) > claim(math.sqrt(4) * 1.0)


def test_the_noise_of_a_large_group_debited_for_a_small_one_is_caught(seeded):
    """A twin that prices z_k of the many (three times as many): the few are seen three times as well."""
    ask, name = ASKS["average, a divisor a group"]
    assert play(ask, name, 1.0, n_draws=4_000) > claim(3.0)


def test_weights_that_the_clip_norm_does_not_know_are_caught(seeded):
    """A twin that clips first and multiplies by a weight of 2 afterwards."""
    recipe = recipe_for(divisors="common")
    model = recipe.model_for(TASK)

    def ask(batch, _veil):
        heavy = CrossEntropy(np.array([2, 1, 0], np.float32))
        bound = np.array([1.0, 0.5, 0.0], np.float32)
        query = GradientSum(model, np.zeros(4, np.float32), heavy)
        total = batch._veil._records.answer(batch._drawn, query, bound, n_blocks=batch._veil._n_blocks)
        return add_gaussian(total, 0.5 * batch._open["gradient"].noise_multiplier, batch._veil._coins) @ OWN

    assert play(ask, "gradient", 1.0) > claim(1.0)
