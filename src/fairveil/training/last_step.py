"""The last step of a group-wise training, and smooth decisions around what it released."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fairveil.models.last_layer import LayeredModel
from fairveil.models.linear import LinearSoftmax
from fairveil.models.protocol import Array
from fairveil.privacy.plan import Part, Release
from fairveil.privacy.veil import ROUNDING, Veil
from fairveil.training.group_rows import ShareOfModels, SmoothRates
from fairveil.training.stopping import REACH, Lookout
from fairveil.training.task import Fit

__all__ = ["LastStep", "SmoothSums", "parted", "read_smooth_sums", "smooth_part", "widened"]

SMOOTH_NOISE = 2.0
"""Noise on sums of smooth decisions over the noise on counted ones, which certify and get most of the budget."""


@dataclass(frozen=True, eq=False)
class LastStep:
    """The last step as the certificates over the training noise need it; all of it is released or public.

    Attributes
    ----------
    before : array
        The parameters before it, with the last layer bounded.
    learning_rate : float
    noise_std : float
        The deviation of the noise on each coordinate of the average gradient.
    reach : float
        How far one record can move the average gradient.
    sampling_rate : float
    size : float
        The public or noisy number of people trained on.
    several : tuple of arrays
        The models that Algorithm 3 made, none where it was not asked for.
    looks : tuple of Lookout
        What a stopping rule saw. A step whose own noise had a say in whether it was the last has another law.
    """

    before: Array
    learning_rate: float
    noise_std: float
    reach: float
    sampling_rate: float
    size: float
    several: tuple[Array, ...] = ()
    looks: tuple[Lookout, ...] = ()

    @property
    def is_unwatched(self) -> bool:
        """Whether this step was the last whatever its noise was: no stopping rule looked."""
        return not self.looks

    @property
    def margin_std(self) -> float:
        """The deviation that the last step puts on each weight of logit_1 - logit_0."""
        return math.sqrt(2) * self.learning_rate * self.noise_std


@dataclass(frozen=True, eq=False)
class SmoothSums:
    """Noisy sums of P(class 1) - 1/2 over people held out, by (group code, label).

    Attributes
    ----------
    smooth : array of shape (groups, 2)
        Over the noise of a last step around the released weights.
    of_several : array of shape (groups, 2) or None
        Over the models that Algorithm 3 made.
    noise_std : float
        The deviation of the noise on each sum.
    """

    smooth: NDArray[np.float64]
    of_several: NDArray[np.float64] | None
    noise_std: float


def smooth_part(noise_multiplier: float, share: float, *, has_several: bool) -> Part:
    """Return one look at the people held out: sums of smooth decisions, and of those of several models."""
    names = ("smooth rates", "several models")[: 1 + has_several]
    releases = tuple(Release(name, "gaussian", SMOOTH_NOISE * noise_multiplier) for name in names)
    return Part("smooth rates", releases, share, piece="holdout")


def read_smooth_sums(veil: Veil, model: LayeredModel, n_groups: int, fit: Fit) -> SmoothSums:
    """Return noisy sums of smooth decisions at the released parameters, by (group code, label)."""
    batch, last = veil.draw(), fit.sheet
    noise_std = REACH * ROUNDING * veil.part.releases[0].noise_multiplier
    rates = SmoothRates(model, fit.params, last.margin_std, n_groups)
    smooth = batch.release_histogram(rates, REACH, "smooth rates").reshape(n_groups, 2)
    if not last.several:
        return SmoothSums(smooth, None, noise_std)
    votes = batch.release_histogram(ShareOfModels(model, last.several, n_groups), REACH, "several models")
    return SmoothSums(smooth, votes.reshape(n_groups, 2), noise_std)


def widened(model: LayeredModel, params: Array, n_models: int) -> Array:
    """Return parameters with the last layer repeated: class weights first, then class biases."""
    hidden, weights, biases = _pieces(model, params)
    return np.concatenate([hidden, np.tile(weights, n_models), np.tile(biases, n_models)])


def parted(model: LayeredModel, gradient: NDArray[np.float64], n_models: int) -> list[NDArray[np.float64]]:
    """Return the gradient of each model: what comes before the last layer is common to all."""
    wide = replace(model, n_classes=n_models * model.n_classes)
    hidden, weights, biases = _pieces(wide, gradient)
    rows = zip(weights.reshape(n_models, -1), biases.reshape(n_models, -1), strict=True)
    return [np.concatenate([hidden, *own]) for own in rows]


def _pieces(model: LayeredModel, flat: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Return what comes before the last layer, the class weights and the class biases."""
    n_biases = model.n_classes
    if isinstance(model, LinearSoftmax):
        n_inputs, n_biases = model.n_features, model.n_classes * model.bias
    else:
        n_inputs = (model.n_features, *model.hidden)[-1]
    start = len(flat) - n_biases - model.n_classes * n_inputs
    return flat[:start], flat[start : len(flat) - n_biases], flat[len(flat) - n_biases :]
