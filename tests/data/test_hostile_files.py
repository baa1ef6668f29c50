"""Files that somebody else made: no record in an error, no wait, no memory without bound, one sentence."""

import os
import socket
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairveil import FairClassifier, Key
from fairveil.data import csv_records, readers
from fairveil.data.arrow_columns import is_supported
from fairveil.data.drafting import DraftRequest, draft_privately, draft_schema
from fairveil.data.encoding import columns_of
from fairveil.data.inspection import check_table
from fairveil.data.readers import load_encoded, read_table
from fairveil.data.schema import MAX_FEATURES, Schema
from fairveil.data.values import MAX_CELL, canonical_text, number_of
from fairveil.errors import BadStructureError, FairveilError
from fairveil.privacy.ledger import Ledger

RECORDS = "31,1887.13,55,zqgroup,zqlabel\n18,20,40,f,no\n"
HEADLESS = {
    "no header": RECORDS,
    "no header and equal cells": "zqlabel,zqlabel,3,3,f\n" + RECORDS,
    "no header and another delimiter": RECORDS.replace(",", ";"),
    "a header without its line break": "age,pay,hours,sex,hired" + RECORDS,
    "a cell that is much like a column": "agee,pai,hour,sax,hire1887\n" + RECORDS,
}
PRIVATE = ("31", "1887", "55", "zqgroup", "zqlabel", "agee", "sax")


@pytest.mark.parametrize("content", HEADLESS.values(), ids=HEADLESS)
def test_no_error_quotes_a_record(tmp_path: Path, schema: Schema, content: str) -> None:
    path = tmp_path / "people.csv"
    path.write_text(content)
    ledger = Ledger()
    for read in (
        lambda: load_encoded(path, schema, ["sex"]),
        lambda: check_table(path, schema),
        lambda: draft_schema(path, "hired", ["sex"]),
        lambda: draft_privately(path, DraftRequest("hired", ("sex",)), 1.0, 1e-6, ledger),
        lambda: columns_of(pd.read_csv(path), [*schema.columns, "hired"]),
    ):
        with pytest.raises(BadStructureError) as caught:
            read()
        sentence = str(caught.value).replace(str(tmp_path), "")
        assert not [value for value in PRIVATE if value in sentence]
    assert ledger.entries == ()


def test_a_typo_still_gets_a_hint(tmp_path: Path, schema: Schema) -> None:
    path = tmp_path / "people.csv"
    path.write_text("Age,pay,hours,sex,hired\n18,20,40,f,no\n")
    with pytest.raises(BadStructureError, match=r'"age" \(did you mean "Age"'):
        load_encoded(path, schema, ["sex"])


def test_values_that_make_no_classes_are_not_quoted_by_a_draft(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("label,sex\n" + "zqlabel,f\n" * 20 + "zqlabel,m\n" * 20)
    with pytest.raises(BadStructureError) as caught:
        draft_schema(path, "label", ["sex"])
    assert "zqlabel" not in str(caught.value) and '"label"' in str(caught.value)


# --- what is no file --------------------------------------------------------------------------------------------------


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def bound_socket(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(path))
    return path


PLACES = {
    "a pipe": pipe,
    "a socket": bound_socket,
    "a device": lambda path: Path("/dev/zero"),
    "a folder": lambda path: path.mkdir() or path,
    "a name that is not UTF-8": lambda path: path.with_name("people\udcff.csv"),
    "a name that is too long": lambda path: path.with_name("x" * 300),
    "nothing": lambda path: path,
}


@pytest.mark.parametrize("make", PLACES.values(), ids=PLACES)
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, schema: Schema, make) -> None:
    """To open a pipe would wait for ever, and to read a device to its end as well."""
    path = make(tmp_path / "x")
    for read in (
        lambda: read_table(path),
        lambda: load_encoded(path, schema),
        lambda: Schema.read(path),
        lambda: Key.read(path),
        lambda: FairClassifier.load(path),
    ):
        with pytest.raises(BadStructureError) as caught:
            read()
        str(caught.value).encode()  # it can be printed


def test_a_model_of_pipes_is_refused(tmp_path: Path) -> None:
    for name in ("model.json", "params.safetensors"):
        pipe(tmp_path / name)
    with pytest.raises(BadStructureError, match="model folder"):
        FairClassifier.load(tmp_path)


# --- bounded ----------------------------------------------------------------------------------------------------------


def test_a_schema_of_many_megabytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    with path.open("wb") as file:
        file.truncate(2**34)  # sparse: it takes no space on the disk
    with pytest.raises(BadStructureError, match="at most 16,777,216 bytes"):
        Schema.read(path)


