"""Row functions of group-wise training: gradients weighted by group, and smooth rates of a released model."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairveil.models.last_layer import LayeredModel, last_inputs, margin_weights
from fairveil.models.losses import logits_pull
from fairveil.models.smoothed import positive_law
from fairveil.models.steady import steady_inputs, steady_logits
from fairveil.privacy.rows import Floats, Rows, row_function

__all__ = ["GroupWeighted", "InSubsets", "ShareOfModels", "SmoothRates"]


@row_function
@dataclass(frozen=True, eq=False)
class GroupWeighted:
    """The softmax loss times a public weight of the record's group.

    Clipped to weight x clip norm, a record adds weight x its clipped gradient.
    """

    weights: Floats

    def dlogits(self, logits: Floats, rows: Rows) -> Floats:
        """Return one column a record."""
        pulls = logits_pull(logits, rows.y)
        pulls *= self.weights.take(rows.cells)
        return pulls


@row_function
@dataclass(frozen=True, eq=False)
class InSubsets:
    """The weighted softmax loss of one of `n_subsets` equal last layers, side by side (Algorithm 3).

    Each record's own lot picks the layer that it pulls at, so that one record more moves no other to another subset.
    The model has n_subsets x classes outputs; what comes before the last layer feels every record.
    """

    weights: Floats
    n_subsets: int

    def dlogits(self, logits: Floats, rows: Rows) -> Floats:
        """Return one column a record."""
        n_classes = len(logits) // self.n_subsets
        pulls = logits_pull(logits[:n_classes], rows.y) * self.weights.take(rows.cells)
        subset = np.minimum((rows.lots[0] * self.n_subsets).astype(np.int64), self.n_subsets - 1)
        own = np.arange(self.n_subsets)[:, None, None] == subset
        return np.where(own, pulls, np.float32(0)).reshape(len(logits), -1)


@row_function
@dataclass(frozen=True, eq=False)
class SmoothRates:
    """How likely noise of deviation `std` on the released margin weights decides for class 1, less 1/2 (Equation 5).

    Added to the (group, label) cell of each record: never more than 1/2. It is taken around the *released* weights; the
    paper takes it around the un-noised ones, by which one record can move it however many there are. Weights that
    were known before the people were counted need `is_steady`, so that no row can tip another.
    """

    model: LayeredModel
    params: Floats
    std: float
    n_groups: int
    threshold: float = 0.0
    is_steady: bool = True
    n_values: int = 1

    @property
    def n_cells(self) -> int:
        """One sum for each (group code, label)."""
        return self.n_groups * self.model.n_classes

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return the cell of each row, -1 for none."""
        return rows.joint(self.model.n_classes)

    def values_of(self, rows: Rows) -> Floats:
        """Return one column a record."""
        if self.is_steady:
            inputs = steady_inputs(self.model, self.params, rows.X)
        else:
            inputs = last_inputs(self.model, rows.forward(self.model, self.params), rows.X)
        law = positive_law(margin_weights(self.model, self.params), inputs, self.std, self.threshold)
        return (law - 0.5)[None].astype(np.float32)


@row_function
@dataclass(frozen=True, eq=False)
class ShareOfModels:
    """The share of several released models that decide for class 1, less 1/2, added to the record's cell (Eq. 30)."""

    model: LayeredModel
    several: tuple[Floats, ...]
    n_groups: int
    n_values: int = 1

    @property
    def n_cells(self) -> int:
        """One sum for each (group code, label)."""
        return self.n_groups * self.model.n_classes

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return the cell of each row, -1 for none."""
        return rows.joint(self.model.n_classes)

    def values_of(self, rows: Rows) -> Floats:
        """Return one column a record."""
        logits = (steady_logits(self.model, params, rows.X) for params in self.several)
        votes = np.mean([two[1] > two[0] for two in logits], axis=0)
        return (votes - 0.5)[None].astype(np.float32)
