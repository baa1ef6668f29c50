"""Every question that may be asked of a person, as a few frozen queries that can be combined.

========================  =====================================================================
`Count(table, n, code)`   How many records fall into each pair of a cell and a public code.
`Sum(table, n, values)`   The sum of a bounded vector over the records of each cell.
objectives                The derivative of a loss by the logits; the model clips its gradient.
moments                   First and second moments of a bounded vector.
========================  =====================================================================

A *table* is an integer array of shape (n_groups, n_labels) that holds the cell of each pair of a group code and a
label, -1 for pairs that are not counted. Group code -1 reads the last row of a table.

Public (released or declared) numbers are fields, records are arguments. Each query answers every row from that row
alone, and the veil accepts no type that is not registered by `row_function`. Models whose parameters may be known
before the records are chosen must be `is_row_stable`: then no row can change the rounding of another row's answer.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fairveil._typing import Float32Array, Float64Array
from fairveil.errors import UnplannedReleaseError
from fairveil.models.base import Model
from fairveil.models.last_layer import LayeredModel, last_inputs, margin_weights, positive_probability
from fairveil.models.losses import logits_pull, soft_decision_pull, softmax, tempered_softmax, tilted_pull
from fairveil.models.row_stable import row_stable_inputs, row_stable_logits
from fairveil.models.rules import DecisionRule, TiltedArgmax
from fairveil.privacy.rows import Rows

T = TypeVar("T", bound=type)
Table = NDArray[np.int64]
Integers = NDArray[np.integer] | NDArray[np.bool_]

NOT_ONE_ANSWER = "Expected a query to answer each row once, got more or fewer answers."
"""A row that is added twice is not bounded."""

_registered: set[type] = set()


def row_function(cls: T) -> T:
    """Register a frozen dataclass as a query, or as a part of one, that may pass the veil."""
    if not (dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen):  # type: ignore[attr-defined]
        raise TypeError(f"Expected {cls.__name__} to be a frozen dataclass; freeze it before registering.")
    _registered.add(cls)
    return cls


def check_registered(query: Any) -> None:
    """Refuse a query, or a part of one, whose type is not registered."""
    if type(query) not in _registered:
        raise UnplannedReleaseError(
            f"Expected a registered query of fairveil.privacy.queries, got {type(query).__name__}; "
            "make it a frozen dataclass and decorate it with @row_function."
        )


class Code(Protocol):
    """Answers each row with a code 0 ... n_codes - 1."""

    def n_codes(self, n_labels: int) -> int:
        """Return the number of codes where there are this many labels."""

    def codes_of(self, rows: Rows) -> Integers:
        """Return the codes, shape (n_rows,)."""


class Values(Protocol):
    """Answers each row with a vector, which the veil bounds."""

    depends_on_group: ClassVar[bool]
    """Whether a row's vector may depend on its group code."""

    def n_values(self, n_labels: int) -> int:
        """Return the length of a vector where there are this many labels."""

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        """Return the vectors, shape (n_values, n_rows)."""


class Objective(Protocol):
    """What training minimizes, as its derivative by the logits."""

    def dlogits(self, logits: Float32Array, rows: Rows) -> Float32Array:
        """Return the derivative of each row's objective by its own logits, shape (n_outputs, n_rows)."""


class RowMoments(NamedTuple):
    """What rows add to moments: u z to the row's cell, v z z^T to the row's matrix; -1 for none.

    `design` holds z, shape (n_rows, n_values); `slopes` holds u and `weights` holds v, shape (n_rows,).
    """

    design: NDArray[np.floating]
    cells: NDArray[np.integer]
    tables: NDArray[np.integer]
    slopes: NDArray[np.floating]
    weights: NDArray[np.floating]


