"""What a rule is fitted to: a released model, the bounds, and who the people are. Everything here is public."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil.errors import InvalidParameterError
from fairveil.fairness.diagnostics import ConstraintTrace, FinalCheck
from fairveil.fairness.histogram import HistogramConstraints
from fairveil.models.base import Model
from fairveil.models.rules import DecisionRule, RandomizedThresholds
from fairveil.privacy.plan import Stage
from fairveil.privacy.queries import Count, Decision
from fairveil.privacy.veil import Batch, Veil
from fairveil.training.recipe import Task


@dataclass(frozen=True, eq=False)
class RuleProblem:
    """A released model about whose decisions a rule is to be fitted.

    Attributes
    ----------
    model, params
        What gives each record its logits; released or not of these people.
    task : Task
    bounds : HistogramConstraints
        What must hold.
    size : float
        The public or noisy number of people in the piece that is counted.
    headroom : float
        How many standard errors of the people to stay below each limit.
    jitter : float
        The width of the lot that breaks ties.
    """

    model: Model
    params: Float32Array
    task: Task
    bounds: HistogramConstraints
    size: float
    headroom: float = 1.0
    jitter: float = 0.0

    @property
    def floor(self) -> float:
        """The least number of people that a rate is divided by."""
        return max(1.0, 1e-3 * self.size)

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
        """Release counts of the final rule, which no choice has looked at, and say what they tell of every bound."""
        counts = self.count(batch, rule, self.bounds.cells, name)
        return FinalCheck.of_counts(self.bounds, counts, noise_of(stage, name) ** 2, self.floor)


@dataclass(frozen=True, eq=False)
class FittedRule:
    """A fitted rule, how its bounds went, what the last count says of them, and noisy group sizes if it needed any."""

    rule: DecisionRule
    check: FinalCheck | None = None
    trace: ConstraintTrace | None = None
    sizes: Float64Array | None = None


class RuleSolver(Protocol):
    """A way to fit a rule: frozen public choices.

    `smallest_budget_share` is the least share of the precision that it does well with on the training rows: steps on
    multipliers ask for the rates of every class and group, a score histogram for thresholds alone.
    """

    smallest_budget_share: ClassVar[float]

    def check(self, task: Task, bounds: HistogramConstraints) -> None:
        """Refuse what this fitting cannot do."""

    def stages(self, noise_multiplier: float, share: float, subset: str, task: Task) -> tuple[Stage, ...]:
        """Return what is asked of the piece; in all as telling as one count of everyone at this noise."""

    def fit(self, scene: RuleProblem, veils: Mapping[str, Veil]) -> FittedRule:
        """Return the rule."""


def aims_for(
    bounds: HistogramConstraints, counts: Float64Array, headroom: float, floor: float
) -> Float64Array:
    """Return what each left side should come down to, so that people who were not seen keep all limits at once.

    Below the limit by `headroom` standard errors of the people, more where many comparisons must hold together (the
    largest of J normal errors is about sqrt(2 log J)), but by no more than headroom / 2 of it, and never below 0.
    """
    n_comparisons = max(1, len(bounds.bounds) // 2)
    room = headroom * max(1.0, math.sqrt(2 * math.log(n_comparisons))) * bounds.sampling_errors(counts, floor)
    least = bounds.limits * max(0.0, 1 - headroom / 2)
    return np.where(bounds.limits > 0, np.maximum(bounds.limits - room, least), bounds.limits)


def noise_of(stage: Stage, name: str) -> float:
    """Return the noise multiplier of a planned release."""
    return next(release.noise_multiplier for release in stage.releases if release.name == name)


def check_counted(bounds: HistogramConstraints) -> None:
    """Refuse rates whose denominator depends on the decisions: no tilt or threshold is optimal for those."""
    below = bounds.below.reshape(len(bounds.below), -1, bounds.n_classes)
    if (below != below[:, :, :1]).any():
        raise InvalidParameterError(
            "Expected rates of people who do not depend on the decisions, got precision; bound it with "
            "RateConstrainedClassifier."
        )
