"""Counts in, cut points and categories out: pure functions that do not care whether the counts are noisy.

Fed with exact counts they make a draft that is as private as the rows; fed with counts that were released
with noise they are free post-processing. The grid of round numbers depends on public bounds alone.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["bounds_outward", "categories_from_counts", "cuts_from_histogram", "round_grid"]

N_BINS = 10
MIN_CATEGORY_ROWS = 10
MAX_CATEGORIES = 100
_ROUND_DIGITS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
_DECADES = 5


def bounds_outward(low: float, high: float) -> tuple[float, float]:
    """Return bounds that hold [low, high], rounded outward to two significant digits.

    Examples
    --------
    >>> bounds_outward(17, 1234)
    (17.0, 1300.0)
    """
    bottom, top = _rounded(low, math.floor), _rounded(high, math.ceil)
    return (bottom, top) if bottom < top else (bottom, bottom + (abs(bottom) or 1.0))


def _rounded(value: float, towards: Callable[[float], int]) -> float:
    if value == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return float(f"{towards(value / step) * step:.2g}")


def round_grid(low: float, high: float) -> NDArray[np.float64]:
    """Return increasing round numbers from low to high: a hundred even steps, and finer ones towards zero."""
    step = 10.0 ** math.floor(math.log10((high - low) / 10)) / 10
    even = np.arange(math.ceil(low / step), math.floor(high / step) + 1) * step
    decade = math.floor(math.log10(max(abs(low), abs(high))))
    sizes = [digit * 10.0 ** (decade - down) for down in range(_DECADES) for digit in _ROUND_DIGITS]
    numbers = {float(f"{number:.12g}") for number in [*even, 0.0, *sizes, *(-size for size in sizes)]}
    return np.array([low, *sorted(number for number in numbers if low < number < high), high])


def cuts_from_histogram(
    edges: Sequence[float] | NDArray[np.float64],
    counts: Sequence[float] | NDArray[np.float64],
    n_bins: int = N_BINS,
) -> tuple[float, ...]:
    """Return at most `n_bins - 1` interior edges that cut the counts into parts as equal as the edges allow.

    Parameters
    ----------
    edges : increasing floats
        The grid, one more than counts.
    counts : floats
        How many rows fall between neighbouring edges; negative (noisy) counts are taken as zero.
    n_bins : int
        The most bins to make.

    Examples
    --------
    >>> cuts_from_histogram([0, 1, 2, 3, 4], [10, 10, 10, 10], n_bins=2)
    (2.0,)
    """
    mass = np.cumsum(np.clip(np.asarray(counts, dtype=float), 0, None))
    if len(mass) < 2 or mass[-1] <= 0:
        return ()
    shares = mass[:-1] / mass[-1]  # the share of rows below each interior edge
    interior, chosen, below = np.asarray(edges, dtype=float)[1:-1], [], 0.0
    for n_left in range(n_bins, 1, -1):
        is_useful = (shares > below) & (shares < 1)
        if not is_useful.any():
            break
        # A value so frequent that it fills several bins takes one; the others share the rest.
        step = (1 - below) / n_left
        index = _roundest(interior, np.where(is_useful, np.abs(shares - below - step), np.inf), step / 10)
        chosen.append(float(interior[index]))
        below = shares[index]
    return tuple(chosen)


def _roundest(edges: NDArray[np.float64], distances: NDArray[np.float64], slack: float) -> int:
    near = np.flatnonzero(distances <= distances.min() + slack)
    return int(min(near, key=lambda index: (*_roughness(float(edges[index])), distances[index], index)))


def _roughness(number: float) -> tuple[bool, int]:
    n_digits = len(f"{abs(number):.11e}".split("e")[0].rstrip("0")) if number else 0
    return not number.is_integer(), n_digits


def categories_from_counts(
    counts: Mapping[str, float], at_least: float = MIN_CATEGORY_ROWS, at_most: int = MAX_CATEGORIES
) -> tuple[str, ...]:
    """Return the categories counted often enough, the most frequent `at_most` of them, in natural order.

    Examples
    --------
    >>> categories_from_counts({"10": 20, "9": 30, "rare": 2})
    ('9', '10')
    """
    frequent = sorted(
        (name for name in counts if counts[name] >= at_least), key=lambda name: (-counts[name], name)
    )
    return tuple(sorted(frequent[:at_most], key=_natural))


def _natural(name: str) -> tuple[int, float, str]:
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name
