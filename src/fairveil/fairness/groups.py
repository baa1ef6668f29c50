"""Who is counted where, and which rates of them: groups, labels, rates by name, and the partition that rates need.

An *atom* is the finest unit of counting: one combination of groups (each attribute has one more level for people of
none of its groups) and one label. A *cell* is a set of atoms that no rate distinguishes. A *rate* is a ratio of two
sums of (group x label x decision) counts.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from fairveil._validation import check_choice
from fairveil.errors import InvalidParameterError

MAX_GROUPS = 2**15 - 1
"""Group codes are kept in 16 bits per row."""

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


@dataclass(frozen=True)
class Attribute:
    """A sensitive attribute and its groups, in the schema's order."""

    name: str
    groups: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_distinct(f"groups of {self.name!r}", self.groups)


@dataclass(frozen=True)
class Population:
    """The public frame of all counts: attributes with their groups, classes, and which class is the positive one.

    Attributes
    ----------
    shape : tuple of int
        The number of levels of each attribute: its groups and, last, "none of them".
    n_groups : int
        The number of combinations of levels; the last is "none" in every attribute.
    n_classes : int
        The number of labels, which is also that of decisions.

    Examples
    --------
    >>> people = Population((Attribute("sex", ("f", "m")), Attribute("race", ("a", "b", "c"))), ("no", "yes"), 1)
    >>> people.shape, people.n_groups, people.names[:2]
    ((3, 4), 12, ('f, a', 'f, b'))
    """

    attributes: tuple[Attribute, ...]
    classes: tuple[str, ...]
    positive: int = -1
    shape: tuple[int, ...] = field(init=False, repr=False, compare=False)
    n_groups: int = field(init=False, repr=False, compare=False)
    n_classes: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_distinct("classes", self.classes)
        _check_distinct("attributes", [attribute.name for attribute in self.attributes])
        n_classes = len(self.classes)
        if not -n_classes <= self.positive < n_classes:
            raise InvalidParameterError(f"Expected positive to be the code of a class, got {self.positive!r}.")
        shape = tuple(len(attribute.groups) + 1 for attribute in self.attributes)
        n_groups = math.prod(shape)
        if n_groups > MAX_GROUPS:
            raise InvalidParameterError(
                f"Expected at most {MAX_GROUPS} combinations of groups, got {n_groups}; name fewer attributes."
            )
        derived = {"shape": shape, "n_groups": n_groups, "n_classes": n_classes}
        for name, value in (derived | {"positive": self.positive % n_classes}).items():
            object.__setattr__(self, name, value)

    @property
    def names(self) -> tuple[str, ...]:
        """The intersections of groups, in the order of their codes."""
        return tuple(", ".join(groups) for groups in self.intersections)

    @property
    def codes(self) -> NDArray[np.int64]:
        """The code of each intersection in `names`: people known in every attribute."""
        if not self.attributes:
            return np.empty(0, dtype=np.int64)
        is_known = [levels < size - 1 for levels, size in zip(np.indices(self.shape), self.shape, strict=True)]
        return np.flatnonzero(np.logical_and.reduce(is_known))

    @property
    def intersections(self) -> tuple[tuple[str, ...], ...]:
        """One group of each attribute, in every combination; none without an attribute."""
        if not self.attributes:
            return ()
        return tuple(product(*(attribute.groups for attribute in self.attributes)))

    def code(self, levels: Iterable[NDArray[np.integer]]) -> NDArray[np.int16]:
        """Return one code per row from its group in each attribute (-1: none of them); needs an attribute."""
        wrapped = [np.where(level < 0, size - 1, level) for level, size in zip(levels, self.shape, strict=True)]
        return np.ravel_multi_index(wrapped, self.shape).astype(np.int16)

    def members(self, where: Iterable[tuple[str, str]], *, rest: bool = False) -> NDArray[np.bool_]:
        """Return which group codes are meant by pairs of attribute and group; no pair means everyone.

        With `rest`, those of everyone else who belongs to some group of each named attribute.

        Examples
        --------
        >>> Population((Attribute("sex", ("f", "m")),), ("no", "yes")).members([("sex", "f")]).tolist()
        [True, False, False]
        """
        meant, known = np.ones((2, self.n_groups), dtype=bool)
        for name, group in where:
            axis = self._axis(name)
            groups = self.attributes[axis].groups
            if group not in groups:
                raise InvalidParameterError(f"Expected a group of {name!r} ({', '.join(groups)}); got {group!r}.")
            levels = np.indices(self.shape)[axis].ravel()
            meant &= levels == groups.index(group)
            known &= levels < len(groups)
        return known & ~meant if rest else meant

    def attribute(self, name: str) -> Attribute:
        """Return the attribute of that name."""
        return self.attributes[self._axis(name)]

    def class_code(self, name: str) -> int:
        """Return the code of a class."""
        if name not in self.classes:
            raise InvalidParameterError(f"Expected one of the classes {', '.join(self.classes)}; got {name!r}.")
        return self.classes.index(name)

    def _axis(self, name: str) -> int:
        names = [attribute.name for attribute in self.attributes]
        if name not in names:
            raise InvalidParameterError(
                f"Expected a sensitive attribute of {', '.join(names) or 'none'}; got {name!r}; name it as sensitive."
            )
        return names.index(name)


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
            raise InvalidParameterError(f"Expected no class of {self.name}, which is about all, got {self.of_class!r}.")

    def __str__(self) -> str:
        of_class = "" if self.of_class is None else f"({_quoted(self.of_class)})"
        groups = ", ".join(f"{_quoted(name)}={_quoted(group)}" for name, group in self.where)
        people = f"[{'not ' if self.rest else ''}{groups}]" if groups else ""
        return f"{self.name}{of_class}{people}"

    def forms(self, people: Population) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the weights of numerator and denominator, each of shape (n_groups, n_labels, n_decisions)."""
        k = people.positive if self.of_class is None else people.class_code(self.of_class)
        above, below = rate_masks(self.name, people.n_classes, k)
        meant = people.members(self.where, rest=self.rest)
        return meant[:, None, None] * above.astype(float), meant[:, None, None] * below.astype(float)


def rate_masks(name: str, n_classes: int, k: int) -> tuple[Mask, Mask]:
    """Return which entries of the (label x decision) table are summed above and below, for class `k`.

    The false negative rate of class k is 1 - P(decision k | label k); P(decision k | label not k) is its *false
    positive* rate (paper 002 swaps the two).
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


