"""The public side of a user's table: what the schema says about it, how its rows become records, and decisions.

An `InputSpec` is built from public facts alone (schema, sensitive columns, budget). It reads records only after the
ledger has accepted the plan.
"""

import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairveil._random import Key, uniforms_of_rows
from fairveil._typing import Float32Array
from fairveil._validation import check_budget
from fairveil.data.encoding import Encoder, columns_of
from fairveil.data.readers import load_encoded
from fairveil.data.schema import IGNORE, Category, Schema, Sensitive
from fairveil.data.values import canonical_text
from fairveil.errors import BadStructureError, InvalidParameterError, MissingPublicFactError
from fairveil.fairness.groups import Attribute, Population
from fairveil.models.base import Model
from fairveil.models.rules import DecisionRule, label_probabilities
from fairveil.privacy.attribute import AttributeRecords, attribute_unit
from fairveil.privacy.records import MemoryRecords
from fairveil.training.recipe import Task

TYPICAL_SQUARE = 1 / 9
"""Mean square of a number scaled to [-1, 1], if its bounds lie about three standard deviations from its mean."""


@dataclass(frozen=True, eq=False)
class PrefittedClassifier:
    """A probabilistic classifier that was fitted elsewhere, with its columns in the order of the schema's classes."""

    classifier: Any
    columns: tuple[int, ...]

    @classmethod
    def of(cls, classifier: Any, classes: tuple[str, ...]) -> "PrefittedClassifier":
        """Return the classifier with its class order; refuse one that is not fitted or knows other classes."""
        if not hasattr(classifier, "predict_proba"):
            raise InvalidParameterError(
                f"Expected a classifier with predict_proba, got {type(classifier).__name__}; calibrate it first "
                "(CalibratedClassifierCV), or pass a recipe such as Descent() as training=."
            )
        if not hasattr(classifier, "classes_"):
            raise InvalidParameterError(
                f"Expected a fitted classifier, got a {type(classifier).__name__} that is not fitted; fit it on rows "
                "of its own (and wrap it in FrozenEstimator if the post-processor is cloned), or pass "
                "training=Descent() to train one here."
            )
        known = [canonical_text(name) for name in classifier.classes_]
        if sorted(map(str, known)) != sorted(classes):
            raise BadStructureError(
                f"Expected a classifier of the schema's classes {list(classes)}, got one of {known}; edit [target]."
            )
        return cls(classifier, tuple(known.index(name) for name in classes))

    def probabilities(self, X: Any) -> NDArray[np.float32]:
        """Return the class probabilities, shape (n_records, n_classes), in the order of the schema's classes.

        They come from code that fairveil does not control. The guarantee assumes that it answers each row by itself
        and does not fail on a value.
        """
        if len(X) == 0:
            return np.empty((0, len(self.columns)), dtype=np.float32)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # a warning about a value would be an output that one record decides
            answers = np.asarray(self.classifier.predict_proba(X), dtype=np.float64)
        if answers.ndim != 2 or answers.shape[1] <= max(self.columns):
            raise BadStructureError(
                f"Expected one probability for each of {len(self.columns)} classes, got an array of shape "
                f"{answers.shape}."
            )
        return answers[:, list(self.columns)].astype(np.float32)


