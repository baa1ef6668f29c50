"""A shard without Ray: who is in it, what it answers, and that it can be made again."""

import numpy as np
import pytest
from scipy import stats

from fairveil.models import Perceptron
from fairveil.privacy.queries import Count, CrossEntropy, Decision, GradientSum, one_cell
from fairveil.privacy.records import MemoryRecords
from fairveil.scale import shards
from fairveil.scale.shards import HashedPart, Message, Shard, ShardKey, parts_of, shard_numbers

from .conftest import NETWORK, SECRET, local_records, queries, table

KINDS = ("counts", "sums", "gradient", "by group", "network", "moments")
EVERYONE = {-1: 1.0}


def key(name: str) -> ShardKey:
    return ShardKey(name.encode().ljust(16)[:16], False)


def started(part) -> Shard:
    shard = Shard(part)
    shard.start()
    return shard


def pickled(query, bound=1.0, norm=2, n_blocks=1, keeps=False) -> bytes:
    return shards.pickle.dumps(Message(query, bound, norm, n_blocks, keeps))


# --- who is in a shard ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_persons", [None, 40])
def test_every_row_is_in_one_shard(rng, n_persons):
    records = table(rng, 500, n_persons)
    parts = list(parts_of(records, 3, SECRET))
    assert sorted(np.concatenate([part.rows for part in parts]).tolist()) == list(range(500))


def test_all_rows_of_a_person_are_in_one_shard(rng):
    records = table(rng, 500, 40)
    homes = shard_numbers(records, 4, SECRET)
    assert len(set(homes.tolist())) == 4
    assert all(len(set(homes[records.persons == person].tolist())) == 1 for person in set(records.persons.tolist()))


def test_a_persons_shard_depends_on_no_other_row(rng):
    records = table(rng, 300, 60)
    homes = shard_numbers(records, 4, SECRET)
    fewer = records._of_rows(np.arange(100, 300))
    assert (shard_numbers(fewer, 4, SECRET) == homes[100:]).all()


def test_another_secret_makes_other_shards_of_about_equal_size(rng):
    records = table(rng, 4000)
    one, other = (shard_numbers(records, 2, secret) for secret in (SECRET, bytes(16)))
    assert abs((one == other).mean() - 0.5) < 6 * 0.5 / np.sqrt(4000)
    assert abs(one.mean() - 0.5) < 6 * 0.5 / np.sqrt(4000)


def test_a_worker_that_opens_the_table_keeps_the_same_rows(rng):
    records = table(rng, 200, 30)
    part = HashedPart(lambda: records, 1, 3, SECRET)
    assert part().rows.tolist() == list(parts_of(records, 3, SECRET))[1].rows.tolist()
    assert SECRET.hex() not in repr(part) and str(SECRET) not in repr(part)


# --- what it answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_rows", [0, 50])
def test_an_empty_draw_answers_zero(rng, kind, n_rows):
    """Nobody is in the shard, or nobody was drawn: the other shards must not notice."""
    shard, full = started(table(rng, n_rows)), started(table(rng, 50))
    query, bound, norm = queries(rng)[kind]
    for own, rate in ((shard, 1e-9 if n_rows else 1.0), (full, 1.0)):
        own.arrange(1, (0, ""), key("order"))
        own.open_stream(2, (1, ""), key("stream"), {-1: rate}, 0)
    for n_blocks in (1, 4):
        zero = shard.answer(2, 10 + n_blocks, pickled(query, bound, norm, n_blocks))
        assert zero.shape == full.answer(2, 10 + n_blocks, pickled(query, bound, norm, n_blocks)).shape
        assert not zero.any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_persons", [None, 300])
