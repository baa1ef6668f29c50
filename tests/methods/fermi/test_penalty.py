"""The penalty of DP-FERMI: its value and slope against independent ways, its symmetries, its min-max form."""

import numpy as np
import pytest

from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import (
    DemographicParity,
    EqualizedOdds,
    ErrorRateParity,
    FalsePositiveRateParity,
    TruePositiveRateParity,
)
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.fermi.penalty import ClosedForm, MinMax, blocks_of, penalty_and_pull, penalty_of

PEOPLE = Population((Attribute("race", ("a", "b", "c")),), ("low", "middle", "high"))
"""More than two groups and classes."""


def tables(rng, n_groups=3, n_classes=4):
    return rng.uniform(5, 100, size=(n_groups, n_classes))


def by_the_definition(table):
    joint = table / table.sum()
    return np.sum(joint**2 / np.outer(joint.sum(axis=1), joint.sum(axis=0))) - 1


def test_the_penalty_is_the_chi_square_distance_from_independence(rng):
    for _ in range(20):
        table = tables(rng)
        expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
        assert penalty_of(table) == pytest.approx(np.sum((table - expected) ** 2 / expected) / table.sum(), rel=1e-9)
        assert penalty_of(table) == pytest.approx(by_the_definition(table), rel=1e-9)


def test_it_is_zero_exactly_where_all_groups_are_decided_alike(rng):
    alike = np.outer(rng.uniform(10, 1000, 5), rng.dirichlet(np.ones(4)))
    assert penalty_of(alike) == pytest.approx(0, abs=1e-12)
    shifted = alike.copy()
    shifted[0, :2] += [1, -1]
    assert penalty_of(shifted) > 0


def test_the_pull_is_the_derivative(rng):
    for _ in range(5):
        table = tables(rng)
        _, pull = penalty_and_pull(table)
        for place in np.ndindex(*table.shape):
            step = np.zeros_like(table)
            step[place] = 1e-4
            slope = (by_the_definition(table + step) - by_the_definition(table - step)) / 2e-4
            assert pull[place] == pytest.approx(slope, rel=1e-5, abs=1e-10)


def test_renaming_groups_and_classes_changes_nothing(rng):
    table = tables(rng)
    value, pull = penalty_and_pull(table)
    groups, classes = rng.permutation(3), rng.permutation(4)
    other, moved = penalty_and_pull(table[groups][:, classes])
    assert other == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(moved, pull[groups][:, classes], rtol=1e-10)


@pytest.mark.parametrize("counts", [np.zeros((2, 2)), np.full((2, 2), -7.0), np.array([[1e9, -1e9], [3.0, -2.0]])])
def test_counts_that_are_noise_alone_give_a_finite_pull(counts):
    value, pull = penalty_and_pull(counts, 5.0)
    assert np.isfinite(value) and np.isfinite(pull).all()


def test_a_group_lost_in_noise_neither_pulls_nor_is_pulled_at(rng):
    table = tables(rng)
    with_stray = np.vstack([table, [2.0, -1.0, 0.5, 0.0]])
    value, pull = penalty_and_pull(with_stray, 5.0)
    assert value == pytest.approx(penalty_of(table))
    np.testing.assert_allclose(pull, np.vstack([penalty_and_pull(table)[1], np.zeros(4)]))


# --- the parities ---------------------------------------------------------------------------------------------------


def cells_of(constraint, rng, people=PEOPLE):
    """Blocks, exact counts of each cell, and the same by (group, label, decision)."""
    blocks = blocks_of(constraint, people)
    full = rng.uniform(5, 50, size=(people.n_groups, people.n_classes, people.n_classes))
    counts = np.zeros((blocks.n_cells, people.n_classes))
    for group, label in np.ndindex(people.n_groups, people.n_classes):
        cell = blocks.sides.groups.cells[group, label]
        if cell >= 0:
            counts[cell] += full[group, label]
    return blocks, counts, full


def test_each_parity_compares_the_decisions_that_it_names(rng):
    def of(constraint):
        blocks, counts, full = cells_of(constraint, rng)
        return ClosedForm().step((), counts, blocks, 1e-9)[2], full[:3]

    value, full = of(DemographicParity())
    assert value == pytest.approx(by_the_definition(full.sum(axis=1)))
    value, full = of(EqualizedOdds())
    assert value == pytest.approx(sum(by_the_definition(full[:, label]) for label in range(3)))
    value, full = of(TruePositiveRateParity())
    assert value == pytest.approx(by_the_definition(full[:, 2]))
    value, full = of(FalsePositiveRateParity())
    assert value == pytest.approx(sum(by_the_definition(full[:, label]) for label in (0, 1)))
    value, full = of([DemographicParity(), TruePositiveRateParity()])
    assert value == pytest.approx(by_the_definition(full.sum(axis=1)) + by_the_definition(full[:, 2]))


def test_one_attribute_of_several_can_be_compared(rng):
    people = Population((Attribute("sex", ("f", "m")), Attribute("race", ("a", "b"))), ("no", "yes"))
    blocks, counts, full = cells_of(DemographicParity(attribute="race"), rng, people)
    table = full.reshape(3, 3, 2, 2).sum(axis=(0, 2))[:2]
    assert ClosedForm().step((), counts, blocks, 1e-9)[2] == pytest.approx(by_the_definition(table))


def test_parities_of_errors_are_refused():
    with pytest.raises(InvalidParameterError, match="RateConstrainedClassifier"):
        blocks_of(ErrorRateParity(), PEOPLE)


# --- the paper's form -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("constraint", [DemographicParity(), EqualizedOdds()])
def test_w_climbs_to_the_penalty_and_its_pull(rng, constraint):
    """At the maximum over W, value and pull are those of the closed form: the envelope theorem."""
    blocks, counts, _ = cells_of(constraint, rng)
    form = MinMax(rate=0.5, radius=50.0)
    state = form.start(blocks, 3)
    for _ in range(600):
        state, pull, value = form.step(state, counts, blocks, 1e-9)
    _, exact, penalty = ClosedForm().step((), counts, blocks, 1e-9)
    assert value == pytest.approx(penalty, rel=1e-6)
    # a record's decisions add up to 1, so a number that is the same for all classes of a cell pulls at nothing
    centered = [one - one.mean(axis=1, keepdims=True) for one in (pull, exact)]
    np.testing.assert_allclose(centered[0], centered[1], rtol=1e-4, atol=1e-9)


def test_w_stays_in_its_ball(rng):
    blocks, counts, _ = cells_of(DemographicParity(), rng)
    form = MinMax(rate=100.0, radius=1.5)
    state = form.start(blocks, 3)
    for _ in range(5):
        state, _, _ = form.step(state, counts, blocks, 1e-9)
        assert np.linalg.norm(state[0]) == pytest.approx(1.5)


def test_w_follows_groups_that_are_renamed(rng):
    table, order = tables(rng, 3, 3), rng.permutation(3)
    blocks = blocks_of(DemographicParity(), PEOPLE)
    form, found = MinMax(rate=0.3, radius=5.0), []
    for counts in (table, table[order]):
        state = form.start(blocks, 3)
        for _ in range(7):
            state, pull, value = form.step(state, counts, blocks, 1e-9)
        found.append((pull, value))
    np.testing.assert_allclose(found[1][0], found[0][0][order], rtol=1e-10)
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-12)
