"""Bad structure: exit code 2, one sentence, and not a byte written, booked or left behind."""

import json
import re
import signal
from pathlib import Path

import pandas as pd
import pytest

from fairveil import FairClassifier

PLAIN = ("--method", "dpsgd", "--unaware")
TRAIN = ("train", "people.csv", "--schema", "schema.toml", *PLAIN, "--out", "results")


def edited(name: str, pattern: str, new: str) -> None:
    """Change the first place of a file that fits the pattern."""
    text, n_places = re.subn(pattern, new, Path(name).read_text(), count=1)
    assert n_places
    Path(name).write_text(text)


def without_column(name: str) -> None:
    pd.read_csv("people.csv").drop(columns=name).to_csv("people.csv", index=False)


def truncated_parquet() -> None:
    pd.read_csv("people.csv").to_parquet("whole.parquet")
    whole = Path("whole.parquet").read_bytes()
    Path("people.csv").write_bytes(whole[: len(whole) // 2])


FILES = {
    "empty file": (lambda: Path("people.csv").write_bytes(b""), "empty file"),
    "no such file": (lambda: Path("people.csv").unlink(), "neither"),
    "folder": (lambda: (Path("people.csv").unlink(), Path("people.csv").mkdir()), "folder"),
    "missing target": (lambda: without_column("income"), '"income"'),
    "missing sensitive column": (lambda: without_column("sex"), '"sex"'),
    "missing feature": (lambda: without_column("age"), '"age"'),
    "duplicate columns": (lambda: edited("people.csv", "workclass", "age"), '"age" twice'),
    "binary": (lambda: Path("people.csv").write_bytes(bytes(range(256)) * 40), "UTF-8 text or Parquet"),
    "blank header": (lambda: Path("people.csv").write_text("\n\n1,2\n"), "column names"),
    "unclosed quote in the header": (lambda: edited("people.csv", "age", '"age'), "quotes"),
    "truncated parquet": (truncated_parquet, "damaged"),
    "magic bytes alone": (lambda: Path("people.csv").write_bytes(b"PAR1"), "damaged"),
}
SCHEMAS = {
    "no such schema": (lambda: Path("schema.toml").unlink(), "schema.toml"),
    "schema is a folder": (
        lambda: (Path("schema.toml").unlink(), Path("schema.toml").mkdir()),
        "schema.toml",
    ),
    "not TOML": (lambda: Path("schema.toml").write_text("age: 3"), "TOML"),
    "not text": (lambda: Path("schema.toml").write_bytes(b"\xff\xfe\x00"), "not UTF-8"),
    "empty schema": (lambda: Path("schema.toml").write_text(""), "target"),
    "unknown key": (lambda: edited("schema.toml", "n_public", "n_publik"), "n_publik"),
    "unknown key in a column": (lambda: edited("schema.toml", "bounds", "bound"), "bound"),
    "bounds reversed": (
        lambda: edited("schema.toml", r"bounds = \[(.+?), (.+?)\]", r"bounds = [\2, \1]"),
        "low < high",
    ),
    "bounds missing": (lambda: edited("schema.toml", r"bounds = .*", ""), "bounds = [low, high]"),
    "cuts unsorted": (lambda: edited("schema.toml", r"cuts = \[(.+?), (.+?),", r"cuts = [\2, \1,"), "cuts"),
    "cuts outside": (lambda: edited("schema.toml", r"cuts = \[.+?,", "cuts = [-1e9,"), "inside the bounds"),
    "one class": (lambda: edited("schema.toml", r"classes = .*", 'classes = [">50K"]'), "classes"),
    "size zero": (lambda: edited("schema.toml", "n_public = 4000", "n_public = 0"), "n_public"),
    "size is text": (lambda: edited("schema.toml", "n_public = 4000", 'n_public = "many"'), "n_public"),
    "target is a feature": (lambda: edited("schema.toml", '"income"', '"age"'), "not to be a feature"),
    "private draft": (
        lambda: edited("schema.toml", r"\n\[target\]", "private_draft = true\n[target]"),
        "draft",
    ),
}
OPTIONS = {
    "epsilon zero": (("--epsilon", "0"), "epsilon > 0"),
    "epsilon negative": (("--epsilon", "-1"), "epsilon > 0"),
    "epsilon nan": (("--epsilon", "nan"), "epsilon > 0"),
    "epsilon is text": (("--epsilon", "one"), "--epsilon"),
    "delta one": (("--delta", "1"), "0 < delta < 1"),
    "delta zero": (("--delta", "0"), "0 < delta < 1"),
    "delta nan": (("--delta", "nan"), "0 < delta < 1"),
    "delta beyond the accounting": (("--delta", "1e-300"), "delta"),
    "holdout one": (("--holdout", "1"), "holdout < 1"),
    "confidence one": (("--confidence", "1"), "confidence < 1"),
    "size zero": (("--n-public", "0"), "n_public"),
    "tolerance": (("--tolerance", "0.02"), "--tolerance"),
    "unknown method": (("--method", "magic"), "'dpsgd', 'dpsgdf', 'dpsgdg', 'output'"),
    "unknown constraint": (("--constraint", "magic"), "'demographic_parity'"),
    "unknown model": (("--model", "magic"), 'model (with method "dpsgd") to be one of auto, linear, mlp'),
    "unknown option": (("--magic",), "--magic"),
    "mlp by output perturbation": (("--method", "output", "--model", "mlp"), "one of linear;"),
    "another target": (("--target", "age"), '"income"'),
    "unknown sensitive column": (("--sensitive", "magic"), '"magic"'),
    "groups of a number": (("--sensitive", "age"), "[[sensitive]]"),
    "no id column": (("--unit", "person"), "id_column"),
    "two characters between cells": (("--delimiter", ";;"), "delimiter"),
    "another character between cells": (("--delimiter", ";"), '"age"'),
    "a file in the way": (("--out", "people.csv"), "--out"),
    "a file above": (("--out", "people.csv/results"), "--out"),
    "a ledger that is none": (("--ledger", "people.csv"), "ledger"),
    "a ledger that is a folder": (("--ledger", "."), "ledger"),
    "a ledger in no folder": (("--ledger", "nowhere/ledger.jsonl"), "ledger"),
}


def check_sentence(sentence: str, hint: str) -> None:
    """One sentence that names what to mend, without the words of a programming language."""
    assert hint in sentence
    assert not re.search(r"[.!?] +[A-Z]", sentence), "more than one sentence"
    assert not re.search(r"Traceback|Error\(|\[Errno|pydantic|pyarrow", sentence)


@pytest.mark.parametrize("spoil, hint", FILES.values(), ids=list(FILES))
def test_a_table_that_is_no_table(folder, is_refused, spoil, hint):
    spoil()
    check_sentence(is_refused(folder, TRAIN), hint)


@pytest.mark.parametrize("spoil, hint", SCHEMAS.values(), ids=list(SCHEMAS))
def test_a_schema_that_is_none(folder, is_refused, spoil, hint):
    spoil()
    check_sentence(is_refused(folder, TRAIN), hint)


@pytest.mark.parametrize("options, hint", OPTIONS.values(), ids=list(OPTIONS))
def test_options_that_cannot_be(folder, is_refused, options, hint):
    check_sentence(is_refused(folder, (*TRAIN, *options)), hint)


def test_no_schema_no_data(folder, is_refused):
    check_sentence(is_refused(folder, ("train", "people.csv", *PLAIN, "--out", "results")), "--schema")
    check_sentence(is_refused(folder, ("train", "adlut", *PLAIN, "--out", "results")), "adlut")


def test_a_known_name_without_its_rows_names_the_source(folder, is_refused):
    sentence = is_refused(folder, ("train", "acs_income", *PLAIN, "--delta", "1e-8", "--out", "results"))
    assert "US Census Bureau" in sentence and "FAIRVEIL_DATA" in sentence


def test_a_file_in_the_place_of_the_model_is_refused_at_no_cost(folder, is_refused):
    (folder / "results").mkdir()
    (folder / "results" / "model").write_text("mine")
    check_sentence(is_refused(folder, TRAIN), "model")


def test_a_folder_in_the_place_of_the_summary_is_not_swept_away(folder, is_refused):
    (folder / "results" / "summary.json").mkdir(parents=True)
    (folder / "results" / "summary.json" / "thesis.txt").write_text("mine")
    check_sentence(is_refused(folder, TRAIN), "summary.json")


@pytest.mark.parametrize("content", [b"dear diary", b'{"a": 1}', b"\x00\x01", b"a\nb", b"{}\n"])
def test_a_file_that_is_no_ledger_is_never_written_over(folder, is_refused, content):
    (folder / "notes").write_bytes(content)
    check_sentence(is_refused(folder, (*TRAIN, "--ledger", "notes")), "notes")
    check_sentence(is_refused(folder, ("ledger", "budget", "notes", "--epsilon", "1")), "notes")


def test_an_earlier_result_stays_whole(folder, say, is_refused):
    assert say(*TRAIN).code == 0
    without_column("age")
    is_refused(folder, TRAIN)
    is_refused(folder, (*TRAIN, "--epsilon", "0"))


def test_an_interruption_leaves_nothing_unfinished(folder, say, contents, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(FairClassifier, "fit_file", interrupted)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # a person who interrupts these tests is heard
    before = contents(folder)
    said = say(*TRAIN)
    assert said.code == 1 and said.err.startswith("fairveil: Interrupted; any privacy budget")
    assert contents(folder) == before


@pytest.mark.slow
def test_a_real_process_refuses_alike(folder, shell, is_refused):
    truncated_parquet()
    check_sentence(is_refused(folder, TRAIN, shell), "damaged")


@pytest.mark.parametrize("options", [("--epsilon", "0"), ("--epsilon", "one"), ("--ledger", ".")], ids=" ".join)
def test_with_json_the_refusal_is_json(folder, say, contents, options):
    before = contents(folder)
    said = say(*TRAIN, *options, "--json")
    assert (said.code, said.out) == (2, "")
    assert list(json.loads(said.err)) == ["error"]
    assert contents(folder) == before
