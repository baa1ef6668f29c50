"""What may be asked of a row: frozen, pure functions that are registered by name.

A row function sees a block of rows and answers each row by itself. It is a frozen dataclass whose fields are public
(released or declared) values, so that nothing private hides inside it, and it must be registered to pass the veil.

Whose rows: the unit of protection is a record, or a person who may have many.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fairveil._random import Coins
from fairveil._typing import Float32Array
from fairveil.errors import UnplannedReleaseError
from fairveil.privacy.sampling import Index

T = TypeVar("T", bound=type)
_registry: set[type] = set()


class Rows:
    """A block of rows on the private side: inputs, labels, cells and norms, each gathered when first read.

    What a model says of the rows, and their joint codes, are remembered too: row functions of one batch share them.
    """

    __slots__ = ("_X", "_asked", "_cells", "_index", "_joint", "_norms", "_source", "_y")

    def __init__(self, source: "Columns", index: NDArray[np.int64]) -> None:
        self._source = source
        self._index = index
        self._X: Float32Array | None = None
        self._y: NDArray[np.int16] | None = None
        self._cells: NDArray[np.int16] | None = None
        self._norms: Float32Array | None = None
        self._asked: tuple[Differentiable, Float32Array, tuple[Float32Array, ...]] | None = None
        self._joint: tuple[int, NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return len(self._index)

    @property
    def X(self) -> Float32Array:
        """The inputs, one row a record."""
        if self._X is None:
            self._X = self._source.X.take(self._index, axis=0)
        return self._X

    @property
    def y(self) -> NDArray[np.int16]:
        """The class codes."""
        if self._y is None:
            self._y = self._source.y.take(self._index, mode="clip")
        return self._y

    @property
    def cells(self) -> NDArray[np.int16]:
        """The group or cell codes, -1 for none."""
        if self._cells is None:
            self._cells = self._source.cells.take(self._index, mode="clip")
        return self._cells

    @property
    def norms(self) -> Float32Array:
        """The Euclidean norms of the inputs."""
        if self._norms is None:
            self._norms = self._source.norms.take(self._index, mode="clip")
        return self._norms

    @property
    def uniforms(self) -> NDArray[np.floating]:
        """Two independent secret numbers in [0, 1) for each row, shape (2, B), which no record decides."""
        uniforms = self._source.uniforms
        return (
            np.full((2, len(self)), 0.5)
            if uniforms is None
            else uniforms.take(self._index, axis=1, mode="clip")
        )

    def forward(self, model: "Differentiable", params: Float32Array) -> tuple[Float32Array, ...]:
        """Return the model's activations, read-only, and keep them while model and parameters are the same objects."""
        asked = self._asked
        if asked is None or asked[0] is not model or asked[1] is not params:
            activations = model.forward(params, self.X)
            for array in activations:
                array.setflags(write=False)
            self._asked = asked = (model, params, activations)
        return asked[2]

    def by_cell(self) -> "Rows":
        """Return the same rows with those of a cell side by side, and otherwise in their order."""
        return Rows(self._source, self._index.take(np.argsort(self.cells, kind="stable")))

    def joint(self, n_classes: int) -> NDArray[np.int64]:
        """Return cell * n_classes + label, read-only; negative for no cell: the last `n_classes` entries of a table."""
        if self._joint is None or self._joint[0] != n_classes:
            joint = self._source.joint(n_classes).take(self._index, mode="clip")
            joint.setflags(write=False)
            self._joint = (n_classes, joint)
        return self._joint[1]


class Columns(Protocol):
    """Where a block of rows is gathered from."""

    @property
    def X(self) -> Float32Array:
        """All inputs."""

    @property
    def y(self) -> NDArray[np.int16]:
        """All labels."""

    @property
    def cells(self) -> NDArray[np.int16]:
        """All cells."""

    @property
    def norms(self) -> Float32Array:
        """All norms."""

    @property
    def uniforms(self) -> Float32Array | None:
        """All lots, once the records lie in their secret order."""

    def joint(self, n_classes: int) -> NDArray[np.int64]:
        """All cell * n_classes + label."""


class Differentiable(Protocol):
    """What the veil needs of a model: logits, and the exact sum of clipped per-record gradients."""

    def forward(self, params: Float32Array, X: Float32Array) -> tuple[Float32Array, ...]:
        """Return the activations of each layer; the last are the logits, one row a class."""

    def clipped_gradient(
        self,
        params: Float32Array,
        X: Float32Array,
        dlogits: Float32Array,
        clip_norm: float | Float32Array,
        *,
        activations: tuple[Float32Array, ...] | None = None,
        row_norms: Float32Array | None = None,
    ) -> Float32Array:
        """Return the sum over records of their gradients, each clipped to `clip_norm`."""


