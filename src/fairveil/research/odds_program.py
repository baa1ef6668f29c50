"""DP-postprocessing (Jagielski et al. 2019): equalized odds by a small linear program on one noisy joint table.

The table counts people by group, label and the model's decision. From it follows, for each group, how often a decision
for and a decision against are answered by class 1 (the derived predictor of Hardt et al. 2016). The paper hides the
sensitive attribute alone and adds Laplace noise to shares; here a whole record is hidden, and the counts have discrete
Laplace noise, which leaks nothing through floating point. The tolerance is kept on the noisy table: the paper widens it
by the noise, so that the best rule on the exact table stays feasible; a rule that decides nobody for class 1 keeps any
tolerance, so nothing needs to be widened here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import ClassVar

import numpy as np
from scipy import optimize

from fairveil._typing import Float64Array
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import EqualizedOdds
from fairveil.fairness.rates import HistogramConstraints
from fairveil.methods.dp2dp.thresholds import FittedRule, RuleProblem
from fairveil.models.rules import RandomizedThresholds
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import all_cells
from fairveil.privacy.veil import Veil
from fairveil.training.recipe import Task

SMALLEST_CELL = 1.0
"""A noisy cell of fewer people has no rate to be compared."""


def derived_predictor(table: Float64Array, tolerance: float) -> Float64Array:
    """Return P(class 1 | decision) for each group, shape (groups, 2): the fewest errors under equalized odds.

    A decision for class 1 is never answered by class 1 more rarely than one against it, which costs nothing where the
    model is better than chance in every group.

    Parameters
    ----------
    table : array of shape (groups, 2, 2)
        Counts by group, label and decision; noisy ones may be negative and then count as 0.
    tolerance : float
        How far the true or the false positive rates of two groups may be apart.

    Examples
    --------
    >>> table = np.array([[[80.0, 20.0], [10.0, 90.0]], [[70.0, 30.0], [30.0, 70.0]]])
    >>> derived_predictor(table, 1.0).round(2).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    >>> fair = derived_predictor(table, 0.0)
    >>> rates = np.einsum("gld,gd->gl", table / table.sum(axis=2, keepdims=True), fair)
    >>> bool(np.ptp(rates, axis=0).max() < 1e-6)
    True
    """
    table = np.maximum(table, 0.0)
    n_groups, sizes = len(table), table.sum(axis=2)
    shares = table / np.maximum(sizes, SMALLEST_CELL)[:, :, None]
    costs = (table[:, 0] - table[:, 1]) / max(float(table.sum()), 1.0)
    rows, limits = [], []
    for one, other in permutations(range(n_groups), 2):
        for label in np.flatnonzero((sizes[[one, other]] >= SMALLEST_CELL).all(axis=0)):
            row = np.zeros((n_groups, 2))
            row[one], row[other] = shares[one, label], -shares[other, label]
            rows.append(row.ravel())
            limits.append(tolerance)
    for group in range(n_groups):
        row = np.zeros((n_groups, 2))
        row[group] = [1.0, -1.0]
        rows.append(row.ravel())
        limits.append(0.0)
    answer = optimize.linprog(costs.ravel(), np.array(rows), limits, bounds=(0.0, 1.0), method="highs")
    if answer.status != 0:  # deciding nobody for class 1 keeps every bound, so this was never seen
        return np.tile([0.0, 1.0], (n_groups, 1))
    chances: Float64Array = np.clip(answer.x.reshape(n_groups, 2), 0.0, 1.0)
    chances[:, 1] = np.maximum(chances[:, 1], chances[:, 0])  # rounding
    return chances


def odds_tolerance(bounds: HistogramConstraints) -> float:
    """Return the tolerance of equalized odds between all pairs of groups, refusing everything else."""
    names = {rate.name for bound in bounds.bounds for _, rate in bound.terms}
    shapes = {tuple(sorted(weight for weight, _ in bound.terms)) for bound in bounds.bounds}
    limits = {bound.limit for bound in bounds.bounds}
    if names != set(EqualizedOdds.rates) or shapes != {(-1.0, 1.0)} or len(limits) != 1:
        raise InvalidParameterError(
            "Expected equalized odds with one tolerance for this program, got another constraint; leave the solver "
            "open for others."
        )
    return limits.pop()


@dataclass(frozen=True)
class OddsProgram:
    """A rule for equalized odds from one noisy (group x label x decision) table: DP-postprocessing.

    Pass it as ``ParityPostprocessor(EqualizedOdds(0.02), training=ParityTraining(solver=OddsProgram()))``.
    """

    smallest_budget_share: ClassVar[float] = 0.05
    people_per_group: ClassVar[float] = 0.0

    def check(self, task: Task, bounds: HistogramConstraints) -> None:
        """Refuse everything but equalized odds, two classes and a rule that reads the group."""
        if task.n_classes != 2:
            raise InvalidParameterError(f"Expected two classes for derived predictors, got {task.n_classes}.")
        if task.predicts == "joint":
            raise InvalidParameterError("Expected a rule that reads the group, got one that does not.")
        odds_tolerance(bounds)

    def stages(self, noise_multiplier: float, share: float, subset: str, task: Task) -> tuple[Stage, ...]:
        """Return the one table."""
        return (Stage("rule", (Release("joint", "discrete_laplace", noise_multiplier),), share, subset=subset),)

    def fit(self, problem: RuleProblem, veils: Mapping[str, Veil]) -> FittedRule:
        """Return the derived predictor of the noisy table; people of no known group keep the model's decision.

        Guarantees
        ----------
        A record adds 1 to one count of the table, and the rule is computed from the noisy table alone.
        """
        people = problem.task.people
        cells = all_cells(people.n_groups, people.n_classes)
        released = problem.count(veils["rule"].draw(), problem.plain_rule(), cells, "joint")
        tables = released.reshape(people.n_groups, 2, 2)[people.codes]
        # rates of class 1, whichever class is positive: parity of one is parity of the other
        chances = derived_predictor(tables, odds_tolerance(problem.bounds))
        thresholds = np.tile([-np.inf, 0.0, np.inf], (people.n_groups, 1))
        weights = np.tile([0.0, 1.0, 0.0], (people.n_groups, 1))
        against, in_favor = chances.T
        weights[people.codes] = np.stack([against, in_favor - against, 1 - in_favor], axis=1)
        return FittedRule(RandomizedThresholds(thresholds, weights, problem.jitter))
