"""RaCO-DP against independent ways: constrained optima, fairlearn, a hand-written loop, other names of groups."""

import math
from dataclasses import replace

import numpy as np
import pytest
from fairlearn.reductions import DemographicParity as FairlearnParity
from fairlearn.reductions import ExponentiatedGradient
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from _support.two_sides import SIDES, TASK, make_records, run
from fairveil.data.datasets import load_dataset
from fairveil.data.encoding import Encoder
from fairveil.fairness.constraints import (
    DemographicParity,
    EqualizedOdds,
    FalseNegativeRateCap,
)
from fairveil.fairness.rates import Attribute, Population
from fairveil.fairness.rule_parser import Rule
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.raco import recipe as ascent
from fairveil.methods.raco.recipe import MOMENTUM, RateConstrained
from fairveil.privacy.records import MemoryRecords
from fairveil.training.recipe import Task

# --- against constrained optima -------------------------------------------------------------------------------------


class Adult:
    """Some people of Adult with five features; loss and soft rates of one weight vector, with slopes by hand."""

    def __init__(self, n=1500):
        frame = load_dataset("adult").frame.head(n)
        self.group = (frame["sex"] == "Male").to_numpy().astype(np.int16)
        self.y = (frame["income"] == ">50K").to_numpy().astype(np.int16)
        married = frame["marital_status"].str.startswith("Married")
        numbers = [frame["age"] / 50 - 1, frame["hours_per_week"] / 50 - 1, frame["education_num"] / 8 - 1]
        self.X = np.column_stack([*numbers, married, self.group]).astype(np.float32)
        self.Z = np.column_stack([self.X, np.ones(n)]).astype(np.float64)
        self.records = MemoryRecords(self.X, self.y, self.group)
        people = Population((Attribute("sex", ("Female", "Male")),), ("<=50K", ">50K"))
        self.task = Task(5, people, math.sqrt(5), n, math.inf, 1e-5)

    def loss(self, w):
        margin = self.Z @ w
        slope = self.Z.T @ (1 / (1 + np.exp(-margin)) - self.y) / len(self.y)
        return np.mean(np.logaddexp(0, margin) - self.y * margin), slope

    def soft_rate(self, w, mask):
        p = 1 / (1 + np.exp(-self.Z[mask] @ w))
        return p.mean(), ((p * (1 - p))[:, None] * self.Z[mask]).mean(axis=0)

    def left_sides(self, w, which):
        """Left side and slope of each inequality of a named constraint."""
        women, men, rich = self.group == 0, self.group == 1, self.y == 1
        pairs = {"parity": [(men, women)], "odds": [(men & rich, women & rich), (men & ~rich, women & ~rich)]}
        if which == "cap":
            rate, slope = self.soft_rate(w, rich)
            return np.array([1 - rate]), -slope[None]
        rates = [(self.soft_rate(w, one), self.soft_rate(w, other)) for one, other in pairs[which]]
        gaps = np.array([one[0] - other[0] for one, other in rates])
        slopes = np.array([one[1] - other[1] for one, other in rates])
        return np.concatenate([gaps, -gaps]), np.concatenate([slopes, -slopes])

    def optimum(self, which, tolerance):
        bounds = {
            "type": "ineq",
            "fun": lambda w: tolerance - self.left_sides(w, which)[0],
            "jac": lambda w: -self.left_sides(w, which)[1],
        }
        options = {"maxiter": 500, "ftol": 1e-13}
        found = minimize(self.loss, np.zeros(6), jac=True, method="SLSQP", constraints=[bounds], options=options)
        assert found.success
        return found.x

    def fitted(self, constraint, **choices):
        descent = Descent(n_steps=1500, sampling_rate=1.0)
        recipe = RateConstrained(constraint, descent, soft_rates=True, headroom=0.0, final_check=False, **choices)
        params = run(recipe, self.task, self.records).fit.params.astype(np.float64)
        return np.append(params[5:10] - params[:5], params[11] - params[10])


