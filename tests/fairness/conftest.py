"""People row by row, and rates counted from rows: the oracle against which tables are checked."""

from dataclasses import dataclass

import numpy as np
import pytest

from fairveil.fairness.rates import Attribute, Population

RATES_BY_ROWS = {
    "selection_rate": lambda y, d, k: d == k,
    "true_positive_rate": lambda y, d, k: d[y == k] == k,
    "false_positive_rate": lambda y, d, k: d[y != k] == k,
    "true_negative_rate": lambda y, d, k: d[y != k] != k,
    "false_negative_rate": lambda y, d, k: d[y == k] != k,
    "error_rate": lambda y, d, k: d != y,
    "accuracy": lambda y, d, k: d == y,
    "precision": lambda y, d, k: y[d == k] == k,
}


@dataclass(frozen=True, eq=False)
class Rows:
    """One row a person: a level in each attribute (-1: none), a label and a decision."""

    people: Population
    levels: tuple[np.ndarray, ...]
    label: np.ndarray
    decision: np.ndarray

    @classmethod
    def draw(cls, rng, n_classes=2, sizes=(3,), n=600, unknown=0.1) -> "Rows":
        attributes = tuple(
            Attribute(f"attribute {i}", tuple(f"{i}{g}" for g in range(size))) for i, size in enumerate(sizes)
        )
        levels = tuple(np.where(rng.random(n) < unknown, -1, rng.integers(0, size, n)) for size in sizes)
        label = rng.integers(0, n_classes, n)
        keeps = rng.random(n) < 0.3 + 0.2 * (levels[0] % 3)
        decision = np.where(keeps, label, rng.integers(0, n_classes, n))
        return cls(Population(attributes, tuple(f"class {k}" for k in range(n_classes)), 1), levels, label, decision)

    def rate(self, name, k, mask) -> float:
        """The rate among the rows of the mask; of nobody it is 0."""
        hits = RATES_BY_ROWS[name](self.label[mask], self.decision[mask], k)
        return float(hits.mean()) if len(hits) else 0.0

    def masks(self, attribute=None) -> dict[tuple[int, ...], np.ndarray]:
        """The rows of every group of one attribute, or of every intersection."""
        axes = range(len(self.levels)) if attribute is None else [attribute]
        sizes = [len(self.people.attributes[axis].groups) for axis in axes]
        return {
            group: np.all([self.levels[axis] == g for axis, g in zip(axes, group, strict=True)], axis=0)
            for group in np.ndindex(*sizes)
        }

    def known(self, attribute=None) -> np.ndarray:
        """The rows that belong to some group of that attribute, or of every one."""
        axes = range(len(self.levels)) if attribute is None else [attribute]
        return np.all([self.levels[axis] >= 0 for axis in axes], axis=0)

    def counts(self) -> np.ndarray:
        """Numbers by group code, label and decision."""
        k = self.people.n_classes
        counts = np.zeros((self.people.n_groups, k, k))
        np.add.at(counts, (self.people.code(self.levels), self.label, self.decision), 1)
        return counts

    def histogram(self, ready) -> np.ndarray:
        """Numbers by cell and decision, for compiled constraints."""
        cells = ready.cells[self.people.code(self.levels), self.label]
        histogram = np.zeros((ready.n_cells, ready.n_classes))
        np.add.at(histogram, (cells[cells >= 0], self.decision[cells >= 0]), 1)
        return histogram


@pytest.fixture(scope="session")
def draw_rows():
    """A function that draws people."""
    return Rows.draw


@pytest.fixture(scope="session")
def rows_of():
    """The class of rows itself, for rows made by hand."""
    return Rows
