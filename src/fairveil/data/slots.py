"""Where the columns of a schema stand among the encoded features: their levels, finer bins, and pairs of columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from fairveil.data.coded import Layout, Levels, Pairs
from fairveil.data.schema import MAX_LEVELS, MISSING, Category, Number, check_features
from fairveil.data.values import canonical_text


@dataclass(frozen=True)
class Slot:
    """One column's place among the encoded features: its levels first, then its scaled number if it has both.

    Attributes
    ----------
    levels : tuple of str
        The names of the one-hot features; the last one of a number column is "missing".
    edges : tuple of float
        The interior cut points of a number column.
    first : int
        The place of the first level among all encoded features.
    scaled : int or None
        The place of the scaled number. Alone, it stands where the level "not missing" would stand.
    """

    column: Number | Category
    levels: tuple[str, ...]
    edges: tuple[float, ...]
    first: int
    scaled: int | None

    @property
    def is_whole(self) -> bool:
        """Whether every row has exactly one of the levels."""
        return self.scaled != self.first


def finer_edges(column: Number, resolution: int) -> tuple[float, ...]:
    """Return the interior cut points with each bin divided into equal parts; as they are if floats cannot divide it."""
    low, high = column.bounds
    ends = [low, *column.edges, high]
    if resolution == 1 or resolution * (len(ends) - 1) >= MAX_LEVELS:
        return column.edges
    parts = [np.linspace(start, end, resolution + 1)[:-1] for start, end in pairwise(ends)]
    edges = np.concatenate(parts)
    is_finer = bool((np.diff(edges) > 0).all()) and edges[-1] < high
    return tuple(edges[1:].tolist()) if is_finer else column.edges


def slot_of(name: str, column: Number | Category, first: int, resolution: int) -> Slot:
    """Return the place of a column whose first feature is `first`."""
    if isinstance(column, Category):
        return Slot(column, tuple(f"{name}={level}" for level in column.levels), (), first, None)
    if column.encode == "scale":
        return Slot(column, (f"{name} scaled", f"{name}={MISSING}"), (), first, first)
    low, high = column.bounds
    edges = finer_edges(column, resolution)
    ends = [canonical_text(end) for end in (low, *edges, high)]
    levels = [f"{name} in [{start}, {end})" for start, end in pairwise(ends)]
    levels[-1] = levels[-1][:-1] + "]"
    levels.append(f"{name}={MISSING}")
    return Slot(column, tuple(levels), edges, first, first + len(levels) if column.encode == "both" else None)


def _coarse_bins(slot: Slot) -> list[int]:
    """Return for each bin of a number column which bin of the schema it is or is part of."""
    low = slot.column.bounds[0] if isinstance(slot.column, Number) else 0.0
    own = slot.column.edges if isinstance(slot.column, Number) else ()
    return [int(place) for place in np.searchsorted(own, [low, *slot.edges], side="right")]


def pairs_of(slots: Sequence[Slot], first: int, n_bins: int) -> tuple[Pairs | None, list[str]]:
    """Return the features of all pairs of columns, which begin at `first`, and their names; none if `n_bins` is 0.

    The bins of a number column are merged to at most `n_bins`, each of about as many; "missing" stays by itself.
    """
    whole = [place for place, slot in enumerate(slots) if slot.is_whole]
    if not n_bins or len(whole) < 2:
        return None, []
    merged, named = np.zeros(first, dtype=np.int32), {}
    for place in whole:
        slot = slots[place]
        names = list(slot.levels)
        own = list(range(len(names)))
        if isinstance(slot.column, Number):
            n_coarse = len(slot.column.edges) + 1
            n_kept = min(n_coarse, n_bins)
            own = [bin_ * n_kept // n_coarse for bin_ in _coarse_bins(slot)]
            starts = [own.index(kept) for kept in range(n_kept)]
            names = [slot.levels[start].rsplit(",", 1)[0] + ", ...)" for start in starts] + [slot.levels[-1]]
            own.append(n_kept)
        merged[slot.first : slot.first + len(own)] = own
        named[place] = names
    sizes = [len(names) for names in named.values()]
    check_features(first + (sum(sizes) ** 2 - sum(size * size for size in sizes)) // 2)
    table: list[tuple[int, ...]] = []
    all_names: list[str] = []
    for left, right in combinations(whole, 2):
        table.append((left, right, first + len(all_names), len(named[right])))
        all_names += [f"{one} and {other}" for one in named[left] for other in named[right]]
    return Pairs(merged, np.ascontiguousarray(np.array(table, dtype=np.int32).T)), all_names


def levels_of(slots: Sequence[Slot], layout: Layout, first_pair: int) -> Levels:
    """Return which features are levels, finer bins, and levels of pairs."""
    whole: list[int] = []
    children: list[int] = []
    parents: list[int] = []
    bins: list[int] = []
    categories: list[int] = []
    for slot in (one for one in slots if one.is_whole):
        n_levels = len(slot.levels)
        whole += range(slot.first, slot.first + n_levels)
        if isinstance(slot.column, Category):
            categories.append(n_levels)
            continue
        bins.append(n_levels - 1)
        if slot.edges != slot.column.edges:
            n_before = parents[-1] + 1 if parents else 0
            children += range(slot.first, slot.first + n_levels - 1)
            parents += [n_before + place for place in _coarse_bins(slot)]
    return Levels(
        layout.n_features,
        layout.n_places,
        tuple(whole),
        tuple(children),
        tuple(parents),
        first_pair,
        tuple(bins),
        tuple(categories),
    )