def test_shards_add_up_to_what_memory_answers(rng, seeded_coins, kind, n_persons):
    records = table(rng, 3000, n_persons)
    query, bound, norm = queries(rng)[kind]
    if n_persons is not None:  # a drawn person is represented by one row, which other coins select
        _, first = np.unique(records.persons, return_index=True)
        records = records._of_rows(np.sort(first))
    on_workers = local_records(records, 3).arranged(seeded_coins)
    sums = on_workers.answer(next(on_workers.draw(EVERYONE, seeded_coins)), query, bound, norm, 6)
    arranged = records.arranged(seeded_coins)
    expected = arranged.answer(next(arranged.draw(EVERYONE, seeded_coins)), query, bound, norm, 6)
    tolerance = 1e-6 if kind == "network" else 1e-9  # hidden layers are multiplied in single precision
    np.testing.assert_allclose(sums, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


def test_drawn_rows_are_those_that_are_summed(rng, seeded_coins):
    """With the same coins, what memory answers about the drawn rows is what all shards add up to."""
    records = table(rng, 3000)
    on_workers = local_records(records, 3).arranged(seeded_coins)
    batch = next(on_workers.draw({-1: 0.1}, seeded_coins))
    query, bound, norm = queries(rng)["gradient"]
    sums = on_workers.answer(batch, query, bound, norm, 3)
    drawn = [actor.shard._drawn[batch.number] for actor in on_workers._workers.actors]
    own = [one.records.rows_at(one.places) for one in drawn]
    parts = [part.rows[rows] for part, rows in zip(parts_of(records, 3, SECRET), own, strict=True)]
    expected = records.answer(np.concatenate(parts).astype(np.int64), query, bound, norm)
    assert min(map(len, parts)) > 50
    np.testing.assert_allclose(sums, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_a_poisoned_row_adds_nothing_and_stops_nothing(rng):
    X = rng.normal(size=(60, 4)).astype(np.float32)
    y, groups = rng.integers(0, 2, 60).astype(np.int16), np.zeros(60, np.int16)
    clean = MemoryRecords(X[:40], y[:40], groups[:40])
    X[40:] = np.resize([np.nan, np.inf, -np.inf], (20, 4))
    model = Perceptron(4, (3,), 2)
    query = GradientSum(model, rng.normal(size=model.n_params).astype(np.float32), CrossEntropy())
    answers = []
    for records in (clean, MemoryRecords(X, y, groups)):
        shard = started(records)
        shard.open_stream(1, (0, ""), key("stream"), EVERYONE, 0)
        answers.append(shard.answer(1, 2, pickled(query, 0.5)))
    np.testing.assert_allclose(answers[1], answers[0], atol=1e-6)


# --- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_batches_of_shards_are_independent_poisson_samples(rng):
    """Every unit at the public rate, and no two shards together: the law of one draw from all units.

    800 draws of 2 x 200 units at rate .3. At 1e-6, a rate wrong by 3 % or shared coins are rejected surely.
    """
    n_units, n_draws, rate = 200, 800, 0.3
    pair = [started(table(rng, n_units)) for _ in range(2)]
    hits = np.zeros((2, n_draws, n_units), dtype=bool)
    for place, shard in enumerate(pair):
        shard.open_stream(1, (0, ""), key(f"shard {place}"), {-1: rate}, 0)
        for step in range(n_draws):
            shard.draw(1, 10 + step)
            hits[place, step, shard._drawn.pop(10 + step).places] = True
    n_hits = int(hits.sum())
    assert stats.binomtest(n_hits, hits.size, rate).pvalue > 1e-6
    assert stats.binomtest(n_hits, hits.size, 1.03 * rate).pvalue < 1e-6
    variances = hits.sum(axis=1).var(axis=1) / (n_draws * rate * (1 - rate))  # over units of a shard
    assert (np.abs(variances - 1) < 6 * np.sqrt(2 / n_units)).all()
    together = int((hits[0] & hits[1]).sum())
    assert stats.binomtest(together, hits[0].size, rate**2).pvalue > 1e-6


def test_shards_with_one_seed_would_draw_the_same_units(rng):
    """The fault that the test above would find."""
    pair = [started(table(rng, 200)) for _ in range(2)]
    for shard in pair:
        shard.open_stream(1, (0, ""), key("shared"), {-1: 0.3}, 0)
        shard.draw(1, 2)
    assert (pair[0]._drawn[2].places == pair[1]._drawn[2].places).all()


def test_coins_of_a_stream_are_secret_unless_the_driver_sends_a_key(rng, seeded):
    shard = started(table(rng, 20))
    assert shard.open_stream(1, (0, ""), key("sent"), EVERYONE, 0) is False
    assert shard.open_stream(2, (0, ""), None, EVERYONE, 0) is False  # a worker that is seeded says so


def test_a_batch_is_drawn_once_whoever_requests_it(rng):
    shard = started(table(rng, 200))
    shard.open_stream(1, (0, ""), key("stream"), {-1: 0.5}, 0)
    shard.draw(1, 7)
    first = shard._drawn[7].places
    shard.draw(1, 7)
    shard.answer(1, 7, pickled(Count(one_cell(2), 1)))
    assert shard._drawn[7].places is first


def test_what_is_gone_is_forgotten(rng):
    shard = started(table(rng, 50))
    shard.split(1, (0, ""), key("split"), {"a": 0.5, "b": 0.5})
    shard.arrange(2, (1, "a"), key("order"))
    shard.open_stream(3, (2, ""), key("stream"), EVERYONE, 0)
    shard.draw(3, 4)
    shard.draw(3, 5, (1, 4))
    assert (set(shard._records), set(shard._streams), set(shard._drawn)) == ({0, 2}, {3}, {5})


# --- made again -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_persons", [None, 60])
def test_a_shard_made_again_has_the_same_subsets_order_and_uniforms(rng, n_persons):
    """A person who moved from training to the hold-out would meet the budgets of both."""
    records = table(rng, 400, n_persons)
    made = []
    for attempt in range(2):
        shard = started(records)
        shard.split(1, (0, ""), key("split"), {"train": 0.7, "holdout": 0.3})
        shard.arrange(2, (1, "train"), key("order"))
        shard.open_stream(3, (2, ""), key("stream"), {-1: 0.5}, attempt)
        shard.draw(3, 4)
        train = shard._records[2][""]
        facts = (shard._records[1]["holdout"].rows, train.rows, train.keys, train.uniforms)
        made.append(([fact.tolist() for fact in facts], shard._drawn[4].places.tolist()))
    (first, drawn), (again, drawn_again) = made
    assert first == again
    assert drawn != drawn_again  # the coins of batches are fresh


# --- several releases of one batch ------------------------------------------------------------------------------------


def pair_of_queries(rng):
    params = rng.normal(size=NETWORK.n_params).astype(np.float32)
    return Count(one_cell(2), 1, Decision(NETWORK, params)), GradientSum(NETWORK, params, CrossEntropy())


@pytest.mark.parametrize(("kept_rows", "n_passes"), [(10**6, 1), (150, 2), (0, 2)])
def test_a_kept_batch_is_computed_once_up_to_a_constant(rng, monkeypatch, kept_rows, n_passes):
    """Beyond the constant it is computed anew, so that a large batch takes no more memory; the sums are the same."""
    monkeypatch.setattr(shards, "KEPT_ROWS", kept_rows)
    seen, forward = [], Perceptron.forward
    monkeypatch.setattr(Perceptron, "forward", lambda self, p, X: seen.append(len(X)) or forward(self, p, X))
    pair, records = pair_of_queries(rng), table(rng, 400)
    answers = {}
    for keeps in (True, False):
        shard = started(records)
        shard.arrange(1, (0, ""), key("order"))
        shard.open_stream(2, (1, ""), key("stream"), {-1: 0.9}, 0)
        seen.clear()
        answers[keeps] = [shard.answer(2, 3, pickled(query, 0.5, 2, 8, keeps)) for query in pair]
        n_rows = len(shard._drawn[3].places)
        if keeps:
            n_kept = sum(len(block) for block in shard._drawn[3]._blocks if block._forward is not None)
            assert n_kept <= kept_rows
            assert sum(seen) == n_rows if n_passes == 1 else n_rows < sum(seen) <= 2 * n_rows
        else:
            assert sum(seen) == 2 * n_rows
            assert all(block._forward is None for block in shard._drawn[3]._blocks)
    for one, other in zip(answers[True], answers[False], strict=True):
        assert (one == other).all()


def test_other_parameters_are_not_mistaken_for_kept_ones(rng):
    (count, gradient), (_, other) = pair_of_queries(rng), pair_of_queries(rng)
    shard = started(table(rng, 100))
    shard.open_stream(1, (0, ""), key("stream"), EVERYONE, 0)
    shard.answer(1, 2, pickled(count, 1.0, 1, 1, True))
    for query in (gradient, other):
        fresh = started(shard._part)
        fresh.open_stream(1, (0, ""), key("stream"), EVERYONE, 0)
        kept, expected = (own.answer(1, 2, pickled(query, 0.5, 2, 1, own is shard)) for own in (shard, fresh))
        assert (kept == expected).all()
