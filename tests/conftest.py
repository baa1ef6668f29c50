"""Shared by all tests: marks, coins seeded by the test's own name, and the folder of real data sets."""

import os
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

from fairveil import load_dataset
from fairveil._random import seeded_for_tests

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")  # no test fails by chance; a search for new failures is a run of its own

MARKS = {
    "attack": ["attack/*"],
    "sklearn": ["methods/test_sklearn_checks.py"],
    "slow": [
        "benchmarks/*", "errata/*", "test_examples.py", "test_fair_classifier.py", "test_persistence.py",
        "cli/test_certify.py", "cli/test_crash.py", "cli/test_every_method.py", "cli/test_frontier.py",
        "cli/test_interrupts.py", "cli/test_ledger_commands.py", "cli/test_schema_commands.py",
        "cli/test_newcomer.py", "cli/test_predict.py", "cli/test_train.py",
        "cli/test_values.py", "cli/test_dp2dp.py", "cli/test_fairdp.py", "cli/test_pfld.py", "cli/test_raco.py",
        "methods/*/test_classifier.py", "methods/*_classifier.py", "methods/test_every_method.py",
        "methods/test_front_methods.py", "methods/test_output_perturbation.py", "methods/dp2dp/test_solvers_agree.py",
        "methods/*/test_announced.py", "methods/*/test_early_stopping.py", "methods/*/test_noise_certificate.py",
        "research/test_fair_smooth.py", "training/test_tuning.py", "privacy/test_selection.py",
        "privacy/test_attribute.py", "privacy/test_group_gradients.py", "privacy/test_moments.py",
        "models/test_bound.py", "methods/*/test_recipe.py", "methods/raco/test_plan.py", "cli/test_structure.py",
    ],
    "statistical": [
        "certificates/test_coverage.py", "privacy/test_noise.py", "privacy/test_noise_laplace.py",
        "privacy/test_sampling.py", "privacy/test_selection_runs.py", "methods/dp2dp/test_gap_bounds.py",
    ],
}  # fmt: skip
"""Marks of whole files, as patterns of paths below tests; single tests carry their own."""


@cache
def marks_of(path: Path) -> list[str]:
    """Return the marks of all tests in a file."""
    tests = Path(__file__).parent
    below = path.relative_to(tests) if path.is_relative_to(tests) else Path()
    return [mark for mark, patterns in MARKS.items() if any(below.match(pattern) for pattern in patterns)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their file, those that use a browser, and examples in docstrings that train."""
    for item in items:
        for mark in marks_of(item.path):
            item.add_marker(mark)
        if "chrome" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
        if isinstance(item, pytest.DoctestItem) and "load_dataset" in str(item.dtest.docstring):
            item.add_marker("slow")


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
