"""The yardstick of PF-LD's bars: prices are the slopes of the gaps, and what they buy is traded as theory says."""

import numpy as np
import pytest

import oracle_bound
from _support.benchmarking import last_line


def people(rng, n_rows=3000):
    groups = rng.integers(2, size=n_rows)
    X = np.column_stack([groups + rng.normal(size=n_rows), rng.normal(size=n_rows)])
    y = (X @ [1.0, 1.0] + rng.normal(size=n_rows) > 0.8).astype(int)
    return oracle_bound.TrainingRows(X, y, groups)


def differences(statistics, decisions, notion):
    """Group 1 less group 0, by the definition of the notion."""
    hits = (decisions != statistics.y) if notion == "error_rate_parity" else decisions == 1
    return [
        hits[is_in & (statistics.groups == 1)].mean() - hits[is_in & (statistics.groups == 0)].mean()
        for is_in in statistics.events(notion)
    ]


@pytest.mark.parametrize("notion", oracle_bound.NOTIONS)
def test_prices_are_the_slopes_of_the_differences(rng, notion):
    """Two sets of decisions: the differences move by the mean price of what was changed."""
    statistics = people(rng)
    before, after = rng.integers(2, size=(2, len(statistics.y)))
    moved = np.subtract(differences(statistics, after, notion), differences(statistics, before, notion))
    prices = oracle_bound.unit_prices(statistics, notion)
    events = statistics.events(notion)
    assert len(prices) == len(moved) == len(events)
    for price, event, move in zip(prices, events, moved, strict=True):
        paid = price[statistics.groups, statistics.y] * (after - before)
        assert paid[event].mean() == pytest.approx(move)
        assert not paid[~event].any()


@pytest.mark.parametrize(("notion", "price"), [*zip(oracle_bound.NOTIONS, (0.1, 0.1, 1.0), strict=True)])
def test_a_price_moves_its_difference_down_and_never_buys_accuracy(rng, notion, price):
    """With the true P(a, y | x) of rows that are all alike in law; the dearer, the smaller the difference."""
    statistics = people(rng, 20_000)
    joint = oracle_bound.chances(oracle_bound.LogisticRegression(), statistics, statistics.X)
    np.testing.assert_allclose(joint.sum(axis=(1, 2)), 1.0)
    prices = oracle_bound.unit_prices(statistics, notion)
    free = oracle_bound.decisions(joint, prices, (0.0,) * len(prices))
    for k in range(len(prices)):
        found = [
            oracle_bound.decisions(joint, prices, tuple(price * weight * (j == k) for j in range(len(prices))))
            for weight in (-1, 0, 1)
        ]
        moved = [differences(statistics, one, notion)[k] for one in found]
        assert moved[0] > moved[1] > moved[2]
        assert all(np.mean(one == statistics.y) <= np.mean(free == statistics.y) + 0.002 for one in found)


def test_the_best_point_within_a_gap():
    curve = {(0.0,): (0.9, 0.2, 0.5), (1.0,): (0.8, 0.1, 0.4), (2.0,): (0.7, 0.1, 0.3)}
    best = oracle_bound.best_within(curve, 0.15)
    assert best == {"accuracy_mean": 0.8, "gap_mean": 0.1, "positive_rate_mean": 0.4}
    assert oracle_bound.best_within(curve, 0.05) == dict.fromkeys(best)


def test_the_command_prints_what_compas_allows(data_folder):
    """Without a bound that binds, the accuracy of an unconstrained model; the less gap, the less of it."""
    rows = last_line(oracle_bound, "--runs", "1", "--gaps", "0.05,1")["rows"]
    assert [row["learner"] for row in rows] == [name for name in oracle_bound.learners() for _ in range(2)]
    for bound, free in zip(rows[::2], rows[1::2], strict=True):
        assert 0.66 < free["accuracy_mean"] < 0.72
        assert bound["gap_mean"] <= 0.05
        assert 0.5 < bound["accuracy_mean"] < free["accuracy_mean"] - 0.03
