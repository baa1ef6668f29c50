"""`fairveil train --method fermi`: on records and with `--protects attribute`, and what is refused."""

import pytest

from _support.answers import summary_in
from fairveil import FairClassifier, FermiClassifier

TABLE = ("people.csv", "--schema", "schema.toml", "--unaware", "--method", "fermi", "--epsilon", "4")
TRAIN = ("train", *TABLE, "--out", "results", "--penalty-weight", "6", "--setting", "descent.n_steps=30")


@pytest.mark.parametrize("protects", ["record", "attribute"])
def test_it_trains_certifies_and_predicts_at_either_level(folder, strangers, say, protects):
    said = say(*TRAIN, "--protects", protects)
    assert (said.code, said.err) == (0, "")
    assert ("hides sex and nothing else" in said.out) == (protects == "attribute")
    summary = summary_in(folder / "results")
    assert (summary["method"], summary["protects"], summary["tolerance"]) == ("fermi", protects, None)
    assert summary["certificate"]["verdict"] == "measured" and summary["aims_at_zero"]
    loaded = FairClassifier.load("results/model")
    assert isinstance(loaded.estimator_, FermiClassifier) and loaded.protects == protects
    strangers.to_csv("strangers.csv", index=False)
    assert say("predict", "results/model", "strangers.csv", "--out", "decisions.csv").code == 0
    assert say("certify", "results/model", "strangers.csv", "--epsilon", "1").code == 0


@pytest.mark.parametrize(
    "words, named",
    [
        ((*TRAIN, "--tolerance", "0.1"), ["fermi", "tolerance"]),
        (("train", *TABLE, "--lambda-max", "2", "--out", "results"), ["--lambda-max with pfld only"]),
        ((*TRAIN, "--constraint", "precision_parity"), ["RateConstrainedClassifier"]),
        (("train", *TABLE, "--penalty-weight", "-1", "--out", "results"), ["penalty_weight >= 0"]),
        (
            ("train", *TABLE[:3], "--aware", "--protects", "attribute", "--method", "fermi", "--out", "results"),
            ["aware=False"],
        ),
        (("train", *TABLE, "--protects", "attribute", "--n-public", "2000", "--out", "results"), ["no --n-public"]),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_sentence(folder, say, words, named):
    said = say(*words)
    assert said.code == 2 and not (folder / "results").exists()
    for one in named:
        assert one in said.err
