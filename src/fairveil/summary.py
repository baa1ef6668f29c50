"""A fitted or planned front door in, everything that a report shows out, as plain values."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fairveil import __version__
from fairveil.accounting.composition import NeighboringRelation, epsilon_of
from fairveil.certificates.holdout import certify, expected_tolerance
from fairveil.fairness.constraints import CONSTRAINT_TYPES, Constraint, DemographicParity, Parity, bounds_of
from fairveil.fairness.diagnostics import FinalCheck
from fairveil.fairness.evaluation import Evaluation, Interval
from fairveil.fairness.groups import Attribute, Population
from fairveil.methods.fairdp import NO_LOOK_PASSED, RATES_OF_CLASS_1, GroupwiseClassifier
from fairveil.models import MODELS, Decoupled, Model
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan
from fairveil.privacy.selection import TunedPlan
from fairveil.report.formatting import finite
from fairveil.report.privacy_text import (
    MIXED_UNITS,
    UNKNOWN_TOTAL,
    neighbor_wording,
    privacy_statement,
    total_sentence,
)
from fairveil.request import OWN_RECIPES, SHOWABLE, TOLERANCELESS, FitRequest

if TYPE_CHECKING:
    from fairveil.fair_classifier import FairClassifier

FEW_SELECTED = 0.01
"""Where every group is selected less often than this, a gap of 0 is no merit."""

RATES = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")
UNKNOWN = {"value": None, "low": 0.0, "high": 1.0}


def guarantee_of(wish: FitRequest, plan: Plan | TunedPlan) -> dict[str, Any]:
    """Return the public part of a summary: what was asked for, the plan, and what it guarantees."""
    charges, named, people = plan.charges(), _named(wish), _people(wish)
    facts = {
        "method": wish.method,
        "model": _planned_model(wish),
        "constraint": named.name,  # type: ignore[attr-defined]
        "tolerance": named.tolerance if wish.is_bounding and named in wish.constraints else None,  # type: ignore[attr-defined]
        "against": named.against if isinstance(named, Parity) else None,
        "rules": [str(getattr(one, "text", one)) for one in wish.constraints if one is not named],
        "asked": [str(bound) for bound in bounds_of(wish.constraints, people)] if wish.is_bounding else [],
        "epsilon": finite(wish.epsilon),
        "delta": wish.delta,
        "epsilon_spent": finite(epsilon_of(charges, wish.delta)),
        "aims_at_zero": wish.method == "pfld",
        "neighbours": NeighboringRelation.ADD_OR_REMOVE_ONE.name,
        "epsilon_replace_one": finite(epsilon_of(charges, wish.delta, NeighboringRelation.REPLACE_ONE)),
        "protects": wish.protects,
        "unit": "record" if wish.schema is None or wish.schema.id_column is None else "person",
        "aware": wish.aware,
        "sensitive": list(wish.sensitive),
        "n_public": None if wish.schema is None else wish.schema.n_public,
        "plan": plan.to_list(),
        "expected_tolerance": _expected(wish, plan, people),
        "version": __version__,
    }
    prefitted = None if _trains(wish) else type(wish.estimator).__name__
    return facts | {"statement": privacy_statement(facts, prefitted)}


def summary_of(clf: "FairClassifier", wish: FitRequest, confidence: float) -> dict[str, Any]:
    """Return the guarantee with what was measured, certified and ever spent."""
    evaluation, ledger = clf.evaluation_, clf.ledger_
    schema, check = clf.behind_.schema_, getattr(clf.behind_, "final_check_", None)
    timing = {name: round(seconds, 3) for name, seconds in getattr(clf.behind_, "timing_", {}).items()}
    facts = guarantee_of(wish, clf.plan_) | {"model": _name_of(clf.behind_.model_)}
    books = _books(ledger, wish.delta)
    total = (books["epsilon_spent_total"], books["epsilon_spent_total_replace_one"])
    facts["statement"]["total"] = (
        UNKNOWN_TOTAL if _left_behind(ledger) else total_sentence(*total, wish.delta, neighbor_wording(facts))
    )
    return facts | {
        "data": schema.name,
        "command": "",
        "target": schema.target.column,
        "classes": list(schema.target.classes),
        "positive": schema.target.positive,
        "created": _created(clf),
        "epsilon_spent_total": total[0],
        "ledger": books,
        "cautions": _cautions(clf, check),
        "timing": timing,
        "seconds": round(sum(timing.values()), 3) if timing else None,
        "confidence": confidence,
        "private_evaluation": evaluation is not None and clf.plan_.is_private,
        **_measured(evaluation, wish, confidence),
        "noise_statements": _noise_statements(clf, wish, confidence),
        **_remembered(clf),
    }


def _cautions(clf: "FairClassifier", check: FinalCheck | None) -> list[str]:
    """Return what training itself noticed, and whether a gap is small only because hardly anybody is selected."""
    found = [] if check is None or check.may_hold else [check.complaint()]
    if len(clf.ledger_.units) > 1:
        found.append(MIXED_UNITS)
    if getattr(clf.behind_, "looks_", ()) and not any(look.passed for look in clf.behind_.looks_):
        found.append(NO_LOOK_PASSED)
    if clf.evaluation_ is None or clf.method_ not in TOLERANCELESS:
        return found
    rates = clf.evaluation_.rates("selection_rate").values()
    if all(rate.value is not None and rate.value < FEW_SELECTED for rate in rates):
        found.append(
            "Practically nobody of any group is selected: a small gap then says nothing. Ask for less, or raise what "
            "holds the rule back."
        )
    return found


def _noise_statements(clf: "FairClassifier", wish: FitRequest, confidence: float) -> list[dict[str, Any]]:
    """Return FairDP's statements over the training noise; only ever beside the certificate of the released model."""
    behind = clf.behind_
    parities = [one for one in wish.constraints if isinstance(one, RATES_OF_CLASS_1)]
    if not isinstance(behind, GroupwiseClassifier) or not behind.has_noise_certificate or not parities:
        return []
    found: list[dict[str, Any]] = behind.noise_certificate(parities, confidence).to_dict()["statements"]
    return found


