"""How the bounds went during training: left sides from noisy histograms, each with the width of its noise.

Everything here is computed from released histograms, so it costs no privacy. The widths hold the noise that was added;
they do not hold that a batch is a sample (those of PF-LD do), nor that a smoothed histogram mixes several steps.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from fairveil._validate import check_choice, check_delta, check_positive
from fairveil.errors import InvalidParameter
from fairveil.fairness.histogram import Bound, HistogramConstraints

__all__ = ["ConstraintTrace", "half_widths", "laplace_half_width", "printed_half_width", "quantile"]

Floats = NDArray[np.float64]


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
    values: Floats
    half_widths: Floats
    multipliers: Floats
    bounds: tuple[Bound, ...]
    confidence: float = 0.95

    def __post_init__(self) -> None:
        expected = (len(self.steps), len(self.bounds))
        for name in ("values", "half_widths", "multipliers"):
            shape = np.shape(getattr(self, name))
            if shape != expected:
                raise InvalidParameter(f"Expected {name} of shape {expected}, got {shape}.")

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
    histogram: Floats,
    noise_variance: float,
    law: str = "gaussian",
    confidence: float = 0.95,
    floor: float = 1.0,
) -> Floats:
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
        raise InvalidParameter(f"Expected 1 <= n_above <= n_below, got {n_above!r} and {n_below!r}.")
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
