"""The public facts about a table, declared by a person and kept in a TOML file.

Everything fairveil knows about a table before it pays for a release stands here: columns with their bounds or
categories, the target's classes, the groups, the rows that count. Encoding follows from it alone.
"""

import hashlib
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fairveil.data.coding import check_distinct
from fairveil.data.facts import Category, ColumnName, Facts, Number, Sensitive, Target, Where
from fairveil.data.schema_errors import close_match
from fairveil.data.schema_toml import schema_toml
from fairveil.data.values import MissingCells
from fairveil.errors import BadStructure, MissingPublicFact

__all__ = ["Category", "Number", "Schema", "Sensitive", "Target", "Where"]

DEFAULT_MISSING = ("", "?", "NA", "N/A", "nan", "NaN", "null", "None")


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
        Cells that mean missing, blanks around them aside; nulls always do.
    private_draft : bool
        True for a draft made by looking at the rows without privacy and not yet approved.
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
    n_public: int | None = Field(default=None, ge=1)
    id_column: ColumnName | None = None
    missing_values: tuple[str, ...] = DEFAULT_MISSING
    private_draft: bool = False
    target: Target
    sensitive: tuple[Sensitive, ...] = ()
    where: tuple[Where, ...] = ()
    columns: dict[ColumnName, Annotated[Number | Category, Field(discriminator="type")]]

    @model_validator(mode="after")
    def _check(self) -> "Schema":
        if not self.columns:
            raise BadStructure(
                "Expected at least one feature, got none; write one table [columns.NAME] for each."
            )
        if self.target.column in self.columns:
            raise BadStructure(
                f'Expected the target "{self.target.column}" not to be a feature; remove its column.'
            )
        if self.id_column in self.columns:
            raise BadStructure(
                f'Expected the id column "{self.id_column}" not to be a feature; remove its column.'
            )
        check_distinct("sensitive columns", tuple(entry.column for entry in self.sensitive))
        return self

    @classmethod
    def read(cls, path: str | Path) -> "Schema":
        """Return the schema in a TOML file."""
        try:
            facts = tomllib.loads(Path(path).read_bytes().decode("utf-8-sig"))
        except OSError as error:
            raise BadStructure(
                f"Expected a readable schema file at {path}; {error.strerror or error}."
            ) from None
        except UnicodeDecodeError:
            raise BadStructure(f"Expected {path} to be a TOML schema; it is not UTF-8 text.") from None
        except tomllib.TOMLDecodeError as error:
            raise BadStructure(f"Expected {path} to be a TOML schema; {_plain(error)}.") from None
        try:
            return cls(**facts)
        except (BadStructure, MissingPublicFact) as error:
            raise type(error)(f"{path}: {error}") from None

    def write(self, path: str | Path) -> None:
        """Write the schema as TOML; reading it back gives an equal schema."""
        try:
            Path(path).write_bytes(self.to_toml().encode())
        except (OSError, UnicodeEncodeError) as error:
            raise BadStructure(f"Expected to write the schema to {path}; {error}.") from None

    def to_toml(self) -> str:
        """Return the schema as TOML text."""
        kept = {"missing_values": self.missing_values}
        facts = self.model_dump(exclude_defaults=True) | kept
        facts["columns"] = {
            name: {"type": column.type} | column.model_dump(exclude_defaults=True)
            for name, column in self.columns.items()
        }
        order = [name for name in type(self).model_fields if name in facts]
        return schema_toml({name: facts[name] for name in order})

    def fingerprint(self) -> str:
        """Return the SHA-256 of the TOML text."""
        return hashlib.sha256(self.to_toml().encode("utf-8", "surrogatepass")).hexdigest()

    def without(self, *columns: str) -> "Schema":
        """Return the schema without some of its features."""
        for column in columns:
            self._check_feature(column)
        kept = {name: facts for name, facts in self.columns.items() if name not in columns}
        return Schema(**(dict(self) | {"columns": kept}))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The feature columns in order."""
        return tuple(self.columns)

    @property
    def missing(self) -> MissingCells:
        """The rule that says which cells are missing."""
        return MissingCells.of(self.missing_values)

    def sensitive_named(self, column: str) -> Sensitive:
        """Return the groups of a column: declared ones, else the categories of the feature of that name."""
        for entry in self.sensitive:
            if entry.column == column:
                return entry
        self._check_feature(column)
        feature = self.columns[column]
        if isinstance(feature, Category):
            return Sensitive(column=column, groups=feature.categories)
        raise MissingPublicFact(
            f'Expected groups for "{column}", got a number column; write [[sensitive]] with column = '
            f'"{column}", groups = ["low", "high"] and cuts = [{sum(feature.bounds) / 2:g}].'
        )

    def _check_feature(self, column: str) -> None:
        if column not in self.columns:
            names = list(self.columns)
            raise BadStructure(
                f'Expected a column of the schema, got "{column}"{close_match(column, names)}.'
            )

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
        """Return a schema for NumPy input: columns x0, x1, ..., the target y, groups in a column group."""
        sensitive = () if groups is None else (Sensitive(column="group", groups=tuple(groups)),)
        column = Number(bounds=bounds, encode=encode)
        return cls(
            n_public=n_public,
            target=Target(column="y", classes=tuple(classes)),
            sensitive=sensitive,
            columns={f"x{index}": column for index in range(n_features)},
        )


def _plain(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")
