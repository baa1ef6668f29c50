"""What all methods share: the `Method` entry of the registry, and `BasePrivateClassifier` with its four hooks.

A method is a recipe (how it trains, in `training=`), an estimator that derives from `BasePrivateClassifier`, and one
`Method` object that tells the rest of the program everything it needs to know. CONTRIBUTING.md has the steps.
"""

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from fairveil._random import Key, KeyOrPath, public_coins, reproducible_coins, secret_coins
from fairveil._validation import check_budget, check_choice
from fairveil.accounting.composition import epsilon_of
from fairveil.errors import (
    InvalidParameterError,
    ToleranceNotMetWarning,
    UnknownGroupWarning,
    without_array_sizes,
)
from fairveil.fairness.constraints import Constraint
from fairveil.fairness.diagnostics import DecisionChanges, FinalCheck
from fairveil.fairness.evaluation import Evaluation
from fairveil.methods.engines import AUTO as AUTO_ENGINE
from fairveil.methods.engines import EngineChoice, choose_engine, opened_records, with_cache
from fairveil.methods.explanations import Explainable
from fairveil.methods.inputs import (
    FileSource,
    InputSpec,
    Predictor,
    PrefittedClassifier,
    SchemaOrPath,
    Source,
    TableSource,
)
from fairveil.methods.searching import SearchAwareEstimator
from fairveil.methods.settings import with_model
from fairveil.models import PrefittedProbabilities, with_module
from fairveil.models.rules import DecisionRule
from fairveil.persistence import read_folder, save_folder
from fairveil.privacy.ledger import Ledger, LedgerOrPath, open_ledger
from fairveil.privacy.plan import Plan
from fairveil.privacy.selection import TunedPlan
from fairveil.privacy.veil import open_veils
from fairveil.report.decision_text import MANY_UNKNOWN, unknown_groups_sentence
from fairveil.training.recipe import Progress, Recipe, detail_for, no_progress
from fairveil.training.run import Trained, make_counting_plan, make_plan, release_outcomes, run_plan
from fairveil.training.tuning import Tuning, run_tuned_plan, tuned_plan

AnyPlan = Plan | TunedPlan

PARAMETERS = {
    "epsilon, delta": """epsilon, delta : float
        The privacy budget; ``epsilon=math.inf`` gives the same algorithm without privacy.""",
    "schema": """schema : Schema, str or Path
        Public facts about the table: bounds, categories, classes, optionally the number of records; or the TOML file
        that states them: ``schema="people.toml"``. Required if epsilon is finite.""",
    "sensitive": """sensitive : str or list of str, optional
        The sensitive column or columns whose groups are compared. Several columns mean the intersections of their
        groups.""",
    "holdout": """holdout : float
        Share of the units held out, chosen by secret random numbers, to measure accuracy and gaps privately
        (`evaluation_`).""",
    "ledger": """ledger : Ledger, str or Path, optional
        Privacy ledger for this data set, or its file: ``ledger="people.ledger.jsonl"``. If None, a process-wide
        in-memory ledger is used, which is lost when the process ends. Clones of the estimator share it.""",
    "random_state": """random_state : int, Generator or None
        Seeds the public random numbers (initial weights); at epsilon = infinity it seeds everything. Noise is never
        seeded.""",
    "auc": """auc : bool
        Whether to measure ROC-AUC and average precision on the hold-out too (two classes). The scores are counted in
        the same budget, and the other counts of the hold-out get 12 % more noise.""",
    "estimator": """estimator : fitted classifier with predict_proba, optional
        Post-process this classifier instead of training one. How it was trained is not covered by the guarantee, and it
        must answer each row by itself: it is tried on rows made from the schema, and refused if it does not. Wrap it in
        scikit-learn's FrozenEstimator if the post-processor is cloned.""",
}
"""The documentation of constructor parameters that estimators share; a class docstring names them as `{schema}`."""

GUARANTEE = """neighbors differ by one record (one person, if the schema names an id column) added or removed. Assumes
    that the schema's facts are public and that nobody reads this process's memory. Timing is not covered."""


# --- what a method is ------------------------------------------------------------------------------------------------


def _unchanged(training: Any, request: Any) -> Any:
    return training


