"""The constants of RaCO-DP's Theorem 5.2 against computation on small problems: which printed ones hold, and ours."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

from fairveil.research.raco_bounds import (
    CURVATURE,
    SLOPE,
    Regularity,
    Setting,
    gaussian_radius,
    printed_sample_error,
    printed_stationarity,
    ratio_error,
    sample_error,
    stationarity,
    stationarity_of,
)


def softmax(z):
    powers = np.exp(z - z.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def hessian_of(p, k):
    """The second derivative of softmax coordinate k by its logits."""
    own = np.eye(len(p))[k] - p
    return p[k] * (np.outer(own, own) - np.diag(p) + np.outer(p, p))


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_slope_and_curvature_of_a_softmax_coordinate(rng, n_classes):
    laws = softmax(rng.normal(size=(3000, n_classes)) * rng.uniform(0, 4, (3000, 1)))
    slopes = [np.linalg.norm(p[0] * (np.eye(n_classes)[0] - p)) for p in laws]
    bends = [np.abs(np.linalg.eigvalsh(hessian_of(p, 0))).max() for p in laws]
    assert max(slopes) <= SLOPE + 1e-12
    assert max(bends) <= CURVATURE
    assert max(bends) > 0.18  # no slack of more than a third


class Toy:
    """Mean logistic loss and two bounds on soft rates of a linear model, with derivatives by differences."""

    def __init__(self, rng, temperature, length, diameter=2.0):
        self.X = rng.normal(size=(60, 2))
        self.X *= length / np.linalg.norm(self.X, axis=1, keepdims=True)
        self.y, self.group, self.tau = rng.integers(0, 2, 60), np.arange(60) % 2, temperature
        self.regularity = Regularity(math.sqrt(2) * length, length**2 / 2, length, 0.0, temperature, 2.0, diameter, 2)

    def value(self, point):
        theta, prices = point[:4].reshape(2, 2), point[4:]
        logits = self.X @ theta.T
        loss = -np.mean(np.log(softmax(logits)[np.arange(60), self.y]))
        rates = softmax(self.tau * logits)[:, 1]
        gap = rates[self.group == 0].mean() - rates[self.group == 1].mean()
        return loss + prices @ [gap, -gap]

    def hessian(self, point, width=1e-4):
        n = len(point)
        steps = width * np.eye(n)
        found = np.zeros((n, n))
        for i, j in product(range(n), repeat=2):
            corners = [self.value(point + a * steps[i] + b * steps[j]) for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
            found[i, j] = (corners[0] - corners[1] - corners[2] + corners[3]) / (4 * width**2)
        return found

    def gradient(self, point, width=1e-6):
        return np.array([(self.value(point + e) - self.value(point - e)) / (2 * width) for e in width * np.eye(4, 6)])

    def points(self, rng, n=25):
        for _ in range(n):
            theta = rng.normal(size=4) * rng.uniform(0, 2 / self.tau)
            yield np.concatenate([theta, rng.permutation([self.regularity.diameter, 0.0])])


@pytest.mark.parametrize("temperature, length", [(1.0, 1.0), (1.0, 4.0), (10.0, 4.0)])
def test_the_lagrangian_is_as_smooth_and_steep_as_we_say(rng, temperature, length):
    toy = Toy(rng, temperature, length)
    own = toy.regularity
    for point in toy.points(rng):
        assert np.linalg.norm(toy.gradient(point)) <= own.lipschitz <= own.printed_lipschitz
        assert np.abs(np.linalg.eigvalsh(toy.hessian(point))).max() <= own.smoothness


def test_the_printed_smoothness_fails_for_a_hot_softmax():
    """One group all alike, the other decided: the bound's own second derivative alone is above the printed constant."""
    length, temperature, price = 20.0, 10.0, 5.0
    own = Regularity(0.0, 0.0, length, 0.0, temperature, 2.0, price, 2)
    t = math.log(2 + math.sqrt(3))  # where the logistic function bends most, by 1 / (6 sqrt 3)
    p = 1 / (1 + math.exp(t))
    bend = p * (1 - p) * abs(1 - 2 * p)
    assert bend == pytest.approx(1 / (6 * math.sqrt(3)))
    true = price * 2 * bend * (temperature * length) ** 2
    assert own.printed_smoothness < true <= own.smoothness


def test_the_printed_gaussian_radius_fails_for_one_parameter():
    """Lemma D.4 allows a failure of rho / 4; ours holds for every number of parameters."""
    failure = 0.0125
    for n in (1, 2, 5, 20, 200):
        assert stats.chi2.sf(gaussian_radius(n, failure) ** 2, n) <= failure
    printed = [stats.chi2.sf(n * math.log(1 / failure), n) for n in (1, 200)]
    assert printed[0] == pytest.approx(0.036, abs=0.001)
    assert printed[1] < failure


def test_the_printed_error_of_a_sample_fails_and_ours_holds(rng):
    """100,000 batches; the share of failures is known within .0021 (3 standard errors)."""
    n_rows, rate, failure = 36_000, 0.0142, 0.05
    errors = np.abs(rng.binomial(n_rows, rate, 100_000) / (rate * n_rows) - 1)
    assert np.mean(errors > printed_sample_error(n_rows, rate, failure)) > failure + 0.02
    assert np.mean(errors > sample_error(n_rows, rate, failure)) <= failure


def test_lemma_c1_holds_where_its_condition_does(rng):
    noise = rng.laplace(size=(2, 50_000, 2)).sum(axis=2)
    for mean in (30.0, 300.0):
        width = ratio_error(mean, 2, 1.0, 0.05)
        errors = np.abs((0.3 * mean + noise[0]) / (mean + noise[1]) - 0.3)
        assert np.mean(errors > width) <= 0.05
    assert ratio_error(10.0, 2, 1.0, 0.05) == math.inf


