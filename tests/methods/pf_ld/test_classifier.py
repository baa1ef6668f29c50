"""LagrangianClassifier and the front door with protects="attribute": promises, habits, words, refusals, bad values."""

import math
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from _support.spoiling import WORST, spoil
from fairveil import (
    DemographicParity,
    Descent,
    EqualizedOdds,
    ErrorRateParity,
    FairClassifier,
    FalseNegativeRateCap,
    LagrangianClassifier,
    LagrangianDual,
    Ledger,
    Number,
    PrivateClassifier,
    RateConstrained,
    Schema,
    Sensitive,
    Target,
    Tuning,
    Where,
    load_dataset,
)
from fairveil.accounting.composition import NeighboringRelation, epsilon_of
from fairveil.errors import (
    BadStructureError,
    InvalidParameterError,
    MissingPublicFactError,
    SealedLedgerError,
)
from fairveil.methods.inputs import TableSource
from fairveil.privacy.attribute import AttributeRecords

QUICK = LagrangianDual(descent=Descent(n_steps=20))
FORMS = {
    "memberships": QUICK,
    "gradients": replace(QUICK, primal="gradients"),
    "bound": replace(QUICK, primal="gradients", primal_bound="private", dual_bound=0.5),
    "looks": replace(QUICK, primal="gradients", n_counts=2),
}


@pytest.fixture(scope="module")
def schema(people):
    return people.schema.without("sex")


def hiding(schema, constraint=None, **choices):
    given = {"training": QUICK, "schema": schema, "sensitive": "sex", "ledger": Ledger()}
    return LagrangianClassifier(constraint, **(given | choices))


def gap_of(clf, X):
    rich = clf.predict(X) == ">50K"
    return abs(rich[X["sex"] == "Male"].mean() - rich[X["sex"] == "Female"].mean())


# --- what it promises ------------------------------------------------------------------------------------------------


def test_adult_at_epsilon_one_is_fair_good_and_within_budget(people, schema, seeded):
    """On 8,000 people; in four runs gaps were .005 to .016, accuracies .864 to .868: far from the limits."""
    X, y = people.X.head(8000), people.y.head(8000)
    clf = hiding(schema, training=None, holdout=0.15).fit(X, y)
    assert 0.98 < clf.epsilon_spent_ <= 1.0
    assert clf.plan_.unit == "attribute sex of each record"
    assert gap_of(clf, X) < 0.08
    assert clf.score(X, y) > 0.81
    assert clf.evaluation_.gap().low < 0.08
    assert np.abs(clf.constraint_trace_.multipliers).max() <= 5.0


def test_the_change_to_another_group_costs_more_and_is_stated(schema):
    for training in FORMS.values():
        plan = hiding(schema, training=training).planned()
        known = epsilon_of(plan.charges(), 1e-5)
        changed = epsilon_of(plan.charges(), 1e-5, NeighboringRelation.REPLACE_ONE)
        assert known <= 1.0 < changed <= 2.5


def test_without_privacy_it_repeats_and_is_recorded_as_not_private(schema, few):
    fits = [hiding(schema, epsilon=math.inf, random_state=3).fit(*few) for _ in range(2)]
    assert np.array_equal(fits[0].params_, fits[1].params_)
    assert fits[0].ledger_.epsilon(1e-5) == math.inf
    assert 0 < fits[0].constraint_trace_.half_widths.max() < 0.2  # no noise, but a batch is a sample


def test_decisions_never_read_the_attribute(schema, few):
    clf = hiding(schema).fit(*few)
    assert "sex" not in clf.feature_names_in_
    swapped = few[0].assign(sex="Female")
    assert np.array_equal(clf.predict_proba(swapped), clf.predict_proba(few[0].drop(columns="sex")))


def test_the_holdout_counts_those_whose_attribute_is_known(schema, few):
    X, y = few
    some = X["sex"].astype(object).where(np.arange(len(X)) % 4 == 0)  # three of four are unknown
    clf = hiding(schema, epsilon=math.inf, holdout=0.5, random_state=0).fit(X.assign(sex=some), y)
    n_known = clf.evaluation_.counts.sum()
    assert n_known == pytest.approx(250, abs=6 * math.sqrt(500 / 4))
    for code in set(range(clf.inputs_.people.n_groups)) - set(clf.inputs_.people.codes):
        assert not clf.evaluation_.counts[code].any()


