"""What passes the veil in one run, and how much more likely it is with the canary than without it.

An auditor knows everything but the canary's own coins: all other records, which of them were drawn, every public
number. The veils here are the real ones; they also note, for each release, what it would be without noise in both
worlds. The log-likelihood ratio of all releases follows, and no other statistic of them distinguishes the worlds better
(docs/proofs/audits.md). Nothing here is used where real records are.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array
from fairveil.accounting.events import DiscreteLaplaceRelease, LaplaceRelease
from fairveil.data.coded import dense
from fairveil.privacy.attribute import AttributeRecords
from fairveil.privacy.noise import noise_distribution
from fairveil.privacy.plan import Stage
from fairveil.privacy.queries import Bound, GradientSum
from fairveil.privacy.records import MemoryRecords, Query
from fairveil.privacy.veil import ROUNDING, AnyRecords, Batch, Veil

OF_LAPLACE = (LaplaceRelease, DiscreteLaplaceRelease)
FAR = 1e4
"""A feature so large that a gradient along it is longer than any clip norm."""


FirstParams = dict[tuple[str, int], Float32Array]


@dataclass(frozen=True, eq=False)
class Canary:
    """A synthetic record that is in the data or not, and other records that are always there.

    Attributes
    ----------
    record : MemoryRecords
        One row.
    others : MemoryRecords
        The rest, often nobody.
    """

    record: MemoryRecords
    others: MemoryRecords

    @classmethod
    def at(cls, x: Float32Array, label: int, group: int, others: MemoryRecords | None = None) -> "Canary":
        """Return a canary at these features; without `others` it is alone."""
        record = MemoryRecords(x[None], np.full(1, label, np.int16), np.full(1, group, np.int16))
        return cls(record, rows_at(x[None, :], 0, label, group) if others is None else others)

    @property
    def group(self) -> int:
        """The code of the canary's group."""
        return int(self.record.groups[0])

    def records(self, is_in: bool, known: NDArray[np.integer] | None = None) -> AnyRecords:
        """Return the records of one world; with `known` groups, only the canary's attribute is in doubt."""
        if known is None:
            return joined(self.others, self.record) if is_in else self.others
        record = self.record if is_in else replace(self.record, groups=np.full(1, -1, np.int16))
        return AttributeRecords.of(joined(self.others, record), known)

    def rows_in(self, X: Float32Array, y: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return which rows are the canary's."""
        return np.all(dense(self.record.X)[0] == dense(X), axis=1) & (y == self.record.y[0])


def rows_at(X: Float32Array, copies: int, label: int, group: int) -> MemoryRecords:
    """Return so many copies of rows, all of one label and group."""
    n_rows = copies * len(X)
    return MemoryRecords(np.tile(X, (copies, 1)), np.full(n_rows, label, np.int16), np.full(n_rows, group, np.int16))


def joined(*several: MemoryRecords) -> MemoryRecords:
    """Return the rows of all."""
    parts = [one for one in several if len(one.y)] or several[:1]
    X, y, groups = (np.concatenate([getattr(one, name) for one in parts]) for name in ("X", "y", "groups"))
    return MemoryRecords(X, y, groups)


KnownOdds = dict[tuple[str, str, int], "Odds"]
"""The odds of recorded releases, by stage, name and query."""


class Recorded(NamedTuple):
    """One release of a recorded run: the public query, its bound, and what else the veil is to know."""

    query: Query
    bound: Bound
    name: str
    options: dict[str, Any]


Script = Mapping[str, list[list[Recorded]]]
"""The releases of a recorded run: by stage, in batches."""


class WatchedVeil(Veil):
    """A real veil that notes what its batches release, and how likely that is with and without the canary.

    Gradients are taken at the first parameters that a stage uses: public numbers are the attacker's to choose, and
    there the canary's gradient stays as long as its bound.
    """

    def __init__(self, veil: Veil, canary: Canary, known: "KnownOdds | None" = None) -> None:
        vars(self).update(vars(veil))
        self.canary = canary
        self.known = known  # by recorded query; a canary without others need not compute them twice
        self.batches: list[WatchedBatch] = []
        self.first_params: FirstParams = {}
        self.has_others = len(canary.others.y) > 0

    def draw(self) -> "WatchedBatch":
        """Return the next batch, watched."""
        batch = WatchedBatch(self, super().draw()._drawn)
        self.batches.append(batch)
        return batch

    def others_in(self, drawn: Any) -> MemoryRecords:
        """Return the records of a batch that are not the canary."""
        records: Any = self._records
        if not self.has_others:
            return self.canary.others
        is_kept = isinstance(drawn, list)
        rows = np.concatenate([block.index for block in drawn]) if is_kept else records.rows_at(drawn)
        mine = self.canary.rows_in(records.X[rows], records.y[rows])
        rows = rows[~mine]
        return MemoryRecords(records.X[rows], records.y[rows], records.groups[rows])

    @property
    def rate(self) -> float:
        """The probability that the canary is in a batch, if it is in the subset."""
        rates = dict(self.stage.rates)
        return rates.get(self.canary.group, rates.get(-1, 0.0))

    @property
    def may_hold_canary(self) -> bool:
        """Whether the canary may be in this subset; features are public where an attribute alone is secret."""
        return self.public is None or bool(self.canary.rows_in(self.public.X, self.public.y).any())

    @property
    def loss(self) -> float:
        """The log-likelihood ratio of all releases, if the canary is in the subset."""
        losses = np.array([batch.loss for batch in self.batches])
        if self.rate == 1:
            return float(losses.sum())
        return float(np.sum(np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + losses)))

    @property
    def changes(self) -> float:
        """How much the likelihood ratio changes from step to step, over its noise: little if noise is not fresh."""
        losses = np.array([batch.loss for batch in self.batches])
        signal = max((batch.signal for batch in self.batches), default=0.0)
        return float(np.sum(np.abs(np.diff(losses)))) / math.sqrt(signal) if signal > 0 else 0.0

    @property
    def signal(self) -> float:
        """The squared signal over noise of the canary in all batches."""
        return self.rate**2 * sum(batch.signal for batch in self.batches)


