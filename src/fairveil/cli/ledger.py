"""`fairveil ledger show` and `fairveil ledger budget`."""

from pathlib import Path

from fairveil._validation import check_number
from fairveil.accounting.composition import NeighboringRelation
from fairveil.accounting.events import to_dict
from fairveil.cli._files import say
from fairveil.errors import BadStructureError
from fairveil.privacy.ledger import Budget, Ledger
from fairveil.report.formatting import finite
from fairveil.report.privacy_text import budget_text, ledger_text


def show(file: Path, delta: float, as_json: bool) -> None:
    """Print every debit and the composed total."""
    check_number("delta", delta, below=1)
    if not file.is_file():
        raise BadStructureError(f"Expected a ledger file, got none at {file}.")
    ledger = Ledger(file)
    entries, allowed = [], ledger.budget
    for entry in ledger.entries:
        charges = [
            {
                "split": charge.split,
                "part": charge.part or "all",
                "unit": charge.unit,
                "event": to_dict(charge.event),
            }
            for charge in entry.charges
        ]
        entries.append({"at": entry.at, "purpose": entry.purpose, "details": dict(entry.details), "charges": charges})
    facts = {
        "ledger": str(file),
        "delta": delta,
        "epsilon_spent_total": finite(ledger.epsilon(delta)),
        "epsilon_spent_total_replace_one": finite(ledger.epsilon(delta, NeighboringRelation.REPLACE_ONE)),
        "unit": " and ".join(ledger.units) or None,
        "budget": None if allowed is None else {"epsilon": allowed.epsilon, "delta": allowed.delta},
        "entries": entries,
    }
    say(as_json, facts, ledger_text(facts))


def budget(file: Path, epsilon: float, delta: float, as_json: bool) -> None:
    """Put a budget in force."""
    Ledger(file).set_budget(Budget(epsilon, delta))
    allowed = {"epsilon": epsilon, "delta": delta}
    text = budget_text(str(file), allowed, Ledger(file).epsilon(delta))
    say(as_json, {"ledger": str(file), "budget": allowed}, text)
