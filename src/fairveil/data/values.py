"""One cell in, its canonical text or its number out.

What a cell becomes depends on that cell alone: not on the type pandas chose for its column (which one odd cell
can change) and not on the other rows. So 1, 1.0, "1", " 1 " and numpy's integers are all the text "1".
Nothing here raises or warns on a value.

A schema may declare that the cells of a column spell numbers with separators of thousands, with a decimal comma, or as
dates (`Format`). A cell that does not follow the format is no number.
"""

import math
import re
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any, Literal

import numpy as np

# A leading zero marks a code ("01234"); an exponent without a sign may be one too ("12e4").
_NUMERAL = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-][0-9]+)?")
_WHOLE = re.compile(r"([+-]?[0-9]+)(?:\.0*)?")
_TRUTH = {"true": "True", "TRUE": "True", "false": "False", "FALSE": "False"}  # as pandas reads them, if all are such

_NULLS = frozenset({"NAType", "NaTType"})
"""The types of pandas' NA and NaT, by name: schemas are read where pandas is not loaded."""

Format = Literal[
    "plain",
    "1,234.5",
    "1.234,5",
    "1 234,5",
    "1'234.5",
    "YYYY-MM-DD",
    "DD.MM.YYYY",
    "DD/MM/YYYY",
    "MM/DD/YYYY",
]
"""How a cell writes the number 1234.5, or a date, which becomes its year with decimals: 2019.5 on July 2, 2019."""

PLAIN: Format = "plain"

_SIGNS = "$€£¥% \t\u00a0\u202f"
_ISO = re.compile(r"(?P<year>[0-9]{4})[-/](?P<month>[0-9]{1,2})[-/](?P<day>[0-9]{1,2})(?:[ T].*)?")

MAX_FORMATTED = 100
"""A cell of more characters is no number of these formats, and no date."""

MAX_CELL = 2**20
"""A cell of more characters holds nothing."""

EXACT = 2**53
"""Decimals do not distinguish whole numbers from here on, and pandas makes decimals of whole numbers beside a null."""


def canonical_text(value: Any) -> str | None:
    """Return the one text that stands for a cell, or None where the cell holds nothing.

    Examples
    --------
    >>> [canonical_text(v) for v in (1, 1.0, " 1 ", "1.0", True, "true", "01", float("nan"))]
    ['1', '1', '1', '1', 'True', 'True', '01', None]
    """
    if value is None or type(value).__name__ in _NULLS:
        return None
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (int, np.integer)):
        return plain_text(int(value))
    if not isinstance(value, (float, np.floating)):
        plain = plain_text(value)
        text = _TRUTH.get(plain or "", plain or "")
        if _NUMERAL.fullmatch(text) is None:
            return None if plain is None else text
        whole = _WHOLE.fullmatch(text)
        if whole is not None:  # digit by digit: a float would make large ids that differ the same
            text = "0" if whole[1].lstrip("+-") == "0" else whole[1].lstrip("+")
        if whole is not None or math.isinf(float(text)):
            return text
        value = float(text)
    number = float(value)
    # numpy writes a float16 or float32 with its own few digits: 0.1, not 0.10000000149011612
    text = str(int(number)) if number.is_integer() else str(number if isinstance(value, float) else value)
    return None if math.isnan(number) else text


def number_of(value: Any) -> float:
    """Return a cell as a number, NaN where it holds none.

    Examples
    --------
    >>> [number_of(v) for v in ("40", " 4e1 ", True, "forty", None, "-inf")]
    [40.0, 40.0, 1.0, nan, nan, -inf]
    """
    if value is None or type(value).__name__ in _NULLS:
        return math.nan
    if isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)):
        try:
            return float(value)
        except OverflowError:  # an integer beyond the largest float
            return math.inf if value > 0 else -math.inf
    text = plain_text(value) or ""
    text = _TRUTH.get(text, text)
    if text in ("True", "False"):
        return float(text == "True")
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def is_lost_in_numbers(text: str) -> bool:
    """Say whether this text would change if its column were read as numbers.

    Examples
    --------
    >>> [is_lost_in_numbers(text) for text in ("01234", "12e4", "9007199254740993", "90210", "2.5", "north", "True")]
    [True, True, True, False, False, False, False]
    """
    number = math.nan if text in ("True", "False") else number_of(text)
    return not math.isnan(number) and (abs(number) >= EXACT or canonical_text(number) != text)


