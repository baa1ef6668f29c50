"""Weighted sums of rates with limits that hold the truth: of different people, and of people that rates share.

A limit holds the error of sampling people and the noise on the counts. It is Clopper's and Pearson's for one rate
without noise; docs/proofs/certificates.md says how noise, several rates and shared people enter, and what is proved.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from fairveil._typing import Float64Array
from fairveil.fairness.rates import SMALLEST_GROUP, Population, Rate

Terms = tuple[tuple[float, Rate], ...]

MAX_SHARES = 8
"""With more shares than this, whose ends are all tried, rates of the same people are bounded one by one."""

MOST_TIMES_AS_MANY = 1e6
"""If more than this multiple of the people were needed, their number is not stated."""

SHARES_PART = 0.25
"""The part of the error probability that is spent on shares; the rest is spent on the rates of different people."""


@dataclass(frozen=True, eq=False)
class LeftSide:
    """A weighted sum of noisy rates of different people, ready to be bounded at any level; leading axes are repeats.

    Attributes
    ----------
    weights : array of shape (..., R)
    rates, sizes : arrays of shape (..., R)
        Noisy rates, as they come (also below 0 or above 1), and how many people each is of.
    inside, outside : arrays of shape (R,)
        The variance of the noise on those counted in a rate's numerator, and on the rest of its people.
    """

    weights: Float64Array
    rates: Float64Array
    sizes: Float64Array
    inside: Float64Array
    outside: Float64Array

    @property
    def value(self) -> Float64Array:
        """The measured left side, from rates kept within 0 and 1."""
        return (np.clip(self.rates, 0.0, 1.0) * self.weights).sum(axis=-1)

    def upper(self, level: float, is_capped: bool = True) -> Float64Array:
        """Return what the true left side is at most, with probability `level`; it is capped by what rates can give.

        Errors add up in squares, but a step of the counts and the skewness of rare events do not: they add up plainly.
        Without the cap, the limit is convex in the weights.
        """
        # A rate that is subtracted is too large where the rate of the others is too small.
        is_minus = self.weights < 0
        rates = np.where(is_minus, 1 - self.rates, self.rates)
        inside, outside = (
            np.where(is_minus, *pair) for pair in ((self.outside, self.inside), (self.inside, self.outside))
        )
        each = _deviations(rates, self.sizes, inside, outside, level)
        plain = np.minimum(each, max(0.5, (float(ndtri(level)) ** 2 - 1) / 3) / self.sizes)
        squares = np.sqrt((np.square(each - plain) * np.square(self.weights)).sum(axis=-1))
        error = squares + (plain * np.abs(self.weights)).sum(axis=-1)
        # A rate outside of [0, 1] is noise: pulling it back must never make a limit tighter.
        limit = np.maximum(self.value, (self.rates * self.weights).sum(axis=-1)) + error
        return np.minimum(limit, np.maximum(self.weights, 0.0).sum(axis=-1)) if is_capped else limit

    def lower(self, level: float) -> Float64Array:
        """Return what the true left side is at least, with probability `level`."""
        return -replace(self, weights=-self.weights).upper(level)

    def enlarged(self, times: float) -> Self:
        """Return the same measured rates of `times` as many people."""
        return replace(self, rates=np.clip(self.rates, 0.0, 1.0), sizes=times * self.sizes)


Kinds = tuple[int, ...]
"""Codes of some kinds of people."""

Share = tuple[Kinds, Kinds]
"""Of the people of two lists of kinds, the part who are of the first list; binomial once their number is fixed."""


@dataclass(frozen=True, eq=False)
class SharedSide:
    """A weighted sum of noisy rates that share people, rewritten over different people; leading axes are repeats.

    Those who are counted in the same denominators are a block. A rate of several blocks is a mixture of their rates.
    The shares of the mixtures, and all shares but one within a block, are bounded first. With these fixed, the left
    side is a weighted sum of rates of different people; it is affine in each share, so it is largest at their limits.

    Attributes
    ----------
    weights : array of shape (R,)
    above, below : arrays of shape (R, K)
        Which kinds of people each rate counts in its numerator and its denominator.
    counts : array of shape (..., K)
        Noisy numbers of people of each kind.
    noise : array of shape (K,)
        The variance of the noise on each of them.
    """

    weights: Float64Array
    above: Float64Array
    below: Float64Array
    counts: Float64Array
    noise: Float64Array

    @property
    def rates(self) -> Float64Array:
        """The noisy rates, as they come."""
        return (self.counts @ self.above.T) / (self.counts @ self.below.T)

    @property
    def value(self) -> Float64Array:
        """The measured left side, from rates kept within 0 and 1."""
        return np.clip(self.rates, 0.0, 1.0) @ self.weights

    def upper(self, level: float) -> Float64Array:
        """Return what the true left side is at most, with probability `level`; no rates can exceed it."""
        found = self._one_by_one(level) if len(self._mixed) > MAX_SHARES else self._over_different_people(level)
        return np.minimum(np.maximum(found, self.value), np.maximum(self.weights, 0.0).sum())

    def lower(self, level: float) -> Float64Array:
        """Return what the true left side is at least, with probability `level`."""
        return -replace(self, weights=-self.weights).upper(level)

    def enlarged(self, times: float) -> Self:
        """Return the same measured counts, `times` as large."""
        return replace(self, counts=times * np.maximum(self.counts, 0.0))

    def _one_by_one(self, level: float) -> Float64Array:
        """Return the sum of the limits of each rate; they divide the error probability among them."""
        sizes, inside = self.counts @ self.below.T, self.above @ self.noise
        outside = self.below @ self.noise - inside
        each = LeftSide(np.diag(self.weights), self.rates[..., None, :], sizes[..., None, :], inside, outside)
        return each.upper(1 - (1 - level) / len(self.weights)).sum(axis=-1)

    def _over_different_people(self, level: float) -> Float64Array:
        """Return the largest limit of the sum of rates of different people, over all limits of the mixed shares."""
        mixed, separate = self._mixed, self._separate
        part = SHARES_PART if separate and mixed else float(not separate)
        limits = [self._limits(share, 1 - part * (1 - level) / (2 * len(mixed))) for share in mixed]
        corners = np.array(list(product((0, 1), repeat=len(mixed))), dtype=int)
        shares = {share: limits[i][..., corners[:, i]] for i, share in enumerate(mixed)}
        shares |= dict.fromkeys(separate, np.zeros(1))
        constant = self._value_at(shares)
        if not separate:
            return constant.max(axis=-1)
        weights = np.stack([self._value_at(shares | {one: np.ones(1)}) - constant for one in separate], axis=-1)
        facts = zip(*(self._measured(share) for share in separate), strict=True)
        rates, sizes, inside, outside, is_known = (np.stack(fact, axis=-1) for fact in facts)
        is_known = is_known[..., None, :]  # the rate of too few people can be anything
        constant = constant + np.where(is_known, 0.0, np.maximum(weights, 0.0)).sum(axis=-1)
        weights = np.where(is_known, weights, 0.0)
        found = LeftSide(weights, rates[..., None, :], sizes[..., None, :], inside, outside)
        # Only limits that are convex in the mixed shares are largest at a corner: each is taken there by itself.
        limit = (constant + found.upper(1 - (1 - part) * (1 - level), is_capped=False)).max(axis=-1)
        return np.minimum(limit, (constant + np.maximum(weights, 0.0).sum(axis=-1)).max(axis=-1))

    def _measured(self, share: Share) -> tuple[Float64Array, ...]:
        """Return a share, of how many people it is, the noise inside and outside of it, and whether they are enough."""
        first, second = map(list, share)
        chosen, inside, outside = self.counts[..., first].sum(-1), self.noise[first].sum(), self.noise[second].sum()
        sizes = chosen + self.counts[..., second].sum(-1)
        is_known = sizes >= SMALLEST_GROUP + 3 * np.sqrt(inside + outside)
        sizes = np.where(is_known, sizes, 1.0)
        return np.where(is_known, chosen / sizes, 0.5), sizes, inside, outside, is_known

    def _limits(self, share: Share, level: float) -> Float64Array:
        """Return what a share is at least and at most, each with probability `level`, shape (..., 2)."""
        rates, sizes, inside, outside, is_known = self._measured(share)
        rates = np.clip(rates, 0.0, 1.0)
        low = np.maximum(rates - _deviations(1 - rates, sizes, outside, inside, level), 0.0)
        high = np.minimum(rates + _deviations(rates, sizes, inside, outside, level), 1.0)
        return np.stack([np.where(is_known, low, 0.0), np.where(is_known, high, 1.0)], axis=-1)

    def _value_at(self, shares: dict[Share, Float64Array]) -> Float64Array:
        """Return the left side where the shares have these values."""
        total = np.zeros(1)
        for score, blocks in self._mixtures:
            for in_block, block in zip(_probabilities(blocks, shares), blocks, strict=True):
                parts = self._parts[block]
                for in_part, part in zip(_probabilities(parts, shares), parts, strict=True):
                    total = total + score[part[0]] * in_block * in_part
        return total + self._constant

    @cached_property
    def _mixed(self) -> list[Share]:
        """The shares that are bounded first: of blocks in denominators, and all but the last within each block."""
        between = [share for _, blocks in self._mixtures for share in _shares(blocks)]
        within = [share for parts in self._parts.values() for share in _shares(parts)[:-1]]
        return list(dict.fromkeys(between + within))

    @cached_property
    def _separate(self) -> list[Share]:
        """The last share within each block."""
        return [_shares(parts)[-1] for parts in self._parts.values() if len(parts) > 1]

    @cached_property
    def _parts(self) -> dict[Kinds, list[Kinds]]:
        """The kinds of each block, those together that have the same weight in every denominator."""
        scores = np.array([score for score, _ in self._mixtures])
        found: dict[Kinds, list[Kinds]] = {}
        for block in dict.fromkeys(block for _, blocks in self._mixtures for block in blocks):
            by_score: dict[tuple[float, ...], list[int]] = {}
            for kind in block:
                by_score.setdefault(tuple(scores[:, kind]), []).append(kind)
            found[block] = [tuple(by_score[score]) for score in sorted(by_score)]
        return found

    @cached_property
    def _mixtures(self) -> list[tuple[Float64Array, list[Kinds]]]:
        """Each denominator's weights of its kinds of people, and its blocks, the least shared first."""
        return [(score, blocks) for score, blocks in self._denominators if _distinguishes(score, blocks)]

    @cached_property
    def _constant(self) -> float:
        """What denominators add whose people all have the same weight, such as hits and misses together."""
        constant = [score[blocks[0][0]] for score, blocks in self._denominators if not _distinguishes(score, blocks)]
        return float(sum(constant))

    @cached_property
    def _denominators(self) -> list[tuple[Float64Array, list[Kinds]]]:
        rows, which = np.unique(self.below, axis=0, return_inverse=True)
        blocks: dict[tuple[float, ...], list[int]] = {}
        for kind, column in enumerate(rows.T):
            blocks.setdefault(tuple(column), []).append(kind)
        patterns = sorted((one for one in blocks if any(one)), key=lambda one: (sum(one), one))
        return [
            (self.weights[which == d] @ self.above[which == d], [tuple(blocks[one]) for one in patterns if one[d]])
            for d in range(len(rows))
        ]


