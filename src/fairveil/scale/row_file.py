"""Rows on disk: encoded once, packed into one file, mapped into memory from then on.

A cache folder has one folder for each set of public facts that determine the bytes (schema, sensitive columns, what the
model predicts, how text is read, the version). In it are `rows.bin`, packed rows in the order of the source, and
`parts.jsonl`: a header with the facts and with the sizes and times of the source files, then a line for each part of
some megabytes, with its checksum and how far the source was read, and at the end a line with a digest of all others.

* A part is on disk before its line is: whoever is killed leaves whole parts, and the next run continues after them.
* Rows are used only if the last line is there, the source files are those of the header, all checksums match, and all
  labels, groups and numbers are within their ranges. Otherwise the folder is read anew. Checksums find damage. Against
  people there are permissions: folders are 0700, files 0600, and what belongs to or can be read by others is refused.
* A file is never changed once it is whole: what replaces it is a new file, so that whoever has mapped it keeps it.
"""

import hashlib
import json
import mmap
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairveil._durable import locked, sync
from fairveil.data.readers import Chunk
from fairveil.errors import BadStructureError
from fairveil.scale.capacity import probable_rows
from fairveil.scale.packed import PackedFormat, RecordTable

FORMAT = 1
"""The version of these files; others are written anew."""

ROWS, PARTS = "rows.bin", "parts.jsonl"
PART_BYTES = 2**26
"""A part has at least so many bytes: what a killed process reads again, and how often the disk is waited for."""

PAGE_BYTES = 2**21
"""Large pages are written as a whole: where the system keeps them so, a row drawn from anywhere is found faster."""

MAX_PARTS_BYTES = 2**28
"""A longer list of parts is none of ours."""

N_TICKS = 100
"""Steps of the progress bar while rows are read."""


class Part(NamedTuple):
    """The end of a part: so many rows in all, the source files and chunks read by then, and the part's checksum."""

    n_rows: int
    file: int
    chunk: int
    checksum: int


@dataclass(frozen=True)
class RowSource:
    """Where rows come from.

    Parameters
    ----------
    files : sequence of Path
        Read one after the other.
    read : callable
        Yields the chunks of a file, the same ones every time.
    encode : callable
        Returns the rows of a chunk that count.
    """

    files: Sequence[Path]
    read: Callable[[Path], Iterator[Chunk]]
    encode: Callable[[Chunk], RecordTable]

    def identity(self) -> list[list[Any]]:
        """Return name, size and times of each file; the time of the last change of its state cannot be set back."""
        facts = [(path, path.stat()) for path in map(Path, map(os.path.realpath, self.files))]
        return [[str(path), at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino] for path, at in facts]


def cached_rows(
    cache: Path,
    facts: Mapping[str, Any],
    source: RowSource,
    form: PackedFormat,
    progress: Callable[[range], Any] = iter,
) -> RecordTable:
    """Return the rows of a source, mapped from the cache; what is not there yet is read and written first.

    Parameters
    ----------
    cache : Path
        A folder, made if there is none.
    facts : mapping
        All that determines the bytes of the rows beside the source, as plain values for JSON.
    source : RowSource
    form : PackedFormat
    progress : callable
        Wraps a range of steps while rows are read, a progress bar for instance.
    """
    own = json.dumps([FORMAT, form.dtype.descr, facts], sort_keys=True).encode()
    digest = hashlib.sha256(own).hexdigest()
    folder = cache / digest[:32]
    try:
        _make_private(cache, folder)
        with locked(folder):
            header = {"fairveil_rows": FORMAT, "facts": digest, "source": source.identity()}
            parts, is_whole = _read_parts(folder / PARTS, header)
            rows = _opened(folder, parts, form) if is_whole else None
            # parts of an interrupted run may be damaged as well: then all is written anew
            for start in ([] if is_whole or not parts else [parts]) + [[]]:
                if rows is None:
                    _write(folder, header, start, source, form, progress)
                    parts, is_whole = _read_parts(folder / PARTS, header)
                    rows = _opened(folder, parts, form) if is_whole else None
    except OSError as problem:
        raise BadStructureError(
            f"Expected to keep encoded rows in {folder}, got {problem.strerror or problem}; free some space, or name "
            "another folder with cache= or --cache. What is whole is kept, and reading continues after it."
        ) from None
    if rows is None:
        raise BadStructureError(
            f"Expected the rows that were just written to {folder}, got others; check the disk, and try again."
        )
    return form.table(rows)


# --- reading back -----------------------------------------------------------------------------------------------------


def _make_private(cache: Path, folder: Path) -> None:
    """Make both folders for the owner only; refuse one that others may enter, or that belongs to somebody else."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.path.lexists(folder):
        folder.mkdir(mode=0o700)
        sync(cache)
    _check_own(os.lstat(folder), stat.S_ISDIR, folder)


def _check_own(found: os.stat_result, is_kind: Callable[[int], bool], path: Path) -> None:
    if not is_kind(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise BadStructureError(
            f"Expected private rows of yours at {path}, which nobody else can read, got something else; remove it, or "
            "name another folder with cache= or --cache."
        )


def _opened_own(path: Path, flags: int) -> int:
    """Return a descriptor of a regular file that only its owner, who calls, may read; links are not followed."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        _check_own(os.fstat(descriptor), stat.S_ISREG, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _read_parts(path: Path, header: Mapping[str, Any]) -> tuple[list[Part], bool]:
    """Return the parts that are on disk under this header, in order, and whether they are all; none if in doubt."""
    try:
        with open(_opened_own(path, os.O_RDONLY), "rb") as file:
            content = file.read(MAX_PARTS_BYTES + 1)
    except FileNotFoundError:
        return [], False
    lines = content.split(b"\n")[:-1]  # what follows the last line break is not whole
    if not lines or len(content) > MAX_PARTS_BYTES or lines[0] != json.dumps(header).encode():
        return [], False
    parts, n_bytes = [Part(0, 0, 0, 0)], len(lines[0]) + 1
    for line in lines[1:]:
        try:
            fact = json.loads(line)
            if fact == {"end": hashlib.sha256(content[:n_bytes]).hexdigest()}:
                return parts[1:], True
            part = Part(*fact)
        except (ValueError, TypeError, RecursionError):
            break
        is_next = all(type(number) is int for number in part) and part.n_rows > parts[-1].n_rows
        if not is_next or part[1:3] <= parts[-1][1:3]:
            break
        parts.append(part)
        n_bytes += len(line) + 1
    return parts[1:], False


