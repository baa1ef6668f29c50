"""`fairveil train` and `fairveil explain`.

Options in, the front door that was asked for out.
"""

import json
import shlex
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairveil._keys import Key
from fairveil.certificates.holdout import check_confidence
from fairveil.cli._inputs import Source, ledger_file, prepared_schema, source_of
from fairveil.cli._outputs import Folder, progress_bar, say
from fairveil.cli.ledger import mixing
from fairveil.cli.options import STARTED, RunOptions
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError, ToleranceNotMetWarning
from fairveil.fair_classifier import FairClassifier
from fairveil.fairness.constraints import CONSTRAINT_TYPES, Constraint, Parity
from fairveil.fairness.rule_parser import Rule
from fairveil.methods.base import Method
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.registry import AUTO, METHODS, method_named
from fairveil.privacy.ledger import Ledger
from fairveil.report.page import report_page
from fairveil.report.text import explanation, training_text
from fairveil.summary import guarantee_of


def classifier_for(options: RunOptions, schema: Schema, sensitive: list[str]) -> FairClassifier:
    """Return the classifier that the options describe, not yet fitted."""
    check_confidence(options.confidence)
    if options.protects == "attribute" and options.n_public is not None:
        raise InvalidParameterError(
            "Expected no --n-public with --protects attribute, because the number of rows is public and is counted, "
            f"got {options.n_public}; leave it out."
        )
    for name in sensitive:
        schema.sensitive_named(name)  # names a close match if there is none
    method = None if options.method == AUTO else method_named(options.method)
    if method is None and options.protects == "attribute":
        method = next(each for each in METHODS.values() if each.protects == "attribute")
    return FairClassifier(
        _constraints(options, method),
        options.epsilon,
        options.delta,
        sensitive=sensitive,
        aware=options.aware,
        method=AUTO if method is None else method.name,
        schema=schema,
        holdout=options.holdout,
        training=_training(options, method),
        protects=options.protects,
    )


def _constraints(options: RunOptions, method: Method | None) -> tuple[Constraint, ...]:
    """Return what must hold: the named constraint at its tolerance, and every rule; else what is measured."""
    if method is not None and not method.bounds_gap:
        if options.tolerance is not None or options.rules:
            knob = "" if method.knob is None else f" (its knob is --{method.knob.replace('_', '-')})"
            others = " or ".join([AUTO, *(each.name for each in METHODS.values() if each.bounds_gap)])
            raise InvalidParameterError(
                f"Expected no --tolerance and no --rule, because {method.name} measures the gap and does not bound it"
                f"{knob}; leave them out, or use --method {others}."
            )
        return (_named(options, 0.0),)
    if options.tolerance is None and not options.rules:
        raise InvalidParameterError(
            f"Expected --tolerance or --rule with {options.method}, got neither; write --tolerance 0.05, or --method "
            "dpsgd for a model that is private and not fair."
        )
    named = () if options.tolerance is None else (_named(options, options.tolerance),)
    return (*named, *(Rule(text) for text in options.rules))


def _named(options: RunOptions, tolerance: float) -> Constraint:
    kind: Any = CONSTRAINT_TYPES[options.constraint]
    named: Constraint = (
        kind(tolerance, against=options.against) if issubclass(kind, Parity) else kind(tolerance)
    )
    return named


def _training(options: RunOptions, method: Method | None) -> Any:
    """Return the recipe that --model and the method's knob describe; None leaves it to the method."""
    values = {"norm_bound": options.norm_bound, "lambda_max": options.lambda_max}
    knob = None if method is None else method.knob
    for name, value in values.items():
        if value is not None and name != knob:
            raise InvalidParameterError(
                f"Expected --{name.replace('_', '-')} only with a method that has it, got it with {options.method}; "
                "leave it out."
            )
    model = options.model or None
    if method is None:
        return None if model is None else Descent(model=model)
    return method.make_training(model, None if knob is None else values.get(knob))


TRACE, KEY, REPORT = "constraint_trace.csv", "key", "report.html"
RESULTS = {"model": "folder", "summary.json": "file", REPORT: "file", TRACE: "file", KEY: "file"}