class MomentQuery(Protocol):
    """Answers each row with a vector z, whose first and second moments are summed by cell and by matrix."""

    @property
    def n_values(self) -> int:
        """The length of z."""

    @property
    def n_cells(self) -> int:
        """The number of sums of first moments."""

    @property
    def n_tables(self) -> int:
        """The number of sums of second moments."""

    def moments_of(self, rows: Rows) -> RowMoments:
        """Return what each row adds, and where."""


def one_cell(n_labels: int) -> Table:
    """Return the table that puts everyone into cell 0."""
    return np.zeros((1, n_labels), dtype=np.int64)


def all_cells(n_groups: int, n_labels: int) -> Table:
    """Return the table that gives each pair of a group code and a label its own cell."""
    return np.arange(n_groups * n_labels).reshape(n_groups, n_labels)


# --- codes: what is counted -------------------------------------------------------------------------------


@row_function
@dataclass(frozen=True, eq=False)
class Present:
    """Code 0 for each row."""

    def n_codes(self, n_labels: int) -> int:
        """Return 1."""
        return 1

    def codes_of(self, rows: Rows) -> Integers:
        """Return zeros."""
        return np.zeros(len(rows), dtype=np.int64)


@row_function
@dataclass(frozen=True, eq=False)
class Decision:
    """The class that a released model, with or without a decision rule, decides for."""

    model: Model
    params: Float32Array
    rule: DecisionRule | None = None
    is_row_stable: bool = False

    def n_codes(self, n_labels: int) -> int:
        """Return the number of labels, which are also the decisions."""
        return n_labels

    def codes_of(self, rows: Rows) -> Integers:
        """Return the decision on each row."""
        if self.is_row_stable:
            logits: NDArray[np.floating] = row_stable_logits(self.model, self.params, rows.X)
        else:
            logits = rows.forward(self.model, self.params)[-1]
        if self.rule is not None:
            return self.rule.decide(logits, rows.groups, rows.uniforms)
        return logits[1] > logits[0] if len(logits) == 2 else logits.argmax(axis=0)


@row_function
@dataclass(frozen=True, eq=False)
class MarginBin:
    """The bin of the margin logit_1 - logit_0 between public edges; a `jitter` widens each margin uniformly."""

    model: Model
    params: Float32Array
    edges: Float64Array
    jitter: float = 0.0

    def n_codes(self, n_labels: int) -> int:
        """Return the number of bins."""
        return len(self.edges) + 1

    def codes_of(self, rows: Rows) -> Integers:
        """Return the bin of each row; a margin on an edge belongs to the lower bin, as ties decide for class 0."""
        logits = rows.forward(self.model, self.params)[-1]
        margins = logits[1] - logits[0]
        if self.jitter:
            margins = margins + self.jitter * (rows.uniforms[1] - 0.5)
        return np.searchsorted(self.edges, margins, side="left")


@row_function
@dataclass(frozen=True, eq=False)
class GradientNormBin:
    """The bin of the norm of each row's gradient between public edges; a norm that is not finite is in the last."""

    model: Model
    params: Float32Array
    objective: Objective
    edges: Float32Array

    def __post_init__(self) -> None:
        check_registered(self.objective)

    def n_codes(self, n_labels: int) -> int:
        """Return the number of bins."""
        return len(self.edges) + 1

    def codes_of(self, rows: Rows) -> Integers:
        """Return the bin of each row."""
        activations = rows.forward(self.model, self.params)
        dlogits = self.objective.dlogits(activations[-1], rows)
        norms = self.model.gradient_norms(
            self.params, rows.X, dlogits, activations=activations, row_norms=rows.norms
        )
        return np.searchsorted(self.edges, norms, side="left")


@row_function
@dataclass(frozen=True, eq=False)
class DecisionGradientBin:
    """The bin of the norm of the gradient of each row's soft decision; each row is evaluated in its own batch."""

    model: Model
    params: Float32Array
    edges: Float64Array
    sharpness: float

    def n_codes(self, n_labels: int) -> int:
        """Return the number of bins."""
        return len(self.edges) + 1

    def codes_of(self, rows: Rows) -> Integers:
        """Return the bin of each row."""
        norms = [
            decision_gradient_norms(self.model, self.params, rows.X[row : row + 1], self.sharpness)
            for row in range(len(rows))
        ]
        return np.searchsorted(self.edges, np.concatenate([np.zeros(0, np.float32), *norms]), side="left")


