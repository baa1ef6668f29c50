"""Row functions of training: what is minimised, and what is counted.

Row functions of group-wise training: gradients weighted by group, and smooth rates of a released model.

Row functions of PF-LD: what is asked of rows whose attribute is secret. Their features and labels are public.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil.models.base import Model
from fairveil.models.last_layer import LayeredModel, last_inputs, margin_weights
from fairveil.models.losses import logits_pull, softmax, tempered_softmax, tilted_pull
from fairveil.models.row_stable import row_stable_inputs, row_stable_logits
from fairveil.models.rules import DecisionRule, TiltedArgmax
from fairveil.models.smoothed import positive_law
from fairveil.privacy.rows import Objective, Rows, row_function


@row_function
@dataclass(frozen=True, eq=False)
class CrossEntropy:
    """The softmax loss: its derivative by the logits is probability minus one-hot label."""

    def dlogits(self, logits: Float32Array, rows: Rows) -> Float32Array:
        """Return one column a record."""
        return logits_pull(logits, rows.y)


@row_function
@dataclass(frozen=True, eq=False)
class JointEntropy:
    """The softmax loss of a model of (group, label) pairs; `outputs` (groups x labels) gives each atom's output.

    Atoms of no known group (-1) pull at nothing.
    """

    outputs: NDArray[np.int64]

    def dlogits(self, logits: Float32Array, rows: Rows) -> Float32Array:
        """Return one column a record."""
        target = self.outputs.ravel().take(rows.joint(self.outputs.shape[1]), mode="wrap")
        pulls = softmax(logits)
        pulls -= np.arange(len(logits))[:, None] == target
        pulls *= target >= 0
        return pulls


@row_function
@dataclass(frozen=True, eq=False)
class Lagrangian:
    """The softmax loss plus what the constraints pull at each record's soft decision.

    Parameters
    ----------
    pull : array of shape (groups x labels, classes)
        The public expected batch times d(multipliers . violation)/d(count) of each atom's cell.
    temperature : float
        Soft decisions are softmax(temperature x logits); with a minus, as paper 002 prints it, the limit is the least
        likely class.
    """

    pull: Float32Array
    temperature: float = 1.0

    def dlogits(self, logits: Float32Array, rows: Rows) -> Float32Array:
        """Return one column a record."""
        return tilted_pull(logits, rows.y, self.pull, rows.joint(self.pull.shape[1]), self.temperature)


@row_function
@dataclass(frozen=True, eq=False)
class Decisions:
    """The (cell, decision) of each record under a released model: the true histogram of paper 002.

    `cells` (groups x labels) gives the cell of each atom, -1 for those that are not counted.
    """

    model: Model
    params: Float32Array
    cells: NDArray[np.int64]
    n_counted: int

    @property
    def n_cells(self) -> int:
        """One count for each cell and class."""
        return self.n_counted * self.model.n_classes

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return cell x classes + decision of each row, negative for none."""
        n_classes = self.model.n_classes
        logits = rows.forward(self.model, self.params)[-1]
        decision = logits[1] > logits[0] if n_classes == 2 else logits.argmax(axis=0)
        counted = (n_classes * self.cells).take(rows.joint(n_classes), mode="wrap")
        counted += decision
        return counted


@row_function
@dataclass(frozen=True, eq=False)
class SoftDecisions:
    """The soft histogram of paper 002, Equation 8: each record adds its probabilities, which sum to 1, to its cell."""

    model: Model
    params: Float32Array
    cells: NDArray[np.int64]
    n_cells: int
    temperature: float = 1.0

    @property
    def n_values(self) -> int:
        """One sum for each class."""
        return self.model.n_classes

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return the cell of each row, -1 for none."""
        return self.cells.take(rows.joint(self.model.n_classes), mode="wrap")

    def values_of(self, rows: Rows) -> Float32Array:
        """Return the tempered probabilities, one column a record."""
        return tempered_softmax(rows.forward(self.model, self.params)[-1], self.temperature)


@row_function
@dataclass(frozen=True, eq=False)
class Margins:
    """The (cell, bin of the margin logit_1 - logit_0) of each record under a released model of two classes.

    A `jitter` is the width of a uniform lot that is added to every margin.
    """

    model: Model
    params: Float32Array
    cells: NDArray[np.int64]
    n_counted: int
    edges: NDArray[np.float64]
    jitter: float = 0.0

    @property
    def n_cells(self) -> int:
        """One count for each cell and bin."""
        return self.n_counted * (len(self.edges) + 1)

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return cell x bins + bin of each row, negative for none."""
        logits = rows.forward(self.model, self.params)[-1]
        margins = logits[1] - logits[0]
        if self.jitter:
            margins = margins + self.jitter * (rows.uniforms[1] - 0.5)
        bins = np.searchsorted(self.edges, margins, side="left")  # a tie is decided for class 0
        return (self.cells * (len(self.edges) + 1)).take(rows.joint(self.model.n_classes), mode="wrap") + bins


