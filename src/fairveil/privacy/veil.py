"""The veil: noisy sums of bounded contributions come through, nothing else does.

`open_veils` books the whole plan, then splits the records by secret coins, and hands out one veil per part. A veil
draws the planned number of batches; a batch answers each planned release once, bounds each record's contribution
itself, and adds the planned noise. Whatever is computed from the answers is post-processing.
"""

import math
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fairveil._validate import check_positive
from fairveil.coins import Coins
from fairveil.errors import UnplannedRelease
from fairveil.privacy.ledger import Ledger, Receipt
from fairveil.privacy.mechanisms import add_gaussian, add_integers, discrete_gaussian, discrete_laplace
from fairveil.privacy.minimiser import RidgeSoftmax
from fairveil.privacy.plan import Part, Plan, Release, only_nonprivate
from fairveil.privacy.rows import (
    CellFunction,
    Differentiable,
    Floats,
    Objective,
    VectorFunction,
    check_registered,
)

__all__ = ["Batch", "Records", "Veil", "open_veils"]

BLOCK_ROWS = 2048
"""At most about how many rows are multiplied and summed at once in single precision."""

ROUNDING = 1.01
"""Gradients are summed in single precision: one record can also move the rounding of its own block. The largest such
move found by crafted rows is below 0.003 clip norms in a block of this size; the noise covers 0.01 (docs/proofs)."""

SAMPLERS = {"discrete_laplace": discrete_laplace, "discrete_gaussian": discrete_gaussian}


class Records(Protocol):
    """Where rows live: in memory, on disk, or on workers. Only a veil may ask them anything."""

    def split(self, shares: Mapping[str, float], coins: Coins) -> Mapping[str, "Records"]:
        """Return disjoint parts by secret coins."""

    def arranged(self, coins: Coins) -> "Records":
        """Return the same records in a secret random order."""

    def draw(self, rates: Mapping[int, float], coins: Coins) -> Iterator[Any]:
        """Yield Poisson batches for ever."""

    def count_cells(self, batch: Any, function: CellFunction, n_blocks: int) -> NDArray[np.int64]:
        """Return exact counts per cell."""

    def sum_gradients(
        self,
        batch: Any,
        model: Differentiable,
        params: Floats,
        objective: Objective,
        clip_norm: float | Floats,
        n_blocks: int,
    ) -> NDArray[np.float64]:
        """Return the sum of clipped gradients."""

    def sum_vectors(
        self, batch: Any, function: VectorFunction, clip_norm: float, n_blocks: int
    ) -> NDArray[np.float64]:
        """Return the sum of clipped vectors."""

    def minimise(self, batch: Any, ridge: RidgeSoftmax) -> NDArray[np.float64]:
        """Return the exact minimiser of a regularised loss."""


def open_veils(records: Records, plan: Plan, ledger: Ledger, coins: Coins, purpose: str) -> dict[str, "Veil"]:
    """Book the plan, split the records, and return one veil for each part of the plan.

    Guarantees
    ----------
    The debit is on disk before the first coin is tossed. With coins that are not secret, or at epsilon = infinity,
    the entry says that the release is not private.
    """
    split = uuid.uuid4().hex[:12]
    charges = plan.charges(split)
    if plan.is_private and not coins.is_secret:
        charges = only_nonprivate(charges, "seeded coins")
    details = {"epsilon": plan.epsilon if plan.is_private else None, "delta": plan.delta}
    receipt = ledger.debit(charges, purpose, details, split)
    parts = dict(records.split(plan.shares, coins)) if plan.shares else {}
    return {part.name: Veil(parts.get(part.name, records), part, receipt, coins) for part in plan.parts}


