"""What can go wrong, drawn once.

::

    FairveilError
    ├── InvalidParameter      a number or a choice is outside what it may be          (also ValueError)
    ├── BadStructure          a file, a column or a schema is not what was promised   (also ValueError)
    ├── MissingPublicFact     a bound, a category list or a size must be declared     (also ValueError)
    ├── BudgetExceeded        the ledger refuses: nothing was released
    ├── SealedLedger          a copy of a ledger was asked to spend
    ├── DamagedLedger         the journal on disk was changed or cut in the middle
    ├── UnplannedRelease      something was asked of the data that the plan does not list
    └── UnsupportedEvent      the accountant does not know this event and does not guess (also TypeError)

    ToleranceNotMet           a warning: the released rule breaks a bound it was asked to keep    (also UserWarning)

Every message says what was expected, what was got, and what to do next. No message quotes a value of a record.
"""

__all__ = [
    "BadStructure",
    "BudgetExceeded",
    "DamagedLedger",
    "FairveilError",
    "InvalidParameter",
    "MissingPublicFact",
    "SealedLedger",
    "ToleranceNotMet",
    "UnplannedRelease",
    "UnsupportedEvent",
]


class FairveilError(Exception):
    """The root of the tree: catch this to catch everything fairveil raises on purpose."""


class InvalidParameter(FairveilError, ValueError):
    """A number or a choice is outside what it may be."""


class BadStructure(FairveilError, ValueError):
    """A file, a column or a schema is not what was promised."""


class MissingPublicFact(FairveilError, ValueError):
    """A bound, a category list or a size must be declared before data may be touched."""


class BudgetExceeded(FairveilError):
    """The release would cost more than the budget leaves; nothing was released."""


class SealedLedger(FairveilError):
    """A copy of a ledger was asked to spend; only the original may."""


class DamagedLedger(FairveilError):
    """The journal on disk was changed or cut in the middle."""


class UnplannedRelease(FairveilError):
    """Something was asked of the data that the plan does not list."""


class UnsupportedEvent(FairveilError, TypeError):
    """The accountant does not know this event and does not guess."""


class ToleranceNotMet(UserWarning):
    """The released rule breaks a bound it was asked to keep, by more than noise can feign."""
