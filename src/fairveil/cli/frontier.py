"""`fairveil frontier`: many trainings on the same people, one page, and what all of them cost together."""

import csv
import io
import json
import math
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import typer

from fairveil._durable import recover, replace_together, replacing, stage_in
from fairveil.accounting.composition import NeighboringRelation
from fairveil.cli._files import SUMMARY, check_outputs, check_place, choose_ledger, made_folder, results_in
from fairveil.cli._terminal import named_progress, say
from fairveil.cli.options import PER_POINT, Grid, TrainOptions
from fairveil.cli.train import RESULTS, Run, fit_run, keep_results, prepare_run
from fairveil.errors import BadStructureError, InvalidParameterError
from fairveil.methods.inputs import open_schema
from fairveil.methods.registry import AUTO, method_named
from fairveil.privacy.ledger import Ledger, total_epsilon
from fairveil.report.formatting import finite
from fairveil.report.frontier import SWEEP, TOTALS, frontier_of, frontier_page
from fairveil.report.privacy_text import caution_lines
from fairveil.report.text import frontier_text, sweep_notice
from fairveil.summary import guarantee_of

POINTS, SETTINGS, TABLE, PAGE = OUTPUTS = ("points", "settings.json", "frontier.csv", "frontier.html")
COLUMNS = (
    "method", "model", "epsilon", "tolerance", "accuracy", "accuracy_low", "accuracy_high", "gap", "gap_low",
    "gap_high", "verdict", "smallest_tolerance_that_holds", "epsilon_spent", "seconds", "command",
)  # fmt: skip
TEXTS = ("data", "created", "version", "method", "model", "command")
NUMBERS = ("confidence", "smallest_tolerance_that_holds", "epsilon_spent", "seconds")


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
        return (self.folder / SUMMARY).is_file()


def frontier(options: TrainOptions, grid: Grid) -> None:
    """Train every point that is not there yet, and draw them all."""
    points = list(_points(options, grid))
    source = points[0].run.source
    path, cautions = choose_ledger(source, options.ledger, options.out)
    points = [replace(point, run=replace(point.run, cautions=cautions)) for point in points]
    check_outputs([options.out / name for name in OUTPUTS], source.inputs(path, schema=options.schema))
    settings = _settings(options, points[0].run)
    _check_begun(options.out, settings)
    for folder in (options.out, *options.out.glob(f"{POINTS}/*")):
        if folder.is_dir():
            recover(folder)
    ledger = Ledger(path)
    done, left = ([point for point in points if point.is_done is wanted] for wanted in (True, False))
    _check_paid(ledger, done, path)
    trainings = _trainings(left)
    plans = [training[0].run.classifier.planned() for training in trainings]
    for training, plan in zip(trainings, plans, strict=True):
        for point in training:
            guarantee_of(point.run.classifier.request(), plan)  # refuses what it must before anything is paid
    ledger.check([charge for place, plan in enumerate(plans) for charge in plan.charges(f"split {place}")])
    if not options.as_json:
        typer.echo(sweep_notice(len(points), len(left), _repeated(done, left)), err=True)
    with _begun(options.out, settings, points):
        facts = {} if left else _draw(options, points, ledger)
        is_quiet = options.as_json or not sys.stderr.isatty()
        for several in trainings if is_quiet else _shown(trainings):
            _train(several, ledger)
            facts = _draw(options, points, ledger)
    text = frontier_text(facts, options.out, points[0].folder / "model", path)
    say(options.as_json, facts | {"cautions": cautions}, "\n".join([text, *caution_lines(cautions)]))


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
        elif name not in {"data", "as_json", "knobs"} and value is not None and value is not False:
            for one in value if isinstance(value, (list, tuple)) else [value]:
                words += [option] if one is True else [option, str(one)]
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


def _shown(trainings: Sequence[Sequence[Point]]) -> Iterator[Sequence[Point]]:
    """Return the trainings one by one, under a bar that names the running one and counts points."""
    names = []
    for training in trainings:
        options = training[0].options
        limits = [f"{one.options.tolerance:g}" for one in training if one.options.tolerance is not None]
        requested = f", tolerance {', '.join(limits)}" if limits else ""
        names.append(f"{training[0].run.method.name}, epsilon {options.epsilon:g}{requested}")
    return named_progress(trainings, names, [len(training) for training in trainings])


def _train(points: Sequence[Point], ledger: Ledger) -> None:
    """Fit once and write the results of every point; a folder that cannot be written is found before that."""
    run = points[0].run
    with ExitStack() as stack:
        stages = [stack.enter_context(results_in(point.folder, RESULTS)) for point in points]
        started = time.perf_counter()
        fit_run(run, run.source.file(), ledger)
        derived, failures = [run.classifier], []
        if run.method.derives_frontier:
            derived = run.classifier.frontier([point.options.tolerance or 0.0 for point in points])
        for point, clf, stage in zip(points, derived, stages, strict=True):
            try:
                keep_results(point.run, clf, stage, started)
            except BadStructureError as problem:  # all points are paid for: keep those that can be kept
                failures.append(problem)
        if failures:
            raise failures[0]


def _repeated(done: Sequence[Point], left: Sequence[Point]) -> list[tuple[str, float]]:
    """Return the methods and epsilons that were trained before for other tolerances, and must be paid again."""
    before, after = (
        {(one.run.method.name, one.options.epsilon) for one in points if one.run.method.derives_frontier}
        for points in (done, left)
    )
    return sorted(before & after)


