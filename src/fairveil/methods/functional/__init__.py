"""FunctionalClassifier: a private linear classifier from one release, and its whole frontier for the same price."""

import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from sklearn.utils.validation import check_is_fitted

from fairveil.errors import InvalidParameterError
from fairveil.fairness.evaluation import Evaluation
from fairveil.forecast import SAMPLING_MARGIN
from fairveil.methods.base import ConstrainedClassifier, Method, training_of
from fairveil.methods.functional.recipe import Functional, FunctionalFit, ReleasedStatistics
from fairveil.methods.functional.several_classes import ClassStatistics
from fairveil.methods.inputs import InputSpec
from fairveil.training.run import Trained


@dataclass(frozen=True, eq=False)
class FrontierModel:
    """One model of a frontier.

    Attributes
    ----------
    classifier : FunctionalClassifier
        Fitted: it predicts and can be saved.
    tolerance, regularization : float
        What it was derived for.
    accuracy, gap : float or None
        Estimated on the people trained on, from noisy sums; the gap is the largest left side of a bound. None where
        decisions were not counted.
    gap_error : float or None
        The standard error of the gap, from noise and because people are a sample: beside a large one, the gap is weak.
    counted : bool
        Whether decisions were counted, which they are at the regularization that was fitted; if not, the model was
        chosen by means and variances of scores and nothing was measured: certify it before you use it.
    """

    classifier: "FunctionalClassifier"
    tolerance: float
    regularization: float
    accuracy: float | None
    gap: float | None
    gap_error: float | None
    counted: bool


