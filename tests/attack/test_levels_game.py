"""Can the price of a count of levels be broken? A neighbor game on the veil, and twins that must be caught.

The game is that of `test_neighbour_game`, with one coded record: it adds 1 to one level of each of 6 columns and of
each of 15 pairs, and the statistic is the sum of the counts of these levels, the best one for normal noise. In 200
simulated games, honest counts show 0.41 to 0.65 of their claim (0.3 must be shown), half the noise 1.16 to 1.48 times
the claim, a bound without pairs 1.00 to 1.43 and a bound of 1 2.1 to 2.5 times (more than 1 must be shown). Coins are
seeded by the test's name.
"""

import numpy as np
import pandas as pd
import pytest

from _support import twins
from fairveil import Descent, PrivateClassifier
from fairveil._random import secret_coins
from fairveil.accounting.composition import epsilon_of
from fairveil.audit.bounds import free_bound
from fairveil.audit.games import Subject, audit_plan
from fairveil.data.coded import Detail
from fairveil.data.datasets import dataset_schema
from fairveil.data.encoding import Encoder
from fairveil.data.schema import Category, Number, Schema, Target
from fairveil.models.products import level_counts
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import LevelCounts
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import open_veils
from fairveil.training.features import FeatureDesign

DELTA = 1e-2
N_DRAWS = 10_000
SCHEMA = Schema(
    target=Target(column="y", classes=("no", "yes")),
    columns={
        "age": Number(bounds=(0, 10), cuts=(2, 5)),
        **{name: Category(categories=("x", "y")) for name in ("town", "job", "home", "work", "car")},
    },
    n_public=1000,
)  # fmt: skip
ENCODER = Encoder(SCHEMA, Detail(2, 2))
ROW = ENCODER.features(pd.DataFrame({name: [3.0 if name == "age" else "x"] for name in SCHEMA.columns}))
COLUMNS, PLACES = 6, 21
RELEASE = Release("levels", "gaussian", 1.0)


def shown(n_places=PLACES):
    """Return the bound on epsilon that the draws of two worlds prove."""
    worlds, own = [], ROW.places()[0]
    assert len(own) == PLACES
    for canary in (True, False):
        n = int(canary)
        records = MemoryRecords(ROW[:n], np.zeros(n, np.int16), np.zeros(n, np.int16))
        plan = Plan((Stage("levels", (RELEASE,), 1.0, {-1: 1.0}, N_DRAWS),), 1.0, 1e-5)
        veil = open_veils(records, plan, Ledger(), secret_coins(), "a game")["levels"]
        worlds.append(np.array([veil.draw().release_levels(n_places)[own].sum() for _ in range(N_DRAWS)]))
    return free_bound(worlds[0], worlds[1][::-1], DELTA)


CLAIM = epsilon_of([RELEASE.event], DELTA)


def test_the_claim_of_a_count_of_levels_stands(seeded):
    assert 0.3 * CLAIM < shown() <= CLAIM


def test_half_the_noise_on_levels_is_caught(seeded, monkeypatch):
    twins.halve_noise(monkeypatch)
    assert shown() > CLAIM


@pytest.mark.parametrize("n_stated", [1, COLUMNS], ids=["one", "columns alone"])
def test_a_bound_that_leaves_levels_out_is_caught(n_stated, seeded, monkeypatch):
    """A twin that trusts the caller: a bound of 1, or of the columns without their pairs."""
    monkeypatch.setattr(LevelCounts, "total", lambda self, rows, bound, norm: level_counts(rows.inputs))
    assert shown(n_stated) > CLAIM


# --- the plan of a classifier -----------------------------------------------------------------------------------------


def subject(epsilon=8.0):
    """The plan of a private classifier of few steps, with its recipe."""
    training = Descent(n_steps=2, sampling_rate=1.0, features=FeatureDesign(resolution=2, pair_bins=2))
    clf = PrivateClassifier(epsilon=epsilon, schema=dataset_schema("heart"), training=training, ledger=Ledger())
    return Subject(clf.planned(), (clf.planned_recipe(),), clf.planned_inputs().task)


def test_the_plan_of_a_classifier_counts_levels_and_keeps_its_claim():
    own = subject()
    assert [stage.name for stage in own.plan.stages] == ["levels", "train"]
    found = audit_plan(own, 300)
    assert 0.25 * found.claim < found.lower_bound <= found.claim
    assert found.reach > 0.8
