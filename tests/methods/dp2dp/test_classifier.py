"""ParityPostprocessor on real people: gaps, groups, classes, given classifiers, keys, saving, bad values."""

import json
import math
import subprocess
import sys
import warnings
from dataclasses import replace

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from _support.spoiling import WORST, spoil
from fairveil import (
    Budget,
    DemographicParity,
    Descent,
    DualSteps,
    EqualizedOdds,
    FalseNegativeRateCap,
    FlipTraining,
    Key,
    Ledger,
    NoisyDescent,
    OutputPerturbation,
    ParityPostprocessor,
    ParityTraining,
    PrecisionParity,
    PrivateClassifier,
    RandomizedParityPostprocessor,
    Rule,
    ScoreHistogram,
    ToleranceNotMetWarning,
    TruePositiveRateParity,
    load_dataset,
    make_biased_mixture,
)
from fairveil.errors import (
    BadStructureError,
    BudgetExceededError,
    FairveilError,
    InvalidParameterError,
    MissingPublicFactError,
    SealedLedgerError,
    UnknownGroupWarning,
)
from fairveil.models.rules import RandomizedThresholds, TiltedArgmax

# Noise decides now and then that a bound seems broken; the tests that are about the warning ask for it.
pytestmark = pytest.mark.filterwarnings("ignore::fairveil.errors.ToleranceNotMetWarning")

UNAWARE = ParityTraining(aware=False)
STEPS = ParityTraining(solver=DualSteps(n_steps=10))
LOOSE = DemographicParity(1.0)
N = 24_000


@pytest.fixture(scope="module")
def everyone():
    return load_dataset("adult")


@pytest.fixture(scope="module")
def people(everyone):
    """Half of them."""
    schema = everyone.schema.model_copy(update={"n_public": N})
    return replace(everyone, frame=everyone.frame.head(N), schema=schema)


@pytest.fixture(scope="module")
def few(people):
    return people.X.head(600), people.y.head(600)


@pytest.fixture(scope="module")
def mixture():
    return make_biased_mixture(10_000, p=0.9, n_classes=3, n_features=5, random_state=0)


def preparing(model):
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
        remainder=MinMaxScaler(),
    )
    return make_pipeline(columns, model)


@pytest.fixture(scope="module")
def given(people):
    """A pipeline on the raw frame, fitted on rows of its own."""
    pipeline = preparing(LogisticRegression(max_iter=1000))
    return pipeline.fit(people.X.tail(3000), people.y.tail(3000))


@pytest.fixture(scope="module")
def tree(everyone):
    return preparing(DecisionTreeClassifier(max_leaf_nodes=8, random_state=0)).fit(everyone.X, everyone.y)


def parity(people, estimator=None, constraint=None, **choices):
    """Return a post-processor of a fitted classifier, or of a model trained by a recipe."""
    facts = {"schema": people.schema, "sensitive": "sex", "ledger": Ledger(), "estimator": estimator}
    if isinstance(estimator, (Descent, OutputPerturbation)):
        training = choices.pop("training", None) or ParityTraining()
        facts |= {"estimator": None, "training": replace(training, base=estimator)}
    return ParityPostprocessor(constraint, **(facts | choices))


def quick(people, estimator=None, constraint=LOOSE, **choices):
    """A fit of few steps, where it does not matter how good it is."""
    return parity(people, Descent(n_steps=5) if estimator is None else estimator, constraint, **choices)


def rates_of(clf, X, **asked):
    """The selection rates of women and men."""
    rich, is_male = clf.predict(X, **asked) == ">50K", (X["sex"] == "Male").to_numpy()
    return rich[~is_male].mean(), rich[is_male].mean()


def gap_of(clf, X, **asked):
    women, men = rates_of(clf, X, **asked)
    return abs(women - men)


def odds_gaps(clf, X, y):
    """The gaps of the true and of the false positive rate."""
    is_rich = (y == ">50K").to_numpy()
    return gap_of(clf, X[is_rich]), gap_of(clf, X[~is_rich])


def class_gap(clf, mixture):
    """The largest gap of any class between the two groups of the mixture."""
    chosen, is_one = np.eye(3)[clf.predict(mixture.X)], (mixture.X["s"] == 1).to_numpy()
    return np.abs(chosen[is_one].mean(axis=0) - chosen[~is_one].mean(axis=0)).max()


