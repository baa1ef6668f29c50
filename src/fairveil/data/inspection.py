"""A file and its schema in, what does not fit out: exact counts, for the data holder's eyes only.

Nothing in fairveil acts on these counts. Training on the same file follows the stated rules silently; this is
how the person who holds the rows learns how often they apply.

Which features give a group away: exact shares, for the data holder's eyes only.

Where a sensitive attribute alone is to be secret, a public feature that determines it leaves nothing to hide. Training
cannot refuse it, because looking for it would read the secret; the person who holds the rows can, with this.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairveil.data.encoding import Encoder, columns_of, meets
from fairveil.data.readers import CHUNK_ROWS, Chunk, columns_needed, read_chunks
from fairveil.data.schema import Category, Number, Schema, Sensitive
from fairveil.data.values import IGNORE, Cells, Coding, MissingCells, canonical_text, map_cells, numbers_of

GIVEN_AWAY = 0.99
"""A feature gives groups away if so many rows of known group could be told by its level alone."""

MOST_LEVELS = 2000
ROWS_A_LEVEL = 20
"""A feature of more levels than this leaves nothing to tell: each row would have one of its own."""

Seen = Counter[tuple[str, str, Hashable, int]]
"""How often (feature, sensitive column, level, group code) was met."""


def see(frame: pd.DataFrame, encoder: Encoder) -> Seen:
    """Return the levels of every feature, by group, among the rows of one chunk."""
    seen: Seen = Counter()
    for entry in encoder.schema.sensitive:
        groups = encoder.groups(columns_of(frame, [entry.column])[0], entry)
        known = groups >= 0
        for name in encoder.schema.columns:
            if name == entry.column or name in entry.sources:
                continue  # refused as it is
            places, levels = pd.factorize(_levels(frame, name, encoder)[known], use_na_sentinel=False)
            counts = np.bincount(places * len(entry.groups) + groups[known])
            for joint in np.flatnonzero(counts).tolist():
                place, group = divmod(joint, len(entry.groups))
                seen[name, entry.column, levels[place], group] += int(counts[joint])
    return seen


def _levels(frame: pd.DataFrame, name: str, encoder: Encoder) -> NDArray[Any]:
    """Return what a feature says of each row: its category as text, or the bin of its number."""
    column, cells = encoder.schema.columns[name], columns_of(frame, [name])[0]
    if isinstance(column, Category):
        return np.array([canonical_text(cell) or "" for cell in cells], dtype=object)
    numbers = numbers_of(cells, encoder.schema.missing)
    low, high = column.bounds
    # as fine as whole numbers, not as coarse as the bins of the schema: the file itself is what others know
    edges = np.arange(np.ceil(low), high + 1) if high - low <= MOST_LEVELS else np.linspace(low, high, 257)
    return np.where(np.isnan(numbers), -1, np.searchsorted(edges, numbers, side="right"))


def given_away(seen: Seen, entry: Sensitive) -> dict[str, tuple[int, float]]:
    """Return the features that give the groups of a column away: how many rows they tell, and what share that is."""
    told: dict[str, Counter[Hashable]] = {}
    sizes: dict[str, Counter[int]] = {}
    for (name, column, level, group), count in seen.items():
        if column == entry.column:
            best = told.setdefault(name, Counter())
            best[level] = max(best[level], count)
            sizes.setdefault(name, Counter())[group] += count
    found = {}
    for name, best in told.items():
        total, usual = sizes[name].total(), max(sizes[name].values())
        # better than to say the largest group of everyone, nearly always right, and no level of a row of its own
        is_telling = usual < best.total() and GIVEN_AWAY * total <= best.total()
        if is_telling and len(best) * ROWS_A_LEVEL <= total:
            found[name] = (best.total(), best.total() / total)
    return found


_AS_MISSING = 'level "missing"'
_LEFT_OUT = "the row contributes nothing"


@dataclass(frozen=True)
class Place:
    """What may not fit: the column ("" for the whole table), in what way, and the rule that then applies."""

    column: str
    what: str
    rule: str


Tally: TypeAlias = Iterator[tuple[Place, int]]


@dataclass(frozen=True)
class SchemaMismatch:
    """How often a cell or row does not fit: PRIVATE, an exact count.

    Attributes
    ----------
    column : str
        The column, empty for the whole table.
    what : str
        In what way cells do not fit.
    count : int
        How many, exactly.
    rule : str
        What becomes of them.
    """

    column: str
    what: str
    count: int
    rule: str


def check_table(path: str | Path, schema: Schema, *, delimiter: str = ",") -> list[SchemaMismatch]:
    """Return what in a file does not fit its schema; ways that never occur are left out.

    Guarantees
    ----------
    None: the counts are exact. They are for the person who already holds the rows, and not to be published.
    """
    columns = dict.fromkeys([*columns_needed(schema), *(entry.column for entry in schema.sensitive)])
    counts: Counter[Place] = Counter()
    seen: Seen = Counter()
    for chunk in read_chunks(path, list(columns), CHUNK_ROWS, delimiter):
        for place, count in _tally(chunk, Encoder(schema)):
            counts[place] += count
        seen.update(see(chunk.frame, Encoder(schema)))
    n_rows = counts.pop(_COUNTED)
    findings = [
        SchemaMismatch(place.column, place.what, count, place.rule)
        for place, count in counts.items()
        if count
    ]
    return [*findings, *_telling_findings(schema, seen), *_size_findings(schema, n_rows)]


def _telling_findings(schema: Schema, seen: Seen) -> Iterator[SchemaMismatch]:
    for entry in schema.sensitive:
        for name, (count, share) in given_away(seen, entry).items():
            rule = f"where {entry.column} alone is secret it is no secret: leave this feature out"
            yield SchemaMismatch(name, f"rows whose {entry.column} it tells ({share:.1%})", count, rule)


_COUNTED = Place("", "rows that count", "they are what training sees")


def _size_findings(schema: Schema, n_rows: int) -> Iterator[SchemaMismatch]:
    yield SchemaMismatch("", _COUNTED.what, n_rows, _COUNTED.rule)
    if schema.n_public is not None and schema.n_public != n_rows:
        rule = f"n_public = {schema.n_public} stands for the number of rows everywhere"
        yield SchemaMismatch("", "difference from n_public", n_rows - schema.n_public, rule)


def _tally(chunk: Chunk, encoder: Encoder) -> Tally:
    schema, frame = encoder.schema, chunk.frame
    yield Place("", "malformed lines", "they contribute nothing"), chunk.n_malformed
    for name, column in schema.columns.items():
        cells = columns_of(frame, [name])[0]
        if isinstance(column, Number):
            yield from _number_tally(name, column, cells, schema.missing)
        else:
            yield from _category_tally(name, column, cells, schema.missing)
    yield _unknown(frame, schema.target.column, schema.target.coding, schema.missing, _LEFT_OUT)
    for entry in schema.sensitive:
        yield _unknown(frame, entry.column, entry.coding, schema.missing, "the row belongs to no group")
    yield from _row_tally(frame, encoder)


def _number_tally(name: str, column: Number, cells: Cells, missing: MissingCells) -> Tally:
    numbers, is_missing = numbers_of(cells, missing), _is_missing(cells, missing)
    low, high = column.bounds
    yield Place(name, "missing", _AS_MISSING), int(is_missing.sum())
    yield Place(name, "not a number", _AS_MISSING), int((np.isnan(numbers) & ~is_missing).sum())
    yield Place(name, "below the bounds", f"clipped to {low:g}"), int((numbers < low).sum())
    yield Place(name, "above the bounds", f"clipped to {high:g}"), int((numbers > high).sum())


def _category_tally(name: str, column: Category, cells: Cells, missing: MissingCells) -> Tally:
    known = frozenset(column.categories)
    is_known = map_cells(cells, lambda cell: canonical_text(cell) in known, np.bool_)
    is_missing = _is_missing(cells, missing) & ~is_known
    yield Place(name, "missing", _AS_MISSING), int(is_missing.sum())
    yield Place(name, "not in categories", 'level "other"'), int((~is_known & ~is_missing).sum())


def _is_missing(cells: Cells, missing: MissingCells) -> NDArray[np.bool_]:
    return map_cells(cells, lambda cell: missing.holds(canonical_text(cell)), np.bool_)


def _unknown(
    frame: pd.DataFrame, name: str, coding: Coding, missing: MissingCells, ignored: str
) -> tuple[Place, int]:
    codes = replace(coding, unknown=IGNORE).codes(columns_of(frame, [name])[0], missing)
    rule = ignored if coding.unknown == IGNORE else f'counts as "{coding.unknown}"'
    return Place(name, f"none of {', '.join(coding.names)}", rule), int((codes < 0).sum())


def _row_tally(frame: pd.DataFrame, encoder: Encoder) -> Tally:
    schema = encoder.schema
    for rule in schema.where:
        is_met = meets(rule, columns_of(frame, [rule.column])[0], schema.missing)
        yield Place(rule.column, "fails the row rule", _LEFT_OUT), int((~is_met).sum())
    kept = encoder.keep(frame) & (encoder.targets(columns_of(frame, [schema.target.column])[0]) >= 0)
    if schema.id_column:
        has_person = encoder.persons(columns_of(frame, [schema.id_column])[0]) >= 0
        yield Place(schema.id_column, "no id", _LEFT_OUT), int((~has_person).sum())
        kept &= has_person
    yield _COUNTED, int(kept.sum())
