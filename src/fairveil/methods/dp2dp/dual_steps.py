"""Few large-batch steps on the multipliers, with annealed smoothing and averaging: any classes, aware or not.

The best rule under bounds is argmax_k p_k(x) - sum_q tilt[q, k] P(q|x), where q runs over cells of (group, label) and
tilt is the pull of the bounds on the counts, at multipliers that minimise the dual. The dual's gradient is what the
bounds are broken by, always counted with the true group and label of the rows. P(q|x) is the indicator of the group
times the probability of the label (aware), or a joint model's (unaware).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float64Array
from fairveil._validation import check_integer, check_positive, check_probability
from fairveil.fairness.diagnostics import ConstraintTrace, quantile
from fairveil.fairness.histogram import HistogramConstraints
from fairveil.methods.dp2dp.problem import FittedRule, RuleProblem, aims_for, check_counted, noise_of
from fairveil.models.rules import TiltedArgmax
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import RuleDecision, Sum
from fairveil.privacy.veil import Veil
from fairveil.training.recipe import Task

REPORTED = 0.1
"""The share of the precision that the last count takes."""

LARGE_BATCH = 50_000
STEP = 2.0
CALM = 0.03
SLOWING = 0.4
ANNEALED = 0.6
BRAKE = 0.7
"""A multiplier moves by STEP x share of the people x excess / (t + 1)^SLOWING; smoothing is 0 after this share of the
steps. A bound that surely swings across its aim moves BRAKE times as fast from then on. Set on public data sets:
docs/defaults.md."""


@dataclass(frozen=True)
class DualSteps:
    """Projected steps on the multipliers, from noisy (cell x decision) tables of large batches.

    Parameters
    ----------
    n_steps : int
    sampling_rate : float, optional
        None takes everyone, up to about 50,000 people a step.
    smoothing : float
        Of the soft decisions at the first step, in units of probability; it falls to 0.
    """

    smallest_budget_share: ClassVar[float] = 0.1

    n_steps: int = 150
    sampling_rate: float | None = None
    smoothing: float = 0.05

    def __post_init__(self) -> None:
        check_integer("n_steps", self.n_steps, at_least=2)
        check_positive("smoothing", self.smoothing)
        if self.sampling_rate is not None:
            check_probability("sampling_rate", self.sampling_rate)

    def check(self, task: Task, bounds: HistogramConstraints) -> None:
        """Refuse rates whose denominator moves with the decisions."""
        check_counted(bounds)

    def rate_for(self, task: Task) -> float:
        """Return the sampling rate."""
        if self.sampling_rate is not None:
            return self.sampling_rate
        return 1.0 if task.n_public is None else min(1.0, LARGE_BATCH / task.n_public)

    def stages(self, noise_multiplier: float, share: float, subset: str, task: Task) -> tuple[Stage, ...]:
        """Return the steps and the last count."""
        rate = self.rate_for(task)
        step_noise = noise_multiplier * rate * (self.n_steps / (1 - REPORTED)) ** 0.5
        steps = Release("histogram", "gaussian", step_noise)
        last = Release("released", "gaussian", noise_multiplier / REPORTED**0.5)
        return (
            Stage("rule", (steps,), share, {-1: rate}, self.n_steps, subset),
            Stage("check", (last,), share, subset=subset),
        )

    def fit(self, scene: RuleProblem, veils: Mapping[str, Veil]) -> FittedRule:
        """Return the rule at the mean of the last half of the multipliers."""
        bounds, stage = scene.bounds, veils["rule"].stage
        rate = max(stage.sampling_rates.values())
        noise = noise_of(stage, "histogram") / rate
        multipliers, mean = np.zeros(len(bounds.bounds)), np.zeros((bounds.n_cells, bounds.n_classes))
        course, seen, widths = [], [], []
        before, brakes = np.zeros(len(bounds.bounds)), np.ones(len(bounds.bounds))
        for step in range(self.n_steps):
            rule = tilted_rule(scene, mean, multipliers)
            soft = RuleDecision(scene.model, scene.params, rule, bounds.n_classes, self._smoothing(step))
            query = Sum(bounds.cells, bounds.n_cells, soft)
            counts = veils["rule"].draw().release_sums(query, 1.0) / rate
            mean = mean + (counts - mean) / (step + 1)
            values = bounds.values(_of_size(counts, mean), scene.floor)
            errors = bounds.standard_errors(mean, noise**2, scene.floor)
            excess = values - aims_for(bounds, mean, scene.headroom, scene.floor)
            brakes = np.where(_swings(before, excess, errors), BRAKE * brakes, brakes)
            multipliers = self._moved(scene, multipliers, brakes * excess, mean, errors, step)
            before = excess
            course.append(multipliers)
            seen.append(values)
            widths.append(errors)
        multipliers = np.mean(course[self.n_steps // 2 :], axis=0)
        rule = tilted_rule(scene, mean, multipliers)
        told = ConstraintTrace(
            np.arange(self.n_steps),
            np.array(seen),
            quantile("gaussian", 0.95) * np.array(widths),
            np.array(course),
            bounds.bounds,
        )
        return FittedRule(rule, scene.check(veils["check"].draw(), veils["check"].stage, rule), told)

    def _smoothing(self, step: int) -> float:
        return self.smoothing * max(0.0, 1 - step / (ANNEALED * self.n_steps))

    def _moved(
        self,
        scene: RuleProblem,
        multipliers: Float64Array,
        excess: Float64Array,
        mean: Float64Array,
        errors: Float64Array,
        step: int,
    ) -> Float64Array:
        """Return the multipliers after one projected step; bounds on too few people to speak of stay at 0."""
        bounds = scene.bounds
        shares = bounds.smallest_parts(mean, scene.floor) / scene.size
        crowd = np.maximum((bounds.weights != 0).sum(axis=0).max() / 2, 1.0)
        pace = (
            STEP * shares / crowd / (step + 1) ** SLOWING * np.minimum(1.0, CALM / np.maximum(errors, 1e-12))
        )
        moved = np.maximum(multipliers + pace * excess, 0.0)
        return np.where(shares * scene.size > scene.floor, moved, 0.0)


def _swings(before: Float64Array, excess: Float64Array, errors: Float64Array) -> NDArray[np.bool_]:
    """Return where a left side went from one side of its aim to the other, further than noise goes."""
    return (before * excess < 0) & (np.minimum(np.abs(before), np.abs(excess)) > 2 * errors)


def _of_size(counts: Float64Array, mean: Float64Array) -> Float64Array:
    """Return counts moved so that each cell has the mean's size: it is the same in every step, and noisier in one."""
    return counts + (mean - counts).mean(axis=1, keepdims=True)


def tilted_rule(scene: RuleProblem, counts: Float64Array, multipliers: Float64Array) -> TiltedArgmax:
    """Return the rule argmax_k p_k - sum_q tilt[q, k] P(q|x) at these multipliers.

    `counts` (cells x classes) only serve as the sizes of cells: what a decision does to a rate is one over the size.
    """
    bounds, task = scene.bounds, scene.task
    tilts = np.zeros((bounds.n_cells + 1, bounds.n_classes))
    tilts[:-1] = scene.size * bounds.pull(counts, multipliers, scene.floor)
    tilts[:-1] -= tilts[:-1].mean(axis=1, keepdims=True)
    tables = np.eye(task.n_classes) - tilts[bounds.cells].transpose(0, 2, 1)  # (groups, K, label)
    if task.predicts != "joint":
        return TiltedArgmax(tables, scene.jitter)
    return TiltedArgmax(np.concatenate(list(tables[task.people.codes]), axis=1)[None], scene.jitter)
