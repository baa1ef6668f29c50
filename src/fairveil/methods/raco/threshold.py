"""One last look at the averaged model: noisy counts of its decisions settle its threshold and say what holds.

The averaged model decides otherwise than the iterates whose rates steered the multipliers. If the counts show that it
breaks a bound by more than noise can feign, the threshold between its two classes moves to where errors and broken
bounds together cost least, at the largest price that the training itself would pay for a bound. A further count, with
noise of its own, says what holds for the rule as it is released. With more than two classes no threshold moves.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil.fairness.diagnostics import FinalCheck
from fairveil.fairness.groups import Population
from fairveil.fairness.histogram import Bound, HistogramConstraints, compile_bounds
from fairveil.fairness.rates import Rate
from fairveil.models.base import Model
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import Count, Decision, GradientNormBin, MarginBin, Objective, one_cell
from fairveil.privacy.veil import Batch
from fairveil.training.multipliers import aims_of, prices_of

_HALF = (0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0)
EDGES = np.array([*(-edge for edge in reversed(_HALF)), 0.0, *_HALF])
"""Public bins of the margin between two classes."""

THRESHOLDS = np.linspace(EDGES[0], EDGES[-1], 401)

NOISES = {"released": 3.0, "clipped": 8.0}
NOISES_OF_TWO = {"decisions": 3.0, "margins": 3.5, **NOISES}
"""Noise of each count over the noise of a gradient; those of decisions and margins settle the threshold."""

TYPICAL_WEIGHT = 0.1 * math.sqrt(600)
"""Sampling rate times the square root of the number of steps, by default."""

ACCURACY = Bound(((-1.0, Rate("accuracy")),), 0.0)
"""Watched beside the bounds; its left side is minus the accuracy."""


@dataclass(frozen=True, eq=False)
class _Table:
    """Counts (cell x decision) at a threshold."""

    threshold: float
    counts: Float64Array


def adjustment_stage(noise_multiplier: float, steps: Stage, n_classes: int) -> Stage:
    """Return the look as a part of a plan, at the same people as the training steps.

    Fewer or more thinly sampled steps cost less at the same noise; the look's noise grows so that its share stays.
    """
    noises = NOISES_OF_TWO if n_classes == 2 else NOISES
    rate = max(steps.sampling_rates.values())
    thinner = max(1.0, TYPICAL_WEIGHT / (rate * math.sqrt(steps.n_steps)))
    releases = [
        Release(name, "gaussian", thinner * ratio * noise_multiplier) for name, ratio in noises.items()
    ]
    return Stage("look", tuple(releases), steps.share, subset=steps.subset)


@dataclass(frozen=True, eq=False)
class ThresholdAdjustment:
    """The look at one released model of about `size` people.

    Parameters
    ----------
    batch : Batch
    part : Part
        As `adjustment_stage` made it.
    watched : HistogramConstraints
        The bounds and, last, `ACCURACY` (see `watching`).
    model : Model
    params : array
        The averaged parameters.
    size : float
    headroom : float
        How many standard errors of the people to stay below each limit, where the threshold moves.
    """

    batch: Batch
    stage: Stage
    watched: HistogramConstraints
    model: Model
    params: Float32Array
    size: float
    headroom: float = 1.0

    @staticmethod
    def watching(constraints: HistogramConstraints, people: Population) -> HistogramConstraints:
        """Return the bounds with the accuracy beside them."""
        return compile_bounds([*constraints.bounds, ACCURACY], people)

    def settle(self, objective: Objective, clip_norm: float) -> tuple[Float32Array, FinalCheck]:
        """Return the parameters with a settled threshold, and what the counts say of them."""
        offsets = np.zeros(self.model.n_classes)
        if self.model.n_classes == 2:
            offsets[1] = 0.0 - self._threshold()
        params = self.model.shifted(self.params, offsets)
        counts, variance = self._decisions(params, "released"), self._variance("released")
        errors = self.watched.standard_errors(counts, variance, self._floor)
        rates = np.clip(self.watched.rates(counts, self._floor), 0.0, 1.0)
        check = FinalCheck(
            self.watched.bounds[:-1],
            (self.watched.weights @ rates)[:-1],
            errors[:-1],
            self.watched.is_told(counts, variance)[:-1],
            offsets,
            *self._clipped_share(objective, clip_norm),
        )
        return params, check

    def _threshold(self) -> float:
        """Return 0, or where a bound is broken by more than noise on so many bounds can feign, a better threshold."""
        counts, variance = self._decisions(self.params, "decisions"), self._variance("decisions")
        is_told = self.watched.is_told(counts, variance)
        is_told[-1] = False  # the accuracy is watched, not bounded
        width = max(1.0, math.sqrt(2 * math.log(max(1, is_told.sum()))))
        errors = self.watched.standard_errors(counts, variance, self._floor)
        broken = self.watched.violation(counts, self._floor) - width * errors
        return self._settled(_Table(0.0, counts), is_told).threshold if (broken[is_told] > 0).any() else 0.0

    def _settled(self, start: _Table, is_told: NDArray[np.bool_]) -> _Table:
        """Return the counts at the threshold where errors and the dearest broken bound together cost least.

        That bound must not be broken more than it is; of equal thresholds the nearest is best.
        """
        now = self._dearest(start, is_told)
        tables = [start, *(table for table in self._tables(start) if self._dearest(table, is_told) <= now)]
        return min(
            tables,
            key=lambda table: (self._errors_of(table) + self._dearest(table, is_told), abs(table.threshold)),
        )

    def _errors_of(self, table: _Table) -> float:
        """Return the share of wrong decisions, less 1: the left side of `ACCURACY`."""
        return float(self.watched.values(table.counts, self._floor)[-1])

    def _dearest(self, table: _Table, is_told: NDArray[np.bool_]) -> float:
        """Return the largest of the excesses over what is aimed at, each at its largest multiplier."""
        values = self.watched.values(table.counts, self._floor)
        room = self.headroom * self.watched.sampling_errors(table.counts, self._floor)
        broken = np.maximum(values - aims_of(self.watched.limits, room, np.zeros_like(room)), 0.0)
        prices = prices_of(self.watched.smallest_parts(table.counts, self._floor) / self.size)
        return float((prices * broken)[is_told].max())

    def _decisions(self, params: Float32Array, name: str) -> Float64Array:
        query = Count(self.watched.cells, self.watched.n_cells, Decision(self.model, params))
        return self.batch.release_counts(query, name).reshape(-1, self.model.n_classes)

    def _tables(self, table: _Table) -> Iterator[_Table]:
        """Yield the counts at every threshold: those at 0, less who lies between."""
        margins = Count(self.watched.cells, self.watched.n_cells, MarginBin(self.model, self.params, EDGES))
        bins = self.batch.release_counts(margins, "margins").reshape(self.watched.n_cells, -1)
        below = np.cumsum(bins[:, :-1], axis=1)  # up to each edge
        below -= below[:, [len(_HALF)]]  # counted from 0
        for threshold in THRESHOLDS:
            moved = np.array([np.interp(threshold, EDGES, cell) for cell in below])
            yield _Table(float(threshold), table.counts + np.column_stack([moved, -moved]))

    def _clipped_share(self, objective: Objective, clip_norm: float) -> tuple[float, float]:
        """Return the share of people whose gradient is clipped, and its standard error from the noise."""
        if math.isinf(clip_norm):
            return 0.0, 0.0
        edges = np.array([clip_norm], dtype=np.float32)
        is_clipped = GradientNormBin(self.model, self.params, objective, edges)
        query = Count(one_cell(self.model.n_classes), 1, is_clipped)
        within, beyond = self.batch.release_counts(query, "clipped")
        everyone = max(within + beyond, self._floor)
        error = math.sqrt(self._variance("clipped")) / everyone
        return float(np.clip(beyond / everyone, 0.0, 1.0)), error

    def _variance(self, name: str) -> float:
        """Return the variance of the noise on each count of a release."""
        return next(release.noise_multiplier for release in self.stage.releases if release.name == name) ** 2

    @property
    def _floor(self) -> float:
        return max(1.0, 1e-3 * self.size)
