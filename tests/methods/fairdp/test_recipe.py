"""Group-wise training: what a step is, what it is worth, the bound on the last layer, several models at the end."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest

from _support.two_sides import SIDES, TASK, make_records, planned, run
from fairveil._random import reproducible_coins, secret_coins
from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.events import GaussianRelease, PoissonSampled, Repeated
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import DemographicParity
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.fairdp import recipe as groupwise
from fairveil.methods.fairdp.early_stopping import EarlyStopping
from fairveil.methods.fairdp.recipe import FinalSteps, GroupScale, Groupwise
from fairveil.models import OptimizerState, Sgd
from fairveil.models.last_layer import bounded_last_layer, last_layer_norm
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan
from fairveil.privacy.queries import CrossEntropy
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import ROUNDING, open_veils
from fairveil.training.features import FeatureDesign

PRIVATE = replace(TASK, epsilon=1.0)
FEW = Descent(n_steps=10, sampling_rate=1.0, clip_norm=0.5, learning_rate=0.1)
SIZES = (180.0, 220.0)


def veils_of(recipe, task, records, noise, coins=None):
    """The veils of a plan with this very noise."""
    plan = Plan(recipe.stages(noise, 1.0, task), 1.0, 1e-5)
    veils = open_veils(records, plan, Ledger(), coins or reproducible_coins(0), "a test")
    for veil in veils.values():
        veil.expect(400)
    return veils


def trained_at(recipe, task, records, noise, coins=None):
    veils = veils_of(recipe, task, records, noise, coins)
    return recipe.train(veils, task, float(len(records.y)), np.random.default_rng(0))


@pytest.fixture
def bounded(monkeypatch):
    """What the last layer's bound was given and gave back, call by call: parameters after each step."""
    seen = []

    def noted(model, params, bound):
        seen.append((params, bounded_last_layer(model, params, bound)))
        return seen[-1][1]

    monkeypatch.setattr(groupwise, "bounded_last_layer", noted)
    return seen


@pytest.fixture
def plain_steps(monkeypatch):
    """All steps by plain gradient descent."""
    monkeypatch.setattr(groupwise, "Adam", Sgd)


# --- the average with one divisor is DP-SGD -------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 1.7])
def test_the_first_step_is_that_of_private_descent_bit_by_bit(rng, plain_steps, bounded, noise):
    """The same coins, noise and learning rate, no bound: the very parameters of `Descent` after a step."""
    records = make_records(rng)
    descent = Descent(n_steps=1, sampling_rate=0.4, clip_norm=0.5, learning_rate=0.3, momentum=0.0)
    plain = trained_at(descent, TASK, records, noise)
    recipe = Groupwise(replace(descent, n_steps=2), norm_bound=math.inf, divisors="common")
    trained_at(recipe, TASK, records, noise)
    assert np.abs(plain.params).max() > 0.01
    after_one_step = bounded[0][1]
    assert np.array_equal(after_one_step, plain.params)


@pytest.mark.parametrize("norm_bound", [math.inf, 0.3])
@pytest.mark.parametrize("noise", [0.0, 0.8])
def test_every_step_is_that_of_private_descent_after_a_bound(rng, plain_steps, bounded, noise, norm_bound):
    records = make_records(rng)
    descent = Descent(n_steps=9, sampling_rate=0.4, clip_norm=0.5, learning_rate=0.3)
    recipe = Groupwise(
        descent, norm_bound=norm_bound, divisors="common", finish=FinalSteps(share=0.3, learning_rate=0.7)
    )
    fit = trained_at(recipe, TASK, records, noise)
    veils, model = veils_of(recipe, TASK, records, noise), recipe.model_for(TASK)
    params, kept = model.initial(np.random.default_rng(0)), []
    for step in range(9):
        name, rate = ("train", 0.3) if step < 6 else ("finish", 0.7)
        if step == 6:
            params = np.mean(kept, axis=0, dtype=np.float64).astype(np.float32)
        gradient = veils[name].draw().release_gradient(model, params, CrossEntropy(), 0.5)
        params, _ = Sgd(rate).step(params, gradient / (0.4 * 400), OptimizerState())
        params = bounded_last_layer(model, params, norm_bound)
        if step >= 3:
            kept.append(params)
    np.testing.assert_array_equal(fit.params, params)
    assert len(bounded) == 9  # after every step, the last too


