"""What a rule is fitted to, and thresholds for each group from one noisy histogram of scores and a few counts.

The thresholds are for two classes: noisy (cell x bin of score) counts in, the best thresholds of each group out, by a
small linear program; then a few counts at the thresholds found sharpen the curves.

Let d[g, b] be the share of people of group g and bin b who are decided for class 1. Rates are linear in d, and so is
the expected number of errors, taken from the model's own probabilities. A rule that never prefers a lower score is a
mixture of thresholds: d[g, b] = sum of e[g, i] over i <= b, where e[g, i] is the weight of the threshold at the lower
edge of bin i. The program finds e >= 0 with the fewest errors under all bounds; a bound that cannot hold is broken at a
price rather than refused.

Noisy counts of scores in, the most plausible curve out: positive, smooth where noise hides it, else exact.

Every release says y = A f + noise about the numbers f of people in the bins of a score: the histogram with A the
identity, a count above thresholds with A the shares of the bins above them. The curve maximizes the posterior of
log f under a prior on its second differences, by Gauss-Newton steps. Thresholds are then chosen on the curves instead
of on the counts. Everything here is post-processing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import optimize
from scipy.special import expit

from fairveil._typing import Float32Array, Float64Array
from fairveil.errors import InvalidParameterError
from fairveil.fairness.diagnostics import ConstraintTrace, DecisionChanges
from fairveil.fairness.rates import SMALLEST_GROUP, HistogramConstraints, minimum_size
from fairveil.models.base import Model
from fairveil.models.rules import DecisionRule, RandomizedThresholds
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import Bin, Count, Decision, Margin
from fairveil.privacy.veil import Batch, Veil
from fairveil.training.recipe import Task


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


@dataclass(frozen=True, eq=False)
class FittedRule:
    """A fitted rule, counts of it with noise of their own, the course of its bounds, and noisy group sizes if released.

    `counts`, shape (cells, classes), are of the bounds' cells; no choice has used them. `changes` say which share of
    the model's decisions the rule is expected to change, where what was released says so.
    """

    rule: DecisionRule
    counts: Float64Array | None = None
    noise: float = 0.0
    trace: ConstraintTrace | None = None
    sizes: Float64Array | None = None
    changes: DecisionChanges | None = None


class RuleSolver(Protocol):
    """A way to fit a rule: frozen public choices.

    `smallest_budget_share` is the least share of the precision that it does well with on the training rows: steps on
    multipliers need the rates of every class and group, a score histogram needs thresholds alone. The share is also at
    least (`people_per_group` x groups / (epsilon x size))^2, up to the largest one: noise on a count is then a bounded
    part of a group of average size.
    """

    smallest_budget_share: ClassVar[float]
    people_per_group: ClassVar[float]

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
    margins = np.minimum(margins, min(1.0, headroom / 2) * np.abs(bounds.limits))
    return bounds.limits - np.where(bounds.limits > 0, margins, 0.0)


ROUGHNESS = 0.05
"""The standard deviation of a second difference of log f, beforehand: set on public data sets, docs/defaults.md."""

FREEDOM = 2.0
"""Second differences follow a t-law of so many degrees of freedom: a curve is smooth, but may have peaks."""

SMALLEST_NOISE = 0.5
"""The smallest standard deviation that is used: counts are whole."""

SMALLEST_LOG = -7.0
"""No bin is taken to hold fewer than exp of this many people."""

MOST_STEPS = 60


class Observation(NamedTuple):
    """Noisy sums `values` (m,) of a curve: `weights` (m, bins) @ curve, with noise of standard deviation `noise`."""

    weights: Float64Array
    values: Float64Array
    noise: float


def smooth_curve(observations: Sequence[Observation]) -> Float64Array:
    """Return the most plausible numbers of people in each bin, all positive.

    Examples
    --------
    >>> noisy = Observation(np.eye(5), np.array([9.0, -4.0, 12.0, 30.0, 26.0]), 8.0)
    >>> above = Observation(np.array([[0.0, 0.0, 0.0, 1.0, 1.0]]), np.array([50.0]), 1.0)
    >>> curve = smooth_curve([noisy, above])
    >>> bool(curve.min() > 0), round(float(curve[3:].sum()), 0)
    (True, 50.0)
    """
    scales = [max(one.noise, SMALLEST_NOISE) for one in observations]
    weights = np.concatenate([one.weights / scale for one, scale in zip(observations, scales, strict=True)])
    values = np.concatenate([one.values / scale for one, scale in zip(observations, scales, strict=True)])
    n_bins = weights.shape[1]
    bends = np.diff(np.eye(n_bins), 2, axis=0) / ROUGHNESS
    typical = float(np.maximum(observations[0].values, 0.0).mean())
    logs = np.full(n_bins, np.log(max(typical, 1.0)))
    for _ in range(MOST_STEPS):
        curve = np.exp(logs)
        slopes = weights * curve
        easing = (FREEDOM + 1) / (FREEDOM + np.square(bends @ logs))
        prior = bends.T @ (easing[:, None] * bends) + 1e-6 * np.eye(n_bins)
        step = np.linalg.solve(slopes.T @ slopes + prior, slopes.T @ (values - weights @ curve) - prior @ logs)
        step = np.clip(step, -1.0, 1.0)
        logs = np.maximum(logs + step, SMALLEST_LOG)
        if np.abs(step).max() < 1e-3:
            break
    return np.exp(logs)


EDGES = np.linspace(-5.0, 5.0, 65)
"""Public edges of the bins of the margin logit_1 - logit_0; two more bins lie outside."""

WIDTH = float(EDGES[1] - EDGES[0])
LOWER = np.concatenate([[EDGES[0] - 1.0], EDGES])
UPPER = np.concatenate([EDGES, [EDGES[-1] + 1.0]])
"""Where bins begin and end; the outer ones are taken to be 1 wide."""

PRICE = 10.0
"""What breaking a bound by 1 costs, in errors for every person: more than any bound is worth."""

TINY = 1e-9


@dataclass(frozen=True, eq=False)
class ScoreCurves:
    """How many people of each cell lie in each bin, and what a mixture of thresholds would make of them.

    Attributes
    ----------
    bins : array of shape (cells, bins)
        Numbers of people, all positive.
    size_noise : float
        The standard deviation of the noise in the size of a cell.
    group_of, coarse_of : arrays of shape (cells,)
        The group code of each cell and its cell among the bounds' (-1: no bound counts it).
    bounds : HistogramConstraints
    size : float
        The public or noisy number of all people.
    headroom : float
        As in a `RuleProblem`.
    """

    bins: Float64Array
    size_noise: float
    group_of: NDArray[np.int64]
    coarse_of: NDArray[np.int64]
    bounds: HistogramConstraints
    size: float
    headroom: float

    def counts_under(self, rule: RandomizedThresholds) -> Float64Array:
        """Return the (cell x decision) table of the bounds' cells that a rule would give."""
        above = accepted(rule)[self.group_of]
        table = np.stack([self.bins * (1 - above), self.bins * above], axis=1).sum(axis=2)
        totals = np.zeros((self.bounds.n_cells + 1, 2))
        np.add.at(totals, self.coarse_of, table)
        return totals[:-1]

    def changes(
        self, rule: RandomizedThresholds, plain: RandomizedThresholds, groups: NDArray[np.int64]
    ) -> DecisionChanges:
        """Return which share of the decisions of the `plain` rule another one changes in each group."""
        curves = np.stack([self.bins[self.group_of == group].sum(axis=0) for group in groups])
        sizes = curves.sum(axis=1)
        # the threshold of the plain rule is an edge: within a bin it decides all alike
        before, after = accepted(plain)[groups], accepted(rule)[groups]
        shares, rates = ((curves * part).sum(axis=1) / sizes for part in (np.abs(after - before), before))
        return DecisionChanges.of(shares, rates, self.bounds)

    def best_rule(
        self, start: RandomizedThresholds, groups: NDArray[np.int64], *, in_bins: bool
    ) -> RandomizedThresholds:
        """Return the rule with the fewest errors under the bounds; groups not named keep their thresholds of `start`.

        With `in_bins` a bin that is decided in part is decided at random; else by a threshold inside it.
        """
        bounds, counts, minimum = self.bounds, self.counts_under(start), minimum_size(self.size)
        # bounds on too few people to speak of have no limit
        below = bounds.below.reshape(len(bounds.below), -1, 2)[:, :, 0]
        n_fine = np.bincount(self.coarse_of[self.coarse_of >= 0], minlength=bounds.n_cells)
        noise = self.size_noise * np.sqrt(np.square(below) @ n_fine)
        is_small = below @ counts.sum(axis=1) < SMALLEST_GROUP + 3 * noise
        is_known = ~((bounds.weights != 0) & is_small).any(axis=1)
        aims = aims_for(bounds, bounds.estimate(counts, minimum=minimum).sampling_errors, self.headroom)
        # the share of errors that each threshold adds, compared with deciding nobody for class 1
        by_group = np.zeros((len(start.thresholds), self.bins.shape[1]))
        np.add.at(by_group, self.group_of, self.bins)
        gains = 1 - 2 * expit((LOWER + UPPER) / 2)
        errors = _from_above(by_group[groups] * gains) / max(self.bins.sum(), 1.0)
        slopes, fixed = self._left_sides(start, groups, minimum)
        n_known = int(is_known.sum())
        no_excess = np.zeros((len(groups), n_known))
        answer = optimize.linprog(
            np.concatenate([errors.ravel(), np.full(n_known, PRICE)]),
            A_ub=np.hstack([slopes[is_known], -np.eye(n_known)]) if n_known else None,
            b_ub=(aims - fixed)[is_known] if n_known else None,
            A_eq=np.hstack([np.kron(np.eye(len(groups)), np.ones(errors.shape[1])), no_excess]),
            b_eq=np.ones(len(groups)),
            method="highs",
        )
        if answer.status != 0:  # was never seen
            return start
        weights = np.maximum(answer.x[: errors.size], 0.0).reshape(errors.shape)
        return _mixture(weights, start, groups, in_bins)

    def _left_sides(
        self, start: RandomizedThresholds, groups: NDArray[np.int64], minimum: float
    ) -> tuple[Float64Array, Float64Array]:
        """Return each bound's left side as slopes along e, shape (J, groups x (bins + 1)), and what is fixed."""
        bounds, is_counted = self.bounds, self.coarse_of >= 0
        forms = bounds.above.reshape(len(bounds.above), -1, 2)
        totals = np.zeros((bounds.n_cells + 1, 2))
        sizes = self.bins.sum(axis=1)
        np.add.at(totals, self.coarse_of, np.stack([sizes, np.zeros_like(sizes)], axis=1))
        below = bounds.ratios(totals[:-1], minimum).below
        # class 1 instead of class 0, for one person of each fine cell
        step = bounds.weights @ ((forms[:, :, 1] - forms[:, :, 0]) / below[:, None])
        per_cell = np.where(is_counted, step[:, np.where(is_counted, self.coarse_of, 0)], 0.0)
        fixed = bounds.weights @ ((forms[:, :, 0] @ totals[:-1, 0]) / below)
        others = ~np.isin(self.group_of, groups)
        chosen = (self.bins * accepted(start)[self.group_of]).sum(axis=1)
        fixed = fixed + per_cell[:, others] @ chosen[others]
        slopes = [
            _from_above(per_cell[:, mine] @ self.bins[mine]) for mine in (self.group_of == group for group in groups)
        ]
        return np.concatenate(slopes, axis=1), fixed