# --- what it promises -----------------------------------------------------------------------------------------------


def test_adult_at_epsilon_one_is_private_fair_and_good(people):
    """One run on 48,842 people; in 8 runs the gap was .0003 +- .0007, the accuracy .8427 +- .0003."""
    clf = parity(people).fit(people.X, people.y)
    assert gap_of(clf, people.X) < 0.02
    assert clf.score(people.X, people.y) > 0.83
    assert 0.98 < clf.epsilon_spent_ <= 1.0
    assert clf.ledger_.epsilon(1e-5) <= 1.0
    (entry,) = clf.ledger_.entries
    assert entry.purpose == "fit of ParityPostprocessor"
    assert [part.name for part in clf.plan_.stages] == ["levels", "train", "rule"]
    assert clf.final_check_.bounds[0].limit == 0.0
    assert clf.constraint_trace_ is None
    assert isinstance(clf.rule_, RandomizedThresholds) and clf.key_ is None


def test_a_larger_tolerance_leaves_a_larger_gap(people):
    """The model's own gap is .18; in 8 runs a tolerance of .1 left .0966 +- .0006."""
    gap, accuracy = {}, {}
    for tolerance in (0.0, 0.1, 1.0):
        clf = parity(people, constraint=DemographicParity(tolerance)).fit(people.X, people.y)
        gap[tolerance], accuracy[tolerance] = gap_of(clf, people.X), clf.score(people.X, people.y)
    assert gap[0.0] < 0.02
    assert 0.08 < gap[0.1] < 0.11
    assert gap[1.0] > 0.15
    assert accuracy[0.0] < accuracy[0.1]


@pytest.mark.parametrize(
    "text, women, men",
    [
        ("selection_rate[sex=Male] <= 0.12", (0.06, 0.1), (0.1, 0.13)),
        ("selection_rate[sex=Female] >= 0.2", (0.19, 0.22), (0.23, 0.28)),
        ("selection_rate[sex=Female] <= 0.05", (0.03, 0.06), (0.23, 0.28)),
    ],
)
def test_a_bound_on_one_group_binds_that_group(people, text, women, men):
    """Left alone, the rates are .076 and .251 (+- .002); with the groups swapped none of these bounds would bind so."""
    found = rates_of(parity(people, constraint=Rule(text)).fit(people.X, people.y), people.X)
    for rate, (low, high) in zip(found, (women, men), strict=True):
        assert low < rate < high


def test_a_one_sided_comparison_binds_in_its_own_direction(people):
    """Women at least as often as men moves both; the other way round already holds and moves nobody."""
    bound = "selection_rate[sex=Female] >= selection_rate[sex=Male]"
    clf = parity(people, constraint=Rule(bound)).fit(people.X, people.y)
    assert gap_of(clf, people.X) < 0.02
    turned = Rule("selection_rate[sex=Male] >= selection_rate[sex=Female]")
    assert gap_of(parity(people, constraint=turned).fit(people.X, people.y), people.X) > 0.15


def test_equalized_odds_and_equal_opportunity_shrink_their_own_gaps(people):
    """Without bounds the gaps are about .11 (true) and .067 (false positives)."""
    alone = odds_gaps(parity(people, constraint=LOOSE).fit(people.X, people.y), people.X, people.y)
    assert alone[0] > 0.08 and alone[1] > 0.05
    odds = parity(people, constraint=EqualizedOdds(0.0)).fit(people.X, people.y)
    assert max(odds_gaps(odds, people.X, people.y)) < 0.04
    chance = parity(people, constraint=TruePositiveRateParity(0.0)).fit(people.X, people.y)
    true, false = odds_gaps(chance, people.X, people.y)
    assert true < 0.04
    assert false > 0.02  # nobody asked for it


