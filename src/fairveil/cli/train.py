"""`fairveil train` and `fairveil explain`: options become a `FairClassifier`, which refuses what does not fit."""

import hashlib
import json
import shlex
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from fairveil._durable import replace_together
from fairveil._random import Key
from fairveil.certificates import check_confidence
from fairveil.cli._files import (
    SUMMARY,
    Source,
    check_outputs,
    choose_ledger,
    rescue,
    results_in,
    source_with_schema,
)
from fairveil.cli._terminal import progress_unless, say
from fairveil.cli.app import STARTED
from fairveil.cli.options import TrainOptions
from fairveil.data.schema import Schema
from fairveil.data.values import number_of
from fairveil.errors import (
    BadStructureError,
    InvalidParameterError,
    MissingPublicFactError,
    SmallTableWarning,
    ToleranceNotMetWarning,
)
from fairveil.fair_classifier import FairClassifier
from fairveil.fairness.constraints import CONSTRAINT_TYPES, Constraint, Parity
from fairveil.fairness.rule_parser import Rule
from fairveil.methods.base import Method
from fairveil.methods.engines import cache_beside
from fairveil.methods.registry import AUTO, METHODS
from fairveil.methods.settings import parsed_settings, with_settings
from fairveil.privacy.ledger import Ledger, units_of
from fairveil.report.card import model_card
from fairveil.report.page import report_page
from fairveil.report.privacy_text import different_units_caution
from fairveil.report.text import CHECK_NOTE, explanation, file_options, training_text
from fairveil.summary import guarantee_of

TRACE, KEY, REPORT, CARD = "constraint_trace.csv", "key", "report.html", "model-card.md"
RESULTS = {"model": "folder", SUMMARY: "file", REPORT: "file", TRACE: "file", KEY: "file", CARD: "file"}


@dataclass(frozen=True)
class Run:
    """A table, and a classifier that is ready to be fitted to it."""

    options: TrainOptions
    source: Source
    classifier: FairClassifier
    method: Method
    command: str
    cautions: Sequence[str] = ()


def prepare_run(options: TrainOptions, command: str = "") -> Run:
    """Return what the options request, all of it checked before any row is read."""
    source, schema, sensitive = _prepare_source(options)
    named: Any = CONSTRAINT_TYPES.get(options.constraint)
    if named is None:
        names = ", ".join(map(repr, CONSTRAINT_TYPES))
        raise InvalidParameterError(f"Expected --constraint to be one of {names}, got {options.constraint!r}.")
    has_bounds = options.tolerance is not None or bool(options.rule)
    constraints: list[Constraint] = [Rule(text) for text in options.rule or ()]
    if options.tolerance is not None or not constraints:
        more = {"against": str(options.against)} if issubclass(named, Parity) else {}
        constraints.insert(0, named(options.tolerance or 0.0, **more))
    check_confidence(options.confidence)
    clf = FairClassifier(
        constraints,
        options.epsilon,
        options.delta,
        sensitive=sensitive,
        aware=options.aware,
        method=options.method,
        schema=schema,
        holdout=AUTO if options.holdout == AUTO else number_of(options.holdout),
        protects=str(options.protects),
        auc=options.auc,
    )
    method = clf.request().method
    clf.method = method.name
    if method.bounds_gap != has_bounds:  # Python cannot see what was not typed
        expected = f"--tolerance or --rule with {method.name}, got neither; write --tolerance 0.05, or use a method "
        expected += f"that needs none: {', '.join(one.name for one in METHODS.values() if not one.bounds_gap)}."
        if has_bounds:
            others = " or ".join(one.name for one in METHODS.values() if one.bounds_gap)
            expected = f"no --tolerance and no --rule, because {method.name} measures the gap and does not bound it; "
            expected += f"leave them out, or use --method {others}."
        raise InvalidParameterError(f"Expected {expected}")
    knob = options.knobs.get(method.knob or "")
    for name in options.knobs:
        if name != method.knob:
            owners = " or ".join(one.name for one in METHODS.values() if one.knob == name)
            raise InvalidParameterError(
                f"Expected --{name.replace('_', '-')} with {owners} only, got it with {method.name}; leave it out."
            )
    if options.model is not None or knob is not None or options.setting:
        training = method.make_training(options.model, knob)
        clf.training = with_settings(training, parsed_settings(options.setting or ()))
        clf.request()
    return Run(options, source, clf, method, command)


