"""Cells in, canonical texts, numbers and class codes out.

What a cell becomes depends on that cell alone: not on the type pandas chose for its column (which one odd cell
can change) and not on the other rows. So 1, 1.0, "1", " 1 " and numpy's integers are all the text "1".
Nothing here raises or warns on a value; only a `Coding` that is itself wrong is an error.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from fairveil.errors import BadStructureError

Cells: TypeAlias = "pd.Series | NDArray[Any]"

IGNORE = "ignore"
"""The name that stands for "leave the row out" where a cell has no class or group."""

# A leading zero marks a code ("01234"); an exponent without a sign may be one too ("12e4").
_NUMERAL = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-][0-9]+)?")
_WHOLE = re.compile(r"([+-]?[0-9]+)(?:\.0*)?")
_NUMERIC_TYPES = frozenset(
    {bool, int, float, np.bool_, np.int8, np.int16, np.int32, np.int64}
    | {np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.float32, np.float64}
)
_HASHABLE_TYPES = _NUMERIC_TYPES | {str, bytes, type(None), type(pd.NA), type(pd.NaT)}


def canonical_text(value: Any) -> str | None:
    """Return the one text that stands for a cell, or None where the cell holds nothing.

    Examples
    --------
    >>> [canonical_text(v) for v in (1, 1.0, " 1 ", "1.0", True, "01", float("nan"))]
    ['1', '1', '1', '1', 'True', '01', None]
    """
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (int, np.integer)):
        return _plain_text(int(value))
    if isinstance(value, (float, np.floating)):
        return _float_text(value)
    text = _plain_text(value) or ""
    if _NUMERAL.fullmatch(text) is None:
        return text
    whole = _WHOLE.fullmatch(text)
    if whole is not None:  # digit by digit: a float would make large ids that differ the same
        text = "0" if whole[1].lstrip("+-") == "0" else whole[1].lstrip("+")
    elif math.isfinite(float(text)):
        text = _float_text(float(text)) or text
    return text


def number_of(value: Any) -> float:
    """Return a cell as a number, NaN where it holds none.

    Examples
    --------
    >>> [number_of(v) for v in ("40", " 4e1 ", True, "forty", None, "-inf")]
    [40.0, 40.0, 1.0, nan, nan, -inf]
    """
    if value is None or value is pd.NA or value is pd.NaT:
        return math.nan
    if isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)):
        try:
            return float(value)
        except OverflowError:  # an integer beyond the largest float
            return math.inf if value > 0 else -math.inf
    text = _plain_text(value) or ""
    if text in ("True", "False"):
        return float(text == "True")
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def _float_text(value: Any) -> str | None:
    number = float(value)
    if math.isnan(number):
        return None
    if math.isinf(number):
        return str(number)
    # numpy writes a float16 or float32 with its own few digits: 0.1, not 0.10000000149011612
    return str(int(number)) if number.is_integer() else str(number if isinstance(value, float) else value)


def _plain_text(value: Any) -> str | None:
    """Return a cell as text without blanks around it, None if it cannot be written down."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace").strip()
    try:
        return str(value).strip()
    except Exception:  # values never steer: an object that cannot be written down holds nothing
        return None


def canonical_texts(cells: Cells) -> NDArray[np.object_]:
    """Return the canonical text of every cell (None where it holds nothing)."""
    places, distinct = distinct_cells(cells)
    texts = np.empty(len(distinct), dtype=np.object_)
    texts[:] = [canonical_text(cell) for cell in distinct]
    return texts[places]


def numbers_of(cells: Cells, missing: "MissingCells") -> NDArray[np.float64]:
    """Return every cell as a float64, NaN where it is missing or not a number."""
    if not _is_numeric(cells.dtype):
        places, distinct = distinct_cells(cells)
        numbers = np.array([number_of(cell) for cell in distinct], dtype=np.float64)[places]
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
    if isinstance(dtype, pd.CategoricalDtype) or is_arrow_text or _is_numeric(dtype):
        if isinstance(cells, pd.Series) and isinstance(dtype, pd.CategoricalDtype):
            codes, values = cells.cat.codes, dtype.categories
        else:
            codes, values = pd.factorize(cells)
        scalars = np.asarray(values) if isinstance(values.dtype, np.dtype) else _objects(values)
        # pandas marks a null by the code -1, which picks the last entry
        return np.asarray(codes, dtype=np.intp), [*scalars, None]
    objects = _objects(cells)
    kinds = set(map(type, objects))
    if not kinds <= _HASHABLE_TYPES:
        return np.arange(len(objects)), list(objects)
    # True == 1 == 1.0 would share one entry, whichever row came first: the type keeps them apart
    is_mixed = len(kinds & _NUMERIC_TYPES) > 1
    keys = list(zip(map(type, objects), objects, strict=True)) if is_mixed else list(objects)
    place_of = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    places = np.fromiter(map(place_of.__getitem__, keys), np.intp, len(keys))
    return places, [key[1] for key in place_of] if is_mixed else list(place_of)