def smallest_partition(memberships: NDArray) -> NDArray[np.int64]:
    """Return the cell of each atom in the coarsest partition that every subset is a union of (paper 002, Remark 1).

    Parameters
    ----------
    memberships : array of shape (n_subsets, n_atoms)
        Who belongs to which subset; weights instead of truth values separate atoms by weight.

    Returns
    -------
    array of shape (n_atoms,)
        Cells 0, 1, ... in the order of their first atom; -1 for atoms that belong to no subset.

    Examples
    --------
    >>> smallest_partition(np.array([[1, 1, 0, 0], [0, 1, 0, 0]], dtype=bool)).tolist()
    [0, 1, -1, -1]
    """
    columns = np.asarray(memberships, dtype=np.float64).T
    cell_of: dict[bytes, int] = {}
    cells = [cell_of.setdefault(column.tobytes(), len(cell_of)) if column.any() else -1 for column in columns + 0.0]
    return np.array(cells, dtype=np.int64)


def _check_distinct(what: str, names: Sequence[str]) -> None:
    twice = [name for name in dict.fromkeys(names) if list(names).count(name) > 1]
    if twice:
        raise InvalidParameterError(f"Expected distinct {what}, got {twice[0]!r} twice; name each once.")


def _quoted(name: str) -> str:
    """Return a name as expressions read it: quoted unless it is plain."""
    if BARE_NAME.fullmatch(name):
        return name
    escaped = name.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'
