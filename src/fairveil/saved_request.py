"""The front door's own facts in a model folder: what was asked, whether groups are read, the certificate."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fairveil._keys import Key
from fairveil._validation import check_choice
from fairveil.certificates.holdout import Certificate
from fairveil.errors import BadStructureError, InvalidParameterError
from fairveil.fairness.constraints import CONSTRAINT_TYPES, Constraint
from fairveil.fairness.groups import Population
from fairveil.fairness.rule_parser import Rule
from fairveil.methods.base import PrivateClassifier
from fairveil.methods.decoupled_parity import RandomizedParityPostprocessor
from fairveil.methods.dp2dp import ParityPostprocessor
from fairveil.methods.fairdp import GroupwiseClassifier
from fairveil.methods.functional import FunctionalClassifier
from fairveil.methods.pf_ld import LagrangianClassifier
from fairveil.methods.raco import RateConstrainedClassifier
from fairveil.persistence import read_facts
from fairveil.request import METHODS

ESTIMATORS: dict[str, type[PrivateClassifier]] = {
    kind.__name__: kind
    for kind in (
        PrivateClassifier, ParityPostprocessor, RandomizedParityPostprocessor, RateConstrainedClassifier,
        FunctionalClassifier, GroupwiseClassifier, LagrangianClassifier,
    )
}  # fmt: skip
KINDS: dict[str, type] = {**CONSTRAINT_TYPES, Rule.name: Rule}


@dataclass(frozen=True)
class SavedRequest:
    """What a folder says about the front door."""

    constraints: tuple[Constraint, ...]
    sensitive: tuple[str, ...]
    aware: bool
    method: str
    certificate: Certificate | None

    def to_dict(self, people: Population) -> dict[str, Any]:
        """Return plain values; constraints of other kinds are written as rules, one for each of their bounds."""
        return {
            "constraints": [fact for one in self.constraints for fact in _written(one, people)],
            "sensitive": list(self.sensitive),
            "aware": self.aware,
            "method": self.method,
            "certificate": None if self.certificate is None else self.certificate.to_dict(),
        }

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> "SavedRequest":
        """Return the facts that `to_dict` wrote."""
        certificate = facts["certificate"]
        return cls(
            tuple(_read(fact) for fact in facts["constraints"]),
            tuple(facts["sensitive"]),
            bool(facts["aware"]),
            str(facts["method"]),
            None if certificate is None else Certificate.from_dict(certificate),
        )


def _written(constraint: Constraint, people: Population) -> list[dict[str, Any]]:
    kind = getattr(constraint, "name", None)
    if KINDS.get(str(kind)) is type(constraint):
        return [{"name": kind, **asdict(constraint)}]  # type: ignore[call-overload]
    return [{"name": Rule.name, "text": str(bound)} for bound in constraint.bounds(people)]


def _read(fact: Mapping[str, Any]) -> Constraint:
    fields = {name: value for name, value in fact.items() if name != "name"}
    constraint: Constraint = KINDS[fact["name"]](**fields)
    return constraint


def needs_uniforms(folder: Path) -> bool:
    """Return whether the rule in a folder may need a key: those of post-processors may."""
    kind = ESTIMATORS.get(str(read_facts(folder).get("estimator")), PrivateClassifier)
    return issubclass(kind, (ParityPostprocessor, RandomizedParityPostprocessor))


def load_behind(
    folder: Path, estimator: Any, key: Key | str | Path | None
) -> tuple[PrivateClassifier, SavedRequest]:
    """Return the fitted estimator in a folder, whatever its class, and what the front door wrote about it."""
    facts = read_facts(folder)
    kind = ESTIMATORS.get(str(facts.get("estimator")))
    try:
        front = SavedRequest.from_dict(facts["front"])
        check_choice("method", front.method, METHODS)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        front = None
    if kind is None or front is None:
        raise BadStructureError(
            f"Expected a model that 'fairveil train' or FairClassifier.save wrote, got something else in {folder}; "
            "save it again, or load it with the class that saved it."
        )
    if issubclass(kind, (ParityPostprocessor, RandomizedParityPostprocessor)):
        return kind.load(folder, estimator, key), front
    if estimator is not None or key is not None:
        raise InvalidParameterError(
            f"Expected no classifier and no key for a {kind.__name__}, which trains its own and draws no lots; leave "
            "them out."
        )
    return kind.load(folder), front
