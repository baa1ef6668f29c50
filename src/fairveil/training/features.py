"""How encoded rows become features: rare levels larger, number columns at two resolutions; one small release.

Under gradient descent a level that few people have moves slowly, and noise reaches all levels alike. Scaling each level
by its frequency to a negative power gives rare levels larger steps, at the cost of a little more noise on them. The
frequencies are released first: one noisy count of every level, 5 % of the precision.

A schema's bins are coarse, so that few people suffice for each. Where people are many, each bin is divided into finer
ones that stand beside it at a small weight: what the data show clearly is learned at the fine resolution, everything
else at the coarse one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fairveil._typing import Float32Array, Float64Array
from fairveil.data.coded import Levels
from fairveil.data.encoding import check_resolution
from fairveil.errors import InvalidParameterError
from fairveil.models import Decoupled, LinearSoftmax, Model, Perceptron, TorchModel
from fairveil.models.rescaled import Rescaled, Rescaling
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.veil import Veil
from fairveil.training.recipe import Task

LEVEL_SHARE = 0.05
"""The share of the precision (1 / noise^2) that the counts of levels take."""

SMALLEST_COUNT = 50.0
"""A level counts as at least this many people, so that noise does not make scales."""

MOST_COUNTED = 2_000_000
LEAST_COUNTED = 0.1
"""Of a larger table a sample of about so many people is counted, but at least this share."""

RESOLUTION = 8
FINE_WEIGHT = 0.5
"""Each bin is divided into so many finer ones, whose features have this weight beside the bin's own."""

PEOPLE_PER_LEVEL, ENOUGH_PEOPLE = 25.0, 10_000
"""Two resolutions take so many people for each level, 1 / epsilon times as many at a smaller epsilon, and so many in
all. Set on public data sets: docs/defaults.md."""


RESIDUAL_SQUARE = 0.15
"""About the mean square of label less probability; for sampling noise in gradients."""


