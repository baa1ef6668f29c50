"""The least noise that keeps a plan within (epsilon, delta): one unknown scale, met from the private side."""

import math
from collections.abc import Callable, Iterable

from fairveil._validation import check_delta, check_positive
from fairveil.accounting.composition import NeighboringRelation, compositions_of, epsilon_near, epsilon_of
from fairveil.accounting.events import Charge, Event
from fairveil.errors import InvalidParameterError

LOWEST, HIGHEST = math.log(1e-6), math.log(1e12)
"""Scales outside are not searched (as logarithms)."""

SLACK = 6e-5
"""How far above the least scale the answer may lie, relatively."""

MAX_EVALUATIONS = 80

Charges = Iterable[Charge | Event]


def calibrate(
    charges_at: Callable[[float], Charges],
    epsilon: float,
    delta: float,
    neighbours: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> float:
    """Return the smallest scale at which a plan costs at most epsilon, to about 1e-4 and never below.

    Parameters
    ----------
    charges_at : callable
        Gives the charges of the plan at a scale; a larger scale must mean more noise.
    epsilon, delta : float
        The budget of the whole plan.
    neighbours : NeighboringRelation
        Under which relation the budget is meant.

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
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)

    def excess(log_scale: float) -> float:
        cost = epsilon_near(charges_at(math.exp(log_scale)), delta, neighbours, expected=epsilon)
        return math.log(max(cost, 1e-300) / epsilon)

    start, slope = _first_guess(charges_at, epsilon, delta)
    log_scale, slope = _least_private(excess, start, slope)
    return _rechecked(
        lambda scale: epsilon_of(charges_at(scale), delta, neighbours), epsilon, log_scale, slope
    )


def _first_guess(charges_at: Callable[[float], Charges], epsilon: float, delta: float) -> tuple[float, float]:
    """Return where the normal estimate meets epsilon, and how fast it falls there (both in logarithms)."""

    def rough(log_scale: float) -> float:
        return compositions_of(charges_at(math.exp(log_scale))).size.epsilon(delta)

    goal = max(epsilon, 1.1 * rough(HIGHEST))
    low, high = LOWEST, HIGHEST
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (low, middle) if rough(middle) <= goal else (middle, high)
    ahead, behind = rough(high + 0.1), rough(high - 0.1)
    fall = math.log(ahead / behind) / 0.2 if 0 < ahead < behind < math.inf else -1.0
    return high, min(fall, -0.1)


def _least_private(excess: Callable[[float], float], x: float, slope: float) -> tuple[float, float]:
    """Return the least x with excess(x) <= 0, by secants inside a bracket, and the slope there."""
    seen: list[tuple[float, float]] = []
    low, high = -math.inf, math.inf
    for _ in range(MAX_EVALUATIONS):
        height = excess(x)
        low, high = (low, min(high, x)) if height <= 0 else (max(low, x), high)
        slope = _slope(seen[-1], (x, height), slope) if seen else slope
        seen.append((x, height))
        if high <= LOWEST or high - low <= SLACK or (x == high and -height <= SLACK * -slope):
            break
        if math.isinf(high) and len(seen) == 2:
            _check_reachable(excess)
        x = _next(min(seen, key=lambda point: abs(point[1])), slope, (low, high), len(seen))
    return high, slope


def _slope(first: tuple[float, float], second: tuple[float, float], before: float) -> float:
    run, rise = second[0] - first[0], second[1] - first[1]
    return rise / run if rise * run < 0 and abs(rise) < 50 else before


def _next(nearest: tuple[float, float], slope: float, bracket: tuple[float, float], n_seen: int) -> float:
    """Return where the secant from the nearest point enters the private side, kept inside the bracket."""
    step = nearest[1] / -slope + SLACK / 3
    reach = 3.0**n_seen
    x = min(max(nearest[0] + min(max(step, -reach), reach), LOWEST), HIGHEST)
    low, high = bracket
    is_stuck = n_seen % 6 == 0 or not low < x < high
    return (low + high) / 2 if is_stuck and math.isfinite(high - low) else x


def _check_reachable(excess: Callable[[float], float]) -> None:
    over = excess(HIGHEST)
    if over > 0:
        raise InvalidParameterError(
            f"Expected a budget that more noise can meet; what does not depend on the noise alone costs "
            f"{math.exp(over):.4g} times epsilon; raise epsilon or delta, or drop a release."
        )


def _rechecked(cost: Callable[[float], float], epsilon: float, log_scale: float, slope: float) -> float:
    """Return the scale, raised if need be until the accountant itself agrees."""
    for _ in range(MAX_EVALUATIONS):
        spent = cost(math.exp(log_scale))
        if spent <= epsilon:
            return math.exp(log_scale)
        log_scale += math.log(spent / epsilon) / -slope + SLACK / 6
    raise InvalidParameterError(
        f"Expected a cost that falls with the scale, got one that stays above {epsilon:g}."
    )
