"""The fairness penalty of DP-FERMI, from a histogram of decisions: its value, and what it pulls at each count.

The exponential Renyi mutual information of cell Q and decision K is the chi-square distance of their joint law from
independence, D = sum_{q,k} H_qk^2 / (H_q. H_.k) - 1: 0 exactly if all cells are decided alike. It is a function of the
same (cell x class) histogram that bounds on rates need, so its gradient is the derivative by H, in O(cells x classes).

The paper writes D as a maximum over a matrix W, D = max_W -Tr(W E[y y'] W') + 2 Tr(W E[y s'] P_s^(-1/2)) - 1, and
climbs with W while the model descends. The gradient by W is post-processing of the same histogram.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float64Array
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import (
    Constraint,
    DemographicParity,
    EqualizedOdds,
    FalseNegativeRateParity,
    FalsePositiveRateParity,
    Parity,
    TruePositiveRateParity,
    groups_of,
)
from fairveil.fairness.rates import Population
from fairveil.methods.pf_ld.membership import AgainstAll, against_all

SMALLEST_SHARE = 0.002
"""Classes that are decided for less often than this share count as that often: a noisy count near 0 divides nothing."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Which cells are compared: all groups (demographic parity), or all groups within one label at a time.

    Attributes
    ----------
    sides : AgainstAll
        The cells of the histogram, which groups and labels make them up.
    merges : tuple of arrays of shape (n_groups, n_cells)
        For each comparison, which cells each group is made of.
    """

    sides: AgainstAll
    merges: tuple[Float64Array, ...]

    @property
    def n_cells(self) -> int:
        """The number of cells."""
        return self.sides.n_cells


def blocks_of(constraint: Constraint | Sequence[Constraint], people: Population) -> Blocks:
    """Return the comparisons of one parity, or of several; refuse parities that compare no decisions of groups.

    Examples
    --------
    >>> from fairveil.fairness.rates import Attribute
    >>> people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    >>> [merge.tolist() for merge in blocks_of(EqualizedOdds(), people).merges]
    [[[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]], [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]]
    """
    sides = against_all(constraint, people)
    several = list(constraint) if isinstance(constraint, Sequence) else [constraint]
    merges = []
    for one in several:
        assert isinstance(one, Parity)
        members = np.array([people.members(group) for group in groups_of(people, one.attribute)])
        for labels in _labels_of(one, people):
            merge = np.zeros((len(members), sides.n_cells))
            for group, is_member in enumerate(members):
                merge[group, sides.groups.cells[np.ix_(is_member, labels)].ravel()] = 1.0
            merges.append(merge)
    return Blocks(sides, tuple(merges))


def _labels_of(parity: Parity, people: Population) -> list[list[int]]:
    """Return the labels within which decisions are compared, all at once or one at a time."""
    labels = list(range(people.n_classes))
    if isinstance(parity, DemographicParity):
        return [labels]
    if isinstance(parity, EqualizedOdds):
        return [[label] for label in labels]
    if isinstance(parity, (TruePositiveRateParity, FalseNegativeRateParity)):
        return [[people.positive]]
    if isinstance(parity, FalsePositiveRateParity):
        return [[label] for label in labels if label != people.positive]
    raise InvalidParameterError(
        f"Expected demographic parity, equalized odds or parity of true or false positives, got {parity.name}; the "
        "penalty compares decisions, so take RateConstrainedClassifier for errors and precision."
    )


@dataclass(frozen=True, eq=False)
class Shares:
    """A table of (group x decision) counts as shares: rows that are lost in noise are 0, no column is below a minimum.

    Attributes
    ----------
    chances : array of shape (n_groups, n_classes)
        P(decision | group).
    weights : array of shape (n_groups,)
        P(group).
    decided : array of shape (n_classes,)
        P(decision), at least `SMALLEST_SHARE`.
    is_free : array of shape (n_classes,)
        Whether that minimum left a share as it is (a minimum has no slope).
    size : float
        The number of people in all rows that count.
    """

    chances: Float64Array
    weights: Float64Array
    decided: Float64Array
    is_free: NDArray[np.bool_]
    size: float

    @classmethod
    def of(cls, table: Float64Array, minimum: float) -> "Shares":
        """Return the shares of noisy counts; a row of fewer than `minimum` people is left out."""
        counts = np.maximum(table, 0.0)
        rows = np.add.reduce(counts, axis=1)
        is_known = rows >= minimum
        rows = rows * is_known
        size = max(float(np.add.reduce(rows)), minimum)
        decided = is_known.dot(counts) / size
        chances = counts * (is_known / np.maximum(rows, minimum))[:, None]
        is_free = decided > SMALLEST_SHARE
        return cls(chances, rows / size, np.maximum(decided, SMALLEST_SHARE), is_free, size)


def penalty_of(table: Float64Array, minimum: float = 1e-9) -> float:
    """Return D of a (group x decision) table: sum of H_qk^2 / (H_q. H_.k), less 1.

    Examples
    --------
    >>> penalty_of(np.array([[30.0, 10.0], [60.0, 20.0]]))  # both groups are decided alike
    0.0
    >>> penalty_of(np.array([[40.0, 0.0], [0.0, 40.0]]))  # the decision is the group
    1.0
    """
    return penalty_and_pull(table, minimum)[0]


def penalty_and_pull(table: Float64Array, minimum: float = 1e-9) -> tuple[float, Float64Array]:
    """Return D, and dD/dH for every count of a table; nobody is pulled at where no row counts."""
    own = Shares.of(table, minimum)
    if not own.weights.any():
        return 0.0, np.zeros_like(own.chances)
    over = own.chances / own.decided
    by_group = np.einsum("qk,qk->q", own.chances, over)
    by_class = own.weights.dot(over * over) * own.is_free
    pull = (2 * over - by_group[:, None] - by_class) * ((own.weights > 0) / own.size)[:, None]
    return float(own.weights.dot(by_group)) - 1.0, pull


State = tuple[Float64Array, ...]


class Form(Protocol):
    """How the penalty pulls at the counts of a histogram; what it remembers from step to step is its state."""

    def start(self, blocks: Blocks, n_classes: int) -> State:
        """Return the state before any count."""

    def step(
        self, state: State, counts: Float64Array, blocks: Blocks, minimum: float
    ) -> tuple[State, Float64Array, float]:
        """Return the next state, the pull on each count, shape (n_cells, n_classes), and the penalty."""


@dataclass(frozen=True)
class ClosedForm:
    """The derivative of D at the histogram: the maximum over W is taken exactly."""

    def start(self, blocks: Blocks, n_classes: int) -> State:
        """Return nothing: there is no state."""
        return ()

    def step(
        self, state: State, counts: Float64Array, blocks: Blocks, minimum: float
    ) -> tuple[State, Float64Array, float]:
        """Return the derivative of the sum of all comparisons, and that sum."""
        total, pulled = 0.0, np.zeros_like(counts)
        for merge in blocks.merges:
            penalty, pull = penalty_and_pull(merge.dot(counts), minimum)
            total += penalty
            pulled += merge.T.dot(pull)
        return state, pulled, total


@dataclass(frozen=True)
class MinMax:
    """The paper's form: W climbs by one step of this rate, and is projected onto a ball.

    The pull is that of the W before its step, as in the paper's simultaneous updates. W has a row for each group and a
    column for each class.

    Parameters
    ----------
    rate : float
        The step size of W.
    radius : float
        The largest Frobenius norm of W.
    """

    rate: float
    radius: float

    def start(self, blocks: Blocks, n_classes: int) -> State:
        """Return matrices of 0: nothing pulls before something was counted."""
        return tuple(np.zeros((len(merge), n_classes)) for merge in blocks.merges)

    def step(
        self, state: State, counts: Float64Array, blocks: Blocks, minimum: float
    ) -> tuple[State, Float64Array, float]:
        """Return W after its step, the pull of W before it, and the value of the objective there."""
        climbed, pulls, value = [], [], 0.0
        for merge, W in zip(blocks.merges, state, strict=True):
            own = Shares.of(merge @ counts, minimum)
            roots = np.sqrt(own.weights)[:, None]
            is_known = (own.weights > 0)[:, None]
            slope = 2 * is_known * W / np.maximum(roots, 1e-12)
            pulls.append(merge.T @ ((slope - np.square(W).sum(axis=0)) * is_known / own.size))
            value += float(np.sum(2 * W * own.chances * roots - np.square(W) * own.decided)) - 1.0
            climbed.append(self._projected(W + self.rate * 2 * (own.chances * roots - W * own.decided)))
        return tuple(climbed), np.sum(pulls, axis=0), value

    def _projected(self, W: Float64Array) -> Float64Array:
        return W * min(1.0, self.radius / max(float(np.linalg.norm(W)), 1e-12))
