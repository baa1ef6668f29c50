"""`fairveil predict`: one decision for each row in its place, no target needed, and the same calm with any values."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from fairveil import FairClassifier
from fairveil.data.readers import CHUNK_ROWS
from fairveil.persistence import model_digest

CHANCES = ["p_<=50K", "p_>50K"]
COLUMNS = ["prediction", *CHANCES, "note"]
WAYS = ("aware", "unaware", "parity", "plain")
N_NEW = 200


@pytest.fixture
def new(folder: Path, strangers: pd.DataFrame) -> pd.DataFrame:
    """People without a target, in new.csv of the current folder."""
    table = strangers.head(N_NEW).drop(columns="income")
    table.to_csv(folder / "new.csv", index=False)
    return table


@pytest.fixture
def decided(models, say) -> Callable[..., pd.DataFrame]:
    """Decide for a table and return what was written; the text must be calm."""

    def call(table: str, way: str = "aware", *options: object) -> pd.DataFrame:
        said = say("predict", models / way / "model", table, "--out", "decisions.parquet", *options)
        assert (said.code, said.err) == (0, "")
        return pd.read_parquet("decisions.parquet")

    return call


def opened(models: Path, way: str) -> FairClassifier:
    key = models / way / "key"
    return FairClassifier.load(models / way / "model", key=key if key.exists() else None)


def written(path: str) -> pd.DataFrame:
    """Read decisions back, numbers to the last digit."""
    if path.endswith(".parquet"):
        return pd.read_parquet(path)
    return pd.read_csv(path, dtype=str, keep_default_na=False).astype(dict.fromkeys(CHANCES, float))


def same(found: pd.DataFrame, expected: pd.DataFrame) -> bool:
    return found.reset_index(drop=True).equals(expected.reset_index(drop=True))


# --- what is written ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_decisions_are_those_of_the_loaded_model_row_by_row(new, models, decided, way):
    clf, found = opened(models, way), decided("new.csv", way)
    assert list(found.columns) == COLUMNS
    assert np.array_equal(found["prediction"], clf.predict(new))
    assert np.array_equal(found[CHANCES], clf.predict_proba(new))
    assert found["prediction"].nunique() == 2, "one class alone would hide a wrong order"


@pytest.mark.parametrize("way", WAYS)
def test_the_order_of_rows_is_kept(new, decided, way):
    found = decided("new.csv", way)
    new[::-1].to_csv("new.csv", index=False)
    assert same(decided("new.csv", way), found[::-1])


@pytest.mark.parametrize("way", WAYS)
def test_other_columns_and_their_order_do_not_matter(new, strangers, decided, way):
    found = decided("new.csv", way)
    strangers.head(N_NEW).assign(hobby="chess", prediction="x")[
        ["hobby", "income", *reversed(list(new.columns)), "prediction"]
    ].to_csv("more.csv", index=False)
    assert same(decided("more.csv", way), found)


@pytest.mark.parametrize("way", WAYS)
def test_csv_and_parquet_are_read_alike(new, decided, way):
    new.to_parquet("new.parquet")
    assert same(decided("new.parquet", way), decided("new.csv", way))


def test_csv_and_parquet_are_written_alike(new, models, say, decided):
    found = decided("new.csv")
    assert say("predict", models / "aware" / "model", "new.csv", "--out", "decisions.csv").code == 0
    lines = Path("decisions.csv").read_text().splitlines()
    assert lines[0] == ",".join([*COLUMNS, "model_digest"])
    assert len(lines) == 1 + N_NEW
    assert same(written("decisions.csv").drop(columns="model_digest"), found)


def test_another_delimiter(new, decided):
    found = decided("new.csv")
    new.to_csv("other.csv", index=False, sep=";")
    assert same(decided("other.csv", "aware", "--delimiter", ";"), found)


def test_more_rows_than_one_chunk(new, models, say, decided):
    expected = decided("new.csv")
    n_copies = CHUNK_ROWS // N_NEW + 2
    pd.concat([new] * n_copies).to_csv("many.csv", index=False)
    assert say("predict", models / "aware" / "model", "many.csv", "--out", "decisions.csv").code == 0
    found = written("decisions.csv").drop(columns="model_digest")
    assert len(found) == n_copies * N_NEW > CHUNK_ROWS
    assert same(found, pd.concat([expected] * n_copies))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_nobody_gets_no_decision(new, models, say, way, kind):
    if kind == "csv":
        new.head(0).to_csv("nobody.csv", index=False)
    else:
        new.head(0).to_parquet("nobody.parquet")
    for out in ("decisions.csv", "decisions.parquet"):
        said = say("predict", models / way / "model", f"nobody.{kind}", "--out", out, "--json")
        assert (said.code, said.err) == (0, "")
        assert json.loads(said.out)["n_rows"] == 0
    assert Path("decisions.csv").read_text() == ",".join([*COLUMNS, "model_digest"]) + "\n"
    assert list(pd.read_parquet("decisions.parquet").columns) == COLUMNS


def test_exactly_one_chunk_and_one_row_more(new, decided):
    one = decided("new.csv")
    for n_rows in (CHUNK_ROWS, CHUNK_ROWS + 1):
        many = new.iloc[np.arange(n_rows) % N_NEW]
        many.to_parquet("many.parquet")
        assert same(decided("many.parquet"), one.iloc[np.arange(n_rows) % N_NEW])


# --- ids, notes, reasons and the model's digest ---------------------------------------------------------------------


@pytest.fixture(scope="session")
def with_ids(tmp_path_factory, people, facts, inside) -> Path:
    """The results of a training whose schema names an id column, and whose decisions are drawn at random."""
    place = tmp_path_factory.mktemp("ids")
    people.assign(person=range(len(people))).to_csv(place / "people.csv", index=False)
    facts.model_copy(update={"id_column": "person"}).write(place / "schema.toml")
    asked = ("train", "people.csv", "--schema", "schema.toml", "--epsilon", "9", "--aware", "--out", "results")
    assert inside(*asked, "--method", "parity", "--tolerance", "0.01", cwd=place).code == 0
    return place / "results"


@pytest.mark.parametrize("out", ["decisions.csv", "decisions.parquet"])
def test_the_id_stands_first_if_the_schema_names_one(new, with_ids, say, out):
    ids = [f"0{place:04d}" for place in range(N_NEW)]
    new.assign(person=ids).to_csv("new.csv", index=False)
    assert say("predict", with_ids / "model", "new.csv", "--out", out).code == 0
    found = written(out)
    assert found.columns[0] == "person"
    assert list(found["person"]) == ids
    new.to_csv("new.csv", index=False)  # without ids there is nothing to carry
    assert say("predict", with_ids / "model", "new.csv", "--out", out).code == 0
    assert written(out).columns[0] == "prediction"


def test_missing_ids_of_a_whole_chunk_keep_the_type_of_the_column(new, with_ids, say):
    rows = new.iloc[np.arange(CHUNK_ROWS + 5) % N_NEW]
    rows.assign(person=[None] * CHUNK_ROWS + list("abcde")).to_parquet("new.parquet")
    assert say("predict", with_ids / "model", "new.parquet", "--out", "decisions.parquet").code == 0
    found = pd.read_parquet("decisions.parquet")
    assert found["person"].isna().sum() == CHUNK_ROWS and list(found["person"].tail(5)) == list("abcde")


def test_every_file_names_the_model_that_decided(new, models, say, decided):
    folder = models / "aware" / "model"
    decided("new.csv")
    kept = pq.read_schema("decisions.parquet").metadata
    assert kept[b"fairveil_model_digest"].decode() == model_digest(folder)
    assert set(json.loads(kept[b"fairveil_notes"])) >= {"fairness rule", "randomized", "unknown group"}
    said = say("predict", folder, "new.csv", "--out", "decisions.csv", "--json")
    assert json.loads(said.out)["model_digest"] == model_digest(folder)
    assert set(written("decisions.csv")["model_digest"]) == {model_digest(folder)[:16]}
    assert model_digest(folder) in say("predict", folder, "new.csv", "--out", "decisions.csv").out
    assert model_digest(folder) != model_digest(models / "plain" / "model")


@pytest.mark.parametrize("way", WAYS)
def test_the_note_says_which_decision_is_not_the_largest_probability(new, models, say, decided, way):
    found = decided("new.csv", way)
    largest = np.array(["<=50K", ">50K"])[found[CHANCES].to_numpy().argmax(axis=1)]
    differs = found["prediction"] != largest
    text = say("predict", models / way / "model", "new.csv", "--out", "decisions.csv").out
    assert ("may differ from the largest probability" in text) == (way != "plain")
    assert (found["note"] == np.where(differs, "fairness rule", "")).all()


def test_the_note_says_which_decision_was_drawn_at_random(new, with_ids, say):
    new.assign(person=range(N_NEW)).to_csv("new.csv", index=False)
    asked = ("predict", with_ids / "model", "new.csv", "--out", "decisions.parquet", "--reasons", 1)
    assert "some decisions are drawn at random; the column note says which" in say(*asked).out
    found = pd.read_parquet("decisions.parquet")
    drawn = found[CHANCES].max(axis=1) < 1
    assert drawn.any() and (found["note"].str.startswith("randomized") == drawn).all()


@pytest.mark.parametrize("way", WAYS)
def test_reasons_are_those_of_python(new, models, decided, way):
    found = decided("new.csv", way, "--reasons", 2, "--typical", "capital_gain=0")
    assert list(found.columns) == [*COLUMNS, "reason_1", "points_1", "reason_2", "points_2"]
    expected = opened(models, way).reasons(new, n=2, typical={"capital_gain": 0})
    assert same(found[expected.columns], expected)
    denied = (found["prediction"] == "<=50K") & (found["note"] != "randomized against the score")
    assert (found.loc[denied, "reason_1"] != "").all() and (found.loc[~denied, "reason_1"] == "").all()
    assert b"fairveil_points" in pq.read_schema("decisions.parquet").metadata


def test_the_text_and_the_json_say_what_points_are(new, models, say):
    asked = ("predict", models / "aware" / "model", "new.csv", "--out", "decisions.csv", "--reasons", 3)
    assert "for every decision but >50K. A point is one unit of the log-odds" in say(*asked).out
    assert json.loads(say(*asked, "--json").out)["reasons"] == {"n": 3, "favorable": ">50K", "points": "log-odds"}
    assert "reasons" not in say(*asked[:-2]).out


@pytest.mark.parametrize(
    "options",
    [("--reasons", -1), ("--reasons", 99), ("--typical", "age"), ("--reasons", 1, "--typical", "aeg=1"),
     ("--reasons", 1, "--typical", "sex=?")],
)  # fmt: skip
def test_reasons_that_cannot_be(folder, new, models, is_refused, options):
    asked = ("predict", models / "aware" / "model", "new.csv", "--out", "decisions.csv", *options)
    assert "Expected" in is_refused(folder, asked)


@pytest.mark.parametrize("way", ["aware", "parity"])
def test_unknown_groups_are_counted_and_said(new, models, say, way):
    asked = ("predict", models / way / "model", "new.csv", "--out", "decisions.csv")
    assert f"0 of {N_NEW} rows have a missing or unlisted group" in say(*asked).out
    new.assign(sex=new["sex"].str.lower()).to_csv("new.csv", index=False)
    text = say(*asked).out
    assert f"  groups     {N_NEW} of {N_NEW} rows have a missing or unlisted group" in text
    assert (
        f"Caution: {N_NEW} of {N_NEW} rows (100.0 %) have a missing or unlisted group" in text
        and "sex (Female, Male)" in text
    )
    assert "these counts are about the people of this table: keep them as private as their data" in text
    facts = json.loads(say(*asked, "--json").out)
    assert facts["n_unknown_groups"] == N_NEW and len(facts["cautions"]) == 1
    assert facts["unknown_categories"]["sex"] == N_NEW and facts["unknown_categories"]["race"] == 0
    assert written("decisions.csv")["note"].str.endswith("unknown group").all()


@pytest.mark.parametrize("way", ["unaware", "plain"])
def test_groups_that_are_not_read_are_not_counted(new, models, say, way):
    new.assign(sex="x", race="x").to_csv("new.csv", index=False)
    asked = ("predict", models / way / "model", "new.csv", "--out", "decisions.csv")
    facts = json.loads(say(*asked, "--json").out)
    assert facts["n_unknown_groups"] is None and facts["cautions"] == []
    assert facts["unknown_categories"]["race"] == N_NEW
    assert "  groups " not in say(*asked).out


# --- what is said and left behind -----------------------------------------------------------------------------------


def test_json_says_how_many(new, models, say):
    said = say("predict", models / "aware" / "model", "new.csv", "--out", "decisions.csv", "--json")
    facts = json.loads(said.out)
    assert said.out.count("\n") == 1
    assert {name: facts[name] for name in ("data", "out", "n_rows")} == {
        "data": "new.csv", "out": "decisions.csv", "n_rows": N_NEW,
    }  # fmt: skip


def test_the_text_says_what_was_read_and_that_decisions_are_private(new, models, say):
    said = say("predict", models / "aware" / "model", "new.csv", "--out", "decisions.csv")
    assert f"Wrote {N_NEW} decisions to decisions.csv" in said.out
    assert "read sex" in said.out and "private" in said.out
    said = say("predict", models / "unaware" / "model", "new.csv", "--out", "decisions.csv")
    assert "do not read sex" in said.out


def test_nothing_but_the_decisions_is_written(folder, new, models, decided, contents):
    here, there = contents(folder), contents(models)
    decided("new.csv")
    assert contents(folder) == {**here, "decisions.parquet": Path("decisions.parquet").read_bytes()}
    assert contents(models) == there


def test_a_file_of_decisions_is_replaced(new, decided):
    Path("decisions.parquet").write_text("an old file")
    assert len(decided("new.csv")) == N_NEW


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_missing_feature(folder, new, models, is_refused, kind):
    left = new.drop(columns="age")
    left.to_csv("left.csv", index=False) if kind == "csv" else left.to_parquet("left.parquet")
    asked = ("predict", models / "plain" / "model", f"left.{kind}", "--out", "decisions.csv")
    assert '"age"' in is_refused(folder, asked)


@pytest.mark.parametrize("way", ["aware", "parity"])
def test_a_rule_that_reads_the_group_needs_its_column(folder, new, models, is_refused, way):
    new.drop(columns="sex").to_csv("new.csv", index=False)
    assert '"sex"' in is_refused(folder, ("predict", models / way / "model", "new.csv", "--out", "decisions.csv"))


@pytest.mark.parametrize("way", ["unaware", "plain"])
def test_a_rule_that_does_not_read_the_group_works_without(new, decided, way):
    found = decided("new.csv", way)
    new.drop(columns="sex").to_csv("new.csv", index=False)
    assert same(decided("new.csv", way), found)


@pytest.mark.parametrize("out", ["decisions.txt", "decisions", "decisions.csv.gz", "nowhere/d.csv", "there.csv"])
def test_a_place_that_cannot_be(folder, new, models, is_refused, out):
    Path("there.csv").mkdir()
    assert Path(out).name in is_refused(folder, ("predict", models / "aware" / "model", "new.csv", "--out", out))


@pytest.mark.parametrize("table", ["nothing.csv", "empty.csv", "torn.parquet", "."])
def test_a_table_that_is_none(folder, models, is_refused, table):
    Path("empty.csv").write_bytes(b"")
    Path("torn.parquet").write_bytes(b"PAR1 and no more")
    is_refused(folder, ("predict", models / "aware" / "model", table, "--out", "decisions.csv"))


def test_a_wrong_delimiter_is_named(folder, new, models, is_refused):
    new.to_csv("new.csv", index=False, sep=";")
    asked = ("predict", models / "aware" / "model", "new.csv", "--out", "decisions.csv")
    assert "--delimiter ';'" in is_refused(folder, asked)


@pytest.mark.parametrize("name", ["model.json", "params.safetensors"])
@pytest.mark.parametrize("share", [None, 0.0, 0.1, 0.5, 0.99])
def test_a_damaged_model(folder, new, models, is_refused, name, share):
    shutil.copytree(models / "aware" / "model", "damaged")
    file = Path("damaged", name)
    whole = file.read_bytes()
    file.unlink()
    if share is not None:
        file.write_bytes(whole[: int(share * len(whole))])
    assert "damaged" in is_refused(folder, ("predict", "damaged", "new.csv", "--out", "decisions.csv"))


@pytest.mark.parametrize("model", ["nothing", "new.csv", "."])
def test_a_model_that_is_none(folder, new, is_refused, model):
    assert "model folder" in is_refused(folder, ("predict", model, "new.csv", "--out", "decisions.csv"))


# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def uniforms(folder: Path, models: Path, new: pd.DataFrame) -> Path:
    """A copy of the results of a rule that draws lots, with its key."""
    shutil.copytree(models / "parity", "lots")
    return folder / "lots"


def test_the_key_beside_the_model_is_found(uniforms, say):
    answers = []
    for n_call in range(2):
        assert say("predict", "lots/model", "new.csv", "--out", f"{n_call}.csv").code == 0
        answers.append(Path(f"{n_call}.csv").read_bytes())
    assert answers[0] == answers[1]


def test_a_key_elsewhere_gives_the_same_answers(uniforms, say):
    assert say("predict", "lots/model", "new.csv", "--out", "beside.csv").code == 0
    (uniforms / "key").rename("moved")
    assert say("predict", "lots/model", "new.csv", "--out", "moved.csv", "--key", "moved").code == 0
    assert Path("moved.csv").read_bytes() == Path("beside.csv").read_bytes()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_key_that_others_may_read_is_refused(folder, uniforms, is_refused, mode):
    (uniforms / "key").chmod(mode)
    asked = ("predict", "lots/model", "new.csv", "--out", "decisions.csv")
    assert "chmod 600" in is_refused(folder, asked)
    (uniforms / "key").rename("moved")
    assert "chmod 600" in is_refused(folder, (*asked, "--key", "moved"))


def test_a_key_that_is_none(folder, uniforms, is_refused):
    asked = ("predict", "lots/model", "new.csv", "--out", "decisions.csv", "--key")
    assert "nothing" in is_refused(folder, (*asked, "nothing"))
    Path("short").write_text("abc")
    Path("short").chmod(0o600)
    assert "short" in is_refused(folder, (*asked, "short"))


# --- bad values -----------------------------------------------------------------------------------------------------


def put(column: str, *values: object) -> Callable[[], None]:
    def spoil() -> None:
        table = pd.read_csv("new.csv", dtype=object)
        table.loc[: len(values) - 1, column] = list(values)
        table.to_csv("new.csv", index=False)

    return spoil


def line(number: int, change: Callable[[bytes], bytes]) -> Callable[[], None]:
    def spoil() -> None:
        lines = Path("new.csv").read_bytes().split(b"\n")
        Path("new.csv").write_bytes(b"\n".join([*lines[:number], change(lines[number]), *lines[number + 1 :]]))

    return spoil


def without_groups(text: str) -> list[str]:
    """Return what was said but for unknown groups, which are counted: the one thing that values change."""
    return [one for one in text.splitlines() if not one.startswith(("  groups ", "Caution: "))]


VALUES = {
    "not numbers": put("age", "NaN", "inf", "-inf", "forty", "1e999", "9" * 10**5, ""),
    "out of bounds": put("age", "-1e300", "1e300"),
    "unknown categories": put("workclass", "Astronaut", "42", "", "x" * 10**5),
    "unknown groups": put("sex", "X", "", "42"),
    "too few cells": line(1, lambda text: b"39,Private"),
    "a quote inside": line(1, lambda text: text.replace(b",", b'",', 1)),
    "not UTF-8": line(1, lambda text: text.replace(b",", b"\xff\xfe,", 3)),
}
MALFORMED = {
    "too many cells": lambda text: text + b",1,2,3",
    "an open quote": lambda text: b'"' + text,
    "no cell": lambda text: b'"',
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", VALUES)
def test_a_bad_value_changes_no_message(new, models, say, way, name):
    asked = ("predict", models / way / "model", "new.csv", "--out", "decisions.csv")
    clean = say(*asked)
    VALUES[name]()
    found = say(*asked)
    assert (found.code, found.err) == (clean.code, clean.err)
    assert without_groups(found.out) == without_groups(clean.out)
    assert len(pd.read_csv("decisions.csv")) == N_NEW


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_line_keeps_its_place(new, models, say, decided, way, name):
    expected = decided("new.csv", way)
    clean = say("predict", models / way / "model", "new.csv", "--out", "decisions.parquet")
    for number in (2, 77, N_NEW):
        line(number, MALFORMED[name])()
    said = say("predict", models / way / "model", "new.csv", "--out", "decisions.parquet")
    assert (said.code, said.err) == (clean.code, clean.err)
    assert without_groups(said.out) == without_groups(clean.out)
    found = pd.read_parquet("decisions.parquet")
    places = [1, 76, N_NEW - 1]
    assert same(found.drop(index=places), expected.drop(index=places))
    blank = new.astype(object)
    blank.iloc[places] = ""
    law = opened(models, way).predict_proba(blank)[places]
    assert np.array_equal(found.loc[places, CHANCES], law)
    assert set(found.loc[places, "prediction"]) <= {"<=50K", ">50K"}


def test_malformed_lines_at_the_border_of_chunks(new, decided):
    one = decided("new.csv")
    many = new.iloc[np.arange(CHUNK_ROWS + 10) % N_NEW]
    many.to_csv("new.csv", index=False)
    for number in (CHUNK_ROWS, CHUNK_ROWS + 1):
        line(number, MALFORMED["too many cells"])()
    found = decided("new.csv")
    places = [CHUNK_ROWS - 1, CHUNK_ROWS]
    expected = one.iloc[np.arange(CHUNK_ROWS + 10) % N_NEW].reset_index(drop=True)
    assert len(found) == CHUNK_ROWS + 10
    assert same(found.drop(index=places), expected.drop(index=places))
