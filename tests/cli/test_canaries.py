"""Values planted in every column, among ids, labels, groups and broken lines: no command shows or writes one of them.

The table and the checks are those of the fuzz (`fuzz.people`, `fuzz.driver`). The output of `check` is private and is
held to the same, because it counts values and does not quote them; the file of a draft without epsilon is as private as
the rows.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairveil.data.encoding import Encoder
from fuzz.driver import CANARIES, Case, complaints, run
from fuzz.people import BY_PERSON, HEADER, MODELS, SCHEMA, rows, table, write_base

SECRET = SCHEMA.split("[columns.sex]")[0]
"""A schema for which the group alone is secret: it is no feature."""

TRAIN = ("train", "people.csv", "--schema", "schema.toml", "--out", "results")
DRAFT = ("schema", "draft", "people.csv", "--target", "hired", "--sensitive", "sex", "--out", "drafted.toml")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table and models that were trained on it."""
    folder = tmp_path_factory.mktemp("trained")
    write_base(folder)
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path) -> Path:
    """A folder with the table as CSV and Parquet, two schemas, and links to the models."""
    (tmp_path / "people.csv").write_text(table())
    pd.DataFrame(rows(), columns=list(HEADER)).to_parquet(tmp_path / "people.parquet")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "persons.toml").write_text(BY_PERSON)
    (tmp_path / "secret.toml").write_text(SECRET)
    (tmp_path / "sizeless.toml").write_text(SCHEMA.replace("n_public = 600\n", ""))
    for name in MODELS:
        (tmp_path / name).symlink_to(trained / name)
    return tmp_path


