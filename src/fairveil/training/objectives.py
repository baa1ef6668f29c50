"""Row functions of training: what is minimised, and what is counted."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairveil.models.losses import logits_pull, softmax, tempered_softmax, tilted_pull
from fairveil.models.protocol import Model
from fairveil.models.rules import DecisionRule, Tilted
from fairveil.models.steady import steady_logits
from fairveil.privacy.rows import Floats, Objective, Rows, row_function

__all__ = [
    "Clipped",
    "CrossEntropy",
    "Decisions",
    "Everyone",
    "InCells",
    "JointEntropy",
    "Lagrangian",
    "Margins",
    "Outcomes",
    "RuleDecisions",
    "SignedDecisions",
    "SoftDecisions",
    "SoftRule",
]


@row_function
@dataclass(frozen=True, eq=False)
class CrossEntropy:
    """The softmax loss: its derivative by the logits is probability minus one-hot label."""

    def dlogits(self, logits: Floats, rows: Rows) -> Floats:
        """Return one column a record."""
        return logits_pull(logits, rows.y)


@row_function
@dataclass(frozen=True, eq=False)
class JointEntropy:
    """The softmax loss of a model of (group, label) pairs; `outputs` (groups x labels) gives each atom's output.

    Atoms of no known group (-1) pull at nothing.
    """

    outputs: NDArray[np.int64]

    def dlogits(self, logits: Floats, rows: Rows) -> Floats:
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

    pull: Floats
    temperature: float = 1.0

    def dlogits(self, logits: Floats, rows: Rows) -> Floats:
        """Return one column a record."""
        return tilted_pull(logits, rows.y, self.pull, rows.joint(self.pull.shape[1]), self.temperature)


@row_function
@dataclass(frozen=True, eq=False)
class Decisions:
    """The (cell, decision) of each record under a released model: the true histogram of paper 002.

    `cells` (groups x labels) gives the cell of each atom, -1 for those that are not counted.
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
    params: Floats
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

    def values_of(self, rows: Rows) -> Floats:
        """Return the tempered probabilities, one column a record."""
        return tempered_softmax(rows.forward(self.model, self.params)[-1], self.temperature)


@row_function
@dataclass(frozen=True, eq=False)
class Margins:
    """The (cell, bin of the margin logit_1 - logit_0) of each record under a released model of two classes.

    A `jitter` is the width of a uniform lot that is added to every margin.
    """

    model: Model
    params: Floats
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
            margins = margins + self.jitter * (rows.lots[1] - 0.5)
        bins = np.searchsorted(self.edges, margins, side="left")  # a tie is decided for class 0
        return (self.cells * (len(self.edges) + 1)).take(rows.joint(self.model.n_classes), mode="wrap") + bins


@row_function
@dataclass(frozen=True, eq=False)
class RuleDecisions:
    """The (cell, decision) of each record under a released model and rule; `cells` (groups x labels) as above."""

    model: Model
    params: Floats
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
        decision = self.rule.decide(rows.forward(self.model, self.params)[-1], rows.cells, rows.lots)
        return (n_classes * self.cells).ravel().take(rows.joint(n_classes), mode="wrap") + decision


@row_function
@dataclass(frozen=True, eq=False)
class WeightedDecisions:
    """The weight of each record's group, added to its cell, if a released rule decides the record for class 1.

    Under noise of one scale, a group of weight w is counted as if the noise had scale 1 / w. Weights are public.
    """

    model: Model
    params: Floats
    rule: DecisionRule
    cells: NDArray[np.int64]
    n_cells: int
    weights: NDArray[np.float64]
    n_values: int = 1

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return the cell of each row, -1 for none."""
        return self.cells.ravel().take(rows.joint(self.cells.shape[1]), mode="wrap")

    def values_of(self, rows: Rows) -> Floats:
        """Return one column a record."""
        decision = self.rule.decide(rows.forward(self.model, self.params)[-1], rows.cells, rows.lots)
        return (self.weights[rows.cells] * (decision == 1))[None].astype(np.float32)


@row_function
@dataclass(frozen=True, eq=False)
class SoftRule:
    """Soft decisions of a tilted rule: softmax(scores / smoothing) of each record, added to its own cell.

    A smoothing of 0 is the decision itself. A record's vector is never longer than 1, in L1 and in L2.
    """

    model: Model
    params: Floats
    rule: Tilted
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

    def values_of(self, rows: Rows) -> Floats:
        """Return the soft decisions, one column a record."""
        logits = rows.forward(self.model, self.params)[-1]
        if self.smoothing == 0:
            decision = self.rule.decide(logits, rows.cells, rows.lots)
            return (np.arange(self.n_values)[:, None] == decision).astype(np.float32)
        return softmax((self.rule.scores(logits, rows.cells) / self.smoothing).astype(np.float32))


@row_function
@dataclass(frozen=True, eq=False)
class SignedDecisions:
    """2 s (soft decision - 1/K) of each record, times the weight of its group; s is +1, -1 or, for no group, 0."""

    model: Model
    params: Floats
    rule: Tilted
    signs: NDArray[np.float64]
    smoothing: float
    n_values: int
    n_cells: int = 1

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return cell 0 for each row."""
        return np.zeros(len(rows), dtype=np.int64)

    def values_of(self, rows: Rows) -> Floats:
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
    params: Floats
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
    params: Floats
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
        decision = self.rule.decide(steady_logits(self.model, self.params, rows.X), group, rows.lots)
        cells = (group * self.n_classes + rows.y) * self.n_classes + decision
        return np.where((decision >= 0) & (decision < self.n_classes), cells, -1)
