"""Gradient sums of groups: what they are, how far one record moves them, and what passes the veil."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from fairveil._random import reproducible_coins
from fairveil.errors import InvalidParameterError, UnplannedReleaseError
from fairveil.methods.fairdp.noise_certificate import parted, widened
from fairveil.models import LinearSoftmax, Perceptron
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import CrossEntropy, GradientSum, GroupGradientSum
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import ROUNDING, open_veils

CLIP = 0.7
MODELS = {
    "linear": LinearSoftmax(3, 2),
    "no bias": LinearSoftmax(3, 2, bias=False),
    "three classes": LinearSoftmax(3, 3),
    "perceptron": Perceptron(3, (5,), 2),
    "two hidden": Perceptron(3, (4, 3), 3),
}


def params_of(model, rng):
    return rng.normal(size=model.n_params).astype(np.float32)


def table(rng, n=60, n_groups=3, n_classes=2):
    X = rng.normal(size=(n, 3)).astype(np.float32)
    y = rng.integers(n_classes, size=n).astype(np.int16)
    return MemoryRecords(X, y, rng.integers(-1, n_groups, size=n).astype(np.int16))


def everyone(records):
    return np.arange(len(records.y))


def one_by_one(records, model, params, clip_norm):
    """The gradient of each record's loss by central differences in double precision, clipped."""
    wide = params.astype(np.float64)

    def loss(place, at):
        logits = model.logits(at, records.X[place : place + 1].astype(np.float64))[:, 0]
        return np.logaddexp.reduce(logits) - logits[records.y[place]]

    steps = 1e-5 * np.eye(model.n_params)
    rows = np.array([[(loss(i, wide + s) - loss(i, wide - s)) / 2e-5 for s in steps] for i in everyone(records)])
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(1.0, clip_norm / np.maximum(norms, 1e-300))


# --- what they are -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip_norm", [CLIP, math.inf])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_group_sums_are_those_of_a_loop_over_records(rng, name, clip_norm):
    model = MODELS[name]
    records, params = table(rng, n_classes=model.n_classes), params_of(model, rng)
    plain = CrossEntropy(np.ones(3, np.float32))
    sums = records.answer(everyone(records), GroupGradientSum(model, params, plain, 3), clip_norm)
    rows = one_by_one(records, model, params, clip_norm)
    expected = [rows[records.groups == group].sum(axis=0) for group in range(3)]
    np.testing.assert_allclose(sums, expected, atol=2e-4)
    assert np.abs(np.roll(expected, 1, axis=0) - expected).max() > 0.1  # groups in another order would show


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_weighted_sum_is_the_sum_of_weighted_clipped_gradients(rng, name):
    """Weights go into the clip norm: a record of half the weight adds half of its *clipped* gradient."""
    model, weights = MODELS[name], np.array([1.0, 0.5, 0.0], np.float32)
    records, params = table(rng, n_classes=model.n_classes), params_of(model, rng)
    total = records.answer(
        everyone(records),
        GradientSum(model, params, CrossEntropy(weights)),
        (CLIP * weights).astype(np.float32),
    )
    rows = one_by_one(records, model, params, CLIP)
    expected = sum(weights[group] * rows[records.groups == group].sum(axis=0) for group in (0, 1))
    np.testing.assert_allclose(total, expected, atol=2e-4)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(0, 40),
    n_groups=st.integers(1, 5),
    n_blocks=st.integers(1, 4),
    name=st.sampled_from(sorted(MODELS)),
)
def test_group_sums_add_up_to_the_whole_sum(seed, n, n_groups, n_blocks, name):
    rng, model = np.random.default_rng(seed), MODELS[name]
    records = table(rng, n, n_groups, model.n_classes).arranged(reproducible_coins(seed)).gathered()
    params, plain = params_of(model, rng), CrossEntropy(np.ones(n_groups, np.float32))
    batch = everyone(records)
    known = batch[records.groups >= 0]
    sums = records.answer(batch, GroupGradientSum(model, params, plain, n_groups), CLIP, n_blocks=n_blocks)
    whole = records.answer(known, GradientSum(model, params, CrossEntropy()), CLIP, n_blocks=n_blocks)
    assert sums.shape == (n_groups, model.n_params)
    np.testing.assert_allclose(sums.sum(axis=0), whole, atol=1e-5 * (1 + n))
    absent = np.setdiff1d(np.arange(n_groups), records.groups)
    assert not sums[absent].any()  # exactly nothing, whether a group has no rows or no name


