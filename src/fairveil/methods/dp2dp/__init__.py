"""DP2DP (Say, Denis and Pinot 2025), generalized: private decision rules that keep bounds, on top of scores.

The recipe trains a base model and fits a rule to its scores, with one plan, one budget and one debit.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fairveil.data.coded import SCHEMA_ONLY, Detail
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Cap, Constraint, DemographicParity, Parity, constrain
from fairveil.fairness.diagnostics import ConstraintTrace, FinalCheck
from fairveil.fairness.rates import Population, minimum_size
from fairveil.fairness.rule_parser import Rule
from fairveil.methods.base import ConstrainedClassifier, Method, training_of
from fairveil.methods.dp2dp.dual_steps import DualSteps
from fairveil.methods.dp2dp.gap_bounds import ExpectedGap
from fairveil.methods.dp2dp.thresholds import WIDTH, RuleProblem, RuleSolver, ScoreHistogram
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.inputs import InputSpec, SchemaOrPath
from fairveil.methods.output_perturbation import OutputPerturbation
from fairveil.models.base import Model, PrefittedProbabilities
from fairveil.privacy.ledger import LedgerOrPath
from fairveil.privacy.plan import Stage
from fairveil.privacy.veil import Veil
from fairveil.training.recipe import DetailedRecipe, Fit, Progress, Recipe, Task, no_progress
from fairveil.training.run import Trained, make_plan

CLASS_JITTER = 0.02
"""Width of the uniform number that breaks ties between more than two classes, in units of probability."""

LEAST_JITTER = 0.1
"""The least width for scores of a classifier fitted elsewhere, over the usual one. A change in the last bit of a score
then moves it across an edge with a probability below 1e-4; a width near the rounding itself would protect nobody."""

TYPICAL_SHARE, LARGEST_SHARE = 0.1, 0.15
ENOUGH_SIGNAL = 2000.0
"""The share of the precision that a rule takes where it is fitted on the rows that the model was trained on. A model
that noise keeps from converging needs more of it: the share grows with epsilon x size / sqrt(parameters) up to the
largest one, which it reaches at this signal."""


@dataclass(frozen=True)
class PrefittedScores:
    """No training: rows are the probabilities of a classifier that was fitted elsewhere."""

    def model_for(self, task: Task) -> Any:
        """Return the model that hands probabilities through."""
        return PrefittedProbabilities(task.n_classes)

    def check(self, task: Task) -> None:
        """Refuse joint and decoupled models: what the classifier gives is what there is."""
        if task.predicts != "label":
            raise InvalidParameterError(
                "Expected a classifier of the label that reads its own columns, got one to be wrapped into a joint or "
                "decoupled model; leave the estimator out to train one."
            )

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return nothing: no row is used for training."""
        return ()

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress = no_progress,
    ) -> Fit:
        """Return no parameters."""
        return Fit(np.empty(0, dtype=np.float32))


