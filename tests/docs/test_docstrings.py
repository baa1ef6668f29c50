"""Do the docstrings of all public names pass numpydoc's own checks?"""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import fairveil

validate = pytest.importorskip("numpydoc.validate").validate

IGNORED = {
    "ES01": "an extended summary is written where the first line does not say all",
    "EX01": "examples stand where they help; doctests run them",
    "SA01": "the pages of the site link what belongs together",
    "RT01": "the first line of a function says what it returns",
    "YD01": "the first line of a generator says what it yields",
}
"""Checks of numpydoc that are not followed, and why."""

CALLED_BY_FAIRVEIL = {
    "bounds", "check", "comparisons", "count_outcomes", "debit", "debit_plan", "fit_source", "finish_rate",
    "holdout_stages", "last_step_noise", "noise_statements", "planned", "read_holdout", "recipe", "score", "stage",
    "stages", "steps", "train", "DualSteps.fit", "NoisyDescent.fit", "ScoreHistogram.fit",
}  # fmt: skip
"""Methods that users do not call: the protocols that recipes, constraints and plans follow document their arguments."""


def public_objects() -> Iterator[tuple[str, Any]]:
    """Yield every public name with its object, and the public methods and properties of classes."""
    for name in fairveil.__all__:
        found = getattr(fairveil, name)
        if name.startswith("_") or not callable(found):
            continue
        yield f"{found.__module__}.{found.__qualname__}", found
        for member in dir(found) if inspect.isclass(found) else ():
            owner = next((kind for kind in found.__mro__ if member in vars(kind)), None)
            is_ours = owner is not None and owner.__module__.startswith("fairveil.")
            if is_ours and not member.startswith("_"):
                kept = inspect.getattr_static(owner, member)
                if callable(kept) or isinstance(kept, (property, classmethod, staticmethod)):
                    yield f"{owner.__module__}.{owner.__qualname__}.{member}", getattr(owner, member)


OBJECTS = dict(public_objects())


def is_named(error: str, text: str) -> bool:
    """Say whether every parameter that numpydoc misses in its section is named somewhere in the docstring."""
    missing = {name.strip("*") for name in re.findall(r"'([^']+)'", error.partition("}")[0])}
    return all(re.search(rf"\b{name}\b", text) for name in missing - {"type"})  # which kind a column of a schema is


def test_the_list_is_not_empty_and_has_methods():
    assert len(OBJECTS) > 150 and "fairveil.fair_classifier.FairClassifier.certify" in OBJECTS


@pytest.mark.parametrize("name", OBJECTS)
def test_numpydoc_has_nothing_to_complain_about(name):
    text, short = inspect.getdoc(OBJECTS[name]) or "", name.rpartition(".")[2]
    parent = name.split(".")[-2]
    found = [(code, error) for code, error in validate(name)["errors"] if code not in IGNORED]
    is_protocol = {short, f"{parent}.{short}"} & CALLED_BY_FAIRVEIL or short.endswith("_for")
    is_enum = short == "NeighboringRelation"
    left = [
        f"{code}: {error}"
        for code, error in found
        if code != "PR01" or not (is_protocol or is_enum or is_named(error, text))
    ]
    assert left == [], "\n".join(left)


def test_every_ignored_check_has_a_reason_and_exists():
    from numpydoc.validate import ERROR_MSGS

    assert set(IGNORED) <= set(ERROR_MSGS) and all(IGNORED.values())
