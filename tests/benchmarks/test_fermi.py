"""The published form of DP-FERMI, run for comparison: its file, its slopes, and what the benchmark of ours prints."""

import math

import numpy as np
import pytest

import _fermi
import fermi
from _support.benchmarking import last_line


@pytest.fixture(scope="module")
def adult():
    return _fermi.PublishedFile.of("adult")


def test_the_published_split_of_adult_is_found_again(adult):
    """Counts that the published error rates fix: 15,081 test rows, 10,220 men of whom 3,092 have a high income."""
    men, rich = adult.is_first[adult.is_test], adult.y[adult.is_test] == 1
    assert (len(men), men.sum(), (men & rich).sum(), (~men & rich).sum()) == (15_081, 10_220, 3_092, 499)
    assert adult.X.shape == (60_324, 103)  # 102 features and the intercept


@pytest.mark.parametrize("all_groups", [False, True])
@pytest.mark.parametrize("constraint", ["demographic_parity", "equalized_odds"])
def test_its_slopes_are_those_of_the_printed_objective(adult, rng, all_groups, constraint):
    objective = _fermi._Objective(adult, _fermi.PublishedSettings(all_groups=all_groups, constraint=constraint))
    rows = rng.choice(len(adult.y), 50, replace=False)
    chances = rng.uniform(size=(50, 1))
    W = [rng.normal(size=(scaled.shape[1], 1)) for scaled in objective.scaled]

    def value(at, matrices):
        total = 0.0
        for stratum, scaled, w in zip(objective.strata, objective.scaled, matrices, strict=True):
            own = stratum[rows]
            mean = at[own].mean()
            joint = (at[own] * scaled[rows][own]).mean(axis=0)
            total += -float((w**2).sum()) * mean + 2 * float(w[:, 0] @ joint) - 1
        return total

    by_chance, by_w = objective.slopes(rows, chances, W)
    for place in (0, 7, 49):
        step = np.zeros_like(chances)
        step[place] = 1e-5
        slope = (value(chances + step, W) - value(chances - step, W)) / 2e-5
        assert by_chance[place, 0] == pytest.approx(slope, rel=1e-3, abs=1e-6)
    for stratum, own in enumerate(W):
        step = np.zeros_like(own)
        step[0] = 1e-5
        moved = [[w + sign * step if at == stratum else w for at, w in enumerate(W)] for sign in (1, -1)]
        assert by_w[stratum][0, 0] == pytest.approx(
            (value(chances, moved[0]) - value(chances, moved[1])) / 2e-5, rel=1e-3
        )


def test_a_run_without_a_penalty_learns(adult):
    settings = _fermi.PublishedSettings(rate=0.1, passes=2)
    (found,) = _fermi.published_runs(adult, [(0.0, math.inf)], settings, 0)
    assert found["accuracy"] > 0.81


def test_the_benchmark_of_ours_prints_every_part(monkeypatch):
    monkeypatch.setattr(fermi, "FEW", 2)
    command = "--parts steps,coding --rounds 2 --json"
    answer = last_line(fermi, *command.split())
    assert answer["coding"] == 0.0
    assert {"dp_sgd_ms", "fermi_record_ms", "fermi_attribute_ms", "ratio"} <= set(answer["steps"])
