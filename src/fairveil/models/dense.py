"""Products of rows with a few classes, class-major, around a trap of BLAS.

With two or three classes a general matrix product wastes most of its width: one matrix-vector product per
class is up to twice as fast, and writes class-major output directly.
"""

import numpy as np

from fairveil.models.protocol import Array

__all__ = ["class_scores", "class_sums"]

_FEW = 3


def class_scores(weights: Array, rows: Array) -> Array:
    """Return `weights @ rows.T`, (K, B) C-contiguous, for weights (K, d) and rows (B, d)."""
    if len(weights) > _FEW:
        return np.ascontiguousarray(weights @ rows.T)
    scores = np.empty((len(weights), len(rows)), dtype=np.result_type(weights, rows))
    for weight, score in zip(weights, scores, strict=True):
        np.matmul(rows, weight, out=score)
    return scores


def class_sums(deltas: Array, rows: Array, out: Array) -> None:
    """Write `deltas @ rows` to `out` (K, d), for deltas (K, B) and rows (B, d)."""
    if len(deltas) > _FEW:
        out[...] = deltas @ rows
        return
    for delta, total in zip(deltas, out, strict=True):
        np.matmul(delta, rows, out=total)
