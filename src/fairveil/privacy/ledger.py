"""The ledger: what was ever released from a set of people. The only object here that changes.

It records events, not epsilons, so that the total is the composed total of all of them. A debit comes before the
release and is on disk before the first draw: a crash can only leave too much on the ledger.
"""

import math
import multiprocessing
import os
import threading
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from fairveil._random import Coins
from fairveil._validation import check_budget, check_number
from fairveil.accounting.composition import NeighboringRelation, epsilon_of
from fairveil.accounting.events import (
    Charge,
    NonPrivateRelease,
    UnpricedChoice,
    charge_from_dict,
    to_dict,
)
from fairveil.accounting.kinds import epsilon_by_kinds
from fairveil.accounting.pricing import compositions_of
from fairveil.errors import (
    BudgetExceededError,
    DamagedLedgerError,
    FairveilError,
    InvalidParameterError,
    MemoryLedgerWarning,
    SealedLedgerError,
    UnsupportedEventError,
)
from fairveil.privacy.journal import RESTORE, Contents, Head, Journal, Line, MakeLines, link, refused
from fairveil.privacy.known_data import Fingerprint, contents_of, fitting, hide_like, remember, without_fingerprint
from fairveil.report.formatting import finite
from fairveil.report.notebook import Table, ledger_table
from fairveil.report.privacy_text import UNKNOWN_TOTAL, incomplete_lines_caution, ledger_text

MAX_DEPTH = 40
"""Lines nested more deeply than this are not read; events of real plans need less than 20."""

SMALLEST_NUMBER, LARGEST_NUMBER = 1e-30, 1e15
"""Numbers of events beyond these (but 0) are no plan's, and computations with them may fail."""

DEFAULT_DELTA = 1e-5
"""The delta of the total where no budget names another one."""

MOST_USES = 1e12
"""More uses than this have no price at any delta that matters."""

TORN = "torn"
"""The kind of a line that notes that an incomplete line was dropped before it."""

RESULT = "result"
"""The kind of a line that notes the digest of a summary, so that a summary that was changed later is noticed."""

FEW_ENTRIES = 10
"""So many entries are priced on one fine grid, like the plan of a single fit."""

ROUNDING = 1 + 1e-9


@dataclass(frozen=True)
class Budget:
    """The largest total cost that a ledger may reach: `epsilon` at `delta`."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon)
        check_number("delta", self.delta, below=1)


@dataclass(frozen=True)
class Entry:
    """One debit: when, what for, and the events it stands for."""

    at: str
    purpose: str
    charges: tuple[Charge, ...]
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Receipt:
    """Proof that a release was debited; a veil cannot be opened without one.

    `head` is that of the ledger with the entry as its last line: a ledger that does not pass through it lost the entry.
    """

    entry: Entry
    split: str
    head: Head | None = None


@dataclass(frozen=True)
class LedgerState:
    """What the lines of a ledger state at one moment.

    `n_incomplete` is how many incomplete lines at the end of the file were dropped, or will be at the next debit.
    """

    entries: tuple[Entry, ...]
    charges: list[Charge]
    budgets: tuple[Budget, ...]
    fingerprints: tuple[Fingerprint, ...]
    n_incomplete: int
    contents: Contents


_Fact = Entry | Budget | Fingerprint | None


class PublicPlan(Protocol):
    """The public numbers of a plan, which are debited before it is carried out."""

    @property
    def epsilon(self) -> float:
        """The epsilon that it was calibrated to."""

    @property
    def delta(self) -> float:
        """The delta that it is stated at."""

    @property
    def is_private(self) -> bool:
        """Whether it claims any guarantee."""

    def charges(self, split: str) -> tuple[Charge, ...]:
        """Return what the ledger debits."""


class _Store(Protocol):
    def read(self) -> Contents: ...

    def append(self, make_lines: MakeLines) -> Head | None: ...


class _Memory:
    """A journal that lives as long as its process, and only there: a copy elsewhere would lose its debits."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._chains: list[str] = []
        self._lock = threading.Lock()
        self._process = os.getpid()

    def read(self) -> Contents:
        return Contents(tuple(self._lines), tuple(self._chains))

    def append(self, make_lines: MakeLines) -> Head | None:
        if os.getpid() != self._process:
            raise SealedLedgerError(_sealed("a ledger in memory was carried into another process"))
        with self._lock:
            for line in make_lines(self.read()):
                self._chains.append(link(self._chains, line))
                self._lines.append(line)
            return self.read().head


