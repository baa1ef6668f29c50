"""Class-major softmax and the pull of the cross entropy, alone or with a tilt, on the logits."""

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array
from fairveil.models.base import ignore_float_warnings
from fairveil.models.products import HAS_KERNELS, _kernels

_FEW = 8


@ignore_float_warnings
def softmax(logits: Float32Array) -> Float32Array:
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


@ignore_float_warnings
def tempered_softmax(logits: Float32Array, temperature: float) -> Float32Array:
    """Return softmax(temperature x logits), with no overflow on the way.

    Examples
    --------
    >>> tempered_softmax(np.array([[3e38], [0.0], [0.0]], dtype=np.float32), 3.0).tolist()
    [[1.0], [0.0], [0.0]]
    """
    return softmax(np.float32(temperature) * (logits - np.maximum.reduce(logits, axis=0)))


def cross_entropy_pull(probabilities: Float32Array, y: NDArray[np.integer]) -> Float32Array:
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


def _is_compiled(logits: Float32Array, y: NDArray[np.integer]) -> bool:
    """Say whether `two_class_pulls` of the compiled functions takes these."""
    fits = len(logits) == 2 and logits.dtype == np.float32 and y.dtype == np.int16
    return HAS_KERNELS and fits and logits.flags.c_contiguous and y.flags.c_contiguous


def logits_pull(logits: Float32Array, y: NDArray[np.integer]) -> Float32Array:
    """Return `softmax(logits) - onehot(y)` (K, B): the derivative of the cross entropy by the logits.

    Examples
    --------
    >>> logits_pull(np.zeros((2, 1), dtype=np.float32), np.array([1])).tolist()
    [[0.5], [-0.5]]
    """
    if _is_compiled(logits, y):
        pulls = np.empty_like(logits)
        _kernels.two_class_pulls(logits, y, None, None, 1.0, pulls)
        return pulls
    return _plain_pull(logits, y)


@ignore_float_warnings
def _plain_pull(logits: Float32Array, y: NDArray[np.integer]) -> Float32Array:
    if len(logits) != 2:
        return cross_entropy_pull(softmax(logits), y)
    # One row is enough for two classes: p_1 - y, and its negative.
    pulls = np.empty_like(logits)
    second = np.subtract(logits[0], logits[1], out=pulls[1])
    np.exp(second, out=second)
    second += 1
    np.reciprocal(second, out=second)
    second -= y
    np.negative(second, out=pulls[0])
    return pulls


def tilted_pull(
    logits: Float32Array,
    y: NDArray[np.integer],
    tilts: Float32Array,
    rows: NDArray[np.integer],
    temperature: float = 1.0,
) -> Float32Array:
    """Return the derivative by the logits (K, B) of cross entropy plus `sum_k tilt_k softmax(temperature z)_k`.

    `tilts` (T, K) is a table of weights and `rows` says which of its rows each record has; negative ones count from
    the end. The derivative of the second term is `temperature p_k (tilt_k - sum_l p_l tilt_l)`, p tempered.

    Examples
    --------
    >>> tilted_pull(np.zeros((2, 1), dtype=np.float32), np.array([1]), np.array([[0.0, 4.0]]), np.array([0])).tolist()
    [[-0.5], [0.5]]
    """
    if _is_compiled(logits, y):
        pulls, own = np.empty_like(logits), (tilts[:, 1] - tilts[:, 0]).astype(np.float32, copy=False)
        _kernels.two_class_pulls(logits, y, own, rows.astype(np.int64, copy=False), float(temperature), pulls)
        return pulls
    return _plain_tilted_pull(logits, y, tilts, rows, temperature)


@ignore_float_warnings
def _plain_tilted_pull(
    logits: Float32Array,
    y: NDArray[np.integer],
    tilts: Float32Array,
    rows: NDArray[np.integer],
    temperature: float,
) -> Float32Array:
    if len(logits) != 2:
        plain = softmax(logits)
        tempered = plain if temperature == 1 else tempered_softmax(logits, temperature)
        tilt = tilts.T.take(rows, axis=1, mode="wrap")
        tilt -= np.einsum("kb,kb->b", tempered, tilt)
        tilt *= temperature * tempered
        return cross_entropy_pull(plain, y) + tilt
    # One row is enough for two classes: p_1 - y + temperature p_1 p_0 (tilt_1 - tilt_0), and its negative.
    pulls = np.empty_like(logits)
    odds = logits[0] - logits[1]
    second = np.exp(odds, out=pulls[1])
    second += 1
    np.reciprocal(second, out=second)
    tempered = second if temperature == 1 else 1 / (1 + np.exp(temperature * odds))
    slope = tempered * tempered
    np.subtract(tempered, slope, out=slope)
    slope *= (tilts[:, 1] - tilts[:, 0]).take(rows, mode="wrap")
    if temperature != 1:
        slope *= temperature
    second -= y
    second += slope
    np.negative(second, out=pulls[0])
    return pulls


def soft_decision_pull(logits: Float32Array, tilts: Float32Array, sharpness: float) -> Float32Array:
    """Return the derivative by the logits (K, B) of `sum_k tilt_k softmax(sharpness z)_k`, for tilts (K, B)."""
    soft = tempered_softmax(logits, sharpness)
    return sharpness * soft * (tilts - np.einsum("kb,kb->b", soft, tilts))
