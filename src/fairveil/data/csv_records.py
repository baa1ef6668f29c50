"""Lines of a CSV file in, records out: a line is a record, always.

A general CSV reader lets a cell in quotes run over line breaks, so that one open quote can swallow the records
after it: one record would then decide what happens to others. Here the record of a line depends on that line
alone. Cells with line breaks are therefore not supported: each line of such a cell is taken for a record of
its own, and one whose quotes do not match up is malformed and contributes nothing.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache

__all__ = ["Record", "plain_columns", "records", "split_line"]

Record = list[str] | None  # None stands for a malformed line


@cache
def _cell(delimiter: str) -> re.Pattern[str]:
    end = re.escape(delimiter)
    return re.compile(rf'(?:"((?:[^"]++|"")*+)"|((?!")[^{end}]*+))({end}|\Z)')


def split_line(line: str, delimiter: str) -> Record:
    """Return the cells of one line, None if its quotes do not match up."""
    if '"' not in line:
        return line.split(delimiter)
    cells: list[str] = []
    place, has_more = 0, True
    while has_more:
        match = _cell(delimiter).match(line, place)
        if match is None:
            return None
        quoted, plain, ending = match.groups()
        cells.append(plain if quoted is None else quoted.replace('""', '"'))
        place, has_more = match.end(), bool(ending)
    return cells


def plain_columns(lines: list[str], delimiter: str, width: int) -> list[list[str]] | None:
    """Return the columns of lines that need no care, None if any needs it: the fast way to the same cells."""
    n_delimiters = width - 1
    if not n_delimiters or any(line.count(delimiter) != n_delimiters or '"' in line for line in lines):
        return None
    cells = delimiter.join(lines).split(delimiter) if lines else []
    return [cells[place::width] for place in range(width)]


def records(lines: Iterable[str], delimiter: str, width: int) -> Iterator[Record]:
    """Yield the cells of each line, filled up with empty cells to `width`; None for a malformed one.

    Blank lines are passed over. A line with more cells than `width`, and one with an open or misplaced quote,
    is malformed.
    """
    for line in lines:
        cells = split_line(line, delimiter)
        if cells is None or len(cells) > width:
            yield None
        elif delimiter in line or line.strip():
            yield cells + [""] * (width - len(cells))
