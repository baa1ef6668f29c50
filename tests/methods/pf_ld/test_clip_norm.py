"""What a clip norm costs: bounds against simulated errors (PF-LD, Theorems 4 and 5), convexity, the minimiser."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairveil.errors import InvalidParameterError
from fairveil.methods.pf_ld.group_gradients import Tails, best_clip_norm, gradient_error
from fairveil.research.paper_bounds import violation_error

N_DRAWS = 400
CASES = {
    "seed": st.integers(0, 2**32 - 1),
    "n_groups": st.integers(1, 4),
    "n_params": st.integers(1, 8),
    "n_edges": st.integers(1, 12),
}


def gradients_of(rng, n_groups, n_params):
    """Some gradients of each group, short and long, and the weight of each group's mean."""
    sizes = rng.integers(1, 40, n_groups)
    groups = [rng.exponential(size=(n, 1)) * rng.normal(rng.normal(), 1, (n, n_params)) for n in sizes.tolist()]
    return groups, rng.normal(size=n_groups)


def tails_of(groups, n_edges):
    """The true tails on a grid up to the longest gradient."""
    lengths = [np.linalg.norm(one, axis=1) for one in groups]
    edges = np.linspace(0, max(one.max() for one in lengths) * (1 + 1e-9), n_edges + 1)[1:]
    counts = np.array([np.bincount(np.searchsorted(edges, one), minlength=n_edges + 1) for one in lengths])
    return Tails.from_counts(edges, counts.astype(float)), lengths


def clipped(gradients, clip_norm):
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    return gradients * np.minimum(1.0, clip_norm / np.maximum(lengths, 1e-300))


def weighted_mean(groups, multipliers):
    return sum(weight * one.mean(axis=0) for weight, one in zip(multipliers, groups, strict=True))


# --- Theorem 4 -------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(**CASES, share=st.floats(0.01, 1.5), noise=st.floats(0, 2))
def test_no_simulated_error_of_the_gradient_is_above_the_bound(seed, n_groups, n_params, n_edges, share, noise):
    """A mean of 400 draws may be above its expectation by six of its standard errors, which nobody will see."""
    rng = np.random.default_rng(seed)
    groups, multipliers = gradients_of(rng, n_groups, n_params)
    tails, _ = tails_of(groups, n_edges)
    clip_norm = share * float(tails.edges[-1])
    bias = weighted_mean([clipped(one, clip_norm) for one in groups], multipliers) - weighted_mean(groups, multipliers)
    errors = np.linalg.norm(bias + noise * clip_norm * rng.standard_normal((N_DRAWS, n_params)), axis=1)
    bound = gradient_error(clip_norm, tails, multipliers, noise, n_params)
    assert errors.mean() <= bound + 6 * errors.std() / math.sqrt(N_DRAWS) + 1e-9


def test_the_bound_is_reached(rng):
    """By clipping alone where gradients point one way, by noise alone where there are many parameters."""
    lengths = rng.uniform(0, 1, 500)
    alike = lengths[:, None] * np.array([[0.6, 0.8]])
    tails, _ = tails_of([alike], 2000)
    error = np.linalg.norm((alike - clipped(alike, 0.4)).mean(axis=0))
    assert error <= gradient_error(0.4, tails, np.ones(1), 0.0, 2) <= 1.01 * error
    noise = np.linalg.norm(0.3 * 2.0 * rng.standard_normal((N_DRAWS, 1000)), axis=1).mean()
    assert noise == pytest.approx(gradient_error(2.0, tails, np.ones(1), 0.3, 1000), rel=0.01)


@settings(max_examples=40)
@given(**CASES, clip=st.floats(0, 3))
def test_the_mean_excess_is_never_too_small_and_falls_with_a_finer_grid(seed, n_groups, n_params, n_edges, clip):
    groups, _ = gradients_of(np.random.default_rng(seed), n_groups, n_params)
    coarse, lengths = tails_of(groups, n_edges)
    fine, _ = tails_of(groups, 7 * n_edges)
    true = np.array([np.maximum(0.0, one - clip).mean() for one in lengths])
    assert (true <= fine.excess(clip) + 1e-9).all()
    assert (fine.excess(clip) <= coarse.excess(clip) + 1e-9).all()
    assert (fine.excess(clip) <= true + fine.edges[0] + 1e-9).all()  # by one step of the grid at most


