"""The law of the privacy loss on a grid: made from a hockey-stick curve or from atoms, composed, read off.

For output laws P and Q the loss is log P/Q under P, and delta(epsilon) is the hockey-stick divergence
H(epsilon) = sup_S P(S) - e^epsilon Q(S). Every law here errs upwards only: between grid points the curve is
replaced by its chord in e^epsilon (connect the dots, Doroshenko et al. 2022), never below a convex curve.

Poisson sampling of any mechanism: the curve of the sampled mechanism from the curve of the base.

Let P be the output law with the record and Q without; sampled they are (1 - q) Q + q P and Q. For g = e^eps

    H_g((1 - q) Q + q P || Q) = q H_g'(P || Q),                 g' = (g - 1 + q) / q
    H_g(Q || (1 - q) Q + q P) = (1 - g (1 - q)) H_g''(Q || P),  g'' = g q / (1 - g (1 - q))

and both sides grow with the base curve, so an upper bound on the base stays one after sampling (Zhu, Dong and
Wang 2022). Everything released from one batch is one base: its parts must not be sampled one by one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy import fft, signal

from fairveil._typing import Float64Array

TAIL_MASS = 1e-15
"""Mass that a composition may move to infinity."""

ROUNDING = 4e-17
"""What the Fourier transform may lose of delta per use, twice the largest loss seen; put at infinity."""

MAX_MOVES = 100
"""How often the ends of a common tangent may move; any two ends give a chord that errs upwards only."""


@dataclass(frozen=True)
class Profile:
    """A hockey-stick curve for epsilon >= 0, the largest finite loss that matters, the mass at infinity."""

    curve: Callable[[Float64Array], Float64Array]
    highest: float
    infinite: float = 0.0


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """Masses at the losses `grid * (first + k)`, the rest of the mass at infinity."""

    grid: float
    first: int
    masses: Float64Array
    infinite: float

    @property
    def losses(self) -> Float64Array:
        """The grid losses that carry mass, ascending."""
        return np.arange(self.first, self.first + len(self.masses), dtype=np.float64) * self.grid

    @property
    def profile(self) -> Profile:
        """The curve of this law, to transform it further."""
        return Profile(self.hockey_stick, float(self.losses[-1]), self.infinite)

    @cached_property
    def _dots(self) -> tuple[Float64Array, Float64Array]:
        """H at each grid loss l_k, and A_k = sum over j >= k of mass_j e^(l_k - l_j).

        H(l_{k-1}) - H(l_k) = (1 - e^-grid) A_k: sums of positive terms only, nothing cancels or overflows.
        """
        falling: Float64Array = signal.lfilter([1.0], [1.0, -math.exp(-self.grid)], self.masses[::-1])[::-1]
        steps = np.append(falling[1:], 0.0)[::-1]
        return self.infinite - math.expm1(-self.grid) * np.cumsum(steps)[::-1], falling

    def hockey_stick(self, epsilons: Float64Array) -> Float64Array:
        """Return H at any epsilons."""
        heights, slopes = self._dots
        above = np.ceil(epsilons / self.grid - 1e-9).astype(np.int64) - self.first
        k = np.clip(above, 0, len(heights) - 1)
        rise = slopes[k] * -np.expm1(np.minimum(epsilons - (self.first + k) * self.grid, 0.0))
        return np.where(above >= len(heights), self.infinite, np.minimum(heights[k] + rise, 1.0))

    def smallest_epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 with H(epsilon) <= delta, infinite if there is none."""
        heights, slopes = self._dots
        if self.infinite > delta:
            return math.inf
        k = int(np.searchsorted(-heights, -delta))
        if delta - heights[k] >= slopes[k]:
            return 0.0
        return max(0.0, (self.first + k) * self.grid + math.log1p(-(delta - heights[k]) / slopes[k]))


@dataclass(frozen=True, eq=False)
class Losses:
    """The loss laws of both directions: one record removed (with it against without) and one added."""

    remove: LossDistribution
    add: LossDistribution

    def smallest_epsilon(self, delta: float) -> float:
        """Return the epsilon that holds in both directions."""
        return max(law.smallest_epsilon(delta) for law in (self.remove, self.add))

    def hockey_stick(self, epsilons: Float64Array) -> Float64Array:
        """Return the worse H of both directions."""
        return np.maximum(self.remove.hockey_stick(epsilons), self.add.hockey_stick(epsilons))


def connect_dots(remove: Profile, add: Profile, grid: float) -> Losses:
    """Return the least laws on the grid whose curves lie nowhere below the profiles'."""
    right = _heights(remove, grid)
    if add is remove:
        law = _connect(right, right, grid)
        return Losses(law, law)
    left = _heights(add, grid)
    return Losses(_connect(right, left, grid), _connect(left, right, grid))


def worst_of(several: Sequence[Losses], grid: float) -> Losses:
    """Return laws whose curves are at each loss the highest of several: of whichever mechanism a hidden coin chose."""
    if len(several) == 1:
        return several[0]
    profiles = []
    for laws in ([one.remove for one in several], [one.add for one in several]):
        profiles.append(Profile(partial(_highest, laws), max(float(law.losses[-1]) for law in laws)))
    return connect_dots(profiles[0], profiles[1], grid)


