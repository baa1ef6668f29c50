"""Row functions of PF-LD: what is asked of rows whose attribute is secret. Their features and labels are public."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fairveil.models.losses import softmax, tempered_softmax
from fairveil.models.protocol import Model
from fairveil.models.steady import steady_logits
from fairveil.privacy.rows import Floats, Rows, row_function

__all__ = [
    "SHARPNESS",
    "BasisSums",
    "GroupPull",
    "LongGradients",
    "SteadyDecisions",
    "gradient_lengths",
    "soft_pull",
]

Doubles = NDArray[np.float64]

SHARPNESS = 1.25
"""Multipliers pull at softmax(SHARPNESS x logits): the sharper, the less they move rows that are far from the edge."""


def soft_pull(logits: Floats, tilts: Floats) -> Floats:
    """Return the derivative by the logits z (K, B) of `sum_k tilt_k h_k` with the soft decision h, for tilts (K, B)."""
    soft = tempered_softmax(logits, SHARPNESS)
    return SHARPNESS * soft * (tilts - np.einsum("kb,kb->b", soft, tilts))


@row_function
@dataclass(frozen=True, eq=False)
class SteadyDecisions:
    """The (cell, decision) of each record under a released model; `cells` (groups x labels), -1 for none.

    The model may be known before the attributes are: a record's decision depends on its own row alone, bit by bit.
    """

    model: Model
    params: Floats
    cells: NDArray[np.int64]
    n_counted: int

    @property
    def n_cells(self) -> int:
        """One count for each cell and class."""
        return self.n_counted * self.model.n_classes

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return cell x classes + decision of each row, negative for none."""
        n_classes = self.model.n_classes
        decision = steady_logits(self.model, self.params, rows.X).argmax(axis=0)
        return (n_classes * self.cells).ravel().take(rows.joint(n_classes), mode="wrap") + decision


@row_function
@dataclass(frozen=True, eq=False)
class GroupPull:
    """What multipliers pull at each record's soft decision: `pull` (groups x labels, classes), none for no group."""

    pull: Floats

    def dlogits(self, logits: Floats, rows: Rows) -> Floats:
        """Return one column a record."""
        tilts = self.pull.T.take(rows.joint(self.pull.shape[1]), axis=1, mode="wrap")
        return soft_pull(logits, tilts * (rows.cells >= 0))


@row_function
@dataclass(frozen=True, eq=False)
class BasisSums:
    """The gradient of a record's soft decision in a public basis, for the sums of each cell.

    By the weights of a linear score the gradient is the slope of the decision times the features; `axes` turns
    features, less `centre`, into the basis, and `constant` stands last. The slope is that of the model's own decision.
    A record adds the same vector whatever its group (`adds_alike`).
    """

    adds_alike: ClassVar[bool] = True

    model: Model
    params: Floats
    cells: NDArray[np.int64]
    n_cells: int
    centre: Doubles
    axes: Doubles
    constant: float

    @property
    def n_values(self) -> int:
        """The length of the basis."""
        return self.axes.shape[1] + 1

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return the cell of each row, -1 for none."""
        return self.cells.ravel().take(rows.joint(self.model.n_classes), mode="wrap")

    def values_of(self, rows: Rows) -> Floats:
        """Return one vector a record, one column each."""
        # the parameters may be known before the attributes are: no row's slope may depend on another's
        basis, slopes = self.basis_of(rows.X), self.slopes_of(steady_logits(self.model, self.params, rows.X))
        return (basis * slopes[:, None]).T.astype(np.float32)

    def basis_of(self, X: Floats) -> Doubles:
        """Return the features in the basis, one row a record."""
        turned = (X - self.centre) @ self.axes
        return np.column_stack([turned, np.full(len(X), self.constant)])

    @staticmethod
    def slopes_of(logits: NDArray[np.floating]) -> Doubles:
        """Return how fast each soft decision moves: sum_k p_k (1 - p_k) / 2, which is p (1 - p) for two classes."""
        soft = softmax(logits.astype(np.float32)).astype(np.float64)
        return np.sum(soft * (1 - soft), axis=0) / 2 + 1e-9


@row_function
@dataclass(frozen=True, eq=False)
class LongGradients:
    """The (cell, bin) of the length of each record's gradient, between public edges: what a clip norm is chosen by."""

    model: Model
    params: Floats
    cells: NDArray[np.int64]
    n_counted: int
    edges: Doubles

    @property
    def n_cells(self) -> int:
        """One count for each cell and bin."""
        return self.n_counted * (len(self.edges) + 1)

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return cell x bins + bin of each row, negative for none."""
        bins = np.searchsorted(self.edges, self._lengths(rows.X), side="left")
        cells, n_bins = (
            self.cells.ravel().take(rows.joint(self.model.n_classes), mode="wrap"),
            len(self.edges) + 1,
        )
        return np.where(cells >= 0, cells * n_bins + bins, -1)

    def _lengths(self, X: Floats) -> Floats:
        """Return the length of each row asked in a table of its own: rows on an edge must not be tipped by another."""
        lengths = [gradient_lengths(self.model, self.params, X[row : row + 1]) for row in range(len(X))]
        return np.concatenate(lengths) if lengths else np.zeros(0, dtype=np.float32)


def gradient_lengths(model: Model, params: Floats, X: Floats) -> Floats:
    """Return the length of the gradient of each record's soft decision, of the class where it is longest."""
    activations = model.forward(params, X)
    logits, lengths = activations[-1], np.zeros(len(X), dtype=np.float32)
    for k in range(1 if len(logits) == 2 else len(logits)):
        tilts = np.zeros_like(logits)
        tilts[k] = 1.0
        pull = soft_pull(logits, tilts)
        lengths = np.maximum(lengths, model.gradient_norms(params, X, pull, activations=activations))
    return lengths
