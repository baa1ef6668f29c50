"""Scores of the people held out: what is planned, counted, refused, and said."""

import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from fairveil import DemographicParity, Descent, FairClassifier, Ledger, PrivateClassifier, Schema, Tuning, load_dataset
from fairveil.accounting.composition import epsilon_of
from fairveil.data.schema import Target
from fairveil.errors import InvalidParameterError
from fairveil.training.run import SCORES, SCORES_NOISE

pytestmark = [
    pytest.mark.filterwarnings("ignore::fairveil.ToleranceNotMetWarning"),
    pytest.mark.filterwarnings("ignore::fairveil.SmallTableWarning"),
]
QUICK = Descent(n_steps=20)


@pytest.fixture(scope="module")
def people():
    return load_dataset("adult")


def fair(people, **choices):
    usual = {"schema": people.schema, "sensitive": "sex", "aware": True, "holdout": 0.3, "ledger": Ledger()}
    return FairClassifier(**(usual | {"constraint": DemographicParity(0.05), "auc": True} | choices))


def test_the_scores_share_the_budget_of_the_people_held_out(people):
    with_scores, without = fair(people).planned(), fair(people, auc=False).planned()
    assert [stage.name for stage in with_scores.stages if stage.subset == "holdout"] == ["holdout", SCORES]
    assert SCORES not in [stage.name for stage in without.stages]
    held_out = [stage.event for stage in with_scores.stages if stage.subset == "holdout"]
    assert 0.99 < epsilon_of(held_out, 1e-5) <= 1.0
    assert epsilon_of(with_scores.charges(), 1e-5) <= 1.0
    noise, scores, alone = (
        plan.stage(name).releases[0].noise_multiplier
        for plan, name in ((with_scores, "holdout"), (with_scores, SCORES), (without, "holdout"))
    )
    assert math.isclose(scores, SCORES_NOISE * noise, rel_tol=1e-6)
    assert math.isclose(noise / alone, math.sqrt(1 + SCORES_NOISE**-2), rel_tol=0.01)
    # training has people of its own, and loses nothing
    assert [stage for stage in with_scores.stages if stage.subset != "holdout"] == [
        stage for stage in without.stages if stage.subset != "holdout"
    ]


CHOICES = {
    "dpsgd": {"method": "dpsgd", "constraint": DemographicParity(), "training": QUICK},
    "thresholds": {"training": QUICK},
    "joint model": {"aware": False, "training": QUICK},
    "raco": {"method": "raco", "training": QUICK},
    "functional": {"method": "functional"},
    "fairdp": {"method": "fairdp", "constraint": DemographicParity()},
    "chosen privately": {"tune": Tuning((QUICK, Descent(n_steps=10)), mean_runs=2)},
    "first class is positive": {"training": QUICK, "positive": "<=50K"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOICES)
def test_figures_are_those_of_the_released_score(people, name):
    """Without noise, the interval holds scikit-learn's figures of the same model on many other rows."""
    choices = dict(CHOICES[name])
    positive = choices.pop("positive", ">50K")
    schema = people.schema.model_copy(update={"target": people.schema.target.model_copy(update={"positive": positive})})
    X, y = people.X.head(6000), people.y.head(6000)
    clf = fair(people, schema=schema, epsilon=math.inf, **choices).fit(X, y)
    scores = clf.evaluation_.scores
    assert scores.counts.sum() == clf.evaluation_.counts.sum()
    labels = clf.evaluation_.counts.sum(axis=(0, 2))
    assert scores.counts.sum(axis=1).tolist() == (labels if positive == ">50K" else labels[::-1]).tolist()
    estimator, X, y = clf.estimator_, people.X[6000:20_000], people.y[6000:20_000]
    _, _, logits = estimator._predictor._groups_rows_logits(X, None)
    chances = np.exp(logits - logits.max(axis=0)).reshape(-1, 2, len(X)).sum(axis=0)
    place = schema.target.classes.index(positive)
    y_true, shown = (np.asarray(y) == positive), np.log(chances[place]) - np.log(chances[1 - place])
    for figure, oracle in (("roc_auc", roc_auc_score), ("average_precision", average_precision_score)):
        found, truth = getattr(clf.evaluation_, figure)(0.99), oracle(y_true, shown)
        assert found.low <= truth <= found.high
        assert found.high - found.low < 0.4
    summary = clf.summary()
    assert summary["roc_auc"] == clf.evaluation_.roc_auc().to_dict()


@pytest.mark.slow
def test_a_private_fit_spends_no_more_and_says_the_figures(people):
    clf = fair(people, training=QUICK, ledger=Ledger()).fit(people.X, people.y)
    assert clf.epsilon_spent_ <= 1.0
    summary = clf.summary()
    assert summary["roc_auc"]["low"] < summary["roc_auc"]["value"] < summary["roc_auc"]["high"]
    assert summary["average_precision"]["value"] is not None
    assert "roc_auc" in summary and fair(people).fit(people.X.head(500), people.y.head(500)).summary()["roc_auc"]


AGE = {"age": {"type": "number", "bounds": (0, 9)}}
THREE = Schema(columns=AGE, target=Target(column="t", classes=("a", "b", "c")))
ATTRIBUTE = {"protects": "attribute", "method": "pfld", "constraint": DemographicParity(), "aware": False}


@pytest.mark.parametrize(
    "choices, words",
    [
        ({"holdout": 0.0}, "people held out"),
        ({"auc": 1}, "auc=True or auc=False"),
        (ATTRIBUTE, "features and labels"),
    ],
)
def test_what_cannot_be_ranked_is_refused_before_any_debit(people, choices, words):
    clf = fair(people, **choices)
    with pytest.raises(InvalidParameterError, match=words):
        clf.planned()
    assert clf.ledger.entries == ()


def test_more_than_two_classes_are_refused():
    with pytest.raises(InvalidParameterError, match="two classes with auc=True"):
        PrivateClassifier(schema=THREE, holdout=0.2, auc=True, ledger=Ledger()).planned()