@pytest.mark.parametrize("sizes", [(200.0, 200.0), SIZES, (40.0, 360.0)])
def test_the_noise_of_the_average_is_that_of_all_groups_together(sizes):
    """Two sums at noise sigma, averaged, are as noisy as the average at sigma sqrt(2) (equal divisors)."""
    nobody = MemoryRecords(np.empty((0, 4), np.float32), np.empty(0, np.int16), np.empty(0, np.int16))
    common = sizes[0] == sizes[1]
    kinds = {}
    for released, noise in (("groups", 1.3), ("average", 1.3 * math.sqrt(2))):
        recipe = Groupwise(
            Descent(n_steps=300, clip_norm=0.5, sampling_rate=1.0),
            divisors="common" if common else "group",
            group_sizes=None if common else sizes,
            released=released,
        )
        model = recipe.model_for(TASK)
        scale = recipe._scale(TASK, sum(sizes), None, 1.0)
        veil = veils_of(recipe, TASK, nobody, noise)["train"]
        params = np.zeros(model.n_params, np.float32)
        drawn = [recipe._average(veil.draw(), model, params, scale, TASK) for _ in range(200)]
        kinds[released] = np.array(drawn).ravel() / (1.3 * 0.5 * ROUNDING)
        stated = recipe.last_step_noise(veils_of(recipe, TASK, nobody, noise), TASK, scale)
        expected = np.std(drawn) / (scale.total * 1.0)  # of 2,000 numbers: known to 1.6 %
        assert stated == pytest.approx(expected, rel=0.1)
    spread = {"average": math.sqrt(2), "groups": np.linalg.norm(scale.weights)}
    for name, values in kinds.items():
        assert kstest(values / spread[name], "norm").pvalue > 1e-6
        for wrong in (2 / 3, 3 / 2):
            assert kstest(values / (wrong * spread[name]), "norm").pvalue < 1e-6


def test_figures_of_the_two_releases():
    """q = .05, sigma = 2, T = 500: 2.532 where group sums leave the veil, 1.636 where only the average of two does."""

    def cost(noise):
        return epsilon_of([Repeated(PoissonSampled(0.05, GaussianRelease(noise)), 500)], 1e-5)

    assert cost(2.0) == pytest.approx(2.532, abs=0.002)
    assert cost(2.0 * math.sqrt(2)) == pytest.approx(1.636, abs=0.002)
    descent = Descent(n_steps=500, sampling_rate=0.05, clip_norm=1.0)
    for released, noise, name in (("groups", 2.0, "gradients"), ("average", 2 * math.sqrt(2), "gradient")):
        recipe = Groupwise(descent, divisors="common", released=released)
        parts = recipe.stages(noise, 1.0, PRIVATE)
        assert {part.releases[0].name for part in parts} == {name}
        figure = epsilon_of([part.event for part in parts], 1e-5)
        assert figure == pytest.approx(cost(noise), abs=0.01)
        assert sum(part.n_steps for part in parts) == 500


@pytest.mark.parametrize("sizes", [(100.0, 300.0), (50.0, 60.0, 290.0)])
def test_a_divisor_for_each_group_debits_the_smallest_group(sizes):
    """Sums at noise sigma over n_k, averaged, are as private for group k as z_k = sigma n_k sqrt(sum_j 1 / n_j^2)."""
    people = Population((Attribute("side", tuple("abc"[: len(sizes)])),), ("no", "yes"))
    task = replace(PRIVATE, people=people)
    scale, sigma, rate = GroupScale.by_group(task, np.array(sizes)), 1.9, 0.2
    n = np.array(sizes)
    z = sigma * n * math.sqrt((n**-2.0).sum())
    recipe = Groupwise(Descent(n_steps=4, sampling_rate=rate, clip_norm=0.5), group_sizes=sizes)
    nobody = MemoryRecords(np.empty((0, 4), np.float32), np.empty(0, np.int16), np.empty(0, np.int16))
    veils = veils_of(recipe, task, nobody, z.min())
    noise = recipe.last_step_noise(veils, task, scale)
    k = len(sizes)
    assert noise / ROUNDING == pytest.approx(sigma * 0.5 / (k * rate) * math.sqrt((n**-2.0).sum()))
    moved = 0.5 * scale.weights[:k] / (rate * scale.total)  # how far a record of each group moves the average
    np.testing.assert_allclose(noise / ROUNDING / moved, z, rtol=1e-6)
    assert scale.weights[k] == 0
    assert scale.weights.max() == 1


