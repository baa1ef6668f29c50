"""The shape of a JSON value: every key path with its types, and how surely it is there.

Paths join keys by "/"; "[]" stands for any element of a list. A path is there "always" (in every object that may hold
it), in "some" of them, or "by chance" (in one run and not in the next, because what is released is noisy).
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

PRESENCES = ("always", "some", "by chance")
ELEMENT = "[]"
KINDS = {bool: "boolean", int: "number", float: "number", str: "string", list: "list", dict: "object"}
NUMBER_OR_NULL = {"number", "null"}


@dataclass
class Seen:
    """What was seen in one JSON value."""

    types: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    holders: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)

    def presence(self, path: str) -> str | None:
        """Return how a path is there in this value, if it is."""
        if path not in self.types:
            return None
        is_element = path.rpartition("/")[2] == ELEMENT  # a list may be empty
        is_everywhere = not path or (not is_element and self.held[path] == self.holders[parent_of(path)])
        return "always" if is_everywhere else "some"


def seen_in(value: Any) -> Seen:
    """Return what there is in a JSON value."""
    seen = Seen()
    _walk(value, "", seen)
    return seen


def _walk(value: Any, path: str, seen: Seen) -> None:
    seen.types[path].add("null" if value is None else KINDS[type(value)])
    if isinstance(value, dict | list):
        seen.holders[path] += 1
        parts = value.items() if isinstance(value, dict) else ((ELEMENT, part) for part in value)
        for name, part in parts:
            inner = f"{path}/{name}"
            seen.held[inner] += 1
            _walk(part, inner, seen)


def parent_of(path: str) -> str:
    """Return the path of the object or list that holds what is at a path."""
    return path.rpartition("/")[0]


def shape_of(values: Sequence[Any]) -> dict[str, dict[str, str]]:
    """Return the common shape of values of several runs: presence, path, types."""
    runs = [seen_in(value) for value in values]
    shape: dict[str, dict[str, str]] = {presence: {} for presence in PRESENCES}
    for path in sorted({path for run in runs for path in run.types}):
        types = set().union(*(run.types.get(path, set()) for run in runs))
        found = {run.presence(path) for run in runs if not path or run.holders[parent_of(path)]}
        presence = "by chance" if None in found else "some" if "some" in found else "always"
        shape[presence][path] = " or ".join(sorted(types))
    return shape


def level(shapes: Sequence[dict[str, dict[str, str]]]) -> None:
    """Let what varies by chance in one of several shapes vary in all: whether it is there, and null or a number."""
    both, either = "null or number", ("null", "number")
    rare = {path: text for shape in shapes for path, text in shape["by chance"].items()}
    for shape in shapes:
        for path, text in rare.items():
            found = [types.pop(path) for types in shape.values() if path in types]
            if found or any(parent_of(path) in types for types in shape.values()):
                shape["by chance"][path] = (found or [text])[0]
        shape["by chance"] = dict(sorted(shape["by chance"].items()))
    places = [(types, path) for shape in shapes for types in shape.values() for path in types]
    varying = {path for types, path in places if types[path] == both}
    for types, path in places:
        if path in varying and types[path] in either:
            types[path] = both


def broken(shape: dict[str, dict[str, str]], value: Any) -> list[str]:
    """Return what of a shape a value breaks: what is gone and what has another type; additions break nothing."""
    seen, problems = seen_in(value), []
    for presence, types in shape.items():
        for path, text in types.items():
            found = seen.presence(path)
            if found is None:
                if presence != "by chance" and (not path or seen.holders[parent_of(path)]):
                    problems.append(f"{path} is gone")
                continue
            if presence == "always" and found != "always":
                problems.append(f"{path} was always there and is now there in some places only")
            allowed = set(text.split(" or "))
            if allowed & NUMBER_OR_NULL:  # a figure may be unknown by chance
                allowed |= NUMBER_OR_NULL
            if other := seen.types[path] - allowed:
                problems.append(f"{path} was {text} and is now {' or '.join(sorted(other))}")
    return problems


def changed(golden: Any, found: Any, path: str = "", precision: float = 1e-9) -> list[str]:
    """Return where a value differs from a golden one; new keys are fine, numbers may differ by rounding."""
    if isinstance(golden, dict) and isinstance(found, dict):
        gone = [f"{path}/{name} is gone" for name in golden if name not in found]
        shared = [name for name in golden if name in found]
        return gone + [
            text for name in shared for text in changed(golden[name], found[name], f"{path}/{name}", precision)
        ]
    if isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        pairs = enumerate(zip(golden, found, strict=True))
        return [text for i, (one, other) in pairs for text in changed(one, other, f"{path}/{i}", precision)]
    are_numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (golden, found))
    is_same = (
        abs(golden - found) <= precision * abs(golden)
        if are_numbers
        else (type(golden), golden) == (type(found), found)
    )
    return [] if is_same else [f"{path} was {golden!r} and is now {found!r}"]
