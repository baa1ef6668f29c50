"""F-LD exactly as the paper of PF-LD prints it (Tran et al. 2021, Algorithm 1): for comparison, and not private.

It reads features, labels and attributes as they are. The private form, with what had to be corrected in the print, is
``LagrangianDual(form="printed")``; at epsilon = infinity it differs from this one by secret batches for the groups, by
smoothed signs, and by the bounds C_p and C_d.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil._validation import check_choice
from fairveil.models.losses import logits_pull, softmax

NOTIONS = ("demographic_parity", "equalized_odds", "error_rate_parity")


class FLdCourse(NamedTuple):
    """The last parameters, and after each epoch the violations |mu(D_P) - mu(D_G)| and the multipliers."""

    params: Float32Array
    violations: Float64Array
    multipliers: Float64Array


@dataclass(frozen=True, eq=False)
class PublicTable:
    """Encoded rows, labels 0 and 1, and group codes from 0 on, which are read without protection."""

    X: Float32Array
    y: NDArray[np.int16]
    groups: NDArray[np.integer]
    notion: str

    def __post_init__(self) -> None:
        check_choice("notion", self.notion, NOTIONS)

    def take(self, rows: NDArray[np.integer]) -> "PublicTable":
        """Return some of the rows."""
        return PublicTable(self.X[rows], self.y[rows], self.groups[rows], self.notion)

    def pairs(self, n_groups: int) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
        """Yield the population D_P and the group D_G of each constraint, as masks."""
        labels = (0, 1) if self.notion == "equalized_odds" else (None,)
        for label in labels:
            is_in = np.ones(len(self.y), dtype=bool) if label is None else self.y == label
            for group in range(n_groups):
                yield is_in, is_in & (self.groups == group)

    def values(self, logits: Float32Array) -> tuple[Float64Array, Float32Array]:
        """Return h of every row, and the derivative of h by the row's two logits."""
        chances = softmax(logits)
        pulls = logits_pull(np.ascontiguousarray(logits), self.y)
        if self.notion == "error_rate_parity":
            own = np.take_along_axis(chances, self.y[None].astype(np.int64), axis=0)[0]
            return -np.log(np.maximum(own.astype(np.float64), 1e-30)), pulls
        slope = chances[1] * chances[0]
        return chances[1].astype(np.float64), np.stack([-slope, slope])


def differences(table: PublicTable, values: Float64Array, n_groups: int) -> tuple[Float64Array, Float64Array]:
    """Return mu(D_P) - mu(D_G) of each constraint, 0 where nobody is in D_G, and its derivative by every value."""
    found, slopes = [], []
    for is_in, is_own in table.pairs(n_groups):
        n_in, n_own = max(1, is_in.sum()), is_own.sum()
        slope = (is_in / n_in - is_own / n_own) if n_own else np.zeros(len(values))
        found.append(float(slope @ values))
        slopes.append(slope)
    return np.array(found), np.array(slopes)


def printed_f_ld(
    model: Any,
    table: PublicTable,
    rng: np.random.Generator,
    *,
    n_epochs: int,
    batch: int,
    learning_rate: float,
    dual_rate: float,
    lambda_max: float,
) -> FLdCourse:
    """Train by Algorithm 1: mini-batches of an epoch divide the rows; a dual step on all rows after each epoch."""
    params = model.initial(rng)
    n_groups = int(table.groups.max()) + 1
    n_constraints = n_groups * (2 if table.notion == "equalized_odds" else 1)
    now, violations, multipliers = np.zeros(n_constraints), [], []
    for _ in range(n_epochs):
        order = rng.permutation(len(table.y))
        for rows in np.array_split(order, max(1, round(len(order) / batch))):
            params = params - np.float32(learning_rate) * lagrangian_gradient(model, params, table.take(rows), now)
        values, _ = table.values(model.logits(params, table.X))
        violation = np.abs(differences(table, values, n_groups)[0])
        now = np.minimum(lambda_max, now + dual_rate * violation)
        violations.append(violation)
        multipliers.append(now)
    return FLdCourse(params, np.array(violations), np.array(multipliers))


def lagrangian_gradient(
    model: Any, params: Float32Array, table: PublicTable, multipliers: Float64Array
) -> Float32Array:
    """Return the gradient of J + sum_i lambda_i |mu(B_Pi) - mu(B_Gi)| over a mini-batch (line 4)."""
    logits = model.logits(params, table.X)
    values, slopes_of_h = table.values(logits)
    n_groups = len(multipliers) // (2 if table.notion == "equalized_odds" else 1)
    found, slopes = differences(table, values, n_groups)
    pulls = logits_pull(np.ascontiguousarray(logits), table.y) / np.float32(len(table.y))
    pulls = pulls + slopes_of_h * ((multipliers * np.sign(found)) @ slopes)
    total = model.clipped_gradient(params, table.X, np.ascontiguousarray(pulls.astype(np.float32)), np.inf)
    return np.asarray(total, dtype=np.float32)
