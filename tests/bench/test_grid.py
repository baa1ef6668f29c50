"""Grids are read strictly, and runs keep their identity as long as nothing that decides a figure changes."""

import math
import shutil
import tomllib

import pytest

from _support.source import ROOT, code_blocks
from fairveil.bench.contenders import CONTENDERS, Contender, contenders, register
from fairveil.bench.grid import read_grid
from fairveil.data.datasets import dataset_path
from fairveil.errors import FairveilError, InvalidParameterError
from fairveil.methods.registry import METHODS

from .conftest import SCHEMA, small_frame

ALL = {"source": "small.csv", "schema": "small.toml"}


def identities(path):
    return [run.identity for run in read_grid(path).runs()]


def test_a_grid_is_the_product_of_its_lists(write_grid):
    grid = read_grid(write_grid(methods=["dp2dp", "dpsgd", "logistic"], epsilons=[1, 3], tolerances=[0, 0.1], seeds=3))
    runs = list(grid.runs())
    # with epsilon and tolerance, with epsilon alone, with neither; three seeds each
    assert len(runs) == 3 * (4 + 2 + 1) == len({run.identity for run in runs})
    assert {run.seed for run in runs} == {1000, 1001, 1002}
    assert {(run.epsilon, run.tolerance) for run in runs if run.contender == "logistic"} == {(None, None)}
    assert grid.baseline == "dp2dp"


def test_no_privacy_is_an_epsilon_of_its_own(write_grid):
    path = write_grid()
    path.write_text(path.read_text().replace("[1.0]", "[1.0, inf]"))
    runs = [run for run in read_grid(path).runs() if run.contender == "dpsgd"]
    assert {run.epsilon for run in runs} == {1.0, math.inf}
    assert "inf" in {run.facts["epsilon"] for run in runs}


def test_knobs_take_the_place_of_tolerances(write_grid):
    fairdp = {"name": "fairdp", "label": "averaged", "knobs": [0.3, 1.0], "settings": {"descent.n_steps": 5}}
    runs = list(read_grid(write_grid(methods=[fairdp], seeds=[7], tolerances=None)).runs())
    assert [(run.label, run.options) for run in runs] == [
        (f"averaged {knob:g}", {"knob": knob, "settings": {"descent.n_steps": 5}}) for knob in (0.3, 1.0)
    ]


def test_the_identity_follows_from_what_decides_a_figure(write_grid, folder):
    usual = identities(write_grid())
    labeled = [{"name": "dpsgd", "label": "plain"}, "logistic"]
    assert identities(write_grid(methods=labeled)) == usual
    assert identities(write_grid(data=[ALL | {"name": "other"}], baseline="logistic", gaps=[0.3])) == usual
    changes = (
        {"seeds": [5, 6]}, {"epsilons": [2.0]}, {"delta": 1e-6}, {"aware": False}, {"train_share": 0.5},
        {"constraints": ["equalized_odds"]}, {"data": [ALL | {"split": "person"}]}, {"data": [ALL | {"rows": 100}]},
        {"methods": [{"name": "dpsgd", "settings": {"n_steps": 5}}]},
    )  # fmt: skip
    for change in changes:
        assert not set(identities(write_grid(**change))) & {usual[0], usual[1]}, change
    small_frame(seed=6).to_csv(folder / "small.csv", index=False)
    assert not set(identities(write_grid())) & set(usual)


