"""The functional mechanism for three classes and more: exact without noise, a line of equal means, kept tolerances."""

import math

import numpy as np
import pytest
from scipy.special import log_softmax

from fairveil import Schema
from fairveil._random import reproducible_coins, secret_coins
from fairveil.accounting.composition import epsilon_of
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import DemographicParity, EqualizedOdds, constrain
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.functional import FunctionalClassifier
from fairveil.methods.functional.quadratic import START_SENSITIVITY
from fairveil.methods.functional.recipe import Functional
from fairveil.methods.functional.several_classes import END, N_COUNTS, POINTS
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.queries import LogisticMoments, MomentSum
from fairveil.privacy.records import MemoryRecords
from fairveil.training.recipe import Task
from fairveil.training.run import make_plan, run_plan

D, NORM = 3, 2.5
ANNOUNCED = {"constraint": DemographicParity(), "announced": (0.1,)}


def people_of(n_classes):
    return Population((Attribute("sex", ("f", "m")),), tuple("abcde"[:n_classes]))


def make_records(rng, n_classes, n=4000, gap=1.0):
    """Rows inside the norm, whose class depends on x and whose x depends on the group."""
    groups = rng.integers(0, 2, n)
    X = rng.normal(size=(n, D)) * 0.6
    X[:, 0] += gap * (groups - 0.5)
    X *= np.minimum(1, 2.2 / np.linalg.norm(X, axis=1))[:, None]
    scores = X @ np.linspace(-2, 2, n_classes)[None].repeat(D, axis=0) + rng.gumbel(size=(n, n_classes))
    return MemoryRecords(X.astype(np.float32), scores.argmax(axis=1).astype(np.int16), groups.astype(np.int16))


def train(recipe, records, n_classes, epsilon=math.inf):
    task = Task(D, people_of(n_classes), NORM, len(records.y), epsilon, 1e-5)
    coins = secret_coins() if task.is_private else reproducible_coins(0)
    plan = make_plan(recipe, task)
    assert not task.is_private or epsilon_of(plan.charges(), 1e-5) <= epsilon
    return run_plan(plan, recipe, task, records, Ledger(), coins, np.random.default_rng(0))


def loop_minimizer(records, n_classes):
    """Add up slope and curvature of the second-order expansion record by record, and solve."""
    design = np.column_stack([records.X, np.ones(len(records.y))]) / NORM
    n = n_classes * (D + 1)
    slope, curvature = np.zeros(n), np.zeros((n, n))
    of_classes = (np.eye(n_classes) - 1 / n_classes) / n_classes
    for z, label in zip(design.astype(float), records.y, strict=True):
        slope += np.kron(1 / n_classes - np.eye(n_classes)[label], z)
        curvature += np.kron(of_classes, np.outer(z, z))
    return -np.linalg.lstsq(curvature, slope, rcond=1e-10)[0].reshape(n_classes, D + 1)


def weights_in(trained):
    params, (n_classes, n_features) = trained.fit.params, (trained.model.n_classes, trained.model.n_features)
    slopes = params[: n_classes * n_features].reshape(n_classes, -1)
    weights = NORM * np.column_stack([slopes, params[n_classes * n_features :]]).astype(float)
    return weights - weights.mean(axis=0)


@pytest.mark.parametrize("n_classes", [3, 5])
def test_without_noise_it_is_the_exact_minimizer_of_a_loop(n_classes, rng):
    records = make_records(rng, n_classes, n=600)
    found = weights_in(train(Functional(), records, n_classes))
    assert np.allclose(found, loop_minimizer(records, n_classes), rtol=2e-3, atol=2e-3)


def test_the_expansion_is_of_the_second_order(rng):
    """Ten times smaller weights leave a thousandth of the difference to the softmax loss."""
    n_classes, z, label = 4, rng.normal(size=5), 2
    z /= np.linalg.norm(z)
    weights = rng.normal(size=(n_classes, 5))
    slope = np.kron(1 / n_classes - np.eye(n_classes)[label], z)
    curvature = np.kron((np.eye(n_classes) - 1 / n_classes) / n_classes, np.outer(z, z))

    def difference(scale):
        w = scale * weights
        expanded = math.log(n_classes) + slope @ w.ravel() + w.ravel() @ curvature @ w.ravel() / 2
        return abs(-log_softmax(w @ z)[label] - expanded)

    assert difference(0.01) < 2e-3 * difference(0.1)


