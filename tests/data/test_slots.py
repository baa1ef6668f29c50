"""Finer bins are parts of the schema's, and pairs of columns have the one feature that its name says."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairveil.data.coded import CodedRows, Detail
from fairveil.data.datasets import dataset_schema
from fairveil.data.encoding import Encoder
from fairveil.data.schema import MAX_LEVELS, Category, Number, Schema, Target
from fairveil.data.slots import finer_edges
from fairveil.errors import BadStructureError, InvalidParameterError
from fairveil.models import products

KERNELS = pytest.mark.skipif(not products.HAS_KERNELS, reason="no compiler was there when fairveil was installed")
BUNDLED = (
    "abalone", "acs_income", "acs_person_2018", "adult", "bank", "compas", "credit_default", "heart", "law_school",
    "parkinsons",
)  # fmt: skip
DETAILS = [Detail(1), Detail(8), Detail(1, 5), Detail(8, 5), Detail(3, 2)]


def schema_of(**columns):
    return Schema(target=Target(column="y", classes=("no", "yes")), columns=columns, n_public=100)


MIXED = schema_of(
    **{
        "age": Number(bounds=(0, 10), cuts=(2, 5)),
        "score": Number(bounds=(-3, 3), encode="scale"),
        "both, really": Number(bounds=(-3, 3), bins=7, encode="both"),
        "town": Category(categories=("a", "b", "c")),
        "job": Category(categories=("x", "y")),
    }
)


def mixed_table(rng, n=60):
    return pd.DataFrame(
        {
            "age": rng.choice([-5, 0, 0.1, 1.99, 2, 4.9, 5, 7, 10, 99, np.nan, np.inf, -np.inf], n),
            "score": rng.choice([-9, -1.5, 0, 2, np.nan], n),
            "both, really": rng.uniform(-4, 4, n),
            "town": rng.choice(np.array(["a", "b", "c", "d", None], dtype=object), n),
            "job": rng.choice(np.array(["x", "y", "z", None], dtype=object), n),
        }
    )


# --- finer bins -------------------------------------------------------------------------------------------------------


@st.composite
def number_columns(draw):
    size = draw(st.sampled_from([1e-300, 1e-3, 1.0, 1e6, 1e300]))
    ends = draw(st.lists(st.floats(-1, 1), min_size=2, max_size=7, unique=True))
    low, *cuts, high = sorted(size * end for end in ends)
    if not all(np.diff([low, *cuts, high]) > 0):
        low, cuts, high = 0.0, [], 1.0
    return Number(bounds=(low, high), cuts=tuple(cuts))


@given(column=number_columns(), resolution=st.integers(1, 64))
def test_finer_edges_contain_the_coarse_ones(column, resolution):
    edges = finer_edges(column, resolution)
    assert set(column.edges) <= set(edges)
    ends = np.array([column.bounds[0], *edges, column.bounds[1]])
    assert (np.diff(ends) > 0).all()
    assert edges == column.edges or len(edges) == resolution * (len(column.edges) + 1) - 1


@given(column=number_columns(), resolution=st.integers(2, 64), data=st.data())
def test_a_cell_falls_into_a_part_of_its_coarse_bin(column, resolution, data):
    """Missing, out of bounds, infinite, or on an edge: the fine bin is a child of the bin of the schema."""
    coarse = Encoder(schema_of(c=column))
    fine = Encoder(schema_of(c=column), Detail(resolution))
    on_edge = st.sampled_from([*column.bounds, *fine.slots[0].edges])
    cells = data.draw(st.lists(st.one_of(st.floats(), st.floats(*column.bounds), on_edge), min_size=1, max_size=20))
    table = pd.DataFrame({"c": np.array([*cells, np.nan])})
    own, parts = coarse.codes(table)[:, 0].astype(int), fine.codes(table)[:, 0].astype(int)
    children, parents = fine.levels.children, fine.levels.parents
    if not children:
        assert np.array_equal(own, parts)
        return
    assert children == tuple(range(len(fine.slots[0].levels) - 1))
    assert list(parents) == sorted(parents) and set(parents) == set(range(len(column.edges) + 1))
    missing = np.isnan(table["c"].to_numpy())
    assert (parts[missing] == len(children)).all() and (own[missing] == len(column.edges) + 1).all()
    assert np.array_equal(np.array(parents)[parts[~missing]], own[~missing])


@pytest.mark.parametrize(
    "column",
    [
        Number(bounds=(1.0, np.nextafter(1.0, 2)), cuts=()),
        Number(bounds=(0.0, 1.0), cuts=(0.5, np.nextafter(0.5, 1))),
        Number(bounds=(0.0, 5e-324), cuts=()),
    ],
    ids=["one step of a float", "one bin of one step", "the smallest number"],
)
def test_bins_that_floats_cannot_divide_stay_whole(column):
    assert finer_edges(column, 8) == column.edges
    levels = Encoder(schema_of(c=column, d=Number(bounds=(0, 1), bins=2)), Detail(8)).levels
    assert len(levels.children) == 16 and levels.n_parents == 2


def test_bins_that_would_not_fit_into_codes_stay_whole():
    column = Number(bounds=(0, 1), bins=MAX_LEVELS // 8)
    assert finer_edges(column, 8) == column.edges
    assert len(finer_edges(column, 7)) == 7 * (MAX_LEVELS // 8) - 1


@pytest.mark.parametrize("n_bins, kind", [(31, np.uint8), (32, np.uint16)])
def test_fine_codes_take_two_bytes_where_they_must(n_bins, kind, rng):
    encoder = Encoder(schema_of(c=Number(bounds=(0, 1), bins=n_bins), d=Category(categories=("a", "b"))), Detail(8, 5))
    assert encoder.layout.code_type is kind
    table = pd.DataFrame({"c": np.append(rng.uniform(-0.2, 1.2, 300), np.nan), "d": rng.choice(["a", "b"], 301)})
    codes = encoder.codes(table)
    assert codes.dtype == kind and codes[-1, 0] == 8 * n_bins and codes.max() == 8 * n_bins
    ends = [0, *encoder.slots[0].edges]
    clipped = np.clip(table["c"].to_numpy()[:-1], 0, np.nextafter(1, 0))
    assert np.array_equal(codes[:-1, 0], np.searchsorted(ends, clipped, side="right") - 1)
    assert_pairs_are_as_named(encoder, encoder.features(table))


# --- pairs of columns -------------------------------------------------------------------------------------------------


def holds(name, value):
    """Whether a level of a pair, by its name alone, holds the level of a column, by its name."""
    if not name.endswith(", ...)"):
        return name == value
    column, start = name.removesuffix(", ...)").rsplit(" in [", 1)
    return value.startswith(f"{column} in [") and float(value.rsplit("[", 1)[1].split(",")[0]) >= float(start)


def expected_pairs(encoder, row):
    """Return the names of the pairs that a dense row has, worked out from the names of its columns' levels."""
    names, first = np.array(encoder.feature_levels), encoder.levels.first_pair
    own = [str(name) for name in names[:first][row[:first] == 1] if not name.endswith(" scaled")]
    found = []
    sides = [str(name).split(" and ") for name in names[first:]]
    columns = list(dict.fromkeys(re.split(r" in \[|=", side)[0] for pair in sides for side in pair))
    best = {}
    for column in columns:
        (value,) = (one for one in own if re.split(r" in \[|=", one)[0] == column)
        fitting = {side for pair in sides for side in pair if re.split(r" in \[|=", side)[0] == column}
        fitting = [side for side in fitting if holds(side, value)]
        # of merged bins, each named by where it starts, the last one that starts no later
        best[column] = max(fitting, key=lambda side: float(side.rsplit("[", 1)[1].split(",")[0]) if "[" in side else 0)
    for place, one in enumerate(columns):
        found += [f"{best[one]} and {best[other]}" for other in columns[place + 1 :]]
    return sorted(found)


