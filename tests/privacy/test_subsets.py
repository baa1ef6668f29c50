"""Parts that read one piece of the split pay one after the other; pieces pay the dearest of them."""

import numpy as np
import pytest

from fairveil._random import secret_coins
from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.events import Charge
from fairveil.errors import InvalidParameterError
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import open_veils

DELTA = 1e-5
STEPS = Stage("train", (Release("gradient", "gaussian", 1.5),), 0.8, {-1: 0.02}, 500)
LOOK = Stage("look", (Release("counts", "gaussian", 3.0),), 0.8, subset="train")
HOLDOUT = Stage("holdout", (Release("outcomes", "gaussian", 3.0),), 0.2)
SIZE = Stage("size", (Release("size", "discrete_laplace", 50.0),))


def test_a_further_query_of_a_subset_composes_in_sequence():
    plan = Plan((STEPS, LOOK, HOLDOUT), 3.0, DELTA)
    trained, held = epsilon_of([STEPS.event, LOOK.event], DELTA), epsilon_of([HOLDOUT.event], DELTA)
    assert held < trained
    assert epsilon_of(plan.charges(), DELTA) == pytest.approx(max(trained, held), rel=1e-6)
    louder = Stage("holdout", (Release("outcomes", "gaussian", 0.8),), 0.2)
    costly = epsilon_of([louder.event], DELTA)
    assert costly > trained
    assert epsilon_of(Plan((STEPS, LOOK, louder), 9.0, DELTA).charges(), DELTA) == pytest.approx(costly, rel=1e-6)


def test_a_query_declared_as_its_own_subset_is_caught():
    """A twin that charges the look beside the training: those people met both, and the books show one."""
    plan = Plan((STEPS, LOOK, HOLDOUT), 3.0, DELTA)
    twin = [Charge(part.event, "split", part.name) for part in plan.stages]
    honest, claimed = epsilon_of(plan.charges(), DELTA), epsilon_of(twin, DELTA)
    assert claimed == max(epsilon_of([part.event], DELTA) for part in plan.stages)
    assert claimed < 0.85 * honest


def test_whole_data_parts_compose_with_every_piece():
    plan = Plan((SIZE, STEPS, LOOK, HOLDOUT), 3.0, DELTA)
    in_sequence = epsilon_of([SIZE.event, STEPS.event, LOOK.event], DELTA)
    assert epsilon_of(plan.charges(), DELTA) == pytest.approx(in_sequence, rel=1e-6)


def test_the_ledger_records_the_subset():
    ledger = Ledger()
    records = MemoryRecords(np.zeros((9, 1), np.float32), np.zeros(9, np.int16), np.zeros(9, np.int16))
    open_veils(records, Plan((STEPS, LOOK, HOLDOUT), 3.0, DELTA), ledger, secret_coins(), "a test")
    assert [charge.part for charge in ledger.entries[0].charges] == ["train", "train", "holdout"]
    assert ledger.epsilon(DELTA) == pytest.approx(epsilon_of([STEPS.event, LOOK.event], DELTA), rel=1e-6)


def test_parts_of_one_piece_read_the_same_people_and_pieces_read_others():
    n = 400
    X = np.arange(n, dtype=np.float32)[:, None]
    records = MemoryRecords(X, np.zeros(n, np.int16), np.zeros(n, np.int16))
    plan = Plan((SIZE, STEPS, LOOK, HOLDOUT), 3.0, DELTA)
    veils = open_veils(records, plan, Ledger(), secret_coins(), "a test")
    people = {name: set(veil._records.gathered().X[:, 0]) for name, veil in veils.items()}
    assert people["train"] == people["look"]
    assert not people["train"] & people["holdout"]
    assert people["train"] | people["holdout"] == people["size"] == set(X[:, 0])


def test_a_part_of_share_1_reads_everyone_whatever_its_piece():
    everyone = Stage("size", SIZE.releases, subset="train")
    records = MemoryRecords(np.zeros((50, 1), np.float32), np.zeros(50, np.int16), np.zeros(50, np.int16))
    plan = Plan((everyone, STEPS, HOLDOUT), 3.0, DELTA)
    assert plan.charges()[0].split == ""
    veils = open_veils(records, plan, Ledger(), secret_coins(), "a test")
    assert len(veils["size"]._records) == 50


def test_a_piece_has_one_share_and_counts_once():
    assert Plan((STEPS, LOOK, HOLDOUT), 3.0, DELTA).shares == {"train": 0.8, "holdout": 0.2}
    with pytest.raises(InvalidParameterError, match=r"one share, got 0\.8 and 0\.5"):
        Plan((STEPS, Stage("look", LOOK.releases, 0.5, subset="train"), HOLDOUT), 3.0, DELTA)
    with pytest.raises(InvalidParameterError, match="add up"):
        Plan((STEPS, LOOK), 3.0, DELTA)


@pytest.mark.parametrize("part", [STEPS, LOOK, HOLDOUT, SIZE], ids=lambda part: part.name)
def test_the_piece_survives_json(part):
    facts = part.to_dict()
    assert Stage.from_dict(facts) == part
    assert ("piece" in facts) == (part is LOOK)


def test_models_saved_before_there_were_pieces_load():
    facts = {
        "part": "train",
        "share": 0.8,
        "sampling_rates": {"all": 0.02},
        "n_steps": 500,
        "releases": [{"name": "gradient", "law": "gaussian", "noise_multiplier": 1.5, "joint_batch": False}],
    }
    assert Stage.from_dict(facts) == STEPS
