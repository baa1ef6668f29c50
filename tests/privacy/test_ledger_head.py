"""The head beside a ledger: lines that are taken away from it are noticed, and a crash never looks like that."""

import json
import os
import pickle
import shutil

import pytest

from fairveil.accounting.events import Charge, GaussianRelease
from fairveil.errors import BadStructureError, DamagedLedgerError, FairveilError
from fairveil.privacy import journal
from fairveil.privacy.journal import HEADER, Head
from fairveil.privacy.ledger import Budget, Ledger

SMALL = [Charge(GaussianRelease(20.0))]


@pytest.fixture
def path(tmp_path):
    """A ledger of three entries with its head."""
    place = tmp_path / "people.ledger.jsonl"
    for name in ("one", "two", "three"):
        Ledger(place).debit(SMALL, name)
    return place


def head_of(path):
    return path.with_name(f"{path.name}.head")


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


def is_refused(path, match):
    """Assert that nobody can read or extend the ledger, and that trying changes nothing."""
    before = path.read_bytes() if path.exists() else None
    uses = (
        lambda: Ledger(path).entries,
        lambda: Ledger(path).epsilon(1e-5),
        lambda: Ledger(path).check(SMALL),
        lambda: Ledger(path).debit(SMALL, "more"),
        lambda: Ledger(path).set_budget(Budget(1.0, 1e-5)),
    )
    for use in uses:
        with pytest.raises(DamagedLedgerError, match=match) as refusal:
            use()
        assert str(refusal.value).count("\n") == 0
    assert (path.read_bytes() if path.exists() else None) == before


def test_the_head_states_how_far_the_ledger_has_come(path):
    stated = json.loads(head_of(path).read_text())
    assert stated == {"n_lines": 3, "chain": json.loads(lines_of(path)[-1])["chain"]}
    assert Ledger(path).head == Head(**stated)
    assert sorted(one.name for one in path.parent.iterdir()) == [path.name, f"{path.name}.head"]


@pytest.mark.parametrize("n_left", [0, 1, 2, 3])
def test_lines_cut_off_at_the_end_are_noticed(path, n_left):
    path.write_bytes(b"".join(lines_of(path)[:n_left]))
    is_refused(path, "ends before")


def test_a_cut_in_the_middle_of_a_line_is_noticed(path):
    """A line that the head counts was acted on: its incomplete rest is not what a crash leaves."""
    path.write_bytes(path.read_bytes()[:-20])
    is_refused(path, "ends before")


def test_a_ledger_that_was_deleted_is_noticed(path):
    path.unlink()
    is_refused(path, "got nothing there although its head")
    assert not path.exists()


def test_an_older_copy_in_its_place_is_noticed(path, tmp_path):
    copy = tmp_path / "copy"
    shutil.copy(path, copy)
    Ledger(path).debit(SMALL, "four")
    os.replace(copy, path)
    is_refused(path, "ends before")


def test_another_ledger_in_its_place_is_noticed(path, tmp_path):
    for name in ("uno", "due", "tre", "quattro"):
        Ledger(tmp_path / "other").debit(SMALL, name)
    shutil.copy(tmp_path / "other", path)
    is_refused(path, "got another one")


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", "nonsense", '{"n_lines": "3", "chain": "0"}', '{"n_lines": true, "chain": ""}', "[" * 4000],
)
def test_a_head_that_is_none_is_damage(path, content):
    head_of(path).write_text(content)
    is_refused(path, "head of a ledger")


def test_a_ledger_ahead_of_its_head_is_what_a_crash_leaves(path):
    older = head_of(path).read_bytes()
    Ledger(path).debit(SMALL, "four")
    head_of(path).write_bytes(older)
    assert len(Ledger(path).entries) == 4
    Ledger(path).debit(SMALL, "five")
    assert json.loads(head_of(path).read_text())["n_lines"] == 5


def test_a_ledger_without_a_head_gets_one_with_the_next_entry(path):
    head_of(path).unlink()
    assert not Ledger(path).has_head_file
    assert len(Ledger(path).entries) == 3
    Ledger(path).debit(SMALL, "four")
    assert Ledger(path).has_head_file


def test_the_line_is_on_disk_before_the_head(path, monkeypatch):
    """The other way round, a crash in between would make a sound ledger look cut."""
    order, write = [], journal._write

    def recorded(file, content):
        order.append(os.path.basename(os.readlink(f"/proc/self/fd/{file}")))
        write(file, content)

    monkeypatch.setattr(journal, "_write", recorded)
    Ledger(path).debit(SMALL, "four")
    assert order == [path.name, f"{path.name}.head.new"]


