import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import (
    DemographicParity,
    EqualizedOdds,
    ErrorRateParity,
    FalseNegativeRateCap,
    FalsePositiveRateCap,
    PrecisionParity,
    constrain,
)
from fairveil.fairness.rates import Attribute, Population, smallest_partition
from fairveil.fairness.rule_parser import Rule

SEX = Attribute("sex", ("f", "m"))
RACE = Attribute("race", ("a", "b", "c"))


def frame(n_classes=2, attributes=(SEX, RACE), positive=1):
    return Population(attributes, tuple(f"class {k}" for k in range(n_classes)), positive)


def test_codes_name_every_combination_and_none_comes_last():
    people = frame()
    assert people.shape == (3, 4)
    assert people.n_groups == 12
    assert people.names == ("f, a", "f, b", "f, c", "m, a", "m, b", "m, c")
    assert people.codes.tolist() == [0, 1, 2, 4, 5, 6]
    levels = [np.array([0, 1, -1, -1]), np.array([0, 2, 1, -1])]
    assert people.code(levels).tolist() == [0, 6, 9, 11]


def test_without_attributes_there_is_everyone_and_no_group():
    people = frame(attributes=())
    assert (people.n_groups, people.names, people.codes.tolist()) == (1, (), [])
    assert people.members([]).tolist() == [True]


@given(st.data())
@settings(max_examples=50)
def test_members_and_the_rest_agree_with_rows(data):
    people = frame()
    levels = [np.array(data.draw(st.lists(st.integers(-1, size - 2), min_size=5, max_size=5))) for size in (3, 4)]
    codes = people.code(levels)
    sex, race = data.draw(st.sampled_from(SEX.groups)), data.draw(st.sampled_from(RACE.groups))
    is_sex, is_race = levels[0] == SEX.groups.index(sex), levels[1] == RACE.groups.index(race)
    assert (people.members([("sex", sex)])[codes] == is_sex).all()
    assert (people.members([("race", race), ("sex", sex)])[codes] == (is_sex & is_race)).all()
    rest = people.members([("race", race)], rest=True)
    assert (rest[codes] == (levels[1] >= 0) & ~is_race).all()
    assert people.members([])[codes].all()


def test_unknown_names_are_refused_with_the_known_ones():
    people = frame()
    with pytest.raises(InvalidParameterError, match="attribute of sex, race; got 'age'"):
        people.members([("age", "old")])
    with pytest.raises(InvalidParameterError, match=r"group of 'sex' \(f, m\); got 'x'"):
        people.members([("sex", "x")])
    with pytest.raises(InvalidParameterError, match="classes class 0, class 1; got 'yes'"):
        people.class_code("yes")


def test_frames_that_make_no_sense_are_refused():
    with pytest.raises(InvalidParameterError, match="distinct groups of 'sex', got 'f' twice"):
        frame(attributes=(Attribute("sex", ("f", "f")),))
    with pytest.raises(InvalidParameterError, match="distinct attributes"):
        frame(attributes=(SEX, SEX))
    with pytest.raises(InvalidParameterError, match="distinct classes"):
        Population((SEX,), ("no", "no"))
    with pytest.raises(InvalidParameterError, match="positive"):
        frame(positive=2)
    with pytest.raises(InvalidParameterError, match="at most 32767 combinations"):
        frame(attributes=tuple(Attribute(str(i), tuple(map(str, range(40)))) for i in range(3)))
    assert frame(positive=-1).positive == 1


@given(arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=8)))
@settings(max_examples=200)
def test_the_partition_is_remark_1(memberships):
    """Two atoms share a cell if and only if every subset holds both or neither; atoms of no subset have no cell."""
    cells = smallest_partition(memberships)
    n_atoms = memberships.shape[1]
    for one in range(n_atoms):
        assert (cells[one] == -1) == (not memberships[:, one].any())
        for other in range(n_atoms):
            apart = any(subset[one] != subset[other] for subset in memberships)
            assert (cells[one] == cells[other]) == (not apart)
    assert sorted(set(cells[cells >= 0])) == list(range(cells.max() + 1))
    for subset in memberships:
        assert set(cells[subset]).isdisjoint(cells[~subset])


@given(arrays(bool, (3, 5)))
@settings(max_examples=50)
def test_no_coarser_partition_will_do(memberships):
    """Joining any two cells makes some subset stop being a union of cells."""
    cells = smallest_partition(memberships)
    for one in range(cells.max() + 1):
        for other in range(one):
            joined = np.where(cells == one, other, cells)
            assert any(set(joined[subset]) & set(joined[~subset]) for subset in memberships)


def sizes(constraint, people):
    ready = constrain(constraint, people)
    return ready.n_cells, ready.cells


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("against", ["pairs", "rest"])
def test_demographic_parity_needs_no_labels(n_classes, against):
    n_cells, cells = sizes(DemographicParity(against=against), frame(n_classes))
    assert n_cells == 6
    assert (cells == cells[:, :1]).all()


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("kind", [EqualizedOdds, ErrorRateParity, PrecisionParity])
def test_odds_errors_and_precision_need_groups_and_labels(n_classes, kind):
    n_cells, cells = sizes(kind(), frame(n_classes))
    assert n_cells == 6 * n_classes
    known = frame(n_classes).codes
    assert sorted(cells[known].ravel()) == list(range(n_cells))


def test_a_cap_on_misses_touches_only_positives():
    n_cells, cells = sizes(FalseNegativeRateCap(0.3), frame())
    assert n_cells == 1
    assert (cells[:, 1] == 0).all()
    assert (cells[:, 0] == -1).all()
    n_cells, cells = sizes(FalsePositiveRateCap(0.3, each_group=True, attribute="sex"), frame())
    assert n_cells == 2
    assert (cells[:, 1] == -1).all()


def test_one_attribute_of_two_has_its_own_groups_only():
    assert sizes(DemographicParity(attribute="race"), frame())[0] == 3
    both = [DemographicParity(attribute="race"), DemographicParity(attribute="sex")]
    assert sizes(both, frame())[0] == 11  # all but those of unknown race and sex


def test_people_of_no_group_count_for_everyone_and_nowhere_else():
    people = frame(attributes=(SEX,))
    for constraint in (DemographicParity(), DemographicParity(against="rest"), EqualizedOdds(against="rest")):
        assert (constrain(constraint, people).cells[-1] == -1).all()
    assert (constrain(Rule("selection_rate <= 0.5"), people).cells == 0).all()
    mixed = constrain(Rule("selection_rate[sex=f] - selection_rate <= 0.1"), people)
    assert mixed.cells[1, 0] == mixed.cells[2, 0] != mixed.cells[0, 0]