@pytest.fixture(scope="module")
def adult():
    return Adult()


@pytest.mark.slow
@pytest.mark.parametrize(
    "which, constraint, exactness",
    [
        ("parity", DemographicParity(0.05), 1e-4),
        ("parity", DemographicParity(0.02), 1e-4),
        ("odds", EqualizedOdds(0.05), 1e-3),
        ("odds", EqualizedOdds(0.1), 1e-3),
        ("cap", FalseNegativeRateCap(0.3), 1e-3),
    ],
    ids=["parity .05", "parity .02", "odds .05", "odds .1", "cap"],
)
def test_soft_rates_reach_the_constrained_optimum(adult, which, constraint, exactness):
    best = adult.optimum(which, constraint.tolerance)
    free = minimize(adult.loss, np.zeros(6), jac=True).x
    assert adult.left_sides(free, which)[0].max() > constraint.tolerance + 0.02  # the bound matters
    ours = adult.fitted(constraint)
    assert adult.loss(ours)[0] == pytest.approx(adult.loss(best)[0], abs=exactness)
    assert adult.left_sides(ours, which)[0].max() == pytest.approx(constraint.tolerance, abs=exactness)


def test_a_bound_that_holds_anyway_changes_nothing(adult):
    free = minimize(adult.loss, np.zeros(6), jac=True).x
    ours = adult.fitted(DemographicParity(0.9))
    assert adult.loss(ours)[0] == pytest.approx(adult.loss(free)[0], abs=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Setting a value on a Series via .at:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Setting an item of incompatible dtype:DeprecationWarning")
def test_decisions_are_as_good_as_fairlearns():
    """The same rows and tolerance: as accurate as the reductions approach, at a gap no larger than it reaches."""
    people = load_dataset("adult")
    schema = people.schema.without("sex", "native_country")
    X = Encoder(schema).rows(people.X.head(2000))
    y = (people.y.head(2000) == ">50K").to_numpy().astype(np.int16)
    group = (people.X["sex"].head(2000) == "Male").to_numpy().astype(np.int16)

    def told(decisions):
        return np.mean(decisions == y), abs(decisions[group == 1].mean() - decisions[group == 0].mean())

    other = ExponentiatedGradient(LogisticRegression(max_iter=200), FairlearnParity(difference_bound=0.05))
    other.fit(X, y, sensitive_features=group)
    theirs = np.mean([told(other.predict(X, random_state=seed)) for seed in range(20)], axis=0)
    task = Task(X.shape[1], SIDES, math.sqrt(1 + len(schema.columns)), 2000, math.inf, 1e-5)
    recipe = RateConstrained(DemographicParity(0.05), Descent(n_steps=600, sampling_rate=1.0), headroom=0.0)
    trained = run(recipe, task, MemoryRecords(X, y, group))
    logits = trained.model.logits(trained.fit.params, X)
    accuracy, gap = told(logits.argmax(axis=0))
    assert gap <= theirs[1] + 0.01
    assert accuracy >= theirs[0] - 0.01
    free = told(LogisticRegression(max_iter=200).fit(X, y).predict(X))
    assert free[1] > 0.1  # the bound matters


# --- one step after the other, by hand ------------------------------------------------------------------------------


def by_hand(records, n_steps, tolerance, learning_rate, clip_norm, temperature, is_soft):
    """Demographic parity of two groups at full batches without noise: parameters, left sides, multipliers."""
    n, y, group = len(records.y), records.y, records.groups
    Z = np.column_stack([records.X, np.ones(n)]).astype(np.float64)
    W, velocity = np.zeros((2, 5)), np.zeros((2, 5))
    totals, weight = np.zeros((2, 2)), 0.0
    integral, kept, values, multipliers = np.zeros(2), [], [], []
    for step in range(n_steps):
        logits = Z @ W.T
        p = softmax_rows(logits)
        hard = np.eye(2)[(logits[:, 1] > logits[:, 0]).astype(int)]
        counted = softmax_rows(temperature * logits) if is_soft else hard
        totals = ascent.SMOOTHING * totals + np.array([counted[group == g].sum(axis=0) for g in (0, 1)])
        weight = ascent.SMOOTHING * weight + 1
        average = totals / weight
        people = average.sum(axis=1)
        rates = average[:, 1] / people
        left = np.array([rates[0] - rates[1], rates[1] - rates[0]])
        if step % ascent.REFRESH == 0:
            middle = np.clip(rates, 0.02, 0.98)
            room = math.sqrt((middle * (1 - middle) / people).sum())
            aim = tolerance - min(room, tolerance / 2)
            speed = math.sqrt(min(1.0, people.min() / n / ascent.TYPICAL_SHARE))
            cap = ascent.LARGEST_PULL * people.min() / n
        if step >= ascent.WARM_UP * n_steps:
            integral = np.clip(integral + ascent.DUAL_TRAVEL / n_steps * speed * (left - aim), 0, cap)
            lam = np.clip(integral + ascent.DUAL_GAIN * speed * (left - aim), 0, cap)
        else:
            lam = integral
        values.append(left)
        multipliers.append(lam)
        if step % ascent.PULL_EVERY == 0:
            # d(lam_0 (r_0 - r_1) + lam_1 (r_1 - r_0)) / d(count of yes in a group), n times, is +-(lam) n / people
            price = (lam[0] - lam[1]) * np.array([1, -1]) * n / people
        q = softmax_rows(temperature * logits)
        slope = temperature * price[group] * q[:, 1] * q[:, 0]
        dlogits = p - np.eye(2)[y] + np.column_stack([-slope, slope])
        norms = np.linalg.norm(dlogits, axis=1) * np.linalg.norm(Z, axis=1)
        dlogits *= np.minimum(1, clip_norm / np.maximum(norms, 1e-12))[:, None]
        velocity = MOMENTUM * velocity + dlogits.T @ Z / n
        W = W - learning_rate * velocity
        if step >= n_steps // 2:
            kept.append(W)
    return np.mean(kept, axis=0), np.array(values), np.array(multipliers)


def softmax_rows(scores):
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("is_soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("clip_norm", [math.inf, 0.5])
def test_the_steps_are_those_of_a_hand_written_loop(rng, is_soft, clip_norm, temperature):
    records = make_records(rng)
    descent = Descent(n_steps=25, sampling_rate=1.0, learning_rate=0.4, clip_norm=clip_norm)
    recipe = RateConstrained(
        DemographicParity(0.1), descent, soft_rates=is_soft, temperature=temperature, final_check=False
    )
    trained = run(recipe, TASK, records)
    W, values, multipliers = by_hand(records, 25, 0.1, 0.4, clip_norm, temperature, is_soft)
    assert multipliers.max() > 0.5  # the bound matters
    np.testing.assert_allclose(trained.fit.params[:8].reshape(2, 4), W[:, :4], atol=2e-5)
    np.testing.assert_allclose(trained.fit.params[8:], W[:, 4], atol=2e-5)
    np.testing.assert_allclose(trained.fit.trace.values, values, atol=1e-5)
    np.testing.assert_allclose(trained.fit.trace.multipliers, multipliers, atol=1e-4)
    assert trained.fit.check is None


def test_an_unset_clip_norm_follows_the_row_norm_only_under_privacy():
    recipe = RateConstrained(DemographicParity(0.1))
    assert recipe.numbers_for(TASK).clip_norm == math.inf
    private = replace(TASK, epsilon=1.0)
    wide = replace(private, input_norm=2 * TASK.input_norm)
    one, two = (recipe.numbers_for(task).clip_norm for task in (private, wide))
    assert two == pytest.approx(2 * one)
    given = replace(recipe, descent=Descent(clip_norm=3.0, momentum=0.5)).numbers_for(private)
    assert (given.clip_norm, given.momentum) == (3.0, 0.5)


# --- names and orders -----------------------------------------------------------------------------------------------

GROUPS = ("first", "second", "third")


def of_three(rng):
    return make_records(rng, n=900, n_groups=3)


def three_sided(groups):
    people = Population((Attribute("side", groups),), ("no", "yes"))
    return replace(TASK, people=people, n_public=900)


@pytest.mark.parametrize("order", [(2, 0, 1), (1, 0, 2)])
@pytest.mark.parametrize(
    "constraint",
    [DemographicParity(0.05), DemographicParity(0.05, against="rest"), Rule("selection_rate[side=first] >= 0.6")],
    ids=["pairs", "rest", "one-sided"],
)  # fmt: skip
def test_reordering_groups_changes_nothing_but_the_order(rng, constraint, order):
    records = of_three(rng)
    recipe = RateConstrained(constraint, Descent(n_steps=60, sampling_rate=0.3))
    plain = run(recipe, three_sided(GROUPS), records)
    codes = np.argsort(order).astype(np.int16)[records.groups]  # the place of each group in the new order
    moved = run(recipe, three_sided(tuple(GROUPS[g] for g in order)), MemoryRecords(records.X, records.y, codes))
    np.testing.assert_allclose(moved.fit.params, plain.fit.params, atol=1e-5)
    places = [moved.fit.trace.bounds.index(bound) for bound in plain.fit.trace.bounds]
    np.testing.assert_allclose(moved.fit.trace.values[:, places], plain.fit.trace.values, atol=1e-9)
    np.testing.assert_allclose(moved.fit.trace.multipliers[:, places], plain.fit.trace.multipliers, atol=1e-7)
    np.testing.assert_allclose(moved.fit.check.values[places], plain.fit.check.values, atol=1e-9)


def test_renaming_groups_changes_only_their_names(rng):
    records, recipe = (
        of_three(rng),
        RateConstrained(DemographicParity(0.05), Descent(n_steps=30, sampling_rate=0.3)),
    )
    plain, renamed = (run(recipe, three_sided(names), records) for names in (GROUPS, ("x", "y", "z")))
    assert np.array_equal(plain.fit.params, renamed.fit.params)
    assert np.array_equal(plain.fit.trace.values, renamed.fit.trace.values)
    assert str(renamed.fit.trace.bounds[0]) == "selection_rate[side=x] - selection_rate[side=y] <= 0.05"


def test_swapping_groups_in_the_data_would_be_caught(rng):
    records = of_three(rng)
    recipe = RateConstrained(Rule("selection_rate[side=first] >= 0.6"), Descent(n_steps=60, sampling_rate=0.3))
    swapped = MemoryRecords(records.X, records.y, (2 - records.groups).astype(np.int16))
    plain, other = (run(recipe, three_sided(GROUPS), one) for one in (records, swapped))
    assert np.abs(plain.fit.params - other.fit.params).max() > 0.1
    # the first group is rarely selected, the third often: the left side is minus the rate. Later steps, in which the
    # bound is met for both, would tell less
    assert plain.fit.trace.values[8:14].mean() > other.fit.trace.values[8:14].mean() + 0.1


def test_many_classes_and_a_hidden_layer_train_too(rng):
    people = Population((Attribute("side", ("left", "right")),), ("a", "b", "c"))
    task = replace(TASK, people=people, n_public=2000)
    records = make_records(rng, n=2000, n_classes=3)
    for descent in (
        Descent(n_steps=200),
        Descent(model="mlp", hidden=(8,), n_steps=200, learning_rate=0.3),
    ):
        gaps = {}
        for tolerance in (0.05, 1.0):
            trained = run(RateConstrained(DemographicParity(tolerance), descent), task, records)
            chosen = np.eye(3)[trained.model.logits(trained.fit.params, records.X).argmax(axis=0)]
            sides = [chosen[records.groups == g].mean(axis=0) for g in (0, 1)]
            gaps[tolerance] = np.abs(sides[0] - sides[1]).max()
            assert not trained.fit.check.offsets.any()  # thresholds move between two classes only
        assert gaps[1.0] > 0.3
        assert gaps[0.05] < 0.1
