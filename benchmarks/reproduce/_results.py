"""What the five scripts share: their options, results as small CSV files with command and version, and pictures.

A script lists its items, `{"figure_1": function, ...}`. Each function takes a `Run` and returns tables and curves. They
are written to docs/research/figures/reproduce/ (with `--small` to build/reproduce/), and the site shows these files:

    <!-- table: reproduce/NAME -->    a table on a page, written by `python docs/make_tables.py`
    ```{curves} NAME                  a picture, drawn from the CSV file whenever the site is built
"""

import argparse
import csv
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))  # for `_harness` and other modules that benchmarks share
FULL, SMALL = ROOT / "docs" / "research" / "figures" / "reproduce", ROOT / "build" / "reproduce"

OURS, PUBLISHED = "ours", "published"
CURVE_COLUMNS = ("panel", "series", "source", "x", "y", "y_low", "y_high")


@dataclass(frozen=True)
class Table:
    """A table of the paper beside ours: rows are mappings with the same keys.

    `caveats` are whole sentences that a reader must see beside the figures.
    """

    name: str
    title: str
    rows: Sequence[Mapping[str, Any]]
    caveats: Sequence[str] = ()

    @property
    def notes(self) -> dict[str, str]:
        """The lines that stand above the rows of the file."""
        return {"title": self.title}

    @property
    def columns(self) -> list[str]:
        """The columns of the file, in the order of the first row."""
        return list(self.rows[0])


@dataclass(frozen=True)
class Curves:
    """The panels of a figure: points (panel, series, source, x, y, and the ends of an interval or None).

    `source` is "ours" or "published"; `x` and `y` are labels, `style` is "line" (points joined) or "points".
    """

    name: str
    title: str
    x: str
    y: str
    points: Sequence[Sequence[Any]]
    caveats: Sequence[str] = ()
    style: str = "line"
    log_x: bool = False

    @property
    def notes(self) -> dict[str, str]:
        """The lines that stand above the rows of the file."""
        return {"title": self.title, "x": self.x, "y": self.y, "style": self.style, "log_x": str(self.log_x).lower()}

    @property
    def columns(self) -> list[str]:
        """The columns of the file."""
        return list(CURVE_COLUMNS)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The points as rows of the file; an interval that is missing is left empty."""
        padded = (tuple(point) + (None,) * (len(CURVE_COLUMNS) - len(point)) for point in self.points)
        return [dict(zip(CURVE_COLUMNS, point, strict=True)) for point in padded]


Result = Table | Curves


@dataclass(frozen=True)
class Run:
    """How large a run is, and what was published.

    Attributes
    ----------
    is_small : bool
        Whether a few seconds have to do: two runs, few rows, no claim about figures.
    runs : int
        Random splits or noise seeds for each figure.
    folder : Path
        Where results are written; an item may read what another one wrote.
    """

    is_small: bool
    runs: int
    folder: Path
    reference: Path | None = field(default=None)

    def pick(self, full: Any, small: Any) -> Any:
        """Return the first of two values in a full run, the second in a small one."""
        return small if self.is_small else full

    def read(self, name: str) -> list[dict[str, str]]:
        """Return the rows of a file of published figures; none where that folder is not there."""
        if self.reference is None or not (self.reference / name).is_file():
            return []
        with (self.reference / name).open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    @cached_property
    def published_curves(self) -> list[dict[str, str]]:
        """Curves that others stored beside their code."""
        return self.read("published_curves.csv")

    @cached_property
    def published_tables(self) -> list[dict[str, str]]:
        """Every number in the tables of the five papers."""
        return self.read("paper_tables.csv")


def save(result: Result, folder: Path, command: str) -> Path:
    """Write a result with its title, command, version and caveats above the rows."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.name}.csv"
    notes = {**result.notes, "command": command, "version": version("fairveil")}
    with path.open("w", encoding="utf-8", newline="") as file:
        for key, text in notes.items():
            file.write(f"# {key}: {text}\n")
        for caveat in result.caveats:
            file.write(f"# caveat: {caveat}\n")
        writer = csv.DictWriter(file, result.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _short(value) for key, value in row.items()} for row in result.rows)
    return path


def load(path: Path) -> tuple[dict[str, str], list[str], list[dict[str, str]]]:
    """Return the notes, the caveats and the rows of a file that `save` wrote."""
    lines = path.read_text(encoding="utf-8").splitlines()
    above = [line.removeprefix("# ") for line in lines if line.startswith("# ")]
    pairs = [line.partition(": ")[::2] for line in above]
    notes = {key: text for key, text in pairs if key != "caveat"}
    return notes, [text for key, text in pairs if key == "caveat"], list(csv.DictReader(lines[len(above) :]))