def test_the_identity_does_not_depend_on_the_place(write_grid, folder, tmp_path_factory):
    path, other = write_grid(), tmp_path_factory.mktemp("other")
    for name in ("small.csv", "small.toml", "grid.toml"):
        shutil.copy(folder / name, other)
    assert identities(other / "grid.toml") == identities(path)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"methodz": ["dpsgd"]}, '(did you mean "methods"?)'),
        ({"methods": ["dpsgdd"]}, 'did you mean "dpsgd"'),
        ({"methods": []}, "Expected methods"),
        ({"methods": ["dpsgd", "dpsgd"]}, "once"),
        ({"methods": ["dpsgd", {"name": "dpsgd", "label": "again"}]}, "more than their label"),
        ({"methods": [{"name": "dpsgd", "modell": "mlp"}]}, "'modell'"),
        ({"methods": [{"name": "dpsgd", "model": "tree"}]}, "tree"),
        ({"methods": [{"name": "dpsgd", "settings": {"n_stepz": 5}}]}, "n_stepz"),
        ({"methods": [{"name": "dpsgd", "knobs": [1.0]}]}, "no knobs"),
        ({"methods": [{"name": "logistic", "model": "mlp"}]}, "no model"),
        ({"methods": [5]}, "table of keys"),
        ({"constraints": ["parity"]}, "demographic_parity"),
        ({"epsilons": [0]}, "epsilons"),
        ({"epsilons": ["one"]}, "'one'"),
        ({"epsilons": None}, "Expected epsilons"),
        ({"methods": ["dp2dp"], "tolerances": None}, "Expected tolerances"),
        ({"tolerances": [2.0]}, "2.0"),
        ({"seeds": 0}, "at least one split"),
        ({"seeds": [True]}, "seeds"),
        ({"train_share": 1.0}, "train_share"),
        ({"aware": None}, "aware = true"),
        ({"aware": "yes"}, "'yes'"),
        ({"baseline": "raco"}, "baseline"),
        ({"test": "z"}, "wilcoxon"),
        ({"data": ["nowhere.csv"]}, "nowhere.csv"),
        ({"data": [{"source": "small.csv"}]}, "schema"),
        ({"data": [ALL | {"split": "household"}]}, "row or person"),
        ({"data": [ALL | {"unit": "person"}]}, "both sides"),
        ({"data": [ALL | {"sensitive": ["age"]}]}, "age"),
        ({"data": [ALL, ALL]}, "twice"),
        ({"data": [{"source": "none.csv", "schema": "small.toml", "optional": True}]}, "at least one data set"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(write_grid, changes, words):
    with pytest.raises(FairveilError) as refused:
        list(read_grid(write_grid(**changes)).runs())
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_are_no_grid_are_refused(tmp_path):
    with pytest.raises(FairveilError, match="no file"):
        read_grid(tmp_path / "nowhere.toml")
    (tmp_path / "broken.toml").write_text("data = [")
    with pytest.raises(FairveilError, match="TOML"):
        read_grid(tmp_path / "broken.toml")


def test_persons_need_a_column_that_names_them(write_grid, folder):
    (folder / "small.toml").write_text(SCHEMA.replace('id_column = "person"', ""))
    with pytest.raises(FairveilError, match="id_column"):
        read_grid(write_grid(data=[ALL | {"split": "person"}]))


def test_an_optional_table_that_is_not_there_is_left_out(write_grid):
    grid = read_grid(write_grid(data=[ALL, {"source": "far.csv", "schema": "small.toml", "optional": True}]))
    assert ([one.name for one in grid.data], grid.missing) == (["small"], ("far",))


def test_every_method_of_the_registry_is_a_contender():
    known = contenders()
    assert {"auto", *METHODS} <= set(known)
    for name, method in METHODS.items():
        assert (known[name].keeps_tolerance, known[name].title) == (method.bounds_gap, method.title)
    assert all(not known[name].is_private for name in ("logistic", "boosting", "fair-logistic", "fair-boosting"))


def test_a_name_means_one_contender():
    for name in ("auto", "dpsgd", "logistic"):
        with pytest.raises(InvalidParameterError, match=name):
            register(Contender(name, "", lambda problem: None))
    assert CONTENDERS["logistic"].title.startswith("logistic regression")


def test_the_grids_of_the_repository_can_be_read():
    paths = sorted((ROOT / "benchmarks" / "grids").glob("*.toml"))
    assert [path.stem for path in paths] == ["frontier", "persons", "quick"]
    for path in paths:
        try:
            dataset_path("parkinsons")
        except FairveilError:
            if path.stem == "persons":
                continue
        assert len(list(read_grid(path).runs())) > 50


def test_the_grids_of_the_guide_are_grids(tmp_path):
    quick, persons = code_blocks(ROOT / "docs" / "how-to" / "compare-methods.md", "toml")
    assert tomllib.loads(quick) == tomllib.loads((ROOT / "benchmarks" / "grids" / "quick.toml").read_text())
    path = tmp_path / "grid.toml"
    path.write_text(persons.replace('source = "parkinsons"', 'source = "adult"').replace('"person"', '"row"', 1))
    path.write_text(path.read_text().replace('unit = "person"', 'unit = "record"'))
    grid = read_grid(path)
    assert grid.entrants[1].settings == {"base.n_steps": 600} and grid.baseline == "dp2dp"
