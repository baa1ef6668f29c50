"""A line is a record: well-formed lines are read as the standard says, and no line touches another."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairveil.data import csv_records
from fairveil.data.arrow_columns import as_frame
from fairveil.data.csv_records import Record, columns_of_lines, records, split_line

CELL = st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs",)), max_size=6)


def read(text: str, width: int, delimiter: str = ",") -> list[Record]:
    return list(records(text.split("\n"), delimiter, width))


@given(st.lists(st.lists(CELL, min_size=3, max_size=3), max_size=6), st.sampled_from([",", ";", "\t"]))
def test_what_a_standard_writer_writes_is_read_back(rows: list[list[str]], delimiter: str) -> None:
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    assert read(buffer.getvalue(), 3, delimiter) == rows


PIECES = (
    b"a", b"1", b" ", b",", b",", b",", b'"', b"'", b"\\", b"\r", b"\0", b"\xef\xbb\xbf", b"\xff", b"\xe2\x82",
    b"\xe2\x82\xac",
)  # fmt: skip
LINE = st.lists(st.sampled_from(PIECES), max_size=9).map(b"".join)


@given(st.lists(LINE, max_size=12), st.integers(1, 4), st.sampled_from([",", " ", "\0", "\\", "x", "\u20ac"]))
def test_the_fast_path_gives_the_same_cells(lines: list[bytes], width: int, delimiter: str) -> None:
    expected = list(records([line.decode("utf-8", "backslashreplace") for line in lines], delimiter, width))
    arrays, is_malformed = columns_of_lines(lines, range(width), delimiter, width)
    cells = as_frame(arrays, [f"c{place}" for place in range(width)]).to_numpy(dtype=object).tolist()
    assert cells == [record for record in expected if record is not None]
    assert is_malformed == (tuple(record is None for record in expected) if None in expected else ())


def test_blocks_that_are_too_large_for_arrow_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{place},{'x' * (place % 7)},z".encode() for place in range(100)]
    whole, _ = columns_of_lines(lines, [0, 1], ",", 3)
    monkeypatch.setattr(csv_records, "MAX_BLOCK_BYTES", 40)
    parts, _ = columns_of_lines(lines, [0, 1], ",", 3)
    assert parts == whole and whole[0].to_pylist() == [str(place).encode() for place in range(100)]


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
