"""`fairveil frontier`: every point with its model, one table, one page, one total; a sweep that stopped goes on."""

import csv
import json
import shlex
import shutil
import signal
from pathlib import Path

import pytest

from fairveil import FairClassifier
from fairveil.privacy.ledger import Ledger

BOOKS = "people.csv.ledger.jsonl"
GRID = ("--epsilons", "1,2", "--tolerances", "0.2", "--methods", "dp2dp,dpsgd")
TABLE = ("people.csv", "--schema", "schema.toml", "--aware")
SWEEP = ("frontier", *TABLE, *GRID, "--out", "sweep")
PLANNED = [("dp2dp", 1.0, 0.2), ("dp2dp", 2.0, 0.2), ("dpsgd", 1.0, None), ("dpsgd", 2.0, None)]


@pytest.fixture(scope="module")
def done(tmp_path_factory, people, facts, inside) -> Path:
    """A folder in which a sweep has finished."""
    place = tmp_path_factory.mktemp("frontier")
    people.to_csv(place / "people.csv", index=False)
    facts.write(place / "schema.toml")
    said = inside(*SWEEP, "--json", cwd=place)
    assert (said.code, said.err) == (0, "")
    (place / "said.json").write_text(said.out)
    return place


@pytest.fixture
def swept(done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it as the current folder."""
    shutil.copytree(done, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    monkeypatch.delenv("FAIRVEIL_DATA", raising=False)
    return tmp_path / "copy"


def points(facts: dict) -> list[tuple]:
    return [(point["method"], point["epsilon"], point["tolerance"]) for point in facts["points"]]


def folders() -> list[Path]:
    return sorted(Path("sweep/points").iterdir())


def strays() -> list[Path]:
    return list(Path().rglob(".fairveil-*"))


# --- what is written and said ---------------------------------------------------------------------------------------


def test_json_lists_the_points_and_the_total(swept, say):
    facts = json.loads(Path("said.json").read_text())
    assert points(facts) == PLANNED
    shown = json.loads(say("ledger", "show", BOOKS, "--json").out)
    assert len(shown["entries"]) == len(PLANNED)
    for name in ("epsilon_spent_total", "epsilon_spent_total_replace_one"):
        assert facts[name] == shown[name]
    assert max(point["epsilon_spent"] for point in facts["points"]) < facts["epsilon_spent_total"]
    assert facts["epsilon_spent_total"] < sum(point["epsilon_spent"] for point in facts["points"])


def test_the_table_has_one_row_for_each_point(swept):
    facts = json.loads(Path("said.json").read_text())
    with Path("sweep/frontier.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(PLANNED)
    for row, point in zip(rows, facts["points"], strict=True):
        assert (row["method"], float(row["epsilon"])) == (point["method"], point["epsilon"])
        assert row["tolerance"] == ("" if point["tolerance"] is None else str(point["tolerance"]))
        assert float(row["accuracy"]) == point["accuracy"]["value"]
        assert float(row["gap_low"]) <= float(row["gap"]) <= float(row["gap_high"])
        assert row["command"] == point["command"]
        (place,) = Path("sweep/points").glob(f"{row['method']}-epsilon-{row['epsilon'][0]}-*/summary.json")
        summary = json.loads(place.read_text())
        assert row["verdict"] == point["verdict"] == summary["certificate"]["verdict"]


def test_what_the_sweep_cost_stands_apart_from_what_was_spent_before(folder, say):
    grid = ("--epsilons", "1", "--tolerances", "0.2", "--methods", "dp2dp,functional", "--out", "sweep", "--json")
    alone = ("train", *TABLE, "--epsilon", "2", "--tolerance", "0.2", "--out", "first", "--json")
    assert say(*alone).code == 0
    before = Ledger(BOOKS).epsilon(1e-5)
    facts = json.loads(say("frontier", *TABLE, *grid).out)
    assert facts["epsilon_besides_sweep"] == before
    assert 1.0 < facts["epsilon_sweep"] < 2.0  # two trainings at 1, composed
    assert max(before, facts["epsilon_sweep"]) < facts["epsilon_spent_total"] < before + facts["epsilon_sweep"]
    assert facts["epsilon_spent_total"] == Ledger(BOOKS).epsilon(1e-5)
    assert say("train", *TABLE, "--epsilon", "1", "--tolerance", "0.2", "--out", "last").code == 0
    text = say("frontier", *TABLE, *grid[:-1]).out
    after = json.loads(say("frontier", *TABLE, *grid).out)
    assert after["epsilon_sweep"] == facts["epsilon_sweep"]
    assert after["epsilon_besides_sweep"] > before
    assert (
        f"this sweep {facts['epsilon_sweep']:.4f}" in text and f"{after['epsilon_besides_sweep']:.4f} was spent" in text
    )


def test_every_point_is_a_whole_result(swept, people):
    assert len(folders()) == len(PLANNED)
    for folder in folders():
        assert {"model", "summary.json", "report.html"} <= {path.name for path in folder.iterdir()}
        summary = json.loads((folder / "summary.json").read_text())
        clf = FairClassifier.load(folder / "model")
        assert (clf.method_, clf.epsilon) == (summary["method"], summary["epsilon"])
        assert len(clf.predict(people)) == len(people)
    assert strays() == []


def test_the_page_states_the_total(swept):
    facts = json.loads(Path("said.json").read_text())
    page = Path("sweep/frontier.html").read_text()
    assert f'value="{facts["epsilon_spent_total"]!r}"' in page
    assert page.count(shlex.quote("people.csv")) >= 1
    for point in facts["points"]:
        assert f'value="{point["accuracy"]["value"]!r}"' in page


def test_methods_that_only_measure_have_no_tolerance(swept):
    names = [folder.name for folder in folders()]
    assert [name for name in names if name.startswith("dpsgd")] == [
        "dpsgd-epsilon-1-measured",
        "dpsgd-epsilon-2-measured",
    ]
    summary = json.loads(Path("sweep/points/dpsgd-epsilon-1-measured/summary.json").read_text())
    assert summary["tolerance"] is None


def test_the_command_of_a_point_trains_it(swept, say):
    facts = json.loads(Path("said.json").read_text())
    for point in facts["points"][::3]:
        program, *words = shlex.split(point["command"])
        assert program == "fairveil"
        words[words.index("--out") + 1] = "alone"
        said = say(*words, "--json")
        assert (said.code, said.err) == (0, "")
        summary = json.loads(said.out)
        assert (summary["method"], summary["epsilon"], summary["tolerance"]) == (
            point["method"], point["epsilon"], point["tolerance"],
        )  # fmt: skip


def test_the_text_says_what_was_found_and_what_all_of_it_cost(swept, say):
    facts = json.loads(Path("said.json").read_text())
    said = say(*SWEEP)
    assert said.code == 0
    assert said.out.startswith(f"{len(PLANNED)} points on people.csv")
    assert f"ever spent {facts['epsilon_spent_total']:.4f}" in said.out
    assert "sweep/frontier.html" in said.out


def test_the_next_step_can_be_typed(swept, people, say):
    people.to_csv("NEW.csv", index=False)
    (line,) = [line for line in say(*SWEEP).out.splitlines() if line.startswith("Next: ")]
    program, *words = shlex.split(line.removeprefix("Next: "), comments=True)
    assert program == "fairveil"
    said = say(*words)
    assert (said.code, said.err) == (0, "")


def test_a_bundled_table_has_its_ledger_in_the_folder_of_the_sweep(tmp_path, monkeypatch, say):
    monkeypatch.chdir(tmp_path)
    grid = ("--epsilons", "1", "--methods", "dpsgd", "--holdout", "0.3")
    said = say("frontier", "adult", "--unaware", *grid, "--out", "sweep", "--json")
    assert (said.code, said.err) == (0, "")
    assert Ledger("sweep/ledger.jsonl").epsilon(1e-5) == json.loads(said.out)["epsilon_spent_total"]


# --- going on -------------------------------------------------------------------------------------------------------


def test_a_second_call_trains_nothing(swept, say, contents):
    before, books = contents(Path("sweep/points")), Path(BOOKS).read_bytes()
    said = say(*SWEEP, "--json")
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out)["points"] == json.loads(Path("said.json").read_text())["points"]
    assert Path(BOOKS).read_bytes() == books
    assert contents(Path("sweep/points")) == before


def test_only_what_is_missing_is_trained(swept, say, contents):
    gone = Path("sweep/points/dp2dp-epsilon-2-tolerance-0.2")
    shutil.rmtree(gone)
    before = contents(Path("sweep/points"))
    said = say(*SWEEP, "--json")
    assert (said.code, said.err) == (0, "")
    after = contents(Path("sweep/points"))
    assert {name: after[name] for name in before} == before
    assert {name.split("/")[0] for name in set(after) - set(before)} == {gone.name}
    assert len(Ledger(BOOKS).entries) == len(PLANNED) + 1
    assert points(json.loads(said.out)) == PLANNED
    assert json.loads(said.out)["epsilon_spent_total"] == Ledger(BOOKS).epsilon(1e-5)


def test_a_wider_grid_adds_points(swept, say, contents):
    before = contents(Path("sweep/points"))
    said = say(*SWEEP, "--epsilons", "1,0.5", "--methods", "dpsgd", "--json")
    assert (said.code, said.err) == (0, "")
    assert len(Ledger(BOOKS).entries) == len(PLANNED) + 1
    after = contents(Path("sweep/points"))
    assert {name: after[name] for name in before} == before


def whole() -> dict[str, dict[str, bytes | None]]:
    """What finished points hold."""
    finished = [path.parent for path in Path("sweep").glob("points/*/summary.json")]
    return {
        folder.name: {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
        for folder in finished
    }


def n_finished() -> int:
    return len(list(Path("sweep").glob("points/*/summary.json")))


def test_a_sweep_that_was_killed_goes_on(folder, launch, say):
    """Killed while nothing is there, in the middle of a point, and while a point's model is being written."""
    moments = [
        lambda: any(Path("sweep").glob("points/*/.fairveil-*")),
        lambda: n_finished() == 1 and len(folders()) == 2,
        lambda: n_finished() == 2 and any(Path("sweep").glob("points/*/.fairveil-*/model")),
    ]
    kept: dict[str, dict[str, bytes | None]] = {}
    for moment in moments:
        run = launch(*SWEEP)
        run.wait_for(moment)
        run.strike(signal.SIGKILL)
        found = whole()
        assert {name: found[name] for name in kept} == kept
        assert len(Ledger(BOOKS).entries) >= len(found)
        kept = found
    said = say(*SWEEP, "--json")
    assert (said.code, said.err) == (0, "")
    assert points(json.loads(said.out)) == PLANNED
    found = whole()
    assert len(found) == len(PLANNED)
    assert {name: found[name] for name in kept} == kept
    for path in folders():
        FairClassifier.load(path / "model")
    assert strays() == []
    assert json.loads(said.out)["epsilon_spent_total"] == Ledger(BOOKS).epsilon(1e-5)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ("--unaware",),
        ("--delta", "1e-6"),
        ("--constraint", "equalized_odds"),
        ("--model", "mlp"),
        ("--n-public", "1900"),
        ("--holdout", "0.2"),
        ("--confidence", "0.9"),
        ("--sensitive", "race"),
    ],
    ids=" ".join,
)
def test_other_options_in_the_same_folder(swept, is_refused, options):
    shutil.copy("schema.toml", "other.toml")
    assert "another --out" in is_refused(swept, (*SWEEP, *options))