def test_a_rule_that_does_not_read_the_group(people):
    clf = parity(people, training=UNAWARE).fit(people.X, people.y)
    assert gap_of(clf, people.X) < 0.03
    assert clf.score(people.X, people.y) > 0.81
    assert 0.98 < clf.epsilon_spent_ <= 1.0
    assert "sex" not in clf.feature_names_in_
    assert clf.n_features_in_ == len(people.schema.columns) - 1
    without, swapped = people.X.drop(columns="sex"), people.X.assign(sex="Male")
    for table in (without, swapped):
        assert np.array_equal(clf.predict(table), clf.predict(people.X))
        assert np.array_equal(clf.predict_proba(table), clf.predict_proba(people.X))
    trace = clf.constraint_trace_
    assert trace.values.shape == (DualSteps().n_steps, 2)
    assert trace.bounds == clf.final_check_.bounds


def test_more_than_two_groups(people):
    """Races of more than a thousand people; their rates differ by .15 without a bound."""
    clf = parity(people, sensitive="race").fit(people.X, people.y)
    rich = clf.predict(people.X) == ">50K"
    rates = [rich[(people.X["race"] == race).to_numpy()].mean() for race in ("White", "Black", "Asian-Pac-Islander")]
    assert max(rates) - min(rates) < 0.05
    assert clf.rule_.thresholds.shape == (6, 1)


def test_intersections_and_groups_passed_separately(people, few):
    X, y = few
    clf = quick(people, sensitive=["race", "sex"], epsilon=math.inf, random_state=0)
    clf.set_params(schema=people.schema.without("race", "sex"))
    inside = clone(clf).fit(X, y)
    bare, apart = X.drop(columns=["race", "sex"]), X[["sex", "race"]]
    outside = clone(clf).fit(bare, y, sensitive_features=apart)
    assert np.array_equal(inside.rule_.thresholds, outside.rule_.thresholds)
    assert np.array_equal(outside.predict(bare, sensitive_features=apart), inside.predict(X))
    assert len(inside.final_check_.bounds) == 10 * 9
    with pytest.raises(BadStructureError, match="sex"):
        parity(people).fit(*few).predict(X.drop(columns="sex"))


@pytest.mark.parametrize(
    "fitting, most",
    [(ParityTraining(), 0.05), (UNAWARE, 0.12), (ParityTraining(solver=NoisyDescent()), 0.25)],
)
def test_more_than_two_classes(seeded, mixture, fitting, most):
    """Without a bound the largest gap of a class is .34; noisy descent has .07 on average, with a spread of .045."""
    clf = parity(mixture, sensitive="s", training=fitting).fit(mixture.X, mixture.y)
    assert class_gap(clf, mixture) < most
    assert clf.score(mixture.X, mixture.y) > 0.42
    assert 0.98 < clf.epsilon_spent_ <= 1.0
    assert isinstance(clf.rule_, TiltedArgmax)
    loose = parity(mixture, constraint=LOOSE, sensitive="s", training=fitting).fit(mixture.X, mixture.y)
    assert class_gap(loose, mixture) > 0.25


@pytest.mark.parametrize("solver", [DualSteps(), NoisyDescent(n_steps=50, batch_size=500)])
def test_other_solvers_for_two_classes(seeded, people, solver):
    clf = parity(people, training=ParityTraining(solver=solver)).fit(people.X, people.y)
    # from .19; the paper's own descent ends some way off, at random
    assert gap_of(clf, people.X) < (0.03 if isinstance(solver, DualSteps) else 0.15)
    assert 0.98 < clf.epsilon_spent_ <= 1.0
    assert isinstance(clf.rule_, TiltedArgmax)


def test_a_part_of_its_own_for_the_rule(people):
    clf = parity(people, training=ParityTraining(rule_fraction=0.2), holdout=0.1).fit(people.X, people.y)
    shares = {part.name: (part.subset, round(part.share, 6)) for part in clf.plan_.stages}
    train = ("train", 0.72)
    assert shares == {"levels": train, "train": train, "rule": ("rule", 0.18), "holdout": ("holdout", 0.1)}
    assert 0.98 < clf.epsilon_spent_ <= 1.0
    assert clf.ledger_.epsilon(1e-5) <= 1.0
    assert gap_of(clf, people.X) < 0.05
    assert clf.evaluation_.gap().low < 0.05


