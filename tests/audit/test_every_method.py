"""Every method of the registry, the front door and the best of several runs are audited, with power.

Plans are short (10 steps at rate 1/2) and claim epsilon 8, where few repeats show much. In 3 simulated audits of each,
methods show 0.28 to 0.86 of their claim (0.15 is required here); with a quarter of the noise, 1.4 to 2.6 times their
claim. `fairveil audit METHOD` audits the plans that the command line follows, for longer.
"""

from dataclasses import fields, replace

import numpy as np
import pytest

from _support import twins
from _support.methods import NAMES, parameters_of
from fairveil import Descent, FairClassifier, FairveilError, load_dataset
from fairveil.audit.games import Subject, audit_plan, audit_training
from fairveil.cli.audit import subject_of_method
from fairveil.data.datasets import dataset_schema
from fairveil.methods.registry import METHODS
from fairveil.privacy.ledger import Ledger
from fairveil.training.tuning import Tuning

pytestmark = pytest.mark.attack

EPSILON, REPEATS = 8.0, 250
SCHEMA = dataset_schema("adult")


def shortened(training):
    """Return a recipe of few steps, wherever it keeps their number."""
    names = {field.name for field in fields(training)}
    if "n_steps" in names:
        return replace(training, n_steps=10, sampling_rate=0.5)
    inner = names & {"descent", "base"}
    return replace(training, **{name: shortened(getattr(training, name)) for name in inner})


def subject_for(epsilon=EPSILON, **parameters):
    """Return what a fit with these parameters would follow."""
    clf = FairClassifier(epsilon=epsilon, schema=SCHEMA, **parameters)
    request = clf.request()
    estimator = request.method.make_estimator(request)
    if clf.tune is None:
        return Subject(estimator.planned(), (estimator.planned_recipe(),), estimator.planned_inputs().task)
    tuning = request.tuning(clf.tune)
    return Subject(estimator.planned(tuning), tuning.candidates, estimator.planned_inputs(None, tuning).task)


def method_subject(name):
    training = shortened(METHODS[name].make_training("linear"))
    return subject_for(**{**parameters_of(name), "training": training})


@pytest.mark.parametrize("name", NAMES)
def test_the_claim_of_a_method_stands(name):
    found = audit_plan(method_subject(name), REPEATS)
    assert 0.15 * found.claim < found.lower_bound <= found.claim
    assert found.reach > 0.8


@pytest.mark.parametrize("name", NAMES)
def test_a_method_with_a_quarter_of_the_noise_is_caught(name, monkeypatch):
    subject = method_subject(name)
    twins.divide_noise(monkeypatch, 4)
    found = audit_plan(subject, 100)
    assert found.lower_bound > found.claim


def test_a_recipe_that_runs_afresh_each_time_keeps_its_claim():
    found = audit_plan(method_subject("dpsgd"), 200, is_adaptive=True)
    assert 0.1 * found.claim < found.lower_bound <= found.claim


def test_the_front_door_keeps_its_claim():
    parameters = {**parameters_of("dp2dp"), "method": "auto", "training": Descent(n_steps=10, sampling_rate=0.5)}
    found = audit_plan(subject_for(**parameters), REPEATS)
    assert 0.25 * found.claim < found.lower_bound <= found.claim


@pytest.mark.filterwarnings("ignore::fairveil.errors.ToleranceNotMetWarning")
def test_whole_fits_by_the_front_door_keep_their_claim():
    """The attacker sees one number: the margin that the released model gives the one record. Encoding is played too."""
    people = load_dataset("adult")

    def margin(is_in):
        X, y = people.X.head(int(is_in)), people.y.head(int(is_in))
        facts = {**parameters_of("dp2dp"), "method": "auto", "training": Descent(n_steps=1, sampling_rate=1.0)}
        clf = FairClassifier(epsilon=EPSILON, schema=SCHEMA, holdout=0.0, ledger=Ledger(), **facts).fit(X, y)
        charges[:] = clf.plan_.charges()
        low, high = np.maximum(clf.predict_proba(people.X.head(1))[0], 1e-300)
        return np.log(high / low)

    charges = []
    margin(True)
    found = audit_training(margin, charges, 1e-5, 80)
    assert 0.1 * found.claim < found.lower_bound <= found.claim


def best_of(epsilon=EPSILON):
    candidates = tuple(Descent(n_steps=1, sampling_rate=1.0, learning_rate=rate) for rate in (0.1, 1.0))
    tune = Tuning(candidates, mean_runs=2.0, share=0.02)
    return subject_for(epsilon, **{**parameters_of("dpsgd"), "tune": tune, "training": None, "holdout": 0.0})


def test_the_best_of_several_runs_keeps_its_claim():
    found = audit_plan(best_of(), 600)
    assert 0.25 * found.claim < found.lower_bound <= found.claim


def test_the_best_of_runs_with_a_twentieth_of_the_noise_is_caught(monkeypatch):
    subject = best_of(epsilon=1.0)
    twins.divide_noise(monkeypatch, 20)
    found = audit_plan(subject, 150)
    assert found.lower_bound > found.claim


def test_a_method_registered_elsewhere_is_audited_by_name(monkeypatch):
    monkeypatch.setitem(METHODS, "mine", replace(METHODS["output"], name="mine"))
    found = audit_plan(subject_of_method("mine", 8.0, 1e-5), 50)
    assert found.holds
    with pytest.raises(FairveilError, match="epsilon"):
        subject_of_method("mine", -1.0, 1e-5)
