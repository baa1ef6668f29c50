"""Commands take a folder of Parquet files; its ledger stands beside it and knows it, its copies and its parts."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairveil.privacy.ledger import Ledger

pytestmark = pytest.mark.slow

OPTIONS = ("--schema", "schema.toml", "--method", "dpsgd", "--unaware", "--out")
LEDGER = "parts.ledger.jsonl"


@pytest.fixture
def parts(folder):
    """The rows of people.csv in three files of one folder."""
    rows, place = pd.read_csv("people.csv"), folder / "parts"
    place.mkdir()
    for number, some in enumerate(np.array_split(np.arange(len(rows)), 3)):
        rows.iloc[some].to_parquet(place / f"part-{number}.parquet", index=False)
    (place / "_SUCCESS").touch()
    return folder


@pytest.fixture
def trained(parts, say):
    assert say("train", "parts/", *OPTIONS, "results").code == 0
    return parts


def test_all_commands_take_a_folder(trained, say):
    assert len(Ledger(LEDGER).entries) == 1 and not list(Path("parts").glob("*.jsonl"))
    assert say("predict", "results/model", "parts", "--out", "some.parquet").code == 0
    assert say("predict", "results/model", "people.csv", "--out", "all.parquet").code == 0
    pd.testing.assert_frame_equal(pd.read_parquet("some.parquet"), pd.read_parquet("all.parquet"))
    checks = [say("check", data, "--schema", "schema.toml").out.splitlines()[1:-1] for data in ("parts", "people.csv")]
    assert checks[0] == checks[1]
    draft = ("--target", "income", "--sensitive", "sex", "--out", "draft.toml")
    assert say("schema", "draft", "parts", *draft).code == 0
    assert say("verify", "results", "--ledger", LEDGER, "--data", "parts").code == 0


@pytest.mark.parametrize("copy", ["whole", "renamed", "part", "file"])
def test_a_copy_or_a_part_does_not_start_a_ledger_of_its_own(trained, is_refused, copy):
    place = Path("parts/part-1.parquet")
    if copy != "file":
        place = trained / "elsewhere" / "other"
        place.mkdir(parents=True)
        for file in sorted(Path("parts").glob("*.parquet"))[: 1 if copy == "part" else 3]:
            shutil.copy(file, place / (f"x{file.name}" if copy == "renamed" else file.name))
    sentence = is_refused(trained, ("train", place, *OPTIONS, "again"))
    assert f"--ledger {trained / LEDGER} " in sentence


def test_a_table_that_grows_keeps_its_ledger(trained, say):
    shutil.copy("parts/part-0.parquet", "parts/part-3.parquet")
    rows = pd.read_parquet("parts/part-3.parquet")
    rows.iloc[::-1].to_parquet("parts/part-3.parquet", index=False)
    said = say("train", "parts", *OPTIONS, "again")
    assert (said.code, said.err) == (0, "") and "caution" not in said.out
    state = Ledger(LEDGER).state()
    assert len(state.entries) == 2
    assert len(state.fingerprints) == (1 + 3) + (1 + 1)  # the table and its files; the larger table and its new file


def test_the_ledger_of_a_part_is_found(parts, say, is_refused):
    assert say("train", "parts/part-1.parquet", *OPTIONS, "results").code == 0
    sentence = is_refused(parts, ("train", "parts", *OPTIONS, "again"))
    assert f"--ledger {parts / 'parts' / 'part-1.parquet.ledger.jsonl'} " in sentence


def test_results_are_not_written_into_the_table(parts, is_refused):
    for out in ("parts", "parts/results"):
        assert "apart from the data file" in is_refused(parts, ("train", "parts", *OPTIONS, out))


def test_a_folder_without_parquet_files_is_one_sentence(parts, is_refused):
    Path("none").mkdir()
    assert "Expected Parquet files in the folder none" in is_refused(parts, ("train", "none", *OPTIONS, "results"))
    assert "got some in" in is_refused(parts, ("check", ".", "--schema", "schema.toml"))