@pytest.mark.parametrize("step", ["line", "head", "rename", "folder"])
def test_a_crash_at_any_step_of_an_append_leaves_a_sound_ledger(path, monkeypatch, step):
    write, n_writes = journal._write, []

    class Crash(BaseException):
        pass

    def crashing(file, content):
        n_writes.append(1)
        if (step, len(n_writes)) == ("line", 1):
            os.write(file, content[:30])
            raise Crash
        if (step, len(n_writes)) == ("head", 2):
            raise Crash
        write(file, content)

    def crash(*arguments):
        raise Crash

    monkeypatch.setattr(journal, "_write", crashing)
    if step == "rename":
        monkeypatch.setattr(type(path), "replace", crash)
    if step == "folder":
        monkeypatch.setattr(journal, "sync", crash)
    with pytest.raises(Crash):
        Ledger(path).debit(SMALL, "four")
    monkeypatch.undo()
    written = ["one", "two", "three", *(["four"] if step != "line" else [])]
    assert [entry.purpose for entry in Ledger(path).entries] == written
    Ledger(path).debit(SMALL, "five")
    assert [entry.purpose for entry in Ledger(path).entries] == [*written, "five"]
    assert Ledger(path).n_incomplete == (step == "line")


def test_the_head_stands_beside_the_file_that_a_link_leads_to(path, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "link").symlink_to(path)
    Ledger(folder / "link").debit(SMALL, "four")
    assert [one.name for one in folder.iterdir()] == ["link"]
    assert json.loads(head_of(path).read_text())["n_lines"] == 4


def test_a_hard_link_whose_head_stayed_back_is_read(path, tmp_path):
    os.link(path, tmp_path / "second")
    Ledger(tmp_path / "second").debit(SMALL, "four")
    assert len(Ledger(path).entries) == 4


# --- incomplete lines ------------------------------------------------------------------------------------------------


def test_a_line_that_a_crash_cut_off_is_dropped_and_counted(path):
    path.write_bytes(path.read_bytes() + lines_of(path)[-1][:-20])
    assert Ledger(path).n_incomplete == 1
    assert len(Ledger(path).entries) == 3
    Ledger(path).debit(SMALL, "four")
    assert [entry.purpose for entry in Ledger(path).entries] == ["one", "two", "three", "four"]
    assert Ledger(path).n_incomplete == 1  # for good: the ledger records it


def test_a_lost_newline_is_not_an_incomplete_line(path):
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    Ledger(path).debit(SMALL, "four")
    assert (len(Ledger(path).entries), Ledger(path).n_incomplete) == (4, 0)


# --- receipts --------------------------------------------------------------------------------------------------------


def test_a_receipt_states_the_hash_of_its_entry(path):
    receipt = Ledger(path).debit(SMALL, "four")
    assert receipt.head == Head(4, json.loads(lines_of(path)[-1])["chain"])
    Ledger(path).debit(SMALL, "five")
    assert Ledger(path).passes(receipt.head)


@pytest.mark.parametrize("loss", ["deleted", "emptied", "cut", "replaced"])
@pytest.mark.parametrize("carry", [lambda ledger: ledger, lambda ledger: pickle.loads(pickle.dumps(ledger))])
def test_no_total_is_stated_without_what_was_debited_here(path, tmp_path, loss, carry):
    """With the head gone too, only the ledger object itself knows what must be there."""
    ledger = Ledger(path)
    ledger.debit(SMALL, "four")
    ledger = carry(ledger)
    head_of(path).unlink()
    if loss == "deleted":
        path.unlink()
    elif loss == "replaced":
        path.unlink()
        for name in ("a", "b", "c", "d", "e"):
            Ledger(path).debit(SMALL, name)
    else:
        path.write_bytes(HEADER if loss == "emptied" else b"".join(lines_of(path)[:-1]))
    uses = (lambda: ledger.entries, lambda: ledger.epsilon(1e-5), lambda: ledger.head, lambda: ledger.check(SMALL))
    for use in uses:
        with pytest.raises(DamagedLedgerError, match="no total can be stated"):
            use()
    with pytest.raises(FairveilError):
        ledger.debit(SMALL, "five")


def test_a_ledger_stays_where_it_was_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("people.ledger.jsonl")
    ledger.debit(SMALL, "one")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    ledger.debit(SMALL, "two")
    assert len(Ledger(tmp_path / "people.ledger.jsonl").entries) == 2
    assert not any((tmp_path / "below").iterdir())


def test_a_name_too_long_for_its_head_is_refused_first(tmp_path):
    """A name that leaves no space for the ending of its head is refused before a line is written."""
    path = tmp_path / ("x" * 250)
    with pytest.raises(BadStructureError, match="File name too long"):
        Ledger(path).debit(SMALL, "one")
    assert not path.exists() or path.read_bytes() == b""


def test_the_note_of_a_result_is_chained_and_costs_nothing(path):
    ledger = Ledger(path)
    before, spent = ledger.head, ledger.epsilon(1e-5)
    ledger.record_result("ab" * 32, "2026-11-16T12:00:00+00:00")
    line = json.loads(path.read_bytes().splitlines()[-1])
    assert (line["kind"], line["summary"], line["at"]) == ("result", "ab" * 32, "2026-11-16T12:00:00+00:00")
    again = Ledger(path)
    assert again.passes(before) and again.head.n_lines == before.n_lines + 1
    assert again.epsilon(1e-5) == spent and again.n_incomplete == 0
    path.write_bytes(path.read_bytes().replace(b"ab" * 32, b"ac" * 32))
    with pytest.raises(DamagedLedgerError):
        Ledger(path).entries  # noqa: B018 (reading is what fails)
