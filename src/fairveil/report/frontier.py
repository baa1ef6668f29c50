"""The frontier of many trainings as one HTML page: accuracy against gap, and what all of them cost together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from fairveil.errors import InvalidParameterError
from fairveil.methods.registry import METHODS
from fairveil.report.charts import (
    N_COLORS,
    Measurement,
    Point,
    Scale,
    in_words,
    measurement,
    scale_over,
    scatter_chart,
    shape_of,
)
from fairveil.report.formatting import compact, points
from fairveil.report.page import plain_facts, render
from fairveil.report.privacy_text import neighbor_wording, privacy_promise
from fairveil.report.text import VERDICT_BADGES, awareness, gap_name

SHARED = (
    "data", "created", "version", "constraint", "delta", "protects", "unit", "sensitive", "aware", "confidence",
)  # fmt: skip
TOTALS = ("epsilon_spent_total", "epsilon_spent_total_replace_one")
SWEEP = ("epsilon_sweep", "epsilon_sweep_replace_one", "epsilon_besides_sweep")
"""What the points cost together, and what was spent on the same people besides; None where it is not known."""

NEEDED = (*SHARED, *TOTALS, "n_planned", "points")
GAP_TICKS = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
"""Where the axis of gaps has ticks; it is drawn by the square root, because small gaps are compared most."""

OF_POINT = (
    "method", "model", "epsilon", "tolerance", "accuracy", "gap", "smallest_tolerance_that_holds", "epsilon_spent",
    "seconds", "command",
)  # fmt: skip


def frontier_of(summaries: Sequence[Mapping[str, Any]], n_planned: int | None = None) -> dict[str, Any]:
    """Return what `frontier_page` shows, from the summaries of trainings on the same people, the newest last.

    Parameters
    ----------
    summaries : sequence of mappings
        What ``FairClassifier.summary()`` returned, or ``summary.json`` holds; at least one.
    n_planned : int, optional
        How many trainings were planned; None for as many as there are.
    """
    if not summaries:
        raise InvalidParameterError("Expected the summary of at least one training, got none; train first.")
    newest = summaries[-1]
    return {
        **{name: newest[name] for name in SHARED},
        **{name: newest["ledger"][name] for name in TOTALS},
        "n_planned": len(summaries) if n_planned is None else n_planned,
        **dict.fromkeys(SWEEP),
        "points": [
            {name: summary[name] for name in OF_POINT} | {"verdict": (summary["certificate"] or {}).get("verdict")}
            for summary in summaries
        ],
    }


@dataclass(frozen=True)
class Series:
    """One method, or one method and model where several models are compared; its place decides shape and color."""

    name: str
    place: int

    @property
    def shape(self) -> int:
        """Which shape marks it."""
        return shape_of(self.place)

    @property
    def color(self) -> int:
        """Which color marks it."""
        return self.place % N_COLORS


@dataclass(frozen=True)
class Row:
    """One point as the table shows it."""

    index: int
    series: Series
    point: Mapping[str, Any]
    accuracy: Measurement
    gap: Measurement

    @property
    def short(self) -> str:
        """What stands beside the point: its tolerance and the sign of its verdict."""
        tolerance, verdict = self.point["tolerance"], self.point.get("verdict")
        if tolerance is None:
            return "none"
        sign = VERDICT_BADGES[verdict][1] if verdict in VERDICT_BADGES else ""
        return f"{compact(tolerance)} {sign}".rstrip()

    def surpasses(self, other: "Row") -> bool:
        """Whether the measured values are at least as good in both, and better in one, at the same epsilon."""
        if self.point["epsilon"] != other.point["epsilon"] or not (self.is_drawn and other.is_drawn):
            return False
        ours, theirs = ((one.gap.value or 0.0, -(one.accuracy.value or 0.0)) for one in (self, other))
        return ours != theirs and ours[0] <= theirs[0] and ours[1] <= theirs[1]

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
        What `frontier_of` returns: facts common to all points, the composed epsilon, and `points`.

    Notes
    -----
    Everything on the page was released before, so the page costs no privacy. Text is shown as it is and cannot become
    markup; the page forbids itself any connection and any script but its own.
    """
    facts = plain_facts("frontier", dict.fromkeys(SWEEP) | dict(frontier), NEEDED)
    series, neighbor = _series(facts["points"]), neighbor_wording(facts)
    rows = [
        Row(
            place,
            series[point["method"], point["model"]],
            point,
            measurement(point["accuracy"]),
            measurement(point["gap"]),
        )
        for place, point in enumerate(facts["points"])
    ]
    return render(
        "frontier.html.jinja",
        facts,
        awareness=awareness(facts["sensitive"], facts["aware"]),
        gap_name=gap_name(facts["constraint"], facts.get("against")),
        neighbor=neighbor,
        promise=privacy_promise(facts["epsilon_spent_total"], facts["delta"], neighbor),
        series=list(series.values()),
        panels=_panels([row for row in rows if row.is_drawn]),
        rows=rows,
        surpassed={row.index for row in rows if any(one.surpasses(row) for one in rows)},
        n_missing=max(facts["n_planned"] - len(rows), 0),
        n_undrawn=sum(not row.is_drawn for row in rows),
        n_open=sum(row.point["epsilon"] is None for row in rows),
        largest=max((row.point["epsilon_spent"] or 0.0 for row in rows), default=0.0),
    )