def plain_text(value: Any) -> str | None:
    """Return a cell as text without blanks around it, None if it is too long or cannot be written down."""
    try:
        text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    except Exception:  # values never steer: an object that cannot be written down holds nothing
        return None
    return text.strip() if len(text) <= MAX_CELL else None


# --- spellings that the schema declares -------------------------------------------------------------------------------


def _separated(text: str, thousands: str, decimal: str) -> float:
    """Return a number with separators; thousands come in groups of three, or without any separator."""
    sign = -1.0 if text.startswith("-") else 1.0
    digits = text.lstrip("+-").strip(_SIGNS)
    whole, _, rest = digits.partition(decimal)
    groups = re.split(thousands, whole)
    is_grouped = groups[0][:1] != "0" and 1 <= len(groups[0]) <= 3 and all(len(group) == 3 for group in groups[1:])
    if not (len(groups) == 1 or is_grouped) or (decimal in digits and not rest):
        return math.nan
    plain = "".join(groups)
    return sign * float(f"{plain}.{rest or 0}") if re.fullmatch(r"[0-9]+", plain + rest) else math.nan


def _year(text: str, pattern: re.Pattern[str]) -> float:
    """Return the year of a date with decimals; every format of dates also reads those that start with the year."""
    found = pattern.fullmatch(text) or _ISO.fullmatch(text)
    if found is None:
        return math.nan
    try:
        day = date(int(found["year"]), int(found["month"]), int(found["day"]))
    except ValueError:  # there is no such day
        return math.nan
    return day.year + (day.timetuple().tm_yday - 1) / date(day.year, 12, 31).timetuple().tm_yday


_TWO, _END = "[0-9]{1,2}", "(?P<year>[0-9]{4})(?:[ T].*)?"
_READERS: dict[str, Callable[[str], float]] = {
    "1,234.5": partial(_separated, thousands=",", decimal="."),
    "1.234,5": partial(_separated, thousands=r"\.", decimal=","),
    "1 234,5": partial(_separated, thousands="[ \u00a0\u202f]", decimal=","),
    "1'234.5": partial(_separated, thousands="['\u2019]", decimal="."),
    "YYYY-MM-DD": partial(_year, pattern=_ISO),
    "DD.MM.YYYY": partial(_year, pattern=re.compile(rf"(?P<day>{_TWO})\.(?P<month>{_TWO})\.{_END}")),
    "DD/MM/YYYY": partial(_year, pattern=re.compile(rf"(?P<day>{_TWO})/(?P<month>{_TWO})/{_END}")),
    "MM/DD/YYYY": partial(_year, pattern=re.compile(rf"(?P<month>{_TWO})/(?P<day>{_TWO})/{_END}")),
}
FORMATS: tuple[Format, ...] = (PLAIN, *_READERS)  # type: ignore[arg-type]
"""All formats; of two that read a column equally well, a draft prefers the first."""


def is_date(form: Format) -> bool:
    """Say whether a format is one of dates."""
    return "YYYY" in form


def number_in(value: Any, form: Format) -> float:
    """Return a cell as a number by the format of its column, NaN where it does not follow it.

    Examples
    --------
    >>> number_in("1.234,5", "1.234,5"), number_in("$1,234", "1,234.5"), number_in("1.7.2019", "DD.MM.YYYY")
    (1234.5, 1234.0, 2019.495890410959)
    """
    if form == PLAIN:
        return number_of(value)
    text = plain_text(value)
    return math.nan if text is None or len(text) > MAX_FORMATTED else _READERS[form](text)
