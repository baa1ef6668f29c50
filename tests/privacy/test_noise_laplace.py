"""Is Laplace noise what we account for? The right scale is accepted, x 2/3 and x 3/2 are rejected.

Kolmogorov and Smirnov's test at 1e-6 on 20,000 numbers: it accepts the right law with probability 1 - 1e-6, and rejects
a scale that is off by a factor 1.5 (a distance of 0.074 or more, against a critical 0.019) with probability above
1 - 1e-9.
"""

from typing import ClassVar

import numpy as np
import pytest
from scipy import stats

from fairveil._random import secret_coins
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.noise import GRID_BITS, add_laplace
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import Count, Sum, one_cell, row_function
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import ROUNDING, open_veils

P = 1e-6
N = 20_000
BOUND = 0.25


@row_function
class Ones:
    depends_on_group: ClassVar[bool] = False

    def values_of(self, rows):
        return np.ones((4, len(rows)), dtype=np.float32)


def spread(n_cells):
    """Cells that nobody falls into but the first: what comes out of the others is noise alone."""
    return Sum(one_cell(2), n_cells, Ones())


def draw(law, name, scale):
    records = MemoryRecords(np.zeros((5, 1), np.float32), np.zeros(5, np.int16), np.zeros(5, np.int16))
    plan = Plan((Stage("train", (Release(name, law, scale),)),), 1.0, 1e-5)
    return open_veils(records, plan, Ledger(), secret_coins(), "a test")["train"].draw()


def is_law(noise, scale, shape="laplace"):
    return stats.kstest(noise / scale, shape).pvalue > P


def check(noise, scale, shape="laplace"):
    assert is_law(noise, scale, shape)
    assert not is_law(noise, scale * 2 / 3, shape)
    assert not is_law(noise, scale * 3 / 2, shape)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 777.0])
def test_laplace_noise_has_its_law_and_no_other(scale, seeded):
    noise = add_laplace(np.zeros(N), scale, secret_coins())
    check(noise, scale)
    assert not is_law(noise, scale * np.sqrt(2), "norm")


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_counts_get_the_planned_laplace_noise(scale, seeded):
    counts = draw("laplace", "counts", scale).release_counts(Count(one_cell(2), N + 1))
    check(counts[1:], scale)


@pytest.mark.parametrize(("law", "shape"), [("laplace", "laplace"), ("gaussian", "norm")])
def test_histograms_get_the_planned_noise(law, shape, seeded):
    histogram = draw(law, "histogram", 2.0).release_sums(spread(N // 4 + 1), BOUND)
    check(histogram[1:].ravel(), 2.0 * BOUND * ROUNDING, shape)


def test_the_numbers_of_one_release_are_independent(seeded):
    """Of two columns of 5,000 numbers the rank correlation is beyond 0.08 with probability below 1e-6."""
    columns = draw("laplace", "histogram", 2.0).release_sums(spread(5_001), BOUND)[1:]
    for j in range(3):
        assert abs(stats.spearmanr(columns[:, j], columns[:, j + 1]).statistic) < 0.08


@pytest.mark.parametrize("scale", [1e-3, 1.0, 777.0])
def test_noisy_sums_lie_on_a_public_grid(scale, seeded, rng):
    noisy = add_laplace(rng.normal(size=(50, 20)) * 10 * scale, scale, secret_coins())
    grid = 2.0 ** (np.floor(np.log2(scale)) - GRID_BITS)
    assert noisy.shape == (50, 20)
    assert np.array_equal(noisy / grid, np.rint(noisy / grid))


def test_no_noise_leaves_the_sum_alone():
    assert add_laplace(np.array([1, 2]), 0.0, secret_coins()).tolist() == [1.0, 2.0]
