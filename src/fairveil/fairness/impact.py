"""Impact ratios of every category, and what people of no known group could hide; from counts already released."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fairveil.fairness.constraints import Constraint, Parity, groups_of
from fairveil.fairness.evaluation import Evaluation, Interval
from fairveil.fairness.limits import LeftSide, true_up_to
from fairveil.fairness.rates import SMALLEST_GROUP, Population, Rate


@dataclass(frozen=True)
class CategoryImpact:
    """How often one category is selected, beside the most selected one.

    Attributes
    ----------
    name : str
        A group of an attribute, or an intersection of groups.
    size : float
        The noisy number of its people.
    share : Interval
        Its share of everyone counted, people of no known group among them.
    selection_rate : Interval
    impact_ratio : Interval
        Its selection rate divided by that of the most selected category whose rate is known.
    """

    name: str
    size: float
    share: Interval
    selection_rate: Interval
    impact_ratio: Interval


@dataclass(frozen=True)
class UnknownGroups:
    """People who belong to no known group of some attribute, and how large they could make the gap.

    Attributes
    ----------
    size : float
        Their noisy number.
    share : Interval
        Their share of everyone counted.
    worst_gap : Interval
        The gap of a parity if each of them belonged to the group that makes it largest; unknown for other constraints.
    """

    size: float
    share: Interval
    worst_gap: Interval


def impact_ratios(
    evaluation: Evaluation, attribute: str | None = None, confidence: float = 0.95
) -> tuple[CategoryImpact, ...]:
    """Return for every group of an attribute, or every intersection, how often it is selected beside the others.

    Categories of too few people are unknown, and no other is compared with them. The intervals of all ratios hold at
    once; those of rates and shares each by itself.
    """
    people, rates = evaluation.people, evaluation.rates("selection_rate", attribute, confidence)
    members = np.array([people.members(group) for group in groups_of(people, attribute)])
    sizes = members @ evaluation.counts.sum(axis=(1, 2))
    chosen = members @ evaluation.counts[..., people.positive].sum(axis=1)
    inside = evaluation.noise_variance * people.n_classes * members.sum(axis=1)
    outside = inside * (people.n_classes - 1)
    level = 1 - (1 - confidence) / max(2, len(sizes) * (len(sizes) - 1))
    known, found = [place for place, rate in enumerate(rates.values()) if rate.value is not None], []
    for place, (name, rate) in enumerate(rates.items()):
        ratio = Interval(None, 0.0, 1.0, confidence)
        pairs = np.array([(place, other) for other in known if other != place], dtype=int).reshape(-1, 2)
        if place in known and not len(pairs):
            ratio = Interval(1.0, 1.0, 1.0, confidence)
        elif place in known:
            measured = chosen[pairs] / sizes[pairs]
            side = LeftSide(np.ones(2), measured, sizes[pairs], inside[pairs], outside[pairs])
            # beside every other category at once: the smallest ratio is the one to the most selected
            ends = (
                true_up_to(
                    lambda r, side=side: bool((replace(side, weights=np.array([-1.0, r])).upper(level) <= 0).all())
                ),
                true_up_to(
                    lambda r, side=side: bool((replace(side, weights=np.array([1.0, -r])).upper(level) > 0).all())
                ),
            )
            clipped = np.clip(measured, 0.0, 1.0)
            if clipped.max() > 0:
                ratio = Interval(float(clipped[0, 0] / clipped.max()), *ends, confidence)
        share = _share(evaluation, members[place], confidence)
        found.append(CategoryImpact(name, float(sizes[place]), share, rate, ratio))
    return tuple(found)


def unknown_groups(evaluation: Evaluation, constraint: Constraint, confidence: float = 0.95) -> UnknownGroups:
    """Return how many people belong to no known group, and the gap if each were of the group that makes it largest.

    For a pair of rates, those who would raise a rate (of selection: the selected) join the first, those who would
    lower it join the second; whoever is known in one of several attributes joins only groups that fit it.
    """
    people, counts = evaluation.people, evaluation.counts
    is_unknown = np.ones(people.n_groups, dtype=bool)
    is_unknown[people.codes] = False
    size, share = float(counts[is_unknown].sum()), _share(evaluation, is_unknown, confidence)
    worst = Interval(None, 0.0, 1.0, confidence)
    pairs = list(constraint.comparisons(people)) if isinstance(constraint, Parity) and people.attributes else []
    if not pairs:
        return UnknownGroups(size, share, worst)
    ends = [{rate: _joined(evaluation, rate, place == 0) for rate in rates} for place, rates in enumerate(zip(*pairs))]
    above, below, inside, outside = np.array(
        [[ends[place][rate] for place, rate in enumerate(pair)] for pair in pairs]
    ).transpose(2, 0, 1)
    is_known = (below >= SMALLEST_GROUP + 3 * np.sqrt(inside + outside)).all(axis=1)
    if is_known.any():
        above, below, inside, outside = (part[is_known] for part in (above, below, inside, outside))
        side = LeftSide(np.array([1.0, -1.0]), above / below, below, inside, outside)
        level = 1 - (1 - confidence) / max(2, len(pairs))
        value, low, high = (float(part.max()) for part in (side.value, side.lower(level), side.upper(level)))
        worst = Interval(value, max(0.0, low), high, confidence)
    return UnknownGroups(size, share, worst)


def _joined(evaluation: Evaluation, rate: Rate, raises: bool) -> Sequence[float]:
    """Return numerator, denominator and the noise inside and outside of a rate that all fitting unknown people join."""
    people, counts = evaluation.people, evaluation.counts
    above, below = rate.forms(people)
    all_above, all_below = Rate(rate.name, (), rate.of_class).forms(people)
    joining = _may_join(rate, people)[:, None, None] * (all_above if raises else all_below - all_above)
    more = max(0.0, float((counts * joining).sum()))  # noise can make their number negative
    inside, outside = above + raises * joining, below - above + (not raises) * joining
    noises = [evaluation.noise_variance * float(part.sum()) for part in (inside, outside)]
    return [float((counts * above).sum()) + raises * more, float((counts * below).sum()) + more, *noises]


def _may_join(rate: Rate, people: Population) -> NDArray[np.bool_]:
    """Return the group codes of no known group that could belong to the people of a rate."""
    all_levels = np.indices(people.shape).reshape(len(people.shape), -1)
    levels = {one.name: level for one, level in zip(people.attributes, all_levels, strict=True)}
    is_lost = np.array([levels[name] == len(people.attribute(name).groups) for name, _ in rate.where])
    is_meant = np.array([levels[name] == people.attribute(name).groups.index(group) for name, group in rate.where])
    return is_lost.any(axis=0) & (rate.rest | (is_lost | is_meant).all(axis=0))


def _share(evaluation: Evaluation, members: NDArray[np.bool_], confidence: float) -> Interval:
    """Return the share of some group codes among everyone counted."""
    sizes, cell = evaluation.counts.sum(axis=(1, 2)), evaluation.noise_variance * evaluation.people.n_classes**2
    everyone, inside, outside = float(sizes.sum()), cell * members.sum(), cell * (~members).sum()
    if everyone < SMALLEST_GROUP + 3 * np.sqrt(inside + outside):
        return Interval(None, 0.0, 1.0, confidence)
    facts = (np.array([one], dtype=float) for one in (sizes[members].sum() / everyone, everyone, inside, outside))
    side, level = LeftSide(np.ones(1), *facts), 1 - (1 - confidence) / 2
    return Interval(float(side.value), float(side.lower(level)), float(side.upper(level)), confidence)
