"""The mitigation of Tran, Dinh and Fioretto (2021): DP-SGD with penalties on what clipping and noise cost each group.

The paper adds to the loss, for each group a, with g the mean gradient, g_a the group's and c the mean clipped one,

    gamma_1 |<g_a - g, g - c>| + gamma_2 |E_a[1 - sum_k p_k^2] - E[1 - sum_k p_k^2]|.

The first term is what clipping costs the group, the second stands for the trace of its Hessian, by which noise costs.
Group means of a batch read its records, so a guarantee has to price them. Here everything is released: the gradients g
and c, and for each group its size and the sums of <gradient, direction> and of 1 - sum p^2. They are one joint event
with the gradient that the step follows. The direction g - c is taken as constant within a step. The penalties are built
as we know them: the paper's full text was not at hand.

For a linear model each penalty is a sum over records of functions of their logits: with u the logits that the direction
would give as parameters, a record's <gradient, direction> is (p - y) . u, and its derivative by the logits is
p (u - p . u). So a record has one gradient, of loss and penalties together, and it is clipped as one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fairveil._typing import Float32Array, Float64Array
from fairveil.data.coded import Detail
from fairveil.errors import InvalidParameterError
from fairveil.methods.dp_sgd import Descent, gradient_noise
from fairveil.models import Average, LinearSoftmax, OptimizerState, Sgd
from fairveil.models.base import Model
from fairveil.privacy.penalties import STATISTICS_BOUND, GroupStatistics, MitigatedLoss
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import CrossEntropy, Sum
from fairveil.privacy.veil import Batch, Veil
from fairveil.training.features import Drift, plain_params, settled_params
from fairveil.training.recipe import Fit, Progress, Task, no_progress

STATISTICS_NOISE, MEANS_NOISE = 4.0, 2.0
"""Noise on the groups' statistics, and on each of the two mean gradients, over the noise on the gradient of a step."""

KEPT = 0.9
"""How much of the past the released statistics keep: noise hides those of a single step."""


def penalty_weights(sums: Float64Array, sizes: Float64Array, gamma: float) -> Float64Array:
    """Return what one record of each group weighs in gamma sum_a |mean_a - mean|, times the number of all records.

    `sums` and `sizes`, shape (groups,), are noisy; a group that noise leaves without people weighs nothing.

    Examples
    --------
    >>> penalty_weights(np.array([8.0, 1.0]), np.array([80.0, 20.0]), 1.0).round(2).tolist()
    [1.25, -5.0]
    """
    is_known = sizes >= 1.0
    total = float(sizes[is_known].sum())
    if not total:
        return np.zeros(len(sizes))
    safe = np.where(is_known, sizes, 1.0)
    signs = np.where(is_known, np.sign(sums / safe - sums[is_known].sum() / total), 0.0)
    return gamma * np.where(is_known, signs * total / safe - signs.sum(), 0.0)