def _distinguishes(score: Float64Array, blocks: Sequence[Kinds]) -> bool:
    """Return whether people of these blocks have different weights."""
    return len({score[kind] for block in blocks for kind in block}) > 1


def _shares(parts: Sequence[Kinds]) -> list[Share]:
    """Return the share of each part but the last among itself and those after it."""
    return [(part, sum(parts[i + 1 :], ())) for i, part in enumerate(parts[:-1])]


def _probabilities(parts: Sequence[Kinds], shares: dict[Share, Float64Array]) -> list[Float64Array]:
    """Return the probability of each part, which is a product of shares and their complements."""
    found, left = [], np.ones(1)
    for share in _shares(parts):
        found.append(left * shares[share])
        left = left * (1 - shares[share])
    return [*found, left]


def _deviations(
    rates: Float64Array, sizes: Float64Array, inside: Float64Array, outside: Float64Array, level: float
) -> Float64Array:
    """Return how far above each measured rate the true one may be, noise and sampling together."""
    z, rates = float(ndtri(level)), np.clip(rates, 0.0, 1.0)
    sampling = _exact_deviations(rates, sizes, level)
    if not np.any(inside + outside):
        return sampling
    reach = z * np.sqrt(np.maximum(inside, outside)) / sizes
    ends = [np.clip(rates - reach, 0.0, 1.0), np.clip(rates + reach, 0.0, 1.0)]
    noise = z / sizes * np.sqrt(np.maximum(*(inside * (1 - end) ** 2 + outside * end**2 for end in ends)))
    # The share without noise is unknown too: among those that noise allows, the one nearest 1/2 varies most.
    widest = np.clip(0.5, rates - noise, rates + noise)
    sampling = np.maximum(sampling, _exact_deviations(widest, sizes, level))
    more_people = 1 + z * np.sqrt(inside + outside) / sizes
    return np.sqrt(more_people * sampling**2 + noise**2)


