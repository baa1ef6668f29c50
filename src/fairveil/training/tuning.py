"""Several recipes in, the best one's model out: tried, scored and chosen privately, for little more than one training.

One secret split keeps "fit" and "holdout" apart. Every run splits "fit" afresh, trains a candidate on one part and
counts its decisions, with noise, on the other; a public score of these counts says which run is best, and that run
alone is released (`fairveil.privacy.selection`). The people of "holdout" had no part in training or choosing, so what
is counted on them is an honest estimate.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from fairveil._random import Coins
from fairveil._typing import Float64Array
from fairveil._validation import check_number
from fairveil.accounting.composition import calibrate, epsilon_of
from fairveil.accounting.events import BestOfRuns, Event, GaussianRelease
from fairveil.errors import InvalidParameterError, without_array_sizes
from fairveil.fairness.constraints import Constraint, constrain
from fairveil.fairness.rates import Population
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.plan import Plan, Release, Stage
from fairveil.privacy.probes import check_model
from fairveil.privacy.selection import FIT, HOLDOUT, TunedPlan, best_of_plans, open_selection
from fairveil.privacy.veil import Records, Veil
from fairveil.training.recipe import Fit, Recipe, Task, no_progress
from fairveil.training.run import (
    SCORES,
    StagesAt,
    Trained,
    check_scores,
    counting_stages,
    release_outcomes,
    release_scores,
    release_size,
    size_stages,
)

SCORE = "score"
Score = Callable[[Float64Array, Population, float], float]
"""Noisy counts (group code, label, decision), of which people, and the variance of their noise in; a number out, the
higher the better. It must be public and answer any counts: an error would tell of a run that is not released."""


def accuracy_under_bounds(
    counts: Float64Array,
    people: Population,
    noise_variance: float,
    constraint: Constraint | Sequence[Constraint] = (),
    weight: float = 2.0,
) -> float:
    """Return the noisy accuracy minus `weight` times the largest excess over the limits of the constraint.

    Bounds on groups too small to be distinguished from noise do not count.

    Examples
    --------
    >>> from fairveil.fairness.rates import Attribute
    >>> people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    >>> counts = np.array([[[40.0, 10.0], [0.0, 50.0]], [[50.0, 0.0], [0.0, 50.0]], np.zeros((2, 2))])
    >>> accuracy_under_bounds(counts, people, 0.0)
    0.95
    """
    accuracy = float(np.einsum("gkk->", counts) / max(counts.sum(), 1.0))
    if isinstance(constraint, Sequence) and not constraint:
        return accuracy
    bounds = constrain(constraint, people)
    counted = bounds.cells >= 0
    histogram = np.zeros((bounds.n_cells, people.n_classes))
    np.add.at(histogram, bounds.cells[counted], counts[counted])
    excess = bounds.violation(histogram)[bounds.estimate(histogram, noise_variance).has_enough_people]
    return accuracy - weight * float(np.max(excess, initial=0.0))


@dataclass(frozen=True)
class Tuning:
    """Candidate recipes, and how one of them is chosen privately.

    Parameters
    ----------
    candidates : tuple of Recipe
        Each run draws one of them, all alike.
    mean_runs : float
        How many runs are made is secret: Poisson(mean_runs), conditional on at least 1.
    share : float
        The share of a run's people that its score is counted on; it trains on the others.
    score : callable
        A public function of the noisy counts; with constraints, ``partial(accuracy_under_bounds, constraint=...)``.
    """

    candidates: tuple[Recipe, ...]
    mean_runs: float = 8.0
    share: float = 0.15
    score: Score = field(default=accuracy_under_bounds)

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", tuple(self.candidates))
        if not self.candidates:
            raise InvalidParameterError("Expected at least one candidate, got none; name recipes to choose from.")
        check_number("mean_runs", self.mean_runs)
        if not 0 < self.share < 1:
            raise InvalidParameterError(f"Expected 0 < share < 1, got {self.share!r}.")


@dataclass(frozen=True, eq=False)
class Tuned:
    """What left the veil: the best run's model, its outcomes on the hold-out, whose recipe it was, its noisy score.

    The score is that of a winner, hence flattering; the outcomes on the hold-out are not.
    """

    trained: Trained
    candidate: int
    score: float


def tuned_plan(tuning: Tuning, task: Task, holdout: float = 0.0, auc: bool = False) -> TunedPlan:
    """Return the plan of a choice among recipes: all of it together costs at most (task.epsilon, task.delta).

    Every subset of every candidate is calibrated to cost the same per run; one common factor then lets the choice, with
    the noisy size if none is declared, meet the budget. The hold-out has a budget of its own people.
    """
    if not 0 <= holdout < 1:
        raise InvalidParameterError(f"Expected 0 <= holdout < 1, got {holdout!r}.")
    if auc:
        check_scores(task, holdout)
    size = size_stages(task)
    fixed = [stage.event for stage in size]
    run_task = replace(task, epsilon=_run_epsilon(tuning.mean_runs, fixed, task))
    subsets = [_leveled(recipe, tuning.share, run_task) for recipe in tuning.candidates]

    def runs_at(scale: float) -> tuple[Plan, ...]:
        stages = (tuple(stage for at in each for stage in at(scale)) for each in subsets)
        return tuple(Plan(run, run_task.epsilon, task.delta, task.unit) for run in stages)

    def charges(scale: float) -> list[Event]:
        return [*fixed, best_of_plans(runs_at(scale), tuning.mean_runs)]

    scale = calibrate(charges, task.epsilon, task.delta) if task.is_private else 0.0
    around = size
    if holdout:
        std = 0.0
        if task.is_private:
            std = calibrate(
                lambda std: [*fixed, *(stage.event for stage in counting_stages(std, holdout, auc=auc))],
                task.epsilon,
                task.delta,
            )
        around += counting_stages(std, holdout, auc=auc)
    return TunedPlan(runs_at(scale), tuning.mean_runs, around, task.epsilon, task.delta, task.unit)


def _run_epsilon(mean_runs: float, fixed: list[Event], task: Task) -> float:
    """Return what a run may cost if it were one Gaussian release; recipes choose public numbers by it."""
    if not task.is_private:
        return task.epsilon

    def charges(noise: float) -> list[Event]:
        return [*fixed, BestOfRuns(((GaussianRelease(noise),),), mean_runs)]

    return epsilon_of([GaussianRelease(calibrate(charges, task.epsilon, task.delta))], task.delta)


def _leveled(recipe: Recipe, share: float, task: Task) -> list[StagesAt]:
    """Return, for each subset of a run, its stages at a multiple of the noise at which it costs the run's epsilon."""
    recipe.check(task)

    def stages_of(subset: str, unit: float, scale: float) -> tuple[Stage, ...]:
        noise = unit * scale
        score = Stage(SCORE, (Release("outcomes", "discrete_gaussian", noise),), share)
        return tuple(stage for stage in (*recipe.stages(noise, 1 - share, task), score) if stage.subset == subset)

    subsets = [*dict.fromkeys(stage.subset for stage in recipe.stages(1.0, 1 - share, task)), SCORE]
    levels: list[StagesAt] = []
    for subset in subsets:
        unit = 0.0
        if task.is_private:

            def events(noise: float, subset: str = subset) -> list[Event]:
                return [stage.event for stage in stages_of(subset, 1.0, noise)]

            unit = calibrate(events, task.epsilon, task.delta)
        levels.append(partial(stages_of, subset, unit))
    return levels