class Veil:
    """What one part of the plan may see of one part of the records."""

    def __init__(self, records: Records, part: Part, receipt: Receipt, coins: Coins) -> None:
        if not isinstance(receipt, Receipt):
            raise UnplannedRelease("Expected the receipt of a debit, got none; open a veil with open_veils.")
        self.part = part
        self._open = {release.name: release for release in part.releases}
        self._records = records
        self._coins = coins
        self._batches: Iterator[Any] | None = None
        self._n_left = part.n_steps
        self._n_blocks = 1

    def expect(self, size: float) -> None:
        """Say how many units the part has, publicly, so that batches are worked on in blocks of a fitting size."""
        rate = max(self.part.sampling_rates.values())
        self._n_blocks = max(1, math.ceil(rate * size / BLOCK_ROWS - 1e-9))

    def draw(self) -> "Batch":
        """Return the next Poisson batch, as often as the plan says."""
        if self._n_left == 0:
            raise UnplannedRelease(
                f"Expected at most {self.part.n_steps} draws from {self.part.name!r}, got one more."
            )
        self._n_left -= 1
        if self._batches is None:
            self._records = self._records.arranged(self._coins)
            self._batches = self._records.draw(self.part.sampling_rates, self._coins)
        return Batch(self._records, next(self._batches), self._n_blocks, self._open, self._coins)

    def __repr__(self) -> str:
        return f"Veil({self.part.name!r}, {self._n_left} draws left)"


class Batch:
    """One draw: each planned release can be had once."""

    __slots__ = ("_coins", "_drawn", "_n_blocks", "_open", "_records")

    def __init__(
        self, records: Records, drawn: Any, n_blocks: int, releases: Mapping[str, Release], coins: Coins
    ) -> None:
        self._records = records
        self._drawn = drawn
        self._n_blocks = n_blocks
        self._open = dict(releases)
        self._coins = coins

    def release_gradient(
        self,
        model: Differentiable,
        params: Floats,
        objective: Objective,
        clip_norm: float | Floats,
        name: str = "gradient",
    ) -> NDArray[np.float64]:
        """Return the noisy sum of clipped gradients; noise follows the largest clip norm."""
        release = self._use(name, {"gaussian"})
        check_registered(objective)
        clip_norm = clip_norm if isinstance(clip_norm, np.ndarray) else float(clip_norm)
        largest = clip_norm if isinstance(clip_norm, float) else float(np.max(clip_norm))
        bound = check_positive("clip_norm", largest, infinite=release.noise_multiplier == 0)
        total = self._records.sum_gradients(self._drawn, model, params, objective, clip_norm, self._n_blocks)
        std = release.noise_multiplier * bound * ROUNDING if release.noise_multiplier else 0.0
        return add_gaussian(total, std, self._coins)

    def release_counts(self, function: CellFunction, name: str = "counts") -> NDArray[np.float64]:
        """Return noisy counts per cell: a record adds 1 to one cell at most."""
        release = self._use(name, {"gaussian", "discrete_laplace", "discrete_gaussian"})
        check_registered(function)
        counts = self._records.count_cells(self._drawn, function, self._n_blocks)
        if release.law == "gaussian" or release.noise_multiplier == 0:
            return add_gaussian(counts, release.noise_multiplier, self._coins)
        sampler = SAMPLERS[release.law]
        return add_integers(counts, sampler, release.noise_multiplier, self._coins).astype(np.float64)

    def release_sum(
        self, function: VectorFunction, clip_norm: float, name: str = "sum"
    ) -> NDArray[np.float64]:
        """Return the noisy sum of per-record vectors, each clipped to `clip_norm`."""
        release = self._use(name, {"gaussian"})
        check_registered(function)
        check_positive("clip_norm", clip_norm)
        total = self._records.sum_vectors(self._drawn, function, clip_norm, self._n_blocks)
        return add_gaussian(total, release.noise_multiplier * clip_norm, self._coins)

    def release_minimiser(self, ridge: RidgeSoftmax, name: str = "minimiser") -> NDArray[np.float64]:
        """Return the noisy minimiser of a strongly convex loss; its sensitivity follows from the ridge."""
        release = self._use(name, {"gaussian"})
        weights = self._records.minimise(self._drawn, ridge)
        return add_gaussian(weights, release.noise_multiplier * ridge.sensitivity, self._coins)

    def _use(self, name: str, laws: set[str]) -> Release:
        release = self._open.pop(name, None)
        if release is None:
            raise UnplannedRelease(
                f"Expected one of the planned releases {sorted(self._open)}, got {name!r}."
            )
        if release.law not in laws:
            raise UnplannedRelease(
                f"Expected the noise of {name!r} to be one of {sorted(laws)}, got {release.law}."
            )
        return release
