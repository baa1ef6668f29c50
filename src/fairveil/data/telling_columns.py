"""Which features give a group away: exact shares, for the data holder's eyes only.

Where a sensitive attribute alone is to be secret, a public feature that determines it leaves nothing to hide. Training
cannot refuse it, because looking for it would read the secret; the person who holds the rows can, with this.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairveil.data.encoding import Encoder, columns_of
from fairveil.data.facts import Category, Sensitive
from fairveil.data.values import canonical_text, numbers_of

__all__ = ["GIVEN_AWAY", "Seen", "given_away", "see"]

GIVEN_AWAY = 0.99
"""A feature gives groups away if so many rows of known group could be told by its level alone."""

MOST_LEVELS = 2000
ROWS_A_LEVEL = 20
"""A feature of more levels than this leaves nothing to tell: each row would have one of its own."""

Seen = Counter[tuple[str, str, Hashable, int]]
"""How often (feature, sensitive column, level, group code) was met."""


def see(frame: pd.DataFrame, encoder: Encoder) -> Seen:
    """Return the levels of every feature, by group, among the rows of one chunk."""
    seen: Seen = Counter()
    for entry in encoder.schema.sensitive:
        groups = encoder.groups(columns_of(frame, [entry.column])[0], entry)
        known = groups >= 0
        for name in encoder.schema.columns:
            if name == entry.column or name in entry.sources:
                continue  # refused as it is
            places, levels = pd.factorize(_levels(frame, name, encoder)[known], use_na_sentinel=False)
            counts = np.bincount(places * len(entry.groups) + groups[known])
            for joint in np.flatnonzero(counts).tolist():
                place, group = divmod(joint, len(entry.groups))
                seen[name, entry.column, levels[place], group] += int(counts[joint])
    return seen


def _levels(frame: pd.DataFrame, name: str, encoder: Encoder) -> NDArray[Any]:
    """Return what a feature says of each row: its category as text, or the bin of its number."""
    column, cells = encoder.schema.columns[name], columns_of(frame, [name])[0]
    if isinstance(column, Category):
        return np.array([canonical_text(cell) or "" for cell in cells], dtype=object)
    numbers = numbers_of(cells, encoder.schema.missing)
    low, high = column.bounds
    # as fine as whole numbers, not as coarse as the bins of the schema: the file itself is what others know
    edges = np.arange(np.ceil(low), high + 1) if high - low <= MOST_LEVELS else np.linspace(low, high, 257)
    return np.where(np.isnan(numbers), -1, np.searchsorted(edges, numbers, side="right"))


def given_away(seen: Seen, entry: Sensitive) -> dict[str, tuple[int, float]]:
    """Return the features that give the groups of a column away: how many rows they tell, and what share that is."""
    told: dict[str, Counter[Hashable]] = {}
    sizes: dict[str, Counter[int]] = {}
    for (name, column, level, group), count in seen.items():
        if column == entry.column:
            best = told.setdefault(name, Counter())
            best[level] = max(best[level], count)
            sizes.setdefault(name, Counter())[group] += count
    found = {}
    for name, best in told.items():
        total, usual = sizes[name].total(), max(sizes[name].values())
        # better than to say the largest group of everyone, nearly always right, and no level of a row of its own
        is_telling = usual < best.total() and GIVEN_AWAY * total <= best.total()
        if is_telling and len(best) * ROWS_A_LEVEL <= total:
            found[name] = (best.total(), best.total() / total)
    return found