@row_function
@dataclass(frozen=True, eq=False)
class RuleDecisions:
    """The (cell, decision) of each record under a released model and rule; `cells` (groups x labels) as above."""

    model: Model
    params: Float32Array
    rule: DecisionRule
    cells: NDArray[np.int64]
    n_counted: int

    @property
    def n_cells(self) -> int:
        """One count for each cell and class."""
        return self.n_counted * self.cells.shape[1]

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return cell x classes + decision of each row, negative for none."""
        n_classes = self.cells.shape[1]
        decision = self.rule.decide(rows.forward(self.model, self.params)[-1], rows.cells, rows.uniforms)
        return (n_classes * self.cells).ravel().take(rows.joint(n_classes), mode="wrap") + decision


@row_function
@dataclass(frozen=True, eq=False)
class WeightedDecisions:
    """The weight of each record's group, added to its cell, if a released rule decides the record for class 1.

    Under noise of one scale, a group of weight w is counted as if the noise had scale 1 / w. Weights are public.
    """

    model: Model
    params: Float32Array
    rule: DecisionRule
    cells: NDArray[np.int64]
    n_cells: int
    weights: NDArray[np.float64]
    n_values: int = 1

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return the cell of each row, -1 for none."""
        return self.cells.ravel().take(rows.joint(self.cells.shape[1]), mode="wrap")

    def values_of(self, rows: Rows) -> Float32Array:
        """Return one column a record."""
        decision = self.rule.decide(rows.forward(self.model, self.params)[-1], rows.cells, rows.uniforms)
        return (self.weights[rows.cells] * (decision == 1))[None].astype(np.float32)


@row_function
@dataclass(frozen=True, eq=False)
class SoftRule:
    """Soft decisions of a tilted rule: softmax(scores / smoothing) of each record, added to its own cell.

    A smoothing of 0 is the decision itself. A record's vector is never longer than 1, in L1 and in L2.
    """

    model: Model
    params: Float32Array
    rule: TiltedArgmax
    cells: NDArray[np.int64]
    n_cells: int
    smoothing: float

    @property
    def n_values(self) -> int:
        """One sum for each class."""
        return self.cells.shape[1]

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return the cell of each row, -1 for none."""
        return self.cells.ravel().take(rows.joint(self.n_values), mode="wrap")

    def values_of(self, rows: Rows) -> Float32Array:
        """Return the soft decisions, one column a record."""
        logits = rows.forward(self.model, self.params)[-1]
        if self.smoothing == 0:
            decision = self.rule.decide(logits, rows.cells, rows.uniforms)
            return (np.arange(self.n_values)[:, None] == decision).astype(np.float32)
        return softmax((self.rule.scores(logits, rows.cells) / self.smoothing).astype(np.float32))


@row_function
@dataclass(frozen=True, eq=False)
class SignedDecisions:
    """2 s (soft decision - 1/K) of each record, times the weight of its group; s is +1, -1 or, for no group, 0."""

    model: Model
    params: Float32Array
    rule: TiltedArgmax
    signs: NDArray[np.float64]
    smoothing: float
    n_values: int
    n_cells: int = 1

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return cell 0 for each row."""
        return np.zeros(len(rows), dtype=np.int64)

    def values_of(self, rows: Rows) -> Float32Array:
        """Return one column a record."""
        scores = self.rule.scores(rows.forward(self.model, self.params)[-1], rows.cells)
        soft = softmax((scores / self.smoothing).astype(np.float32))
        return 2 * self.signs[rows.cells] * (soft - 1 / self.n_values)


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
class InCells:
    """The cell of each record, whatever is decided; `cells` (groups x labels) as above."""

    cells: NDArray[np.int64]
    n_cells: int

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return the cell of each row, -1 for none."""
        return self.cells.ravel().take(rows.joint(self.cells.shape[1]), mode="wrap")


@row_function
@dataclass(frozen=True, eq=False)
class Clipped:
    """Cell 2g for the records of group g whose gradient is within the clip norm, 2g + 1 for those beyond it.

    The last group holds the records that belong to no earlier one: with one group, everyone.
    """

    model: Model
    params: Float32Array
    objective: Objective
    clip_norm: float
    n_groups: int

    @property
    def n_cells(self) -> int:
        """Two cells a group."""
        return 2 * self.n_groups

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return the cell of each row."""
        activations = rows.forward(self.model, self.params)
        dlogits = self.objective.dlogits(activations[-1], rows)
        norms = self.model.gradient_norms(
            self.params, rows.X, dlogits, activations=activations, row_norms=rows.norms
        )
        last = self.n_groups - 1
        group = np.where((rows.cells >= 0) & (rows.cells < last), rows.cells, last)
        return 2 * group.astype(np.int64) + ~(norms <= self.clip_norm)


