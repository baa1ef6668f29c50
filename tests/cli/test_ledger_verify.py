"""`fairveil ledger verify`, and evidence that is never written with a ledger that lost its entries."""

import json
import shutil
from pathlib import Path

import pytest

from fairveil import FairClassifier
from fairveil.accounting.events import Charge, GaussianRelease
from fairveil.cli import train as training
from fairveil.errors import DamagedLedgerError
from fairveil.privacy import ledger as ledgers
from fairveil.privacy.journal import link
from fairveil.privacy.ledger import Ledger

pytestmark = pytest.mark.slow

TRAIN = ("train", "people.csv", "--schema", "schema.toml", "--method", "dpsgd", "--unaware", "--out", "results")
NAME = "people.csv.ledger.jsonl"
SUMMARY = "results/summary.json"
SMALL = [Charge(GaussianRelease(20.0))]


@pytest.fixture
def trained(folder, say):
    assert say(*TRAIN).code == 0
    return folder


def test_a_sound_ledger_is_verified(trained, say):
    shutil.copy(SUMMARY, "first.json")
    say("ledger", "budget", NAME, "--epsilon", "5")
    assert say(*TRAIN).code == 0
    said = say("ledger", "verify", NAME, "--summary", "first.json", "--summary", SUMMARY)
    assert (said.code, said.err) == (0, "")
    assert "is sound" in said.out and "2 debits" in said.out and "budget     epsilon 5" in said.out
    facts = json.loads(say("ledger", "verify", NAME, "--summary", SUMMARY, "--json").out)
    summary = json.loads(Path(SUMMARY).read_text())
    assert facts["has_head"] and facts["cautions"] == []
    # the one line after the summary's head is the note of the summary itself
    assert facts["head"]["n_lines"] == summary["ledger"]["head"]["n_lines"] + 1
    assert facts["epsilon_spent_total"] == summary["epsilon_spent_total"]


def test_an_absent_head_is_said(trained, say):
    Path(f"{NAME}.head").unlink()
    said = say("ledger", "verify", NAME)
    assert said.code == 0 and "none is kept beside it" in said.out
    assert json.loads(say("ledger", "verify", NAME, "--json").out)["has_head"] is False


def test_a_cut_ledger_is_refused_by_every_command(trained, say, is_refused):
    lines = Path(NAME).read_bytes().splitlines(keepends=True)
    Path(NAME).write_bytes(b"".join(lines[:-1]))
    commands = (
        ("ledger", "verify", NAME),
        ("ledger", "show", NAME),
        ("ledger", "budget", NAME, "--epsilon", "1"),
        TRAIN,
    )
    for command in commands:
        assert "ends before" in is_refused(trained, command)


def test_a_deleted_ledger_whose_head_remains_is_refused(trained, is_refused):
    Path(NAME).unlink()
    for command in (("ledger", "verify", NAME), ("ledger", "show", NAME), TRAIN):
        assert "its head" in is_refused(trained, command)


def test_an_older_ledger_with_its_older_head_is_found_by_a_summary(trained, say, is_refused):
    for name in (NAME, f"{NAME}.head"):
        shutil.copy(name, f"old {name}")
    assert say(*TRAIN).code == 0
    for name in (NAME, f"{NAME}.head"):
        shutil.move(f"old {name}", name)
    assert say("ledger", "verify", NAME).code == 0  # nothing beside it knows better
    assert SUMMARY in is_refused(trained, ("ledger", "verify", NAME, "--summary", SUMMARY))


@pytest.mark.parametrize("content", [None, "", "{}", "[]", '{"ledger": {"head": null}}', '{"ledger": 1}', "[" * 9999])
def test_what_is_no_summary_is_refused(trained, is_refused, content):
    if content is not None:
        Path("no.json").write_text(content)
    assert "summary.json" in is_refused(trained, ("ledger", "verify", NAME, "--summary", "no.json"))


