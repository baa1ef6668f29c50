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
from fairveil.data.coded import SCHEMA_ONLY, Detail, Levels
from fairveil.data.schema import MAX_FEATURES
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

PAIR_BINS = 5
PAIR_WEIGHT = 0.3
"""Numbers are merged to so many bins in pairs of columns; a pair has this weight beside a column."""

PEOPLE_PER_LEVEL, ENOUGH_PEOPLE = 25.0, 10_000
PEOPLE_PER_PAIR_LEVEL = 8.0
"""Two resolutions take so many people for each level, 1 / epsilon times as many at a smaller epsilon, and so many in
all; pairs of columns so many for each level, theirs included. Set on public data sets: docs/defaults.md."""


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
    pair_bins : int, optional
        With features for every pair of columns, to how many bins numbers are merged in them. 0 is no pairs; None is 5
        where public facts say that there are people enough, else 0.
    """

    frequency_power: float = 0.25
    resolution: int | None = None
    pair_bins: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.frequency_power <= 1:
            raise InvalidParameterError(f"Expected 0 <= frequency_power <= 1, got {self.frequency_power!r}.")
        Detail(1 if self.resolution is None else self.resolution, self.pair_bins or 0)

    def detail_for(self, task: Task, is_open: bool = True) -> Detail:
        """Return how finely rows should be encoded, by public facts; `task` is that of the schema's own bins.

        Unless it `is_open`, only what was stated makes rows finer than the schema.
        """
        levels, n_public = task.levels, (task.n_public or 0) * is_open
        if levels is None:
            return SCHEMA_ONLY
        signal, resolution, pair_bins = min(1.0, task.epsilon) * n_public, self.resolution, self.pair_bins
        if resolution is None:
            n_levels = levels.n_at(Detail(RESOLUTION))
            is_enough = signal >= PEOPLE_PER_LEVEL * n_levels and n_public >= ENOUGH_PEOPLE
            resolution = RESOLUTION if is_enough and n_levels <= MAX_FEATURES else 1
        if pair_bins is None:
            n_levels = levels.n_at(Detail(resolution, PAIR_BINS))
            is_enough = signal >= PEOPLE_PER_PAIR_LEVEL * n_levels and n_public >= ENOUGH_PEOPLE
            pair_bins = PAIR_BINS if is_enough and n_levels <= MAX_FEATURES else 0
        return Detail(resolution, pair_bins)

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
        """Return the model that is trained in the place of `model`: on rescaled features, where the `task` has levels.

        `veils` has one for the stage of `stages`, if there is one; its counts are released here.
        """
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
        levels = task.levels
        if levels is None:
            return None
        if "levels" in veils:
            counts = veils["levels"].draw().release_levels(levels.n_places) / veils["levels"].stage.largest_rate
        elif levels.n_parents or levels.first_pair < levels.n_features:
            counts = np.ones(levels.n_features)
        else:
            return None
        return rescaling(levels, counts[: levels.n_features], self.frequency_power)

    def _counts(self, task: Task) -> bool:
        return self.frequency_power > 0 and task.levels is not None


def check_plain_features(features: FeatureDesign) -> None:
    """Refuse a design of features where a method trains on the schema's own features."""
    if features != FeatureDesign():
        raise InvalidParameterError(
            "Expected a descent without a design of features, because this method trains on the schema's own, got "
            f"{features!r}; leave features= out."
        )


def settled_params(model: Model, params: Float32Array, drift: Drift) -> Float32Array:
    """Return parameters whose fine bins differ from their coarse one only as far as noise does not explain it.

    How far a fine weight lies from the mean of its coarse bin is multiplied by 1 - noise / square, at least 0: the
    square of that distance, averaged over classes, and what noise alone would make of it (`Drift`). Networks keep
    their weights, and so do pairs of columns: what they know is spread over many weak levels.
    """
    if isinstance(model, Decoupled):
        return np.concatenate([settled_params(model.base, own, drift) for own in params.reshape(model.n_groups, -1)])
    if not (isinstance(model, Rescaled) and isinstance(model.base, LinearSoftmax) and len(model.rescaling.children)):
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


def rescaling(levels: Levels, counts: Float64Array, power: float) -> Rescaling:
    """Return the scales that follow from the noisy counts of all levels.

    Levels of columns that every row has one of are scaled by their frequency, fine bins and pairs besides by their
    weight; then all of them by one number, so that the mean squared norm is that of rows without fine bins and pairs.
    """
    counts = np.maximum(counts, 0.0)
    whole, pairs = np.array(levels.whole, dtype=np.int64), np.arange(levels.first_pair, levels.n_features)
    children, parents = np.array(levels.children, dtype=np.int64), np.array(levels.parents, dtype=np.int64)
    n_people = max(counts[whole].sum(), 1.0)  # times the number of columns
    coarse = np.bincount(parents, counts[children], levels.n_parents) if len(parents) else np.zeros(0)
    scales, of_frequency = np.ones(levels.n_features), np.maximum(counts, SMALLEST_COUNT) ** -power
    parent_scales = np.maximum(coarse, SMALLEST_COUNT) ** -power
    scales[whole] = of_frequency[whole]
    scales[children] = 0.0
    per_column = (counts[whole] @ scales[whole] ** 2 + coarse @ parent_scales**2) / n_people
    scales[children] = FINE_WEIGHT * of_frequency[children]
    if len(pairs):
        of_pairs = counts[pairs] @ of_frequency[pairs] ** 2 / max(counts[pairs].sum(), 1.0)
        scales[pairs] = PAIR_WEIGHT * math.sqrt(per_column / max(of_pairs, 1e-12)) * of_frequency[pairs]
    found = Rescaling(scales, children, parents, parent_scales, counts)
    scaled = np.concatenate([whole, pairs])
    unit = math.sqrt(n_people / max(counts[scaled] @ found.squares[scaled], 1e-12))
    scales[scaled] *= unit
    return Rescaling(scales, children, parents, parent_scales * unit, counts)
