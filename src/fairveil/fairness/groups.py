"""Who is counted where: groups of one or several attributes, labels, and the smallest partition that rates need.

An *atom* is the finest thing that can be told apart: one combination of groups (each attribute has one more level for
people of none of its groups) and one label. A *cell* is a set of atoms that no rate tells apart.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from fairveil.errors import InvalidParameterError

MOST_GROUPS = 2**15 - 1
"""Codes are kept in 16 bits a row."""


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

    Examples
    --------
    >>> people = Population((Attribute("sex", ("f", "m")), Attribute("race", ("a", "b", "c"))), ("no", "yes"), 1)
    >>> people.shape, people.n_groups, people.names[:2]
    ((3, 4), 12, ('f, a', 'f, b'))
    """

    attributes: tuple[Attribute, ...]
    classes: tuple[str, ...]
    positive: int = -1

    def __post_init__(self) -> None:
        _check_distinct("classes", self.classes)
        _check_distinct("attributes", [attribute.name for attribute in self.attributes])
        if not -len(self.classes) <= self.positive < len(self.classes):
            raise InvalidParameterError(
                f"Expected positive to be the code of a class, got {self.positive!r}."
            )
        if self.n_groups > MOST_GROUPS:
            raise InvalidParameterError(
                f"Expected at most {MOST_GROUPS} combinations of groups, got {self.n_groups}; name fewer attributes."
            )
        object.__setattr__(self, "positive", self.positive % len(self.classes))

    @property
    def shape(self) -> tuple[int, ...]:
        """Levels of each attribute: its groups and, last, "none of them"."""
        return tuple(len(attribute.groups) + 1 for attribute in self.attributes)

    @property
    def n_groups(self) -> int:
        """All combinations of levels; the last is "none" in every attribute."""
        return math.prod(self.shape)

    @property
    def n_classes(self) -> int:
        """The number of labels, which is also that of decisions."""
        return len(self.classes)

    @property
    def names(self) -> tuple[str, ...]:
        """The intersections of groups, in the order of their codes."""
        return tuple(", ".join(groups) for groups in self.intersections)

    @property
    def codes(self) -> NDArray[np.int64]:
        """The code of each intersection in `names`: people known in every attribute."""
        names = [attribute.name for attribute in self.attributes]
        return np.flatnonzero(self.known(names)) if names else np.empty(0, dtype=np.int64)

    @property
    def intersections(self) -> tuple[tuple[str, ...], ...]:
        """One group of each attribute, in every combination; none without an attribute."""
        if not self.attributes:
            return ()
        return tuple(product(*(attribute.groups for attribute in self.attributes)))

    def code(self, levels: Iterable[NDArray[np.integer]]) -> NDArray[np.int16]:
        """Return one code a row from its group in each attribute (-1: none of them); needs an attribute."""
        wrapped = [
            np.where(level < 0, size - 1, level) for level, size in zip(levels, self.shape, strict=True)
        ]
        return np.ravel_multi_index(wrapped, self.shape).astype(np.int16)

    def members(self, where: Iterable[tuple[str, str]]) -> NDArray[np.bool_]:
        """Return which group codes are meant by pairs of attribute and group; no pair means everyone.

        Examples
        --------
        >>> Population((Attribute("sex", ("f", "m")),), ("no", "yes")).members([("sex", "f")]).tolist()
        [True, False, False]
        """
        meant = np.ones(self.shape, dtype=bool)
        for name, group in where:
            axis = self._axis(name)
            meant &= self._along(axis, np.arange(self.shape[axis]) == self._level(axis, group))
        return meant.ravel()

    def known(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """Return the group codes of people who belong to some group of each named attribute."""
        meant = np.ones(self.shape, dtype=bool)
        for name in names:
            axis = self._axis(name)
            meant &= self._along(axis, np.arange(self.shape[axis]) < self.shape[axis] - 1)
        return meant.ravel()

    def attribute(self, name: str) -> Attribute:
        """Return the attribute of that name."""
        return self.attributes[self._axis(name)]

    def class_code(self, name: str) -> int:
        """Return the code of a class."""
        if name not in self.classes:
            raise InvalidParameterError(
                f"Expected one of the classes {', '.join(self.classes)}; got {name!r}."
            )
        return self.classes.index(name)

    def _along(self, axis: int, levels: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return levels.reshape([-1 if other == axis else 1 for other in range(len(self.shape))])

    def _axis(self, name: str) -> int:
        names = [attribute.name for attribute in self.attributes]
        if name not in names:
            raise InvalidParameterError(
                f"Expected a sensitive attribute of {', '.join(names) or 'none'}; got {name!r}; name it as sensitive."
            )
        return names.index(name)

    def _level(self, axis: int, group: str) -> int:
        attribute = self.attributes[axis]
        if group not in attribute.groups:
            raise InvalidParameterError(
                f"Expected a group of {attribute.name!r} ({', '.join(attribute.groups)}); got {group!r}."
            )
        return attribute.groups.index(group)


def _check_distinct(what: str, names: Sequence[str]) -> None:
    twice = [name for name in dict.fromkeys(names) if list(names).count(name) > 1]
    if twice:
        raise InvalidParameterError(f"Expected distinct {what}, got {twice[0]!r} twice; name each once.")


def smallest_partition(memberships: NDArray) -> NDArray[np.int64]:
    """Return the cell of each atom in the coarsest partition that every subset is a union of (paper 002, Remark 1).

    Parameters
    ----------
    memberships : array of shape (n_subsets, n_atoms)
        Who belongs to which subset; weights instead of truth values tell atoms apart by weight.

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
    seen: dict[bytes, int] = {}
    cells = [seen.setdefault(column.tobytes(), len(seen)) if column.any() else -1 for column in columns + 0.0]
    return np.array(cells, dtype=np.int64)
