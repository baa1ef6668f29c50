"""One budget in, one plan out: every noise level of a run is settled before any data is touched."""

import math

from fairveil._validate import check_probability
from fairveil.errors import InvalidParameter
from fairveil.privacy.calibration import calibrate
from fairveil.privacy.plan import Part, Plan, Release
from fairveil.training.task import Recipe, Task

__all__ = ["SIZE_SHARE", "make_plan"]

SIZE_SHARE = 0.02
"""The part of epsilon that buys a noisy number of records where none is declared."""


def make_plan(recipe: Recipe, task: Task, holdout: float = 0.0) -> Plan:
    """Return the plan of a run: training, a noisy size if none is declared, outcomes on a hold-out if one is asked for.

    Training and hold-out are parts of one secret split, so they compose in parallel; the size is asked of everyone and
    composes with both. The noise of training is the least that meets the budget together with the size; the
    hold-out's counts are pure and take what the size leaves.
    """
    if holdout:
        check_probability("holdout", holdout)
    if holdout >= 1:
        raise InvalidParameter(f"Expected holdout < 1, got {holdout!r}.")
    others = _size_parts(task) + _holdout_parts(task, holdout)
    noise = _least_noise(recipe, task, holdout, others) if task.is_private else 0.0
    parts = (*others, recipe.part(noise, 1 - holdout, task))
    return Plan(parts, task.epsilon, task.delta)


def _size_parts(task: Task) -> tuple[Part, ...]:
    if task.n_public is not None:
        return ()
    scale = 1 / (SIZE_SHARE * task.epsilon) if task.is_private else 0.0
    return (Part("size", (Release("size", "discrete_laplace", scale),)),)


def _holdout_parts(task: Task, holdout: float) -> tuple[Part, ...]:
    if not holdout:
        return ()
    left = task.epsilon * (1.0 if task.n_public is not None else 1 - SIZE_SHARE)
    scale = 1 / left if task.is_private else 0.0
    return (Part("holdout", (Release("outcomes", "discrete_laplace", scale),), holdout),)


def _least_noise(recipe: Recipe, task: Task, holdout: float, others: tuple[Part, ...]) -> float:
    def charges_at(noise: float) -> tuple:
        parts = (*others, recipe.part(noise, 1 - holdout, task))
        return Plan(parts, task.epsilon, task.delta).charges()

    return calibrate(charges_at, task.epsilon, task.delta)


def discrete_laplace_variance(scale: float) -> float:
    """Return the variance of discrete Laplace noise; scale 0 means none."""
    if scale == 0:
        return 0.0
    ratio = math.exp(-1 / scale)
    return 2 * ratio / (1 - ratio) ** 2
