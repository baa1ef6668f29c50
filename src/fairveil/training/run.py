"""One budget in, one plan out: every noise level of a run is settled before any data is touched.

A plan carried out: the debit, the noisy size, the training, the noisy outcomes on the hold-out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fairveil._random import Coins
from fairveil._typing import Float32Array
from fairveil.accounting.calibration import calibrate
from fairveil.accounting.events import Event
from fairveil.errors import InvalidParameterError
from fairveil.models.base import Model
from fairveil.models.rules import DecisionRule
from fairveil.privacy.attribute import hides_attribute
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.queries import Count, Decision, all_cells, one_cell
from fairveil.privacy.veil import AnyRecords, Veil, open_veils
from fairveil.training.recipe import Fit, HoldoutReader, Progress, Recipe, Task, no_progress

SIZE_SHARE = 0.02
"""The part of epsilon that buys a noisy number of records where none is declared."""


def make_plan(recipe: Recipe, task: Task, holdout: float = 0.0) -> Plan:
    """Return the plan of a run: training, a noisy size if none is declared, outcomes on a hold-out if one is asked for.

    Training and hold-out are pieces of one secret split, so they compose in parallel; the size is asked of everyone and
    composes with both. The noise of each piece is the least that meets the whole budget together with the size.
    """
    if not 0 <= holdout < 1:
        raise InvalidParameterError(f"Expected 0 <= holdout < 1, got {holdout!r}.")
    recipe.check(task)
    size = size_stages(task)
    stages = size + calibrated_stages(lambda noise: recipe.stages(noise, 1 - holdout, task), size, task)
    if holdout:
        stages += calibrated_stages(lambda noise: _holdout_stages(recipe, noise, holdout, task), size, task)
    return Plan(stages, task.epsilon, task.delta, task.unit)


def make_counting_plan(epsilon: float, delta: float, unit: str) -> Plan:
    """Return the plan of one look at everyone: how a released rule decides, by group and label."""
    std = 0.0
    if math.isfinite(epsilon):
        std = calibrate(lambda noise: [outcomes_stage(noise, 1.0).event], epsilon, delta)
    return Plan((outcomes_stage(std, 1.0, hides_attribute(unit)),), epsilon, delta, unit)


def _holdout_stages(recipe: Recipe, noise_multiplier: float, share: float, task: Task) -> tuple[Stage, ...]:
    more = recipe.holdout_stages(noise_multiplier, share, task) if isinstance(recipe, HoldoutReader) else ()
    return (outcomes_stage(noise_multiplier, share, task.hides_attribute), *more)


def size_stages(task: Task) -> tuple[Stage, ...]:
    """Return the noisy number of units that is bought where none is declared."""
    if task.n_public is not None or task.hides_attribute:
        return ()
    scale = 1 / (SIZE_SHARE * task.epsilon) if task.is_private else 0.0
    return (Stage("size", (Release("size", "discrete_laplace", scale),)),)


def outcomes_stage(std: float, share: float, by_group: bool = False) -> Stage:
    """Return the one look at people held out: how the released rule decides, by group and label."""
    # Gaussian, because the outcomes of several runs on the same people then compose as gently as their trainings do.
    return Stage("holdout", (Release("outcomes", "discrete_gaussian", std),), share, by_group=by_group)


def calibrated_stages(
    parts_at: Callable[[float], tuple[Stage, ...]], size: tuple[Stage, ...], task: Task
) -> tuple[Stage, ...]:
    """Return the parts, those of each piece at the least noise that, with the size, costs no more than the budget."""
    if not task.is_private:
        return parts_at(0.0)
    fixed = [stage.event for stage in size]

    def of_subset(subset: str, noise: float) -> tuple[Stage, ...]:
        return tuple(stage for stage in parts_at(noise) if stage.subset == subset)

    def charges(subset: str, noise: float) -> list[Event]:
        return [*fixed, *(stage.event for stage in of_subset(subset, noise))]

    subsets = dict.fromkeys(stage.subset for stage in parts_at(1.0))
    noises = {subset: calibrate(partial(charges, subset), task.epsilon, task.delta) for subset in subsets}
    return tuple(stage for subset, noise in noises.items() for stage in of_subset(subset, noise))


def precision_of(stage: Stage) -> float:
    """Return about how telling a part is: the squared signal over noise, 0 where there is no noise."""
    rate = max(stage.sampling_rates.values())
    noises = [release.noise_multiplier for release in stage.releases]
    return stage.n_steps * rate**2 * sum(1 / noise**2 for noise in noises if noise)


def noise_of(stage: Stage, name: str) -> float:
    """Return the noise multiplier of a planned release."""
    return next(release.noise_multiplier for release in stage.releases if release.name == name)


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


def run_plan(
    plan: Plan,
    recipe: Recipe,
    task: Task,
    records: AnyRecords,
    ledger: Ledger,
    coins: Coins,
    rng: np.random.Generator,
    progress: Progress = no_progress,
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
    for stage in plan.stages:
        veils[stage.name].expect(everyone * stage.share)
    size = everyone * plan.shares.get("train", 1.0)
    model = recipe.model_for(task)
    fit = recipe.train(veils, task, size, rng, progress)
    if "holdout" not in veils:
        return Trained(model, fit, size, None, 0.0)
    outcomes = release_outcomes(veils["holdout"], model, fit.params, fit.rule, task)
    evidence = recipe.read_holdout(veils, task, fit) if isinstance(recipe, HoldoutReader) else None
    return Trained(model, fit, size, *outcomes, evidence)


def release_outcomes(
    veil: Veil, model: Model, params: Float32Array, rule: DecisionRule, task: Task
) -> tuple[NDArray[np.float64], float]:
    """Release how a rule decides, counts by (group code, label, decision), and the variance of their noise."""
    n_groups, n_classes = task.people.n_groups, task.n_classes
    decision = Decision(model, params, rule, is_row_stable=True)  # the model may be older than these people
    query = Count(all_cells(n_groups, n_classes), n_groups * n_classes, decision)
    counts = veil.draw().release_counts(query, name="outcomes")
    (release,) = veil.stage.releases
    # a discrete Gaussian varies by no more than std^2
    return counts.reshape(n_groups, n_classes, n_classes), release.noise_multiplier**2


def size_of(veils: dict[str, Veil], task: Task) -> float:
    """Return the declared number of units, or a noisy one bought for the purpose; at least 1, as a divisor must be.

    Where an attribute alone is secret, the number is public as it is.
    """
    if task.hides_attribute:
        subsets = {
            veil.stage.subset: veil.public.n_units for veil in veils.values() if veil.public is not None
        }
        return float(max(1, sum(subsets.values())))
    if task.n_public is not None:
        return float(task.n_public)
    return max(
        1.0, float(veils["size"].draw().release_counts(Count(one_cell(task.n_classes), 1), name="size")[0])
    )
