"""Rows of a table in, numbers a model can use out, by the schema's public facts alone.

Nothing is fitted on rows: what a row becomes depends on the schema and that row only, so encoding costs no
privacy.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from fairveil.data.coded import SCHEMA_ONLY, CodedRows, Detail, Features, Layout, Levels
from fairveil.data.schema import (
    IGNORE,
    MISSING,
    OTHER,
    Category,
    Number,
    Schema,
    Sensitive,
    Target,
    Where,
    check_features,
)
from fairveil.data.schema_errors import close_match
from fairveil.data.slots import Slot, levels_of, pairs_of, slot_of
from fairveil.data.values import EXACT, PLAIN, Format, canonical_text, is_lost_in_numbers, number_in, number_of
from fairveil.errors import BadStructureError

Table: TypeAlias = "pd.DataFrame | NDArray[Any]"
Cells: TypeAlias = "pd.Series | NDArray[Any]"

_SIXTY_THREE_BITS = (1 << 63) - 1
_NUMERIC_TYPES = frozenset(
    {bool, int, float, np.bool_, np.int8, np.int16, np.int32, np.int64}
    | {np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.float32, np.float64}
)
_HASHABLE_TYPES = _NUMERIC_TYPES | {str, bytes, type(None), type(pd.NA), type(pd.NaT)}


@dataclass(frozen=True)
class MissingCells:
    """The cells that mean "missing", as canonical texts and as the numbers among them."""

    texts: frozenset[str]
    numbers: tuple[float, ...]

    @classmethod
    def of(cls, declared: Collection[str]) -> "MissingCells":
        """Return the rule for the texts a schema declares."""
        texts = frozenset(text for text in map(canonical_text, declared) if text is not None)
        numbers = tuple(number for number in map(number_of, sorted(texts)) if not math.isnan(number))
        return cls(texts, numbers)

    def holds(self, text: str | None) -> bool:
        """Say whether a canonical text means missing."""
        return text is None or text in self.texts


@dataclass(frozen=True)
class Encoder:
    """Turns tables that follow a schema into arrays; it holds public facts only.

    Parameters
    ----------
    schema : Schema
        The public facts.
    detail : Detail
        How finely numbers are divided, and whether pairs of columns have features.

    Attributes
    ----------
    feature_levels : tuple of str
        The name of every encoded feature, in order.
    n_features : int
        The number of encoded features.
    largest_squared_norm : int
        The largest squared length of any encoded row: 1 for each column, 2 if it is binned and scaled.
    slots : tuple of Slot
        The place of each column among the encoded features.
    layout : Layout
        The same for coded rows.
    levels : Levels
        Which features are levels, and which of them are finer bins.

    Notes
    -----
    Each coded column has exactly one 1 among its levels. A scaled column has its number in [-1, 1] (0
    where it is missing) and a "missing" level.

    Examples
    --------
    >>> schema = Schema.for_arrays(1, classes=["no", "yes"], bounds=(0, 10))
    >>> Encoder(schema).rows(np.array([[5.0], [99.0], [np.nan]])).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """

    schema: Schema
    detail: Detail = SCHEMA_ONLY
    feature_levels: tuple[str, ...] = field(init=False, repr=False, compare=False)
    n_features: int = field(init=False, repr=False, compare=False)
    largest_squared_norm: int = field(init=False, repr=False, compare=False)
    slots: tuple[Slot, ...] = field(init=False, repr=False, compare=False)
    layout: Layout = field(init=False, repr=False, compare=False)
    levels: Levels = field(init=False, repr=False, compare=False)
    _missing: MissingCells = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        slots: list[Slot] = []
        features: list[str] = []
        for name, column in self.schema.columns.items():
            slot = slot_of(name, column, len(features), self.detail.resolution)
            features += slot.levels
            if slot.scaled not in (None, slot.first):
                features.append(f"{name} scaled")
            slots.append(slot)
            check_features(len(features))
        first_pair = len(features)
        pairs, names = pairs_of(slots, first_pair, self.detail.pair_bins)
        features += names
        derived = {
            "feature_levels": tuple(features),
            "n_features": len(features),
            "largest_squared_norm": sum(1 + (slot.scaled not in (None, slot.first)) for slot in slots),
            "_missing": MissingCells.of(self.schema.missing_values),
            "slots": tuple(slots),
            "layout": Layout(
                n_features=len(features),
                first=[slot.first for slot in slots],
                n_levels=[len(slot.levels) for slot in slots],
                is_number=[slot.scaled == slot.first for slot in slots],
                scaled=[slot.scaled for slot in slots if slot.scaled is not None],
                pairs=pairs,
            ),
        }
        for attribute, value in derived.items():
            object.__setattr__(self, attribute, value)
        object.__setattr__(self, "levels", levels_of(slots, self.layout, first_pair))

    def rows(self, table: Table) -> NDArray[np.float32]:
        """Return the table as dense float32 rows, shape (n_rows, n_features)."""
        return self.coded(self.codes(table), self.numbers(table)).dense()

    @property
    def row_bytes(self) -> int:
        """The bytes that an encoded row takes."""
        layout = self.layout
        if all(layout.is_number):
            return 4 * layout.n_features
        return len(self.slots) * np.dtype(layout.code_type).itemsize + 4 * len(layout.scaled)

    def features(self, table: Table) -> Features:
        """Return the table as a model reads it: coded rows, or dense ones if every column is a scaled number."""
        return self.compact(self.codes(table), self.numbers(table))

    def compact(self, codes: NDArray[np.integer], numbers: NDArray[np.float32]) -> Features:
        """Return coded rows, or dense ones if every column is a scaled number."""
        rows = self.coded(codes, numbers)
        return rows.dense() if all(self.layout.is_number) else rows

    def coded(self, codes: NDArray[np.integer], numbers: NDArray[np.float32]) -> CodedRows:
        """Return codes and numbers as rows."""
        return CodedRows(self.layout, codes.astype(self.layout.code_type, copy=False), numbers)

    def codes(self, table: Table) -> NDArray[np.unsignedinteger]:
        """Return each row's level in each column, shape (n_rows, n_columns): the compact form to keep on disk."""
        columns = self._cells(table)
        codes = np.empty((len(table), len(columns)), dtype=self.layout.code_type)
        for index, (slot, cells) in enumerate(zip(self.slots, columns, strict=True)):
            if isinstance(slot.column, Category):
                level_codes = {level: code for code, level in enumerate(slot.column.levels)}
                known: dict[str | None, int] = {None: level_codes[MISSING]}
                known |= dict.fromkeys(self._missing.texts, level_codes[MISSING])
                known |= {name: level_codes[name] for name in slot.column.categories}
                _check_spelling(cells, slot.column.categories, list(self.schema.columns)[index])
                places, distinct = distinct_cells(cells)
                coded = [known.get(canonical_text(cell), level_codes[OTHER]) for cell in distinct]
                codes[:, index] = np.array(coded, dtype=self.layout.code_type)[places]
            else:
                numbers = numbers_of(cells, self._missing, slot.column.format)
                bins = np.searchsorted(slot.edges, numbers, side="right")
                codes[:, index] = np.where(np.isnan(numbers), len(slot.levels) - 1, bins)
        return codes

    def numbers(self, table: Table) -> NDArray[np.float32]:
        """Return the scaled columns in [-1, 1], shape (n_rows, n_scaled_columns)."""
        columns = zip(self.slots, self._cells(table), strict=True)
        scaled_columns = [
            (slot.column.bounds, numbers_of(cells, self._missing, slot.column.format))
            for slot, cells in columns
            if isinstance(slot.column, Number) and slot.scaled is not None
        ]
        result = np.empty((len(table), len(scaled_columns)), dtype=np.float32)
        for index, ((low, high), raw) in enumerate(scaled_columns):
            numbers = np.clip(raw, low, high)
            # Halving before adding cannot overflow, and bounds (-1, 1) leave every number as it is.
            scaled = np.clip((numbers - (low / 2 + high / 2)) / (high / 2 - low / 2), -1, 1)
            result[:, index] = np.where(np.isnan(numbers), 0, scaled)
        return result

    def labels(
        self, table: Table, columns: Sequence[Any], sensitive: Sequence[Sensitive]
    ) -> tuple[NDArray[np.int16], NDArray[np.int16], NDArray[np.int64], NDArray[np.bool_]]:
        """Return what is known of each row beside its features, and whether it counts.

        A row does not count if it fails a row rule, if its target is to be ignored, or if it lacks a person's id where
        the schema names an id column.

        Parameters
        ----------
        table : DataFrame, or array if the schema has no row rules and no id column
        columns : sequence of arrays
            The raw targets, then the raw values of each sensitive column.
        sensitive : sequence of Sensitive
            The groups of these columns.

        Returns
        -------
        y : array of shape (n_rows,)
            Class numbers.
        groups : array of shape (n_rows, n_sensitive)
            Group numbers, -1 for none of the groups.
        persons : array of shape (n_rows,)
            A number for each row's person, 0 if the schema names no id column.
        counts : array of shape (n_rows,)
            Whether the row counts.
        """
        target, pairs = self.schema.target, zip(columns[1:], sensitive, strict=True)
        y = self.codes_in(columns[0], target, target.classes)
        levels = [self.codes_in(cells, entry, entry.groups) for cells, entry in pairs]
        n_rows, n_levels = len(table), len(levels[0]) if levels else len(table)
        if not n_rows == len(y) == n_levels:  # the message states no lengths: how many people there are is private
            raise BadStructureError(
                "Expected X, y and sensitive_features of equal length, got different lengths; pass one of each per row."
            )
        persons = np.zeros(n_rows, dtype=np.int64)
        if self.schema.id_column is not None:
            persons = self.persons(columns_of(table, [self.schema.id_column], "id column")[0])
        groups = np.array(levels, dtype=np.int16).reshape(len(levels), n_rows).T
        return y, groups, persons, self.keep(table) & (y >= 0) & (persons >= 0)

    def targets(self, values: Any) -> NDArray[np.int16]:
        """Return the class number of each raw target, -1 for a row to leave out."""
        return self.codes_in(values, self.schema.target, self.schema.target.classes)

    def groups(self, values: Any, sensitive: str | Sensitive) -> NDArray[np.int16]:
        """Return the group number of each raw sensitive value, -1 for a row of no group."""
        entry = self.schema.sensitive_named(sensitive) if isinstance(sensitive, str) else sensitive
        return self.codes_in(values, entry, entry.groups)

    def codes_in(self, values: Any, facts: Target | Sensitive, names: Sequence[str]) -> NDArray[np.int16]:
        """Return the position of each raw value's class or group among `names`, -1 for one that is to be ignored."""
        cells, unknown = _as_cells(values), -1 if facts.unknown == IGNORE else names.index(facts.unknown)
        if facts.cuts:
            numbers = numbers_of(cells, self._missing, facts.format)
            codes = np.searchsorted(facts.cuts, numbers, side="right" if facts.at_cut == "up" else "left")
            return np.where(np.isnan(numbers), unknown, codes).astype(np.int16)
        # a cell that holds nothing has the text None, which is never in the table
        table: dict[str | None, int] = {name: code for code, name in enumerate(names)}
        if facts.values:
            table = {text: table[name] for name, texts in facts.values.items() for text in texts}
        _check_spelling(cells, [text for text in table if text is not None], facts.column)
        places, distinct = distinct_cells(cells)
        return np.array([table.get(canonical_text(cell), unknown) for cell in distinct], np.int16)[places]

    def persons(self, values: Any) -> NDArray[np.int64]:
        """Return one number for each row's person, -1 where the id is missing (the row is to be left out).

        The number is a hash of the id, so it is the same in every chunk, file and worker. Among n persons the
        chance that one of them shares a number with another is n / 2**63, about 1e-12 for ten million.

        A decimal names a person if it is whole and below 2**53: pandas makes decimals of whole numbers as soon as an
        id is missing, and larger ids then fall together. Such ids are read as text.
        """
        places, distinct = distinct_cells(_as_cells(values))
        codes = np.full(len(distinct), -1, dtype=np.int64)
        for place, cell in enumerate(distinct):
            text = canonical_text(cell)
            is_decimal = isinstance(cell, (float, np.floating))
            is_exact = not is_decimal or (float(cell).is_integer() and abs(float(cell)) < EXACT)
            if is_exact and text is not None and text not in self._missing.texts:
                digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
                codes[place] = int.from_bytes(digest, "little") & _SIXTY_THREE_BITS
        return codes[places]

    def keep(self, table: Table) -> NDArray[np.bool_]:
        """Return which rows meet every row rule of the schema."""
        kept = np.ones(len(table), dtype=bool)
        for rule in self.schema.where:
            kept &= self.meets(rule, columns_of(table, [rule.column], "column of a row rule")[0])
        return kept

    def meets(self, rule: Where, cells: Cells) -> NDArray[np.bool_]:
        """Return for each cell whether it meets all conditions of a row rule."""
        numbers = numbers_of(cells, self._missing, rule.format)
        _check_spelling(cells, (*(rule.one_of or ()), *(rule.none_of or ())), rule.column)
        places, distinct = distinct_cells(cells)
        is_met = np.ones(len(distinct), dtype=bool)
        for place, cell in enumerate(distinct):
            text = canonical_text(cell)
            is_listed = rule.one_of is None or text in rule.one_of
            is_barred = rule.none_of is not None and text in rule.none_of
            is_absent = rule.present is not None and self._missing.holds(text)
            is_met[place] = is_listed and not is_barred and not is_absent
        met: NDArray[np.bool_] = is_met[places]
        # A comparison with NaN is False, which is the stated rule for missing cells.
        if rule.at_least is not None:
            met &= numbers >= rule.at_least
        if rule.at_most is not None:
            met &= numbers <= rule.at_most
        if rule.above is not None:
            met &= numbers > rule.above
        if rule.below is not None:
            met &= numbers < rule.below
        return met

    def _cells(self, table: Table) -> list[Cells]:
        """Return the cells of every feature column, in the order of the schema."""
        if isinstance(table, pd.DataFrame):
            return list(columns_of(table, list(self.schema.columns)))
        if not isinstance(table, np.ndarray) or table.ndim != 2:
            raise BadStructureError(
                "Expected a DataFrame or a 2-D NumPy array of features, got something else; pass one of these."
            )
        if table.shape[1] != len(self.slots):
            raise BadStructureError(
                f"Expected {len(self.slots)} columns, got {table.shape[1]}; order them as the schema."
            )
        return list(table.T)