def _created(clf: "FairClassifier") -> str:
    """Return the time now; of a private choice the time of its debit, for a later one would tell how long it took."""
    if isinstance(clf.plan_, TunedPlan):
        return max((entry.at for entry in clf.ledger_.entries), default="")
    return datetime.now(UTC).isoformat(timespec="seconds")


def _remembered(clf: "FairClassifier") -> dict[str, Any]:
    """Return what the certificate of a loaded rule says: its counts are not kept."""
    certificate = clf.certificate_
    if clf.evaluation_ is not None or certificate is None:
        return {}
    told = certificate.to_dict()
    smallest = 1.0 if certificate.smallest_tolerance is None else certificate.smallest_tolerance
    return {
        "certificate": told,
        "bounds": [_told(claim) for claim in told["claims"]],
        "smallest_tolerance_that_holds": smallest,
    }


def _name_of(model: Model) -> str:
    base = model.base if isinstance(model, Decoupled) else model
    return next((name for name, kind in MODELS.items() if isinstance(base, kind)), "given")


def _measured(evaluation: Evaluation | None, wish: FitRequest, confidence: float) -> dict[str, Any]:
    """Return accuracy, gap, ratio, rates of groups and the certificate; all unknown without a hold-out."""
    if evaluation is None:
        return {
            "accuracy": UNKNOWN, "gap": UNKNOWN, "ratio": UNKNOWN, "groups": [], "bounds": [], "certificate": None,
            "smallest_tolerance_that_holds": 1.0, "comparisons": {"all": 0, "unknown": 0},
        }  # fmt: skip
    named = _named(wish)
    # a parity of no groups has nothing to compare
    known = bool(evaluation.people.attributes) or not isinstance(named, Parity)
    sides = evaluation.bounds(named, confidence) if known else ()
    measured = certify(evaluation, (named,) if known else (), confidence)
    certificate = wish.certificate_of(evaluation, confidence)
    return {
        "accuracy": evaluation.accuracy(confidence).to_dict(),
        "gap": _gap(evaluation, named, confidence).to_dict(),
        # the four-fifths rule is about selection, whatever was bounded
        "ratio": evaluation.ratio("demographic_parity", confidence).to_dict(),
        "groups": _groups(evaluation, confidence),
        "bounds": [_told(one) for one in certificate.to_dict()["claims"] if wish.is_bounding],
        "certificate": certificate.to_dict(),
        "smallest_tolerance_that_holds": 1.0
        if measured.smallest_tolerance is None
        else measured.smallest_tolerance,
        "comparisons": {"all": len(sides), "unknown": sum(one.left.value is None for one in sides)},
    }


