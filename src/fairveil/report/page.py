"""The summary of a training -> its report: one HTML page for a manager first and an auditor second."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup

from fairveil.report.charts import Dot, dot_chart
from fairveil.report.formatting import UNKNOWN, Shown, compact, level, percent, shown
from fairveil.report.privacy_text import neighbour_of
from fairveil.report.rendering import check_keys, plain, render
from fairveil.report.svg import Scale, scale_over
from fairveil.report.text import (
    awareness,
    gap_name,
    not_said,
    overview,
    privacy_promise,
    rate_name,
    verdict_kind,
)
from fairveil.report.trace_charts import course_of

NEEDED = (
    "data", "target", "classes", "positive", "created", "command", "method", "model", "constraint", "tolerance",
    "against", "rules", "asked", "epsilon", "delta", "epsilon_spent", "epsilon_replace_one", "neighbours", "protects",
    "unit", "aware", "sensitive", "n_public", "plan", "version", "epsilon_spent_total", "accuracy", "gap",
    "comparisons", "confidence", "private_evaluation", "cautions", "seconds", "ratio", "groups", "certificate",
    "expected_tolerance", "statement", "ledger", "timing", "noise_statements",
)  # fmt: skip
FIRST_RATES = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")
GROUPS_A_CHART = 20
MOST_GROUPS = 60
MOST_CLAIMS = 16
FOUR_FIFTHS = 0.8


@dataclass(frozen=True)
class RateCharts:
    """One rate of every group: its charts, and what a band behind the dots means."""

    name: str
    heading: str
    charts: tuple[Markup, ...]
    note: str = ""


def report_page(summary: Mapping[str, Any], trace: pd.DataFrame | None = None) -> str:
    """Return the report of one training as one HTML text that needs no network.

    Parameters
    ----------
    summary : mapping
        What `summary.json` of a training holds; unknown numbers are None.
    trace : DataFrame, optional
        The course of the bounds: step, bound, value, low, high, limit, multiplier.

    Guarantees
    ----------
    Everything on the page was released before, so the page costs no privacy. Text of the summary is shown as it is and
    cannot become markup; the page forbids itself any connection and any script but its own.
    """
    check_keys("summary", summary, NEEDED)
    given = plain(summary)
    claims = [] if given["certificate"] is None else _sorted_claims(given["certificate"]["claims"])
    return render(
        "report.html.jinja",
        given,
        awareness=awareness(given["sensitive"], given["aware"]),
        overview=overview(given),
        gap_name=gap_name(given["constraint"], given["against"]),
        is_cap=given["constraint"].endswith("_cap"),
        neighbour=neighbour_of(given),
        promise=privacy_promise(given["epsilon_spent"], given["delta"], neighbour_of(given)),
        verdict_kind=verdict_kind,
        claims=claims[:MOST_CLAIMS],
        more_claims=claims[MOST_CLAIMS:],
        rates=_rate_names(given["groups"]),
        rate_name=rate_name,
        rate_charts=[
            _rate_charts(place, name, given) for place, name in enumerate(_rate_names(given["groups"]))
        ],
        n_drawn=MOST_GROUPS,
        n_claims=MOST_CLAIMS,
        ratio_chart=_ratio_chart(given),
        course=None if trace is None else course_of(trace),
        not_said=not_said(given),
    )


def _sorted_claims(claims: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return claims with those that need attention first."""
    order = {"does not hold": 0, "not enough data": 1, "holds": 2}
    return sorted(claims, key=lambda claim: order.get(claim["verdict"], 0))


def _rate_names(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the rates to show: the usual ones first, then any other in the order met."""
    met = list(dict.fromkeys(name for group in groups for name in group["rates"]))
    return [name for name in FIRST_RATES if name in met] + [name for name in met if name not in FIRST_RATES]


def _rate_charts(rate: int, name: str, given: Mapping[str, Any]) -> RateCharts:
    """Return the charts of one rate, a readable number of groups each, all on one scale."""
    dots = [_dot(group, name) for group in given["groups"][:MOST_GROUPS]]
    scale = _rate_scale([dot.interval for dot in dots])
    band = _tolerance_band(name, [dot.interval for dot in dots], given)
    parts = [dots[start : start + GROUPS_A_CHART] for start in range(0, len(dots), GROUPS_A_CHART)]
    charts = tuple(
        dot_chart(
            f"rate-{rate}-{place}", f"{rate_name(name)} by group{_part_of(place, len(parts))}", _told(part),
            part, scale, level, band=band,
        )
        for place, part in enumerate(parts)
    )  # fmt: skip
    note = (
        ""
        if band is None
        else f"The shaded stretch is as wide as the tolerance, {compact(given['tolerance'])}."
    )
    return RateCharts(name, rate_name(name), charts, note)


def _part_of(place: int, count: int) -> str:
    return f", part {place + 1} of {count}" if count > 1 else ""


def _dot(group: Mapping[str, Any], name: str) -> Dot:
    interval = shown(group["rates"].get(name))
    return Dot(str(group["group"]), interval, _in_words(interval))


def _in_words(interval: Shown) -> str:
    if interval.value is None:
        return UNKNOWN
    if interval.ends is None:
        return percent(interval.value)
    low, high = (percent(end).rstrip("%").rstrip() for end in interval.ends)
    return f"{percent(interval.value)} ({low} to {high})"


def _told(dots: Sequence[Dot]) -> str:
    return (
        "Dot and whisker, value and interval. " + "; ".join(f"{dot.label}: {dot.words}" for dot in dots) + "."
    )


def _rate_scale(intervals: Sequence[Shown]) -> Scale:
    """Return a scale over all whiskers; it starts at 0 unless every rate is far from 0."""
    ends = [end for one in intervals for end in (one.value, *(one.ends or ()))]
    known = [end for end in ends if end is not None]
    start = (0.0,) if not known or min(known) < 0.4 else ()
    return scale_over(ends, include=start, floor=0.0, ceiling=1.0, about=4)


def _tolerance_band(
    name: str, intervals: Sequence[Shown], given: Mapping[str, Any]
) -> tuple[float, float] | None:
    """Return a stretch as wide as the tolerance around the middle of the rates, where that is what was asked."""
    values = [one.value for one in intervals if one.value is not None]
    asked = given["constraint"] == "demographic_parity" and given["against"] != "rest"
    if name != "selection_rate" or not asked or given["tolerance"] is None or not values:
        return None
    middle, half = (min(values) + max(values)) / 2, given["tolerance"] / 2
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _ratio_chart(given: Mapping[str, Any]) -> Markup:
    """Return the smallest selection rate over the largest, beside the four-fifths line."""
    ratio = shown(given["ratio"])
    words = UNKNOWN if ratio.value is None else compact(round(ratio.value, 3))
    if ratio.ends is not None:
        words += " ({} to {})".format(*(compact(round(end, 3)) for end in ratio.ends))
    high = max(end for end in (ratio.high, 1.0) if end is not None)
    scale = scale_over([ratio.low], include=(0.0, high), floor=0.0, about=5)
    return dot_chart(
        "ratio", "Four-fifths ratio", f"Lowest selection rate divided by the highest: {words}; the line stands at 0.8.",
        [Dot("Lowest / highest", ratio, words)], scale, compact, rule=FOUR_FIFTHS,
    )  # fmt: skip
