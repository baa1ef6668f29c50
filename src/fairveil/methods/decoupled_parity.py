"""Decoupled parity (Ghoukasian and Asoodeh 2024): random flips that move two groups to one selection rate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float64Array
from fairveil._validation import check_choice, check_number
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint, DemographicParity, constrain
from fairveil.fairness.diagnostics import DecisionChanges, parity_limit
from fairveil.fairness.rates import HistogramConstraints, Population
from fairveil.methods.base import Method
from fairveil.methods.dp2dp import BasePostprocessor, Postprocessed, PrefittedScores
from fairveil.methods.dp2dp.gap_bounds import FlipGapBounds
from fairveil.methods.dp2dp.thresholds import WIDTH, FittedRule, RuleProblem, RuleSolver, ScoreHistogram
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.inputs import InputSpec
from fairveil.methods.output_perturbation import OutputPerturbation
from fairveil.models.rules import RandomizedThresholds
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import Sum, WeightedDecision
from fairveil.privacy.veil import ROUNDING, Batch, Veil
from fairveil.training.recipe import Recipe, Task
from fairveil.training.run import Trained


def fewest_changes(gap: float, tolerance: float = 0.0) -> float:
    """Return the least sum, over both groups, of the shares of decisions that must change (Proposition 1).

    It brings the `gap` down to the `tolerance`; flips by `flipping_rule` attain it (Theorem 2).

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
    limit = parity_limit(bounds)
    if limit is None:
        raise InvalidParameterError(
            "Expected demographic parity of two groups for this rule, got another constraint; use ParityPostprocessor "
            "with its default fitting for more groups and other parities."
        )
    return limit


def flip_shares(rule: RandomizedThresholds, codes: NDArray[np.int64], rates: Float64Array) -> Float64Array:
    """Return the share of decisions that flips change in each group where the model decides for class 1 at these rates.

    Examples
    --------
    >>> rates = np.array([0.5, 0.3])
    >>> rule = flipping_rule(rates, 0.0, np.array([0, 1]), 3)
    >>> flip_shares(rule, np.array([0, 1]), rates).round(3).tolist()
    [0.1, 0.1]
    """
    (raised, kept) = (rule.weights[codes] * (rule.thresholds[codes] < margin) @ np.ones(3) for margin in (-1.0, 1.0))
    return np.asarray(rates * (1 - kept) + (1 - rates) * raised)


@dataclass(frozen=True)
class RateFlips:
    """Random flips from one noisy (group x decision) table.

    Parameters
    ----------
    group_sizes : pair of int, optional
        The public numbers of people in the two groups that are counted. With them, only the numbers of class-1
        decisions are released, with Laplace noise of scale 1 / epsilon_s for group s (the paper's form); None releases
        the whole table with discrete Laplace noise and takes the sizes from it.
    group_epsilons : pair of float
        How the paper's epsilon_0 and epsilon_1 compare: only their ratio counts. Each record is in one group, so the
        release costs the larger of the two, which the budget settles. For public sizes only.
    """

    smallest_budget_share: ClassVar[float] = 0.05
    people_per_group: ClassVar[float] = 0.0

    group_sizes: tuple[int, int] | None = None
    group_epsilons: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        if self.group_sizes is not None and not (len(self.group_sizes) == 2 and min(self.group_sizes) >= 1):
            raise InvalidParameterError(f"Expected two group sizes of at least 1, got {self.group_sizes!r}.")
        if len(self.group_epsilons) != 2:
            raise InvalidParameterError(f"Expected an epsilon for each of two groups, got {self.group_epsilons!r}.")
        for epsilon in self.group_epsilons:
            check_number("each of group_epsilons", epsilon)
        if self.group_sizes is None and self.group_epsilons[0] != self.group_epsilons[1]:
            raise InvalidParameterError("Expected group_epsilons with public group_sizes only; leave them out.")

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
        changes = DecisionChanges.of(flip_shares(rule, people.codes, rates), rates, problem.bounds)
        return FittedRule(rule, sizes=sizes, changes=changes)

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
class FlipTraining:
    """How `RandomizedParityPostprocessor` trains its model and fits its rule.

    Parameters
    ----------
    mode : {"flips", "scores"}
        Flip decisions at random (the paper), or change those nearest to the boundary and randomize only in the bin of
        scores that contains it: fewer errors for the same gap.
    decoupled : bool
        Train one model per group, as in the paper, instead of one model that reads the group.
    group_sizes : pair of int, optional
        Public sizes of the two groups among the rows that are counted: the paper's form of the noisy rates.
    group_epsilons : pair of float
        With public sizes, the ratio of the paper's epsilon_0 and epsilon_1; the release costs the larger one.
    rule_fraction : float, optional
        The share of the units held apart to fit the rule; None fits it on the training rows.
    budget_share : float, optional
        The share of the precision (1 / noise^2) that the rule takes on the training rows; None follows from public
        facts.
    base : Descent or OutputPerturbation
        How the model is trained whose decisions are flipped.
    """

    mode: str = "flips"
    decoupled: bool = False
    group_sizes: tuple[int, int] | None = None
    group_epsilons: tuple[float, float] = (1.0, 1.0)
    rule_fraction: float | None = None
    budget_share: float | None = None
    base: Recipe = field(default_factory=Descent)

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, ("flips", "scores"))
        if self.mode == "scores" and self.group_sizes is not None:
            raise InvalidParameterError("Expected group_sizes with mode='flips' only; leave them out.")

    def recipe(
        self, is_prefitted: bool, constraint: Constraint | Sequence[Constraint], people: Population
    ) -> Postprocessed:
        """Return the whole recipe; refuse everything but demographic parity of two groups and classes."""
        if people.n_classes != 2:
            raise InvalidParameterError(
                f"Expected two classes to flip between, got {people.n_classes}; use ParityPostprocessor."
            )
        parity_tolerance(constrain(constraint, people))
        solver: RuleSolver = (
            RateFlips(self.group_sizes, self.group_epsilons) if self.mode == "flips" else ScoreHistogram(in_bins=True)
        )
        base = PrefittedScores() if is_prefitted else self.base
        jitter = WIDTH if is_prefitted else 0.0
        return Postprocessed(base, solver, constraint, self.rule_fraction, self.budget_share, jitter=jitter)


