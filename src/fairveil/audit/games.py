"""Games: a plan, a recipe or any training function is run many times in two worlds, and the scores give an `Audit`.

`audit_plan` plays a plan's own stages through real veils, with the recipe that made it or, where only the plan is
known, with standard queries. `audit_one_run` puts many canaries into one training. `audit_training` takes any function
that trains. All records are synthetic: an audit costs no person any privacy.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from fairveil._random import Coins, secret_coins
from fairveil._validation import check_number
from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.events import Charge, Event
from fairveil.accounting.pricing import normal_epsilon
from fairveil.audit.bounds import (
    LowerBounds,
    advantage,
    curve_bound,
    excess,
    free_bound,
    lower_bounds,
    one_run_bound,
)
from fairveil.audit.transcript import (
    FAR,
    Canary,
    KnownOdds,
    Recorded,
    ScoredVeil,
    Script,
    WatchedVeil,
    joined,
    mixed_loss,
    planned_signal,
    replay,
    rows_at,
    script_of,
    transcript_loss,
)
from fairveil.errors import InvalidParameterError
from fairveil.models import LinearSoftmax
from fairveil.privacy.ledger import Ledger
from fairveil.privacy.noise import noise_distribution
from fairveil.privacy.plan import Plan, Stage
from fairveil.privacy.queries import Count, CrossEntropy, GradientSum, SoftDecision, Sum, one_cell
from fairveil.privacy.selection import FIT, TunedPlan, open_selection
from fairveil.privacy.veil import Veil, open_veils
from fairveil.training.recipe import Progress, Recipe, Task, no_progress
from fairveil.training.run import release_outcomes, run_plan
from fairveil.training.tuning import SCORE

LEAST_REPEATS = 20
LEAST_NOISE, MOST_STEPS = 1e-6, 200_000
"""Plans with less noise (or more than its inverse), or with more steps, are not played."""

PURPOSE = "an audit"
N_OTHERS = 300
"""How many records of another group a canary is tried with."""

N_PRESSING, PRESSING = 800, 0.04
"""How many records press weights away from a canary, on each side, and how far out they are relative to it: there a
minimizer moves by 0.82 of its sensitivity, against 0.48 for a canary alone."""

CLEARLY_MORE = 1.02
ERROR_SHARES = {"likelihood": 0.5, "tail": 0.2, "chosen": 0.1, "changes": 0.1, "free": 0.1}
"""How the error probability is shared out: for likelihood ratios above 0, for large ones, for those above a threshold
that the first draws choose (the best one if noise is not what the plan says), for changes from step to step, which show
noise that is not fresh, and for the bound that assumes nothing."""

TAIL = 0.35
"""Large likelihood ratios are those above this share of the claim."""

LOW_SHARE = 0.7
"""Of a choice among runs: so many runs, on average, lie below the edge under which lower ones are better."""

FIRST = 1e9
"""Added to the score of runs that come first."""

MODEL = LinearSoftmax(1, 2)
START = np.zeros(MODEL.n_params, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Subject:
    """What is audited: a plan and the recipes that follow it; without recipes, its releases are made by others.

    A plan of several runs has one recipe for each.
    """

    plan: Plan | TunedPlan
    recipes: tuple[Recipe, ...] = ()
    task: Task | None = None

    def __post_init__(self) -> None:
        if not self.plan.is_private:
            raise InvalidParameterError(
                "Expected a plan that claims privacy, got epsilon = infinity; audit one with a finite epsilon."
            )
        stages = self.plan.stages
        noises = [release.noise_multiplier for stage in stages for release in stage.releases]
        if not noises or min(noises) < LEAST_NOISE or max(noises) > 1 / LEAST_NOISE:
            raise InvalidParameterError("Expected a plan of releases with noise, got none or one without; plan again.")
        if sum(stage.n_steps for stage in stages) > MOST_STEPS:
            raise InvalidParameterError(f"Expected a plan of at most {MOST_STEPS} steps to play, got more.")

    @property
    def known_groups(self) -> NDArray[np.integer] | None:
        """The codes of known groups where an attribute alone is secret, else None."""
        if not (isinstance(self.plan, Plan) and self.plan.hides_attribute):
            return None
        return np.array([0]) if self.task is None else np.asarray(self.task.people.codes)


@dataclass(frozen=True)
class Audit:
    """A claim, and what the draws of a game prove against it.

    Attributes
    ----------
    game : str
        What was played.
    claim, delta : float
        The claimed epsilon at this delta.
    bounds : LowerBounds
    repeats : int
        How often each world was played, or the number of canaries of one run.
    reach : float or None
        What the canary contributed of what the plan allows, as a share of signal over noise; None if not known.
    """

    game: str
    claim: float
    delta: float
    bounds: LowerBounds
    repeats: int
    reach: float | None = None

    @property
    def lower_bound(self) -> float:
        """The larger of both bounds."""
        return self.bounds.best

    @property
    def holds(self) -> bool:
        """Whether nothing was found against the claim."""
        return self.lower_bound <= self.claim

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "game": self.game,
            "epsilon": self.claim,
            "delta": self.delta,
            "lower_bound": self.lower_bound,
            "lower_bound_free": self.bounds.free,
            "lower_bound_by_curve": self.bounds.by_curve,
            "ratio": self.lower_bound / self.claim,
            "confidence": self.bounds.confidence,
            "repeats": self.repeats,
            "reach": self.reach,
            "holds": self.holds,
        }


# --- a plan -----------------------------------------------------------------------------------------------------------


def audit_plan(
    subject: Subject,
    repeats: int = 1000,
    confidence: float = 0.999,
    is_adaptive: bool = False,
    progress: Progress = no_progress,
) -> Audit:
    """Play a plan with and without one canary through real veils, and bound its epsilon from below.

    Parameters
    ----------
    subject : Subject
    repeats : int
        How often each world is played.
    confidence : float
        Of the lower bound.
    is_adaptive : bool
        Run the recipe afresh in every repeat. Otherwise one run is recorded, and its queries are made again and again,
        which is much faster and distinguishes the worlds as well.
    progress : callable
        Wraps the range of repeats.
    """
    game, reach = choose_game(subject, secret_coins())
    if is_adaptive:
        game = replace(game, scripts=(), known=None)
    return replace(audit_game(game, repeats, confidence, progress), reach=reach)


def audit_game(game: "Game", repeats: int = 1000, confidence: float = 0.999, progress: Progress = no_progress) -> Audit:
    """Play one game in two worlds, and bound the epsilon of its plan from below; see `audit_plan`."""
    check_number("repeats", repeats, whole=True, at_least=LEAST_REPEATS)
    alpha = 1 - check_number("confidence", confidence, below=1)
    plan, subject = game.subject.plan, game.subject
    losses, changes = np.empty((2, repeats)), np.empty((2, repeats))
    for number in progress(range(repeats)):
        for world in (0, 1):
            losses[world, number], veils = game.play(is_in=world == 0)
            changes[world, number] = sum(veil.changes for veil in veils)
    charges = plan.charges()
    claim, each = epsilon_of(charges, plan.delta), {name: alpha * share for name, share in ERROR_SHARES.items()}
    # what likelihood ratios show, at thresholds that were fixed beforehand, and what changes show
    tail = TAIL * claim
    shown = {
        0.0: max(
            advantage(losses[0], losses[1], each["likelihood"], threshold=0.0),
            advantage(losses[0], losses[1], each["chosen"]),
            advantage(changes[0], changes[1], each["changes"]),
        ),
        tail: excess(losses[0], losses[1], tail, each["tail"], threshold=tail),
    }
    by_curve = curve_bound(shown, charges, plan.delta, plan.shares)
    bounds = LowerBounds(free_bound(losses[0], losses[1], plan.delta, each["free"]), by_curve, confidence)
    by = "standard queries"
    if subject.recipes:
        by = "the queries of a recorded run" if game.scripts else "its recipe, run afresh"
    return Audit(f"two worlds through the veil, by {by}", claim, plan.delta, bounds, repeats)


@dataclass(frozen=True, eq=False)
class Game:
    """A plan, a canary, secret coins; and the scripts of recorded runs, one for each recipe, if there are any."""

    subject: Subject
    canary: Canary
    coins: Coins
    scripts: tuple[Script, ...] = ()
    known: KnownOdds | None = None

    def play(self, is_in: bool) -> tuple[float, list[WatchedVeil]]:
        """Play once; return the log-likelihood ratio of all that was released, and the veils that released it."""
        subject, plan = self.subject, self.subject.plan
        records: Any = self.canary.records(is_in, subject.known_groups)
        if isinstance(plan, TunedPlan):
            return self._play_tuned(plan, records)
        opened = dict[str, WatchedVeil]()

        def open_with(*arguments: Any) -> Mapping[str, Veil]:
            opened.update(self.watched(open_veils(*arguments)))
            return opened

        if self.scripts or subject.task is None:
            open_with(records, plan, Ledger(), self.coins, PURPOSE)
            replay(opened, self.scripts[0] if self.scripts else standard_script(plan.stages))
        else:
            (recipe,), rng = subject.recipes, np.random.default_rng(0)
            facts = (plan, recipe, subject.task, records, Ledger(), self.coins, rng)
            run_plan(*facts, purpose=PURPOSE, open_with=open_with)
        return transcript_loss(opened.values()), list(opened.values())

    def watched(self, veils: Mapping[str, Veil]) -> dict[str, WatchedVeil]:
        """Return real veils, watched."""
        return {name: WatchedVeil(veil, self.canary, self.known) for name, veil in veils.items()}

    def recorded(self) -> tuple["Game", float]:
        """Return the same game by the releases of one run of each recipe, and the canary's share of what it may add.

        The share is in squared signal over noise.
        """
        plan = self.subject.plan
        if isinstance(plan, TunedPlan):
            runs = []
            for candidate, run in enumerate(plan.runs):
                watched = self.watched(open_veils(self.canary.records(True), run, Ledger(), self.coins, PURPOSE))
                self._follow(plan, candidate, watched, 1.0)
                runs.append(list(watched.values()))
        else:
            runs = [self.play(is_in=True)[1]]
        veils = [veil for run in runs for veil in run]
        share = sum(veil.signal for veil in veils) / sum(planned_signal(veil.stage, veil.rate) for veil in veils)
        return replace(self, scripts=tuple(map(script_of, runs)), known={}), share

    # --- the best of several runs ------------------------------------------------------------------------------

    def _play_tuned(self, plan: TunedPlan, records: Any) -> tuple[float, list[WatchedVeil]]:
        """Play a private choice among runs. The order of runs is public, so it is the worst one that there is.

        Low likelihood ratios are best, then high ones: a high one that wins has met none that speak against the canary.
        """
        veils, runs = open_selection(records, plan, Ledger(), self.coins, PURPOSE)
        around, size = self.watched(veils), 1.0
        replay(around, standard_script(plan.around))
        if self.subject.task is not None and self.subject.task.n_public is not None:
            size = self.subject.task.n_public * plan.shares.get(FIT, 1.0)
        spread = max(_spread(epsilon_of(run.charges(), plan.delta), plan.delta) for run in plan.runs)
        edge = spread * float(ndtri(min(0.5, LOW_SHARE / plan.mean_runs))) + spread**2 / 2

        def run(candidate: int, opened: dict[str, Veil]) -> tuple[float, list[WatchedVeil]]:
            watched = self.watched(opened)
            self._follow(plan, candidate, watched, size)
            loss = transcript_loss(watched.values())
            return FIRST - loss if loss <= edge else loss, list(watched.values())

        chosen = runs.keep_best(run).outcome
        losses = {veil.stage.subset: veil.loss for veil in around.values() if veil.stage.share < 1}
        losses[FIT] = _chosen_loss(transcript_loss(chosen), edge, spread, plan.mean_runs)
        everyone = sum(veil.loss for veil in around.values() if veil.stage.share == 1)
        return everyone + mixed_loss(losses, plan.shares or {FIT: 1.0}), [*around.values(), *chosen]

    def _follow(self, plan: TunedPlan, candidate: int, veils: Mapping[str, WatchedVeil], size: float) -> None:
        """Make one run: train by the candidate's recipe and count its score, or make its releases again."""
        task, run = self.subject.task, plan.runs[candidate]
        if self.scripts or task is None:
            replay(veils, self.scripts[candidate] if self.scripts else standard_script(run.stages))
            return
        recipe, own = self.subject.recipes[candidate], replace(task, epsilon=run.epsilon)
        n_train = size * run.shares.get("train", 1.0)
        fit = recipe.train(veils, own, n_train, np.random.default_rng(0), no_progress)
        release_outcomes(veils[SCORE], recipe.model_for(own), fit.params, fit.rule, own)


