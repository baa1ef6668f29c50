"""Engines: where the encoded rows of a file are kept while a model is trained on them.

Whatever the engine, records answer the same queries: with the same coins, every engine releases the same sums. An
engine is one entry of `ENGINES`; the command line, the front door and the tests read the registry.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from fairveil import __version__
from fairveil._random import KEY_BYTES, public_coins
from fairveil._validation import check_choice
from fairveil.data.readers import CHUNK_ROWS, Chunk, columns_needed, read_chunks, table_files
from fairveil.errors import BadStructureError, InvalidParameterError, NotEnoughMemoryError
from fairveil.methods.inputs import BYTES_PER_ROW, FileSource, InputSpec, Source, TableSource
from fairveil.privacy.plan import Plan
from fairveil.privacy.selection import TunedPlan
from fairveil.privacy.veil import AnyRecords
from fairveil.scale.capacity import available_memory, probable_rows
from fairveil.scale.packed import PackedFormat
from fairveil.scale.ray_records import (
    RayRecords,
    check_plan,
    import_ray,
    processors,
    ray_records,
    refuse_attributes,
    workers_for,
)
from fairveil.scale.row_file import RowSource, cached_rows

AUTO = "auto"
"""Chooses an engine by the size of the table."""

CACHE_SUFFIX = ".rows"
"""How the name of the cache folder of a ledger ends."""

MEMORY_SHARE = 0.5
"""Rows are kept in memory if they take at most this share of what is free: other programs need memory, too."""

CELLS_AT_ONCE = 2**20
"""Cells of a chunk that is encoded for the disk: what a chunk takes in memory grows with its rows and its columns."""

BYTES_PER_PUBLIC_FEATURE = 24
"""Of features and labels that are public: rows written out, and what is computed of them in double precision."""


AnyPlan = Plan | TunedPlan


def _nothing(inputs: InputSpec, plan: AnyPlan) -> str:
    return ""


@dataclass(frozen=True)
class Engine:
    """A place for encoded rows.

    Attributes
    ----------
    name, help : str
        What users write after ``engine=`` and ``--engine``; a line for ``--help``.
    check : callable
        Takes the public side of a table, a file and its probable number of rows, and refuses what cannot fit, before
        a row is read.
    read : callable
        Takes the public side of a table, a file, the plan and the number that seeds public coins, and returns records.
    explain : callable
        Takes the public side of a table and a plan, and returns what else must be said of a fit.
    """

    name: str
    help: str
    check: Callable[[InputSpec, FileSource, int], None]
    read: Callable[[InputSpec, FileSource, AnyPlan, Any], AnyRecords]
    explain: Callable[[InputSpec, AnyPlan], str] = _nothing


@dataclass(frozen=True)
class EngineChoice:
    """Which engine, and why; `is_public` if the choice follows from public facts alone."""

    engine: Engine
    why: str
    is_public: bool

    @property
    def public_name(self) -> str:
        """The engine's name where it may be published, else "auto": the size of a file is as private as its rows."""
        return self.engine.name if self.is_public else AUTO


# --- engines ---------------------------------------------------------------------------------------------------------


def _check_memory(inputs: InputSpec, source: FileSource, n_rows: int) -> None:
    if n_rows * _memory_per_row(inputs) > available_memory():
        raise NotEnoughMemoryError(
            _too_much("memory", _memory_per_row(inputs), inputs, 'engine="disk" (--engine disk)')
        )


def _memory_per_row(inputs: InputSpec) -> int:
    n_bytes = inputs.encoder.row_bytes + BYTES_PER_ROW
    if inputs.protects == "attribute":
        n_bytes += BYTES_PER_PUBLIC_FEATURE * inputs.encoder.n_features
    return n_bytes


def _too_much(what: str, n_bytes: int, inputs: InputSpec, remedy: str) -> str:
    """Return why rows do not fit, with no number that is not public."""
    n_public = _public_rows(inputs)
    needed = f"enough {what} for the encoded rows"
    if n_public is not None:
        needed = f"about {n_public * n_bytes / 1e9:,.0f} GB of {what} for n_public = {n_public:,} rows"
    return f"Expected {needed}, got less; use {remedy}, a larger machine or fewer columns."


def _public_rows(inputs: InputSpec) -> int | None:
    """Return the public number of rows, None if there is none; of persons, who have several rows each, it is not."""
    return inputs.schema.n_public if inputs.schema.id_column is None else None


def _check_disk(inputs: InputSpec, source: FileSource, n_rows: int) -> None:
    cache = _cache_of(source)
    per_row = BYTES_PER_ROW
    if inputs.protects == "attribute":
        per_row = _memory_per_row(inputs)
    if n_rows * per_row > available_memory():
        raise NotEnoughMemoryError(_too_much("memory", per_row, inputs, "a larger machine"))
    form = _format(inputs)
    parents = [place for place in (cache, *cache.absolute().parents) if place.is_dir()]
    is_there = cache.is_dir() and any(cache.iterdir())  # an earlier run may have left all or most of it
    if not is_there and n_rows * form.dtype.itemsize > shutil.disk_usage(parents[0]).free:
        raise BadStructureError(
            _too_much("disk space", form.dtype.itemsize, inputs, "another cache= or --cache folder")
        )


def _cache_of(source: FileSource) -> Path:
    if source.cache is None:
        raise InvalidParameterError(
            "Expected a ledger file or a cache folder to keep encoded rows by, got neither; pass ledger= or cache=."
        )
    return source.cache