def _opened(folder: Path, parts: Sequence[Part], form: PackedFormat) -> NDArray[Any] | None:
    """Return the rows, mapped from their file, if they are whole and as they were written; None if not."""
    ends = [0, *(part.n_rows for part in parts)]
    n_bytes = ends[-1] * form.dtype.itemsize
    try:
        descriptor = _opened_own(folder / ROWS, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        if os.fstat(descriptor).st_size != n_bytes:
            return None
        if not n_bytes:
            return np.empty(0, dtype=form.dtype)
        mapped = mmap.mmap(descriptor, n_bytes, access=mmap.ACCESS_READ)
        with suppress(OSError, AttributeError):  # where the system has no large pages for files
            mapped.madvise(mmap.MADV_HUGEPAGE)
    finally:
        os.close(descriptor)
    rows = np.frombuffer(mapped, dtype=form.dtype)
    for (start, end), part in zip(pairwise(ends), parts, strict=True):
        own = rows[start:end]
        if zlib.crc32(own.view(np.uint8).data) != part.checksum or not form.holds(own):
            return None
    mapped.madvise(mmap.MADV_RANDOM)  # from now on rows are drawn: what lies beside them is of no use
    return rows


# --- writing ----------------------------------------------------------------------------------------------------------


def _write(
    folder: Path,
    header: Mapping[str, Any],
    parts: Sequence[Part],
    source: RowSource,
    form: PackedFormat,
    progress: Callable[[range], Any],
) -> None:
    """Write all rows of a source, after the parts that are there."""
    at = parts[-1] if parts else Part(0, 0, 0, 0)
    if not parts:
        for name in (PARTS, ROWS):  # in this order: a list of parts never speaks of other rows
            (folder / name).unlink(missing_ok=True)
            sync(folder)
    flags = os.O_RDWR | os.O_CREAT
    with (
        open(_opened_own(folder / PARTS, flags), "r+b") as notes,
        open(_opened_own(folder / ROWS, flags), "r+b") as file,
    ):
        lines = [f"{json.dumps(line)}\n" for line in (header, *parts)]
        if parts:
            notes.truncate(notes.seek(len("".join(lines))))
        else:
            _settle(notes, lines[0])
        file.truncate(at.n_rows * form.dtype.itemsize)
        file.seek(0, os.SEEK_END)
        sync(folder)
        n_rows, checksum, n_bytes, pending = at.n_rows, 0, 0, bytearray()
        for place, rows in _packed_chunks(source, at, form, progress):
            content = rows.view(np.uint8).data
            checksum, pending = zlib.crc32(content, checksum), pending + content
            n_rows, n_bytes = n_rows + len(rows), n_bytes + rows.nbytes
            is_end = n_bytes >= PART_BYTES or (n_bytes > 0 and place is None)
            ready = len(pending) if is_end else (file.tell() + len(pending)) // PAGE_BYTES * PAGE_BYTES - file.tell()
            if ready > 0:
                file.write(pending[:ready])
                pending = pending[ready:]
            if is_end:
                file.flush()
                os.fdatasync(file.fileno())
                file_at, chunk_at = place or (len(source.files), 0)
                lines.append(f"{json.dumps(Part(n_rows, file_at, chunk_at, checksum))}\n")
                _settle(notes, lines[-1])
                checksum = n_bytes = 0
        if source.identity() != header["source"]:
            notes.truncate(0)
            raise BadStructureError(
                f"Expected a table that stays as it is while it is read, got one that changed; wait until "
                f"{source.files[0].parent} is written, and try again."
            )
        digest = hashlib.sha256("".join(lines).encode()).hexdigest()
        _settle(notes, json.dumps({"end": digest}) + "\n")


def _settle(notes: Any, line: str) -> None:
    """Write a line to the list of parts; it is on disk on return."""
    notes.write(line.encode())
    notes.flush()
    os.fsync(notes.fileno())


def _packed_chunks(
    source: RowSource, at: Part, form: PackedFormat, progress: Callable[[range], Any]
) -> Iterator[tuple[tuple[int, int] | None, NDArray[Any]]]:
    """Yield packed rows, chunk by chunk after a part, and where the source is read on; None after its end."""
    expected = [max(1, probable_rows([path])) for path in source.files]
    ticks, n_ticks = iter(progress(range(N_TICKS))), 0
    for number in range(at.file, len(source.files)):
        n_done = sum(expected[:number])
        for place, chunk in enumerate(source.read(source.files[number])):
            n_done += len(chunk.frame) + chunk.n_malformed
            while n_ticks < min(N_TICKS - 1, N_TICKS * n_done // sum(expected)):
                n_ticks += 1
                next(ticks, None)
            if (number, place) >= (at.file, at.chunk):
                yield (number, place + 1), form.pack(source.encode(chunk))
    for _ in ticks:
        pass
    yield None, np.empty(0, dtype=form.dtype)
