"""Rows as small codes: one-hot features that are never written out.

After the schema a row *is* a handful of codes: 14 columns of Adult are 14 bytes, not 102 decimals. Column c with code v
has a 1 at feature `first[c] + v`; scaled numbers have features of their own. A model reads its weights at these
places (`models/products.py`); what needs the features themselves writes them out for a block of rows (`dense`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairveil._validation import check_number
from fairveil.errors import BadStructureError, InvalidParameterError

MOST_BINS = 64
"""A bin is divided into no more than so many, and numbers are merged to no more."""

Codes: TypeAlias = "NDArray[Any]"
"""Arrays of uint8 or uint16."""


def at_rows(array: NDArray[Any], rows: NDArray[np.integer]) -> NDArray[Any]:
    """Return the entries of these rows, each within the array.

    `take` is the faster way, but first copies the whole of an array whose rows are not adjacent in memory, such as one
    column of a file of packed rows.
    """
    return array.take(rows, axis=0, mode="clip") if array.flags.c_contiguous else array[rows]


@dataclass(frozen=True)
class Detail:
    """How finely rows are encoded, beyond what the schema says: public numbers.

    Attributes
    ----------
    resolution : int
        Into how many finer bins each bin of a number column is divided; 1 leaves the schema's own.
    pair_bins : int
        If positive, every pair of columns has features of its own, one for each pair of levels; bins of numbers are
        merged to about so many for that.
    """

    resolution: int = 1
    pair_bins: int = 0

    def __post_init__(self) -> None:
        resolution = check_number("resolution", self.resolution, whole=True)
        pair_bins = check_number("pair_bins", self.pair_bins, whole=True, at_least=0)
        for name, value in {"resolution": resolution, "pair_bins": pair_bins}.items():
            if value > MOST_BINS:
                raise InvalidParameterError(f"Expected {name} to be at most {MOST_BINS}, got {value}.")
            object.__setattr__(self, name, value)


SCHEMA_ONLY = Detail()
"""The schema's own bins and columns."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Features of pairs of columns, one for each pair of merged levels.

    Parameters
    ----------
    merged : array of int32
        The merged level of each level of the columns, by feature.
    table : array of int32, shape (4, n_pairs)
        Of each pair: its two columns, its first feature, and how many merged levels the second one has.
    """

    merged: NDArray[np.int32]
    table: NDArray[np.int32]

    def places(self, singles: NDArray[np.integer]) -> NDArray[np.integer]:
        """Return the features of each row's pairs from those of its columns, shape (n_rows, n_pairs)."""
        left, right, first, width = self.table
        merged = self.merged.take(singles, mode="clip")
        return first + merged[:, left] * width + merged[:, right]