@row_function
@dataclass(frozen=True, eq=False)
class Outcomes:
    """The (group, label, decision) cell of each record under a released model and rule."""

    model: Model
    params: Float32Array
    rule: DecisionRule
    n_groups: int
    n_classes: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Groups (the last: none), labels, decisions."""
        return self.n_groups, self.n_classes, self.n_classes

    @property
    def n_cells(self) -> int:
        """The number of combinations."""
        return int(np.prod(self.shape))

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return the cell of each row."""
        group = np.where(rows.cells >= 0, rows.cells, self.n_groups - 1)
        # the model may have been known before these people were chosen: no row may tip another
        decision = self.rule.decide(row_stable_logits(self.model, self.params, rows.X), group, rows.uniforms)
        cells = (group * self.n_classes + rows.y) * self.n_classes + decision
        return np.where((decision >= 0) & (decision < self.n_classes), cells, -1)


@row_function
@dataclass(frozen=True, eq=False)
class GroupWeighted:
    """The softmax loss times a public weight of the record's group.

    Clipped to weight x clip norm, a record adds weight x its clipped gradient.
    """

    weights: Float32Array

    def dlogits(self, logits: Float32Array, rows: Rows) -> Float32Array:
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

    weights: Float32Array
    n_subsets: int

    def dlogits(self, logits: Float32Array, rows: Rows) -> Float32Array:
        """Return one column a record."""
        n_classes = len(logits) // self.n_subsets
        pulls = logits_pull(logits[:n_classes], rows.y) * self.weights.take(rows.cells)
        subset = np.minimum((rows.uniforms[0] * self.n_subsets).astype(np.int64), self.n_subsets - 1)
        own = np.arange(self.n_subsets)[:, None, None] == subset
        return np.where(own, pulls, np.float32(0)).reshape(len(logits), -1)


@row_function
@dataclass(frozen=True, eq=False)
class SmoothRates:
    """How likely noise of deviation `std` on the released margin weights decides for class 1, less 1/2 (Equation 5).

    Added to the (group, label) cell of each record: never more than 1/2. It is taken around the *released* weights; the
    paper takes it around the un-noised ones, by which one record can move it however many there are. Weights that
    were known before the people were counted need `is_row_stable`, so that no row can tip another.
    """

    model: LayeredModel
    params: Float32Array
    std: float
    n_groups: int
    threshold: float = 0.0
    is_row_stable: bool = True
    n_values: int = 1

    @property
    def n_cells(self) -> int:
        """One sum for each (group code, label)."""
        return self.n_groups * self.model.n_classes

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return the cell of each row, -1 for none."""
        return rows.joint(self.model.n_classes)

    def values_of(self, rows: Rows) -> Float32Array:
        """Return one column a record."""
        if self.is_row_stable:
            inputs = row_stable_inputs(self.model, self.params, rows.X)
        else:
            inputs = last_inputs(self.model, rows.forward(self.model, self.params), rows.X)
        law = positive_law(margin_weights(self.model, self.params), inputs, self.std, self.threshold)
        return (law - 0.5)[None].astype(np.float32)


@row_function
@dataclass(frozen=True, eq=False)
class ShareOfModels:
    """The share of several released models that decide for class 1, less 1/2, added to the record's cell (Eq. 30)."""

    model: LayeredModel
    several: tuple[Float32Array, ...]
    n_groups: int
    n_values: int = 1

    @property
    def n_cells(self) -> int:
        """One sum for each (group code, label)."""
        return self.n_groups * self.model.n_classes

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return the cell of each row, -1 for none."""
        return rows.joint(self.model.n_classes)

    def values_of(self, rows: Rows) -> Float32Array:
        """Return one column a record."""
        logits = (row_stable_logits(self.model, params, rows.X) for params in self.several)
        votes = np.mean([two[1] > two[0] for two in logits], axis=0)
        return (votes - 0.5)[None].astype(np.float32)


SHARPNESS = 1.25
"""Multipliers pull at softmax(SHARPNESS x logits): the sharper, the less they move rows that are far from the edge."""


def soft_pull(logits: Float32Array, tilts: Float32Array) -> Float32Array:
    """Return the derivative by the logits z (K, B) of `sum_k tilt_k h_k` with the soft decision h, for tilts (K, B)."""
    soft = tempered_softmax(logits, SHARPNESS)
    return SHARPNESS * soft * (tilts - np.einsum("kb,kb->b", soft, tilts))


@row_function
@dataclass(frozen=True, eq=False)
class RowStableDecisions:
    """The (cell, decision) of each record under a released model; `cells` (groups x labels), -1 for none.

    The model may be known before the attributes are: a record's decision depends on its own row alone, bit by bit.
    """

    model: Model
    params: Float32Array
    cells: NDArray[np.int64]
    n_counted: int

    @property
    def n_cells(self) -> int:
        """One count for each cell and class."""
        return self.n_counted * self.model.n_classes

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return cell x classes + decision of each row, negative for none."""
        n_classes = self.model.n_classes
        decision = row_stable_logits(self.model, self.params, rows.X).argmax(axis=0)
        return (n_classes * self.cells).ravel().take(rows.joint(n_classes), mode="wrap") + decision


