"""Drafts: guesses from rows, and the pure functions that also serve noisy counts."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairveil
from fairveil.data import drafting
from fairveil.data.datasets import dataset_path
from fairveil.data.drafting import draft_schema
from fairveil.data.guessing import bounds_outward, categories_from_counts, cuts_from_histogram, round_grid, rounded_down
from fairveil.data.schema import Category, Number, Schema
from fairveil.errors import BadStructureError, FairveilError, InvalidParameterError, MissingPublicFactError
from fairveil.privacy.ledger import Ledger

NUMBERS = st.floats(-1e12, 1e12, allow_subnormal=False).filter(lambda number: number == 0 or abs(number) > 1e-9)


@given(NUMBERS, NUMBERS)
def test_bounds_hold_what_they_were_made_of(a: float, b: float) -> None:
    low, high = bounds_outward(min(a, b), max(a, b))
    assert low < high
    assert low <= min(a, b) <= max(a, b) <= high


@given(NUMBERS, NUMBERS)
def test_the_grid_rises_from_bound_to_bound(a: float, b: float) -> None:
    low, high = bounds_outward(min(a, b), max(a, b))
    grid = round_grid(low, high)
    assert (grid[0], grid[-1]) == (low, high)
    assert (np.diff(grid) > 0).all()
    assert len(grid) < 1300


@given(st.lists(st.floats(-10, 1000), min_size=1, max_size=40), st.integers(2, 12))
def test_cuts_are_few_rising_interior_edges(counts: list[float], n_bins: int) -> None:
    edges = np.arange(len(counts) + 1)
    cuts = cuts_from_histogram(edges, counts, n_bins)
    assert len(cuts) <= n_bins - 1
    assert list(cuts) == sorted(set(cuts))
    assert set(cuts) <= set(edges[1:-1].astype(float))


def test_cuts_divide_evenly_and_a_frequent_value_takes_one_bin() -> None:
    assert cuts_from_histogram(range(11), [10] * 10, 5) == (2, 4, 6, 8)
    assert cuts_from_histogram(range(6), [900, 25, 25, 25, 25], 5) == (1, 2, 3, 4)
    assert cuts_from_histogram([0, 1], [5]) == ()
    assert cuts_from_histogram([0, 1, 2], [-3, 0]) == ()


def test_cuts_prefer_round_numbers() -> None:
    edges = [0, 36.9, 37.1, 38, 38.2, 90]
    assert cuts_from_histogram(edges, [50, 0, 0, 0, 50], 2) == (38,)


def test_categories_are_frequent_few_and_in_natural_order() -> None:
    counts = {"b": 50, "a": 20, "10": 30, "9": 10, "rare": 9.9, "noise": -4}
    assert categories_from_counts(counts) == ("9", "10", "a", "b")
    assert categories_from_counts(counts, at_most=2) == ("10", "b")


@pytest.fixture
def drafted(tmp_path: Path) -> Schema:
    n = 200
    frame = pd.DataFrame(
        {
            "row": range(1, n + 1),
            "name": [f"person {place}" for place in range(n)],
            "age": [18 + place % 50 for place in range(n)],
            "score": [f"{place * 0.37:.2f}" if place % 40 else "?" for place in range(n)],
            "stars": [place % 5 for place in range(n)],
            "job": ["a", "b"] * 99 + ["rare", ""],
            "free": [None] * n,
            "hired": ["yes", "no"] * 100,
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False, sep=";")
    return draft_schema(tmp_path / "t.csv", "hired", ["job", "age"], delimiter=";")


def test_a_draft_guesses_kinds_and_says_that_it_is_private(drafted: Schema) -> None:
    assert drafted.private_draft
    assert drafted.n_public is None
    assert list(drafted.columns) == ["age", "score", "stars", "job"]
    assert isinstance(drafted.columns["age"], Number)
    assert drafted.columns["age"].bounds == (18, 67)
    assert isinstance(drafted.columns["score"], Number)
    assert drafted.columns["stars"] == Category(categories=("0", "1", "2", "3", "4"))
    assert drafted.columns["job"] == Category(categories=("a", "b"))
    assert drafted.target.classes == ("no", "yes")


def test_a_draft_states_what_it_left_out(drafted: Schema) -> None:
    assert [note.rsplit(": ")[1] for note in drafted.notes] == ["row", "name", "free"]
    text = drafted.to_toml()
    assert "# n_public" in text
    assert "private" in text.splitlines()[1]


def test_a_number_group_is_cut_in_two(drafted: Schema) -> None:
    job, age = drafted.sensitive
    assert job.groups == ("a", "b")
    assert len(age.groups) == 2
    assert 35 <= age.cuts[0] <= 50


def test_a_draft_of_adult_resembles_what_a_person_would_write() -> None:
    schema = draft_schema(dataset_path("adult"), "income", ["sex"])
    assert schema.columns["age"] == Number(bounds=(17, 90), cuts=(22, 26, 30, 34, 38, 42, 46, 51, 58))
    assert schema.columns["sex"] == Category(categories=("Female", "Male"))
    assert isinstance(schema.columns["capital_gain"], Number)
    assert schema.columns["capital_gain"].cuts is not None
    assert len(schema.columns["capital_gain"].cuts) == 9


def test_a_draft_needs_its_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadStructureError, match='"c"'):
        draft_schema(tmp_path / "t.csv", "c")
    with pytest.raises(BadStructureError, match="classes"):
        draft_schema(tmp_path / "t.csv", "a")


# --- messy columns ----------------------------------------------------------------------------------------------------


def people_of(n_rows: int = 400) -> pd.DataFrame:
    """Return a clean table of people, all cells as text."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, n_rows),
            "sex": rng.choice(["f", "m"], n_rows),
            "hired": rng.choice(["yes", "no"], n_rows),
        }
    ).astype(str)


