"""All errors of fairveil, as one tree.

::

    FairveilError
    ├── InvalidParameterError      a number or a choice is outside what it may be          (also ValueError)
    ├── BadStructureError          a file, a column or a schema is not what was promised   (also ValueError)
    ├── MissingPublicFactError     a bound, a category list or a size must be declared     (also ValueError)
    ├── BudgetExceededError        the ledger refuses: nothing was released
    ├── SealedLedgerError          a copy of a ledger tried to spend
    ├── DamagedLedgerError         the journal on disk was changed or cut in the middle
    ├── UnplannedReleaseError      a release that the plan does not list was requested
    └── UnsupportedEventError      the accountant does not know this event and does not guess (also TypeError)

    ToleranceNotMetWarning           a warning: the released rule breaks a requested bound (also UserWarning)

Every message says what was expected, what was got, and what to do next. No message quotes a value of a record.
"""


class FairveilError(Exception):
    """The root of the tree: catch this to catch everything fairveil raises on purpose."""


class InvalidParameterError(FairveilError, ValueError):
    """A number or a choice is outside what it may be."""


class BadStructureError(FairveilError, ValueError):
    """A file, a column or a schema is not what was promised."""


class MissingPublicFactError(FairveilError, ValueError):
    """A bound, a category list or a size must be declared before data may be read."""


class BudgetExceededError(FairveilError):
    """The release would cost more than the budget leaves; nothing was released."""


class SealedLedgerError(FairveilError):
    """A copy of a ledger tried to spend; only the original may."""


class DamagedLedgerError(FairveilError):
    """The journal on disk was changed or cut in the middle."""


class UnplannedReleaseError(FairveilError):
    """A release that the plan does not list was requested."""


class UnsupportedEventError(FairveilError, TypeError):
    """The accountant does not know this event and does not guess."""


class ToleranceNotMetWarning(UserWarning):
    """The released rule breaks a requested bound by more than noise can explain."""
