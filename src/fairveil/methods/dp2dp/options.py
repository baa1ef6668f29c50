"""What a user may choose about a rule; everything left open follows from public facts."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint
from fairveil.fairness.groups import Population
from fairveil.methods.dp2dp.dual_steps import DualSteps
from fairveil.methods.dp2dp.recipe import Postprocessed, PrefittedScores, RuleSolver
from fairveil.methods.dp2dp.thresholds import WIDTH, ScoreHistogram
from fairveil.training.recipe import Recipe

CLASS_JITTER = 0.02
"""The lot that breaks ties of many classes, in units of probability."""


@dataclass(frozen=True)
class ParityFitting:
    """How `ParityPostprocessor` fits its rule.

    Parameters
    ----------
    aware : bool
        Whether the rule reads the group when it decides. If not, the model is of (group, label) pairs, and the
        sensitive columns are no inputs.
    solver : ScoreHistogram, DualSteps or NoisyDescent, optional
        None is ScoreHistogram() for two classes and a rule that reads the group, DualSteps() otherwise.
    rule_fraction : float, optional
        The share of the units kept apart for the rule; None fits it on the training rows.
    budget_share : float, optional
        The share of the precision that the rule takes on the training rows; None follows from public facts.
    headroom : float
        How many standard errors of the people to stay below each limit (at most headroom / 2 of it).
    jitter : float, optional
        The width of the lot that breaks ties between equal scores: of the logit for two classes, of the probability for
        more. None is 0 for a model trained here, one bin for a classifier that was fitted elsewhere.
    decoupled : bool
        One model for each group.
    """

    aware: bool = True
    solver: RuleSolver | None = None
    rule_fraction: float | None = None
    budget_share: float | None = None
    headroom: float = 1.0
    jitter: float | None = None
    decoupled: bool = False

    def __post_init__(self) -> None:
        if self.decoupled and not self.aware:
            raise InvalidParameterError(
                "Expected aware=True for one model a group, got aware=False; choose one."
            )

    @property
    def predicts(self) -> str:
        """What the model is of."""
        if not self.aware:
            return "joint"
        return "decoupled" if self.decoupled else "label"

    def recipe(
        self, base: Recipe, constraint: Constraint | Sequence[Constraint], people: Population
    ) -> Postprocessed:
        """Return the whole recipe."""
        solver = self.solver
        if solver is None:
            has_thresholds = self.aware and people.n_classes == 2 and people.attributes
            solver = ScoreHistogram() if has_thresholds else DualSteps()
        jitter = self.jitter
        if jitter is None:
            width = WIDTH if isinstance(solver, ScoreHistogram) else CLASS_JITTER
            jitter = width if isinstance(base, PrefittedScores) else 0.0
        return Postprocessed(
            base, solver, constraint, self.rule_fraction, self.budget_share, self.headroom, jitter
        )
