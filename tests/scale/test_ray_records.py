"""The driver's part, with workers of one process: who is started again, what is drawn anew, and when a run stops."""

import sys
from itertools import count

import numpy as np
import pytest
from scipy import stats

from _support.local_ray import LocalRay, RayActorError
from fairveil._random import secret_coins
from fairveil.accounting.events import NonPrivateRelease
from fairveil.errors import InvalidParameterError, MissingPackageError, UnplannedReleaseError, WorkerLostError
from fairveil.methods.dp_sgd import CLIPPING, Descent
from fairveil.methods.output_perturbation import OutputPerturbation
from fairveil.privacy.attribute import AttributeRecords, attribute_unit
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.output_perturbation import RidgeSoftmax
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import PARTS, Count, CrossEntropy, Minimizer, Query, one_cell, row_function
from fairveil.privacy.veil import open_veils
from fairveil.scale import ray_records as engine
from fairveil.scale import shards
from fairveil.scale.ray_records import MOST_RESTARTS, check_plan, ray_records, workers_for
from fairveil.training.run import make_plan, run_plan

from .conftest import MODEL, local_records, queries, table, task_for

SIZE = Count(one_cell(2), 1)
TWO = (Release("counts", "gaussian", 1.0), Release("gradient", "gaussian", 1.0))


def veil_of(records, releases=TWO, rate=0.5, n_steps=50, coins=None, ledger=None):
    plan = Plan((Stage("train", releases, 1.0, {-1: rate}, n_steps),), 1.0, 1e-5)
    return open_veils(records, plan, ledger or Ledger(), coins or secret_coins(), "a test")["train"]


def gradient_of(batch):
    return batch.release_gradient(MODEL, np.zeros(MODEL.n_params, np.float32), CrossEntropy(), 1.0)


def kill(records, shard=0):
    records._workers.actors[shard].is_lost = True


@pytest.fixture
def local():
    return LocalRay()


@pytest.fixture
def records(rng, local):
    return local_records(table(rng, 300), 3, local)


# --- what is started again, and when a run stops ----------------------------------------------------------------------


def test_ray_itself_repeats_nothing(records, local):
    assert local.options["max_restarts"] == local.options["max_task_retries"] == 0


def test_a_worker_lost_before_any_release_repeats_the_whole_draw(records, local):
    ledger = Ledger()
    veil = veil_of(records, ledger=ledger)
    gradient_of(veil.draw())
    kill(records)
    batch = veil.draw()
    old = batch._drawn.number
    local.calls.clear()
    gradient_of(batch)
    assert batch._drawn.number != old
    drawn = [call[2] for call in local.calls if call[0] == "draw"]
    assert drawn.count(batch._drawn.number) == 3  # by every shard, not only by the lost one
    assert all(old not in actor.shard._drawn for actor in records._workers.actors)
    assert len(ledger.entries) == 1


def test_a_worker_lost_between_two_releases_stops_the_run(records):
    """What it drew is gone: a second batch would be a further release, which nobody paid for."""
    ledger = Ledger()
    batch = veil_of(records, ledger=ledger).draw()
    batch.release_counts(SIZE)
    kill(records, 2)
    with pytest.raises(WorkerLostError, match=r"between two of them.*stays on the ledger"):
        gradient_of(batch)
    assert len(ledger.entries) == 1
    assert records._workers.generation == 0


def test_a_half_released_batch_stops_also_after_another_was_drawn_anew(records):
    veil = veil_of(records)
    old, new = veil.draw(), veil.draw()
    old.release_counts(SIZE)
    kill(records)
    new.release_counts(SIZE)  # drawn anew
    with pytest.raises(WorkerLostError, match="between two"):
        gradient_of(old)
    gradient_of(new)


def test_a_worker_lost_while_it_answers_counts_as_lost(records):
    batch = veil_of(records).draw()
    actor = records._workers.actors[1]
    actor.before = lambda name: setattr(actor, "is_lost", name == "answer")
    batch.release_counts(SIZE)
    assert records._workers.generation == 1


