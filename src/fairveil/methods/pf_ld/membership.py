"""Who is probably in which cell: noisy sums of public vectors over secret cells in, a chance for every row out.

Features are public, so the sum of a cell's vectors says where in feature space its members lie. With u_i the clipped
vector of row i and psi_i its features in the same basis, the model is "row i is in c with chance pi_c + psi_i b_c".
Then S_c = sum_i chance_i u_i + noise is linear in b_c, and its posterior mean under a normal prior is one small solve.
Cells of one label are estimated from the rows of that label; the chance is then that of any row, had it this label.
How much of the membership features may explain (the prior's size) is picked by the evidence, so that noise alone moves
nothing. All of it is post-processing of what was released, and one release serves every later step of the training.

Parities as PF-LD states them: the rate of each group against the rate of everyone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint, Parity, groups_of
from fairveil.fairness.rates import CLASSLESS, Bound, HistogramConstraints, Population, Rate, compile_bounds
from fairveil.models.base import Model
from fairveil.privacy.attribute import PublicRows
from fairveil.privacy.queries import DecisionGradient


@dataclass(frozen=True, eq=False)
class AgainstAll:
    """Differences "everyone's rate - a group's rate", which are to vanish.

    Attributes
    ----------
    bounds : tuple of Bound
        Each difference as a left side with the limit 0.
    groups, everyone : HistogramConstraints
        The two rates of each difference, over cells of (group, label) and over labels.
    """

    bounds: tuple[Bound, ...]
    groups: HistogramConstraints
    everyone: HistogramConstraints

    def __len__(self) -> int:
        return len(self.bounds)

    @property
    def n_cells(self) -> int:
        """The number of cells that hold the groups."""
        return self.groups.n_cells

    @cached_property
    def cell_labels(self) -> NDArray[np.bool_]:
        """Which labels a cell holds, shape (cells, labels)."""
        found = np.zeros((self.n_cells, self.groups.n_classes), dtype=bool)
        groups, labels = np.nonzero(self.groups.cells >= 0)
        found[self.groups.cells[groups, labels], labels] = True
        return found

    @cached_property
    def label_cells(self) -> NDArray[np.int64]:
        """The cell of each label in the histogram of everyone, -1 for a label that is not counted."""
        return self.everyone.cells[-1]

    def violations(self, group_counts: Float64Array, all_counts: Float64Array, minimum: float = 1.0) -> Float64Array:
        """Return everyone's rate less the group's, for each difference."""
        ours = self.groups.values(group_counts, minimum)
        theirs = self.everyone.values(all_counts, minimum)
        return theirs - ours


def against_all(constraint: Constraint | Sequence[Constraint], people: Population) -> AgainstAll:
    """Return the differences of one parity, or of several; tolerances have no part in it.

    Examples
    --------
    >>> from fairveil.fairness.rates import Attribute
    >>> from fairveil.fairness.constraints import DemographicParity
    >>> people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    >>> [str(bound) for bound in against_all(DemographicParity(), people).bounds]
    ['selection_rate - selection_rate[sex=f] <= 0', 'selection_rate - selection_rate[sex=m] <= 0']
    """
    several = list(constraint) if isinstance(constraint, Sequence) else [constraint]
    if not several or not all(isinstance(one, Parity) and one.ratio is None for one in several):
        raise InvalidParameterError(
            f"Expected differences between groups such as DemographicParity(), got {constraint!r}; caps, ratios and "
            "rules go with RateConstrainedClassifier."
        )
    pairs = list(dict.fromkeys(pair for one in several for pair in _pairs(one, people)))
    return AgainstAll(
        tuple(Bound(((1.0, all_), (-1.0, group)), 0.0) for group, all_ in pairs),
        compile_bounds([Bound(((1.0, group),), 1.0) for group, _ in pairs], people),
        compile_bounds([Bound(((1.0, all_),), 1.0) for _, all_ in pairs], people),
    )


def _pairs(parity: Constraint, people: Population) -> list[tuple[Rate, Rate]]:
    assert isinstance(parity, Parity)
    groups = groups_of(people, parity.attribute)
    if len(groups) < 2:
        raise InvalidParameterError(f"Expected at least two groups to compare for {parity.name}, got fewer; name more.")
    found = []
    for rate in parity.rates:
        classes = [None] if rate in CLASSLESS or people.n_classes == 2 else list(people.classes)
        found += [(Rate(rate, group, k), Rate(rate, (), k)) for k in classes for group in groups]
    return found


POWER = 0.25
"""The basis is Sigma^-POWER times the centered features: halfway between as they are and whitened."""

SMALLEST_AXIS = 1e-4
"""Axes along which features vary less than this share of the widest one are left out."""

CONSTANT = 0.3
"""The constant entry over the median length of the others."""

SHARES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""How much of the variance of a membership features may explain."""