@runtime_checkable
class Objective(Protocol):
    """What training minimises, seen from the logits of one record."""

    def dlogits(self, logits: Float32Array, rows: Rows) -> Float32Array:
        """Return the derivative of each record's objective by its own logits, one row a class."""


@runtime_checkable
class CellFunction(Protocol):
    """Puts each row into one of `n_cells` cells, or into none (-1)."""

    @property
    def n_cells(self) -> int:
        """The number of cells."""

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return one cell per row."""


@runtime_checkable
class VectorFunction(Protocol):
    """Turns each row into a vector of `n_values` numbers; the veil clips it."""

    @property
    def n_values(self) -> int:
        """The length of the vector."""

    def values_of(self, rows: Rows) -> Float32Array:
        """Return one vector per row."""


@runtime_checkable
class HistogramFunction(Protocol):
    """Puts each row into one of `n_cells` cells, or none (-1), and turns it into `n_values` numbers to add there.

    A function whose numbers do not depend on the row's own cell may say so by a class attribute `adds_alike`.
    """

    @property
    def n_cells(self) -> int:
        """The number of cells."""

    @property
    def n_values(self) -> int:
        """The length of a row's vector, which the veil bounds."""

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return one cell per row."""

    def values_of(self, rows: Rows) -> Float32Array:
        """Return one vector per row, value by value: shape (n_values, B)."""


class RowMoments(NamedTuple):
    """What rows add to moments: u z to the cell and v z z^T to the table of each, -1 for none.

    `design` holds z, one row a record; `pulls` u and `weights` v, one number each.
    """

    design: NDArray[np.floating]
    cells: NDArray[np.integer]
    tables: NDArray[np.integer]
    pulls: NDArray[np.floating]
    weights: NDArray[np.floating]


@runtime_checkable
class MomentFunction(Protocol):
    """Turns each row into a vector z, whose first and second moments are summed in cells and tables; the veil clips."""

    @property
    def n_values(self) -> int:
        """The length of z."""

    @property
    def n_cells(self) -> int:
        """The number of cells of first moments."""

    @property
    def n_tables(self) -> int:
        """The number of tables of second moments."""

    def moments_of(self, rows: Rows) -> RowMoments:
        """Return what each row adds, and where."""


def row_function(cls: T) -> T:
    """Register a frozen dataclass as a function of rows that may pass the veil."""
    if not (dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen):  # type: ignore[attr-defined]
        raise TypeError(f"Expected {cls.__name__} to be a frozen dataclass; freeze it before registering.")
    _registry.add(cls)
    return cls


def check_registered(function: Any) -> None:
    """Refuse a row function that was not registered."""
    if type(function) not in _registry:
        raise UnplannedReleaseError(
            f"Expected a registered row function, got {type(function).__name__}; "
            "make it a frozen dataclass and decorate it with @row_function."
        )


@dataclass(frozen=True, eq=False)
class Units:
    """The rows of each unit: `order[starts[u] : starts[u] + sizes[u]]`; `order` None means one row a unit."""

    count: int
    order: Index | None = None
    starts: Index | None = None
    sizes: Index | None = None

    @classmethod
    def of_rows(cls, n_rows: int) -> "Units":
        """Each row is a unit."""
        return cls(n_rows)

    @classmethod
    def of_persons(cls, persons: NDArray[np.int64]) -> "Units":
        """All rows with one code are a unit."""
        _, starts, sizes = np.unique(np.sort(persons), return_index=True, return_counts=True)
        return cls(len(starts), np.argsort(persons, kind="stable"), starts, sizes)

    def rows_of(self, units: Index) -> Index:
        """Return all rows of the given units."""
        if self.order is None or self.starts is None or self.sizes is None:
            return units
        sizes = self.sizes[units]
        first = np.repeat(self.starts[units] - np.cumsum(sizes) + sizes, sizes)
        return self.order[first + np.arange(sizes.sum())]

    def sizes_of(self, units: Index) -> Index:
        """Return how many rows each given unit has."""
        return np.ones(len(units), dtype=np.int64) if self.sizes is None else self.sizes[units]

    def one_row(self, units: Index, coins: Coins) -> Index:
        """Return one row of each given unit, picked by a secret coin."""
        if self.order is None or self.starts is None or self.sizes is None:
            return units
        pick = (coins.generator.random(len(units)) * self.sizes[units]).astype(np.int64)
        return self.order[self.starts[units] + pick]

    def strata(self, cells: NDArray[np.integer], names: Sequence[int]) -> list[Index]:
        """Return the units of each named cell; -1 names all cells not named. A person's cell is their first row's."""
        if list(names) == [-1]:
            return [np.arange(self.count)]
        first = cells if self.order is None else cells[self.order[self.starts]]
        named = np.isin(first, [name for name in names if name != -1])
        return [np.flatnonzero(~named if name == -1 else first == name) for name in names]
