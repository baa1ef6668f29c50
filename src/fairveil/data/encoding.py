"""Rows of a table in, numbers a model can use out, by the schema's public facts alone.

Nothing is fitted on rows: what a row becomes depends on the schema and that row only, so encoding costs no
privacy.

Ids of persons in, whole numbers that are equal where the person is the same out.

A schema's row rule and a column in, which rows meet it out.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairveil.data.schema import MISSING, OTHER, Category, Number, Schema, Sensitive, Where, close_match
from fairveil.data.values import Cells, MissingCells, canonical_text, map_cells, numbers_of
from fairveil.errors import BadStructureError

Table: TypeAlias = "pd.DataFrame | NDArray[Any]"


@dataclass(frozen=True)
class _Slot:
    """One column's place among the encoded features: its levels, then its scaled number if it has both."""

    name: str
    column: Number | Category
    first: int

    @cached_property
    def levels(self) -> tuple[str, ...]:
        if isinstance(self.column, Category):
            return tuple(f"{self.name}={level}" for level in self.column.levels)
        return (*_bin_names(self.name, self.column), f"{self.name}={MISSING}")

    @property
    def scale_bounds(self) -> tuple[float, float] | None:
        if isinstance(self.column, Number) and self.column.encode != "bins":
            return self.column.bounds
        return None

    @property
    def scaled_index(self) -> int:
        # Alone, the scaled number stands where the level "not missing" would stand.
        return self.first if len(self.features) == len(self.levels) else self.first + len(self.levels)

    @property
    def features(self) -> tuple[str, ...]:
        is_both = isinstance(self.column, Number) and self.column.encode == "both"
        return (*self.levels, f"{self.name} scaled") if is_both else self.levels

    def codes(self, cells: Cells, missing: MissingCells) -> NDArray[np.uint16]:
        if isinstance(self.column, Category):
            return _category_codes(self.column, cells, missing)
        numbers = numbers_of(cells, missing)
        codes = np.searchsorted(self.column.edges, numbers, side="right")
        return np.where(np.isnan(numbers), len(self.levels) - 1, codes).astype(np.uint16)


def _bin_names(name: str, column: Number) -> tuple[str, ...]:
    if column.encode == "scale":
        return (f"{name} scaled",)
    low, high = column.bounds
    ends = [canonical_text(end) for end in (low, *column.edges, high)]
    names = [f"{name} in [{start}, {end})" for start, end in pairwise(ends)]
    return (*names[:-1], names[-1][:-1] + "]")


def _category_codes(column: Category, cells: Cells, missing: MissingCells) -> NDArray[np.uint16]:
    table = {level: code for code, level in enumerate(column.levels)}
    known = {name: table[name] for name in column.categories}

    def code(cell: Any) -> int:
        text = canonical_text(cell)
        if text is not None and text in known:
            return known[text]
        return table[MISSING] if missing.holds(text) else table[OTHER]

    return map_cells(cells, code, np.uint16)


def _scaled(bounds: tuple[float, float], cells: Cells, missing: MissingCells) -> NDArray[np.float32]:
    low, high = bounds
    numbers = np.clip(numbers_of(cells, missing), low, high)
    # Halving before adding cannot overflow, and bounds (-1, 1) leave every number as it is.
    scaled = np.clip((numbers - (low / 2 + high / 2)) / (high / 2 - low / 2), -1, 1)
    return np.where(np.isnan(numbers), 0, scaled).astype(np.float32)


