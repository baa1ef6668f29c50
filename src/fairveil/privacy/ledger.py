"""The ledger: what was ever released from a set of people. The only object here that changes.

It records events, not epsilons, so that the total is the composed total of all of them. A debit comes before the
release and is on disk before the first draw: a crash can only leave too much on the ledger.
"""

import math
import multiprocessing
import os
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from fairveil._random import Coins
from fairveil._validation import check_number
from fairveil.accounting.composition import NeighboringRelation, epsilon_of
from fairveil.accounting.events import (
    Charge,
    NonPrivateRelease,
    UnpricedChoice,
    charge_from_dict,
    to_dict,
)
from fairveil.errors import BudgetExceededError, DamagedLedgerError, SealedLedgerError
from fairveil.privacy.journal import Journal

ROUNDING = 1 + 1e-9


@dataclass(frozen=True)
class Budget:
    """The most that may ever be spent on these people."""

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
    """Proof that a release was debited; a veil cannot be opened without one."""

    entry: Entry
    split: str


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
    def read(self) -> list[dict[str, Any]]: ...

    def appending(self) -> AbstractContextManager[list[dict[str, Any]]]: ...


class _Memory:
    """A journal that lives as long as its process, and only there: a copy elsewhere would lose its debits."""

    def __init__(self) -> None:
        self._lines: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._process = os.getpid()

    def read(self) -> list[dict[str, Any]]:
        return list(self._lines)

    @contextmanager
    def appending(self) -> Iterator[list[dict[str, Any]]]:
        if os.getpid() != self._process:
            raise SealedLedgerError(_sealed("a ledger in memory was carried into another process"))
        with self._lock:
            yield self._lines


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
        self._store: _Store = _Memory() if self.path is None else Journal(self.path)
        if budget is not None:
            self.set_budget(budget)

    @classmethod
    def sealed(cls) -> "Ledger":
        """Return an empty ledger that refuses to spend, for a model that was loaded without its ledger."""
        return _sealed_copy(None, uuid.uuid4().hex)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All debits so far, oldest first."""
        return tuple(_entry(line) for line in _debits(self._store.read()))

    @property
    def budget(self) -> Budget | None:
        """The budget in force, if one was ever set."""
        budgets = [line for line in self._store.read() if line["kind"] == "budget"]
        return Budget(budgets[-1]["epsilon"], budgets[-1]["delta"]) if budgets else None

    def set_budget(self, budget: Budget) -> None:
        """Put a budget in force; a later one replaces it, and both stay on the ledger."""
        self._append({"kind": "budget", "epsilon": budget.epsilon, "delta": budget.delta})

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
        at = self._append({"kind": "debit", "purpose": purpose, "details": details}, charges)
        return Receipt(Entry(at, purpose, charges, details), split)

    def debit_unpriced(self, reason: str) -> Receipt:
        """Record a choice that used private rows outside any accounting: no total can be stated after it."""
        return self.debit([Charge(UnpricedChoice(reason))], purpose=reason)

    def epsilon(self, delta: float, relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE) -> float:
        """Return the composed total of everything ever released, at this delta."""
        charges = [charge for entry in self.entries for charge in entry.charges]
        return _total(charges, check_number("delta", delta, below=1), relation)

    @property
    def units(self) -> tuple[str, ...]:
        """Whom the entries hide, "record" or "person by COLUMN"; with more than one, no total can be stated."""
        return units_of(charge for entry in self.entries for charge in entry.charges)

    def _append(self, line: dict[str, Any], charges: Sequence[Charge] | None = None) -> str:
        """Write a line with its charges, unless they exceed the budget, and return its time."""
        if self.is_sealed:
            raise SealedLedgerError(_sealed("this is a copy"))
        at = datetime.now(UTC).isoformat(timespec="seconds")
        with self._store.appending() as lines:
            if charges:
                self.check(charges, lines)
            debited = {} if charges is None else {"charges": [to_dict(charge) for charge in charges]}
            lines.append({**line, **debited, "at": at})
        return at

    def check(self, charges: Iterable[Charge], lines: list[dict[str, Any]] | None = None) -> None:
        """Refuse now, before any data is read, what `debit` would refuse later; `lines` are those of the journal."""
        lines, charges = self._store.read() if lines is None else lines, tuple(charges)
        budgets = [line for line in lines if line["kind"] == "budget"]
        if not budgets:
            return
        budget = Budget(budgets[-1]["epsilon"], budgets[-1]["delta"])
        past = [charge for line in _debits(lines) for charge in _entry(line).charges]
        if len(units := units_of([*past, *charges])) > 1:
            raise BudgetExceededError(
                f"Expected one unit of protection on this ledger, got {' and '.join(units)}, which have no common "
                "total; nothing was released: keep to one unit, or use a ledger without a budget."
            )
        total = _total([*past, *charges], budget.delta)
        if total > budget.epsilon * ROUNDING:
            spent = _total(past, budget.delta)
            raise BudgetExceededError(
                f"Expected a total epsilon of at most {budget.epsilon:g} at delta {budget.delta:g}, got {total:.4g} "
                f"({spent:.4g} is already spent); nothing was released: ask for less or raise the budget."
            )

    def __sklearn_clone__(self) -> "Ledger":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _sealed_copy, (None if self.path is None else str(self.path), self._token)

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else f"'{self.path}'"
        return f"Ledger({where}{', sealed' if self.is_sealed else ''})"


def _sealed_copy(path: str | None, token: str) -> Ledger:
    ledger = Ledger(path)
    ledger.is_sealed, ledger._token = True, token
    return ledger


def _total(
    charges: list[Charge],
    delta: float,
    relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> float:
    """Return the composed cost; what hides records and what hides persons have no common one."""
    return math.inf if len(units_of(charges)) > 1 else epsilon_of(charges, delta, relation)


def units_of(charges: Iterable[Charge]) -> tuple[str, ...]:
    """Return whom the charges hide; what hides nobody has no unit."""
    hiding = (c for c in charges if not isinstance(c.event, (UnpricedChoice, NonPrivateRelease)))
    return tuple(sorted({charge.unit for charge in hiding}))


def _entry(line: Mapping[str, Any]) -> Entry:
    try:
        charges = tuple(charge_from_dict(charge) for charge in line["charges"])
        return Entry(line["at"], line["purpose"], charges, line["details"])
    except KeyError as missing:
        raise DamagedLedgerError(
            f"Expected a ledger entry with {missing}, got one without; restore a backup."
        ) from None


def _debits(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    strangers = {line.get("kind") for line in lines} - {"debit", "budget"}
    if strangers:
        raise DamagedLedgerError(f"Expected debits and budgets only, got {strangers.pop()!r}; update fairveil.")
    return [line for line in lines if line["kind"] == "debit"]


_FIRST_PROCESS = os.getpid()
_PROCESS_LEDGER = Ledger()


def session_ledger() -> Ledger:
    """Return the in-memory ledger of this process, for estimators without one: it records every fit, on any data."""
    if os.getpid() != _FIRST_PROCESS or multiprocessing.parent_process() is not None:
        raise SealedLedgerError(_sealed("this is a worker process"))
    return _PROCESS_LEDGER
