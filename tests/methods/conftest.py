"""Adult for estimators, on one thread."""

import pytest
from threadpoolctl import threadpool_limits

from fairveil import load_dataset


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