def columns_of(table: Table, names: Sequence[str], what: str = "column") -> list[pd.Series]:
    """Return the columns of those names; blanks around a table's own names are ignored."""
    if not isinstance(table, pd.DataFrame):
        raise BadStructureError(f'Expected a DataFrame with the {what} "{names[0]}", got an array without names.')
    labels = [str(label).strip() for label in table.columns]
    counts = Counter(labels)
    for name in names:
        if not counts[name]:
            hint = similar_column(name, names, labels)
            raise BadStructureError(f'Expected a column "{name}", got none{hint}; check the names of the columns.')
        if counts[name] > 1:
            raise BadStructureError(f'Expected one column "{name}", got {counts[name]}; rename or drop the others.')
    places = {label: place for place, label in enumerate(labels)}
    return [table.iloc[:, places[name]] for name in names]


def similar_column(absent: str, wanted: Sequence[str], found: Sequence[str]) -> str:
    """Return a hint to a column whose name is much like an absent one, if the names found are surely those of columns.

    Without a header they are the cells of a record; if its line break is lost, a cell follows the last name. So half of
    the wanted columns must be there, and a name that only begins like the absent one is not quoted.
    """
    if 2 * sum(name not in found for name in wanted) > len(wanted):
        return ""
    return close_match(absent, [name for name in found if not name.startswith(absent)])


