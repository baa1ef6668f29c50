"""How large a privacy loss is, roughly: enough to choose a grid or a first guess, never a price."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import singledispatch

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from fairveil._typing import Float64Array
from fairveil.accounting import events as ev
from fairveil.errors import UnsupportedEventError

FINENESS = 0.01
"""Grid over epsilon / sqrt(uses): the chords then inflate epsilon by less than 0.03 %."""

FEW_USES = 2000
"""Fewer uses get the grid of so many."""

FINER_RUNS = 8
"""A choice among runs gets the grid of this many times the uses of one run."""

MAX_CELLS = 2**18
"""No law of one use is cut into more cells than this."""


@dataclass(frozen=True)
class LossMagnitude:
    """The variance of the loss (log of 1 + chi-square), the largest loss that matters, and how many uses.

    These are rough; `pure` is not: no loss is ever larger, so it is an epsilon at delta 0 (often infinite).
    """

    variance: float
    reach: float
    n_uses: float = 1
    pure: float = math.inf

    def epsilon(self, delta: float) -> float:
        """Return a first estimate of epsilon, from the normal law of the same size."""
        return normal_epsilon(math.sqrt(self.variance), delta)

    @property
    def is_trivial(self) -> bool:
        """Whether nothing was used (variance 0), or something without any guarantee (variance infinite)."""
        return self.n_uses == 0 or math.isinf(self.variance)

    @property
    def base_grid(self) -> float:
        """A grid fine against this loss, for a base that is sampled afterwards."""
        return _power_of_two(max(math.sqrt(self.variance) / 4096, self.reach / MAX_CELLS))


def normal_epsilon(shift: float, delta: float) -> float:
    """Return the epsilon between two unit normal laws this far apart (Balle and Wang 2018, theorem 8)."""
    bound = shift * shift / 2 + shift * math.sqrt(2 * math.log(1 / delta))
    if shift > 1e6:  # the bound is tight to 1e-6, and the curve below lost in rounding
        return bound
    if 2 * ndtr(shift / 2) - 1 <= delta:
        return 0.0

    def excess(epsilon: float) -> float:
        return float(normal_delta(shift, epsilon)) - delta

    return float(brentq(excess, 0.0, bound, rtol=1e-12))


def normal_delta(shift: float, epsilon: Float64Array | float) -> Float64Array:
    """Return the hockey-stick curve between two unit normal laws this far apart."""
    far = np.exp(epsilon + log_ndtr(-shift / 2 - epsilon / shift))
    return np.asarray(ndtr(shift / 2 - epsilon / shift) - far)


def _power_of_two(grid: float) -> float:
    # nested grids: a finer one never gives a larger answer, and caches meet
    return 2.0 ** math.floor(math.log2(min(max(grid, 1e-12), 1e300)))


def grid_for(epsilon: float, size: LossMagnitude) -> float:
    """Return the grid that resolves `epsilon` after all uses and still fits into memory."""
    # a large epsilon is mostly the mean loss, half the variance: the spread is what the grid must resolve
    spread = min(epsilon, math.sqrt(8 * epsilon))
    wanted = FINENESS * spread / math.sqrt(max(size.n_uses, FEW_USES))
    return _power_of_two(max(wanted, 2e-6 * epsilon, size.reach / MAX_CELLS))


def total_magnitude(uses: Mapping[ev.Event, int]) -> LossMagnitude:
    """Return the size of all uses in sequence; the reach stays that of the largest one."""
    sizes = [(rough_magnitude(event), count) for event, count in uses.items()]
    variance = math.fsum(size.variance * count for size, count in sizes)
    reach = max((size.reach for size, _ in sizes), default=0.0)
    pure = math.fsum(size.pure * count for size, count in sizes)
    return LossMagnitude(variance, reach, sum(size.n_uses * count for size, count in sizes), pure)


@singledispatch
def rough_magnitude(event: ev.Event) -> LossMagnitude:
    """Return the rough size of one use of an event."""
    raise UnsupportedEventError(
        f"Expected an event with a known price, got {type(event).__name__}; none is guessed."
    )


def _normal(shift: float) -> LossMagnitude:
    return LossMagnitude(shift * shift, 10 * shift + shift * shift / 2)


def _bounded(epsilon: float) -> LossMagnitude:
    return LossMagnitude(min(epsilon, epsilon * epsilon), epsilon, pure=epsilon)


@rough_magnitude.register
def _(event: ev.GaussianRelease) -> LossMagnitude:
    return _normal(1 / event.noise_multiplier)


@rough_magnitude.register
def _(event: ev.DiscreteGaussianRelease) -> LossMagnitude:
    return _normal(event.sensitivity / event.std)


@rough_magnitude.register
def _(event: ev.LaplaceRelease) -> LossMagnitude:
    return _bounded(1 / event.noise_multiplier)


@rough_magnitude.register
def _(event: ev.DiscreteLaplaceRelease) -> LossMagnitude:
    return _bounded(event.sensitivity / event.scale)


@rough_magnitude.register
def _(event: ev.RandomizedResponse) -> LossMagnitude:
    return _bounded(math.log1p((1 / event.noise_parameter - 1) * event.n_buckets))


@rough_magnitude.register
def _(event: ev.PureDP) -> LossMagnitude:
    return _bounded(event.epsilon)


@rough_magnitude.register
def _(event: ev.ApproximateDP) -> LossMagnitude:
    return replace(_bounded(event.epsilon), pure=math.inf)


@rough_magnitude.register(ev.NonPrivateRelease)
@rough_magnitude.register(ev.UnpricedChoice)
def _(event: ev.Event) -> LossMagnitude:
    return LossMagnitude(math.inf, math.inf)


@rough_magnitude.register
def _(event: ev.Repeated) -> LossMagnitude:
    size = rough_magnitude(event.event)
    return LossMagnitude(size.variance * event.count, size.reach * event.count, pure=size.pure * event.count)


@rough_magnitude.register
def _(event: ev.Joint) -> LossMagnitude:
    sizes = [rough_magnitude(release) for release in event.releases]
    return LossMagnitude(
        sum(size.variance for size in sizes),
        sum(size.reach for size in sizes),
        pure=sum(size.pure for size in sizes),
    )


@rough_magnitude.register
def _(event: ev.PoissonSampled) -> LossMagnitude:
    base, rate = rough_magnitude(event.event), event.rate
    # chi-square shrinks by q^2, a loss l to log(1 + q (e^l - 1))
    return LossMagnitude(
        _mixed(base.variance, rate**2), _mixed(base.reach, rate), pure=_mixed(base.pure, rate)
    )


@rough_magnitude.register
def _(event: ev.DisjointCells) -> LossMagnitude:
    return rough_magnitude(event.event)


@rough_magnitude.register
def _(event: ev.BestOfRuns) -> LossMagnitude:
    sizes = [_in_sequence(way) for way in event.ways]
    # runs better than the one seen shift its loss by at most mean x total variation, which is at most tanh(pure / 2)
    pure = max(size.pure + event.mean * math.tanh(size.pure / 2) for size in sizes)
    variance = max(size.variance for size in sizes)
    reach = max(size.reach for size in sizes)
    # one run is resolved on the grid of the whole, whose epsilon is larger
    n_uses = FINER_RUNS * max(FEW_USES, *(size.n_uses for size in sizes))
    factor = (1 + math.log1p(event.mean) / 2) ** 2
    return LossMagnitude(factor * variance, reach + event.mean * min(reach / 8, 1.0), n_uses, pure)


def _unrolled(event: ev.Event) -> tuple[ev.Event, int]:
    if not isinstance(event, ev.Repeated):
        return event, 1
    inner, count = _unrolled(event.event)
    return inner, count * event.count


def _in_sequence(way: tuple[ev.Event, ...]) -> LossMagnitude:
    """Return the size of all events of a way as one: what they reach together is what their normal law does."""
    uses: Counter[ev.Event] = Counter()
    for event, count in map(_unrolled, way):
        uses[event] += count
    size = total_magnitude(uses)
    together = _normal(math.sqrt(size.variance)).reach if math.isfinite(size.variance) else math.inf
    return replace(size, reach=max(size.reach, min(together, size.pure)))


def _mixed(size: float, weight: float) -> float:
    """Return log(1 + weight (e^size - 1)), also where e^size is huge."""
    if size < 30:
        return math.log1p(weight * math.expm1(size))
    return float(np.logaddexp(math.log1p(-weight) if weight < 1 else -math.inf, math.log(weight) + size))
