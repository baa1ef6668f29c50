"""FunctionalClassifier on real people: one release, a whole frontier, habits of scikit-learn, saving, refusals."""

import inspect
import math
import re

import numpy as np
import pytest
from sklearn.base import clone

from fairveil import (
    DemographicParity,
    Descent,
    EqualizedOdds,
    FalseNegativeRateCap,
    Ledger,
    Schema,
    ToleranceNotMetWarning,
)
from fairveil.errors import BadStructureError, InvalidParameterError, MissingPublicFactError
from fairveil.fairness.diagnostics import FinalCheck
from fairveil.methods.functional import FunctionalClassifier
from fairveil.methods.functional.recipe import Functional

# Noise decides now and then that a bound seems broken; the tests that are about the warning ask for it.
pytestmark = pytest.mark.filterwarnings("ignore::fairveil.errors.ToleranceNotMetWarning")

TOLERANCES = np.linspace(0, 0.19, 20)


def functional(people, constraint=DemographicParity(0.05), **choices):  # noqa: B008
    given = {"schema": people.schema, "sensitive": "sex", "ledger": Ledger()}
    return FunctionalClassifier(constraint, **(given | choices))


@pytest.fixture(scope="module")
def fitted(people):
    return functional(people).fit(people.X, people.y)


def gap_of(clf, X):
    rich = clf.predict(X) == ">50K"
    return abs(rich[X["sex"] == "Male"].mean() - rich[X["sex"] == "Female"].mean())


# --- what it promises -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 0.845), (0.5, 0.84)])
def test_adult_without_a_constraint(people, epsilon, least):
    """Held out in 5 splits: .850 +- .003 at epsilon 1, .847 +- .002 at 0.5, trained on three quarters."""
    clf = functional(people, None, epsilon=epsilon).fit(people.X, people.y)
    assert 0.98 * epsilon < clf.epsilon_spent_ <= epsilon
    assert clf.score(people.X, people.y) > least - 0.01
    assert clf.final_check_ is None


def test_adult_under_demographic_parity(people, fitted):
    """In 6 splits the held-out gap was .038 and .059, both +- .010, where .04 and .06 were asked for; accuracy .84."""
    assert 0.98 < fitted.epsilon_spent_ <= 1.0
    assert fitted.ledger_.epsilon(1e-5) <= 1.0
    assert gap_of(fitted, people.X) < 0.1
    assert fitted.score(people.X, people.y) > 0.82
    assert fitted.final_check_.bounds[0].limit == 0.05


def test_a_hold_out_is_measured(people):
    clf = functional(people, holdout=0.2).fit(people.X, people.y)
    assert clf.evaluation_.gap().low < 0.1
    assert clf.evaluation_.accuracy().value > 0.8
    assert clf.epsilon_spent_ <= 1.0


def test_a_rule_that_does_not_read_the_group(people):
    clf = functional(people, schema=people.schema.without("sex")).fit(people.X, people.y)
    assert "sex" not in clf.feature_names_in_
    assert gap_of(clf, people.X) < 0.12
    swapped = people.X.head(100).assign(sex="Female")
    assert np.array_equal(clf.predict_proba(swapped), clf.predict_proba(people.X.head(100)))


def test_without_privacy_it_repeats(people, few):
    one, other = (functional(people, epsilon=math.inf, random_state=3).fit(*few) for _ in range(2))
    assert np.array_equal(one.params_, other.params_)
    assert one.epsilon_spent_ == math.inf


def test_a_bound_that_is_surely_broken_is_warned_of_where_fit_was_called(people, few, monkeypatch):
    """On real people the line comes too near to any tolerance to count on a warning: the check is made to complain."""
    monkeypatch.setattr(FinalCheck, "excess", property(lambda check: np.ones(len(check.bounds))))
    clf = functional(people, EqualizedOdds(0.0), epsilon=math.inf)
    with pytest.warns(ToleranceNotMetWarning, match=r"true_positive_rate|false_positive_rate") as told:
        clf.fit(*few)
    assert told[0].filename == __file__
    assert not clf.final_check_.may_hold


@pytest.mark.parametrize("apart", ["series", "frame"])
def test_sensitive_features_passed_separately_are_the_same(people, few, apart):
    X, y = few
    column = X["sex"] if apart == "series" else X[["sex"]]
    clf = functional(people, schema=people.schema.without("sex"), epsilon=math.inf, random_state=0)
    inside, outside = (
        clone(clf).fit(X, y),
        clone(clf).fit(X.drop(columns="sex"), y, sensitive_features=column),
    )
    assert np.array_equal(inside.params_, outside.params_)


# --- the frontier ---------------------------------------------------------------------------------------------------


def test_a_frontier_costs_nothing_and_keeps_the_plan(fitted):
    before = fitted.ledger_.entries
    models = fitted.frontier(TOLERANCES, (1.0, 2.0))
    assert fitted.ledger_.entries == before
    assert len(before) == 1
    assert len(models) == 40
    for model in models:
        assert model.classifier.plan_ is fitted.plan_
        assert model.classifier.epsilon_spent_ == fitted.epsilon_spent_
        assert model.classifier.constraint.tolerance == model.tolerance


def test_a_frontier_says_what_was_counted(fitted):
    counted, other = fitted.frontier([0.05], (1.0, 2.0))
    assert (counted.counted, other.counted) == (True, False)
    assert (counted.regularization, other.regularization) == (1.0, 2.0)
    assert np.array_equal(counted.classifier.params_, fitted.params_)
    assert not np.array_equal(other.classifier.params_, fitted.params_)


