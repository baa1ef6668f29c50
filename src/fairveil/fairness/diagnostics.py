"""How the bounds went during training: left sides from noisy histograms, each with the width of its noise.

Everything here is computed from released histograms, so it costs no privacy. The widths hold the noise that was added;
they do not hold that a batch is a sample (those of PF-LD do), nor that a smoothed histogram mixes several steps.

What noisy counts at the released parameters say of each bound.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from fairveil._typing import Float64Array
from fairveil._validation import check_choice, check_delta, check_positive
from fairveil.errors import InvalidParameterError
from fairveil.fairness.histogram import Bound, HistogramConstraints
from fairveil.fairness.intervals import critical


@dataclass(frozen=True, eq=False)
class ConstraintTrace:
    """The course of every bound over the steps of a training.

    Attributes
    ----------
    steps : array of shape (T,)
    values, half_widths, multipliers : arrays of shape (T, J)
        Left side of each bound at the smoothed noisy histogram, the width of its noise to either side, and the weight
        the training gave it.
    bounds : tuple of Bound
    confidence : float
        Of each interval by itself.
    """

    steps: NDArray[np.int64]
    values: Float64Array
    half_widths: Float64Array
    multipliers: Float64Array
    bounds: tuple[Bound, ...]
    confidence: float = 0.95

    def __post_init__(self) -> None:
        expected = (len(self.steps), len(self.bounds))
        for name in ("values", "half_widths", "multipliers"):
            shape = np.shape(getattr(self, name))
            if shape != expected:
                raise InvalidParameterError(f"Expected {name} of shape {expected}, got {shape}.")

    def __len__(self) -> int:
        return len(self.steps)

    def frame(self) -> pd.DataFrame:
        """Return one row a step and bound: step, bound, value, low, high, limit, multiplier."""
        n_bounds = len(self.bounds)
        return pd.DataFrame(
            {
                "step": np.repeat(self.steps, n_bounds),
                "bound": np.tile(np.array([str(bound) for bound in self.bounds], dtype=object), len(self)),
                "value": self.values.ravel(),
                "low": (self.values - self.half_widths).ravel(),
                "high": (self.values + self.half_widths).ravel(),
                "limit": np.tile([bound.limit for bound in self.bounds], len(self)),
                "multiplier": self.multipliers.ravel(),
            }
        )


def quantile(law: str, confidence: float) -> float:
    """Return how many standard deviations hold a weighted sum of such noises with this confidence.

    A sum of Laplace noises is between one of them, whose tails are heavier, and a Gaussian, whose middle is wider.
    The larger of the two quantiles serves every sum: it fails with at most 1.002 (1 - confidence).

    Examples
    --------
    >>> [round(quantile(law, 0.95), 3) for law in ("gaussian", "laplace")]
    [1.96, 2.118]
    """
    check_choice("law", law, ("gaussian", "laplace"))
    failure = 1 - check_delta(confidence, "confidence")
    gaussian = float(-ndtri(failure / 2))
    return gaussian if law == "gaussian" else max(gaussian, -math.log(failure) / math.sqrt(2))


def half_widths(
    constraints: HistogramConstraints,
    histogram: Float64Array,
    noise_variance: float,
    law: str = "gaussian",
    confidence: float = 0.95,
    floor: float = 1.0,
) -> Float64Array:
    """Return how far the noise may have moved each bound's left side, by the delta method.

    Parameters
    ----------
    noise_variance : float
        Of every count: std^2 for Gaussian noise, 2 scale^2 for Laplace noise; times the sum of squared weights if the
        histogram is a weighted mean of several.
    law : {"gaussian", "laplace"}
    """
    return quantile(law, confidence) * constraints.standard_errors(histogram, noise_variance, floor)


def laplace_half_width(
    below: float, scale: float, n_above: int = 1, n_below: int = 2, confidence: float = 0.95
) -> float:
    """Return how far Laplace noise may have moved one rate, without approximation: Lemma C.1 of paper 002 put right.

    With X and Y the noise above and below and r the true rate, the noisy rate is off by (X - r Y) / below, where
    `below` is the *noisy* denominator. X - r Y sums `n_above` noises times 1 - r and the rest times -r, so its variance
    is at most that at r = 0 or 1. This needs no lower bound on the true denominator.

    Parameters
    ----------
    below : float
        The noisy denominator.
    scale : float
        Of the Laplace noise on every count.
    n_above, n_below : int
        How many counts the numerator and the denominator add up; the numerator's are among the denominator's.
    """
    check_positive("scale", scale)
    if not 1 <= n_above <= n_below:
        raise InvalidParameterError(f"Expected 1 <= n_above <= n_below, got {n_above!r} and {n_below!r}.")
    if below <= 0:
        return math.inf
    most = max(n_above, n_below - n_above)
    return quantile("laplace", confidence) * math.sqrt(2 * most) * scale / below


def printed_half_width(below: float, scale: float, n_below: int = 2, confidence: float = 0.95) -> float:
    """Return Lemma C.1 of paper 002 as printed, infinite where its condition fails; kept for comparison.

    `below` is the *true* denominator, which nobody may know. The statement held in every simulation, but its proof
    takes P(Y <= -below/2) for exp(-below/scale)/2 where a Laplace noise has exp(-below/(2 scale))/2. The width exceeds
    1, and so says nothing, up to below = 4 n_below scale log(8/failure): 41 scales for two counts at 95 %.
    """
    failure = 1 - check_delta(confidence, "confidence")
    if below <= 0 or below < 4 * n_below * scale * math.log(1 / (2 * failure)):
        return math.inf
    return 4 * n_below * scale / below * math.log(8 / failure)


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
    values: Float64Array
    standard_errors: Float64Array
    is_told: NDArray[np.bool_]
    offsets: Float64Array | None = None
    clipped_share: float = 0.0
    clipped_error: float = 0.0

    @classmethod
    def of_counts(
        cls,
        watched: HistogramConstraints,
        counts: Float64Array,
        noise_variance: float,
        floor: float,
        **more: Any,
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
    def excess(self) -> Float64Array:
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
