"""The dual ascent that all methods share: integral and gain, projection, slack, brake, decay, smoothing, aims."""

import math

import numpy as np
import pytest

from fairveil.fairness.rates import aims_below, minimum_size
from fairveil.training.multipliers import DualAscent, SmoothedCounts


def after(ascent, excesses, **choices):
    """All multipliers on the way."""
    now, course = ascent.start(len(excesses[0])), []
    for excess in excesses:
        now = ascent.step(now, np.asarray(excess, float), **choices)
        course.append(now.values)
    return np.array(course)


def test_a_multiplier_is_the_sum_of_past_excesses_plus_a_share_of_the_last():
    excesses = [[0.2, 0.1], [0.4, 0.1], [0.1, 0.1]]
    course = after(DualAscent(rate=0.5, gain=2.0), excesses)
    sums = 0.5 * np.cumsum(excesses, axis=0)
    np.testing.assert_allclose(course, sums + 2.0 * np.array(excesses))


def test_speeds_and_gain_speeds_are_factors_of_each_bound():
    course = after(DualAscent(rate=0.5, gain=2.0), [[0.2, 0.2]], speeds=np.array([1, 3]), gain_speeds=np.array([0, 1]))
    np.testing.assert_allclose(course, [[0.1, 0.7]])


@pytest.mark.parametrize("is_signed, low", [(False, 0.0), (True, -1.5)])
def test_multipliers_and_their_integral_are_projected(is_signed, low):
    ascent = DualAscent(rate=1.0, gain=1.0, cap=1.5, is_signed=is_signed)
    course = after(ascent, [[1.0, -1.0]] * 5 + [[-1.0, 1.0]])
    np.testing.assert_allclose(course[4], [1.5, low])
    # the integral did not grow beyond the cap, so that it answers at once
    np.testing.assert_allclose(course[5], [max(1.5 - 2, low), min(low + 2, 1.5)])


def test_a_cap_for_each_bound_replaces_the_common_one():
    course = after(DualAscent(rate=1.0, cap=0.1), [[1.0, 1.0]], caps=np.array([np.inf, 0.0]))
    np.testing.assert_allclose(course, [[1.0, 0.0]])


def test_rates_decay_from_the_first_step_on():
    course = after(DualAscent(rate=2.0, decay=0.5), [[1.0]] * 3)
    np.testing.assert_allclose(course[:, 0], 2 * np.cumsum([1, 1 / math.sqrt(2), 1 / math.sqrt(3)]))


def test_excesses_within_the_slack_count_as_zero_on_both_sides():
    course = after(DualAscent(rate=1.0, is_signed=True, slack=0.1), [[0.05, 0.3, -0.05, -0.3]])
    np.testing.assert_allclose(course, [[0.0, 0.2, 0.0, -0.2]])


def test_a_bound_that_swings_beyond_its_noise_is_braked_from_then_on():
    ascent, swings = DualAscent(rate=1.0, is_signed=True, brake=0.5), [[0.4], [-0.4], [0.4]]
    np.testing.assert_allclose(after(ascent, swings, errors=0.1)[:, 0], [0.4, 0.2, 0.3])
    np.testing.assert_allclose(after(ascent, swings, errors=0.3)[:, 0], [0.4, 0.0, 0.4])  # may be noise
    steady = [[0.4], [0.4], [0.4]]
    np.testing.assert_allclose(after(ascent, steady, errors=0.1)[:, 0], [0.4, 0.8, 1.2])


def test_multipliers_rest_during_the_warm_up():
    course = after(DualAscent(rate=1.0, gain=1.0, warm_up=2.5), [[1.0]] * 5)
    np.testing.assert_allclose(course[:, 0], [0, 0, 0, 2, 3])


def test_nothing_that_is_handed_in_is_changed():
    ascent, excess = DualAscent(rate=1.0, gain=1.0, brake=0.5, slack=0.01), np.array([0.3, -0.3])
    first = ascent.step(ascent.start(2), excess)
    before = [np.array(numbers) for numbers in first]
    ascent.step(first, -excess, errors=np.zeros(2))
    assert excess.tolist() == [0.3, -0.3]
    assert all(np.array_equal(numbers, copy) for numbers, copy in zip(first, before, strict=True))


def test_smoothed_counts_are_a_weighted_mean_with_known_noise(rng):
    counts, smoothed = rng.normal(0, 1, (7, 3)), SmoothedCounts(np.zeros(3))
    for one in counts:
        smoothed = smoothed.add(one, 0.8)
    weights = 0.8 ** np.arange(7)[::-1]
    np.testing.assert_allclose(smoothed.total / smoothed.weight, weights @ counts / weights.sum())
    assert smoothed.squares / smoothed.weight**2 == pytest.approx((weights**2).sum() / weights.sum() ** 2)


def test_aims_stay_below_limits_by_a_margin_but_by_at_most_a_share():
    limits, margins = np.array([0.1, 0.1, 0.0, -0.8]), np.array([0.02, 0.3, 0.3, 0.02])
    np.testing.assert_allclose(aims_below(limits, np.zeros(4)), limits)
    np.testing.assert_allclose(aims_below(limits, margins), [0.08, 0.05, 0.0, -0.82])
    np.testing.assert_allclose(aims_below(limits, margins, 0.75), [0.08, 0.025, 0.0, -0.82])


def test_the_smallest_divisor_is_a_thousandth_and_at_least_one():
    assert (minimum_size(5000.0), minimum_size(10.0)) == (5.0, 1.0)
