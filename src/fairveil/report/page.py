"""The report of one training as an HTML page, and how every page is made: for a manager first, an auditor second.

Everything that comes from the data is escaped by the template engine; the only ready markup is built element by element
with escaping. A page also forbids itself any connection and any script but its own, which is named by its hash.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from fairveil.errors import BadStructureError, InvalidParameterError
from fairveil.report import formatting
from fairveil.report.charts import (
    N_COLORS,
    SHAPES,
    Dot,
    Line,
    Measurement,
    Scale,
    chart,
    clip_text,
    dot_chart,
    exact,
    in_words,
    line,
    line_chart,
    measurement,
    scale_over,
    shape,
    tag,
    thin,
)
from fairveil.report.evidence_text import BUDGET_CAPTION, IMPACT_LIMITS, UNSIGNED
from fairveil.report.formatting import DASH, UNKNOWN, compact, finite, fixed, level
from fairveil.report.headlines import (
    COMPARED,
    LISTED_CLAIMS,
    MANY_CLAIMS,
    embedded_summary,
    extremes,
    ordered_claims,
    other_gaps,
)
from fairveil.report.privacy_text import neighbor_wording, privacy_promise
from fairveil.report.text import (
    ATTRIBUTE_LIMITS,
    LIMITS,
    TRACE_WORDING,
    VERDICT_BADGES,
    awareness,
    gap_name,
    overview,
)

NEEDED = (
    "data", "target", "classes", "positive", "created", "command", "method", "model", "constraint", "tolerance",
    "against", "rules", "asked", "epsilon", "delta", "epsilon_spent", "epsilon_replace_one", "neighbours", "protects",
    "unit", "aware", "sensitive", "n_public", "plan", "version", "epsilon_spent_total", "accuracy", "gap",
    "comparisons", "confidence", "private_evaluation", "cautions", "seconds", "ratio", "groups", "certificate",
    "expected_tolerance", "statement", "ledger", "timing", "noise_statements", "aims_at_zero", "best_constant",
    "most_common_decision", "worst_pair", "gaps",
)  # fmt: skip
FIRST_RATES = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")
GROUPS_PER_CHART = 20
MOST_GROUPS = 60
MOST_CLAIMS = 4
"""Claims that are shown at once: one attribute of two groups, and one more bound or two; the rest can be opened."""
FOUR_FIFTHS = 0.8
MOST_LEVELS, LEVEL_ROW, LEVEL_NAME = 18, 21.0, 19
LEVEL_LEFT, LEVEL_RIGHT = 43.0, 86.0
TRACE_COLUMNS = ("step", "bound", "value", "low", "high", "limit", "multiplier")
MOST_BOUNDS = 8
MOST_SHAPES = 8
MOST_POINTS, FEW_POINTS = 200, 60
"""Points of a bound's trace, and those of one among very many bounds: their page stays below 1 MB."""
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

    Notes
    -----
    Everything on the page was released before, so the page costs no privacy. Text of the summary is shown as it is and
    cannot become markup; the page forbids itself any connection and any script but its own.
    """
    facts = plain_facts("summary", summary, NEEDED)
    claims = [] if facts["certificate"] is None else facts["certificate"]["claims"]
    claims = ordered_claims(claims)
    n_claims, most = len(claims), LISTED_CLAIMS if len(claims) > MANY_CLAIMS else len(claims)
    neighbor = neighbor_wording(facts)
    found = list(dict.fromkeys(name for group in facts["groups"] for name in group["rates"]))
    rates = [name for name in FIRST_RATES if name in found]
    rates += [name for name in found if name not in FIRST_RATES]
    # the smallest selection rate over the largest, beside the four-fifths line
    ratio = measurement(facts["ratio"])
    words = UNKNOWN if ratio.value is None else compact(round(ratio.value, 3))
    if ratio.ends is not None:
        words += " ({} to {})".format(*(compact(round(end, 3)) for end in ratio.ends))
    high = max(end for end in (ratio.high, 1.0) if end is not None)
    scale = scale_over([ratio.low], include=(0.0, high), lowest=0.0, about=5)
    ratio_chart = dot_chart(
        "ratio", "Four-fifths ratio", f"Lowest selection rate divided by the highest: {words}; the line is at 0.8.",
        [Dot("Lowest / highest", ratio, words)], scale, compact, rule=FOUR_FIFTHS,
    )  # fmt: skip
    shapes: Any = facts.get("shapes")  # earlier versions did not write them
    columns = shapes["columns"][:MOST_SHAPES] if shapes else []
    points = scale_over([one for column in columns for row in column["points"] for one in row], include=(0,), about=4)
    return render(
        "report.html.jinja",
        facts,
        embedded_summary(facts),
        budget_chart=_budget_chart(facts),
        awareness=awareness(facts["sensitive"], facts["aware"]),
        gap_name=gap_name(facts["constraint"], facts["against"]),
        overview=overview(facts),
        pair=None if facts["worst_pair"] is None else extremes(facts["worst_pair"]),
        other_gaps=other_gaps(facts),
        is_cap=facts["constraint"].endswith("_cap"),
        neighbor=neighbor,
        promise=privacy_promise(facts["epsilon_spent"], facts["delta"], neighbor),
        requested=facts["asked"],
        claims=claims[:MOST_CLAIMS],
        more_claims=claims[MOST_CLAIMS:most],
        n_all_claims=n_claims,
        rate_charts=[_rate_charts(place, name, facts) for place, name in enumerate(rates)],
        ratio_chart=ratio_chart,
        points_of=shapes,  # the shapes of marks are "shapes"
        shape_charts=[
            shape_chart(f"points-{place}", one, shapes["groups"], points) for place, one in enumerate(columns)
        ],
        n_levels=MOST_LEVELS,
        trace=None if trace is None else trace_charts(trace),
        trace_wording=TRACE_WORDING[bool(facts["aims_at_zero"])],
        limits=ATTRIBUTE_LIMITS if facts["protects"] == "attribute" else LIMITS,
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
    heading, charts = name[:1].upper() + name[1:].replace("_", " "), []
    for place, part in enumerate(parts):
        title = f"{heading} by group" + (f", part {place + 1} of {len(parts)}" if len(parts) > 1 else "")
        words = "; ".join(f"{dot.label}: {dot.words}" for dot in part)
        description = f"Dot and whisker, value and interval. {words}."
        charts.append(dot_chart(f"rate-{rate}-{place}", title, description, part, scale, level, band=band))
    return RateCharts(name, heading, tuple(charts), note)


def _budget_chart(facts: Mapping[str, Any]) -> Markup | None:
    """Return the chart of what each stage of the plan costs by itself, None if nothing is private."""
    stages = [(str(part["part"]), finite(part["epsilon"])) for part in facts["plan"]]
    spent = finite(facts["epsilon_spent"])
    if spent is None:
        return None
    dots = [Dot(name, Measurement(cost, None, None), fixed(cost)) for name, cost in stages]
    scale = scale_over([cost for _, cost in stages], include=(0.0, spent), lowest=0.0, about=4)
    words = "; ".join(f"{dot.label}: {dot.words}" for dot in dots)
    description = f"One bar for each stage, its epsilon by itself. {words}. The dashed line is the whole training."
    title = "Where the budget went"
    return dot_chart("budget", title, description, dots, scale, compact, rule=spent, as_bars=True)


# --- the points of a linear model -------------------------------------------------------------------------------------


def shape_chart(identity: str, facts: Mapping[str, Any], groups: Sequence[str], scale: Scale) -> Markup:
    """Return the points of a column's levels: a bar from zero for each, or a mark for each of several groups.

    Of more levels than fit, those with the largest points of either sign are drawn, in their order.

    Parameters
    ----------
    facts : mapping
        The `column`, its `levels` and their `points`, of shape (n_groups, n_levels).
    groups : sequence of str
        Whose points they are, if there are several.
    """
    points = facts["points"]
    largest = sorted(range(len(facts["levels"])), key=lambda one: -max(abs(row[one]) for row in points))
    kept = sorted(largest[:MOST_LEVELS])
    bottom, words, rows = LEVEL_ROW * len(kept), [], []
    across = lambda value: f"{LEVEL_LEFT + (LEVEL_RIGHT - LEVEL_LEFT) * scale.at(value):.3f}%"  # noqa: E731
    for tick in scale.ticks:
        rows.append(line(across(tick), 2.0, across(tick), bottom, class_="grid" if tick else "zero"))
        axis = tag("text", compact(tick), x=across(tick), y=bottom + 16, class_="tick middle", aria_hidden="true")
        rows.append(axis)
    for place, one in enumerate(kept):
        name, values = facts["levels"][one], [row[one] for row in points]
        middle = LEVEL_ROW * (place + 0.5)
        said = [f"{group} {fixed(value, 2)}".strip() for group, value in zip(groups, values, strict=True)]
        words.append(f"{name}: {', '.join(said)} points")
        parts = [
            tag("rect", x="0", y=middle - LEVEL_ROW / 2 + 1, width="100%", height=LEVEL_ROW - 2, class_="hit", rx=4),
            tag("text", clip_text(name, LEVEL_NAME), x="0.8%", y=middle + 4.5, class_="name"),
        ]
        for series, value in enumerate(values):
            if len(groups) > 1:
                mark = shape(series, across(value), middle)
                parts.append(tag("g", mark, class_=f"color-{series % N_COLORS}"))
            else:
                parts.append(line(across(0.0), middle, across(value), middle, class_="bar shape color-0"))
                parts.append(tag("text", said[0], x="99.2%", y=middle + 4.5, class_="amount end"))
        rows.append(
            tag("g", *parts, class_="mark", tabindex=0, role="img", aria_label=words[-1], data_level=name,
                data_points=" ".join(map(exact, values)))
        )  # fmt: skip
    return chart(identity, f"Points of {facts['column']}", f"{'; '.join(words)}.", bottom + 22, *rows)


# --- the trace of a training ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BoundTrace:
    """One bound over the steps, thinned; None where unknown."""

    bound: str
    limit: float | None
    steps: tuple[float, ...]
    values: tuple[float | None, ...]
    lows: tuple[float | None, ...]
    highs: tuple[float | None, ...]
    multipliers: tuple[float | None, ...]

    @property
    def excess(self) -> float:
        """How far the last known value is above the limit; the worst comes first."""
        known = [value for value in self.values if value is not None]
        return float("-inf") if not known else known[-1] - (self.limit or 0.0)

    @property
    def last(self) -> dict[str, float | None]:
        """What the table shows of the last step."""
        return {
            "step": self.steps[-1],
            "value": self.values[-1],
            "low": self.lows[-1],
            "high": self.highs[-1],
            "multiplier": self.multipliers[-1],
        }


@dataclass(frozen=True)
class TraceCharts:
    """The bounds that are drawn, those that are listed beside them, panels, and how many bounds there are in all."""

    drawn: tuple[BoundTrace, ...]
    others: tuple[BoundTrace, ...]
    panels: tuple[Markup, ...]
    multipliers: Markup
    n_bounds: int


def trace_charts(trace: pd.DataFrame) -> TraceCharts | None:
    """Return the charts and tables of a trace, or None if it is empty."""
    missing = [name for name in TRACE_COLUMNS if name not in trace.columns]
    if missing:
        raise BadStructureError(f"Expected a trace with the column {missing[0]!r}, got {list(trace.columns)}.")
    if trace.empty:
        return None
    groups = trace.groupby("bound", sort=False)
    most = FEW_POINTS if groups.ngroups > MANY_CLAIMS else MOST_POINTS
    bounds = sorted((_bound_trace(str(name), rows, most) for name, rows in groups), key=lambda one: -one.excess)
    drawn = tuple(bounds[:MOST_BOUNDS])
    steps = [step for one in drawn for step in (one.steps[0], one.steps[-1])]
    low, high = min(steps), max(steps)
    inside = tuple(tick for tick in scale_over((low, high), about=4).ticks if low <= tick <= high)
    x = Scale(low, high, inside)
    others = tuple(bounds[MOST_BOUNDS : LISTED_CLAIMS if len(bounds) > MANY_CLAIMS else None])
    return TraceCharts(drawn, others, _panels(drawn, x), _multipliers(drawn, x), len(bounds))


def _bound_trace(name: str, rows: pd.DataFrame, most_points: int) -> BoundTrace:
    rows = rows.sort_values("step", kind="stable")
    rows = rows.iloc[thin(len(rows), most_points)]
    columns = {column: tuple(finite(value) for value in rows[column]) for column in TRACE_COLUMNS if column != "bound"}
    steps = tuple(float(step) for step in rows["step"])
    return BoundTrace(
        name, columns["limit"][-1], steps, columns["value"], columns["low"], columns["high"], columns["multiplier"]
    )  # fmt: skip


def _panels(drawn: tuple[BoundTrace, ...], x: Scale) -> tuple[Markup, ...]:
    """Return one panel for each bound on a common scale; wide bands of the first steps may leave the picture."""
    values = [value for one in drawn for value in one.values]
    ends = [end for one in drawn for end in (*one.lows[len(one.lows) // 4 :], *one.highs[len(one.highs) // 4 :])]
    limits = [one.limit for one in drawn if one.limit is not None]
    y = scale_over([*values, *ends], include=limits, about=4)
    panels = []
    for place, one in enumerate(drawn):
        description = (
            f"Left side over {len(one.steps)} points up to step {compact(one.steps[-1])}; it ends at "
            f"{compact(one.values[-1])}, the limit is {compact(one.limit)}."
        )
        lines = [Line(one.bound, one.steps, one.values, one.lows, one.highs, place)]
        title = f"Trace of bound {place + 1}: {one.bound}"
        panels.append(line_chart(f"bound-{place}", title, description, lines, x, y, compact, rule=one.limit))
    return tuple(panels)


def _multipliers(drawn: tuple[BoundTrace, ...], x: Scale) -> Markup:
    lines = [
        Line(f"multiplier of {one.bound}", one.steps, one.multipliers, series=place) for place, one in enumerate(drawn)
    ]
    y = scale_over([value for one in drawn for value in one.multipliers], include=(0.0,), about=4)
    return line_chart(
        "multipliers", "Multipliers: how strongly training pushed on each bound",
        f"One line for each of {len(drawn)} bounds over the steps; zero means that training did not push on the bound.",
        lines, x, y, compact,
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


def render(template: str, facts: Mapping[str, Any], carried: Mapping[str, Any] | None = None, **context: Any) -> str:
    """Return the page of a template; `facts` is available in it, and embedded as JSON, or what is `carried` of it."""
    embedded = json.dumps(facts if carried is None else carried, allow_nan=False, ensure_ascii=True)
    for character in "<>&":  # no character of it may end the script element
        embedded = embedded.replace(character, f"\\u{ord(character):04x}")
    page = _environment().get_template(template).render(facts=facts, embedded=Markup(embedded), **context)
    return page.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")


@cache
def _environment() -> Environment:
    """Return the template engine; a number filter writes the exact value beside the text, NAME_text does not."""
    folder = resources.files("fairveil.report") / "templates"
    texts = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
    environment = Environment(
        loader=DictLoader(texts), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.globals |= {
        "style": Markup(texts["page.css"]),
        "script": Markup(texts["page.js"]),
        "script_hash": base64.b64encode(hashlib.sha256(texts["page.js"].encode()).digest()).decode(),
        "shapes": SHAPES,
        "budget_caption": BUDGET_CAPTION,
        "impact_limits": IMPACT_LIMITS,
        "unsigned": UNSIGNED,
        "compared": COMPARED,
        "n_drawn": MOST_GROUPS,
        "n_claims": MOST_CLAIMS,
    }
    for name in NUMBER_FILTERS:
        words: Callable[..., str] = getattr(formatting, name)
        environment.filters[name] = lambda value, *more, words=words, **options: marked(
            value, words(value, *more, **options)
        )
        environment.filters[f"{name}_text"] = words
    environment.filters["worded"] = lambda value, name, digits=None, toward="nearest": environment.filters[name](
        value, *(() if digits is None else (digits,)), toward=toward
    )
    environment.filters["verdict_badge"] = lambda verdict: VERDICT_BADGES.get(verdict, ("none", DASH, verdict))
    environment.filters["day"] = day
    environment.filters["measurement"] = measurement
    return environment


def marked(value: Any, text: str) -> Markup:
    """Return the text with its exact value beside it, for machines and tests."""
    number = finite(value)
    if number is None:
        return Markup('<span class="unknown">{}</span>').format(UNKNOWN)
    return Markup('<data value="{}">{}</data>').format(repr(number), text)


def day(moment: Any) -> str:
    """Return an ISO time as a person writes it; other text is returned as it is.

    Examples
    --------
    >>> day("2026-11-16T12:00:00+00:00")
    '16 November 2026, 12:00 UTC'
    """
    try:
        when = datetime.fromisoformat(str(moment))
    except ValueError:
        return str(moment)
    if when.tzinfo is None:
        return f"{when.day} {when:%B %Y, %H:%M}"
    when = when.astimezone(UTC)
    return f"{when.day} {when:%B %Y, %H:%M} UTC"
