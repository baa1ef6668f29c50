"""Bytes of text tables: compressed files, encodings and delimiters; damage is one sentence, and memory is bounded."""

import gzip
import io
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fairveil.data import files, readers
from fairveil.data.files import checked_delimiter, checked_encoding, is_utf8
from fairveil.data.inspection import check_table
from fairveil.data.readers import guess_delimiter, load_encoded, read_table
from fairveil.data.schema import Schema, TextFile
from fairveil.errors import BadStructureError, InvalidParameterError

PACKERS = {
    "gzip": gzip.compress,
    "gzip in two parts": lambda content: gzip.compress(content[:30]) + gzip.compress(content[30:]),
    "zstd": lambda content: pa.compress(content, codec="zstd", asbytes=True),
}


@pytest.fixture
def plain(tmp_path: Path, people: pd.DataFrame) -> Path:
    people.to_csv(tmp_path / "people.csv", index=False)
    return tmp_path / "people.csv"


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_a_compressed_table_is_read_like_the_plain_one(plain: Path, schema: Schema, pack) -> None:
    packed = plain.with_name("people.csv.gz")
    packed.write_bytes(pack(plain.read_bytes()))
    left, right = load_encoded(plain, schema, ["sex"]), load_encoded(packed, schema, ["sex"])
    np.testing.assert_array_equal(left.X, right.X)
    np.testing.assert_array_equal(left.y, right.y)


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
@pytest.mark.parametrize("cut", [1, 4, 9])
def test_a_compressed_table_that_was_cut_short_is_refused(plain: Path, schema: Schema, pack, cut: int) -> None:
    plain.write_bytes(pack(plain.read_bytes() * 50)[:-cut])
    with pytest.raises(BadStructureError, match="whole compressed table"):
        load_encoded(plain, schema)


def test_a_file_that_unpacks_to_absurdly_more_is_refused_in_bounded_memory(
    tmp_path: Path, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MOST_UNPACKED_BYTES", 2**26)
    bomb = tmp_path / "people.csv.gz"
    with gzip.open(bomb, "wb") as file:
        file.write(b"age,pay,hours,sex,hired\n")
        for _ in range(100):
            file.write(bytes(2**20))
    tracemalloc.start()
    with pytest.raises(BadStructureError, match="unpacks to more than 100 times its size"):
        load_encoded(bomb, schema)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**26  # two lines of the longest length that is read, and blocks


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ("größe,sex\n1,f\n".encode("latin-1"), "--encoding cp1252"),
        (b"PK\x03\x04\x14\0\0\0", "spreadsheet"),
        ("age,sex\n".encode("utf-16"), "UTF-16"),
    ],
)
def test_other_bytes_are_refused_with_the_remedy(tmp_path: Path, schema: Schema, content: bytes, hint: str) -> None:
    (tmp_path / "people.csv").write_bytes(content)
    with pytest.raises(BadStructureError, match=hint):
        load_encoded(tmp_path / "people.csv", schema)


def test_the_schema_says_how_a_file_is_written(tmp_path: Path, people: pd.DataFrame, schema: Schema) -> None:
    table = people.assign(sex=["für", "m", "für", "m", "für"])
    known = schema.columns | {"sex": {"type": "category", "categories": ["für", "m"]}}
    declared = Schema(**(dict(schema) | {"columns": known, "file": TextFile(delimiter="tab", encoding="latin-1")}))
    table.to_csv(tmp_path / "t.csv", index=False, sep="\t", encoding="latin-1")
    assert Schema.read(_written(declared, tmp_path)) == declared
    X = load_encoded(tmp_path / "t.csv", declared).X
    levels = np.asarray(X)[:, -4:].tolist()  # für, m, other, missing
    assert [row[0] for row in levels] == [1, 0, 1, 0, 1]
    assert not [one for one in check_table(tmp_path / "t.csv", declared) if one.what == "not in categories"]
    other = load_encoded(tmp_path / "t.csv", declared, encoding="utf-8").X  # an option has the last word
    assert np.asarray(other)[:, -2].tolist() == [1, 0, 1, 0, 1]


def _written(schema: Schema, folder: Path) -> Path:
    schema.write(folder / "s.toml")
    return folder / "s.toml"


@pytest.mark.parametrize("name", ["utf-16", "utf-7", "rot13", "idna", "hex", "", "zz", "a\0b", "iso2022_jp", "hz"])
def test_encodings_in_which_records_could_touch_are_refused(name: str) -> None:
    with pytest.raises(InvalidParameterError, match="UTF-8"):
        checked_encoding(name)


@pytest.mark.parametrize("name", sorted(files.ENCODINGS))
def test_an_encoding_keeps_lines_apart(name: str, tmp_path: Path) -> None:
    """Any byte before a line break leaves the next line as it is."""
    lines = [b"a,b", *(bytes([65, byte]) + b",1" for byte in range(256) if byte not in (10, 13, 34, 44)), b"x,y"]
    (tmp_path / "t.csv").write_bytes(b"\n".join(lines))
    (chunk,) = read_table(tmp_path / "t.csv", encoding=name, keep_malformed=True)
    assert len(chunk) == len(lines) - 1 and chunk.iloc[-1].tolist() == ["x", "y"]


@pytest.mark.parametrize("delimiter", [";", "\t", "|", ","])
@pytest.mark.parametrize("is_quoted", [True, False])
def test_the_delimiter_is_guessed_from_the_first_line(tmp_path: Path, delimiter: str, is_quoted: bool) -> None:
    names = ["a, b" if delimiter != "," and is_quoted else "a", "sex", "hired; or not" if is_quoted else "hired"]
    pd.DataFrame(columns=names).to_csv(tmp_path / "t.csv", index=False, sep=delimiter, quoting=1 if is_quoted else 0)
    assert guess_delimiter(tmp_path / "t.csv", [names[2], "sex"]) == delimiter


def test_delimiters_have_names() -> None:
    names = ("tab", "\\t", "\t", "semicolon", "pipe")
    assert "".join(map(checked_delimiter, names)) == "\t\t\t;|"


def test_blanks_around_quotes_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(' "age" ; "sex"\n "3;4" ; "f" \n 5" ;"m"\n')
    (chunk,) = read_table(tmp_path / "t.csv", delimiter=";")
    assert chunk.to_dict("list") == {"age": ["3;4", ' 5" '], "sex": ["f", "m"]}


def test_utf8_is_recognized(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("a\nü\n".encode() * 10**6)
    assert is_utf8(io.BytesIO(path.read_bytes()))
    path.write_bytes("a\nü\n".encode() * 10**6 + b"\xfc\n")
    assert not is_utf8(io.BytesIO(path.read_bytes()))
