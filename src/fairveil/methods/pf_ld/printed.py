"""PF-LD in the form that its paper prints (Algorithm 1 with Equations 8 and 10), with noise that covers what it hides.

Epochs over public mini-batches; in each step the gradient of the loss and of everyone's term over the mini-batch, and a
noisy gradient of the groups' terms, every record's clipped to C_p; after each epoch one dual step from noisy means of h
over everyone, cut at C_d. Learning rate and multipliers are plain: no momentum, no averaging, no slack.

Where the print cannot be private as it stands (docs/errata.md), it differs: groups are summed and divided by released
sizes, not by secret ones; people whose attribute is read are drawn by secret coins, apart from the public mini-batch;
the sign of a difference is that of noisy sums of h over the same batch, smoothed over past batches; noise is inside the
absolute value. In the first epoch all multipliers are 0, so no attribute is read and nothing is paid.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil.fairness.diagnostics import ConstraintTrace, quantile
from fairveil.methods.pf_ld.group_gradients import BATCH_SMOOTHING, KNOWN_SIZE_Z, LIGHTEST, SHORTEST
from fairveil.methods.pf_ld.membership import AgainstAll
from fairveil.models import Model, OptimizerState, Sgd
from fairveil.models.base import Known
from fairveil.models.losses import logits_pull
from fairveil.models.optimizers import GUESSABLE_STEPS
from fairveil.privacy.attribute import PublicRows
from fairveil.privacy.queries import Sum
from fairveil.privacy.veil import Batch, Veil
from fairveil.privacy.votes import PRINTED_SHARPNESS, VotePrice, Votes, vote_pull, votes_of
from fairveil.training.multipliers import SmoothedCounts
from fairveil.training.recipe import Progress

PRIMAL_BOUND, DUAL_BOUND = 1.0, 5.0
"""C_p and C_d. C_d is the paper's; its C_p, 10, lets in ten times the noise, and gradients here are rarely so long."""

N_EPOCHS = 20
LEARNING_RATE, DUAL_RATE = 0.1, 10.0
"""alpha and s, which the paper does not state. They and C_p were set on Adult with seeds below 100."""

LARGEST = 1e6
"""No entry of a gradient or of the parameters is larger: what noise carries far away must remain a number."""


@dataclass(frozen=True)
class Epochs:
    """How often parameters and multipliers move: so many epochs of so many mini-batches."""

    n_epochs: int
    n_batches: int

    @classmethod
    def at(cls, sampling_rate: float, n_epochs: int) -> "Epochs":
        """Return epochs whose mini-batches make up everyone, at this share of everyone for each.

        Examples
        --------
        >>> Epochs.at(0.3, 5)
        Epochs(n_epochs=5, n_batches=4)
        """
        return cls(n_epochs, math.ceil(1 / sampling_rate - 1e-9))

    @property
    def n_steps(self) -> int:
        """All primal steps."""
        return self.n_epochs * self.n_batches

    @property
    def n_releases(self) -> int:
        """The primal steps that read the attribute: all but those of the first epoch."""
        return (self.n_epochs - 1) * self.n_batches


@dataclass(frozen=True, eq=False)
class DualStep:
    """The multipliers of each difference, and the released votes (cells x classes) whose sizes weights are made of.

    A multiplier of a group that is lost in its noise is not used (`known` is 0).
    """

    multipliers: Float64Array
    known: Float64Array
    votes: Float64Array