def _told(claim: Mapping[str, Any]) -> dict[str, Any]:
    words = {"holds": "yes", "does not hold": "no"}
    kept = {name: claim[name] for name in ("bound", "value", "low", "high", "limit")}
    return kept | {"holds": words.get(claim["verdict"], "unknown")}


def _groups(evaluation: Evaluation, confidence: float) -> list[dict[str, Any]]:
    tables = {rate: evaluation.rates(rate, confidence=confidence) for rate in RATES}
    sizes = evaluation.counts[evaluation.people.codes].sum(axis=(1, 2))
    return [
        {
            "group": name,
            "size": max(0, round(float(size))),
            "rates": {rate: table[name].to_dict() for rate, table in tables.items()},
        }
        for name, size in zip(evaluation.groups, sizes, strict=True)
    ]


def _gap(evaluation: Evaluation, named: Constraint, confidence: float) -> Interval:
    """Return the largest difference that a parity compares, or of a cap the largest rate itself."""
    if isinstance(named, Parity):
        return evaluation.gap(named, confidence)
    sides = [one.left for one in evaluation.bounds(named, confidence)]
    known = [side for side in sides if side.value is not None]
    if not known:
        return Interval(None, 0.0, 1.0, confidence)
    value, low, high = (max(ends) for ends in zip(*((s.value, s.low, s.high) for s in known), strict=True))
    return Interval(value, low, high, confidence)


def _named(wish: FitRequest) -> Constraint:
    """Return the constraint whose gap is shown: the first parity or cap, else demographic parity."""
    kinds = tuple(CONSTRAINT_TYPES.values())
    return next((one for one in wish.constraints if isinstance(one, kinds)), DemographicParity())


def _people(wish: FitRequest) -> Population:
    if wish.schema is None:
        return Population((), ("0", "1"))
    target = wish.schema.target
    entries = [wish.schema.sensitive_named(name) for name in wish.sensitive]
    attributes = tuple(Attribute(entry.column, entry.groups) for entry in entries)
    return Population(attributes, target.classes, target.classes.index(target.positive))


def _expected(wish: FitRequest, plan: Plan | TunedPlan, people: Population) -> float | None:
    """Return the tolerance that will probably be certified for groups of equal size; None where none can be told."""
    size, named = None if wish.schema is None else wish.schema.n_public, _named(wish)
    of_everyone = isinstance(named, Parity) and set(named.rates) <= {"selection_rate", "error_rate"}
    is_told = wish.is_bounding and wish.holdout and size and of_everyone and named.ratio is None  # type: ignore[attr-defined]
    if not is_told or size is None or not isinstance(named, Parity) or not people.attributes:
        return None
    n_rows, n_groups = wish.holdout * size, len(people.codes)
    error = math.sqrt(n_groups / (2 * n_rows))  # of a difference between two groups at rates of one half
    aimed = named.tolerance - min(
        named.tolerance * (1.0 if wish.method == "dp2dp" else 0.5), SHOWABLE * error
    )
    measured = max(aimed, math.sqrt(2 / math.pi) * error)  # what chance alone shows, on average
    (release,) = plan.stage("holdout").releases
    sizes = [n_rows / n_groups] * n_groups
    return expected_tolerance(sizes, release.noise_multiplier, measured, n_cells=people.n_classes**2)


def _planned_model(wish: FitRequest) -> str:
    if not _trains(wish):
        return "given"
    trained = wish.estimator
    if trained is None and wish.method in OWN_RECIPES:
        trained = OWN_RECIPES[wish.method]()
    return str(getattr(getattr(trained, "descent", trained), "model", "linear"))


def _trains(wish: FitRequest) -> bool:
    return wish.estimator is None or hasattr(wish.estimator, "model_for")


def _left_behind(ledger: Ledger) -> bool:
    """Return whether a rule was loaded without the books of its people."""
    return ledger.is_sealed and not ledger.entries


def _books(ledger: Ledger, delta: float) -> dict[str, Any]:
    added, replaced = (
        (math.inf, math.inf)
        if _left_behind(ledger)
        else (ledger.epsilon(delta), ledger.epsilon(delta, NeighboringRelation.REPLACE_ONE))
    )
    return {
        "delta": delta,
        "epsilon_spent_total": finite(added),
        "epsilon_spent_total_replace_one": finite(replaced),
        "unit": " and ".join(ledger.units) or None,
        "entries": [
            {
                "at": e.at,
                "purpose": e.purpose,
                "epsilon": e.details.get("epsilon"),
                "delta": e.details.get("delta"),
            }
            for e in ledger.entries
        ],
    }
