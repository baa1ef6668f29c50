"""One budget in, one plan out: every noise level of a run is settled before any data is touched.

A plan carried out: the debit, the noisy size, the training, the noisy outcomes on the hold-out.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fairveil._random import Coins
from fairveil._typing import Float32Array
from fairveil.accounting.composition import calibrate
from fairveil.errors import InvalidParameterError, without_array_sizes
from fairveil.fairness.ranking import SCORE_EDGES, ScoreCounts
from fairveil.models.base import Model
from fairveil.models.rules import DecisionRule
from fairveil.privacy.attribute import ATTRIBUTE
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.probes import check_model
from fairveil.privacy.queries import Bin, Count, Decision, Margin, all_cells, one_cell
from fairveil.privacy.veil import AnyRecords, Veil, open_veils
from fairveil.training.recipe import Fit, HoldoutReader, Progress, Recipe, Task, no_progress

StagesAt = Callable[[float], tuple[Stage, ...]]
"""The stages of a plan, or of a part of it, at a level of noise."""

Opener = Callable[[AnyRecords, Plan, Ledger, Coins, str], Mapping[str, Veil]]
"""Debits a plan and returns its veils: `open_veils`, or a function that calls it."""

SIZE_SHARE = 0.02
"""The share of epsilon spent on a noisy number of records where none is declared."""


SCORES = "score histogram"
"""The stage that counts the scores of people held out."""

SCORES_NOISE = 2.0
"""The noise on these counts over that on the outcomes: the certificate keeps four fifths of the precision."""


def make_plan(recipe: Recipe, task: Task, holdout: float = 0.0, auc: bool = False) -> Plan:
    """Return the plan of a run: training, a noisy size if none is declared, outcomes on a hold-out if there is one.

    With `auc`, the scores of the people held out are counted as well, for ROC-AUC and average precision.
    Training and hold-out are subsets of one secret split, so they compose in parallel; the size is that of everyone and
    composes with both. The noise of each subset is the least that meets the whole budget together with the size.
    """
    if not 0 <= holdout < 1:
        raise InvalidParameterError(f"Expected 0 <= holdout < 1, got {holdout!r}.")
    size = size_stages(task)
    recipe.check(task)
    if auc:
        check_scores(task, holdout)
    with_holdout = partial(_stages_with_holdout, recipe, task, holdout, auc)
    stages_at: StagesAt = with_holdout if holdout else lambda noise: recipe.stages(noise, 1.0, task)
    stages = list(size)
    for subset in dict.fromkeys(stage.subset for stage in stages_at(1.0 if task.is_private else 0.0)):
        noise = 0.0
        if task.is_private:
            # the people of a subset meet its own stages and the size
            noise = calibrate(
                lambda scale, own=subset: [  # type: ignore[misc]
                    stage.event for stage in (*size, *(one for one in stages_at(scale) if one.subset == own))
                ],
                task.epsilon,
                task.delta,
            )
        stages += [stage for stage in stages_at(noise) if stage.subset == subset]
    return Plan(tuple(stages), task.epsilon, task.delta, task.unit)


def size_stages(task: Task) -> tuple[Stage, ...]:
    """Return the stage that releases a noisy number of units, where none is declared."""
    if task.n_public is not None or task.hides_attribute:
        return ()
    scale = 1 / (SIZE_SHARE * task.epsilon) if task.is_private else 0.0
    return (Stage("size", (Release("size", "discrete_laplace", scale),)),)


def check_scores(task: Task, holdout: float) -> None:
    """Refuse to count scores where there are none to count."""
    if task.n_classes != 2:
        raise InvalidParameterError(
            f"Expected two classes with auc=True (--auc), got {task.n_classes}; leave it out: ROC-AUC and average "
            "precision are of two classes."
        )
    if task.hides_attribute:
        raise InvalidParameterError(
            'Expected auc=False with protects="attribute", got True; leave it out: features and labels are public '
            "there, so the score can be ranked without privacy."
        )
    if not holdout:
        raise InvalidParameterError(
            "Expected people held out with auc=True (--auc), got holdout=0; write holdout=0.15, or leave it out."
        )


def _stages_with_holdout(recipe: Recipe, task: Task, share: float, auc: bool, noise: float) -> tuple[Stage, ...]:
    """Return the stages of training, and for the people held out the outcomes and what the recipe releases besides."""
    held_out = [*counting_stages(noise, share, task.hides_attribute, auc)]
    if isinstance(recipe, HoldoutReader):
        held_out += recipe.holdout_stages(noise, share, task)
    return (*recipe.stages(noise, 1 - share, task), *held_out)


def outcomes_stage(std: float, share: float, by_group: bool = False) -> Stage:
    """Return the one count of people held out: how the released rule decides, by group and label."""
    # Gaussian, because the outcomes of several runs on the same people then compose as gently as their trainings do.
    return Stage("holdout", (Release("outcomes", "discrete_gaussian", std),), share, by_group=by_group)


def counting_stages(std: float, share: float, by_group: bool = False, auc: bool = False) -> tuple[Stage, ...]:
    """Return the counts of people held out: the outcomes and, with `auc`, the scores, which are noisier."""
    outcomes = outcomes_stage(std, share, by_group)
    if not auc:
        return (outcomes,)
    release = Release(SCORES, "discrete_gaussian", SCORES_NOISE * std)
    return outcomes, Stage(SCORES, (release,), share, subset=outcomes.subset)


def make_counting_plan(epsilon: float, delta: float, unit: str) -> Plan:
    """Return the plan of one count of everyone: how a released rule decides, by group and label."""
    std = 0.0
    if math.isfinite(epsilon):
        std = calibrate(lambda noise: [outcomes_stage(noise, 1.0).event], epsilon, delta)
    return Plan((outcomes_stage(std, 1.0, unit.startswith(ATTRIBUTE)),), epsilon, delta, unit)


@dataclass(frozen=True, eq=False)
class Trained:
    """What left the veil: a model and its fit, the size that was used, counts on the hold-out if any.

    `evidence` is what else a recipe released of the people held out, `scores` their scores by label, if counted.
    """

    model: Model
    fit: Fit
    size: float
    outcomes: NDArray[np.float64] | None
    noise_variance: float
    evidence: Any = None
    scores: ScoreCounts | None = None


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
    open_with: Opener = open_veils,
) -> Trained:
    """Debit the plan and run it; an audit opens the veils itself (`open_with`), to see what passes them.

    Guarantees
    ----------
    (plan.epsilon, plan.delta)-differential privacy of everything returned, for neighbors that differ by one unit added
    or removed. Assumes that the coins are secret and the facts of `task` are public.
    """
    # batches are small: threads would wait for each other
    with threadpool_limits(1, user_api="blas"), without_array_sizes():
        if plan.is_private:
            check_model(recipe.model_for(task))
        veils = open_with(records, plan, ledger, coins, purpose)
        if task.hides_attribute:  # then the number of units is public as it is
            subsets = {veil.stage.subset: veil.public.n_units for veil in veils.values() if veil.public is not None}
            everyone = float(max(1, sum(subsets.values())))
        else:
            everyone = release_size(veils["size"], task) if task.n_public is None else float(task.n_public)
        for stage in plan.stages:
            veils[stage.name].expect(everyone * stage.share)
        size = everyone * plan.shares.get("train", 1.0)
        model = recipe.model_for(task)
        fit = recipe.train(veils, task, size, rng, progress)
        if "holdout" not in veils:
            return Trained(model, fit, size, None, 0.0)
        outcomes = release_outcomes(veils["holdout"], model, fit.params, fit.rule, task)
        evidence = recipe.read_holdout(veils, task, fit) if isinstance(recipe, HoldoutReader) else None
        scores = release_scores(veils[SCORES], model, fit.params, task) if SCORES in veils else None
        return Trained(model, fit, size, *outcomes, evidence, scores)


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


def release_scores(veil: Veil, model: Model, params: Float32Array, task: Task) -> ScoreCounts:
    """Release how a model scores people of two classes: counts by label and public bin of the log-odds."""
    margin = Margin(model, params, is_row_stable=True)
    query = Count(np.arange(2)[None], 2, Bin(margin, SCORE_EDGES))
    counts = veil.draw().release_counts(query, name=SCORES).reshape(2, -1)
    (release,) = veil.stage.releases
    if task.people.positive == 0:
        counts = counts[::-1, ::-1]
    return ScoreCounts(counts, release.noise_multiplier**2)


def release_size(veil: Veil, task: Task) -> float:
    """Release the number of units; at least 1, as a divisor must be."""
    return max(1.0, float(veil.draw().release_counts(Count(one_cell(task.n_classes), 1), name="size")[0]))
