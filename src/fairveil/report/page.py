"""The report of one training as an HTML page, and how every page is made: for a manager first, an auditor second.

Everything that comes from the data is escaped by the template engine; the only ready markup is built element by element
with escaping. A page also forbids itself any connection and any script but its own, which is named by its hash.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from fairveil.errors import InvalidParameterError
from fairveil.report import formatting
from fairveil.report.charts import Dot, dot_chart, trace_charts
from fairveil.report.formatting import DASH, UNKNOWN, compact, finite, in_words, level, marked, measurement
from fairveil.report.privacy_text import neighbor_wording, privacy_promise
from fairveil.report.svg import SHAPES, scale_over
from fairveil.report.text import (
    VERDICT_BADGES,
    awareness,
    gap_name,
    limits_of,
    overview,
    rate_name,
    trace_wording,
)

NEEDED = (
    "data", "target", "classes", "positive", "created", "command", "method", "model", "constraint", "tolerance",
    "against", "rules", "asked", "epsilon", "delta", "epsilon_spent", "epsilon_replace_one", "neighbours", "protects",
    "unit", "aware", "sensitive", "n_public", "plan", "version", "epsilon_spent_total", "accuracy", "gap",
    "comparisons", "confidence", "private_evaluation", "cautions", "seconds", "ratio", "groups", "certificate",
    "expected_tolerance", "statement", "ledger", "timing", "noise_statements", "aims_at_zero",
)  # fmt: skip
FIRST_RATES = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")
CLAIM_ORDER = {"does not hold": 0, "not enough data": 1, "holds": 2}
GROUPS_PER_CHART = 20
MOST_GROUPS = 60
MOST_CLAIMS = 16
FOUR_FIFTHS = 0.8
NUMBER_FILTERS = ("compact", "fixed", "hundredfold", "level", "percent", "points", "whole")


@dataclass(frozen=True)
class RateCharts:
    """One rate of every group: its charts, and what the band in them means."""

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
        The bounds during training: step, bound, value, low, high, limit, multiplier.

    Guarantees
    ----------
    Everything on the page was released before, so the page costs no privacy. Text of the summary is shown as it is and
    cannot become markup; the page forbids itself any connection and any script but its own.
    """
    facts = plain_facts("summary", summary, NEEDED)
    claims = [] if facts["certificate"] is None else facts["certificate"]["claims"]
    claims = sorted(claims, key=lambda claim: CLAIM_ORDER.get(claim["verdict"], 0))
    neighbor = neighbor_wording(facts)
    found = list(dict.fromkeys(name for group in facts["groups"] for name in group["rates"]))
    rates = [name for name in FIRST_RATES if name in found]
    rates += [name for name in found if name not in FIRST_RATES]
    return render(
        "report.html.jinja",
        facts,
        awareness=awareness(facts["sensitive"], facts["aware"]),
        overview=overview(facts),
        gap_name=gap_name(facts["constraint"], facts["against"]),
        is_cap=facts["constraint"].endswith("_cap"),
        neighbor=neighbor,
        promise=privacy_promise(facts["epsilon_spent"], facts["delta"], neighbor),
        requested=facts["asked"],
        claims=claims[:MOST_CLAIMS],
        more_claims=claims[MOST_CLAIMS:],
        rates=rates,
        rate_name=rate_name,
        rate_charts=[_rate_charts(place, name, facts) for place, name in enumerate(rates)],
        n_drawn=MOST_GROUPS,
        n_claims=MOST_CLAIMS,
        ratio_chart=_ratio_chart(facts),
        trace=None if trace is None else trace_charts(trace),
        trace_wording=trace_wording(facts["aims_at_zero"]),
        limits=limits_of(facts),
    )


