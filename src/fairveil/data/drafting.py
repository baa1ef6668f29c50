"""A table in, a first schema out: exact and as private as the rows, or from noisy counts at a stated privacy cost.

`draft_schema` reads exact counts; a person must check and approve its draft line by line. `draft_privately` pays for
noisy counts; the bounds, bins and categories that follow are then public. Both end in the same pure functions, which
turn counts into cut points and categories whether the counts are noisy or not. The grid of round numbers depends on
public bounds alone.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairveil._random import secret_coins
from fairveil._validation import check_budget, check_number
from fairveil.accounting.events import ApproximateDP, Charge
from fairveil.data.encoding import MissingCells, canonical_texts, numbers_of
from fairveil.data.readers import read_table, table_columns
from fairveil.data.schema import DEFAULT_MISSING, Category, Number, Schema, Sensitive, Target
from fairveil.data.values import number_of
from fairveil.errors import BadStructureError, MissingPublicFactError, without_array_sizes
from fairveil.privacy.column_counts import CellCounts, RawColumn, open_columns
from fairveil.privacy.ledger import Ledger

T = TypeVar("T", Target, Sensitive)

N_BINS = 10
MIN_CATEGORY_ROWS = 10
MAX_CATEGORIES = 100
_ROUND_DIGITS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
_DECADES = 5

MAX_CODES = 12
"""A number column with at most so many distinct values is taken for codes."""

NUMBER_SHARE = 0.95
"""A column is a number if this share of its cells that are not missing are numbers."""

SIZES = [float(f"{digit}e{decade}") for decade in range(-4, 9) for digit in range(1, 10)]
EDGES = np.array([*(-size for size in reversed(SIZES)), 0.0, *SIZES])
"""Public edges for any number column: 1 to 9 times powers of ten, both signs."""

FALSE_BINS = 0.01
"""How many empty bins of a column may be mistaken for filled ones, on average."""


@dataclass(frozen=True, repr=False)
class _Column:
    """The distinct cells of a column that are not missing, with their exact counts: private."""

    counts: Mapping[str, int]

    @cached_property
    def numbers(self) -> NDArray[np.float64]:
        return np.array([number_of(text) for text in self.counts], dtype=float)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        return np.array(list(self.counts.values()), dtype=float)

    @property
    def is_number(self) -> bool:
        share = self.weights[np.isfinite(self.numbers)].sum() / max(self.weights.sum(), 1.0)
        return len(self.counts) > MAX_CODES and share >= NUMBER_SHARE

    @property
    def is_id(self) -> bool:
        """Whether every row has its own text or its own number in an unbroken row of numbers."""
        if not len(self.counts) > MAX_CODES or self.weights.max() > 1:
            return False
        is_run = self.is_number and np.ptp(self.numbers[np.isfinite(self.numbers)]) == len(self.counts) - 1
        return bool(is_run) or not self.is_number

    @property
    def histogram(self) -> tuple[tuple[float, float], NDArray[np.float64], NDArray[np.float64]]:
        """The bounds, a grid of round numbers inside them, and the counts between its edges."""
        is_finite = np.isfinite(self.numbers)
        bounds = bounds_outward(self.numbers[is_finite].min(), self.numbers[is_finite].max())
        grid = round_grid(*bounds)
        return bounds, grid, np.histogram(self.numbers[is_finite], grid, weights=self.weights[is_finite])[0]


@without_array_sizes()
def draft_schema(path: str | Path, target: str, sensitive: Sequence[str] = (), *, delimiter: str = ",") -> Schema:
    """Return a schema guessed from the rows of a file, marked as a private draft.

    A column is a number if at least 95 % of its cells that are not missing are numbers and more than 12 are
    distinct, else a category. Bounds are rounded outward, cuts divide the rows evenly at round numbers, and
    categories have at least 10 rows. Columns that seem to hold ids are left out, and so is `n_public`.

    Guarantees
    ----------
    None: every line depends on exact counts. The draft is as private as the rows until a person has replaced
    or approved each line as public knowledge.
    """
    names = table_columns(path, delimiter, [target, *sensitive])
    columns = _count_texts(path, names, delimiter)
    facts = {name: _facts(columns[name]) for name in names if name and name != target}
    left_out = [name for name, fact in facts.items() if fact is None]
    return Schema(
        name=Path(path).stem,
        notes=tuple(
            f"Left out as a feature, for it seems to be an id or has no frequent value: {name}" for name in left_out
        ),
        private_draft=True,
        target=_coded(Target, "classes", target, columns[target]),
        sensitive=tuple(_coded(Sensitive, "groups", name, columns[name]) for name in sensitive),
        columns={name: fact for name, fact in facts.items() if fact is not None},
    )


def _count_texts(path: str | Path, names: list[str], delimiter: str) -> dict[str, _Column]:
    missing = MissingCells.of(DEFAULT_MISSING)
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for chunk in read_table(path, delimiter=delimiter):
        for name in names:
            counts[name].update(pd.Series(canonical_texts(chunk[name]), dtype=object).value_counts().to_dict())
    return {
        name: _Column({text: count for text, count in counter.items() if not missing.holds(text)})
        for name, counter in counts.items()
    }


def _facts(column: _Column) -> Number | Category | None:
    if column.is_id:
        return None
    if not column.is_number:
        categories = categories_from_counts(column.counts)
        return Category(categories=categories) if categories else None
    bounds, grid, counts = column.histogram
    try:
        return Number(bounds=bounds, cuts=cuts_from_histogram(grid, counts))
    except BadStructureError:  # which would quote the numbers: near the largest ones no bounds hold them
        return None


def _halves(column: _Column) -> tuple[tuple[str, str], tuple[float, ...]]:
    _, grid, counts = column.histogram
    cut = (cuts_from_histogram(grid, counts, n_bins=2) or (float(grid[len(grid) // 2]),))[0]
    return (f"below {cut:g}", f"{cut:g} and above"), (cut,)


def _coded(kind: type[T], key: str, name: str, column: _Column) -> T:
    """Return the target or the groups of a column; the refusal of its values must not quote them."""
    names, cuts = _halves(column) if column.is_number else (categories_from_counts(column.counts), ())
    facts: dict[str, Any] = {"column": name, key: names, "cuts": cuts}
    try:
        return kind(**facts)
    except BadStructureError:
        raise BadStructureError(
            f'Expected a column with at least two frequent values, got "{name}", whose values do not make classes or '
            "groups; write the schema by hand."
        ) from None


@without_array_sizes()
def draft_privately(
    path: str | Path,
    target: str,
    sensitive: str,
    epsilon: float,
    delta: float,
    ledger: Ledger,
    delimiter: str = ",",
) -> Schema:
    """Return a schema drafted from noisy counts.

    Half of epsilon pays for counts between public edges in every column: they separate numbers from texts and place
    bounds and bins. The other half pays for the frequent values of the text columns, the target and the groups. What is
    rare stays hidden and falls under "other".

    Guarantees
    ----------
    (epsilon, delta)-differential privacy of the schema, one row added or removed. Column names count as public.
    """
    check_number("epsilon", epsilon)
    check_budget(epsilon, delta)
    names = table_columns(path, delimiter, [target, sensitive])
    ledger.check([Charge(ApproximateDP(epsilon, delta))])
    columns = _raw_columns(path, names, delimiter)
    ledger.record_data(path)
    veil = open_columns(columns, epsilon, delta, ledger, secret_coins(), "schema draft")
    counts = {name: veil.release_counts(name, EDGES.tolist(), epsilon / 2 / len(names)) for name in names}
    numbers = {name for name in names if _is_number(counts[name])} - {target, sensitive}
    text_names = [name for name in names if name not in numbers]
    each_epsilon, each_delta = epsilon / 2 / len(text_names), delta / len(text_names)
    texts = {name: veil.release_texts(name, each_epsilon, each_delta) for name in text_names}
    facts = {name: _number(counts[name]) if name in numbers else _category(texts[name]) for name in names}
    sizes = [float(count.numbers.sum() + count.texts + count.missing) for count in counts.values()]
    return Schema(
        name=Path(path).stem,
        notes=(f"Drafted with epsilon {epsilon:g}, delta {delta:g}; values too rare to show fall under 'other'.",),
        n_public=max(1, round(float(np.mean(sizes)))),
        target=Target(column=target, classes=_at_least_two(target, texts[target], "classes")),
        sensitive=(Sensitive(column=sensitive, groups=_at_least_two(sensitive, texts[sensitive], "groups")),),
        columns={name: fact for name, fact in facts.items() if fact is not None and name != target},
    )


def _raw_columns(path: str | Path, names: list[str], delimiter: str) -> dict[str, RawColumn]:
    missing = MissingCells.of(DEFAULT_MISSING)
    texts: dict[str, list[NDArray]] = {name: [] for name in names}
    numbers: dict[str, list[NDArray]] = {name: [] for name in names}
    for chunk in read_table(path, delimiter=delimiter):
        for name in names:
            cells = [None if missing.holds(text) else text for text in canonical_texts(chunk[name])]
            texts[name].append(np.array(cells, dtype=object))
            numbers[name].append(numbers_of(chunk[name], missing))
    return {name: RawColumn(np.concatenate(texts[name]), np.concatenate(numbers[name])) for name in names}


def _is_number(counts: CellCounts) -> bool:
    return bool(_cleared(counts).sum() > max(0.0, counts.texts))


def _cleared(counts: CellCounts) -> NDArray[np.float64]:
    """Return the counts with those that may be noise alone set to zero."""
    level = counts.scale * math.log(len(counts.numbers) / (2 * FALSE_BINS))
    return np.where(counts.numbers >= level, counts.numbers, 0.0)


def _number(counts: CellCounts) -> Number:
    """Return cuts that divide the bins that are filled beyond doubt, with one more bin below and one above."""
    cleared = _cleared(counts)
    filled = np.flatnonzero(cleared)
    ends = [4 * EDGES[0], 2 * EDGES[0], *EDGES.tolist(), 2 * EDGES[-1], 4 * EDGES[-1]]
    first, last = int(filled[0]) + 1, int(filled[-1]) + 2
    inner = cuts_from_histogram(ends[first : last + 1], cleared[first - 1 : last - 1], N_BINS)
    return Number(bounds=(ends[first - 1], ends[last + 1]), cuts=(ends[first], *inner, ends[last]))


def _category(counts: dict[str, float]) -> Category | None:
    names = categories_from_counts(counts, at_least=0)
    return Category(categories=names) if names else None


def _at_least_two(name: str, counts: dict[str, float], what: str) -> tuple[str, ...]:
    names = categories_from_counts(counts, at_least=0)
    if len(names) < 2:
        raise MissingPublicFactError(
            f'Expected at least two frequent {what} in "{name}" at this budget, got {len(names)}; '
            "spend more, or write the schema by hand (what was debited stays debited)."
        )
    return names


def bounds_outward(low: float, high: float) -> tuple[float, float]:
    """Return bounds that hold [low, high], rounded outward to two significant digits.

    Examples
    --------
    >>> bounds_outward(17, 1234)
    (17.0, 1300.0)
    """
    bottom, top = _rounded(low, math.floor), _rounded(high, math.ceil)
    return (bottom, top) if bottom < top else (bottom, bottom + (abs(bottom) or 1.0))


def _rounded(value: float, rounding: Callable[[float], int]) -> float:
    if value == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return float(f"{rounding(value / step) * step:.2g}")


def round_grid(low: float, high: float) -> NDArray[np.float64]:
    """Return increasing round numbers from low to high: a hundred even steps, and finer ones toward zero."""
    step = 10.0 ** math.floor(math.log10((high - low) / 10)) / 10
    even = np.arange(math.ceil(low / step), math.floor(high / step) + 1) * step
    decade = math.floor(math.log10(max(abs(low), abs(high))))
    sizes = [digit * 10.0 ** (decade - down) for down in range(_DECADES) for digit in _ROUND_DIGITS]
    numbers = {float(f"{number:.12g}") for number in [*even, 0.0, *sizes, *(-size for size in sizes)]}
    return np.array([low, *sorted(number for number in numbers if low < number < high), high])


def cuts_from_histogram(
    edges: Sequence[float] | NDArray[np.float64],
    counts: Sequence[float] | NDArray[np.float64],
    n_bins: int = N_BINS,
) -> tuple[float, ...]:
    """Return at most `n_bins - 1` interior edges that cut the counts into parts as equal as the edges allow.

    Parameters
    ----------
    edges : increasing floats
        The grid, one more than counts.
    counts : floats
        How many rows fall between neighboring edges; negative (noisy) counts are taken as zero.
    n_bins : int
        The most bins to make.

    Examples
    --------
    >>> cuts_from_histogram([0, 1, 2, 3, 4], [10, 10, 10, 10], n_bins=2)
    (2.0,)
    """
    mass = np.cumsum(np.clip(np.asarray(counts, dtype=float), 0, None))
    if len(mass) < 2 or mass[-1] <= 0:
        return ()
    shares = mass[:-1] / mass[-1]  # the share of rows below each interior edge
    interior, chosen, below = np.asarray(edges, dtype=float)[1:-1], [], 0.0
    for n_left in range(n_bins, 1, -1):
        is_useful = (shares > below) & (shares < 1)
        if not is_useful.any():
            break
        # A value so frequent that it fills several bins takes one; the others share the rest.
        step = (1 - below) / n_left
        index = _roundest(interior, np.where(is_useful, np.abs(shares - below - step), np.inf), step / 10)
        chosen.append(float(interior[index]))
        below = shares[index]
    return tuple(chosen)


def _roundest(edges: NDArray[np.float64], distances: NDArray[np.float64], slack: float) -> int:
    near = np.flatnonzero(distances <= distances.min() + slack)
    return int(min(near, key=lambda index: (*_roughness(float(edges[index])), distances[index], index)))


def _roughness(number: float) -> tuple[bool, int]:
    n_digits = len(f"{abs(number):.11e}".split("e")[0].rstrip("0")) if number else 0
    return not number.is_integer(), n_digits


def categories_from_counts(
    counts: Mapping[str, float], at_least: float = MIN_CATEGORY_ROWS, at_most: int = MAX_CATEGORIES
) -> tuple[str, ...]:
    """Return the categories counted often enough, the most frequent `at_most` of them, in natural order.

    Examples
    --------
    >>> categories_from_counts({"10": 20, "9": 30, "rare": 2})
    ('9', '10')
    """
    frequent = sorted((name for name in counts if counts[name] >= at_least), key=lambda name: (-counts[name], name))
    return tuple(sorted(frequent[:at_most], key=_natural))


def _natural(name: str) -> tuple[int, float, str]:
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name
