"""Drafts: guesses from rows, and the pure functions that also serve noisy counts."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairveil.data.datasets import dataset_path
from fairveil.data.drafting import (
    bounds_outward,
    categories_from_counts,
    cuts_from_histogram,
    draft_schema,
    round_grid,
)
from fairveil.data.schema import Category, Number, Schema
from fairveil.errors import BadStructureError

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
