"""The privacy statement: what is hidden, from whom, by how much, and what is not, in sentences a person can check."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["PrivacyStatement", "privacy_statement", "total_sentence"]

NOT_COVERED = (
    "What the schema declares public: bounds, cut points, categories, classes, groups, and the size if it is declared.",
    "What follows about a person from the population as a whole, whether or not that person is in the data.",
    "How long anything took.",
    "Whatever was computed from the same rows outside fairveil, or booked on another ledger.",
    "Several people together: k of them are hidden by a weaker bound, about k times epsilon.",
    "What decisions about new people reveal of those people.",
)
ACCOUNTANT = (
    "Privacy loss distributions, composed numerically in both directions and rounded to the safe side; everything "
    "released from one batch is one joint event; parts of the people kept apart by secret coins compose in parallel."
)


@dataclass(frozen=True)
class PrivacyStatement:
    """Sentences on a guarantee.

    Attributes
    ----------
    covered, not_covered : tuple of str
    accountant, sampling : str
        How the numbers were computed, and how records were drawn.
    """

    covered: tuple[str, ...]
    not_covered: tuple[str, ...]
    accountant: str
    sampling: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "covered": list(self.covered),
            "not_covered": list(self.not_covered),
            "accountant": self.accountant,
            "sampling": self.sampling,
        }


def privacy_statement(facts: Mapping[str, Any], more_not_covered: Sequence[str] = ()) -> PrivacyStatement:
    """Return the statement for the public facts of a run.

    Parameters
    ----------
    facts : mapping
        With ``epsilon epsilon_spent epsilon_replace_one delta unit n_public model plan``; a model that was handed over
        is called "given".
    more_not_covered : sequence of str
        What else is not hidden in this run.
    """
    if facts["epsilon"] is None:
        nothing = "Nothing is hidden: this was computed without noise and is not private."
        return PrivacyStatement((nothing,), (*more_not_covered, *NOT_COVERED), "none", "none")
    unit, epsilon, delta = facts["unit"], facts["epsilon_spent"], facts["delta"]
    size = "their number is not declared, and a noisy one is bought"
    if facts["n_public"]:
        size = f"their number, {facts['n_public']:,}, is declared public"
    model = "" if facts["model"] == "given" else "the model, "
    covered = (
        f"Whether any one {unit} is among the rows handed to fit is hidden from whoever sees everything that is "
        f"released: {model}the decision rule, the counts behind the certificate, and all that is computed from them "
        f"({size}).",
        f"One {unit} added or removed: epsilon {epsilon:.4f} at delta {delta:g}. The probability of any outcome "
        f"changes by at most a factor of e^epsilon = {math.exp(min(epsilon, 700.0)):.3g}, but for probability "
        f"{delta:g}.",
        f"One {unit} replaced by another: epsilon {facts['epsilon_replace_one']:.4f} at the same delta.",
    )
    sampling = _sampling(facts["plan"], unit)
    return PrivacyStatement(covered, (*more_not_covered, *NOT_COVERED), ACCOUNTANT, sampling)


def _sampling(plan: Sequence[Mapping[str, Any]], unit: str) -> str:
    rates = sorted({rate for part in plan for rate in part["sampling_rates"].values() if rate < 1})
    if not rates:
        return f"Every {unit} of a part is read; nothing is gained from sampling."
    shown = ", ".join(f"{rate:.4g}" for rate in rates)
    return f"Poisson: each {unit} enters each batch by its own secret coin, with probability {shown}."


def total_sentence(total: float | None, replaced: float | None, delta: float, unit: str) -> str:
    """Return the sentence on everything ever released from these people."""
    if total is None or replaced is None:
        return "No bound can be stated on everything ever released from these people: see the ledger."
    return (
        f"Everything ever released from these people by this ledger: epsilon {total:.4f} at delta {delta:g} for one "
        f"{unit} added or removed, {replaced:.4f} for one replaced."
    )