def note_about(schema: Schema, name: str) -> str:
    (note,) = [one for one in schema.notes if one.endswith(f": {name}")]
    return note


def test_ids_are_known_by_their_cells_or_their_name() -> None:
    table, rng = people_of(), np.random.default_rng(1)
    table["client_no"] = rng.choice(10**6, len(table), replace=False)
    table["CustomerID"] = rng.integers(0, 150, len(table))  # persons with several rows
    table["token"] = [f"{number:08x}" for number in rng.choice(10**6, len(table), replace=False)]
    table["row"] = rng.permutation(len(table)) + 7
    table["amount"] = rng.choice(10**6, len(table), replace=False)  # distinct, but not named like an id
    table["valid"] = rng.integers(0, 300, len(table))
    drafted = draft_schema(table, "hired", "sex")
    assert set(drafted.columns) == {"age", "sex", "amount", "valid"}
    assert "id_column" in note_about(drafted, "CustomerID")
    for name in ("client_no", "token", "row"):
        assert "seems to be an id" in note_about(drafted, name)


@pytest.mark.parametrize(
    ("form", "spell"),
    [
        ("1,234.5", lambda n: f"{n * 7.25:,.2f}"),
        ("1.234,5", lambda n: f"{n * 7.25:,.2f}".translate(str.maketrans(",.", ".,"))),
        ("1 234,5", lambda n: f"{n * 70.25:,.2f}".replace(",", "\u00a0").replace(".", ",")),
        ("plain", lambda n: f"{n * 7.25:.2f}"),
        ("YYYY-MM-DD", lambda n: f"{1980 + n % 9}-{1 + n % 12:02d}-{1 + n % 28:02d}"),
        ("DD.MM.YYYY", lambda n: f"{1 + n % 28}.{1 + n % 12}.{1980 + n % 9}"),
        ("DD/MM/YYYY", lambda n: f"{1 + n % 28}/{1 + n % 12}/{1980 + n % 9}"),
        ("MM/DD/YYYY", lambda n: f"{1 + n % 12}/{1 + n % 28}/{1980 + n % 9}"),
    ],
)
def test_formats_are_recognized_beside_missing_and_odd_cells(form, spell) -> None:
    table = people_of()
    table["x"] = [spell(place + 100) if place % 40 else ["-", "n/a", "odd"][place % 3] for place in range(len(table))]
    drafted = draft_schema(table, "hired", "sex")
    assert drafted.columns["x"].format == form
    if form != "plain":
        assert f'"{form}"' in note_about(drafted, "x")
    if "YYYY" in form:
        assert drafted.columns["x"].bounds == (1980, 1989)


def test_points_before_three_digits_depend_on_the_delimiter(tmp_path: Path) -> None:
    table = people_of().assign(x=[f"{1 + place % 90}.{place % 10}00" for place in range(400)])
    for delimiter, form in ((",", "plain"), (";", "1.234,5")):
        table.to_csv(tmp_path / "t.csv", index=False, sep=delimiter)
        drafted = draft_schema(tmp_path / "t.csv", "hired", "sex")
        assert drafted.columns["x"].format == form and drafted.file.delimiter == delimiter
    declared = draft_schema(tmp_path / "t.csv", "hired", "sex", formats={"x": "plain"})
    assert declared.columns["x"].format == "plain"


def test_text_with_many_values_is_left_out_or_cut_with_a_note() -> None:
    table = people_of(4000)
    rng = np.random.default_rng(2)
    table["city"] = [f"c{place % 150}" for place in range(len(table))]
    table["remark"] = [f"r{number}" for number in rng.integers(0, 3000, len(table))]
    table.loc[:100, "remark"] = "none at all"
    drafted = draft_schema(table, "hired", "sex")
    assert len(drafted.columns["city"].categories) == 100
    assert "100 most frequent" in note_about(drafted, "city")
    assert "remark" not in drafted.columns and "rare values" in note_about(drafted, "remark")


