r"""CSV and Parquet files in, chunks of rows or encoded arrays out; structure is checked loudly, values never are.

Bad structure (no such file, no header, a missing or repeated column, a file that is no table) raises
`BadStructureError`. Bad values follow fixed rules silently. A table with a header and no rows is a table: it has
zero rows.

**CSV.** A line is a record, always. A general CSV reader lets a cell in quotes run over line breaks, so that one open
quote can swallow the records after it: one record would then decide what happens to others. Here:

* every cell is read as text, so that the type of a column never depends on its rows;
* cells with line breaks are not supported: each line of such a cell is taken for a record of its own;
* a byte that the encoding (UTF-8, unless the schema names another one) does not know is written `\xNN`; control
  characters stay in the cell;
* a line with too few cells is filled up with empty cells, blank lines are skipped;
* a line with too many cells, with quotes that do not match up, or of more than 16 MiB is malformed and contributes
  nothing.

A file that starts like gzip or zstd is unpacked block by block; one that unpacks to absurdly more
than it holds is refused.

In both formats a cell of more than a million characters (`MAX_CELL`) holds nothing.

**Parquet.** What a cell becomes follows from its Arrow type by the table in `arrow_columns`. A folder is the table of
its Parquet files, one after the other in the order of their names (`parquet_files`); each must have the columns.
"""

import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fairveil._reading import PARQUET_SUFFIXES, check_file, parquet_files
from fairveil._validation import check_number
from fairveil.data.arrow_columns import as_frame, is_supported
from fairveil.data.coded import SCHEMA_ONLY, Detail, Features
from fairveil.data.csv_records import columns_of_lines, read_lines, split_line
from fairveil.data.encoding import Encoder, columns_of, similar_column
from fairveil.data.files import (
    BLOCK_BYTES,
    DELIMITERS,
    ENCODINGS,
    UTF8,
    checked_delimiter,
    checked_encoding,
)
from fairveil.data.schema import Schema, Sensitive
from fairveil.errors import BadStructureError

CHUNK_ROWS = 65_536
MAX_HEADER_BYTES = 2**20
MOST_UNPACKED_BYTES = 2**28
MOST_EXPANSION = 100
"""A file that unpacks to more bytes, and to more than so many times its size, is no table of people."""

_PARQUET_MAGIC = b"PAR1"
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True, repr=False)  # rows are private: no print or log shows them
class EncodedTable:
    """The rows of a table that count, encoded: private, all of it.

    Attributes
    ----------
    X : CodedRows, or float32 array of shape (n_rows, n_features)
        The encoded features.
    y : int16 array of shape (n_rows,)
        Class numbers.
    groups : int16 array of shape (n_rows, n_sensitive)
        Group numbers in each sensitive column, -1 for none of its groups.
    persons : int64 array of shape (n_rows,) or None
        A number for each row's person, if the schema names an id column.
    """

    X: Features
    y: NDArray[np.int16]
    groups: NDArray[np.int16]
    persons: NDArray[np.int64] | None


@dataclass(frozen=True, repr=False)  # rows are private: no print or log shows them
class Chunk:
    """Some rows of a file, and where malformed lines stood among them.

    Attributes
    ----------
    frame : DataFrame
        The well-formed rows.
    is_malformed : tuple of bool
        One entry for each line read; empty where none is malformed.
    """

    frame: pd.DataFrame
    is_malformed: tuple[bool, ...] = ()

    @property
    def n_malformed(self) -> int:
        """The number of malformed lines: private."""
        return sum(self.is_malformed)

    @property
    def with_blanks(self) -> pd.DataFrame:
        """The rows with a row of empty cells for each malformed line, in the file's order."""
        if not self.n_malformed:
            return self.frame
        places = np.flatnonzero(~np.array(self.is_malformed))
        rows = np.full((len(self.is_malformed), self.frame.shape[1]), "", dtype=object)
        rows[places] = self.frame.to_numpy(dtype=object)
        return pd.DataFrame(rows, columns=self.frame.columns, dtype=object)


