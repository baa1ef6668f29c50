r"""Files in, chunks of rows or encoded arrays out; structure is checked loudly, values never are.

Bad structure (no such file, no header, a missing or repeated column, a file that is no table) raises
`BadStructure`. Bad values follow fixed rules and say nothing, in Parquet files by the type of the column
(`arrow_columns`), in CSV files these:

* every cell is read as text, so that the type of a column never depends on its rows;
* a line is a record, also inside quotes: cells with line breaks are not supported (`csv_records`);
* a byte that is not UTF-8 is written `\xNN`; control characters stay in the cell;
* a line with too few cells is filled up with empty cells, blank lines are passed over;
* a line with too many cells or with quotes that do not match up contributes nothing.

A table with a header and no rows is a table: it gives zero rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairveil.data.encoding import Encoder, columns_of
from fairveil.data.facts import Sensitive
from fairveil.data.schema import Schema
from fairveil.data.tables import CHUNK_ROWS, read_chunks, table_columns

__all__ = ["EncodedTable", "columns_needed", "load_encoded", "read_table", "table_columns"]


@dataclass(frozen=True, repr=False)  # rows are private: no print or log shows them
class EncodedTable:
    """The rows of a table that count, encoded: private, all of it.

    Attributes
    ----------
    X : float32 array (n, features)
        The encoded features.
    y : int16 array (n,)
        Class numbers.
    groups : int16 array (n, sensitive columns)
        Group numbers in each sensitive column, -1 for none of its groups.
    persons : int64 array (n,) or None
        A number for each row's person, if the schema names an id column.
    """

    X: NDArray[np.float32]
    y: NDArray[np.int16]
    groups: NDArray[np.int16]
    persons: NDArray[np.int64] | None


@dataclass(frozen=True, repr=False)
class _Piece:
    codes: NDArray[np.uint16]
    numbers: NDArray[np.float32]
    y: NDArray[np.int16]
    groups: NDArray[np.int16]
    persons: NDArray[np.int64]


def read_table(
    path: str | Path,
    columns: Sequence[str] | None = None,
    *,
    chunk_rows: int = CHUNK_ROWS,
    delimiter: str = ",",
    keep_malformed: bool = False,
) -> Iterator[pd.DataFrame]:
    """Return the rows of a CSV or Parquet file in chunks, at least one (empty) chunk.

    Parameters
    ----------
    path : str or Path
        The file; a Parquet file is known by its first bytes.
    columns : sequence of str, optional
        The columns to read, all by default.
    chunk_rows : int
        The most rows in a chunk; it never changes what is read.
    delimiter : str
        The character between the cells of a CSV file.
    keep_malformed : bool
        Keep a malformed CSV line as a row of empty cells, so that rows keep their places (for predictions).
    """
    chunks = read_chunks(path, columns, chunk_rows, delimiter)
    return (chunk.with_blanks if keep_malformed else chunk.frame for chunk in chunks)


def columns_needed(schema: Schema, sensitive: Sequence[Sensitive] = ()) -> list[str]:
    """Return every column of a file that a schema reads: features, target, groups, id and row rules."""
    extra = [schema.target.column, *(entry.column for entry in sensitive), schema.id_column]
    names = [*schema.columns, *extra, *(rule.column for rule in schema.where)]
    return list(dict.fromkeys(name for name in names if name is not None))


def load_encoded(
    path: str | Path,
    schema: Schema,
    sensitive: Sequence[str] = (),
    *,
    chunk_rows: int = CHUNK_ROWS,
    delimiter: str = ",",
) -> EncodedTable:
    """Return the rows of a file that count, encoded chunk by chunk.

    A row is left out if it fails a row rule, if its target is to be ignored, or if it lacks a person's id
    where the schema names an id column.
    """
    entries = [schema.sensitive_named(name) for name in sensitive]
    encoder = Encoder(schema)
    chunks = read_table(path, columns_needed(schema, entries), chunk_rows=chunk_rows, delimiter=delimiter)
    pieces = [_piece(encoder, chunk, entries) for chunk in chunks]
    codes = np.concatenate([piece.codes for piece in pieces])
    numbers = np.concatenate([piece.numbers for piece in pieces])
    return EncodedTable(
        X=encoder.expand(codes, numbers),
        y=np.concatenate([piece.y for piece in pieces]),
        groups=np.concatenate([piece.groups for piece in pieces]),
        persons=np.concatenate([piece.persons for piece in pieces]) if schema.id_column else None,
    )


def _piece(encoder: Encoder, frame: pd.DataFrame, entries: Sequence[Sensitive]) -> _Piece:
    schema = encoder.schema
    y = encoder.targets(_column(frame, schema.target.column))
    groups = np.empty((len(frame), len(entries)), dtype=np.int16)
    for index, entry in enumerate(entries):
        groups[:, index] = encoder.groups(_column(frame, entry.column), entry)
    persons = np.zeros(len(frame), dtype=np.int64)
    if schema.id_column:
        persons = encoder.persons(_column(frame, schema.id_column))
    kept = encoder.keep(frame) & (y >= 0) & (persons >= 0)
    codes, numbers = encoder.codes(frame), encoder.numbers(frame)
    return _Piece(codes[kept], numbers[kept], y[kept], groups[kept], persons[kept])


def _column(frame: pd.DataFrame, name: str) -> pd.Series:
    return columns_of(frame, [name])[0]
