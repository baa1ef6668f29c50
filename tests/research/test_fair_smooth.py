"""SmoothedClassifier: a gap that no people exceed, the law of its decisions, keys, saving, refusals, bad values."""

import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest, kstest
from sklearn.base import clone

from fairveil import (
    DemographicParity,
    Descent,
    Functional,
    Groupwise,
    Key,
    Ledger,
    OutputPerturbation,
    PrivateClassifier,
    RateConstrained,
    Schema,
    SmoothedClassifier,
    Smoothing,
)
from fairveil.errors import (
    BadStructureError,
    InvalidParameterError,
    MissingPublicFactError,
    SealedLedgerError,
)
from fairveil.models.last_layer import margin_weights
from fairveil.models.rules import RandomizedByKey
from fairveil.research.fair_smooth import Smoothed, fair_smooth, plain_network, smoothed_gap

KEY, OTHER = Key(bytes(range(16))), Key(bytes(range(1, 17)))
QUICK = Descent(n_steps=10)
NET = Descent("mlp", (4,), 6)


@pytest.fixture(scope="module")
def few(people):
    return people.X.head(800), people.y.head(800)


def smoothed(people, smoothing=None, training=QUICK, **choices):
    given = {"schema": people.schema, "ledger": Ledger(), "smoothing": smoothing or Smoothing(gap=0.1)}
    return SmoothedClassifier(training=training, **(given | choices))


@pytest.fixture(scope="module")
def fitted(people):
    """One private fit on everyone, with a key that does not change."""
    clf = smoothed(people, Smoothing(gap=0.4), Descent(n_steps=60), sensitive="sex", holdout=0.15)
    return clf.fit(people.X, people.y).use_key(KEY)


# --- the gap --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [QUICK, NET, Groupwise(QUICK), Functional()], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("gap", [0.01, 0.1, 0.6])
def test_a_requested_gap_is_kept_by_the_law_for_any_people(people, few, estimator, gap):
    clf = smoothed(people, Smoothing(gap=gap), estimator, epsilon=50.0, sensitive="sex").fit(*few)
    assert clf.gap_bound_ <= gap * (1 + 1e-5)
    law = clf.predict_proba(people.X.head(3000))[:, 1]
    assert law.max() - law.min() <= clf.gap_bound_ + 1e-9  # the worst two groups there are
    assert clf.gap_bound_ > 0.3 * gap  # the model is scaled down as far as needed, not to nothing
    assert 0.5 - gap / 2 - 1e-6 <= law.min() and law.max() <= 0.5 + gap / 2 + 1e-6


def test_a_requested_deviation_leaves_the_model_as_it_is(people, few):
    plain = PrivateClassifier(math.inf, training=QUICK, schema=people.schema, ledger=Ledger(), random_state=0)
    clf = smoothed(people, Smoothing(std=0.5), epsilon=math.inf, random_state=0).fit(*few)
    assert np.array_equal(clf.params_, plain.fit(*few).params_)
    margin = np.linalg.norm(margin_weights(clf.model_.base, clf.params_))
    assert clf.gap_bound_ == smoothed_gap(margin, 0.5)
    surer = smoothed(people, Smoothing(std=1e-6), epsilon=math.inf, random_state=0).fit(*few)
    agree = np.mean(surer.use_key(KEY).predict(few[0]) == plain.predict(few[0]))
    assert agree > 0.999  # with hardly any noise, the model's own decisions


def test_it_costs_what_the_base_costs(people, few, fitted):
    clf = smoothed(people).fit(*few)
    plain = PrivateClassifier(training=QUICK, schema=people.schema, ledger=Ledger()).fit(*few)
    assert clf.plan_ == plain.plan_
    assert clf.epsilon_spent_ == plain.epsilon_spent_ <= 1.0
    assert fitted.ledger_.epsilon(1e-5) <= 1.0


def test_held_out_people_are_randomized_and_show_no_larger_gap(people, fitted):
    found = fitted.evaluation_.gap()
    assert found.value is not None and found.low <= fitted.gap_bound_
    assert fitted.evaluation_.accuracy().value == pytest.approx(fitted.score(people.X, people.y), abs=0.03)