def decision_gradient_norms(
    model: Model, params: Float32Array, X: Float32Array, sharpness: float
) -> Float32Array:
    """Return the norm of the gradient of each row's soft decision, for the class where it is largest."""
    activations = model.forward(params, X)
    logits, norms = activations[-1], np.zeros(len(X), dtype=np.float32)
    for k in range(1 if len(logits) == 2 else len(logits)):
        tilts = np.zeros_like(logits)
        tilts[k] = 1.0
        pull = soft_decision_pull(logits, tilts, sharpness)
        norms = np.maximum(norms, model.gradient_norms(params, X, pull, activations=activations))
    return norms


@row_function
@dataclass(frozen=True, eq=False)
class ScoreBin:
    """The pair of bins of two linear scores of z = [x, 1] / norm, the second score less a public center.

    `weights` has shape (2, n_features + 1), `edges` holds the inner edges of both scores, and `centers`, shape
    (n_groups, n_labels), is subtracted from the second score.
    """

    weights: tuple[Float64Array, Float64Array]
    edges: tuple[Float64Array, Float64Array]
    centers: Float64Array
    norm: float
    clips: bool = False

    def n_codes(self, n_labels: int) -> int:
        """Return the number of pairs of bins."""
        return (len(self.edges[0]) + 1) * (len(self.edges[1]) + 1)

    def codes_of(self, rows: Rows) -> Integers:
        """Return the pair of bins of each row, those of the first score major."""
        design = design_of(rows.X, self.norm, self.clips)
        first, second = (design @ weights for weights in self.weights)
        second -= self.centers.take(rows.joint(self.centers.shape[1]), mode="wrap")
        major = np.searchsorted(self.edges[0], first) * (len(self.edges[1]) + 1)
        return major + np.searchsorted(self.edges[1], second)


@row_function
@dataclass(frozen=True, eq=False)
class Count:
    """How many records fall into each (cell, code); a record is counted once at most.

    `merged`, shape (n_cells, n_codes), may add several pairs up in one count: it holds the count of each pair.
    """

    table: Table
    n_cells: int
    code: Code = Present()
    merged: Table | None = None

    def __post_init__(self) -> None:
        check_registered(self.code)

    @property
    def n_counts(self) -> int:
        """The number of counts."""
        if self.merged is not None:
            return int(self.merged.max()) + 1
        return self.n_cells * self.code.n_codes(self.table.shape[1])

    def counts_of(self, rows: Rows) -> NDArray[np.int64]:
        """Return the count that each row is added to, negative for none."""
        n_labels = self.table.shape[1]
        n_codes = self.code.n_codes(n_labels)
        counted = (n_codes * self.table).take(rows.joint(n_labels), mode="wrap")
        codes = self.code.codes_of(rows)
        if codes.shape != counted.shape:
            raise UnplannedReleaseError(NOT_ONE_ANSWER)
        counted += codes
        return (
            counted
            if self.merged is None
            else np.where(counted < 0, -1, self.merged.take(counted, mode="wrap"))
        )


# --- values: what is summed -------------------------------------------------------------------------------


@row_function
@dataclass(frozen=True, eq=False)
class SoftDecision:
    """The probabilities softmax(temperature x logits), which add up to 1 (soft histogram of RaCO-DP, Equation 8)."""

    depends_on_group: ClassVar[bool] = True

    model: Model
    params: Float32Array
    temperature: float = 1.0

    def n_values(self, n_labels: int) -> int:
        """Return the number of classes."""
        return self.model.n_classes

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        """Return the probabilities, shape (n_classes, n_rows)."""
        return tempered_softmax(rows.forward(self.model, self.params)[-1], self.temperature)


