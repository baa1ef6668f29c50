"""Smooth decisions as a histogram: sums of probabilities in the place of counts, so that every rate can be read."""

import numpy as np
from numpy.typing import NDArray

from fairveil.fairness.histogram import HistogramConstraints

__all__ = ["largest_gap", "smooth_histogram"]

Floats = NDArray[np.float64]


def smooth_histogram(bounds: HistogramConstraints, sizes: Floats, sums: Floats) -> Floats:
    """Return (cell x class) sums from the people of each (group, label) and sums of P(class 1) - 1/2 among them.

    Examples
    --------
    >>> from fairveil.fairness.cells import Attribute, Population
    >>> from fairveil.fairness.constraints import DemographicParity, constrain
    >>> people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    >>> bounds = constrain(DemographicParity(), people)
    >>> sizes, sums = np.array([[6.0, 4.0], [5.0, 5.0], [0.0, 0.0]]), np.array([[0.0, 2.0], [-3.0, 0.0], [0.0, 0.0]])
    >>> smooth_histogram(bounds, sizes, sums).tolist()
    [[3.0, 7.0], [8.0, 2.0]]
    """
    table = np.zeros((bounds.n_cells, 2))
    counted = bounds.cells >= 0
    ones = sizes / 2 + sums
    np.add.at(table, bounds.cells[counted], np.stack([sizes - ones, ones], axis=-1)[counted])
    return table


def largest_gap(
    bounds: HistogramConstraints, histogram: Floats, noise_variance: float
) -> tuple[float | None, float | None]:
    """Return the largest left side among bounds on enough people to speak of, and its error from noise and people.

    Where there is nothing to speak of, both are unknown.
    """
    told = bounds.is_told(histogram, noise_variance)
    if not told.any():
        return None, None
    values = np.where(told, bounds.values(histogram), -np.inf)
    place = int(values.argmax())
    noise = bounds.standard_errors(histogram, noise_variance)[place]
    people = bounds.sampling_errors(histogram)[place]
    return float(values[place]), float(np.hypot(noise, people))
