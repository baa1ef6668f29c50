"""Records in memory: the only place where rows of people live once they are encoded.

They answer five questions about the rows of a batch: how many fall into each cell, the sums of bounded vectors in each
cell, the sum of clipped gradients, the sum of clipped vectors, the sums of bounded first and second moments. Each
answer is a sum over rows, so it adds up over blocks and, elsewhere, over shards.

Floating point ties rows together: the rounding of a product depends on where a row stands in its block, and on the
partial sum it is added to. So units lie in a secret random order, and a unit's own secret key, not its rank, decides
its block: one unit more or less changes one block and leaves the others as they are, bit for bit.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fairveil._random import Coins
from fairveil._typing import Float32Array
from fairveil.errors import BadStructureError, UnplannedReleaseError
from fairveil.privacy.moments import bounded_rows, flat_length, pack, sum_rows
from fairveil.privacy.output_perturbation import RidgeSoftmax, minimise
from fairveil.privacy.rows import (
    CellFunction,
    Differentiable,
    HistogramFunction,
    MomentFunction,
    Objective,
    Rows,
    Units,
    VectorFunction,
)
from fairveil.privacy.sampling import Index, assign_parts, poisson_batches, poisson_draws

T = TypeVar("T", bound=np.generic)
Drawn = Index | list[Rows]
"""The row numbers of a batch, or its blocks, where several releases share them."""

ROUNDING = 1 - 1e-6
LEEWAY = 1 + 1e-6
"""Vectors in a histogram are held to this multiple of their bound, so that probabilities, which do not quite add up to
1 in single precision, stay as they are; the veil's noise covers far more."""
_SILENT = np.errstate(all="ignore")  # a warning about a value would be an output that one record decides


