"""The public facts a schema is made of: number and category columns, target, groups, row rules."""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    StringConstraints,
    ValidationError,
    model_validator,
)

from fairveil.data.coding import IGNORE, Coding, check_coding, check_distinct, check_increasing
from fairveil.data.schema_errors import as_fairveil_error
from fairveil.data.values import canonical_text
from fairveil.errors import BadStructure

__all__ = ["MISSING", "OTHER", "Category", "ColumnName", "Facts", "Number", "Sensitive", "Target", "Where"]

OTHER, MISSING = "other", "missing"
DEFAULT_BINS = 10
MAX_LEVELS = 2**16  # codes are kept as uint16


def _as_name(value: Any) -> str:
    text = canonical_text(value)
    if text is None:
        raise BadStructure("Expected a text or a number as a name, got nothing.")
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
        Instead of cuts: so many bins of equal width (10 if neither is given).
    encode : {"bins", "scale", "both"}
        One-hot bins, one scaled number, or both side by side.
    """

    type: Literal["number"] = "number"
    bounds: tuple[FiniteFloat, FiniteFloat]
    cuts: Numbers | None = None
    bins: int | None = Field(default=None, ge=1, le=MAX_LEVELS - 1)
    encode: Literal["bins", "scale", "both"] = "bins"

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
            raise BadStructure(f"Expected bounds = [low, high] with low < high, got {[low, high]}.")
        if self.cuts is not None and self.bins is not None:
            raise BadStructure("Expected either cuts or bins, got both; remove one.")
        if self.encode == "scale" and (self.cuts is not None or self.bins is not None):
            raise BadStructure('Expected no cuts or bins with encode = "scale"; remove them or write "both".')
        self._check_edges(low, high)
        return self

    def _check_edges(self, low: float, high: float) -> None:
        check_increasing("cuts" if self.cuts is not None else "bins", self.edges)
        if self.edges and not low < self.edges[0] <= self.edges[-1] < high:
            raise BadStructure(
                f"Expected cuts strictly inside the bounds {[low, high]}, got {list(self.edges)}."
            )

    @property
    def edges(self) -> tuple[float, ...]:
        """The interior cut points, whichever way they were declared."""
        if self.bins is not None:
            # Twelve digits hide the rounding of the division and read well in feature names.
            return tuple(float(f"{edge:.12g}") for edge in np.linspace(*self.bounds, self.bins + 1)[1:-1])
        return self.cuts or ()


class Category(Facts):
    """A column of codes or texts with a public list of values.

    A value that is not listed is the level "other", a missing cell the level "missing"; both always exist (a
    listed category of that name serves as the level). A listed category is never taken for missing.
    """

    type: Literal["category"] = "category"
    categories: Names

    @model_validator(mode="after")
    def _check(self) -> "Category":
        check_distinct("categories", self.categories)
        if len(self.levels) > MAX_LEVELS:
            raise BadStructure(f"Expected at most {MAX_LEVELS - 2} categories, got {len(self.categories)}.")
        return self

    @property
    def levels(self) -> tuple[str, ...]:
        """The categories in order, then "other" and "missing"."""
        return self.categories + tuple(name for name in (OTHER, MISSING) if name not in self.categories)


class Target(Facts):
    """The column to predict: its classes in a fixed order and how raw cells fall into them (see `Coding`)."""

    column: ColumnName
    classes: Names
    positive: Name = ""
    cuts: Numbers = ()
    at_cut: Literal["up", "down"] = "up"
    values: dict[Name, Names] = Field(default_factory=dict)
    unknown: Name = IGNORE

    @model_validator(mode="before")
    @classmethod
    def _default_positive(cls, facts: Any) -> Any:
        classes = facts.get("classes") if isinstance(facts, dict) else None
        if not isinstance(classes, (list, tuple)) or facts.get("positive"):
            return facts
        return {**facts, "positive": classes[-1] if classes else ""}

    @model_validator(mode="after")
    def _check(self) -> "Target":
        check_coding(self.coding, "classes")
        if self.positive not in self.classes:
            raise BadStructure(f"Expected positive to be one of the classes, got {self.positive!r}.")
        return self

    @property
    def coding(self) -> Coding:
        """The rule that turns raw cells into class numbers."""
        return Coding(self.classes, self.cuts, self.at_cut, self.values, self.unknown)


class Sensitive(Facts):
    """A column whose groups are to be treated alike: groups in a fixed order and how cells fall into them.

    With unknown = "ignore" a row without a known group still counts for the loss but belongs to no group. `sources`
    names other columns from which the group follows (an age group from the age): where the group alone is to be secret,
    they must not be features.
    """

    column: ColumnName
    groups: Names
    cuts: Numbers = ()
    at_cut: Literal["up", "down"] = "up"
    values: dict[Name, Names] = Field(default_factory=dict)
    unknown: Name = IGNORE
    sources: tuple[ColumnName, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> "Sensitive":
        check_coding(self.coding, "groups")
        check_distinct("sources", self.sources)
        return self

    @property
    def coding(self) -> Coding:
        """The rule that turns raw cells into group numbers."""
        return Coding(self.groups, self.cuts, self.at_cut, self.values, self.unknown)


class Where(Facts):
    """A rule every row must meet; a row that fails contributes nothing. All conditions given must hold.

    A cell that is missing or no number fails every number condition and `one_of`, and passes `none_of`.
    """

    column: ColumnName
    at_least: FiniteFloat | None = None
    at_most: FiniteFloat | None = None
    above: FiniteFloat | None = None
    below: FiniteFloat | None = None
    one_of: Names | None = None
    none_of: Names | None = None
    present: Literal[True] | None = None

    @model_validator(mode="after")
    def _check(self) -> "Where":
        if len(self.model_dump(exclude_none=True)) == 1:
            raise BadStructure(
                f'Expected a condition on "{self.column}", got none; write for example at_least = 0.'
            )
        return self