def load_encoded(
    path: str | Path,
    schema: Schema,
    sensitive: Sequence[str] = (),
    *,
    chunk_rows: int = CHUNK_ROWS,
    delimiter: str | None = None,
    encoding: str | None = None,
    detail: Detail = SCHEMA_ONLY,
) -> EncodedTable:
    """Return the rows of a file that count, encoded chunk by chunk; `Encoder.labels` says which count.

    Delimiter and encoding are those of the schema unless others are named; `detail` is that of the encoder.
    """
    entries = [schema.sensitive_named(name) for name in sensitive]
    encoder, parts = Encoder(schema, detail), [Growing() for _ in range(5)]
    kind = (delimiter or schema.file.delimiter, encoding or schema.file.encoding)
    for file in table_files(path):
        for chunk in read_chunks(file, columns_needed(schema, entries), chunk_rows, *kind):
            for part, array in zip(parts, encode_chunk(encoder, chunk, entries), strict=True):
                part.append(array)
    codes, numbers, y, groups, persons = (part.rows for part in parts)
    return EncodedTable(encoder.compact(codes, numbers), y, groups, persons if schema.id_column else None)


def encode_chunk(encoder: Encoder, chunk: Chunk, sensitive: Sequence[Sensitive]) -> tuple[NDArray[Any], ...]:
    """Return codes, numbers, labels, groups and persons of the rows of a chunk that count."""
    frame, names = chunk.frame, [encoder.schema.target.column, *(entry.column for entry in sensitive)]
    y, groups, persons, counts = encoder.labels(frame, columns_of(frame, names), sensitive)
    codes = encoder.codes(frame).astype(encoder.layout.code_type, copy=False)
    return tuple(array[counts] for array in (codes, encoder.numbers(frame), y, groups, persons))


class Growing:
    """An array that grows by rows where it is: the system moves its pages, so it never takes memory twice."""

    def __init__(self) -> None:
        self.rows: NDArray[Any] = np.empty(0)
        self._is_new = True

    def append(self, more: NDArray[Any]) -> None:
        """Add rows of one shape and type at the end."""
        if self._is_new:
            self.rows, self._is_new = np.array(more, order="C"), False
            return
        n_rows = len(self.rows)
        self.rows.resize((n_rows + len(more), *more.shape[1:]), refcheck=False)
        self.rows[n_rows:] = more


def table_files(path: str | Path) -> list[Path]:
    """Return the files of a table: the file itself, or the Parquet files of a folder."""
    return parquet_files(Path(path)) if os.path.isdir(path) else [Path(path)]


def read_table(
    path: str | Path,
    columns: Sequence[str] | None = None,
    *,
    chunk_rows: int = CHUNK_ROWS,
    delimiter: str = ",",
    encoding: str = UTF8,
    keep_malformed: bool = False,
) -> Iterator[pd.DataFrame]:
    """Return the rows of a CSV or Parquet file, or of a folder of Parquet files, in chunks, at least one (empty) chunk.

    Parameters
    ----------
    path : str or Path
        The file or folder; a Parquet file is known by its first bytes.
    columns : sequence of str, optional
        The columns to read, all by default.
    chunk_rows : int
        The most rows in a chunk; it never changes what is read.
    delimiter : str
        The character between the cells of a CSV file.
    encoding : str
        The encoding of a CSV file.
    keep_malformed : bool
        Keep a malformed CSV line as a row of empty cells, so that rows keep their places (for predictions).
    """
    chunks = read_chunks(path, columns, chunk_rows, delimiter, encoding)
    return (chunk.with_blanks if keep_malformed else chunk.frame for chunk in chunks)


def read_chunks(
    path: str | Path, columns: Sequence[str] | None, chunk_rows: int, delimiter: str = ",", encoding: str = UTF8
) -> Iterator[Chunk]:
    """Return the chunks of a file or folder, with its structure checked before the first one is read."""
    check_number("chunk_rows", chunk_rows, whole=True)
    delimiter = delimiter if len(delimiter) == 1 else checked_delimiter(delimiter)
    names = table_columns(path, delimiter, columns or (), encoding)
    path, wanted = Path(path), names if columns is None else list(columns)
    if not is_parquet(path):
        return _csv_chunks(path, wanted, chunk_rows, delimiter, encoding)
    files = parquet_files(path) if os.path.isdir(path) else [path]
    for file in files:
        _check_parquet(file, wanted, delimiter, encoding)
    return chain.from_iterable(_parquet_chunks(file, wanted, chunk_rows) for file in files)


def _check_parquet(path: Path, wanted: list[str], delimiter: str, encoding: str) -> None:
    """Refuse a Parquet file that lacks a column, or has one of a type that is not supported."""
    table_columns(path, delimiter, wanted, encoding)
    with _opened_parquet(path) as parquet:
        kinds = {field.name.strip(): field.type for field in parquet.schema_arrow}
    for name in wanted:
        if not is_supported(kinds[name]):
            raise BadStructureError(
                f'Expected plain values in column "{name}" of {path}, got the type {str(kinds[name])[:100]}; '
                "write it as text or numbers, or drop it."
            )


