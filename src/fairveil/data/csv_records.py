r"""Lines of a text table in, columns of cells out: a line is a record, and no line touches another.

Most lines have as many cells as the header, and quotes around whole cells only; Arrow splits them, all at once. The
others are read one by one by the rules in `readers`. Which way a line is read depends on that line alone, and both ways
give the same cells.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import IO

import pyarrow as pa
import pyarrow.csv as pacsv

from fairveil.data.files import DELIMITERS, UTF8

MAX_LINE_BYTES = 2**24
"""A longer line of a CSV file is malformed."""

MAX_BLOCK_BYTES = 2**30
"""Arrow splits at most 2 GiB at once."""

Record = list[str] | None
"""The cells of a line, None for a malformed line."""

_OPEN_QUOTE = b'"'
"""A malformed line."""


def read_lines(file: IO[bytes], encoding: str) -> Iterator[bytes]:
    r"""Yield the lines of a file in UTF-8, without their ends; one that is too long is a malformed one.

    The bytes of a file in UTF-8 stay as they are. A byte that another encoding does not know is written `\xNN`.
    """
    while raw := file.readline(MAX_LINE_BYTES):
        if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
            while raw and not raw.endswith(b"\n"):
                raw = file.readline(MAX_LINE_BYTES)
            raw = _OPEN_QUOTE
        line = raw if encoding == UTF8 else raw.decode(encoding, "backslashreplace").encode(UTF8)
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def columns_of_lines(
    lines: Sequence[bytes], places: Sequence[int], delimiter: str, width: int
) -> tuple[list[pa.Array], tuple[bool, ...]]:
    """Return the cells at some places of all well-formed lines, and which lines are malformed (empty if none is).

    Parameters
    ----------
    lines : sequence of bytes
        Lines in UTF-8 without their ends; blank ones are skipped.
    places : sequence of int
        Which columns to return, each as an array of binary cells.
    delimiter : str
        The character between cells.
    width : int
        The number of cells of the header.
    """
    mark, n_marks = delimiter.encode(UTF8), width - 1
    match = _plain_line(mark, n_marks).fullmatch
    is_plain = [
        match(line) is not None if b'"' in line else line.count(mark) == n_marks and b"\r" not in line for line in lines
    ]
    # a line without any delimiter may be blank; other delimiters may be part of how a byte is written that is not UTF-8
    if not n_marks or delimiter not in (*DELIMITERS, " "):
        is_plain = [False] * len(lines)
    if all(is_plain):
        return _split(lines, places, mark), ()
    plain = [line for line, is_fast in zip(lines, is_plain, strict=True) if is_fast]
    rows: list[list[str]] = []
    order: list[int] = []  # of the rows of the plain lines, followed by those of the others
    is_malformed: list[bool] = []
    n_plain = 0
    for line, is_fast in zip(lines, is_plain, strict=True):
        if is_fast:
            order.append(n_plain)
            is_malformed.append(False)
            n_plain += 1
            continue
        for cells in records([line.decode(UTF8, "backslashreplace")], delimiter, width):
            is_malformed.append(cells is None)
            if cells is not None:
                order.append(len(plain) + len(rows))
                rows.append([cells[place] for place in places])
    fast = _split(plain, places, mark)
    slow = [pa.array([cells[index] for cells in rows], pa.large_binary()) for index in range(len(places))]
    indices = pa.array(order, pa.int64())
    arrays = [pa.concat_arrays(pair).take(indices) for pair in zip(fast, slow, strict=True)]
    return arrays, tuple(is_malformed) if any(is_malformed) else ()


def _split(lines: Sequence[bytes], places: Sequence[int], mark: bytes) -> list[pa.Array]:
    """Return the cells at some places of lines that have the same number of cells, and no other quotes than Arrow's."""
    kind = pa.large_binary()
    if not lines or not places:
        return [pa.array([], kind) for _ in places]
    # Arrow drops a byte order mark at the start of a block, but here it belongs to a cell: a blank line protects it.
    block = b"\n".join([b"", *lines, b""])
    if len(block) > MAX_BLOCK_BYTES and len(lines) > 1:
        half = len(lines) // 2
        halves = (_split(some, places, mark) for some in (lines[:half], lines[half:]))
        return [pa.concat_arrays(pair) for pair in zip(*halves, strict=True)]
    names = [f"f{place}" for place in places]
    table = pacsv.read_csv(
        pa.BufferReader(block),
        read_options=pacsv.ReadOptions(use_threads=False, block_size=len(block) + 1, autogenerate_column_names=True),
        parse_options=pacsv.ParseOptions(
            delimiter=mark.decode(), quote_char='"', double_quote=False, escape_char=False, newlines_in_values=False
        ),
        convert_options=pacsv.ConvertOptions(
            check_utf8=False, include_columns=names, column_types=dict.fromkeys(names, kind)
        ),
    )
    return [table[name].combine_chunks() for name in names]


def records(lines: Iterable[str], delimiter: str, width: int) -> Iterator[Record]:
    """Yield the cells of each line, filled up with empty cells to `width`; None for a malformed one.

    Blank lines are skipped. A line with more cells than `width`, and one with an open or misplaced quote,
    is malformed.
    """
    for line in lines:
        cells = split_line(line, delimiter)
        if cells is None or len(cells) > width:
            yield None
        elif delimiter in line or line.strip():
            yield cells + [""] * (width - len(cells))


def split_line(line: str, delimiter: str) -> Record:
    """Return the cells of one line, None if its quotes do not match up."""
    if '"' not in line:
        return line.split(delimiter)
    cells: list[str] = []
    place, has_more = 0, True
    while has_more:
        match = _cell_pattern(delimiter).match(line, place)
        if match is None:
            return None
        quoted, plain, ending = match.groups()
        cells.append(plain if quoted is None else quoted.replace('""', '"'))
        place, has_more = match.end(), bool(ending)
    return cells


@cache
def _plain_line(mark: bytes, n_marks: int) -> re.Pattern[bytes]:
    """Return the pattern of a line of which each cell has no quotes, or one before and one after it."""
    end = re.escape(mark)
    cell = rb'(?:"[^"\r]*+"|[^"\r' + end + rb"]*+)"
    return re.compile(cell + rb"(?:" + end + cell + rb"){%d}" % n_marks)


@cache
def _cell_pattern(delimiter: str) -> re.Pattern[str]:
    end, blanks = re.escape(delimiter), "" if delimiter in " \t" else "[ \t]*+"
    return re.compile(rf'(?:{blanks}"((?:[^"]++|"")*+)"{blanks}|((?!")[^{end}]*+))({end}|\Z)')
