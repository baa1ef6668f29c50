"""`--method raco`: bounds that are asked for, what is told of them, what is refused, and bad values."""

import json

import pandas as pd
import pytest

from _support.answers import names_in, summary_in
from fairveil import PrivateClassifier, RateConstrainedClassifier
from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.events import (
    Charge,
    DiscreteGaussianRelease,
    GaussianRelease,
    Joint,
    PoissonSampled,
    Repeated,
)
from fairveil.privacy.ledger import Ledger

PLAIN = ("--method", "dpsgd", "--unaware")
TABLE = ("people.csv", "--schema", "schema.toml")
RACO = ("--method", "raco", "--unaware")
TRAIN = ("train", *TABLE, "--out", "results", *RACO)
LEDGER = "people.csv.ledger.jsonl"
FILES = ["constraint_trace.csv", "model", "report.html", "summary.json"]


# --- what is written and said ---------------------------------------------------------------------------------------


def test_a_run_writes_rule_summary_and_trace(folder, people, say):
    said = say(*TRAIN, "--tolerance", "0.2", "--epsilon", "4")
    assert (said.code, said.err) == (0, "")
    assert names_in(folder / "results") == FILES
    summary = summary_in(folder / "results")
    assert (summary["method"], summary["tolerance"], summary["against"], summary["rules"]) == (
        "raco",
        0.2,
        "pairs",
        [],
    )
    assert 3.96 < summary["epsilon_spent"] <= 4.0
    assert [part["part"] for part in summary["plan"]] == ["levels", "train", "look", "holdout"]
    assert [sorted(bound) for bound in summary["bounds"]] == [["bound", "high", "holds", "limit", "low", "value"]] * 2
    assert all(bound["holds"] in {"yes", "no", "unknown"} for bound in summary["bounds"])
    trace = pd.read_csv(folder / "results" / "constraint_trace.csv")
    assert list(trace.columns) == ["step", "bound", "value", "low", "high", "limit", "multiplier"]
    assert len(trace) == 2 * summary["plan"][1]["n_steps"]
    assert set(trace["bound"]) == {bound["bound"] for bound in summary["bounds"]}
    rule = RateConstrainedClassifier.load(folder / "results" / "model")
    assert "sex" not in rule.schema_.columns
    assert set(rule.predict(people)) <= {"<=50K", ">50K"}
    assert len(Ledger(folder / LEDGER).entries) == 1


def test_the_text_says_what_was_requested_and_what_holds(folder, say):
    said = say(*TRAIN, "--tolerance", "1", "--rule", "error_rate <= 1", "--epsilon", "4")
    words = [line.split()[0] for line in said.out.splitlines()]
    assert words[:3] == ["Trained", "decisions", "accuracy"] and words[-3:] == [
        "Written:",
        "Next:",
        "fairveil",
    ]
    assert {"certified", "epsilon", "ever", "seconds"} < set(words)
    assert not {"broken", "caution"} & set(words)
    assert "demographic parity; requested 1" in said.out
    assert "  certified  holds" in said.out
    assert [bound["holds"] for bound in summary_in(folder / "results")["bounds"]] == ["yes"] * 3


def test_a_later_run_without_bounds_removes_the_trace(folder, say):
    assert say(*TRAIN, "--tolerance", "1").code == 0
    assert names_in(folder / "results") == FILES
    assert say("train", *TABLE, *PLAIN, "--out", "results").code == 0
    assert names_in(folder / "results") == ["model", "report.html", "summary.json"]
    PrivateClassifier.load(folder / "results" / "model")
    summary = summary_in(folder / "results")
    assert summary["bounds"] == summary["rules"] == summary["cautions"] == []
    assert summary["tolerance"] is None


def test_what_cannot_be_had_is_a_caution_not_a_failure(folder, say):
    rules = ("--rule", "false_negative_rate <= 0.05", "--rule", "selection_rate <= 0.02")
    said = say(*TRAIN, *rules, "--epsilon", "inf")
    assert (said.code, said.err) == (0, "")
    summary = summary_in(folder / "results")
    (caution,) = summary["cautions"]
    assert "false_negative_rate <= 0.05" in caution or "selection_rate <= 0.02" in caution
    lines = [line.split(maxsplit=1) for line in said.out.splitlines()]
    assert [rest for word, rest in lines if word == "caution"] == [caution]
    assert any(word == "broken" for word, _ in lines)
    assert "no" in {bound["holds"] for bound in summary["bounds"]}
    assert summary["tolerance"] is None
    assert summary["rules"] == [rules[1], rules[3]]


