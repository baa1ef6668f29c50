"""Everything that a report shows about a planned or fitted `FairClassifier`, as plain values for JSON."""

import math
from datetime import UTC, datetime
from typing import Any

from fairveil import __version__
from fairveil.accounting.composition import NeighboringRelation, epsilon_of
from fairveil.certificates import certify, expected_tolerance
from fairveil.fairness.constraints import CONSTRAINT_TYPES, Constraint, DemographicParity, Parity, bounds_of
from fairveil.fairness.evaluation import Evaluation, Interval
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.base import AnyPlan
from fairveil.models import MODELS, Decoupled
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.selection import TunedPlan
from fairveil.report.formatting import finite
from fairveil.report.privacy_text import (
    MIXED_UNITS,
    UNKNOWN_TOTAL,
    neighbor_wording,
    privacy_statement,
    total_sentence,
)
from fairveil.request import FitRequest

NOBODY_SELECTED = (
    "Practically nobody of any group is selected, so a small gap says nothing. Request less, or loosen what holds the "
    "rule back."
)
FEW_SELECTED = 0.01
"""If every group is selected less often than this, a gap of 0 is no achievement."""

RATES = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")
UNKNOWN = {"value": None, "low": 0.0, "high": 1.0}
ANSWERS = {"holds": "yes", "does not hold": "no"}
"""What a verdict says of a bound; every other verdict leaves it unknown."""


def guarantee_of(request: FitRequest, plan: AnyPlan) -> dict[str, Any]:
    """Return the public part of a summary: what was requested, the plan, and what it guarantees."""
    charges, named, method, schema = plan.charges(), shown_constraint(request), request.method, request.schema
    people = Population((), ("0", "1"))
    if schema is not None:
        entries = [schema.sensitive_named(name) for name in request.sensitive]
        attributes = tuple(Attribute(entry.column, entry.groups) for entry in entries)
        classes = schema.target.classes
        people = Population(attributes, classes, classes.index(schema.target.positive))
    expected = _expected_tolerance(request, named, plan, people)
    training = method.recipe() if request.training is None else request.training
    model = "given" if request.estimator is not None else method.default_model
    inner = getattr(training, "descent", getattr(training, "base", training))
    facts = {
        "method": method.name,
        "model": model if request.estimator is not None else str(getattr(inner, "model", model)),
        "constraint": named.name,  # type: ignore[attr-defined]
        "tolerance": named.tolerance if method.bounds_gap and named in request.constraints else None,  # type: ignore[attr-defined]
        "against": named.against if isinstance(named, Parity) else None,
        "rules": [str(getattr(one, "text", one)) for one in request.constraints if one is not named],
        "asked": [str(bound) for bound in bounds_of(request.constraints, people)] if method.bounds_gap else [],
        "epsilon": finite(request.epsilon),
        "delta": request.delta,
        "epsilon_spent": finite(epsilon_of(charges, request.delta)),
        "aims_at_zero": method.aims_at_zero,
        "neighbours": NeighboringRelation.ADD_OR_REMOVE_ONE.name,
        "epsilon_replace_one": finite(epsilon_of(charges, request.delta, NeighboringRelation.REPLACE_ONE)),
        "protects": request.protects,
        "unit": "record" if schema is None or schema.id_column is None else "person",
        "aware": request.aware,
        "sensitive": list(request.sensitive),
        "n_public": None if schema is None else schema.n_public,
        "plan": plan.to_list(),
        "expected_tolerance": expected,
        "version": __version__,
    }
    prefitted = None if request.estimator is None else type(request.estimator).__name__
    return facts | {"statement": privacy_statement(facts, prefitted)}


def shown_constraint(request: FitRequest) -> Constraint:
    """Return the constraint whose gap is shown: the first parity or cap, else demographic parity."""
    kinds = tuple(CONSTRAINT_TYPES.values())
    return next((one for one in request.constraints if isinstance(one, kinds)), DemographicParity())


def _expected_tolerance(request: FitRequest, named: Constraint, plan: AnyPlan, people: Population) -> float | None:
    """Return the tolerance that will probably be certified for groups of equal size; None if it is unpredictable."""
    size, method = None if request.schema is None else request.schema.n_public, request.method
    if not (
        size
        and request.holdout
        and method.bounds_gap
        and people.attributes
        and isinstance(named, Parity)
        and named.ratio is None
        and set(named.rates) <= {"selection_rate", "error_rate"}
    ):
        return None
    n_rows, n_groups = request.holdout * size, len(people.codes)
    error = math.sqrt(n_groups / (2 * n_rows))  # of a difference between two groups at rates of one half
    headroom = min(named.tolerance * method.share_of_headroom, request.certifiable_z * error)
    # what chance alone shows, on average, is the least that is measured
    measured = max(named.tolerance - headroom, math.sqrt(2 / math.pi) * error)
    (noise,) = (one.noise_multiplier for stage in plan.stages if stage.name == "holdout" for one in stage.releases)
    return expected_tolerance([n_rows / n_groups] * n_groups, noise, measured, n_cells=people.n_classes**2)


