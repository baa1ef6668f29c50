"""Do the examples run as a person would run them, leave what they promise, and say what matters?

What they print depends on secret coins, so that no figure is tested here, only words and files that are always there.
"""

import io
import json
import re
import runpy
import sys
import warnings
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

import fairveil
from fairveil import Dataset, FairClassifier, Ledger, Schema, load_dataset

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
MOST_LINES = 80
N_ROWS = 6000
LEFT_BEHIND = {
    "lending_from_csv": (
        {"applications.csv", "applications.csv.ledger.jsonl", "schema.toml", "model-1", "report.html"},
        ("do not read Sex", "19000 persons", "Certificate: ", "Everything ever released", "decision"),
    ),
    "bring_your_own_model": (
        {"rule.ledger.jsonl", "certificate.ledger.jsonl", "report.html"},
        ("Covered:", "Not covered:", "How the Pipeline that was passed in was trained", "third people"),
    ),
    "compare_methods": (
        {"ledger.jsonl", "frontier.html"},
        ("certified tolerance", "dp2dp", "raco", "parity", "dpsgd", "6 trainings"),
    ),
}


def few_people(name: str) -> Dataset:
    """Return some rows of a known table: what an example shows does not depend on how many they are."""
    whole = load_dataset(name)
    schema = whole.schema.model_copy(update={"n_public": N_ROWS})
    return replace(whole, frame=whole.frame.head(N_ROWS), schema=schema)


def run(name: str, folder: Path) -> str:
    """Run a script in an empty folder, and return what it printed."""
    said = io.StringIO()
    words = [f"{name}.py", "--out", "results"]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.chdir(folder)
        patch.setattr(sys, "argv", words)
        patch.setattr(fairveil, "load_dataset", few_people)
        with threadpool_limits(1):
            runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return said.getvalue()


def embedded(page: Path) -> dict:
    """Return the facts that a page carries with it."""
    found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page.read_text(), re.DOTALL)
    return json.loads(found.group(1))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory):
    """Run each script once, when it is first asked for; return its folder and what it printed."""
    done: dict[str, tuple[Path, str]] = {}

    def of(name: str) -> tuple[Path, str]:
        if name not in done:
            folder = tmp_path_factory.mktemp(name)
            said = run(name, folder)
            assert {path.name for path in folder.iterdir()} == {"results"}
            done[name] = folder / "results", said
        return done[name]

    return of


def test_every_example_is_tested():
    assert {path.stem for path in SCRIPTS} == set(LEFT_BEHIND)


@pytest.mark.parametrize("name", LEFT_BEHIND)
def test_an_example_runs_and_leaves_what_it_promises(name, results):
    folder, said = results(name)
    files, words = LEFT_BEHIND[name]
    heads = {f"{name}.head" for name in files if "ledger" in name}
    assert {path.name for path in folder.iterdir()} == files | heads
    assert [word for word in words if word not in said] == []


def test_the_lending_rule_can_be_loaded_and_does_not_read_sex(results):
    folder, _ = results("lending_from_csv")
    clf = FairClassifier.load(folder / "model-1")
    assert clf.aware is False
    assert "Sex" not in clf.estimator_.schema_.columns
    assert Schema.read(folder / "schema.toml").id_column == "Applicant ID"
    facts = embedded(folder / "report.html")
    assert (facts["data"], facts["unit"], facts["aware"]) == ("made-up loan applications", "person", False)


def test_the_lending_table_is_messy_and_unfair(results):
    folder, _ = results("lending_from_csv")
    header, *rows = (folder / "applications.csv").read_text().splitlines()
    assert len(rows) == 20_000
    assert "Annual income" in header
    cells = [row.split(",") for row in rows]
    assert len({row[0] for row in cells}) == Schema.read(folder / "schema.toml").n_public
    assert {"?", "n/a", "see letter"} <= {row[1] for row in cells}
    women, men = ([row[-1] == "yes" for row in cells if row[-2] == sex] for sex in "FM")
    assert sum(men) / len(men) - sum(women) / len(women) > 0.15


def test_each_people_has_its_own_ledger_where_the_model_is_ones_own(results):
    folder, _ = results("bring_your_own_model")
    spent = {name: Ledger(folder / f"{name}.ledger.jsonl").epsilon(1e-5) for name in ("rule", "certificate")}
    assert spent["rule"] == pytest.approx(1.0, abs=1e-3)
    assert spent["certificate"] == pytest.approx(0.5, abs=1e-3)


def test_the_comparison_shows_the_composed_total(results):
    folder, _ = results("compare_methods")
    facts, ledger = embedded(folder / "frontier.html"), Ledger(folder / "ledger.jsonl")
    assert len(facts["points"]) == len(ledger.entries) == 6
    assert facts["epsilon_spent_total"] == pytest.approx(ledger.epsilon(1e-5))
    assert max(point["epsilon_spent"] for point in facts["points"]) < facts["epsilon_spent_total"] < 6


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_readme_names_each_example_and_how_to_run_it(path):
    text = (EXAMPLES / "README.md").read_text()
    assert f"[{path.name}]({path.name})" in text
    (command,) = re.findall(rf"^\s*python examples/{path.name}.*$", path.read_text(), re.MULTILINE)
    assert command.strip() in text


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_is_short(path):
    assert len(path.read_text().splitlines()) <= MOST_LINES
