"""Counts of cells in, guessed facts about a column out: what kind it is, how its cells spell numbers, where to cut.

Whether counts are exact (the guesses are then as private as the rows) or noisy does not matter here. The grid of round
numbers depends on public bounds alone.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fairveil.data.schema import Category, Number
from fairveil.data.values import FORMATS, PLAIN, Format, canonical_text, is_date, number_in
from fairveil.errors import BadStructureError

N_BINS = 10
MIN_CATEGORY_ROWS = 10
MAX_CATEGORIES = 100
_ROUND_DIGITS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
_DECADES = 5

MAX_CODES = 12
"""A number column with at most so many distinct values is taken for codes."""

NUMBER_SHARE = 0.95
"""A column is a number, or follows a format, if this share of its cells that are not missing do."""

FREQUENT_SHARE = 0.5
"""A text column is left out if its frequent values make up less than this share of its cells."""

MANY_ROWS = 5000
"""So many whole numbers of which no two are the same are ids: amounts would repeat."""

PERSON_SHARE = 0.2
"""A column that is named like an id is one if at least this share of its cells are distinct."""

_SAMPLE = 2000
"""How many distinct cells are tried with every format before the best one is tried with all."""

_ID_WORDS = (
    "id|ids|uuid|guid|nr|no|num|number|index|idx|key|unnamed|ssn|email|mail|phone|name|surname|account|customer|client|"
    "person|patient"
)
_ID_NAME = re.compile(rf"(?:^|_)(?:{_ID_WORDS})(?:_|$)")
_GROUPS_OF_THREE = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+")

DESIRABLE = frozenset(
    {"yes", "y", "true", "t", "1", "approved", "approve", "accepted", "accept", "granted", "grant", "hired", "hire"}
    | {"admitted", "admit", "passed", "pass", "paid", "repaid", "good", "positive", "success", "selected", "eligible"}
)
"""Classes that count as positive by their name; without exactly one of them it is the last class."""


@dataclass(frozen=True, repr=False)
class ColumnCounts:
    """The distinct cells of a column that are not missing, with their exact counts: private.

    Attributes
    ----------
    spelled : mapping of text to int
        The cells as they stand in the table, without blanks around them.
    form : str or None
        How the cells spell numbers; None for a column of texts.
    numbers : array of float
        Every distinct cell as a number in this format.
    n_unlisted : int
        How many cells are left out of all this, because there are too many distinct ones.
    """

    spelled: Mapping[str, int]
    form: Format | None
    numbers: NDArray[np.float64]
    n_unlisted: int = 0

    @classmethod
    def of(cls, spelled: Mapping[str, int], form: Format | None, has_decimal_commas: bool = False) -> "ColumnCounts":
        """Return the counts with the declared format, else with the one that fits most cells.

        "1.234" is a plain number, unless the file is known to write decimal commas and each point is followed by
        groups of three digits.

        Examples
        --------
        >>> [ColumnCounts.of(cells, None).form for cells in ({"1.234,5": 1, "7": 3}, {"24.12.2001": 1}, {"a": 9})]
        ['1.234,5', 'DD.MM.YYYY', None]
        """
        texts, weights = list(spelled), np.array(list(spelled.values()), dtype=float)
        numbers = np.array([number_in(text, form or PLAIN) for text in texts], dtype=float)
        if form is not None:
            return cls(spelled, form, numbers)
        least = NUMBER_SHARE * max(weights.sum(), 1.0)
        if weights[np.isfinite(numbers)].sum() >= least:
            dotted = [text for text in texts if "." in text] if has_decimal_commas else []
            if not dotted or not all(_GROUPS_OF_THREE.fullmatch(text) for text in dotted):
                return cls(spelled, PLAIN, numbers)
            return cls.of(spelled, "1.234,5")
        sample = slice(None, None, -(-len(texts) // _SAMPLE) or 1)

        def fit(other: Format) -> float:
            return sum(
                weight
                for text, weight in zip(texts[sample], weights[sample].tolist(), strict=True)
                if math.isfinite(number_in(text, other))
            )

        best = max(FORMATS[1:], key=fit)
        fitted = np.array([number_in(text, best) for text in texts], dtype=float) if fit(best) else numbers
        is_fit = fit(best) > 0 and weights[np.isfinite(fitted)].sum() >= least
        return cls(spelled, best if is_fit else None, fitted if is_fit else numbers)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """How often each canonical text occurs."""
        counts: Counter[str] = Counter()
        for cell, count in self.spelled.items():
            counts[canonical_text(cell) or ""] += count
        return counts

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """How often each distinct cell occurs."""
        return np.array(list(self.spelled.values()), dtype=float)

    @property
    def is_number(self) -> bool:
        """Whether most cells are numbers and there are too many for codes."""
        n_numbers = len(np.unique(self.numbers[np.isfinite(self.numbers)]))
        return self.form is not None and n_numbers > MAX_CODES

    def is_id(self, name: str) -> bool:
        """Whether the column seems to name rows or persons: texts or whole numbers that hardly ever repeat."""
        if len(self.spelled) <= MAX_CODES or (self.form is not None and is_date(self.form)):
            return False
        finite = self.numbers[np.isfinite(self.numbers)]
        if self.form is not None and (self.form != PLAIN or (finite != np.floor(finite)).any()):
            return False
        n_cells = self.weights.sum()
        if is_named_like_id(name) and len(self.spelled) >= PERSON_SHARE * n_cells:
            return True
        is_dense = self.form is not None and np.ptp(finite) <= 2 * len(self.spelled)
        return bool(self.weights.max() == 1) and (self.form is None or bool(is_dense) or n_cells >= MANY_ROWS)

    @property
    def histogram(self) -> tuple[tuple[float, float], NDArray[np.float64], NDArray[np.float64]]:
        """The bounds, a grid of round numbers inside them, and the counts between its edges."""
        is_finite = np.isfinite(self.numbers)
        low, high = float(self.numbers[is_finite].min()), float(self.numbers[is_finite].max())
        is_year = self.form is not None and is_date(self.form)
        bounds = (math.floor(low), math.floor(high) + 1.0) if is_year else bounds_outward(low, high)
        grid = round_grid(*bounds)
        return bounds, grid, np.histogram(self.numbers[is_finite], grid, weights=self.weights[is_finite])[0]


def is_named_like_id(name: str) -> bool:
    """Say whether a column's name is that of an id.

    Examples
    --------
    >>> [is_named_like_id(name) for name in ("CustomerID", "id", "Unnamed: 0", "paid", "idle_hours")]
    [True, True, True, False, False]
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip())
    return _ID_NAME.search(re.sub(r"[^a-z0-9]+", "_", words.lower())) is not None


