"""Records in memory: where the encoded rows of people are kept, how batches are drawn, and what a query sees of them.

A *unit* is a record, or a person when the schema names an id column. Each unit is assigned to a subset and drawn into a
Poisson batch by its own independent secret coin. A drawn person is represented by one of their rows, selected by a
further coin, so that a person contributes to a release what one record does.

Floating-point rounding couples rows: the rounding of a product depends on a row's position in its block and on the
partial sum that it is added to. So units are kept in a secret random order, and a unit's own secret key, not its rank,
determines its block: adding or removing one unit changes one block and leaves all others unchanged, bit for bit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairveil._random import Coins
from fairveil._typing import Float32Array
from fairveil._validation import check_number
from fairveil.errors import BadStructureError, InvalidParameterError, UnplannedReleaseError
from fairveil.models.base import Model, ignore_float_warnings
from fairveil.models.row_stable import row_stable_forward

A = TypeVar("A", bound=NDArray[Any])
Index = NDArray[np.int64]

BLOCK_STEPS, BLOCK_HITS = 32, 2**18
"""Coins of at most so many steps, and for about so many drawn units, are tossed at once."""

NOT_ONE_ANSWER = "Expected a query to answer each row once, got more or fewer answers."


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
    coins: Coins | None = None
    joints: dict[int, Index] = field(default_factory=dict, init=False)

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

    def _of_rows(
        self, rows: Index, keys: NDArray[np.float64] | None = None, coins: Coins | None = None
    ) -> "MemoryRecords":
        persons = None if self.persons is None else self.persons[rows]
        return MemoryRecords(self.X[rows], self.y[rows], self.groups[rows], persons, keys, coins)

    @cached_property
    def norms(self) -> Float32Array:
        """The Euclidean norm of each row's input."""
        return np.sqrt(np.einsum("ij,ij->i", self.X, self.X, dtype=np.float64)).astype(np.float32)

    @cached_property
    def uniforms(self) -> NDArray[np.floating]:
        """Two independent secret numbers in [0, 1) of each row's unit, shape (2, n_rows); 1/2 if not arranged."""
        if self.keys is None or self.coins is None:
            return np.full((2, len(self.y)), 0.5)
        units = np.cumsum(np.diff(self.keys, prepend=-1.0) > 0) - 1  # rows of one unit share its key
        drawn = self.coins.generator.random((2, int(units[-1]) + 1 if len(units) else 0), dtype=np.float32)
        return drawn.take(units, axis=1)

    @cached_property
    def _by_person(self) -> "Persons":
        return Persons.of_codes(np.arange(len(self.y)) if self.persons is None else self.persons)

    @property
    def n_features(self) -> int:
        """Columns of a row."""
        return self.X.shape[1]

    @property
    def n_units(self) -> int:
        """The number of units of privacy: of persons, or of rows."""
        return len(self.y) if self.persons is None else len(self._by_person.sizes)

    def __repr__(self) -> str:
        return "MemoryRecords(<private>)"

    def split(self, shares: Mapping[str, float], coins: Coins) -> dict[str, "MemoryRecords"]:
        """Return disjoint subsets; each unit is assigned to one by its own secret coin."""
        subsets = assign_subsets(self.n_units, shares, coins)
        if self.persons is not None:
            subsets = {name: self._by_person.rows_of(units) for name, units in subsets.items()}
        return {name: self._of_rows(rows) for name, rows in subsets.items()}

    def arranged(self, coins: Coins) -> "MemoryRecords":
        """Return the same records in the order of fresh secret keys, one key for each unit."""
        n_units = self.n_units
        keys = coins.generator.random(n_units)
        order = np.argsort(keys)
        if self.persons is None:
            return self._of_rows(order, keys[order], coins)
        keys = np.repeat(keys[order], self._by_person.sizes[order])
        return self._of_rows(self._by_person.rows_of(order), keys, coins)

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

    def blocks(self, batch: "Drawn", n_blocks: int) -> "list[Rows]":
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
        self, batch: "Drawn", query: "Query", bound: Any = 1.0, norm: int = 2, n_blocks: int = 1
    ) -> NDArray[np.float64]:
        """Return the exact answer to a query over all rows of the batch."""
        return query.answer(self.blocks(batch, n_blocks), bound, norm)


class Column(Generic[A]):
    """An array of the records, gathered for the rows of a block when it is first read and kept from then on."""

    def __init__(self, axis: int = 0) -> None:
        self.axis = axis

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, rows: "Rows", owner: type) -> A:
        gathered = getattr(rows.records, self.name).take(rows.index, axis=self.axis, mode="clip")
        rows.__dict__[self.name] = gathered  # which Python finds first the next time
        return gathered


