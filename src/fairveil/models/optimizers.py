"""Steps and averages of parameters as pure functions: state in, state out, nothing changed in place."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array
from fairveil._validation import check_number
from fairveil.errors import InvalidParameterError


@dataclass(frozen=True, eq=False)
class OptimizerState:
    """What an optimizer carries from step to step: steps done, first and second moments (0 before the first step)."""

    n_steps: int = 0
    first: Float32Array | float = 0.0
    second: Float32Array | float = 0.0


class Optimizer(Protocol):
    """A rule that moves parameters against a gradient."""

    def step(
        self, params: Float32Array, gradient: NDArray[np.floating], state: OptimizerState
    ) -> tuple[Float32Array, OptimizerState]:
        """Return the moved parameters and the next state."""


@dataclass(frozen=True)
class Sgd:
    """Gradient descent with heavy-ball momentum: `v <- momentum v + g`, `params <- params - learning_rate v`.

    Examples
    --------
    >>> params, _ = Sgd(learning_rate=0.5).step(np.ones(2, np.float32), np.array([1.0, 2.0]), OptimizerState())
    >>> params.tolist()
    [0.5, 0.0]
    """

    learning_rate: float
    momentum: float = 0.0

    def __post_init__(self) -> None:
        check_number("learning_rate", self.learning_rate)
        if not 0.0 <= self.momentum < 1.0:
            raise InvalidParameterError(f"Expected 0 <= momentum < 1, got {self.momentum!r}.")

    def step(
        self, params: Float32Array, gradient: NDArray[np.floating], state: OptimizerState
    ) -> tuple[Float32Array, OptimizerState]:
        """Return the moved parameters and the next state."""
        gradient = np.asarray(gradient, dtype=params.dtype)
        velocity = gradient
        if self.momentum:
            velocity = self.momentum * state.first + gradient
            state = OptimizerState(state.n_steps + 1, velocity, state.second)
        return params - self.learning_rate * velocity, state


GUESSABLE_STEPS = 2
"""Adam divides its first gradient by its own size, so the parameters of its first two steps follow from the start and
from the signs of the noise, which can be guessed where few weights matter. Later steps divide by other gradients."""


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015) with bias-corrected moments.

    Examples
    --------
    >>> params, _ = Adam(learning_rate=0.5).step(np.ones(2, np.float32), np.array([1.0, -2.0]), OptimizerState())
    >>> params.tolist()
    [0.5, 1.5]
    """

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        check_number("learning_rate", self.learning_rate)
        check_number("eps", self.eps)
        for name, value in (("beta1", self.beta1), ("beta2", self.beta2)):
            if not 0.0 <= value < 1.0:
                raise InvalidParameterError(f"Expected 0 <= {name} < 1, got {value!r}.")

    def step(
        self, params: Float32Array, gradient: NDArray[np.floating], state: OptimizerState
    ) -> tuple[Float32Array, OptimizerState]:
        """Return the moved parameters and the next state."""
        gradient = np.asarray(gradient, dtype=params.dtype)
        n_steps = state.n_steps + 1
        first = self.beta1 * state.first + (1.0 - self.beta1) * gradient
        second = self.beta2 * state.second + (1.0 - self.beta2) * np.square(gradient)
        root = np.sqrt(second / (1.0 - self.beta2**n_steps))
        moved = params - (self.learning_rate / (1.0 - self.beta1**n_steps)) * first / (root + self.eps)
        return moved, OptimizerState(n_steps, first, second)


@dataclass(frozen=True, eq=False)
class Average:
    """A running average of iterates. For the average of the last half, add only the last half.

    Examples
    --------
    >>> average = Average()
    >>> for iterate in (1.0, 2.0, 6.0):
    ...     average = average.add(np.array([iterate]))
    >>> average.value().tolist()
    [3.0]
    """

    total: NDArray[np.float64] | float = 0.0
    weight: float = 0.0

    def add(self, params: NDArray[np.floating]) -> "Average":
        """Return the average with one more iterate."""
        return Average(np.add(self.total, params, dtype=np.float64), self.weight + 1.0)

    def value(self) -> Float32Array:
        """Return the average as float32 parameters."""
        if self.weight == 0.0:
            raise InvalidParameterError("Expected an average of at least one iterate, got none; call add first.")
        return np.divide(self.total, self.weight).astype(np.float32)
