"""`fairveil audit`: a lower bound on epsilon, by games on synthetic records, beside the claim."""

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from fairveil import __version__
from fairveil._durable import replacing
from fairveil.audit.games import Audit, Subject, audit_plan
from fairveil.cli._files import SUMMARY, check_outputs, check_place
from fairveil.cli._terminal import progress_over, say
from fairveil.data.datasets import dataset_schema
from fairveil.errors import BadStructureError, FairveilError, InvalidParameterError
from fairveil.fair_classifier import FairClassifier
from fairveil.fairness.constraints import DemographicParity
from fairveil.methods.registry import AUTO, METHODS
from fairveil.privacy.plan import Plan, Stage
from fairveil.privacy.selection import TunedPlan
from fairveil.report.audit import audit_page
from fairveil.report.text import audit_text

SCHEMA = "adult"
"""The public facts of this bundled table stand for those of a table; none of its rows is read."""

TOLERANCE = 0.05
"""What methods that keep a tolerance are audited with; it has no part in the claim."""

RUN = "run "
"""How the names of stages begin that belong to one of several runs."""


def audit(
    subject: str,
    epsilon: float,
    delta: float,
    repeats: int,
    confidence: float,
    adaptive: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Audit the plan of a method, or the one that a folder of results states; exit code 1 says that it is broken."""
    if out is not None and out.suffix not in {".json", ".html"}:
        raise InvalidParameterError(f"Expected --out to end in .json or .html, got {out.name!r}; rename it.")
    if out is not None:
        check_outputs([out], {"results": Path(subject, SUMMARY) if Path(subject).is_dir() else None})
        check_place(out)
    if subject in {AUTO, *METHODS} and not Path(subject).is_dir():
        audited, name = subject_of_method(subject, epsilon, delta), f"the method {subject}"
    elif Path(subject).is_dir():
        audited, name = subject_of_folder(Path(subject)), f"the plan of {subject}"
    else:
        names = ", ".join((AUTO, *METHODS))
        raise InvalidParameterError(
            f"Expected a method ({names}) or a folder that 'fairveil train' wrote, got {subject!r}, which is neither."
        )
    progress = iter if as_json or not sys.stderr.isatty() else progress_over("auditing")
    found = audit_plan(audited, repeats, confidence, adaptive, progress)
    facts = _facts(name, audited, found)
    if out is not None:
        with replacing(out) as staged:
            text = audit_page(facts) if out.suffix == ".html" else json.dumps(facts, indent=2, allow_nan=False) + "\n"
            staged.write_text(text, encoding="utf-8")
    say(as_json, facts, audit_text(facts) + ("" if out is None else f"\nWritten: {out}"))
    if not facts["holds"]:
        raise typer.Exit(1)


def _facts(name: str, subject: Subject, found: Audit) -> dict[str, Any]:
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"audited": name, "unit": subject.plan.unit, "plan": subject.plan.to_list()}
    return {**about, **found.to_dict(), "created": moment, "version": __version__}


def subject_of_method(name: str, epsilon: float, delta: float) -> Subject:
    """Return the plan that a method follows at this claim, with its recipe, for the public facts of a bundled table."""
    method = METHODS.get(name)
    bounds_gap, reads_group = (True, True) if method is None else (method.bounds_gap, method.reads_group)
    clf = FairClassifier(
        DemographicParity(TOLERANCE) if bounds_gap else DemographicParity(),
        epsilon,
        delta,
        aware=reads_group,
        method=name,
        schema=dataset_schema(SCHEMA),
        protects="record" if method is None else method.protects,
    )
    request = clf.request()
    estimator = request.method.make_estimator(request)
    return Subject(estimator.planned(), (estimator.planned_recipe(),), estimator.planned_inputs().task)


def subject_of_folder(folder: Path) -> Subject:
    """Return the plan that the summary.json of a folder states; its releases are made by standard queries."""
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        claim = (summary["epsilon"], summary["delta"])
        plan = None if claim[0] is None else plan_of_list(summary["plan"], *claim, summary["protects"])
    except OSError as problem:
        raise BadStructureError(
            f"Expected a summary.json in {folder}, got {problem.strerror}; name a folder that 'fairveil train' wrote."
        ) from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError, FairveilError):
        raise BadStructureError(
            f"Expected a summary.json that 'fairveil train' wrote, got something else in {folder}; train again."
        ) from None
    if plan is None:
        raise InvalidParameterError(f"Expected a result that claims privacy, got epsilon = infinity in {folder}.")
    return Subject(plan)


def plan_of_list(parts: list[Mapping[str, Any]], epsilon: float, delta: float, protects: str) -> Plan | TunedPlan:
    """Return the plan that `to_list` wrote, of one run or of a choice among several."""
    unit = "record" if protects == "record" else f"{protects} of each record"
    stages = [(Stage.from_dict(part), part.get("mean_runs")) for part in parts]
    means = {mean for _, mean in stages if mean is not None}
    if not means:
        return Plan(tuple(stage for stage, _ in stages), epsilon, delta, unit)
    (mean_runs,) = means
    around = tuple(stage for stage, mean in stages if mean is None)
    held = {stage.subset: stage.share for stage in around if stage.share < 1}
    share, runs = 1 - sum(held.values()), dict[str, list[Stage]]()
    for stage, mean in stages:
        if mean is not None:
            number, name = stage.name.removeprefix(RUN).split(": ", 1)
            own = min(1.0, round(stage.share / share, 12))
            facts = (stage.releases, own, stage.rates, stage.n_steps, stage.subset.split(": ", 1)[1])
            runs.setdefault(number, []).append(Stage(name, *facts))
    plans = tuple(Plan(tuple(run), epsilon, delta, unit) for run in runs.values())
    return TunedPlan(plans, mean_runs, around, epsilon, delta, unit)
