"""What a user may choose about a rule; everything left open follows from public facts."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairveil._validate import check_choice
from fairveil.errors import InvalidParameter
from fairveil.fairness.cells import Population
from fairveil.fairness.constraints import Constraint, constrain
from fairveil.postprocess.curves import WIDTH
from fairveil.postprocess.dual_steps import DualSteps
from fairveil.postprocess.flips import RateFlips, parity_tolerance
from fairveil.postprocess.recipe import GivenScores, Postprocessed
from fairveil.postprocess.scene import RuleFitting
from fairveil.postprocess.score_histogram import ScoreHistogram
from fairveil.training.task import Recipe

__all__ = ["FlipFitting", "ParityFitting"]

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
    part : float, optional
        The share of the units kept apart for the rule; None fits it on the training rows.
    slice : float, optional
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
    solver: RuleFitting | None = None
    part: float | None = None
    slice: float | None = None
    headroom: float = 1.0
    jitter: float | None = None
    decoupled: bool = False

    def __post_init__(self) -> None:
        if self.decoupled and not self.aware:
            raise InvalidParameter("Expected aware=True for one model a group, got aware=False; choose one.")

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
            jitter = width if isinstance(base, GivenScores) else 0.0
        return Postprocessed(base, solver, constraint, self.part, self.slice, self.headroom, jitter)


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
    part : float, optional
        The share of the units kept apart for the rule; None fits it on the training rows.
    slice : float, optional
        The share of the precision that the rule takes on the training rows; None follows from public facts.
    """

    mode: str = "flips"
    decoupled: bool = False
    group_sizes: tuple[int, int] | None = None
    group_epsilons: tuple[float, float] = (1.0, 1.0)
    part: float | None = None
    slice: float | None = None

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, ("flips", "scores"))
        if self.mode == "scores" and self.group_sizes is not None:
            raise InvalidParameter("Expected group_sizes with mode='flips' only; leave them out.")

    @property
    def predicts(self) -> str:
        """What the model is of."""
        return "decoupled" if self.decoupled else "label"

    def recipe(
        self, base: Recipe, constraint: Constraint | Sequence[Constraint], people: Population
    ) -> Postprocessed:
        """Return the whole recipe; refuse everything but demographic parity of two groups and classes."""
        if people.n_classes != 2:
            raise InvalidParameter(
                f"Expected two classes to flip between, got {people.n_classes}; use ParityPostprocessor."
            )
        parity_tolerance(constrain(constraint, people))
        solver: RuleFitting = (
            RateFlips(self.group_sizes, self.group_epsilons)
            if self.mode == "flips"
            else ScoreHistogram(in_bins=True)
        )
        jitter = WIDTH if isinstance(base, GivenScores) else 0.0
        return Postprocessed(base, solver, constraint, self.part, self.slice, jitter=jitter)
