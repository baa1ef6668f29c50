"""The line from the best model to the fair one, what is known of the decisions along it, and choosing a point on it.

On the line w(s) = start + s move a record is only the pair of scores (start.z, move.z): it is decided for class 1 where
the first plus s times the second is above a threshold. So one histogram of cell x score x score tells the decisions of
every model on the line at every threshold, and all tolerances can be served from it. Small cells are cut into few bins,
since noise adds up over them; what happens inside is a belief, sharpened by each further count, whose spread is known.

Everything that one training by the functional mechanism released, and the models that follow from it for free.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from fairveil._typing import Float32Array, Float64Array
from fairveil._validation import check_number
from fairveil.fairness.rates import aims_below
from fairveil.methods.functional.quadratic import CellRates, CellSums, Quadratic
from fairveil.models import LinearSoftmax
from fairveil.privacy.queries import Bin, BinPair, Count, Score

MIDDLE = 0.75
"""The point of the line whose score is binned: fair models lie about it."""

SCORES = 0.5 * np.sinh(np.linspace(-math.asinh(12.0), math.asinh(12.0), 25))
"""Edges of its bins in units, fine where thresholds are; the outermost bins hold everyone beyond."""

MOVES = np.linspace(-2.5, 2.5, 11)
"""Edges of the bins of the other score, in standard deviations from the mean of the cell."""

SHIFTS = np.linspace(0.0, 2.5, 26)
"""Points s of the line; mean scores are equal at 1, decisions may need more."""

THRESHOLDS = np.linspace(-0.8, 0.8, 33)
"""In units: standard deviations of the score at the start."""

MISFIT = 0.1
"""About what share of a cell a normal law puts on the wrong side of a threshold."""

AMPLITUDE = 1.0
"""The deviation of the people in a bin from their expected number, beforehand, as a part of it..."""

LEAST_EXPECTED = 0.3
"""... plus so much of an average bin: where hardly anyone is expected there may be some."""

REACHES = (4.0, 2.5)
"""Over how many bins of each score such deviations go together."""

ROUGH = 0.3
"""The part of their variance that does not: scores of few values come in peaks."""

RESOLVED = 0.01
"""A cell is cut so finely that noise on half its bins stays below this share of its people..."""

FEWEST_BINS = (5, 2)
"""... but into so many bins of each score at least."""

ZONE = 0.6
"""How far from 0 decisions are made, in units."""

TAILS = ((0.5, 1.0), (0.3, 2.0), (0.2, 4.0))
"""Shares and widths of the normal laws that are mixed."""

LEAST_NOISE = 0.5
"""Counts are whole: finer than this they are not distinguished."""

EVERY = (5, 4)
"""Errors are worked out at every so many points and thresholds."""

FEASIBLE = 1e-9


@dataclass(frozen=True, eq=False)
class ScorePath:
    """The line of weights start + s move, and the public bins of a record's two scores on it.

    The first score is that at `MIDDLE`, for all cells alike. The second is that of move - tilt first, which does not go
    with the first inside a cell: people of a bin then fill it rather than lie along its diagonal. Its bins lie about
    `centers`, one per cell.
    """

    start: Float64Array
    move: Float64Array
    tilt: float
    unit: float
    centers: Float64Array
    width: float

    @classmethod
    def between(cls, quadratic: Quadratic, directions: Float64Array, known: CellSums) -> "ScorePath":
        """Return the line from the minimizer to the one with equal mean scores; for two groups it goes on as such."""
        start = quadratic.minimizer
        move = quadratic.minimizer_under(directions) - start if len(directions) else np.zeros_like(start)
        first = start + MIDDLE * move
        _, inside = known.within(np.stack([first, move], axis=1))
        tilt = float(inside[0, 1] / max(inside[0, 0], 1e-12))
        second = move - tilt * first
        _, stds = known.spread(np.stack([start, second], axis=1))
        return cls(start, move, tilt, float(stds[0]), known.means @ second, float(stds[1]))

    @property
    def binned(self) -> tuple[Float64Array, Float64Array]:
        """The weights of the two scores that are binned."""
        first = self.weights_at(MIDDLE)
        return first, self.move - self.tilt * first

    def query(self, cells: NDArray[np.int64], places: NDArray[np.int64], known: CellSums, clips: bool) -> Count:
        """Return the query for both scores of each record, in bins that are merged into `places` (cells, bins)."""
        first, second = map(known.unscaled, self.binned)
        scores = Bin(Score(first, known.norm, clips), SCORES[1:-1] * self.unit)
        moves = Bin(Score(second, known.norm, clips, self.centers[cells]), MOVES[1:-1] * self.width)
        return Count(cells, len(places), BinPair(scores, moves), places)

    def weights_at(self, shift: float) -> Float64Array:
        """Return the weights at a point of the line."""
        return self.start + shift * self.move

    @property
    def thresholds(self) -> Float64Array:
        """The thresholds that are tried."""
        return THRESHOLDS * self.unit

    def above(self, cell: int, shifts: Float64Array = SHIFTS, thresholds: Float64Array | None = None) -> Float64Array:
        """Return the share of each bin of a cell above thresholds at points: shape (shifts, thresholds, bins)."""
        edges, moves, limits = SCORES * self.unit, MOVES * self.width, self.thresholds
        if thresholds is not None:
            limits = thresholds
        across = shifts[:, None, None] - MIDDLE
        along = 1 + across * self.tilt
        seconds = self.centers[cell] + (moves[1:] + moves[:-1]) / 2
        middles = along * (edges[1:, None] + edges[:-1, None]) / 2 + across * seconds
        least = 1e-4 * self.unit
        first = np.maximum(np.abs(along) * np.diff(edges)[:, None], least)
        second = np.maximum(np.abs(across) * (moves[1] - moves[0]), least)
        shares = _rectangle(middles[:, None] - limits[:, None, None], first[:, None], second[:, None])
        return shares.reshape(*shares.shape[:2], -1)

    def expected(self, known: CellSums) -> Float64Array:
        """Return about how many people of each cell are in each bin, shape (cells, u, v), from the moments alone.

        Scores have longer tails than a normal law: it is mixed with wider ones.
        """
        means, inside = known.within(np.stack(self.binned, axis=1))
        std, other = math.sqrt(max(inside[0, 0], 1e-12)), max(self.width, 1e-6)
        chances = []
        for (first, _), size in zip(means, known.sizes, strict=True):
            one = sum(part * _within(SCORES * self.unit, first, wide * std) for part, wide in TAILS)
            two = sum(part * _within(MOVES * other, 0.0, wide * other / 2) for part, wide in TAILS)
            chances.append(size * np.outer(one, two))
        return np.stack(chances)


def _within(edges: Float64Array, mean: float, std: float) -> Float64Array:
    """Return the chances of a normal number to lie between edges, the outermost holding all beyond."""
    below = ndtr((edges - mean) / std)
    below[0], below[-1] = 0.0, 1.0
    return np.diff(below)


def _rectangle(x: Float64Array, a: Float64Array, b: Float64Array) -> Float64Array:
    """Return P(x + A + B > 0) for A and B uniform and centered, of widths a and b."""
    corners = [np.square(np.maximum(x + sign / 2, 0)) / 2 for sign in (a + b, a - b, b - a, -a - b)]
    return np.clip((corners[0] - corners[1] - corners[2] + corners[3]) / (a * b), 0.0, 1.0)


def merged_bins(path: ScorePath, known: CellSums, noise: float) -> NDArray[np.int64]:
    """Return the place in one flat histogram of each (cell, bin): small cells get few places, without noise all.

    What is merged follows from what was released: rows and columns of bins that matter about equally, by the people
    expected there and by how near thresholds are.
    """
    places, n_places = [], 0
    near = [_within(SCORES, 0.0, ZONE), _within(MOVES, 0.0, 1.0)]
    for people in path.expected(known):
        size = max(people.sum(), 1e-12)
        n_bins = 2 * (RESOLVED * size / noise) ** 2 if noise else math.inf
        scale = math.sqrt(n_bins / people.size)
        parts = [
            _even_parts(near[axis] + people.sum(axis=1 - axis) / size, FEWEST_BINS[axis], scale) for axis in (0, 1)
        ]
        own = parts[0][:, None] * (parts[1][-1] + 1) + parts[1]
        places.append(n_places + own.ravel())
        n_places += int(own[-1, -1]) + 1
    return np.stack(places)


def _even_parts(weights: Float64Array, fewest: int, scale: float) -> NDArray[np.int64]:
    """Return to which of some runs of about equal weight each bin belongs."""
    n_parts = max(fewest, round(min(scale, 1.0) * len(weights)))
    if n_parts >= len(weights):
        return np.arange(len(weights))
    middles = (np.cumsum(weights) - weights / 2) / weights.sum()
    return np.unique(np.floor(middles * n_parts), return_inverse=True)[1].astype(np.int64)


@dataclass(frozen=True, eq=False)
class BinPosterior:
    """What is believed of the numbers of people in the bins of each cell: a normal law, sharper with every count.

    Attributes
    ----------
    means : array of shape (cells, bins)
    spreads : array of shape (cells, bins, bins)
        Their covariances; all 0 where counts have no noise.
    """

    means: Float64Array
    spreads: Float64Array

    @classmethod
    def before(cls, path: ScorePath, known: CellSums) -> "BinPosterior":
        """Return what the moments tell: normal scores, but for smooth deviations in proportion, and the sizes."""
        people = path.expected(known)
        kernels = [
            np.exp(-np.square(np.subtract.outer(np.arange(n), np.arange(n)) / reach) / 2)
            for n, reach in zip(people.shape[1:], REACHES, strict=True)
        ]
        kernel = (1 - ROUGH) * np.kron(*kernels) + ROUGH * np.eye(people[0].size)
        means = people.reshape(len(people), -1)
        scales = AMPLITUDE * (means + LEAST_EXPECTED * means.mean(axis=1, keepdims=True) + 0.1)
        belief = cls(means, kernel * scales[:, :, None] * scales[:, None, :])
        everyone = np.ones((1, means.shape[1]))
        return belief.updated([everyone] * len(means), list(known.sizes[:, None]), known.size_noise)

    def updated_by_histogram(self, histogram: Float64Array, places: NDArray[np.int64], noise: float) -> "BinPosterior":
        """Return the belief after one noisy histogram over `places`; without noise, the histogram."""
        if not noise:
            return BinPosterior(histogram[places], np.zeros_like(self.spreads))
        own = [np.unique(row) for row in places]
        weights = [(row == each[:, None]).astype(float) for row, each in zip(places, own, strict=True)]
        return self.updated(weights, [histogram[each] for each in own], noise)

    def updated(self, weights: Sequence[Float64Array], values: Sequence[Float64Array], noise: float) -> "BinPosterior":
        """Return the belief after noisy sums of each cell's bins, weighted by the rows of its `weights`."""
        means, spreads = self.means.copy(), self.spreads.copy()
        for cell, (rows, sums) in enumerate(zip(weights, values, strict=True)):
            along = rows @ self.spreads[cell]
            gain = np.linalg.solve(along @ rows.T + max(noise, LEAST_NOISE) ** 2 * np.eye(len(rows)), along)
            means[cell] += gain.T @ (sums - rows @ means[cell])
            spreads[cell] -= along.T @ gain
        return BinPosterior(means, spreads)