SUCCESSES = {
    **{f"train {name}": (*TRAIN, *options) for name, options in MODELS.items()},
    "train on Parquet": ("train", "people.parquet", *TRAIN[2:], *MODELS["aware"], "--json"),
    "train by person": ("train", "people.parquet", "--schema", "persons.toml", *MODELS["plain"]),
    "train without n_public": ("train", "people.csv", "--schema", "sizeless.toml", *MODELS["aware"]),
    "train the functional mechanism": (*TRAIN, "--unaware", "--method", "functional", "--tolerance", "0.1"),
    "train under bounds": (*TRAIN, "--unaware", "--tolerance", "0.1", "--method", "raco"),
    "train without privacy": (*TRAIN, *MODELS["plain"], "--epsilon", "inf", "--json"),
    "hide the group alone": (
        *("train", "people.csv", "--schema", "secret.toml", "--unaware", "--protects", "attribute", "--method", "pfld"),
        *("--out", "results"),
    ),
    "explain": ("explain", "people.csv", "--schema", "schema.toml", *MODELS["aware"]),
    **{f"predict {name}": ("predict", f"{name}/model", "people.csv", "--out", "decided.csv") for name in MODELS},
    "predict Parquet": ("predict", "plain/model", "people.parquet", "--out", "decided.parquet", "--json"),
    "certify": ("certify", "aware/model", "people.csv", "--epsilon", "1"),
    "certify as JSON": ("certify", "aware/model", "people.parquet", "--epsilon", "1", "--json"),
    "check": ("check", "people.csv", "--schema", "persons.toml"),
    "check as JSON": ("check", "people.parquet", "--schema", "persons.toml", "--json"),
    "draft": DRAFT,
    "frontier": (
        *("frontier", "people.csv", "--schema", "schema.toml", "--aware"),
        *("--epsilons", "1", "--tolerances", "0.1", "--out", "sweep"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("words", SUCCESSES.values(), ids=SUCCESSES)
def test_no_command_shows_or_writes_a_private_value(words, here):
    case = Case(words)
    outcome = run(case, here)
    assert outcome.code == 0, outcome.err
    assert complaints(case, outcome) == []
    for ledger in here.glob("*.ledger.jsonl"):
        shown = Case(("ledger", "show", ledger.name, "--json"))
        assert complaints(shown, run(shown, here)) == []


@pytest.mark.slow
def test_a_draft_that_was_paid_for_shows_no_rare_value(here):
    outcome = run(Case((*DRAFT, "--epsilon", "5")), here)
    assert outcome.code == 0, outcome.err
    written = b"".join(outcome.written.values()).decode()
    assert "north" in written and not [canary for canary in CANARIES if canary in written + outcome.out]


def replaced(old: str, new: str) -> str:
    assert old in table()
    return table().replace(old, new, 1)


FIRST = ",".join(rows()[0])
TABLES = {
    "no header": table(header=False),
    "a header without its line break": replaced("hired\n", "hired"),
    "a missing column": replaced("hired", "zzz"),
    "a column twice": replaced("pay", "age"),
    "open quotes in the header": replaced("who", '"who'),
    "open quotes in a record": replaced(FIRST, '"' + FIRST),
    "another delimiter": table().replace(",", ";"),
    "another delimiter and no header": table(header=False).replace(",", "\t"),
    "no line breaks": table().replace("\n", "\r"),
    "bytes that are no text": "\0" + table(),
    "a record alone": FIRST,
    "an equal cell twice": "zqcell,zqcell\nzqlabel,1\n",
}
READERS = {
    "train": (*TRAIN, *MODELS["plain"]),
    "predict": ("predict", "plain/model", "people.csv", "--out", "decided.csv"),
    "certify": ("certify", "plain/model", "people.csv", "--epsilon", "1", "--json"),
    "check": ("check", "people.csv", "--schema", "schema.toml", "--json"),
    "draft": DRAFT,
    "private draft": (*DRAFT, "--epsilon", "5", "--json"),
    "frontier": (*SUCCESSES["frontier"], "--json"),
}


@pytest.mark.slow
@pytest.mark.parametrize("words", READERS.values(), ids=READERS)
@pytest.mark.parametrize("content", TABLES.values(), ids=TABLES)
def test_no_refusal_shows_a_private_value(content, words, here):
    case = Case(words, {"people.csv": content.encode()})
    outcome = run(case, here)
    assert complaints(case, outcome) == []
    if outcome.code:
        assert not list(here.glob("*.ledger.jsonl")) or words[-3:] == READERS["private draft"][-3:]


REFUSED = {
    "a budget that is spent": (*TRAIN, *MODELS["plain"], "--epsilon", "5", "--ledger", "small.jsonl"),
    "people of the training": ("certify", "plain/model", "people.csv", "--epsilon", "1", "--ledger", "fitted.jsonl"),
    "a text as epsilon": (*TRAIN, *MODELS["plain"], "--epsilon", "much"),
    "an unknown target": (*TRAIN, *MODELS["plain"], "--target", "zz"),
    "an unknown group": (*TRAIN, *MODELS["aware"], "--sensitive", "who"),
    "a table as a schema": ("check", "people.csv", "--schema", "people.csv"),
    "a table as a model": ("predict", "people.csv", "people.csv", "--out", "decided.csv"),
    "a table as a ledger": ("ledger", "show", "people.csv"),
    "a table as a key": ("predict", "parity/model", "people.csv", "--out", "decided.csv", "--key", "people.csv"),
    "a table as a ledger to train": (*TRAIN, *MODELS["plain"], "--ledger", "people.csv"),
}


@pytest.mark.slow
@pytest.mark.parametrize("words", REFUSED.values(), ids=REFUSED)
def test_other_refusals_show_no_private_value_either(words, here):
    if "small.jsonl" in words:
        assert run(Case(("ledger", "budget", "small.jsonl", "--epsilon", "1")), here).code == 0
    if "fitted.jsonl" in words:
        assert run(Case((*TRAIN, *MODELS["plain"], "--ledger", "fitted.jsonl")), here).code == 0
    case = Case(words)
    outcome = run(case, here)
    assert outcome.code == 2 and complaints(case, outcome) == []


@pytest.mark.parametrize("name", ["train", "predict", "certify"])
def test_a_lack_of_memory_shows_no_private_value(name, here, monkeypatch):
    def run_out(*_):
        raise MemoryError("Unable to allocate 1. GiB for an array with shape (613, 25) holding zqcell")

    monkeypatch.setattr(Encoder, "coded", run_out)
    case = Case(READERS[name])
    outcome = run(case, here)
    assert outcome.code == 2 and complaints(case, outcome) == []


def test_the_canaries_are_in_every_column():
    columns = np.array(rows(), dtype=object).T
    for name, cells in zip(HEADER, columns, strict=True):
        assert any(canary in cell for canary in CANARIES for cell in cells), name