def test_sensitive_features_passed_separately_are_the_same(schema, few):
    X, y = few
    inside = hiding(schema, epsilon=math.inf, random_state=0).fit(X, y)
    for apart in (X["sex"], X["sex"].to_numpy(), X[["sex"]]):
        clf = hiding(schema, epsilon=math.inf, random_state=0)
        outside = clf.fit(X.drop(columns="sex"), y, sensitive_features=apart)
        assert np.array_equal(inside.params_, outside.params_)


def test_several_attributes_stand_for_their_intersections(people, few):
    clf = hiding(people.schema.without("sex", "race"), sensitive=["race", "sex"]).fit(*few)
    assert clf.plan_.unit == "attribute race + sex of each record"
    assert len(clf.constraint_trace_.bounds) == 10


# --- what is no secret -----------------------------------------------------------------------------------------------


def small(**facts):
    """A small schema whose attribute g follows from age."""
    given = {
        "target": Target(column="y", classes=["no", "yes"]),
        "sensitive": (Sensitive(column="g", groups=["a", "b"], sources=("age",)),),
        "columns": {"x": Number(bounds=(0, 1))},
    }
    return Schema(**(given | facts))


@pytest.mark.parametrize(
    "facts, words",
    [
        ({"columns": {"g": Number(bounds=(0, 1))}}, "'g' as a feature, which is the secret"),
        ({"columns": {"age": Number(bounds=(0, 99))}}, "'age' as a feature, which reveals 'g'"),
        ({"where": (Where(column="age", at_least=18),)}, "'age' as a rule on rows"),
        ({"where": (Where(column="g", present=True),)}, "'g' as a rule on rows"),
        ({"sensitive": (Sensitive(column="g", groups=["a", "b"], sources=("y",)),)}, "'y' as the target"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_columns_that_name_the_attribute_are_refused(facts, words, epsilon):
    clf = LagrangianClassifier(epsilon=epsilon, schema=small(**facts), sensitive="g", ledger=Ledger())
    with pytest.raises(InvalidParameterError, match=words):
        clf.planned()
    LagrangianClassifier(schema=small(), sensitive="g", ledger=Ledger()).planned()


def test_banks_age_group_is_no_secret_beside_the_age(data_folder):
    bank = load_dataset("bank")
    name = bank.schema.sensitive[0].column
    clf = LagrangianClassifier(schema=bank.schema, sensitive=name, ledger=Ledger())
    with pytest.raises(InvalidParameterError, match="remove it from what is public"):
        clf.planned()


def test_the_errors_of_few_people_are_not_learnt_by_heart(data_folder):
    """Bank's elders are 4 % of all: equal error rates must hold for new people, not only for those of the training.

    Pulled at by their own labels, the network has a gap of .14 on new people (deviation .02 over six splits) at .01 on
    its own rows; by expected ones .04 (deviation .02).
    """
    bank = load_dataset("bank")
    schema = bank.schema.without("age")
    is_new = np.random.default_rng(0).random(len(bank.y)) < 0.25
    clf = LagrangianClassifier(
        ErrorRateParity(), math.inf, training=LagrangianDual(primal="memberships"), schema=schema, sensitive="age",
        ledger=Ledger(), random_state=0,
    )  # fmt: skip
    clf.fit(bank.X[~is_new], bank.y[~is_new])
    wrong = (clf.predict(bank.X[is_new]) != bank.y[is_new]).to_numpy()
    is_elder = (bank.X["age"][is_new] >= 60).to_numpy()
    assert abs(wrong[is_elder].mean() - wrong[~is_elder].mean()) < 0.09


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choices, words",
    [
        ({"sensitive": None}, "Expected a sensitive column"),
        ({"constraint": FalseNegativeRateCap(0.2)}, "differences between groups"),
        ({"constraint": DemographicParity(attribute="race")}, "sensitive attribute"),
        ({"training": Descent()}, r"training=LagrangianDual\(.*, got Descent"),
        ({"training": RateConstrained()}, r"training=LagrangianDual\(.*, got RateConstrained"),
        ({"training": replace(QUICK, primal="memberships", dual_bound=1.0)}, "dual_bound"),
    ],
)
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_a_mismatch_is_refused_before_any_debit(schema, few, choices, words, epsilon):
    clf = hiding(schema, epsilon=epsilon).set_params(**choices)
    for ask in (lambda: clf.fit(*few), clf.planned):
        with pytest.raises(InvalidParameterError, match=words):
            ask()
    assert clf.ledger.entries == ()
    assert not hasattr(clf, "params_")


def test_a_missing_schema_is_refused(few):
    with pytest.raises(MissingPublicFactError, match="schema"):
        LagrangianClassifier(sensitive="sex").fit(*few)


# --- habits of scikit-learn ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fairveil.errors.UnpricedSearchWarning")
def test_parameters_come_and_go(schema, few):
    clf = hiding(schema, [DemographicParity()], training=replace(QUICK, constraint=EqualizedOdds()))
    before = dict(clf.get_params(deep=False))
    assert set(before) == {
        "constraint", "epsilon", "delta", "training", "schema", "sensitive", "holdout", "ledger", "random_state", "auc",
    }  # fmt: skip
    assert clone(clf).ledger is clf.ledger
    clf.fit(*few)
    assert all(clf.get_params(deep=False)[name] is before[name] for name in before)
    assert len(clf.constraint_trace_.bounds) == 2  # the estimator's constraint, not the recipe's own
    again = pickle.loads(pickle.dumps(clf))
    assert np.array_equal(again.predict(few[0]), clf.predict(few[0]))
    with pytest.raises(SealedLedgerError):
        again.fit(*few)
    clone(clf).set_params(epsilon=2.0).fit(*few)
    assert clf.ledger.epsilon(1e-5) == math.inf  # a search is booked as unpriced


def test_a_file_is_fitted_like_a_table(schema, few, tmp_path):
    X, y = few
    X.assign(income=y).to_csv(tmp_path / "people.csv", index=False)
    clf = hiding(schema, ErrorRateParity(), epsilon=math.inf, random_state=0, holdout=0.2)
    table, file = clone(clf).fit(X, y), clone(clf).fit_file(tmp_path / "people.csv")
    assert table.plan_ == file.plan_ == clf.planned()
    np.testing.assert_allclose(file.params_, table.params_, atol=1e-5)
    assert np.array_equal(file.evaluation_.counts, table.evaluation_.counts)


def test_saved_rules_come_back_and_refuse_to_fit(schema, few, tmp_path):
    clf = hiding(schema).fit(*few)
    clf.save(tmp_path / "model")
    again = LagrangianClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(few[0]), clf.predict_proba(few[0]))
    assert again.plan_ == clf.plan_ and again.epsilon_spent_ == clf.epsilon_spent_
    assert again.constraint_trace_ is None
    assert again.inputs_.task.unit == "attribute sex of each record"
    with pytest.raises(SealedLedgerError):
        again.fit(*few)
    with pytest.raises(BadStructureError, match="LagrangianClassifier"):
        PrivateClassifier.load(tmp_path / "model")


# --- values never steer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("how", WORST)
def test_bad_values_fit_without_a_word(schema, few, how, form):
    X, y = spoil(few[0].head(150), few[1].head(150), how)
    training = replace(FORMS[form], descent=Descent(n_steps=5))
    clf = hiding(schema, [EqualizedOdds(), ErrorRateParity()], holdout=0.3, training=training)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.fit(X, y)
        assert np.isfinite(clf.params_).all()
        assert np.isfinite(clf.predict_proba(few[0])).all()
        clf.evaluation_.gap()
    assert np.isfinite(clf.constraint_trace_.frame().drop(columns="bound").to_numpy()).all()


@pytest.mark.parametrize("n_rows", [200, 1, 0])
def test_an_id_column_makes_the_persons_attribute_the_unit(rng, n_rows):
    frame = pd.DataFrame({"who": np.repeat(np.arange(50), 4), "x": rng.random(200), "g": ["a", "b"] * 100})
    labels = rng.choice(["no", "yes"], 200)
    clf = LagrangianClassifier(
        epsilon=50.0,
        schema=small(id_column="who"),
        sensitive="g",
        training=QUICK,
        holdout=0.5,
        ledger=Ledger(),
    )
    clf.fit(frame.head(n_rows), labels[:n_rows])
    assert clf.plan_.unit == "attribute g of each person by who"
    assert clf.evaluation_.counts.sum() < 50  # persons, not rows


# --- the front door --------------------------------------------------------------------------------------------------


def door(people, **choices):
    given = {
        "aware": False, "sensitive": "sex", "schema": people.schema, "ledger": Ledger(), "protects": "attribute",
        "training": QUICK, "holdout": 0.3,
    }  # fmt: skip
    return FairClassifier(**(given | choices))


@pytest.fixture(scope="module")
def fitted(people, few):
    return door(people).fit(*few)


def test_the_statement_says_what_alone_is_hidden(fitted):
    summary = fitted.summary()
    covered, rest = (" ".join(summary["statement"][name]) for name in ("covered", "not_covered"))
    assert fitted.method_ == "pfld"
    assert summary["protects"] == "attribute" and summary["unit"] == "record"
    assert "The sex of any one record is hidden" in covered
    assert "The sex of one record known or not" in covered
    assert "The sex of one record changed to another group" in covered
    assert "even with all features and labels at hand" in covered
    assert "Features, labels and the number of rows" in rest
    assert "What features reveal about sex" in rest
    replaced = epsilon_of(fitted.plan_.charges(), 1e-5, NeighboringRelation.REPLACE_ONE)
    assert summary["epsilon_replace_one"] == pytest.approx(replaced)
    assert f"epsilon {replaced:.4f}" in covered
    assert "added or removed" not in covered
    assert str(fitted.certificate_.verdict) == "measured"


def test_other_people_are_certified_under_the_same_unit(people, fitted):
    books = Ledger()
    X = people.X.iloc[5000:9000].astype(object)
    X.iloc[::2, X.columns.get_loc("sex")] = None
    certificate = fitted.certify(X, people.y.iloc[5000:9000], 1.0, ledger=books)
    assert books.units == ("attribute sex of each record",)
    assert 0.98 < books.epsilon(1e-5) <= 1.0
    assert certificate.n_rows == pytest.approx(2000, abs=100)  # those whose attribute is known, and noise


def test_a_loaded_door_still_hides_the_attribute(people, fitted, few, tmp_path):
    fitted.save(tmp_path / "model")
    again = FairClassifier.load(tmp_path / "model")
    assert again.protects == "attribute" and again.method_ == "pfld"
    assert np.array_equal(again.predict(few[0]), fitted.predict(few[0]))
    assert again.summary()["statement"]["covered"] == fitted.summary()["statement"]["covered"]
    assert isinstance(again.estimator_.inputs_.records(TableSource(*few)), AttributeRecords)
    again.certify(*few, 1.0, ledger=Ledger())


def test_explain_says_it_before_any_row_is_read(people):
    told = door(people).explain()
    assert "sex" in told and "features" in told.lower()


@pytest.mark.parametrize(
    "choices, words",
    [
        ({"protects": "record", "method": "pfld"}, 'protects="attribute"'),
        ({"method": "dp2dp", "training": None}, 'protects="record"'),
        ({"method": "raco", "training": None}, 'protects="record"'),
        ({"method": "dpsgd", "training": None}, 'protects="record"'),
        ({"protects": "label"}, "protects"),
        ({"aware": True}, "aware=False"),
        ({"constraint": DemographicParity(0.05)}, "lambda_max"),
        ({"constraint": FalseNegativeRateCap(0.2)}, "lambda_max"),
        ({"training": Descent()}, "LagrangianDual"),
        ({"training": None, "tune": Tuning((QUICK, replace(QUICK, lambda_max=1.0)))}, "no private choice"),
    ],
)
def test_weaker_privacy_is_nothing_to_slip_into(people, few, choices, words):
    clf = door(people, **choices)
    with pytest.raises(InvalidParameterError, match=words):
        clf.fit(*few)
    assert clf.ledger.entries == ()


def test_an_unknown_attribute_that_counts_as_a_group_is_refused(people):
    """Known or not would be a change of group, which costs more than is stated for it."""
    (entry,) = [one for one in people.schema.sensitive if one.column == "sex"]
    counted = people.schema.without("sex").model_copy(
        update={"sensitive": (entry.model_copy(update={"unknown": "Male"}),)}
    )
    with pytest.raises(InvalidParameterError, match="in no group"):
        LagrangianClassifier(schema=counted, sensitive="sex", ledger=Ledger()).planned()


def test_a_tolerance_is_refused_because_nothing_is_bounded(people):
    with pytest.raises(InvalidParameterError, match="without a tolerance"):
        LagrangianClassifier(
            DemographicParity(0.1), schema=people.schema.without("sex"), sensitive="sex", ledger=Ledger()
        ).planned()
