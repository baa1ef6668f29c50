"""Settings of a recipe by name, as the command line and grids of comparisons write them: `descent.n_steps=600`."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from fairveil.errors import InvalidParameterError

WORDS: dict[str, bool | None] = {"true": True, "false": False, "none": None}
"""What these words mean where a field takes such a value."""


def with_settings(training: Any, settings: Mapping[str, Any]) -> Any:
    """Return a recipe with some of its fields set.

    Parameters
    ----------
    training : recipe
        A dataclass; parts that are dataclasses themselves are reached by dots.
    settings : mapping
        Values by name. A value may be text, which is read as the field's type demands.

    Examples
    --------
    >>> from fairveil import Descent
    >>> with_settings(Descent(), {"n_steps": "600", "features.resolution": "none"}).n_steps
    600
    """
    for name, value in settings.items():
        training = _with_setting(training, name.split("."), name, value)
    return training


def with_model(training: Any, model: str) -> Any:
    """Return a recipe that trains another kind of model: in its field `model`, or in a recipe that it contains."""
    names = {field.name for field in dataclasses.fields(training)}
    if "model" in names:
        return dataclasses.replace(training, model=model)
    (inner,) = names & {"descent", "base"}
    return dataclasses.replace(training, **{inner: with_model(getattr(training, inner), model)})


def parsed_settings(texts: Iterable[str]) -> dict[str, str]:
    """Return the names and values of texts such as "descent.n_steps=600"."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not (sign and name.strip() and value.strip()):
            raise InvalidParameterError(f"Expected --setting NAME=VALUE, such as descent.n_steps=600, got {text!r}.")
        if name.strip() in found:
            raise InvalidParameterError(f"Expected one value for {name.strip()}, got several; leave the others out.")
        found[name.strip()] = value.strip()
    return found


def setting_names(part: Any) -> tuple[str, ...]:
    """Return the names of all settings of a recipe, those of its parts with dots."""
    names: list[str] = []
    for name in _settable(part):
        inner = getattr(part, name)
        names += [f"{name}.{one}" for one in setting_names(inner)] if dataclasses.is_dataclass(inner) else [name]
    return tuple(names)


def _with_setting(part: Any, path: list[str], name: str, value: Any) -> Any:
    kinds = _settable(part)
    if path[0] not in kinds:
        raise InvalidParameterError(
            f"Expected a setting of {type(part).__name__} among {', '.join(setting_names(part))}, got {name!r}."
        )
    inner = getattr(part, path[0])
    if dataclasses.is_dataclass(inner) == (len(path) == 1):
        advice = "write one of its fields after a dot" if len(path) == 1 else "leave out what comes after the dot"
        raise InvalidParameterError(f"Expected a value for {path[0]!r}, got {name!r}; {advice}.")
    new = _with_setting(inner, path[1:], name, value) if path[1:] else _read(name, value, kinds[path[0]])
    return dataclasses.replace(part, **{path[0]: new})


def _settable(part: Any) -> dict[str, tuple[Any, ...]]:
    """Return the fields that can be set, with the types of value that each takes."""
    hints = get_type_hints(type(part))
    kinds = {field.name: _kinds(hints[field.name]) for field in dataclasses.fields(part) if field.init}
    return {name: kind for name, kind in kinds.items() if kind or dataclasses.is_dataclass(getattr(part, name))}


def _kinds(hint: Any) -> tuple[Any, ...]:
    """Return the types of plain values that an annotation allows."""
    several = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    plain = {bool, int, float, str, NoneType}
    kinds = tuple(one for one in several if one in plain or get_origin(one) is tuple)
    return kinds if set(kinds) - {NoneType} else ()


def _read(name: str, value: Any, kinds: tuple[Any, ...]) -> Any:
    """Return a value as the first of these types that it fits: whole numbers before others, text last."""
    for kind in sorted(kinds, key=_order):
        found = _as(kind, value)
        if found is not _MISFIT:
            return found
    names = {NoneType: "none", bool: "true or false", int: "a whole number", float: "a number", str: "a name"}
    wanted = " or ".join(names.get(kind, "numbers with commas") for kind in sorted(kinds, key=_order))
    raise InvalidParameterError(f"Expected {wanted} for {name}, got {value!r}.")


_MISFIT = object()


def _order(kind: Any) -> int:
    order = [NoneType, bool, int, float]
    return order.index(kind) if kind in order else len(order) + (kind is str)


def _as(kind: Any, value: Any) -> Any:
    """Return a value as this type, or `_MISFIT`."""
    if kind in {NoneType, bool}:
        word = WORDS.get(value.lower(), _MISFIT) if isinstance(value, str) else value
        return word if isinstance(word, kind) else _MISFIT
    if get_origin(kind) is tuple:
        several = value.split(",") if isinstance(value, str) else value
        read = [_as(get_args(kind)[0], one) for one in several] if isinstance(several, (list, tuple)) else [_MISFIT]
        return _MISFIT if _MISFIT in read else tuple(read)
    if kind is str:
        return value if isinstance(value, str) else _MISFIT
    return _number(kind, value)


def _number(kind: Any, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return _MISFIT
    try:
        number = float(value)
    except ValueError:
        return _MISFIT
    if kind is int:
        return int(number) if number.is_integer() else _MISFIT
    return _MISFIT if math.isnan(number) else number
