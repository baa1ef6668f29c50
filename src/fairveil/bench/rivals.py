"""Contenders from other packages: private models, private synthetic tables, and fair rules without privacy.

They are optional (`pip install "fairveil[rivals]"`), and each is loaded when it is used. Where a rival leaves a choice
open, it has the setting that was best for it on Adult, on splits with seeds below 100, which no comparison reports.
What a fit costs is the rival's own account, at the delta of the problem.

dpmm pins versions of NumPy and pandas that fairveil cannot use, so it runs in an environment of its own: `make rivals`
makes one, and the environment variable FAIRVEIL_DPMM_PYTHON names its interpreter.
"""

import math
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from fairveil._typing import Float64Array
from fairveil.bench.contenders import LEDGER, Answer, Contender, Problem
from fairveil.bench.yardsticks import Arrays, Chances, fair_answer
from fairveil.data.encoding import Encoder
from fairveil.data.schema import Category, Number
from fairveil.errors import BadStructureError, InvalidParameterError
from fairveil.fairness.constraints import Parity
from fairveil.methods.dp2dp import ParityPostprocessor
from fairveil.privacy.ledger import Ledger
from fairveil.research.boosting import MOST_CATEGORIES, RawTable, crossed, groups_by_label, labels_of

EXTRA = "rivals"

# --- DP-EBM (interpret) -----------------------------------------------------------------------------------------------

EBM_SETTINGS = {"max_rounds": 100, "learning_rate": 0.05, "max_leaves": 6}
"""With the package's own defaults (300 rounds of .01 with three leaves) it reached .801 on Adult, with these .838."""

SHARE_OF_MODEL = 0.8
"""Of epsilon and delta, where thresholds of fairveil are fitted to DP-EBM; they take the rest."""


