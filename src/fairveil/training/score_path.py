"""The line from the best model to the fair one, what is known of the decisions along it, and choosing a point on it.

On the line w(s) = start + s move a record is only the pair of scores (start.z, move.z): it is decided for class 1 where
the first plus s times the second is above a threshold. So one histogram of cell x score x score tells the decisions of
every model on the line at every threshold, and all tolerances can be served from it.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.special import ndtr

from fairveil.fairness.histogram import SMALLEST_GROUP, HistogramConstraints
from fairveil.privacy.rows import Rows, row_function
from fairveil.training.expansion import Quadratic, design_of

__all__ = ["CellRates", "CellSums", "Choice", "Outlook", "PathBins", "ScorePath", "choose", "on_simplex"]

Floats = NDArray[np.float64]

N_BINS = (24, 10)
"""Bins of the two scores."""

RANGES = ((-2.5, 4.0), (-2.5, 2.5))
"""Where they lie, in standard deviations from the mean; the outermost hold everyone beyond."""

SHIFTS = np.linspace(0.0, 2.5, 51)
"""Points s of the line; mean scores are equal at 1, decisions may need more."""

THRESHOLDS = np.linspace(-0.8, 0.8, 33)
"""In standard deviations of the first score."""

KERNEL = 0.7
"""The width of the kernel that smooths noisy bins, in bins."""

MISFIT = 0.1
"""About what share of a cell a normal law puts on the wrong side of a threshold."""

CLEAR = 3.0
"""A cell's mean differs from everyone's in those coordinates where it does so by so many deviations of its noise."""

FEASIBLE = 1e-9


@dataclass(frozen=True, eq=False)
class CellSums:
    """What first and second moments tell of the cells, all of it noisy.

    Attributes
    ----------
    sums : array of shape (cells, d)
        The sum of z over the people of a cell.
    squares : array of shape (d, d)
        The sum of z z^T over everyone who is counted.
    norm : float
        z = [x, 1] / norm, so that the last coordinate counts people.
    size_noise : float
        The standard deviation of the noise on the size of a cell.
    floor : float
        The least number of people that is divided by.
    """

    sums: Floats
    squares: Floats
    norm: float
    size_noise: float
    floor: float

    @cached_property
    def means(self) -> Floats:
        """The mean of z in each cell: that of everyone, but where the cell's own clearly differs."""
        common = self.sums.sum(axis=0) / self.everyone
        parts = np.maximum(self.sizes, self.floor)[:, None]
        apart = self.sums / parts - common
        noise = self.size_noise / self.norm / parts
        return common + np.where(np.abs(apart) > CLEAR * noise, apart, 0.0)

    @cached_property
    def sizes(self) -> Floats:
        """The number of people in each cell, never negative."""
        return np.maximum(self.sums[:, -1] * self.norm, 0.0)

    @property
    def everyone(self) -> float:
        """The number of people in all cells."""
        return max(float(self.sizes.sum()), self.floor)

    def spread(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of each score w.z over everyone, for the columns of `weights`."""
        means = self.sums.sum(axis=0) @ weights / self.everyone
        squares = np.einsum("dk,de,ek->k", weights, self.squares, weights) / self.everyone
        return means, np.sqrt(np.maximum(squares - means**2, 1e-12))

    def tilt(self, score: Floats, other: Floats) -> float:
        """Return the slope of the regression of another score on a first one, over everyone."""
        means, stds = self.spread(np.stack([score, other], axis=1))
        together = score @ self.squares @ other / self.everyone - means[0] * means[1]
        return float(together / stds[0] ** 2)

    def within(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return the mean scores of each cell, shape (cells, k), and their covariance inside cells, shape (k, k)."""
        means = self.means @ weights
        between = (means * self.sizes[:, None]).T @ means
        inside = (weights.T @ self.squares @ weights - between) / self.everyone
        values, vectors = np.linalg.eigh(inside)
        return means, (vectors * np.maximum(values, 0.0)) @ vectors.T


@dataclass(frozen=True, eq=False)
class CellRates:
    """The rates of some bounds as functions of how many people of each cell are decided for class 1.

    Attributes
    ----------
    gain, base, below : arrays of shape (R, cells)
        A rate is (gain.accepted + base.sizes) / below.sizes.
    weights : array of shape (J, R)
    labels : array of shape (cells,)
    """

    gain: Floats
    base: Floats
    below: Floats
    weights: Floats
    labels: NDArray[np.int64]

    @classmethod
    def of(
        cls, bounds: HistogramConstraints, coarse: NDArray[np.int64], labels: NDArray[np.int64]
    ) -> "CellRates":
        """Return the rates over finer cells: `coarse` is the bounds' own cell of each, -1 for none."""
        shape = (len(bounds.above), bounds.n_cells, bounds.n_classes)
        # a last cell of zeros, to which -1 points
        above, below = (
            np.pad(table.reshape(shape), ((0, 0), (0, 1), (0, 0)))[:, coarse]
            for table in (bounds.above, bounds.below)
        )
        return cls(above[..., 1] - above[..., 0], above[..., 0], below[..., 0], bounds.weights, labels)

    def directions(self, known: CellSums) -> Floats:
        """Return d_j with d_j.w the left side of bound j, had decisions been scores; shape (J, d)."""
        parts = np.maximum(self.below @ known.sizes, known.floor)
        # a ratio other than 1 bends the bound, not what would be fair
        return np.sign(self.weights) @ (self.gain @ (known.means * known.sizes[:, None]) / parts[:, None])

    def is_told(self, known: CellSums) -> NDArray[np.bool_]:
        """Return which bounds are on enough people to speak of."""
        noise = known.size_noise * np.sqrt(np.count_nonzero(self.below, axis=1))
        is_small = self.below @ known.sizes < SMALLEST_GROUP + 3 * noise
        return ~((self.weights != 0) & is_small).any(axis=1)

    def accuracy(self, accepted: Floats, sizes: Floats) -> Floats:
        """Return the share of right decisions."""
        right = accepted @ (2.0 * self.labels - 1) + sizes[self.labels == 0].sum()
        return right / max(float(sizes.sum()), 1.0)

    def sides(self, accepted: Floats, sizes: Floats, floor: float) -> tuple[Floats, Floats]:
        """Return left sides and their standard errors because people are a sample, each (..., J)."""
        parts = np.maximum(self.below @ sizes, floor)
        rates = np.clip((accepted @ self.gain.T + self.base @ sizes) / parts, 0.0, 1.0)
        middle = np.clip(rates, 0.02, 0.98)
        errors = np.sqrt((middle * (1 - middle) / parts) @ np.square(self.weights).T)
        return rates @ self.weights.T, errors


@dataclass(frozen=True, eq=False)
class ScorePath:
    """The line of weights start + s move, and the public bins of a record's two scores on it.

    The second score that is binned is (move - tilt start).z, which does not go with the first: the people of a bin then
    fill it rather than lie along its diagonal.
    """

    start: Floats
    move: Floats
    tilt: float
    edges: tuple[Floats, Floats]
    unit: float

    @classmethod
    def between(cls, quadratic: Quadratic, directions: Floats, known: CellSums) -> "ScorePath":
        """Return the line from the minimiser to the one with equal mean scores; for two groups it goes on as such."""
        start = quadratic.minimiser
        move = quadratic.minimiser_under(directions) - start if len(directions) else np.zeros_like(start)
        tilt = known.tilt(start, move)
        means, stds = known.spread(np.stack([start, move - tilt * start], axis=1))
        edges = [
            mean + std * np.linspace(*where, n_bins + 1)
            for mean, std, where, n_bins in zip(means, stds, RANGES, N_BINS, strict=True)
        ]
        return cls(start, move, tilt, (edges[0], edges[1]), float(stds[0]))

    @property
    def binned(self) -> tuple[Floats, Floats]:
        """The weights of the two scores that are binned."""
        return self.start, self.move - self.tilt * self.start

    def weights_at(self, shift: float) -> Floats:
        """Return the weights at a point of the line."""
        return self.start + shift * self.move

    @property
    def thresholds(self) -> Floats:
        """The thresholds that are tried."""
        return THRESHOLDS * self.unit

    def above(self) -> Floats:
        """Return the share of each bin above each threshold at each point: shape (shifts, thresholds, bins)."""
        centres = [(edges[1:] + edges[:-1]) / 2 for edges in self.edges]
        widths = [edges[1] - edges[0] for edges in self.edges]
        shares = []
        for shift in SHIFTS:
            stretch = 1 + shift * self.tilt
            middles = (stretch * centres[0][:, None] + shift * centres[1]).ravel() - self.thresholds[:, None]
            sides = np.maximum([abs(stretch) * widths[0], shift * widths[1]], 1e-4 * widths[0])
            shares.append(_rectangle(middles, *sides))
        return np.stack(shares)


def _rectangle(x: Floats, a: float, b: float) -> Floats:
    """Return P(x + A + B > 0) for A and B uniform and centred, of widths a and b."""
    corners = [np.square(np.maximum(x + sign, 0)) / 2 for sign in np.array([a + b, a - b, b - a, -a - b]) / 2]
    return np.clip((corners[0] - corners[1] - corners[2] + corners[3]) / (a * b), 0.0, 1.0)


@row_function
@dataclass(frozen=True, eq=False)
class PathBins:
    """The (cell, bin, bin) of each record's scores on a released line; `cells` (groups x labels) gives the cell."""

    path: ScorePath
    norm: float
    cells: NDArray[np.int64]
    n_counted: int
    clips: bool = False

    @property
    def n_cells(self) -> int:
        """One count for each cell and pair of bins."""
        return self.n_counted * math.prod(N_BINS)

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return the place of each row in the flat histogram."""
        design = design_of(rows.X, self.norm, self.clips)
        cell = self.cells.ravel().take(rows.joint(2), mode="wrap")
        for weights, edges in zip(self.path.binned, self.path.edges, strict=True):
            cell = cell * (len(edges) - 1) + np.searchsorted(edges[1:-1], design @ weights)
        return cell


@dataclass(frozen=True, eq=False)
class Outlook:
    """How many people of each cell are decided for class 1, at each point and threshold of a line.

    `accepted` has the shape (shifts, thresholds, cells); `is_counted` says whether decisions were counted or follow
    from means and variances.
    """

    accepted: Floats
    sizes: Floats
    is_counted: bool

    @classmethod
    def counted(cls, path: ScorePath, histogram: Floats, noise: float, known: CellSums) -> "Outlook":
        """Return what a noisy histogram (cells x bins) tells, smoothed and made to fit the sizes of the cells."""
        bins = histogram.reshape(len(known.sizes), *N_BINS)
        if not noise:
            return cls(path.above() @ histogram.reshape(len(bins), -1).T, bins.sum(axis=(1, 2)), True)
        smooth = [gaussian_filter(cell, KERNEL, mode="nearest") for cell in bins]
        flat = np.stack([on_simplex(cell, n).ravel() for cell, n in zip(smooth, known.sizes, strict=True)])
        # the counts of a small cell are mostly noise, and what its moments tell is off by little
        signal, error = MISFIT * known.sizes, noise * math.sqrt(flat.shape[1] / 2)
        trust = signal**2 / (signal**2 + error**2)
        expected = cls.normal(path, known).accepted
        return cls(expected + trust * (path.above() @ flat.T - expected), known.sizes, True)

    @classmethod
    def normal(cls, path: ScorePath, known: CellSums) -> "Outlook":
        """Return what the moments alone tell, as if scores were normal in every cell, with one covariance."""
        means, inside = known.within(np.stack([path.start, path.move], axis=1))
        points = np.stack([np.ones_like(SHIFTS), SHIFTS])
        stds = np.sqrt(np.maximum(np.einsum("is,ij,js->s", points, inside, points), 1e-12))
        distance = (means @ points).T[:, None] - path.thresholds[:, None]
        return cls(ndtr(distance / stds[:, None, None]) * known.sizes, known.sizes, False)


def on_simplex(values: Floats, total: float) -> Floats:
    """Return the nearest non-negative numbers of the same shape that add up to `total`.

    Examples
    --------
    >>> on_simplex(np.array([3.0, 1.0, -2.0]), 3.0).tolist()
    [2.5, 0.5, 0.0]
    """
    if total <= 0:
        return np.zeros_like(values)
    falling = np.sort(values, axis=None)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, values.size + 1)
    last = int(np.flatnonzero(falling > excess)[-1])
    return np.maximum(values - excess[last], 0.0)


@dataclass(frozen=True)
class Choice:
    """A point and threshold of a line, with its estimated accuracy and largest left side of a bound."""

    shift: float
    threshold: float
    accuracy: float
    gap: float


def choose(
    outlook: Outlook, path: ScorePath, rates: CellRates, limits: Floats, headroom: float, known: CellSums
) -> Choice:
    """Return the most accurate point that keeps every limit by some room, or the one that comes nearest to it.

    Room is `headroom` standard errors of the people, more where many comparisons must hold together, at most
    headroom / 2 of the limit. Between two points of the line people change sides evenly, so that a limit can be met
    exactly, also one of 0.
    """
    is_told = rates.is_told(known)
    found = [
        _best_of_column(
            outlook.accepted[:, column], outlook.sizes, rates, limits, headroom, known.floor, is_told
        )
        for column in range(len(THRESHOLDS))
    ]
    best = max(range(len(found)), key=lambda column: found[column][0])
    _, shift, accuracy, gap = found[best]
    return Choice(shift, float(path.thresholds[best]), accuracy, gap)


def _best_of_column(
    accepted: Floats,
    sizes: Floats,
    rates: CellRates,
    limits: Floats,
    headroom: float,
    floor: float,
    is_told: NDArray[np.bool_],
) -> tuple[tuple[float, float], float, float, float]:
    """Return rank, shift, accuracy and gap of the best point at one threshold: reachable ones rank by accuracy."""
    left, errors = rates.sides(accepted, sizes, floor)
    room = headroom * max(1.0, math.sqrt(2 * math.log(max(1, len(limits) // 2)))) * errors
    aims = np.where(limits > 0, np.maximum(limits - room, limits * max(0.0, 1 - headroom / 2)), limits)
    excess = (left - aims)[:, is_told]
    at, between = _points(excess)
    columns = np.column_stack([excess, SHIFTS, rates.accuracy(accepted, sizes), left])
    after = np.minimum(at + 1, len(SHIFTS) - 1)
    seen = columns[at] + between[:, None] * (columns[after] - columns[at])
    n_told = excess.shape[1]
    worst = seen[:, :n_told].max(axis=1, initial=-np.inf)
    shifts, accuracies, sides = seen[:, n_told], seen[:, n_told + 1], seen[:, n_told + 2 :][:, is_told]
    is_kept = worst <= FEASIBLE
    best = int(np.argmax(np.where(is_kept, accuracies, -np.inf) if is_kept.any() else -worst))
    rank = (1.0, accuracies[best]) if is_kept.any() else (0.0, -worst[best])
    gap = sides[best].max(initial=0.0)
    return (float(rank[0]), float(rank[1])), float(shifts[best]), float(accuracies[best]), float(gap)


def _points(excess: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Return all points of the line and, between them, where a bound is just met: a place and how far beyond it."""
    before, after = excess[:-1], excess[1:]
    place, bound = np.nonzero(before * after < 0)
    roots = before[place, bound] / (before[place, bound] - after[place, bound])
    grid = np.arange(len(excess))
    return np.concatenate([grid, place]), np.concatenate([np.zeros(len(grid)), roots])
