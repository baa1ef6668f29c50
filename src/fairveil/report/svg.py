"""Building blocks of charts: escaped SVG elements, scales with round ticks, one shape and color for each series.

Horizontal positions are percentages and vertical ones pixels, so a chart fills any width while its text keeps its size.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from markupsafe import Markup, escape

from fairveil.report.formatting import finite

WIDE_FROM = 0x1100
"""From this code point on, a character takes two columns."""
SAME = 1e-6
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """A straight map from values to 0..1, with the ticks to draw.

    Examples
    --------
    >>> Scale(0.0, 2.0, (0.0, 1.0, 2.0)).at(0.5)
    0.25
    """

    low: float
    high: float
    ticks: tuple[float, ...] = ()

    def at(self, value: float) -> float:
        """Return the position of a value, 0 at the low end and 1 at the high end; values outside are clipped."""
        if self.high <= self.low:
            return 0.5
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)


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


def text(words: str, x: Value, y: Value, **attributes: Value) -> Markup:
    """Return a text, by default hidden from screen readers: titles and tables say the same."""
    return tag("text", words, x=x, y=y, **attributes)


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
