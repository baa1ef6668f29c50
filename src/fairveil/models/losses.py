"""Class-major softmax and the pull of the cross entropy on the logits."""

import numpy as np
from numpy.typing import NDArray

from fairveil.models.protocol import Array, quiet

__all__ = ["cross_entropy_pull", "logits_pull", "softmax"]

_FEW = 8


@quiet
def softmax(logits: Array) -> Array:
    """Return the probabilities (K, B) of class-major logits, stable for logits of any finite size.

    Examples
    --------
    >>> softmax(np.array([[0.0, 1000.0], [0.0, 0.0]], dtype=np.float32)).tolist()
    [[0.5, 1.0], [0.5, 0.0]]
    """
    if len(logits) == 2:
        # p_k = 1 / (1 + exp(z_other - z_k)): an overflow to infinity gives the right limit, 0.
        odds = logits[::-1] - logits
        np.exp(odds, out=odds)
        odds += 1
        return np.reciprocal(odds, out=odds)
    powers = logits - np.maximum.reduce(logits, axis=0)
    np.exp(powers, out=powers)
    powers /= np.add.reduce(powers, axis=0)
    return powers


def cross_entropy_pull(probabilities: Array, y: NDArray[np.integer]) -> Array:
    """Return `dlogits = softmax - onehot(y)` (K, B), written over `probabilities`.

    Examples
    --------
    >>> cross_entropy_pull(np.array([[0.25], [0.75]]), np.array([1])).tolist()
    [[0.25], [-0.25]]
    """
    if len(probabilities) <= _FEW:
        for k in range(len(probabilities)):
            probabilities[k] -= y == k
    else:
        probabilities[y, np.arange(len(y))] -= 1
    return probabilities


def logits_pull(logits: Array, y: NDArray[np.integer]) -> Array:
    """Return `softmax(logits) - onehot(y)` (K, B): the derivative of the cross entropy by the logits.

    Examples
    --------
    >>> logits_pull(np.zeros((2, 1), dtype=np.float32), np.array([1])).tolist()
    [[0.5], [-0.5]]
    """
    if len(logits) != 2:
        return cross_entropy_pull(softmax(logits), y)
    with np.errstate(all="ignore"):
        pulls = np.empty_like(logits)
        # One row is enough for two classes: p_1 - y, and its negative.
        second = np.subtract(logits[0], logits[1], out=pulls[1])
        np.exp(second, out=second)
        second += 1
        np.reciprocal(second, out=second)
        second -= y
        np.negative(second, out=pulls[0])
        return pulls
