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

from fairveil._random import Coins
from fairveil._typing import Float32Array
from fairveil._validation import check_positive
from fairveil.accounting.events import Charge
from fairveil.errors import UnplannedReleaseError
from fairveil.privacy.attribute import AttributeRecords, PublicRows, hides_attribute
from fairveil.privacy.ledger import Ledger, Receipt
from fairveil.privacy.moments import Moments
from fairveil.privacy.noise import Sum, noise_distribution
from fairveil.privacy.output_perturbation import RidgeSoftmax
from fairveil.privacy.plan import Plan, Release, Stage, only_nonprivate
from fairveil.privacy.rows import (
    CellFunction,
    Differentiable,
    HistogramFunction,
    MomentFunction,
    Objective,
    VectorFunction,
    check_registered,
)

BLOCK_ROWS = 2048
"""At most about how many rows are multiplied and summed at once in single precision."""

ROUNDING = 1.01
"""Logits and gradients are summed in single precision: one record can also move the rounding of its own block. The
largest such move found by crafted rows is below 0.003 bounds in a block of this size; the noise covers 0.01."""


class Records(Protocol):
    """Where rows live: in memory, on disk, or on workers. Only a veil may ask them anything."""

    def split(self, shares: Mapping[str, float], coins: Coins) -> Mapping[str, "Records"]:
        """Return disjoint parts by secret coins."""

    def arranged(self, coins: Coins) -> "Records":
        """Return the same records in a secret random order."""

    def draw(self, rates: Mapping[int, float], coins: Coins) -> Iterator[Any]:
        """Yield Poisson batches for ever."""

    def keep_blocks(self, batch: Any, n_blocks: int) -> Any:
        """Return the batch as one that gathers its rows once for all releases."""

    def count_cells(self, batch: Any, function: CellFunction, n_blocks: int) -> NDArray[np.int64]:
        """Return exact counts per cell."""

    def sum_histogram(
        self, batch: Any, function: HistogramFunction, bound: float, norm: int, n_blocks: int
    ) -> NDArray[np.float64]:
        """Return per cell the sum of vectors, each bounded in the given norm."""

    def sum_gradients(
        self,
        batch: Any,
        model: Differentiable,
        params: Float32Array,
        objective: Objective,
        clip_norm: float | Float32Array,
        n_blocks: int,
    ) -> NDArray[np.float64]:
        """Return the sum of clipped gradients."""

    def sum_group_gradients(
        self,
        batch: Any,
        model: Differentiable,
        params: Float32Array,
        objective: Objective,
        clip_norm: float,
        n_cells: int,
        n_blocks: int,
    ) -> NDArray[np.float64]:
        """Return for each cell the sum of clipped gradients."""

    def sum_vectors(
        self, batch: Any, function: VectorFunction, clip_norm: float, n_blocks: int
    ) -> NDArray[np.float64]:
        """Return the sum of clipped vectors."""

    def sum_moments(
        self, batch: Any, function: MomentFunction, bound: float, norm: int, n_blocks: int
    ) -> NDArray[np.float64]:
        """Return first and second moments laid flat, each record's bounded in the given norm."""

    def minimise(self, batch: Any, ridge: RidgeSoftmax) -> NDArray[np.float64]:
        """Return the exact minimiser of a regularised loss."""


AnyRecords = Records | AttributeRecords
"""Whole records, or records of which an attribute alone is secret."""


class Bookable(Protocol):
    """What can be booked before it is carried out: the public numbers of a plan."""

    @property
    def epsilon(self) -> float:
        """What it was calibrated to."""

    @property
    def delta(self) -> float:
        """The delta it is stated at."""

    @property
    def is_private(self) -> bool:
        """Whether any guarantee is claimed."""

    def charges(self, split: str) -> tuple[Charge, ...]:
        """Return what the ledger books."""


def book(plan: Bookable, ledger: Ledger, coins: Coins, purpose: str) -> Receipt:
    """Debit a plan under a split of its own; what has no secret coins is booked as not private."""
    split = uuid.uuid4().hex[:12]
    charges = plan.charges(split)
    if plan.is_private and not coins.is_secret:
        charges = only_nonprivate(charges, "seeded coins")
    details = {"epsilon": plan.epsilon if plan.is_private else None, "delta": plan.delta}
    return ledger.debit(charges, purpose, details, split)


