"""What events cost, as privacy loss distributions: the worst compositions that a record may meet, and each event.

A record meets every event on the whole data, and one part of every split: `Compositions` lists what that may be. Each
kind of event has two handlers: `loss_distribution` gives its price, and `rough_magnitude` gives numbers that are good
enough to choose a grid or a first guess, and are never a price. A handler prices one use; only `_price_uses`
multiplies. An unknown event is refused.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache, partial, singledispatch
from itertools import chain

import numpy as np
from scipy.special import log_ndtr, ndtr

from fairveil._typing import Float64Array
from fairveil.accounting import events as ev
from fairveil.accounting.pld import (
    LossDistribution,
    Losses,
    Profile,
    best_of_losses,
    bundled_numbers,
    compose,
    compose_all,
    connect_dots,
    is_dominated,
    power,
    sampled_losses,
    split_atoms,
    worst_of,
)
from fairveil.errors import InvalidParameterError, UnsupportedEventError

Uses = Counter[ev.Event]

MAX_COMPOSITIONS = 64
"""More combinations of parts than this are not tried one by one."""

MAX_PRICED = 8
"""More compositions than this are not priced one by one."""

FINENESS = 0.01
"""Grid over epsilon / sqrt(uses): the chords then inflate epsilon by less than 0.03 %."""

FEW_USES = 2000
"""Fewer uses get the grid of so many."""

FINER_RUNS = 8
"""A choice among runs gets the grid of this many times the uses of one run."""

MAX_CELLS = 2**18
"""No distribution of one use is cut into more cells than this."""


class NeighboringRelation(Enum):
    """How two data sets differ that must be hard to distinguish."""

    ADD_OR_REMOVE_ONE = "ADD_OR_REMOVE_ONE"
    REPLACE_ONE = "REPLACE_ONE"


N_MOVES = {NeighboringRelation.ADD_OR_REMOVE_ONE: 1, NeighboringRelation.REPLACE_ONE: 2}
"""How often a record's bounded contribution may move: replacing is removing and adding."""


@dataclass(frozen=True)
class LossMagnitude:
    """The variance of the loss (log of 1 + chi-square), the largest loss that matters, and how many uses.

    These are rough; `pure` is not: no loss is ever larger, so it is an epsilon at delta 0 (often infinite).
    """

    variance: float
    reach: float
    n_uses: float = 1
    pure: float = math.inf


@dataclass(frozen=True)
class Compositions:
    """Events on the whole data, and for each split the different compositions that its parts met.

    `relation` is one under which every event has a price of its own.
    """

    whole: Uses
    splits: tuple[tuple[Uses, ...], ...]
    relation: NeighboringRelation

    @property
    def magnitude(self) -> LossMagnitude:
        """The rough magnitude of the worst composition."""
        totals = [[total_magnitude(part) for part in parts] for parts in ((self.whole,), *self.splits)]
        return LossMagnitude(
            math.fsum(max(total.variance for total in parts) for parts in totals),
            max(total.reach for parts in totals for total in parts),
            sum(max(total.n_uses for total in parts) for parts in totals),
        )

    def worst_cases(self) -> list[Uses]:
        """Return every composition, or fewer and more expensive ones if there are too many."""
        cases = [self.whole]
        for parts in sorted(self.splits, key=len):
            longer = [case + part for case in cases for part in parts]
            distinct = {frozenset(case.items()): case for case in longer}
            # all parts in sequence cost more than any one of them
            is_short = len(distinct) <= MAX_COMPOSITIONS
            cases = list(distinct.values()) if is_short else [case + sum(parts, Uses()) for case in cases]
        return cases

    def priced(self, grid: float) -> list[tuple[float, Losses]]:
        """Return the losses of the worst cases, and the largest loss that each can have at all.

        Parts that another part of their split dominates are left out. Of too many compositions, none is priced by
        itself: a loss distribution above those of all parts of a split stands for whichever part a record is in.
        """
        # the different splits by their parts, and how often each occurs
        several = Counter(tuple(dict.fromkeys(frozenset(part.items()) for part in parts)) for parts in self.splits)
        kinds = []
        for parts, n_splits in several.items():
            kept: list[tuple[Mapping[ev.Event, int], Losses]] = []
            for part in sorted(map(dict, parts), key=lambda uses: -total_magnitude(uses).variance):
                losses = composed(part, grid, self.relation)
                if not any(is_dominated(losses, other) for _, other in kept):
                    kept.append((part, losses))
            kinds.append((kept, n_splits))
        n_cases = math.prod(math.comb(n_splits + len(kept) - 1, len(kept) - 1) for kept, n_splits in kinds)
        if n_cases <= MAX_PRICED:
            splits = [tuple(Uses(part) for part, _ in kept) for kept, n_splits in kinds for _ in range(n_splits)]
            cases = replace(self, splits=tuple(splits)).worst_cases()
            return [(total_magnitude(uses).pure, composed(uses, grid, self.relation)) for uses in cases]
        alone, together, pure = Uses(self.whole), [], 0.0
        for kept, n_splits in kinds:
            if len(kept) == 1:
                alone.update({event: count * n_splits for event, count in kept[0][0].items()})
                continue
            together.append(power(worst_of([losses for _, losses in kept], grid), n_splits))
            pure += n_splits * max(total_magnitude(part).pure for part, _ in kept)
        if alone:
            together.append(composed(alone, grid, self.relation))
        return [(total_magnitude(alone).pure + pure, compose_all(together))]


