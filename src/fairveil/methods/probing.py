"""A trial of classifiers that were fitted elsewhere: each must answer a row from that row alone.

A guarantee about one record needs a classifier whose answer for a row depends on that row alone. Its code is not
fairveil's, so it is tried before anything is spent, on rows made from public facts: the schema, and the names and types
of the columns. That it treats real rows in the same way cannot be checked; it is assumed, and reports say so.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from fairveil.data.schema import Category, Number, Schema, Sensitive, Target
from fairveil.data.values import canonical_text, number_of
from fairveil.errors import BadStructureError, FairveilError, InvalidParameterError

TOLERANCE = 1e-6
"""Probabilities of one row may differ by so much between two tables: products are rounded differently."""

FEWEST_ROWS, MANY_ROWS, SINGLE_ROWS = 48, 512, 8
"""Rows of ordinary values that are made at least, rows of the largest table that is tried, rows tried alone."""

Answer = Callable[[Any], NDArray[np.floating]]
"""Returns the class probabilities of the rows of a table, shape (n_rows, n_classes)."""


def check_rows_alone(name: str, answer: Answer, schema: Schema, X: Any) -> None:
    """Refuse a classifier whose answer for a row changes with other rows, their number or order, or past calls.

    It is tried on synthetic rows; of `X`, only names and types of the columns are used. Rows on which it raises an
    error are left out: whether it raises one on real rows is not covered by the guarantee.

    Parameters
    ----------
    name : str
        What to call the classifier.
    answer : callable
    schema : Schema
    X : DataFrame or array
        The table whose rows it is to answer.
    """
    for is_text in (True, False):  # a column of objects may hold its numbers as text or as numbers
        rows = SyntheticRows.of(schema, X, is_text)
        usable = _answerable(answer, rows, np.arange(rows.n_rows))
        if len(usable) > 1:
            break
    else:
        raise InvalidParameterError(
            f"Expected a classifier that answers rows within the schema's bounds and categories, got a {name} that "
            "raises an error on rows made from the schema; declare every column that it reads in the schema, and let "
            "it answer every category (nothing was spent)."
        )
    expected, everyone, half = answer(rows.table(usable)), np.arange(len(usable)), len(usable) // 2
    again, among_others = "when the same rows are passed again", "with the other rows of the table"
    tables = [
        (everyone, again),
        (everyone[::-1], among_others),
        (np.random.default_rng(0).permutation(everyone), among_others),
        (everyone[:half], among_others),
        (everyone[half:], among_others),
        (np.resize(everyone, max(MANY_ROWS, 2 * len(everyone))), among_others),
        *((everyone[place : place + 1], among_others) for place in everyone[:: max(1, half // SINGLE_ROWS)]),
        (everyone, again),
    ]
    for places, when in tables:
        try:
            is_same = np.allclose(answer(rows.table(usable[places])), expected[places], 0, TOLERANCE, equal_nan=True)
        except FairveilError:
            raise
        except Exception:  # it answered the same rows in another table
            is_same = False
        if not is_same:
            raise InvalidParameterError(
                f"Expected a classifier that answers each row by itself, got a {name} whose answers change {when}, so "
                "that one record could decide about all others; fit scalers, encoders and ranks beforehand, as a "
                "scikit-learn Pipeline does (nothing was spent)."
            )


def _answerable(answer: Answer, rows: "SyntheticRows", places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return those of the rows on which the classifier raises no error, found by halving."""
    try:
        answer(rows.table(places))
    except FairveilError:
        raise
    except Exception:  # what it raises is its own; which rows it can answer is all that is needed here
        if len(places) == 1:
            return places[:0]
        return np.concatenate([_answerable(answer, rows, half) for half in np.array_split(places, 2)])
    return places