def _as_cells(values: Any) -> Cells:
    if isinstance(values, (pd.Index, pd.api.extensions.ExtensionArray)):
        return pd.Series(values)
    is_array = isinstance(values, (pd.Series, np.ndarray, pd.DataFrame))
    cells = values if is_array else pd.Series(values, dtype=object)
    if cells.ndim != 1:
        raise BadStructureError(f"Expected one column of values, got {cells.ndim} dimensions.")
    return cells


def _check_spelling(cells: Cells, texts: Sequence[str], name: str) -> None:
    """Refuse a column of numbers where the schema lists texts that numbers cannot hold: a fact of type and schema.

    Read from a file without a declared type, such a column is text if one of its cells is no numeral, and numbers
    otherwise: one record would decide how all others are read.
    """
    dtype: Any = cells.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    lost = next((text for text in texts if is_lost_in_numbers(text)), None) if _is_numeric(dtype) else None
    if lost is not None:
        raise BadStructureError(
            f'Expected the column "{name}" as text, because the schema lists "{lost}" in it, which no number spells, '
            f"got a column of {dtype}; read it with dtype={{{name!r}: str}}, or fit the file itself."
        )


def counted_cells(cells: Cells) -> Iterator[tuple[Any, int]]:
    """Yield the distinct cells of a column with their counts, in the order in which they first occur."""
    places, distinct = distinct_cells(cells)
    places = np.where(places < 0, len(distinct) - 1, places)
    counts = np.bincount(places, minlength=len(distinct)).tolist()
    for place in pd.unique(places).tolist():
        yield distinct[place], counts[place]