def _format(inputs: InputSpec) -> PackedFormat:
    """Return how rows are packed: as those of a table without rows."""
    columns = columns_needed(inputs.schema, inputs.sensitive)
    nobody = pd.DataFrame({name: pd.Series([], dtype=object) for name in columns})
    return PackedFormat.of(inputs.encode(Chunk(nobody)), inputs.people.n_classes, inputs.people.n_groups)


def _read_into_memory(inputs: InputSpec, source: FileSource, plan: AnyPlan, seed: Any) -> AnyRecords:
    return inputs.records(source)


def _check_workers(inputs: InputSpec, source: FileSource, n_rows: int) -> None:
    import_ray()
    if inputs.protects == "attribute":
        refuse_attributes()
    _check_memory(inputs, source, n_rows)  # this process reads the rows and sends them to the workers


def _send_to_workers(inputs: InputSpec, source: FileSource, plan: AnyPlan, seed: Any) -> AnyRecords:
    check_plan(plan)
    records: Any = inputs.records(source)
    n_public = _public_rows(inputs) or len(records)
    n_workers, _ = workers_for(_largest_batch(plan, n_public), processors(source.address))
    secret = None if plan.is_private else public_coins(seed).bytes(KEY_BYTES)
    workers: AnyRecords = ray_records(records, n_workers, address=source.address, secret=secret)
    return workers


def _explain_workers(inputs: InputSpec, plan: AnyPlan) -> str:
    n_public = _public_rows(inputs)
    if n_public is None:
        return "; as many workers as the expected rows of a step keep busy"
    return f"; {workers_for(_largest_batch(plan, n_public), os.cpu_count() or 1)[1].rstrip('.')}"


def _largest_batch(plan: AnyPlan, n_rows: int) -> float:
    """Return the expected rows of the largest batch that is drawn more than once."""
    steps = [stage.share * stage.largest_rate for stage in plan.stages if stage.n_steps > 1]
    return n_rows * max(steps, default=1.0)


def _read_to_disk(inputs: InputSpec, source: FileSource, plan: AnyPlan, seed: Any) -> AnyRecords:
    schema, columns = inputs.schema, columns_needed(inputs.schema, inputs.sensitive)
    kind = (source.delimiter or schema.file.delimiter, source.encoding or schema.file.encoding)
    chunk_rows = max(1, min(CHUNK_ROWS, CELLS_AT_ONCE // len(columns)))
    read = {"target", "columns", "where", "id_column", "missing_values"}
    facts = {
        "schema": schema.model_dump(mode="json", include=read),
        "sensitive": [entry.model_dump(mode="json") for entry in inputs.sensitive],
        "predicts": inputs.predicts,
        "detail": asdict(inputs.detail),
        "text": kind,
        "version": __version__,
    }
    rows = RowSource(
        table_files(source.path), lambda file: read_chunks(file, columns, chunk_rows, *kind), inputs.encode
    )
    return inputs.records_of(cached_rows(_cache_of(source), facts, rows, _format(inputs), source.reading))


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("memory", "rows in memory", _check_memory, _read_into_memory),
        Engine("disk", "rows in a private file beside the ledger, read as they are drawn", _check_disk, _read_to_disk),
        Engine("ray", "rows shared among Ray workers", _check_workers, _send_to_workers, _explain_workers),
    )
}


# --- the choice ------------------------------------------------------------------------------------------------------


def choose_engine(inputs: InputSpec, source: FileSource, plan: AnyPlan) -> EngineChoice:
    """Return the engine that was named, or the one for a table of this size; refuse one in which it cannot fit."""
    check_choice("engine", source.engine, (AUTO, *ENGINES))
    inputs.check_reads_files()
    n_public = _public_rows(inputs)
    n_rows = probable_rows(table_files(source.path)) if n_public is None else n_public
    if source.engine != AUTO:
        engine = ENGINES[source.engine]
        choice = EngineChoice(engine, f"as requested{engine.explain(inputs, plan)}", True)
    else:
        size = "by the size of the file" if n_public is None else f"by n_public = {n_public:,}"
        fits = n_rows * _memory_per_row(inputs) <= MEMORY_SHARE * available_memory()
        name, ends = ("memory", "fit into") if fits else ("disk", "would take too much of")
        choice = EngineChoice(
            ENGINES[name], f"rows {ends} the free memory of this machine, {size}", n_public is not None
        )
    choice.engine.check(inputs, source, n_rows)
    return choice


@contextmanager
def opened_records(
    inputs: InputSpec, source: Source, plan: AnyPlan, seed: Any = None
) -> Iterator[tuple[AnyRecords, EngineChoice | None]]:
    """Yield the records of a source, and by which engine they were read; None for rows that are in memory already.

    `seed` seeds the public coins of a fit without privacy. Workers end with the block.
    """
    if isinstance(source, TableSource):
        yield inputs.records(source), None
        return
    choice = choose_engine(inputs, source, plan)
    records = choice.engine.read(inputs, source, plan, seed)
    try:
        yield records, choice
    finally:
        if isinstance(records, RayRecords):
            records.close()


def cache_beside(ledger: Path | None) -> Path | None:
    """Return the cache folder of a ledger file; None for a ledger in memory, which has none."""
    return None if ledger is None else ledger.with_name(f"{ledger.name}{CACHE_SUFFIX}")


def with_cache(source: Source, ledger: Path | None) -> Source:
    """Return a file with the folder for its encoded rows: the one that was named, else that of the ledger."""
    if not isinstance(source, FileSource) or source.cache is not None:
        return source
    return replace(source, cache=cache_beside(ledger))
