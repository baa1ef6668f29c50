"""Everything that may be released from the data, as frozen facts: one class per kind of release, and its JSON form.

An event states public numbers only. `Event` checks every field by its name, so that a number such as `rate` obeys
one rule wherever it occurs. What an event costs is decided in `pricing`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from typing import Any

from fairveil._validation import check_number
from fairveil.errors import DamagedLedgerError, InvalidParameterError, UnsupportedEventError

MAX_MEAN_RUNS = 1000.0
"""A larger mean number of runs has no price."""


@dataclass(frozen=True)
class Event:
    """One release, described by public numbers. Subclasses are facts; the accountant prices them."""

    def __init_subclass__(cls) -> None:
        # a subclass of a priced event would inherit its price, which nobody checked
        if cls.__bases__ != (Event,):
            raise TypeError(f"Expected {cls.__name__} to derive from Event alone, so that its price is its own.")

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            inner: Iterable[Any] = ()
            if name == "event":
                inner = [value]
            elif name == "releases":
                inner = value = tuple(value)
            elif name == "ways":
                value = tuple(map(tuple, value))
                inner = chain(*value)
            else:
                value = _CHECKS[name](name, value)
            for event in inner:
                if not isinstance(event, Event):
                    what = "event" if name == "event" else "each release"
                    raise InvalidParameterError(f"Expected {what} to be an event, got {type(event).__name__}.")
            if name == "releases" and not value:
                raise InvalidParameterError("Expected at least one release in a joint event, got none.")
            if name == "ways" and not (value and all(value)):
                raise InvalidParameterError(
                    "Expected at least one composition in a run, each with a release, got fewer; list what a run "
                    "releases."
                )
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class GaussianRelease(Event):
    """Gaussian noise on a vector; `noise_multiplier` is its standard deviation over the L2 sensitivity."""

    noise_multiplier: float


@dataclass(frozen=True)
class LaplaceRelease(Event):
    """Laplace noise on a vector; `noise_multiplier` is its scale over the L1 sensitivity."""

    noise_multiplier: float


@dataclass(frozen=True)
class DiscreteLaplaceRelease(Event):
    """Whole-number noise on counts, with probabilities proportional to exp(-|x| / scale).

    One record moves the counts by at most `sensitivity` in all (L1).
    """

    scale: float
    sensitivity: int = 1


@dataclass(frozen=True)
class DiscreteGaussianRelease(Event):
    """Whole-number noise on counts, with probabilities proportional to exp(-x^2 / (2 std^2)).

    One record moves the counts by at most `sensitivity` in all (L1), for instance one count by one.
    """

    std: float
    sensitivity: int = 1


@dataclass(frozen=True)
class ApproximateDP(Event):
    """A mechanism known only to be (epsilon, delta)-private (add or remove one record); pure if delta is 0."""

    epsilon: float
    delta: float = 0.0


@dataclass(frozen=True)
class NonPrivateRelease(Event):
    """Something was released without protection: epsilon is infinite from here on."""

    reason: str


@dataclass(frozen=True)
class UnpricedChoice(Event):
    """A choice depended on the data outside the accounting: no guarantee can be stated."""

    reason: str


@dataclass(frozen=True)
class Joint(Event):
    """Everything released from one batch of records, also if later releases were chosen after earlier ones."""

    releases: tuple[Event, ...]


@dataclass(frozen=True)
class PoissonSampled(Event):
    """The event on a batch that each record enters independently with probability `rate`."""

    rate: float
    event: Event


@dataclass(frozen=True)
class Repeated(Event):
    """The event `count` times, each with fresh noise (and a fresh batch, if it is sampled)."""

    event: Event
    count: int


@dataclass(frozen=True)
class DisjointCells(Event):
    """The event on noisy sums over disjoint cells, where only an attribute is secret.

    A record adds the same vector to one cell, whatever its attribute: the attribute says which. So a change of the
    attribute takes the record away from one sum and adds it to another, whose noises are independent.
    """

    event: Event


@dataclass(frozen=True)
class BestOfRuns(Event):
    """The best of K independent runs, and nothing else of them; K is secret and Poisson(mean), conditioned on K >= 1.

    Each run draws a candidate and splits its people by its own secret randomness. `ways` lists every composition that
    one unit may meet in one run, each as the events in sequence.
    """

    ways: tuple[tuple[Event, ...], ...]
    mean: float


@dataclass(frozen=True)
class Charge:
    """An event and the part of the data it read.

    An empty `split` means the whole data. Otherwise `split` names a partition of the records by secret randomness
    that does not depend on the records, and `part` the subset that was read; such subsets compose in parallel.
    `unit` is whom the event hides, "record" or "person by COLUMN"; costs for different units do not add up.
    """

    event: Event
    split: str = ""
    part: str = ""
    unit: str = "record"

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event):
            raise InvalidParameterError(f"Expected event to be an event, got {type(self.event).__name__}.")
        if not (isinstance(self.unit, str) and self.unit.strip()):
            raise InvalidParameterError(f"Expected unit to be a text that is not empty, got {self.unit!r}.")
        are_texts = isinstance(self.split, str) and isinstance(self.part, str)
        if not are_texts or bool(self.split) != bool(self.part):
            raise InvalidParameterError(
                f"Expected split and part both named or both empty, got {self.split!r} and {self.part!r}."
            )


def to_dict(fact: Event | Charge) -> dict[str, Any]:
    """Return an event or a charge as plain JSON values; an event states its class under the key ``event_kind``."""
    values: dict[str, Any] = {}
    if isinstance(fact, Event):
        kind = type(fact).__name__
        if _KINDS.get(kind) is not type(fact):
            raise UnsupportedEventError(f"Expected one of the known events, got {kind}; a ledger cannot hold it.")
        values["event_kind"] = kind
    for field in fields(fact):
        value = getattr(fact, field.name)
        if field.name == "event":
            value = to_dict(value)
        elif field.name == "releases":
            value = [to_dict(release) for release in value]
        elif field.name == "ways":
            value = [[to_dict(release) for release in composition] for composition in value]
        values[field.name] = value
    return values


def event_from_dict(data: Any) -> Event:
    """Return the event that `to_dict` wrote; anything else is refused.

    Examples
    --------
    >>> event_from_dict({"event_kind": "PoissonSampled", "rate": 0.01,
    ...                  "event": {"event_kind": "GaussianRelease", "noise_multiplier": 1.0}})
    PoissonSampled(rate=0.01, event=GaussianRelease(noise_multiplier=1.0))
    """
    if not isinstance(data, dict) or "event_kind" not in data:
        raise DamagedLedgerError("Expected an event with its event_kind, got something else; restore the file.")
    kind = _KINDS.get(str(data["event_kind"]))
    if kind is None:
        raise UnsupportedEventError(
            f"Expected an event of {', '.join(sorted(_KINDS))}; got {data['event_kind']!r}. "
            "A newer version may have written it: use that version to read it."
        )
    event: Event = _build(kind, {name: value for name, value in data.items() if name != "event_kind"})
    return event


def charge_from_dict(data: Any) -> Charge:
    """Return the charge that `to_dict` wrote; anything else is refused."""
    if not isinstance(data, dict):
        raise DamagedLedgerError("Expected a charge with event, split, part and unit; restore the file.")
    charge: Charge = _build(Charge, dict(data))
    return charge


def _build(kind: type, values: dict[str, Any]) -> Any:
    """Return an event or a charge from the plain values of its fields, with nested events restored."""
    expected = [field.name for field in fields(kind)]
    if sorted(values) != sorted(expected):
        raise DamagedLedgerError(
            f"Expected {kind.__name__} with fields {', '.join(expected)}; got {', '.join(values) or 'none'}. "
            "Restore the ledger file."
        )
    try:
        if "event" in values:
            values["event"] = event_from_dict(values["event"])
        if "releases" in values:
            values["releases"] = tuple(map(event_from_dict, values["releases"]))
        if "ways" in values:
            values["ways"] = tuple(tuple(map(event_from_dict, releases)) for releases in values["ways"])
        return kind(**values)
    except (InvalidParameterError, TypeError) as error:
        if isinstance(error, UnsupportedEventError):
            raise
        message = f"Expected a valid {kind.__name__} in the ledger. {error} Restore the file."
        raise DamagedLedgerError(message) from error


_KINDS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        GaussianRelease, LaplaceRelease, DiscreteLaplaceRelease, DiscreteGaussianRelease,
        ApproximateDP, NonPrivateRelease, UnpricedChoice, Joint, PoissonSampled, Repeated, BestOfRuns,
        DisjointCells,
    )
}  # fmt: skip


def _check_text(name: str, value: Any) -> str:
    if not (isinstance(value, str) and value.strip()):
        raise InvalidParameterError(f"Expected {name} to be a text that is not empty, got {value!r}.")
    return value


def _check_mean_runs(name: str, value: Any) -> float:
    mean = check_number(name, value)
    if mean > MAX_MEAN_RUNS:
        raise InvalidParameterError(f"Expected {name} <= {MAX_MEAN_RUNS:g}, got {value!r}; plan fewer runs.")
    return mean


def _check_failure(name: str, value: Any) -> float:
    return 0.0 if value == 0 and not isinstance(value, bool) else check_number(name, value, below=1)


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "noise_multiplier": check_number,
    "scale": check_number,
    "std": check_number,
    "epsilon": check_number,
    "delta": _check_failure,
    "sensitivity": partial(check_number, whole=True),
    "count": partial(check_number, whole=True),
    "rate": partial(check_number, at_most=1),
    "mean": _check_mean_runs,
    "reason": _check_text,
}
"""What a field of that name may hold; fields that hold events are checked by `Event` itself."""
