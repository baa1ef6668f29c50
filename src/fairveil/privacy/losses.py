"""The law of the privacy loss on a grid: made from a hockey-stick curve or from atoms, composed, and read off.

For output laws P and Q the loss is log P/Q under P, and delta(epsilon) is the hockey-stick divergence
H(epsilon) = sup_S P(S) - e^epsilon Q(S). Every law here errs upwards only: between grid points the curve is replaced
by its chord in e^epsilon (connect the dots, Doroshenko et al. 2022), which never lies below a convex curve.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from dp_accounting.pld import common
from numpy.typing import NDArray
from scipy import fft, signal

__all__ = ["Losses", "LossLaw", "Profile", "compose", "connect_dots", "is_dominated", "power", "split_atoms"]

Array = NDArray[np.float64]

TAIL_MASS = 1e-15
"""Mass that a composition may move to infinity; also covers the rounding of its Fourier transforms."""


@dataclass(frozen=True)
class Profile:
    """A hockey-stick curve, and the losses outside which (but for infinity) there is next to no mass."""

    curve: Callable[[Array], Array]
    lowest: float
    highest: float


@dataclass(frozen=True, eq=False)
class LossLaw:
    """Masses at the losses `grid * (first + k)`, the rest of the mass at infinity."""

    grid: float
    first: int
    masses: Array
    infinite: float

    @property
    def losses(self) -> Array:
        """The grid losses that carry mass, ascending."""
        return (self.first + np.arange(len(self.masses))) * self.grid

    @cached_property
    def _dots(self) -> tuple[Array, Array]:
        """H at each grid loss l_k, and A_k = sum over j >= k of mass_j e^(l_k - l_j): H' there is -A_k.

        H(l_{k-1}) - H(l_k) = (1 - e^-grid) A_k: sums of positive terms only, nothing cancels or overflows.
        """
        falling: Array = signal.lfilter([1.0], [1.0, -math.exp(-self.grid)], self.masses[::-1])[::-1]
        steps = np.append(falling[1:], 0.0)[::-1]
        return self.infinite - math.expm1(-self.grid) * np.cumsum(steps)[::-1], falling

    def hockey_stick(self, epsilons: Array) -> Array:
        """Return H at any epsilons."""
        heights, slopes = self._dots
        above = np.ceil(epsilons / self.grid - 1e-9).astype(np.int64) - self.first
        k = np.clip(above, 0, len(heights) - 1)
        rise = slopes[k] * -np.expm1(np.minimum(epsilons - self.losses[k], 0.0))
        return np.where(above >= len(heights), self.infinite, np.minimum(heights[k] + rise, 1.0))

    def smallest_epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 with H(epsilon) <= delta, infinite if there is none."""
        heights, slopes = self._dots
        if self.infinite > delta:
            return math.inf
        k = int(np.searchsorted(-heights, -delta))
        if k == len(heights):
            return max(0.0, float(self.losses[-1]))
        below_one = (delta - heights[k]) / slopes[k] if slopes[k] > 0 else 0.0
        return max(0.0, float(self.losses[k]) + math.log1p(-below_one)) if below_one < 1 else 0.0

    @property
    def profile(self) -> Profile:
        """The curve of this law, to transform it further."""
        highest = math.inf if self.infinite > TAIL_MASS else float(self.losses[-1])
        return Profile(self.hockey_stick, float(self.losses[0]), highest)


@dataclass(frozen=True, eq=False)
class Losses:
    """The loss laws of both directions: one record removed (with it against without) and one added."""

    remove: LossLaw
    add: LossLaw

    def smallest_epsilon(self, delta: float) -> float:
        """Return the epsilon that holds in both directions."""
        return max(law.smallest_epsilon(delta) for law in (self.remove, self.add))

    def hockey_stick(self, epsilons: Array) -> Array:
        """Return the worse H of both directions."""
        return np.maximum(self.remove.hockey_stick(epsilons), self.add.hockey_stick(epsilons))


def connect_dots(profile: Profile, grid: float) -> LossLaw:
    """Return the least law on the grid whose curve lies nowhere below the profile's."""
    first, last = math.floor(profile.lowest / grid), math.ceil(profile.highest / grid)
    heights = np.clip(profile.curve(np.arange(first, last + 1) * grid), 0.0, 1.0)
    heights = np.minimum.accumulate(heights)
    slopes = -np.diff(heights) / -math.expm1(-grid)
    masses = np.append(slopes, 0.0)
    masses[:-1] -= math.exp(-grid) * np.append(slopes[1:], 0.0)
    lowest = 1.0 - heights[0] - (math.exp(-grid) * slopes[0] if len(slopes) else 0.0)
    masses = np.maximum(np.append(lowest, masses[:-1]), 0.0)
    return LossLaw(grid, first, masses, float(heights[-1]))


