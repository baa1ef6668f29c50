"""DP-FERMI (Lowy, Gupta and Razaviyayn 2023): descent on the loss plus a penalty of what decisions tell of the group.

Where whole records are secret, each step releases a noisy histogram of soft decisions and a noisy clipped gradient from
one batch, as RaCO-DP does. Where the attribute alone is secret, the loss is public and only the side that reads the
attribute is noisy, as in PF-LD.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fairveil._typing import Float32Array, Float64Array
from fairveil._validation import check_choice, check_number
from fairveil.data.coded import SCHEMA_ONLY, Detail
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint
from fairveil.fairness.rates import minimum_size
from fairveil.methods.dp_sgd import Descent, DescentNumbers, gradient_noise
from fairveil.methods.fermi.penalty import Blocks, ClosedForm, Form, MinMax, blocks_of
from fairveil.methods.pf_ld.group_gradients import SHARPNESS, GroupSide
from fairveil.methods.pf_ld.recipe import DUAL_EVERY, LAST, PRIMALS, RATE, LagrangianDual, PublicDescent, falling
from fairveil.methods.raco.recipe import (
    HISTOGRAM_NOISE,
    PULL_EVERY,
    RATE_OVER_STABLE,
    SMOOTHING,
    TRAVEL_PER_SIGNAL,
    RateConstrained,
)
from fairveil.models import Average, Model, OptimizerState, Sgd
from fairveil.models.losses import tempered_softmax
from fairveil.privacy.attribute import PublicRows
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import Count, Decision, Lagrangian, SoftDecision, Sum
from fairveil.privacy.veil import Batch, Veil
from fairveil.training.features import Drift, plain_params, settled_params
from fairveil.training.multipliers import SmoothedCounts
from fairveil.training.recipe import Fit, Progress, Task, no_progress

FORMS = ("histogram", "min_max")

NOISE_Z = 4.0
"""A group of fewer people than so many standard deviations of the noise on its count is left out of the penalty."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FermiFit(Fit):
    """A fit of DP-FERMI, with the penalty at each step as the noisy histograms show it."""

    penalties: Float64Array