def canonical_texts(cells: Cells) -> NDArray[np.object_]:
    """Return the canonical text of every cell (None where it holds nothing)."""
    places, distinct = distinct_cells(cells)
    texts = np.empty(len(distinct), dtype=np.object_)
    texts[:] = [canonical_text(cell) for cell in distinct]
    return texts[places]


def numbers_of(cells: Cells, missing: MissingCells, form: Format = PLAIN) -> NDArray[np.float64]:
    """Return every cell as a float64, NaN where it is missing or not a number.

    A column of numbers is refused where the schema says that cells are spelled otherwise: read from a file without a
    declared type, "1.234" would be a number unless another cell of its column is text.
    """
    if not _is_numeric(cells.dtype):
        places, distinct = distinct_cells(cells)
        read = number_of if form == PLAIN else partial(number_in, form=form)
        numbers = np.array([read(cell) for cell in distinct], dtype=np.float64)[places]
    elif form != PLAIN:
        raise BadStructureError(
            f'Expected a column of text, because the schema gives it the format "{form}", got a column of '
            f"{cells.dtype}; read it with dtype=str, or fit the file itself."
        )
    else:
        with np.errstate(all="ignore"):
            if isinstance(cells, pd.Series):
                numbers = cells.to_numpy(dtype=np.float64, na_value=np.nan)
            else:
                numbers = cells.astype(np.float64)
    if missing.numbers:
        numbers = np.where(np.isin(numbers, missing.numbers), np.nan, numbers)
    return numbers


