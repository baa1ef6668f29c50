"""Charts as SVG: dots with whiskers, lines with bands, points with error bars, and the trace of a training."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pandas as pd
from markupsafe import Markup

from fairveil.errors import BadStructureError
from fairveil.report.formatting import UNKNOWN, Measurement, compact, finite
from fairveil.report.svg import (
    EDGE,
    N_COLORS,
    RIGHT,
    Scale,
    along,
    chart,
    clip_text,
    exact,
    line,
    path_use,
    runs,
    scale_over,
    shape,
    tag,
    text,
    thin,
)

ROW = 42.0
LEFT = 15.0
SHORT_NAME, LONG_NAME = 20, 34
PLOT_TOP, PLOT_HEIGHT = 12.0, 190.0
Words = Callable[[float], str]

TRACE_COLUMNS = ("step", "bound", "value", "low", "high", "limit", "multiplier")
MOST_BOUNDS = 8
MOST_POINTS = 200


@dataclass(frozen=True)
class Dot:
    """One row of a dot chart."""

    label: str
    interval: Measurement
    words: str


@dataclass(frozen=True)
class Line:
    """Values over steps; `lows` and `highs` may be empty."""

    label: str
    steps: Sequence[float]
    values: Sequence[float | None]
    lows: Sequence[float | None] = ()
    highs: Sequence[float | None] = ()
    series: int = 0


@dataclass(frozen=True)
class Point:
    """A point with error bars both ways; `index` names it among all points of a page."""

    index: int
    label: str
    x: Measurement
    y: Measurement
    series: int = 0


def dot_chart(
    identity: str,
    title: str,
    description: str,
    dots: Sequence[Dot],
    scale: Scale,
    words: Words,
    *,
    band: tuple[float, float] | None = None,
    rule: float | None = None,
) -> Markup:
    """Return one row for each dot: its name and value in words, and below them the dot on its whisker.

    Parameters
    ----------
    band : (low, high), optional
        A shaded range in every row.
    rule : float, optional
        A dashed vertical line.
    """
    bottom = ROW * len(dots)
    rows = [part for place, dot in enumerate(dots) for part in _dot_row(dot, ROW * place, scale, band, rule)]
    axis = [_tick(words(tick), scale.at(tick), bottom + 18) for tick in scale.ticks]
    return chart(identity, title, description, bottom + 26, *rows, *axis)


def _dot_row(dot: Dot, top: float, scale: Scale, band: tuple[float, float] | None, rule: float | None) -> list[Markup]:
    """Return a row: grid, band and rule first, then the words and the dot; an unknown value has words but no dot."""
    start, middle, end = top + 20, top + 29, top + 38
    places = [along(scale.at(tick)) for tick in scale.ticks]
    row = [line(place, start, place, end, class_="grid") for place in places]
    if band is not None:
        low, high = scale.at(band[0]), scale.at(band[1])
        row.append(
            tag("rect", x=along(low), y=start, width=f"{(RIGHT - EDGE) * (high - low):.3f}%", height=end - start,
                class_="band", data_low=exact(band[0]), data_high=exact(band[1]))
        )  # fmt: skip
    if rule is not None:
        place = along(scale.at(rule))
        row.append(line(place, start, place, end, class_="rule", data_value=exact(rule)))
    # A long name comes in two lengths, of which the page shows the one that fits.
    short, long = clip_text(dot.label, SHORT_NAME), clip_text(dot.label, LONG_NAME)
    names = {"name": short} if short == long else {"name short": short, "name long": long}
    parts = [
        tag("rect", x="0", y=top + 1, width="100%", height=ROW - 2, class_="hit", rx=4),
        *(text(name, "0.8%", top + 15, class_=kind) for kind, name in names.items()),
        text(dot.words, "99.2%", top + 15, class_="amount end"),
        line(along(0), middle, along(1), middle, class_="track"),
    ]
    ends, value = dot.interval.ends, dot.interval.value
    if ends is not None:
        parts.append(line(along(scale.at(ends[0])), middle, along(scale.at(ends[1])), middle, class_="whisker"))
    if value is not None:
        parts.append(tag("circle", cx=along(scale.at(value)), cy=middle, r=5.5, class_="dot"))
    mark = tag(
        "g", *parts, class_="mark unknown" if value is None else "mark", tabindex=0, role="img",
        aria_label=f"{dot.label}: {dot.words}", data_group=dot.label, **_data(dot.interval),
    )  # fmt: skip
    return [*row, mark]


def _tick(words: str, fraction: float, height: float, left: float = EDGE) -> Markup:
    """Return the words at a tick, kept inside the chart at its ends."""
    if fraction > 0.985:
        return text(words, "100%", height, class_="tick end", aria_hidden="true")
    if fraction < 0.015 and left == EDGE:
        return text(words, "0", height, class_="tick", aria_hidden="true")
    return text(words, along(fraction, left), height, class_="tick middle", aria_hidden="true")


def _data(interval: Measurement, prefix: str = "") -> dict[str, str]:
    """Return the attributes that hold an interval to the last digit."""
    names = (("value", interval.value), ("low", interval.low), ("high", interval.high))
    return {f"data_{prefix}{name}": exact(value) for name, value in names}


def line_chart(
    identity: str,
    title: str,
    description: str,
    lines: Sequence[Line],
    x: Scale,
    y: Scale,
    words: Words,
    *,
    rule: float | None = None,
) -> Markup:
    """Return lines over steps, each with its band if it has one, and a mark at its last known value."""
    drawn = [part for one in lines for part in _band(one, x, y)]
    drawn += [part for one in lines for part in _course(one, x, y)]
    ruled = []
    if rule is not None:
        height = _down(y.at(rule))
        ruled = [line(along(0, LEFT), height, along(1, LEFT), height, class_="rule", data_value=exact(rule))]
    ends = [_end_mark(one, x, y, words) for one in lines]
    return chart(
        identity, title, description, PLOT_TOP + PLOT_HEIGHT + 26,
        *_axes(x, y, lambda tick: f"{tick:,.0f}", words),
        path_use(f"{identity}-lines", PLOT_TOP + PLOT_HEIGHT, *drawn), *ruled, *ends,
    )  # fmt: skip


def _down(fraction: float) -> float:
    return PLOT_TOP + PLOT_HEIGHT * (1 - fraction)


def _axes(x: Scale, y: Scale, x_words: Words, y_words: Words) -> list[Markup]:
    """Return grid lines and the words at ticks."""
    parts = []
    for tick in y.ticks:
        height = _down(y.at(tick))
        parts.append(line(along(0, LEFT), height, along(1, LEFT), height, class_="grid"))
        parts.append(text(y_words(tick), f"{LEFT - 2}%", height + 4, class_="tick end", aria_hidden="true"))
    for tick in x.ticks:
        place, base = along(x.at(tick), LEFT), PLOT_TOP + PLOT_HEIGHT
        parts.append(line(place, base, place, base + 4, class_="grid"))
        parts.append(_tick(x_words(tick), x.at(tick), base + 18, LEFT))
    return parts


def _spot(x: Scale, y: Scale, step: float, value: float) -> str:
    return f"{10 * (LEFT + (RIGHT - LEFT) * x.at(step)):.1f},{_down(y.at(value)):.1f}"


def _course(one: Line, x: Scale, y: Scale) -> list[Markup]:
    """Return the line in pieces between unknown values."""
    subsets = runs([value is not None for value in one.values])
    return [
        tag("polyline", points=" ".join(_spot(x, y, one.steps[i], one.values[i] or 0.0) for i in subset),
            class_=f"line color-{one.series % N_COLORS} dash-{one.series // N_COLORS % 3}", data_group=one.label)
        for subset in subsets
    ]  # fmt: skip


def _band(one: Line, x: Scale, y: Scale) -> list[Markup]:
    if not one.lows or not one.highs:
        return []
    known = [low is not None and high is not None for low, high in zip(one.lows, one.highs, strict=True)]
    shapes = []
    for subset in runs(known):
        there = [_spot(x, y, one.steps[i], one.highs[i] or 0.0) for i in subset]
        back = [_spot(x, y, one.steps[i], one.lows[i] or 0.0) for i in reversed(subset)]
        shapes.append(tag("polygon", points=" ".join(there + back), class_=f"area color-{one.series % N_COLORS}"))
    return shapes


def _end_mark(one: Line, x: Scale, y: Scale, words: Words) -> Markup:
    """Return a mark that takes the focus at the last known value."""
    known = [place for place, value in enumerate(one.values) if value is not None]
    if not known:
        return Markup("")
    last = known[-1]
    value = one.values[last] or 0.0
    low, high = (ends[last] if ends else None for ends in (one.lows, one.highs))
    words_at_end = f"{one.label}: {words(value)} at step {one.steps[last]:,.0f}"
    if low is not None and high is not None:
        words_at_end += f" ({words(low)} to {words(high)})"
    place, height = along(x.at(one.steps[last]), LEFT), _down(y.at(value))
    return tag(
        "g", tag("circle", cx=place, cy=height, r=12, class_="hit"), shape(one.series, place, height),
        class_=f"mark color-{one.series % N_COLORS}", tabindex=0, role="img", aria_label=words_at_end,
        data_group=one.label, data_step=exact(one.steps[last]), **_data(Measurement(value, low, high)),
    )  # fmt: skip


def scatter_chart(
    identity: str,
    title: str,
    description: str,
    points: Sequence[Point],
    x: Scale,
    y: Scale,
    x_words: Words,
    y_words: Words,
) -> Markup:
    """Return points with error bars both ways; those of a series are joined in their order."""
    placed = [point for point in points if point.x.value is not None and point.y.value is not None]
    joins = []
    for series in dict.fromkeys(point.series for point in placed):
        ours = [point for point in placed if point.series == series]
        joins += [_join(one, other, x, y) for one, other in pairwise(ours)]
    return chart(
        identity, title, description, PLOT_TOP + PLOT_HEIGHT + 26,
        *_axes(x, y, x_words, y_words), *joins, *(_error_bars(point, x, y) for point in placed),
        *(_point_mark(point, x, y) for point in placed),
    )  # fmt: skip


def _place(point: Point, x: Scale, y: Scale) -> tuple[str, float]:
    return along(x.at(point.x.value or 0.0), LEFT), _down(y.at(point.y.value or 0.0))


def _join(one: Point, other: Point, x: Scale, y: Scale) -> Markup:
    return line(
        *_place(one, x, y), *_place(other, x, y), class_=f"join color-{one.series % N_COLORS}"
    )  # fmt: skip


def _error_bars(point: Point, x: Scale, y: Scale) -> Markup:
    """Return the error bars of a point as far as they are known."""
    (place, height), bars, name = _place(point, x, y), [], f"error color-{point.series % N_COLORS}"
    if point.x.ends is not None:
        start, end = (along(x.at(value), LEFT) for value in point.x.ends)
        bars.append(line(start, height, end, height, class_=name))
    if point.y.ends is not None:
        low, high = (_down(y.at(value)) for value in point.y.ends)
        bars.append(line(place, low, place, high, class_=name))
    return Markup("").join(bars)


def _point_mark(point: Point, x: Scale, y: Scale) -> Markup:
    place, height = _place(point, x, y)
    return tag(
        "g", tag("circle", cx=place, cy=height, r=11, class_="hit"), shape(point.series, place, height),
        class_=f"mark point color-{point.series % N_COLORS}", tabindex=0, role="button", aria_pressed="false",
        aria_label=point.label or UNKNOWN, data_index=point.index,
        **_data(point.x, "gap_"), **_data(point.y, "accuracy_"),
    )  # fmt: skip


# --- the trace of a training ---------------------------------------------------------------------------------------


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
    """The bounds that are drawn, all others, one panel for each drawn bound, and one panel of all multipliers."""

    drawn: tuple[BoundTrace, ...]
    others: tuple[BoundTrace, ...]
    panels: tuple[Markup, ...]
    multipliers: Markup

    @property
    def n_bounds(self) -> int:
        """How many bounds there are in all."""
        return len(self.drawn) + len(self.others)


def trace_charts(trace: pd.DataFrame) -> TraceCharts | None:
    """Return the charts and tables of a trace, or None if it is empty."""
    missing = [name for name in TRACE_COLUMNS if name not in trace.columns]
    if missing:
        raise BadStructureError(f"Expected a trace with the column {missing[0]!r}, got {list(trace.columns)}.")
    if trace.empty:
        return None
    bounds = sorted(
        (_bound_trace(str(name), rows) for name, rows in trace.groupby("bound", sort=False)),
        key=lambda one: -one.excess,
    )
    drawn = tuple(bounds[:MOST_BOUNDS])
    steps = [step for one in drawn for step in (one.steps[0], one.steps[-1])]
    low, high = min(steps), max(steps)
    inside = tuple(tick for tick in scale_over((low, high), about=4).ticks if low <= tick <= high)
    x = Scale(low, high, inside)
    return TraceCharts(drawn, tuple(bounds[MOST_BOUNDS:]), _panels(drawn, x), _multipliers(drawn, x))


def _bound_trace(name: str, rows: pd.DataFrame) -> BoundTrace:
    rows = rows.sort_values("step", kind="stable")
    rows = rows.iloc[thin(len(rows), MOST_POINTS)]
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
