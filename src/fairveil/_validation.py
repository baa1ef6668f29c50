"""One wording for parameter errors: what was expected, what was got."""

import math
from collections.abc import Collection
from typing import Any, Literal, overload

import numpy as np

from fairveil.errors import InvalidParameterError

SMALLEST_EPSILON = 1e-3
"""Below it noise drowns everything and calibration takes long."""

LARGEST_DELTA = 0.01
"""From it on, a guarantee may fail for one data set in a hundred, whatever its size."""

NUMBERS = (int, float, np.integer, np.floating)
"""Types of numbers; truth values are refused although Python counts them among the integers."""


@overload
def check_number(name: str, value: Any, *, below: float = ..., at_most: float | None = ...) -> float: ...
@overload
def check_number(name: str, value: Any, *, whole: Literal[True], at_least: int = ...) -> int: ...
def check_number(
    name: str,
    value: Any,
    *,
    below: float = math.inf,
    at_most: float | None = None,
    whole: bool = False,
    at_least: int = 1,
) -> float:
    """Return `value` if it is positive and below or at most a limit, or whole and at least 1 (or another number).

    Examples
    --------
    >>> check_number("sampling_rate", 0.1, at_most=1), check_number("n_steps", 300.0, whole=True)
    (0.1, 300)
    >>> check_number("delta", 1, below=1)
    Traceback (most recent call last):
    fairveil.errors.InvalidParameterError: Expected 0 < delta < 1, got 1.
    """
    is_number = isinstance(value, NUMBERS) and not isinstance(value, bool)
    if whole:
        if is_number and float(value).is_integer() and value >= at_least:
            return int(value)
        expected = f"{name} to be a whole number >= {at_least}"
    elif at_most is not None:
        if is_number and 0 < value <= at_most:
            return float(value)
        expected = f"{name} > 0" if math.isinf(at_most) else f"0 < {name} <= {at_most:g}"
    else:
        if is_number and 0 < value < below:
            return float(value)
        expected = f"{name} > 0 and finite" if math.isinf(below) else f"0 < {name} < {below:g}"
    raise InvalidParameterError(f"Expected {expected}, got {value!r}.")


def check_budget(epsilon: Any, delta: Any, n_public: int | None = None) -> None:
    """Refuse a privacy budget unless epsilon is positive (infinity means not private) and delta small enough.

    A delta of 1 over the number of people permits publishing the record of one of them, chosen at random.

    Examples
    --------
    >>> check_budget(1.0, 1e-3, n_public=2000)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fairveil.errors.InvalidParameterError: Expected delta below 1 / n_public = 0.0005, got 0.001; ...
    """
    if check_number("epsilon", epsilon, at_most=math.inf) < SMALLEST_EPSILON:
        raise InvalidParameterError(f"Expected epsilon > 0 and at least {SMALLEST_EPSILON:g}, got {epsilon!r}.")
    check_number("delta", delta, below=1)
    limit = LARGEST_DELTA if n_public is None or math.isinf(epsilon) else min(LARGEST_DELTA, 1 / n_public)
    if delta >= limit:
        words = f"1 / n_public = {limit:.3g}" if limit < LARGEST_DELTA else f"{limit:g}"
        raise InvalidParameterError(
            f"Expected delta below {words}, got {delta:g}; a delta so large permits publishing somebody's whole "
            f"record, so choose one far below it, such as {min(1e-5, float(f'{limit / 10:.0e}')):g}."
        )


def check_choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Return `value` if it is one of `choices`."""
    if value not in choices:
        raise InvalidParameterError(f"Expected {name} to be one of {', '.join(sorted(choices))}; got {value!r}.")
    return str(value)
