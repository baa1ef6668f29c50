"""Everything that a report shows about a planned or fitted `FairClassifier`, as plain values for JSON."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from fairveil import __version__
from fairveil.accounting.composition import NeighboringRelation, epsilon_of
from fairveil.certificates import expected_tolerance
from fairveil.data.schema import Category, Schema
from fairveil.fairness.constraints import CONSTRAINT_TYPES, Constraint, DemographicParity, Parity, bounds_of
from fairveil.fairness.evaluation import SHOWN_RATES, Evaluation, Interval
from fairveil.fairness.impact import impact_facts
from fairveil.fairness.rates import Attribute, Population
from fairveil.methods.base import AnyPlan
from fairveil.methods.explanations import shape_facts
from fairveil.models import MODELS, Decoupled, TorchModel
from fairveil.privacy.ledger import Ledger, LedgerState, total_epsilon, units_of
from fairveil.privacy.selection import TunedPlan
from fairveil.report.formatting import compact, finite
from fairveil.report.headlines import (
    changes_sentence,
    missing_rows_caution,
    same_decision_caution,
    unknown_groups_caution,
    worse_than_constant_caution,
)
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

NEARLY_EVERYONE = 0.99
"""If at least this share gets the same decision, a small gap and a high accuracy are no achievement."""

LARGE_GAP = 0.05
"""A gap of another notion is named if it is certainly larger than this and than the tolerance (docs/defaults.md)."""

NOTIONS = ("demographic_parity", "true_positive_rate_parity", "false_positive_rate_parity", "error_rate_parity")
"""The gaps that every summary states, whatever was bounded."""

MOST_MISFITS = 0.2
"""If certainly more people than this share do not fit the schema, the summary says so (docs/defaults.md)."""

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
    trained, detail = str(getattr(inner, "model", model)), request.detail()
    facts = {
        "method": method.name,
        "model": model if request.estimator is not None else "linear" if trained == "auto" else trained,
        "features": {"resolution": detail.resolution, "pair_bins": detail.pair_bins},
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
    chance = None if request.certification_chance is None else round(request.certification_chance, 4)
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
    kinds = {**MODELS, "torch": TorchModel}
    name = next((name for name, kind in kinds.items() if isinstance(base, kind)), "given")
    state, entries = ledger_facts(ledger, request.delta)
    total = (entries["epsilon_spent_total"], entries["epsilon_spent_total_replace_one"])
    facts = guarantee_of(request, clf.plan_) | {"model": name}
    is_unknown = ledger.is_sealed and not state.entries
    facts["statement"]["total"] = (
        UNKNOWN_TOTAL
        if is_unknown
        else total_sentence(*total, request.delta, neighbor_wording(facts), entries["in_memory"])
    )
    cautions = [*([] if request.caution is None else [request.caution]), *estimator.cautions()]
    if state.n_incomplete:
        cautions.append(incomplete_lines_caution(state.n_incomplete))
    if len(units_of(state.charges)) > 1:
        cautions.append(MIXED_UNITS)
    measured = _measured(clf, request, confidence)
    if evaluation is not None:
        cautions[:0] = _outcome_cautions(evaluation, measured, facts)
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
        **measured,
        "noise_statements": estimator.noise_statements(request.constraints, confidence),
        "changes": _changes(estimator),
        "shapes": shape_facts(estimator._predictor, is_bounded=True),
    }


def _changes(estimator: Any) -> dict[str, Any] | None:
    """Return which share of the model's decisions the rule is expected to change in each group, None if unknown."""
    if estimator.changes_ is None:
        return None
    facts: dict[str, Any] = estimator.changes_.to_dict(estimator.inputs_.people.names)
    return facts | {"sentence": changes_sentence(facts)}


