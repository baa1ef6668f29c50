"""Output perturbation: the minimizer of a strongly convex loss, released once with noise on the parameters.

Mean softmax loss of a linear model plus (lambda / 2) ||w||^2, the sum divided by the public size. One record moves the
exact minimizer by at most (its gradient's bound) / (n lambda), whatever the other records are; a solver that stops
at gradient norm tau lies within tau / lambda of it, on both neighbors. The proof is in docs/proofs/minimizer.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from fairveil._typing import Float64Array
from fairveil._validation import check_number
from fairveil.data.coded import CodedRows, Features
from fairveil.models.products import class_products, sum_by_class

N_WARM_STEPS = 500
SOLVER_SHARE = 0.01
"""The part of the sensitivity that is left to the solver's error."""


@dataclass(frozen=True)
class RidgeSoftmax:
    """Softmax regression with a ridge: class 0 is the reference, the intercept is one more regularized weight.

    Parameters
    ----------
    n_features, n_classes : int
    radius : float
        Rows longer than this are scaled down to it.
    regularization : float
        lambda, the weight of the ridge beside the *mean* loss.
    size : float
        The public number of records that the sum of losses is divided by.
    """

    n_features: int
    n_classes: int
    radius: float
    regularization: float
    size: float

    def __post_init__(self) -> None:
        check_number("n_classes", self.n_classes, whole=True, at_least=2)
        check_number("radius", self.radius)
        check_number("regularization", self.regularization)
        check_number("size", self.size)

    @property
    def n_params(self) -> int:
        """One column of weights and intercept for each class but the reference."""
        return (self.n_features + 1) * (self.n_classes - 1)

    @property
    def gradient_bound(self) -> float:
        """The largest gradient of one record's loss: |p - y| <= 1 for two classes, sqrt 2 for more."""
        return math.hypot(self.radius, 1) * (1.0 if self.n_classes == 2 else math.sqrt(2))

    @property
    def tolerance(self) -> float:
        """The gradient norm tau at which the solver stops."""
        return SOLVER_SHARE * self.gradient_bound / (2 * self.size)

    @property
    def sensitivity(self) -> float:
        """How far one record can move what is released, when added or removed."""
        return self.gradient_bound / (self.size * self.regularization) + 2 * self.tolerance / self.regularization

    def smoothness(self, n_rows: int) -> float:
        """Return the largest curvature of the objective on that many rows (private: it only sets a step)."""
        curvature = 0.25 if self.n_classes == 2 else 0.5
        return n_rows / self.size * curvature * (self.radius**2 + 1) + self.regularization

    def design(self, X: Features, norms: NDArray[np.floating]) -> "Float64Array | ScaledRows":
        """Return rows inside the radius, with the constant coordinate; a non-finite row becomes zero."""
        lengths = np.where(np.isfinite(norms), norms, 0.0).astype(np.float64)
        scales = self.radius / np.maximum(lengths * (1 + 1e-6), self.radius)
        if isinstance(X, CodedRows):
            return ScaledRows(X, scales)
        rows = np.where(np.isfinite(norms)[:, None], X, 0.0)
        rows *= scales[:, None]
        return np.column_stack([rows, np.ones(len(rows))])

    def loss(
        self, weights: Float64Array, design: "Float64Array | ScaledRows", y: NDArray[np.integer]
    ) -> tuple[float, Float64Array]:
        """Return the summed loss over all rows, and its gradient."""
        columns = weights.reshape(self.n_features + 1, self.n_classes - 1)
        logits = np.column_stack([np.zeros(len(y)), design @ columns])
        logits -= logits.max(axis=1, keepdims=True)
        everyone = np.arange(len(y))
        own = logits[everyone, y]
        np.exp(logits, out=logits)
        totals = logits.sum(axis=1, keepdims=True)
        logits /= totals
        logits[everyone, y] -= 1
        return float(np.sum(np.log(totals[:, 0]) - own)), (design.T @ logits[:, 1:]).ravel()


@dataclass(frozen=True, eq=False, repr=False)
class ScaledRows:
    """Coded rows, each times a number, with a constant coordinate 1: a matrix by its two products."""

    rows: CodedRows
    scales: Float64Array

    def __matmul__(self, columns: Float64Array) -> Float64Array:
        products = class_products(np.ascontiguousarray(columns[:-1].T), None, self.rows)
        return (products * self.scales).T + columns[-1]

    @property
    def T(self) -> "TransposedRows":
        """The transposed matrix."""
        return TransposedRows(self)


@dataclass(frozen=True, eq=False, repr=False)
class TransposedRows:
    """The transpose of scaled rows."""

    design: ScaledRows

    def __matmul__(self, columns: Float64Array) -> Float64Array:
        sums = sum_by_class(columns.T * self.design.scales, self.design.rows, False).reshape(columns.shape[1], -1)
        return np.vstack([sums.T, columns.sum(axis=0)])


def minimize_loss(ridge: RidgeSoftmax, design: Float64Array | ScaledRows, y: NDArray[np.integer]) -> Float64Array:
    """Return weights at which the regularized mean objective has gradient norm at most `ridge.tolerance`.

    L-BFGS goes most of the way; Nesterov's method, which always arrives on a strongly convex function, does the rest.
    How long it takes is not released.
    """

    def objective(weights: Float64Array) -> tuple[float, Float64Array]:
        value, slope = ridge.loss(weights, design, y)
        value = value / ridge.size + ridge.regularization / 2 * float(weights @ weights)
        return value, slope / ridge.size + ridge.regularization * weights

    options = {"gtol": ridge.tolerance / math.sqrt(ridge.n_params), "ftol": 0.0, "maxiter": N_WARM_STEPS}
    start = optimize.minimize(objective, np.zeros(ridge.n_params), jac=True, method="L-BFGS-B", options=options).x
    return _descend(lambda weights: objective(weights)[1], start, ridge, len(y))


def _descend(
    slope_at: Callable[[Float64Array], Float64Array], start: Float64Array, ridge: RidgeSoftmax, n_rows: int
) -> Float64Array:
    step = 1 / ridge.smoothness(n_rows)
    root = math.sqrt(step * ridge.regularization)
    momentum = (1 - root) / (1 + root)
    weights = ahead = start
    while True:
        slope = slope_at(ahead)
        if np.linalg.norm(slope) <= ridge.tolerance:
            return ahead
        before, weights = weights, ahead - step * slope
        ahead = weights + momentum * (weights - before)
