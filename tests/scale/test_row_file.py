"""Rows on disk: written whole or continued, never used if damaged, foreign or stale, and for their owner only."""

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairveil._durable import locked
from fairveil.data.coded import CodedRows, Layout
from fairveil.data.readers import Chunk
from fairveil.errors import BadStructureError
from fairveil.scale import row_file
from fairveil.scale.packed import PackedFormat, RecordTable
from fairveil.scale.row_file import PARTS, ROWS, RowSource, cached_rows

N_FILES, N_CHUNKS, N_ROWS = 2, 4, 100
LAYOUT = Layout(7, [0, 3], [3, 3], [False, False], [6])
FACTS = {"schema": "some facts"}


def table_of(seed, n_rows=N_ROWS):
    rng = np.random.default_rng(seed)
    X = CodedRows(LAYOUT, rng.integers(0, 3, (n_rows, 2), dtype=np.uint8), rng.uniform(-1, 1, (n_rows, 1)).astype("f4"))
    return RecordTable(X, rng.integers(0, 2, n_rows, dtype=np.int16), rng.integers(-1, 2, n_rows, dtype=np.int16), None)


FORMAT = PackedFormat.of(table_of(0), n_classes=2, n_groups=2)
EXPECTED = b"".join(FORMAT.pack(table_of(seed)).tobytes() for seed in range(N_FILES * N_CHUNKS))


class Reader:
    """Files of some chunks each; it notes which were encoded, and may stop at one."""

    def __init__(self, folder, stop_at=None, problem=RuntimeError):
        self.files = [folder / f"table-{number}" for number in range(N_FILES)]
        self.encoded, self.stop_at, self.problem = [], stop_at, problem
        for path in self.files:
            if not path.exists():  # a touched file is a changed one
                path.touch()

    def read(self, path):
        for place in range(N_CHUNKS):
            yield Chunk(pd.DataFrame({"seed": [N_CHUNKS * self.files.index(path) + place]}))

    def encode(self, chunk):
        seed = int(chunk.frame["seed"][0])
        if seed == self.stop_at:
            raise self.problem(errno.ENOSPC, "No space left on device")
        self.encoded.append(seed)
        return table_of(seed)

    def rows(self, cache, facts=FACTS, form=FORMAT):
        return cached_rows(cache, facts, RowSource(self.files, self.read, self.encode), form)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(row_file, "PART_BYTES", 1000)  # a chunk has 1,200 bytes
    monkeypatch.setattr(row_file, "probable_rows", lambda files: N_ROWS)


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "ledger.jsonl.rows"


def content(table):
    return FORMAT.pack(table).tobytes()


def folder_in(cache) -> Path:
    (folder,) = cache.iterdir()
    return folder


def test_rows_are_read_once_and_found_again(tmp_path, cache):
    first, second = Reader(tmp_path), Reader(tmp_path)
    assert content(first.rows(cache)) == content(second.rows(cache)) == EXPECTED
    assert first.encoded == list(range(8)) and second.encoded == []


def test_nothing_is_copied_and_nothing_can_be_changed(tmp_path, cache):
    table = Reader(tmp_path).rows(cache)
    for array in (table.X.codes, table.X.numbers, table.y, table.groups):
        assert not array.flags.owndata and not array.flags.writeable
        assert array.flags.aligned and array.strides[0] == FORMAT.dtype.itemsize


def test_only_the_owner_can_read_rows(tmp_path, cache):
    old = os.umask(0)
    try:
        Reader(tmp_path).rows(cache)
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (cache, *cache.rglob("*"))}
    assert {mode for name, mode in modes.items() if name in (ROWS, PARTS)} == {0o600}
    assert {mode for name, mode in modes.items() if name not in (ROWS, PARTS)} == {0o700}


@pytest.mark.parametrize("name", [ROWS, PARTS, ""])
def test_rows_that_others_could_read_are_refused(tmp_path, cache, name):
    Reader(tmp_path).rows(cache)
    (folder_in(cache) / name).chmod(0o755)
    with pytest.raises(BadStructureError, match="nobody else can read"):
        Reader(tmp_path).rows(cache)


