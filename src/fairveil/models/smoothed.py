"""Smoothing: a model whose parameters are drawn anew for every answer, and the law of that answer in closed form.

FairSmooth (Jin et al. 2022) draws all parameters around those it was given; FairDP's certificates (Tran et al. 2023)
think of the last layer alone. Around *released* parameters the draws are post-processing and free.
"""

import math
from dataclasses import dataclass

import numpy as np

from fairveil._typing import Float32Array, Float64Array
from fairveil._validation import check_choice, check_integer, check_positive
from fairveil.errors import InvalidParameterError
from fairveil.models.base import ignore_float_warnings
from fairveil.models.last_layer import LayeredModel, margin_weights, positive_probability
from fairveil.models.linear import LinearSoftmax
from fairveil.models.row_stable import row_stable_answer, row_stable_inputs

LAYERS = ("last", "all")
SURE = 1e-15
"""Laws are kept so far from 0 and 1 that their logarithm is finite."""


def smoothed_gap(norm: float, std: float) -> float:
    """Return what no gap between groups exceeds when margins of this norm are drawn with this deviation.

    Every answer is 1 with probability 1/2 +- erf(norm / (std sqrt 2)) / 2, whatever the row, so no two groups of any
    people differ by more; the same holds among people of one label.

    Examples
    --------
    >>> [round(smoothed_gap(ratio, 1.0), 2) for ratio in (1.0, 0.2, 0.1)]
    [0.68, 0.16, 0.08]
    """
    return math.erf(norm / (check_positive("std", std) * math.sqrt(2)))


@dataclass(frozen=True)
class SmoothedModel:
    """A model of two classes whose margin weights are drawn anew for every answer.

    Its logits are the logarithm of the law of that answer, so their softmax is the law.

    Parameters
    ----------
    base : LinearSoftmax or Perceptron
        Whose parameters are drawn around.
    std : float
        The deviation of each weight of logit_1 - logit_0, that of its bias included; in the hidden layers, where
        `layers` is "all", of each parameter.
    layers : {"last", "all"}
        Whether hidden layers are drawn as well; a linear model has none.
    n_draws : int
        How many draws of the hidden layers the law is the mean of, from public coins.
    """

    base: LayeredModel
    std: float
    layers: str = "last"
    n_draws: int = 64

    def __post_init__(self) -> None:
        check_positive("std", self.std)
        check_choice("layers", self.layers, LAYERS)
        check_integer("n_draws", self.n_draws)
        if self.base.n_classes != 2:
            raise InvalidParameterError(
                f"Expected two classes to smooth, got {self.base.n_classes}. Only binary classification is supported."
            )

    @property
    def n_features(self) -> int:
        """Columns of a row."""
        return self.base.n_features

    @property
    def n_classes(self) -> int:
        """Two."""
        return self.base.n_classes

    @property
    def n_params(self) -> int:
        """Length of the flat parameter vector, which is the base's."""
        return self.base.n_params

    @ignore_float_warnings
    def logits(self, params: Float32Array, X: Float32Array) -> Float64Array:
        """Return the logarithms of the law, class-major (2, B), each column from its own row alone."""
        margin = margin_weights(self.base, params)
        laws = [
            positive_probability(margin, row_stable_inputs(self.base, drawn, X), self.std)
            for drawn in self._hidden_draws(params)
        ]
        law = np.clip(np.mean(laws, axis=0), SURE, 1 - SURE)
        return np.log(np.stack([1 - law, law]))

    def forward(self, params: Float32Array, X: Float32Array) -> tuple[Float64Array, ...]:
        """Return the logits alone."""
        return (self.logits(params, X),)

    def gap_bound(self, params: Float32Array) -> float:
        """Return what no gap between groups exceeds, of any people: see `smoothed_gap`."""
        return smoothed_gap(float(np.linalg.norm(margin_weights(self.base, params))), self.std)

    def _hidden_draws(self, params: Float32Array) -> list[Float32Array]:
        """Return parameters with the hidden layers drawn; the last layer is integrated out, so it stays."""
        if self.layers == "last" or isinstance(self.base, LinearSoftmax) or not self.base.hidden:
            return [params]
        class_weights, class_biases = self.base.layers(params)[-1]
        n_hidden = len(params) - class_weights.size - class_biases.size
        rng = np.random.default_rng(0)  # public: the law must be the same for everyone, each time
        noise = np.zeros((self.n_draws, len(params)), dtype=params.dtype)
        noise[:, :n_hidden] = self.std * rng.standard_normal((self.n_draws, n_hidden))
        return list(params + noise)


@row_stable_answer.register
def _(model: SmoothedModel, params: Float32Array, X: Float32Array) -> Float64Array:
    return model.logits(params, X)
