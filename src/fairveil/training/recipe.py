"""What is public about a task before any row is read, and the interface of every recipe for it."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array
from fairveil._validation import check_budget, check_choice, check_number
from fairveil.data.coded import SCHEMA_ONLY, Detail, Levels
from fairveil.fairness.diagnostics import ConstraintTrace, DecisionChanges, FinalCheck
from fairveil.fairness.rates import Population
from fairveil.models.base import Model
from fairveil.models.rules import Argmax, DecisionRule
from fairveil.privacy.attribute import ATTRIBUTE
from fairveil.privacy.plan import Stage
from fairveil.privacy.veil import Veil

PREDICTS = ("label", "joint", "decoupled")
"""What a model is of: the label; the pair of group and label; the label, by one model for each group."""

Progress = Callable[[range], Iterable[int]]
"""Wraps the range of steps; a progress bar, for instance."""

no_progress: Progress = iter
"""Shows nothing."""


@dataclass(frozen=True)
class Task:
    """Public facts: size of inputs, groups and classes, the bound on a row's norm, the declared size, the budget.

    `typical_norm` is the usual norm of a row, where it follows from the kinds of columns in the schema. `predicts` says
    what the model is of (`PREDICTS`). Inputs of decoupled models have the group's place among the known ones as a last
    column, which `n_features` leaves out. `is_scaled` says that all features are scaled numbers, each with a flag for a
    missing value after it; `levels` says which features are levels of columns, None if none are.

    Attributes
    ----------
    n_classes, n_outputs : int
        The number of classes, and of logits: classes, or pairs of group and class.
    is_private : bool
        Whether epsilon is finite.
    hides_attribute : bool
        Whether the sensitive attribute alone is secret; features, labels and their number are then public.
    """

    n_features: int
    people: Population
    input_norm: float
    n_public: int | None
    epsilon: float
    delta: float
    unit: str = "record"
    predicts: str = "label"
    typical_norm: float | None = None
    is_scaled: bool = False
    levels: Levels | None = None
    n_classes: int = field(init=False, repr=False, compare=False)
    n_outputs: int = field(init=False, repr=False, compare=False)
    is_private: bool = field(init=False, repr=False, compare=False)
    hides_attribute: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_choice("predicts", self.predicts, PREDICTS)
        check_number("input_norm", self.input_norm)
        if self.typical_norm is not None:
            check_number("typical_norm", self.typical_norm)
        check_budget(self.epsilon, self.delta)
        if self.n_public is not None:
            check_number("n_public", self.n_public, whole=True)
        n_groups = len(self.people.codes) if self.predicts == "joint" else 1
        derived = {
            "n_classes": self.people.n_classes,
            "n_outputs": n_groups * self.people.n_classes,
            "is_private": math.isfinite(self.epsilon),
            "hides_attribute": self.unit.startswith(ATTRIBUTE),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def coarse(self) -> "Task":
        """The task if every number column had the schema's bins alone."""
        if self.levels is None or not self.levels.n_parents:
            return self
        return replace(self, n_features=self.n_features - self.levels.n_features + self.levels.n_coarse, levels=None)

    @property
    def joint_outputs(self) -> NDArray[np.int64]:
        """The output of a joint model for each (group code, label), -1 for people of no known group."""
        outputs = np.full((self.people.n_groups, self.n_classes), -1)
        known = self.people.codes
        outputs[known] = np.arange(len(known) * self.n_classes).reshape(-1, self.n_classes)
        return outputs


@dataclass(frozen=True, eq=False)
class Fit:
    """What a recipe returns, all of it released.

    Parameters and decision rule, the course and the final check of its constraints, the noisy group sizes that it used,
    if any, and which decisions of a model a rule on top of it is expected to change. Methods that release more return a
    subclass.
    """

    params: Float32Array
    trace: ConstraintTrace | None = None
    check: FinalCheck | None = None
    rule: DecisionRule = field(default_factory=Argmax)
    sizes: NDArray[np.float64] | None = None
    changes: DecisionChanges | None = None


class Recipe(Protocol):
    """A way to train: frozen public choices, from which plan and parameters follow."""

    def model_for(self, task: Task) -> Model:
        """Return the model that is trained."""

    def check(self, task: Task) -> None:
        """Refuse what cannot be carried out, before anything is debited."""

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return the stages on the subset "train", and on further subsets of the same share, at this noise."""

    def train(
        self, veils: Mapping[str, Veil], task: Task, size: float, rng: np.random.Generator, progress: Progress
    ) -> Fit:
        """Return parameters; `size` is the public or noisy number of units trained on, `rng` holds public coins."""


@runtime_checkable
class DetailedRecipe(Protocol):
    """A recipe that may need rows encoded more finely than the schema says."""

    def detail_for(self, task: Task) -> Detail:
        """Return how finely rows should be encoded, by public facts; `task` is that of the schema's own bins."""


def detail_for(recipes: Iterable[Recipe], task: Task) -> Detail:
    """Return how finely these recipes need rows encoded; the schema's own bins if they do not agree."""
    wanted = {one.detail_for(task) if isinstance(one, DetailedRecipe) else SCHEMA_ONLY for one in recipes}
    return wanted.pop() if len(wanted) == 1 else SCHEMA_ONLY


@runtime_checkable
class HoldoutReader(Protocol):
    """A recipe that releases more of the people held out than how they are decided."""

    def holdout_stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return the stages on the subset "holdout" beside the outcomes, whose noise this is."""

    def read_holdout(self, veils: Mapping[str, Veil], task: Task, fit: Fit) -> Any:
        """Return what these further releases show."""
