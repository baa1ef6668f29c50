"""The functional mechanism for more than two classes: one quadratic for all classes, a line to equal mean scores.

With logits w_k.z and |z| <= 1, the softmax loss of K classes is, to second order at 0,
    log K + sum_k (1/K - [y = k]) w_k.z + sum_kl (I - 11^T / K)_kl (w_k.z) (w_l.z) / (2 K).
Its slope has no part along equal shifts of all w_k, and neither has the decision, so that second moments are shared:
every class has the curvature sum z z^T / K, and only first moments are by class (docs/proofs/moments.md).

A tolerance is kept by the point of the line, which is chosen by noisy counts of decisions at a few points.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fairveil._typing import Float32Array, Float64Array
from fairveil.errors import InvalidParameterError
from fairveil.fairness.rates import SMALLEST_GROUP, HistogramConstraints, aims_below, minimum_size
from fairveil.methods.functional.path import FEASIBLE, DerivedModel
from fairveil.methods.functional.quadratic import CellLayout, CellSums, Quadratic
from fairveil.models import LinearSoftmax
from fairveil.privacy.moments import Moments
from fairveil.privacy.queries import LogisticMoments

POINTS = (0.0, 0.5, 1.0, 1.5)
"""Where on the line decisions are counted first: mean scores are equal at 1, decisions may need more."""

N_COUNTS = len(POINTS) + 2
"""Two further counts are made at the point that is then chosen, each time: between points decisions are guessed."""

END = 2.0
"""Where everyone is decided alike: there the sizes of cells, which were released, are the counts."""

COUNT_SHARES = {**{f"counts {place}": 0.15 for place in range(1, N_COUNTS + 1)}, "released": 0.1}
"""How the precision of counts is shared out: decisions at each point, and a count that reports."""

NEAR_END = 1.99
"""Beyond this nothing needs to be counted."""

FINE = np.linspace(POINTS[0], END, 81)
"""Points that are tried; between counted ones people are taken to change sides evenly."""


@dataclass(frozen=True, eq=False)
class ClassLine:
    """Weights (K, d) along a line from the minimizer to equal mean scores, and on to one decision for everyone.

    They are start + s move up to s = 1, then lead straight to `constant` at s = 2.
    """

    start: Float64Array
    move: Float64Array
    constant: Float64Array

    @classmethod
    def between(
        cls, quadratic: Quadratic, slopes: Float64Array, directions: Float64Array, constant: Float64Array
    ) -> "ClassLine":
        """Return the line to where sum_k directions_jk.w_k = 0 for all j; without directions it does not move."""
        start = -quadratic.inverse(slopes.T).T
        if not len(directions):
            return cls(start, np.zeros_like(start), constant)
        # equal shifts of all classes change no decision
        flat = (directions - directions.mean(axis=1, keepdims=True)).reshape(len(directions), -1)
        steered = quadratic.inverse(flat.reshape(-1, start.shape[1]).T).T.reshape(flat.shape)
        pressure = np.linalg.pinv(flat @ steered.T, rcond=1e-9, hermitian=True) @ (flat @ start.ravel())
        return cls(start, -(pressure @ steered).reshape(start.shape), constant)

    def weights_at(self, shift: float) -> Float64Array:
        """Return the weights at a point of the line."""
        beyond = max(shift - 1, 0.0)
        return (1 - beyond) * (self.start + min(shift, 1.0) * self.move) + beyond * self.constant


def class_quadratic(
    moments: Moments, step: LogisticMoments, layout: CellLayout, regularization: float
) -> tuple[Quadratic, Float64Array]:
    """Return the quadratic that all classes share, and their slopes sum (1/K - [y = k]) z, shape (K, d)."""
    n_classes = int(layout.labels.max()) + 1
    sums = np.zeros((n_classes, step.shape[2]))
    np.add.at(sums, layout.labels, moments.first / step.slope)
    scale, d = 1 / (n_classes * step.weight), step.shape[2]
    noise = scale * moments.diagonal_noise * np.sqrt(2 * d)
    origin = np.zeros(d)
    quadratic = Quadratic(origin, scale * moments.second[0], origin, float(noise), regularization)
    return quadratic, sums.mean(axis=0) - sums


def class_sums(moments: Moments, step: LogisticMoments, size: float) -> CellSums:
    """Return the sums of z in cells and of z z^T over everyone."""
    noise = moments.first_noise / step.slope * step.norm
    squares = moments.second.sum(axis=0) / step.weight
    return CellSums(moments.first / step.slope, squares, step.norm, noise, minimum_size(size), step.scales)


def constant_weights(known: CellSums, layout: CellLayout) -> Float64Array:
    """Return the weights whose logits are K (share of the class) - 1 for everyone: the quadratic's best constant."""
    sizes = np.bincount(layout.labels, known.sizes)
    weights = np.zeros((len(sizes), known.sums.shape[1]))
    weights[:, -1] = known.norm * (len(sizes) * sizes / known.everyone - 1)
    return weights


def class_params(model: LinearSoftmax, weights: Float64Array, norm: float) -> Float32Array:
    """Return the parameters whose logits are w_k.[x, 1] / norm."""
    return model.pack(weights[:, :-1] / norm, weights[:, -1] / norm)