@row_function
@dataclass(frozen=True, eq=False)
class RuleDecision:
    """The one-hot decision of a rule or, with `smoothing`, softmax(scores / smoothing); never longer than 1.

    With `signs`, one public number for each group code, a row's vector is 2 sign (vector - 1 / n_classes).
    """

    depends_on_group: ClassVar[bool] = True

    model: Model
    params: Float32Array
    rule: TiltedArgmax
    n_classes: int
    smoothing: float = 0.0
    signs: Float64Array | None = None

    def n_values(self, n_labels: int) -> int:
        """Return the number of classes."""
        return self.n_classes

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        """Return the vectors, shape (n_classes, n_rows)."""
        logits = rows.forward(self.model, self.params)[-1]
        if self.smoothing == 0:
            decision = self.rule.decide(logits, rows.groups, rows.uniforms)
            soft = (np.arange(self.n_classes)[:, None] == decision).astype(np.float32)
        else:
            soft = softmax((self.rule.scores(logits, rows.groups) / self.smoothing).astype(np.float32))
        return soft if self.signs is None else 2 * self.signs[rows.groups] * (soft - 1 / self.n_classes)


@row_function
@dataclass(frozen=True, eq=False)
class WeightedDecision:
    """The public weight of a row's group if the rule decides for class 1, else 0.

    Under noise of one scale, a group of weight w is counted as if the noise had scale 1 / w.
    """

    depends_on_group: ClassVar[bool] = True

    model: Model
    params: Float32Array
    rule: DecisionRule
    weights: Float64Array

    def n_values(self, n_labels: int) -> int:
        """Return 1."""
        return 1

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        """Return the weights of the rows decided for class 1, shape (1, n_rows)."""
        decision = self.rule.decide(rows.forward(self.model, self.params)[-1], rows.groups, rows.uniforms)
        return (self.weights[rows.groups] * (decision == 1))[None].astype(np.float32)


@row_function
@dataclass(frozen=True, eq=False)
class NoisyMarginRate:
    """The probability that Gaussian noise on the released margin weights decides for class 1, less 1/2.

    It is at most 1/2 (Equation 5 of FairDP). The paper evaluates it around the weights before their noise was added,
    where one record can change it by a constant, however many records there are.
    """

    depends_on_group: ClassVar[bool] = True

    model: LayeredModel
    params: Float32Array
    std: float
    threshold: float = 0.0
    is_row_stable: bool = True

    def n_values(self, n_labels: int) -> int:
        """Return 1."""
        return 1

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        """Return the probabilities less 1/2, shape (1, n_rows)."""
        if self.is_row_stable:
            inputs = row_stable_inputs(self.model, self.params, rows.X)
        else:
            inputs = last_inputs(self.model, rows.forward(self.model, self.params), rows.X)
        weights = margin_weights(self.model, self.params)
        chances = positive_probability(weights, inputs, self.std, self.threshold)
        return (chances - 0.5)[None].astype(np.float32)


@row_function
@dataclass(frozen=True, eq=False)
class SeveralDecisions:
    """The one-hot decisions of several released models of two classes, shape (2 n_models, n_rows).

    With `is_mean`, the share of the models that decide for class 1, less 1/2 (Equation 30 of FairDP).
    """

    depends_on_group: ClassVar[bool] = True

    model: Model
    several: tuple[Float32Array, ...]
    is_mean: bool = False

    def n_values(self, n_labels: int) -> int:
        """Return 1 for the mean, else two for each model."""
        return 1 if self.is_mean else 2 * len(self.several)

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        """Return the decisions, or the centered share."""
        logits = (row_stable_logits(self.model, params, rows.X) for params in self.several)
        decided = np.array([pair[1] > pair[0] for pair in logits])
        if self.is_mean:
            return (np.mean(decided, axis=0) - 0.5)[None].astype(np.float32)
        return np.stack([~decided, decided], axis=1).reshape(2 * len(decided), -1).astype(np.float32)


