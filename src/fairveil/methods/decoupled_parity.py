"""RandomizedParityPostprocessor: flips that move two groups to one rate, by lots that repeat.

Random flips that move two groups to the midpoint of their rates: Algorithms 1 and 2 of decoupled parity.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fairveil._keys import Key
from fairveil._typing import Float64Array
from fairveil._validation import check_choice, check_positive
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint, DemographicParity, constrain
from fairveil.fairness.diagnostics import FinalCheck
from fairveil.fairness.groups import Population
from fairveil.fairness.histogram import HistogramConstraints
from fairveil.methods.base import PrivateClassifier
from fairveil.methods.dp2dp.gap_bounds import FlipGapBounds
from fairveil.methods.dp2dp.recipe import FittedRule, Postprocessed, PrefittedScores, RuleProblem, RuleSolver
from fairveil.methods.dp2dp.thresholds import WIDTH, ScoreHistogram
from fairveil.methods.dp2dp.wrapping import base_recipe, coverage, keyed_rule, load_decider, wrapped_front
from fairveil.methods.inputs import Front
from fairveil.methods.predictor import Predictor
from fairveil.models.rules import RandomizedThresholds
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import Sum, WeightedDecision
from fairveil.privacy.selection import TunedPlan
from fairveil.privacy.veil import ROUNDING, Batch, Veil
from fairveil.training.recipe import Recipe, Task
from fairveil.training.run import Trained


def fewest_changes(gap: float, tolerance: float = 0.0) -> float:
    """Return the least sum, over both groups, of the shares of decisions that must change (Proposition 1).

    Flips by `flipping_rule` attain it (Theorem 2).

    Examples
    --------
    >>> round(fewest_changes(0.2, tolerance=0.05), 3)
    0.15
    """
    return max(0.0, abs(gap) - tolerance)


def flipping_rule(
    rates: Float64Array, tolerance: float, codes: NDArray[np.int64], n_groups: int, jitter: float = 0.0
) -> RandomizedThresholds:
    """Return the rule that flips just enough decisions of two groups, at random (Algorithm 1; with noisy rates, 2).

    The group with the higher rate a loses part of its class-1 decisions, the other gains some: both end `tolerance`
    apart around the midpoint. Where a rate is 0 or 1 there is nothing to flip that way.

    Parameters
    ----------
    rates : pair of float
        How often the model decides each group for class 1.
    tolerance : float
    codes : pair of int
        The two groups among `n_groups` codes; all others keep the model's decisions.
    jitter : float
        As in `RandomizedThresholds`.

    Examples
    --------
    >>> rule = flipping_rule(np.array([0.5, 0.3]), 0.0, np.array([0, 1]), 3)
    >>> rule.distribution(np.array([[0.0, 0.0], [1.0, -1.0]]), np.array([0, 1]))[:, 1].round(3).tolist()
    [0.8, 0.143]
    """
    high, low = (0, 1) if rates[0] >= rates[1] else (1, 0)
    move = fewest_changes(float(rates[high] - rates[low]), tolerance) / 2
    kept = 1 - move / rates[high] if rates[high] > 0 else 1.0
    raised = move / (1 - rates[low]) if rates[low] < 1 else 0.0
    thresholds = np.tile([-np.inf, 0.0, np.inf], (n_groups, 1))
    weights = np.tile([0.0, 1.0, 0.0], (n_groups, 1))
    weights[codes[high]] = [0.0, kept, 1 - kept]
    weights[codes[low]] = [raised, 1 - raised, 0.0]
    return RandomizedThresholds(thresholds, weights, jitter)


def parity_tolerance(bounds: HistogramConstraints) -> float:
    """Return the tolerance of a demographic parity of two groups, refusing everything else."""
    shape = [sorted(weight for weight, _ in bound.terms) for bound in bounds.bounds]
    names = {rate.name for bound in bounds.bounds for _, rate in bound.terms}
    limits = {bound.limit for bound in bounds.bounds}
    if names != {"selection_rate"} or shape != [[-1.0, 1.0]] * 2 or len(limits) != 1 or bounds.n_cells != 2:
        raise InvalidParameterError(
            "Expected demographic parity of two groups for this rule, got another constraint; use ParityPostprocessor "
            "with its default fitting for more groups and other parities."
        )
    return limits.pop()


@dataclass(frozen=True)
class RateFlips:
    """Random flips from one noisy (group x decision) table.

    Parameters
    ----------
    group_sizes : pair of int, optional
        The public numbers of people in the two groups of the piece that is counted. Given, only the numbers of class-1
        decisions are released, with Laplace noise of scale 1 / epsilon_s for group s (the paper's form); None releases
        the whole table with discrete Laplace noise and takes the sizes from it.
    group_epsilons : pair of float
        How the paper's epsilon_0 and epsilon_1 compare: only their ratio counts. Each record is in one group, so the
        release costs the larger of the two, which the budget settles. For public sizes only.
    """

    smallest_budget_share: ClassVar[float] = 0.05

    group_sizes: tuple[int, int] | None = None
    group_epsilons: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        if self.group_sizes is not None and not (len(self.group_sizes) == 2 and min(self.group_sizes) >= 1):
            raise InvalidParameterError(f"Expected two group sizes of at least 1, got {self.group_sizes!r}.")
        if len(self.group_epsilons) != 2:
            raise InvalidParameterError(
                f"Expected an epsilon for each of two groups, got {self.group_epsilons!r}."
            )
        for epsilon in self.group_epsilons:
            check_positive("each of group_epsilons", epsilon)
        if self.group_sizes is None and self.group_epsilons[0] != self.group_epsilons[1]:
            raise InvalidParameterError(
                "Expected group_epsilons with public group_sizes only; leave them out."
            )

    @property
    def weights(self) -> Float64Array:
        """What a record of each group counts: 1 in the group of the larger epsilon."""
        epsilons = np.array(self.group_epsilons, dtype=float)
        return epsilons / epsilons.max()

    def scales(self, noise_multiplier: float) -> tuple[float, float]:
        """Return the scale of the noise on the counts of each group."""
        if self.group_sizes is None:
            return noise_multiplier, noise_multiplier
        first, second = noise_multiplier * ROUNDING / self.weights
        return float(first), float(second)

    def check(self, task: Task, bounds: HistogramConstraints) -> None:
        """Refuse everything but demographic parity of two groups and two classes."""
        if task.n_classes != 2:
            raise InvalidParameterError(f"Expected two classes to flip between, got {task.n_classes}.")
        if task.predicts == "joint":
            raise InvalidParameterError("Expected a rule that reads the group, got one that does not.")
        parity_tolerance(bounds)

    def stages(self, noise_multiplier: float, share: float, subset: str, task: Task) -> tuple[Stage, ...]:
        """Return the one table."""
        law = "discrete_laplace" if self.group_sizes is None else "laplace"
        return (Stage("rule", (Release("rates", law, noise_multiplier),), share, subset=subset),)

    def fit(self, problem: RuleProblem, veils: Mapping[str, Veil]) -> FittedRule:
        """Return the flips that the noisy rates need."""
        people = problem.task.people
        rates, sizes = self.release_rates(problem, veils["rule"].draw())
        tolerance = parity_tolerance(problem.bounds)
        rule = flipping_rule(rates, tolerance, people.codes, people.n_groups, problem.jitter)
        return FittedRule(rule, sizes=sizes)

    def release_rates(self, problem: RuleProblem, batch: Batch) -> tuple[Float64Array, Float64Array]:
        """Return the two noisy rates, kept within [0, 1], and the sizes they were divided by."""
        order = problem.bounds.cells[problem.task.people.codes, 0]
        if self.group_sizes is None:
            counts = problem.count(batch, problem.plain_rule(), problem.bounds.cells, "rates")[order]
            positives, sizes = counts[:, 1], np.maximum(counts.sum(axis=1), 1.0)
        else:
            positives, sizes = self._weighted(problem, batch)[order], np.array(self.group_sizes, dtype=float)
            positives = positives / self.weights
        return np.clip(positives / sizes, 0.0, 1.0), sizes

    def _weighted(self, problem: RuleProblem, batch: Batch) -> Float64Array:
        """Release the class-1 decisions of each cell, a record weighing what its group does."""
        people, cells = problem.task.people, problem.bounds.cells
        weights = np.zeros(people.n_groups)
        weights[people.codes] = self.weights
        rule, n_cells = problem.plain_rule(), problem.bounds.n_cells
        query = Sum(cells, n_cells, WeightedDecision(problem.model, problem.params, rule, weights))
        return batch.release_sums(query, 1.0, "rates")[:, 0]


@dataclass(frozen=True)
class FlipFitting:
    """How `RandomizedParityPostprocessor` fits its rule.

    Parameters
    ----------
    mode : {"flips", "scores"}
        Flip decisions at random (the paper), or move the people nearest to the boundary and draw lots only in the
        bin of scores that holds it: fewer errors for the same gap.
    decoupled : bool
        One model for each group, as the paper has it, instead of one model that reads the group.
    group_sizes : pair of int, optional
        Public sizes of the two groups among the rows that are counted: the paper's form of the noisy rates.
    group_epsilons : pair of float
        With public sizes, how the paper's epsilon_0 and epsilon_1 compare: only their ratio counts, the larger is what
        the release costs.
    rule_fraction : float, optional
        The share of the units kept apart for the rule; None fits it on the training rows.
    budget_share : float, optional
        The share of the precision that the rule takes on the training rows; None follows from public facts.
    """

    mode: str = "flips"
    decoupled: bool = False
    group_sizes: tuple[int, int] | None = None
    group_epsilons: tuple[float, float] = (1.0, 1.0)
    rule_fraction: float | None = None
    budget_share: float | None = None

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, ("flips", "scores"))
        if self.mode == "scores" and self.group_sizes is not None:
            raise InvalidParameterError("Expected group_sizes with mode='flips' only; leave them out.")

    @property
    def predicts(self) -> str:
        """What the model is of."""
        return "decoupled" if self.decoupled else "label"

    def recipe(
        self, base: Recipe, constraint: Constraint | Sequence[Constraint], people: Population
    ) -> Postprocessed:
        """Return the whole recipe; refuse everything but demographic parity of two groups and classes."""
        if people.n_classes != 2:
            raise InvalidParameterError(
                f"Expected two classes to flip between, got {people.n_classes}; use ParityPostprocessor."
            )
        parity_tolerance(constrain(constraint, people))
        solver: RuleSolver = (
            RateFlips(self.group_sizes, self.group_epsilons)
            if self.mode == "flips"
            else ScoreHistogram(in_bins=True)
        )
        jitter = WIDTH if isinstance(base, PrefittedScores) else 0.0
        return Postprocessed(base, solver, constraint, self.rule_fraction, self.budget_share, jitter=jitter)


class RandomizedParityPostprocessor(PrivateClassifier):
    """Two groups selected alike by random flips: decoupled parity (Ghoukasian and Asoodeh 2024), Algorithms 1 and 2.

    The group with the higher rate loses some of its positive decisions, the other gains some, by lot: both end at the
    midpoint (or `tolerance` apart). It changes as few decisions as any rule can, but not those nearest to the boundary:
    ``fitting=FlipFitting(mode="scores")`` does, and loses less accuracy.

    Parameters
    ----------
    estimator : Descent, OutputPerturbation, or a fitted classifier with predict_proba, optional
        Where decisions come from. A recipe is trained here, in one budget with the rule; None is ``Descent()``. A
        fitted classifier is used as it is: its own training is not covered.
    constraint : DemographicParity, optional
        None is ``DemographicParity(tolerance=0)``.
    epsilon, delta : float
        The privacy budget; ``epsilon=math.inf`` gives the same algorithm without privacy (Algorithm 1).
    fitting : FlipFitting, optional
        Flips or scores, one model or one for each group, public group sizes; None is ``FlipFitting()``.
    schema : Schema
        The public facts: bounds, categories, classes, optionally the size. Needed whenever epsilon is finite.
    sensitive : str
        The sensitive column, of two groups.
    holdout : float
        Share of the units kept apart by secret coins to measure accuracy and gap privately (`evaluation_`).
    ledger : Ledger, optional
        The books of these people; None is the ledger of this process. Clones share it.
    random_state : int, Generator or None
        Public coins (initial weights); at epsilon = infinity it seeds everything. Noise is never seeded.

    Attributes
    ----------
    rule_ : RandomizedThresholds
        The released rule; `predict_proba` is its exact law.
    promise_ : FlipGapBounds or None
        Theorem 3 and Proposition 4 for this rule: `gap_bound`, `expected_gap_bound` and their twins for changes; None
        with ``mode="scores"`` and after a private choice among candidates.
    coverage_ : str
        What the guarantee covers, and what not.
    key_ : Key
        Decides lots: the same key and record give the same answer. Made afresh at each fit, see `use_key`.
    final_check_ : FinalCheck or None
        With ``mode="scores"``, what a last noisy count says of the rule.
    classes_, n_features_in_, feature_names_in_, plan_, epsilon_spent_, evaluation_
        As in `PrivateClassifier`.

    Guarantees
    ----------
    Everything released here is (epsilon, delta)-differentially private: neighbours differ by one record (one person, if
    the schema names an id column) added or removed. Assumes that the schema's facts (and group sizes, if given) are
    public, that nobody reads this process's memory, and of a fitted classifier that it answers every row, each by
    itself. Timing is not covered. The key hides no record; who has it can foresee lots.

    Examples
    --------
    >>> from fairveil import RandomizedParityPostprocessor, load_dataset
    >>> people = load_dataset("adult")
    >>> clf = RandomizedParityPostprocessor(schema=people.schema, sensitive="sex").fit(people.X, people.y)
    >>> bool((clf.predict(people.X) == clf.predict(people.X)).all()), clf.promise_.gap_bound() < 0.1
    (True, True)
    """

    def __init__(
        self,
        estimator: Any = None,
        constraint: DemographicParity | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        fitting: FlipFitting | None = None,
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
    def _fitting(self) -> FlipFitting:
        fitting = FlipFitting() if self.fitting is None else self.fitting
        if not isinstance(fitting, FlipFitting):
            raise InvalidParameterError(
                f"Expected fitting to be a FlipFitting, got {type(fitting).__name__}."
            )
        return fitting

    @property
    def _parity(self) -> DemographicParity:
        constraint = DemographicParity() if self.constraint is None else self.constraint
        if not isinstance(constraint, DemographicParity):
            raise InvalidParameterError(
                f"Expected a DemographicParity, got {type(constraint).__name__}; ParityPostprocessor takes others."
            )
        return constraint

    def _front(self, X: Any, y: Any) -> Front:
        return wrapped_front(super()._front(X, y), self.estimator, self._fitting.predicts)

    def _recipe_for(self, front: Front) -> Postprocessed:
        return self._fitting.recipe(base_recipe(self.estimator), self._parity, front.people)

    def _keep(self, front: Front, trained: Trained) -> None:
        super()._keep(front, trained)
        self.final_check_: FinalCheck | None = trained.fit.check
        self.coverage_ = coverage(front)
        self.promise_ = self._promised(trained)
        self._decider = Predictor(front, trained.model, trained.fit.params, trained.fit.rule)
        self.use_key(Key.fresh())

    def _promised(self, trained: Trained) -> FlipGapBounds | None:
        sizes = trained.fit.sizes
        if sizes is None or not self.plan_.is_private or isinstance(self.plan_, TunedPlan):
            return None
        (release,) = self.plan_.stage("rule").releases
        fitting = self._fitting
        flips = RateFlips(fitting.group_sizes, fitting.group_epsilons)
        return FlipGapBounds(
            (float(sizes[0]), float(sizes[1])),
            flips.scales(release.noise_multiplier),
            float(self._parity.tolerance),
            fitting.group_sizes is not None,
        )

    def use_key(self, key: Key | str | Path | None) -> "RandomizedParityPostprocessor":
        """Decide lots by this key (or the key in this file) from now on, so that answers repeat elsewhere."""
        self._decider = keyed_rule(self._decider, key)
        self.key_ = self._decider.key
        return self

    def predict(self, X: Any, sensitive_features: Any = None, record_ids: Any = None) -> NDArray[Any]:
        """Return the decision for each record; the same record and key give the same answer.

        Parameters
        ----------
        X : DataFrame or array
            With the sensitive column, if it is not given apart.
        sensitive_features : array or DataFrame, optional
            The groups, as in `fit`.
        record_ids : array, optional
            Who each record is. By default the schema's id column, else what the schema reads of the row: people with
            equal rows then share a lot.
        """
        table = self._table(X)
        return self.classes_[self._decider.decide(table, sensitive_features, record_ids)]

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> NDArray[Any]:
        """Return the exact probability of each decision, one row a record."""
        table = self._table(X)
        return self._decider.distribution(table, sensitive_features)

    @classmethod
    def load(cls, folder: str | Path, estimator: Any = None, key: Key | str | Path | None = None) -> Any:
        """Return a fitted rule from its folder; a classifier that was fitted elsewhere must be handed over again."""
        rule = super().load(folder)
        rule.final_check_ = rule.promise_ = None
        rule._decider = load_decider(rule, estimator)
        rule.coverage_ = coverage(rule._decider.front)
        return rule.use_key(key)
