"""FairClassifier: one budget in; a private and fair classifier, and the evidence for both, out."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fairveil._random import Key
from fairveil.certificates import Certificate, certify, certify_measured, check_confidence
from fairveil.errors import BadStructureError, FairveilError, InvalidParameterError, SmallTableWarning
from fairveil.fairness.constraints import Constraint, DemographicParity, Parity
from fairveil.fairness.evaluation import Evaluation
from fairveil.methods.base import AnyPlan, BasePrivateClassifier
from fairveil.methods.engines import AUTO as AUTO_ENGINE
from fairveil.methods.inputs import FileSource, SchemaOrPath, Source, TableSource, open_schema
from fairveil.methods.registry import estimator_named
from fairveil.methods.searching import SearchAwareEstimator
from fairveil.persistence import read_facts, save_folder
from fairveil.privacy.ledger import LedgerOrPath
from fairveil.report.text import explanation
from fairveil.request import FitRequest, SavedRequest
from fairveil.summary import guarantee_of, schema_facts, summary_of
from fairveil.training.recipe import Progress, no_progress
from fairveil.training.tuning import Tuning


class FairClassifier(SearchAwareEstimator):
    """A private and fair classifier with its certificate, by any method of the registry.

    Splits off a hold-out by secret random numbers, trains, fits a rule that keeps the bounds, measures the released
    rule on the hold-out, and certifies what can be said about people it has not seen; all of it in one budget.

    Parameters
    ----------
    constraint : constraint or list of constraints, optional
        Fairness constraint(s). Defaults to ``DemographicParity(tolerance=0)``. Methods that keep no bounds only
        measure it.
    epsilon, delta : float
        The privacy budget of everything; ``epsilon=math.inf`` gives the same algorithm without privacy.
    sensitive : str or list of str, optional
        The sensitive column or columns whose groups are compared; None is the schema's first.
    aware : bool
        Whether decisions may read the sensitive columns. There is no default: a rule that reads a protected attribute
        is unlawful in some places, one that does not is less accurate at the same gap.
    method : str
        The name of a method (`fairveil.methods.registry.METHODS`), or "auto", which chooses by public facts: a rule on
        top of scores if that can reach the constraint ("dp2dp"), training under bounds otherwise ("raco").
    schema : Schema, str or Path
        Public facts about the table: bounds, categories, classes, optionally the number of records; or the TOML file
        that states them: ``schema="people.toml"``. Required if epsilon is finite.
    holdout : "auto" or float
        Share of the units held out, chosen by secret random numbers, for the certificate. "auto" decides by public
        facts (number of records, groups, tolerance, budget): as many as it probably takes to certify the tolerance,
        weighed against the records that are left to train on.
    tune : Tuning, optional
        Ways to train to choose among privately, in the same budget: ``Tuning((Descent(), Descent(model="mlp")))``.
        The number of runs is random, only the best is released, and the certificate's people take no part in the
        choice.
    ledger : Ledger, str or Path, optional
        Privacy ledger for this data set, or its file: ``ledger="people.ledger.jsonl"``. If None, a process-wide
        in-memory ledger is used, which is lost when the process ends. Clones share it.
    training : recipe, optional
        How to train: ``Descent(...)`` or the recipe of the method; None is the method's default.
    estimator : fitted classifier with predict_proba, optional
        Post-process this classifier instead of training one. How it was trained is not covered by the guarantee, and it
        must answer each row by itself: it is tried on rows made from the schema, and refused if it does not.
    protects : {"record", "attribute"}
        What is secret: whole records, or the sensitive attribute alone, while features and labels are public ("pfld",
        "fermi").
    auc : bool
        Whether to measure ROC-AUC and average precision of the model's score on the hold-out too (two classes):
        ``evaluation_.roc_auc()``. It is part of the same budget: the counts of the certificate get 12 % more noise.

    Attributes
    ----------
    certificate_ : Certificate or None
        What holds for people like those held out, at 95 % confidence; `certificate(confidence)` for another level.
    estimator_ : BasePrivateClassifier
        The fitted estimator that does the work, with its model, rule and trace.
    method_ : str
        The name of the method that was used.
    evaluation_ : Evaluation or None
        Noisy counts on the hold-out: accuracy, rates, gaps and ratios, each with its interval.
    classes_, n_features_in_, feature_names_in_, plan_, epsilon_spent_, ledger_
        As in `PrivateClassifier`.

    Notes
    -----
    Everything released here (model, rule, certificate) is together (epsilon, delta)-differentially private: neighbors
    differ by one record (one person, if the schema names an id column) added or removed, or with
    ``protects="attribute"`` by whether the sensitive attribute of one record is known. Assumes that the schema's
    facts are public and that nobody reads this process's memory. Timing is not covered. The certificate is about
    people drawn like those passed to fit.

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
        schema: SchemaOrPath | None = None,
        holdout: float | str = "auto",
        tune: Tuning | None = None,
        ledger: LedgerOrPath | None = None,
        training: Any = None,
        estimator: Any = None,
        protects: str = "record",
        auc: bool = False,
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
        self.training = training
        self.estimator = estimator
        self.protects = protects
        self.auc = auc

    # --- fitting ----------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sensitive_features: Any = None, progress: Progress = no_progress) -> "FairClassifier":
        """Train, fit the rule and count its outcomes on the hold-out; the ledger is debited before any row is used.

        Before anything is spent, a `SmallTableWarning` says if the table is probably too small for it.

        Parameters
        ----------
        X : data frame of any kind, or array of shape (n_records, n_features)
            The columns that the schema names; pandas, polars, PyArrow and others.
        y : array of shape (n_records,)
            The labels.
        sensitive_features : array of shape (n_records,) or data frame, optional
            The sensitive column if it is not a column of `X`; a data frame if there are several. A model that reads
            the sensitive column as a feature finds it here, too.
        progress : callable
            Wraps the range of steps, a progress bar for instance.
        """
        return self._fit_source(TableSource(X, y, sensitive_features), progress)

    def fit_file(
        self,
        path: str | Path,
        *,
        delimiter: str | None = None,
        encoding: str | None = None,
        engine: str = AUTO_ENGINE,
        cache: str | Path | None = None,
        address: str | None = None,
        progress: Progress = no_progress,
        reading: Progress = no_progress,
    ) -> "FairClassifier":
        """Train on the CSV or Parquet file, or the folder of Parquet files, at `path`, read chunk by chunk.

        `delimiter` stands between the cells of a CSV file, and `encoding` is its own; both are those of the schema
        unless others are named. `engine` is "memory", "disk", "ray" or "auto", which keeps encoded rows on disk if they
        would not fit into memory: in the folder `cache`, by default beside the ledger file. They are as private as the
        table and stay there for the next fit (docs/how-to/large-tables.md). `address` is that of a Ray cluster; without
        one, workers run on this machine. `progress` is as in `fit`, `reading` the same for the rows that are read.
        """
        place = None if cache is None else Path(cache)
        return self._fit_source(FileSource(path, delimiter, encoding, engine, place, reading, address), progress)

    def _fit_source(self, source: Source, progress: Progress) -> "FairClassifier":
        request = self.request()
        if request.caution is not None:
            warnings.warn(request.caution, SmallTableWarning, stacklevel=3)
        estimator = request.method.make_estimator(request)
        estimator._is_candidate = self._is_candidate
        tuning = None if self.tune is None else request.tuning(self.tune)
        self._store(request, estimator.fit_source(source, progress, tuning, depth=4))
        return self

    def _store(self, request: FitRequest, estimator: BasePrivateClassifier) -> None:
        self.estimator_, self.method_, self._request = estimator, request.method.name, request
        self.classes_, self.n_features_in_ = estimator.classes_, estimator.n_features_in_
        if hasattr(estimator, "feature_names_in_"):
            self.feature_names_in_ = estimator.feature_names_in_
        self.plan_, self.ledger_ = estimator.plan_, estimator.ledger_
        self.epsilon_spent_ = estimator.epsilon_spent_
        self.evaluation_: Evaluation | None = estimator.evaluation_
        self._certificate: Certificate | None = None  # of a loaded model, or computed when it is first needed

    def request(self) -> FitRequest:
        """Return what the parameters request, checked."""
        if self.tune is not None and not isinstance(self.tune, Tuning):
            raise InvalidParameterError(
                f"Expected tune to be a Tuning, got {type(self.tune).__name__}; write Tuning((...))."
            )
        if self.tune is not None and (self.training is not None or self.estimator is not None):
            raise InvalidParameterError(
                "Expected one way to train or candidates to choose among, got both; name it among the candidates of "
                "tune."
            )
        schema = open_schema(self.schema)
        sensitive = (self.sensitive,) if isinstance(self.sensitive, str) else tuple(self.sensitive or ())
        if self.sensitive is None and schema is not None:
            sensitive = tuple(entry.column for entry in schema.sensitive[:1])
        return FitRequest(
            constraints=DemographicParity() if self.constraint is None else self.constraint,  # type: ignore[arg-type]
            epsilon=self.epsilon,
            delta=self.delta,
            sensitive=sensitive,
            aware=self.aware,  # type: ignore[arg-type]
            method=self.method,  # type: ignore[arg-type]
            schema=schema,
            holdout=self.holdout,  # type: ignore[arg-type]
            training=self.training,
            estimator=self.estimator,
            ledger=self.ledger,
            protects=self.protects,
            auc=self.auc,
        )

    # --- predictions ------------------------------------------------------------------------------------------

    def predict(self, X: Any, sensitive_features: Any = None, record_ids: Any = None) -> NDArray[Any]:
        """Return the decision for each record; rules that read the group take it from its column of `X`.

        Parameters
        ----------
        X : data frame of any kind, or array
            The columns that the schema names.
        sensitive_features : array or data frame, optional
            The groups, if they are not columns of `X`. Records of no known group are decided by the model alone; if
            these are more than a few, `UnknownGroupWarning` says how many.
        record_ids : array, optional
            Identifies each record for randomized rules: the same id and key always give the same decision.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_._decide(X, sensitive_features, record_ids)

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> NDArray[Any]:
        """Return the model's class probabilities; for a randomized rule, the distribution of its decision.

        `X` and `sensitive_features` are as in `predict`.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict_proba(X, sensitive_features)

    def reasons(
        self,
        X: Any,
        n: int = 3,
        sensitive_features: Any = None,
        record_ids: Any = None,
        typical: Mapping[str, Any] | None = None,
    ) -> pd.DataFrame:
        """Return each decision with the columns that cost an unfavorable one the most points.

        Parameters
        ----------
        X : data frame of any kind, or array
            As in `predict`.
        n : int
            How many reasons to name at most.
        sensitive_features : array or data frame, optional
            As in `predict`.
        record_ids : array, optional
            As in `predict`.
        typical : mapping of column to value, optional
            Public values to compare these columns with, instead of the best value: ``typical={"capital_gain": 0}``.

        Returns
        -------
        DataFrame
            One row for each record: `prediction`; `note`, which says whether the decision was randomized or differs
            from the largest probability, and why; then `reason_1` (a column's name) and `points_1`, up to `n`. Reasons
            are empty, and points 0, for favorable decisions and for those that a random draw made against the score.

        Notes
        -----
        The points of a column are what the score would gain if this column alone had its typical value, else its best
        value among those that the schema names. Both are public, so reasons tell nothing about other people. They are
        about the model's score, not about the rule's thresholds, and as private as the rows. If a sensitive column is
        a reason, its points are those in the score, while the person's group stays what it is. A classifier that was
        fitted elsewhere is refused.

        Examples
        --------
        >>> from fairveil import DemographicParity, FairClassifier, load_dataset
        >>> people = load_dataset("adult")
        >>> clf = FairClassifier(DemographicParity(tolerance=0.05), sensitive="sex", aware=True, schema=people.schema)
        >>> table = clf.fit(people.X, people.y).reasons(people.X.head(100), n=2)
        >>> list(table.columns)
        ['prediction', 'note', 'reason_1', 'points_1', 'reason_2', 'points_2']
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.reasons(X, n, sensitive_features, record_ids, typical)

    def shapes(self) -> pd.DataFrame:
        """Return the points that each value of each column adds to a linear model's score; free of privacy cost.

        Returns
        -------
        DataFrame
            The columns `column`, `kind`, `level`, `group` (empty unless each group has a model of its own) and
            `points`, in units of log-odds of the favorable class (with more than two classes, against the mean of the
            others). The most influential column comes first, the intercept last. A record's points and the intercept
            add up to its score.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.shapes()

    @property
    def key_(self) -> Key | None:
        """The key of a randomized rule, None if the rule needs none."""
        return self.estimator_.key_

    # --- evidence ---------------------------------------------------------------------------------------------

    @property
    def certificate_(self) -> Certificate | None:
        """What holds for people like those held out, at 95 % confidence; None if nobody was held out."""
        check_is_fitted(self, "estimator_")
        if self._certificate is None and self.evaluation_ is not None:
            self._certificate = self._certified(self.evaluation_, 0.95)
        return self._certificate

    def planned(self) -> AnyPlan:
        """Return the plan that a fit would follow, from public facts alone."""
        request = self.request()
        return request.method.make_estimator(request).planned(None if self.tune is None else request.tuning(self.tune))

    def explain(self) -> str:
        """Return the plan and what it will guarantee, in plain words; no row is read."""
        request = self.request()
        cautions = [] if request.caution is None else [request.caution]
        return explanation(guarantee_of(request, self.planned()) | {"cautions": cautions})

    def certificate(self, confidence: float = 0.95) -> Certificate:
        """Return what holds for people like those held out, at this confidence; it costs nothing more."""
        check_is_fitted(self, "estimator_")
        if self.evaluation_ is None:
            raise InvalidParameterError(
                "Expected counts of people held out to certify from, got none; fit with holdout=0.15, and announce the "
                "tolerances of a frontier."
            )
        return self._certified(self.evaluation_, confidence)

    def certify(
        self,
        X: Any,
        y: Any,
        epsilon: float,
        *,
        sensitive_features: Any = None,
        ledger: LedgerOrPath | None = None,
        confidence: float = 0.95,
    ) -> Certificate:
        """Certify on other people, who took no part in training, by noisy counts that cost them privacy of their own.

        Parameters
        ----------
        X, y : data frame or array, array
            The other people, as in `fit`.
        epsilon : float
            What the counts cost, at the delta of this classifier.
        sensitive_features : array or data frame, optional
            Their groups, as in `fit`.
        ledger : Ledger, str or Path, optional
            The ledger of these people, which is debited first.
        confidence : float
            At least 0.5 and below 1.
        """
        return self._certify_source(TableSource(X, y, sensitive_features), epsilon, ledger, confidence)

    def certify_file(
        self,
        path: str | Path,
        epsilon: float,
        *,
        delimiter: str | None = None,
        encoding: str | None = None,
        engine: str = AUTO_ENGINE,
        cache: str | Path | None = None,
        ledger: LedgerOrPath | None = None,
        confidence: float = 0.95,
        reading: Progress = no_progress,
    ) -> Certificate:
        """Certify on people in the CSV or Parquet file, or in the folder of Parquet files, at `path`.

        `delimiter`, `encoding`, `engine`, `cache` and `reading` are as in `fit_file`, `epsilon`, `ledger` and
        `confidence` as in `certify`.
        """
        place = None if cache is None else Path(cache)
        source = FileSource(path, delimiter, encoding, engine, place, reading)
        return self._certify_source(source, epsilon, ledger, confidence)

    def _certify_source(
        self, source: Source, epsilon: float, ledger: LedgerOrPath | None, confidence: float
    ) -> Certificate:
        check_is_fitted(self, "estimator_")
        people = self.estimator_.inputs_.people
        nobody = np.zeros((people.n_groups, people.n_classes, people.n_classes))
        self._certified(Evaluation(nobody, 0.0, people), confidence)  # refuses what it must before anything is debited
        evaluation = self.estimator_.count_outcomes(source, epsilon, self.delta, ledger)
        return self._certified(evaluation, confidence)

    def _certified(self, evaluation: Evaluation, confidence: float) -> Certificate:
        """Return what can be certified: the requested bounds, or the measured gap if the method keeps none."""
        constraints, method = self._request.constraints, self._request.method
        if method.knob is not None:
            return certify_measured(evaluation, [one for one in constraints if isinstance(one, Parity)], confidence)
        return certify(evaluation, constraints if method.bounds_gap else (), confidence)

    def summary(
        self,
        confidence: float = 0.95,
        *,
        owner: str | None = None,
        purpose: str | None = None,
        model_digest: str | None = None,
    ) -> dict[str, Any]:
        """Return everything that a report shows, as plain values for JSON.

        Parameters
        ----------
        confidence : float
            Of all intervals and the certificate.
        owner, purpose : str, optional
            Who is responsible for the classifier, and what it is for; shown in the report and the model card.
        model_digest : str, optional
            What `save` returned, so that the evidence names the model it is about.
        """
        check_is_fitted(self, "estimator_")
        check_confidence(confidence)
        facts = summary_of(self, self._request, confidence)
        inputs, rule = self.estimator_.inputs_, self.estimator_.rule_
        columns = [*inputs.schema.columns]
        if rule.reads_group or inputs.predicts == "decoupled":
            columns += [one.column for one in inputs.sensitive if one.column not in columns]
        stated = {"owner": owner or None, "purpose": purpose or None, "inputs": columns}
        stated["data_reference"] = self.estimator_.data_reference_
        declared = schema_facts(self._request.schema or inputs.schema)
        facts["engine"] = self.estimator_.engine_
        return facts | {"model_digest": model_digest, "provenance": stated | {"schema": declared}}

    def frontier(self, tolerances: Sequence[float]) -> list["FairClassifier"]:
        """Return a fitted classifier for each of the `tolerances`, all from one release, if the method derives them.

        Tolerances that were announced, ``training=Functional(announced=(0.0, 0.02, 0.05))``, were measured on the
        hold-out too, and come with their certificate; the others have none. Nothing more is spent. Each certificate
        holds by itself: of many, one may seem to hold by chance, so certify the one you choose on other people.
        """
        check_is_fitted(self, "estimator_")
        if not self._request.method.derives_frontier:
            raise InvalidParameterError(
                f'Expected a method that derives every tolerance from one release, such as "functional", got '
                f'"{self.method_}"; fit each tolerance, at its own cost.'
            )
        classifiers = []
        estimator: Any = self.estimator_
        for model in estimator.frontier(tolerances):
            constraints: Any = tuple(
                replace(one, tolerance=model.tolerance)  # type: ignore[type-var]
                for one in self._request.constraints
            )
            classifier = copy(self)
            classifier.constraint = constraints
            classifier._store(replace(self._request, constraints=constraints), model.classifier)
            classifiers.append(classifier)
        return classifiers

    # --- saving and loading -----------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> str:
        """Write the fitted classifier and its certificate into a new folder, as JSON and safetensors; never the key.

        Returned is the SHA-256 digest of the folder: that of what ``sha256sum model.json params.safetensors`` prints.
        """
        check_is_fitted(self, "estimator_")
        request = self._request
        saved = SavedRequest(request.constraints, request.sensitive, request.aware, self.method_, self.certificate_)
        facts = {"front": saved.to_dict(self.estimator_.inputs_.people)}
        return save_folder(self.estimator_, Path(folder), facts)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        estimator: Any = None,
        key: Key | str | Path | None = None,
        module: Callable[[], Any] | None = None,
    ) -> "FairClassifier":
        """Return a fitted classifier from its folder; it predicts and certifies, and refuses to fit again.

        Parameters
        ----------
        folder : str or Path
            What `save` wrote.
        estimator : fitted classifier, optional
            The classifier that the rule was fitted to, if it was fitted elsewhere.
        key : Key or path, optional
            The key of a randomized rule.
        module : callable, optional
            The constructor of the torch module, if one was trained.
        """
        facts = read_facts(Path(folder))
        kind, saved = estimator_named(str(facts.get("estimator"))), None
        try:
            saved = SavedRequest.from_dict(facts["front"])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, FairveilError):
            kind = None
        if kind is None or saved is None:
            raise BadStructureError(
                f"Expected a model that 'fairveil train' or FairClassifier.save wrote, got something else in {folder}; "
                "save it again, or load it with the class that saved it."
            )
        fitted = kind.load(folder, estimator, key, module)
        clf = cls(
            saved.constraints,
            fitted.epsilon,
            fitted.delta,
            sensitive=saved.sensitive or None,
            aware=saved.aware,
            method=saved.method,
            schema=fitted.schema_,
            ledger=fitted.ledger_,
            estimator=estimator,
            protects=fitted.protects,
        )
        clf._store(clf.request(), fitted)
        clf._certificate = saved.certificate
        return clf
