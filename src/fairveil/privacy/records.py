"""Records: where the encoded rows of people are kept, how batches are drawn, and what a query sees of them.

A *unit* is a record, or a person when the schema names an id column. Each unit is assigned to a subset and drawn into a
Poisson batch by its own independent secret coin. A drawn person is represented by one of their rows, selected by a
further coin, so that a person contributes to a release what one record does.

Floating-point rounding couples rows: the rounding of a product depends on a row's position in its block and on the
partial sum that it is added to. So units are kept in a secret random order, and a unit's own secret key, not its rank,
determines its block: adding or removing one unit changes one block and leaves all others unchanged, bit for bit.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairveil._random import Coins
from fairveil._typing import Float32Array
from fairveil.data.coded import CodedRows, Features, at_rows, dense
from fairveil.errors import BadStructureError, UnplannedReleaseError
from fairveil.models.base import Model, ignore_float_warnings, reads_codes
from fairveil.models.row_stable import row_stable_forward
from fairveil.privacy.sampling import Index, assign_subsets, poisson_batches, poisson_draws, row_numbers

T = TypeVar("T")

MOST_JOINT = 2**22
"""Of tables of up to so many rows, pairs of group and label are kept as one number each: 32 MB."""

NOT_ONE_ANSWER = "Expected a query to answer each row once, got more or fewer answers."


@dataclass(frozen=True, eq=False)
class MemoryRecords:
    """Encoded rows, one or several of each unit of privacy: a table, and which of its rows these records are.

    The table is in memory or mapped from files, and is never copied: subsets and the secret order hold row numbers.

    Parameters
    ----------
    X : CodedRows, or array of float32 of shape (n_table, n_features)
    y : array of int16, shape (n_table,)
        Class codes, none negative: rows whose label is not known are left out before.
    groups : array of int16, shape (n_table,)
        Group codes; -1 for rows of no group.
    persons : array of int64, shape (n_table,), optional
        Person codes; if provided, the unit of privacy is the person, else the record.
    rows : array of row numbers, optional
        The rows of the table, in this order; all of them by default.
    keys : array of float64, of the length of `rows`, optional
        The secret key in [0, 1) of each row's unit, ascending (see `arranged`).
    coins : Coins, optional
        Source of the uniform numbers of arranged records.
    """

    X: Features
    y: NDArray[np.int16]
    groups: NDArray[np.int16]
    persons: NDArray[np.int64] | None = None
    rows: NDArray[np.integer] | None = None
    keys: NDArray[np.float64] | None = None
    coins: Coins | None = None
    _joints: dict[int, Index] = field(default_factory=dict, init=False, repr=False)
    _block_starts: dict[int, Index] = field(default_factory=dict, init=False, repr=False)  # by the number of blocks

    def __post_init__(self) -> None:
        lengths = {len(self.X), len(self.y), len(self.groups)}
        if len(lengths) != 1 or (self.persons is not None and len(self.persons) != len(self.y)):
            raise BadStructureError("Expected inputs, labels, groups and persons of equal length; got different ones.")
        if isinstance(self.X, CodedRows):  # row numbers are those of codes and labels alike
            object.__setattr__(self, "X", self.X.gathered())

    def _of_rows(
        self, places: NDArray[np.integer], keys: NDArray[np.float64] | None = None, coins: Coins | None = None
    ) -> "MemoryRecords":
        """Return the records at these places among these."""
        rows = places if self.rows is None else self.rows[places]
        return replace(self, rows=rows, keys=keys, coins=coins)

    def __len__(self) -> int:
        return len(self.y) if self.rows is None else len(self.rows)

    def rows_at(self, places: NDArray[np.integer]) -> Index:
        """Return the row numbers in the table of the rows at these places."""
        rows = places if self.rows is None else self.rows.take(places, mode="clip")
        return rows.astype(np.int64, copy=False)

    def joint_at(self, rows: Index, n_labels: int) -> Index:
        """Return group code * n_labels + label of these rows of the table."""
        if len(self.y) > MOST_JOINT:
            return at_rows(self.groups, rows).astype(np.int64) * n_labels + at_rows(self.y, rows)
        if n_labels not in self._joints:  # computed once for all batches
            self._joints[n_labels] = self.groups.astype(np.int64) * n_labels + self.y
        return self._joints[n_labels].take(rows, mode="clip")

    def gathered(self) -> "MemoryRecords":
        """Return the same records as a table of their own."""
        if self.rows is None:
            return self
        persons = None if self.persons is None else self.persons[self.rows]
        X = self.X[self.rows].gathered() if isinstance(self.X, CodedRows) else self.X[self.rows]
        own = MemoryRecords(X, self.y[self.rows], self.groups[self.rows], persons)
        return replace(own, keys=self.keys, coins=self.coins)

    @cached_property
    def norms(self) -> Float32Array:
        """The Euclidean norm of each dense row of the table."""
        X = dense(self.X)
        return np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64)).astype(np.float32)

    @cached_property
    def uniforms(self) -> NDArray[np.floating]:
        """Two independent secret numbers in [0, 1) of each row's unit, shape (2, n_rows); 1/2 if not arranged."""
        if self.keys is None or self.coins is None:
            return np.full((2, len(self)), 0.5)
        if self.persons is None:
            return self.coins.generator.random((2, len(self)), dtype=np.float32)
        units = np.cumsum(np.diff(self.keys, prepend=-1.0) > 0) - 1  # rows of one unit share its key
        drawn = self.coins.generator.random((2, int(units[-1]) + 1 if len(units) else 0), dtype=np.float32)
        return drawn.take(units, axis=1)

    @cached_property
    def _by_person(self) -> "Persons":
        """The places of each person's rows."""
        if self.persons is None:
            return Persons.of_codes(np.arange(len(self)))
        return Persons.of_codes(self.persons if self.rows is None else self.persons[self.rows])

    @property
    def n_features(self) -> int:
        """Columns of a row."""
        return self.X.shape[1]

    @property
    def n_units(self) -> int:
        """The number of units of privacy: of persons, or of rows."""
        return len(self) if self.persons is None else len(self._by_person.sizes)

    def __repr__(self) -> str:
        return "MemoryRecords(<private>)"

    def split(self, shares: Mapping[str, float], coins: Coins) -> dict[str, "MemoryRecords"]:
        """Return disjoint subsets; each unit is assigned to one by its own secret coin."""
        subsets = assign_subsets(self.n_units, shares, coins)
        if self.persons is not None:
            subsets = {name: self._by_person.rows_of(units) for name, units in subsets.items()}
        return {name: self._of_rows(places) for name, places in subsets.items()}

    def arranged(self, coins: Coins) -> "MemoryRecords":
        """Return the same records in the order of fresh secret keys, one key for each unit.

        Sorted keys and a random order of the units are drawn apart, which has the same law as sorting units by keys.
        """
        order = row_numbers(np.ones(self.n_units, dtype=bool)) if self.rows is None else self.rows.copy()
        keys = coins.generator.random(self.n_units)
        keys.sort()
        if self.persons is None:
            coins.generator.shuffle(order)
            return replace(self, rows=order, keys=keys, coins=coins)
        persons = coins.generator.permutation(self.n_units)
        keys = np.repeat(keys, self._by_person.sizes[persons])
        return self._of_rows(self._by_person.rows_of(persons), keys, coins)

    def draw(self, rates: Mapping[int, float], coins: Coins) -> Iterator[Index]:
        """Yield Poisson batches for ever, as places; `rates` holds a public rate per group (-1: all others).

        A person is sampled with the rate of the group of their first row.
        """
        persons = None if self.persons is None else self._by_person
        if list(rates) == [-1]:
            batches = poisson_draws(self.n_units, rates[-1], coins)
        else:
            firsts = np.arange(len(self)) if persons is None else persons.order[persons.starts]
            groups = self.groups[self.rows_at(firsts)]
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
        starts = self._block_starts.get(n_blocks)
        if starts is None:  # the same for every batch: keys ascend with places
            starts = np.searchsorted(self.keys, np.arange(1, n_blocks) / n_blocks)
            self._block_starts[n_blocks] = starts
        ends = [0, *np.unique(np.searchsorted(batch, starts)).tolist(), len(batch)]
        return [Rows(self, batch[start:end]) for start, end in pairwise(ends)]

    @ignore_float_warnings
    def answer(
        self, batch: "Drawn", query: "Query", bound: Any = 1.0, norm: int = 2, n_blocks: int = 1
    ) -> NDArray[np.float64]:
        """Return the exact answer to a query over all rows of the batch."""
        return query.answer(self.blocks(batch, n_blocks), bound, norm)


