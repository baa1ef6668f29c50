"""`fairveil ledger show` and `fairveil ledger budget`, and what a ledger says to a run beforehand."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fairveil._validation import check_delta
from fairveil.accounting.composition import NeighboringRelation
from fairveil.accounting.events import Charge, to_dict
from fairveil.cli._outputs import say
from fairveil.errors import BadStructureError
from fairveil.privacy.ledger import Budget, Entry, Ledger, units_of
from fairveil.report.privacy_text import neighbour_of_unit


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
        "epsilon_spent_total": _finite(ledger.epsilon(delta)),
        "epsilon_spent_total_replace_one": _finite(ledger.epsilon(delta, NeighboringRelation.REPLACE_ONE)),
        "unit": " and ".join(ledger.units) or None,
        "budget": None if allowed is None else {"epsilon": allowed.epsilon, "delta": allowed.delta},
        "entries": [_entry(entry) for entry in entries],
    }
    say(as_json, facts, _text(facts))


def budget(file: Path, epsilon: float, delta: float, as_json: bool) -> None:
    """Put a budget in force."""
    Ledger(file).set_budget(Budget(epsilon, delta))
    facts = {"ledger": str(file), "budget": {"epsilon": epsilon, "delta": delta}}
    spent = Ledger(file).epsilon(delta)
    text = f"From now on at most epsilon {epsilon:g} at delta {delta:g} can be spent through {file}."
    if spent > epsilon:
        text += f"\n  caution    {spent:.4g} is spent already: whatever costs more will be refused"
    say(as_json, facts, text)


def mixing(file: Path, charges: Iterable[Charge]) -> list[str]:
    """Return a caution where a ledger that has a total would lose it by charges that hide something else."""
    past, planned = Ledger(file).units if file.is_file() else (), units_of(charges)
    if len(past) != 1 or not planned or planned == past:
        return []
    return [
        f"The ledger {file.name} hides {' and '.join(past)}, this run would hide {' and '.join(planned)}: they "
        "have no common total, and after this run none could be stated any more."
    ]


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


def _why(unit: str | None) -> str:
    if unit is not None and " and " in unit:
        return f"its entries hide different units ({unit})"
    return "something was released or chosen outside the accounting, or delta is below what it can state"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _text(facts: dict[str, Any]) -> str:
    total, allowed = facts["epsilon_spent_total"], facts["budget"]
    lines = [f"Debits in {facts['ledger']}: {len(facts['entries'])}"]
    for entry in facts["entries"]:
        epsilon = entry["details"].get("epsilon")
        cost = "" if epsilon is None else f"  (epsilon {epsilon:g}, delta {entry['details'].get('delta'):g})"
        lines.append(f"  {entry['at']}  {entry['purpose']}{cost}")
    neighbour = neighbour_of_unit(facts["unit"] or "unit")
    if total is None:
        lines.append(f"  total: no bound can be stated; {_why(facts['unit'])}")
    else:
        replaced = facts["epsilon_spent_total_replace_one"]
        lines.append(
            f"  total: epsilon {total:.4f} at delta {facts['delta']:g} ({neighbour.moved}); "
            f"{'no bound can be stated' if replaced is None else f'{replaced:.4f}'} ({neighbour.replaced})"
        )
    if allowed is not None:
        lines.append(f"  budget: epsilon {allowed['epsilon']:g} at delta {allowed['delta']:g}")
    return "\n".join(lines)