@dataclass(frozen=True)
class Fermi:
    """How DP-FERMI trains: private descent on the loss plus `penalty_weight` times the penalty.

    Parameters
    ----------
    constraint : parity or sequence of parities
        Which decisions are to tell nothing of the group. Set by the classifier.
    descent : Descent
        Model, steps, rates and clip norm. Where the attribute alone is secret, its model, hidden and n_steps are used,
        with ``primal="gradients"`` also its sampling_rate; the loss is then public and not clipped.
    penalty_weight : float
        The paper's lambda, the knob between accuracy (0) and parity (large).
    form : {"histogram", "min_max"}
        "histogram" takes the derivative of the penalty at the released histogram; "min_max" is the paper's, whose
        matrix W climbs while the model descends.
    ascent_rate, radius : float
        Step size of W and the largest norm of W, with "min_max" only.
    primal : {"memberships", "gradients"}, optional
        How the groups' part of the gradient is known where the attribute alone is secret, as in `LagrangianDual`.
    soft : bool
        Take the penalty at soft decisions, as the paper does. False takes it at decisions, whose gap is measured; the
        weights still move by the slope of soft decisions.
    """

    constraint: Constraint | Sequence[Constraint] = ()
    descent: Descent = field(default_factory=Descent)
    penalty_weight: float = 4.0
    form: str = "histogram"
    ascent_rate: float = 0.5
    radius: float = 5.0
    primal: str | None = None
    soft: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.constraint, list):
            object.__setattr__(self, "constraint", tuple(self.constraint))
        if not 0 <= self.penalty_weight < math.inf:
            raise InvalidParameterError(f"Expected penalty_weight >= 0 and finite, got {self.penalty_weight!r}.")
        check_choice("form", self.form, FORMS)
        check_number("ascent_rate", self.ascent_rate)
        check_number("radius", self.radius)
        if self.primal is not None:
            check_choice("primal", self.primal, PRIMALS)
        if self.descent.clipping != "flat":
            raise InvalidParameterError("Expected a descent of flat clipping under a penalty, got another one.")

    @property
    def penalty(self) -> Form:
        """The penalty in its form."""
        return ClosedForm() if self.form == "histogram" else MinMax(self.ascent_rate, self.radius)

    def model_for(self, task: Task) -> Model:
        """Return the model that is trained."""
        return self.descent.model_for(task)

    def check(self, task: Task) -> None:
        """Refuse a parity that does not fit these people, and choices that do not fit each other."""
        blocks_of(self.constraint, task.people)
        if task.hides_attribute:
            self.dual_for(task).check(task)
            return
        if self.primal is not None:
            raise InvalidParameterError(
                f'Expected primal only with protects="attribute", got {self.primal!r} where records are secret.'
            )
        self.descent.check(task)

    def detail_for(self, task: Task) -> Detail:
        """Return how finely rows should be encoded, by public facts."""
        return SCHEMA_ONLY if task.hides_attribute else self.descent.detail_for(task)

    def numbers_for(self, task: Task) -> DescentNumbers:
        """Return steps, sampling rate, clip norm and momentum where records are secret: those of RaCO-DP."""
        return RateConstrained(descent=self.descent).numbers_for(task)

    def dual_for(self, task: Task) -> LagrangianDual:
        """Return the recipe of PF-LD whose releases are used where the attribute alone is secret."""
        dual = LagrangianDual(constraint=self.constraint, descent=self.descent, primal=self.primal)
        is_soft = self.soft and dual.primal_for(task) == "gradients"  # whose counts are of a batch
        return replace(dual, dual_bound=1.0) if is_soft else dual

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return the steps, each with histogram and gradient of one batch; or what reads the attribute."""
        if task.hides_attribute:
            return self.dual_for(task).stages(noise_multiplier, share, task)
        numbers = self.numbers_for(task)
        releases = (
            Release("histogram", "gaussian", HISTOGRAM_NOISE * noise_multiplier),
            Release("gradient", "gaussian", noise_multiplier),
        )
        train = Stage("train", releases, share, {-1: numbers.sampling_rate}, numbers.n_steps)
        return (*self.descent.features.stages(train.precision, share, task), train)

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress = no_progress,
    ) -> Fit:
        """Return averaged parameters, and the penalty at each step.

        Notes
        -----
        What is secret is read through noisy sums only: the guarantee is that of the veils' plan.
        """
        public = veils["train"].public
        if public is not None:
            return self._train_on_public_rows(veils, public, task, size, rng, progress)
        blocks = blocks_of(self.constraint, task.people)
        model = self.descent.features.trained_model(self.model_for(task), task, veils)
        numbers = self.numbers_for(task)
        learning_rate = self.descent.learning_rate_for(task, size, numbers, TRAVEL_PER_SIGNAL, RATE_OVER_STABLE)
        optimizer = Sgd(learning_rate, numbers.momentum)
        ascent = PenaltyAscent.of(self, blocks, veils["train"].stage, numbers.sampling_rate * size)
        params, state, average, penalties = model.initial(rng), OptimizerState(), Average(), []
        every = PULL_EVERY if self.form == "histogram" else 1  # W climbs at every step
        for step in progress(range(numbers.n_steps)):
            batch = veils["train"].draw()
            ascent = ascent.add(self._histogram(batch, blocks, model, params))
            if step % every == 0:
                ascent, pull, penalty = ascent.pulled()
            gradient = batch.release_gradient(model, params, Lagrangian(pull), numbers.clip_norm)
            params, state = optimizer.step(params, gradient / ascent.expected_batch, state)
            penalties.append(penalty)
            if step >= numbers.n_steps // 2:
                average = average.add(params)
        noise = gradient_noise(veils["train"].stage, numbers.clip_norm) / ascent.expected_batch
        drift = Drift.of(numbers.n_steps, numbers.momentum, learning_rate, noise, size)
        params = settled_params(model, average.value(), drift)
        return FermiFit(plain_params(model, params), penalties=np.array(penalties))

    def _histogram(self, batch: Batch, blocks: Blocks, model: Model, params: Float32Array) -> Float64Array:
        """Release the decisions of each cell, soft or hard."""
        cells, n_cells = blocks.sides.groups.cells, blocks.n_cells
        if self.soft:
            return batch.release_sums(Sum(cells, n_cells, SoftDecision(model, params)), 1.0)
        return batch.release_counts(Count(cells, n_cells, Decision(model, params)), "histogram")

    def _train_on_public_rows(
        self,
        veils: Mapping[str, Veil],
        public: PublicRows,
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress,
    ) -> Fit:
        """Train where the attribute alone is secret: the groups' batches are independent of the public ones."""
        model, blocks, dual = self.model_for(task), blocks_of(self.constraint, task.people), self.dual_for(task)
        side: GroupSide = dual.side_for(veils, public, model, blocks.sides, task)
        course, form = PublicDescent(public, model), self.penalty
        memory, state, average = form.start(blocks, model.n_classes), OptimizerState(), Average()
        params, penalties, tilts, pull = course.warm_up(rng, size), [], None, np.zeros((blocks.n_cells, 1))
        for step in progress(range(dual.length)):
            side = side.before(step, params)
            if step % DUAL_EVERY == 0:
                logits = model.logits(params, public.inputs_of(model))
                soft = tempered_softmax(logits, SHARPNESS).T.astype(np.float64)
                rates = side.rates(soft if self.soft else logits.argmax(axis=0))
                counts = rates.counts * np.isfinite(rates.errors)[:, None]
                memory, pull, penalty = form.step(memory, counts, blocks, 1.0)
                # a mean over people of the batch that was counted, as if everyone was
                pull = self.penalty_weight * pull
                own = side.tilts(pull)
                tilts = None if own is None else public.n_units * own
                penalties.append(penalty)
            gradient = course.gradient(params, tilts, rng) + course.decay(size) * params
            groups = side.gradient(params, pull)
            gradient = gradient if groups is None else gradient + groups
            params, state = falling(RATE, step / dual.length).step(params, gradient, state)
            if step >= dual.length - max(1, round(LAST * dual.length)):
                average = average.add(params)
        return FermiFit(average.value(), penalties=np.array(penalties))


