"""What one use of each event costs, as a privacy loss law: one handler per event, the unknown are refused.

The best of a random number of runs: its curve from the curve of one run (docs/proofs/selection.md).

Let one run have the law P with a unit and Q without it, K ~ Poisson(m) given K >= 1, and p = P(a run is better than
y). The best run has the density w(p) P(y) with w(p) = m e^(-m p) / (1 - e^-m), and without the unit at least
w(p) e^(-c(p)) Q(y) with c(p) = m (g(p) - p), where g(p) is the most that Q gives to any set to which P gives p. So

    H_A(epsilon) <= sum_k a_k H(epsilon + x_k)    if    sum_k a_k (t - e^x_k)_+ >= max over p of w(p) (t - e^-c(p))_+

for all t >= 0: a mixture of shifted curves of one run. It sums to w(0), a little more than m.
"""

import math
from collections import Counter
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache, partial, reduce, singledispatch

import numpy as np
from dp_accounting.pld import privacy_loss_mechanism as mechanisms

from fairveil._typing import Float64Array
from fairveil.accounting import events as ev
from fairveil.accounting.magnitude import normal_delta, rough_magnitude
from fairveil.accounting.pld import (
    LossDistribution,
    Losses,
    Profile,
    compose,
    connect_dots,
    join_curves,
    power,
    sampled_losses,
    split_atoms,
    worst_of,
)
from fairveil.errors import UnsupportedEventError

MAX_ATOMS = 2**18
"""Whole numbers beyond so many are bundled, each bundle at the worst mass and loss of its members."""


class NeighboringRelation(Enum):
    """Which two data sets must be hard to tell apart."""

    ADD_OR_REMOVE_ONE = "ADD_OR_REMOVE_ONE"
    REPLACE_ONE = "REPLACE_ONE"


def count_uses(event: ev.Event, times: int = 1) -> Counter[ev.Event]:
    """Return the event without its `Repeated` shells, and how often it is used."""
    if isinstance(event, ev.Repeated):
        return count_uses(event.event, times * event.count)
    return Counter({event: times})


def gaussian_multiplier(event: ev.Event) -> float | None:
    """Return the noise multiplier of the one Gaussian that equals the event, None if there is none.

    Gaussians on one batch add up as 1/sigma^2 = sum of 1/sigma_i^2, also when chosen one after the other.
    """
    if isinstance(event, ev.GaussianRelease):
        return event.noise_multiplier
    if isinstance(event, ev.Repeated):
        inner = gaussian_multiplier(event.event)
        return None if inner is None else inner / math.sqrt(event.count)
    if isinstance(event, ev.Joint):
        parts = [gaussian_multiplier(release) for release in event.releases]
        return 1 / math.hypot(*(1 / part for part in parts if part)) if all(parts) else None
    return None


def has_replace_pair(event: ev.Event) -> bool:
    """Say whether REPLACE_ONE has a price of its own; sampled noise that is not Gaussian has none."""
    if isinstance(event, ev.PoissonSampled):
        is_gaussian = gaussian_multiplier(event.event) is not None
        return is_gaussian or (event.rate == 1 and has_replace_pair(event.event))
    if isinstance(event, ev.DisjointCells):
        return True
    if isinstance(event, ev.Repeated):
        return has_replace_pair(event.event)
    if isinstance(event, ev.BestOfRuns):
        return all(has_replace_pair(release) for way in event.ways for release in way)
    return all(map(has_replace_pair, event.releases)) if isinstance(event, ev.Joint) else True


@singledispatch
def loss_distribution(event: ev.Event, grid: float, neighbours: NeighboringRelation) -> Losses:
    """Return the privacy loss laws of one use of `event`, in both directions, never below the true ones.

    Parameters
    ----------
    event : Event
        What was released, once.
    grid : float
        Distance of the losses that carry mass.
    neighbours : NeighboringRelation
        Which data sets are compared.

    Raises
    ------
    UnsupportedEventError
        If nobody taught this function the event; a cost is never guessed.
    """
    raise UnsupportedEventError(
        f"Expected an event with a known price, got {type(event).__name__}; none is guessed."
    )


_one_use = lru_cache(maxsize=8)(loss_distribution)


@lru_cache(maxsize=16)
def _uses(event: ev.Event, count: int, grid: float, neighbours: NeighboringRelation) -> Losses:
    """Return `count` uses of the event: the only place that multiplies."""
    return power(_one_use(event, grid, neighbours), count)


def composed(uses: Mapping[ev.Event, int], grid: float, neighbours: NeighboringRelation) -> Losses:
    """Return the losses of all these events in sequence, each as often as it says."""
    return reduce(compose, (_uses(event, count, grid, neighbours) for event, count in uses.items()))


def _reach(neighbours: NeighboringRelation) -> int:
    """Return how often a record's bound may be moved: replacing is removing and adding."""
    return 2 if neighbours is NeighboringRelation.REPLACE_ONE else 1


def _symmetric(law: LossDistribution) -> Losses:
    return Losses(law, law)