def summary_of(clf: Any, request: FitRequest, confidence: float) -> dict[str, Any]:
    """Return the guarantee with what was measured, certified and ever spent."""
    estimator, evaluation, ledger = clf.estimator_, clf.evaluation_, clf.ledger_
    model, schema = estimator.model_, estimator.schema_
    base = model.base if isinstance(model, Decoupled) else model
    name = next((name for name, kind in MODELS.items() if isinstance(base, kind)), "given")
    entries = ledger_facts(ledger, request.delta)
    total = (entries["epsilon_spent_total"], entries["epsilon_spent_total_replace_one"])
    facts = guarantee_of(request, clf.plan_) | {"model": name}
    is_unknown = ledger.is_sealed and not ledger.entries
    facts["statement"]["total"] = (
        UNKNOWN_TOTAL if is_unknown else total_sentence(*total, request.delta, neighbor_wording(facts))
    )
    cautions = estimator.cautions()
    if len(ledger.units) > 1:
        cautions.append(MIXED_UNITS)
    if evaluation is not None and request.method.knob is not None:
        rates = evaluation.rates("selection_rate").values()
        if all(rate.value is not None and rate.value < FEW_SELECTED for rate in rates):
            cautions.append(NOBODY_SELECTED)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    if isinstance(clf.plan_, TunedPlan):  # a later time would reveal how long the choice took
        created = max((entry.at for entry in ledger.entries), default="")
    timing = {stage: round(seconds, 3) for stage, seconds in estimator.timing_.items()}
    return facts | {
        "data": schema.name,
        "command": "",
        "target": schema.target.column,
        "classes": list(schema.target.classes),
        "positive": schema.target.positive,
        "created": created,
        "epsilon_spent_total": total[0],
        "ledger": entries,
        "cautions": cautions,
        "timing": timing,
        "seconds": round(sum(timing.values()), 3) if timing else None,
        "confidence": confidence,
        "private_evaluation": evaluation is not None and clf.plan_.is_private,
        **_measured(clf, request, confidence),
        "noise_statements": estimator.noise_statements(request.constraints, confidence),
    }


def _measured(clf: Any, request: FitRequest, confidence: float) -> dict[str, Any]:
    """Return accuracy, gap, ratio, rates of groups and the certificate; all unknown without a hold-out."""
    evaluation, certificate = clf.evaluation_, clf.certificate_
    facts: dict[str, Any] = {
        "accuracy": UNKNOWN, "gap": UNKNOWN, "ratio": UNKNOWN, "groups": [], "bounds": [], "certificate": None,
        "smallest_tolerance_that_holds": 1.0, "comparisons": {"all": 0, "unknown": 0},
    }  # fmt: skip
    if evaluation is not None:
        if certificate.confidence != confidence:
            certificate = clf.certificate(confidence)
        facts |= _measured_rates(evaluation, shown_constraint(request), confidence)
    elif certificate is not None and certificate.smallest_tolerance is not None:
        # a loaded model: the certificate was saved, its counts were not
        facts["smallest_tolerance_that_holds"] = certificate.smallest_tolerance
    if certificate is None:
        return facts
    certified = certificate.to_dict()
    claims = certified["claims"] if evaluation is None or request.method.bounds_gap else []
    bounds = [
        {name: claim[name] for name in ("bound", "value", "low", "high", "limit")}
        | {"holds": ANSWERS.get(claim["verdict"], "unknown")}
        for claim in claims
    ]
    return facts | {"certificate": certified, "bounds": bounds}


def _measured_rates(evaluation: Evaluation, named: Constraint, confidence: float) -> dict[str, Any]:
    """Return what the counts say about everyone and every group, and about the constraint whose gap is shown."""
    # a parity without groups compares nothing
    is_comparable = bool(evaluation.people.attributes) or not isinstance(named, Parity)
    sides = evaluation.bounds(named, confidence) if is_comparable else ()
    if isinstance(named, Parity):
        gap = evaluation.gap(named, confidence)
    else:  # a cap has no difference: the largest rate itself
        known = [(one.left.value, one.left.low, one.left.high) for one in sides if one.left.value is not None]
        value, low, high = map(max, zip(*known, strict=True)) if known else (None, 0.0, 1.0)
        gap = Interval(value, low, high, confidence)
    accuracy = evaluation.accuracy(confidence)
    tables = {rate: evaluation.rates(rate, confidence=confidence) for rate in RATES}
    # the four-fifths rule is about selection, whatever was bounded
    ratio = evaluation.ratio("demographic_parity", confidence)
    sizes = evaluation.counts[evaluation.people.codes].sum(axis=(1, 2))
    smallest = certify(evaluation, (named,) if is_comparable else (), confidence).smallest_tolerance
    return {
        "accuracy": accuracy.to_dict(),
        "gap": gap.to_dict(),
        "ratio": ratio.to_dict(),
        "groups": [
            {
                "group": name,
                "size": max(0, round(float(size))),
                "rates": {rate: table[name].to_dict() for rate, table in tables.items()},
            }
            for name, size in zip(evaluation.people.names, sizes, strict=True)
        ],
        "smallest_tolerance_that_holds": 1.0 if smallest is None else smallest,
        "comparisons": {"all": len(sides), "unknown": sum(one.left.value is None for one in sides)},
    }


def ledger_facts(ledger: Ledger, delta: float) -> dict[str, Any]:
    """Return the entries and the composed total of a ledger; unknown if a model was loaded without its ledger."""
    entries, units, added, replaced = ledger.entries, ledger.units, math.inf, math.inf
    if not ledger.is_sealed or entries:
        added, replaced = ledger.epsilon(delta), ledger.epsilon(delta, NeighboringRelation.REPLACE_ONE)
    return {
        "delta": delta,
        "epsilon_spent_total": finite(added),
        "epsilon_spent_total_replace_one": finite(replaced),
        "unit": " and ".join(units) or None,
        "entries": [
            {
                "at": entry.at,
                "purpose": entry.purpose,
                "epsilon": entry.details.get("epsilon"),
                "delta": entry.details.get("delta"),
            }
            for entry in entries
        ],
    }
