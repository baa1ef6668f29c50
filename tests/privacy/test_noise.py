"""Is the noise what we account for? Each test accepts the right law and rejects scale x 2/3 and x 3/2.

With the sample sizes below, each test accepts the right law with probability 1 - 1e-6 and rejects a scale that is
off by a factor 1.5 with probability above 1 - 1e-9.
"""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from fairveil._random import secret_coins
from fairveil.privacy.noise import (
    GRID_BITS,
    add_gaussian,
    add_integers,
    public_scale,
)
from fairveil.privacy.sampling import discrete_gaussian, discrete_laplace, uniform_below

P = 1e-6


def laplace_pmf(x, scale):
    return np.exp(-np.abs(x) / scale) * np.tanh(1 / (2 * scale))


def gaussian_pmf(x, std):
    wide = np.arange(-int(40 * std) - 40, int(40 * std) + 41)
    return np.exp(-(x**2) / (2 * std**2)) / np.exp(-(wide**2) / (2 * std**2)).sum()


def p_value(sample, pmf, scale):
    """Chi-square of whole numbers against a law; the tails are pooled."""
    edge = int(np.quantile(np.abs(sample), 0.99)) + 1
    inside = np.arange(-edge, edge + 1)
    expected = len(sample) * pmf(inside, scale)
    keep = expected >= 10
    observed = np.array([(sample == x).sum() for x in inside[keep]], dtype=float)
    observed = np.append(observed, len(sample) - observed.sum())
    expected = np.append(expected[keep], len(sample) - expected[keep].sum())
    return stats.chi2.sf(((observed - expected) ** 2 / np.maximum(expected, 1e-9)).sum(), keep.sum())


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.7, 50.0])
@pytest.mark.parametrize(("sampler", "pmf"), [(discrete_laplace, laplace_pmf), (discrete_gaussian, gaussian_pmf)])
def test_discrete_noise_has_its_law_and_no_other(sampler, pmf, scale, seeded):
    coins, exact = secret_coins(), public_scale(scale)
    sample = np.array([sampler(exact, coins) for _ in range(3000)])
    assert p_value(sample, pmf, scale) > P
    assert p_value(sample, pmf, scale * 2 / 3) < P
    assert p_value(sample, pmf, scale * 3 / 2) < P


@pytest.mark.parametrize("std", [1e-3, 1.0, 777.0])
def test_gaussian_noise_has_its_law_and_no_other(std, seeded):
    noise = add_gaussian(np.zeros(20_000), std, secret_coins())
    assert stats.kstest(noise / std, "norm").pvalue > P
    assert stats.kstest(noise / (std * 2 / 3), "norm").pvalue < P
    assert stats.kstest(noise / (std * 3 / 2), "norm").pvalue < P


@pytest.mark.parametrize("std", [1e-3, 1.0, 777.0])
def test_noisy_sums_lie_on_a_public_grid(std, seeded, rng):
    noisy = add_gaussian(rng.normal(size=1000) * 10 * std, std, secret_coins())
    grid = 2.0 ** (np.floor(np.log2(std)) - GRID_BITS)
    assert grid <= std / 2**GRID_BITS
    assert np.array_equal(noisy / grid, np.rint(noisy / grid))


def test_no_noise_leaves_the_sum_alone():
    assert add_gaussian(np.array([0.1, 0.2], dtype=np.float32), 0.0, secret_coins()).dtype == np.float64


def test_counts_stay_whole_and_keep_their_shape(seeded):
    noisy = add_integers(discrete_laplace, np.zeros((2, 3), dtype=int), 2.0, secret_coins())
    assert noisy.shape == (2, 3)
    assert np.array_equal(noisy, np.rint(noisy)) and len(np.unique(noisy)) > 1


def test_scales_round_up():
    assert public_scale(1 / 3) >= Fraction(1, 3)
    assert float(public_scale(1 / 3)) - 1 / 3 < 1e-6


def test_whole_numbers_are_uniform_for_odd_and_huge_bounds(seeded):
    coins = secret_coins()
    counts = np.bincount([uniform_below(7, coins) for _ in range(7000)], minlength=7)
    assert ((counts - 1000) ** 2 / 1000).sum() < 40  # chi-square with 6 degrees: p about 5e-7
    huge = 3 * 2**150
    assert all(0 <= uniform_below(huge, coins) < huge for _ in range(100))
    assert uniform_below(1, coins) == 0
