"""What fits where: the memory that is left on this machine, and how many rows files probably hold.

Estimates are made before a row is read. They decide where rows are kept, and are never shown: the number of rows is
private.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq

from fairveil.data.files import BLOCK_BYTES
from fairveil.data.readers import is_parquet, open_text

EXPANSION = 8
"""A compressed text table unpacks to about so many times its size."""

_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""What a container may use, and what it uses, in both versions of control groups."""


def available_memory() -> int:
    """Return about how many bytes of memory a process can still take on this machine or in its container."""
    free = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError):
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        free += [] if found is None else [1024 * int(found[1])]
    for limit, used in _LIMITS:
        with suppress(OSError, ValueError):  # "max": no limit
            free.append(max(0, int(Path(limit).read_text()) - int(Path(used).read_text())))
    return min(free)


def probable_rows(files: Sequence[Path]) -> int:
    """Return about how many rows the files hold: Parquet files state it, text is measured by its first lines."""
    return sum(map(_rows_of, files))


def _rows_of(path: Path) -> int:
    if is_parquet(path):
        return int(pq.read_metadata(path).num_rows)
    with path.open("rb") as raw, open_text(path) as text:
        start = text.read(BLOCK_BYTES)
        is_packed = raw.read(len(start)) != start
    n_bytes = path.stat().st_size * (EXPANSION if is_packed else 1)
    return int(n_bytes * (start.count(b"\n") + 1) / max(1, len(start)))
