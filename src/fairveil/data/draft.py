"""Rows in, a first schema out: NOT private, for the data holder to check line by line and approve."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairveil.data.choosing import bounds_outward, categories_from_counts, cuts_from_histogram, round_grid
from fairveil.data.facts import Category, Number, Sensitive, Target
from fairveil.data.loaders import read_table
from fairveil.data.schema import DEFAULT_MISSING, Schema
from fairveil.data.tables import check_present, table_columns
from fairveil.data.values import MissingCells, canonical_texts, number_of

__all__ = ["draft_schema"]

MAX_CODES = 12  # a number column with at most so many values is taken for codes
NUMBER_SHARE = 0.95


@dataclass(frozen=True, repr=False)
class _Column:
    """The distinct cells of a column that are not missing, with their exact counts: private."""

    counts: Mapping[str, int]

    @cached_property
    def numbers(self) -> NDArray[np.float64]:
        return np.array([number_of(text) for text in self.counts], dtype=float)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        return np.array(list(self.counts.values()), dtype=float)

    @property
    def is_number(self) -> bool:
        share = self.weights[np.isfinite(self.numbers)].sum() / max(self.weights.sum(), 1.0)
        return len(self.counts) > MAX_CODES and share >= NUMBER_SHARE

    @property
    def is_id(self) -> bool:
        """Whether every row has its own text or its own number in an unbroken row of numbers."""
        if not len(self.counts) > MAX_CODES or self.weights.max() > 1:
            return False
        is_run = self.is_number and np.ptp(self.numbers[np.isfinite(self.numbers)]) == len(self.counts) - 1
        return bool(is_run) or not self.is_number

    @property
    def histogram(self) -> tuple[tuple[float, float], NDArray[np.float64], NDArray[np.float64]]:
        """The bounds, a grid of round numbers inside them, and the counts between its edges."""
        is_finite = np.isfinite(self.numbers)
        bounds = bounds_outward(self.numbers[is_finite].min(), self.numbers[is_finite].max())
        grid = round_grid(*bounds)
        return bounds, grid, np.histogram(self.numbers[is_finite], grid, weights=self.weights[is_finite])[0]


def draft_schema(
    path: str | Path, target: str, sensitive: Sequence[str] = (), *, delimiter: str = ","
) -> Schema:
    """Return a schema guessed from the rows of a file, marked as a private draft.

    A column is a number if at least 95 % of its cells that are not missing are numbers and more than 12 are
    distinct, else a category. Bounds are rounded outward, cuts divide the rows evenly at round numbers, and
    categories have at least 10 rows. Columns that look like ids are left out, and so is `n_public`.

    Guarantees
    ----------
    None: every line depends on exact counts. The draft is as private as the rows until a person has replaced
    or approved each line as public knowledge.
    """
    names = table_columns(path, delimiter)
    check_present(path, [target, *sensitive], names)
    columns = _counted(path, names, delimiter)
    facts = {name: _facts(columns[name]) for name in names if name and name != target}
    left_out = [name for name, fact in facts.items() if fact is None]
    return Schema(
        name=Path(path).stem,
        notes=_notes(left_out),
        private_draft=True,
        target=_target(target, columns[target]),
        sensitive=tuple(_sensitive(name, columns[name]) for name in sensitive),
        columns={name: fact for name, fact in facts.items() if fact is not None},
    )


def _counted(path: str | Path, names: list[str], delimiter: str) -> dict[str, _Column]:
    missing = MissingCells.of(DEFAULT_MISSING)
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for chunk in read_table(path, delimiter=delimiter):
        for name in names:
            counts[name].update(
                pd.Series(canonical_texts(chunk[name]), dtype=object).value_counts().to_dict()
            )
    return {
        name: _Column({text: count for text, count in counter.items() if not missing.holds(text)})
        for name, counter in counts.items()
    }


def _facts(column: _Column) -> Number | Category | None:
    if column.is_id:
        return None
    if column.is_number:
        bounds, grid, counts = column.histogram
        return Number(bounds=bounds, cuts=cuts_from_histogram(grid, counts))
    categories = categories_from_counts(column.counts)
    return Category(categories=categories) if categories else None


def _notes(left_out: list[str]) -> tuple[str, ...]:
    return tuple(
        f"Left out as a feature, for it looks like an id or has no frequent value: {name}"
        for name in left_out
    )


def _halves(column: _Column) -> tuple[tuple[str, str], tuple[float, ...]]:
    _, grid, counts = column.histogram
    cut = (cuts_from_histogram(grid, counts, n_bins=2) or (float(grid[len(grid) // 2]),))[0]
    return (f"below {cut:g}", f"{cut:g} and above"), (cut,)


def _target(name: str, column: _Column) -> Target:
    if column.is_number:
        classes, cuts = _halves(column)
        return Target(column=name, classes=classes, cuts=cuts)
    return Target(column=name, classes=categories_from_counts(column.counts))


def _sensitive(name: str, column: _Column) -> Sensitive:
    if column.is_number:
        groups, cuts = _halves(column)
        return Sensitive(column=name, groups=groups, cuts=cuts)
    return Sensitive(column=name, groups=categories_from_counts(column.counts))
