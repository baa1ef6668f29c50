"""Engines: where rows are kept changes nothing that is released, and what cannot fit is refused before it is read."""

import math
import os
import re

import numpy as np
import pandas as pd
import pytest

from fairveil import DemographicParity, Descent, FairClassifier, Ledger, PrivateClassifier, Schema
from fairveil._random import reproducible_coins
from fairveil.errors import BadStructureError, InvalidParameterError, NotEnoughMemoryError
from fairveil.methods import engines
from fairveil.methods.engines import ENGINES, choose_engine, opened_records
from fairveil.methods.inputs import FileSource, InputSpec
from fairveil.models import LinearSoftmax
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import CrossEntropy
from fairveil.privacy.veil import open_veils

N_ROWS = 700
COLUMNS = {
    "sex": {"type": "category", "categories": ["f", "m"]},
    "age": {"type": "number", "bounds": [0, 100], "bins": 5},
    "pay": {"type": "number", "bounds": [0, 9], "encode": "scale"},
}
FACTS = {
    "target": {"column": "label", "classes": ["n", "y"]},
    "sensitive": [{"column": "sex", "groups": ["f", "m"]}, {"column": "city", "groups": ["a", "b"]}],
}
SCHEMAS = {
    "coded": Schema(**FACTS, columns=COLUMNS),
    "dense": Schema(**FACTS, columns={"pay": COLUMNS["pay"]}),
    "persons": Schema(**FACTS, columns=COLUMNS, id_column="id"),
}


@pytest.fixture
def table(tmp_path):
    """A folder of Parquet files with odd cells in every column."""
    coins = np.random.default_rng(0)
    people = pd.DataFrame(
        {
            "sex": coins.choice(["f", "m", None], N_ROWS, p=[0.5, 0.4, 0.1]),
            "age": coins.choice([-5.0, 30.0, 64.0, np.nan], N_ROWS),
            "pay": coins.uniform(-1, 11, N_ROWS),
            "city": coins.choice(["a", "b", "elsewhere"], N_ROWS),
            "label": coins.choice(["n", "y", "unknown"], N_ROWS, p=[0.5, 0.4, 0.1]),
            "id": coins.choice([*map(str, range(300)), None], N_ROWS),
        }
    )
    (tmp_path / "people").mkdir()
    for part in range(3):
        people.iloc[part::3].to_parquet(tmp_path / "people" / f"{part}.parquet")
    return tmp_path / "people"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(engines, "CHUNK_ROWS", 64)
    monkeypatch.setattr("fairveil.scale.row_file.PART_BYTES", 1000)


def sums(table, schema, engine, sensitive):
    """Return what three Poisson batches release without noise, from seeded coins."""
    inputs = InputSpec.of(schema, sensitive, 1.0, 1e-5)
    gradient = Release("gradient", "gaussian", 0.0)
    stage = Stage("train", (gradient,), 0.7, {-1: 0.4}, 3)
    plan = Plan((stage, Stage("rest", (gradient,), 0.3, {0: 0.5, -1: 0.2}, 1)), math.inf, 1e-5)
    source = FileSource(table, engine=engine, cache=table.parent / "cache")
    with opened_records(inputs, source, plan) as (records, _):
        veils = open_veils(records, plan, Ledger(), reproducible_coins(7), "a test")
        model = LinearSoftmax(records.n_features, 2)
        params = model.initial(np.random.default_rng(0))
        batches = [veils["train"].draw() for _ in range(3)] + [veils["rest"].draw()]
        return np.array([batch.release_gradient(model, params, CrossEntropy(), 1.0) for batch in batches])


@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("sensitive", [None, ["sex", "city"]])
def test_the_same_coins_release_the_same_sums(table, kind, sensitive):
    expected = sums(table, SCHEMAS[kind], "memory", sensitive)
    for _ in range(2):  # read, and found again
        assert np.array_equal(sums(table, SCHEMAS[kind], "disk", sensitive), expected)
    assert np.abs(expected).max() > 1


@pytest.mark.parametrize(("method", "aware"), [("dpsgd", False), ("parity", True), ("raco", False), ("dp2dp", True)])
def test_without_privacy_memory_and_disk_give_the_same_model(table, method, aware):
    fitted = []
    for name in ("memory", "disk"):
        tolerance = 0.0 if method == "dpsgd" else 0.2
        clf = FairClassifier(
            DemographicParity(tolerance), math.inf, sensitive="sex", aware=aware, method=method, schema=SCHEMAS["coded"]
        )
        request = clf.request()
        estimator = request.method.make_estimator(request).set_params(random_state=0, ledger=Ledger())
        fitted.append(estimator.fit_file(table, engine=name, cache=table.parent / "cache"))
        assert fitted[-1].engine_ == name
    assert np.array_equal(fitted[0].params_, fitted[1].params_)


