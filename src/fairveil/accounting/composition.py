"""Events in, (epsilon, delta) out: the cost of everything that one record may meet, and the least noise for a budget.

`epsilon_of` and `delta_of` read the cost off the privacy loss distributions of the worst composition (`pricing`).
`calibrate` goes the other way: one unknown scale of noise, approached from the private side.
"""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np

from fairveil._typing import Float64Array
from fairveil._validation import check_number
from fairveil.accounting.events import Charge, Event
from fairveil.accounting.pld import Losses
from fairveil.accounting.pricing import (
    NeighboringRelation,
    compositions_of,
    grid_for,
    normal_epsilon,
)
from fairveil.errors import InvalidParameterError

COARSE_FIRST = 4.0
"""The first grid is this much coarser than the estimate needs; it only serves to place the second."""

GRID_SLACK = 1.25
"""A grid that would suit an answer this much larger is left as it is."""

MAX_PASSES = 3
"""How often the grid follows the answer it gave."""


def epsilon_of(
    charges: Iterable[Charge | Event],
    delta: float,
    relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
    *,
    expected: float | None = None,
) -> float:
    """Return the epsilon of everything released together.

    Parameters
    ----------
    charges : iterable of Charge or Event
        What was released; a bare event read the whole data. Parts of one split compose in parallel, all else
        in sequence.
    delta : float
        The delta at which epsilon is stated.
    relation : NeighboringRelation
        Add or remove one record, or replace one. Where the latter has no price of its own (sampled noise that
        is not Gaussian), group privacy of size two stands in for the whole.
    expected : float, optional
        Use the one grid that suits an answer of this size: faster, and elsewhere less tight, but never too low.

    Returns
    -------
    float
        An upper bound, at most about 0.03 % above the exact value for delta down to 1e-9; 0 if nothing was
        released; infinite if something was released without a guarantee, or if delta is below the rounding of
        the computation (4e-17 for each use).

    Examples
    --------
    >>> from fairveil.accounting.events import GaussianRelease, PoissonSampled, Repeated
    >>> steps = Repeated(PoissonSampled(0.02, GaussianRelease(2.0)), 500)
    >>> round(epsilon_of([steps], delta=1e-5), 3)
    0.921
    """
    return _priced_epsilon(tuple(charges), check_number("delta", delta, below=1), relation, expected)


@lru_cache(maxsize=1024)  # one plan is priced when it is explained, made, debited and reported
def _priced_epsilon(
    charges: tuple[Charge | Event, ...], delta: float, relation: NeighboringRelation, expected: float | None
) -> float:
    cases = compositions_of(charges, relation)
    rough = cases.magnitude
    if rough.n_uses == 0 or math.isinf(rough.variance):
        return rough.variance
    # the estimate only places the first grid; every answer comes from the distributions themselves
    spread = math.sqrt(rough.variance)
    estimate = normal_epsilon(spread, delta)
    first = max(COARSE_FIRST * estimate, spread) if expected is None else max(expected, estimate / 8)
    grid = grid_for(first, rough)
    # pure epsilons add up (and double if a record is replaced) without any grid: 0.7 and 0.3 make 1
    doubling = 2 if relation is NeighboringRelation.REPLACE_ONE else 1
    answer = math.inf
    for _ in range(1 + MAX_PASSES):
        costs = []
        for pure, losses in cases.priced(grid):
            is_own_price = cases.relation is relation
            cost = losses.smallest_epsilon(delta) if is_own_price else two_step_epsilon(losses, delta)
            costs.append(min(doubling * pure, cost))
        answer = max(costs)
        is_settled = not 0 < answer < math.inf or grid <= grid_for(GRID_SLACK * answer, rough)
        if is_settled or expected is not None:
            break
        grid = grid_for(answer, rough)
    return answer


