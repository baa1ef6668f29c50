"""DP2DP (Say, Denis and Pinot 2025), generalized: private decision rules that keep bounds, on top of scores.

What can be said of the gap: beforehand, from public sizes and the plan; afterwards, from noisy sizes; the papers'.

Let N_s be the people of group s that a rule is fitted to. The rate of new people differs from theirs because they are a
sample, and the rule saw their rate through noise. Nothing here depends on exact sizes of groups that are not public.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import erfc

from fairveil._typing import Float64Array
from fairveil._validation import check_number
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Cap, Constraint, DemographicParity, Parity
from fairveil.fairness.diagnostics import ConstraintTrace
from fairveil.fairness.rates import Population
from fairveil.fairness.rule_parser import Rule
from fairveil.methods.base import ConstrainedClassifier, Method, training_of
from fairveil.methods.dp2dp.dual_steps import DualSteps
from fairveil.methods.dp2dp.recipe import Postprocessed, PrefittedScores, RuleSolver
from fairveil.methods.dp2dp.thresholds import WIDTH, ScoreHistogram
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.inputs import InputSpec
from fairveil.methods.output_perturbation import OutputPerturbation
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Stage
from fairveil.training.recipe import Recipe
from fairveil.training.run import Trained, make_plan


def dkw_mean(size: float) -> float:
    """Return a bound on the expected largest error of an empirical distribution function, over all thresholds.

    From the inequality of Dvoretzky, Kiefer and Wolfowitz with Massart's constant, P(error > e) <= 2 exp(-2 n e^2),
    integrated over e: 0.888 / sqrt(n).

    Examples
    --------
    >>> round(dkw_mean(10_000), 5)
    0.00888
    """
    half = math.sqrt(math.log(2))
    return (half / math.sqrt(2) + math.sqrt(math.pi / 2) * float(erfc(half))) / math.sqrt(size)


def rule_noise(plan: Plan) -> float:
    """Return the standard deviation of the noise in the counts that settled a rule, from the plan alone."""
    stage = plan.stage("rule")
    if any(other.name == "groups" for other in plan.stages):
        raise InvalidParameterError(
            "Expected a rule that settles, got DP2DP's own descent, whose last iterate has not; nothing is "
            "promised of it."
        )
    last = {release.name: release for release in stage.releases if release.name != "released"}
    release = list(last.values())[-1]
    spread = math.sqrt(2) if release.law in {"laplace", "discrete_laplace"} else 1.0
    return spread * release.noise_multiplier / (_rate(stage) * math.sqrt(stage.n_steps))


def _rate(stage: Stage) -> float:
    return max(stage.sampling_rates.values())


@dataclass(frozen=True)
class ExpectedGap:
    """What to expect of the gap between two groups beyond the tolerance, before anything is fitted.

    Attributes
    ----------
    expected : float
        The typical gap, sqrt(2/pi (sum_s r (1 - r) / N_s + noise variance)): what users will see.
    bound : float or None
        A bound on the expected gap for two classes: the largest error over all thresholds (`dkw_mean`) and the noise.
        None for more classes, and for a rule found step by step.
    """

    expected: float
    bound: float | None

    @classmethod
    def of_plan(
        cls, plan: Plan, sizes: Float64Array, rates: Sequence[float] | float, people: Population
    ) -> "ExpectedGap":
        """Return the promise for the worst pair of groups of these sizes, all of them fitted and held to the rates."""
        if len(sizes) != len(people.codes) or np.min(sizes) < 1:
            raise InvalidParameterError(
                f"Expected the size of each of {len(people.codes)} groups, at least 1, got {list(sizes)}."
            )
        share = plan.stage("rule").share
        counted = np.maximum(np.asarray(sizes) * share, 1.0)
        r = np.broadcast_to(np.asarray(rates, dtype=float), counted.shape)
        noise = rule_noise(plan) if plan.is_private else 0.0
        people_variance = r * (1 - r) / counted
        noise_variance = noise**2 * (r**2 + (1 - r) ** 2) / counted**2
        single = np.array([dkw_mean(size) for size in counted]) + noise * math.sqrt(2 / math.pi) / counted
        variances = np.sort(people_variance + noise_variance)[-2:]
        is_settled = people.n_classes == 2 and plan.stage("rule").n_steps == 1
        bound = float(np.sort(single)[-2:].sum()) if is_settled else None
        return cls(math.sqrt(2 / math.pi * variances.sum()), bound)


@dataclass(frozen=True)
class FlipGapBounds:
    """Theorem 3 and Proposition 4 of decoupled parity for a fitted flipping rule, put right.

    With public sizes they are as printed (but for the theta-bar that Proposition 4 lacks). From the noisy 2 x 2 table,
    sizes are bounded from below by the noisy ones: with L the noise, a rate is off by ((1 - r) L1 - r L0) / noisy size.
    Both need rows that the model was not trained on (`part=`, or a classifier fitted elsewhere): on its own training
    rows a model may have another rate than among new people, by memory. What is said of noise holds in any case.

    Attributes
    ----------
    sizes : pair of float
        Public sizes, or the noisy ones.
    scales : pair of float
        Of the Laplace noise on the counts of each group.
    tolerance : float
    are_public : bool
        Whether the sizes are.
    """

    sizes: tuple[float, float]
    scales: tuple[float, float]
    tolerance: float = 0.0
    are_public: bool = False

    def gap_bound(self, confidence: float = 0.95) -> float:
        """Return a bound on the gap of the rule among new people, with this confidence (Theorem 3)."""
        failure = 1 - check_number("confidence", confidence, below=1)
        return min(1.0, self.tolerance + self._errors(failure))

    def changes_bound(self, confidence: float = 0.95) -> float:
        """Return by how much, at most, the rule changes more decisions than the best rule of its gap (Theorem 3)."""
        return 2.5 * self._errors(1 - check_number("confidence", confidence, below=1))

    def expected_gap_bound(self) -> float:
        """Return a bound on the expected gap (Proposition 4)."""
        return min(1.0, self.tolerance + self._expected_errors())

    def expected_changes_bound(self) -> float:
        """Return a bound on the expected number of further changes, as a share (Proposition 4)."""
        return 2.5 * self._expected_errors()

    def _errors(self, failure: float) -> float:
        if self.are_public:
            # two noises and two samples, failure / 4 each
            reaches = [scale * math.log(4 / failure) for scale in self.scales]
            return sum(reach / n + _hoeffding(n, failure / 4) for n, reach in self._groups(reaches))
        reaches = [_reach(scale, failure / 2) for scale in self.scales]
        return sum(min(1.0, reach / n) + _hoeffding(n - 2 * reach, failure / 4) for n, reach in self._groups(reaches))

    def _groups(self, values: Sequence[float]) -> Iterator[tuple[float, float]]:
        return zip(self.sizes, values, strict=True)

    def _expected_errors(self, failure: float = 1e-3) -> float:
        if self.are_public:
            return sum(scale / n + math.sqrt(1 / (4 * n)) for n, scale in self._groups(self.scales))
        total = 2 * failure
        for size, scale in self._groups(self.scales):
            reach = _reach(scale, failure)
            least = size - 2 * reach
            if least <= 2 * reach:
                return 1.0
            total += scale / (least - 2 * reach) + math.sqrt(1 / (4 * least))
        return total


def _reach(scale: float, failure: float) -> float:
    """Return what none of the four noises of the table exceeds, but with this probability.

    A discrete Laplace noise exceeds t with probability at most 2 q^t / (1 + q), q = exp(-1 / scale).
    """
    decay = 1 / scale
    return math.log(4 * 2 / ((1 + math.exp(-decay)) * failure)) / decay


def _hoeffding(size: float, failure: float) -> float:
    """Return how far the mean of so many numbers in [0, 1] may be off, on either side."""
    return min(1.0, math.sqrt(math.log(2 / failure) / (2 * size))) if size > 0 else 1.0


CLASS_JITTER = 0.02
"""Width of the uniform number that breaks ties between more than two classes, in units of probability."""


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
        for more. None is 0 for a model trained here, one bin for a classifier that was fitted elsewhere.
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
            width = WIDTH if isinstance(solver, ScoreHistogram) else CLASS_JITTER
            jitter = width if is_prefitted else 0.0
        return Postprocessed(base, solver, constraint, self.rule_fraction, self.budget_share, self.headroom, jitter)


class BasePostprocessor(ConstrainedClassifier):
    """Base of classifiers that fit a rule to scores: of a model trained here, or of a classifier fitted elsewhere."""

    postprocesses = True

    def __init__(
        self,
        constraint: Any = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        training: Any = None,
        schema: Schema | None = None,
        sensitive: str | Sequence[str] | None = None,
        holdout: float = 0.0,
        ledger: Ledger | None = None,
        random_state: Any = None,
        estimator: Any = None,
    ) -> None:
        super().__init__(constraint, epsilon, delta, training, schema, sensitive, holdout, ledger, random_state)
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
        """What the guarantee covers and what it does not, in two sentences."""
        inputs = self.inputs_
        if inputs.prefitted is None:
            return (
                f"Covered: training and rule, for one {inputs.task.unit} of the rows passed to fit. Not covered: "
                "timing."
            )
        return (
            f"Covered: the rule, for one {inputs.task.unit} of the rows passed to fit. Not covered: how the "
            f"{type(inputs.prefitted.classifier).__name__} was trained, an error it raises on a value, and timing."
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

    Attributes
    ----------
    rule_ : DecisionRule
        The released rule. Records of no known group are decided by the model's own probabilities.
    final_check_ : FinalCheck or None
        What a last noisy count says about the rule on the rows it was fitted on. If a bound is clearly broken, fit
        warns with `ToleranceNotMetWarning`.
    constraint_trace_ : ConstraintTrace or None
        Every bound over the steps, if the rule was found step by step.
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
        if inputs.prefitted is not None and inputs.task.is_private and settings.jitter == 0:
            raise InvalidParameterError(
                "Expected a jitter for a classifier fitted elsewhere, got 0: its scores are known to the last bit, and "
                "one more row could move others across an edge; leave it open, or pass a width."
            )
        constraint = DemographicParity() if self.constraint is None else self.constraint
        return settings.recipe(inputs.prefitted is not None, constraint, inputs.people)

    def _store(self, inputs: InputSpec, trained: Trained) -> None:
        super()._store(inputs, trained)
        self.constraint_trace_: ConstraintTrace | None = trained.fit.trace

    def expected_gap(self, group_sizes: Sequence[float], rates: Sequence[float] | float = 0.5) -> ExpectedGap:
        """Return what can be said in advance about the gap of a rule fitted to groups of these (public) sizes."""
        inputs = self._input_spec()
        plan = make_plan(self._recipe(inputs), inputs.task, self.holdout)
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