def _exact_deviations(rates: Float64Array, sizes: Float64Array, level: float) -> Float64Array:
    """Return the distance from a rate to its exact upper limit (Clopper and Pearson 1934)."""
    chosen, others = rates * sizes, (1 - rates) * sizes
    high = np.where(others > 0, betaincinv(chosen + 1, np.maximum(others, 1e-9), level), 1.0)
    return np.maximum(high - rates, 0.0)


def left_sides(
    terms: Terms, tables: Float64Array, noise_variance: float, people: Population
) -> tuple[LeftSide | SharedSide, NDArray[np.bool_]]:
    """Return a weighted sum of rates of one or many tables of counts, and where every rate is of enough people.

    Leading axes of `tables` are repeats. Elsewhere the sum stands for nothing.
    """
    weights = np.array([weight for weight, _ in terms])
    # entries that no rate of the sum distinguishes are merged
    forms = np.array([rate.forms(people) for _, rate in terms]).reshape(2 * len(terms), -1)
    kinds, kind = np.unique(forms, axis=1, return_inverse=True)
    above, below = kinds[::2], kinds[1::2]
    is_kind = (kind.ravel()[:, None] == np.arange(kinds.shape[1])).astype(float)
    merged, noise = tables.reshape(*tables.shape[:-3], -1) @ is_kind, noise_variance * is_kind.sum(axis=0)
    sizes, inside, everyone = merged @ below.T, above @ noise, below @ noise
    is_known = (sizes >= SMALLEST_GROUP + 3 * np.sqrt(everyone)).all(axis=-1)
    if np.any((below > 0).sum(axis=0) > 1):
        return SharedSide(weights, above, below, np.where(is_known[..., None], merged, 1.0), noise), is_known
    sizes = np.where(is_known[..., None], sizes, 1.0)
    return LeftSide(weights, merged @ above.T / sizes, sizes, inside, everyone - inside), is_known


