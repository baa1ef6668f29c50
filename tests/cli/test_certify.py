"""`fairveil certify`: noisy counts of people of their own, on books of their own, and a verdict on each bound."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from fairveil import FairClassifier
from fairveil.privacy.ledger import Ledger

BOOKS = "apart.csv.ledger.jsonl"
KEYS = {
    "verdict", "claims", "smallest_tolerance", "rows_needed", "epsilon_spent", "epsilon_spent_total",
    "epsilon_replace_one", "delta", "unit",
}  # fmt: skip
VERDICTS = {"holds", "does not hold", "measured above the tolerance", "not enough data"}


@pytest.fixture
def apart(folder: Path, strangers: pd.DataFrame) -> pd.DataFrame:
    """People who had no part in training, with their target, in apart.csv of the current folder."""
    strangers.to_csv(folder / "apart.csv", index=False)
    return strangers


@pytest.fixture
def asked(models: Path, apart: pd.DataFrame) -> Callable[..., tuple[object, ...]]:
    """Return what to type."""

    def words(*options: object, way: str = "aware", table: str = "apart.csv") -> tuple[object, ...]:
        return ("certify", models / way / "model", table, *(options or ("--epsilon", "1")))

    return words


def certified(said) -> dict:
    assert (said.code, said.err) == (0, "")
    assert said.out.count("\n") == 1
    return json.loads(said.out)


# --- what is said and booked ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["aware", "unaware", "parity"])
def test_json_holds_what_was_requested_and_spent(asked, say, way):
    facts = certified(say(*asked("--epsilon", "0.7", "--json", way=way)))
    assert set(facts) >= KEYS
    assert len(facts["claims"]) == 2
    assert facts["verdict"] in VERDICTS
    assert {claim["verdict"] for claim in facts["claims"]} <= VERDICTS
    assert all(claim["limit"] == 0.2 for claim in facts["claims"])
    assert 0.69 < facts["epsilon_spent"] <= 0.7 < facts["epsilon_replace_one"]
    assert facts["epsilon_spent_total"] == pytest.approx(facts["epsilon_spent"])
    assert (facts["delta"], facts["unit"], facts["data"]) == (1e-5, "record", "apart.csv")


def test_the_verdict_follows_from_the_limits(asked, say):
    facts = certified(say(*asked("--epsilon", "4", "--json")))
    for claim in facts["claims"]:
        assert (claim["verdict"] == "holds") == (claim["upper"] <= claim["limit"])
        assert claim["low"] <= claim["value"] <= claim["high"]
    holds = all(claim["verdict"] == "holds" for claim in facts["claims"])
    assert (facts["verdict"] == "holds") == holds
    assert facts["smallest_tolerance"] == pytest.approx(max(claim["upper"] for claim in facts["claims"]))


def test_without_privacy_the_counts_are_exact(asked, models, strangers, say):
    """An independent count of the same decisions gives the same gap."""
    facts = certified(say(*asked("--epsilon", "inf", "--json")))
    chosen = pd.Series(FairClassifier.load(models / "aware" / "model").predict(strangers) == ">50K")
    rates = chosen.groupby(strangers["sex"]).mean()
    values = sorted(claim["value"] for claim in facts["claims"])
    gap = abs(rates["Male"] - rates["Female"])
    assert values == pytest.approx([-gap, gap])
    assert facts["n_rows"] == len(strangers)


def test_only_the_ledger_of_these_people_is_debited(folder, models, asked, say, contents):
    here, there = contents(folder), contents(models)
    assert say(*asked()).code == 0
    assert contents(models) == there
    assert contents(folder) == {
        **here,
        BOOKS: Path(BOOKS).read_bytes(),
        f"{BOOKS}.head": Path(f"{BOOKS}.head").read_bytes(),
    }
    (entry,) = Ledger(BOOKS).entries
    assert entry.details["epsilon"] == 1.0
    assert 0.99 < Ledger(BOOKS).epsilon(1e-5) <= 1.0


def test_the_ledger_is_where_it_is_requested(asked, say):
    assert say(*asked("--epsilon", "1", "--ledger", "books.jsonl")).code == 0
    assert len(Ledger("books.jsonl").entries) == 1
    assert not Path(BOOKS).exists()


def test_twice_on_the_same_people_composes(asked, say):
    first = certified(say(*asked("--epsilon", "1", "--json")))
    second = certified(say(*asked("--epsilon", "1", "--json", way="unaware")))
    assert second["epsilon_spent"] == first["epsilon_spent"]
    assert first["epsilon_spent"] < second["epsilon_spent_total"] < 2 * first["epsilon_spent"]
    shown = json.loads(say("ledger", "show", BOOKS, "--json").out)
    assert shown["epsilon_spent_total"] == second["epsilon_spent_total"]
    assert len(shown["entries"]) == 2


def test_the_text_answers_what_a_person_asks(asked, say):
    said = say(*asked())
    assert (said.code, said.err) == (0, "")
    assert re.search(r"^  certified  \S", said.out, re.MULTILINE)
    assert re.search(r"^  epsilon +1\.0000 at delta 1e-05 for one record added or removed", said.out, re.M)
    assert "may read sex" in said.out
    assert "Next: fairveil ledger show" in said.out


def test_no_privacy_is_said_to_be_none(asked, say):
    said = say(*asked("--epsilon", "inf"))
    assert (said.code, said.err) == (0, "")
    assert "no privacy is claimed" in said.out
    assert "noisy" not in said.out
    facts = certified(say(*asked("--epsilon", "inf", "--json")))
    assert facts["epsilon"] is facts["epsilon_spent"] is facts["epsilon_spent_total"] is None
    assert "no bound can be stated" in say("ledger", "show", BOOKS).out


def test_a_model_without_requested_bounds(asked, say):
    facts = certified(say(*asked("--epsilon", "1", "--json", way="plain")))
    assert (facts["verdict"], facts["claims"]) == ("nothing was asked", [])
    said = say(*asked(way="plain"))
    assert (said.code, said.err) == (0, "")


def test_parquet_is_read_like_csv(asked, strangers, say):
    strangers.to_parquet("apart.parquet")
    options = ("--epsilon", "inf", "--json")
    csv, parquet = (certified(say(*asked(*options, table=f"apart.{kind}")))["claims"] for kind in ("csv", "parquet"))
    assert csv == parquet


def test_confidence_is_heard(asked, say):
    wide, narrow = (
        certified(say(*asked("--epsilon", "inf", "--json", "--confidence", level))) for level in ("0.99", "0.6")
    )
    assert wide["smallest_tolerance"] > narrow["smallest_tolerance"]


# --- what is refused ------------------------------------------------------------------------------------------------


def test_people_of_the_training_are_refused(folder, models, is_refused, say):
    train = ("train", "people.csv", "--schema", "schema.toml", "--method", "dpsgd", "--unaware")
    assert say(*train, "--out", "results").code == 0
    sentence = is_refused(folder, ("certify", models / "aware" / "model", "people.csv", "--epsilon", "1"))
    assert "people.csv" in sentence and "kept apart" in sentence


def test_bundled_people_of_the_training_are_refused(tmp_path, monkeypatch, say, is_refused):
    monkeypatch.chdir(tmp_path)
    assert say("train", "adult", "--method", "dpsgd", "--unaware", "--out", "results").code == 0
    assert "took no part" in is_refused(tmp_path, ("certify", "results/model", "adult", "--epsilon", "1"))


@pytest.mark.parametrize("column", ["income", "sex", "age"])
def test_a_missing_column_is_named_and_nothing_debited(folder, strangers, asked, is_refused, column):
    words = asked(way="unaware")
    strangers.drop(columns=column).to_csv("apart.csv", index=False)
    assert f'"{column}"' in is_refused(folder, words)


@pytest.mark.parametrize(
    "options",
    [
        ("--epsilon", "0"),
        ("--epsilon", "-1"),
        ("--epsilon", "nan"),
        ("--epsilon", "much"),
        ("--epsilon", "1", "--delta", "0"),
        ("--epsilon", "1", "--delta", "1"),
        ("--epsilon", "1", "--confidence", "0"),
        ("--epsilon", "1", "--confidence", "1"),
        ("--epsilon", "1", "--confidence", "2"),
        ("--epsilon", "1", "--key", "nothing"),
        ("--epsilon", "1", "--delimiter", ",,"),
        ("--delta", "1e-5"),
    ],
    ids=" ".join,
)
def test_options_that_cannot_be_cost_nothing(folder, asked, is_refused, options):
    is_refused(folder, asked(*options))


@pytest.mark.parametrize("table", ["nothing.csv", "empty.csv", "torn.parquet", "."])
def test_a_table_that_is_none(folder, asked, is_refused, table):
    Path("empty.csv").write_bytes(b"")
    Path("torn.parquet").write_bytes(b"PAR1 and no more")
    is_refused(folder, asked(table=table))


def test_a_model_that_is_none(folder, apart, is_refused):
    assert "model folder" in is_refused(folder, ("certify", "nothing", "apart.csv", "--epsilon", "1"))


def test_a_budget_binds(folder, asked, say, is_refused):
    assert say("ledger", "budget", BOOKS, "--epsilon", "1.2").code == 0
    assert say(*asked()).code == 0
    assert "at most 1.2" in is_refused(folder, asked())
    assert "at most 1.2" in is_refused(folder, asked("--epsilon", "inf"))
    assert say(*asked("--epsilon", "0.1")).code == 0


# --- bad values -----------------------------------------------------------------------------------------------------


def put(column: str, *values: object) -> Callable[[], None]:
    def spoil() -> None:
        table = pd.read_csv("apart.csv", dtype=object)
        table.loc[: len(values) - 1, column] = list(values)
        table.to_csv("apart.csv", index=False)

    return spoil


def whole(column: str, value: str) -> Callable[[], None]:
    return lambda: pd.read_csv("apart.csv").assign(**{column: value}).to_csv("apart.csv", index=False)


def line(change: Callable[[bytes], bytes]) -> Callable[[], None]:
    def spoil() -> None:
        lines = Path("apart.csv").read_bytes().split(b"\n")
        Path("apart.csv").write_bytes(b"\n".join([lines[0], change(lines[1]), *lines[2:]]))

    return spoil


VALUES = {
    "not numbers": put("age", "NaN", "inf", "forty", "1e999", "9" * 10**5, ""),
    "unknown categories": put("workclass", "Astronaut", "", "x" * 10**5),
    "unknown groups": put("sex", "X", "", "42"),
    "unknown labels": put("income", "a lot", "", "42"),
    "too many cells": line(lambda text: text + b",1,2,3"),
    "too few cells": line(lambda text: b"39,Private"),
    "an open quote": line(lambda text: b'"' + text),
    "not UTF-8": line(lambda text: text.replace(b",", b"\xff\xfe,", 3)),
}
EXTREMES = {
    "unknown labels only": whole("income", "a lot"),
    "one class": whole("income", "<=50K"),
    "an empty group": whole("sex", "Male"),
    "no known group": whole("sex", "X"),
    "one row": lambda: pd.read_csv("apart.csv").head(1).to_csv("apart.csv", index=False),
    "no rows": lambda: pd.read_csv("apart.csv").head(0).to_csv("apart.csv", index=False),
}


def shape(text: str) -> str:
    """Return a text without what noise alone may change: numbers and the verdict that follows from them."""
    kept = [
        line
        for line in text.splitlines()
        if not re.match(r"  (certified|holds|does not|not enough|measured above)", line)
    ]
    return re.sub(r"-?\d[\d,]*(\.\d+)?(e[+-]?\d+)?", "#", "\n".join(kept))


@pytest.mark.parametrize("name", [*VALUES, *EXTREMES])
@pytest.mark.parametrize("way", ["aware", "parity"])
def test_a_bad_value_changes_no_message_and_no_debit(asked, say, name, way):
    clean = say(*asked(way=way))
    (VALUES | EXTREMES)[name]()
    said = say(*asked(way=way))
    assert (said.code, said.err) == (clean.code, clean.err) == (0, "")
    assert shape(said.out) == shape(clean.out)
    first, second = ([charge.event for charge in entry.charges] for entry in Ledger(BOOKS).entries)
    assert first == second


@pytest.mark.parametrize("name", EXTREMES)
def test_json_has_the_same_shape_on_few(asked, say, name):
    clean = certified(say(*asked("--epsilon", "1", "--json")))
    EXTREMES[name]()
    facts = certified(say(*asked("--epsilon", "1", "--json")))
    assert list(facts) == list(clean)
    assert [list(claim) for claim in facts["claims"]] == [list(claim) for claim in clean["claims"]]


def test_nobody_certifies_nothing(asked, say):
    EXTREMES["no rows"]()
    facts = certified(say(*asked("--epsilon", "inf", "--json")))
    assert facts["verdict"] == "not enough data"
