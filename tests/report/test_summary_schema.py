"""`summary.json` against its published schema: what every method writes validates, and what is wrong does not."""

import copy
import json
import math
from importlib.resources import files

import pytest
from jsonschema import Draft202012Validator

from fairveil import (
    DemographicParity,
    Descent,
    EqualizedOdds,
    FairClassifier,
    FinalSteps,
    Groupwise,
    Ledger,
    Rule,
    Tuning,
    load_dataset,
)

pytestmark = pytest.mark.filterwarnings("ignore::fairveil.ToleranceNotMetWarning")  # 20 steps do not get far
SCHEMA = json.loads(files("fairveil.report").joinpath("summary.schema.json").read_text())
FAST = Descent(n_steps=20)
CHOICES = {
    "rule on scores": {"aware": True},
    "joint model": {"aware": False},
    "under bounds": {"aware": False, "constraint": [EqualizedOdds(0.1), Rule("error_rate <= 0.5")]},
    "flips": {"aware": True, "method": "parity"},
    "private only": {"aware": False, "method": "dpsgd"},
    "one release": {"aware": False, "method": "functional", "training": None},
    "groups side by side": {
        "aware": False,
        "method": "fairdp",
        "constraint": DemographicParity(),
        "training": Groupwise(FAST, finish=FinalSteps(n_models=4)),
    },
    "not private": {"aware": True, "epsilon": math.inf},
    "scores counted": {"aware": True, "auc": True},
    "no hold-out": {"aware": True, "holdout": 0.0},
    "chosen privately": {
        "aware": True,
        "training": None,
        "tune": Tuning((FAST, Descent(n_steps=10)), mean_runs=2),
    },
}


@pytest.fixture(scope="module")
def people():
    return load_dataset("adult")


def problems(summary):
    return [f"{list(e.path)}: {e.message}" for e in Draft202012Validator(SCHEMA).iter_errors(summary)]


def test_the_schema_is_one():
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CHOICES))
def test_what_every_method_says_validates(name, people):
    choices = {"constraint": DemographicParity(0.05), "training": FAST, **CHOICES[name]}
    clf = FairClassifier(schema=people.schema, sensitive="sex", ledger=Ledger(), **choices)
    summary = clf.fit(people.X.head(3000), people.y.head(3000)).summary()
    assert problems(json.loads(json.dumps(summary, allow_nan=False))) == []


def test_what_is_wrong_does_not_validate(people):
    clf = FairClassifier(
        DemographicParity(0.05),
        schema=people.schema,
        sensitive="sex",
        aware=True,
        training=FAST,
        ledger=Ledger(),
    )
    summary = clf.fit(people.X.head(3000), people.y.head(3000)).summary()
    for path in (
        ("epsilon_spent",),
        ("gap", "low"),
        ("plan", 0, "releases", 0, "law"),
        ("certificate", "verdict"),
    ):
        wrong = copy.deepcopy(summary)
        place = wrong
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = "a lot"
        assert problems(wrong)
        del place[path[-1]]
        assert problems(wrong)
