"""`fairveil check` and `fairveil schema`: for the data holder's eyes, drafts that are marked, drafts that are paid."""

import json
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from fairveil.data.datasets import load_dataset
from fairveil.data.schema import Category, Number, Schema
from fairveil.privacy.ledger import Ledger

DRAFT = ("schema", "draft", "people.csv", "--target", "income", "--sensitive", "sex", "--out", "draft.toml")
PLAIN = ("--method", "dpsgd", "--unaware")
TRAIN = ("train", "people.csv", "--schema", "draft.toml", *PLAIN, "--out", "results")
BOOKS = "people.csv.ledger.jsonl"


@pytest.fixture
def many(folder):
    """A few thousand rows, so that frequent values show through the noise."""
    load_dataset("adult").frame.head(4000).to_csv("people.csv", index=False)
    return folder


def proposed(text: str) -> list[str]:
    """Return what the text proposes to type next."""
    return shlex.split(re.search(r"^Next: fairveil (.*)$", text, re.MULTILINE)[1], comments=True)


def test_check_counts_exactly_what_does_not_fit(folder, people, say):
    table = people.head(100).astype(object).reset_index(drop=True)
    table["workclass"] = "Private"
    table["occupation"], table["native_country"] = "Sales", "Japan"
    table.loc[:2, "age"] = "forty"
    table.loc[3:4, "age"] = -7
    table.loc[5:9, "workclass"] = "Astronaut"
    table.loc[10:16, "income"] = "a lot"
    table.loc[17:20, "sex"] = "X"
    table.to_csv("people.csv", index=False)
    with Path("people.csv").open("a") as file:
        file.write("1,2,3\n" + "," * 40 + "\n" + '"\n')
    said = say("check", "people.csv", "--schema", "schema.toml", "--json")
    assert (said.code, said.err) == (0, "")
    facts = json.loads(said.out)
    found = {(one["column"], one["what"]): one["count"] for one in facts["findings"]}
    assert facts["private"] is True
    assert found["age", "not a number"] == 3
    assert found["age", "below the bounds"] == 2 + 1  # and the short line, which says 1
    assert found["workclass", "not in categories"] == 5 + 1
    assert found["income", "none of <=50K, >50K"] == 7 + 1
    assert found["", "malformed lines"] == 2
    assert found["", "rows that count"] == 100 - 7
    text = say("check", "people.csv", "--schema", "schema.toml").out
    assert text.startswith("PRIVATE: exact counts")
    assert re.search(r"age +3 +not a number -> level \"missing\"", text)


def test_check_debits_and_writes_nothing(folder, say, contents):
    before = contents(folder)
    assert say("check", "people.csv", "--schema", "schema.toml").code == 0
    assert contents(folder) == before


def test_check_knows_bundled_names(say):
    said = say("check", "adult")
    assert said.out.startswith("PRIVATE: exact counts of adult")
    assert re.search(r" 48842 +rows that count", said.out)


def test_check_refuses_bad_structure(folder, is_refused):
    assert "--schema" in is_refused(folder, ("check", "people.csv"))
    assert "neither" in is_refused(folder, ("check", "nothing.csv", "--schema", "schema.toml"))
    pd.read_csv("people.csv").drop(columns="age").to_csv("people.csv", index=False)
    assert '"age"' in is_refused(folder, ("check", "people.csv", "--schema", "schema.toml"))


def test_a_draft_is_marked_and_must_be_approved(folder, say, is_refused):
    said = say(*DRAFT)
    assert (said.code, said.err) == (0, "")
    assert "private" in said.out and "fairveil schema approve draft.toml --yes" in said.out
    drafted = Schema.read("draft.toml")
    assert drafted.private_draft
    assert not Path(BOOKS).exists()
    assert "approve" in is_refused(folder, TRAIN)
    assert "--yes" in is_refused(folder, ("schema", "approve", "draft.toml"))
    approved = say(*proposed(said.out))
    kept = Schema.read("draft.toml")
    assert kept.columns == drafted.columns and not kept.private_draft
    assert kept.approved_at and kept.is_as_approved and kept.approved_by == "" and "not stated" in approved.out
    explained = say(*(word.replace("DATA", "people") for word in proposed(approved.out)))
    done = say(*proposed(explained.out))
    assert (done.code, done.err) == (0, "")
    assert Path("results/summary.json").is_file()


def test_a_draft_can_be_approved_at_once(folder, say):
    facts = json.loads(say(*DRAFT, "--yes", "--json").out)
    assert facts | {"schema": "draft.toml", "private_draft": False, "epsilon": None, "cautions": []} == facts
    assert facts["private"]["positive"] == ">50K" and facts["private"]["groups"] == ["Female", "Male"]
    assert say(*TRAIN).code == 0