@dataclass(frozen=True, eq=False)
class PrintedLoop:
    """One training in the printed form.

    `loss_bound` is C_d in accuracy parity, where h is the loss, and None where h is the score.
    """

    veils: Mapping[str, Veil]
    public: PublicRows
    model: Model
    sides: AgainstAll
    epochs: Epochs
    clip_norm: float
    loss_bound: float | None
    learning_rate: float
    dual_rate: float
    lambda_max: float

    @property
    def unit(self) -> float:
        """What h is for one vote."""
        return 1.0 if self.loss_bound is None else self.loss_bound

    def run(self, rng: np.random.Generator, progress: Progress) -> tuple[Float32Array, ConstraintTrace]:
        """Return the last parameters, and the differences and multipliers after each epoch."""
        params, state, optimizer = self.model.initial(rng), OptimizerState(), Sgd(self.learning_rate)
        params = params + rng.normal(0.0, 1e-3, len(params)).astype(params.dtype)
        n_batches, nothing, trace = self.epochs.n_batches, np.zeros(len(self.sides)), []
        now = DualStep(nothing, nothing, np.zeros((self.sides.n_cells, self.model.n_classes)))
        seen = _Seen.nothing(self)
        for step in progress(range(self.epochs.n_steps)):
            epoch, place = divmod(step, n_batches)
            if place == 0:
                batches = np.array_split(rng.permutation(len(self.public.y)), n_batches)
            if epoch == 0:
                gradient = self.public_gradient(params, batches[place], nothing)
            else:
                batch = self.veils["train"].draw()
                seen = seen.add(self, params, batch, batches[place])
                signed = now.multipliers * now.known * np.sign(seen.differences(self.sides))
                gradient = self.public_gradient(params, batches[place], signed)
                gradient = gradient + self.group_gradient(params, batch, now, signed, step - n_batches)
            params, state = optimizer.step(params, np.clip(gradient, -LARGEST, LARGEST), state)
            params = np.clip(params, -LARGEST, LARGEST)
            if place == n_batches - 1:
                now, (values, errors) = self.dual_step(params, now)
                trace.append((step, values, errors, now.multipliers))
        steps, values, errors, multipliers = (np.array(column) for column in zip(*trace, strict=True))
        widths = np.minimum(quantile("gaussian", 0.95) * errors, self.unit)
        return params, ConstraintTrace(steps, values, widths, multipliers, self.sides.bounds)

    def public_gradient(self, params: Float32Array, rows: NDArray[np.integer], signed: Float64Array) -> Float64Array:
        """Return the gradient of the mean loss and of signed multipliers times everyone's mean h over a mini-batch."""
        X, y = self.public.inputs_of(self.model)[rows], self.public.y[rows]
        weights = self.public.weights[rows].astype(np.float32)
        activations = self.model.forward(params, X)
        pulls = logits_pull(activations[-1], y) / np.float32(max(weights.sum(), SHORTEST))
        if signed.any():
            votes = self.everyone(votes_of(activations[-1], y, self.loss_bound), rows)
            pull = self.sides.everyone.pull(votes, self.unit * signed)
            cells = self.sides.label_cells[y]
            tilts = pull.take(cells, axis=0, mode="wrap").T * (cells >= 0)
            pulls = pulls + vote_pull(activations[-1], y, tilts.astype(np.float32), self.loss_bound)
        pulls = np.ascontiguousarray(pulls * weights)
        total = self.model.clipped_gradient(params, X, pulls, math.inf, Known(activations))
        return np.nan_to_num(
            total.astype(np.float64), posinf=0.0, neginf=0.0
        )  # noise may carry a deep network far away

    def group_gradient(
        self, params: Float32Array, batch: Batch, now: DualStep, signed: Float64Array, n_before: int
    ) -> Float64Array:
        """Release the gradient of the groups' terms: w_a clip(grad h_i, C_p) added up over a secret batch.

        Weights w follow from multipliers, signs and sizes that were released before. They are one for each group in
        demographic and accuracy parity; in equalized odds a group's bound is that of the heavier of its labels.
        """
        weights = self.public.n_units * self.sides.groups.pull(now.votes, -self.unit * signed)
        cells = self.sides.groups.cells
        table = np.vstack([weights, np.zeros(weights.shape[1])]).take(cells.ravel(), axis=0, mode="wrap")
        heaviest = np.ptp(table, axis=1).reshape(cells.shape).max(axis=1) / self.unit
        heaviest[-1] = LIGHTEST  # nobody's, but noise is drawn for the largest: parameters must always carry some
        bound: float | Float32Array = math.inf
        if math.isfinite(self.clip_norm):
            bound = np.maximum(heaviest * self.clip_norm, SHORTEST).astype(np.float32)
        objective = VotePrice(table.astype(np.float32), PRINTED_SHARPNESS, self.loss_bound)
        released = batch.release_gradient(
            self.model,
            params,
            objective,
            bound,
            is_row_stable=n_before < GUESSABLE_STEPS,
        )
        return released / max(1.0, self.veils["train"].stage.largest_rate * self.public.n_units)

    def votes(self, params: Float32Array, batch: Batch) -> Float64Array:
        """Release the votes of each cell, shape (cells, classes)."""
        query = Sum(self.sides.groups.cells, self.sides.n_cells, Votes(self.model, params, self.loss_bound))
        return batch.release_sums(query, 1.0, "decisions")

    def dual_step(self, params: Float32Array, now: DualStep) -> tuple[DualStep, tuple[Float64Array, Float64Array]]:
        """Release the votes of everyone and raise every multiplier by the size of its difference.

        Also return the differences of mean h and their standard errors.
        """
        veil = self.veils["looks"]
        noise = veil.stage.releases[0].noise_multiplier
        votes = np.maximum(self.votes(params, veil.draw()), 0.0)
        logits = self.model.logits(params, self.public.inputs_of(self.model))
        everyone = self.everyone(votes_of(logits, self.public.y, self.loss_bound), slice(None))
        sizes = self._reads @ votes.sum(axis=1)
        known = np.asarray(sizes >= max(1.0, KNOWN_SIZE_Z * noise * math.sqrt(votes.shape[1])))
        differences = np.where(known, self.unit * self.sides.violations(votes, everyone), 0.0)
        errors = np.where(known, self.unit * self.sides.groups.estimate(votes, noise**2).noise_errors, np.inf)
        multipliers = np.minimum(now.multipliers + self.dual_rate * np.abs(differences), self.lambda_max)
        return DualStep(multipliers, known.astype(np.float64), votes), (differences, errors)

    @cached_property
    def _reads(self) -> Float64Array:
        """Which cells stand below the rate of each difference, shape (differences, cells)."""
        groups = self.sides.groups
        below = groups.below.reshape(-1, self.sides.n_cells, self.model.n_classes).max(axis=2)
        found: Float64Array = (below > 0)[groups.weights.argmax(axis=1)].astype(np.float64)
        return found

    def everyone(self, votes: NDArray[np.floating], rows: NDArray[np.integer] | slice) -> Float64Array:
        """Return the votes of these public rows by the cell of their label; exact."""
        cells = self.sides.label_cells[self.public.y[rows]]
        weights, n_cells = self.public.weights[rows], self.sides.everyone.n_cells
        found = [votes @ np.where(np.equal(cells, cell), weights, 0.0) for cell in range(n_cells)]
        return np.nan_to_num(np.array(found, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class _Seen:
    """The votes of past batches, smoothed: of the groups, which are noisy, and of everyone, which are public."""

    groups: SmoothedCounts
    everyone: SmoothedCounts

    @classmethod
    def nothing(cls, loop: PrintedLoop) -> "_Seen":
        n_classes = loop.model.n_classes
        shapes = (loop.sides.n_cells, n_classes), (loop.sides.everyone.n_cells, n_classes)
        return cls(*(SmoothedCounts(np.zeros(shape)) for shape in shapes))

    def add(self, loop: PrintedLoop, params: Float32Array, batch: Batch, rows: NDArray[np.integer]) -> "_Seen":
        logits = loop.model.logits(params, loop.public.inputs_of(loop.model)[rows])
        public = loop.everyone(votes_of(logits, loop.public.y[rows], loop.loss_bound), rows)
        secret = loop.votes(params, batch)
        return _Seen(self.groups.add(secret, BATCH_SMOOTHING), self.everyone.add(public, BATCH_SMOOTHING))

    def differences(self, sides: AgainstAll) -> Float64Array:
        """Return everyone's mean vote less each group's."""
        groups, everyone = (one.total / one.weight for one in (self.groups, self.everyone))
        return sides.violations(np.maximum(groups, 0.0), everyone)
