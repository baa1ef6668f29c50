"""One cell in, its canonical text or its number out.

What a cell becomes depends on that cell alone: not on the type pandas chose for its column (which one odd cell
can change) and not on the other rows. So 1, 1.0, "1", " 1 " and numpy's integers are all the text "1".
Nothing here raises or warns on a value.
"""

import math
import re
from typing import Any

import numpy as np

# A leading zero marks a code ("01234"); an exponent without a sign may be one too ("12e4").
_NUMERAL = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-][0-9]+)?")
_WHOLE = re.compile(r"([+-]?[0-9]+)(?:\.0*)?")
_TRUTH = {"true": "True", "TRUE": "True", "false": "False", "FALSE": "False"}  # as pandas reads them, if all are such

_NULLS = frozenset({"NAType", "NaTType"})
"""The types of pandas' NA and NaT, by name: schemas are read where pandas is not loaded."""

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
        return _plain_text(int(value))
    if not isinstance(value, (float, np.floating)):
        plain = _plain_text(value)
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
    text = _plain_text(value) or ""
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


def _plain_text(value: Any) -> str | None:
    """Return a cell as text without blanks around it, None if it is too long or cannot be written down."""
    try:
        text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    except Exception:  # values never steer: an object that cannot be written down holds nothing
        return None
    return text.strip() if len(text) <= MAX_CELL else None