@dataclass(frozen=True, eq=False)
class DecisionCounts:
    """How many people of each cell are decided for class 1, at each point and threshold of a line.

    `accepted` and its standard errors `noises` have the shape (shifts, thresholds, cells); `is_counted` says whether
    decisions were counted or follow from means and variances.
    """

    accepted: Float64Array
    noises: Float64Array
    sizes: Float64Array
    is_counted: bool

    @classmethod
    def counted(cls, path: ScorePath, belief: BinPosterior) -> "DecisionCounts":
        """Return what counts tell."""
        sizes = np.maximum(belief.means.sum(axis=1), 0.0)
        hats = [_hats(len(every), step) for every, step in zip((SHIFTS, THRESHOLDS), EVERY, strict=True)]
        accepted, noises = np.zeros((2, len(SHIFTS), len(THRESHOLDS), len(sizes)))
        for cell in np.flatnonzero(sizes).tolist():
            above = path.above(cell)
            accepted[..., cell] = np.clip(above @ belief.means[cell], 0.0, sizes[cell])
            # errors change slowly along the line: a few are worked out, the others lie between
            some = above[:: EVERY[0], :: EVERY[1]]
            variances = ((some @ belief.spreads[cell]) * some).sum(axis=-1)
            noises[..., cell] = hats[0] @ np.sqrt(np.maximum(variances, 0.0)) @ hats[1].T
        return cls(accepted, noises, sizes, True)

    @classmethod
    def normal(cls, path: ScorePath, known: CellSums) -> "DecisionCounts":
        """Return what the moments alone tell, as if scores were normal in every cell, with one covariance."""
        means, inside = known.within(np.stack([path.start, path.move], axis=1))
        points = np.stack([np.ones_like(SHIFTS), SHIFTS])
        stds = np.sqrt(np.maximum(np.einsum("is,ij,js->s", points, inside, points), 1e-12))
        distance = (means @ points).T[:, None] - path.thresholds[:, None]
        accepted = ndtr(distance / stds[:, None, None]) * known.sizes
        return cls(accepted, np.broadcast_to(MISFIT * known.sizes, accepted.shape), known.sizes, False)


