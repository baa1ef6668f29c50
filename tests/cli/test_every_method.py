"""What holds for every method of the registry on the command line."""

import json
from pathlib import Path

import pytest

from _support.answers import events_in, names_in, shape_of
from _support.methods import NAMES, options_of
from _support.spoiling import CELLS, spoil

pytestmark = pytest.mark.slow
TABLE = ("people.csv", "--schema", "schema.toml")
LEDGER = Path("people.csv.ledger.jsonl")
N_ROWS = 600


@pytest.fixture(scope="module")
def clean(tmp_path_factory, people, facts, inside):
    """What every method says, writes and debits on clean rows."""
    folder = tmp_path_factory.mktemp("clean")
    people.head(N_ROWS).to_csv(folder / "people.csv", index=False)
    facts.write(folder / "schema.toml")
    found = {}
    for name in NAMES:
        said = inside("train", *TABLE, *options_of(name), "--out", "results", cwd=folder)
        found[name] = said, events_in(folder / LEDGER), names_in(folder / "results")
        for file in folder.glob(f"{LEDGER}*"):  # its head too
            file.unlink()
    return found


@pytest.mark.parametrize("how", [CELLS, "no rows"])
@pytest.mark.parametrize("name", NAMES)
def test_bad_values_change_no_message_exit_code_or_debit(folder, people, say, clean, name, how):
    X, y = spoil(people.head(N_ROWS).drop(columns="income"), people["income"].head(N_ROWS), how)
    X.assign(income=y)[people.columns].to_csv("people.csv", index=False)
    expected, events, names = clean[name]
    said = say("train", *TABLE, *options_of(name), "--out", "results")
    assert (said.code, said.err) == (0, "") == (expected.code, expected.err)
    assert shape_of(said.out) == shape_of(expected.out)
    assert events_in(LEDGER) == events
    assert names_in(Path("results")) == names
    json.loads(Path("results/summary.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize("name", NAMES)
def test_explain_reads_no_row(folder, say, contents, name):
    Path("people.csv").write_text("not a table at all\n")
    before = contents(folder)
    said = say("explain", *TABLE, *options_of(name))
    assert (said.code, said.err) == (0, "")
    assert "No row was read" in said.out
    for stage in json.loads(say("explain", *TABLE, *options_of(name), "--json").out)["plan"]:
        assert f" {stage['part']}: " in said.out
        for release in stage["releases"]:
            noise = f"{release['law']} noise, {release['noise_multiplier']:.6g} x sensitivity"
            assert f"releases {release['name']}: {noise}" in said.out
    assert contents(folder) == before


@pytest.mark.parametrize("name", NAMES)
def test_training_follows_what_explain_shows(folder, people, say, name):
    people.head(N_ROWS).to_csv("people.csv", index=False)
    options = (*TABLE, *options_of(name), "--epsilon", "2", "--json")
    explained = json.loads(say("explain", *options).out)
    trained = json.loads(say("train", *options, "--out", "results").out)
    assert trained["statement"].pop("total").startswith("Everything ever released")
    assert set(explained.pop("cautions")) <= set(trained["cautions"])  # what noisy counts show is added
    assert {field: trained[field] for field in explained} == explained