def compositions_of(
    charges: Iterable[ev.Charge | ev.Event], relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE
) -> Compositions:
    """Return the compositions that a record may meet; a bare event read the whole data.

    A record lies in exactly one part of each split, whichever was drawn, so the worst composition is the cost. Where
    an event has no price under `relation`, all are to be priced for one record added or removed.
    """
    if not isinstance(relation, NeighboringRelation):
        raise InvalidParameterError(f"Expected relation to be a member of NeighboringRelation, got {relation!r}.")
    whole: Uses = Counter()
    splits: dict[str, dict[str, Uses]] = defaultdict(lambda: defaultdict(Counter))
    for charge in charges:
        if isinstance(charge, ev.Charge):
            uses = splits[charge.split][charge.part] if charge.split else whole
            uses.update(count_uses(charge.event))
        elif isinstance(charge, ev.Event):
            whole.update(count_uses(charge))
        else:
            raise InvalidParameterError(f"Expected a charge or an event, got {type(charge).__name__}.")
    different = ({frozenset(uses.items()): uses for uses in parts.values()} for parts in splits.values())
    parts = tuple(tuple(distinct.values()) for distinct in different)
    if relation is NeighboringRelation.REPLACE_ONE:
        events = {event for uses in (whole, *chain(*parts)) for event in uses}
        relation = relation if all(map(has_replace_pair, events)) else NeighboringRelation.ADD_OR_REMOVE_ONE
    return Compositions(whole, parts, relation)


def count_uses(event: ev.Event, times: int = 1) -> Counter[ev.Event]:
    """Return the event without its `Repeated` shells, and how often it is used."""
    while isinstance(event, ev.Repeated):
        times *= event.count
        event = event.event
    return Counter({event: times})


def composed(uses: Mapping[ev.Event, int], grid: float, relation: NeighboringRelation) -> Losses:
    """Return the losses of all these events in sequence, each as often as it says."""
    return compose_all([_price_uses(event, count, grid, relation) for event, count in uses.items()])


@lru_cache(maxsize=16)
def _price_uses(event: ev.Event, count: int, grid: float, relation: NeighboringRelation) -> Losses:
    """Return `count` uses of the event: the only place that multiplies."""
    return power(_price_one_use(event, grid, relation), count)


@singledispatch
def loss_distribution(event: ev.Event, grid: float, relation: NeighboringRelation) -> Losses:
    """Return the privacy loss distributions of one use of `event`, in both directions, never below the true ones.

    Parameters
    ----------
    event : Event
        What was released, once.
    grid : float
        Distance between the losses that carry mass.
    relation : NeighboringRelation
        Which data sets are compared.

    Raises
    ------
    UnsupportedEventError
        If no handler is registered for the event; a cost is never guessed.
    """
    raise UnsupportedEventError(f"Expected an event with a known price, got {type(event).__name__}; none is guessed.")


_price_one_use = lru_cache(maxsize=8)(loss_distribution)


@loss_distribution.register
def _(event: ev.GaussianRelease, grid: float, relation: NeighboringRelation) -> Losses:
    profile = _gaussian_profile(event.noise_multiplier / N_MOVES[relation])
    return connect_dots(profile, profile, grid)


@loss_distribution.register
def _(event: ev.LaplaceRelease, grid: float, relation: NeighboringRelation) -> Losses:
    largest = N_MOVES[relation] / event.noise_multiplier
    profile = Profile(lambda epsilons: -np.expm1(np.minimum(epsilons - largest, 0.0) / 2), largest)
    return connect_dots(profile, profile, grid)


