"""Public numbers -> the tolerance that will probably be certified, before any data is touched."""

from collections.abc import Sequence

import numpy as np

from fairveil._validation import check_integer, check_positive
from fairveil.errors import InvalidParameterError
from fairveil.fairness.histogram import SMALLEST_GROUP
from fairveil.fairness.intervals import LeftSide


def expected_tolerance(
    n_rows: float,
    n_groups: int,
    noise_std: float,
    aimed_gap: float,
    confidence: float = 0.95,
    n_cells: int = 4,
) -> float:
    """Return what will probably be certified of a difference between equal groups, each selected half the time.

    A rate of one half varies most, so that real rates do better; there is an even chance of this or less when the
    measured gap is as likely above as below the one aimed for.

    Parameters
    ----------
    n_rows, n_groups : float, int
        Held-out rows and the groups they fall into, evenly.
    noise_std : float
        The standard deviation of the noise on each count.
    aimed_gap : float
        The gap that the rule is made for.
    confidence : float
    n_cells : int
        Counts a group: labels times decisions.

    Examples
    --------
    >>> round(expected_tolerance(7326, 2, 3.7, 0.01), 3)
    0.03
    """
    check_positive("n_rows", n_rows)
    check_integer("n_groups", n_groups, at_least=2)
    return expected_tolerance_of_sizes(
        [n_rows / n_groups] * n_groups, noise_std, aimed_gap, confidence, n_cells
    )


def expected_tolerance_of_sizes(
    sizes: Sequence[float], noise_std: float, aimed_gap: float, confidence: float = 0.95, n_cells: int = 4
) -> float:
    """Return what will probably be certified of groups of these public sizes: the two smallest are the hardest.

    Examples
    --------
    >>> round(expected_tolerance_of_sizes([2400, 4900], 3.7, 0.01), 3)
    0.031
    """
    if len(sizes) < 2 or not all(np.isfinite(size) and size >= 0 for size in sizes):
        raise InvalidParameterError(
            f"Expected the sizes of two groups or more, got {list(sizes)!r}; state each."
        )
    if not (np.isfinite(noise_std) and noise_std >= 0 and 0 <= aimed_gap <= 1):
        raise InvalidParameterError(
            f"Expected noise_std >= 0 and 0 <= aimed_gap <= 1, got {noise_std!r} and {aimed_gap!r}."
        )
    check_confidence(confidence)
    check_integer("n_cells", n_cells, at_least=2)
    hardest = np.sort(np.asarray(sizes, dtype=float))[:2]
    if hardest[0] < SMALLEST_GROUP + 3 * noise_std * np.sqrt(n_cells):
        return 1.0
    noise = np.full(2, noise_std**2 * n_cells / 2)
    rates = np.array([0.5 + aimed_gap / 2, 0.5 - aimed_gap / 2])
    return float(LeftSide(np.array([1.0, -1.0]), rates, hardest, noise, noise).upper(confidence))


def check_confidence(confidence: float) -> float:
    """Return a confidence of at least one half and below one."""
    if not (isinstance(confidence, (int, float, np.floating)) and 0.5 <= confidence < 1):
        raise InvalidParameterError(f"Expected 0.5 <= confidence < 1, got {confidence!r}; 0.95 is usual.")
    return float(confidence)
