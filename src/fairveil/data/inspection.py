"""A file and its schema in, what does not fit out: exact counts, for the eyes of the data holder only.

Nothing in fairveil acts on these counts. Training on the same file follows the stated rules silently; this is
how the person who holds the rows learns how often they apply.

The same pass finds features that give the target away, and proxies: features that reveal a sensitive attribute. If the
attribute alone is to be secret, a public feature that determines it leaves nothing to hide. Training cannot refuse it,
because a check would read the secret; the person who holds the rows can.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fairveil.data.encoding import Encoder, MissingCells, columns_of, distinct_cells, numbers_of
from fairveil.data.readers import CHUNK_ROWS, Chunk, columns_needed, read_chunks
from fairveil.data.schema import IGNORE, Category, Schema, Sensitive, Target
from fairveil.data.values import canonical_text
from fairveil.errors import without_array_sizes

PROXY_ACCURACY = 0.99
"""A feature reveals a group or a class if its level alone predicts it for this share of the rows where it is known."""

MAX_WHOLE_LEVELS = 2000
"""A number column with a wider range than this is cut into 256 bins instead of whole numbers."""

MIN_ROWS_PER_LEVEL = 20
"""A feature with fewer rows per level predicts nothing: each row would have a level of its own."""

MAX_COUNTED = 2**20
"""Levels of all features, by class and group, that are counted. Where there are more, the features with most levels,
which name people rather than kinds of people, are no longer checked for what they reveal."""

Mismatch = tuple[str, str, str]
"""The column ("" for the whole table), how cells do not fit, and the rule that then applies."""

LevelCounts = Counter[tuple[str, str, Hashable, int]]
"""How often (feature, target or sensitive column, level, code of the class or group) occurs."""

_COUNTED: Mismatch = ("", "rows that count", "they are what training sees")
_LEFT_OUT = "the row contributes nothing"


@dataclass(frozen=True)
class SchemaMismatch:
    """How often a cell or row does not fit: PRIVATE, an exact count.

    Attributes
    ----------
    column : str
        The column, empty for the whole table.
    what : str
        How cells do not fit.
    count : int
        How many, exactly.
    rule : str
        What becomes of them.
    """

    column: str
    what: str
    count: int
    rule: str


@without_array_sizes()
def check_table(
    path: str | Path, schema: Schema, *, delimiter: str | None = None, encoding: str | None = None
) -> list[SchemaMismatch]:
    """Return what in a file does not fit its schema; mismatches that never occur are left out.

    Delimiter and encoding are those of the schema unless others are named.

    Guarantees
    ----------
    None: the counts are exact. They are for the person who already holds the rows, and not to be published.
    """
    columns = dict.fromkeys([*columns_needed(schema), *(entry.column for entry in schema.sensitive)])
    encoder = Encoder(schema)
    counts: Counter[Mismatch] = Counter()
    levels: LevelCounts = Counter()
    left_out: set[str] = set()
    kind = (delimiter or schema.file.delimiter, encoding or schema.file.encoding)
    for chunk in read_chunks(path, list(columns), CHUNK_ROWS, *kind):
        for mismatch, count in _count_mismatches(chunk, encoder):
            counts[mismatch] += count
        levels.update(count_levels(chunk.frame, encoder, [schema.target, *schema.sensitive], left_out))
        if len(levels) > MAX_COUNTED:
            sizes = Counter(name for name, *_ in levels)
            left_out |= {name for name, size in sizes.items() if size * len(sizes) > MAX_COUNTED}
            levels = Counter({key: count for key, count in levels.items() if key[0] not in left_out})
    n_rows = counts.pop(_COUNTED)
    found = [SchemaMismatch(column, what, n, rule) for (column, what, rule), n in counts.items() if n]
    for name, (count, share) in revealing(levels, schema.target).items():
        what = f"rows whose {schema.target.column} it gives away ({share:.1%})"
        found.append(SchemaMismatch(name, what, count, "leave it out unless it is known before the decision"))
    for entry in schema.sensitive:
        rule = f"where {entry.column} alone is secret it is no secret: leave this feature out"
        for name, (count, share) in revealing(levels, entry).items():
            found.append(SchemaMismatch(name, f"rows whose {entry.column} it reveals ({share:.1%})", count, rule))
    found.append(SchemaMismatch("", _COUNTED[1], n_rows, _COUNTED[2]))
    if schema.n_public is not None and schema.n_public != n_rows:
        rule = f"n_public = {schema.n_public} stands for the number of rows everywhere"
        found.append(SchemaMismatch("", "difference from n_public", n_rows - schema.n_public, rule))
    return found


def _count_mismatches(chunk: Chunk, encoder: Encoder) -> Iterator[tuple[Mismatch, int]]:
    """Yield everything in a chunk that may not fit, with its count, and the number of rows that count."""
    schema, frame = encoder.schema, chunk.frame
    missing = MissingCells.of(schema.missing_values)
    yield ("", "malformed lines", "they contribute nothing"), chunk.n_malformed
    for name, column in schema.columns.items():
        cells = columns_of(frame, [name])[0]
        places, distinct = distinct_cells(cells)
        texts = [canonical_text(cell) for cell in distinct]
        is_missing = np.array([missing.holds(text) for text in texts], dtype=bool)[places]
        if isinstance(column, Category):
            known = frozenset(column.categories)
            is_known = np.array([text in known for text in texts], dtype=bool)[places]
            is_missing &= ~is_known
            yield (name, "missing", 'level "missing"'), int(is_missing.sum())
            yield (name, "not in categories", 'level "other"'), int((~is_known & ~is_missing).sum())
            continue
        numbers, (low, high) = numbers_of(cells, missing, column.format), column.bounds
        is_text = np.isnan(numbers) & ~is_missing
        yield (name, "missing", 'level "missing"'), int(is_missing.sum())
        yield (name, "not a number", 'level "missing"'), int(is_text.sum())
        yield (name, "below the bounds", f"clipped to {low:g}"), int((numbers < low).sum())
        yield (name, "above the bounds", f"clipped to {high:g}"), int((numbers > high).sum())
    coded: list[tuple[Target | Sensitive, tuple[str, ...], str]] = [(schema.target, schema.target.classes, _LEFT_OUT)]
    coded += [(entry, entry.groups, "the row belongs to no group") for entry in schema.sensitive]
    for facts, names, ignored in coded:
        strict = facts.model_copy(update={"unknown": IGNORE})
        codes = encoder.codes_in(columns_of(frame, [facts.column])[0], strict, names)
        rule = ignored if facts.unknown == IGNORE else f'counts as "{facts.unknown}"'
        yield (facts.column, f"none of {', '.join(names)}", rule), int((codes < 0).sum())
    kept = encoder.targets(columns_of(frame, [schema.target.column])[0]) >= 0
    for condition in schema.where:
        is_met = encoder.meets(condition, columns_of(frame, [condition.column])[0])
        yield (condition.column, "fails the row rule", _LEFT_OUT), int((~is_met).sum())
        kept &= is_met
    if schema.id_column:
        has_person = encoder.persons(columns_of(frame, [schema.id_column])[0]) >= 0
        yield (schema.id_column, "no id", _LEFT_OUT), int((~has_person).sum())
        kept &= has_person
    yield _COUNTED, int(kept.sum())


def count_levels(
    frame: pd.DataFrame,
    encoder: Encoder,
    entries: Sequence[Target | Sensitive],
    left_out: Collection[str] = (),
) -> LevelCounts:
    """Return how often each level of features occurs in each class or group, among the rows of one chunk.

    Features that are `left_out` are not counted.
    """
    counts: LevelCounts = Counter()
    missing = MissingCells.of(encoder.schema.missing_values)
    coded = []
    for entry in entries:
        names = entry.classes if isinstance(entry, Target) else entry.groups
        coded.append((entry, encoder.codes_in(columns_of(frame, [entry.column])[0], entry, names), len(names)))
    for name, column in encoder.schema.columns.items():
        cells = columns_of(frame, [name])[0]
        if name in left_out:
            continue
        if isinstance(column, Category):
            places, several = distinct_cells(cells)
            texts = [canonical_text(cell) or "" for cell in several]
            distinct = list(dict.fromkeys(texts))
            place_of = {text: place for place, text in enumerate(distinct)}
            places = np.array([place_of[text] for text in texts], dtype=np.intp)[places]
        else:
            # as fine as whole numbers, not as coarse as the bins of the schema: others may know the file itself
            low, high = column.bounds
            is_fine = high - low <= MAX_WHOLE_LEVELS
            edges = np.arange(np.ceil(low), high + 1) if is_fine else np.linspace(low, high, 257)
            numbers = numbers_of(cells, missing, column.format)
            levels = np.where(np.isnan(numbers), -1, np.searchsorted(edges, numbers, side="right"))
            places, distinct = pd.factorize(levels)
        for entry, codes, n_codes in coded:
            if name == entry.column or (isinstance(entry, Sensitive) and name in entry.sources):
                continue  # refused by training itself
            is_known = codes >= 0
            joint_counts = np.bincount(places[is_known] * n_codes + codes[is_known])
            for joint in np.flatnonzero(joint_counts).tolist():
                place, code = divmod(joint, n_codes)
                counts[name, entry.column, distinct[place], code] += int(joint_counts[joint])
    return counts


def revealing(levels: LevelCounts, entry: Target | Sensitive) -> dict[str, tuple[int, float]]:
    """Return the features that reveal the classes or groups of a column: for how many rows, for what share of them."""
    best: dict[str, Counter[Hashable]] = {}
    sizes: dict[str, Counter[int]] = {}
    for (name, column, level, code), count in levels.items():
        if column == entry.column:
            largest = best.setdefault(name, Counter())
            largest[level] = max(largest[level], count)
            sizes.setdefault(name, Counter())[code] += count
    found = {}
    for name, largest in best.items():
        n_rows, n_revealed = sizes[name].total(), largest.total()
        # better than to predict the largest one for everyone, nearly always right, and not by levels of single rows
        is_better = max(sizes[name].values()) < n_revealed and PROXY_ACCURACY * n_rows <= n_revealed
        if is_better and len(largest) * MIN_ROWS_PER_LEVEL <= n_rows:
            found[name] = (n_revealed, n_revealed / n_rows)
    return found