@dataclass(frozen=True)
class Mitigation:
    """How DP-ERM mitigation trains; pass it as ``PrivateClassifier(training=Mitigation(...))``.

    Parameters
    ----------
    gamma_1, gamma_2 : float
        The weights of the two penalties; without the first, no mean gradients are released.
    descent : Descent
        Its numbers; its model is linear and its clipping flat.
    """

    gamma_1: float = 1.0
    gamma_2: float = 1.0
    descent: Descent = field(default_factory=lambda: Descent(model="linear"))

    def __post_init__(self) -> None:
        for name in ("gamma_1", "gamma_2"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidParameterError(f"Expected {name} >= 0 and finite, got {getattr(self, name)!r}.")
        if self.descent.clipping != "flat":
            raise InvalidParameterError("Expected a descent of flat clipping, got another one; leave it out.")

    def model_for(self, task: Task) -> Model:
        """Return the linear model that is trained."""
        return self.descent.model_for(task)

    def detail_for(self, task: Task) -> Detail:
        """Return what the descent needs."""
        return self.descent.detail_for(task)

    def check(self, task: Task) -> None:
        """Refuse models that are not linear, and people without groups."""
        self.descent.check(task)
        if not isinstance(self.model_for(task), LinearSoftmax) or task.predicts != "label":
            raise InvalidParameterError("Expected a linear model of the label for these penalties, got another one.")
        if not len(task.people.codes):
            raise InvalidParameterError("Expected groups to compare, got none; name a sensitive column.")

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return the count of levels, if needed, and the steps with all that each releases."""
        numbers = self.descent.numbers_for(task)
        noises = {"gradient": 1.0, "statistics": STATISTICS_NOISE}
        if self.gamma_1:
            noises |= {"mean": MEANS_NOISE, "clipped mean": MEANS_NOISE}
        releases = tuple(Release(name, "gaussian", noise * noise_multiplier) for name, noise in noises.items())
        train = Stage("train", releases, share, {-1: numbers.sampling_rate}, numbers.n_steps)
        return (*self.descent.features.stages(train.precision, share, task), train)

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress = no_progress,
    ) -> Fit:
        """Return the averaged parameters after all planned steps.

        Guarantees
        ----------
        Directions and weights of the penalties are computed from released sums, so they are public when a record's
        gradient is clipped: the guarantee is that of the veils' plan.
        """
        numbers, features = self.descent.numbers_for(task), self.descent.features
        model = features.trained_model(self.model_for(task), task, veils)
        penalties = _Penalties(self, model, task, numbers.clip_norm, numbers.sampling_rate * size)
        rate = self.descent.learning_rate_for(task, size, numbers)
        optimizer, params = Sgd(rate, numbers.momentum), model.initial(rng)
        state, average = OptimizerState(), Average()
        seen = _Seen(np.zeros(len(params), np.float32), np.zeros((task.people.n_groups, 3)))
        for step in progress(range(numbers.n_steps)):
            batch = veils["train"].draw()
            seen = penalties.released(batch, params, seen)
            objective = penalties.objective(seen)
            gradient = batch.release_gradient(model, params, objective, numbers.clip_norm)  # type: ignore[arg-type]
            params, state = optimizer.step(params, gradient / penalties.expected_batch, state)
            if step >= numbers.n_steps // 2:
                average = average.add(params)
        noise = gradient_noise(veils["train"].stage, numbers.clip_norm) / penalties.expected_batch
        drift = Drift.of(numbers.n_steps, numbers.momentum, rate, noise, size)
        return Fit(plain_params(model, settled_params(model, average.value(), drift)))


@dataclass(frozen=True, eq=False)
class _Seen:
    """What releases say so far: the direction g - c and the groups' sums, both with a fading memory."""

    direction: Float32Array
    statistics: Float64Array


@dataclass(frozen=True, eq=False)
class _Penalties:
    """The public side of the penalties of one training."""

    recipe: Mitigation
    model: Model
    task: Task
    clip_norm: float
    expected_batch: float

    @property
    def longest(self) -> float:
        """What stands for no clipping: sqrt 2 times the longest row of the schema, which rescaled rows may exceed."""
        return math.sqrt(2) * self.task.input_norm if math.isfinite(self.clip_norm) else math.inf

    @property
    def scale(self) -> float:
        """What a gradient's product with a direction of length 1 is divided by."""
        return min(self.clip_norm, self.task.input_norm)

    def released(self, batch: Batch, params: Float32Array, seen: _Seen) -> _Seen:
        """Release the groups' statistics along the direction so far, and the two mean gradients."""
        direction = seen.direction
        if self.recipe.gamma_1:
            means = [
                batch.release_gradient(self.model, params, CrossEntropy(), bound, name)
                for name, bound in (("mean", self.longest), ("clipped mean", self.clip_norm))
            ]
            newest = (means[0] - means[1]) / self.expected_batch
            direction = (KEPT * direction + (1 - KEPT) * newest).astype(np.float32)
        groups = np.repeat(np.arange(self.task.people.n_groups)[:, None], self.task.n_classes, axis=1)
        values = GroupStatistics(self.model, params, _unit(direction), self.scale)
        sums = batch.release_sums(Sum(groups, len(groups), values), STATISTICS_BOUND, "statistics")
        return _Seen(direction, KEPT * seen.statistics + (1 - KEPT) * sums)

    def objective(self, seen: _Seen) -> MitigatedLoss:
        """Return the loss with the penalties' weights for the records of each group."""
        known = self.task.people.codes
        slopes, doubts, sizes = seen.statistics[known].T
        weights = np.zeros((2, self.task.people.n_groups + 1), np.float32)  # the last one for no group
        weights[0, known] = penalty_weights(slopes, sizes, self.recipe.gamma_1)
        weights[1, known] = penalty_weights(doubts, sizes, self.recipe.gamma_2)
        return MitigatedLoss(self.model, seen.direction, weights[0], weights[1])


def _unit(direction: Float32Array) -> Float32Array:
    length = float(np.linalg.norm(direction))
    return (direction / length).astype(np.float32) if length > 0 else direction
