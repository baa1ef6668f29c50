"""Row functions of training: what is minimised, and what is counted."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairveil.models.losses import logits_pull
from fairveil.models.protocol import Model
from fairveil.privacy.rows import Floats, Rows, row_function

__all__ = ["Clipped", "CrossEntropy", "Everyone", "Outcomes"]


@row_function
@dataclass(frozen=True, eq=False)
class CrossEntropy:
    """The softmax loss: its derivative by the logits is probability minus one-hot label."""

    def dlogits(self, logits: Floats, rows: Rows) -> Floats:
        """Return one column a record."""
        return logits_pull(logits, rows.y)


@row_function
@dataclass(frozen=True, eq=False)
class Everyone:
    """One cell that holds every record: its count is the size."""

    n_cells: int = 1

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return cell 0 for each row."""
        return np.zeros(len(rows), dtype=np.int64)


@row_function
@dataclass(frozen=True, eq=False)
class Clipped:
    """Cell 2g for the records of group g whose gradient is within the clip norm, 2g + 1 for those beyond it.

    The last group holds the records that belong to none.
    """

    model: Model
    params: Floats
    clip_norm: float
    n_groups: int

    @property
    def n_cells(self) -> int:
        """Two cells a group."""
        return 2 * (self.n_groups + 1)

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return the cell of each row."""
        activations = self.model.forward(self.params, rows.X)
        dlogits = CrossEntropy().dlogits(activations[-1], rows)
        norms = self.model.gradient_norms(
            self.params, rows.X, dlogits, activations=activations, row_norms=rows.norms
        )
        group = np.where(rows.cells >= 0, rows.cells, self.n_groups)
        return 2 * group.astype(np.int64) + ~(norms <= self.clip_norm)


@row_function
@dataclass(frozen=True, eq=False)
class Outcomes:
    """The (group, label, decision) cell of each record under a released model."""

    model: Model
    params: Floats
    n_groups: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Groups (one more for none), labels, decisions."""
        return self.n_groups + 1, self.model.n_classes, self.model.n_classes

    @property
    def n_cells(self) -> int:
        """The number of combinations."""
        return int(np.prod(self.shape))

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return the cell of each row."""
        decision = self.model.logits(self.params, rows.X).argmax(axis=0)
        group = np.where(rows.cells >= 0, rows.cells, self.n_groups)
        return np.ravel_multi_index((group, rows.y, decision), self.shape)
