"""A CSV or Parquet file in, its header and its rows in chunks out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fairveil._validate import check_integer
from fairveil.data.arrow_columns import as_frame, is_supported, no_rows
from fairveil.data.csv_records import plain_columns, records, split_line
from fairveil.data.schema_errors import close_match
from fairveil.errors import BadStructure, InvalidParameter

__all__ = ["CHUNK_ROWS", "Chunk", "check_present", "read_chunks", "table_columns"]

CHUNK_ROWS = 65_536
MAX_HEADER_BYTES = 2**20
_PARQUET_MAGIC = b"PAR1"


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


def table_columns(path: str | Path, delimiter: str = ",") -> list[str]:
    """Return the column names of a file, read from its header alone."""
    path = _readable(path)
    names = _parquet_names(path) if _is_parquet(path) else _csv_names(path, delimiter)
    return [name.strip() for name in names]


def read_chunks(
    path: str | Path, columns: Sequence[str] | None, chunk_rows: int, delimiter: str
) -> Iterator[Chunk]:
    """Return the chunks of a file, with its structure checked before the first one is asked for."""
    check_integer("chunk_rows", chunk_rows)
    path, names = _readable(path), table_columns(path, delimiter)
    wanted = names if columns is None else list(columns)
    check_present(path, wanted, names)
    if _is_parquet(path):
        _check_types(path, wanted)
        return _parquet_chunks(path, wanted, chunk_rows)
    return _csv_chunks(path, wanted, chunk_rows, delimiter)


def _readable(path: str | Path) -> Path:
    path = Path(path)
    if path.is_dir():
        raise BadStructure(f"Expected a CSV or Parquet file, got the folder {path}; name a file in it.")
    try:
        with path.open("rb") as file:
            is_empty = not file.read(1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadStructure(f"Expected a readable table at {path}; {reason}.") from None
    if is_empty:
        raise BadStructure(f"Expected a table with a header in {path}, got an empty file.")
    return path


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        is_parquet = file.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC
    if path.suffix in (".parquet", ".pq") and not is_parquet:
        raise BadStructure(
            f"Expected a Parquet file in {path}, got something else; check where it came from."
        )
    return is_parquet


def _check_repeats(path: Path, names: list[str]) -> None:
    repeated = [name for name, count in Counter(name.strip() for name in names).items() if count > 1 and name]
    if repeated:
        raise BadStructure(f'Expected each column of {path} once, got "{repeated[0]}" twice; rename one.')


def check_present(path: str | Path, wanted: Sequence[str], found: list[str]) -> None:
    """Raise `BadStructure` with a hint unless every wanted column is among those found."""
    absent = [name for name in wanted if name not in found]
    if not absent:
        return
    listed = ", ".join(found[:20]) + (", ..." if len(found) > 20 else "")
    names = ", ".join(f'"{name}"{close_match(name, found)}' for name in absent[:5])
    more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
    raise BadStructure(
        f"Expected the columns {names}{more} in {path}, which has: {listed[:500]}{_other_delimiter(found)}."
    )


def _other_delimiter(found: list[str]) -> str:
    """Return a hint if the header is one cell that another delimiter would split."""
    marks = [mark for mark in (";", "\t", "|") if len(found) == 1 and mark in found[0]]
    return f"; its cells seem to be separated by {marks[0]!r}: say --delimiter {marks[0]!r}" if marks else ""


def _csv_names(path: Path, delimiter: str) -> list[str]:
    with path.open("rb") as file:
        return _header(file, path, delimiter)


def _header(file: BinaryIO, path: Path, delimiter: str) -> list[str]:
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise InvalidParameter(
            f"Expected delimiter to be one character other than a quote, got {delimiter!r}."
        )
    line = _header_text(file.readline(MAX_HEADER_BYTES + 1), path)
    names = split_line(line, delimiter)
    if names is None:
        other = next((sign for sign in ";\t|" if sign in line and sign != delimiter), None)
        hint = "" if other is None else f", or name what stands between the cells: --delimiter {other!r}"
        raise BadStructure(
            f"Expected column names in the first line of {path}; its quotes do not match up; mend them{hint}."
        )
    if not any(name.strip() for name in names):
        raise BadStructure(f"Expected column names in the first line of {path}, got an empty line.")
    _check_repeats(path, names)
    return names


def _header_text(raw: bytes, path: Path) -> str:
    try:
        line = _line(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        line = "\0"
    if len(raw) > MAX_HEADER_BYTES or any(ord(char) < 32 and char != "\t" for char in line):
        raise BadStructure(f"Expected a table as UTF-8 text or Parquet in {path}, got something else.")
    return line


def _line(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")


def _csv_chunks(path: Path, wanted: list[str], chunk_rows: int, delimiter: str) -> Iterator[Chunk]:
    with path.open("rb") as file:
        names = [name.strip() for name in _header(file, path, delimiter)]
        places = {name: names.index(name) for name in wanted}
        lines = (_line(raw.decode("utf-8", "backslashreplace")) for raw in file)
        blocks = iter(lambda: list(islice(lines, chunk_rows)), [])
        yield _csv_chunk(next(blocks, []), places, delimiter, len(names))
        for block in blocks:
            yield _csv_chunk(block, places, delimiter, len(names))


def _csv_chunk(lines: list[str], places: dict[str, int], delimiter: str, width: int) -> Chunk:
    columns = plain_columns(lines, delimiter, width)
    if columns is not None:
        return Chunk(_text_frame({name: columns[place] for name, place in places.items()}))
    found = list(records(lines, delimiter, width))
    rows = [cells for cells in found if cells is not None]
    frame = _text_frame({name: [cells[place] for cells in rows] for name, place in places.items()})
    return Chunk(frame, tuple(cells is None for cells in found))


def _text_frame(columns: dict[str, list[str]]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in columns.items()})


def _parquet_file(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError):
        raise _damaged(path) from None


def _damaged(path: Path) -> BadStructure:
    return BadStructure(f"Expected a whole Parquet file in {path}, got a damaged one; copy it again.")


def _parquet_schema(path: Path) -> pa.Schema:
    with _parquet_file(path) as file:
        return file.schema_arrow


def _parquet_names(path: Path) -> list[str]:
    try:
        names = list(_parquet_schema(path).names)
    except UnicodeDecodeError:
        raise _damaged(path) from None
    _check_repeats(path, names)
    return names


def _check_types(path: Path, wanted: list[str]) -> None:
    for field in _parquet_schema(path):
        name = field.name.strip()
        if name in wanted and not is_supported(field.type):
            raise BadStructure(
                f'Expected plain values in column "{name}" of {path}, got the type {str(field.type)[:100]}; '
                "write it as text or numbers, or drop it."
            )


def _parquet_chunks(path: Path, wanted: list[str], chunk_rows: int) -> Iterator[Chunk]:
    with _parquet_file(path) as file:
        raw_names = {name.strip(): name for name in file.schema_arrow.names}
        raw = [raw_names[name] for name in wanted]
        if not file.metadata.num_rows:
            yield Chunk(as_frame(no_rows(file.schema_arrow, raw), wanted))
        try:
            for batch in file.iter_batches(batch_size=chunk_rows, columns=raw):
                yield Chunk(as_frame([batch.column(name) for name in raw], wanted))
        except (pa.ArrowException, OSError):
            raise _damaged(path) from None
