"""An append-only file of facts that survives a crash at any moment, and notices if lines are taken away from it.

Each line is a JSON object that carries the hash of itself and all lines before it. A line is on disk (fsync) before
the caller goes on, so whatever was released was written first. After each append the *head*, the number of lines and
the last hash, is written to a file of its own beside the journal (`NAME.head`). A journal that ends before its head, or
does not pass through it, is damaged. A last line that was cut off by a crash was never acted on (the head does not
count it) and is dropped, which the journal records; one that lacks nothing but its newline (an editor removed it)
counts. Any other break in the chain is reported as damage.
"""

import errno
import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fairveil._durable import sync
from fairveil.errors import BadStructureError, DamagedLedgerError

HEADER = b'{"fairveil_ledger": 1}\n'

MAX_BYTES = 512 * 2**20
"""A larger file is no ledger and is not read."""

MAX_HEAD_BYTES = 4096
"""A larger file is no head."""

LOCK_SECONDS = 30.0
"""How long to wait for a lock that somebody else holds."""

LOCK_PAUSE_SECONDS = 0.02
"""How long to wait between two tries."""

RESTORE = "restore it from a backup, or treat what was released from these people as unknown"

Line = dict[str, Any]


@dataclass(frozen=True)
class Head:
    """How far a journal has come: the number of its lines, and the hash of all of them."""

    n_lines: int
    chain: str


@dataclass(frozen=True)
class Contents:
    """The complete lines of a journal, the hash up to each of them, and whether an incomplete line follows."""

    lines: Sequence[Line] = ()
    chains: Sequence[str] = ()
    is_torn: bool = False

    @property
    def head(self) -> Head | None:
        """The head of these lines, None if there are none."""
        return Head(len(self.chains), self.chains[-1]) if self.chains else None

    def passes(self, head: Head) -> bool:
        """Say whether these lines continue those that the head was taken of."""
        return 0 < head.n_lines <= len(self.chains) and self.chains[head.n_lines - 1] == head.chain


MakeLines = Callable[[Contents], Sequence[Line]]
"""Takes what a journal holds, and returns the lines to append; an error means that nothing is written."""


@dataclass(frozen=True)
class Journal:
    """A file of chained JSON lines, appended under a lock that other processes respect."""

    path: Path

    def read(self) -> Contents:
        """Return all complete lines; an absent file has none."""
        with _explained(self.path):
            place, head, is_absent = _places(self.path)
            if is_absent:
                return Contents()
            with _locked(place, os.O_RDONLY, fcntl.LOCK_SH) as file:
                return _checked(place, head, file)[0]

    def append(self, make_lines: MakeLines) -> Head | None:
        """Append what `make_lines` returns and return the new head, when both are on disk; nobody writes in between."""
        with _explained(self.path):
            place, head_place, _ = _places(self.path)
            with _locked(place, os.O_RDWR | os.O_APPEND | os.O_CREAT, fcntl.LOCK_EX) as file:
                past, length, ends_line = _checked(place, head_place, file)
                lines = list(make_lines(past))
                if not lines:
                    return past.head
                if past.is_torn:
                    lines.insert(0, {"kind": "torn", "at": datetime.now(UTC).isoformat(timespec="seconds")})
                chains, text = list(past.chains), b"" if ends_line else b"\n"
                for line in lines:
                    chains.append(link(chains, line))
                    text += json.dumps({**line, "chain": chains[-1]}, allow_nan=False, sort_keys=True).encode() + b"\n"
                head = Head(len(chains), chains[-1])
                with _staged(head_place) as stage:  # a folder that cannot be written is found before the journal
                    os.ftruncate(file, length)
                    _write(file, text if length else HEADER + text)
                    # after the lines: a crash in between leaves a journal that is ahead of its head
                    _write(stage, json.dumps(asdict(head)).encode() + b"\n")
                return head

    @property
    def head(self) -> Head | None:
        """The head that is kept beside the journal, None if there is none."""
        with _explained(self.path):
            return _read_head(_places(self.path)[1])


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn whatever the system refuses into one sentence."""
    try:
        yield
    except OSError as problem:
        raise refused(path, problem) from None


def refused(path: Path, problem: OSError) -> BadStructureError:
    """Return what to raise where the system refuses a ledger file."""
    return BadStructureError(
        f"Expected a ledger file that can be read and written, got {problem.strerror} for {path}; nothing was "
        "released: name another one with --ledger."
    )


def link(chains: Sequence[str], line: Line) -> str:
    """Return the hash of a line and of all that stands before it."""
    body = json.dumps(line, allow_nan=False, sort_keys=True)
    before = chains[-1] if chains else HEADER.decode()
    return hashlib.sha256(f"{before}{body}".encode()).hexdigest()[:32]


# --- reading ---------------------------------------------------------------------------------------------------------


def _places(journal: Path) -> tuple[Path, Path, bool]:
    """Return the file itself, whatever links lead to it, its head, which stands beside it, and whether both are absent.

    A ledger that is gone while its head remains is damage.
    """
    place = Path(os.path.realpath(journal))
    head = Path(f"{place}.head")
    for path in (place, head, place):  # at last again: somebody may have written the first entry a moment ago
        try:
            os.stat(path)
        except FileNotFoundError:
            if path == head:
                return place, head, True
        else:
            if path == place:
                return place, head, False
    raise DamagedLedgerError(
        f"Expected the ledger {place}, got nothing there although its head {head.name} exists; {RESTORE}."
    )


def _checked(place: Path, head_place: Path, file: int) -> tuple[Contents, int, bool]:
    """Return what an open journal holds, the length of its sound beginning, and whether that ends with a newline."""
    content = _read(file)
    if not (content.startswith(HEADER) or HEADER.startswith(content)):
        raise DamagedLedgerError(f"Expected a ledger, got another kind of file in {place}; name another one.")
    length = content.rfind(b"\n") + 1
    lines: list[Line] = []
    chains: list[str] = []
    *complete, tail = content[len(HEADER) :].split(b"\n")
    for number, raw in enumerate([*complete, tail] if tail else complete, start=2):
        is_tail = number == len(complete) + 2
        try:
            line = json.loads(raw)
            stated = line.pop("chain")
            linked = link(chains, line)
            is_sound = stated == linked
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            is_sound = False
        if is_sound:
            chains.append(linked)
            length = len(content) if is_tail else length
        elif is_tail:
            break
        else:
            raise DamagedLedgerError(
                f"Expected an unbroken ledger, got a changed or missing entry at line {number} of {place}; {RESTORE}."
            )
        lines.append(line)
    contents, head = Contents(lines, chains, is_torn=length < len(content)), _read_head(head_place)
    if head is not None and not contents.passes(head):
        got = (
            "one that ends before the last entry that its head counts" if len(chains) < head.n_lines else "another one"
        )
        raise DamagedLedgerError(
            f"Expected the complete ledger that {head_place.name} describes, got {got} in {place}; {RESTORE}."
        )
    return contents, length, content[length - 1 : length] in {b"\n", b""}


def _read_head(path: Path) -> Head | None:
    """Return a head from its file, None if there is no file."""
    head = None
    try:
        content = read_regular(path, MAX_HEAD_BYTES)
    except FileNotFoundError:
        return None
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        facts = json.loads(content)
        head = Head(facts["n_lines"], facts["chain"])
    if head is None or type(head.n_lines) is not int or not isinstance(head.chain, str):
        raise DamagedLedgerError(f"Expected the head of a ledger, got something else in {path}; {RESTORE}.")
    return head


# --- files -----------------------------------------------------------------------------------------------------------


def _opened(path: Path, flags: int, most: int) -> int:
    """Open a regular file of at most so many bytes; a pipe must not make anybody wait, a device is never opened."""
    with suppress(FileNotFoundError):
        _check_regular(os.stat(path), path, most)
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        _check_regular(os.fstat(descriptor), path, most)
    except BadStructureError:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most so many bytes."""
    descriptor = _opened(path, os.O_RDONLY, most)
    try:
        return _read(descriptor)
    finally:
        os.close(descriptor)


