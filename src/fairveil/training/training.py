"""A plan carried out: the debit, the noisy size, the training, the noisy outcomes on the hold-out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fairveil.coins import Coins
from fairveil.models.protocol import Array, Model
from fairveil.models.rules import DecisionRule
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan
from fairveil.privacy.veil import AnyRecords, Veil, open_veils
from fairveil.training.objectives import Everyone, Outcomes
from fairveil.training.task import Fit, HoldoutReader, Progress, Recipe, Task, quiet

__all__ = ["Trained", "carry_out", "release_outcomes", "size_of"]


@dataclass(frozen=True, eq=False)
class Trained:
    """What left the veil: a model and its fit, the size that was used, counts on the hold-out if any.

    `evidence` is what else a recipe asked of the people held out.
    """

    model: Model
    fit: Fit
    size: float
    outcomes: NDArray[np.float64] | None
    noise_variance: float
    evidence: Any = None


def carry_out(
    plan: Plan,
    recipe: Recipe,
    task: Task,
    records: AnyRecords,
    ledger: Ledger,
    coins: Coins,
    rng: np.random.Generator,
    progress: Progress = quiet,
    purpose: str = "training",
) -> Trained:
    """Book the plan and run it.

    Guarantees
    ----------
    (plan.epsilon, plan.delta)-differential privacy of everything returned, for neighbours that differ by one unit
    added or removed, given that the coins are secret and the facts of `task` are public.
    """
    with threadpool_limits(1, user_api="blas"):  # batches are small: threads would wait for each other
        return _carried_out(
            plan, recipe, task, open_veils(records, plan, ledger, coins, purpose), rng, progress
        )


def _carried_out(
    plan: Plan,
    recipe: Recipe,
    task: Task,
    veils: dict[str, Veil],
    rng: np.random.Generator,
    progress: Progress,
) -> Trained:
    everyone = size_of(veils, task)
    for part in plan.parts:
        veils[part.name].expect(everyone * part.share)
    size = everyone * plan.shares.get("train", 1.0)
    model = recipe.model_for(task)
    fit = recipe.train(veils, task, size, rng, progress)
    if "holdout" not in veils:
        return Trained(model, fit, size, None, 0.0)
    outcomes = release_outcomes(veils["holdout"], model, fit.params, fit.rule, task)
    evidence = recipe.read_holdout(veils, task, fit) if isinstance(recipe, HoldoutReader) else None
    return Trained(model, fit, size, *outcomes, evidence)


def release_outcomes(
    veil: Veil, model: Model, params: Array, rule: DecisionRule, task: Task
) -> tuple[NDArray[np.float64], float]:
    """Release how a rule decides, counts by (group code, label, decision), and the variance of their noise."""
    outcomes = Outcomes(model, params, rule, task.people.n_groups, task.n_classes)
    counts = veil.draw().release_counts(outcomes, name="outcomes")
    (release,) = veil.part.releases
    # a discrete Gaussian varies by no more than std^2
    return counts.reshape(outcomes.shape), release.noise_multiplier**2


def size_of(veils: dict[str, Veil], task: Task) -> float:
    """Return the declared number of units, or a noisy one bought for the purpose; at least 1, as a divisor must be.

    Where an attribute alone is secret, the number is public as it is.
    """
    if task.hides_attribute:
        pieces = {veil.part.piece: veil.public.n_units for veil in veils.values() if veil.public is not None}
        return float(max(1, sum(pieces.values())))
    if task.n_public is not None:
        return float(task.n_public)
    return max(1.0, float(veils["size"].draw().release_counts(Everyone(), name="size")[0]))
