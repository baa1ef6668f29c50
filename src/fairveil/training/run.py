"""One budget in, one plan out: every noise level of a run is settled before any data is touched.

A plan carried out: the debit, the noisy size, the training, the noisy outcomes on the hold-out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fairveil._random import Coins
from fairveil._typing import Float32Array
from fairveil.accounting.composition import calibrate
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
"""The share of epsilon spent on a noisy number of records where none is declared."""


def make_plan(recipe: Recipe, task: Task, holdout: float = 0.0) -> Plan:
    """Return the plan of a run: training, a noisy size if none is declared, outcomes on a hold-out if there is one.

    Training and hold-out are subsets of one secret split, so they compose in parallel; the size is that of everyone and
    composes with both. The noise of each subset is the least that meets the whole budget together with the size.
    """
    if not 0 <= holdout < 1:
        raise InvalidParameterError(f"Expected 0 <= holdout < 1, got {holdout!r}.")
    recipe.check(task)
    size = size_stages(task)
    stages = size + calibrated_stages(lambda noise: recipe.stages(noise, 1 - holdout, task), size, task)
    if holdout:

        def holdout_stages(noise: float) -> tuple[Stage, ...]:
            outcomes = outcomes_stage(noise, holdout, task.hides_attribute)
            if not isinstance(recipe, HoldoutReader):
                return (outcomes,)
            return (outcomes, *recipe.holdout_stages(noise, holdout, task))

        stages += calibrated_stages(holdout_stages, size, task)
    return Plan(stages, task.epsilon, task.delta, task.unit)


def make_counting_plan(epsilon: float, delta: float, unit: str) -> Plan:
    """Return the plan of one count of everyone: how a released rule decides, by group and label."""
    std = 0.0
    if math.isfinite(epsilon):
        std = calibrate(lambda noise: [outcomes_stage(noise, 1.0).event], epsilon, delta)
    return Plan((outcomes_stage(std, 1.0, hides_attribute(unit)),), epsilon, delta, unit)


def size_stages(task: Task) -> tuple[Stage, ...]:
    """Return the stage that releases a noisy number of units, where none is declared."""
    if task.n_public is not None or task.hides_attribute:
        return ()
    scale = 1 / (SIZE_SHARE * task.epsilon) if task.is_private else 0.0
    return (Stage("size", (Release("size", "discrete_laplace", scale),)),)


def outcomes_stage(std: float, share: float, by_group: bool = False) -> Stage:
    """Return the one count of people held out: how the released rule decides, by group and label."""
    # Gaussian, because the outcomes of several runs on the same people then compose as gently as their trainings do.
    return Stage("holdout", (Release("outcomes", "discrete_gaussian", std),), share, by_group=by_group)


def calibrated_stages(
    stages_at: Callable[[float], tuple[Stage, ...]], size: tuple[Stage, ...], task: Task
) -> tuple[Stage, ...]:
    """Return the stages, those of each subset at the least noise that, with the size, costs at most the budget."""
    if not task.is_private:
        return stages_at(0.0)
    found: list[Stage] = []
    for subset in dict.fromkeys(stage.subset for stage in stages_at(1.0)):

        def charges(noise: float, subset: str = subset) -> list[Event]:
            own = [stage.event for stage in stages_at(noise) if stage.subset == subset]
            return [*(stage.event for stage in size), *own]

        noise = calibrate(charges, task.epsilon, task.delta)
        found += [stage for stage in stages_at(noise) if stage.subset == subset]
    return tuple(found)


def precision_of(stage: Stage) -> float:
    """Return about how precise a stage is: the squared signal over noise, 0 where there is no noise."""
    rate = max(stage.sampling_rates.values())
    noises = [release.noise_multiplier for release in stage.releases]
    return stage.n_steps * rate**2 * sum(1 / noise**2 for noise in noises if noise)


def noise_of(stage: Stage, name: str) -> float:
    """Return the noise multiplier of a planned release."""
    return next(release.noise_multiplier for release in stage.releases if release.name == name)


@dataclass(frozen=True, eq=False)
class Trained:
    """What left the veil: a model and its fit, the size that was used, counts on the hold-out if any.

    `evidence` is what else a recipe released of the people held out.
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
    """Debit the plan and run it.

    Guarantees
    ----------
    (plan.epsilon, plan.delta)-differential privacy of everything returned, for neighbors that differ by one unit added
    or removed. Assumes that the coins are secret and the facts of `task` are public.
    """
    with threadpool_limits(1, user_api="blas"):  # batches are small: threads would wait for each other
        veils = open_veils(records, plan, ledger, coins, purpose)
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
    """Return the declared number of units, or a noisy one released for the purpose; at least 1, as a divisor must be.

    Where an attribute alone is secret, the number is public as it is.
    """
    if task.hides_attribute:
        subsets = {veil.stage.subset: veil.public.n_units for veil in veils.values() if veil.public is not None}
        return float(max(1, sum(subsets.values())))
    if task.n_public is not None:
        return float(task.n_public)
    return max(1.0, float(veils["size"].draw().release_counts(Count(one_cell(task.n_classes), 1), name="size")[0]))
