"""What was released from the data, written down: one frozen fact per kind of release, and its JSON form."""

from dataclasses import dataclass, fields
from typing import Any

from fairveil._validation import check_delta, check_integer, check_positive, check_probability
from fairveil.errors import DamagedLedgerError, InvalidParameterError, UnsupportedEventError

MOST_RUNS = 1000.0
"""A larger mean number of runs is not priced."""


def _check_text(name: str, value: Any) -> str:
    if not (isinstance(value, str) and value.strip()):
        raise InvalidParameterError(f"Expected {name} to be a text that is not empty, got {value!r}.")
    return value


def _check_event(name: str, value: Any) -> "Event":
    if not isinstance(value, Event):
        raise InvalidParameterError(f"Expected {name} to be an event, got {type(value).__name__}.")
    return value


@dataclass(frozen=True)
class Event:
    """One release, described by public numbers only. Subclasses are facts; the accountant prices them."""

    def __init_subclass__(cls) -> None:
        # a subclass of a priced event would inherit its price, which nobody checked
        if cls.__bases__ != (Event,):
            raise TypeError(
                f"Expected {cls.__name__} to derive from Event alone, so that its price is its own."
            )

    def _keep(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


@dataclass(frozen=True)
class GaussianRelease(Event):
    """Gaussian noise on a vector; `noise_multiplier` is its standard deviation over the L2 sensitivity."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        self._keep("noise_multiplier", check_positive("noise_multiplier", self.noise_multiplier))


@dataclass(frozen=True)
class LaplaceRelease(Event):
    """Laplace noise on a vector; `noise_multiplier` is its scale over the L1 sensitivity."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        self._keep("noise_multiplier", check_positive("noise_multiplier", self.noise_multiplier))


@dataclass(frozen=True)
class DiscreteLaplaceRelease(Event):
    """Whole-number noise with law proportional to exp(-|x| / scale) on counts.

    One record moves the counts by at most `sensitivity` in all (L1).
    """

    scale: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        self._keep("scale", check_positive("scale", self.scale))
        self._keep("sensitivity", check_integer("sensitivity", self.sensitivity))


@dataclass(frozen=True)
class DiscreteGaussianRelease(Event):
    """Whole-number noise with law proportional to exp(-x^2 / (2 std^2)) on counts.

    One record moves the counts by at most `sensitivity` in all (L1), for instance one count by one.
    """

    std: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        self._keep("std", check_positive("std", self.std))
        self._keep("sensitivity", check_integer("sensitivity", self.sensitivity))


@dataclass(frozen=True)
class RandomizedResponse(Event):
    """One answer per record: the true bucket, or with probability `noise_parameter` a uniform one.

    A record that is absent or unknown answers uniformly.
    """

    noise_parameter: float
    n_buckets: int

    def __post_init__(self) -> None:
        self._keep("noise_parameter", check_probability("noise_parameter", self.noise_parameter))
        self._keep("n_buckets", check_integer("n_buckets", self.n_buckets, at_least=2))


@dataclass(frozen=True)
class PureDP(Event):
    """A mechanism known only to be epsilon-private (add or remove one record)."""

    epsilon: float

    def __post_init__(self) -> None:
        self._keep("epsilon", check_positive("epsilon", self.epsilon))


@dataclass(frozen=True)
class ApproximateDP(Event):
    """A mechanism known only to be (epsilon, delta)-private (add or remove one record)."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        self._keep("epsilon", check_positive("epsilon", self.epsilon))
        self._keep("delta", check_delta(self.delta))


@dataclass(frozen=True)
class NonPrivateRelease(Event):
    """Something was released without protection: epsilon is infinite from here on."""

    reason: str

    def __post_init__(self) -> None:
        _check_text("reason", self.reason)


@dataclass(frozen=True)
class UnpricedChoice(Event):
    """A choice looked at the data outside the accounting: no guarantee can be stated."""

    reason: str

    def __post_init__(self) -> None:
        _check_text("reason", self.reason)


@dataclass(frozen=True)
class Joint(Event):
    """Everything released from one batch of records, also when later parts were chosen after earlier ones."""

    releases: tuple[Event, ...]

    def __post_init__(self) -> None:
        releases = tuple(_check_event("each release", release) for release in self.releases)
        if not releases:
            raise InvalidParameterError("Expected at least one release in a joint event, got none.")
        self._keep("releases", releases)


@dataclass(frozen=True)
class PoissonSampled(Event):
    """The event on a batch that each record enters by its own coin with probability `rate`."""

    rate: float
    event: Event

    def __post_init__(self) -> None:
        self._keep("rate", check_probability("rate", self.rate))
        _check_event("event", self.event)


@dataclass(frozen=True)
class Repeated(Event):
    """The event `count` times, each with fresh noise (and a fresh batch, if it is sampled)."""

    event: Event
    count: int

    def __post_init__(self) -> None:
        _check_event("event", self.event)
        self._keep("count", check_integer("count", self.count))


@dataclass(frozen=True)
class DisjointCells(Event):
    """The event on noisy sums that are kept apart by cells, where an attribute alone is secret.

    A record adds the same vector to one cell, whatever its attribute: the attribute says which. So a change of the
    attribute takes the record away from one sum and adds it to another, whose noises are independent.
    """

    event: Event

    def __post_init__(self) -> None:
        _check_event("event", self.event)


@dataclass(frozen=True)
class BestOfRuns(Event):
    """The best of K independent runs, and nothing else of them; K is secret and Poisson(mean), given K >= 1.

    Each run draws a candidate and splits its people by secret coins of its own. `ways` lists everything that one unit
    may so meet in one run, each way as the events met one after the other.
    """

    ways: tuple[tuple[Event, ...], ...]
    mean: float

    def __post_init__(self) -> None:
        ways = tuple(tuple(_check_event("each release", event) for event in way) for way in self.ways)
        if not ways or not all(ways):
            raise InvalidParameterError(
                "Expected at least one way through a run, each with a release, got fewer; list what a run releases."
            )
        self._keep("ways", ways)
        self._keep("mean", check_positive("mean", self.mean))
        if self.mean > MOST_RUNS:
            raise InvalidParameterError(
                f"Expected mean <= {MOST_RUNS:g}, got {self.mean!r}; plan fewer runs."
            )


@dataclass(frozen=True)
class Charge:
    """An event and the part of the data it read.

    An empty `split` means the whole data. Otherwise `split` names a partition of the records by secret coins
    that do not look at the records, and `part` the piece that was read; such pieces compose in parallel.
    `unit` is whom the event hides, "record" or "person by COLUMN"; costs for different units do not add up.
    """

    event: Event
    split: str = ""
    part: str = ""
    unit: str = "record"

    def __post_init__(self) -> None:
        _check_event("event", self.event)
        _check_text("unit", self.unit)
        are_texts = isinstance(self.split, str) and isinstance(self.part, str)
        if not are_texts or bool(self.split) != bool(self.part):
            raise InvalidParameterError(
                f"Expected split and part both named or both empty, got {self.split!r} and {self.part!r}."
            )


_KINDS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        GaussianRelease, LaplaceRelease, DiscreteLaplaceRelease, DiscreteGaussianRelease, RandomizedResponse,
        PureDP, ApproximateDP, NonPrivateRelease, UnpricedChoice, Joint, PoissonSampled, Repeated, BestOfRuns,
        DisjointCells,
    )
}  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, Event):
        return event_to_dict(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _rich(value: Any) -> Any:
    if isinstance(value, dict):
        return event_from_dict(value)
    return tuple(_rich(item) for item in value) if isinstance(value, list) else value


def event_to_dict(event: Event) -> dict[str, Any]:
    """Return the event as plain JSON values, its kind under the key ``event_kind``."""
    kind = type(event).__name__
    if _KINDS.get(kind) is not type(event):
        raise UnsupportedEventError(f"Expected one of the known events, got {kind}; a ledger cannot hold it.")
    return {"event_kind": kind, **{field.name: _plain(getattr(event, field.name)) for field in fields(event)}}


def event_from_dict(data: Any) -> Event:
    """Return the event that `event_to_dict` wrote; anything else is refused.

    Examples
    --------
    >>> event_from_dict({"event_kind": "PoissonSampled", "rate": 0.01,
    ...                  "event": {"event_kind": "GaussianRelease", "noise_multiplier": 1.0}})
    PoissonSampled(rate=0.01, event=GaussianRelease(noise_multiplier=1.0))
    """
    if not isinstance(data, dict) or "event_kind" not in data:
        raise DamagedLedgerError(
            "Expected an event with its event_kind, got something else; restore the file."
        )
    kind = _KINDS.get(str(data["event_kind"]))
    if kind is None:
        raise UnsupportedEventError(
            f"Expected an event of {', '.join(sorted(_KINDS))}; got {data['event_kind']!r}. "
            "A newer version may have written it: use that version to read it."
        )
    return _build(kind, {name: value for name, value in data.items() if name != "event_kind"})


def _build(kind: type, values: dict[str, Any]) -> Any:
    expected = [field.name for field in fields(kind)]
    if sorted(values) != sorted(expected):
        raise DamagedLedgerError(
            f"Expected {kind.__name__} with fields {', '.join(expected)}; got {', '.join(values) or 'none'}. "
            "Restore the ledger file."
        )
    try:
        return kind(**{name: _rich(value) for name, value in values.items()})
    except (InvalidParameterError, TypeError) as error:
        if isinstance(error, UnsupportedEventError):
            raise
        message = f"Expected a valid {kind.__name__} in the ledger. {error} Restore the file."
        raise DamagedLedgerError(message) from error


def charge_to_dict(charge: Charge) -> dict[str, Any]:
    """Return the charge as plain JSON values."""
    return {
        "event": event_to_dict(charge.event),
        "split": charge.split,
        "part": charge.part,
        "unit": charge.unit,
    }


def charge_from_dict(data: Any) -> Charge:
    """Return the charge that `charge_to_dict` wrote; anything else is refused."""
    if not isinstance(data, dict):
        raise DamagedLedgerError("Expected a charge with event, split, part and unit; restore the file.")
    charge: Charge = _build(Charge, data)
    return charge
