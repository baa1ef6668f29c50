"""Charts as SVG: escaped elements and scales with round ticks; dots with whiskers, lines with bands, points with bars.

Horizontal positions are percentages and vertical ones pixels, so a chart fills any width while its text keeps its size.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from markupsafe import Markup, escape

from fairveil.report.formatting import UNKNOWN, finite, hundredfold, percent

WIDE_FROM = 0x1100
"""From this code point on, a character takes two columns."""
SAME = 1e-6
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
Value = str | float | int | None

SHAPES = (
    "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0Z",
    "M-4.6,-4.6H4.6V4.6H-4.6Z",
    "M0,-5.8L5.6,4.2H-5.6Z",
    "M0,-6.2L6.2,0L0,6.2L-6.2,0Z",
    "M0,5.8L5.6,-4.2H-5.6Z",
    "M-1.9,-5.6H1.9V-1.9H5.6V1.9H1.9V5.6H-1.9V1.9H-5.6V-1.9H-1.9Z",
    "M0,-6L5.7,-1.9L3.5,4.9H-3.5L-5.7,-1.9Z",
    "M-5.4,-5.4H5.4L0,0L5.4,5.4H-5.4L0,0Z",
)
N_COLORS = 8
EDGE, RIGHT = 2.5, 97.5
ROW = 42.0
LEFT = 15.0
SHORT_NAME, LONG_NAME = 20, 34
PLOT_TOP, PLOT_HEIGHT = 12.0, 190.0
SCATTER_LEFT, SCATTER_HEIGHT = 10.0, 320.0
LABEL_HEIGHT, LETTER = 14.0, 7.0
"""The height of a label at a point, and the width of a letter of it, rounded up."""
MARK = 7.5
"""Half the side of the box that a mark fills."""
DRAWN_WIDTHS = (300.0, 380.0, 480.0, 620.0, 800.0, 1100.0)
"""Chart widths at which no label may touch another label or a mark."""
Words = Callable[[float], str]


# --- values and scales ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measurement:
    """A number of a summary with its interval; None where unknown."""

    value: float | None
    low: float | None
    high: float | None

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends of the interval, or None if the value or an end is unknown."""
        if self.value is None or self.low is None or self.high is None:
            return None
        return self.low, self.high


def measurement(interval: Mapping[str, Any] | None) -> Measurement:
    """Return an interval of a summary; missing parts are unknown."""
    parts = interval or {}
    return Measurement(*(finite(parts.get(name)) for name in ("value", "low", "high")))


def in_words(one: Measurement, words: Callable[[float], str] = percent) -> str:
    """Return a value with its interval, such as 12.3 % (11.0 to 13.5)."""
    if one.value is None:
        return UNKNOWN
    if one.ends is None:
        return words(one.value)
    return f"{words(one.value)} ({hundredfold(one.ends[0])} to {hundredfold(one.ends[1])})"


@dataclass(frozen=True)
class Scale:
    """A map from values to 0..1, with the ticks to draw: straight, or by a root that spreads small values.

    Examples
    --------
    >>> Scale(0.0, 2.0, (0.0, 1.0, 2.0)).at(0.5)
    0.25
    >>> Scale(0.0, 1.0, power=0.5).at(0.25)
    0.5
    """

    low: float
    high: float
    ticks: tuple[float, ...] = ()
    power: float = 1.0

    def at(self, value: float) -> float:
        """Return the position of a value, 0 at the low end and 1 at the high end; values outside are clipped."""
        if self.high <= self.low:
            return 0.5
        return float(min(max((value - self.low) / (self.high - self.low), 0.0), 1.0) ** self.power)


def ticks(low: float, high: float, about: int = 5) -> tuple[float, ...]:
    """Return round numbers from at or below `low` to at or above `high`, roughly `about` of them.

    Examples
    --------
    >>> ticks(0.13, 0.88)
    (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """
    if high - low <= SAME * max(abs(low), abs(high), SAME):
        low, high = low - max(abs(low), 1.0) * 0.1, high + max(abs(high), 1.0) * 0.1
    rough = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in STEPS if power * factor >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(float(f"{number * step:.14g}") for number in range(first, last + 1))


