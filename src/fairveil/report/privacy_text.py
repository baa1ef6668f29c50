"""Every sentence about privacy: what is hidden, at what epsilon, what is not hidden, and what a ledger holds.

Functions take plain facts, such as a summary, and return text. They import nothing heavy.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

from fairveil.report.formatting import SPACE, compact, finite

WEAK_EPSILON = 10.0
"""From this epsilon on, a factor of e^epsilon excludes hardly any attack."""

NO_BOUND = "no bound can be stated"
STAYS_SPENT = "any privacy budget already debited remains spent"
UNKNOWN_TOTAL = "The ledger was not loaded with this model, so the cumulative epsilon is unknown."
MIXED_UNITS = (
    "The ledger has entries that protect different units (records, persons, single attributes). They have no common "
    "total, and none can be stated from now on."
)
NOT_COVERED = (
    "What the schema declares public: bounds, cut points, categories, classes, groups, and the size if it is declared.",
    "What follows about a person from the population as a whole, whether or not that person is in the data.",
    "How long anything took.",
    "Whatever was computed from the same rows outside fairveil, or recorded in another ledger.",
    "Several people together: for k of them the bound is k times epsilon, and delta grows by the factor "
    "(e^(k epsilon) - 1) / (e^epsilon - 1).",
    "What decisions about new people reveal about those people.",
)
PUBLIC_HERE = (
    "Features, labels and the number of rows: they are public here and were used without noise. Whether a person is in "
    "the data is not hidden."
)
UNPRICED_SEARCH = (
    "This search compares fits on private rows outside the accounting, so no total can be stated on this ledger from "
    "now on. Use FairClassifier(tune=Tuning(...)), which chooses within the budget, or choose on public data."
)
REVEALING = (
    "What features reveal about {name}: whoever knows a person's features can guess it as well as the two are "
    "correlated, whatever is released here."
)
WRAPPED = (
    "What the {name} that was passed in reveals if its answer for a row depends on other rows. Before anything is "
    "spent it is tried on rows made from the schema; that it treats real rows in the same way is assumed."
)
ACCOUNTANT = (
    "Privacy loss distributions, composed numerically in both directions and rounded to the safe side; everything "
    "released from one batch is one joint event; disjoint subsets, split at random in secret, compose in parallel."
)


@dataclass(frozen=True)
class NeighborWording:
    """How two neighboring data sets differ, in words.

    Attributes
    ----------
    hidden : str
        What is hidden, as a clause.
    moved, replaced : str
        The change that epsilon is about, and the larger one that is stated beside it.
    """

    hidden: str
    moved: str
    replaced: str


def neighbor_wording(facts: Mapping[str, Any]) -> NeighborWording:
    """Return the wording for a run, from its public facts ``protects unit sensitive``, or for a ledger's ``unit``.

    Examples
    --------
    >>> neighbor_wording({"unit": "person by id"}).moved
    'one person by id added or removed'
    >>> neighbor_wording({"unit": "attribute sex of each record"}).moved
    'the sex of one record known or not'
    """
    unit = str(facts["unit"] or "unit")
    if unit.startswith("attribute "):
        name, _, unit = unit.removeprefix("attribute ").rpartition(" of each ")
    elif facts.get("protects") == "attribute":
        name = " and ".join(facts["sensitive"])
    else:
        return NeighborWording(
            f"whether any one {unit} is in the data",
            f"one {unit} added or removed",
            f"one {unit} replaced by another",
        )
    return NeighborWording(
        f"the {name} of any one {unit}",
        f"the {name} of one {unit} known or not",
        f"the {name} of one {unit} changed to another group",
    )


def wrapped_caution(prefitted: str) -> str:
    """Return what a guarantee assumes of a classifier that was fitted elsewhere, for a summary.

    Examples
    --------
    >>> wrapped_caution("Pipeline").split(".")[0]
    'The guarantee assumes that the Pipeline that was passed in answers each row by itself'
    """
    return (
        f"The guarantee assumes that the {prefitted} that was passed in answers each row by itself. It did so on rows "
        "made from the schema; on real rows this cannot be checked."
    )


def privacy_statement(facts: Mapping[str, Any], prefitted: str | None = None) -> dict[str, Any]:
    """Return the sentences on a guarantee: ``covered not_covered accountant sampling``.

    Parameters
    ----------
    facts : mapping
        With ``epsilon epsilon_spent epsilon_replace_one delta protects unit sensitive n_public plan``.
    prefitted : str, optional
        The class of a classifier that was fitted elsewhere, whose own training is not covered.
    """
    not_covered = list(NOT_COVERED)
    if prefitted is not None:
        trained = f"How the {prefitted} that was passed in was trained, and errors it raises on a value."
        not_covered[:0] = [trained, WRAPPED.format(name=prefitted)]
    if facts["epsilon"] is None:
        nothing = "Nothing is hidden: this was computed without noise and is not private."
        return {"covered": [nothing], "not_covered": not_covered, "accountant": "none", "sampling": "none"}
    neighbor, delta = neighbor_wording(facts), facts["delta"]
    public: list[str] = []
    unit, separately = facts["unit"], ""
    if facts.get("protects") == "attribute":
        size = ", even with all features and labels at hand"
        public = [PUBLIC_HERE, REVEALING.format(name=" and ".join(facts["sensitive"]))]
        unit, separately = (
            f"{unit} whose attribute is known",
            ", separately from the batches of features and labels",
        )
    elif facts["n_public"]:
        size = f" (how many there are, {facts['n_public']:,}, is declared public)"
    else:
        size = " (how many there are is not declared, so a noisy count is released)"
    rates = sorted({rate for stage in facts["plan"] for rate in stage["sampling_rates"].values() if rate < 1})
    sampling = f"Every {unit} of a subset is read, so sampling does not amplify privacy."
    if rates:
        sampling = (
            f"Poisson: each {unit} enters each batch independently and in secret, with probability "
            f"{', '.join(f'{rate:.4g}' for rate in rates)}{separately}."
        )
    covered = (
        f"{neighbor.hidden} is hidden from whoever sees everything that fit releases: "
        f"{'the model, ' if prefitted is None else ''}the decision rule, the counts that the certificate is computed "
        f"from, and all that is derived from them{size}.",
        f"{neighbor.moved}: epsilon {facts['epsilon_spent']:.4f} at delta {delta:g}. The probability of any outcome "
        f"changes by at most a factor of e^epsilon = {math.exp(min(facts['epsilon_spent'], 700.0)):.3g}, except with "
        f"probability {delta:g}.",
        f"{neighbor.replaced}: epsilon {facts['epsilon_replace_one']:.4f} at the same delta.",
    )
    return {
        "covered": [sentence[0].upper() + sentence[1:] for sentence in covered],
        "not_covered": [*public, *not_covered],
        "accountant": ACCOUNTANT,
        "sampling": sampling,
    }


def total_sentence(
    total: float | None, replaced: float | None, delta: float, neighbor: NeighborWording, in_memory: bool = False
) -> str:
    """Return the sentence on everything released from a data set: ever, or by a process that keeps no ledger file."""
    released = "ever released from these people by this ledger"
    if in_memory:
        released = "this process released, by a ledger in memory that ends with it"
    if total is None or replaced is None:
        return f"No bound can be stated on everything {released}."
    return (
        f"Everything {released}: epsilon {total:.4f} at delta {delta:g} for {neighbor.moved}, {replaced:.4f} for "
        f"{neighbor.replaced}."
    )


def incomplete_lines_caution(n_lines: int) -> str:
    """Return the caution that lines at the end of a ledger were incomplete; what they contain is never quoted."""
    lines = "1 incomplete line" if n_lines == 1 else f"{n_lines} incomplete lines"
    return (
        f"The ledger dropped {lines} at its end. A crash during a debit leaves such a line, and nothing is released "
        "before its line is complete. If the file may have been cut by anything else, restore it from a backup."
    )


def privacy_promise(epsilon: Any, delta: Any, neighbor: NeighborWording) -> str:
    """Return what epsilon and delta promise, in one sentence."""
    spent = finite(epsilon)
    if spent is None:
        return "No privacy is claimed. Whoever sees the model or this page may learn about single people in the data."
    factor = compact(math.exp(spent), 2) if spent < 700 else "more than 10³⁰⁰"
    promise = (
        f"{neighbor.moved[:1].upper()}{neighbor.moved[1:]} changes the probability of any outcome by at most a factor "
        f"of e^{compact(spent, 3)} = {factor}, plus delta{SPACE}={SPACE}{compact(delta)}."
    )
    return promise if spent < WEAK_EPSILON else f"{promise} So large a factor promises next to nothing."


def spending_lines(facts: Mapping[str, Any]) -> list[str]:
    """Return terminal lines on what a run costs, and on the total if it is known."""
    if facts["epsilon"] is None:
        return ["  epsilon    infinite: no privacy is claimed"]
    neighbor, delta = neighbor_wording(facts), facts["delta"]
    lines = [
        f"  epsilon    {facts['epsilon_spent']:.4f} at delta {delta:g} for {neighbor.moved}; "
        f"{facts['epsilon_replace_one']:.4f} for {neighbor.replaced}"
    ]
    if "epsilon_spent_total" in facts:
        total = epsilon_or_none(facts["epsilon_spent_total"])
        lines.append(f"  ever spent {total} at delta {delta:g}, by everything released from these people")
    return lines


def epsilon_or_none(epsilon: float | None) -> str:
    """Return an epsilon for the terminal; without a bound, that none can be stated."""
    return NO_BOUND if epsilon is None else f"{epsilon:.4f}"


def cover_lines(facts: Mapping[str, Any]) -> list[str]:
    """Return terminal lines on what a planned run would hide and what not."""
    if facts["epsilon"] is None:
        return []
    particular = [one for one in facts["statement"]["not_covered"] if one not in NOT_COVERED]
    return [
        f"  hides      {neighbor_wording(facts).hidden}, from whoever sees all that is written",
        *(f"  not hidden {one[0].lower()}{one[1:].rstrip('.')}" for one in particular),
        "  not hidden timing, the schema (declared public), and what follows from the population as a whole",
    ]


def different_units_caution(ledger: str, past: Sequence[str], planned: Sequence[str]) -> str:
    """Return the caution that a run would end the possibility to state a total."""
    return (
        f"The ledger {ledger} protects {' and '.join(past)}, but this run would protect {' and '.join(planned)}. "
        "The two have no common total, and after this run none could be stated any more."
    )


def other_ledger_caution(other: str) -> str:
    """Return the caution that the same people have entries on another ledger."""
    return (
        f"Another ledger has entries about the same data, which the total does not include. Pass --ledger "
        f"{quote(other)} so that everything released from these people adds up."
    )


def caution_lines(cautions: Sequence[str]) -> list[str]:
    """Return cautions as lines of the terminal."""
    return [f"  caution    {sentence}" for sentence in cautions]


def ledger_heading(facts: Mapping[str, Any]) -> str:
    """Return which ledger it is, and how many debits are in it."""
    return f"Debits in {facts['ledger']}: {len(facts['entries'])}"


def ledger_row(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return when a debit was made, what for, and the budget of its plan."""
    epsilon, delta = entry["details"].get("epsilon"), entry["details"].get("delta")
    cost = "" if epsilon is None or delta is None else f"epsilon {epsilon:g}, delta {delta:g}"
    return str(entry["at"]), str(entry["purpose"]), cost


