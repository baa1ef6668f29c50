"""`--method dp2dp` and `--method parity`: what is written and refused, two runs on one file."""

import json
from pathlib import Path

import numpy as np
import pytest

from _support.answers import names_in, summary_in
from fairveil import Key, ParityPostprocessor, RandomizedParityPostprocessor
from fairveil.data.datasets import dataset_schema
from fairveil.privacy.ledger import Ledger

TABLE = ("people.csv", "--schema", "schema.toml")
DP2DP = ("--method", "dp2dp")
PARITY = ("--method", "parity")
LEDGER = "people.csv.ledger.jsonl"
METHODS = {
    "dp2dp aware": (*DP2DP, "--aware"),
    "dp2dp unaware": (*DP2DP, "--unaware"),
    "parity": (*PARITY, "--aware"),
}
PARTS = {
    "dp2dp aware": ["levels", "train", "rule", "holdout"],
    "dp2dp unaware": ["levels", "train", "rule", "check", "holdout"],
    "parity": ["levels", "train", "rule", "holdout"],
}
CLASSES = {"<=50K", ">50K"}


def files_of(name: str) -> list[str]:
    """A rule that is found step by step leaves the course of its bounds."""
    trace = ["constraint_trace.csv"] if name == "dp2dp unaware" else []
    key = ["key"] if name == "parity" else []
    return [*trace, *key, "model", "report.html", "summary.json"]


def loaded(name: str, folder: Path):
    if name == "parity":
        return RandomizedParityPostprocessor.load(folder / "model", key=Key(bytes(16)))
    return ParityPostprocessor.load(folder / "model")


# --- what is written and said ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_a_run_writes_rule_and_summary(folder, people, say, name):
    said = say("train", *TABLE, "--out", "results", *METHODS[name], "--tolerance", "0.2", "--epsilon", "4")
    assert (said.code, said.err) == (0, "")
    assert names_in(folder / "results") == files_of(name)
    summary = summary_in(folder / "results")
    method, aware = METHODS[name][1], METHODS[name][2] == "--aware"
    assert (summary["method"], summary["tolerance"], summary["aware"]) == (method, 0.2, aware)
    assert (summary["constraint"], summary["sensitive"]) == ("demographic_parity", ["sex"])
    assert [part["part"] for part in summary["plan"]] == PARTS[name]
    assert 3.96 < summary["epsilon_spent"] <= 4.0
    assert summary["epsilon_spent"] <= summary["epsilon_spent_total"] <= 4.0
    assert summary["asked"] == [
        "selection_rate[sex=Female] - selection_rate[sex=Male] <= 0.2",
        "selection_rate[sex=Male] - selection_rate[sex=Female] <= 0.2",
    ]
    assert [bound["bound"] for bound in summary["bounds"]] == summary["asked"]
    assert len(Ledger(folder / LEDGER).entries) == 1
    rule = loaded(name, folder / "results")
    assert ("sex" in rule.schema_.columns) == aware
    assert set(rule.predict(people)) <= CLASSES
    if not aware:
        assert np.array_equal(rule.predict(people.drop(columns="sex")), rule.predict(people))


def test_the_text_says_what_was_done(folder, say):
    said = say("train", *TABLE, "--out", "results", *METHODS["dp2dp aware"], "--tolerance", "1", "--epsilon", "4")
    assert (said.code, said.err) == (0, "")
    assert "linear classifier on people.csv (dp2dp)" in said.out and "decisions  may read sex" in said.out
    assert "demographic parity; requested 1" in said.out
    assert "certified  holds: With 95 % confidence" in said.out
    assert "constraint_trace.csv" not in said.out
    said = say("train", *TABLE, "--out", "other", *METHODS["dp2dp unaware"], "--tolerance", "1")
    assert "decisions  do not read sex" in said.out
    assert "constraint_trace.csv" in said.out


def test_a_bundled_data_set_by_name(tmp_path, monkeypatch, say):
    """On 41,500 people the gap is told within a few hundredths; without a bound it is .18."""
    monkeypatch.chdir(tmp_path)
    said = say("train", "adult", *METHODS["dp2dp aware"], "--tolerance", "0", "--out", "results", "--json")
    assert said.code == 0
    summary = json.loads(said.out)
    assert summary == summary_in(tmp_path / "results")
    assert summary["gap"]["value"] < 0.06
    assert summary["accuracy"]["value"] > 0.8
    assert 0.99 < summary["epsilon_spent"] <= 1.0


def test_other_parities_and_rules_with_dp2dp(folder, say):
    asked = (
        "--constraint",
        "equalized_odds",
        "--tolerance",
        "0.3",
        "--rule",
        "selection_rate[sex=Male] <= 0.5",
    )
    said = say("train", *TABLE, "--out", "results", *METHODS["dp2dp aware"], *asked, "--epsilon", "4")
    assert (said.code, said.err) == (0, "")
    summary = summary_in(folder / "results")
    assert (summary["constraint"], summary["rules"]) == ("equalized_odds", [asked[-1]])
    assert len(summary["bounds"]) == 5


def test_a_rule_without_a_tolerance(folder, say):
    rule = "selection_rate[sex=Male] <= 0.9"
    said = say("train", *TABLE, "--out", "results", *METHODS["dp2dp aware"], "--rule", rule, "--epsilon", "4")
    assert (said.code, said.err) == (0, "")
    assert summary_in(folder / "results")["asked"] == [rule]


def test_several_groups_with_dp2dp(folder, say):
    said = say(
        "train", *TABLE, "--out", "results", *METHODS["dp2dp aware"], "--tolerance", "0.5", "--sensitive", "race",
        "--epsilon", "inf",
    )  # fmt: skip
    assert (said.code, said.err) == (0, "")
    assert summary_in(folder / "results")["comparisons"]["all"] == 5 * 4


