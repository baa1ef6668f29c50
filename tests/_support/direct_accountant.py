"""A second accountant, written without the first: densities cut into cells, products of cells, one Fourier transform.

It shares no code and no formula with `fairveil.accounting` but the events themselves. Cells make it err slightly
downward, splitting a loss between two grid points slightly upward; both stay below 0.02 % at these sizes. An event that
has no handler here is refused.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, product

import numpy as np
from scipy import fft
from scipy.stats import laplace, norm

from fairveil.accounting import events as ev

N_CELLS = 3000
POINTS_PER_STD = 6000


@dataclass(frozen=True, eq=False)
class Pair:
    """The probability of each outcome with one record and for its neighbor."""

    here: np.ndarray
    there: np.ndarray

    def swapped(self) -> "Pair":
        return Pair(self.there, self.here)

    def times(self, other: "Pair") -> "Pair":
        """Both outcomes together; outcomes of nearly the same loss are merged."""
        here, there = (
            np.multiply.outer(*sides).ravel() for sides in ((self.here, other.here), (self.there, other.there))
        )
        kept = here + there > 1e-30
        here, there = here[kept], there[kept]
        losses = np.log(np.maximum(here, 1e-40)) - np.log(np.maximum(there, 1e-40))
        place = np.floor((losses - losses.min()) / max(np.ptp(losses), 1e-9) * 4 * N_CELLS).astype(int)
        return Pair(np.bincount(place, here), np.bincount(place, there))


def cells(law, shift: float, scale: float) -> Pair:
    """Noise of this law and scale around `shift` and around 0, in cells that end at both centers."""
    reach = 40 * scale if law is laplace else 13 * scale
    inner = np.linspace(0, shift, max(2, int(N_CELLS * shift / (shift + 2 * reach)) + 2))
    left, right = np.linspace(-reach, 0, N_CELLS // 2), np.linspace(shift, shift + reach, N_CELLS // 2)
    edges = np.unique(np.concatenate([left, inner, right]))
    masses = []
    for center in (shift, 0.0):
        below, above = law.cdf(edges, center, scale), law.sf(edges, center, scale)
        inside = np.where(edges[:-1] < center, np.diff(below), -np.diff(above))
        masses.append(np.concatenate([[below[0]], inside, [above[-1]]]))
    return Pair(*masses)


def whole_numbers(weight, shift: int, reach: int) -> Pair:
    x = np.arange(-reach, reach + shift + 1, dtype=float)
    here, there = weight(x - shift), weight(x)
    return Pair(here / here.sum(), there / there.sum())


def worst_of_budget(epsilon: float, delta: float) -> Pair:
    likely = math.exp(epsilon) / (1 + math.exp(epsilon))
    here = np.array([delta, (1 - delta) * likely, (1 - delta) * (1 - likely), 0.0])
    return Pair(here, here[::-1])


def both_ways(event: ev.Event, moves: int) -> tuple[Pair, Pair]:
    """Return the pairs of one use with a record removed and with one added; with two moves one is replaced."""
    kind = type(event).__name__
    if kind == "GaussianRelease":
        one = cells(norm, moves, event.noise_multiplier)
    elif kind == "LaplaceRelease":
        one = cells(laplace, moves, event.noise_multiplier)
    elif kind == "DiscreteGaussianRelease":
        one = whole_numbers(
            lambda x: np.exp(-0.5 * (x / event.std) ** 2), moves * event.sensitivity, int(13 * event.std) + 2
        )
    elif kind == "DiscreteLaplaceRelease":
        one = whole_numbers(
            lambda x: np.exp(-abs(x) / event.scale), moves * event.sensitivity, int(40 * event.scale) + 2
        )
    elif kind == "ApproximateDP":
        delta = event.delta * (1 if moves == 1 else 1 + math.exp(event.epsilon))
        one = worst_of_budget(moves * event.epsilon, delta)
    elif kind in ("NonPrivateRelease", "UnpricedChoice"):
        one = Pair(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    elif kind == "Joint":
        return tuple(map(joined, zip(*(both_ways(release, moves) for release in event.releases), strict=True)))
    elif kind == "Repeated":
        return tuple(joined([way] * event.count) for way in both_ways(event.event, moves))
    elif kind == "DisjointCells":
        remove, add = both_ways(event.event, 1)
        return (remove, add) if moves == 1 else (remove.times(add), add.times(remove))
    elif kind == "PoissonSampled":
        return sampled(event, moves)
    else:
        raise NotImplementedError(f"Expected an event with a second price, got {kind}; write one here.")
    return one, one.swapped()


def joined(pairs: Sequence[Pair]) -> Pair:
    first, *rest = pairs
    for pair in rest:
        first = first.times(pair)
    return first


def sampled(event: ev.PoissonSampled, moves: int) -> tuple[Pair, Pair]:
    rate = event.rate
    if moves == 2:  # a Gaussian: one record's shift is replaced by the opposite one
        sigma = event.event.noise_multiplier
        edges = np.linspace(-1 - 13 * sigma, 1 + 13 * sigma, 4 * N_CELLS)
        masses = [np.diff(norm.cdf(edges, center, sigma)) for center in (1, 0, -1)]
        one = Pair(rate * masses[0] + (1 - rate) * masses[1], rate * masses[2] + (1 - rate) * masses[1])
        return one, one.swapped()
    remove, add = both_ways(event.event, 1)
    return (
        Pair(rate * remove.here + (1 - rate) * remove.there, remove.there),
        Pair(add.here, rate * add.there + (1 - rate) * add.here),
    )


def best_of_runs(event: ev.BestOfRuns, delta: float) -> float:
    """Return the epsilon of the best run under the most revealing of some rankings, by its exact law.

    The price is about every ranking, so this is a lower bound of it. Rankings: some outcomes of the smallest losses are
    best, then come all others by falling loss.
    """
    (way,) = event.ways
    found = [0.0]
    for run in map(joined, zip(*(both_ways(release, 1) for release in way), strict=True)):
        rising = np.argsort(np.log(np.maximum(run.here, 1e-300)) - np.log(np.maximum(run.there, 1e-300)))
        for low_first in np.linspace(0.0, 0.6, 13):
            n_first = int(np.searchsorted(np.cumsum(run.here[rising]), low_first))
            order = np.concatenate([rising[:n_first], rising[n_first:][::-1]])
            laws = []
            for masses in (run.here[order], run.there[order]):
                better = np.concatenate([[0.0], np.cumsum(masses)[:-1]])
                laws.append(np.exp(-event.mean * better) * -np.expm1(-event.mean * masses) / -math.expm1(-event.mean))
            found += [one_use(*laws, delta), one_use(*laws[::-1], delta)]
    return max(found)


def one_use(here: np.ndarray, there: np.ndarray, delta: float) -> float:
    """Return the epsilon of one pair by its hockey-stick curve itself."""
    low, high = 0.0, 50.0
    for _ in range(40):
        middle = (low + high) / 2
        spent = np.maximum(here - math.exp(middle) * there, 0.0).sum()
        low, high = (low, middle) if spent <= delta else (middle, high)
    return high


def epsilon_of(charges: Sequence[ev.Charge | ev.Event], delta: float, moves: int = 1) -> float:
    """Return the epsilon of everything together: the worst choice of one part of each split."""
    plain = [one if isinstance(one, ev.Charge) else ev.Charge(one) for one in charges]
    splits: dict[str, dict[str, list[ev.Event]]] = {}
    for charge in plain:
        if charge.split:
            splits.setdefault(charge.split, {}).setdefault(charge.part, []).append(charge.event)
    whole = [charge.event for charge in plain if not charge.split]
    return max(
        smallest_epsilon([*whole, *chain(*parts)], delta, moves)
        for parts in product(*(parts.values() for parts in splits.values()))
    )


def smallest_epsilon(events: Sequence[ev.Event], delta: float, moves: int) -> float:
    return max(one_direction(uses, delta) for uses in both_directions(events, moves))


def group_of_two(events: Sequence[ev.Event], delta: float) -> float:
    """Return the epsilon of replacing one record as removing one and adding another: 2 e at (1 + e^e) delta(e)."""
    curves = [curve_of(uses) for uses in both_directions(events, 1)]
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        spent = (1 + math.exp(middle)) * max(curve(middle) for curve in curves)
        low, high = (low, middle) if spent <= delta else (middle, high)
    return 2 * high


def both_directions(events: Sequence[ev.Event], moves: int) -> list[list[tuple[Pair, int]]]:
    uses = []
    for one in events:
        event, count = one, 1
        while isinstance(event, ev.Repeated):
            event, count = event.event, count * event.count
        uses.append((both_ways(event, moves), count))
    return [[(ways[i], count) for ways, count in uses] for i in (0, 1)]


def one_direction(uses: Sequence[tuple[Pair, int]], delta: float) -> float:
    curve = curve_of(uses)
    low, high = 0.0, 200.0
    if curve(high) > delta:
        return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if curve(middle) <= delta else (middle, high)
    return high


def curve_of(uses: Sequence[tuple[Pair, int]]) -> Callable[[float], float]:
    """Return delta as a function of epsilon."""
    atoms, infinite, mean, variance, widest = [], 0.0, 0.0, 0.0, 0.0
    for pair, count in uses:
        kept = (pair.here > 0) & (pair.there > 0)
        infinite += -math.expm1(count * math.log1p(-min(1 - 1e-16, float(pair.here[pair.there <= 0].sum()))))
        masses, losses = pair.here[kept], np.log(pair.here[kept]) - np.log(pair.there[kept])
        likely = masses > 1e-22
        masses, losses = masses[likely], losses[likely]
        if not len(masses):
            return lambda epsilon: 1.0
        average = float(np.average(losses, weights=masses))
        mean += count * average
        variance += count * float(np.average((losses - average) ** 2, weights=masses))
        widest = max(widest, float(np.abs(losses).max()))
        atoms.append((masses, losses, count))
    step = max(math.sqrt(variance), 1e-6) / POINTS_PER_STD
    size = fft.next_fast_len(int((30 * math.sqrt(variance) + 3 * widest) / step) + 16, real=True)
    spectrum = np.ones(size // 2 + 1, dtype=complex)
    for masses, losses, count in atoms:
        place = np.floor(losses / step).astype(int)
        upper = losses / step - place
        law = np.bincount(place % size, masses * (1 - upper), size) + np.bincount(
            (place + 1) % size, masses * upper, size
        )
        spectrum *= fft.rfft(law) ** count
    law = np.maximum(fft.irfft(spectrum, size), 0.0)
    first = round(mean / step) - size // 2
    losses, law = (first + np.arange(size)) * step, np.roll(law, -first)

    def curve(epsilon: float) -> float:
        above = losses > epsilon
        return infinite - float(law[above] @ np.expm1(epsilon - losses[above]))

    return curve