def _highest(laws: Sequence[LossDistribution], epsilons: Float64Array) -> Float64Array:
    return np.max([law.hockey_stick(epsilons) for law in laws], axis=0)


def join_curves(ahead: Float64Array, back: Float64Array, grid: float) -> Losses:
    """Return laws whose curves lie nowhere below the true ones of a pair, from bounds on these at 0, grid, 2 grid ...

    The bounds of each direction are convex in e^epsilon. Both together are one curve, which for e^epsilon < 1 is
    1 - e^epsilon + e^epsilon back(-epsilon). The true one is convex there too, hence below any chord: where the bounds
    make a kink at 1, their common tangent is taken.
    """
    right, left = np.exp(_steps(ahead, grid)), np.exp(_steps(back, grid))
    a, b = 1, 0
    for _ in range(MAX_MOVES):
        before = (a, b)
        b = _touched(ahead, right, left[a], back[a], 0)
        a = _touched(back, left, right[b], ahead[b], 1)
        if (a, b) == before:
            break
    joined, far = ahead.copy(), back.copy()
    joined[: b + 1] += np.minimum(_chord(ahead, right, b, left[a], back[a]), 0.0)
    far[: a + 1] += np.minimum(_chord(back, left, a, right[b], ahead[b]), 0.0)
    far[0] = joined[0]
    joined, far = (np.minimum.accumulate(np.clip(curve, 0.0, 1.0)) for curve in (joined, far))
    return Losses(_connect(joined, far, grid), _connect(far, joined, grid))


def _touched(curve: Float64Array, x: Float64Array, other_x: float, height: float, first: int) -> int:
    """Return where a line from a point of the other half, as this half sees it, touches the curve from below."""
    rises, runs = curve[first : len(x)] - _turned(other_x, height), x[first:] - 1 / other_x
    return first + int(np.argmin(rises / runs))


def _chord(curve: Float64Array, x: Float64Array, end: int, other_x: float, height: float) -> Float64Array:
    """Return by how much the line between a point of the other half and `end` lies above the curve, from 0 to `end`."""
    slope = (curve[end] - _turned(other_x, height)) / (x[end] - 1 / other_x)
    line: Float64Array = curve[end] + slope * (x[: end + 1] - x[end])
    return line - curve[: end + 1]


def _turned(x: float, height: float) -> float:
    """Return the height at 1 / x as the other direction sees it."""
    return 1 - 1 / x + height / x


def _steps(curve: Float64Array, grid: float) -> Float64Array:
    """Return the losses of a curve whose exponentials a double can hold."""
    return np.arange(min(len(curve), int(600 / grid) + 2), dtype=np.float64) * grid


def _connect(ahead: Float64Array, back: Float64Array, grid: float) -> LossDistribution:
    """Return one direction; below 0 its curve comes from the other one: H(-l) = 1 - e^-l + e^-l H_back(l).

    Only the last term is kept there: it is small in the tail, where rounding would hurt, and the first two
    carry no mass.
    """
    decay, width = math.exp(-grid), -math.expm1(-grid)
    tail = back * np.exp(-grid * np.arange(len(back)))
    slopes = np.append(-np.diff(ahead) / width, 0.0)
    rises = np.append(-np.diff(tail) / width, tail[-1])
    below = (decay * rises[:-1] - rises[1:])[::-1]
    above = slopes[:-1] - decay * slopes[1:]
    masses = np.concatenate([below, [1 - rises[0] - decay * slopes[0]], above])
    return LossDistribution(grid, 1 - len(back), np.maximum(masses, 0.0), float(ahead[-1]))


def _heights(profile: Profile, grid: float) -> Float64Array:
    last = math.ceil(max(profile.highest, 0.0) / grid)
    epsilons = np.arange(last + 1, dtype=np.float64) * grid
    return np.minimum.accumulate(np.clip(profile.curve(epsilons), 0.0, 1.0))


def split_atoms(losses: Float64Array, masses: Float64Array, infinite: float, grid: float) -> LossDistribution:
    """Return the connect-the-dots law of finitely many atoms: each is split between its two grid neighbours.

    The split keeps the mass under P and, since the loss is log P/Q, under Q.
    """
    below = np.floor(losses / grid).astype(np.int64)
    upper_share = np.clip(np.expm1(below * grid - losses) / math.expm1(-grid), 0.0, 1.0)
    first, size = int(below.min()), int(below.max() - below.min()) + 2
    law = np.zeros(size)
    law += np.bincount(below - first, masses * (1 - upper_share), size)
    law += np.bincount(below - first + 1, masses * upper_share, size)
    return LossDistribution(grid, first, law, infinite)


def compose(first: Losses, second: Losses) -> Losses:
    """Return the losses of both mechanisms run one after the other."""
    remove = _convolve(first.remove, second.remove)
    is_symmetric = first.add is first.remove and second.add is second.remove
    return Losses(remove, remove if is_symmetric else _convolve(first.add, second.add))


