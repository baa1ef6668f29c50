"""Facts -> plain sentences, and what the numbers do not say."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fairveil.report.formatting import SPACE, compact, finite, percent, points, shown
from fairveil.report.privacy_text import NeighborWording, neighbour_of

WEAK_EPSILON = 10.0
COMPARED = {
    "demographic_parity": "selection rates",
    "equalized_odds": "true and false positive rates",
    "true_positive_rate_parity": "true positive rates",
    "false_positive_rate_parity": "false positive rates",
    "false_negative_rate_parity": "false negative rates",
    "error_rate_parity": "error rates",
    "precision_parity": "precision",
}
RATES = {
    "selection_rate": "Selection rate",
    "true_positive_rate": "True positive rate",
    "false_positive_rate": "False positive rate",
    "accuracy": "Accuracy",
}
VERDICTS = {"holds": "good", "does not hold": "bad", "not enough data": "unsure"}
ONLY_THE_ATTRIBUTE = (
    "Epsilon covers one column, and nothing else.",
    "It bounds what this release adds about the sensitive attribute of a person whose features and labels are known. "
    "Whether somebody is in the data, and every other column, is not protected at all; and other columns may tell the "
    "attribute.",
)
CERTIFIED = {
    "holds": "The certificate confirms that every bound asked for holds.",
    "does not hold": "The certificate finds that what was asked for does not hold.",
    "measured": "No bound was asked for; the certificate says how large a gap may be, not that it is small enough.",
    "not enough data": "The held-out rows are too few to certify what was asked for, or to deny it.",
}
NOT_SAID = (
    (
        "It speaks of people like those held out.",
        "The certificate and every interval describe people drawn like the rows that were kept apart. If other people "
        "apply tomorrow, or the same people change, measure again.",
    ),
    (
        "Equal rates are not justice for a person.",
        "Two groups can be treated alike on average while one applicant is treated wrongly. Nor does a rate say "
        "whether the label that was learned is itself fair.",
    ),
    (
        "One gap is not every gap.",
        "What was bounded is the gap named above, between the groups named above. Other rates, other groups and finer "
        "crossings of groups may differ more.",
    ),
    (
        "Small groups stay unknown.",
        "Where too few rows were held out, the page says unknown. That is neither a pass nor a zero.",
    ),
    (
        "Not reading a column is not the same as not knowing it.",
        "Other columns can reveal the group. A rule that reads no sensitive column may still follow it closely.",
    ),
    (
        "Epsilon covers the rows that were given to training.",
        "It bounds what this release adds about one of them. It does not cover what was known before, what somebody "
        "computed from the same rows outside these books, or facts about the population that hold with or without you.",
    ),
    (
        "Epsilon is a bound for one unit.",
        "A family of five, or one person with five records where the unit is a record, is covered at about five times "
        "the epsilon.",
    ),
    (
        "Delta is a real chance.",
        "The factor above may fail with a probability of about delta. It should be far below one divided by the number "
        "of people.",
    ),
    (
        "Declared facts are taken as public.",
        "Column bounds, categories and sizes of the schema are not protected. How long the computation took is not "
        "protected either.",
    ),
    (
        "The decisions themselves are not hidden.",
        "Whoever is decided upon, and whoever sees that decision, learns it. Privacy here is for the people whose rows "
        "trained the rule.",
    ),
)


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence lists them.

    Examples
    --------
    >>> listed(["sex", "race", "age"])
    'sex, race and age'
    """
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def awareness(sensitive: Sequence[str], aware: bool) -> str:
    """Return whether decisions read the sensitive columns: the first thing to know."""
    if not sensitive:
        return "No sensitive column was named"
    return f"Decisions {'read' if aware else 'do not read'} {listed(sensitive)}"


def gap_name(constraint: str, against: str | None) -> str:
    """Return what the gap is, in words."""
    if constraint.endswith("_cap"):
        return f"largest {constraint.removesuffix('_cap').replace('_', ' ')} that a bound is on"
    rates = COMPARED.get(constraint, constraint.replace("_", " "))
    whom = "a group and everyone else" if against == "rest" else "any two groups"
    return f"largest difference in {rates} between {whom}"


