"""`fairveil train` and `fairveil explain`."""

import json
import math
import time
from typing import Any

from fairveil import __version__
from fairveil.cli.app import RunOptions
from fairveil.cli.output import Folder, progress_bar, say
from fairveil.cli.sources import Source, ledger_file, prepared_schema, source_of
from fairveil.cli.words import explanation, results
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameter
from fairveil.estimators.private import PrivateClassifier
from fairveil.fairness.metrics import Interval
from fairveil.privacy.accounting import Neighbours, epsilon_of
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan
from fairveil.training.descent import Descent
from fairveil.training.minimising import OutputPerturbation
from fairveil.training.task import Recipe

__all__ = ["explain", "train"]


def train(options: RunOptions) -> None:
    """Train, measure on the hold-out, write the folder, debit the ledger."""
    started = time.perf_counter()
    if options.out is None:
        raise InvalidParameter("Expected a folder for the results, got none; write --out DIR.")
    source, schema, clf = _prepared(options)
    out = options.out
    with Folder(out, {"model": "folder", "summary.json": "file"}) as folder:
        path = ledger_file(source, options.ledger, options.out)
        clf.ledger = Ledger(path)
        with progress_bar(options.as_json) as progress:
            clf.fit_file(source.file(), delimiter=options.delimiter, progress=progress)
        summary = _summary(options, schema, clf)
        summary["seconds"] = round(time.perf_counter() - started, 3)
        clf.save(folder.stage / "model")
        (folder.stage / "summary.json").write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n")
        folder.keep()
    say(options.as_json, summary, results(source.name, summary, out, path))


def explain(options: RunOptions) -> None:
    """Print the plan and what it guarantees; no row is read."""
    source, schema, clf = _prepared(options)
    plan = clf.planned()
    facts = _guarantee(options, schema, plan)
    say(options.as_json, facts, explanation(source.name, facts))


def _prepared(options: RunOptions) -> tuple[Source, Schema, PrivateClassifier]:
    if options.tolerance is not None:
        raise InvalidParameter(
            f"Expected no --tolerance, because {options.method} measures the gap and does not bound it; "
            "leave --tolerance out."
        )
    if not 0 < options.confidence < 1:
        raise InvalidParameter(f"Expected 0 < confidence < 1, got {options.confidence!r}.")
    source = source_of(options.data)
    schema, sensitive = prepared_schema(source, options)
    clf = PrivateClassifier(
        options.epsilon, options.delta, _recipe(options), schema, sensitive, options.holdout
    )
    return source, schema, clf


def _recipe(options: RunOptions) -> Recipe:
    if options.method == "output":
        if options.model != "linear":
            raise InvalidParameter(f"Expected --model linear for output perturbation, got {options.model!r}.")
        return OutputPerturbation()
    return Descent(model=options.model, group_clipping=options.method == "dpsgdf")


def _guarantee(options: RunOptions, schema: Schema, plan: Plan) -> dict[str, Any]:
    """Return the public part of a summary: what was asked for, the plan, and what it guarantees."""
    charges = plan.charges()
    return {
        "method": options.method,
        "model": options.model,
        "constraint": options.constraint,
        "tolerance": None,
        "epsilon": _finite(options.epsilon),
        "delta": options.delta,
        "epsilon_spent": _finite(epsilon_of(charges, options.delta)),
        "neighbours": Neighbours.ADD_OR_REMOVE_ONE.name,
        "epsilon_replace_one": _finite(epsilon_of(charges, options.delta, Neighbours.REPLACE_ONE)),
        "protects": "record",
        "unit": "record" if schema.id_column is None else "person",
        "aware": bool(options.aware),
        "n_public": schema.n_public,
        "plan": plan.to_list(),
        "version": __version__,
    }


def _summary(options: RunOptions, schema: Schema, clf: PrivateClassifier) -> dict[str, Any]:
    facts = _guarantee(options, schema, clf.plan_)
    evaluation = clf.evaluation_
    unknown = Interval(None, 0.0, 1.0)
    accuracy = unknown if evaluation is None else evaluation.accuracy(options.confidence)
    gap = unknown if evaluation is None else evaluation.gap(options.constraint, options.confidence)
    return facts | {
        "epsilon_spent_total": _finite(clf.ledger_.epsilon(options.delta)),
        "accuracy": accuracy.to_dict(),
        "gap": gap.to_dict(),
        "smallest_tolerance_that_holds": gap.high,
        "confidence": options.confidence,
        "private_evaluation": evaluation is not None and clf.plan_.is_private,
    }


def _finite(value: float) -> float | None:
    """Return the number, or None (null in JSON) for infinity."""
    return value if math.isfinite(value) else None
