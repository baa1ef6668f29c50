"""What was requested of `FairClassifier`, checked once: public choices only, and the method that fulfills them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fairveil._validation import check_budget, check_choice
from fairveil.certificates import Certificate
from fairveil.data.coded import SCHEMA_ONLY, Detail
from fairveil.data.schema import SCALED_ALONE, Schema
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import CONSTRAINT_TYPES, Constraint, Parity
from fairveil.fairness.rates import Population
from fairveil.fairness.rule_parser import Rule
from fairveil.forecast import (
    DEFAULT_SHARE,
    FAIR_SIGNAL,
    LIKELY,
    POOR_SIGNAL,
    certification_chance,
    headroom_for,
    holdout_share,
    learning_signal,
    likely_tolerance,
    people_to_learn,
)
from fairveil.methods.base import Method
from fairveil.methods.registry import AUTO, METHODS, method_named
from fairveil.models import LinearSoftmax
from fairveil.models.torch_module import TorchModel
from fairveil.privacy.ledger import LedgerOrPath
from fairveil.report.headlines import small_table_caution, weak_model_caution
from fairveil.training.tuning import Tuning, accuracy_under_bounds

PROTECTS = ("record", "attribute")
SAVED_CONSTRAINTS: dict[str, type] = {**CONSTRAINT_TYPES, Rule.name: Rule}


@dataclass(frozen=True)
class FitRequest:
    """One request, checked: what must hold, the budget, the data's public facts, and the method.

    `method` may be passed as a name or "auto", which chooses by public facts alone.

    Attributes
    ----------
    random_state : int or None
        What is not private can be repeated.
    holdout : float
        May be passed as "auto", which chooses the share by public facts (`forecast.holdout_share`).
    auc : bool
        Whether scores are counted on the hold-out, for ROC-AUC and average precision.
    headroom : float
        How many standard errors of the training sample to stay below each limit, for the certificate to hold most of
        the time (`forecast.headroom_for`).
    certification_chance : float or None
        How probable it is that the tolerance will be certified; None if that cannot be predicted from public facts.
    caution : str or None
        Sentences if it is not probable, or if so few people probably teach a private model little: users see them
        before anything is spent.
    """

    constraints: tuple[Constraint, ...]
    epsilon: float
    delta: float
    sensitive: tuple[str, ...]
    aware: bool
    method: Method
    schema: Schema | None
    holdout: float
    training: Any = None
    estimator: Any = None
    ledger: LedgerOrPath | None = None
    protects: str = "record"
    auc: bool = False
    random_state: int | None = field(init=False, repr=False, compare=False)
    headroom: float = field(init=False, repr=False, compare=False)
    certification_chance: float | None = field(init=False, repr=False, compare=False)
    caution: str | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_choice("protects", self.protects, PROTECTS)
        several = self.constraints
        several = tuple(several) if isinstance(several, Sequence) and not isinstance(several, str) else (several,)
        if not several or not all(hasattr(one, "bounds") and not isinstance(one, type) for one in several):
            raise InvalidParameterError(
                f"Expected constraints such as DemographicParity(0.05), got {self.constraints!r}; pass one or several."
            )
        if not isinstance(self.aware, bool):
            raise InvalidParameterError(
                f"Expected aware=True or aware=False (--aware or --unaware), got {self.aware!r}; state whether "
                "decisions may read the sensitive column."
            )
        holdout: Any = self.holdout
        is_share = isinstance(holdout, (int, float, np.number)) and not isinstance(holdout, bool) and 0 <= holdout < 1
        if holdout != AUTO and not is_share:
            raise InvalidParameterError(f'Expected holdout="{AUTO}" or 0 <= holdout < 1, got {holdout!r}.')
        derived = {
            "constraints": several,
            "epsilon": float(self.epsilon),
            "delta": float(self.delta),
            "random_state": None if math.isfinite(self.epsilon) else 0,
        }
        for field_name, value in derived.items():
            object.__setattr__(self, field_name, value)
        name: Any = self.method
        if name == AUTO:
            # the only method that trains by this recipe, else the first one that suits the request
            kind, known = type(self.training), METHODS.values()
            owners = [each for each in known if kind in (each.recipe, *each.also_trains_by)]
            name = owners[0] if len(owners) == 1 else next(each for each in known if each.suits(self))
        object.__setattr__(self, "method", name if isinstance(name, Method) else method_named(name))
        self._check()
        # the share to hold out, and how probable a certificate is, by public facts alone
        found, chance, cautions = self.compared(), None, []
        if holdout == AUTO:
            holdout = DEFAULT_SHARE
            if found is not None:
                holdout = holdout_share(found[0].tolerance, *found[1:], self.epsilon, self.delta)
        if found is not None and found[0].tolerance and holdout:
            facts = (holdout, *found[1:], self.epsilon, self.delta)
            chance = certification_chance(found[0].tolerance, *facts)
            if chance < LIKELY:
                cautions.append(small_table_caution(found[0].tolerance, chance, likely_tolerance(*facts)))
        weak = self.weak_model(holdout)
        caution = " ".join([*cautions, *([] if weak is None else [weak])]) or None
        derived = {"holdout": holdout, "headroom": headroom_for(holdout), "certification_chance": chance}
        for field_name, value in (derived | {"caution": caution}).items():
            object.__setattr__(self, field_name, value)

    def _check(self) -> None:
        method = self.method
        if not isinstance(self.auc, bool):
            raise InvalidParameterError(f"Expected auc=True or auc=False, got {self.auc!r}.")
        if self.training is not None and self.estimator is not None:
            raise InvalidParameterError(
                "Expected a recipe to train by or a fitted classifier, got both; leave out training= or estimator=."
            )
        if method.bounds_gap and not self.sensitive and any(isinstance(one, Parity) for one in self.constraints):
            raise InvalidParameterError(
                "Expected a sensitive column whose groups are compared, got none; name one, or bound everyone's rate."
            )
        if method.knob is not None and any(
            not isinstance(one, Parity) or one.tolerance or one.ratio for one in self.constraints
        ):
            others = " or ".join(f'"{each.name}"' for each in METHODS.values() if each.bounds_gap)
            raise InvalidParameterError(
                f'Expected a parity without a tolerance with "{method.name}", which only measures a gap; leave caps '
                f"and tolerances out (its knob is {method.knob}), or use {others}, which keep them."
            )
        if self.protects not in {method.protects, *method.also_protects}:
            raise InvalidParameterError(
                f'Expected protects="{method.protects}" (--protects {method.protects}) with "{method.name}", got '
                f'"{self.protects}"; with "attribute" features and labels are public and only the sensitive attribute '
                "is secret."
            )
        if method.check is not None:
            method.check(self)
        if self.estimator is not None and not method.postprocesses:
            raise InvalidParameterError(
                f'Expected no fitted classifier with "{method.name}", which trains its own, got one; use a method that '
                'post-processes, such as "dp2dp".'
            )
        if self.estimator is not None and not self.aware:
            raise InvalidParameterError(
                "Expected aware=True with a classifier that was fitted elsewhere, got False, which needs a model of "
                "groups too; let decisions read the group, or leave the classifier out."
            )
        schema = self.prepared_schema()
        check_budget(self.epsilon, self.delta, None if schema is None else schema.n_public)
        hidden = [name for name in self.sensitive if schema is not None and name not in schema.columns]
        if self.aware and hidden and not method.reads_group:
            raise InvalidParameterError(
                f"Expected {hidden[0]!r} among the columns of the schema for decisions that read it, got none; write "
                f"[columns.{hidden[0]}], or request decisions that do not read it (--unaware)."
            )

    def compared(self) -> tuple[Parity, float, int] | None:
        """Return the strictest parity, how many rows its rates are about, and how many groups; None if unpredictable.

        Groups of equal size and, for rates of one label, labels of equal frequency are assumed.
        """
        parities = [one for one in self.constraints if isinstance(one, Parity) and one.ratio is None]
        schema = self.schema
        if schema is None or not (parities and schema.n_public and self.sensitive and self.method.bounds_gap):
            return None
        strictest = min(parities, key=lambda one: one.tolerance)
        is_of_everyone = set(strictest.rates) <= {"selection_rate", "error_rate"}
        n_groups = 1
        for name in self.sensitive:
            n_groups *= len(schema.sensitive_named(name).groups)
        return strictest, schema.n_public / (1 if is_of_everyone else len(schema.target.classes)), n_groups

    def detail(self) -> Detail:
        """Return how finely rows will be encoded."""
        if self.schema is None or self.estimator is not None:
            return SCHEMA_ONLY
        return self.method.make_estimator(self).planned_inputs().detail

    def weak_model(self, holdout: float) -> str | None:
        """Return a sentence if so few people probably teach a private model little; None if not, or if unpredictable.

        Predicted is a linear model on the schema's own bins under a bound. Not predicted are models without a bound and
        tables of scaled numbers alone, which learn from fewer people, own torch modules, and attribute-level privacy.
        """
        schema, epsilon = self.prepared_schema(), self.epsilon
        if schema is None or not schema.n_public or not math.isfinite(epsilon) or self.protects != "record":
            return None
        if self.estimator is not None or not self.method.bounds_gap or _trains_torch(self.training):
            return None
        if all(column.n_features == SCALED_ALONE for column in schema.columns.values()):
            return None
        n_features = sum(column.n_features for column in schema.columns.values())
        n_params = LinearSoftmax(n_features, len(schema.target.classes)).n_params
        signal = learning_signal((1 - holdout) * schema.n_public, n_params, epsilon)
        if signal >= FAIR_SIGNAL:
            return None
        is_poor = signal < POOR_SIGNAL
        needed = people_to_learn(POOR_SIGNAL if is_poor else FAIR_SIGNAL, n_params, epsilon, holdout)
        return weak_model_caution(schema.n_public, epsilon, needed, is_poor=is_poor)

    def prepared_schema(self) -> Schema | None:
        """Return the schema with the groups declared, and without the sensitive columns if decisions are unaware."""
        if self.schema is None:
            return None
        entries = [self.schema.sensitive_named(name) for name in self.sensitive]
        others = [other for other in self.schema.sensitive if other.column not in self.sensitive]
        schema = self.schema.model_copy(update={"sensitive": (*entries, *others)})
        if self.aware:
            return schema
        return schema.without(*(name for name in self.sensitive if name in schema.columns))

    def tuning(self, candidates: Tuning) -> Tuning:
        """Return the private choice among whole recipes that a choice among ways to train stands for."""
        kinds = tuple({kind for each in METHODS.values() for kind in (each.recipe, *each.also_trains_by)})
        if not all(isinstance(one, kinds) for one in candidates.candidates):
            raise InvalidParameterError("Expected candidates such as Descent(...), got others; pass ways to train.")
        if any(getattr(one, "announced", ()) for one in candidates.candidates):
            raise InvalidParameterError(
                "Expected candidates without announced tolerances, got some: only the best run's own model is measured."
            )
        requests = [replace(self, training=candidate) for candidate in candidates.candidates]
        recipes = tuple(request.method.make_estimator(request).planned_recipe() for request in requests)
        score = candidates.score
        if score is accuracy_under_bounds:
            score = partial(accuracy_under_bounds, constraint=self.constraints if self.method.bounds_gap else ())
        return replace(candidates, candidates=recipes, score=score)


def _trains_torch(training: Any) -> bool:
    """Say whether a recipe, or one that it contains, trains a torch module."""
    parts = [getattr(training, name, None) for name in ("model", "descent", "base")]
    return isinstance(parts[0], TorchModel) or any(_trains_torch(part) for part in parts[1:] if part is not None)


@dataclass(frozen=True)
class SavedRequest:
    """What a model folder says about the request that the model fulfills."""

    constraints: tuple[Constraint, ...]
    sensitive: tuple[str, ...]
    aware: bool
    method: str
    certificate: Certificate | None

    def to_dict(self, people: Population) -> dict[str, Any]:
        """Return plain values; constraints of other kinds are written as rules, one for each of their bounds."""
        constraints: list[dict[str, Any]] = []
        for one in self.constraints:
            kind = getattr(one, "name", None)
            if SAVED_CONSTRAINTS.get(str(kind)) is type(one):
                constraints.append({"name": kind, **asdict(one)})  # type: ignore[call-overload]
            else:
                constraints += [{"name": Rule.name, "text": str(bound)} for bound in one.bounds(people)]
        return {
            "constraints": constraints,
            "sensitive": list(self.sensitive),
            "aware": self.aware,
            "method": self.method,
            "certificate": None if self.certificate is None else self.certificate.to_dict(),
        }

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> "SavedRequest":
        """Return the facts that `to_dict` wrote."""
        constraints = tuple(
            SAVED_CONSTRAINTS[fact["name"]](**{name: value for name, value in fact.items() if name != "name"})
            for fact in facts["constraints"]
        )
        hash(constraints)  # raises TypeError where a list or a table is in the place of a name
        certificate, sensitive = facts["certificate"], tuple(facts["sensitive"])
        if not all(isinstance(name, str) for name in sensitive):
            raise TypeError("sensitive")
        return cls(
            constraints,
            sensitive,
            bool(facts["aware"]),
            method_named(str(facts["method"])).name,
            None if certificate is None else Certificate.from_dict(certificate),
        )
