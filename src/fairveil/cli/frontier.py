"""`fairveil frontier`: many trainings on the same people, one page, and what all of them cost together."""

import csv
import io
import json
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import typer

from fairveil._validation import check_choice
from fairveil.accounting.composition import NeighboringRelation
from fairveil.cli._inputs import ledger_file
from fairveil.cli._outputs import Folder, remove_strays, say, written_whole
from fairveil.cli.options import RunOptions
from fairveil.cli.train import RESULTS, Run, fit_run, prepared, train_into, write_results
from fairveil.errors import BadStructureError, InvalidParameterError
from fairveil.methods.functional.recipe import Functional
from fairveil.methods.registry import AUTO, METHODS, method_named
from fairveil.privacy.ledger import Ledger
from fairveil.report.formatting import finite
from fairveil.report.frontier import frontier_of, frontier_page
from fairveil.report.text import frontier_text, sweep_notice

POINTS, SETTINGS = "points", "settings.json"
UNBOUNDED = ("fairdp", "dpsgd", "dpsgdf", "output")
COLUMNS = (
    "method", "model", "epsilon", "tolerance", "accuracy", "accuracy_low", "accuracy_high", "gap", "gap_low",
    "gap_high", "smallest_tolerance_that_holds", "epsilon_spent", "seconds", "command",
)  # fmt: skip


@dataclass(frozen=True)
class Sweep:
    """What is asked for: a grid of trainings on one table, each with a folder of its own."""

    options: RunOptions
    out: Path
    points: tuple[RunOptions, ...]

    def folder(self, point: RunOptions) -> Path:
        """Return where the results of a point stand, or will."""
        tolerance = "measured" if point.tolerance is None else f"tolerance-{_digits(point.tolerance)}"
        return self.out / POINTS / f"{point.method}-epsilon-{_digits(point.epsilon)}-{tolerance}"

    def is_done(self, point: RunOptions) -> bool:
        """Return whether the results of a point are there, all of them: the summary appears with the rest."""
        return (self.folder(point) / "summary.json").is_file()

    def settings(self, run: Run) -> dict[str, Any]:
        """Return what all points share, schema and books included: a sweep goes on only under the same."""
        options, schema = self.options, run.classifier.schema
        names = ("data", "target", "delta", "constraint", "against", "aware", "model", "n_public", "unit")
        shared = {name: getattr(options, name) for name in (*names, "holdout", "confidence", "delimiter")}
        ledger = None if options.ledger is None else str(options.ledger)
        facts = {"schema": None if schema is None else schema.fingerprint(), "ledger": ledger}
        return shared | {"sensitive": list(options.sensitive)} | facts


def _digits(number: float) -> str:
    """Return a number as short as it can be without becoming another one."""
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)


def frontier(options: RunOptions, epsilons: str, tolerances: str, methods: str) -> None:
    """Train every point that is not there yet, and draw them all."""
    sweep = Sweep(options, options.out, tuple(_points(options, epsilons, tolerances, methods)))
    asked = {"--epsilons": epsilons, "--tolerances": tolerances, "--methods": methods}
    runs = {point: prepared(point, _command(point, sweep, asked)) for point in sweep.points}
    path = ledger_file(next(iter(runs.values())).source, options.ledger, options.out)
    ledger, left = Ledger(path), [point for point in sweep.points if not sweep.is_done(point)]
    trainings = [_training(runs, points) for points in _together(left)]
    plans = [training.classifier.planned() for training, _ in trainings]
    ledger.check([charge for place, plan in enumerate(plans) for charge in plan.charges(f"split {place}")])
    _settle(sweep, sweep.settings(next(iter(runs.values()))))
    done = [point for point in sweep.points if sweep.is_done(point)]
    _check_paid(ledger, [sweep.folder(point) for point in done], path)
    _announce(options, len(sweep.points), len(left), _again(done, left))
    facts = {} if left else _draw(sweep, ledger)
    for training, points in trainings:
        _train_points(training, points, sweep, ledger)
        facts = _draw(sweep, ledger)
    say(
        options.as_json, facts, frontier_text(facts, sweep.out, sweep.folder(sweep.points[0]) / "model", path)
    )


