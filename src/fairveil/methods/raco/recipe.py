"""RaCO-DP (Yaghini et al. 2025): private descent and ascent under constraints on rates, from a noisy histogram.

The final count at the averaged parameters is that of `thresholds`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fairveil._typing import Float32Array, Float64Array
from fairveil._validation import check_choice, check_number
from fairveil.data.coded import Detail
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint, constrain
from fairveil.fairness.diagnostics import ConstraintTrace, quantile
from fairveil.fairness.rates import HistogramConstraints, aims_below, compile_bounds, minimum_size
from fairveil.methods.dp_sgd import Descent, DescentNumbers, gradient_noise
from fairveil.methods.raco.thresholds import ACCURACY, LARGEST_PULL, ThresholdAdjustment, adjustment_stage
from fairveil.models import Average, Model, OptimizerState, Sgd
from fairveil.privacy.noise import NoiseDistribution, noise_distribution
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import Count, Decision, Lagrangian, SoftDecision, Sum
from fairveil.privacy.veil import Veil
from fairveil.training.features import Drift, plain_params, settled_params
from fairveil.training.multipliers import DualAscent, Multipliers, SmoothedCounts
from fairveil.training.recipe import Fit, Progress, Task, no_progress

HISTOGRAM_NOISE = 2.0
"""Noise on the histogram over the noise on the gradient: it takes a fifth of a step's budget."""

N_STEPS = 600
"""Twice as many as without constraints: multipliers need time to settle, and may then move gently."""

MOMENTUM = 0.8
"""Less than without constraints: weights that answer late make multipliers swing."""

TYPICAL_RATE = 0.1
"""The largest open sampling rate: each batch also pays for its histogram."""

TRAVEL_PER_SIGNAL = 5.0
"""As in `dp_sgd`, a little longer: constraints pull the weights further."""

RATE_OVER_STABLE = 4.0
"""The learning rate over what is stable without clipping: clipped gradients bear more, not any amount."""

CLIP_PER_NORM = 0.8
"""The clip norm over the largest input norm. A smaller one holds back the people a constraint pulls at, most of all
rare positives, and then no multiplier can move them (RaCO-DP, Figure 8a)."""

DUAL_TRAVEL = 60.0
"""How far the integral of a bound moves over all steps if the bound is broken by 1 all the time."""

DUAL_GAIN = 1.0
"""The share of the present excess that is added to the integral."""

TYPICAL_SHARE = 0.3
"""A bound on fewer people than this share of a batch moves more slowly, by a square root: few people answer slowly."""

MEANINGFUL_EXCESS = 0.05
"""Excesses are ignored as far as they may be noise: all of it where the noise is far above this, little below."""

SMOOTHING = 0.9
"""What older histograms weigh after one more step, relative to the newest."""

WARM_UP = 0.1
"""The share of the first steps, while the model leaves its start, in which multipliers do not move."""

REFRESH = 10
"""Aims and caps change slowly: they are computed anew after so many steps."""

PULL_EVERY = 2
"""The pull changes slowly too: it is computed anew after so many steps."""


class RatePace(NamedTuple):
    """What the dual steps use until the next refresh, one entry per bound.

    What each left side should come down to, the speed of its multiplier, the largest multiplier, and the standard error
    of the left side from noise of variance 1 on every count.
    """

    aims: Float64Array
    speeds: Float64Array
    caps: Float64Array
    errors: Float64Array


class RateState(NamedTuple):
    """The smoothed histogram with its left sides, the multipliers, and their pull on each (atom, class), so far."""

    counts: SmoothedCounts
    values: Float64Array
    multipliers: Multipliers
    pace: RatePace
    pull: Float32Array