@dataclass(frozen=True)
class InputSpec:
    """Public facts about a table: its schema, the sensitive columns, the budget, and what the model predicts.

    Attributes
    ----------
    schema : Schema
    sensitive : tuple of Sensitive
        The schema's entries of the sensitive columns, none if no column was named.
    epsilon, delta : float
    predicts : {"label", "joint", "decoupled"}
        See `Task`.
    prefitted : PrefittedClassifier, optional
        A classifier fitted elsewhere; its probabilities then take the place of encoded rows.
    protects : {"record", "attribute"}
        What is secret: whole records, or the sensitive attribute alone.
    """

    schema: Schema
    sensitive: tuple[Sensitive, ...]
    epsilon: float
    delta: float
    predicts: str = "label"
    prefitted: PrefittedClassifier | None = None
    protects: str = "record"
    encoder: Encoder = field(init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        schema: Schema | None,
        sensitive: str | Sequence[str] | None,
        epsilon: float,
        delta: float,
        protects: str = "record",
        arrays: tuple[Any, Any] | None = None,
    ) -> "InputSpec":
        """Return the spec; without a schema only at epsilon = infinity, where the classes are read from `arrays`."""
        check_budget(epsilon, delta)
        names = [sensitive] if isinstance(sensitive, str) else list(sensitive or ())
        if schema is None:
            if math.isfinite(epsilon) or arrays is None:
                raise MissingPublicFactError(
                    "Expected a schema with the public bounds, categories and classes, got none; write one as TOML, or "
                    "Schema.for_arrays(n_features, classes=[...], bounds=(-1, 1), n_public=...) for a plain array."
                )
            if names:
                raise InvalidParameterError("Expected a schema with the groups of the sensitive column, got none.")
            X, y = arrays
            schema = Schema.for_arrays(X.shape[1], classes=[str(code) for code in range(len(np.unique(y)))])
        if schema.private_draft and math.isfinite(epsilon):
            raise MissingPublicFactError(
                "Expected a schema whose facts are public, got a draft made from the rows; check each line, then "
                "approve it with 'fairveil schema approve FILE --yes'."
            )
        entries = tuple(schema.sensitive_named(name) for name in names)
        return cls(schema, entries, epsilon, delta, protects=protects)

    def __post_init__(self) -> None:
        """Refuse a secret attribute that is not secret: public columns must not name it or what it follows from."""
        object.__setattr__(self, "encoder", Encoder(self.schema))
        if self.protects != "attribute":
            return
        if not self.sensitive:
            raise InvalidParameterError("Expected a sensitive column, whose groups are the secret, got none; name one.")
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
                    why = "is the secret" if name == entry.column else f"reveals {entry.column!r}, the secret"
                    raise InvalidParameterError(
                        f"Expected public columns that do not name the attribute, got {name!r} as {public[name]}, "
                        f"which {why}; remove it from what is public (delete [columns.{name}] from the schema, in "
                        f"Python schema.without({name!r}), or the rule that reads it)."
                    )

    def for_postprocessing(self, predicts: str, estimator: Any) -> "InputSpec":
        """Return the spec of a post-processor: groups declared, and no input of a joint model if they are features."""
        prefitted = None if estimator is None else PrefittedClassifier.of(estimator, self.schema.target.classes)
        names = [entry.column for entry in self.sensitive]
        others = (entry for entry in self.schema.sensitive if entry.column not in names)
        schema = self.schema.model_copy(update={"sensitive": (*self.sensitive, *others)})
        if predicts == "joint":
            schema = schema.without(*(name for name in names if name in schema.columns))
        return replace(self, schema=schema, predicts=predicts, prefitted=prefitted)

    @cached_property
    def people(self) -> Population:
        """The groups and classes that are counted."""
        target = self.schema.target
        attributes = tuple(Attribute(entry.column, entry.groups) for entry in self.sensitive)
        return Population(attributes, target.classes, target.classes.index(target.positive))

    @cached_property
    def task(self) -> Task:
        """Everything that is public about the training task."""
        unit = "record" if self.schema.id_column is None else f"person by {self.schema.id_column}"
        if self.protects == "attribute":
            unit = attribute_unit([entry.column for entry in self.sensitive], unit)
        # The squared norm of an encoded row: 1 for the intercept, 1 for each set of levels, and the scaled numbers.
        n_levels = n_scaled = 0
        for column in self.schema.columns.values():
            kind = "bins" if isinstance(column, Category) else column.encode
            n_levels += kind in ("bins", "both")
            n_scaled += kind in ("scale", "both")
        return Task(
            n_features=self.encoder.n_features,
            people=self.people,
            input_norm=math.sqrt(1 + n_levels + n_scaled),
            typical_norm=math.sqrt(1 + n_levels + TYPICAL_SQUARE * n_scaled),
            n_public=self.schema.n_public,
            epsilon=self.epsilon,
            delta=self.delta,
            unit=unit,
            predicts=self.predicts,
        )

    def records(self, X: Any, y: Any, sensitive_features: Any = None) -> MemoryRecords | AttributeRecords:
        """Return the encoded rows that count: those that the schema keeps and whose label and person are known."""
        if y is None:
            raise BadStructureError("Expected labels y, got None.")
        targets, groups = self.encoder.targets(y), self.groups(X, sensitive_features)
        rows = self.rows(X, groups)
        if len(targets) != len(rows) or len(groups) != len(rows):
            raise BadStructureError(
                f"Expected X, y and sensitive_features of equal length, got {len(rows)}, {len(targets)} and "
                f"{len(groups)} rows."
            )
        keep, persons = np.ones(len(rows), dtype=bool), None
        if self.schema.where:
            if not isinstance(X, pd.DataFrame):
                raise BadStructureError("Expected a DataFrame, because the schema has row rules, got an array.")
            keep = self.encoder.keep(X)
        if self.schema.id_column is not None:
            persons = self.encoder.persons(_column(X, self.schema.id_column, "id"))
            keep = keep & (persons >= 0)
        records = MemoryRecords.keeping(rows, targets, groups, persons, keep)
        return AttributeRecords.of(records, self.people.codes) if self.protects == "attribute" else records

    def records_of_file(self, path: str | Path, delimiter: str = ",") -> MemoryRecords | AttributeRecords:
        """Return the encoded rows of a CSV or Parquet file that count, read chunk by chunk."""
        if self.prefitted is not None:
            raise InvalidParameterError(
                "Expected rows in memory for a classifier that was fitted elsewhere, got a file; read it and use fit."
            )
        names = [entry.column for entry in self.sensitive]
        table = load_encoded(path, self.schema, names, delimiter=delimiter)
        groups = self._group_codes(list(table.groups.T), len(table.y))
        rows = self._with_groups(table.X, groups)
        records = MemoryRecords(rows, table.y, groups, table.persons)
        return AttributeRecords.of(records, self.people.codes) if self.protects == "attribute" else records

    def rows(self, X: Any, groups: NDArray[np.int16]) -> NDArray[np.float32]:
        """Return what the model reads of each row: its encoding, or the probabilities of a prefitted classifier."""
        if self.prefitted is not None:
            return self.prefitted.probabilities(X)
        return self._with_groups(self.encoder.rows(X), groups)

    def _with_groups(self, rows: NDArray[np.float32], groups: NDArray[np.int16]) -> NDArray[np.float32]:
        """Return rows; for decoupled models with the index of their group among the known ones as the last column."""
        if self.predicts != "decoupled":
            return rows
        places = np.full(self.people.n_groups, -1)
        places[self.people.codes] = np.arange(len(self.people.codes))
        return np.column_stack([rows, places[groups]]).astype(np.float32)

    def groups(self, X: Any, sensitive_features: Any = None) -> NDArray[np.int16]:
        """Return the group code of each row, from the features passed separately or from the columns of `X`."""
        entries, table = self.sensitive, X if sensitive_features is None else sensitive_features
        if sensitive_features is None or isinstance(sensitive_features, pd.DataFrame):
            columns = [_column(table, entry.column, "sensitive") for entry in entries]
        elif len(entries) > 1:
            raise BadStructureError(
                f"Expected sensitive_features as a DataFrame with the columns {[entry.column for entry in entries]}, "
                f"got {type(sensitive_features).__name__}."
            )
        else:
            columns = [sensitive_features] * len(entries)
        levels = [self.encoder.groups(cells, entry) for cells, entry in zip(columns, entries, strict=True)]
        return self._group_codes(levels, len(X))

    def _group_codes(self, levels: list[NDArray[np.int16]], n_rows: int) -> NDArray[np.int16]:
        """Return one group code per row; without a sensitive column everyone belongs to no group."""
        if any(len(level) != len(levels[0]) for level in levels):
            raise BadStructureError("Expected sensitive columns of equal length, got different ones.")
        return self.people.code(levels) if levels else np.full(n_rows, -1, dtype=np.int16)

    def classes_for(self, y: Any) -> NDArray[Any]:
        """Return the schema's classes in the type that their names spell: truth values, whole numbers or text.

        The labels' own type would depend on the rows: one missing label turns whole numbers into floats. Labels whose
        type (structure, not values) no class has are refused, because every row would be ignored silently.
        """
        target = self.schema.target
        names = target.classes
        classes = np.array(names, dtype=object)
        if set(names) <= {"True", "False"}:
            classes = np.array([name == "True" for name in names])
        elif all(re.fullmatch("-?[0-9]+", name) for name in names):
            classes = np.array([int(name) for name in names])
        kind = getattr(getattr(y, "dtype", None), "kind", "O")
        mapped = bool(target.cuts or target.values)
        if not mapped and kind in "biuf" and (kind == "b") != (classes.dtype.kind == "b"):
            raise BadStructureError(
                f"Expected labels of the type of the schema's classes {classes.tolist()}, got a column of {y.dtype}; "
                "convert it, or edit [target] in the schema."
            )
        return classes


