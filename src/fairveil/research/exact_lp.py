"""For comparison: the exact solution for known scores, NOT private. Tests compare the private solvers with it.

From the probabilities of every row, its group and label, the best randomized decisions under bounds solve a linear
program; its dual is min over multipliers >= 0 of mean_i max_k (p_ik - tilt_ik) + limits . multipliers, the hard-max
dual of Denis et al. 2024. Both lead to the same tilted rule.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog, minimize

from fairveil._typing import Float64Array
from fairveil.errors import InvalidParameterError
from fairveil.fairness.histogram import HistogramConstraints


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
        steps = (bounds.weights @ (bounds.above / below[:, None])).reshape(
            len(bounds.bounds), -1, bounds.n_classes
        )
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
        answer = minimize(
            self.dual, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": 500}
        )
        return np.asarray(answer.x)
