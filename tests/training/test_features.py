"""What features cost, which ones public facts allow, and what descent on them learns: against explicit computations."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairveil import Descent, FeatureDesign, PrivateClassifier
from fairveil._random import secret_coins
from fairveil.accounting.composition import epsilon_of
from fairveil.data.coded import SCHEMA_ONLY, Detail
from fairveil.data.datasets import dataset_schema
from fairveil.data.encoding import Encoder
from fairveil.data.schema import Category, Number, Schema, Target
from fairveil.errors import InvalidParameterError
from fairveil.methods.inputs import InputSpec
from fairveil.models import Decoupled, LinearSoftmax, OptimizerState, Perceptron, Sgd
from fairveil.models.rescaled import Rescaled
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.records import MemoryRecords
from fairveil.training.features import LEVEL_SHARE, PAIR_BINS, RESOLUTION, Drift, rescaling, settled_params
from fairveil.training.run import make_plan, run_plan

SCHEMA = Schema(
    target=Target(column="y", classes=("no", "yes")),
    columns={
        "age": Number(bounds=(0, 10), cuts=(2, 5)), "both": Number(bounds=(-3, 3), cuts=(-1, 1), encode="both"),
        "town": Category(categories=("a", "b", "c")),
    },
    n_public=400,
)  # fmt: skip
BUNDLED = ("adult", "bank", "compas", "acs_income", "law_school")


def task_of(schema=SCHEMA, epsilon=1.0, detail=SCHEMA_ONLY, **changes):
    return replace(InputSpec(schema, (), epsilon, 1e-6, detail=detail).task, **changes)


# --- the price --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_public", [2_000, 100_000, 5_000_000, None])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_levels_take_5_percent_and_the_plan_meets_the_budget(epsilon, n_public):
    task = task_of(dataset_schema("adult"), epsilon, n_public=n_public)
    plan = make_plan(Descent(), task)
    stages = {stage.name: stage for stage in plan.stages}
    levels, train = stages["levels"], stages["train"]
    total = levels.precision + train.precision
    assert levels.precision / total == pytest.approx(LEVEL_SHARE, rel=1e-9)
    assert levels.n_steps == 1 and levels.subset == train.subset and levels.share == train.share
    assert 0.99 * epsilon < epsilon_of([stage.event for stage in plan.stages], 1e-6) <= epsilon
    assert levels.largest_rate == (max(0.1, 2_000_000 / n_public) if n_public == 5_000_000 else 1.0)


def test_without_scaling_nothing_is_counted():
    task = task_of()
    bare = Descent(features=FeatureDesign(frequency_power=0.0))
    assert [stage.name for stage in make_plan(bare, task).stages] == ["train"]
    assert [stage.name for stage in make_plan(Descent(), replace(task, levels=None)).stages] == ["train"]


@pytest.mark.parametrize(
    "facts", [{"frequency_power": -0.1}, {"frequency_power": 2}, {"resolution": 0}, {"pair_bins": 65}]
)
def test_designs_that_make_no_sense_are_refused(facts):
    with pytest.raises(InvalidParameterError, match="Expected"):
        FeatureDesign(**facts)


# --- which features ---------------------------------------------------------------------------------------------------


def rank(detail):
    return detail.resolution, detail.pair_bins


@given(name=st.sampled_from(BUNDLED), n=st.lists(st.integers(1, 10**7), min_size=2, max_size=2),
       epsilons=st.lists(st.floats(0.01, 20), min_size=2, max_size=2))  # fmt: skip
@settings(max_examples=60)
def test_more_people_or_budget_never_make_features_coarser(name, n, epsilons):
    """Monotone in both, apart from pairs that stop fitting once bins are divided; public facts alone are read."""
    schema = dataset_schema(name)
    (few, many), (low, high) = sorted(n), sorted(epsilons)
    design = FeatureDesign()
    tasks = [task_of(schema, own, n_public=size) for own in (low, high) for size in (few, many)]
    found = [design.detail_for(task) for task in tasks]
    for less, more in ((0, 1), (0, 2), (1, 3), (2, 3)):
        assert found[more].resolution >= found[less].resolution
        assert rank(found[more]) >= rank(found[less])
    assert all(own.resolution in (1, RESOLUTION) and own.pair_bins in (0, PAIR_BINS) for own in found)
    assert design.detail_for(replace(tasks[3], n_public=None)) == SCHEMA_ONLY


def test_thresholds_are_those_that_are_stated():
    schema = dataset_schema("adult")
    levels = Encoder(schema).levels
    enough = 25 * levels.n_at(Detail(8))
    facts = {"schema": schema, "epsilon": 1.0}
    assert FeatureDesign(pair_bins=0).detail_for(task_of(**facts, n_public=enough)).resolution == 8
    assert FeatureDesign(pair_bins=0).detail_for(task_of(**facts, n_public=enough - 1)).resolution == 1
    enough = max(10_000, 8 * levels.n_at(Detail(1, 5)))
    assert FeatureDesign(resolution=1).detail_for(task_of(**facts, n_public=enough)).pair_bins == 5
    assert FeatureDesign(resolution=1).detail_for(task_of(**facts, n_public=enough - 1)).pair_bins == 0
    half = task_of(schema, 0.5, n_public=enough)
    assert FeatureDesign(resolution=1).detail_for(half).pair_bins == 0
    assert FeatureDesign(resolution=1).detail_for(task_of(schema, 0.5, n_public=2 * enough)).pair_bins == 5


def test_pairs_that_would_be_too_many_features_are_left_out():
    many = {f"c{place}": Category(categories=tuple(map(str, range(800)))) for place in range(3)}
    schema = Schema(target=Target(column="y", classes=("0", "1")), columns=many, n_public=10**9)
    assert FeatureDesign().detail_for(task_of(schema)).pair_bins == 0


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_models_that_are_named_stay_at_the_bins_of_the_schema(model):
    task = task_of(dataset_schema("adult"), 8.0, n_public=10**6)
    assert Descent().detail_for(task) == Detail(RESOLUTION, PAIR_BINS)
    assert Descent(model=model).detail_for(task) == SCHEMA_ONLY
    stated = Descent(model=model, features=FeatureDesign(resolution=4, pair_bins=3))
    assert stated.detail_for(task) == Detail(4, 3)


# --- the exact twin ---------------------------------------------------------------------------------------------------


def people(rng, n=400):
    X = pd.DataFrame(
        {"age": rng.uniform(-1, 11, n), "both": rng.uniform(-3, 3, n), "town": rng.choice(["a", "b", "c", "d"], n)}
    )
    X.loc[rng.random(n) < 0.1, "age"] = np.nan
    y = ((X["age"].fillna(4) > 4) ^ (rng.random(n) < 0.2)).map({True: "yes", False: "no"})
    return X, y


def seen_design(encoder, X, power):
    """Work out the rescaled design matrix from the table: the scales by hand, column by column."""
    levels, rows = encoder.levels, encoder.rows(X).astype(np.float64)
    counts = rows.sum(axis=0)
    n, n_columns = len(X), len(encoder.slots)
    of = lambda count: max(count, 50.0) ** -power  # noqa: E731
    coarse = {}
    for child, parent in zip(levels.children, levels.parents, strict=True):
        coarse.setdefault(parent, []).append(child)
    columns = [rows[:, children].sum(axis=1) for children in coarse.values()]
    bases = [of(column.sum()) for column in columns]
    weights = {}
    for feature in levels.whole:
        weights[feature] = of(counts[feature]) * (0.5 if feature in levels.children else 1.0)
    plain = [feature for feature in levels.whole if feature not in levels.children]
    usual = sum(counts[f] * weights[f] ** 2 for f in plain) + sum(
        column.sum() * base**2 for column, base in zip(columns, bases, strict=True)
    )
    pairs = range(levels.first_pair, levels.n_features)
    if pairs:
        square = sum(counts[f] * of(counts[f]) ** 2 for f in pairs) / sum(counts[f] for f in pairs)
        for feature in pairs:
            weights[feature] = 0.3 * math.sqrt(usual / (n * n_columns) / square) * of(counts[feature])
    total = sum(counts[f] * weight**2 for f, weight in weights.items()) + sum(
        column.sum() * base**2 for column, base in zip(columns, bases, strict=True)
    )
    unit = math.sqrt(n * n_columns / total)
    scales = np.array([unit * weights[f] if f in weights else 1.0 for f in range(levels.n_features)])
    return np.column_stack([rows * scales, *(unit * b * c for b, c in zip(bases, columns, strict=True))]), scales


def trained_by_hand(Z, y, recipe, rate, n_steps):
    """Full-batch momentum descent on the softmax loss; the average of the last half of the iterates."""
    Z1 = np.column_stack([Z, np.ones(len(Z))])
    theta, velocity, kept = np.zeros((2, Z1.shape[1])), np.zeros((2, Z1.shape[1])), []
    for step in range(n_steps):
        scores = theta @ Z1.T
        law = np.exp(scores - scores.max(axis=0))
        law /= law.sum(axis=0)
        gradient = (law - np.eye(2)[:, y]) @ Z1 / len(Z)
        velocity = recipe.momentum * velocity + gradient
        theta = theta - rate * velocity
        if step >= n_steps // 2:
            kept.append(theta)
    return np.mean(kept, axis=0)


@pytest.mark.parametrize("detail", [Detail(), Detail(1, 2), Detail(4), Detail(4, 2)], ids=str)
def test_without_noise_it_is_descent_on_the_rescaled_design_matrix(detail, rng, monkeypatch):
    monkeypatch.setattr("fairveil.methods.dp_sgd.settled_params", lambda model, params, drift: params)
    X, y = people(rng)
    features = FeatureDesign(0.25, detail.resolution, detail.pair_bins)
    recipe = Descent(
        n_steps=6, sampling_rate=1.0, learning_rate=0.3, momentum=0.5, clip_norm=math.inf, features=features
    )
    clf = PrivateClassifier(epsilon=math.inf, schema=SCHEMA, training=recipe, ledger=Ledger()).fit(X, y)
    encoder = clf.inputs_.encoder
    assert encoder.detail == detail
    Z, _ = seen_design(encoder, X, 0.25)
    square = np.mean(np.square(Z[:, np.delete(np.arange(Z.shape[1]), encoder.layout.scaled)]).sum(axis=1))
    assert square == pytest.approx(3.0)  # as for rows with one 1 in each column
    theta = trained_by_hand(Z, (y == "yes").to_numpy().astype(int), recipe, 0.3, 6)
    scores = theta @ np.column_stack([Z, np.ones(len(Z))]).T
    found = clf.model_.logits(clf.params_, encoder.features(X))
    np.testing.assert_allclose(found, scores, atol=5e-6)
    assert np.ptp(scores[1] - scores[0]) > 0.5


@pytest.mark.parametrize("kind", ["linear", "mlp", "decoupled"])
def test_scales_of_every_model_are_those_of_the_counts(kind, rng):
    encoder = Encoder(SCHEMA, Detail(4))
    X, _ = people(rng)
    base = Perceptron(encoder.n_features, (4,), 2) if kind == "mlp" else LinearSoftmax(encoder.n_features, 2)
    model = Decoupled(base, 2) if kind == "decoupled" else base
    rows = encoder.features(X)
    n = len(X)
    records = MemoryRecords(rows, np.zeros(n, np.int16), np.zeros(n, np.int16))
    task = task_of(epsilon=math.inf, detail=Detail(4))
    own = {}

    def keep(veils, task, *_):
        own["model"] = FeatureDesign().trained_model(model, task, veils)
        raise InterruptedError

    recipe = Descent(features=FeatureDesign(resolution=4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Descent, "train", lambda self, veils, task, *rest: keep(veils, task))
        with pytest.raises(InterruptedError):
            run_plan(make_plan(recipe, task), recipe, task, records, Ledger(), secret_coins(), rng)
    found = own["model"].base if kind == "decoupled" else own["model"]
    assert isinstance(found, Rescaled) and isinstance(own["model"], Decoupled) == (kind == "decoupled")
    np.testing.assert_allclose(found.rescaling.scales, seen_design(encoder, X, 0.25)[1], rtol=1e-9)


@pytest.mark.parametrize("counts", [0.0, -5.0, 1e9, 1e-300])
def test_scales_stay_finite_whatever_the_noisy_counts_are(counts):
    for detail in (Detail(), Detail(8, 5)):
        levels = Encoder(SCHEMA, detail).levels
        for power in (0.0, 0.25, 1.0):
            own = rescaling(levels, np.full(levels.n_features, counts), power)
            for values in (own.scales, own.parent_scales, own.squares):
                assert np.isfinite(values).all() and (values >= 0).all()


# --- what noise moves -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_steps", "momentum"), [(1, 0.0), (40, 0.0), (41, 0.9), (300, 0.9), (300, 0.5)])
def test_the_drift_of_noise_is_that_of_simulated_descent(n_steps, momentum, rng):
    """Of 20,000 walks: the variance errs by 1 % (one standard error), 6 % are allowed; x 2/3 or x 3/2 would show."""
    rate, noise, n_walks = 0.3, 0.7, 20_000
    optimizer, params, state, kept = Sgd(rate, momentum), np.zeros(n_walks, np.float32), OptimizerState(), []
    for step in range(n_steps):
        gradient = noise * rng.normal(size=n_walks)
        params, state = optimizer.step(params, gradient, state)
        if step >= n_steps // 2:
            kept.append(params)
    drift = Drift.of(n_steps, momentum, rate, noise, 1000.0)
    assert np.mean(kept, axis=0).var() == pytest.approx(drift.noise_variance, rel=0.06)


@pytest.mark.parametrize(("n_steps", "momentum"), [(40, 0.0), (300, 0.9)])
def test_the_time_is_how_far_a_constant_slope_carries(n_steps, momentum):
    optimizer, params, state, kept = Sgd(0.01, momentum), np.zeros(1, np.float32), OptimizerState(), []
    for step in range(n_steps):
        params, state = optimizer.step(params, np.array([-1.0]), state)
        if step >= n_steps // 2:
            kept.append(params.astype(np.float64))
    assert np.mean(kept) == pytest.approx(Drift.of(n_steps, momentum, 0.01, 1.0, 1000.0).time, rel=1e-4)


@pytest.fixture
def fine_model():
    levels = Encoder(SCHEMA, Detail(4)).levels
    own = rescaling(levels, np.full(levels.n_features, 100.0), 0.25)
    return Rescaled(LinearSoftmax(levels.n_features, 2), own)


def fine_weights(model, params):
    """Return the fine part of the weights of the children, and the mean of each coarse bin."""
    own = model.rescaling
    fine = params[: 2 * own.n_seen].reshape(2, -1).astype(np.float64)[:, own.children] * own.scales[own.children]
    means = [np.average(fine[:, own.parents == p], axis=1, weights=own.counts[own.children][own.parents == p])
             for p in range(len(own.parent_scales))]  # fmt: skip
    return fine, np.array(means).T


def test_strong_fine_effects_stay_and_weak_ones_are_removed(fine_model, rng):
    model, own = fine_model, fine_model.rescaling
    drift = Drift(noise_variance=1.0, time=1.0, size=1e6)
    params = np.zeros(model.n_params, np.float32)
    children = own.children[own.parents == 0]
    params[children[0]] = 100.0
    params[own.n_seen + children[0]] = -100.0
    fine, means = fine_weights(model, params)
    after, new_means = fine_weights(model, settled_params(model, params, drift))
    assert np.allclose(after, fine, rtol=0.01, atol=0.01 * abs(fine).max())
    np.testing.assert_allclose(new_means, means, atol=1e-3 * abs(fine).max())
    weak = rng.normal(size=model.n_params).astype(np.float32) * 1e-3
    fine, means = fine_weights(model, weak)
    settled = settled_params(model, weak, drift)
    after, new_means = fine_weights(model, settled)
    np.testing.assert_allclose(after, means[:, own.parents], atol=1e-8)
    np.testing.assert_allclose(new_means, means, atol=1e-8)  # what is removed leaves the mean of the coarse bin
    others = np.ones(model.n_params, dtype=bool)
    for row in range(2):
        others[row * own.n_seen + own.children] = False
    assert np.array_equal(settled[others], weak[others])


def test_each_fine_weight_moves_towards_the_mean_and_never_past_it(fine_model, rng):
    """With weights of about the size of noise; the factor is that of the formula, for both classes alike."""
    model, own = fine_model, fine_model.rescaling
    drift = Drift(noise_variance=1.0, time=3.0, size=1e4)
    params = (2.0 * rng.normal(size=model.n_params)).astype(np.float32)
    fine, means = fine_weights(model, params)
    after, _ = fine_weights(model, settled_params(model, params, drift))
    away = fine - means[:, own.parents]
    factors = (after - means[:, own.parents]) / away
    np.testing.assert_allclose(factors[0], factors[1], atol=1e-4)
    assert (factors > -1e-5).all() and (factors < 1 + 1e-5).all() and (factors < 1e-4).any() and (factors > 0.3).any()
    counts, scales = own.counts[own.children], own.scales[own.children]
    share = np.array([counts[own.parents == p].sum() for p in own.parents])
    noise = scales**2 * drift.variance(counts, scales) * (1 - counts / share)
    np.testing.assert_allclose(factors[0], np.maximum(0, 1 - noise / np.mean(away**2, axis=0)), atol=1e-4)


def test_networks_and_plain_models_keep_their_weights(fine_model, rng):
    drift = Drift(1.0, 1.0, 1e6)
    for model in (LinearSoftmax(5, 2), Rescaled(Perceptron(fine_model.n_features, (3,), 2), fine_model.rescaling)):
        params = rng.normal(size=model.n_params).astype(np.float32)
        assert np.array_equal(settled_params(model, params, drift), params)
    both = Decoupled(fine_model, 2)
    params = rng.normal(size=both.n_params).astype(np.float32)
    parts = [settled_params(fine_model, own, drift) for own in params.reshape(2, -1)]
    assert np.array_equal(settled_params(both, params, drift), np.concatenate(parts))
