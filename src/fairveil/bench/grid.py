"""GRID.toml in, runs out: data set x method x constraint x epsilon x tolerance x seed.

Every key is checked before anything is run. A run has an identity that follows from all that decides its figures, so a
grid that is changed shares with its earlier form the runs that are the same.
"""

import hashlib
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from fairveil.bench.entrants import contender_named
from fairveil.bench.problems import Data
from fairveil.data.schema_errors import close_match
from fairveil.errors import BadStructureError, InvalidParameterError
from fairveil.fairness.constraints import CONSTRAINT_TYPES
from fairveil.methods.registry import AUTO, METHODS
from fairveil.methods.settings import with_settings

FIRST_SEED = 1000
"""Of the splits, where a grid says only how many; seeds below 100 were used while defaults were set."""

TESTS = ("t", "wilcoxon")
"""How contenders are compared over common splits."""

KEYS = (
    "data", "methods", "constraints", "epsilons", "tolerances", "seeds", "delta", "train_share", "aware", "baseline",
    "test", "reference_gap", "gaps",
)  # fmt: skip
DATA_KEYS = ("name", "source", "schema", "sensitive", "aware", "split", "unit", "rows", "optional")
METHOD_KEYS = ("name", "label", "model", "knobs", "settings")


@dataclass(frozen=True)
class Entrant:
    """A contender with the choices of a grid.

    Attributes
    ----------
    name : str
        Of the contender.
    label : str
        In tables; one grid may hold a contender several times, with other choices.
    model : str or None
        What a method trains.
    knobs : tuple of float
        Swept in place of tolerances, for methods that have a knob.
    settings : mapping
        Fields of the method's recipe by name.
    """

    name: str
    label: str
    model: str | None = None
    knobs: tuple[float, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def options(self, knob: float | None) -> dict[str, Any]:
        """Return what a problem carries of these choices."""
        found = {"model": self.model, "knob": knob, "settings": dict(self.settings) or None}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class Run:
    """One fit on one split.

    Attributes
    ----------
    data : Data
    version : str
        The fingerprint of the table and its schema.
    contender, label : str
    options : mapping
    constraint : str
    epsilon, tolerance : float or None
        None for a contender that is not private, or that keeps no tolerance.
    delta : float
    seed : int
    train_share : float
    """

    data: Data
    version: str
    contender: str
    label: str
    options: Mapping[str, Any]
    constraint: str
    epsilon: float | None
    tolerance: float | None
    delta: float
    seed: int
    train_share: float

    @property
    def facts(self) -> dict[str, Any]:
        """All that decides the figures, as JSON knows it."""
        found = {name: value for name, value in vars(self).items() if name != "data"}
        found["epsilon"] = "inf" if self.epsilon == math.inf else self.epsilon
        return found | {"data": asdict(self.data) | {"sensitive": list(self.data.sensitive)}}

    @property
    def identity(self) -> str:
        """Words that a person recognizes, and a hash of all facts but labels and places: they decide no figure."""
        facts = self.facts
        own = {name: value for name, value in facts["data"].items() if name not in {"name", "source", "schema"}}
        decisive = {name: value for name, value in facts.items() if name != "label"} | {"data": own}
        digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:10]
        words = [Path(self.data.source).stem, self.contender, self.constraint]
        words += [] if self.epsilon is None else [f"e{self.epsilon:g}"]
        words += [] if self.tolerance is None else [f"t{self.tolerance:g}"]
        text = "-".join(_plain(word) for word in [*words, f"s{self.seed}"])
        return f"{text[:120]}-{digest}"


def _plain(word: str) -> str:
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._") else "_" for letter in word)


@dataclass(frozen=True)
class Grid:
    """What a grid file says, checked.

    Attributes
    ----------
    data : tuple of Data
        Those whose rows are there.
    missing : tuple of str
        Optional data sets whose rows are not there.
    entrants : tuple of Entrant
    constraints : tuple of str
    epsilons, tolerances : tuple of float
    seeds : tuple of int
    delta, train_share : float
    baseline : str
        The label that others are compared with, split by split.
    test : {"t", "wilcoxon"}
    reference_gap : float
        Up to which gap dominated areas are counted.
    gaps : tuple of float
        At which the best accuracy is listed.
    """

    data: tuple[Data, ...]
    missing: tuple[str, ...]
    entrants: tuple[Entrant, ...]
    constraints: tuple[str, ...]
    epsilons: tuple[float, ...]
    tolerances: tuple[float, ...]
    seeds: tuple[int, ...]
    delta: float
    train_share: float
    baseline: str
    test: str
    reference_gap: float
    gaps: tuple[float, ...]

    def runs(self) -> Iterator[Run]:
        """Return all runs, those of one data set together."""
        for data in self.data:
            version = data.fingerprint()
            for entrant, constraint in product(self.entrants, self.constraints):
                one = contender_named(entrant.name)
                epsilons = self.epsilons if one.is_private else (None,)
                tolerances = self.tolerances if one.keeps_tolerance else (None,)
                knobs = entrant.knobs or (None,)
                for epsilon, tolerance, knob, seed in product(epsilons, tolerances, knobs, self.seeds):
                    label = entrant.label if knob is None else f"{entrant.label} {knob:g}"
                    options = entrant.options(knob)
                    yield Run(
                        data, version, entrant.name, label, options, constraint, epsilon, tolerance, self.delta, seed,
                        self.train_share,
                    )  # fmt: skip