def test_json_is_the_summary_with_its_cautions_and_nothing_else(folder, say):
    said = say(*TRAIN, "--rule", "accuracy >= 0.999", "--epsilon", "inf", "--json")
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out) == summary_in(folder / "results")
    (caution,) = json.loads(said.out)["cautions"]
    assert "-accuracy <= -0.999" in caution


@pytest.mark.parametrize(
    "options, bounds",
    [
        (("--tolerance", "0.4", "--constraint", "equalized_odds"), 4),
        (("--tolerance", "0.4", "--sensitive", "race", "--against", "rest"), 10),
        (("--tolerance", "0.4", "--sensitive", "race", "--sensitive", "sex"), 90),
        (("--tolerance", "0.4", "--constraint", "false_negative_rate_cap"), 1),
        (("--tolerance", "0.4", "--constraint", "false_positive_rate_cap", "--rule", "selection_rate <= 0.5"), 2),
        (("--rule", "selection_rate[sex=Female] >= 0.8 * selection_rate[sex=Male]"), 1),
        (("--tolerance", "0.4", "--model", "mlp", "--holdout", "0"), 0),
    ],
    ids=["odds", "rest", "intersections", "cap", "cap and rule", "rule alone", "mlp without hold-out"],
)  # fmt: skip
def test_bounds_of_every_kind(folder, say, options, bounds):
    said = say(*TRAIN, *options, "--epsilon", "4")
    assert said.code == 0
    summary = summary_in(folder / "results")
    assert said.err == ""
    assert len(summary["bounds"]) == bounds
    assert summary["epsilon_spent"] <= 4.0
    is_cap = any("cap" in option for option in options)
    assert summary["against"] == (None if is_cap else "rest" if "rest" in options else "pairs")
    assert names_in(folder / "results") == FILES


def test_the_gap_of_a_cap_is_the_rate_itself(folder, say):
    """Without noise: the stated value is the rate of the one bound, on the same held-out rows."""
    assert say(
        *TRAIN, "--constraint", "false_negative_rate_cap", "--tolerance", "0.9", "--epsilon", "inf"
    ).code == 0  # fmt: skip
    summary = summary_in(folder / "results")
    assert summary["bounds"][0]["bound"] == "false_negative_rate <= 0.9"
    assert summary["gap"]["value"] == summary["bounds"][0]["value"]
    assert 0 < summary["gap"]["value"] < 1
    assert summary["gap"]["value"] < summary["smallest_tolerance_that_holds"] == summary["gap"]["high"]


def test_an_aware_rule_reads_the_sensitive_column(folder, say):
    assert say("train", *TABLE, "--out", "results", "--method", "raco", "--aware", "--tolerance", "1").code == 0
    assert "sex" in RateConstrainedClassifier.load(folder / "results" / "model").schema_.columns
    assert summary_in(folder / "results")["aware"] is True


def test_all_intersections_are_left_out_of_an_unaware_rule(folder, say):
    assert say(*TRAIN, "--tolerance", "1", "--sensitive", "race", "--sensitive", "sex").code == 0
    rule = RateConstrainedClassifier.load(folder / "results" / "model")
    assert not {"race", "sex"} & set(rule.schema_.columns)


# --- explain --------------------------------------------------------------------------------------------------------


def test_explain_prints_every_part_with_law_and_noise(folder, say, contents):
    before = contents(folder)
    options = (*TABLE, *RACO, "--tolerance", "0.1")
    said = say("explain", *options)
    assert (said.code, said.err) == (0, "")
    plan = json.loads(say("explain", *options, "--json").out)["plan"]
    assert [part["part"] for part in plan] == ["levels", "train", "look", "holdout"]
    shares = [f"a secret random {100 * part['share']:g} % of the units" for part in plan]
    shares[0] = shares[2] = "the same units as train"
    for part, share in zip(plan, shares, strict=True):
        assert f"  stage      {part['part']}: {share}" in said.out
        for release in part["releases"]:
            noise = f"{release['law']} noise, {release['noise_multiplier']:.6g} x sensitivity"
            assert f"releases {release['name']}: {noise}" in said.out
    assert [release["name"] for release in plan[1]["releases"]] == ["histogram", "gradient"]
    assert {release["name"] for release in plan[2]["releases"]} == {
        "decisions",
        "margins",
        "released",
        "clipped",
    }
    assert "decisions  do not read sex" in said.out and "raco, linear model" in said.out
    assert "  bound      selection_rate[sex=Female] - selection_rate[sex=Male] <= 0.1\n" in said.out
    assert contents(folder) == before


