"""Every registered noise distribution draws what its event charges for, and so do batches, subsets, orders and answers.

Each test accepts the right law at p 1e-6 and rejects scales, rates and shares x 2/3 and x 3/2; a test of a new
distribution needs nothing but its registration, and the law of its event below if that is new.
"""

from collections import Counter
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from fairveil._random import Key, secret_coins, uniforms_of_rows
from fairveil.accounting import events
from fairveil.accounting.events import (
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    GaussianRelease,
    LaplaceRelease,
)
from fairveil.privacy import noise
from fairveil.privacy.noise import NoiseDistribution, add_gaussian, add_laplace, register_noise_distribution
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.sampling import assign_subsets, poisson_draws

P = 1e-6
WRONG = (2 / 3, 3 / 2)


def halved(noise_multiplier):
    return LaplaceRelease(noise_multiplier / 2)


def add_halved(total, scale, coins):
    return add_laplace(total, scale / 2, coins)


HALVED = register_noise_distribution(NoiseDistribution("halved for tests", halved, 1, add_halved, spread=0.5))


def whole_numbers(weight):
    """Return the distribution of whole numbers with these weights."""
    x = np.arange(-400, 401)
    return stats.rv_discrete(values=(x, weight(x) / weight(x).sum()))


LAWS = {
    GaussianRelease: lambda event: stats.norm(0, event.noise_multiplier),
    LaplaceRelease: lambda event: stats.laplace(0, event.noise_multiplier),
    DiscreteLaplaceRelease: lambda event: whole_numbers(lambda x: np.exp(-abs(x) / event.scale)),
    DiscreteGaussianRelease: lambda event: whole_numbers(lambda x: np.exp(-0.5 * (x / event.std) ** 2)),
}
PRICED = sorted(name for name, law in noise._laws.items() if type(law.event(1.0)).__name__ in events._KINDS)


def p_value(sample, law):
    """Kolmogorov and Smirnov's test, or chi-square for whole numbers, with the tails pooled."""
    if not hasattr(law, "pmf"):
        return stats.kstest(sample, law.cdf).pvalue
    x = np.arange(-60, 61)
    expected = len(sample) * law.pmf(x)
    x, expected = x[expected >= 10], expected[expected >= 10]
    found = Counter(sample.tolist())
    observed = np.array([found[one] for one in x.tolist()], dtype=float)
    observed = np.append(observed, len(sample) - observed.sum())
    expected = np.append(expected, len(sample) - expected.sum())
    return stats.chi2.sf((np.square(observed - expected) / np.maximum(expected, 1e-9)).sum(), len(x))


def sample_of(law, scale):
    return law.add(np.zeros(3000 if law.is_whole else 20_000), scale, secret_coins())


@pytest.mark.parametrize("scale", [0.8, 3.7])
@pytest.mark.parametrize("name", PRICED)
def test_noise_has_the_law_that_its_event_charges_for(name, scale, seeded):
    law = noise.noise_distribution(name)
    sample, event = sample_of(law, scale), law.event(scale)
    assert p_value(sample, LAWS[type(event)](event)) > P
    for factor in WRONG:
        assert p_value(sample, LAWS[type(event)](law.event(factor * scale))) < P


@pytest.mark.parametrize("name", PRICED)
def test_the_stated_spread_is_the_variance_over_the_squared_scale(name, seeded):
    """At a scale of 6, where whole numbers vary like real ones to 1 %; six standard errors of the estimate are less."""
    law = noise.noise_distribution(name)
    sample = sample_of(law, 6.0)
    error = 6 * np.sqrt(stats.kurtosis(sample, fisher=False) / len(sample))
    assert sample.var() / 36 == pytest.approx(law.spread, rel=error + 0.01)


@pytest.mark.parametrize("factor", WRONG)
def test_noise_of_another_scale_than_charged_is_caught(factor, seeded):
    """The broken twin: a distribution that adds less or more noise than its event says."""
    twin = NoiseDistribution(
        "twin", GaussianRelease, 2, lambda total, scale, coins: add_gaussian(total, factor * scale, coins)
    )
    assert p_value(sample_of(twin, 2.0), LAWS[GaussianRelease](twin.event(2.0))) < P


def test_every_priced_noise_has_a_reference_law():
    assert {type(noise.noise_distribution(name).event(1.0)) for name in PRICED} == set(LAWS)
    assert {"gaussian", "laplace", "discrete_gaussian", "discrete_laplace", HALVED.name} <= set(PRICED)


