"""FairDP (Tran et al. 2023): every group's clipped gradients in one noisy average, and a last layer of bounded norm.

One record is in one group's sum only. Where just the average leaves the veil, its noise stands against
one record's share of it: with one divisor for all this is DP-SGD at sqrt(K) times the noise of one group's sum, with a
divisor for each group (every group counts the same) the smallest group's members are seen best and set the price.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array
from fairveil._validation import check_choice, check_number
from fairveil.errors import InvalidParameterError
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.fairdp.early_stopping import EarlyStopping, EarlyStoppingState
from fairveil.methods.fairdp.noise_certificate import (
    HALF,
    GroupwiseFit,
    LastStep,
    SmoothSums,
    parted,
    read_smooth_sums,
    smooth_stage,
    widened,
)
from fairveil.models import Adam, Average, Model, Optimizer, OptimizerState, Sgd, TorchModel
from fairveil.models.last_layer import LayeredModel, bounded_last_layer, check_layered
from fairveil.models.optimizers import GUESSABLE_STEPS
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import Count, CrossEntropy, all_cells
from fairveil.privacy.veil import ROUNDING, Batch, Veil
from fairveil.training.features import check_plain_features
from fairveil.training.recipe import Fit, Progress, Task, no_progress

N_STEPS = 600
"""By default: with 300 the accuracy at an equal gap is .001 lower."""

ADAM_RATE = 0.02
"""Of the first steps, as in the paper."""

NORM_BOUNDS = {"mlp": 1.5, "linear": 10.0}
"""Of the last layer, by default; set on training rows of Adult (docs/defaults.md)."""

SIZE_SHARE = 0.02
"""The share of the precision that buys the sizes of groups, where they are needed and not declared."""

SMALLEST_GROUP = 0.02
"""A group counts as at least this share of all: a handful of people would drown everyone's gradient in noise."""


@dataclass(frozen=True)
class FinalSteps:
    """The last training steps, by plain gradient descent; `noise_certificate` is about the noise of the very last one.

    Parameters
    ----------
    share : float
        How many of all steps; at least one is made.
    learning_rate : float
        On the average gradient (the paper's 0.005 is on the sum over a batch).
    sampling_rate : float, optional
        Of these steps; None is that of the first ones.
    n_models : int
        With more than one, the last step makes so many models, each from its own random subset of the records
        (Algorithm 3); the classifier is their average.
    """

    share: float = 0.1
    learning_rate: float = 1.0
    sampling_rate: float | None = None
    n_models: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InvalidParameterError(f"Expected 0 < share < 1, got {self.share!r}.")
        check_number("learning_rate", self.learning_rate)
        check_number("n_models", self.n_models, whole=True)
        if self.sampling_rate is not None and not 0 < self.sampling_rate <= 1:
            raise InvalidParameterError(f"Expected 0 < sampling_rate <= 1, got {self.sampling_rate!r}.")


@dataclass(frozen=True, eq=False)
class GroupScale:
    """How much a record of each group counts in the average, and what the weighted sum over all people is divided by.

    `weights` has one entry for each group code, at most 1, 0 for people of no known group.
    """

    weights: Float32Array
    total: float

    @cached_property
    def n_known(self) -> int:
        """How many codes there are up to the last known group; beyond it are people of none."""
        return int(np.flatnonzero(self.weights)[-1]) + 1

    @classmethod
    def common(cls, task: Task, size: float) -> "GroupScale":
        """Return equal weights: the average over people, where group k counts as its share of them."""
        weights = np.zeros(task.people.n_groups, dtype=np.float32)
        weights[task.people.codes] = 1.0
        return cls(weights, size)

    @classmethod
    def by_group(cls, task: Task, sizes: NDArray[np.float64]) -> "GroupScale":
        """Return weights by which every group counts the same; `sizes` are public or noisy, one a known group."""
        held = np.maximum(sizes, max(1.0, SMALLEST_GROUP * float(np.sum(np.maximum(sizes, 0.0)))))
        weights = np.zeros(task.people.n_groups, dtype=np.float32)
        weights[task.people.codes] = held.min() / held
        return cls(weights, len(held) * float(held.min()))


