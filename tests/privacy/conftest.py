"""Shared by the tests of the veil: rows that try every bound."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from _support.on_disk import moved_to_disk
from fairveil.privacy.records import MemoryRecords

SCALES = (1e-38, 1e-20, 1e-6, 1e-3, 0.1, 1.0, 30.0, 1e4, 1e10, 1e19, 3e38)
BAD = (np.nan, np.inf, -np.inf)


@pytest.fixture
def worst_rows(rng: np.random.Generator) -> Callable[[int], np.ndarray]:
    """Rows of every size (n of each), pointing anywhere, and at the end 9 that hold NaN or infinity."""

    def make(n: int) -> np.ndarray:
        sized = np.array([scale * rng.uniform(-1, 1, 3) for scale in SCALES for _ in range(n)])
        spoilt = rng.normal(size=(3 * len(BAD), 3))
        spoilt[np.arange(len(spoilt)), np.arange(len(spoilt)) % 3] = np.repeat(BAD, 3)
        return np.vstack([sized, spoilt]).astype(np.float32)

    return make


@pytest.fixture(params=["memory", "disk"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[MemoryRecords], MemoryRecords]:
    """Return records as they are, or with their rows mapped from a file: tests that take this run on both."""
    return (lambda records: records) if request.param == "memory" else partial(moved_to_disk, tmp_path)
