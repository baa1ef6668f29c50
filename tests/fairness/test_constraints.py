"""Violations and pulls, checked against rows and against numerical differentiation."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import (
    CONSTRAINT_TYPES,
    Cap,
    DemographicParity,
    EqualizedOdds,
    FalseNegativeRateCap,
    Parity,
    constrain,
)
from fairveil.fairness.diagnostics import FinalCheck
from fairveil.fairness.rates import CLASSLESS, RATES, Attribute, Population, Rate, compile_bounds, rate_masks
from fairveil.fairness.rule_parser import Rule

PARITIES = [kind for kind in CONSTRAINT_TYPES.values() if issubclass(kind, Parity)]
CAPS = [kind for kind in CONSTRAINT_TYPES.values() if issubclass(kind, Cap)]
SHAPES = [(3,), (2, 2)]


def rules(people):
    """Rules over the first attribute that hold several rates, weights and people."""
    attribute = people.attributes[0]
    name, (one, other) = attribute.name, attribute.groups[:2]
    of = f'("{people.classes[-1]}")'
    return [
        Rule(f'selection_rate{of}["{name}"={one}] >= 0.8 * selection_rate{of}["{name}"={other}]'),
        Rule(f'precision{of}["{name}"={one}] - precision{of}["{name}"={other}] <= 0.1'),
        Rule(f'selection_rate{of}["{name}"={one}] - selection_rate{of}[not "{name}"={one}] <= 0.05'),
        Rule(f"0.5 * true_positive_rate{of} + 0.5 * true_negative_rate{of} >= 0.7 + 0.1 * error_rate"),
        Rule(f"0.25 * accuracy + 2 * false_negative_rate{of} - 0.2 <= 1"),
    ]


def every_constraint(people):
    attribute = people.attributes[-1].name
    return [
        *(kind(0.1, against=against) for kind in PARITIES for against in ("pairs", "rest")),
        *(kind(0.02, ratio=0.8) for kind in PARITIES),
        *(kind(0.1, attribute=attribute) for kind in PARITIES),
        *(kind(0.3, each_group=each) for kind in CAPS for each in (False, True)),
        *rules(people),
    ]


def classes_of(rate, people):
    return [people.positive] if rate in CLASSLESS or people.n_classes == 2 else range(people.n_classes)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("ratio", [None, 0.8])
@pytest.mark.parametrize("kind", PARITIES)
def test_pairs_agree_with_rows(kind, ratio, shape, n_classes, rng, draw_rows):
    rows = draw_rows(rng, n_classes, shape)
    ready = constrain(kind(0.1, ratio=ratio), rows.people)
    expected = [
        (ratio or 1) * rows.rate(rate, k, one) - rows.rate(rate, k, other) - 0.1
        for rate in kind.rates
        for k in classes_of(rate, rows.people)
        for one, other in itertools.permutations(rows.masks().values(), 2)
    ]
    assert ready.violation(rows.histogram(ready)) == pytest.approx(np.array(expected), abs=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("attribute", [None, 0, 1])
@pytest.mark.parametrize("kind", PARITIES)
def test_one_against_the_rest_agrees_with_rows(kind, attribute, n_classes, rng, draw_rows):
    rows = draw_rows(rng, n_classes, (3, 4))
    name = None if attribute is None else rows.people.attributes[attribute].name
    ready = constrain(kind(0.1, against="rest", attribute=name), rows.people)
    expected = []
    for rate in kind.rates:
        for k in classes_of(rate, rows.people):
            for mask in rows.masks(attribute).values():
                gap = rows.rate(rate, k, mask) - rows.rate(rate, k, rows.known(attribute) & ~mask)
                expected += [gap - 0.1, -gap - 0.1]
    assert ready.violation(rows.histogram(ready)) == pytest.approx(np.array(expected), abs=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("each_group", [False, True])
@pytest.mark.parametrize("kind", CAPS)
def test_caps_agree_with_rows(kind, each_group, n_classes, rng, draw_rows):
    rows = draw_rows(rng, n_classes, (2, 2))
    ready = constrain(kind(0.3, each_group=each_group), rows.people)
    masks = rows.masks().values() if each_group else [np.ones(len(rows.label), dtype=bool)]
    expected = [rows.rate(kind.rate, k, mask) - 0.3 for k in classes_of(kind.rate, rows.people) for mask in masks]
    assert ready.violation(rows.histogram(ready)) == pytest.approx(np.array(expected), abs=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rules_agree_with_rows(n_classes, rng, draw_rows):
    rows = draw_rows(rng, n_classes, (3, 2))
    everyone, last = np.ones(len(rows.label), dtype=bool), n_classes - 1
    one, other, _ = rows.masks(0).values()

    def rate(name, mask=everyone):
        return rows.rate(name, last, mask)

    expected = [
        0.8 * rate("selection_rate", other) - rate("selection_rate", one),
        rate("precision", one) - rate("precision", other) - 0.1,
        rate("selection_rate", one) - rate("selection_rate", rows.known(0) & ~one) - 0.05,
        0.7 + 0.1 * rate("error_rate") - 0.5 * rate("true_positive_rate") - 0.5 * rate("true_negative_rate"),
        0.25 * rate("accuracy") + 2 * rate("false_negative_rate") - 1.2,
    ]
    ready = constrain(rules(rows.people), rows.people)
    assert ready.violation(rows.histogram(ready)) == pytest.approx(np.array(expected), abs=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@given(st.data())
@settings(max_examples=8)
def test_the_pull_is_the_derivative(shape, n_classes, data):
    people = Population(
        tuple(Attribute(f"attribute {i}", tuple(f"{i}{g}" for g in range(n))) for i, n in enumerate(shape)),
        tuple(f"class {k}" for k in range(n_classes)),
    )
    ready = constrain(data.draw(st.sampled_from(every_constraint(people))), people)
    minimum = data.draw(st.sampled_from([1.0, 40.0]))  # at 40 some denominators are the minimum
    histogram = data.draw(arrays(float, (ready.n_cells, n_classes), elements=st.floats(-0.5, 60.0)))
    assume(np.abs(ready.below @ histogram.ravel() - minimum).min() > 0.01)
    multipliers = data.draw(arrays(float, len(ready.bounds), elements=st.floats(0.0, 5.0)))
    numerical, step = np.empty_like(histogram), 1e-4
    for entry in np.ndindex(histogram.shape):
        moved = np.zeros_like(histogram)
        moved[entry] = step
        up, down = ready.violation(histogram + moved, minimum), ready.violation(histogram - moved, minimum)
        numerical[entry] = multipliers @ (up - down) / (2 * step)
    scale = 1 + np.abs(numerical).max()
    assert ready.pull(histogram, multipliers, minimum) == pytest.approx(numerical, abs=1e-5 * scale)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_order_of_groups_moves_violations_and_pulls_and_nothing_else(shape, n_classes, rng, draw_rows, rows_of):
    rows = draw_rows(rng, n_classes, shape)
    orders = [rng.permutation(size) for size in shape]
    people = Population(
        tuple(
            Attribute(attribute.name, tuple(attribute.groups[g] for g in order))
            for attribute, order in zip(rows.people.attributes, orders, strict=True)
        ),
        rows.people.classes,
        rows.people.positive,
    )
    levels = tuple(
        np.where(level < 0, -1, np.argsort(order)[level]) for level, order in zip(rows.levels, orders, strict=True)
    )
    moved = rows_of(people, levels, rows.label, rows.decision)
    for constraint in every_constraint(rows.people):
        found = [at_rows(constraint, one) for one in (rows, moved)]
        assert found[0][0] == pytest.approx(found[1][0], abs=1e-12)
        assert found[0][1] == pytest.approx(found[1][1], abs=1e-12)


def at_rows(constraint, rows):
    """Return violations by the bound's text, and the pull on every row; multipliers depend on the text only."""
    ready = constrain(constraint, rows.people)
    histogram = rows.histogram(ready)
    multipliers = np.array([len(set(str(bound))) + str(bound).count("0") / 8 for bound in ready.bounds])
    pull = np.vstack([ready.pull(histogram, multipliers), np.zeros(ready.n_classes)])
    cells = ready.cells[rows.people.code(rows.levels), rows.label]
    return dict(zip(map(str, ready.bounds), ready.violation(histogram), strict=True)), pull[cells]


