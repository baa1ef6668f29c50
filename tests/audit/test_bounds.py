"""Are lower bounds ever above the truth? Coverage by simulation on mechanisms whose epsilon is known exactly.

Bounds are asked for at 90 % confidence, so that a bound that is too high shows: of 300 simulated audits at most 30 may
exceed the truth on average, and 47 would be 3.3 standard deviations more. Each also states its power.
"""

import math

import numpy as np
import pytest
from scipy.stats import binom

from fairveil.accounting.composition import delta_of, epsilon_of
from fairveil.accounting.events import BestOfRuns, Charge, DiscreteLaplaceRelease, GaussianRelease, PoissonSampled
from fairveil.audit.bounds import (
    advantage,
    allowed_excess,
    curve_bound,
    excess,
    free_bound,
    lower_bounds,
    one_run_bound,
    one_run_p_value,
    proportion_above,
    scaled_event,
)
from fairveil.errors import InvalidParameterError

pytestmark = pytest.mark.statistical

N_AUDITS, MOST_ABOVE = 300, 47
DELTA = 1e-5


def gaussian_scores(rng, shift, n_draws):
    return rng.normal(shift, 1, n_draws), rng.normal(0, 1, n_draws)


@pytest.mark.parametrize("delta", [1e-5, 0.02])
def test_bounds_without_assumption_cover_the_truth(delta):
    rng, truth = np.random.default_rng(1), epsilon_of([GaussianRelease(0.7)], delta)
    bounds = [free_bound(*gaussian_scores(rng, 1 / 0.7, 400), delta, alpha=0.1) for _ in range(N_AUDITS)]
    assert sum(bound > truth for bound in bounds) <= MOST_ABOVE
    assert np.median(bounds) > 0.2 * truth


def test_bounds_without_assumption_cover_randomized_response():
    """A pure mechanism: one bit, right with probability e / (1 + e). Its epsilon is 1 at any delta below."""
    rng, right = np.random.default_rng(2), 1 / (1 + math.exp(-1))
    bounds = []
    for _ in range(N_AUDITS):
        one, other = (rng.random(1000) < right).astype(float), (rng.random(1000) >= right).astype(float)
        bounds.append(free_bound(one, other, 0.0, alpha=0.1))
    assert sum(bound > 1 for bound in bounds) <= MOST_ABOVE
    assert np.median(bounds) > 0.6


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_the_advantage_covers_the_total_variation_distance(threshold):
    rng, truth = np.random.default_rng(3), delta_of([GaussianRelease(1.0)], 0.0)
    found = [advantage(*gaussian_scores(rng, 1.0, 200), 0.1, threshold) for _ in range(N_AUDITS)]
    assert sum(one > truth for one in found) <= MOST_ABOVE
    assert np.median(found) > 0.7 * truth


def test_the_excess_covers_the_divergence():
    rng, truth = np.random.default_rng(4), delta_of([GaussianRelease(1.0)], 1.0)
    found = [excess(*gaussian_scores(rng, 1.0, 1000), 1.0, 0.1, threshold=1.5) for _ in range(N_AUDITS)]
    assert sum(one > truth for one in found) <= MOST_ABOVE
    assert np.median(found) > 0.3 * truth


def test_bounds_by_a_curve_cover_the_truth_and_have_power():
    rng, event = np.random.default_rng(5), GaussianRelease(2.0)
    truth = epsilon_of([event], DELTA)
    found = [lower_bounds(*gaussian_scores(rng, 0.5, 500), [event], DELTA, 0.9, 0.25) for _ in range(100)]
    assert sum(one.best > truth for one in found) <= 20  # 10 on average, 3.3 standard deviations more
    assert np.median([one.by_curve for one in found]) > 0.5 * truth
    assert np.median([one.free for one in found]) < 0.3 * truth  # what the shape of the plan is good for


def test_a_curve_at_half_the_noise_is_disproved():
    scores = gaussian_scores(np.random.default_rng(6), 1.0, 2000)
    claim = [GaussianRelease(2.0)]
    assert lower_bounds(*scores, claim, DELTA, 0.999, 0.5).by_curve > epsilon_of(claim, DELTA)


