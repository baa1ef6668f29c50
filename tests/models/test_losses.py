"""Is the class-major softmax the softmax, and its pull the slope of the cross entropy?"""

import numpy as np
import pytest
from scipy import special

from fairveil.models import cross_entropy_pull, softmax


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
