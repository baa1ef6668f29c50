"""Every query that may be made about a person: six queries, and the row functions that they are made of.

`Count` counts records by cell and public code, `Sum` adds up bounded vectors by cell, `GradientSum` and
`GroupGradientSum` add up clipped gradients, `MomentSum` adds up bounded first and second moments, `Minimizer` finds the
minimum of a regularized loss. A *table* is an integer array of shape (n_groups, n_labels) that holds the cell of each
pair of a group code and a label, -1 for pairs that are not counted; group code -1 reads the last row.

Public (released or declared) numbers are fields, records are arguments. A row function answers every row from that row
alone; a query bounds each contribution itself and adds them up. The veil accepts registered types only. Parameters
that may be known before the records are chosen must be used with `is_row_stable`, so that no row can change the
rounding of another row's answer.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fairveil._typing import Float32Array, Float64Array
from fairveil.data.coded import CodedRows, Features, joined
from fairveil.errors import UnplannedReleaseError
from fairveil.models.base import Bound, Known, Model
from fairveil.models.last_layer import LayeredModel, last_inputs, margin_weights, positive_probability
from fairveil.models.linear import LinearSoftmax
from fairveil.models.losses import logits_pull, soft_decision_pull, softmax, tempered_softmax, tilted_pull
from fairveil.models.products import level_counts
from fairveil.models.rescaled import Rescaled
from fairveil.models.row_stable import row_stable_inputs, row_stable_logits
from fairveil.models.rules import DecisionRule, TiltedArgmax, best_pair, label_margins
from fairveil.privacy.moments import RowMoments, bounded_rows, design_of, pack, sum_rows
from fairveil.privacy.output_perturbation import RidgeSoftmax, minimize_loss
from fairveil.privacy.records import NOT_ONE_ANSWER, Query, Rows

T = TypeVar("T", bound=type)
Table = NDArray[np.int64]

PROBABILITY_SLACK = 1 + 1e-6
"""Vectors are clipped to this multiple of their bound, so that probabilities, whose sum differs from 1 by rounding, are
not rescaled. The veil's own factor for rounding is much larger."""

MOMENT_SAFETY = 1 - 1e-6
"""Moments are clipped to this multiple of their bound, so that the bound also holds after rounding."""

PARTS: dict[type, tuple[str, ...]] = {}
"""The registered types; for each, the fields that must hold registered types as well. The veil accepts no others."""


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def row_function(cls: T) -> T:
    """Make a class a frozen dataclass, and register it as a query or a part of one that may pass the veil."""
    dataclass(frozen=True, eq=False)(cls)
    PARTS[cls] = getattr(cls, "parts", ())
    return cls


def one_cell(n_labels: int) -> Table:
    """Return the table that puts everyone into cell 0."""
    return np.zeros((1, n_labels), dtype=np.int64)


def all_cells(n_groups: int, n_labels: int) -> Table:
    """Return the table that gives each pair of a group code and a label its own cell."""
    return np.arange(n_groups * n_labels).reshape(n_groups, n_labels)


class Code:
    """Answers each row with one of a public number of codes."""

    def codes_of(self, rows: Rows, n_labels: int) -> tuple[NDArray[Any], int]:
        """Return the codes, shape (n_rows,), integer or Boolean, and how many codes there are."""
        raise NotImplementedError


