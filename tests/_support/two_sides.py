"""A small table of two sides and two classes, and a training on it: shared by the tests of RaCO-DP."""

import math
from functools import cache

import numpy as np

from fairveil._random import reproducible_coins
from fairveil.fairness.rates import Attribute, Population
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.records import MemoryRecords
from fairveil.training.recipe import Task
from fairveil.training.run import make_plan, run_plan

SIDES = Population((Attribute("side", ("left", "right")),), ("no", "yes"))
TASK = Task(n_features=4, people=SIDES, input_norm=math.sqrt(5), n_public=400, epsilon=math.inf, delta=1e-5)


def make_records(rng, n=400, n_groups=2, n_classes=2):
    X = rng.uniform(-1, 1, size=(n, 4)).astype(np.float32)
    group = np.minimum((n_groups * (X[:, 0] + 1) / 2).astype(np.int16), n_groups - 1)
    scores = (2 * X[:, :1] + 3 * X[:, 1:2]) * np.arange(n_classes) + rng.gumbel(size=(n, n_classes))
    return MemoryRecords(X, scores.argmax(axis=1).astype(np.int16), group)


planned = cache(make_plan)  # the noise of one plan serves every table of the same public facts


def run(recipe, task, records, holdout=0.0, coins=None):
    plan = planned(recipe, task, holdout)
    coins = coins or reproducible_coins(0)
    return run_plan(plan, recipe, task, records, Ledger(), coins, np.random.default_rng(0))
