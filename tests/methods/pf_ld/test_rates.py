"""Everyone's rate less each group's, as PF-LD states parities: against a loop over people, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import (
    DemographicParity,
    EqualizedOdds,
    ErrorRateParity,
    FalseNegativeRateCap,
    TruePositiveRateParity,
)
from fairveil.fairness.rates import Attribute, Population
from fairveil.fairness.rule_parser import Rule
from fairveil.methods.pf_ld.membership import against_all

SEX = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
RACE = Population((Attribute("race", ("a", "b", "c", "d", "e")),), ("no", "yes"))
THREE = Population((Attribute("sex", ("f", "m")),), ("low", "mid", "high"), 2)
BOTH = Population((Attribute("sex", ("f", "m")), Attribute("race", ("a", "b", "c"))), ("no", "yes"))


def written(constraint, people):
    return [str(bound).removesuffix(" <= 0") for bound in against_all(constraint, people).bounds]


def test_each_group_is_compared_with_everyone():
    assert written(DemographicParity(), SEX) == [
        "selection_rate - selection_rate[sex=f]",
        "selection_rate - selection_rate[sex=m]",
    ]
    assert written(EqualizedOdds(), SEX) == [
        f"{rate} - {rate}[sex={group}]"
        for rate in ("true_positive_rate", "false_positive_rate")
        for group in ("f", "m")
    ]
    assert written(ErrorRateParity(), SEX) == [
        "error_rate - error_rate[sex=f]",
        "error_rate - error_rate[sex=m]",
    ]
    assert len(written(DemographicParity(), RACE)) == 5
    assert len(written(DemographicParity(), THREE)) == 3 * 2  # each class by itself
    assert len(written(ErrorRateParity(), THREE)) == 2
    assert len(written(DemographicParity(), BOTH)) == 6
    assert len(written(DemographicParity(attribute="race"), BOTH)) == 3


def test_a_tolerance_has_no_part_in_it_and_nothing_is_said_twice():
    assert written(DemographicParity(0.3), SEX) == written(DemographicParity(), SEX)
    several = [EqualizedOdds(), TruePositiveRateParity(), DemographicParity()]
    assert len(written(several, SEX)) == 4 + 2
    assert len(against_all(several, SEX)) == 6


# --- the numbers, against a loop over people -------------------------------------------------------------------------


def counted(cells, n_cells, labels, decisions, groups, n_classes):
    """Counts by (cell, decision) of people with a cell."""
    table = np.zeros((n_cells, n_classes))
    for group, label, decision in zip(groups, labels, decisions, strict=True):
        if cells[group, label] >= 0:
            table[cells[group, label], decision] += 1
    return table


RATES = {
    DemographicParity: [lambda y, d: (d == 1, np.ones(len(y), bool))],
    EqualizedOdds: [lambda y, d: (d == 1, y == 1), lambda y, d: (d == 1, y == 0)],
    ErrorRateParity: [lambda y, d: (d != y, np.ones(len(y), bool))],
}


def mean_where(hits, among):
    return hits[among].sum() / max(1, among.sum())


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 80),
    kind=st.sampled_from(sorted(RATES, key=lambda one: one.__name__)),
    people=st.sampled_from([SEX, RACE]),
)
def test_violations_are_everyones_rate_less_the_groups(seed, n, kind, people):
    """Everyone includes people of no known group, who are in no group's count."""
    rng, sides = np.random.default_rng(seed), against_all(kind(), people)
    groups = rng.integers(-1, len(people.codes), n)
    labels, decisions = rng.integers(2, size=(2, n))
    of_groups = counted(sides.groups.cells, sides.n_cells, labels, decisions, groups, 2)
    nobody = np.full(n, people.n_groups - 1)
    of_all = counted(sides.everyone.cells, sides.everyone.n_cells, labels, decisions, nobody, 2)
    assert of_all.sum() == n
    expected = []
    for rate in RATES[kind]:
        hits, among = rate(labels, decisions)
        own = [mean_where(hits, among & (groups == group)) for group in range(len(people.codes))]
        expected += [mean_where(hits, among) - one for one in own]
    np.testing.assert_allclose(sides.violations(of_groups, of_all), expected, atol=1e-12)


def test_the_largest_less_the_smallest_is_the_gap_between_groups(rng):
    """The paper measures the largest difference between two groups; everyone's rate cancels in it."""
    sides = against_all(DemographicParity(), RACE)
    counts = rng.integers(1, 50, (5, 2)).astype(float)
    rates = counts[:, 1] / counts.sum(axis=1)
    found = sides.violations(counts, counts.sum(axis=0, keepdims=True))
    assert np.ptp(found) == pytest.approx(np.ptp(rates))
    assert counts.sum(axis=1) @ found == pytest.approx(0, abs=1e-9)  # everyone is the mean of the groups


def test_three_classes_by_hand():
    sides = against_all(DemographicParity(), THREE)
    counts = np.array([[2.0, 1.0, 1.0], [0.0, 4.0, 0.0]])
    told = dict(zip(map(str, sides.bounds), sides.violations(counts, counts.sum(axis=0, keepdims=True)), strict=True))
    assert told["selection_rate(low) - selection_rate(low)[sex=f] <= 0"] == pytest.approx(2 / 8 - 2 / 4)
    assert told["selection_rate(mid) - selection_rate(mid)[sex=m] <= 0"] == pytest.approx(5 / 8 - 1)


def test_cells_know_their_labels():
    assert against_all(DemographicParity(), SEX).cell_labels.tolist() == [[True, True]] * 2
    odds = against_all(EqualizedOdds(), SEX)
    assert sorted(odds.cell_labels.tolist()) == [[False, True]] * 2 + [[True, False]] * 2
    only = against_all(TruePositiveRateParity(), SEX)
    assert only.cell_labels.tolist() == [[False, True]] * 2
    assert only.label_cells.tolist() == [-1, 0]  # people of label 0 are not counted


def test_an_empty_group_is_at_a_rate_of_0_and_divides_by_nothing():
    sides = against_all(DemographicParity(), SEX)
    found = sides.violations(np.array([[0.0, 0.0], [3.0, 1.0]]), np.array([[3.0, 1.0]]))
    assert found == pytest.approx([0.25, 0.0])


@pytest.mark.parametrize(
    "asked, people",
    [
        ([], SEX),
        ("demographic_parity", SEX),
        (0.1, SEX),
        (DemographicParity(ratio=0.8), SEX),
        (FalseNegativeRateCap(0.3), SEX),
        (Rule("selection_rate <= 0.2"), SEX),
        ([DemographicParity(), Rule("selection_rate <= 0.2")], SEX),
        (DemographicParity(), Population((Attribute("sex", ("f",)),), ("no", "yes"))),
        (DemographicParity(attribute="race"), SEX),
        (DemographicParity(), Population((), ("no", "yes"))),
    ],
)
def test_what_is_no_difference_between_groups_is_refused(asked, people):
    with pytest.raises(InvalidParameterError, match="Expected"):
        against_all(asked, people)