def open_veils(
    records: AnyRecords, plan: Plan, ledger: Ledger, coins: Coins, purpose: str
) -> dict[str, "Veil"]:
    """Book the plan, split the records, and return one veil for each part of the plan.

    Where the plan hides an attribute alone, each veil holds the public rows of its piece beside it (`Veil.public`).

    Guarantees
    ----------
    The debit is on disk before the first coin is tossed. With coins that are not secret, or at epsilon = infinity,
    the entry says that the release is not private.
    """
    if hides_attribute(plan.unit) != isinstance(records, AttributeRecords):
        raise UnplannedReleaseError(
            f"Expected records that keep secret what the plan hides ({plan.unit}), got others; no veil was opened."
        )
    receipt = book(plan, ledger, coins, purpose)
    subsets = _arranged(records, plan, coins)
    veils = {}
    for stage in plan.stages:
        arranged, public = subsets["" if stage.share == 1 else stage.subset]
        veils[stage.name] = Veil(arranged, stage, receipt, coins, public)
    return veils


def _arranged(records: AnyRecords, plan: Plan, coins: Coins) -> dict[str, tuple[Records, PublicRows | None]]:
    """Return each piece of the split, and everyone under no name, in a secret order that all its parts share."""
    subsets: dict[str, AnyRecords] = {}
    if plan.shares:
        subsets |= records.split(plan.shares, coins)
    if any(stage.share == 1 for stage in plan.stages):
        subsets[""] = records
    return {
        name: (subset.secret.arranged(coins), subset.public)
        if isinstance(subset, AttributeRecords)
        else (subset.arranged(coins), None)
        for name, subset in subsets.items()
    }


class Veil:
    """What one part of the plan may see of its piece of the records, which lies in a secret order.

    `public` holds features and labels of the piece where an attribute alone is secret, and is None elsewhere.
    """

    def __init__(
        self, records: Records, stage: Stage, receipt: Receipt, coins: Coins, public: PublicRows | None = None
    ) -> None:
        if not isinstance(receipt, Receipt):
            raise UnplannedReleaseError(
                "Expected the receipt of a debit, got none; open a veil with open_veils."
            )
        self.stage = stage
        self.public = public
        self._open = {release.name: release for release in stage.releases}
        self._records = records
        self._coins = coins
        self._batches: Iterator[Any] | None = None
        self._n_left = stage.n_steps
        self._n_blocks = 1
        # with everyone in the batch, keeping its rows would keep the data twice
        self._keeps = len(stage.releases) > 1 and max(stage.sampling_rates.values()) < 1

    def expect(self, size: float) -> None:
        """Say how many units the part has, publicly, so that batches are worked on in blocks of a fitting size."""
        rate = max(self.stage.sampling_rates.values())
        self._n_blocks = max(1, math.ceil(rate * size / BLOCK_ROWS - 1e-9))

    def draw(self) -> "Batch":
        """Return the next Poisson batch, as often as the plan says."""
        if self._n_left == 0:
            raise UnplannedReleaseError(
                f"Expected at most {self.stage.n_steps} draws from {self.stage.name!r}, got one more."
            )
        self._n_left -= 1
        if self._batches is None:
            self._batches = self._records.draw(self.stage.sampling_rates, self._coins)
        drawn = next(self._batches)
        if self._keeps:
            drawn = self._records.keep_blocks(drawn, self._n_blocks)
        return Batch(self._records, drawn, self._n_blocks, self._open, self._coins, self.stage.by_group)

    def __repr__(self) -> str:
        return f"Veil({self.stage.name!r}, {self._n_left} draws left)"


