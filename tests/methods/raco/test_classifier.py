"""RateConstrainedClassifier on real people: what it promises, habits of scikit-learn, saving, bad values, refusals."""

import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from _support.spoiling import WORST, spoil
from fairveil import (
    Category,
    DemographicParity,
    Descent,
    EqualizedOdds,
    FalseNegativeRateCap,
    FalsePositiveRateCap,
    Ledger,
    Number,
    OutputPerturbation,
    PrivateClassifier,
    RateConstrained,
    RateConstrainedClassifier,
    Rule,
    Schema,
    Sensitive,
    Target,
    ToleranceNotMetWarning,
    load_dataset,
)
from fairveil.errors import (
    BadStructureError,
    InvalidParameterError,
    MissingPublicFactError,
    SealedLedgerError,
)

# Noise decides now and then that a bound seems broken; the tests that are about the warning ask for it.
pytestmark = pytest.mark.filterwarnings("ignore::fairveil.errors.ToleranceNotMetWarning")

QUICK = RateConstrained(descent=Descent(n_steps=20))
LOOSE = DemographicParity(1.0)


@pytest.fixture(scope="module")
def people():
    return load_dataset("adult")


@pytest.fixture
def few(people):
    return people.X.head(600), people.y.head(600)


def constrained(people, constraint=LOOSE, **choices):
    given = {"training": QUICK, "schema": people.schema, "sensitive": "sex", "ledger": Ledger()}
    return RateConstrainedClassifier(constraint, **(given | choices))


def gap_of(clf, X):
    rich = clf.predict(X) == ">50K"
    return abs(rich[X["sex"] == "Male"].mean() - rich[X["sex"] == "Female"].mean())


# --- what it promises -----------------------------------------------------------------------------------------------


def test_adult_at_epsilon_one_is_private_fair_and_good(people):
    """One run on 41,500 people; in 12 runs the gap was .047 +- .004, the accuracy .850 +- .002: far from the limits."""
    clf = RateConstrainedClassifier(
        DemographicParity(0.05), schema=people.schema, sensitive="sex", holdout=0.15, ledger=Ledger()
    )
    clf.fit(people.X, people.y)
    assert 0.98 < clf.epsilon_spent_ <= 1.0
    assert clf.ledger_.epsilon(1e-5) <= 1.0
    assert gap_of(clf, people.X) < 0.1
    assert clf.score(people.X, people.y) > 0.82
    assert clf.evaluation_.gap().low < 0.1
    assert clf.constraint_trace_.values.shape == (600, 2)
    assert clf.final_check_.bounds == clf.constraint_trace_.bounds


def test_without_privacy_it_needs_no_noise_and_repeats(people, few):
    fits = [constrained(people, DemographicParity(0.5), epsilon=math.inf, random_state=3).fit(*few) for _ in range(2)]
    assert np.array_equal(fits[0].params_, fits[1].params_)
    assert not fits[0].constraint_trace_.half_widths.any()


def test_a_tighter_bound_makes_a_smaller_gap(people):
    X, y = people.X.head(4000), people.y.head(4000)
    gaps = []
    for tolerance in (0.03, 0.1, 1.0):
        clf = constrained(
            people, DemographicParity(tolerance), training=None, epsilon=math.inf, random_state=0,
            schema=people.schema.model_copy(update={"n_public": 4000}),
        )  # fmt: skip
        gaps.append(gap_of(clf.fit(X, y), X))
    assert gaps[0] <= 0.035
    assert gaps[1] <= 0.105
    assert gaps[2] > 0.13


def test_what_cannot_be_had_is_warned_of_in_one_sentence(people):
    X, y = people.X.head(4000), people.y.head(4000)
    seen = []
    impossible = [Rule("false_negative_rate <= 0.05"), Rule("selection_rate <= 0.02")]
    clf = constrained(people, impossible, epsilon=math.inf)
    with pytest.warns(ToleranceNotMetWarning) as told:
        clf.fit(X, y, progress=lambda steps: (seen.append(step) or step for step in steps))
    assert seen == list(range(20))
    (one,) = told
    assert one.filename == __file__  # it points at the line that called fit
    sentence = str(one.message)
    assert sentence.startswith("Expected ") and sentence.endswith(".")
    assert "false_negative_rate <= 0.05" in sentence or "selection_rate <= 0.02" in sentence
    assert np.isfinite(clf.predict_proba(X)).all()


