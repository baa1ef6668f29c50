"""A shard: the rows of some of the units, in a process of its own, which answers with sums of bounded contributions.

Every unit is in one shard, by a keyed hash of its person or of its row number. Two kinds of coins are used here, and
docs/proofs/ray.md says why. Subsets, the secret order and the uniform numbers of rows follow from keys that the driver
holds, so that a shard which was lost is the same when it is made again. Batches are drawn by coins that are made here
and never leave: what a lost shard drew is gone.

Nothing here may fail because of a value of a row or because of which rows were drawn: a step that is repeated after a
failure would otherwise be a step without these rows. So the memory for the largest batch is tried before anything is
debited, a block gives its memory back when it was added up, and what is kept for a second release is at most a
constant.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fairveil._random import Coins, derived_coins, secret_coins, siphash
from fairveil._typing import Float32Array
from fairveil.models.base import Model, ignore_float_warnings
from fairveil.privacy.queries import PARTS, OfModel
from fairveil.privacy.records import MemoryRecords, Query, Rows
from fairveil.privacy.sampling import COINS_AT_ONCE, Index, row_numbers

KEPT_ROWS = 2**18
"""Of a batch that answers several releases, the activations of at most about so many rows of a shard are kept for the
next one; those of all others are computed anew. With two hidden layers of 64 units they take 140 MB."""

BYTES_PER_DRAWN_ROW = 64
"""What drawing a batch of all rows takes at most for each of them: gaps, places, their keys and sorted copies."""

Load = Callable[[], MemoryRecords]
"""Opens records in the process that calls it, from a file for instance."""


class ShardKey(NamedTuple):
    """Sixteen bytes from which coins of a shard follow, and whether they come from the operating system."""

    seed: bytes
    is_secret: bool

    def __repr__(self) -> str:
        return f"ShardKey(is_secret={self.is_secret})"

    def coins(self, purpose: str) -> Coins:
        """Return the coins for one purpose, the same ones each time."""
        return derived_coins(self.seed, purpose, is_secret=self.is_secret)


class Message(NamedTuple):
    """What every shard answers in one release; all of it is public."""

    query: Query
    bound: Any
    norm: int
    n_blocks: int
    keeps: bool


def shard_numbers(records: MemoryRecords, n_shards: int, secret: bytes) -> NDArray[np.uint16]:
    """Return the shard of each row: that of its person or, where the unit is the record, of its row number.

    The hash is keyed by a secret, so that nobody can choose ids that meet in one shard.
    """
    shards = np.empty(len(records), dtype=np.uint16)
    for start in range(0, len(records), COINS_AT_ONCE):
        places = np.arange(start, min(start + COINS_AT_ONCE, len(records)))
        rows = records.rows_at(places)
        units = rows if records.persons is None else records.persons[rows]
        message = np.ascontiguousarray(units, dtype="<i8")[:, None].view(np.uint8)
        shards[places] = siphash(secret, message) % np.uint64(n_shards)
    return shards


def parts_of(
    records: MemoryRecords, n_shards: int, secret: bytes, shards: Iterable[int] | None = None
) -> Iterator[MemoryRecords]:
    """Yield the records of each shard, or of these alone, by row number in the same table."""
    numbers = shard_numbers(records, n_shards, secret)
    for shard in range(n_shards) if shards is None else shards:
        yield records._of_rows(row_numbers(numbers == shard))


@dataclass(frozen=True)
class HashedPart:
    """Opens a whole table where it is called, and keeps the rows of one shard."""

    load: Load
    shard: int
    n_shards: int
    secret: bytes

    def __call__(self) -> MemoryRecords:
        """Return the records of the shard."""
        (part,) = parts_of(self.load(), self.n_shards, self.secret, [self.shard])
        return part

    def __repr__(self) -> str:
        return f"HashedPart({self.shard} of {self.n_shards})"


class Drawn:
    """The rows of one batch in one shard, as blocks once a query was answered."""

    def __init__(self, records: MemoryRecords, places: Index) -> None:
        self.records = records
        self.places = places
        self._blocks: list[Rows] | None = None

    @ignore_float_warnings
    def answer(self, message: Message, query: Query) -> NDArray[np.float64]:
        """Return the exact sum over the batch; zeros where nobody was drawn."""
        if self._blocks is None:
            self._blocks = self.records.blocks(self.places, message.n_blocks)
        blocks, n_kept = self._blocks, 0
        parts: Iterator[NDArray[np.float64]] = (query.answer([rows], message.bound, message.norm) for rows in blocks)
        total: Any = 0.0
        for place, part in enumerate(parts):
            total = part if place == 0 else np.add(total, part, out=total)
            n_kept += len(blocks[place])
            if not message.keeps or n_kept > KEPT_ROWS:
                blocks[place] = Rows(self.records, blocks[place].places)  # without what it gathered
        return total


class Shard:
    """The rows of one shard, and what was made of them: subsets, streams of batches, and batches, each by its number.

    Everything that can be made again has a method that is called with the same number and key after a loss.
    """

    def __init__(self, part: MemoryRecords | Load) -> None:
        self._part = part
        self._records: dict[int, Mapping[str, MemoryRecords]] = {}
        self._streams: dict[int, tuple[MemoryRecords, Iterator[Index]]] = {}
        self._drawn: dict[int, Drawn] = {}
        self._known: tuple[Model, Float32Array] | None = None

    def start(self) -> int:
        """Open the rows, as number 0, try the memory for the largest batch, and return the number of columns."""
        threadpool_limits(1, user_api="blas")  # one shard, one processor
        records = self._part if isinstance(self._part, MemoryRecords) else self._part()
        np.ones(BYTES_PER_DRAWN_ROW * len(records), dtype=np.uint8)  # written to: a lack of it shows now
        self._records[0] = {"": records}
        return records.n_features

    def split(self, number: int, source: tuple[int, str], key: ShardKey, shares: Mapping[str, float]) -> None:
        """Assign each unit to a subset, by coins that follow from the key."""
        self._records[number] = self._of(source).split(shares, key.coins("split"))

    def arrange(self, number: int, source: tuple[int, str], key: ShardKey) -> None:
        """Put the units into an order that follows from the key, and so will the uniform numbers of their rows."""
        self._records[number] = {"": self._of(source).arranged(key.coins("order"))}

    def open_stream(
        self, number: int, source: tuple[int, str], key: ShardKey | None, rates: Mapping[int, float], attempt: int
    ) -> bool:
        """Prepare to draw batches; without a key by secret coins of this process, and return whether they are secret.

        A key, of a driver whose coins are not secret, gives other coins at each `attempt`.
        """
        coins = secret_coins() if key is None else key.coins(f"batches {attempt}")
        records = self._of(source)
        self._streams[number] = records, records.draw(rates, coins)
        return coins.is_secret

    def draw(self, stream: int, number: int, gone: tuple[int, ...] = ()) -> None:
        """Draw the next batch of a stream under this number, and forget what has these other numbers."""
        for old in gone:
            for kept in (self._records, self._streams, self._drawn):
                kept.pop(old, None)
        if number not in self._drawn:
            records, batches = self._streams[stream]
            self._drawn[number] = Drawn(records, next(batches))

    def answer(self, stream: int, number: int, sent: bytes) -> NDArray[np.float64]:
        """Return the exact sum over a batch, which is drawn first if it was not yet; `sent` is a pickled message."""
        self.draw(stream, number)
        message: Message = pickle.loads(sent)
        query = self._sharing(message.query) if message.keeps else message.query
        return self._drawn[number].answer(message, query)

    def _of(self, source: tuple[int, str]) -> MemoryRecords:
        number, name = source
        return self._records[number][name]

    def _sharing(self, query: Any) -> Any:
        """Return the query with the model and parameters of the last one where they are equal.

        Rows keep activations as long as model and parameters are the same objects, which a message does not preserve.
        """
        changes: dict[str, Any] = {}
        for name in PARTS[type(query)]:
            if (part := getattr(query, name)) is not None:
                changes[name] = self._sharing(part)
        if isinstance(query, OfModel):
            known = self._known
            if known is None or known[0] != query.model or known[1].tobytes() != query.params.tobytes():
                self._known = known = query.model, query.params
            changes |= {"model": known[0], "params": known[1]}
        return replace(query, **changes) if changes else query