def _never(request: Any) -> bool:
    return False


@dataclass(frozen=True)
class Method:
    """Everything that the rest of the program needs to know about a method.

    Attributes
    ----------
    name : str
        What users write after ``method=`` and ``--method``.
    title, paper, help : str
        What it does in a few words; who published it; one line for ``--help``.
    estimator : type
        The class derived from `BasePrivateClassifier`.
    recipe : type
        How it trains: the class of ``training=``, whose default instance is used if nothing is passed.
    also_trains_by : tuple of types
        Further recipes that ``training=`` accepts; `prepare` turns them into the method's own.
    bounds_gap : bool
        Whether it keeps a tolerance, or only measures the gap that results.
    aims_at_zero : bool
        Whether it reduces the gap without keeping a tolerance.
    knob, knob_help : str
        The field of its recipe that trades accuracy for fairness in place of a tolerance, and its help line.
    protects, also_protects : str, tuple of str
        What it keeps secret, "record" or "attribute", and what it can keep secret instead on request.
    default_model, models : str, tuple of str
        What it trains by default, and all that it can train.
    reads_group : bool
        Whether its decision rule reads the group itself, so that the group need not be a feature.
    postprocesses : bool
        Whether it can use a classifier that was fitted elsewhere.
    derives_frontier : bool
        Whether one fit yields a model for every tolerance.
    share_of_headroom : float
        The largest share of the tolerance by which it stays below the limit, for forecasts.
    color : int
        Its color among the series of charts.
    suits : callable
        Whether ``method="auto"`` may choose it for a request; the first one in the registry that suits is chosen.
    check : callable
        Refuses a request that the method cannot fulfill, before anything is spent.
    prepare : callable
        Takes a recipe and a request, and returns the recipe with what the request adds (headroom, awareness).
    """

    name: str
    title: str
    paper: str
    help: str
    estimator: "type[BasePrivateClassifier]"
    recipe: type
    also_trains_by: tuple[type, ...] = ()
    bounds_gap: bool = True
    aims_at_zero: bool = False
    knob: str | None = None
    knob_help: str = ""
    protects: str = "record"
    also_protects: tuple[str, ...] = ()
    default_model: str = "auto"
    models: tuple[str, ...] = ("auto", "linear", "mlp")
    reads_group: bool = False
    postprocesses: bool = False
    derives_frontier: bool = False
    share_of_headroom: float = 0.5
    color: int = 0
    suits: Callable[[Any], bool] = _never
    check: Callable[[Any], None] | None = None
    prepare: Callable[[Any, Any], Any] = _unchanged

    def make_training(self, model: str | None = None, knob: float | None = None) -> Any:
        """Return the method's recipe for this kind of model and this value of its knob."""
        training = self.recipe()
        if model is not None:
            check_choice(f'model (with method "{self.name}")', model, self.models)
            if model != self.default_model:
                training = with_model(training, model)
        if knob is None:
            return training
        if self.knob is None:
            raise InvalidParameterError(
                f'Expected no knob with method "{self.name}", which has none, got {knob!r}; leave it out.'
            )
        return replace(training, **{self.knob: knob})

    def make_estimator(self, request: Any) -> "BasePrivateClassifier":
        """Return the estimator that fulfills a `FitRequest`, not yet fitted."""
        training = training_of(request, self.recipe, *self.also_trains_by, method=self.name)
        arguments: dict[str, Any] = {
            "training": self.prepare(training, request), "epsilon": request.epsilon, "delta": request.delta,
            "schema": request.prepared_schema(), "sensitive": list(request.sensitive) or None,
            "holdout": request.holdout, "ledger": request.ledger, "random_state": request.random_state,
            "auc": request.auc,
        }  # fmt: skip
        if issubclass(self.estimator, ConstrainedClassifier):
            arguments["constraint"] = request.constraints
        if self.postprocesses:
            arguments["estimator"] = request.estimator
        if self.also_protects:
            arguments["protects"] = request.protects
        return self.estimator(**arguments)


# --- estimators ------------------------------------------------------------------------------------------------------