# --- the minimiser ---------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(**CASES, noise=st.floats(0, 2))
def test_the_bound_is_convex_in_the_clip_norm(seed, n_groups, n_params, n_edges, noise):
    groups, multipliers = gradients_of(np.random.default_rng(seed), n_groups, n_params)
    tails, _ = tails_of(groups, n_edges)
    norms = np.linspace(0, 1.3 * tails.edges[-1], 200)
    errors = np.array([gradient_error(one, tails, multipliers, noise, n_params) for one in norms])
    assert (np.diff(errors, 2) >= -1e-9 * (1 + errors.max())).all()


@settings(max_examples=40)
@given(**CASES, noise=st.floats(1e-3, 2))
def test_the_minimiser_is_a_quantile_of_lengths(seed, n_groups, n_params, n_edges, noise):
    """No clip norm is better; noise is worth as much as the weighted share of gradients that are longer."""
    groups, multipliers = gradients_of(np.random.default_rng(seed), n_groups, n_params)
    tails, _ = tails_of(groups, n_edges)
    best = best_clip_norm(tails, multipliers, noise, n_params)
    least = gradient_error(best, tails, multipliers, noise, n_params)
    for norm in np.linspace(tails.edges[0], 1.3 * tails.edges[-1], 200):
        assert least <= gradient_error(norm, tails, multipliers, noise, n_params) + 1e-9
    place = int(np.searchsorted(tails.edges, best))
    price = math.sqrt(n_params) * noise
    if place + 1 < len(tails.edges):
        assert np.abs(multipliers) @ tails.above[:, place] <= price + 1e-9
    if place > 0:
        assert np.abs(multipliers) @ tails.above[:, place - 1] >= price - 1e-9


def test_more_noise_never_asks_for_a_larger_clip_norm(rng):
    groups, multipliers = gradients_of(rng, 3, 5)
    tails, _ = tails_of(groups, 25)
    best = [best_clip_norm(tails, multipliers, noise, 5) for noise in np.geomspace(1e-4, 1e2, 30)]
    assert (np.diff(best) <= 0).all()
    assert best[0] > 0.5 * tails.edges[-1]
    assert best[-1] == tails.edges[0]


# --- Theorem 5 -------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 60), bound=st.floats(0.01, 3), noise=st.floats(0, 3))
def test_no_simulated_error_of_a_violation_is_above_the_bound(seed, n, bound, noise):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n)
    everyone = rng.normal()
    excess = float(np.maximum(0.0, np.abs(scores) - bound).mean())
    true = abs(everyone - scores.mean())
    noisy = abs(everyone - np.clip(scores, -bound, bound).mean()) + noise * bound / n * rng.standard_normal(2000)
    errors = np.abs(true - noisy)
    assert errors.mean() <= violation_error(bound, excess, noise, n) + 6 * errors.std() / math.sqrt(2000) + 1e-9


def test_the_mean_of_noise_alone_is_exact(rng):
    """The mean of a normal number without its sign: sqrt(2/pi) of the deviation."""
    errors = np.abs(2.0 * 0.5 / 10 * rng.standard_normal(100_000))
    assert errors.mean() == pytest.approx(violation_error(0.5, 0.0, 2.0, 10), rel=0.02)


# --- noisy counts ----------------------------------------------------------------------------------------------------


def test_tails_of_noisy_counts_fall_from_1_to_0(rng):
    edges = np.linspace(0.1, 1, 10)
    for scale in (1.0, 30.0, 1e4):
        tails = Tails.from_counts(edges, 20 + scale * rng.normal(size=(3, 11)))
        assert ((tails.above >= 0) & (tails.above <= 1)).all()
        assert (np.diff(tails.above, axis=1) <= 0).all()
        assert np.isfinite(best_clip_norm(tails, np.ones(3), 0.1, 5))
    exact = Tails.from_counts(edges[:2], np.array([[5.0, 3.0, 2.0], [0.0, 0.0, 0.0]]))
    assert exact.above.tolist() == [[0.5, 0.2], [0.0, 0.0]]  # a group of nobody has no long gradients


def test_counts_and_edges_must_fit():
    with pytest.raises(InvalidParameterError, match="one count more than the 3 edges"):
        Tails.from_counts(np.arange(1.0, 4.0), np.ones((2, 3)))
