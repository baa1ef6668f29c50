"""PF-LD (Tran, Fioretto, Van Hentenryck 2021): a fair classifier if only the sensitive attribute is secret."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import DemographicParity, Parity
from fairveil.fairness.diagnostics import ConstraintTrace
from fairveil.methods.base import ConstrainedClassifier, Method, training_of
from fairveil.methods.inputs import InputSpec
from fairveil.methods.pf_ld.recipe import LagrangianDual, LagrangianFit
from fairveil.training.run import Trained


class LagrangianClassifier(ConstrainedClassifier):
    """A fair classifier under privacy of the sensitive attribute alone: PF-LD (Tran, Fioretto, Van Hentenryck 2021).

    Features, labels and the number of rows are **public** here: the loss is minimised without noise, and only what
    reads the attribute is noisy. That is far more accurate than hiding whole records, and far less private: use it
    where the table is known to whoever sees the model, but for one column. Features that go with the attribute still
    tell it; a column that is the attribute, or its declared source, is refused. Decisions never read the attribute.

    The method has no tolerance: it brings gaps towards 0 as far as multipliers of at most
    ``LagrangianDual(lambda_max=...)`` reach, and what comes out is measured. ``epsilon=math.inf`` is F-LD. Rows whose
    attribute is missing count for the loss, not for the groups.

    Parameters
    ----------
    constraint : parity or list of parities, optional
        Which gaps are brought to 0; None is ``DemographicParity()``. Accuracy parity is ``ErrorRateParity()``.
    {epsilon, delta}
    training : LagrangianDual, optional
        How to train; None is ``LagrangianDual()``, whose open numbers follow from public facts. Its own constraint is
        replaced by the one above.
    {schema}
    sensitive : str or list of str
        The sensitive column or columns, which must not be features; several stand for their intersections.
    {holdout}
    {ledger}
    {random_state}
    {auc}

    Attributes
    ----------
    constraint_trace_ : ConstraintTrace
        The course of every gap and its multiplier over the steps; ``constraint_trace_.frame()`` to plot it.
    clip_norm_ : float
        The primal bound C_p that was used.
    classes_, n_features_in_, feature_names_in_, plan_, epsilon_spent_, evaluation_
        As in `PrivateClassifier`.

    Notes
    -----
    Fitted attributes and predictions together are (epsilon, delta)-differentially private for neighbours that differ in
    whether the sensitive attribute of one record (one person, if the schema names an id column) is known, all features
    and labels being the same; the change from one group to another is stated beside it
    (``epsilon_of(plan_.charges(), delta, NeighboringRelation.REPLACE_ONE)``). Nothing else is hidden. Assumes
    that nobody reads this process's memory. Timing is not covered. No gap is guaranteed.

    Examples
    --------
    >>> from fairveil import LagrangianClassifier, load_dataset
    >>> people = load_dataset("adult")
    >>> clf = LagrangianClassifier(schema=people.schema.without("sex"), sensitive="sex")
    >>> clf.fit(people.X.head(1000), people.y.head(1000)).plan_.unit
    'attribute sex of each record'
    """

    protects = "attribute"
    not_saved = ("constraint_trace_", "clip_norm_")

    def _recipe(self, inputs: InputSpec) -> LagrangianDual:
        constraint = DemographicParity() if self.constraint is None else self.constraint
        several = constraint if isinstance(constraint, Sequence) else (constraint,)
        if any(isinstance(one, Parity) and one.tolerance for one in several):
            raise InvalidParameterError(
                "Expected parities without a tolerance, because gaps are reduced towards 0 and not bounded, got one "
                "with it; leave it out (the knob is lambda_max)."
            )
        return replace(training_of(self, LagrangianDual), constraint=constraint)

    def _store(self, inputs: InputSpec, trained: Trained) -> None:
        super()._store(inputs, trained)
        self.constraint_trace_: ConstraintTrace | None = trained.fit.trace
        fit = trained.fit
        self.clip_norm_: float | None = fit.clip_norm if isinstance(fit, LagrangianFit) else math.nan


def _protects_attribute(request: Any) -> bool:
    return request.protects == "attribute"


def _check(request: Any) -> None:
    if request.aware:
        raise InvalidParameterError(
            "Expected aware=False (--unaware), because decisions never read the attribute that is secret, got True."
        )


PF_LD = Method(
    name="pfld",
    title="gaps reduced where only the attribute is secret",
    paper="Tran, Fioretto and Van Hentenryck 2021",
    help="only the attribute is secret, the gap is measured",
    estimator=LagrangianClassifier,
    recipe=LagrangianDual,
    bounds_gap=False,
    aims_at_zero=True,
    knob="lambda_max",
    knob_help="the largest multiplier of a gap; small values favor accuracy, large ones fairness [default: 5]",
    protects="attribute",
    default_model="mlp",
    models=("linear", "mlp"),
    color=5,
    suits=_protects_attribute,
    check=_check,
)