def distinct_cells(cells: Cells) -> tuple[NDArray[np.intp], list[Any]]:
    """Return the distinct cells of a column and the place of each row's cell among them.

    A conversion then runs once for each distinct cell: ``converted[places]``.
    """
    dtype: Any = cells.dtype
    is_arrow_text = isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow"
    codes: Any = None
    values: Any = cells
    if isinstance(cells, pd.Series) and isinstance(dtype, pd.CategoricalDtype):
        codes, values = cells.cat.codes, dtype.categories
    elif is_arrow_text or _is_numeric(dtype):
        codes, values = pd.factorize(cells)
    if isinstance(values, np.ndarray):
        scalars = values.astype(object) if codes is None else values
    elif codes is not None and isinstance(values.dtype, np.dtype):
        scalars = np.asarray(values)
    else:
        try:
            scalars = values.to_numpy(dtype=object)
        except (UnicodeDecodeError, pa.ArrowException):  # bytes that are not UTF-8 inside a text column
            scalars = pa.array(values).cast(pa.large_binary()).to_numpy(zero_copy_only=False)
    if codes is not None:
        # pandas marks a null by the code -1, which picks the last entry
        return np.asarray(codes, dtype=np.intp), [*scalars, None]
    kinds = set(map(type, scalars))
    if not kinds <= _HASHABLE_TYPES:
        return np.arange(len(scalars)), list(scalars)
    # True == 1 == 1.0 would share one entry, whichever row came first: the type keeps them apart
    is_mixed = len(kinds & _NUMERIC_TYPES) > 1
    keys = list(zip(map(type, scalars), scalars, strict=True)) if is_mixed else list(scalars)
    place_of = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    places = np.fromiter(map(place_of.__getitem__, keys), np.intp, len(keys))
    return places, [key[1] for key in place_of] if is_mixed else list(place_of)


def _is_numeric(dtype: Any) -> bool:
    plain = dtype if isinstance(dtype, np.dtype) else getattr(dtype, "numpy_dtype", None)
    return plain is not None and plain.kind in "biuf"
