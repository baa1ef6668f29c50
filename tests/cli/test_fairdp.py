"""`--method fairdp` and `--method functional`: what is written and said, and what is refused."""

import json

import pytest

from _support.answers import summary_in
from fairveil import FairClassifier, FunctionalClassifier, GroupwiseClassifier
from fairveil.methods.fairdp.noise_certificate import OVER_NOISE
from fairveil.privacy.ledger import Ledger

TABLE = ("people.csv", "--schema", "schema.toml", "--unaware", "--epsilon", "4")
FAIRDP = ("train", *TABLE, "--method", "fairdp", "--out", "results")
FUNCTIONAL = ("train", *TABLE, "--method", "functional", "--tolerance", "0.1", "--out", "results")
LEDGER = "people.csv.ledger.jsonl"


def test_fairdp_certifies_the_measured_gap_and_labels_its_own_certificates(folder, people, say):
    said = say(*FAIRDP, "--model", "mlp", "--norm-bound", "2")
    assert (said.code, said.err) == (0, "")
    summary = summary_in(folder / "results")
    assert (summary["method"], summary["model"], summary["tolerance"], summary["asked"]) == (
        "fairdp",
        "mlp",
        None,
        [],
    )
    assert [part["part"] for part in summary["plan"]] == [
        "groups",
        "train",
        "finish",
        "holdout",
        "smooth rates",
    ]
    certificate = summary["certificate"]
    assert certificate["verdict"] == "measured"
    assert certificate["sentence"].startswith("No bound was requested.")
    assert certificate["claims"][0]["limit"] >= certificate["smallest_tolerance"]
    assert summary["bounds"] == []
    assert {one["about"] for one in summary["noise_statements"]} == {OVER_NOISE}
    lines = said.out.splitlines()
    certified = next(place for place, line in enumerate(lines) if line.startswith("  certified"))
    stated = [place for place, line in enumerate(lines) if "Theorem 3.2" in line or "Proposition 3.3" in line]
    assert len(stated) == 2
    assert min(stated) > certified
    assert all(lines[place].startswith("  not model") and OVER_NOISE in lines[place] for place in stated)
    assert summary["epsilon_spent"] <= 4.0
    assert Ledger(folder / LEDGER).epsilon(1e-5) == summary["epsilon_spent"]


def test_statements_at_other_thresholds_are_shown_with_the_threshold(folder, people, say):
    said = say(*FAIRDP, "--setting", "thresholds=0.3")
    assert (said.code, said.err) == (0, "")
    statements = summary_in(folder / "results")["noise_statements"]
    assert [one["threshold"] for one in statements] == [0.5, 0.5, 0.3, 0.3]
    assert {one["event"] for one in statements} == {"any", "demographic_parity"}
    shown = [line for line in said.out.splitlines() if line.startswith("  not model")]
    assert [", threshold 0.3" in line for line in shown] == [False, False, True, True]
    assert all(OVER_NOISE in line for line in shown)


def test_without_a_hold_out_fairdp_states_nothing(folder, people, say):
    said = say(*FAIRDP, "--holdout", "0")
    assert said.code == 0
    assert summary_in(folder / "results")["noise_statements"] == []
    assert "Theorem" not in said.out


@pytest.mark.parametrize("asked", [FAIRDP, FUNCTIONAL], ids=["fairdp", "functional"])
def test_a_saved_rule_predicts_and_certifies_again(folder, people, strangers, say, asked):
    assert say(*asked).code == 0
    loaded = FairClassifier.load(folder / "results" / "model")
    assert isinstance(loaded.estimator_, GroupwiseClassifier if asked is FAIRDP else FunctionalClassifier)
    assert len(loaded.predict(strangers)) == len(strangers)
    assert loaded.summary()["noise_statements"] == []
    strangers.to_csv(folder / "strangers.csv", index=False)
    said = say("certify", "results/model", "strangers.csv", "--epsilon", "1")
    assert said.code == 0
    assert "certified" in said.out


def test_functional_keeps_a_tolerance(folder, people, say):
    assert say(*FUNCTIONAL).code == 0
    summary = summary_in(folder / "results")
    assert (summary["method"], summary["tolerance"], summary["noise_statements"]) == ("functional", 0.1, [])
    assert [part["part"] for part in summary["plan"]][:3] == ["levels", "train", "rule"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*FAIRDP, "--tolerance", "0.1"), ["fairdp", "norm_bound", "tolerance"]),
        ((*FAIRDP, "--norm-bound", "0"), ["norm_bound > 0", "0"]),
        ((*FUNCTIONAL, "--norm-bound", "2"), ["--norm-bound with fairdp only"]),
        ((*FUNCTIONAL, "--model", "mlp"), ["functional", "one of linear;", "mlp"]),
        ((*FUNCTIONAL, "--constraint", "precision_parity"), ["got"]),
        (("train", *TABLE, "--method", "functional", "--out", "results"), ["--tolerance or --rule"]),
    ],
)
def test_what_does_not_fit_is_one_sentence(folder, people, is_refused, arguments, words):
    sentence = is_refused(folder, arguments)
    assert all(word in sentence for word in words), sentence


def test_a_frontier_of_functional_is_one_training_with_many_certificates(folder, people, say):
    sweep = ("frontier", "people.csv", "--schema", "schema.toml", "--unaware", "--methods", "functional")
    asked = (*sweep, "--epsilons", "2", "--tolerances", "0,0.1,0.2", "--out", "sweep", "--json")
    said = say(*asked)
    assert said.code == 0
    points = json.loads(said.out)["points"]
    assert [point["tolerance"] for point in points] == [0.0, 0.1, 0.2]
    ledger = Ledger(folder / LEDGER)
    assert [entry.purpose for entry in ledger.entries] == ["fit of FunctionalClassifier"]
    assert ledger.epsilon(1e-5) <= 2.0
    for point in points:
        one = folder / "sweep" / "points" / f"functional-epsilon-2-tolerance-{point['tolerance']:g}"
        summary = summary_in(one)
        assert summary["certificate"]["claims"][0]["limit"] == point["tolerance"]
        assert summary["accuracy"]["value"] is not None
        assert FairClassifier.load(one / "model").certificate_.n_rows > 0
    again = say(*asked)
    assert again.code == 0
    assert len(Ledger(folder / LEDGER).entries) == 1
