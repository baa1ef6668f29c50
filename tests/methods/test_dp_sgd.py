"""Training against independent ways: plain gradient descent, scikit-learn's optimum, hand-written steps."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from fairveil._random import reproducible_coins, secret_coins
from fairveil.accounting.composition import epsilon_of
from fairveil.errors import InvalidParameterError
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.dp_sgd import CLIPPING, Descent, adapted_clip_norms, adapted_strict
from fairveil.methods.output_perturbation import OutputPerturbation
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import Batch
from fairveil.training.recipe import Task
from fairveil.training.run import make_plan, run_plan

PEOPLE = Population((Attribute("side", ("left", "right")),), ("a", "b", "c"))
TASK = Task(n_features=4, people=PEOPLE, input_norm=math.sqrt(5), n_public=400, epsilon=math.inf, delta=1e-5)


def make_records(rng, n=400, k=3):
    X = rng.uniform(-1, 1, size=(n, 4)).astype(np.float32)
    scores = X @ np.array([[1, 0, -1], [0, 1, 0], [1, 1, 0], [0, 0, 1.0]])[:, :k]
    y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1).astype(np.int16)
    return MemoryRecords(X, y, (X[:, 0] > 0).astype(np.int16))


def run(recipe, task, records, holdout=0.0, coins=None):
    plan = make_plan(recipe, task, holdout)
    coins = coins or reproducible_coins(0)
    return run_plan(plan, recipe, task, records, Ledger(), coins, np.random.default_rng(0))


def softmax_rows(X, W):
    scores = X @ W.T
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def test_without_privacy_it_is_plain_gradient_descent(rng):
    records = make_records(rng)
    recipe = Descent(n_steps=40, sampling_rate=1.0, learning_rate=0.3, momentum=0.5)
    trained = run(recipe, TASK, records)
    X = np.column_stack([records.X, np.ones(400)]).astype(float)
    W, velocity, kept = np.zeros((3, 5)), np.zeros((3, 5)), []
    for step in range(40):
        gradient = (softmax_rows(X, W) - np.eye(3)[records.y]).T @ X / 400
        velocity = 0.5 * velocity + gradient
        W = W - 0.3 * velocity
        if step >= 20:
            kept.append(W)
    expected = np.mean(kept, axis=0)
    assert np.allclose(trained.fit.params[:12].reshape(3, 4), expected[:, :4], atol=1e-5)
    assert np.allclose(trained.fit.params[12:], expected[:, 4], atol=1e-5)


def test_without_privacy_it_reaches_scikit_learns_optimum(rng):
    records = make_records(rng)
    trained = run(Descent(n_steps=4000, sampling_rate=1.0), TASK, records)
    best = LogisticRegression(C=1e6, max_iter=5000).fit(records.X, records.y)
    ours = softmax_rows(np.column_stack([records.X, np.ones(400)]), _columns(trained))
    assert np.allclose(ours, best.predict_proba(records.X), atol=2e-3)


def _columns(trained):
    return np.column_stack([trained.fit.params[:12].reshape(3, 4), trained.fit.params[12:]])


def test_a_finite_clip_norm_still_applies_at_infinite_epsilon(rng):
    records = make_records(rng)
    free = run(Descent(n_steps=20, sampling_rate=1.0, learning_rate=0.5), TASK, records)
    bound = run(Descent(n_steps=20, sampling_rate=1.0, learning_rate=0.5, clip_norm=0.1), TASK, records)
    assert np.linalg.norm(bound.fit.params) < 0.5 * np.linalg.norm(free.fit.params)


def test_the_divisor_is_public_not_the_batch(rng):
    """Twice the declared size halves the step; the number of rows at hand plays no part."""
    records = make_records(rng)
    recipe = Descent(n_steps=1, sampling_rate=1.0, learning_rate=1.0, momentum=0.0)
    one = run(recipe, TASK, records)
    two = run(recipe, replace(TASK, n_public=800), records)
    assert np.allclose(one.fit.params, 2 * two.fit.params, atol=1e-6)


@pytest.mark.parametrize(
    "recipe",
    [*(Descent(n_steps=20, clipping=clipping) for clipping in CLIPPING), OutputPerturbation()],
    ids=[*CLIPPING, "output"],
)
@pytest.mark.parametrize("n_public", [400, None])
@pytest.mark.parametrize("holdout", [0.0, 0.3])
def test_every_plan_meets_its_budget_and_no_more(recipe, n_public, holdout):
    task = replace(TASK, epsilon=0.7, n_public=n_public)
    plan = make_plan(recipe, task, holdout)
    spent = epsilon_of(plan.charges(), task.delta)
    assert 0.69 < spent <= 0.7


def test_more_steps_or_a_larger_rate_need_more_noise():
    def noise(**choices):
        return make_plan(Descent(**choices), replace(TASK, epsilon=1.0)).stage("train").releases[0].noise_multiplier

    assert noise(n_steps=100) < noise(n_steps=400)
    assert noise(sampling_rate=0.05) < noise(sampling_rate=0.2)


@pytest.mark.parametrize("clipping", ["groups", "global_adapt"])
def test_counts_of_long_gradients_are_one_joint_event_with_the_sum(clipping):
    part = make_plan(Descent(clipping=clipping), replace(TASK, epsilon=1.0)).stage("train")
    assert [release.name for release in part.releases] == ["gradient", "clipped"]
    alone = make_plan(Descent(), replace(TASK, epsilon=1.0)).stage("train").releases[0].noise_multiplier
    assert part.releases[0].noise_multiplier == pytest.approx(alone * math.sqrt(1 + 1 / 16), rel=0.02)


def test_adapted_clip_norms_follow_the_clipped_share():
    counts = np.array([[90.0, 10.0], [50.0, 50.0], [0.0, 0.0]])
    norms = adapted_clip_norms(counts, 2.0)
    overall = 60 / 201
    assert norms[0] == pytest.approx(2 * (1 + 0.1 / overall))
    assert norms[1] == pytest.approx(2 * (1 + 0.5 / overall))
    assert norms[2] == pytest.approx(2.0)
    assert (adapted_clip_norms(np.array([[-5.0, 900.0], [900.0, -3.0], [0, 0]]), 1.0) <= 3).all()


def test_group_clipping_gives_the_clipped_group_a_larger_bound(rng, monkeypatch):
    """A group with ten times longer gradients is clipped more often, and then gets a larger clip norm."""
    records = make_records(rng)
    records.X[records.groups == 1] *= 10
    seen = []
    release = Batch.release_gradient

    def watched(batch, model, params, objective, clip_norm):
        seen.append(clip_norm)
        return release(batch, model, params, objective, clip_norm)

    monkeypatch.setattr(Batch, "release_gradient", watched)
    recipe = Descent(n_steps=5, sampling_rate=1.0, clipping="groups", clip_norm=1.0, learning_rate=0.01)
    run(recipe, TASK, records)
    assert len(seen) == 5
    assert all(norms[1] > norms[0] for norms in seen)


def globally_clipped_sum(X, y, W, clip_norm, strict):
    """Return what Esipova et al. add up, one record after the other, and how many gradients are longer than strict."""
    total, n_long = np.zeros_like(W), 0
    for x, label in zip(X, y, strict=True):
        gradient = np.outer(softmax_rows(x[None], W)[0] - np.eye(len(W))[label], x)
        norm = np.linalg.norm(gradient)
        scaled = gradient * (clip_norm / strict if norm <= strict else clip_norm / norm)
        assert np.linalg.norm(scaled) <= clip_norm * (1 + 1e-9)
        total, n_long = total + scaled, n_long + (norm > strict)
    return total, n_long


def test_global_adapt_is_the_papers_loop_over_records(rng):
    """Gradients up to Z are scaled by C / Z, longer ones clipped to C, and Z follows the share of longer ones."""
    records = make_records(rng)
    records.X[::3] *= 4
    recipe = Descent(
        "linear", n_steps=12, sampling_rate=1.0, clip_norm=0.7, learning_rate=0.4, momentum=0.0, clipping="global_adapt"
    )
    trained = run(recipe, TASK, records)
    X, W, strict, kept, stricts = np.column_stack([records.X, np.ones(400)]), np.zeros((3, 5)), 2.5 * 0.7, [], []
    for step in range(12):
        total, n_long = globally_clipped_sum(X.astype(float), records.y, W, 0.7, strict)
        stricts.append(strict)
        W, strict = W - 0.4 * total / 400, max(0.7, strict * math.exp(n_long / 400 - 0.1))
        if step >= 6:
            kept.append(W)
    expected = np.mean(kept, axis=0)
    assert np.allclose(trained.fit.params, np.concatenate([expected[:, :4].ravel(), expected[:, 4]]), atol=1e-5)
    assert stricts[1] > stricts[0] and stricts[-1] < max(stricts)  # up first, then down


def test_global_adapt_keeps_its_strict_norm_above_the_clip_norm():
    nobody, all_of_them = np.array([[400.0, -9.0]]), np.array([[-5.0, 900.0]])
    assert adapted_strict(nobody, 1.02, 400.0) == 1.0
    assert adapted_strict(nobody, 2.0, 400.0) == pytest.approx(2.0 * math.exp(-0.1))
    assert adapted_strict(all_of_them, 2.0, 400.0) == pytest.approx(2.0 * math.exp(0.9))
    assert adapted_strict(np.array([[300.0, 100.0]]), 2.0, 3.0) == pytest.approx(2.0 * math.exp(0.15))
    assert adapted_strict(all_of_them, 9e3, 400.0) == 1e4


def test_without_privacy_and_clip_norm_global_adapt_is_plain_descent(rng):
    records = make_records(rng)
    plain, scaled = (
        run(Descent(n_steps=20, clipping=clipping), TASK, records) for clipping in ("flat", "global_adapt")
    )
    assert np.array_equal(plain.fit.params, scaled.fit.params)


def test_the_size_is_bought_when_it_is_not_declared(rng):
    task = replace(TASK, n_public=None, epsilon=2.0)
    trained = run(Descent(n_steps=5), task, make_records(rng), coins=secret_coins())
    assert trained.size > 0
    assert "size" in [part.name for part in make_plan(Descent(n_steps=5), task).stages]
    exact = run(Descent(n_steps=5), replace(task, epsilon=math.inf), make_records(rng))
    assert exact.size == 400


def test_outcomes_count_every_held_out_record_once(rng):
    records = make_records(rng)
    trained = run(Descent(n_steps=5), TASK, records, holdout=0.5)
    assert trained.outcomes.shape == (3, 3, 3)
    assert 140 < trained.outcomes.sum() < 260
    assert trained.outcomes[2].sum() == 0  # every record has a group
    assert trained.noise_variance == 0


def test_more_budget_brings_a_better_model(rng, seeded):
    records = make_records(rng, n=4000)
    best = LogisticRegression(C=1e6).fit(records.X, records.y)
    errors = []
    for epsilon in (0.05, 8.0):
        trained = run(Descent(), replace(TASK, n_public=4000, epsilon=epsilon), records, coins=secret_coins())
        ours = softmax_rows(np.column_stack([records.X, np.ones(4000)]), _columns(trained))
        errors.append(np.abs(ours - best.predict_proba(records.X)).mean())
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize(
    "choices",
    [
        {"model": "forest"},
        {"clipping": "none"},
        {"n_steps": 0},
        {"momentum": 1.0},
        {"sampling_rate": 0},
        {"learning_rate": -1},
        {"clip_norm": 0},
    ],
)
def test_bad_choices_are_refused(choices):
    with pytest.raises(InvalidParameterError, match=f"Expected.*{next(iter(choices))}"):
        Descent(**choices)


@pytest.mark.parametrize("holdout", [-0.1, 1.0, 2.0])
def test_bad_holdouts_are_refused(holdout):
    with pytest.raises(InvalidParameterError, match="holdout"):
        make_plan(Descent(), TASK, holdout)
