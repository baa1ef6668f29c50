"""A file and its schema in, what does not fit out: exact counts, for the data holder's eyes only.

Nothing in fairveil acts on these counts. Training on the same file follows the stated rules silently; this is
how the person who holds the rows learns how often they apply.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairveil.data.coding import IGNORE, Coding
from fairveil.data.encoding import Encoder, columns_of
from fairveil.data.facts import Category, Number
from fairveil.data.loaders import columns_needed
from fairveil.data.row_rules import meets
from fairveil.data.schema import Schema
from fairveil.data.tables import CHUNK_ROWS, Chunk, read_chunks
from fairveil.data.telling_columns import Seen, given_away, see
from fairveil.data.values import Cells, MissingCells, canonical_text, map_cells, numbers_of

__all__ = ["Finding", "check_table"]

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
class Finding:
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


def check_table(path: str | Path, schema: Schema, *, delimiter: str = ",") -> list[Finding]:
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
        Finding(place.column, place.what, count, place.rule) for place, count in counts.items() if count
    ]
    return [*findings, *_telling_findings(schema, seen), *_size_findings(schema, n_rows)]


def _telling_findings(schema: Schema, seen: Seen) -> Iterator[Finding]:
    for entry in schema.sensitive:
        for name, (count, share) in given_away(seen, entry).items():
            rule = f"where {entry.column} alone is secret it is no secret: leave this feature out"
            yield Finding(name, f"rows whose {entry.column} it tells ({share:.1%})", count, rule)


_COUNTED = Place("", "rows that count", "they are what training sees")


def _size_findings(schema: Schema, n_rows: int) -> Iterator[Finding]:
    yield Finding("", _COUNTED.what, n_rows, _COUNTED.rule)
    if schema.n_public is not None and schema.n_public != n_rows:
        rule = f"n_public = {schema.n_public} stands for the number of rows everywhere"
        yield Finding("", "difference from n_public", n_rows - schema.n_public, rule)


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
