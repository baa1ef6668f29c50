"""One noisy histogram of scores and an exact solve, then a few counts at the thresholds found: two classes, aware.

The most plausible curve behind noisy counts: positive, smooth where noise hides it, exact where nothing does.

Every release says y = A f + noise about the numbers f of people in the bins of a score: the histogram with A the
identity, a count above thresholds with A the shares of the bins above them. The curve maximises the posterior of
log f under a prior on its second differences, by Gauss-Newton steps. Everything here is post-processing.

Noisy (cell x bin of score) counts in, the best thresholds of each group out, by a small linear program.

Let d[g, b] be the share of people of group g and bin b who are decided for class 1. Rates are linear in d, and so is
the expected number of errors, taken from the model's own probabilities. A rule that never prefers a lower score is a
mixture of thresholds: d[g, b] = sum of e[g, i] over i <= b, where e[g, i] is the weight of the threshold at the lower
edge of bin i. The program finds e >= 0 with the fewest errors under all bounds; a bound that cannot hold is broken at a
price rather than refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.special import expit

from fairveil._typing import Float64Array
from fairveil.errors import InvalidParameterError
from fairveil.fairness.histogram import SMALLEST_GROUP, HistogramConstraints
from fairveil.methods.dp2dp.problem import FittedRule, RuleProblem, aims_for, check_counted, noise_of
from fairveil.models.rules import RandomizedThresholds
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import Count, MarginBin
from fairveil.privacy.veil import Veil
from fairveil.training.recipe import Task

ROUGHNESS = 0.05
"""The standard deviation of a second difference of log f, beforehand: set on public data sets, docs/defaults.md."""

FREEDOM = 2.0
"""Second differences follow a t-law of so many degrees of freedom: a curve is smooth, but may have peaks."""

LEAST_NOISE = 0.5
"""Counts are whole: finer than this they are not told apart."""

LOWEST = -7.0
N_STEPS = 60


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
    scales = [max(one.noise, LEAST_NOISE) for one in observations]
    weights = np.concatenate([one.weights / scale for one, scale in zip(observations, scales, strict=True)])
    values = np.concatenate([one.values / scale for one, scale in zip(observations, scales, strict=True)])
    n_bins = weights.shape[1]
    bends = np.diff(np.eye(n_bins), 2, axis=0) / ROUGHNESS
    logs = np.full(n_bins, np.log(max(_typical(observations[0]), 1.0)))
    for _ in range(N_STEPS):
        curve = np.exp(logs)
        slopes = weights * curve
        easing = (FREEDOM + 1) / (FREEDOM + np.square(bends @ logs))
        prior = bends.T @ (easing[:, None] * bends) + 1e-6 * np.eye(n_bins)
        step = np.linalg.solve(
            slopes.T @ slopes + prior, slopes.T @ (values - weights @ curve) - prior @ logs
        )
        step = np.clip(step, -1.0, 1.0)
        logs = np.maximum(logs + step, LOWEST)
        if np.abs(step).max() < 1e-3:
            break
    return np.exp(logs)


def _typical(histogram: Observation) -> float:
    """Return the mean of a histogram, kept positive."""
    return float(np.maximum(histogram.values, 0.0).mean())


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
    floor, headroom : float
        As in a `RuleProblem`.
    """

    bins: Float64Array
    size_noise: float
    group_of: NDArray[np.int64]
    coarse_of: NDArray[np.int64]
    bounds: HistogramConstraints
    floor: float
    headroom: float

    def counts_under(self, rule: RandomizedThresholds) -> Float64Array:
        """Return the (cell x decision) table of the bounds' cells that a rule would give."""
        above = accepted(rule)[self.group_of]
        table = np.stack([self.bins * (1 - above), self.bins * above], axis=1).sum(axis=2)
        totals = np.zeros((self.bounds.n_cells + 1, 2))
        np.add.at(totals, self.coarse_of, table)
        return totals[:-1]

    def best_rule(
        self, start: RandomizedThresholds, groups: NDArray[np.int64], *, in_bins: bool
    ) -> RandomizedThresholds:
        """Return the rule with the fewest errors under the bounds; groups not named keep their thresholds of `start`.

        With `in_bins` a bin that is decided in part is decided by lot; else by a threshold inside it.
        """
        weights = _Program(self, start, groups, self._limits(start)).solve()
        return start if weights is None else _rule_of(weights, start, groups, in_bins)

    def _limits(self, start: RandomizedThresholds) -> Float64Array:
        """Return what each left side should come down to; infinite for bounds on too few people to speak of."""
        counts = self.counts_under(start)
        aims = aims_for(self.bounds, counts, self.headroom, self.floor)
        below = self.bounds.below.reshape(len(self.bounds.below), -1, 2)[:, :, 0]
        n_fine = np.bincount(self.coarse_of[self.coarse_of >= 0], minlength=self.bounds.n_cells)
        noise = self.size_noise * np.sqrt(np.square(below) @ n_fine)
        is_small = below @ counts.sum(axis=1) < SMALLEST_GROUP + 3 * noise
        is_untold = ((self.bounds.weights != 0) & is_small).any(axis=1)
        return np.where(is_untold, np.inf, aims)