def _column(X: Any, name: str, what: str) -> pd.Series:
    if not isinstance(X, pd.DataFrame):
        raise BadStructureError(f'Expected a DataFrame with the {what} column "{name}", got an array without names.')
    return columns_of(X, [name])[0]


@dataclass(frozen=True, eq=False)
class TableSource:
    """Rows in memory: a table, its labels, and the sensitive features if they are not columns of the table."""

    X: Any
    y: Any
    sensitive_features: Any = None

    def records(self, inputs: InputSpec) -> MemoryRecords | AttributeRecords:
        """Return the encoded rows that count."""
        return inputs.records(self.X, self.y, self.sensitive_features)


@dataclass(frozen=True)
class FileSource:
    """Rows in a CSV or Parquet file that follows the schema."""

    path: str | Path
    delimiter: str = ","
    y: None = None

    def records(self, inputs: InputSpec) -> MemoryRecords | AttributeRecords:
        """Return the encoded rows that count, read chunk by chunk."""
        return inputs.records_of_file(self.path, self.delimiter)


Source = TableSource | FileSource


@dataclass(frozen=True, eq=False)
class Predictor:
    """Everything that a decision depends on; all of it is public except the key."""

    inputs: InputSpec
    model: Model
    params: Float32Array
    rule: DecisionRule
    key: Key | None = None

    def decide(self, X: Any, sensitive_features: Any = None, record_ids: Any = None) -> NDArray[np.integer]:
        """Return a class code for each row; the same record and key always get the same decision."""
        groups, logits = self._groups_and_logits(X, sensitive_features)
        uniforms = np.zeros((2, len(groups)))
        if self.rule.needs_uniforms:
            uniforms = self._uniforms(X, record_ids)
        return self.rule.decide(logits, groups, uniforms)

    def probabilities(self, X: Any, sensitive_features: Any = None) -> NDArray[np.float64]:
        """Return the distribution of a randomized rule, else the model's class probabilities; shape (n, n_classes)."""
        groups, logits = self._groups_and_logits(X, sensitive_features)
        if self.rule.is_random:
            return self.rule.distribution(logits, groups)
        return label_probabilities(logits, self.inputs.people.n_classes).T

    def distribution(self, X: Any, sensitive_features: Any = None) -> NDArray[np.float64]:
        """Return the probability of each decision, shape (n, n_classes)."""
        groups, logits = self._groups_and_logits(X, sensitive_features)
        return self.rule.distribution(logits, groups)

    def _groups_and_logits(self, X: Any, sensitive_features: Any) -> tuple[NDArray[np.integer], NDArray[Any]]:
        groups: NDArray[Any] = np.zeros(len(X), dtype=np.int64)
        if self.rule.reads_group or self.inputs.predicts == "decoupled":
            groups = self.inputs.groups(X, sensitive_features)
        # In double precision a row's decision does not depend on how many rows are decided with it.
        params: Any = self.params.astype(np.float64)
        return groups, self.model.logits(params, self.inputs.rows(X, groups).astype(np.float64))

    def _uniforms(self, X: Any, record_ids: Any) -> NDArray[np.float64]:
        """Return two keyed uniform numbers per row: of its id if there is one, else of what the schema reads of it."""
        if self.key is None:
            raise InvalidParameterError(
                "Expected the key of this randomized rule, got none; pass its file with use_key(path) or --key, or "
                "make one with Key.create(path)."
            )
        encoder, name = self.inputs.encoder, self.inputs.schema.id_column
        codes, numbers = encoder.codes(X), encoder.numbers(X) + np.float32(0)  # 0 and -0 are one number
        content = [
            np.ascontiguousarray(block).view(np.uint8).reshape(len(codes), block.shape[1] * block.dtype.itemsize)
            for block in (codes, numbers)
        ]
        uniforms = uniforms_of_rows(self.key, np.hstack(content))
        if record_ids is None and name is not None and isinstance(X, pd.DataFrame) and name in X.columns:
            record_ids = X[name]
        if record_ids is None:
            return uniforms
        persons = encoder.persons(record_ids)
        if len(persons) != uniforms.shape[1]:
            raise BadStructureError(
                f"Expected one id for each of {uniforms.shape[1]} rows, got {len(persons)}; name every record."
            )
        return np.where(persons >= 0, uniforms_of_rows(self.key, persons[:, None]), uniforms)
