"""A ledger in a bad place, a busy one, and forged ones: one sentence, nothing released, nobody waits for ever."""

import errno
import fcntl
import json
import os

import pytest

from fairveil.accounting.events import Charge, GaussianRelease, Repeated
from fairveil.errors import BadStructureError, DamagedLedgerError, FairveilError, InvalidParameterError
from fairveil.privacy import journal
from fairveil.privacy.journal import link
from fairveil.privacy.ledger import Budget, Ledger
from fairveil.report.privacy_text import ledger_text

SMALL = [Charge(GaussianRelease(20.0))]


def refusal_of(path, uses=("entries", "debit", "budget")):
    """Assert that every use is refused in one sentence, and return the last one."""
    sentence = ""
    for use in uses:
        with pytest.raises(FairveilError) as refusal:
            if use == "debit":
                Ledger(path).debit(SMALL, "x")
            elif use == "budget":
                Ledger(path).set_budget(Budget(1.0, 1e-5))
            else:
                _ = Ledger(path).entries
        sentence = str(refusal.value)
        assert "\n" not in sentence and sentence.startswith("Expected ")
    return sentence


# --- places ----------------------------------------------------------------------------------------------------------


def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "regular file" in refusal_of(tmp_path / "pipe")
    Ledger(tmp_path / "ledger").debit(SMALL, "one")
    (tmp_path / "ledger.head").unlink()
    os.mkfifo(tmp_path / "ledger.head")
    assert "regular file" in refusal_of(tmp_path / "ledger")


@pytest.mark.parametrize("place", ["/dev/null", "/dev/zero", "/dev/full", "."])
def test_a_device_or_a_folder_is_refused(place):
    assert "regular file" in refusal_of(place)


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    with open(tmp_path / "large", "wb") as file:
        file.truncate(journal.MAX_BYTES + 1)
    monkeypatch.setattr(journal, "_read", lambda file: pytest.fail("it was read"))
    assert "536,870,912 bytes" in refusal_of(tmp_path / "large")


def test_names_and_folders_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / ("x" * 300), tmp_path / "file" / "ledger", tmp_path / "loop"):
        refusal_of(path)
    refusal_of(tmp_path / "no" / "folder" / "ledger", ("debit", "budget"))


def test_a_current_folder_that_was_deleted(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "No such file" in refusal_of("people.ledger.jsonl")


# --- what the system refuses -----------------------------------------------------------------------------------------


def failing(monkeypatch, module, name, code, is_meant=lambda *arguments: True):
    """Let a call of the system fail as the system does."""
    call = getattr(module, name)

    def replaced(*arguments, **options):
        if is_meant(*arguments):
            raise OSError(code, os.strerror(code))
        return call(*arguments, **options)

    monkeypatch.setattr(module, name, replaced)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EIO, errno.ENOTSUP])
def test_a_file_system_without_locks(tmp_path, monkeypatch, code):
    failing(monkeypatch, fcntl, "flock", code)
    assert os.strerror(code) in refusal_of(tmp_path / "ledger", ("debit", "budget"))
    assert (tmp_path / "ledger").read_bytes() == b""


@pytest.mark.parametrize(("name", "code"), [("write", errno.ENOSPC), ("fsync", errno.EIO), ("fsync", errno.EDQUOT)])
def test_a_full_or_broken_disk(tmp_path, monkeypatch, name, code):
    failing(monkeypatch, os, name, code)
    sentence = refusal_of(tmp_path / "ledger", ("debit",))
    assert os.strerror(code) in sentence and "nothing was released" in sentence
    monkeypatch.undo()
    Ledger(tmp_path / "ledger").debit(SMALL, "later")
    assert Ledger(tmp_path / "ledger").entries[-1].purpose == "later"


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written_is_found_before_the_entry(tmp_path, monkeypatch, code):
    """The ledger itself could be written, but not its head."""
    path = tmp_path / "ledger"
    Ledger(path).debit(SMALL, "one")
    before = path.read_bytes()
    failing(monkeypatch, os, "open", code, lambda path, *flags: str(path).endswith(".new"))
    assert os.strerror(code) in refusal_of(path, ("debit", "budget"))
    assert path.read_bytes() == before
    assert len(Ledger(path).entries) == 1


# --- locks -----------------------------------------------------------------------------------------------------------


def test_a_lock_that_somebody_holds_ends_in_a_sentence(tmp_path, monkeypatch):
    path = tmp_path / "ledger"
    Ledger(path).debit(SMALL, "one")
    monkeypatch.setattr(journal, "LOCK_SECONDS", 0.0)
    with open(path) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert "another program holds" in refusal_of(path)
        fcntl.flock(other, fcntl.LOCK_SH)
        assert len(Ledger(path).entries) == 1  # readers do not exclude each other
        assert "nothing was released" in refusal_of(path, ("debit", "budget"))
    Ledger(path).debit(SMALL, "two")


