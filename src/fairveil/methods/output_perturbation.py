"""Output perturbation (Chaudhuri, Monteleoni and Sarwate 2011): train without noise, release once with noise."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fairveil._validation import check_number
from fairveil.errors import InvalidParameterError
from fairveil.methods.base import Method
from fairveil.methods.dp_sgd import PrivateClassifier
from fairveil.models import LinearSoftmax
from fairveil.privacy.output_perturbation import RidgeSoftmax
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.veil import Veil
from fairveil.training.recipe import Fit, Progress, Task, no_progress

SMALLEST_RIDGE = 0.002
RIDGE_PER_NOISE = 3.0
"""Set on public data sets: docs/defaults.md."""


@dataclass(frozen=True)
class OutputPerturbation:
    """A regularized linear softmax model, fitted exactly, with Gaussian noise added to its weights once.

    Parameters
    ----------
    regularization : float, optional
        The lambda beside the *mean* loss (scikit-learn's C is 1 / (n lambda)). None follows from public facts.
    """

    regularization: float | None = None

    def __post_init__(self) -> None:
        if self.regularization is not None:
            check_number("regularization", self.regularization)

    def model_for(self, task: Task) -> LinearSoftmax:
        """Return the model that is trained."""
        return LinearSoftmax(task.n_features, task.n_classes)

    def check(self, task: Task) -> None:
        """Refuse joint and decoupled models: the ridge is one model of the label."""
        if task.predicts != "label":
            raise InvalidParameterError(
                f"Expected one model of the label for output perturbation, got a {task.predicts} one; use Descent()."
            )

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return the stage "train" at this noise: one release of everyone."""
        return (Stage("train", (Release("minimiser", "gaussian", noise_multiplier),), share),)

    def ridge_for(self, task: Task, size: float) -> RidgeSoftmax:
        """Return the problem that is solved; an open lambda balances noise on the weights against shrinking them."""
        regularization = self.regularization
        if regularization is None:
            noise = math.sqrt(task.n_features) * task.input_norm / (size * task.epsilon)
            regularization = max(SMALLEST_RIDGE, RIDGE_PER_NOISE * noise)
        return RidgeSoftmax(task.n_features, task.n_classes, task.input_norm, regularization, size)

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress = no_progress,
    ) -> Fit:
        """Return the noisy minimizer as parameters of the linear model; class 0 is the reference, at zero."""
        ridge = self.ridge_for(task, size)
        released = veils["train"].draw().release_minimizer(ridge)
        free = released.reshape(task.n_features + 1, task.n_classes - 1)
        columns = np.column_stack([np.zeros(task.n_features + 1), free])
        return Fit(self.model_for(task).pack(columns[:-1].T, columns[-1]))


OUTPUT_PERTURBATION = Method(
    name="output",
    title="output perturbation",
    paper="Chaudhuri, Monteleoni and Sarwate 2011",
    help="private only, one noisy minimizer; the gap is measured",
    estimator=PrivateClassifier,
    recipe=OutputPerturbation,
    bounds_gap=False,
    default_model="linear",
    models=("linear",),
    color=8,
)