# --- a step by hand -------------------------------------------------------------------------------------------------


def softmax_rows(scores):
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def bounded_by_hand(W, bound):
    norm = np.linalg.norm(W)
    return W * min(1.0, bound / norm) if norm else W


def by_hand(records, divisors, n_steps, n_first, rates, clip_norm, norm_bound):
    """Algorithm 1 at full batches without noise; Adam, then descent from the average of Adam's last half."""
    Z = np.column_stack([records.X, np.ones(len(records.y))]).astype(np.float64)
    n_classes = records.y.max() + 1
    W = np.zeros((n_classes, Z.shape[1]))
    first, second, kept = np.zeros_like(W), np.zeros_like(W), []
    for step in range(n_steps):
        if step == n_first:
            W = np.mean(kept, axis=0)
        dlogits = softmax_rows(Z @ W.T) - np.eye(n_classes)[records.y]
        norms = np.linalg.norm(dlogits, axis=1) * np.linalg.norm(Z, axis=1)
        dlogits *= np.minimum(1, clip_norm / np.maximum(norms, 1e-12))[:, None]
        models = []
        for group, divisor in enumerate(divisors):
            own = records.groups == group
            models.append(dlogits[own].T @ Z[own] / divisor)
        gradient = np.mean(models, axis=0)  # the average of group models is the average of their gradients
        if step < n_first:
            first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
            corrected = first / (1 - 0.9 ** (step + 1)), second / (1 - 0.999 ** (step + 1))
            W = W - rates[0] * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)
        else:
            W = W - rates[1] * gradient
        W = bounded_by_hand(W, norm_bound)
        if step >= n_first // 2:
            kept.append(W)
    return W


@pytest.mark.parametrize("released", ["average", "groups"])
@pytest.mark.parametrize("n_groups, n_classes", [(2, 2), (3, 2), (2, 3), (1, 2)])
@pytest.mark.parametrize("clip_norm, norm_bound", [(0.3, 0.4), (math.inf, 0.4), (0.3, math.inf)])
def test_the_steps_are_those_of_a_hand_written_loop(rng, released, n_groups, n_classes, clip_norm, norm_bound):
    people = Population((Attribute("side", tuple("abc"[:n_groups])),), tuple(map(str, range(n_classes))))
    task, records = replace(TASK, people=people), make_records(rng, 400, n_groups, n_classes)
    sizes = np.bincount(records.groups, minlength=n_groups).astype(float)
    descent = replace(FEW, n_steps=12, clip_norm=clip_norm)
    recipe = Groupwise(descent, norm_bound, group_sizes=tuple(sizes), released=released, finish=FinalSteps(0.3, 2.0))
    W = by_hand(records, sizes, 12, 8, (0.1, 2.0), clip_norm, norm_bound)
    params = run(recipe, task, records).fit.params
    np.testing.assert_allclose(params[: 4 * n_classes].reshape(n_classes, 4), W[:, :4], atol=3e-5)
    np.testing.assert_allclose(params[4 * n_classes :], W[:, 4], atol=3e-5)
    common = replace(recipe, divisors="common", group_sizes=None)
    W = by_hand(records, np.full(n_groups, 400 / n_groups), 12, 8, (0.1, 2.0), clip_norm, norm_bound)
    params = run(common, task, records).fit.params
    np.testing.assert_allclose(params[: 4 * n_classes].reshape(n_classes, 4), W[:, :4], atol=3e-5)


