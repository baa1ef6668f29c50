"""Impact ratios against fairlearn's and hand-made numbers; the worst gap against every assignment of unknown people."""

from itertools import product

import numpy as np
import pytest

from fairveil.fairness.constraints import DemographicParity, EqualizedOdds, FalsePositiveRateParity
from fairveil.fairness.evaluation import Evaluation
from fairveil.fairness.impact import impact_ratios, unknown_groups
from fairveil.fairness.rates import Attribute, Population
from fairveil.fairness.rule_parser import Rule

SEX = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
RACES = Population((Attribute("race", ("a", "b", "c")),), ("no", "yes"))
BOTH = Population((Attribute("sex", ("f", "m")), Attribute("race", ("a", "b"))), ("no", "yes"))


def selected(people, chosen, sizes):
    """Counts by group code of people with label no."""
    counts = np.zeros((people.n_groups, 2, 2))
    counts[:, 0, 1], counts[:, 0, 0] = chosen, np.subtract(sizes, chosen)
    return counts


def test_ratios_are_rates_over_the_most_selected_category():
    rows = impact_ratios(Evaluation(selected(RACES, [100, 300, 240, 7], [1000, 1000, 1000, 50]), 0.0, RACES))
    assert [row.name for row in rows] == ["a", "b", "c"]
    assert [row.impact_ratio.value for row in rows] == pytest.approx([1 / 3, 1.0, 0.8])
    assert [row.size for row in rows] == [1000, 1000, 1000]
    assert [row.share.value for row in rows] == pytest.approx([1000 / 3050] * 3)  # unknown people count as data
    for row in rows:
        assert row.impact_ratio.low <= row.impact_ratio.value <= row.impact_ratio.high <= 1


def test_the_smallest_ratio_is_that_of_the_whole_report():
    evaluation = Evaluation(selected(RACES, [100, 300, 240, 0], [1000, 900, 1100, 0]), 9.0, RACES)
    whole, rows = evaluation.ratio(), impact_ratios(evaluation)
    worst = min(rows, key=lambda row: row.impact_ratio.value).impact_ratio
    assert (worst.value, worst.low, worst.high) == pytest.approx((whole.value, whole.low, whole.high), abs=1e-6)


def test_each_attribute_and_the_intersection_have_a_table():
    sizes, chosen = np.zeros((3, 3)), np.zeros((3, 3))
    sizes[:2, :2], chosen[:2, :2] = [[400, 600], [500, 500]], [[100, 120], [200, 100]]
    sizes[2, 0], sizes[0, 2], chosen[2, 0] = 40, 60, 40  # people of unknown sex, of unknown race
    evaluation = Evaluation(selected(BOTH, chosen.ravel(), sizes.ravel()), 0.0, BOTH)
    by_sex = impact_ratios(evaluation, "sex")
    assert [row.selection_rate.value for row in by_sex] == pytest.approx([220 / 1060, 300 / 1000])
    assert [row.impact_ratio.value for row in by_sex] == pytest.approx([220 / 1060 / 0.3, 1.0])
    both = impact_ratios(evaluation)
    assert [row.name for row in both] == ["f, a", "f, b", "m, a", "m, b"]
    assert [row.impact_ratio.value for row in both] == pytest.approx([0.625, 0.5, 1.0, 0.5])


def test_categories_of_too_few_people_are_unknown_and_no_yardstick():
    rows = impact_ratios(Evaluation(selected(RACES, [3, 300, 150, 0], [3, 1000, 1000, 0]), 1.0, RACES))
    assert rows[0].impact_ratio.value is None and (rows[0].impact_ratio.low, rows[0].impact_ratio.high) == (0.0, 1.0)
    assert [row.impact_ratio.value for row in rows[1:]] == pytest.approx([1.0, 0.5])
    alone = impact_ratios(Evaluation(selected(SEX, [30, 0, 0], [100, 1, 0]), 0.0, SEX))
    assert alone[0].impact_ratio.value == 1.0 and alone[1].impact_ratio.value is None
    nobody = impact_ratios(Evaluation(selected(SEX, [0, 0, 0], [1000, 1000, 0]), 0.0, SEX))
    assert [row.impact_ratio.value for row in nobody] == [None, None]  # nobody is selected: no ratio, never 0 / 0


