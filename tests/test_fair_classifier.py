"""FairClassifier on real people: choices, tables, one budget, certificates, and what it says of itself."""

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from fairveil import (
    Budget,
    DemographicParity,
    Descent,
    EqualizedOdds,
    FairClassifier,
    FalseNegativeRateCap,
    FalsePositiveRateCap,
    Ledger,
    PrecisionParity,
    PrivateClassifier,
    Rule,
    Schema,
    UnpricedSearchWarning,
    make_biased_mixture,
)
from fairveil.data.datasets import dataset_schema
from fairveil.data.schema import Category, Sensitive, Target
from fairveil.errors import (
    BadStructureError,
    BudgetExceededError,
    FairveilError,
    InvalidParameterError,
    MissingPublicFactError,
)
from fairveil.training.tuning import Tuning

# Noise decides now and then that a bound seems broken; the tests of the estimators behind are about the warning.
pytestmark = pytest.mark.filterwarnings("ignore::fairveil.errors.ToleranceNotMetWarning")

QUICK = Descent(n_steps=5)
TUNING = Tuning((Descent(n_steps=5), Descent(n_steps=5, learning_rate=0.5)), mean_runs=3)
SELECTION = Rule("selection_rate[sex=Female] >= 0.8 * selection_rate[sex=Male]")
ODDS = Rule("true_positive_rate[sex=Female] >= true_positive_rate[sex=Male] - 0.1")
PRECISE = Rule("precision[sex=Female] >= 0.5")
BANDS = Path(__file__).parents[1] / "benchmarks" / "schemas" / "acs_income_bands.toml"


@pytest.fixture(scope="module")
def private(people):
    """One fit with true secret coins: only what holds for sure is asked of it."""
    return fair(people, DemographicParity(0.02)).fit(people.X, people.y)


@pytest.fixture(scope="module")
def exact(people, few):
    return fair(people, DemographicParity(0.05), epsilon=math.inf).fit(*few)


def fair(people, constraint=None, **choices):
    facts = {"schema": people.schema, "sensitive": "sex", "aware": True, "ledger": Ledger()}
    return FairClassifier(constraint, **(facts | choices))


def gap_of(clf, X):
    rich, is_male = clf.predict(X) == ">50K", (X["sex"] == "Male").to_numpy()
    return abs(rich[is_male].mean() - rich[~is_male].mean())


def one_sentence(error):
    text = str(error.value)
    return text.startswith("Expected ") and text[-1] == "." and "\n" not in text


# --- choices --------------------------------------------------------------------------------------------------------


CHOSEN = [
    (None, "dp2dp", "dp2dp"), (DemographicParity(0.1), "dp2dp", "dp2dp"), (EqualizedOdds(0.1), "dp2dp", "raco"),
    (PrecisionParity(0.1), "raco", "raco"),
    (FalsePositiveRateCap(0.1), "dp2dp", "raco"), (FalseNegativeRateCap(0.1, each_group=True), "dp2dp", "raco"),
    (SELECTION, "dp2dp", "dp2dp"), (ODDS, "dp2dp", "raco"), (PRECISE, "raco", "raco"),
    ([DemographicParity(0.1), SELECTION], "dp2dp", "dp2dp"), ([DemographicParity(0.1), ODDS], "dp2dp", "raco"),
    ((DemographicParity(0.1), PRECISE), "raco", "raco"),
]  # fmt: skip


@pytest.mark.parametrize("constraint, by_aware, by_unaware", CHOSEN)
def test_what_auto_chooses_follows_from_public_facts_alone(people, constraint, by_aware, by_unaware):
    for aware, expected in ((True, by_aware), (False, by_unaware)):
        clf = fair(people, constraint, aware=aware)
        assert clf.request().method.name == expected  # nothing but the constructor was handed over
        assert clf.planned() == clf.set_params(method=expected).planned()


def test_a_classifier_that_was_fitted_elsewhere_gets_a_rule(people, few):
    given = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression(max_iter=1000)).fit(*few)
    assert fair(people, PrecisionParity(0.1), estimator=given).request().method.name == "dp2dp"
    for choices in ({"aware": False}, {"method": "raco"}, {"method": "dpsgd"}, {"tune": TUNING}):
        clf = fair(people, estimator=given, **choices)
        with pytest.raises(InvalidParameterError) as told:
            clf.fit(*few)
        assert one_sentence(told) and clf.ledger.entries == ()


