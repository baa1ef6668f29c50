"""Privacy loss distributions on a grid: built from a hockey-stick curve or from atoms, composed, read off.

For output distributions P and Q the loss is log P/Q under P, and delta(epsilon) is the hockey-stick divergence
H(epsilon) = sup_S P(S) - e^epsilon Q(S). Every distribution here errs upward only: between grid points the curve is
replaced by its chord in e^epsilon (connect the dots, Doroshenko et al. 2022), which is never below a convex curve.

**Poisson sampling.** Let P be the output distribution with the record and Q without; sampled they are
(1 - q) Q + q P and Q. For g = e^epsilon

    H_g((1 - q) Q + q P || Q) = q H_g'(P || Q),                 g' = (g - 1 + q) / q
    H_g(Q || (1 - q) Q + q P) = (1 - g (1 - q)) H_g''(Q || P),  g'' = g q / (1 - g (1 - q))

and both sides grow with the base curve, so an upper bound on the base stays one after sampling (Zhu, Dong and
Wang 2022). Everything released from one batch is one base: its parts must not be sampled one by one.

**The best of a random number of runs** (docs/proofs/selection.md). Let one run have the distribution P with a unit and
Q without it, K ~ Poisson(m) conditioned on K >= 1, and p = P(a run is better than y). The best run has the density
w(p) P(y) with w(p) = m e^(-m p) / (1 - e^-m), and without the unit at least w(p) e^(-c(p)) Q(y) with
c(p) = m (g(p) - p), where g(p) is the largest probability under Q of any set that has probability p under P. So

    H_A(epsilon) <= sum_k a_k H(epsilon + x_k)    if    sum_k a_k (t - e^x_k)_+ >= max over p of w(p) (t - e^-c(p))_+

for all t >= 0: a mixture of shifted curves of one run. It sums to w(0), a little more than m.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce

import numpy as np
from scipy import fft
from scipy.linalg import blas

from fairveil._typing import Float64Array

TAIL_MASS = 1e-15
"""Mass that a composition may move to infinity."""

ROUNDING = 4e-17
"""What the Fourier transform may lose of delta per use, twice the largest loss observed; put at infinity."""

MAX_ATOMS = 2**18
"""Whole numbers beyond so many are bundled, each bundle at the worst mass and loss of its members."""

MAX_MOVES = 100
"""How often the ends of a common tangent may move; any two ends give a chord that errs upward only."""

RANKS_PER_ROOT = 360
LARGEST_RANK = 40.0
"""Ranks m p are cut into cells between (i / 360)^2, up to 40, above which a density is below e^-40 of its largest."""

MAX_SHIFTS = 512
"""About how many shifts a mixture has; it errs upward between them."""

SHIFTS_AHEAD = 2.0
"""Shifts reach this many times as far against epsilon as toward it."""


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
        """The curve of this distribution, to transform it further."""
        return Profile(self.hockey_stick, float(self.losses[-1]), self.infinite)

    @cached_property
    def _dots(self) -> tuple[Float64Array, Float64Array]:
        """H at each grid loss l_k, and A_k = sum over j >= k of mass_j e^(l_k - l_j).

        H(l_{k-1}) - H(l_k) = (1 - e^-grid) A_k: sums of positive terms only, nothing cancels or overflows.
        """
        # A_k = mass_k + e^-grid A_{k+1}, as the solution of a system of two bands; scipy.signal would load for as long
        bands = np.empty((2, len(self.masses)), order="F")
        bands[0], bands[1] = 1.0, -math.exp(-self.grid)
        falling: Float64Array = blas.dtbsv(1, bands, self.masses[::-1], lower=1, diag=1)[::-1]
        steps = np.append(falling[1:], 0.0)[::-1]
        return self.infinite - math.expm1(-self.grid) * np.cumsum(steps)[::-1], falling

    def hockey_stick(self, epsilons: Float64Array) -> Float64Array:
        """Return H at any epsilons."""
        heights, slopes = self._dots
        above = np.ceil(epsilons / self.grid - 1e-9).astype(np.int64) - self.first
        k = np.clip(above, 0, len(heights) - 1)
        rise = slopes[k] * -np.expm1(np.minimum(epsilons - (self.first + k) * self.grid, 0.0))
        return np.where(above >= len(heights), self.infinite, np.minimum(heights[k] + rise, 1.0))


@dataclass(frozen=True, eq=False)
class Losses:
    """The loss distributions of both directions: one record removed (with it against without) and one added."""

    remove: LossDistribution
    add: LossDistribution

    def smallest_epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 with H(epsilon) <= delta in both directions, infinite if there is none."""
        answer = 0.0
        for direction in (self.remove, self.add):
            heights, slopes = direction._dots
            if direction.infinite > delta:
                return math.inf
            k = int(np.searchsorted(-heights, -delta))
            if delta - heights[k] < slopes[k]:
                rest = math.log1p(-(delta - heights[k]) / slopes[k])
                answer = max(answer, (direction.first + k) * direction.grid + rest)
        return answer

    def hockey_stick(self, epsilons: Float64Array) -> Float64Array:
        """Return the worse H of both directions."""
        return np.maximum(self.remove.hockey_stick(epsilons), self.add.hockey_stick(epsilons))


