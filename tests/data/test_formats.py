"""How cells spell numbers and dates: by the schema's format, each cell by itself."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairveil.data.encoding import Encoder
from fairveil.data.schema import Number, Schema, Sensitive, Target, Where
from fairveil.data.values import FORMATS, number_in
from fairveil.errors import BadStructureError


@pytest.mark.parametrize(
    ("form", "text", "number"),
    [
        ("1,234.5", "1,234.5", 1234.5),
        ("1,234.5", "-$12,345,678", -12345678),
        ("1,234.5", "1234.5", 1234.5),
        ("1,234.5", "12,34", math.nan),
        ("1,234.5", "0,123", math.nan),
        ("1,234.5", "1.234,5", math.nan),
        ("1.234,5", "1.234,5", 1234.5),
        ("1.234,5", "1.234", 1234),
        ("1.234,5", "12,5 %", 12.5),
        ("1.234,5", "1.5", math.nan),
        ("1 234,5", "1\u00a0234,5 €", 1234.5),
        ("1'234.5", "1'234.5", 1234.5),
        ("YYYY-MM-DD", "2019-07-02 10:11:12", 2019 + 182 / 365),
        ("YYYY-MM-DD", "2020-12-31T00:00:00Z", 2020 + 365 / 366),
        ("YYYY-MM-DD", "2019-02-30", math.nan),
        ("DD.MM.YYYY", "1.2.2019", 2019 + 31 / 365),
        ("DD.MM.YYYY", "2019-02-01", 2019 + 31 / 365),
        ("DD/MM/YYYY", "01/02/2019", 2019 + 31 / 365),
        ("MM/DD/YYYY", "02/01/2019", 2019 + 31 / 365),
        ("MM/DD/YYYY", "13/01/2019", math.nan),
    ],
)
def test_a_cell_follows_its_format_or_is_no_number(form, text, number) -> None:
    assert number_in(f" {text} ", form) == pytest.approx(number, nan_ok=True)


@given(st.sampled_from(FORMATS), st.one_of(st.text(max_size=20), st.binary(max_size=9), st.none(), st.floats()))
def test_no_value_raises(form, value) -> None:
    number_in(value, form)
    number_in("9" * 5000, form)


@given(st.integers(-(10**9), 10**9), st.integers(0, 99))
def test_what_is_written_is_read_back(whole: int, cents: int) -> None:
    number = whole + (cents if whole >= 0 else -cents) / 100
    english = f"{number:,.2f}"
    assert number_in(english, "1,234.5") == pytest.approx(number)
    assert number_in(english.translate(str.maketrans(",.", ".,")), "1.234,5") == pytest.approx(number)


SCHEMA = Schema(
    target=Target(column="y", classes=("low", "high"), cuts=(1000,), format="1.234,5"),
    sensitive=(Sensitive(column="born", groups=("before 1980", "later"), cuts=(1980,), format="DD.MM.YYYY"),),
    where=(Where(column="y", at_least=10, format="1.234,5"),),
    columns={
        "pay": Number(bounds=(0, 2000), encode="scale", format="1.234,5"),
        "born": Number(bounds=(1900, 2000), cuts=(1950,), format="DD.MM.YYYY"),
    },
)


def test_every_place_of_a_schema_reads_its_format() -> None:
    table = pd.DataFrame({"pay": ["1.000", "2.000,0"], "born": ["31.12.1949", "1.1.1980"], "y": ["9,5", "1.234"]})
    encoder = Encoder(SCHEMA)
    y, groups, _, counts = encoder.labels(table, [table["y"], table["born"]], SCHEMA.sensitive)
    assert (y.tolist(), groups[:, 0].tolist(), counts.tolist()) == ([0, 1], [0, 1], [False, True])
    np.testing.assert_allclose(encoder.rows(table), [[0, 0, 1, 0, 0], [1, 0, 0, 1, 0]])


def test_a_column_that_is_numbers_already_is_refused() -> None:
    """`1.234` would be a number unless another cell of the column is text."""
    table = pd.DataFrame({"pay": [1.234, 2.0], "born": ["1.1.1980"] * 2})
    with pytest.raises(BadStructureError, match="dtype=str"):
        Encoder(SCHEMA).rows(table)


@pytest.mark.parametrize("cell", ["", "x", "1.234", "1,5", "99.99.9999", "1e999", "\0", "9" * 400])
def test_one_cell_never_decides_how_others_are_read(cell: str) -> None:
    table = pd.DataFrame({"pay": ["1.234", "7,5", cell], "born": ["1.1.1980", "2.2.1944", cell]})
    alone = Encoder(SCHEMA).rows(table.iloc[:2])
    np.testing.assert_array_equal(Encoder(SCHEMA).rows(table)[:2], alone)


def test_dates_of_pandas_are_dates() -> None:
    table = pd.DataFrame({"pay": ["1", "1"], "born": pd.to_datetime(["1949-12-31", "1980-01-01"])})
    assert Encoder(SCHEMA).rows(table)[:, 2:4].tolist() == [[1, 0], [0, 1]]