# --- constraints and groups -----------------------------------------------------------------------------------------


def test_several_sensitive_columns_and_several_constraints(people, few):
    asked = [DemographicParity(1.0, attribute="sex"), FalseNegativeRateCap(1.0)]
    clf = constrained(people, asked, sensitive=["race", "sex"], holdout=0.3).fit(*few)
    told = [str(bound) for bound in clf.constraint_trace_.bounds]
    assert told == [
        "selection_rate[sex=Female] - selection_rate[sex=Male] <= 1",
        "selection_rate[sex=Male] - selection_rate[sex=Female] <= 1",
        "false_negative_rate <= 1",
    ]
    assert len(clf.evaluation_.groups) == 10
    every = constrained(people, LOOSE, sensitive=["race", "sex"]).fit(*few)
    assert len(every.constraint_trace_.bounds) == 10 * 9


def test_sensitive_features_passed_separately_are_the_same(people, few):
    X, y = few
    for asked, sensitive, apart in (
        (EqualizedOdds(0.9), "sex", X["sex"]),
        (EqualizedOdds(0.9), "sex", X["sex"].to_numpy()),
        (EqualizedOdds(0.9), "sex", X[["sex"]]),
        (DemographicParity(0.9), ["race", "sex"], X[["sex", "race"]]),
    ):
        schema = people.schema.without("sex", "race")
        clf = constrained(people, asked, sensitive=sensitive, schema=schema, epsilon=math.inf, random_state=0)
        inside = clone(clf).fit(X, y)
        outside = clone(clf).fit(X.drop(columns=["sex", "race"]), y, sensitive_features=apart)
        assert np.array_equal(inside.params_, outside.params_)
        assert np.array_equal(inside.constraint_trace_.values, outside.constraint_trace_.values)
    with pytest.raises(BadStructureError, match="DataFrame"):
        constrained(people, sensitive=["race", "sex"]).fit(X, y, sensitive_features=X["sex"])


def test_prediction_does_not_need_the_group(people, few):
    clf = constrained(people, schema=people.schema.without("sex")).fit(*few)
    assert "sex" not in clf.feature_names_in_
    bare = few[0].drop(columns="sex")
    assert np.array_equal(clf.predict(bare), clf.predict(few[0]))
    swapped = few[0].assign(sex="Female")
    assert np.array_equal(clf.predict_proba(swapped), clf.predict_proba(few[0]))


def test_a_constraint_that_needs_no_groups_needs_no_sensitive_column(people, few):
    clf = constrained(people, FalsePositiveRateCap(0.9), sensitive=None).fit(*few)
    assert len(clf.constraint_trace_.bounds) == 1


def three_classes(rng, n=3000):
    X = rng.uniform(-1, 1, (n, 3))
    group = np.where(X[:, 0] > 0, "b", "a")
    scores = (2 * X[:, :1] + 3 * X[:, 1:2]) * np.arange(3)
    return X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1), group


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_more_than_two_classes_keep_parity_of_each(rng, model):
    X, y, group = three_classes(rng)
    schema = Schema.for_arrays(3, classes=[0, 1, 2], n_public=3000, groups=["a", "b"])
    training = RateConstrained(descent=Descent(model=model, hidden=(8,), n_steps=300, learning_rate=0.3))
    gaps = []
    for tolerance in (0.05, 1.0):
        clf = RateConstrainedClassifier(
            DemographicParity(tolerance), math.inf, training=training, schema=schema, sensitive="group",
            ledger=Ledger(), random_state=0,
        )  # fmt: skip
        chosen = np.eye(3)[clf.fit(X, y, sensitive_features=group).predict(X)]
        gaps.append(np.abs(chosen[group == "a"].mean(axis=0) - chosen[group == "b"].mean(axis=0)).max())
        assert clf.constraint_trace_.values.shape[1] == 3 * 2
    assert gaps[1] > 0.3
    assert gaps[0] < 0.1


