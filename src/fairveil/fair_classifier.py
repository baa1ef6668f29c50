"""FairClassifier: the front door. One budget in; a private and fair rule, and the evidence for both, out."""

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, _clone_parametrized
from sklearn.utils.validation import check_is_fitted

from fairveil._keys import Key
from fairveil._validation import check_delta, check_epsilon
from fairveil.certificates.holdout import Certificate, check_confidence
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint, DemographicParity
from fairveil.methods.base import PrivateClassifier
from fairveil.methods.functional import FrontierModel, FunctionalClassifier
from fairveil.methods.outcome_counts import count_outcomes
from fairveil.persistence import save_rule
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan
from fairveil.privacy.selection import TunedPlan
from fairveil.privacy.veil import AnyRecords
from fairveil.report.text import explanation
from fairveil.request import FitRequest, checked_constraints, method_for
from fairveil.saved_request import SavedRequest, load_behind
from fairveil.summary import guarantee_of, summary_of
from fairveil.training.recipe import Progress, no_progress
from fairveil.training.tuning import Tuning


class FairClassifier(ClassifierMixin, BaseEstimator):
    """A private and fair classifier with its certificate: the front door to all methods.

    Splits a hold-out off by secret coins, trains, fits a rule that keeps the bounds, measures the released rule on the
    hold-out, and certifies what can be said of people it has not seen; all of it in one budget.

    Parameters
    ----------
    constraint : constraint or list of constraints, optional
        What must hold; None is ``DemographicParity(tolerance=0)``. Methods without bounds only measure it.
    epsilon, delta : float
        The privacy budget of everything; ``epsilon=math.inf`` gives the same algorithm without privacy.
    sensitive : str or list of str, optional
        The sensitive column or columns whose groups are compared; None is the schema's first.
    aware : bool
        Whether decisions may read the sensitive columns. There is no default: a rule that reads a protected attribute
        is unlawful in some places, one that does not is less accurate at the same gap.
    method : {"auto", "dp2dp", "raco", "parity", "functional", "fairdp", "pfld", "dpsgd", "dpsgdf", "output"}
        "auto" chooses by public facts: a rule on top of scores where that can reach what is asked (dp2dp), training
        under bounds elsewhere (raco). "fairdp" and "pfld" have no tolerance: what comes out is measured.
    schema : Schema
        The public facts: bounds, categories, classes, optionally the size. Needed whenever epsilon is finite.
    holdout : float
        Share of the units kept apart by secret coins for the certificate.
    tune : Tuning, optional
        Ways to train to choose among privately, in the same budget: ``Tuning((Descent(), Descent(model="mlp")))``.
        Runs stop at random, only the best is released, and the certificate's people have no part in the choice.
    ledger : Ledger, optional
        The books of these people; None is the ledger of this process. Clones share it.
    estimator : Descent, OutputPerturbation, Groupwise, Functional, LagrangianDual, or a fitted classifier, optional
        How to train; None is ``Descent()``, or what the method trains by. A fitted classifier is used as it is: its
        own training is not covered.
    protects : {"record", "attribute"}
        What is secret: whole records, or the sensitive attribute alone, while features and labels are public ("pfld").

    Attributes
    ----------
    certificate_ : Certificate or None
        What holds for people like those held out, at 95 %; `certificate(confidence)` for another level.
    behind_ : PrivateClassifier
        The fitted estimator that does the work, with its model, rule and trace.
    method_ : str
        The method that was used.
    evaluation_ : Evaluation or None
        Noisy counts on the hold-out: accuracy, rates, gaps and ratios, each with its interval.
    classes_, n_features_in_, feature_names_in_, plan_, epsilon_spent_, ledger_
        As in `PrivateClassifier`.

    Guarantees
    ----------
    Everything released here (model, rule, certificate) is together (epsilon, delta)-differentially private: neighbours
    differ by one record (one person, if the schema names an id column) added or removed, or with
    ``protects="attribute"`` by whether the sensitive attribute of one record is known. Assumes that the schema's
    facts are public and that nobody reads this process's memory. Timing is not covered. The certificate is about
    people drawn like those handed to fit.

    Examples
    --------
    >>> from fairveil import DemographicParity, FairClassifier, load_dataset
    >>> people = load_dataset("adult")
    >>> clf = FairClassifier(DemographicParity(tolerance=0.05), sensitive="sex", aware=True, schema=people.schema)
    >>> clf.fit(people.X, people.y).certificate_.smallest_tolerance < 0.1
    True
    """

    def __init__(
        self,
        constraint: Constraint | Sequence[Constraint] | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        sensitive: str | Sequence[str] | None = None,
        aware: bool | None = None,
        method: str = "auto",
        schema: Schema | None = None,
        holdout: float = 0.15,
        tune: Tuning | None = None,
        ledger: Ledger | None = None,
        estimator: Any = None,
        protects: str = "record",
    ) -> None:
        self.constraint = constraint
        self.epsilon = epsilon
        self.delta = delta
        self.sensitive = sensitive
        self.aware = aware
        self.method = method
        self.schema = schema
        self.holdout = holdout
        self.tune = tune
        self.ledger = ledger
        self.estimator = estimator
        self.protects = protects

    # --- fitting ------------------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any, sensitive_features: Any = None, progress: Progress = no_progress
    ) -> "FairClassifier":
        """Train, fit the rule, certify; the budget is booked before any row is used.

        Parameters
        ----------
        X : DataFrame or array of shape (n, d)
        y : array of shape (n,)
        sensitive_features : array of shape (n,) or DataFrame, optional
            The sensitive column where it is not a column of `X`; a DataFrame where there are several.
        progress : callable
            Wraps the range of steps, a progress bar for instance.
        """
        return self._fit(lambda behind: behind.fit(X, y, sensitive_features, progress))

    def fit_file(
        self, path: str | Path, *, delimiter: str = ",", progress: Progress = no_progress
    ) -> "FairClassifier":
        """Train on a CSV or Parquet file that follows the schema, read chunk by chunk."""
        return self._fit(lambda behind: behind.fit_file(path, delimiter=delimiter, progress=progress))

    def _fit(self, fitting: Callable[[PrivateClassifier], PrivateClassifier]) -> "FairClassifier":
        wish = self.wish()
        behind = self._behind(wish)
        behind._is_candidate = getattr(self, "_is_candidate", False)
        self._keep(wish, fitting(behind))
        return self

    def _behind(self, wish: FitRequest) -> PrivateClassifier:
        behind = wish.behind()
        if self.tune is not None:
            behind._tuning = wish.tuning(self.tune)
        return behind

    def _keep(self, wish: FitRequest, behind: PrivateClassifier) -> None:
        self.behind_, self.method_, self._wish = behind, wish.method, wish
        self.classes_, self.n_features_in_ = behind.classes_, behind.n_features_in_
        if hasattr(behind, "feature_names_in_"):
            self.feature_names_in_ = behind.feature_names_in_
        self.plan_, self.ledger_ = behind.plan_, behind.ledger_
        self.epsilon_spent_, self.evaluation_ = behind.epsilon_spent_, behind.evaluation_
        self.certificate_ = None if self.evaluation_ is None else self.certificate()

    def wish(self) -> FitRequest:
        """Return what was asked for, checked; refuse a choice that was not made."""
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if not isinstance(self.aware, bool):
            raise InvalidParameterError(
                f"Expected aware=True or aware=False, got {self.aware!r}; say whether decisions may read the sensitive "
                "column."
            )
        if self.tune is not None and not isinstance(self.tune, Tuning):
            raise InvalidParameterError(
                f"Expected tune to be a Tuning, got {type(self.tune).__name__}; write Tuning((...))."
            )
        if self.tune is not None and self.estimator is not None:
            raise InvalidParameterError(
                "Expected an estimator or candidates to choose among, got both; name it among the candidates of tune."
            )
        constraints = checked_constraints(DemographicParity() if self.constraint is None else self.constraint)
        method = method_for(self.method, constraints, self.aware, self.estimator, self.protects)
        seed = None if math.isfinite(self.epsilon) else 0  # what is not private can be repeated
        return FitRequest(
            constraints, float(self.epsilon), float(self.delta), self._sensitive(), self.aware, method, self.schema,
            self.holdout, self.estimator, self.ledger, seed, self.protects,
        )  # fmt: skip

    def _sensitive(self) -> tuple[str, ...]:
        if self.sensitive is not None:
            return (self.sensitive,) if isinstance(self.sensitive, str) else tuple(self.sensitive)
        return () if self.schema is None else tuple(entry.column for entry in self.schema.sensitive[:1])

    # --- deciding -----------------------------------------------------------------------------------------

    def predict(self, X: Any, sensitive_features: Any = None, record_ids: Any = None) -> NDArray[Any]:
        """Return the decision for each record; rules that read the group take it from its column of `X`.

        Parameters
        ----------
        X : DataFrame or array
        sensitive_features : array or DataFrame, optional
            The groups, where they are not columns of `X`. People of no known group are decided by the model alone.
        record_ids : array, optional
            Who each record is, for rules that draw lots: the same id and key give the same answer.
        """
        check_is_fitted(self, "behind_")
        behind: Any = self.behind_
        return behind.predict(X, sensitive_features, record_ids) if _reads_lots(behind) else behind.predict(X)

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> NDArray[Any]:
        """Return the model's probability of each class; of a rule that draws lots, the law of its decision."""
        check_is_fitted(self, "behind_")
        behind: Any = self.behind_
        return behind.predict_proba(X, sensitive_features) if _reads_lots(behind) else behind.predict_proba(X)

    @property
    def key_(self) -> Key | None:
        """What decides lots, where the rule draws any."""
        return getattr(self.behind_, "key_", None)

    # --- evidence -----------------------------------------------------------------------------------------

    def planned(self) -> Plan | TunedPlan:
        """Return the plan that a fit would follow, from public facts alone."""
        return self._behind(self.wish()).planned()

    def explain(self) -> str:
        """Return the plan and what it will guarantee, in plain words; no row is read."""
        return explanation(guarantee_of(self.wish(), self.planned()))

    def certificate(self, confidence: float = 0.95) -> Certificate:
        """Return what holds for people like those held out, at this confidence; it costs nothing more."""
        check_is_fitted(self, "behind_")
        if self.evaluation_ is None:
            raise InvalidParameterError(
                "Expected counts of people held out to certify from, got none; fit with holdout=0.15, and announce the "
                "tolerances of a frontier."
            )
        return self._wish.certificate_of(self.evaluation_, confidence)

    def certify(
        self,
        X: Any,
        y: Any,
        epsilon: float,
        *,
        sensitive_features: Any = None,
        ledger: Ledger | None = None,
        confidence: float = 0.95,
    ) -> Certificate:
        """Certify on other people, who had no part in training, by noisy counts that cost `epsilon` of their own."""
        check_is_fitted(self, "behind_")
        front = self.behind_.front()
        return self._certified(lambda: front.records(X, y, sensitive_features), epsilon, ledger, confidence)

    def certify_file(
        self,
        path: str | Path,
        epsilon: float,
        *,
        delimiter: str = ",",
        ledger: Ledger | None = None,
        confidence: float = 0.95,
    ) -> Certificate:
        """As `certify`, for people in a CSV or Parquet file."""
        check_is_fitted(self, "behind_")
        front = self.behind_.front()
        return self._certified(lambda: front.records_of_file(path, delimiter), epsilon, ledger, confidence)

    def _certified(
        self, read: Callable[[], AnyRecords], epsilon: float, ledger: Ledger | None, confidence: float
    ) -> Certificate:
        check_confidence(confidence)
        evaluation = count_outcomes(self.behind_, read, epsilon, self.delta, ledger)
        return self._wish.certificate_of(evaluation, confidence)

    def summary(self, confidence: float = 0.95) -> dict[str, Any]:
        """Return everything that a report shows, as plain values for JSON."""
        check_is_fitted(self, "behind_")
        check_confidence(confidence)
        return summary_of(self, self._wish, confidence)

    def frontier(self, tolerances: Sequence[float]) -> list["FairClassifier"]:
        """Return a fitted classifier for each tolerance, all from one release; "functional" alone can do that.

        Tolerances that were announced, ``estimator=Functional(announced=(0.0, 0.02, 0.05))``, were measured on the
        hold-out too, and come with their certificate; the others have none. Nothing more is spent. Each certificate
        holds by itself: of many, one may seem to hold by chance, so certify the one you choose on other people.
        """
        check_is_fitted(self, "behind_")
        if not isinstance(self.behind_, FunctionalClassifier):
            raise InvalidParameterError(
                f'Expected method="functional", which derives every tolerance from one release, got "{self.method_}"; '
                "fit each tolerance, at its own cost."
            )
        return [self._at(model) for model in self.behind_.frontier(tolerances)]

    def _at(self, model: FrontierModel) -> "FairClassifier":
        """Return the front door of one model of a frontier."""
        asked: Any = tuple(replace(one, tolerance=model.tolerance) for one in self._wish.constraints)  # type: ignore[type-var]
        door = copy(self)
        door.constraint = asked
        door._keep(replace(self._wish, constraints=asked), model.classifier)
        return door

    # --- keeping ------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write the fitted rule and its certificate into a new folder, as JSON and safetensors; never the key."""
        check_is_fitted(self, "behind_")
        wish, people = self._wish, self.behind_.front().people
        facts = SavedRequest(wish.constraints, wish.sensitive, wish.aware, wish.method, self.certificate_)
        save_rule(self.behind_, Path(folder), {"front": facts.to_dict(people)})

    @classmethod
    def load(
        cls, folder: str | Path, estimator: Any = None, key: Key | str | Path | None = None
    ) -> "FairClassifier":
        """Return a fitted rule from its folder; it predicts and certifies, and is not for fitting again.

        Parameters
        ----------
        folder : str or Path
        estimator : classifier, optional
            The classifier that the rule was fitted to, where that was fitted elsewhere.
        key : Key or path, optional
            What decides lots, for rules that draw any.
        """
        behind, facts = load_behind(Path(folder), estimator, key)
        clf = cls(
            facts.constraints, behind.epsilon, behind.delta, facts.sensitive or None, facts.aware, facts.method,
            behind.schema_, estimator=estimator, ledger=behind.ledger_, protects=behind._protects,
        )  # fmt: skip
        clf._keep(clf.wish(), behind)
        clf.certificate_ = facts.certificate
        return clf

    def set_params(self, **params: Any) -> "FairClassifier":
        """Set parameters; on a clone this is what a search does, and the ledger will say so."""
        super().set_params(**params)
        if params and getattr(self, "_is_clone", False):
            self._is_candidate = True
        return self

    def __sklearn_clone__(self) -> "FairClassifier":
        clone = _clone_parametrized(self)
        clone._is_clone = True
        return clone

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _reads_lots(behind: PrivateClassifier) -> bool:
    """Return whether decisions come from a rule that may read the group and draw lots."""
    return hasattr(behind, "use_key")
