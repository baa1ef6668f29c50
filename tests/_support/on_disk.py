"""Records whose rows are mapped from a packed file, made of the same arguments as records in memory."""

import itertools
from pathlib import Path

import numpy as np

from fairveil.data.coded import CodedRows
from fairveil.privacy.records import MemoryRecords
from fairveil.scale.packed import PackedFormat, RecordTable

_NUMBERS = itertools.count()


def on_disk(folder: Path, X, y, groups, persons=None, **others) -> MemoryRecords:
    """Return records of these rows, mapped read-only from a new file in the folder."""
    table = RecordTable(X, y, groups, None if persons is None else np.asarray(persons))
    layout = X.layout if isinstance(X, CodedRows) else None
    n_numbers = X.shape[1] if layout is None else len(layout.scaled)
    form = PackedFormat(layout, n_numbers, 2**15, 2**15, np.inf, persons is not None)
    path = folder / f"rows-{next(_NUMBERS)}.bin"
    path.write_bytes(form.pack(table).tobytes())
    is_empty = not len(y)
    rows = np.empty(0, form.dtype) if is_empty else np.asarray(np.memmap(path, form.dtype, mode="r"))
    mapped = form.table(rows)
    return MemoryRecords(mapped.X, mapped.y, mapped.groups, mapped.persons, **others)


def keep_on_disk(monkeypatch, folder: Path, *modules) -> None:
    """Make these modules keep all their records on disk."""
    for module in modules:
        monkeypatch.setattr(module, "MemoryRecords", lambda *rows, **others: on_disk(folder, *rows, **others))
