"""Probabilities that somebody else's classifier gave, in the place of a model's logits."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array
from fairveil._validation import check_integer
from fairveil.models.base import ignore_float_warnings, model_kind

SMALLEST = 1e-30
"""Probabilities are held to at least this: their logarithms stay finite in single precision."""


@model_kind("given")
@dataclass(frozen=True)
class PrefittedProbabilities:
    """A model without parameters: its rows are class probabilities, its logits their logarithms.

    A row that holds no probabilities (not finite, negative, all 0) counts as undecided: every class alike.
    """

    n_classes: int

    def __post_init__(self) -> None:
        check_integer("n_classes", self.n_classes, at_least=2)

    @property
    def n_features(self) -> int:
        """Columns of a row: one a class."""
        return self.n_classes

    @property
    def n_params(self) -> int:
        """None at all."""
        return 0

    def initial(self, rng: np.random.Generator) -> Float32Array:
        """Return no parameters."""
        return np.empty(0, dtype=np.float32)

    def forward(self, params: Float32Array, X: Float32Array) -> tuple[Float32Array, ...]:
        """Return the logits alone."""
        return (self.logits(params, X),)

    @ignore_float_warnings
    def logits(self, params: Float32Array, X: NDArray[np.floating]) -> Float32Array:
        """Return the logarithms of the probabilities, class-major; each row is looked at by itself."""
        is_sound = np.isfinite(X).all(axis=1) & (X >= 0).all(axis=1) & (X > 0).any(axis=1)
        sound = np.where(is_sound[:, None], X, X.dtype.type(1))
        return np.ascontiguousarray(np.log(np.maximum(sound, X.dtype.type(SMALLEST))).T)
