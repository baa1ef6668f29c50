"""The final count of RaCO-DP at the averaged parameters: adjusts thresholds, and says which bounds hold.

The averaged model decides otherwise than the iterates whose rates moved the multipliers. If the counts show that it
breaks a bound by more than noise explains, the thresholds between its classes (the same for everyone: no rule reads a
group here) move to where errors and broken bounds together cost least, at the largest multiplier that the training
itself would use. A further count, with noise of its own, says what holds for the rule as it is released.

Two classes have one threshold, and one noisy histogram of margins for each cell shows all of them. More classes have an
offset of the logits each. Then the histograms are those of the margins between the two likeliest classes of a record,
pair by pair, in a few rounds, each where the last one went.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil.fairness.diagnostics import FinalCheck
from fairveil.fairness.rates import Bound, HistogramConstraints, Rate, aims_below, minimum_size
from fairveil.methods.dp2dp.thresholds import Observation, smooth_curve
from fairveil.models import Model
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import Bin, Count, Decision, GradientNorm, Margin, Objective, PairMargin, one_cell
from fairveil.privacy.veil import Batch

_HALF = (0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0)
EDGES = np.array([*(-edge for edge in reversed(_HALF)), 0.0, *_HALF])
"""Public bins of the margin between two classes."""

POSITIVE_EDGES = np.array([0.0, *_HALF])
EDGE_ABOVE = np.append(EDGES, np.inf)
WIDTHS = np.diff(np.concatenate([[EDGES[0] - 1.0], EDGES, [EDGES[-1] + 1.0]]))
"""The upper edge of each bin, and its width; the outer bins are taken to be 1 wide."""

THRESHOLDS = np.linspace(EDGES[0], EDGES[-1], 401)
MIDDLE, STEP = 200, float(THRESHOLDS[1] - THRESHOLDS[0])
STRIDES = (25, 12, 6, 3, 1)
N_POINTS, FEW_CLASSES, TINY = 200, 4, 1e-12
"""Offsets of more than two classes are whole multiples of the step between thresholds. They are searched by strides
from 0 and from the best of so many points, from the best three where classes are few."""

LARGEST_PULL = 10.0
"""The largest multiplier of a bound, over the share of people in its smallest rate. A bound then pulls at one record at
most about this many times as hard as the loss can: no handful of people decides for everyone."""

NOISES = {"released": 3.0, "clipped": 8.0}
NOISES_OF_TWO = {"decisions": 3.0, "margins": 3.5, **NOISES}
REACH = (50, 30, 15, 10)
"""How far offsets of more than two classes may move in each round, in steps between `THRESHOLDS` (.02)."""

NOISES_OF_MORE = {f"{name}_{round_}": 6.5 for round_ in range(len(REACH)) for name in ("decisions", "margins")} | NOISES
"""Noise of each count over the noise of a gradient, with two classes and with more: together they cost the same within
2 %. Those of decisions and margins adjust thresholds, with more classes in several rounds."""

MOST_CLASSES = 12
"""With more classes than this no threshold moves: pairs of classes would be too many to count and to search."""

TYPICAL_WEIGHT = 0.1 * math.sqrt(600)
"""Sampling rate times the square root of the number of steps, by default."""

ACCURACY = Bound(((-1.0, Rate("accuracy")),), 0.0)
"""Counted beside the bounds; its left side is minus the accuracy."""


def adjustment_stage(
    noise_multiplier: float, share: float, sampling_rate: float, n_steps: int, n_classes: int
) -> Stage:
    """Return the final count as a stage of a plan, on the same people as so many training steps of this sampling rate.

    Fewer or more thinly sampled steps cost less at the same noise; the noise of the count grows so that its share of
    the budget stays.
    """
    noises = NOISES_OF_TWO if n_classes == 2 else NOISES_OF_MORE if n_classes <= MOST_CLASSES else NOISES
    thinner = max(1.0, TYPICAL_WEIGHT / (sampling_rate * math.sqrt(n_steps)))
    releases = [Release(name, "gaussian", thinner * ratio * noise_multiplier) for name, ratio in noises.items()]
    return Stage("look", tuple(releases), share, subset="train")


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
        noises, n_classes = self.stage.noise_multipliers, self.model.n_classes
        offsets = np.zeros(n_classes)
        if n_classes == 2:
            offsets[1] = 0.0 - self._threshold(noises)
        elif n_classes <= MOST_CLASSES:
            offsets = self._offsets(noises)
        params = self.model.shifted(self.params, offsets)
        found = watched.estimate(self._decisions(params, "released"), noises["released"] ** 2, minimum)
        clipped = clipped_error = 0.0
        if not math.isinf(clip_norm):
            edges = np.array([clip_norm], dtype=np.float32)
            is_clipped = Bin(GradientNorm(self.model, self.params, objective), edges)
            query = Count(one_cell(self.model.n_classes), 1, is_clipped)
            within, beyond = self.batch.release_counts(query, "clipped")
            everyone = max(within + beyond, minimum)
            clipped = float(np.clip(beyond / everyone, 0.0, 1.0))
            clipped_error = noises["clipped"] / everyone
        check = FinalCheck(
            watched.bounds[:-1],
            (watched.weights @ np.clip(found.rates, 0.0, 1.0))[:-1],
            found.noise_errors[:-1],
            found.has_enough_people[:-1],
            offsets,
            clipped,
            clipped_error,
        )
        return params, check

    def _threshold(self, noises: Mapping[str, float]) -> float:
        """Return 0, or where a bound is broken by more than noise on so many bounds explains, a better threshold.

        There, errors and the costliest broken bound together cost least, and that bound is broken no more than at 0; of
        equal thresholds the nearest is best.
        """
        counts = self._decisions(self.params, "decisions")
        is_known, is_broken = self._broken(counts, noises["decisions"])
        if not is_broken:
            return 0.0
        margins = Count(self.watched.cells, self.watched.n_cells, Bin(Margin(self.model, self.params), EDGES))
        bins = self.batch.release_counts(margins, "margins").reshape(self.watched.n_cells, -1)
        sides = np.stack([WIDTHS * (EDGE_ABOVE <= 0), WIDTHS * (EDGE_ABOVE > 0)])
        curves = [
            # the density of the margin, from the histogram and from the decisions at 0
            smooth_curve(
                [
                    Observation(np.diag(WIDTHS), row, noises["margins"]),
                    Observation(sides, pair, noises["decisions"]),
                ]
            )
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

    def _offsets(self, noises: Mapping[str, float]) -> Float64Array:
        """Return offsets of the logits by class: 0, or where a bound is broken as for `_threshold`, better ones.

        Each round counts decisions where the last one went, and starts from the cheapest point that was counted.
        Margins know the two likeliest classes of a record, and no third one that overtakes both, so rounds move by a
        little (`REACH`), and the last one, which no count confirms, by the least.
        """
        best = offsets = np.zeros(self.model.n_classes, dtype=np.int64)
        counts = self._decisions(self.params, "decisions_0")
        is_known, is_broken = self._broken(counts, noises["decisions_0"])
        if not is_broken:
            return np.zeros(len(best))
        known, least, now = counts, math.inf, math.inf
        for place, reach in enumerate(REACH):
            noise = noises[f"decisions_{place}"]
            if place:
                counts = self._decisions(self.model.shifted(self.params, STEP * offsets), f"decisions_{place}")
            wrong, price = self._costs(counts, is_known, noise**2)
            now = price if place == 0 else now
            if wrong + price < least and price <= now:
                best, least, known = offsets, wrong + price, counts
            params = self.model.shifted(self.params, STEP * best)
            query = Count(self.watched.cells, self.watched.n_cells, PairMargin(self.model, params, EDGES))
            bins = self.batch.release_counts(query, f"margins_{place}").reshape(self.watched.n_cells, -1, len(WIDTHS))
            curves = PairCurves.of(known, bins, noise)

            def cost(further: NDArray[np.int64], curves: PairCurves = curves, now: float = now) -> float:
                wrong, price = self._costs(curves.counts_at(further), is_known, curves.variance_at(further))
                return wrong + price if price <= now else math.inf

            offsets = best + cheapest(cost, len(best), reach)[0]
        return STEP * (offsets - offsets[0])

    def _broken(self, counts: Float64Array, noise: float) -> tuple[NDArray[np.bool_], bool]:
        """Return which bounds are on enough people, and whether one of them is broken by more than noise explains."""
        found = self.watched.estimate(counts, noise**2, minimum_size(self.size))
        is_known = found.has_enough_people
        is_known[-1] = False  # the accuracy is counted, not bounded
        width = max(1.0, math.sqrt(2 * math.log(max(1, is_known.sum()))))
        broken = self.watched.weights @ found.rates - self.watched.limits - width * found.noise_errors
        return is_known, bool((broken[is_known] > 0).any())

    def _costs(self, counts: Float64Array, is_known: NDArray[np.bool_], variance: float = 0.0) -> tuple[float, float]:
        """Return minus the accuracy, and the largest excess over an aim, each at its largest multiplier.

        With noise of some variance in each count, every number is taken to be worse by its standard error.
        """
        found = self.watched.estimate(counts, variance, minimum_size(self.size))
        values = self.watched.weights @ found.rates + found.noise_errors
        aims = aims_below(self.watched.limits, self.headroom * found.sampling_errors)
        excess = np.maximum(values - aims, 0.0)
        prices = LARGEST_PULL * (found.smallest_denominators / self.size)
        return float(values[-1]), float((prices * excess)[is_known].max())

    def _decisions(self, params: Float32Array, name: str) -> Float64Array:
        """Release how many people of each cell are decided for each class."""
        query = Count(self.watched.cells, self.watched.n_cells, Decision(self.model, params))
        return self.batch.release_counts(query, name).reshape(-1, self.model.n_classes)


@dataclass(frozen=True, eq=False)
class PairCurves:
    """How many people of each cell change between two classes as offsets grow, beside how many are decided for each.

    Attributes
    ----------
    counts : array of shape (cells, classes)
        Decisions at offsets of 0.
    below : array of shape (cells, pairs, thresholds)
        How many more margins lie up to each of `THRESHOLDS` than up to 0, for the pairs of `best_pair`.
    low, high : arrays of shape (pairs,)
        The classes of each pair.
    noise : float
        The standard deviation of the noise on each count, of decisions or of a bin.
    """

    counts: Float64Array
    below: Float64Array
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    noise: float

    @classmethod
    def of(cls, counts: Float64Array, bins: Float64Array, noise: float) -> "PairCurves":
        """Return the curves of noisy decisions (cells, classes) and bins of margins (cells, pairs, bins).

        The people in the bins of a class, of all its pairs together, are scaled to those who are decided for it.
        """
        counts, weights = np.maximum(counts, 0.0), np.diag(WIDTHS)
        high, low = np.tril_indices(counts.shape[1], -1)
        people = WIDTHS * [[smooth_curve([Observation(weights, row, noise)]) for row in cell] for cell in bins]
        is_low = EDGE_ABOVE <= 0
        for k in range(counts.shape[1]):
            own = (low == k)[:, None] & is_low | (high == k)[:, None] & ~is_low
            people[:, own] *= (counts[:, k] / np.maximum(people[:, own].sum(axis=1), 1.0))[:, None]
        upto = np.cumsum(people[:, :, :-1], axis=2)
        below = np.array([[np.interp(THRESHOLDS, EDGES, row) for row in cell] for cell in upto])
        return cls(counts, below - below[:, :, MIDDLE, None], low, high, noise)

    def counts_at(self, offsets: NDArray[np.int64]) -> Float64Array:
        """Return the decisions at offsets by class, in steps between thresholds."""
        shifts = offsets[self.low] - offsets[self.high]
        places = np.clip(MIDDLE + shifts, 0, len(THRESHOLDS) - 1)
        moved, table = self.below[:, np.arange(len(places)), places], self.counts.T.copy()
        np.add.at(table, self.low, moved.T)
        np.add.at(table, self.high, -moved.T)
        return np.maximum(table.T, 0.0)

    def variance_at(self, offsets: NDArray[np.int64]) -> float:
        """Return about how noisy these decisions are: more the more bins they have crossed, on average of a class."""
        shifts = STEP * (offsets[self.low] - offsets[self.high])
        crossed = np.searchsorted(POSITIVE_EDGES, np.minimum(np.abs(shifts), EDGES[-1]))
        return self.noise**2 * (1 + 2 * float(crossed.sum()) / self.counts.shape[1])


def cheapest(cost: Callable[[NDArray[np.int64]], float], n_numbers: int, reach: int) -> tuple[NDArray[np.int64], float]:
    """Return whole numbers of small cost, no two further apart than `reach`, and that cost.

    By strides along one and two of them at a time, from 0 and, because costs have kinks at which strides get stuck,
    from the best of points spread at random (by public coins). Among equal costs the first stays, so nothing moves
    without need.

    Examples
    --------
    >>> best, least = cheapest(lambda x: abs(x[0] - x[1] - 37) + abs(x[2] - x[1] + 5), 3, 50)
    >>> int(best[0] - best[1]), int(best[2] - best[1]), float(least)
    (37, -5, 0.0)
    """
    units = np.eye(n_numbers, dtype=np.int64)
    pairs = [units[j] + sign * units[k] for j in range(n_numbers) for k in range(j) for sign in (-1, 1)]
    directions = [sign * way for way in (*units, *pairs) for sign in (1, -1)]

    def near(point: NDArray[np.int64]) -> float:
        return cost(point) if np.ptp(point) <= reach else math.inf

    spread = np.random.default_rng(0).integers(-reach // 2, reach // 2 + 1, (N_POINTS, n_numbers))
    starts = sorted(spread, key=near)[: 3 if n_numbers <= FEW_CLASSES else 1]
    best, least = 0 * units[0], math.inf
    for start in (best, *starts):
        point, own = _descended(near, start, directions)
        if own < least - TINY:
            best, least = point, own
    return best, least


def _descended(
    cost: Callable[[NDArray[np.int64]], float], point: NDArray[np.int64], directions: list[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], float]:
    least = cost(point)
    for stride in STRIDES * 2:
        while True:
            costs = [cost(point + stride * way) for way in directions]
            place = int(np.argmin(costs))
            if costs[place] >= least - TINY:
                break
            point, least = point + stride * directions[place], costs[place]
    return point, least
