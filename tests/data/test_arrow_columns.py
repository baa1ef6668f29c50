"""What a Parquet cell becomes follows from its Arrow type; no value raises or warns (warnings are errors)."""

from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairveil.data.arrow_columns import as_frame, is_supported
from fairveil.data.encoding import MissingCells, canonical_texts, numbers_of
from fairveil.data.readers import load_encoded, read_table
from fairveil.data.schema import Schema
from fairveil.errors import BadStructureError

LARGEST, SMALLEST = 2**63 - 1, -(2**63)
NOT_UTF8 = [b"ok", b"\xff", b"\xed\xa0\x80", b""]
WRITTEN = ["ok", "\\xff", "\\xed\\xa0\\x80", ""]


def of_bits(kind: pa.DataType, cells: list[int | None]) -> pa.Array:
    return pa.array(cells, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def of_bytes(kind: pa.DataType) -> pa.Array:
    return pa.array([*NOT_UTF8, None], pa.large_binary() if "large" in str(kind) else pa.binary()).view(kind)


def coded(values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int32()), values)


def outside(number: int) -> str:
    return f"<value out of range: {number}>"


FAR_DAY = (2_941_775 - 1970) * 365  # in a year beyond Python's and Arrow's calendars
CASES: dict[str, tuple[pa.Array, list[str | None]]] = {
    "null": (pa.nulls(2), [None, None]),
    "bool": (pa.array([True, None]), ["True", None]),
    "int64": (pa.array([LARGEST, LARGEST - 1, None]), [str(LARGEST), str(LARGEST - 1), None]),
    "uint64": (pa.array([2**64 - 1, None], pa.uint64()), [str(2**64 - 1), None]),
    "half": (pa.array([np.float16(1.5), None], pa.float16()), ["1.5", None]),
    "double": (pa.array([float("inf"), float("nan"), None]), ["inf", None, None]),
    "string": (of_bytes(pa.string()), [*WRITTEN, None]),
    "large string": (of_bytes(pa.large_string()), [*WRITTEN, None]),
    "string view": (pa.array(["a", None], pa.string_view()), ["a", None]),
    "binary": (of_bytes(pa.binary()), [*WRITTEN, None]),
    "fixed binary": (pa.array([b"\xff\xfe", b"\xff\xfd", None], pa.binary(2)), ["fffe", "fffd", None]),
    "date32": (of_bits(pa.date32(), [0, FAR_DAY, None]), ["1970-01-01", outside(FAR_DAY), None]),
    "date64": (of_bits(pa.date64(), [0, SMALLEST, None]), ["1970-01-01", outside(SMALLEST), None]),
    "time32": (of_bits(pa.time32("ms"), [1, 2**31 - 1]), ["00:00:00.001", outside(2**31 - 1)]),
    "time64": (of_bits(pa.time64("us"), [1, -1]), ["00:00:00.000001", outside(-1)]),
    "timestamp": (
        of_bits(pa.timestamp("ms"), [1, LARGEST, None]),
        ["1970-01-01 00:00:00.001", outside(LARGEST), None],
    ),
    "zoned timestamp": (
        of_bits(pa.timestamp("us", "Asia/Tokyo"), [0, SMALLEST]),
        ["1970-01-01 00:00:00.000000", outside(SMALLEST)],
    ),
    "lost zone": (of_bits(pa.timestamp("ms", "No/Where"), [0]), ["1970-01-01 00:00:00.000"]),
    "duration": (of_bits(pa.duration("ns"), [SMALLEST, None]), [str(SMALLEST), None]),
    "decimal": (
        pa.array(["100000000000000000000000000001.00", "0.50", None]).cast(pa.decimal128(38, 2)),
        ["100000000000000000000000000001", "0.5", None],
    ),
    "wide decimal": (pa.array(["7" * 70]).cast(pa.decimal256(76, 0)), ["7" * 70]),
    "dictionary": (coded(of_bytes(pa.string())[:2]), ["\\xff", "ok", None]),
    "dictionary of bytes": (coded(pa.array(NOT_UTF8)), ["\\xff", "ok", None]),
    "dictionary of dates": (
        coded(of_bits(pa.date32(), [0, 2**31 - 1])),
        [outside(2**31 - 1), "1970-01-01", None],
    ),
    "dictionary of nothing": (pa.nulls(2, pa.dictionary(pa.int8(), pa.string())), [None, None]),
    "uuid": (pa.array([UUID(int=5).bytes, None], pa.uuid()), ["0" * 31 + "5", None]),
}
REFUSED = {
    "list": pa.array([[1], None]),
    "fixed list": pa.array([[1, 2]], pa.list_(pa.int8(), 2)),
    "struct": pa.array([{"a": 1}]),
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
}