@pytest.mark.parametrize("moment", ["split", "arrange", "open_stream", "start"])
def test_a_worker_lost_during_preparation_is_made_again(records, moment):
    actor = records._workers.actors[1]
    actor.before = lambda name: setattr(actor, "is_lost", actor.is_lost or name == moment)
    if moment == "start":
        records._workers._start_again([1])
    stages = (Stage("a", TWO[1:], 0.5, {-1: 0.5}, 2), Stage("b", TWO[1:], 0.5))
    veils = open_veils(records, Plan(stages, 1.0, 1e-5), Ledger(), secret_coins(), "a test")
    for veil in veils.values():
        gradient_of(veil.draw())
    assert records._workers.generation == 1


def test_subsets_stay_the_same_when_a_worker_is_lost(records):
    def held_out():
        parts = [actor.shard._records[1]["holdout"].rows.tolist() for actor in records._workers.actors]
        orders = [actor.shard._records[2][""].rows.tolist() for actor in records._workers.actors]
        return parts, orders

    stages = (Stage("train", TWO[1:], 0.6, {-1: 0.5}, 9), Stage("holdout", TWO[1:], 0.4))
    veils = open_veils(records, Plan(stages, 1.0, 1e-5), Ledger(), secret_coins(), "a test")
    before = held_out()
    for shard in (0, 2):
        kill(records, shard)
        gradient_of(veils["train"].draw())
    assert held_out() == before
    assert all(len(part) for part in before[0])


def test_more_lost_workers_than_the_constant_stop_the_run(records):
    veil, ledger = veil_of(records), Ledger()
    for _ in range(MOST_RESTARTS):
        kill(records)
        gradient_of(veil.draw())
    kill(records)
    with pytest.raises(WorkerLostError, match=f"at most {MOST_RESTARTS} lost workers"):
        gradient_of(veil.draw())
    assert ledger.entries == ()


def test_a_worker_that_dies_of_a_row_ends_the_run(records, local):
    """It is lost whenever it answers: no number of repeats goes on without the row."""
    remote = records._workers._shard.remote

    def fragile(part):
        actor = remote(part)
        actor.before = lambda name: setattr(actor, "is_lost", actor.is_lost or name == "answer")
        return actor

    records._workers._shard.remote = fragile
    veil = veil_of(records)
    kill(records)
    with pytest.raises(WorkerLostError, match="at most"):
        gradient_of(veil.draw())


@pytest.mark.parametrize("problem", [ValueError("age 42"), KeyError(4711), MemoryError("shape (1234, 9)")])
def test_a_worker_that_fails_is_not_repeated_and_quotes_no_value(records, monkeypatch, problem):
    def fails(*arguments):
        raise problem

    veil = veil_of(records)
    monkeypatch.setattr(Count, "total", fails)
    with pytest.raises((WorkerLostError, MemoryError), match="every worker") as caught:
        veil.draw().release_counts(SIZE)
    assert not any(number in str(caught.value) for number in ("42", "4711", "1234"))
    assert caught.value.__suppress_context__
    assert records._workers.generation == 0


def test_errors_of_fairveil_keep_their_sentence(records, monkeypatch):
    def refuses(*arguments):
        raise UnplannedReleaseError("Expected a plain sentence, got one.")

    veil = veil_of(records)
    monkeypatch.setattr(Count, "total", refuses)
    with pytest.raises(UnplannedReleaseError, match="plain sentence"):
        veil.draw().release_counts(SIZE)


def test_nobody_waits_less_for_a_slow_worker(records, local):
    local.timeouts.clear()
    gradient_of(veil_of(records).draw())
    assert set(local.timeouts) == {None}