def split_atoms(losses: Array, masses: Array, infinite: float, grid: float) -> LossLaw:
    """Return the connect-the-dots law of finitely many atoms: each is split between its two grid neighbours.

    The split keeps the mass under P and, since the loss is log P/Q, under Q.
    """
    below = np.floor(losses / grid).astype(np.int64)
    upper_share = np.expm1(below * grid - losses) / math.expm1(-grid)
    first, size = int(below.min()), int(below.max() - below.min()) + 2
    law = np.bincount(below - first, masses * (1 - upper_share), size)
    law += np.bincount(below - first + 1, masses * upper_share, size)
    return LossLaw(grid, first, law, infinite)


def _both(first: Losses, change: Callable[[LossLaw], LossLaw]) -> Losses:
    remove = change(first.remove)
    return Losses(remove, remove if first.add is first.remove else change(first.add))


def compose(first: Losses, second: Losses) -> Losses:
    """Return the losses of both mechanisms run one after the other."""
    remove = _convolve(first.remove, second.remove)
    symmetric = first.add is first.remove and second.add is second.remove
    return Losses(remove, remove if symmetric else _convolve(first.add, second.add))


def power(losses: Losses, count: int) -> Losses:
    """Return the losses of `count` uses of one mechanism."""
    return losses if count == 1 else _both(losses, lambda law: _self_convolve(law, count))


def _convolve(first: LossLaw, second: LossLaw) -> LossLaw:
    masses = np.maximum(signal.fftconvolve(first.masses, second.masses), 0.0)
    infinite = first.infinite + second.infinite - first.infinite * second.infinite
    return _trim(LossLaw(first.grid, first.first + second.first, masses, infinite))


def _trim(law: LossLaw) -> LossLaw:
    low = int(np.searchsorted(np.cumsum(law.masses), TAIL_MASS / 2))
    high = len(law.masses) - int(np.searchsorted(np.cumsum(law.masses[::-1]), TAIL_MASS / 2))
    if low >= high:
        return law
    kept = law.masses[low:high].copy()
    kept[0] += law.masses[:low].sum()
    return LossLaw(law.grid, law.first + low, kept, min(1.0, law.infinite + TAIL_MASS))


def _self_convolve(law: LossLaw, count: int) -> LossLaw:
    """Return `count` uses by one Fourier transform, cut where a Chernoff bound leaves TAIL_MASS outside."""
    size = len(law.masses)
    low, high = common.compute_self_convolve_bounds(law.masses, count, TAIL_MASS, _chernoff_orders(law, count))
    n = fft.next_fast_len(max(high - low + 1, size), real=True)
    masses = fft.irfft(fft.rfft(law.masses, n) ** count, n)
    masses = np.maximum(np.roll(masses, -low)[: high - low + 1], 0.0)
    infinite = TAIL_MASS - math.expm1(count * math.log1p(-law.infinite)) if law.infinite < 1 else 1.0
    return LossLaw(law.grid, law.first * count + low, masses, min(1.0, infinite))


def _chernoff_orders(law: LossLaw, count: int) -> list[float]:
    """Return orders around the one that is best for a normal law of the same variance."""
    cells = np.arange(len(law.masses))
    mean = np.average(cells, weights=law.masses)
    variance = max(np.average((cells - mean) ** 2, weights=law.masses), 1e-12)
    best = math.sqrt(2 * math.log(2 / TAIL_MASS) / (count * variance))
    orders = [best * factor for factor in (0.1, 0.3, 0.6, 1.0, 1.5)] + [20 / len(cells)]
    return [-order for order in orders] + orders


def is_dominated(first: Losses, second: Losses) -> bool:
    """Say whether `second` is at least as bad as `first` at every loss and in both directions."""
    pairs = ((first.remove, second.remove), (first.add, second.add))
    return all(_lies_below(one, other) for one, other in pairs)


def _lies_below(one: LossLaw, other: LossLaw) -> bool:
    # both curves are chords between grid losses, so the grid losses decide
    losses = np.union1d(one.losses, other.losses)
    slack = 1e-14  # below the rounding that TAIL_MASS covers
    return bool(np.all(one.hockey_stick(losses) <= other.hockey_stick(losses) + slack))
