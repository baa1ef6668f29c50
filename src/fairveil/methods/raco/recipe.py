"""RaCO-DP (Yaghini et al. 2025): private descent and ascent under constraints on rates, from a noisy histogram."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array
from fairveil._validation import check_choice, check_positive
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint, constrain
from fairveil.fairness.diagnostics import ConstraintTrace, quantile
from fairveil.fairness.histogram import HistogramConstraints
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.raco.threshold import ThresholdAdjustment, adjustment_stage
from fairveil.models import Average, Model, Sgd
from fairveil.privacy.noise import NoiseDistribution, noise_distribution
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import Count, Decision, Lagrangian, SoftDecision, Sum
from fairveil.privacy.veil import Batch, Veil
from fairveil.training.multipliers import PULL_EVERY, Ascent, DualState
from fairveil.training.recipe import Fit, Progress, Task, no_progress

HISTOGRAM_NOISE = 2.0
"""Noise on the histogram over the noise on the gradient: it takes a fifth of a step's budget."""

N_STEPS = 600
"""Twice as many as without constraints: multipliers need time to settle, and may then move gently."""

MOMENTUM = 0.8
"""Less than without constraints: weights that answer late make multipliers swing."""

TYPICAL_RATE = 0.1
TRAVEL_PER_SIGNAL = 5.0
"""As in `descent`, a little longer: constraints pull the weights further."""

RATE_OVER_STABLE = 4.0
"""The learning rate over what is stable without clipping: clipped gradients bear more, not any amount."""

CLIP_PER_NORM = 0.8
"""The clip norm over the largest input norm. A smaller one holds back the people a constraint pulls at, most of all
rare positives, and then no multiplier can move them (paper 002, Figure 8a)."""


