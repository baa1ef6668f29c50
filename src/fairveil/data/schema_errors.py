"""Complaints of pydantic in, one plain sentence of fairveil's error tree out."""

from difflib import get_close_matches

from pydantic import ValidationError

from fairveil.errors import BadStructureError, FairveilError, MissingPublicFactError

_PUBLIC_FACTS = {
    "bounds": "bounds = [low, high], the public range of the numbers",
    "categories": 'categories = ["first", "second"], all values known in public',
    "classes": 'classes = ["no", "yes"], all values of the target in a fixed order',
    "groups": 'groups = ["first", "second"], all groups in a fixed order',
    "columns": "one table [columns.NAME] for each feature",
    "target": '[target] with column = "NAME" and classes = ["no", "yes"]',
}
"""What to write where a public fact is missing."""

LONGEST_COMPARED = 100
"""Characters of a name for which a close match is sought."""


def as_fairveil_error(error: ValidationError, keys: list[str]) -> FairveilError:
    """Return pydantic's first complaint as one plain sentence; `keys` are those the failing table knows."""
    # A misspelt key is also a missing one: the spelling is what helps.
    details = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] != "extra_forbidden")
    detail = details[0]
    location, kind, inner = detail["loc"], detail["type"], detail.get("ctx", {}).get("error")
    key = str(location[0]) if location else ""
    if isinstance(inner, FairveilError):
        place, sentence = _place_in_schema(location), str(inner)
        if place and not sentence.startswith("In "):
            sentence = f"In {place}: {sentence[0].lower()}{sentence[1:]}"
        return type(inner)(sentence)
    if kind == "missing" and len(location) == 1:
        if key in _PUBLIC_FACTS:
            return MissingPublicFactError(f"Expected {_PUBLIC_FACTS[key]}; got none, so write it into the schema.")
        return BadStructureError(f"Expected the key {key}, got none; add it.")
    if kind == "extra_forbidden":
        return BadStructureError(f"Expected known keys only, got {key!r}{close_match(key, keys)}.")
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        place = _place_in_schema(location)
        return BadStructureError(f'In {place}: expected type = "number" or type = "category".')
    message = detail["msg"]
    return BadStructureError(f"Expected a valid {'.'.join(map(str, location))}: {message[:1].lower()}{message[1:]}.")


def _place_in_schema(location: tuple[int | str, ...]) -> str:
    # A discriminated union appends its tag to the column's name; a list index counts from 1 for people.
    names = [str(part) for part in location]
    if names[:1] == ["columns"]:
        names = names[:2]
    if len(names) == 2 and names[0] in ("sensitive", "where"):
        return f"[[{names[0]}]] number {int(names[1]) + 1}"
    return f"[{'.'.join(names)}]" if names else ""


def close_match(name: str, known: list[str]) -> str:
    """Return a hint such as '; did you mean "bounds"?' or nothing; long names are not compared, which takes long."""
    is_short = len(name) <= LONGEST_COMPARED
    matches = get_close_matches(name, [one for one in known if len(one) <= LONGEST_COMPARED], n=1) if is_short else []
    return f' (did you mean "{matches[0]}"?)' if matches else ""
