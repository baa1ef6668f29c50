"""What a clip norm costs: the bias of cut gradients and the noise they need (PF-LD, Theorems 4 and 5, put right).

The paper divides noise by the smallest group of the batch, less one, which is secret and may be 0; here sizes are
public (declared or released). It sets the noise of one step against a bias that all steps share; over a run, noise
averages out and bias does not, so `noise` is that of the whole run where a clip norm is chosen for it.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairveil.errors import InvalidParameter

__all__ = ["Tails", "best_clip_norm", "gradient_error", "violation_error"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Tails:
    """How many gradients of each group are longer than each edge of a public grid.

    Attributes
    ----------
    edges : array of shape (E,)
        Rising, above 0; no gradient is longer than the last.
    above : array of shape (groups, E)
        The share of each group beyond each edge, falling.
    """

    edges: Floats
    above: Floats

    @classmethod
    def from_counts(cls, edges: Floats, counts: Floats) -> "Tails":
        """Return the tails of noisy counts between edges, shape (groups, E + 1), made to fall from 1 to 0."""
        if counts.shape[1] != len(edges) + 1:
            raise InvalidParameter(
                f"Expected one count more than the {len(edges)} edges, got {counts.shape[1]}."
            )
        sizes = np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
        beyond = counts[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:] / sizes
        return cls(edges, np.minimum.accumulate(np.clip(beyond, 0.0, 1.0), axis=1))

    def excess(self, clip_norm: float) -> Floats:
        """Return by how much gradients are too long on average, max(0, norm - clip_norm), at most: one a group.

        The mean excess is the area under the tail beyond the clip norm; between edges the tail is at most its left end.
        """
        edges = np.concatenate([[0.0], self.edges])
        heights = np.column_stack([np.ones(len(self.above)), self.above[:, :-1]])
        widths = np.maximum(edges[1:] - np.maximum(edges[:-1], clip_norm), 0.0)
        return heights @ widths


def gradient_error(clip_norm: float, tails: Tails, multipliers: Floats, noise: float, n_params: int) -> float:
    """Return a bound on E|G - G~|, the error of the constraints' gradient from clipping and noise (Theorem 4).

    Parameters
    ----------
    clip_norm : float
        C_p.
    tails : Tails
    multipliers : array of shape (groups,)
        The weight of each group's mean gradient.
    noise : float
        The standard deviation of the noise on each coordinate of the weighted sum, over the clip norm.
    n_params : int
    """
    return math.sqrt(n_params) * noise * clip_norm + float(np.abs(multipliers) @ tails.excess(clip_norm))


def violation_error(bound: float, excess: float, noise_multiplier: float, size: float) -> float:
    """Return a bound on E|V - V~|, the error of one group's violation (Theorem 5).

    `bound` is C_d, `excess` the mean of max(0, |h| - C_d), `size` the public size of the group.
    """
    return math.sqrt(2 / math.pi) * noise_multiplier * bound / size + excess


def best_clip_norm(tails: Tails, multipliers: Floats, noise: float, n_params: int) -> float:
    """Return the edge where `gradient_error` is least: beyond it noise grows faster than bias falls.

    The bound is convex in the clip norm; its slope is sqrt(n_params) noise less the weighted share of gradients that
    are longer, so the minimiser is a quantile of norms.

    Examples
    --------
    >>> tails = Tails(np.array([1.0, 2.0, 4.0]), np.array([[0.5, 0.1, 0.0]]))
    >>> best_clip_norm(tails, np.ones(1), noise=0.1, n_params=4)
    2.0
    """
    errors = [gradient_error(edge, tails, multipliers, noise, n_params) for edge in tails.edges]
    return float(tails.edges[int(np.argmin(errors))])