def test_new_names_change_no_number(rng, draw_rows):
    rows = draw_rows(rng)
    renamed = Population((Attribute("new", ("x", "y", "z")),), rows.people.classes, 1)
    for kind in PARITIES:
        one, other = constrain(kind(0.1), rows.people), constrain(kind(0.1), renamed)
        for name in ("cells", "above", "below", "weights", "limits"):
            assert (getattr(one, name) == getattr(other, name)).all()


def test_people_of_no_group_move_only_what_is_about_everyone(rng, draw_rows, rows_of):
    rows = draw_rows(rng, unknown=0.3)
    unknown = rows.levels[0] < 0
    flipped = rows_of(rows.people, rows.levels, rows.label, np.where(unknown, 1 - rows.decision, rows.decision))
    for constraint in every_constraint(rows.people):
        ready = constrain(constraint, rows.people)
        is_about_everyone = any(not rate.where for bound in ready.bounds for _, rate in bound.terms)
        same = np.array_equal(ready.violation(rows.histogram(ready)), ready.violation(flipped.histogram(ready)))
        assert same == (not is_about_everyone)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_empty_and_single_class_cells_give_finite_numbers(n_classes, rng, draw_rows):
    people = draw_rows(rng, n_classes, (2, 2)).people
    for constraint in every_constraint(people):
        ready = constrain(constraint, people)
        single = np.zeros((ready.n_cells, n_classes))
        single[::2, 0] = 50
        for histogram in (np.zeros_like(single), single, np.full_like(single, -3.0), single - 1.0):
            multipliers = np.ones(len(ready.bounds))
            for figures in (
                *ready.estimate(histogram, 4.0),
                ready.violation(histogram),
                ready.pull(histogram, multipliers),
            ):
                assert np.isfinite(figures).all()
    nobody = constrain(FalseNegativeRateCap(0.3), people)
    assert nobody.violation(np.zeros((nobody.n_cells, n_classes))) == pytest.approx(-0.3)