@dataclass(frozen=True)
class Drift:
    """How far descent carries a weight whose true slope is zero.

    Parameters
    ----------
    noise_variance : float
        Of an averaged weight, from the noise that hides records.
    time : float
        Steps times their length, up to the average of the iterates.
    size : float
        How many records gradients are divided by.
    """

    noise_variance: float
    time: float
    size: float

    @classmethod
    def of(cls, n_steps: int, momentum: float, rate: float, noise: float, size: float) -> "Drift":
        """Return the drift of the average of the last half of `n_steps` iterates of momentum descent.

        `noise` is the standard deviation on each entry of a mean gradient. Curvature would hold it back; it is ignored.
        """
        steps = np.arange(n_steps)
        first = np.maximum(steps, n_steps // 2)  # the first averaged iterate that the noise of a step moves
        n_moved, before = n_steps - first, first - steps
        geometric = momentum ** (before + 1.0) * (1 - momentum**n_moved) / (1 - momentum)
        weights = (n_moved - geometric) / (1 - momentum) / (n_steps - n_steps // 2)
        time = rate * float(weights.sum())
        return cls(float(np.sum((rate * noise * weights) ** 2)), time, size)

    def variance(self, counts: Float64Array, scales: Float64Array) -> Float64Array:
        """Return the variance of weights of levels that so many records have, seen at these scales.

        Beside noise it is that of the people themselves: labels differ by chance, and curvature holds the weight back.
        """
        slopes = RESIDUAL_SQUARE * scales**2 * counts / self.size
        return self.noise_variance + slopes / self.size * (self.time / (1 + slopes * self.time)) ** 2


@dataclass(frozen=True)
class FeatureDesign:
    """How encoded rows become the features of linear models and networks.

    Parameters
    ----------
    frequency_power : float
        The feature of a level is scaled by the noisy number of people that have it to the minus this power; all rows
        are then scaled alike, so that their mean squared norm stays what it is. 0 scales nothing, and counts nothing.
    resolution : int, optional
        Into how many finer bins each bin of a number column is divided, beside the bin itself. 1 is the schema's bins
        alone; None is 8 where public facts say that there are people enough, else 1.
    """

    frequency_power: float = 0.25
    resolution: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.frequency_power <= 1:
            raise InvalidParameterError(f"Expected 0 <= frequency_power <= 1, got {self.frequency_power!r}.")
        if self.resolution is not None:
            check_resolution(self.resolution)

    def resolution_for(self, task: Task) -> int:
        """Return into how many bins each bin of a number column is divided, by public facts."""
        if self.resolution is not None:
            return self.resolution
        if task.n_public is None or task.levels is None:
            return 1
        n_levels = task.levels.n_features + (RESOLUTION - 1) * task.levels.n_bins
        is_enough = min(1.0, task.epsilon) * task.n_public >= PEOPLE_PER_LEVEL * n_levels
        return RESOLUTION if is_enough and task.n_public >= ENOUGH_PEOPLE else 1

    def stages(self, precision: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return the count of levels beside stages of this precision on the subset "train", if it is needed."""
        if not self._counts(task):
            return ()
        rate = 1.0
        if task.n_public is not None:
            rate = max(LEAST_COUNTED, min(1.0, MOST_COUNTED / (share * task.n_public)))
        noise = rate * math.sqrt((1 - LEVEL_SHARE) / (LEVEL_SHARE * precision)) if precision else 0.0
        return (Stage("levels", (Release("levels", "gaussian", noise),), share, {-1: rate}, subset="train"),)

    def trained_model(self, model: Model, task: Task, veils: Mapping[str, Veil]) -> Model:
        """Return the model that is trained for this one: on rescaled features, where rows have levels."""
        if task.levels is None or isinstance(model, TorchModel):
            return model
        if isinstance(model, Decoupled):
            base = self.trained_model(model.base, task, veils)
            return Decoupled(base, model.n_groups)  # type: ignore[arg-type]
        if not isinstance(model, (LinearSoftmax, Perceptron)):
            return model
        own = self.rescaling_for(task, veils)
        return model if own is None else Rescaled(model, own)

    def rescaling_for(self, task: Task, veils: Mapping[str, Veil]) -> Rescaling | None:
        """Return how features are seen, from the count of levels if it is planned; None is as they are."""
        if task.levels is None:
            return None
        if "levels" in veils:
            counts = veils["levels"].draw().release_levels(task.levels.n_columns)
        elif task.levels.n_parents:
            counts = np.ones(task.levels.n_features)
        else:
            return None
        return rescaling(task.levels, counts[: task.levels.n_features], self.frequency_power)

    def _counts(self, task: Task) -> bool:
        return self.frequency_power > 0 and task.levels is not None


def settled_params(model: Model, params: Float32Array, drift: Drift) -> Float32Array:
    """Return parameters whose fine bins differ from their coarse one only as far as noise does not explain it.

    How far a fine weight lies from the mean of its coarse bin is multiplied by 1 - noise / square, at least 0: the
    square of that distance, averaged over classes, and what noise alone would make of it (`Drift`). Networks keep
    their weights.
    """
    if isinstance(model, Decoupled):
        return np.concatenate([settled_params(model.base, own, drift) for own in params.reshape(model.n_groups, -1)])
    if not (isinstance(model, Rescaled) and isinstance(model.base, LinearSoftmax) and len(model.rescaling.parents)):
        return params
    own, children, parents = model.rescaling, model.rescaling.children, model.rescaling.parents
    weights = params[: model.width * own.n_seen].reshape(model.width, own.n_seen).astype(np.float64)
    counts, scales = np.maximum(own.counts[children], 1.0), own.scales[children]
    totals = np.bincount(parents, counts)
    fine = weights[:, children] * scales
    means = np.stack([np.bincount(parents, counts * row) / totals for row in fine])[:, parents]
    noise = scales**2 * drift.variance(counts, scales) * (1 - counts / totals[parents])
    squares = np.maximum(np.mean((fine - means) ** 2, axis=0), np.finfo(np.float64).tiny)
    weights[:, children] = (means + np.maximum(0.0, 1 - noise / squares) * (fine - means)) / scales
    return np.concatenate([weights.ravel().astype(np.float32), params[weights.size :]])


def plain_params(model: Model, params: Float32Array) -> Float32Array:
    """Return the parameters of the plain model that a model trained on rescaled features stands for."""
    return model.plain(params) if isinstance(model, (Rescaled, Decoupled)) else params


def rescaling(levels: Levels, counts: Float64Array, power: float, fine_weight: float = FINE_WEIGHT) -> Rescaling:
    """Return the scales that follow from the noisy counts of all levels.

    Levels of columns that every row has one of are scaled, and then all of them by one number, so that the mean squared
    norm of these columns is 1.
    """
    counts = np.maximum(counts, 0.0)
    whole = np.array(levels.whole, dtype=np.int64)
    children, parents = np.array(levels.children, dtype=np.int64), np.array(levels.parents, dtype=np.int64)
    coarse = np.bincount(parents, counts[children], levels.n_parents) if len(parents) else np.zeros(0)
    scales = np.ones(levels.n_features)
    scales[whole] = np.maximum(counts[whole], SMALLEST_COUNT) ** -power
    scales[children] *= fine_weight
    parent_scales = np.maximum(coarse, SMALLEST_COUNT) ** -power
    squares = Rescaling(scales, children, parents, parent_scales, counts).squares
    unit = math.sqrt(max(counts[whole].sum(), 1.0) / max(counts[whole] @ squares[whole], 1e-12))
    scales[whole] *= unit
    return Rescaling(scales, children, parents, parent_scales * unit, counts)