def accepted(rule: RandomizedThresholds) -> Float64Array:
    """Return the share of each bin that a rule decides for class 1, shape (groups, bins)."""
    shares = (UPPER - rule.thresholds[:, :, None]) / (UPPER - LOWER)
    return (np.clip(shares, 0.0, 1.0) * rule.weights[:, :, None]).sum(axis=1)


def _from_above(values: Float64Array) -> Float64Array:
    """Return sums over each bin and all above it, and 0 for no bin at all."""
    tails = np.cumsum(values[..., ::-1], axis=-1)[..., ::-1]
    return np.concatenate([tails, np.zeros((*values.shape[:-1], 1))], axis=-1)


def _mixture(
    weights: Float64Array, start: RandomizedThresholds, groups: NDArray[np.int64], in_bins: bool
) -> RandomizedThresholds:
    """Return the rule of these weights of thresholds; groups not named keep those of `start`.

    Two neighboring thresholds become one between them, unless bins are decided at random.
    """
    ends = np.concatenate([[-np.inf], EDGES, [np.inf]])
    rows = dict(enumerate(zip(start.thresholds, start.weights, strict=True)))
    for code, row in zip(groups.tolist(), weights, strict=True):
        used = np.flatnonzero(row > TINY)
        shares = row[used] / row[used].sum()
        rows[code] = ends[used], shares
        if len(used) == 2 and used[1] == used[0] + 1 and not in_bins:
            # the upper part of one bin
            inside = UPPER[used[0]] - shares[0] * (UPPER - LOWER)[used[0]]
            rows[code] = np.array([inside]), np.ones(1)
    table = np.zeros((2, len(rows), max(len(thresholds) for thresholds, _ in rows.values())))
    for code, pair in rows.items():
        for layer, values in zip(table, pair, strict=True):
            layer[code, : len(values)] = values
    return RandomizedThresholds(table[0], table[1], start.jitter)


