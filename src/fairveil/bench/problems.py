"""Tables of a comparison: the same split for everyone, and exact figures of an answer on its held-out rows.

The figures are exact counts: they are for rows that anybody may read, and cost no budget because they protect nobody.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from fairveil.bench.contenders import Answer
from fairveil.data.datasets import dataset_names, dataset_path, dataset_schema
from fairveil.data.encoding import Encoder
from fairveil.data.readers import read_table, table_files
from fairveil.data.schema import Schema
from fairveil.errors import BadStructureError, InvalidParameterError, MissingPublicFactError
from fairveil.fairness.constraints import CONSTRAINT_TYPES, Constraint, constrain
from fairveil.fairness.rates import Attribute, Population

ROWS_SEED = 77
"""Draws the rows that stand for a larger table: the same ones every time."""

MEASURED = ("demographic_parity", "equalized_odds", "true_positive_rate_parity")
"""Gaps that are counted whatever is bounded."""

FEWEST = 2
"""Rows, or persons, on each side of a split."""


@dataclass(frozen=True)
class Data:
    """What a grid says of a table.

    Attributes
    ----------
    name : str
        Its label in tables.
    source : str
        A known data set, or the path of a CSV or Parquet file.
    schema : str or None
        The path of its schema; None for that of a known data set.
    sensitive : tuple of str
        The columns whose groups are compared; empty for the schema's first.
    aware : bool
        Whether decisions may read them.
    split, unit : {"row", "person"}, {"record", "person"}
        What a split divides, and what the budget protects.
    rows : int or None
        Of a larger table, a random part of so many rows.
    """

    name: str
    source: str
    schema: str | None = None
    sensitive: tuple[str, ...] = ()
    aware: bool = True
    split: str = "row"
    unit: str = "record"
    rows: int | None = None

    @property
    def path(self) -> Path:
        """The file with the rows."""
        is_known = self.source in dataset_names() and not Path(self.source).exists()
        return dataset_path(self.source) if is_known else Path(self.source)

    def public(self) -> Schema:
        """Return the schema, with the sensitive columns that are compared."""
        if self.schema is not None:
            schema = Schema.read(self.schema)
        elif self.source in dataset_names() and not Path(self.source).exists():
            schema = dataset_schema(self.source)
        else:
            raise MissingPublicFactError(
                f'Expected schema = "FILE.toml" beside the table {self.source!r}, got none; write its public facts '
                "with 'fairveil schema draft'."
            )
        if "person" in (self.split, self.unit) and schema.id_column is None:
            raise MissingPublicFactError(
                f"Expected an id_column in the schema of {self.name} for persons, got none; use rows and records."
            )
        entries = tuple(schema.sensitive_named(name) for name in self.sensitive) or schema.sensitive[:1]
        return schema.model_copy(update={"sensitive": entries})

    def fingerprint(self) -> str:
        """Return a hash of the bytes of the table and of its schema: with others, a figure is out of date."""
        digest = hashlib.sha256(self.public().fingerprint().encode())
        for file in table_files(self.path):
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Table:
    """The rows that count, with labels, groups and persons as codes."""

    frame: pd.DataFrame
    schema: Schema
    people: Population
    y: NDArray[np.int16]
    groups: NDArray[np.int16]
    persons: NDArray[np.int64] | None
    data: Data

    @classmethod
    def of(cls, data: Data) -> "Table":
        """Read a table; rows without a label, or without a known person, are left out."""
        schema, path = data.public(), data.path
        if not path.exists():
            raise BadStructureError(f"Expected a table in {path}, got none; check its path in the grid.")
        text = schema.file
        frame = pd.concat(list(read_table(path, delimiter=text.delimiter, encoding=text.encoding)))
        encoder = Encoder(schema)
        frame = frame[encoder.keep(frame)].reset_index(drop=True)
        y = encoder.targets(frame[schema.target.column])
        counts, persons = y >= 0, None
        if "person" in (data.split, data.unit):
            persons = encoder.persons(frame[schema.id_column])
            counts &= persons >= 0
        rows = np.flatnonzero(counts)
        if data.rows is not None and data.rows < len(rows):
            rows = np.sort(np.random.default_rng(ROWS_SEED).choice(rows, data.rows, replace=False))
        frame, y = frame.iloc[rows].reset_index(drop=True), y[rows]
        attributes = tuple(Attribute(entry.column, entry.groups) for entry in schema.sensitive)
        classes = schema.target.classes
        people = Population(attributes, classes, classes.index(schema.target.positive))
        groups = people.code([encoder.groups(frame[entry.column], entry) for entry in schema.sensitive])
        return cls(frame, schema, people, y, groups, None if persons is None else persons[rows], data)

    def split(self, seed: int, train_share: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return training and held-out rows; each row, or each person, goes by its own coin.

        The coins follow from the seed alone, so every contender gets the same rows.
        """
        coins = np.random.default_rng(seed)
        if self.data.split == "person" and self.persons is not None:
            persons, place = np.unique(self.persons, return_inverse=True)
            n_units, is_train = len(persons), (coins.random(len(persons)) < train_share)[place]
        else:
            n_units, is_train = len(self.y), coins.random(len(self.y)) < train_share
        train, test = np.flatnonzero(is_train), np.flatnonzero(~is_train)
        if min(len(train), len(test)) < FEWEST:
            raise InvalidParameterError(
                f"Expected rows on both sides of the split with seed {seed}, got too few of {n_units}; use another "
                "train_share or more rows."
            )
        return train, test

    def public(self, train_share: float) -> Schema:
        """Return the schema that a contender gets: how many units are expected to train is public."""
        n_units, id_column = len(self.y), None
        if self.data.unit == "person" and self.persons is not None:
            n_units, id_column = len(np.unique(self.persons)), self.schema.id_column
        schema = self.schema.model_copy(update={"n_public": round(train_share * n_units), "id_column": id_column})
        if self.data.aware:
            return schema
        return schema.without(*(one.column for one in schema.sensitive if one.column in schema.columns))

    def figures(self, answer: Answer, rows: NDArray[np.int64], constraint: Constraint) -> dict[str, float | None]:
        """Return accuracy, areas and gaps of the answers to these rows; None where there is nobody to count."""
        y, positive = self.y[rows], self.people.positive
        codes = {name: code for code, name in enumerate(self.schema.target.classes)}
        decisions = np.array([codes[str(name)] for name in answer.decisions])
        found: dict[str, float | None] = {"accuracy": float(np.mean(decisions == y))}
        found["gap"] = self.largest(constraint, decisions, rows)
        found |= {name: self.largest(CONSTRAINT_TYPES[name](0.0), decisions, rows) for name in MEASURED}
        is_positive = y == positive
        if answer.scores is not None and 0 < is_positive.sum() < len(y):
            found["roc_auc"] = float(roc_auc_score(is_positive, answer.scores))
            found["auc_pr"] = float(average_precision_score(is_positive, answer.scores))
        return found

    def constant_accuracy(self, train: NDArray[np.int64], test: NDArray[np.int64]) -> float:
        """Return the accuracy on test rows of deciding for everybody what is most frequent among training rows."""
        return float(np.mean(self.y[test] == np.bincount(self.y[train]).argmax()))

    def largest(self, constraint: Constraint, decisions: NDArray[np.int64], rows: NDArray[np.int64]) -> float | None:
        """Return the largest left side of bounds on rates of somebody: for a parity, the gap; None if there is none."""
        bounds = constrain(constraint, self.people)
        cells = bounds.cells[self.groups[rows], self.y[rows]]
        counts = np.zeros((bounds.n_cells, bounds.n_classes))
        np.add.at(counts, (cells[cells >= 0], decisions[cells >= 0]), 1)
        # the rate of nobody is unknown, and so is what compares with it
        is_empty = bounds.below @ counts.ravel() == 0
        has_people = ~((bounds.weights != 0) & is_empty).any(axis=1)
        return float(bounds.values(counts)[has_people].max()) if has_people.any() else None


@lru_cache(maxsize=1)
def table_of(data: Data) -> Table:
    """Return a table; the last one is kept, because the runs of a data set follow each other."""
    return Table.of(data)


def constraint_of(name: str, tolerance: float | None) -> Constraint:
    """Return a constraint by its name; without a tolerance, the one that measures it."""
    made: Constraint = CONSTRAINT_TYPES[name](0.0 if tolerance is None else tolerance)
    return made