def test_every_group_counts_the_same_however_small(rng):
    """A tenth of the people, of whom everyone is 1 whatever x: weighted by group they are believed more."""
    records = make_records(rng, 1000)
    few = rng.random(1000) < 0.1
    records = MemoryRecords(records.X, np.where(few, 1, 0).astype(np.int16), few.astype(np.int16))
    ones = []
    for divisors in ("common", "group"):
        descent = replace(FEW, n_steps=60, clip_norm=math.inf)
        recipe = Groupwise(descent, norm_bound=math.inf, divisors=divisors)
        trained = run(recipe, replace(TASK, n_public=1000), records)
        logits = trained.model.logits(trained.fit.params, records.X)
        ones.append(np.mean(1 / (1 + np.exp(logits[0] - logits[1]))))
    assert ones[0] == pytest.approx(0.1, abs=0.08)
    assert ones[1] == pytest.approx(0.5, abs=0.08)


def test_noisy_sizes_are_held_to_a_smallest_share():
    task = replace(TASK, people=Population((Attribute("side", ("a", "b", "c")),), ("no", "yes")))
    scale = GroupScale.by_group(task, np.array([1000.0, 500.0, 3.0]))
    held = 0.02 * 1503
    np.testing.assert_allclose(scale.weights, [held / 1000, held / 500, 1, 0], rtol=1e-6)
    assert scale.total == pytest.approx(3 * held)
    for sizes in ([-5.0, -3.0, -1.0], [0.0, 0.0, 0.0], [1e9, -1e9, 3.0]):
        scale = GroupScale.by_group(task, np.array(sizes))
        assert np.isfinite(scale.weights).all() and scale.weights.max() == 1 and scale.total >= 3


def test_product_groups_are_groups(rng):
    """Two attributes stand for their four intersections; people unknown in one of them take no part."""
    people = Population((Attribute("side", ("l", "r")), Attribute("age", ("old", "young"))), ("no", "yes"))
    task = replace(TASK, people=people)
    scale = GroupScale.by_group(task, np.array([100.0, 200.0, 50.0, 50.0]))
    assert np.flatnonzero(scale.weights).tolist() == people.codes.tolist() == [0, 1, 3, 4]
    np.testing.assert_allclose(scale.weights[people.codes], [0.5, 0.25, 1, 1])
    records = make_records(rng)
    codes = people.code([records.groups, rng.integers(-1, 2, 400)])
    records = MemoryRecords(records.X, records.y, codes)
    recipe = Groupwise(FEW, group_sizes=(1, 1, 1, 1))
    kept = np.isin(codes, people.codes)
    alone = MemoryRecords(records.X[kept], records.y[kept], np.searchsorted(people.codes, codes[kept]).astype(np.int16))
    one = Population((Attribute("both", ("lo", "ly", "ro", "ry")),), ("no", "yes"))
    params = [
        run(recipe, replace(task, people=who), rows).fit.params for who, rows in ((people, records), (one, alone))
    ]
    np.testing.assert_allclose(params[0], params[1], atol=1e-5)
    assert 200 < kept.sum() < 340


@pytest.mark.parametrize("released", ["average", "groups"])
@pytest.mark.parametrize("divisors", ["group", "common"])
@pytest.mark.parametrize("code", [2, -1])
def test_people_of_no_known_group_add_nothing(rng, released, divisors, code):
    records = make_records(rng)
    unknown = rng.random(400) < 0.2
    cells = np.where(unknown, code, records.groups).astype(np.int16)
    recipe = Groupwise(FEW, released=released, divisors=divisors, group_sizes=SIZES)
    other_X = np.where(unknown[:, None], 7.0, records.X).astype(np.float32)
    one, two = (
        run(recipe, TASK, MemoryRecords(X, y, cells)).fit.params
        for X, y in (
            (records.X, records.y),
            (other_X, np.where(unknown, 1 - records.y, records.y).astype(np.int16)),
        )
    )
    np.testing.assert_allclose(one, two, atol=1e-6)


