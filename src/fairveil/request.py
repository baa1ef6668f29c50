"""Which estimator stands behind the front door: a name or "auto" in, an estimator that is not yet fitted out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fairveil._validation import check_choice
from fairveil.certificates.holdout import Certificate, certify, certify_measured
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Cap, Constraint, DemographicParity, Parity
from fairveil.fairness.evaluation import Evaluation
from fairveil.fairness.rule_parser import Rule
from fairveil.methods.base import PrivateClassifier
from fairveil.methods.decoupled_parity import RandomizedParityPostprocessor
from fairveil.methods.dp2dp import ParityPostprocessor
from fairveil.methods.dp2dp.options import ParityFitting
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.fairdp import GroupwiseClassifier
from fairveil.methods.fairdp.recipe import Groupwise
from fairveil.methods.functional import FunctionalClassifier
from fairveil.methods.functional.recipe import Functional
from fairveil.methods.output_perturbation import OutputPerturbation
from fairveil.methods.pf_ld import LagrangianClassifier
from fairveil.methods.pf_ld.recipe import LagrangianDual
from fairveil.methods.raco import RateConstrainedClassifier
from fairveil.methods.raco.recipe import RateConstrained
from fairveil.privacy.ledger import Ledger
from fairveil.training.tuning import Tuning, accuracy_under_bounds

BOUNDING = ("dp2dp", "raco", "parity", "functional")
"""Methods that keep bounds."""

TOLERANCELESS = ("fairdp", "pfld")
"""Methods that are about a gap and have no tolerance for it: what comes out is measured."""

SHOWABLE = 1.645 + 1.0
"""Standard errors between what a rule aims at and what can be certified of it, five times of six."""

RECIPES = (Descent, OutputPerturbation, Groupwise, Functional, LagrangianDual)
"""Ways to train here."""

OWN_RECIPES: dict[str, type] = {"fairdp": Groupwise, "functional": Functional, "pfld": LagrangianDual}
"""Methods with a way to train of their own."""

CONSTRAINED: dict[str, Any] = {
    "functional": FunctionalClassifier,
    "pfld": LagrangianClassifier,
    "raco": RateConstrainedClassifier,
}
"""Estimators that train under what is asked."""

KNOBS = {"fairdp": "norm_bound", "pfld": "lambda_max"}
"""What methods without a tolerance have in its place."""

PROTECTS = ("record", "attribute")

METHODS = ("auto", *BOUNDING, *TOLERANCELESS, "dpsgd", "dpsgdf", "output")


@dataclass(frozen=True)
class FitRequest:
    """What was asked of the front door, checked: public choices only."""

    constraints: tuple[Constraint, ...]
    epsilon: float
    delta: float
    sensitive: tuple[str, ...]
    aware: bool
    method: str
    schema: Schema | None
    holdout: float
    estimator: Any = None
    ledger: Ledger | None = None
    random_state: Any = None
    protects: str = "record"

    @property
    def is_bounding(self) -> bool:
        """Whether the method keeps bounds, or only measures them."""
        return self.method in BOUNDING

    def __post_init__(self) -> None:
        if isinstance(self.holdout, bool) or not (
            isinstance(self.holdout, (int, float, np.number)) and 0 <= self.holdout < 1
        ):
            raise InvalidParameterError(f"Expected 0 <= holdout < 1, got {self.holdout!r}.")
        if self.is_bounding and not self.sensitive and any(isinstance(c, Parity) for c in self.constraints):
            raise InvalidParameterError(
                "Expected a sensitive column whose groups are compared, got none; name one, or bound everyone's rate."
            )
        if self.method in TOLERANCELESS and any(
            not isinstance(one, Parity) or one.tolerance or one.ratio for one in self.constraints
        ):
            raise InvalidParameterError(
                f'Expected a parity without a tolerance with "{self.method}", which only measures a gap; leave caps '
                f'and tolerances out (its knob is {KNOBS[self.method]}), or use "dp2dp" or "raco", which keep them.'
            )
        self._check_protects()

    def _check_protects(self) -> None:
        """Refuse a method that does not hide what is to be hidden: weaker privacy is nothing to slip into."""
        check_choice("protects", self.protects, PROTECTS)
        if (self.method == "pfld") != (self.protects == "attribute"):
            what = "the sensitive attribute alone" if self.method == "pfld" else "whole records"
            raise InvalidParameterError(
                f'Expected "{self.method}" to be asked for what it hides, {what}, got protects="{self.protects}"; '
                'features and labels are public with "attribute", which "pfld" alone can hide.'
            )
        if self.method == "pfld" and self.aware:
            raise InvalidParameterError(
                'Expected aware=False with "pfld", whose decisions never read the attribute, got True.'
            )

    def certificate_of(self, evaluation: Evaluation, confidence: float) -> Certificate:
        """Return what is certified: what was asked, the measured gap where none could be, nothing of other methods."""
        if self.method in TOLERANCELESS:
            parities = [one for one in self.constraints if isinstance(one, Parity)]
            return certify_measured(evaluation, parities, confidence)
        return certify(evaluation, self.constraints if self.is_bounding else (), confidence)

    @property
    def headroom(self) -> float:
        """How many standard errors of the people trained on to stay below each limit (at most half of it).

        Enough for the certificate to hold most of the time: a claim at 95 % takes 1.645 standard errors of the people
        held out, and what is measured of them is off by one more now and then.
        """
        if not self.holdout:
            return 1.0
        return max(1.0, SHOWABLE * math.sqrt((1 - self.holdout) / self.holdout))

    def prepared_schema(self) -> Schema | None:
        """Return the schema with the groups written down; decisions that must not read them lose the columns."""
        if self.schema is None:
            return None
        entries = [self.schema.sensitive_named(name) for name in self.sensitive]
        others = [other for other in self.schema.sensitive if other.column not in self.sensitive]
        schema = self.schema.model_copy(update={"sensitive": (*entries, *others)})
        if self.aware:
            return schema
        return schema.without(*(name for name in self.sensitive if name in schema.columns))

    def behind(self) -> PrivateClassifier:
        """Return the estimator that does the work."""
        self._check_given()
        schema = self.prepared_schema()
        common: dict[str, Any] = {
            "epsilon": self.epsilon, "delta": self.delta, "schema": schema, "sensitive": list(self.sensitive) or None,
            "holdout": self.holdout, "ledger": self.ledger, "random_state": self.random_state,
        }  # fmt: skip
        if self.method == "dp2dp":
            fitting = ParityFitting(self.aware, headroom=self.headroom)
            return ParityPostprocessor(self.estimator, self.constraints, fitting=fitting, **common)
        if self.method == "parity":
            return RandomizedParityPostprocessor(self.estimator, self._parity(), **common)
        self._check_reads(schema)
        if self.method in CONSTRAINED:
            return CONSTRAINED[self.method](self.constraints, training=self._training(), **common)
        kind = GroupwiseClassifier if self.method == "fairdp" else PrivateClassifier
        return kind(training=self._training(), **common)

    def _training(self) -> Any:
        """Return how the method trains, as was asked or by its own default."""
        if self.method == "functional":
            return self._functional()
        if self.method == "raco":
            return RateConstrained(descent=self._descent(), headroom=self.headroom)
        return self._own() if self.method in OWN_RECIPES else self._unbounded()

    def tuning(self, asked: Tuning) -> Tuning:
        """Return the choice among whole recipes that a choice among ways to train stands for."""
        if not all(isinstance(one, RECIPES) for one in asked.candidates):
            raise InvalidParameterError(
                "Expected candidates such as Descent(...), got others; name ways to train."
            )
        if any(getattr(one, "announced", ()) for one in asked.candidates):
            raise InvalidParameterError(
                "Expected candidates without announced tolerances, got some: only the best run's own model is measured."
            )
        wishes = [replace(self, estimator=candidate) for candidate in asked.candidates]
        estimators = [wish.behind() for wish in wishes]
        recipes = tuple(one._recipe_for(one._front(None, None)) for one in estimators)
        score = asked.score
        if score is accuracy_under_bounds:
            score = partial(accuracy_under_bounds, constraint=self.constraints if self.is_bounding else ())
        return replace(asked, candidates=recipes, score=score)

    def _parity(self) -> DemographicParity:
        if not self.aware:
            raise InvalidParameterError(
                'Expected aware=True with "parity", because its flips read the group, got False; use "dp2dp".'
            )
        (only, *more) = self.constraints
        if more or not isinstance(only, DemographicParity):
            raise InvalidParameterError(
                'Expected demographic_parity alone with "parity", got another bound; use "dp2dp".'
            )
        return only

    def _functional(self) -> Functional:
        base: Functional = self._own()
        if not self.holdout or base.headroom is not None:
            return base
        # half of its standard errors is the noise of its counts, which the people held out do not repeat
        return replace(base, headroom=(SHOWABLE + self.headroom) / 2)

    def _own(self) -> Any:
        """Return how the method trains: as was asked, or by its own default."""
        kind = OWN_RECIPES[self.method]
        base = kind() if self.estimator is None else self.estimator
        if not isinstance(base, kind):
            raise InvalidParameterError(
                f'Expected a {kind.__name__} to train by with "{self.method}", got {type(base).__name__}; write '
                f"{kind.__name__}(...), or leave it open."
            )
        return base

    def _unbounded(self) -> Descent | OutputPerturbation:
        if self.method == "output":
            base = OutputPerturbation() if self.estimator is None else self.estimator
            if not isinstance(base, OutputPerturbation):
                raise InvalidParameterError(
                    'Expected a linear model by OutputPerturbation with "output", got another one; leave it open.'
                )
            return base
        return self._descent(group_clipping=self.method == "dpsgdf")

    def _descent(self, group_clipping: bool = False) -> Descent:
        base = Descent(group_clipping=group_clipping) if self.estimator is None else self.estimator
        if not isinstance(base, Descent):
            raise InvalidParameterError(
                f'Expected a Descent to train by with "{self.method}", got {type(base).__name__}; a classifier that '
                'was fitted elsewhere goes with "dp2dp" or "parity".'
            )
        return base

    def _check_given(self) -> None:
        """Refuse a classifier fitted elsewhere for decisions that do not read the group: it says nothing of groups."""
        if not self.aware and self.estimator is not None and not isinstance(self.estimator, RECIPES):
            raise InvalidParameterError(
                "Expected aware=True with a classifier that was fitted elsewhere, got False, which needs a model of "
                "groups too; allow decisions to read the group, or leave the estimator out."
            )

    def _check_reads(self, schema: Schema | None) -> None:
        """Refuse a model that is to read the group and cannot: it trains on the schema's columns alone."""
        hidden = [name for name in self.sensitive if schema is not None and name not in schema.columns]
        if self.aware and hidden:
            raise InvalidParameterError(
                f"Expected {hidden[0]!r} among the columns of the schema for decisions that read it, got none; write "
                f"[columns.{hidden[0]}], or ask for decisions that do not."
            )


