"""PrivateClassifier: a classifier that hides every record, and says by how much."""

import math
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, _clone_parametrized
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fairveil._random import public_coins, reproducible_coins, secret_coins
from fairveil._validation import check_delta, check_epsilon
from fairveil.accounting.composition import epsilon_of
from fairveil.data.encoding import Encoder
from fairveil.data.schema import Schema
from fairveil.errors import BadStructureError, InvalidParameterError, ToleranceNotMetWarning
from fairveil.fairness.diagnostics import FinalCheck
from fairveil.fairness.evaluation import Evaluation
from fairveil.fairness.groups import Population
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.inputs import Front, check_label_type, open_front, typed_classes
from fairveil.models import softmax
from fairveil.models.rules import DecisionRule
from fairveil.persistence import load_rule, save_rule
from fairveil.privacy.ledger import Ledger, session_ledger
from fairveil.privacy.plan import Plan
from fairveil.privacy.selection import TunedPlan
from fairveil.privacy.veil import AnyRecords
from fairveil.training.recipe import Progress, Recipe, no_progress
from fairveil.training.run import Trained, make_plan, run_plan
from fairveil.training.tuning import Tuning, run_tuned_plan, tuned_plan

AnyPlan = Plan | TunedPlan


class PrivateClassifier(ClassifierMixin, BaseEstimator):
    """A differentially private classifier: DP-SGD (Abadi et al. 2016), DPSGD-F, or output perturbation.

    Parameters
    ----------
    epsilon, delta : float
        The privacy budget; ``epsilon=math.inf`` gives the same algorithm without privacy.
    training : Descent or OutputPerturbation, optional
        How to train; None is ``Descent()``, whose open numbers follow from public facts.
    schema : Schema
        The public facts: bounds, categories, classes, optionally the size. Needed whenever epsilon is finite.
    sensitive : str or list of str, optional
        The sensitive column or columns, for the gap on the hold-out and for group-adaptive clipping. Several stand for
        the intersections of their groups.
    holdout : float
        Share of the units kept apart by secret coins to measure accuracy and gap privately (`evaluation_`).
    ledger : Ledger, optional
        The books of these people; None is the ledger of this process. Clones share it.
    random_state : int, Generator or None
        Public coins (initial weights); at epsilon = infinity it seeds everything. Noise is never seeded.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn; with a schema, features are its columns and classes have the type that their names spell.
    plan_ : Plan
        Every public number from which the guarantee follows.
    epsilon_spent_ : float
        What this fit cost at `delta`; the total of everything is ``ledger_.epsilon(delta)``.
    evaluation_ : Evaluation or None
        Noisy accuracy and gaps on the hold-out, with intervals.
    timing_ : dict
        Seconds for the plan, for reading and for training; empty after a private choice, which times would undo.

    Guarantees
    ----------
    Fitted attributes and predictions together are (epsilon, delta)-differentially private: neighbours differ by one
    record (one person, if the schema names an id column) added or removed. Assumes that the schema's facts are public
    and that nobody reads this process's memory. Timing is not covered.

    Examples
    --------
    >>> from fairveil import PrivateClassifier, load_dataset
    >>> people = load_dataset("adult")
    >>> clf = PrivateClassifier(epsilon=1.0, schema=people.schema).fit(people.X, people.y)
    >>> clf.epsilon_spent_ <= 1.0
    True
    """

    _tuning: Tuning | None = None  # set by the front door, which alone offers a private choice
    _protects = "record"

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        training: Recipe | None = None,
        schema: Schema | None = None,
        sensitive: str | Sequence[str] | None = None,
        holdout: float = 0.0,
        ledger: Ledger | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.training = training
        self.schema = schema
        self.sensitive = sensitive
        self.holdout = holdout
        self.ledger = ledger
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sensitive_features: Any = None, progress: Progress = no_progress
    ) -> "PrivateClassifier":
        """Train on a table and its labels; the budget is booked before any row is used.

        Parameters
        ----------
        X : DataFrame or array of shape (n, d)
        y : array of shape (n,)
        sensitive_features : array of shape (n,) or DataFrame, optional
            The sensitive column where it is not a column of `X`; a DataFrame where there are several.
        progress : callable
            Wraps the range of steps, a progress bar for instance.
        """
        check_epsilon(self.epsilon)
        if self.schema is None and math.isinf(self.epsilon):
            X, y = self._checked(X, y)
        front = self._front(X, y)
        return self._fit(front, lambda: self._from_table(front, X, y, sensitive_features), progress)

    def fit_file(
        self, path: str | Path, *, delimiter: str = ",", progress: Progress = no_progress
    ) -> "PrivateClassifier":
        """Train on a CSV or Parquet file that follows the schema, read chunk by chunk."""
        front = self._front(None, None)
        return self._fit(front, lambda: self._from_file(front, path, delimiter), progress)

    def planned(self) -> AnyPlan:
        """Return the plan that a fit would follow, from public facts alone."""
        return self._plan_for(self._front(None, None))

    def people(self) -> Population:
        """Return the groups and classes that are counted, from public facts alone."""
        return self._front(None, None).people

    def front(self) -> Front:
        """Return the public side of the tables that this fitted rule reads."""
        check_is_fitted(self, "params_")
        if hasattr(self, "_decider"):
            fitted: Front = self._decider.front
            return fitted
        return open_front(self.schema_, self.sensitive, self.epsilon, self.delta, None, None, self._protects)

    def _plan_for(self, front: Front) -> AnyPlan:
        if self._tuning is not None:
            if front.task.hides_attribute:
                raise InvalidParameterError(
                    "Expected no private choice among ways to train where an attribute alone is secret, got one; name "
                    "one way."
                )
            return tuned_plan(self._tuning, front.task, self.holdout)
        return make_plan(self._recipe_for(front), front.task, self.holdout)

    def _recipe_for(self, front: Front) -> Recipe:
        return Descent() if self.training is None else self.training

    def _front(self, X: Any, y: Any) -> Front:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        return open_front(self.schema, self.sensitive, self.epsilon, self.delta, X, y, self._protects)

    def _fit(self, front: Front, read: Callable[[], AnyRecords], progress: Progress) -> "PrivateClassifier":
        """Settle the plan, ask the ledger, and only then read the records."""
        started = time.perf_counter()
        plan, ledger = self._plan_for(front), self._open_ledger()
        ledger.check(plan.charges())
        planned = time.perf_counter()
        records = read()
        loaded = time.perf_counter()
        trained = self._carried_out(plan, front, records, ledger, progress)
        self.plan_, self.ledger_ = plan, ledger
        self._keep(front, trained)
        ended = time.perf_counter()
        self.timing_ = {"plan": planned - started, "read": loaded - planned, "train": ended - loaded}
        if isinstance(plan, TunedPlan):
            self.timing_ = {}  # how long it took would tell how many runs there were
        return self

    def _carried_out(
        self, plan: AnyPlan, front: Front, records: AnyRecords, ledger: Ledger, progress: Progress
    ) -> Trained:
        coins = secret_coins() if plan.is_private else reproducible_coins(self.random_state)
        rng, purpose = public_coins(self.random_state), f"fit of {type(self).__name__}"
        if isinstance(plan, Plan):
            recipe = self._recipe_for(front)
            return run_plan(plan, recipe, front.task, records, ledger, coins, rng, progress, purpose)
        tuning: Any = self._tuning
        whole: Any = records  # a choice is refused where an attribute alone is secret
        tuned = run_tuned_plan(plan, tuning, front.task, whole, ledger, coins, rng, purpose)
        self.candidate_ = tuned.candidate
        return tuned.trained

    def _checked(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Check plain arrays as scikit-learn does; NaN and infinity follow the default rules."""
        X, y = validate_data(self, X, y, ensure_all_finite=False, dtype="numeric")
        check_classification_targets(y)
        if len(np.unique(y)) < 2:
            raise InvalidParameterError("Expected at least two classes in y, got one class.")
        return X, y

    def _from_table(self, front: Front, X: Any, y: Any, sensitive_features: Any) -> AnyRecords:
        if y is None:
            raise BadStructureError("Expected labels y, got None.")
        if self.schema is None:
            self.classes_, y = np.unique(y, return_inverse=True)
        else:
            self.classes_ = typed_classes(front.schema.target.classes)
            if not front.schema.target.cuts and not front.schema.target.values:
                check_label_type(self.classes_, y)
        records = front.records(X, y, sensitive_features)
        if self.schema is not None:
            self._name_features(front)
        return records

    def _name_features(self, front: Front) -> None:
        self.feature_names_in_ = np.array(front.schema.feature_names, dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)

    def _from_file(self, front: Front, path: str | Path, delimiter: str) -> AnyRecords:
        self.classes_ = typed_classes(front.schema.target.classes)
        self._name_features(front)
        return front.records_of_file(path, delimiter)

    def _open_ledger(self) -> Ledger:
        ledger = session_ledger() if self.ledger is None else self.ledger
        if getattr(self, "_is_candidate", False) and math.isfinite(self.epsilon):
            ledger.debit_unpriced("a search that compares fits on private rows outside the accounting")
        return ledger

    def _keep(self, front: Front, trained: Trained) -> None:
        self.schema_, self.model_, self.params_ = front.schema, trained.model, trained.fit.params
        self.rule_: DecisionRule = trained.fit.rule
        self.epsilon_spent_ = epsilon_of(self.plan_.charges(), self.delta)
        self.evaluation_ = None
        if trained.outcomes is not None:
            self.evaluation_ = Evaluation(trained.outcomes, trained.noise_variance, front.people)

    def _keep_check(self, check: FinalCheck | None) -> None:
        """Keep what a last count says of every bound, and warn, where fit was called, of one that is surely broken."""
        self.final_check_ = check
        if check is not None and not check.may_hold:
            warnings.warn(check.complaint(), ToleranceNotMetWarning, stacklevel=5)

    def _table(self, X: Any) -> Any:
        """Return the rows to be decided; plain arrays are checked as scikit-learn does."""
        check_is_fitted(self, "params_")
        if self.schema is None:
            return validate_data(self, X, ensure_all_finite=False, dtype="numeric", reset=False)
        return X

    def _logits(self, X: Any) -> NDArray[Any]:
        table = self._table(X)
        rows = Encoder(self.schema_).rows(table)
        # In double precision a row's answer does not depend on how many rows are asked for with it.
        params: Any = self.params_.astype(np.float64)
        return self.model_.logits(params, rows.astype(np.float64))

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return the model's probability of each class, one row a record."""
        return softmax(self._logits(X)).T

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each record."""
        decisions = self._logits(X).argmax(axis=0)
        return self.classes_[decisions]

    def save(self, folder: str | Path) -> None:
        """Write the fitted rule into a new folder, as JSON and safetensors."""
        check_is_fitted(self, "params_")
        save_rule(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> "PrivateClassifier":
        """Return a fitted rule from its folder; it predicts, and refuses to fit (its ledger is sealed)."""
        return load_rule(cls, Path(folder))

    def set_params(self, **params: Any) -> "PrivateClassifier":
        """Set parameters; on a clone this is what a search does, and the ledger will say so."""
        super().set_params(**params)
        if params and getattr(self, "_is_clone", False):
            self._is_candidate = True
        return self

    def __sklearn_clone__(self) -> "PrivateClassifier":
        clone = _clone_parametrized(self)
        clone._is_clone = True
        return clone

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