def test_the_minimum_is_the_smallest_denominator():
    people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    ready = constrain(DemographicParity(), people)
    histogram = np.array([[1.0, 3.0], [50.0, 50.0]])
    assert ready.ratios(histogram, minimum=10.0).rates == pytest.approx([0.3, 0.5])
    assert ready.ratios(histogram, minimum=1.0).rates == pytest.approx([0.75, 0.5])


@pytest.mark.parametrize(("women", "holds"), [(39, False), (40, True), (50, True), (62, True), (63, False)])
def test_four_fifths(women, holds):
    """50 of 100 men are selected: between 40 and 62 of 100 women keep both ratios at 0.8."""
    people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    ready = constrain(DemographicParity(ratio=0.8), people)
    violation = ready.violation(np.array([[100 - women, women], [50.0, 50.0]]))
    assert (violation.max() <= 1e-12) == holds


def test_two_groups_against_the_rest_are_a_pair_and_nothing_stands_twice():
    people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    histogram = np.array([[60.0, 40.0], [50.0, 50.0]])
    rest, pairs = (constrain(DemographicParity(0.1, against=against), people) for against in ("rest", "pairs"))
    assert len(rest.bounds) == len(pairs.bounds) == 2
    assert sorted(rest.violation(histogram)) == pytest.approx(sorted(pairs.violation(histogram)))
    both = constrain([DemographicParity(0.1), DemographicParity(0.1), EqualizedOdds(0.2)], people)
    assert len(both.bounds) == 2 + 4


def test_a_combination_is_the_parts_together(rng, draw_rows):
    rows = draw_rows(rng, 3, (2, 2))
    several = every_constraint(rows.people)
    whole = constrain(several, rows.people)
    parts = {}
    for constraint in several:
        ready = constrain(constraint, rows.people)
        parts |= dict(zip(ready.bounds, ready.violation(rows.histogram(ready)), strict=True))
    assert dict(zip(whole.bounds, whole.violation(rows.histogram(whole)), strict=True)) == pytest.approx(parts)


def test_the_cost_does_not_grow_with_the_number_of_comparisons():
    people = Population((Attribute("group", tuple(map(str, range(18)))),), ("no", "yes"))
    ready = constrain(DemographicParity(), people)
    assert len(ready.bounds) == 18 * 17
    assert ready.above.shape == (18, 18 * 2)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_errata_fnr_is_not_what_the_paper_prints(n_classes, rng, draw_rows):
    """Paper 002 (Table 1, Eq. 17) calls P_k(D[Y != k]) the false negative rate: it is the false positive rate.

    (Its tempered softmax has the wrong sign too, exp(-tau z); the tests of the models hold that one.)
    """
    rows = draw_rows(rng, n_classes)
    counts = rows.counts().sum(axis=0)
    for k in range(n_classes):
        printed = np.mean(rows.decision[rows.label != k] == k)  # P_k(D[Y != k])
        above, below = rate_masks("false_positive_rate", n_classes, k)
        assert counts[above].sum() / counts[below].sum() == pytest.approx(printed)
        above, below = rate_masks("false_negative_rate", n_classes, k)
        fnr = counts[above].sum() / counts[below].sum()
        assert fnr == pytest.approx(1 - np.mean(rows.decision[rows.label == k] == k))
        assert abs(fnr - printed) > 0.05
    # A rule that selects nobody misses every positive; the printed formula finds no fault with it.
    ready = constrain(FalseNegativeRateCap(0.3), Population((), ("no", "yes")))
    assert ready.violation(np.array([[100.0, 0.0]])) == pytest.approx(0.7)


@pytest.mark.statistical
def test_standard_errors_are_those_of_gaussian_noise(rng, draw_rows):
    """Over 4000 draws a standard deviation is known to 1.1 %: 6 % off would be 5 standard errors."""
    rows = draw_rows(rng, 2, (2, 2), n=40_000)
    for constraint in every_constraint(rows.people):
        ready = constrain(constraint, rows.people)
        histogram = rows.histogram(ready)
        noisy = histogram + rng.normal(0, 3.0, (4000, *histogram.shape))
        measured = np.array([ready.violation(one) for one in noisy]).std(axis=0)
        assert measured == pytest.approx(ready.estimate(histogram, 9.0).noise_errors, rel=0.06)


