"""`fairveil ledger show` and `fairveil ledger budget`, and what a ledger says to a run beforehand."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fairveil._validation import check_delta
from fairveil.accounting.composition import NeighboringRelation
from fairveil.accounting.events import Charge, to_dict
from fairveil.cli._outputs import say
from fairveil.errors import BadStructureError
from fairveil.privacy.ledger import Budget, Entry, Ledger, units_of
from fairveil.report.formatting import finite
from fairveil.report.privacy_text import budget_text, different_units_caution, ledger_text


def show(file: Path, delta: float, as_json: bool) -> None:
    """Print every debit and the composed total."""
    check_delta(delta)
    if not file.is_file():
        raise BadStructureError(f"Expected a ledger file, got none at {file}.")
    ledger = Ledger(file)
    entries, allowed = ledger.entries, ledger.budget
    facts = {
        "ledger": str(file),
        "delta": delta,
        "epsilon_spent_total": finite(ledger.epsilon(delta)),
        "epsilon_spent_total_replace_one": finite(ledger.epsilon(delta, NeighboringRelation.REPLACE_ONE)),
        "unit": " and ".join(ledger.units) or None,
        "budget": None if allowed is None else {"epsilon": allowed.epsilon, "delta": allowed.delta},
        "entries": [_entry(entry) for entry in entries],
    }
    say(as_json, facts, ledger_text(facts))


def budget(file: Path, epsilon: float, delta: float, as_json: bool) -> None:
    """Put a budget in force."""
    Ledger(file).set_budget(Budget(epsilon, delta))
    allowed = {"epsilon": epsilon, "delta": delta}
    text = budget_text(str(file), allowed, Ledger(file).epsilon(delta))
    say(as_json, {"ledger": str(file), "budget": allowed}, text)


def mixing(file: Path, charges: Iterable[Charge]) -> list[str]:
    """Return a caution where a ledger that has a total would lose it by charges that hide something else."""
    past, planned = Ledger(file).units if file.is_file() else (), units_of(charges)
    if len(past) != 1 or not planned or planned == past:
        return []
    return [different_units_caution(file.name, past, planned)]


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "at": entry.at,
        "purpose": entry.purpose,
        "details": dict(entry.details),
        "charges": [
            {
                "split": charge.split,
                "part": charge.part or "all",
                "unit": charge.unit,
                "event": to_dict(charge.event),
            }
            for charge in entry.charges
        ],
    }
