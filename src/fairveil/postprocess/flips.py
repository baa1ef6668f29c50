"""Random flips that move two groups to the midpoint of their rates: Algorithms 1 and 2 of decoupled parity."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairveil._validate import check_choice
from fairveil.errors import InvalidParameter
from fairveil.fairness.histogram import HistogramConstraints
from fairveil.models.rules import ThresholdMixture
from fairveil.postprocess.scene import Ruling, Scene
from fairveil.privacy.plan import Part, Release
from fairveil.privacy.veil import Veil
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
        decisions are noisy (the paper's form); None takes the sizes from the noisy table too.
    law : {"discrete_laplace", "laplace"}
        Of the noise on each count; its scale is one over the epsilon of the table.
    """

    group_sizes: tuple[int, int] | None = None
    law: str = "discrete_laplace"

    def __post_init__(self) -> None:
        check_choice("law", self.law, ("discrete_laplace", "laplace"))
        if self.group_sizes is not None and not (len(self.group_sizes) == 2 and min(self.group_sizes) >= 1):
            raise InvalidParameter(f"Expected two group sizes of at least 1, got {self.group_sizes!r}.")

    def check(self, task: Task, bounds: HistogramConstraints) -> None:
        """Refuse everything but demographic parity of two groups and two classes."""
        if task.n_classes != 2:
            raise InvalidParameter(f"Expected two classes to flip between, got {task.n_classes}.")
        if task.predicts == "joint":
            raise InvalidParameter("Expected a rule that reads the group, got one that does not.")
        parity_tolerance(bounds)

    def parts(self, noise_multiplier: float, share: float, piece: str, task: Task) -> tuple[Part, ...]:
        """Return the one table."""
        return (Part("rule", (Release("rates", self.law, noise_multiplier),), share, piece=piece),)

    def fit(self, scene: Scene, veils: Mapping[str, Veil]) -> Ruling:
        """Return the flips that the noisy rates ask for."""
        counts = scene.count(veils["rule"].draw(), scene.plain_rule(), scene.bounds.cells, "rates")
        people = scene.task.people
        order = scene.bounds.cells[people.codes, 0]
        rates, sizes = self.rates_of(counts[order])
        tolerance = parity_tolerance(scene.bounds)
        rule = flipping_rule(rates, tolerance, people.codes, people.n_groups, scene.jitter)
        return Ruling(rule, sizes=sizes)

    def rates_of(self, counts: Floats) -> tuple[Floats, Floats]:
        """Return the two rates, kept within [0, 1], and the sizes they were divided by."""
        sizes = counts.sum(axis=1) if self.group_sizes is None else np.array(self.group_sizes, dtype=float)
        sizes = np.maximum(sizes, 1.0)
        return np.clip(counts[:, 1] / sizes, 0.0, 1.0), sizes
