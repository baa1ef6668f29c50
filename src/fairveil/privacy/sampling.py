"""Secret coins in, numbers of units out: who is in which subset, and who is in which Poisson batch.

Nothing here sees a row. Each unit is assigned to a subset and drawn into a batch by its own independent coin.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fairveil._random import Coins
from fairveil._validation import check_number
from fairveil.errors import InvalidParameterError

Index = NDArray[np.int64]

BLOCK_STEPS, BLOCK_HITS = 32, 2**18
"""Coins of at most so many steps, and for about so many drawn units, are tossed at once."""

COINS_AT_ONCE = 2**20
"""Of units that are assigned to subsets: it bounds the memory for coins and changes nothing."""

FEW_UNITS = 2**22
"""Numbers of more units take four bytes each."""


def row_numbers(is_kept: NDArray[np.bool_]) -> NDArray[np.integer]:
    """Return the places that are kept, in four bytes each where there are many of them."""
    kept = np.flatnonzero(is_kept)
    return kept.astype(np.int32) if FEW_UNITS < len(is_kept) <= np.iinfo(np.int32).max else kept


def assign_subsets(n_units: int, shares: Mapping[str, float], coins: Coins) -> dict[str, NDArray[np.integer]]:
    """Return the units of each subset; each unit is in subset j with probability `shares[j]`, by its own coin."""
    bounds = np.cumsum(list(shares.values()))
    if min(shares.values()) <= 0 or abs(bounds[-1] - 1) > 1e-9:
        raise InvalidParameterError(f"Expected shares > 0 that add up to 1, got {dict(shares)}.")
    assigned = np.empty(n_units, dtype=np.uint8 if len(shares) <= 256 else np.uint16)
    for start in range(0, n_units, COINS_AT_ONCE):
        part = assigned[start : start + COINS_AT_ONCE]
        part[:] = np.searchsorted(bounds[:-1], coins.generator.random(len(part)), side="right")
    return {name: row_numbers(assigned == j) for j, name in enumerate(shares)}


def poisson_draws(n_units: int, rate: float, coins: Coins) -> Iterator[Index]:
    """Yield batches for ever: every unit is in every batch with probability `rate`, independently.

    The gaps between drawn units are geometric, so the cost of a draw is that of the batch, not of the data; the units
    of many steps are numbered consecutively and drawn at once.
    """
    check_number("sampling_rate", rate, at_most=1)
    if rate == 1 or n_units == 0:
        everyone = np.arange(n_units)
        while True:
            yield everyone
    n_steps = max(1, min(BLOCK_STEPS, int(BLOCK_HITS / (rate * n_units))))
    edges = n_units * np.arange(n_steps + 1)
    expected = float(edges[-1] * rate)
    n_gaps = int(expected + 6 * np.sqrt(expected) + 16)
    while True:
        hits = np.cumsum(geometric_gaps(rate, n_gaps, coins)) - 1
        while hits[-1] < edges[-1]:
            more = np.cumsum(geometric_gaps(rate, n_gaps, coins)) + hits[-1]
            hits = np.concatenate([hits, more])
        ends = np.searchsorted(hits, edges)
        for step in range(n_steps):
            yield hits[ends[step] : ends[step + 1]] - edges[step]


def geometric_gaps(rate: float, n_gaps: int, coins: Coins) -> Index:
    """Return numbers of trials up to a first success: exponential numbers in units of -log(1 - rate), rounded up.

    P(E / u > k) = exp(-k u) = (1 - rate)^k. NumPy draws them the same way, one logarithm of the rate for each.
    """
    gaps = coins.generator.standard_exponential(n_gaps)
    gaps *= -1 / math.log1p(-rate)
    np.maximum(np.ceil(gaps, out=gaps), 1.0, out=gaps)  # no unit twice, should an exponential be 0
    return gaps.astype(np.int64)


def poisson_batches(strata: Sequence[Index], rates: Sequence[float], coins: Coins) -> Iterator[Index]:
    """Yield batches drawn from disjoint strata of units, each with its own public rate; units ascend."""
    streams = [poisson_draws(len(units), rate, coins) for units, rate in zip(strata, rates, strict=True)]
    while True:
        drawn = [units[next(stream)] for units, stream in zip(strata, streams, strict=True)]
        yield np.sort(np.concatenate(drawn))
