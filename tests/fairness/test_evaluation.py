import zlib

import numpy as np
import pytest
from fairlearn.metrics import (
    MetricFrame,
    demographic_parity_difference,
    demographic_parity_ratio,
    equal_opportunity_difference,
    equal_opportunity_ratio,
    equalized_odds_difference,
    equalized_odds_ratio,
    false_negative_rate,
    false_positive_rate,
    selection_rate,
    true_negative_rate,
    true_positive_rate,
)
from sklearn.metrics import accuracy_score, precision_score, zero_one_loss

from fairveil import load_dataset
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import (
    CONSTRAINT_TYPES,
    DemographicParity,
    EqualizedOdds,
    FalseNegativeRateCap,
    Parity,
    PrecisionParity,
    TruePositiveRateParity,
)
from fairveil.fairness.evaluation import Evaluation, Verdict
from fairveil.fairness.limits import estimate_ratio, left_sides
from fairveil.fairness.rates import RATES, Attribute, Population, Rate
from fairveil.fairness.rule_parser import Rule

PARITIES = {name: kind for name, kind in CONSTRAINT_TYPES.items() if issubclass(kind, Parity)}
METRICS = {
    "selection_rate": selection_rate,
    "true_positive_rate": true_positive_rate,
    "false_positive_rate": false_positive_rate,
    "true_negative_rate": true_negative_rate,
    "false_negative_rate": false_negative_rate,
    "error_rate": zero_one_loss,
    "accuracy": accuracy_score,
    "precision": precision_score,
}
DIFFERENCES = {
    "demographic_parity": demographic_parity_difference,
    "equalized_odds": equalized_odds_difference,
    "true_positive_rate_parity": equal_opportunity_difference,
}
RATIOS = {
    "demographic_parity": demographic_parity_ratio,
    "equalized_odds": equalized_odds_ratio,
    "true_positive_rate_parity": equal_opportunity_ratio,
}
SEX = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))


def by_fairlearn(rows, features, metrics=METRICS):
    return MetricFrame(metrics=metrics, y_true=rows.label, y_pred=rows.decision, sensitive_features=features)


@pytest.fixture(scope="module")
def adult(rows_of):
    """Real people, with decisions that depend on age and hours worked."""
    data = load_dataset("adult")
    attributes = tuple(Attribute(entry.column, entry.groups) for entry in data.schema.sensitive)
    people = Population(attributes, data.schema.target.classes)
    levels = tuple(
        data.X[entry.column].map({group: code for code, group in enumerate(entry.groups)}).fillna(-1).to_numpy(int)
        for entry in data.schema.sensitive
    )
    decision = (data.X["age"].to_numpy() > 35) & (data.X["hours_per_week"].to_numpy() >= 40)
    return rows_of(people, levels, (data.y == people.classes[1]).to_numpy(int), decision.astype(int))


@pytest.fixture(scope="module", params=["random", "adult"])
def judged(request, adult, draw_rows):
    """People, and what fairlearn says of their intersections."""
    rng = np.random.default_rng(zlib.crc32(b"test_metrics judged"))
    rows = adult if request.param == "adult" else draw_rows(rng, 2, (3, 2), 5000, unknown=0.0)
    return rows, by_fairlearn(rows, np.column_stack(rows.levels))


