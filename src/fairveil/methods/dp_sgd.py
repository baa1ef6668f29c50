"""DP-SGD (Abadi et al. 2016), DPSGD-F and DPSGD-Global-Adapt: private descent, on which in-processing methods build."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil._validation import check_choice, check_number
from fairveil.data.coded import SCHEMA_ONLY, Detail
from fairveil.errors import InvalidParameterError
from fairveil.methods.base import BasePrivateClassifier, Method
from fairveil.methods.inputs import InputSpec
from fairveil.models import Average, Decoupled, LinearSoftmax, Model, OptimizerState, Perceptron, Sgd, TorchModel
from fairveil.models.rules import Argmax, DecisionRule, TiltedArgmax
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import Bin, Count, CrossEntropy, GradientNorm, one_cell
from fairveil.privacy.veil import Batch, Veil
from fairveil.training.features import Drift, FeatureDesign, plain_params, settled_params
from fairveil.training.recipe import Fit, Progress, Recipe, Task, no_progress

TYPICAL_RATE = 0.1
SMALLEST_RATE, LARGEST_RATE = 0.01, 0.5
SMALL_BATCH, LARGE_BATCH = 2_000, 10_000
CLIP_PER_NORM = 0.6
"""The clip norm over the typical norm of an encoded row with its intercept."""

MOMENTUM = 0.9
N_STEPS = 300
COUNT_NOISE = 4.0
"""Noise on the counts of clipped records over the noise on the gradient: they take 1/16 of a step's budget."""

CLIPPING = ("flat", "groups", "global_adapt")
FIRST_STRICT, STRICT_RATE, LARGEST_STRICT = 2.5, 0.1, 1e4
"""DPSGD-Global-Adapt: the strict clip norm over the clip norm at the start, where hardly any gradient is longer, and
how fast it falls: it settles where this share of the gradients is longer. The rate is that of the authors' settings for
tables."""

LONGEST_TRAVEL = 20_000.0
TRAVEL_PER_SIGNAL = 4.0
"""Travel is what the weights may move in all: clip norm x learning rate x steps / (1 - momentum). Noise moves them by
about travel x sqrt(n_params) / (epsilon x size), so the best travel is a constant over that ratio, up to a length at
which linear models have converged. Both constants were set on public data sets: docs/defaults.md."""


class DescentNumbers(NamedTuple):
    """The public numbers of a descent once nothing is left open."""

    n_steps: int
    sampling_rate: float
    clip_norm: float
    momentum: float