def _together(points: Sequence[RunOptions]) -> list[list[RunOptions]]:
    """Return the points that one training serves: all tolerances of the functional mechanism at one epsilon."""
    groups: dict[Any, list[RunOptions]] = {}
    for point in points:
        groups.setdefault(
            ("functional", point.epsilon) if point.method == "functional" else point, []
        ).append(point)
    return list(groups.values())


def _training(runs: dict[RunOptions, Run], points: list[RunOptions]) -> tuple[Run, dict[RunOptions, Run]]:
    """Return what is fitted for these points, which are then derived from it."""
    lead = runs[points[0]]
    if lead.options.method == "functional":
        announced = tuple(point.tolerance for point in points if point.tolerance is not None)
        lead.classifier.training = Functional(announced=announced)
    return lead, {point: runs[point] for point in points}


def _train_points(training: Run, points: dict[RunOptions, Run], sweep: Sweep, ledger: Ledger) -> None:
    """Fit once and write the results of every point; a place that cannot be written is found before that."""
    if training.options.method != "functional":
        train_into(training, sweep.folder(training.options), ledger)
        return
    with ExitStack() as stack:
        folders = [stack.enter_context(Folder(sweep.folder(point), RESULTS)) for point in points]
        started = time.perf_counter()
        fit_run(training, ledger)
        derived = training.classifier.frontier([point.tolerance or 0.0 for point in points])
        for run, clf, folder in zip(points.values(), derived, folders, strict=True):
            write_results(run, clf, folder, started)


def _points(options: RunOptions, epsilons: str, tolerances: str, methods: str) -> Iterator[RunOptions]:
    names = [check_choice("methods", name.strip(), (AUTO, *METHODS)) for name in methods.split(",")]
    budgets, limits = _numbers("--epsilons", epsilons), _numbers("--tolerances", tolerances)
    if "pfld" in names:
        raise InvalidParameterError(
            "Expected methods that hide whole records in a sweep, whose costs add up, got pfld; train it by itself "
            "with 'fairveil train --protects attribute'."
        )
    for method, epsilon in product(dict.fromkeys(names), budgets):
        for tolerance in [None] if method in UNBOUNDED else limits:
            model = options.model or ("linear" if method == AUTO else method_named(str(method)).default_model)
            yield replace(
                options, method=str(method), epsilon=epsilon, tolerance=tolerance, model=model, as_json=True
            )


def _numbers(option: str, text: str) -> list[float]:
    try:
        return list(dict.fromkeys(float(number) for number in text.split(",")))
    except ValueError:
        raise InvalidParameterError(f"Expected numbers with commas after {option}, got {text!r}.") from None


def _check_paid(ledger: Ledger, done: Sequence[Path], path: Path) -> None:
    """Refuse books that do not show the trainings of the points that are there: their total would be too low."""
    known = {entry.at for entry in ledger.entries}
    summaries = [json.loads((folder / "summary.json").read_bytes()) for folder in done]
    paid = {entry["at"] for summary in summaries for entry in summary["ledger"]["entries"][-1:]}
    n_fits = sum(entry.purpose.startswith("fit of ") for entry in ledger.entries)
    if n_fits < len(paid) or not paid <= known:
        raise BadStructureError(
            f"Expected the ledger that paid for the {len(done)} points that are there, got {path} with {n_fits} fits; "
            "restore it, or name another --out."
        )


