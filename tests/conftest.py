"""Shared by all tests: marks, coins seeded by the test's own name, and the folder of real data sets."""

import os
import zlib
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from fairveil import load_dataset
from fairveil._random import seeded_for_tests

FOLDER_MARKS = {"attack": pytest.mark.attack}
"""Marks of all tests in a folder."""

FIXTURE_MARKS = {"browser": pytest.mark.browser}
"""Marks of all tests that use a fixture."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder and by the fixtures they use."""
    for item in items:
        for folder, mark in FOLDER_MARKS.items():
            if folder in item.path.parts:
                item.add_marker(mark)
        for fixture, mark in FIXTURE_MARKS.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)


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
    """The folder of real data sets, which are not ours to ship: without it their tests are skipped."""
    folder = os.environ.get("FAIRVEIL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip(f"the real data sets are not there: FAIRVEIL_DATA is {folder!r}")
    return Path(folder)


@pytest.fixture
def data_folder(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of real data sets, known to the package as well."""
    monkeypatch.setenv("FAIRVEIL_DATA", str(real_data))
    return real_data


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Compute on one thread: on a busy machine several wait for each other most of the time."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def people():
    """The bundled table."""
    return load_dataset("adult")


@pytest.fixture(scope="module")
def few(people):
    """Some rows of it and their labels."""
    return people.X.head(2000), people.y.head(2000)