@dataclass(frozen=True, eq=False)
class PenaltyAscent:
    """Noisy histograms of batches in, what the penalty pulls at each pair of group and label out.

    Attributes
    ----------
    form : Form
    memory : tuple of arrays
        The state of the form.
    blocks : Blocks
    counts : SmoothedCounts
        The histograms so far.
    weight, expected_batch, noise : float
        The weight of the penalty, the public size of a batch, the standard deviation of the noise on each count.
    """

    form: Form
    memory: tuple[Float64Array, ...]
    blocks: Blocks
    counts: SmoothedCounts
    weight: float
    expected_batch: float
    noise: float

    @classmethod
    def of(cls, recipe: Fermi, blocks: Blocks, stage: Stage, expected_batch: float) -> "PenaltyAscent":
        """Return the state before any count."""
        n_classes, form = blocks.sides.groups.n_classes, recipe.penalty
        counts = SmoothedCounts(np.zeros((blocks.n_cells, n_classes)))
        noise = stage.noise_multipliers["histogram"]
        memory = form.start(blocks, n_classes)
        return cls(form, memory, blocks, counts, recipe.penalty_weight, expected_batch, noise)

    def add(self, counts: Float64Array) -> "PenaltyAscent":
        """Return the state after one more histogram."""
        n_classes = self.blocks.sides.groups.n_classes
        return replace(self, counts=self.counts.add(counts.reshape(-1, n_classes), SMOOTHING))

    def pulled(self) -> tuple["PenaltyAscent", Float32Array, float]:
        """Return the next state of the form, the pull on each (group x label) atom, and the penalty."""
        n_classes, smoothed = self.blocks.sides.groups.n_classes, self.counts
        noise = self.noise * math.sqrt(n_classes * smoothed.squares) / smoothed.weight
        minimum = max(minimum_size(self.expected_batch), NOISE_Z * noise)
        memory, pull, penalty = self.form.step(self.memory, smoothed.total / smoothed.weight, self.blocks, minimum)
        of_cells = np.zeros((self.blocks.n_cells + 1, n_classes), dtype=np.float32)
        # atoms that are in no cell feel none
        of_cells[:-1] = self.weight * self.expected_batch * pull
        atoms = of_cells.take(self.blocks.sides.groups.cells.ravel(), axis=0, mode="wrap")
        return replace(self, memory=memory), atoms, penalty
