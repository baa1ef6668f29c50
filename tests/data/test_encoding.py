"""Encoding follows the schema alone: every rule, and no row feels another."""

from contextlib import suppress

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairveil.data.encoding import Encoder
from fairveil.data.schema import Category, Number, Schema, Sensitive, Target, Where
from fairveil.errors import BadStructureError

TARGET = Target(column="y", classes=("0", "1"))
CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 60),
    st.floats(),
    st.sampled_from(["f", " m", "M", "30", "4e+1", "?", "", "forty", "x" * 1000, "a\0", "1_0", pd.NA, np.int8(30)]),
    st.sampled_from([np.float32(0.5), b"f", [1], {"a": 1}, 10**400]),
)


def table(rows: list[list[object]], names: tuple[str, ...]) -> pd.DataFrame:
    columns = {}
    for place, name in enumerate(names):
        column = np.empty(len(rows), dtype=object)
        column[:] = [row[place] for row in rows]
        columns[name] = pd.Series(column, dtype=object)
    return pd.DataFrame(columns)


def mixed_schema() -> Schema:
    return Schema(
        target=TARGET,
        columns={
            "age": Number(bounds=(0, 50), cuts=(20, 30, 40)),
            "pay": Number(bounds=(-1, 1), encode="scale"),
            "hours": Number(bounds=(0, 50), bins=5, encode="both"),
            "sex": Category(categories=("f", "m")),
        },
    )


def one(column: Number | Category, cell: object) -> dict[str, float]:
    encoder = Encoder(Schema(target=TARGET, columns={"x": column}))
    row = encoder.rows(table([[cell]], ("x",)))[0]
    return {name: float(value) for name, value in zip(encoder.feature_levels, row, strict=True) if value}


@pytest.mark.parametrize(
    ("cell", "level"),
    [
        (18, "[18, 30)"),
        (29.999, "[18, 30)"),
        (30, "[30, 50)"),
        (50, "[50, 70]"),
        (70, "[50, 70]"),
        (-5, "[18, 30)"),
        (1e9, "[50, 70]"),
        (float("inf"), "[50, 70]"),
        (float("-inf"), "[18, 30)"),
        (" 42 ", "[30, 50)"),
        (True, "[18, 30)"),
    ],
)
def test_numbers_fall_into_bins_and_are_clipped(cell: object, level: str) -> None:
    assert one(Number(bounds=(18, 70), cuts=(30, 50)), cell) == {f"x in {level}": 1}


@pytest.mark.parametrize("cell", [None, float("nan"), pd.NA, "", "?", "forty", "9" * 10**6 + "x", [1], 1j])
def test_what_is_no_number_is_missing(cell: object) -> None:
    assert one(Number(bounds=(18, 70), cuts=(30, 50)), cell) == {"x=missing": 1}
    assert one(Number(bounds=(18, 70), encode="scale"), cell) == {"x=missing": 1}
    assert one(Number(bounds=(18, 70), bins=2, encode="both"), cell) == {"x=missing": 1}


@pytest.mark.parametrize(("cell", "scaled"), [(0, -1), (25, -0.5), (100, 1), (1e9, 1), (-7, -1), ("75", 0.5)])
def test_scaled_numbers_lie_between_minus_one_and_one(cell: object, scaled: float) -> None:
    assert one(Number(bounds=(0, 100), encode="scale"), cell) == {"x scaled": scaled}


def test_both_gives_a_bin_and_a_number() -> None:
    assert one(Number(bounds=(0, 80), bins=4, encode="both"), 60) == {"x in [60, 80]": 1, "x scaled": 0.5}


@pytest.mark.parametrize(
    ("cell", "level"),
    [
        ("f", "f"),
        (" f\n", "f"),
        (b"f", "f"),
        ("F", "other"),
        ("x" * 10**6, "other"),
        (3, "other"),
        ("", "missing"),
        (None, "missing"),
        ("N/A", "missing"),
        (pd.NaT, "missing"),
    ],
)
def test_unlisted_values_are_other_and_nulls_are_missing(cell: object, level: str) -> None:
    assert one(Category(categories=("f", "m")), cell) == {f"x={level}": 1}


def test_a_listed_category_named_missing_is_never_missing_itself() -> None:
    column = Category(categories=("other", "missing", "None"))
    assert column.levels == ("other", "missing", "None")
    assert one(column, "else") == {"x=other": 1}
    assert one(column, None) == {"x=missing": 1}
    assert one(column, "None") == {"x=None": 1}


def test_declared_missing_values_replace_the_usual_ones() -> None:
    schema = Schema(
        target=TARGET,
        missing_values=("-9",),
        columns={"n": Number(bounds=(-10, 10), cuts=(0,)), "c": Category(categories=("a",))},
    )
    rows = Encoder(schema).rows(pd.DataFrame({"n": [-9, -8], "c": ["-9", "?"]}))
    assert rows.tolist() == [[0, 0, 1, 0, 0, 1], [1, 0, 0, 0, 1, 0]]


