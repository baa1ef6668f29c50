"""`--protects attribute`: what is written and said, and what is refused."""

import json
import re

import pytest

from _support.answers import summary_in
from fairveil import FairClassifier, LagrangianClassifier
from fairveil.privacy.ledger import Ledger

HIDING = ("people.csv", "--schema", "schema.toml", "--protects", "attribute", "--epsilon", "4")
TABLE = (*HIDING, "--unaware")
PFLD = ("train", *TABLE, "--model", "linear", "--out", "results")
LEDGER = "people.csv.ledger.jsonl"


def test_it_says_what_is_hidden_and_what_is_not(folder, say):
    said = say(*PFLD)
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("Trained a private linear classifier on people.csv (pfld): hides sex and nothing else")
    summary = summary_in(folder / "results")
    assert (summary["method"], summary["protects"], summary["tolerance"]) == ("pfld", "attribute", None)
    assert summary["certificate"]["verdict"] == "measured"
    assert [part["part"] for part in summary["plan"]] == ["train", "sums", "holdout"]
    assert summary["epsilon_spent"] <= 4.0 < summary["epsilon_replace_one"]
    assert Ledger(LEDGER).epsilon(1e-5) == summary["epsilon_spent"]
    assert Ledger(LEDGER).units == ("attribute sex of each record",)
    changed = f"{summary['epsilon_replace_one']:.4f} for the sex of one record changed to another group"
    assert changed in said.out
    stated = summary["statement"]
    assert any("public here" in one for one in stated["not_covered"])
    assert any("features tell about sex" in one or "guess it" in one for one in stated["not_covered"])
    page = (folder / "results" / "report.html").read_text()
    assert "changed to another group" in page
    assert "features and labels" in page.lower()


def test_the_papers_form_is_reached_by_settings(folder, say):
    """Accuracy parity by the clipped loss, epochs of mini-batches, and the paper's symbols as settings."""
    settings = {"form": "printed", "descent.sampling_rate": 0.25, "n_counts": 3, "primal_bound": 10, "dual_bound": 5}
    words = [word for name, value in settings.items() for word in ("--setting", f"{name}={value}")]
    said = say("train", *TABLE, "--constraint", "error_rate_parity", "--lambda-max", "2", *words, "--out", "results")
    assert (said.code, said.err) == (0, "")
    summary = summary_in(folder / "results")
    assert [part["part"] for part in summary["plan"]] == ["train", "looks", "holdout"]
    assert summary["epsilon_spent"] <= 4.0
    refused = say("train", *TABLE, "--setting", "form=printed", "--setting", "descent.n_steps=9", "--out", "other")
    assert refused.code == 2
    assert "n_counts" in refused.err


def test_a_saved_rule_predicts_without_the_attribute_and_certifies_again(folder, strangers, say):
    assert say(*PFLD, "--constraint", "equalized_odds", "--lambda-max", "2").code == 0
    loaded = FairClassifier.load("results/model")
    assert isinstance(loaded.estimator_, LagrangianClassifier)
    strangers.drop(columns=["sex", "income"]).to_csv("new.csv", index=False)
    said = say("predict", "results/model", "new.csv", "--out", "decisions.csv")
    assert (said.code, said.err) == (0, "")
    strangers.to_csv("strangers.csv", index=False)
    said = say("certify", "results/model", "strangers.csv", "--epsilon", "1")
    assert said.code == 0
    assert "certified" in said.out


def test_explain_shows_full_passes_and_no_sampling(folder, say):
    said = say("explain", *TABLE)
    assert (said.code, said.err) == (0, "")
    assert "10 full passes (rate all: 1)" in said.out
    assert "Poisson" not in said.out


def test_explain_says_before_it_is_too_late_that_totals_would_be_lost(folder, say):
    """Nothing of an empty ledger, nor of one that hides the same."""
    records = ("explain", *HIDING[:3], "--unaware", "--method", "dpsgd")
    assert json.loads(say(*records, "--json").out)["cautions"] == []
    assert say(*PFLD).code == 0
    (caution,) = json.loads(say(*records, "--json").out)["cautions"]
    assert "protects attribute sex of each record, but this run would protect record" in caution
    said = say(*records)
    assert (said.code, said.err) == (0, "")
    assert "no common total" in re.sub(r"\s+", " ", said.out)
    assert "no common total" not in say("explain", *TABLE).out
    assert "no common total" not in say(*records, "--ledger", "of_others.jsonl").out
    assert "no common total" not in say(*records, "--epsilon", "inf").out  # hides nothing
    assert say("train", *records[1:], "--out", "other").code == 0
    assert json.loads(say(*records, "--json").out)["cautions"] == []  # nothing is left to lose


def test_runs_that_hide_different_things_have_no_common_total(folder, say):
    assert say(*PFLD).code == 0
    said = say("train", *HIDING[:3], "--unaware", "--method", "dpsgd", "--out", "other")
    assert said.code == 0
    assert "no common total" in re.sub(r"\s+", " ", said.out)
    assert summary_in(folder / "other")["epsilon_spent_total"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("train", *HIDING, "--aware", "--out", "results"),
            ["--unaware", "never read the attribute"],
        ),
        ((*PFLD, "--tolerance", "0.1"), ["pfld", "lambda_max", "tolerance"]),
        ((*PFLD, "--rule", "selection_rate[sex=Male] <= 0.5"), ["pfld", "parity without a tolerance"]),
        ((*PFLD, "--method", "dpsgd"), ["--protects record", "dpsgd"]),
        (
            ("train", *TABLE[:3], "--unaware", "--method", "pfld", "--out", "results"),
            ["--protects attribute"],
        ),
        ((*PFLD, "--lambda-max", "0"), ["lambda_max > 0"]),
        ((*PFLD, "--n-public", "2000"), ["no --n-public", "is public", "2000"]),
        (
            ("train", *HIDING[:3], "--unaware", "--method", "dpsgd", "--lambda-max", "2", "--out", "results"),
            ["--lambda-max with pfld only"],
        ),
        (("frontier", *HIDING[:3], "--unaware", "--methods", "pfld", "--out", "results"), ["pfld"]),
    ],
)
def test_what_does_not_fit_is_one_sentence(folder, is_refused, arguments, words):
    sentence = is_refused(folder, arguments)
    assert all(word in sentence for word in words), sentence


def test_a_declared_source_of_the_attribute_is_refused_as_a_feature(folder, facts, is_refused):
    sources = tuple(entry.model_copy(update={"sources": ("relationship",)}) for entry in facts.sensitive)
    facts.model_copy(update={"sensitive": sources}).write(folder / "schema.toml")
    sentence = is_refused(folder, PFLD)
    assert "relationship" in sentence and "sex" in sentence
