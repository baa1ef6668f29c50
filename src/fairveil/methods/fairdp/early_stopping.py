"""Early stopping of FairDP (Remark 2): train until a bound is broken, with all checks planned beforehand.

The paper computes its estimate from the data after every step and stops when it likes; each such check is a release.
Here the checks are planned: how many, at which steps, with how much noise. Stopping early then costs nothing less.
Gaps open within the first steps, so checks begin there and follow in equal ratios: what comes first is close together.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil._validation import check_number
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint, constrain
from fairveil.fairness.rates import HistogramConstraints
from fairveil.models.last_layer import LayeredModel
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import NoisyMarginRate, Sum, all_cells
from fairveil.privacy.veil import ROUNDING, Veil
from fairveil.training.recipe import Task


def smooth_histogram(bounds: HistogramConstraints, sizes: Float64Array, sums: Float64Array) -> Float64Array:
    """Return (cell x class) sums from the people of each (group, label) and sums of P(class 1) - 1/2 among them.

    Examples
    --------
    >>> from fairveil.fairness.rates import Attribute, Population
    >>> from fairveil.fairness.constraints import DemographicParity, constrain
    >>> people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    >>> bounds = constrain(DemographicParity(), people)
    >>> sizes, sums = np.array([[6.0, 4.0], [5.0, 5.0], [0.0, 0.0]]), np.array([[0.0, 2.0], [-3.0, 0.0], [0.0, 0.0]])
    >>> smooth_histogram(bounds, sizes, sums).tolist()
    [[3.0, 7.0], [8.0, 2.0]]
    """
    table = np.zeros((bounds.n_cells, 2))
    counted = bounds.cells >= 0
    ones = sizes / 2 + sums
    np.add.at(table, bounds.cells[counted], np.stack([sizes - ones, ones], axis=-1)[counted])
    return table


def largest_gap(
    bounds: HistogramConstraints,
    sizes: Float64Array,
    sums: Float64Array,
    size_variance: float,
    sum_variance: float,
) -> tuple[float | None, float | None]:
    """Return the largest left side among bounds on enough people to speak of, and its error from noise and people.

    `sizes` and `sums` as in `smooth_histogram`, with the variances of their noise. Where there is nothing to speak of,
    both are unknown.
    """
    histogram = smooth_histogram(bounds, sizes, sums)
    found = bounds.estimate(histogram, size_variance / 4 + sum_variance)
    if not found.has_enough_people.any():
        return None, None
    values = np.where(found.has_enough_people, bounds.weights @ found.rates, -np.inf)
    place = int(values.argmax())
    slopes = bounds.pull(histogram, np.eye(len(values))[place])[bounds.cells[bounds.cells >= 0]]
    # a size moves both decisions by a half each, a sum moves one against the other
    by_size, by_sum = slopes.sum(axis=1) / 2, slopes[:, 1] - slopes[:, 0]
    noise = float(np.sqrt(size_variance * by_size @ by_size + sum_variance * by_sum @ by_sum))
    return float(values[place]), float(np.hypot(noise, found.sampling_errors[place]))


CHECK_SHARE = 0.1
"""The share of the precision that all checks take together."""

REACH = 0.5
"""What one record can add to a sum of smooth decisions."""


@dataclass(frozen=True)
class EarlyStopping:
    """Stop training at the first noisy check that finds a bound broken after an earlier check found it met.

    The smooth rates are those of Proposition 3.3 around released weights: how often the noise of a last step would
    decide for class 1. The parameters of the last check that was passed are kept; if none is, training goes on to its
    end.

    Parameters
    ----------
    constraint : constraint or sequence of constraints
        With the tolerance that must not be exceeded.
    n_checks : int
        How many checks.
    first_check : float
        After which share of the steps the first one is made. From one to the next the number of steps grows by the
        same factor, and the last one is after the last step.
    """

    constraint: Constraint | Sequence[Constraint]
    n_checks: int = 40
    first_check: float = 0.005

    def __post_init__(self) -> None:
        check_number("n_checks", self.n_checks, whole=True)
        check_number("first_check", self.first_check, at_most=1)

    def check(self, task: Task) -> None:
        """Refuse more than two classes, whose decisions have no margin, and bounds that do not fit the people."""
        if task.n_classes != 2:
            raise InvalidParameterError(
                f"Expected two classes to watch smooth rates of, got {task.n_classes}; leave stopping out."
            )
        constrain(self.constraint, task.people)

    def stage(self, precision: float, share: float) -> Stage:
        """Return the checks as a stage of a plan beside steps of this precision."""
        noise = math.sqrt(self.n_checks / (CHECK_SHARE * precision))
        return Stage(
            "looks",
            (Release("smooth rates", "gaussian", noise),),
            share,
            n_steps=self.n_checks,
            subset="train",
        )

    def steps(self, n_steps: int) -> frozenset[int]:
        """Return after which steps, counted from 0, a check is made: these follow from public numbers.

        Examples
        --------
        >>> from fairveil.fairness.constraints import DemographicParity
        >>> sorted(EarlyStopping(DemographicParity(0.1), n_checks=10).steps(600))
        [2, 5, 9, 17, 31, 56, 102, 184, 333, 599]
        """
        n_checks = min(self.n_checks, n_steps)
        turns = np.arange(n_checks)
        first = max(1.0, self.first_check * n_steps)
        ratio = (n_steps / first) ** (1 / max(1, n_checks - 1))
        counts = np.ceil(first * ratio**turns * (1 - 1e-9)).astype(int)
        counts[-1] = n_steps
        apart = np.maximum.accumulate(counts - turns) + turns  # no two after the same step
        return frozenset((np.minimum(apart, n_steps - n_checks + 1 + turns) - 1).tolist())


@dataclass(frozen=True)
class StoppingCheck:
    """The result of one check: after which step, the largest left side over its limit, and whether that was passed.

    An infinite excess says that every bound is on too few people.
    """

    step: int
    excess: float
    passed: bool


@dataclass(frozen=True, eq=False)
class EarlyStoppingState:
    """The results of all checks so far, and the parameters of the last one that was passed."""

    stopping: EarlyStopping | None
    model: LayeredModel
    task: Task
    std: float
    sizes: NDArray[np.float64] | None
    steps: frozenset[int] = frozenset()
    checks: tuple[StoppingCheck, ...] = ()
    kept: Float32Array | None = None

    @classmethod
    def start(
        cls,
        stopping: EarlyStopping | None,
        model: LayeredModel,
        task: Task,
        sizes: NDArray[np.float64] | None,
        std: float,
        n_steps: int,
    ) -> "EarlyStoppingState":
        """Return the state before any check; `sizes` are noisy counts by (group code, label)."""
        steps = frozenset() if stopping is None else stopping.steps(n_steps)
        return cls(stopping, model, task, std, sizes, steps)

    @property
    def is_over(self) -> bool:
        """Whether a bound was seen broken that had been seen kept."""
        return self.kept is not None and not self.checks[-1].passed

    def after(self, step: int, params: Float32Array, veils: Mapping[str, Veil]) -> "EarlyStoppingState":
        """Return the state after a step, with one check more if one is planned here."""
        if self.stopping is None or step not in self.steps:
            return self
        excess = self._excess(self.stopping, params, veils["looks"])
        check = StoppingCheck(step, excess, excess <= 0)
        return replace(self, checks=(*self.checks, check), kept=params if check.passed else self.kept)

    def chosen(self, params: Float32Array) -> Float32Array:
        """Return what training ends with: the last parameters that passed a check, or the last ones of all."""
        return params if self.kept is None else self.kept

    def _excess(self, stopping: EarlyStopping, params: Float32Array, veil: Veil) -> float:
        """Return by how much the smooth rates break the bound that they break most, among groups large enough."""
        n_groups, n_classes = self.task.people.n_groups, self.model.n_classes
        rates = NoisyMarginRate(self.model, params, self.std, is_row_stable=False)
        query = Sum(all_cells(n_groups, n_classes), n_groups * n_classes, rates)
        sums = veil.draw().release_sums(query, REACH, "smooth rates").reshape(-1, n_classes)
        bounds = constrain(stopping.constraint, self.task.people)
        histogram = smooth_histogram(bounds, np.asarray(self.sizes), sums)
        variance = (REACH * ROUNDING * veil.stage.releases[0].noise_multiplier) ** 2
        is_known = bounds.estimate(histogram, variance).has_enough_people
        return float(np.max(bounds.violation(histogram)[is_known])) if is_known.any() else math.inf