# --- rows made from public facts -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SyntheticRows:
    """A table of made-up rows with the columns and types of another one, whose values are never read.

    The first rows hold ordinary values: every listed category, the ends and the middle of all bounds. Then each column
    in turn is missing, and then each is beyond what the schema lists (where its type can hold that).

    Attributes
    ----------
    pools : tuple of Series
        The values of each column, in the type of the column.
    places : array of shape (n_rows, n_columns)
        Which of its column's values each cell holds.
    like : DataFrame or array
        An empty table of the same structure.
    """

    pools: tuple[Any, ...]
    places: NDArray[np.int64]
    like: Any

    @classmethod
    def of(cls, schema: Schema, X: Any, is_text: bool = True) -> "SyntheticRows":
        """Return rows for this schema, with the structure of `X`; `is_text` is about numbers in columns of objects."""
        if not isinstance(X, (pd.DataFrame, np.ndarray)) or 0 in X.shape[1:]:
            raise BadStructureError(
                "Expected a DataFrame or an array with columns for a classifier that was fitted elsewhere, got "
                f"{type(X).__name__}{' without any' if isinstance(X, (pd.DataFrame, np.ndarray)) else ''}."
            )
        like = X[:0]
        if isinstance(like, pd.DataFrame):
            facts = [_facts_of(schema, str(label).strip()) for label in like.columns]
            types = list(like.dtypes)
        else:
            n_columns = math.prod(like.shape[1:])
            declared: list[Facts] = list(schema.columns.values())
            facts = declared if len(declared) == n_columns else [None] * n_columns
            types = [like.dtype] * n_columns
        values = [_Values.of(*pair, schema.missing_values, is_text) for pair in zip(facts, types, strict=True)]
        pools = tuple(one.pool(dtype) for one, dtype in zip(values, types, strict=True))
        return cls(pools, _places(values), like)

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.places)

    def table(self, rows: NDArray[np.int64]) -> Any:
        """Return a fresh table of these rows."""
        cells = [pool.take(places) for pool, places in zip(self.pools, self.places[rows].T, strict=True)]
        if isinstance(self.like, pd.DataFrame):
            table = pd.concat([one.reset_index(drop=True) for one in cells], axis=1)
            table.columns = self.like.columns
            return table
        return np.array(cells, dtype=self.like.dtype).T.reshape(len(rows), *self.like.shape[1:])


Facts: TypeAlias = "Number | Category | Sensitive | Target | None"


def _facts_of(schema: Schema, name: str) -> Facts:
    if name in schema.columns:
        return schema.columns[name]
    entries: tuple[Sensitive | Target, ...] = (*schema.sensitive, schema.target)
    return next((one for one in entries if one.column == name), None)


