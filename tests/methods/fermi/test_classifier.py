"""FermiClassifier and the front door: two levels of privacy, statements, saving and loading, refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from fairveil import (
    DemographicParity,
    Descent,
    FairClassifier,
    Fermi,
    FermiClassifier,
    Ledger,
    NeighboringRelation,
)
from fairveil.accounting.composition import epsilon_of
from fairveil.errors import InvalidParameterError

QUICK = Fermi(descent=Descent(n_steps=20))
LEVELS = ("record", "attribute")


@pytest.fixture(scope="module")
def schema(people):
    return people.schema.without("sex")


def fermi(schema, protects, **choices):
    facts = {"training": QUICK, "schema": schema, "sensitive": "sex", "ledger": Ledger(), "protects": protects}
    return FermiClassifier(**(facts | choices))


def front_door(people, protects, **choices):
    facts = {"training": QUICK, "schema": people.schema, "sensitive": "sex", "ledger": Ledger(), "protects": protects}
    return FairClassifier(DemographicParity(), **(facts | {"aware": False, "method": "fermi"} | choices))


@pytest.mark.parametrize("protects", LEVELS)
def test_a_fit_costs_what_it_claims(people, schema, protects):
    clf = fermi(schema, protects).fit(people.X.head(800), people.y.head(800))
    assert 0.99 < clf.epsilon_spent_ <= 1.0
    assert clf.plan_.hides_attribute == (protects == "attribute")
    assert len(clf.penalties_) in (20, 4)
    (entry,) = clf.ledger_.entries
    assert {charge.unit for charge in entry.charges} == {clf.plan_.unit}
    assert epsilon_of(clf.plan_.charges(), 1e-5, NeighboringRelation.REPLACE_ONE) > clf.epsilon_spent_


@pytest.mark.parametrize("protects", LEVELS)
def test_it_is_saved_and_loaded_at_its_level(people, schema, protects, tmp_path):
    clf = fermi(schema, protects).fit(people.X.head(800), people.y.head(800))
    clf.save(tmp_path / "model")
    again = FermiClassifier.load(tmp_path / "model")
    assert again.protects == protects and again.inputs_.protects == protects
    np.testing.assert_array_equal(again.predict(people.X.head(99)), clf.predict(people.X.head(99)))
    assert again.plan_ == clf.plan_


@pytest.mark.parametrize("protects", LEVELS)
def test_the_front_door_states_what_is_hidden(people, protects, tmp_path):
    clf = front_door(people, protects).fit(people.X.head(2000), people.y.head(2000))
    said = clf.summary()["statement"]["covered"][0]
    assert said.startswith("The sex of any one record is hidden") == (protects == "attribute")
    clf.save(tmp_path / "model")
    again = FairClassifier.load(tmp_path / "model")
    assert again.protects == protects and again.method_ == "fermi"
    assert again.certificate_.to_dict() == clf.certificate_.to_dict()


def test_a_recipe_alone_selects_the_method(people):
    assert front_door(people, "record", method="auto").request().method.name == "fermi"


def test_a_plain_descent_is_taken_as_its_descent(people):
    clf = front_door(people, "record", training=Descent(n_steps=7))
    (stage,) = (stage for stage in clf.planned().stages if stage.name == "train")
    assert stage.n_steps == 7


def test_parameters_and_clones_keep_the_level(schema):
    clf = clone(fermi(schema, "attribute"))
    assert clf.get_params()["protects"] == "attribute" and clf.planned().hides_attribute
    assert not clf.set_params(protects="record", schema=schema.model_copy()).planned().hides_attribute


def test_the_weight_reaches_the_recipe_from_the_front_door(people):
    clf = front_door(people, "record", training=replace(QUICK, penalty_weight=7.0))
    assert clf.request().method.make_estimator(clf.request()).planned_recipe().penalty_weight == 7.0


@pytest.mark.parametrize(
    "protects, choices, expected",
    [
        ("attribute", {"aware": True}, "aware=False"),
        ("record", {"constraint": DemographicParity(0.1)}, "without a tolerance"),
        ("record", {"sensitive": ()}, "sensitive column"),
        ("everything", {}, "protects"),
    ],
)
def test_the_front_door_refuses_what_cannot_be(people, protects, choices, expected):
    constraint = choices.pop("constraint", DemographicParity())
    with pytest.raises(InvalidParameterError, match=expected):
        front_door(people, protects, **choices).set_params(constraint=constraint).request()


def test_what_cannot_be_is_refused_before_anything_is_spent(people, schema):
    for clf, expected in (
        (fermi(people.schema, "attribute"), "is the secret"),
        (fermi(schema, "nothing"), "protects"),
        (fermi(schema, "record", constraint=DemographicParity(0.1)), "penalty_weight"),
    ):
        with pytest.raises(InvalidParameterError, match=expected):
            clf.fit(people.X.head(10), people.y.head(10))
        assert not clf.ledger.entries


def test_without_privacy_both_levels_fit(people, schema):
    for protects in LEVELS:
        clf = fermi(schema, protects, epsilon=math.inf, random_state=0)
        first, second = (clf.fit(people.X.head(500), people.y.head(500)).params_ for _ in range(2))
        np.testing.assert_array_equal(first, second)
