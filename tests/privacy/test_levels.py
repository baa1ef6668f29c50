"""Counts of levels: exact without noise, bounded for whatever rows, refused beyond the bound, with noise of their law.

The noise of a release at scale z on rows of k columns and pairs is normal with standard deviation 1.01 z sqrt(k). Of
20,000 numbers, Kolmogorov and Smirnov's test at p 1e-6 rejects scales x 2/3 and x 3/2 with certainty for any purpose:
their distance from the right law is 0.08 and more, where 0.019 is enough.
"""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fairveil._random import secret_coins
from fairveil.data.coded import Detail
from fairveil.data.encoding import Encoder
from fairveil.data.schema import Category, Number, Schema, Target
from fairveil.errors import UnplannedReleaseError
from fairveil.models import products
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import LevelCounts
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.veil import ROUNDING, open_veils

N = 500
P = 1e-6
KERNELS = pytest.mark.skipif(not products.HAS_KERNELS, reason="no compiler was there when fairveil was installed")
SCHEMA = Schema(
    target=Target(column="y", classes=("no", "yes")),
    columns={
        "age": Number(bounds=(0, 10), cuts=(2, 5)), "both": Number(bounds=(-3, 3), cuts=(-1, 1), encode="both"),
        "town": Category(categories=("a", "b", "c")), "score": Number(bounds=(0, 1), encode="scale"),
    },
    n_public=1000,
)  # fmt: skip
DETAILS = [Detail(), Detail(4), Detail(4, 2)]


