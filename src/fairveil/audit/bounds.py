"""Scores in, a lower bound on epsilon out: what draws with and without one record prove at a stated confidence.

`lower_bounds` compares two worlds, `one_run_bound` counts right guesses about many canaries of one run. What each one
proves, and under which assumption, stands in docs/proofs/audits.md.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv
from scipy.stats import binom

from fairveil._typing import Float64Array
from fairveil._validation import check_number
from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.events import Charge, Event
from fairveil.accounting.pricing import compositions_of, grid_for
from fairveil.errors import InvalidParameterError

THRESHOLDS = np.linspace(0.01, 0.99, 50)
"""The quantiles of the scores that are tried as thresholds."""

LARGEST_EPSILON = 50.0
"""No larger lower bound is searched for."""

SMALLEST_FACTOR, LARGEST_FACTOR = 1 / 64, 64.0
"""The multiples of the planned noise between which the bound by a plan's curve is searched."""

PRECISION = 0.01
"""How precisely, as a relative change of the noise."""


@dataclass(frozen=True)
class LowerBounds:
    """Two lower bounds on epsilon that hold together at the stated confidence.

    Attributes
    ----------
    free : float
        Assumes nothing about the mechanism.
    by_curve : float
        The epsilon of a plan that is like the claimed one but for the scale of all its noise, and whose outputs differ
        as much as was shown. Above the claim it disproves the claimed curve, without any assumption; below it is a
        lower bound for mechanisms that are the claimed one at some scale of noise.
    confidence : float
    """

    free: float
    by_curve: float
    confidence: float

    @property
    def best(self) -> float:
        """The larger one."""
        return max(self.free, self.by_curve)


def lower_bounds(
    with_canary: NDArray[np.floating],
    without: NDArray[np.floating],
    charges: Iterable[Charge | Event],
    delta: float,
    confidence: float = 0.999,
    threshold: float | None = None,
) -> LowerBounds:
    """Return lower bounds on the epsilon of a mechanism from scores of its outputs with and without one record.

    Parameters
    ----------
    with_canary, without : arrays of shape (n_draws,)
        One score for each independent run, high where the record seems to be there.
    charges : iterable of Charge or Event
        What the mechanism claims to release; none leaves only the bound that assumes nothing.
    delta : float
    confidence : float
        Of both bounds together.
    threshold : float, optional
        Where "with the record" begins, if that was fixed before any draw (0 for log-likelihood ratios); None lets the
        first fifth of the draws choose.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> from fairveil.accounting.events import GaussianRelease
    >>> found = lower_bounds(rng.normal(1, 1, 4000), rng.normal(0, 1, 4000), [GaussianRelease(1.0)], 1e-5)
    >>> 1.0 < found.free < found.by_curve < epsilon_of([GaussianRelease(1.0)], 1e-5)
    True
    """
    alpha = 1 - check_number("confidence", confidence, below=1)
    charges = tuple(charges)
    each = alpha / 2 if charges else alpha
    free = free_bound(with_canary, without, delta, each)
    if not charges:
        return LowerBounds(free, 0.0, confidence)
    shown = {0.0: advantage(with_canary, without, each, threshold)}
    return LowerBounds(free, curve_bound(shown, charges, delta), confidence)


# --- without any assumption -------------------------------------------------------------------------------------------


def free_bound(
    with_canary: NDArray[np.floating], without: NDArray[np.floating], delta: float, alpha: float = 1e-6
) -> float:
    """Return log((P[S] - delta) / Q[S]) for a set S that the first half of the scores chooses and the second counts.

    Both probabilities are bounded by Clopper and Pearson, together at confidence 1 - alpha.
    """
    half, best, chosen = _shared_length(with_canary, without) // 2, -math.inf, (1, False, 0.0)
    for sign, is_swapped in product((1, -1), (False, True)):
        one, other = _turned(with_canary, without, sign, is_swapped)
        thresholds = np.quantile(one[:half], THRESHOLDS)
        values = _certified(one[:half], other[:half], thresholds, delta, alpha)
        place = int(np.argmax(values))
        if values[place] > best:
            best, chosen = values[place], (sign, is_swapped, float(thresholds[place]))
    one, other = _turned(with_canary, without, *chosen[:2])
    return float(_certified(one[half:], other[half:], np.array([chosen[2]]), delta, alpha)[0])


def _shared_length(one: NDArray[np.floating], other: NDArray[np.floating]) -> int:
    if len(one) != len(other) or len(one) < 2:
        raise InvalidParameterError("Expected as many scores of both worlds, two at least, got others.")
    return len(one)


