"""Who is in: secret-coin parts and Poisson batches, each unit by its own independent coin.

A unit is a record, or a person when the schema names an id column. A drawn person is represented by one of their
rows, picked by a further coin, so that one person's contribution to anything released is one record's contribution.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fairveil._random import Coins
from fairveil._validation import check_probability
from fairveil.errors import InvalidParameterError

Index = NDArray[np.int64]

BLOCK_STEPS = 32
BLOCK_HITS = 2**18


def assign_parts(n_units: int, shares: Mapping[str, float], coins: Coins) -> dict[str, Index]:
    """Return the units of each part; each unit falls into part j with probability `shares[j]`, by its own coin."""
    bounds = np.cumsum(list(shares.values()))
    if min(shares.values()) <= 0 or abs(bounds[-1] - 1) > 1e-9:
        raise InvalidParameterError(f"Expected shares > 0 that add up to 1, got {dict(shares)}.")
    fallen = np.searchsorted(bounds[:-1], coins.generator.random(n_units), side="right")
    return {name: np.flatnonzero(fallen == j) for j, name in enumerate(shares)}


def poisson_draws(n_units: int, rate: float, coins: Coins) -> Iterator[Index]:
    """Yield batches for ever: every unit is in every batch with probability `rate`, independently.

    The gaps between hits of a coin of bias `rate` are geometric, so a draw costs the batch, not the data; the coins of
    many steps form one long row and are tossed at once.
    """
    check_probability("sampling_rate", rate)
    if rate == 1 or n_units == 0:
        everyone = np.arange(n_units)
        while True:
            yield everyone
    n_steps = max(1, min(BLOCK_STEPS, int(BLOCK_HITS / (rate * n_units))))
    edges = n_units * np.arange(n_steps + 1)
    while True:
        hits = _hits(int(edges[-1]), rate, coins.generator)
        ends = np.searchsorted(hits, edges)
        for step in range(n_steps):
            yield hits[ends[step] : ends[step + 1]] - edges[step]


def _hits(length: int, rate: float, generator: np.random.Generator) -> Index:
    """Return the positions below `length` at which a coin of bias `rate` shows heads."""
    expected = length * rate
    n_gaps = int(expected + 6 * np.sqrt(expected) + 16)
    positions = np.cumsum(generator.geometric(rate, n_gaps)) - 1
    while positions[-1] < length:
        more = np.cumsum(generator.geometric(rate, n_gaps)) + positions[-1]
        positions = np.concatenate([positions, more])
    return positions[: np.searchsorted(positions, length)]


def poisson_batches(strata: Sequence[Index], rates: Sequence[float], coins: Coins) -> Iterator[Index]:
    """Yield batches drawn from disjoint strata of units, each with its own public rate; units ascend."""
    streams = [poisson_draws(len(units), rate, coins) for units, rate in zip(strata, rates, strict=True)]
    while True:
        drawn = [units[next(stream)] for units, stream in zip(strata, streams, strict=True)]
        yield np.sort(np.concatenate(drawn))
