"""Frames of any kind are read as pandas frames are, to the bit, and by their types alone."""

import warnings

import narwhals as plain_narwhals
import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairveil.data.encoding import Encoder
from fairveil.data.frames import as_pandas
from fairveil.data.schema import Category, Number, Schema, Sensitive, Target, Where
from fairveil.errors import BadStructureError

SCHEMA = Schema(
    id_column="who",
    target=Target(column="paid", classes=("0", "1")),
    sensitive=(Sensitive(column="sex", groups=("f", "m")),),
    columns={
        "age": Number(bounds=(0, 100), encode="both"),
        "pay": Number(bounds=(0, 9), cuts=(1, 5)),
        "zip": Category(categories=("01234", "1", "2.5", "x")),
        "sex": Category(categories=("f", "m")),
    },
    where=(Where(column="kept", one_of=("True",)),),
)
NAMES = [*SCHEMA.columns, "who", "paid", "kept"]

texts = st.sampled_from(["01234", "1", "1.0", " 1 ", "2.5", "x", "?", "", "1e5", "true", "nan", "\x00", "\udcff", "é"])
printed = texts.filter(lambda text: "\udcff" not in text)  # no frame can hold half a character
maybe = st.none
people = st.fixed_dictionaries(
    {
        "age": maybe() | st.integers(-(2**40), 2**40),
        "pay": maybe() | st.floats(width=64),
        "zip": maybe() | printed,
        "sex": maybe() | st.sampled_from(["f", "m", "M", ""]),
        "who": maybe() | st.integers(-(2**63), 2**63 - 1),
        "paid": maybe() | st.integers(-1, 2),
        "kept": maybe() | st.booleans(),
    }
)
POLARS = {
    "age": pl.Int64, "pay": pl.Float64, "zip": pl.String, "sex": pl.Categorical, "who": pl.Int64, "paid": pl.Int8,
    "kept": pl.Boolean,
}  # fmt: skip
PANDAS = {
    "age": "Int64", "pay": "float64", "zip": "str", "sex": "category", "who": "Int64", "paid": "Int8",
    "kept": "boolean",
}  # fmt: skip


def as_polars(rows):
    return pl.DataFrame({name: [row[name] for row in rows] for name in NAMES}, schema=POLARS)


KINDS = {
    "polars": as_polars,
    "polars in chunks": lambda rows: pl.concat([as_polars(rows[:1]), as_polars(rows[1:])], rechunk=False),
    "arrow": lambda rows: as_polars(rows).to_arrow(),
    "arrow in chunks": lambda rows: pa.concat_tables([as_polars(rows[:1]).to_arrow(), as_polars(rows[1:]).to_arrow()]),
    "arrow views": lambda rows: as_polars(rows).to_arrow(compat_level=pl.CompatLevel.newest()),
    "arrow batch": lambda rows: as_polars(rows).to_arrow().combine_chunks().to_batches()[0],
    "narwhals": lambda rows: nw.from_native(as_polars(rows)),
    "narwhals of pandas": lambda rows: nw.from_native(in_pandas(rows)),
}


def in_pandas(rows):
    columns = {name: pd.array([row[name] for row in rows], dtype=kind) for name, kind in PANDAS.items()}
    return pd.DataFrame(columns)


def codes_of(table):
    """Return all that is read of a table."""
    encoder = Encoder(SCHEMA)
    table = as_pandas(table, NAMES)
    read = encoder.labels(table, [table["paid"], table["sex"]], SCHEMA.sensitive)
    return [part.tobytes() for part in (encoder.codes(table), encoder.numbers(table), encoder.rows(table), *read)]


@pytest.mark.parametrize("kind", KINDS)
@given(rows=st.lists(people, min_size=1, max_size=8))
def test_every_kind_of_frame_is_read_as_pandas_to_the_bit(kind, rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pl.exceptions.CategoricalRemappingWarning)
        frame = KINDS[kind](rows)
    assert codes_of(frame) == codes_of(in_pandas(rows))


@given(rows=st.lists(people, min_size=2, max_size=8))
def test_one_record_does_not_decide_how_others_are_read(rows):
    alone, among = as_pandas(as_polars(rows[:1])), as_pandas(as_polars(rows))
    assert list(alone.dtypes) == list(among.dtypes)
    encoder = Encoder(SCHEMA)
    assert encoder.rows(alone).tobytes() == encoder.rows(among)[:1].tobytes()


def test_text_that_spells_a_number_stays_text():
    frame = pl.DataFrame({"zip": ["01234", "01235"]})
    assert as_pandas(frame)["zip"].tolist() == ["01234", "01235"]


@pytest.mark.parametrize("n_rows", [0, 3])
def test_columns_are_read_as_the_columns_of_frames(n_rows):
    who = [7, None, 2**60 + 1][:n_rows]
    expected = Encoder(SCHEMA).persons(pd.array(who, dtype="Int64"))
    columns = [
        pl.Series("who", who, dtype=pl.Int64), pl.Series(who, dtype=pl.Int64), pa.array(who, pa.int64()),
        pa.chunked_array([who[:1], who[1:]], pa.int64()),
        nw.from_native(pl.Series(who, dtype=pl.Int64), series_only=True),
    ]  # fmt: skip
    for column in columns:
        found = as_pandas(column, ["another"])
        assert isinstance(found, pd.Series) and np.array_equal(Encoder(SCHEMA).persons(found), expected)


def test_what_is_no_frame_of_another_kind_stays_as_it_is():
    for values in (
        None,
        [1, 2],
        (1,),
        np.zeros(3),
        pd.Series([1]),
        pd.Index([1]),
        pd.array([1]),
        pd.DataFrame({"a": [1]}),
        "text",
        7,
    ):
        assert as_pandas(values) is values


def test_empty_frames_keep_their_types():
    empty = as_pandas(as_polars([]))
    assert len(empty) == 0 and list(empty.dtypes) == list(as_pandas(as_polars([dict.fromkeys(NAMES)])).dtypes)


# --- what is refused ------------------------------------------------------------------------------------------------


def sentence_of(call):
    with pytest.raises(BadStructureError) as found:
        call()
    text = str(found.value)
    assert text.startswith("Expected ") and text.endswith(".") and "\n" not in text
    return text


def test_lazy_frames_are_refused_with_the_remedy():
    text = sentence_of(lambda: as_pandas(as_polars([]).lazy()))
    assert "LazyFrame" in text and "collect()" in text


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([[1]]),
        pl.Series([{"a": 1}]),
        pl.Series([object()], dtype=pl.Object),
        pl.Series([[]], dtype=pl.List(pl.Int8)),
    ],
    ids=["list", "struct", "object", "empty list"],
)
def test_types_without_a_rule_are_refused_only_where_they_are_read(column):
    frame = pl.DataFrame({"age": [1], "zip": column})
    assert as_pandas(frame, ["age"])["age"].tolist() == [1]
    for names in (["zip"], None):
        assert '"zip"' in sentence_of(lambda names=names: as_pandas(frame, names))
    sentence_of(lambda: as_pandas(column))


def test_names_that_occur_twice_are_refused():
    twice = pa.table([pa.array([1]), pa.array([2])], names=["age", "age"])
    assert "twice" in sentence_of(lambda: as_pandas(twice, ["age"]))


def test_blanks_around_names_are_ignored():
    found = as_pandas(pl.DataFrame({" age ": [5], "other": [1]}), ["age"])
    assert list(found.columns) == [" age "]


def test_the_plain_namespace_of_narwhals_works_too():
    assert as_pandas(plain_narwhals.from_native(pl.DataFrame({"age": [5]})))["age"].tolist() == [5]