def test_records_of_no_group_add_nothing(rng):
    model = MODELS["perceptron"]
    records, params = table(rng), params_of(model, rng)
    nobody = replace(records, groups=np.full_like(records.groups, -1))
    plain = CrossEntropy(np.ones(3, np.float32))
    assert not nobody.answer(everyone(nobody), GroupGradientSum(model, params, plain, 3), CLIP).any()
    weights = np.array([1, 1, 0], np.float32)  # the last code is that of people of no group, which -1 reads too
    nothing = nobody.answer(everyone(nobody), GradientSum(model, params, CrossEntropy(weights)), CLIP * weights)
    assert not nothing.any()


# --- how far one record moves them ---------------------------------------------------------------------------


@pytest.fixture
def moves(rng, worst_rows):
    """How far each of the worst rows, by itself, moves what `released` says of nobody, which is 0."""

    def measure(released):
        X = worst_rows(60)
        y, cells = rng.integers(2, size=len(X)), rng.integers(2, size=len(X))
        alone = (
            MemoryRecords(X[[i]], y[[i]].astype(np.int16), cells[[i]].astype(np.int16)).arranged(
                reproducible_coins(int(i))
            )
            for i in range(len(X))
        )
        return np.array([np.linalg.norm(released(one)) for one in alone]), cells

    return measure


WEIGHTS = np.array([1.0, 0.25, 0.0], np.float32)
ONE = np.array([0])


@pytest.mark.parametrize("size", [0.0, 1.0, 50.0])
@pytest.mark.parametrize("name", ["linear", "perceptron"])
def test_no_record_moves_group_sums_by_more_than_the_clip_norm(rng, moves, name, size):
    model = MODELS[name]
    params, plain = (size * params_of(model, rng)).astype(np.float32), CrossEntropy(np.ones(3, np.float32))
    found, _ = moves(lambda records: records.answer(ONE, GroupGradientSum(model, params, plain, 3), CLIP))
    assert np.isfinite(found).all()
    assert 0.99 * CLIP < found.max() <= CLIP * (1 + 1e-6)


@pytest.mark.parametrize("size", [0.0, 1.0, 50.0])
@pytest.mark.parametrize("name", ["linear", "perceptron"])
def test_no_record_moves_a_weighted_sum_by_more_than_its_weight(rng, moves, name, size):
    model, params = MODELS[name], (size * params_of(MODELS[name], rng)).astype(np.float32)
    found, cells = moves(
        lambda records: records.answer(ONE, GradientSum(model, params, CrossEntropy(WEIGHTS)), CLIP * WEIGHTS),
    )
    assert np.isfinite(found).all()
    for group, weight in enumerate(WEIGHTS[:2]):
        assert 0.99 * weight * CLIP < found[cells == group].max() <= weight * CLIP * (1 + 1e-6)


@pytest.mark.parametrize("size", [0.0, 1.0, 50.0])
@pytest.mark.parametrize("name", ["linear", "no bias", "perceptron"])
def test_no_record_moves_gradients_of_several_models_beyond_the_clip(rng, moves, name, size):
    """Algorithm 3: the norm is over all layers of all models together, and a record is in one subset."""
    model, n_models = MODELS[name], 4
    wide = replace(model, n_classes=n_models * model.n_classes)
    params = widened(model, (size * params_of(model, rng)).astype(np.float32), n_models)
    objective = CrossEntropy(np.ones(3, np.float32), n_models)
    found, _ = moves(lambda records: records.answer(ONE, GradientSum(wide, params, objective), CLIP))
    assert np.isfinite(found).all()
    assert 0.99 * CLIP < found.max() <= CLIP * (1 + 1e-6)


# --- several models ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linear", "no bias", "perceptron"])
def test_the_gradients_of_several_models_are_those_of_their_subsets(rng, name):
    """Each last layer feels its own subset, what comes before feels everyone: together the plain gradient."""
    model, n_models = MODELS[name], 3
    records = table(rng, 300, 2).arranged(reproducible_coins(0)).gathered()
    records.groups[:] = np.abs(records.groups)
    params, weights = params_of(model, rng), np.array([1.0, 0.5, 0.0], np.float32)
    wide = replace(model, n_classes=n_models * model.n_classes)
    objective = CrossEntropy(weights, n_models)
    batch = everyone(records)
    got = records.answer(batch, GradientSum(wide, widened(model, params, n_models), objective), math.inf)
    n_last = model.n_classes * (model.hidden[-1] + 1 if name == "perceptron" else 3 + model.bias)
    subsets = (records.uniforms[0] * n_models).astype(int)
    parts = parted(model, got, n_models)
    for subset, part in enumerate(parts):
        own = records.answer(batch[subsets == subset], GradientSum(model, params, CrossEntropy(weights)), math.inf)
        np.testing.assert_allclose(part[-n_last:], own[-n_last:], atol=1e-3)
    whole = records.answer(batch, GradientSum(model, params, CrossEntropy(weights)), math.inf)
    np.testing.assert_allclose(sum(part[-n_last:] for part in parts), whole[-n_last:], atol=1e-3)
    assert all(np.array_equal(part[:-n_last], parts[0][:-n_last]) for part in parts)
    np.testing.assert_allclose(parts[0][:-n_last], whole[:-n_last], atol=1e-3)
    assert set(np.bincount(subsets, minlength=3) > 60) == {True}


