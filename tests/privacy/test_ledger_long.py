"""Ledgers of many entries: the same total by a quicker way, and nothing beside the ledger that could state another."""

import math

import pytest

from fairveil.accounting.composition import NeighboringRelation, epsilon_of
from fairveil.accounting.events import (
    Charge,
    DiscreteGaussianRelease,
    GaussianRelease,
    PoissonSampled,
    Repeated,
    UnpricedChoice,
)
from fairveil.errors import BudgetExceededError
from fairveil.privacy import ledger as ledgers
from fairveil.privacy.ledger import FEW_ENTRIES, Budget, Ledger, total_epsilon

DELTA = 1e-5
STEPS = Repeated(PoissonSampled(0.1, GaussianRelease(7.0)), 300)


def fit(n):
    return [Charge(STEPS, f"fit {n}", "train"), Charge(DiscreteGaussianRelease(3.7), f"fit {n}", "holdout")]


def charges_of(n_fits):
    return [charge for n in range(n_fits) for charge in fit(n)]


@pytest.fixture
def path(tmp_path):
    """A ledger of 40 fits."""
    place, ledger = tmp_path / "people.ledger.jsonl", Ledger(tmp_path / "people.ledger.jsonl")
    for n in range(40):
        ledger.debit(fit(n), "a fit")
    return place


def test_few_entries_are_priced_exactly_as_a_plan(monkeypatch):
    monkeypatch.setattr(ledgers, "epsilon_by_kinds", None)
    for n_fits in (1, 2, FEW_ENTRIES):
        assert total_epsilon(charges_of(n_fits), DELTA) == epsilon_of(charges_of(n_fits), DELTA)


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_many_entries_cost_what_they_cost_on_one_grid(path, relation):
    full = total_epsilon(charges_of(40), DELTA, relation, one_grid=True)
    assert full == epsilon_of(charges_of(40), DELTA, relation)
    assert full * (1 - 3e-4) <= Ledger(path).epsilon(DELTA, relation) <= full * 1.005


def test_the_total_grows_with_every_entry_across_the_change_of_way():
    totals = [total_epsilon(charges_of(n_fits), DELTA) for n_fits in range(1, 2 * FEW_ENTRIES)]
    assert totals == sorted(totals)


def test_a_long_ledger_without_a_price_states_no_total(path):
    Ledger(path).debit([Charge(UnpricedChoice("a search"))], "a search")
    assert Ledger(path).epsilon(DELTA) == math.inf


def test_a_budget_holds_on_a_long_ledger(path):
    ledger = Ledger(path)
    spent, after = ledger.epsilon(DELTA), total_epsilon(charges_of(41), DELTA)
    ledger.set_budget(Budget((spent + after) / 2, DELTA))
    for refuse in (lambda: ledger.check(fit("next")), lambda: ledger.debit(fit("next"), "one too many")):
        with pytest.raises(BudgetExceededError, match="already spent"):
            refuse()
    assert len(Ledger(path).entries) == 40
    ledger.set_budget(Budget(after * (1 + 1e-6), DELTA))
    ledger.debit(fit("next"), "one more")
    with pytest.raises(BudgetExceededError):
        ledger.debit(fit("last"), "one too many")


@pytest.mark.attack
def test_nothing_beside_a_ledger_can_lower_its_total(path):
    """Totals are computed from the chained lines alone: no file holds one, and forged files are not read."""
    ledger = Ledger(path)
    total = ledger.epsilon(DELTA)
    ledger.set_budget(Budget(total, DELTA))
    assert {place.name for place in path.parent.iterdir()} == {path.name, f"{path.name}.head"}
    for name in ("cache", "total", "composed", "npz", "head.new"):
        path.with_name(f"{path.name}.{name}").write_text('{"epsilon_spent_total": 0, "infinite": 0, "masses": [1]}')
    assert Ledger(path).epsilon(DELTA) == total
    with pytest.raises(BudgetExceededError):
        Ledger(path).debit(fit("next"), "one too many")


@pytest.mark.attack
def test_what_is_remembered_in_a_process_belongs_to_the_very_lines(tmp_path):
    """Two ledgers that differ in one number of one entry have totals of their own."""
    totals = []
    for noise in (7.0, 3.0):
        ledger = Ledger(tmp_path / f"{noise}.jsonl")
        for n in range(30):
            ledger.debit(fit(n), "a fit")
        ledger.debit([Charge(GaussianRelease(noise), "other", "part")], "another")
        totals.append(ledger.epsilon(DELTA))
    assert totals[0] * 1.002 < totals[1]