def _spread(epsilon: float, delta: float) -> float:
    """Return how far apart two unit normal distributions are that cost so much."""
    return float(brentq(lambda shift: normal_epsilon(shift, delta) - epsilon, 1e-6, 100 + epsilon))


def _chosen_loss(loss: float, edge: float, spread: float, mean_runs: float) -> float:
    """Return the log-likelihood ratio of the run that was chosen: its own, and that no better one was there.

    The ratios of runs are taken to be normal, as those of a Gaussian release are.
    """
    better = []
    for mean in (spread**2 / 2, -(spread**2) / 2):
        below, above = ndtr((min(loss, edge) - mean) / spread), ndtr((mean - loss) / spread) if loss > edge else 0.0
        better.append(float(below + above))
    return loss + mean_runs * (better[1] - better[0])


def standard_script(stages: Iterable[Stage]) -> Script:
    """Return one standard query for every planned release: a gradient, a vector or a count that reaches its bound."""
    script = {}
    for stage in stages:
        batch = []
        for release in stage.releases:
            law = noise_distribution(release.law)
            if law.is_whole or stage.by_group:
                count = {"is_whole": True, "is_by_group": True, "rounding": 1.0}
                batch.append(Recorded(Count(one_cell(2), 1), 1.0, release.name, count))
            elif law.norm == 2:
                gradient = GradientSum(MODEL, START, CrossEntropy())
                batch.append(Recorded(gradient, 1.0, release.name, {"norm": 2}))
            else:
                vector = Sum(one_cell(2), 1, SoftDecision(MODEL, START))
                batch.append(Recorded(vector, 1.0, release.name, {}))
        script[stage.name] = [batch] * stage.n_steps
    return script


