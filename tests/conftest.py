"""Shared by all tests: marks, coins seeded by the test's own name, and the folder of real data sets.

Secret coins and keys come from the operating system. In the process of the tests they come from the name of the test
(or of the fixture that is shared by several), so no test fails by chance and none can shop for a seed; what is released
still counts as private. Programs that a test starts draw secret coins as everywhere.
"""

import hashlib
import os
import signal
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

from fairveil import _random, load_dataset
from fairveil._random import KEY_BYTES, seeded_for_tests

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")  # no test fails by chance; a search for new failures is a run of its own

MARKS = {
    "attack": ["attack/*"],
    "sklearn": ["methods/test_sklearn_checks.py"],
    "slow": [
        "benchmarks/*", "errata/*", "test_examples.py", "test_display.py", "data/test_frames.py",
        "methods/test_tables.py", "test_fair_classifier.py", "test_persistence.py",
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
        "methods/test_explanations.py", "methods/test_tables.py",
    ],
    "statistical": [
        "certificates/test_coverage.py", "fairness/test_impact.py", "privacy/test_noise.py",
        "privacy/test_noise_laplace.py",
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
        # most tests train on small tables, which says nothing about what they test
        item.add_marker(pytest.mark.filterwarnings("ignore::fairveil.errors.SmallTableWarning"))
        if "chrome" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
        if isinstance(item, pytest.DoctestItem):
            # an example trains with secret noise: that its gap is above the tolerance now and then is no failure
            item.add_marker(pytest.mark.filterwarnings("ignore::fairveil.errors.ToleranceNotMetWarning"))
            if "load_dataset" in str(item.dtest.docstring):
                item.add_marker("slow")


class NamedSecrets:
    """Stands in for the operating system's randomness: secrets that follow from a name and how many were taken."""

    def __init__(self) -> None:
        self.name, self.n_taken, self.process = "collection", 0, os.getpid()
        self.of_the_system = _random.fresh_secret

    def __call__(self) -> bytes:
        if os.getpid() != self.process:
            return self.of_the_system()  # a fork must not repeat what its parent draws
        self.n_taken += 1
        return hashlib.sha256(f"{self.name} {self.n_taken}".encode()).digest()[:KEY_BYTES]

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        """Take the secrets of another name inside the block, from the first one on."""
        before = self.name, self.n_taken
        self.name, self.n_taken = name, 0
        try:
            yield
        finally:
            self.name, self.n_taken = before


SECRETS = _random.fresh_secret = NamedSecrets()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    """Name the secrets of a test after it."""
    with SECRETS.named(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest):
    """Name the secrets of a fixture after it where several tests share it: any of them may be the first."""
    if fixturedef.scope == "function":
        return (yield)
    with SECRETS.named(f"{fixturedef.baseid}::{fixturedef.argname}[{getattr(request, 'param', '')}]"):
        return (yield)


@pytest.fixture(autouse=True)
def usual_signals():
    """Undo what the command line does to signals: it ends its process afterwards, the tests go on."""
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in usual.items():
        signal.signal(number, handler)


@pytest.fixture
def system_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system's own randomness, for tests of the coins themselves."""
    monkeypatch.setattr(_random, "fresh_secret", SECRETS.of_the_system)


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


@contextmanager
def new_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use an index of ledgers that is empty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state" / uuid.uuid4().hex))
        yield


@pytest.fixture(scope="module", autouse=True)
def state_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An index of ledgers for the fixtures of a file: many files train on the same table."""
    with new_state(tmp_path_factory):
        yield


@pytest.fixture(autouse=True)
def state_of_test(tmp_path_factory: pytest.TempPathFactory, state_of_module: None) -> Iterator[None]:
    """An index of ledgers for each test: many of them train on copies of the same table."""
    with new_state(tmp_path_factory):
        yield


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