def scale_over(
    values: Iterable[float | None],
    *,
    include: Sequence[float] = (),
    lowest: float = -math.inf,
    highest: float = math.inf,
    about: int = 5,
) -> Scale:
    """Return a scale that covers all known values and those in `include`, but nothing beyond `lowest` and `highest`."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    known = [min(max(value, lowest), highest) for value in [*known, *include]] or [0.0, 1.0]
    marks = [one for one in ticks(min(known), max(known), about) if lowest <= one <= highest]
    return Scale(min([*marks, *known]), max([*marks, *known]), tuple(marks))


def thin(count: int, most: int = 200) -> list[int]:
    """Return evenly spread positions of at most `most` among `count`, always the first and the last.

    Examples
    --------
    >>> thin(5, 3), thin(2, 200)
    ([0, 2, 4], [0, 1])
    """
    if count <= most:
        return list(range(count))
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})


def runs(known: Sequence[bool]) -> list[range]:
    """Return the stretches without a gap, so that no line is drawn across unknown values.

    Examples
    --------
    >>> runs([True, True, False, True])
    [range(0, 2), range(3, 4)]
    """
    found, start = [], None
    for place, one in enumerate([*known, False]):
        if one and start is None:
            start = place
        elif not one and start is not None:
            found.append(range(start, place))
            start = None
    return found


def clip_text(text: str, most: int = 24) -> str:
    """Return at most about `most` columns of a text, wide characters counting two; what is left out is in the middle.

    Examples
    --------
    >>> clip_text("race=Asian-Pac-Islander, age=30-50", 20)
    'race=Asian…age=30-50'
    """
    text = " ".join(text.split())
    widths = [2 if ord(character) >= WIDE_FROM else 1 for character in text]
    if sum(widths) <= most:
        return text
    front = bisect_right(list(accumulate(widths)), most // 2)
    back = bisect_right(list(accumulate(reversed(widths))), most - most // 2 - 1)
    return f"{text[:front].rstrip()}…{text[len(text) - back :].lstrip()}"


# --- SVG elements -----------------------------------------------------------------------------------------------------


def tag(name: str, *children: str, **attributes: Value) -> Markup:
    """Return an element; attribute names have `_` for `-`, None is left out, all text is escaped."""
    pairs = []
    for key, value in attributes.items():
        if value is not None:
            words = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
            pairs.append(Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), words))
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), Markup("").join(pairs), inside)


def exact(value: float | None) -> str:
    """Return a number for a data attribute, to the last digit; empty if unknown."""
    number = finite(value)
    return "" if number is None else repr(number)


def along(fraction: float, left: float = EDGE) -> str:
    """Return a horizontal position inside the plot, as a percentage of the chart's width."""
    return f"{left + (RIGHT - left) * fraction:.3f}%"


def line(x1: Value, y1: Value, x2: Value, y2: Value, **attributes: Value) -> Markup:
    """Return a straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, **attributes)


def shape_of(series: int) -> int:
    """Return which shape a series has; a second round of colors comes with other shapes."""
    return (series + series // N_COLORS) % len(SHAPES)


def shape(series: int, x: str, y: float) -> Markup:
    """Return the mark of a series at a place; shapes are defined once a page."""
    return tag("use", href=f"#shape-{shape_of(series)}", x=x, y=y, class_="shape")


def path_use(identity: str, height: float, *children: str) -> Markup:
    """Return drawings in a box 1000 wide, stretched to the chart's width without stretching their strokes."""
    box = tag(
        "symbol", *children, id=identity, viewBox=f"0 0 1000 {height:g}", preserveAspectRatio="none"
    )  # fmt: skip
    return box + tag("use", href=f"#{identity}", width="100%", height=height)


def chart(identity: str, title: str, description: str, height: float, *children: str) -> Markup:
    """Return a whole chart: an image with a title and a description for those who do not see it."""
    names = {"aria-labelledby": f"{identity}-title", "aria-describedby": f"{identity}-desc"}
    return tag(
        "svg",
        tag("title", title, id=f"{identity}-title"),
        tag("desc", description, id=f"{identity}-desc"),
        *children,
        class_="chart", role="img", id=identity, width="100%", height=height, **names,
    )  # fmt: skip


# --- charts -----------------------------------------------------------------------------------------------------------


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
    """A point with error bars both ways; `index` names it among all points of a page.

    `short` is written beside the point. A pale point is one that another point surpasses.
    """

    index: int
    label: str
    x: Measurement
    y: Measurement
    series: int = 0
    short: str = ""
    is_pale: bool = False


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
    as_bars: bool = False,
) -> Markup:
    """Return one row for each dot: its name and value in words, and below them the dot on its whisker.

    Parameters
    ----------
    band : (low, high), optional
        A shaded range in every row.
    rule : float, optional
        A dashed vertical line.
    as_bars : bool
        Whether a value is drawn as a bar from the low end of the scale instead of a dot.
    """
    bottom = ROW * len(dots)
    rows = [part for place, dot in enumerate(dots) for part in _dot_row(dot, ROW * place, scale, band, rule, as_bars)]
    axis = [_tick(words(tick), scale.at(tick), bottom + 18) for tick in scale.ticks]
    return chart(identity, title, description, bottom + 26, *rows, *axis)


