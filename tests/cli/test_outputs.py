"""What a command may write over: earlier results of fairveil, and nothing else."""

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairveil.cli.train import RESULTS
from fairveil.data.schema import Schema
from fairveil.privacy.ledger import Ledger

LEDGER = "people.csv.ledger.jsonl"
TABLE = ("people.csv", "--schema", "schema.toml")
TRAIN = ("train", *TABLE, "--method", "dpsgd", "--unaware", "--out", "results")
SWEEP = ("frontier", *TABLE, "--methods", "dpsgd", "--unaware", "--epsilons", "1,2", "--out", "sweep")
DRAFT = ("schema", "draft", "people.csv", "--target", "income", "--sensitive", "sex", "--out")

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def usual_permissions() -> Iterator[None]:
    """Files are readable by everybody unless the program says otherwise."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def trained(folder: Path, models: Path) -> Path:
    """The current folder, with results of an earlier training."""
    shutil.copytree(models / "plain", folder / "results")
    return folder


def mode_of(name: str) -> int:
    return stat.S_IMODE(Path(name).stat().st_mode)


# --- what is read is never written over -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["key", "summary.json", "report.html", "constraint_trace.csv", "model", "model/x"])
def test_results_do_not_replace_their_ledger(folder, is_refused, name):
    assert "ledger" in is_refused(folder, (*TRAIN, "--ledger", f"results/{name}"))


@pytest.mark.parametrize("name", ["frontier.csv", "frontier.html", "settings.json", "points/ledger.jsonl"])
def test_a_sweep_does_not_replace_its_ledger(folder, is_refused, name):
    assert "ledger" in is_refused(folder, (*SWEEP, "--ledger", f"sweep/{name}"))


@pytest.mark.parametrize("name", ["results/key", "results/model/schema.toml"])
def test_results_do_not_replace_their_schema(folder, is_refused, name):
    (folder / name).parent.mkdir(parents=True)
    shutil.copy("schema.toml", name)
    assert "schema" in is_refused(folder, (*TRAIN, "--schema", name))


def test_results_do_not_replace_their_table(folder, is_refused):
    (folder / "results").mkdir()
    shutil.copy("people.csv", "results/constraint_trace.csv")
    sentence = is_refused(folder, ("train", "results/constraint_trace.csv", *TRAIN[2:]))
    assert "data file" in sentence


@pytest.mark.parametrize("name", ["people.csv", LEDGER, f"{LEDGER}.head", "link.csv", "twin.csv"])
def test_a_draft_replaces_neither_table_nor_ledger(folder, is_refused, name):
    Ledger(LEDGER).debit_unpriced("a fit")
    Path(f"{LEDGER}.head").write_text("head")
    Path("link.csv").symlink_to("people.csv")
    os.link("people.csv", "twin.csv")
    assert "name another" in is_refused(folder, (*DRAFT, name))
    assert "name another" in is_refused(folder, (*DRAFT, name, "--epsilon", "1"))


def test_a_draft_replaces_no_ledger_of_another_table(folder, is_refused):
    Ledger("others.jsonl").debit_unpriced("a fit")
    Path("others.jsonl.head").write_text("head")
    for name in ("others.jsonl", "others.jsonl.head"):
        assert "which is a ledger" in is_refused(folder, (*DRAFT, name))


@pytest.mark.parametrize("name", ["results/model/decisions.csv", "key.csv", LEDGER.replace("jsonl", "csv")])
def test_decisions_replace_no_input(trained, say, is_refused, name):
    Ledger(LEDGER.replace("jsonl", "csv")).debit_unpriced("a fit")
    Path("key.csv").write_text("00" * 16)
    Path("key.csv").chmod(0o600)
    asked = ("predict", "results/model", "people.csv", "--out", name)
    is_refused(trained, (*asked, "--key", "key.csv") if name == "key.csv" else asked)


# --- what others wrote stays ------------------------------------------------------------------------------------------


def make(name: str) -> None:
    """Put something of one's own where a result would be."""
    place = Path("results", name)
    if RESULTS[name] == "folder":
        place.mkdir(parents=True, exist_ok=True)
        (place / "notes.txt").write_text("mine")
    else:
        place.parent.mkdir(exist_ok=True)
        place.write_text('{"mine": true}')


@pytest.mark.parametrize("name", RESULTS)
def test_what_others_wrote_is_never_replaced(folder, is_refused, name):
    make(name)
    assert f"results/{name}" in is_refused(folder, TRAIN)


