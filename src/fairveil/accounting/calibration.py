"""The least noise that keeps a plan within (epsilon, delta): one unknown scale, approached from the private side."""

import math
from collections.abc import Callable, Iterable

from fairveil._validation import check_delta, check_positive
from fairveil.accounting.composition import NeighboringRelation, compositions_of, epsilon_of
from fairveil.accounting.events import Charge, Event
from fairveil.accounting.pld import normal_epsilon
from fairveil.errors import InvalidParameterError

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
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
    log_scale, slope = _search(charges_at, epsilon, delta, relation)
    # the search used one grid; raise the scale if need be until the accountant itself agrees
    for _ in range(MAX_EVALUATIONS):
        scale = math.exp(log_scale)
        spent = epsilon_of(charges_at(scale), delta, relation)
        if spent <= epsilon:
            return scale
        log_scale += math.log(spent / epsilon) / -slope + SLACK / 6
    raise InvalidParameterError(
        f"Expected a cost that falls with the scale, got one that stays above {epsilon:g}."
    )


def _search(
    charges_at: ChargesAt, epsilon: float, delta: float, relation: NeighboringRelation
) -> tuple[float, float]:
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