def connect_dots(remove: Profile, add: Profile, grid: float) -> Losses:
    """Return the least distributions on the grid whose curves lie nowhere below the profiles'."""
    ahead = remove.curve(np.arange(math.ceil(max(remove.highest, 0.0) / grid) + 1, dtype=np.float64) * grid)
    if add is remove:
        return _losses_of_curves(ahead, ahead, grid)
    back = add.curve(np.arange(math.ceil(max(add.highest, 0.0) / grid) + 1, dtype=np.float64) * grid)
    return _losses_of_curves(ahead, back, grid)


def sampled_losses(remove: Profile, add: Profile, rate: float, grid: float) -> Losses:
    """Return both directions of a mechanism on a Poisson batch, from the curves of the mechanism itself."""
    highest = float(np.logaddexp(math.log1p(-rate), math.log(rate) + remove.highest))
    epsilons = np.arange(math.ceil(max(highest, 0.0) / grid) + 1, dtype=np.float64) * grid
    ahead = rate * remove.curve(epsilons - math.log(rate) + np.log1p((rate - 1) * np.exp(-epsilons)))

    # what is infinite in the base ends at the ceiling: the batch may not have held the record
    ceiling = -math.log1p(-rate)
    highest = ceiling if add.infinite > 0 else float(-np.logaddexp(-ceiling, math.log(rate) - add.highest))
    epsilons = np.arange(math.ceil(max(highest, 0.0) / grid) + 1, dtype=np.float64) * grid
    inside = epsilons < ceiling
    factors = -np.expm1(epsilons[inside] - ceiling)
    back = np.zeros_like(epsilons)
    back[inside] = factors * add.curve(epsilons[inside] + math.log(rate) - np.log(factors))
    return _losses_of_curves(ahead, back, grid)


def worst_of(several: Sequence[Losses], grid: float) -> Losses:
    """Return distributions whose curves are at each loss the highest of several: whichever mechanism was chosen."""
    if len(several) == 1:
        return several[0]
    profiles = []
    for directions in ([one.remove for one in several], [one.add for one in several]):
        profiles.append(Profile(partial(_highest, directions), max(float(one.losses[-1]) for one in directions)))
    return connect_dots(profiles[0], profiles[1], grid)


def _highest(distributions: Sequence[LossDistribution], epsilons: Float64Array) -> Float64Array:
    return np.max([distribution.hockey_stick(epsilons) for distribution in distributions], axis=0)


def _losses_of_curves(ahead: Float64Array, back: Float64Array, grid: float) -> Losses:
    """Return both directions from their hockey-stick curves at 0, grid, 2 grid ...

    Below 0 the curve of a direction comes from the other one: H(-l) = 1 - e^-l + e^-l H_back(l). Only the last term is
    kept there: it is small in the tail, where rounding would hurt, and the first two carry no mass.
    """
    decay, width = math.exp(-grid), -math.expm1(-grid)
    first, second = (np.minimum.accumulate(np.clip(curve, 0.0, 1.0)) for curve in (ahead, back))
    pairs = [(first, first)] if back is ahead else [(first, second), (second, first)]
    directions: list[LossDistribution] = []
    for own, opposite in pairs:
        tail = opposite * np.exp(-grid * np.arange(len(opposite)))
        slopes = np.append(-np.diff(own) / width, 0.0)
        rises = np.append(-np.diff(tail) / width, tail[-1])
        below = (decay * rises[:-1] - rises[1:])[::-1]
        above = slopes[:-1] - decay * slopes[1:]
        masses = np.concatenate([below, [1 - rises[0] - decay * slopes[0]], above])
        directions.append(LossDistribution(grid, 1 - len(opposite), np.maximum(masses, 0.0), float(own[-1])))
    return Losses(directions[0], directions[-1])


