"""Several processes at one ledger: nothing is lost, a budget is never exceeded, all names of a file are one ledger."""

import json
import os
from collections import Counter

import pytest

from fairveil.accounting.events import ApproximateDP, Charge, GaussianRelease
from fairveil.errors import BudgetExceededError
from fairveil.privacy.ledger import Budget, Ledger

N_PROCESSES = 8
REFUSED = 7


def at_once(works):
    """Run each work in a process of its own, all let go at the same moment, and return their exit codes."""
    wait_end, go_end = os.pipe()
    children = []
    for work in works:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(go_end)
                os.read(wait_end, 1)  # returns when the parent closes its end
                work()
                code = 0
            except BudgetExceededError:
                code = REFUSED
            finally:
                os._exit(code)
        children.append(child)
    os.close(wait_end)
    os.close(go_end)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


@pytest.mark.parametrize("n_fitting", [1, 3])
def test_a_budget_race_lets_exactly_those_through_that_fit(tmp_path, n_fitting):
    path = tmp_path / "ledger"
    Ledger(path, budget=Budget(float(n_fitting), 1e-5))
    codes = at_once([lambda: Ledger(path).debit([Charge(ApproximateDP(1.0))], "one unit")] * N_PROCESSES)
    assert Counter(codes) == {0: n_fitting, REFUSED: N_PROCESSES - n_fitting}
    assert len(Ledger(path).entries) == n_fitting
    assert n_fitting - 0.01 < Ledger(path).epsilon(1e-5) <= n_fitting


def test_all_names_of_a_file_lead_to_one_ledger(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "link").symlink_to(tmp_path / "ledger")
    (tmp_path / "folder").symlink_to(tmp_path / "below")
    names = ["ledger", str(tmp_path / "ledger"), "below/link", "folder/link", "below/../ledger", "./ledger"]

    def debit(name):
        for number in range(5):
            Ledger(name).debit([Charge(GaussianRelease(50.0))], f"{name} {number}")

    assert at_once([lambda name=name: debit(name) for name in names]) == [0] * len(names)
    entries = Ledger("ledger").entries
    assert sorted(entry.purpose for entry in entries) == sorted(f"{name} {n}" for name in names for n in range(5))
    head = json.loads((tmp_path / "ledger.head").read_text())
    assert head["n_lines"] == len(entries) == 30
    assert sorted(one.name for one in tmp_path.iterdir()) == ["below", "folder", "ledger", "ledger.head"]