def assert_pairs_are_as_named(encoder, rows):
    first, n_columns = encoder.levels.first_pair, sum(slot.is_whole for slot in encoder.slots)
    dense = rows.dense()
    assert set(np.unique(dense[:, first:])) <= {0.0, 1.0}
    names = np.array(encoder.feature_levels[first:])
    assert len(names) == len(set(names))
    for row in dense[:20]:
        own = sorted(names[row[first:] == 1])
        assert own == expected_pairs(encoder, row)
        assert len(own) == n_columns * (n_columns - 1) // 2


@pytest.mark.parametrize("detail", [Detail(1, 2), Detail(8, 5), Detail(4, 3), Detail(3, 64)], ids=str)
def test_a_row_has_the_one_level_of_each_pair_that_its_name_says(detail, rng):
    encoder = Encoder(MIXED, detail)
    assert_pairs_are_as_named(encoder, encoder.features(mixed_table(rng)))


def test_merged_bins_are_runs_of_the_schema_bins_of_about_equal_length():
    encoder = Encoder(schema_of(c=Number(bounds=(0, 12), bins=12), d=Category(categories=("a",))), Detail(2, 5))
    merged = encoder.layout.pairs.merged[: 12 * 2].reshape(12, 2)
    assert (merged[:, 0] == merged[:, 1]).all()  # the parts of one bin stay together
    _, sizes = np.unique(merged[:, 0], return_counts=True)
    assert (np.diff(merged[:, 0]) >= 0).all() and sizes.tolist() == [3, 2, 3, 2, 2]


