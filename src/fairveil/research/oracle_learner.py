"""DP-oracle-learner (Jagielski et al. 2019): a private learner against a private auditor, and a mixture of rounds.

The reduction of Agarwal et al. (2018): an auditor raises the multipliers of the parities that the last classifier
broke, by exponentiated gradient within an L1 ball, and a learner answers with the best classifier for the loss plus
the price of these parities. The uniform mixture of the learner's answers is released. Features and labels are public,
the sensitive attribute alone is secret, and decisions never read it.

The paper's auditor adds Laplace noise to the violations; its learner draws from all labelings of the rows by the
exponential mechanism, and their number grows exponentially with the dimension. Here the auditor releases noisy counts
of everyone's decisions, and the learner makes private steps on a smooth price: the public gradient of the loss plus a
noisy sum of the clipped gradients of each record's price. A round starts where the last one ended. The mixture has the
last half of the rounds, because the first ones start from nothing. The price of all rounds is that of the exact
accountant, in the place of advanced composition.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fairveil._typing import Float32Array, Float64Array
from fairveil._validation import check_number
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint, EqualizedOdds, constrain
from fairveil.fairness.rates import HistogramConstraints, minimum_size
from fairveil.methods.base import ConstrainedClassifier, training_of
from fairveil.methods.dp_sgd import Descent
from fairveil.methods.inputs import InputSpec
from fairveil.models import Adam, LinearSoftmax, OptimizerState
from fairveil.models.base import MODEL_KINDS, Known, Model, ignore_float_warnings
from fairveil.models.losses import logits_pull
from fairveil.models.row_stable import row_stable_answer, row_stable_logits
from fairveil.models.rules import RandomizedByKey
from fairveil.privacy.attribute import PublicRows
from fairveil.privacy.plan import Release, Stage
from fairveil.privacy.queries import Count, Decision, DecisionPrice
from fairveil.privacy.veil import Veil
from fairveil.training.features import check_plain_features
from fairveil.training.recipe import Fit, Progress, Task, no_progress

AUDIT_SHARE = 0.3
"""Of the precision (1 / noise^2), what the auditor's counts take of that of the learner's steps."""

BATCH, RATE, SHARPNESS = 2048, 0.02, 3.0
"""Public rows of a step, Adam's learning rate, and how sharp the soft decisions are that the price is of."""

SMALLEST_SHARE = 1e-6
"""A decision that no classifier of the mixture makes is taken to have this chance, so that its logarithm is finite."""


@dataclass(frozen=True)
class MixtureModel:
    """A uniform mixture of linear classifiers: its logits are the logarithms of the shares that decide for each class.

    Parameters
    ----------
    base : LinearSoftmax
    n_models : int
        How many there are; the flat parameter vector holds them one after the other.
    """

    base: LinearSoftmax
    n_models: int

    def __post_init__(self) -> None:
        check_number("n_models", self.n_models, whole=True)

    @property
    def n_features(self) -> int:
        """Columns of a row."""
        return self.base.n_features

    @property
    def n_classes(self) -> int:
        """Classes of each classifier."""
        return self.base.n_classes

    @property
    def n_params(self) -> int:
        """Length of the flat parameter vector."""
        return self.n_models * self.base.n_params

    def initial(self, rng: np.random.Generator) -> Float32Array:
        """Return classifiers that are all alike."""
        return np.zeros(self.n_params, dtype=np.float32)

    @ignore_float_warnings
    def logits(self, params: Float32Array, X: Float32Array) -> Float64Array:
        """Return the logarithms of the mixture's law, class-major, each column from its own row alone."""
        decided = [row_stable_logits(self.base, own, X).argmax(axis=0) for own in params.reshape(self.n_models, -1)]
        shares = np.mean([np.arange(self.n_classes)[:, None] == one for one in decided], axis=0)
        return np.log(np.maximum(shares, SMALLEST_SHARE))

    def forward(self, params: Float32Array, X: Float32Array) -> tuple[Float64Array, ...]:
        """Return the logits alone."""
        return (self.logits(params, X),)


MODEL_KINDS["mixture"] = MixtureModel