@pytest.mark.parametrize("fitting", [ParityTraining(), UNAWARE, ParityTraining(rule_fraction=0.3)])
def test_without_privacy_it_repeats(people, few, fitting):
    fits = [parity(people, training=fitting, epsilon=math.inf, random_state=3).fit(*few) for _ in range(2)]
    assert np.array_equal(fits[0].params_, fits[1].params_)
    assert np.array_equal(fits[0].predict(people.X), fits[1].predict(people.X))
    assert fits[0].final_check_.may_hold, "no alarm over a single decision"
    assert fits[0].epsilon_spent_ == math.inf


def test_with_privacy_it_does_not_repeat(people, few):
    fits = [quick(people, random_state=3).fit(*few) for _ in range(2)]
    assert not np.array_equal(fits[0].params_, fits[1].params_)


@pytest.mark.parametrize("fitting", [ParityTraining(), UNAWARE])
def test_what_cannot_be_had_is_warned_of_in_one_sentence(people, fitting):
    X, y = people.X.head(4000), people.y.head(4000)
    schema = people.schema.model_copy(update={"n_public": 4000})
    impossible = [Rule("selection_rate[sex=Female] >= 0.6"), Rule("selection_rate[sex=Female] <= 0.1")]
    clf = parity(people, constraint=impossible, training=fitting, epsilon=math.inf, schema=schema)
    with pytest.warns(ToleranceNotMetWarning) as told:
        clf.fit(X, y)
    (one,) = told
    assert one.filename == __file__  # it points at the line that called fit
    sentence = str(one.message)
    assert sentence.startswith("Expected ") and sentence.endswith(".")
    assert "selection_rate[sex=Female] <= " in sentence
    assert not clf.final_check_.may_hold
    assert np.isfinite(clf.predict_proba(X)).all()


@pytest.mark.parametrize("fitting, is_settled", [(ParityTraining(), True), (UNAWARE, False)])
def test_the_gap_is_promised_beforehand_from_public_sizes(people, fitting, is_settled):
    """Of 48,842 people a gap of a few thousandths is promised; of a hundredth of them, more than ten times as much."""
    sizes = (16_192, 32_650)
    promise = parity(people, training=fitting).expected_gap(sizes, rates=0.2)
    assert 1e-3 < promise.expected < 0.01
    assert (promise.bound is not None) == is_settled
    if is_settled:
        assert promise.expected < promise.bound < 0.05
    fewer = parity(people, training=fitting).expected_gap((160, 320), rates=0.2)
    assert 10 * promise.expected < fewer.expected < math.inf
    with pytest.raises(InvalidParameterError, match="size of each of 2 groups"):
        parity(people).expected_gap((1, 2, 3))


# --- classifiers that were fitted elsewhere -------------------------------------------------------------------------


def test_a_pipeline_on_the_raw_frame(people, given):
    clf = parity(people, given).fit(people.X, people.y)
    assert gap_of(given, people.X) > 0.12
    assert gap_of(clf, people.X) < 0.03
    assert clf.score(people.X, people.y) > given.score(people.X, people.y) - 0.04
    assert [part.name for part in clf.plan_.stages] == ["rule"]
    assert 0.98 < clf.epsilon_spent_ <= 1.0
    assert len(clf.params_) == 0
    assert np.allclose(clf.predict_proba(people.X), given.predict_proba(people.X), atol=1e-6)


def test_ties_of_a_small_tree_are_broken_by_key(everyone, tree):
    """Eight leaves give eight scores: no threshold brings two groups nearer than .045, a lot within a leaf does."""
    rule = parity(everyone, tree).fit(everyone.X, everyone.y).use_key(Key(bytes(16)))
    still = ParityTraining(jitter=0.0)
    without = parity(everyone, tree, training=still, epsilon=math.inf, random_state=0).fit(everyone.X, everyone.y)
    with pytest.raises(InvalidParameterError, match=r"Expected a jitter of at least 0\.0156.*, got 0:"):
        parity(everyone, tree, training=still).fit(everyone.X, everyone.y)
    assert len(np.unique(tree.predict_proba(everyone.X)[:, 1])) <= 8
    assert gap_of(rule, everyone.X) < 0.03 < gap_of(without, everyone.X)
    assert without.key_ is None and rule.rule_.needs_uniforms
    assert np.array_equal(rule.predict(everyone.X), rule.predict(everyone.X))
    first = rule.predict(everyone.X)
    assert not np.array_equal(rule.use_key(Key(bytes(range(16)))).predict(everyone.X), first)
    assert gap_of(rule, everyone.X) < 0.03


