"""`--engine` and `--cache`: rows on disk from the command line, said in words and in the summary."""

import json

import pytest

OPTIONS = ("people.csv", "--schema", "schema.toml", "--unaware", "--method", "dpsgd")


def test_training_on_disk_says_where_private_rows_are(folder, say):
    said = say("train", *OPTIONS, "--engine", "disk", "--out", "results")
    assert said.code == 0, said.err
    assert "people.csv.ledger.jsonl.rows, as private as the table" in said.out
    summary = json.loads((folder / "results" / "summary.json").read_text())
    assert summary["engine"] == "disk"
    assert len(list(folder.glob("*.rows/*/rows.bin"))) == 1
    assert say("train", *OPTIONS, "--engine", "memory", "--out", "results").code == 0


def test_certify_and_frontier_take_the_engine(folder, say):
    grid = ("--methods", "dpsgd", "--epsilons", "1", "--unaware")
    swept = say("frontier", *OPTIONS[:3], *grid, "--engine", "disk", "--cache", "kept", "--out", "sweep")
    assert swept.code == 0, swept.err
    assert len(list(folder.glob("kept/*/rows.bin"))) == 1
    (folder / "others.csv").write_text((folder / "people.csv").read_text() + (folder / "people.csv").read_text())
    model = next((folder / "sweep").rglob("model"))
    said = say("certify", model, "others.csv", "--epsilon", "1", "--engine", "disk")
    assert said.code == 0, said.err
    assert len(list(folder.glob("others.csv.ledger.jsonl.rows/*/rows.bin"))) == 1


@pytest.mark.parametrize("engine", ["memory", "disk"])
def test_explain_names_the_engine(folder, say, engine):
    said = say("explain", *OPTIONS, "--engine", engine)
    assert f"  engine     {engine}: as requested" in said.out
    assert json.loads(say("explain", *OPTIONS, "--engine", engine, "--json").out)["engine"] == engine
    assert not list(folder.glob("*.rows"))


def test_what_cannot_fit_is_one_sentence(folder, say, monkeypatch):
    monkeypatch.setattr("fairveil.methods.engines.available_memory", lambda: 1000)
    for command in ("explain", "train"):
        said = say(command, *OPTIONS)
        assert (said.code, said.out) == (2, "") and said.err.startswith("fairveil: Expected")
        assert "Traceback" not in said.err
    assert not list(folder.glob("*.rows"))