# --- the canary -------------------------------------------------------------------------------------------------------


def choose_game(subject: Subject, coins: Coins) -> tuple[Game, float]:
    """Return a recorded game with the canary that contributes most, of a few that are tried, and its reach."""
    tried = [Game(subject, canary, coins).recorded() for canary in _candidates(subject)]
    best, share = tried[0]
    for game, own in tried[1:]:
        if own > CLEARLY_MORE * share:
            best, share = game, own
    return best, math.sqrt(min(1.0, share))


def _candidates(subject: Subject) -> Iterable[Canary]:
    """Yield canaries to try: far out or inside the declared norm, alone or among others who leave it more weight."""
    task = subject.task
    if task is None:
        yield Canary.at(np.full(1, FAR, np.float32), 1, 0)
        return
    axis = np.zeros(task.n_features + (task.predicts == "decoupled"), np.float32)
    axis[0] = 1.0
    inside = axis * np.float32(math.sqrt(max(0.25, task.input_norm**2 - 1)))
    group, *rest = [*map(int, task.people.codes)] or [0]
    for x in (FAR * axis, inside):
        yield Canary.at(x, 1, group)
    if rest:  # where each group has its own weight, that of a smaller one is larger
        yield Canary.at(FAR * axis, 1, group, rows_at(0 * axis[None], N_OTHERS, 0, rest[0]))
    # others who press weights the other way, each a little: the canary is surprising, and they hardly resist it
    near = np.float32(PRESSING) * inside[None]
    pressing = joined(rows_at(near, N_PRESSING, 0, group), rows_at(-near, N_PRESSING, 1, group))
    yield Canary.at(inside, 1, group, pressing)


