"""Lines of a CSV file in, records out; what is malformed in one record stays in that record.

A general CSV reader lets one open quote swallow the rest of the file: one record would then decide what
happens to all others. Here a line is a record by itself. Only a quoted cell may run over several lines, and
only if its quote closes in the next `MAX_LINES` lines and the record then has as many cells as the header.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice

__all__ = ["MAX_LINES", "Lines", "Record", "plain_columns", "records", "split_line"]

MAX_LINES = 1000
Record = list[str] | None  # None stands for a malformed line

_OPEN_CELL = re.compile(r'"((?:[^"]++|"")*+)\Z')


@cache
def _closed_cell(delimiter: str) -> re.Pattern[str]:
    end = re.escape(delimiter)
    return re.compile(rf'(?:"((?:[^"]++|"")*+)"|((?!")[^{end}]*+))({end}|\Z)')


def split_line(line: str, delimiter: str) -> Record:
    """Return the cells of one line, None if its quotes do not match up."""
    cells, is_open = _scan(line, delimiter)
    return None if is_open else cells


def _scan(line: str, delimiter: str) -> tuple[Record, bool]:
    """Return the cells (None for a misplaced quote) and whether the last one's quote is still open."""
    if '"' not in line:
        return line.split(delimiter), False
    cells: list[str] = []
    place, has_more = 0, True
    while has_more:
        match = _closed_cell(delimiter).match(line, place)
        if match is None:
            opened = _OPEN_CELL.match(line, place)
            return (None, False) if opened is None else ([*cells, _unquoted(opened[1])], True)
        quoted, plain, ending = match.groups()
        cells.append(plain if quoted is None else _unquoted(quoted))
        place, has_more = match.end(), bool(ending)
    return cells, False


def _unquoted(text: str) -> str:
    return text.replace('""', '"')


class Lines:
    """The lines of a file, which can be put back after a look ahead that did not help."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._returned: deque[str] = deque()

    @property
    def is_at_end(self) -> bool:
        """Whether no line is left."""
        line = self.next()
        self.put_back([] if line is None else [line])
        return line is None

    def next(self) -> str | None:
        """Return the next line, None at the end."""
        return self._returned.popleft() if self._returned else next(self._lines, None)

    def take(self, n_lines: int) -> list[str]:
        """Return the next lines, fewer at the end."""
        returned = [self._returned.popleft() for _ in range(min(n_lines, len(self._returned)))]
        return [*returned, *islice(self._lines, n_lines - len(returned))]

    def put_back(self, lines: list[str]) -> None:
        """Make these the next lines again."""
        self._returned.extendleft(reversed(lines))


def plain_columns(lines: list[str], delimiter: str, width: int) -> list[list[str]] | None:
    """Return the columns of lines that need no care, None if any needs it: the fast way to the same cells."""
    n_delimiters = width - 1
    if not n_delimiters or any(line.count(delimiter) != n_delimiters or '"' in line for line in lines):
        return None
    cells = delimiter.join(lines).split(delimiter) if lines else []
    return [cells[place::width] for place in range(width)]


def records(lines: Lines, delimiter: str, width: int) -> Iterator[Record]:
    """Yield the cells of each record, filled up with empty cells to `width`; None for a malformed one.

    Blank lines are passed over. A line with more cells than `width`, and one with an open or misplaced quote,
    is malformed.
    """
    while (line := lines.next()) is not None:
        cells, is_open = _scan(line, delimiter)
        if cells is None or len(cells) > width:
            yield None
        elif is_open:
            yield _continued(cells, lines, delimiter, width)
        elif delimiter in line or line.strip():
            yield cells + [""] * (width - len(cells))


def _continued(cells: list[str], lines: Lines, delimiter: str, width: int) -> Record:
    taken: list[str] = []
    while len(taken) < MAX_LINES and (line := lines.next()) is not None:
        taken.append(line)
        # A quote put in front makes the line's first cell the continuation of the open one.
        more, is_open = _scan(f'"{line}', delimiter)
        if more is None:
            break
        cells = [*cells[:-1], f"{cells[-1]}\n{more[0]}", *more[1:]]
        if not is_open and len(cells) == width:
            return cells
        if not is_open:
            break
    lines.put_back(taken)
    return None