class Rows:
    """A block of private rows as queries see it.

    The outputs of a model and the joint codes are kept as well, because the queries of one batch share them.

    Attributes
    ----------
    X : array of float32, shape (n_rows, n_features)
    y, groups : arrays of int16, shape (n_rows,)
        Class codes, and group codes (-1 for none).
    norms : array of float32, shape (n_rows,)
        The Euclidean norms of the inputs.
    uniforms : array of shape (2, n_rows)
        Two independent secret numbers in [0, 1) for each row, independent of all records.
    """

    X = Column[Float32Array]()
    y = Column[NDArray[np.int16]]()
    groups = Column[NDArray[np.int16]]()
    norms = Column[Float32Array]()
    uniforms = Column[NDArray[np.floating]](axis=1)

    def __init__(self, records: MemoryRecords, index: Index) -> None:
        self.records = records
        self.index = index
        self._forward: tuple[Model, Float32Array, bool, tuple[Float32Array, ...]] | None = None
        self._joint: tuple[int, Index] | None = None

    def __len__(self) -> int:
        return len(self.index)

    def forward(self, model: Model, params: Float32Array, is_row_stable: bool = False) -> tuple[Float32Array, ...]:
        """Return the model's activations, read-only; they are kept while model and parameters are the same objects."""
        kept = self._forward
        if kept is None or kept[0] is not model or kept[1] is not params or kept[2] != is_row_stable:
            compute = row_stable_forward if is_row_stable else type(model).forward
            activations = compute(model, params, self.X)
            for array in activations:
                array.setflags(write=False)
            self._forward = kept = (model, params, is_row_stable, activations)
        return kept[3]

    def joint(self, n_labels: int) -> Index:
        """Return group code * n_labels + label, read-only: the place of each row in a flat table.

        It is negative for group code -1, which stands for the last row of a table.
        """
        if self._joint is None or self._joint[0] != n_labels:
            records = self.records
            if n_labels not in records.joints:  # computed once for all batches
                records.joints[n_labels] = records.groups.astype(np.int64) * n_labels + records.y
            joint = records.joints[n_labels].take(self.index, mode="clip")
            joint.setflags(write=False)
            self._joint = (n_labels, joint)
        return self._joint[1]

    def by_group(self) -> "Rows":
        """Return the same rows sorted by group code, in their own order within each group."""
        return Rows(self.records, self.index.take(np.argsort(self.groups, kind="stable")))


Drawn = Index | list[Rows]
"""The row numbers of a batch, or its blocks where several releases share them."""


class Query:
    """A query over the rows of a batch: a sum over its blocks, unless a class says otherwise."""

    def answer(self, blocks: list[Rows], bound: Any, norm: int) -> NDArray[np.float64]:
        """Return the exact sum over all blocks, to which each row adds at most `bound` in L1 or L2."""
        total = self.total(blocks[0], bound, norm).astype(np.float64)
        for rows in blocks[1:]:
            part = self.total(rows, bound, norm)
            if part.shape != total.shape:
                raise UnplannedReleaseError(NOT_ONE_ANSWER)
            total += part
        return total

    def total(self, rows: Rows, bound: Any, norm: int) -> NDArray[Any]:
        """Return the sum over one block."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Persons:
    """The rows of each person: `order[starts[p] : starts[p] + sizes[p]]`."""

    order: Index
    starts: Index
    sizes: Index

    @classmethod
    def of_codes(cls, codes: NDArray[np.int64]) -> "Persons":
        """Return the persons of rows with these person codes."""
        _, starts, sizes = np.unique(np.sort(codes), return_index=True, return_counts=True)
        return cls(np.argsort(codes, kind="stable"), starts, sizes)

    def rows_of(self, persons: Index) -> Index:
        """Return all rows of these persons."""
        sizes = self.sizes[persons]
        first = np.repeat(self.starts[persons] - np.cumsum(sizes) + sizes, sizes)
        return self.order[first + np.arange(sizes.sum())]

    def one_row(self, persons: Index, coins: Coins) -> Index:
        """Return one row of each of these persons, selected by a secret coin, in ascending order."""
        selected = (coins.generator.random(len(persons)) * self.sizes[persons]).astype(np.int64)
        return np.sort(self.order[self.starts[persons] + selected])


def assign_subsets(n_units: int, shares: Mapping[str, float], coins: Coins) -> dict[str, Index]:
    """Return the units of each subset; each unit is in subset j with probability `shares[j]`, by its own coin."""
    bounds = np.cumsum(list(shares.values()))
    if min(shares.values()) <= 0 or abs(bounds[-1] - 1) > 1e-9:
        raise InvalidParameterError(f"Expected shares > 0 that add up to 1, got {dict(shares)}.")
    assigned = np.searchsorted(bounds[:-1], coins.generator.random(n_units), side="right")
    return {name: np.flatnonzero(assigned == j) for j, name in enumerate(shares)}


def poisson_draws(n_units: int, rate: float, coins: Coins) -> Iterator[Index]:
    """Yield batches for ever: every unit is in every batch with probability `rate`, independently.

    The gaps between drawn units are geometric, so the cost of a draw is that of the batch, not of the data; the units
    of many steps are numbered consecutively and drawn at once.
    """
    check_number("sampling_rate", rate, at_most=1)
    if rate == 1 or n_units == 0:
        everyone = np.arange(n_units)
        while True:
            yield everyone
    n_steps = max(1, min(BLOCK_STEPS, int(BLOCK_HITS / (rate * n_units))))
    edges = n_units * np.arange(n_steps + 1)
    expected = float(edges[-1] * rate)
    while True:
        n_gaps = int(expected + 6 * np.sqrt(expected) + 16)
        hits = np.cumsum(coins.generator.geometric(rate, n_gaps)) - 1
        while hits[-1] < edges[-1]:
            more = np.cumsum(coins.generator.geometric(rate, n_gaps)) + hits[-1]
            hits = np.concatenate([hits, more])
        ends = np.searchsorted(hits, edges)
        for step in range(n_steps):
            yield hits[ends[step] : ends[step + 1]] - edges[step]


def poisson_batches(strata: Sequence[Index], rates: Sequence[float], coins: Coins) -> Iterator[Index]:
    """Yield batches drawn from disjoint strata of units, each with its own public rate; units ascend."""
    streams = [poisson_draws(len(units), rate, coins) for units, rate in zip(strata, rates, strict=True)]
    while True:
        drawn = [units[next(stream)] for units, stream in zip(strata, streams, strict=True)]
        yield np.sort(np.concatenate(drawn))