def ledger_text(facts: Mapping[str, Any]) -> str:
    """Return every debit of a ledger and the composed total."""
    rows = [ledger_row(entry) for entry in facts["entries"]]
    debits = (f"  {at}  {purpose}{cost and f'  ({cost})'}" for at, purpose, cost in rows)
    return "\n".join([ledger_heading(facts), *debits, *ledger_totals(facts)])


def ledger_totals(facts: Mapping[str, Any]) -> list[str]:
    """Return terminal lines on the composed total of a ledger, on its budget, and cautions."""
    lines: list[str] = []
    unit, total, budget = facts["unit"], facts["epsilon_spent_total"], facts["budget"]
    if total is None:
        why = "something was released or chosen outside the accounting, or delta is smaller than it can state"
        if unit is not None and " and " in unit:
            why = f"its entries protect different units ({unit})"
        lines.append(f"  total: {NO_BOUND}; {why}")
    else:
        neighbor = neighbor_wording(facts)
        lines.append(
            f"  total: epsilon {total:.4f} at delta {facts['delta']:g} ({neighbor.moved}); "
            f"{epsilon_or_none(facts['epsilon_spent_total_replace_one'])} ({neighbor.replaced})"
        )
    if budget is not None:
        lines.append(f"  budget: epsilon {budget['epsilon']:g} at delta {budget['delta']:g}")
    return [*lines, *caution_lines(facts["cautions"])]


