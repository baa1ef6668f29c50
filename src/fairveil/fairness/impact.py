"""Impact ratios of every category, and what people of no known group could hide; from counts already released."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil.fairness.constraints import Constraint, Parity, groups_of
from fairveil.fairness.evaluation import Evaluation, Interval
from fairveil.fairness.limits import LeftSide, estimate_ratio
from fairveil.fairness.rates import SMALLEST_GROUP, Rate
from fairveil.report.evidence_text import EXCLUDABLE
from fairveil.report.formatting import UNKNOWN, percent, points, whole


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

    Categories of too few people are unknown, and no other is compared with them. Each end of an interval holds at the
    stated confidence, as everywhere (`Evaluation.ratio`).
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
            side = LeftSide(np.ones(2), chosen[pairs] / sizes[pairs], sizes[pairs], inside[pairs], outside[pairs])
            value, low, high = estimate_ratio(side, confidence, level)
            if value is not None:
                ratio = Interval(min(1.0, value), low, min(1.0, high), confidence)
            elif chosen[place] > 0:  # all others were never selected
                ratio = Interval(1.0, low, 1.0, confidence)
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
    ends = [
        {rate: _joined(evaluation, rate, place == 0) for rate in rates}
        for place, rates in enumerate(zip(*pairs, strict=True))
    ]
    above, below, inside, outside = np.array(
        [[ends[place][rate] for place, rate in enumerate(pair)] for pair in pairs]
    ).transpose(2, 0, 1)
    is_known = (below >= SMALLEST_GROUP + 3 * np.sqrt(inside + outside)).all(axis=1)
    if is_known.any():
        above, below, inside, outside = (part[is_known] for part in (above, below, inside, outside))
        side = LeftSide(np.array([1.0, -1.0]), above / below, below, inside, outside)
        level = 1 - (1 - confidence) / len(pairs)  # as for the gap: only "above" needs a correction for several pairs
        value, low, high = (float(part.max()) for part in (side.value, side.lower(level), side.upper(confidence)))
        worst = Interval(value, max(0.0, low), high, confidence)
    return UnknownGroups(size, share, worst)


def _joined(evaluation: Evaluation, rate: Rate, raises: bool) -> Sequence[float]:
    """Return numerator, denominator and the noise inside and outside of a rate that all fitting unknown people join."""
    people, counts = evaluation.people, evaluation.counts
    all_levels = np.indices(people.shape).reshape(len(people.shape), -1)
    levels = {one.name: level for one, level in zip(people.attributes, all_levels, strict=True)}
    groups = {one.name: one.groups for one in people.attributes}
    is_lost = np.array([levels[name] == len(groups[name]) for name, _ in rate.where])
    is_meant = np.array([levels[name] == groups[name].index(group) for name, group in rate.where])
    may_join = is_lost.any(axis=0) & (rate.rest | (is_lost | is_meant).all(axis=0))
    above, below = rate.forms(people)
    all_above, all_below = Rate(rate.name, (), rate.of_class).forms(people)
    joining = may_join[:, None, None] * (all_above if raises else all_below - all_above)
    more = max(0.0, float((counts * joining).sum()))  # noise can make their number negative
    inside, outside = above + raises * joining, below - above + (not raises) * joining
    noises = [evaluation.noise_variance * float(part.sum()) for part in (inside, outside)]
    return [float((counts * above).sum()) + raises * more, float((counts * below).sum()) + more, *noises]


def _share(evaluation: Evaluation, members: NDArray[np.bool_], confidence: float) -> Interval:
    """Return the share of some group codes among everyone counted."""
    sizes, cell = evaluation.counts.sum(axis=(1, 2)), evaluation.noise_variance * evaluation.people.n_classes**2
    everyone, inside, outside = float(sizes.sum()), cell * members.sum(), cell * (~members).sum()
    if everyone < SMALLEST_GROUP + 3 * np.sqrt(inside + outside):
        return Interval(None, 0.0, 1.0, confidence)
    facts = (np.array([one], dtype=float) for one in (sizes[members].sum() / everyone, everyone, inside, outside))
    side, level = LeftSide(np.ones(1), *facts), 1 - (1 - confidence) / 2
    return Interval(float(side.value), max(0.0, float(side.lower(level))), float(side.upper(level)), confidence)


def impact_facts(evaluation: Evaluation, constraint: Constraint, gap: Interval) -> dict[str, Any]:
    """Return the tables by each attribute and by all of them, and the people of no known group, as plain values.

    The categories that are under 2 % of the data, and what unknown people could hide, are also said in sentences.
    """
    names, confidence = [one.name for one in evaluation.people.attributes], gap.confidence
    tables: list[dict[str, Any]] = []
    for attribute in [*names, None] if len(names) > 1 else [*names]:
        rows, small = [], {"yes": [], "no": [], "unclear": []}  # type: ignore[var-annotated]
        for one in impact_ratios(evaluation, attribute, confidence):
            is_known, share = one.share.value is not None, one.share
            is_small = "yes" if share.high < EXCLUDABLE else "no" if share.low >= EXCLUDABLE and is_known else "unclear"
            small[is_small].append(one.name)
            intervals = {name: getattr(one, name).to_dict() for name in ("share", "selection_rate", "impact_ratio")}
            sized = {"category": one.name, "size": max(0, round(one.size))}
            rows.append({**sized, **intervals, "under_two_percent": is_small})
        notes = []
        if small["yes"]:
            notes.append(f"Under 2 % of the data, so an auditor may leave out: {'; '.join(small['yes'])}.")
        if small["unclear"]:
            notes.append(f"The noise leaves open whether these are under 2 %: {'; '.join(small['unclear'])}.")
        notes = notes or ["No category is under 2 % of the data, so none may be left out for its size."]
        by = names if attribute is None else [attribute]
        tables.append({"by": by, "categories": rows, "notes": notes})
    if not names:
        return {"impact_ratios": [], "unknown_groups": None}
    unknown = unknown_groups(evaluation, constraint, confidence)
    share, worst = unknown.share, unknown.worst_gap
    sentences = ["How many held-out people belong to no known group is unknown: too few were counted."]
    if share.value is not None:
        sentences = [
            f"About {whole(max(0.0, unknown.size))} held-out people belong to no known group, {percent(share.value)} "
            f"(interval {percent(share.low)} to {percent(share.high)}). They are in no group's rate."
        ]
    if worst.value is not None:
        measured = UNKNOWN if gap.value is None else points(gap.value)
        sentences.append(
            f"If each of them belonged to the group that makes the gap largest, it would be measured as "
            f"{points(worst.value)} instead of {measured}, and at most {points(worst.high)}."
        )
    found = {"size": max(0, round(unknown.size)), "share": share.to_dict(), "worst_gap": worst.to_dict()}
    return {"impact_ratios": tables, "unknown_groups": found | {"sentences": sentences}}
