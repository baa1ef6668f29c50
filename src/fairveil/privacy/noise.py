"""Noise distributions by name: what one use costs, which norm of a record must be bounded, how noise is added.

Plan, ledger and veil know a distribution by its name only; `register_noise_distribution` adds a further one. It belongs
to the trusted base: its draws are tried once (`probes.check_noise`), but nothing checks that `event` charges for them.

Gaussian and Laplace noise is floating point from secret coins; the noisy sum is then rounded to a public grid, so that
the low bits of the exact sum do not show. Counts can have exact discrete noise by integer arithmetic only (rejection
from uniform whole numbers; no logarithm, no float), with the samplers of Canonne, Kamath and Steinke (2020).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fairveil._random import Coins
from fairveil._validation import check_choice, check_number
from fairveil.accounting.events import (
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    Event,
    GaussianRelease,
    LaplaceRelease,
)
from fairveil.errors import InvalidParameterError
from fairveil.models.products import HAS_KERNELS, _kernels
from fairveil.privacy.probes import check_noise
from fairveil.privacy.sampling import discrete_gaussian, discrete_laplace

Total = NDArray[np.floating] | NDArray[np.integer]

GRID_BITS = 12
"""Noisy sums are multiples of a power of two that is at most the scale of their noise over 2**12."""

SCALE_DENOMINATOR = 2**20
"""Scales of discrete noise are rounded up to multiples of 1 over this."""


def add_gaussian(total: Total, std: float, coins: Coins) -> NDArray[np.float64]:
    """Return `total` plus independent Gaussian noise, on a public grid; `std` 0 leaves it as it is."""
    return _add_on_grid(total, std, coins.normals)


def add_laplace(total: Total, scale: float, coins: Coins) -> NDArray[np.float64]:
    """Return `total` plus independent Laplace noise, on a public grid; `scale` 0 leaves it as it is."""

    def draw(count: int) -> NDArray[np.float64]:
        # the difference of two exponentials: its tail reaches beyond what the logarithm of one uniform double can
        one, other = coins.generator.standard_exponential((2, count))
        return one - other

    return _add_on_grid(total, scale, draw)


def _add_on_grid(total: Total, scale: float, draw: Callable[[int], NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return `total` plus `scale` times as many drawn numbers, rounded to the grid of the scale."""
    if scale == 0:
        return total.astype(np.float64)
    grid = math.ldexp(1.0, math.frexp(scale)[1] - 1 - GRID_BITS)
    if HAS_KERNELS and total.ndim == 1 and total.dtype == np.float64:
        noisy = np.empty(total.size)
        _kernels.add_on_grid(total, draw(total.size), scale, grid, noisy)
        return noisy
    noise = draw(total.size).reshape(total.shape) * scale
    noise += total
    noise *= 1 / grid  # exact: the grid is a power of two
    np.rint(noise, out=noise)
    noise *= grid
    return noise


def public_scale(scale: float) -> Fraction:
    """Return a noise scale as a fraction, rounded up, so that the noise is never less than accounted for."""
    return Fraction(math.ceil(check_number("scale", scale) * SCALE_DENOMINATOR), SCALE_DENOMINATOR)


def add_integers(
    sampler: Callable[[Fraction, Coins], int], counts: Total, scale: float, coins: Coins
) -> NDArray[np.float64]:
    """Return whole counts plus exact discrete noise of this scale, one draw for each count."""
    exact = public_scale(scale)
    noise = np.array([sampler(exact, coins) for _ in range(counts.size)], dtype=np.int64)
    return (counts.astype(np.int64) + noise.reshape(counts.shape)).astype(np.float64)


Add = Callable[[Total, float, Coins], NDArray[np.float64]]

_laws: dict[str, "NoiseDistribution"] = {}


@dataclass(frozen=True)
class NoiseDistribution:
    """A kind of noise and its name in a plan.

    Parameters
    ----------
    event : callable
        What one use costs, from the noise multiplier: the noise's scale over the bound on a record.
    norm : {1, 2}
        The norm of that bound, L1 or L2; a one-hot count has norm 1 in both.
    add : callable
        Takes a sum, a scale and coins, and returns the noisy sum.
    is_whole : bool
        Whether the noise is whole numbers, which can hide counts only.
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
            raise InvalidParameterError(f"Expected the norm of a noise distribution to be 1 or 2, got {self.norm!r}.")


def noise_distribution(name: str) -> NoiseDistribution:
    """Return the noise distribution of this name."""
    law = _laws.get(name)
    return _laws[check_choice("law", name, _laws)] if law is None else law


def register_noise_distribution(law: NoiseDistribution) -> NoiseDistribution:
    """Register a noise distribution for plans and veils; a name cannot be registered again for another one.

    It is refused if its draws show less noise than its spread states, or noise that does not come from the coins.
    """
    if _laws.get(law.name, law) != law:
        raise InvalidParameterError(f"Expected a name that no other noise distribution has, got {law.name!r}.")
    if law.name not in _laws:
        check_noise(law.name, law.add, law.spread, law.is_whole)
    _laws[law.name] = law
    return law


_laws |= {
    law.name: law
    for law in (
        NoiseDistribution("gaussian", GaussianRelease, 2, add_gaussian),
        NoiseDistribution("laplace", LaplaceRelease, 1, add_laplace, spread=2.0),
        NoiseDistribution(
            "discrete_laplace", DiscreteLaplaceRelease, 1, partial(add_integers, discrete_laplace), True, 2.0
        ),
        # A count moves by whole numbers, so the bound of a discrete Gaussian is meant in L1 (see its event).
        NoiseDistribution(
            "discrete_gaussian", DiscreteGaussianRelease, 1, partial(add_integers, discrete_gaussian), True
        ),
    )
}