def bundled_numbers(low: int, high: int) -> tuple[Float64Array, int]:
    """Return the first number of each bundle of whole numbers in [low, high], and how many a bundle holds."""
    stride = max(1, math.ceil((high - low + 1) / MAX_ATOMS))
    return np.arange(low, high + 1, stride, dtype=np.float64), stride


def split_atoms(losses: Float64Array, masses: Float64Array, infinite: float, grid: float) -> LossDistribution:
    """Return the connect-the-dots distribution of finitely many atoms: each is split between two grid points.

    The split keeps the mass under P and, since the loss is log P/Q, under Q.
    """
    below = np.floor(losses / grid).astype(np.int64)
    upper_share = np.clip(np.expm1(below * grid - losses) / math.expm1(-grid), 0.0, 1.0)
    first, size = int(below.min()), int(below.max() - below.min()) + 2
    on_grid = np.zeros(size)
    on_grid += np.bincount(below - first, masses * (1 - upper_share), size)
    on_grid += np.bincount(below - first + 1, masses * upper_share, size)
    return LossDistribution(grid, first, on_grid, infinite)


def compose(first: Losses, second: Losses) -> Losses:
    """Return the losses of two mechanisms in sequence."""
    pairs = [(first.remove, second.remove), (first.add, second.add)]
    is_symmetric = first.add is first.remove and second.add is second.remove
    directions: list[LossDistribution] = []
    for one, other in pairs[:1] if is_symmetric else pairs:
        size = len(one.masses) + len(other.masses) - 1
        n = fft.next_fast_len(size, real=True)
        masses = np.maximum(fft.irfft(fft.rfft(one.masses, n) * fft.rfft(other.masses, n), n)[:size], 0.0)
        infinite = one.infinite + other.infinite - one.infinite * other.infinite
        directions.append(_trim(LossDistribution(one.grid, one.first + other.first, masses, infinite), TAIL_MASS))
    return Losses(directions[0], directions[-1])


