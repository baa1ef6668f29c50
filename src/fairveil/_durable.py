"""Files and folders that appear whole or not at all, whenever a process is killed or the power fails.

What is new is written into a stage, a hidden folder beside its place that stays locked while its process lives, and is
moved into place once it is on disk. A single file is replaced by a single rename. Several results are replaced
together: a record in the stage lists them, and whoever opens the folder next finishes what the record lists.
"""

import fcntl
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fairveil.errors import BadStructureError

STAGE = ".fairveil-"
"""How the names of stages begin, and of what belongs to a stage itself."""

LOCK, COMMIT, OLD = f"{STAGE}lock", f"{STAGE}commit", f"{STAGE}old"
PATIENCE_SECONDS = 20.0
"""How long to wait for another process that replaces results, which takes it milliseconds."""


def sync(path: Path) -> None:
    """Return when a file, or the list of names in a folder, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: Path, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold the lock of a folder: while results are replaced, or (shared) while they are read."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        started = time.monotonic()
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - started > PATIENCE_SECONDS:
                    raise BadStructureError(
                        f"Expected to get the lock of {folder}, got none, because another process holds it; wait "
                        "until that process ends, and try again."
                    ) from None
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def stage_in(folder: Path) -> Iterator[Path]:
    """Yield a new stage in a folder, removed at the end; what killed processes left there is settled first."""
    with locked(folder):
        _recover(folder)
        stage = Path(tempfile.mkdtemp(dir=folder, prefix=STAGE))
        lock = os.open(stage / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield stage
    finally:
        with suppress(OSError):  # the next process that opens the folder tries again
            if (stage / COMMIT).exists():  # stopped in the middle of `replace_together`
                with locked(folder):
                    _replay(folder, stage)
            _remove(stage)
        os.close(lock)


@contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[Path]:
    """Yield a place to write to; what is written there replaces the file at `path`, unless the block fails.

    The new file has the permissions `mode`; None keeps those of the old one.
    """
    path = Path(os.path.realpath(path))
    with stage_in(path.parent) as stage:
        new = stage / path.name
        yield new
        if mode is None and path.exists():
            mode = stat.S_IMODE(path.stat().st_mode)
        if mode is not None:
            new.chmod(mode)
        sync(new)
        new.replace(path)
        sync(path.parent)


def replace_together(folder: Path, stage: Path, obsolete: Iterable[str] = ()) -> None:
    """Move everything in a stage into its folder and remove what is obsolete there: all of it or, after a kill, later.

    Readers that do not hold the folder's lock find no results for a moment, never those of two runs.
    """
    new = [path for path in sorted(stage.iterdir()) if path.name != LOCK]
    for path in new:
        for one in path.rglob("*"):
            sync(one)
        sync(path)
    with locked(folder):
        _recover(folder)
        record = stage / f"{COMMIT}.new"
        record.write_text(json.dumps({"new": [path.name for path in new], "obsolete": list(obsolete)}))
        sync(record)
        record.rename(stage / COMMIT)
        sync(stage)
        sync(folder)
        _replay(folder, stage)


def recover(folder: Path) -> None:
    """Finish what killed processes had committed in a folder, and remove what they had not."""
    with locked(folder):
        _recover(folder)


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Keep the results in a folder as they are while they are read; finish a replacement that was interrupted."""
    if any(folder.glob(f"{STAGE}*/{COMMIT}")):
        recover(folder)
    with locked(folder, fcntl.LOCK_SH):
        yield


def _recover(folder: Path) -> None:
    """As `recover`, in a folder whose lock is held."""
    for stage in sorted(folder.glob(f"{STAGE}*")):
        try:
            lock = os.open(stage / LOCK, os.O_RDWR)
        except FileNotFoundError:  # killed before it was locked, or when all but the folder was removed
            with suppress(OSError):
                stage.rmdir()
            continue
        except (PermissionError, NotADirectoryError):  # of somebody else
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (stage / COMMIT).exists():
                _replay(folder, stage)
            _remove(stage)
        except BlockingIOError:  # its process lives
            continue
        finally:
            os.close(lock)


def _replay(folder: Path, stage: Path) -> None:
    """Do what the record of a stage lists, as far as it is not done; old results leave before new ones come."""
    try:
        record = json.loads((stage / COMMIT).read_bytes())
        new, obsolete = list(record["new"]), list(record["obsolete"])
        names = [*new, *obsolete]
        is_sound = all(isinstance(name, str) and name and name[0] != "." and "/" not in name for name in names)
    except (ValueError, LookupError, TypeError, RecursionError):
        is_sound = False
    if not is_sound:
        raise BadStructureError(
            f"Expected the record of an interrupted run, got something else in {stage / COMMIT}; remove {stage}."
        )
    (stage / OLD).mkdir(exist_ok=True)
    left = [name for name in new if os.path.lexists(stage / name)]  # the others are in place
    for name in (*obsolete, *left):
        with suppress(FileNotFoundError):
            (folder / name).rename(stage / OLD / name)
    for name in left:
        (stage / name).rename(folder / name)
    sync(folder)
    (stage / COMMIT).unlink()


def _remove(stage: Path) -> None:
    """Remove a stage, its lock last: a stage without one is empty."""
    for path in stage.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()
    (stage / LOCK).unlink()
    stage.rmdir()