def _outcome_cautions(evaluation: Evaluation, measured: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    """Return what noisy counts of the hold-out show to be wrong: a rule like a constant, people who do not fit."""
    cautions, decided, constant = [], measured["most_common_decision"], measured["best_constant"]
    if decided["is_nearly_everyone"]:
        cautions.append(same_decision_caution(decided["decision"], decided["value"]))
    if constant["value"] is not None and measured["accuracy"]["high"] < constant["value"]:
        right = measured["accuracy"]["value"]
        cautions.append(worse_than_constant_caution(right, constant["decision"], constant["value"]))
    counts, people = evaluation.counts.sum(axis=(1, 2)), evaluation.people
    total, noise = float(counts.sum()), evaluation.noise_variance * people.n_classes**2
    if people.attributes:
        unknown = total - float(counts[people.codes].sum())
        error = 3 * math.sqrt(noise * (people.n_groups - len(people.codes)))
        if unknown - error > MOST_MISFITS * max(total, 1.0):
            cautions.append(unknown_groups_caution(unknown / total, facts["sensitive"]))
    if facts["n_public"]:
        expected = facts["holdout"] * facts["n_public"]
        if total + 3 * math.sqrt(noise * people.n_groups + expected) < (1 - MOST_MISFITS) * expected:
            cautions.append(missing_rows_caution(max(total, 0.0), expected))
    return cautions


def _measured(clf: Any, request: FitRequest, confidence: float) -> dict[str, Any]:
    """Return accuracy, gap, ratio, rates of groups and the certificate; all unknown without a hold-out."""
    evaluation, certificate = clf.evaluation_, clf.certificate_
    facts: dict[str, Any] = {
        "accuracy": UNKNOWN, "gap": UNKNOWN, "ratio": UNKNOWN, "groups": [], "bounds": [], "certificate": None,
        "smallest_tolerance_that_holds": 1.0, "comparisons": {"all": 0, "unknown": 0}, "worst_pair": None, "gaps": [],
        "best_constant": {"decision": None, **UNKNOWN},
        "most_common_decision": {"decision": None, **UNKNOWN, "is_nearly_everyone": False},
        "impact_ratios": [], "unknown_groups": None, "roc_auc": None, "average_precision": None,
    }  # fmt: skip
    if evaluation is not None:
        if certificate.confidence != confidence:
            certificate = clf.certificate(confidence)
        facts |= _measured_rates(evaluation, request, confidence)
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


def _measured_rates(evaluation: Evaluation, request: FitRequest, confidence: float) -> dict[str, Any]:
    """Return what the counts say about everyone and every group, about the gap that is shown, and about other gaps."""
    named, people = shown_constraint(request), evaluation.people
    # a parity without groups compares nothing
    sides = evaluation.bounds(named, confidence) if people.attributes or not isinstance(named, Parity) else ()
    bounded = [one for one in request.constraints if isinstance(one, Parity) and request.method.bounds_gap]
    rates = {rate for one in bounded for rate in one.rates}
    limit = max([LARGE_GAP, *(one.tolerance for one in bounded)])
    gaps: list[dict[str, Any]] = []
    shown: dict[str, Any] = {}
    for parity in [*(CONSTRAINT_TYPES[name]() for name in NOTIONS), *([named] if isinstance(named, Parity) else [])]:
        gap, most = evaluation.widest(parity, confidence)
        shown = {**gap.to_dict(), "worst_pair": None if most is None else most.pair}
        is_large = gap.low > limit and not rates.issuperset(parity.rates)
        gaps.append({"constraint": parity.name, **shown, "is_large": is_large})
    known = [(one.left.value, one.left.low, one.left.high) for one in sides if one.left.value is not None]
    if not isinstance(named, Parity):  # a cap has no difference: the largest rate itself
        ends = map(max, zip(*known, strict=True)) if known else UNKNOWN.values()
        shown = {"worst_pair": None, **dict(zip(UNKNOWN, ends, strict=True))}
    tables = {rate: evaluation.rates(rate, confidence=confidence) for rate in SHOWN_RATES}
    sizes = evaluation.counts[people.codes].sum(axis=(1, 2))
    (label, right), (decision, alike) = (evaluation.most_common(what, confidence) for what in ("label", "decision"))
    is_ranked = evaluation.scores is not None
    impact = impact_facts(evaluation, named, Interval(shown["value"], shown["low"], shown["high"], confidence))
    return {
        "accuracy": evaluation.accuracy(confidence).to_dict(),
        "roc_auc": evaluation.roc_auc(confidence).to_dict() if is_ranked else None,
        "average_precision": evaluation.average_precision(confidence).to_dict() if is_ranked else None,
        "best_constant": {"decision": label, **right.to_dict()},
        "most_common_decision": {
            "decision": decision,
            **alike.to_dict(),
            "is_nearly_everyone": alike.value is not None and alike.value >= NEARLY_EVERYONE,
        },
        "gap": {end: shown[end] for end in UNKNOWN},
        "worst_pair": shown["worst_pair"],
        "gaps": gaps[: len(NOTIONS)],
        # the four-fifths rule is about selection, whatever was bounded
        "ratio": evaluation.ratio("demographic_parity", confidence).to_dict(),
        "groups": [
            {
                "group": name,
                "size": max(0, round(float(size))),
                "rates": {rate: table[name].to_dict() for rate, table in tables.items()},
            }
            for name, size in zip(people.names, sizes, strict=True)
        ],
        "smallest_tolerance_that_holds": max((one.left.high for one in sides), default=1.0),
        "comparisons": {"all": len(sides), "unknown": sum(one.left.value is None for one in sides)},
        **impact,
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


def schema_facts(schema: Schema) -> dict[str, Any]:
    """Return what a schema declares of every column, and who approved it when, with both in words."""
    columns = []
    for name, column in schema.columns.items():
        facts: dict[str, Any] = {"column": name, "kind": column.type, "bounds": None, "n_bins": None}
        if isinstance(column, Category):
            facts["n_categories"] = len(column.categories)
            facts["declared"] = f"one of {len(column.categories)} categories"
        else:
            facts["n_categories"], facts["bounds"] = None, list(column.bounds)
            facts["declared"] = f"number from {compact(column.bounds[0])} to {compact(column.bounds[1])}"
            if column.encode != "scale":
                facts["n_bins"] = len(column.edges) + 1
                facts["declared"] += f", in {facts['n_bins']} bins"
        columns.append(facts)
    approval: dict[str, Any] = {"by": None, "at": None, "is_unchanged": None}
    sentence = "No approval is recorded in the schema."
    if schema.approved_at:
        approval = {"by": schema.approved_by or None, "at": schema.approved_at, "is_unchanged": schema.is_as_approved}
        sentence = f"Approved by {approval['by'] or 'a person whose name is not stated'} at {approval['at']}"
        changed = "; the facts used here differ from those approved: the schema was edited later, or an option such as "
        changed += "--n-public or --unit changed them"
        sentence += f"{'' if approval['is_unchanged'] else changed}."
    return {
        "name": schema.name,
        "source": schema.source,
        "sha256": schema.fingerprint(),
        "approval": approval | {"sentence": sentence},
        "n_public": schema.n_public,
        "id_column": schema.id_column,
        "n_row_rules": len(schema.where),
        "target": {"column": schema.target.column, "classes": list(schema.target.classes)},
        "sensitive": [
            {"column": one.column, "groups": list(one.groups), "unknown": one.unknown} for one in schema.sensitive
        ],
        "columns": columns,
    }