def rate_name(name: str) -> str:
    """Return the name of a rate as a heading."""
    return RATES.get(name, name.replace("_", " ").capitalize())


def verdict_kind(verdict: str | None) -> str:
    """Return the kind of a verdict: good, bad, unsure or none."""
    return VERDICTS.get(verdict or "", "none")


def not_said(summary: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return what the numbers do not say, for what is protected here."""
    if summary["protects"] != "attribute":
        return NOT_SAID
    about_rows = ("Epsilon covers the rows", "The decisions themselves")
    kept = [one for one in NOT_SAID if not one[0].startswith(about_rows)]
    return (ONLY_THE_ATTRIBUTE, *kept)


def privacy_promise(epsilon: Any, delta: Any, neighbour: NeighborWording) -> str:
    """Return what epsilon and delta promise, in one sentence."""
    spent = finite(epsilon)
    if spent is None:
        return "No privacy is claimed. Whoever sees the model or this page may learn about single people in the data."
    factor = compact(math.exp(spent), 2) if spent < 700 else "more than 10³⁰⁰"
    promise = (
        f"{neighbour.moved[0].upper()}{neighbour.moved[1:]} changes the probability of any outcome by at most a "
        f"factor of e^{compact(spent, 3)} = {factor}, plus delta{SPACE}={SPACE}{compact(delta)}."
    )
    return promise if spent < WEAK_EPSILON else f"{promise} So large a factor promises next to nothing."


def overview(summary: Mapping[str, Any]) -> list[str]:
    """Return the page in a few sentences for somebody who reads nothing else."""
    return [_trained(summary), _accurate(summary), _fair(summary), _certified(summary), _private(summary)]


def _trained(summary: Mapping[str, Any]) -> str:
    words = (
        f"A {summary['model']} classifier was trained on {summary['data']} with the method {summary['method']} to "
        f"predict {summary['target']}"
    )
    positive = summary["positive"]
    return f"{words}." if positive is None else f"{words}; {positive} counts as selected."


def _accurate(summary: Mapping[str, Any]) -> str:
    accuracy = shown(summary["accuracy"])
    if accuracy.value is None:
        return "How often it is right was not measured: no rows, or too few, were held out."
    how = "with noise for privacy" if summary["private_evaluation"] else "without noise, which is not private"
    return f"On rows that it had not seen it is right {percent(accuracy.value)} of the time, measured {how}."


def _fair(summary: Mapping[str, Any]) -> str:
    gap, tolerance = shown(summary["gap"]), finite(summary["tolerance"])
    name = gap_name(str(summary["constraint"]), summary["against"])
    if gap.value is None:
        return f"The {name} is unknown."
    words = f"The {name} was measured as {points(gap.value)}"
    if tolerance is None:
        return f"{words}; no tolerance for it was asked for."
    return f"{words}; at most {points(tolerance)} was asked for."


def _certified(summary: Mapping[str, Any]) -> str:
    certificate = summary["certificate"]
    if certificate is None:
        return "Nothing is certified, because no rows were held out."
    return CERTIFIED.get(certificate["verdict"], "No bound was asked for, so none is certified.")


def _private(summary: Mapping[str, Any]) -> str:
    spent = finite(summary["epsilon_spent"])
    if spent is None:
        return "The training was not private."
    hidden = neighbour_of(summary).hidden
    return (
        f"{hidden[0].upper()}{hidden[1:]} stays hidden up to epsilon {compact(spent, 3)} at delta "
        f"{compact(summary['delta'])}{_only(summary)}."
    )


def _only(summary: Mapping[str, Any]) -> str:
    """Return what is not hidden where an attribute alone is."""
    if summary["protects"] != "attribute":
        return ""
    return "; features and labels are not hidden at all, and may tell it"
