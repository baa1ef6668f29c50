"""What a guarantee compares, in words: a unit of protection in, the phrases that every page and command uses out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Neighbour", "neighbour_of", "neighbour_of_unit"]


@dataclass(frozen=True)
class Neighbour:
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


def neighbour_of(facts: Mapping[str, Any]) -> Neighbour:
    """Return the phrases for a run, from its public facts ``protects unit sensitive``."""
    if facts.get("protects") == "attribute":
        return _of_attribute(" and ".join(facts["sensitive"]), f"one {facts['unit']}")
    return _of_whole(str(facts["unit"]))


def neighbour_of_unit(unit: str) -> Neighbour:
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


def _of_whole(unit: str) -> Neighbour:
    return Neighbour(
        f"whether any one {unit} is in the data",
        f"one {unit} added or removed",
        f"one {unit} replaced by another",
    )


def _of_attribute(name: str, whose: str) -> Neighbour:
    return Neighbour(
        f"the {name} of any {whose}",
        f"the {name} of {whose} known or not",
        f"the {name} of {whose} changed to another group",
    )
