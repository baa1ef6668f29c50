"""Numbers as a person reads them; what is not known is shown as unknown, never as 0."""

import math
from functools import partial
from typing import Any

UNKNOWN = "unknown"
DASH = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"
SPACE = "\N{NO-BREAK SPACE}"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def finite(value: Any) -> float | None:
    """Return a finite number as a float, anything else as None.

    Examples
    --------
    >>> finite(1), finite(float("nan")), finite(None)
    (1.0, None, None)
    """
    if value is None or isinstance(value, (bool, str)):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def fixed(value: Any, digits: int = 4, thousands: str = "", toward: str = "nearest") -> str:
    """Return a number with a fixed count of digits, and what separates its thousands.

    Ends of intervals are rounded outward (`toward` "down" or "up"), so that a limit never seems to be kept that is not.

    Examples
    --------
    >>> fixed(0.5), fixed(None), fixed(-0.00001), whole(48842), fixed(0.02001, toward="up")
    ('0.5000', 'unknown', '0.0000', '48,842', '0.0201')
    """
    number = finite(value)
    if number is None:
        return UNKNOWN
    if toward != "nearest":  # a billionth of a digit is an error of the computer's arithmetic
        unit, slack = 10.0**digits, 1e-9
        whole_part = math.ceil(number * unit - slack) if toward == "up" else math.floor(number * unit + slack)
        number = whole_part / unit
    text = f"{number:{thousands}.{digits}f}"
    if not text.strip("-0."):
        text = text.removeprefix("-")
    return text.replace("-", MINUS)


def percent(value: Any, digits: int | None = 1, unit: str = f"{SPACE}%", toward: str = "nearest") -> str:
    r"""Return a fraction in hundredths, by default as a percentage; without `digits`, as many as it needs.

    Examples
    --------
    >>> percent(0.95), level(0.95), level(0.999)
    ('95.0\xa0%', '95\xa0%', '99.9\xa0%')
    """
    number = finite(value)
    if number is None:
        return UNKNOWN
    return (compact(100 * number, 6) if digits is None else fixed(100 * number, digits, toward=toward)) + unit


whole = partial(fixed, digits=0, thousands=",")
"""A count, with a comma between thousands."""
hundredfold = partial(percent, unit="")
level = partial(percent, digits=None)
"""A confidence as a percentage without trailing zeros."""
points = partial(percent, unit=f"{SPACE}points")
"""A difference of fractions in percentage points."""


def compact(value: Any, digits: int = 4) -> str:
    """Return a number of any size in few characters.

    Examples
    --------
    >>> compact(0.02), compact(1e-05), compact(2.5e-7), compact(1e9)
    ('0.02', '10⁻⁵', '2.5 × 10⁻⁷', '10⁹')
    """
    number = finite(value)
    if number is None:
        return UNKNOWN
    if number == 0 or 1e-3 <= abs(number) < 1e6:
        text = f"{number:.{digits}g}"
        return (f"{number:,.0f}" if "e" in text or abs(number) >= 1e4 else text).replace("-", MINUS)
    mantissa, power = f"{number:.{digits - 1}e}".split("e")
    mantissa = (mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa).replace("-", MINUS)
    ten = f"10{str(int(power)).translate(SUPERSCRIPTS)}"
    return ten if mantissa == "1" else f"{mantissa} {TIMES} {ten}"
