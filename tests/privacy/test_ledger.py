import copy
import json
import os
import pickle
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sklearn.base import clone

from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.events import ApproximateDP, Charge, GaussianRelease
from fairveil.errors import BadStructureError, BudgetExceededError, DamagedLedgerError, SealedLedgerError
from fairveil.privacy.ledger import Budget, Ledger, session_ledger

SMALL = [Charge(GaussianRelease(20.0))]


@pytest.fixture(params=["memory", "file"])
def ledger(request, tmp_path):
    return Ledger(None if request.param == "memory" else tmp_path / "people.ledger")


def test_total_is_the_composed_total(ledger):
    for _ in range(4):
        ledger.debit(SMALL, "a mean")
    assert ledger.epsilon(1e-5) == pytest.approx(epsilon_of([GaussianRelease(10.0)], 1e-5), rel=1e-3)
    assert len(ledger.entries) == 4
    assert ledger.entries[0].purpose == "a mean"


def test_replay_from_disk_equals_the_live_ledger(tmp_path):
    live = Ledger(tmp_path / "ledger")
    live.debit([Charge(ApproximateDP(0.3), "s", "train"), Charge(ApproximateDP(0.2), "s", "holdout")], "parts")
    live.debit(SMALL, "whole")
    again = Ledger(tmp_path / "ledger")
    assert again.entries == live.entries
    assert again.epsilon(1e-5) == live.epsilon(1e-5)


def test_budget_refuses_before_anything_is_debited(ledger):
    ledger.set_budget(Budget(1.0, 1e-5))
    ledger.debit([Charge(ApproximateDP(0.7))], "first")
    with pytest.raises(BudgetExceededError, match="at most 1 at delta"):
        ledger.check([Charge(ApproximateDP(0.7))])
    with pytest.raises(BudgetExceededError, match="nothing was released"):
        ledger.debit([Charge(ApproximateDP(0.7))], "second")
    assert len(ledger.entries) == 1
    ledger.debit([Charge(ApproximateDP(0.3))], "what is left")


def test_a_budget_in_a_file_binds_all_later_users(tmp_path):
    Ledger(tmp_path / "ledger", budget=Budget(0.5, 1e-5))
    with pytest.raises(BudgetExceededError):
        Ledger(tmp_path / "ledger").debit([Charge(ApproximateDP(0.6))], "too much")


def test_an_unpriced_choice_ends_all_claims(ledger):
    ledger.debit(SMALL, "a mean")
    ledger.debit_unpriced("picked by looking")
    assert ledger.epsilon(1e-5) == float("inf")


@pytest.mark.parametrize("take", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_are_sealed(ledger, take):
    sealed = take(ledger)
    with pytest.raises(SealedLedgerError, match="n_jobs=1"):
        sealed.debit(SMALL, "lost")
    assert pickle.dumps(sealed) == pickle.dumps(ledger)  # copies by identity, so scikit-learn sees no change


def test_clones_share_the_ledger(ledger):
    assert clone(ledger) is ledger


def test_a_forked_child_cannot_spend_from_memory():
    ledger = Ledger()
    child = os.fork()
    if child == 0:
        try:
            ledger.debit(SMALL, "lost")
        except SealedLedgerError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_session_ledger_is_one_per_process():
    assert session_ledger() is session_ledger()


def test_two_writers_lose_nothing(tmp_path):
    path = tmp_path / "ledger"

    def write(_):
        Ledger(path).debit(SMALL, "a mean")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(40)))
    assert len(Ledger(path).entries) == 40


def test_a_last_line_cut_off_by_a_crash_is_dropped(tmp_path):
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    ledger.debit(SMALL, "one")
    ledger.debit(SMALL, "two")
    path.write_bytes(path.read_bytes()[:-20])
    path.with_name("ledger.head").unlink()  # without a head, a cut cannot be told from a crash
    assert [entry.purpose for entry in Ledger(path).entries] == ["one"]
    Ledger(path).debit(SMALL, "three")
    assert [entry.purpose for entry in Ledger(path).entries] == ["one", "three"]


