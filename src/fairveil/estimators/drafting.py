"""A table in, a first schema out, at a stated privacy cost: its bounds, bins and categories are then public."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairveil._validate import check_delta, check_positive
from fairveil.coins import secret_coins
from fairveil.data.choosing import categories_from_counts, cuts_from_histogram
from fairveil.data.loaders import read_table
from fairveil.data.schema import DEFAULT_MISSING, Category, Number, Schema, Sensitive, Target
from fairveil.data.tables import check_present, table_columns
from fairveil.data.values import MissingCells, canonical_texts, numbers_of
from fairveil.errors import MissingPublicFact
from fairveil.privacy.columns import CellCounts, ColumnVeil, RawColumn, open_columns
from fairveil.privacy.events import ApproximateBox, Charge
from fairveil.privacy.ledger import Ledger

__all__ = ["draft_privately"]

SIZES = [float(f"{digit}e{decade}") for decade in range(-4, 9) for digit in range(1, 10)]
EDGES = np.array([*(-size for size in reversed(SIZES)), 0.0, *SIZES])
"""Public edges for any number column: 1 to 9 times powers of ten, both signs."""

FALSE_BINS = 0.01
"""How many empty bins of a column may be taken for filled ones, on average."""

N_BINS = 10


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

    Half of epsilon asks every column for counts between public edges, which tells numbers from texts, bounds and bins;
    half asks the text columns, the target and the groups for their frequent values. What is rare stays unseen and
    falls under "other".

    Guarantees
    ----------
    (epsilon, delta)-differential privacy of the schema, one row added or removed. Column names count as public.
    """
    check_positive("epsilon", epsilon)
    check_delta(delta)
    names = table_columns(path, delimiter)
    check_present(path, [target, sensitive], names)
    ledger.check([Charge(ApproximateBox(epsilon, delta))])
    columns = _raw_columns(path, names, delimiter)
    veil = open_columns(columns, epsilon, delta, ledger, secret_coins(), "schema draft")
    counts = {name: veil.release_counts(name, EDGES.tolist(), epsilon / 2 / len(names)) for name in names}
    numbers = {name for name in names if _is_number(counts[name])} - {target, sensitive}
    texts = _frequent(veil, [name for name in names if name not in numbers], epsilon / 2, delta)
    facts = {name: _number(counts[name]) if name in numbers else _category(texts[name]) for name in names}
    return Schema(
        name=Path(path).stem,
        notes=(
            f"Drafted with epsilon {epsilon:g}, delta {delta:g}; values too rare to show fall under 'other'.",
        ),
        n_public=max(1, round(float(np.mean([_total(count) for count in counts.values()])))),
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


def _frequent(
    veil: ColumnVeil, names: list[str], epsilon: float, delta: float
) -> dict[str, dict[str, float]]:
    share = len(names)
    return {name: veil.release_texts(name, epsilon / share, delta / share) for name in names}


def _total(counts: CellCounts) -> float:
    return float(counts.numbers.sum() + counts.texts + counts.missing)


def _is_number(counts: CellCounts) -> bool:
    return bool(_cleared(counts).sum() > max(0.0, counts.texts))


def _cleared(counts: CellCounts) -> NDArray[np.float64]:
    """Return the counts with those that may be noise alone set to zero."""
    level = counts.scale * math.log(len(counts.numbers) / (2 * FALSE_BINS))
    return np.where(counts.numbers >= level, counts.numbers, 0.0)


def _number(counts: CellCounts) -> Number:
    """Return cuts that divide the bins that are surely filled, with one more bin for what lies below and above."""
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
        raise MissingPublicFact(
            f'Expected at least two frequent {what} in "{name}" at this budget, got {len(names)}; '
            "spend more, or write the schema by hand (what was booked stays booked)."
        )
    return names