def test_other_facts_in_the_same_folder(swept, facts, is_refused):
    facts.model_copy(update={"n_public": 1500}).write("schema.toml")
    assert "another --out" in is_refused(swept, (*SWEEP, "--epsilons", "1,2,3"))


def test_a_budget_that_cannot_pay_all_points(folder, say, is_refused):
    assert say("ledger", "budget", BOOKS, "--epsilon", "3").code == 0
    assert "at most 3" in is_refused(folder, SWEEP)
    assert Ledger(BOOKS).entries == ()


@pytest.mark.parametrize(
    "options, hint",
    [
        (("--epsilons", "1,x"), "--epsilons"),
        (("--epsilons", ""), "--epsilons"),
        (("--epsilons", "1,,2"), "--epsilons"),
        (("--epsilons", "1;2"), "--epsilons"),
        (("--epsilons", "0"), "epsilon"),
        (("--epsilons", "-1"), "epsilon"),
        (("--epsilons", "nan"), "epsilon"),
        (("--tolerances", "0.1,y"), "--tolerances"),
        (("--tolerances", "2"), "tolerance"),
        (("--tolerances", "-0.1"), "tolerance"),
        (("--tolerances", "nan"), "tolerance"),
        (("--methods", "magic"), "magic"),
        (("--methods", "dp2dp,"), "method to be one of"),
        (("--methods", ""), "method to be one of"),
        (("--methods", "parity", "--unaware"), "parity"),
        (("--confidence", "2"), "confidence"),
        (("--holdout", "2"), "holdout"),
        (("--delta", "0"), "delta"),
        (("--schema", "nothing.toml"), "nothing.toml"),
    ],
    ids=str,
)
def test_what_cannot_be_swept(folder, is_refused, options, hint):
    assert hint in is_refused(folder, (*SWEEP, *options))


def test_points_that_were_requested_twice_are_one(folder, say):
    said = say(*SWEEP, "--epsilons", "1,1.0", "--tolerances", "0.2,0.20", "--methods", "dp2dp,dp2dp", "--json")
    assert points(json.loads(said.out)) == [("dp2dp", 1.0, 0.2)]


def test_points_that_differ_by_little_are_two(folder, say):
    said = say(*SWEEP, "--epsilons", "1,1.0000001", "--methods", "dpsgd", "--json")
    assert points(json.loads(said.out)) == [("dpsgd", 1.0, None), ("dpsgd", 1.0000001, None)]


@pytest.mark.parametrize("place", ["people.csv", "people.csv/sweep"])
def test_a_place_that_cannot_be(folder, is_refused, place):
    assert "--out" in is_refused(folder, (*SWEEP[:-1], place))