def _gaussian_profile(noise_multiplier: float) -> Profile:
    shift = 1 / noise_multiplier
    # 10.2 standard deviations leave 1e-24 above
    return Profile(partial(normal_delta, shift), shift * (10.2 + shift / 2))


@loss_distribution.register
def _(event: ev.GaussianRelease, grid: float, neighbours: NeighboringRelation) -> Losses:
    profile = _gaussian_profile(event.noise_multiplier / _reach(neighbours))
    return connect_dots(profile, profile, grid)


@loss_distribution.register
def _(event: ev.LaplaceRelease, grid: float, neighbours: NeighboringRelation) -> Losses:
    largest = _reach(neighbours) / event.noise_multiplier
    profile = Profile(lambda epsilons: -np.expm1(np.minimum(epsilons - largest, 0.0) / 2), largest)
    return connect_dots(profile, profile, grid)


@loss_distribution.register
def _(event: ev.DiscreteLaplaceRelease, grid: float, neighbours: NeighboringRelation) -> Losses:
    shift, decay = event.sensitivity * _reach(neighbours), 1 / event.scale
    inner, stride = _bundles(1, shift - 1)
    # all of x <= 0 has the same loss, and so has all of x >= shift
    x = np.concatenate([[0.0], inner, [shift]])
    ends = np.array([1.0, math.exp(-decay * shift)]) / (1 + math.exp(-decay))
    masses = np.insert(ends, 1, stride * math.tanh(decay / 2) * np.exp(-decay * inner))
    return _symmetric(split_atoms(decay * (shift - 2 * x), masses, 0.0, grid))


@loss_distribution.register
def _(event: ev.DiscreteGaussianRelease, grid: float, neighbours: NeighboringRelation) -> Losses:
    shift, std = event.sensitivity * _reach(neighbours), event.std
    bound = math.ceil(12 * std)  # leaves less than 1e-30 outside
    x, stride = _bundles(-bound, bound)
    weights = stride * np.exp(-0.5 * (np.clip(0.0, x, x + stride - 1) / std) ** 2)
    # by Poisson summation the weights of all whole numbers add up to std sqrt(2 pi), but for a tiny std
    total = weights.sum() if stride == 1 else std * math.sqrt(2 * math.pi)
    return _symmetric(split_atoms(shift * (shift - 2 * x) / (2 * std**2), weights / total, 0.0, grid))


def _bundles(low: int, high: int) -> tuple[Float64Array, int]:
    """Return the first number of each bundle of whole numbers in [low, high], and how many a bundle holds."""
    stride = max(1, math.ceil((high - low + 1) / MAX_ATOMS))
    return np.arange(low, high + 1, stride, dtype=np.float64), stride


@loss_distribution.register
def _(event: ev.RandomizedResponse, grid: float, neighbours: NeighboringRelation) -> Losses:
    lie = event.noise_parameter / event.n_buckets
    truth = 1 - event.noise_parameter + lie
    if neighbours is NeighboringRelation.REPLACE_ONE:
        others = 1 - truth - lie
        losses = math.log(truth / lie) * np.array([1.0, -1.0, 0.0])
        return _symmetric(split_atoms(losses, np.array([truth, lie, max(others, 0.0)]), 0.0, grid))
    told = np.array([math.log(truth * event.n_buckets), math.log(lie * event.n_buckets)])
    uniform = np.array([1 / event.n_buckets, 1 - 1 / event.n_buckets])
    remove = split_atoms(told, np.array([truth, 1 - truth]), 0.0, grid)
    return Losses(remove, split_atoms(-told, uniform, 0.0, grid))


@loss_distribution.register
def _(event: ev.PureDP, grid: float, neighbours: NeighboringRelation) -> Losses:
    return _symmetric(_box(event.epsilon * _reach(neighbours), 0.0, grid))


@loss_distribution.register
def _(event: ev.ApproximateDP, grid: float, neighbours: NeighboringRelation) -> Losses:
    # two steps of group privacy: delta grows by 1 + e^epsilon
    factor = 1 + math.exp(min(event.epsilon, 700.0)) if neighbours is NeighboringRelation.REPLACE_ONE else 1.0
    delta = min(1.0, event.delta * factor)
    return _symmetric(_box(event.epsilon * _reach(neighbours), delta, grid))


def _box(epsilon: float, delta: float, grid: float) -> LossDistribution:
    """Return the worst law of any (epsilon, delta)-private mechanism (Kairouz, Oh and Viswanath 2015)."""
    likely = 1 / (1 + math.exp(-epsilon))
    masses = (1 - delta) * likely * np.array([1.0, math.exp(-epsilon)])
    return split_atoms(np.array([epsilon, -epsilon]), masses, delta, grid)


@loss_distribution.register(ev.NonPrivateRelease)
@loss_distribution.register(ev.UnpricedChoice)
def _(event: ev.Event, grid: float, neighbours: NeighboringRelation) -> Losses:
    return _symmetric(LossDistribution(grid, 0, np.zeros(1), 1.0))