def power(losses: Losses, count: int) -> Losses:
    """Return the losses of `count` uses of one mechanism."""
    if count == 1:
        return losses
    remove = _self_convolve(losses.remove, count)
    return Losses(remove, remove if losses.add is losses.remove else _self_convolve(losses.add, count))


def _convolve(first: LossDistribution, second: LossDistribution) -> LossDistribution:
    masses = np.maximum(signal.fftconvolve(first.masses, second.masses), 0.0)
    infinite = first.infinite + second.infinite - first.infinite * second.infinite
    return _trim(LossDistribution(first.grid, first.first + second.first, masses, infinite), TAIL_MASS)


def _trim(law: LossDistribution, tail: float) -> LossDistribution:
    """Return the law without its thin ends: the low one moves up, the high one to infinity."""
    low = int(np.searchsorted(np.cumsum(law.masses), tail))
    high = len(law.masses) - int(np.searchsorted(np.cumsum(law.masses[::-1]), tail))
    if low >= high:
        return law
    kept = law.masses[low:high].copy()
    kept[0] += law.masses[:low].sum()
    return LossDistribution(law.grid, law.first + low, kept, min(1.0, law.infinite + tail))


def _self_convolve(law: LossDistribution, count: int) -> LossDistribution:
    """Return `count` uses by one Fourier transform, cut where a Chernoff bound leaves TAIL_MASS outside."""
    if law.infinite >= 1:
        return law
    law = _trim(law, TAIL_MASS / count)
    low, high = _bulk(law.masses, count)
    n = fft.next_fast_len(max(high - low + 1, len(law.masses)), real=True)
    masses = fft.irfft(fft.rfft(law.masses, n) ** count, n)
    masses = np.maximum(np.roll(masses, -low)[: high - low + 1], 0.0)
    infinite = TAIL_MASS + ROUNDING * count - math.expm1(count * math.log1p(-law.infinite))
    return LossDistribution(law.grid, law.first * count + low, masses, min(1.0, infinite))


def _bulk(masses: Float64Array, count: int) -> tuple[int, int]:
    """Return the cells outside which `count` uses leave at most TAIL_MASS, by Chernoff bounds on both ends.

    The orders reach from one that suits a thick tail to the one that is best for a normal law.
    """
    cells = np.arange(len(masses))
    mean = np.average(cells, weights=masses)
    variance = count * np.average((cells - mean) ** 2, weights=masses)
    margin = math.log(2 / TAIL_MASS)
    best, last = math.sqrt(2 * margin / max(variance, 1e-9)), len(masses) - 1
    orders = np.geomspace(min(best, 5 / len(masses)), max(best, 40 / len(masses)), 8)
    from_below = max(-(count * _log_moment(masses, t) + margin) / t for t in orders)
    from_above = max(-(count * _log_moment(masses[::-1], t) + margin) / t for t in orders)
    return max(math.floor(from_below), 0), last * count - max(math.floor(from_above), 0)


def _log_moment(masses: Float64Array, order: float) -> float:
    """Return log of the sum of masses_k e^(-order k)."""
    return math.log(max(float(masses @ np.exp(-order * np.arange(len(masses)))), 1e-300))


def is_dominated(first: Losses, second: Losses) -> bool:
    """Say whether `second` is at least as bad as `first` at every loss and in both directions."""
    return _lies_below(first.remove, second.remove) and _lies_below(first.add, second.add)


def _lies_below(first: LossDistribution, second: LossDistribution) -> bool:
    # both curves are chords between grid losses, so the grid losses decide
    losses = np.union1d(first.losses, second.losses)
    slack = 1e-14  # curves meet at their ends, where rounding must not decide
    return bool(np.all(first.hockey_stick(losses) <= second.hockey_stick(losses) + slack))


def sampled_losses(remove: Profile, add: Profile, rate: float, grid: float) -> Losses:
    """Return both directions of a mechanism on a Poisson batch, from the curves of the mechanism itself."""
    return connect_dots(_removed(remove, rate), _added(add, rate), grid)


def _removed(base: Profile, rate: float) -> Profile:
    def curve(epsilons: Float64Array) -> Float64Array:
        return rate * base.curve(epsilons - math.log(rate) + np.log1p((rate - 1) * np.exp(-epsilons)))

    highest = np.logaddexp(math.log1p(-rate), math.log(rate) + base.highest)
    return Profile(curve, float(highest), rate * base.infinite)


def _added(base: Profile, rate: float) -> Profile:
    ceiling = -math.log1p(-rate)

    def curve(epsilons: Float64Array) -> Float64Array:
        heights = np.zeros_like(epsilons)
        inside = epsilons < ceiling
        factors = -np.expm1(epsilons[inside] - ceiling)
        heights[inside] = factors * base.curve(epsilons[inside] + math.log(rate) - np.log(factors))
        return heights

    # what is infinite in the base ends at the ceiling: the batch may not have held the record
    highest = -np.logaddexp(-ceiling, math.log(rate) - base.highest)
    return Profile(curve, ceiling if base.infinite > 0 else float(highest))