def _turned(
    one: NDArray[np.floating], other: NDArray[np.floating], sign: int, is_swapped: bool
) -> tuple[Float64Array, Float64Array]:
    first, second = (other, one) if is_swapped else (one, other)
    return sign * np.asarray(first, dtype=np.float64), sign * np.asarray(second, dtype=np.float64)


def _certified(
    one: Float64Array, other: Float64Array, thresholds: Float64Array, delta: float, alpha: float
) -> Float64Array:
    """Return log((P[S] - delta) / Q[S]) for the scores above each threshold, at least 0."""
    hits, falses = (len(scores) - np.searchsorted(np.sort(scores), thresholds, "right") for scores in (one, other))
    low = proportion_above(hits, len(one), alpha / 2) - delta
    high = 1 - proportion_above(len(other) - falses, len(other), alpha / 2)
    return np.log(np.maximum(low / high, 1.0))


def proportion_above(n_hits: Any, n_trials: int, alpha: float) -> Float64Array:
    """Return what proportions are at least, each at confidence 1 - alpha (Clopper and Pearson 1934)."""
    hits = np.asarray(n_hits, dtype=np.float64)
    return np.where(hits > 0, betaincinv(np.maximum(hits, 1.0), n_trials - hits + 1, alpha), 0.0)


# --- by the curve of a plan -------------------------------------------------------------------------------------------