@loss_distribution.register
def _(event: ev.Repeated, grid: float, neighbours: NeighboringRelation) -> Losses:
    return composed(count_uses(event), grid, neighbours)


@loss_distribution.register
def _(event: ev.Joint, grid: float, neighbours: NeighboringRelation) -> Losses:
    multiplier = gaussian_multiplier(event)
    if multiplier is not None:
        return loss_distribution(ev.GaussianRelease(multiplier), grid, neighbours)
    uses = sum((count_uses(release) for release in event.releases), Counter[ev.Event]())
    return composed(uses, grid, neighbours)


@loss_distribution.register
def _(event: ev.DisjointCells, grid: float, neighbours: NeighboringRelation) -> Losses:
    apart = _one_use(event.event, grid, NeighboringRelation.ADD_OR_REMOVE_ONE)
    if neighbours is NeighboringRelation.ADD_OR_REMOVE_ONE:
        return apart
    # one sum loses the record, another gains it, and their noises are independent
    return compose(apart, Losses(apart.add, apart.remove))


@loss_distribution.register
def _(event: ev.BestOfRuns, grid: float, neighbours: NeighboringRelation) -> Losses:
    ways = [sum((count_uses(release) for release in way), Counter[ev.Event]()) for way in event.ways]
    run = worst_of([composed(way, grid, neighbours) for way in ways], grid)
    return best_of_losses(run, event.mean)


@loss_distribution.register
def _(event: ev.PoissonSampled, grid: float, neighbours: NeighboringRelation) -> Losses:
    if event.rate == 1:
        return _one_use(event.event, grid, neighbours)
    multiplier = gaussian_multiplier(event.event)
    if neighbours is NeighboringRelation.REPLACE_ONE:
        return _replaced(event, multiplier, grid)
    if multiplier is not None:
        profile = _gaussian_profile(multiplier)
        return sampled_losses(profile, profile, event.rate, grid)
    base = _one_use(event.event, rough_magnitude(event.event).base_grid, neighbours)
    return sampled_losses(base.remove.profile, base.add.profile, event.rate, grid)


def _replaced(event: ev.PoissonSampled, multiplier: float | None, grid: float) -> Losses:
    """Return the sampled Gaussian when one record takes another's place; opposite shifts are the worst."""
    if multiplier is None:
        raise UnsupportedEventError(
            f"Expected Gaussian noise in a sampled event under REPLACE_ONE, got {event.event}. "
            "Ask epsilon_of, which falls back on group privacy."
        )
    replace = mechanisms.AdjacencyType.REPLACE
    loss = mechanisms.GaussianPrivacyLoss(multiplier, sampling_prob=event.rate, adjacency_type=replace)
    profile = Profile(loss.get_delta_for_epsilon, float(loss.connect_dots_bounds().epsilon_upper))
    return connect_dots(profile, profile, grid)


RANKS_PER_ROOT = 360
LARGEST_RANK = 40.0
"""Ranks m p are cut into cells between (i / 360)^2, up to 40, above which a density is below e^-40 of its largest."""

MAX_SHIFTS = 512
"""About how many shifts a mixture has; it errs upwards between them."""

SHIFTS_AHEAD = 2.0
"""Shifts reach this many times as far against epsilon as towards it."""


def best_of_losses(run: Losses, mean: float) -> Losses:
    """Return the losses of the best of Poisson(mean) runs, given that there is one, never below the true ones."""
    if max(run.remove.infinite, run.add.infinite) >= 1:
        return run
    ahead = _chosen(run.remove, run.add, mean)
    back = ahead if run.add is run.remove else _chosen(run.add, run.remove, mean)
    return join_curves(ahead, back, run.remove.grid)


def _chosen(own: LossDistribution, opposite: LossDistribution, mean: float) -> Float64Array:
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
    ranks = (
        np.arange(math.ceil(RANKS_PER_ROOT * math.sqrt(min(mean, LARGEST_RANK))) + 1) / RANKS_PER_ROOT
    ) ** 2
    ranks[-1] = mean  # one last cell holds all that is left
    most, given = _trade_off(opposite)
    peak = given[np.argmax(most - given)]
    ends = np.minimum(ranks[1:] / mean, peak)
    shifts = mean * np.maximum(np.interp(ends, given, most) - ends, 0.0)
    return mean * np.exp(-ranks[:-1]) / -math.expm1(-mean), shifts


def _trade_off(opposite: LossDistribution) -> tuple[Float64Array, Float64Array]:
    """Return the corners of g: the most that the law gives, and what its opposite then gives, outcome by outcome."""
    masses = opposite.masses[::-1]
    lost = max(opposite.infinite, 1 - float(masses.sum()))  # what rounding lost is taken as the worst
    most = lost + np.concatenate([[0.0], np.cumsum(masses)])
    given = np.concatenate([[0.0], np.cumsum(masses * np.exp(-np.maximum(opposite.losses[::-1], -700.0)))])
    inside = given < 1
    return np.append(np.minimum(most[inside], 1.0), 1.0), np.append(given[inside], 1.0)


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
