"""A user's table in, encoded records and the public facts of the task out."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairveil.data.encoding import Encoder, columns_of
from fairveil.data.readers import load_encoded
from fairveil.data.schema import Category, Number, Schema, Sensitive
from fairveil.data.values import IGNORE
from fairveil.errors import BadStructureError, InvalidParameterError, MissingPublicFactError
from fairveil.fairness.groups import Attribute, Population
from fairveil.methods.prefitted import PrefittedClassifier
from fairveil.privacy.attribute import AttributeRecords, attribute_unit
from fairveil.privacy.records import MemoryRecords
from fairveil.training.recipe import Task

TYPICAL_SQUARE = 1 / 9
"""What a number scaled to [-1, 1] adds to the squared norm of a row, usually: bounds lie about three deviations out."""


@dataclass(frozen=True)
class Front:
    """The public side of a table: its schema, the sensitive columns if any are named, the budget.

    `predicts` says what the model is of (see `Task`); `given` is a classifier fitted elsewhere, whose probabilities
    then stand in the place of encoded rows. `protects` says what is secret: whole records, or the attribute alone.
    """

    schema: Schema
    sensitive: tuple[Sensitive, ...]
    epsilon: float
    delta: float
    predicts: str = "label"
    given: PrefittedClassifier | None = None
    protects: str = "record"

    def __post_init__(self) -> None:
        if self.protects == "attribute":
            self._check_secret()

    @property
    def unit(self) -> str:
        """Whom or what one unit of privacy stands for."""
        whose = "record" if self.schema.id_column is None else f"person by {self.schema.id_column}"
        names = [entry.column for entry in self.sensitive]
        return attribute_unit(names, whose) if self.protects == "attribute" else whose

    @property
    def encoder(self) -> Encoder:
        """How rows become numbers."""
        return Encoder(self.schema)

    @property
    def people(self) -> Population:
        """The groups and classes that are counted."""
        target = self.schema.target
        attributes = tuple(Attribute(entry.column, entry.groups) for entry in self.sensitive)
        return Population(attributes, target.classes, target.classes.index(target.positive))

    @property
    def task(self) -> Task:
        """What is public about the task."""
        return Task(
            n_features=self.encoder.n_features,
            people=self.people,
            input_norm=self._norm(1.0),
            typical_norm=self._norm(TYPICAL_SQUARE),
            n_public=self.schema.n_public,
            epsilon=self.epsilon,
            delta=self.delta,
            unit=self.unit,
            predicts=self.predicts,
        )

    def _norm(self, scaled_square: float) -> float:
        """Return the norm of an encoded row with its intercept, given what a scaled number adds to its square."""
        return math.sqrt(1 + sum(_square(column, scaled_square) for column in self.schema.columns.values()))

    def _check_secret(self) -> None:
        """Refuse an attribute that is no secret: what is public must not name it, or the columns it follows from."""
        if not self.sensitive:
            raise InvalidParameterError(
                "Expected a sensitive column, whose groups are the secret, got none; name one."
            )
        public: dict[str | None, str] = {
            **dict.fromkeys(self.schema.columns, "a feature"),
            **{rule.column: "a rule on rows ([[where]])" for rule in self.schema.where},
            self.schema.target.column: "the target",
            self.schema.id_column: "the id column",
        }
        for entry in self.sensitive:
            if entry.unknown != IGNORE:
                raise InvalidParameterError(
                    f"Expected an unknown {entry.column!r} to be in no group where it is the secret, got it counted as "
                    f'{entry.unknown!r}; write unknown = "ignore" in the schema.'
                )
            for name in (entry.column, *entry.sources):
                if name in public:
                    told = "is the secret" if name == entry.column else f"tells {entry.column!r}, the secret"
                    raise InvalidParameterError(
                        f"Expected public columns that do not name the attribute, got {name!r} as {public[name]}, "
                        f"which {told}; leave it out of what is public (delete [columns.{name}] from the schema, in "
                        f"Python schema.without({name!r}), or the rule that reads it)."
                    )

    def records(self, X: Any, y: Any, sensitive_features: Any = None) -> MemoryRecords | AttributeRecords:
        """Return the encoded rows that count: those that the schema keeps and whose label and person are known."""
        targets, groups = self.encoder.targets(y), self.groups(X, sensitive_features)
        rows = self.rows(X, groups)
        if len(targets) != len(rows) or len(groups) != len(rows):
            raise BadStructureError(
                f"Expected X, y and sensitive_features of equal length, got {len(rows)}, {len(targets)} and "
                f"{len(groups)} rows."
            )
        persons = self._persons(X)
        keep = self._keep(X, len(rows)) & (True if persons is None else persons >= 0)
        return self._guarded(MemoryRecords.keeping(rows, targets, groups, persons, keep))

    def _guarded(self, records: MemoryRecords) -> MemoryRecords | AttributeRecords:
        if self.protects == "attribute":
            return AttributeRecords.of(records, self.people.codes)
        return records

    def records_of_file(self, path: str | Path, delimiter: str = ",") -> MemoryRecords | AttributeRecords:
        """Return the encoded rows of a file that count, read chunk by chunk."""
        if self.given is not None:
            raise InvalidParameterError(
                "Expected rows in memory for a classifier that was fitted elsewhere, got a file; read it and use fit."
            )
        names = [entry.column for entry in self.sensitive]
        table = load_encoded(path, self.schema, names, delimiter=delimiter)
        groups = self._coded(list(table.groups.T), len(table.y))
        rows = self._with_groups(table.X, groups)
        return self._guarded(MemoryRecords(rows, table.y, groups, table.persons))

    def rows(self, X: Any, groups: NDArray[np.int16]) -> NDArray[np.float32]:
        """Return what the model reads of each row: its encoding, or what a given classifier says of it."""
        if self.given is not None:
            return self.given.probabilities(X)
        return self._with_groups(self.encoder.rows(X), groups)

    def _with_groups(self, rows: NDArray[np.float32], groups: NDArray[np.int16]) -> NDArray[np.float32]:
        """Return rows, for decoupled models with the place of their group among the known ones as a last column."""
        if self.predicts != "decoupled":
            return rows
        places = np.full(self.people.n_groups, -1)
        places[self.people.codes] = np.arange(len(self.people.codes))
        return np.column_stack([rows, places[groups]]).astype(np.float32)

    def groups(self, X: Any, sensitive_features: Any = None) -> NDArray[np.int16]:
        """Return the group code of each row."""
        columns = _sensitive_columns(X, sensitive_features, self.sensitive)
        return self._coded(
            [self.encoder.groups(cells, entry) for cells, entry in zip(columns, self.sensitive, strict=True)],
            len(X),
        )

    def _coded(self, levels: list[NDArray[np.int16]], n_rows: int) -> NDArray[np.int16]:
        """Return one group code a row; with no sensitive column everyone belongs to no group."""
        if any(len(level) != len(levels[0]) for level in levels):
            raise BadStructureError("Expected sensitive columns of equal length, got different ones.")
        return self.people.code(levels) if levels else np.full(n_rows, -1, dtype=np.int16)

    def _persons(self, X: Any) -> NDArray[np.int64] | None:
        name = self.schema.id_column
        return None if name is None else self.encoder.persons(_column(X, name, "id"))

    def _keep(self, X: Any, n_rows: int) -> NDArray[np.bool_]:
        if not self.schema.where:
            return np.ones(n_rows, dtype=bool)
        if not isinstance(X, pd.DataFrame):
            raise BadStructureError("Expected a DataFrame, because the schema has row rules, got an array.")
        return self.encoder.keep(X)


def _square(column: Number | Category, scaled_square: float) -> float:
    """Return what a column adds to the squared norm of an encoded row: a 1 among its levels, or a scaled number."""
    if isinstance(column, Category) or column.encode == "bins":
        return 1.0
    return scaled_square if column.encode == "scale" else 1.0 + scaled_square


def _column(X: Any, name: str, what: str) -> pd.Series:
    if not isinstance(X, pd.DataFrame):
        raise BadStructureError(
            f'Expected a DataFrame with the {what} column "{name}", got an array without names.'
        )
    return columns_of(X, [name])[0]


def _sensitive_columns(X: Any, sensitive_features: Any, entries: tuple[Sensitive, ...]) -> list[Any]:
    """Return the raw cells of each sensitive column, from the features given apart or from the table."""
    if sensitive_features is None:
        return [_column(X, entry.column, "sensitive") for entry in entries]
    if isinstance(sensitive_features, pd.DataFrame):
        return [_column(sensitive_features, entry.column, "sensitive") for entry in entries]
    if len(entries) > 1:
        raise BadStructureError(
            f"Expected sensitive_features as a DataFrame with the columns {[entry.column for entry in entries]}, "
            f"got {type(sensitive_features).__name__}."
        )
    return [sensitive_features] * len(entries)


def open_front(
    schema: Schema | None,
    sensitive: str | Sequence[str] | None,
    epsilon: float,
    delta: float,
    X: Any,
    y: Any,
    protects: str = "record",
) -> Front:
    """Return the public side; without a schema only at epsilon = infinity, where classes may be read from `y`."""
    names = [sensitive] if isinstance(sensitive, str) else list(sensitive or ())
    if schema is None:
        if math.isfinite(epsilon) or X is None:
            raise MissingPublicFactError(
                "Expected a schema with the public bounds, categories and classes, got none; write one as TOML, or "
                "Schema.for_arrays(n_features, classes=[...], bounds=(-1, 1), n_public=...) for a plain array."
            )
        if names:
            raise InvalidParameterError(
                "Expected a schema with the groups of the sensitive column, got none."
            )
        schema = Schema.for_arrays(X.shape[1], classes=[str(code) for code in range(len(np.unique(y)))])
    if schema.private_draft and math.isfinite(epsilon):
        raise MissingPublicFactError(
            "Expected a schema whose facts are public, got a draft made from the rows; check each line, then approve "
            "it with 'fairveil schema approve FILE --yes'."
        )
    entries = tuple(schema.sensitive_named(name) for name in names)
    return Front(schema, entries, epsilon, delta, protects=protects)


def typed_classes(classes: tuple[str, ...]) -> NDArray[Any]:
    """Return the schema's classes in the type that their names spell: truth values, whole numbers or text.

    The labels' own type would depend on the rows: one missing label turns whole numbers into floats.
    """
    if set(classes) <= {"True", "False"}:
        return np.array([name == "True" for name in classes])
    if all(re.fullmatch("-?[0-9]+", name) for name in classes):
        return np.array([int(name) for name in classes])
    return np.array(classes, dtype=object)


def check_label_type(classes: NDArray[Any], y: Any) -> None:
    """Refuse labels whose type (structure, not values) no class has: every row would be ignored silently."""
    kind = getattr(getattr(y, "dtype", None), "kind", "O")
    if kind in "biuf" and (kind == "b") != (classes.dtype.kind == "b"):
        raise BadStructureError(
            f"Expected labels of the type of the schema's classes {classes.tolist()}, got a column of {y.dtype}; "
            "convert it, or edit [target] in the schema."
        )