@pytest.mark.parametrize("layers", ["last", "all"])
def test_hidden_layers_may_be_drawn_too(people, few, layers):
    clf = smoothed(people, Smoothing(std=0.3, layers=layers, n_draws=8), NET).fit(*few).use_key(KEY)
    law = clf.predict_proba(few[0])
    assert np.isfinite(law).all()
    assert np.ptp(law[:, 1]) <= clf.gap_bound_ + 1e-9


# --- decisions ------------------------------------------------------------------------------------------------------


def test_the_same_key_gives_the_same_answers_and_another_key_others(fitted, people):
    X = people.X.head(2000)
    first = fitted.predict(X)
    assert np.array_equal(first, fitted.predict(X))
    again = pickle.loads(pickle.dumps(fitted))
    other = again.use_key(OTHER).predict(X)
    assert 0.2 < np.mean(first != other) < 0.6
    assert np.array_equal(again.use_key(KEY).predict(X), first)
    shuffled = X.sample(frac=1.0, random_state=0)
    assert np.array_equal(fitted.predict(shuffled), pd.Series(first, X.index)[shuffled.index])


def test_a_pickled_rule_carries_no_key_and_decides_nobody_without_it(fitted, people):
    X, first = people.X.head(50), fitted.predict(people.X.head(50))
    content = pickle.dumps(fitted)
    assert fitted.key_.secret not in content
    again = pickle.loads(content)
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    with pytest.raises(InvalidParameterError, match="key of this randomized rule"):
        again.predict(X)
    assert np.array_equal(again.use_key(fitted.key_).predict(X), first)


def test_each_fit_makes_a_key_of_its_own(people, few):
    one, two = (smoothed(people, epsilon=math.inf, random_state=0).fit(*few) for _ in range(2))
    assert np.array_equal(one.params_, two.params_)
    assert np.array_equal(one.predict_proba(few[0]), two.predict_proba(few[0]))
    assert not np.array_equal(one.predict(few[0]), two.predict(few[0]))


def test_predict_proba_is_how_often_each_answer_is_drawn(fitted, people):
    """400 keys for one table of ten people, each count against its law; a law off by .1 would have p below 1e-4."""
    X = people.X.head(10)
    law = fitted.predict_proba(X)[:, 1]
    again = pickle.loads(pickle.dumps(fitted))
    drawn = np.array([again.use_key(Key(seed.to_bytes(16, "little"))).predict(X) for seed in range(400)]) == ">50K"
    p_values = [binomtest(int(k), 400, p).pvalue for k, p in zip(drawn.sum(axis=0), law, strict=True)]
    assert min(p_values) > 1e-6
    assert np.abs(drawn.mean(axis=0) - law).mean() < 0.05
    everyone = fitted.predict_proba(people.X)[:, 1]
    ones = fitted.predict(people.X) == ">50K"
    # many rows are alike and share their lot: three times the binomial deviation
    assert abs(ones.mean() - everyone.mean()) < 5 * 3 * math.sqrt(0.25 / len(ones))


def test_ids_determine_the_uniforms_where_they_are_passed(fitted, people):
    X = people.X.head(1)
    alike = pd.concat([X] * 500, ignore_index=True)
    assert len(np.unique(fitted.predict(alike))) == 1
    by_id = fitted.predict(alike, record_ids=np.arange(500)) == ">50K"
    law = fitted.predict_proba(X)[0, 1]
    assert binomtest(int(by_id.sum()), 500, law).pvalue > 1e-6


def test_the_law_of_a_row_depends_on_no_other_row(fitted, people):
    X = people.X.head(50)
    whole = fitted.predict_proba(X)
    assert np.array_equal(whole, np.vstack([fitted.predict_proba(X.iloc[[i]]) for i in range(50)]))
    assert np.array_equal(whole[::-1], fitted.predict_proba(X.iloc[::-1]))


def test_decisions_never_read_the_group(people, few):
    clf = smoothed(people, schema=people.schema.without("sex"), sensitive="sex").fit(*few).use_key(KEY)
    other = few[0].assign(sex="Female")
    assert np.array_equal(clf.predict(other), clf.predict(few[0]))
    assert np.array_equal(clf.predict_proba(few[0].drop(columns="sex")), clf.predict_proba(few[0]))


