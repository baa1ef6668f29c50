"""Does the documentation run? Its Python, its commands, its schemas, its links, its tables."""

import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import fairveil
from _support.source import ROOT, code_blocks
from fairveil import errors
from fairveil.cli.app import app
from fairveil.data.schema import Schema
from fairveil.methods.registry import METHODS

DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "auto" not in path.relative_to(DOCS).parts)
ALL = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md", *PAGES]
MOST_LINES_OF_README = 120
LARGEST_PICTURE = 200_000


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- what runs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_tables(monkeypatch):
    """Let examples in the documentation train on few rows."""
    whole = fairveil.load_dataset

    def few(*arguments, **options):
        people = whole(*arguments, **options)
        frame = people.frame.head(2000)
        schema = people.schema.model_copy(update={"n_public": 2000})
        return replace(people, frame=frame, schema=schema)

    monkeypatch.setattr(fairveil, "load_dataset", few)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fairveil.errors.ToleranceNotMetWarning")  # 2,000 people are few for a tolerance
@pytest.mark.parametrize("path", [path for path in ALL if code_blocks(path, "python")], ids=name_of)
def test_the_python_of_the_documents_runs(path, tmp_path, monkeypatch, small_tables):
    if any("from torch" in block for block in code_blocks(path, "python")):
        pytest.importorskip("torch", reason="needs torch: pip install 'fairveil[torch]'")
    monkeypatch.chdir(tmp_path)
    names = {name: getattr(fairveil, name) for name in fairveil.__all__}
    names["people"] = fairveil.load_dataset("adult")
    for block in code_blocks(path, "python"):
        exec(compile(block, str(path), "exec"), names)
    if path.name == "README.md":
        assert (tmp_path / "model" / "model.json").exists()
        assert "fairveil report" in (tmp_path / "report.html").read_text()


def test_the_readme_and_the_quickstart_have_python_that_runs():
    assert code_blocks(ROOT / "README.md", "python")
    assert len(code_blocks(DOCS / "getting-started" / "quickstart-python.md", "python")) >= 4


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random, n_rows = np.random.default_rng(18), 4000
    is_woman, score = random.random(n_rows) < 0.5, random.normal(50, 10, n_rows).round()
    people = pd.DataFrame({"sex": np.where(is_woman, "f", "m"), "score": score.astype(int)})
    people.assign(hired=np.where(score + 5 * ~is_woman > 55, "yes", "no")).to_csv("people.csv", index=False)
    people.head(20).to_csv("applicants.csv", index=False)
    commands = [
        line.split("#")[0].split()
        for block in code_blocks(ROOT / "README.md", "")
        for line in block.splitlines()
        if line.startswith("fairveil ")
    ]
    assert [words[1] for words in commands] == ["schema", "schema", "train", "predict"]
    for words in commands:
        answer = CliRunner().invoke(app, words[1:])
        assert answer.exit_code == 0, f"{' '.join(words)}\n{answer.output}"
    assert (tmp_path / "results" / "report.html").exists()
    assert len((tmp_path / "decisions.csv").read_text().splitlines()) == 21


def test_the_schemas_of_the_documents_can_be_read(tmp_path):
    for path in PAGES:
        assert all(tomllib.loads(block) for block in code_blocks(path, "toml")), path
    (whole,) = code_blocks(DOCS / "how-to" / "write-a-schema.md", "toml")
    (tmp_path / "schema.toml").write_text(whole)
    assert Schema.read(tmp_path / "schema.toml").name == "loans"


def test_the_commands_of_the_documents_exist():
    def options_of(command) -> set[str]:
        return {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}

    wrong, n_commands = [], 0
    for path in ALL:
        lines = [line.split("#")[0].split() for block in code_blocks(path, "") for line in block.splitlines()]
        for words in (words for words in lines if words and words[0] == "fairveil"):
            n_commands += 1
            command, rest = get_command(app), words[1:]
            while rest and rest[0] in getattr(command, "commands", {}):
                command, rest = command.commands[rest[0]], rest[1:]
            known = options_of(command)
            wrong += [f"{path.name}: {' '.join(words)}: {one}" for one in rest if one[:2] == "--" and one not in known]
    assert n_commands >= 20
    assert not wrong


