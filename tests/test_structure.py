"""Does the architecture hold? Layers, sizes, words. Each test lists all offenders at once."""

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterable

import pytest

import fairveil
from _support.source import PACKAGE, ROOT, Source, package_sources, words_of

SOURCES = package_sources()
TESTS = [Source(path) for path in sorted((ROOT / "tests").rglob("*.py"))]

LAYERS = (
    ("errors", "_typing"),
    ("_reading",),
    ("_validation", "_random", "_keys", "_durable"),
    ("report.formatting",),
    ("report.privacy_text", "report.evidence_text", "report.headlines"),
    ("report.charts",),
    ("report.text",),  # sentences import nothing heavy, so that any package may use them
    ("report.notebook", "report.decision_text"),
    ("data", "accounting", "fairness"),
    ("models",),
    ("privacy",),
    ("scale",),
    ("data.drafting",),  # drafting a schema is a release
    ("training",),
    ("certificates", "forecast"),
    ("persistence",),
    ("methods",),
    ("methods.registry",),
    ("research", "audit"),
    ("report",),
    ("request",),
    ("saved_request",),
    ("summary",),
    ("fair_classifier",),
    ("display",),
    ("bench",),
    ("cli",),
)
"""From the bottom up. A module imports from lower layers and from its own package; the longest name counts."""

OPTIONAL = {"torch", "ray", "matplotlib", "opacus", "PIL", "interpret", "fairlearn", "error_parity", "oxonfair", "dpmm"}
LAZY = {"cli._terminal"}
"""Modules that load others where there is a terminal; commands are loaded by name when they are called."""

MOST_LINES_PER_FILE, MOST_LINES_PER_BODY = 600, 50
LONGER_FILES = {"privacy.queries": 640}  # all questions that may be put about a person stand in one file
MOST_FILES, MOST_LINES = 190, 43_500  # 160 and 37,000 before DP-FERMI, the baselines and the bench
LONGEST_TEST_NAME = 70
MOST_PARAMETERS = 9  # beside what an estimator wraps, bounds, tunes and ranks

FORBIDDEN = {
    "room", "rooms", "house", "houses", "floor", "floors", "lot", "lots", "book", "books", "booked", "wish", "wishes",
    "look", "looks", "scene", "scenes", "sheet", "sheets", "told", "asked", "given", "behind",
}  # fmt: skip
FROZEN = {"look", "looks", "asked", "nothing was asked", "given"}
"""Names in plans and ledgers, keys and values of summary.json: allowed where they are the whole string."""

BRITISH = re.compile(
    r"neighbour|colou?r(?<!color)|centre|behaviour|favour|labell|modell|licence|grey|artefact"
    r"|(?:minim|maxim|optim|regular|normal|random|general|initial|standard|quant|real|organ|summar|util)is(?!t|m)"
)


def expect_none(offenders: Iterable[str]) -> None:
    """Fail with all offenders, one a line."""
    if found := sorted(set(offenders)):
        pytest.fail("\n".join([f"{len(found)} offenders:", *found]), pytrace=False)


# --- layers and sizes -------------------------------------------------------------------------------------------------