@row_stable_answer.register
def _(model: MixtureModel, params: Float32Array, X: Float32Array) -> Float64Array:
    return model.logits(params, X)


def auditor_multipliers(sums: Float64Array, bound: float) -> Float64Array:
    """Return the multipliers of an auditor that has seen these sums of violations times its rate: within the L1 ball.

    Examples
    --------
    >>> auditor_multipliers(np.array([0.0, 0.0]), 3.0).round(2).tolist()
    [1.0, 1.0]
    >>> auditor_multipliers(np.array([9.0, -9.0]), 3.0).round(2).tolist()
    [3.0, 0.0]
    """
    largest = max(0.0, float(sums.max()))
    powers = np.exp(sums - largest)
    weights: Float64Array = bound * powers / (math.exp(-largest) + powers.sum())
    return weights


@dataclass(frozen=True)
class OracleLearner:
    """How `OracleClassifier` trains.

    Parameters
    ----------
    constraint : parity or sequence of parities
        What the auditor audits, with its tolerance. Set by the classifier.
    rounds, steps : int
        How often the auditor answers, and how many steps the learner makes in between.
    bound : float
        The largest L1 norm of the multipliers: the knob between accuracy (small) and parity (large).
    audit_rate : float
        What a violation of 1 adds to the logarithm of a multiplier.
    """

    constraint: Constraint | Sequence[Constraint] = ()
    rounds: int = 40
    steps: int = 20
    bound: float = 2.0
    audit_rate: float = 3.0
    descent: Descent = field(default_factory=lambda: Descent(model="linear"))

    def __post_init__(self) -> None:
        if isinstance(self.constraint, list):
            object.__setattr__(self, "constraint", tuple(self.constraint))
        check_number("rounds", self.rounds, whole=True)
        check_number("steps", self.steps, whole=True)
        check_number("bound", self.bound)
        check_number("audit_rate", self.audit_rate)
        if self.descent.clipping != "flat":
            raise InvalidParameterError("Expected a descent of flat clipping, got another one; leave it out.")
        check_plain_features(self.descent.features)

    @property
    def n_kept(self) -> int:
        """The number of classifiers in the mixture."""
        return self.rounds - self.rounds // 2

    def model_for(self, task: Task) -> Any:
        """Return the mixture."""
        return MixtureModel(LinearSoftmax(task.n_features, task.n_classes), self.n_kept)

    def check(self, task: Task) -> None:
        """Refuse whole records, and constraints that do not fit these people."""
        if not task.hides_attribute:
            raise InvalidParameterError(
                "Expected people of whom the attribute alone is secret, got whole records; use OracleClassifier."
            )
        constrain(self.constraint, task.people)

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return the learner's steps and the auditor's counts, of the same people."""
        rate = self.descent.numbers_for(task).sampling_rate
        gradient = Release("gradient", "gaussian", noise_multiplier)
        steps = Stage("train", (gradient,), share, {-1: rate}, self.rounds * self.steps)
        noise = math.sqrt(self.rounds / (AUDIT_SHARE * steps.precision)) if noise_multiplier else 0.0
        counts = Release("decisions", "gaussian", noise)
        return steps, Stage("audit", (counts,), share, n_steps=self.rounds, subset="train", by_group=True)

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress = no_progress,
    ) -> Fit:
        """Return the last half of the learner's classifiers, and the rule that draws one of them.

        Guarantees
        ----------
        What reads the attribute is a noisy count or a noisy sum of clipped gradients: the guarantee is that of the
        veils' plan. Features and labels are used as they are.
        """
        public = veils["train"].public
        assert public is not None
        bounds, model = constrain(self.constraint, task.people), self.model_for(task).base
        learner = _Learner(self, veils["train"], public, model, bounds.cells)
        params, state = model.initial(rng), OptimizerState()
        for _ in range(self.steps):  # of the loss alone, which is public
            params, state = Adam(RATE).step(params, learner.public_gradient(params, rng), state)
        sums, kept = np.zeros(len(bounds.bounds)), []
        for _ in progress(range(self.rounds)):
            counted = Count(bounds.cells, bounds.n_cells, Decision(model, params, is_row_stable=True))
            released = veils["audit"].draw().release_counts(counted, "decisions")
            counts = np.maximum(released.reshape(bounds.n_cells, -1), 0.0)
            sums = sums + self.audit_rate * bounds.violation(counts, minimum_size(size))
            prices = self._prices(bounds, counts, auditor_multipliers(sums, self.bound), size)
            params, state = learner.answer(params, state, prices, rng)
            kept.append(params)
        return Fit(np.concatenate(kept[-self.n_kept :]), rule=RandomizedByKey())

    @staticmethod
    def _prices(bounds: HistogramConstraints, counts: Float64Array, multipliers: Float64Array, size: float) -> Any:
        """Return what each decision of one record costs by its cell, shape (cells + 1, classes); last, of no cell."""
        pull = size * bounds.pull(counts, multipliers, minimum_size(size))
        return np.vstack([pull, np.zeros(pull.shape[1])])


@dataclass(frozen=True, eq=False)
class _Learner:
    """The learner's side: public rows, and a veil for what the attribute adds."""

    recipe: OracleLearner
    veil: Veil
    public: PublicRows
    model: Model
    cells: np.ndarray

    def public_gradient(self, params: Float32Array, rng: np.random.Generator) -> Float64Array:
        """Return the mean gradient of the loss on rows of public coins."""
        rows = self.public.sample(BATCH, rng)
        X = self.public.inputs_of(self.model)[rows]
        activations = self.model.forward(params, X)
        dlogits = logits_pull(activations[-1], self.public.y[rows])
        total = self.model.clipped_gradient(params, X, dlogits, math.inf, Known(activations))
        return total.astype(np.float64) / max(1, len(rows))

    def answer(
        self, params: Float32Array, state: OptimizerState, prices: Float64Array, rng: np.random.Generator
    ) -> tuple[Float32Array, OptimizerState]:
        """Return the parameters after one round of private steps on the loss plus these prices."""
        table = prices.take(self.cells.ravel(), axis=0, mode="wrap").astype(np.float32)
        objective = DecisionPrice(table, SHARPNESS)
        is_private = self.veil.stage.noise_multipliers["gradient"] > 0
        bound = math.inf if not is_private else max(float(np.ptp(prices, axis=1).max()) * self._length, 1e-6)
        expected = self.veil.stage.largest_rate * max(1.0, float(self.public.n_units))
        for _ in range(self.recipe.steps):
            own = self.veil.draw().release_gradient(self.model, params, objective, bound, is_row_stable=True)
            gradient = self.public_gradient(params, rng) + own / expected
            params, state = Adam(RATE).step(params, gradient, state)
        return params, state

    @property
    def _length(self) -> float:
        """The longest gradient of a soft decision, over its price, of rows of usual length: features are public."""
        squares = np.einsum("nd,nd->n", self.public.X, self.public.X, dtype=np.float64) + 1
        return SHARPNESS / 4 * math.sqrt(2 * float(np.median(squares)))


class OracleClassifier(ConstrainedClassifier):
    """Equalized odds where the sensitive attribute alone is secret: DP-oracle-learner (Jagielski et al. 2019).

    A mixture of linear classifiers, of which a key draws one for each record; none of them reads the attribute.

    Parameters
    ----------
    constraint : parity or list of parities, optional
        What is audited, with its tolerance; None is ``EqualizedOdds()``.
    {epsilon, delta}
    training : OracleLearner, optional
        How to train; None is ``OracleLearner()``. Its own constraint is replaced by the one above.
    {schema}
    sensitive : str or list of str
        The sensitive column or columns, which must not be features.
    {holdout}
    {ledger}
    {random_state}

    Notes
    -----
    Fitted attributes and predictions together are (epsilon, delta)-differentially private for neighbors that differ in
    whether the sensitive attribute of one record is known, all features and labels being the same. No gap is
    guaranteed. Assumes that nobody reads this process's memory. Timing is not covered.
    """

    protects = "attribute"
    is_randomized = True

    def _recipe(self, inputs: InputSpec) -> OracleLearner:
        constraint = EqualizedOdds() if self.constraint is None else self.constraint
        return replace(training_of(self, OracleLearner), constraint=constraint)