@pytest.fixture(params=[pytest.param(True, marks=KERNELS, id="compiled"), pytest.param(False, id="numpy")])
def compiled(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(products, "HAS_KERNELS", False)


def table(rng, n=N):
    return pd.DataFrame(
        {
            "age": rng.choice([-5, 0, 1.2, 2, 4.9, 7, 10, np.nan, np.inf], n), "both": rng.uniform(-3.5, 3.5, n),
            "town": rng.choice(np.array(["a", "b", "c", "d", None], dtype=object), n), "score": rng.uniform(size=n),
        }
    )  # fmt: skip


def records_of(X, **others):
    n = len(X)
    return MemoryRecords(X, np.zeros(n, np.int16), np.zeros(n, np.int16), **others)


def veil_of(records, noise, rate=1.0, coins=None, **release):
    facts = {"name": "levels", "law": "gaussian", "noise_multiplier": noise, **release}
    plan = Plan((Stage("levels", (Release(**facts),), 1.0, {-1: rate}, 1),), 1.0 if noise else math.inf, 1e-5)
    return open_veils(records, plan, Ledger(), coins or secret_coins(), "a test")["levels"]


# --- without noise ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("detail", DETAILS, ids=str)
def test_counts_without_noise_are_those_of_pandas(compiled, kept, detail, rng):
    encoder, frame = Encoder(SCHEMA, detail), table(rng)
    levels = encoder.levels
    records = kept(records_of(encoder.features(frame)))
    counts = veil_of(records, 0.0).draw().release_levels(levels.n_places)
    names = np.array(encoder.feature_levels)
    found = {str(name): int(count) for name, count in zip(names, counts, strict=True)}
    town = frame["town"].fillna("missing").replace({"d": "other"}).value_counts()
    assert {name: found[f"town={name}"] for name in ("a", "b", "c", "other", "missing")} == {
        name: int(town.get(name, 0)) for name in ("a", "b", "c", "other", "missing")
    }
    for name in ("age", "both"):
        ends = [-np.inf, *encoder.slots[list(SCHEMA.columns).index(name)].edges, np.inf]
        numbers = frame[name].replace({np.inf: 1e9})
        bins = pd.cut(numbers, ends, right=False).value_counts(sort=False).tolist()
        own = [count for one, count in found.items() if one.startswith(f"{name} in ") and " and " not in one]
        assert own == bins and found[f"{name}=missing"] == int(frame[name].isna().sum())
    if detail.pair_bins:
        pairs = pd.crosstab(frame["age"].isna(), frame["town"].fillna("missing"))
        assert [found[f"age=missing and town={one}"] for one in "abc"] == pairs.loc[True, list("abc")].tolist()
    whole, pairs = list(levels.whole), counts[levels.first_pair :]
    assert counts[whole].sum() == 3 * N and pairs.sum() == (3 * N if detail.pair_bins else 0)
    assert not counts[[one for one, name in enumerate(names) if name.endswith("both scaled")]].any()


@pytest.mark.parametrize("detail", DETAILS, ids=str)
def test_one_record_moves_the_counts_by_its_bound_at_most(compiled, detail, rng):
    X = Encoder(SCHEMA, detail).features(table(rng, 40))
    n_places = X.layout.n_places
    for row in range(0, 40, 3):
        alone = records_of(X[row : row + 1]).answer(np.arange(1), LevelCounts(), math.sqrt(n_places))
        everyone = records_of(X).answer(np.arange(40), LevelCounts(), math.sqrt(n_places))
        rest = np.delete(np.arange(40), row)
        others = records_of(X).answer(rest, LevelCounts(), math.sqrt(n_places))
        assert np.array_equal(everyone - others, alone)
        assert np.linalg.norm(alone) <= math.sqrt(n_places)
        assert set(np.unique(alone)) <= {0, 1}


def test_a_dense_row_of_any_size_moves_the_sum_by_the_bound_at_most(kept, worst_rows, rng):
    """Values of every size, NaN and infinity: clipped, or left out, without a trace in what others add."""
    X = worst_rows(4)
    records = kept(records_of(X))
    for bound in (1e-3, 1.0, math.sqrt(7)):
        everyone = records.answer(np.arange(len(X)), LevelCounts(), bound)
        assert np.isfinite(everyone).all()
        for row in range(len(X)):
            alone = records.answer(np.arange(row, row + 1), LevelCounts(), bound)
            assert np.linalg.norm(alone) <= bound * (1 + 1e-6)
            assert np.isfinite(alone).all() and (alone.any() or not np.isfinite(records.norms[row]))
            others = records.answer(np.delete(np.arange(len(X)), row), LevelCounts(), bound)
            assert np.linalg.norm(everyone - others) <= bound * (1 + 1e-6)


def test_many_dense_rows_are_added_up_in_double_precision():
    """Two thousand rows on one side in front: a sum in single precision would lose what the last row adds."""
    X = np.full((2048, 1), 1.0, np.float32)
    X[-1] = 2e-5
    records = records_of(X)
    sums = [records.answer(np.arange(n), LevelCounts(), 1.0)[0] for n in (2047, 2048)]
    assert sums[1] - sums[0] == pytest.approx(2e-5, rel=1e-6)


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("detail", DETAILS, ids=str)
def test_a_bound_below_the_number_of_columns_and_pairs_is_refused(compiled, detail, rng):
    X = Encoder(SCHEMA, detail).features(table(rng))
    n_places = X.layout.n_places
    for n_stated in {1, 3, n_places - 1} - {n_places}:
        with pytest.raises(UnplannedReleaseError, match="no more columns and pairs than the bound allows"):
            veil_of(records_of(X), 1.0).draw().release_levels(n_stated)
    assert len(veil_of(records_of(X), 1.0).draw().release_levels(n_places)) == X.shape[1]
    assert len(veil_of(records_of(X), 1.0).draw().release_levels(n_places + 5)) == X.shape[1]


def test_counts_that_the_plan_does_not_list_are_refused(rng):
    X = Encoder(SCHEMA).features(table(rng))
    with pytest.raises(UnplannedReleaseError, match="one of the planned releases"):
        veil_of(records_of(X), 1.0, name="gradient").draw().release_levels(4)
    batch = veil_of(records_of(X), 1.0).draw()
    batch.release_levels(4)
    with pytest.raises(UnplannedReleaseError, match="one of the planned releases"):
        batch.release_levels(4)


@pytest.mark.parametrize("law", ["laplace", "discrete_laplace", "discrete_gaussian"])
def test_noise_for_another_norm_is_refused(law, rng):
    X = Encoder(SCHEMA).features(table(rng))
    with pytest.raises(UnplannedReleaseError, match="such as gaussian"):
        veil_of(records_of(X), 1.0, law=law).draw().release_levels(4)


# --- noise ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("detail", [Detail(), Detail(8, 3)], ids=str)
def test_the_noise_is_that_of_the_bound(detail, rng, seeded):
    X = Encoder(SCHEMA, detail).features(table(rng, 50))
    n_places, noise, found, coins = X.layout.n_places, 1.7, [], secret_coins()
    exact = records_of(X).answer(np.arange(50), LevelCounts(), math.sqrt(n_places))
    while sum(map(len, found)) < 20_000:
        found.append(veil_of(records_of(X), noise, coins=coins).draw().release_levels(n_places) - exact)
    sample, scale = np.concatenate(found), ROUNDING * noise * math.sqrt(n_places)
    assert stats.kstest(sample, stats.norm(0, scale).cdf).pvalue > P
    for factor in (2 / 3, 3 / 2):
        assert stats.kstest(sample, stats.norm(0, factor * scale).cdf).pvalue < P
    assert abs(np.corrcoef(found[0], found[1])[0, 1]) < 0.99  # fresh noise for every release


# --- persons and places -----------------------------------------------------------------------------------------------


def test_of_each_person_one_row_is_counted(kept, rng):
    """Rows of a person differ, so the counts of one level say which row was taken; every person is in once."""
    persons = np.repeat(np.arange(100), 5)
    X = Encoder(SCHEMA).features(table(rng))
    records = kept(records_of(X, persons=rng.permutation(persons)))
    levels = Encoder(SCHEMA).levels
    seen = []
    for _ in range(20):
        counts = veil_of(records, 0.0).draw().release_levels(levels.n_places)
        assert counts[list(levels.whole)].sum() == 3 * 100
        seen.append(counts)
    assert len(np.unique(seen, axis=0)) > 1


def test_a_sample_is_counted_at_its_rate(rng, seeded):
    """Ten thousand rows at rate 0.2: six standard deviations are 240."""
    X = Encoder(SCHEMA).features(table(rng, 10_000))
    levels = Encoder(SCHEMA).levels
    counts = veil_of(records_of(X), 0.0, rate=0.2).draw().release_levels(levels.n_places)
    assert counts[list(levels.whole)].sum() / 3 == pytest.approx(2000, abs=240)


def test_blocks_and_orders_change_no_count(kept, rng, seeded):
    X = Encoder(SCHEMA, Detail(4, 2)).features(table(rng))
    records = kept(records_of(X))
    bound = math.sqrt(X.layout.n_places)
    expected = records.answer(np.arange(N), LevelCounts(), bound)
    arranged = records.arranged(secret_coins())
    for n_blocks in (1, 4, 9):
        assert np.array_equal(arranged.answer(np.arange(N), LevelCounts(), bound, n_blocks=n_blocks), expected)
    with_group = records_of(X.with_number(rng.integers(-1, 2, N)))
    counts = with_group.answer(np.arange(N), LevelCounts(), bound)
    assert np.array_equal(counts[:-1], expected) and counts[-1] == 0
    again = replace(records, rows=np.arange(0, N, 2)).answer(np.arange(N // 2), LevelCounts(), bound)
    assert np.array_equal(again, records_of(X[::2]).answer(np.arange(N // 2), LevelCounts(), bound))
