"""A comparison as Markdown, CSV, SVG and one HTML page that needs no network."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fairveil._durable import replace_together, stage_in
from fairveil.report.charts import (
    SHAPES,
    Point,
    Scale,
    in_words,
    measurement,
    scale_over,
    scatter_chart,
    tag,
)
from fairveil.report.formatting import DASH, compact, fixed, level, points
from fairveil.report.frontier import Series
from fairveil.report.page import plain_facts, render

PAGE, MARKDOWN, FIGURES = "bench.html", "bench.md", "figures"
GAP_TICKS = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
"""Where the axis of gaps has ticks; it is drawn by the square root, because small gaps are compared most."""

NOT_PRIVATE = (
    "All figures are exact counts on held-out rows. They protect nobody: bench is for public data. A model of private "
    "rows is measured privately by 'fairveil train' and 'fairveil certify'."
)
NEEDED = (
    "created", "version", "command", "n_planned", "n_done", "failures", "missing", "confidence", "reference_gap",
    "gaps", "baseline", "test", "family", "n_seeds", "train_share", "delta", "data", "versions", "headline", "cells",
    "panels", "tests",
)  # fmt: skip
SVG_SIZE = (860, 424)
"""Pixels of a figure by itself."""

Facts = Mapping[str, Any]
Row = tuple[str, ...]
Table = tuple[Row, list[Row]]
"""The names of columns, and rows of text."""


# --- words ------------------------------------------------------------------------------------------------------------


def epsilon_words(epsilon: Any) -> str:
    """Return an epsilon as a person reads it.

    Examples
    --------
    >>> epsilon_words(1.0), epsilon_words("inf"), epsilon_words(None)
    ('1', 'infinite', 'not private')
    """
    if epsilon is None:
        return "not private"
    return "infinite" if epsilon == "inf" else compact(epsilon)


def with_half(interval: Facts) -> str:
    """Return a number and half the width of its interval.

    Examples
    --------
    >>> with_half({"value": 0.8, "low": 0.79, "high": 0.81}), with_half({"value": 0.8, "low": None, "high": None})
    ('0.8000 ± 0.0100', '0.8000')
    """
    one = measurement(interval)
    text = DASH if one.value is None else fixed(one.value)
    return text if one.ends is None else f"{text} ± {fixed((one.ends[1] - one.ends[0]) / 2)}"


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _tolerance(value: float | None) -> str:
    return "none" if value is None else compact(value)


def headline_table(facts: Facts) -> Table:
    """Return every private contender beside the optimum that is not private."""
    header = ("data", "constraint", "method", "epsilon", "tolerance", "accuracy", "gap",
              "not private: accuracy", "not private: gap", "by")  # fmt: skip
    rows: list[Row] = []
    for one in facts["headline"]:
        best = one["optimum"]
        beside = (DASH, DASH, DASH)
        if best is not None:
            beside = (fixed(best["accuracy"]["value"]), fixed(best["gap"]["value"]), best["label"])
        rows.append(
            (one["data"], _spaced(one["constraint"]), one["label"], epsilon_words(one["epsilon"]),
             _tolerance(one["tolerance"]), with_half(one["accuracy"]), with_half(one["gap"]), *beside)
        )  # fmt: skip
    return header, rows


def area_table(facts: Facts) -> Table:
    """Return dominated areas and the best accuracy at each gap."""
    at = tuple(f"accuracy at gap <= {compact(one)}" for one in facts["gaps"])
    rows: list[Row] = [
        (panel["data"], _spaced(panel["constraint"]), epsilon_words(panel["epsilon"] if curve["is_private"] else None),
         curve["label"], str(len(curve["points"])), with_half(curve["area"]), *map(with_half, curve["accuracy_at"]))
        for panel in facts["panels"] for curve in panel["curves"]
    ]  # fmt: skip
    header = ("data", "constraint", "epsilon", "method", "points", "dominated area", *at)
    return header, list(dict.fromkeys(rows))


def tests_table(facts: Facts) -> Table:
    """Return the paired tests."""
    header = ("data", "constraint", "epsilon", "tolerance", "method", "minus", "figure", "difference", "splits", "p",
              "p, Holm")  # fmt: skip
    rows: list[Row] = [
        (one["data"], _spaced(one["constraint"]), epsilon_words(one["epsilon"]), _tolerance(one["tolerance"]),
         one["label"], one["baseline"], one["figure"], with_half(one["difference"]), str(one["n"]), _p(one["p"]),
         _p(one["p_holm"]))
        for one in facts["tests"]
    ]  # fmt: skip
    return header, rows


def _p(value: float | None) -> str:
    if value is None:
        return DASH
    return "< 0.0001" if value < 1e-4 else fixed(value)


def aligned(table: Table) -> str:
    """Return a table for a terminal.

    Examples
    --------
    >>> print(aligned((("name", "n"), [("a", "10")])))
    name  n
    a     10
    """
    lines = [table[0], *table[1]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(one, widths, strict=True)).rstrip() for one in lines
    )


def method_lines(facts: Facts) -> list[str]:
    """Return how it was measured, in sentences."""
    share, n_runs = level(facts["train_share"]), f"{facts['n_done']} of {facts['n_planned']} runs are here"
    lines = [
        NOT_PRIVATE,
        f"{n_runs}; {facts['n_seeds']} splits, {share} of the rows (or persons) train; every contender gets the same "
        f"rows. Delta is {compact(facts['delta'])}; noise is never seeded.",
        f"Intervals have {level(facts['confidence'])} confidence by themselves and come from splits and noise "
        "together, by leaving out one split at a time; they do not count that splits share rows.",
        f"A dominated area is the mean, over gaps from 0 to {compact(facts['reference_gap'])}, of how far the best "
        "mean accuracy at that gap is above deciding for everybody what is most frequent in training. Areas, "
        "frontiers and the accuracy at a gap choose among points by test figures, which flatters those with many.",
        f"Differences from {facts['baseline']} on common splits: {facts['test']}, with {facts['family']}.",
    ]
    for one in facts["data"]:
        reads = "may" if one["aware"] else "may not"
        lines.append(
            f"{one['name']}: groups by {', '.join(one['sensitive'])}, which decisions {reads} read; splits by "
            f"{one['split']}, privacy of each {one['unit']}; about {one['n_train']} rows train and {one['n_test']} "
            f"test; deciding what is most frequent is right in {fixed(one['constant_accuracy'])}. "
            f"Source: {one['source']}."
        )
    several = [name for name, found in facts["versions"].items() if len(found) > 1]
    if several:
        lines.append(f"Runs were made with several versions of {', '.join(several)}; run all of them anew to compare.")
    lines += [f"{name} was left out: its rows are not there." for name in facts["missing"]]
    return lines


def markdown(facts: Facts) -> str:
    """Return a comparison as Markdown."""
    parts = [
        "# fairveil bench",
        "",
        f"`{_cell(facts['command'])}`, fairveil {facts['version']}, {facts['created']}",
        "",
    ]
    for title, table in (
        ("Methods beside the optimum that is not private", headline_table(facts)),
        ("Dominated area and accuracy at a gap", area_table(facts)),
        ("Paired tests", tests_table(facts)),
    ):
        parts += [f"## {title}", "", *_markdown_rows(table), ""]
    parts += ["## How it was measured", "", *(f"* {_cell(one)}" for one in method_lines(facts)), ""]
    if facts["failures"]:
        parts += ["## Runs that failed", "", *(f"* `{_cell(one['id'])}`: {_cell(one['error'])}" for one in
                                               facts["failures"]), ""]  # fmt: skip
    return "\n".join(parts)


def _markdown_rows(table: Table) -> Iterable[str]:
    for place, row in enumerate([table[0], *table[1]]):
        yield f"| {' | '.join(map(_cell, row))} |"
        if place == 0:
            yield f"|{'---|' * len(row)}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


# --- figures ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """All points of one data set, constraint and epsilon."""

    heading: str
    name: str
    chart: Markup


def series_of(facts: Facts) -> dict[str, Series]:
    """Return a series for each contender, in the order of the grid."""
    labels = dict.fromkeys(curve["label"] for panel in facts["panels"] for curve in panel["curves"])
    return {label: Series(label, place) for place, label in enumerate(labels)}


def panels_of(facts: Facts) -> list[Panel]:
    """Return a chart for each data set, constraint and epsilon; those of one data set share their axes."""
    series, found = series_of(facts), []
    for place, panel in enumerate(facts["panels"]):
        alike = [one for one in facts["panels"] if one["data"] == panel["data"]]
        shown = [point for one in alike for curve in one["curves"] for point in curve["points"]]
        largest = max((_reach(point["gap"]) for point in shown), default=0.0)
        n_ticks = next((n for n, tick in enumerate(GAP_TICKS, 1) if tick >= largest), len(GAP_TICKS))
        x = Scale(0.0, GAP_TICKS[n_ticks - 1], GAP_TICKS[:n_ticks], power=0.5)
        ends = [point["accuracy"][end] for point in shown for end in ("value", "low", "high")]
        y = scale_over(ends, lowest=0.0, highest=1.0, about=6)
        private = "not private" if panel["epsilon"] is None else f"epsilon {epsilon_words(panel['epsilon'])}"
        heading = f"{panel['data']}, {panel['constraint'].replace('_', ' ')}, {private}"
        name = f"{panel['data']}-{panel['constraint']}-{private}"
        name = "".join(one if one.isascii() and (one.isalnum() or one in "._-") else "_" for one in name)
        found.append(Panel(heading, f"{place + 1:02d}-{name[:100]}", _chart(place, heading, panel, series, x, y)))
    return found


def _reach(gap: Facts) -> float:
    return max((one for one in (gap["value"], gap["high"]) if one is not None), default=0.0)


def _chart(place: int, heading: str, panel: Facts, series: Mapping[str, Series], x: Scale, y: Scale) -> Markup:
    marks: list[Point] = []
    for curve in panel["curves"]:
        for one in sorted(curve["points"], key=lambda point: point["gap"]["value"] or 0.0):
            accuracy, gap = measurement(one["accuracy"]), measurement(one["gap"])
            wanted = "no tolerance" if one["tolerance"] is None else f"tolerance {compact(one['tolerance'])}"
            pale = "" if one["is_on_frontier"] else "; another point of this method is better in both"
            label = f"{curve['label']}, {wanted}: accuracy {in_words(accuracy)}, gap {in_words(gap, points)}{pale}"
            short = "" if one["tolerance"] is None else compact(one["tolerance"])
            number, own = len(marks), series[curve["label"]].place
            marks.append(Point(number, label, gap, accuracy, own, short, not one["is_on_frontier"]))
    description = f"{len(marks)} points. " + "; ".join(mark.label for mark in marks) + "."
    return scatter_chart(
        f"panel-{place}", f"Accuracy against gap: {heading}", description, marks, x, y,
        lambda tick: compact(100 * tick, 6), lambda tick: compact(100 * tick, 6), can_pick=False,
    )  # fmt: skip


def svg_text(panel: Panel, series: Iterable[Series]) -> str:
    """Return a chart as a file of its own, with its style, its marks and a legend."""
    wide, tall = SVG_SIZE
    style = (resources.files("fairveil.report") / "templates" / "page.css").read_text(encoding="utf-8")
    shapes = [tag("path", id=f"shape-{place}", d=one) for place, one in enumerate(SHAPES)]
    several = list(series)
    legend = [
        tag("g", tag("use", href=f"#shape-{one.shape}", class_="shape"), tag("text", one.name, x=12, y=4),
            class_=f"color-{one.color}", transform=f"translate(16 {tall + 24 + 22 * place})")
        for place, one in enumerate(several)
    ]  # fmt: skip
    bottom = tall + 24 + 22 * len(several)
    inside = tag("svg", panel.chart, x=20, y=34, width=wide - 40, height=tall - 40, overflow="visible")
    title = tag("text", panel.heading, x=20, y=20, class_="name")
    axes = tag("text", "gap, percentage points (square-root scale); upward: accuracy, %", x=20, y=tall + 4,
               class_="tick")  # fmt: skip
    paper = tag("rect", width="100%", height="100%", fill="#fcfcfa")
    # an image by itself is light, whatever the page around it is
    light = Markup(style.split("@media screen")[0] + _after_media(style))
    return str(
        Markup('<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}">').format(
            wide, bottom
        )
        + tag("style", light)
        + tag("defs", *shapes)
        + Markup("").join([paper, title, inside, axes, *legend])
        + Markup("</svg>\n")
    )


def _after_media(style: str) -> str:
    """Return the rules for drawings alone."""
    kept = ("svg", ".grid", ".error", ".join", ".mark", ".shape", ".color-", ".point", ".pale", ".leader", ".beside",
            ".hit")  # fmt: skip
    return "\n".join(one for one in style.splitlines() if one.startswith(kept) and "@" not in one)


# --- files ------------------------------------------------------------------------------------------------------------


def bench_page(facts: Facts) -> str:
    """Return a comparison as one HTML text that needs no network."""
    shown = plain_facts("bench", facts, NEEDED)
    return render(
        "bench.html.jinja",
        shown,
        carried={name: shown[name] for name in ("created", "version", "command", "headline", "tests")},
        series=list(series_of(shown).values()),
        panels=panels_of(shown),
        tables=[
            ("headline", "Methods beside the optimum that is not private", headline_table(shown)),
            ("areas", "Dominated area and accuracy at a gap", area_table(shown)),
            ("tests", "Paired tests on common splits", tests_table(shown)),
        ],
        lines=method_lines(shown),
    )


def write_outputs(out: Path, facts: Facts, results: Sequence[Facts]) -> list[str]:
    """Write all files of a comparison together, and return their names."""
    texts = {
        MARKDOWN: markdown(facts),
        PAGE: bench_page(facts),
        "headline.csv": _csv(_headline_rows(facts)),
        "areas.csv": _csv(_area_rows(facts)),
        "tests.csv": _csv([one | _ends("difference", one["difference"]) for one in facts["tests"]]),
        "runs.csv": _csv(_run_rows(results)),
    }
    series = series_of(facts)
    with stage_in(out) as stage:
        for name, text in texts.items():
            (stage / name).write_text(text, encoding="utf-8")
        (stage / FIGURES).mkdir()
        for panel, one in zip(panels_of(facts), facts["panels"], strict=True):
            own = [series[curve["label"]] for curve in one["curves"]]
            (stage / FIGURES / f"{panel.name}.svg").write_text(svg_text(panel, own), encoding="utf-8")
        replace_together(out, stage)
    return [*texts, FIGURES]


def _ends(name: str, interval: Facts) -> dict[str, Any]:
    """Return an interval as three cells, to the last digit."""
    return {name: interval["value"], f"{name}_low": interval["low"], f"{name}_high": interval["high"]}


PLACE = ("data", "constraint", "label", "contender", "epsilon", "tolerance")


def _headline_rows(facts: Facts) -> list[dict[str, Any]]:
    rows = []
    for one in facts["headline"]:
        best = one["optimum"] or {"label": None, "accuracy": {"value": None}, "gap": {"value": None}}
        beside = {f"optimum_{name}": best[name]["value"] for name in ("accuracy", "gap")}
        means = _ends("accuracy", one["accuracy"]) | _ends("gap", one["gap"])
        own = {name: one[name] for name in ("seeds", "epsilon_spent", "seconds")}
        rows.append({name: one[name] for name in PLACE} | means | {"optimum": best["label"]} | beside | own)
    return rows


def _area_rows(facts: Facts) -> list[dict[str, Any]]:
    rows = []
    for panel in facts["panels"]:
        for curve in panel["curves"]:
            place = {name: panel[name] for name in ("data", "constraint", "epsilon")} | {"label": curve["label"]}
            reference = {"reference_gap": facts["reference_gap"], "reference_accuracy": panel["reference_accuracy"]}
            row = place | reference | _ends("area", curve["area"])
            for gap, best in zip(facts["gaps"], curve["accuracy_at"], strict=True):
                row |= _ends(f"accuracy_at_{gap:g}", best)
            rows.append(row)
    return rows


def _run_rows(results: Sequence[Facts]) -> list[dict[str, Any]]:
    """Return every run with all its figures."""
    names = list(dict.fromkeys(name for one in results for name in one["figures"]))
    facts = ("constraint", "label", "contender", "epsilon", "tolerance", "seed", "epsilon_spent", "protects", "n_train",
             "n_test", "seconds", "command")  # fmt: skip
    return [
        {"id": one["id"], "data": one["data"]["name"]}
        | {name: one[name] for name in facts}
        | {name: one["figures"].get(name) for name in names}
        | {"version": one["versions"]["fairveil"]}
        for one in results
    ]


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV; what is not known is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
