"""Options in, the front door that was asked for out."""

from dataclasses import replace
from typing import Any

from fairveil.certify.holdout import check_confidence
from fairveil.cli.options import RunOptions
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameter
from fairveil.estimators.choosing import BOUNDING, KNOBS
from fairveil.estimators.fair import FairClassifier
from fairveil.fairness.constraints import CONSTRAINT_TYPES, Constraint, Parity
from fairveil.fairness.expressions import Rule
from fairveil.training.descent import Descent
from fairveil.training.groupwise import Groupwise
from fairveil.training.lagrangian import LagrangianDual
from fairveil.training.task import Recipe

__all__ = ["classifier_for"]

KEEPING = ("auto", *BOUNDING)
"""Methods that keep bounds."""


def classifier_for(options: RunOptions, schema: Schema, sensitive: list[str]) -> FairClassifier:
    """Return the classifier, not yet fitted; refuse what was left open and must be chosen."""
    options = _hiding(options)
    constraints = _constraints(options)
    if options.aware is None:
        raise InvalidParameter(
            "Expected --aware or --unaware, got neither; say whether decisions may read the sensitive column."
        )
    for name in sensitive:
        schema.sensitive_named(name)  # names a close match where there is none
    if options.aware and (hidden := [name for name in sensitive if name not in schema.columns]):
        raise InvalidParameter(
            f"Expected {hidden[0]!r} among the columns of the schema for --aware, got none; write "
            f"[columns.{hidden[0]}], or use --unaware."
        )
    check_confidence(options.confidence)
    return FairClassifier(
        constraints, options.epsilon, options.delta, sensitive, options.aware, options.method, schema,
        options.holdout, estimator=_training(options), protects=options.protects,
    )  # fmt: skip


def _hiding(options: RunOptions) -> RunOptions:
    """Return the options with the method that hides what is to be hidden; it must be said, for one is weaker."""
    hides_attribute = options.protects == "attribute"
    if hides_attribute and options.aware:
        raise InvalidParameter(
            "Expected --unaware with --protects attribute, whose decisions never read the attribute, got --aware."
        )
    if hides_attribute and options.n_public is not None:
        raise InvalidParameter(
            "Expected no --n-public with --protects attribute, because the number of rows is public and is counted, "
            f"got {options.n_public}; leave it out."
        )
    if hides_attribute and options.method == "auto":
        return replace(options, method="pfld")
    if hides_attribute != (options.method == "pfld"):
        raise InvalidParameter(
            f"Expected --protects attribute with pfld and with no other method, got --protects {options.protects} with "
            f"{options.method}; features and labels are then public, and the attribute alone is hidden."
        )
    return options


def _constraints(options: RunOptions) -> tuple[Constraint, ...]:
    """Return what must hold: the named constraint at its tolerance, and every rule; else what is measured."""
    if options.method not in KEEPING:
        if options.tolerance is not None or options.rules:
            name = KNOBS.get(options.method)
            knob = "" if name is None else f" (its knob is --{name.replace('_', '-')})"
            other = f"use --method {' or '.join(KEEPING)}"
            if options.method == "pfld":
                other = "leave out --protects attribute, for a method that keeps them and hides whole records"
            raise InvalidParameter(
                f"Expected no --tolerance and no --rule, because {options.method} measures the gap and does not bound "
                f"it{knob}; leave them out, or {other}."
            )
        return (_named(options, 0.0),)
    if options.tolerance is None and not options.rules:
        raise InvalidParameter(
            f"Expected --tolerance or --rule with {options.method}, got neither; write --tolerance 0.05, or --method "
            "dpsgd for a model that is private and not fair."
        )
    if options.method == "functional" and options.model != "linear":
        raise InvalidParameter(f"Expected --model linear with functional, got {options.model!r}.")
    if options.method == "parity" and (options.rules or options.constraint != "demographic_parity"):
        raise InvalidParameter(
            "Expected --tolerance of demographic_parity alone with parity, got another bound; use --method dp2dp."
        )
    if options.method == "parity" and options.aware is False:
        raise InvalidParameter(
            "Expected --aware with parity, because its flips read the group, got --unaware; use --method dp2dp."
        )
    named = () if options.tolerance is None else (_named(options, options.tolerance),)
    return (*named, *(Rule(text) for text in options.rules))


def _named(options: RunOptions, tolerance: float) -> Constraint:
    kind: Any = CONSTRAINT_TYPES[options.constraint]
    named: Constraint = (
        kind(tolerance, against=options.against) if issubclass(kind, Parity) else kind(tolerance)
    )
    return named


def _training(options: RunOptions) -> Recipe | None:
    if options.norm_bound is not None and options.method != "fairdp":
        raise InvalidParameter(
            f"Expected --norm-bound with fairdp only, got it with {options.method}; leave it out."
        )
    if options.lambda_max is not None and options.method != "pfld":
        raise InvalidParameter(
            f"Expected --lambda-max with pfld only, got it with {options.method}; leave it out."
        )
    if options.method == "functional":
        return None
    if options.method == "pfld":
        dual = (
            LagrangianDual() if options.lambda_max is None else LagrangianDual(lambda_max=options.lambda_max)
        )
        return replace(dual, descent=replace(dual.descent, model=options.model))
    if options.method == "fairdp":
        default = Groupwise(norm_bound=options.norm_bound)
        return replace(default, descent=replace(default.descent, model=options.model))
    if options.method == "output":
        if options.model != "linear":
            raise InvalidParameter(f"Expected --model linear for output perturbation, got {options.model!r}.")
        return None
    return Descent(model=options.model, group_clipping=options.method == "dpsgdf")