def test_an_entry_that_lost_only_its_newline_counts(tmp_path):
    """Editors and shells strip the last newline; the entry before it was made and must not be forgotten."""
    path = tmp_path / "ledger"
    for name in ("one", "two"):
        Ledger(path).debit(SMALL, name)
        path.write_bytes(path.read_bytes().rstrip(b"\n"))
        assert Ledger(path).entries[-1].purpose == name
    Ledger(path).debit(SMALL, "three")
    assert [entry.purpose for entry in Ledger(path).entries] == ["one", "two", "three"]
    assert path.read_bytes().count(b"\n") == 4


def test_a_line_nested_without_end_is_damage(tmp_path):
    path = tmp_path / "ledger"
    Ledger(path).debit(SMALL, "one")
    path.write_bytes(path.read_bytes() + b"[" * 100_000 + b"\n")
    with pytest.raises(DamagedLedgerError, match="line 3"):
        _ = Ledger(path).entries


@pytest.mark.parametrize("spoil", ["change", "delete", "garbage"])
def test_other_damage_is_reported_with_its_line(tmp_path, spoil):
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    for name in ("one", "two", "three"):
        ledger.debit(SMALL, name)
    lines = path.read_bytes().splitlines(keepends=True)
    if spoil == "change":
        lines[2] = lines[2].replace(b"20.0", b"90.0")
    elif spoil == "delete":
        del lines[2]
    else:
        lines[2] = b"\x00\xff not json\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(DamagedLedgerError, match="line 3"):
        _ = Ledger(path).entries


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\n")
    for content in ("dear diary\n", "dear diary", "{}", '{"fairveil', '{"fairveil_ledger": 2}\n'):
        path.write_text(content)
        if not content.startswith('{"fairveil') or "2" in content:
            with pytest.raises(DamagedLedgerError, match="another kind of file"):
                Ledger(path).debit(SMALL, "x")
            assert path.read_text() == content


def test_an_unwritable_place_is_refused(tmp_path):
    with pytest.raises(BadStructureError, match="--ledger"):
        Ledger(tmp_path / "no" / "such" / "folder").debit(SMALL, "x")


def release_for_ever(path, releases):
    """Debit, then release (one byte into a file), as fast as can be."""
    ledger = Ledger(path)
    file = os.open(releases, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    while True:
        ledger.debit(SMALL, "a release")
        os.write(file, b"x")


@pytest.mark.slow
def test_kill_at_any_moment_never_under_counts(tmp_path, rng):
    """A real process that debits and releases without pause is killed 60 times, at random moments."""
    path, releases = tmp_path / "ledger", tmp_path / "releases"
    releases.touch()
    for n_kills in range(1, 61):
        n_before, child = releases.stat().st_size, os.fork()
        if child == 0:
            release_for_ever(path, releases)
        while releases.stat().st_size <= n_before:  # on a busy machine the process may start late
            time.sleep(0.001)
        time.sleep(rng.uniform(0.0, 0.025))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        n_released, n_booked = releases.stat().st_size, len(Ledger(path).entries)
        assert n_released <= n_booked <= n_released + n_kills
    assert n_released >= 60


def test_the_journal_is_plain_json_lines(tmp_path):
    Ledger(tmp_path / "ledger").debit(SMALL, "a mean")
    line = json.loads((tmp_path / "ledger").read_text().splitlines()[1])
    assert line["charges"][0]["event"]["noise_multiplier"] == 20.0


def test_different_units_have_no_common_total(ledger):
    ledger.debit([Charge(ApproximateDP(0.1), unit="person by pid")], "persons")
    assert ledger.epsilon(1e-5) == pytest.approx(0.1, rel=1e-3)
    ledger.debit_unpriced("a look")
    assert ledger.units == ("person by pid",)
    ledger.debit([Charge(ApproximateDP(0.1), unit="person by visit")], "visits")
    assert ledger.epsilon(1e-5) == float("inf")
    ledger.set_budget(Budget(5.0, 1e-5))
    with pytest.raises(BudgetExceededError, match="person by pid and person by visit"):
        ledger.check([Charge(ApproximateDP(0.1), unit="person by pid")])
