"""The chart of a column's points in a linear model: one row for each of its values."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from fairveil.report.charts import N_COLORS, Scale, chart, clip_text, exact, line, shape, tag
from fairveil.report.formatting import compact, fixed

MOST_LEVELS, LEVEL_ROW, LEVEL_NAME = 18, 21.0, 19
LEVEL_LEFT, LEVEL_RIGHT = 43.0, 86.0


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
    largest = sorted(range(len(facts["levels"])), key=lambda level: -max(abs(row[level]) for row in points))
    kept = sorted(largest[:MOST_LEVELS])
    bottom, words, rows = LEVEL_ROW * len(kept), [], []
    across = lambda value: f"{LEVEL_LEFT + (LEVEL_RIGHT - LEVEL_LEFT) * scale.at(value):.3f}%"  # noqa: E731
    for tick in scale.ticks:
        rows.append(line(across(tick), 2.0, across(tick), bottom, class_="grid" if tick else "zero"))
        axis = tag("text", compact(tick), x=across(tick), y=bottom + 16, class_="tick middle", aria_hidden="true")
        rows.append(axis)
    for place, level in enumerate(kept):
        name, values = facts["levels"][level], [row[level] for row in points]
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
