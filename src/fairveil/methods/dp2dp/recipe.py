"""A base model and the fitting of a rule as one recipe: one plan, one budget, one debit."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint, constrain
from fairveil.methods.dp2dp.problem import FittedRule, RuleProblem, RuleSolver
from fairveil.methods.dp2dp.thresholds import ScoreHistogram
from fairveil.methods.dp_sgd import Descent
from fairveil.models.base import Model
from fairveil.models.prefitted import PrefittedProbabilities
from fairveil.privacy.plan import Stage
from fairveil.privacy.veil import Veil
from fairveil.training.recipe import Fit, Progress, Recipe, Task, no_progress
from fairveil.training.run import precision_of

TYPICAL_SLICE, LARGEST_SLICE = 0.1, 0.15
ENOUGH_SIGNAL = 2000.0
"""The share of the precision that a rule takes where it is fitted on the rows that the model was trained on. A model
that noise keeps from converging needs more of it: the share grows with epsilon x size / sqrt(parameters) up to this
value."""


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
        """Return nothing: no row is asked for training."""
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
    fitting : ScoreHistogram, DualSteps, NoisyDescent or RateFlips
    constraint : constraint or sequence of constraints
    rule_fraction : float, optional
        The share of the units kept apart for the rule; its noise then has the whole budget. None fits the rule on the
        training rows, with a slice of it.
    budget_share : float, optional
        The share of the precision (of 1 / noise^2) that the rule takes on the training rows. None follows from public
        facts: 0.05 to 0.15.
    headroom, jitter : float
        As in a `RuleProblem`.
    """

    base: Recipe = field(default_factory=Descent)
    fitting: RuleSolver = field(default_factory=ScoreHistogram)
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

    def check(self, task: Task) -> None:
        """Refuse what base and fitting cannot do, before anything is booked."""
        self.base.check(task)
        if self.rule_fraction is not None and isinstance(self.base, PrefittedScores):
            raise InvalidParameterError(
                "Expected no part of the rows for a rule on a classifier fitted elsewhere, got one; leave it out: all "
                "rows are the rule's."
            )
        self.fitting.check(task, constrain(self.constraint, task.people))

    def stages(self, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
        """Return what base and rule ask, of one piece or of two."""
        base = self.base.stages(noise_multiplier, self._training_share(share), task)
        if not base:
            return self.fitting.stages(noise_multiplier, share, "train", task)
        if self.rule_fraction is not None:
            return base + self.fitting.stages(noise_multiplier, share * self.rule_fraction, "rule", task)
        precision = sum(map(precision_of, base))
        part = self.budget_share_for(task)
        noise = math.sqrt((1 - part) / (part * precision)) if noise_multiplier else 0.0
        return base + self.fitting.stages(noise, share, base[0].subset, task)

    def budget_share_for(self, task: Task) -> float:
        """Return the share of the precision that the rule takes on the training rows."""
        if self.budget_share is not None:
            return self.budget_share
        if task.n_public is None or not task.is_private:
            return TYPICAL_SLICE
        signal = task.epsilon * task.n_public / math.sqrt(self.model_for(task).n_params)
        return min(
            LARGEST_SLICE, max(self.fitting.smallest_budget_share, LARGEST_SLICE * signal / ENOUGH_SIGNAL)
        )

    def _training_share(self, share: float) -> float:
        return share if self.rule_fraction is None else share * (1 - self.rule_fraction)

    def train(
        self,
        veils: Mapping[str, Veil],
        task: Task,
        size: float,
        rng: np.random.Generator,
        progress: Progress = no_progress,
    ) -> Fit:
        """Return the base's parameters, the rule, and what is told of its bounds.

        Guarantees
        ----------
        Everything here is computed from noisy sums: the guarantee is that of the veils' plan.
        """
        trained = self.base.train(veils, task, size, rng, progress)
        ruling = self.rule_for(trained, veils, task, size)
        return Fit(trained.params, ruling.trace, ruling.check, ruling.rule, ruling.sizes)

    def rule_for(self, trained: Fit, veils: Mapping[str, Veil], task: Task, size: float) -> FittedRule:
        """Return the rule for a trained base of `size` people."""
        own = 1.0 if self.rule_fraction is None else self.rule_fraction / (1 - self.rule_fraction)
        bounds = constrain(self.constraint, task.people)
        scene = RuleProblem(
            self.model_for(task), trained.params, task, bounds, size * own, self.headroom, self.jitter
        )
        return self.fitting.fit(scene, veils)
