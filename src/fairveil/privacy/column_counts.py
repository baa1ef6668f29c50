"""A veil for columns of raw cells: what a first schema may learn about them, at a stated price.

A column answers two queries, each once: how many cells lie between public edges (and how many are no number,
and how many are missing), and which texts are frequent. A row adds 1 to one count of each answer, so an answer with
noise of scale 1 / epsilon costs epsilon. Texts are not public beforehand: one shows only if its noisy count passes a
threshold that a single row's text passes with probability delta at most. The proof is in docs/proofs/columns.md.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairveil._random import Coins
from fairveil._validation import check_number
from fairveil.accounting.events import ApproximateDP, Charge, NonPrivateRelease
from fairveil.errors import UnplannedReleaseError
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.noise import add_integers
from fairveil.privacy.sampling import discrete_laplace


@dataclass(frozen=True, eq=False, repr=False)
class RawColumn:
    """Exact counts of the cells of a column: private.

    Attributes
    ----------
    cells : int array
        How many cells are numbers below, between and above public edges; then those that are no number, and those
        that are missing. Each cell is counted once.
    texts : iterable of mappings
        How often each text that is not missing occurs. Several mappings have no text in common; they are read one after
        the other, because texts that hardly ever repeat may be as many as the rows.
    """

    cells: NDArray[np.int64]
    texts: Iterable[Mapping[str, int]]


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Noisy counts of one column: numbers between the edges, cells that are no number, missing cells."""

    numbers: NDArray[np.float64]
    texts: float
    missing: float
    scale: float


class ColumnVeil:
    """Noisy answers about raw columns, each question once, up to the budget that was debited."""

    def __init__(self, columns: Mapping[str, RawColumn], epsilon: float, delta: float, coins: Coins) -> None:
        self._columns = columns
        self._coins = coins
        self._epsilon_left, self._delta_left = epsilon, delta

    def _spend(self, epsilon: float, delta: float = 0.0) -> None:
        left = (self._epsilon_left - epsilon, self._delta_left - delta)
        if left[0] < -1e-9 * epsilon or left[1] < -1e-9 * delta:
            raise UnplannedReleaseError(
                "Expected the answers to stay within the budget that was debited, got one more."
            )
        self._epsilon_left, self._delta_left = left

    def release_counts(self, name: str, epsilon: float) -> CellCounts:
        """Return noisy counts between public edges; the outermost bins reach to infinity."""
        self._spend(check_number("epsilon", epsilon))
        noisy = add_integers(discrete_laplace, self._columns[name].cells, 1 / epsilon, self._coins)
        return CellCounts(noisy[:-2], noisy[-2], noisy[-1], 1 / epsilon)

    def release_texts(self, name: str, epsilon: float, delta: float) -> dict[str, float]:
        """Return frequent texts with noisy counts."""
        self._spend(check_number("epsilon", epsilon), check_number("delta", delta, below=1))
        threshold = smallest_shown(epsilon, delta)
        shown: dict[str, float] = {}
        for counts in self._columns[name].texts:
            exact = np.fromiter(counts.values(), np.int64, len(counts))
            noisy = add_integers(discrete_laplace, exact, 1 / epsilon, self._coins)
            shown |= {text: float(count) for text, count in zip(counts, noisy, strict=True) if count >= threshold}
        return dict(sorted(shown.items()))  # the order of the rows must not show


def smallest_shown(epsilon: float, delta: float) -> int:
    """Return the noisy count from which on a text shows."""
    return 1 + math.ceil(math.log(1 / delta) / epsilon)


def open_columns(
    columns: Mapping[str, RawColumn], epsilon: float, delta: float, ledger: Ledger, coins: Coins, purpose: str
) -> ColumnVeil:
    """Debit (epsilon, delta) and return a veil that answers within it."""
    event = ApproximateDP(epsilon, delta) if coins.is_secret else NonPrivateRelease("seeded coins")
    ledger.debit([Charge(event)], purpose, {"epsilon": epsilon, "delta": delta})
    return ColumnVeil(columns, epsilon, delta, coins)