def test_standard_errors_know_that_a_minimum_does_not_vary(rng):
    """40 of 50 are selected, the minimum is 100: only the numerator moves, by noise of standard deviation 2."""
    people = Population((), ("no", "yes"))
    ready = constrain(Rule("selection_rate <= 0.5"), people)
    histogram = np.array([[10.0, 40.0]])
    noisy = [ready.violation(histogram + rng.normal(0, 2.0, (1, 2)), 100.0) for _ in range(4000)]
    assert ready.estimate(histogram, 4.0, 100.0).noise_errors == pytest.approx(2 / 100)
    assert np.std(noisy) == pytest.approx(2 / 100, rel=0.06)


def test_sampling_errors_are_those_of_drawing_people(rng):
    """Over 4000 draws a standard deviation is known to 1.1 %: 6 % off would be 5 standard errors."""
    people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    ready = constrain([DemographicParity(0.1, ratio=0.8), Rule("selection_rate[sex=f] <= 0.5")], people)
    shares = np.array([[0.2, 0.1], [0.3, 0.4]])
    drawn = rng.multinomial(2000, shares.ravel(), 4000).reshape(-1, 2, 2)
    measured = np.array([ready.values(one) for one in drawn]).std(axis=0)
    assert measured == pytest.approx(ready.estimate(2000 * shares).sampling_errors, rel=0.06)
    assert ready.estimate(2000 * shares).smallest_denominators == pytest.approx([600, 600, 600])
    assert (ready.estimate(np.zeros((2, 2))).sampling_errors > 0).all()


def test_left_sides_are_violations_and_limits(rng, draw_rows):
    rows = draw_rows(rng)
    ready = constrain(every_constraint(rows.people), rows.people)
    histogram = rows.histogram(ready)
    assert ready.values(histogram) == pytest.approx(ready.violation(histogram) + ready.limits)


def test_a_final_check_states_what_is_broken_beyond_doubt():
    people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    bounds = constrain([DemographicParity(0.1), FalseNegativeRateCap(0.3)], people).bounds
    check = FinalCheck(
        bounds,
        np.array([0.2, -0.2, 0.31]),
        np.array([0.02, 0.02, 0.02]),
        np.ones(3, bool),
        np.zeros(2),
        0.1,
        0.0,
    )
    assert check.excess == pytest.approx([0.1 - 0.02 * 2.394, 0.0, 0.0], abs=1e-4)


def test_compiled_bounds_keep_their_order_and_number():
    people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    bounds = [*DemographicParity(0.1).bounds(people), Rule("accuracy >= 0.5").bound]
    assert compile_bounds([*bounds, bounds[0]], people).bounds == (*bounds, bounds[0])


def test_rates_are_known_by_name():
    assert {name for kind in PARITIES for name in kind.rates} <= set(RATES)
    with pytest.raises(InvalidParameterError, match="selection_rate"):
        Rate("niceness")
    with pytest.raises(InvalidParameterError, match="no class of accuracy"):
        Rate("accuracy", of_class="yes")


@pytest.mark.parametrize(
    "make",
    [
        lambda: DemographicParity(-0.1),
        lambda: DemographicParity(float("nan")),
        lambda: DemographicParity("0.1"),
        lambda: DemographicParity(against="everyone"),
        lambda: DemographicParity(ratio=1.25),
        lambda: DemographicParity(ratio=0),
        lambda: FalseNegativeRateCap(1.5),
    ],
)
def test_parameters_out_of_range_are_refused(make):
    with pytest.raises(InvalidParameterError, match=r"^Expected .*got"):
        make()


def test_what_cannot_be_compared_is_refused():
    people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    nobody = Population((), ("no", "yes"))
    with pytest.raises(InvalidParameterError, match="at least one rate"):
        constrain([], people)
    with pytest.raises(InvalidParameterError, match="sensitive attribute"):
        constrain(DemographicParity(), nobody)
    with pytest.raises(InvalidParameterError, match="attribute of sex; got 'race'"):
        constrain(DemographicParity(attribute="race"), people)
    with pytest.raises(InvalidParameterError, match="two groups"):
        constrain(DemographicParity(), Population((Attribute("sex", ("f",)),), ("no", "yes")))
    for wrong in ("demographic_parity", 0.1, ["demographic_parity"]):
        with pytest.raises(InvalidParameterError, match="DemographicParity"):
            constrain(wrong, people)
    with pytest.raises(InvalidParameterError, match="at least one rate"):
        compile_bounds([], people)