def checked_constraints(asked: Any) -> tuple[Constraint, ...]:
    """Return one constraint or several as a tuple; refuse what is none."""
    several = tuple(asked) if isinstance(asked, Sequence) and not isinstance(asked, str) else (asked,)
    if not several or not all(hasattr(one, "bounds") and not isinstance(one, type) for one in several):
        raise InvalidParameterError(
            f"Expected constraints such as DemographicParity(0.05), got {asked!r}; make one or several."
        )
    return several


def method_for(
    method: str, constraints: Sequence[Constraint], aware: bool, estimator: Any, protects: str = "record"
) -> str:
    """Return the method that is meant; "auto" chooses by public facts alone.

    Rules on top of scores where they can reach what is asked (demographic parity; everything but precision where
    decisions may read the group; classifiers that were fitted elsewhere), training under bounds where they cannot.
    """
    check_choice("method", method, METHODS)
    if method != "auto":
        return method
    if protects == "attribute":
        return "pfld"
    for name, kind in OWN_RECIPES.items():
        if isinstance(estimator, kind):
            return name
    is_given = estimator is not None and not isinstance(estimator, RECIPES)
    if is_given or all(_by_rule(one, aware) for one in constraints):
        return "dp2dp"
    return "raco"


def _by_rule(constraint: Constraint, aware: bool) -> bool:
    if isinstance(constraint, Rule):
        rates = {rate.name for _, rate in constraint.bound.terms}
    elif isinstance(constraint, (Parity, Cap)):
        rates = set(constraint.rates) if isinstance(constraint, Parity) else {constraint.rate}
    else:
        return aware  # of somebody's own making: training under bounds takes everything
    return "precision" not in rates and (aware or rates == {"selection_rate"})