def test_a_known_table_by_hand(schema: Schema, people: pd.DataFrame) -> None:
    encoder = Encoder(schema)
    assert encoder.feature_levels == (
        *("age in [18, 30)", "age in [30, 50)", "age in [50, 70]", "age=missing"),
        *("pay scaled", "pay=missing"),
        *("hours in [0, 20)", "hours in [20, 40)", "hours in [40, 60)", "hours in [60, 80]", "hours=missing"),
        *("hours scaled", "sex=f", "sex=m", "sex=other", "sex=missing"),
    )
    assert encoder.codes(people).tolist() == [
        [0, 0, 0, 0],
        [1, 0, 1, 1],
        [1, 0, 2, 0],
        [2, 0, 3, 1],
        [2, 0, 3, 0],
    ]
    assert encoder.numbers(people).tolist() == [[-1, -1], [-0.5, -0.5], [0, 0], [0.5, 0.5], [1, 1]]
    assert encoder.rows(people)[1].tolist() == [0, 1, 0, 0, -0.5, 0, 0, 1, 0, 0, 0, -0.5, 0, 1, 0, 0]
    assert encoder.targets(people["hired"]).tolist() == [0, 1, 0, 1, 0]
    assert encoder.groups(people["sex"], "sex").tolist() == [0, 1, 0, 1, 0]


@given(st.lists(st.lists(CELLS, min_size=4, max_size=4), min_size=1, max_size=6))
def test_no_row_feels_another(rows: list[list[object]]) -> None:
    encoder = Encoder(mixed_schema())
    frame = table(rows, encoder.schema.feature_names)
    together = encoder.rows(frame)
    alone = np.concatenate([encoder.rows(frame.iloc[[place]]) for place in range(len(rows))])
    np.testing.assert_array_equal(together, alone)
    with suppress(OverflowError):  # of pandas 2.2 itself, on whole numbers beyond the largest decimal
        np.testing.assert_array_equal(encoder.rows(frame.infer_objects()), together)


@given(st.lists(st.lists(CELLS, min_size=4, max_size=4), min_size=1, max_size=6))
def test_rows_are_one_hot_bounded_and_compact(rows: list[list[object]]) -> None:
    encoder = Encoder(mixed_schema())
    frame = table(rows, encoder.schema.feature_names)
    encoded = encoder.rows(frame)
    is_level = np.array([not name.endswith("scaled") for name in encoder.feature_levels])
    has_pay = encoded[:, encoder.feature_levels.index("pay=missing")] == 0
    # A scaled column has a "missing" level only, so it adds a 1 just where its number is missing.
    np.testing.assert_array_equal(encoded[:, is_level].sum(axis=1), 4 - has_pay)
    assert (np.abs(encoded) <= 1).all()
    assert ((encoded**2).sum(axis=1) <= encoder.largest_squared_norm).all()
    assert encoded.dtype == np.float32
    assert encoded.flags.c_contiguous
    np.testing.assert_array_equal(encoder.coded(encoder.codes(frame), encoder.numbers(frame)).dense(), encoded)


@pytest.mark.parametrize(("n_categories", "kind"), [(254, np.uint8), (255, np.uint16)])
def test_codes_take_one_byte_where_that_is_enough(n_categories: int, kind: type) -> None:
    names = [f"c{place}" for place in range(n_categories)]
    target = Target(column="y", classes=("0", "1"))
    encoder = Encoder(Schema(target=target, columns={"c": Category(categories=tuple(names))}))
    codes = encoder.codes(pd.DataFrame({"c": [names[-1], "unlisted", None]}))
    assert codes.dtype == encoder.layout.code_type == kind
    assert codes.ravel().tolist() == [n_categories - 1, n_categories, n_categories + 1]


def test_the_largest_norm_is_reached() -> None:
    encoder = Encoder(mixed_schema())
    row = encoder.rows(table([[0, 1, 50, "f"]], encoder.schema.feature_names))
    assert (row**2).sum() == encoder.largest_squared_norm == 5


def test_arrays_are_read_by_position(schema: Schema, people: pd.DataFrame) -> None:
    encoder = Encoder(schema)
    array = people[list(schema.feature_names)].to_numpy(dtype=object)
    np.testing.assert_array_equal(encoder.rows(array), encoder.rows(people))
    plain = Encoder(Schema.for_arrays(2, classes=(0, 1)))
    X = np.array([[-1.0, 0.25], [np.nan, 7.0]], dtype=np.float32)
    assert plain.rows(X).tolist() == [[-1, 0, 0.25, 0], [0, 1, 1, 0]]


def test_an_empty_table_gives_no_rows(schema: Schema, people: pd.DataFrame) -> None:
    encoder = Encoder(schema)
    assert encoder.rows(people.iloc[:0]).shape == (0, encoder.n_features)
    assert encoder.targets([]).shape == (0,)


def test_order_and_extra_columns_do_not_matter(schema: Schema, people: pd.DataFrame) -> None:
    encoder = Encoder(schema)
    turned = people[people.columns[::-1]].assign(extra=1).rename(columns={"age": " age "})
    np.testing.assert_array_equal(encoder.rows(turned), encoder.rows(people))