class DpEbmClassifier(BaseEstimator, ClassifierMixin):
    """DP-EBM on the columns of a schema: numbers within public bounds, categories as names; missing numbers are low.

    Bounds and kinds of columns come from the schema, so that nothing is read from the rows without a price.
    """

    def __init__(self, schema: Any, epsilon: float, delta: float) -> None:
        self.schema = schema
        self.epsilon = epsilon
        self.delta = delta

    def columns_of(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the table as DP-EBM reads it."""
        table = RawTable.of(X, self.schema).rows
        columns = {}
        for cells, (name, column) in zip(table.T, self.schema.columns.items(), strict=True):
            if isinstance(column, Number):
                low, high = column.bounds
                columns[name] = np.clip(np.nan_to_num(cells, nan=low), low, high)
            else:
                columns[name] = np.nan_to_num(cells, nan=-1.0).astype(int).astype(str)
        return pd.DataFrame(columns)

    def fit(self, X: pd.DataFrame, y: NDArray[Any]) -> "DpEbmClassifier":
        """Train on rows with class names as labels."""
        from interpret.privacy import DPExplainableBoostingClassifier

        described = self.schema.columns
        numbers = {name: one.bounds for name, one in described.items() if isinstance(one, Number)}
        kinds = ["nominal" if isinstance(one, Category) else "continuous" for one in described.values()]
        self.trees_ = DPExplainableBoostingClassifier(
            feature_names=list(described), feature_types=kinds, privacy_bounds=numbers, epsilon=self.epsilon,
            delta=self.delta, n_jobs=1, **EBM_SETTINGS,
        )  # fmt: skip
        self.trees_.fit(self.columns_of(X), y)
        self.classes_ = self.trees_.classes_
        return self

    def predict_proba(self, X: pd.DataFrame) -> Float64Array:
        """Return the probability of each class."""
        return self.trees_.predict_proba(self.columns_of(X))

    def predict(self, X: pd.DataFrame) -> NDArray[Any]:
        """Return the more probable class."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def dp_ebm(problem: Problem) -> Answer:
    """Return what DP-EBM says of the test rows."""
    arrays = Arrays.of(problem)
    clf, epsilon = _trained_ebm(problem, arrays, 1.0)
    scores = _positive_scores(clf, problem.test, arrays)
    names = np.array(problem.schema.target.classes)
    chosen = np.where(scores > 0.5, arrays.people.positive, 1 - arrays.people.positive)
    return Answer(names[chosen], scores, epsilon, "record")


def dp_ebm_with_thresholds(problem: Problem) -> Answer:
    """Return the same with fairveil's private thresholds fitted to its scores; one row counts in both."""
    arrays = Arrays.of(problem)
    clf, epsilon = _trained_ebm(problem, arrays, SHARE_OF_MODEL)
    rest = 1.0 - SHARE_OF_MODEL
    rule = ParityPostprocessor(
        problem.constraint, rest * problem.epsilon, rest * problem.delta, schema=problem.schema,
        sensitive=list(problem.sensitive), ledger=Ledger(problem.folder / LEDGER), estimator=FrozenEstimator(clf),
    )  # fmt: skip
    rule.fit(problem.train, problem.train[problem.schema.target.column])
    decisions = np.array([str(one) for one in rule.predict(problem.test)])
    return Answer(decisions, _positive_scores(clf, problem.test, arrays), epsilon + rule.epsilon_spent_, "record")


def _trained_ebm(problem: Problem, arrays: Arrays, share: float) -> tuple[DpEbmClassifier, float]:
    if not math.isfinite(problem.epsilon):
        raise InvalidParameterError("Expected a finite epsilon for DP-EBM, got inf; leave it out of such runs.")
    _check_two_classes(arrays)
    clf = DpEbmClassifier(problem.schema, share * problem.epsilon, share * problem.delta)
    names = np.array(problem.schema.target.classes)
    return clf.fit(problem.train, names[arrays.y[arrays.train]]), clf.epsilon


def _positive_scores(clf: DpEbmClassifier, table: pd.DataFrame, arrays: Arrays) -> Float64Array:
    positive = [str(one) for one in clf.classes_].index(arrays.people.classes[arrays.people.positive])
    return clf.predict_proba(table)[:, positive]


# --- synthetic tables (dpmm) ------------------------------------------------------------------------------------------

INTERPRETER = "FAIRVEIL_DPMM_PYTHON"
SYNTHESIS = Path(__file__).with_name("_synthesis.py")
GROUP, TARGET = "group", "target"


def synthetic(mechanism: str, problem: Problem) -> Answer:
    """Return what boosted trees with the best fair rule say, all fitted on a private synthetic table.

    The table has the schema's own bins and categories, so the mechanism spends nothing on finding them, and as many
    rows as the schema declares. What follows from it costs nothing more.
    """
    real = Arrays.of(problem)
    n_rows = problem.schema.n_public or len(real.train)
    drawn = _synthesized(mechanism, problem, real, n_rows)
    encoder, people = Encoder(problem.schema), real.people
    both = np.vstack([drawn.drop(columns=[GROUP, TARGET]).to_numpy(), encoder.codes(problem.test)])
    columns = problem.schema.columns.values()
    is_category = tuple(isinstance(one, Category) and len(one.levels) <= MOST_CATEGORIES for one in columns)
    table = RawTable(both.astype(float), is_category)
    arrays = replace(
        real,
        y=np.concatenate([drawn[TARGET].to_numpy(), real.y[real.test]]),
        groups=np.concatenate([drawn[GROUP].to_numpy() - 1, real.groups[real.test]]),
        train=np.arange(n_rows),
        test=np.arange(n_rows, len(both)),
    )
    label_chances = labels_of(table, arrays.y, people.n_classes)
    group_chances = groups_by_label(table, arrays.groups, arrays.y, people.n_groups, people.n_classes)

    def labels(problem: Problem, arrays: Arrays) -> Chances:
        return crossed(label_chances, arrays.train, arrays.test)

    def pairs(problem: Problem, arrays: Arrays) -> Chances:
        def pair_chances(known: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.float64]:
            return label_chances(known, others)[:, None] * group_chances(known, others)

        return crossed(pair_chances, arrays.train, arrays.test)

    answer = fair_answer(labels, pairs, problem, arrays)
    return replace(answer, epsilon=problem.epsilon, protects="record")


def _synthesized(mechanism: str, problem: Problem, real: Arrays, n_rows: int) -> pd.DataFrame:
    """Return the synthetic codes, made by dpmm in its own environment."""
    interpreter = os.environ.get(INTERPRETER)
    if not interpreter:
        raise BadStructureError(
            f"Expected {INTERPRETER} to name the interpreter of an environment with dpmm, got nothing; "
            'run "make rivals" and set it as that prints.'
        )
    encoder = Encoder(problem.schema)
    codes = pd.DataFrame(encoder.codes(problem.train)).add_prefix("column ")
    codes = codes.assign(**{GROUP: real.groups[real.train] + 1, TARGET: real.y[real.train]})
    sizes = [len(slot.levels) for slot in encoder.slots] + [real.people.n_groups + 1, real.people.n_classes]
    train, answer, domain = (problem.folder / name for name in ("train.csv", "synthetic.csv", "domain.json"))
    codes.to_csv(train, index=False)
    pd.Series(sizes, codes.columns).to_json(domain)
    # -I: neither this environment's path nor the modules beside the script are there
    words = [interpreter, "-I", SYNTHESIS, mechanism, train, domain, answer, str(problem.epsilon), str(problem.delta)]
    done = subprocess.run([*map(str, words), str(n_rows)], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BadStructureError(f"Expected a synthetic table from dpmm, got its error: {reason}")
    return pd.read_csv(answer)


# --- fair rules without privacy ---------------------------------------------------------------------------------------

VALIDATION_SHARE = 0.2
"""Of the training rows: rules are fitted on rows that their model has not seen."""


class _Chances(BaseEstimator, ClassifierMixin):
    """A fitted model that reads row numbers: its probabilities are known for all rows."""

    def __init__(self, positive_chances: Any = None) -> None:
        self.positive_chances = positive_chances
        self.classes_ = np.arange(2)

    def fit(self, X: Any, y: Any) -> "_Chances":
        return self

    def predict_proba(self, X: Any) -> Float64Array:
        chance = self.positive_chances[np.asarray(X).ravel().astype(int)]
        return np.column_stack([1 - chance, chance])

    def predict(self, X: Any) -> NDArray[np.int64]:
        return (self.predict_proba(X)[:, 1] > 0.5).astype(int)


Rule = Callable[[Problem, _Chances, NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]], Any]
"""A fair rule of another package: problem, model, validation rows, their labels and groups, test rows and groups."""


def with_rule(rule: Rule, problem: Problem) -> Answer:
    """Return what boosted trees with this rule say: trees are fitted on four fifths, the rule on the other fifth."""
    arrays = Arrays.of(problem)
    _check_two_classes(arrays)
    if not problem.aware:
        raise InvalidParameterError("Expected aware = true, because this rule reads the group, got false.")
    is_positive = (arrays.y == arrays.people.positive).astype(int)
    known = arrays.train[np.isin(arrays.groups[arrays.train], arrays.people.codes)]
    _, held = train_test_split(
        known, test_size=VALIDATION_SHARE, random_state=problem.seed, stratify=is_positive[known]
    )
    fitted = np.setdiff1d(arrays.train, held)
    table = RawTable.of(arrays.frame, problem.schema)
    chances = labels_of(table, is_positive, 2)(fitted, np.arange(len(is_positive)))[:, 1]
    groups = np.searchsorted(arrays.people.codes, arrays.groups)  # numbered from 0, as these packages expect
    decided = (chances[arrays.test] > 0.5).astype(int)  # of rows in no group, which these packages do not expect
    is_known = np.isin(arrays.groups[arrays.test], arrays.people.codes)
    others = arrays.test[is_known]
    decided[is_known] = rule(
        problem, _Chances(chances), held[:, None], is_positive[held], groups[held], others[:, None], groups[others]
    )
    names, positive = np.array(problem.schema.target.classes), arrays.people.positive
    chosen = np.where(decided == 1, positive, 1 - positive)
    return Answer(names[chosen], chances[arrays.test], math.inf, "nothing")


def fairlearn_thresholds(
    problem: Problem, model: _Chances, X: Any, y: Any, groups: Any, others: Any, other_groups: Any
) -> Any:
    """Return the decisions of fairlearn's ThresholdOptimizer (Hardt, Price and Srebro 2016)."""
    from fairlearn.postprocessing import ThresholdOptimizer

    rule = ThresholdOptimizer(
        estimator=model, constraints=_name_of(problem), prefit=True, predict_method="predict_proba",
        tol=_tolerance_of(problem) or None,
    )  # fmt: skip
    rule.fit(X, y, sensitive_features=groups)
    return rule.predict(others, sensitive_features=other_groups, random_state=problem.seed)


def error_parity(problem: Problem, model: _Chances, X: Any, y: Any, groups: Any, others: Any, other_groups: Any) -> Any:
    """Return the decisions of error-parity's RelaxedThresholdOptimizer (Cruz and Hardt 2024)."""
    from error_parity import RelaxedThresholdOptimizer

    rule = RelaxedThresholdOptimizer(
        predictor=lambda rows: model.predict_proba(rows)[:, 1],
        constraint=_name_of(problem),
        tolerance=_tolerance_of(problem),
        seed=problem.seed,
    )
    rule.fit(X, y, group=groups)
    return rule(others, group=other_groups)


def oxonfair(problem: Problem, model: _Chances, X: Any, y: Any, groups: Any, others: Any, other_groups: Any) -> Any:
    """Return the decisions of OxonFair's FairPredictor (Delaney et al. 2024)."""
    from oxonfair import FairPredictor
    from oxonfair import group_metrics as metrics

    bounded = {
        "demographic_parity": metrics.pos_pred_rate.max_diff,  # its demographic_parity is a mean over pairs of groups
        "equalized_odds": metrics.equalized_odds_max,
        "true_positive_rate_parity": metrics.true_pos_rate.max_diff,
        "false_positive_rate_parity": metrics.false_pos_rate.max_diff,  # its predictive_equality is of false negatives
    }
    name = _name_of(problem)
    if name not in bounded:
        raise InvalidParameterError(f"Expected one of {', '.join(bounded)} for OxonFair, got {name}.")
    rule = FairPredictor(model, {"data": X, "target": y, "groups": groups})
    rule.fit(metrics.accuracy, bounded[name], max(_tolerance_of(problem), 1e-3))
    nothing = np.zeros(len(others), dtype=int)  # it asks for labels and does not read them
    return rule.predict({"data": others, "target": nothing, "groups": other_groups})


def fairlearn_reductions(problem: Problem) -> Answer:
    """Return what fairlearn's ExponentiatedGradient says, over logistic regression (Agarwal et al. 2018).

    It bounds how far a group is from all rows together, so two groups can be up to twice the tolerance apart.
    """
    from fairlearn import reductions

    moments = {
        "demographic_parity": reductions.DemographicParity,
        "equalized_odds": reductions.EqualizedOdds,
        "true_positive_rate_parity": reductions.TruePositiveRateParity,
        "false_positive_rate_parity": reductions.FalsePositiveRateParity,
        "error_rate_parity": reductions.ErrorRateParity,
    }
    arrays, name = Arrays.of(problem), _name_of(problem)
    _check_two_classes(arrays)
    if name not in moments:
        raise InvalidParameterError(f"Expected one of {', '.join(moments)} for reductions, got {name}.")
    rows = Encoder(problem.schema).rows(arrays.frame)
    positive = arrays.people.positive
    train = arrays.train[np.isin(arrays.groups[arrays.train], arrays.people.codes)]
    moment = moments[name](difference_bound=max(_tolerance_of(problem), 1e-3))
    found = reductions.ExponentiatedGradient(LogisticRegression(max_iter=1000), moment)
    is_positive = (arrays.y[train] == positive).astype(int)
    found.fit(rows[train], is_positive, sensitive_features=arrays.groups[train])
    chosen = np.asarray(found.predict(rows[arrays.test], random_state=problem.seed)) == 1
    names = np.array(problem.schema.target.classes)
    return Answer(names[np.where(chosen, positive, 1 - positive)], None, math.inf, "nothing")


def _name_of(problem: Problem) -> str:
    if not isinstance(problem.constraint, Parity):
        raise InvalidParameterError("Expected a parity for contenders of other packages, got another constraint.")
    return problem.constraint.name


def _tolerance_of(problem: Problem) -> float:
    return float(getattr(problem.constraint, "tolerance", None) or 0.0)


def _check_two_classes(arrays: Arrays) -> None:
    if arrays.people.n_classes != 2:
        raise InvalidParameterError("Expected two classes for this contender, got more; leave it out.")


# --- all of them ------------------------------------------------------------------------------------------------------


def _rival(
    name: str, title: str, answer: Callable[[Problem], Answer], is_private: bool, keeps_tolerance: bool
) -> Contender:
    return Contender(name, title, answer, is_private=is_private, keeps_tolerance=keeps_tolerance, extra=EXTRA)


RIVALS = (
    _rival("dp-ebm", "DP-EBM of interpret", dp_ebm, True, False),
    _rival("dp-ebm-thresholds", "DP-EBM, thresholds by fairveil", dp_ebm_with_thresholds, True, True),
    _rival("mst", "MST of dpmm, boosted trees, best fair rule", partial(synthetic, "mst"), True, True),
    _rival("aim", "AIM of dpmm, boosted trees, best fair rule", partial(synthetic, "aim"), True, True),
    _rival(
        "fairlearn-thresholds", "ThresholdOptimizer of fairlearn, not private",
        partial(with_rule, fairlearn_thresholds), False, True,
    ),
    _rival(
        "fairlearn-reductions", "ExponentiatedGradient of fairlearn, not private", fairlearn_reductions, False, True
    ),
    _rival("oxonfair", "OxonFair, not private", partial(with_rule, oxonfair), False, True),
    _rival("error-parity", "error-parity, not private", partial(with_rule, error_parity), False, True),
)  # fmt: skip
"""All rivals; a grid names them like any method."""