@row_function
@dataclass(frozen=True, eq=False)
class DecisionGradient:
    """The gradient of a row's soft decision in a public basis, the same vector whatever the row's group.

    By the weights of a linear score the gradient is the slope of the decision times the features; `axes` turns
    features, less `center`, into the basis, and `constant` is the last entry.
    """

    depends_on_group: ClassVar[bool] = False

    model: Model
    params: Float32Array
    center: Float64Array
    axes: Float64Array
    constant: float

    def n_values(self, n_labels: int) -> int:
        """Return the length of the basis."""
        return self.axes.shape[1] + 1

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        """Return the gradients, shape (n_values, n_rows), each slope from its own row alone."""
        slopes = self.slopes_of(row_stable_logits(self.model, self.params, rows.X))
        return (self.basis_of(rows.X) * slopes[:, None]).T.astype(np.float32)

    def basis_of(self, X: Float32Array) -> Float64Array:
        """Return the features in the basis, shape (n_rows, n_values)."""
        turned = (X - self.center) @ self.axes
        return np.column_stack([turned, np.full(len(X), self.constant)])

    @staticmethod
    def slopes_of(logits: NDArray[np.floating]) -> Float64Array:
        """Return how fast each soft decision moves: sum_k p_k (1 - p_k) / 2, which is p (1 - p) for two classes."""
        soft = softmax(logits.astype(np.float32)).astype(np.float64)
        return np.sum(soft * (1 - soft), axis=0) / 2 + 1e-9


@row_function
@dataclass(frozen=True, eq=False)
class Sum:
    """The sum of bounded vectors over the records of each cell; a record adds its vector to one cell at most."""

    table: Table
    n_cells: int
    values: Values

    def __post_init__(self) -> None:
        check_registered(self.values)

    @property
    def n_values(self) -> int:
        """The length of a row's vector."""
        return self.values.n_values(self.table.shape[1])

    def cells_of(self, rows: Rows) -> NDArray[np.int64]:
        """Return the cell that each row adds to, negative for none."""
        return self.table.take(rows.joint(self.table.shape[1]), mode="wrap")


# --- objectives: what is minimized ------------------------------------------------------------------------