class BasePrivateClassifier(Explainable, SearchAwareEstimator):
    """Base of all private classifiers: plan, ledger, training, predictions, saving and loading.

    A method overrides at most these four hooks:

    ``_input_spec(arrays)``
        The public side of the table. Post-processors declare here what their model predicts.
    ``_recipe(inputs)``
        How to train. Refuses parameters that do not fit, before anything is spent.
    ``_store(inputs, trained)``
        Keeps what the training released as fitted attributes (with a trailing underscore).
    ``cautions()`` and ``noise_statements(constraints, confidence)``
        Evidence: sentences about a fitted classifier that users must see (fit also shows them as warnings), and
        statements over the training noise.

    and sets these class attributes: `protects` (what is secret), `is_randomized` (decisions always need a key),
    `postprocesses` (takes a fitted classifier), `not_saved` (fitted attributes that a model folder does not keep).
    """

    protects: str = "record"
    is_randomized: ClassVar[bool] = False
    postprocesses: ClassVar[bool] = False
    not_saved: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """Fill the documentation of shared parameters into the class docstring."""
        super().__init_subclass__(**options)
        for name, text in PARAMETERS.items():
            cls.__doc__ = (cls.__doc__ or "").replace("{" + name + "}", text)
        cls.__doc__ = (cls.__doc__ or "").replace("{guarantee}", GUARANTEE)

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        training: Any = None,
        schema: SchemaOrPath | None = None,
        sensitive: str | Sequence[str] | None = None,
        holdout: float = 0.0,
        ledger: LedgerOrPath | None = None,
        random_state: Any = None,
        auc: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.training = training
        self.schema = schema
        self.sensitive = sensitive
        self.holdout = holdout
        self.ledger = ledger
        self.random_state = random_state
        self.auc = auc

    # --- hooks -------------------------------------------------------------------------------------------------

    def _input_spec(self, arrays: tuple[Any, Any] | None = None) -> InputSpec:
        """Return the public side of the table; `arrays` are X and y where there is no schema (epsilon = infinity)."""
        return InputSpec.of(self.schema, self.sensitive, self.epsilon, self.delta, self.protects, arrays)

    def _recipe(self, inputs: InputSpec) -> Recipe:
        """Return how to train."""
        raise TypeError(f"{type(self).__name__} must define _recipe.")

    def _store(self, inputs: InputSpec, trained: Trained) -> None:
        """Keep what was released as fitted attributes."""
        self.inputs_, self.schema_ = inputs, inputs.schema
        self.model_, self.params_ = trained.model, trained.fit.params
        self.rule_: DecisionRule = trained.fit.rule
        self.epsilon_spent_ = epsilon_of(self.plan_.charges(), self.delta)
        self.final_check_: FinalCheck | None = trained.fit.check
        self.changes_: DecisionChanges | None = trained.fit.changes
        self.evaluation_: Evaluation | None = None
        if trained.outcomes is not None:
            self.evaluation_ = Evaluation(trained.outcomes, trained.noise_variance, inputs.people, trained.scores)
        self.key_ = Key.fresh() if self.is_randomized or self.rule_.needs_uniforms else None
        self._predictor = Predictor(inputs, self.model_, self.params_, self.rule_, self.key_)

    def cautions(self) -> list[str]:
        """Return what users must know about this fitted classifier, in whole sentences."""
        check = self.final_check_
        return [check.complaint()] if check is not None and check.excess.any() else []

    def noise_statements(self, constraints: Sequence[Constraint], confidence: float) -> list[dict[str, Any]]:
        """Return statements over the training noise that a method makes beside the certificate; most make none."""
        return []

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the key of a randomized rule: a pickle, like a saved folder, never holds it."""
        state = dict(super().__getstate__())
        if state.get("key_") is not None:
            state |= {"key_": None, "_predictor": replace(state["_predictor"], key=None)}
        return state

    # --- fitting -----------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sensitive_features: Any = None, progress: Progress = no_progress) -> Any:
        """Train on a table and its labels; the ledger is debited before any row is used.

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
        return self.fit_source(TableSource(X, y, sensitive_features), progress)

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
    ) -> Any:
        """Train on the CSV or Parquet file, or the folder of Parquet files, at `path`, read chunk by chunk.

        `delimiter` stands between the cells of a CSV file, and `encoding` is its own; both are those of the schema
        unless others are named. `engine` is "memory", "disk", "ray" or "auto", which keeps encoded rows on disk if they
        would not fit into memory: in the folder `cache`, by default beside the ledger file. `address` is that of a Ray
        cluster. `progress` is as in `fit`, `reading` the same for the rows that are read.
        """
        place = None if cache is None else Path(cache)
        return self.fit_source(FileSource(path, delimiter, encoding, engine, place, reading, address), progress)

    def fit_source(
        self, source: Source, progress: Progress = no_progress, tuning: Tuning | None = None, depth: int = 3
    ) -> Any:
        """Settle the plan, ask the ledger, and only then read the records and train.

        `fit`, `fit_file` and `FairClassifier` call this; `tuning` is a private choice among recipes, `depth` how many
        calls lie between this one and the user's, for warnings.
        """
        started, arrays = time.perf_counter(), None
        if self.schema is None and math.isinf(self.epsilon) and isinstance(source, TableSource):
            source, arrays = self._checked_arrays(source)
        inputs = self.planned_inputs(arrays, tuning)
        plan = self.planned(tuning, inputs)
        ledger = open_ledger(self.ledger, plan.is_private, depth)
        if self._is_candidate and plan.is_private:
            self._record_search(ledger, depth)
        ledger.check(plan.charges())
        planned = time.perf_counter()
        with without_array_sizes():
            if isinstance(source, TableSource):
                source = inputs.plain(source)
            if self.schema is not None:
                self.classes_ = inputs.classes_for(source.y)
                self.feature_names_in_ = np.array(list(inputs.schema.columns), dtype=object)
                self.n_features_in_ = len(self.feature_names_in_)
            opened = opened_records(inputs, with_cache(source, ledger.path), plan, self.random_state)
            with opened as (records, engine):
                self.engine_ = None if engine is None else engine.public_name
                self.data_reference_ = ledger.record_data(source.path) if isinstance(source, FileSource) else None
                loaded = time.perf_counter()
                trained = self._trained(plan, inputs, records, ledger, progress, tuning)
        self.plan_, self.ledger_ = plan, ledger
        self._store(inputs, trained)
        self.timing_ = {"plan": planned - started, "read": loaded - planned, "train": time.perf_counter() - loaded}
        if isinstance(plan, TunedPlan):
            self.timing_ = {}  # how long it took would reveal how many runs there were
        for sentence in self.cautions():
            warnings.warn(sentence, ToleranceNotMetWarning, stacklevel=depth)
        return self

    def _trained(
        self, plan: AnyPlan, inputs: InputSpec, records: Any, ledger: Ledger, progress: Progress, tuning: Any
    ) -> Trained:
        """Carry the plan out on the records."""
        coins = secret_coins() if plan.is_private else reproducible_coins(self.random_state)
        rng, purpose = public_coins(self.random_state), f"fit of {type(self).__name__}"
        if isinstance(plan, Plan):
            recipe = self._recipe(inputs)
            return run_plan(plan, recipe, inputs.task, records, ledger, coins, rng, progress, purpose)
        tuned = run_tuned_plan(plan, tuning, inputs.task, records, ledger, coins, rng, purpose)
        self.candidate_ = tuned.candidate
        return tuned.trained

    def _checked_arrays(self, source: TableSource) -> tuple[TableSource, tuple[Any, Any]]:
        """Check plain arrays as scikit-learn does, and code their labels; only without a schema, so without privacy."""
        X, y = validate_data(self, source.X, source.y, ensure_all_finite=False, dtype="numeric")
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidParameterError("Expected at least two classes in y, got one class.")
        return TableSource(X, codes, source.sensitive_features), (X, y)

    def planned(self, tuning: Tuning | None = None, inputs: InputSpec | None = None) -> AnyPlan:
        """Return the plan that a fit would follow, from public facts alone; `inputs` are those of the table."""
        inputs = self.planned_inputs(None, tuning) if inputs is None else inputs
        if tuning is None:
            return make_plan(self._recipe(inputs), inputs.task, self.holdout, self.auc)
        if inputs.task.hides_attribute:
            raise InvalidParameterError(
                "Expected no private choice among recipes if the attribute alone is secret, got one; pass one recipe."
            )
        return tuned_plan(tuning, inputs.task, self.holdout, self.auc)

    def planned_inputs(self, arrays: Any = None, tuning: Tuning | None = None) -> InputSpec:
        """Return the public side of the table, as finely encoded as training needs (`arrays` and `tuning` of a fit)."""
        inputs = self._input_spec(arrays)
        recipes = (self._recipe(inputs),) if tuning is None else tuning.candidates
        return replace(inputs, detail=detail_for(recipes, inputs.task))

    def planned_recipe(self) -> Recipe:
        """Return how a fit would train, from public facts alone."""
        return self._recipe(self.planned_inputs())

    def planned_engine(self, path: str | Path, engine: str = AUTO_ENGINE, cache: Path | None = None) -> EngineChoice:
        """Return where and why a fit would keep the rows of `path`, unread; `engine`, `cache` are as in `fit_file`."""
        inputs = self.planned_inputs()
        return choose_engine(inputs, FileSource(path, engine=engine, cache=cache), self.planned(None, inputs))

    # --- predictions -------------------------------------------------------------------------------------------

    def predict(self, X: Any, sensitive_features: Any = None, record_ids: Any = None) -> NDArray[Any]:
        """Return the decision for each record.

        Parameters
        ----------
        X : data frame of any kind, or array
            With the sensitive columns, if the rule reads the group and they are not passed separately.
        sensitive_features : array or data frame, optional
            The groups, as in `fit`; rules that do not read the group ignore them. Records of no known group are
            decided by the model alone; `UnknownGroupWarning` says how many, if they are more than a few.
        record_ids : array, optional
            Identifies each record for randomized rules: the same id and key always give the same decision. By default
            the schema's id column, else what the schema reads of the row.
        """
        return self._decide(X, sensitive_features, record_ids)

    def _decide(self, X: Any, sensitive_features: Any, record_ids: Any) -> NDArray[Any]:
        """Return the decisions for `predict`, two calls away from the user; the warning names the user's line."""
        source = self._source(X, sensitive_features)
        decided = self._predictor.decide(source.X, source.sensitive_features, record_ids)
        unknown = self._predictor.without_group(source.X, source.sensitive_features)
        if unknown is not None and unknown.sum() > MANY_UNKNOWN * len(unknown):
            sentence = unknown_groups_sentence(int(unknown.sum()), len(unknown), self.inputs_.people.attributes)
            warnings.warn(sentence, UnknownGroupWarning, stacklevel=3)
        return self.classes_[decided]

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> NDArray[Any]:
        """Return the model's class probabilities; for a randomized rule, the distribution of its decision.

        `X` and `sensitive_features` are as in `predict`.
        """
        source = self._source(X, sensitive_features)
        return self._predictor.probabilities(source.X, source.sensitive_features)

    def use_key(self, key: KeyOrPath | None) -> Any:
        """Randomize decisions by this key (or the key in this file) from now on, so that they repeat elsewhere."""
        self.key_ = key if isinstance(key, Key) or key is None else Key.read(key)
        self._predictor = replace(self._predictor, key=self.key_)
        return self

    def _source(self, X: Any, sensitive_features: Any) -> TableSource:
        check_is_fitted(self, "params_")
        if self.schema is None:
            X = validate_data(self, X, ensure_all_finite=False, dtype="numeric", reset=False)
        return self.inputs_.plain(TableSource(X, None, sensitive_features))

    # --- evidence ----------------------------------------------------------------------------------------------

    def count_outcomes(
        self, source: Source, epsilon: float, delta: float, ledger: LedgerOrPath | None = None
    ) -> Evaluation:
        """Return noisy (group x label x decision) counts on other people, for a certificate.

        Notes
        -----
        Guarantees (epsilon, delta)-differential privacy for the people of `source`, one added or removed. Their ledger
        is checked before they are read, and debited before anything is counted. The classifier may be known before the
        people are chosen.
        """
        check_is_fitted(self, "params_")
        check_budget(epsilon, delta)
        inputs = self.inputs_
        plan = make_counting_plan(epsilon, delta, inputs.task.unit)
        debited = open_ledger(ledger, plan.is_private, depth=4)
        debited.check(plan.charges())
        with threadpool_limits(1, user_api="blas"), without_array_sizes():
            whole = inputs.plain(source) if isinstance(source, TableSource) else with_cache(source, debited.path)
            with opened_records(inputs, whole, plan) as (records, _):
                if isinstance(source, FileSource):
                    debited.record_data(source.path)
                veil = open_veils(records, plan, debited, secret_coins(), "counts for a certificate")["holdout"]
                counts, variance = release_outcomes(veil, self.model_, self.params_, self.rule_, inputs.task)
        return Evaluation(counts, variance, inputs.people)

    # --- saving and loading ------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write the fitted classifier into a new folder, as JSON and safetensors; never the key."""
        check_is_fitted(self, "params_")
        save_folder(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path, estimator: Any = None, key: KeyOrPath | None = None, module: Any = None) -> Any:
        """Return a fitted classifier from its folder; it predicts, and refuses to fit (its ledger is sealed).

        Parameters
        ----------
        folder : str or Path
            What `save` wrote.
        estimator : fitted classifier, optional
            The classifier that the rule was fitted to, if it was fitted elsewhere.
        key : Key or path, optional
            The key of a randomized rule.
        module : callable, optional
            The constructor of the torch module, if one was trained; a folder holds its parameters, never its code.
        """
        takes_key = cls.postprocesses or cls.is_randomized
        if (estimator is not None and not cls.postprocesses) or (key is not None and not takes_key):
            raise InvalidParameterError(
                f"Expected no classifier and no key for a {cls.__name__}, which trains its own model and needs no key; "
                "leave them out."
            )
        fitted = read_folder(Path(folder), cls.__name__)
        model = fitted["model_"] = with_module(fitted["model_"], module)
        plan, schema = fitted["plan_"], fitted["schema_"]
        names, predicts, detail = (fitted.pop(name) for name in ("sensitive", "predicts", "detail"))
        loaded = cls(epsilon=plan.epsilon, delta=plan.delta, schema=schema, sensitive=names)
        if isinstance(plan, Plan) and plan.hides_attribute:
            loaded.protects = "attribute"
        unknown = dict.fromkeys(("final_check_", "changes_", "data_reference_", "engine_", *cls.not_saved))
        for name, value in (fitted | unknown).items():
            setattr(loaded, name, value)
        loaded.ledger = loaded.ledger_ = Ledger.sealed()
        prefitted = None
        if isinstance(model, PrefittedProbabilities):
            if estimator is None:
                raise InvalidParameterError(
                    "Expected the classifier that this rule was fitted to, got none; load it and pass it as estimator."
                )
            prefitted = PrefittedClassifier.of(estimator, schema.target.classes)
        facts = (schema, tuple(schema.sensitive_named(name) for name in names or ()), plan.epsilon, plan.delta)
        loaded.inputs_ = InputSpec(*facts, predicts, prefitted, loaded.protects, detail)
        loaded._predictor = Predictor(loaded.inputs_, model, loaded.params_, loaded.rule_)
        if prefitted is None:
            loaded._predictor.check()
        return loaded.use_key(key)


class ConstrainedClassifier(BasePrivateClassifier):
    """Base of classifiers that take fairness constraints."""

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
    ) -> None:
        self.constraint = constraint
        self.epsilon = epsilon
        self.delta = delta
        self.training = training
        self.schema = schema
        self.sensitive = sensitive
        self.holdout = holdout
        self.ledger = ledger
        self.random_state = random_state
        self.auc = auc


def training_of(holder: Any, kind: type, *others: type, method: str | None = None) -> Any:
    """Return the recipe in `training=` of an estimator or request, by default `kind()`; refuse one of another kind."""
    training = kind() if holder.training is None else holder.training
    if not isinstance(training, (kind, *others)):
        names = " or ".join(f"{each.__name__}(...)" for each in (kind, *others))
        user, remedy = f"for {type(holder).__name__}", "PrivateClassifier takes other recipes"
        if method is not None:
            user, remedy = f'with method "{method}"', "pass one of these, or leave it out"
        raise InvalidParameterError(f"Expected training={names} {user}, got {type(training).__name__}; {remedy}.")
    return training