@KERNELS
@pytest.mark.parametrize("detail", DETAILS, ids=str)
@pytest.mark.parametrize("has_group", [False, True])
def test_compiled_places_are_those_of_numpy(detail, has_group, rng, monkeypatch):
    """Found by a weight of its own for every feature, and by counts; with a group number appended as well."""
    encoder = Encoder(MIXED, detail)
    rows = encoder.features(mixed_table(rng))
    if has_group:
        rows = rows.with_number(rng.integers(-1, 2, len(rows)))
        assert rows.layout.pairs is encoder.layout.pairs and rows.layout.n_places == encoder.layout.n_places
        assert np.array_equal(rows.dense()[:, :-1], rows.without_last_number().dense())
    dense = rows.dense()
    assert np.array_equal(np.sort(rows.places(), axis=1), np.sort(places_in(dense, rows), axis=1))
    weights = rng.normal(size=(2, rows.shape[1]))
    np.testing.assert_allclose(products.class_products(weights, None, rows), weights @ dense.T, atol=1e-9)
    compiled = products.level_counts(rows)
    monkeypatch.setattr(products, "HAS_KERNELS", False)
    assert np.array_equal(products.level_counts(rows), compiled)
    numbers = rows.layout.scaled
    assert np.array_equal(np.delete(compiled, numbers), np.delete(dense, numbers, axis=1).sum(axis=0))


def places_in(dense, rows):
    """Where dense rows hold a 1 that is a level; one past the end for each column whose number is present."""
    n = rows.layout.n_features
    levels = np.ones(n, dtype=bool)
    levels[rows.layout.scaled] = False
    found = [np.flatnonzero((row == 1) & levels) for row in dense]
    return np.array([np.append(own, [n] * (rows.layout.n_places - len(own))) for own in found])


def test_codes_beyond_their_levels_stay_within_the_pairs(rng):
    encoder = Encoder(MIXED, Detail(8, 5))
    wild = CodedRows(encoder.layout, np.full((5, 5), 255, np.uint8), np.zeros((5, 2), np.float32))
    assert wild.places().max() < encoder.n_features
    assert np.array_equal(wild.dense()[:, encoder.levels.first_pair :].sum(axis=1), np.full(5, 6))
    assert products.level_counts(wild).sum() == 5 * (5 + 6)


def test_columns_that_are_only_scaled_have_no_pairs():
    encoder = Encoder(schema_of(a=Number(bounds=(0, 1), encode="scale"), b=Category(categories=("x",))), Detail(1, 5))
    assert encoder.layout.pairs is None and encoder.n_features == encoder.levels.first_pair == 5


# --- how many there would be ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("detail", [*DETAILS, Detail(64, 64)], ids=str)
@pytest.mark.parametrize("name", BUNDLED)
def test_the_stated_number_of_features_is_that_of_an_encoder(name, detail):
    schema = dataset_schema(name)
    encoder = Encoder(schema, detail)
    assert Encoder(schema).levels.n_at(detail) == encoder.n_features == len(encoder.feature_levels)
    assert encoder.levels.n_coarse == Encoder(schema, Detail(1, detail.pair_bins)).n_features


def test_what_cannot_be_divided_is_counted_as_if_it_were():
    """The number may be too high, never too low: it decides whether there are people enough."""
    schema = schema_of(c=Number(bounds=(1.0, np.nextafter(1.0, 2)), cuts=()), d=Category(categories=("a",)))
    assert Encoder(schema).levels.n_at(Detail(8)) > Encoder(schema, Detail(8)).n_features


def test_pairs_of_too_many_levels_are_refused_in_one_sentence():
    many = [Category(categories=tuple(map(str, range(2000)))) for _ in range(3)]
    schema = schema_of(**{f"c{place}": column for place, column in enumerate(many)})
    with pytest.raises(BadStructureError, match="at most 1,048,576 encoded features in all, got 12,0"):
        Encoder(schema, Detail(1, 5))
    bins = schema_of(**{f"c{place}": Number(bounds=(0, 1), bins=1000) for place in range(20)})
    with pytest.raises(BadStructureError, match="at most 1,048,576 encoded features"):
        Encoder(bins, Detail(64))


@pytest.mark.parametrize("value", [0, -1, 65, 10**300, 2.5, math.inf, math.nan, "8", None, True, [8]])
def test_a_detail_is_a_small_whole_number(value):
    for facts in ({"resolution": value}, {"pair_bins": value}):
        if facts == {"pair_bins": 0}:
            continue
        with pytest.raises(InvalidParameterError, match="Expected"):
            Detail(**facts)


@settings(max_examples=5)
@given(resolution=st.sampled_from([1.0, 8.0, 64.0]))
def test_whole_decimals_are_whole_numbers(resolution):
    assert type(Detail(resolution).resolution) is int
    assert Encoder(MIXED, Detail(resolution)).n_features == Encoder(MIXED, Detail(int(resolution))).n_features