def test_people_alike_to_the_model_have_uniforms_of_their_own(fitted, people):
    """The lot of a person is no function of the law: answers as lots pass a test of uniformity given the law."""
    X = people.X.drop_duplicates().head(4000)
    law, ones = fitted.predict_proba(X)[:, 1], fitted.predict(X) == ">50K"
    residual = (ones - law) / np.sqrt(law * (1 - law))
    assert kstest(residual.reshape(40, 100).mean(axis=1) * 10, "norm").pvalue > 1e-6


# --- folders and habits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [QUICK, NET, Groupwise(NET)], ids=["linear", "mlp", "groupwise"])
@pytest.mark.parametrize(
    "smoothing", [Smoothing(std=0.2), Smoothing(gap=0.3), Smoothing(std=0.2, layers="all", n_draws=3)]
)
def test_saved_rules_come_back_with_a_key_and_predict_the_same(people, few, tmp_path, estimator, smoothing):
    clf = smoothed(people, smoothing, estimator, sensitive="sex").fit(*few).use_key(KEY)
    clf.save(tmp_path / "model")
    again = SmoothedClassifier.load(tmp_path / "model", key=KEY)
    assert np.array_equal(again.predict_proba(few[0]), clf.predict_proba(few[0]))
    assert np.array_equal(again.predict(few[0]), clf.predict(few[0]))
    assert again.gap_bound_ == clf.gap_bound_
    assert again.epsilon_spent_ == clf.epsilon_spent_ and again.plan_ == clf.plan_
    keyless = SmoothedClassifier.load(tmp_path / "model")
    assert np.array_equal(keyless.predict_proba(few[0]), clf.predict_proba(few[0]))
    with pytest.raises(InvalidParameterError, match="key"):
        keyless.predict(few[0])
    with pytest.raises(SealedLedgerError):
        again.set_params(smoothing=smoothing, training=estimator, sensitive="sex").fit(*few)
    with pytest.raises(BadStructureError, match="SmoothedClassifier"):
        PrivateClassifier.load(tmp_path / "model")


def test_a_key_in_a_file_serves_elsewhere(people, few, tmp_path):
    path = tmp_path / "key"
    Key.create(path)
    clf = smoothed(people).fit(*few).use_key(path)
    clf.save(tmp_path / "model")
    again = SmoothedClassifier.load(tmp_path / "model", key=path)
    assert np.array_equal(again.predict(few[0]), clf.predict(few[0]))


def test_a_damaged_folder_is_refused(people, few, tmp_path):
    smoothed(people).fit(*few).save(tmp_path / "model")
    facts = tmp_path / "model" / "model.json"
    facts.write_text(facts.read_text().replace('"std": 1.0', '"std": 9.0'))
    with pytest.raises(BadStructureError, match="changed"):
        SmoothedClassifier.load(tmp_path / "model")


@pytest.mark.filterwarnings("ignore::fairveil.errors.UnpricedSearchWarning")
def test_parameters_come_and_go(people, few):
    clf = smoothed(people)
    before = dict(clf.get_params(deep=False))
    assert set(before) == {
        "smoothing", "epsilon", "delta", "training", "schema", "sensitive", "holdout", "ledger", "random_state",
    }  # fmt: skip
    assert clone(clf).ledger is clf.ledger
    clf.fit(*few)
    assert all(clf.get_params(deep=False)[name] is before[name] for name in before)
    clone(clf).set_params(smoothing=Smoothing(gap=0.2)).fit(*few)
    assert clf.ledger.epsilon(1e-5) == math.inf  # a search is booked as unpriced


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choices, words",
    [
        ({}, "either std or gap"),
        ({"std": 1.0, "gap": 0.1}, "either std or gap"),
        ({"std": 0.0}, "std"),
        ({"gap": 0.0}, "0 < gap < 1"),
        ({"gap": 1.0}, "0 < gap < 1"),
        ({"gap": 0.1, "layers": "all"}, "layers"),
        ({"std": 1.0, "layers": "none"}, "layers"),
        ({"std": 1.0, "n_draws": 0}, "n_draws"),
    ],
)
def test_smoothing_that_makes_no_sense_is_refused(choices, words):
    with pytest.raises(InvalidParameterError, match=words):
        Smoothing(**choices)


@pytest.mark.parametrize(
    "choices, words",
    [
        ({"smoothing": None}, "smoothing=Smoothing"),
        ({"smoothing": 0.1}, "smoothing=Smoothing"),
        ({"training": Groupwise(QUICK), "sensitive": None}, "sensitive column"),
    ],
)
def test_a_mismatch_is_refused_before_any_debit(people, few, choices, words):
    clf = smoothed(people).set_params(**choices)
    with pytest.raises(InvalidParameterError, match=words):
        clf.fit(*few)
    assert clf.ledger.entries == ()