@pytest.mark.parametrize("width", [1e-300, 1e-12, 0.01])
def test_a_jitter_near_the_rounding_of_scores_is_refused(everyone, tree, width):
    """One of 1e-12 vanishes when it is added to a score in single precision: a histogram moved by 3 where 1 is paid."""
    clf = parity(everyone, tree, training=ParityTraining(jitter=width))
    with pytest.raises(InvalidParameterError, match="Expected a jitter of at least"):
        clf.fit(everyone.X, everyone.y)
    assert not clf.ledger.entries
    parity(everyone, tree, training=ParityTraining(jitter=0.016)).planned()


def test_what_is_not_covered_is_said(people, few, given):
    trained = quick(people).fit(*few).coverage_
    assert trained == ("Covered: training and rule, for one record of the rows passed to fit. Not covered: timing.")
    wrapped = parity(people, given).fit(*few).coverage_
    assert wrapped.startswith("Covered: the rule, for one record")
    assert "Not covered: how the Pipeline was trained" in wrapped


def test_columns_for_a_fitted_classifier_follow_the_schema_order(people, few):
    """The schema lists the classes one way, scikit-learn another: positive stays positive."""
    schema = people.schema
    classes = tuple(reversed(schema.target.classes))
    turned = schema.model_copy(update={"target": schema.target.model_copy(update={"classes": classes})})
    model = preparing(LogisticRegression(max_iter=1000)).fit(*few)
    straight, crossed = (
        parity(people, model, LOOSE, schema=facts, epsilon=math.inf).fit(*few) for facts in (schema, turned)
    )
    assert crossed.classes_.tolist() == [">50K", "<=50K"]
    assert np.allclose(crossed.predict_proba(few[0])[:, ::-1], straight.predict_proba(few[0]))
    assert crossed.score(*few) > 0.8


def no_probabilities(X, y):
    return preparing(LinearSVC()).fit(X, y)


def other_classes(X, y):
    return preparing(LogisticRegression(max_iter=1000)).fit(X, y == ">50K")