def test_who_approved_a_schema_and_when_is_kept_and_shown(folder, say):
    say(*DRAFT)
    said = json.loads(say("schema", "approve", "draft.toml", "--yes", "--by", "Ann Approver", "--json").out)
    kept = Schema.read("draft.toml")
    assert (kept.approved_by, kept.approved_at) == (said["by"], said["at"]) == ("Ann Approver", kept.approved_at)
    assert say(*TRAIN).code == 0
    approval = json.loads(Path("results/summary.json").read_text())["provenance"]["schema"]["approval"]
    assert (approval["by"], approval["at"], approval["is_unchanged"]) == ("Ann Approver", kept.approved_at, True)
    assert f"Approved by Ann Approver at {kept.approved_at}." in Path("results/report.html").read_text()
    text = Path("draft.toml").read_text()  # edited after the approval
    Path("draft.toml").write_text(text.replace("[target]", '[[where]]\ncolumn = "age"\nat_least = 0\n\n[target]'))
    assert not Schema.read("draft.toml").is_as_approved
    assert say(*TRAIN).code == 0
    assert "differ from those approved" in Path("results/report.html").read_text()


def test_a_schema_without_an_approval_says_so(folder, say):
    assert say(*TRAIN[:2], "--schema", "schema.toml", *TRAIN[4:]).code == 0
    assert "No approval is recorded in the schema." in Path("results/report.html").read_text()


def test_without_privacy_a_draft_is_usable_as_it_is(folder, say):
    say(*DRAFT)
    assert say(*TRAIN, "--epsilon", "inf").code == 0


def test_a_paid_draft_is_debited_and_public(many, say):
    said = say(*DRAFT, "--epsilon", "5", "--json")
    assert (said.code, said.err) == (0, "")
    facts = json.loads(said.out)
    assert facts | {"schema": "draft.toml", "private_draft": False, "epsilon": 5.0, "cautions": []} == facts
    assert facts["public"]["positive"] == ">50K" and "private" not in facts
    (entry,) = Ledger(BOOKS).entries
    assert (entry.details["epsilon"], entry.details["delta"]) == (5.0, 1e-6)
    assert Ledger(BOOKS).epsilon(1e-5) == pytest.approx(5.0, rel=0.01)
    drafted = Schema.read("draft.toml")
    assert not drafted.private_draft
    assert set(drafted.target.classes) == {"<=50K", ">50K"}
    assert set(drafted.sensitive[0].groups) == {"Female", "Male"}
    assert isinstance(drafted.columns["age"], Number)
    assert isinstance(drafted.columns["education"], Category)
    assert 3500 < drafted.n_public < 4500


def test_a_paid_draft_trains_and_shares_its_ledger(many, say):
    said = say(*DRAFT, "--epsilon", "5")
    done = say(*proposed(say(*proposed(said.out)).out), "--json")
    assert (done.code, done.err) == (0, "")
    summary = json.loads(done.out)
    assert summary["epsilon_spent"] <= 1.0
    assert summary["epsilon_spent_total"] > 5.0
    assert len(Ledger(BOOKS).entries) == 2
    # Epsilons add up where deltas do: the draft's own delta is 1e-6.
    assert Ledger(BOOKS).epsilon(1e-5 + 1e-6) <= (5.0 + summary["epsilon_spent"]) * 1.001


def test_a_paid_draft_of_a_known_name_is_debited_beside_the_draft(tmp_path, monkeypatch, say):
    monkeypatch.chdir(tmp_path)
    draft = ("schema", "draft", "adult", "--target", "income", "--sensitive", "sex", "--epsilon", "1")
    Path("there").mkdir()
    assert say(*draft, "--out", "there/draft.toml").code == 0
    assert len(Ledger("there/ledger.jsonl").entries) == 1


@pytest.mark.parametrize(
    "options, hint",
    [
        (("--target", "magic"), '"magic"'),
        (("--sensitive", "magic"), '"magic"'),
        (("--out", "nowhere/draft.toml"), "nowhere"),
        (("--out", "."), "write"),
    ],
    ids=str,
)
@pytest.mark.parametrize("price", [(), ("--epsilon", "5")], ids=["free", "paid"])
def test_a_draft_that_cannot_be(folder, is_refused, options, hint, price):
    assert hint in is_refused(folder, (*DRAFT, *options, *price))


@pytest.mark.parametrize("options", [("0",), ("-1",), ("nan",), ("inf",), ("1", "--delta", "0")], ids=" ".join)
def test_a_price_that_cannot_be(folder, is_refused, options):
    is_refused(folder, (*DRAFT, "--epsilon", *options))


