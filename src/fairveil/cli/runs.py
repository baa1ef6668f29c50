"""`fairveil train` and `fairveil explain`."""

import json
import shlex
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairveil.certify.explanation import explanation
from fairveil.cli.asked import classifier_for
from fairveil.cli.books import mixing
from fairveil.cli.options import STARTED, RunOptions
from fairveil.cli.output import Folder, progress_bar, say
from fairveil.cli.sources import Source, ledger_file, prepared_schema, source_of
from fairveil.cli.words import results
from fairveil.errors import ToleranceNotMet
from fairveil.estimators.fair import FairClassifier
from fairveil.estimators.telling import guarantee_of
from fairveil.keyed import Key
from fairveil.privacy.ledger import Ledger
from fairveil.report.page import report_page

__all__ = ["RESULTS", "Run", "explain", "fit_run", "prepared", "train", "train_into", "write_results"]

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
    say(options.as_json, summary, results(summary, options.out, path, options.delimiter))


def explain(options: RunOptions) -> None:
    """Print the plan, what it guarantees, and whether it fits the ledger; no row is read."""
    run = prepared(options, "")
    plan = run.classifier.planned()
    facts = guarantee_of(run.classifier.wish(), plan)
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
        warnings.simplefilter("ignore", ToleranceNotMet)  # the summary says it
        run.classifier.fit_file(run.source.file(), delimiter=run.options.delimiter, progress=progress)


def write_results(
    run: Run, clf: FairClassifier, folder: Folder, started: float, before: float = 0.0
) -> dict[str, Any]:
    """Write all results of a fitted classifier into an open folder and keep it; return the summary."""
    timing = {"start": before} if before else {}
    summary = clf.summary(run.options.confidence) | {"data": run.source.name, "command": run.command}
    _keep_key(clf, folder.stage / KEY)
    clf.save(folder.stage / "model")
    timing |= clf.behind_.timing_
    timing["evidence"] = time.perf_counter() - started - sum(clf.behind_.timing_.values())
    summary["timing"] = {name: round(seconds, 3) for name, seconds in timing.items()}
    summary["seconds"] = round(time.perf_counter() - started + before, 3)
    _write_evidence(clf, summary, folder.stage)
    folder.keep()
    return summary


def _keep_key(clf: FairClassifier, path: Path) -> None:
    """Write the key of a rule that draws lots beside the model, readable by its owner only."""
    if clf.key_ is not None:
        clf.behind_.use_key(Key.create(path))


def _write_evidence(clf: FairClassifier, summary: dict[str, Any], stage: Path) -> None:
    trace = getattr(clf.behind_, "constraint_trace_", None)
    course = None if trace is None else trace.frame()
    if course is not None:
        course.to_csv(stage / TRACE, index=False)
    (stage / "summary.json").write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n")
    (stage / REPORT).write_text(report_page(summary, course), encoding="utf-8")