class WatchedBatch(Batch):
    """A real batch that notes what it releases."""

    __slots__ = ("loss", "recorded", "signal")
    _veil: WatchedVeil

    def __init__(self, veil: WatchedVeil, drawn: Any) -> None:
        super().__init__(veil, drawn)
        self.loss = self.signal = 0.0
        self.recorded: list[Recorded] = []

    def _release(self, query: Query, bound: Bound, name: str, **options: Any) -> NDArray[np.float64]:
        veil = self._veil
        query = at_first_params(veil.first_params, name, query)
        answer = super()._release(query, bound, name, **options)
        place = (veil.stage.name, name, id(query))
        odds = None if veil.known is None else veil.known.get(place)
        if odds is None:
            release = veil._planned[name]
            scale = release.noise_multiplier * float(np.max(bound)) * options.get("rounding", ROUNDING)
            exact = exact_answers(veil, self._drawn, query, bound, noise_distribution(release.law).norm)
            odds = Odds.of(*exact, scale, isinstance(release.event, OF_LAPLACE))
            if veil.known is not None and not veil.has_others:
                veil.known[place] = odds
        self.loss += odds.loss(answer)
        self.signal += odds.signal
        self.recorded.append(Recorded(query, bound, name, options))
        return answer


def at_first_params(kept: FirstParams, name: str, query: Query) -> Query:
    """Return a gradient at the first parameters that were used under this name, and any other query as it is."""
    if not isinstance(query, GradientSum):
        return query
    params = kept.setdefault((name, len(query.params)), query.params)
    return query if params is query.params else replace(query, params=params)