@pytest.mark.parametrize("content", [b"", b"\x00\xff\x00", b"PAR1"])
def test_a_draft_of_no_table(folder, is_refused, content):
    Path("people.csv").write_bytes(content)
    is_refused(folder, DRAFT)
    is_refused(folder, (*DRAFT, "--epsilon", "5"))


def test_a_rare_value_does_not_show_in_a_paid_draft(many, say):
    table = pd.read_csv("people.csv")
    table.loc[0, "workclass"] = "Astronaut"
    table.to_csv("people.csv", index=False)
    # One row's text shows with probability 1e-6 at most.
    say(*DRAFT, "--epsilon", "5")
    assert "Astronaut" not in Path("draft.toml").read_text()


def test_approval_needs_a_schema(folder, is_refused):
    assert "nothing.toml" in is_refused(folder, ("schema", "approve", "nothing.toml", "--yes"))
    Path("wrong.toml").write_text("age = 3")
    assert "wrong.toml" in is_refused(folder, ("schema", "approve", "wrong.toml", "--yes"))


# --- what a person declares -------------------------------------------------------------------------------------------


def test_a_draft_says_which_class_is_positive_and_takes_another(folder, say):
    said = say(*DRAFT)
    assert ">50K counts as the positive class" in said.out and "--positive" in said.out
    assert said.out.index("PRIVATE") < said.out.index(">50K counts")  # it was read from the rows
    say(*DRAFT, "--positive", "<=50K")
    assert Schema.read("draft.toml").target.positive == "<=50K"


def test_a_draft_asks_for_the_positive_class_on_a_terminal_only(folder, say, monkeypatch):
    monkeypatch.setattr("fairveil.cli.schema.sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("fairveil.cli.schema.sys.stdout.isatty", lambda: True, raising=False)
    answers = iter(["what?", "<=50K"])
    monkeypatch.setattr("fairveil.cli.schema.typer.prompt", lambda *_, **__: next(answers))
    assert say(*DRAFT).code == 0
    assert Schema.read("draft.toml").target.positive == "<=50K"
    assert next(answers, None) is None
    say(*DRAFT, "--positive", ">50K")  # asks nothing
    assert Schema.read("draft.toml").target.positive == ">50K"


def test_options_that_cannot_be(folder, is_refused):
    assert "--cuts" in is_refused(folder, (*DRAFT, "--cuts", "young,old"))
    assert "COLUMN=FORMAT" in is_refused(folder, (*DRAFT, "--format", "age"))
    assert "to be one of" in is_refused(folder, (*DRAFT, "--format", "age=roman"))
    assert "UTF-8" in is_refused(folder, (*DRAFT, "--encoding", "utf-16"))
    assert "one character" in is_refused(folder, (*DRAFT, "--delimiter", ";;"))
    assert "class of" in is_refused(folder, (*DRAFT, "--positive", "rich"))


def test_a_price_that_would_be_wasted_is_refused_before_it_is_paid(folder, is_refused):
    sentence = is_refused(folder, (*DRAFT, "--epsilon", "0.05", "--n-public", "2000"))
    assert "Nothing was spent" in sentence and not Path(BOOKS).exists()


def test_other_encodings_are_named_once(folder, people, say, is_refused):
    table = people.assign(native_country=["Österreich", "Perú"] * (len(people) // 2) + ["Perú"] * (len(people) % 2))
    table.to_csv("people.csv", index=False, encoding="latin-1", sep="\t")
    assert "--encoding latin-1" in is_refused(folder, DRAFT)
    assert say(*DRAFT, "--encoding", "latin-1", "--yes").code == 0
    drafted = Schema.read("draft.toml")
    assert drafted.columns["native_country"] == Category(categories=("Perú", "Österreich"))
    assert (drafted.file.encoding, drafted.file.delimiter) == ("iso8859-1", "\t")
    assert say("check", "people.csv", "--schema", "draft.toml").code == 0
    done = say(*TRAIN)
    assert (done.code, done.err) == (0, "")
    assert say("predict", "results/model", "people.csv", "--out", "decided.csv").code == 0
    sweep = ("frontier", "people.csv", "--schema", "draft.toml", "--unaware", "--methods", "dp2dp", "--epsilons", "1")
    assert say(*sweep, "--tolerances", "0.1", "--out", "sweep").code == 0
    table.to_csv("others.csv", index=False, encoding="cp1252")  # an option has the last word
    words = ("certify", "results/model", "others.csv", "--epsilon", "1", "--delimiter", ",", "--encoding", "cp1252")
    assert say(*words).code == 0