def test_a_record_of_any_label_adds_no_more_than_the_bound(rng):
    cells = np.arange(9).reshape(3, 3)
    step = LogisticMoments(NORM, (9, 1, D + 1), cells, np.zeros((3, 3), np.int64))
    largest = 0.0
    for label in range(3):
        for length in (0.0, 1.0, math.sqrt(NORM**2 - 1), 50.0):
            X = rng.normal(size=(1, D))
            X *= length / np.linalg.norm(X)
            records = MemoryRecords(X.astype(np.float32), np.array([label], np.int16), np.array([1], np.int16))
            flat = records.answer(next(records.draw({-1: 1.0}, secret_coins())), MomentSum(step), START_SENSITIVITY, 2)
            largest = max(largest, float(np.linalg.norm(flat)))
            assert np.linalg.norm(flat) <= START_SENSITIVITY
            assert np.count_nonzero(flat[: 9 * (D + 1)].reshape(9, -1).any(axis=1)) == 1
    assert largest > 0.999 * START_SENSITIVITY


def test_two_classes_release_what_they_always_did(rng):
    """To the bit: signs by label, one table, and rules by thresholds on a line."""
    records = make_records(rng, 2, n=50)
    rows = next(records.draw({-1: 1.0}, secret_coins()))
    step = LogisticMoments(NORM, (1, 1, D + 1), np.zeros((3, 2), np.int64), np.zeros((3, 2), np.int64))
    query, bound = MomentSum(step), START_SENSITIVITY
    design = np.column_stack([records.X, np.ones(50)]).astype(float)
    design /= NORM
    first = np.zeros((2, 50))
    first[0] = 1.0 - 2.0 * records.y
    assert np.array_equal(records.answer(rows, query, bound, 2)[: D + 1], (first @ design)[0])
    recipe, task = Functional(DemographicParity(0.1)), Task(D, people_of(2), NORM, 50, 1.0, 1e-5)
    names = [release.name for stage in make_plan(recipe, task).stages for release in stage.releases]
    assert names[-5:] == ["moments", "scores", "counts 1", "counts 2", "released"]


def mean_gaps(records, weights):
    design = np.column_stack([records.X, np.ones(len(records.y))])
    scores = design @ weights.T
    return scores[records.groups == 0].mean(axis=0) - scores[records.groups == 1].mean(axis=0)


def test_mean_scores_of_every_class_are_equal_at_one(rng):
    records = make_records(rng, 3)
    statistics = train(Functional(DemographicParity(0.05)), records, 3).fit.statistics
    line = statistics.line
    assert np.abs(mean_gaps(records, line.start)).max() > 0.1
    centered = line.weights_at(1.0) - line.weights_at(1.0).mean(axis=0)
    assert np.abs(mean_gaps(records, centered)).max() < 1e-6
    # nothing else with equal means is better: the slope of the quadratic there is a sum of directions
    curvature, directions = statistics.quadratic.curvature, mean_gaps_slope(records)
    pull = (line.weights_at(1.0) - line.start) @ curvature
    across = pull - np.outer(pull @ directions, directions) / (directions @ directions)
    assert np.abs(across).max() < 1e-6 * np.abs(pull).max()


def mean_gaps_slope(records):
    design = np.column_stack([records.X, np.ones(len(records.y))]).astype(float)
    return design[records.groups == 0].mean(axis=0) - design[records.groups == 1].mean(axis=0)


def gap_of(records, model, params):
    decided = model.logits(params, records.X).argmax(axis=0)
    shares = [np.bincount(decided[records.groups == g], minlength=3) / np.sum(records.groups == g) for g in (0, 1)]
    return float(np.abs(shares[0] - shares[1]).max())


