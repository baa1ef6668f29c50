"""`fairveil ledger show`, `fairveil ledger verify` and `fairveil ledger budget`."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairveil._reading import read_bounded
from fairveil._validation import check_number
from fairveil.accounting.composition import NeighboringRelation
from fairveil.accounting.events import to_dict
from fairveil.cli._terminal import say
from fairveil.errors import BadStructureError, DamagedLedgerError, FairveilError
from fairveil.privacy.journal import Head
from fairveil.privacy.ledger import DEFAULT_DELTA, Budget, Ledger, total_epsilon
from fairveil.report.formatting import finite
from fairveil.report.privacy_text import (
    budget_text,
    incomplete_lines_caution,
    ledger_text,
    verified_text,
)

MAX_SUMMARY_BYTES = 64 * 2**20
"""A larger file is no summary."""

AGREEMENT = 0.02
"""How far the total of many entries, kind by kind, may be from the one on one grid; both are upper bounds."""

MEANINGLESS = 1000.0
"""An epsilon above this protects nobody; memory then limits the one grid, which is no longer exact."""


def show(file: Path, delta: float, as_json: bool) -> None:
    """Print every debit and the composed total."""
    check_number("delta", delta, below=1)
    ledger = existing_ledger(file)
    facts = ledger.facts(delta)
    for shown, entry in zip(facts["entries"], ledger.entries, strict=False):  # others may debit meanwhile
        shown["charges"] = [
            {
                "split": charge.split,
                "part": charge.part or "all",
                "unit": charge.unit,
                "event": to_dict(charge.event),
            }
            for charge in entry.charges
        ]
    say(as_json, facts, ledger_text(facts))


def verify(file: Path, summary: list[Path] | None, as_json: bool) -> None:
    """Check a ledger line by line, against its head and summaries that were written with it, and its total in full."""
    ledger = existing_ledger(file)
    head, budget = ledger.head, _budget_facts(ledger)
    for path in summary or ():
        check_ledger(ledger, path)
    delta = DEFAULT_DELTA if budget is None else budget["delta"]
    totals = [_checked_totals(ledger, delta, relation) for relation in NeighboringRelation]
    facts = {
        "ledger": str(file),
        "n_lines": 0 if head is None else head.n_lines,
        "n_debits": len(ledger.entries),
        "has_head": ledger.has_head_file,
        "head": None if head is None else asdict(head),
        "delta": delta,
        "epsilon_spent_total": finite(totals[0][0]),
        "epsilon_spent_total_replace_one": finite(totals[1][0]),
        "epsilon_on_one_grid": finite(totals[0][1]),
        "epsilon_on_one_grid_replace_one": finite(totals[1][1]),
        "budget": budget,
        "summaries": [str(path) for path in summary or ()],
        "cautions": ledger_cautions(ledger),
    }
    say(as_json, facts, verified_text(facts))


def _checked_totals(ledger: Ledger, delta: float, relation: NeighboringRelation) -> tuple[float, float]:
    """Return the total that every command states, and the one of the slow computation, which must agree."""
    charges = ledger.state().charges
    stated, in_full = total_epsilon(charges, delta, relation), total_epsilon(charges, delta, relation, one_grid=True)
    # too much is never a fault; where replacing has no price of its own, one of two bounds may be infinite
    is_sound = math.isinf(stated) or (relation is NeighboringRelation.REPLACE_ONE and math.isinf(in_full))
    if not (is_sound or math.isclose(min(stated, MEANINGLESS), min(in_full, MEANINGLESS), rel_tol=AGREEMENT)):
        raise FairveilError(
            f"Expected two computations of the total that agree to {AGREEMENT:.0%}, got epsilon {stated:.6g} kind by "
            f"kind and {in_full:.6g} on one grid, which is a fault of this program; rely on the larger one and report "
            "it."
        )
    return stated, in_full


def existing_ledger(file: Path) -> Ledger:
    """Return the ledger of a file, which must be there."""
    ledger = Ledger(file)
    if ledger.head is None and not file.exists():
        raise BadStructureError(f"Expected a ledger file, got none at {file}.")
    return ledger


def _budget_facts(ledger: Ledger) -> dict[str, float] | None:
    return None if ledger.budget is None else asdict(ledger.budget)


def ledger_cautions(ledger: Ledger) -> list[str]:
    """Return what a person should know of a ledger that is sound."""
    n_lines = ledger.n_incomplete
    return [incomplete_lines_caution(n_lines)] if n_lines else []


def check_ledger(ledger: Ledger, path: Path) -> None:
    """Refuse a ledger that does not continue the one that a summary was written with."""
    if not ledger.passes(_summary_head(path)):
        raise DamagedLedgerError(
            f"Expected a ledger that {path} was written with, got one without the lines of that time in {ledger.path}; "
            "name the ledger of that run, or restore this one from a backup."
        )


def _summary_head(path: Path) -> Head:
    """Return the head of the ledger that a summary was written with."""
    try:
        head: Any = json.loads(read_bounded(path, "the summary.json of a run", MAX_SUMMARY_BYTES))["ledger"]["head"]
        return Head(int(head["n_lines"]), str(head["chain"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BadStructureError(
            f"Expected a summary.json that states the head of its ledger, got none at {path}; name one that a "
            "training of this version wrote."
        ) from None


def budget(file: Path, epsilon: float, delta: float, as_json: bool) -> None:
    """Put a budget in force; all entries are read and priced before it is written."""
    ledger, allowed = Ledger(file), Budget(epsilon, delta)
    spent = ledger.epsilon(delta)
    ledger.set_budget(allowed)
    text = budget_text(str(file), asdict(allowed), spent)
    say(as_json, {"ledger": str(file), "budget": asdict(allowed)}, text)