# --- the bound on the last layer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["linear", "mlp"])
@pytest.mark.parametrize("n_models", [1, 3])
def test_the_last_layer_stays_within_the_bound_at_every_step(rng, bounded, model, n_models, seeded):
    descent = Descent(model, (6,), 12, 0.3, 0.5, 0.5)
    recipe = Groupwise(descent, 0.4, group_sizes=SIZES, finish=FinalSteps(0.3, 3.0, n_models=n_models))
    trained = run(recipe, PRIVATE, make_records(rng), coins=secret_coins())
    net = trained.model
    norms = np.array([[last_layer_norm(net, params) for params in pair] for pair in bounded])
    assert (norms[:, 1] <= 0.4 * (1 + 1e-6)).all()
    assert (norms[:, 0] > 0.4).sum() > 6  # there was something to bound, after the last step too
    assert norms[-1 if n_models == 1 else -2, 0] > 0.4
    assert last_layer_norm(net, trained.fit.params) <= 0.4 * (1 + 1e-6)
    assert last_layer_norm(net, trained.fit.last_step.before) <= 0.4 * (1 + 1e-6)
    assert all(last_layer_norm(net, one) <= 0.4 * (1 + 1e-6) for one in trained.fit.last_step.several)
    before, after = bounded[-1]
    X = rng.normal(size=(500, 4))
    decisions = [net.logits(p.astype(np.float64), X).argmax(axis=0) for p in (before, after)]
    assert np.array_equal(*decisions)
    assert np.array_equal(after, trained.fit.params)


def test_a_smaller_bound_makes_surer_decisions_rarer(rng):
    records, sure = make_records(rng), []
    for bound in (0.05, 0.5, math.inf):
        trained = run(Groupwise(replace(FEW, n_steps=60), bound), TASK, records)
        logits = trained.model.logits(trained.fit.params, records.X)
        sure.append(np.abs(logits[1] - logits[0]).max())
    assert sure[0] < sure[1] < sure[2]