def _check_regular(status: os.stat_result, path: Path, most: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise BadStructureError(
            f"Expected a ledger that is a regular file, got a folder, pipe or device at {path}; name another one with "
            "--ledger."
        )
    if status.st_size > most:
        raise BadStructureError(
            f"Expected at most {most:,} bytes, got a larger file in {path}, which cannot be a ledger; name another one "
            "with --ledger."
        )


@contextmanager
def _locked(place: Path, flags: int, kind: int) -> Iterator[int]:
    """Open the file and hold its lock; if another file takes its place meanwhile, that one is locked instead."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        file = _opened(place, flags, MAX_BYTES)
        try:
            _lock(file, kind, deadline, place)
            is_current = False
            with suppress(FileNotFoundError):
                is_current = os.path.samestat(os.stat(place), os.fstat(file))
            if is_current:
                yield file
                return
        finally:
            os.close(file)
        _places(place)  # it was removed while somebody held its lock


def _lock(file: int, kind: int, deadline: float, place: Path) -> None:
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return
        except OSError as problem:
            if problem.errno not in {errno.EAGAIN, errno.EACCES}:
                raise
        if time.monotonic() >= deadline:
            raise BadStructureError(
                f"Expected the ledger {place} to be free within {LOCK_SECONDS:g} seconds, got a lock that another "
                "program holds; nothing was released: end that program or wait for it, then try again."
            )
        time.sleep(LOCK_PAUSE_SECONDS)


def _read(file: int) -> bytes:
    with open(file, "rb", closefd=False) as reader:
        reader.seek(0)
        return reader.read()


def _write(file: int, content: bytes) -> None:
    """Append and return when it is on disk."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]
    os.fsync(file)


@contextmanager
def _staged(path: Path) -> Iterator[int]:
    """Yield a new file that takes the place of `path` at the end; the caller holds the lock of the journal."""
    stage = path.with_name(f"{path.name}.new")
    with suppress(FileNotFoundError):
        stage.unlink()
    file = os.open(stage, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        yield file
    except BaseException:
        stage.unlink()
        raise
    finally:
        os.close(file)
    stage.replace(path)
    sync(path.parent)  # a new name survives a power cut, not only the content of its file
