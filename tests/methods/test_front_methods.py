"""The front door with the functional mechanism and FairDP: frontiers with certificates, what is measured, refusals."""

import math

import numpy as np
import pytest

from fairveil import (
    DemographicParity,
    Descent,
    EarlyStopping,
    FairClassifier,
    FalseNegativeRateCap,
    Functional,
    Groupwise,
    GroupwiseClassifier,
    Key,
    Ledger,
    PrecisionParity,
    SmoothedClassifier,
    Smoothing,
    ToleranceNotMetWarning,
    Tuning,
)
from fairveil.errors import InvalidParameterError

pytestmark = pytest.mark.filterwarnings("ignore::fairveil.ToleranceNotMetWarning")
QUICK = Groupwise(Descent(n_steps=10))


def door(people, method, **choices):
    given = {
        "aware": False,
        "sensitive": "sex",
        "schema": people.schema,
        "ledger": Ledger(),
        "method": method,
    }
    return FairClassifier(**(given | choices))


@pytest.fixture(scope="module")
def announced(people):
    training = Functional(announced=(0.0, 0.1, 0.2), regularization=2.0)
    return door(people, "functional", constraint=DemographicParity(0.1), training=training, epsilon=2.0).fit(
        people.X, people.y
    )


def test_announced_tolerances_come_with_a_certificate_each_for_one_budget(people, announced):
    spent = announced.ledger_.epsilon(1e-5)
    doors = announced.frontier([0.0, 0.1, 0.2, 0.15])
    for one, tolerance in zip(doors[:3], (0.0, 0.1, 0.2), strict=True):
        assert {claim.limit for claim in one.certificate_.claims} == {tolerance}
        assert one.certificate_.n_rows > 1000
        assert one.summary()["tolerance"] == tolerance
        assert one.epsilon_spent_ == announced.epsilon_spent_
    assert doors[3].certificate_ is None
    with pytest.raises(InvalidParameterError, match="announce"):
        doors[3].certificate()
    assert announced.ledger_.epsilon(1e-5) == spent <= 2.0
    assert len(announced.ledger_.entries) == 1
    assert {claim.limit for claim in announced.certificate_.claims} == {0.1}


def test_a_tolerance_is_found_whatever_its_last_bit(announced):
    (one,) = announced.frontier([0.1 * 2.0 / 2 + 1e-12])
    assert one.certificate_ is not None


def test_other_methods_have_no_frontier(people, few):
    clf = door(people, "fairdp", training=QUICK).fit(*few)
    with pytest.raises(InvalidParameterError, match="functional"):
        clf.frontier([0.1])


@pytest.mark.parametrize("asked", [0.1, ("x",), (math.nan,), (-5,), (0.1, 0.1), (2.0,)])
def test_what_is_announced_is_checked_before_anything_is_spent(asked):
    with pytest.raises(InvalidParameterError, match="announced"):
        Functional(announced=asked)


def test_a_choice_among_runs_measures_nothing_announced(people):
    tune = Tuning((Functional(announced=(0.1,)),))
    with pytest.raises(InvalidParameterError, match="announced"):
        door(people, "functional", constraint=DemographicParity(0.1), tune=tune).planned()


def test_the_front_door_leaves_a_stated_headroom_alone(people):
    clf = door(people, "functional", constraint=DemographicParity(0.1), training=Functional(headroom=0.5))
    assert clf.request().method.make_estimator(clf.request()).training.headroom == 0.5


def test_fairdp_measures_and_passes_nothing(people, few):
    clf = door(people, "fairdp", training=QUICK, holdout=0.4).fit(*few)
    assert str(clf.certificate_.verdict) == "measured"
    assert "No bound was requested" in clf.certificate_.sentence
    assert clf.summary()["bounds"] == []
    assert {str(claim.verdict) for claim in clf.certificate_.claims} == {"measured"}


@pytest.mark.parametrize(
    "constraint", [DemographicParity(0.1), DemographicParity(ratio=0.8), FalseNegativeRateCap(0.3)]
)
def test_fairdp_takes_no_tolerance(people, constraint):
    with pytest.raises(InvalidParameterError, match="norm_bound"):
        door(people, "fairdp", constraint=constraint).planned()


def test_statements_over_the_noise_are_only_about_rates_of_class_1(people, few):
    clf = door(people, "fairdp", constraint=PrecisionParity(), training=QUICK, holdout=0.4).fit(*few)
    assert clf.summary()["noise_statements"] == []
    for asked in (PrecisionParity(), DemographicParity(ratio=0.8), FalseNegativeRateCap(0.3), []):
        with pytest.raises(InvalidParameterError, match="class 1"):
            clf.estimator_.noise_certificate(asked)


def test_a_loaded_rule_does_not_claim_to_know_what_was_ever_spent(people, few, tmp_path):
    clf = door(people, "fairdp", training=QUICK).fit(*few)
    clf.save(tmp_path / "model")
    summary = FairClassifier.load(tmp_path / "model").summary()
    assert summary["epsilon_spent_total"] is None
    assert "cumulative epsilon is unknown" in summary["statement"]["total"]


def test_where_no_check_is_passed_the_last_model_is_kept_with_a_warning(people, few):
    watched = Groupwise(Descent(n_steps=10), stopping=EarlyStopping(DemographicParity(0.0), 2))
    with pytest.warns(ToleranceNotMetWarning, match="early stopping"):
        clf = door(people, "fairdp", training=watched, holdout=0.4).fit(*few)
    assert any("early stopping" in caution for caution in clf.summary()["cautions"])


def test_a_rule_that_selects_nobody_is_cautioned_of(people, few):
    # a bound and a budget that let it learn there is nobody to select
    clf = door(people, "fairdp", training=Groupwise(Descent(n_steps=60)), holdout=0.4, epsilon=50.0)
    X, y = few
    summary = clf.fit(X, np.full(len(y), "<=50K", dtype=object)).summary()
    assert any("hardly distinguishes anybody" in caution for caution in summary["cautions"])


def test_equal_rows_share_a_uniform_unless_records_are_named(people, few):
    X = few[0].iloc[[0] * 400].reset_index(drop=True)
    clf = SmoothedClassifier(
        Smoothing(gap=0.1), training=Descent(n_steps=10), schema=people.schema, ledger=Ledger()
    ).fit(*few)
    clf.use_key(Key(bytes(range(16))))
    assert len(set(clf.predict(X))) == 1
    named = clf.predict(X, record_ids=np.arange(400)) == ">50K"
    assert 0.3 < named.mean() < 0.7  # a fair coin but for the gap: 8 deviations


def test_several_groupwise_candidates_can_be_chosen_among(people, few):
    tune = Tuning((QUICK, Groupwise(Descent(n_steps=10), 0.5)), mean_runs=2)
    clf = door(people, "fairdp", tune=tune, holdout=0.3).fit(*few)
    assert isinstance(clf.estimator_, GroupwiseClassifier)
    assert clf.summary()["noise_statements"] == []
