"""What released counts say of the bounds: their course during training, a check of the released rule, what it changes.

Everything here is computed from released histograms, so it costs no privacy. The widths of a trace cover the noise that
was added; they do not cover that a batch is a sample (those of PF-LD do), nor that a smoothed histogram mixes several
steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from fairveil._typing import Float64Array
from fairveil._validation import check_choice, check_number
from fairveil.errors import InvalidParameterError
from fairveil.fairness.rates import Bound, HistogramConstraints

MUCH_CLIPPED = 0.25
"""A share of clipped gradients above this is mentioned in a complaint."""


@dataclass(frozen=True, eq=False)
class ConstraintTrace:
    """The course of every bound over the steps of a training.

    Attributes
    ----------
    steps : array of shape (n_steps,)
    values, half_widths, multipliers : arrays of shape (n_steps, n_bounds)
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
        """Return one row per step and bound: step, bound, value, low, high, limit, multiplier."""
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
    failure = 1 - check_number("confidence", confidence, below=1)
    gaussian = float(-ndtri(failure / 2))
    return gaussian if law == "gaussian" else max(gaussian, -math.log(failure) / math.sqrt(2))


def parity_limit(bounds: HistogramConstraints) -> float | None:
    """Return the tolerance of a demographic parity of two groups, None for everything else."""
    shape = [sorted(weight for weight, _ in bound.terms) for bound in bounds.bounds]
    names = {rate.name for bound in bounds.bounds for _, rate in bound.terms}
    limits = {bound.limit for bound in bounds.bounds}
    is_parity = names == {"selection_rate"} and shape == [[-1.0, 1.0]] * 2 and len(limits) == 1
    return limits.pop() if is_parity and bounds.n_cells == 2 else None


@dataclass(frozen=True)
class DecisionChanges:
    """Which share of a model's decisions a rule on top of it changes, by group: estimates from released counts.

    The rule's law is known exactly; how often the model decides for class 1 is known from noisy counts of the rows that
    the rule was fitted to. So these are estimates, for people like them.

    Attributes
    ----------
    shares : tuple of float
        The expected share of decisions changed in each group.
    rates : tuple of float
        How often the model by itself decides each group for class 1.
    fewest : float or None
        For demographic parity of two groups, the least sum of both shares that any rule of its tolerance can have
        (Proposition 1 of decoupled parity) at these rates; flips attain it (Theorem 2).
    """

    shares: tuple[float, ...]
    rates: tuple[float, ...]
    fewest: float | None = None

    @classmethod
    def of(cls, shares: Float64Array, rates: Float64Array, bounds: HistogramConstraints) -> "DecisionChanges":
        """Return the changes with the least sum that the bounds allow, where it is known."""
        limit = parity_limit(bounds)
        fewest = None if limit is None else max(0.0, abs(float(rates[0] - rates[1])) - limit)
        return cls(tuple(np.clip(shares, 0.0, 1.0).tolist()), tuple(np.clip(rates, 0.0, 1.0).tolist()), fewest)

    @property
    def total(self) -> float:
        """The sum of the shares over groups, which Proposition 1 bounds from below for two groups."""
        return math.fsum(self.shares)

    def to_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Return plain values for a summary; `names` are those of the groups."""
        groups = zip(names, self.shares, self.rates, strict=True)
        return {
            "groups": [{"group": name, "share": share, "rate_before": rate} for name, share, rate in groups],
            "total": self.total,
            "fewest": self.fewest,
        }


@dataclass(frozen=True, eq=False)
class FinalCheck:
    """What counts of the released rule say of every bound.

    Attributes
    ----------
    bounds : tuple of Bound
    values, standard_errors : arrays of shape (n_bounds,)
        The left side of each bound on the training people, from counts of the released rule that no choice depended
        on, and its standard error from the noise.
    has_enough_people : array of shape (n_bounds,)
        Whether a bound is on enough people to be estimated.
    offsets : array of shape (n_classes,) or None
        What was added to the class biases, where training did so.
    clipped_share, clipped_error : float
        The share of people whose gradient is clipped at the end, kept within [0, 1], and its standard error; 0 where it
        was not measured.
    """

    bounds: tuple[Bound, ...]
    values: Float64Array
    standard_errors: Float64Array
    has_enough_people: NDArray[np.bool_]
    offsets: Float64Array | None = None
    clipped_share: float = 0.0
    clipped_error: float = 0.0

    @classmethod
    def of_counts(
        cls,
        watched: HistogramConstraints,
        counts: Float64Array,
        noise_variance: float,
        minimum: float,
        **more: Any,
    ) -> "FinalCheck":
        """Return what one noisy (cell x decision) table, with noise of its own, says of every bound."""
        found = watched.estimate(counts, noise_variance, minimum)
        return cls(
            watched.bounds,
            watched.weights @ np.clip(found.rates, 0.0, 1.0),
            # a single decision is no alarm, also without noise
            np.maximum(found.noise_errors, 1 / found.smallest_denominators),
            found.has_enough_people,
            **more,
        )

    @property
    def excess(self) -> Float64Array:
        """By how much each bound is broken beyond doubt: more than noise on all of them feigns in 1 of 20 cases."""
        limits = np.array([bound.limit for bound in self.bounds])
        width = float(-ndtri(0.05 / (2 * max(1, len(limits)))))  # in standard errors
        excess = self.values - width * self.standard_errors - limits
        return np.where(self.has_enough_people, np.maximum(excess, 0.0), 0.0)

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