def _sealed(what: str) -> str:
    return (
        f"Expected the original ledger, but {what}: its debits would be lost; "
        "fit in the process that holds the ledger (n_jobs=1)."
    )


class Ledger:
    """The privacy ledger of one data set, in memory or in a file that all commands share.

    Clones of an estimator share one ledger; a pickled or copied ledger comes back sealed and refuses to spend.

    Parameters
    ----------
    path : str or Path, optional
        The journal. None keeps the ledger in memory for the life of the process.
    budget : Budget, optional
        Refuse whatever would bring the total above it. In a file it stays in force for all later users.

    Examples
    --------
    >>> from fairveil.accounting.events import Charge, GaussianRelease
    >>> ledger = Ledger(budget=Budget(epsilon=1.0, delta=1e-5))
    >>> receipt = ledger.debit([Charge(GaussianRelease(10.0))], purpose="a noisy mean")
    >>> round(ledger.epsilon(delta=1e-5), 3)
    0.341
    """

    def __init__(self, path: str | Path | None = None, *, budget: Budget | None = None) -> None:
        self.path = None if path is None else Path(path)
        self.is_sealed = False
        self._token = uuid.uuid4().hex
        self._store: _Store = _Memory()
        if self.path is not None:
            try:
                self._store = Journal(Path(os.path.abspath(self.path)))  # also after the current folder changes
            except OSError as problem:
                raise refused(self.path, problem) from None
        self._newest: Head | None = None  # after the last line that was appended by this object
        self._facts: dict[str, _Fact] = {}  # by the hash of their line and all before it
        if budget is not None:
            self.set_budget(budget)

    @classmethod
    def sealed(cls) -> "Ledger":
        """Return an empty ledger that refuses to spend, for a model that was loaded without its ledger."""
        return _sealed_copy(None, None, uuid.uuid4().hex)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All debits so far, oldest first."""
        return self.state().entries

    @property
    def budget(self) -> Budget | None:
        """The budget in force, if one was ever set."""
        return next(reversed(self.state().budgets), None)

    @property
    def head(self) -> Head | None:
        """How far the ledger has come: the number of its lines and their hash; None if it is empty."""
        return self.state().contents.head

    @property
    def has_head_file(self) -> bool:
        """Whether a head is kept beside the file, so that lines removed at its end are noticed."""
        return isinstance(self._store, Journal) and self._store.head is not None

    @property
    def n_incomplete(self) -> int:
        """How many incomplete lines at the end of the file were dropped, or will be at the next debit."""
        return self.state().n_incomplete

    def passes(self, head: Head) -> bool:
        """Say whether this ledger continues the one that the head was taken of."""
        return self._store.read().passes(head)

    def set_budget(self, budget: Budget) -> None:
        """Put a budget in force; a later one replaces it, and both stay on the ledger."""
        check_budget(budget.epsilon, budget.delta)
        self._append(lambda state: [{"kind": "budget", "epsilon": budget.epsilon, "delta": budget.delta}])

    def record_data(self, data: str | Path) -> str | None:
        """Note on a ledger file, before a debit, which data it is about; a ledger in memory notes nothing.

        The note is a salted fingerprint of the content, by which the command line recognizes copies of a file, of a
        folder and of its files. It is written once for each content. Returned is the reference by which a summary may
        name the data, if any.
        """
        if self.is_sealed or not isinstance(self._store, Journal) or not (contents := contents_of(Path(data))):
            return None

        def lines(state: LedgerState) -> list[Line]:
            new = Fingerprint.of(without_fingerprint(state.fingerprints, contents))
            return [{"kind": "data", "salt": one.salt, "digest": one.digest} for one in new]

        self._append(lines)
        hide_like(self._store.path, Path(data))
        remember(self._store.path)
        return fitting(self.state().fingerprints, contents[:1])[0].reference

    def record_result(self, digest: str, at: str) -> None:
        """Note the SHA-256 `digest` of a summary that is about to be written, and its time, `at`; it costs nothing."""
        self._append(lambda state: [{"kind": RESULT, "summary": digest, "at": at}])

    def is_about(self, data: str | Path) -> bool:
        """Say whether the ledger notes this data, a part or a copy of it."""
        return bool(fitting(self.state().fingerprints, contents_of(Path(data))))

    def debit_plan(self, plan: PublicPlan, coins: Coins, purpose: str) -> Receipt:
        """Debit a plan under a new split name; with coins that are not secret, it is debited as not private."""
        split = uuid.uuid4().hex[:12]
        charges = plan.charges(split)
        if plan.is_private and not coins.is_secret:
            charges = tuple(replace(charge, event=NonPrivateRelease("seeded coins")) for charge in charges)
        details = {"epsilon": plan.epsilon if plan.is_private else None, "delta": plan.delta}
        return self.debit(charges, purpose, details, split)

    def debit(
        self,
        charges: Iterable[Charge],
        purpose: str,
        details: Mapping[str, Any] | None = None,
        split: str = "",
    ) -> Receipt:
        """Debit events before they happen, or refuse; on return they are on disk."""
        charges, details = tuple(charges), dict(details or {})
        line: Line = {"kind": "debit", "purpose": purpose, "details": details}
        line["charges"] = [to_dict(charge) for charge in charges]
        try:
            _fact({**line, "at": ""})
        except DamagedLedgerError:  # what is written must be readable
            raise InvalidParameterError(
                f"Expected events with numbers from {SMALLEST_NUMBER:g} to {LARGEST_NUMBER:g} and at most "
                f"{MOST_USES:g} uses, got others, which have no price; nothing was debited."
            ) from None
        at, head = self._append(lambda state: [line], charges)
        return Receipt(Entry(at, purpose, charges, details), split, head)

    def debit_unpriced(self, reason: str) -> Receipt:
        """Record a choice on private rows outside any accounting, with its `reason`; no total can be stated then."""
        return self.debit([Charge(UnpricedChoice(reason))], purpose=reason)

    def epsilon(self, delta: float, relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE) -> float:
        """Return the composed total of everything ever released, at this `delta`, for neighbors of this `relation`."""
        return total_epsilon(self.state().charges, check_number("delta", delta, below=1), relation)

    @property
    def units(self) -> tuple[str, ...]:
        """Whom the entries hide, "record" or "person by COLUMN"; with more than one, no total can be stated."""
        return units_of(self.state().charges)

    def check(self, charges: Iterable[Charge]) -> None:
        """Refuse now, before any data is read, what `debit` would refuse later."""
        self.state(charges)

    def _append(
        self, make_lines: Callable[[LedgerState], list[Line]], charges: tuple[Charge, ...] = ()
    ) -> tuple[str, Head | None]:
        """Write the lines that fit what is on the ledger, and return their time and the head after them."""
        if self.is_sealed:
            raise SealedLedgerError(_sealed("this is a copy"))
        at = datetime.now(UTC).isoformat(timespec="seconds")
        head = self._store.append(
            lambda past: [{"at": at, **line} for line in make_lines(self.state(charges, past))],
        )
        self._newest = head
        return at, head

    def state(self, charges: Iterable[Charge] = (), locked: Contents | None = None) -> LedgerState:
        """Return what the lines state, all of them read and checked; what was debited here must be among them.

        Parameters
        ----------
        charges : iterable of Charge
            Refused if the budget does not allow them after all that is on the ledger.
        locked : Contents, optional
            The lines, if they were read already and nobody can append meanwhile.
        """
        newest = self._newest  # before reading: another thread may append in between
        contents = self._store.read() if locked is None else locked
        if newest is not None and not contents.passes(newest):
            raise DamagedLedgerError(
                f"Expected all that was debited through the ledger {self.path}, got a file without it, which was "
                f"removed, cut or replaced meanwhile, so no total can be stated and nothing is written; {RESTORE}."
            )
        facts = []
        for line, chain in zip(contents.lines, contents.chains, strict=True):
            if chain not in self._facts:
                self._facts[chain] = _fact(line)
            facts.append(self._facts[chain])
        entries = tuple(fact for fact in facts if isinstance(fact, Entry))
        state = LedgerState(
            entries,
            [charge for entry in entries for charge in entry.charges],
            tuple(fact for fact in facts if isinstance(fact, Budget)),
            tuple(fact for fact in facts if isinstance(fact, Fingerprint)),
            sum(line["kind"] == TORN for line in contents.lines) + contents.is_torn,
            contents,
        )
        if state.budgets and (more := tuple(charges)):
            _check(more, state.budgets[-1], state.charges)
        return state

    def __sklearn_clone__(self) -> "Ledger":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        place = (None, None) if self.path is None else (str(self.path), self._newest)
        return _sealed_copy, (*place, self._token)

    def facts(self, delta: float | None = None) -> dict[str, Any]:
        """Return all debits, the composed total and the budget, as `str` and ``fairveil ledger show`` state them.

        Parameters
        ----------
        delta : float, optional
            The delta of the total; that of the budget by default, or 1e-5 without one.
        """
        state = self.state()
        allowed = None if not state.budgets else asdict(state.budgets[-1])
        delta = delta or (DEFAULT_DELTA if allowed is None else allowed["delta"])
        is_known = bool(state.entries) or not self.is_sealed  # a model may be loaded without its ledger
        cautions = [incomplete_lines_caution(state.n_incomplete)] if state.n_incomplete else []
        total = total_epsilon(state.charges, delta) if is_known else math.inf
        replaced = total_epsilon(state.charges, delta, NeighboringRelation.REPLACE_ONE) if is_known else math.inf
        return {
            "ledger": "memory" if self.path is None else str(self.path),
            "delta": delta,
            "epsilon_spent_total": finite(total),
            "epsilon_spent_total_replace_one": finite(replaced),
            "unit": " and ".join(units_of(state.charges)) or None,
            "budget": allowed,
            "entries": [
                {"at": entry.at, "purpose": entry.purpose, "details": dict(entry.details)} for entry in state.entries
            ],
            "cautions": cautions if is_known else [*cautions, UNKNOWN_TOTAL],
        }

    def __str__(self) -> str:
        try:
            return ledger_text(self.facts())
        except FairveilError as problem:  # a damaged ledger can still be named in a message
            return f"{self!r}: {problem}"

    def _repr_html_(self) -> str:
        try:
            return ledger_table(self.facts()).html()
        except FairveilError as problem:
            return Table(repr(self), (), (), (str(problem),)).html()

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else f"'{self.path}'"
        return f"Ledger({where}{', sealed' if self.is_sealed else ''})"


def _sealed_copy(path: str | None, newest: Head | None, token: str) -> Ledger:
    ledger = Ledger(path)
    ledger.is_sealed, ledger._newest, ledger._token = True, newest, token
    return ledger


def total_epsilon(
    charges: list[Charge],
    delta: float,
    relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
    *,
    one_grid: bool = False,
) -> float:
    """Return the composed cost; what hides records and what hides persons have no common one.

    Many entries are priced kind by kind, which is much quicker and errs upward, too; with `one_grid` all are priced
    like a few, on the one fine grid of `epsilon_of`.
    """
    if len(units_of(charges)) > 1:
        return math.inf
    n_entries = len({charge.split for charge in charges if charge.split}) + sum(not charge.split for charge in charges)
    price = epsilon_of if one_grid or n_entries <= FEW_ENTRIES else epsilon_by_kinds
    return price(charges, delta, relation)


def units_of(charges: Iterable[Charge]) -> tuple[str, ...]:
    """Return whom the charges hide; what hides nobody has no unit."""
    hiding = (c for c in charges if not isinstance(c.event, (UnpricedChoice, NonPrivateRelease)))
    return tuple(sorted({charge.unit for charge in hiding}))


def _check(charges: tuple[Charge, ...], budget: Budget, past: list[Charge]) -> None:
    """Refuse charges that a budget does not allow after those of the past."""
    if len(units := units_of([*past, *charges])) > 1:
        raise BudgetExceededError(
            f"Expected one unit of protection on this ledger, got {' and '.join(units)}, which have no common "
            "total; nothing was released: keep to one unit, or use a ledger without a budget."
        )
    total = total_epsilon([*past, *charges], budget.delta)
    if total > budget.epsilon * ROUNDING:
        spent = total_epsilon(past, budget.delta)
        raise BudgetExceededError(
            f"Expected a total epsilon of at most {budget.epsilon:g} at delta {budget.delta:g}, got {total:.4g} "
            f"({spent:.4g} is already spent); nothing was released: ask for less or raise the budget."
        )


def _fact(line: Line) -> _Fact:
    """Return what a line states, None if it only notes that a line was dropped; anything else is refused."""
    kind = line.get("kind")
    if kind in (TORN, RESULT):
        return None
    if kind not in ("debit", "budget", "data"):
        raise DamagedLedgerError("Expected debits, budgets and notes, got a line of another kind; update fairveil.")
    try:
        _check_size(line)
        if kind == "budget":
            return Budget(line["epsilon"], line["delta"])
        if kind == "data":
            return Fingerprint(str(line["salt"]), str(line["digest"]))
        charges = tuple(charge_from_dict(charge) for charge in line["charges"])
        if compositions_of(charges).magnitude.n_uses > MOST_USES:
            raise OverflowError
        at, purpose, details = line["at"], line["purpose"], line["details"]
        is_sound = isinstance(at, str) and isinstance(purpose, str) and isinstance(details, dict)
        for name in ("epsilon", "delta") if is_sound else ():
            if details.get(name) is not None:
                check_number(name, details[name], at_most=math.inf)
    except KeyError as missing:
        raise DamagedLedgerError(f"Expected a ledger entry with {missing}, got one without; {RESTORE}.") from None
    except (InvalidParameterError, TypeError, ArithmeticError, RecursionError) as problem:
        if isinstance(problem, UnsupportedEventError):
            raise
        is_sound = False
    if not is_sound:
        raise DamagedLedgerError(f"Expected a readable ledger entry, got one of another form; {RESTORE}.")
    return Entry(at, purpose, charges, details)


def _check_size(line: Line) -> None:
    """Refuse what is nested too deeply, or has numbers too large or too small, to be read and priced."""
    level: list[Any] = [line.get("charges")]
    for _ in range(MAX_DEPTH):
        numbers = [abs(value) for value in level if isinstance(value, (int, float)) and value]
        if not all(SMALLEST_NUMBER <= number <= LARGEST_NUMBER for number in numbers):
            raise OverflowError
        inner = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list))]
        level = [value for values in inner for value in values]
    if level:
        raise RecursionError


_FIRST_PROCESS = os.getpid()
_PROCESS_LEDGER = Ledger()


LedgerOrPath = Ledger | str | Path


def open_ledger(ledger: LedgerOrPath | None, is_private: bool = True, depth: int = 2) -> Ledger:
    """Return the ledger itself, that of a file, or the one of this process in memory.

    The first private release that is recorded in memory alone is announced by a warning, `depth` calls above the
    caller's.
    """
    if isinstance(ledger, Ledger):
        return ledger
    if isinstance(ledger, (str, Path)):
        return Ledger(ledger)
    if ledger is not None:
        raise InvalidParameterError(
            f"Expected ledger to be a Ledger or the path of its file, got {type(ledger).__name__}; write "
            'ledger="people.ledger.jsonl".'
        )
    kept = session_ledger()
    if is_private and not kept.entries:
        warnings.warn(
            "What is released here is recorded by a ledger in memory, which is lost when this process ends. Pass "
            'ledger="people.ledger.jsonl" to keep the privacy ledger of these people in a file.',
            MemoryLedgerWarning,
            stacklevel=depth + 1,
        )
    return kept


def session_ledger() -> Ledger:
    """Return the in-memory ledger of this process, for estimators without one: it records every fit, on any data."""
    if os.getpid() != _FIRST_PROCESS or multiprocessing.parent_process() is not None:
        raise SealedLedgerError(_sealed("this is a worker process"))
    return _PROCESS_LEDGER
