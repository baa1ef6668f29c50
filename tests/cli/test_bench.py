"""`fairveil bench`: one table, one page, and one sentence for whatever is wrong."""

import json

import pytest

GRID = """
data = [{ source = "small.csv", schema = "small.toml" }]
methods = ["dpsgd", "logistic"]
aware = true
epsilons = [1]
tolerances = [0.05]
seeds = 2
"""
SCHEMA = """
[target]
column = "y"
classes = ["no", "yes"]
positive = "yes"

[[sensitive]]
column = "group"
groups = ["a", "b"]

[columns.x]
type = "number"
bounds = [0, 10]
bins = 5

[columns.group]
type = "category"
categories = ["a", "b"]
"""


@pytest.fixture
def grid(tmp_path, monkeypatch):
    """A grid beside its table, in the current folder."""
    rows = [f"{place % 11},{'ab'[place % 2]},{'yes' if place * 7 % 13 > 6 else 'no'}" for place in range(400)]
    (tmp_path / "small.csv").write_text("\n".join(["x,group,y", *rows]) + "\n")
    (tmp_path / "small.toml").write_text(SCHEMA)
    (tmp_path / "grid.toml").write_text(GRID)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "grid.toml"


@pytest.mark.slow
def test_a_bench_prints_its_headline_and_then_json(say, grid, tmp_path):
    said = say("bench", "grid.toml", "--out", "out", "--workers", 1)
    assert said.code == 0, said.err
    assert "small  demographic parity  dpsgd" in said.out and "bench is for public data" in said.out
    assert "4 of 4 runs are here, 4 of them were made now." in said.out
    assert said.err == "4 runs, 4 of them to do, on 1 workers.\n"
    again = say("bench", "grid.toml", "--out", "out", "--json")
    facts = json.loads(again.out)
    assert (facts["n_done"], facts["failures"], again.err) == (4, [], "")
    assert facts["headline"][0]["optimum"]["label"] == "logistic"
    assert "out/bench.html" in facts["written"] and (tmp_path / "out" / "figures").is_dir()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("nowhere.toml",), "no file"),
        (("grid.toml", "--engine", "cluster"), "local or ray"),
        (("grid.toml", "--address", "auto"), "--engine ray"),
        (("grid.toml", "--workers", 0), "at least one worker"),
        (("grid.toml", "--out", "small.csv"), "same place"),
        (("small.csv",), "TOML"),
    ],
)
def test_what_does_not_fit_is_refused(say, grid, arguments, words):
    said = say("bench", *arguments)
    assert said.code == 2 and words in said.err and said.err.count("\n") == 1
    assert "Traceback" not in said.err


def test_an_unknown_key_is_refused_before_anything_is_written(say, grid, tmp_path):
    grid.write_text(GRID + "epsilon = 1\n")
    said = say("bench", "grid.toml", "--out", "out", "--json")
    assert said.code == 2 and 'did you mean "epsilons"' in json.loads(said.err)["error"]
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_bench_in_which_nothing_succeeds_is_refused(say, grid, tmp_path):
    grid.write_text(GRID.replace('["dpsgd", "logistic"]', '["fair-logistic"]') + 'constraints = ["precision_parity"]\n')
    said = say("bench", "grid.toml", "--out", "out", "--workers", 1)
    assert said.code == 2 and "at least one run that succeeds" in said.err and "precision" in said.err
