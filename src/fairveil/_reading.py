"""Files and folders that are read: regular files only, and never more bytes than a public limit."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from fairveil.errors import BadStructureError

PARQUET_SUFFIXES = (".parquet", ".pq")
MAX_FILES = 10_000
"""Files of one table: the ledger notes each of them."""


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


def parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder, sorted by name: together they are one table.

    A file or folder whose name starts with a dot or an underscore is hidden: programs that write such tables keep notes
    and unfinished parts there. Files of other kinds are no part of the table. One in a folder below is refused, because
    the names of such folders often hold a column.

    Raises
    ------
    BadStructureError
        If there is none, if there are too many, or if there are some in a folder below.
    """
    try:
        str(folder).encode()
        places = sorted(place for place in folder.iterdir() if not place.name.startswith((".", "_")))
        files = [place for place in places if place.suffix in PARQUET_SUFFIXES and not place.is_dir()]
        below = [place for place in places if place.is_dir() and any(_holds_parquet(place))]
    except UnicodeEncodeError:
        raise BadStructureError(f"Expected a folder with a name in UTF-8, got {folder}; rename it.") from None
    except OSError as error:
        raise BadStructureError(f"Expected a folder that can be read at {folder}; {_reason(error)}.") from None
    if below:
        raise BadStructureError(
            f"Expected all Parquet files of a table in one folder, got some in {below[0]}; write the table without "
            "partitions, or name one of these folders."
        )
    if not files:
        raise BadStructureError(
            f"Expected Parquet files in the folder {folder}, got none; name a file, or another one."
        )
    if len(files) > MAX_FILES:
        raise BadStructureError(f"Expected at most {MAX_FILES:,} Parquet files in {folder}, got more; merge some.")
    return files


def _holds_parquet(folder: Path) -> Iterator[bool]:
    """Yield True once for each Parquet file in a folder or below it, hidden ones aside; links are not followed."""
    for _, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in files:
            if name.endswith(PARQUET_SUFFIXES) and not name.startswith((".", "_")):
                yield True


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