@dataclass(frozen=True, eq=False)
class _Program:
    """The linear program over the weights e of thresholds (one more than bins: the last decides nobody for class 1)."""

    curves: ScoreCurves
    start: RandomizedThresholds
    groups: NDArray[np.int64]
    limits: Float64Array

    def solve(self) -> Float64Array | None:
        """Return e, shape (named groups, bins + 1); None if the solver gives up, which was never seen."""
        told = np.isfinite(self.limits)
        slopes, fixed = self._slopes()
        n_free, n_told = self.errors.size, int(told.sum())
        left = np.hstack([slopes[told], -np.eye(n_told)])
        sums = np.hstack(
            [
                np.kron(np.eye(len(self.groups)), np.ones(self.errors.shape[1])),
                np.zeros((len(self.groups), n_told)),
            ]
        )
        answer = linprog(
            np.concatenate([self.errors.ravel(), np.full(n_told, PRICE)]),
            A_ub=left if n_told else None,
            b_ub=(self.limits - fixed)[told] if n_told else None,
            A_eq=sums,
            b_eq=np.ones(len(self.groups)),
            method="highs",
        )
        if answer.status != 0:
            return None
        return np.maximum(answer.x[:n_free], 0.0).reshape(self.errors.shape)

    @property
    def errors(self) -> Float64Array:
        """The share of errors that each threshold adds, compared with deciding nobody for class 1."""
        gains = 1 - 2 * expit((LOWER + UPPER) / 2)
        by_group = np.zeros((len(self.start.thresholds), self.curves.bins.shape[1]))
        np.add.at(by_group, self.curves.group_of, self.curves.bins)
        return _from_above(by_group[self.groups] * gains) / max(self.curves.bins.sum(), 1.0)

    def _slopes(self) -> tuple[Float64Array, Float64Array]:
        """Return each bound's left side as slopes along e, shape (J, groups x (bins + 1)), and what is fixed."""
        curves, bounds = self.curves, self.curves.bounds
        counted = curves.coarse_of >= 0
        forms = bounds.above.reshape(len(bounds.above), -1, 2)
        totals = np.zeros((bounds.n_cells + 1, 2))
        sizes = curves.bins.sum(axis=1)
        np.add.at(totals, curves.coarse_of, np.stack([sizes, np.zeros_like(sizes)], axis=1))
        below = bounds.ratios(totals[:-1], curves.floor).below
        # class 1 instead of class 0, for one person of each fine cell
        step = bounds.weights @ ((forms[:, :, 1] - forms[:, :, 0]) / below[:, None])
        per_cell = np.where(counted, step[:, np.where(counted, curves.coarse_of, 0)], 0.0)
        fixed = bounds.weights @ ((forms[:, :, 0] @ totals[:-1, 0]) / below)
        others = ~np.isin(curves.group_of, self.groups)
        chosen = (curves.bins * accepted(self.start)[curves.group_of]).sum(axis=1)
        fixed = fixed + per_cell[:, others] @ chosen[others]
        slopes = [
            _from_above(per_cell[:, mine] @ curves.bins[mine])
            for mine in (curves.group_of == group for group in self.groups)
        ]
        return np.concatenate(slopes, axis=1), fixed


def accepted(rule: RandomizedThresholds) -> Float64Array:
    """Return the share of each bin that a rule decides for class 1, shape (groups, bins)."""
    stages = (UPPER - rule.thresholds[:, :, None]) / (UPPER - LOWER)
    return (np.clip(stages, 0.0, 1.0) * rule.weights[:, :, None]).sum(axis=1)


def _from_above(values: Float64Array) -> Float64Array:
    """Return sums over each bin and all above it, and 0 for no bin at all."""
    tails = np.cumsum(values[..., ::-1], axis=-1)[..., ::-1]
    return np.concatenate([tails, np.zeros((*values.shape[:-1], 1))], axis=-1)