def test_the_models_of_a_frontier_keep_their_tolerances(people, fitted):
    """Over 6 splits the mean gap lies at most .007 above each tolerance, with deviations of .01: far from .05."""
    models = fitted.frontier(TOLERANCES)
    gaps = np.array([gap_of(model.classifier, people.X) for model in models])
    assert (gaps <= TOLERANCES + 0.05).all()
    assert gaps[10] > 0.05  # and not by selecting nobody
    accuracies = [model.classifier.score(people.X, people.y) for model in models]
    assert min(accuracies) > 0.81
    assert accuracies[-1] > accuracies[0]
    assert all(model.gap <= model.tolerance + 1e-9 for model in models)


def test_the_gaps_of_a_frontier_carry_errors(people, seeded):
    """Noise and sampling of 48,842 people: about .005; the true gap lies within 4 of them."""
    for model in functional(people).fit(people.X, people.y).frontier([0.02, 0.05, 0.1]):
        assert 0.001 < model.gap_error < 0.02
        assert abs(gap_of(model.classifier, people.X) - model.gap) < 4 * model.gap_error


def test_announced_tolerances_are_measured_on_the_hold_out(people, seeded):
    training = Functional(announced=(0.02, 0.1))
    clf = functional(people, training=training, holdout=0.3).fit(people.X, people.y)
    assert clf.epsilon_spent_ <= 1.0
    tight, loose, other = (model.classifier.evaluation_ for model in clf.frontier([0.02, 0.1, 0.05]))
    assert other is None
    for evaluation, tolerance in ((tight, 0.02), (loose, 0.1)):
        assert evaluation.gap().low < tolerance + 0.03
        assert evaluation.accuracy().value == pytest.approx(0.84, abs=0.03)
    assert clf.frontier([0.1], (2.0,))[0].classifier.evaluation_ is None


def test_the_fitted_one_is_left_alone(people, fitted):
    params, check = fitted.params_.copy(), fitted.final_check_
    (model,) = fitted.frontier([0.0])
    assert np.array_equal(fitted.params_, params)
    assert fitted.final_check_ is check
    assert fitted.constraint == DemographicParity(0.05)
    assert model.classifier.final_check_ is None
    assert model.classifier.evaluation_ is None


def test_several_constraints_all_change_their_tolerance(people, few):
    asked = [DemographicParity(0.05), EqualizedOdds(0.1)]
    (model,) = functional(people, asked, epsilon=math.inf).fit(*few).frontier([0.2])
    assert [one.tolerance for one in model.classifier.constraint] == [0.2, 0.2]


def test_models_of_a_frontier_are_saved_and_loaded(people, few, fitted, tmp_path):
    (model,) = fitted.frontier([0.1])
    model.classifier.save(tmp_path / "model")
    loaded = FunctionalClassifier.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(few[0]), model.classifier.predict_proba(few[0]))
    assert loaded.plan_ == fitted.plan_
    assert loaded.final_check_ is None
    with pytest.raises(InvalidParameterError, match="loaded"):
        loaded.frontier([0.1])


def test_a_frontier_needs_a_constraint_and_sound_numbers(people, few, fitted):
    plain = functional(people, None, epsilon=math.inf).fit(*few)
    with pytest.raises(InvalidParameterError, match="constraint"):
        plain.frontier([0.1])
    with pytest.raises(InvalidParameterError, match="tolerance"):
        fitted.frontier([-0.1])
    with pytest.raises(InvalidParameterError, match="regularization"):
        fitted.frontier([0.1], (0.0,))


# --- refusals and habits --------------------------------------------------------------------------------------------


def test_refusals_come_before_the_debit(people, few):
    ledger = Ledger()
    for choices, words in (
        ({"constraint": FalseNegativeRateCap(0.2)}, "RateConstrainedClassifier"),
        ({"training": Descent()}, "Functional"),
        ({"sensitive": None}, "sensitive"),
    ):
        with pytest.raises(InvalidParameterError, match=words):
            functional(people, **({"ledger": ledger} | choices)).fit(*few)
    with pytest.raises(MissingPublicFactError):
        FunctionalClassifier(ledger=ledger).fit(np.zeros((4, 2)), np.array([0, 1, 0, 1]))
    assert ledger.entries == ()


def test_rounds_for_more_than_two_classes_are_refused():
    schema = Schema.for_arrays(2, classes=["0", "1", "2"], bounds=(-1, 1), n_public=30)
    with pytest.raises(InvalidParameterError, match="two classes"):
        FunctionalClassifier(None, training=Functional(rounds=2), schema=schema, ledger=Ledger()).planned()


def test_a_folder_of_another_estimator_is_refused(people, few, tmp_path):
    functional(people, None, epsilon=math.inf).fit(*few).save(tmp_path / "model")
    with pytest.raises(BadStructureError):
        type("Other", (FunctionalClassifier,), {}).load(tmp_path / "model")


def test_at_most_nine_parameters_beside_the_constraint_each_documented():
    parameters = list(inspect.signature(FunctionalClassifier).parameters)
    assert len(parameters) == 10
    for name in parameters:
        assert re.search(rf"^    .*\b{name}\b.* : ", FunctionalClassifier.__doc__, re.MULTILINE), name


def test_clones_keep_their_choices(people):
    clf = functional(people, training=Functional(rounds=2))
    copied = clone(clf)
    assert copied.training == clf.training
    assert copied.ledger is clf.ledger