@dataclass(frozen=True, eq=False)
class MemoryRecords:
    """Encoded rows in memory, by record or by person.

    Parameters
    ----------
    X : array of float32, shape (n, d)
    y : array of int16, shape (n,)
        Class codes, none negative (see `keeping`).
    cells : array of int16, shape (n,)
        Group or cell codes; -1 belongs to none.
    persons : array of int64, shape (n,), optional
        Person codes; where given, the unit is the person.
    keys : array of float64, shape (n,), optional
        The secret key in [0, 1) of each row's unit, ascending (see `arranged`).
    coins : Coins, optional
        Where the lots of arranged records come from.
    """

    X: Float32Array
    y: NDArray[np.int16]
    cells: NDArray[np.int16]
    persons: NDArray[np.int64] | None = None
    keys: NDArray[np.float64] | None = None
    coins: Coins | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        lengths = {len(self.X), len(self.y), len(self.cells)}
        if len(lengths) != 1 or (self.persons is not None and len(self.persons) != len(self.y)):
            raise BadStructureError(
                "Expected inputs, labels, groups and persons of equal length; got different ones."
            )

    @classmethod
    def keeping(
        cls, X: Float32Array, y: NDArray, cells: NDArray, persons: NDArray | None, keep: NDArray[np.bool_]
    ) -> "MemoryRecords":
        """Return the records whose row is kept and whose label is known; the others contribute nothing."""
        rows = np.flatnonzero(keep & (y >= 0))
        return cls(X, y, cells, persons)._of_rows(rows)

    @cached_property
    def norms(self) -> Float32Array:
        """The Euclidean norm of each row's input."""
        return np.sqrt(np.einsum("ij,ij->i", self.X, self.X, dtype=np.float64)).astype(np.float32)

    @cached_property
    def _joints(self) -> dict[int, NDArray[np.int64]]:
        return {}

    def joint(self, n_classes: int) -> NDArray[np.int64]:
        """Return cell * n_classes + label of each row, computed once."""
        if n_classes not in self._joints:
            self._joints[n_classes] = self.cells.astype(np.int64) * n_classes + self.y
        return self._joints[n_classes]

    @cached_property
    def units(self) -> "Units":
        """Which rows belong to which unit."""
        return Units.of_rows(len(self.y)) if self.persons is None else Units.of_persons(self.persons)

    def __repr__(self) -> str:
        return "MemoryRecords(<private>)"

    def arranged(self, coins: Coins) -> "MemoryRecords":
        """Return the same records in the order of fresh secret keys, one for each unit."""
        keys = coins.generator.random(self.units.count)
        order = np.argsort(keys)
        rows = self.units.rows_of(order)
        sizes = self.units.sizes_of(order)
        return replace(self._of_rows(rows), keys=np.repeat(keys[order], sizes), coins=coins)

    @cached_property
    def uniforms(self) -> Float32Array | None:
        """Two secret numbers in [0, 1) of each row's unit, shape (2, n), drawn when a rule first asks for them."""
        if self.keys is None or self.coins is None:
            return None
        units = np.cumsum(np.diff(self.keys, prepend=-1.0) > 0) - 1  # rows of one unit share its key
        drawn = self.coins.generator.random((2, int(units[-1]) + 1 if len(units) else 0), dtype=np.float32)
        return drawn.take(units, axis=1)

    def split(self, shares: Mapping[str, float], coins: Coins) -> dict[str, "MemoryRecords"]:
        """Return disjoint parts; each unit falls into one by its own secret coin."""
        parts = assign_parts(self.units.count, shares, coins)
        return {name: self._of_rows(self.units.rows_of(units)) for name, units in parts.items()}

    def _of_rows(self, rows: Index) -> "MemoryRecords":
        persons = None if self.persons is None else self.persons[rows]
        return MemoryRecords(self.X[rows], self.y[rows], self.cells[rows], persons)

    def draw(self, rates: Mapping[int, float], coins: Coins) -> Iterator[Index]:
        """Yield Poisson batches for ever, as row numbers; `rates` gives a public rate per cell (-1: all others)."""
        if list(rates) == [-1]:
            batches = poisson_draws(self.units.count, rates[-1], coins)
        else:
            strata = self.units.strata(self.cells, list(rates))
            batches = poisson_batches(strata, list(rates.values()), coins)
        if self.persons is None:
            return batches
        return (np.sort(self.units.one_row(units, coins)) for units in batches)

    def keep_blocks(self, batch: Index, n_blocks: int) -> list[Rows]:
        """Return a batch that gathers its rows once for all that is asked of it."""
        return list(self.blocks(batch, n_blocks))

    def blocks(self, batch: Drawn, n_blocks: int) -> Iterator[Rows]:
        """Yield the rows of a batch (ascending) in blocks, by which of `n_blocks` equal ranges their key lies in."""
        if isinstance(batch, list):
            yield from batch
            return
        if n_blocks == 1 or self.keys is None:
            yield Rows(self, batch)
            return
        inner = np.searchsorted(self.keys.take(batch), np.arange(1, n_blocks) / n_blocks)
        for start, end in pairwise([0, *np.unique(inner).tolist(), len(batch)]):
            yield Rows(self, batch[start:end])

    @_SILENT
    def count_cells(self, batch: Drawn, function: CellFunction, n_blocks: int = 1) -> NDArray[np.int64]:
        """Return how many rows of the batch fall into each cell; a row counts in one cell at most."""
        counts = np.zeros(function.n_cells, dtype=np.int64)
        for rows in self.blocks(batch, n_blocks):
            cells = _shaped(function.cells_of(rows), len(rows))
            counts += np.bincount(_slots(cells, function.n_cells), minlength=function.n_cells + 1)[:-1]
        return counts

    @_SILENT
    def sum_histogram(
        self, batch: Drawn, function: HistogramFunction, bound: float, norm: int, n_blocks: int = 1
    ) -> NDArray[np.float64]:
        """Return per cell the sum of per-record vectors, each bounded in L1 or L2; a non-finite one adds nothing."""
        total = np.zeros((function.n_values, function.n_cells))
        for rows in self.blocks(batch, n_blocks):
            cells = _shaped(function.cells_of(rows), len(rows))
            values = np.asarray(function.values_of(rows), dtype=np.float64)
            _shaped(values, function.n_values, len(rows))
            total += _by_cell(values, cells, function.n_cells, bound, norm)
        return total.T

    @_SILENT
    def sum_gradients(
        self,
        batch: Drawn,
        model: Differentiable,
        params: Float32Array,
        objective: Objective,
        clip_norm: float | Float32Array,
        n_blocks: int = 1,
    ) -> NDArray[np.float64]:
        """Return the sum of per-record gradients, each clipped; an array of clip norms holds one per cell."""
        total: NDArray[np.float64] | None = None
        for rows in self.blocks(batch, n_blocks):
            activations = rows.forward(model, params)
            dlogits = objective.dlogits(activations[-1], rows)
            bound = clip_norm if isinstance(clip_norm, float) else clip_norm.take(rows.cells)
            block = model.clipped_gradient(
                params,
                rows.X,
                dlogits,
                bound,
                activations=activations,
                row_norms=self._norms_for(rows, bound),
            )
            total = block.astype(np.float64) if total is None else total + block
        return np.zeros(len(params)) if total is None else total

    @_SILENT
    def sum_group_gradients(
        self,
        batch: Drawn,
        model: Differentiable,
        params: Float32Array,
        objective: Objective,
        clip_norm: float,
        n_cells: int,
        n_blocks: int = 1,
    ) -> NDArray[np.float64]:
        """Return for each cell the sum of its records' gradients, each clipped; records of no cell add nothing."""
        totals = np.zeros((n_cells, len(params)))
        for rows in (block.by_cell() for block in self.blocks(batch, n_blocks)):
            *hidden, logits = rows.forward(model, params)
            dlogits = objective.dlogits(logits, rows)
            norms = self._norms_for(rows, clip_norm)
            ends = np.searchsorted(rows.cells, np.arange(n_cells + 1))
            for cell in np.flatnonzero(np.diff(ends)).tolist():
                own = slice(ends[cell], ends[cell + 1])
                totals[cell] += model.clipped_gradient(
                    params,
                    rows.X[own],
                    dlogits[:, own],
                    clip_norm,
                    activations=(*(layer[own] for layer in hidden), logits[:, own]),
                    row_norms=None if norms is None else norms[own],
                )
        return totals

    @staticmethod
    def _norms_for(rows: Rows, bound: float | Float32Array) -> Float32Array | None:
        """Return the norms, which an unclipped sum does not need."""
        return None if isinstance(bound, float) and bound == float("inf") else rows.norms

    @_SILENT
    def sum_vectors(
        self, batch: Drawn, function: VectorFunction, clip_norm: float, n_blocks: int = 1
    ) -> NDArray[np.float64]:
        """Return the sum of per-record vectors, each clipped to `clip_norm` in L2; a non-finite one adds nothing."""
        total = np.zeros(function.n_values, dtype=np.float64)
        for rows in self.blocks(batch, n_blocks):
            values = np.asarray(function.values_of(rows), dtype=np.float64)
            _shaped(values, len(rows), function.n_values)
            values = np.where(np.isfinite(values).all(axis=1, keepdims=True), values, 0.0)
            norms = np.sqrt(np.einsum("ij,ij->i", values, values))
            total += np.minimum(1.0, ROUNDING * clip_norm / np.maximum(norms, clip_norm)) @ values
        return total

    @_SILENT
    def sum_moments(
        self, batch: Drawn, function: MomentFunction, bound: float, norm: int, n_blocks: int = 1
    ) -> NDArray[np.float64]:
        """Return first and second moments as one flat vector, to which each record adds at most `bound` in L1 or L2."""
        shape = (function.n_cells, function.n_tables, function.n_values)
        total = np.zeros(flat_length(*shape))
        for rows in self.blocks(batch, n_blocks):
            answers = function.moments_of(rows)
            _shaped(answers.design, len(rows), function.n_values)
            for column in answers[1:]:
                _shaped(column, len(rows))
            total += pack(*sum_rows(bounded_rows(answers, shape, ROUNDING * bound, norm), shape), norm)
        return total

    @_SILENT
    def minimise(self, batch: Drawn, ridge: RidgeSoftmax) -> NDArray[np.float64]:
        """Return the minimiser of the regularised loss over the rows of the batch."""
        blocks = [(ridge.design(rows.X, rows.norms), rows.y) for rows in self.blocks(batch, 1)]

        def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            values, gradients = zip(*(ridge.loss(weights, X, y) for X, y in blocks), strict=True)
            return sum(values), np.sum(gradients, axis=0)

        return minimise(loss, ridge, sum(len(y) for _, y in blocks)) if blocks else np.zeros(ridge.n_params)


