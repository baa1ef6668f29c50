"""Everything that a report shows about a planned or fitted `FairClassifier`, as plain values for JSON."""

import math
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from fairveil import __version__
from fairveil.accounting.composition import NeighboringRelation, epsilon_of
from fairveil.certificates import certify, expected_tolerance
from fairveil.fairness.constraints import CONSTRAINT_TYPES, Constraint, DemographicParity, Parity, bounds_of
from fairveil.fairness.evaluation import SHOWN_RATES, Evaluation, Interval
from fairveil.fairness.rates import Attribute, Population
from fairveil.forecast import certification_chance
from fairveil.methods.base import AnyPlan
from fairveil.methods.explanations import shape_facts
from fairveil.models import MODELS, Decoupled
from fairveil.privacy.ledger import Ledger, LedgerState, total_epsilon, units_of
from fairveil.privacy.selection import TunedPlan
from fairveil.report.formatting import finite
from fairveil.report.privacy_text import (
    MIXED_UNITS,
    UNKNOWN_TOTAL,
    incomplete_lines_caution,
    neighbor_wording,
    privacy_statement,
    total_sentence,
    wrapped_caution,
)
from fairveil.request import FitRequest

NOBODY_SELECTED = (
    "Practically nobody of any group is selected, so a small gap says nothing. Request less, or loosen what holds the "
    "rule back."
)
FEW_SELECTED = 0.01
"""If every group is selected less often than this, a gap of 0 is no achievement."""

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
    expected, chance = _forecast(request, named, plan, people)
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
        "holdout": request.holdout,
        "expected_tolerance": expected,
        "certification_chance": chance,
        "version": __version__,
    }
    prefitted = None if request.estimator is None else type(request.estimator).__name__
    return facts | {"statement": privacy_statement(facts, prefitted)}


def shown_constraint(request: FitRequest) -> Constraint:
    """Return the constraint whose gap is shown: the first parity or cap, else demographic parity."""
    kinds = tuple(CONSTRAINT_TYPES.values())
    return next((one for one in request.constraints if isinstance(one, kinds)), DemographicParity())


def _forecast(
    request: FitRequest, named: Constraint, plan: AnyPlan, people: Population
) -> tuple[float | None, float | None]:
    """Return the tolerance that will probably be certified, and the chance of the requested one; None if unpredictable.

    Groups of equal size are assumed.
    """
    compared = request.compared()
    if compared is None or not request.holdout or compared[0] != named:
        return None, None
    parity, size, n_groups = compared
    n_rows, share = request.holdout * size, request.method.share_of_headroom
    (noise,) = (one.noise_multiplier for stage in plan.stages if stage.name == "holdout" for one in stage.releases)
    chance = None
    if parity.tolerance:
        chance = round(certification_chance(parity.tolerance, request.holdout, size, n_groups, noise), 4)
    if not set(parity.rates) <= {"selection_rate", "error_rate"}:
        return None, chance
    trained, held = (math.sqrt(n_groups / (2 * part * size)) for part in (1 - request.holdout, request.holdout))
    headroom = min(parity.tolerance * share, request.headroom * trained)
    # what chance alone shows, on average, is the least that is measured
    measured = max(parity.tolerance - headroom, math.sqrt(2 / math.pi) * held)
    sizes = [n_rows / n_groups] * n_groups
    return expected_tolerance(sizes, noise, measured, n_cells=people.n_classes**2), chance


def summary_of(clf: Any, request: FitRequest, confidence: float) -> dict[str, Any]:
    """Return the guarantee with what was measured, certified and ever spent."""
    estimator, evaluation, ledger = clf.estimator_, clf.evaluation_, clf.ledger_
    model, schema = estimator.model_, estimator.schema_
    base = model.base if isinstance(model, Decoupled) else model
    name = next((name for name, kind in MODELS.items() if isinstance(base, kind)), "given")
    state, entries = ledger_facts(ledger, request.delta)
    total = (entries["epsilon_spent_total"], entries["epsilon_spent_total_replace_one"])
    facts = guarantee_of(request, clf.plan_) | {"model": name}
    is_unknown = ledger.is_sealed and not state.entries
    facts["statement"]["total"] = (
        UNKNOWN_TOTAL
        if is_unknown
        else total_sentence(*total, request.delta, neighbor_wording(facts), entries["in_memory"])
    )
    cautions = estimator.cautions()
    if state.n_incomplete:
        cautions.append(incomplete_lines_caution(state.n_incomplete))
    if len(units_of(state.charges)) > 1:
        cautions.append(MIXED_UNITS)
    if evaluation is not None and request.method.knob is not None:
        rates = evaluation.rates("selection_rate").values()
        if all(rate.value is not None and rate.value < FEW_SELECTED for rate in rates):
            cautions.append(NOBODY_SELECTED)
    if request.estimator is not None:
        cautions.append(wrapped_caution(type(request.estimator).__name__))
    created = datetime.now(UTC).isoformat(timespec="seconds")
    if isinstance(clf.plan_, TunedPlan):  # a later time would reveal how long the choice took
        created = max((entry.at for entry in state.entries), default="")
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
        "shapes": shape_facts(estimator._predictor, is_bounded=True),
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
    accuracy = evaluation.accuracy(confidence).to_dict()
    tables = {rate: evaluation.rates(rate, confidence=confidence) for rate in SHOWN_RATES}
    # the four-fifths rule is about selection, whatever was bounded
    ratio = evaluation.ratio("demographic_parity", confidence)
    sizes = evaluation.counts[evaluation.people.codes].sum(axis=(1, 2))
    smallest = certify(evaluation, (named,) if is_comparable else (), confidence).smallest_tolerance
    return {
        "accuracy": accuracy,
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


def ledger_facts(ledger: Ledger, delta: float) -> tuple[LedgerState, dict[str, Any]]:
    """Return what is on a ledger, and its entries, composed total and head for a summary.

    The total is unknown if a model was loaded without its ledger. A ledger that lost what this process debited is
    refused: its total would be too low.
    """
    state = ledger.state()
    head, units, added, replaced = state.contents.head, units_of(state.charges), math.inf, math.inf
    if not ledger.is_sealed or state.entries:
        added = total_epsilon(state.charges, delta)
        replaced = total_epsilon(state.charges, delta, NeighboringRelation.REPLACE_ONE)
    facts = {
        "delta": delta,
        "epsilon_spent_total": finite(added),
        "epsilon_spent_total_replace_one": finite(replaced),
        "unit": " and ".join(units) or None,
        "in_memory": ledger.path is None and not ledger.is_sealed,
        "head": None if head is None else asdict(head),
        "entries": [
            {
                "at": entry.at,
                "purpose": entry.purpose,
                "epsilon": entry.details.get("epsilon"),
                "delta": entry.details.get("delta"),
            }
            for entry in state.entries
        ],
    }
    return state, facts