def _dot_row(
    dot: Dot, top: float, scale: Scale, band: tuple[float, float] | None, rule: float | None, as_bars: bool
) -> list[Markup]:
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
        *(tag("text", name, x="0.8%", y=top + 15, class_=kind) for kind, name in names.items()),
        tag("text", dot.words, x="99.2%", y=top + 15, class_="amount end"),
        line(along(0), middle, along(1), middle, class_="track"),
    ]
    ends, value = dot.interval.ends, dot.interval.value
    if ends is not None:
        parts.append(line(along(scale.at(ends[0])), middle, along(scale.at(ends[1])), middle, class_="whisker"))
    if value is not None and as_bars:
        width = f"{(RIGHT - EDGE) * scale.at(value):.3f}%"
        parts.append(tag("rect", x=along(0), y=middle - 5, width=width, height=10, class_="bar"))
    elif value is not None:
        parts.append(tag("circle", cx=along(scale.at(value)), cy=middle, r=5.5, class_="dot"))
    mark = tag(
        "g", *parts, class_="mark unknown" if value is None else "mark", tabindex=0, role="img",
        aria_label=f"{dot.label}: {dot.words}", data_group=dot.label, **_data(dot.interval),
    )  # fmt: skip
    return [*row, mark]


def _tick(words: str, fraction: float, height: float, left: float = EDGE) -> Markup:
    """Return the words at a tick, kept inside the chart at its ends."""
    if fraction > 0.985:
        return tag("text", words, x="100%", y=height, class_="tick end", aria_hidden="true")
    if fraction < 0.015 and left == EDGE:
        return tag("text", words, x="0", y=height, class_="tick", aria_hidden="true")
    return tag("text", words, x=along(fraction, left), y=height, class_="tick middle", aria_hidden="true")


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


def _down(fraction: float, height: float = PLOT_HEIGHT) -> float:
    return PLOT_TOP + height * (1 - fraction)


def _axes(
    x: Scale, y: Scale, x_words: Words, y_words: Words, left: float = LEFT, tall: float = PLOT_HEIGHT
) -> list[Markup]:
    """Return grid lines and the words at ticks."""
    parts = []
    for tick in y.ticks:
        height = _down(y.at(tick), tall)
        parts.append(line(along(0, left), height, along(1, left), height, class_="grid"))
        parts.append(tag("text", y_words(tick), x=f"{left - 2}%", y=height + 4, class_="tick end", aria_hidden="true"))
    for tick in x.ticks:
        place, base = along(x.at(tick), left), PLOT_TOP + tall
        parts.append(line(place, base, place, base + 4, class_="grid"))
        parts.append(_tick(x_words(tick), x.at(tick), base + 18, left))
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
    can_pick: bool = True,
) -> Markup:
    """Return points with error bars both ways and labels; those of a series are joined in their order.

    Without `can_pick`, a point shows its values and cannot be chosen.
    """
    placed = [point for point in points if point.x.value is not None and point.y.value is not None]
    spots = [(along(x.at(one.x.value or 0.0), SCATTER_LEFT), _down(y.at(one.y.value or 0.0), SCATTER_HEIGHT))
             for one in placed]  # fmt: skip
    joins, bars = [], []
    for series in dict.fromkeys(point.series for point in placed):
        ours = [spot for point, spot in zip(placed, spots, strict=True) if point.series == series]
        name = f"join color-{series % N_COLORS}"
        joins += [line(*one, *other, class_=name) for one, other in pairwise(ours)]
    for point, (place, height) in zip(placed, spots, strict=True):
        name = f"error color-{point.series % N_COLORS}"
        if point.x.ends is not None:
            start, end = (along(x.at(value), SCATTER_LEFT) for value in point.x.ends)
            bars.append(line(start, height, end, height, class_=name))
        if point.y.ends is not None:
            low, high = (_down(y.at(value), SCATTER_HEIGHT) for value in point.y.ends)
            bars.append(line(place, low, place, high, class_=name))
    offsets = label_offsets(
        [(float(place.rstrip("%")), height) for place, height in spots], [point.short for point in placed]
    )
    marks = [_point_mark(*each, can_pick) for each in zip(placed, spots, offsets, strict=True)]
    return chart(
        identity, title, description, PLOT_TOP + SCATTER_HEIGHT + 26,
        *_axes(x, y, x_words, y_words, SCATTER_LEFT, SCATTER_HEIGHT), *joins, *bars, *marks,
    )  # fmt: skip


