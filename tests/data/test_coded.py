"""Coded rows stand for one-hot rows: written out they are the same, and no code leads outside an array."""

import numpy as np
import pytest

from fairveil import Schema, load_dataset
from fairveil.data.coded import CodedRows, Layout, dense, joined
from fairveil.data.encoding import Encoder
from fairveil.data.schema import Category, Number
from fairveil.errors import BadStructureError

LAYOUT = Layout(9, first=[0, 3, 5], n_levels=[3, 2, 2], is_number=[False, False, True], scaled=[5, 7, 8])
CODES = np.array([[2, 0, 0], [0, 1, 1], [1, 1, 0]], dtype=np.uint8)
NUMBERS = np.array([[0.5, -1, 0], [0, 0.25, 1], [-0.5, 0, 0.5]], dtype=np.float32)
ROWS = np.array(
    [
        [0, 0, 1, 1, 0, 0.5, 0, -1, 0],
        [1, 0, 0, 0, 1, 0, 1, 0.25, 1],
        [0, 1, 0, 0, 1, -0.5, 0, 0, 0.5],
    ],
    dtype=np.float32,
)


def coded():
    return CodedRows(LAYOUT, CODES, NUMBERS)


def test_written_out_they_are_one_hot_rows_with_scaled_numbers():
    np.testing.assert_array_equal(coded().dense(), ROWS)
    np.testing.assert_array_equal(np.asarray(coded()), ROWS)
    assert coded().shape == ROWS.shape and dense(ROWS) is ROWS


def test_some_rows_are_a_view_by_row_numbers():
    some = coded()[np.array([2, 0, 2])]
    np.testing.assert_array_equal(some.dense(), ROWS[[2, 0, 2]])
    np.testing.assert_array_equal(some[1:].dense(), ROWS[[0, 2]])
    np.testing.assert_array_equal(some[np.array([True, False, True])].dense(), ROWS[[2, 2]])
    np.testing.assert_array_equal(some.take(np.array([1])).dense(), ROWS[[0]])
    assert some.codes is CODES and some.gathered().codes is not CODES
    np.testing.assert_array_equal(joined([some, coded()]).dense(), ROWS[[2, 0, 2, 0, 1, 2]])


def test_norms_are_those_of_the_rows_written_out():
    np.testing.assert_allclose(coded().squared_norms(), np.square(ROWS).sum(axis=1), rtol=1e-6)
    plain = CodedRows(Layout(5, [0, 3], [3, 2], [False, False], []), CODES[:, :2], NUMBERS[:, :0])
    assert plain.layout.constant_square == 2.0 and plain.squared_norms().tolist() == [2, 2, 2]


def test_one_more_number_is_the_last_feature():
    more = coded().with_number(np.array([0.0, 1.0, -1.0]))
    np.testing.assert_array_equal(more.dense(), np.column_stack([ROWS, [0, 1, -1]]))
    np.testing.assert_array_equal(more[1:].last_number, [1, -1])
    np.testing.assert_array_equal(more[1:].without_last_number().dense(), ROWS[1:])


@pytest.mark.parametrize("n_levels, kind", [(256, np.uint8), (257, np.uint16)])
def test_codes_take_one_byte_where_that_is_enough(n_levels, kind):
    layout = Layout(n_levels, [0], [n_levels], [False], [])
    assert layout.code_type is kind
    last = CodedRows(layout, np.array([[n_levels - 1]], dtype=kind), np.zeros((1, 0), np.float32))
    assert last.dense()[0].tolist() == [0] * (n_levels - 1) + [1]


def test_a_code_beyond_its_levels_is_the_last_one():
    wild = CodedRows(LAYOUT, np.full((1, 3), 255, np.uint8), NUMBERS[:1])
    assert wild.places().max() < LAYOUT.n_features
    np.testing.assert_array_equal(wild.dense()[0, :5], [0, 0, 1, 0, 1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Layout(5, [0, 4], [3, 2], [False, False], []),
        lambda: Layout(5, [0], [3], [False], [5]),
        lambda: Layout(5, [-1], [3], [False], []),
        lambda: CodedRows(LAYOUT, CODES[:, :2], NUMBERS),
        lambda: CodedRows(LAYOUT, CODES, NUMBERS[:2]),
        lambda: CodedRows(LAYOUT, CODES.astype(np.int64), NUMBERS),
        lambda: CodedRows(LAYOUT, CODES, NUMBERS.astype(np.float64)),
    ],
)
def test_what_does_not_fit_the_layout_is_refused(make):
    with pytest.raises(BadStructureError):
        make()


def test_no_print_shows_rows():
    assert "0.25" not in repr(coded()) and "255" not in repr(coded())


def test_a_schema_says_where_codes_and_numbers_stand():
    schema = Schema(
        target={"column": "y", "classes": ["no", "yes"]},
        columns={
            "a": Number(bounds=(0, 10), bins=4, encode="both"),
            "b": Category(categories=("x", "z")),
            "c": Number(bounds=(-1, 1), encode="scale"),
        },
    )
    encoder = Encoder(schema)
    import pandas as pd

    frame = pd.DataFrame({"a": [1, 9.5, None, 50], "b": ["x", "q", None, "z"], "c": [0.5, None, -3, 0]})
    rows = encoder.features(frame)
    assert isinstance(rows, CodedRows) and rows.codes.dtype == np.uint8 and rows.codes.shape == (4, 3)
    written = dict(zip(encoder.feature_levels, rows.dense().T.tolist(), strict=True))
    assert written["a in [0, 2.5)"] == [1, 0, 0, 0] and written["a=missing"] == [0, 0, 1, 0]
    assert written["a scaled"] == [pytest.approx(-0.8), pytest.approx(0.9), 0, 1]
    assert written["c scaled"] == [0.5, 0, -1, 0] and written["c=missing"] == [0, 1, 0, 0]
    assert encoder.row_bytes == 3 + 4 * 2


def test_a_table_of_scaled_numbers_stays_dense():
    encoder = Encoder(Schema.for_arrays(3, classes=["0", "1"]))
    rows = encoder.features(np.zeros((2, 3)))
    assert isinstance(rows, np.ndarray) and rows.shape == (2, 6) and encoder.row_bytes == 24


def test_a_row_of_adult_is_a_byte_for_each_column():
    people = load_dataset("adult")
    encoder = Encoder(people.schema)
    rows = encoder.features(people.X)
    assert rows.codes.itemsize * rows.codes.shape[1] == encoder.row_bytes == len(people.schema.columns)
    assert encoder.n_features > 7 * encoder.row_bytes