def test_a_secret_attribute_can_be_on_disk(table):
    schema = SCHEMAS["dense"]
    plain = {"protects": "attribute", "method": "pfld", "aware": False, "holdout": 0.0, "sensitive": "sex"}
    clf = FairClassifier(epsilon=math.inf, schema=schema, ledger=Ledger(), **plain)
    clf.fit_file(table, engine="disk", cache=table.parent / "cache")
    assert clf.estimator_.engine_ == "disk"


def choice_for(table, n_public=None, **named):
    schema = SCHEMAS["coded"].model_copy(update={"n_public": n_public})
    inputs = InputSpec.of(schema, "sex", 1.0, 1e-5)
    plan = Plan((Stage("train", (Release("gradient", "gaussian", 1.0),)),), 1.0, 1e-5)
    return choose_engine(inputs, FileSource(table, **{"cache": table.parent / "cache", **named}), plan)


def test_auto_chooses_by_what_fits(table, monkeypatch):
    assert choice_for(table).engine is ENGINES["memory"]
    need = N_ROWS * engines._memory_per_row(InputSpec.of(SCHEMAS["coded"], "sex", 1.0, 1e-5))
    monkeypatch.setattr(engines, "available_memory", lambda: 2 * need - 1)
    assert choice_for(table).engine is ENGINES["disk"]
    assert choice_for(table, n_public=N_ROWS - 1).engine is ENGINES["memory"]
    assert choice_for(table, n_public=N_ROWS).engine is ENGINES["disk"]


def test_only_a_choice_by_public_facts_is_published(table):
    assert choice_for(table).public_name == "auto"
    assert choice_for(table, n_public=100).public_name == "memory"
    assert choice_for(table, engine="disk").public_name == "disk"


def test_what_cannot_fit_is_refused_without_the_number_of_rows(table, monkeypatch):
    monkeypatch.setattr(engines, "available_memory", lambda: 100)
    for engine, kind in (("memory", "memory"), ("disk", "memory"), ("auto", "memory")):
        with pytest.raises(NotEnoughMemoryError, match=f"enough {kind} for the encoded rows") as caught:
            choice_for(table, engine=engine)
        assert not re.search(r"\d", str(caught.value))
    with pytest.raises(NotEnoughMemoryError, match="n_public = 5,000,000 rows"):
        choice_for(table, n_public=5_000_000, engine="memory")


def test_a_full_disk_is_foreseen(table, monkeypatch):
    monkeypatch.setattr(engines.shutil, "disk_usage", lambda place: os.statvfs_result([0] * 10) and _Full())
    with pytest.raises(BadStructureError, match="enough disk space for the encoded rows") as caught:
        choice_for(table, engine="disk")
    assert not re.search(r"\d", str(caught.value))


class _Full:
    free = 100


def test_nothing_is_debited_for_what_cannot_fit(table, monkeypatch):
    monkeypatch.setattr(engines, "available_memory", lambda: 100)
    ledger = Ledger(table.parent / "ledger.jsonl")
    clf = PrivateClassifier(schema=SCHEMAS["coded"], ledger=ledger)
    with pytest.raises(NotEnoughMemoryError):
        clf.fit_file(table)
    assert not ledger.entries and not (table.parent / "ledger.jsonl.rows").exists()


def test_a_cache_needs_a_place(table):
    clf = PrivateClassifier(schema=SCHEMAS["coded"], ledger=Ledger())
    with pytest.raises(InvalidParameterError, match="ledger file or a cache folder"):
        clf.fit_file(table, engine="disk")
    with pytest.raises(InvalidParameterError, match="engine to be one of auto"):
        clf.fit_file(table, engine="magnetic tape")


def test_rows_are_kept_beside_the_ledger(table):
    ledger = Ledger(table.parent / "ledger.jsonl")
    shown = []
    clf = PrivateClassifier(training=Descent(n_steps=2), schema=SCHEMAS["coded"], ledger=ledger)
    clf.fit_file(table, engine="disk", reading=lambda steps: shown.extend(steps) or iter(steps))
    clf.fit_file(table, engine="disk", reading=lambda steps: pytest.fail("rows are there"))
    assert shown == list(range(100))
    assert [path.name for path in (table.parent / "ledger.jsonl.rows").glob("*/*.bin")] == ["rows.bin"]
