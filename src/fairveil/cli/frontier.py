"""`fairveil frontier`: many trainings on the same people, one page, and what all of them cost together."""

import csv
import io
import json
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import typer

from fairveil.accounting.composition import NeighboringRelation
from fairveil.cli._files import Folder, remove_strays, say, written_whole
from fairveil.cli.app import PER_POINT, Grid, TrainOptions
from fairveil.cli.train import RESULTS, Run, fit_run, prepare_run, write_results
from fairveil.errors import BadStructureError, InvalidParameterError
from fairveil.methods.registry import AUTO, method_named
from fairveil.privacy.ledger import Ledger
from fairveil.report.formatting import finite
from fairveil.report.frontier import frontier_of, frontier_page
from fairveil.report.text import frontier_text, sweep_notice

POINTS, SETTINGS = "points", "settings.json"
COLUMNS = (
    "method", "model", "epsilon", "tolerance", "accuracy", "accuracy_low", "accuracy_high", "gap", "gap_low",
    "gap_high", "smallest_tolerance_that_holds", "epsilon_spent", "seconds", "command",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One training of a sweep: its options, its run and its folder."""

    run: Run
    folder: Path

    @property
    def options(self) -> TrainOptions:
        """The options that train it."""
        return self.run.options

    @property
    def is_done(self) -> bool:
        """Whether all its results are there: the summary appears together with the rest."""
        return (self.folder / "summary.json").is_file()


def frontier(options: TrainOptions, grid: Grid) -> None:
    """Train every point that is not there yet, and draw them all."""
    points = list(_points(options, grid))
    path = points[0].run.source.ledger(options.ledger, options.out)
    ledger = Ledger(path)
    done, left = ([point for point in points if point.is_done is wanted] for wanted in (True, False))
    trainings = _trainings(left)
    plans = [training[0].run.classifier.planned() for training in trainings]
    ledger.check([charge for place, plan in enumerate(plans) for charge in plan.charges(f"split {place}")])
    _settle(options, points[0].run)
    _check_paid(ledger, done, path)
    if not options.as_json:
        typer.echo(sweep_notice(len(points), len(left), _repeated(done, left)), err=True)
    facts = {} if left else _draw(options, points, ledger)
    for training in trainings:
        _train(training, ledger)
        facts = _draw(options, points, ledger)
    say(options.as_json, facts, frontier_text(facts, options.out, points[0].folder / "model", path))


def _points(options: TrainOptions, grid: Grid) -> Iterator[Point]:
    """Return the points of the grid; a method without a tolerance has one for each epsilon."""
    budgets, limits = (_numbers(name, getattr(grid, name)) for name in ("epsilons", "tolerances"))
    for name, epsilon in product(dict.fromkeys(name.strip() for name in grid.methods.split(",")), budgets):
        method = None if name == AUTO else method_named(name)
        if method is not None and method.protects != "record":
            raise InvalidParameterError(
                f"Expected methods that hide whole records in a sweep, whose costs add up, got {name}; train it by "
                f"itself with 'fairveil train --protects {method.protects}'."
            )
        for tolerance in limits if method is None or method.bounds_gap else [None]:
            kind = "measured" if tolerance is None else f"tolerance-{_digits(tolerance)}"
            folder = options.out / POINTS / f"{name}-epsilon-{_digits(epsilon)}-{kind}"
            point = replace(options, method=name, epsilon=epsilon, tolerance=tolerance, out=folder, as_json=True)
            run = prepare_run(point)
            yield Point(replace(run, command=_command(run, options, grid)), folder)


def _numbers(name: str, text: str) -> list[float]:
    try:
        return list(dict.fromkeys(float(number) for number in text.split(",")))
    except ValueError:
        raise InvalidParameterError(f"Expected numbers separated by commas after --{name}, got {text!r}.") from None


def _digits(number: float) -> str:
    """Return a number as short as it can be without becoming another one."""
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)


def _command(run: Run, options: TrainOptions, grid: Grid) -> str:
    """Return the command that trains a point by itself, or the whole sweep if one training makes many points."""
    words = ["fairveil", "train", options.data]
    values = {one.name: getattr(run.options, one.name) for one in fields(TrainOptions)}
    if run.method.derives_frontier:
        words[1] = "frontier"
        shared = {name: value for name, value in values.items() if name not in PER_POINT}
        values = shared | {one.name: getattr(grid, one.name) for one in fields(Grid)}
    for name, value in values.items():
        option = f"--{name.replace('_', '-')}"
        if name == "aware":
            words.append("--aware" if value else "--unaware")
        elif name not in {"data", "as_json", "knobs"} and value is not None:
            for one in value if isinstance(value, (list, tuple)) else [value]:
                words += [option, str(one)]
    return shlex.join(words)


def _trainings(points: Sequence[Point]) -> list[list[Point]]:
    """Return the points that one training makes: one each, or all tolerances of a method that derives a frontier."""
    groups: dict[Any, list[Point]] = {}
    for point in points:
        shared = (point.run.method.name, point.options.epsilon)
        groups.setdefault(shared if point.run.method.derives_frontier else point.folder, []).append(point)
    for training in groups.values():
        run = training[0].run
        if run.method.derives_frontier:
            announced = tuple(point.options.tolerance for point in training)
            recipe = run.method.make_training(run.options.model)
            run.classifier.training = replace(recipe, announced=announced)
    return list(groups.values())


def _train(points: Sequence[Point], ledger: Ledger) -> None:
    """Fit once and write the results of every point; a folder that cannot be written is found before that."""
    run = points[0].run
    with ExitStack() as stack:
        folders = [stack.enter_context(Folder(point.folder, RESULTS)) for point in points]
        started = time.perf_counter()
        fit_run(run, run.source.file(), ledger)
        derived = [run.classifier]
        if run.method.derives_frontier:
            derived = run.classifier.frontier([point.options.tolerance or 0.0 for point in points])
        for point, clf, folder in zip(points, derived, folders, strict=True):
            write_results(point.run, clf, folder, started)


def _repeated(done: Sequence[Point], left: Sequence[Point]) -> list[tuple[str, float]]:
    """Return the methods and epsilons that were trained before for other tolerances, and must be paid again."""
    before, after = (
        {(one.run.method.name, one.options.epsilon) for one in points if one.run.method.derives_frontier}
        for points in (done, left)
    )
    return sorted(before & after)


def _settle(options: TrainOptions, run: Run) -> None:
    """Write down what all points share, or check that this sweep was begun with the same; clear what a kill left."""
    for folder in options.out.glob(f"{POINTS}/*"):
        remove_strays(folder)
    schema, place = run.classifier.schema, options.out / SETTINGS
    names = [one.name for one in fields(TrainOptions) if one.name not in {*PER_POINT, "as_json"}]
    settings = {name: getattr(options, name) for name in names}
    settings["schema"] = None if schema is None else schema.fingerprint()
    text = json.dumps(settings, indent=2, default=str) + "\n"
    if place.exists():
        try:
            begun = json.loads(place.read_bytes())
        except ValueError:
            begun = None
        if begun != json.loads(text):
            raise BadStructureError(
                f"Expected the sweep that was begun in {options.out}, got other data or options than its {SETTINGS} "
                "names; use the same, or another --out."
            )
        return
    try:
        (options.out / POINTS).mkdir(parents=True, exist_ok=True)
        with written_whole(place) as stage:
            stage.write_text(text)
    except OSError as problem:
        raise BadStructureError(
            f"Expected an output folder that can be written, got {problem.strerror} for {options.out}; name another "
            "one with --out."
        ) from None


def _check_paid(ledger: Ledger, done: Sequence[Point], path: Path) -> None:
    """Refuse a ledger that does not show the trainings of the points that are there: its total would be too low."""
    known = {entry.at for entry in ledger.entries}
    summaries = [json.loads((point.folder / "summary.json").read_bytes()) for point in done]
    paid = {entry["at"] for summary in summaries for entry in summary["ledger"]["entries"][-1:]}
    n_fits = sum(entry.purpose.startswith("fit of ") for entry in ledger.entries)
    if n_fits < len(paid) or not paid <= known:
        raise BadStructureError(
            f"Expected the ledger that paid for the {len(done)} points that are there, got {path} with {n_fits} fits; "
            "restore it, or name another --out."
        )


def _draw(options: TrainOptions, points: Sequence[Point], ledger: Ledger) -> dict[str, Any]:
    """Write the table and the page of all points that are there, and return what they show."""
    summaries = [json.loads((point.folder / "summary.json").read_bytes()) for point in points if point.is_done]
    total, replaced = (finite(ledger.epsilon(options.delta, each)) for each in NeighboringRelation)
    facts = frontier_of(summaries, len(points))
    facts |= {"epsilon_spent_total": total, "epsilon_spent_total_replace_one": replaced}
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore")
    writer.writeheader()
    for point in facts["points"]:
        ends = {f"{name}_{end}": point[name][end] for name in ("accuracy", "gap") for end in ("low", "high")}
        values = {name: point[name]["value"] for name in ("accuracy", "gap")}
        writer.writerow(point | values | ends)
    with written_whole(options.out / "frontier.csv") as stage:
        stage.write_text(text.getvalue())
    with written_whole(options.out / "frontier.html") as stage:
        stage.write_text(frontier_page(facts), encoding="utf-8")
    return facts