def delta_of(
    charges: Iterable[Charge | Event],
    epsilon: float,
    relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> float:
    """Return the delta of everything released together at this epsilon; the twin of `epsilon_of`."""
    if not epsilon >= 0:
        raise InvalidParameterError(f"Expected epsilon >= 0, got {epsilon!r}.")
    cases = compositions_of(charges, relation)
    rough = cases.magnitude
    if rough.n_uses == 0 or math.isinf(rough.variance):
        return float(rough.variance > 0)
    # delta moves faster than epsilon, so it needs a finer grid
    grid = grid_for(max(min(epsilon, 1e6), math.sqrt(rough.variance)) / 4, rough)
    priced = cases.priced(grid)
    if cases.relation is relation:
        return max(float(losses.hockey_stick(np.array([epsilon]))[0]) for _, losses in priced)
    half = np.array([epsilon / 2])
    return max(math.exp(min(0.0, _group_log_delta(losses, half)[0])) for _, losses in priced)


def two_step_epsilon(losses: Losses, delta: float) -> float:
    """Return the epsilon for replacing one record from the losses of adding or removing one.

    Two steps that are (e, d)-private make one that is (2 e, (1 + e^e) d)-private; the smallest e that fits.
    """
    grid, top = losses.remove.grid, max(losses.remove.losses[-1], losses.add.losses[-1])
    coarse = np.arange(0, math.ceil(top / grid) + 1) * grid
    fits = np.flatnonzero(_group_log_delta(losses, coarse) <= math.log(delta))
    if len(fits) == 0 or fits[0] == 0:
        return math.inf if len(fits) == 0 else 0.0
    fine = np.linspace(coarse[fits[0] - 1], coarse[fits[0]], 257)
    fits = np.flatnonzero(_group_log_delta(losses, fine) <= math.log(delta))
    return 2 * float(fine[fits[0]]) if len(fits) else 2 * float(fine[-1])


def _group_log_delta(losses: Losses, epsilons: Float64Array) -> Float64Array:
    """Return log((1 + e^epsilon) H(epsilon)), safe where the factor is huge."""
    heights = np.maximum(losses.hockey_stick(epsilons), 1e-300)
    return np.logaddexp(0.0, epsilons) + np.log(heights)


LOWEST, HIGHEST = math.log(1e-6), math.log(1e12)
"""Scales outside are not searched (as logarithms)."""

SLACK = 6e-5
"""How far above the least scale the answer may lie, relatively."""

MAX_EVALUATIONS = 80

ChargesAt = Callable[[float], Iterable[Charge | Event]]


def calibrate(
    charges_at: ChargesAt,
    epsilon: float,
    delta: float,
    relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> float:
    """Return the smallest scale at which a plan costs at most epsilon, to about 1e-4 and never below.

    Parameters
    ----------
    charges_at : callable
        Returns the charges of the plan at a scale; a larger scale must mean more noise.
    epsilon, delta : float
        The budget of the whole plan.
    relation : NeighboringRelation
        The neighboring relation under which the budget is meant.

    Raises
    ------
    InvalidParameterError
        If no scale is enough, because events that do not depend on it already cost more.

    Examples
    --------
    >>> from fairveil.accounting.events import GaussianRelease, PoissonSampled, Repeated
    >>> steps = lambda z: [Repeated(PoissonSampled(0.064, GaussianRelease(z)), 100)]
    >>> round(calibrate(steps, epsilon=1.0, delta=1e-5), 3)
    2.638
    """
    epsilon, delta = check_number("epsilon", epsilon), check_number("delta", delta, below=1)
    log_scale, slope = _search(charges_at, epsilon, delta, relation)
    # the search used one grid; raise the scale if need be until the accountant itself agrees
    for _ in range(MAX_EVALUATIONS):
        scale = math.exp(log_scale)
        spent = epsilon_of(charges_at(scale), delta, relation)
        if spent <= epsilon:
            return scale
        log_scale += math.log(spent / epsilon) / -slope + SLACK / 6
    raise InvalidParameterError(f"Expected a cost that falls with the scale, got one that stays above {epsilon:g}.")


def _search(charges_at: ChargesAt, epsilon: float, delta: float, relation: NeighboringRelation) -> tuple[float, float]:
    """Return the least log scale x that costs at most epsilon, by secants inside a bracket, and the slope there.

    The height at x is the logarithm of cost over epsilon.
    """
    x, slope = _first_guess(charges_at, epsilon, delta)
    tried: list[tuple[float, float]] = []
    low, high = -math.inf, math.inf
    for _ in range(MAX_EVALUATIONS):
        cost = epsilon_of(charges_at(math.exp(x)), delta, relation, expected=epsilon)
        height = math.log(max(cost, 1e-300) / epsilon)
        low, high = (low, min(high, x)) if height <= 0 else (max(low, x), high)
        if tried:
            run, rise = x - tried[-1][0], height - tried[-1][1]
            slope = rise / run if rise * run < 0 and abs(rise) < 50 else slope
        tried.append((x, height))
        if high <= LOWEST or high - low <= SLACK or (x == high and -height <= SLACK * -slope):
            break
        if math.isinf(high) and len(tried) == 2:
            fixed = epsilon_of(charges_at(math.exp(HIGHEST)), delta, relation, expected=epsilon)
            if fixed > epsilon:
                raise InvalidParameterError(
                    f"Expected a budget that more noise can meet; what does not depend on the noise alone costs "
                    f"{fixed / epsilon:.4g} times epsilon; raise epsilon or delta, or drop a release."
                )
        # where the secant from the nearest point enters the private side, kept inside the bracket
        nearest_x, nearest_height = min(tried, key=lambda point: abs(point[1]))
        step, reach = nearest_height / -slope + SLACK / 3, 3.0 ** len(tried)
        x = min(max(nearest_x + min(max(step, -reach), reach), LOWEST), HIGHEST)
        is_stuck = len(tried) % 6 == 0 or not low < x < high
        x = (low + high) / 2 if is_stuck and math.isfinite(high - low) else x
    return high, slope


def _first_guess(charges_at: ChargesAt, epsilon: float, delta: float) -> tuple[float, float]:
    """Return where the normal estimate meets epsilon, and how fast it falls there (both in logarithms)."""

    def rough(log_scale: float) -> float:
        variance = compositions_of(charges_at(math.exp(log_scale))).magnitude.variance
        return normal_epsilon(math.sqrt(variance), delta)

    goal = max(epsilon, 1.1 * rough(HIGHEST))
    low, high = LOWEST, HIGHEST
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (low, middle) if rough(middle) <= goal else (middle, high)
    above, below = rough(high + 0.1), rough(high - 0.1)
    fall = math.log(above / below) / 0.2 if 0 < above < below < math.inf else -1.0
    return high, min(fall, -0.1)
