"""DP-FERMI (Lowy, Gupta and Razaviyayn 2023): a private classifier whose decisions tell little of the group."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairveil._typing import Float64Array
from fairveil._validation import check_choice
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint, DemographicParity, Parity
from fairveil.methods.base import ConstrainedClassifier, Method, training_of
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.fermi.recipe import Fermi, FermiFit
from fairveil.methods.inputs import InputSpec, SchemaOrPath
from fairveil.privacy.ledger import LedgerOrPath
from fairveil.training.run import Trained

PROTECTS = ("record", "attribute")


class FermiClassifier(ConstrainedClassifier):
    """A private classifier with a penalty on what decisions tell of the group: DP-FERMI (Lowy et al. 2023).

    The penalty is the exponential Renyi mutual information of decision and group, within each label for equalized odds:
    0 exactly where all groups are decided alike. It takes any number of groups and classes. The method has no
    tolerance: ``Fermi(penalty_weight=...)`` trades accuracy for parity, and what comes out is measured.

    Parameters
    ----------
    constraint : parity or list of parities, optional
        Which decisions are compared; None is ``DemographicParity()``. Also ``EqualizedOdds()`` and parity of true or
        false positives.
    {epsilon, delta}
    training : Fermi, optional
        How to train; None is ``Fermi()``, whose open numbers follow from public facts. Its own constraint is replaced
        by the one above.
    {schema}
    {sensitive}
    {holdout}
    {ledger}
    {random_state}
    {auc}
    protects : {"record", "attribute"}
        What is secret: whole records, or the sensitive attribute alone, while features and labels are **public**, as in
        the paper. The sensitive columns must then not be features.

    Attributes
    ----------
    penalties_ : array
        The penalty over the training, as noisy histograms show it.
    classes_, n_features_in_, feature_names_in_, plan_, epsilon_spent_, evaluation_
        As in `PrivateClassifier`.

    Notes
    -----
    Fitted attributes and predictions together are (epsilon, delta)-differentially private:
    {guarantee} With ``protects="attribute"`` neighbors differ in whether the sensitive attribute of one record is
    known, all features and labels being the same, and nothing else is hidden. No gap is guaranteed.

    Examples
    --------
    >>> from fairveil import Fermi, FermiClassifier, load_dataset
    >>> people = load_dataset("adult")
    >>> clf = FermiClassifier(training=Fermi(penalty_weight=2.0), schema=people.schema, sensitive="sex")
    >>> clf.fit(people.X.head(2000), people.y.head(2000)).epsilon_spent_ <= 1.0
    True
    """

    not_saved = ("penalties_",)

    def __init__(
        self,
        constraint: Constraint | Sequence[Constraint] | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        training: Any = None,
        schema: SchemaOrPath | None = None,
        sensitive: str | Sequence[str] | None = None,
        holdout: float = 0.0,
        ledger: LedgerOrPath | None = None,
        random_state: Any = None,
        auc: bool = False,
        protects: str = "record",
    ) -> None:
        super().__init__(constraint, epsilon, delta, training, schema, sensitive, holdout, ledger, random_state, auc)
        self.protects = protects

    def _recipe(self, inputs: InputSpec) -> Fermi:
        check_choice("protects", self.protects, PROTECTS)
        constraint = DemographicParity() if self.constraint is None else self.constraint
        several = constraint if isinstance(constraint, Sequence) else (constraint,)
        if any(isinstance(one, Parity) and one.tolerance for one in several):
            raise InvalidParameterError(
                "Expected parities without a tolerance, because a penalty bounds no gap, got one with it; leave it out "
                "(the knob is penalty_weight)."
            )
        return replace(training_of(self, Fermi), constraint=constraint)

    def _store(self, inputs: InputSpec, trained: Trained) -> None:
        super()._store(inputs, trained)
        fit = trained.fit
        self.penalties_: Float64Array | None = fit.penalties if isinstance(fit, FermiFit) else np.zeros(0)


def _check(request: Any) -> None:
    if request.protects == "attribute" and request.aware:
        raise InvalidParameterError(
            "Expected aware=False (--unaware) where the attribute alone is secret, because decisions never read it, "
            "got True."
        )
    if not request.sensitive:
        raise InvalidParameterError("Expected a sensitive column whose groups are compared, got none; name one.")


def _with_penalty(training: Fermi | Descent, request: Any) -> Fermi:
    return Fermi(descent=training) if isinstance(training, Descent) else training


FERMI = Method(
    name="fermi",
    title="a penalty on what decisions tell of the group",
    paper="Lowy, Gupta and Razaviyayn 2023",
    help="a penalty on what decisions tell of the group, the gap is measured",
    estimator=FermiClassifier,
    recipe=Fermi,
    also_trains_by=(Descent,),
    bounds_gap=False,
    aims_at_zero=True,
    knob="penalty_weight",
    knob_help="what the penalty weighs; 0 favors accuracy, large values parity [default: 4]",
    also_protects=("attribute",),
    color=8,
    check=_check,
    prepare=_with_penalty,
)
