"""Sums kept apart by group: what the change of an attribute costs, and what the veil lets through for it."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from fairveil._random import secret_coins
from fairveil.accounting.composition import NeighboringRelation, delta_of, epsilon_of
from fairveil.accounting.events import (
    DiscreteGaussianRelease,
    DisjointCells,
    GaussianRelease,
    PoissonSampled,
    Repeated,
    event_from_dict,
    to_dict,
)
from fairveil.errors import InvalidParameterError, UnplannedReleaseError
from fairveil.models import LinearSoftmax
from fairveil.privacy.attribute import AttributeRecords, attribute_unit
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import Count, CrossEntropy, DecisionGradient, SoftDecision, Sum
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import open_veils

DELTA = 1e-5
UNIT = attribute_unit(["sex"], "record")
CHANGE = NeighboringRelation.REPLACE_ONE
CELLS = np.array([[0, 0], [1, 1], [-1, -1]])


@pytest.mark.parametrize(
    ("rate", "noise", "count", "known", "changed"),
    [(0.02, 2.0, 500, 0.921, 1.285), (0.01, 1.0, 1000, 1.828, 2.396)],
)
def test_a_change_costs_one_record_less_and_one_more(rate, noise, count, known, changed):
    steps = Repeated(DisjointCells(PoissonSampled(rate, GaussianRelease(noise))), count)
    assert epsilon_of([steps], DELTA) == pytest.approx(known, abs=2e-3)
    assert epsilon_of([steps], DELTA, CHANGE) == pytest.approx(changed, abs=2e-3)
    together = Repeated(PoissonSampled(rate, GaussianRelease(noise)), count)
    assert epsilon_of([together], DELTA) == epsilon_of([steps], DELTA)
    assert epsilon_of([steps], DELTA, CHANGE) < epsilon_of([together], DELTA, CHANGE)


def test_without_sampling_two_shifts_at_right_angles_make_one():
    for noise in (0.7, 4.0):
        apart = epsilon_of([DisjointCells(GaussianRelease(noise))], DELTA, CHANGE)
        assert apart == pytest.approx(epsilon_of([GaussianRelease(noise / math.sqrt(2))], DELTA), rel=1e-4)


def test_the_price_is_the_exact_curve_of_two_sampled_blocks():
    """By integration over both blocks: rate q, shift 1, noise z; a record leaves one sum and enters the other."""
    q, z, epsilon = 0.3, 1.5, 0.4
    x = np.linspace(-9, 10, 1501)
    base, moved = norm.pdf(x, 0, z), (1 - q) * norm.pdf(x, 0, z) + q * norm.pdf(x, 1, z)
    one, other = moved[:, None] * base, base[:, None] * moved
    exact = np.maximum(one - math.exp(epsilon) * other, 0).sum() * (x[1] - x[0]) ** 2
    priced = delta_of([DisjointCells(PoissonSampled(q, GaussianRelease(z)))], epsilon, CHANGE)
    assert exact <= priced * (1 + 1e-3)
    assert priced == pytest.approx(exact, rel=0.02)


def test_whole_numbers_and_their_form_on_paper():
    event = Repeated(DisjointCells(DiscreteGaussianRelease(4.0)), 3)
    assert event_from_dict(to_dict(event)) == event
    smooth = Repeated(DisjointCells(GaussianRelease(4.0)), 3)
    assert epsilon_of([event], DELTA, CHANGE) == pytest.approx(epsilon_of([smooth], DELTA, CHANGE), rel=0.01)


def plan_of(*releases, unit=UNIT, by_group=True):
    return Plan((Stage("train", releases, by_group=by_group),), 1.0, DELTA, unit)


def test_only_an_attribute_and_only_one_release_a_batch_are_priced_so():
    with pytest.raises(InvalidParameterError, match="stay in its group"):
        plan_of(Release("counts", "gaussian", 3.0), unit="record")
    with pytest.raises(InvalidParameterError, match="one release a batch"):
        plan_of(Release("counts", "gaussian", 3.0), Release("sums", "gaussian", 3.0))
    part = plan_of(Release("counts", "gaussian", 3.0)).stages[0]
    assert Stage.from_dict(part.to_dict()) == part


def batch_of(rng, release):
    X = rng.normal(size=(40, 3)).astype(np.float32)
    y, cells = (rng.integers(0, 2, 40).astype(np.int16) for _ in range(2))
    records = AttributeRecords.of(MemoryRecords(X, y, cells), np.array([0, 1]))
    return open_veils(records, plan_of(release), Ledger(), secret_coins(), "a test")["train"].draw()


def test_the_veil_refuses_what_mixes_groups(rng):
    model, params = LinearSoftmax(3, 2), np.zeros(8, np.float32)
    gradient = Release("gradient", "gaussian", 3.0)
    with pytest.raises(UnplannedReleaseError, match="keep groups apart"):
        batch_of(rng, gradient).release_gradient(model, params, CrossEntropy(), 1.0)
    soft = Sum(CELLS, 2, SoftDecision(model, params))
    with pytest.raises(UnplannedReleaseError, match="keep groups apart"):
        batch_of(rng, Release("histogram", "gaussian", 3.0)).release_sums(soft, 1.0)
    counts = batch_of(rng, Release("counts", "gaussian", 3.0)).release_counts(Count(CELLS, 2))
    assert counts.shape == (2,)
    sums = Sum(CELLS, 2, DecisionGradient(model, params, np.zeros(3), np.eye(3), 1.0))
    released = batch_of(rng, Release("sums", "gaussian", 3.0)).release_sums(sums, 1.0, "sums")
    assert released.shape == (2, 4)


def test_what_basis_sums_add_does_not_depend_on_the_group(rng):
    X = rng.normal(size=(30, 3)).astype(np.float32)
    y = rng.integers(0, 2, 30).astype(np.int16)
    model, params = LinearSoftmax(3, 2), rng.normal(size=8).astype(np.float32)
    sums = Sum(CELLS, 2, DecisionGradient(model, params, np.zeros(3), np.eye(3), 1.0))
    totals = []
    for group in (0, 1):
        records = MemoryRecords(X, y, np.full(30, group, np.int16))
        totals.append(records.answer(np.arange(30), sums, 0.2, 2)[group])
    assert np.array_equal(*totals)
