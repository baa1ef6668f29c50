"""Votes: the mean of h that PF-LD's printed form asks for, against loops over records and finite differences."""

import math
from itertools import pairwise

import numpy as np
import pytest

from fairveil._random import secret_coins
from fairveil.fairness.constraints import ErrorRateParity
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.pf_ld.membership import against_all
from fairveil.models import LinearSoftmax, Perceptron
from fairveil.models.row_stable import row_stable_forward
from fairveil.privacy import votes as votes_module
from fairveil.privacy.attribute import AttributeRecords, attribute_unit
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import GradientSum, Sum
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import ROUNDING, open_veils
from fairveil.privacy.votes import VotePrice, Votes, label_losses, vote_pull, votes_of

PEOPLE = Population((Attribute("side", ("few", "many")),), ("no", "yes"))
SIDES = against_all(ErrorRateParity(), PEOPLE)
UNIT = attribute_unit(["side"], "record")
LOSS_BOUND, CLIP = 0.9, 0.3


def table(rng, n=200, d=3):
    X = (rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 1, (n, 1))).astype(np.float32)
    return MemoryRecords(X, rng.integers(2, size=n).astype(np.int16), rng.integers(2, size=n).astype(np.int16))


def quiet(records, *names):
    """A veil over everyone, without noise."""
    stage = Stage("train", tuple(Release(name, "gaussian", 0.0) for name in names))
    veils = open_veils(AttributeRecords.of(records, PEOPLE.codes), Plan((stage,), 1.0, 1e-5, UNIT), Ledger(),
                       secret_coins(), "a test")  # fmt: skip
    return veils["train"].draw()


def loop_of_losses(model, params, records, bound):
    """min(loss, bound) of each record, one after the other and in double precision."""
    found = []
    for row, label in zip(records.X, records.y, strict=True):
        logits = model.logits(params, row[None]).astype(np.float64)[:, 0]
        loss = math.log(sum(math.exp(one - logits[label]) for one in logits))
        found.append(min(loss, bound))
    return np.array(found)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("bound", [0.1, 5.0])
def test_votes_are_at_most_one_long_and_err_by_the_loss(rng, n_classes, bound):
    logits, y = 10 * rng.normal(size=(n_classes, 300)), rng.integers(n_classes, size=300)
    votes = votes_of(logits, y, bound)
    assert votes.min() >= 0 and np.linalg.norm(votes, axis=0).max() <= 1 + 1e-12
    np.testing.assert_allclose(votes.sum(axis=0), 1.0)
    losses = -logits[y, np.arange(300)] + np.log(np.exp(logits).sum(axis=0))
    np.testing.assert_allclose(1 - votes[y, np.arange(300)], np.minimum(losses, bound) / bound, atol=1e-12)
    scores = votes_of(logits, y, None)
    np.testing.assert_allclose(scores, np.exp(logits) / np.exp(logits).sum(axis=0), rtol=1e-9)


@pytest.mark.parametrize("kind", ["linear", "perceptron"])
def test_released_error_rates_are_the_groups_mean_clipped_loss(rng, kind):
    model = {"linear": LinearSoftmax(3, 2), "perceptron": Perceptron(3, (5,), 2)}[kind]
    params, records = rng.normal(size=model.n_params).astype(np.float32), table(rng)
    cells = SIDES.groups
    query = Sum(cells.cells, cells.n_cells, Votes(model, params, LOSS_BOUND))
    sums = quiet(records, "decisions").release_sums(query, 1.0, "decisions")
    losses = loop_of_losses(model, params, records, LOSS_BOUND)
    expected = [losses[records.groups == group].mean() for group in (0, 1)]
    np.testing.assert_allclose(LOSS_BOUND * cells.values(sums), expected, rtol=1e-5)
    assert (losses == LOSS_BOUND).any() and (losses < LOSS_BOUND).any()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("bound", [None, 0.9])
def test_the_pull_is_the_derivative_of_the_price(rng, n_classes, bound):
    logits, y = rng.normal(size=(n_classes, 100)), rng.integers(n_classes, size=100)
    tilts = rng.normal(size=(n_classes, 100))
    expected = np.empty_like(logits)
    for k in range(n_classes):
        step = 1e-6 * (np.arange(n_classes) == k)[:, None]
        prices = [(tilts * votes_of(logits + sign * step, y, bound)).sum(axis=0) for sign in (1, -1)]
        expected[k] = (prices[0] - prices[1]) / 2e-6
    np.testing.assert_allclose(vote_pull(logits, y, tilts, bound), expected, atol=1e-5)
    if bound is not None:
        is_cut = label_losses(logits, y) > bound
        assert is_cut.any() and not vote_pull(logits, y, tilts, bound)[:, is_cut].any()