def test_the_plan_is_enough_to_recompute_epsilon(folder, say):
    stated = json.loads(say("explain", *TABLE, *RACO, "--tolerance", "0.1", "--json").out)
    events = {"gaussian": GaussianRelease, "discrete_gaussian": DiscreteGaussianRelease}
    charges = []
    for part in stated["plan"]:
        releases = tuple(events[one["law"]](one["noise_multiplier"]) for one in part["releases"])
        batch = releases[0] if len(releases) == 1 else Joint(releases)
        step = PoissonSampled(part["sampling_rates"]["all"], batch)
        charges.append(Charge(Repeated(step, part["n_steps"]), "coins", part.get("piece", part["part"])))
    assert [charge.part for charge in charges] == ["train", "train", "train", "holdout"]
    assert epsilon_of(charges, stated["delta"]) == pytest.approx(stated["epsilon_spent"], rel=1e-3)
    assert 0.99 < stated["epsilon_spent"] <= 1.0


# --- refusals -------------------------------------------------------------------------------------------------------

REFUSED = {
    "neither aware nor unaware": (("--method", "raco", "--tolerance", "0.1"), "--aware or --unaware"),
    "nothing asked for": (RACO, "--tolerance or --rule"),
    "tolerance without raco": ((*PLAIN, "--tolerance", "0.1"), "dpsgd measures the gap"),
    "rule without raco": ((*PLAIN, "--rule", "selection_rate <= 0.5"), "or raco or"),
    "tolerance with output": (
        ("--method", "output", "--unaware", "--tolerance", "0.1"),
        "output measures the gap",
    ),
    "negative tolerance": ((*RACO, "--tolerance", "-0.1"), "0 <= tolerance <= 1"),
    "large tolerance": ((*RACO, "--tolerance", "1.5"), "0 <= tolerance <= 1"),
    "tolerance that is no number": ((*RACO, "--tolerance", "nan"), "0 <= tolerance <= 1"),
    "tolerance in words": ((*RACO, "--tolerance", "little"), "tolerance"),
    "bad rule": ((*RACO, "--rule", "selection_rate < 0.5"), "of the rule"),
    "empty rule": ((*RACO, "--rule", ""), "a rate or a number"),
    "rule of an unknown rate": ((*RACO, "--rule", "luck <= 0.5"), "rates are"),
    "rule of code": ((*RACO, "--rule", "__import__('os').system('x') <= 1"), "of the rule"),
    "rule of an unknown group": ((*RACO, "--rule", "selection_rate[sex=X] <= 0.5"), "group of 'sex'"),
    "rule of another attribute": ((*RACO, "--rule", "selection_rate[race=White] <= 0.5"), "attribute of sex"),
    "rule of an unknown class": ((*RACO, "--rule", "selection_rate(rich) <= 0.5"), "one of the classes"),
    "rule that nothing can meet": ((*RACO, "--rule", "accuracy >= 1.5"), "between 0 and 1 can meet"),
    "unknown constraint": ((*RACO, "--tolerance", "0.1", "--constraint", "fairness"), "constraint"),
    "compared with nobody": ((*RACO, "--tolerance", "0.1", "--against", "nobody"), "against"),
    "unknown sensitive column": (
        (*RACO, "--tolerance", "0.1", "--sensitive", "sex", "--sensitive", "sax"),
        '"sax"',
    ),
}


@pytest.mark.parametrize("command", ["train", "explain"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_one_sentence_and_costs_nothing(folder, is_refused, name, command):
    options, words = REFUSED[name]
    out = ("--out", "results") if command == "train" else ()
    assert words in is_refused(folder, (command, *TABLE, *out, *options))
