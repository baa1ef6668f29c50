"""The public side of a user's table: what the schema says about it, how its rows become records, and decisions.

An `InputSpec` is built from public facts alone (schema, sensitive columns, budget). It reads records only after the
ledger has accepted the plan.
"""

import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairveil._random import Key, uniforms_of_rows
from fairveil._typing import Float32Array
from fairveil._validation import check_budget
from fairveil.data.coded import SCHEMA_ONLY, CodedRows, Detail, Features, dense
from fairveil.data.encoding import Encoder, columns_of
from fairveil.data.frames import PLAIN, as_pandas
from fairveil.data.readers import Chunk, EncodedTable, columns_needed, encode_chunk, load_encoded
from fairveil.data.schema import IGNORE, Category, Schema, Sensitive
from fairveil.data.values import canonical_text
from fairveil.errors import (
    BadStructureError,
    InvalidParameterError,
    MissingPublicFactError,
    NotEnoughMemoryError,
    without_array_sizes,
)
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.probing import check_rows_alone
from fairveil.models.base import Model, reads_codes
from fairveil.models.rules import DecisionRule, label_probabilities
from fairveil.privacy.attribute import AttributeRecords, attribute_unit
from fairveil.privacy.records import MemoryRecords
from fairveil.scale.packed import RecordTable
from fairveil.training.recipe import Progress, Task, no_progress

TYPICAL_SQUARE = 1 / 9
"""Mean square of a number scaled to [-1, 1], if its bounds lie about three standard deviations from its mean."""

BYTES_PER_ROW = 48
"""Of each row beside its encoding: label, group, person, secret order and keys, and what sorting them takes."""

UNEQUAL_LENGTHS = "Expected sensitive_features of the length of X, got another length; pass one group for each row."
"""It states no lengths: how many people there are is private."""


SchemaOrPath = Schema | str | Path


def open_schema(schema: SchemaOrPath | None) -> Schema | None:
    """Return the schema itself, or that of a TOML file."""
    if isinstance(schema, (str, Path)):
        return Schema.read(schema)
    if schema is not None and not isinstance(schema, Schema):
        raise InvalidParameterError(
            f"Expected schema to be a Schema or the path of its file, got {type(schema).__name__}; write "
            'schema="people.toml".'
        )
    return schema