@row_function
@dataclass(frozen=True, eq=False)
class CrossEntropy:
    """The softmax loss, with `weights` times a public weight of the row's group code.

    Clipped to weight x clip norm, a record adds weight x its clipped gradient. With `n_subsets`, the model has that
    many last layers side by side (n_subsets x n_classes outputs), and each row's own uniform number selects the layer
    that it trains, so that one more record moves no other to another subset (Algorithm 3 of FairDP).
    """

    weights: Float32Array | None = None
    n_subsets: int = 1

    def dlogits(self, logits: Float32Array, rows: Rows) -> Float32Array:
        """Return the derivatives, shape (n_outputs, n_rows)."""
        if self.weights is None:
            return logits_pull(logits, rows.y)
        pulls = logits_pull(logits[: len(logits) // self.n_subsets], rows.y)
        pulls *= self.weights.take(rows.groups)
        if self.n_subsets == 1:
            return pulls
        subset = np.minimum((rows.uniforms[0] * self.n_subsets).astype(np.int64), self.n_subsets - 1)
        own = np.arange(self.n_subsets)[:, None, None] == subset
        return np.where(own, pulls, np.float32(0)).reshape(len(logits), -1)


@row_function
@dataclass(frozen=True, eq=False)
class JointEntropy:
    """The softmax loss of a model of (group, label) pairs; `outputs` (n_groups, n_labels) holds each pair's output.

    Rows of no known group (output -1) add nothing.
    """

    outputs: Table

    def dlogits(self, logits: Float32Array, rows: Rows) -> Float32Array:
        """Return the derivatives, shape (n_outputs, n_rows)."""
        target = self.outputs.take(rows.joint(self.outputs.shape[1]), mode="wrap")
        pulls = softmax(logits)
        pulls -= np.arange(len(logits))[:, None] == target
        pulls *= target >= 0
        return pulls


@row_function
@dataclass(frozen=True, eq=False)
class Lagrangian:
    """The softmax loss plus the price of each row's soft decision under the multipliers of constraints.

    Parameters
    ----------
    pull : array of shape (n_groups x n_labels, n_classes)
        The public expected batch times d(multipliers . violation)/d(count) of each pair's cell.
    temperature : float
        Soft decisions are softmax(temperature x logits). If negative, as RaCO-DP prints it, the limit is the least
        likely class.
    """

    pull: Float32Array
    temperature: float = 1.0

    def dlogits(self, logits: Float32Array, rows: Rows) -> Float32Array:
        """Return the derivatives, shape (n_outputs, n_rows)."""
        return tilted_pull(logits, rows.y, self.pull, rows.joint(self.pull.shape[1]), self.temperature)


@row_function
@dataclass(frozen=True, eq=False)
class DecisionPrice:
    """The price of each row's soft decision alone: `pull` (n_groups x n_labels, n_classes), 0 for no group.

    Soft decisions are softmax(sharpness x logits).
    """

    pull: Float32Array
    sharpness: float

    def dlogits(self, logits: Float32Array, rows: Rows) -> Float32Array:
        """Return the derivatives, shape (n_outputs, n_rows)."""
        tilts = self.pull.T.take(rows.joint(self.pull.shape[1]), axis=1, mode="wrap")
        return soft_decision_pull(logits, tilts * (rows.groups >= 0), self.sharpness)


# --- moments ----------------------------------------------------------------------------------------------


def design_of(X: NDArray[np.floating], norm: float, clips: bool = False) -> Float64Array:
    """Return z = [x, 1] / norm in double precision, shape (n_rows, n_features + 1); `clips` makes every |x_j| <= 1."""
    design = np.empty((len(X), X.shape[1] + 1))
    design[:, :-1] = np.clip(X, -1.0, 1.0) if clips else X
    design[:, -1] = 1.0
    design /= norm
    return design


@row_function
@dataclass(frozen=True, eq=False)
class MomentsAtZero:
    """The coefficients of the logistic loss expanded at 0: u = slope (1 - 2y) and a constant weight v.

    `cells` and `tables` (n_groups, n_labels) hold where first and second moments are summed.
    """

    norm: float
    n_values: int
    cells: Table
    tables: Table
    n_cells: int
    n_tables: int
    slope: float = 1.0
    weight: float = 1.0
    clips: bool = False

    def moments_of(self, rows: Rows) -> RowMoments:
        """Return what each row adds, and where."""
        pairs = rows.joint(2)
        return RowMoments(
            design_of(rows.X, self.norm, self.clips),
            self.cells.take(pairs, mode="wrap"),
            self.tables.take(pairs, mode="wrap"),
            self.slope * (1.0 - 2.0 * rows.y),
            np.full(len(rows), self.weight),
        )


@row_function
@dataclass(frozen=True, eq=False)
class MomentsAroundWeights:
    """The Newton step around released weights: u = p - y and v = 4 p (1 - p), both summed by table."""

    norm: float
    weights: Float64Array
    tables: Table
    n_tables: int

    @property
    def n_values(self) -> int:
        """The length of z."""
        return len(self.weights)

    @property
    def n_cells(self) -> int:
        """First moments are summed where second moments are."""
        return self.n_tables

    def moments_of(self, rows: Rows) -> RowMoments:
        """Return what each row adds, and where."""
        design = design_of(rows.X, self.norm)
        chance = expit(design @ self.weights)
        tables = self.tables.take(rows.joint(2), mode="wrap")
        return RowMoments(design, tables, tables, chance - rows.y, 4 * chance * (1 - chance))