def test_facts_of_many_megabytes_are_not_read(tmp_path: Path) -> None:
    with (tmp_path / "model.json").open("wb") as file:
        file.truncate(2**36)
    with pytest.raises(BadStructureError, match="model folder"):
        FairClassifier.load(tmp_path)


HEAD = '[target]\ncolumn = "y"\nclasses = ["no", "yes"]\n[columns.x]\ntype = "number"\nbounds = [0, 1]\n'
SCHEMAS = {
    "an integer of 5,000 digits": "n_public = " + "9" * 5000 + "\n" + HEAD,
    "nested 5,000 deep": "notes = " + "[" * 5000 + "]" * 5000 + "\n" + HEAD,
    "more people than there are": f"n_public = {10**20}\n" + HEAD,
    "a class of 5,000 digits as a number": HEAD.replace('"yes"', "9" * 5000),
    "bounds of 400 digits": HEAD.replace("[0, 1]", f"[0, {'9' * 400}]"),
    "millions of bins": HEAD
    + "".join(f'[columns.x{k}]\ntype = "number"\nbounds = [0, 1]\nbins = 65535\n' for k in range(1000)),
    "a key of a megabyte": HEAD + "x" * 2**20 + " = 1\n",
}


@pytest.mark.parametrize("text", SCHEMAS.values(), ids=SCHEMAS)
def test_schemas_beyond_all_measure_are_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "schema.toml"
    path.write_text(text)
    with pytest.raises(BadStructureError) as caught:
        Schema.read(path)
    assert len(str(caught.value)) < 4000 and "\n" not in str(caught.value)


def test_categories_count_as_features(schema: Schema) -> None:
    many = {"type": "category", "categories": [str(code) for code in range(60_000)]}
    with pytest.raises(BadStructureError, match=f"at most {MAX_FEATURES:,} encoded features"):
        Schema(target=schema.target, columns={f"x{place}": many for place in range(18)})


def test_a_cell_that_is_too_long_holds_nothing(tmp_path: Path) -> None:
    assert canonical_text("x" * MAX_CELL) is not None and canonical_text("x" * (MAX_CELL + 1)) is None
    assert str(number_of("1" * (MAX_CELL + 1))) == "nan"
    cells = ["a", "é" * (MAX_CELL + 1), "b", "y" * (4 * MAX_CELL + 1)]
    pq.write_table(pa.table({"x": cells}), tmp_path / "t.parquet")
    pd.DataFrame({"x": cells}).to_csv(tmp_path / "t.csv", index=False)
    for name in ("t.parquet", "t.csv"):
        column = next(iter(read_table(tmp_path / name)))["x"]
        assert [canonical_text(cell) for cell in column] == ["a", None, "b", None]


def test_a_line_that_is_too_long_is_malformed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_records, "MAX_LINE_BYTES", 50)
    path = tmp_path / "t.csv"
    for length in (40, 47, 48, 49, 50, 51, 99, 100, 101, 500):
        path.write_text("a,b\n1,2\n" + "x" * length + ",3\n4,5\n" + "y" * length)
        (chunk,) = readers.read_chunks(path, None, 100, ",")
        assert chunk.n_malformed == (length + len(",3\n") > 50) + (length >= 50)
        assert {"2", "5"} <= set(chunk.frame["b"]) and len(chunk.with_blanks) == 4


def test_columns_of_very_wide_binaries_are_refused(tmp_path: Path) -> None:
    assert is_supported(pa.binary(16)) and not is_supported(pa.binary(2**20))


# --- printing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a\x1b[31mred", "a\x9bevil", "a\u202eevil", "a\x00", "a\udcff"])
def test_messages_cannot_steer_a_terminal(name: str) -> None:
    sentence = str(FairveilError(f'Expected "{name}".'))
    assert sentence.isprintable() and sentence.startswith('Expected "a')
    assert str(BadStructureError("x" * 10**6)).count("x") < 4000


def test_a_drafted_schema_spells_out_invisible_characters(tmp_path: Path) -> None:
    rows = [(f"a{place % 3}", "fm"[place % 2], "no" if place % 3 else "yes") for place in range(60)]
    table = pd.DataFrame(rows, columns=["b\u202e\x1b[31m", "sex", "y"])
    table.to_parquet(tmp_path / "t.parquet")
    drafted = draft_schema(tmp_path / "t.parquet", "y", ["sex"])
    drafted.write(tmp_path / "s.toml")
    text = (tmp_path / "s.toml").read_text()
    assert text.replace("\n", "").isprintable() and "202e" in text
    assert Schema.read(tmp_path / "s.toml") == drafted