def _short(value: Any) -> Any:
    """Return a number with four significant digits or four decimals; None as nothing."""
    if isinstance(value, bool) or not isinstance(value, float):
        return "" if value is None else value
    return f"{value:.4f}" if 1e-2 <= abs(value) < 1e3 else f"{value:.4g}"


def draw(path: Path, picture: Path) -> None:
    """Draw the curves of a file as SVG: one panel beside the other, published figures dashed."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("svg")
    from matplotlib import pyplot  # noqa: PLC0415

    notes, _, rows = load(path)
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    series = list(dict.fromkeys(row["series"] for row in rows))
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    style = {"svg.hashsalt": "fairveil", "font.size": 8}
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(lines, columns, figsize=(3.4 * columns, 2.7 * lines), squeeze=False)
        for place, axis in enumerate(axes.flat):
            axis.set_visible(place < len(panels))
            if place < len(panels):
                _draw_panel(axis, [row for row in rows if row["panel"] == panels[place]], series, notes)
                axis.set_title(panels[place], fontsize=8)
        handles = {
            label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            handles.values(), handles, loc="outside lower center", ncols=min(4, max(1, len(handles))), fontsize=7
        )
        height = 2.7 * lines
        bottom = (0.25 + 0.18 * -(-len(handles) // 4)) / height
        figure.tight_layout(rect=(0, bottom, 1, 1))
        picture.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(picture, metadata={"Date": None})
        pyplot.close(figure)


def _draw_panel(axis: Any, rows: Sequence[Mapping[str, str]], series: Sequence[str], notes: Mapping[str, str]) -> None:
    for name in dict.fromkeys(row["series"] for row in rows):
        own = [row for row in rows if row["series"] == name]
        x, y = ([float(row[key]) for row in own] for key in ("x", "y"))
        color = f"C{series.index(name) % 10}"
        is_published = own[0]["source"] == PUBLISHED
        line = "none" if notes.get("style") == "points" else "--" if is_published else "-"
        label = f"{name} (published)" if is_published else name
        axis.plot(
            x,
            y,
            linestyle=line,
            marker="x" if is_published else "o",
            markersize=3,
            linewidth=1,
            color=color,
            label=label,
        )
        if all(row["y_low"] and row["y_high"] for row in own):
            low, high = ([float(row[key]) for row in own] for key in ("y_low", "y_high"))
            axis.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
    axis.set_xlabel(notes["x"])
    axis.set_ylabel(notes["y"])
    if notes.get("log_x") == "true":
        axis.set_xscale("log")


def main(doc: str, items: Mapping[str, Callable[[Run], Iterable[Result]]], runs: int, small_runs: int = 2) -> None:
    """Run the chosen items of a paper, write their files, print them, and end in one line of JSON."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", default=",".join(items), help=f"some of {', '.join(items)}")
    parser.add_argument("--runs", type=int, help=f"splits or seeds [default: {runs}; small: {small_runs}]")
    parser.add_argument("--small", action="store_true", help="a few seconds, into build/reproduce, to see that it runs")
    parser.add_argument("--out", type=Path, help="where to write instead")
    options = parser.parse_args()
    chosen = [name.strip() for name in options.items.split(",")]
    if unknown := [name for name in chosen if name not in items]:
        parser.error(f"Expected items among {', '.join(items)}, got {', '.join(unknown)}.")
    folder = options.out or (SMALL if options.small else FULL)
    place = os.environ.get("FAIRVEIL_REFERENCE")
    n_runs = options.runs or (small_runs if options.small else runs)
    run = Run(options.small, n_runs, folder, Path(place) if place else None)
    seconds = {}
    for name in chosen:
        started = time.perf_counter()
        words = ["python", f"benchmarks/reproduce/{Path(sys.argv[0]).name}", "--items", name, "--runs", str(run.runs)]
        for result in items[name](run):
            path = save(result, folder, shlex.join([*words, *(["--small"] if options.small else [])]))
            print(f"\n## {result.title}\n\n{path.read_text(encoding='utf-8')}", flush=True)
        seconds[name] = round(time.perf_counter() - started, 1)
    print(json.dumps({"small": options.small, "runs": run.runs, "seconds": seconds}))
