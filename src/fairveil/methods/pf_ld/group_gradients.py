"""The side of PF-LD that reads the attribute: released numbers in, the rates of groups and what pulls at them out.

`EstimatedMembership` reads it a few times: once sums of gradients, from which the chance of every public row to be in
every cell follows, and a few counts of decisions, which correct the rates. Between counts all steps are public.
`NoisyGroupGradients` reads it at every step, as the paper does: counts, then the weighted gradient of the groups.

What a clip norm costs: the bias of cut gradients and the noise they need (PF-LD, Theorems 4 and 5, put right).

The paper divides noise by the smallest group of the batch, less one, which is secret and may be 0; here sizes are
public (declared or released). It sets the noise of one step against a bias that all steps share; over a run, noise
averages out and bias does not, so `noise` is that of the whole run where a clip norm is chosen for it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil.errors import InvalidParameterError
from fairveil.methods.pf_ld.membership import AgainstAll, basis_for, memberships, public_lengths
from fairveil.models.base import Model
from fairveil.models.losses import softmax, tempered_softmax
from fairveil.models.optimizers import GUESSABLE_STEPS
from fairveil.privacy.attribute import PublicRows
from fairveil.privacy.plan import Stage
from fairveil.privacy.queries import (
    Bin,
    Count,
    Decision,
    DecisionGradient,
    DecisionGradientNorm,
    DecisionPrice,
    SoftDecision,
    Sum,
)
from fairveil.privacy.veil import Batch, Veil
from fairveil.training.multipliers import SmoothedCounts

SHARPNESS = 1.25
"""Multipliers pull at softmax(SHARPNESS x logits): the sharper, the less they move rows far from the boundary."""


@dataclass(frozen=True, eq=False)
class Tails:
    """How many gradients of each group are longer than each edge of a public grid.

    Attributes
    ----------
    edges : array of shape (E,)
        Rising, above 0; no gradient is longer than the last.
    above : array of shape (groups, E)
        The share of each group beyond each edge, falling.
    """

    edges: Float64Array
    above: Float64Array

    @classmethod
    def from_counts(cls, edges: Float64Array, counts: Float64Array) -> "Tails":
        """Return the tails of noisy counts between edges, shape (groups, E + 1), made to fall from 1 to 0."""
        if counts.shape[1] != len(edges) + 1:
            raise InvalidParameterError(f"Expected one count more than the {len(edges)} edges, got {counts.shape[1]}.")
        sizes = np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
        beyond = counts[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:] / sizes
        return cls(edges, np.minimum.accumulate(np.clip(beyond, 0.0, 1.0), axis=1))

    def excess(self, clip_norm: float) -> Float64Array:
        """Return by how much gradients are too long on average, max(0, norm - clip_norm), at most: one a group.

        The mean excess is the area under the tail beyond the clip norm; between edges the tail is at most its left end.
        """
        edges = np.concatenate([[0.0], self.edges])
        heights = np.column_stack([np.ones(len(self.above)), self.above[:, :-1]])
        widths = np.maximum(edges[1:] - np.maximum(edges[:-1], clip_norm), 0.0)
        return heights @ widths


def gradient_error(clip_norm: float, tails: Tails, multipliers: Float64Array, noise: float, n_params: int) -> float:
    """Return a bound on E|G - G~|, the error of the constraints' gradient from clipping and noise (Theorem 4).

    Parameters
    ----------
    clip_norm : float
        C_p.
    tails : Tails
    multipliers : array of shape (groups,)
        The weight of each group's mean gradient.
    noise : float
        The standard deviation of the noise on each coordinate of the weighted sum, over the clip norm.
    n_params : int
    """
    return math.sqrt(n_params) * noise * clip_norm + float(np.abs(multipliers) @ tails.excess(clip_norm))


def best_clip_norm(tails: Tails, multipliers: Float64Array, noise: float, n_params: int) -> float:
    """Return the edge where `gradient_error` is least: beyond it noise grows faster than bias falls.

    The bound is convex in the clip norm; its slope is sqrt(n_params) noise less the weighted share of gradients that
    are longer, so the minimizer is a quantile of norms.

    Examples
    --------
    >>> tails = Tails(np.array([1.0, 2.0, 4.0]), np.array([[0.5, 0.1, 0.0]]))
    >>> best_clip_norm(tails, np.ones(1), noise=0.1, n_params=4)
    2.0
    """
    errors = [gradient_error(edge, tails, multipliers, noise, n_params) for edge in tails.edges]
    return float(tails.edges[int(np.argmin(errors))])


CLIP_QUANTILE = 0.3
"""The default primal bound: this quantile of the lengths of all public rows' vectors."""

