"""A line is a record: well-formed lines are read as the standard says, and no line touches another."""

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from fairveil.data.readers import Record, plain_columns, records, split_line

CELL = st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs",)), max_size=6)


def read(text: str, width: int, delimiter: str = ",") -> list[Record]:
    return list(records(text.split("\n"), delimiter, width))


@given(st.lists(st.lists(CELL, min_size=3, max_size=3), max_size=6), st.sampled_from([",", ";", "\t"]))
def test_what_a_standard_writer_writes_is_read_back(rows: list[list[str]], delimiter: str) -> None:
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    assert read(buffer.getvalue(), 3, delimiter) == rows


@given(st.lists(st.text("ab ,\"'x1", max_size=8), max_size=8), st.integers(2, 3))
def test_the_fast_path_gives_the_same_cells(lines: list[str], width: int) -> None:
    columns = plain_columns(lines, ",", width)
    if columns is not None:
        assert [list(row) for row in zip(*columns, strict=True)] == list(records(lines, ",", width))


@given(st.lists(st.text('ab", \r\t\0', max_size=8), max_size=8), st.integers(1, 3))
def test_the_record_of_a_line_depends_on_that_line_alone(lines: list[str], width: int) -> None:
    alone = [record for line in lines for record in records([line], ",", width)]
    assert list(records(lines, ",", width)) == alone


def test_an_open_quote_swallows_no_other_record() -> None:
    rows = [f"p{place},a,yes" for place in range(998)]
    for lines in (['q 10",b,no', *rows, '"x'], ['"x', *rows, 'q 10",b,no']):
        found = list(records(lines, ",", 3))
        assert found.count(None) == 1
        assert [record for record in found if record] == [line.split(",") for line in lines if not line.startswith('"')]


def test_short_lines_are_filled_up_and_long_ones_contribute_nothing() -> None:
    assert read("1\n1,2\n1,2,3\n,\n\n  \n", 2) == [["1", ""], ["1", "2"], None, ["", ""]]


def test_an_open_quote_spoils_its_own_line_only() -> None:
    assert read('1,"open\n2,b\n3,c', 2) == [None, ["2", "b"], ["3", "c"]]
    assert read('1,"a"b\n2,c', 2) == [None, ["2", "c"]]
    assert read('1,"open\n2,"fine"\n3,c', 2) == [None, ["2", "fine"], ["3", "c"]]


def test_a_cell_does_not_run_over_lines() -> None:
    assert read('1,"two\nlines, one ""cell"""\n2,b', 2) == [None, ["lines", ' one ""cell"""'], ["2", "b"]]


def test_a_quote_inside_a_plain_cell_is_a_character() -> None:
    assert split_line('5" pipe,x', ",") == ['5" pipe', "x"]


def test_a_very_long_cell_is_a_cell() -> None:
    cell = "z" * 10**6
    assert read(f'"{cell}",1', 2) == [[cell, "1"]]
