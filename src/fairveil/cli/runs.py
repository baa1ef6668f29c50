"""`fairveil train` and `fairveil explain`."""

import json
import math
import time
import warnings
from pathlib import Path
from typing import Any

from fairveil import __version__
from fairveil.cli.app import RunOptions
from fairveil.cli.asked import (
    asked_constraints,
    bounds_asked,
    bounds_told,
    classifier_for,
    compared_with,
    comparisons,
    gap_of,
    smallest_tolerance,
)
from fairveil.cli.output import Folder, progress_bar, say
from fairveil.cli.sources import Source, ledger_file, prepared_schema, sensitive_of, source_of
from fairveil.cli.words import explanation, results
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameter, ToleranceNotMet
from fairveil.estimators.private import PrivateClassifier
from fairveil.fairness.metrics import Interval
from fairveil.privacy.accounting import Neighbours, epsilon_of
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan

__all__ = ["explain", "train"]

TRACE = "constraint_trace.csv"


def train(options: RunOptions) -> None:
    """Train, measure on the hold-out, write the folder, debit the ledger."""
    started = time.perf_counter()
    if options.out is None:
        raise InvalidParameter("Expected a folder for the results, got none; write --out DIR.")
    source, schema, clf = _prepared(options)
    out = options.out
    with Folder(out, {"model": "folder", "summary.json": "file", TRACE: "file"}) as folder:
        path = ledger_file(source, options.ledger, options.out)
        clf.ledger = Ledger(path)
        with progress_bar(options.as_json) as progress, warnings.catch_warnings(record=True) as cautions:
            warnings.simplefilter("always", ToleranceNotMet)
            clf.fit_file(source.file(), delimiter=options.delimiter, progress=progress)
        summary = _summary(options, schema, clf)
        summary["cautions"] = [str(one.message) for one in cautions if one.category is ToleranceNotMet]
        for other in (one for one in cautions if one.category is not ToleranceNotMet):
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
        summary["seconds"] = round(time.perf_counter() - started, 3)
        clf.save(folder.stage / "model")
        has_trace = _write_trace(clf, folder.stage / TRACE)
        (folder.stage / "summary.json").write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n")
        folder.keep()
    say(
        options.as_json, summary, results(source.name, summary, out, path, out / TRACE if has_trace else None)
    )


def _write_trace(clf: PrivateClassifier, path: Path) -> bool:
    """Write the course of the bounds, where there is one: step, bound, value, low, high, limit, multiplier."""
    trace = getattr(clf, "constraint_trace_", None)
    if trace is not None:
        trace.frame().to_csv(path, index=False)
    return trace is not None


def explain(options: RunOptions) -> None:
    """Print the plan and what it guarantees; no row is read."""
    source, schema, clf = _prepared(options)
    plan = clf.planned()
    facts = _guarantee(options, schema, clf, plan)
    say(options.as_json, facts, explanation(source.name, facts))


def _prepared(options: RunOptions) -> tuple[Source, Schema, PrivateClassifier]:
    if not 0 < options.confidence < 1:
        raise InvalidParameter(f"Expected 0 < confidence < 1, got {options.confidence!r}.")
    asked_constraints(options)
    source = source_of(options.data)
    schema, sensitive = prepared_schema(source, options)
    return source, schema, classifier_for(options, schema, sensitive)


def _guarantee(options: RunOptions, schema: Schema, clf: PrivateClassifier, plan: Plan) -> dict[str, Any]:
    """Return the public part of a summary: what was asked for, the plan, and what it guarantees."""
    charges = plan.charges()
    return {
        "method": options.method,
        "model": options.model,
        "constraint": options.constraint,
        "tolerance": options.tolerance,
        "against": compared_with(options),
        "rules": list(options.rules),
        "asked": bounds_asked(options, clf.people()),
        "epsilon": _finite(options.epsilon),
        "delta": options.delta,
        "epsilon_spent": _finite(epsilon_of(charges, options.delta)),
        "neighbours": Neighbours.ADD_OR_REMOVE_ONE.name,
        "epsilon_replace_one": _finite(epsilon_of(charges, options.delta, Neighbours.REPLACE_ONE)),
        "protects": "record",
        "unit": "record" if schema.id_column is None else "person",
        "aware": bool(options.aware),
        "sensitive": sensitive_of(schema, options),
        "n_public": schema.n_public,
        "plan": plan.to_list(),
        "version": __version__,
    }


def _summary(options: RunOptions, schema: Schema, clf: PrivateClassifier) -> dict[str, Any]:
    facts = _guarantee(options, schema, clf, clf.plan_)
    evaluation = clf.evaluation_
    unknown = Interval(None, 0.0, 1.0, options.confidence)
    accuracy = unknown if evaluation is None else evaluation.accuracy(options.confidence)
    gap = gap_of(evaluation, options)
    return facts | {
        "epsilon_spent_total": _finite(clf.ledger_.epsilon(options.delta)),
        "accuracy": accuracy.to_dict(),
        "gap": gap.to_dict(),
        "smallest_tolerance_that_holds": smallest_tolerance(evaluation, options),
        "comparisons": comparisons(evaluation, options),
        "bounds": bounds_told(evaluation, options),
        "confidence": options.confidence,
        "private_evaluation": evaluation is not None and clf.plan_.is_private,
    }


def _finite(value: float) -> float | None:
    """Return the number, or None (null in JSON) for infinity."""
    return value if math.isfinite(value) else None
