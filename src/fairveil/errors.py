"""All errors of fairveil, as one tree.

::

    FairveilError
    ├── InvalidParameterError      a number or a choice is outside what it may be          (also ValueError)
    ├── BadStructureError          a file, a column or a schema is not what was promised   (also ValueError)
    ├── MissingPublicFactError     a bound, a category list or a size must be declared     (also ValueError)
    ├── MissingPackageError        an optional package is needed and not installed         (also ImportError)
    ├── NotEnoughMemoryError       the rows and their copies do not fit into memory            (also MemoryError)
    ├── BudgetExceededError        the ledger refuses: nothing was released
    ├── SealedLedgerError          a copy of a ledger tried to spend
    ├── DamagedLedgerError         the ledger on disk was changed, cut or removed
    ├── UnplannedReleaseError      a release that the plan does not list was requested
    ├── WorkerLostError            a worker ended, or failed, and the run stopped; the debit stays on the ledger
    └── UnsupportedEventError      the accountant does not know this event and does not guess (also TypeError)

    SmallTableWarning                a warning: too few people for the tolerance or a model (also UserWarning)
    ToleranceNotMetWarning           a warning: the released rule breaks a requested bound (also UserWarning)
    UnpricedSearchWarning            a warning: after a search, no total can be stated (also UserWarning)
    UnknownGroupWarning              a warning: predict met groups that the schema does not name (also UserWarning)
    MemoryLedgerWarning              a warning: the privacy ledger is lost when the process ends (also UserWarning)

Every message says what was expected, what was got, and what to do next. No message quotes a value of a record, and none
holds a character that steers a terminal: names in it may come from a file that somebody else wrote.
"""

from collections.abc import Iterator
from contextlib import contextmanager

HARMLESS = "\N{NO-BREAK SPACE}\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"
"""Invisible characters that text may hold: in numbers, and in words of many scripts."""

LONGEST_MESSAGE = 3000
"""Characters of a message; of a longer one the middle is left out."""


class FairveilError(Exception):
    """Base class of all errors that fairveil raises on purpose; the `message` says what to do."""

    def __init__(self, message: str = "") -> None:
        if len(message) > LONGEST_MESSAGE:
            message = f"{message[: LONGEST_MESSAGE // 2]} ... {message[-LONGEST_MESSAGE // 2 :]}"
        super().__init__(printable(message))


def printable(text: str, kept: str = "") -> str:
    r"""Return text that cannot steer a terminal: control, direction and other invisible characters are escaped.

    Characters in `kept` stay as they are.

    Examples
    --------
    >>> print(printable(f"red{chr(27)}[31m and{chr(0x202E)} backwards"))
    red\x1b[31m and\u202e backwards
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in kept or char in HARMLESS else ascii(char)[1:-1] for char in text
    )


class InvalidParameterError(FairveilError, ValueError):
    """A number or a choice is outside what it may be."""


class BadStructureError(FairveilError, ValueError):
    """A file, a column or a schema is not what was promised."""


class MissingPublicFactError(FairveilError, ValueError):
    """A bound, a category list or a size must be declared before data may be read."""


class MissingPackageError(FairveilError, ImportError):
    """An optional package is needed and not installed."""


class NotEnoughMemoryError(FairveilError, MemoryError):
    """The rows and their copies do not fit into memory."""


class BudgetExceededError(FairveilError):
    """The release would cost more than the budget leaves; nothing was released."""


class SealedLedgerError(FairveilError):
    """A copy of a ledger tried to spend; only the original may."""


class DamagedLedgerError(FairveilError):
    """The ledger on disk was changed, cut or removed."""


class UnplannedReleaseError(FairveilError):
    """A release that the plan does not list was requested."""


class WorkerLostError(FairveilError):
    """A worker ended, or failed, and the run stopped; what was debited stays on the ledger."""


class UnsupportedEventError(FairveilError, TypeError):
    """The accountant does not know this event and does not guess."""


class MemoryLedgerWarning(UserWarning):
    """The privacy ledger is kept in memory only: it is lost when the process ends."""


class UnpricedSearchWarning(UserWarning):
    """A search compares fits on private rows outside the accounting: no total can be stated after it."""


class SmallTableWarning(UserWarning):
    """By its public size, a table is probably too small for what is requested or to train on; nothing was spent yet."""


class ToleranceNotMetWarning(UserWarning):
    """The released rule breaks a requested bound by more than noise can explain."""


class UnknownGroupWarning(UserWarning):
    """More than a few rows passed to predict have a missing or unlisted group.

    Unlike all other messages it states a count of rows: predict answers about the rows of whoever calls it.
    """


@contextmanager
def without_array_sizes() -> Iterator[None]:
    """Turn any MemoryError into one without numbers: NumPy states the shape of the array, and so the number of rows."""
    try:
        yield
    except MemoryError as problem:
        if isinstance(problem, NotEnoughMemoryError):
            raise
        raise NotEnoughMemoryError(
            "Expected enough memory for the encoded rows and their copies, got too little; use a machine with more, "
            'fewer columns or fewer bins (encode = "scale" makes two features of a number column).'
        ) from None