@dataclass(frozen=True)
class Encoder:
    """Turns tables that follow a schema into arrays; it holds public facts only.

    Parameters
    ----------
    schema : Schema
        The public facts.

    Notes
    -----
    Each coded column gives exactly one 1 among its levels. A scaled column gives its number in [-1, 1] (0
    where it is missing) and a "missing" level.

    Examples
    --------
    >>> schema = Schema.for_arrays(1, classes=["no", "yes"], bounds=(0, 10))
    >>> Encoder(schema).rows(np.array([[5.0], [99.0], [np.nan]])).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """

    schema: Schema

    @cached_property
    def _slots(self) -> tuple[_Slot, ...]:
        slots: list[_Slot] = []
        for name, column in self.schema.columns.items():
            first = slots[-1].first + len(slots[-1].features) if slots else 0
            slots.append(_Slot(name, column, first))
        return tuple(slots)

    @cached_property
    def _missing(self) -> MissingCells:
        return self.schema.missing

    @cached_property
    def feature_levels(self) -> tuple[str, ...]:
        """The name of every encoded feature, in order."""
        return tuple(name for slot in self._slots for name in slot.features)

    @property
    def n_features(self) -> int:
        """The number of encoded features."""
        return len(self.feature_levels)

    @cached_property
    def largest_squared_norm(self) -> int:
        """The largest squared length any encoded row can have: 1 a column, 2 if binned and scaled."""
        return sum(1 + (len(slot.features) > len(slot.levels)) for slot in self._slots)

    def codes(self, table: Table) -> NDArray[np.uint16]:
        """Return each row's level in each column, shape (n, columns): the compact form to keep on disk."""
        columns = [slot.codes(cells, self._missing) for slot, cells in self._cells(table)]
        return np.stack(columns, axis=1)

    def numbers(self, table: Table) -> NDArray[np.float32]:
        """Return the scaled columns in [-1, 1], shape (n, scaled columns)."""
        result = np.empty((len(table), len(self._scaled_indices)), dtype=np.float32)
        scaled = [(slot.scale_bounds, cells) for slot, cells in self._cells(table) if slot.scale_bounds]
        for index, (bounds, cells) in enumerate(scaled):
            result[:, index] = _scaled(bounds, cells, self._missing)
        return result

    def expand(self, codes: NDArray[np.uint16], numbers: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the dense rows that `codes` and `numbers` stand for."""
        rows = np.zeros((len(codes), self.n_features), dtype=np.float32)
        starts = np.arange(len(codes), dtype=np.intp) * self.n_features
        flat = rows.reshape(-1)
        for slot, column in zip(self._slots, codes.T, strict=True):
            flat[starts + slot.first + column] = 1.0
        rows[:, self._scaled_indices] = numbers
        return rows

    @cached_property
    def _scaled_indices(self) -> list[int]:
        return [slot.scaled_index for slot in self._slots if slot.scale_bounds is not None]

    def rows(self, table: Table) -> NDArray[np.float32]:
        """Return the table as dense float32 rows, shape (n, n_features)."""
        return self.expand(self.codes(table), self.numbers(table))

    def targets(self, values: Any) -> NDArray[np.int16]:
        """Return the class number of each raw target, -1 for a row to leave out."""
        return self.schema.target.coding.codes(_as_cells(values), self._missing)

    def groups(self, values: Any, sensitive: str | Sensitive) -> NDArray[np.int16]:
        """Return the group number of each raw sensitive value, -1 for a row of no group."""
        entry = self.schema.sensitive_named(sensitive) if isinstance(sensitive, str) else sensitive
        return entry.coding.codes(_as_cells(values), self._missing)

    def persons(self, values: Any) -> NDArray[np.int64]:
        """Return a number for each person's id, -1 for a row without one (it is to be left out)."""
        return person_codes(_as_cells(values), self._missing)

    def keep(self, table: pd.DataFrame) -> NDArray[np.bool_]:
        """Return which rows meet every row rule of the schema."""
        kept = np.ones(len(table), dtype=bool)
        for rule in self.schema.where:
            kept &= meets(rule, columns_of(table, [rule.column])[0], self._missing)
        return kept

    def _cells(self, table: Table) -> list[tuple[_Slot, Cells]]:
        if isinstance(table, pd.DataFrame):
            return list(zip(self._slots, columns_of(table, self.schema.feature_names), strict=True))
        if not isinstance(table, np.ndarray) or table.ndim != 2:
            raise BadStructureError("Expected a pandas DataFrame or a 2-D NumPy array of features.")
        if table.shape[1] != len(self._slots):
            raise BadStructureError(
                f"Expected {len(self._slots)} columns, got {table.shape[1]}; order them as the schema."
            )
        return [(slot, table[:, index]) for index, slot in enumerate(self._slots)]


def columns_of(table: pd.DataFrame, names: Sequence[str]) -> list[pd.Series]:
    """Return the columns of those names, blanks around a table's own names aside."""
    labels = [str(label).strip() for label in table.columns]
    counts = Counter(labels)
    for name in names:
        if not counts[name]:
            raise BadStructureError(f'Expected a column "{name}", got none{close_match(name, labels)}.')
        if counts[name] > 1:
            raise BadStructureError(
                f'Expected one column "{name}", got {counts[name]}; rename or drop the others.'
            )
    places = {label: place for place, label in enumerate(labels)}
    return [table.iloc[:, places[name]] for name in names]


def _as_cells(values: Any) -> Cells:
    if isinstance(values, (pd.Index, pd.api.extensions.ExtensionArray)):
        return pd.Series(values)
    cells = (
        values
        if isinstance(values, (pd.Series, np.ndarray, pd.DataFrame))
        else pd.Series(values, dtype=object)
    )
    if cells.ndim != 1:
        raise BadStructureError(f"Expected one column of values, got {cells.ndim} dimensions.")
    return cells


_SIXTY_THREE_BITS = (1 << 63) - 1


def person_codes(cells: Cells, missing: MissingCells) -> NDArray[np.int64]:
    """Return one number for each cell's person, -1 where the id is missing.

    The number is a hash of the id, so it is the same in every chunk, file and worker. Among n persons the
    chance that a given one shares a number with another is n / 2**63, about 1e-12 for ten million.

    A column of decimals is bad structure: pandas makes one out of whole numbers as soon as an id is missing,
    and large ids then fall together.
    """
    if _is_decimal(cells):
        raise BadStructureError(
            "Expected ids as text or whole numbers, got a column of decimals; read it with dtype str or Int64."
        )

    def code(cell: Any) -> int:
        text = canonical_text(cell)
        if text is None or text in missing.texts:
            return -1
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "little") & _SIXTY_THREE_BITS

    return map_cells(cells, code, np.int64)


def _is_decimal(cells: Cells) -> bool:
    dtype: Any = cells.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    return pd.api.types.is_float_dtype(dtype) or pd.api.types.is_complex_dtype(dtype)


def meets(rule: Where, cells: Cells, missing: MissingCells) -> NDArray[np.bool_]:
    """Return for each cell whether it meets all conditions of the rule."""
    numbers = numbers_of(cells, missing)
    # A comparison with NaN is False, which is the stated rule for missing cells.
    conditions = [
        numbers >= rule.at_least if rule.at_least is not None else True,
        numbers <= rule.at_most if rule.at_most is not None else True,
        numbers > rule.above if rule.above is not None else True,
        numbers < rule.below if rule.below is not None else True,
        map_cells(cells, lambda cell: _meets_text(rule, canonical_text(cell), missing), np.bool_),
    ]
    return np.logical_and.reduce(np.broadcast_arrays(*conditions))


def _meets_text(rule: Where, text: str | None, missing: MissingCells) -> bool:
    is_listed = rule.one_of is None or text in rule.one_of
    is_barred = rule.none_of is not None and text in rule.none_of
    is_absent = rule.present is not None and missing.holds(text)
    return is_listed and not is_barred and not is_absent