@dataclass(frozen=True, eq=False)
class RateAscent:
    """Noisy histograms of batches in, multipliers of bounds on rates out (Algorithm 1).

    Parameters
    ----------
    constraints : HistogramConstraints
    n_steps : int
    expected_batch, sampling_rate : float
    noise_variance : float
        Of each count of one batch.
    headroom : float
        How many standard errors of the people to stay below each limit.
    """

    constraints: HistogramConstraints
    n_steps: int
    expected_batch: float
    sampling_rate: float
    noise_variance: float
    headroom: float = 1.0

    @cached_property
    def _minimum(self) -> float:
        return minimum_size(self.expected_batch)

    @cached_property
    def _ascent(self) -> DualAscent:
        return DualAscent(DUAL_TRAVEL / self.n_steps, gain=DUAL_GAIN, warm_up=WARM_UP * self.n_steps)

    def start(self) -> RateState:
        """Return the state before any count: all multipliers are 0."""
        constraints, none = self.constraints, np.zeros(len(self.constraints.bounds))
        counts = SmoothedCounts(np.zeros((constraints.n_cells, constraints.n_classes)))
        pull = np.zeros((constraints.cells.size, constraints.n_classes), dtype=np.float32)
        multipliers = Multipliers(none, none, none, np.ones(len(none)))
        return RateState(counts, none, multipliers, RatePace(none, none, none, none), pull)

    def observe(self, state: RateState, counts: Float64Array, step: int) -> RateState:
        """Return the state after the histogram of one more batch."""
        constraints, pace, pull = self.constraints, state.pace, state.pull
        smoothed = state.counts.add(counts, SMOOTHING)
        average, minimum = smoothed.total / smoothed.weight, self._minimum
        if step % REFRESH == 0:
            found = constraints.estimate(average, 1.0, minimum)
            people = found.sampling_errors * np.sqrt(self.sampling_rate)
            shares = found.smallest_denominators / self.expected_batch
            noise = math.sqrt(self.noise_variance * smoothed.squares) / smoothed.weight * found.noise_errors
            aims = aims_below(constraints.limits, self.headroom * people)
            pace = RatePace(
                aims + noise**2 / (noise + MEANINGFUL_EXCESS),
                np.sqrt(np.minimum(shares / TYPICAL_SHARE, 1.0)),
                LARGEST_PULL * shares,
                found.noise_errors,
            )
        ratios = constraints.ratios(average, minimum)
        values = constraints.weights.dot(ratios.rates)
        multipliers = self._ascent.step(state.multipliers, values - pace.aims, pace.speeds, pace.speeds, caps=pace.caps)
        if step % PULL_EVERY == 0:
            # of each atom's cell, for sums over a batch of the expected size; atoms that no rate counts feel none
            of_cells = np.zeros((constraints.n_cells + 1, constraints.n_classes), dtype=np.float32)
            of_cells[:-1] = self.expected_batch * constraints.pull_of(ratios, multipliers.values)
            pull = of_cells.take(constraints.cells.ravel(), axis=0, mode="wrap")
        return RateState(smoothed, values, multipliers, pace, pull)

    def trace(self, states: Sequence[RateState], law: NoiseDistribution) -> ConstraintTrace:
        """Return the course of all bounds, with the width of the noise on their left sides."""
        width = quantile("laplace" if law.norm == 1 else "gaussian", 0.95)
        noise = math.sqrt(self.noise_variance)
        errors = [noise * (math.sqrt(s.counts.squares) / s.counts.weight) * s.pace.errors for s in states]
        return ConstraintTrace(
            np.arange(len(states)),
            np.array([state.values for state in states]),
            width * np.array(errors),
            np.array([state.multipliers.values for state in states]),
            self.constraints.bounds,
        )