@dataclass(frozen=True)
class Postprocessed:
    """Train a base model, then fit a rule to its scores under constraints.

    Parameters
    ----------
    base : Descent, OutputPerturbation or PrefittedScores
    solver : ScoreHistogram, DualSteps, NoisyDescent or RateFlips
    constraint : constraint or sequence of constraints
    rule_fraction : float, optional
        The share of the units kept apart for the rule; its noise then has the whole budget. None fits the rule on the
        training rows, with a share of it.
    budget_share : float, optional
        The share of the precision (of 1 / noise^2) that the rule takes on the training rows. None follows from public
        facts: 0.05 to 0.15.
    headroom, jitter : float
        As in a `RuleProblem`.
    """

    base: Recipe
    solver: RuleSolver
    constraint: Constraint | Sequence[Constraint] = ()
    rule_fraction: float | None = None
    budget_share: float | None = None
    headroom: float = 1.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if self.rule_fraction is not None and not 0 < self.rule_fraction < 1:
            raise InvalidParameterError(f"Expected 0 < rule_fraction < 1, got {self.rule_fraction!r}.")
        if self.budget_share is not None and not 0 < self.budget_share < 1:
            raise InvalidParameterError(f"Expected 0 < budget_share < 1, got {self.budget_share!r}.")
        for name in ("headroom", "jitter"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidParameterError(f"Expected {name} >= 0 and finite, got {getattr(self, name)!r}.")

    def model_for(self, task: Task) -> Model:
        """Return the model whose scores are used."""
        return self.base.model_for(task)

    def detail_for(self, task: Task) -> Detail:
        """Return what the base needs."""
        return self.base.detail_for(task) if isinstance(self.base, DetailedRecipe) else SCHEMA_ONLY

    def check(self, task: Task) -> None:
        """Refuse what base and solver cannot do, and rates whose denominator depends on the decisions."""
        self.base.check(task)
        if self.rule_fraction is not None and isinstance(self.base, PrefittedScores):
            raise InvalidParameterError(
                "Expected no part of the rows for a rule on a classifier fitted elsewhere, got one; leave it out: all "
                "rows are the rule's."
            )
        bounds = constrain(self.constraint, task.people)
        self.solver.check(task, bounds)
        below = bounds.below.reshape(len(bounds.below), -1, bounds.n_classes)
        if (below != below[:, :, :1]).any():  # no tilt or threshold is optimal for those
            raise InvalidParameterError(
                "Expected rates of people who do not depend on the decisions, got precision; bound it with "
                "RateConstrainedClassifier."
            )

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return the stages of base and rule, on one subset of the units or on two."""
        if isinstance(self.base, PrefittedScores):
            return self.solver.stages(noise_multiplier, share, "train", task)
        if self.rule_fraction is not None:
            base = self.base.stages(noise_multiplier, share * (1 - self.rule_fraction), task)
            return base + self.solver.stages(noise_multiplier, share * self.rule_fraction, "rule", task)
        part = self.budget_share_for(task)
        base = self.base.stages(noise_multiplier, share, task)
        noise = math.sqrt((1 - part) / (part * sum(stage.precision for stage in base))) if noise_multiplier else 0.0
        return base + self.solver.stages(noise, share, base[0].subset, task)

    def budget_share_for(self, task: Task) -> float:
        """Return the share of the precision that the rule takes on the training rows."""
        if self.budget_share is not None:
            return self.budget_share
        if task.n_public is None or not task.is_private:
            return TYPICAL_SHARE
        signal = task.epsilon * task.n_public / math.sqrt(self.model_for(task.coarse).n_params)
        few = (self.solver.people_per_group * len(task.people.codes) / (task.epsilon * task.n_public)) ** 2
        least = self.solver.smallest_budget_share
        return min(LARGEST_SHARE, max(least, few, LARGEST_SHARE * signal / ENOUGH_SIGNAL))

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress = no_progress,
    ) -> Fit:
        """Return the base's parameters, the rule, and what is known of its bounds.

        Guarantees
        ----------
        Everything here is computed from noisy sums: the guarantee is that of the veils' plan.
        """
        trained = self.base.train(veils, task, size, rng, progress)
        counted = size if self.rule_fraction is None else size * (self.rule_fraction / (1 - self.rule_fraction))
        bounds = constrain(self.constraint, task.people)
        problem = RuleProblem(self.model_for(task), trained.params, task, bounds, counted, self.headroom, self.jitter)
        fitted, check = self.solver.fit(problem, veils), None
        if fitted.counts is not None:
            check = FinalCheck.of_counts(bounds, fitted.counts, fitted.noise**2, minimum_size(counted))
        return Fit(trained.params, fitted.trace, check, fitted.rule, fitted.sizes, fitted.changes)


@dataclass(frozen=True)
class ParityTraining:
    """How `ParityPostprocessor` trains its model and fits its rule.

    Parameters
    ----------
    aware : bool
        Whether the rule reads the group. If not, the model predicts (group, label) pairs, and the sensitive columns
        are not among its inputs.
    solver : ScoreHistogram, DualSteps or NoisyDescent, optional
        None is ``ScoreHistogram()`` for two classes and a rule that reads the group, ``DualSteps()`` otherwise.
    rule_fraction : float, optional
        The share of the units held apart to fit the rule; None fits it on the training rows.
    budget_share : float, optional
        The share of the precision (1 / noise^2) that the rule takes on the training rows; None follows from public
        facts.
    headroom : float
        How many standard errors of the sample to stay below each limit (at most headroom / 2 of it).
    jitter : float, optional
        Width of the uniform number that breaks ties between equal scores: in logits for two classes, in probability
        for more. None is 0 for a model trained here, one bin for a classifier that was fitted elsewhere, whose scores
        need a tenth of that at least.
    decoupled : bool
        Train one model per group.
    base : Descent or OutputPerturbation
        How the model is trained whose scores the rule uses.
    """

    aware: bool = True
    solver: RuleSolver | None = None
    rule_fraction: float | None = None
    budget_share: float | None = None
    headroom: float = 1.0
    jitter: float | None = None
    decoupled: bool = False
    base: Recipe = field(default_factory=Descent)

    def __post_init__(self) -> None:
        if self.decoupled and not self.aware:
            raise InvalidParameterError("Expected aware=True for one model per group, got aware=False; choose one.")

    def recipe(
        self, is_prefitted: bool, constraint: Constraint | Sequence[Constraint], people: Population
    ) -> Postprocessed:
        """Return the whole recipe: the model, or the scores of a fitted classifier, and the rule."""
        base = PrefittedScores() if is_prefitted else self.base
        solver = self.solver
        if solver is None:
            has_thresholds = self.aware and people.n_classes == 2 and people.attributes
            solver = ScoreHistogram() if has_thresholds else DualSteps()
        jitter = self.jitter
        if jitter is None:
            jitter = usual_jitter(solver) if is_prefitted else 0.0
        return Postprocessed(base, solver, constraint, self.rule_fraction, self.budget_share, self.headroom, jitter)


def usual_jitter(solver: RuleSolver) -> float:
    """Return the width of the number that is added to scores of a classifier fitted elsewhere."""
    return WIDTH if isinstance(solver, ScoreHistogram) else CLASS_JITTER


class BasePostprocessor(ConstrainedClassifier):
    """Base of classifiers that fit a rule to scores: of a model trained here, or of a classifier fitted elsewhere."""

    postprocesses = True

    def __init__(
        self,
        constraint: Any = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        training: Any = None,
        schema: SchemaOrPath | None = None,
        sensitive: str | Sequence[str] | None = None,
        holdout: float = 0.0,
        ledger: LedgerOrPath | None = None,
        random_state: Any = None,
        estimator: Any = None,
        auc: bool = False,
    ) -> None:
        super().__init__(constraint, epsilon, delta, training, schema, sensitive, holdout, ledger, random_state, auc)
        self.estimator = estimator

    def _settings(self, kind: type) -> Any:
        """Return the recipe in `training=` as one of this kind; a plain way to train becomes its base."""
        training = training_of(self, kind, Descent, OutputPerturbation)
        settings: Any = training if isinstance(training, kind) else kind(base=training)
        if self.estimator is not None and settings.base != kind().base:
            raise InvalidParameterError(
                "Expected a recipe to train by or a fitted classifier to post-process, got both; leave out training= "
                "or estimator=."
            )
        return settings

    @property
    def coverage_(self) -> str:
        """What the guarantee covers, what it does not, and what it assumes of a classifier fitted elsewhere."""
        inputs = self.inputs_
        if inputs.prefitted is None:
            return (
                f"Covered: training and rule, for one {inputs.task.unit} of the rows passed to fit. Not covered: "
                "timing."
            )
        name = inputs.prefitted.name
        return (
            f"Covered: the rule, for one {inputs.task.unit} of the rows passed to fit. Not covered: how the {name} was "
            f"trained, an error it raises on a value, and timing. Assumed: the {name} answers each row by itself, as "
            "it did on rows made from the schema; on real rows this cannot be checked."
        )


class ParityPostprocessor(BasePostprocessor):
    """A private decision rule under parity, fitted to a model's scores: DP2DP (Say, Denis and Pinot 2025), generalized.

    The rule is argmax_k p_k(x) - sum_q tilt[q, k] P(q|x): thresholds that differ by group for two classes and a rule
    that reads the group, tilted probabilities otherwise. Demographic parity, equalized odds, equal opportunity and all
    other bounds on rates of people who do not depend on the decisions; any number of groups and classes.

    Parameters
    ----------
    constraint : constraint or list of constraints, optional
        Fairness constraint(s). Defaults to ``DemographicParity(tolerance=0)``.
    {epsilon, delta}
    training : ParityTraining, Descent or OutputPerturbation, optional
        How to train the model and fit the rule; None is ``ParityTraining()``. A Descent or OutputPerturbation trains
        the model, in one budget with the rule.
    {schema}
    {sensitive}
    {holdout}
    {ledger}
    {random_state}
    {estimator}
    {auc}

    Attributes
    ----------
    rule_ : DecisionRule
        The released rule. Records of no known group are decided by the model's own probabilities.
    final_check_ : FinalCheck or None
        What a last noisy count says about the rule on the rows it was fitted on. If a bound is clearly broken, fit
        warns with `ToleranceNotMetWarning`.
    constraint_trace_ : ConstraintTrace or None
        Every bound over the steps, if the rule was found step by step.
    changes_ : DecisionChanges or None
        The expected share of the model's decisions that thresholds change in each group, estimated from the noisy
        histogram of scores; None for other rules.
    coverage_ : str
        What the guarantee covers, and what it does not.
    key_ : Key or None
        Breaks ties if the rule needs it; made afresh at each fit, see `use_key`.
    classes_, n_features_in_, feature_names_in_, plan_, epsilon_spent_, evaluation_
        As in `PrivateClassifier`.

    Notes
    -----
    Everything released here (the rule, and the model if it was trained here) is (epsilon, delta)-differentially
    private: {guarantee} Of a fitted
    classifier it assumes that it answers every row, each by itself. That the bounds hold for new people is aimed at
    and measured, not guaranteed.

    Examples
    --------
    >>> from fairveil import DemographicParity, ParityPostprocessor, load_dataset
    >>> people = load_dataset("adult")
    >>> clf = ParityPostprocessor(DemographicParity(0.01), schema=people.schema, sensitive="sex")
    >>> clf.fit(people.X, people.y).rule_.thresholds.shape
    (3, 1)
    """

    not_saved = ("constraint_trace_",)

    def _input_spec(self, arrays: tuple[Any, Any] | None = None) -> InputSpec:
        settings = self._settings(ParityTraining)
        rule_on = "joint" if not settings.aware else "decoupled" if settings.decoupled else "label"
        facts = (self.schema, self.sensitive, self.epsilon, self.delta)
        return InputSpec.of(*facts, arrays=arrays, rule_on=rule_on, estimator=self.estimator)

    def _recipe(self, inputs: InputSpec) -> Postprocessed:
        settings = self._settings(ParityTraining)
        constraint = DemographicParity() if self.constraint is None else self.constraint
        recipe = settings.recipe(inputs.prefitted is not None, constraint, inputs.people)
        if inputs.prefitted is None or not inputs.task.is_private:
            return recipe
        least = LEAST_JITTER * usual_jitter(recipe.solver)
        if recipe.jitter < least:
            raise InvalidParameterError(
                f"Expected a jitter of at least {least:g} for a classifier fitted elsewhere, got {recipe.jitter:g}: "
                "its scores are known to the last bit, and one more row could move others across an edge; leave it out."
            )
        return recipe

    def _store(self, inputs: InputSpec, trained: Trained) -> None:
        super()._store(inputs, trained)
        self.constraint_trace_: ConstraintTrace | None = trained.fit.trace

    def expected_gap(self, group_sizes: Sequence[float], rates: Sequence[float] | float = 0.5) -> ExpectedGap:
        """Return what can be said in advance about the gap of a rule, from public `group_sizes` and likely `rates`."""
        inputs = self.planned_inputs()
        plan = make_plan(self._recipe(inputs), inputs.task, self.holdout, self.auc)
        return ExpectedGap.of_plan(plan, np.asarray(group_sizes, dtype=float), rates, inputs.people)


def _suits(request: Any) -> bool:
    """Return whether a rule on top of scores can reach what is requested.

    Demographic parity always; everything but precision if decisions may read the group; a constraint of the user's own
    making too, since training under bounds takes everything.
    """
    if request.estimator is not None or request.protects != "record":
        return request.protects == "record"
    for constraint in request.constraints:
        if isinstance(constraint, Rule):
            rates = {rate.name for _, rate in constraint.bound.terms}
        elif isinstance(constraint, Parity):
            rates = set(constraint.rates)
        elif isinstance(constraint, Cap):
            rates = {constraint.rate}
        else:
            rates = {"selection_rate"} if request.aware else {"unknown"}
        if "precision" in rates or not (request.aware or rates == {"selection_rate"}):
            return False
    return True


def _for_request(training: Any, request: Any) -> Any:
    """Return the recipe for the requested awareness, with the headroom that a certificate needs."""
    settings = training if isinstance(training, ParityTraining) else ParityTraining(base=training)
    return replace(settings, aware=request.aware, headroom=request.headroom)


DP2DP = Method(
    name="dp2dp",
    title="a fair rule on top of scores",
    paper="Say, Denis and Pinot 2025",
    help="a fair rule on top of scores",
    estimator=ParityPostprocessor,
    recipe=ParityTraining,
    also_trains_by=(Descent, OutputPerturbation),
    reads_group=True,
    postprocesses=True,
    share_of_headroom=1.0,
    color=0,
    suits=_suits,
    prepare=_for_request,
)