class FunctionalClassifier(ConstrainedClassifier):
    """A private classifier from noisy moments: FM (Zhang et al. 2012) and FairFM (Tran et al. 2023).

    Fitting asks for moments once (with a constraint, for a few counts too) and solves a quadratic; `frontier` then
    gives a model for every tolerance at no further cost, for two classes or more. Predictions need no group apart; they
    read the columns of the schema, a sensitive one too unless it is left out (``schema.without("sex")``).

    Parameters
    ----------
    constraint : constraint or list of constraints, optional
        Parities that must hold, ``DemographicParity(tolerance=0.05)`` for instance; None is the plain mechanism.
    {epsilon, delta}
    training : Functional, optional
        How to train; None is ``Functional()``. Its own constraint is replaced by the one above.
    {schema}
    {sensitive}
    {holdout}
    {ledger}
    {random_state}
    {auc}

    Attributes
    ----------
    final_check_ : FinalCheck or None
        What noisy counts say of the released rule on the people trained on; where a bound is surely broken, fit warns
        with `ToleranceNotMetWarning`.
    statistics_ : ReleasedStatistics or None
        Everything released, from which `frontier` derives models.
    classes_, n_features_in_, feature_names_in_, plan_, epsilon_spent_, evaluation_
        As in `PrivateClassifier`.

    Notes
    -----
    Fitted attributes, predictions and all models of `frontier` together are (epsilon, delta)-differentially private:
    neighbours differ by one record (one person, if the schema names an id column) added or removed. Assumes that the
    schema's facts are public and that nobody reads this process's memory. Timing is not covered. That the bounds hold
    for new people is aimed at and measured (`evaluation_`), not guaranteed.

    Examples
    --------
    >>> from fairveil import DemographicParity, load_dataset
    >>> from fairveil.methods.functional import FunctionalClassifier
    >>> people = load_dataset("adult")
    >>> clf = FunctionalClassifier(DemographicParity(tolerance=0.2), schema=people.schema, sensitive="sex")
    >>> [model.tolerance for model in clf.fit(people.X, people.y).frontier([0.02, 0.1])]
    [0.02, 0.1]
    """

    not_saved = ("statistics_",)

    def _recipe(self, inputs: InputSpec) -> Functional:
        return replace(training_of(self, Functional), constraint=() if self.constraint is None else self.constraint)

    def _store(self, inputs: InputSpec, trained: Trained) -> None:
        super()._store(inputs, trained)
        fit = trained.fit
        self.statistics_: ReleasedStatistics | ClassStatistics | None = (
            fit.statistics if isinstance(fit, FunctionalFit) else None
        )
        counts, announced = trained.evidence, self._recipe(inputs).announced
        self._measured: dict[float, Evaluation] = {}
        if counts is not None:
            self._measured = {
                tolerance: Evaluation(table, counts.noise_variance, inputs.people)
                for tolerance, table in zip(announced, counts.counts, strict=True)
            }

    def frontier(
        self, tolerances: Iterable[float], regularizations: Iterable[float] | None = None
    ) -> list[FrontierModel]:
        """Return a fitted model for each regularization and tolerance, all from what the fit released.

        Those announced in `Functional` were measured on the hold-out too: `evaluation_`.

        Parameters
        ----------
        tolerances : iterable of float
            Each takes the place of the tolerance of every constraint.
        regularizations : iterable of float, optional
            As in `Functional`; None is the one that was fitted, for which decisions were counted. For any other, models
            are chosen by means and variances of scores, and nothing is measured (`counted` is False).

        Notes
        -----
        Reads released numbers only: it costs nothing, and the ledger stays as it is.
        """
        check_is_fitted(self, "params_")
        wanted = _numbers("tolerances", tolerances)
        fitted = 1.0 if self.statistics_ is None else self.statistics_.quadratic.regularization
        levels = [fitted] if regularizations is None else _numbers("regularizations", regularizations)
        return [self._derived(tolerance, level) for level in levels for tolerance in wanted]

    def _derived(self, tolerance: float, regularization: float) -> FrontierModel:
        if self.statistics_ is None:
            raise InvalidParameterError(
                "Expected a classifier fitted here under a constraint, got one that was loaded or has none; fit with a "
                "constraint, and call frontier on that classifier: a folder keeps one rule, not what was released."
            )
        constraint = _with_tolerance(self.constraint, tolerance)
        rule = self.statistics_.rule_at(tolerance, regularization)
        model = copy(self)
        model.constraint, model.params_ = constraint, rule.params
        model._predictor = replace(self._predictor, params=rule.params)
        model.final_check_ = None
        near = [each for each in self._measured if math.isclose(each, tolerance, rel_tol=1e-6, abs_tol=1e-9)]
        model.evaluation_ = self._measured[near[0]] if near and rule.counted else None
        if not rule.counted:
            return FrontierModel(model, tolerance, regularization, None, None, None, False)
        return FrontierModel(model, tolerance, regularization, rule.accuracy, rule.gap, rule.gap_error, True)


def _with_tolerance(constraint: Any, tolerance: float) -> Any:
    """Return the constraint, or each of several, at another tolerance, which is checked on the way."""
    if isinstance(constraint, Sequence):
        return [replace(one, tolerance=tolerance) for one in constraint]
    return replace(constraint, tolerance=tolerance)


def _numbers(name: str, values: Any) -> list[float]:
    """Return several numbers; refuse one alone, and what is no number."""
    try:
        return [float(one) for one in values]
    except (TypeError, ValueError):
        raise InvalidParameterError(f"Expected several {name}, such as [0.0, 0.05], got {values!r}.") from None


def _with_headroom(training: Functional, request: Any) -> Functional:
    """Return the recipe that stays as far below each limit as a certificate needs."""
    if not request.holdout or training.headroom is not None:
        return training
    # Half of its standard errors is the noise of its counts, which the hold-out does not repeat.
    return replace(training, headroom=SAMPLING_MARGIN + request.headroom / 2)


FUNCTIONAL = Method(
    name="functional",
    title="one release of moments, every tolerance from it",
    paper="Zhang et al. 2012; Tran et al. 2023",
    help="one release of moments, all tolerances from it",
    estimator=FunctionalClassifier,
    recipe=Functional,
    default_model="linear",
    models=("linear",),
    derives_frontier=True,
    color=3,
    prepare=_with_headroom,
)
