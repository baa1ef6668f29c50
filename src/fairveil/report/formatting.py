"""Numbers as a person reads them; what is not known is said to be unknown, never 0."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

UNKNOWN = "unknown"
MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"
SPACE = "\N{NO-BREAK SPACE}"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Shown:
    """A value with its interval; None where unknown."""

    value: float | None
    low: float | None
    high: float | None

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends of the interval, or None if the value or an end is unknown."""
        if self.value is None or self.low is None or self.high is None:
            return None
        return self.low, self.high


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


def shown(interval: Mapping[str, Any] | None) -> Shown:
    """Return an interval of a summary; missing parts are unknown."""
    parts = interval or {}
    return Shown(*(finite(parts.get(name)) for name in ("value", "low", "high")))


def fixed(value: Any, digits: int = 4) -> str:
    """Return a number with a fixed count of digits.

    Examples
    --------
    >>> fixed(0.5), fixed(None), fixed(-0.00001)
    ('0.5000', 'unknown', '0.0000')
    """
    number = finite(value)
    if number is None:
        return UNKNOWN
    text = f"{number:.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text.replace("-", MINUS)


def percent(value: Any, digits: int = 1) -> str:
    """Return a fraction as a percentage."""
    return _scaled(value, digits, f"{SPACE}%")


def points(value: Any, digits: int = 1) -> str:
    """Return a difference of fractions in percentage points."""
    return _scaled(value, digits, f"{SPACE}points")


def level(value: Any) -> str:
    r"""Return a confidence without idle zeros.

    Examples
    --------
    >>> level(0.95), level(0.999)
    ('95\xa0%', '99.9\xa0%')
    """
    number = finite(value)
    return UNKNOWN if number is None else f"{compact(100 * number, 6)}{SPACE}%"


def hundredfold(value: Any, digits: int = 1) -> str:
    """Return a fraction in hundredths, without a unit."""
    return _scaled(value, digits, "")


def _scaled(value: Any, digits: int, unit: str) -> str:
    number = finite(value)
    return UNKNOWN if number is None else fixed(100 * number, digits) + unit


def whole(value: Any) -> str:
    """Return a count with thousands apart.

    Examples
    --------
    >>> whole(48842)
    '48,842'
    """
    number = finite(value)
    return UNKNOWN if number is None else f"{round(number):,}".replace("-", MINUS)


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


def marked(value: Any, text: str) -> Markup:
    """Return the text with its exact value beside it, for machines and tests."""
    number = finite(value)
    if number is None:
        return Markup('<span class="unknown">{}</span>').format(UNKNOWN)
    return Markup('<data value="{}">{}</data>').format(repr(number), text)


def day(moment: Any) -> str:
    """Return an ISO time as a person writes it; other text is returned as it is.

    Examples
    --------
    >>> day("2026-11-16T12:00:00+00:00")
    '16 November 2026, 12:00 UTC'
    """
    try:
        when = datetime.fromisoformat(str(moment))
    except ValueError:
        return str(moment)
    if when.tzinfo is None:
        return f"{when.day} {when:%B %Y, %H:%M}"
    when = when.astimezone(UTC)
    return f"{when.day} {when:%B %Y, %H:%M} UTC"
