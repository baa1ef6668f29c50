"""The same on Ray itself: processes that are killed, errors that are raised there, sums and models that agree."""

import os
import signal
import sys

import numpy as np
import pytest

from fairveil._random import derived_coins, secret_coins
from fairveil.errors import BadStructureError, InvalidParameterError, WorkerLostError
from fairveil.methods.dp_sgd import Descent
from fairveil.models import Perceptron
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.queries import Count, CrossEntropy, GradientSum, one_cell
from fairveil.privacy.records import MemoryRecords
from fairveil.scale.ray_records import ray_records
from fairveil.training.run import make_plan, run_plan

from .conftest import SECRET, local_records, queries, table, task_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def functions_sent_whole(ray):
    """Workers cannot import this file: functions of it are sent whole."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


def kill_process(ray, actor):
    """End the process of a worker as the kernel does, and wait until Ray knows."""
    os.kill(ray.get(actor.__ray_call__.remote(lambda shard: os.getpid())), signal.SIGKILL)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(actor.__ray_ready__.remote())


def rows_of_subsets(ray, records):
    """Return who was held out, and the order of those who train, in each shard."""

    def facts(shard):
        return [own[name].rows.tolist() for own in list(shard._records.values())[1:] for name in own]

    return ray.get([actor.__ray_call__.remote(facts) for actor in records._workers.actors])


def dies(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)


def fails(*arguments):
    raise ValueError("age 42")


def replace_totals(ray, actor, function):
    """Let one worker do something else than add up gradients."""
    ray.get(actor.__ray_call__.remote(lambda shard: setattr(GradientSum, "total", function)))


def test_sums_and_models_are_those_of_memory(rng, ray, on_ray, seeded_coins):
    people = table(rng, 2000)
    records = on_ray(people)
    # sums of everyone
    for kind, (query, bound, norm) in queries(rng).items():
        batch = next(records.draw({-1: 1.0}, seeded_coins))
        expected = people.answer(np.arange(2000), query, bound, norm)
        tolerance = (1e-6 if kind == "network" else 1e-9) * max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(records.answer(batch, query, bound, norm), expected, atol=tolerance, err_msg=kind)
    # models without privacy
    recipe, task = Descent(n_steps=5, sampling_rate=1.0, clip_norm=1.0), task_for(people, np.inf)
    models = [
        run_plan(make_plan(recipe, task), recipe, task, own, Ledger(), seeded_coins, np.random.default_rng(0)).fit
        for own in (people, records)
    ]
    np.testing.assert_allclose(models[1].params, models[0].params, atol=1e-5)
    # the same coins in one process: the same batch and the same sums
    query, bound, norm = queries(rng)["network"]
    sums = []
    for own in (records, local_records(people, 2)):
        coins = derived_coins(SECRET, "shared", is_secret=False)
        arranged = own.arranged(coins)
        sums.append(arranged.answer(next(arranged.draw({-1: 0.2}, coins)), query, bound, norm, 4))
    np.testing.assert_allclose(sums[0], sums[1], atol=1e-12)


def test_a_poisoned_row_stops_nothing(rng, on_ray):
    X = rng.normal(size=(200, 4)).astype(np.float32)
    X[::10] = np.nan
    people = MemoryRecords(X, rng.integers(0, 2, 200).astype(np.int16), np.zeros(200, np.int16))
    model = Perceptron(4, (3,), 2)
    query = GradientSum(model, rng.normal(size=model.n_params).astype(np.float32), CrossEntropy())
    records = on_ray(people, 1)
    total = records.answer(next(records.draw({-1: 1.0}, secret_coins())), query, 0.5)
    np.testing.assert_allclose(total, people.answer(np.arange(200), query, 0.5), atol=1e-5)
    assert records._workers.generation == 0


def test_a_killed_worker_is_started_again_and_the_run_ends(rng, ray, on_ray, tmp_path):
    """Once between two steps, once while it answers; subsets and the ledger stay as they are."""
    people, ledger = table(rng, 1000), Ledger(tmp_path / "people.ledger.jsonl")
    records, seen = on_ray(people), []
    recipe, task = Descent(n_steps=6, sampling_rate=0.3), task_for(people, 1.0)

    def killing(steps):
        for step in steps:
            if step == 2:
                seen.append(rows_of_subsets(ray, records))
                kill_process(ray, records._workers.actors[1])
            if step == 4:
                replace_totals(ray, records._workers.actors[0], dies)
            yield step
        seen.append(rows_of_subsets(ray, records))

    plan = make_plan(recipe, task, holdout=0.3)
    trained = run_plan(plan, recipe, task, records, ledger, secret_coins(), np.random.default_rng(0), killing)
    assert np.isfinite(trained.fit.params).all() and trained.outcomes is not None
    assert records._workers.generation == 2
    assert seen[0] == seen[1]
    assert len(Ledger(ledger.path).entries) == 1


def test_a_worker_killed_between_two_releases_stops_the_run(rng, ray, on_ray, tmp_path):
    """DPSGD-F counts clipped records first: the second release needs the very batch that is lost."""
    people, ledger = table(rng, 1000), Ledger(tmp_path / "people.ledger.jsonl")
    records = on_ray(people)
    recipe = Descent(n_steps=6, sampling_rate=0.3, clipping="groups")
    task = task_for(people, 1.0)

    def spoiling(steps):
        for step in steps:
            if step == 2:
                replace_totals(ray, records._workers.actors[0], dies)
            yield step

    plan = make_plan(recipe, task)
    with pytest.raises(WorkerLostError, match="between two of them"):
        run_plan(plan, recipe, task, records, ledger, secret_coins(), np.random.default_rng(0), spoiling)
    assert len(Ledger(ledger.path).entries) == 1


def test_an_error_in_a_worker_ends_the_run_without_its_text(rng, ray, on_ray, capfd):
    records, ledger = on_ray(table(rng, 300), 1), Ledger()
    replace_totals(ray, records._workers.actors[0], fails)
    recipe, task = Descent(n_steps=3, sampling_rate=0.3), task_for(records, 1.0)
    with pytest.raises(WorkerLostError, match="error of type ValueError") as caught:
        plan = make_plan(recipe, task)
        run_plan(plan, recipe, task, records, ledger, secret_coins(), np.random.default_rng(0))
    assert "42" not in str(caught.value) + capfd.readouterr().err
    assert len(ledger.entries) == 1
    assert records._workers.generation == 0


def test_workers_open_the_rows_themselves(rng, ray, tmp_path):
    """Each keeps its own rows of a file; where it cannot be opened, the sentence is that of the reader."""
    people = table(rng, 400)
    np.save(tmp_path / "y.npy", people.y)
    path = str(tmp_path / "y.npy")

    def load():
        y = np.load(path, mmap_mode="r")
        return MemoryRecords(np.ones((len(y), 2), np.float32), y, np.zeros(len(y), np.int16))

    def refuse():
        raise BadStructureError("Expected a file, got none.")

    with ray_records(load, 2, secret=SECRET) as records:
        counts = records.answer(next(records.draw({-1: 1.0}, secret_coins())), Count(one_cell(2), 1))
        assert counts.tolist() == [400]
    with pytest.raises(BadStructureError, match="Expected a file"):
        ray_records(refuse, 1)
    with pytest.raises(InvalidParameterError, match="as many workers as processors, 2, got 3"):
        ray_records(people, 3)
