"""ParityPostprocessor: any probabilistic classifier in, a private rule that treats groups alike out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil._keys import Key
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint, DemographicParity
from fairveil.fairness.diagnostics import ConstraintTrace
from fairveil.methods.base import PrivateClassifier
from fairveil.methods.dp2dp.gap_bounds import ExpectedGap
from fairveil.methods.dp2dp.options import ParityFitting
from fairveil.methods.dp2dp.recipe import Postprocessed
from fairveil.methods.dp2dp.wrapping import base_recipe, coverage, keyed_rule, load_decider, wrapped_front
from fairveil.methods.inputs import Front
from fairveil.methods.predictor import Predictor
from fairveil.privacy.ledger import Ledger
from fairveil.training.run import Trained, make_plan


class ParityPostprocessor(PrivateClassifier):
    """A private decision rule under parity, fitted to a model's scores: DP2DP (Say, Denis and Pinot 2025), generalised.

    The rule is argmax_k p_k(x) - sum_q tilt[q, k] P(q|x): thresholds that differ by group for two classes and a rule
    that reads the group, tilted probabilities otherwise. Demographic parity, equalized odds, equal opportunity and all
    other bounds on rates of people who do not depend on the decisions; any number of groups and classes.

    Parameters
    ----------
    estimator : Descent, OutputPerturbation, or a fitted classifier with predict_proba, optional
        Where probabilities come from. A recipe is trained here, in one budget with the rule; None is ``Descent()``. A
        fitted classifier is used as it is: its own training is not covered (wrap it in scikit-learn's FrozenEstimator
        where the post-processor is cloned).
    constraint : constraint or list of constraints, optional
        What must hold; None is ``DemographicParity(tolerance=0)``.
    epsilon, delta : float
        The privacy budget; ``epsilon=math.inf`` gives the same algorithm without privacy.
    fitting : ParityFitting, optional
        Whether the rule reads the group, how and on which rows it is fitted; None is ``ParityFitting()``.
    schema : Schema
        The public facts: bounds, categories, classes, optionally the size. Needed whenever epsilon is finite.
    sensitive : str or list of str
        The sensitive column or columns whose groups are compared; several stand for their intersections.
    holdout : float
        Share of the units kept apart by secret coins to measure accuracy and gap privately (`evaluation_`).
    ledger : Ledger, optional
        The books of these people; None is the ledger of this process. Clones share it.
    random_state : int, Generator or None
        Public coins (initial weights); at epsilon = infinity it seeds everything. Noise is never seeded.

    Attributes
    ----------
    rule_ : DecisionRule
        The released rule. People of no known group are decided by the model's own probabilities.
    final_check_ : FinalCheck or None
        What a last noisy count says of the rule on the people it was fitted on; where a bound is surely broken, fit
        warns with `ToleranceNotMetWarning`.
    constraint_trace_ : ConstraintTrace or None
        The course of every bound, where the rule was found step by step.
    coverage_ : str
        What the guarantee covers, and what not.
    key_ : Key or None
        Breaks ties by lot where the rule needs it; made afresh at each fit, see `use_key`.
    classes_, n_features_in_, feature_names_in_, plan_, epsilon_spent_, evaluation_
        As in `PrivateClassifier`.

    Guarantees
    ----------
    Everything released here (the rule, and the model if it was trained here) is (epsilon, delta)-differentially
    private: neighbours differ by one record (one person, if the schema names an id column) added or removed. Assumes
    that the schema's facts are public, that nobody reads this process's memory, and of a fitted classifier that it
    answers every row, each by itself. Timing is not covered. That the bounds hold for new people is aimed at and
    measured, not guaranteed.

    Examples
    --------
    >>> from fairveil import DemographicParity, ParityPostprocessor, load_dataset
    >>> people = load_dataset("adult")
    >>> clf = ParityPostprocessor(constraint=DemographicParity(0.01), schema=people.schema, sensitive="sex")
    >>> clf.fit(people.X, people.y).rule_.thresholds.shape
    (3, 1)
    """

    def __init__(
        self,
        estimator: Any = None,
        constraint: Constraint | Sequence[Constraint] | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        fitting: ParityFitting | None = None,
        schema: Schema | None = None,
        sensitive: str | Sequence[str] | None = None,
        holdout: float = 0.0,
        ledger: Ledger | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.constraint = constraint
        self.epsilon = epsilon
        self.delta = delta
        self.fitting = fitting
        self.schema = schema
        self.sensitive = sensitive
        self.holdout = holdout
        self.ledger = ledger
        self.random_state = random_state

    @property
    def _fitting(self) -> ParityFitting:
        fitting = ParityFitting() if self.fitting is None else self.fitting
        if not isinstance(fitting, ParityFitting):
            raise InvalidParameterError(
                f"Expected fitting to be a ParityFitting, got {type(fitting).__name__}."
            )
        return fitting

    def _front(self, X: Any, y: Any) -> Front:
        return wrapped_front(super()._front(X, y), self.estimator, self._fitting.predicts)

    def _recipe_for(self, front: Front) -> Postprocessed:
        constraint = DemographicParity() if self.constraint is None else self.constraint
        if front.given is not None and front.task.is_private and self._fitting.jitter == 0:
            raise InvalidParameterError(
                "Expected a jitter for a classifier fitted elsewhere, got 0: its scores are known to the last bit, and "
                "one row more could tip others off an edge; leave it open, or give a width."
            )
        return self._fitting.recipe(base_recipe(self.estimator), constraint, front.people)

    def _keep(self, front: Front, trained: Trained) -> None:
        super()._keep(front, trained)
        self.constraint_trace_: ConstraintTrace | None = trained.fit.trace
        self.coverage_ = coverage(front)
        self._decider = Predictor(front, trained.model, trained.fit.params, trained.fit.rule)
        self.use_key(Key.fresh() if trained.fit.rule.needs_uniforms else None)
        self._keep_check(trained.fit.check)

    def use_key(self, key: Key | str | Path | None) -> "ParityPostprocessor":
        """Break ties by this key (or the key in this file) from now on, so that answers repeat elsewhere."""
        self._decider = keyed_rule(self._decider, key)
        self.key_ = self._decider.key
        return self

    def predict(self, X: Any, sensitive_features: Any = None, record_ids: Any = None) -> NDArray[Any]:
        """Return the decision for each record.

        Parameters
        ----------
        X : DataFrame or array
            With the sensitive columns, if the rule reads the group and they are not given apart.
        sensitive_features : array or DataFrame, optional
            The groups, as in `fit`.
        record_ids : array, optional
            Who each record is; the same id and key break a tie the same way. By default the schema's id column, else
            what the schema reads of the row.
        """
        table = self._table(X)
        return self.classes_[self._decider.decide(table, sensitive_features, record_ids)]

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> NDArray[Any]:
        """Return the model's probability of each class; of a rule that draws lots, the law of its decision."""
        table = self._table(X)
        return self._decider.probabilities(table, sensitive_features)

    def promise(self, group_sizes: Sequence[float], rates: Sequence[float] | float = 0.5) -> ExpectedGap:
        """Return what can be said beforehand of the gap of a rule fitted to groups of these (public) sizes."""
        front = self._front(None, None)
        plan = make_plan(self._recipe_for(front), front.task, self.holdout)
        return ExpectedGap.of_plan(plan, np.asarray(group_sizes, dtype=float), rates, front.people)

    @classmethod
    def load(cls, folder: str | Path, estimator: Any = None, key: Key | str | Path | None = None) -> Any:
        """Return a fitted rule from its folder; a classifier that was fitted elsewhere must be handed over again."""
        rule = super().load(folder)
        rule.constraint_trace_ = rule.final_check_ = None
        rule._decider = load_decider(rule, estimator)
        rule.coverage_ = coverage(rule._decider.front)
        return rule.use_key(key)