@pytest.mark.slow
@pytest.mark.parametrize("rate", RATES)
def test_rates_of_intersections_are_those_of_a_metric_frame(rate, judged):
    rows, frame = judged
    ours = Evaluation(rows.counts(), 0.0, rows.people).rates(rate)
    assert [one.value for one in ours.values()] == pytest.approx(frame.by_group[rate].to_numpy(), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("constraint", sorted(PARITIES))
def test_gaps_and_ratios_agree_with_fairlearn(constraint, judged):
    rows, frame = judged
    evaluation, rates = Evaluation(rows.counts(), 0.0, rows.people), list(PARITIES[constraint].rates)
    gap, ratio = evaluation.gap(constraint), evaluation.ratio(constraint)
    assert gap.value == pytest.approx(frame.difference()[rates].max(), abs=1e-12)
    assert ratio.value == pytest.approx(frame.ratio()[rates].min(), abs=1e-12)
    assert 0 <= gap.low <= gap.value <= gap.high <= 1
    assert 0 <= ratio.low <= ratio.value <= ratio.high <= 1


@pytest.mark.parametrize("constraint", DIFFERENCES)
def test_gaps_and_ratios_have_the_names_of_fairlearn(constraint, adult, rows_of):
    sex, race, label, decision = (column[:5000] for column in (*adult.levels, adult.label, adult.decision))
    some = rows_of(adult.people, (sex, race), label, decision)
    evaluation, by_sex = (
        Evaluation(some.counts(), 0.0, some.people),
        CONSTRAINT_TYPES[constraint](attribute="sex"),
    )
    named = {"y_true": label, "y_pred": decision, "sensitive_features": sex}
    assert evaluation.gap(by_sex).value == pytest.approx(DIFFERENCES[constraint](**named), abs=1e-12)
    assert evaluation.ratio(by_sex).value == pytest.approx(RATIOS[constraint](**named), abs=1e-12)


@pytest.mark.parametrize("attribute", ["sex", "race"])
def test_one_attribute_agrees_with_fairlearn(attribute, adult):
    evaluation = Evaluation(adult.counts(), 0.0, adult.people)
    level = adult.levels[[one.name for one in adult.people.attributes].index(attribute)]
    frame = by_fairlearn(adult, level, true_positive_rate)
    ours = evaluation.rates("true_positive_rate", attribute)
    assert list(ours) == list(adult.people.attribute(attribute).groups)
    assert [one.value for one in ours.values()] == pytest.approx(frame.by_group.to_numpy())
    gap = evaluation.gap(TruePositiveRateParity(attribute=attribute))
    assert gap.value == pytest.approx(frame.difference())


def test_against_the_rest_is_the_largest_difference_to_everyone_else(adult):
    evaluation = Evaluation(adult.counts(), 0.0, adult.people)
    everyone = [
        abs(adult.rate("selection_rate", 1, mask) - adult.rate("selection_rate", 1, ~mask))
        for mask in adult.masks(1).values()
    ]
    gap = evaluation.gap(DemographicParity(against="rest", attribute="race"))
    assert gap.value == pytest.approx(max(everyone))
    ratios = [
        adult.rate("selection_rate", 1, mask) / adult.rate("selection_rate", 1, ~mask)
        for mask in adult.masks(1).values()
    ]
    ratio = evaluation.ratio(DemographicParity(against="rest", attribute="race"))
    assert ratio.value == pytest.approx(min(min(one, 1 / one) for one in ratios))


def evaluate(counts, noise_variance):
    """Evaluate groups named by numbers: all tables but the last, which is of people of no group."""
    groups, classes = (tuple(map(str, range(n))) for n in (len(counts) - 1, counts.shape[1]))
    return Evaluation(counts, noise_variance, Population((Attribute("group", groups),), classes))


def test_accuracy_is_that_of_the_rows_whatever_the_names_of_groups(rng, draw_rows):
    rows = draw_rows(rng, 3)
    accuracy = evaluate(rows.counts(), 4.0).accuracy()
    assert accuracy == Evaluation(rows.counts(), 4.0, rows.people).accuracy()
    assert accuracy.value == pytest.approx(accuracy_score(rows.label, rows.decision))


def test_many_classes_take_the_worst_class(rng, draw_rows):
    rows = draw_rows(rng, 4, n=5000)
    rates = np.array([[rows.rate("selection_rate", k, mask) for mask in rows.masks().values()] for k in range(4)])
    evaluation = evaluate(rows.counts(), 0.0)
    assert evaluation.gap("demographic_parity").value == pytest.approx(np.ptp(rates, axis=1).max())
    assert evaluation.ratio("demographic_parity").value == pytest.approx((rates.min(1) / rates.max(1)).min())


def test_renaming_groups_changes_nothing(rng, draw_rows):
    counts = draw_rows(rng).counts()
    for figure in (Evaluation.gap, Evaluation.ratio):
        moved = figure(evaluate(counts[[2, 0, 1, 3]], 2.0), "equalized_odds")
        kept = figure(evaluate(counts, 2.0), "equalized_odds")
        assert moved.to_dict() == pytest.approx(kept.to_dict(), abs=1e-12)


def test_an_empty_group_is_unknown_never_zero(rng, draw_rows):
    counts = draw_rows(rng).counts()
    counts[1] = 0
    one, none, other = evaluate(counts, 1.0).rates("selection_rate").values()
    assert none.value is None
    assert evaluate(counts, 1.0).gap().value == pytest.approx(abs(one.value - other.value))
    for figure in (Evaluation.gap, Evaluation.ratio):
        assert figure(evaluate(np.zeros((3, 2, 2)), 1.0)).value is None
        assert figure(evaluate(counts[:2], 0.0)).value is None
    assert evaluate(np.zeros((3, 2, 2)), 1.0).accuracy().value is None


def test_where_nobody_is_selected_there_is_a_gap_but_no_ratio():
    counts = np.array([[[50.0, 0.0], [50.0, 0.0]]] * 2 + [[[0.0, 0.0], [0.0, 0.0]]])
    evaluation = evaluate(counts, 0.0)
    assert evaluation.gap("demographic_parity").value == 0
    assert evaluation.ratio("demographic_parity").to_dict() == {"value": None, "low": 0.0, "high": 1.0}
    assert evaluation.gap("precision_parity").value is None


def test_without_groups_there_is_only_accuracy():
    evaluation = Evaluation(np.array([[[40.0, 10.0], [10.0, 40.0]]]), 0.0, Population((), ("no", "yes")))
    assert evaluation.accuracy().value == pytest.approx(0.8)
    assert evaluation.gap().value is None
    assert evaluation.ratio().value is None
    assert (evaluation.rates(), evaluation.groups, evaluation.positive) == ({}, (), 1)


def test_what_is_requested_must_be_known():
    evaluation = Evaluation(np.ones((3, 2, 2)), 0.0, SEX)
    with pytest.raises(InvalidParameterError, match="demographic_parity"):
        evaluation.gap("niceness")
    with pytest.raises(InvalidParameterError, match=r"got Rule; use bounds\(\)"):
        evaluation.gap(Rule("accuracy >= 0.5"))
    with pytest.raises(InvalidParameterError, match="attribute of sex; got 'race'"):
        evaluation.rates(attribute="race")
    with pytest.raises(InvalidParameterError, match=r"shape \(3, 2, 2\), got \(2, 2, 2\)"):
        Evaluation(np.ones((2, 2, 2)), 0.0, SEX)


def selected(women, men, size=1000.0):
    """Counts in which these shares of women and men are selected, rightly in half of the cases."""
    tables = [[[size * (1 - share) / 2, size * share / 2]] * 2 for share in (women, men)]
    return np.array([*tables, [[0.0, 0.0], [0.0, 0.0]]])


@pytest.mark.parametrize(
    ("women", "verdicts"),
    [
        (0.5, ["holds", "holds"]),
        (0.2, ["does not hold", "holds"]),
        (0.41, ["not enough data", "holds"]),
        (0.39, ["measured above the tolerance", "holds"]),
    ],
)
def test_bounds_say_whether_they_hold(women, verdicts):
    found = Evaluation(selected(women, 0.5), 4.0, SEX).bounds(DemographicParity(0.1))
    assert sorted(one.verdict for one in found) == sorted(verdicts)
    for one in found:
        assert one.left.low <= one.left.value <= one.left.high == one.smallest_tolerance
        assert one.limit == one.bound.limit == 0.1
    gap = Evaluation(selected(women, 0.5), 4.0, SEX).gap()
    assert max(one.smallest_tolerance for one in found) == pytest.approx(gap.high)


def test_bounds_of_every_kind_are_estimated_from_the_same_counts(rng, draw_rows):
    rows = draw_rows(rng, 2, (3, 2), 20_000)
    constraints = [
        EqualizedOdds(0.1, against="rest"),
        PrecisionParity(0.1, attribute="attribute 1"),
        DemographicParity(ratio=0.8),
        FalseNegativeRateCap(0.3, each_group=True),
        Rule('0.5 * accuracy - selection_rate["attribute 0"=00] <= -0.1'),
    ]
    found = Evaluation(rows.counts(), 0.0, rows.people).bounds(constraints)
    everyone, one = np.ones(len(rows.label), dtype=bool), rows.masks(0)[(0,)]
    rule = 0.5 * rows.rate("accuracy", 1, everyone) - rows.rate("selection_rate", 1, one)
    assert found[-1].left.value == pytest.approx(rule)
    misses = [rows.rate("false_negative_rate", 1, mask) for mask in rows.masks().values()]
    assert [one.left.value for one in found[-7:-1]] == pytest.approx(misses)
    alone = Evaluation(rows.counts(), 0.0, rows.people).bounds(constraints[-1])[0].left
    # of many, any may seem broken by chance; that all hold needs no such correction
    assert found[-1].left.low < alone.low < alone.high == found[-1].left.high


def test_bounds_of_too_few_people_are_unknown_and_promise_nothing():
    counts = selected(0.5, 0.5)
    counts[0] = 1.0
    (found,) = Evaluation(counts, 4.0, SEX).bounds(Rule("2 * selection_rate[sex=f] - selection_rate[sex=m] <= 0.5"))
    assert (found.left.value, found.verdict) == (None, Verdict.UNKNOWN)
    assert (found.left.low, found.smallest_tolerance) == (-1.0, 2.0)


@pytest.mark.parametrize("women", [0.3, 0.41, 0.44, 0.47, 0.5])
def test_the_ratio_and_the_four_fifths_bound_agree(women):
    """The low end of the ratio's interval is where the bound begins to hold."""
    evaluation = Evaluation(selected(women, 0.5), 9.0, SEX)
    both = [(1.0, Rate("selection_rate", (("sex", group),))) for group in "fm"]
    low = estimate_ratio(left_sides(tuple(both), evaluation.counts, 9.0, SEX)[0], 0.95, 0.975)[1]
    for ratio in (low - 1e-6, low + 1e-6):
        found = evaluation.bounds(DemographicParity(ratio=ratio))
        assert all(one.verdict is Verdict.HOLDS for one in found) == (ratio < low)
    assert evaluation.ratio().low == low


def test_a_difference_and_its_negative_are_two_statements():
    """Both orders are compared: the high end of one is minus the low end of the other at the level of one bound."""
    evaluation = Evaluation(selected(0.4, 0.5), 4.0, SEX)
    both = evaluation.bounds(DemographicParity(0.1))
    (one,) = evaluation.bounds(Rule("selection_rate[sex=m] - selection_rate[sex=f] <= 0.1"))
    assert one.left.high == both[1].left.high and one.left.low > both[1].left.low
    assert -one.left.low == pytest.approx(both[0].left.high)


def test_the_best_constant_and_the_most_common_decision_are_counted():
    counts = np.array([[[10.0, 90.0], [0.0, 400.0]], [[20.0, 80.0], [0.0, 900.0]], [[0.0, 0.0], [0.0, 0.0]]])
    evaluation = Evaluation(counts, 4.0, SEX)
    (label, right), (decision, alike) = evaluation.most_common("label"), evaluation.most_common("decision")
    assert (label, decision) == ("yes", "yes")
    assert (right.value, alike.value) == (1300 / 1500, 1470 / 1500)
    assert right.low < right.value < right.high and alike.low < alike.value < alike.high
    assert Evaluation(counts / 100, 4.0, SEX).most_common()[1].to_dict() == {"value": None, "low": 0.0, "high": 1.0}


def test_the_widest_comparison_is_named_with_the_larger_rate_first():
    gap, most = Evaluation(selected(0.4, 0.5), 4.0, SEX).widest()
    assert [most.pair[end]["group"] for end in ("highest", "lowest")] == ["m", "f"]
    assert most.rates == pytest.approx((0.5, 0.4)) and gap.value == pytest.approx(0.1)


def test_rates_that_share_people_are_not_independent():
    """A group's rate minus everyone's varies less than two independent rates would; minus itself not at all."""
    evaluation = Evaluation(selected(0.4, 0.5), 4.0, SEX)

    def width(text):
        left = evaluation.bounds(Rule(text))[0].left
        return left.high - left.low

    apart = width("selection_rate[sex=f] <= 1"), width("selection_rate <= 1")
    assert width("selection_rate[sex=f] - selection_rate <= 1") < 0.9 * np.hypot(*apart)
    assert width("true_positive_rate + false_negative_rate <= 1") == pytest.approx(0, abs=1e-9)


def law(rates_by_label, groups=(0.3, 0.6, 0.1)):
    """Return the law of (group, label, decision) with half of each group positive."""
    chosen = np.array(rates_by_label)
    return np.stack([1 - chosen, chosen], axis=2) * 0.5 * np.array(groups)[:, None, None]


COVERED = {
    "four fifths": Rule("0.8 * selection_rate[sex=m] - selection_rate[sex=f] <= 0"),
    "shared people": Rule("selection_rate[sex=f] - selection_rate <= 0.1"),
    "precision": Rule("precision[sex=f] - precision[sex=m] <= 0"),
    "balanced": Rule("0.5 * true_positive_rate + 0.5 * true_negative_rate >= 0.7"),
    "misses": Rule("false_negative_rate[sex=f] <= 0.3"),
}


@pytest.mark.statistical
@pytest.mark.parametrize("rule", COVERED)
@pytest.mark.parametrize(("n", "noise"), [(100, 0.0), (1000, 5.0)])
def test_bounds_cover_under_sampling_and_noise(rule, n, noise, rng):
    """Nominal 95 %: over 500 repeats, coverage below 91.5 % would be 3.6 standard errors off; 100 holds 30 women."""
    p = law([[0.3, 0.6], [0.3, 0.7], [0.2, 0.6]])
    truth = Evaluation(1e9 * p, 0.0, SEX).bounds(COVERED[rule])[0].left.value
    hits = np.zeros(2)  # each end by itself
    for _ in range(500):
        counts = rng.multinomial(n, p.ravel()).reshape(p.shape) + noise * rng.standard_normal(p.shape)
        left = Evaluation(counts, noise**2, SEX).bounds(COVERED[rule])[0].left
        hits += [left.low <= truth, truth <= left.high]
    assert (hits >= 0.915 * 500).all()


@pytest.mark.statistical
@pytest.mark.parametrize("n", [200, 4000])
def test_gap_ratio_and_accuracy_cover_under_sampling_and_noise(n, rng):
    """Nominal 95 %: over 250 repeats, coverage below 90 % would be 3.6 standard errors off."""
    p = law([[0.2, 0.4], [0.3, 0.5], [0.3, 0.5]], (0.5, 0.5, 0.0))
    truths = [0.1, 0.75, 0.6]
    figures = [Evaluation.gap, Evaluation.ratio, Evaluation.accuracy]
    exact = Evaluation(1e9 * p, 0.0, SEX)
    assert [figure(exact).value for figure in figures] == pytest.approx(truths)
    hits = np.zeros((3, 2))  # each end by itself
    for _ in range(250):
        counts = rng.multinomial(n, p.ravel()).reshape(p.shape) + 3 * rng.standard_normal(p.shape)
        for i, figure in enumerate(figures):
            interval = figure(Evaluation(counts, 9.0, SEX))
            hits[i] += [interval.low <= truths[i], truths[i] <= interval.high]
    assert (hits >= 0.9 * 250).all()


def test_more_confidence_is_wider():
    evaluation = Evaluation(selected(0.4, 0.5), 4.0, SEX)
    for figure in (evaluation.accuracy, evaluation.gap, evaluation.ratio):
        narrow, wide = figure(confidence=0.5), figure(confidence=0.99)
        assert wide.low < narrow.low < narrow.high < wide.high
        assert (narrow.value, narrow.confidence) == (wide.value, 0.5)
