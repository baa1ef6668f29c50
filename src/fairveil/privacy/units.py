"""Whose rows: the unit of protection is a record, or a person who may have many."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairveil.coins import Coins
from fairveil.privacy.sampling import Index

__all__ = ["Units"]


@dataclass(frozen=True, eq=False)
class Units:
    """The rows of each unit: `order[starts[u] : starts[u] + sizes[u]]`; `order` None means one row a unit."""

    count: int
    order: Index | None = None
    starts: Index | None = None
    sizes: Index | None = None

    @classmethod
    def of_rows(cls, n_rows: int) -> "Units":
        """Each row is a unit."""
        return cls(n_rows)

    @classmethod
    def of_persons(cls, persons: NDArray[np.int64]) -> "Units":
        """All rows with one code are a unit."""
        _, starts, sizes = np.unique(np.sort(persons), return_index=True, return_counts=True)
        return cls(len(starts), np.argsort(persons, kind="stable"), starts, sizes)

    def rows_of(self, units: Index) -> Index:
        """Return all rows of the given units."""
        if self.order is None or self.starts is None or self.sizes is None:
            return units
        sizes = self.sizes[units]
        first = np.repeat(self.starts[units] - np.cumsum(sizes) + sizes, sizes)
        return self.order[first + np.arange(sizes.sum())]

    def sizes_of(self, units: Index) -> Index:
        """Return how many rows each given unit has."""
        return np.ones(len(units), dtype=np.int64) if self.sizes is None else self.sizes[units]

    def one_row(self, units: Index, coins: Coins) -> Index:
        """Return one row of each given unit, picked by a secret coin."""
        if self.order is None or self.starts is None or self.sizes is None:
            return units
        pick = (coins.generator.random(len(units)) * self.sizes[units]).astype(np.int64)
        return self.order[self.starts[units] + pick]

    def strata(self, cells: NDArray[np.integer], names: Sequence[int]) -> list[Index]:
        """Return the units of each named cell; -1 names all cells not named. A person's cell is their first row's."""
        if list(names) == [-1]:
            return [np.arange(self.count)]
        first = cells if self.order is None else cells[self.order[self.starts]]
        named = np.isin(first, [name for name in names if name != -1])
        return [np.flatnonzero(~named if name == -1 else first == name) for name in names]
