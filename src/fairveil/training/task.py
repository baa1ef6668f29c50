"""What is public about a task before any row is read, and what every recipe for it promises."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fairveil._validate import check_delta, check_epsilon, check_integer, check_positive
from fairveil.fairness.cells import Population
from fairveil.fairness.final_check import FinalCheck
from fairveil.fairness.trace import ConstraintTrace
from fairveil.models.protocol import Array, Model
from fairveil.privacy.plan import Part
from fairveil.privacy.veil import Veil

__all__ = ["Fit", "Progress", "Recipe", "Task", "quiet"]

Progress = Callable[[range], Iterable[int]]
"""Wraps the range of steps; a progress bar, for instance."""


def quiet(steps: range) -> Iterable[int]:
    """Show nothing."""
    return steps


@dataclass(frozen=True)
class Task:
    """Public facts: size of inputs, groups and classes, the bound on a row's norm, the declared size, the budget."""

    n_features: int
    people: Population
    input_norm: float
    n_public: int | None
    epsilon: float
    delta: float
    unit: str = "record"

    def __post_init__(self) -> None:
        check_positive("input_norm", self.input_norm)
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if self.n_public is not None:
            check_integer("n_public", self.n_public)

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return self.people.n_classes

    @property
    def is_private(self) -> bool:
        """Whether a guarantee is asked for."""
        return math.isfinite(self.epsilon)


@dataclass(frozen=True, eq=False)
class Fit:
    """What a recipe hands over, all of it released: parameters, and what it tells about its constraints."""

    params: Array
    trace: ConstraintTrace | None = None
    check: FinalCheck | None = None


class Recipe(Protocol):
    """A way to train: frozen public choices, from which plan and parameters follow."""

    def model_for(self, task: Task) -> Model:
        """Return the model that is trained."""

    def check(self, task: Task) -> None:
        """Refuse what cannot be carried out, before anything is booked."""

    def parts(self, noise_multiplier: float, share: float, task: Task) -> tuple[Part, ...]:
        """Return what is asked of the piece "train" at this noise; the first part is "train" itself."""

    def train(
        self, veils: Mapping[str, Veil], task: Task, size: float, rng: np.random.Generator, progress: Progress
    ) -> Fit:
        """Return parameters; `size` is the public or noisy number of units in the piece, `rng` public coins."""
