"""Records on Ray workers: every shard draws and adds up its own rows, and the driver alone adds noise, once.

`ray_records` starts the workers; the `RayRecords` that it returns are used like any others: a veil splits them, draws
batches and asks for sums. Ray itself repeats nothing. If a worker is lost before anything of a batch was released, the
worker is started again from its rows and *all* workers draw the batch anew; if a part was released already, the run
stops. docs/proofs/ray.md has the argument.
"""

import math
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fairveil._random import Coins, fresh_secret
from fairveil._validation import check_number
from fairveil.errors import (
    FairveilError,
    InvalidParameterError,
    MissingPackageError,
    NotEnoughMemoryError,
    UnplannedReleaseError,
    WorkerLostError,
)
from fairveil.privacy.attribute import ATTRIBUTE, AttributeRecords
from fairveil.privacy.plan import Plan
from fairveil.privacy.records import NOT_ONE_ANSWER, MemoryRecords, Query
from fairveil.privacy.selection import TunedPlan
from fairveil.privacy.veil import check_registered
from fairveil.scale.shards import HashedPart, Load, Message, Shard, ShardKey, parts_of

MOST_RESTARTS = 3
"""Workers that may be lost in one run. A worker that is lost because of a row would be lost each time the row is drawn;
machines that are taken away are rarely more in one training."""

START_SECONDS = 600
"""How long workers may take to start and to open their rows; answers may take as long as they need."""

ROWS_PER_WORKER = 50_000
"""Rows of a batch for which a further worker pays whatever the model. Messages take one to two milliseconds a step: two
workers are as fast as one process at 100,000 rows of a linear model of 100 features, and at 10,000 of a small network
(benchmarks/ray_scale.py)."""

SMALL_MESSAGE = 100_000
"""Bytes of a query with its parameters up to which it travels with each call; larger ones are stored once for all
workers of a machine, which takes one to two milliseconds longer."""

STOPPED = "Nothing more was released, and what was debited stays on the ledger."
"""How a run that cannot go on ends."""

ONLY_SUMS = (
    "Expected a method whose releases are sums, which workers add up, got one that needs all rows in one place; use "
    "the engine memory or disk, or another method."
)


def workers_for(expected_batch: float, n_cpus: int) -> tuple[int, str]:
    """Return how many workers pay for batches of this expected size on so many processors, and why, in a sentence.

    Examples
    --------
    >>> workers_for(10_000, n_cpus=8)[0], workers_for(262_144, n_cpus=2)[0], workers_for(1e6, n_cpus=64)[0]
    (1, 2, 20)
    """
    useful = max(1, int(expected_batch / ROWS_PER_WORKER))
    n_workers = min(useful, max(1, n_cpus))
    batch, each = f"{expected_batch:,.0f}", f"{ROWS_PER_WORKER:,}"
    if useful == 1:
        reason = f"{batch} expected rows per step are too few to share: from about {2 * ROWS_PER_WORKER:,} a second "
        return n_workers, f"1 worker, because {reason}worker saves more than its messages cost."
    why = f"{batch} expected rows per step are shared, at least {each} for each"
    if n_workers < useful:
        why += f", and there are {n_cpus} processors"
    return n_workers, f"{n_workers} worker{'s' * (n_workers > 1)}, because {why}."


def check_plan(plan: Plan | TunedPlan) -> None:
    """Refuse, before anything is debited, a plan that workers cannot carry out."""
    if plan.unit.startswith(ATTRIBUTE):
        refuse_attributes()
    if any(release.name == "minimiser" for stage in plan.stages for release in stage.releases):
        raise InvalidParameterError(ONLY_SUMS)


def refuse_attributes() -> NoReturn:
    """Refuse a method for which the attribute alone is secret: it reads features and labels outside the veil."""
    raise InvalidParameterError(
        "Expected a method that keeps whole records secret, because workers return sums only, got one for which the "
        "attribute alone is secret; use the engine memory or disk, or another method."
    )