NEWEST_WEIGHT = 2.0
"""The newest count weighs NEWEST_WEIGHT / (n_counts + NEWEST_WEIGHT - 1) in the weighted mean of all counts."""

EFFECTIVE_SHARE = 0.75
"""About the effective number of counts in that mean, over their number."""

SMALLEST_SIZE_Z = 2.0
"""A cell is taken to hold at least so many standard deviations of its noisy count."""

KNOWN_SIZE_Z = 4.0
"""A cell with fewer is lost in its noise, and its rates are unknown."""

BATCH_SMOOTHING, COUNT_SMOOTHING = 0.8, 0.5
"""Of counts of the batches of all steps; of counts of everyone, which are rarer and more precise."""

SHORTEST = 1e-9
"""No bound is smaller."""

LIGHTEST = 0.05
"""Released gradients have the noise of weights that are at least so heavy: parameters must carry noise that is not
known beforehand, also while nothing pulls."""

GRID = np.geomspace(0.05, 1.0, 25)
"""Edges at which lengths are counted, over the largest public length."""


@dataclass(frozen=True, eq=False)
class Rates:
    """What is known of the groups: counts (cells x classes) of the decisions at hand, and the error of their shares.

    The error of a cell that is lost in its noise is infinite. Counts are of about `rate` of everyone: a group's rate r,
    by n people of a batch, has the variance `scatter` r (1 - r) / n beside that of noise, and everyone's own rate, as a
    sample of all people there could be, once more `rate` r (1 - r) / n.
    """

    counts: Float64Array
    errors: Float64Array
    rate: float = 1.0
    scatter: float = 0.0


@dataclass(frozen=True)
class Schedule:
    """When everyone's decisions are counted: so many times, evenly over the steps."""

    n_counts: int
    n_steps: int

    def is_due(self, step: int) -> bool:
        """Return whether a count comes before this step."""
        return step * self.n_counts // self.n_steps != (step - 1) * self.n_counts // self.n_steps


class GroupSide(Protocol):
    """What the loop needs to know of the groups."""

    @property
    def clip_norm(self) -> float:
        """The primal bound that is used."""

    def before(self, step: int, params: Float32Array) -> "GroupSide":
        """Return what is known before this step, for which the attribute is read as the plan allows."""

    def rates(self, decisions: NDArray[Any]) -> Rates:
        """Return counts of the groups for the decisions about all public rows, or for their chances (rows, classes)."""

    def tilts(self, pull: Float64Array) -> Float64Array | None:
        """Return what pulls at each public row for the groups' sake, (rows, classes); None: `gradient` says it."""

    def gradient(self, params: Float32Array, pull: Float64Array) -> Float64Array | None:
        """Return the groups' part of the gradient of the mean objective; None: `tilts` says it."""


