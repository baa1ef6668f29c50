"""The laws of noise by name: what a use costs, which norm of a record must be bounded, how noise is added.

Plan, ledger and veil know no law but these, so a further one (Remark 2 of RaCO-DP: any private histogram) is one
`register_noise_distribution` away.
A law belongs to the trusted base: nothing checks that `add` draws what `event` charges for.

The noise itself: what a noisy sum is made of.

Gaussian and Laplace noise is floating point from secret coins; the noisy sum is then rounded to a public grid, so that
the low bits of the un-noised sum do not show. Counts get exact discrete noise by integer arithmetic only (rejection
from uniform whole numbers; no logarithm, no float), after the samplers of Canonne, Kamath and Steinke (2020).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fairveil._random import Coins
from fairveil._validation import check_choice, check_positive
from fairveil.accounting.events import (
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    Event,
    GaussianRelease,
    LaplaceRelease,
)
from fairveil.errors import InvalidParameterError

Total = NDArray[np.floating] | NDArray[np.integer]

GRID_BITS = 12
"""A noisy sum lies on a grid of at most its noise's scale over 2**12."""

SCALE_DENOMINATOR = 2**20


def add_gaussian(total: Total, std: float, coins: Coins) -> NDArray[np.float64]:
    """Return `total` plus independent Gaussian noise, on a public grid; `std` 0 leaves it as it is."""
    if std == 0:
        return total.astype(np.float64)
    return _on_grid(total, coins.normals(total.size).reshape(total.shape) * std, std)


def add_laplace(total: Total, scale: float, coins: Coins) -> NDArray[np.float64]:
    """Return `total` plus independent Laplace noise, on a public grid; `scale` 0 leaves it as it is."""
    if scale == 0:
        return total.astype(np.float64)
    # the difference of two exponentials: its tail reaches beyond what the logarithm of one uniform double can
    one, other = coins.generator.standard_exponential((2, *total.shape))
    return _on_grid(total, (one - other) * scale, scale)


def _on_grid(total: Total, noise: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Add up in place of `noise` and round to the grid of its scale."""
    noise += total
    grid = math.ldexp(1.0, math.frexp(scale)[1] - 1 - GRID_BITS)
    noise *= 1 / grid  # exact: the grid is a power of two
    np.rint(noise, out=noise)
    noise *= grid
    return noise


def public_scale(scale: float) -> Fraction:
    """Return a noise scale as a fraction, rounded up, so that the noise is never less than accounted for."""
    return Fraction(math.ceil(check_positive("scale", scale) * SCALE_DENOMINATOR), SCALE_DENOMINATOR)


def add_integers(
    counts: Total, sampler: Callable[[Fraction, Coins], int], scale: float, coins: Coins
) -> NDArray[np.int64]:
    """Return whole counts plus exact discrete noise of the given scale, one draw a count."""
    exact = public_scale(scale)
    noise = [sampler(exact, coins) for _ in range(counts.size)]
    return counts.astype(np.int64) + np.array(noise, dtype=np.int64).reshape(counts.shape)


def discrete_laplace(scale: Fraction, coins: Coins) -> int:
    """Return a whole number x drawn with probability proportional to exp(-|x| / scale)."""
    s, t = scale.denominator, scale.numerator
    while True:
        remainder = coins.below(t)
        if not _happens(Fraction(remainder, t), coins):
            continue
        whole = 0
        while _happens(Fraction(1), coins):
            whole += 1
        magnitude = (remainder + t * whole) // s
        is_negative = coins.below(2) == 1
        if magnitude or not is_negative:  # zero would count twice
            return -magnitude if is_negative else magnitude


def discrete_gaussian(std: Fraction, coins: Coins) -> int:
    """Return a whole number x drawn with probability proportional to exp(-x^2 / (2 std^2))."""
    variance = std * std
    t = math.floor(std) + 1
    while True:
        candidate = discrete_laplace(Fraction(t), coins)
        excess = abs(candidate) - variance / t
        if _happens(excess * excess / (2 * variance), coins):
            return candidate


def _happens(gamma: Fraction, coins: Coins) -> bool:
    """Toss a coin that shows True with probability exp(-gamma), exactly, for a rational gamma >= 0."""
    while gamma > 1:
        if not _happens(Fraction(1), coins):
            return False
        gamma -= 1
    # exp(-gamma) is the alternating series of gamma^k / k!: stop at the first failure of a coin of gamma / k.
    k = 1
    while coins.below(gamma.denominator * k) < gamma.numerator:
        k += 1
    return k % 2 == 1


Add = Callable[[Total, float, Coins], NDArray[np.float64]]

_laws: dict[str, "NoiseDistribution"] = {}


@dataclass(frozen=True)
class NoiseDistribution:
    """One kind of noise.

    Parameters
    ----------
    name : str
        What a plan calls it.
    event : callable
        What one use costs, from the noise multiplier: the noise's scale over the bound on a record.
    norm : {1, 2}
        The norm in which that bound is meant, L1 or L2; a one-hot count has norm 1 in both.
    add : callable
        Takes a sum, a scale and coins, and returns the noisy sum.
    is_whole : bool
        Whether the noise is whole numbers, which hide nothing but counts.
    spread : float
        The variance of the noise over its squared scale.
    """

    name: str
    event: Callable[[float], Event]
    norm: int
    add: Add
    is_whole: bool = False
    spread: float = 1.0

    def __post_init__(self) -> None:
        if self.norm not in {1, 2}:
            raise InvalidParameterError(f"Expected the norm of a law to be 1 or 2, got {self.norm!r}.")


def noise_distribution(name: str) -> NoiseDistribution:
    """Return the law that goes by this name."""
    law = _laws.get(name)
    return _laws[check_choice("law", name, _laws)] if law is None else law


def register_noise_distribution(law: NoiseDistribution) -> NoiseDistribution:
    """Make a law known to plans and veils; a name means one law for good.

    Examples
    --------
    >>> from fairveil.privacy.plan import Release
    >>> loud = NoiseDistribution("loud", lambda noise: GaussianRelease(2 * noise), 2,
    ...            lambda total, scale, coins: add_gaussian(total, 2 * scale, coins), spread=4.0)
    >>> _ = register_noise_distribution(loud)
    >>> Release("counts", "loud", 3.0).event
    GaussianRelease(noise_multiplier=6.0)
    """
    if _laws.get(law.name, law) != law:
        raise InvalidParameterError(f"Expected a name that no other law has, got {law.name!r}.")
    _laws[law.name] = law
    return law


def _whole(sampler: Callable[[Fraction, Coins], int]) -> Add:
    def add(counts: Total, scale: float, coins: Coins) -> NDArray[np.float64]:
        return add_integers(counts, sampler, scale, coins).astype(np.float64)

    return add


register_noise_distribution(NoiseDistribution("gaussian", GaussianRelease, 2, add_gaussian))
register_noise_distribution(NoiseDistribution("laplace", LaplaceRelease, 1, add_laplace, spread=2.0))
register_noise_distribution(
    NoiseDistribution(
        "discrete_laplace", DiscreteLaplaceRelease, 1, _whole(discrete_laplace), is_whole=True, spread=2.0
    )
)
# A count moves by whole numbers, so the bound of a discrete Gaussian is meant in L1 (see its event).
register_noise_distribution(
    NoiseDistribution(
        "discrete_gaussian", DiscreteGaussianRelease, 1, _whole(discrete_gaussian), is_whole=True
    )
)