def test_bad_structure_is_one_sentence(schema: Schema, people: pd.DataFrame) -> None:
    encoder = Encoder(schema)
    with pytest.raises(BadStructureError, match=r'"age", got none.*did you mean "aeg"'):
        encoder.rows(people.rename(columns={"age": "aeg"}))
    with pytest.raises(BadStructureError, match='one column "age", got 2'):
        encoder.rows(pd.concat([people, people[["age"]]], axis=1))
    with pytest.raises(BadStructureError, match="4 columns, got 3"):
        encoder.rows(np.zeros((2, 3)))
    with pytest.raises(BadStructureError, match="DataFrame or a 2-D"):
        encoder.rows([[1, 2, 3, 4]])  # type: ignore[arg-type]
    with pytest.raises(BadStructureError, match="one column"):
        encoder.targets(np.zeros((2, 2)))


@pytest.mark.parametrize("make", [list, np.array, pd.Series, pd.Index, lambda cells: pd.array(cells, dtype="string")])
def test_targets_come_in_any_container(schema: Schema, make: object) -> None:
    assert Encoder(schema).targets(make(["yes", "no", "maybe"])).tolist() == [1, 0, -1]  # type: ignore[operator]


def test_groups_without_a_rule_are_none_of_the_groups(schema: Schema) -> None:
    encoder = Encoder(schema)
    assert encoder.groups(["f", "m", "x", None], "sex").tolist() == [0, 1, -1, -1]
    older = Sensitive(column="age", groups=("young", "old"), cuts=(60,), unknown="young")
    assert encoder.groups([59, 60, "?"], older).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("conditions", "kept"),
    [
        ({"at_least": 2}, [0, 1, 1, 0, 0, 0]),
        ({"at_most": 2}, [1, 1, 0, 0, 0, 0]),
        ({"above": 2}, [0, 0, 1, 0, 0, 0]),
        ({"below": 2}, [1, 0, 0, 0, 0, 0]),
        ({"at_least": 2, "below": 3}, [0, 1, 0, 0, 0, 0]),
        ({"one_of": ("1", "x")}, [1, 0, 0, 1, 0, 0]),
        ({"none_of": ("1", "x")}, [0, 1, 1, 0, 1, 1]),
        ({"present": True}, [1, 1, 1, 1, 0, 0]),
    ],
)
def test_row_rules_keep_the_rows_they_name(conditions: dict[str, object], kept: list[int]) -> None:
    schema = mixed_schema().model_copy(update={"where": (Where(column="w", **conditions),)})
    frame = pd.DataFrame({"w": pd.Series([1, "2.0", 3.0, "x", None, "?"], dtype=object)})
    assert Encoder(schema).keep(frame).astype(int).tolist() == kept


def test_persons_are_distinguished_by_the_text_of_their_id(schema: Schema) -> None:
    encoder = Encoder(schema)
    ids = encoder.persons(pd.Series([7, "7", 7.0, " 7 ", "07", "ann", None, "?"], dtype=object))
    assert len(set(ids[:4].tolist())) == 1
    assert len(set(ids.tolist())) == 4
    assert (ids[:6] >= 0).all()
    assert ids[6:].tolist() == [-1, -1]
    assert encoder.persons([7])[0] == ids[0]


LARGE_IDS = [10**18 + place for place in range(50)]


@pytest.mark.parametrize(
    "ids",
    [
        pd.Series([1.0, 2.0], dtype="Float64"),
        pd.Series([1.0, 2.0]).astype("category"),
        pd.Series([1.0, 2.0], dtype=pd.ArrowDtype(pa.float64())),
        pd.Series([1.0, 2.0], dtype=pd.SparseDtype(float)),
        pd.Index([1.0, 2.0]),
        *(np.array([1.0, 2.0], dtype=kind) for kind in ("f2", "f4", "f8", "g")),
    ],
    ids=lambda ids: f"{type(ids).__name__} {ids.dtype}",
)
def test_whole_decimals_name_the_persons_of_whole_numbers(schema: Schema, ids: object) -> None:
    assert Encoder(schema).persons(ids).tolist() == Encoder(schema).persons([1, 2]).tolist()


@pytest.mark.parametrize("dtype", ["float64", "Float64", "category", pd.ArrowDtype(pa.float64())], ids=str)
def test_large_decimals_name_nobody(schema: Schema, dtype: object) -> None:
    """They would be the same number for different people."""
    ids = pd.Series([*LARGE_IDS, None], dtype=float).astype(dtype)
    assert Encoder(schema).persons(ids).tolist() == [-1] * (len(LARGE_IDS) + 1)


@pytest.mark.parametrize("dtype", ["Int64", "object", "string", "category", pd.ArrowDtype(pa.int64())], ids=str)
def test_large_ids_stay_apart_beside_a_missing_one(schema: Schema, dtype: object) -> None:
    ids = pd.Series([*LARGE_IDS, None], dtype="Int64").astype(dtype)
    numbers = Encoder(schema).persons(ids)
    assert numbers[-1] == -1
    np.testing.assert_array_equal(numbers[:-1], Encoder(schema).persons(np.array(LARGE_IDS)))
    assert len(set(numbers.tolist())) == 51