@dataclass(frozen=True, eq=False)
class EstimatedMembership:
    """Chances of public rows, put right by counts.

    `shares` is the part that each public row makes up of each cell by its label, `residual` what was counted beyond
    it. `pulled` stands for the shares where rows are pulled at: a label counts the less the fewer people its cell has.
    """

    veils: Mapping[str, Veil]
    public: PublicRows
    model: Model
    sides: AgainstAll
    schedule: Schedule
    bound: float | None
    clip_norm: float
    n_counts: int
    seen: Float64Array
    residual: Float64Array
    shares: Float64Array
    pulled: Float64Array

    @classmethod
    def start(
        cls,
        veils: Mapping[str, Veil],
        public: PublicRows,
        model: Model,
        sides: AgainstAll,
        schedule: Schedule,
        bound: float | None,
    ) -> "EstimatedMembership":
        """Return what is known before the first count: nothing."""
        seen, residual = np.zeros(sides.n_cells), np.zeros((sides.n_cells, model.n_classes))
        shares = np.zeros((sides.n_cells, len(public.y)))
        return cls(veils, public, model, sides, schedule, bound, math.nan, 0, seen, residual, shares, shares)

    @property
    def _noise(self) -> float:
        """The standard deviation of the noise on each count."""
        return self.veils["train"].stage.releases[0].noise_multiplier

    @property
    def _sizes(self) -> Float64Array:
        """The noisy number of units in each cell, at least what can be distinguished from noise."""
        return _at_least(self.seen / max(1, self.n_counts), self._noise_of_sizes)

    @property
    def _noise_of_sizes(self) -> float:
        return self._noise * math.sqrt(self.model.n_classes / max(1, self.n_counts))

    @property
    def _errors(self) -> Float64Array:
        """The standard error of what counts say of each cell's shares."""
        return self._noise / math.sqrt(max(1.0, EFFECTIVE_SHARE * self.n_counts)) / self._sizes

    def before(self, step: int, params: Float32Array) -> "EstimatedMembership":
        """Return what is known after a count, where one is due."""
        return self.count(params) if self.schedule.is_due(step) else self

    def count(self, params: Float32Array) -> "EstimatedMembership":
        """Release the decisions of each cell; the first time the sums of gradients too."""
        sides, model = self.sides, self.model
        query = Count(sides.groups.cells, sides.n_cells, Decision(model, params, is_row_stable=True))
        counts = self.veils["train"].draw().release_counts(query, "decisions").reshape(-1, model.n_classes)
        known = replace(self, n_counts=self.n_counts + 1, seen=self.seen + counts.sum(axis=1))
        if known.n_counts == 1:
            known = known._estimated(params)
        decisions = model.logits(params, self.public.inputs_of(model)).argmax(axis=0)
        measured = np.clip(counts / known._sizes[:, None], 0.0, 1.0)
        newest = measured - known.shares @ self._decided(decisions)
        weight = min(1.0, NEWEST_WEIGHT / (known.n_counts + NEWEST_WEIGHT - 1))
        return replace(known, residual=(1 - weight) * self.residual + weight * newest)

    def _decided(self, decisions: NDArray[Any]) -> Float64Array:
        """Return the weight of each public row in the column of its decision, or shared out by its chances."""
        chances = decisions if decisions.ndim == 2 else decisions[:, None] == np.arange(self.model.n_classes)
        return chances * self.public.weights[:, None]

    def _estimated(self, params: Float32Array) -> "EstimatedMembership":
        """Release the sums of each cell and work out what part of it each public row makes up."""
        sides, public = self.sides, self.public
        sums = basis_for(public, self.model, params)
        noise = self.veils["sums"].stage.releases[0].noise_multiplier
        clip_norm = self._usual_length(sums) if self.bound is None else self.bound
        released = (
            self.veils["sums"].draw().release_sums(Sum(sides.groups.cells, sides.n_cells, sums), clip_norm, "sums")
        )
        chances = memberships(public, sums, released, noise * clip_norm, clip_norm, self._sizes, sides.cell_labels)
        own = sides.cell_labels.take(public.y, axis=1)
        # A model learns about as many labels by heart as it has parameters, and is then fair to these people and not to
        # new ones: few people are pulled at by the labels that their features lead one to expect.
        by_heart = self.model.n_params / (self.model.n_params + self._sizes)[:, None]
        expected = sides.cell_labels @ softmax(self.model.logits(params, public.inputs_of(self.model)))
        pulled = self._parts(chances * (by_heart * expected + (1 - by_heart) * own))
        return replace(self, clip_norm=clip_norm, shares=self._parts(chances * own), pulled=pulled)

    def _parts(self, chances: Float64Array) -> Float64Array:
        """Return what part each row makes up of each cell."""
        return chances / np.maximum(chances @ self.public.weights, 1.0)[:, None]

    def _usual_length(self, sums: DecisionGradient) -> float:
        """Return a primal bound by the lengths of all rows, which are public; what is cut is known and no bias."""
        lengths = public_lengths(self.public, sums)
        return float(max(np.quantile(lengths, CLIP_QUANTILE), SHORTEST)) if len(lengths) else 1.0

    def rates(self, decisions: NDArray[Any]) -> Rates:
        """Return the decisions of the estimated members, corrected by what was counted beyond noise."""
        errors = self._errors
        # James and Stein: what may be noise alone is left alone
        trust = np.maximum(0.0, 1 - np.square(errors)[:, None] / np.maximum(self.residual**2, 1e-12))
        shares = np.clip(self.shares @ self._decided(decisions) + trust * self.residual, 0.0, 1.0)
        found = self.seen / max(1, self.n_counts)
        is_known = (found > 0) & (found >= KNOWN_SIZE_Z * self._noise_of_sizes)
        return Rates(shares * self._sizes[:, None], np.where(is_known, errors, np.inf))

    def tilts(self, pull: Float64Array) -> Float64Array:
        """Return the pull on each row: that of its cells, by the part that it makes up of them."""
        return (self.pulled * self._sizes[:, None]).T @ pull

    def gradient(self, params: Float32Array, pull: Float64Array) -> None:
        """Return nothing: tilts say it."""


