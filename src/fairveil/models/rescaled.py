"""Models that see the levels of coded rows rescaled: rare levels larger, and numbers at two resolutions at once.

A model is linear in its one-hot inputs. Scaling the feature of a level by s is therefore the same as training theta
and predicting with w = s theta, and seeing a number in a coarse bin beside its fine one is the same as adding both
weights up: w_fine = s_fine theta_fine + s_coarse theta_coarse. So rows stay the codes of the fine levels, whose weights
are computed once a step (`fold`), and gradients by the weights are turned into gradients by theta (`unfold`).

What differs is the norm: a record's gradient by theta is as long as the rescaled row says, and that is what is clipped
and what noise hides (docs/proofs/veil.md). After training only the folded weights are kept, those of a plain model.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil.data.coded import CodedRows, Features
from fairveil.models.base import NONE, Bound, Known, ignore_float_warnings
from fairveil.models.linear import LinearSoftmax
from fairveil.models.mlp import Perceptron


@dataclass(frozen=True, eq=False)
class Rescaling:
    """How features are seen: each at its own scale, some also through a coarser feature that they belong to.

    Parameters
    ----------
    scales : array of shape (n_features,)
    parents : array of int, shape (n_children,)
        The coarse feature of each feature that has one, ascending; these children stand at `children`.
    children : array of int, shape (n_children,)
    parent_scales : array of shape (n_parents,)
    counts : array of shape (n_features,)
        About how many records have each level, as released.

    Attributes
    ----------
    squares : array of shape (n_features,)
        How often each feature counts in the squared norm of a coded row, which has one child of a parent at most.
    """

    scales: Float64Array
    children: NDArray[np.int64]
    parents: NDArray[np.int64]
    parent_scales: Float64Array
    counts: Float64Array

    @property
    def n_seen(self) -> int:
        """The number of features that are seen: fine and coarse ones."""
        return len(self.scales) + len(self.parent_scales)

    @cached_property
    def squares(self) -> Float64Array:
        """Return how often each feature counts in the squared norm of a row that has one child of a parent at most."""
        squares = self.scales**2
        squares[self.children] += self.parent_scales[self.parents] ** 2
        return squares

    @cached_property
    def _single(self) -> tuple[Float32Array, Float32Array]:
        return self.scales.astype(np.float32), self.parent_scales.astype(np.float32)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """The first child of each parent, among the children."""
        return np.searchsorted(self.parents, np.arange(len(self.parent_scales)))

    @ignore_float_warnings
    def fold(self, seen: Float32Array) -> Float32Array:
        """Return weights by feature from weights by what is seen, along the last axis."""
        scales, parent_scales = self._single
        n_features = len(scales)
        weights = seen[..., :n_features] * scales
        if len(parent_scales):
            coarse = seen[..., n_features:] * parent_scales
            weights[..., self.children] += coarse.take(self.parents, axis=-1)
        return weights

    @ignore_float_warnings
    def unfold(self, gradient: NDArray[np.floating]) -> Float64Array:
        """Return the gradient by what is seen from that by weights by feature, along the last axis.

        Of a row it returns the row as it is seen.
        """
        n_features = len(self.scales)
        seen = np.empty((*gradient.shape[:-1], self.n_seen))
        np.multiply(gradient, self.scales, out=seen[..., :n_features])
        if len(self.parent_scales):
            coarse = np.add.reduceat(gradient.take(self.children, axis=-1), self._starts, axis=-1)
            np.multiply(coarse, self.parent_scales, out=seen[..., n_features:])
        return seen


@dataclass(frozen=True, eq=False)
class Rescaled:
    """A linear model or network that is trained on rescaled features; `plain` turns it into an ordinary one.

    The flat vector is that of `inner`: of the base for as many features as are seen.
    """

    base: LinearSoftmax | Perceptron
    rescaling: Rescaling
    n_features: int = field(init=False, repr=False)
    n_classes: int = field(init=False, repr=False)
    n_params: int = field(init=False, repr=False)
    inner: LinearSoftmax | Perceptron = field(init=False, repr=False)
    reads_codes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        inner = replace(self.base, n_features=self.rescaling.n_seen)
        for name in ("n_features", "n_classes"):
            object.__setattr__(self, name, getattr(self.base, name))
        object.__setattr__(self, "n_params", inner.n_params)
        object.__setattr__(self, "inner", inner)

    def initial(self, rng: np.random.Generator) -> Float32Array:
        """Return starting parameters drawn from public coins."""
        return self.inner.initial(rng)

    def plain(self, params: Float32Array) -> Float32Array:
        """Return the parameters of the base whose logits are those of this model."""
        n_seen = self.rescaling.n_seen
        width = self.width
        weights, rest = params[: n_seen * width], params[n_seen * width :]
        if self._is_transposed:
            folded = self.rescaling.fold(weights.reshape(n_seen, width).T).T
        else:
            folded = self.rescaling.fold(weights.reshape(width, n_seen))
        return np.concatenate([folded.ravel(), rest])

    def forward(self, params: Float32Array, X: Features) -> tuple[Float32Array, ...]:
        """Return the activations of the base; the last are the logits (n_classes, n_rows)."""
        return self.base.forward(self.plain(params), X)

    def logits(self, params: Float32Array, X: Features) -> Float32Array:
        """Return the logits, shape (n_classes, n_rows)."""
        return self.forward(params, X)[-1]

    def shifted(self, params: Float32Array, offsets: NDArray[np.floating]) -> Float32Array:
        """Return parameters whose logits are higher by one offset a class, for every row."""
        return self.inner.shifted(params, offsets)

    def clipped_gradient(
        self, params: Float32Array, X: Features, dlogits: Float32Array, bound: Bound, known: Known = NONE
    ) -> Float64Array:
        """Return the sum over records of gradients by the parameters, each clipped to `bound`."""
        weights = self.plain(params) if isinstance(self.base, Perceptron) else params  # which a linear model needs not
        return self._unfolded(self.base.clipped_gradient(weights, X, dlogits, bound, self._known(X, known)))

    def clipped_loss_gradient(
        self, params: Float32Array, X: Features, y: NDArray[np.int16], bound: Bound
    ) -> Float64Array | None:
        """Return `clipped_gradient` for the softmax loss of the table's labels, None where that is not compiled."""
        if not isinstance(self.base, LinearSoftmax):
            return None
        total = self.base.clipped_loss_gradient(self.plain(params), X, y, bound, self.rescaling.squares)
        return None if total is None else self._unfolded(total)

    def gradient_norms(
        self, params: Float32Array, X: Features, dlogits: Float32Array, known: Known = NONE
    ) -> Float32Array:
        """Return each record's gradient norm (n_rows,); infinity where it is not a finite float32."""
        weights = self.plain(params) if isinstance(self.base, Perceptron) else params
        return self.base.gradient_norms(weights, X, dlogits, self._known(X, known))

    @property
    def width(self) -> int:
        """How many weights each feature has."""
        if isinstance(self.base, Perceptron) and self.base.hidden:
            return self.base.hidden[0]
        return self.base.n_classes

    @property
    def _is_transposed(self) -> bool:
        """Whether the first layer is (features, units), not (classes, features)."""
        return isinstance(self.base, Perceptron) and bool(self.base.hidden)

    @ignore_float_warnings
    def _known(self, X: Features, known: Known) -> Known:
        """Return what is known of a batch, with the norms of rows as they are seen in place of their own."""
        if isinstance(X, CodedRows):
            return Known(known.activations, squares=self.rescaling.squares)
        seen = self.rescaling.unfold(X)  # a dense row may have several children of a parent
        return Known(known.activations, np.sqrt(np.einsum("ij,ij->i", seen, seen)).astype(np.float32))

    def _unfolded(self, gradient: Float64Array) -> Float64Array:
        n_features, width = self.n_features, self.width
        weights, rest = gradient[: n_features * width], gradient[n_features * width :]
        if self._is_transposed:
            seen = self.rescaling.unfold(weights.reshape(n_features, width).T).T
        else:
            seen = self.rescaling.unfold(weights.reshape(width, n_features))
        return np.concatenate([seen.ravel(), rest])