def layer_of(module: str) -> int:
    """Return the layer of a module by its longest prefix that is listed."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        for place, names in enumerate(LAYERS):
            if ".".join(parts[:length]) in names:
                return place
    raise AssertionError(f"{module} belongs to no layer; list it in LAYERS")


def own_package(module: str) -> str:
    """Return the entry of LAYERS that a module belongs to."""
    parts = module.split(".")
    names = {name for layer in LAYERS for name in layer}
    return max((name for n in range(len(parts)) if (name := ".".join(parts[: n + 1])) in names), key=len)


def test_imports_point_down_only():
    wrong = []
    for source in SOURCES:
        if not source.name:  # the package itself names them all
            continue
        for node, full in source.imports():
            module = full.removeprefix("fairveil.")
            if not full.startswith("fairveil.") or "." not in module:
                continue
            is_own = own_package(module) == own_package(source.name)
            if not is_own and layer_of(module) >= layer_of(source.name):
                wrong.append(f"{source.at(node)} imports {module}")
    expect_none(wrong)


def test_imports_stand_at_the_top_of_the_file():
    wrong = []
    for source in SOURCES:
        blocks = [source.tree, *(node for node in source.tree.body if isinstance(node, ast.If))]
        top = {id(node) for block in blocks for node in block.body}
        wrong += [
            f"{source.at(node)} imports {module}"
            for node, module in source.imports()
            if id(node) not in top and module.split(".")[0] not in OPTIONAL and source.name not in LAZY
        ]
    expect_none(wrong)


def test_only_accounting_uses_dp_accounting():
    users = {source.name for source in SOURCES for _, module in source.imports() if module.startswith("dp_accounting")}
    assert users
    expect_none(name for name in users if not name.startswith(("accounting.", "research.")))


def test_no_file_is_too_long():
    sizes = {source: len(source.text.splitlines()) for source in SOURCES}
    most = {source: LONGER_FILES.get(source.name, MOST_LINES_PER_FILE) for source in SOURCES}
    expect_none(f"{source.path}: {n}" for source, n in sizes.items() if n > most[source])


def test_no_function_body_is_too_long():
    wrong = []
    for source in SOURCES:
        for node in source.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                length = body[-1].end_lineno - body[0].lineno + 1 if body else 0
                if length > MOST_LINES_PER_BODY:
                    wrong.append(f"{source.at(node)} {node.name}: {length} lines")
    expect_none(wrong)


def test_the_package_stays_small():
    assert len(SOURCES) <= MOST_FILES
    assert sum(len(source.text.splitlines()) for source in SOURCES) <= MOST_LINES


# --- names ------------------------------------------------------------------------------------------------------------


def test_every_module_has_a_docstring():
    modules = [one for one in SOURCES if one.path.name != "__main__.py"]
    expect_none(str(one.path) for one in modules if not ast.get_docstring(one.tree))


def test_only_the_package_itself_lists_public_names():
    lists = [
        source.at(node)
        for source in SOURCES
        for node in source.nodes
        if source.name and isinstance(node, ast.Name) and node.id == "__all__"
    ]
    expect_none(lists)


def test_public_names_exist_and_are_sorted():
    assert sorted(fairveil.__all__) == list(fairveil.__all__)
    for name in fairveil.__all__:
        getattr(fairveil, name)
    assert dir(fairveil) == fairveil.__all__ == sorted([*fairveil._HOMES, "__version__"])
    with pytest.raises(AttributeError):
        _ = fairveil.NoSuchThing


def test_the_package_docstring_names_every_package():
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    expect_none(name for name in packages if f"{name}/" not in fairveil.__doc__)


def test_parameters_of_estimators_are_few_and_documented():
    public = [getattr(fairveil, name) for name in fairveil.__all__]
    estimators = [one for one in public if inspect.isclass(one) and hasattr(one, "get_params")]
    wrong = []
    for estimator in estimators:
        names = list(inspect.signature(estimator).parameters)
        wrong += [
            f"{estimator.__name__}.{name} is not documented"
            for name in names
            if not re.search(rf"^    .*\b{name}\b.* : ", estimator.__doc__, re.MULTILINE)
        ]
        if len(set(names) - {"constraint", "estimator", "tune", "protects", "auc"}) > MOST_PARAMETERS:
            wrong.append(f"{estimator.__name__} has {len(names)} parameters")
    assert len(estimators) >= 9
    expect_none(wrong)


def test_no_forbidden_word_in_names_and_texts():
    wrong = []
    for source in SOURCES:
        wrong += [
            f"{source.at(node)} {name}" for node, name in source.identifiers() if FORBIDDEN.intersection(words_of(name))
        ]
        for node, text in source.strings():
            words = FORBIDDEN.intersection(re.findall(r"[a-z]+", text.lower()))
            if words and text not in FROZEN:
                wrong.append(f"{source.at(node)} text with {', '.join(sorted(words))}")
    expect_none(wrong)


def test_no_forbidden_word_in_templates_and_documents():
    paths = [
        *PACKAGE.rglob("*.html*"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(path for path in (ROOT / "docs").rglob("*.md") if path.name != "errata.md"),  # quotes the papers
    ]
    wrong = [
        f"{path.relative_to(ROOT)}:{place} {word}"
        for path in paths
        for place, line in enumerate(path.read_text().splitlines(), 1)
        for word in FORBIDDEN.intersection(re.findall(r"[a-z]+", line.lower()))
    ]
    expect_none(wrong)


def test_names_are_spelled_the_american_way():
    wrong = [
        f"{source.at(node)} {name}"
        for source in SOURCES
        for node, name in source.identifiers()
        if BRITISH.search(name.lower())
    ]
    expect_none(wrong)


def test_only_methods_compare_with_the_name_of_a_method():
    from fairveil.methods.registry import METHODS

    names = set(METHODS)
    wrong = []
    for source in SOURCES:
        if source.name.split(".")[0] == "methods":
            continue
        for node in source.nodes:
            if isinstance(node, ast.Compare):
                parts = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
            elif isinstance(node, ast.MatchValue):
                parts = [node.value]
            elif isinstance(node, ast.Dict):
                parts = [key for key in node.keys if key is not None]
            else:
                continue
            found = {part.value for part in parts if isinstance(part, ast.Constant)} & names
            wrong += [f"{source.at(node)} {name}" for name in found]
    for path in PACKAGE.rglob("*.html*"):
        found = re.findall(rf"""==\s*["']({"|".join(sorted(names))})["']""", path.read_text())
        wrong += [f"{path.relative_to(ROOT)} {name}" for name in found]
    expect_none(wrong)


def test_names_of_tests_are_short_and_plain():
    wrong = [
        f"{source.path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for source in TESTS
        for node in source.nodes
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if len(node.name) > LONGEST_TEST_NAME or FORBIDDEN.intersection(words_of(node.name))
    ]
    expect_none(wrong)


# --- the repository ---------------------------------------------------------------------------------------------------


HEAVY = {"numpy", "scipy", "pandas", "pyarrow", "sklearn", "dp_accounting", "jinja2", "rich"}
MAY_LOAD = {
    ("--help",): set(),
    ("--version",): set(),
    ("predict", "--help"): set(),
    ("ledger", "show", "ledger.jsonl"): {"numpy", "scipy"},
    ("ledger", "verify", "ledger.jsonl"): {"numpy", "scipy"},
    ("ledger", "budget", "ledger.jsonl", "--epsilon", "1"): {"numpy", "scipy"},
    ("schema", "approve", "schema.toml", "--yes"): {"numpy", "scipy"},
    ("train", "--help"): HEAVY - {"dp_accounting", "rich"},
    ("train", "nowhere.csv", "--aware", "--tolerance", "0.02"): HEAVY - {"dp_accounting", "rich"},
}
"""What commands may load, of what takes long: those that need no model start at once."""
NEVER_LOADED = ("scipy.stats", "scipy.optimize", "scipy.signal", "numpy.f2py", "numpy.testing")


@pytest.mark.parametrize("words", MAY_LOAD, ids=" ".join)
def test_a_command_loads_no_more_than_it_needs(words, tmp_path):
    """A stand-in has no file; whoever asks it for one loads the module, so only what is there is read."""
    code = (
        "import json, sys; from fairveil.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"loaded = [name for name in {NEVER_LOADED} if '__file__' in vars(sys.modules.get(name, object))]\n"
        f"print(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}} & {HEAVY})), loaded, sep='\\n')"
    )
    fairveil.Ledger(tmp_path / "ledger.jsonl", budget=fairveil.Budget(2.0, 1e-5))
    (tmp_path / "schema.toml").write_bytes((PACKAGE / "data" / "bundled" / "compas.toml").read_bytes())
    command = [sys.executable, "-c", code, *words]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    *_, found, loaded = answer.stdout.splitlines()
    assert set(json.loads(found)) <= MAY_LOAD[words]
    assert loaded == "[]"


def test_no_path_of_a_machine_in_the_repository():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    files = [ROOT / name for name in listed.stdout.split() if (ROOT / name).is_file()]
    pattern = re.compile(rb"/(?:root|home/[a-z]+|work/[a-z]+|Users/[A-Za-z]+)/")
    wrong = [
        str(path)
        for path in files
        if path.suffix != ".parquet" and path.name not in {"LICENSE", "test_structure.py"}
        if pattern.search(path.read_bytes())
    ]
    expect_none(wrong)


def test_no_test_measures_time():
    wrong = [one.path.name for one in TESTS if one.path.name != "test_structure.py" and "perf_counter" in one.text]
    expect_none(wrong)


def test_bundled_data_stay_small():
    assert sum(path.stat().st_size for path in (PACKAGE / "data" / "bundled").iterdir()) < 2_000_000
