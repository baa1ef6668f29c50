"""A final count at the averaged parameters: adjusts the threshold between two classes, and says which bounds hold.

The averaged model decides otherwise than the iterates whose rates moved the multipliers. If the counts show that it
breaks a bound by more than noise explains, the threshold between its two classes moves to where errors and broken
bounds together cost least, at the largest multiplier that the training itself would use. A further count, with noise of
its own, says what holds for the rule as it is released. With more than two classes no threshold moves.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil.fairness.diagnostics import FinalCheck
from fairveil.fairness.groups import Rate
from fairveil.fairness.histogram import Bound, HistogramConstraints
from fairveil.models.base import Model
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import Bin, Count, Decision, GradientNorm, Margin, Objective, one_cell
from fairveil.privacy.veil import Batch
from fairveil.training.multipliers import aims_below, minimum_size
from fairveil.training.run import noise_of
from fairveil.training.thresholds import Observation, smooth_curve

_HALF = (0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0)
EDGES = np.array([*(-edge for edge in reversed(_HALF)), 0.0, *_HALF])
"""Public bins of the margin between two classes."""

EDGE_ABOVE = np.append(EDGES, np.inf)
WIDTHS = np.diff(np.concatenate([[EDGES[0] - 1.0], EDGES, [EDGES[-1] + 1.0]]))
"""The upper edge of each bin, and its width; the outer bins are taken to be 1 wide."""

THRESHOLDS = np.linspace(EDGES[0], EDGES[-1], 401)

LARGEST_PULL = 10.0
"""The largest multiplier of a bound, over the share of people in its smallest rate. A bound then pulls at one record at
most about this many times as hard as the loss can: no handful of people decides for everyone."""

NOISES = {"released": 3.0, "clipped": 8.0}
NOISES_OF_TWO = {"decisions": 3.0, "margins": 3.5, **NOISES}
"""Noise of each count over the noise of a gradient; those of decisions and margins adjust the threshold."""

TYPICAL_WEIGHT = 0.1 * math.sqrt(600)
"""Sampling rate times the square root of the number of steps, by default."""

ACCURACY = Bound(((-1.0, Rate("accuracy")),), 0.0)
"""Counted beside the bounds; its left side is minus the accuracy."""


def adjustment_stage(noise_multiplier: float, steps: Stage, n_classes: int) -> Stage:
    """Return the final count as a stage of a plan, on the same people as the training steps.

    Fewer or more thinly sampled steps cost less at the same noise; the noise of the count grows so that its share of
    the budget stays.
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
    """The final count of one trained model on about `size` people.

    Parameters
    ----------
    batch : Batch
    stage : Stage
        As `adjustment_stage` made it.
    watched : HistogramConstraints
        The bounds and, last, `ACCURACY`.
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

    def settle(self, objective: Objective, clip_norm: float) -> tuple[Float32Array, FinalCheck]:
        """Return the parameters with an adjusted threshold, and what a count with noise of its own says of them."""
        watched, minimum = self.watched, minimum_size(self.size)
        offsets = np.zeros(self.model.n_classes)
        if self.model.n_classes == 2:
            offsets[1] = 0.0 - self._threshold()
        params = self.model.shifted(self.params, offsets)
        counts, variance = self._decisions(params, "released"), noise_of(self.stage, "released") ** 2
        rates = np.clip(watched.rates(counts, minimum), 0.0, 1.0)
        clipped = clipped_error = 0.0
        if not math.isinf(clip_norm):
            edges = np.array([clip_norm], dtype=np.float32)
            is_clipped = Bin(GradientNorm(self.model, self.params, objective), edges)
            query = Count(one_cell(self.model.n_classes), 1, is_clipped)
            within, beyond = self.batch.release_counts(query, "clipped")
            everyone = max(within + beyond, minimum)
            clipped = float(np.clip(beyond / everyone, 0.0, 1.0))
            clipped_error = noise_of(self.stage, "clipped") / everyone
        check = FinalCheck(
            watched.bounds[:-1],
            (watched.weights @ rates)[:-1],
            watched.standard_errors(counts, variance, minimum)[:-1],
            watched.has_enough_people(counts, variance)[:-1],
            offsets,
            clipped,
            clipped_error,
        )
        return params, check

    def _threshold(self) -> float:
        """Return 0, or where a bound is broken by more than noise on so many bounds explains, a better threshold.

        There, errors and the costliest broken bound together cost least, and that bound is broken no more than at 0; of
        equal thresholds the nearest is best.
        """
        counts, variance = self._decisions(self.params, "decisions"), noise_of(self.stage, "decisions") ** 2
        minimum, is_known = minimum_size(self.size), self.watched.has_enough_people(counts, variance)
        is_known[-1] = False  # the accuracy is counted, not bounded
        width = max(1.0, math.sqrt(2 * math.log(max(1, is_known.sum()))))
        errors = self.watched.standard_errors(counts, variance, minimum)
        broken = self.watched.violation(counts, minimum) - width * errors
        if not (broken[is_known] > 0).any():
            return 0.0
        margins = Count(self.watched.cells, self.watched.n_cells, Bin(Margin(self.model, self.params), EDGES))
        bins = self.batch.release_counts(margins, "margins").reshape(self.watched.n_cells, -1)
        noises = noise_of(self.stage, "margins"), noise_of(self.stage, "decisions")
        sides = np.stack([WIDTHS * (EDGE_ABOVE <= 0), WIDTHS * (EDGE_ABOVE > 0)])
        curves = [
            # the density of the margin, from the histogram and from the decisions at 0
            smooth_curve([Observation(np.diag(WIDTHS), row, noises[0]), Observation(sides, pair, noises[1])])
            for row, pair in zip(bins, counts, strict=True)
        ]
        people = np.stack(curves) * WIDTHS
        everyone, below = people.sum(axis=1), np.cumsum(people[:, :-1], axis=1)  # up to each edge
        counts = np.column_stack([below[:, len(_HALF)], everyone - below[:, len(_HALF)]])
        wrong, price = self._costs(counts, is_known)
        best, now = (wrong + price, 0.0, 0.0), price
        for threshold in THRESHOLDS.tolist():
            rejected = np.array([np.interp(threshold, EDGES, cell) for cell in below])
            wrong, price = self._costs(np.column_stack([rejected, everyone - rejected]), is_known)
            if price <= now:
                best = min(best, (wrong + price, abs(threshold), threshold))
        return best[2]

    def _costs(self, counts: Float64Array, is_known: NDArray[np.bool_]) -> tuple[float, float]:
        """Return minus the accuracy, and the largest excess over an aim, each at its largest multiplier."""
        minimum = minimum_size(self.size)
        values = self.watched.values(counts, minimum)
        margins = self.headroom * self.watched.sampling_errors(counts, minimum)
        excess = np.maximum(values - aims_below(self.watched.limits, margins), 0.0)
        prices = LARGEST_PULL * (self.watched.smallest_denominators(counts, minimum) / self.size)
        return float(values[-1]), float((prices * excess)[is_known].max())

    def _decisions(self, params: Float32Array, name: str) -> Float64Array:
        """Release how many people of each cell are decided for each class."""
        query = Count(self.watched.cells, self.watched.n_cells, Decision(self.model, params))
        return self.batch.release_counts(query, name).reshape(-1, self.model.n_classes)