def _rate_charts(rate: int, name: str, facts: Mapping[str, Any]) -> RateCharts:
    """Return the charts of one rate, a readable number of groups each, all on one scale."""
    dots = []
    for group in facts["groups"][:MOST_GROUPS]:
        interval = measurement(group["rates"].get(name))
        dots.append(Dot(str(group["group"]), interval, in_words(interval)))
    values = [dot.interval.value for dot in dots if dot.interval.value is not None]
    ends = [*values, *(end for dot in dots for end in dot.interval.ends or ())]
    start = (0.0,) if not ends or min(ends) < 0.4 else ()  # from 0 unless every rate is far from it
    scale = scale_over(ends, include=start, lowest=0.0, highest=1.0, about=4)
    band, note, tolerance = None, "", facts["tolerance"]
    is_bounded = facts["constraint"] == "demographic_parity" and facts["against"] != "rest"
    if name == "selection_rate" and is_bounded and tolerance is not None and values:
        middle = (min(values) + max(values)) / 2
        band = (max(middle - tolerance / 2, 0.0), min(middle + tolerance / 2, 1.0))
        note = f"The shaded range is as wide as the tolerance, {compact(tolerance)}."
    parts = [dots[start : start + GROUPS_PER_CHART] for start in range(0, len(dots), GROUPS_PER_CHART)]
    heading, charts = rate_name(name), []
    for place, part in enumerate(parts):
        title = f"{heading} by group" + (f", part {place + 1} of {len(parts)}" if len(parts) > 1 else "")
        words = "; ".join(f"{dot.label}: {dot.words}" for dot in part)
        description = f"Dot and whisker, value and interval. {words}."
        charts.append(dot_chart(f"rate-{rate}-{place}", title, description, part, scale, level, band=band))
    return RateCharts(name, heading, tuple(charts), note)


def _ratio_chart(facts: Mapping[str, Any]) -> Markup:
    """Return the smallest selection rate over the largest, beside the four-fifths line."""
    ratio = measurement(facts["ratio"])
    words = UNKNOWN if ratio.value is None else compact(round(ratio.value, 3))
    if ratio.ends is not None:
        words += " ({} to {})".format(*(compact(round(end, 3)) for end in ratio.ends))
    high = max(end for end in (ratio.high, 1.0) if end is not None)
    scale = scale_over([ratio.low], include=(0.0, high), lowest=0.0, about=5)
    return dot_chart(
        "ratio", "Four-fifths ratio", f"Lowest selection rate divided by the highest: {words}; the line is at 0.8.",
        [Dot("Lowest / highest", ratio, words)], scale, compact, rule=FOUR_FIFTHS,
    )  # fmt: skip


# --- what every page shares -----------------------------------------------------------------------------------------


def plain_facts(name: str, facts: Mapping[str, Any], needed: Iterable[str]) -> dict[str, Any]:
    """Return the facts of a page as plain JSON values; refuse facts that lack what the page must show."""
    missing = [key for key in needed if key not in facts]
    if missing:
        raise InvalidParameterError(
            f"Expected {name} with the key {missing[0]!r}, got none ({len(missing)} missing in all); "
            "write it, as None if it is unknown."
        )
    return dict(plain(facts))


def plain(value: Any) -> Any:
    """Return the value as JSON knows it: numbers that are not finite become None, keys become text."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(one) for one in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return finite(value)
    return None if value is None else str(value)


def render(template: str, facts: Mapping[str, Any], **context: Any) -> str:
    """Return the page of a template; `facts` is available in it, and embedded as JSON."""
    script = _package_text("page.js")
    embedded = json.dumps(facts, allow_nan=False, ensure_ascii=True)
    for character in "<>&":  # no character of it may end the script element
        embedded = embedded.replace(character, f"\\u{ord(character):04x}")
    page = (
        _environment()
        .get_template(template)
        .render(
            facts=facts,
            embedded=Markup(embedded),
            style=Markup(_package_text("page.css")),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            shapes=SHAPES,
            **context,
        )
    )
    return page.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")


@cache
def _package_text(name: str) -> str:
    return (resources.files("fairveil.report") / "templates" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    """Return the template engine; a number filter writes the exact value beside the text, NAME_text does not."""
    environment = Environment(
        loader=FunctionLoader(_package_text), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    for name in NUMBER_FILTERS:
        words: Callable[..., str] = getattr(formatting, name)
        environment.filters[name] = lambda value, *more, words=words: marked(value, words(value, *more))
        environment.filters[f"{name}_text"] = words
    environment.filters["worded"] = lambda value, name: environment.filters[name](value)
    environment.filters["verdict_badge"] = lambda verdict: VERDICT_BADGES.get(verdict, ("none", DASH, verdict))
    environment.filters["day"] = formatting.day
    environment.filters["measurement"] = measurement
    return environment