Offset = tuple[float, float]
Box = tuple[float, float, float, float]


def label_offsets(spots: Sequence[tuple[float, float]], texts: Sequence[str]) -> list[Offset]:
    """Return how far from its point the left end of each label's base line stands, so that no two things overlap.

    Each label takes the nearest free place: between the error bars of its point, beside it, or farther up and down. A
    place is free if it is so at every width in `DRAWN_WIDTHS`, because marks move apart when a chart gets wider.

    Parameters
    ----------
    spots : sequence of (percent of the width, pixels from the top)
    texts : sequence of str
        Empty where there is no label.

    Examples
    --------
    >>> label_offsets([(50.0, 100.0), (50.0, 100.0)], ["0.02", "0.05"])
    [(5.5, -7.5), (-33.5, -7.5)]
    """
    found: list[Offset] = [(0.0, 0.0)] * len(spots)
    taken = [(spot, (-MARK, MARK), 2 * MARK, 2 * MARK) for spot in spots]
    boxes = [[_box(width, *one) for one in taken] for width in DRAWN_WIDTHS]
    for place in sorted(range(len(spots)), key=lambda one: (spots[one][1], spots[one][0])):
        if not texts[place]:
            continue
        wide = LETTER * len(texts[place])
        fewest = math.inf
        for offset in _places(wide):
            own = [_box(width, spots[place], offset, wide, LABEL_HEIGHT) for width in DRAWN_WIDTHS]
            n_hits = sum(map(_hits, own, DRAWN_WIDTHS, boxes))
            if n_hits < fewest:
                fewest, found[place], kept = n_hits, offset, own
            if not n_hits:
                break
        for known, box in zip(boxes, kept, strict=True):
            known.append(box)
    return found


def _places(wide: float) -> list[Offset]:
    """Return where a label may stand, the best place first."""
    right, left, up, down = MARK - 2, 2 - MARK - wide, -MARK, MARK + 9
    sides = [(right, up), (left, up), (right, down), (left, down), (MARK + 3, 4.0), (-MARK - 3 - wide, 4.0)]
    heights = [sign * step * LABEL_HEIGHT + 4 for step in range(1, 12) for sign in (-1, 1)]
    return sides + [(across, height) for height in heights for across in (right, left, -wide / 2)]


def _box(width: float, spot: tuple[float, float], offset: Offset, wide: float, tall: float) -> Box:
    """Return left, right, top and bottom of what stands this far from a point in a chart of this width."""
    left, bottom = spot[0] * width / 100 + offset[0], spot[1] + offset[1]
    return left, left + wide, bottom - tall, bottom


def _hits(own: Box, width: float, others: Sequence[Box]) -> int:
    """Return how many boxes one overlaps; a place outside of the chart counts like many."""
    is_inside = (
        own[0] >= SCATTER_LEFT * width / 100 - 4
        and own[1] <= width
        and own[2] >= 0
        and own[3] <= PLOT_TOP + SCATTER_HEIGHT
    )
    hits = sum(own[0] < one[1] and one[0] < own[1] and own[2] < one[3] and one[2] < own[3] for one in others)
    return hits if is_inside else hits + 100


def _point_mark(point: Point, spot: tuple[str, float], offset: Offset, can_pick: bool) -> Markup:
    (place, height), name = spot, f"mark point color-{point.series % N_COLORS}"
    parts = [tag("circle", cx=place, cy=height, r=11, class_="hit"), shape(point.series, place, height)]
    if point.short and abs(offset[1]) > MARK + LABEL_HEIGHT:  # so far that only a line shows what it is about
        end = height + offset[1] + (3.0 if offset[1] < 0 else 3.0 - LABEL_HEIGHT)
        parts.insert(0, line(place, height, place, end, class_="leader"))
    if point.short:
        parts.append(
            tag("text", point.short, x=place, y=height + offset[1], dx=offset[0], class_="beside", aria_hidden="true")
        )
    role = {"role": "button", "aria_pressed": "false"} if can_pick else {"role": "img"}
    return tag(
        "g", *parts, class_=f"{name} pale" if point.is_pale else name, tabindex=0, **role,
        aria_label=point.label or UNKNOWN, data_index=point.index,
        **_data(point.x, "gap_"), **_data(point.y, "accuracy_"),
    )  # fmt: skip
