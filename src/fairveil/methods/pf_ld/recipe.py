"""PF-LD and F-LD: the Lagrangian dual method where the sensitive attribute alone is secret (Tran et al. 2021).

The loss is minimized on public features and labels without noise; a signed multiplier of each difference between
everyone's rate and a group's grows with it, and pulls at soft decisions. Only what is known of the groups is released.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil._validation import check_choice, check_number
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint, ErrorRateParity
from fairveil.fairness.diagnostics import ConstraintTrace, quantile
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.pf_ld.group_gradients import (
    SHARPNESS,
    EstimatedMembership,
    GroupSide,
    NoisyGroupGradients,
    Rates,
    Schedule,
    bounded_scores,
)
from fairveil.methods.pf_ld.membership import AgainstAll, against_all
from fairveil.methods.pf_ld.printed import DUAL_BOUND, LEARNING_RATE, N_EPOCHS, PRIMAL_BOUND, Epochs, PrintedLoop
from fairveil.methods.pf_ld.printed import DUAL_RATE as PRINTED_DUAL_RATE
from fairveil.models import Adam, Average, Model, OptimizerState
from fairveil.models.base import Known
from fairveil.models.losses import logits_pull, soft_decision_pull
from fairveil.privacy.attribute import PublicRows
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.veil import Veil
from fairveil.training.features import check_plain_features
from fairveil.training.multipliers import DualAscent, Multipliers
from fairveil.training.recipe import Fit, Progress, Task, no_progress

PRIMALS = ("memberships", "gradients")
FORMS = ("default", "printed")
N_STEPS, WARM_UP = 600, 400
"""Steps with multipliers, and steps before them on the loss alone, which read no attribute."""

BATCH = 2048
RATE, WARM_RATE = 0.01, 0.02
"""Of Adam; both fall to a tenth over their steps."""

DUAL_EVERY = 5
DUAL_RATE, DUAL_GAIN = 1.0, 1.0
"""What a step of the multipliers adds of each difference, and what the present one adds for the moment."""

HALF_SPEED_ERROR = 0.01
"""A difference known to a standard error of this moves its multiplier half as fast, one known less well more slowly.
The error is that of an estimate for all people there could be: a cell of few would else make multipliers oscillate."""

DECAY, LARGEST_DECAY = 0.006, 2e-3
"""Weight decay is DECAY times the number of parameters over that of units."""

LAST, WARM_LAST = 0.15, 0.3
"""The share of the last steps whose parameters are averaged, with multipliers and before them."""

N_COUNTS = {"memberships": 10, "gradients": 0}
COUNT_SHARE, LENGTH_SHARE = 0.5, 0.04
"""Of the precision: for all counts of everyone; for lengths, over that of the steps, where they choose a bound."""

COUNT_NOISE = 1.5
"""Noise on counts over that on the gradient, where both are released at every step."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LagrangianFit(Fit):
    """A fit of PF-LD, with the primal bound that it used."""

    clip_norm: float