@dataclass(frozen=True)
class RateConstrained:
    """Training under bounds on rates: descent on the loss and ascent on multipliers, by one noisy histogram per step.

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
    final_check : bool
        Count once more at the averaged parameters and adjust the thresholds.
    """

    constraint: Constraint | Sequence[Constraint] = ()
    descent: Descent = field(default_factory=Descent)
    histogram: str = "gaussian"
    laplace_scale: float | None = None
    temperature: float = 1.0
    soft_rates: bool = False
    headroom: float = 1.0
    final_check: bool = True

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature)
        noise_distribution(self.histogram)
        if isinstance(self.constraint, list):
            object.__setattr__(self, "constraint", tuple(self.constraint))
        if self.laplace_scale is not None:
            check_number("laplace_scale", self.laplace_scale)
            check_choice("histogram (with a laplace_scale)", self.histogram, ("laplace",))
        if not 0 <= self.headroom < math.inf:
            raise InvalidParameterError(f"Expected headroom >= 0 and finite, got {self.headroom!r}.")
        if self.descent.clipping != "flat":
            raise InvalidParameterError("Expected a descent of flat clipping under constraints, got another one.")

    def model_for(self, task: Task) -> Model:
        """Return the model that is trained."""
        return self.descent.model_for(task)

    def check(self, task: Task) -> None:
        """Refuse a constraint that does not fit these people, and noise that does not fit the histogram."""
        constrain(self.constraint, task.people)
        self.descent.check(task)
        if self.soft_rates and noise_distribution(self.histogram).is_whole:
            raise InvalidParameterError(
                f"Expected a law of real noise for soft rates, got {self.histogram!r}; take gaussian or laplace."
            )

    def numbers_for(self, task: Task) -> DescentNumbers:
        """Return steps, sampling rate, clip norm and momentum; those left open are other than without constraints."""
        own, numbers = self.descent, self.descent.numbers_for(task)
        if own.n_steps is None:
            numbers = numbers._replace(n_steps=N_STEPS)
        if own.momentum is None:
            numbers = numbers._replace(momentum=MOMENTUM)
        if own.sampling_rate is None:
            numbers = numbers._replace(sampling_rate=min(numbers.sampling_rate, TYPICAL_RATE))
        if own.clip_norm is None and task.is_private:
            numbers = numbers._replace(clip_norm=CLIP_PER_NORM * task.input_norm)
        return numbers

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return the steps, each with histogram and gradient of one batch, and the final count of the same people."""
        numbers = self.numbers_for(task)
        rate, n_steps = numbers.sampling_rate, numbers.n_steps
        last: tuple[Stage, ...] = ()
        if self.final_check:
            last = (adjustment_stage(noise_multiplier, share, rate, n_steps, task.n_classes),)
        noise = HISTOGRAM_NOISE * noise_multiplier / math.sqrt(noise_distribution(self.histogram).spread)
        if self.laplace_scale is not None and noise_multiplier:
            noise = self.laplace_scale
        releases = (
            Release("histogram", self.histogram, noise),
            Release("gradient", "gaussian", noise_multiplier),
        )
        train = Stage("train", releases, share, {-1: rate}, n_steps)
        return (*self.descent.features.stages(train.precision, share, task), train, *last)

    def detail_for(self, task: Task) -> Detail:
        """Return how finely rows should be encoded, by public facts."""
        return self.descent.detail_for(task)

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress = no_progress,
    ) -> Fit:
        """Return averaged parameters with adjusted thresholds, the trace of all bounds, and the final check.

        Notes
        -----
        Everything here is computed from noisy sums: the guarantee is that of the veils' plan. That the bounds hold is
        measured, not guaranteed.
        """
        constraints = constrain(self.constraint, task.people)
        model = self.descent.features.trained_model(self.model_for(task), task, veils)
        numbers, law = self.numbers_for(task), noise_distribution(self.histogram)
        n_steps, clip_norm, rate = numbers.n_steps, numbers.clip_norm, numbers.sampling_rate
        cells, n_cells = constraints.cells, constraints.n_cells
        variance = law.spread * veils["train"].stage.noise_multipliers["histogram"] ** 2
        ascent = RateAscent(constraints, n_steps, rate * size, rate, variance, self.headroom)
        now, states = ascent.start(), []
        params = model.initial(rng)
        learning_rate = self.descent.learning_rate_for(task, size, numbers, TRAVEL_PER_SIGNAL, RATE_OVER_STABLE)
        optimizer = Sgd(learning_rate, numbers.momentum)
        state, average = OptimizerState(), Average()
        for step in progress(range(n_steps)):
            batch = veils["train"].draw()
            if self.soft_rates:  # Equation 9, soft or hard
                counts = batch.release_sums(Sum(cells, n_cells, SoftDecision(model, params, self.temperature)), 1.0)
            else:
                counts = batch.release_counts(Count(cells, n_cells, Decision(model, params)), "histogram")
            now = ascent.observe(now, counts.reshape(n_cells, -1), step)
            objective = Lagrangian(now.pull, self.temperature)  # Equation 10
            gradient = batch.release_gradient(model, params, objective, clip_norm)
            params, state = optimizer.step(params, gradient / ascent.expected_batch, state)
            states.append(now)
            if step >= n_steps // 2:
                average = average.add(params)
        noise = gradient_noise(veils["train"].stage, clip_norm) / ascent.expected_batch
        drift = Drift.of(n_steps, numbers.momentum, learning_rate, noise, size)
        params, trace = settled_params(model, average.value(), drift), ascent.trace(states, law)
        if not self.final_check:
            return Fit(plain_params(model, params), trace)
        watched = compile_bounds([*constraints.bounds, ACCURACY], task.people)
        adjustment = ThresholdAdjustment(
            veils["look"].draw(), veils["look"].stage, watched, model, params, size, self.headroom
        )
        params, check = adjustment.settle(objective, clip_norm)
        return Fit(plain_params(model, params), trace, check)