def _settle(sweep: Sweep, settings: dict[str, Any]) -> None:
    """Write down what the sweep is about, or check that it is the one that was begun here; clear what a kill left."""
    for folder in sweep.out.glob(f"{POINTS}/*"):
        remove_strays(folder)
    place = sweep.out / SETTINGS
    if place.exists():
        try:
            begun = json.loads(place.read_bytes())
        except ValueError:
            begun = None
        if begun != settings:
            raise BadStructureError(
                f"Expected the sweep that was begun in {sweep.out}, got other data or options than its {SETTINGS} "
                "names; use the same, or another --out."
            )
        return
    try:
        sweep.out.mkdir(parents=True, exist_ok=True)
        (sweep.out / POINTS).mkdir(exist_ok=True)
        with written_whole(place) as stage:
            stage.write_text(json.dumps(settings, indent=2) + "\n")
    except OSError as problem:
        raise BadStructureError(
            f"Expected an output folder that can be written, got {problem.strerror} for {sweep.out}; name another one "
            "with --out."
        ) from None


def _announce(options: RunOptions, n_points: int, n_left: int, again: list[float]) -> None:
    if options.as_json:
        return
    typer.echo(sweep_notice(n_points, n_left, [("functional", epsilon) for epsilon in again]), err=True)


def _again(done: Sequence[RunOptions], left: Sequence[RunOptions]) -> list[float]:
    """Return the budgets at which the functional mechanism was trained before, for other tolerances."""
    before = {point.epsilon for point in done if point.method == "functional"}
    return sorted(before & {point.epsilon for point in left if point.method == "functional"})


def _draw(sweep: Sweep, ledger: Ledger) -> dict[str, Any]:
    """Write the table and the page of all points that are there, and return what they show."""
    summaries = [
        json.loads((sweep.folder(point) / "summary.json").read_bytes())
        for point in sweep.points
        if sweep.is_done(point)
    ]
    total, replaced = (ledger.epsilon(sweep.options.delta, each) for each in NeighboringRelation)
    facts = frontier_of(summaries, len(sweep.points)) | {
        "epsilon_spent_total": finite(total),
        "epsilon_spent_total_replace_one": finite(replaced),
    }
    with written_whole(sweep.out / "frontier.csv") as stage:
        stage.write_text(_table(facts["points"]))
    with written_whole(sweep.out / "frontier.html") as stage:
        stage.write_text(frontier_page(facts), encoding="utf-8")
    return facts


def _table(points: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    for point in points:
        row = {
            name: value for name, value in point.items() if name in COLUMNS and not isinstance(value, dict)
        }
        for name in ("accuracy", "gap"):
            row |= {
                name: point[name]["value"],
                f"{name}_low": point[name]["low"],
                f"{name}_high": point[name]["high"],
            }
        writer.writerow(row)
    return text.getvalue()


def _command(point: RunOptions, sweep: Sweep, asked: dict[str, str]) -> str:
    """Return the command that makes a point, at a cost of its own: of many made by one training, the whole sweep."""
    is_shared, out = point.method == "functional", sweep.folder(point)
    words: list[Any] = ["fairveil", "train", point.data, "--method", point.method, "--epsilon", point.epsilon]
    if is_shared:
        words, out = (
            ["fairveil", "frontier", point.data, *(word for pair in asked.items() for word in pair)],
            sweep.out,
        )
    words += ["--model", point.model, "--delta", point.delta, "--constraint", point.constraint]
    words += ["--against", point.against, "--aware" if point.aware else "--unaware"]
    words += ["--holdout", point.holdout]
    words += ["--confidence", point.confidence]
    if point.tolerance is not None and not is_shared:
        words += ["--tolerance", point.tolerance]
    for name in point.sensitive:
        words += ["--sensitive", name]
    named = {
        "--target": point.target,
        "--schema": point.schema,
        "--n-public": point.n_public,
        "--unit": point.unit,
    }
    named |= {"--ledger": point.ledger, "--delimiter": None if point.delimiter == "," else point.delimiter}
    for option, value in named.items():
        words += [] if value is None else [option, value]
    return shlex.join(map(str, [*words, "--out", out]))
