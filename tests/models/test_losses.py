"""Is the class-major softmax the softmax, and its pull the slope of the cross entropy?"""

import numpy as np
import pytest
from scipy import special

from fairveil.models import cross_entropy_pull, softmax
from fairveil.models.losses import logits_pull, tilted_pull


@pytest.mark.parametrize("n_classes", [2, 3, 11])
def test_softmax_equals_scipy_by_column(rng, n_classes):
    logits = (5 * rng.standard_normal((n_classes, 40))).astype(np.float32)
    probabilities = softmax(logits)
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities, special.softmax(logits.astype(np.float64), axis=0), rtol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_softmax_is_stable_and_leaves_its_argument_alone(n_classes):
    logits = np.zeros((n_classes, 4), np.float32)
    logits[0] = [3e38, 1e4, -1e4, 80.0]
    before = logits.copy()
    probabilities = softmax(logits)
    assert np.array_equal(logits, before)
    np.testing.assert_allclose(probabilities.sum(axis=0), 1, rtol=1e-6)
    np.testing.assert_allclose(probabilities[0], [1, 1, 0, 1], atol=1e-6)
    assert probabilities[1, 3] == pytest.approx(np.exp(-80.0), rel=1e-5, abs=0)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_broken_logit_breaks_its_own_record_only(n_classes):
    logits = np.zeros((n_classes, 3), np.float32)
    logits[0, 1] = np.nan
    probabilities = softmax(logits)
    assert np.isnan(probabilities[0, 1])
    np.testing.assert_allclose(probabilities[:, [0, 2]], 1 / n_classes, rtol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3, 8, 9, 30])
@pytest.mark.parametrize("kind", [np.intp, np.int8, np.uint8])
def test_pull_is_probability_minus_one_hot_in_place(rng, n_classes, kind):
    y = rng.integers(0, n_classes, size=50).astype(kind)
    probabilities = softmax(rng.standard_normal((n_classes, 50)).astype(np.float32))
    expected = probabilities - (np.arange(n_classes)[:, None] == y)
    pull = cross_entropy_pull(probabilities, y)
    assert pull is probabilities
    np.testing.assert_allclose(pull, expected, atol=1e-7)


def test_an_empty_batch_stays_empty():
    for n_classes in (2, 3, 9):
        empty = np.empty((n_classes, 0), np.float32)
        assert cross_entropy_pull(softmax(empty), np.empty(0, np.intp)).shape == (n_classes, 0)


# --- with a tilt ----------------------------------------------------------------------------------------------------


def tilted_loss(logits, y, tilts, rows, temperature):
    """Cross entropy plus the tilted soft decision, record by record, in double precision by scipy."""
    entropy = special.logsumexp(logits, axis=0) - logits[y, np.arange(len(y))]
    return entropy + (tilts[rows].T * special.softmax(temperature * logits, axis=0)).sum(axis=0)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_tilted_pull_is_the_slope_of_the_tilted_loss(rng, n_classes, temperature):
    logits = 2 * rng.standard_normal((n_classes, 30))
    y, rows = rng.integers(0, n_classes, 30), rng.integers(-4, 4, 30)
    tilts = 5 * rng.standard_normal((4, n_classes))
    slopes, step = np.empty_like(logits), 1e-5
    for k in range(n_classes):
        sides = [logits.copy(), logits.copy()]
        sides[0][k] -= step
        sides[1][k] += step
        low, high = (tilted_loss(side, y, tilts, rows, temperature) for side in sides)
        slopes[k] = (high - low) / (2 * step)
    pull = tilted_pull(logits.astype(np.float32), y, tilts.astype(np.float32), rows, temperature)
    assert pull.dtype == np.float32
    np.testing.assert_allclose(pull, slopes, atol=2e-5 * 3 * temperature)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_tilted_pull_stays_finite_and_leaves_its_arguments_alone(rng, n_classes, temperature):
    sizes = np.array([1e37, -1e37, 1e4, -1e4, 0.0], np.float32)
    logits = np.arange(n_classes, dtype=np.float32)[:, None] / n_classes * sizes
    tilts = np.full((2, n_classes), 1e6, np.float32) * np.arange(n_classes, dtype=np.float32)
    y, rows = np.array([1, 0, 1, 1, 0]), np.array([0, 1, -1, -2, 0])
    given = (logits, tilts, y, rows)
    before = [array.copy() for array in given]
    pull = tilted_pull(logits, y, tilts, rows, temperature)
    assert np.isfinite(pull).all()
    np.testing.assert_allclose(pull[:, :4].sum(axis=0), 0, atol=1e-5)
    # far from every tie no tilt moves a decision: the pull is that of the loss alone
    np.testing.assert_allclose(pull[:, :4], logits_pull(logits, y)[:, :4], atol=1e-5)
    for array, copy in zip(given, before, strict=True):
        assert np.array_equal(array, copy)


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_without_a_tilt_it_is_the_pull_of_the_cross_entropy(rng, n_classes):
    logits = rng.standard_normal((n_classes, 20)).astype(np.float32)
    y, rows = rng.integers(0, n_classes, 20), np.zeros(20, dtype=int)
    none = np.zeros((1, n_classes), np.float32)
    np.testing.assert_allclose(tilted_pull(logits, y, none, rows, 3.0), logits_pull(logits, y), atol=1e-6)
    # a tilt that is the same for every class moves nothing
    np.testing.assert_allclose(tilted_pull(logits, y, none + 7, rows), logits_pull(logits, y), atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_a_tilt_pushes_its_class_down(rng, n_classes):
    """A step against the pull must lower the soft rate of the class that costs more: a flipped sign would raise it."""
    logits = rng.standard_normal((n_classes, 20)).astype(np.float32)
    tilts = np.zeros((1, n_classes), np.float32)
    tilts[0, -1] = 50.0
    y, rows = rng.integers(0, n_classes, 20), np.zeros(20, dtype=int)
    moved = logits - 0.01 * (tilted_pull(logits, y, tilts, rows) - logits_pull(logits, y))
    assert (softmax(moved)[-1] < softmax(logits)[-1]).all()


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_errata_tempered_softmax_has_a_plus(rng, n_classes):
    """softmax(+tau z) tends to the decision as tau grows; paper 002 prints exp(-tau z), the least likely class."""
    logits = rng.standard_normal((n_classes, 400)).astype(np.float32)
    decisions = np.bincount(logits.argmax(axis=0), minlength=n_classes) / 400
    least_likely = np.bincount(logits.argmin(axis=0), minlength=n_classes) / 400
    soft, as_printed = (softmax(sign * 1e5 * logits).mean(axis=1) for sign in (np.float32(1), np.float32(-1)))
    np.testing.assert_allclose(soft, decisions, atol=1e-3)
    np.testing.assert_allclose(as_printed, least_likely, atol=1e-3)
    assert np.abs(decisions - least_likely).max() > 0.02  # so that the two readings can be told apart
