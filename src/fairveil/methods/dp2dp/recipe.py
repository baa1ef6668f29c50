"""DP2DP as a recipe: train a base model and fit a rule to its scores, with one plan, one budget and one debit."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint, constrain
from fairveil.fairness.diagnostics import ConstraintTrace, FinalCheck
from fairveil.fairness.rates import HistogramConstraints, aims_below, minimum_size
from fairveil.models.base import Model, PrefittedProbabilities
from fairveil.models.rules import DecisionRule, RandomizedThresholds
from fairveil.privacy.plan import Stage
from fairveil.privacy.queries import Count, Decision
from fairveil.privacy.veil import Batch, Veil
from fairveil.training.recipe import Fit, Progress, Recipe, Task, no_progress
from fairveil.training.run import noise_of, precision_of

TYPICAL_SHARE, LARGEST_SHARE = 0.1, 0.15
ENOUGH_SIGNAL = 2000.0
"""The share of the precision that a rule takes where it is fitted on the rows that the model was trained on. A model
that noise keeps from converging needs more of it: the share grows with epsilon x size / sqrt(parameters) up to the
largest one, which it reaches at this signal."""


@dataclass(frozen=True, eq=False)
class RuleProblem:
    """What a rule is fitted to: a released model, the bounds, and who the people are. Everything here is public.

    Attributes
    ----------
    model, params
        What gives each record its logits; trained on these people or not.
    task : Task
    bounds : HistogramConstraints
        What must hold.
    size : float
        The public or noisy number of people that are counted.
    headroom : float
        How many standard errors of the people to stay below each limit.
    jitter : float
        The width of the random perturbation that breaks ties.
    """

    model: Model
    params: Float32Array
    task: Task
    bounds: HistogramConstraints
    size: float
    headroom: float = 1.0
    jitter: float = 0.0

    @cached_property
    def group_cells(self) -> NDArray[np.int64]:
        """The cell of each (group code, label) in the partition that tells groups apart as well as the bounds do."""
        coarse = self.bounds.cells
        pairs = np.stack([np.indices(coarse.shape)[0].ravel(), coarse.ravel()], axis=1)
        return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(coarse.shape)

    def plain_rule(self) -> RandomizedThresholds:
        """Return the model's own decisions between two classes, as thresholds of 0 for every group code."""
        n_groups = self.task.people.n_groups
        return RandomizedThresholds(np.zeros((n_groups, 1)), np.ones((n_groups, 1)), self.jitter)

    def count(self, batch: Batch, rule: DecisionRule, cells: NDArray[np.int64], name: str) -> Float64Array:
        """Release how many people of each cell a rule decides for each class, shape (cells, classes)."""
        n_cells = int(cells.max()) + 1
        query = Count(cells, n_cells, Decision(self.model, self.params, rule))
        return batch.release_counts(query, name).reshape(n_cells, -1)

    def check(self, batch: Batch, stage: Stage, rule: DecisionRule, name: str = "released") -> FinalCheck:
        """Release counts of the final rule, which no choice has used, and say what they show of every bound."""
        counts = self.count(batch, rule, self.bounds.cells, name)
        return FinalCheck.of_counts(self.bounds, counts, noise_of(stage, name) ** 2, minimum_size(self.size))


@dataclass(frozen=True, eq=False)
class FittedRule:
    """A fitted rule, the course of its bounds, what the last count says of them, and noisy group sizes if released."""

    rule: DecisionRule
    check: FinalCheck | None = None
    trace: ConstraintTrace | None = None
    sizes: Float64Array | None = None


class RuleSolver(Protocol):
    """A way to fit a rule: frozen public choices.

    `smallest_budget_share` is the least share of the precision that it does well with on the training rows: steps on
    multipliers need the rates of every class and group, a score histogram needs thresholds alone.
    """

    smallest_budget_share: ClassVar[float]

    def check(self, task: Task, bounds: HistogramConstraints) -> None:
        """Refuse what this solver cannot do."""

    def stages(self, noise_multiplier: float, share: float, subset: str, task: Task) -> tuple[Stage, ...]:
        """Return its stages on a subset; in all as precise as one count of everyone at this noise."""

    def fit(self, problem: RuleProblem, veils: Mapping[str, Veil]) -> FittedRule:
        """Return the rule."""


