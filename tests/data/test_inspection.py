"""The data holder learns exactly what does not fit."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairveil.data import inspection
from fairveil.data.datasets import dataset_path, dataset_schema, load_dataset
from fairveil.data.inspection import SchemaMismatch, check_table
from fairveil.data.schema import Category, Schema, Sensitive, Target, Where
from fairveil.errors import BadStructureError


def test_every_kind_of_mismatch_is_counted(tmp_path: Path, schema: Schema) -> None:
    strict = schema.model_copy(update={"id_column": "who", "where": (Where(column="year", above=2000),)})
    lines = [
        "who,year,age,pay,hours,sex,hired",
        "a,2001,20,5,5,f,no",
        "b,2001,,x,-1,x,maybe",
        ",1999,17,inf,99,?,yes",
    ]
    path = tmp_path / "t.csv"
    path.write_text("\n".join([*lines, 'c,"open', "d,2001,20,5,5,m,yes,more"]))
    found = {(finding.column, finding.what): finding.count for finding in check_table(path, strict)}
    assert found == {
        ("", "malformed lines"): 2,
        ("age", "missing"): 1,
        ("age", "below the bounds"): 1,
        ("pay", "not a number"): 1,
        ("pay", "above the bounds"): 1,
        ("hours", "below the bounds"): 1,
        ("hours", "above the bounds"): 1,
        ("sex", "missing"): 1,
        ("sex", "not in categories"): 1,
        ("hired", "none of no, yes"): 1,
        ("sex", "none of f, m"): 2,
        ("year", "fails the row rule"): 1,
        ("who", "no id"): 1,
        ("", "rows that count"): 1,
        ("", "difference from n_public"): -4,
    }


def test_a_table_that_fits_says_how_many_rows_count() -> None:
    findings = check_table(dataset_path("adult"), dataset_schema("adult"))
    assert findings == [
        SchemaMismatch("workclass", "missing", 2_799, 'level "missing"'),
        SchemaMismatch("occupation", "missing", 2_809, 'level "missing"'),
        SchemaMismatch("native_country", "missing", 857, 'level "missing"'),
        SchemaMismatch("", "rows that count", 48_842, "they are what training sees"),
    ]


def test_the_rule_of_unknown_labels_is_stated(tmp_path: Path, schema: Schema) -> None:
    target = Target(column="hired", classes=("no", "yes"), unknown="no")
    path = tmp_path / "t.csv"
    path.write_text("age,pay,hours,sex,hired\n20,5,5,f,maybe\n")
    rules = {
        finding.column: finding.rule for finding in check_table(path, schema.model_copy(update={"target": target}))
    }
    assert rules["hired"] == 'counts as "no"'


def test_structure_fails_as_it_does_in_training(tmp_path: Path, schema: Schema) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age,pay\n1,2\n")
    with pytest.raises(BadStructureError, match="hours"):
        check_table(path, schema)


@pytest.mark.parametrize(("level", "is_found"), [("Husband", True), (None, False)])
def test_a_proxy_of_a_group_is_shown_to_the_data_holder(tmp_path: Path, level: str | None, is_found: bool) -> None:
    people = load_dataset("adult")
    table = people.X.head(400).assign(income=people.y.head(400))
    if level:
        table["relationship"] = table["sex"].map({"Male": level, "Female": "Wife"})
    table.to_csv(tmp_path / "people.csv", index=False)
    found = [one for one in check_table(tmp_path / "people.csv", people.schema) if "reveals" in one.what]
    assert [(one.column, one.count) for one in found] == ([("relationship", 400)] if is_found else [])


def test_features_of_too_many_levels_are_no_longer_checked_and_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 3000
    rows = pd.DataFrame({"code": [f"c{place // 25}" for place in range(n)], "proxy": ["a", "b"] * (n // 2)})
    rows["sex"], rows["hired"] = np.where(rows["proxy"] == "a", "f", "m"), ["no", "yes", "yes"] * (n // 3)
    rows.to_parquet(tmp_path / "t.parquet")
    schema = Schema(
        target=Target(column="hired", classes=("no", "yes")),
        sensitive=(Sensitive(column="sex", groups=("f", "m")),),
        columns={name: Category(categories=("a", "b")) for name in ("code", "proxy")},
    )
    expected = check_table(tmp_path / "t.parquet", schema)
    assert any(finding.column == "proxy" and "reveals" in finding.what for finding in expected)
    monkeypatch.setattr(inspection, "MAX_COUNTED", 100)
    monkeypatch.setattr(inspection, "CHUNK_ROWS", 500)
    assert check_table(tmp_path / "t.parquet", schema) == expected
