"""Known data sets: their published counts, their schemas, and what is said where they are absent."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from fairveil.data import datasets
from fairveil.data.datasets import dataset_names, dataset_path, dataset_schema, load_dataset
from fairveil.data.encoding import Encoder
from fairveil.data.readers import load_encoded
from fairveil.data.schema import Schema
from fairveil.errors import BadStructureError

BUNDLED = Path(datasets.__file__).parent / "bundled"

# rows that count, positive rows, sizes of the groups of the first sensitive column
PUBLISHED = {
    "abalone": (2_835, 1_834, [1_307, 1_528]),
    "acs_person_2018": (173_916, 78_957, [143_446, 4_371, 6_222, 22, 409, 7_663, 1_775, 2_910, 7_098]),
    "adult": (48_842, 11_687, [16_192, 32_650]),
    "bank": (45_211, 5_289, [43_427, 1_784]),
    "compas": (6_172, 2_809, [3_175, 2_103]),
    "credit_default": (30_000, 6_636, [11_888, 18_112]),
    "heart": (253_680, 23_893, [141_974, 111_706]),
    "law_school": (65_491, 16_266, None),
    "parkinsons": (5_875, 2_934, [4_008, 1_867]),
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_counts_are_the_published_ones(data_folder: Path, name: str) -> None:
    schema = dataset_schema(name)
    n_rows, n_positive, groups = PUBLISHED[name]
    table = load_encoded(dataset_path(name), schema, [schema.sensitive[0].column])
    positive = schema.target.classes.index(schema.target.positive)
    assert (len(table.y), int((table.y == positive).sum())) == (n_rows, n_positive)
    assert schema.n_public == n_rows
    if groups is not None:
        assert np.bincount(table.groups[table.groups >= 0]).tolist() == groups


def test_the_large_census_table_has_its_published_counts(data_folder: Path) -> None:
    people = load_dataset("acs_income")
    encoder = Encoder(people.schema)
    assert int((encoder.targets(people.y) == 1).sum()) == 332_646
    assert np.bincount(encoder.groups(people.X["SEX"], "SEX")).tolist() == [467_099, 431_511]
    assert np.bincount(encoder.groups(people.X["RAC1P_5"], "RAC1P_5")).tolist() == [
        726_704,
        82_729,
        38_642,
        8_089,
        42_446,
    ]
    assert people.schema.n_public == len(people.frame) == 898_610


def test_adult_needs_nothing_but_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRVEIL_DATA", raising=False)
    people = load_dataset("adult")
    assert people.frame.shape == (48_842, 16)
    assert people.frame["split"].value_counts().to_dict() == {"train": 32_561, "test": 16_281}
    assert tuple(people.X.columns) == people.schema.feature_names
    assert people.y.value_counts().to_dict() == {"<=50K": 37_155, ">50K": 11_687}
    assert 100 <= Encoder(people.schema).n_features <= 200


def test_adult_leaves_no_value_outside_its_schema() -> None:
    people = load_dataset("adult")
    encoder = Encoder(people.schema)
    others = [place for place, name in enumerate(encoder.feature_levels) if name.endswith("=other")]
    assert not encoder.rows(people.X)[:, others].any()


def test_what_is_bundled_is_small() -> None:
    assert sum(path.stat().st_size for path in BUNDLED.iterdir()) < 1_000_000
    assert [path.name for path in BUNDLED.glob("*.parquet")] == ["adult.parquet"]
    assert "CC BY 4.0" in (BUNDLED / "LICENSE-adult.md").read_text()


@pytest.mark.parametrize("name", dataset_names())
def test_every_schema_is_complete_and_survives_rewriting(tmp_path: Path, name: str) -> None:
    schema = dataset_schema(name)
    schema.write(tmp_path / "again.toml")
    assert Schema.read(tmp_path / "again.toml") == schema
    assert schema.source
    assert schema.n_public
    assert not schema.private_draft
    assert {entry.column for entry in schema.sensitive} <= set(schema.columns)


@pytest.mark.parametrize("name", [name for name in dataset_names() if name != "adult"])
def test_an_absent_data_set_names_its_source_and_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.delenv("FAIRVEIL_DATA", raising=False)
    with pytest.raises(BadStructureError, match="FAIRVEIL_DATA") as unset:
        load_dataset(name)
    monkeypatch.setenv("FAIRVEIL_DATA", str(tmp_path))
    with pytest.raises(BadStructureError, match=f"{name}.parquet") as absent:
        load_dataset(name)
    for caught in (unset, absent):
        assert dataset_schema(name).source in str(caught.value)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(BadStructureError, match=r'compas.*did you mean "adult"'):
        load_dataset("adlt")


def test_a_damaged_file_is_bad_structure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FAIRVEIL_DATA", str(tmp_path))
    (tmp_path / "bank.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(BadStructureError, match="damaged"):
        load_dataset("bank")


def test_features_that_would_give_the_answer_away_are_left_out() -> None:
    assert "duration" not in dataset_schema("bank").columns
    assert not {"decile_score", "is_recid", "score_text"} & set(dataset_schema("compas").columns)
    assert "enroll" not in dataset_schema("law_school").columns


def test_x_holds_what_fitting_reads(data_folder: Path) -> None:
    people = load_dataset("compas")
    assert len(people.frame) == 6_172
    assert Encoder(people.schema).keep(people.X).all()
    assert "subject" in load_dataset("parkinsons").X


def held_out_accuracy(X: np.ndarray, y: np.ndarray, is_train: np.ndarray) -> float:
    model = LogisticRegression(max_iter=500, tol=1e-3).fit(X[is_train], y[is_train])
    return float(model.score(X[~is_train], y[~is_train]))


def test_a_linear_model_does_well_on_the_encoding_of_adult() -> None:
    people = load_dataset("adult")
    encoder = Encoder(people.schema)
    is_train = (people.frame["split"] == "train").to_numpy()
    assert held_out_accuracy(encoder.rows(people.X), encoder.targets(people.y), is_train) >= 0.86


# Means over 12 random splits less four standard errors of a mean of five: .8203, .8929, .6798 and .9611 with
# deviations .0035, .0026, .0093 and .0042. Without its strongest column each table falls below its minimum
# (pay_0 .8035, poutcome .887, priors_count .626, motor_UPDRS .688); a lost weak column goes unnoticed here.
FLOORS = {"credit_default": 0.814, "bank": 0.888, "compas": 0.663, "parkinsons": 0.953}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FLOORS))
def test_a_linear_model_does_well_on_other_encodings(data_folder: Path, rng: np.random.Generator, name: str) -> None:
    table = load_encoded(dataset_path(name), dataset_schema(name))
    splits = [rng.permutation(len(table.y)) < 0.75 * len(table.y) for _ in range(5)]
    assert np.mean([held_out_accuracy(table.X, table.y, is_train) for is_train in splits]) >= FLOORS[name]