@dataclass(frozen=True)
class Groupwise:
    """FairDP's training: noisy averages of group-wise gradients, Adam and then plain descent, a bounded last layer.

    Parameters
    ----------
    descent : Descent
        Its model (an "mlp" of one hidden layer of 32 by default), hidden, n_steps (600 if open), sampling_rate and
        clip_norm are used; its learning_rate is Adam's (0.02 if open). Its momentum is not used, and its clipping is
        refused.
    norm_bound : float, optional
        The largest Euclidean norm M of the last layer, biases included: small values select few people, infinity is no
        bound. None is 1.5 for an "mlp" or a TorchModel and 10 for a linear model, whose only layer it is.
    divisors : {"group", "common"}
        Whether every group counts the same, or every person.
    group_sizes : tuple of float, optional
        Public sizes of the groups; None buys noisy ones where they are needed.
    released : {"average", "groups"}
        Whether only the average leaves the veil, or every group's sum does (at one group's price, with more noise in
        the average).
    finish : FinalSteps
        The last steps.
    stopping : EarlyStopping, optional
        Stop as soon as a noisy check shows that a bound is broken (Remark 2); all checks are planned beforehand.
    thresholds : tuple of float
        Probabilities beside 1/2 above which class 1 may be decided: `noise_certificate` has estimates at these, each
        from one more release on the hold-out.
    """

    descent: Descent = field(default_factory=lambda: Descent(model="mlp", hidden=(32,)))
    norm_bound: float | None = None
    divisors: str = "group"
    group_sizes: tuple[float, ...] | None = None
    released: str = "average"
    finish: FinalSteps = field(default_factory=FinalSteps)
    stopping: EarlyStopping | None = None
    thresholds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.norm_bound is not None:
            check_number("norm_bound", self.norm_bound, at_most=math.inf)
        check_choice("divisors", self.divisors, ("group", "common"))
        check_choice("released", self.released, ("average", "groups"))
        if self.group_sizes is not None:
            object.__setattr__(self, "group_sizes", _numbers("group_sizes", self.group_sizes))
        object.__setattr__(self, "thresholds", _numbers("thresholds", self.thresholds))
        others = {HALF, *self.thresholds}
        if len(others) <= len(self.thresholds) or not all(0 < one < 1 for one in others):
            raise InvalidParameterError(
                f"Expected different thresholds between 0 and 1 beside 0.5, got {self.thresholds!r}."
            )
        if self.descent.clipping != "flat":
            raise InvalidParameterError("Expected a descent of flat clipping, got another one; leave it out.")
        check_plain_features(self.descent.features)

    @property
    def length(self) -> int:
        """The number of steps that are made."""
        return N_STEPS if self.descent.n_steps is None else self.descent.n_steps

    @property
    def largest_norm(self) -> float:
        """The bound M that is kept."""
        if self.norm_bound is not None:
            return self.norm_bound
        return NORM_BOUNDS["linear" if self.descent.model in {"auto", "linear"} else "mlp"]

    def model_for(self, task: Task) -> LayeredModel:
        """Return the model that is trained."""
        return check_layered(self.descent.model_for(task))

    def check(self, task: Task) -> None:
        """Refuse people without groups, sizes that do not fit them, and what the descent cannot do."""
        n_groups = len(task.people.codes)
        if not n_groups:
            raise InvalidParameterError(
                "Expected a sensitive column whose groups are trained side by side, got none; name one."
            )
        if self.group_sizes is not None and (
            len(self.group_sizes) != n_groups or not all(0 < size < math.inf for size in self.group_sizes)
        ):
            raise InvalidParameterError(
                f"Expected a public size above 0 for each of {n_groups} groups, got {self.group_sizes}."
            )
        if self.finish.n_models > 1 and (self.released == "groups" or task.n_classes != 2):
            raise InvalidParameterError(
                "Expected several models only for two classes and with released='average', got something else."
            )
        if self.finish.n_models > 1 and isinstance(self.descent.model, TorchModel):
            raise InvalidParameterError(
                "Expected one model of a torch module, got several; leave n_models out of the last steps."
            )
        if self.stopping is not None:
            self.stopping.check(task)
            if self.finish.n_models > 1:
                raise InvalidParameterError("Expected a stopping rule or several models, got both; choose one.")
        if self.length < 2:
            raise InvalidParameterError(f"Expected at least 2 steps, one by Adam and a last one, got {self.length}.")
        self.descent.check(task)
        self.model_for(task)

    # --- the plan -----------------------------------------------------------------------------------------

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return the steps by Adam, the last ones, and what they need to know: sizes of groups, checks on the way."""
        name = "gradient" if self.released == "average" else "gradients"
        releases = (Release(name, "gaussian", noise_multiplier),)
        first = Stage("train", releases, share, {-1: self.descent.numbers_for(task).sampling_rate}, self.n_first)
        rates = {-1: self.finish_rate(task)}
        finish = Stage("finish", releases, share, rates, self.length - self.n_first, subset="train")
        precision = first.precision + finish.precision
        stages: tuple[Stage, ...] = (first, finish)
        if self._buys_sizes:
            noise = 1 / math.sqrt(SIZE_SHARE * precision) if noise_multiplier else 0.0
            sizes = Release("group sizes", "discrete_gaussian", noise)
            stages = (Stage("groups", (sizes,), share, subset="train"), *stages)
        if self.stopping is not None:
            stages = (*stages, self.stopping.stage(precision if noise_multiplier else math.inf, share))
        return stages

    @property
    def n_first(self) -> int:
        """The number of steps by Adam."""
        return max(1, self.length - max(1, round(self.finish.share * self.length)))

    def finish_rate(self, task: Task) -> float:
        """Return the sampling rate of the last steps."""
        own = self.finish.sampling_rate
        return self.descent.numbers_for(task).sampling_rate if own is None else own

    @property
    def _buys_sizes(self) -> bool:
        return self.stopping is not None or (self.divisors == "group" and self.group_sizes is None)

    # --- the algorithm ------------------------------------------------------------------------------------

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress = no_progress,
    ) -> Fit:
        """Return the parameters after the last step (Algorithm 1), or those of the last check that was passed.

        Notes
        -----
        Everything here is computed from noisy sums: the guarantee is that of the veils' plan.
        """
        model, cells = self.model_for(task), self._cell_sizes(veils, task)
        scale = self._scale(task, size, cells, veils["train"].stage.share)
        std = math.sqrt(2) * self.finish.learning_rate * self.last_step_noise(veils, task, scale)
        watch = EarlyStoppingState.start(self.stopping, model, task, cells, std, self.length)
        divisors = {name: self._divisor(name, scale, task) for name in ("train", "finish")}
        params = model.initial(rng)
        phase, optimizer = "train", self._optimizer("train")
        state, average = OptimizerState(), Average()
        for step in progress(range(self.length)):
            name = "train" if step < self.n_first else "finish"
            if name != phase:
                phase, optimizer, params = name, self._optimizer(name), average.value()
                state = OptimizerState()
            before, batch = params, veils[name].draw()
            if self.finish.n_models > 1 and step == self.length - 1:
                return self._fit_of_several(batch, model, before, scale, veils, task, size)
            gradient = self._average(batch, model, params, scale, task, is_row_stable=step < GUESSABLE_STEPS)
            params, state = optimizer.step(params, gradient / divisors[name], state)
            params = bounded_last_layer(model, params, self.largest_norm)
            if step >= self.n_first // 2:
                average = average.add(params)
            watch = watch.after(step, params, veils)
            if watch.is_over:
                break
        last = replace(self._last_step(before, veils, task, scale, size), checks=watch.checks)
        return GroupwiseFit(watch.chosen(params), sizes=cells, last_step=last)

    def _optimizer(self, phase: str) -> Optimizer:
        if phase == "finish":
            return Sgd(self.finish.learning_rate)
        rate = self.descent.learning_rate
        return Adam(ADAM_RATE if rate is None else rate)

    def _cell_sizes(self, veils: Mapping[str, Veil], task: Task) -> NDArray[np.float64] | None:
        """Return noisy numbers of people by (group code, label), where they are bought."""
        if not self._buys_sizes:
            return None
        shape = (task.people.n_groups, task.n_classes)
        everyone = Count(all_cells(*shape), shape[0] * shape[1])
        return veils["groups"].draw().release_counts(everyone, "group sizes").reshape(shape)

    def _scale(self, task: Task, size: float, cells: NDArray[np.float64] | None, share: float) -> GroupScale:
        """Return how groups count; public sizes are of everyone, of whom a share is trained on."""
        if self.divisors == "common":
            return GroupScale.common(task, size)
        if self.group_sizes is not None:
            return GroupScale.by_group(task, share * np.array(self.group_sizes))
        return GroupScale.by_group(task, np.asarray(cells).sum(axis=1)[task.people.codes])

    def _average(
        self,
        batch: Batch,
        model: Model,
        params: Float32Array,
        scale: GroupScale,
        task: Task,
        *,
        is_row_stable: bool = False,
    ) -> NDArray[np.float64]:
        """Return the noisy weighted sum of clipped gradients over all groups (Algorithm 1, lines 6 to 14)."""
        clip_norm = self.descent.numbers_for(task).clip_norm
        if self.released == "average":
            bound = clip_norm if math.isinf(clip_norm) else clip_norm * scale.weights
            objective = CrossEntropy(scale.weights)
            return batch.release_gradient(model, params, objective, bound, is_row_stable=is_row_stable)
        n_groups = scale.n_known
        sums = batch.release_group_gradients(
            model, params, CrossEntropy(), clip_norm, n_groups, is_row_stable=is_row_stable
        )
        return scale.weights[:n_groups] @ sums

    def _divisor(self, phase: str, scale: GroupScale, task: Task) -> float:
        rate = self.finish_rate(task) if phase == "finish" else self.descent.numbers_for(task).sampling_rate
        return rate * scale.total

    def _fit_of_several(
        self,
        batch: Batch,
        model: LayeredModel,
        before: Float32Array,
        scale: GroupScale,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
    ) -> Fit:
        """Return the average of several models, each moved by its own subset of the last batch (Algorithm 3)."""
        n_models, clip_norm = self.finish.n_models, self.descent.numbers_for(task).clip_norm
        wide = replace(model, n_classes=n_models * model.n_classes)
        bound = clip_norm if math.isinf(clip_norm) else clip_norm * scale.weights
        objective = CrossEntropy(scale.weights, n_models)
        gradient = batch.release_gradient(wide, widened(model, before, n_models), objective, bound)
        step = self.finish.learning_rate / self._divisor("finish", scale, task)
        several = tuple(
            bounded_last_layer(model, (before - step * stage).astype(np.float32), self.largest_norm)
            for stage in parted(model, gradient, n_models)
        )
        params = bounded_last_layer(model, np.mean(several, axis=0, dtype=np.float32), self.largest_norm)
        last = replace(self._last_step(before, veils, task, scale, size), several=several)
        return GroupwiseFit(params, last_step=last)

    def _last_step(
        self, before: Float32Array, veils: Mapping[str, Veil], task: Task, scale: GroupScale, size: float
    ) -> LastStep:
        reach = self.descent.numbers_for(task).clip_norm / self._divisor("finish", scale, task)
        noise = self.last_step_noise(veils, task, scale)
        return LastStep(before, self.finish.learning_rate, noise, reach, self.finish_rate(task), size)

    def last_step_noise(self, veils: Mapping[str, Veil], task: Task, scale: GroupScale) -> float:
        """Return the deviation of the noise on each coordinate of the average gradient of the last step."""
        (release,) = veils["finish"].stage.releases
        if not release.noise_multiplier:
            return 0.0
        spread = 1.0 if self.released == "average" else float(np.linalg.norm(scale.weights))
        bound = self.descent.numbers_for(task).clip_norm * ROUNDING * spread
        return release.noise_multiplier * bound / self._divisor("finish", scale, task)

    # --- people held out ----------------------------------------------------------------------------------

    def holdout_stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return one stage of smooth decisions of the people held out, where there are two classes."""
        if task.n_classes != 2:
            return ()
        has_several = self.finish.n_models > 1
        return (smooth_stage(noise_multiplier, share, has_several=has_several, thresholds=self.thresholds),)

    def read_holdout(self, veils: Mapping[str, Veil], task: Task, fit: Fit) -> SmoothSums | None:
        """Return noisy sums of smooth decisions at the released parameters, by (group code, label)."""
        if task.n_classes != 2 or not isinstance(fit, GroupwiseFit):
            return None
        return read_smooth_sums(veils["smooth rates"], self.model_for(task), task.people.n_groups, fit, self.thresholds)


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    try:
        return tuple(float(value) for value in values)
    except (TypeError, ValueError):
        order = " in the order of the schema's groups" if name == "group_sizes" else ""
        raise InvalidParameterError(f"Expected {name} as numbers{order}, got {values!r}.") from None