def test_a_dropped_line_is_reported_and_never_quoted(trained, say):
    with open(NAME, "ab") as file:
        file.write(b'{"kind": "debit", "purpose": "CANARY')
    for command in (("ledger", "show", NAME), ("ledger", "verify", NAME), TRAIN, ("ledger", "verify", NAME)):
        said = say(*command)
        assert said.code == 0
        assert "dropped 1 incomplete line" in said.out
        assert "CANARY" not in said.out + said.err
        assert "dropped 1 incomplete line" in say(*command[:2], NAME, "--json").out or command is TRAIN
    summary = json.loads(Path(SUMMARY).read_text())
    assert any("dropped 1 incomplete line" in sentence for sentence in summary["cautions"])
    assert "CANARY" not in Path(SUMMARY).read_text()


@pytest.mark.parametrize("loss", ["all", "file", "line"])
def test_no_evidence_is_written_if_the_ledger_is_lost_meanwhile(folder, say, monkeypatch, loss):
    """The old program said that nothing was ever spent."""
    fit = training.fit_run

    def fit_and_lose(*arguments):
        fit(*arguments)
        if loss == "line":
            Path(NAME).write_bytes(Path(NAME).read_bytes().splitlines(keepends=True)[0])
        else:
            Path(NAME).unlink()
        if loss != "file":
            Path(f"{NAME}.head").unlink()

    monkeypatch.setattr(training, "fit_run", fit_and_lose)
    said = say(*TRAIN)
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1 and "restore it from a backup" in said.err
    assert not Path("results").exists()


def test_a_summary_in_python_is_refused_without_the_entry(people, facts, tmp_path):
    ledger = Ledger(tmp_path / "people.ledger.jsonl")
    clf = FairClassifier(epsilon=1.0, sensitive="sex", aware=False, method="dpsgd", schema=facts, ledger=ledger)
    clf.fit(people, people["income"])
    assert clf.summary()["ledger"]["head"]["n_lines"] == 1
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(DamagedLedgerError, match="no total can be stated"):
        clf.summary()
    clf.predict(people)  # the model itself stays usable


def test_a_budget_is_not_written_to_a_ledger_that_cannot_be_priced(folder, is_refused):
    """The old program wrote its line first."""
    Ledger(NAME).debit(SMALL, "one")
    rechain(NAME, lambda line: line | {"charges": [{"event": {"event_kind": "Nonsense"}}]})
    is_refused(folder, ("ledger", "budget", NAME, "--epsilon", "1"))


def rechain(name, change):
    """Change the last line of a ledger and write the hashes anew, as a forger would; there is no head afterwards."""
    header, *lines = Path(name).read_text().splitlines()
    chains, texts = [], [header]
    for place, text in enumerate(lines):
        line = json.loads(text)
        del line["chain"]
        line = change(line) if place == len(lines) - 1 else line
        chains.append(link(chains, line))
        texts.append(json.dumps({**line, "chain": chains[-1]}))
    Path(name).write_text("\n".join(texts) + "\n")
    Path(f"{name}.head").unlink(missing_ok=True)


# --- the total of many entries ----------------------------------------------------------------------------------------


@pytest.fixture
def long_ledger(tmp_path, monkeypatch):
    """A ledger of 30 entries in the current folder."""
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("long.jsonl")
    for n in range(30):
        ledger.debit([Charge(GaussianRelease(9.0 + n % 3), f"fit {n}", "train")], "a fit")
    return tmp_path


def test_the_total_of_many_entries_is_compared_with_the_slow_one(long_ledger, say):
    facts = json.loads(say("ledger", "verify", "long.jsonl", "--json").out)
    shown = json.loads(say("ledger", "show", "long.jsonl", "--json").out)
    for name in ("", "_replace_one"):
        total, slow = facts[f"epsilon_spent_total{name}"], facts[f"epsilon_on_one_grid{name}"]
        assert shown[f"epsilon_spent_total{name}"] == total == pytest.approx(slow, rel=1e-3)
    assert "on one fine grid" in say("ledger", "verify", "long.jsonl").out


@pytest.mark.attack
@pytest.mark.parametrize("factor", [0.0, 0.9, 1.1])
def test_a_total_that_is_not_that_of_the_slow_way_is_refused(long_ledger, monkeypatch, is_refused, factor):
    """A twin of the quick computation that is wrong by a tenth, on either side."""
    quick = ledgers.epsilon_by_kinds
    monkeypatch.setattr(ledgers, "epsilon_by_kinds", lambda *arguments: factor * quick(*arguments))
    said = is_refused(long_ledger, ("ledger", "verify", "long.jsonl"))
    assert "rely on the larger one" in said