def test_three_classes_are_refused(rng):
    schema = Schema.for_arrays(2, classes=[0, 1, 2], n_public=100)
    clf = SmoothedClassifier(Smoothing(gap=0.1), training=QUICK, schema=schema, ledger=Ledger())
    with pytest.raises(InvalidParameterError, match="two classes"):
        clf.fit(rng.uniform(-1, 1, (100, 2)), rng.integers(3, size=100))
    assert clf.ledger.entries == ()


def test_a_missing_schema_is_refused(few):
    with pytest.raises(MissingPublicFactError, match="schema"):
        SmoothedClassifier(smoothing=Smoothing(gap=0.1)).fit(*few)


def test_the_largest_margin_is_that_of_the_gap():
    for gap in (1e-3, 0.1, 0.9):
        assert smoothed_gap(Smoothing(gap=gap).largest_margin, 1.0) == pytest.approx(gap)
    assert Smoothing(std=2.0).largest_margin == math.inf
    assert isinstance(Smoothed(QUICK, Smoothing(gap=0.1)), Smoothed)


@pytest.mark.parametrize("estimator", [None, OutputPerturbation(), Functional()], ids=["none", "output", "functional"])
def test_other_bases_are_smoothed(people, few, estimator):
    clf = smoothed(people, Smoothing(gap=0.2), estimator, sensitive="sex").fit(*few).use_key(KEY)
    assert clf.gap_bound_ <= 0.2 * (1 + 1e-5)
    assert set(clf.predict(few[0])) <= set(clf.classes_)


@pytest.mark.filterwarnings("ignore::fairveil.errors.ToleranceNotMetWarning")
def test_a_model_under_constraints_is_smoothed_too(people, few):
    base = RateConstrained(DemographicParity(0.1), QUICK)
    clf = smoothed(people, training=base, sensitive="sex").fit(*few).use_key(KEY)
    assert clf.gap_bound_ <= 0.1 * (1 + 1e-5)


def test_a_recipe_with_a_rule_of_its_own_is_refused(people, few, monkeypatch):
    monkeypatch.setattr("fairveil.methods.dp_sgd.Argmax", RandomizedByKey)
    with pytest.raises(InvalidParameterError, match="rule of its own"):
        smoothed(people, epsilon=math.inf).fit(*few)


# --- values never steer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["nan", "one class", "one row", "no rows"])
@pytest.mark.parametrize("estimator", [QUICK, Groupwise(NET)], ids=["descent", "groupwise"])
def test_bad_values_fit_without_a_word(people, few, how, estimator):
    X, y = few[0].astype(object), few[1].astype(object)
    if how == "nan":
        X.iloc[:5] = np.nan
    elif how == "one class":
        y.iloc[:] = ">50K"
    else:
        n = int(how == "one row")
        X, y = X.head(n), y.head(n)
    clf = smoothed(people, Smoothing(gap=0.1), estimator, sensitive="sex", holdout=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.fit(X, y).use_key(KEY)
        law = clf.predict_proba(few[0].astype(object).assign(age=np.nan))
    assert np.isfinite(law).all()
    assert clf.gap_bound_ <= 0.1 * (1 + 1e-5)


# --- the baselines without privacy -------------------------------------------------------------------------------


def test_baselines_without_privacy_say_so(people, few):
    plain, hardly = (
        make(n_steps=150, hidden=(8,), random_state=0).fit(people.X.head(6000), people.y.head(6000))
        for make in (
            lambda **choices: plain_network(people.schema, **choices),
            lambda **choices: fair_smooth(people.schema, 1e-6, **choices),
        )
    )
    assert not plain.plan_.is_private and not hardly.plan_.is_private
    assert np.array_equal(plain.params_, hardly.params_)
    assert np.mean(hardly.use_key(KEY).predict(few[0]) == plain.predict(few[0])) > 0.99
    drawn = fair_smooth(people.schema, 1.0, (8,), 150, 0).fit(people.X.head(6000), people.y.head(6000)).use_key(KEY)
    assert np.mean(drawn.predict(few[0]) != plain.predict(few[0])) > 0.02
