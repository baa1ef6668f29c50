"""Structure fails loudly and in one sentence; values never steer."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairveil.data.readers import EncodedTable, load_encoded, read_chunks, read_table, table_columns
from fairveil.data.schema import Schema, Where
from fairveil.errors import BadStructureError, InvalidParameterError

NASTY = [
    "",
    " ",
    "?",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "-99999",
    "text",
    "No",
    "'",
    "\0",
    "\ufeff",
    "é",
    "0x1",
    "=1+1",
]


def same(left: EncodedTable, right: EncodedTable) -> bool:
    pairs = [(left.X, right.X), (left.y, right.y), (left.groups, right.groups), (left.persons, right.persons)]
    return all(np.array_equal(a, b) for a, b in pairs if a is not None or b is not None)


def written(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture
def csv_path(tmp_path: Path, people: pd.DataFrame) -> Path:
    people.to_csv(tmp_path / "people.csv", index=False)
    return tmp_path / "people.csv"


STRUCTURE = {
    "an empty file": (b"", "empty"),
    "an empty first line": (b"\n1,2\n", "first line"),
    "no named column": (b",,\n1,2,3\n", "first line"),
    "a repeated column": (b"age,pay,hours,sex,hired, age\n", '"age" twice'),
    "zero bytes": (b"\0\0\0\0\n", "UTF-8 text or Parquet"),
    "a picture": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "UTF-8 text or Parquet"),
    "another encoding": ("age,pay\n".encode("utf-16"), "UTF-8 text or Parquet"),
    "a header without end": (b"a" * (2**20 + 5), "UTF-8 text or Parquet"),
    "an open quote in the header": (b'age,"pay\n1,2\n', "quotes"),
    "missing columns": (b"aeg,pay,hours,sex\n1,2,3,f\n", 'did you mean "aeg"'),
    "another delimiter": (b"age;pay;hours;sex;hired\n", "say --delimiter ';'"),
    "half a Parquet file": (b"PAR1 and no more", "damaged"),
}


@pytest.mark.parametrize(("content", "words"), STRUCTURE.values(), ids=STRUCTURE.keys())
def test_bad_structure_is_one_sentence(tmp_path: Path, schema: Schema, content: bytes, words: str) -> None:
    path = written(tmp_path / "bad.csv", content)
    with pytest.raises(BadStructureError) as caught:
        load_encoded(path, schema)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_paths_that_are_no_tables(tmp_path: Path, schema: Schema) -> None:
    named = written(tmp_path / "text.parquet", b"age,pay\n")
    (tmp_path / "empty").mkdir()
    strange = {tmp_path / "empty": "in the folder .* got none", tmp_path / "none.csv": "No such file", named: "Parquet"}
    for path, words in [*strange.items(), (tmp_path, "Parquet file in .*text.parquet")]:
        with pytest.raises(BadStructureError, match=words):
            load_encoded(path, schema)


def test_structure_is_checked_before_the_first_chunk(tmp_path: Path) -> None:
    with pytest.raises(BadStructureError):
        read_table(tmp_path / "none.csv")


def test_a_damaged_parquet_file_is_bad_structure(tmp_path: Path, people: pd.DataFrame, schema: Schema) -> None:
    path = tmp_path / "people.parquet"
    people.to_parquet(path)
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    written(path, bytes(content))
    with pytest.raises(BadStructureError, match="damaged"):
        load_encoded(path, schema)


def test_repeated_parquet_columns_are_bad_structure(tmp_path: Path) -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["a", "a "])
    pq.write_table(table, tmp_path / "twice.parquet")
    with pytest.raises(BadStructureError, match='"a" twice'):
        table_columns(tmp_path / "twice.parquet", wanted=["a"])


@pytest.mark.parametrize("delimiter", ["", ",,", '"', "\n"])
def test_a_delimiter_is_one_character(csv_path: Path, delimiter: str) -> None:
    with pytest.raises(InvalidParameterError):
        table_columns(csv_path, delimiter)


def test_headers_lose_blanks_and_the_byte_order_mark(tmp_path: Path) -> None:
    path = written(tmp_path / "bom.csv", "\ufeff age ,pay\r\n1,2\r\n")
    assert table_columns(path) == ["age", "pay"]
    assert next(read_table(path, ["pay"])).to_dict("list") == {"pay": ["2"]}


def test_every_csv_cell_is_text_whatever_the_rows_hold(csv_path: Path) -> None:
    chunk = next(read_table(csv_path))
    assert {type(cell) for name in chunk for cell in chunk[name]} == {str}


@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 100])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_size_of_chunks_does_not_matter(
    tmp_path: Path, people: pd.DataFrame, schema: Schema, chunk_rows: int, suffix: str
) -> None:
    path = tmp_path / f"people.{suffix}"
    people.to_csv(path, index=False) if suffix == "csv" else people.to_parquet(path)
    whole = load_encoded(path, schema, ["sex"])
    assert same(whole, load_encoded(path, schema, ["sex"], chunk_rows=chunk_rows))
    assert len(whole.y) == 5
    assert whole.groups[:, 0].tolist() == [0, 1, 0, 1, 0]


def test_csv_and_parquet_of_one_table_encode_alike(tmp_path: Path, schema: Schema) -> None:
    table = pd.DataFrame(
        {
            "age": pd.array([18, None, 49, 71, 2**60], dtype="Int64"),
            "pay": [0.1, None, float("inf"), -3.0, 1e-7],
            "hours": pd.array([True, False, None, True, False], dtype="boolean"),
            "sex": ["f", None, "m", "x", " m "],
            "hired": ["no", "yes", "no", "yes", "yes"],
        }
    )
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    assert same(
        load_encoded(tmp_path / "t.csv", schema, ["sex"]),
        load_encoded(tmp_path / "t.parquet", schema, ["sex"]),
    )


def test_a_header_without_rows_gives_zero_rows(tmp_path: Path, people: pd.DataFrame, schema: Schema) -> None:
    people.iloc[:0].to_csv(tmp_path / "none.csv", index=False)
    people.iloc[:0].to_parquet(tmp_path / "none.parquet")
    for name in ("none.csv", "none.parquet"):
        table = load_encoded(tmp_path / name, schema, ["sex"])
        assert table.X.shape == (0, 16)
        assert table.y.shape == (0,)
        assert table.groups.shape == (0, 1)


@pytest.mark.parametrize("column", range(5))
@pytest.mark.parametrize("cell", [*NASTY, "z" * 10**6], ids=repr)
def test_no_value_changes_what_happens_to_other_rows(csv_path: Path, schema: Schema, column: int, cell: str) -> None:
    clean = load_encoded(csv_path, schema, ["sex"])
    lines = csv_path.read_text().splitlines()
    cells = lines[3].split(",")
    cells[column] = cell
    lines[3] = ",".join(cells)
    dirty = load_encoded(written(csv_path, "\n".join(lines)), schema, ["sex"])
    others = np.array([0, 1, 3, 4])
    is_ignored = column == 4  # an unknown label: the row contributes nothing
    assert len(dirty.y) == (4 if is_ignored else 5)
    np.testing.assert_array_equal(dirty.X if is_ignored else dirty.X[others], clean.X[others])


@pytest.mark.parametrize(
    "line", [b"1,2,3,f,no,extra", b'1,2,3,"f,no', b'1,2,3,"f"x,no', b'"', b'1,2,3,f,"no\r', b"", b"   "]
)
def test_a_malformed_line_contributes_nothing(csv_path: Path, schema: Schema, line: bytes) -> None:
    clean = load_encoded(csv_path, schema, ["sex"])
    lines = csv_path.read_bytes().splitlines()
    dirty = written(csv_path, b"\n".join([*lines[:3], line, *lines[3:]]))
    assert same(load_encoded(dirty, schema, ["sex"]), clean)


@settings(max_examples=50)
@given(
    st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b'"')), max_size=6),
    st.integers(1, 4),
)
def test_what_a_line_becomes_depends_on_that_line_alone(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], chunk_rows: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.csv"

    def rows(*some: bytes) -> list[list[str]]:
        written(path, b"\n".join([b"a,b", *some, b""]))
        chunks = read_table(path, chunk_rows=chunk_rows, keep_malformed=True)
        return [row for chunk in chunks for row in chunk.to_numpy().tolist()]

    assert rows(*lines) == [row for line in lines for row in rows(line)]


def test_one_line_cannot_swallow_the_others(csv_path: Path, schema: Schema) -> None:
    rows = ["20,1,1,f,no"] * 998 + ['20,1,1,q 10",no']
    text = "\n".join(["age,pay,hours,sex,hired", *rows])
    assert len(load_encoded(written(csv_path, text + '\n"x\n'), schema).y) == 999
    assert len(load_encoded(written(csv_path, text.replace("hired\n", 'hired\n"x\n')), schema).y) == 999


def test_nothing_that_holds_rows_prints_them(csv_path: Path, schema: Schema) -> None:
    for private in (load_encoded(csv_path, schema), next(read_chunks(csv_path, None, 10, ","))):
        assert repr(private).startswith(f"<{type(private).__module__}.{type(private).__name__} object at")


def test_bytes_that_are_not_text_are_one_bad_cell(csv_path: Path, schema: Schema) -> None:
    lines = csv_path.read_bytes().splitlines()
    dirty = written(csv_path, b"\n".join([*lines, b"20,1,1,\xff\xfe\x80,yes", b"2\xc3,1,1,f\0,yes"]))
    table = load_encoded(dirty, schema, ["sex"])
    assert table.groups[:, 0].tolist() == [0, 1, 0, 1, 0, -1, -1]
    assert table.X.dense()[5, -2] == 1  # sex=other
    assert table.X.dense()[6, 3] == 1  # age=missing


def test_malformed_lines_can_keep_their_places(csv_path: Path) -> None:
    lines = csv_path.read_text().splitlines()
    path = written(csv_path, "\n".join([*lines[:2], "1,2,3,4,5,6", *lines[2:], 'a,"b', "last"]))
    kept = pd.concat(read_table(path, ["sex", "age"], keep_malformed=True, chunk_rows=2))
    assert kept["sex"].tolist() == ["f", "", "m", "f", "m", "f", "", ""]
    assert kept["age"].tolist() == ["18", "", "30", "49", "50", "70", "", "last"]


def test_rows_without_label_rule_or_person_are_left_out(tmp_path: Path, schema: Schema) -> None:
    rows = ["a,no,2001", "a,maybe,2001", ",no,2001", "b,yes,1999", "c,yes,2002"]
    text = "\n".join(["who,hired,year,age,pay,hours,sex", *(f"{row},20,1,1,f" for row in rows)])
    strict = schema.model_copy(update={"id_column": "who", "where": (Where(column="year", at_least=2000),)})
    table = load_encoded(written(tmp_path / "t.csv", text), strict)
    assert table.y.tolist() == [0, 1]
    assert table.persons is not None
    assert len(set(table.persons.tolist())) == 2
    assert table.groups.shape == (2, 0)


def test_a_person_has_one_number_in_every_chunk(tmp_path: Path, schema: Schema) -> None:
    lines = ["who,age,pay,hours,sex,hired"] + [f"{place % 3},20,1,1,f,no" for place in range(9)]
    path = written(tmp_path / "t.csv", "\n".join(lines))
    table = load_encoded(path, schema.model_copy(update={"id_column": "who"}), chunk_rows=2)
    assert table.persons is not None
    assert table.persons[:3].tolist() * 3 == table.persons.tolist()


def test_large_ids_do_not_depend_on_nulls_beside_them(tmp_path: Path, people: pd.DataFrame, schema: Schema) -> None:
    named = schema.model_copy(update={"id_column": "who"})
    ids = [2**60, 2**60 + 1, None, 5, 6]
    people.assign(who=pd.array(ids, dtype="Int64")).to_parquet(tmp_path / "t.parquet")
    table = load_encoded(tmp_path / "t.parquet", named)
    assert table.persons is not None
    assert len(set(table.persons.tolist())) == 4


def test_decimal_ids_in_parquet_are_those_of_whole_numbers(
    tmp_path: Path, people: pd.DataFrame, schema: Schema
) -> None:
    named = schema.model_copy(update={"id_column": "who"})
    for rows in (people, people.iloc[:0]):
        read = []
        for who in (np.arange(len(rows)), np.arange(len(rows)) / 1):
            rows.assign(who=who).to_parquet(tmp_path / "t.parquet")
            read.append(load_encoded(tmp_path / "t.parquet", named).persons)
        np.testing.assert_array_equal(*read)


def test_ids_in_other_bytes_stay_apart(tmp_path: Path, schema: Schema) -> None:
    lines = [b"who,age,pay,hours,sex,hired", b"M\xf6ller,20,1,1,f,no", b"M\xfcller,20,1,1,f,no"]
    path = written(tmp_path / "t.csv", b"\n".join(lines))
    table = load_encoded(path, schema.model_copy(update={"id_column": "who"}))
    assert table.persons is not None
    assert len(set(table.persons.tolist())) == 2


def test_parquet_columns_with_dots_and_an_index_are_plain_columns(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1], "a.b": [2]}, index=pd.Index([7], name="key"))
    frame.to_parquet(tmp_path / "t.parquet")
    assert table_columns(tmp_path / "t.parquet") == ["a", "a.b", "key"]
    assert next(read_table(tmp_path / "t.parquet", ["key", "a"])).to_dict("list") == {"key": [7], "a": [1]}