def basis_for(public: PublicRows, model: Model, params: Float32Array) -> DecisionGradient:
    """Return the vectors to be summed, in a basis that follows from features and parameters alone."""
    if not len(public.y):
        none = np.zeros((public.X.shape[1], 0))
        return DecisionGradient(model, params, np.zeros(len(none)), none, CONSTANT)
    weights = _slopes(public, model, params) * public.weights
    weights /= weights.sum()
    center = weights @ public.X.astype(np.float64)
    centered = public.X - center
    sizes, axes = np.linalg.eigh((centered * weights[:, None]).T @ centered)
    kept = sizes > max(SMALLEST_AXIS * sizes[-1], 1e-12)
    axes = axes[:, kept] * sizes[kept] ** -POWER
    lengths = np.sqrt(np.square(centered @ axes).sum(axis=1)) if kept.any() else np.ones(len(centered))
    constant = CONSTANT * max(float(np.median(lengths)), 1e-6)
    return DecisionGradient(model, params, center, axes, constant)


def _slopes(public: PublicRows, model: Model, params: Float32Array) -> Float64Array:
    return DecisionGradient.slopes_of(model.logits(params, public.inputs_of(model)))


def public_lengths(public: PublicRows, sums: DecisionGradient) -> Float64Array:
    """Return the length of every row's vector: no secret, unlike whose it is."""
    slopes = _slopes(public, sums.model, sums.params)
    return slopes * np.sqrt(np.square(sums.basis_of(public.X)).sum(axis=1))


@dataclass(frozen=True, eq=False)
class _Stratum:
    """The public side of all rows whose label a cell may hold: clipped vectors summed in two ways, and features."""

    cross: Float64Array
    total: Float64Array
    spread: Float64Array
    n_rows: float


def memberships(
    public: PublicRows,
    sums: DecisionGradient,
    released: Float64Array,
    noise_std: float,
    clip_norm: float,
    sizes: Float64Array,
    cell_labels: NDArray[np.bool_],
) -> Float64Array:
    """Return the chance that each public row is in each cell, had it a label that the cell holds, shape (cells, rows).

    Parameters
    ----------
    public : PublicRows
    sums : DecisionGradient
        What was summed.
    released : array of shape (cells, values)
        The noisy sums.
    noise_std, clip_norm : float
        Of every entry, and of every row's vector.
    sizes : array of shape (cells,)
        Noisy numbers of units.
    cell_labels : array of shape (cells, labels)
        Which labels a cell may hold.
    """
    chances, everyone = np.zeros((len(released), len(public.y))), sums.basis_of(public.X)
    for labels in np.unique(cell_labels, axis=0):
        rows = np.flatnonzero(labels[public.y])
        if not len(rows):
            continue
        stratum = _stratum(public, sums, everyone[rows], clip_norm, rows)
        for cell in np.flatnonzero((cell_labels == labels).all(axis=1)):
            share = min(max(sizes[cell] / stratum.n_rows, 0.0), 1.0)
            slope = _posterior(stratum, released[cell], share, noise_std)
            chances[cell] = np.clip(share + everyone @ slope, 0.0, 1.0)
    return chances


def _stratum(
    public: PublicRows, sums: DecisionGradient, basis: Float64Array, clip_norm: float, rows: NDArray[np.int64]
) -> _Stratum:
    slopes = DecisionGradient.slopes_of(sums.model.logits(sums.params, public.inputs_of(sums.model)[rows]))
    lengths = slopes * np.sqrt(np.square(basis).sum(axis=1))
    held = slopes * np.minimum(1.0, clip_norm / np.maximum(lengths, 1e-12)) * public.weights[rows]
    n_rows = float(public.weights[rows].sum())
    spread = (basis * public.weights[rows, None]).T @ basis / n_rows
    ridge = 1e-6 * np.eye(basis.shape[1])
    return _Stratum((basis * held[:, None]).T @ basis, held @ basis, spread + ridge, n_rows)


def _posterior(stratum: _Stratum, released: Float64Array, share: float, noise_std: float) -> Float64Array:
    """Return the slope of the chance in the basis: its posterior mean under the prior with the largest evidence."""
    n_values = len(released)
    variance = max(noise_std, 1e-9 * np.sqrt(max(stratum.n_rows, 1.0))) ** 2
    precision = stratum.cross.T @ stratum.cross / variance
    pull = stratum.cross.T @ (released - share * stratum.total) / variance
    best, slope = -np.inf, np.zeros(n_values)
    for explained in SHARES:
        prior = stratum.spread * n_values / (explained * max(share * (1 - share), 1e-3))
        found = np.linalg.lstsq(precision + prior, pull, rcond=None)[0]
        evidence = pull @ found - np.linalg.slogdet(precision + prior)[1] + np.linalg.slogdet(prior)[1]
        if evidence > best:
            best, slope = evidence, found
    return slope