# --- law --------------------------------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_a_repeated_step_has_the_same_law(rng, seeded_coins, monkeypatch):
    """Batch sizes of steps after a loss: Binomial(120, .3), also given that the step was repeated.

    400 steps, each repeated once; a step that left out the lost shard would have two thirds of the rate.
    """
    n_units, rate, n_steps = 120, 0.3, 400
    monkeypatch.setattr(shards, "threadpool_limits", lambda *limits, **of: None)  # takes most of a start
    records = local_records(table(rng, n_units), 3)
    records._workers._n_restarts = -n_steps
    veil = veil_of(records, (Release("counts", "gaussian", 0.0),), rate, n_steps, seeded_coins)
    sizes = []
    for step in range(n_steps):
        batch = veil.draw()
        kill(records, step % 3)
        sizes.append(int(batch.release_counts(SIZE)[0]))
    assert records._workers.generation == n_steps
    edges = np.array([-1, 29, 31, 33, 35, 37, 39, 41, 43, n_units])
    observed = np.histogram(sizes, edges + 0.5)[0]
    for own_rate, is_right in ((rate, True), (0.9 * rate, False), (rate * 2 / 3, False)):
        expected = n_steps * np.diff(stats.binom(n_units, own_rate).cdf(edges))
        assert (stats.chisquare(observed, expected).pvalue > 1e-6) == is_right


def test_keys_are_of_one_shard_and_batch_coins_are_never_sent(records, local):
    stages = (Stage("a", TWO[1:], 0.5, {-1: 0.5}, 2), Stage("b", TWO[1:], 0.5))
    veils = open_veils(records, Plan(stages, 1.0, 1e-5), Ledger(), secret_coins(), "a test")
    gradient_of(veils["a"].draw())
    keys = [call[3] for call in local.calls if call[0] in {"split", "arrange"}]
    assert len({key.seed for key in keys}) == len(keys) == 9
    assert all(key.is_secret for key in keys)
    assert [call[3] for call in local.calls if call[0] == "open_stream"] == [None] * 3
    assert repr(keys[0]) == "ShardKey(is_secret=True)"  # no log shows one


def test_seeded_coins_reach_the_shards_and_the_ledger(records, local, seeded_coins):
    ledger = Ledger()
    gradient_of(veil_of(records, TWO[1:], coins=seeded_coins, ledger=ledger).draw())
    keys = [call[3] for call in local.calls if call[0] in {"arrange", "open_stream"}]
    assert len({key.seed for key in keys}) == 6
    assert not any(key.is_secret for key in keys)
    (entry,) = ledger.entries
    assert all(isinstance(charge.event, NonPrivateRelease) for charge in entry.charges)


def test_shards_whose_coins_are_not_secret_are_refused(records, seeded):
    """Inside this test every shard is seeded, while the driver's coins claim to be secret."""
    coins = secret_coins()
    coins.is_secret = True
    with pytest.raises(WorkerLostError, match="secret coins"):
        gradient_of(veil_of(records, TWO[1:], coins=coins).draw())


def test_sums_are_added_in_the_order_of_shards(records, monkeypatch):
    tiny = count()
    monkeypatch.setattr(Count, "total", lambda *_: np.array([(1.0, 1e16, -1e16)[next(tiny) % 3]]))
    veil = veil_of(records, (Release("counts", "gaussian", 0.0),))
    assert veil.draw().release_counts(SIZE)[0] == (1.0 + 1e16) - 1e16


def test_divisors_do_not_depend_on_shards(records, local):
    """The driver never learns how many rows a shard holds or drew: no call returns more than sums and public facts."""
    answers, get = [], local.get
    local.get = lambda ref, timeout=None: answers.append(ref) or get(ref, timeout)
    veil = veil_of(records)
    veil.expect(300)
    for _ in range(3):
        gradient_of(veil.draw())
    assert {type(answer) for answer in answers} == {type(None), bool, np.ndarray}
    assert {answer.shape for answer in answers if isinstance(answer, np.ndarray)} == {(MODEL.n_params,)}


def test_each_shard_gets_its_share_of_the_blocks(rng, seeded_coins):
    records = local_records(table(rng, 3000), 3).arranged(seeded_coins)
    batch = next(records.draw({-1: 1.0}, seeded_coins))
    records.answer(batch, *queries(rng)["gradient"], n_blocks=7)
    blocks = [actor.shard._drawn[batch.number]._blocks for actor in records._workers.actors]
    assert [len(own) for own in blocks] == [3, 3, 3]