def test_what_cannot_be_had_is_a_caution_not_a_failure(folder, say):
    rules = ("--rule", "selection_rate[sex=Female] >= 0.6", "--rule", "selection_rate[sex=Female] <= 0.1")
    said = say("train", *TABLE, "--out", "results", *METHODS["dp2dp aware"], *rules, "--epsilon", "inf")
    assert (said.code, said.err) == (0, "")
    (caution,) = summary_in(folder / "results")["cautions"]
    assert "selection_rate[sex=Female]" in caution
    assert f"  caution    {caution}\n" in said.out


def test_the_key_is_beside_the_model_not_in_it_and_its_owners_alone(folder, say):
    assert say("train", *TABLE, "--out", "results", *METHODS["parity"], "--tolerance", "0").code == 0
    assert names_in(folder / "results" / "model") == ["model.json", "params.safetensors"]
    assert "key" not in json.loads((folder / "results" / "model" / "model.json").read_text())
    assert (folder / "results" / "key").stat().st_mode & 0o777 == 0o600


def test_two_runs_on_one_file_compose(folder, say):
    totals = []
    for name in ("dp2dp aware", "parity"):
        out = ("--out", name.replace(" ", "_"))
        assert say("train", *TABLE, *out, *METHODS[name], "--tolerance", "0.5").code == 0
        summary = summary_in(folder / out[1])
        assert summary["epsilon_spent"] <= 1.0
        totals.append(summary["epsilon_spent_total"])
    assert totals[0] <= 1.0 < totals[1] <= 2.0
    assert len(Ledger(folder / LEDGER).entries) == 2


def test_a_budget_in_force_refuses_a_run_before_the_rows_are_read(folder, say, is_refused):
    assert say("ledger", "budget", LEDGER, "--epsilon", "0.5").code == 0
    (folder / "people.csv").write_text("not,a,table\n")
    words = is_refused(
        folder, ("train", *TABLE, "--out", "results", *METHODS["dp2dp aware"], "--tolerance", "0.1", "--epsilon", "4")
    )
    assert "0.5" in words


# --- refusals -------------------------------------------------------------------------------------------------------

TIGHT = ("--tolerance", "0.1")
REFUSED = {
    "dp2dp, neither aware nor unaware": ((*DP2DP, *TIGHT), "--aware or --unaware"),
    "parity, neither aware nor unaware": ((*PARITY, *TIGHT), "--aware or --unaware"),
    "dp2dp, nothing asked for": ((*DP2DP, "--aware"), "--tolerance or --rule with dp2dp"),
    "parity, nothing asked for": ((*PARITY, "--aware"), "with parity, got neither"),
    "parity unaware": ((*PARITY, "--unaware", *TIGHT), "its flips read the group"),
    "parity of odds": ((*PARITY, "--aware", *TIGHT, "--constraint", "equalized_odds"), "--method dp2dp"),
    "parity with a rule": (
        (*PARITY, "--aware", *TIGHT, "--rule", "selection_rate <= 0.5"),
        "demographic_parity alone",
    ),
    "parity with a rule alone": (
        (*PARITY, "--aware", "--rule", "selection_rate <= 0.5"),
        "demographic_parity alone",
    ),
    "parity of five groups": ((*PARITY, "--aware", *TIGHT, "--sensitive", "race"), "parity of two groups"),
    "parity of intersections": (
        (*PARITY, "--aware", *TIGHT, "--sensitive", "race", "--sensitive", "sex"),
        "parity of two groups",
    ),
    "precision": ((*DP2DP, "--aware", *TIGHT, "--constraint", "precision_parity"), "got precision"),
    "precision unaware": ((*DP2DP, "--unaware", *TIGHT, "--constraint", "precision_parity"), "got precision"),
    "negative tolerance": ((*DP2DP, "--aware", "--tolerance", "-0.1"), "0 <= tolerance <= 1"),
    "tolerance that is no number": ((*PARITY, "--aware", "--tolerance", "nan"), "0 <= tolerance <= 1"),
    "rule of an unknown group": (
        (*DP2DP, "--aware", "--rule", "selection_rate[sex=X] <= 0.5"),
        "group of 'sex'",
    ),
    "tolerance without a method that bounds": (TIGHT, "--aware or --unaware"),
}


@pytest.mark.parametrize("command", ["train", "explain"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_one_sentence_and_costs_nothing(folder, is_refused, name, command):
    options, words = REFUSED[name]
    out = ("--out", "results") if command == "train" else ()
    assert words in is_refused(folder, (command, *TABLE, *out, *options))


def test_an_aware_rule_reads_a_group_that_is_no_feature(folder, strangers, say):
    """The rule takes the group from its own column; a model that reads it must have it among its features."""
    dataset_schema("adult").without("sex").write(folder / "hidden.toml")
    hidden = ("train", "people.csv", "--schema", "hidden.toml", "--out", "results", *TIGHT)
    assert say(*hidden, *METHODS["parity"]).code == 0
    strangers.to_csv("new.csv", index=False)
    said = say("predict", "results/model", "new.csv", "--out", "decisions.csv")
    assert (said.code, said.err) == (0, "")
    strangers.drop(columns="sex").to_csv("new.csv", index=False)
    assert '"sex"' in say("predict", "results/model", "new.csv", "--out", "decisions.csv").err


def test_an_aware_model_needs_the_column_among_its_features(folder, is_refused):
    dataset_schema("adult").without("sex").write(folder / "hidden.toml")
    hidden = ("train", "people.csv", "--schema", "hidden.toml", "--out", "results", *TIGHT)
    assert "--unaware" in is_refused(folder, (*hidden, "--aware", "--method", "raco"))