# --- many canaries in one training ------------------------------------------------------------------------------------


def audit_one_run(subject: Subject, n_canaries: int, n_guesses: int | None = None, confidence: float = 0.999) -> Audit:
    """Put many canaries into one training, each in or out by a fair coin, and guess which were in.

    The score of a canary is the inner product of what it would add to each release with what was released.

    Parameters
    ----------
    subject : Subject
        With one recipe; its task needs one feature for each canary, so that they do not disturb each other.
    n_canaries : int
    n_guesses : int, optional
        The guesser abstains of the others; None is half of the canaries.
    confidence : float
    """
    plan, task = subject.plan, subject.task
    check_number("n_canaries", n_canaries, whole=True)
    if task is None or not isinstance(plan, Plan) or plan.hides_attribute or n_canaries > task.n_features:
        raise InvalidParameterError(
            "Expected a plan of one run, with its recipe, that hides whole records of one feature for each canary, got "
            "another; use audit_plan, or fewer canaries."
        )
    group = int(task.people.codes[0]) if len(task.people.codes) else 0
    rows = np.eye(n_canaries, task.n_features + (task.predicts == "decoupled"), dtype=np.float32) * np.float32(FAR)
    canaries = [Canary.at(row, 1, group) for row in rows]
    coins, opened = secret_coins(), dict[str, ScoredVeil]()
    is_in = coins.generator.random(n_canaries) < 0.5
    records = joined(*(one.record for one, included in zip(canaries, is_in, strict=True) if included))

    def open_with(*arguments: Any) -> Mapping[str, Veil]:
        opened.update({name: ScoredVeil(veil, canaries) for name, veil in open_veils(*arguments).items()})
        return opened

    (recipe,), rng = subject.recipes, np.random.default_rng(0)
    run_plan(plan, recipe, task, records, Ledger(), coins, rng, purpose=PURPOSE, open_with=open_with)
    scores = np.sum([veil.scores for veil in opened.values()], axis=0)
    found = one_run_bound(scores, is_in, n_guesses or n_canaries // 2, plan.delta, confidence)
    claim = epsilon_of(plan.charges(), plan.delta)
    bounds = LowerBounds(found, 0.0, confidence)
    return Audit("one training with many canaries", claim, plan.delta, bounds, n_canaries)


# --- any training function --------------------------------------------------------------------------------------------


def audit_training(
    train: Callable[[bool], Any],
    charges: Iterable[Charge | Event],
    delta: float,
    repeats: int = 1000,
    confidence: float = 0.999,
    progress: Progress = no_progress,
) -> Audit:
    """Run a training function in two worlds many times, and bound its epsilon from below by what it returns.

    Parameters
    ----------
    train : callable
        Takes whether the canary is among the records, trains afresh, and returns numbers that an attacker sees: a
        score, or a vector such as all weights, in which the first quarter of the runs finds the direction that tells
        the worlds apart.
    charges : iterable of Charge or Event
        What it claims to release, ``ledger.entries[-1].charges`` or ``plan_.charges()`` for instance.
    delta, confidence : float
    repeats : int
        How often each world is run.
    progress : callable
        Wraps the range of repeats.
    """
    check_number("repeats", repeats, whole=True, at_least=LEAST_REPEATS)
    runs: list[list[NDArray[np.float64]]] = [[], []]
    for _ in progress(range(repeats)):
        for world in (0, 1):
            runs[world].append(np.asarray(train(world == 0), dtype=np.float64).ravel())
    one, other = (np.array(world) for world in runs)
    first = repeats // 4 if one.shape[1] > 1 else 0
    direction = np.ones(1)
    if first:
        spread = np.var(one[:first], axis=0) + np.var(other[:first], axis=0)
        direction = (one[:first].mean(axis=0) - other[:first].mean(axis=0)) / np.maximum(spread, 1e-300)
    charges = tuple(charges)
    found = lower_bounds(one[first:] @ direction, other[first:] @ direction, charges, delta, confidence)
    return Audit("two worlds through a training function", epsilon_of(charges, delta), delta, found, repeats)
