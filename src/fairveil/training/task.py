"""What is public about a task before any row is read, and what every recipe for it promises."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fairveil._validate import check_delta, check_epsilon, check_integer, check_positive
from fairveil.models.protocol import Array, Model
from fairveil.privacy.plan import Part
from fairveil.privacy.veil import Veil

__all__ = ["Progress", "Recipe", "Task", "quiet"]

Progress = Callable[[range], Iterable[int]]
"""Wraps the range of steps; a progress bar, for instance."""


def quiet(steps: range) -> Iterable[int]:
    """Show nothing."""
    return steps


@dataclass(frozen=True)
class Task:
    """Public facts: sizes of inputs, outputs and groups, the bound on a row's norm, the declared size, the budget."""

    n_features: int
    n_classes: int
    n_groups: int
    input_norm: float
    n_public: int | None
    epsilon: float
    delta: float
    unit: str = "record"

    def __post_init__(self) -> None:
        check_integer("n_classes", self.n_classes, at_least=1)
        check_positive("input_norm", self.input_norm)
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if self.n_public is not None:
            check_integer("n_public", self.n_public)

    @property
    def is_private(self) -> bool:
        """Whether a guarantee is asked for."""
        return math.isfinite(self.epsilon)


class Recipe(Protocol):
    """A way to train: frozen public choices, from which plan and parameters follow."""

    def model_for(self, task: Task) -> Model:
        """Return the model that is trained."""

    def part(self, noise_multiplier: float, share: float, task: Task) -> Part:
        """Return what is asked of the training part at this noise."""

    def train(
        self, veil: Veil, task: Task, size: float, rng: np.random.Generator, progress: Progress = quiet
    ) -> Array:
        """Return parameters; `size` is the public or noisy number of units in the part, `rng` public coins."""
