"""The public contract, against golden files: shapes of answers, plans to the last digit, public names.

Shapes and plans may grow: new keys are fine, but nothing may go away, change its type or become another figure. Names
and parameters change on purpose only, and then with their golden file (`python tests/contract/make_golden.py`).
"""

import json
from importlib.resources import files
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from threadpoolctl import threadpool_limits

from _support.contract_answers import METHODS, NAMES, PLANS, SHAPES, TRAININGS, Door
from _support.contract_shapes import broken, changed, shape_of

GOLDEN = Path(__file__).parent / "golden"


def read(pattern):
    return [json.loads(path.read_text()) for path in sorted(GOLDEN.glob(pattern))]


SHAPE_CASES = {(golden["kind"], case): golden["shape"] for golden in read("shape-*.json") for case in golden["cases"]}
FAST = {"explain", "options", "refusal", "ledger_budget", "schema_approve", "check"}
"""Kinds of answers that need no training."""

PLAN_CASES = {
    (golden["method"], case): kept for golden in read("plan-*.json") for case, kept in golden["cases"].items()
}


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    with threadpool_limits(1):
        yield Door(tmp_path_factory.mktemp("contract"))


@pytest.fixture(scope="module")
def summary_schema():
    package = Path(str(files("fairveil")))
    (path,) = package.rglob("summary.schema.json")
    return Draft202012Validator(json.loads(path.read_text()))


@pytest.mark.parametrize(
    ("kind", "case"),
    [pytest.param(*one, id="-".join(one), marks=() if one[0] in FAST else pytest.mark.slow) for one in SHAPE_CASES],
)
def test_an_answer_keeps_its_shape(door, kind, case):
    assert broken(SHAPE_CASES[kind, case], SHAPES[kind][case](door)) == []


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_summary_is_printed_as_it_is_written(door, method):
    assert door.trained(method) == door.summary(method)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_summary_fits_its_schema(door, summary_schema, method):
    summary = door.summary(method)
    assert [f"{list(one.path)}: {one.message}" for one in summary_schema.iter_errors(summary)] == []


@pytest.mark.parametrize(("method", "case"), PLAN_CASES, ids=map("-".join, PLAN_CASES))
def test_a_plan_keeps_every_figure(door, method, case):
    kept = PLAN_CASES[method, case]
    assert list(PLANS[method][case]) == kept["options"]
    assert changed(kept["answer"], door.explained_exactly(method, case)) == []


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_training_follows_the_plan_that_explain_shows(door, method):
    shown = door.answers("explain", "people.csv", "--schema", "schema.toml", *TRAININGS[method])
    assert changed(shown["plan"], door.summary(method)["plan"]) == []


@pytest.mark.parametrize("name", NAMES)
def test_names_and_parameters_change_on_purpose_only(name):
    assert NAMES[name]() == json.loads((GOLDEN / f"{name}.json").read_text())


def test_cases_and_golden_files_match():
    assert set(SHAPE_CASES) == {(kind, case) for kind, cases in SHAPES.items() for case in cases}
    assert set(PLAN_CASES) == {(method, case) for method, cases in PLANS.items() for case in cases}


ANSWER = {
    "plan": [{"part": "train", "share": 0.85}, {"part": "rule", "piece": "train"}],
    "gap": {"value": 0.1},
}


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ({**ANSWER, "new": 1}, None),
        ({**ANSWER, "gap": {"value": None}}, None),
        ({**ANSWER, "gap": None}, "/gap was object and is now null"),
        ({**ANSWER, "gap": {"value": "0.1"}}, "/gap/value was number and is now string"),
        ({"gap": {"value": 0.1}}, "/plan is gone"),
        ({**ANSWER, "plan": []}, "/plan/[] is gone"),
        ({**ANSWER, "plan": ANSWER["plan"][:1]}, "/plan/[]/piece is gone"),
        ({**ANSWER, "plan": [*ANSWER["plan"], {}]}, "/plan/[]/part was always there"),
    ],
)
def test_a_broken_shape_is_reported_and_a_larger_one_is_fine(found, problem):
    problems = broken(shape_of([ANSWER]), found)
    assert len(problems) == (problem is not None)
    assert not problems or problems[0].startswith(problem)


def test_what_appears_by_chance_may_be_missing_but_keeps_its_type():
    shape = shape_of([{"a": {"b": "text"}, "c": 1}, {"c": None}])
    assert broken(shape, {"c": 2}) == []
    assert broken(shape, {"c": 2, "a": {}}) == ["/a/b is gone"]
    assert broken(shape, {"c": 2, "a": {"b": 1}}) == ["/a/b was string and is now number"]


@pytest.mark.parametrize(
    ("found", "n_problems"),
    [
        ({"a": [1.0 + 1e-12, "x"], "new": 1}, 0),
        ({"a": [1.0 + 1e-8, "x"]}, 1),
        ({"a": [1.0, "y"]}, 1),
        ({"a": [1.0]}, 1),
        ({"a": [True, "x"]}, 1),
        ({}, 1),
    ],
)
def test_a_changed_figure_is_reported(found, n_problems):
    assert len(changed({"a": [1.0, "x"]}, found)) == n_problems
