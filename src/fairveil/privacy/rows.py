"""A block of private rows as queries see it, and the rows of each person."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairveil._random import Coins
from fairveil._typing import Float32Array
from fairveil.models.base import Model
from fairveil.privacy.sampling import Index

if TYPE_CHECKING:
    from fairveil.privacy.records import MemoryRecords


class Rows:
    """A block of private rows: inputs, labels, group codes and norms, each gathered when it is first read.

    The outputs of a model and the joint codes are kept as well, because the queries of one batch share them.
    """

    __slots__ = ("_X", "_forward", "_groups", "_index", "_joint", "_norms", "_records", "_y")

    def __init__(self, records: "MemoryRecords", index: Index) -> None:
        self._records = records
        self._index = index
        self._X: Float32Array | None = None
        self._y: NDArray[np.int16] | None = None
        self._groups: NDArray[np.int16] | None = None
        self._norms: Float32Array | None = None
        self._forward: tuple[Model, Float32Array, tuple[Float32Array, ...]] | None = None
        self._joint: tuple[int, NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return len(self._index)

    @property
    def X(self) -> Float32Array:
        """The inputs, shape (n_rows, n_features)."""
        if self._X is None:
            self._X = self._records.X.take(self._index, axis=0)
        return self._X

    @property
    def y(self) -> NDArray[np.int16]:
        """The class codes."""
        if self._y is None:
            self._y = self._records.y.take(self._index, mode="clip")
        return self._y

    @property
    def groups(self) -> NDArray[np.int16]:
        """The group codes, -1 for none."""
        if self._groups is None:
            self._groups = self._records.groups.take(self._index, mode="clip")
        return self._groups

    @property
    def norms(self) -> Float32Array:
        """The Euclidean norms of the inputs."""
        if self._norms is None:
            self._norms = self._records.norms.take(self._index, mode="clip")
        return self._norms

    @property
    def uniforms(self) -> NDArray[np.floating]:
        """Two independent secret numbers in [0, 1) for each row, shape (2, n_rows), independent of all records."""
        uniforms = self._records.uniforms
        if uniforms is None:
            return np.full((2, len(self)), 0.5)
        return uniforms.take(self._index, axis=1, mode="clip")

    def forward(self, model: Model, params: Float32Array) -> tuple[Float32Array, ...]:
        """Return the model's activations, read-only; they are kept while model and parameters are the same objects."""
        kept = self._forward
        if kept is None or kept[0] is not model or kept[1] is not params:
            activations = model.forward(params, self.X)
            for array in activations:
                array.setflags(write=False)
            self._forward = kept = (model, params, activations)
        return kept[2]

    def joint(self, n_labels: int) -> NDArray[np.int64]:
        """Return group code * n_labels + label, read-only: the place of each row in a flat table.

        It is negative for group code -1, which stands for the last row of a table.
        """
        if self._joint is None or self._joint[0] != n_labels:
            joint = self._records.joint(n_labels).take(self._index, mode="clip")
            joint.setflags(write=False)
            self._joint = (n_labels, joint)
        return self._joint[1]

    def by_group(self) -> "Rows":
        """Return the same rows sorted by group code, in their own order within each group."""
        return Rows(self._records, self._index.take(np.argsort(self.groups, kind="stable")))


@dataclass(frozen=True, eq=False)
class Persons:
    """The rows of each person: `order[starts[p] : starts[p] + sizes[p]]`."""

    order: Index
    starts: Index
    sizes: Index

    @classmethod
    def of_codes(cls, codes: NDArray[np.int64]) -> "Persons":
        """Return the persons of rows with these person codes."""
        _, starts, sizes = np.unique(np.sort(codes), return_index=True, return_counts=True)
        return cls(np.argsort(codes, kind="stable"), starts, sizes)

    def rows_of(self, persons: Index) -> Index:
        """Return all rows of these persons."""
        sizes = self.sizes[persons]
        first = np.repeat(self.starts[persons] - np.cumsum(sizes) + sizes, sizes)
        return self.order[first + np.arange(sizes.sum())]

    def one_row(self, persons: Index, coins: Coins) -> Index:
        """Return one row of each of these persons, selected by a secret coin, in ascending order."""
        selected = (coins.generator.random(len(persons)) * self.sizes[persons]).astype(np.int64)
        return np.sort(self.order[self.starts[persons] + selected])
