"""RaCO-DP (Yaghini et al. 2025): a private classifier whose rates keep to stated bounds."""

from dataclasses import replace
from typing import Any

from fairveil.errors import InvalidParameterError
from fairveil.fairness.diagnostics import ConstraintTrace
from fairveil.methods.base import ConstrainedClassifier, Method, training_of
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.inputs import InputSpec
from fairveil.methods.raco.recipe import RateConstrained
from fairveil.training.run import Trained


class RateConstrainedClassifier(ConstrainedClassifier):
    """A differentially private classifier under bounds on its rates: RaCO-DP (Yaghini et al. 2025).

    Predictions never need the group: drop the sensitive column from the schema for a rule that does not read it
    (``schema.without("sex")``), keep it for one that does.

    Parameters
    ----------
    constraint : constraint or list of constraints
        What must hold: ``DemographicParity(tolerance=0.05)``, ``FalseNegativeRateCap(0.3)``, ``Rule("...")``, ...
    {epsilon, delta}
    training : RateConstrained, optional
        How to train; None is ``RateConstrained()``, whose open numbers follow from public facts. Its own constraint is
        replaced by the one above.
    {schema}
    {sensitive}
    {holdout}
    {ledger}
    {random_state}
    {auc}

    Attributes
    ----------
    constraint_trace_ : ConstraintTrace
        Every bound and its multiplier over the steps, from noisy counts; ``constraint_trace_.frame()`` to plot it.
    final_check_ : FinalCheck or None
        What noisy counts say about the released rule on the training data. If a bound is clearly broken, fit warns
        with `ToleranceNotMetWarning`.
    classes_, n_features_in_, feature_names_in_, plan_, epsilon_spent_, evaluation_
        As in `PrivateClassifier`.

    Notes
    -----
    Fitted attributes and predictions together are (epsilon, delta)-differentially private:
    {guarantee} That the bounds hold
    for new people is aimed at and measured (`evaluation_`), not guaranteed.

    Examples
    --------
    >>> from fairveil import DemographicParity, RateConstrainedClassifier, load_dataset
    >>> people = load_dataset("adult")
    >>> clf = RateConstrainedClassifier(DemographicParity(tolerance=0.05), schema=people.schema, sensitive="sex")
    >>> clf.fit(people.X, people.y).final_check_.bounds[0].limit
    0.05
    """

    not_saved = ("constraint_trace_",)

    def _recipe(self, inputs: InputSpec) -> RateConstrained:
        if self.constraint is None:
            raise InvalidParameterError(
                "Expected a constraint, got none; write for example constraint=DemographicParity(tolerance=0.05)."
            )
        return replace(training_of(self, RateConstrained), constraint=self.constraint)

    def _store(self, inputs: InputSpec, trained: Trained) -> None:
        super()._store(inputs, trained)
        self.constraint_trace_: ConstraintTrace | None = trained.fit.trace


def _with_headroom(training: RateConstrained | Descent, request: Any) -> RateConstrained:
    """Return the recipe that stays as far below each limit as a certificate needs."""
    if isinstance(training, Descent):
        training = RateConstrained(descent=training)
    return replace(training, headroom=request.headroom)


def _protects_records(request: Any) -> bool:
    return request.protects == "record"


RACO = Method(
    name="raco",
    title="training under bounds on rates",
    paper="Yaghini et al. 2025",
    help="training under bounds",
    estimator=RateConstrainedClassifier,
    recipe=RateConstrained,
    also_trains_by=(Descent,),
    color=1,
    suits=_protects_records,
    prepare=_with_headroom,
)
