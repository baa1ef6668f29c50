"""Well-formed CSV is read as the standard says; what is malformed stays in its own record."""

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from fairveil.data.csv_records import MAX_LINES, Lines, Record, plain_columns, records, split_line

CELL = st.text(st.characters(exclude_characters="\r", exclude_categories=("Cs",)), max_size=6)


def read(text: str, width: int, delimiter: str = ",") -> list[Record]:
    return list(records(Lines(text.split("\n")), delimiter, width))


@given(st.lists(st.lists(CELL, min_size=3, max_size=3), max_size=6), st.sampled_from([",", ";", "\t"]))
def test_what_a_standard_writer_writes_is_read_back(rows: list[list[str]], delimiter: str) -> None:
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    assert read(buffer.getvalue(), 3, delimiter) == rows


@given(st.lists(st.text("ab ,\"'x1", max_size=8), max_size=8), st.integers(2, 3))
def test_the_fast_way_gives_the_same_cells(lines: list[str], width: int) -> None:
    columns = plain_columns(lines, ",", width)
    if columns is not None:
        assert [list(row) for row in zip(*columns, strict=True)] == list(records(Lines(lines), ",", width))


@given(st.text('a",\n', max_size=20), st.integers(0, 3))
def test_a_record_without_quotes_survives_any_neighbour(noise: str, place: int) -> None:
    # A stray quote may pair with another stray quote, never with a clean line.
    clean = [f"clean{index},{index}" for index in range(4)]
    lines = [*clean[:place], noise.replace("\n", ""), *clean[place:]]
    kept = [record for record in records(Lines(lines), ",", 2) if record and record[0].startswith("clean")]
    assert kept == [line.split(",") for line in clean]


def test_short_lines_are_filled_up_and_long_ones_contribute_nothing() -> None:
    assert read("1\n1,2\n1,2,3\n,\n\n  \n", 2) == [["1", ""], ["1", "2"], None, ["", ""]]


def test_an_open_quote_spoils_its_own_line_only() -> None:
    assert read('1,"open\n2,b\n3,c', 2) == [None, ["2", "b"], ["3", "c"]]
    assert read('1,"a"b\n2,c', 2) == [None, ["2", "c"]]
    assert read('1,"open\n2,"fine"\n3,c', 2) == [None, ["2", "fine"], ["3", "c"]]


def test_a_quoted_cell_may_hold_lines() -> None:
    assert read('1,"two\nlines, one ""cell"""\n2,b', 2) == [["1", 'two\nlines, one "cell"'], ["2", "b"]]
    assert read('1,"two\nlines",3,4\n2,b', 3) == [None, ['lines"', "3", "4"], ["2", "b", ""]]


def test_a_quote_that_stays_open_too_long_is_given_up() -> None:
    long_cell = "\n".join(["x"] * (MAX_LINES + 2))
    result = read(f'1,"{long_cell}"\n2,b', 2)
    assert result[0] is None
    assert result[-1] == ["2", "b"]
    short_cell = "\n".join(["x"] * (MAX_LINES + 1))
    assert read(f'1,"{short_cell}"\n2,b', 2) == [["1", short_cell], ["2", "b"]]


def test_a_quote_inside_a_plain_cell_is_a_character() -> None:
    assert split_line('5" pipe,x', ",") == ['5" pipe', "x"]


def test_a_very_long_cell_is_a_cell() -> None:
    cell = "z" * 10**6
    assert read(f'"{cell}",1', 2) == [[cell, "1"]]


def test_lines_can_be_put_back() -> None:
    lines = Lines(["a", "b", "c"])
    taken = lines.take(2)
    lines.put_back(taken)
    assert (lines.next(), lines.take(9), lines.is_at_end, lines.next()) == ("a", ["b", "c"], True, None)