def test_a_link_is_not_followed(tmp_path, cache):
    Reader(tmp_path).rows(cache)
    rows = folder_in(cache) / ROWS
    rows.rename(tmp_path / "elsewhere")
    rows.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadStructureError, match="Expected to keep encoded rows"):
        Reader(tmp_path).rows(cache)


@pytest.mark.parametrize("stop_at", range(1, 8))
def test_reading_continues_after_the_last_whole_part(tmp_path, cache, stop_at):
    with pytest.raises(RuntimeError):
        Reader(tmp_path, stop_at).rows(cache)
    again = Reader(tmp_path)
    assert content(again.rows(cache)) == EXPECTED
    assert again.encoded == list(range(stop_at, 8))


def test_what_was_written_after_the_last_part_is_dropped(tmp_path, cache):
    with pytest.raises(RuntimeError):
        Reader(tmp_path, 5).rows(cache)
    with (folder_in(cache) / ROWS).open("ab") as rows, (folder_in(cache) / PARTS).open("ab") as parts:
        rows.write(b"half of a part")
        parts.write(b"[600, 1, 2, 12")
    again = Reader(tmp_path)
    assert content(again.rows(cache)) == EXPECTED and again.encoded == [5, 6, 7]


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = [{tests!r}, {own!r}]
import test_row_file as own
own.row_file.PART_BYTES, own.row_file.probable_rows = 1000, lambda files: 1
class Killed(own.Reader):
    def encode(self, chunk):
        if len(self.encoded) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(chunk)
