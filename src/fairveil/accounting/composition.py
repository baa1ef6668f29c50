"""Events in, (epsilon, delta) out, by privacy loss distributions in both directions.

What one record may have met: the whole data's events, and one part of every split.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fairveil._typing import Float64Array
from fairveil._validation import check_delta
from fairveil.accounting.events import Charge, Event
from fairveil.accounting.magnitude import LossMagnitude, grid_for, total_magnitude
from fairveil.accounting.pld import Losses, is_dominated
from fairveil.accounting.pricing import (
    NeighboringRelation,
    composed,
    count_uses,
    has_replace_pair,
)
from fairveil.errors import InvalidParameterError

Uses = Counter[Event]

MAX_WAYS = 64
"""More ways through the splits than this are not tried one by one."""


@dataclass(frozen=True)
class Compositions:
    """Events on the whole data, and for each split the different things its parts went through."""

    whole: Uses
    splits: tuple[tuple[Uses, ...], ...]

    @property
    def events(self) -> frozenset[Event]:
        """Every event, once."""
        return frozenset(self.whole).union(*(part for split in self.splits for part in split))

    @property
    def size(self) -> LossMagnitude:
        """The rough size of the heaviest way."""
        sizes = [[total_magnitude(part) for part in parts] for parts in ((self.whole,), *self.splits)]
        return LossMagnitude(
            math.fsum(max(size.variance for size in parts) for parts in sizes),
            max(size.reach for parts in sizes for size in parts),
            sum(max(size.n_uses for size in parts) for parts in sizes),
        )

    def each(self) -> list[Uses]:
        """Return every way, or fewer and heavier ones where there are too many."""
        ways = [self.whole]
        for parts in sorted(self.splits, key=len):
            longer = _distinct(way + part for way in ways for part in parts)
            # all parts in sequence cost more than any one of them
            ways = longer if len(longer) <= MAX_WAYS else [way + sum(parts, Uses()) for way in ways]
        return ways

    def priced(self, grid: float, neighbours: NeighboringRelation) -> list[tuple[Uses, Losses]]:
        """Return every way that is not plainly lighter than another, with its losses."""
        splits = tuple(_heaviest(split, grid, neighbours) for split in self.splits)
        return [(uses, composed(uses, grid, neighbours)) for uses in Compositions(self.whole, splits).each()]


def compositions_of(charges: Iterable[Charge | Event]) -> Compositions:
    """Return the ways a record may take through the charges; a bare event read the whole data.

    A record lies in exactly one part of each split, whichever its coins chose, so the worst way is the cost.
    """
    whole: Uses = Counter()
    splits: dict[str, dict[str, Uses]] = defaultdict(lambda: defaultdict(Counter))
    for charge in charges:
        placed = charge if isinstance(charge, Charge) else Charge(charge)
        uses = splits[placed.split][placed.part] if placed.split else whole
        uses.update(count_uses(placed.event))
    return Compositions(whole, tuple(tuple(_distinct(parts.values())) for parts in splits.values()))


def _distinct(many: Iterable[Uses]) -> list[Uses]:
    return list({frozenset(uses.items()): uses for uses in many}.values())


def _heaviest(parts: tuple[Uses, ...], grid: float, neighbours: NeighboringRelation) -> tuple[Uses, ...]:
    """Drop each part that another one dominates at every loss and in both directions."""
    if len(parts) == 1:
        return parts
    kept: list[tuple[Uses, Losses]] = []
    for part in sorted(parts, key=lambda uses: -total_magnitude(uses).variance):
        losses = composed(part, grid, neighbours)
        if not any(is_dominated(losses, heavier) for _, heavier in kept):
            kept.append((part, losses))
    return tuple(part for part, _ in kept)


ROUGH_FIRST = 4.0
"""The first pass is this much coarser than the estimate asks for; it only serves to place the second."""

ENOUGH = 1.25
"""A grid that would suit an answer this much larger is left as it is."""

MAX_PASSES = 3
"""How often the grid follows the answer it gave."""


def epsilon_of(
    charges: Iterable[Charge | Event],
    delta: float,
    neighbours: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> float:
    """Return the epsilon of everything released together.

    Parameters
    ----------
    charges : iterable of Charge or Event
        What was released; a bare event read the whole data. Parts of one split compose in parallel, all else
        in sequence.
    delta : float
        The delta at which epsilon is stated.
    neighbours : NeighboringRelation
        Add or remove one record, or replace one. Where the latter has no price of its own (sampled noise that
        is not Gaussian), group privacy of size two stands in for the whole.

    Returns
    -------
    float
        An upper bound, at most about 0.03 % above the exact value for delta down to 1e-9; 0 if nothing was
        released; infinite if something was released without a guarantee, or if delta is below the rounding of
        the computation (4e-17 for each use).

    Examples
    --------
    >>> from fairveil.accounting.events import GaussianRelease, PoissonSampled, Repeated
    >>> steps = Repeated(PoissonSampled(0.02, GaussianRelease(2.0)), 500)
    >>> round(epsilon_of([steps], delta=1e-5), 3)
    0.921
    """
    delta, neighbours, ways = check_delta(delta), _relation(neighbours), compositions_of(charges)
    size = ways.size
    if size.is_trivial:
        return size.variance
    # the estimate only places the first grid; every answer comes from the laws themselves
    grid = grid_for(max(ROUGH_FIRST * size.epsilon(delta), math.sqrt(size.variance)), size)
    answer = _epsilon_on(ways, delta, neighbours, grid)
    for _ in range(MAX_PASSES):
        if not 0 < answer < math.inf or grid <= grid_for(ENOUGH * answer, size):
            break
        grid = grid_for(answer, size)
        answer = _epsilon_on(ways, delta, neighbours, grid)
    return answer


def epsilon_near(
    charges: Iterable[Charge | Event], delta: float, neighbours: NeighboringRelation, expected: float
) -> float:
    """Return epsilon on the grid that suits an answer of `expected`; elsewhere coarser, but never too low."""
    ways = compositions_of(charges)
    size = ways.size
    if size.is_trivial:
        return size.variance
    return _epsilon_on(ways, delta, neighbours, grid_for(max(expected, size.epsilon(delta) / 8), size))


def delta_of(
    charges: Iterable[Charge | Event],
    epsilon: float,
    neighbours: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> float:
    """Return the delta of everything released together at this epsilon; the twin of `epsilon_of`."""
    if not epsilon >= 0:
        raise InvalidParameterError(f"Expected epsilon >= 0, got {epsilon!r}.")
    neighbours, ways = _relation(neighbours), compositions_of(charges)
    size = ways.size
    if size.is_trivial:
        return float(size.variance > 0)
    # delta moves faster than epsilon, so it needs a finer grid
    grid = grid_for(max(min(epsilon, 1e6), math.sqrt(size.variance)) / 4, size)
    if _is_priced(ways, neighbours):
        return max(_delta(law, epsilon) for _, law in ways.priced(grid, neighbours))
    half = np.array([epsilon / 2])
    priced = ways.priced(grid, NeighboringRelation.ADD_OR_REMOVE_ONE)
    return max(math.exp(min(0.0, _group_log_delta(law, half)[0])) for _, law in priced)


def _relation(neighbours: NeighboringRelation) -> NeighboringRelation:
    if not isinstance(neighbours, NeighboringRelation):
        raise InvalidParameterError(
            f"Expected neighbours to be a member of NeighboringRelation, got {neighbours!r}."
        )
    return neighbours


def _is_priced(ways: Compositions, neighbours: NeighboringRelation) -> bool:
    return neighbours is NeighboringRelation.ADD_OR_REMOVE_ONE or all(map(has_replace_pair, ways.events))


def _delta(losses: Losses, epsilon: float) -> float:
    return float(losses.hockey_stick(np.array([epsilon]))[0])


def _epsilon_on(ways: Compositions, delta: float, neighbours: NeighboringRelation, grid: float) -> float:
    # pure epsilons add up (and double when a record is replaced) without any grid: 0.7 and 0.3 make 1
    doubling = 2 if neighbours is NeighboringRelation.REPLACE_ONE else 1
    if _is_priced(ways, neighbours):
        priced = ways.priced(grid, neighbours)
        return max(
            min(doubling * total_magnitude(way).pure, law.smallest_epsilon(delta)) for way, law in priced
        )
    priced = ways.priced(grid, NeighboringRelation.ADD_OR_REMOVE_ONE)
    return max(min(doubling * total_magnitude(way).pure, two_step_epsilon(law, delta)) for way, law in priced)


def two_step_epsilon(losses: Losses, delta: float) -> float:
    """Return the epsilon for replacing one record from the losses of adding or removing one.

    Two steps that are (e, d)-private make one that is (2 e, (1 + e^e) d)-private; the smallest e that fits.
    """
    grid, top = losses.remove.grid, max(losses.remove.losses[-1], losses.add.losses[-1])
    coarse = np.arange(0, math.ceil(top / grid) + 1) * grid
    fits = np.flatnonzero(_group_log_delta(losses, coarse) <= math.log(delta))
    if len(fits) == 0 or fits[0] == 0:
        return math.inf if len(fits) == 0 else 0.0
    fine = np.linspace(coarse[fits[0] - 1], coarse[fits[0]], 257)
    fits = np.flatnonzero(_group_log_delta(losses, fine) <= math.log(delta))
    return 2 * float(fine[fits[0]]) if len(fits) else 2 * float(fine[-1])


def _group_log_delta(losses: Losses, epsilons: Float64Array) -> Float64Array:
    """Return log((1 + e^epsilon) H(epsilon)), safe where the factor is huge."""
    heights = np.maximum(losses.hockey_stick(epsilons), 1e-300)
    return np.logaddexp(0.0, epsilons) + np.log(heights)
