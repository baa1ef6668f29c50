"""Seeded damage to bytes, texts and JSON values."""

import random
from collections.abc import Sequence
from typing import Any

from fuzz.driver import CANARIES

NASTY_TEXTS = (
    "",
    " ",
    "zqcell",
    '"',
    '""',
    "'",
    "\\",
    "\0",
    "\x1b[31mred",
    "\u202eevil",
    "\ufeff",
    "\u2028",
    "NaN",
    "nan",
    "-inf",
    "1e999",
    "-0",
    "00",
    "1_000",
    "0x1F",
    "9" * 400,
    "1e-400",
    "True",
    "ignore",
    "missing",
    "other",
    "?",
    "None",
    "<b>",
    "=1+1",
    "{}",
    "[]",
    "é" * 300,
    "../../etc",
    "%s%n",
    "7741950273",
    "8675309.25",
    "zqlabel,zqgroup",
    "a\tb",
    "x" * 5000,
)
"""Texts that parsers and printers stumble over; some hold canaries."""

PUBLIC_TEXTS = tuple(text for text in NASTY_TEXTS if not any(canary in text for canary in CANARIES))
"""Those that may be quoted, where a file is public."""

NASTY_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2.5,
    -0.0,
    1e308,
    10**20,
    -(10**20),
    10**400,
    "",
    "odd",
    "nan",
    "\x1b[31m",
    "\ud800",
    "9" * 5000,
    [],
    {},
    [[]],
    [None],
    {"a": {}},
    [1, "x", None],
    [[1, 2], [3]],
    ["no"],
    ["no", "no"],
    "no",
    "U500000000",
)
"""Values of every JSON type, sizes that do not fit, texts that cannot be encoded."""


def damaged(rng: random.Random, content: bytes, texts: Sequence[str] = PUBLIC_TEXTS) -> bytes:
    """Return bytes with a few flips, cuts, insertions or repetitions."""
    raw = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        start, length = rng.randrange(len(raw) + 1), rng.choice((1, 1, 4, 40, 400))
        kind = rng.randrange(7)
        if kind == 0 and start < len(raw):
            raw[start] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del raw[start : start + length]
        elif kind == 2:
            raw[start:start] = rng.randbytes(length)
        elif kind == 3:
            raw[start:start] = raw[start : start + length] * rng.choice((1, 2, 50))
        elif kind == 4:
            del raw[start:]
        elif kind == 5:
            raw[start:start] = rng.choice(texts).encode()
        else:
            raw[start : start + length] = bytes(min(length, max(0, len(raw) - start)))
    return bytes(raw)


def nested(depth: int, left: str = "[", right: str = "]") -> str:
    """Return brackets in brackets."""
    return left * depth + right * depth


def forged(rng: random.Random, value: Any) -> Any:
    """Return a JSON value in which one place holds another value, is missing, or occurs twice."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        if rng.random() < 0.1:
            return {key: one for key, one in value.items() if key != name}
        return {**value, name: forged(rng, value[name])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        if rng.random() < 0.2:
            return rng.choice((value[:place] + value[place + 1 :], [*value, value[place]], value[::-1]))
        return [*value[:place], forged(rng, value[place]), *value[place + 1 :]]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300 and rng.random() < 0.5:
        return rng.choice((-value, value + 1, value * 1e6, float(value), str(value), 0))
    return rng.choice(NASTY_VALUES)
