"""The trace of a training -> charts and tables of how its bounds went."""

from dataclasses import dataclass

import pandas as pd
from markupsafe import Markup

from fairveil.errors import BadStructureError
from fairveil.report.charts import Line, line_chart
from fairveil.report.formatting import compact, finite
from fairveil.report.svg import Scale, scale_over, thin

COLUMNS = ("step", "bound", "value", "low", "high", "limit", "multiplier")
MOST_BOUNDS = 8
MOST_POINTS = 200


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
class Course:
    """What the page shows: the bounds drawn, all others, one panel a drawn bound and one of all multipliers."""

    drawn: tuple[BoundTrace, ...]
    others: tuple[BoundTrace, ...]
    panels: tuple[Markup, ...]
    multipliers: Markup

    @property
    def n_bounds(self) -> int:
        """How many bounds there are in all."""
        return len(self.drawn) + len(self.others)


def course_of(trace: pd.DataFrame) -> Course | None:
    """Return the charts and tables of a trace, or None if it is empty."""
    missing = [name for name in COLUMNS if name not in trace.columns]
    if missing:
        raise BadStructureError(
            f"Expected a trace with the column {missing[0]!r}, got {list(trace.columns)}."
        )
    if trace.empty:
        return None
    bounds = sorted(
        (_bound_course(str(name), rows) for name, rows in trace.groupby("bound", sort=False)),
        key=lambda one: -one.excess,
    )
    drawn = tuple(bounds[:MOST_BOUNDS])
    steps = [step for one in drawn for step in (one.steps[0], one.steps[-1])]
    x = _between(min(steps), max(steps))
    return Course(drawn, tuple(bounds[MOST_BOUNDS:]), _panels(drawn, x), _multipliers(drawn, x))


def _between(low: float, high: float) -> Scale:
    """Return a scale that ends where the steps end, with the ticks inside."""
    ticks = scale_over((low, high), about=4).ticks
    return Scale(low, high, tuple(tick for tick in ticks if low <= tick <= high))


def _bound_course(name: str, rows: pd.DataFrame) -> BoundTrace:
    rows = rows.sort_values("step", kind="stable")
    rows = rows.iloc[thin(len(rows), MOST_POINTS)]
    columns = {
        column: tuple(finite(value) for value in rows[column]) for column in COLUMNS if column != "bound"
    }
    steps = tuple(float(step) for step in rows["step"])
    return BoundTrace(
        name, columns["limit"][-1], steps, columns["value"], columns["low"], columns["high"], columns["multiplier"]
    )  # fmt: skip


def _panels(drawn: tuple[BoundTrace, ...], x: Scale) -> tuple[Markup, ...]:
    """Return one panel a bound, all on the same scale; wide bands of the first steps may leave the picture."""
    values = [value for one in drawn for value in one.values]
    ends = [
        end for one in drawn for end in (*one.lows[len(one.lows) // 4 :], *one.highs[len(one.highs) // 4 :])
    ]
    limits = [one.limit for one in drawn if one.limit is not None]
    y = scale_over([*values, *ends], include=limits, about=4)
    return tuple(
        line_chart(
            f"bound-{place}", f"Course of bound {place + 1}: {one.bound}", _described(one),
            [Line(one.bound, one.steps, one.values, one.lows, one.highs, place)], x, y, compact, rule=one.limit,
        )
        for place, one in enumerate(drawn)
    )  # fmt: skip


def _described(one: BoundTrace) -> str:
    last = one.last
    return (
        f"Left side over {len(one.steps)} points up to step {compact(last['step'])}; "
        f"it ends at {compact(last['value'])}, the limit is {compact(one.limit)}."
    )


def _multipliers(drawn: tuple[BoundTrace, ...], x: Scale) -> Markup:
    lines = [
        Line(f"multiplier of {one.bound}", one.steps, one.multipliers, series=place)
        for place, one in enumerate(drawn)
    ]
    y = scale_over([value for one in drawn for value in one.multipliers], include=(0.0,), about=4)
    return line_chart(
        "multipliers", "Multipliers: how hard training pushed on each bound",
        f"One line for each of {len(drawn)} bounds over the steps; zero means that training left the bound alone.",
        lines, x, y, compact,
    )  # fmt: skip
