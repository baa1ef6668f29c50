"""Templates and context -> one HTML text that asks nothing of the network.

Everything that comes from the data is escaped by the template engine; the only ready markup is built element by element
with escaping. A page also forbids itself any connection and any script but its own, which is named by its hash.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from fairveil.errors import InvalidParameterError
from fairveil.report import formatting as numbers
from fairveil.report.svg import SHAPES


def check_keys(name: str, given: Mapping[str, Any], needed: Iterable[str]) -> None:
    """Refuse a summary that lacks what a page must show."""
    missing = [key for key in needed if key not in given]
    if missing:
        raise InvalidParameterError(
            f"Expected {name} with the key {missing[0]!r}, got none ({len(missing)} missing in all); "
            "write it, as None if it is unknown."
        )


def plain(value: Any) -> Any:
    """Return the value as JSON knows it: numbers that are not finite become None, keys become text."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(one) for one in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return numbers.finite(value)
    return None if value is None else str(value)


def embedded(value: Any) -> Markup:
    """Return JSON that may stand inside a script element: no character of it can end the element."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def render(template: str, given: Mapping[str, Any], **context: Any) -> str:
    """Return the page of a template; `given` is embedded as JSON and shown as `given`."""
    script = _package_text("page.js")
    page = (
        _environment()
        .get_template(template)
        .render(
            given=given,
            embedded=embedded(given),
            style=Markup(_package_text("page.css")),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            shapes=SHAPES,
            **context,
        )
    )
    return page.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")


@cache
def _package_text(name: str) -> str:
    return (resources.files("fairveil.report") / "templates" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_package_text), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    filters = {
        "compact": numbers.compact,
        "fixed": numbers.fixed,
        "hundredfold": numbers.hundredfold,
        "level": numbers.level,
        "percent": numbers.percent,
        "points": numbers.points,
        "whole": numbers.whole,
    }
    for name, words in filters.items():
        environment.filters[name] = _marking(words)
        environment.filters[f"{name}_text"] = words
    environment.filters["worded"] = lambda value, name: environment.filters[name](value)
    environment.filters["day"] = numbers.day
    environment.filters["shown"] = numbers.shown
    return environment


def _marking(words: Any) -> Any:
    """Return a filter that writes the number in words with its exact value beside it."""
    return lambda value, *arguments: numbers.marked(value, words(value, *arguments))
