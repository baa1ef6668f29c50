"""Shared by all tests: coins seeded by the test's own name, and the folder of real data sets."""

import os
import zlib
from pathlib import Path

import numpy as np
import pytest

from fairveil._random import seeded_for_tests

REPOSITORY = Path(__file__).parent.parent
DATA = Path(os.environ.get("FAIRVEIL_DATA", REPOSITORY.parent / "shared" / "data"))


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator seeded by the test's name: no shopping for seeds."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def seeded(request: pytest.FixtureRequest):
    """Secret coins that repeat, seeded by the test's name; what is released then counts as not private."""
    with seeded_for_tests(request.node.nodeid):
        yield


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets, which are not ours to ship: without it their tests are skipped, and say so."""
    if not DATA.is_dir():
        pytest.skip(f"the real data sets are not at {DATA}; set FAIRVEIL_DATA")
    return DATA


@pytest.fixture
def data_folder(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of real data sets, known to the package as well."""
    monkeypatch.setenv("FAIRVEIL_DATA", str(real_data))
    return real_data
