"""The total of a long ledger, kind by kind: an upper bound like that of `epsilon_of`, and much quicker.

`epsilon_of` cuts every loss of every use by one grid, which must be fine enough for all uses together. Here entries
that are alike make one kind. Each kind is composed on a grid that suits its own few uses, rounded up to a coarser grid
that suits the number of entries, and raised to the power of its entries by one Fourier transform of all kinds
together. Every step errs upward only (docs/proofs/accounting.md).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, combinations_with_replacement, product

from fairveil._validation import check_number
from fairveil.accounting.composition import GRID_SLACK, MAX_PASSES, two_step_epsilon
from fairveil.accounting.events import Charge, Event, GaussianRelease
from fairveil.accounting.pld import Losses, coarsen, compose_uses, is_dominated, worst_of
from fairveil.accounting.pricing import (
    FEW_USES,
    FINENESS,
    MAX_CELLS,
    MAX_PRICED,
    N_MOVES,
    Compositions,
    LossMagnitude,
    NeighboringRelation,
    composed,
    compositions_of,
    gaussian_multiplier,
    grid_for,
    normal_epsilon,
    total_magnitude,
)

FEW_KINDS = 64
"""So many different parts of entries are cut as finely as one plan; more of them get the coarser grid."""

COARSENESS = 4.0
"""How much coarser that grid is; it adds less than 0.5 % to epsilon in all tested ledgers."""

MOST_RESOLVED = 1e6
"""More uses in one entry get the grid of so many, which needs about a million cells."""

KEPT_KINDS = 2048
"""How many kinds of entries are remembered as priced: a command states several totals of nearly the same ledger."""

Part = frozenset[tuple[Event, int]]
"""What a record in one part of a split meets: events, and how often each is used."""


@dataclass(frozen=True)
class Kind:
    """Entries alike: what a record in each part of their split meets, and how many such entries there are."""

    parts: tuple[Part, ...]
    count: int


@dataclass(frozen=True, eq=False)
class Composition:
    """A composition that a record may meet: its losses, and the largest loss that it can have at all."""

    pure: float
    losses: Losses


@dataclass(frozen=True, eq=False)
class PricedEntry:
    """What a record may meet in one entry, without the parts that another one dominates."""

    parts: tuple[Composition, ...]

    @cached_property
    def envelope(self) -> Composition:
        """One composition that is at every loss as bad as the worst part."""
        grid = self.parts[0].losses.remove.grid
        return Composition(max(part.pure for part in self.parts), worst_of([part.losses for part in self.parts], grid))


def epsilon_by_kinds(
    charges: Iterable[Charge | Event],
    delta: float,
    relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> float:
    """Return the epsilon of a long ledger; an upper bound like `epsilon_of`, and at most about 0.5 % above it.

    Parameters
    ----------
    charges : iterable of Charge or Event
        What was released, as for `epsilon_of`.
    delta : float
        The delta at which epsilon is stated.
    relation : NeighboringRelation
        Add or remove one record, or replace one.

    Returns
    -------
    float
        The epsilon of everything together; 0 if nothing was released, infinite without a guarantee.
    """
    return _priced_by_kinds(tuple(charges), check_number("delta", delta, below=1), relation)


@lru_cache(maxsize=64)  # a command states a total several times
def _priced_by_kinds(charges: tuple[Charge | Event, ...], delta: float, relation: NeighboringRelation) -> float:
    cases = compositions_of(charges, relation)
    kinds = kinds_of(cases)
    total = entries_magnitude(kinds)
    if total.n_uses == 0 or math.isinf(total.variance):
        return total.variance
    n_parts = sum(len(kind.parts) for kind in kinds)
    fineness = FINENESS * (1.0 if n_parts <= FEW_KINDS else COARSENESS)
    # the estimate only places the first grid; every answer comes from the distributions themselves
    spread = N_MOVES[cases.relation] * math.sqrt(total.variance)
    grid = grid_for(max(normal_epsilon(spread, delta), spread / 4), total, fineness=fineness)
    doubling, answer = N_MOVES[relation], math.inf
    for _ in range(1 + MAX_PASSES):
        costs = []
        for case in priced_by_kinds(kinds, grid, total, cases.relation):
            is_own_price = cases.relation is relation
            cost = case.losses.smallest_epsilon(delta) if is_own_price else two_step_epsilon(case.losses, delta)
            costs.append(min(doubling * case.pure, cost))
        answer = max(costs)
        if not 0 < answer < math.inf or grid <= grid_for(GRID_SLACK * answer, total, fineness=fineness):
            break
        grid = grid_for(answer, total, fineness=fineness)
    return answer


def kinds_of(cases: Compositions) -> list[Kind]:
    """Return the kinds of entries: each event on the whole data, and each split by what its parts met."""
    kinds = [Kind((frozenset({use}),), 1) for use in merged_gaussians(cases.whole)]
    several = Counter(tuple(frozenset(part.items()) for part in parts) for parts in cases.splits)
    for parts, count in several.items():
        kinds.append(Kind(tuple(dict.fromkeys(merged_gaussians(dict(part)) for part in parts)), count))
    return kinds


def entries_magnitude(kinds: Sequence[Kind]) -> LossMagnitude:
    """Return the rough magnitude of all entries in the worst parts; their number stands for the uses."""
    each = [([total_magnitude(dict(part)) for part in kind.parts], kind.count) for kind in kinds]
    return LossMagnitude(
        math.fsum(count * max(one.variance for one in parts) for parts, count in each),
        max((one.reach for parts, _ in each for one in parts), default=0.0),
        sum(count for _, count in each),
    )


def merged_gaussians(uses: Mapping[Event, int]) -> Part:
    """Return the uses with all Gaussians as the one that equals them together: 1/sigma^2 = sum of 1/sigma_i^2."""
    multipliers = {event: gaussian_multiplier(event) for event in uses}
    shift = math.hypot(*(math.sqrt(uses[event]) / one for event, one in multipliers.items() if one is not None))
    others = frozenset((event, count) for event, count in uses.items() if multipliers[event] is None)
    return others | {(GaussianRelease(1 / shift), 1)} if shift else others


def priced_by_kinds(
    kinds: Sequence[Kind], grid: float, total: LossMagnitude, relation: NeighboringRelation
) -> list[Composition]:
    """Return the worst compositions of all entries on the grid, which suits their number.

    Few combinations of parts are priced one by one; of many, an envelope of all parts stands for whichever part a
    record is in.
    """
    entries = []
    for kind in kinds:
        grids = tuple(_own_grid(part, grid, total) for part in kind.parts)
        entries.append((_priced_entry(kind.parts, grids, grid, relation), kind.count))
    is_many = math.prod(math.comb(n + len(one.parts) - 1, n) for one, n in entries) > MAX_PRICED
    certain = [(one.envelope, count) for one, count in entries if is_many or len(one.parts) == 1]
    choices = [combinations_with_replacement(one.parts, n) for one, n in entries if not is_many and len(one.parts) > 1]
    together = [_in_sequence(certain)] if certain else []
    return [_in_sequence([(one, 1) for one in chain(together, *choice)]) for choice in product(*choices)]


def _own_grid(part: Part, grid: float, total: LossMagnitude) -> float:
    """Return the grid for one entry's uses: finer than that of the entries, by a power of two."""
    own = total_magnitude(dict(part))
    # its losses may be rounded by its share of all that is rounded: half by its number, half by its variance
    share = (1 / total.n_uses + own.variance / total.variance) / 2
    # grids go with 1 / sqrt(uses)
    finer = math.sqrt(min(own.n_uses, MOST_RESOLVED) / (share * max(total.n_uses, FEW_USES)))
    finer = min(finer, MAX_CELLS * grid / max(own.reach, grid))
    return grid / 2.0 ** math.ceil(math.log2(max(finer, 1.0)))


@lru_cache(maxsize=KEPT_KINDS)
def _priced_entry(
    parts: tuple[Part, ...], grids: tuple[float, ...], grid: float, relation: NeighboringRelation
) -> PricedEntry:
    """Return one entry whose parts are composed each on its own grid, then rounded up to the grid of all entries."""
    kept: list[Composition] = []
    rough = [(dict(part), own_grid, total_magnitude(dict(part))) for part, own_grid in zip(parts, grids, strict=True)]
    for uses, own_grid, own in sorted(rough, key=lambda one: -one[2].variance):
        losses = coarsen(composed(uses, own_grid, relation), grid)
        if not any(is_dominated(losses, other.losses) for other in kept):
            kept.append(Composition(own.pure, losses))
    return PricedEntry(tuple(kept))


def _in_sequence(several: Sequence[tuple[Composition, int]]) -> Composition:
    pure = math.fsum(one.pure * count for one, count in several)
    return Composition(pure, compose_uses([(one.losses, count) for one, count in several]))