@loss_distribution.register
def _(event: ev.DiscreteLaplaceRelease, grid: float, relation: NeighboringRelation) -> Losses:
    shift, decay = event.sensitivity * N_MOVES[relation], 1 / event.scale
    inner, stride = bundled_numbers(1, shift - 1)
    # all of x <= 0 has the same loss, and so has all of x >= shift
    x = np.concatenate([[0.0], inner, [shift]])
    ends = np.array([1.0, math.exp(-decay * shift)]) / (1 + math.exp(-decay))
    masses = np.insert(ends, 1, stride * math.tanh(decay / 2) * np.exp(-decay * inner))
    losses = split_atoms(decay * (shift - 2 * x), masses, 0.0, grid)
    return Losses(losses, losses)


@loss_distribution.register
def _(event: ev.DiscreteGaussianRelease, grid: float, relation: NeighboringRelation) -> Losses:
    shift, std = event.sensitivity * N_MOVES[relation], event.std
    bound = math.ceil(12 * std)  # leaves less than 1e-30 outside
    x, stride = bundled_numbers(-bound, bound)
    weights = stride * np.exp(-0.5 * (np.clip(0.0, x, x + stride - 1) / std) ** 2)
    # by Poisson summation the weights of all whole numbers add up to std sqrt(2 pi), but for a tiny std
    total = weights.sum() if stride == 1 else std * math.sqrt(2 * math.pi)
    losses = split_atoms(shift * (shift - 2 * x) / (2 * std**2), weights / total, 0.0, grid)
    return Losses(losses, losses)


@loss_distribution.register
def _(event: ev.ApproximateDP, grid: float, relation: NeighboringRelation) -> Losses:
    # two steps of group privacy: delta grows by 1 + e^epsilon
    factor = 1 + math.exp(min(event.epsilon, 700.0)) if relation is NeighboringRelation.REPLACE_ONE else 1.0
    delta = min(1.0, event.delta * factor)
    losses = _worst_approximate(event.epsilon * N_MOVES[relation], delta, grid)
    return Losses(losses, losses)


@loss_distribution.register(ev.NonPrivateRelease)
@loss_distribution.register(ev.UnpricedChoice)
def _(event: ev.Event, grid: float, relation: NeighboringRelation) -> Losses:
    losses = LossDistribution(grid, 0, np.zeros(1), 1.0)
    return Losses(losses, losses)


@loss_distribution.register
def _(event: ev.Repeated, grid: float, relation: NeighboringRelation) -> Losses:
    return composed(count_uses(event), grid, relation)


@loss_distribution.register
def _(event: ev.Joint, grid: float, relation: NeighboringRelation) -> Losses:
    multiplier = gaussian_multiplier(event)
    if multiplier is not None:
        return loss_distribution(ev.GaussianRelease(multiplier), grid, relation)
    return composed(_count_all(event.releases), grid, relation)


@loss_distribution.register
def _(event: ev.DisjointCells, grid: float, relation: NeighboringRelation) -> Losses:
    apart = _price_one_use(event.event, grid, NeighboringRelation.ADD_OR_REMOVE_ONE)
    if relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        return apart
    # one sum loses the record, another gains it, and their noises are independent
    return compose(apart, Losses(apart.add, apart.remove))


@loss_distribution.register
def _(event: ev.BestOfRuns, grid: float, relation: NeighboringRelation) -> Losses:
    run = worst_of([composed(_count_all(releases), grid, relation) for releases in event.ways], grid)
    return best_of_losses(run, event.mean)


@loss_distribution.register
def _(event: ev.PoissonSampled, grid: float, relation: NeighboringRelation) -> Losses:
    if event.rate == 1:
        return _price_one_use(event.event, grid, relation)
    multiplier = gaussian_multiplier(event.event)
    if relation is NeighboringRelation.REPLACE_ONE:
        return _sampled_replacement(event, multiplier, grid)
    if multiplier is not None:
        profile = _gaussian_profile(multiplier)
        return sampled_losses(profile, profile, event.rate, grid)
    # a base grid that is fine against the loss of the base alone
    rough = rough_magnitude(event.event)
    base_grid = grid_for(0.0, rough, at_least=math.sqrt(rough.variance) / 4096)
    base = _price_one_use(event.event, base_grid, relation)
    return sampled_losses(base.remove.profile, base.add.profile, event.rate, grid)


