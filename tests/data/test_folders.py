"""A folder of Parquet files is one table: that of its files, one after the other."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairveil import _reading
from fairveil.data.drafting import draft_schema
from fairveil.data.inspection import check_table
from fairveil.data.readers import load_encoded, read_chunks, read_table, table_columns
from fairveil.data.schema import Schema
from fairveil.errors import BadStructureError


@pytest.fixture
def rows(people: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([people] * 40, ignore_index=True)


@pytest.fixture
def folder(tmp_path: Path, rows: pd.DataFrame) -> Path:
    place = tmp_path / "parts"
    place.mkdir()
    for name, part in zip(("b.parquet", "a.parquet", "c.pq"), np.array_split(np.arange(len(rows)), 3), strict=True):
        rows.iloc[part].to_parquet(place / name, index=False)
    (place / "a.parquet").rename(place / "z.parquet")
    (place / "b.parquet").rename(place / "a.parquet")
    (place / "c.pq").rename(place / "zz.pq")
    return place


@pytest.fixture
def whole(tmp_path: Path, rows: pd.DataFrame) -> Path:
    rows.to_parquet(tmp_path / "whole.parquet", index=False)
    return tmp_path / "whole.parquet"


def test_a_folder_is_the_table_of_its_files(folder: Path, whole: Path, schema: Schema) -> None:
    together, alone = load_encoded(folder, schema, ["sex"]), load_encoded(whole, schema, ["sex"])
    for name in ("X", "y", "groups"):
        np.testing.assert_array_equal(getattr(together, name), getattr(alone, name))
    assert table_columns(folder) == table_columns(whole)
    assert check_table(folder, schema) == check_table(whole, schema)
    drafts = [draft_schema(path, "hired", "sex").model_copy(update={"name": ""}) for path in (folder, whole)]
    assert drafts[0] == drafts[1]


def test_hidden_files_and_other_files_are_no_part_of_it(folder: Path, whole: Path) -> None:
    expected = pd.concat(read_table(folder))
    for name in ("_SUCCESS", "_metadata.parquet", ".a.parquet.crc", ".part.parquet", "notes.txt"):
        (folder / name).write_text("x")
    for name in ("_temporary", ".staging"):
        (folder / name).mkdir()
        shutil.copy(whole, folder / name / "part.parquet")
    (folder / "empty").mkdir()
    pd.testing.assert_frame_equal(pd.concat(read_table(folder)), expected)


def test_files_may_hold_a_column_in_different_types_and_orders(
    folder: Path, schema: Schema, rows: pd.DataFrame
) -> None:
    expected = load_encoded(folder, schema, ["sex"])
    part = pq.read_table(folder / "z.parquet")
    changed = {name: part[name] for name in reversed(part.column_names)}
    changed["sex"] = part["sex"].combine_chunks().dictionary_encode()
    changed["age"] = part["age"].cast(pa.float64())
    pq.write_table(pa.table(changed), folder / "z.parquet")
    found = load_encoded(folder, schema, ["sex"])
    np.testing.assert_array_equal(found.X, expected.X)
    np.testing.assert_array_equal(found.groups, expected.groups)


def test_every_file_must_have_the_columns_before_any_row_is_read(folder: Path) -> None:
    part = pq.read_table(folder / "z.parquet")
    pq.write_table(part.drop_columns(["sex"]), folder / "z.parquet")
    with pytest.raises(BadStructureError, match=r'the columns "sex" in .*z\.parquet'):
        read_chunks(folder, ["sex", "age"], 10)
    pq.write_table(part.set_column(0, "age", pa.array([[1]] * len(part))), folder / "z.parquet")
    with pytest.raises(BadStructureError, match=r'plain values in column "age" of .*z\.parquet'):
        read_chunks(folder, ["age"], 10)
    (folder / "z.parquet").write_bytes(b"PAR1 damaged")
    with pytest.raises(BadStructureError, match=r"whole Parquet file in .*z\.parquet"):
        read_chunks(folder, ["age"], 10)


def test_folders_that_are_no_table_are_refused_in_one_sentence(
    folder: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "none").mkdir()
    with pytest.raises(BadStructureError, match=r"in the folder .* got none"):
        read_table(folder / "none")
    (folder / "year=2024" / "month=1").mkdir(parents=True)
    shutil.copy(whole, folder / "year=2024" / "month=1" / "part.parquet")
    with pytest.raises(BadStructureError, match=r"in one folder, got some in .*year=2024"):
        read_table(folder)
    shutil.rmtree(folder / "year=2024")
    monkeypatch.setattr(_reading, "MAX_FILES", 2)
    with pytest.raises(BadStructureError, match="at most 2 Parquet files"):
        read_table(folder)