class Values:
    """Answers each row with a vector, which may depend on its group unless the class says otherwise."""

    depends_on_group: ClassVar[bool] = True

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        """Return the vectors, shape (n_values, n_rows)."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class OfModel:
    """A part of a query about a model with released parameters."""

    model: Model
    params: Float32Array


@row_function
class Count(Query):
    """How many records fall into each (cell, code), or into each cell; a record is counted once at most.

    `merged`, shape (n_cells, n_codes), may add several pairs up in one count: it holds the count of each pair.
    """

    parts = ("code",)

    table: Table
    n_cells: int
    code: Code | None = None
    merged: Table | None = None

    def counts_of(self, rows: Rows) -> tuple[NDArray[np.int64], int]:
        """Return the count that each row is added to, negative for none, and how many counts there are."""
        n_labels = self.table.shape[1]
        if self.code is None:
            n_counts, counted = self.n_cells, self.table.take(rows.joint(n_labels), mode="wrap")
        else:
            codes, n_codes = self.code.codes_of(rows, n_labels)
            n_counts, counted = self.n_cells * n_codes, (n_codes * self.table).take(rows.joint(n_labels), mode="wrap")
            if codes.shape != counted.shape:
                raise UnplannedReleaseError(NOT_ONE_ANSWER)
            counted += codes
        if self.merged is not None:
            n_counts = int(self.merged.max()) + 1
            counted = np.where(counted < 0, -1, self.merged.take(counted, mode="wrap"))
        return counted.astype(np.int64, copy=False), n_counts

    def total(self, rows: Rows, bound: float = 1.0, norm: int = 1) -> NDArray[np.int64]:
        """Return the counts of a block of rows."""
        counted, n_counts = self.counts_of(rows)
        # read as unsigned, a negative number is a huge one: all rows without a count share an extra last slot
        slots = counted.view(np.uint64)
        np.minimum(slots, n_counts, out=slots)
        return np.bincount(counted, minlength=n_counts + 1)[:-1]


@row_function
class Sum(Query):
    """The sum of bounded vectors over the records of each cell; a record adds its vector to one cell at most."""

    parts = ("values",)

    table: Table
    n_cells: int
    values: Values

    def total(self, rows: Rows, bound: float, norm: int) -> Float64Array:
        """Return the sums of vectors clipped in L1 or L2, shape (n_cells, n_values); one not finite adds nothing."""
        values = np.asarray(self.values.values_of(rows), dtype=np.float64)
        if values.shape[1:] != (len(rows),):
            raise UnplannedReleaseError(NOT_ONE_ANSWER)
        n_values, n_slots = len(values), self.n_cells + 1
        # read as unsigned, a negative cell is a huge one: all rows without a cell share an extra last slot
        cells = self.table.take(rows.joint(self.table.shape[1]), mode="wrap").astype(np.int64, copy=False)
        slots = np.minimum(cells.view(np.uint64), self.n_cells).view(np.int64)
        limit = bound * PROBABILITY_SLACK
        sizes = np.add.reduce(np.abs(values) if norm == 1 else values * values, axis=0)
        if not np.maximum.reduce(sizes, initial=0.0) <= limit**norm:
            norms = sizes if norm == 1 else np.sqrt(sizes)
            values = values * (limit / np.maximum(norms, limit))
            slots = np.where(np.isfinite(norms), slots, self.n_cells)
        places = slots + _first_slots(n_values, n_slots)
        sums: Float64Array = np.bincount(places.ravel(), values.ravel(), n_slots * n_values)  # type: ignore[assignment]
        return sums.reshape(n_values, n_slots)[:, :-1].T


@lru_cache(maxsize=32)
def _first_slots(n_values: int, n_slots: int) -> NDArray[np.int64]:
    return np.arange(0, n_values * n_slots, n_slots)[:, None]


@row_function
class LevelCounts(Query):
    """How many rows have each level: a row adds 1 for each column and each pair, whose number is the bound squared."""

    def total(self, rows: Rows, bound: float, norm: int) -> NDArray[Any]:
        """Return the counts of a block of rows, shape (n_features,); rows that are not coded are clipped."""
        X = rows.inputs
        if isinstance(X, CodedRows):
            if norm != 2 or X.layout.n_places > bound**2 * PROBABILITY_SLACK:
                raise UnplannedReleaseError("Expected no more columns and pairs than the bound allows, got more.")
            return level_counts(X)
        norms, finite = rows.norms.astype(np.float64), np.where(np.isfinite(X), X, 0.0)
        return np.where(np.isfinite(norms), bound / np.maximum(norms, bound), 0.0) @ finite.astype(np.float64)


@row_function
class GradientSum(Query, OfModel):
    """The sum of clipped gradients of an objective; an array of clip norms holds one for each group code.

    With `is_row_stable`, no row can change on which side of its edge a hidden unit is for another row.
    """

    parts = ("objective",)

    objective: "Objective"
    is_row_stable: bool = field(default=False, kw_only=True)

    def activations(self, rows: Rows) -> tuple[Float32Array, ...]:
        """Return the model's activations; the loss of a linear score has no edge at which its slope could turn."""
        has_edge = isinstance(self.objective, DecisionPrice) or not isinstance(self.model, LinearSoftmax)
        is_row_stable = self.is_row_stable and has_edge
        return rows.forward(self.model, self.params, is_row_stable)

    def total(self, rows: Rows, bound: Bound, norm: int = 2) -> NDArray[Any]:
        """Return the sum over a block of rows, shape (n_params,)."""
        model, params, own = self.model, self.params, bound if isinstance(bound, float) else bound.take(rows.groups)
        is_loss = isinstance(self.objective, CrossEntropy) and self.objective.is_plain
        if is_loss and isinstance(model, (LinearSoftmax, Rescaled)):
            gradient = model.clipped_loss_gradient(params, rows.inputs, rows.records.y, own)
            if gradient is not None:
                return gradient
        activations = self.activations(rows)
        # the norms of coded rows follow from their codes
        is_free = isinstance(rows.inputs, CodedRows) or (isinstance(bound, float) and bound == math.inf)
        known = Known(activations, None if is_free else rows.norms)
        dlogits = self.objective.dlogits(activations[-1], rows)
        return model.clipped_gradient(params, rows.inputs_of(model), dlogits, own, known)


