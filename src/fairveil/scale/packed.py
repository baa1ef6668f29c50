"""Encoded rows packed one after the other: the bytes of one row lie together, so that reading it touches one place.

A file of such rows, mapped into memory, is a table: its columns are views, and nothing of it is copied or read before a
row is used.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil.data.coded import CodedRows, Features, Layout

SOUND_ROWS = 2**20
"""Rows that are checked at once: it bounds the memory that the check takes."""


@dataclass(frozen=True, eq=False, repr=False)  # rows are private: no print or log shows them
class RecordTable:
    """Encoded rows, each with what is known of it beside its features: what records are made of.

    Attributes
    ----------
    X : CodedRows, or array of float32 of shape (n_rows, n_features)
    y, groups : arrays of int16, shape (n_rows,)
        Class codes and group codes.
    persons : array of int64, shape (n_rows,), or None
    """

    X: Features
    y: NDArray[np.int16]
    groups: NDArray[np.int16]
    persons: NDArray[np.int64] | None


@dataclass(frozen=True, eq=False)
class PackedFormat:
    """The bytes of one packed row: public facts, all of it.

    Parameters
    ----------
    layout : Layout or None
        Of coded rows; None for dense ones.
    n_numbers : int
        Numbers of a row: scaled columns, or all features of a dense row.
    n_classes, n_groups : int
        Labels are at least 0 and below the first, group codes at least -1 and below the second.
    largest_number : float
        No number is larger than this in absolute value.
    has_persons : bool

    Attributes
    ----------
    dtype : numpy.dtype
        The fields `persons`, `numbers`, `y`, `groups` and `codes`, each aligned to its own size.
    """

    layout: Layout | None
    n_numbers: int
    n_classes: int
    n_groups: int
    largest_number: float
    has_persons: bool
    dtype: np.dtype[Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        fields: list[tuple[str, str, tuple[int, ...]]] = [("persons", "<i8", ())] * self.has_persons
        fields += [("numbers", "<f4", (self.n_numbers,))] if self.n_numbers else []
        fields += [("y", "<i2", ()), ("groups", "<i2", ())]
        if self.layout is not None:
            fields.append(("codes", np.dtype(self.layout.code_type).newbyteorder("<").str, (len(self.layout.first),)))
        # larger items come first, so every field is aligned; the row ends where the next one is aligned, too
        plain = np.dtype(fields)
        largest = 8 if self.has_persons else 4 if self.n_numbers else 2
        names, n_bytes = plain.names or (), -(-plain.itemsize // largest) * largest
        offsets = [plain.fields[name][1] for name in names] if plain.fields else []
        formats = [plain[name] for name in names]
        whole = np.dtype({"names": list(names), "formats": formats, "offsets": offsets, "itemsize": n_bytes})
        object.__setattr__(self, "dtype", whole)

    @classmethod
    def of(cls, table: RecordTable, n_classes: int, n_groups: int) -> "PackedFormat":
        """Return the format of a table, of which rows need not be there."""
        layout = table.X.layout if isinstance(table.X, CodedRows) else None
        n_numbers = table.X.shape[1] if layout is None else len(layout.scaled)
        largest = float(max(1, n_groups))  # the last number of decoupled models is a group's place
        return cls(layout, n_numbers, n_classes, n_groups, largest, table.persons is not None)

    def pack(self, table: RecordTable) -> NDArray[Any]:
        """Return the rows of a table, packed."""
        rows = np.zeros(len(table.y), dtype=self.dtype)
        rows["y"], rows["groups"] = table.y, table.groups
        numbers = table.X
        if isinstance(table.X, CodedRows):
            own = table.X.gathered()
            rows["codes"], numbers = own.codes, own.numbers
        if self.n_numbers:
            rows["numbers"] = numbers
        if self.has_persons:
            rows["persons"] = table.persons
        return rows

    def table(self, rows: NDArray[Any]) -> RecordTable:
        """Return packed rows as a table of views; nothing is copied."""
        numbers = rows["numbers"] if self.n_numbers else np.empty((len(rows), 0), dtype=np.float32)
        X = numbers if self.layout is None else CodedRows(self.layout, rows["codes"], numbers)
        return RecordTable(X, rows["y"], rows["groups"], rows["persons"] if self.has_persons else None)

    def holds(self, rows: NDArray[Any]) -> bool:
        """Say whether labels, groups and numbers of packed rows are within their ranges.

        Codes need no check: whoever reads them holds them to the layout.
        """
        for start in range(0, len(rows), SOUND_ROWS):
            part = rows[start : start + SOUND_ROWS]
            y, groups = part["y"], part["groups"]
            is_sound = y.min() >= 0 and y.max() < self.n_classes
            is_sound = is_sound and groups.min() >= -1 and groups.max() < self.n_groups
            if is_sound and self.n_numbers:  # a comparison with NaN is False
                is_sound = bool((np.abs(part["numbers"]) <= self.largest_number).all())
            if not is_sound:
                return False
        return True
