"""Packed rows: every kind of table comes back as it was, as aligned views."""

import numpy as np
import pytest

from fairveil.data.coded import CodedRows, Layout
from fairveil.scale.packed import PackedFormat, RecordTable

N_ROWS = 50
LAYOUTS = {
    "codes": Layout(9, [0, 3, 6], [3, 3, 3], [False] * 3, []),
    "wide codes": Layout(1003, [0, 1000], [1000, 3], [False] * 2, []),
    "codes and numbers": Layout(5, [0, 3], [3, 1], [False] * 2, [4]),
    "dense": None,
}


@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_table_comes_back_as_aligned_views(kind, persons, rng):
    layout, X = LAYOUTS[kind], rng.uniform(-1, 1, (N_ROWS, 6)).astype(np.float32)
    if layout is not None:
        codes = rng.integers(0, layout.n_levels, (N_ROWS, len(layout.first))).astype(layout.code_type)
        X = CodedRows(layout, codes, X[:, : len(layout.scaled)])
    y, groups = rng.integers(0, 3, N_ROWS).astype(np.int16), rng.integers(-1, 2, N_ROWS).astype(np.int16)
    ids = rng.integers(0, 2**62, N_ROWS) if persons else None
    form = PackedFormat.of(RecordTable(X, y, groups, ids), n_classes=3, n_groups=2)
    rows = form.pack(RecordTable(X, y, groups, ids))
    assert form.holds(rows)
    table = form.table(np.frombuffer(rows.tobytes(), form.dtype))
    found = {"y": (y, table.y), "groups": (groups, table.groups)}
    found |= {"X": (X, table.X)} if layout is None else {}
    if layout is not None:
        found |= {"codes": (X.codes, table.X.codes), "numbers": (X.numbers, table.X.numbers)}
    found |= {"persons": (ids, table.persons)} if persons else {}
    for name, (expected, view) in found.items():
        assert np.array_equal(expected, view) and expected.dtype == view.dtype, name
        assert view.flags.aligned, name
    assert table.persons is not None or not persons


def test_fourteen_columns_take_eighteen_bytes():
    layout = Layout(28, list(range(0, 28, 2)), [2] * 14, [False] * 14, [])
    assert PackedFormat(layout, 0, 2, 2, 1.0, False).dtype.itemsize == 14 + 2 + 2
