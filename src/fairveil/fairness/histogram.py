"""Constraints over a (cell x class) histogram, in closed form: rates, violations, and their pull on every count.

The *pull* of a constraint is the gradient of the weighted violations along every count. Denominators below a public
`minimum` count as that minimum, so that a noisy empty group cannot produce a huge rate.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float64Array
from fairveil.errors import InvalidParameterError
from fairveil.fairness.groups import Population, Rate, smallest_partition

MAX_BOUNDS = 10_000
"""More inequalities than this are refused: their tables would not fit into memory."""

SMALLEST_GROUP = 5.0
"""Rates of fewer people than this (plus three standard deviations of noise) are unknown."""


@dataclass(frozen=True)
class Bound:
    """One inequality: a weighted sum of rates is at most `limit`.

    Examples
    --------
    >>> men, women = (Rate("selection_rate", (("sex", group),)) for group in "mf")
    >>> print(Bound(((0.8, men), (-1.0, women)), 0.0))
    0.8 * selection_rate[sex=m] - selection_rate[sex=f] <= 0
    """

    terms: tuple[tuple[float, Rate], ...]
    limit: float

    def __str__(self) -> str:
        numbers = [*(abs(weight) for weight, _ in self.terms), self.limit]
        # the shortest text that reads back as this very number
        texts = [f"{n:g}" if float(f"{n:g}") == n else repr(float(n)) for n in numbers]
        words = ""
        for (weight, rate), text in zip(self.terms, texts[:-1], strict=True):
            sign = ("-" if weight < 0 else "") if not words else (" - " if weight < 0 else " + ")
            words += f"{sign}{rate}" if abs(weight) == 1 else f"{sign}{text} * {rate}"
        return f"{words} <= {texts[-1]}"


class Ratios(NamedTuple):
    """Rates, their denominators, and which of these are above the minimum (a minimum has no slope)."""

    rates: Float64Array
    below: Float64Array
    is_free: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class HistogramConstraints:
    """Bounds compiled for a histogram: everything costs O(rates x cells x classes), whatever the number of rows.

    Attributes
    ----------
    bounds : tuple of Bound
        The inequalities.
    cells : array of shape (n_groups, n_labels)
        The cell of each atom, -1 for atoms that no rate counts.
    above, below : arrays of shape (n_rates, n_cells * n_classes)
        Numerator and denominator of each rate as weights of the flat histogram.
    weights : array of shape (n_bounds, n_rates)
    limits : array of shape (n_bounds,)
    n_cells, n_classes : int
        The shape of the histogram; classes are decisions.
    """

    bounds: tuple[Bound, ...]
    cells: NDArray[np.int64]
    above: Float64Array
    below: Float64Array
    weights: Float64Array
    limits: Float64Array

    n_cells: int = field(init=False)
    n_classes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_cells", int(self.cells.max()) + 1)
        object.__setattr__(self, "n_classes", self.cells.shape[1])

    def ratios(self, histogram: Float64Array, minimum: float = 1.0) -> Ratios:
        """Return every rate with its denominator, from which all else follows."""
        flat = histogram.ravel()
        below = self.below @ flat
        bounded = np.maximum(below, minimum)
        return Ratios((self.above @ flat) / bounded, bounded, below > minimum)

    def rates(self, histogram: Float64Array, minimum: float = 1.0) -> Float64Array:
        """Return each rate; denominators below the public `minimum` count as the minimum."""
        return self.ratios(histogram, minimum).rates

    def values(self, histogram: Float64Array, minimum: float = 1.0) -> Float64Array:
        """Return the left side of each bound."""
        return self.weights @ self.rates(histogram, minimum)

    def violation(self, histogram: Float64Array, minimum: float = 1.0) -> Float64Array:
        """Return by how much each bound is broken (negative: how much slack is left)."""
        return self.values(histogram, minimum) - self.limits

    def pull(self, histogram: Float64Array, multipliers: Float64Array, minimum: float = 1.0) -> Float64Array:
        """Return d(sum_j multiplier_j Gamma_j)/d(histogram), shape (n_cells, n_classes), by the quotient rule."""
        return self.pull_of(self.ratios(histogram, minimum), multipliers)

    def pull_of(self, ratios: Ratios, multipliers: Float64Array) -> Float64Array:
        """Return the pull where the rates are known already."""
        slopes = (multipliers @ self.weights) / ratios.below
        pulled = slopes @ self.above - (slopes * ratios.rates * ratios.is_free) @ self.below
        return pulled.reshape(-1, self.n_classes)

    def standard_errors(self, histogram: Float64Array, noise_variance: float, minimum: float = 1.0) -> Float64Array:
        """Return the standard error of each bound's left side from noise of this variance on every count.

        By the delta method: the derivative of a ratio n/d along a count is (above - rate below) / d.
        """
        ratios = self.ratios(histogram, minimum)
        slopes = (self.above - (ratios.rates * ratios.is_free)[:, None] * self.below) / ratios.below[:, None]
        return np.sqrt(noise_variance * np.square(self.weights @ slopes).sum(axis=1))

    def sampling_errors(self, histogram: Float64Array, minimum: float = 1.0) -> Float64Array:
        """Return the standard error of each bound's left side because the counted people are a sample.

        Rates of the same people are taken as independent; a rate near 0 or 1 is taken as 0.02 from it.
        """
        ratios = self.ratios(histogram, minimum)
        middle = np.clip(ratios.rates, 0.02, 0.98)
        return np.sqrt(np.square(self.weights) @ (middle * (1 - middle) / ratios.below))

    def smallest_denominators(self, histogram: Float64Array, minimum: float = 1.0) -> Float64Array:
        """Return the smallest denominator among the rates of each bound."""
        below = self.ratios(histogram, minimum).below
        return np.where(self.weights != 0, below, np.inf).min(axis=1)

    def has_enough_people(self, histogram: Float64Array, noise_variance: float) -> NDArray[np.bool_]:
        """Return which bounds are on enough people to be estimated: every denominator well above its own noise."""
        noise = np.sqrt(noise_variance * np.count_nonzero(self.below, axis=1))
        is_small = self.below @ histogram.ravel() < SMALLEST_GROUP + 3 * noise
        return ~((self.weights != 0) & is_small).any(axis=1)


def compile_bounds(bounds: Iterable[Bound], people: Population) -> HistogramConstraints:
    """Return the bounds, in their order, over the smallest partition of people that their rates need."""
    bounds = tuple(bounds)
    rates = list(dict.fromkeys(rate for bound in bounds for _, rate in bound.terms))
    if not rates:
        raise InvalidParameterError("Expected at least one rate to constrain, got none.")
    if len(bounds) > MAX_BOUNDS:
        raise InvalidParameterError(
            f"Expected at most {MAX_BOUNDS} bounds, got {len(bounds)}; compare groups against the rest, or attributes "
            "one by one."
        )
    for bound in bounds:
        least = sum(min(weight, 0.0) for weight, _ in bound.terms)
        if bound.limit < least:
            raise InvalidParameterError(
                f"Expected a bound that rates between 0 and 1 can meet, got {bound}; its left side is at least "
                f"{least:g}."
            )
    forms = np.array([rate.forms(people) for rate in rates])  # (R, 2, groups, labels, decisions)
    n_atoms = people.n_groups * people.n_classes
    by_atom = forms.transpose(0, 1, 4, 2, 3).reshape(-1, n_atoms)
    cells = smallest_partition(by_atom)
    first = np.array([np.flatnonzero(cells == cell)[0] for cell in range(cells.max() + 1)])
    tables = forms.reshape(len(rates), 2, n_atoms, people.n_classes)[:, :, first].reshape(len(rates), 2, -1)
    place = {rate: index for index, rate in enumerate(rates)}
    weights = np.zeros((len(bounds), len(rates)))
    for j, bound in enumerate(bounds):
        for weight, rate in bound.terms:
            weights[j, place[rate]] += weight
    return HistogramConstraints(
        bounds,
        cells.reshape(people.n_groups, people.n_classes),
        np.ascontiguousarray(tables[:, 0]),
        np.ascontiguousarray(tables[:, 1]),
        weights,
        np.array([bound.limit for bound in bounds]),
    )