def gradient_loop(model, params, records, pull, bounds, loss_bound):
    """Sum of gradients of min(loss, C_d), each cut to its group's bound by itself."""
    total, losses = np.zeros(model.n_params), loop_of_losses(model, params, records, math.inf)
    for place, (row, label, group) in enumerate(zip(records.X, records.y, records.groups, strict=True)):
        if losses[place] >= loss_bound:
            continue
        logits = model.logits(params, row[None])
        soft = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        own, other = pull[2 * group + label, [label, 1 - label]]
        dlogits = (other - own) / loss_bound * (soft - (np.arange(2) == label)[:, None])
        gradient = model.clipped_gradient(params, row[None], dlogits.astype(np.float32), math.inf)
        total += gradient * min(1.0, bounds[group] / max(np.linalg.norm(gradient), 1e-30))
    return total


@pytest.mark.parametrize("kind", ["linear", "perceptron"])
def test_the_gradient_of_the_clipped_loss_is_clipped_record_by_record(rng, kind):
    model = {"linear": LinearSoftmax(3, 2), "perceptron": Perceptron(3, (5,), 2)}[kind]
    params, records = rng.normal(size=model.n_params).astype(np.float32), table(rng)
    pull, bounds = rng.normal(size=(4, 2)).astype(np.float32), np.array([0.2, 0.5], np.float32)
    got = quiet(records, "gradient").release_gradient(model, params, VotePrice(pull, 1.0, LOSS_BOUND), bounds)
    expected = gradient_loop(model, params, records, pull, bounds, LOSS_BOUND)
    np.testing.assert_allclose(got, expected, atol=1e-3)
    loose = gradient_loop(model, params, records, pull, [math.inf] * 2, LOSS_BOUND)
    clipped_mean = loose * min(1.0, 200 * 0.5 / np.linalg.norm(loose))
    assert np.abs(got - clipped_mean).max() > 0.05  # the print's clip of the whole is another thing


def test_a_loss_that_is_not_cut_moves_no_sum_further_and_is_found_out(rng, monkeypatch):
    """A twin whose votes have no bound: the sum itself still holds it, and the rates are seen to be wrong."""
    model, records = LinearSoftmax(3, 2), table(rng)
    params = 10 * rng.normal(size=model.n_params).astype(np.float32)

    def uncut(logits, y, loss_bound):
        loss = label_losses(logits, y) / loss_bound
        return np.where(np.arange(2)[:, None] == y, 1 - loss, loss)

    monkeypatch.setattr(votes_module, "votes_of", uncut)
    cells = SIDES.groups
    query = Sum(cells.cells, cells.n_cells, Votes(model, params, LOSS_BOUND))
    for place in range(0, 200, 10):
        alone = MemoryRecords(records.X[[place]], records.y[[place]], records.groups[[place]])
        sums = quiet(alone, "decisions").release_sums(query, 1.0, "decisions")
        assert np.linalg.norm(sums) <= 1 + 2e-6
    sums = quiet(records, "decisions").release_sums(query, 1.0, "decisions")
    losses = loop_of_losses(model, params, records, LOSS_BOUND)
    expected = np.array([losses[records.groups == group].mean() for group in (0, 1)])
    assert np.abs(LOSS_BOUND * cells.values(sums) - expected).max() > 0.05


def test_a_loss_depends_on_its_own_row_to_the_last_bit(rng):
    for n_classes in (2, 3, 7):
        logits = rng.normal(size=(n_classes, 67))
        y = rng.integers(n_classes, size=67)
        for kind in (np.float32, np.float64):
            whole = label_losses(logits.astype(kind), y)
            for start in range(0, 40, 7):
                rows = rng.permutation(67)[start:]
                assert np.array_equal(label_losses(logits[:, rows].astype(kind), y[rows]), whole[rows])


@pytest.mark.parametrize("kind", ["linear", "perceptron"])
def test_a_row_more_takes_no_equal_rows_over_the_edge_of_the_loss(rng, kind):
    """500 equal rows whose loss is at C_d but for rounding, at parameters that are known: one row moves one bound."""
    model = {"linear": LinearSoftmax(35, 2), "perceptron": Perceptron(35, (8,), 2)}[kind]
    params, row = rng.normal(size=model.n_params).astype(np.float32), rng.normal(size=35).astype(np.float32)
    logits = row_stable_forward(model, params, np.tile(row, (500, 1)))[-1]
    label = int(logits[:, 0].argmin())  # the unlikely one: its loss is large
    (loss,) = set(label_losses(logits, np.full(500, label, np.int16)).tolist())
    moved = []
    for edge in (loss, np.nextafter(np.float32(loss), np.float32(99))):
        price = VotePrice(np.array([[5.0, -5.0], [5.0, -5.0]], np.float32), 1.0, float(edge))
        query = GradientSum(model, params, price, is_row_stable=True)
        sums = []
        for n in range(480, 501):
            records = MemoryRecords(np.tile(row, (n, 1)), np.full(n, label, np.int16), np.zeros(n, np.int16))
            sums.append(records.answer(np.arange(n), query, CLIP, 2))
        moved.append(max(np.linalg.norm(more - less) for less, more in pairwise(sums)))
    assert moved[0] == 0
    assert 0.9 * CLIP < moved[1] <= ROUNDING * CLIP