@pytest.mark.parametrize("choices", [{"histogram": "laplace"}, {"soft_rates": True}, {"final_check": False}])
def test_every_kind_of_training_fits(people, few, choices):
    training = RateConstrained(descent=Descent(n_steps=20), **choices)
    clf = constrained(people, training=training).fit(*few)
    assert np.isfinite(clf.params_).all()
    assert 0.98 < clf.epsilon_spent_ <= 1.0
    assert (clf.final_check_ is None) == (choices == {"final_check": False})


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choices, words",
    [
        ({"constraint": None}, "Expected a constraint, got none"),
        ({"constraint": "demographic_parity"}, "Expected constraints such as"),
        ({"constraint": [0.05]}, "Expected constraints such as"),
        ({"constraint": []}, "at least one rate"),
        ({"constraint": LOOSE, "sensitive": None}, "sensitive attribute"),
        ({"constraint": DemographicParity(0.1, attribute="race")}, "sensitive attribute of sex"),
        ({"constraint": Rule("selection_rate[sex=Other] <= 0.2")}, "group of 'sex'"),
        ({"constraint": Rule("selection_rate[age=old] <= 0.2")}, "sensitive attribute of sex"),
        ({"constraint": Rule('selection_rate("100K") <= 0.2')}, "one of the classes"),
        ({"training": Descent()}, "training=RateConstrained.* got Descent"),
        ({"training": OutputPerturbation()}, "PrivateClassifier takes other recipes"),
        ({"training": RateConstrained(soft_rates=True, histogram="discrete_laplace")}, "soft rates"),
        ({"constraint": Rule("selection_rate <= -0.1")}, "rates between 0 and 1 can meet"),
    ],
)
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_a_mismatch_is_refused_before_any_debit(people, few, choices, words, epsilon):
    clf = constrained(people, epsilon=epsilon).set_params(**choices)
    with pytest.raises(InvalidParameterError, match=words):
        clf.fit(*few)
    with pytest.raises(InvalidParameterError, match=words):
        clf.planned()
    assert clf.ledger.entries == ()
    assert not hasattr(clf, "params_")


def test_a_missing_schema_is_refused(few):
    with pytest.raises(MissingPublicFactError, match="schema"):
        RateConstrainedClassifier(FalsePositiveRateCap(0.5)).fit(*few)


# --- habits of scikit-learn -----------------------------------------------------------------------------------------


def test_parameters_come_and_go(people):
    clf = constrained(people)
    params = clf.get_params(deep=False)
    assert set(params) == {
        "constraint", "epsilon", "delta", "training", "schema", "sensitive", "holdout", "ledger", "random_state", "auc",
    }  # fmt: skip
    again = clone(clf)
    assert again.ledger is clf.ledger
    assert again.get_params()["constraint"] == clf.constraint
    assert again.set_params(constraint=DemographicParity(0.2), epsilon=2.0).constraint.tolerance == 0.2
    assert clf.constraint == LOOSE  # the first is left alone


def test_fit_leaves_the_parameters_alone(people, few):
    training = RateConstrained(EqualizedOdds(0.3), Descent(n_steps=5))
    clf = constrained(people, [LOOSE], training=training)
    before = dict(clf.get_params(deep=False))
    clf.fit(*few)
    after = clf.get_params(deep=False)
    assert all(after[name] is before[name] for name in before)
    assert len(clf.constraint_trace_.bounds) == 2  # the estimator's constraint, not the recipe's own


@pytest.mark.filterwarnings("ignore::fairveil.errors.UnpricedSearchWarning")
def test_a_search_is_recorded_as_unpriced(people, few):
    ledger = Ledger()
    clone(constrained(people, ledger=ledger)).set_params(constraint=DemographicParity(0.9)).fit(*few)
    assert ledger.epsilon(1e-5) == math.inf


def test_pickled_rules_predict_and_do_not_spend(people, few):
    clf = constrained(people).fit(*few)
    again = pickle.loads(pickle.dumps(clf))
    assert np.array_equal(again.predict(few[0]), clf.predict(few[0]))
    with pytest.raises(SealedLedgerError):
        again.fit(*few)


# --- files and folders ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fairveil.errors.UnpricedSearchWarning")
def test_a_file_is_fitted_like_a_table(people, few, tmp_path):
    X, y = few
    X.assign(income=y).to_csv(tmp_path / "people.csv", index=False)
    asked = [EqualizedOdds(0.9, attribute="sex"), FalseNegativeRateCap(1.0)]
    clf = constrained(people, asked, sensitive=["race", "sex"], epsilon=math.inf, random_state=0, holdout=0.2)
    table, file = clone(clf).fit(X, y), clone(clf).fit_file(tmp_path / "people.csv")
    assert table.plan_ == file.plan_ == clf.planned()
    np.testing.assert_allclose(file.params_, table.params_, atol=1e-6)
    np.testing.assert_allclose(file.final_check_.values, table.final_check_.values)
    private = clone(clf).set_params(epsilon=1.0)
    assert private.fit_file(tmp_path / "people.csv").plan_ == private.planned()