def guess_facts(name: str, column: ColumnCounts) -> tuple[Number | Category | None, str]:
    """Return the facts of a feature, None if it is to be left out, and a note about it or an empty text."""
    left_out, form = "Left out as a feature, for it", column.form or PLAIN
    facts: Number | Category | None = None
    note = f"{left_out} seems to be an id: {name}"
    if column.is_id(name):
        if column.weights.max() > 1:
            note = f"{left_out} seems to name persons (declare id_column if one may have several rows): {name}"
    elif column.is_number:
        bounds, grid, counts = column.histogram
        note = "" if form == PLAIN else f'Numbers are spelled as in "{form}": {name}'
        if is_date(form):
            note = f'Dates are read as "{form}" and become the year with decimals (July 2, 2019 is 2019.5): {name}'
        try:
            facts = Number(bounds=bounds, cuts=cuts_from_histogram(grid, counts), format=form)
        except BadStructureError:  # which would quote the numbers: near the largest ones no bounds hold them
            note = f"{left_out} holds numbers that are too large: {name}"
    else:
        categories = categories_from_counts(column.counts)
        n_frequent = sum(column.counts[category] for category in categories)
        note = f"{left_out} has no frequent value: {name}"
        if categories and n_frequent < FREQUENT_SHARE * (column.weights.sum() + column.n_unlisted):
            note = f"{left_out} holds mostly rare values: {name}"
        elif categories:
            facts = Category(categories=categories)
            is_cut = len(categories) == MAX_CATEGORIES < len(column.counts)
            others = f'Only the {MAX_CATEGORIES} most frequent values are listed, all others count as "other": {name}'
            note = others if is_cut else ""
    return facts, note


def names_between(cuts: Sequence[float]) -> tuple[str, ...]:
    """Return a name for the numbers below, between and above cuts.

    Examples
    --------
    >>> names_between([30, 50])
    ('below 30', '30 to 50', '50 and above')
    """
    inner = [f"{low:g} to {high:g}" for low, high in pairwise(cuts)]
    return (f"below {cuts[0]:g}", *inner, f"{cuts[-1]:g} and above")


def halving_cut(column: ColumnCounts) -> tuple[float, ...]:
    """Return the round number that cuts the rows into two parts as equal as possible."""
    _, grid, counts = column.histogram
    return (cuts_from_histogram(grid, counts, n_bins=2) or (float(grid[len(grid) // 2]),))[:1]


def positive_class(classes: Sequence[str]) -> str:
    """Return the class that counts as positive: the one of a desirable name, else the last one.

    Examples
    --------
    >>> positive_class(["approved", "denied"]), positive_class(["<=50K", ">50K"]), positive_class(["0", "1"])
    ('approved', '>50K', '1')
    """
    named = [name for name in classes if name.lower() in DESIRABLE]
    return named[0] if len(named) == 1 else classes[-1]


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


def rounded_down(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return numbers rounded down to four significant digits: none falls below a number of fewer digits.

    A number that is equal to one of four digits in its first ten is that one.

    Examples
    --------
    >>> rounded_down(np.array([0.3, 1234.56, -1234.56, 0.0])).tolist()
    [0.3, 1234.0, -1235.0, 0.0]
    """
    sizes = np.abs(np.where(numbers == 0, 1.0, numbers))
    with np.errstate(all="ignore"):
        # digits first, then the decade: a quotient just below a whole number is that number
        decades = np.floor(np.log10(sizes)) - 3
        whole = np.floor(np.round(numbers / 10.0**decades, 6))
        distinct, places = np.unique(whole * 10.0**decades, return_inverse=True)
    rounded = np.array([float(f"{number:.12g}") for number in distinct.tolist()])[places]
    return np.where(np.isfinite(rounded), rounded, numbers)


def number_text(number: float, form: Format) -> str:
    """Return a number as the cells of a format spell it, without separators of thousands."""
    text = canonical_text(number) or ""
    return text.replace(".", ",") if form in ("1.234,5", "1 234,5") else text


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