def import_ray() -> Any:
    """Return the package ray, which reports no usage unless the environment says so."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # every answer is read; a draw that fails fails there
    try:
        import ray
    except ImportError:
        raise MissingPackageError(
            "Expected ray for the engine ray, got an environment without it; install it with pip install "
            "'fairveil[ray]'."
        ) from None
    return ray


def connect(address: str | None, n_workers: int) -> Any:
    """Return the package ray, connected to the cluster at this address or, without one, to a new one of this machine.

    A connection that is open already is used as it is.
    """
    if address is None:
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # a cluster of this process alone
    ray = import_ray()
    if not ray.is_initialized():
        facts: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if address is None:
            # rows that do not fit into memory are refused, never written to a folder of Ray's own
            facts["_system_config"] = {"automatic_object_spilling_enabled": False}
            facts |= {"num_cpus": max(n_workers, os.cpu_count() or 1), "include_dashboard": False}
        try:
            ray.init(address=address or "local", **facts)
        except (ConnectionError, RuntimeError, ValueError) as problem:
            raise InvalidParameterError(
                f"Expected a Ray cluster at {address or 'this machine'}, got {type(problem).__name__}; start one with "
                "ray start --head, or leave the address out."
            ) from None
    n_cpus = int(ray.cluster_resources().get("CPU", 0))
    if address is None and n_cpus < n_workers:  # a cluster elsewhere may grow
        raise InvalidParameterError(
            f"Expected at most as many workers as processors, {n_cpus}, got {n_workers}; use fewer, or a cluster."
        )
    return ray


def processors(address: str | None) -> int:
    """Return the number of processors of the cluster at this address, or of this machine."""
    if address is None:
        return os.cpu_count() or 1
    return int(connect(address, 1).cluster_resources().get("CPU", 1))


def ray_records(
    source: MemoryRecords | Load, n_workers: int, *, address: str | None = None, secret: bytes | None = None
) -> "RayRecords":
    """Start workers, share the rows among them, and return the records that they hold.

    Parameters
    ----------
    source : MemoryRecords, or callable that returns them
        Rows in memory are sent to the workers once. A callable is called by every worker, which keeps its own rows: for
        tables that every machine can open, mapped from shared files for instance.
    n_workers : int
        As many processors are reserved. `workers_for` says how many pay.
    address : str, optional
        The Ray cluster, "auto" for the one that this machine belongs to; None starts one on this machine.
    secret : bytes, optional
        The sixteen bytes whose hash assigns units to shards; fresh ones by default.

    Notes
    -----
    Guarantees: those of the veil, if workers and driver are trusted with the rows and with exact sums, and if nobody
    reads their messages (docs/proofs/ray.md).
    """
    if isinstance(source, AttributeRecords):
        refuse_attributes()
    n_workers = check_number("n_workers", n_workers, whole=True)
    ray, secret = connect(address, n_workers), secret or fresh_secret()
    if isinstance(source, MemoryRecords):
        try:
            parts = [ray.put(part.gathered()) for part in parts_of(source, n_workers, secret)]
        except ray.exceptions.ObjectStoreFullError:
            raise NotEnoughMemoryError(
                "Expected memory in Ray's object store for all rows, got too little; use a machine with more, or a "
                "table on disk that every worker opens itself."
            ) from None
    else:
        parts = [HashedPart(source, shard, n_workers, secret) for shard in range(n_workers)]
    return RayRecords(Workers(ray, parts), Made(0), "")


@dataclass(eq=False)
class Made:
    """The driver's name for something that every shard holds, and how a shard makes it again.

    It keeps alive what it was made of; what nobody holds any longer is forgotten by the shards as well.
    """

    number: int
    method: str = ""
    parent: "Made | None" = None
    name: str = ""
    keys: Sequence[ShardKey | None] = ()
    facts: tuple[Any, ...] = ()


@dataclass(eq=False)
class RayBatch:
    """One batch, drawn by all shards under one number; another number if it had to be drawn anew."""

    stream: "Stream"
    number: int
    generation: int
    keeps: bool = False
    is_released: bool = False


@dataclass(eq=False)
class Stream:
    """The batches of one stage, of which one is drawn ahead while the driver adds noise."""

    workers: "Workers"
    made: Made
    ahead: RayBatch | None = None

    def __iter__(self) -> Iterator[RayBatch]:
        return self

    def __next__(self) -> RayBatch:
        batch, self.ahead = self.draw_ahead(), None
        return batch

    def draw_ahead(self) -> RayBatch:
        """Let all shards draw the next batch, unless they do already, and return it."""
        if self.ahead is None:
            self.ahead = self.workers.new_batch(self)
        return self.ahead


class RayRecords:
    """Records whose rows are kept by Ray workers; only a veil may query them.

    Use `close`, or a ``with`` block, to end the workers.
    """

    def __init__(self, workers: "Workers", made: Made, name: str) -> None:
        self._workers = workers
        self._made = made
        self._name = name

    @property
    def n_features(self) -> int:
        """Columns of a row."""
        return self._workers.n_features

    def __repr__(self) -> str:
        return "RayRecords(<private>)"

    def __enter__(self) -> "RayRecords":
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self._workers.close()

    def split(self, shares: Mapping[str, float], coins: Coins) -> dict[str, "RayRecords"]:
        """Return disjoint subsets; each shard assigns its units by coins of its own key."""
        made = self._workers.make("split", self._made, self._name, self._keys(coins), (dict(shares),))
        return {name: RayRecords(self._workers, made, name) for name in shares}

    def arranged(self, coins: Coins) -> "RayRecords":
        """Return the same records, every shard in a secret random order by its own key."""
        return RayRecords(self._workers, self._workers.make("arrange", self._made, self._name, self._keys(coins)), "")

    def draw(self, rates: Mapping[int, float], coins: Coins) -> Iterator[RayBatch]:
        """Yield Poisson batches for ever; every shard draws its own units by coins that it makes itself.

        If the driver's coins are not secret, which the ledger records, those of the shards follow from them.
        """
        keys = [None] * len(self._workers.actors) if coins.is_secret else self._keys(coins)
        made = self._workers.make("open_stream", self._made, self._name, keys, (dict(rates),))
        return Stream(self._workers, made)

    def blocks(self, batch: RayBatch, n_blocks: int) -> RayBatch:
        """Return the batch, whose shards keep what they gather for all its releases."""
        batch.keeps = True
        return batch

    def answer(
        self, batch: RayBatch, query: Query, bound: Any = 1.0, norm: int = 2, n_blocks: int = 1
    ) -> NDArray[np.float64]:
        """Return the exact sum over the batch, added up over shards in their order."""
        if type(query).answer is not Query.answer:
            raise UnplannedReleaseError(ONLY_SUMS)
        if not all(kind.__module__.startswith("fairveil.") for kind in check_registered(query)):
            raise UnplannedReleaseError(
                "Expected a query of fairveil itself, got one of a user, which workers do not know; use the engine "
                "memory or disk."
            )
        # units are assigned to shards by a hash, so that each is expected to hold as many
        share = math.ceil(n_blocks / len(self._workers.actors))
        return self._workers.answer(batch, Message(query, bound, norm, share, batch.keeps))

    def _keys(self, coins: Coins) -> list[ShardKey | None]:
        """Return a new key for each shard, as secret as the coins are."""
        secret = coins.is_secret
        return [ShardKey(fresh_secret() if secret else coins.generator.bytes(16), secret) for _ in self._workers.actors]


class Workers:
    """The actors that hold the shards, and what must be known to start a lost one again."""

    def __init__(self, ray: Any, parts: Sequence[Any]) -> None:
        self._ray = ray
        self._parts = parts
        options = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
        self._shard = ray.remote(**options)(Shard)
        self._numbers = count(1)
        self._made: weakref.WeakValueDictionary[int, Made] = weakref.WeakValueDictionary()
        self._gone: list[int] = []
        self._n_restarts = 0
        self.generation = 0
        self.n_features = 0
        self.actors = [self._shard.remote(part) for part in parts]
        self._start_again(self._start(range(len(parts))))

    # --- calls ---------------------------------------------------------------------------------------------------

    def make(
        self, method: str, parent: Made, name: str, keys: Sequence[ShardKey | None], facts: tuple[Any, ...] = ()
    ) -> Made:
        """Make something in every shard, each by its own key."""
        made = Made(next(self._numbers), method, parent, name, keys, facts)
        self._made[made.number] = made
        weakref.finalize(made, self._gone.append, made.number)
        self._start_again(self._make_in(range(len(self.actors)), made))
        return made

    def new_batch(self, stream: Stream) -> RayBatch:
        """Let all shards draw the next batch of a stream, without waiting for it."""
        batch = RayBatch(stream, next(self._numbers), self.generation)
        weakref.finalize(batch, self._gone.append, batch.number)
        self._draw(batch)
        return batch

    def answer(self, batch: RayBatch, message: Message) -> NDArray[np.float64]:
        """Return the sum over all shards, of one batch that all of them drew since a worker was last lost.

        Only whole answers leave this function. A batch of which nothing left it may be drawn anew.
        """
        sent = self._ray.cloudpickle.dumps(message)
        if len(sent) > SMALL_MESSAGE:
            sent = self._ray.put(sent)
        while True:
            if batch.generation != self.generation:
                self._draw_anew(batch)
            stream = batch.stream
            refs = {
                shard: actor.answer.remote(stream.made.number, batch.number, sent)
                for shard, actor in enumerate(self.actors)
            }
            stream.draw_ahead()  # in each shard after its answer, while the others and the driver work
            parts, lost = self._answers(refs)
            if not lost:
                break
            if batch.is_released:
                stop_after_release()
            self._start_again(lost)
        batch.is_released = True
        if len({part.shape for part in parts}) != 1:
            raise UnplannedReleaseError(NOT_ONE_ANSWER)
        total: NDArray[np.float64] = np.zeros(parts[0].shape)
        for part in parts:  # never as they arrive: sums are rounded in one order
            total += part
        return total

    def close(self) -> None:
        """End all workers."""
        for actor in self.actors:
            self._ray.kill(actor)

    def _draw(self, batch: RayBatch) -> None:
        gone, self._gone[:] = tuple(self._gone), []
        for actor in self.actors:
            actor.draw.remote(batch.stream.made.number, batch.number, gone)

    def _draw_anew(self, batch: RayBatch) -> None:
        """Let all shards draw a batch again, by fresh coins, if nothing of it was released."""
        if batch.is_released:
            stop_after_release()
        self._gone.append(batch.number)
        batch.number, batch.generation = next(self._numbers), self.generation
        weakref.finalize(batch, self._gone.append, batch.number)
        self._draw(batch)

    # --- workers that are lost -----------------------------------------------------------------------------------

    def _make_in(self, shards: Sequence[int], made: Made) -> list[int]:
        """Make something in these shards, and return which of them were lost meanwhile."""
        source = (0 if made.parent is None else made.parent.number, made.name)
        facts = (*made.facts, self.generation) if made.method == "open_stream" else made.facts
        calls = {shard: getattr(self.actors[shard], made.method).remote for shard in shards}
        answers, lost = self._answers(
            {shard: call(made.number, source, made.keys[shard], *facts) for shard, call in calls.items()}
        )
        if False in answers and None in made.keys:
            raise WorkerLostError("Expected secret coins in every worker, got others; no batch was drawn.")
        return lost

    def _start(self, shards: Sequence[int]) -> list[int]:
        """Let these shards open their rows and make what all others have; return which were lost meanwhile."""
        answers, lost = self._answers({shard: self.actors[shard].start.remote() for shard in shards}, START_SECONDS)
        for n_features in answers:
            self.n_features = n_features
        for made in sorted(self._made.values(), key=lambda one: one.number):  # first what others are made of
            lost += self._make_in([shard for shard in shards if shard not in lost], made)
        return lost

    def _start_again(self, lost: list[int]) -> None:
        """Start lost workers again from their rows; no batch that was drawn so far is used any longer."""
        while lost:
            self._n_restarts += len(lost)
            if self._n_restarts > MOST_RESTARTS:
                raise WorkerLostError(
                    f"Expected at most {MOST_RESTARTS} lost workers in one run, got more; find out why they end "
                    f"(memory, machines that are taken away), and train again. {STOPPED}"
                )
            self.generation += 1
            for shard in lost:
                self._ray.kill(self.actors[shard])  # also one that is out of reach only
                self.actors[shard] = self._shard.remote(self._parts[shard])
            lost = self._start(lost)

    def _answers(self, refs: Mapping[int, Any], timeout: float | None = None) -> tuple[list[Any], list[int]]:
        """Return all answers, however long they take, and which shards were lost; one that failed ends the run."""
        problems = self._ray.exceptions
        answers, lost = [], []
        for shard, ref in refs.items():
            try:
                answers.append(self._ray.get(ref, timeout=timeout))
            except problems.GetTimeoutError:
                raise WorkerLostError(
                    f"Expected workers to start within {timeout} seconds, got fewer than requested; use fewer "
                    f"workers, or more processors. {STOPPED}"
                ) from None
            except (problems.ObjectLostError, problems.RayActorError):
                lost.append(shard)
            except problems.RayTaskError as problem:
                stop_after_failure(problem.cause)
            except problems.RayError as problem:
                stop_after_failure(problem)
        return answers, lost


def stop_after_release() -> NoReturn:
    """Stop a run whose batch cannot be drawn anew, because a part of its answers is public."""
    raise WorkerLostError(
        "Expected every worker to stay until all releases of a batch were made, got one lost between two of them: what "
        f"it drew is gone, and another batch may not stand in for it; train again, which is a new debit. {STOPPED}"
    )


def stop_after_failure(cause: BaseException) -> NoReturn:
    """Stop a run in which a worker raised an error: repeating the step could depend on the rows that were drawn."""
    if isinstance(cause, FairveilError):
        raise cause from None
    if isinstance(cause, MemoryError):
        raise NotEnoughMemoryError(
            f"Expected enough memory in every worker, got too little; use more workers or larger ones. {STOPPED}"
        ) from None
    raise WorkerLostError(
        f"Expected every worker to answer, got an error of type {type(cause).__name__} in one; the step is not "
        f"repeated; its log has the details. {STOPPED}"
    ) from None