@pytest.mark.parametrize("training", [QUICK, RateConstrained(descent=Descent(model="mlp", hidden=(8,), n_steps=3))])
def test_saved_rules_come_back_predict_the_same_and_refuse_to_fit(people, few, tmp_path, training):
    clf = constrained(people, [LOOSE, FalseNegativeRateCap(1.0)], training=training).fit(*few)
    clf.save(tmp_path / "model")
    again = RateConstrainedClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(few[0]), clf.predict_proba(few[0]))
    assert again.plan_ == clf.plan_
    assert again.epsilon_spent_ == clf.epsilon_spent_
    assert again.constraint_trace_ is None and again.final_check_ is None
    again.set_params(constraint=LOOSE, sensitive="sex")
    with pytest.raises(SealedLedgerError):
        again.fit(*few)
    with pytest.raises(BadStructureError, match="RateConstrainedClassifier"):
        PrivateClassifier.load(tmp_path / "model")


def test_a_moved_threshold_is_saved(people, few, tmp_path):
    held_back = Descent(n_steps=20, sampling_rate=1.0, clip_norm=0.1, learning_rate=0.1)
    clf = constrained(
        people, FalseNegativeRateCap(0.2), epsilon=math.inf, training=RateConstrained(descent=held_back),
        schema=people.schema.model_copy(update={"n_public": 600}),
    ).fit(*few)  # fmt: skip
    assert clf.final_check_.offsets[1] > 0
    clf.save(tmp_path / "model")
    again = RateConstrainedClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict(few[0]), clf.predict(few[0]))


# --- values never steer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", WORST)
def test_bad_values_fit_with_no_word_but_the_stated_warning(people, few, how, recwarn):
    X, y = spoil(*few, how)
    asked = [EqualizedOdds(0.2), FalseNegativeRateCap(0.5, each_group=True)]
    schema = people.schema.model_copy(update={"n_public": 600})
    clf = constrained(people, asked, schema=schema, holdout=0.3, training=RateConstrained(descent=Descent(n_steps=5)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ToleranceNotMetWarning)
        clf.fit(X, y)
        assert np.isfinite(clf.params_).all()
        assert np.isfinite(clf.predict_proba(few[0])).all()
        clf.evaluation_.gap()
    assert np.isfinite(clf.constraint_trace_.frame().drop(columns="bound").to_numpy()).all()
    assert np.isfinite(clf.final_check_.values).all()
    assert len(recwarn) == 0


def test_an_id_column_makes_the_person_the_unit(rng):
    schema = Schema(
        id_column="who",
        n_public=50,
        target=Target(column="y", classes=["no", "yes"]),
        sensitive=(Sensitive(column="g", groups=["a", "b"]),),
        columns={"x": Number(bounds=(0, 1)), "g": Category(categories=["a", "b"])},
    )
    frame = pd.DataFrame({"who": np.repeat(np.arange(50), 4), "x": rng.random(200), "g": ["a", "b"] * 100})
    clf = RateConstrainedClassifier(
        LOOSE, 50.0, schema=schema, sensitive="g", training=QUICK, holdout=0.5, ledger=Ledger()
    )
    clf.fit(frame, rng.choice(["no", "yes"], 200))
    assert clf.plan_.unit == "person by who"
    assert clf.evaluation_.counts.sum() < 50  # persons, not rows


def test_a_rule_about_one_group_binds_that_group(people):
    """A parity is the same with its groups swapped; this is not: men are held down, women (about .08) stay."""
    clf = RateConstrainedClassifier(
        Rule("selection_rate[sex=Male] <= 0.12"),
        math.inf,
        schema=people.schema,
        sensitive="sex",
        random_state=0,
    )
    chosen = clf.fit(people.X, people.y).predict(people.X) == ">50K"
    is_male = (people.X["sex"] == "Male").to_numpy()
    assert chosen[is_male].mean() < 0.13
    assert 0.05 < chosen[~is_male].mean() < 0.13