def test_any_constraint_that_becomes_bounds_will_do(people, few):
    class Own:
        def bounds(self, people):
            return DemographicParity(0.1).bounds(people)

    clf = fair(people, Own(), epsilon=math.inf).fit(*few)
    assert [claim.limit for claim in clf.certificate_.claims] == [0.1, 0.1]


REFUSED = [
    {"aware": None}, {"aware": 1}, {"aware": 0}, {"aware": "yes"},
    {"method": "magic"}, {"method": None}, {"method": "parity", "aware": False},
    {"method": "parity", "constraint": EqualizedOdds(0.1)},
    {"method": "parity", "constraint": [DemographicParity(0.1), SELECTION]},
    {"method": "raco", "schema": dataset_schema("adult").without("sex")},
    {"constraint": "demographic_parity"}, {"constraint": DemographicParity}, {"constraint": []},
    {"constraint": [DemographicParity(0.1), "selection_rate <= 0.1"]},
    {"constraint": Rule("selection_rate[sex=Nobody] <= 0.1")},
    {"sensitive": "sexes"}, {"sensitive": "age"}, {"sensitive": []},
    {"holdout": -0.1}, {"holdout": 1.0}, {"holdout": "some"},
    {"tune": [Descent()]}, {"epsilon": 0.0}, {"delta": 1.0},
]  # fmt: skip


@pytest.mark.parametrize("choices", REFUSED)
def test_an_impossible_choice_is_refused_before_any_debit(people, few, choices):
    clf = fair(people, **choices)
    for call in (clf.planned, clf.explain, lambda: clf.fit(*few)):
        with pytest.raises(FairveilError) as told:
            call()
        assert one_sentence(told)
        assert set(choices) != {"aware"} or "aware=True or aware=False" in str(told.value)
    assert clf.ledger.entries == ()


