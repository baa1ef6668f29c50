"""Raw cells of a target or sensitive column in, small whole numbers in a declared order out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fairveil.data.values import Cells, MissingCells, canonical_text, map_cells, numbers_of
from fairveil.errors import BadStructure

__all__ = ["IGNORE", "Coding", "check_coding", "check_distinct", "check_increasing"]

IGNORE = "ignore"


@dataclass(frozen=True)
class Coding:
    """How the cells of one column fall into named classes or groups.

    Attributes
    ----------
    names : tuple of str
        The classes or groups; a cell's code is the position of its name.
    cuts : tuple of float
        Cut points for a number column, one fewer than names; names run from the lowest numbers upward.
    at_cut : {"up", "down"}
        Where a number equal to a cut goes: "up" makes a cut c mean `>= c`, "down" makes it mean `> c`.
    values : mapping of name to raw values
        Which raw values make each name; without it (and without cuts) a name stands for itself.
    unknown : str
        The name for every other cell, missing ones included; "ignore" gives them the code -1.
    """

    names: tuple[str, ...]
    cuts: tuple[float, ...] = ()
    at_cut: Literal["up", "down"] = "up"
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unknown: str = IGNORE

    def codes(self, cells: Cells, missing: MissingCells) -> NDArray[np.int16]:
        """Return the position of each cell's name, -1 for a cell that is to be ignored."""
        return self._cut(cells, missing) if self.cuts else self._looked_up(cells)

    @property
    def unknown_code(self) -> int:
        """The code of a cell that no rule names."""
        return -1 if self.unknown == IGNORE else self.names.index(self.unknown)

    @property
    def table(self) -> dict[str, int]:
        """The code of each raw value, by its canonical text."""
        if not self.values:
            return {name: code for code, name in enumerate(self.names)}
        return {text: self.names.index(name) for name, texts in self.values.items() for text in texts}

    def _cut(self, cells: Cells, missing: MissingCells) -> NDArray[np.int16]:
        numbers = numbers_of(cells, missing)
        codes = np.searchsorted(self.cuts, numbers, side="right" if self.at_cut == "up" else "left")
        return np.where(np.isnan(numbers), self.unknown_code, codes).astype(np.int16)

    def _looked_up(self, cells: Cells) -> NDArray[np.int16]:
        table, unknown = self.table, self.unknown_code

        def code(cell: Any) -> int:
            text = canonical_text(cell)
            return unknown if text is None else table.get(text, unknown)

        return map_cells(cells, code, np.int16)


def check_coding(coding: Coding, word: str) -> None:
    """Raise `BadStructure` unless the coding gives every cell at most one of its names."""
    if len(coding.names) < 2:
        raise BadStructure(
            f"Expected at least two {word}, got {len(coding.names)}; list them all in a fixed order."
        )
    check_distinct(word, coding.names)
    if IGNORE in coding.names:
        raise BadStructure(
            f'Expected no {word} named "{IGNORE}", which means "leave the row out"; choose another.'
        )
    if coding.unknown != IGNORE and coding.unknown not in coding.names:
        raise BadStructure(f'Expected unknown = "{IGNORE}" or one of the {word}, got {coding.unknown!r}.')
    if coding.cuts and coding.values:
        raise BadStructure(
            "Expected either cuts or values, got both; cuts are for numbers, values for codes."
        )
    if coding.cuts:
        _check_cuts(coding, word)
    if coding.values:
        _check_values(coding, word)


def _check_cuts(coding: Coding, word: str) -> None:
    check_increasing("cuts", coding.cuts)
    if len(coding.cuts) != len(coding.names) - 1:
        n_cuts, n_names = len(coding.cuts), len(coding.names)
        raise BadStructure(f"Expected one cut fewer than {word}, got {n_cuts} cuts for {n_names} {word}.")


def _check_values(coding: Coding, word: str) -> None:
    strangers = [name for name in coding.values if name not in coding.names]
    if strangers:
        raise BadStructure(f"Expected values for the declared {word} only, got values for {strangers[0]!r}.")
    empty = [name for name in coding.names if name not in coding.values and name != coding.unknown]
    if empty:
        raise BadStructure(f"Expected values for each of the {word}, got none for {empty[0]!r}.")
    check_distinct("values", tuple(text for texts in coding.values.values() for text in texts))


def check_distinct(key: str, names: tuple[str, ...]) -> None:
    """Raise `BadStructure` where a name is listed twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BadStructure(f"Expected {key} without repeats, got {name!r} twice.")
        seen.add(name)


def check_increasing(key: str, numbers: tuple[float, ...]) -> None:
    """Raise `BadStructure` unless the numbers rise strictly."""
    if any(high <= low for low, high in pairwise(numbers)):
        raise BadStructure(f"Expected {key} in strictly increasing order, got {list(numbers)}.")