def gaussian_multiplier(event: ev.Event) -> float | None:
    """Return the noise multiplier of the one Gaussian that equals the event, None if there is none.

    Gaussians on one batch add up as 1/sigma^2 = sum of 1/sigma_i^2, also if each is chosen after the one before.
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
    if isinstance(event, ev.Repeated):
        return has_replace_pair(event.event)
    if isinstance(event, ev.BestOfRuns):
        return all(has_replace_pair(release) for releases in event.ways for release in releases)
    return all(map(has_replace_pair, event.releases)) if isinstance(event, ev.Joint) else True


def _count_all(releases: Iterable[ev.Event]) -> Counter[ev.Event]:
    return sum((count_uses(release) for release in releases), Counter[ev.Event]())


def _gaussian_profile(noise_multiplier: float) -> Profile:
    shift = 1 / noise_multiplier
    # 10.2 standard deviations leave 1e-24 above
    return Profile(partial(normal_delta, shift), shift * (10.2 + shift / 2))


def _worst_approximate(epsilon: float, delta: float, grid: float) -> LossDistribution:
    """Return the worst losses of any (epsilon, delta)-private mechanism (Kairouz, Oh and Viswanath 2015)."""
    likely = 1 / (1 + math.exp(-epsilon))
    masses = (1 - delta) * likely * np.array([1.0, math.exp(-epsilon)])
    return split_atoms(np.array([epsilon, -epsilon]), masses, delta, grid)


def _sampled_replacement(event: ev.PoissonSampled, multiplier: float | None, grid: float) -> Losses:
    """Return the sampled Gaussian if one record takes another's place; opposite shifts are the worst.

    With q the rate, s the multiplier and c = q exp(-1 / (2 s^2)), one point x of the noise has the loss
    log(1 - q + c exp(x / s^2)) - log(1 - q + c exp(-x / s^2)). It rises with x, and is epsilon where
    x = s^2 (epsilon / 2 + asinh((1 - q) sinh(epsilon / 2) / c)).
    """
    if multiplier is None:
        raise UnsupportedEventError(
            f"Expected Gaussian noise in a sampled event under REPLACE_ONE, got {event.event}. "
            "Use epsilon_of, which falls back on group privacy."
        )
    rate, std = event.rate, multiplier
    log_odds = math.log(rate) - math.log1p(-rate) - 0.5 / std**2  # of c against 1 - q

    def delta_at(epsilons: Float64Array) -> Float64Array:
        half = np.abs(epsilons) / 2
        with np.errstate(divide="ignore"):
            log_ratio = half + np.log(-np.expm1(-2 * half) / 2) - log_odds
        # asinh of a large number is the logarithm of its double
        beyond = np.where(log_ratio > 30, log_ratio + math.log(2), np.arcsinh(np.exp(np.minimum(log_ratio, 30.0))))
        x = std * np.sign(epsilons) * (half + beyond)  # in standard deviations
        without, with_one, with_other = ndtr(-x), ndtr(1 / std - x), ndtr(-1 / std - x)
        growth = np.expm1(np.minimum(epsilons, 700.0))
        other_terms = rate * growth * with_other + (1 - rate) * growth * without
        return np.maximum(0.0, rate * (with_one - with_other) - other_terms)

    farthest = (10.2 + 1 / std) / std  # in x / s^2: 10.2 standard deviations leave 1e-24 above
    largest = float(np.logaddexp(0.0, log_odds + farthest) - np.logaddexp(0.0, log_odds - farthest))
    profile = Profile(delta_at, largest)
    return connect_dots(profile, profile, grid)


def total_magnitude(uses: Mapping[ev.Event, int]) -> LossMagnitude:
    """Return the magnitude of all uses in sequence; the reach stays that of the largest one."""
    each = [(rough_magnitude(event), count) for event, count in uses.items()]
    variance = math.fsum(one.variance * count for one, count in each)
    reach = max((one.reach for one, _ in each), default=0.0)
    pure = math.fsum(one.pure * count for one, count in each)
    return LossMagnitude(variance, reach, sum(one.n_uses * count for one, count in each), pure)


def grid_for(epsilon: float, magnitude: LossMagnitude, at_least: float = 0.0, *, fineness: float = FINENESS) -> float:
    """Return the grid that resolves `epsilon` after all uses, is not below `at_least`, and still fits into memory."""
    # a large epsilon is mostly the mean loss, half the variance: the spread is what the grid must resolve
    spread = min(epsilon, math.sqrt(8 * epsilon))
    wanted = fineness * spread / math.sqrt(max(magnitude.n_uses, FEW_USES))
    grid = max(wanted, 2e-6 * epsilon, at_least, magnitude.reach / MAX_CELLS)
    # powers of two are nested: a finer grid never gives a larger answer, and caches meet
    return 2.0 ** math.floor(math.log2(min(max(grid, 1e-12), 1e300)))


@singledispatch
def rough_magnitude(event: ev.Event) -> LossMagnitude:
    """Return the rough magnitude of one use of an event."""
    raise UnsupportedEventError(f"Expected an event with a known price, got {type(event).__name__}; none is guessed.")


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
def _(event: ev.ApproximateDP) -> LossMagnitude:
    return replace(_bounded(event.epsilon), pure=math.inf) if event.delta else _bounded(event.epsilon)


@rough_magnitude.register(ev.NonPrivateRelease)
@rough_magnitude.register(ev.UnpricedChoice)
def _(event: ev.Event) -> LossMagnitude:
    return LossMagnitude(math.inf, math.inf)


@rough_magnitude.register
def _(event: ev.Repeated) -> LossMagnitude:
    one = rough_magnitude(event.event)
    return LossMagnitude(one.variance * event.count, one.reach * event.count, pure=one.pure * event.count)


@rough_magnitude.register
def _(event: ev.Joint) -> LossMagnitude:
    each = [rough_magnitude(release) for release in event.releases]
    variance, reach = sum(one.variance for one in each), sum(one.reach for one in each)
    return LossMagnitude(variance, reach, pure=sum(one.pure for one in each))


@rough_magnitude.register
def _(event: ev.PoissonSampled) -> LossMagnitude:
    base, rate = rough_magnitude(event.event), event.rate
    # chi-square shrinks by q^2, a loss l to log(1 + q (e^l - 1))
    return LossMagnitude(_mixed(base.variance, rate**2), _mixed(base.reach, rate), pure=_mixed(base.pure, rate))


@rough_magnitude.register
def _(event: ev.DisjointCells) -> LossMagnitude:
    return rough_magnitude(event.event)


@rough_magnitude.register
def _(event: ev.BestOfRuns) -> LossMagnitude:
    runs = []
    for releases in event.ways:
        run = total_magnitude(_count_all(releases))
        # what the releases reach together is what their normal distribution does
        together = _normal(math.sqrt(run.variance)).reach if math.isfinite(run.variance) else math.inf
        runs.append(replace(run, reach=max(run.reach, min(together, run.pure))))
    # better runs shift the loss of the best by at most mean x total variation, which is at most tanh(pure / 2)
    pure = max(run.pure + event.mean * math.tanh(run.pure / 2) for run in runs)
    variance = max(run.variance for run in runs)
    reach = max(run.reach for run in runs)
    # one run is resolved on the grid of the whole, whose epsilon is larger
    n_uses = FINER_RUNS * max(FEW_USES, *(run.n_uses for run in runs))
    factor = (1 + math.log1p(event.mean) / 2) ** 2
    return LossMagnitude(factor * variance, reach + event.mean * min(reach / 8, 1.0), n_uses, pure)


def normal_epsilon(shift: float, delta: float) -> float:
    """Return the epsilon between two unit normal distributions this far apart (Balle and Wang 2018, theorem 8)."""
    bound = shift * shift / 2 + shift * math.sqrt(2 * math.log(1 / delta))
    if shift > 1e6:  # the bound is tight to 1e-6, and the curve below lost in rounding
        return bound
    if 2 * ndtr(shift / 2) - 1 <= delta:
        return 0.0
    low = 0.0
    while bound - low > 1e-12 * bound:
        middle = (low + bound) / 2
        low, bound = (low, middle) if normal_delta(shift, middle) <= delta else (middle, bound)
    return bound  # the private side


def normal_delta(shift: float, epsilon: Float64Array | float) -> Float64Array:
    """Return the hockey-stick curve between two unit normal distributions this far apart."""
    far = np.exp(epsilon + log_ndtr(-shift / 2 - epsilon / shift))
    return np.asarray(ndtr(shift / 2 - epsilon / shift) - far)


def _normal(shift: float) -> LossMagnitude:
    return LossMagnitude(shift * shift, 10 * shift + shift * shift / 2)


def _bounded(epsilon: float) -> LossMagnitude:
    return LossMagnitude(min(epsilon, epsilon * epsilon), epsilon, pure=epsilon)


def _mixed(loss: float, weight: float) -> float:
    """Return log(1 + weight (e^loss - 1)), also where e^loss is huge."""
    if loss < 30:
        return math.log1p(weight * math.expm1(loss))
    return float(np.logaddexp(math.log1p(-weight) if weight < 1 else -math.inf, math.log(weight) + loss))
