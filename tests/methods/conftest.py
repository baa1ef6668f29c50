"""Small real-looking worlds for post-processing: given scores, groups and labels, and a way to carry out a recipe."""

import numpy as np
import pytest

from fairveil._random import secret_coins
from fairveil.fairness.rates import Attribute, Population
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.records import MemoryRecords
from fairveil.training.recipe import Task
from fairveil.training.run import make_plan, run_plan


def population(n_groups=2, n_classes=2):
    groups = tuple(f"g{code}" for code in range(n_groups))
    return Population((Attribute("group", groups),), tuple(map(str, range(n_classes))))


def scored_rows(rng, n, people, bias=1.0):
    """Probabilities that favour some groups, true groups, and labels drawn from the probabilities."""
    groups = rng.choice(len(people.codes), n, p=_shares(len(people.codes)))
    logits = rng.normal(size=(n, people.n_classes)) * 1.5
    logits[:, -1] += bias * (groups / max(1, len(people.codes) - 1) - 0.5) * 2
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (rng.random(n)[:, None] > np.cumsum(probabilities, axis=1)).sum(axis=1)
    return probabilities, groups, np.minimum(labels, people.n_classes - 1)


def _shares(n_groups):
    shares = np.linspace(2, 1, n_groups)
    return shares / shares.sum()


def task_of(people, n, epsilon, predicts="label", n_features=None, delta=1e-5):
    return Task(n_features or people.n_classes, people, 3.0, n, epsilon, delta, predicts=predicts)


@pytest.fixture
def make_people():
    return population


@pytest.fixture
def make_rows():
    return scored_rows


@pytest.fixture
def make_task():
    return task_of


@pytest.fixture
def fitted():
    """Carry out a recipe on rows whose inputs are given, and return what left the veil."""

    def run(recipe, task, X, groups, y, holdout=0.0):
        records = MemoryRecords(np.asarray(X, np.float32), y.astype(np.int16), groups.astype(np.int16))
        plan = make_plan(recipe, task, holdout)
        coins, rng = secret_coins(), np.random.default_rng(0)
        return run_plan(plan, recipe, task, records, Ledger(), coins, rng)

    return run
