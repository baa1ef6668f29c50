"""One wording for parameter errors: what was expected, what was got."""

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from fairveil.errors import InvalidParameterError

SMALLEST_EPSILON = 1e-3
"""Below it noise drowns everything and calibration takes long."""

NUMBERS = (int, float, np.integer, np.floating)
"""Types of numbers; truth values are refused although Python counts them among the integers."""


def check_positive(name: str, value: Any, *, infinite: bool = False) -> float:
    """Return `value` as a float if it is a positive number."""
    ok = isinstance(value, NUMBERS) and not isinstance(value, bool) and value > 0 and (infinite or math.isfinite(value))
    if not ok:
        bound = "" if infinite else " and finite"
        raise InvalidParameterError(f"Expected {name} > 0{bound}, got {value!r}.")
    return float(value)


def check_epsilon(value: Any, name: str = "epsilon") -> float:
    """Return a privacy budget: positive, infinity means not private."""
    epsilon = check_positive(name, value, infinite=True)
    if epsilon < SMALLEST_EPSILON:
        raise InvalidParameterError(f"Expected {name} > 0 and at least {SMALLEST_EPSILON:g}, got {value!r}.")
    return epsilon


def check_delta(value: Any, name: str = "delta") -> float:
    """Return a failure probability strictly between 0 and 1."""
    if isinstance(value, bool) or not (isinstance(value, NUMBERS) and 0 < value < 1):
        raise InvalidParameterError(f"Expected 0 < {name} < 1, got {value!r}.")
    return float(value)


def check_probability(name: str, value: Any) -> float:
    """Return a probability in (0, 1]."""
    if isinstance(value, bool) or not (isinstance(value, NUMBERS) and 0 < value <= 1):
        raise InvalidParameterError(f"Expected 0 < {name} <= 1, got {value!r}.")
    return float(value)


def check_integer(name: str, value: Any, *, at_least: int = 1) -> int:
    """Return a whole number that is at least `at_least`."""
    is_number = isinstance(value, NUMBERS) and not isinstance(value, bool)
    if not (is_number and float(value).is_integer() and value >= at_least):
        raise InvalidParameterError(f"Expected {name} to be a whole number >= {at_least}, got {value!r}.")
    return int(value)


def check_choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Return `value` if it is one of `choices`."""
    if value not in choices:
        raise InvalidParameterError(f"Expected {name} to be one of {', '.join(sorted(choices))}; got {value!r}.")
    return str(value)