@dataclass(frozen=True, eq=False)
class Layout:
    """Where codes and numbers stand among the features: public facts, all of it.

    Parameters
    ----------
    n_features : int
    first, n_levels : sequences of int
        The first feature of each column of codes, and how many codes it has.
    is_number : sequence of bool
        Whether code 0 of a column says only that its number is present, so that it has no feature of its own.
    scaled : sequence of int
        The feature of each column of numbers.
    pairs : Pairs, optional

    Attributes
    ----------
    columns : array of int32, shape (3, n_columns)
        First feature, last code, and whether code 0 has no feature, for each column.
    facts : array or tuple of arrays
        The columns, with the facts of pairs if there are any, as compiled functions read them.
    constant_square : float or None
        The squared norm of every row, where it is the same for all rows.
    """

    n_features: int
    first: Sequence[int]
    n_levels: Sequence[int]
    is_number: Sequence[bool]
    scaled: Sequence[int]
    pairs: Pairs | None = None
    facts: Any = field(init=False, repr=False)
    columns: NDArray[np.int32] = field(init=False, repr=False)
    scaled_places: NDArray[np.int32] = field(init=False, repr=False)
    constant_square: float | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        last = np.array(self.n_levels, dtype=np.int64) - 1
        columns = np.stack([np.array(self.first, dtype=np.int64), last, np.array(self.is_number, dtype=np.int64)])
        scaled = np.array(self.scaled, dtype=np.int32)
        starts, ends = [*self.first, *scaled.tolist()], [*(columns[0] + last).tolist(), *scaled.tolist()]
        if min([*starts, *last.tolist()], default=0) < 0 or max(ends, default=0) >= self.n_features:
            raise BadStructureError("Expected codes and numbers within the features, got others.")
        object.__setattr__(self, "columns", np.ascontiguousarray(columns, dtype=np.int32))
        object.__setattr__(self, "scaled_places", scaled)
        is_constant = not (len(scaled) or any(self.is_number))
        object.__setattr__(self, "constant_square", float(self.n_places) if is_constant else None)
        pairs = () if self.pairs is None else (self.pairs.merged, self.pairs.table)
        object.__setattr__(self, "facts", (self.columns, *pairs) if pairs else self.columns)

    @property
    def n_places(self) -> int:
        """The number of features that are 1 in a row, at most: one for each column and each pair of columns."""
        return len(self.n_levels) + (0 if self.pairs is None else self.pairs.table.shape[1])

    @property
    def code_type(self) -> type[np.uint8] | type[np.uint16]:
        """The smallest type that holds all codes."""
        return np.uint8 if max(self.n_levels, default=1) <= 256 else np.uint16

    def with_number(self) -> "Layout":
        """Return the layout with one more column of numbers, whose feature is the last."""
        scaled = [*self.scaled, self.n_features]
        return Layout(self.n_features + 1, self.first, self.n_levels, self.is_number, scaled, self.pairs)

    def without_last_number(self) -> "Layout":
        """Return the layout that `with_number` extended."""
        return Layout(self.n_features - 1, self.first, self.n_levels, self.is_number, self.scaled[:-1], self.pairs)


@dataclass(frozen=True)
class Levels:
    """Which features are levels of columns, and which levels are finer bins of a coarse one: public facts.

    Attributes
    ----------
    n_features : int
        Of an encoded row, scaled numbers and pairs included.
    n_places : int
        Every row has at most so many levels: one of each column of codes, and of each pair of columns.
    whole : tuple of int
        The levels of columns of which every row has exactly one.
    children, parents : tuples of int
        The features that are fine bins, ascending, and for each the coarse bin that it is part of, numbered from 0.
    first_pair : int
        The first level of a pair of columns; all features from it on are such levels.
    bins, categories : tuples of int
        How many bins each number column has, and how many levels each column of categories, "missing" left out.
    """

    n_features: int
    n_places: int
    whole: tuple[int, ...]
    children: tuple[int, ...]
    parents: tuple[int, ...]
    first_pair: int
    bins: tuple[int, ...]
    categories: tuple[int, ...]

    @property
    def n_parents(self) -> int:
        """The number of coarse bins that are divided."""
        return self.parents[-1] + 1 if self.parents else 0

    @property
    def n_coarse(self) -> int:
        """The number of features if no bin were divided."""
        return self.n_features - len(self.children) + self.n_parents

    def n_at(self, detail: Detail) -> int:
        """Return how many features there would be at another detail, if these levels are those of the schema."""
        merged = [min(n, detail.pair_bins) + 1 for n in self.bins] + list(self.categories)
        n_pairs = (sum(merged) ** 2 - sum(n * n for n in merged)) // 2 if detail.pair_bins else 0
        return self.n_features + (detail.resolution - 1) * sum(self.bins) + n_pairs