def class_directions(bounds: HistogramConstraints, layout: CellLayout, known: CellSums) -> Float64Array:
    """Return d_jk with sum_k d_jk.w_k the left side of bound j, had decisions been scores, shape (J, K, d).

    Bounds on too few people steer nothing.
    """
    shape = (len(bounds.above), bounds.n_cells, bounds.n_classes)
    above, below = bounds.above.reshape(shape), bounds.below.reshape(shape)[..., 0]
    sums, sizes = np.zeros((bounds.n_cells, known.sums.shape[1])), np.zeros(bounds.n_cells)
    counted = layout.coarse >= 0
    np.add.at(sums, layout.coarse[counted], (known.means * known.sizes[:, None])[counted])
    np.add.at(sizes, layout.coarse[counted], known.sizes[counted])
    per_cell = np.bincount(layout.coarse[counted], minlength=bounds.n_cells)
    noise = known.size_noise * np.sqrt((below != 0) @ per_cell)
    is_small = below @ sizes < SMALLEST_GROUP + 3 * noise
    is_known = ~((bounds.weights != 0) & is_small).any(axis=1)
    rates = np.einsum("rck,cd->rkd", above, sums) / np.maximum(below @ sizes, known.minimum)[:, None, None]
    found: Float64Array = np.tensordot(np.sign(bounds.weights), rates, axes=1)[is_known]
    return found


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """Everything released about a task of several classes, from which a model for any limits follows at no cost.

    Attributes
    ----------
    quadratic : Quadratic
    known : CellSums
    bounds : HistogramConstraints
    layout : CellLayout
    headroom : float
    line : ClassLine
    model : LinearSoftmax
    points : tuple of float
        Where on the line decisions were counted, in rising order.
    counts : array of shape (points, cells, K)
        Noisy counts of decisions there.
    noise : float
        The standard deviation of the noise on each count.
    """

    quadratic: Quadratic
    known: CellSums
    bounds: HistogramConstraints
    layout: CellLayout
    headroom: float
    line: ClassLine
    model: LinearSoftmax
    points: tuple[float, ...]
    counts: Float64Array
    noise: float

    @cached_property
    def tables(self) -> Float64Array:
        """The counts at all points and, last, where everyone gets the most common class, (points + 1, cells, K)."""
        alike = np.zeros(self.counts.shape[1:])
        alike[:, int(np.argmax(self.line.constant[:, -1]))] = self.known.sizes
        return np.concatenate([self.counts, alike[None]])

    def counted_at(self, shift: float, table: Float64Array) -> "ClassStatistics":
        """Return the statistics after one more count of decisions; a second one at the same point is averaged in."""
        if shift in self.points:
            counts, place = self.counts.copy(), self.points.index(shift)
            counts[place] = (counts[place] + table) / 2
            return replace(self, counts=counts)
        place = int(np.searchsorted(self.points, shift))
        points = (*self.points[:place], shift, *self.points[place:])
        return replace(self, points=points, counts=np.insert(self.counts, place, table, axis=0))

    def params_at(self, shift: float) -> Float32Array:
        """Return the parameters at a point of the line."""
        weights = self.known.unscaled(self.line.weights_at(shift))
        return class_params(self.model, weights, self.known.norm)

    def rule_at(self, limits: float | Float64Array | None = None, regularization: float | None = None) -> DerivedModel:
        """Return the most accurate point that keeps these limits by a margin, or the one that comes nearest to it.

        Guarantees
        ----------
        Reads what was released and nothing else, so it costs nothing, however often it is called.
        """
        if regularization not in (None, self.quadratic.regularization):
            raise InvalidParameterError(
                f"Expected the regularization that was fitted with more than two classes, got {regularization!r}; "
                "leave it out: decisions were counted for that one alone."
            )
        requested = self.bounds.limits if limits is None else np.broadcast_to(limits, self.bounds.limits.shape)
        found = [self._judged(shift, requested) for shift in FINE]
        kept = [one for one in found if one[0] <= FEASIBLE]
        best = max(kept, key=lambda one: one[1].accuracy) if kept else min(found, key=lambda one: one[0])
        return best[1]

    def _judged(self, shift: float, limits: Float64Array) -> tuple[float, DerivedModel]:
        """Return by how much a point misses what is aimed at, and the model there."""
        bounds, coarse = self.bounds, self.layout.coarse
        points = (*self.points, END)
        after = max(int(np.searchsorted(points, shift)), 1)
        part = (shift - points[after - 1]) / (points[after] - points[after - 1])
        table = (1 - part) * self.tables[after - 1] + part * self.tables[after]
        histogram = np.zeros((bounds.n_cells, bounds.n_classes))
        np.add.at(histogram, coarse[coarse >= 0], table[coarse >= 0])
        variance = self.noise**2 * float(np.bincount(coarse[coarse >= 0]).max())
        known = bounds.estimate(histogram, variance, self.known.minimum)
        left = bounds.weights @ np.clip(known.rates, 0.0, 1.0)
        errors = np.hypot(known.noise_errors, known.sampling_errors)
        aims = aims_below(limits, self.headroom * errors, min(1.0, self.headroom / 2))
        is_known = known.has_enough_people
        right = float(table[np.arange(len(table)), self.layout.labels].sum()) / max(float(table.sum()), 1.0)
        right = min(max(right, 0.0), 1.0)
        worst = int(np.argmax(np.where(is_known, left, -np.inf)))
        gap, error = (float(left[worst]), float(errors[worst])) if is_known.any() else (0.0, 0.0)
        excess = float((left - aims)[is_known].max(initial=-np.inf))
        return excess, DerivedModel(self.params_at(shift), float(shift), 0.0, right, gap, error, True)
