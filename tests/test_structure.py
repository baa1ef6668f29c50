"""Does the building stand? Floors, sizes, names, and no trace of the machine it was built on."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fairveil

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "fairveil"
FLOORS = {
    "errors": -2, "_validation": -1, "_typing": -2, "_random": 0, "_keys": 0,
    "data": 1, "privacy": 1, "fairness": 1, "models": 1,
    "training": 2, "scale": 2,
    "postprocess": 3, "certify": 3, "audit": 3,
    "estimators": 4, "bench": 5, "report": 6, "cli": 7,
}  # fmt: skip
OPTIONAL = {"torch", "ray", "matplotlib", "opacus"}
FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(tree: ast.AST):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node, node.module
        elif isinstance(node, ast.Import):
            for name in node.names:
                yield node, name.name


def identify(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", FILES, ids=identify)
def test_rooms_look_down_only(path):
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    for _, module in imports(ast.parse(path.read_text())):
        if module.startswith("fairveil.") and room_of(module) != own:
            assert FLOORS[room_of(module)] < FLOORS[own], (
                f"{path.name} on floor {FLOORS[own]} imports {module}"
            )


@pytest.mark.parametrize("path", FILES, ids=identify)
def test_imports_stand_at_the_top(path):
    tree = ast.parse(path.read_text())
    top = {
        id(node)
        for parent in [tree, *(n for n in tree.body if isinstance(n, ast.If))]
        for node in parent.body
    }
    for node, module in imports(tree):
        assert id(node) in top or module.split(".")[0] in OPTIONAL, f"{module} hides inside {path.name}"


@pytest.mark.parametrize("path", FILES, ids=identify)
def test_sizes(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            length = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            assert length <= 40, f"{node.name} in {path.name} is {length} lines long"


@pytest.mark.parametrize("path", [path for path in FILES if path.name != "__main__.py"], ids=identify)
def test_every_module_says_its_job(path):
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_only_the_accounting_files_know_dp_accounting():
    users = {
        path.name
        for path in FILES
        if "dp_accounting" in {m.split(".")[0] for _, m in imports(ast.parse(path.read_text()))}
    }
    assert users
    assert all((PACKAGE / "privacy" / name).exists() for name in users)


def test_public_names_exist_and_are_all():
    assert sorted(fairveil.__all__) == list(fairveil.__all__)
    for name in fairveil.__all__:
        getattr(fairveil, name)
    assert set(fairveil._HOMES) | {"__version__"} == set(fairveil.__all__)
    with pytest.raises(AttributeError):
        _ = fairveil.NoSuchThing


def test_the_map_names_every_room():
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert rooms <= set(re.findall(r"^    (\w+)/ ", fairveil.__doc__, re.MULTILINE))


@pytest.mark.parametrize(
    "estimator",
    [
        fairveil.FairClassifier,
        fairveil.GroupwiseClassifier,
        fairveil.LagrangianClassifier,
        fairveil.ParityPostprocessor,
        fairveil.PrivateClassifier,
        fairveil.RandomizedParityPostprocessor,
        fairveil.RateConstrainedClassifier,
        fairveil.SmoothedClassifier,
    ],
)
def test_estimators_have_at_most_eight_parameters_beside_what_they_wrap_bound_and_tune_and_document_each(
    estimator,
):
    parameters = list(inspect.signature(estimator).parameters)
    assert (
        len([name for name in parameters if name not in {"constraint", "estimator", "tune", "protects"}]) <= 8
    )
    for name in parameters:
        assert re.search(rf"^    .*\b{name}\b.* : ", estimator.__doc__, re.MULTILINE), name


def test_help_does_not_wait_for_heavy_imports():
    code = (
        "import sys; from fairveil.cli import app; "
        "print({m.split('.')[0] for m in sys.modules} & {'sklearn', 'scipy', 'pandas', 'dp_accounting', 'numpy'})"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


def tracked_files():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    return [ROOT / name for name in listed.stdout.split() if (ROOT / name).is_file()]


def test_no_path_of_a_machine_in_the_repository():
    pattern = re.compile(rb"/(?:root|home/[a-z]+|work/[a-z]+|Users/[A-Za-z]+)/")
    files = [path for path in tracked_files() if path.suffix not in {".parquet"} and path.name != "LICENSE"]
    assert not [path.name for path in files if pattern.search(path.read_bytes()) and path != Path(__file__)]


def test_no_test_measures_time_or_skips_silently():
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path != Path(__file__):
            assert "perf_counter" not in path.read_text(), f"{path.name} measures time"


def test_bundled_data_stay_small():
    assert sum(path.stat().st_size for path in (PACKAGE / "data" / "bundled").iterdir()) < 2_000_000


def blocks_of(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = blocks_of("python")
    exec(compile(block, "README.md", "exec"), {})
    assert (tmp_path / "model" / "model.json").exists()


def test_the_commands_of_the_readme_exist():
    lines = [line.split("#")[0].split() for block in blocks_of("") for line in block.splitlines()]
    commands = [words for words in lines if words and words[0] == "fairveil"]
    assert len(commands) >= 5
    for _, *words in commands:
        names = [word for word in words[:2] if re.fullmatch("[a-z]+", word)]
        result = subprocess.run(
            [sys.executable, "-m", "fairveil.cli", *names, "--help"],
            capture_output=True,
            text=True,
            check=True,
        )
        for option in (word for word in words if word.startswith("--")):
            assert option in result.stdout, f"{option} of {names}"
