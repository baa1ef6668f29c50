"""A table in, a first schema out: exact and as private as the rows, or from noisy counts at a stated privacy cost.

`draft_schema` reads exact counts; a person must check and approve its draft line by line. With an epsilon it pays for
noisy counts (`draft_privately`); the bounds, bins and categories that follow are then public. Both end in the pure
functions of `data.guessing`, which turn counts into facts whether the counts are noisy or not.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairveil._random import secret_coins
from fairveil._validation import check_budget, check_number
from fairveil.accounting.events import ApproximateDP, Charge
from fairveil.data.encoding import Encoder, MissingCells, columns_of, counted_cells, distinct_cells, numbers_of
from fairveil.data.files import UTF8, is_utf8
from fairveil.data.frames import as_pandas
from fairveil.data.guessing import (
    MAX_CODES,
    N_BINS,
    ColumnCounts,
    categories_from_counts,
    cuts_from_histogram,
    guess_facts,
    halving_cut,
    names_between,
    number_text,
    positive_class,
    rounded_down,
)
from fairveil.data.inspection import LevelCounts, count_levels, revealing
from fairveil.data.readers import CHUNK_ROWS, Chunk, guess_delimiter, is_parquet, open_text, read_chunks, table_columns
from fairveil.data.schema import DEFAULT_MISSING, Category, Number, Schema, Sensitive, Target, TextFile
from fairveil.data.values import FORMATS, PLAIN, Format, canonical_text, plain_text
from fairveil.errors import BadStructureError, InvalidParameterError, MissingPublicFactError, without_array_sizes
from fairveil.privacy.column_counts import CellCounts, RawColumn, open_columns, smallest_shown
from fairveil.privacy.ledger import Ledger, LedgerOrPath, open_ledger

T = TypeVar("T", Target, Sensitive)
Table: TypeAlias = "str | Path | pd.DataFrame"

MISSING_SPELLINGS = (*DEFAULT_MISSING, "n/a", "#N/A", "NULL", "none", "<NA>", "-", "--", ".")
"""What a draft declares as missing: a fixed list that does not depend on the rows."""

SIZES = [float(f"{digit}e{decade}") for decade in range(-4, 9) for digit in range(1, 10)]
EDGES = np.array([*(-size for size in reversed(SIZES)), 0.0, *SIZES])
"""Public edges for any number column: 1 to 9 times powers of ten, both signs."""

FALSE_BINS = 0.01
"""How many empty bins of a column may be mistaken for filled ones, on average."""

CODED_SHARE = 1 / 16
"""The share of epsilon that pays for the classes, and as much for the groups: whether they show must not depend on how
many other columns there are. Half of epsilon pays for counts, and what is left for the other texts."""

MOST_NEEDED_ROWS = 10**5
"""A private draft at which a class must have more rows to show is refused, unless so many rows are declared."""

ONE_SIDED = 0.8
"""A private note is made if one class has at least this share of the rows."""

LEAK_CHUNKS = 4
"""Columns that give the target away are sought in so many chunks of rows."""

MAX_DISTINCT = 2**18
"""Of a column with more distinct texts (a float, an id) not all are kept in memory at once."""

MAX_PART = 2**20
"""A private draft counts the texts of such a column in parts of so many, about 150 MB: each reads the rows again."""

MAX_PARTS = 2**10
"""No more passes over the rows than this: parts are then larger."""

SMALL_GROUP = 300
"""A private note is made about groups of fewer rows."""


@dataclass(frozen=True)
class DraftRequest:
    """What a person declares for a draft; all of it is public.

    Attributes
    ----------
    target : str
    sensitive : tuple of str
    positive : str or None
        The class that counts as positive.
    cuts : tuple of float
        Cut points for a sensitive column of numbers.
    formats : mapping of column to format
        How columns spell numbers.
    n_public : int or None
        The number of rows, if it is public.
    """

    target: str
    sensitive: tuple[str, ...] = ()
    positive: str | None = None
    cuts: tuple[float, ...] = ()
    formats: Mapping[str, Format] = ()  # type: ignore[assignment]
    n_public: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "formats", dict(self.formats or {}))
        object.__setattr__(self, "cuts", tuple(float(cut) for cut in self.cuts))
        for name, form in self.formats.items():
            if form not in FORMATS:
                known = ", ".join(f'"{one}"' for one in FORMATS)
                raise InvalidParameterError(f'Expected the format of "{name}" to be one of {known}, got {form!r}.')
        if any(not math.isfinite(cut) for cut in self.cuts) or list(self.cuts) != sorted(set(self.cuts)):
            raise InvalidParameterError(f"Expected cuts in increasing order, got {list(self.cuts)}.")
        if self.cuts and len(self.sensitive) != 1:
            raise InvalidParameterError("Expected cuts with one sensitive column; write those of others in the schema.")

    @property
    def wanted(self) -> list[str]:
        """The columns that the table must have."""
        return [self.target, *self.sensitive, *self.formats]


class _Opened:
    """The chunks of a file or of a table in memory, as often as they are needed."""

    def __init__(self, table: Table, request: DraftRequest, delimiter: str | None, encoding: str | None) -> None:
        self.table, self.file = table, TextFile()
        if isinstance(table, pd.DataFrame):
            columns_of(table, request.wanted)
            self.names = [str(label).strip() for label in table.columns]
            self.name = ""
            return
        if not is_parquet(table):
            encoding = encoding or UTF8
            delimiter = delimiter or guess_delimiter(table, request.wanted, encoding)
            self.file = TextFile(delimiter=delimiter, encoding=encoding)
        self.names = table_columns(table, self.file.delimiter, request.wanted, self.file.encoding)
        self.name = Path(table).name.split(".")[0]

    def chunks(self, names: Sequence[str] = ()) -> Iterator[Chunk]:
        """Yield the chunks, with the columns of some names or with all."""
        if not isinstance(self.table, pd.DataFrame):
            wanted = list(names) or self.names
            yield from read_chunks(self.table, wanted, CHUNK_ROWS, self.file.delimiter, self.file.encoding)
            return
        frame = self.table.set_axis(self.names, axis=1)
        for start in range(0, max(len(frame), 1), CHUNK_ROWS):
            yield Chunk(frame.iloc[start : start + CHUNK_ROWS])


@without_array_sizes()
def draft_schema(
    table: Table,
    target: str,
    sensitive: str | Sequence[str] = (),
    *,
    positive: str | None = None,
    cuts: Sequence[float] = (),
    formats: Mapping[str, Format] | None = None,
    n_public: int | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    epsilon: float | None = None,
    delta: float = 1e-6,
    ledger: LedgerOrPath | None = None,
) -> Schema:
    """Return a first schema of a table: a private draft from exact counts, or with `epsilon` a public one.

    Parameters
    ----------
    table : path of a CSV or Parquet file or of a folder of Parquet files, or data frame of any kind
        The rows.
    target : str
        The column to predict.
    sensitive : str or sequence of str
        The column of groups; several without `epsilon`.
    positive : str, optional
        The class that counts as positive. By default the one of a desirable name such as "yes", else the last one.
    cuts : sequence of float
        Cut points for a sensitive column of numbers. By default one that halves the rows.
    formats : mapping of column to format, optional
        How columns spell numbers, where it is known; see `Number`.
    n_public : int, optional
        The number of rows, if it is public.
    delimiter, encoding : str, optional
        Those of a CSV file. By default the delimiter is read off the first line, and the encoding is UTF-8.
    epsilon, delta : float
        If epsilon is set, the draft is made from noisy counts at this cost, which is debited first.
    ledger : Ledger or path, optional
        Privacy ledger of this data set, for a draft with epsilon.

    Returns
    -------
    Schema
        Without epsilon it is marked as a private draft, which training refuses until a person has checked each line
        and called `approved`.

    Notes
    -----
    A column is a number if at least 95 % of its cells that are not missing are numbers (or dates) in one format and
    more than 12 are distinct, else a category. Bounds are rounded outward, cuts divide the rows evenly at round
    numbers, and categories have at least 10 rows. Columns that seem to hold ids or mostly rare values are left out.

    *Guarantees*: without epsilon none, because every line depends on exact counts: the draft is as private as the rows.
    With epsilon (epsilon, delta)-differential privacy of the schema, one row added or removed; names of columns count
    as public.

    Examples
    --------
    >>> rows = pd.DataFrame({"age": [20, 40] * 20, "sex": ["f", "m", "m", "f"] * 10, "hired": ["no", "yes"] * 20})
    >>> schema = draft_schema(rows, "hired", "sex")
    >>> schema.private_draft, schema.target.positive, schema.sensitive[0].groups
    (True, 'yes', ('f', 'm'))
    """
    if not isinstance(table, (str, Path)):
        table = as_pandas(table)
    names = (sensitive,) if isinstance(sensitive, str) else tuple(sensitive)
    request = DraftRequest(target, names, positive, tuple(cuts), formats or {}, n_public)
    if epsilon is not None:
        kind = {"delimiter": delimiter, "encoding": encoding}
        return draft_privately(table, request, epsilon, delta, open_ledger(ledger), **kind)
    opened = _Opened(table, request, delimiter, encoding)
    if encoding is None and not isinstance(table, pd.DataFrame) and not is_parquet(table):
        with open_text(table) as file:
            if not is_utf8(file):
                raise BadStructureError(
                    f"Expected UTF-8 text in {table}, got other bytes; name its encoding: --encoding cp1252 (Windows), "
                    "--encoding latin-1, or --encoding utf-8 to keep such bytes as codes."
                )
    columns, n_rows, n_malformed = _count_texts(opened, request)
    guesses = {name: guess_facts(name, columns[name]) for name in opened.names if name and name != target}
    schema = Schema(
        name=opened.name,
        notes=tuple(note for _, note in guesses.values() if note),
        n_public=n_public,
        missing_values=MISSING_SPELLINGS,
        private_draft=True,
        file=opened.file,
        target=_target(columns[target], request),
        sensitive=tuple(_coded(Sensitive, "groups", name, columns[name], request.cuts) for name in names),
        columns={name: facts for name, (facts, _) in guesses.items() if facts is not None},
    )
    notes = _private_notes(opened, schema, columns, n_rows, n_malformed)
    return schema.model_copy(update={"private_notes": tuple(notes)})


def _count_texts(opened: _Opened, request: DraftRequest) -> tuple[dict[str, ColumnCounts], int, int]:
    """Return the counts of every column, the number of rows, and the number of malformed lines: private."""
    missing, n_rows, n_malformed = MissingCells.of(MISSING_SPELLINGS), 0, 0
    spelled: dict[str, Counter[str]] = {name: Counter() for name in opened.names}
    n_unlisted: Counter[str] = Counter()
    is_text = not isinstance(opened.table, pd.DataFrame) and not is_parquet(opened.table)
    for chunk in opened.chunks():
        n_rows, n_malformed = n_rows + len(chunk.frame), n_malformed + chunk.n_malformed
        for name in opened.names:
            listed = spelled[name]
            for cell, count in counted_cells(chunk.frame[name]):
                text = plain_text(cell) if is_text and cell is not None else canonical_text(cell)
                if text is None or missing.holds(text):
                    continue
                if text in listed or len(listed) < MAX_DISTINCT:
                    listed[text] += count
                else:
                    n_unlisted[name] += count
    columns = {}
    for name, listed in spelled.items():
        column = ColumnCounts.of(listed, request.formats.get(name), opened.file.delimiter == ";")
        columns[name] = replace(column, n_unlisted=n_unlisted[name])
    wide = [name for name in columns if n_unlisted[name] and columns[name].is_number and not columns[name].is_id(name)]
    return columns | _rounded_numbers(opened, columns, wide), n_rows, n_malformed


def _rounded_numbers(
    opened: _Opened, columns: Mapping[str, ColumnCounts], names: Sequence[str]
) -> dict[str, ColumnCounts]:
    """Return the counts of columns with very many distinct numbers, rounded down to four digits except for the ends.

    Bounds follow from the ends, and cuts are round numbers of fewer digits: so both are those of the exact numbers.
    """
    missing = MissingCells.of(MISSING_SPELLINGS)
    rounded: dict[str, Counter[float]] = {name: Counter() for name in names}
    ends: dict[str, tuple[float, float]] = dict.fromkeys(names, (math.inf, -math.inf))
    for chunk in opened.chunks(names) if names else ():
        for name in names:
            numbers = numbers_of(chunk.frame[name], missing, columns[name].form or PLAIN)
            numbers = numbers[np.isfinite(numbers)]
            if len(numbers):
                ends[name] = min(ends[name][0], numbers.min()), max(ends[name][1], numbers.max())
                for number, count in zip(*np.unique(rounded_down(numbers), return_counts=True), strict=True):
                    rounded[name][float(number)] += int(count)
    found = {}
    for name, counts in rounded.items():
        form, (low, high) = columns[name].form, ends[name]
        counts[min(counts)] -= 1
        counts[max(counts)] -= 1
        counts.update([low, high])
        spelled = {number_text(number, form or PLAIN): count for number, count in counts.items()}
        found[name] = ColumnCounts(spelled, form, np.array(list(counts), dtype=float))
    return found


def _target(column: ColumnCounts, request: DraftRequest) -> Target:
    drafted = _coded(Target, "classes", request.target, column)
    positive = positive_class(drafted.classes) if request.positive is None else request.positive
    if positive not in drafted.classes:
        raise BadStructureError(
            f'Expected positive to be a class of "{request.target}" with at least 10 rows, got {positive!r}; check how '
            "the table spells it."
        )
    return drafted.model_copy(update={"positive": positive})


def _coded(kind: type[T], key: str, name: str, column: ColumnCounts, cuts: tuple[float, ...] = ()) -> T:
    """Return the target or the groups of a column; the refusal of its values must not quote them."""
    try:
        cuts = cuts or (halving_cut(column) if column.is_number else ())
        names = names_between(cuts) if cuts else categories_from_counts(column.counts)
        form = (column.form or PLAIN) if cuts else PLAIN
        facts: dict[str, Any] = {"column": name, key: names, "cuts": cuts, "format": form}
        return kind(**facts)
    except BadStructureError:
        raise BadStructureError(
            f'Expected a column with at least two frequent values, got "{name}", whose values do not make classes or '
            "groups; write the schema by hand."
        ) from None


def _private_notes(
    opened: _Opened, schema: Schema, columns: Mapping[str, ColumnCounts], n_rows: int, n_malformed: int
) -> Iterator[str]:
    """Yield what the holder of the rows should know before anything is trained: exact, and private."""
    encoder, levels = Encoder(schema), LevelCounts()
    for chunk in islice(opened.chunks(), LEAK_CHUNKS):
        levels.update(count_levels(chunk.frame, encoder, [schema.target]))
    entries: list[Target | Sensitive] = [schema.target, *schema.sensitive]
    names = [schema.target.classes, *(entry.groups for entry in schema.sensitive)]
    sizes = []
    for entry, some in zip(entries, names, strict=True):
        column = columns[entry.column]
        codes = encoder.codes_in(np.array(list(column.spelled), dtype=object), entry, some)
        of_code = np.bincount(codes + 1, weights=column.weights, minlength=len(some) + 1).astype(int)
        of_code[0] = n_rows - of_code[1:].sum()
        sizes.append(of_code)
    if n_malformed:
        yield f"{n_malformed} malformed lines contribute nothing: line breaks in cells, or quotes that do not match up."
    of_class, target = sizes[0], schema.target
    if of_class[0]:
        yield f'{of_class[0]} of {n_rows} rows have no class in "{target.column}" and contribute nothing.'
    largest = int(of_class[1:].argmax())
    share = of_class[1:][largest] / max(of_class[1:].sum(), 1)
    if share >= ONE_SIDED:
        yield f'{share:.1%} of the rows are "{target.classes[largest]}": a rule that says so for all is right as often.'
    for entry, groups, counts in zip(entries[1:], names[1:], sizes[1:], strict=True):
        if counts[0]:
            yield f'{counts[0]} of {n_rows} rows belong to no group of "{entry.column}".'
        for group, count in zip(groups, counts[1:].tolist(), strict=True):
            if count < SMALL_GROUP:
                yield f'The group "{group}" of "{entry.column}" has {count} rows: too few to show a small gap.'
    for name, (_, share) in revealing(levels, target).items():
        yield (
            f'The column "{name}" alone predicts the target of {share:.1%} of the rows: it may give the target away. '
            f"Remove [columns.{name}] unless it is known before the decision."
        )


# --- at a price -------------------------------------------------------------------------------------------------------


@without_array_sizes()
def draft_privately(
    table: Table,
    request: DraftRequest,
    epsilon: float,
    delta: float,
    ledger: Ledger,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
) -> Schema:
    """Return a schema drafted from noisy counts.

    Half of epsilon pays for counts between public edges in every column: they separate numbers from texts and place
    bounds and bins. The other half pays for the frequent values of the target, the groups and the text columns. What is
    rare stays hidden and falls under "other".

    Guarantees
    ----------
    (epsilon, delta)-differential privacy of the schema, one row added or removed. Column names count as public.
    """
    check_number("epsilon", epsilon)
    check_budget(epsilon, delta)
    if len(request.sensitive) != 1:
        raise InvalidParameterError("Expected one sensitive column with epsilon; add others to the schema by hand.")
    opened, (sensitive,) = _Opened(table, request, delimiter, encoding), request.sensitive
    names, target = opened.names, request.target
    _check_price(request, epsilon, delta, len(names))
    ledger.check([Charge(ApproximateDP(epsilon, delta))])
    columns = _raw_columns(opened, request)
    if not isinstance(table, pd.DataFrame):
        ledger.record_data(table)
    veil = open_columns(columns, epsilon, delta, ledger, secret_coins(), "schema draft")
    counts = {name: veil.release_counts(name, epsilon / 2 / len(names)) for name in names}
    coded = [target] if request.cuts else [target, sensitive]
    texts = {name: veil.release_texts(name, CODED_SHARE * epsilon, delta / 4) for name in coded}
    others = [name for name in names if name not in (target, sensitive)]
    numbers = {name for name in others if _is_number(counts[name])}
    left = [name for name in others if name not in numbers]
    for name in left:
        texts[name] = veil.release_texts(name, (1 / 2 - 2 * CODED_SHARE) * epsilon / len(left), delta / 2 / len(left))
    facts: dict[str, Number | Category | None] = {}
    for name in names:
        is_number = name in numbers or (name == sensitive and (request.cuts or len(texts[name]) > MAX_CODES))
        form = request.formats.get(name, PLAIN)
        facts[name] = _number(counts[name], form) if is_number else _category(texts[name])
    sizes = [float(count.numbers.sum() + count.texts + count.missing) for count in counts.values()]
    notes = [f"Drafted with epsilon {epsilon:g}, delta {delta:g}; values too rare to show fall under 'other'."]
    notes += [
        f"Left out as a feature, for no value was frequent enough to show: {name}" for name in left if not texts[name]
    ]
    return Schema(
        name=opened.name,
        notes=tuple(notes),
        n_public=request.n_public or max(1, round(float(np.mean(sizes)))),
        missing_values=MISSING_SPELLINGS,
        file=opened.file,
        target=_noisy_target(request, texts[target], counts[target]),
        sensitive=(_noisy_coded(Sensitive, "groups", sensitive, texts.get(sensitive, {}), counts[sensitive], request),),
        columns={name: fact for name, fact in facts.items() if fact is not None and name != target},
    )


def _check_price(request: DraftRequest, epsilon: float, delta: float, n_columns: int) -> None:
    """Refuse an epsilon at which no class or no feature could show, by public facts and before anything is spent."""
    shown = smallest_shown(CODED_SHARE * epsilon, delta / 4)
    filled = _least_count(2 * n_columns / epsilon)
    n_rows = 2 * MOST_NEEDED_ROWS if request.n_public is None else request.n_public
    if n_rows >= 2 * shown and n_rows >= filled:
        return
    share = max(2 * shown, filled) / n_rows
    declared = "" if request.n_public is None else f" with {request.n_public:,} rows"
    raise InvalidParameterError(
        f"Expected an epsilon at which two classes and a feature can show{declared}, got {epsilon:g}, at which a class "
        f"needs about {shown:,} rows and one bin of {n_columns} columns {filled:,.0f}; spend {epsilon * share:.2g}, or "
        "drop columns, or write the schema by hand. Nothing was spent."
    )


def _raw_columns(opened: _Opened, request: DraftRequest) -> dict[str, RawColumn]:
    """Return the exact counts of every column; texts of a column that has very many are counted when they are read."""
    missing = MissingCells.of(MISSING_SPELLINGS)
    cells = {name: np.zeros(len(EDGES) + 3, dtype=np.int64) for name in opened.names}
    texts: dict[str, Counter[str]] = {name: Counter() for name in opened.names}
    wide: set[str] = set()
    for chunk in opened.chunks():
        for name in opened.names:
            column = chunk.frame[name]
            numbers = numbers_of(column, missing, request.formats.get(name, PLAIN))
            is_number = ~np.isnan(numbers)
            bins = np.bincount(np.searchsorted(EDGES, numbers[is_number], side="right"), minlength=len(EDGES) + 1)
            places, distinct = distinct_cells(column)
            is_missing = np.array([missing.holds(canonical_text(cell)) for cell in distinct], dtype=bool)[places]
            n_texts, n_missing = np.sum(~is_number & ~is_missing), np.sum(~is_number & is_missing)
            cells[name] += np.append(bins, [n_texts, n_missing])
            if name not in wide:
                _add_texts(texts[name], column, missing)
            if len(texts[name]) > MAX_DISTINCT:
                wide.add(name)
                texts[name].clear()
    return {
        name: RawColumn(cells[name], _TextParts(opened, name) if name in wide else [texts[name]])
        for name in opened.names
    }


def _add_texts(counts: Counter[str], column: pd.Series, missing: MissingCells, part: tuple[int, int] = (0, 1)) -> None:
    """Count the texts of a column that are not missing and belong to a part of so many."""
    place, n_parts = part
    for cell, count in counted_cells(column):
        text = canonical_text(cell)
        if text is None or missing.holds(text):
            continue
        if n_parts == 1 or hash(text) % n_parts == place:  # differs from one process to the next
            counts[text] += count


@dataclass(frozen=True, repr=False)
class _TextParts:
    """The counts of the texts of a column that has very many of them, part by part: each part reads the rows again."""

    opened: _Opened
    name: str

    def __iter__(self) -> Iterator[Counter[str]]:
        n_parts, place = 2, 0
        while place < n_parts:
            counts = self._count(place, n_parts)
            if counts is not None:
                yield counts
                place += 1
            else:
                n_parts *= 2  # parts are alike: if the first one is small enough, so are the others

    def _count(self, place: int, n_parts: int) -> Counter[str] | None:
        """Return the counts of a part, None if it is the first one and has too many texts."""
        missing, counts = MissingCells.of(MISSING_SPELLINGS), Counter[str]()
        for chunk in self.opened.chunks([self.name]):
            _add_texts(counts, chunk.frame[self.name], missing, (place, n_parts))
            if not place and len(counts) > MAX_PART and n_parts < MAX_PARTS:
                return None
        return counts


def _is_number(counts: CellCounts) -> bool:
    return bool(_cleared(counts).sum() > max(0.0, counts.texts))


def _least_count(scale: float) -> float:
    """Return the noisy count below which a bin may be filled by noise alone."""
    return scale * math.log((len(EDGES) + 1) / (2 * FALSE_BINS))


def _cleared(counts: CellCounts) -> NDArray[np.float64]:
    """Return the counts with those that may be noise alone set to zero."""
    return np.where(counts.numbers >= _least_count(counts.scale), counts.numbers, 0.0)


def _number(counts: CellCounts, form: Format) -> Number | None:
    """Return cuts that divide the bins that are filled beyond doubt, with one more bin below and one above."""
    cleared = _cleared(counts)
    filled = np.flatnonzero(cleared)
    if not len(filled):
        return None
    ends = [4 * EDGES[0], 2 * EDGES[0], *EDGES.tolist(), 2 * EDGES[-1], 4 * EDGES[-1]]
    first, last = int(filled[0]) + 1, int(filled[-1]) + 2
    inner = cuts_from_histogram(ends[first : last + 1], cleared[first - 1 : last - 1], N_BINS)
    return Number(bounds=(ends[first - 1], ends[last + 1]), cuts=(ends[first], *inner, ends[last]), format=form)


def _category(counts: dict[str, float]) -> Category | None:
    names = categories_from_counts(counts, at_least=0)
    return Category(categories=names) if names else None


def _noisy_target(request: DraftRequest, texts: dict[str, float], counts: CellCounts) -> Target:
    """Return the classes; a positive class that was declared and does not show is one all the same."""
    if request.positive is not None and len(texts) <= MAX_CODES:
        texts = {request.positive: math.inf, **texts}
    drafted = _noisy_coded(Target, "classes", request.target, texts, counts, request)
    declared = request.positive if request.positive in drafted.classes else None
    return drafted.model_copy(update={"positive": declared or positive_class(drafted.classes)})


def _noisy_coded(
    kind: type[T], key: str, name: str, texts: dict[str, float], counts: CellCounts, request: DraftRequest
) -> T:
    """Return the classes or groups that show; those of a column of many numbers are cut at a round number."""
    cuts = request.cuts if kind is Sensitive else ()
    if not cuts and len(texts) > MAX_CODES and _is_number(counts):
        cuts = cuts_from_histogram(EDGES, _cleared(counts)[1:-1], n_bins=2)
    names = names_between(cuts) if cuts else categories_from_counts(texts, at_least=0)
    if len(names) < 2:
        raise MissingPublicFactError(
            f'Expected at least two frequent {key} in "{name}" at this budget, got {len(names)}; '
            "spend more, or write the schema by hand (what was debited stays debited)."
        )
    facts: dict[str, Any] = {"column": name, key: names, "cuts": cuts}
    return kind(**facts, format=request.formats.get(name, PLAIN) if cuts else PLAIN)
