"""What one record may have met: the whole data's events, and one part of every split."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from fairveil.privacy.events import Charge, Event
from fairveil.privacy.losses import Losses, is_dominated
from fairveil.privacy.pricing import Neighbours, composed, count_uses
from fairveil.privacy.sizes import Size, total_size

__all__ = ["Ways", "ways_through"]

Uses = Counter[Event]

MAX_WAYS = 64
"""More ways through the splits than this are not tried one by one."""


@dataclass(frozen=True)
class Ways:
    """Events on the whole data, and for each split the different things its parts went through."""

    whole: Uses
    splits: tuple[tuple[Uses, ...], ...]

    @property
    def events(self) -> frozenset[Event]:
        """Every event, once."""
        return frozenset(self.whole).union(*(part for split in self.splits for part in split))

    @property
    def size(self) -> Size:
        """The rough size of the heaviest way."""
        sizes = [[total_size(part) for part in parts] for parts in ((self.whole,), *self.splits)]
        return Size(
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

    def priced(self, grid: float, neighbours: Neighbours) -> list[tuple[Uses, Losses]]:
        """Return every way that is not plainly lighter than another, with its losses."""
        splits = tuple(_heaviest(split, grid, neighbours) for split in self.splits)
        return [(uses, composed(uses, grid, neighbours)) for uses in Ways(self.whole, splits).each()]


def ways_through(charges: Iterable[Charge | Event]) -> Ways:
    """Return the ways a record may take through the charges; a bare event read the whole data.

    A record lies in exactly one part of each split, whichever its coins chose, so the worst way is the cost.
    """
    whole: Uses = Counter()
    splits: dict[str, dict[str, Uses]] = defaultdict(lambda: defaultdict(Counter))
    for charge in charges:
        placed = charge if isinstance(charge, Charge) else Charge(charge)
        uses = splits[placed.split][placed.part] if placed.split else whole
        uses.update(count_uses(placed.event))
    return Ways(whole, tuple(tuple(_distinct(parts.values())) for parts in splits.values()))


def _distinct(many: Iterable[Uses]) -> list[Uses]:
    return list({frozenset(uses.items()): uses for uses in many}.values())


def _heaviest(parts: tuple[Uses, ...], grid: float, neighbours: Neighbours) -> tuple[Uses, ...]:
    """Drop each part that another one dominates at every loss and in both directions."""
    if len(parts) == 1:
        return parts
    kept: list[tuple[Uses, Losses]] = []
    for part in sorted(parts, key=lambda uses: -total_size(uses).variance):
        losses = composed(part, grid, neighbours)
        if not any(is_dominated(losses, heavier) for _, heavier in kept):
            kept.append((part, losses))
    return tuple(part for part, _ in kept)
