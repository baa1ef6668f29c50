"""For comparison: DP2DP's own noisy descent on the multipliers (Say, Denis and Pinot 2025, Algorithm 1), corrected.

Only v_k = sum_i 2 s_i softmax_beta(...)_k depends on the data, so one vector is released a step, from which both blocks
of the gradient follow; it is centered, sum_i 2 s_i (p_i - 1/K), because the constant cancels between the groups. Its
length is at most 2 sqrt(1 - 1/K) a record (the paper's stacked gradient: 4 sqrt 2 where 4 is claimed). Records are
drawn by their own coins. docs/errata.md has the rest.

For comparison: the exact solution for known scores, NOT private. Tests compare the private solvers with it.

From the probabilities of every row, its group and label, the best randomized decisions under bounds solve a linear
program; its dual is min over multipliers >= 0 of mean_i max_k (p_ik - tilt_ik) + limits . multipliers, the hard-max
dual of Denis et al. 2024. Both lead to the same tilted rule.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog, minimize

from fairveil._typing import Float64Array
from fairveil._validation import check_number
from fairveil.errors import InvalidParameterError
from fairveil.fairness.rates import HistogramConstraints, minimum_size
from fairveil.methods.decoupled_parity import parity_tolerance
from fairveil.methods.dp2dp.thresholds import FittedRule, RuleProblem
from fairveil.models.rules import TiltedArgmax
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import Count, RuleDecision, Sum, one_cell
from fairveil.privacy.veil import Veil
from fairveil.research.paper_bounds import LastIterate
from fairveil.training.multipliers import DualAscent
from fairveil.training.recipe import Task

COUNTED, REPORTED = 0.1, 0.1
"""The shares of the precision for the sizes of the groups and for the last count."""


BLOCKS = ("first block", "second block")
"""The releases of a step with noise on both blocks of multipliers."""


@dataclass(frozen=True)
class NoisyDescent:
    """Projected noisy descent to the last iterate: steps 1 / sqrt(t), as in the experiments, or of one length.

    Steps of one length have noise on both blocks of the gradient, as the second branch of Theorem 4.1 demands
    (`paper_bounds.LastIterate`): the same vector is released twice from each batch, with independent noise, and priced
    as what both show together. The ledger takes the exact price of all steps in any case.

    Parameters
    ----------
    n_steps : int
        How many steps of descent are made.
    batch_size : int
        The expected number of people in a batch; the declared size settles the rate, 0.06 where there is none.
    smoothing : float
        The paper's beta, in units of probability.
    largest_multiplier : float
        C_lambda: multipliers are kept in [0, this].
    shares : pair of float, optional
        The public shares of the two groups. With them, each group is drawn at its own rate, as many of each; the larger
        rate is accounted for. None draws everyone alike and weighs the groups by one over twice their noisy share.
    largest_weight : float
        Of a record, where groups are weighted: a smaller group counts less than it should, and nobody more than this.
    step_size : float, optional
        The length of all steps; None makes step t 1 / sqrt(t) long.
    """

    smallest_budget_share: ClassVar[float] = 0.1
    people_per_group: ClassVar[float] = 0.0

    n_steps: int = 100
    batch_size: int = 128
    smoothing: float = 1e-5
    largest_multiplier: float = 1.0
    shares: tuple[float, float] | None = None
    largest_weight: float = 2.0
    step_size: float | None = None

    def __post_init__(self) -> None:
        check_number("n_steps", self.n_steps, whole=True)
        check_number("batch_size", self.batch_size, whole=True)
        for name in ("smoothing", "largest_multiplier", "largest_weight"):
            check_number(name, getattr(self, name))
        if self.step_size is not None:
            check_number("step_size", self.step_size)
        if self.shares is not None and not (
            len(self.shares) == 2 and min(self.shares) > 0 and abs(sum(self.shares) - 1) < 1e-6
        ):
            raise InvalidParameterError(f"Expected the shares of two groups, which add up to 1, got {self.shares!r}.")

    def check(self, task: Task, bounds: HistogramConstraints) -> None:
        """Refuse everything but demographic parity of two groups with a rule that reads the group."""
        if task.predicts == "joint":
            raise InvalidParameterError("Expected a rule that reads the group, got one that does not; use DualSteps().")
        _two_groups(task)
        _tolerance(bounds)

    def rates_for(self, task: Task) -> dict[int, float]:
        """Return the sampling rate of each group code; -1 stands for everyone."""
        rate = self._rate(task)
        if self.shares is None:
            return {-1: min(1.0, rate)}
        codes = _two_groups(task)
        return {int(code): min(1.0, rate / (2 * stage)) for code, stage in zip(codes, self.shares, strict=True)}

    def stages(self, noise_multiplier: float, share: float, subset: str, task: Task) -> tuple[Stage, ...]:
        """Return the sizes of the groups, the steps and the last count."""
        rates = self.rates_for(task)
        left = 1 - COUNTED - REPORTED
        step_noise = noise_multiplier * max(rates.values()) * math.sqrt(self.n_steps / left)
        return (
            Stage(
                "groups",
                (Release("sizes", "gaussian", noise_multiplier / COUNTED**0.5),),
                share,
                subset=subset,
            ),
            Stage("rule", self._step_releases(step_noise), share, rates, self.n_steps, subset),
            Stage(
                "check",
                (Release("released", "gaussian", noise_multiplier / REPORTED**0.5),),
                share,
                subset=subset,
            ),
        )

    def last_iterate(self, n_classes: int) -> LastIterate:
        """Return what the second branch of Theorem 4.1 needs to know; refuse a descent that does not meet it.

        Parameters
        ----------
        n_classes : int
            Of the labels.
        """
        if self.step_size is None or self.shares is None:
            raise InvalidParameterError(
                "Expected a step_size and the public shares of the groups, because the second branch is for steps of "
                "one length and records of one weight, got a descent without them."
            )
        return LastIterate(n_classes, self.batch_size, self.smoothing, self.step_size, self.largest_multiplier)

    def _step_releases(self, noise: float) -> tuple[Release, ...]:
        """Return what a step releases: one vector, or for steps of one length the same with two noises."""
        if self.step_size is None:
            return (Release("histogram", "gaussian", noise),)
        return tuple(Release(name, "gaussian", math.sqrt(2) * noise) for name in BLOCKS)

    def fit(self, problem: RuleProblem, veils: Mapping[str, Veil]) -> FittedRule:
        """Return the rule argmax_k pi_s p_k - s (lambda1_k - lambda2_k) at the last iterate."""
        shares, n_classes = self._group_shares(problem, veils["groups"]), problem.task.n_classes
        weights, largest = self._weights(problem.task, shares)
        signs = np.zeros(problem.task.people.n_groups)
        signs[_two_groups(problem.task)] = weights * (1.0, -1.0)
        batch_size = self._expected_batch(problem, veils["rule"].stage)
        ascent = DualAscent(rate=1.0, decay=0.5, cap=self.largest_multiplier)
        if self.step_size is not None:
            ascent = DualAscent(rate=self.step_size, cap=self.largest_multiplier)
        now, tolerance = ascent.start((2, n_classes)), _tolerance(problem.bounds)
        for _ in range(self.n_steps):
            rule = self._rule(problem, shares, now.values[0] - now.values[1])
            signed = RuleDecision(problem.model, problem.params, rule, n_classes, self.smoothing, signs)
            query = Sum(one_cell(n_classes), 1, signed)
            bound = 2 * math.sqrt(1 - 1 / n_classes) * largest
            batch = veils["rule"].draw()
            released = [batch.release_sums(query, bound, one.name)[0] for one in veils["rule"].stage.releases]
            first, second = released[0] / batch_size, released[-1] / batch_size
            now = ascent.step(now, np.stack([first - tolerance, -second - tolerance]))
        rule = self._rule(problem, shares, now.values[0] - now.values[1])
        counts = problem.count(veils["check"].draw(), rule, problem.bounds.cells, "released")
        return FittedRule(rule, counts, veils["check"].stage.noise_multipliers["released"])

    def _weights(self, task: Task, shares: Float64Array) -> tuple[Float64Array, float]:
        """Return what a record of each group counts, and the public bound on it.

        Groups drawn at rates of their own count alike, but for one whose rate is capped at 1: it counts for those who
        should have been drawn more than once.
        """
        if self.shares is None:
            return np.minimum(1 / (2 * shares), self.largest_weight), self.largest_weight
        wanted = self._rate(task) / (2 * np.array(self.shares))
        weights = np.maximum(wanted, 1.0)
        return weights, float(weights.max())

    def _rate(self, task: Task) -> float:
        return 0.06 if task.n_public is None else self.batch_size / task.n_public

    def _expected_batch(self, problem: RuleProblem, stage: Stage) -> float:
        """Return the public expected size of a batch: as many of each group, where shares are declared."""
        if self.shares is None:
            return problem.size * stage.largest_rate
        return problem.size * self._rate(problem.task)

    def _group_shares(self, problem: RuleProblem, veil: Veil) -> Float64Array:
        """Return noisy shares of the two groups: counts, because one record moves one count by one."""
        cells = np.full(problem.bounds.cells.shape, -1)
        cells[_two_groups(problem.task)] = [[0], [1]]
        sizes = np.maximum(veil.draw().release_counts(Count(cells, 2), "sizes"), minimum_size(problem.size))
        return sizes / sizes.sum()

    def _rule(self, problem: RuleProblem, shares: Float64Array, multipliers: Float64Array) -> TiltedArgmax:
        tables = np.tile(np.eye(problem.task.n_classes), (problem.task.people.n_groups, 1, 1))
        for code, sign, share in zip(_two_groups(problem.task), (1.0, -1.0), shares, strict=True):
            # probabilities add up to 1, so a constant of a class is a constant on every output
            tables[code] = share * tables[code] - sign * multipliers[:, None]
        return TiltedArgmax(tables, problem.jitter)


def _two_groups(task: Task) -> NDArray[np.int64]:
    codes = task.people.codes
    if len(codes) != 2:
        raise InvalidParameterError(f"Expected two groups for DP2DP's own descent, got {len(codes)}; use DualSteps().")
    return codes


def _tolerance(bounds: HistogramConstraints) -> float:
    """Return the tolerance of a demographic parity, whatever the number of classes."""
    if bounds.n_classes == 2:
        return parity_tolerance(bounds)
    limits = {bound.limit for bound in bounds.bounds}
    names = {rate.name for bound in bounds.bounds for _, rate in bound.terms}
    if names != {"selection_rate"} or len(limits) != 1 or len(bounds.bounds) != 2 * bounds.n_classes:
        raise InvalidParameterError("Expected demographic parity for DP2DP's own descent, got another constraint.")
    return limits.pop()


@dataclass(frozen=True, eq=False)
class ExactProblem:
    """Rows with their probabilities, cells and bounds: nothing here is hidden.

    A decision may depend on the cell of its row. Where cells tell labels apart (equalized odds), no rule can do that
    when it decides: the optimum is then a bound on all of them.

    Attributes
    ----------
    probabilities : array of shape (n, K)
        P(label) of each row.
    cells : array of shape (n,)
        The cell of each row among the bounds' (-1: none).
    bounds : HistogramConstraints
    """

    probabilities: Float64Array
    cells: NDArray[np.int64]
    bounds: HistogramConstraints

    @cached_property
    def sizes(self) -> Float64Array:
        """How many rows each cell has, spread evenly over the decisions."""
        counts = np.bincount(self.cells[self.cells >= 0], minlength=self.bounds.n_cells).astype(float)
        return np.repeat(counts[:, None] / self.bounds.n_classes, self.bounds.n_classes, axis=1)

    @cached_property
    def _slopes(self) -> Float64Array:
        """What one row's decision adds to each left side, shape (bounds, cells + 1, classes); the last cell is none."""
        bounds = self.bounds
        below = bounds.ratios(self.sizes, 1e-9).below
        steps = (bounds.weights @ (bounds.above / below[:, None])).reshape(len(bounds.bounds), -1, bounds.n_classes)
        return np.concatenate([steps, np.zeros((len(steps), 1, bounds.n_classes))], axis=1)

    def distribution(self) -> Float64Array:
        """Return the best decisions, one distribution a row, by linear programming (HiGHS)."""
        return np.asarray(self._solved.x).reshape(self.probabilities.shape)

    def multipliers(self) -> Float64Array:
        """Return the price of each bound at the optimum, from the same program."""
        return -np.asarray(self._solved.ineqlin.marginals)

    @cached_property
    def _solved(self) -> Any:
        n, n_classes = self.probabilities.shape
        left = self._slopes[:, self.cells].reshape(len(self.bounds.bounds), -1)
        answer = linprog(
            -self.probabilities.ravel() / n,
            A_ub=sparse.csr_array(left),
            b_ub=self.bounds.limits,
            A_eq=sparse.kron(sparse.eye_array(n), np.ones((1, n_classes)), format="csr"),
            b_eq=np.ones(n),
            bounds=(0, None),
            method="highs",
        )
        if answer.status != 0:
            raise InvalidParameterError(
                "Expected bounds that can hold together, got an infeasible program; loosen one."
            )
        return answer

    def tilts(self, multipliers: Float64Array) -> Float64Array:
        """Return what multipliers take off each class of a row of each cell (the last: of none)."""
        tilts: Float64Array = len(self.cells) * np.einsum("j,jqk->qk", multipliers, self._slopes)
        return tilts

    def dual(self, multipliers: Float64Array) -> tuple[float, Float64Array]:
        """Return the hard-max dual and a subgradient: how far each bound is from its limit at the best decisions."""
        scores = self.probabilities - self.tilts(multipliers)[self.cells]
        best = scores.argmax(axis=1)
        table = np.zeros((self.bounds.n_cells + 1, self.bounds.n_classes))
        np.add.at(table, (self.cells, best), 1.0)
        values = np.einsum("jqk,qk->j", self._slopes[:, :-1], table[:-1])
        limits = self.bounds.limits
        return float(scores.max(axis=1).mean() + limits @ multipliers), limits - values

    def hard_max_multipliers(self) -> Float64Array:
        """Return the multipliers that minimize the hard-max dual itself (Denis et al. 2024), without any program."""
        start = np.zeros(len(self.bounds.bounds))
        limits = [(0.0, None)] * len(start)
        answer = minimize(self.dual, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": 500})
        return np.asarray(answer.x)