# --- several models at the end (Algorithm 3) ------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_several_models_share_all_but_the_last_layer_and_are_averaged(rng, model, seeded):
    recipe = Groupwise(
        Descent(model, (6,), 10, 0.3, 0.2, 0.5), group_sizes=SIZES, finish=FinalSteps(0.3, 1.0, n_models=5)
    )
    trained = run(recipe, PRIVATE, make_records(rng), coins=secret_coins())
    several = np.array(trained.fit.last_step.several)
    n_last = 2 * (7 if model == "mlp" else 5)
    assert several.shape == (5, trained.model.n_params)
    assert (several[:, :-n_last] == several[0, :-n_last]).all()
    assert len(np.unique(several[:, -n_last:], axis=0)) == 5
    np.testing.assert_allclose(trained.fit.params, several.mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("clip_norm", [math.inf, 0.3])
def test_without_noise_several_models_together_take_the_plain_step(rng, clip_norm):
    """Their movements add up to that of one model: weights, clip norm and divisor are the same (here without M)."""
    records, ends = make_records(rng), []
    for n_models in (1, 4):
        descent, finish = replace(FEW, clip_norm=clip_norm), FinalSteps(n_models=n_models)
        recipe = Groupwise(descent, math.inf, group_sizes=(100.0, 300.0), finish=finish)
        ends.append(run(recipe, TASK, records).fit)
    before = ends[0].last_step.before
    np.testing.assert_array_equal(before, ends[1].last_step.before)
    moved = np.sum([model - before for model in ends[1].last_step.several], axis=0)
    assert np.abs(moved).max() > 0.01
    np.testing.assert_allclose(moved, ends[0].params - before, atol=1e-5)


def test_each_of_several_models_gets_its_own_noise():
    """500 last steps on nobody: five models of ten numbers, all independent, each with the planned deviation."""
    nobody = MemoryRecords(np.empty((0, 4), np.float32), np.empty(0, np.int16), np.empty(0, np.int16))
    recipe = Groupwise(
        Descent(n_steps=2, sampling_rate=1.0, clip_norm=0.5, learning_rate=1e-6),
        math.inf, group_sizes=SIZES, finish=FinalSteps(0.5, 2.0, n_models=5),
    )  # fmt: skip
    moved = []
    for seed in range(300):
        last = trained_at(recipe, TASK, nobody, 3.0, reproducible_coins(seed)).last_step
        moved.append(np.array(last.several) - last.before)
    moved = np.array(moved) / (2.0 * last.noise_std)
    assert kstest(moved.ravel(), "norm").pvalue > 1e-6
    assert kstest(moved.ravel() / 1.1, "norm").pvalue < 1e-6
    assert np.abs(np.corrcoef(moved.reshape(300, -1).T) - np.eye(50)).max() < 0.35


# --- the plan -------------------------------------------------------------------------------------------------------


def test_the_plan_lists_all_queries_on_one_subset_at_the_budget():
    kinds = {
        "sizes bought": (Groupwise(FEW), ["groups", "train", "finish"]),
        "sizes public": (Groupwise(FEW, group_sizes=SIZES), ["train", "finish"]),
        "one divisor": (Groupwise(FEW, divisors="common"), ["train", "finish"]),
        "looks": (
            Groupwise(FEW, group_sizes=SIZES, stopping=EarlyStopping(DemographicParity(0.1), 3)),
            ["groups", "train", "finish", "looks"],
        ),
        "groups": (Groupwise(FEW, released="groups"), ["groups", "train", "finish"]),
    }
    for recipe, names in kinds.values():
        for holdout in (0.0, 0.2):
            plan = planned(recipe, PRIVATE, holdout)
            training = [part for part in plan.stages if part.subset == "train"]
            assert [part.name for part in training] == names
            assert {part.share for part in training} == {1 - holdout}
            assert 0.98 < epsilon_of(plan.charges(), 1e-5) <= 1.0
            held_out = [part.name for part in plan.stages if part.subset == "holdout"]
            assert held_out == (["holdout", "smooth rates"] if holdout else [])


def test_last_steps_may_be_sampled_at_their_own_rate():
    recipe = Groupwise(replace(FEW, n_steps=50), finish=FinalSteps(0.2, 1.0, sampling_rate=0.01))
    train, finish = (planned(recipe, PRIVATE, 0.0).stage(name) for name in ("train", "finish"))
    assert (train.n_steps, finish.n_steps) == (40, 10)
    assert (dict(train.rates), dict(finish.rates)) == ({-1: 1.0}, {-1: 0.01})
    assert train.releases == finish.releases
    assert Groupwise(replace(FEW, n_steps=2)).n_first == 1


def test_the_last_step_is_described_in_public_numbers(rng, seeded):
    recipe = Groupwise(FEW, 0.7, group_sizes=(100.0, 300.0), finish=FinalSteps(0.2, 0.9, 0.25))
    trained = run(recipe, PRIVATE, make_records(rng), coins=secret_coins())
    last, noise = (
        trained.fit.last_step,
        planned(recipe, PRIVATE, 0.0).stage("finish").releases[0].noise_multiplier,
    )
    assert last.reach == pytest.approx(0.5 / (0.25 * 2 * 100))
    assert last.noise_std == pytest.approx(noise * ROUNDING * last.reach)
    assert last.margin_std == pytest.approx(math.sqrt(2) * 0.9 * last.noise_std)
    assert (last.learning_rate, last.sampling_rate, last.size) == (0.9, 0.25, 400)
    assert last.is_unwatched and last.several == () and last.checks == ()
    assert np.isfinite(last.before).all()


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choices, words",
    [
        ({"norm_bound": 0.0}, "norm_bound"),
        ({"norm_bound": math.nan}, "norm_bound"),
        ({"divisors": "person"}, "divisors"),
        ({"released": "all"}, "released"),
        ({"descent": Descent(clipping="groups")}, "flat clipping"),
        ({"descent": Descent(features=FeatureDesign(resolution=8))}, "design of features"),
    ],
)
def test_choices_that_make_no_sense_are_refused(choices, words):
    with pytest.raises(InvalidParameterError, match=words):
        Groupwise(**choices)


@pytest.mark.parametrize(
    "choices, words",
    [
        ({"share": 0.0}, "share"),
        ({"share": 1.0}, "share"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"sampling_rate": 0.0}, "sampling_rate"),
        ({"sampling_rate": 1.5}, "sampling_rate"),
        ({"n_models": 0}, "n_models"),
    ],
)
def test_last_steps_that_make_no_sense_are_refused(choices, words):
    with pytest.raises(InvalidParameterError, match=words):
        FinalSteps(**choices)


