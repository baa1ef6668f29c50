"""Which ledger is about which data: salted fingerprints of the bytes of files, and an index of this user's ledgers.

A copy of a data file, or a hard link to it, holds the same people, so it must not start a ledger of its own. A ledger
file therefore notes the data that it is about: a random salt, and a hash keyed by it of the file's bytes. Both stay in
the ledger and are never printed. Whoever reads the ledger can test a guess of the *whole* file against them, so a
ledger is as private as its data. Summaries name the data by a reference, a second hash keyed by the same salt, which
tells nothing to those who do not have the ledger.

A folder of Parquet files is recognized by all of them together, whatever their names, and by each one: a part of a
table holds some of its people, and a table that has grown still holds those from before.
"""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairveil._reading import parquet_files
from fairveil.data import BUNDLED, DATA_FOLDER
from fairveil.errors import BadStructureError
from fairveil.privacy.journal import MAX_BYTES, read_regular

LEDGER_SUFFIX = "ledger.jsonl"
"""How the names of ledgers end that stand beside their data."""

MAX_INDEX_BYTES = 2**20
"""A larger file is no index."""


@dataclass(frozen=True)
class Fingerprint:
    """A salt, and the hash of a file's content that is keyed by it."""

    salt: str
    digest: str

    @classmethod
    def of(cls, contents: Iterable[bytes]) -> "list[Fingerprint]":
        """Return new fingerprints, of one salt, of contents that `contents_of` has hashed."""
        salt = secrets.token_hex(16)
        return [cls(salt, _keyed(salt, content)) for content in contents]

    @property
    def reference(self) -> str:
        """A second hash keyed by the salt: only who reads the ledger can compute it, or test a guess against it."""
        return _keyed(self.salt, f"reference of {self.digest}".encode())[:32]


def _keyed(salt: str, content: bytes) -> str:
    return hmac.new(salt.encode(), content, hashlib.sha256).hexdigest()


def fitting(fingerprints: Sequence[Fingerprint], contents: Sequence[bytes]) -> list[Fingerprint]:
    """Return the fingerprints that are those of one of the contents."""
    salts = {one.salt for one in fingerprints}
    possible = {Fingerprint(salt, _keyed(salt, content)) for salt in salts for content in contents}
    return [one for one in fingerprints if one in possible]


def without_fingerprint(fingerprints: Sequence[Fingerprint], contents: Sequence[bytes]) -> list[bytes]:
    """Return the contents that none of the fingerprints is of."""
    salts, known = {one.salt for one in fingerprints}, set(fingerprints)
    return [
        content for content in contents if known.isdisjoint(Fingerprint(salt, _keyed(salt, content)) for salt in salts)
    ]


def contents_of(data: Path) -> list[bytes]:
    """Return the hashes by which data is recognized: that of a file, or that of a folder and those of its files.

    Data that everybody has, and what is no data, has none.
    """
    if not os.path.isdir(data):
        content = content_of(data)
        return [] if content is None else [content]
    parts = [content for file in parquet_files(data) if (content := content_of(file)) is not None]
    return [hashlib.sha256(b"".join(sorted(parts))).digest(), *parts] if parts else []


def content_of(data: Path) -> bytes | None:
    """Return the hash of a data file; None for a known data set, whose people everybody has, and for no file."""
    if not data.is_file():
        return None
    if data.suffix == ".parquet" and (BUNDLED / f"{data.stem}.toml").is_file():
        places = (Path(folder, data.name) for folder in (BUNDLED, os.environ.get(DATA_FOLDER)) if folder)
        if any(place.is_file() and place.samefile(data) for place in places):
            return None
    with open(data, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def ledgers_about(data: Path, except_for: Path) -> list[Path]:
    """Return the other ledgers with debits from the same data, or from a part of it.

    They are sought beside the data and beside its folder, in it if it is a folder, and in this user's index.
    """
    place = Path(os.path.realpath(data))
    beside = sorted(place.parent.glob(f"*.{LEDGER_SUFFIX}"))
    beside += [place.parent.with_name(f"{place.parent.name}.{LEDGER_SUFFIX}")] if place.parent.name else []
    beside += sorted(place.glob(f"*.{LEDGER_SUFFIX}")) if os.path.isdir(place) else []
    paths = dict.fromkeys(os.path.realpath(path) for path in (*map(str, beside), *_indexed()))
    paths.pop(os.path.realpath(except_for), None)
    fingerprints = {Path(path): found for path in paths if (found := _debited_fingerprints(path))}
    contents = contents_of(place) if fingerprints else []
    return [path for path, found in fingerprints.items() if fitting(found, contents)]


def hide_like(ledger: Path, data: Path) -> None:
    """Hide a ledger from those who may not read its data."""
    mode, own = (os.stat(path).st_mode & 0o777 for path in (data, ledger))
    hidden = sum(triple for triple in (0o070, 0o007) if not mode & triple & 0o044)
    if own & hidden:
        with suppress(PermissionError):  # it belongs to somebody else, who decides who may read it
            os.chmod(ledger, own & ~hidden)


def _debited_fingerprints(path: str) -> list[Fingerprint]:
    """Return what a ledger with debits is about; neither a lock nor damage of it is the business of others."""
    try:
        lines = read_regular(Path(path), MAX_BYTES).splitlines()
    except (OSError, BadStructureError):  # it is gone, or not ours to read
        return []
    found = []
    for line in lines:
        if b'"kind": "data"' in line:
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                facts = json.loads(line)
                found.append(Fingerprint(str(facts["salt"]), str(facts["digest"])))
    return found if any(b'"kind": "debit"' in line for line in lines) else []


# --- the index -------------------------------------------------------------------------------------------------------


def _index() -> Path:
    """Return the file with the paths of this user's ledgers, one a line."""
    folder = os.environ.get("XDG_STATE_HOME", "")
    state = Path(folder) if os.path.isabs(folder) else Path.home() / ".local" / "state"
    return state / "fairveil" / "ledgers"


def _indexed() -> Iterable[str]:
    """Return the paths in the index, none if it cannot be read."""
    with suppress(OSError, RuntimeError, BadStructureError):
        return os.fsdecode(read_regular(_index(), MAX_INDEX_BYTES)).splitlines()
    return ()


def remember(ledger: Path) -> None:
    """Add a ledger to the index; without one, only copies in the same folder are recognized, which is no error."""
    path = os.path.realpath(ledger)
    if path in _indexed() or len(path.splitlines()) != 1:
        return
    with suppress(OSError, RuntimeError):
        index = _index()
        index.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(index, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, os.fsencode(path) + b"\n")
        finally:
            os.close(descriptor)
