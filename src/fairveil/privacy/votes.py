"""What the printed form of PF-LD (Tran et al. 2021) asks about people: the mean of h in each group, and its gradient.

In demographic parity and equalized odds h is the model's score, in accuracy parity its loss cut at C_d. Both are made a
vector of votes, one number for each class, all at least 0 and 1 together: the scores themselves, or 1 - l for the own
label and l for the others, where l = min(loss, C_d) / C_d. The positive rate of scores is their mean h, and the error
rate of votes by loss is the mean of h / C_d. One record's votes have a norm of at most 1, whatever its row is.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array
from fairveil.models.base import ignore_float_warnings
from fairveil.models.losses import cross_entropy_pull, soft_decision_pull, softmax
from fairveil.models.row_stable import row_stable_logits
from fairveil.privacy.queries import DecisionPrice, OfModel, Values, row_function
from fairveil.privacy.records import Rows

PRINTED_SHARPNESS = 1.0
"""Scores are softmax(logits) as they are."""


@ignore_float_warnings
def label_losses(logits: NDArray[np.floating], y: NDArray[np.integer]) -> NDArray[np.floating]:
    """Return the cross entropy of every row's label, shape (n_rows,); each from its own column (n_classes, n_rows).

    Examples
    --------
    >>> label_losses(np.array([[0.0, 0.0], [0.0, 100.0]]), np.array([1, 0])).round(3).tolist()
    [0.693, 100.0]
    """
    above = logits - np.take_along_axis(logits, y[None].astype(np.int64), axis=0)
    largest = above.max(axis=0)
    total = np.zeros_like(largest)
    for one in above:  # one class after the other, so that no sum depends on a row's place
        total += np.exp(one - largest)
    found: NDArray[np.floating] = largest + np.log(total)
    return found


@ignore_float_warnings
def votes_of(logits: NDArray[np.floating], y: NDArray[np.integer], loss_bound: float | None) -> NDArray[np.floating]:
    """Return the votes of every row, shape (n_classes, n_rows): by its scores, or by its loss cut at `loss_bound`.

    Examples
    --------
    >>> votes_of(np.array([[0.0, 0.0], [0.0, 100.0]]), np.array([1, 0]), 5.0).round(3).tolist()
    [[0.139, 0.0], [0.861, 1.0]]
    """
    if loss_bound is None:
        return softmax(logits.astype(np.float64))
    cut = np.minimum(label_losses(logits, y), loss_bound) / loss_bound
    is_own = np.arange(len(logits))[:, None] == y
    return np.where(is_own, 1 - cut, cut / (len(logits) - 1))


@ignore_float_warnings
def vote_pull(
    logits: Float32Array, y: NDArray[np.integer], tilts: Float32Array, loss_bound: float | None
) -> Float32Array:
    """Return the derivative by the logits (n_classes, n_rows) of `sum_k tilt_k vote_k`, for tilts of that shape."""
    if loss_bound is None:
        return soft_decision_pull(logits, tilts, PRINTED_SHARPNESS)
    own = np.take_along_axis(tilts, y[None].astype(np.int64), axis=0)[0]
    others = (tilts.sum(axis=0) - own) / (len(logits) - 1)
    slopes = (others - own) / np.float32(loss_bound) * (label_losses(logits, y) < loss_bound)
    return cross_entropy_pull(softmax(logits), y) * slopes


@row_function
class Votes(Values, OfModel):
    """The votes of a row, the same whatever its group; logits depend on their own row alone."""

    depends_on_group: ClassVar[bool] = False

    loss_bound: float | None = None

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        """Return the votes, shape (n_classes, n_rows)."""
        logits = row_stable_logits(self.model, self.params, rows.inputs_of(self.model))
        return votes_of(logits, rows.y, self.loss_bound)


@row_function
class VotePrice(DecisionPrice):
    """The price of each row's votes alone: `pull` (n_groups x n_labels, n_classes), 0 for no group."""

    loss_bound: float | None = None

    def dlogits(self, logits: Float32Array, rows: Rows) -> Float32Array:
        """Return the derivative of the price by the logits."""
        tilts = self.pull.T.take(rows.joint(self.pull.shape[1]), axis=1, mode="wrap") * (rows.groups >= 0)
        return vote_pull(logits, rows.y, tilts, self.loss_bound)
