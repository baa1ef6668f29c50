"""Shared by the tests of records on workers: small coded tables, queries of every kind, and one Ray for all."""

import os

import numpy as np
import pytest

from _support.local_ray import LocalRay
from fairveil._random import Coins, derived_coins
from fairveil.data.coded import CodedRows, Layout
from fairveil.fairness.rates import Attribute, Population
from fairveil.models import LinearSoftmax, Perceptron
from fairveil.privacy.queries import (
    Count,
    CrossEntropy,
    Decision,
    GradientSum,
    GroupGradientSum,
    LevelCounts,
    LogisticMoments,
    MomentSum,
    SoftDecision,
    Sum,
    all_cells,
)
from fairveil.privacy.records import MemoryRecords
from fairveil.scale.ray_records import Made, RayRecords, Workers, ray_records
from fairveil.scale.shards import parts_of
from fairveil.training.recipe import Task

LEVELS = (3, 4, 2, 5)
MODEL = LinearSoftmax(sum(LEVELS), 2)
NETWORK = Perceptron(sum(LEVELS), (6, 5), 2)
SECRET = bytes(range(16))


def table(rng, n_rows, n_persons=None) -> MemoryRecords:
    codes = np.stack([rng.integers(0, n, n_rows, dtype=np.uint8) for n in LEVELS], axis=1)
    layout = Layout(sum(LEVELS), np.cumsum([0, *LEVELS[:-1]]).tolist(), LEVELS, [False] * 4, [])
    rows = CodedRows(layout, codes, np.empty((n_rows, 0), np.float32))
    y = (codes[:, 0] + rng.integers(0, 3, n_rows) > 2).astype(np.int16)
    groups = rng.integers(-1, 2, n_rows).astype(np.int16)
    persons = None if n_persons is None else rng.integers(0, n_persons, n_rows) * 7_919
    return MemoryRecords(rows, y, groups, persons)


def queries(rng):
    """Return a query of every kind that is a sum, with its bound and norm."""
    params = rng.normal(size=MODEL.n_params).astype(np.float32)
    deep = rng.normal(size=NETWORK.n_params).astype(np.float32)
    cells = all_cells(3, 2)
    moments = LogisticMoments(2.5, (6, 1, sum(LEVELS) + 1), cells, np.zeros((3, 2), dtype=np.int64))
    return {
        "counts": (Count(cells, 6, Decision(MODEL, params)), 1.0, 1),
        "sums": (Sum(cells, 6, SoftDecision(MODEL, params)), 1.0, 2),
        "gradient": (GradientSum(MODEL, params, CrossEntropy()), 0.7, 2),
        "by group": (GroupGradientSum(MODEL, params, CrossEntropy(), 2), 0.7, 2),
        "network": (GradientSum(NETWORK, deep, CrossEntropy()), 0.7, 2),
        "moments": (MomentSum(moments), 1.0, 2),
        "levels": (LevelCounts(), len(LEVELS) ** 0.5, 2),
    }


def local_records(records, n_workers, ray=None) -> RayRecords:
    """Return the records on workers of one process."""
    parts = [part.gathered() for part in parts_of(records, n_workers, SECRET)]
    return RayRecords(Workers(ray or LocalRay(), parts), Made(0), "")


@pytest.fixture(scope="session")
def ray():
    """A small Ray on this machine."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    ray = pytest.importorskip("ray", reason="needs ray: pip install 'fairveil[ray]'")
    facts = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
    ray.init(address="local", num_cpus=2, object_store_memory=200 * 2**20, **facts)
    yield ray
    ray.shutdown()


@pytest.fixture
def on_ray(ray):
    """Return records on two real workers, which end with the test."""
    opened = []

    def make(records, n_workers=2):
        opened.append(ray_records(records, n_workers, secret=SECRET))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.fixture
def seeded_coins(request) -> Coins:
    """Coins of the test's name that are not secret: those of the shards follow from them."""
    return derived_coins(SECRET, request.node.nodeid, is_secret=False)


def task_for(records, epsilon) -> Task:
    """Return public facts that fit the tables above."""
    people = Population((Attribute("group", ("a", "b")),), ("0", "1"))
    return Task(records.n_features, people, (len(LEVELS) + 1) ** 0.5, 600, epsilon, 1e-5)