@row_function
class GroupGradientSum(GradientSum):
    """For each group code, the sum of the clipped gradients of its records; other records add nothing."""

    n_groups: int

    def total(self, rows: Rows, bound: Bound, norm: int = 2) -> NDArray[Any]:
        """Return the sums over a block of rows, shape (n_groups, n_params)."""
        model, params, rows = self.model, self.params, rows.by_group()
        totals = np.zeros((self.n_groups, len(params)))
        *hidden, logits = self.activations(rows)
        dlogits = self.objective.dlogits(logits, rows)
        ends, X = np.searchsorted(rows.groups, np.arange(self.n_groups + 1)), rows.inputs_of(model)
        for group in np.flatnonzero(np.diff(ends)).tolist():
            own = slice(ends[group], ends[group + 1])
            activations = (*(layer[own] for layer in hidden), logits[:, own])
            norms = None if bound == math.inf else rows.norms[own]
            totals[group] = model.clipped_gradient(params, X[own], dlogits[:, own], bound, Known(activations, norms))
        return totals


@row_function
class MomentSum(Query):
    """First moments u z by cell and second moments v z z^T by matrix, as one flat vector (see `moments`)."""

    parts = ("function",)

    function: "LogisticMoments"

    def total(self, rows: Rows, bound: float, norm: int) -> Float64Array:
        """Return the sum over a block of rows, each of which moves the vector by at most `bound` in L1 or L2."""
        answers, shape = self.function.moments_of(rows), self.function.shape
        if [answer.shape for answer in answers] != [(len(rows), shape[2]), *[(len(rows),)] * 4]:
            raise UnplannedReleaseError(NOT_ONE_ANSWER)
        return pack(*sum_rows(bounded_rows(answers, shape, MOMENT_SAFETY * bound, norm), shape), norm)


@row_function
class Minimizer(Query):
    """The minimum of a regularized loss over all rows: no sum, so its bound is proved (see `output_perturbation`)."""

    ridge: RidgeSoftmax

    def answer(self, blocks: list[Rows], bound: float, norm: int = 2) -> Float64Array:
        """Return the weights, which one record moves by at most `ridge.sensitivity`."""
        inputs = joined([rows.inputs for rows in blocks])
        design = self.ridge.design(inputs, np.concatenate([rows.norms for rows in blocks]))
        return minimize_loss(self.ridge, design, np.concatenate([rows.y for rows in blocks]))


