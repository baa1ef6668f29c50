"""Numbers as a person reads them; what is not known is shown as unknown, never as 0."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from markupsafe import Markup

UNKNOWN = "unknown"
DASH = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"
SPACE = "\N{NO-BREAK SPACE}"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Measurement:
    """A number of a summary with its interval; None where unknown."""

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


def measurement(interval: Mapping[str, Any] | None) -> Measurement:
    """Return an interval of a summary; missing parts are unknown."""
    parts = interval or {}
    return Measurement(*(finite(parts.get(name)) for name in ("value", "low", "high")))


def capitalized(words: str) -> str:
    """Return the words with the first letter in upper case and all others as they are."""
    return words[:1].upper() + words[1:]


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


def percent(value: Any, digits: int = 1, unit: str = f"{SPACE}%") -> str:
    """Return a fraction in hundredths, by default as a percentage."""
    number = finite(value)
    return UNKNOWN if number is None else fixed(100 * number, digits) + unit


hundredfold = partial(percent, unit="")
points = partial(percent, unit=f"{SPACE}points")
"""A difference of fractions in percentage points."""


def level(value: Any) -> str:
    r"""Return a confidence as a percentage without trailing zeros.

    Examples
    --------
    >>> level(0.95), level(0.999)
    ('95\xa0%', '99.9\xa0%')
    """
    number = finite(value)
    return UNKNOWN if number is None else f"{compact(100 * number, 6)}{SPACE}%"


def whole(value: Any) -> str:
    """Return a count with a comma between thousands.

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


def in_words(one: Measurement, words: Callable[[float], str] = percent) -> str:
    """Return a value with its interval, such as 12.3 % (11.0 to 13.5)."""
    if one.value is None:
        return UNKNOWN
    if one.ends is None:
        return words(one.value)
    return f"{words(one.value)} ({hundredfold(one.ends[0])} to {hundredfold(one.ends[1])})"


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
