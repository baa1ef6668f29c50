"""What noisy counts at the released parameters say of each bound."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil.fairness.estimates import critical
from fairveil.fairness.histogram import Bound, HistogramConstraints

__all__ = ["FinalCheck"]

Floats = NDArray[np.float64]

MUCH_CLIPPED = 0.25
"""A share of clipped gradients worth a word."""


@dataclass(frozen=True, eq=False)
class FinalCheck:
    """What the last look says of the released rule.

    Attributes
    ----------
    bounds : tuple of Bound
    values, standard_errors : arrays of shape (J,)
        The left side of each bound on the people trained on, from counts of the released rule that no choice has
        looked at, and its standard error from the noise.
    is_told : array of shape (J,)
        Whether enough people are behind a bound to speak of it.
    offsets : array of shape (classes,) or None
        What was added to the class biases, where training did so.
    clipped_share, clipped_error : float
        The share of people whose gradient is clipped at the end, kept within [0, 1], and its standard error; 0 where it
        was not asked for.
    """

    bounds: tuple[Bound, ...]
    values: Floats
    standard_errors: Floats
    is_told: NDArray[np.bool_]
    offsets: Floats | None = None
    clipped_share: float = 0.0
    clipped_error: float = 0.0

    @classmethod
    def of_counts(
        cls, watched: HistogramConstraints, counts: Floats, noise_variance: float, floor: float, **more: Any
    ) -> "FinalCheck":
        """Return what one noisy (cell x decision) table, with noise of its own, says of every bound."""
        rates = np.clip(watched.rates(counts, floor), 0.0, 1.0)
        one_person = 1 / watched.smallest_parts(
            counts, floor
        )  # a single decision is no alarm, also without noise
        return cls(
            watched.bounds,
            watched.weights @ rates,
            np.maximum(watched.standard_errors(counts, noise_variance, floor), one_person),
            watched.is_told(counts, noise_variance),
            **more,
        )

    @property
    def excess(self) -> Floats:
        """By how much each bound is surely broken: beyond what noise on all of them feigns in 1 of 20 cases."""
        limits = np.array([bound.limit for bound in self.bounds])
        excess = self.values - critical(0.95, len(self.bounds)) * self.standard_errors - limits
        return np.where(self.is_told, np.maximum(excess, 0.0), 0.0)

    @property
    def may_hold(self) -> bool:
        """Whether no bound is broken beyond what the noise may feign."""
        return not self.excess.any()

    def complaint(self) -> str:
        """Return one sentence on the bound that is broken most, and what could help."""
        worst = int(np.argmax(self.excess))
        clipped = ""
        if self.clipped_share - 2 * self.clipped_error > MUCH_CLIPPED:
            clipped = (
                f" About {100 * self.clipped_share:.0f} % of the gradients are clipped, which can keep a bound out of "
                "reach: in Python, try a larger clip_norm."
            )
        return (
            f"Expected {self.bounds[worst]}, got about {self.values[worst]:.3f} with the released rule; loosen it, "
            f"check that all bounds can hold together, or train with more people or a larger epsilon.{clipped}"
        )
