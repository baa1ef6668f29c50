"""Many trainings -> one HTML page: accuracy against gap, and what all of them cost together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from fairveil.errors import InvalidParameterError
from fairveil.report.charts import Point, scatter_chart
from fairveil.report.formatting import Shown, compact, level, percent, points, shown
from fairveil.report.privacy_text import neighbour_of
from fairveil.report.rendering import check_keys, plain, render
from fairveil.report.svg import N_COLOURS, Scale, scale_over, shape_of
from fairveil.report.text import awareness, gap_name, privacy_promise

NEEDED = (
    "data", "created", "version", "constraint", "delta", "protects", "unit", "sensitive", "aware", "confidence",
    "n_planned",
    "epsilon_spent_total", "epsilon_spent_total_replace_one", "points",
)  # fmt: skip
OF_POINT = (
    "method", "model", "epsilon", "tolerance", "accuracy", "gap", "smallest_tolerance_that_holds", "epsilon_spent",
    "seconds", "command",
)  # fmt: skip
KNOWN_METHODS = ("dp2dp", "raco", "parity", "functional", "fairdp", "pfld", "dpsgd", "dpsgdf", "output")


def frontier_of(summaries: Sequence[Mapping[str, Any]], n_planned: int | None = None) -> dict[str, Any]:
    """Return what `frontier_page` shows, from the summaries of trainings on the same people, the newest last.

    Parameters
    ----------
    summaries : sequence of mappings
        What ``FairClassifier.summary()`` returned, or ``summary.json`` holds; at least one.
    n_planned : int, optional
        How many trainings were meant; None for as many as there are.
    """
    if not summaries:
        raise InvalidParameterError("Expected the summary of at least one training, got none; train first.")
    newest = summaries[-1]
    shared = (
        "data",
        "created",
        "version",
        "constraint",
        "delta",
        "protects",
        "unit",
        "sensitive",
        "aware",
        "confidence",
    )
    totals = ("epsilon_spent_total", "epsilon_spent_total_replace_one")
    return {
        **{name: newest[name] for name in shared},
        **{name: newest["ledger"][name] for name in totals},
        "n_planned": len(summaries) if n_planned is None else n_planned,
        "points": [{name: summary[name] for name in OF_POINT} for summary in summaries],
    }


@dataclass(frozen=True)
class Series:
    """One method, and its model where several are compared; the place gives it its shape and colour."""

    name: str
    place: int

    @property
    def shape(self) -> int:
        """Which shape marks it."""
        return shape_of(self.place)

    @property
    def colour(self) -> int:
        """Which colour marks it."""
        return self.place % N_COLOURS


@dataclass(frozen=True)
class Row:
    """One point as the table shows it."""

    index: int
    series: Series
    given: Mapping[str, Any]
    accuracy: Shown
    gap: Shown

    @property
    def is_drawn(self) -> bool:
        """Whether both values are known."""
        return self.accuracy.value is not None and self.gap.value is not None


@dataclass(frozen=True)
class Panel:
    """All points of one epsilon."""

    heading: str
    chart: Markup


def frontier_page(frontier: Mapping[str, Any]) -> str:
    """Return the frontier of many trainings as one HTML text that needs no network.

    Parameters
    ----------
    frontier : mapping
        What `frontier.json` holds: facts common to all points, the composed epsilon, and `points`.

    Guarantees
    ----------
    Everything on the page was released before, so the page costs no privacy. Text is shown as it is and cannot become
    markup; the page forbids itself any connection and any script but its own.
    """
    check_keys("frontier", frontier, NEEDED)
    given = plain(frontier)
    series = _series(given["points"])
    rows = [_row(place, point, series) for place, point in enumerate(given["points"])]
    return render(
        "frontier.html.jinja",
        given,
        awareness=awareness(given["sensitive"], given["aware"]),
        gap_name=gap_name(given["constraint"], given.get("against")),
        neighbour=neighbour_of(given),
        promise=privacy_promise(given["epsilon_spent_total"], given["delta"], neighbour_of(given)),
        series=list(series.values()),
        panels=_panels(rows),
        rows=rows,
        n_missing=max(given["n_planned"] - len(rows), 0),
        n_undrawn=sum(not row.is_drawn for row in rows),
        n_open=sum(row.given["epsilon"] is None for row in rows),
        largest=max((row.given["epsilon_spent"] or 0.0 for row in rows), default=0.0),
    )


def _series(given: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Series]:
    """Return a series for each method and model; known methods keep their colour on every page."""
    pairs = sorted(dict.fromkeys((one["method"], one["model"]) for one in given), key=_rank)
    if len({model for _, model in pairs}) > 1:
        return {pair: Series(", ".join(pair), place) for place, pair in enumerate(pairs)}
    known = {method: place for place, method in enumerate(KNOWN_METHODS)}
    others = [method for method, _ in pairs if method not in known]
    places = known | {method: len(known) + place for place, method in enumerate(others)}
    return {pair: Series(pair[0], places[pair[0]]) for pair in pairs}


def _rank(pair: tuple[str, str]) -> tuple[int, str, str]:
    method, model = pair
    known = KNOWN_METHODS.index(method) if method in KNOWN_METHODS else len(KNOWN_METHODS)
    return known, method, model


def _row(place: int, point: Mapping[str, Any], series: Mapping[tuple[str, str], Series]) -> Row:
    ours = series[point["method"], point["model"]]
    return Row(place, ours, point, shown(point["accuracy"]), shown(point["gap"]))


def _panels(rows: Sequence[Row]) -> list[Panel]:
    """Return one panel an epsilon, smallest first and not private last, all on the same axes."""
    drawn = [row for row in rows if row.is_drawn]
    x = _shared([row.gap for row in drawn], start=(0.0,))
    y = _shared([row.accuracy for row in drawn])
    budgets = {row.given["epsilon"] for row in drawn}
    ordered = sorted(budgets, key=lambda epsilon: (epsilon is None, epsilon or 0.0))
    return [
        _panel(place, epsilon, [row for row in drawn if row.given["epsilon"] == epsilon], x, y)
        for place, epsilon in enumerate(ordered)
    ]


def _shared(intervals: Sequence[Shown], start: Sequence[float] = ()) -> Scale:
    ends = [end for one in intervals for end in (one.value, *(one.ends or ()))]
    return scale_over(ends, include=start, floor=0.0, ceiling=1.0, about=4)


def _panel(place: int, epsilon: float | None, rows: Sequence[Row], x: Scale, y: Scale) -> Panel:
    heading = "Not private" if epsilon is None else f"Epsilon {compact(epsilon)}"
    ordered = sorted(rows, key=_order)
    marks = [
        Point(row.index, _label(row, heading), row.gap, row.accuracy, row.series.place) for row in ordered
    ]
    description = f"{len(marks)} points. " + "; ".join(mark.label for mark in marks) + "."
    chart = scatter_chart(
        f"panel-{place}", f"Accuracy against gap: {heading}", description, marks, x, y,
        lambda tick: compact(100 * tick, 6), level,
    )  # fmt: skip
    return Panel(heading, chart)


def _order(row: Row) -> tuple[int, bool, float]:
    tolerance = row.given["tolerance"]
    return row.series.place, tolerance is None, tolerance or 0.0


def _label(row: Row, heading: str) -> str:
    tolerance = row.given["tolerance"]
    asked = "no tolerance asked" if tolerance is None else f"tolerance {compact(tolerance)}"
    return (
        f"{row.series.name}, {heading}, {asked}: accuracy {_told(row.accuracy, percent)}, "
        f"gap {_told(row.gap, points)}"
    )


def _told(interval: Shown, words: Any) -> str:
    if interval.ends is None:
        return str(words(interval.value))
    low, high = (percent(end).removesuffix("%").rstrip() for end in interval.ends)
    return f"{words(interval.value)} ({low} to {high})"
