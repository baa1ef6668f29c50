"""Secret coins in, numbers out: who is in which subset and in which Poisson batch, and exact discrete noise.

Nothing here sees a row or a sum. Each unit is assigned to a subset and drawn into a batch by its own independent coin.
Discrete noise is drawn by integer arithmetic only, with the samplers of Canonne, Kamath and Steinke (2020).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

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
    return np.flatnonzero(is_kept).astype(row_type(len(is_kept)), copy=False)


def row_type(n_units: int) -> type[np.int32] | type[np.int64]:
    """Return the type of numbers of units: four bytes where there are many of them and they fit."""
    return np.int32 if FEW_UNITS < n_units <= np.iinfo(np.int32).max else np.int64


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
        everyone: NDArray[Any] = np.arange(n_units, dtype=row_type(n_units))
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


def discrete_laplace(scale: Fraction, coins: Coins) -> int:
    """Return a whole number x drawn with probability proportional to exp(-|x| / scale)."""
    s, t = scale.denominator, scale.numerator
    while True:
        remainder = uniform_below(t, coins)
        if not _happens(Fraction(remainder, t), coins):
            continue
        whole = 0
        while _happens(Fraction(1), coins):
            whole += 1
        magnitude = (remainder + t * whole) // s
        is_negative = uniform_below(2, coins) == 1
        if magnitude or not is_negative:  # zero would count twice
            return -magnitude if is_negative else magnitude


def discrete_gaussian(std: Fraction, coins: Coins) -> int:
    """Return a whole number x drawn with probability proportional to exp(-x^2 / (2 std^2))."""
    variance = std * std
    t = math.floor(std) + 1
    while True:
        candidate = discrete_laplace(Fraction(t), coins)
        excess = abs(candidate) - variance / t
        if _happens(excess * excess / (2 * variance), coins):
            return candidate


def _happens(gamma: Fraction, coins: Coins) -> bool:
    """Return True with probability exp(-gamma), exactly, for a rational gamma >= 0."""
    while gamma > 1:
        if not _happens(Fraction(1), coins):
            return False
        gamma -= 1
    # exp(-gamma) is the alternating series of gamma^k / k!: stop at the first failure of a coin of gamma / k.
    k = 1
    while uniform_below(gamma.denominator * k, coins) < gamma.numerator:
        k += 1
    return k % 2 == 1


def uniform_below(bound: int, coins: Coins) -> int:
    """Return a uniform whole number in [0, bound), exactly, for a bound of any size."""
    n_bits = (bound - 1).bit_length()
    n_bytes = (n_bits + 7) // 8
    while True:
        number = int.from_bytes(coins.generator.bytes(n_bytes), "little") >> (8 * n_bytes - n_bits)
        if number < bound:
            return number