@dataclass(frozen=True)
class Run:
    """A table and a classifier that is ready to be fitted to it."""

    options: RunOptions
    source: Source
    classifier: FairClassifier
    command: str


def train(options: RunOptions) -> None:
    """Train, certify on the hold-out, write the folder, debit the ledger."""
    run = prepared(options, shlex.join(["fairveil", *sys.argv[1:]]))
    path = ledger_file(run.source, options.ledger, options.out)
    summary = train_into(run, options.out, Ledger(path), time.perf_counter() - STARTED)
    written = [name for name in ("model", "summary.json", TRACE, KEY) if (options.out / name).exists()]
    say(options.as_json, summary, training_text(summary, options.out, written, path, options.delimiter))


def explain(options: RunOptions) -> None:
    """Print the plan, what it guarantees, and whether it fits the ledger; no row is read."""
    run = prepared(options, "")
    plan = run.classifier.planned()
    facts = guarantee_of(run.classifier.request(), plan)
    charges = plan.charges() if plan.is_private else ()
    facts["cautions"] = mixing(ledger_file(run.source, options.ledger, options.out), charges)
    words = ["train" if word == "explain" else word for word in sys.argv[1:]]
    place = [] if "--out" in words else ["--out", "results"]
    proposed = f"Next: {shlex.join(['fairveil', *words, *place])}"
    text = [explanation(facts, f"'fairveil train {run.source.name}'")]
    text += [f"  caution    {sentence}" for sentence in facts["cautions"]]
    say(options.as_json, facts, "\n".join([*text, proposed]))


def prepared(options: RunOptions, command: str) -> Run:
    """Return the run that the options ask for, all of it checked before any row is read."""
    source = source_of(options.data)
    schema, sensitive = prepared_schema(source, options)
    return Run(options, source, classifier_for(options, schema, sensitive), command)


def train_into(run: Run, out: Path, ledger: Ledger, before: float = 0.0) -> dict[str, Any]:
    """Fit and write all results into a folder, whole or not at all; return the summary.

    `before` is how many seconds it took to get here, where that is part of the story.
    """
    with Folder(out, RESULTS) as folder:
        started = time.perf_counter()
        fit_run(run, ledger)
        return write_results(run, run.classifier, folder, started, before)


def fit_run(run: Run, ledger: Ledger) -> None:
    """Fit the classifier of a run to its table, at the cost of this ledger."""
    run.classifier.ledger = ledger
    with progress_bar(run.options.as_json) as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", ToleranceNotMetWarning)  # the summary says it
        run.classifier.fit_file(run.source.file(), delimiter=run.options.delimiter, progress=progress)


def write_results(
    run: Run, clf: FairClassifier, folder: Folder, started: float, before: float = 0.0
) -> dict[str, Any]:
    """Write all results of a fitted classifier into an open folder and keep it; return the summary."""
    timing = {"start": before} if before else {}
    summary = clf.summary(run.options.confidence) | {"data": run.source.name, "command": run.command}
    _keep_key(clf, folder.stage / KEY)
    clf.save(folder.stage / "model")
    timing |= clf.estimator_.timing_
    timing["evidence"] = time.perf_counter() - started - sum(clf.estimator_.timing_.values())
    summary["timing"] = {name: round(seconds, 3) for name, seconds in timing.items()}
    summary["seconds"] = round(time.perf_counter() - started + before, 3)
    _write_evidence(clf, summary, folder.stage)
    folder.keep()
    return summary


def _keep_key(clf: FairClassifier, path: Path) -> None:
    """Write the key of a rule that draws lots beside the model, readable by its owner only."""
    if clf.key_ is not None:
        clf.estimator_.use_key(Key.create(path))


def _write_evidence(clf: FairClassifier, summary: dict[str, Any], stage: Path) -> None:
    trace = getattr(clf.estimator_, "constraint_trace_", None)
    course = None if trace is None else trace.frame()
    if course is not None:
        course.to_csv(stage / TRACE, index=False)
    (stage / "summary.json").write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n")
    (stage / REPORT).write_text(report_page(summary, course), encoding="utf-8")
