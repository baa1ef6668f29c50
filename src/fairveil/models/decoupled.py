"""One model for each group, trained side by side: a record moves the parameters of its own group only."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil._validation import check_number
from fairveil.data.coded import CodedRows, Features
from fairveil.models.base import MODEL_KINDS, NONE, Bound, Known, ignore_float_warnings, reads_codes
from fairveil.models.linear import LinearSoftmax
from fairveil.models.mlp import Perceptron
from fairveil.models.rescaled import Rescaled
from fairveil.models.torch_module import TorchModel


@dataclass(frozen=True)
class Decoupled:
    """As many copies of a model as there are groups; the last column of a row says which one it meets.

    The flat vector holds the copies one after the other. Since a record's gradient lies in one copy's part, its norm is
    that copy's, and training all of them costs what training one does: the largest cost of any group, not the sum.
    A row of no group (a code outside 0 .. n_groups - 1) adds no gradient and gets the mean logits of all copies.
    """

    base: LinearSoftmax | Perceptron | Rescaled | TorchModel
    n_groups: int
    n_features: int = field(init=False, repr=False, compare=False)
    n_classes: int = field(init=False, repr=False, compare=False)
    n_params: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_number("n_groups", self.n_groups, whole=True)
        object.__setattr__(self, "n_features", self.base.n_features + 1)  # the last column is the group's code
        object.__setattr__(self, "n_classes", self.base.n_classes)
        object.__setattr__(self, "n_params", self.n_groups * self.base.n_params)

    def initial(self, rng: np.random.Generator) -> Float32Array:
        """Return the same start for every copy."""
        return np.tile(self.base.initial(rng), self.n_groups)

    def plain(self, params: Float32Array) -> Float32Array:
        """Return the parameters of copies of a plain model, if these are trained on rescaled features."""
        if not isinstance(self.base, Rescaled):
            return params
        return np.concatenate([self.base.plain(copy) for copy in params.reshape(self.n_groups, -1)])

    def forward(self, params: Float32Array, X: Features) -> tuple[Float32Array, ...]:
        """Return the logits alone: each copy finds its own activations again."""
        return (self.logits(params, X),)

    @ignore_float_warnings
    def logits(self, params: Float32Array, X: Features) -> Float32Array:
        """Return the logits of each row's own copy, class-major (n_classes, B)."""
        rows, members = self.members(X)
        everyone = [self.base.logits(copy, rows) for copy in params.reshape(self.n_groups, -1)]
        logits: Float32Array = np.asarray(np.mean(everyone, axis=0, dtype=np.float64), dtype=params.dtype)
        for own, is_member in zip(everyone, members, strict=True):
            np.copyto(logits, own, where=is_member)
        return logits

    def shifted(self, params: Float32Array, offsets: NDArray[np.floating]) -> Float32Array:
        """Return parameters whose logits are higher by one offset a class, for every row."""
        return np.concatenate([self.base.shifted(copy, offsets) for copy in params.reshape(self.n_groups, -1)])

    def clipped_gradient(
        self, params: Float32Array, X: Features, dlogits: Float32Array, bound: Bound, known: Known = NONE
    ) -> Float64Array:
        """Return the sum of clipped gradients, each in its own copy's part."""
        rows, members = self.members(X)
        parts = []
        for copy, is_member in zip(params.reshape(self.n_groups, -1), members, strict=True):
            own = bound[is_member] if isinstance(bound, np.ndarray) else float(bound)
            parts.append(self.base.clipped_gradient(copy, rows[is_member], dlogits[:, is_member], own))
        return np.concatenate(parts)

    def gradient_norms(
        self, params: Float32Array, X: Features, dlogits: Float32Array, known: Known = NONE
    ) -> Float32Array:
        """Return each record's gradient norm (B,), 0 for rows of no group."""
        rows, members = self.members(X)
        norms = np.zeros(len(X), dtype=np.float32)
        for copy, is_member in zip(params.reshape(self.n_groups, -1), members, strict=True):
            norms[is_member] = self.base.gradient_norms(copy, rows[is_member], dlogits[:, is_member])
        return norms

    @property
    def reads_codes(self) -> bool:
        """Whether the copies read coded rows."""
        return reads_codes(self.base)

    def members(self, X: Features) -> tuple[Any, Any]:
        """Return the base's columns, and for each copy which rows are its own."""
        if isinstance(X, CodedRows):
            return X.without_last_number(), X.last_number == np.arange(self.n_groups)[:, None]
        return np.ascontiguousarray(X[:, :-1]), X[:, -1] == np.arange(self.n_groups)[:, None]


MODEL_KINDS["decoupled"] = Decoupled