def test_privacy_needs_a_schema_and_answers_need_a_fit(people, few):
    with pytest.raises(MissingPublicFactError, match="schema"):
        FairClassifier(FalsePositiveRateCap(0.5), aware=False, ledger=Ledger()).fit(*few)
    with pytest.raises(InvalidParameterError, match="sensitive"):
        FairClassifier(aware=False, epsilon=math.inf).fit(np.eye(40), np.arange(40) % 2)
    clf = fair(people)
    calls = [
        lambda: clf.predict(few[0]), lambda: clf.predict_proba(few[0]), clf.certificate, clf.summary,
        lambda: clf.certify(*few, 1.0), lambda: clf.certify_file("nowhere.csv", 1.0), lambda: clf.save("nowhere"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(NotFittedError):
            call()


# --- tables ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "raco", "dpsgd", "dpsgdf", "output"])
def test_decisions_that_must_not_read_the_group_do_not(people, few, method):
    clf = fair(people, DemographicParity(0.05), aware=False, method=method, epsilon=math.inf).fit(*few)
    assert "sex" not in clf.feature_names_in_
    before, law = clf.predict(few[0]), clf.predict_proba(few[0])
    for other in (few[0].assign(sex="Male"), few[0].assign(sex=np.nan), few[0].drop(columns="sex")):
        assert np.array_equal(clf.predict(other), before)
        assert np.array_equal(clf.predict_proba(other), law)


@pytest.mark.filterwarnings("ignore::fairveil.errors.UnknownGroupWarning")
@pytest.mark.parametrize("method", ["auto", "raco", "parity"])
def test_people_of_no_known_group_are_decided_by_the_model(people, few, method):
    clf = fair(people, DemographicParity(0.05), method=method, epsilon=math.inf).fit(*few)
    known, before = (np.arange(len(few[0])) % 2 == 0), clf.predict(few[0])
    for cell in ("Unknown", None, np.nan, "", 5):
        strange = few[0].assign(sex=few[0]["sex"].astype(object).where(known, cell))
        decided, law = clf.predict(strange), clf.predict_proba(strange)
        assert np.array_equal(decided[known], before[known])
        assert np.array_equal(decided[~known], clf.classes_[law.argmax(axis=1)][~known])
        assert np.isfinite(law).all() and np.allclose(law.sum(axis=1), 1)
    with pytest.raises(BadStructureError, match='Expected a column "sex"') as told:
        clf.predict(few[0].drop(columns="sex"))
    assert one_sentence(told)


def test_rules_that_read_the_group_read_it_from_its_column_or_from_apart(people, few, exact):
    swapped = few[0]["sex"].map({"Male": "Female", "Female": "Male"})
    assert not np.array_equal(exact.predict(few[0].assign(sex=swapped)), exact.predict(few[0]))
    bare, groups = few[0].drop(columns="sex"), few[0]["sex"]
    facts = {"epsilon": math.inf, "schema": people.schema.without("sex")}
    apart, inside = (fair(people, DemographicParity(0.05), **facts) for _ in range(2))
    inside.fit(*few)
    apart.fit(bare, few[1], sensitive_features=groups)
    assert np.array_equal(apart.predict(bare, sensitive_features=groups), inside.predict(few[0]))
    assert np.array_equal(apart.predict_proba(bare, groups.to_numpy()), inside.predict_proba(few[0]))
    counted = apart.certify(bare, few[1], math.inf, sensitive_features=groups, ledger=Ledger())
    assert counted == inside.certify(*few, math.inf, ledger=Ledger())


@pytest.mark.parametrize("aware", [True, False])
def test_files_and_tables_give_the_same_rule(people, few, tmp_path, aware):
    table = pd.concat(few, axis=1)
    table.to_csv(tmp_path / "people.csv", index=False, sep=";")
    table.to_parquet(tmp_path / "people.parquet")
    clf = fair(people, DemographicParity(0.05), epsilon=math.inf, aware=aware)
    here = clone(clf).fit(*few)
    for name, delimiter in (("people.csv", ";"), ("people.parquet", ",")):
        there = clone(clf).fit_file(tmp_path / name, delimiter=delimiter)
        assert np.array_equal(there.predict_proba(few[0]), here.predict_proba(few[0]))
        assert np.array_equal(there.predict(few[0]), here.predict(few[0]))
        counted = there.certify_file(tmp_path / name, math.inf, delimiter=delimiter, ledger=Ledger())
        assert counted == here.certify(*few, math.inf, ledger=Ledger())


# --- one budget -----------------------------------------------------------------------------------------------------


def test_a_fit_is_one_debit_that_keeps_to_the_budget(private):
    (entry,) = private.ledger_.entries
    assert 0.99 < private.epsilon_spent_ == private.ledger_.epsilon(1e-5) <= 1.0
    assert entry.details == {"epsilon": 1.0, "delta": 1e-5}
    assert {charge.part for charge in entry.charges} == {"train", "holdout"}


def test_the_budget_is_refused_before_any_row_is_read(people, tmp_path):
    clf = fair(people, ledger=Ledger(budget=Budget(0.5, 1e-5)))
    for call in (lambda: clf.fit(None, None), lambda: clf.fit_file(tmp_path / "nowhere.csv")):
        with pytest.raises(BudgetExceededError):
            call()
    assert clf.ledger.entries == () and not hasattr(clf, "estimator_")


def test_clones_share_the_ledger_and_searches_are_unpriced(people, few):
    clf = fair(people, DemographicParity(1.0), training=QUICK)
    assert clone(clf).ledger is clf.ledger
    cross_val_score(clf, *few, cv=2)
    assert len(clf.ledger.entries) == 2 and 1.0 < clf.ledger.epsilon(1e-5) < 2.0
    with pytest.warns(UnpricedSearchWarning, match="tune=Tuning"):
        best = GridSearchCV(clf, {"holdout": [0.1, 0.2]}, cv=2).fit(*few).best_estimator_
    assert any("search" in entry.purpose for entry in clf.ledger.entries)
    assert best.ledger_ is clf.ledger and clf.ledger.epsilon(1e-5) == math.inf
    assert best.summary()["statement"]["total"].startswith("No bound can be stated")


# --- certificates ---------------------------------------------------------------------------------------------------


def test_a_higher_confidence_certifies_less(private):
    levels = [private.certificate(level) for level in (0.5, 0.8, 0.95, 0.99, 0.9999)]
    assert private.certificate_ == levels[2]
    for before, after in pairwise(levels):
        assert before.smallest_tolerance < after.smallest_tolerance
        for one, other in zip(before.claims, after.claims, strict=True):
            assert other.low < one.low <= one.value <= one.high < other.high
    for level in (1.0, 0.4, "high"):
        with pytest.raises(InvalidParameterError, match="confidence"):
            private.certificate(level)
    assert len(private.ledger_.entries) == 1


def test_certifying_other_people_debits_their_ledger(private, people):
    others, theirs = (people.X.tail(8000), people.y.tail(8000)), Ledger()
    certificate = private.certify(*others, 0.3, ledger=theirs, confidence=0.9)
    assert 0.29 < theirs.epsilon(1e-5) <= 0.3
    assert len(theirs.entries) == 1 == len(private.ledger_.entries)
    assert certificate.confidence == 0.9
    assert abs(certificate.n_rows - 8000) < 500  # the noise has a standard deviation below 50
    with pytest.raises(BudgetExceededError):
        private.certify(*others, 1.0, ledger=Ledger(budget=Budget(0.5, 1e-5)))


def test_without_noise_a_certificate_counts_exactly(exact, people):
    X, y = people.X.tail(8000), people.y.tail(8000)
    certificate = exact.certify(X, y, math.inf, ledger=Ledger())
    rich, is_male = exact.predict(X) == ">50K", (X["sex"] == "Male").to_numpy()
    gap = rich[is_male].mean() - rich[~is_male].mean()
    assert certificate.n_rows == len(X)
    turned, straight = certificate.claims
    assert straight.bound == "selection_rate[sex=Male] - selection_rate[sex=Female] <= 0.05"
    assert (straight.value, turned.value) == pytest.approx((gap, -gap))


@pytest.mark.parametrize("constraint", [DemographicParity(0.02), EqualizedOdds(0.05)])
def test_claims_hold_of_everyone(seeded, people, constraint):
    """Coins are fixed by the test's name; the interval of each claim would miss 1 time in 20 otherwise."""
    clf = fair(people, constraint).fit(people.X, people.y)
    truth = clf.certify(people.X, people.y, math.inf, ledger=Ledger())
    for claimed, true in zip(clf.certificate_.claims, truth.claims, strict=True):
        assert claimed.low < true.value < claimed.high
    assert max(claim.value for claim in truth.claims) < clf.certificate_.smallest_tolerance < 0.12
    accuracy = clf.evaluation_.accuracy()
    assert accuracy.low < clf.score(people.X, people.y) < accuracy.high


def test_what_is_always_so_holds_and_what_is_never_shown_does_not(people, few):
    measured = fair(people, DemographicParity(1.0), method="dpsgd", training=QUICK).fit(*few).certificate_
    assert measured.verdict == "nothing was asked"
    for method in ("auto", "raco", "parity"):
        loose = fair(people, DemographicParity(1.0), method=method, training=QUICK).fit(*few).certificate_
        assert loose.verdict == "holds" and loose.smallest_tolerance <= 1
        strict = fair(people, DemographicParity(0.0), method=method, training=QUICK).fit(*few).certificate_
        assert strict.verdict != "holds" and strict.smallest_tolerance > 0


def test_without_a_hold_out_nothing_is_certified(people, few):
    clf = fair(people, holdout=0, training=QUICK).fit(*few)
    assert clf.certificate_ is None and clf.evaluation_ is None
    with pytest.raises(InvalidParameterError, match=r"fit with holdout=0\.15"):
        clf.certificate()
    summary = json.loads(json.dumps(clf.summary(), allow_nan=False))
    assert summary["certificate"] is None and not summary["private_evaluation"]
    assert summary["accuracy"] == summary["gap"] == {"value": None, "low": 0.0, "high": 1.0}


# --- without privacy, and other tables ------------------------------------------------------------------------------


@pytest.mark.parametrize("aware, method", [(True, "auto"), (False, "auto"), (False, "raco"), (True, "parity")])
def test_without_privacy_it_repeats(people, few, aware, method):
    clf = fair(people, DemographicParity(0.05), epsilon=math.inf, aware=aware, method=method)
    one, other = (clone(clf).fit(*few) for _ in range(2))
    assert np.array_equal(one.predict_proba(people.X), other.predict_proba(people.X))
    assert one.certificate_ == other.certificate_
    assert {release.noise_multiplier for part in one.plan_.stages for release in part.releases} == {0.0}
    assert one.epsilon_spent_ == math.inf == one.ledger_.epsilon(1e-5)


def test_without_privacy_and_bounds_it_is_plain_descent(people, few):
    clf = fair(people, epsilon=math.inf, method="dpsgd", holdout=0).fit(*few)
    plain = PrivateClassifier(math.inf, schema=people.schema, ledger=Ledger(), random_state=0).fit(*few)
    assert np.array_equal(clf.predict_proba(people.X), plain.predict_proba(people.X))


@pytest.mark.parametrize("epsilon", [math.inf, 1.0])
def test_the_gap_of_adult_keeps_to_its_tolerance(seeded, people, epsilon):
    """The model's own gap is .18; in 4 runs at epsilon 1 it was .001 to .004, the accuracy .841 to .843."""
    clf = fair(people, DemographicParity(0.02), epsilon=epsilon).fit(people.X, people.y)
    assert gap_of(clf, people.X) < 0.02
    assert clf.score(people.X, people.y) > 0.83


@pytest.mark.parametrize("aware", [True, False])
def test_three_classes_and_a_list_with_a_rule(aware):
    mixture = make_biased_mixture(6000, p=0.9, n_classes=3, n_features=5, random_state=0)
    constraints = [DemographicParity(0.1), Rule("error_rate <= 0.9")]
    clf = fair(mixture, constraints, sensitive="s", aware=aware, epsilon=math.inf).fit(mixture.X, mixture.y)
    assert len(clf.certificate_.claims) == 3 * 2 + 1
    chosen, is_one = np.eye(3)[clf.predict(mixture.X)], (mixture.X["s"] == 1).to_numpy()
    assert np.abs(chosen[is_one].mean(axis=0) - chosen[~is_one].mean(axis=0)).max() < 0.1  # from .32
    assert clf.summary()["rules"] == ["error_rate <= 0.9"]


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_four_income_bands(seeded, data_folder, epsilon):
    """Left alone, the largest gap of a band is .16; at epsilon 1 it was .003 to .006 in 4 runs."""
    table = pd.read_parquet(data_folder / "acs_person_2018.parquet").head(40_000)
    schema = Schema.read(BANDS).model_copy(update={"n_public": 20_595})
    facts = {"sensitive": "SEX", "aware": True, "schema": schema, "ledger": Ledger()}
    clf = FairClassifier(DemographicParity(0.05), epsilon, **facts).fit(table, table["PINCP"])
    assert clf.classes_.tolist() == list(schema.target.classes)
    assert clf.predict_proba(table.head(50)).shape == (50, 4)
    truth = clf.certify(table, table["PINCP"], math.inf, ledger=Ledger())
    assert len(truth.claims) == 4 * 2 and truth.n_rows == 20_595
    assert max(claim.value for claim in truth.claims) < 0.05


def test_a_type_that_one_record_decides_is_refused_before_any_debit(tmp_path):
    """With one more record the codes are text; without it pandas makes numbers of them and drops the zeros."""
    schema = Schema(
        n_public=40,
        target=Target(column="paid", classes=("no", "yes")),
        sensitive=(Sensitive(column="sex", groups=("f", "m")),),
        columns={"area": Category(categories=("01234", "90210"))},
    )
    lines = ["area,sex,paid", *["01234,f,no", "90210,m,yes"] * 20]
    ledger, path = Ledger(), tmp_path / "people.csv"
    clf = FairClassifier(
        None, method="dpsgd", sensitive="sex", aware=False, schema=schema, ledger=ledger, training=QUICK
    )
    path.write_text("\n".join(lines))
    table = pd.read_csv(path)
    with pytest.raises(BadStructureError, match="which no number spells"):
        clf.fit(table, table["paid"])
    assert ledger.entries == ()
    for more in ([], ["north,f,yes"]):
        path.write_text("\n".join([*lines, *more]))
        assert clf.fit(pd.read_csv(path, dtype=str), pd.read_csv(path, dtype=str)["paid"]).fit_file(path) is clf
    assert len(ledger.entries) == 4


def test_three_groups_and_intersections(people):
    groups = ("White", "Black", "Asian-Pac-Islander")
    entries = tuple(
        entry.model_copy(update={"groups": groups}) if entry.column == "race" else entry
        for entry in people.schema.sensitive
    )
    schema = people.schema.model_copy(update={"sensitive": entries})
    choices = {"epsilon": math.inf, "schema": schema}
    three = fair(people, DemographicParity(0.05), sensitive="race", **choices).fit(people.X, people.y)
    truth = three.certify(people.X, people.y, math.inf, ledger=Ledger())
    assert [group["group"] for group in three.summary()["groups"]] == list(groups)
    assert max(claim.value for claim in truth.claims) < 0.05 and len(truth.claims) == 6
    both = fair(people, DemographicParity(0.1), sensitive=["race", "sex"], **choices).fit(people.X, people.y)
    truth = both.certify(people.X, people.y, math.inf, ledger=Ledger())
    assert len(both.summary()["groups"]) == 6
    assert max(claim.value for claim in truth.claims) < 0.1 and len(truth.claims) == 30
    assert truth.claims[0].bound.startswith("selection_rate[race=White, sex=Female] - ")