def exact_answers(
    veil: WatchedVeil, drawn: Any, query: Query, bound: Bound, norm: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what a query would release without noise if the canary were in the batch, and if it were not."""
    record, others = veil.canary.record, veil.others_in(drawn)
    if not len(others.y):
        own = record.answer(np.arange(1), query, bound, norm)
        return own, np.zeros_like(own)
    together = joined(others, record)
    without = others.answer(np.arange(len(others.y)), query, bound, norm)
    return together.answer(np.arange(len(together.y)), query, bound, norm), without


@dataclass(frozen=True, eq=False)
class Odds:
    """How much more likely a release is if the canary is in its batch, under the planned noise.

    `signal` is the squared distance of both worlds over the scale of the noise, in the norm of its law.
    """

    with_canary: NDArray[np.float64]
    without: NDArray[np.float64]
    scale: float
    is_laplace: bool
    direction: NDArray[np.float64]
    signal: float

    @classmethod
    def of(
        cls, with_canary: NDArray[np.float64], without: NDArray[np.float64], scale: float, is_laplace: bool
    ) -> "Odds":
        """Return the odds for answers without noise in both worlds."""
        shift = with_canary - without
        distance = float(np.sum(np.abs(shift))) if is_laplace else float(np.linalg.norm(shift))
        return cls(with_canary, without, scale, is_laplace, (shift / scale**2).ravel(), (distance / scale) ** 2)

    def loss(self, answer: NDArray[np.float64]) -> float:
        """Return the log-likelihood ratio of what was released."""
        if self.is_laplace:
            return float(np.sum(np.abs(answer - self.without) - np.abs(answer - self.with_canary))) / self.scale
        return float((answer - self.without).ravel() @ self.direction) - self.signal / 2


def script_of(veils: Iterable[WatchedVeil]) -> Script:
    """Return what these veils released so far."""
    return {veil.stage.name: [batch.recorded for batch in veil.batches] for veil in veils}


def replay(veils: Mapping[str, Veil], script: Script) -> None:
    """Make the releases of a script, on fresh batches with fresh noise."""
    for name, batches in script.items():
        for recorded in batches:
            batch = veils[name].draw()
            for query, bound, release, options in recorded:
                batch._release(query, bound, release, **options)


def transcript_loss(veils: Iterable[WatchedVeil]) -> float:
    """Return the log-likelihood ratio of everything that these veils released.

    The canary is in one subset of the secret split, by its own coin: the likelihoods of all subsets are mixed.
    """
    everyone, subsets, shares = 0.0, dict[str, float](), dict[str, float]()
    for veil in veils:
        stage = veil.stage
        if not veil.may_hold_canary:
            continue
        if stage.share == 1:
            everyone += veil.loss
        else:
            subsets[stage.subset] = subsets.get(stage.subset, 0.0) + veil.loss
            shares[stage.subset] = 1.0 if veil.public is not None else stage.share
    if not subsets:
        return everyone
    return everyone + mixed_loss(subsets, shares)


def mixed_loss(losses: Mapping[str, float], shares: Mapping[str, float]) -> float:
    """Return the log-likelihood ratio where one of several things happened, each with its own probability."""
    return float(np.logaddexp.reduce([losses[name] + math.log(shares[name]) for name in losses]))


def planned_signal(stage: Stage, rate: float) -> float:
    """Return the squared signal over noise of a record that contributes its whole bound to every release."""
    return rate**2 * stage.n_steps * sum(1 / release.noise_multiplier**2 for release in stage.releases)


# --- many canaries ----------------------------------------------------------------------------------------------------


class ScoredVeil(Veil):
    """A real veil that adds up, for each of many canaries, the inner product of its own part with each release."""

    def __init__(self, veil: Veil, canaries: Sequence[Canary]) -> None:
        vars(self).update(vars(veil))
        self.canaries = canaries
        self.scores = np.zeros(len(canaries))
        self.first_params: FirstParams = {}
        self.parts: dict[str, NDArray[np.float64]] = {}

    def draw(self) -> "ScoredBatch":
        """Return the next batch, watched."""
        return ScoredBatch(self, super().draw()._drawn)


class ScoredBatch(Batch):
    """A real batch that scores what it releases."""

    __slots__ = ()
    _veil: ScoredVeil

    def _release(self, query: Query, bound: Bound, name: str, **options: Any) -> NDArray[np.float64]:
        veil = self._veil
        query = at_first_params(veil.first_params, name, query)
        answer = super()._release(query, bound, name, **options)
        if name not in veil.parts:
            norm = noise_distribution(veil._planned[name].law).norm
            alone = [one.record.answer(np.arange(1), query, bound, norm).ravel() for one in veil.canaries]
            veil.parts[name] = np.array(alone) / veil._planned[name].noise_multiplier ** 2
        veil.scores += veil.parts[name] @ answer.ravel() / float(np.max(bound)) ** 2
        return answer