def test_what_a_split_allows_is_the_mean_over_its_parts():
    charges = [Charge(GaussianRelease(1.0), "s", "a"), Charge(GaussianRelease(4.0), "s", "b")]
    apart = [delta_of([GaussianRelease(z)], 0.5) for z in (1.0, 4.0)]
    assert allowed_excess(charges, [0.5])[0] == pytest.approx(apart[0], rel=1e-3)
    mean = allowed_excess(charges, [0.5], {"a": 0.25, "b": 0.75})[0]
    assert mean == pytest.approx(0.25 * apart[0] + 0.75 * apart[1], rel=1e-3)


def test_nothing_shown_is_no_bound():
    assert curve_bound({0.0: 0.0}, [GaussianRelease(1.0)], DELTA) == 0
    assert free_bound(np.zeros(50), np.zeros(50), DELTA) == 0
    assert advantage(np.zeros(50), np.zeros(50), 0.01) == 0


def test_every_kind_of_noise_is_scaled():
    best = BestOfRuns(((PoissonSampled(0.1, GaussianRelease(2.0)), DiscreteLaplaceRelease(3.0)),), 4.0)
    halved = BestOfRuns(((PoissonSampled(0.1, GaussianRelease(1.0)), DiscreteLaplaceRelease(1.5)),), 4.0)
    assert scaled_event(best, 0.5) == halved


def test_too_few_scores_are_refused():
    with pytest.raises(InvalidParameterError, match="two at least"):
        free_bound(np.zeros(1), np.zeros(1), DELTA)
    with pytest.raises(InvalidParameterError, match="right <= guesses"):
        one_run_p_value(10, 11, 3, 1.0, 0.0)


# --- one run ----------------------------------------------------------------------------------------------------------


def test_without_delta_the_p_value_is_that_of_randomized_response():
    truth = math.e / (1 + math.e)
    assert one_run_p_value(500, 100, 80, 1.0, 0.0) == pytest.approx(float(binom.sf(79, 100, truth)))


def test_delta_raises_the_p_value_by_what_it_can_move():
    """By hand: of 2 guesses, both right; delta may make up for one or two wrong ones."""
    p = 0.5
    slope = max(2 * p * (1 - p), (2 * p * (1 - p) + (1 - p) ** 2) / 2)
    assert one_run_p_value(2, 2, 2, 0.0, 0.01) == pytest.approx(p**2 + 2 * 2 * 0.01 * slope)


def one_run(rng, n_canaries, score):
    is_in = rng.random(n_canaries) < 0.5
    return score(is_in), is_in


def test_one_run_covers_randomized_response():
    rng, right = np.random.default_rng(7), 1 / (1 + math.exp(-1))
    bounds = []
    for _ in range(N_AUDITS):
        answers, is_in = one_run(rng, 1000, lambda is_in: np.where(rng.random(1000) < right, is_in, ~is_in))
        bounds.append(one_run_bound(answers.astype(float), is_in, 800, 0.0, 0.9))
    assert sum(bound > 1 for bound in bounds) <= MOST_ABOVE
    assert np.median(bounds) > 0.7


def test_one_run_covers_the_gaussian_mechanism():
    rng, truth = np.random.default_rng(8), epsilon_of([GaussianRelease(0.5)], DELTA)
    bounds = [
        one_run_bound(*one_run(rng, 1000, lambda is_in: is_in + rng.normal(0, 0.5, 1000)), 200, DELTA, 0.9)
        for _ in range(N_AUDITS)
    ]
    assert sum(bound > truth for bound in bounds) == 0
    assert np.median(bounds) > 0.25 * truth


def test_one_run_covers_a_leak_of_probability_delta():
    """With probability delta each canary is simply shown: (0, delta)-private, and no bound above 0 may come of it."""
    rng, delta, bounds = np.random.default_rng(9), 0.02, []
    for _ in range(N_AUDITS):
        scores, is_in = one_run(
            rng, 500, lambda is_in: np.where(rng.random(500) < delta, np.where(is_in, 9.0, -9.0), rng.normal(size=500))
        )
        bounds.append(one_run_bound(scores, is_in, 100, delta, 0.9))
    assert sum(bound > 0 for bound in bounds) <= MOST_ABOVE


def test_a_proportion_is_bounded_as_clopper_and_pearson_do():
    low = proportion_above(7, 20, 0.025)
    assert float(binom.sf(6, 20, low)) == pytest.approx(0.025)
    assert proportion_above(0, 20, 0.025) == 0