def run_tuned_plan(
    plan: TunedPlan,
    tuning: Tuning,
    task: Task,
    records: Records,
    ledger: Ledger,
    coins: Coins,
    rng: np.random.Generator,
    purpose: str = "tuned training",
) -> Tuned:
    """Debit the plan, make the runs, keep the best, and count it on the hold-out.

    There is no progress to watch: it would tell how many runs there are.

    Guarantees
    ----------
    (plan.epsilon, plan.delta)-differential privacy of everything returned, for neighbors that differ by one unit added
    or removed. Assumes that the coins are secret, that the facts of `task` and the score are public, and that nobody
    measures time.
    """
    seed = int(rng.integers(2**63))  # one draw, whatever the number of runs
    with threadpool_limits(1, user_api="blas"), without_array_sizes():
        for recipe in tuning.candidates if plan.is_private else ():
            check_model(recipe.model_for(task))
        veils, runs = open_selection(records, plan, ledger, coins, purpose)
        everyone = release_size(veils["size"], task) if task.n_public is None else float(task.n_public)
        for stage in plan.around:
            veils[stage.name].expect(everyone * stage.share)
        run = partial(_run, plan, tuning, task, everyone * plan.shares.get(FIT, 1.0), seed)
        best = runs.keep_best(run)
        trained: Trained = best.outcome
        if HOLDOUT in veils:
            fit = trained.fit
            outcomes = release_outcomes(veils[HOLDOUT], trained.model, fit.params, fit.rule, task)
            scores = release_scores(veils[SCORES], trained.model, fit.params, task) if SCORES in veils else None
            trained = Trained(trained.model, fit, trained.size, *outcomes, scores=scores)
    return Tuned(trained, best.candidate, best.score)


def _run(
    plan: TunedPlan,
    tuning: Tuning,
    task: Task,
    size: float,
    seed: int,
    candidate: int,
    veils: dict[str, Veil],
) -> tuple[float, Trained]:
    """Return one run of a candidate and its score."""
    recipe, run = tuning.candidates[candidate], plan.runs[candidate]
    for stage in run.stages:
        veils[stage.name].expect(size * stage.share)
    own = replace(task, epsilon=run.epsilon)
    n_train = size * run.shares.get("train", 1.0)
    model = recipe.model_for(own)
    fit: Fit = recipe.train(veils, own, n_train, np.random.default_rng(seed), no_progress)
    counts, variance = release_outcomes(veils[SCORE], model, fit.params, fit.rule, own)
    return tuning.score(counts, task.people, variance), Trained(model, fit, n_train, None, 0.0)
