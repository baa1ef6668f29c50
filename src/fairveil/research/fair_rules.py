"""The best rule under bounds for known probabilities, neither private nor noisy: one problem for every yardstick.

A rule sees P(label | x) and, for every cell q that the bounds tell apart, P(q | x). Where it reads the group, only the
label is uncertain (equalized odds), or nothing is (demographic parity); where it does not, both are. The optimum is

    argmax_k p_k(x) - sum_q tilt[q, k] P(q | x),

with the tilts of the exact problem (`research.dp2dp_forms`) for the same cells. Two things are added to its dual. It is
smoothed: a decision is drawn with weights exp(. / 0.001), so that many rows with one score can be divided. And its
limits are corrected until the bounds hold for the *true* cells of the training rows, whatever the probabilities say.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

from fairveil.fairness.rates import HistogramConstraints
from fairveil.research.dp2dp_forms import ExactProblem

SMOOTHING = 1e-3
"""In units of probability: what a rule may lose in accuracy by it is less, because few rows are so near a threshold."""

MOST_CORRECTIONS = 30
"""Of the limits; five are usual."""

SMALLEST_EXCESS = 2e-4
"""How far a bound may be exceeded on the training rows: one of 5,000 people."""

LARGEST_MULTIPLIER = 20.0
"""Of accuracy per unit of a rate; met only where no rule keeps the corrected limits."""

Float64Array = NDArray[np.float64]


def chances_of_known(probabilities: Float64Array, groups: NDArray, bounds: HistogramConstraints) -> Float64Array:
    """Return P(cell | x, group), shape (rows, cells), for a rule that reads the group."""
    found = np.zeros((len(probabilities), bounds.n_cells + 1))
    rows = np.arange(len(probabilities))
    for label in range(probabilities.shape[1]):
        found[rows, bounds.cells[groups, label]] += probabilities[:, label]
    return found[:, :-1]


def chances_of_hidden(joint: Float64Array, bounds: HistogramConstraints) -> Float64Array:
    """Return P(cell | x), shape (rows, cells), from P(group, label | x) of shape (rows, groups, labels)."""
    cells = bounds.cells.ravel()
    belongs = np.zeros((len(cells), bounds.n_cells))
    belongs[np.flatnonzero(cells >= 0), cells[cells >= 0]] = 1.0
    return joint.reshape(len(joint), -1) @ belongs


@dataclass(frozen=True, eq=False)
class RuleSearch:
    """Training rows with what a rule sees of them, and their true cells, which only the bounds read.

    Attributes
    ----------
    probabilities : array of shape (n, K)
        P(label | x).
    chances : array of shape (n, cells)
        P(cell | x).
    cells : array of shape (n,)
        The true cell (-1: none).
    bounds : HistogramConstraints
    """

    probabilities: Float64Array
    chances: Float64Array
    cells: NDArray[np.int64]
    bounds: HistogramConstraints

    @cached_property
    def unit_tilts(self) -> Float64Array:
        """What a multiplier of 1 takes off, shape (bounds, cells, classes)."""
        problem = ExactProblem(self.probabilities, self.cells, self.bounds)
        return np.stack([problem.tilts(unit)[:-1] for unit in np.eye(len(self.bounds.bounds))])

    def tilts(self, multipliers: Float64Array) -> Float64Array:
        """Return what multipliers take off each class in each cell."""
        return np.einsum("j,jqk->qk", multipliers, self.unit_tilts)

    def values(self, table: Float64Array) -> Float64Array:
        """Return the left sides for counts of decisions in cells."""
        return np.einsum("jqk,qk->j", self.unit_tilts, table) / len(self.cells)

    def true_values(self, multipliers: Float64Array) -> Float64Array:
        """Return the left sides that the rule has on these rows, counted in their true cells."""
        decided = law(self.probabilities, self.chances, self.tilts(multipliers))
        table = np.zeros((self.bounds.n_cells + 1, self.bounds.n_classes))
        np.add.at(table, self.cells, decided)
        return self.values(table[:-1])

    def expected_values(self, multipliers: Float64Array) -> Float64Array:
        """Return the left sides that the probabilities of cells lead to expect."""
        return self.values(self.chances.T @ law(self.probabilities, self.chances, self.tilts(multipliers)))

    def dual(self, multipliers: Float64Array, limits: Float64Array) -> tuple[float, Float64Array]:
        """Return the smoothed dual for these limits, and its gradient."""
        scores = (self.probabilities - self.chances @ self.tilts(multipliers)) / SMOOTHING
        levels = logsumexp(scores, axis=1, keepdims=True)
        expected = self.values(self.chances.T @ np.exp(scores - levels))
        return float(SMOOTHING * levels.mean() + limits @ multipliers), limits - expected

    def minimum(self, start: Float64Array, limits: Float64Array) -> Float64Array:
        """Return the best multipliers for these limits."""
        ends = [(0.0, LARGEST_MULTIPLIER)] * len(start)
        options = {"maxiter": 500, "ftol": 1e-12, "gtol": SMALLEST_EXCESS / 4}
        return minimize(self.dual, start, (limits,), "L-BFGS-B", True, bounds=ends, options=options).x

    def multipliers(self) -> Float64Array:
        """Return multipliers under which the bounds hold for the true cells, or else those that exceed them least.

        Each correction takes off a limit what its true value has over the expected one. Where nothing changes any more,
        every bound with a price holds with equality on the training rows.
        """
        now, limits = np.zeros(len(self.bounds.bounds)), self.bounds.limits
        best, smallest = now, np.inf
        for _ in range(MOST_CORRECTIONS):
            now = self.minimum(now, limits)
            true = self.true_values(now)
            excess = float((true - self.bounds.limits).max())
            if excess < smallest:
                best, smallest = now, excess
            wanted = self.bounds.limits - (true - self.expected_values(now))
            if excess <= SMALLEST_EXCESS and np.abs(wanted - limits).max() < SMALLEST_EXCESS:
                return now
            limits = (limits + wanted) / 2  # whole steps may go to and fro
        return best


def law(probabilities: Float64Array, chances: Float64Array, tilts: Float64Array) -> Float64Array:
    """Return the probability of each decision, shape (rows, classes)."""
    scores = (probabilities - chances @ tilts) / SMOOTHING
    return np.exp(scores - logsumexp(scores, axis=1, keepdims=True))


def drawn(law_of_rows: Float64Array, seed: int) -> NDArray[np.int64]:
    """Return one decision a row."""
    coins = np.random.default_rng(seed).random((len(law_of_rows), 1))
    return np.minimum((law_of_rows.cumsum(axis=1) < coins).sum(axis=1), law_of_rows.shape[1] - 1)
