"""The best of several private runs, chosen privately: a secret number of runs, one release, one debit.

A plan of several candidate runs is debited as one event before anything happens. Then K runs are made, K secret, each
by a candidate drawn at random on a ledger of its own; the best is released and everything else forgotten, K too.
What that costs, and why, stands in docs/proofs/selection.md.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from typing import Any, Generic, TypeVar

from fairveil._random import Coins
from fairveil._validation import check_number
from fairveil.accounting.events import BestOfRuns, Charge, Event, NonPrivateRelease
from fairveil.accounting.pricing import compositions_of, count_uses
from fairveil.errors import InvalidParameterError, UnplannedReleaseError
from fairveil.privacy.ledger import Ledger, Receipt
from fairveil.privacy.plan import Plan, Stage, cost_by_itself
from fairveil.privacy.sampling import uniform_below
from fairveil.privacy.veil import Records, Veil, open_veils

FIT, HOLDOUT = "fit", "holdout"
"""The piece of the people that runs train and score on, and the one that only the best run is counted on."""

UNIFORM_BITS = 128
DIGITS = 60
"""The number of runs is read off a uniform number of 128 bits with 60 digits: its law is right to 1e-36."""

Way = frozenset[tuple[Event, int]]
T = TypeVar("T")


def best_of_plans(runs: Iterable[Plan], mean_runs: float) -> BestOfRuns:
    """Return the event of keeping the best of Poisson(mean_runs) runs, each by one of these plans at random.

    Examples
    --------
    >>> from fairveil.privacy.plan import Release
    >>> run = Plan((Stage("train", (Release("sum", "gaussian", 5.0),)),), math.inf, 1e-5)
    >>> best_of_plans([run, run], 8.0)
    BestOfRuns(ways=((GaussianRelease(noise_multiplier=5.0),),), mean=8.0)
    """
    ways = dict.fromkeys(way for run in runs for way in _listed(run.charges()))
    return BestOfRuns(tuple(ways), mean_runs)


def _listed(charges: Iterable[Charge]) -> list[tuple[Event, ...]]:
    """Return the events that a unit may meet, a tuple for each piece of the split; all meet those on everyone."""
    whole = tuple(charge.event for charge in charges if not charge.split)
    subsets: dict[str, tuple[Event, ...]] = {}
    for charge in charges:
        if charge.split:
            subsets[charge.part] = (*subsets.get(charge.part, ()), charge.event)
    return [whole + subset for subset in subsets.values()] or [whole]


def _ways(charges: Iterable[Charge]) -> set[Way]:
    return {frozenset(way.items()) for way in compositions_of(charges).worst_cases()}


def _priced(event: BestOfRuns) -> set[Way]:
    uses = (sum((count_uses(one) for one in way), Counter[Event]()) for way in event.ways)
    return {frozenset(way.items()) for way in uses}


@dataclass(frozen=True)
class TunedPlan:
    """The public numbers of a choice among runs; has what a `Plan` has.

    Attributes
    ----------
    runs : tuple of Plan
        One run of each candidate, on the piece "fit".
    mean_runs : float
        The number of runs is Poisson(mean_runs), conditioned to be at least 1.
    around : tuple of Part
        What is released besides: "size" of everyone, "holdout" of the people who had no part in any run.
    epsilon, delta, unit
        As in a `Plan`.
    """

    runs: tuple[Plan, ...]
    mean_runs: float
    around: tuple[Stage, ...]
    epsilon: float
    delta: float
    unit: str = "record"

    def __post_init__(self) -> None:
        if not self.runs:
            raise InvalidParameterError("Expected at least one candidate to run, got none; name one.")
        check_number("mean_runs", self.mean_runs)
        if {stage.subset for stage in self.around if stage.share < 1} - {HOLDOUT}:
            raise InvalidParameterError(
                'Expected parts of everyone and of "holdout" around the runs, got others; leave them out.'
            )

    @property
    def is_private(self) -> bool:
        """Whether any guarantee is claimed."""
        return math.isfinite(self.epsilon)

    @property
    def shares(self) -> dict[str, float]:
        """The pieces that the secret split makes; none where everyone may be in every run."""
        held = {stage.subset: stage.share for stage in self.around if stage.share < 1}
        return {FIT: 1 - sum(held.values()), **held} if held else {}

    @property
    def event(self) -> BestOfRuns:
        """What the release of the best run costs the people of the piece "fit"."""
        return best_of_plans(self.runs, self.mean_runs)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All parts, those of runs under names such as "run 1: train", with their shares of everyone."""
        share = self.shares.get(FIT, 1.0)
        numbered = ((number, stage) for number, run in enumerate(self.runs, start=1) for stage in run.stages)
        return self.around + tuple(
            replace(
                stage,
                name=f"run {number}: {stage.name}",
                subset=f"run {number}: {stage.subset}",
                share=stage.share * share,
            )
            for number, stage in numbered
        )

    def stage(self, name: str) -> Stage:
        """Return the part of that name."""
        return next(stage for stage in self.stages if stage.name == name)

    def charges(self, split: str = "split") -> tuple[Charge, ...]:
        """Return what the ledger debits: the best run as one event, beside the hold-out; the size in sequence."""
        best: Event = self.event if self.is_private else NonPrivateRelease("the best of runs without noise")
        charges = [(stage.subset if stage.share < 1 else "", stage.event) for stage in self.around]
        charges.append((FIT if self.shares else "", best))
        return tuple(Charge(event, split if subset else "", subset, self.unit) for subset, event in charges)

    def to_list(self) -> list[dict[str, Any]]:
        """Return all parts as plain values, each with what it costs by itself; those of runs say how many there are."""
        stages = []
        for stage in self.stages:
            is_run = {} if stage in self.around else {"mean_runs": self.mean_runs}
            stages.append({**stage.to_dict(), **is_run, **cost_by_itself(stage.event, self)})
        return stages

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` needs besides the budget."""
        return {
            "mean_runs": self.mean_runs,
            "runs": [
                {
                    "epsilon": run.epsilon if run.is_private else None,
                    "parts": [stage.to_dict() for stage in run.stages],
                }
                for run in self.runs
            ],
            "around": [stage.to_dict() for stage in self.around],
        }

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any], epsilon: float, delta: float, unit: str = "record") -> "TunedPlan":
        """Return the plan that `to_dict` wrote, calibrated to this budget."""
        runs = tuple(
            Plan(
                tuple(Stage.from_dict(stage) for stage in run["parts"]),
                run["epsilon"] or math.inf,
                delta,
                unit,
            )
            for run in facts["runs"]
        )
        around = tuple(Stage.from_dict(stage) for stage in facts["around"])
        return cls(runs, facts["mean_runs"], around, epsilon, delta, unit)


def draw_count(mean: float, coins: Coins) -> int:
    """Return a Poisson(mean) number, conditioned to be at least 1, by inversion in long decimals."""
    with localcontext() as context:
        context.prec = DIGITS
        goal = (Decimal(mean).exp() - 1) * uniform_below(2**UNIFORM_BITS, coins) / 2**UNIFORM_BITS
        count, term = 1, Decimal(mean)
        total = term
        while total <= goal:
            count += 1
            term = term * Decimal(mean) / count
            total += term
    return count


@dataclass(frozen=True, eq=False)
class Best(Generic[T]):
    """The best run, all of it released: whose plan it followed, its score, and what it handed over."""

    candidate: int
    score: float
    outcome: T


def open_selection(
    records: Records, plan: TunedPlan, ledger: Ledger, coins: Coins, purpose: str
) -> tuple[dict[str, Veil], "Runs"]:
    """Debit the plan, split the records, and return a veil for each part around the runs, and the runs themselves.

    Guarantees
    ----------
    The debit is on disk before the first coin is tossed. With coins that are not secret, or at epsilon = infinity,
    the entry says that the release is not private.
    """
    receipt = ledger.debit_plan(plan, coins, purpose)
    subsets = dict(records.split(plan.shares, coins)) if plan.shares else {FIT: records}
    veils = {
        stage.name: Veil(
            (records if stage.share == 1 else subsets[stage.subset]).arranged(coins), stage, receipt, coins
        )
        for stage in plan.around
    }
    return veils, Runs(subsets[FIT], plan, receipt, coins)


class Runs:
    """Runs on one piece of the records that were paid for by one debit, to be made once."""

    def __init__(self, records: Records, plan: TunedPlan, receipt: Receipt, coins: Coins) -> None:
        if not isinstance(receipt, Receipt):
            raise UnplannedReleaseError("Expected the receipt of a debit, got none; use open_selection.")
        events = [charge.event for charge in receipt.entry.charges]
        self._paid = [event for event in events if isinstance(event, BestOfRuns)]
        if plan.is_private and coins.is_secret and [event.mean for event in self._paid] != [plan.mean_runs]:
            raise UnplannedReleaseError(
                f"Expected one debit of the best of {plan.mean_runs:g} runs, got another; use open_selection."
            )
        self._records = records
        self._plan = plan
        self._coins = coins
        self._is_made = False

    def keep_best(self, run: Callable[[int, dict[str, Veil]], tuple[float, T]]) -> Best[T]:
        """Make a secret number of runs and return the best; nothing else of them is ever released.

        Parameters
        ----------
        run : callable
            Takes the number of a candidate and the veils of its plan, returns a score, the higher the better (a score
            that is no number is the lowest), and what is to be released. It must do nothing else that can be seen:
            no progress, no log, no public coins that others use.

        Guarantees
        ----------
        That of the debited event: runs are alike and independent, their number follows its law, and what each is let
        see was in the price. Assumes that nobody measures the time this takes, which tells the number of runs.
        """
        if self._is_made:
            raise UnplannedReleaseError("Expected one choice for one debit, got a second; open a new selection.")
        self._is_made = True
        best = self._one(run)
        for _ in range(draw_count(self._plan.mean_runs, self._coins) - 1):
            other = self._one(run)
            # the first of equals stays: runs are exchangeable, so it is as good as a random one
            best = other if other.score > best.score else best
        return best

    def _one(self, run: Callable[[int, dict[str, Veil]], tuple[float, T]]) -> Best[T]:
        candidate = uniform_below(len(self._plan.runs), self._coins)
        score, outcome = run(candidate, self._opened(self._plan.runs[candidate]))
        return Best(candidate, -math.inf if math.isnan(score) else float(score), outcome)

    def _opened(self, plan: Plan) -> dict[str, Veil]:
        """Return the veils of one run on a ledger of its own, if what they release was paid for."""
        scratch = Ledger()
        veils = open_veils(self._records, plan, scratch, self._coins, "a run")
        debited = _ways(charge for entry in scratch.entries for charge in entry.charges)
        if any(not debited <= _priced(event) for event in self._paid):
            raise UnplannedReleaseError(
                "Expected a run to debit what was paid for, got something else; plan all candidates before the debit."
            )
        return veils