@dataclass(frozen=True)
class Descent:
    """Private gradient descent: clipped gradients of records, Gaussian noise, momentum, averaged iterates.

    The parameters are the average of the last half of the iterates.

    Parameters
    ----------
    model : {"auto", "linear", "mlp"} or TorchModel
        What is trained: a linear model whose features follow from public facts ("auto": number columns at two
        resolutions and pairs of columns, where people are enough for them), a linear model of the schema's own bins and
        categories, a network of dense layers, or any torch module (``TorchModel(MyNet, shape)``).
    hidden : tuple of int
        Widths of the hidden layers of an "mlp".
    n_steps : int, optional
        None is 300, under constraints 600.
    sampling_rate, learning_rate, clip_norm : float, optional
        None follows from public facts. At epsilon = infinity a clip norm left open means no clipping.
    momentum : float, optional
        None is 0.9, under constraints 0.8.
    clipping : {"flat", "groups", "global_adapt"}
        "flat" clips every gradient to the clip norm. With "groups" (DPSGD-F, Xu et al. 2021), groups whose gradients
        are clipped more often get a larger clip norm. With "global_adapt" (DPSGD-Global-Adapt, Esipova et al. 2023),
        gradients keep their ratios: all up to a strict clip norm, which follows noisy counts, are scaled alike.
    features : FeatureDesign
        How encoded rows become features: scaled by frequency, at one resolution or two.
    """

    model: str | TorchModel = "auto"
    hidden: tuple[int, ...] = (64, 64)
    n_steps: int | None = None
    sampling_rate: float | None = None
    learning_rate: float | None = None
    clip_norm: float | None = None
    momentum: float | None = None
    clipping: str = "flat"
    features: FeatureDesign = field(default_factory=FeatureDesign)

    def __post_init__(self) -> None:
        if not isinstance(self.model, TorchModel):
            check_choice("model", self.model, ("auto", "linear", "mlp"))
        check_choice("clipping", self.clipping, CLIPPING)
        if self.n_steps is not None:
            check_number("n_steps", self.n_steps, whole=True)
        if self.momentum is not None and not 0 <= self.momentum < 1:
            raise InvalidParameterError(f"Expected 0 <= momentum < 1, got {self.momentum!r}.")
        if self.sampling_rate is not None:
            check_number("sampling_rate", self.sampling_rate, at_most=1)
        if self.learning_rate is not None:
            check_number("learning_rate", self.learning_rate)
        if self.clip_norm is not None:
            check_number("clip_norm", self.clip_norm, at_most=math.inf)

    def model_for(self, task: Task) -> Model:
        """Return the model that is trained."""
        model: LinearSoftmax | Perceptron | TorchModel
        if isinstance(self.model, TorchModel):
            model = self.model.for_rows(task.n_features, task.is_scaled, task.n_outputs)
        elif self.model == "mlp":
            model = Perceptron(task.n_features, self.hidden, task.n_outputs)
        else:
            model = LinearSoftmax(task.n_features, task.n_outputs)
        return Decoupled(model, len(task.people.codes)) if task.predicts == "decoupled" else model

    def check(self, task: Task) -> None:
        """Refuse a model that cannot be built, and an infinite clip norm under privacy."""
        if self.clipping == "groups" and task.predicts == "joint":
            raise InvalidParameterError("Expected no clip norm per group for a joint model, got one; leave it out.")
        if task.is_private and math.isinf(self.numbers_for(task).clip_norm):
            raise InvalidParameterError("Expected a finite clip_norm, because epsilon is finite, got inf.")
        self.model_for(task)

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return the stage "train" at this noise."""
        numbers = self.numbers_for(task)
        releases = [Release("gradient", "gaussian", noise_multiplier)]
        if self.clipping != "flat":
            releases.append(Release("clipped", "gaussian", COUNT_NOISE * noise_multiplier))
        train = Stage("train", tuple(releases), share, {-1: numbers.sampling_rate}, numbers.n_steps)
        return (*self.features.stages(train.precision, share, task), train)

    def detail_for(self, task: Task) -> Detail:
        """Return how finely rows should be encoded, by public facts."""
        if isinstance(self.model, TorchModel):
            return SCHEMA_ONLY
        return self.features.detail_for(task, is_open=self.model == "auto")

    def numbers_for(self, task: Task) -> DescentNumbers:
        """Return the numbers that training uses; those left open follow from public facts.

        An open sampling rate is a tenth, less where the declared size makes that slow, more where people are few.
        Without privacy an open clip norm means no clipping.
        """
        rate, clip_norm = self.sampling_rate, self.clip_norm
        if rate is None:
            rate = TYPICAL_RATE
            if task.n_public is not None:
                least, most = SMALL_BATCH / task.n_public, LARGE_BATCH / task.n_public
                rate = min(max(TYPICAL_RATE, min(least, LARGEST_RATE)), max(SMALLEST_RATE, most))
        if clip_norm is None:
            norm = task.input_norm if task.typical_norm is None else min(task.typical_norm, task.input_norm)
            clip_norm = CLIP_PER_NORM * norm if task.is_private else math.inf
        return DescentNumbers(
            N_STEPS if self.n_steps is None else self.n_steps,
            rate,
            clip_norm,
            MOMENTUM if self.momentum is None else self.momentum,
        )

    def learning_rate_for(
        self,
        task: Task,
        size: float,
        numbers: DescentNumbers,
        travel_per_signal: float = TRAVEL_PER_SIGNAL,
        largest_over_stable: float = math.inf,
    ) -> float:
        """Return the learning rate for about `size` units.

        An open one follows from the travel, but is at most `largest_over_stable` times the rate below which descent on
        a linear model is stable; without clipping it is three quarters of that, 4 (1 + momentum) / norm^2.
        """
        if self.learning_rate is not None:
            return self.learning_rate
        stable = 3 * (1 + numbers.momentum) / task.input_norm**2
        if math.isinf(numbers.clip_norm):
            return stable
        signal = task.epsilon * size / math.sqrt(self.model_for(task.coarse).n_params)
        travel = min(LONGEST_TRAVEL, travel_per_signal * signal)  # the longest at epsilon = infinity
        rate = travel * (1 - numbers.momentum) / (numbers.n_steps * numbers.clip_norm)
        return min(rate, largest_over_stable * stable)

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress = no_progress,
    ) -> Fit:
        """Return the averaged parameters after all planned steps.

        Notes
        -----
        Everything here is computed from noisy sums: the guarantee is that of the veil's plan.
        """
        model, numbers = self.features.trained_model(self.model_for(task), task, veils), self.numbers_for(task)
        n_steps, clip_norm = numbers.n_steps, numbers.clip_norm
        expected_batch = numbers.sampling_rate * size
        rate = self.learning_rate_for(task, size, numbers)
        optimizer = Sgd(rate, numbers.momentum)
        loss = CrossEntropy()
        rule: DecisionRule = Argmax()
        if task.predicts == "joint":
            # a joint model's outputs are added up over groups to decide for the most likely label
            loss = CrossEntropy(outputs=task.joint_outputs)
            rule = TiltedArgmax(np.tile(np.eye(task.n_classes), len(task.people.codes))[None])
        by_group = np.repeat(np.arange(task.people.n_groups)[:, None], task.n_classes, axis=1)
        params, strict = model.initial(rng), FIRST_STRICT
        state, average = OptimizerState(), Average()
        for step in progress(range(n_steps)):
            batch = veils["train"].draw()
            if self.clipping == "flat":
                gradient = batch.release_gradient(model, params, loss, clip_norm)
            elif self.clipping == "groups":
                counts = count_clipped(batch, model, params, loss, clip_norm, by_group)
                gradient = batch.release_gradient(model, params, loss, adapted_clip_norms(counts, clip_norm))
            else:
                longest = strict * clip_norm
                counts = count_clipped(batch, model, params, loss, longest, one_cell(task.n_classes))
                gradient = batch.release_gradient(model, params, loss, longest)
                if math.isfinite(clip_norm):  # else nothing is clipped or scaled
                    gradient, strict = gradient / strict, adapted_strict(counts, strict, expected_batch)
            params, state = optimizer.step(params, gradient / expected_batch, state)
            if step >= n_steps // 2:
                average = average.add(params)
        noise = gradient_noise(veils["train"].stage, clip_norm) / expected_batch
        drift = Drift.of(n_steps, numbers.momentum, rate, noise, size)
        return Fit(plain_params(model, settled_params(model, average.value(), drift)), rule=rule)


def gradient_noise(stage: Stage, clip_norm: float) -> float:
    """Return the standard deviation of the noise on each entry of a sum of gradients."""
    noise_multiplier = stage.noise_multipliers["gradient"]
    return noise_multiplier * clip_norm if noise_multiplier else 0.0


def count_clipped(
    batch: Batch, model: Model, params: Float32Array, loss: CrossEntropy, clip_norm: float, cells: NDArray[np.int64]
) -> Float64Array:
    """Release how many gradients of each cell are at most as long as the clip norm, and how many are longer."""
    is_clipped = Bin(GradientNorm(model, params, loss), np.array([clip_norm], dtype=np.float32))
    return batch.release_counts(Count(cells, int(cells.max()) + 1, is_clipped), "clipped").reshape(-1, 2)


def adapted_strict(counts: Float64Array, strict: float, expected_batch: float) -> float:
    """Return the next strict clip norm, over the clip norm: strict x exp(share of longer gradients - rate).

    The share is that of the noisy counts in their sum, which is taken to be the expected batch at least. The result is
    kept between the clip norm itself and a number that no gradient of scaled features needs.
    """
    share = float(counts[:, 1].sum()) / max(float(counts.sum()), expected_batch)
    return min(max(1.0, strict * math.exp(min(max(share, 0.0), 1.0) - STRICT_RATE)), LARGEST_STRICT)


def adapted_clip_norms(counts: np.ndarray, base: float) -> Float32Array:
    """Return one clip norm per group from noisy counts (group x [within, beyond]): base (1 + share / mean share).

    A group that is clipped as often as all together gets twice the base; the factor is kept between 1 and 3, so that
    a small group's noisy share cannot inflate everybody's noise.
    """
    counts = np.maximum(counts, 0.0)
    sizes = np.maximum(counts.sum(axis=1), 1.0)
    overall = max(counts[:, 1].sum() / sizes.sum(), 1e-3)
    factor = 1 + (counts[:, 1] / sizes) / overall
    return (base * np.clip(factor, 1.0, 3.0)).astype(np.float32)


class PrivateClassifier(BasePrivateClassifier):
    """A differentially private classifier: DP-SGD (Abadi et al. 2016), DPSGD-F, or output perturbation.

    Parameters
    ----------
    {epsilon, delta}
    training : Descent or OutputPerturbation, optional
        How to train; None is ``Descent()``, whose open numbers follow from public facts.
    {schema}
    {sensitive}
    {holdout}
    {ledger}
    {random_state}
    {auc}

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn; with a schema, features are its columns and classes have the type that their names spell.
    plan_ : Plan
        Every public number from which the guarantee follows.
    epsilon_spent_ : float
        What this fit cost at `delta`; the total of everything is ``ledger_.epsilon(delta)``.
    evaluation_ : Evaluation or None
        Noisy accuracy and gaps on the hold-out, with intervals.
    timing_ : dict
        Seconds for the plan, for reading and for training; empty after a private choice, which times would undo.

    Notes
    -----
    Fitted attributes and predictions together are (epsilon, delta)-differentially private:
    {guarantee}

    Examples
    --------
    >>> from fairveil import PrivateClassifier, load_dataset
    >>> people = load_dataset("adult")
    >>> clf = PrivateClassifier(epsilon=1.0, schema=people.schema).fit(people.X, people.y)
    >>> clf.epsilon_spent_ <= 1.0
    True
    """

    def _recipe(self, inputs: InputSpec) -> Recipe:
        return Descent() if self.training is None else self.training


def _with_group_clipping(training: Descent, request: Any) -> Descent:
    return replace(training, clipping="groups")


def _with_global_clipping(training: Descent, request: Any) -> Descent:
    return replace(training, clipping="global_adapt")


DP_SGD = Method(
    name="dpsgd",
    title="private gradient descent",
    paper="Abadi et al. 2016",
    help="private only, the gap is measured",
    estimator=PrivateClassifier,
    recipe=Descent,
    bounds_gap=False,
    color=6,
)
DPSGD_F = replace(
    DP_SGD,
    name="dpsgdf",
    title="private gradient descent with a clip norm per group",
    paper="Xu et al. 2021",
    help="private only, with a clip norm per group; the gap is measured",
    prepare=_with_group_clipping,
    color=7,
)
DPSGD_GLOBAL_ADAPT = replace(
    DP_SGD,
    name="dpsgdg",
    title="private gradient descent that keeps the ratios of gradients",
    paper="Esipova et al. 2023",
    help="private only, gradients scaled alike up to an adapted norm; the gap is measured",
    prepare=_with_global_clipping,
    color=9,
)