def verified_text(facts: Mapping[str, Any]) -> str:
    """Return what was verified about a sound ledger."""
    total, budget = epsilon_or_none(facts["epsilon_spent_total"]), facts["budget"]
    lines = [
        f"The ledger {facts['ledger']} is sound.",
        f"  chain      {facts['n_lines']} lines, each with the hash of all before it; {facts['n_debits']} debits, all "
        "readable and priced",
    ]
    if facts["has_head"]:
        lines.append("  head       the ledger is complete up to the head that is kept beside it")
    else:
        lines.append(
            "  head       none is kept beside it, so lines removed at its end cannot be noticed; the next debit writes "
            "one"
        )
    in_full = epsilon_or_none(facts["epsilon_on_one_grid"])
    lines.append(
        f"  total      epsilon {total} at delta {facts['delta']:g}, computed again from all debits (all on one fine "
        f"grid: {in_full})"
    )
    if budget is not None:
        lines.append(f"  budget     epsilon {budget['epsilon']:g} at delta {budget['delta']:g}")
    lines += [f"  summary    {name} was written with this ledger" for name in facts["summaries"]]
    return "\n".join([*lines, *caution_lines(facts["cautions"])])


def budget_text(ledger: str, budget: Mapping[str, float], spent: float) -> str:
    """Return that a budget is in force, and a caution if it is exhausted."""
    limit = f"epsilon {budget['epsilon']:g} at delta {budget['delta']:g}"
    text = f"From now on at most {limit} can be spent through {ledger}."
    if spent > budget["epsilon"]:
        text += f"\n  caution    {spent:.4g} is already spent: every further debit will be refused"
    return text