@pytest.mark.parametrize("name", ["key", "constraint_trace.csv"])
def test_what_others_put_beside_the_results_is_never_replaced(trained, is_refused, name):
    make(name)
    assert f"results/{name}" in is_refused(trained, TRAIN)


def test_a_file_of_others_in_the_model_folder_stays(trained, is_refused):
    make("model")
    assert "results/model" in is_refused(trained, TRAIN)


@pytest.mark.parametrize("name", ["frontier.csv", "frontier.html", "points", "settings.json"])
def test_a_sweep_replaces_nothing_of_others(folder, is_refused, name):
    (folder / "sweep").mkdir()
    (folder / "sweep" / name).write_text("mine")
    assert "another --out" in is_refused(folder, SWEEP)


@pytest.mark.parametrize("spoil", [lambda facts: None, lambda facts: facts.pop("files")], ids=["this", "an earlier"])
def test_results_of_a_version_are_replaced(trained, say, spoil):
    summary = Path("results/summary.json")
    facts = json.loads(summary.read_text())
    assert facts["files"] == ["model", "summary.json", "report.html"]
    spoil(facts)
    summary.write_text(json.dumps(facts))
    assert say(*TRAIN).code == 0
    assert json.loads(summary.read_text())["data"] == "people.csv"


# --- permissions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["decisions.csv", "decisions.parquet"])
def test_decisions_are_for_their_owner_only(trained, say, name):
    Path(name).write_text("earlier, for everybody")
    assert say("predict", "results/model", "people.csv", "--out", name).code == 0
    assert mode_of(name) == 0o600


def test_a_private_draft_is_for_its_owner_only(folder, say):
    assert say(*DRAFT, "draft.toml").code == 0
    assert mode_of("draft.toml") == 0o600
    assert say(*DRAFT, "public.toml", "--yes").code == 0
    assert mode_of("public.toml") == 0o644
    assert say("schema", "approve", "draft.toml", "--yes").code == 0
    assert mode_of("draft.toml") == 0o600 and not Schema.read("draft.toml").private_draft


def test_a_schema_that_a_link_leads_to_is_replaced_there(folder, say):
    assert say(*DRAFT, "draft.toml").code == 0
    Path("link.toml").symlink_to("draft.toml")
    assert say("schema", "approve", "link.toml", "--yes").code == 0
    assert Path("link.toml").is_symlink() and not Schema.read("draft.toml").private_draft


# --- sweeps -----------------------------------------------------------------------------------------------------------


def test_a_sweep_that_is_refused_late_leaves_nothing(folder, say, contents):
    rows = Path("people.csv").read_text().splitlines()
    Path("people.csv").write_text("\n".join([rows[0].replace("age", "years"), *rows[1:]]))
    before = contents(folder)
    said = say(*SWEEP, "--json")
    assert said.code == 2 and "age" in json.loads(said.err)["error"]
    assert contents(folder) == before


SPOILED = {
    "cut off": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "a list": lambda text: "[]",
    "nested deeply": lambda text: "[" * 100_000,
    "no ledger": lambda text: text.replace('"ledger"', '"lodger"'),
    "another epsilon": lambda text: text.replace('"epsilon": 1.0', '"epsilon": 0.1'),
    "not a number": lambda text: text.replace('"epsilon_spent": ', '"epsilon_spent": NaN, "x": '),
    "no interval": lambda text: text.replace('"accuracy": {', '"accuracy": null, "x": {', 1),
    "a text for a number": lambda text: text.replace('"seconds": ', '"seconds": "many", "x": '),
    "another constraint": lambda text: text.replace('"demographic_parity"', '"magic"'),
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory, people, facts, inside) -> Path:
    """A folder in which the first point of a sweep is done."""
    place = tmp_path_factory.mktemp("swept")
    people.to_csv(place / "people.csv", index=False)
    facts.write(place / "schema.toml")
    assert inside(*SWEEP, "--epsilons", "1", "--json", cwd=place).code == 0
    return place


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=list(SPOILED))
def test_a_spoiled_summary_of_a_point_is_named(swept, tmp_path, monkeypatch, is_refused, spoil):
    shutil.copytree(swept, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    (summary,) = Path("sweep/points").glob("*/summary.json")
    text = summary.read_text()
    summary.write_text(spoil(text))
    assert summary.read_text() != text
    assert str(summary) in is_refused(tmp_path / "copy", SWEEP)
