"""Row functions of penalties on what privacy costs a group, for linear models: DP-ERM mitigation, research/dp_erm.py.

Directions, scales and weights are public fields. A query bounds what a record adds, as for all row functions.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array
from fairveil.models.base import Model
from fairveil.models.losses import logits_pull, softmax
from fairveil.privacy.queries import OfModel, Values, row_function
from fairveil.privacy.records import Rows

STATISTICS_BOUND = math.sqrt(3.0)
"""The largest norm of (a number within [-1, 1], another within [0, 1], 1)."""


@row_function
class GroupStatistics(Values, OfModel):
    """(p - y) . u over `scale`, within [-1, 1]; the uncertainty 1 - sum_k p_k^2; and 1."""

    direction: Float32Array
    scale: float

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        """Return the three numbers of each row, shape (3, n_rows)."""
        logits = rows.forward(self.model, self.params)[-1]
        along = self.model.forward(self.direction, rows.inputs_of(self.model))[-1]
        slopes = np.einsum("kb,kb->b", logits_pull(logits, rows.y), along) / self.scale
        chances = softmax(logits)
        doubts = 1 - np.einsum("kb,kb->b", chances, chances)
        return np.stack([np.clip(slopes, -1.0, 1.0), doubts, np.ones(len(rows))])


@row_function
class MitigatedLoss:
    """The softmax loss, plus public weights of each row's group on <gradient, direction> and on its uncertainty."""

    model: Model
    direction: Float32Array
    slope_weights: Float32Array
    doubt_weights: Float32Array

    def dlogits(self, logits: Float32Array, rows: Rows) -> Float32Array:
        """Return the derivative by the logits, shape (n_classes, n_rows)."""
        pulls, chances = logits_pull(logits, rows.y), softmax(logits)
        along = self.model.forward(self.direction, rows.inputs_of(self.model))[-1]
        mean = np.einsum("kb,kb->b", chances, along)
        square = np.einsum("kb,kb->b", chances, chances)
        pulls += self.slope_weights.take(rows.groups, mode="wrap") * chances * (along - mean)
        pulls -= 2 * self.doubt_weights.take(rows.groups, mode="wrap") * chances * (chances - square)
        return pulls
