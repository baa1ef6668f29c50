import numpy as np
import pytest
from fairlearn.metrics import (
    MetricFrame,
    demographic_parity_difference,
    equalized_odds_difference,
    false_negative_rate,
    false_positive_rate,
    selection_rate,
    true_positive_rate,
)
from sklearn.metrics import accuracy_score

from fairveil.errors import InvalidParameter
from fairveil.fairness.metrics import CONSTRAINTS, Evaluation, accuracy_of, gap_of, rates_of


def people(rng, n=6000, n_groups=3, n_classes=2):
    group = rng.integers(0, n_groups, n)
    label = rng.integers(0, n_classes, n)
    decision = np.where(rng.random(n) < 0.6 + 0.1 * group, label, rng.integers(0, n_classes, n))
    return group, label, decision


def counted(group, label, decision, n_groups=3, n_classes=2):
    counts = np.zeros((n_groups + 1, n_classes, n_classes))
    np.add.at(counts, (group, label, decision), 1)
    return counts


FAIRLEARN = {
    "demographic_parity": lambda y, d, s: demographic_parity_difference(y, d, sensitive_features=s),
    "equalized_odds": lambda y, d, s: equalized_odds_difference(y, d, sensitive_features=s),
    "true_positive_rate_parity": lambda y, d, s: MetricFrame(
        metrics=true_positive_rate, y_true=y, y_pred=d, sensitive_features=s
    ).difference(),
    "false_positive_rate_parity": lambda y, d, s: MetricFrame(
        metrics=false_positive_rate, y_true=y, y_pred=d, sensitive_features=s
    ).difference(),
    "false_negative_rate_parity": lambda y, d, s: MetricFrame(
        metrics=false_negative_rate, y_true=y, y_pred=d, sensitive_features=s
    ).difference(),
    "error_rate_parity": lambda y, d, s: MetricFrame(
        metrics=accuracy_score, y_true=y, y_pred=d, sensitive_features=s
    ).difference(),
}


@pytest.mark.parametrize("constraint", sorted(CONSTRAINTS))
def test_gaps_agree_with_fairlearn(constraint, rng):
    group, label, decision = people(rng)
    gap = gap_of(counted(group, label, decision), constraint, 0.0)
    assert gap.value == pytest.approx(FAIRLEARN[constraint](label, decision, group), abs=1e-12)
    assert 0 <= gap.low <= gap.value <= gap.high <= 1


def test_rates_and_accuracy_agree_with_fairlearn(rng):
    group, label, decision = people(rng)
    counts = counted(group, label, decision)
    frame = MetricFrame(metrics=selection_rate, y_true=label, y_pred=decision, sensitive_features=group)
    assert [rate.value for rate in rates_of(counts, "selection", 0.0)] == pytest.approx(list(frame.by_group))
    assert accuracy_of(counts, 0.0).value == pytest.approx(accuracy_score(label, decision))


def test_many_classes_take_the_worst_class(rng):
    group, label, decision = people(rng, n_classes=4)
    gap = gap_of(counted(group, label, decision, n_classes=4), "demographic_parity", 0.0)
    rates = [[(decision[group == g] == k).mean() for g in range(3)] for k in range(4)]
    assert gap.value == pytest.approx(max(max(row) - min(row) for row in rates))


def test_renaming_groups_changes_nothing(rng):
    counts = counted(*people(rng))
    assert gap_of(counts[[2, 0, 1, 3]], "equalized_odds", 2.0) == gap_of(counts, "equalized_odds", 2.0)


def test_an_empty_group_is_unknown_never_zero(rng):
    counts = counted(*people(rng))
    counts[1] = 0
    gap = gap_of(counts, "demographic_parity", 1.0)
    assert gap.value == pytest.approx(
        abs(np.subtract(*[rate.value for rate in rates_of(counts, "selection", 1.0)][::2]))
    )
    assert rates_of(counts, "selection", 1.0)[1].value is None
    assert gap_of(np.zeros((3, 2, 2)), "demographic_parity", 1.0).value is None
    assert accuracy_of(np.zeros((3, 2, 2)), 1.0).value is None
    assert gap_of(counts[:2], "demographic_parity", 0.0).value is None


def test_the_constraint_must_be_known():
    with pytest.raises(InvalidParameter, match="demographic_parity"):
        gap_of(np.ones((3, 2, 2)), "niceness", 0.0)


@pytest.mark.parametrize("n", [200, 4000])
def test_intervals_cover_under_sampling_and_noise(n, rng):
    """Nominal 95 %: over 1000 repeats, coverage below 92.5 % would be 3.6 standard errors off."""
    truth_accuracy, truth_gap, hits = 0.8, 0.1, np.zeros(2)
    for _ in range(1000):
        counts = np.zeros((3, 2, 2))
        for g, rate in enumerate((0.3, 0.4)):
            size = rng.binomial(n, 0.5)
            label, chosen = rng.random(size) < 0.5, rng.random(size) < rate
            np.add.at(counts, (np.full(size, g), label.astype(int), chosen.astype(int)), 1)
        noisy = counts + rng.normal(0, 3.0, counts.shape)
        gap = gap_of(noisy, "demographic_parity", 9.0)
        hits[1] += gap.low <= truth_gap <= gap.high
        right = rng.binomial(n, 0.8)
        table = np.array([[[right / 2, (n - right) / 2], [(n - right) / 2, right / 2]], np.zeros((2, 2))])
        accuracy = accuracy_of(table + rng.normal(0, 3.0, table.shape), 9.0)
        hits[0] += accuracy.low <= truth_accuracy <= accuracy.high
    assert (hits >= 925).all()


def test_an_evaluation_names_its_groups(rng):
    evaluation = Evaluation(counted(*people(rng)), 0.0, ("a", "b", "c"), 1)
    assert list(evaluation.rates()) == ["a", "b", "c"]
    assert evaluation.gap("equalized_odds").value is not None
    assert evaluation.accuracy(0.5).high < evaluation.accuracy(0.99).high
