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
    bounds: HistogramConstraints, sizes: Floats, sums: Floats, size_variance: float, sum_variance: float
) -> tuple[float | None, float | None]:
    """Return the largest left side among bounds on enough people to speak of, and its error from noise and people.

    `sizes` and `sums` as in `smooth_histogram`, with the variances of their noise. Where there is nothing to speak of,
    both are unknown.
    """
    histogram = smooth_histogram(bounds, sizes, sums)
    told = bounds.is_told(histogram, size_variance / 4 + sum_variance)
    if not told.any():
        return None, None
    values = np.where(told, bounds.values(histogram), -np.inf)
    place = int(values.argmax())
    slopes = bounds.pull(histogram, np.eye(len(values))[place])[bounds.cells[bounds.cells >= 0]]
    # a size moves both decisions by a half each, a sum moves one against the other
    by_size, by_sum = slopes.sum(axis=1) / 2, slopes[:, 1] - slopes[:, 0]
    noise = float(np.sqrt(size_variance * by_size @ by_size + sum_variance * by_sum @ by_sum))
    return float(values[place]), float(np.hypot(noise, bounds.sampling_errors(histogram)[place]))
