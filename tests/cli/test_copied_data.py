"""A copy of a data file holds the same people: it does not start a ledger of its own."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from fairveil import FairClassifier
from fairveil.privacy import known_data
from fairveil.privacy.ledger import Ledger

pytestmark = pytest.mark.slow

OPTIONS = ("--schema", "schema.toml", "--method", "dpsgd", "--unaware", "--out")
NAME = "people.csv.ledger.jsonl"
DRAFT = ("--target", "income", "--sensitive", "sex", "--epsilon", "20", "--out")


@pytest.fixture
def trained(folder, say):
    assert say("train", "people.csv", *OPTIONS, "results").code == 0
    return folder


@pytest.fixture(params=["beside", "elsewhere"])
def place(request, trained):
    """Where a copy stands: in the same folder, or in another one that only the index leads from."""
    place = trained / ("copy.csv" if request.param == "beside" else "far/away/people.csv")
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


@pytest.mark.parametrize("make", [shutil.copy, os.link], ids=["copy", "hard link"])
def test_a_copy_without_entries_of_its_own_is_refused(trained, place, is_refused, make):
    make("people.csv", place)
    for command in (
        ("train", place, *OPTIONS, "again"),
        ("frontier", place, *OPTIONS[:2], "--unaware", "--methods", "dpsgd", "--epsilons", "1", "--out", "sweep"),
        ("certify", "results/model", place, "--epsilon", "1"),
        ("schema", "draft", place, *DRAFT, "draft.toml"),
    ):
        sentence = is_refused(trained, command)
        assert f"--ledger {trained / NAME} " in sentence


def test_the_named_ledger_takes_a_copy(trained, place, say):
    shutil.copy("people.csv", place)
    said = say("train", place, *OPTIONS, "again", "--ledger", NAME)
    assert (said.code, said.err) == (0, "") and "caution" not in said.out
    assert len(Ledger(NAME).entries) == 2
    assert json.loads(Path("again/summary.json").read_text())["cautions"] == []


def test_another_ledger_named_by_its_user_is_a_caution(trained, place, say):
    shutil.copy("people.csv", place)
    said = say("train", place, *OPTIONS, "again", "--ledger", "own.jsonl")
    assert said.code == 0 and f"--ledger {trained / NAME} " in said.out
    (sentence,) = json.loads(Path("again/summary.json").read_text())["cautions"]
    assert "same data" in sentence
    assert "same data" in Path("again/report.html").read_text()
    assert "same data" in say("schema", "draft", place, *DRAFT, "d.toml", "--ledger", "own.jsonl").out


def test_a_private_draft_makes_the_data_known_too(folder, say, is_refused):
    assert say("schema", "draft", "people.csv", *DRAFT, "draft.toml").code == 0
    shutil.copy("people.csv", "copy.csv")
    assert NAME in is_refused(folder, ("train", "copy.csv", *OPTIONS, "again"))


def test_other_data_and_known_names_start_their_own_ledger(trained, strangers, say):
    strangers.to_csv("others.csv", index=False)
    assert say("train", "others.csv", *OPTIONS, "others").code == 0
    for name in ("first", "second"):
        assert say("train", "adult", *OPTIONS[2:], name).code == 0
    assert b'"data"' not in Path("first/ledger.jsonl").read_bytes()


def test_data_that_was_only_named_does_not_bind(folder, say):
    """A ledger with the fingerprint but without a debit released nothing."""
    Ledger(NAME).record_data("people.csv")
    shutil.copy("people.csv", "copy.csv")
    assert say("train", "copy.csv", *OPTIONS, "again").code == 0


def test_the_fingerprint_is_written_once_and_never_shown(trained, say):
    assert say("train", "people.csv", *OPTIONS, "results").code == 0
    notes = [json.loads(line) for line in Path(NAME).read_text().splitlines() if '"kind": "data"' in line]
    assert len(notes) == 1
    shown = [say("ledger", command, NAME, *more) for command in ("show", "verify") for more in ((), ("--json",))]
    texts = [one.out + one.err for one in shown]
    texts += [path.read_text() for path in Path("results").rglob("*") if path.suffix in {".json", ".html"}]
    for secret in (notes[0]["salt"], notes[0]["digest"]):
        assert len(secret) >= 32 and not any(secret in text for text in texts)


def test_a_ledger_is_hidden_from_those_who_cannot_read_its_data(folder, say):
    Path("people.csv").chmod(0o640)
    old = os.umask(0o022)
    try:
        assert say("train", "people.csv", *OPTIONS, "results").code == 0
    finally:
        os.umask(old)
    assert stat.S_IMODE(Path(NAME).stat().st_mode) == 0o640


def test_the_index_holds_paths_and_nothing_else(trained):
    index = Path(os.environ["XDG_STATE_HOME"], "fairveil", "ledgers")
    assert index.read_text() == f"{trained / NAME}\n"


@pytest.mark.parametrize("state", ["/dev/null", "relative", ""])
def test_an_index_that_cannot_be_written_is_no_error(folder, say, monkeypatch, state):
    monkeypatch.setenv("XDG_STATE_HOME", state)
    monkeypatch.setenv("HOME", "/dev/null")
    assert say("train", "people.csv", *OPTIONS, "results").code == 0
    assert not Path("relative").exists()


def test_an_index_of_nonsense_is_passed_over(trained, is_refused):
    index = Path(os.environ["XDG_STATE_HOME"], "fairveil", "ledgers")
    os.mkfifo(index.with_name("pipe"))
    lines = ["/dev/zero", str(index.with_name("pipe")), "/no/such", "", str(trained / "people.csv"), index.read_text()]
    index.write_text("\n".join(lines))
    Path("far").mkdir()
    shutil.copy("people.csv", "far/people.csv")
    assert NAME in is_refused(trained, ("train", "far/people.csv", *OPTIONS, "again"))


def test_fits_in_python_make_the_data_known_too(folder, facts, say, is_refused):
    clf = FairClassifier(sensitive="sex", aware=False, method="dpsgd", schema=facts, ledger=Ledger("own.jsonl"))
    clf.fit_file("people.csv")
    assert str(folder / "own.jsonl") in is_refused(folder, ("train", "people.csv", *OPTIONS, "again"))


def test_no_content_is_hashed_if_no_other_ledger_is_known(folder, monkeypatch):
    monkeypatch.setattr(known_data, "content_of", lambda data: pytest.fail("it was hashed"))
    assert known_data.ledgers_about(Path("people.csv"), Path(NAME)) == []
