"""The veil: only noisy sums of bounded contributions pass it.

`open_veils` debits the whole plan, then splits the records by secret coins, and returns one veil for each stage. A veil
draws the planned number of batches; a batch answers each planned release once, bounds each record's contribution
itself, and adds the planned noise. Everything computed from the answers is post-processing.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fairveil._random import Coins
from fairveil._typing import Float32Array
from fairveil._validation import check_number
from fairveil.errors import UnplannedReleaseError
from fairveil.models.base import Model
from fairveil.privacy.attribute import AttributeRecords, PublicRows
from fairveil.privacy.ledger import Ledger, Receipt
from fairveil.privacy.moments import Moments
from fairveil.privacy.noise import noise_distribution
from fairveil.privacy.output_perturbation import RidgeSoftmax
from fairveil.privacy.plan import Plan, Stage
from fairveil.privacy.probes import check_query
from fairveil.privacy.queries import (
    PARTS,
    Bound,
    Count,
    GradientSum,
    GroupGradientSum,
    LevelCounts,
    LogisticMoments,
    Minimizer,
    MomentSum,
    Objective,
    Sum,
)
from fairveil.privacy.records import Query

BLOCK_ROWS = 2048
"""About the largest number of rows that are multiplied and summed at once in single precision."""

MAX_BLOCKS = 2**20
"""No more blocks than this, which two billion rows would fill: a size that was declared too large costs no memory."""

ROUNDING = 1.01
"""One record can also change how the sum over its own block is rounded, by at most 0.0094 bounds in a block of this
size and six standard deviations more (argued in docs/proofs/veil.md), and the logits of other rows of the block, by
0.0005 bounds (measured with crafted rows). The noise covers 0.01."""


class Records(Protocol):
    """Where rows are kept: in memory, on disk, or on workers. Only a veil may query them.

    A batch is what `draw` yields, or what `blocks` makes of it.
    """

    @property
    def n_features(self) -> int:
        """Columns of a row."""

    def split(self, shares: Mapping[str, float], coins: Coins) -> Mapping[str, "Records"]:
        """Return disjoint subsets, drawn by secret coins."""

    def arranged(self, coins: Coins) -> "Records":
        """Return the same records in a secret random order."""

    def draw(self, rates: Mapping[int, float], coins: Coins) -> Iterator[Any]:
        """Yield Poisson batches for ever."""

    def blocks(self, batch: Any, n_blocks: int) -> Any:
        """Return the batch as blocks that gather their rows once for all releases."""

    def answer(self, batch: Any, query: Query, bound: Any, norm: int, n_blocks: int) -> NDArray[np.float64]:
        """Return the exact answer over the batch: a sum to which each unit adds at most `bound` in this norm."""


AnyRecords = Records | AttributeRecords
"""Records that are secret as a whole, or whose sensitive attribute alone is secret."""


def open_veils(records: AnyRecords, plan: Plan, ledger: Ledger, coins: Coins, purpose: str) -> dict[str, "Veil"]:
    """Debit the plan, split the records, and return one veil for each stage of the plan.

    Where only an attribute is secret, each veil holds the public columns of its subset as well (`Veil.public`).

    Guarantees
    ----------
    The debit is on disk before the first coin is tossed. With coins that are not secret, or at epsilon = infinity,
    the entry says that the release is not private.
    """
    if plan.hides_attribute != isinstance(records, AttributeRecords):
        raise UnplannedReleaseError(
            f"Expected records that keep secret what the plan hides ({plan.unit}), got others; no veil was opened."
        )
    receipt = ledger.debit_plan(plan, coins, purpose)
    subsets: dict[str, AnyRecords] = {}
    if plan.shares:
        subsets |= records.split(plan.shares, coins)
    if any(stage.share == 1 for stage in plan.stages):
        subsets[""] = records
    arranged: dict[str, tuple[Records, PublicRows | None]] = {}
    for name, subset in subsets.items():
        # all stages of a subset share one secret order
        if isinstance(subset, AttributeRecords):
            arranged[name] = subset.secret.arranged(coins), subset.public
        else:
            arranged[name] = subset.arranged(coins), None
    veils = {}
    for stage in plan.stages:
        subset, public = arranged["" if stage.share == 1 else stage.subset]
        veils[stage.name] = Veil(subset, stage, receipt, coins, public)
    return veils


class Veil:
    """What one stage of the plan may see of its subset of the records, which is in a secret order.

    `public` holds features and labels of the subset where only an attribute is secret, else None.
    """

    def __init__(
        self, records: Records, stage: Stage, receipt: Receipt, coins: Coins, public: PublicRows | None = None
    ) -> None:
        if not isinstance(receipt, Receipt):
            raise UnplannedReleaseError("Expected the receipt of a debit, got none; open a veil with open_veils.")
        self.stage = stage
        self.public = public
        self._records = records
        self._coins = coins
        self._batches: Iterator[Any] | None = None
        self._n_left = stage.n_steps
        self._n_blocks = 1
        self._tried: set[tuple[type, ...]] = set()
        self._planned = {release.name: release for release in stage.releases}
        # with everyone in the batch, keeping its rows would hold the data twice
        self._keeps = len(stage.releases) > 1 and stage.largest_rate < 1

    def expect(self, size: float) -> None:
        """Set the public number of units of the stage, which fixes into how many blocks a batch is divided."""
        self._n_blocks = max(1, math.ceil(min(self.stage.largest_rate * size / BLOCK_ROWS, MAX_BLOCKS) - 1e-9))

    def draw(self) -> "Batch":
        """Return the next Poisson batch, as often as the plan says."""
        if self._n_left == 0:
            raise UnplannedReleaseError(
                f"Expected at most {self.stage.n_steps} draws from {self.stage.name!r}, got one more."
            )
        self._n_left -= 1
        if self._batches is None:
            self._batches = self._records.draw(dict(self.stage.rates), self._coins)
        drawn = next(self._batches)
        if self._keeps:
            drawn = self._records.blocks(drawn, self._n_blocks)
        return Batch(self, drawn)

    def __repr__(self) -> str:
        return f"Veil({self.stage.name!r}, {self._n_left} draws left)"


class Batch:
    """One drawn batch: it answers each planned release once."""

    __slots__ = ("_drawn", "_open", "_veil")

    def __init__(self, veil: Veil, drawn: Any) -> None:
        self._veil = veil
        self._drawn = drawn
        self._open = veil._planned.copy()

    def release_gradient(
        self,
        model: Model,
        params: Float32Array,
        objective: Objective,
        clip_norm: Bound,
        name: str = "gradient",
        *,
        is_row_stable: bool = False,
    ) -> NDArray[np.float64]:
        """Return the noisy sum of clipped gradients; noise follows the largest clip norm.

        Parameters that may be known before the records are chosen need `is_row_stable`.
        """
        query = GradientSum(model, params, objective, is_row_stable=is_row_stable)
        return self._release(query, clip_norm, name, norm=2)

    def release_group_gradients(
        self,
        model: Model,
        params: Float32Array,
        objective: Objective,
        clip_norm: float,
        n_groups: int,
        name: str = "gradients",
        *,
        is_row_stable: bool = False,
    ) -> NDArray[np.float64]:
        """Return a noisy sum of clipped gradients for each group, shape (n_groups, n_params).

        A record adds its gradient to one group at most, so all sums together move by at most the clip norm.
        """
        query = GroupGradientSum(model, params, objective, n_groups, is_row_stable=is_row_stable)
        return self._release(query, clip_norm, name, norm=2)

    def release_counts(self, query: Count, name: str = "counts") -> NDArray[np.float64]:
        """Return noisy counts: a record adds 1 to one count at most."""
        return self._release(query, 1.0, name, is_whole=True, is_by_group=True, rounding=1.0)

    def release_levels(self, n_places: int, name: str = "levels") -> NDArray[np.float64]:
        """Return noisy counts of levels, shape (n_features,): a record adds 1 to so many of them at most."""
        return self._release(LevelCounts(), math.sqrt(n_places), name, norm=2)

    def release_sums(self, query: Sum, bound: float, name: str = "histogram") -> NDArray[np.float64]:
        """Return noisy sums of vectors, shape (n_cells, n_values): a record adds its vector to one cell at most.

        The vector is clipped to `bound`, in the norm of the planned noise (Gaussian L2, Laplace L1).
        """
        return self._release(query, bound, name, is_by_group=not query.values.depends_on_group)

    def release_moments(self, function: LogisticMoments, bound: float, name: str = "moments") -> Moments:
        """Return noisy sums of u z in each cell and of v z z^T in each matrix; a record is in one of each at most.

        What a record adds to both together is bounded by `bound`, in the norm of the planned noise: Gaussian L2 with
        the Frobenius norm of z z^T, Laplace L1 of the coefficients of its polynomial.
        """
        noisy = self._release(MomentSum(function), bound, name, rounding=1.0)
        planned = self._veil._planned[name]
        law = noise_distribution(planned.law)
        std = planned.noise_multiplier * bound * math.sqrt(law.spread)
        return Moments.unpacked(noisy, function.shape, law.norm, std)

    def release_minimizer(self, ridge: RidgeSoftmax, name: str = "minimiser") -> NDArray[np.float64]:
        """Return the noisy minimizer of a strongly convex loss; its sensitivity follows from the ridge."""
        return self._release(Minimizer(ridge), ridge.sensitivity, name, norm=2, rounding=1.0)

    def _release(
        self,
        query: Query,
        bound: Bound,
        name: str,
        *,
        norm: int | None = None,
        is_whole: bool = False,
        is_by_group: bool = False,
        rounding: float = ROUNDING,
    ) -> NDArray[np.float64]:
        """Take a release off the plan, answer the query exactly, and add noise of the planned multiple of the bound.

        The planned noise must fit the norm that is bounded, and sums that are not whole. Where the plan prices sums by
        group, a release must be one: sums in cells, of vectors that no attribute changes.
        """
        veil = self._veil
        kinds = check_registered(query)
        if veil.stage.by_group and not is_by_group:
            raise UnplannedReleaseError(f"Expected sums that keep groups apart, got others for {name!r}.")
        release = self._open.pop(name, None)
        if release is None:
            raise UnplannedReleaseError(f"Expected one of the planned releases {sorted(self._open)}, got {name!r}.")
        law, noise_multiplier = noise_distribution(release.law), release.noise_multiplier
        if norm not in {None, law.norm} or law.is_whole > is_whole:
            fitting = "gaussian" if norm == 2 else "gaussian or laplace"
            raise UnplannedReleaseError(f"Expected noise for {name!r} such as {fitting}, got {release.law}.")
        bound = bound if isinstance(bound, np.ndarray) else float(bound)
        largest = bound if isinstance(bound, float) else float(np.max(bound))
        what = "bound" if norm is None else "clip_norm"
        check_number(what, largest, at_most=math.inf if what == "clip_norm" and noise_multiplier == 0 else None)
        if kinds not in veil._tried:
            own = tuple(kind for kind in kinds if not kind.__module__.startswith("fairveil."))
            if own:  # queries of fairveil itself are covered by its tests
                check_query(query, kinds, own, bound, law.norm, veil._records.n_features)
            veil._tried.add(kinds)
        total = veil._records.answer(self._drawn, query, bound, law.norm, veil._n_blocks)
        if noise_multiplier == 0:
            return total
        return law.add(total, noise_multiplier * largest * rounding, veil._coins)


def check_registered(query: Any) -> tuple[type, ...]:
    """Refuse a query whose type, or the type of a part of it, is not registered; return all these types."""
    kind = type(query)
    if kind not in PARTS:
        raise UnplannedReleaseError(
            f"Expected a registered query of fairveil.privacy.queries, got {kind.__name__}; "
            "decorate its class with @row_function."
        )
    kinds: tuple[type, ...] = (kind,)
    for name in PARTS[kind]:
        if (part := getattr(query, name)) is not None:
            kinds += check_registered(part)
    return kinds