def _is_numeric(dtype: Any) -> bool:
    plain = dtype if isinstance(dtype, np.dtype) else getattr(dtype, "numpy_dtype", None)
    return plain is not None and plain.kind in "biuf"


def _objects(cells: Any) -> NDArray[np.object_]:
    if isinstance(cells, np.ndarray):
        return cells.astype(object)
    try:
        return cells.to_numpy(dtype=object)
    except (UnicodeDecodeError, pa.ArrowException):  # bytes that are not UTF-8 inside a text column
        return pa.array(cells).cast(pa.large_binary()).to_numpy(zero_copy_only=False)


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
class Coding:
    """How the cells of one column fall into named classes or groups.

    Attributes
    ----------
    names : tuple of str
        The classes or groups; a cell's code is the position of its name.
    cuts : tuple of float
        Cut points for a number column, one fewer than names; names run from the lowest numbers upward.
    at_cut : {"up", "down"}
        Where a number equal to a cut goes: "up" makes a cut c mean `>= c`, "down" makes it mean `> c`.
    values : mapping of name to raw values
        Which raw values make each name; without it (and without cuts) a name stands for itself.
    unknown : str
        The name for every other cell, missing ones included; "ignore" assigns them the code -1.
    """

    names: tuple[str, ...]
    cuts: tuple[float, ...] = ()
    at_cut: Literal["up", "down"] = "up"
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unknown: str = IGNORE

    def codes(self, cells: Cells, missing: MissingCells) -> NDArray[np.int16]:
        """Return the position of each cell's name, -1 for a cell that is to be ignored."""
        unknown = -1 if self.unknown == IGNORE else self.names.index(self.unknown)
        if self.cuts:
            numbers = numbers_of(cells, missing)
            codes = np.searchsorted(self.cuts, numbers, side="right" if self.at_cut == "up" else "left")
            return np.where(np.isnan(numbers), unknown, codes).astype(np.int16)
        # a cell that holds nothing has the text None, which is never in the table
        table: dict[str | None, int] = {name: code for code, name in enumerate(self.names)}
        if self.values:
            table = {text: table[name] for name, texts in self.values.items() for text in texts}
        places, distinct = distinct_cells(cells)
        return np.array([table.get(canonical_text(cell), unknown) for cell in distinct], np.int16)[places]


def check_coding(coding: Coding, word: str) -> None:
    """Raise `BadStructureError` unless the coding gives every cell at most one of its names."""
    if len(coding.names) < 2:
        raise BadStructureError(
            f"Expected at least two {word}, got {len(coding.names)}; list them all in a fixed order."
        )
    check_distinct(word, coding.names)
    if IGNORE in coding.names:
        raise BadStructureError(
            f'Expected no {word} named "{IGNORE}", which means "leave the row out"; choose another.'
        )
    if coding.unknown != IGNORE and coding.unknown not in coding.names:
        raise BadStructureError(f'Expected unknown = "{IGNORE}" or one of the {word}, got {coding.unknown!r}.')
    if coding.cuts and coding.values:
        raise BadStructureError("Expected either cuts or values, got both; cuts are for numbers, values for codes.")
    if coding.cuts:
        check_increasing("cuts", coding.cuts)
        n_cuts, n_names = len(coding.cuts), len(coding.names)
        if n_cuts != n_names - 1:
            raise BadStructureError(f"Expected one cut fewer than {word}, got {n_cuts} cuts for {n_names} {word}.")
    if coding.values:
        strangers = [name for name in coding.values if name not in coding.names]
        if strangers:
            raise BadStructureError(f"Expected values for the declared {word} only, got values for {strangers[0]!r}.")
        empty = [name for name in coding.names if name not in coding.values and name != coding.unknown]
        if empty:
            raise BadStructureError(f"Expected values for each of the {word}, got none for {empty[0]!r}.")
        check_distinct("values", tuple(text for texts in coding.values.values() for text in texts))


def check_distinct(key: str, names: tuple[str, ...]) -> None:
    """Raise `BadStructureError` where a name is listed twice."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise BadStructureError(f"Expected {key} without repeats, got {repeated[0]!r} twice.")


def check_increasing(key: str, numbers: tuple[float, ...]) -> None:
    """Raise `BadStructureError` unless the numbers rise strictly."""
    if any(high <= low for low, high in pairwise(numbers)):
        raise BadStructureError(f"Expected {key} in strictly increasing order, got {list(numbers)}.")