def test_shards_keep_only_what_the_driver_still_holds(records):
    veil = veil_of(records)
    for _ in range(20):
        gradient_of(veil.draw())
    assert all(len(actor.shard._drawn) <= 4 for actor in records._workers.actors)


# --- whole runs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clipping", CLIPPING)
def test_without_privacy_the_model_is_that_of_memory(rng, clipping, seeded_coins):
    people = table(rng, 1500)
    recipe = Descent(n_steps=8, sampling_rate=1.0, clip_norm=1.0, clipping=clipping)
    task = task_for(people, np.inf)
    plan = make_plan(recipe, task)
    models = [
        run_plan(plan, recipe, task, own, Ledger(), seeded_coins, np.random.default_rng(0)).fit.params
        for own in (people, local_records(people, 3))
    ]
    np.testing.assert_allclose(models[1], models[0], atol=1e-5)


def test_a_lost_worker_leaves_one_debit_and_a_finished_run(rng):
    records = local_records(table(rng, 600), 2)
    recipe, task, ledger = Descent(n_steps=6, sampling_rate=0.3), task_for(records, 1.0), Ledger()

    def killing(steps):
        for step in steps:
            if step == 3:
                kill(records, 1)
            yield step

    plan = make_plan(recipe, task, holdout=0.3)
    trained = run_plan(plan, recipe, task, records, ledger, secret_coins(), np.random.default_rng(0), killing)
    assert np.isfinite(trained.fit.params).all()
    assert records._workers.generation == 1
    assert len(ledger.entries) == 1
    assert ledger.epsilon(1e-5) <= 1.0


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_query_that_is_no_sum_is_refused(records):
    ridge = RidgeSoftmax(MODEL.n_features, 2, 3.0, 0.1, 100.0)
    batch = next(records.draw({-1: 1.0}, secret_coins()))
    with pytest.raises(UnplannedReleaseError, match="releases are sums"):
        records.answer(batch, Minimizer(ridge))


def test_a_query_of_a_user_is_refused(records):
    @row_function
    class Own(Query):
        def total(self, rows, bound, norm):
            return np.zeros(1)

    try:
        with pytest.raises(UnplannedReleaseError, match="query of fairveil itself"):
            records.answer(next(records.draw({-1: 1.0}, secret_coins())), Own())
    finally:
        PARTS.pop(Own)


def test_plans_that_workers_cannot_carry_out_are_refused_before_the_debit(rng):
    people = table(rng, 30)
    recipe, task = OutputPerturbation(), task_for(people, 1.0)
    with pytest.raises(InvalidParameterError, match="releases are sums"):
        check_plan(make_plan(recipe, task))
    hidden = Plan((Stage("train", TWO[1:]),), 1.0, 1e-5, attribute_unit(["sex"], "record"))
    with pytest.raises(InvalidParameterError, match="whole records secret"):
        check_plan(hidden)
    with pytest.raises(InvalidParameterError, match="whole records secret"):
        ray_records(AttributeRecords(people), 2)
    check_plan(make_plan(Descent(), task))


def test_a_missing_package_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'fairveil\[ray\]'"):
        engine.import_ray()


@pytest.mark.parametrize("n_workers", [0, -1, 1.5, "2"])
def test_a_number_of_workers_that_is_none_is_refused(rng, n_workers):
    with pytest.raises(InvalidParameterError, match="n_workers"):
        ray_records(table(rng, 10), n_workers)


def test_records_show_nothing_of_their_rows(records):
    assert repr(records) == "RayRecords(<private>)"


@pytest.mark.parametrize(
    ("batch", "n_cpus", "n_workers"), [(10, 8, 1), (99_000, 2, 1), (100_000, 2, 2), (1e7, 16, 16), (2e5, 1, 1)]
)
def test_workers_are_as_many_as_pay(batch, n_cpus, n_workers):
    number, why = workers_for(batch, n_cpus)
    assert number == n_workers
    assert why.startswith(f"{n_workers} worker") and why.endswith(".")


def test_local_actors_fail_as_those_of_ray(local):
    """The stand-in raises what the driver expects of Ray (test_on_ray.py has the real ones)."""
    with pytest.raises(RayActorError):
        local.get(RayActorError())
