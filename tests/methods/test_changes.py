"""Which decisions of a model a rule changes: the estimate is what its law does to the rows it was fitted to."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fairveil import (
    DemographicParity,
    Descent,
    EqualizedOdds,
    FairClassifier,
    FlipTraining,
    Ledger,
    ParityPostprocessor,
    ParityTraining,
    RandomizedParityPostprocessor,
    fewest_changes,
    load_dataset,
)
from fairveil.fairness.constraints import constrain
from fairveil.fairness.diagnostics import DecisionChanges, parity_limit
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.decoupled_parity import flip_shares, flipping_rule
from fairveil.models.rules import Argmax
from fairveil.report.headlines import changes_sentence
from fairveil.report.text import training_text

TWO = Population((Attribute("g", ("a", "b")),), ("0", "1"))
THREE = Population((Attribute("g", ("a", "b", "c")),), ("0", "1"))
CODES = np.array([0, 1])
FAST = Descent(model="linear", n_steps=60)


@pytest.fixture(scope="module")
def people():
    return load_dataset("adult")


def by_law(clf, X):
    """Exact shares of decisions changed, and the model's own rates, by group of these rows."""
    plain = replace(clf._predictor, rule=Argmax(), key=None)
    before = plain.decide(X, None, None)
    after = clf._predictor.distribution(X, None)[:, 1]
    groups = [X["sex"].to_numpy() == name for name in clf.inputs_.people.names]
    return [np.abs(after - before)[own].mean() for own in groups], [before[own].mean() for own in groups]


@pytest.mark.parametrize("rates", [(0.5, 0.3), (0.0, 0.4), (1.0, 0.2), (0.0, 0.0), (1.0, 1.0), (1.0, 0.0), (0.7, 0.7)])
@pytest.mark.parametrize("tolerance", [0.0, 0.1])
def test_flips_change_the_fewest_in_equal_parts(rates, tolerance):
    """Theorem 2: both groups move by half of what Proposition 1 says must change."""
    rule = flipping_rule(np.array(rates), tolerance, CODES, 3)
    shares = flip_shares(rule, CODES, np.array(rates))
    least = fewest_changes(rates[0] - rates[1], tolerance)
    assert shares == pytest.approx([least / 2, least / 2], abs=1e-12)
    found = DecisionChanges.of(shares, np.array(rates), constrain(DemographicParity(tolerance), TWO))
    assert found.total == pytest.approx(least, abs=1e-12)
    assert found.fewest == pytest.approx(least, abs=1e-12)


def test_only_parity_of_two_groups_has_a_least():
    assert parity_limit(constrain(DemographicParity(0.1), TWO)) == 0.1
    assert parity_limit(constrain(DemographicParity(0.1), THREE)) is None
    assert parity_limit(constrain(EqualizedOdds(0.1), TWO)) is None


@pytest.mark.parametrize("rule_fraction", [None, 0.3])
def test_flips_estimate_what_their_law_does(people, rule_fraction):
    """Without noise and on the same rows the estimate is exact; on other rows a sample of them away."""
    training = FlipTraining(base=FAST, rule_fraction=rule_fraction)
    clf = RandomizedParityPostprocessor(
        DemographicParity(0.02), math.inf, training=training, schema=people.schema, sensitive="sex", random_state=1
    ).fit(people.X, people.y)
    shares, rates = by_law(clf, people.X)
    near = 1e-6 if rule_fraction is None else 0.02
    assert clf.changes_.shares == pytest.approx(shares, abs=near)
    assert clf.changes_.rates == pytest.approx(rates, abs=near)
    assert clf.changes_.fewest == pytest.approx(fewest_changes(rates[0] - rates[1], 0.02), abs=2 * near)


@pytest.mark.parametrize("kind", ["thresholds", "scores"])
def test_thresholds_estimate_what_their_law_does(people, kind):
    if kind == "thresholds":
        estimator, training = ParityPostprocessor, ParityTraining(base=FAST)
    else:
        estimator, training = RandomizedParityPostprocessor, FlipTraining(mode="scores", base=FAST)
    clf = estimator(
        DemographicParity(0.02), math.inf, training=training, schema=people.schema, sensitive="sex", random_state=1
    ).fit(people.X, people.y)
    shares, rates = by_law(clf, people.X)
    assert min(shares) > 0.01
    # within a bin scores are taken to be even
    assert clf.changes_.shares == pytest.approx(shares, abs=0.005)
    assert clf.changes_.rates == pytest.approx(rates, abs=0.005)
    assert clf.changes_.total >= clf.changes_.fewest


def test_steps_on_multipliers_release_nothing_that_says_it(people):
    training = ParityTraining(aware=False, base=FAST)
    clf = ParityPostprocessor(DemographicParity(0.02), training=training, schema=people.schema, sensitive="sex")
    assert clf.set_params(ledger=Ledger()).fit(people.X, people.y).changes_ is None


def test_a_summary_says_it_and_a_loaded_model_does_not(people, tmp_path):
    clf = FairClassifier(
        DemographicParity(0.05), method="parity", sensitive="sex", aware=True, schema=people.schema, ledger=Ledger()
    ).fit(people.X, people.y)
    facts, shares = clf.summary()["changes"], clf.estimator_.changes_.shares
    assert [one["share"] for one in facts["groups"]] == list(shares)
    assert [one["group"] for one in facts["groups"]] == ["Female", "Male"]
    assert facts["fewest"] == pytest.approx(facts["total"])
    assert "estimate" in facts["sentence"] and "no rule of this tolerance" in facts["sentence"]
    printed = training_text(clf.summary(), tmp_path, (), tmp_path / "ledger.jsonl")
    assert f"  changed    {facts['sentence']}" in printed.splitlines()
    clf.save(tmp_path / "model")
    assert FairClassifier.load(tmp_path / "model").summary()["changes"] is None


def test_a_sentence_names_the_groups_that_change_most():
    groups = [{"group": f"g{place}", "share": place / 100, "rate_before": 0.5} for place in range(1, 8)]
    words = changes_sentence({"groups": groups, "total": 0.28, "fewest": None})
    assert "7.0\N{NO-BREAK SPACE}% of the model's decisions for g7" in words
    assert "g3" not in words and "less for every other group" in words and "no rule" not in words