@dataclass(frozen=True)
class _Values:
    """What a column may hold, as plain values: ordinary ones, missing ones, and others that the schema does not list.

    `dtype` decides what is left: a column of whole numbers has no missing cell, and a bit is never beyond its range.
    """

    ordinary: tuple[Any, ...]
    missing: tuple[Any, ...]
    beyond: tuple[Any, ...]

    @classmethod
    def of(cls, facts: Facts, dtype: Any, missing: Sequence[str], is_text: bool) -> "_Values":
        kind = _kind_of(dtype)
        if isinstance(dtype, pd.CategoricalDtype):
            return cls._of_categories(dtype, facts)
        if kind == "M":
            return cls(_DATES, (None,), ())
        if isinstance(facts, Number):
            low, high = facts.bounds
            numbers: tuple[float, ...] = (low, high, low / 2 + high / 2, *facts.edges)
        else:
            texts, numbers = _texts_and_cuts(facts)
            if not numbers:
                return cls._of_texts(texts, kind, dtype, missing)
            low, high = numbers[0], numbers[-1]
        span = max(high - low, 1.0)
        beyond = (low - span, high + span)
        if kind == "O" and is_text:
            spelled = tuple(tuple(map(canonical_text, some)) for some in (numbers, beyond))
            return cls(spelled[0], (math.nan,), (*spelled[1], "text"))
        ordinary, beyond = (tuple(_held(number, kind, dtype) for number in some) for some in (numbers, beyond))
        can_miss = kind in "fO" or not isinstance(dtype, np.dtype)
        kept = [tuple(dict.fromkeys(one for one in some if one is not None)) for some in (ordinary, beyond)]
        return cls(kept[0] or (0,), (math.nan,) if can_miss else (), kept[1])

    @classmethod
    def _of_categories(cls, dtype: pd.CategoricalDtype, facts: Facts) -> "_Values":
        """Return the categories of the type that the schema lists, and some that it does not."""
        texts = set() if isinstance(facts, Number) else set(_texts_and_cuts(facts)[0])
        listed = tuple(one for one in dtype.categories if canonical_text(one) in texts)
        others = tuple(one for one in dtype.categories if one not in listed)[:FEWEST_ROWS]
        return cls(listed or others or (None,), (None,), others)

    @classmethod
    def _of_texts(cls, texts: tuple[str, ...], kind: str, dtype: Any, missing: Sequence[str]) -> "_Values":
        if kind == "O":
            return cls(texts, (math.nan, *missing[:2]), ("a text that is not listed", ""))
        numbers = [_held(number_of(text), kind, dtype) for text in texts]
        listed = tuple(dict.fromkeys(one for one in numbers if one is not None)) or (0, 1)
        other = _held(float(max(listed)) + 1, kind, dtype)
        can_miss = kind == "f" or not isinstance(dtype, np.dtype)
        return cls(listed, (math.nan,) if can_miss else (), () if other is None or other in listed else (other,))

    def pool(self, dtype: Any) -> Any:
        """Return all values in the type of the column: ordinary ones, then missing ones, then those beyond."""
        values: Any = [*self.ordinary, *self.missing, *self.beyond]
        try:
            if isinstance(dtype, np.dtype):
                cells: Any = np.array(values, dtype="M8[s]" if dtype.kind == "M" else object).astype(dtype)
            else:
                cells = pd.array([None if pd.isna(one) else one for one in values], dtype=dtype)
        except (TypeError, ValueError, NotImplementedError, pa.ArrowException):  # a rare type, of lists for instance
            return pd.Series([], dtype=dtype).reindex(range(len(values)))
        return pd.Series(cells, dtype=dtype)


_DATES = ("1970-01-01", "2000-02-29", "2024-06-30")
_GENERIC = ("0", "1", "2", "a", "b")
"""Texts for columns that the schema does not know."""


def _texts_and_cuts(facts: Facts) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the texts of a column that is no number column, or the numbers around its cuts."""
    if isinstance(facts, Category):
        return facts.categories, ()
    if not isinstance(facts, (Sensitive, Target)):
        return _GENERIC, ()
    if facts.cuts:
        return (), (facts.cuts[0] - 1, *facts.cuts, facts.cuts[-1] + 1)
    names = facts.groups if isinstance(facts, Sensitive) else facts.classes
    return tuple(text for texts in facts.values.values() for text in texts) or names, ()


def _kind_of(dtype: Any) -> str:
    """Return the kind of a type: f, i, u or b for numbers, M for times, O for everything else, text above all."""
    plain = getattr(dtype, "numpy_dtype", dtype)
    return plain.kind if plain.kind in "fiubM" else "O"


def _held(number: float, kind: str, dtype: Any) -> Any:
    """Return the number as a column of this kind would hold it, None if it cannot."""
    if kind == "b":
        return bool(number) if number in (0, 1) else None
    if kind not in "iu":
        return None if math.isnan(number) else number
    limits = np.iinfo(dtype if isinstance(dtype, np.dtype) else dtype.numpy_dtype)
    return round(number) if limits.min <= number <= limits.max else None


def _places(values: Sequence[_Values]) -> NDArray[np.int64]:
    """Return which value each cell holds: columns cycle through their ordinary values in orders of their own."""
    rng = np.random.default_rng(0)
    n_rows = max([FEWEST_ROWS, *(len(one.ordinary) for one in values)])
    columns = [rng.permutation(np.arange(n_rows) % len(one.ordinary)) for one in values]
    ordinary = np.array(columns, dtype=np.int64).reshape(len(values), n_rows).T
    parts = [ordinary]
    for place, one in enumerate(values):
        n_others = len(one.missing) + len(one.beyond)
        part = ordinary[(place + np.arange(n_others)) % n_rows]  # a copy
        part[:, place] = len(one.ordinary) + np.arange(n_others)
        parts.append(part)
    return np.concatenate(parts)
