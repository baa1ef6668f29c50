"""Records in memory: the only place where the encoded rows of people are kept.

Floating-point rounding couples rows: the rounding of a product depends on a row's position in its block and on the
partial sum that it is added to. So units are kept in a secret random order, and a unit's own secret key, not its rank,
determines its block: adding or removing one unit changes one block and leaves all others unchanged, bit for bit.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil._random import Coins
from fairveil._typing import Float32Array
from fairveil.errors import BadStructureError, UnplannedReleaseError
from fairveil.models.base import ignore_float_warnings
from fairveil.privacy.output_perturbation import RidgeSoftmax, minimize_loss
from fairveil.privacy.queries import NOT_ONE_ANSWER, Query
from fairveil.privacy.rows import Persons, Rows
from fairveil.privacy.sampling import Index, assign_parts, poisson_batches, poisson_draws

Drawn = Index | list[Rows]
"""The row numbers of a batch, or its blocks where several releases share them."""


@dataclass(frozen=True, eq=False)
class MemoryRecords:
    """Encoded rows in memory, one or several of each unit of privacy.

    Parameters
    ----------
    X : array of float32, shape (n_rows, n_features)
    y : array of int16, shape (n_rows,)
        Class codes, none negative (see `keeping`).
    groups : array of int16, shape (n_rows,)
        Group codes; -1 for rows of no group.
    persons : array of int64, shape (n_rows,), optional
        Person codes; if provided, the unit of privacy is the person, else the record.
    keys : array of float64, shape (n_rows,), optional
        The secret key in [0, 1) of each row's unit, ascending (see `arranged`).
    coins : Coins, optional
        Source of the uniform numbers of arranged records.
    """

    X: Float32Array
    y: NDArray[np.int16]
    groups: NDArray[np.int16]
    persons: NDArray[np.int64] | None = None
    keys: NDArray[np.float64] | None = None
    coins: Coins | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        lengths = {len(self.X), len(self.y), len(self.groups)}
        if len(lengths) != 1 or (self.persons is not None and len(self.persons) != len(self.y)):
            raise BadStructureError("Expected inputs, labels, groups and persons of equal length; got different ones.")

    @classmethod
    def keeping(
        cls, X: Float32Array, y: NDArray, groups: NDArray, persons: NDArray | None, keep: NDArray[np.bool_]
    ) -> "MemoryRecords":
        """Return the records whose row is kept and whose label is known; the others contribute nothing."""
        return cls(X, y, groups, persons)._of_rows(np.flatnonzero(keep & (y >= 0)))

    @cached_property
    def norms(self) -> Float32Array:
        """The Euclidean norm of each row's input."""
        return np.sqrt(np.einsum("ij,ij->i", self.X, self.X, dtype=np.float64)).astype(np.float32)

    @cached_property
    def _joints(self) -> dict[int, NDArray[np.int64]]:
        return {}

    def joint(self, n_labels: int) -> NDArray[np.int64]:
        """Return group code * n_labels + label of each row, computed once."""
        if n_labels not in self._joints:
            self._joints[n_labels] = self.groups.astype(np.int64) * n_labels + self.y
        return self._joints[n_labels]

    @cached_property
    def _by_person(self) -> Persons:
        return Persons.of_codes(np.arange(len(self.y)) if self.persons is None else self.persons)

    @property
    def n_units(self) -> int:
        """The number of units of privacy: of persons, or of rows."""
        return len(self.y) if self.persons is None else len(self._by_person.sizes)

    def __repr__(self) -> str:
        return "MemoryRecords(<private>)"

    def arranged(self, coins: Coins) -> "MemoryRecords":
        """Return the same records in the order of fresh secret keys, one key for each unit."""
        keys = coins.generator.random(self.n_units)
        order = np.argsort(keys)
        if self.persons is None:
            return self._of_rows(order, keys[order], coins)
        keys = np.repeat(keys[order], self._by_person.sizes[order])
        return self._of_rows(self._by_person.rows_of(order), keys, coins)

    @cached_property
    def uniforms(self) -> Float32Array | None:
        """Two secret numbers in [0, 1) of each row's unit, shape (2, n_rows), drawn when they are first needed."""
        if self.keys is None or self.coins is None:
            return None
        units = np.cumsum(np.diff(self.keys, prepend=-1.0) > 0) - 1  # rows of one unit share its key
        drawn = self.coins.generator.random((2, int(units[-1]) + 1 if len(units) else 0), dtype=np.float32)
        return drawn.take(units, axis=1)

    def split(self, shares: Mapping[str, float], coins: Coins) -> dict[str, "MemoryRecords"]:
        """Return disjoint subsets; each unit is assigned to one by its own secret coin."""
        parts = assign_parts(self.n_units, shares, coins)
        if self.persons is not None:
            parts = {name: self._by_person.rows_of(units) for name, units in parts.items()}
        return {name: self._of_rows(rows) for name, rows in parts.items()}

    def _of_rows(
        self, rows: Index, keys: NDArray[np.float64] | None = None, coins: Coins | None = None
    ) -> "MemoryRecords":
        persons = None if self.persons is None else self.persons[rows]
        return MemoryRecords(self.X[rows], self.y[rows], self.groups[rows], persons, keys, coins)

    def draw(self, rates: Mapping[int, float], coins: Coins) -> Iterator[Index]:
        """Yield Poisson batches for ever, as row numbers; `rates` holds a public rate per group (-1: all others).

        A person is sampled with the rate of the group of their first row.
        """
        persons = None if self.persons is None else self._by_person
        if list(rates) == [-1]:
            batches = poisson_draws(self.n_units, rates[-1], coins)
        else:
            groups = self.groups if persons is None else self.groups[persons.order[persons.starts]]
            others = ~np.isin(groups, [group for group in rates if group != -1])
            strata = [np.flatnonzero(others if group == -1 else groups == group) for group in rates]
            batches = poisson_batches(strata, list(rates.values()), coins)
        return batches if persons is None else (persons.one_row(units, coins) for units in batches)

    def blocks(self, batch: Drawn, n_blocks: int) -> list[Rows]:
        """Return the rows of a batch (ascending) in blocks: those whose keys are in one of `n_blocks` equal ranges."""
        if isinstance(batch, list):
            return batch
        if n_blocks == 1 or self.keys is None:
            return [Rows(self, batch)]
        inner = np.searchsorted(self.keys.take(batch), np.arange(1, n_blocks) / n_blocks)
        ends = [0, *np.unique(inner).tolist(), len(batch)]
        return [Rows(self, batch[start:end]) for start, end in pairwise(ends)]

    @ignore_float_warnings
    def answer(
        self, batch: Drawn, query: Query, bound: Any = 1.0, norm: int = 2, n_blocks: int = 1
    ) -> NDArray[np.float64]:
        """Return the exact answer to a query: the sum over blocks, to which each row adds at most `bound`."""
        blocks = self.blocks(batch, n_blocks)
        total = query.total(blocks[0], bound, norm).astype(np.float64)
        for rows in blocks[1:]:
            part = query.total(rows, bound, norm)
            if part.shape != total.shape:
                raise UnplannedReleaseError(NOT_ONE_ANSWER)
            total += part
        return total

    @ignore_float_warnings
    def minimize(self, batch: Drawn, ridge: RidgeSoftmax) -> NDArray[np.float64]:
        """Return the minimizer of the regularized loss over the rows of the batch."""
        blocks = [(ridge.design(rows.X, rows.norms), rows.y) for rows in self.blocks(batch, 1)]

        def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            values, gradients = zip(*(ridge.loss(weights, X, y) for X, y in blocks), strict=True)
            return sum(values), np.sum(gradients, axis=0)

        return minimize_loss(loss, ridge, sum(len(y) for _, y in blocks)) if blocks else np.zeros(ridge.n_params)


_NOT_ONE_ANSWER = "Expected a query to answer each row once, got more or fewer answers."  # else nothing is bounded
