"""An append-only file of facts that survives a crash at any moment.

Each line is a JSON object that carries the hash of itself and all lines before it. A line is on disk (fsync) before
the caller goes on, so whatever was released was written first. A last line that was cut off by a crash was never
acted on and is dropped; one that lacks nothing but its newline (an editor removed it) counts. Any other break in the
chain is reported as damage.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fairveil.errors import BadStructureError, DamagedLedgerError

HEADER = b'{"fairveil_ledger": 1}\n'


@dataclass(frozen=True)
class Journal:
    """A file of chained JSON lines, appended under a lock that other processes respect."""

    path: Path

    def read(self) -> list[dict[str, Any]]:
        """Return all complete lines; an absent file has none."""
        if not self.path.exists():
            return []
        with self._locked("rb", fcntl.LOCK_SH) as file:
            return self._parse(file.read())[0]

    @contextmanager
    def appending(self) -> Iterator[list[dict[str, Any]]]:
        """Hold the lock and yield all lines; what is appended to them is on disk at the end of the block.

        Nobody else can write in between. If the block fails, nothing is written.
        """
        existed = self.path.exists()
        with self._locked("ab+", fcntl.LOCK_EX) as file:
            if not existed:
                _sync_folder(self.path.parent)
            file.seek(0)
            content = file.read()
            lines, length, chain = self._parse(content)
            file.truncate(length)
            if length == 0:
                _write(file, HEADER)
            elif content[length - 1 : length] != b"\n":
                _write(file, b"\n")
            n_before = len(lines)
            yield lines
            for line in lines[n_before:]:
                chain = _link(chain, line)
                raw = json.dumps({**line, "chain": chain}, allow_nan=False, sort_keys=True).encode()
                _write(file, raw + b"\n")

    @contextmanager
    def _locked(self, mode: str, kind: int) -> Iterator[IO[bytes]]:
        try:
            file: IO[bytes] = open(self.path, mode)  # noqa: SIM115 (closed below)
        except OSError as problem:
            raise BadStructureError(
                f"Expected a ledger file that can be written, got {problem.strerror} for {self.path}; "
                "name another one with --ledger."
            ) from None
        with file:
            fcntl.flock(file, kind)
            yield file

    def _parse(self, content: bytes) -> tuple[list[dict[str, Any]], int, str]:
        """Return the lines, the length of the sound beginning, and the hash that the next line must carry."""
        if not (content.startswith(HEADER) or HEADER.startswith(content)):
            raise DamagedLedgerError(f"Expected a ledger, got another kind of file in {self.path}; name another one.")
        whole = content.rfind(b"\n") + 1
        lines: list[dict[str, Any]] = []
        chain = HEADER.decode()
        *complete, tail = content[len(HEADER) :].split(b"\n")
        for number, raw in enumerate([*complete, tail] if tail else complete, start=2):
            is_tail = number == len(complete) + 2
            try:
                line = json.loads(raw)
                stated = line.pop("chain")
                linked = _link(chain, line)
                sound = stated == linked
            except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
                sound = False
            if sound:
                chain = linked
                whole = len(content) if is_tail else whole
            elif is_tail:
                break
            else:
                raise DamagedLedgerError(
                    f"Expected an unbroken ledger, got a changed or missing entry at line {number} of {self.path}; "
                    "restore the file from a backup, or account for its people as unknown."
                )
            lines.append(line)
        return lines, whole, chain


def _write(file: IO[bytes], content: bytes) -> None:
    """Append and return when it is on disk."""
    try:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    except OSError as problem:
        raise BadStructureError(
            f"Expected space for one more ledger entry, got {problem.strerror}; nothing was released."
        ) from None


def _link(chain: str, line: dict[str, Any]) -> str:
    """Return the hash of a line and of all that stands before it."""
    body = json.dumps(line, allow_nan=False, sort_keys=True)
    return hashlib.sha256(f"{chain}{body}".encode()).hexdigest()[:32]


def _sync_folder(folder: Path) -> None:
    """Make a new file's name survive a power cut, not only its content."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
