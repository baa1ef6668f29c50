"""Runs of a grid, on the cores of this machine or on Ray, one small file each: an interrupted bench continues.

The driver alone writes OUT/runs/ID.json, which appears whole or not at all; a run that has such a file without an error
is done. Workers hold one table each. A worker that dies takes its run with it, which is tried once more by itself.
"""

import fcntl
import importlib.metadata
import json
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fairveil import __version__
from fairveil._durable import replacing
from fairveil.bench.contenders import LEDGER, Answer, Problem
from fairveil.bench.entrants import contender_named
from fairveil.bench.grid import Run
from fairveil.bench.problems import Table, constraint_of, table_of
from fairveil.errors import BadStructureError, FairveilError
from fairveil.report.formatting import finite
from fairveil.scale.ray_records import connect

RUNS, LOCK = "runs", "bench.lock"
PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "dp-accounting")
"""Whose versions are recorded with each run, beside those of fairveil and Python."""
OPTIONAL = ("fairlearn", "torch", "opacus")
"""The same, where they are installed: rivals may use them."""

ENDED = "The process of this run ended without an answer, twice; there may be too little memory for it"
Result = dict[str, Any]
Rows = NDArray[np.int64]


# --- one run ----------------------------------------------------------------------------------------------------------


def problem_of(run: Run, table: Table, folder: Path) -> tuple[Problem, Rows, Rows]:
    """Return the problem of a run, and the rows of its training and its test."""
    train, test = table.split(run.seed, run.train_share)
    schema = table.public(run.train_share)
    problem = Problem(
        train=table.frame.iloc[train].reset_index(drop=True),
        test=table.frame.iloc[test].reset_index(drop=True),
        schema=schema,
        sensitive=tuple(one.column for one in schema.sensitive),
        constraint=constraint_of(run.constraint, run.tolerance),
        epsilon=math.inf if run.epsilon is None else run.epsilon,
        delta=run.delta,
        aware=run.data.aware,
        seed=run.seed,
        folder=folder,
        options=run.options,
    )
    return problem, train, test


def result_of(run: Run, folder: Path) -> Result:
    """Fit, count and return a run as JSON knows it; a run that fails says why in a sentence."""
    found: Result = {"id": run.identity, **run.facts, "versions": versions()}
    started = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the figures say it
            table = table_of(run.data)
            problem, train, test = problem_of(run, table, folder)
            answer = contender_named(run.contender).answer(problem)
        seconds = time.perf_counter() - started
        found |= _figures(table, problem, train, test, answer) | {"seconds": seconds}
    except FairveilError as problem:
        found["error"] = str(problem)
    except Exception as problem:  # one run must not stop the others
        reason = " ".join(str(problem).split())[:300]
        found["error"] = f"{type(problem).__name__}: {reason}"
    return found


def _figures(table: Table, problem: Problem, train: Rows, test: Rows, answer: Answer) -> Result:
    figures = table.figures(answer, test, problem.constraint)
    figures["constant_accuracy"] = table.constant_accuracy(train, test)
    ledger = problem.folder / LEDGER
    return {
        "figures": {name: None if value is None else float(value) for name, value in figures.items()},
        "epsilon_spent": finite(answer.epsilon),
        "protects": answer.protects,
        "notes": dict(answer.notes),
        "ledger": f"{RUNS}/{problem.folder.name}/{LEDGER}" if ledger.exists() else None,
        "n_train": len(problem.train),
        "n_test": len(test),
    }


def versions() -> dict[str, str]:
    """Return the versions that figures may depend on."""
    found = {"fairveil": __version__, "python": sys.version.split()[0]}
    found |= {name: importlib.metadata.version(name) for name in PACKAGES}
    for name in OPTIONAL:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


# --- all runs ---------------------------------------------------------------------------------------------------------