def _by_cell(
    values: NDArray[np.float64], cells: NDArray[np.integer], n_cells: int, bound: float, norm: int
) -> NDArray[np.float64]:
    """Return the sums of bounded columns of `values` in each cell, shape (n_values, n_cells)."""
    slots, limit = _slots(cells, n_cells), bound * LEEWAY
    sizes = np.add.reduce(np.abs(values) if norm == 1 else values * values, axis=0)
    if not np.maximum.reduce(sizes, initial=0.0) <= limit**norm:
        norms = sizes if norm == 1 else np.sqrt(sizes)
        values = values * (limit / np.maximum(norms, limit))
        slots = np.where(np.isfinite(norms), slots, n_cells)
    places = slots + _first_slots(len(values), n_cells + 1)
    n_slots = (n_cells + 1) * len(values)
    sums: NDArray[np.float64] = np.bincount(places.ravel(), values.ravel(), n_slots)  # type: ignore[assignment]
    return sums.reshape(len(values), n_cells + 1)[:, :-1]


def _slots(cells: NDArray[np.integer], n_cells: int) -> NDArray[np.int64]:
    """Return each row's cell, or `n_cells` where it has none: a last slot, to be cut off."""
    # read as unsigned, a negative cell is a huge one
    return np.minimum(cells.astype(np.int64, copy=False).view(np.uint64), n_cells).view(np.int64)


@lru_cache(maxsize=32)
def _first_slots(n_values: int, n_slots: int) -> NDArray[np.int64]:
    return np.arange(0, n_values * n_slots, n_slots)[:, None]


def _shaped(answers: NDArray[T], *shape: int) -> NDArray[T]:
    """Refuse a row function that does not answer each row once: what is added too often is not bounded."""
    if answers.shape != shape:
        raise UnplannedReleaseError(
            "Expected a row function to answer each row once, got more or fewer answers."
        )
    return answers