def table_columns(
    path: str | Path, delimiter: str = ",", wanted: Sequence[str] = (), encoding: str = UTF8
) -> list[str]:
    """Return the column names of a file, or of the first file of a folder, read from its header alone.

    A table that lacks a wanted column, or has one twice, is refused; of what was found, only such names are quoted.
    """
    path = Path(path)
    if os.path.isdir(path):
        return table_columns(parquet_files(path)[0], delimiter, wanted, encoding)
    check_file(path, "a CSV or Parquet file")
    try:
        with path.open("rb") as file:
            is_empty = not file.read(1)
    except OSError as error:
        raise BadStructureError(f"Expected a table that can be read at {path}; {error.strerror}.") from None
    if is_empty:
        raise BadStructureError(f"Expected a table with a header in {path}, got an empty file.")
    if is_parquet(path):
        with _opened_parquet(path) as parquet:
            names = list(parquet.schema_arrow.names)
    else:
        with open_text(path) as file:
            names = _read_header(file, path, delimiter, encoding)
    names, wanted = [name.strip() for name in names], list(dict.fromkeys(wanted))
    absent = [name for name in wanted if name not in names]
    repeated = [name for name, count in Counter(names).items() if count > 1 and name]
    named = [f'"{name}"' for name in repeated if name in wanted]
    if absent and not named:
        listed = ", ".join(f'"{name}"{similar_column(name, wanted, names)}' for name in absent[:5])
        more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
        marks = [mark for mark in ";\t|" if len(names) == 1 and {*names[0].split(mark)} & {*wanted}]
        hint = f"say --delimiter {marks[0]!r}" if marks else "compare them with its first line, which must name columns"
        raise BadStructureError(
            f"Expected the columns {listed}{more} in {path}, got a table without {len(absent)} of {len(wanted)} "
            f"columns that are needed; {hint}."
        )
    if repeated:
        which = named[0] if named else "a name"
        raise BadStructureError(f"Expected each column of {path} once, got {which} twice; rename one.")
    return names


def columns_needed(schema: Schema, sensitive: Sequence[Sensitive] = ()) -> list[str]:
    """Return every column of a file that a schema reads: features, target, groups, id and row rules."""
    extra = [schema.target.column, *(entry.column for entry in sensitive), schema.id_column]
    names = [*schema.columns, *extra, *(rule.column for rule in schema.where)]
    return list(dict.fromkeys(name for name in names if name is not None))


class _Unpacked(io.RawIOBase):
    """The unpacked bytes of a file, read block by block; damage and absurd sizes are one sentence."""

    def __init__(self, path: Path, kind: str) -> None:
        self._path, self._n_packed, self._n_bytes = path, path.stat().st_size, 0
        self._stream = pa.CompressedInputStream(pa.OSFile(str(path)), kind)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            block = self._stream.read(len(buffer))
        except (pa.ArrowException, OSError):
            raise BadStructureError(
                f"Expected a whole compressed table in {self._path}, got a damaged one; copy it again."
            ) from None
        self._n_bytes += len(block)
        if self._n_bytes > max(MOST_UNPACKED_BYTES, MOST_EXPANSION * self._n_packed):
            raise BadStructureError(
                f"Expected a compressed table in {self._path}, got one that unpacks to more than {MOST_EXPANSION} "
                "times its size; unpack it yourself if you trust it."
            )
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self._stream.close()
        super().close()


def open_text(path: str | Path) -> IO[bytes]:
    """Open a text table for reading bytes, unpacked if its first bytes are those of gzip or zstd."""
    file = Path(path).open("rb")  # noqa: SIM115 (the caller closes it)
    first = file.read(4)
    file.seek(0)
    kind = next((name for sign, name in _PACKED.items() if first.startswith(sign)), None)
    if kind is None:
        return file
    file.close()
    return io.BufferedReader(_Unpacked(Path(path), kind), BLOCK_BYTES)


