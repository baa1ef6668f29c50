"""What runs on common splits say: means, Pareto frontiers, dominated areas, accuracy at a gap, paired tests.

Pure functions of numbers. Intervals come from seeds, that is from splits and noise together, by leaving out one seed at
a time (the jackknife); of a mean that is the usual t interval. Frontiers, areas and the best accuracy at a gap are
those of means over all seeds, which selects among points by figures on test rows: with many points, this flatters.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; None where it is unknown."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def to_dict(self) -> dict[str, float | None]:
        """Return it as summaries write intervals."""
        return {"value": self.value, "low": self.low, "high": self.high}


def jackknife(
    statistic: Callable[[NDArray[np.int64]], float | None], n: int, confidence: float = CONFIDENCE
) -> Estimate:
    """Return a statistic of seeds with its t interval by the jackknife; no interval for fewer than two seeds.

    Parameters
    ----------
    statistic : callable
        Takes the places of the seeds that count, and returns a number or None.
    n : int
        How many seeds there are.
    confidence : float

    Examples
    --------
    >>> values = np.array([1.0, 2.0, 4.0])
    >>> round(jackknife(lambda seeds: values[seeds].mean(), 3).value, 3)
    2.333
    """
    everything = np.arange(n)
    value = statistic(everything) if n else None
    if value is None or n < 2:
        return Estimate(value)
    value = float(value)
    without = [statistic(np.delete(everything, place)) for place in range(n)]
    known = np.array([one for one in without if one is not None], dtype=float)
    if len(known) < n:
        return Estimate(value)
    error = math.sqrt((n - 1) / n * float(np.sum((known - known.mean()) ** 2)))
    half = float(stats.t.ppf((1 + confidence) / 2, n - 1)) * error
    return Estimate(value, value - half, value + half)


def mean_of(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Return a mean with its t interval.

    Examples
    --------
    >>> mean_of([0.5]).high is None
    True
    """
    found = np.asarray(values, dtype=float)
    return jackknife(lambda seeds: float(found[seeds].mean()), len(found), confidence)


# --- frontiers --------------------------------------------------------------------------------------------------------


def pareto(gaps: Sequence[float], accuracies: Sequence[float]) -> list[int]:
    """Return the places of the points that no other one surpasses, by increasing gap.

    Examples
    --------
    >>> pareto([0.1, 0.0, 0.2, 0.15], [0.8, 0.7, 0.85, 0.75])
    [1, 0, 2]
    """
    found: list[int] = []
    for place in sorted(range(len(gaps)), key=lambda one: (gaps[one], -accuracies[one])):
        if not found or accuracies[place] > accuracies[found[-1]]:
            found.append(place)
    return found


def accuracy_at(gaps: Sequence[float], accuracies: Sequence[float], limit: float) -> float | None:
    """Return the best accuracy of a point whose gap is at most `limit`; None if there is none.

    Examples
    --------
    >>> accuracy_at([0.1, 0.0], [0.8, 0.7], 0.05), accuracy_at([0.1], [0.8], 0.05)
    (0.7, None)
    """
    return max((one for gap, one in zip(gaps, accuracies, strict=True) if gap <= limit), default=None)


def dominated_area(
    gaps: Sequence[float], accuracies: Sequence[float], reference_gap: float, reference_accuracy: float
) -> float:
    """Return the area that points dominate (the hypervolume), over the width of the gaps that count.

    It is the mean, over gaps from 0 to `reference_gap`, of how far the best accuracy at that gap is above
    `reference_accuracy`, and 0 where no point is that fair or that accurate.

    Examples
    --------
    >>> dominated_area([0.0, 0.1], [0.75, 0.85], 0.2, 0.7).__round__(6)
    0.1
    """
    area, best, start = 0.0, 0.0, 0.0
    for place in pareto(gaps, accuracies):
        if gaps[place] >= reference_gap:
            break
        area += best * (max(gaps[place], 0.0) - start)
        start, best = max(gaps[place], 0.0), max(accuracies[place] - reference_accuracy, 0.0)
    return (area + best * (reference_gap - start)) / reference_gap


# --- paired tests -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairedTest:
    """Differences split by split: their mean with its interval, and how probable so large a one is by chance.

    Attributes
    ----------
    difference : Estimate
    p : float or None
        Of the test that was chosen, two-sided; None for fewer than two splits.
    n : int
        Common splits.
    """

    difference: Estimate
    p: float | None
    n: int


def paired_t(differences: Sequence[float], test_over_train: float = 0.0) -> PairedTest:
    """Return the paired t test.

    Parameters
    ----------
    differences : sequence of float
        One for each split.
    test_over_train : float
        Test rows for each training row. Random splits of one table share rows, so differences are not independent;
        their variance is taken (1/n + test_over_train) times instead of 1/n times (Nadeau and Bengio 2003). 0 gives
        the plain test.
    """
    found = np.asarray(differences, dtype=float)
    n = len(found)
    if n < 2:
        return PairedTest(Estimate(float(found[0]) if n else None), None, n)
    mean, deviation = float(found.mean()), float(found.std(ddof=1))
    error = deviation * math.sqrt(1 / n + test_over_train)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) * error
    if error == 0:
        return PairedTest(Estimate(mean, mean, mean), 1.0 if mean == 0 else 0.0, n)
    p = 2 * float(stats.t.sf(abs(mean) / error, n - 1))
    return PairedTest(Estimate(mean, mean - half, mean + half), p, n)


def wilcoxon(differences: Sequence[float]) -> PairedTest:
    """Return Wilcoxon's signed-rank test, exact where no ranks are tied; fewer than six splits cannot reach 5 %."""
    found = np.asarray(differences, dtype=float)
    if len(found) < 2 or not found.any():
        return PairedTest(mean_of(found.tolist()), None if len(found) < 2 else 1.0, len(found))
    return PairedTest(mean_of(found.tolist()), float(stats.wilcoxon(found).pvalue), len(found))


def holm(ps: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's step-down method: one family, any dependence.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    found, largest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda one: ps[one])):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[place]))
        found[place] = largest
    return found