def _prepare_source(options: TrainOptions) -> tuple[Source, Schema, list[str]]:
    """Return the table, its schema as the options change it, and the sensitive columns: by default its first one."""
    source, schema = source_with_schema(options.data, options.schema)
    if options.target not in {None, schema.target.column}:
        raise BadStructureError(
            f'Expected the target that the schema declares, "{schema.target.column}", got "{options.target}"; '
            "edit the schema's [target]."
        )
    if options.unit == "person" and schema.id_column is None:
        raise MissingPublicFactError(
            'Expected the column that names the person; write id_column = "..." in the schema.'
        )
    if options.protects == "attribute" and options.n_public is not None:
        raise InvalidParameterError(
            "Expected no --n-public with --protects attribute, because the number of rows is public and is counted, "
            f"got {options.n_public}; leave it out."
        )
    sensitive = list(dict.fromkeys(options.sensitive or [entry.column for entry in schema.sensitive[:1]]))
    for name in sensitive:
        if "," in name and name not in schema.columns:
            raise BadStructureError(
                f"Expected one column after --sensitive, got {name!r}; repeat --sensitive for each."
            )
        schema.sensitive_named(name)  # refuses an unknown one, and names a close match
    changes: dict[str, object] = {}
    if options.unit == "record" and schema.id_column is not None:
        changes["id_column"] = None
    if options.n_public is not None:
        changes["n_public"] = options.n_public
    return source, Schema(**(dict(schema) | changes)) if changes else schema, sensitive


def train(options: TrainOptions) -> None:
    """Train, certify on the held-out people, write the folder, debit the ledger."""
    run = prepare_run(options, shlex.join(["fairveil", *sys.argv[1:]]))
    ledger, cautions = choose_ledger(run.source, options.ledger, options.out)
    run = replace(run, cautions=cautions)
    inputs = run.source.inputs(ledger, schema=options.schema, **{"folder of encoded rows": options.cache})
    check_outputs([options.out / name for name in RESULTS], inputs)
    with results_in(options.out, RESULTS) as stage:
        request = run.classifier.request()
        guarantee_of(request, run.classifier.planned())  # refuses what it must before it is paid
        if request.caution is not None and not options.as_json:  # else it stands in the summary
            typer.echo(f"caution: {request.caution}", err=True)
        started = time.perf_counter()
        fit_run(run, run.source.file(), Ledger(ledger))
        summary = keep_results(run, run.classifier, stage, started, started - STARTED)
    written = [name for name in ("model", SUMMARY, TRACE, KEY, CARD) if (options.out / name).exists()]
    option = file_options(options.delimiter, options.encoding)
    cache = options.cache or cache_beside(ledger)
    kept = cache if cache is not None and cache.is_dir() else None
    say(options.as_json, summary, training_text(summary, options.out, written, ledger, option, kept))


def explain(options: TrainOptions) -> None:
    """Print the plan, what it guarantees, and whether it fits the ledger; no row is read."""
    run = prepare_run(options)
    plan = run.classifier.planned()
    request = run.classifier.request()
    facts = guarantee_of(request, plan) | {"cautions": [] if request.caution is None else [request.caution]}
    ledger = run.source.ledger(options.ledger, options.out)
    engine = ""
    if run.source.path is not None or (facts["n_public"] is not None and facts["unit"] == "record"):
        place = options.cache or cache_beside(ledger)
        choice = request.method.make_estimator(request).planned_engine(run.source.path or "", options.engine, place)
        facts["engine"], engine = choice.public_name, f"{choice.engine.name}: {choice.why}"
    past = Ledger(ledger).units if ledger.is_file() else ()
    planned = units_of(plan.charges() if plan.is_private else ())
    if len(past) == 1 and planned and planned != past:
        facts["cautions"].append(different_units_caution(ledger.name, past, planned))
    words = ["train" if word == "explain" else word for word in sys.argv[1:]]
    words += [] if "--out" in words else ["--out", "results"]
    check = ["check", options.data, *(["--schema", str(options.schema)] if options.schema is not None else [])]
    lines = [
        explanation(facts, f"'fairveil train {run.source.name}'", engine),
        f"Next: {shlex.join(['fairveil', *words])}",
    ]
    lines.append(
        f"      {shlex.join(['fairveil', *check])}{file_options(options.delimiter, options.encoding)}  {CHECK_NOTE}"
    )
    say(options.as_json, facts, "\n".join(lines))


