"""Thresholds from curves: the program, the shares of bins, and groups too small to speak of."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fairveil.fairness.constraints import (
    DemographicParity,
    FalseNegativeRateCap,
    FalsePositiveRateCap,
    constrain,
)
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.dp2dp.thresholds import EDGES, LOWER, UPPER, ScoreCurves, accepted
from fairveil.models.rules import RandomizedThresholds

PEOPLE = Population((Attribute("g", ("a", "b")),), ("0", "1"))
PLAIN = RandomizedThresholds(np.zeros((3, 1)), np.ones((3, 1)))
CODES = np.array([0, 1])
N_BINS = len(EDGES) + 1


def curves_of(bins, constraint, size_noise=0.0, headroom=0.0):
    """Cells are groups a, b and none, as demographic parity has them."""
    bounds = constrain(constraint, PEOPLE)
    coarse = bounds.cells[:, 0]
    return ScoreCurves(np.asarray(bins, float), size_noise, np.arange(3), coarse, bounds, 1.0, headroom)


def bell(centre, total):
    middle = (LOWER + UPPER) / 2
    heights = np.exp(-((middle - centre) ** 2) / 2)
    return total * heights / heights.sum()


def rates_under(curves, rule):
    counts = curves.counts_under(rule)
    return counts[:, 1] / counts.sum(axis=1)


def test_shares_of_bins_above_thresholds_and_mixtures_of_them():
    rule = RandomizedThresholds(np.array([[EDGES[3], np.inf], [-np.inf, 0.0]]), np.array([[0.5, 0.5], [1.0, 0.0]]))
    shares = accepted(rule)
    assert shares[0, :4].tolist() == [0.0] * 4 and shares[0, 4:].tolist() == [0.5] * (N_BINS - 4)
    assert (shares[1] == 1).all()


@pytest.mark.parametrize("tolerance", [0.0, 0.1, 0.5])
def test_the_program_meets_the_tolerance_and_not_less(tolerance):
    curves = curves_of([bell(-1, 4000), bell(1, 2000), bell(0, 10)], DemographicParity(tolerance))
    rule = curves.best_rule(PLAIN, CODES, in_bins=False)
    low, high = rates_under(curves, rule)
    assert high - low == pytest.approx(tolerance, abs=1e-3)
    assert rule.thresholds[2].tolist() == [0.0], "people of no group keep the model's own threshold"


def test_the_larger_group_moves_less():
    """At the optimum thresholds differ from 1/2, in probability, by one over the size of the group."""
    curves = curves_of([bell(-1, 9000), bell(1, 1000), bell(0, 10)], DemographicParity())
    rule = curves.best_rule(PLAIN, CODES, in_bins=False)
    away = 1 / (1 + np.exp(-rule.thresholds[:2, 0])) - 0.5
    assert away[0] < 0 < away[1]
    assert 9000 * away[0] + 1000 * away[1] == pytest.approx(0, abs=200)


def test_a_bin_that_is_decided_in_part_is_cut_or_randomized():
    curves = curves_of([bell(-1, 4000), bell(1, 2000), bell(0, 10)], DemographicParity())
    cut, lot = (curves.best_rule(PLAIN, CODES, in_bins=in_bins) for in_bins in (False, True))
    assert not cut.is_random and lot.is_random
    assert rates_under(curves, cut) == pytest.approx(rates_under(curves, lot), abs=1e-6)


def test_a_group_too_small_to_speak_of_keeps_the_models_decisions():
    bins = [bell(-1, 4000), bell(1, 30), bell(0, 10)]
    told, untold = (
        curves_of(bins, DemographicParity(), noise).best_rule(PLAIN, CODES, in_bins=False) for noise in (1.0, 50.0)
    )
    assert told.thresholds[1, 0] != 0
    assert untold.thresholds[:2, 0] == pytest.approx(0.0, abs=0.2)


def test_bounds_that_exclude_each_other_are_broken_at_a_price_not_refused():
    bounds = constrain([FalseNegativeRateCap(0.01), FalsePositiveRateCap(0.01)], PEOPLE)
    fine = np.arange(6)
    curves = ScoreCurves(np.array([bell(0, 500)] * 6), 0.0, fine // 2, bounds.cells.ravel()[fine], bounds, 1.0, 0.0)
    rule = curves.best_rule(PLAIN, CODES, in_bins=False)
    assert np.isfinite(rule.weights).all() and rule.weights.sum(axis=1) == pytest.approx(1.0)


@settings(max_examples=40)
@given(arrays(float, (3, N_BINS), elements=st.floats(1e-3, 1e5)), st.floats(0, 1))
def test_any_curves_give_a_proper_rule(bins, tolerance):
    rule = curves_of(bins, DemographicParity(tolerance)).best_rule(PLAIN, CODES, in_bins=False)
    assert rule.weights.min() >= 0 and rule.weights.sum(axis=1) == pytest.approx(1.0)
    assert not np.isnan(rule.thresholds).any()


@settings(max_examples=20)
@given(arrays(float, (2, N_BINS), elements=st.floats(0.1, 1e3)))
def test_renaming_the_groups_changes_nothing(bins):
    there = curves_of([*bins, np.ones(N_BINS)], DemographicParity(0.05))
    back = curves_of([*bins[::-1], np.ones(N_BINS)], DemographicParity(0.05))
    one, other = (curves.best_rule(PLAIN, CODES, in_bins=False) for curves in (there, back))
    # several rules may be best, so what must agree is how good they are: correct minus wrong acceptances
    gain = bins * np.tanh((LOWER + UPPER) / 4)
    best, renamed = (np.sum(gain * shares) for shares in (accepted(one)[:2], accepted(other)[1::-1]))
    assert best == pytest.approx(renamed, abs=1e-3 * bins.sum())
    assert np.ptp(rates_under(there, one)) <= 0.05 + 1e-3 and np.ptp(rates_under(back, other)) <= 0.05 + 1e-3