@dataclass(frozen=True, eq=False, repr=False)  # rows are private: no print or log shows them
class CodedRows:
    """Rows of a table as codes and scaled numbers, or some of them by their row numbers; private.

    Parameters
    ----------
    layout : Layout
    codes : array of uint8 or uint16, shape (n_table, n_columns)
        In memory, or mapped from a file.
    numbers : array of float32, shape (n_table, n_scaled)
        In [-1, 1].
    index : array of int64, shape (n_rows,), optional
        The rows of the table that these are; all of them by default. Nothing is copied.
    """

    layout: Layout
    codes: Codes
    numbers: NDArray[np.float32]
    index: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        n_table, n_columns = self.codes.shape
        fits = n_columns == self.layout.columns.shape[1] and self.numbers.shape == (n_table, len(self.layout.scaled))
        if not fits or self.codes.dtype not in (np.uint8, np.uint16) or self.numbers.dtype != np.float32:
            raise BadStructureError("Expected codes and numbers that fit the layout, got others.")

    def __len__(self) -> int:
        return len(self.codes) if self.index is None else len(self.index)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the rows if they were written out: (n_rows, n_features)."""
        return len(self), self.layout.n_features

    def __getitem__(self, rows: Any) -> "CodedRows":
        """Return some of the rows, by a slice, a mask or row numbers; nothing is copied but row numbers."""
        index = np.arange(len(self)) if self.index is None else self.index
        return self._at(np.ascontiguousarray(index[rows], dtype=np.int64))

    def take(self, rows: NDArray[np.integer]) -> "CodedRows":
        """Return the rows of these numbers, each within the table."""
        return self._at(rows if self.index is None else self.index.take(rows, mode="clip"))

    def _at(self, index: NDArray[np.integer]) -> "CodedRows":
        # made at every step: without the checks of the constructor, which hold for all rows alike
        rows = object.__new__(CodedRows)
        rows.__dict__.update(layout=self.layout, codes=self.codes, numbers=self.numbers, index=index)
        return rows

    def gathered(self) -> "CodedRows":
        """Return the same rows as a table of their own."""
        if self.index is None:
            return self
        return CodedRows(self.layout, at_rows(self.codes, self.index), at_rows(self.numbers, self.index))

    def places(self) -> NDArray[np.int32]:
        """Return the features that are 1, shape (n_rows, n_places); `n_features` where a code has no feature."""
        first, last, is_number = self.layout.columns
        codes = np.minimum(self.gathered().codes, last)
        singles = np.where((codes == 0) & (is_number != 0), self.layout.n_features, codes + first).astype(np.int32)
        if self.layout.pairs is None:
            return singles
        return np.concatenate([singles, self.layout.pairs.places(singles)], axis=1, dtype=np.int32)

    def squared_norms(self) -> NDArray[np.float32]:
        """Return the squared Euclidean norm of each row."""
        if self.layout.constant_square is not None:
            return np.full(len(self), self.layout.constant_square, dtype=np.float32)
        own = np.square(self.gathered().numbers, dtype=np.float64).sum(axis=1)
        return (own + (self.places() < self.layout.n_features).sum(axis=1)).astype(np.float32)

    def dense(self) -> NDArray[np.float32]:
        """Return the rows written out, shape (n_rows, n_features)."""
        width = self.layout.n_features + 1  # one more, for codes without a feature
        rows = np.zeros((len(self), width), dtype=np.float32)
        starts = np.arange(len(self), dtype=np.intp)[:, None] * width
        rows.reshape(-1)[starts + self.places()] = 1.0
        rows[:, self.layout.scaled_places] = self.gathered().numbers
        return np.ascontiguousarray(rows[:, :-1])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the rows written out, for NumPy."""
        return self.dense().astype(dtype or np.float32, copy=False)

    def with_number(self, values: NDArray[np.floating]) -> "CodedRows":
        """Return the rows with one more column of numbers."""
        own = self.gathered()
        numbers = np.column_stack([own.numbers, values]).astype(np.float32)
        return CodedRows(self.layout.with_number(), own.codes, numbers)

    @property
    def last_number(self) -> NDArray[np.float32]:
        """The last column of numbers."""
        last = self.numbers[:, -1]
        return last if self.index is None else at_rows(last, self.index)

    def without_last_number(self) -> "CodedRows":
        """Return the rows without their last column of numbers; nothing is copied."""
        return CodedRows(self.layout.without_last_number(), self.codes, self.numbers[:, :-1], self.index)


Features: TypeAlias = "NDArray[np.floating] | CodedRows"
"""What a model reads: rows of float32, shape (n_rows, n_features), or coded rows."""


def dense(X: Features) -> NDArray[Any]:
    """Return rows written out, shape (n_rows, n_features)."""
    return X.dense() if isinstance(X, CodedRows) else X


def joined(parts: Sequence[Features]) -> Features:
    """Return several tables of one layout as one."""
    if isinstance(parts[0], CodedRows):
        own = [part.gathered() for part in parts if isinstance(part, CodedRows)]
        codes = np.concatenate([part.codes for part in own])
        return CodedRows(own[0].layout, codes, np.concatenate([part.numbers for part in own]))
    return np.concatenate([dense(part) for part in parts])