def _series(found: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Series]:
    """Return a series for each method and model; registered methods keep their color on every page."""
    places = {name: method.color for name, method in METHODS.items()}
    n_known = 1 + max(places.values())
    pairs = dict.fromkeys((point["method"], point["model"]) for point in found)
    ordered = sorted(pairs, key=lambda pair: (places.get(pair[0], n_known), *pair))
    if len({model for _, model in ordered}) > 1:
        return {pair: Series(", ".join(pair), place) for place, pair in enumerate(ordered)}
    others = [method for method, _ in ordered if method not in places]
    places |= {method: n_known + place for place, method in enumerate(others)}
    return {pair: Series(pair[0], places[pair[0]]) for pair in ordered}


def _panels(rows: Sequence[Row]) -> list[Panel]:
    """Return one panel for each epsilon, smallest first and not private last, all on the same axes."""
    gaps = [end for row in rows for end in (row.gap.value, *(row.gap.ends or ()))]
    accuracies = [end for row in rows for end in (row.accuracy.value, *(row.accuracy.ends or ()))]
    largest = max((gap for gap in gaps if gap is not None), default=0.0)
    n_ticks = next((place for place, tick in enumerate(GAP_TICKS, 1) if tick >= largest), len(GAP_TICKS))
    x = Scale(0.0, GAP_TICKS[n_ticks - 1], GAP_TICKS[:n_ticks], power=0.5)
    y = scale_over(accuracies, lowest=0.0, highest=1.0, about=6)
    budgets = sorted({row.point["epsilon"] for row in rows}, key=lambda each: (each is None, each or 0.0))
    return [
        _panel(place, epsilon, [row for row in rows if row.point["epsilon"] == epsilon], x, y)
        for place, epsilon in enumerate(budgets)
    ]


def _panel(place: int, epsilon: float | None, rows: Sequence[Row], x: Scale, y: Scale) -> Panel:
    heading, marks = "Not private" if epsilon is None else f"Epsilon {compact(epsilon)}", []
    for row in sorted(rows, key=_order):
        tolerance = row.point["tolerance"]
        requested = "no tolerance requested" if tolerance is None else f"tolerance {compact(tolerance)}"
        is_pale, verdict = any(one.surpasses(row) for one in rows), row.point.get("verdict")
        requested += f" ({VERDICT_BADGES[verdict][2]})" if verdict in VERDICT_BADGES and tolerance is not None else ""
        label = (
            f"{row.series.name}, {heading}, {requested}: accuracy {in_words(row.accuracy)}, "
            f"gap {in_words(row.gap, points)}{'; another point is better in both' if is_pale else ''}"
        )
        marks.append(Point(row.index, label, row.gap, row.accuracy, row.series.place, row.short, is_pale))
    description = f"{len(marks)} points. " + "; ".join(mark.label for mark in marks) + "."
    chart = scatter_chart(
        f"panel-{place}", f"Accuracy against gap: {heading}", description, marks, x, y,
        lambda tick: compact(100 * tick, 6), lambda tick: compact(100 * tick, 6),
    )  # fmt: skip
    return Panel(heading, chart)


def _order(row: Row) -> tuple[int, bool, float]:
    tolerance = row.point["tolerance"]
    return row.series.place, tolerance is None, tolerance or 0.0