def _settings(options: TrainOptions, run: Run) -> str:
    """Return what all points of a sweep share, as JSON."""
    schema, names = open_schema(run.classifier.schema), [one.name for one in fields(TrainOptions)]
    settings = {name: getattr(options, name) for name in names if name not in {*PER_POINT, "as_json"}}
    settings["schema"] = None if schema is None else schema.fingerprint()
    return json.dumps(settings, indent=2, default=str) + "\n"


def _check_begun(out: Path, settings: str) -> None:
    """Refuse a folder in which another sweep was begun, or whose files no sweep wrote."""
    place = out / SETTINGS
    if not place.exists():
        for name in OUTPUTS:
            if (out / name).exists():
                raise BadStructureError(
                    f"Expected free places for the results in {out}, got {out / name}, which no sweep of fairveil "
                    "wrote there; move it away, or name another --out."
                )
        return
    try:
        begun = json.loads(place.read_bytes())
    except (ValueError, RecursionError):
        begun = None
    if begun != json.loads(settings):
        raise BadStructureError(
            f"Expected the sweep that was begun in {out}, got other data or options than its {SETTINGS} names; use "
            "the same, or another --out."
        )


@contextmanager
def _begun(out: Path, settings: str, points: Sequence[Point]) -> Iterator[None]:
    """Make the folder of a sweep with its settings; if the block fails before any point is done, nothing is left."""
    place = out / SETTINGS
    is_new = not place.exists()
    with made_folder(out):
        try:
            if is_new:
                check_place(place)
                with replacing(place) as new:
                    new.write_text(settings)
            with made_folder(out / POINTS):
                yield
        except BaseException:
            if is_new and not any(point.is_done for point in points):
                place.unlink(missing_ok=True)
            raise


def _summary(point: Point) -> dict[str, Any]:
    """Return the summary of a point that is done; refuse one that was cut off, or is not this point's."""
    place, options = point.folder / SUMMARY, point.options
    try:
        summary: dict[str, Any] = json.loads(place.read_bytes())
        entries = summary["ledger"]["entries"]
        texts = [*(summary[name] for name in TEXTS), *summary["sensitive"], *(entry["at"] for entry in entries)]
        numbers = [summary["ledger"][name] for name in TOTALS] + [summary[name] for name in NUMBERS]
        numbers += [summary[name][end] for name in ("accuracy", "gap") for end in ("value", "low", "high")]
        is_own = (summary["method"], summary["epsilon"]) == (point.run.method.name, finite(options.epsilon))
        is_own &= (summary["tolerance"], summary["delta"]) == (options.tolerance, options.delta)
        is_own &= (summary["constraint"], summary["protects"]) == (options.constraint, str(options.protects))
        is_own &= (summary["unit"], summary["aware"]) in product(("record", "person"), (True, False))
        are_numbers = all(one is None or (type(one) in {int, float} and math.isfinite(one)) for one in numbers)
        is_sound = is_own and are_numbers and all(isinstance(text, str) for text in texts)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        is_sound = False
    if not is_sound:
        raise BadStructureError(
            f"Expected the summary of this point of the sweep, got a damaged one in {place}; restore it, or remove "
            f"{point.folder} to train and pay for the point again."
        )
    return summary


def _check_paid(ledger: Ledger, done: Sequence[Point], path: Path) -> None:
    """Refuse a ledger that does not show the trainings of the points that are there: its total would be too low."""
    known = {entry.at for entry in ledger.entries}
    paid = {entry["at"] for point in done for entry in _summary(point)["ledger"]["entries"][-1:]}
    n_fits = sum(entry.purpose.startswith("fit of ") for entry in ledger.entries)
    if n_fits < len(paid) or not paid <= known:
        raise BadStructureError(
            f"Expected the ledger that paid for the {len(done)} points that are there, got {path} with {n_fits} fits; "
            "restore it, or name another --out."
        )


def _draw(options: TrainOptions, points: Sequence[Point], ledger: Ledger) -> dict[str, Any]:
    """Write the table and the page of all points that are there, and return what they show."""
    summaries = [_summary(point) for point in points if point.is_done]
    total, replaced = (finite(ledger.epsilon(options.delta, each)) for each in NeighboringRelation)
    facts = frontier_of(summaries, len(points))
    facts |= {"epsilon_spent_total": total, "epsilon_spent_total_replace_one": replaced}
    # a summary lists the ledger up to its own debit, which several points of one training share
    ours = {len(summary["ledger"]["entries"]) - 1 for summary in summaries}
    parts = {is_ours: [charge for place, entry in enumerate(ledger.entries) for charge in entry.charges
                       if (place in ours) is is_ours] for is_ours in (True, False)}  # fmt: skip
    costs = [finite(total_epsilon(parts[True], options.delta, each)) for each in NeighboringRelation]
    facts |= dict(zip(SWEEP, [*costs, finite(total_epsilon(parts[False], options.delta))], strict=True))
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore")
    writer.writeheader()
    for point in facts["points"]:
        ends = {f"{name}_{end}": point[name][end] for name in ("accuracy", "gap") for end in ("low", "high")}
        values = {name: point[name]["value"] for name in ("accuracy", "gap")}
        writer.writerow(point | values | ends)
    with stage_in(options.out) as stage:
        for name, content in ((TABLE, text.getvalue()), (PAGE, frontier_page(facts))):
            (stage / name).write_bytes(content.encode("utf-8", "backslashreplace"))
        replace_together(options.out, stage)
    return facts