# --- batches, subsets, orders, answers ---------------------------------------------------------------------


def counts_p(counts, n, chances):
    """Return the p-value of binomial counts out of n, one for each chance, against these chances."""
    chances = np.asarray(chances)
    return stats.chi2.sf((np.square(counts - n * chances) / (n * chances * (1 - chances))).sum(), len(counts))


@pytest.mark.parametrize(("n_units", "rate"), [(50, 0.03), (40, 0.3), (2000, 0.002), (7, 0.6)])
def test_batches_are_drawn_at_their_rate_and_no_other(n_units, rate, seeded):
    stream, n = poisson_draws(n_units, rate, secret_coins()), 4000
    drawn = np.bincount(np.concatenate([next(stream) for _ in range(n)]), minlength=n_units)
    assert counts_p(drawn, n, np.full(n_units, rate)) > P
    for factor in WRONG:
        assert counts_p(drawn, n, np.full(n_units, factor * rate)) < P


@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_the_sizes_of_batches_are_binomial(rate, seeded):
    """All units by coins of their own: one size, or a size that varies too much, would be another mechanism."""
    stream = poisson_draws(300, rate, secret_coins())
    sizes = np.array([len(next(stream)) for _ in range(4000)])
    law = stats.binom(300, rate)
    assert sizes_p(sizes, law) > P
    assert sizes_p(np.full(4000, round(300 * rate)), law) < P
    assert sizes_p(sizes, stats.binom(300, 1.5 * rate)) < P


def sizes_p(sizes, law):
    x = np.arange(301)
    expected = len(sizes) * law.pmf(x)
    kept = expected >= 10
    observed = np.bincount(sizes, minlength=301)[kept].astype(float)
    rest = max(len(sizes) - expected[kept].sum(), 1e-9)
    statistic = (np.square(observed - expected[kept]) / expected[kept]).sum()
    return stats.chi2.sf(statistic + (len(sizes) - observed.sum() - rest) ** 2 / rest, kept.sum())


@pytest.mark.parametrize("share", [0.15, 0.5])
def test_subsets_have_their_share_and_no_other(share, seeded):
    coins, n, n_units = secret_coins(), 3000, 40
    held = np.zeros(n_units)
    for _ in range(n):
        held[assign_subsets(n_units, {"train": 1 - share, "holdout": share}, coins)["holdout"]] += 1
    assert counts_p(held, n, np.full(n_units, share)) > P
    for factor in WRONG:
        assert counts_p(held, n, np.full(n_units, factor * share)) < P


def test_the_secret_order_is_uniform(seeded):
    """All 24 orders of four records; a twin that puts the first record first in half of its turns is caught."""
    records = MemoryRecords(np.arange(4, dtype=np.float32)[:, None], np.zeros(4, np.int16), np.zeros(4, np.int16))
    coins, places = secret_coins(), {order: place for place, order in enumerate(permutations(range(4)))}
    orders = [tuple(records.arranged(coins).gathered().X[:, 0].astype(int).tolist()) for _ in range(4800)]
    found = np.bincount([places[order] for order in orders], minlength=24)
    assert stats.chisquare(found).pvalue > P
    moved = [tuple(sorted(order, key=bool)) if turn % 8 == 0 else order for turn, order in enumerate(orders)]
    assert stats.chisquare(np.bincount([places[order] for order in moved], minlength=24)).pvalue < P


@pytest.mark.parametrize("chance", [0.02, 0.4])
def test_keyed_answers_have_their_chance_and_no_other(chance, rng):
    """Of 200 groups of records, under 30 keys: each record says yes with its chance, by either of its numbers."""
    rows = np.arange(12_000).reshape(6000, 2)
    answers = np.stack([uniforms_of_rows(Key(rng.bytes(16)), rows) < chance for _ in range(30)])
    for number in (0, 1):
        yes = answers[:, number].reshape(30, 200, 30).sum(axis=(0, 2))
        assert counts_p(yes, 900, np.full(200, chance)) > P
        for factor in WRONG:
            assert counts_p(yes, 900, np.full(200, factor * chance)) < P


def test_a_scale_is_never_rounded_down():
    for scale in (1e-6, 0.1, 1 / 3, 7.77):
        assert Fraction(scale) <= noise.public_scale(scale) <= Fraction(scale) + Fraction(1, noise.SCALE_DENOMINATOR)
