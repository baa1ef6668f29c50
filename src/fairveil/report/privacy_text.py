"""The privacy statement: what is hidden, from whom, by how much, and what is not, in sentences a person can check.

What a guarantee compares, in words: a unit of protection in, the phrases that every page and command uses out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NeighborWording:
    """How two data sets differ that must be hard to tell apart.

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


def neighbour_of(facts: Mapping[str, Any]) -> NeighborWording:
    """Return the phrases for a run, from its public facts ``protects unit sensitive``."""
    if facts.get("protects") == "attribute":
        return _of_attribute(" and ".join(facts["sensitive"]), f"one {facts['unit']}")
    return _of_whole(str(facts["unit"]))


def neighbour_of_unit(unit: str) -> NeighborWording:
    """Return the phrases for the unit of an entry in a ledger.

    Examples
    --------
    >>> neighbour_of_unit("person by id").moved
    'one person by id added or removed'
    >>> neighbour_of_unit("attribute sex of each record").moved
    'the sex of one record known or not'
    """
    if not unit.startswith("attribute "):
        return _of_whole(unit)
    name, _, whose = unit.removeprefix("attribute ").rpartition(" of each ")
    return _of_attribute(name, f"one {whose}")


def _of_whole(unit: str) -> NeighborWording:
    return NeighborWording(
        f"whether any one {unit} is in the data",
        f"one {unit} added or removed",
        f"one {unit} replaced by another",
    )


def _of_attribute(name: str, whose: str) -> NeighborWording:
    return NeighborWording(
        f"the {name} of any {whose}",
        f"the {name} of {whose} known or not",
        f"the {name} of {whose} changed to another group",
    )


NOT_COVERED = (
    "What the schema declares public: bounds, cut points, categories, classes, groups, and the size if it is declared.",
    "What follows about a person from the population as a whole, whether or not that person is in the data.",
    "How long anything took.",
    "Whatever was computed from the same rows outside fairveil, or booked on another ledger.",
    "Several people together: k of them are hidden by a weaker bound, about k times epsilon.",
    "What decisions about new people reveal of those people.",
)
PUBLIC_HERE = (
    "Features, labels and the number of rows: they are public here and were used without noise. Whether a person is in "
    "the data is not hidden."
)
REVEALING = (
    "What features tell about {name}: whoever knows a person's features can guess it as well as they go together, "
    "whatever is released here."
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
        With ``epsilon epsilon_spent epsilon_replace_one delta protects unit sensitive n_public model plan``; a model
        that was handed over is called "given".
    more_not_covered : sequence of str
        What else is not hidden in this run.
    """
    if facts["epsilon"] is None:
        nothing = "Nothing is hidden: this was computed without noise and is not private."
        return PrivacyStatement((nothing,), (*more_not_covered, *NOT_COVERED), "none", "none")
    neighbour, epsilon, delta = neighbour_of(facts), facts["epsilon_spent"], facts["delta"]
    model = "" if facts["model"] == "given" else "the model, "
    covered = (
        f"{_upper(neighbour.hidden)} is hidden from whoever sees everything that fit releases: {model}the decision "
        f"rule, the counts behind the certificate, and all that is computed from them{_size(facts)}.",
        f"{_upper(neighbour.moved)}: epsilon {epsilon:.4f} at delta {delta:g}. The probability of any outcome "
        f"changes by at most a factor of e^epsilon = {math.exp(min(epsilon, 700.0)):.3g}, but for probability "
        f"{delta:g}.",
        f"{_upper(neighbour.replaced)}: epsilon {facts['epsilon_replace_one']:.4f} at the same delta.",
    )
    not_covered = (*_public_here(facts), *more_not_covered, *NOT_COVERED)
    return PrivacyStatement(covered, not_covered, ACCOUNTANT, _sampling(facts))


def _upper(words: str) -> str:
    return words[0].upper() + words[1:]


def _hides_attribute(facts: Mapping[str, Any]) -> bool:
    return facts.get("protects") == "attribute"


def _size(facts: Mapping[str, Any]) -> str:
    if _hides_attribute(facts):
        return ", even with all features and labels at hand"
    if facts["n_public"]:
        return f" (how many there are, {facts['n_public']:,}, is declared public)"
    return " (how many there are is not declared, and a noisy number is bought)"


def _public_here(facts: Mapping[str, Any]) -> tuple[str, ...]:
    if not _hides_attribute(facts):
        return ()
    return PUBLIC_HERE, REVEALING.format(name=" and ".join(facts["sensitive"]))


def _sampling(facts: Mapping[str, Any]) -> str:
    unit = f"{facts['unit']} whose attribute is known" if _hides_attribute(facts) else facts["unit"]
    rates = sorted({rate for part in facts["plan"] for rate in part["sampling_rates"].values() if rate < 1})
    if not rates:
        return f"Every {unit} of a part is read; nothing is gained from sampling."
    shown = ", ".join(f"{rate:.4g}" for rate in rates)
    apart = ", apart from the batches of features and labels" if _hides_attribute(facts) else ""
    return f"Poisson: each {unit} enters each batch by its own secret coin, with probability {shown}{apart}."


def total_sentence(
    total: float | None, replaced: float | None, delta: float, neighbour: NeighborWording
) -> str:
    """Return the sentence on everything ever released from these people."""
    if total is None or replaced is None:
        return "No bound can be stated on everything ever released from these people: see the ledger."
    return (
        f"Everything ever released from these people by this ledger: epsilon {total:.4f} at delta {delta:g} for "
        f"{neighbour.moved}, {replaced:.4f} for {neighbour.replaced}."
    )