@row_function
class Decision(Code, OfModel):
    """The class that a released model, with or without a decision rule, decides for."""

    rule: DecisionRule | None = None
    is_row_stable: bool = False

    def codes_of(self, rows: Rows, n_labels: int) -> tuple[NDArray[Any], int]:
        if self.is_row_stable:
            logits: NDArray[np.floating] = row_stable_logits(self.model, self.params, rows.inputs_of(self.model))
        else:
            logits = rows.forward(self.model, self.params)[-1]
        if self.rule is not None:
            return self.rule.decide(logits, rows.groups, rows.uniforms), n_labels
        return logits[1] > logits[0] if len(logits) == 2 else logits.argmax(axis=0), n_labels


@row_function
class Bin(Code):
    """The bin of a number between public edges: the lower one on an edge, the last one for NaN."""

    parts = ("number",)

    number: Values
    edges: NDArray[np.floating]

    def codes_of(self, rows: Rows, n_labels: int) -> tuple[NDArray[Any], int]:
        return np.searchsorted(self.edges, self.number.values_of(rows)[0], side="left"), len(self.edges) + 1


@row_function
class BinPair(Code):
    """The pair of bins of two numbers, those of the first major."""

    parts = ("first", "second")

    first: Bin
    second: Bin

    def codes_of(self, rows: Rows, n_labels: int) -> tuple[NDArray[Any], int]:
        (first, n_first), (second, n_second) = (part.codes_of(rows, n_labels) for part in (self.first, self.second))
        return first * n_second + second, n_first * n_second


@row_function
class PairMargin(Code, OfModel):
    """The pair of the two largest logits, and the bin of the margin between them (`best_pair`)."""

    edges: NDArray[np.floating]

    def codes_of(self, rows: Rows, n_labels: int) -> tuple[NDArray[Any], int]:
        return best_pair(rows.forward(self.model, self.params)[-1], self.edges)


@row_function
class Margin(Values, OfModel):
    """The margin logit_1 - logit_0, plus a uniform number of width `jitter` around 0.

    With `is_row_stable`, the log-odds of class 1, whatever groups a joint model has outputs for.
    """

    jitter: float = 0.0
    is_row_stable: bool = False

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        if self.is_row_stable:
            return label_margins(row_stable_logits(self.model, self.params, rows.inputs_of(self.model)))[None]
        logits = rows.forward(self.model, self.params)[-1]
        margins = logits[1] - logits[0]
        return (margins + self.jitter * (rows.uniforms[1] - 0.5) if self.jitter else margins)[None]


@row_function
class GradientNorm(Values, OfModel):
    """The norm of the gradient of an objective, infinite where it is not finite."""

    parts = ("objective",)

    objective: "Objective"

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        model, params, activations = self.model, self.params, rows.forward(self.model, self.params)
        dlogits = self.objective.dlogits(activations[-1], rows)
        norms = model.gradient_norms(params, rows.inputs_of(model), dlogits, Known(activations, rows.norms))
        return norms[None]


@row_function
class DecisionGradientNorm(Values, OfModel):
    """The norm of the gradient of a soft decision, for the class where it is largest; each row in its own batch."""

    sharpness: float

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        X = rows.inputs_of(self.model)
        norms = [self.norms_of(X[row : row + 1]) for row in range(len(rows))]
        return np.concatenate([np.zeros(0, np.float32), *norms])[None]

    def norms_of(self, X: Features) -> Float32Array:
        """Return the norms of all rows of `X` at once, shape (n_rows,)."""
        activations = self.model.forward(self.params, X)
        logits, norms = activations[-1], np.zeros(len(X), dtype=np.float32)
        for k in range(1 if len(logits) == 2 else len(logits)):
            tilts = np.zeros_like(logits)
            tilts[k] = 1.0
            pull = soft_decision_pull(logits, tilts, self.sharpness)
            own = self.model.gradient_norms(self.params, X, pull, Known(activations))
            norms = np.maximum(norms, own)
        return norms


@row_function
class Score(Values):
    """The linear score of z = [x, 1] / norm, less a public center of the row's pair of group and label."""

    weights: Float64Array
    norm: float
    clips: bool = False
    centers: Float64Array | None = None

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        scores = design_of(rows.X, self.norm, self.clips) @ self.weights
        if self.centers is not None:
            scores -= self.centers.take(rows.joint(self.centers.shape[1]), mode="wrap")
        return scores[None]


