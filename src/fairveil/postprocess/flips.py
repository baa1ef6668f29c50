"""Random flips that move two groups to the midpoint of their rates: Algorithms 1 and 2 of decoupled parity."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairveil._validate import check_positive
from fairveil.errors import InvalidParameter
from fairveil.fairness.histogram import HistogramConstraints
from fairveil.models.rules import ThresholdMixture
from fairveil.postprocess.scene import Ruling, Scene
from fairveil.privacy.plan import Part, Release
from fairveil.privacy.veil import ROUNDING, Batch, Veil
from fairveil.training.objectives import WeightedDecisions
from fairveil.training.task import Task

__all__ = ["RateFlips", "fewest_changes", "flipping_rule", "parity_tolerance"]

Floats = NDArray[np.float64]


def fewest_changes(gap: float, tolerance: float = 0.0) -> float:
    """Return the least sum, over both groups, of the shares of decisions that must change (Proposition 1).

    Flips by `flipping_rule` attain it (Theorem 2).

    Examples
    --------
    >>> round(fewest_changes(0.2, tolerance=0.05), 3)
    0.15
    """
    return max(0.0, abs(gap) - tolerance)


def flipping_rule(
    rates: Floats, tolerance: float, codes: NDArray[np.int64], n_groups: int, jitter: float = 0.0
) -> ThresholdMixture:
    """Return the rule that flips just enough decisions of two groups, at random (Algorithm 1; with noisy rates, 2).

    The group with the higher rate a loses part of its class-1 decisions, the other gains some: both end `tolerance`
    apart around the midpoint. Where a rate is 0 or 1 there is nothing to flip that way.

    Parameters
    ----------
    rates : pair of float
        How often the model decides each group for class 1.
    tolerance : float
    codes : pair of int
        The two groups among `n_groups` codes; all others keep the model's decisions.
    jitter : float
        As in `ThresholdMixture`.

    Examples
    --------
    >>> rule = flipping_rule(np.array([0.5, 0.3]), 0.0, np.array([0, 1]), 3)
    >>> rule.law(np.array([[0.0, 0.0], [1.0, -1.0]]), np.array([0, 1]))[:, 1].round(3).tolist()
    [0.8, 0.143]
    """
    high, low = (0, 1) if rates[0] >= rates[1] else (1, 0)
    move = fewest_changes(float(rates[high] - rates[low]), tolerance) / 2
    kept = 1 - move / rates[high] if rates[high] > 0 else 1.0
    raised = move / (1 - rates[low]) if rates[low] < 1 else 0.0
    thresholds = np.tile([-np.inf, 0.0, np.inf], (n_groups, 1))
    weights = np.tile([0.0, 1.0, 0.0], (n_groups, 1))
    weights[codes[high]] = [0.0, kept, 1 - kept]
    weights[codes[low]] = [raised, 1 - raised, 0.0]
    return ThresholdMixture(thresholds, weights, jitter)


def parity_tolerance(bounds: HistogramConstraints) -> float:
    """Return the tolerance of a demographic parity of two groups, refusing everything else."""
    shape = [sorted(weight for weight, _ in bound.terms) for bound in bounds.bounds]
    names = {rate.name for bound in bounds.bounds for _, rate in bound.terms}
    limits = {bound.limit for bound in bounds.bounds}
    if names != {"selection_rate"} or shape != [[-1.0, 1.0]] * 2 or len(limits) != 1 or bounds.n_cells != 2:
        raise InvalidParameter(
            "Expected demographic parity of two groups for this rule, got another constraint; use ParityPostprocessor "
            "with its default fitting for more groups and other parities."
        )
    return limits.pop()


@dataclass(frozen=True)
class RateFlips:
    """Random flips from one noisy (group x decision) table.

    Parameters
    ----------
    group_sizes : pair of int, optional
        The public numbers of people in the two groups of the piece that is counted. Given, only the numbers of class-1
        decisions are released, with Laplace noise of scale 1 / epsilon_s for group s (the paper's form); None releases
        the whole table with discrete Laplace noise and takes the sizes from it.
    group_epsilons : pair of float
        How the paper's epsilon_0 and epsilon_1 compare: only their ratio counts. Each record is in one group, so the
        release costs the larger of the two, which the budget settles. For public sizes only.
    """

    group_sizes: tuple[int, int] | None = None
    group_epsilons: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        if self.group_sizes is not None and not (len(self.group_sizes) == 2 and min(self.group_sizes) >= 1):
            raise InvalidParameter(f"Expected two group sizes of at least 1, got {self.group_sizes!r}.")
        if len(self.group_epsilons) != 2:
            raise InvalidParameter(
                f"Expected an epsilon for each of two groups, got {self.group_epsilons!r}."
            )
        for epsilon in self.group_epsilons:
            check_positive("each of group_epsilons", epsilon)
        if self.group_sizes is None and self.group_epsilons[0] != self.group_epsilons[1]:
            raise InvalidParameter("Expected group_epsilons with public group_sizes only; leave them out.")

    @property
    def weights(self) -> Floats:
        """What a record of each group counts: 1 in the group of the larger epsilon."""
        epsilons = np.array(self.group_epsilons, dtype=float)
        return epsilons / epsilons.max()

    def scales(self, noise_multiplier: float) -> tuple[float, float]:
        """Return the scale of the noise on the counts of each group."""
        if self.group_sizes is None:
            return noise_multiplier, noise_multiplier
        first, second = noise_multiplier * ROUNDING / self.weights
        return float(first), float(second)

    def check(self, task: Task, bounds: HistogramConstraints) -> None:
        """Refuse everything but demographic parity of two groups and two classes."""
        if task.n_classes != 2:
            raise InvalidParameter(f"Expected two classes to flip between, got {task.n_classes}.")
        if task.predicts == "joint":
            raise InvalidParameter("Expected a rule that reads the group, got one that does not.")
        parity_tolerance(bounds)

    def parts(self, noise_multiplier: float, share: float, piece: str, task: Task) -> tuple[Part, ...]:
        """Return the one table."""
        law = "discrete_laplace" if self.group_sizes is None else "laplace"
        return (Part("rule", (Release("rates", law, noise_multiplier),), share, piece=piece),)

    def fit(self, scene: Scene, veils: Mapping[str, Veil]) -> Ruling:
        """Return the flips that the noisy rates ask for."""
        people = scene.task.people
        rates, sizes = self.release_rates(scene, veils["rule"].draw())
        tolerance = parity_tolerance(scene.bounds)
        rule = flipping_rule(rates, tolerance, people.codes, people.n_groups, scene.jitter)
        return Ruling(rule, sizes=sizes)

    def release_rates(self, scene: Scene, batch: Batch) -> tuple[Floats, Floats]:
        """Return the two noisy rates, kept within [0, 1], and the sizes they were divided by."""
        order = scene.bounds.cells[scene.task.people.codes, 0]
        if self.group_sizes is None:
            counts = scene.count(batch, scene.plain_rule(), scene.bounds.cells, "rates")[order]
            positives, sizes = counts[:, 1], np.maximum(counts.sum(axis=1), 1.0)
        else:
            positives, sizes = self._weighted(scene, batch)[order], np.array(self.group_sizes, dtype=float)
            positives = positives / self.weights
        return np.clip(positives / sizes, 0.0, 1.0), sizes

    def _weighted(self, scene: Scene, batch: Batch) -> Floats:
        """Release the class-1 decisions of each cell, a record weighing what its group does."""
        people, cells = scene.task.people, scene.bounds.cells
        weights = np.zeros(people.n_groups)
        weights[people.codes] = self.weights
        rule, n_cells = scene.plain_rule(), scene.bounds.n_cells
        function = WeightedDecisions(scene.model, scene.params, rule, cells, n_cells, weights)
        return batch.release_histogram(function, 1.0, "rates")[:, 0]
