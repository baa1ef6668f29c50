"""Escaped SVG elements, and one shape and colour for each series.

Horizontal positions are percentages and vertical ones pixels, so a chart fills any width while its text keeps its size.
"""

from markupsafe import Markup, escape

from fairveil.report.numbers import finite

__all__ = [
    "EDGE",
    "N_COLOURS",
    "RIGHT",
    "SHAPES",
    "along",
    "chart",
    "exact",
    "line",
    "path_use",
    "shape",
    "shape_of",
    "tag",
    "text",
]

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
N_COLOURS = 8
EDGE, RIGHT = 2.5, 97.5


def tag(name: str, *children: str, **attributes: Value) -> Markup:
    """Return an element; attribute names have `_` for `-`, None is left out, all text is escaped."""
    pairs = [
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _attribute(value))
        for key, value in attributes.items()
        if value is not None
    ]
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), Markup("").join(pairs), inside)


def _attribute(value: Value) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


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
    """Return which shape a series has; a second round of colours comes with other shapes."""
    return (series + series // N_COLOURS) % len(SHAPES)


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
    return tag(
        "svg",
        tag("title", title, id=f"{identity}-title"),
        tag("desc", description, id=f"{identity}-desc"),
        *children,
        class_="chart", role="img", id=identity, width="100%", height=height,
        aria_labelledby=f"{identity}-title", aria_describedby=f"{identity}-desc",
    )  # fmt: skip