@row_function
@dataclass(frozen=True, eq=False)
class GroupPull:
    """What multipliers pull at each record's soft decision: `pull` (groups x labels, classes), none for no group."""

    pull: Float32Array

    def dlogits(self, logits: Float32Array, rows: Rows) -> Float32Array:
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
    params: Float32Array
    cells: NDArray[np.int64]
    n_cells: int
    centre: Float64Array
    axes: Float64Array
    constant: float

    @property
    def n_values(self) -> int:
        """The length of the basis."""
        return self.axes.shape[1] + 1

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return the cell of each row, -1 for none."""
        return self.cells.ravel().take(rows.joint(self.model.n_classes), mode="wrap")

    def values_of(self, rows: Rows) -> Float32Array:
        """Return one vector a record, one column each."""
        # the parameters may be known before the attributes are: no row's slope may depend on another's
        basis, slopes = (
            self.basis_of(rows.X),
            self.slopes_of(row_stable_logits(self.model, self.params, rows.X)),
        )
        return (basis * slopes[:, None]).T.astype(np.float32)

    def basis_of(self, X: Float32Array) -> Float64Array:
        """Return the features in the basis, one row a record."""
        turned = (X - self.centre) @ self.axes
        return np.column_stack([turned, np.full(len(X), self.constant)])

    @staticmethod
    def slopes_of(logits: NDArray[np.floating]) -> Float64Array:
        """Return how fast each soft decision moves: sum_k p_k (1 - p_k) / 2, which is p (1 - p) for two classes."""
        soft = softmax(logits.astype(np.float32)).astype(np.float64)
        return np.sum(soft * (1 - soft), axis=0) / 2 + 1e-9


@row_function
@dataclass(frozen=True, eq=False)
class LongGradients:
    """The (cell, bin) of the length of each record's gradient, between public edges: what a clip norm is chosen by."""

    model: Model
    params: Float32Array
    cells: NDArray[np.int64]
    n_counted: int
    edges: Float64Array

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

    def _lengths(self, X: Float32Array) -> Float32Array:
        """Return the length of each row asked in a table of its own: rows on an edge must not be tipped by another."""
        lengths = [gradient_lengths(self.model, self.params, X[row : row + 1]) for row in range(len(X))]
        return np.concatenate(lengths) if lengths else np.zeros(0, dtype=np.float32)


def gradient_lengths(model: Model, params: Float32Array, X: Float32Array) -> Float32Array:
    """Return the length of the gradient of each record's soft decision, of the class where it is longest."""
    activations = model.forward(params, X)
    logits, lengths = activations[-1], np.zeros(len(X), dtype=np.float32)
    for k in range(1 if len(logits) == 2 else len(logits)):
        tilts = np.zeros_like(logits)
        tilts[k] = 1.0
        pull = soft_pull(logits, tilts)
        lengths = np.maximum(lengths, model.gradient_norms(params, X, pull, activations=activations))
    return lengths