def _hats(n_points: int, step: int) -> Float64Array:
    """Return the weights, (points x some), that put points between every so many of them."""
    some = np.arange(0, n_points, step)
    return np.stack([np.interp(np.arange(n_points), some, unit) for unit in np.eye(len(some))], axis=1)


@dataclass(frozen=True)
class PathPoint:
    """A point and threshold of a line, with its estimated accuracy and largest left side of a bound.

    `gap_error` is the standard error of the left side, from noise and sampling; the largest one, where several bounds
    may be the largest.
    """

    shift: float
    threshold: float
    accuracy: float
    gap: float
    gap_error: float


def choose(
    outlook: DecisionCounts,
    path: ScorePath,
    rates: CellRates,
    limits: Float64Array,
    headroom: float,
    known: CellSums,
) -> PathPoint:
    """Return the most accurate point that keeps every limit by a margin, or the one that comes nearest to it.

    The margin is `headroom` standard errors of noise and people, at most headroom / 2 of the limit. Between two points
    of the line people change sides evenly, so that a limit can be met exactly, also one of 0.
    """
    is_known = rates.is_known(known)
    left, errors = (
        each[..., is_known] for each in rates.sides(outlook.accepted, outlook.noises, outlook.sizes, known.minimum)
    )
    limits = limits[is_known]
    aims = aims_below(limits, headroom * errors, min(1.0, headroom / 2))
    right = rates.accuracy(outlook.accepted, outlook.sizes)
    found = [_best_of_column(left[:, k], errors[:, k], aims[:, k], right[:, k]) for k in range(len(THRESHOLDS))]
    best = max(range(len(found)), key=lambda column: found[column][0])
    _, shift, accuracy, gap, error = found[best]
    return PathPoint(shift, float(path.thresholds[best]), accuracy, gap, error)


