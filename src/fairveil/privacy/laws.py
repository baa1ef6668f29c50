"""The laws of noise by name: what a use costs, which norm of a record must be bounded, how noise is added.

Plan, ledger and veil know no law but these, so a further one (Remark 2 of RaCO-DP: any private histogram) is one
`register_law` away. A law belongs to the trusted base: nothing checks that `add` draws what `event` charges for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fairveil._validate import check_choice
from fairveil.coins import Coins
from fairveil.errors import InvalidParameter
from fairveil.privacy.events import (
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    Event,
    GaussianRelease,
    LaplaceRelease,
)
from fairveil.privacy.mechanisms import (
    Sum,
    add_gaussian,
    add_integers,
    add_laplace,
    discrete_gaussian,
    discrete_laplace,
)

__all__ = ["Law", "law_named", "register_law"]

Add = Callable[[Sum, float, Coins], NDArray[np.float64]]

_laws: dict[str, "Law"] = {}


@dataclass(frozen=True)
class Law:
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
            raise InvalidParameter(f"Expected the norm of a law to be 1 or 2, got {self.norm!r}.")


def law_named(name: str) -> Law:
    """Return the law that goes by this name."""
    law = _laws.get(name)
    return _laws[check_choice("law", name, _laws)] if law is None else law


def register_law(law: Law) -> Law:
    """Make a law known to plans and veils; a name means one law for good.

    Examples
    --------
    >>> from fairveil.privacy.plan import Release
    >>> loud = Law("loud", lambda noise: GaussianRelease(2 * noise), 2,
    ...            lambda total, scale, coins: add_gaussian(total, 2 * scale, coins), spread=4.0)
    >>> _ = register_law(loud)
    >>> Release("counts", "loud", 3.0).event
    GaussianRelease(noise_multiplier=6.0)
    """
    if _laws.get(law.name, law) != law:
        raise InvalidParameter(f"Expected a name that no other law has, got {law.name!r}.")
    _laws[law.name] = law
    return law


def _whole(sampler: Callable[[Fraction, Coins], int]) -> Add:
    def add(counts: Sum, scale: float, coins: Coins) -> NDArray[np.float64]:
        return add_integers(counts, sampler, scale, coins).astype(np.float64)

    return add


register_law(Law("gaussian", GaussianRelease, 2, add_gaussian))
register_law(Law("laplace", LaplaceRelease, 1, add_laplace, spread=2.0))
register_law(
    Law("discrete_laplace", DiscreteLaplaceRelease, 1, _whole(discrete_laplace), is_whole=True, spread=2.0)
)
# A count moves by whole numbers, so the bound of a discrete Gaussian is meant in L1 (see its event).
register_law(Law("discrete_gaussian", DiscreteGaussianRelease, 1, _whole(discrete_gaussian), is_whole=True))