def test_the_positive_class_is_stated_by_a_person_or_by_a_rule() -> None:
    table = people_of()
    assert draft_schema(table, "hired", "sex").target.positive == "yes"
    assert draft_schema(table, "hired", "sex", positive="no").target.positive == "no"
    refused = table.assign(hired=["approved", "denied"] * 200)
    assert draft_schema(refused, "hired", "sex").target.positive == "approved"
    with pytest.raises(BadStructureError, match="class of") as caught:
        draft_schema(refused, "hired", "sex", positive="aproved")
    assert "denied" not in str(caught.value)


def test_groups_of_numbers_are_cut_where_a_person_says() -> None:
    (entry,) = draft_schema(people_of(), "hired", "age", cuts=[30, 50]).sensitive
    assert (entry.groups, entry.cuts) == (("below 30", "30 to 50", "50 and above"), (30, 50))
    (halved,) = draft_schema(people_of(), "hired", "age").sensitive
    assert len(halved.groups) == 2
    for cuts in ([50, 30], [30, 30], [float("nan")]):
        with pytest.raises(InvalidParameterError, match="increasing"):
            draft_schema(people_of(), "hired", "age", cuts=cuts)


def test_a_column_that_gives_the_target_away_is_flagged_in_private() -> None:
    table = people_of(4000)
    table["outcome"] = ["hired in May" if cell == "yes" else "" for cell in table["hired"]]
    table["score"] = [
        str(50 + place % 49 if cell == "yes" else place % 49) for place, cell in enumerate(table["hired"])
    ]
    drafted = draft_schema(table, "hired", "sex")
    flags = [note for note in drafted.private_notes if "give the target away" in note]
    assert len(flags) == 2 and all("100.0%" in flag for flag in flags)
    assert not [note for note in drafted.notes if "away" in note]
    approved = drafted.approved()
    assert (approved.private_draft, approved.private_notes) == (False, ())
    assert "away" in drafted.to_toml() and "away" not in approved.to_toml()


def test_private_notes_do_not_outlive_approval() -> None:
    drafted = draft_schema(people_of(40), "hired", "sex")
    assert drafted.private_notes
    with pytest.raises(BadStructureError, match="private_notes"):
        Schema(**(dict(drafted) | {"private_draft": False}))


def test_a_frame_and_its_file_are_drafted_alike(tmp_path: Path) -> None:
    table = people_of()
    table.to_csv(tmp_path / "people.csv.gz", index=False)
    table.to_parquet(tmp_path / "people.parquet")
    from_file = [draft_schema(tmp_path / name, "hired", "sex") for name in ("people.csv.gz", "people.parquet")]
    assert from_file[0] == from_file[1] and from_file[0].name == "people"
    assert from_file[0].model_copy(update={"name": ""}) == draft_schema(table, "hired", "sex")
    assert fairveil.draft_schema is draft_schema


def test_training_refuses_a_draft_from_python_until_it_is_approved() -> None:
    table = people_of(600)
    drafted = draft_schema(table, "hired", "sex", n_public=600)
    clf = fairveil.PrivateClassifier(epsilon=1.0, schema=drafted, ledger=Ledger())
    with pytest.raises(MissingPublicFactError, match="approve"):
        clf.fit(table, table["hired"])
    clf.set_params(schema=drafted.approved()).fit(table, table["hired"])


def test_bytes_that_are_not_utf8_are_refused_with_the_remedy(tmp_path: Path) -> None:
    table = people_of().assign(area=["süd", "nord"] * 200)
    table.to_csv(tmp_path / "t.csv", index=False, encoding="latin-1")
    with pytest.raises(BadStructureError, match="--encoding latin-1") as caught:
        draft_schema(tmp_path / "t.csv", "hired", "sex")
    assert "süd" not in str(caught.value)
    drafted = draft_schema(tmp_path / "t.csv", "hired", "sex", encoding="latin-1")
    assert drafted.columns["area"] == Category(categories=("nord", "süd"))
    assert drafted.file.encoding == "iso8859-1"
    kept = draft_schema(tmp_path / "t.csv", "hired", "sex", encoding="utf-8")
    assert kept.columns["area"] == Category(categories=("nord", r"s\xfcd"))


# --- at a price -------------------------------------------------------------------------------------------------------


def test_a_price_at_which_nothing_can_show_is_refused_before_it_is_paid() -> None:
    ledger = Ledger()
    for epsilon, n_public in ((0.05, 400), (0.001, None)):
        with pytest.raises(InvalidParameterError, match="Nothing was spent") as caught:
            draft_schema(people_of(), "hired", "sex", epsilon=epsilon, n_public=n_public, ledger=ledger)
    assert ledger.entries == ()
    needed = float(re.search(r"spend (\S+),", str(caught.value))[1])
    assert needed > 0.001


