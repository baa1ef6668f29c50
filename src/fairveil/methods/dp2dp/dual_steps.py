"""Few large-batch steps on the multipliers, with annealed smoothing and averaging: any classes, aware or not.

The best rule under bounds is argmax_k p_k(x) - sum_q tilt[q, k] P(q|x), where q runs over cells of (group, label) and
tilt is the pull of the bounds on the counts, at multipliers that minimize the dual. The dual's gradient is what the
bounds are broken by, always counted with the true group and label of the rows. P(q|x) is the indicator of the group
times the probability of the label (aware), or a joint model's (unaware).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairveil._typing import Float64Array
from fairveil._validation import check_number
from fairveil.fairness.diagnostics import ConstraintTrace, quantile
from fairveil.fairness.rates import HistogramConstraints, minimum_size
from fairveil.methods.dp2dp.thresholds import FittedRule, RuleProblem, aims_for
from fairveil.models.rules import TiltedArgmax
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import RuleDecision, Sum
from fairveil.privacy.veil import Veil
from fairveil.training.multipliers import DualAscent
from fairveil.training.recipe import Task

REPORTED_SHARE = 0.1
"""The share of the precision that the last count takes."""

LARGE_BATCH = 50_000
"""The largest expected batch where the sampling rate is left open."""

ASCENT = DualAscent(rate=2.0, decay=0.4, brake=0.7)
"""The rate is for a bound on everyone; all numbers were set on public data sets: docs/defaults.md."""

STEADY_ERROR = 0.03
"""A left side known less well than to this standard error moves its multiplier more slowly, in proportion."""

SMOOTHED_SHARE = 0.6
"""Smoothing of the decisions falls to 0 over this share of the steps."""


@dataclass(frozen=True)
class DualSteps:
    """Projected steps on the multipliers, from noisy (cell x decision) tables of large batches.

    Parameters
    ----------
    n_steps : int
        How many steps are made on the multipliers.
    sampling_rate : float, optional
        None takes everyone, up to about 50,000 people per step.
    smoothing : float
        Of the soft decisions at the first step, in units of probability; it falls to 0.
    """

    smallest_budget_share: ClassVar[float] = 0.1
    people_per_group: ClassVar[float] = 0.0

    n_steps: int = 150
    sampling_rate: float | None = None
    smoothing: float = 0.05

    def __post_init__(self) -> None:
        check_number("n_steps", self.n_steps, whole=True, at_least=2)
        check_number("smoothing", self.smoothing)
        if self.sampling_rate is not None:
            check_number("sampling_rate", self.sampling_rate, at_most=1)

    def check(self, task: Task, bounds: HistogramConstraints) -> None:
        """Refuse nothing: any classes and bounds, aware or not."""

    def stages(self, noise_multiplier: float, share: float, subset: str, task: Task) -> tuple[Stage, ...]:
        """Return the steps and the last count."""
        rate = self.sampling_rate
        if rate is None:
            rate = 1.0 if task.n_public is None else min(1.0, LARGE_BATCH / task.n_public)
        step_noise = noise_multiplier * rate * (self.n_steps / (1 - REPORTED_SHARE)) ** 0.5
        steps = Release("histogram", "gaussian", step_noise)
        last = Release("released", "gaussian", noise_multiplier / REPORTED_SHARE**0.5)
        return (
            Stage("rule", (steps,), share, {-1: rate}, self.n_steps, subset),
            Stage("check", (last,), share, subset=subset),
        )

    def fit(self, problem: RuleProblem, veils: Mapping[str, Veil]) -> FittedRule:
        """Return the rule at the mean of the last half of the multipliers."""
        bounds, stage, minimum = problem.bounds, veils["rule"].stage, minimum_size(problem.size)
        rate = stage.largest_rate
        noise = stage.noise_multipliers["histogram"] / rate
        n_together = np.maximum((bounds.weights != 0).sum(axis=0).max() / 2, 1.0)  # bounds that share a rate
        mean, now = np.zeros((bounds.n_cells, bounds.n_classes)), ASCENT.start(len(bounds.bounds))
        multipliers, left_sides, widths = [], [], []
        for step in range(self.n_steps):
            smoothing = self.smoothing * max(0.0, 1 - step / (SMOOTHED_SHARE * self.n_steps))
            rule = tilted_rule(problem, mean, now.values)
            soft = RuleDecision(problem.model, problem.params, rule, bounds.n_classes, smoothing)
            query = Sum(bounds.cells, bounds.n_cells, soft)
            counts = veils["rule"].draw().release_sums(query, 1.0) / rate
            mean = mean + (counts - mean) / (step + 1)
            # a cell has the same size in every step: the mean knows it better than one count does
            values = bounds.values(counts + (mean - counts).mean(axis=1, keepdims=True), minimum)
            known = bounds.estimate(mean, noise**2, minimum)
            errors, shares = known.noise_errors, known.smallest_denominators / problem.size
            excess = values - aims_for(bounds, known.sampling_errors, problem.headroom)
            speeds = shares / n_together * np.minimum(1.0, STEADY_ERROR / np.maximum(errors, 1e-12))
            # bounds on too few people to speak of stay at 0
            caps = np.where(shares * problem.size > minimum, np.inf, 0.0)
            now = ASCENT.step(now, excess, speeds, caps=caps, errors=errors)
            multipliers.append(now.values)
            left_sides.append(values)
            widths.append(errors)
        rule = tilted_rule(problem, mean, np.mean(multipliers[self.n_steps // 2 :], axis=0))
        trace = ConstraintTrace(
            np.arange(self.n_steps),
            np.array(left_sides),
            quantile("gaussian", 0.95) * np.array(widths),
            np.array(multipliers),
            bounds.bounds,
        )
        counts = problem.count(veils["check"].draw(), rule, bounds.cells, "released")
        return FittedRule(rule, counts, veils["check"].stage.noise_multipliers["released"], trace)


def tilted_rule(problem: RuleProblem, counts: Float64Array, multipliers: Float64Array) -> TiltedArgmax:
    """Return the rule argmax_k p_k - sum_q tilt[q, k] P(q|x) at these multipliers.

    `counts` (cells x classes) only serve as the sizes of cells: what a decision does to a rate is one over the size.
    """
    bounds, task = problem.bounds, problem.task
    tilts = np.zeros((bounds.n_cells + 1, bounds.n_classes))
    tilts[:-1] = problem.size * bounds.pull(counts, multipliers, minimum_size(problem.size))
    tilts[:-1] -= tilts[:-1].mean(axis=1, keepdims=True)
    tables = np.eye(task.n_classes) - tilts[bounds.cells].transpose(0, 2, 1)  # (groups, K, label)
    if task.predicts != "joint":
        return TiltedArgmax(tables, problem.jitter)
    return TiltedArgmax(np.concatenate(list(tables[task.people.codes]), axis=1)[None], problem.jitter)
