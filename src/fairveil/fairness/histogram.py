"""Constraints over a (cell x class) histogram, in closed form: rates, violations, and their pull on every count."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float64Array
from fairveil.errors import InvalidParameterError
from fairveil.fairness.groups import Population, smallest_partition
from fairveil.fairness.rates import Rate

MOST_BOUNDS = 10_000
SMALLEST_GROUP = 5.0


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
        words = ""
        for weight, rate in self.terms:
            sign = ("-" if weight < 0 else "") if not words else (" - " if weight < 0 else " + ")
            size = "" if abs(weight) == 1 else f"{_written(abs(weight))} * "
            words += f"{sign}{size}{rate}"
        return f"{words} <= {_written(self.limit)}"


def _written(number: float) -> str:
    """Return the shortest text that reads back as this very number."""
    short = f"{number:g}"
    return short if float(short) == number else repr(float(number))


@dataclass(frozen=True, eq=False)
class HistogramConstraints:
    """Bounds made ready for a histogram: everything costs O(rates x cells x classes), whatever the number of rows.

    Attributes
    ----------
    bounds : tuple of Bound
        The inequalities j = 0 .. J-1.
    cells : array of shape (groups, labels)
        The cell of each atom, -1 for atoms that no rate counts.
    above, below : arrays of shape (R, cells x classes)
        Numerator and denominator of each rate as weights of the flat histogram.
    weights, limits : arrays of shape (J, R) and (J,)
    """

    bounds: tuple[Bound, ...]
    cells: NDArray[np.int64]
    above: Float64Array
    below: Float64Array
    weights: Float64Array
    limits: Float64Array

    @cached_property
    def n_cells(self) -> int:
        """The number of cells."""
        return int(self.cells.max()) + 1

    @property
    def n_classes(self) -> int:
        """The number of decisions."""
        return self.cells.shape[1]

    def ratios(self, histogram: Float64Array, floor: float = 1.0) -> "Ratios":
        """Return every rate with its denominator, from which all else follows."""
        flat = histogram.ravel()
        below = self.below @ flat
        floored = np.maximum(below, floor)
        return Ratios((self.above @ flat) / floored, floored, below > floor)

    def rates(self, histogram: Float64Array, floor: float = 1.0) -> Float64Array:
        """Return each rate; denominators below the public `floor` are taken as the floor."""
        return self.ratios(histogram, floor).rates

    def values(self, histogram: Float64Array, floor: float = 1.0) -> Float64Array:
        """Return the left side of each bound."""
        return self.weights @ self.rates(histogram, floor)

    def violation(self, histogram: Float64Array, floor: float = 1.0) -> Float64Array:
        """Return by how much each bound is broken (negative: how much room is left)."""
        return self.values(histogram, floor) - self.limits

    def pull(self, histogram: Float64Array, multipliers: Float64Array, floor: float = 1.0) -> Float64Array:
        """Return d(sum_j multiplier_j Gamma_j)/d(histogram), shape (cells, classes), by the quotient rule."""
        return self.pull_of(self.ratios(histogram, floor), multipliers)

    def pull_of(self, ratios: "Ratios", multipliers: Float64Array) -> Float64Array:
        """Return the pull where the rates are known already."""
        slopes = (multipliers @ self.weights) / ratios.below
        pulled = slopes @ self.above - (slopes * ratios.rates * ratios.is_free) @ self.below
        return pulled.reshape(-1, self.n_classes)

    def standard_errors(
        self, histogram: Float64Array, noise_variance: float, floor: float = 1.0
    ) -> Float64Array:
        """Return the standard error of each bound's left side from noise of this variance on every count.

        By the delta method: the derivative of a ratio n/d along a count is (above - rate below) / d.
        """
        ratios = self.ratios(histogram, floor)
        slopes = (self.above - (ratios.rates * ratios.is_free)[:, None] * self.below) / ratios.below[:, None]
        return np.sqrt(noise_variance * np.square(self.weights @ slopes).sum(axis=1))

    def sampling_errors(self, histogram: Float64Array, floor: float = 1.0) -> Float64Array:
        """Return the standard error of each bound's left side because the counted people are a sample.

        Rates of the same people are taken as independent; a rate near 0 or 1 is taken as 0.02 from it.
        """
        ratios = self.ratios(histogram, floor)
        middle = np.clip(ratios.rates, 0.02, 0.98)
        return np.sqrt(np.square(self.weights) @ (middle * (1 - middle) / ratios.below))

    def smallest_parts(self, histogram: Float64Array, floor: float = 1.0) -> Float64Array:
        """Return the smallest denominator among the rates of each bound."""
        below = self.ratios(histogram, floor).below
        return np.where(self.weights != 0, below, np.inf).min(axis=1)

    def is_told(self, histogram: Float64Array, noise_variance: float) -> NDArray[np.bool_]:
        """Return which bounds are on enough people to speak of: every denominator well above its own noise."""
        noise = np.sqrt(noise_variance * np.count_nonzero(self.below, axis=1))
        is_small = self.below @ histogram.ravel() < SMALLEST_GROUP + 3 * noise
        return ~((self.weights != 0) & is_small).any(axis=1)


class Ratios(NamedTuple):
    """Rates, their denominators, and which of these are above the floor (a floor has no slope)."""

    rates: Float64Array
    below: Float64Array
    is_free: NDArray[np.bool_]


def _check_possible(bound: Bound) -> None:
    least = sum(min(weight, 0.0) for weight, _ in bound.terms)
    if bound.limit < least:
        raise InvalidParameterError(
            f"Expected a bound that rates between 0 and 1 can meet, got {bound}; its left side is at least {least:g}."
        )


def compile_bounds(bounds: Iterable[Bound], people: Population) -> HistogramConstraints:
    """Return the bounds, in their order, over the smallest partition of people that their rates need."""
    bounds = tuple(bounds)
    rates = list(dict.fromkeys(rate for bound in bounds for _, rate in bound.terms))
    if not rates:
        raise InvalidParameterError("Expected at least one rate to constrain, got none.")
    if len(bounds) > MOST_BOUNDS:
        raise InvalidParameterError(
            f"Expected at most {MOST_BOUNDS} bounds, got {len(bounds)}; compare groups against the rest, or attributes "
            "one by one."
        )
    for bound in bounds:
        _check_possible(bound)
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