def test_what_a_refused_price_proposes_is_enough() -> None:
    table = people_of(3000)
    with pytest.raises(InvalidParameterError) as caught:
        draft_schema(table, "hired", "sex", epsilon=0.01, n_public=3000, ledger=Ledger())
    needed = 2 * float(re.search(r"spend (\S+),", str(caught.value))[1])
    drafted = draft_schema(table, "hired", "sex", epsilon=needed, n_public=3000, ledger=Ledger())
    assert set(drafted.target.classes) == {"no", "yes"} and drafted.n_public == 3000


def test_a_paid_draft_takes_what_a_person_declares() -> None:
    table = people_of(4000).assign(pay=[f"{place % 900},5" for place in range(4000)])
    drafted = draft_schema(
        table, "hired", "age", positive="no", cuts=[30, 50], formats={"pay": "1.234,5"}, epsilon=20, ledger=Ledger()
    )
    assert not drafted.private_draft and drafted.private_notes == ()
    assert drafted.target.positive == "no"
    assert drafted.sensitive[0].groups == ("below 30", "30 to 50", "50 and above")
    assert drafted.columns["pay"].format == "1.234,5" and drafted.columns["pay"].type == "number"


def test_a_paid_draft_cuts_groups_of_numbers_instead_of_listing_them() -> None:
    drafted = draft_schema(people_of(20_000), "hired", "age", epsilon=50, ledger=Ledger())
    assert len(drafted.sensitive[0].groups) == 2 and drafted.columns["age"].type == "number"


def test_declared_facts_are_checked_before_any_row_is_read() -> None:
    for facts, words in (
        ({"formats": {"age": "funny"}}, "to be one of"),
        ({"formats": {"aeg": "plain"}}, '"aeg"'),
        ({"epsilon": 1.0, "sensitive": ("sex", "age")}, "one sensitive column"),
    ):
        with pytest.raises(FairveilError, match=words):
            draft_schema(people_of(), **({"target": "hired", "sensitive": "sex", "ledger": Ledger()} | facts))


# --- columns of very many distinct cells ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet"])
def test_a_draft_is_the_same_if_not_all_distinct_cells_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Ids, amounts, amounts with decimal commas and codes with a long tail; of 3000 distinct cells 200 are kept."""
    rng, n = np.random.default_rng(5), 3000
    amounts = np.round(np.exp(rng.normal(8, 2, n)) - 500, 2)
    rows = pd.DataFrame(
        {
            "row": [f"r{place}" for place in range(n)],
            "customer_id": rng.permutation(n) // 2 + 10_000,
            "amount": np.sort(amounts),  # the largest ones come last
            "euros": [f"{amount:.2f}".replace(".", ",") for amount in amounts],
            "share": rng.random(n),
            "code": np.where(rng.random(n) < 0.8, rng.choice(["a", "b"], n), [f"z{place}" for place in range(n)]),
            "sex": rng.choice(["f", "m"], n),
            "hired": rng.choice(["no", "yes"], n),
        }
    )
    table: Any = rows
    if kind == "csv":
        table = tmp_path / "t.csv"
        rows.to_csv(table, index=False, sep=";")
    elif kind == "parquet":
        table = tmp_path / "t.parquet"
        rows.to_parquet(table)
    expected = draft_schema(table, "hired", "sex")
    assert {"amount", "euros", "share", "code"} == {*expected.columns} - {"sex"}
    monkeypatch.setattr(drafting, "MAX_DISTINCT", 200)
    assert draft_schema(table, "hired", "sex") == expected
    expected_amounts = draft_schema(rows.assign(sex=rows["amount"]), "hired", "sex")
    monkeypatch.undo()
    assert draft_schema(rows.assign(sex=rows["amount"]), "hired", "sex") == expected_amounts


NINE_DIGITS = st.builds(
    lambda digits, decade: float(f"{digits}e{decade}"), st.integers(-(10**9), 10**9), st.integers(-9, 9)
)


@given(st.lists(NINE_DIGITS, min_size=1, max_size=20), st.integers(1, 999), st.integers(-8, 8))
def test_rounding_down_keeps_the_side_of_every_number_of_few_digits(
    numbers: list[float], digits: int, decade: int
) -> None:
    edge = float(f"{digits}e{decade}")
    exact = np.array([*numbers, edge, -edge])
    rounded = rounded_down(exact)
    for number in (edge, -edge):
        np.testing.assert_array_equal(rounded >= number, exact >= number)
    assert (rounded <= exact).all() and (exact - rounded <= 1e-3 * np.abs(exact) + 1e-300).all()