def guess_delimiter(path: str | Path, wanted: Sequence[str], encoding: str = UTF8) -> str:
    """Return the delimiter by which the first line of a text table names most wanted columns, a comma by default.

    The names of columns are public. Of delimiters that find equally many, the one with most columns is taken.
    """
    with open_text(path) as file:
        line = file.readline(MAX_HEADER_BYTES).decode(checked_encoding(encoding), "backslashreplace")
    line = line.removeprefix("\ufeff").rstrip("\r\n")

    def fit(delimiter: str) -> tuple[int, int]:
        names = [name.strip() for name in split_line(line, delimiter) or ()]
        return sum(name in names for name in wanted), len(names)

    return max(reversed(DELIMITERS), key=fit)


def _read_header(file: IO[bytes], path: Path, delimiter: str, encoding: str) -> list[str]:
    if len(delimiter) != 1 or delimiter in '"\r\n':
        delimiter = checked_delimiter(delimiter)
    encoding = encoding if encoding in ENCODINGS else checked_encoding(encoding)
    raw = file.readline(MAX_HEADER_BYTES + 1)
    is_text = len(raw) <= MAX_HEADER_BYTES and not any(byte < 32 and byte not in b"\t\r\n" for byte in raw)
    try:
        line = raw.decode(encoding).removeprefix("\ufeff").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        line = "\0"
    if not is_text or any(ord(char) < 32 and char != "\t" for char in line):
        hint = "check where it came from"
        if is_text and encoding == UTF8:
            hint = "if it is text in another encoding, name it: --encoding cp1252 (Windows) or --encoding latin-1"
        elif raw.startswith(b"PK\x03\x04"):
            hint = "save a spreadsheet as CSV, unpack a zip file"
        elif raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            hint = "it seems to be UTF-16: save it as UTF-8"
        name = "UTF-8" if encoding == UTF8 else encoding
        raise BadStructureError(f"Expected a table as {name} text or Parquet in {path}, got something else; {hint}.")
    names = split_line(line, delimiter)
    if names is None:
        other = next((sign for sign in ";\t|" if sign in line and sign != delimiter), None)
        hint = "" if other is None else f", or name what stands between the cells: --delimiter {other!r}"
        raise BadStructureError(
            f"Expected column names in the first line of {path}; its quotes do not match up; mend them{hint}."
        )
    if not any(name.strip() for name in names):
        raise BadStructureError(f"Expected column names in the first line of {path}, got an empty line.")
    return names


def _csv_chunks(path: Path, wanted: list[str], chunk_rows: int, delimiter: str, encoding: str) -> Iterator[Chunk]:
    with open_text(path) as file:
        names = [name.strip() for name in _read_header(file, path, delimiter, encoding)]
        places = [names.index(name) for name in wanted]
        lines = read_lines(file, encoding)
        blocks = iter(lambda: list(islice(lines, chunk_rows)), [])
        for block in chain([next(blocks, [])], blocks):
            arrays, is_malformed = columns_of_lines(block, places, delimiter, len(names))
            yield Chunk(as_frame(arrays, wanted), is_malformed)


def is_parquet(path: str | Path) -> bool:
    """Say whether a path is that of a folder, or of a file that starts like Parquet; what is no file is refused."""
    path = Path(path)
    if os.path.isdir(path):
        return True
    check_file(path, "a CSV or Parquet file")
    with path.open("rb") as file:
        is_found = file.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC
    if not is_found and path.suffix in PARQUET_SUFFIXES:
        raise BadStructureError(f"Expected a Parquet file in {path}, got something else; check where it came from.")
    return is_found


def _opened_parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, pre_buffer=False)  # else the whole file is kept in memory while it is read
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise _damaged(path) from None


def _damaged(path: Path) -> BadStructureError:
    return BadStructureError(f"Expected a whole Parquet file in {path}, got a damaged one; copy it again.")


def _parquet_chunks(path: Path, wanted: list[str], chunk_rows: int) -> Iterator[Chunk]:
    with _opened_parquet(path) as file:
        raw_names = {name.strip(): name for name in file.schema_arrow.names}
        raw = [raw_names[name] for name in wanted]
        if not file.metadata.num_rows:
            yield Chunk(as_frame([pa.nulls(0, file.schema_arrow.field(name).type) for name in raw], wanted))
        n_left = file.metadata.num_rows
        try:
            for batch in file.iter_batches(batch_size=chunk_rows, columns=raw):
                n_left -= len(batch)
                yield Chunk(as_frame([batch.column(name) for name in raw], wanted))
        except MemoryError:  # pyarrow's own is also an ArrowException
            raise
        except (pa.ArrowException, OSError):
            raise _damaged(path) from None
        if n_left:  # the footer promises more or fewer rows than there are
            raise _damaged(path)
