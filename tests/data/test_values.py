"""What a cell becomes depends on that cell alone."""

import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairveil.data.encoding import MissingCells, canonical_texts, numbers_of
from fairveil.data.values import canonical_text, number_of


class Unwritable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["1", "1.0", " 1 ", "+1", "-0", "True", "nan", "?", "1e+3", "1e3", "007", "a\0b", "\ufeff1"]),
    st.sampled_from([pd.NA, pd.NaT, np.int8(1), np.float32(0.1), np.bool_(True), np.uint64(2**64 - 1), b"\xff1"]),
    st.sampled_from([Decimal("1.0"), Decimal("sNaN"), 10**5000, -(10**400), 1j, (1,), [1], {}, pd.Timestamp(0)]),
)


def as_objects(cells: list[object]) -> np.ndarray:
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


@pytest.mark.parametrize(
    "same",
    [
        (
            1,
            1.0,
            "1",
            " 1 ",
            "1.0",
            "+1",
            "1.",
            np.int8(1),
            np.uint64(1),
            np.float32(1),
            Decimal("1.00"),
            b"1",
        ),
        (0, -0.0, "-0", "0.0", "+0"),
        (True, np.bool_(True), "True"),
        (0.1, "0.1", ".1", np.float32(0.1), "0.10"),
        (1e20, 10**20, "1e+20", "100000000000000000000"),
        (None, float("nan"), pd.NA, pd.NaT, np.float32("nan")),
    ],
)
def test_cells_that_mean_the_same_have_one_text(same: tuple[object, ...]) -> None:
    assert len({canonical_text(cell) for cell in same}) == 1


@pytest.mark.parametrize("pair", [(True, 1), ("01", "1"), ("12e4", "120000"), ("a", "A"), ("1,0", "1.0")])
def test_cells_that_differ_keep_their_texts(pair: tuple[object, object]) -> None:
    assert canonical_text(pair[0]) != canonical_text(pair[1])


@given(st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans()))
def test_a_number_and_its_printed_form_agree(value: float) -> None:
    assert canonical_text(str(value)) == canonical_text(value)
    assert number_of(str(value)) == number_of(value)


@given(st.text())
def test_canonical_text_is_its_own_canonical_text(text: str) -> None:
    once = canonical_text(text)
    assert canonical_text(once) == once
    assert canonical_text(f"  {text}\t") == once


@given(st.lists(CELLS, max_size=12))
def test_a_column_gives_what_its_cells_give_one_by_one(cells: list[object]) -> None:
    array = as_objects(cells)
    assert list(canonical_texts(array)) == [canonical_text(cell) for cell in cells]
    missing = MissingCells.of(())
    np.testing.assert_array_equal(numbers_of(array, missing), [number_of(cell) for cell in cells])


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1, 2, None], dtype="Int64"),
        pd.Series([1.0, 2.0, None]),
        pd.Series(["1", " 2 ", None]),
        pd.Series(["1", "2", None], dtype="string[python]"),
        pd.Series([1, 2, None], dtype=object),
        pd.Series([1, 2, None], dtype="category"),
        pd.Series(["1.0", "2", None], dtype="category"),
        pd.Series([1, 2, None], dtype="int64[pyarrow]"),
        pd.Series([1.0, 2.0, None], dtype="Float32"),
        np.array([1, 2, np.nan], dtype=np.float16),
        np.array([b"1", b"2", b""]),
    ],
    ids=lambda column: str(column.dtype),
)
def test_the_type_of_a_column_does_not_matter(column: pd.Series) -> None:
    texts = [text or None for text in canonical_texts(column)]
    assert texts == ["1", "2", None]
    np.testing.assert_array_equal(numbers_of(column, MissingCells.of([""])), [1, 2, math.nan])


def test_large_whole_numbers_stay_exact_beside_a_null() -> None:
    ids = [2**53, 2**53 + 1, None]
    assert list(canonical_texts(pd.Series(ids, dtype="Int64"))) == [str(2**53), str(2**53 + 1), None]


def test_bytes_that_are_not_text_are_written_in_silence() -> None:
    broken = pa.Array.from_buffers(pa.string(), 2, pa.array([b"ab", b"\xff"], pa.binary()).buffers())
    column = pd.Series(pd.arrays.ArrowStringArray(broken.cast(pa.large_string())))
    assert list(canonical_texts(column)) == ["ab", "\\xff"]


def test_a_cell_that_cannot_be_written_down_holds_nothing() -> None:
    assert canonical_text(Unwritable()) is None
    assert math.isnan(number_of(Unwritable()))


@pytest.mark.parametrize("text", ["forty", "1_000", "", "1,5", "0x10", "9" * 10**6 + "x"])
def test_what_is_no_number_is_nan(text: str) -> None:
    assert math.isnan(number_of(text))


def test_a_declared_missing_number_is_missing_in_every_type() -> None:
    missing = MissingCells.of(["-9", "none"])
    for column in (
        np.array([-9, 1]),
        np.array([-9.0, 1.0]),
        as_objects(["-9", "1"]),
        as_objects([" -9.00", 1]),
    ):
        np.testing.assert_array_equal(numbers_of(column, missing), [math.nan, 1])


def test_large_whole_numbers_keep_their_digits_with_a_point_too() -> None:
    assert canonical_text("1000000000000000001.00") == canonical_text(Decimal("1000000000000000001.0"))
    assert canonical_text("1000000000000000001.00") == "1000000000000000001" == canonical_text(10**18 + 1)
