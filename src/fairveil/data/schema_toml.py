"""A schema's plain contents in, TOML that a person likes to read and edit out."""

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["schema_toml"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LINE = 100
_TABLES = ("target", "sensitive", "where", "columns")
_HEAD = "# Public facts about a table: nothing here may be read off its private rows.\n"
_NO_SIZE = "# n_public = 1000    declare the number of rows here if it is public knowledge\n"
_DRAFT = "# This draft was made by looking at the rows: as private as they are until a person approves it.\n"


def schema_toml(facts: Mapping[str, Any]) -> str:
    """Return the TOML text of a schema given as plain dictionaries, lists, texts and numbers."""
    plain = {key: value for key, value in facts.items() if key not in _TABLES}
    parts = [_HEAD, _DRAFT if plain.get("private_draft") else "", _lines(plain)]
    if "n_public" not in plain:
        parts.append(_NO_SIZE)
    parts.append(f"\n[target]\n{_lines(facts['target'])}")
    for key in ("sensitive", "where"):
        parts += [f"\n[[{key}]]\n{_lines(entry)}" for entry in facts.get(key, ())]
    parts += [f"\n[columns.{_key(name)}]\n{_lines(column)}" for name, column in facts["columns"].items()]
    return "".join(parts)


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(f"{_key(key)} = {_value(value, len(key) + 3)}\n" for key, value in table.items())


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _string(name)


def _value(value: Any, indent: int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return _number(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_list(item)}" for key, item in value.items()) + " }"
    return _list(value) if len(_list(value)) + indent <= _LINE else _wrapped(value)


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)


def _string(text: str) -> str:
    # JSON escapes all that TOML wants escaped except the DEL character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _list(values: Any) -> str:
    return "[" + ", ".join(_value(value, 0) for value in values) + "]"


def _wrapped(values: Any) -> str:
    lines = [""]
    for value in values:
        item = f" {_value(value, 0)},"
        if len(lines[-1]) + len(item) > _LINE - 4:
            lines.append("")
        lines[-1] += item
    return "[\n" + "".join(f"   {line}\n" for line in lines if line) + "]"
