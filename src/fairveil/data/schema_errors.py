"""A pydantic complaint in, one plain sentence of fairveil's error tree out."""

from difflib import get_close_matches

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fairveil.errors import BadStructure, FairveilError, MissingPublicFact

__all__ = ["as_fairveil_error", "close_match"]

# What to write where a public fact is missing.
_PUBLIC_FACTS = {
    "bounds": "bounds = [low, high], the public range of the numbers",
    "categories": 'categories = ["first", "second"], all values known in public',
    "classes": 'classes = ["no", "yes"], all values of the target in a fixed order',
    "groups": 'groups = ["first", "second"], all groups in a fixed order',
    "columns": "one table [columns.NAME] for each feature",
    "target": '[target] with column = "NAME" and classes = ["no", "yes"]',
}


def as_fairveil_error(error: ValidationError, keys: list[str]) -> FairveilError:
    """Return the first complaint as one sentence; `keys` are those the failing table knows."""
    # A misspelt key is also a missing one: the spelling is what helps.
    details = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] != "extra_forbidden")
    detail = details[0]
    inner = detail.get("ctx", {}).get("error")
    if isinstance(inner, FairveilError):
        return type(inner)(_placed(_place(detail["loc"]), str(inner)))
    return _sentence(detail, keys)


def _place(location: tuple[int | str, ...]) -> str:
    # A discriminated union puts its tag behind the column's name; a list index counts from 1 for people.
    names = [str(part) for part in location]
    if names[:1] == ["columns"]:
        names = names[:2]
    if len(names) == 2 and names[0] in ("sensitive", "where"):
        return f"[[{names[0]}]] number {int(names[1]) + 1}"
    return f"[{'.'.join(names)}]" if names else ""


def _placed(place: str, sentence: str) -> str:
    return (
        f"In {place}: {sentence[0].lower()}{sentence[1:]}"
        if place and not sentence.startswith("In ")
        else sentence
    )


def _sentence(detail: ErrorDetails, keys: list[str]) -> FairveilError:
    location, kind = detail["loc"], detail["type"]
    key = str(location[0]) if location else ""
    if kind == "missing" and len(location) == 1:
        return _missing(key)
    if kind == "extra_forbidden":
        return BadStructure(f"Expected known keys only, got {key!r}{close_match(key, keys)}.")
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return BadStructure(f'In {_place(location)}: expected type = "number" or type = "category".')
    return BadStructure(f"Expected a valid {'.'.join(map(str, location))}: {_first_lower(detail['msg'])}.")


def _missing(key: str) -> FairveilError:
    if key in _PUBLIC_FACTS:
        return MissingPublicFact(f"Expected {_PUBLIC_FACTS[key]}; got none, so write it into the schema.")
    return BadStructure(f"Expected the key {key}, got none; add it.")


def _first_lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def close_match(name: str, known: list[str]) -> str:
    """Return a hint such as '; did you mean "bounds"?' or nothing."""
    matches = get_close_matches(name, known, n=1)
    return f' (did you mean "{matches[0]}"?)' if matches else ""