def done_in(out: Path, runs: Sequence[Run]) -> dict[str, Result]:
    """Return the results that are whole, by identity; failures are tried again."""
    found: dict[str, Result] = {}
    for run in runs:
        place = out / RUNS / f"{run.identity}.json"
        try:
            result = json.loads(place.read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(result, dict) and result.get("id") == run.identity and isinstance(result.get("figures"), dict):
            found[run.identity] = result | {"label": run.label, "data": run.facts["data"]}
    return found


def perform(
    runs: Iterable[Run], out: Path, command: str, n_workers: int, engine: str = "local", address: str | None = None
) -> Iterator[Result]:
    """Do the runs, write each result when it is there, and yield it."""
    work = on_ray(runs, n_workers, address) if engine == "ray" else on_cores(runs, out, n_workers)
    for result in work:
        ledger = result.pop("ledger_text", None)
        if ledger is not None:
            folder = out / RUNS / result["id"]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / LEDGER).write_text(ledger, encoding="utf-8")
        whole = result | {"command": command}
        with replacing(out / RUNS / f"{result['id']}.json") as place:
            place.write_text(json.dumps(whole, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        yield whole


@contextmanager
def bench_in(out: Path) -> Iterator[None]:
    """Make the folder of a bench and keep others out of it."""
    try:
        (out / RUNS).mkdir(parents=True, exist_ok=True)
        lock = os.open(out / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as problem:
        raise BadStructureError(
            f"Expected a folder to write to in {out}, got {problem.strerror}; use another."
        ) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadStructureError(
                f"Expected {out} for this bench alone, got another bench at work in it; wait for it to end."
            ) from None
        yield
    finally:
        os.close(lock)


# --- on the cores of this machine -------------------------------------------------------------------------------------


def on_cores(runs: Iterable[Run], out: Path, n_workers: int) -> Iterator[Result]:
    """Yield results as they come; at most one run for each worker is under way."""
    left, again = iter(runs), list[Run]()
    while True:
        with _pool(n_workers) as pool:
            pending = {_submit(pool, run, out): run for run in islice(left, n_workers)}
            while pending:
                finished, _ = wait(pending, return_when=FIRST_COMPLETED)
                for one in finished:
                    run = pending.pop(one)
                    if isinstance(one.exception(), BrokenProcessPool):
                        again.append(run)
                        continue
                    yield one.result()
                if again:
                    again += pending.values()
                    break
                pending |= {_submit(pool, run, out): run for run in islice(left, n_workers - len(pending))}
        if not again:
            return
        for run in again:
            yield _alone(run, out)
        again = []


def _submit(pool: ProcessPoolExecutor, run: Run, out: Path) -> "Future[Result]":
    return pool.submit(result_in, run, str(out / RUNS / run.identity))


def result_in(run: Run, folder: str) -> Result:
    """Return the result of a run that has this folder to itself."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    return result_of(run, Path(folder))


def _alone(run: Run, out: Path) -> Result:
    """Try a run in a process of its own: it may have ended the process that it shared with others."""
    with _pool(1) as pool:
        try:
            return _submit(pool, run, out).result()
        except BrokenProcessPool:
            return {"id": run.identity, **run.facts, "versions": versions(), "error": f"{ENDED}."}


@contextmanager
def _pool(n_workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield processes that end with this block, however it ends, and with this process, however that ends."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(n_workers, mp_context=context, initializer=_prepare_worker)
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _prepare_worker() -> None:
    """Compute on one thread, leave signals of the terminal to the driver, and end when the driver is gone."""
    threadpool_limits(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    driver = multiprocessing.parent_process()

    def follow() -> None:
        if driver is not None:
            driver.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


# --- on Ray -----------------------------------------------------------------------------------------------------------


def on_ray(runs: Iterable[Run], n_workers: int, address: str | None) -> Iterator[Result]:
    """Yield results as they come from a Ray cluster, which must be able to read the tables at the same paths."""
    ray = connect(address, n_workers)
    remote = ray.remote(num_cpus=1, max_retries=1)(result_elsewhere)
    left = iter(runs)
    pending: dict[Any, Run] = {remote.remote(run): run for run in islice(left, n_workers)}
    while pending:
        (one, *_), _ = ray.wait(list(pending), num_returns=1)
        run = pending.pop(one)
        try:
            yield ray.get(one)
        except ray.exceptions.RayError:
            yield {"id": run.identity, **run.facts, "versions": versions(), "error": f"{ENDED}."}
        pending |= {remote.remote(run): run for run in islice(left, n_workers - len(pending))}


def result_elsewhere(run: Run) -> Result:
    """Return the result of a run on any machine, with the text of its ledger."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / run.identity
        folder.mkdir()
        result = result_of(run, folder)
        ledger = folder / LEDGER
        return result | {"ledger_text": ledger.read_text(encoding="utf-8") if ledger.exists() else None}