def _best_of_column(
    left: Float64Array, errors: Float64Array, aims: Float64Array, right: Float64Array
) -> tuple[tuple[bool, float], float, float, float, float]:
    """Return rank, shift, accuracy, gap and its error of the best point at one threshold: kept ones by accuracy."""
    at, between = _points(left - aims)
    after = np.minimum(at + 1, len(SHIFTS) - 1)
    shifts, accuracies, sides, spread, goals = (
        each[at] + between.reshape(-1, *[1] * (each.ndim - 1)) * (each[after] - each[at])
        for each in (SHIFTS, right, left, errors, aims)
    )
    worst = (sides - goals).max(axis=1, initial=-np.inf)
    is_kept = worst <= FEASIBLE
    best = int(np.argmax(np.where(is_kept, accuracies, -np.inf) if is_kept.any() else -worst))
    rank = (bool(is_kept.any()), float(accuracies[best] if is_kept.any() else -worst[best]))
    gap = sides[best].max(initial=0.0)
    may_be_largest = sides[best] + 2 * spread[best] >= gap
    error = spread[best].max(initial=0.0, where=may_be_largest)
    return rank, float(shifts[best]), float(accuracies[best]), float(gap), float(error)


def _points(excess: Float64Array) -> tuple[NDArray[np.intp], Float64Array]:
    """Return all points of the line and, between them, where a bound is just met: a place and how far beyond it."""
    before, after = excess[:-1], excess[1:]
    place, bound = np.nonzero(before * after < 0)
    roots = before[place, bound] / (before[place, bound] - after[place, bound])
    grid = np.arange(len(excess))
    return np.concatenate([grid, place]), np.concatenate([np.zeros(len(grid)), roots])


