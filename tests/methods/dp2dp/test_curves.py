"""Curves behind noisy counts: exact without noise, positive always, and better than the counts they are made of."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fairveil.methods.dp2dp.thresholds import Observation, smooth_curve

PLACES = np.linspace(-4, 4, 66)
BELL = 3000 * np.exp(-((PLACES - 1) ** 2) / 4) / np.exp(-((PLACES - 1) ** 2) / 4).sum()


def test_without_noise_a_curve_is_its_counts():
    assert smooth_curve([Observation(np.eye(66), BELL, 0.0)]) == pytest.approx(BELL, abs=0.6)


def test_a_peak_is_not_flattened_when_counts_show_it():
    """Scores of a tree: all people in two bins, noise of 20 on each."""
    peaks = np.zeros(66)
    peaks[[20, 45]] = 1500
    noisy = peaks + 20 * np.random.default_rng(3).normal(size=66)
    above = np.where(np.arange(66) >= 45, 1.0, 0.0)
    told = [
        Observation(np.eye(66), noisy, 20.0),
        Observation(np.stack([1 - above, above]), np.array([1500.0, 1500.0]), 20.0),
    ]
    curve = smooth_curve(told)
    assert above @ curve == pytest.approx(1500, abs=60)
    assert curve[45] > 1000


def test_a_thin_tail_is_nearer_to_the_truth_than_the_histograms(rng):
    """107 people in six bins, noise of 40 each: in 80 draws the mean error falls from about 74 (66 cut at 0) to 44."""
    above = (np.arange(66) >= 60).astype(float)
    errors = []
    for _ in range(80):
        noisy = BELL + 40 * rng.normal(size=66)
        curve = smooth_curve([Observation(np.eye(66), noisy, 40.0)])
        errors.append([above @ told - above @ BELL for told in (noisy, np.maximum(noisy, 0), curve)])
    plain, cut, smooth = np.abs(errors).mean(axis=0)
    assert smooth < 0.8 * plain
    assert smooth < 0.9 * cut


def test_a_precise_count_outweighs_a_blurred_histogram(rng):
    above = (np.arange(66) >= 40).astype(float)
    told = [
        Observation(np.eye(66), BELL + 40 * rng.normal(size=66), 40.0),
        Observation(np.stack([1 - above, above]), np.array([(1 - above) @ BELL, above @ BELL]), 1.0),
    ]
    assert above @ smooth_curve(told) == pytest.approx(above @ BELL, abs=6)


@settings(max_examples=60)
@given(arrays(float, 20, elements=st.floats(-1e6, 1e6)), st.floats(0, 1e4))
def test_any_counts_give_a_finite_positive_curve(values, noise):
    curve = smooth_curve([Observation(np.eye(20), values, noise)])
    assert np.isfinite(curve).all() and (curve > 0).all()
