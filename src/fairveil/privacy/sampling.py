"""Random subsets and Poisson batches: each unit is assigned or drawn by its own independent secret coin.

A unit is a record, or a person when the schema names an id column. A drawn person is represented by one of their
rows, selected by a further coin, so that a person contributes to a release what one record does.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fairveil._random import Coins
from fairveil._validation import check_number
from fairveil.errors import InvalidParameterError

Index = NDArray[np.int64]

BLOCK_STEPS, BLOCK_HITS = 32, 2**18
"""Coins of at most so many steps, and for about so many drawn units, are tossed at once."""


def assign_parts(n_units: int, shares: Mapping[str, float], coins: Coins) -> dict[str, Index]:
    """Return the units of each subset; each unit is in subset j with probability `shares[j]`, by its own coin."""
    bounds = np.cumsum(list(shares.values()))
    if min(shares.values()) <= 0 or abs(bounds[-1] - 1) > 1e-9:
        raise InvalidParameterError(f"Expected shares > 0 that add up to 1, got {dict(shares)}.")
    assigned = np.searchsorted(bounds[:-1], coins.generator.random(n_units), side="right")
    return {name: np.flatnonzero(assigned == j) for j, name in enumerate(shares)}


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
    while True:
        n_gaps = int(expected + 6 * np.sqrt(expected) + 16)
        hits = np.cumsum(coins.generator.geometric(rate, n_gaps)) - 1
        while hits[-1] < edges[-1]:
            more = np.cumsum(coins.generator.geometric(rate, n_gaps)) + hits[-1]
            hits = np.concatenate([hits, more])
        ends = np.searchsorted(hits, edges)
        for step in range(n_steps):
            yield hits[ends[step] : ends[step + 1]] - edges[step]


def poisson_batches(strata: Sequence[Index], rates: Sequence[float], coins: Coins) -> Iterator[Index]:
    """Yield batches drawn from disjoint strata of units, each with its own public rate; units ascend."""
    streams = [poisson_draws(len(units), rate, coins) for units, rate in zip(strata, rates, strict=True)]
    while True:
        drawn = [units[next(stream)] for units, stream in zip(strata, streams, strict=True)]
        yield np.sort(np.concatenate(drawn))