def stored(path: Path, array: pa.Array) -> Path:
    pq.write_table(pa.table({"x": array, "other": pa.nulls(len(array))}), path)
    return path


@pytest.mark.parametrize(("array", "texts"), CASES.values(), ids=CASES.keys())
def test_each_type_has_its_rule(array: pa.Array, texts: list[str | None]) -> None:
    assert is_supported(array.type)
    cells = as_frame([array], ["x"])["x"]
    assert canonical_texts(cells).tolist() == texts
    assert len(numbers_of(cells, MissingCells.of([]))) == len(texts)


@pytest.mark.parametrize("array", [array for array, _ in CASES.values()], ids=CASES.keys())
def test_the_type_of_a_column_does_not_depend_on_its_cells(array: pa.Array) -> None:
    whole = as_frame([array], ["x"])["x"]
    for part in (array[:0], array[:1], array[-1:]):
        assert as_frame([part], ["x"])["x"].dtype == whole.dtype


@pytest.mark.parametrize("name", [name for name in CASES if name != "date64"])  # Parquet stores it as days
def test_a_file_gives_the_same_cells(tmp_path: Path, name: str) -> None:
    array, texts = CASES[name]
    if name == "string view" and int(pa.__version__.split(".")[0]) < 21:
        pytest.skip("pyarrow writes it from version 21 on")
    path = stored(tmp_path / "t.parquet", array)
    chunks = list(read_table(path, ["x"], chunk_rows=2))
    assert [text for chunk in chunks for text in canonical_texts(chunk["x"])] == texts
    assert len(next(read_table(stored(path, array[:0]), ["x"]))) == 0


@pytest.mark.parametrize("array", REFUSED.values(), ids=REFUSED.keys())
def test_nested_types_are_refused_whatever_they_hold(tmp_path: Path, array: pa.Array) -> None:
    for some in (array, array[:0], pa.nulls(3, array.type)):
        path = stored(tmp_path / "t.parquet", some)
        with pytest.raises(BadStructureError, match=r'plain values in column "x" of .* got the type'):
            read_table(path)
        assert len(pd.concat(read_table(path, ["other"]))) == len(some)


@pytest.mark.parametrize("name", ["date32", "time64", "timestamp", "dictionary", "binary", "decimal"])
@pytest.mark.parametrize("column", ["age", "pay", "sex", "hired", "who"])
def test_any_column_of_a_schema_may_hold_any_supported_type(
    tmp_path: Path, people: pd.DataFrame, schema: Schema, name: str, column: str
) -> None:
    cells = CASES[name][0][:2]
    table = pa.Table.from_pandas(people.iloc[:2].assign(who=["a", "b"]), preserve_index=False)
    table = table.set_column(table.schema.get_field_index(column), column, cells)
    pq.write_table(table, tmp_path / "t.parquet")
    found = load_encoded(tmp_path / "t.parquet", schema.model_copy(update={"id_column": "who"}), ["sex"])
    assert len(found.y) == (0 if column == "hired" else 2)


BYTES = st.one_of(st.none(), st.binary(max_size=4))


@given(st.lists(BYTES, max_size=6))
def test_a_text_cell_depends_on_its_own_bytes(cells: list[bytes | None]) -> None:
    def texts(some: list[bytes | None]) -> list[Any]:
        return canonical_texts(as_frame([pa.array(some, pa.binary())], ["x"])["x"]).tolist()

    assert texts(cells) == [text for cell in cells for text in texts([cell])]


@given(st.lists(st.integers(SMALLEST, LARGEST), min_size=1, max_size=4), st.sampled_from(["s", "ms", "us", "ns"]))
def test_no_number_of_days_or_seconds_raises(cells: list[int], unit: str) -> None:
    days = [cell >> 32 for cell in cells]
    arrays = [of_bits(kind, cells) for kind in (pa.timestamp(unit, "Europe/Paris"), pa.date64(), pa.time64("ns"))]
    frame = as_frame([*arrays, of_bits(pa.date32(), days), of_bits(pa.time32("s"), days)], list("abcde"))
    assert frame.notna().all(axis=None)


def test_damage_is_bad_structure_wherever_it_is(tmp_path: Path) -> None:
    array = pa.array(["a", "b", "c"] * 20).dictionary_encode()
    whole = stored(tmp_path / "t.parquet", array).read_bytes()
    for length in range(4, len(whole), 7):
        (tmp_path / "t.parquet").write_bytes(whole[:length])
        with pytest.raises(BadStructureError, match="damaged"):
            list(read_table(tmp_path / "t.parquet"))
    for place in range(4, len(whole)):
        (tmp_path / "t.parquet").write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            list(read_table(tmp_path / "t.parquet"))
        except BadStructureError:  # or some other cells: a flipped bit is not always noticed
            continue
