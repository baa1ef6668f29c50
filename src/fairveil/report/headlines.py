"""What a request or a measured rule amounts to, said before all other figures: facts in, plain English out."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairveil.report.formatting import percent, points

COMPARED = {
    "demographic_parity": "selection rates",
    "equalized_odds": "true and false positive rates",
    "true_positive_rate_parity": "true positive rates",
    "false_positive_rate_parity": "false positive rates",
    "false_negative_rate_parity": "false negative rates",
    "error_rate_parity": "error rates",
    "precision_parity": "precision",
}
"""The rates that a parity compares, in words."""

CLAIM_ORDER = {"does not hold": 0, "measured above the tolerance": 1, "not enough data": 2, "holds": 3}

MANY_CLAIMS = 400
"""Fifty groups have 2,450 pairs: of more claims than this, a page shows those that need attention first."""

LISTED_CLAIMS = 100
"""How many a page then shows. `summary.json` has all."""


def ordered_claims(claims: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the claims that need attention first, and of these the furthest above their limit."""
    return sorted(
        claims, key=lambda claim: (CLAIM_ORDER.get(claim["verdict"], 0), claim["limit"] - (claim["value"] or 0.0))
    )


def embedded_summary(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a page carries of a summary: all of it, except that of many claims and bounds only the first."""
    facts, certificate = dict(summary), summary["certificate"]
    for name in ("asked", "bounds"):
        if len(facts.get(name, ())) > MANY_CLAIMS:
            facts[name] = facts[name][:LISTED_CLAIMS]
    if certificate is not None and len(certificate["claims"]) > MANY_CLAIMS:
        facts["certificate"] = {**certificate, "claims": ordered_claims(certificate["claims"])[:LISTED_CLAIMS]}
    return facts


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence lists them.

    Examples
    --------
    >>> listed(["sex", "race", "age"])
    'sex, race and age'
    """
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


MOST_CHANGED = 4
"""Groups that a sentence on changed decisions names; `summary.json` lists all."""


def changes_sentence(changes: Mapping[str, Any]) -> str:
    r"""Return which share of the model's decisions a rule changes in each group, and the least that was possible.

    Examples
    --------
    >>> groups = [{"group": "f", "share": 0.05, "rate_before": 0.1}, {"group": "m", "share": 0.05, "rate_before": 0.2}]
    >>> changes_sentence({"groups": groups, "total": 0.1, "fewest": 0.1}).split(";")[1]
    ' the sum over both groups is 10.0\xa0%, where no rule of this tolerance changes less than 10.0\xa0%'
    """
    groups = sorted(changes["groups"], key=lambda one: -one["share"]) if len(changes["groups"]) > MOST_CHANGED else None
    shown = changes["groups"] if groups is None else groups[:MOST_CHANGED]
    first, *others = (f"{percent(one['share'])} {{}}for {one['group']}" for one in shown)
    parts = [first.format("of the model's decisions "), *(one.format("") for one in others)]
    more = "" if groups is None else ", and less for every other group"
    least = ""
    if changes["fewest"] is not None:
        least = (
            f" the sum over both groups is {percent(changes['total'])}, where no rule of this tolerance changes less "
            f"than {percent(changes['fewest'])};"
        )
    return (
        f"The rule changes about {listed(parts)}{more};{least} an estimate from released counts of the rows that the "
        "rule was fitted to."
    )


def small_table_caution(tolerance: float, chance: float, likely: float | None) -> str:
    """Return the caution, before anything is spent, that a request will probably not be certified."""
    possible = "Compare fewer groups" if likely is None else f"{likely:g} probably can be: request that"
    return (
        "By its public size, the table is probably too small for what is requested: the chance that a tolerance of "
        f"{tolerance:g} will be certified is {percent(chance, 0)}. {possible}, or use more rows. Otherwise, what is "
        "measured will be mostly chance."
    )


def weak_model_caution(n_people: float, epsilon: float, needed: int, *, is_poor: bool) -> str:
    """Return the caution, before anything is spent, that a private model probably learns little from so few people."""
    weak = (
        "expect to lose about half of what a model gains over always giving the most frequent answer, and more where "
        "one class is rare"
    )
    if is_poor:
        weak = (
            "a private model that keeps a tolerance is often no better than always giving the most frequent answer, "
            "above all where one class is rare"
        )
    return (
        f"With {n_people:,.0f} people at epsilon {epsilon:g} and this schema, {weak}. About {needed:,} people, a "
        "larger epsilon, or fewer and coarser columns would help."
    )


def same_decision_caution(decision: str, share: float) -> str:
    """Return the caution that a rule is nearly a constant."""
    return (
        f"The rule decides {decision!r} for {percent(share)} of the people held out. It hardly distinguishes anybody, "
        "so neither a small gap nor a high accuracy says much. Loosen the request, or what holds the rule back."
    )


def worse_than_constant_caution(accuracy: float, decision: str, right: float) -> str:
    """Return the caution that a rule is certainly less accurate than the best constant."""
    return (
        f"The rule is right for {percent(accuracy)} of the people held out. Deciding {decision!r} for everyone would "
        f"be right for {percent(right)}."
    )


def unknown_groups_caution(share: float, sensitive: Sequence[str]) -> str:
    """Return the caution that many people belong to no group of the schema."""
    return (
        f"About {percent(share, 0)} of the people held out belong to no group of {listed(sensitive)} that the schema "
        "names. No gap here is about them. 'fairveil check' shows the data holder which values do not fit."
    )


def missing_rows_caution(found: float, expected: float) -> str:
    """Return the caution that far fewer rows counted than the declared size lets expect."""
    return (
        f"Only about {found:,.0f} of about {expected:,.0f} expected held-out rows counted. Either n_public is too "
        "large, or many rows have a label that the schema does not name, or break its row rules. 'fairveil check' "
        "shows the data holder which values do not fit."
    )


def extremes(pair: Mapping[str, Any]) -> str:
    """Return the two groups that differ most, in words."""
    rate, (high, low) = pair["rate"].replace("_", " "), (pair["highest"], pair["lowest"])
    if pair["of_class"] is not None:
        rate += f" of {pair['of_class']}"
    most, least = (f"highest {rate}", "lowest")
    if pair["rate"] == "selection_rate" and pair["of_class"] is None:
        most, least = "selected most often", "least often"
    return f"{most}: {high['group']} {percent(high['value'])}; {least}: {low['group']} {percent(low['value'])}"


def other_gaps(summary: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each large gap that nobody bounded."""
    return [
        f"The largest difference in {COMPARED[one['constraint']]} is {points(one['value'])}, and was not bounded "
        f"({extremes(one['worst_pair'])})."
        for one in summary["gaps"]
        if one["is_large"]
    ]
