"""Errata of DP-FERMI's published code: what it does fails an exact computation, what fairveil does passes it.

Each test stands beside an item of docs/errata.md and holds its numbers.
"""

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from fairveil import NeighboringRelation
from fairveil.methods.fermi.penalty import penalty_and_pull, penalty_of
from fairveil.research.fermi_noise import PublishedNoise


def near(value, decimals=2):
    """Equal to what the page says, to the last digit it prints."""
    return pytest.approx(value, abs=0.6 * 10.0**-decimals)


# --- one group only --------------------------------------------------------------------------------------------------


def one_entry(rates, shares, first):
    """The maximum over a 1 x 1 matrix W of the trace that keeps the entry of one group."""
    rate = float(np.dot(rates, shares))

    def negative(w):
        return w**2 * rate - 2 * w * rates[first] * shares[first] / math.sqrt(shares[first]) + 1

    return -minimize_scalar(negative).fun


SHARES = np.array([0.68, 0.32])
"""Men and women in Adult."""


def test_one_entry_of_the_trace_falls_beyond_parity():
    """Below parity for the first group it is smaller still; D is smallest at parity."""
    at_parity = one_entry(np.array([0.2, 0.2]), SHARES, 0)
    beyond = one_entry(np.array([0.1, 0.2]), SHARES, 0)
    assert (at_parity, beyond) == (near(-0.864, 3), near(-0.948, 3))
    table = np.column_stack([SHARES * 0.8, SHARES * 0.2])
    moved = np.column_stack([SHARES * [0.9, 0.8], SHARES * [0.1, 0.2]])
    assert penalty_of(table) == pytest.approx(0, abs=1e-12) and penalty_of(moved) > 0


def test_one_entry_of_the_trace_widens_the_gap_if_the_other_group_is_first():
    """Men are selected at .3, women at .1. Counting women alone, fewer selected women make the penalty smaller."""
    now, wider = (one_entry(np.array([0.3, women]), SHARES, 1) for women in (0.10, 0.05))
    assert wider < now
    now, nearer = (one_entry(np.array([men, 0.1]), SHARES, 0) for men in (0.30, 0.25))
    assert nearer < now


def test_one_class_alone_rewards_selecting_nobody():
    """Even with all groups in the trace: where the output is P(class 1) alone, the maximum is the rate less 1."""

    def one_class(rates):
        return float(np.sum(SHARES * rates**2) / np.dot(SHARES, rates)) - 1

    assert [one_class(np.full(2, rate)) for rate in (0.2, 0.1)] == [near(-0.8), near(-0.9)]
    assert one_class(np.array([0.12, 0.08])) < one_class(np.full(2, 0.2))  # a gap of .04 counts for less
    for rate in (0.2, 0.1):
        assert penalty_of(np.column_stack([SHARES * (1 - rate), SHARES * rate])) == pytest.approx(0, abs=1e-12)


def test_our_penalty_pulls_both_groups_together_however_they_are_coded():
    table = np.column_stack([SHARES * [0.7, 0.9], SHARES * [0.3, 0.1]])
    for order in ([0, 1], [1, 0]):
        _, pull = penalty_and_pull(table[order])
        toward = (pull[:, 1] - pull[:, 0])[np.argsort(order)]
        assert toward[0] > 0 > toward[1]  # descent selects fewer men and more women


# --- the noise -------------------------------------------------------------------------------------------------------


def noise(epsilon, share=0.39):
    return PublishedNoise(22_500, 4_400, epsilon, 1 / 22_500**2, share, 1024)


def test_the_published_noise_does_not_grow_with_lambda():
    """Credit Card, whose published points go up to lambda 2, at its own delta."""
    costs = [noise(3.0).cost(weight) for weight in (0.25, 1.0, 2.0)]
    assert costs == [near(0.63), near(2.73), near(5.94)]
    assert costs[1] < 3.0 < costs[2]


def test_what_a_change_of_the_attribute_costs_at_worst():
    assert noise(3.0).cost(1.0, NeighboringRelation.REPLACE_ONE) == near(5.71)


def test_without_sampling_coins_the_passes_add_up():
    assert noise(3.0).cost_of_passes() == near(15.04, 1)


def test_the_smallest_share_that_sets_the_noise_is_a_secret():
    """Ten women among 1,000: one attribute more or less moves the noise's deviation by 6 %, which 100 draws tell."""
    few, fewer = (PublishedNoise(1000, 200, 1.0, 1e-6, (women - 1) / 1000, 100).std_w for women in (10, 9))
    assert fewer / few == near(math.sqrt(9 / 8))
    # each of 100 entries and 200 steps shows the deviation: the sum of squares has a relative error of sqrt(2 / 20,000)
    assert (fewer / few) ** 2 - 1 > 10 * math.sqrt(2 / 20_000)