def aims_for(bounds: HistogramConstraints, errors: Float64Array, headroom: float) -> Float64Array:
    """Return what each left side should come down to, so that people who were not counted keep all limits at once.

    Below the limit by `headroom` standard `errors` of the people, more where many comparisons must hold together (the
    largest of J normal errors is about sqrt(2 log J)), but by no more than headroom / 2 of it, and never below 0.
    """
    n_comparisons = max(1, len(bounds.bounds) // 2)
    margins = headroom * max(1.0, math.sqrt(2 * math.log(n_comparisons))) * errors
    return aims_below(bounds.limits, np.where(bounds.limits > 0, margins, 0.0), min(1.0, headroom / 2))


def check_denominators(bounds: HistogramConstraints) -> None:
    """Refuse rates whose denominator depends on the decisions: no tilt or threshold is optimal for those."""
    below = bounds.below.reshape(len(bounds.below), -1, bounds.n_classes)
    if (below != below[:, :, :1]).any():
        raise InvalidParameterError(
            "Expected rates of people who do not depend on the decisions, got precision; bound it with "
            "RateConstrainedClassifier."
        )


@dataclass(frozen=True)
class PrefittedScores:
    """No training: rows are the probabilities of a classifier that was fitted elsewhere."""

    def model_for(self, task: Task) -> Any:
        """Return the model that hands probabilities through."""
        return PrefittedProbabilities(task.n_classes)

    def check(self, task: Task) -> None:
        """Refuse joint and decoupled models: what the classifier gives is what there is."""
        if task.predicts != "label":
            raise InvalidParameterError(
                "Expected a classifier of the label that reads its own columns, got one to be wrapped into a joint or "
                "decoupled model; leave the estimator out to train one."
            )

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return nothing: no row is used for training."""
        return ()

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress = no_progress,
    ) -> Fit:
        """Return no parameters."""
        return Fit(np.empty(0, dtype=np.float32))


@dataclass(frozen=True)
class Postprocessed:
    """Train a base model, then fit a rule to its scores under constraints.

    Parameters
    ----------
    base : Descent, OutputPerturbation or PrefittedScores
    solver : ScoreHistogram, DualSteps, NoisyDescent or RateFlips
    constraint : constraint or sequence of constraints
    rule_fraction : float, optional
        The share of the units kept apart for the rule; its noise then has the whole budget. None fits the rule on the
        training rows, with a share of it.
    budget_share : float, optional
        The share of the precision (of 1 / noise^2) that the rule takes on the training rows. None follows from public
        facts: 0.05 to 0.15.
    headroom, jitter : float
        As in a `RuleProblem`.
    """

    base: Recipe
    solver: RuleSolver
    constraint: Constraint | Sequence[Constraint] = ()
    rule_fraction: float | None = None
    budget_share: float | None = None
    headroom: float = 1.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if self.rule_fraction is not None and not 0 < self.rule_fraction < 1:
            raise InvalidParameterError(f"Expected 0 < rule_fraction < 1, got {self.rule_fraction!r}.")
        if self.budget_share is not None and not 0 < self.budget_share < 1:
            raise InvalidParameterError(f"Expected 0 < budget_share < 1, got {self.budget_share!r}.")
        for name in ("headroom", "jitter"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidParameterError(f"Expected {name} >= 0 and finite, got {getattr(self, name)!r}.")

    def model_for(self, task: Task) -> Model:
        """Return the model whose scores are used."""
        return self.base.model_for(task)

    def check(self, task: Task) -> None:
        """Refuse what base and solver cannot do, before anything is debited."""
        self.base.check(task)
        if self.rule_fraction is not None and isinstance(self.base, PrefittedScores):
            raise InvalidParameterError(
                "Expected no part of the rows for a rule on a classifier fitted elsewhere, got one; leave it out: all "
                "rows are the rule's."
            )
        self.solver.check(task, constrain(self.constraint, task.people))

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return the stages of base and rule, on one subset of the units or on two."""
        training = share if self.rule_fraction is None else share * (1 - self.rule_fraction)
        base = self.base.stages(noise_multiplier, training, task)
        if not base:
            return self.solver.stages(noise_multiplier, share, "train", task)
        if self.rule_fraction is not None:
            return base + self.solver.stages(noise_multiplier, share * self.rule_fraction, "rule", task)
        precision, part = sum(map(precision_of, base)), self.budget_share_for(task)
        noise = math.sqrt((1 - part) / (part * precision)) if noise_multiplier else 0.0
        return base + self.solver.stages(noise, share, base[0].subset, task)

    def budget_share_for(self, task: Task) -> float:
        """Return the share of the precision that the rule takes on the training rows."""
        if self.budget_share is not None:
            return self.budget_share
        if task.n_public is None or not task.is_private:
            return TYPICAL_SHARE
        signal = task.epsilon * task.n_public / math.sqrt(self.model_for(task).n_params)
        return min(LARGEST_SHARE, max(self.solver.smallest_budget_share, LARGEST_SHARE * signal / ENOUGH_SIGNAL))

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress = no_progress,
    ) -> Fit:
        """Return the base's parameters, the rule, and what is known of its bounds.

        Guarantees
        ----------
        Everything here is computed from noisy sums: the guarantee is that of the veils' plan.
        """
        trained = self.base.train(veils, task, size, rng, progress)
        counted = size if self.rule_fraction is None else size * (self.rule_fraction / (1 - self.rule_fraction))
        bounds = constrain(self.constraint, task.people)
        problem = RuleProblem(self.model_for(task), trained.params, task, bounds, counted, self.headroom, self.jitter)
        fitted = self.solver.fit(problem, veils)
        return Fit(trained.params, fitted.trace, fitted.check, fitted.rule, fitted.sizes)