class RandomizedParityPostprocessor(BasePostprocessor):
    """Equalizes the selection rates of two groups by random flips: decoupled parity (Ghoukasian and Asoodeh 2024).

    The group with the higher rate loses some of its positive decisions, the other gains some, at random: both end at
    the midpoint (or `tolerance` apart). It changes as few decisions as any rule can, but not those nearest to the
    boundary: ``training=FlipTraining(mode="scores")`` does, and loses less accuracy.

    Parameters
    ----------
    constraint : DemographicParity, optional
        Defaults to ``DemographicParity(tolerance=0)``.
    {epsilon, delta}
    training : FlipTraining, Descent or OutputPerturbation, optional
        How to train the model and fit the rule; None is ``FlipTraining()``. A Descent or OutputPerturbation trains the
        model, in one budget with the rule.
    {schema}
    sensitive : str
        The sensitive column, of two groups.
    {holdout}
    {ledger}
    {random_state}
    {estimator}
    {auc}

    Attributes
    ----------
    rule_ : RandomizedThresholds
        The released rule; `predict_proba` is its exact distribution.
    gap_bounds_ : FlipGapBounds or None
        Theorem 3 and Proposition 4 for this rule: `gap_bound`, `expected_gap_bound` and their twins for changes; None
        with ``mode="scores"`` and after a private choice among candidates.
    changes_ : DecisionChanges or None
        The expected share of the model's decisions that the rule changes in each group, estimated from the noisy rates.
    coverage_ : str
        What the guarantee covers, and what it does not.
    key_ : Key
        Randomizes decisions: the same key and record always give the same decision. Made afresh at each fit, see
        `use_key`.
    final_check_ : FinalCheck or None
        With ``mode="scores"``, what a last noisy count says about the rule.
    classes_, n_features_in_, feature_names_in_, plan_, epsilon_spent_, evaluation_
        As in `PrivateClassifier`.

    Notes
    -----
    Everything released here is (epsilon, delta)-differentially private: {guarantee} It also
    assumes that group sizes, if passed, are public, and of a fitted classifier that it answers every row, each by
    itself. The key hides no record; whoever has it can predict every decision.

    Examples
    --------
    >>> from fairveil import RandomizedParityPostprocessor, load_dataset
    >>> people = load_dataset("adult")
    >>> clf = RandomizedParityPostprocessor(schema=people.schema, sensitive="sex").fit(people.X, people.y)
    >>> bool((clf.predict(people.X) == clf.predict(people.X)).all()), clf.gap_bounds_.gap_bound() < 0.1
    (True, True)
    """

    is_randomized = True
    not_saved = ("gap_bounds_",)

    def _input_spec(self, arrays: tuple[Any, Any] | None = None) -> InputSpec:
        rule_on = "decoupled" if self._settings(FlipTraining).decoupled else "label"
        facts = (self.schema, self.sensitive, self.epsilon, self.delta)
        return InputSpec.of(*facts, arrays=arrays, rule_on=rule_on, estimator=self.estimator)

    def _parity(self) -> DemographicParity:
        several = self.constraint if isinstance(self.constraint, Sequence) else (self.constraint,)
        parity = DemographicParity() if self.constraint is None else several[0]
        if len(several) != 1 or not isinstance(parity, DemographicParity):
            raise InvalidParameterError(
                "Expected demographic_parity alone for random flips, got another bound; ParityPostprocessor "
                "(--method dp2dp) takes others."
            )
        return parity

    def _recipe(self, inputs: InputSpec) -> Postprocessed:
        settings = self._settings(FlipTraining)
        return settings.recipe(inputs.prefitted is not None, self._parity(), inputs.people)

    def _store(self, inputs: InputSpec, trained: Trained) -> None:
        super()._store(inputs, trained)
        self.gap_bounds_: FlipGapBounds | None = None
        sizes, plan, settings = trained.fit.sizes, self.plan_, self._settings(FlipTraining)
        if sizes is not None and plan.is_private and isinstance(plan, Plan):
            (release,) = plan.stage("rule").releases
            flips = RateFlips(settings.group_sizes, settings.group_epsilons)
            self.gap_bounds_ = FlipGapBounds(
                (float(sizes[0]), float(sizes[1])),
                flips.scales(release.noise_multiplier),
                float(self._parity().tolerance),
                settings.group_sizes is not None,
            )

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> NDArray[Any]:
        """Return the exact probability of each decision, shape (n_records, n_classes).

        `X` and `sensitive_features` are as in `predict`.
        """
        source = self._source(X, sensitive_features)
        return self._predictor.distribution(source.X, source.sensitive_features)


def _check(request: Any) -> None:
    if not request.aware:
        raise InvalidParameterError(
            'Expected aware=True (--aware) with "parity", because its flips read the group, got False; use "dp2dp".'
        )


DECOUPLED_PARITY = Method(
    name="parity",
    title="selection rates equalized by random flips",
    paper="Ghoukasian and Asoodeh 2024",
    help="random flips, demographic parity of two groups",
    estimator=RandomizedParityPostprocessor,
    recipe=FlipTraining,
    also_trains_by=(Descent, OutputPerturbation),
    reads_group=True,
    postprocesses=True,
    color=2,
    check=_check,
)
