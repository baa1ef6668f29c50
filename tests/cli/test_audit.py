"""`fairveil audit`: methods by name, folders of results, refusals, and what is written."""

import json

import pytest

from _support import twins
from fairveil.cli.audit import plan_of_list
from fairveil.data.datasets import dataset_schema
from fairveil.fair_classifier import FairClassifier
from fairveil.fairness.constraints import DemographicParity
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.registry import METHODS
from fairveil.report.audit import audit_page
from fairveil.training.tuning import Tuning

KEYS = {
    "audited", "unit", "plan", "game", "epsilon", "delta", "lower_bound", "lower_bound_free", "lower_bound_by_curve",
    "ratio", "confidence", "repeats", "reach", "holds", "created", "version",
}  # fmt: skip


@pytest.fixture(scope="module")
def summary():
    """What a summary states of the plan of a method."""
    clf = FairClassifier(DemographicParity(0.05), aware=True, method="functional", schema=dataset_schema("adult"))
    return {"epsilon": 1.0, "delta": 1e-5, "protects": "record", "plan": clf.planned().to_list()}


def test_a_method_is_audited_by_its_name(say):
    facts = json.loads(say("audit", "functional", "--epsilon", "8", "--repeats", "60", "--json").out)
    assert set(facts) == KEYS
    assert facts["epsilon"] == pytest.approx(8.0, rel=1e-3)
    assert 0 <= facts["lower_bound"] <= facts["epsilon"]
    assert facts["holds"] is True


def test_the_text_says_what_was_found_and_what_it_cannot_show(say, tmp_path):
    out = tmp_path / "audit.html"
    text = say("audit", "output", "--repeats", "20", "--out", str(out)).out
    for words in ("claim        epsilon 1 at", "lower bound", "99.9 % confidence", "costs nobody any privacy"):
        assert words in text
    page = out.read_text()
    assert "Nothing was found against the claim" in page
    assert "http://" not in page


def test_the_folder_of_a_training_is_audited(say, tmp_path, summary):
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    out = tmp_path / "audit.json"
    facts = json.loads(say("audit", str(tmp_path), "--repeats", "40", "--out", str(out), "--json").out)
    assert json.loads(out.read_text()) == facts
    assert facts["plan"] == summary["plan"]
    assert "standard queries" in facts["game"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "Expected a summary.json in"),
        ("[" * 100_000, "Expected a summary.json that"),
        ('{"epsilon": 1, "delta": 1e-5, "plan": [{"part": 3}], "protects": "record"}', "Expected a summary.json that"),
        ('{"epsilon": null, "delta": 1e-5, "plan": [], "protects": "record"}', "claims privacy"),
        ('{"epsilon": 1, "delta": 1e-5, "plan": [], "protects": "record"}', "releases with noise"),
    ],
)
def test_a_folder_without_a_usable_summary_is_refused(say, tmp_path, content, words):
    if content is not None:
        (tmp_path / "summary.json").write_text(content)
    answer = say("audit", tmp_path)
    assert answer.code == 2
    assert words in answer.err


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("nothing-like-that",), "which is neither"),
        (("dpsgd", "--repeats", "3"), "repeats"),
        (("dpsgd", "--epsilon", "inf"), "claims privacy"),
        (("dpsgd", "--confidence", "1"), "confidence"),
        (("dpsgd", "--out", "audit.txt"), ".json or .html"),
    ],
)
def test_what_cannot_be_audited_is_refused(say, words, refusal):
    answer = say("audit", *words)
    assert answer.code == 2
    assert refusal in answer.err


@pytest.mark.parametrize("name", list(METHODS))
def test_the_plan_of_every_method_survives_its_summary(name):
    method = METHODS[name]
    constraint = DemographicParity(0.05) if method.bounds_gap else DemographicParity()
    facts = {"aware": method.reads_group, "method": name, "protects": method.protects}
    plan = FairClassifier(constraint, schema=dataset_schema("adult"), **facts).planned()
    again = plan_of_list(json.loads(json.dumps(plan.to_list())), plan.epsilon, plan.delta, method.protects)
    assert again.stages == plan.stages


def test_the_plan_of_a_choice_among_runs_survives_its_summary():
    tune = Tuning((Descent(n_steps=2), Descent(n_steps=3)), mean_runs=3.0)
    clf = FairClassifier(DemographicParity(0.05), aware=True, schema=dataset_schema("adult"), tune=tune)
    plan = clf.planned()
    again = plan_of_list(json.loads(json.dumps(plan.to_list())), plan.epsilon, plan.delta, "record")
    assert [run.stages for run in again.runs] == [run.stages for run in plan.runs]
    assert again.event == plan.event
    assert again.around == plan.around


def test_a_broken_claim_ends_with_exit_code_1(say, monkeypatch):
    twins.divide_noise(monkeypatch, 10)
    answer = say("audit", "functional", "--repeats", "100")
    assert answer.code == 1
    assert "THE CLAIM IS BROKEN" in answer.out


def test_a_broken_claim_is_shown_on_the_page():
    facts = dict.fromkeys(KEYS, 1.0) | {
        "audited": "a <b>", "created": "", "version": "0", "game": "g", "holds": False, "plan": [], "reach": None,
    }  # fmt: skip
    page = audit_page(facts)
    assert "The claim is broken" in page
    assert "a <b>" not in page