THREE = Population(SIDES.attributes, ("a", "b", "c"))


@pytest.mark.parametrize(
    "recipe, task, words",
    [
        (Groupwise(), replace(TASK, people=Population((), ("no", "yes"))), "sensitive column"),
        (Groupwise(group_sizes=(1.0,)), TASK, "each of 2 groups"),
        (Groupwise(group_sizes=(1.0, 0.0)), TASK, "above 0"),
        (Groupwise(released="groups", finish=FinalSteps(n_models=2)), TASK, "several models only"),
        (Groupwise(finish=FinalSteps(n_models=2)), replace(TASK, people=THREE), "several models only"),
        (Groupwise(stopping=EarlyStopping(DemographicParity())), replace(TASK, people=THREE), "two classes"),
        (
            Groupwise(stopping=EarlyStopping(DemographicParity()), finish=FinalSteps(n_models=2)),
            TASK,
            "a stopping rule or several models",
        ),
        (Groupwise(Descent(clip_norm=math.inf)), PRIVATE, "finite clip_norm"),
        (Groupwise(), replace(TASK, predicts="decoupled"), "last layer"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_any_debit(recipe, task, words):
    with pytest.raises(InvalidParameterError, match=words):
        planned(recipe, task, 0.0)


# --- values never steer ---------------------------------------------------------------------------------------------


def spoilt(records, how):
    X, y, cells = records.X.copy(), records.y.copy(), records.groups.copy()
    if how == "not numbers":
        X[:3] = np.array([np.nan, np.inf, -np.inf])[:, None]
        X[3] = 3e38
    elif how == "one class":
        y[:] = 0
    elif how == "one group":
        cells[:] = 1
    elif how == "no group":
        cells[:] = -1
    elif how == "nobody":
        X, y, cells = X[:0], y[:0], cells[:0]
    elif how == "one person":
        X, y, cells = X[:1], y[:1], cells[:1]
    return MemoryRecords(X, y, cells)


@pytest.mark.parametrize("n_public", [1, 400, 10**6])
@pytest.mark.parametrize(
    "how", ["nothing", "not numbers", "one class", "one group", "no group", "nobody", "one person"]
)
@pytest.mark.parametrize("released, n_models", [("average", 1), ("groups", 1), ("average", 3)])
def test_values_steer_nothing(rng, how, released, n_models, n_public, seeded):
    """As many draws and releases whatever the rows hold, and finite numbers at the end."""
    steps = []
    recipe = Groupwise(
        Descent("mlp", (4,), 8, 0.3, clip_norm=0.5), released=released, finish=FinalSteps(n_models=n_models)
    )
    task = replace(PRIVATE, n_public=n_public)
    plan, records = planned(recipe, task, 0.0), spoilt(make_records(rng), how)
    veils = open_veils(records, plan, Ledger(), secret_coins(), "a test")
    fit = recipe.train(
        veils, task, float(n_public), np.random.default_rng(0), lambda r: (steps.append(s) or s for s in r)
    )
    assert steps == list(range(8))
    assert {veil._n_left for veil in veils.values()} == {0}
    assert np.isfinite(fit.params).all() and np.isfinite(fit.last_step.before).all()
    assert np.isfinite(fit.sizes if fit.sizes is not None else 0).all()


@pytest.mark.parametrize("released", ["average", "groups"])
def test_the_first_two_steps_decide_slopes_of_hidden_units_row_by_row(rng, monkeypatch, released):
    """After Adam's first step parameters follow from the signs of the noise, which can be guessed."""
    seen, answer = [], MemoryRecords.answer

    def noted(records, batch, query, *words):
        seen.append(getattr(query, "is_row_stable", None))
        return answer(records, batch, query, *words)

    monkeypatch.setattr(MemoryRecords, "answer", noted)
    recipe = Groupwise(replace(FEW, model="mlp", hidden=(3,), n_steps=5), released=released)
    trained_at(recipe, PRIVATE, make_records(rng), 1.0)
    assert [one for one in seen if one is not None] == [True, True, False, False, False]