@dataclass(frozen=True)
class LagrangianDual:
    """How PF-LD trains: a public descent on the loss, and multipliers of the differences between groups.

    Parameters
    ----------
    constraint : parity or sequence of parities
        Which differences are to vanish. Set by the classifier.
    descent : Descent
        Its model, hidden and n_steps are used, for "gradients" also its sampling_rate. Its learning_rate and momentum
        are not used; clip_norm and clipping are refused, because the loss is public and not clipped.
    lambda_max : float
        No multiplier is larger: the knob between accuracy (small) and parity (large).
    primal : {"memberships", "gradients"}, optional
        How the groups' part of the gradient is known. "memberships" releases sums of gradients once and estimates from
        them the chance of each public row to be in each group; "gradients" releases the gradient at every step, as the
        paper does. None is the first under privacy and the second without, which is F-LD.
    primal_bound : float or "private", optional
        C_p, to which each record's gradient is clipped. None follows from all rows' gradients, which are public here;
        "private", with "gradients" only, from noisy counts of long gradients in each group (Theorem 4). Memberships are
        estimated from the vectors as they were clipped, so that clipping costs them no bias.
    dual_bound : float, optional
        C_d. None lets multipliers follow decisions, whose counts are bounded as they are; a number lets them follow
        soft scores, clipped to it, as the paper does (with "gradients" only).
    slack : float
        A difference between everyone's rate and a group's is not chased below this: new people differ by as much.
    n_counts : int, optional
        How often the decisions of everyone are counted. None is 10 times with "memberships"; with "gradients" it is
        never, and the batch of every step is counted (a number once an epoch is the paper's dual step on all rows).
        In the printed form it is the number of epochs; None is 20.
    form : {"default", "printed"}
        "printed" is the loop of the paper's Algorithm 1 with Equations 8 and 10: epochs of plain steps with
        ``descent.learning_rate`` (None is 0.1) over mini-batches of ``descent.sampling_rate``, and a dual step after
        each of them. What h is follows from the constraint: scores, or in accuracy parity (`ErrorRateParity`) the loss
        cut at ``dual_bound``. Bounds left open are 1 and 5 (the paper's are 10 and 5); slack is not used.
    dual_rate : float, optional
        What a dual step adds to a multiplier for each unit of its difference. None is 1, in the printed form 10.
    """

    constraint: Constraint | Sequence[Constraint] = ()
    descent: Descent = field(default_factory=lambda: Descent(model="mlp", hidden=(32,)))
    lambda_max: float = 5.0
    primal: str | None = None
    primal_bound: float | str | None = None
    dual_bound: float | None = None
    slack: float = 0.01
    n_counts: int | None = None
    form: str = "default"
    dual_rate: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.constraint, list):
            object.__setattr__(self, "constraint", tuple(self.constraint))
        object.__setattr__(self, "lambda_max", check_number("lambda_max", self.lambda_max))
        if not 0 <= self.slack < 1:
            raise InvalidParameterError(f"Expected 0 <= slack < 1, got {self.slack!r}.")
        if self.n_counts is not None:
            check_number("n_counts", self.n_counts, whole=True)
        if self.primal is not None:
            check_choice("primal", self.primal, PRIMALS)
        check_choice("form", self.form, FORMS)
        if self.dual_rate is not None:
            object.__setattr__(self, "dual_rate", check_number("dual_rate", self.dual_rate))
        if isinstance(self.primal_bound, str):
            check_choice("primal_bound", self.primal_bound, ("private",))
        elif self.primal_bound is not None:
            object.__setattr__(self, "primal_bound", check_number("primal_bound", self.primal_bound))
        if self.dual_bound is not None:
            object.__setattr__(self, "dual_bound", check_number("dual_bound", self.dual_bound))
        if self.descent.clip_norm is not None or self.descent.clipping != "flat":
            raise InvalidParameterError(
                "Expected a descent without clipping, because the loss is public here, got one with it; primal_bound "
                "is what bounds the groups' gradients."
            )
        check_plain_features(self.descent.features)

    def model_for(self, task: Task) -> Model:
        """Return the model that is trained."""
        return self.descent.model_for(task)

    def check(self, task: Task) -> None:
        """Refuse a constraint that does not fit these people, and choices that do not fit each other."""
        against_all(self.constraint, task.people)
        self.descent.check(task)
        if self.form == "printed":
            self._check_printed()
            return
        if self.primal_for(task) == "memberships" and self.dual_bound is not None:
            raise InvalidParameterError(
                'Expected dual_bound with primal="gradients" only, got it with "memberships", which counts decisions.'
            )
        if self.n_counts is not None and self.dual_bound is not None:
            raise InvalidParameterError(
                "Expected dual_bound or n_counts, got both; counts of everyone are of decisions, which are bounded."
            )
        if self.primal_for(task) == "memberships" and self.primal_bound == "private":
            raise InvalidParameterError(
                'Expected primal_bound="private" with primal="gradients" only, got it with "memberships", to which '
                "clipping costs no bias; leave it open."
            )

    def _check_printed(self) -> None:
        """Refuse what the printed form does not have."""
        if self.primal == "memberships" or self.primal_bound == "private":
            raise InvalidParameterError(
                'Expected primal="gradients" and a number for primal_bound with form="printed", got others; leave them '
                "out."
            )
        if self.descent.n_steps is not None or (self.n_counts is not None and self.n_counts < 2):
            raise InvalidParameterError(
                'Expected n_counts >= 2, the number of epochs, and no n_steps with form="printed", got others.'
            )
        kinds = {isinstance(one, ErrorRateParity) for one in self._parities}
        if len(kinds) > 1:
            raise InvalidParameterError(
                'Expected error rate parity alone with form="printed", because it compares losses and other parities '
                "compare scores, got both; name one."
            )
        if kinds == {False} and self.dual_bound is not None and self.dual_bound < 1:
            raise InvalidParameterError(
                f'Expected dual_bound >= 1 with form="printed" where scores are compared, which are at most 1, got '
                f"{self.dual_bound!r}."
            )

    @property
    def _parities(self) -> tuple[Constraint, ...]:
        return tuple(self.constraint) if isinstance(self.constraint, Sequence) else (self.constraint,)

    def epochs_for(self, task: Task) -> Epochs:
        """Return the epochs of the printed form."""
        n_epochs = N_EPOCHS if self.n_counts is None else self.n_counts
        return Epochs.at(self.descent.numbers_for(task).sampling_rate, n_epochs)

    def primal_for(self, task: Task) -> str:
        """Return how the groups' part of the gradient is known."""
        if self.primal is not None:
            return self.primal
        return "memberships" if task.is_private else "gradients"

    @property
    def length(self) -> int:
        """The number of steps with multipliers."""
        return N_STEPS if self.descent.n_steps is None else self.descent.n_steps

    def n_counts_for(self, task: Task) -> int:
        """Return how often the decisions of everyone are counted."""
        own = N_COUNTS[self.primal_for(task)] if self.n_counts is None else self.n_counts
        return min(own, self.length)

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return the stages on the people whose attribute is known, at this noise."""
        rates = {-1: self.descent.numbers_for(task).sampling_rate}
        gradient = Release("gradient", "gaussian", noise_multiplier)
        if self.form == "printed":
            epochs = self.epochs_for(task)
            counts = Release("decisions", "gaussian", COUNT_NOISE * noise_multiplier)
            steps = Stage("train", (counts, gradient), share, rates, epochs.n_releases)
            return steps, _part_of_all("looks", "decisions", epochs.n_epochs, COUNT_SHARE, steps)
        n_counts = self.n_counts_for(task)
        if self.primal_for(task) == "memberships":
            counts = Release("decisions", "gaussian", noise_multiplier * math.sqrt(n_counts / COUNT_SHARE))
            sums = Release("sums", "gaussian", noise_multiplier / math.sqrt(1 - COUNT_SHARE))
            return (
                Stage("train", (counts,), share, n_steps=n_counts, by_group=True),
                Stage("sums", (sums,), share, subset="train", by_group=True),
            )
        counts = Release("decisions", "gaussian", COUNT_NOISE * noise_multiplier)
        releases = (gradient,) if n_counts else (counts, gradient)
        steps = Stage("train", releases, share, rates, self.length)
        stages = [steps]
        if n_counts:
            stages.append(_part_of_all("looks", "decisions", n_counts, COUNT_SHARE, steps))
        if self.primal_bound == "private":
            stages.append(_part_of_all("lengths", "lengths", 1, LENGTH_SHARE, steps))
        return tuple(stages)

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress = no_progress,
    ) -> Fit:
        """Return averaged parameters, and the course of all differences and multipliers.

        Notes
        -----
        What reads the attribute is computed from noisy sums: the guarantee is that of the veils' plan. Features and
        labels are used as they are.
        """
        public = veils["train"].public
        if public is None:
            raise InvalidParameterError(
                "Expected people of whom the attribute alone is secret, got whole records; use LagrangianClassifier."
            )
        model, sides = self.model_for(task), against_all(self.constraint, task.people)
        if self.form == "printed":
            loop = self._printed(veils, public, model, sides, task)
            params, trace = loop.run(rng, progress)
            return LagrangianFit(params, trace, clip_norm=loop.clip_norm)
        side = self.side_for(veils, public, model, sides, task)
        course = _Course(public, model, self, sides)
        params = course.warm_up(rng, size)
        return course.run(params, side, size, rng, progress)

    def _printed(
        self, veils: Mapping[str, Veil], public: PublicRows, model: Model, sides: AgainstAll, task: Task
    ) -> PrintedLoop:
        bound = self.primal_bound if isinstance(self.primal_bound, float) else None
        if bound is None:
            bound = PRIMAL_BOUND if task.is_private else math.inf
        loss_bound = None
        if isinstance(self._parities[0], ErrorRateParity):
            loss_bound = DUAL_BOUND if self.dual_bound is None else self.dual_bound
        return PrintedLoop(
            veils,
            public,
            model,
            sides,
            self.epochs_for(task),
            bound,
            loss_bound,
            LEARNING_RATE if self.descent.learning_rate is None else self.descent.learning_rate,
            PRINTED_DUAL_RATE if self.dual_rate is None else self.dual_rate,
            self.lambda_max,
        )

    def side_for(
        self, veils: Mapping[str, Veil], public: PublicRows, model: Model, sides: AgainstAll, task: Task
    ) -> GroupSide:
        """Return the side that reads the attribute, as the veils of `stages` let it."""
        bound = self.primal_bound if isinstance(self.primal_bound, float) else None
        schedule = Schedule(self.n_counts_for(task), self.length)
        if self.primal_for(task) == "memberships":
            return EstimatedMembership.start(veils, public, model, sides, schedule, bound)
        if bound is None:
            bound = math.nan if task.is_private else math.inf
        return NoisyGroupGradients.start(veils, public, model, sides, schedule, bound, self.dual_bound)


def _part_of_all(name: str, release: str, n_steps: int, stage: float, steps: Stage) -> Stage:
    """Return counts of everyone, at this share of the precision of the steps."""
    precision = stage * steps.precision
    noise = math.sqrt(n_steps / precision) if precision else 0.0
    counted = Release(release, "gaussian", noise)
    return Stage(name, (counted,), steps.share, n_steps=n_steps, subset=steps.subset, by_group=True)


def falling(rate: float, passed: float) -> Adam:
    """Return the optimizer at this share of the steps."""
    return Adam(rate * max(0.1, 1 - passed))


@dataclass(frozen=True, eq=False)
class PublicDescent:
    """Descent on public rows, whose loss needs no noise."""

    public: PublicRows
    model: Model

    def warm_up(self, rng: np.random.Generator, size: float) -> Float32Array:
        """Return parameters of the loss alone; a little public chance keeps them off every edge."""
        params = self.model.initial(rng)
        params = params + rng.normal(0.0, 1e-3, len(params)).astype(params.dtype)
        average, state = Average(), OptimizerState()
        for step in range(WARM_UP):
            gradient = self.gradient(params, None, rng) + self.decay(size) * params
            params, state = falling(WARM_RATE, step / WARM_UP).step(params, gradient, state)
            if step >= (1 - WARM_LAST) * WARM_UP:
                average = average.add(params)
        return average.value()

    def decay(self, size: float) -> float:
        """Return the weight decay for so many units."""
        return min(DECAY * self.model.n_params / size, LARGEST_DECAY)

    def gradient(self, params: Float32Array, tilts: Float64Array | None, rng: np.random.Generator) -> Float64Array:
        """Return the gradient of the mean public objective on a batch of public coins: loss, and what tilts pull."""
        rows = self.public.sample(BATCH, rng)
        X = self.public.inputs_of(self.model)[rows]
        activations = self.model.forward(params, X)
        dlogits = logits_pull(activations[-1], self.public.y[rows])
        if tilts is not None:
            dlogits = dlogits + soft_decision_pull(activations[-1], tilts[rows].T.astype(np.float32), SHARPNESS)
        total = self.model.clipped_gradient(params, X, dlogits, math.inf, Known(activations))
        return total.astype(np.float64) / max(1, len(rows))


@dataclass(frozen=True, eq=False)
class _Course(PublicDescent):
    """One training on public rows, with what is known of the groups."""

    recipe: LagrangianDual
    sides: AgainstAll

    def run(
        self, params: Float32Array, side: GroupSide, size: float, rng: np.random.Generator, progress: Progress
    ) -> Fit:
        """Return averaged parameters after all steps, from those of the warm-up."""
        length = self.recipe.length
        ascent = DualAscent(
            DUAL_RATE if self.recipe.dual_rate is None else self.recipe.dual_rate,
            gain=DUAL_GAIN,
            cap=self.recipe.lambda_max,
            is_signed=True,
            slack=self.recipe.slack,
        )
        now, trace, state = ascent.start(len(self.sides)), [], OptimizerState()
        average, pull, tilts = Average(), np.zeros(0), None
        for step in progress(range(length)):
            side = side.before(step, params)
            if step % DUAL_EVERY == 0:
                now, pull, tilts, seen = self._ascended(ascent, now, params, side)
                trace.append((step, *seen, now.values))
            gradient = self.gradient(params, tilts, rng) + self.decay(size) * params
            own = side.gradient(params, pull)
            optimizer = falling(RATE, step / length)
            params, state = optimizer.step(params, gradient if own is None else gradient + own, state)
            if step >= length - max(1, round(LAST * length)):
                average = average.add(params)
        return LagrangianFit(average.value(), self._trace(trace), clip_norm=side.clip_norm)

    def _ascended(
        self, ascent: DualAscent, now: Multipliers, params: Float32Array, side: GroupSide
    ) -> tuple[Multipliers, Float64Array, Float64Array, tuple[Float64Array, Float64Array]]:
        """Return the multipliers after one dual step, their pull on each cell and on each public row.

        Last come the differences between rates and their standard errors.
        """
        logits = self.model.logits(params, self.public.inputs_of(self.model))
        decisions = logits.argmax(axis=0)
        rates, everyone = side.rates(decisions), self._count(decisions)
        if self.recipe.dual_bound is not None:  # like with like: scores of groups beside scores of everyone
            everyone = self._add_up(bounded_scores(logits, self.recipe.dual_bound))
        differences = np.clip(self.sides.violations(rates.counts, everyone), -1.0, 1.0)
        errors = self._errors(rates, rates.scatter)
        speeds = 1 / (1 + self._errors(rates, rates.scatter + rates.rate) / HALF_SPEED_ERROR)
        now = ascent.step(now, differences, speeds, np.isfinite(errors).astype(float))
        pull = self.sides.groups.pull(rates.counts, -now.values)
        of_all = self.sides.everyone.pull(everyone, now.values)
        is_counted = (self.sides.label_cells >= 0)[:, None]
        of_label = np.where(is_counted, of_all.take(self.sides.label_cells, axis=0, mode="wrap"), 0.0)
        tilts, own = of_label.take(self.public.y, axis=0), side.tilts(pull)
        tilts = self.public.n_units * (tilts if own is None else tilts + own)
        return now, pull, tilts, (differences, errors)

    def _count(self, decisions: NDArray[np.integer]) -> Float64Array:
        """Return everyone's counts by cell of their label and decision; public, and exact."""
        return self._add_up(np.equal.outer(np.arange(self.model.n_classes), decisions))

    def _add_up(self, votes: NDArray[Any]) -> Float64Array:
        """Return the sum of votes (n_classes, n_rows) in each cell of everyone."""
        cells, n_cells = self.sides.label_cells[self.public.y], self.sides.everyone.n_cells
        weights = [np.where(np.equal(cells, cell), self.public.weights, 0.0) for cell in range(n_cells)]
        return np.array([votes @ own for own in weights], dtype=np.float64)

    def _errors(self, rates: Rates, scatter: float) -> Float64Array:
        """Return the standard error of each difference: of its group's rate, over all cells that this is made of."""
        groups = self.sides.groups
        below = groups.below.reshape(-1, self.sides.n_cells, self.model.n_classes).any(axis=2)
        sizes = np.maximum(rates.counts.sum(axis=1), 1.0)
        noise = np.square(np.where(below, sizes * rates.errors, 0.0)).sum(axis=1)
        totals = np.where(below, sizes, 0.0).sum(axis=1)
        shares = (totals * np.clip(groups.ratios(rates.counts).rates, 0.0, 1.0) + 1) / (totals + 2)
        errors = np.sqrt(noise / totals**2 + scatter * shares * (1 - shares) / totals)
        return errors[groups.weights.argmax(axis=1)]

    def _trace(self, trace: list[tuple]) -> ConstraintTrace:
        steps, values, errors, multipliers = (np.array(column) for column in zip(*trace, strict=True))
        width = quantile("gaussian", 0.95)
        # nothing is known of a cell that is lost in its noise: a rate is somewhere between 0 and 1
        return ConstraintTrace(steps, values, np.minimum(width * errors, 1.0), multipliers, self.sides.bounds)
