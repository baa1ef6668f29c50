"""One budget in, one plan out: every noise level of a run is settled before any data is touched."""

import math
from collections.abc import Callable
from functools import partial

from fairveil.errors import InvalidParameter
from fairveil.privacy.attribute import hides_attribute
from fairveil.privacy.calibration import calibrate
from fairveil.privacy.events import Event
from fairveil.privacy.plan import Part, Plan, Release
from fairveil.training.task import HoldoutReader, Recipe, Task

__all__ = [
    "SIZE_SHARE",
    "calibrated_parts",
    "make_counting_plan",
    "make_plan",
    "outcomes_part",
    "precision_of",
    "size_parts",
]

SIZE_SHARE = 0.02
"""The part of epsilon that buys a noisy number of records where none is declared."""


def make_plan(recipe: Recipe, task: Task, holdout: float = 0.0) -> Plan:
    """Return the plan of a run: training, a noisy size if none is declared, outcomes on a hold-out if one is asked for.

    Training and hold-out are pieces of one secret split, so they compose in parallel; the size is asked of everyone and
    composes with both. The noise of each piece is the least that meets the whole budget together with the size.
    """
    if not 0 <= holdout < 1:
        raise InvalidParameter(f"Expected 0 <= holdout < 1, got {holdout!r}.")
    recipe.check(task)
    size = size_parts(task)
    parts = size + calibrated_parts(lambda noise: recipe.parts(noise, 1 - holdout, task), size, task)
    if holdout:
        parts += calibrated_parts(lambda noise: _holdout_parts(recipe, noise, holdout, task), size, task)
    return Plan(parts, task.epsilon, task.delta, task.unit)


def make_counting_plan(epsilon: float, delta: float, unit: str) -> Plan:
    """Return the plan of one look at everyone: how a released rule decides, by group and label."""
    std = 0.0
    if math.isfinite(epsilon):
        std = calibrate(lambda noise: [outcomes_part(noise, 1.0).event], epsilon, delta)
    return Plan((outcomes_part(std, 1.0, hides_attribute(unit)),), epsilon, delta, unit)


def _holdout_parts(recipe: Recipe, noise_multiplier: float, share: float, task: Task) -> tuple[Part, ...]:
    more = recipe.holdout_parts(noise_multiplier, share, task) if isinstance(recipe, HoldoutReader) else ()
    return (outcomes_part(noise_multiplier, share, task.hides_attribute), *more)


def size_parts(task: Task) -> tuple[Part, ...]:
    """Return the noisy number of units that is bought where none is declared."""
    if task.n_public is not None or task.hides_attribute:
        return ()
    scale = 1 / (SIZE_SHARE * task.epsilon) if task.is_private else 0.0
    return (Part("size", (Release("size", "discrete_laplace", scale),)),)


def outcomes_part(std: float, share: float, by_group: bool = False) -> Part:
    """Return the one look at people held out: how the released rule decides, by group and label."""
    # Gaussian, because the outcomes of several runs on the same people then compose as gently as their trainings do.
    return Part("holdout", (Release("outcomes", "discrete_gaussian", std),), share, by_group=by_group)


def calibrated_parts(
    parts_at: Callable[[float], tuple[Part, ...]], size: tuple[Part, ...], task: Task
) -> tuple[Part, ...]:
    """Return the parts, those of each piece at the least noise that, with the size, costs no more than the budget."""
    if not task.is_private:
        return parts_at(0.0)
    fixed = [part.event for part in size]

    def of_piece(piece: str, noise: float) -> tuple[Part, ...]:
        return tuple(part for part in parts_at(noise) if part.piece == piece)

    def charges(piece: str, noise: float) -> list[Event]:
        return [*fixed, *(part.event for part in of_piece(piece, noise))]

    pieces = dict.fromkeys(part.piece for part in parts_at(1.0))
    noises = {piece: calibrate(partial(charges, piece), task.epsilon, task.delta) for piece in pieces}
    return tuple(part for piece, noise in noises.items() for part in of_piece(piece, noise))


def precision_of(part: Part) -> float:
    """Return about how telling a part is: the squared signal over noise, 0 where there is no noise."""
    rate = max(part.sampling_rates.values())
    noises = [release.noise_multiplier for release in part.releases]
    return part.n_steps * rate**2 * sum(1 / noise**2 for noise in noises if noise)
