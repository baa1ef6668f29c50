"""Bad values: the stated rule, and the same messages, exit code and debits as for clean rows."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from _support.answers import events_in, shape_of

PLAIN = ("--method", "dpsgd", "--unaware")
TRAIN = ("train", "people.csv", "--schema", "schema.toml", *PLAIN, "--epsilon", "4", "--out", "results")
LEDGER = "people.csv.ledger.jsonl"


def rewrite(change: Callable[[list[bytes]], list[bytes]]) -> None:
    path = Path("people.csv")
    path.write_bytes(b"\n".join(change(path.read_bytes().split(b"\n"))))


def cell(column: str, *values: object) -> Callable[[], None]:
    """Put values into the first cells of a column."""

    def spoil() -> None:
        table = pd.read_csv("people.csv", dtype=object)
        table.loc[: len(values) - 1, column] = list(values)
        table.to_csv("people.csv", index=False)

    return spoil


def whole(column: str, value: str) -> Callable[[], None]:
    """Put one value into every cell of a column."""
    return lambda: pd.read_csv("people.csv").assign(**{column: value}).to_csv("people.csv", index=False)


def line(number: int, change: Callable[[bytes], bytes]) -> Callable[[], None]:
    """Change one line."""
    return lambda: rewrite(lambda lines: [*lines[:number], change(lines[number]), *lines[number + 1 :]])


VALUES = {
    "NaN": cell("age", "NaN", "nan", "", "NA"),
    "infinity": cell("age", "inf", "-inf", "Infinity", "1e999"),
    "text in a number column": cell("age", "forty", "4O", "0x28", "1_0", "٤٠"),
    "out of bounds": cell("age", "-1e300", "1e300", "200"),
    "text in a whole number column": whole("age", "forty"),
    "unknown category": cell("workclass", "Astronaut", "42", "   "),
    "unknown group": cell("sex", "X", ""),
    "unknown label": cell("income", "a lot", ""),
    "unknown labels only": whole("income", "a lot"),
    "one class": whole("income", "<=50K"),
    "an empty group": whole("sex", "Male"),
    "a cell of a million characters": cell("workclass", "x" * 10**6),
    "a number of a million digits": cell("age", "9" * 10**6),
    "no rows": lambda: rewrite(lambda lines: lines[:1]),
    "one row": lambda: rewrite(lambda lines: lines[:2]),
    "bytes that are not UTF-8": line(1, lambda text: text.replace(b",", b"\xff\xfe,", 3)),
    "null bytes": line(1, lambda text: text.replace(b",", b"\x00,", 3)),
    "too many cells": line(1, lambda text: text + b",1,2,3"),
    "too few cells": line(1, lambda text: b"39,Private"),
    "an open quote": line(1, lambda text: b'"' + text),
    "a quote inside": line(1, lambda text: text.replace(b",", b'",', 1)),
    "a blank line": line(1, lambda text: b""),
    "no newline at the end": lambda: Path("people.csv").write_bytes(Path("people.csv").read_bytes().rstrip(b"\n")),
    "another kind of newline": lambda: rewrite(lambda lines: [text + b"\r" for text in lines]),
}
# Here too few rows of a group, or of those selected, may be left to speak of: the noisy counts, and they alone,
# decide what is unknown.
SMALL = {"unknown labels only", "one row", "no rows", "an empty group", "one class"}


@pytest.fixture(scope="module")
def clean(tmp_path_factory, people, facts, shell):
    """What a real process says and books on clean rows."""
    folder = tmp_path_factory.mktemp("clean")
    people.to_csv(folder / "people.csv", index=False)
    facts.write(folder / "schema.toml")
    return shell(*TRAIN, cwd=folder), events_in(folder / LEDGER)


@pytest.mark.parametrize("name", VALUES)
def test_a_bad_value_changes_no_message_no_exit_code_and_no_debit(folder, say, clean, name):
    VALUES[name]()
    said, booked = say(*TRAIN), events_in(LEDGER)
    assert (said.code, said.err) == (0, "") == (clean[0].code, clean[0].err)
    is_small = name in SMALL
    assert shape_of(said.out, may_be_unknown=is_small) == shape_of(clean[0].out, may_be_unknown=is_small)
    assert booked == clean[1]
    assert sorted(path.name for path in Path("results").iterdir()) == ["model", "report.html", "summary.json"]


@pytest.mark.parametrize("name", ["no rows", "one row", "unknown labels only"])
def test_a_noisy_size_of_nobody_is_a_size(folder, facts, say, name):
    facts.model_copy(update={"n_public": None}).write("schema.toml")
    VALUES[name]()
    said = say(*TRAIN)
    assert (said.code, said.err) == (0, "")


def test_bad_values_in_parquet(folder, people, say):
    spoilt = {
        "floats": people.assign(age=people["age"].astype(float)).replace({"age": {39.0: np.nan, 50.0: np.inf}}),
        "texts": people.assign(age=people["age"].astype(str)).replace({"age": {"39": "forty"}}),
        "nulls": people.astype(object).where(people["age"] > 30, None),
        "nobody": people.head(0),
    }
    for name, table in spoilt.items():
        table.to_parquet(folder / "people.parquet")
        said = say("train", "people.parquet", "--schema", "schema.toml", *PLAIN, "--out", "results")
        assert (said.code, said.err) == (0, ""), name


def test_a_real_process_stays_as_calm(folder, shell, clean):
    """All at once, and with everything that a library might print past Python."""
    spoilers = ("NaN", "unknown category", "unknown label", "a cell of a million characters")
    lines = ("bytes that are not UTF-8", "too many cells", "an open quote")
    for name in (*spoilers, *lines):
        VALUES[name]()
    said = shell(*TRAIN)
    assert (said.code, said.err) == (clean[0].code, clean[0].err) == (0, "")
    assert shape_of(said.out, may_be_unknown=False) == shape_of(clean[0].out, may_be_unknown=False)


def test_json_has_the_same_shape_on_nobody(folder, say):
    clean = json.loads(say(*TRAIN, "--json").out)
    VALUES["no rows"]()
    nobody = json.loads(say(*TRAIN, "--json").out)
    assert list(nobody) == list(clean)
    public = ("plan", "epsilon_spent", "epsilon_replace_one", "n_public", "private_evaluation")
    assert {name: nobody[name] for name in public} == {name: clean[name] for name in public}


def test_a_private_draft_does_not_stumble_over_values(folder, say):
    cell("age", "inf", "-inf", "1e999", "forty", "9" * 10**5)()
    cell("workclass", "x" * 10**6, "\x00", "٤٠")()
    VALUES["bytes that are not UTF-8"]()
    VALUES["an open quote"]()
    draft = ("schema", "draft", "people.csv", "--target", "income", "--sensitive", "sex", "--epsilon", "20")
    said = say(*draft, "--out", "draft.toml")
    assert (said.code, said.err) == (0, "")
    assert "x" * 100 not in Path("draft.toml").read_text()
