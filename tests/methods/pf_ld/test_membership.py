"""Who is probably in which cell: recovered without noise, the plain share under much of it, and never out of bounds."""

import math

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from fairveil import load_dataset
from fairveil.data.encoding import Encoder
from fairveil.methods.pf_ld.membership import basis_for, memberships, public_lengths
from fairveil.models import LinearSoftmax, Perceptron
from fairveil.privacy.attribute import AttributeRecords
from fairveil.privacy.queries import DecisionGradient, Sum
from fairveil.privacy.records import MemoryRecords

EVERYONE = np.array([[0, 0], [1, 1], [-1, -1]])
"""Cells of two groups of any label; the last code is that of people of no group."""
ANY_LABEL = np.ones((2, 2), bool)
BY_LABEL = np.array([[0, 1], [2, 3], [-1, -1]])
OWN_LABEL = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], bool)


def public_of(X, y=None, persons=None):
    y = np.zeros(len(X), np.int16) if y is None else y.astype(np.int16)
    records = MemoryRecords(X.astype(np.float32), y, np.full(len(X), -1, np.int16), persons)
    return AttributeRecords(records).public


def basis_of(public, model=None):
    model = model or LinearSoftmax(public.X.shape[1], 2)
    params = 0.3 * np.random.default_rng(1).normal(size=model.n_params)
    return basis_for(public, model, params.astype(np.float32))


def held_vectors(public, sums, clip_norm):
    """What each row adds to its cell: its slope times its basis, clipped; by a loop in double precision."""
    slopes = DecisionGradient.slopes_of(sums.model.logits(sums.params, public.X))
    rows = slopes[:, None] * sums.basis_of(public.X)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(1, clip_norm / lengths) * public.weights[:, None]


# --- recovery --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip_norm", [0.1, 10.0])
@pytest.mark.parametrize("model", [LinearSoftmax(3, 2), Perceptron(3, (4,), 2)])
def test_linear_chances_are_recovered_from_sums_without_noise(rng, clip_norm, model):
    """Sums of which every row is the part that its chance says: clipped or not, whatever the model's slopes."""
    X = rng.uniform(-1, 1, (400, 3))
    public = public_of(X)
    sums = basis_of(public, model=model)
    chance = 0.4 + X @ [0.2, -0.1, 0.05]
    chances = np.array([chance, 1 - chance])
    released = chances @ held_vectors(public, sums, clip_norm)
    found = memberships(public, sums, released, 0.0, clip_norm, chances.sum(axis=1), ANY_LABEL)
    np.testing.assert_allclose(found, chances, atol=1e-3)


def test_each_label_is_a_world_of_its_own(rng):
    """Cells of (group, label): the slopes differ by label, and are told of every row, had it this label."""
    X, y = rng.uniform(-1, 1, (600, 3)), rng.integers(2, size=600)
    public = public_of(X, y)
    sums = basis_of(public)
    by_label = [0.5 + 0.3 * X[:, 0], 0.3 - 0.2 * X[:, 1]]
    chances = np.array([*by_label, *(1 - chance for chance in by_label)])
    cells = chances * OWN_LABEL.take(y, axis=1)
    released = cells @ held_vectors(public, sums, 0.2)
    found = memberships(public, sums, released, 0.0, 0.2, cells.sum(axis=1), OWN_LABEL)
    np.testing.assert_allclose(found, chances, atol=1e-3)


def test_rows_of_a_person_count_one_together(rng):
    persons = np.repeat(np.arange(100), 3)
    X = rng.uniform(-1, 1, (300, 3))
    public = public_of(X, persons=persons)
    sums = basis_of(public)
    chance = 0.4 + X @ [0.2, -0.1, 0.05]
    chances = np.array([chance, 1 - chance])
    sizes = chances @ public.weights
    assert sizes.sum() == pytest.approx(100)
    found = memberships(public, sums, chances @ held_vectors(public, sums, 0.2), 0.0, 0.2, sizes, ANY_LABEL)
    np.testing.assert_allclose(found, chances, atol=1e-3)


def test_sums_through_the_veil_are_the_sums_used_in_the_bounds(rng):
    """The veil's own sums over true members are the loop's."""
    X = rng.uniform(-1, 1, (200, 3))
    groups = rng.integers(2, size=200).astype(np.int16)
    records = MemoryRecords(X.astype(np.float32), np.zeros(200, np.int16), groups)
    public = AttributeRecords(records).public
    sums = basis_of(public)
    veiled = records.answer(np.arange(200), Sum(EVERYONE, 2, sums), 0.2, 2)
    held = held_vectors(public, sums, 0.2)
    np.testing.assert_allclose(veiled, [held[groups == one].sum(axis=0) for one in (0, 1)], atol=1e-4)
    slopes = DecisionGradient.slopes_of(sums.model.logits(sums.params, public.X))
    expected = np.linalg.norm(slopes[:, None] * sums.basis_of(public.X), axis=1)
    np.testing.assert_allclose(public_lengths(public, sums), expected, rtol=1e-9)