@dataclass(frozen=True, eq=False)
class PrefittedClassifier:
    """A probabilistic classifier that was fitted elsewhere, with its columns in the order of the schema's classes."""

    classifier: Any
    columns: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name of the classifier's class."""
        return type(self.classifier).__name__

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
                f"Expected a classifier of the schema's classes {list(classes)}, got one of other classes; edit "
                "[target], or fit it to these."
            )
        return cls(classifier, tuple(known.index(name) for name in classes))

    def probabilities(self, X: Any) -> NDArray[np.float32]:
        """Return the class probabilities, shape (n_records, n_classes), in the order of the schema's classes.

        They come from code that fairveil does not control. The guarantee assumes that it answers each row by itself
        (see `check_rows_alone`) and does not fail on a value.
        """
        if len(X) == 0:
            return np.empty((0, len(self.columns)), dtype=np.float32)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # a warning about a value would be an output that one record decides
            answers = np.asarray(self.classifier.predict_proba(X), dtype=np.float64)
        if answers.ndim != 2 or len(answers) != len(X) or answers.shape[1] <= max(self.columns):
            raise BadStructureError(
                f"Expected one probability for each row and each of {len(self.columns)} classes, got an array "
                "of another shape; check predict_proba."
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
    detail : Detail
        How finely numbers are divided, and whether pairs of columns have features.
    encoder : Encoder
        Turns rows into numbers by the schema.
    people : Population
        The groups and classes that are counted.
    task : Task
        Everything that is public about the training task.
    """

    schema: Schema
    sensitive: tuple[Sensitive, ...]
    epsilon: float
    delta: float
    predicts: str = "label"
    prefitted: PrefittedClassifier | None = None
    protects: str = "record"
    detail: Detail = SCHEMA_ONLY
    encoder: Encoder = field(init=False, repr=False, compare=False)
    people: Population = field(init=False, repr=False, compare=False)
    task: Task = field(init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        schema: SchemaOrPath | None,
        sensitive: str | Sequence[str] | None,
        epsilon: float,
        delta: float,
        protects: str = "record",
        arrays: tuple[Any, Any] | None = None,
        rule_on: str | None = None,
        estimator: Any = None,
    ) -> "InputSpec":
        """Return the spec; without a schema only at epsilon = infinity, where the classes are read from `arrays`.

        `rule_on` is what the model of a post-processor predicts, `estimator` the classifier if it was fitted elsewhere.
        The schema of a post-processor declares the groups, and a joint model does not read them as features.
        """
        check_budget(epsilon, delta)
        schema = open_schema(schema)
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
        if rule_on is None:
            return cls(schema, entries, epsilon, delta, protects=protects)
        prefitted = None if estimator is None else PrefittedClassifier.of(estimator, schema.target.classes)
        others = (entry for entry in schema.sensitive if entry.column not in names)
        schema = schema.model_copy(update={"sensitive": (*entries, *others)})
        if rule_on == "joint":
            schema = schema.without(*(name for name in names if name in schema.columns))
        return cls(schema, entries, epsilon, delta, rule_on, prefitted, protects)

    def __post_init__(self) -> None:
        schema, target = self.schema, self.schema.target
        unit = "record" if schema.id_column is None else f"person by {schema.id_column}"
        if self.protects == "attribute":
            self._check_secret()
            unit = attribute_unit([entry.column for entry in self.sensitive], unit)
        # The squared norm of an encoded row: 1 for the intercept, 1 for each set of levels, and the scaled numbers.
        n_levels = n_scaled = 0
        for column in schema.columns.values():
            kind = "bins" if isinstance(column, Category) else column.encode
            n_levels += kind in ("bins", "both")
            n_scaled += kind in ("scale", "both")
        encoder = Encoder(schema, self.detail)
        attributes = tuple(Attribute(entry.column, entry.groups) for entry in self.sensitive)
        people = Population(attributes, target.classes, target.classes.index(target.positive))
        task = Task(
            n_features=encoder.n_features,
            people=people,
            input_norm=math.sqrt(1 + n_levels + n_scaled),
            typical_norm=math.sqrt(1 + n_levels + TYPICAL_SQUARE * n_scaled),
            n_public=schema.n_public,
            epsilon=self.epsilon,
            delta=self.delta,
            unit=unit,
            predicts=self.predicts,
            is_scaled=encoder.n_features == 2 * n_scaled and n_levels == 0,
            levels=encoder.levels if n_levels and self.prefitted is None else None,
        )
        for name, value in {"encoder": encoder, "people": people, "task": task}.items():
            object.__setattr__(self, name, value)

    def _check_secret(self) -> None:
        """Refuse a secret attribute that is not secret: public columns must not name it or what it follows from."""
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

    def plain(self, source: "TableSource") -> "TableSource":
        """Return tables and columns of any kind as pandas or NumPy; classifiers fitted elsewhere get all columns of X.

        Where the schema lists a sensitive column as a feature and `X` lacks it, the sensitive features that are passed
        separately take its place, so that a model that reads the column finds it.
        """
        X, y, groups = source.X, source.y, source.sensitive_features
        names, features = [entry.column for entry in self.sensitive], self.schema.columns
        if not all(isinstance(one, PLAIN) for one in (X, y, groups)):
            read = columns_needed(self.schema, self.sensitive) if self.prefitted is None else None
            X, y, groups = as_pandas(X, read), as_pandas(y), as_pandas(groups, names)
        if groups is not None and self.prefitted is None:
            others = [name for name in features if name not in names]
            if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == len(others) < len(features):
                X = pd.DataFrame(X, columns=others)
            labels = {str(label).strip() for label in X.columns} if isinstance(X, pd.DataFrame) else {*names}
            absent = [place for place, name in enumerate(names) if name in features and name not in labels]
            columns = self._sensitive_columns(X, groups) if absent else []
            kinds = [object if isinstance(column, (list, tuple)) else None for column in columns]
            cells = [pd.Series(columns[place], dtype=kinds[place]) for place in absent]
            if any(len(column) != len(X) for column in cells):
                raise BadStructureError(UNEQUAL_LENGTHS)
            added = zip(absent, cells, strict=True)
            X = X.assign(**{names[place]: column.set_axis(X.index) for place, column in added}) if absent else X
        return TableSource(X, y, groups)

    def records(self, source: "Source") -> MemoryRecords | AttributeRecords:
        """Return the encoded rows that count: those that the schema keeps and whose label and person are known.

        What public facts say is too much for this machine is refused before a row is read. Memory for the copies that
        are made of the rows after the debit is requested here as well, so that a lack of it is found before anything
        is paid for.
        """
        n_public = self.schema.n_public
        if n_public is not None and self.prefitted is None:
            n_bytes = n_public * (self.encoder.row_bytes + BYTES_PER_ROW)
            try:
                np.empty(n_bytes, dtype=np.uint8)  # memory that is never written to costs nothing
            except (MemoryError, ValueError):  # ValueError: more than any machine can address
                raise NotEnoughMemoryError(
                    f"Expected about {n_bytes / 1e9:,.0f} GB of memory for n_public = {n_public:,} rows, got less; use "
                    "a machine with more, fewer columns, or the engine that keeps rows on disk."
                ) from None
        table = self._with_group_codes(self._encoded(source))
        np.empty(BYTES_PER_ROW * len(table.y), dtype=np.uint8)
        return self.records_of(table)

    def records_of(self, table: RecordTable) -> MemoryRecords | AttributeRecords:
        """Return the records of encoded rows, wherever these are kept."""
        records = MemoryRecords(table.X, table.y, table.groups, table.persons)
        return AttributeRecords.of(records, self.people.codes) if self.protects == "attribute" else records

    def encode(self, chunk: Chunk) -> RecordTable:
        """Return the rows of a chunk that count."""
        codes, numbers, y, groups, persons = encode_chunk(self.encoder, chunk, self.sensitive)
        known = persons if self.schema.id_column else None
        return self._with_group_codes(EncodedTable(self.encoder.compact(codes, numbers), y, groups, known))

    def _with_group_codes(self, table: EncodedTable) -> RecordTable:
        """Return the rows with one code for all their sensitive columns, which decoupled models read as well."""
        rows, groups = table.X, np.full(len(table.y), -1, dtype=np.int16)
        if self.sensitive:
            groups = self.people.code(list(table.groups.T))
        if self.predicts == "decoupled" and self.prefitted is None:
            rows = self._with_groups(rows, groups)
        return RecordTable(rows, table.y, groups, table.persons)

    def _encoded(self, source: "Source") -> EncodedTable:
        if isinstance(source, TableSource):
            if source.y is None:
                raise BadStructureError("Expected labels y, got None.")
            columns = [source.y, *self._sensitive_columns(source.X, source.sensitive_features)]
            if self.prefitted is not None:
                check_rows_alone(self.prefitted.name, self.prefitted.probabilities, self.schema, source.X)
            y, levels, persons, counts = self.encoder.labels(source.X, columns, self.sensitive)
            read = self.encoder.features if self.prefitted is None else self.prefitted.probabilities
            known = persons[counts] if self.schema.id_column else None
            return EncodedTable(read(source.X)[counts], y[counts], levels[counts], known)
        self.check_reads_files()
        names = [entry.column for entry in self.sensitive]
        return load_encoded(
            source.path,
            self.schema,
            names,
            delimiter=source.delimiter,
            encoding=source.encoding,
            detail=self.detail,
        )

    def check_reads_files(self) -> None:
        """Refuse files where a classifier that was fitted elsewhere reads the rows."""
        if self.prefitted is not None:
            raise InvalidParameterError(
                "Expected rows in memory for a classifier that was fitted elsewhere, got a file; read it and use fit."
            )

    def groups(self, X: Any, sensitive_features: Any = None) -> NDArray[np.int16]:
        """Return the group code of each row; without a sensitive column everyone belongs to no group."""
        columns = self._sensitive_columns(X, sensitive_features)
        levels = [self.encoder.groups(*pair) for pair in zip(columns, self.sensitive, strict=True)]
        return self.people.code(levels) if levels else np.full(len(X), -1, dtype=np.int16)

    def _sensitive_columns(self, X: Any, sensitive_features: Any) -> list[Any]:
        """Return the raw sensitive columns: the features passed separately, or columns of `X`."""
        names = [entry.column for entry in self.sensitive]
        if sensitive_features is None or isinstance(sensitive_features, pd.DataFrame):
            table = X if sensitive_features is None else sensitive_features
            return list(columns_of(table, names, "sensitive column")) if names else []
        if len(names) > 1:
            raise BadStructureError(
                f"Expected sensitive_features as a DataFrame with the columns {names}, got "
                f"{type(sensitive_features).__name__}."
            )
        return [sensitive_features] * len(names)

    def rows(self, X: Any, groups: NDArray[np.int16]) -> Features:
        """Return what the model reads of each row: its encoding, or the probabilities of a prefitted classifier."""
        if self.prefitted is not None:
            return self.prefitted.probabilities(X)
        rows = self.encoder.features(X)
        return self._with_groups(rows, groups) if self.predicts == "decoupled" else rows

    def _with_groups(self, rows: Features, groups: NDArray[np.int16]) -> Features:
        """Return the inputs of decoupled models: the index of a row's group among the known ones is the last column."""
        places = np.full(self.people.n_groups, -1)
        places[self.people.codes] = np.arange(len(self.people.codes))
        if isinstance(rows, CodedRows):
            return rows.with_number(places[groups])
        return np.column_stack([rows, places[groups]]).astype(np.float32)

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
        elif all(re.fullmatch("-?[1-9][0-9]{0,17}|0", name) for name in names):  # "01" is a name, and not 1
            classes = np.array([int(name) for name in names])
        kind = getattr(getattr(y, "dtype", None), "kind", "O")
        mapped = bool(target.cuts or target.values)
        if not mapped and kind in "biuf" and (kind == "b") != (classes.dtype.kind == "b"):
            raise BadStructureError(
                f"Expected labels of the type of the schema's classes {classes.tolist()}, got a column of {y.dtype}; "
                "convert it, or edit [target] in the schema."
            )
        return classes


@dataclass(frozen=True, eq=False)
class TableSource:
    """Rows in memory: a table, its labels, and the sensitive features if they are not columns of the table."""

    X: Any
    y: Any
    sensitive_features: Any = None


@dataclass(frozen=True)
class FileSource:
    """Rows in a CSV or Parquet file, or in a folder of Parquet files, that follow the schema.

    `engine`, `cache` and `address` say where encoded rows are kept (`methods/engines.py`), `reading` wraps a range of
    steps while they are read for the first time.
    """

    path: str | Path
    delimiter: str | None = None
    encoding: str | None = None
    engine: str = "auto"
    cache: Path | None = None
    reading: Progress = no_progress
    address: str | None = None
    y: None = None


Source = TableSource | FileSource


class Answer(NamedTuple):
    """What a decision follows from: a row's group, what the model reads of it, its logits; private like the rows."""

    groups: NDArray[np.integer]
    rows: Features
    logits: NDArray[Any]
    decided: NDArray[np.integer]


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
        return self.answer(X, sensitive_features, record_ids).decided

    @without_array_sizes()
    def answer(self, X: Any, sensitive_features: Any = None, record_ids: Any = None) -> Answer:
        """Return the decision for each row, and what it follows from."""
        if record_ids is not None and len(record_ids) != len(X):
            raise BadStructureError(
                "Expected record_ids of the length of X, got another length; pass one id for each row."
            )
        groups, rows, logits = self._groups_rows_logits(X, sensitive_features)
        uniforms = np.zeros((2, len(groups)))
        if self.rule.needs_uniforms:
            uniforms = self._uniforms(X, record_ids)
        return Answer(groups, rows, logits, self.rule.decide(logits, groups, uniforms))

    def without_group(self, X: Any, sensitive_features: Any = None) -> NDArray[np.bool_] | None:
        """Return which rows have a missing or unlisted group; None if sensitive columns are not read at all."""
        inputs = self.inputs
        names = [entry.column for entry in inputs.sensitive]
        is_feature = isinstance(X, pd.DataFrame) and all(name in inputs.schema.columns for name in names)
        if not names or not (self.rule.reads_group or inputs.predicts == "decoupled" or is_feature):
            return None
        return ~np.isin(inputs.groups(X, sensitive_features), inputs.people.codes)

    @without_array_sizes()
    def probabilities(self, X: Any, sensitive_features: Any = None) -> NDArray[np.float64]:
        """Return the distribution of a randomized rule, else the model's class probabilities; shape (n, n_classes)."""
        groups, _, logits = self._groups_rows_logits(X, sensitive_features)
        if self.rule.is_random:
            return self.rule.distribution(logits, groups)
        return label_probabilities(logits, self.inputs.people.n_classes).T

    @without_array_sizes()
    def distribution(self, X: Any, sensitive_features: Any = None) -> NDArray[np.float64]:
        """Return the probability of each decision, shape (n, n_classes)."""
        groups, _, logits = self._groups_rows_logits(X, sensitive_features)
        return self.rule.distribution(logits, groups)

    def check(self) -> None:
        """Refuse a model, a rule and a schema that do not fit together, by a decision about a row of missing cells."""
        names = [*self.inputs.schema.columns, *(entry.column for entry in self.inputs.sensitive)]
        row = pd.DataFrame({name: pd.Series([None], dtype=object) for name in names})
        try:
            groups, rows, logits = self._groups_rows_logits(row, None)
            shares = self.rule.distribution(logits, groups)
            (decision,) = self.rule.decide(logits, groups, np.zeros((2, 1))).tolist()
            is_sound = shares.shape == (1, self.inputs.people.n_classes) and 0 <= decision < shares.size
            is_sound = is_sound and bool(np.isfinite(shares).all()) and rows.shape[1] == self.model.n_features
        except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError):
            is_sound = False
        if not is_sound:
            raise BadStructureError(
                "Expected a model, a rule and a schema that fit together, got others; save the model again."
            )

    def _groups_rows_logits(
        self, X: Any, sensitive_features: Any
    ) -> tuple[NDArray[np.integer], Features, NDArray[Any]]:
        groups: NDArray[Any] = np.zeros(len(X), dtype=np.int64)
        if self.rule.reads_group or self.inputs.predicts == "decoupled":
            groups = self.inputs.groups(X, sensitive_features)
        if len(groups) != len(X):
            raise BadStructureError(UNEQUAL_LENGTHS)
        # In double precision a row's decision does not depend on how many rows are decided with it.
        params: Any = self.params.astype(np.float64)
        rows = self.inputs.rows(X, groups)
        if isinstance(rows, CodedRows) and reads_codes(self.model):
            return groups, rows, self.model.logits(params, rows)
        return groups, rows, self.model.logits(params, dense(rows).astype(np.float64))

    def _uniforms(self, X: Any, record_ids: Any) -> NDArray[np.float64]:
        """Return two keyed uniform numbers per row: of its id if there is one, else of what the schema reads of it."""
        if self.key is None:
            raise InvalidParameterError(
                "Expected the key of this randomized rule, got none; pass its file with use_key(path) or --key, or "
                "make one with Key.create(path)."
            )
        encoder, name = self.inputs.encoder, self.inputs.schema.id_column
        # two bytes a code, however few are enough: a person keeps the decision that an earlier version made
        codes = encoder.codes(X).astype(np.uint16)
        numbers = encoder.numbers(X) + np.float32(0)  # 0 and -0 are one number
        content = [
            np.ascontiguousarray(block).view(np.uint8).reshape(len(codes), block.shape[1] * block.dtype.itemsize)
            for block in (codes, numbers)
        ]
        uniforms = uniforms_of_rows(self.key, np.hstack(content))
        if record_ids is None and name is not None and isinstance(X, pd.DataFrame) and name in X.columns:
            record_ids = X[name]
        if record_ids is None:
            return uniforms
        persons = encoder.persons(as_pandas(record_ids))
        return np.where(persons >= 0, uniforms_of_rows(self.key, persons[:, None]), uniforms)
