"""Rates by name: each is a ratio of two sums of (group x label x decision) counts."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairveil._validation import check_choice
from fairveil.errors import InvalidParameterError
from fairveil.fairness.groups import Population

Mask = NDArray[np.bool_]

RATES = (
    "selection_rate",
    "true_positive_rate",
    "false_positive_rate",
    "true_negative_rate",
    "false_negative_rate",
    "error_rate",
    "accuracy",
    "precision",
)
"""Names as in fairlearn and scikit-learn, "accuracy" and "precision" without "_score"."""

CLASSLESS = frozenset({"error_rate", "accuracy"})
"""Rates that are about all classes at once."""

BARE_NAME = re.compile(r"[\w.+/-]+")
"""Groups, attributes and classes that are written without quotes."""


def rate_masks(name: str, n_classes: int, k: int) -> tuple[Mask, Mask]:
    """Return which entries of the (label x decision) table are summed above and below, for class `k`.

    The false negative rate of class k is 1 - P(decision k | label k); P(decision k | label not k) is its *false
    positive* rate (paper 002 has it the other way round).
    """
    check_choice("rate", name, RATES)
    label, decision = np.indices((n_classes, n_classes))
    everyone = np.ones((n_classes, n_classes), dtype=bool)
    is_true, is_chosen = label == k, decision == k
    masks = {
        "selection_rate": (is_chosen, everyone),
        "true_positive_rate": (is_true & is_chosen, is_true),
        "false_positive_rate": (~is_true & is_chosen, ~is_true),
        "true_negative_rate": (~is_true & ~is_chosen, ~is_true),
        "false_negative_rate": (is_true & ~is_chosen, is_true),
        "error_rate": (label != decision, everyone),
        "accuracy": (label == decision, everyone),
        "precision": (is_true & is_chosen, is_chosen),
    }
    return masks[name]


@dataclass(frozen=True)
class Rate:
    """A rate of some people: those of the named groups, or (`rest`) everyone else whose groups are known.

    Examples
    --------
    >>> print(Rate("precision", where=(("sex", "Female"),), of_class=">50K"))
    precision(">50K")[sex=Female]
    """

    name: str
    where: tuple[tuple[str, str], ...] = ()
    of_class: str | None = None
    rest: bool = False

    def __post_init__(self) -> None:
        check_choice("rate", self.name, RATES)
        if self.name in CLASSLESS and self.of_class is not None:
            raise InvalidParameterError(
                f"Expected no class of {self.name}, which is about all, got {self.of_class!r}."
            )

    def __str__(self) -> str:
        of_class = "" if self.of_class is None else f"({_quoted(self.of_class)})"
        groups = ", ".join(f"{_quoted(name)}={_quoted(group)}" for name, group in self.where)
        people = f"[{'not ' if self.rest else ''}{groups}]" if groups else ""
        return f"{self.name}{of_class}{people}"

    def forms(self, people: Population) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the weights of numerator and denominator, each of shape (groups, labels, decisions)."""
        k = people.positive if self.of_class is None else people.class_code(self.of_class)
        above, below = rate_masks(self.name, people.n_classes, k)
        meant = people.members(self.where)
        if self.rest:
            meant = people.known(name for name, _ in self.where) & ~meant
        return meant[:, None, None] * above.astype(float), meant[:, None, None] * below.astype(float)


def _quoted(name: str) -> str:
    """Return a name as expressions read it: quoted unless it is plain."""
    if BARE_NAME.fullmatch(name):
        return name
    escaped = name.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'
