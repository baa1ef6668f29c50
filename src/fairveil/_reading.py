"""Files that are read: regular ones only, and never more bytes than a public limit."""

import os
import stat
from pathlib import Path

from fairveil.errors import BadStructureError


def check_file(path: Path, what: str) -> None:
    """Raise `BadStructureError` unless a regular file with a UTF-8 name is at this path; it is not opened.

    Opening a pipe would wait for a writer, and a device may never end.
    """
    try:
        str(path).encode()
        mode = path.stat().st_mode
    except UnicodeEncodeError:
        raise BadStructureError(f"Expected {what} with a name in UTF-8, got {path}; rename it.") from None
    except (OSError, ValueError) as error:
        raise BadStructureError(f"Expected {what} that can be read at {path}; {_reason(error)}.") from None
    if stat.S_ISDIR(mode):
        raise BadStructureError(f"Expected {what}, got the folder {path}; name a file in it.")
    if not stat.S_ISREG(mode):
        raise BadStructureError(
            f"Expected {what}, got {path}, which is a pipe, a socket or a device; write it into a file first."
        )


def read_bounded(path: Path, what: str, most_bytes: int) -> bytes:
    """Return the content of a regular file, at most so many bytes."""
    check_file(path, what)
    try:
        with path.open("rb") as file:
            n_bytes = os.fstat(file.fileno()).st_size
            content = file.read(n_bytes) if n_bytes <= most_bytes else b""
    except OSError as error:
        raise BadStructureError(f"Expected {what} that can be read at {path}; {_reason(error)}.") from None
    if n_bytes > most_bytes:
        raise BadStructureError(f"Expected {what} of at most {most_bytes:,} bytes, got more in {path}; shorten it.")
    return content


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