def test_a_file_that_takes_the_place_of_a_locked_one_is_used(tmp_path, monkeypatch):
    """An editor saves by renaming: whoever waited for the old file must not write into it."""
    path = tmp_path / "ledger"
    Ledger(path).debit(SMALL, "one")
    lock, swaps = journal._lock, []

    def swapped(*arguments):
        lock(*arguments)
        if not swaps:
            swaps.append(1)
            (tmp_path / "copy").write_bytes(path.read_bytes())
            os.replace(tmp_path / "copy", path)

    monkeypatch.setattr(journal, "_lock", swapped)
    Ledger(path).debit(SMALL, "two")
    assert len(Ledger(path).entries) == 2


# --- forged ledgers: every hash is right -----------------------------------------------------------------------------


def forge(path, *lines):
    """Write lines with the right hashes and without a head."""
    chains, texts = [], [journal.HEADER.decode()]
    for line in lines:
        chains.append(link(chains, line))
        texts.append(json.dumps({**line, "chain": chains[-1]}) + "\n")
    path.write_text("".join(texts))


def nested(depth):
    event = {"event_kind": "GaussianRelease", "noise_multiplier": 1.0}
    for _ in range(depth):
        event = {"event_kind": "Repeated", "event": event, "count": 1}
    return event


DEBIT = {"kind": "debit", "purpose": "x", "details": {}, "charges": [], "at": "2026-01-01"}
CHARGE = {"event": nested(0), "split": "", "part": "", "unit": "record"}
FORGED = {
    "no kind": {},
    "kind of another type": {"kind": ["debit"]},
    "unknown kind": {"kind": "gift"},
    "no charges": {name: value for name, value in DEBIT.items() if name != "charges"},
    "charges that are a number": DEBIT | {"charges": 3},
    "charges that are null": DEBIT | {"charges": None},
    "charges that are texts": DEBIT | {"charges": ["x"]},
    "purpose of another type": DEBIT | {"purpose": {"a": 1}},
    "time of another type": DEBIT | {"at": 7},
    "details of another type": DEBIT | {"details": [1]},
    "epsilon that is a text": DEBIT | {"details": {"epsilon": "1"}},
    "epsilon that is a list": DEBIT | {"details": {"epsilon": [1], "delta": 1e-5}},
    "event that is null": DEBIT | {"charges": [CHARGE | {"event": None}]},
    "event kind of another type": DEBIT | {"charges": [CHARGE | {"event": {"event_kind": []}}]},
    "releases that are a number": DEBIT | {"charges": [CHARGE | {"event": {"event_kind": "Joint", "releases": 3}}]},
    "ways that are numbers": DEBIT
    | {"charges": [CHARGE | {"event": {"event_kind": "BestOfRuns", "ways": [3], "mean": 2.0}}]},
    "unit that is a number": DEBIT | {"charges": [CHARGE | {"unit": 3}]},
    "count beyond any double": DEBIT
    | {"charges": [CHARGE | {"event": {"event_kind": "Repeated", "event": nested(0), "count": 10**400}}]},
    "count of a count": DEBIT
    | {"charges": [CHARGE | {"event": {"event_kind": "Repeated", "event": nested(0), "count": 10**14}}]},
    "noise beyond any use": DEBIT
    | {"charges": [CHARGE | {"event": {"event_kind": "GaussianRelease", "noise_multiplier": 1e-300}}]},
    "budget that is a text": {"kind": "budget", "epsilon": "1", "delta": 1e-5},
    "budget without delta": {"kind": "budget", "epsilon": 1.0},
    "budget beyond any double": {"kind": "budget", "epsilon": 10**400, "delta": 1e-5},
    "deep": DEBIT | {"charges": [CHARGE | {"event": nested(60)}]},
    "very deep": DEBIT | {"charges": [CHARGE | {"event": nested(200)}]},
}


@pytest.mark.parametrize("line", FORGED.values(), ids=FORGED)
def test_a_forged_line_of_a_wrong_form_is_refused(tmp_path, line):
    path = tmp_path / "ledger"
    forge(path, DEBIT, line)
    before = path.read_bytes()
    refusal_of(path)
    assert path.read_bytes() == before


def test_a_forged_ledger_of_the_right_form_is_read(tmp_path):
    """The hashes are a checksum, not a signature."""
    forge(tmp_path / "ledger", DEBIT | {"charges": [CHARGE | {"event": nested(5)}]})
    assert Ledger(tmp_path / "ledger").epsilon(1e-5) > 0


def test_an_entry_that_could_not_be_read_is_not_written(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    for event in (Repeated(GaussianRelease(1.0), 10**14), GaussianRelease(1e-300), GaussianRelease(1e300)):
        with pytest.raises(InvalidParameterError, match="nothing was debited"):
            ledger.debit([Charge(event)], "x")
    assert not (tmp_path / "ledger").exists()


def test_an_entry_with_an_epsilon_and_no_delta_is_shown():
    facts = {"ledger": "x", "entries": [{"at": "now", "purpose": "y", "details": {"epsilon": 1.0}}], "unit": "record"}
    facts |= {"epsilon_spent_total": None, "budget": None, "cautions": []}
    assert "now  y" in ledger_text(facts)


def test_damage_is_an_error_of_its_own(tmp_path):
    forge(tmp_path / "ledger", FORGED["no charges"])
    with pytest.raises(DamagedLedgerError, match="'charges'"):
        _ = Ledger(tmp_path / "ledger").entries
    with pytest.raises(BadStructureError):
        _ = Ledger("/dev/null").entries