class DerivedModel(NamedTuple):
    """A model derived from what was released, its place on the line, and what is estimated of it.

    Accuracy and gap are estimates, the gap with its standard error; `counted` says whether decisions were counted.
    """

    params: Float32Array
    shift: float
    threshold: float
    accuracy: float
    gap: float
    gap_error: float
    counted: bool


@dataclass(frozen=True, eq=False)
class ReleasedStatistics:
    """Everything released about a task, from which a model for any limits and regularization follows at no cost.

    Attributes
    ----------
    quadratic : Quadratic
        The loss around the last round's center.
    known : CellSums
        Sums, sizes and squares of the cells.
    rates : CellRates
        The bounded rates, by cell.
    limits : array of shape (J,)
        Those of the fit.
    headroom : float
    path : ScorePath
        The line whose decisions were counted.
    outlook : DecisionCounts
        What was counted.
    model : LinearSoftmax
    """

    quadratic: Quadratic
    known: CellSums
    rates: CellRates
    limits: Float64Array
    headroom: float
    path: ScorePath
    outlook: DecisionCounts
    model: LinearSoftmax

    def rule_at(
        self,
        limits: float | Sequence[float] | Float64Array | None = None,
        regularization: float | None = None,
    ) -> DerivedModel:
        """Return the model for these limits, one number for all or one per bound; None takes those of the fit.

        Decisions were counted on one line only. For another regularization the line is another, and its point is chosen
        as if scores were normal in every cell, with the released means and variances: `counted` is then False.

        Guarantees
        ----------
        Reads what was released and nothing else, so it costs nothing, however often it is called.
        """
        requested = self.limits if limits is None else np.broadcast_to(limits, self.limits.shape)
        path, outlook = self._known_of(regularization)
        at = choose(outlook, path, self.rates, np.asarray(requested, float), self.headroom, self.known)
        weights = self.known.unscaled(path.weights_at(at.shift))
        params = margin_params(self.model, weights, at.threshold, self.known.norm)
        return DerivedModel(params, at.shift, at.threshold, at.accuracy, at.gap, at.gap_error, outlook.is_counted)

    def _known_of(self, regularization: float | None) -> tuple[ScorePath, DecisionCounts]:
        if regularization is None or regularization == self.quadratic.regularization:
            return self.path, self.outlook
        level = check_number("regularization", regularization)
        path = line_of(self.quadratic.regularized(level), self.rates, self.known)
        return path, DecisionCounts.normal(path, self.known)


def line_of(quadratic: Quadratic, rates: CellRates, known: CellSums) -> ScorePath:
    """Return the line from the minimizer to equal mean scores; comparisons of too few people steer nothing."""
    return ScorePath.between(quadratic, rates.directions(known)[rates.is_known(known)], known)


def margin_params(model: LinearSoftmax, weights: Float64Array, threshold: float, norm: float) -> Float32Array:
    """Return the parameters whose margin is w.[x, 1] / norm - threshold, half of it in each class."""
    slopes, offset = weights[:-1] / norm, weights[-1] / norm - threshold
    return model.pack(np.stack([-slopes / 2, slopes / 2]), np.array([-offset / 2, offset / 2]))
