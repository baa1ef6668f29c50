"""Poisson sampling of any mechanism: the curve of the sampled mechanism from the curve of the base.

Let P be the output law with the record and Q without; sampled they are (1 - q) Q + q P and Q. For g = e^eps

    H_g((1 - q) Q + q P || Q) = q H_g'(P || Q),                 g' = (g - 1 + q) / q
    H_g(Q || (1 - q) Q + q P) = (1 - g (1 - q)) H_g''(Q || P),  g'' = g q / (1 - g (1 - q))

and both sides grow with the base curve, so an upper bound on the base stays one after sampling (Zhu, Dong and
Wang 2022). Everything released from one batch is one base: its parts must not be sampled one by one.
"""

import math

import numpy as np

from fairveil.privacy.losses import Array, Losses, Profile, connect_dots

__all__ = ["sampled_losses"]


def sampled_losses(remove: Profile, add: Profile, rate: float, grid: float) -> Losses:
    """Return both directions of a mechanism on a Poisson batch, from the curves of the mechanism itself."""
    return connect_dots(_removed(remove, rate), _added(add, rate), grid)


def _removed(base: Profile, rate: float) -> Profile:
    def curve(epsilons: Array) -> Array:
        return rate * base.curve(epsilons - math.log(rate) + np.log1p((rate - 1) * np.exp(-epsilons)))

    highest = np.logaddexp(math.log1p(-rate), math.log(rate) + base.highest)
    return Profile(curve, float(highest), rate * base.infinite)


def _added(base: Profile, rate: float) -> Profile:
    ceiling = -math.log1p(-rate)

    def curve(epsilons: Array) -> Array:
        heights = np.zeros_like(epsilons)
        inside = epsilons < ceiling
        factors = -np.expm1(epsilons[inside] - ceiling)
        heights[inside] = factors * base.curve(epsilons[inside] + math.log(rate) - np.log(factors))
        return heights

    # what is infinite in the base ends at the ceiling: the batch may not have held the record
    highest = -np.logaddexp(-ceiling, math.log(rate) - base.highest)
    return Profile(curve, ceiling if base.infinite > 0 else float(highest))
