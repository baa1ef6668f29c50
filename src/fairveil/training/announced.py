"""Several released linear models measured on the same people held out, in one release.

A record adds one to one decision of every model: of T models that is a vector of norm sqrt(T), so that all of them
together cost what one does at sqrt(T) times the noise, where T runs would cost about sqrt(T) times the epsilon.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairveil.models.linear import LinearSoftmax
from fairveil.models.protocol import Array
from fairveil.models.steady import steady_logits
from fairveil.privacy.plan import Part, Release
from fairveil.privacy.rows import Floats, Rows, row_function
from fairveil.privacy.veil import ROUNDING, Veil

__all__ = ["AnnouncedCounts", "DecisionsOfSeveral", "announced_part", "read_announced"]

NAME = "announced"
NOISE = 0.5
"""Noise over that on the outcomes of the fitted model: the models that were announced get most of the budget."""


@row_function
@dataclass(frozen=True, eq=False)
class DecisionsOfSeveral:
    """The decision of each of several linear models of two classes, one-hot, added to the record's (group, label)."""

    several: tuple[Floats, ...]
    n_features: int
    n_groups: int

    @property
    def n_cells(self) -> int:
        """One for each (group code, label)."""
        return 2 * self.n_groups

    @property
    def n_values(self) -> int:
        """One for each model and decision."""
        return 2 * len(self.several)

    def cells_of(self, rows: Rows) -> NDArray[np.integer]:
        """Return the cell of each row; people of no group have the last code."""
        group = np.where(rows.cells >= 0, rows.cells, self.n_groups - 1).astype(np.int64)
        return 2 * group + rows.y

    def values_of(self, rows: Rows) -> Floats:
        """Return one column a record."""
        logits = steady_logits(
            LinearSoftmax(self.n_features, self.n_values), _stacked(self.several), rows.X
        ).reshape(len(self.several), 2, -1)
        decided = logits[:, 1] > logits[:, 0]
        return np.stack([~decided, decided], axis=1).reshape(self.n_values, -1).astype(np.float32)


def _stacked(several: Sequence[Array]) -> Array:
    """Return the parameters of all models as one model: class weights of each in turn, then their biases."""
    weights, biases = zip(*((params[:-2], params[-2:]) for params in several), strict=True)
    return np.concatenate([*weights, *biases])


@dataclass(frozen=True, eq=False)
class AnnouncedCounts:
    """Noisy counts (models, groups, labels, decisions), and the variance of their noise."""

    counts: NDArray[np.float64]
    noise_variance: float


def announced_part(noise_multiplier: float, share: float) -> Part:
    """Return one look at the people held out, beside the outcomes of the fitted model at this noise."""
    return Part(NAME, (Release(NAME, "gaussian", NOISE * noise_multiplier),), share, piece="holdout")


def read_announced(veil: Veil, several: Sequence[Array], n_features: int, n_groups: int) -> AnnouncedCounts:
    """Return how each model decides the people held out."""
    function = DecisionsOfSeveral(tuple(several), n_features, n_groups)
    bound = math.sqrt(len(several))
    sums = veil.draw().release_histogram(function, bound, NAME)
    counts = sums.reshape(n_groups, 2, len(several), 2).transpose(2, 0, 1, 3)
    (release,) = veil.part.releases
    return AnnouncedCounts(counts, (release.noise_multiplier * bound * ROUNDING) ** 2)