def advantage(
    with_canary: NDArray[np.floating], without: NDArray[np.floating], alpha: float, threshold: float | None = None
) -> float:
    """Return a lower bound on the total variation distance of the worlds, at confidence 1 - alpha; at least 0.

    All draws of both worlds are guessed by one rule, and right guesses are counted together: of so many independent
    guesses, unlike in their chances, no more are right than if all had the mean chance (Hoeffding 1956).
    """
    n_draws, start, sign = _shared_length(with_canary, without), 0, 1
    if threshold is None:
        start = max(1, n_draws // 5)
        tried = np.unique(np.quantile(np.concatenate([with_canary[:start], without[:start]]), THRESHOLDS))
        rights = [np.sum(with_canary[:start] > one) - np.sum(without[:start] > one) for one in tried]
        place = int(np.argmax(np.abs(rights)))
        threshold, sign = float(tried[place]), 1 if rights[place] >= 0 else -1
    above, below = np.sum(with_canary[start:] > threshold), np.sum(without[start:] <= threshold)
    n_right, n_guesses = int(above + below), 2 * (n_draws - start)
    n_right = n_right if sign > 0 else n_guesses - n_right
    return max(0.0, 2 * float(proportion_above(n_right, n_guesses, alpha)) - 1)


SCALES = {"noise_multiplier", "scale", "std"}
"""The fields of events that state how much noise there is."""


def scaled_event(event: Event, factor: float) -> Event:
    """Return the same event with all its noise times a factor."""
    changes: dict[str, object] = {}
    for field in fields(event):
        value = getattr(event, field.name)
        if field.name in SCALES:
            changes[field.name] = value * factor
        elif field.name == "event":
            changes[field.name] = scaled_event(value, factor)
        elif field.name == "releases":
            changes[field.name] = tuple(scaled_event(one, factor) for one in value)
        elif field.name == "ways":
            changes[field.name] = tuple(tuple(scaled_event(one, factor) for one in way) for way in value)
    return replace(event, **changes)


def scaled_charges(charges: Iterable[Charge | Event], factor: float) -> list[Charge | Event]:
    """Return the same charges with all their noise times a factor."""
    return [
        replace(one, event=scaled_event(one.event, factor)) if isinstance(one, Charge) else scaled_event(one, factor)
        for one in charges
    ]


def excess(
    with_canary: NDArray[np.floating], without: NDArray[np.floating], epsilon: float, alpha: float, threshold: float
) -> float:
    """Return a lower bound on P[S] - e^epsilon Q[S], S the scores above a threshold that was fixed before any draw."""
    hits, falses = (int(np.sum(scores > threshold)) for scores in (with_canary, without))
    n_draws = _shared_length(with_canary, without)
    low, miss = (float(proportion_above(count, n_draws, alpha / 2)) for count in (hits, n_draws - falses))
    return max(0.0, low - math.exp(epsilon) * (1 - miss))


def allowed_excess(
    charges: Iterable[Charge | Event], epsilons: Sequence[float], shares: Mapping[str, float] | None = None
) -> Float64Array:
    """Return the delta that charges claim at each epsilon; at epsilon = 0 it is a total variation distance.

    With the `shares` of the parts of a secret split, in one of which the record is by its own coin, it is at most the
    mean over the parts (the divergence is convex); without them, that of the worst part.
    """
    charges = tuple(charges)
    parts = dict.fromkeys(one.part for one in charges if isinstance(one, Charge) and one.split)
    if not parts or shares is None:
        return _claimed_deltas(charges, epsilons)
    events = [(one.part, one.event) if isinstance(one, Charge) else ("", one) for one in charges]
    each = [_claimed_deltas([event for own, event in events if own in {"", part}], epsilons) for part in parts]
    return np.array([shares[part] for part in parts]) @ np.array(each)


def _claimed_deltas(charges: Iterable[Charge | Event], epsilons: Sequence[float]) -> Float64Array:
    """Return delta at each epsilon, on one grid that resolves the whole curve; never too low."""
    cases = compositions_of(charges)
    rough = cases.magnitude
    priced = cases.priced(grid_for(math.sqrt(rough.variance), rough))
    return np.max([losses.hockey_stick(np.array(epsilons)) for _, losses in priced], axis=0)


def curve_bound(
    shown: Mapping[float, float],
    charges: Iterable[Charge | Event],
    delta: float,
    shares: Mapping[str, float] | None = None,
) -> float:
    """Return the epsilon at `delta` of the charges at the least noise that allows less than was shown; 0 if none.

    `shown` holds lower bounds on delta by epsilon: an `advantage` at 0, an `excess` elsewhere. `shares` are those of
    the parts of a secret split, as in `allowed_excess`.
    """
    charges, epsilons, deltas = tuple(charges), list(shown), np.array(list(shown.values()))

    def is_refuted(log_factor: float) -> bool:
        return bool(np.any(allowed_excess(scaled_charges(charges, math.exp(log_factor)), epsilons, shares) < deltas))

    low, high = math.log(SMALLEST_FACTOR), math.log(LARGEST_FACTOR)
    if not np.any(deltas > 0) or not is_refuted(high):
        return 0.0
    while high - low > PRECISION:
        middle = (low + high) / 2
        low, high = (low, middle) if is_refuted(middle) else (middle, high)
    return epsilon_of(scaled_charges(charges, math.exp(high)), delta)


# --- many canaries in one run -----------------------------------------------------------------------------------------


def one_run_p_value(n_canaries: int, n_guesses: int, n_right: int, epsilon: float, delta: float) -> float:
    """Return a bound on the probability of so many right guesses under (epsilon, delta)-privacy.

    Each canary is in or out by its own fair coin; of the rest the guesser abstains (Steinke, Nasr and Jagielski 2023,
    Theorem 5.2).

    Examples
    --------
    >>> round(one_run_p_value(100, 100, 60, 0.0, 0.0), 4)
    0.0284
    """
    if not 0 <= n_right <= n_guesses <= n_canaries:
        raise InvalidParameterError(
            f"Expected 0 <= right <= guesses <= canaries, got {n_right}, {n_guesses} and {n_canaries}."
        )
    truth = 1 / (1 + math.exp(-epsilon))
    chance = float(binom.sf(n_right - 1, n_guesses, truth))
    below = np.cumsum(binom.pmf(np.arange(n_right - 1, -1, -1), n_guesses, truth))
    slope = float(np.max(below / np.arange(1, n_right + 1), initial=0.0))
    return min(1.0, chance + 2 * n_canaries * delta * slope)


def one_run_bound(
    scores: NDArray[np.floating],
    is_in: NDArray[np.bool_],
    n_guesses: int,
    delta: float,
    confidence: float = 0.999,
) -> float:
    """Return a lower bound on epsilon from one run in which each canary was in or out by its own fair coin.

    The highest half of the `n_guesses` most extreme scores are guessed to be in, the lowest half to be out; how many
    guesses are made must be fixed before the scores are seen.

    Parameters
    ----------
    scores : array of shape (n_canaries,)
        High for canaries that seem to be in.
    is_in : array of shape (n_canaries,)
        The coins.
    n_guesses : int
        At most the number of canaries.
    delta, confidence : float
    """
    alpha, scores = 1 - check_number("confidence", confidence, below=1), np.asarray(scores, dtype=np.float64)
    order, n_low = np.argsort(scores, kind="stable"), n_guesses // 2
    n_right = int(np.sum(~is_in[order[:n_low]]) + np.sum(is_in[order[len(order) - (n_guesses - n_low) :]]))

    def is_refuted(epsilon: float) -> bool:
        return one_run_p_value(len(scores), n_guesses, n_right, epsilon, delta) < alpha

    if not is_refuted(0.0):
        return 0.0
    low, high = 0.0, LARGEST_EPSILON
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low
