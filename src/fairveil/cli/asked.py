"""Options in, the classifier that was asked for out, and what its hold-out says of what was asked."""

from typing import Any

from fairveil.cli.app import RunOptions
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameter
from fairveil.estimators.parity import ParityPostprocessor
from fairveil.estimators.private import PrivateClassifier
from fairveil.estimators.randomized_parity import RandomizedParityPostprocessor
from fairveil.estimators.rate_constrained import RateConstrainedClassifier
from fairveil.fairness.cells import Population
from fairveil.fairness.constraints import (
    CONSTRAINT_TYPES,
    Constraint,
    DemographicParity,
    Parity,
    bounds_of,
)
from fairveil.fairness.expressions import Rule
from fairveil.fairness.metrics import Evaluation, Interval
from fairveil.postprocess.choices import ParityFitting
from fairveil.training.descent import Descent
from fairveil.training.minimising import OutputPerturbation
from fairveil.training.rate_constrained import RateConstrained
from fairveil.training.task import Recipe

BOUNDING = ("raco", "dp2dp", "parity")
"""Methods that bound a gap."""

__all__ = [
    "BOUNDING",
    "asked_constraints",
    "bounds_asked",
    "bounds_told",
    "classifier_for",
    "compared_with",
    "comparisons",
    "gap_of",
    "smallest_tolerance",
]


def asked_constraints(options: RunOptions) -> tuple[Constraint, ...]:
    """Return what must hold: the named constraint at its tolerance, and every rule; nothing for other methods."""
    if options.method not in BOUNDING:
        if options.tolerance is not None or options.rules:
            raise InvalidParameter(
                f"Expected no --tolerance and no --rule, because {options.method} measures the gap and does not bound "
                f"it; leave them out, or use --method {' or '.join(BOUNDING)}."
            )
        return ()
    if options.tolerance is None and not options.rules:
        raise InvalidParameter(
            f"Expected --tolerance or --rule with {options.method}, got neither; write --tolerance 0.05."
        )
    if options.method == "parity" and (options.rules or options.constraint != "demographic_parity"):
        raise InvalidParameter(
            "Expected --tolerance of demographic_parity alone with parity, got another bound; use --method dp2dp."
        )
    named = () if options.tolerance is None else (_named(options, options.tolerance),)
    return (*named, *(Rule(text) for text in options.rules))


def _named(options: RunOptions, tolerance: float) -> Constraint:
    kind: Any = CONSTRAINT_TYPES[options.constraint]
    named: Constraint = (
        kind(tolerance, against=options.against) if issubclass(kind, Parity) else kind(tolerance)
    )
    return named


def compared_with(options: RunOptions) -> str | None:
    """Return whom groups are compared with; a cap compares none."""
    return options.against if issubclass(CONSTRAINT_TYPES[options.constraint], Parity) else None


def classifier_for(options: RunOptions, schema: Schema, sensitive: list[str]) -> PrivateClassifier:
    """Return the classifier, not yet fitted."""
    asked = asked_constraints(options)
    hidden = [name for name in sensitive if options.aware and name not in schema.columns]
    if hidden:
        raise InvalidParameter(
            f"Expected {hidden[0]!r} among the columns of the schema for --aware, got none; write "
            f"[columns.{hidden[0]}], or use --unaware."
        )
    if not asked:
        return PrivateClassifier(
            options.epsilon, options.delta, _unbounded(options), schema, sensitive, options.holdout
        )
    if options.aware is None:
        raise InvalidParameter(
            "Expected --aware or --unaware, got neither; say whether the model may read the sensitive column."
        )
    descent, budget = Descent(model=options.model), (options.epsilon, options.delta)
    if options.method == "dp2dp":
        return ParityPostprocessor(
            descent, asked, *budget, ParityFitting(options.aware), schema, sensitive, options.holdout
        )
    if options.method == "parity":
        if not options.aware:
            raise InvalidParameter(
                "Expected --aware with parity, because its flips read the group, got --unaware; use --method dp2dp."
            )
        return RandomizedParityPostprocessor(
            descent,
            DemographicParity(options.tolerance or 0.0),
            *budget,
            None,
            schema,
            sensitive,
            options.holdout,
        )
    training = RateConstrained(descent=descent)
    return RateConstrainedClassifier(asked, *budget, training, schema, sensitive, options.holdout)


def _unbounded(options: RunOptions) -> Recipe:
    if options.method == "output":
        if options.model != "linear":
            raise InvalidParameter(f"Expected --model linear for output perturbation, got {options.model!r}.")
        return OutputPerturbation()
    return Descent(model=options.model, group_clipping=options.method == "dpsgdf")


def gap_of(evaluation: Evaluation | None, options: RunOptions) -> Interval:
    """Return the measured gap of the named constraint: a largest difference, or of a cap the rate itself.

    Groups too small to speak of have no part in it (see `smallest_tolerance`).
    """
    if evaluation is None:
        return Interval(None, 0.0, 1.0, options.confidence)
    named = _named(options, 0.0)
    if isinstance(named, Parity):
        return evaluation.gap(named, options.confidence)
    known = [side for side in _sides(evaluation, options) if side.value is not None]
    if not known:
        return Interval(None, 0.0, 1.0, options.confidence)
    value, low, high = (
        max(ends) for ends in zip(*((side.value, side.low, side.high) for side in known), strict=True)
    )
    return Interval(value, low, high, options.confidence)


def smallest_tolerance(evaluation: Evaluation | None, options: RunOptions) -> float:
    """Return the tolerance that surely holds for every comparison; an unknown one may be anything up to 1."""
    sides = [] if evaluation is None else _sides(evaluation, options)
    return max((side.high for side in sides), default=1.0)


def comparisons(evaluation: Evaluation | None, options: RunOptions) -> dict[str, int]:
    """Return how many comparisons the gap is made of, and how many are of too few people to be told."""
    sides = [] if evaluation is None else _sides(evaluation, options)
    return {"all": len(sides), "unknown": sum(side.value is None for side in sides)}


def _sides(evaluation: Evaluation, options: RunOptions) -> list[Interval]:
    if not evaluation.people.attributes and issubclass(CONSTRAINT_TYPES[options.constraint], Parity):
        return []
    return [one.left for one in evaluation.bounds(_named(options, 0.0), options.confidence)]


def bounds_asked(options: RunOptions, people: Population) -> list[str]:
    """Return every bound that is asked for, in words."""
    asked = asked_constraints(options)
    return [str(bound) for bound in bounds_of(asked, people)] if asked else []


def bounds_told(evaluation: Evaluation | None, options: RunOptions) -> list[dict[str, Any]]:
    """Return every bound that was asked for, with what the hold-out says of it."""
    asked = asked_constraints(options)
    if evaluation is None or not asked:
        return []
    return [
        {"bound": str(one.bound), **one.left.to_dict(), "limit": one.limit, "holds": str(one.holds)}
        for one in evaluation.bounds(asked, options.confidence)
    ]