class Batch:
    """One draw: each planned release can be had once."""

    __slots__ = ("_by_group", "_coins", "_drawn", "_n_blocks", "_open", "_records")

    def __init__(
        self,
        records: Records,
        drawn: Any,
        n_blocks: int,
        releases: Mapping[str, Release],
        coins: Coins,
        by_group: bool = False,
    ) -> None:
        self._by_group = by_group
        self._records = records
        self._drawn = drawn
        self._n_blocks = n_blocks
        self._open = dict(releases)
        self._coins = coins

    def release_gradient(
        self,
        model: Differentiable,
        params: Float32Array,
        objective: Objective,
        clip_norm: float | Float32Array,
        name: str = "gradient",
    ) -> NDArray[np.float64]:
        """Return the noisy sum of clipped gradients; noise follows the largest clip norm."""
        release = self._use(name, norm=2)
        check_registered(objective)
        clip_norm = clip_norm if isinstance(clip_norm, np.ndarray) else float(clip_norm)
        largest = clip_norm if isinstance(clip_norm, float) else float(np.max(clip_norm))
        bound = check_positive("clip_norm", largest, infinite=release.noise_multiplier == 0)
        total = self._records.sum_gradients(self._drawn, model, params, objective, clip_norm, self._n_blocks)
        return self._noisy(total, release, bound * ROUNDING)

    def release_group_gradients(
        self,
        model: Differentiable,
        params: Float32Array,
        objective: Objective,
        clip_norm: float,
        n_cells: int,
        name: str = "gradients",
    ) -> NDArray[np.float64]:
        """Return a noisy sum of clipped gradients for each cell, shape (n_cells, n_params).

        A record adds its gradient to one cell at most, so that all sums together move by the clip norm.
        """
        release = self._use(name, norm=2)
        check_registered(objective)
        bound = check_positive("clip_norm", float(clip_norm), infinite=release.noise_multiplier == 0)
        total = self._records.sum_group_gradients(
            self._drawn, model, params, objective, bound, n_cells, self._n_blocks
        )
        return self._noisy(total, release, bound * ROUNDING)

    def release_counts(self, function: CellFunction, name: str = "counts") -> NDArray[np.float64]:
        """Return noisy counts per cell: a record adds 1 to one cell at most."""
        release = self._use(name, is_whole=True, is_apart=True)
        check_registered(function)
        return self._noisy(self._records.count_cells(self._drawn, function, self._n_blocks), release, 1.0)

    def release_histogram(
        self, function: HistogramFunction, bound: float, name: str = "histogram"
    ) -> NDArray[np.float64]:
        """Return noisy sums of vectors, shape (n_cells, n_values): a record adds its vector to one cell at most.

        The vector is bounded to `bound`, in the norm of the planned law (Gaussian L2, Laplace L1).
        """
        release = self._use(name, is_apart=getattr(function, "adds_alike", False))
        check_registered(function)
        bound = check_positive("bound", bound)
        norm = noise_distribution(release.law).norm
        total = self._records.sum_histogram(self._drawn, function, bound, norm, self._n_blocks)
        return self._noisy(total, release, bound * ROUNDING)

    def release_sum(
        self, function: VectorFunction, clip_norm: float, name: str = "sum"
    ) -> NDArray[np.float64]:
        """Return the noisy sum of per-record vectors, each clipped to `clip_norm`."""
        release = self._use(name, norm=2)
        check_registered(function)
        check_positive("clip_norm", clip_norm)
        total = self._records.sum_vectors(self._drawn, function, clip_norm, self._n_blocks)
        return self._noisy(total, release, clip_norm)

    def release_moments(self, function: MomentFunction, bound: float, name: str = "moments") -> Moments:
        """Return noisy sums of u z in each cell and of v z z^T in each table; a record is in one of each at most.

        What a record adds to both together is bounded to `bound`, in the norm of the planned law: Gaussian L2 with the
        Frobenius norm of z z^T, Laplace L1 of the coefficients of its polynomial.
        """
        release = self._use(name)
        check_registered(function)
        bound = check_positive("bound", bound)
        law = noise_distribution(release.law)
        total = self._records.sum_moments(self._drawn, function, bound, law.norm, self._n_blocks)
        noisy = self._noisy(total, release, bound)
        std = release.noise_multiplier * bound * math.sqrt(law.spread)
        return Moments.unpacked(
            noisy, (function.n_cells, function.n_tables, function.n_values), law.norm, std
        )

    def release_minimiser(self, ridge: RidgeSoftmax, name: str = "minimiser") -> NDArray[np.float64]:
        """Return the noisy minimiser of a strongly convex loss; its sensitivity follows from the ridge."""
        release = self._use(name, norm=2)
        weights = self._records.minimise(self._drawn, ridge)
        return self._noisy(weights, release, ridge.sensitivity)

    def _noisy(self, total: Sum, release: Release, sensitivity: float) -> NDArray[np.float64]:
        if release.noise_multiplier == 0:
            return total.astype(np.float64)
        return noise_distribution(release.law).add(total, release.noise_multiplier * sensitivity, self._coins)

    def _use(
        self, name: str, *, norm: int | None = None, is_whole: bool = False, is_apart: bool = False
    ) -> Release:
        """Take a release off the plan; its law must fit the norm that was bounded, and sums that are not whole.

        Where sums are planned apart by group, it must keep them so: in cells, with a vector that no attribute decides.
        """
        if self._by_group and not is_apart:
            raise UnplannedReleaseError(
                f"Expected sums that are kept apart by group, got others for {name!r}."
            )
        release = self._open.pop(name, None)
        if release is None:
            raise UnplannedReleaseError(
                f"Expected one of the planned releases {sorted(self._open)}, got {name!r}."
            )
        law = noise_distribution(release.law)
        if norm not in {None, law.norm} or law.is_whole > is_whole:
            fitting = "gaussian" if norm == 2 else "gaussian or laplace"
            raise UnplannedReleaseError(f"Expected noise for {name!r} such as {fitting}, got {release.law}.")
        return release