def compose_all(several: Sequence[Losses]) -> Losses:
    """Return the losses of mechanisms in sequence; pairs of similar length are composed first, which is faster."""
    while len(several) > 1:
        pairs = [several[place : place + 2] for place in range(0, len(several), 2)]
        several = [compose(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return several[0]


def power(losses: Losses, count: int) -> Losses:
    """Return the losses of `count` uses."""
    return losses if count == 1 else compose_uses([(losses, count)])


def compose_uses(several: Sequence[tuple[Losses, int]]) -> Losses:
    """Return the losses of several mechanisms, each used as often as it says, all in sequence.

    One Fourier transform for all of them, cut where at most TAIL_MASS lies outside.
    """
    n_uses = sum(count for _, count in several)
    if n_uses == 1:
        return several[0][0]
    is_symmetric = all(losses.add is losses.remove for losses, _ in several)
    removals = [(losses.remove, count) for losses, count in several]
    additions = [(losses.add, count) for losses, count in several]
    directions: list[LossDistribution] = []
    for uses in (removals,) if is_symmetric else (removals, additions):
        useless = next((one for one, _ in uses if one.infinite >= 1), None)
        if useless is not None:
            directions.append(useless)
            continue
        trimmed = [(_trim(one, TAIL_MASS / n_uses), count) for one, count in uses]
        low, high = _bulk([(one.masses, count) for one, count in trimmed])
        n = fft.next_fast_len(max(high - low + 1, *(len(one.masses) for one, _ in trimmed)), real=True)
        spectra = (fft.rfft(one.masses, n) ** count for one, count in trimmed)
        masses = fft.irfft(reduce(np.multiply, spectra), n)
        masses = np.maximum(np.roll(masses, -low)[: high - low + 1], 0.0)
        kept = math.fsum(count * math.log1p(-one.infinite) for one, count in trimmed)
        infinite = TAIL_MASS + ROUNDING * n_uses - math.expm1(kept)
        first = sum(one.first * count for one, count in trimmed) + low
        directions.append(LossDistribution(trimmed[0][0].grid, first, masses, min(1.0, infinite)))
    return Losses(directions[0], directions[-1])


def coarsen(losses: Losses, grid: float) -> Losses:
    """Return losses on a grid that is a multiple of theirs, nowhere below: each mass is split as by `split_atoms`."""
    ratio = round(grid / losses.remove.grid)
    if ratio == 1:
        return losses
    directions: list[LossDistribution] = []
    upper = np.expm1(-losses.remove.grid * np.arange(ratio)) / math.expm1(-grid)
    shares = np.stack([1 - upper, upper], axis=1)
    for one in (losses.remove,) if losses.add is losses.remove else (losses.remove, losses.add):
        first, ahead = divmod(one.first, ratio)
        n_cells = -(-(ahead + len(one.masses)) // ratio)
        cells = np.zeros(n_cells * ratio)
        cells[ahead : ahead + len(one.masses)] = one.masses
        split = cells.reshape(n_cells, ratio) @ shares
        masses = np.append(split[:, 0], 0.0)
        masses[1:] += split[:, 1]
        directions.append(LossDistribution(grid, first, masses, one.infinite))
    return Losses(directions[0], directions[-1])


def _trim(losses: LossDistribution, tail: float) -> LossDistribution:
    """Return the distribution without its thin ends: the low one moves up, the high one to infinity."""
    low = int(np.searchsorted(np.cumsum(losses.masses), tail))
    high = len(losses.masses) - int(np.searchsorted(np.cumsum(losses.masses[::-1]), tail))
    if low >= high:
        return losses
    kept = losses.masses[low:high].copy()
    kept[0] += losses.masses[:low].sum()
    return LossDistribution(losses.grid, losses.first + low, kept, min(1.0, losses.infinite + tail))


def _bulk(several: Sequence[tuple[Float64Array, int]]) -> tuple[int, int]:
    """Return the cells outside which all uses together leave at most TAIL_MASS, by Chernoff bounds on both ends.

    Masses come with how often they are used. The orders reach from one that suits a thick tail to the one that is best
    for a normal distribution.
    """
    cells = np.arange(max(len(masses) for masses, _ in several))
    variance = 0.0
    for masses, count in several:
        own = cells[: len(masses)]
        variance += count * np.average((own - np.average(own, weights=masses)) ** 2, weights=masses)
    margin, last = math.log(2 / TAIL_MASS), sum(count * (len(masses) - 1) for masses, count in several)
    best = math.sqrt(2 * margin / max(variance, 1e-9))
    from_below = from_above = -math.inf
    for order in np.geomspace(min(best, 5 / len(cells)), max(best, 40 / len(cells)), 8):
        decay, log_below, log_above = np.exp(-order * cells), 0.0, 0.0
        for masses, count in several:
            own = decay[: len(masses)]
            log_below += count * math.log(max(float(masses @ own), 1e-300))
            log_above += count * math.log(max(float(masses[::-1] @ own), 1e-300))
        from_below = max(from_below, -(log_below + margin) / order)
        from_above = max(from_above, -(log_above + margin) / order)
    return max(math.floor(from_below), 0), last - max(math.floor(from_above), 0)


def is_dominated(first: Losses, second: Losses) -> bool:
    """Say whether `second` is at least as bad as `first` at every loss and in both directions."""
    for one, other in ((first.remove, second.remove), (first.add, second.add)):
        # both curves are chords between grid losses, so the grid losses decide
        losses = np.union1d(one.losses, other.losses)
        slack = 1e-14  # curves meet at their ends, where rounding must not decide
        if not np.all(one.hockey_stick(losses) <= other.hockey_stick(losses) + slack):
            return False
    return True


def best_of_losses(run: Losses, mean: float) -> Losses:
    """Return the losses of the best of Poisson(mean) runs, conditioned on at least one, never below the true ones."""
    if max(run.remove.infinite, run.add.infinite) >= 1:
        return run
    ahead = best_run_curve(run.remove, run.add, mean)
    back = ahead if run.add is run.remove else best_run_curve(run.add, run.remove, mean)
    return join_curves(ahead, back, run.remove.grid)


def best_run_curve(own: LossDistribution, opposite: LossDistribution, mean: float) -> Float64Array:
    """Return a bound on one direction's curve at 0, grid, 2 grid ...; it may exceed 1."""
    weights, first, stride = _mixture(*_densities(opposite, mean), own.grid)
    last = max(own.first + len(own.masses) - 1, 0) - first * stride
    low, high = first * stride, (first + len(weights) - 1) * stride
    heights = own.hockey_stick(np.arange(low, last + high + 1, dtype=np.float64) * own.grid)
    total = np.zeros(last + 1)
    for k, weight in enumerate(weights):
        total += weight * heights[k * stride : k * stride + last + 1]
    return total


def _densities(opposite: LossDistribution, mean: float) -> tuple[Float64Array, Float64Array]:
    """Return for cells of ranks the largest w(p) and the largest c(p), which never falls with the cell."""
    n_cells = math.ceil(RANKS_PER_ROOT * math.sqrt(min(mean, LARGEST_RANK)))
    ranks = (np.arange(n_cells + 1) / RANKS_PER_ROOT) ** 2
    ranks[-1] = mean  # one last cell holds all that is left
    # the corners of g: the largest mass under the distribution, and the mass under its opposite, outcome by outcome
    masses = opposite.masses[::-1]
    lost = max(opposite.infinite, 1 - float(masses.sum()))  # what rounding lost is taken as the worst
    largest = lost + np.concatenate([[0.0], np.cumsum(masses)])
    other = np.concatenate([[0.0], np.cumsum(masses * np.exp(-np.maximum(opposite.losses[::-1], -700.0)))])
    inside = other < 1
    largest, other = np.append(np.minimum(largest[inside], 1.0), 1.0), np.append(other[inside], 1.0)
    peak = other[np.argmax(largest - other)]
    ends = np.minimum(ranks[1:] / mean, peak)
    shifts = mean * np.maximum(np.interp(ends, other, largest) - ends, 0.0)
    return mean * np.exp(-ranks[:-1]) / -math.expm1(-mean), shifts


def _mixture(densities: Float64Array, shifts: Float64Array, grid: float) -> tuple[Float64Array, int, int]:
    """Return weights of the shifts (first + k) stride grid, k = 0, 1 ..., whose sum is above every cell's line."""
    farthest = float(shifts[-1])
    stride = max(1, math.ceil((1 + SHIFTS_AHEAD) * farthest / (MAX_SHIFTS * grid)))
    first = -math.ceil(farthest / (stride * grid))
    places = np.arange(first, 1 - math.floor(SHIFTS_AHEAD * first)) * (stride * grid)
    t, heights = np.exp(places), np.zeros(len(places))
    for density, offset in zip(densities, np.exp(-shifts), strict=True):
        np.maximum(heights, density * (t - offset), out=heights)
    # chords between places lie above a largest of lines; none is steeper than the first line
    slopes = np.concatenate([[0.0], np.diff(heights) / np.diff(t), [densities[0]]])
    return np.maximum(np.diff(slopes), 0.0), first, stride


def join_curves(ahead: Float64Array, back: Float64Array, grid: float) -> Losses:
    """Return losses whose curves lie nowhere below the true ones of a pair, from bounds on these at 0, grid, 2 grid ...

    The bounds of each direction are convex in e^epsilon. Both together are one curve, which for e^epsilon < 1 is
    1 - e^epsilon + e^epsilon back(-epsilon). The true one is convex there too, hence below any chord: where the bounds
    make a kink at 1, their common tangent is taken.
    """
    # only losses whose exponentials a double can hold
    right, left = (
        np.exp(np.arange(min(len(curve), int(600 / grid) + 2), dtype=np.float64) * grid) for curve in (ahead, back)
    )
    a, b = 1, 0
    for _ in range(MAX_MOVES):
        before = (a, b)
        b = _tangent_point(ahead, right, left[a], back[a], 0)
        a = _tangent_point(back, left, right[b], ahead[b], 1)
        if (a, b) == before:
            break
    joined, far = ahead.copy(), back.copy()
    joined[: b + 1] += np.minimum(_chord(ahead, right, b, left[a], back[a]), 0.0)
    far[: a + 1] += np.minimum(_chord(back, left, a, right[b], ahead[b]), 0.0)
    far[0] = joined[0]
    return _losses_of_curves(joined, far, grid)


def _tangent_point(curve: Float64Array, x: Float64Array, other_x: float, height: float, first: int) -> int:
    """Return where a line from a point of the other half touches this half of the curve from below."""
    rises, runs = curve[first : len(x)] - _mirrored(other_x, height), x[first:] - 1 / other_x
    return first + int(np.argmin(rises / runs))


def _chord(curve: Float64Array, x: Float64Array, end: int, other_x: float, height: float) -> Float64Array:
    """Return by how much the line between a point of the other half and `end` lies above the curve, from 0 to `end`."""
    slope = (curve[end] - _mirrored(other_x, height)) / (x[end] - 1 / other_x)
    line: Float64Array = curve[end] + slope * (x[: end + 1] - x[end])
    return line - curve[: end + 1]


def _mirrored(x: float, height: float) -> float:
    """Return the height at 1 / x of a curve whose opposite direction has this height at x."""
    return 1 - 1 / x + height / x