def range_of(terms: Terms) -> tuple[float, float]:
    """Return the least and the largest value that the left side can have."""
    weights = [weight for weight, _ in terms]
    return math.fsum(min(weight, 0.0) for weight in weights), math.fsum(max(weight, 0.0) for weight in weights)


def times_as_many(side: LeftSide | SharedSide, limit: float, level: float) -> float | None:
    """Return with how many times as many people the same measured rates would keep a limit, None if with none."""
    if side.value >= limit or not side.enlarged(MOST_TIMES_AS_MANY).upper(level) <= limit:
        return None
    low, high = 0.0, math.log(MOST_TIMES_AS_MANY)
    while high - low > 1e-4:
        middle = (low + high) / 2
        is_confirmed = side.enlarged(math.exp(middle)).upper(level) <= limit
        low, high = (low, middle) if is_confirmed else (middle, high)
    return math.exp(high)


def estimate_ratio(
    pair: LeftSide | SharedSide, of_low_end: float, of_high_end: float
) -> tuple[float | None, float, float]:
    """Return the first rate over the second with its limits, each at its level.

    The low end is the largest ratio r for which `r * second - first <= 0` is shown, the high end the smallest for which
    `first - r * second <= 0` is; above 1 it is infinite, for then it is not the smaller of two ratios. Of a rate beside
    several others (a leading axis), it is the smallest ratio: the one to the largest of them.
    """
    rates = np.clip(pair.rates, 0.0, 1.0)
    first, second = float(rates[..., 0].min()), float(rates[..., 1].max())
    low = _true_up_to(lambda ratio: bool((replace(pair, weights=np.array([-1.0, ratio])).upper(of_low_end) <= 0).all()))
    high = _true_up_to(
        lambda ratio: bool((replace(pair, weights=np.array([1.0, -ratio])).upper(of_high_end) > 0).all())
    )
    return (first / second if second > 0 else None), low, (high if high < 1 else math.inf)


def _true_up_to(is_below: Callable[[float], bool]) -> float:
    """Return the number in [0, 1] up to which this is true, to 1e-9."""
    low, high = 0.0, 1.0
    if is_below(high):
        return high
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low