@dataclass(frozen=True)
class RateConstrained:
    """Descent on the loss, ascent on the multipliers of bounds on rates, one noisy histogram a step for both.

    Parameters
    ----------
    constraint : constraint or list of them
        What must hold, `DemographicParity(tolerance=0.05)` for instance.
    descent : Descent
        Model, steps, rates and clip norm; an open clip norm is 0.8 times the largest norm of an encoded row with its
        intercept.
    histogram : str
        The law of the histogram's noise: "gaussian", "laplace" (as in the paper), or any other registered law.
    laplace_scale : float, optional
        The scale of Laplace noise on each count (the paper's b has three meanings); None follows from the budget.
        Without privacy there is no noise.
    temperature : float
        Of the soft decisions whose slope moves the weights.
    soft_rates : bool
        Let the multipliers follow soft rates, as the paper does, instead of decisions; the gap of decisions is then
        not bounded.
    headroom : float
        How many standard errors of the people to stay below each limit, so that people who were not seen meet it too.
    last_look : bool
        Ask once more at the averaged parameters and settle the threshold.
    """

    constraint: Constraint | Sequence[Constraint] = ()
    descent: Descent = field(default_factory=Descent)
    histogram: str = "gaussian"
    laplace_scale: float | None = None
    temperature: float = 1.0
    soft_rates: bool = False
    headroom: float = 1.0
    last_look: bool = True

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)
        noise_distribution(self.histogram)
        if isinstance(self.constraint, list):
            object.__setattr__(self, "constraint", tuple(self.constraint))
        if self.laplace_scale is not None:
            check_positive("laplace_scale", self.laplace_scale)
            check_choice("histogram (with a laplace_scale)", self.histogram, ("laplace",))
        if not 0 <= self.headroom < math.inf:
            raise InvalidParameterError(f"Expected headroom >= 0 and finite, got {self.headroom!r}.")
        if self.descent.group_clipping:
            raise InvalidParameterError(
                "Expected a descent without group clipping under constraints, got one with it."
            )

    def model_for(self, task: Task) -> Model:
        """Return the model that is trained."""
        return self.descent.model_for(task)

    def check(self, task: Task) -> None:
        """Refuse a constraint that does not fit these people, and noise that does not fit the histogram."""
        constrain(self.constraint, task.people)
        self.descent_for(task).check(task)
        if self.soft_rates and self._law.is_whole:
            raise InvalidParameterError(
                f"Expected a law of real noise for soft rates, got {self.histogram!r}; take gaussian or laplace."
            )

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return the steps, each with histogram and gradient of one batch, and the last look at the same people."""
        releases = (
            Release("histogram", self.histogram, self._histogram_noise(noise_multiplier)),
            Release("gradient", "gaussian", noise_multiplier),
        )
        steps = Stage("train", releases, share, {-1: self._rate(task)}, self.descent_for(task).length)
        return (
            (steps, adjustment_stage(noise_multiplier, steps, task.n_classes)) if self.last_look else (steps,)
        )

    def _rate(self, task: Task) -> float:
        """Return the sampling rate; an open one is a tenth at most, because each batch also pays for its histogram."""
        rate = self.descent.rate_for(task)
        return rate if self.descent.sampling_rate is not None else min(rate, TYPICAL_RATE)

    def _histogram_noise(self, noise_multiplier: float) -> float:
        if self.laplace_scale is not None and noise_multiplier:
            return self.laplace_scale
        return HISTOGRAM_NOISE * noise_multiplier / math.sqrt(self._law.spread)

    def descent_for(self, task: Task) -> Descent:
        """Return the descent with steps, momentum and clip norm settled."""
        open_numbers: dict[str, Any] = {"n_steps": N_STEPS, "momentum": MOMENTUM}
        if task.is_private:
            open_numbers["clip_norm"] = CLIP_PER_NORM * task.input_norm
        settled = {name: value for name, value in open_numbers.items() if getattr(self.descent, name) is None}
        return replace(self.descent, **settled)

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress = no_progress,
    ) -> Fit:
        """Return averaged parameters with settled thresholds, the trace of all bounds, and what the last look says.

        Guarantees
        ----------
        Everything here is computed from noisy sums: the guarantee is that of the veils' plan. That the bounds hold is
        measured, not guaranteed.
        """
        constraints = constrain(self.constraint, task.people)
        descent, model = self.descent_for(task), self.model_for(task)
        ascent = self._ascent(constraints, veils["train"].stage, size)
        optimizer, clip_norm = self._optimizer(descent, task, size), descent.clip_norm_for(task)
        params, dual, trace = model.initial(rng), ascent.start(), []
        state, average = optimizer.start(params), Average.start(params)
        for step in progress(range(descent.length)):
            batch = veils["train"].draw()
            dual = ascent.observe(dual, self.histogram_of(batch, model, params, constraints), step)
            if step % PULL_EVERY == 0:
                objective = self.objective_of(ascent, dual)
            gradient = batch.release_gradient(model, params, objective, clip_norm)
            params, state = optimizer.step(params, gradient / ascent.expected_batch, state)
            trace.append(dual)
            if step >= descent.length // 2:
                average = average.add(params)
        params, told = average.value(), self._told(trace, ascent)
        if not self.last_look:
            return Fit(params, told)
        watched = ThresholdAdjustment.watching(constraints, task.people)
        look = ThresholdAdjustment(
            veils["look"].draw(), veils["look"].stage, watched, model, params, size, self.headroom
        )
        params, check = look.settle(objective, clip_norm)
        return Fit(params, told, check)

    def _optimizer(self, descent: Descent, task: Task, size: float) -> Sgd:
        """Return the descent's own rule, held where a large clip norm would let it swing."""
        rate = descent.learning_rate_for(task, size, TRAVEL_PER_SIGNAL)
        if descent.learning_rate is None:
            rate = min(rate, RATE_OVER_STABLE * descent.stable_rate_for(task))
        return Sgd(rate, descent.momentum_used)

    def _ascent(self, constraints: HistogramConstraints, stage: Stage, size: float) -> Ascent:
        (rate,) = stage.sampling_rates.values()
        noise = stage.releases[0].noise_multiplier
        return Ascent(
            constraints, stage.n_steps, rate * size, rate, self._law.spread * noise**2, self.headroom
        )

    @property
    def _law(self) -> NoiseDistribution:
        return noise_distribution(self.histogram)

    def histogram_of(
        self, batch: Batch, model: Model, params: Float32Array, constraints: HistogramConstraints
    ) -> NDArray[np.float64]:
        """Release how many people of each cell are decided for each class (Equation 9, hard or soft)."""
        cells, n_cells = constraints.cells, constraints.n_cells
        if self.soft_rates:
            return batch.release_sums(Sum(cells, n_cells, SoftDecision(model, params, self.temperature)), 1.0)
        hard = Count(cells, n_cells, Decision(model, params))
        return batch.release_counts(hard, "histogram").reshape(n_cells, model.n_classes)

    def objective_of(self, ascent: Ascent, dual: DualState) -> Lagrangian:
        """Return the loss with the pull of each atom's cell; atoms that no rate counts feel none (Equation 10)."""
        constraints = ascent.constraints
        pull = np.zeros((constraints.n_cells + 1, constraints.n_classes), dtype=np.float32)
        pull[:-1] = ascent.pull(dual)
        return Lagrangian(pull.take(constraints.cells.ravel(), axis=0, mode="wrap"), self.temperature)

    def _told(self, duals: list[DualState], ascent: Ascent) -> ConstraintTrace:
        width = quantile("laplace" if self._law.norm == 1 else "gaussian", 0.95)
        return ConstraintTrace(
            np.arange(len(duals)),
            np.array([dual.values for dual in duals]),
            width * np.array([ascent.errors(dual) for dual in duals]),
            np.array([dual.multipliers for dual in duals]),
            ascent.constraints.bounds,
        )