# --- what is listed -----------------------------------------------------------------------------------------------


def test_every_public_name_is_in_the_reference():
    listed = re.findall(r"^   (\w+)$", (DOCS / "reference" / "api.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(set(fairveil.__all__) - {"__version__"})


def test_the_keys_of_the_summary_that_are_described_exist():
    facts = json.loads((ROOT / "src" / "fairveil" / "report" / "summary.schema.json").read_text())["properties"]
    rows = re.findall(r"^\| (`.*?) \|", (DOCS / "reference" / "summary-json.md").read_text(), re.MULTILINE)
    described = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    assert len(described) >= 30
    assert described <= set(facts)


def test_every_error_is_described():
    page = (DOCS / "reference" / "errors.md").read_text()
    kinds = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, Exception)]
    assert len(kinds) >= 10
    assert not [kind.__name__ for kind in kinds if kind.__name__ not in page]


def test_every_method_has_its_page_and_its_row_in_the_readme():
    readme, index = (ROOT / "README.md").read_text(), (DOCS / "methods" / "index.md").read_text()
    for name, method in METHODS.items():
        page = (DOCS / "methods" / f"{name}.md").read_text()
        assert f"[`{name}`](docs/methods/{name}.md)" in readme
        assert f"--method {name}`" in index or f"--protects {method.protects}`" in index
        assert f"~fairveil.{method.estimator.__name__}`" in page
        assert f"~fairveil.{method.recipe.__name__}`" in page
        headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
        assert {"What it does", "When to use it", "The idea in formulas", "Options", "Figures"} <= set(headings)


def test_the_tables_are_those_of_the_csv_files():
    script = importlib.util.spec_from_file_location("make_tables", DOCS / "make_tables.py")
    make_tables = importlib.util.module_from_spec(script)
    script.loader.exec_module(make_tables)
    shown = set()
    for page in make_tables.PAGES:
        text = page.read_text()
        assert make_tables.page_with_tables(text) == text, f"run python docs/make_tables.py: {page.name} is out of date"
        shown.update(re.findall(r"<!-- table: (\w+) -->", text))
    files = {path.stem for path in make_tables.FIGURES.glob("*.csv")}
    assert shown - {"readme"} == files == set(make_tables.COLUMNS)


def test_the_readme_is_short_and_its_picture_small():
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_LINES_OF_README
    assert (DOCS / "_static" / "report.png").stat().st_size < LARGEST_PICTURE


# --- links --------------------------------------------------------------------------------------------------------


def anchors_of(path: Path) -> set[str]:
    """Return the anchors that GitHub and the site make from headings."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the file and the anchor of every relative link."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            yield file, anchor


def test_every_relative_link_leads_somewhere():
    wrong, n_links = [], 0
    for path in ALL:
        for file, anchor in links_of(path):
            target = (path.parent / file).resolve() if file else path
            if "auto" in target.parts:
                continue  # written when the site is built, which checks the link
            n_links += 1
            if not target.exists():
                wrong.append(f"{name_of(path)}: {file}")
            elif anchor and anchor not in anchors_of(target):
                wrong.append(f"{name_of(path)}: {file}#{anchor}")
    assert n_links >= 100
    assert not wrong


def test_tests_and_sources_that_documents_name_exist():
    named = re.compile(r"`((?:tests|benchmarks|examples)/[\w/.-]+|(?:privacy|methods|models|data|accounting)/\w+\.py)`")
    broken = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in ALL
        for name in named.findall(page.read_text())
        if not any((folder / name).exists() for folder in (ROOT, ROOT / "src" / "fairveil"))
    ]
    assert broken == []