def fit_run(run: Run, file: Path, ledger: Ledger) -> None:
    """Fit the classifier of a run to the file of its table, at the cost of this ledger."""
    run.classifier.ledger = ledger
    options = run.options
    with warnings.catch_warnings():
        for kind in (ToleranceNotMetWarning, SmallTableWarning):  # the summary says it
            warnings.simplefilter("ignore", kind)
        run.classifier.fit_file(
            file,
            delimiter=options.delimiter,
            encoding=options.encoding,
            engine=options.engine,
            cache=options.cache,
            address=options.address,
            progress=progress_unless(options.as_json, "training"),
            reading=progress_unless(options.as_json, "reading"),
        )


def keep_results(run: Run, clf: FairClassifier, stage: Path, started: float, before: float = 0.0) -> dict[str, Any]:
    """Write the results of a fitted classifier, replace earlier ones by them, and return the summary.

    What was paid for is kept where it can be: without the report, or in a temporary folder. `before` is how many
    seconds it took until `started`, if they are part of the run.
    """
    estimator, options, out = clf.estimator_, run.options, run.options.out
    summary = clf.summary(options.confidence, owner=options.owner, purpose=options.purpose)
    summary |= {"data": run.source.name, "command": run.command}
    summary["cautions"] += run.cautions
    now = time.perf_counter()
    timing = ({"start": before} if before else {}) | estimator.timing_
    timing["evidence"] = now - started - sum(estimator.timing_.values())
    summary["timing"] = {name: round(seconds, 3) for name, seconds in timing.items()}
    summary["seconds"] = round(now - started + before, 3)
    trace = getattr(estimator, "constraint_trace_", None)
    table = None if trace is None else trace.frame()
    summary["files"] = ["model", SUMMARY, REPORT]
    optional = ((TRACE, table is not None), (KEY, estimator.key_ is not None), (CARD, options.card))
    summary["files"] += [name for name, is_written in optional if is_written]
    problem: Exception | None = None
    try:
        _write_model(clf, summary, stage)
        try:
            if table is not None:
                table.to_csv(stage / TRACE, index=False)
            (stage / REPORT).write_bytes(report_page(summary, table).encode("utf-8", "backslashreplace"))
            if options.card:
                (stage / CARD).write_bytes(model_card(summary).encode("utf-8", "backslashreplace"))
        except (OSError, MemoryError) as failure:  # they can be made again from the rest
            problem = failure
            for name in (TRACE, REPORT, CARD):
                (stage / name).unlink(missing_ok=True)
        present = [name for name in summary["files"] if name != SUMMARY and (stage / name).is_file()]
        digests = {name: hashlib.sha256((stage / name).read_bytes()).hexdigest() for name in present}
        summary["digests"] = digests
        summary["files"] = [name for name in summary["files"] if name in {"model", SUMMARY, *digests}]
        # the ledger notes the summary before both are in place: no summary without a note survives a kill
        content = json.dumps(summary, indent=2, allow_nan=False).encode() + b"\n"
        (stage / SUMMARY).write_bytes(content)
        clf.ledger_.record_result(hashlib.sha256(content).hexdigest(), summary["created"])
        replace_together(out, stage, [name for name in RESULTS if not (stage / name).exists()])
    except (OSError, BadStructureError) as failure:
        raise BadStructureError(
            f"Expected to write the results to {out}, got {_reason(failure)}; "
            f"{rescue('the model', partial(_write_model, clf, summary))}."
        ) from None
    if problem is not None:
        raise BadStructureError(
            f"Expected to write {out / REPORT}, got {_reason(problem)}; the privacy budget is spent, and model and "
            f"{SUMMARY} are kept in {out}."
        )
    return summary


def _write_model(clf: FairClassifier, summary: dict[str, Any], folder: Path) -> None:
    """Write what must not be lost: the model, its key and a summary that names it."""
    if clf.estimator_.key_ is not None:  # beside the model, readable by its owner only
        clf.estimator_.use_key(Key.create(folder / KEY))
    summary["model_digest"] = clf.save(folder / "model")
    (folder / SUMMARY).write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n")


def _reason(problem: Exception) -> str:
    """Return in the words of the operating system why a file could not be written; memory errors state sizes."""
    cause = problem.__cause__ or problem
    return "too little memory" if isinstance(cause, MemoryError) else str(getattr(cause, "strerror", cause)).rstrip(".")