@row_function
class SoftDecision(Values, OfModel):
    """The probabilities softmax(temperature x logits), which add up to 1 (soft histogram of RaCO-DP, Equation 8)."""

    temperature: float = 1.0

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        return tempered_softmax(rows.forward(self.model, self.params)[-1], self.temperature)


@row_function
class RuleDecision(Values, OfModel):
    """The one-hot decision of a rule or, with `smoothing`, softmax(scores / smoothing); never longer than 1.

    With `signs`, one public number for each group code, a row's vector is 2 sign (vector - 1 / n_classes).
    """

    rule: TiltedArgmax
    n_classes: int
    smoothing: float = 0.0
    signs: Float64Array | None = None

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        logits = rows.forward(self.model, self.params)[-1]
        if self.smoothing == 0:
            decision = self.rule.decide(logits, rows.groups, rows.uniforms)
            soft = (np.arange(self.n_classes)[:, None] == decision).astype(np.float32)
        else:
            soft = softmax((self.rule.scores(logits, rows.groups) / self.smoothing).astype(np.float32))
        return soft if self.signs is None else 2 * self.signs[rows.groups] * (soft - 1 / self.n_classes)


@row_function
class WeightedDecision(Values, OfModel):
    """The public weight of a row's group if the rule decides for class 1, else 0.

    Under noise of one scale, a group of weight w is counted as if the noise had scale 1 / w.
    """

    rule: DecisionRule
    weights: Float64Array

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        decision = self.rule.decide(rows.forward(self.model, self.params)[-1], rows.groups, rows.uniforms)
        return (self.weights[rows.groups] * (decision == 1))[None].astype(np.float32)


@row_function
class NoisyMarginRate(Values, OfModel):
    """The probability that Gaussian noise on the released margin weights decides for class 1, less 1/2.

    It is at most 1/2 (Equation 5 of FairDP). The paper evaluates it around the weights before their noise was added,
    where one record can change it by a constant, however many records there are.
    """

    model: LayeredModel
    std: float
    threshold: float = 0.0
    is_row_stable: bool = True

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        if self.is_row_stable:
            inputs = row_stable_inputs(self.model, self.params, rows.inputs_of(self.model))
        else:
            inputs = last_inputs(self.model, rows.forward(self.model, self.params), rows.X)
        weights = margin_weights(self.model, self.params)
        chances = positive_probability(weights, inputs, self.std, self.threshold)
        return (chances - 0.5)[None].astype(np.float32)


@row_function
class SeveralDecisions(Values):
    """The one-hot decisions of several released models of two classes.

    With `is_mean`, the share of the models that decide for class 1, less 1/2 (Equation 30 of FairDP). `threshold` is
    what logit_1 - logit_0 must exceed.
    """

    model: Model
    several: tuple[Float32Array, ...]
    is_mean: bool = False
    threshold: float = 0.0

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        logits = (row_stable_logits(self.model, params, rows.inputs_of(self.model)) for params in self.several)
        decided = np.array([pair[1] > pair[0] + self.threshold for pair in logits])
        if self.is_mean:
            return (np.mean(decided, axis=0) - 0.5)[None].astype(np.float32)
        return np.stack([~decided, decided], axis=1).reshape(2 * len(decided), -1).astype(np.float32)


@row_function
class DecisionGradient(Values, OfModel):
    """The gradient of a row's soft decision in a public basis, the same vector whatever the row's group.

    By the weights of a linear score the gradient is the slope of the decision times the features; `axes` turns
    features, less `center`, into the basis, and `constant` is the last entry.
    """

    depends_on_group: ClassVar[bool] = False

    center: Float64Array
    axes: Float64Array
    constant: float

    def values_of(self, rows: Rows) -> NDArray[np.floating]:
        slopes = self.slopes_of(row_stable_logits(self.model, self.params, rows.inputs_of(self.model)))
        return (self.basis_of(rows.X) * slopes[:, None]).T.astype(np.float32)

    def basis_of(self, X: Float32Array) -> Float64Array:
        """Return the features in the basis, shape (n_rows, n_values)."""
        return np.column_stack([(X - self.center) @ self.axes, np.full(len(X), self.constant)])

    @staticmethod
    def slopes_of(logits: NDArray[np.floating]) -> Float64Array:
        """Return how fast each soft decision moves: sum_k p_k (1 - p_k) / 2, which is p (1 - p) for two classes."""
        soft = softmax(logits.astype(np.float32)).astype(np.float64)
        return np.sum(soft * (1 - soft), axis=0) / 2 + 1e-9