Killed(Path(sys.argv[1])).rows(Path(sys.argv[2]))
"""


def test_a_killed_process_leaves_what_the_next_one_continues(tmp_path, cache):
    own = Path(__file__).parent
    program = KILLED.format(tests=str(own.parent), own=str(own))
    done = subprocess.run([sys.executable, "-c", program, tmp_path, cache], check=False)
    assert done.returncode == -signal.SIGKILL
    reader = Reader(tmp_path)
    assert content(reader.rows(cache)) == EXPECTED and reader.encoded == [3, 4, 5, 6, 7]


def test_a_full_disk_is_one_sentence_and_reading_continues(tmp_path, cache):
    with pytest.raises(BadStructureError, match="No space left on device; free some space") as caught:
        Reader(tmp_path, 3, OSError).rows(cache)
    assert not {"300", "800"} & set(str(caught.value).replace(str(cache), "").split())
    assert content(Reader(tmp_path).rows(cache)) == EXPECTED


def flip(path, place):
    raw = bytearray(path.read_bytes())
    raw[place] ^= 1
    path.write_bytes(raw)


SPOILED = {
    "a bit of a row": lambda folder: flip(folder / ROWS, 4321),
    "a row too few": lambda folder: os.truncate(folder / ROWS, len(EXPECTED) - 12),
    "a row too many": lambda folder: (folder / ROWS).write_bytes(EXPECTED + EXPECTED[:12]),
    "no rows": lambda folder: (folder / ROWS).unlink(),
    "no parts": lambda folder: (folder / PARTS).unlink(),
    "a number in the parts": lambda folder: flip(folder / PARTS, -120),
    "parts of nothing": lambda folder: (folder / PARTS).write_bytes(b""),
    "no JSON": lambda folder: (folder / PARTS).write_bytes(b"\xff\n" * 5),
}


@pytest.mark.parametrize("how", SPOILED)
def test_spoiled_rows_are_never_used(tmp_path, cache, how):
    reader = Reader(tmp_path)
    reader.rows(cache)
    SPOILED[how](folder_in(cache))
    reader.encoded = []
    assert content(reader.rows(cache)) == EXPECTED
    assert reader.encoded  # all of them, or those after the parts that are whole


def forged(folder, rows):
    """Write rows with checksums that match them."""
    path, lines = folder / PARTS, (folder / PARTS).read_text().splitlines()
    parts = [row_file.Part(*json.loads(line)) for line in lines[1:-1]]
    starts = [0, *(part.n_rows for part in parts)]
    sums = [row_file.zlib.crc32(rows[s:e].tobytes()) for s, e in pairwise(starts)]
    new = [lines[0], *(json.dumps(part._replace(checksum=one)) for part, one in zip(parts, sums, strict=True))]
    text = "".join(f"{line}\n" for line in new)
    end = json.dumps({"end": row_file.hashlib.sha256(text.encode()).hexdigest()})
    path.write_text(f"{text}{end}\n")
    (folder / ROWS).write_bytes(rows.tobytes())


@pytest.mark.parametrize(
    ("name", "value"), [("y", 2), ("y", -1), ("groups", 2), ("groups", -2), ("numbers", 9.0), ("numbers", np.nan)]
)
def test_values_beyond_their_range_are_never_used(tmp_path, cache, name, value):
    reader = Reader(tmp_path)
    reader.rows(cache)
    rows = np.frombuffer(EXPECTED, FORMAT.dtype).copy()
    rows[name][700] = value
    forged(folder_in(cache), rows)
    reader.encoded = []
    assert content(reader.rows(cache)) == EXPECTED and reader.encoded == list(range(8))


def test_codes_beyond_the_layout_lead_nowhere(tmp_path, cache):
    reader = Reader(tmp_path)
    reader.rows(cache)
    rows = np.frombuffer(EXPECTED, FORMAT.dtype).copy()
    rows["codes"] = 255
    forged(folder_in(cache), rows)
    reader.encoded = []
    table = reader.rows(cache)
    assert not reader.encoded  # such rows are taken, and each code is held to the last one of its column
    assert (table.X.dense()[:, [2, 5]] == 1).all()


def test_other_facts_and_changed_tables_are_read_anew(tmp_path, cache):
    reader = Reader(tmp_path)
    reader.rows(cache)
    for change in (lambda: None, lambda: reader.files[1].write_text("more")):
        reader.encoded = []
        change()
        reader.rows(cache, {"schema": "other facts"})
        assert reader.encoded == list(range(8))
    assert len(list(cache.iterdir())) == 2


def test_parts_of_other_facts_are_not_taken_over(tmp_path, cache):
    reader = Reader(tmp_path)
    reader.rows(cache)
    first = folder_in(cache)
    reader.rows(cache, {"schema": "other facts"})
    (second,) = set(cache.iterdir()) - {first}
    for name in (ROWS, PARTS):
        (second / name).write_bytes((first / name).read_bytes())
    reader.encoded = []
    reader.rows(cache, {"schema": "other facts"})
    assert reader.encoded == list(range(8))


def test_a_table_that_changes_while_it_is_read_is_refused(tmp_path, cache):
    class Changing(Reader):
        def encode(self, chunk):
            self.files[0].write_text("x" * (1 + len(self.encoded)))
            return super().encode(chunk)

    with pytest.raises(BadStructureError, match="stays as it is while it is read"):
        Changing(tmp_path).rows(cache)
    reader = Reader(tmp_path)
    assert content(reader.rows(cache)) == EXPECTED and reader.encoded == list(range(8))


def test_one_process_at_a_time(tmp_path, cache, monkeypatch):
    reader = Reader(tmp_path)
    reader.rows(cache)
    monkeypatch.setattr("fairveil._durable.PATIENCE_SECONDS", 0.0)
    with locked(folder_in(cache)), pytest.raises(BadStructureError, match="another process holds it"):
        reader.rows(cache)


def test_mapped_rows_stay_when_they_are_written_anew(tmp_path, cache):
    reader = Reader(tmp_path)
    table = reader.rows(cache)
    (folder_in(cache) / PARTS).unlink()
    reader.rows(cache)
    assert content(table) == EXPECTED


def test_no_rows_are_a_table(tmp_path, cache):
    reader = Reader(tmp_path)
    reader.encode = lambda chunk: table_of(0, 0)
    for _ in range(2):
        assert len(reader.rows(cache).y) == 0