def test_intervals_hold_the_truth(rng):
    """At 95 %, of 400 tables at most 5 % plus 4 standard errors miss the truth in any row."""
    truth, sizes, missed = np.array([0.3, 0.4, 0.36]), np.array([500, 800, 300]), 0
    for _ in range(400):
        chosen = np.append(rng.binomial(sizes, truth), 0)
        counts = selected(RACES, chosen, np.append(sizes, 0)) + rng.normal(0, 3, (4, 2, 2))
        rows = impact_ratios(Evaluation(counts, 9.0, RACES))
        missed += any(
            not row.impact_ratio.low - 1e-9 <= ratio <= row.impact_ratio.high + 1e-9
            for row, ratio in zip(rows, truth / truth.max(), strict=True)
        )
    assert missed <= 400 * (0.05 + 4 * np.sqrt(0.05 * 0.95 / 400))


# --- people of no known group -----------------------------------------------------------------------------------------


def brute_force(counts, people, constraint):
    """The largest gap over every assignment of each unknown person to a group that fits what is known of them."""
    known = {tuple(levels): code for code, levels in enumerate(np.argwhere(np.ones(people.shape)))}
    lost = [code for code in range(people.n_groups) if code not in people.codes]
    persons = [
        (code, cell) for code in lost for cell in np.ndindex(counts.shape[1:]) for _ in range(int(counts[code][cell]))
    ]
    levels = dict(zip(known.values(), known, strict=True))
    fitting = {
        code: [
            other
            for other in people.codes
            if all(a in (b, size - 1) for a, b, size in zip(levels[code], levels[other], people.shape, strict=True))
        ]
        for code in lost
    }
    base, worst = np.where(np.isin(np.arange(people.n_groups), lost)[:, None, None], 0.0, counts), 0.0
    for homes in product(*(fitting[code] for code, _ in persons)):
        moved = base.copy()
        for home, (_, cell) in zip(homes, persons, strict=True):
            moved[(home, *cell)] += 1
        found = Evaluation(moved, 0.0, people).gap(constraint).value
        worst = max(worst, found)
    return worst


@pytest.mark.parametrize(
    ("people", "constraint", "n_lost"),
    [
        (SEX, DemographicParity(), 6),
        (RACES, DemographicParity(), 5),
        (RACES, DemographicParity(against="rest"), 5),
        (SEX, EqualizedOdds(), 6),
        (RACES, FalsePositiveRateParity(), 5),
        (BOTH, DemographicParity(), 4),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_worst_gap_is_that_of_every_assignment(rng, people, constraint, n_lost):
    counts = rng.integers(5, 12, (people.n_groups, 2, 2)).astype(float)
    lost = np.setdiff1d(np.arange(people.n_groups), people.codes)
    counts[lost] = 0
    for _ in range(n_lost):
        counts[(rng.choice(lost), *rng.integers(0, 2, 2))] += 1
    found = unknown_groups(Evaluation(counts, 0.0, people), constraint)
    assert found.worst_gap.value == pytest.approx(brute_force(counts, people, constraint))
    assert found.size == n_lost and found.share.value == pytest.approx(n_lost / counts.sum())
    assert found.worst_gap.value <= found.worst_gap.high


def test_nobody_unknown_means_the_gap_itself():
    evaluation = Evaluation(selected(SEX, [200, 300, 0], [1000, 1000, 0]), 0.0, SEX)
    found, gap = unknown_groups(evaluation, DemographicParity()), evaluation.gap()
    assert (found.worst_gap.value, found.worst_gap.high) == pytest.approx((gap.value, gap.high))
    assert (found.size, found.share.value) == (0, 0)
    noisy = selected(SEX, [200, 300, -9], [1000, 1000, -20])  # noise makes their number negative: still the gap itself
    assert unknown_groups(Evaluation(noisy, 4.0, SEX), DemographicParity()).worst_gap.value == pytest.approx(gap.value)


def test_other_constraints_and_nobody_at_all_have_no_worst_gap():
    assert unknown_groups(Evaluation(np.zeros((3, 2, 2)), 1.0, SEX), DemographicParity()).worst_gap.value is None
    evaluation = Evaluation(selected(SEX, [200, 300, 9], [1000, 1000, 20]), 0.0, SEX)
    assert unknown_groups(evaluation, Rule("error_rate <= 0.5")).worst_gap.value is None
    nobody = Evaluation(np.zeros((1, 2, 2)), 1.0, Population((), ("no", "yes")))
    assert unknown_groups(nobody, DemographicParity()).share.value is None