PEOPLE_PER_GROUP = 320.0
"""Where groups have few people, noise on thresholds costs more than noise on the model. With this many, all counts of a
rule together say to about an eightieth of a group of average size how many are decided. Set on public data sets:
docs/defaults.md."""

SHARES = {"histogram": 0.15, "counts 1": 0.2, "counts 2": 0.25, "counts 3": 0.32, "released": 0.08}
"""How the precision (1 / noise^2) is shared out; the last count only reports."""


@dataclass(frozen=True)
class ScoreHistogram:
    """Thresholds from one noisy (group x score) histogram, corrected by counts at the thresholds themselves.

    The histogram says where scores lie; its tails add up many noises, so three further counts of decisions, each at the
    thresholds that the last one led to, say exactly enough how many people are above. Works for every bound on rates of
    people who do not depend on the decisions.

    Parameters
    ----------
    in_bins : bool
        Decide a bin that holds the threshold at random, which is exact for scores of any law; otherwise a threshold is
        set inside the bin.
    """

    smallest_budget_share: ClassVar[float] = 0.05
    people_per_group: ClassVar[float] = PEOPLE_PER_GROUP

    in_bins: bool = False

    def check(self, task: Task, bounds: HistogramConstraints) -> None:
        """Refuse more than two classes, and joint models."""
        if task.n_classes != 2:
            raise InvalidParameterError(
                f"Expected two classes for thresholds on a score, got {task.n_classes}; use DualSteps()."
            )
        if not len(task.people.codes):
            raise InvalidParameterError("Expected groups to set thresholds for, got none; name a sensitive column.")
        if task.predicts == "joint":
            raise InvalidParameterError("Expected a rule that reads the group, got one that does not; use DualSteps().")

    def stages(self, noise_multiplier: float, share: float, subset: str, task: Task) -> tuple[Stage, ...]:
        """Return one stage: histogram and counts of the same people."""
        releases = [Release(name, "gaussian", noise_multiplier / part**0.5) for name, part in SHARES.items()]
        return (Stage("rule", tuple(releases), share, subset=subset),)

    def fit(self, problem: RuleProblem, veils: Mapping[str, Veil]) -> FittedRule:
        """Return thresholds for every group that is large enough to speak of; all others keep the model's own."""
        batch, bounds = veils["rule"].draw(), problem.bounds
        cells, rule, codes = problem.group_cells, problem.plain_rule(), problem.task.people.codes
        first = np.unique(cells.ravel(), return_index=True)[1]  # the first (group, label) of each cell, flat
        n_cells, groups_of, coarse_of = len(first), first // 2, bounds.cells.ravel()[first]
        margins = Count(cells, n_cells, Bin(Margin(problem.model, problem.params, problem.jitter), EDGES))
        bins = batch.release_counts(margins, "histogram").reshape(n_cells, -1)
        noises = veils["rule"].stage.noise_multipliers
        noise = noises["histogram"]
        known = [[Observation(np.eye(bins.shape[1]), row, noise)] for row in bins]
        size_noise = noise * bins.shape[1] ** 0.5
        for name in ("counts 1", "counts 2", "counts 3", "released"):
            curves = np.stack([smooth_curve(observations) for observations in known])
            scores = ScoreCurves(curves, size_noise, groups_of, coarse_of, bounds, problem.size, problem.headroom)
            rule = scores.best_rule(rule, codes, in_bins=self.in_bins)
            if name == "released":
                break
            counts, noise = problem.count(batch, rule, cells, name), noises[name]
            above = accepted(rule)[groups_of]
            for observations, shares, pair in zip(known, above, counts, strict=True):
                observations.append(Observation(np.stack([1 - shares, shares]), pair, noise))
            size_noise = min(size_noise, noise * 2**0.5)
        counts = problem.count(batch, rule, bounds.cells, "released")
        changes = scores.changes(rule, problem.plain_rule(), codes)
        return FittedRule(rule, counts, noises["released"], changes=changes)