class kept(Generic[T]):  # noqa: N801 (used as a decorator)
    """A property that is computed when it is first read and kept from then on; without a lock, unlike the library's."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, owner: Any, _: Any) -> T:
        value = self.compute(owner)
        owner.__dict__[self.compute.__name__] = value  # which Python finds first the next time
        return value


class Rows:
    """A block of private rows as queries see it.

    What a query reads is gathered when it is first read and kept from then on; so are the outputs of a model and the
    joint codes, because the queries of one batch share them.

    Attributes
    ----------
    inputs : CodedRows, or array of float32 of shape (n_rows, n_features)
        What models read that can read codes.
    X : array of float32, shape (n_rows, n_features)
        The same, written out.
    y, groups : arrays of int16, shape (n_rows,)
        Class codes, and group codes (-1 for none).
    norms : array of float32, shape (n_rows,)
        The Euclidean norms of the inputs.
    uniforms : array of shape (2, n_rows)
        Two independent secret numbers in [0, 1) for each row, independent of all records.
    """

    def __init__(self, records: MemoryRecords, places: Index) -> None:
        self.records = records
        self.places = places
        self._forward: tuple[Model, Float32Array, bool, tuple[Float32Array, ...]] | None = None
        self._joint: tuple[int, Index] | None = None

    def __len__(self) -> int:
        return len(self.places)

    @kept
    def index(self) -> Index:
        """Return the row numbers in the table."""
        return self.records.rows_at(self.places)

    @kept
    def inputs(self) -> Features:
        """Return what models read that can read codes."""
        X = self.records.X
        return X.take(self.index) if isinstance(X, CodedRows) else at_rows(X, self.index)

    @kept
    def X(self) -> Float32Array:
        """Return the inputs, written out."""
        return dense(self.inputs)

    @kept
    def y(self) -> NDArray[np.int16]:
        """Return class codes."""
        return at_rows(self.records.y, self.index)

    @kept
    def groups(self) -> NDArray[np.int16]:
        """Return group codes, -1 for none."""
        return at_rows(self.records.groups, self.index)

    @kept
    def norms(self) -> Float32Array:
        """Return the Euclidean norms of the inputs."""
        if isinstance(self.inputs, CodedRows):
            return np.sqrt(self.inputs.squared_norms())
        return self.records.norms.take(self.index, mode="clip")

    @kept
    def uniforms(self) -> NDArray[np.floating]:
        """Return two secret numbers in [0, 1) for each row."""
        return self.records.uniforms.take(self.places, axis=1, mode="clip")

    def inputs_of(self, model: Model) -> Features:
        """Return the inputs as this model reads them: codes, or written out."""
        return self.inputs if reads_codes(model) else self.X

    def forward(self, model: Model, params: Float32Array, is_row_stable: bool = False) -> tuple[Float32Array, ...]:
        """Return the model's activations, read-only; they are kept while model and parameters are the same objects."""
        kept = self._forward
        if kept is None or kept[0] is not model or kept[1] is not params or kept[2] != is_row_stable:
            compute = row_stable_forward if is_row_stable else type(model).forward
            activations = compute(model, params, self.inputs_of(model))
            for array in activations:
                array.setflags(write=False)
            self._forward = kept = (model, params, is_row_stable, activations)
        return kept[3]

    def joint(self, n_labels: int) -> Index:
        """Return group code * n_labels + label, read-only: the place of each row in a flat table.

        It is negative for group code -1, which stands for the last row of a table.
        """
        if self._joint is None or self._joint[0] != n_labels:
            joint = self.records.joint_at(self.index, n_labels)
            joint.setflags(write=False)
            self._joint = (n_labels, joint)
        return self._joint[1]

    def by_group(self) -> "Rows":
        """Return the same rows sorted by group code, in their own order within each group."""
        return Rows(self.records, self.places.take(np.argsort(self.groups, kind="stable")))


Drawn = Index | list[Rows]
"""The places of a batch, or its blocks where several releases share them."""


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

    def rows_of(self, persons: NDArray[np.integer]) -> Index:
        """Return all rows of these persons."""
        sizes = self.sizes[persons]
        first = np.repeat(self.starts[persons] - np.cumsum(sizes) + sizes, sizes)
        return self.order[first + np.arange(sizes.sum())]

    def one_row(self, persons: Index, coins: Coins) -> Index:
        """Return one row of each of these persons, selected by a secret coin, in ascending order."""
        selected = (coins.generator.random(len(persons)) * self.sizes[persons]).astype(np.int64)
        return np.sort(self.order[self.starts[persons] + selected])