@pytest.mark.parametrize("epsilon", [math.inf, 3.0])
def test_tolerances_are_kept_from_one_release(epsilon, rng):
    """At epsilon 3, noise on a count is about 6 of 10,000 people a group."""
    records = make_records(rng, 3, n=20_000)
    trained = train(Functional(DemographicParity(0.1)), records, 3, epsilon)
    statistics, gaps, rights = trained.fit.statistics, [], []
    for tolerance in (0.02, 0.1, 0.3):
        rule = statistics.rule_at(tolerance)
        gaps.append(gap_of(records, trained.model, rule.params))
        rights.append(rule.accuracy)
        assert abs(gaps[-1] - rule.gap) < 0.04
        assert gaps[-1] <= tolerance + 0.03
    assert gaps[0] < gaps[1] < gaps[2]
    assert rights == sorted(rights)
    assert not trained.fit.check.excess.any()


def test_at_the_end_of_the_line_everyone_is_decided_alike(rng):
    records = make_records(rng, 3, gap=3.0)
    trained = train(Functional(DemographicParity(0.0)), records, 3)
    statistics = trained.fit.statistics
    decided = trained.model.logits(statistics.params_at(END), records.X).argmax(axis=0)
    assert set(decided) == {np.bincount(records.y).argmax()}
    assert np.allclose(statistics.tables[-1].sum(axis=0), np.bincount(decided, minlength=3), atol=1e-6)
    assert gap_of(records, trained.model, trained.fit.params) < 0.02


def test_equalized_odds_steer_every_class(rng):
    records = make_records(rng, 3, n=20_000)
    recipe = Functional(EqualizedOdds(0.1))
    fit = train(recipe, records, 3).fit
    bounds = constrain(recipe.constraint, people_of(3))
    assert len(bounds.bounds) == 12
    assert len(POINTS) < len(fit.statistics.points) == len(fit.statistics.counts) <= N_COUNTS
    assert fit.statistics.counts.shape[1:] == (9, 3)
    assert list(fit.statistics.points) == sorted(fit.statistics.points)
    free = gap_of(records, train(Functional(), records, 3).model, train(Functional(), records, 3).fit.params)
    assert gap_of(records, fit.statistics.model, fit.params) < free


def test_other_regularizations_were_not_counted(rng):
    statistics = train(Functional(DemographicParity(0.1)), make_records(rng, 3), 3).fit.statistics
    with pytest.raises(InvalidParameterError, match="regularization that was fitted"):
        statistics.rule_at(0.1, 2.0)


@pytest.mark.parametrize(
    "choices",
    [
        {"weighting": "groups"},
        {"rounds": 2},
        {"law": "laplace"},
        ANNOUNCED,
    ],
)
def test_what_two_classes_alone_have_is_refused(choices):
    with pytest.raises(InvalidParameterError, match="Expected two classes with"):
        make_plan(Functional(**choices), Task(D, people_of(3), NORM, 4000, 1.0, 1e-5))


@pytest.mark.filterwarnings("ignore::fairveil.ToleranceNotMetWarning")
def test_the_estimator_fits_predicts_and_derives_a_frontier(rng, tmp_path):
    records = make_records(rng, 3, n=8000)
    names = np.array(["a", "b", "c"])
    schema = Schema.for_arrays(D, classes=["a", "b", "c"], bounds=(-2.5, 2.5), n_public=8000, groups=["f", "m"])
    groups = np.array(["f", "m"])[records.groups]
    clf = FunctionalClassifier(DemographicParity(0.1), 3.0, schema=schema, sensitive="group", ledger=Ledger())
    clf.fit(records.X, names[records.y], sensitive_features=groups)
    assert np.mean(clf.predict(records.X) == names[records.y]) > 0.45
    spent = clf.ledger_.epsilon(1e-5)
    frontier = clf.frontier([0.0, 0.3])
    assert frontier[0].gap <= frontier[1].gap and frontier[0].counted
    assert clf.ledger_.epsilon(1e-5) == spent <= 3.0
    clf.save(tmp_path / "model")
    again = FunctionalClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict(records.X[:50]), clf.predict(records.X[:50]))