# --- reading ----------------------------------------------------------------------------------------------------------


def read_grid(path: Path) -> Grid:
    """Return the grid of a file; paths in it are relative to its folder."""
    try:
        facts = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadStructureError(f"Expected a grid in {path}, got no file; check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        reason = " ".join(str(problem).split())
        raise BadStructureError(f"Expected {path.name} to be TOML, got: {reason}; correct the file.") from None
    return grid_of(facts, path.parent)


def grid_of(facts: Mapping[str, Any], folder: Path) -> Grid:
    """Return the grid of these facts; refuse unknown keys and values that do not fit."""
    _check_keys(facts, KEYS, "the grid")
    for name in ("data", "methods"):
        if not isinstance(facts.get(name), list) or not facts[name]:
            raise InvalidParameterError(f'Expected {name} = [...] in the grid, got none; write {name} = ["..."].')
    data, missing = _data(facts, folder)
    entrants = tuple(_entrant(one) for one in facts["methods"])
    labels = [one.label for one in entrants]
    repeated = next((one for one in labels if labels.count(one) > 1), None)
    if repeated is not None:
        raise InvalidParameterError(f'Expected each method once, got {repeated!r} twice; write label = "..." for one.')
    choices = [json.dumps(vars(one) | {"label": ""}, sort_keys=True, default=str) for one in entrants]
    if len(set(choices)) < len(choices):
        raise InvalidParameterError("Expected methods that differ in more than their label, got one twice; remove one.")
    known = [contender_named(one.name) for one in entrants]
    constraints = _names("constraints", facts.get("constraints", ["demographic_parity"]), tuple(CONSTRAINT_TYPES))
    if any(one.is_private for one in known) and "epsilons" not in facts:
        raise InvalidParameterError("Expected epsilons = [...] for private methods, got none; write epsilons = [1].")
    if any(one.keeps_tolerance for one in known) and "tolerances" not in facts:
        raise InvalidParameterError(
            "Expected tolerances = [...] for methods that keep one, got none; write tolerances = [0.02, 0.05]."
        )
    baseline = facts.get("baseline", labels[0])
    if baseline not in labels:
        raise InvalidParameterError(f"Expected baseline to be one of {', '.join(labels)}, got {baseline!r}.")
    test = facts.get("test", TESTS[0])
    if test not in TESTS:
        raise InvalidParameterError(f"Expected test to be one of {', '.join(TESTS)}, got {test!r}.")
    return Grid(
        data=tuple(data),
        missing=tuple(missing),
        entrants=entrants,
        constraints=constraints,
        epsilons=_numbers("epsilons", facts.get("epsilons", []), lambda one: one > 0),
        tolerances=_numbers("tolerances", facts.get("tolerances", []), lambda one: 0 <= one <= 1),
        seeds=_seeds(facts.get("seeds", 5)),
        delta=_number("delta", facts.get("delta", 1e-5), lambda one: 0 < one < 1),
        train_share=_number("train_share", facts.get("train_share", 0.75), lambda one: 0 < one < 1),
        baseline=baseline,
        test=test,
        reference_gap=_number("reference_gap", facts.get("reference_gap", 0.2), lambda one: 0 < one <= 1),
        gaps=_numbers("gaps", facts.get("gaps", [0.01, 0.02, 0.05, 0.1]), lambda one: 0 <= one <= 1),
    )


def _check_keys(facts: Any, keys: tuple[str, ...], where: str) -> None:
    if not isinstance(facts, Mapping):
        raise InvalidParameterError(f"Expected a table of keys in {where}, got {facts!r}; write {{ name = ... }}.")
    for name in facts:
        if name not in keys:
            hint = close_match(name, list(keys))
            raise InvalidParameterError(f"Expected the keys {', '.join(keys)} in {where}, got {name!r}{hint}.")


def _data(facts: Mapping[str, Any], folder: Path) -> tuple[list[Data], list[str]]:
    """Return the data sets whose rows are there, and the names of optional ones whose rows are not."""
    found: list[Data] = []
    missing: list[str] = []
    for entry in facts["data"]:
        one = {"source": entry} if isinstance(entry, str) else entry
        _check_keys(one, DATA_KEYS, "an entry of data")
        own = {"aware": facts.get("aware")} | dict(one)
        is_optional = _flag("optional", own.pop("optional", False))
        data = _one_data(own, folder)
        try:
            is_there = data.path.exists()
        except BadStructureError:
            if not is_optional:
                raise
            is_there = False
        if is_there:
            data.public()
            found.append(data)
        elif is_optional:
            missing.append(data.name)
        else:
            raise BadStructureError(f"Expected a table in {data.source}, got none; check its path in the grid.")
    names = [one.name for one in found]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InvalidParameterError(f'Expected each data set once, got {repeated!r} twice; write name = "..." for one.')
    if not found:
        raise InvalidParameterError("Expected at least one data set whose rows are there, got none; add another one.")
    return found, missing


def _one_data(own: dict[str, Any], folder: Path) -> Data:
    for name in ("source", "name", "schema"):
        if name in own and not isinstance(own[name], str):
            raise InvalidParameterError(f"Expected {name} to be text in an entry of data, got {own[name]!r}.")
    if "source" not in own:
        raise InvalidParameterError('Expected source = "..." in an entry of data, a known name or a path, got none.')
    if own["aware"] is None:
        raise InvalidParameterError(
            "Expected aware = true or aware = false in the grid, got none; state whether decisions may read the "
            "sensitive columns."
        )
    _flag("aware", own["aware"])
    source = own["source"]
    if "/" in source or (folder / source).exists():
        own["source"] = str(folder / source)
    own.setdefault("name", Path(source).stem)
    if "schema" in own:
        own["schema"] = str(folder / own["schema"])
    sensitive = own.get("sensitive", ())
    several = (sensitive,) if isinstance(sensitive, str) else tuple(sensitive)
    own["sensitive"] = _names("sensitive", list(several), ()) if several else ()
    for name, choices in (("split", ("row", "person")), ("unit", ("record", "person"))):
        if own.get(name, choices[0]) not in choices:
            raise InvalidParameterError(f"Expected {name} to be {' or '.join(choices)}, got {own[name]!r}.")
    if "rows" in own:
        own["rows"] = int(_number("rows", own["rows"], lambda one: one >= 1))
    if own.get("unit") == "person" and own.get("split", "row") != "person":
        raise InvalidParameterError(
            'Expected split = "person" with unit = "person", got rows: a person would be on both sides; add it.'
        )
    return Data(**own)


def _entrant(entry: Any) -> Entrant:
    own = {"name": entry} if isinstance(entry, str) else entry
    _check_keys(own, METHOD_KEYS, "an entry of methods")
    for name in ("name", "label", "model"):
        if name in own and not isinstance(own[name], str):
            raise InvalidParameterError(f"Expected {name} to be text in an entry of methods, got {own[name]!r}.")
    if "name" not in own:
        raise InvalidParameterError('Expected name = "..." in an entry of methods, got none.')
    contender, settings = contender_named(own["name"]), own.get("settings", {})
    if not isinstance(settings, Mapping):
        raise InvalidParameterError(f"Expected settings = {{ NAME = VALUE }} for {own['name']}, got {settings!r}.")
    settings = dict(_flat(settings))
    knobs = _numbers("knobs", own.get("knobs", []), math.isfinite)
    if knobs and not contender.has_knob:
        raise InvalidParameterError(f"Expected no knobs for {own['name']}, which has none; leave them out.")
    method = METHODS.get(own["name"])
    if method is not None:  # refuse a setting or a model that does not exist before anything is run
        with_settings(method.make_training(own.get("model"), knobs[0] if knobs else None), settings)
    elif contender.name != AUTO and (settings or "model" in own):
        raise InvalidParameterError(f"Expected no model and no settings for {own['name']}, which has none.")
    return Entrant(own["name"], own.get("label", own["name"]), own.get("model"), knobs, settings)


def _flat(settings: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, Any]]:
    """Return settings with dots in their names: TOML reads `descent.n_steps = 5` as a table in a table."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{start}{name}.")
        else:
            yield f"{start}{name}", value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidParameterError(f"Expected {name} = true or {name} = false in the grid, got {value!r}.")
    return value


def _number(name: str, value: Any, fits: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value) or not fits(value):
        raise InvalidParameterError(f"Expected numbers that {name} can have in the grid, got {value!r}; correct it.")
    return float(value)


def _numbers(name: str, values: Any, fits: Any) -> tuple[float, ...]:
    several = values if isinstance(values, list) else [values]
    return tuple(dict.fromkeys(_number(name, one, fits) for one in several))


def _names(name: str, values: Any, choices: tuple[str, ...]) -> tuple[str, ...]:
    several = [values] if isinstance(values, str) else values
    if not isinstance(several, list) or not several or not all(isinstance(one, str) for one in several):
        raise InvalidParameterError(f'Expected {name} = ["..."] in the grid, got {values!r}.')
    wrong = next((one for one in several if choices and one not in choices), None)
    if wrong is not None:
        hint = close_match(wrong, list(choices))
        raise InvalidParameterError(f"Expected {name} among {', '.join(choices)}; got {wrong!r}{hint}.")
    return tuple(dict.fromkeys(several))


def _seeds(value: Any) -> tuple[int, ...]:
    """Return seeds: a list as it is, or so many from the first one on."""
    several = value if isinstance(value, list) else [value]
    if not several or any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in several):
        raise InvalidParameterError(f"Expected seeds to be a number of splits or a list of seeds, got {value!r}.")
    if isinstance(value, list):
        return tuple(dict.fromkeys(several))
    if value < 1:
        raise InvalidParameterError("Expected at least one split in seeds, got 0.")
    return tuple(range(FIRST_SEED, FIRST_SEED + value))