WRONG = {
    "not fitted": (
        lambda X, y: preparing(LogisticRegression()),
        "Expected a fitted classifier, got a Pipeline",
    ),
    "not fitted alone": (lambda X, y: LogisticRegression(), "got a LogisticRegression that is not"),
    "no probabilities": (no_probabilities, "Expected a classifier with predict_proba, got Pipeline"),
    "other classes": (other_classes, "Expected a classifier of the schema's classes"),
    "text": (lambda X, y: "logistic", "predict_proba, got str"),
    "a class": (lambda X, y: Descent, "predict_proba, got type"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_classifier_that_does_not_fit_is_refused_in_one_sentence(people, few, name):
    make, words = WRONG[name]
    clf = parity(people, make(*few))
    with pytest.raises(FairveilError, match=words) as told:
        clf.fit(*few)
    assert str(told.value).endswith(".") and "\n" not in str(told.value)
    assert clf.ledger.entries == ()


@pytest.mark.parametrize("fitting", [UNAWARE, ParityTraining(decoupled=True)])
def test_a_fitted_classifier_cannot_be_made_joint_or_decoupled(people, few, given, fitting):
    clf = parity(people, given, training=fitting)
    with pytest.raises(InvalidParameterError, match="leave the estimator out"):
        clf.fit(*few)
    assert clf.ledger.entries == ()


def test_a_frozen_classifier_survives_clones(people, few, given):
    with pytest.raises(InvalidParameterError, match="FrozenEstimator"):
        clone(parity(people, given)).fit(*few)
    frozen = clone(parity(people, FrozenEstimator(given)))
    assert np.allclose(frozen.fit(*few).predict_proba(few[0]), given.predict_proba(few[0]), atol=1e-6)


def test_a_fairveil_classifier_can_be_passed(people, few):
    model = PrivateClassifier(schema=people.schema, training=Descent(n_steps=5), ledger=Ledger()).fit(*few)
    clf = parity(people, model, LOOSE).fit(*few)
    assert np.allclose(clf.predict_proba(few[0]), model.predict_proba(few[0]), atol=1e-6)
    assert "PrivateClassifier" in clf.coverage_


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choices, words",
    [
        ({"constraint": "demographic_parity"}, "Expected constraints such as"),
        ({"constraint": PrecisionParity(0.1)}, "got precision; bound it with RateConstrainedClassifier"),
        ({"constraint": LOOSE, "sensitive": None}, "sensitive attribute"),
        ({"constraint": Rule("selection_rate[sex=Other] <= 0.2")}, "group of 'sex'"),
        ({"constraint": Rule("selection_rate <= -0.1")}, "rates between 0 and 1 can meet"),
        ({"training": FlipTraining()}, r"training=ParityTraining\(.*, got FlipTraining"),
        ({"training": ParityTraining(rule_fraction=1.0)}, "0 < rule_fraction < 1"),
        ({"training": ParityTraining(budget_share=0.0)}, "0 < budget_share < 1"),
        ({"training": ParityTraining(jitter=-1.0)}, "jitter >= 0"),
        ({"training": ParityTraining(headroom=math.nan)}, "headroom >= 0"),
        ({"training": ParityTraining(aware=False, solver=NoisyDescent())}, "reads the group"),
        ({"training": ParityTraining(solver=NoisyDescent()), "sensitive": "race"}, "two groups"),
        ({"training": ParityTraining(solver=NoisyDescent()), "constraint": EqualizedOdds(0.1)}, "another"),
        ({"training": Descent(clipping="groups"), "sensitive": None}, "sensitive"),
    ],
)
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_a_mismatch_is_refused_before_any_debit(people, few, choices, words, epsilon):
    clf = parity(people, epsilon=epsilon).set_params(**choices)
    with pytest.raises(InvalidParameterError, match=words):
        clf.fit(*few)
    with pytest.raises(InvalidParameterError, match=words):
        clf.planned()
    assert clf.ledger.entries == ()
    assert not hasattr(clf, "params_")


def test_a_histogram_of_scores_wants_two_classes_and_the_group(people, mixture):
    fitting = ParityTraining(solver=ScoreHistogram())
    with pytest.raises(InvalidParameterError, match="two classes"):
        parity(mixture, sensitive="s", training=fitting).fit(mixture.X, mixture.y)
    with pytest.raises(InvalidParameterError, match="reads the group"):
        parity(people, training=ParityTraining(aware=False, solver=ScoreHistogram())).planned()
    with pytest.raises(InvalidParameterError, match="choose one"):
        ParityTraining(aware=False, decoupled=True)


class Untouchable:
    """A table that nobody may look at."""

    def __getattr__(self, name):
        raise AssertionError(f"the data was touched: {name}")


def test_the_budget_is_refused_before_the_data_is_touched(people, given):
    for estimator in (None, given):
        clf = parity(people, estimator, ledger=Ledger(budget=Budget(0.5, 1e-5)))
        with pytest.raises(BudgetExceededError):
            clf.fit(Untouchable(), Untouchable())
        assert clf.ledger.entries == ()


def test_a_missing_schema_is_refused(few):
    with pytest.raises(MissingPublicFactError, match="schema"):
        ParityPostprocessor().fit(*few)


# --- habits of scikit-learn -----------------------------------------------------------------------------------------


def test_parameters_come_and_go(people, few):
    clf = quick(people, training=STEPS)
    before = dict(clf.get_params(deep=False))
    assert set(before) == {
        "constraint", "epsilon", "delta", "training", "schema", "sensitive", "holdout", "ledger",
        "random_state", "auc", "estimator",
    }  # fmt: skip
    again = clone(clf)
    assert again.ledger is clf.ledger
    assert again.set_params(constraint=DemographicParity(0.2)).constraint.tolerance == 0.2
    after = clf.fit(*few).get_params(deep=False)
    assert all(after[name] is before[name] for name in before)


@pytest.mark.filterwarnings("ignore::fairveil.errors.UnpricedSearchWarning")
def test_a_search_is_recorded_as_unpriced(people, few):
    ledger = Ledger()
    clone(quick(people, ledger=ledger)).set_params(constraint=DemographicParity(0.9)).fit(*few)
    assert ledger.epsilon(1e-5) == math.inf


# --- keys -----------------------------------------------------------------------------------------------------------

ELSEWHERE = """
import sys
from fairveil import ParityPostprocessor, load_dataset
from joblib import load
folder, classifier, key = sys.argv[1:]
people = load_dataset("adult").X.head(600)
print(*ParityPostprocessor.load(folder, estimator=load(classifier), key=key).predict(people))
"""


def test_a_key_file_gives_the_same_answers_in_another_process(people, few, tree, tmp_path):
    key = Key.create(tmp_path / "key")
    clf = parity(people, tree).fit(people.X, people.y).use_key(tmp_path / "key")
    assert clf.key_ == key
    clf.save(tmp_path / "model")
    joblib.dump(tree, tmp_path / "tree")
    arguments = [str(tmp_path / name) for name in ("model", "tree", "key")]
    answer = subprocess.run([sys.executable, "-c", ELSEWHERE, *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == clf.predict(few[0]).tolist()
    for path in (tmp_path / "model").iterdir():
        content = path.read_bytes()
        assert key.secret not in content
        assert key.secret.hex().encode() not in content


def test_a_fresh_key_is_made_at_each_fit(people, few, tree):
    clf = parity(people, tree)
    assert clf.fit(*few).key_ != clf.fit(*few).key_
    assert clf.key_.secret.hex() not in repr(clf) + repr(clf.key_)


# --- folders --------------------------------------------------------------------------------------------------------

RULES_OF = {
    "thresholds": (ParityTraining(), RandomizedThresholds),
    "decoupled": (ParityTraining(decoupled=True), RandomizedThresholds),
    "tilted": (STEPS, TiltedArgmax),
    "joint": (ParityTraining(aware=False, solver=DualSteps(n_steps=10)), TiltedArgmax),
}


@pytest.mark.parametrize("name", RULES_OF)
def test_saved_rules_come_back_predict_the_same_and_refuse_to_fit(people, few, tmp_path, name):
    fitting, kind = RULES_OF[name]
    clf = quick(people, constraint=DemographicParity(0.0), training=fitting).fit(*few)
    clf.save(tmp_path / "model")
    again = ParityPostprocessor.load(tmp_path / "model")
    assert isinstance(again.rule_, kind)
    assert np.array_equal(again.predict(people.X.head(2000)), clf.predict(people.X.head(2000)))
    assert np.array_equal(again.predict_proba(few[0]), clf.predict_proba(few[0]))
    assert (again.plan_, again.epsilon_spent_, again.coverage_) == (
        clf.plan_,
        clf.epsilon_spent_,
        clf.coverage_,
    )
    assert again.feature_names_in_.tolist() == clf.feature_names_in_.tolist()
    assert again.final_check_ is None and again.constraint_trace_ is None
    with pytest.raises(SealedLedgerError):
        again.fit(*few)
    for other in (PrivateClassifier, RandomizedParityPostprocessor):
        with pytest.raises(BadStructureError, match="ParityPostprocessor"):
            other.load(tmp_path / "model")


def test_several_sensitive_columns_come_back(people, few, tmp_path):
    clf = quick(people, constraint=DemographicParity(0.0), sensitive=["race", "sex"]).fit(*few)
    clf.save(tmp_path / "model")
    again = ParityPostprocessor.load(tmp_path / "model")
    assert np.array_equal(again.predict(few[0]), clf.predict(few[0]))


def test_a_wrapped_rule_needs_its_classifier_and_its_key(people, few, given, tmp_path):
    clf = parity(people, given).fit(*few)
    clf.save(tmp_path / "model")
    with pytest.raises(InvalidParameterError, match="pass it as estimator"):
        ParityPostprocessor.load(tmp_path / "model")
    with pytest.raises(InvalidParameterError, match="fitted classifier"):
        ParityPostprocessor.load(tmp_path / "model", estimator=LogisticRegression())
    again = ParityPostprocessor.load(tmp_path / "model", estimator=given)
    assert np.array_equal(again.predict_proba(few[0]), clf.predict_proba(few[0]))
    with pytest.raises(InvalidParameterError, match="use_key"):
        again.predict(few[0])
    assert np.array_equal(again.use_key(clf.key_).predict(few[0]), clf.predict(few[0]))
    assert again.coverage_ == clf.coverage_


def flip_a_byte(folder):
    path = folder / "params.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def cut_off(folder):
    path = folder / "params.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


def edit(folder, **changes):
    path = folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


TAMPERED = {
    "a byte": flip_a_byte,
    "cut off": cut_off,
    "no weights": lambda folder: (folder / "params.safetensors").unlink(),
    "no facts": lambda folder: (folder / "model.json").unlink(),
    "unknown rule": lambda folder: edit(folder, rule={"kind": "coin"}),
    "unknown field": lambda folder: edit(folder, rule={"kind": "threshold_mixture", "luck": 1}),
    "other rule": lambda folder: edit(folder, rule={"kind": "tilted", "jitter": 0.0}),
    "newer": lambda folder: edit(folder, format=99),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_a_folder_that_was_tampered_with_is_refused(people, few, tmp_path, how):
    quick(people, epsilon=math.inf).fit(*few).save(tmp_path / "model")
    TAMPERED[how](tmp_path / "model")
    with pytest.raises(BadStructureError) as told:
        ParityPostprocessor.load(tmp_path / "model")
    assert "\n" not in str(told.value)


def test_a_file_is_fitted_like_a_table(everyone, few, tmp_path):
    X, y = few
    X.assign(income=y).to_csv(tmp_path / "everyone.csv", index=False)
    asked = [DemographicParity(0.2), FalseNegativeRateCap(0.9)]
    for fitting in (ParityTraining(), UNAWARE, ParityTraining(decoupled=True)):
        clf = quick(everyone, constraint=asked, training=fitting, epsilon=math.inf, random_state=0, holdout=0.2)
        table, file = clone(clf).fit(X, y), clone(clf).fit_file(tmp_path / "everyone.csv")
        assert table.plan_ == file.plan_ == clf.planned()
        np.testing.assert_allclose(file.params_, table.params_, atol=1e-6)
        assert np.array_equal(file.predict(X), table.predict(X))


# --- values never steer ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fairveil.errors.UnknownGroupWarning")
def test_people_of_an_unknown_group_are_decided_by_the_model(people, few):
    X, _ = few
    clf = parity(people, constraint=Rule("selection_rate[sex=Female] >= 0.9"), epsilon=math.inf).fit(*few)
    strange = X.assign(sex="Unknown")
    by_model = clf.classes_[clf.predict_proba(strange).argmax(axis=1)]
    assert np.array_equal(clf.predict(strange), by_model)
    assert not np.array_equal(clf.predict(X.assign(sex="Female")), by_model)


def test_a_row_is_decided_by_itself(people, few):
    clf = quick(people, constraint=DemographicParity(0.0)).fit(*few)
    X = people.X.head(50)
    alone = [clf.predict(X.iloc[[place]])[0] for place in range(50)]
    assert np.array_equal(clf.predict(X), alone)


FITTINGS = {
    "histogram": ParityTraining(),
    "decoupled": ParityTraining(decoupled=True, rule_fraction=0.3),
    "joint": ParityTraining(aware=False, solver=DualSteps(n_steps=5)),
    "descent": ParityTraining(solver=NoisyDescent(n_steps=5)),
}


@pytest.mark.parametrize("kind", FITTINGS)
@pytest.mark.parametrize("how", WORST)
def test_bad_values_fit_with_no_word_but_the_stated_warning(people, few, how, kind):
    X, y = spoil(*few, how)
    asked = DemographicParity(0.1) if kind == "descent" else [EqualizedOdds(0.1), FalseNegativeRateCap(0.5)]
    schema = people.schema.model_copy(update={"n_public": 600})
    clf = parity(people, Descent(n_steps=3), asked, training=FITTINGS[kind], schema=schema, holdout=0.2, epsilon=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for stated in (ToleranceNotMetWarning, UnknownGroupWarning):
            warnings.simplefilter("ignore", stated)
        clf.fit(X, y)
        assert np.isfinite(clf.predict_proba(few[0])).all()
        assert set(clf.predict(X)) <= {"<=50K", ">50K"}
        clf.evaluation_.gap()
    assert np.isfinite(clf.final_check_.values).all() and np.isfinite(clf.final_check_.standard_errors).all()
    assert clf.plan_ == clf.planned()