def _rule_of(
    weights: Float64Array, start: RandomizedThresholds, groups: NDArray[np.int64], in_bins: bool
) -> RandomizedThresholds:
    """Return the mixture; two neighbouring thresholds become one between them unless bins are decided by lot."""
    rows = {int(code): _thresholds(row, in_bins) for code, row in zip(groups, weights, strict=True)}
    for code in range(len(start.thresholds)):
        if code not in rows:
            rows[code] = (start.thresholds[code], start.weights[code])
    longest = max(len(thresholds) for thresholds, _ in rows.values())
    table = np.zeros((2, len(rows), longest))
    for code, pair in rows.items():
        for layer, values in zip(table, pair, strict=True):
            layer[code, : len(values)] = values
    return RandomizedThresholds(table[0], table[1], start.jitter)


def _thresholds(row: Float64Array, in_bins: bool) -> tuple[Float64Array, Float64Array]:
    used = np.flatnonzero(row > TINY)
    weights = row[used] / row[used].sum()
    if len(used) == 2 and used[1] == used[0] + 1 and not in_bins:
        # the upper part of one bin
        return np.array([UPPER[used[0]] - weights[0] * (UPPER - LOWER)[used[0]]]), np.ones(1)
    ends = np.concatenate([[-np.inf], EDGES, [np.inf]])
    return ends[used], weights


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
        Decide a bin that holds the threshold by lot, which is exact for scores of any law; otherwise a threshold is set
        inside the bin.
    """

    smallest_budget_share: ClassVar[float] = 0.05

    in_bins: bool = False

    def check(self, task: Task, bounds: HistogramConstraints) -> None:
        """Refuse more than two classes, joint models, and rates whose denominator moves."""
        if task.n_classes != 2:
            raise InvalidParameterError(
                f"Expected two classes for thresholds on a score, got {task.n_classes}; use DualSteps()."
            )
        if not len(task.people.codes):
            raise InvalidParameterError(
                "Expected groups to set thresholds for, got none; name a sensitive column."
            )
        if task.predicts == "joint":
            raise InvalidParameterError(
                "Expected a rule that reads the group, got one that does not; use DualSteps()."
            )
        check_counted(bounds)

    def stages(self, noise_multiplier: float, share: float, subset: str, task: Task) -> tuple[Stage, ...]:
        """Return one look at the piece: histogram and counts."""
        releases = [
            Release(name, "gaussian", noise_multiplier / stage**0.5) for name, stage in SHARES.items()
        ]
        return (Stage("rule", tuple(releases), share, subset=subset),)

    def fit(self, scene: RuleProblem, veils: Mapping[str, Veil]) -> FittedRule:
        """Return thresholds for every group that is large enough to speak of; all others keep the model's own."""
        batch, stage = veils["rule"].draw(), veils["rule"].stage
        cells, rule = scene.group_cells, scene.plain_rule()
        n_cells, codes = int(cells.max()) + 1, scene.task.people.codes
        margins = Count(cells, n_cells, MarginBin(scene.model, scene.params, EDGES, scene.jitter))
        bins = batch.release_counts(margins, "histogram").reshape(n_cells, -1)
        noise = noise_of(stage, "histogram")
        known = [[Observation(np.eye(bins.shape[1]), row, noise)] for row in bins]
        size_noise = noise * bins.shape[1] ** 0.5
        for name in ("counts 1", "counts 2", "counts 3"):
            rule = _curves(scene, known, size_noise).best_rule(rule, codes, in_bins=self.in_bins)
            counts, noise = scene.count(batch, rule, cells, name), noise_of(stage, name)
            above = accepted(rule)[_first_atoms(scene) // 2]
            for told, shares, pair in zip(known, above, counts, strict=True):
                told.append(Observation(np.stack([1 - shares, shares]), pair, noise))
            size_noise = min(size_noise, noise * 2**0.5)
        rule = _curves(scene, known, size_noise).best_rule(rule, codes, in_bins=self.in_bins)
        return FittedRule(rule, scene.check(batch, stage, rule))


def _first_atoms(scene: RuleProblem) -> NDArray[np.int64]:
    """Return the first (group, label) of each cell, flat."""
    return np.unique(scene.group_cells.ravel(), return_index=True)[1]


def _curves(scene: RuleProblem, known: list[list[Observation]], size_noise: float) -> ScoreCurves:
    """Return the curves that all counts so far make most plausible."""
    first = _first_atoms(scene)
    bins = np.stack([smooth_curve(told) for told in known])
    coarse_of = scene.bounds.cells.ravel()[first]
    return ScoreCurves(bins, size_noise, first // 2, coarse_of, scene.bounds, scene.floor, scene.headroom)
