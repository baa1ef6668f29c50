"""Statistics of a comparison, against scipy and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fairveil.bench.analysis import (
    accuracy_at,
    dominated_area,
    holm,
    jackknife,
    mean_of,
    paired_t,
    pareto,
    wilcoxon,
)

FRACTIONS = st.floats(0, 1, allow_nan=False).map(lambda one: round(one, 3))
POINTS = st.lists(st.tuples(FRACTIONS, FRACTIONS), min_size=1, max_size=12)


def test_the_interval_of_a_mean_is_that_of_student(rng):
    values = rng.normal(size=7)
    found = mean_of(values.tolist())
    low, high = stats.t.interval(0.95, 6, values.mean(), stats.sem(values))
    assert (found.value, found.low, found.high) == pytest.approx((values.mean(), low, high))


def test_one_seed_has_no_interval():
    assert mean_of([0.5]).to_dict() == {"value": 0.5, "low": None, "high": None}
    assert jackknife(lambda seeds: 1.0, 0).value is None


def test_a_statistic_that_is_unknown_without_a_seed_has_no_interval():
    found = jackknife(lambda seeds: None if len(seeds) < 3 else 1.0, 3)
    assert (found.value, found.low) == (1.0, None)


def test_the_jackknife_of_a_ratio_by_hand():
    top, below = np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 4.0])
    found = jackknife(lambda seeds: float(top[seeds].sum() / below[seeds].sum()), 3)
    without = np.array([5 / 6, 4 / 6, 3 / 4])
    error = np.sqrt(2 / 3 * np.sum((without - without.mean()) ** 2))
    half = stats.t.ppf(0.975, 2) * error
    assert (found.value, found.low, found.high) == pytest.approx((0.75, 0.75 - half, 0.75 + half))


@given(POINTS)
def test_no_point_of_a_frontier_is_surpassed(points):
    gaps, accuracies = zip(*points, strict=True)
    best = pareto(gaps, accuracies)
    for place, (gap, accuracy) in enumerate(points):
        better = [
            (gaps[one], accuracies[one])
            for one in range(len(points))
            if gaps[one] <= gap and accuracies[one] >= accuracy and (gaps[one], accuracies[one]) != (gap, accuracy)
        ]
        if place in best:
            assert not better
        else:
            assert better or (gap, accuracy) in [(gaps[one], accuracies[one]) for one in best]


@given(POINTS, FRACTIONS)
def test_the_area_is_the_integral_of_the_best_accuracy(points, reference):
    gaps, accuracies = zip(*points, strict=True)
    places = (np.arange(1000) + 0.5) / 1000 * 0.5  # all gaps are multiples of 0.001, so the sum is exact
    heights = [max((accuracy_at(gaps, accuracies, limit) or 0.0) - reference, 0.0) for limit in places]
    assert dominated_area(gaps, accuracies, 0.5, reference) == pytest.approx(np.mean(heights), abs=1e-9)


def test_an_area_by_hand():
    # from .05 on .10 above the reference, from .10 on .15; the point at .3 does not count
    area = dominated_area([0.1, 0.05, 0.3], [0.85, 0.8, 0.9], 0.2, 0.7)
    assert area == pytest.approx((0.05 * 0.10 + 0.10 * 0.15) / 0.2)
    assert dominated_area([0.0], [0.6], 0.2, 0.7) == 0.0


def test_the_best_accuracy_at_a_gap():
    assert accuracy_at([0.1, 0.05, 0.2], [0.8, 0.7, 0.9], 0.1) == 0.8
    assert accuracy_at([0.1], [0.8], 0.05) is None


def test_the_plain_paired_test_is_that_of_scipy(rng):
    one, other = rng.normal(size=9), rng.normal(size=9)
    found, expected = paired_t((one - other).tolist()), stats.ttest_rel(one, other)
    interval = expected.confidence_interval()
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.difference.low, found.difference.high) == pytest.approx((interval.low, interval.high))


def test_the_correction_for_shared_rows_by_hand():
    differences = [0.01, 0.02, 0.03]
    # t = mean / (deviation * sqrt(1/3 + 1/3)); the deviation is .01
    expected = 2 * stats.t.sf(0.02 / (0.01 * np.sqrt(2 / 3)), 2)
    assert paired_t(differences, 1 / 3).p == pytest.approx(expected)
    assert paired_t(differences, 1 / 3).p > paired_t(differences).p


def test_differences_that_never_vary():
    assert paired_t([0.0, 0.0]).p == 1.0
    assert paired_t([0.1, 0.1, 0.1]).p == pytest.approx(0.0, abs=1e-12)
    assert paired_t([0.1]).p is None and paired_t([]).difference.value is None


def test_signed_ranks_are_those_of_scipy(rng):
    differences = rng.normal(0.3, size=8)
    assert wilcoxon(differences.tolist()).p == pytest.approx(stats.wilcoxon(differences).pvalue)
    assert wilcoxon([0.0, 0.0]).p == 1.0
    assert wilcoxon([0.1]).p is None


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []
