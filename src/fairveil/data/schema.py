"""The public facts about a table, declared by a person and kept in a TOML file.

Everything fairveil knows about a table before it pays for a release is here: columns with their bounds or
categories, the target's classes, the groups, the rows that count. Encoding follows from it alone. A schema that is
wrong is refused in one sentence that says what to write instead.
"""

import hashlib
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    StringConstraints,
    ValidationError,
    model_validator,
)

from fairveil._durable import replacing
from fairveil._reading import read_bounded
from fairveil.data.files import UTF8, checked_delimiter, checked_encoding
from fairveil.data.schema_errors import as_fairveil_error, close_match
from fairveil.data.values import PLAIN, Format, canonical_text, number_of
from fairveil.errors import BadStructureError, InvalidParameterError, MissingPublicFactError

OTHER, MISSING = "other", "missing"
IGNORE = "ignore"
"""The name that stands for "leave the row out" where a cell has no class or group."""

DEFAULT_BINS = 10
DEFAULT_MISSING = ("", "?", "NA", "N/A", "nan", "NaN", "null", "None")
SCALED_ALONE = 2  # features of a number that is scaled and not cut: the number, and "missing"
MAX_LEVELS = 2**16  # codes take two bytes at most
MAX_FEATURES = 2**20
"""Encoded features of all columns together: a row of so many numbers takes 4 MiB."""
MAX_SCHEMA_BYTES = 2**24
MAX_PUBLIC = 10**12
"""A larger declared number of rows is a slip: more than anybody has."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TOML_WIDTH = 100
_TABLES = ("file", "target", "sensitive", "where", "columns")
_NOT_APPROVED: dict[str, Any] = {
    "approved_by": "", "approved_at": "", "approved_facts": "", "private_draft": False, "private_notes": (),
}  # fmt: skip
_HEAD = "# Public facts about a table: nothing here may be read off its private rows.\n"
_NO_SIZE = "# n_public = 1000    declare the number of rows here if it is public knowledge\n"
_DRAFT = "# This draft was made from the rows: as private as they are until a person approves it.\n"


def _as_name(value: Any) -> str:
    text = canonical_text(value)
    if text is None:
        raise BadStructureError("Expected a text or a number as a name, got nothing.")
    return text


Name = Annotated[str, BeforeValidator(_as_name)]
ColumnName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Names = tuple[Name, ...]
Numbers = tuple[FiniteFloat, ...]


class Facts(BaseModel):
    """Frozen facts whose validation errors are one sentence of fairveil's error tree."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **facts: Any) -> None:
        try:
            super().__init__(**facts)
        except ValidationError as error:
            raise as_fairveil_error(error, list(type(self).model_fields)) from None


class Number(Facts):
    """A number column with public bounds, cut into public bins, scaled to [-1, 1], or both.

    A number outside the bounds is clipped to them, infinities included. A cell that is missing or no number
    has the level "missing", and is 0 where the column is scaled.

    Attributes
    ----------
    bounds : pair of float
        The lowest and highest number that public knowledge allows.
    cuts : tuple of float
        Interior cut points; a number equal to a cut belongs to the bin above it.
    bins : int
        Instead of cuts: so many bins of equal width (10 if neither is set).
    encode : {"bins", "scale", "both"}
        One-hot bins, one scaled number, or both side by side.
    format : str
        How cells spell numbers: "plain", "1,234.5", "1.234,5", "1 234,5", "1'234.5", or dates as "YYYY-MM-DD",
        "DD.MM.YYYY", "DD/MM/YYYY" or "MM/DD/YYYY", which become the year with decimals.
    """

    type: Literal["number"] = "number"
    bounds: tuple[FiniteFloat, FiniteFloat]
    cuts: Numbers | None = None
    bins: int | None = Field(default=None, ge=1, le=MAX_LEVELS - 1)
    encode: Literal["bins", "scale", "both"] = "bins"
    format: Format = PLAIN

    @model_validator(mode="before")
    @classmethod
    def _default_bins(cls, facts: Any) -> Any:
        has_bins = isinstance(facts, dict) and facts.get("encode") != "scale"
        needs_default = has_bins and facts.get("cuts") is None and facts.get("bins") is None
        return {**facts, "bins": DEFAULT_BINS} if needs_default else facts

    @model_validator(mode="after")
    def _check(self) -> "Number":
        low, high = self.bounds
        if not low < high or not np.isfinite(high - low):
            raise BadStructureError(f"Expected bounds = [low, high] with low < high, got {[low, high]}.")
        if self.cuts is not None and self.bins is not None:
            raise BadStructureError("Expected either cuts or bins, got both; remove one.")
        if self.encode == "scale" and (self.cuts is not None or self.bins is not None):
            raise BadStructureError('Expected no cuts or bins with encode = "scale"; remove them or write "both".')
        _check_increasing("cuts" if self.cuts is not None else "bins", self.edges)
        if self.edges and not low < self.edges[0] <= self.edges[-1] < high:
            raise BadStructureError(f"Expected cuts strictly inside the bounds {[low, high]}, got {list(self.edges)}.")
        return self

    @cached_property
    def edges(self) -> tuple[float, ...]:
        """The interior cut points, declared as cuts or as bins."""
        if self.bins is not None:
            # Twelve digits hide the rounding of the division and read well in feature names.
            return tuple(float(f"{edge:.12g}") for edge in np.linspace(*self.bounds, self.bins + 1)[1:-1])
        return self.cuts or ()

    @property
    def n_features(self) -> int:
        """How many features the column has when it is encoded: bins, "missing", and the scaled number."""
        return SCALED_ALONE if self.encode == "scale" else len(self.edges) + 2 + (self.encode == "both")


class Category(Facts):
    """A column of codes or texts with a public list of values, its `categories`.

    A value that is not listed is the level "other", a missing cell the level "missing"; both always exist (a
    listed category of that name serves as the level). A listed category is never taken for missing.
    """

    type: Literal["category"] = "category"
    categories: Names

    @model_validator(mode="after")
    def _check(self) -> "Category":
        _check_distinct("categories", self.categories)
        if len(self.levels) > MAX_LEVELS:
            raise BadStructureError(f"Expected at most {MAX_LEVELS - 2} categories, got {len(self.categories)}.")
        return self

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """The categories in order, then "other" and "missing"."""
        return self.categories + tuple(name for name in (OTHER, MISSING) if name not in self.categories)

    @property
    def n_features(self) -> int:
        """How many features the column has when it is encoded: its levels."""
        return len(self.levels)


class Target(Facts):
    """The column to predict: its classes in a fixed order, and how cells map to them.

    Attributes
    ----------
    column : str
    classes : tuple of str
        A cell's code is the position of its class.
    positive : str
        The class that is the desirable outcome, the last one by default.
    cuts : tuple of float
        Cut points for a number column, one fewer than classes; classes run from the lowest numbers upward.
    at_cut : {"up", "down"}
        Where a number equal to a cut goes: "up" makes a cut c mean `>= c`, "down" makes it mean `> c`.
    values : mapping of class to raw values
        Which raw values make each class; without it (and without cuts) a class stands for itself.
    unknown : str
        The class of every other cell, missing ones included; "ignore" leaves their rows out.
    format : str
        With cuts: how cells spell numbers, as for a `Number`.
    """

    column: ColumnName
    classes: Names
    positive: Name = ""
    cuts: Numbers = ()
    at_cut: Literal["up", "down"] = "up"
    values: dict[Name, Names] = Field(default_factory=dict)
    unknown: Name = IGNORE
    format: Format = PLAIN

    @model_validator(mode="before")
    @classmethod
    def _default_positive(cls, facts: Any) -> Any:
        classes = facts.get("classes") if isinstance(facts, dict) else None
        if not isinstance(classes, (list, tuple)) or facts.get("positive"):
            return facts
        return {**facts, "positive": classes[-1] if classes else ""}

    @model_validator(mode="after")
    def _check(self) -> "Target":
        _check_coding(self, self.classes, "classes")
        if self.positive not in self.classes:
            raise BadStructureError(f"Expected positive to be one of the classes, got {self.positive!r}.")
        return self


class Sensitive(Facts):
    """A sensitive column: its groups in a fixed order, and how cells map to them.

    `column`, `groups`, `cuts`, `at_cut`, `values`, `unknown` and `format` are as those of a `Target` and its classes.
    With unknown = "ignore" a row without a known group still counts for the loss but belongs to no group. `sources`
    names other columns from which the group follows (an age group from the age): where the group alone is to be
    secret, they must not be features.
    """

    column: ColumnName
    groups: Names
    cuts: Numbers = ()
    at_cut: Literal["up", "down"] = "up"
    values: dict[Name, Names] = Field(default_factory=dict)
    unknown: Name = IGNORE
    format: Format = PLAIN
    sources: tuple[ColumnName, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> "Sensitive":
        _check_coding(self, self.groups, "groups")
        _check_distinct("sources", self.sources)
        return self


class Where(Facts):
    """A rule that every row must meet in all its conditions; rows that fail it contribute nothing.

    Conditions on a `column`: numbers `at_least`, `at_most`, `above`, `below`; texts `one_of`, `none_of`; `present`.
    A cell that is missing or no number fails every number condition and `one_of`, and passes `none_of`. `format` says
    how cells spell numbers, as for a `Number`.
    """

    column: ColumnName
    at_least: FiniteFloat | None = None
    at_most: FiniteFloat | None = None
    above: FiniteFloat | None = None
    below: FiniteFloat | None = None
    one_of: Names | None = None
    none_of: Names | None = None
    present: Literal[True] | None = None
    format: Format = PLAIN

    @model_validator(mode="after")
    def _check(self) -> "Where":
        if len(self.model_dump(exclude_none=True, exclude={"format"})) == 1:
            raise BadStructureError(
                f'Expected a condition on "{self.column}", got none; write for example at_least = 0.'
            )
        return self


class TextFile(Facts):
    """How CSV files of the table are written; Parquet files say it themselves.

    Attributes
    ----------
    delimiter : str
        The character between cells, or its name: "tab", "comma", "semicolon", "pipe", "space".
    encoding : str
        Python's name of the encoding, such as "utf-8", "latin-1" or "cp1252".
    """

    delimiter: Annotated[str, AfterValidator(checked_delimiter)] = ","
    encoding: Annotated[str, AfterValidator(checked_encoding)] = UTF8


class Schema(Facts):
    """All public facts about a table.

    Attributes
    ----------
    name, source : str
        What the table is and where it comes from.
    notes : tuple of str
        Remarks for the person who edits the file.
    n_public : int or None
        The number of rows that count, if it is public knowledge.
    id_column : str or None
        The column that names the person; a row without an id contributes nothing.
    missing_values : tuple of str
        Cells that mean missing, with or without blanks around them; nulls always do.
    private_draft : bool
        True for a draft made from the rows without privacy and not yet approved.
    private_notes : tuple of str
        What the holder of the rows should know about them; approval removes it.
    file : TextFile
        How CSV files of this table are written.
    approved_by, approved_at, approved_facts : str
        Who confirmed that every fact is public, when (UTC), and a digest of the facts at that time; empty if no
        approval is recorded.
    target, sensitive, columns, where
        The target, the groups, the features in order, the row rules.

    Examples
    --------
    >>> schema = Schema(target=Target(column="hired", classes=["no", "yes"]),
    ...                 columns={"age": Number(bounds=(18, 70), cuts=[30, 50])})
    >>> schema.feature_names, schema.target.positive
    (('age',), 'yes')
    """

    name: str = ""
    source: str = ""
    notes: tuple[str, ...] = ()
    n_public: int | None = Field(default=None, ge=1, le=MAX_PUBLIC)
    id_column: ColumnName | None = None
    missing_values: tuple[str, ...] = DEFAULT_MISSING
    private_draft: bool = False
    private_notes: tuple[str, ...] = ()
    file: TextFile = Field(default_factory=TextFile)
    approved_by: str = ""
    approved_at: str = ""
    approved_facts: str = ""
    target: Target
    sensitive: tuple[Sensitive, ...] = ()
    where: tuple[Where, ...] = ()
    columns: dict[ColumnName, Annotated[Number | Category, Field(discriminator="type")]]

    @model_validator(mode="before")
    @classmethod
    def _check_bins(cls, facts: Any) -> Any:
        """Refuse too many bins before any of them is made."""
        columns = facts.get("columns") if isinstance(facts, dict) else None
        tables = columns.values() if isinstance(columns, dict) else ()
        bins = [table.get("bins") if isinstance(table, dict) else None for table in tables]
        check_features(sum(number for number in bins if isinstance(number, int) and 0 < number < MAX_LEVELS))
        return facts

    @model_validator(mode="after")
    def _check(self) -> "Schema":
        n_features = 0  # the numbers that a row is encoded as: of each level or bin, of scaled and of missing cells
        for column in self.columns.values():
            if isinstance(column, Category):
                n_features += len(column.levels)
            else:
                n_bins = (len(column.edges) + 1) * (column.encode != "scale")
                n_features += n_bins + (column.encode != "bins") + 1
        check_features(n_features)
        if not self.columns:
            raise BadStructureError("Expected at least one feature, got none; write one table [columns.NAME] for each.")
        if self.target.column in self.columns:
            raise BadStructureError(
                f'Expected the target "{self.target.column}" not to be a feature; remove its column.'
            )
        if self.id_column in self.columns:
            raise BadStructureError(
                f'Expected the id column "{self.id_column}" not to be a feature; remove its column.'
            )
        _check_distinct("sensitive columns", [entry.column for entry in self.sensitive])
        if self.private_notes and not self.private_draft:
            raise BadStructureError(
                "Expected private_notes in a private draft only, got them in a public schema; remove them."
            )
        return self

    @classmethod
    def read(cls, path: str | Path) -> "Schema":
        """Return the schema in the TOML file at `path`."""
        content = read_bounded(Path(path), "a schema file", MAX_SCHEMA_BYTES)
        try:
            facts = tomllib.loads(content.decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise BadStructureError(f"Expected {path} to be a TOML schema; it is not UTF-8 text.") from None
        except tomllib.TOMLDecodeError as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise BadStructureError(f"Expected {path} to be a TOML schema; {reason}.") from None
        except (ValueError, RecursionError):  # of Python itself: thousands of digits, thousands of brackets
            raise BadStructureError(
                f"Expected {path} to be a TOML schema; a number in it is too long or its brackets nest too deep."
            ) from None
        try:
            return cls(**facts)
        except (BadStructureError, InvalidParameterError, MissingPublicFactError) as error:
            raise type(error)(f"{path}: {error}") from None

    def write(self, path: str | Path) -> None:
        """Write the schema to `path` as TOML, whole or not at all; a private draft is readable by its owner only."""
        try:
            content = self.to_toml().encode()
            with replacing(Path(path), 0o600 if self.private_draft else None) as new:
                new.write_bytes(content)
        except UnicodeEncodeError:
            raise BadStructureError(
                f"Expected names that UTF-8 can spell in the schema for {path}, got others; rename those columns."
            ) from None
        except OSError as problem:
            raise BadStructureError(
                f"Expected to write the schema to {path}, got {problem.strerror}; name another place."
            ) from None

    def to_toml(self) -> str:
        """Return the schema as TOML that a person likes to read and edit."""
        facts = self.model_dump(exclude_defaults=True, exclude={"columns"}) | {"missing_values": self.missing_values}
        plain = {name: facts[name] for name in type(self).model_fields if name in facts and name not in _TABLES}
        parts = [_HEAD, _DRAFT if self.private_draft else "", _toml_lines(plain)]
        if self.n_public is None:
            parts.append(_NO_SIZE)
        if "file" in facts:
            parts.append(f"\n[file]\n{_toml_lines(facts['file'])}")
        parts.append(f"\n[target]\n{_toml_lines(facts['target'])}")
        for name in ("sensitive", "where"):
            parts += [f"\n[[{name}]]\n{_toml_lines(entry)}" for entry in facts.get(name, ())]
        for name, column in self.columns.items():
            lines = _toml_lines({"type": column.type} | column.model_dump(exclude_defaults=True))
            parts.append(f"\n[columns.{_toml_key(name)}]\n{lines}")
        return "".join(parts)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the TOML text."""
        return hashlib.sha256(self.to_toml().encode("utf-8", "surrogatepass")).hexdigest()

    def approved(self, by: str = "") -> "Schema":
        """Return the schema as public knowledge, with the note that a person (`by`) has just confirmed it.

        Call it only if every fact is public: it is what `fairveil schema approve` writes after a person has checked the
        draft. Private notes are left out.
        """
        at, bare = datetime.now(UTC).isoformat(timespec="seconds"), Schema(**(dict(self) | _NOT_APPROVED))
        note = {"approved_by": by, "approved_at": at, "approved_facts": bare.fingerprint()}
        return bare.model_copy(update=note)

    @property
    def is_as_approved(self) -> bool:
        """Whether an approval is recorded, and the facts are still those that were approved."""
        return self.approved_facts == Schema(**(dict(self) | _NOT_APPROVED)).fingerprint()

    def without(self, *columns: str) -> "Schema":
        """Return the schema without these `columns` among its features."""
        for column in columns:
            self._check_feature(column)
        kept = {name: facts for name, facts in self.columns.items() if name not in columns}
        return Schema(**(dict(self) | {"columns": kept}))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The feature columns in order."""
        return tuple(self.columns)

    def sensitive_named(self, column: str) -> Sensitive:
        """Return the groups of a column: declared ones, else the categories of the feature of that name."""
        for entry in self.sensitive:
            if entry.column == column:
                return entry
        self._check_feature(column)
        feature = self.columns[column]
        if isinstance(feature, Category):
            return Sensitive(column=column, groups=feature.categories)
        raise MissingPublicFactError(
            f'Expected groups for "{column}", got a number column; write [[sensitive]] with column = '
            f'"{column}", groups = ["low", "high"] and cuts = [{sum(feature.bounds) / 2:g}].'
        )

    def _check_feature(self, column: str) -> None:
        if column not in self.columns:
            names = list(self.columns)
            raise BadStructureError(f'Expected a column of the schema, got "{column}"{close_match(column, names)}.')

    @classmethod
    def for_arrays(
        cls,
        n_features: int,
        classes: Any,
        *,
        bounds: tuple[float, float] = (-1.0, 1.0),
        n_public: int | None = None,
        encode: Literal["bins", "scale", "both"] = "scale",
        groups: Any = None,
    ) -> "Schema":
        """Return a schema for NumPy input: `n_features` columns x0, x1, ... and a target y with these `classes`.

        Every column has these `bounds` and is read by `encode`; `groups` are those of a sensitive column named group,
        and `n_public` is the number of rows if it is public.
        """
        sensitive = () if groups is None else (Sensitive(column="group", groups=tuple(groups)),)
        column = Number(bounds=bounds, encode=encode)
        return cls(
            n_public=n_public,
            target=Target(column="y", classes=tuple(classes)),
            sensitive=sensitive,
            columns={f"x{index}": column for index in range(n_features)},
        )


def _check_coding(facts: Target | Sensitive, names: Names, word: str) -> None:
    """Raise `BadStructureError` unless every cell falls into at most one of the classes or groups."""
    if len(names) < 2:
        raise BadStructureError(f"Expected at least two {word}, got {len(names)}; list them all in a fixed order.")
    _check_distinct(word, names)
    of_number: dict[float, str] = {}
    for name in names:
        number = number_of(name)
        if not math.isnan(number) and of_number.setdefault(number, name) != name:
            raise BadStructureError(
                f"Expected {word} with different values, got {of_number[number]!r} and {name!r}, which are the same "
                "number; rename one."
            )
    if IGNORE in names:
        raise BadStructureError(
            f'Expected no {word} named "{IGNORE}", which means "leave the row out"; choose another.'
        )
    if facts.unknown != IGNORE and facts.unknown not in names:
        raise BadStructureError(f'Expected unknown = "{IGNORE}" or one of the {word}, got {facts.unknown!r}.')
    if facts.cuts and facts.values:
        raise BadStructureError("Expected either cuts or values, got both; cuts are for numbers, values for codes.")
    if facts.cuts:
        _check_increasing("cuts", facts.cuts)
        n_cuts, n_names = len(facts.cuts), len(names)
        if n_cuts != n_names - 1:
            raise BadStructureError(f"Expected one cut fewer than {word}, got {n_cuts} cuts for {n_names} {word}.")
    if facts.values:
        strangers = [name for name in facts.values if name not in names]
        if strangers:
            raise BadStructureError(f"Expected values for the declared {word} only, got values for {strangers[0]!r}.")
        empty = [name for name in names if name not in facts.values and name != facts.unknown]
        if empty:
            raise BadStructureError(f"Expected values for each of the {word}, got none for {empty[0]!r}.")
        _check_distinct("values", [text for texts in facts.values.values() for text in texts])


def check_features(number: int) -> None:
    """Refuse more encoded features than rows may have."""
    if number > MAX_FEATURES:
        raise BadStructureError(
            f"Expected at most {MAX_FEATURES:,} encoded features in all, got {number:,}; declare fewer bins, cuts, "
            'categories or columns, or write encode = "scale".'
        )


def _check_distinct(key: str, names: Sequence[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise BadStructureError(f"Expected {key} without repeats, got {repeated[0]!r} twice.")


def _check_increasing(key: str, numbers: Numbers) -> None:
    if any(high <= low for low, high in pairwise(numbers)):
        raise BadStructureError(f"Expected {key} in strictly increasing order, got {list(numbers)}.")


def _toml_lines(table: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {_toml_value(value, len(key) + 3)}\n" for key, value in table.items())


def _toml_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _toml_value(name)


def _toml_value(value: Any, indent: int = 0) -> str:
    """Return a value as TOML; a list that does not fit into a line after `indent` is wrapped."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, str):
        # JSON escapes all that TOML wants escaped except the DEL character; invisible characters are written out, too.
        text = json.dumps(value, ensure_ascii=False)
        return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)
    if isinstance(value, Mapping):
        items = (f"{_toml_key(key)} = [{', '.join(map(_toml_value, item))}]" for key, item in value.items())
        return "{ " + ", ".join(items) + " }"
    texts = [_toml_value(item) for item in value]
    line = "[" + ", ".join(texts) + "]"
    if len(line) + indent <= _TOML_WIDTH:
        return line
    lines = [""]
    for text in texts:
        if len(lines[-1]) + len(text) + 2 > _TOML_WIDTH - 4:
            lines.append("")
        lines[-1] += f" {text},"
    return "[\n" + "".join(f"   {line}\n" for line in lines if line) + "]"