@dataclass(frozen=True, eq=False)
class NoisyGroupGradients:
    """The gradient of the groups at every step (Equations 8 and 10, put right), and counts of its batch or of everyone.

    Counts are smoothed over batches of about `expected` people, or over counts of everyone.
    """

    veils: Mapping[str, Veil]
    expected: float
    public: PublicRows
    model: Model
    sides: AgainstAll
    schedule: Schedule
    clip_norm: float
    dual_bound: float | None
    batch: Batch | None
    smoothed: SmoothedCounts
    step: int = 0

    @classmethod
    def start(
        cls,
        veils: Mapping[str, Veil],
        public: PublicRows,
        model: Model,
        sides: AgainstAll,
        schedule: Schedule,
        clip_norm: float,
        dual_bound: float | None,
    ) -> "NoisyGroupGradients":
        """Return what is known before the first step: nothing. A clip norm that is NaN is chosen at the first one."""
        rate = veils["train"].stage.largest_rate
        nothing = np.zeros((sides.n_cells, model.n_classes))
        expected = max(1.0, rate * public.n_units)
        return cls(
            veils,
            expected,
            public,
            model,
            sides,
            schedule,
            clip_norm,
            dual_bound,
            None,
            SmoothedCounts(nothing),
        )

    def before(self, step: int, params: Float32Array) -> "NoisyGroupGradients":
        """Draw the batch of the step, and count it, or everyone where a count is due."""
        known = self if not math.isnan(self.clip_norm) else replace(self, clip_norm=self._chosen(params))
        known = replace(known, batch=self.veils["train"].draw(), step=step)
        if self.schedule.n_counts and not self.schedule.is_due(step):
            return known
        return known.count(params)

    def count(self, params: Float32Array) -> "NoisyGroupGradients":
        """Release the decisions of each cell, or their soft scores."""
        batch = self.veils["looks"].draw() if self.schedule.n_counts else self.batch
        assert batch is not None
        kept = COUNT_SMOOTHING if self.schedule.n_counts else BATCH_SMOOTHING
        return replace(self, smoothed=self.smoothed.add(self._measured(batch, params), kept))

    @property
    def _counting(self) -> Stage:
        """The part of the plan that counts."""
        return self.veils["looks" if self.schedule.n_counts else "train"].stage

    def _chosen(self, params: Float32Array) -> float:
        """Return the primal bound with the least error of the groups' mean gradients over the run (Theorem 4).

        By noisy counts of long gradients in each cell where the plan has them, else by those of all rows.
        """
        norms = DecisionGradientNorm(self.model, params, SHARPNESS)
        lengths = norms.norms_of(self.public.inputs_of(self.model))
        edges = GRID * max(float(lengths.max(initial=0.0)), SHORTEST)
        bins = np.searchsorted(edges, lengths, side="left")
        counts = np.bincount(bins, self.public.weights, len(edges) + 1)[None].astype(np.float64)
        sizes = counts.sum() / self.sides.n_cells
        if "lengths" in self.veils:
            query = Count(self.sides.groups.cells, self.sides.n_cells, Bin(norms, edges))
            released = self.veils["lengths"].draw().release_counts(query, "lengths")
            counts = released.reshape(-1, len(edges) + 1)
            noise = self.veils["lengths"].stage.releases[0].noise_multiplier * math.sqrt(len(edges) + 1)
            sizes = float(_at_least(counts.sum(axis=1), noise).min())
        stage = self.veils["train"].stage
        rate = stage.largest_rate
        noise = stage.releases[-1].noise_multiplier / (rate * math.sqrt(stage.n_steps) * max(1.0, sizes))
        tails = Tails.from_counts(edges, counts)
        return best_clip_norm(tails, np.full(len(counts), 1 / len(counts)), noise, self.model.n_params)

    @property
    def _is_guessable(self) -> bool:
        """Whether rows could be aimed at an edge of the parameters, which are public at first."""
        return self.step < GUESSABLE_STEPS

    def _measured(self, batch: Batch, params: Float32Array) -> Float64Array:
        cells, n_cells = self.sides.groups.cells, self.sides.n_cells
        if self.dual_bound is not None:
            soft = Sum(cells, n_cells, SoftDecision(self.model, params, SHARPNESS))
            return batch.release_sums(soft, self.dual_bound, "decisions")
        is_row_stable = self._is_guessable or self.schedule.n_counts > 0
        hard = Count(cells, n_cells, Decision(self.model, params, is_row_stable=is_row_stable))
        return batch.release_counts(hard, "decisions").reshape(self.smoothed.total.shape)

    def rates(self, decisions: NDArray[Any]) -> Rates:
        """Return the smoothed counts of released batches."""
        counts, stage = self.smoothed.total / self.smoothed.weight, self._counting
        rate = stage.largest_rate
        bound = 1.0 if self.dual_bound is None else self.dual_bound
        kept = self.smoothed.squares / self.smoothed.weight**2
        noise = stage.releases[0].noise_multiplier * bound * math.sqrt(kept)
        sizes, of_sizes = counts.sum(axis=1), noise * math.sqrt(self.model.n_classes)
        errors = noise / _at_least(sizes, of_sizes)
        is_known = (sizes > 0) & (sizes >= KNOWN_SIZE_Z * of_sizes)
        return Rates(counts, np.where(is_known, errors, np.inf), rate, (1 - rate) * kept)

    def tilts(self, pull: Float64Array) -> None:
        """Return nothing: the gradient says it."""

    def gradient(self, params: Float32Array, pull: Float64Array) -> Float64Array:
        """Release sum_i w_i clip(grad h_i, C_p) over the batch, w public: no record adds more than max |w| C_p."""
        assert self.batch is not None
        counted = self._counting.largest_rate
        weights = max(1.0, counted * self.public.n_units) * pull
        table = np.vstack([weights, np.zeros(weights.shape[1])])
        objective = DecisionPrice(
            table.take(self.sides.groups.cells.ravel(), axis=0, mode="wrap").astype(np.float32), SHARPNESS
        )
        heaviest = max(float(np.ptp(weights, axis=1).max()), LIGHTEST)
        bound = max(heaviest * self.clip_norm, SHORTEST) if math.isfinite(self.clip_norm) else math.inf
        stable = self._is_guessable
        return self.batch.release_gradient(self.model, params, objective, bound, is_row_stable=stable) / self.expected


def bounded_scores(logits: Float32Array, bound: float) -> Float64Array:
    """Return soft scores (n_classes, n_rows), each row's clipped to a norm as those of groups are."""
    soft = tempered_softmax(logits, SHARPNESS).astype(np.float64)
    return soft * np.minimum(1.0, bound / np.sqrt(np.square(soft).sum(axis=0)))


def _at_least(sizes: Float64Array, noise: float) -> Float64Array:
    """Return the sizes of cells, at least what can be distinguished from noise of this standard deviation."""
    return np.maximum(sizes, 1 + SMALLEST_SIZE_Z * noise)