def descended(problem, n_steps, step, dual_rate, diameter):
    """Exact descent and ascent on min over x of max over 0 <= s <= diameter of f(x) + s g(x): the path of x."""
    x, s, path = problem["start"], 0.0, []
    for _ in range(n_steps):
        path.append(x)
        slope = problem["df"](x) + s * problem["dg"](x)
        x, s = x - step * slope, min(max(s + dual_rate * problem["g"](x), 0.0), diameter)
    return np.array(path)


def test_an_iterate_is_as_stationary_as_the_corrected_bound_says():
    """f = (1 - cos x) and g = sin x - .2, whose envelope's gradient is computed by minimization on a grid."""
    diameter, n_steps, tiny = 1.0, 400, 1e-3
    problem = {
        "start": 2.0, "f": lambda x: 1 - np.cos(x), "df": np.sin,
        "g": lambda x: np.sin(x) - 0.2, "dg": np.cos,
    }  # fmt: skip
    lipschitz, smoothness = 1 + diameter, 1 + diameter + 1.0  # |A| + |B|
    grid = np.linspace(-4, 4, 8001)
    phi = problem["f"](grid) + diameter * np.maximum(problem["g"](grid), 0)

    def envelope(x):
        values = phi + smoothness * (grid - x) ** 2
        return values.min(), 2 * smoothness * abs(x - grid[values.argmin()])

    gap = envelope(2.0)[0] - phi.min()
    step = math.sqrt(gap / (2 * n_steps * smoothness * lipschitz**2))
    rate = step * lipschitz**2 / tiny**2
    path = descended(problem, n_steps, step, rate, diameter)
    least = min(envelope(x)[1] for x in path)
    bound = stationarity(lipschitz, smoothness, diameter, n_steps, (0.0, tiny), gap, 2.0, rate)
    assert least <= bound


def test_the_sum_of_the_proof_is_what_the_function_adds_up():
    """With M steps in each block, in plain numbers; the printed line has half the primal error's weight."""
    found = stationarity(2.0, 3.0, 1.5, 10_000, (0.4, 0.1), 1.2, 0.7, dual_rate=5.0)
    step = math.sqrt(1.2 / (2 * 10_000 * 3.0 * (4 + 0.16)))
    drift = step * 2 * 2.4
    lag = min(drift * m + 1.5**2 / (5.0 * m) for m in range(1, 400)) + 2 * 1.5 * 0.1 + 0.7 / 10_000
    expected = 4 * 1.2 / (step * 10_000) + 8 * 3 * step * 4.16 + 8 * 0.16 + 8 * 3 * lag
    assert found == pytest.approx(math.sqrt(expected), rel=1e-3)
    zero = [one(2.0, 3.0, 1.5, 10**12, (0.4, 0.0 + 1e-12), 1e-9, 0.0) for one in (printed_stationarity, stationarity)]
    assert zero[0] == pytest.approx(0.8, rel=1e-2)
    assert zero[1] == pytest.approx(0.4 * math.sqrt(8), rel=1e-2)


def test_the_printed_dual_rate_leaves_a_square_root():
    """Without primal error and start: at the printed rate the lag is about 2 diameter sqrt(tau_lambda)."""
    lipschitz, smoothness, diameter, n_steps, dual, gap = 1.0, 1.0, 1.0, 10**8, 1e-4, 1.0
    step = math.sqrt(gap / (2 * n_steps * smoothness))
    printed_rate = step * lipschitz**2 / dual
    errors = (0.0, dual)
    ours = stationarity(lipschitz, smoothness, diameter, n_steps, errors, gap, 0.0)
    at_printed = stationarity(lipschitz, smoothness, diameter, n_steps, errors, gap, 0.0, printed_rate)
    assert at_printed**2 - ours**2 > 8 * 1.9 * math.sqrt(dual) - 8 * 2.5 * dual
    assert printed_stationarity(lipschitz, smoothness, diameter, n_steps, errors, gap, 0.0) < at_printed


ADULT = Setting(Regularity(5.48, 7.5, 3.88, 0.0, 1.0, 2.0, 1.0, 4), 11_021, 33_917, 206, 2, 512 / 33_917, 1.0, 1e-5)
"""Logistic regression on Adult: 14 columns of 0 and 1 and an intercept, two groups, batches of 512."""


def test_the_theorem_says_nothing_at_the_papers_settings():
    assert not ADULT.holds
    assert ADULT.needed_rows > 100 * ADULT.smallest
    printed, proved = stationarity_of(ADULT, 1.0, 1.0)
    assert printed > 10
    assert proved > 10
    assert ADULT.dual_error > 1  # a difference of two rates is at most 1


def test_more_people_make_it_say_something_in_the_end():
    whole = replace(ADULT, sampling_rate=1.0)
    found = [
        stationarity_of(replace(whole, smallest=n, n_rows=3 * n), 1.0, 1.0)[1] for n in (10**6, 10**9, 10**12, 10**16)
    ]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 1
    assert replace(whole, smallest=10**12, n_rows=3 * 10**12).holds


def test_steps_and_noise_are_those_of_the_appendix():
    assert ADULT.n_steps == math.floor(min((11_021 / math.sqrt(206)) ** (4 / 3), 11_021 / 2))
    logs = math.sqrt(ADULT.n_steps) * math.log(ADULT.n_steps / 1e-5)
    assert ADULT.gradient_noise == pytest.approx((5.48 + 2 * 3.88) * logs / 11_021)
    assert ADULT.histogram_noise == pytest.approx(512 / 33_917 * logs)
    assert ADULT.primal_error > ADULT.dual_error