# --- noise -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [1e3, 1e5, 1e7])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_under_huge_noise_every_row_has_the_plain_share(rng, share, noise):
    """Ten draws: noise alone moves nothing, the constant entry included."""
    public = public_of(rng.uniform(-1, 1, (400, 3)))
    sums = basis_of(public)
    plain = np.array([[share], [1 - share]]) @ np.ones((1, 400))
    for _ in range(10):
        released = noise * rng.normal(size=(2, sums.axes.shape[1] + 1))
        found = memberships(public, sums, released, noise, 0.2, 400 * plain[:, 0], ANY_LABEL)
        np.testing.assert_allclose(found, plain, atol=0.1)


@pytest.fixture(scope="module")
def adult():
    people = load_dataset("adult")
    X = Encoder(people.schema.without("sex")).rows(people.X.head(4000))
    return public_of(X), (people.X["sex"].head(4000) == "Male").to_numpy()


def test_less_noise_tells_more_of_adult(adult, rng):
    """The squared error of the chance to be a man is .22 for the plain share, about .1 at best, and falls between."""
    public, is_male = adult
    with threadpool_limits(1):
        sums = basis_of(public)
        clip_norm = float(np.quantile(public_lengths(public, sums), 0.3))
        cells = np.array([is_male, ~is_male]).astype(float)
        exact = cells @ held_vectors(public, sums, clip_norm)
        errors = []
        for multiplier in (1e5, 1e4, 1e3, 30.0, 0.0):
            noise = multiplier * clip_norm
            released = exact + noise * rng.normal(size=exact.shape)
            found = memberships(public, sums, released, noise, clip_norm, cells.sum(axis=1), ANY_LABEL)
            errors.append(np.mean((found[0] - is_male) ** 2))
    assert errors[:3] == pytest.approx([is_male.mean() * (1 - is_male.mean())] * 3, abs=0.01)
    assert errors[2] > errors[3] + 0.02
    assert errors[3] > errors[4] + 0.03


# --- edges -----------------------------------------------------------------------------------------------------------


def found_of(public, noise, rng, sizes=None, cells=EVERYONE, labels=ANY_LABEL):
    n_cells = len(labels)
    sums = basis_of(public)
    released = 5 * rng.normal(size=(n_cells, sums.axes.shape[1] + 1))
    sizes = np.full(n_cells, len(public.y) / 2) if sizes is None else sizes
    return memberships(public, sums, released, noise, 0.3, sizes, labels)


@pytest.mark.parametrize("noise", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(
    "X",
    [
        np.zeros((0, 3)),
        np.ones((1, 3)),
        np.ones((50, 3)),
        np.zeros((50, 3)),
        np.vstack([np.ones((49, 3)), np.zeros((1, 3))]),
        np.eye(3)[np.arange(60) % 3],
    ],
    ids=["no rows", "one row", "constant", "zero", "one other", "one-hot"],
)
def test_few_or_equal_rows_do_not_break_it(rng, X, noise):
    found = found_of(public_of(X), noise, rng)
    assert found.shape == (2, len(X))
    assert ((found >= 0) & (found <= 1)).all()


def test_cells_of_nobody_and_sizes_out_of_range_do_not_break_it(rng):
    """A label without rows, an empty cell, a noisy size below 0 or above everyone."""
    public = public_of(rng.uniform(-1, 1, (50, 3)))
    sizes = np.array([0.0, -20.0, 500.0, math.nextafter(0, 1)])
    found = found_of(public, 1.0, rng, sizes, BY_LABEL, OWN_LABEL)
    assert ((found >= 0) & (found <= 1)).all()
    assert not found[1].any() and not found[3].any()  # nobody has label 1


@pytest.mark.parametrize("seed", range(12))
def test_features_that_one_label_never_shows_do_not_break_it_without_noise(seed):
    """Half of the features are 0 for every row of label 1, which a one-hot column can be: nothing is told of them."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(40, 6)), np.arange(40) % 2
    X[y == 1, :3] = 0
    found = found_of(public_of(X, y), 0.0, rng, np.full(4, 10.0), BY_LABEL, OWN_LABEL)
    assert ((found >= 0) & (found <= 1)).all()