@row_function
class CrossEntropy:
    """The softmax loss of the label, or of the pair of group and label that `outputs` (n_groups, n_labels) numbers.

    Pairs of output -1 add nothing. `weights` holds a public weight for each group code: clipped to weight x clip norm,
    a record adds weight x its clipped gradient. With `n_subsets`, the model has that many last layers side by side, and
    each row's own uniform number selects the layer that it trains, so that one more record moves no other to another
    subset (Algorithm 3 of FairDP).
    """

    weights: Float32Array | None = None
    n_subsets: int = 1
    outputs: Table | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is the loss of the label alone."""
        return self.weights is None and self.outputs is None

    def dlogits(self, logits: Float32Array, rows: Rows) -> Float32Array:
        if self.outputs is not None:
            target = self.outputs.take(rows.joint(self.outputs.shape[1]), mode="wrap")
            pulls = logits_pull(logits, target)
            pulls *= target >= 0
            return pulls
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
class Lagrangian:
    """The softmax loss plus the price of each row's soft decision under the multipliers of constraints.

    `pull`, shape (n_groups x n_labels, n_classes), is the public expected batch times d(multipliers . violation) /
    d(count) of each pair's cell. Soft decisions are softmax(temperature x logits); if the temperature is negative, as
    RaCO-DP prints it, their limit is the least likely class.
    """

    pull: Float32Array
    temperature: float = 1.0

    def dlogits(self, logits: Float32Array, rows: Rows) -> Float32Array:
        return tilted_pull(logits, rows.y, self.pull, rows.joint(self.pull.shape[1]), self.temperature)


@row_function
class DecisionPrice:
    """The price of each row's soft decision alone: `pull` (n_groups x n_labels, n_classes), 0 for no group."""

    pull: Float32Array
    sharpness: float

    def dlogits(self, logits: Float32Array, rows: Rows) -> Float32Array:
        tilts = self.pull.T.take(rows.joint(self.pull.shape[1]), axis=1, mode="wrap")
        return soft_decision_pull(logits, tilts * (rows.groups >= 0), self.sharpness)


Objective = CrossEntropy | Lagrangian | DecisionPrice


@row_function
class LogisticMoments:
    """The coefficients of the logistic loss expanded at 0, or around released `weights`, for z = [scales x, 1] / norm.

    At 0: u = slope (1 - 2y) and v = weight; for more labels u = slope. Around weights, p being P(class 1): u = p - y,
    v = 4 p (1 - p). `cells` and `tables` (n_groups, n_labels) hold where first and second moments are summed. Features
    of scaled rows are shortened where |z| would exceed 1.
    """

    norm: float
    shape: tuple[int, int, int]
    cells: Table
    tables: Table
    weights: Float64Array | None = None
    slope: float = 1.0
    weight: float = 1.0
    clips: bool = False
    scales: Float64Array | None = None

    def moments_of(self, rows: Rows) -> RowMoments:
        n_labels = self.cells.shape[1]
        cells, tables = (table.take(rows.joint(n_labels), mode="wrap") for table in (self.cells, self.tables))
        design = design_of(rows.X, self.norm, self.clips, self.scales)
        if self.weights is None:
            slopes = self.slope * (1.0 - 2.0 * rows.y if n_labels == 2 else np.ones(len(rows)))
            return RowMoments(design, cells, tables, slopes, np.full(len(rows), self.weight))
        chance = expit(design @ self.weights)
        return RowMoments(design, cells, tables, chance - rows.y, 4 * chance * (1 - chance))