def subset_pulls(records, batch, n_models):
    """Which model each row of a batch pulls at."""
    (rows,) = records.blocks(batch, 1)
    pulls = CrossEntropy(np.ones(2, np.float32), n_models).dlogits(
        np.zeros((2 * n_models, len(batch)), np.float32), rows
    )
    return np.abs(pulls).reshape(n_models, 2, -1).sum(axis=1).argmax(axis=0)


def in_chunks(_records, batch, n_models):
    """A twin that cuts the batch into equal pieces, as the paper leaves open."""
    return np.arange(len(batch)) * n_models // max(1, len(batch))


@pytest.mark.parametrize("subsets, others_moved", [(subset_pulls, False), (in_chunks, True)])
def test_a_record_more_moves_no_other_to_another_subset(rng, subsets, others_moved):
    records = table(rng, 200, 2).arranged(reproducible_coins(0)).gathered()
    batch = everyone(records)
    with_all = subsets(records, batch, 5)
    moved = [not np.array_equal(subsets(records, np.delete(batch, i), 5), np.delete(with_all, i)) for i in batch]
    assert any(moved) == others_moved


# --- the veil ------------------------------------------------------------------------------------------------


def veil_of(release, records, n_steps=1):
    plan = Plan((Stage("train", (release,), 1.0, n_steps=n_steps),), 1.0, 1e-5)
    return open_veils(records, plan, Ledger(), reproducible_coins(0), "a test")["train"]


NOBODY = MemoryRecords(np.empty((0, 3), np.float32), np.empty(0, np.int16), np.empty(0, np.int16))


def ask(batch, clip_norm=CLIP, objective=None, **names):
    objective = objective or CrossEntropy(np.ones(3, np.float32))
    model = MODELS["linear"]
    params = np.zeros(model.n_params, np.float32)
    return batch.release_group_gradients(model, params, objective, clip_norm, 3, **names)


def test_each_coordinate_of_each_group_gets_its_own_planned_noise():
    """24 x 400 draws: a scale off by 1.1 would have p below 1e-60, and shared noise a correlation of 1."""
    veil = veil_of(Release("gradients", "gaussian", 2.0), NOBODY, 400)
    drawn = np.array([ask(veil.draw()) for _ in range(400)])
    assert drawn.shape == (400, 3, 8)
    std = 2.0 * CLIP * ROUNDING
    assert kstest(drawn.ravel() / std, "norm").pvalue > 1e-6
    for wrong in (1.1, 1 / 1.1):
        assert kstest(drawn.ravel() / (wrong * std), "norm").pvalue < 1e-6
    correlations = np.corrcoef(drawn.reshape(400, -1).T) - np.eye(24)
    assert np.abs(correlations).max() < 0.3  # six standard deviations


def test_without_noise_the_sums_are_exact(rng):
    records = table(rng)
    sums = ask(veil_of(Release("gradients", "gaussian", 0.0), records).draw(), math.inf)
    expected = one_by_one(records, MODELS["linear"], np.zeros(8, np.float32), math.inf)
    np.testing.assert_allclose(sums[1], expected[records.groups == 1].sum(axis=0), atol=1e-4)


def test_what_is_not_planned_or_not_bounded_is_refused(rng):
    records, planned = table(rng), Release("gradients", "gaussian", 1.0)

    @dataclass(frozen=True)
    class Unregistered:
        def dlogits(self, logits, rows):
            return np.zeros_like(logits)

    with pytest.raises(UnplannedReleaseError, match="registered"):
        ask(veil_of(planned, records).draw(), objective=Unregistered())
    with pytest.raises(UnplannedReleaseError, match="planned"):
        ask(veil_of(planned, records).draw(), name="other")
    with pytest.raises(UnplannedReleaseError, match="gaussian"):
        ask(veil_of(Release("gradients", "laplace", 1.0), records).draw())
    for clip_norm in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InvalidParameterError, match="clip_norm"):
            ask(veil_of(planned, records).draw(), clip_norm)
    batch = veil_of(planned, records).draw()
    ask(batch)
    with pytest.raises(UnplannedReleaseError):
        ask(batch)
