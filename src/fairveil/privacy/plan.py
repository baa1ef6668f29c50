"""The plan: every public number of a run, fixed before any data is touched.

A plan lists its stages: which subset of the data each reads, how it is sampled, how often, and what is released with
how much noise. From it follow the events that the ledger debits, the sentences of `explain`, and what the veil lets
through: a batch refuses a release that its plan does not list.
"""

import math
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from fairveil._random import Coins
from fairveil._validation import check_number
from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.events import (
    Charge,
    DisjointCells,
    Event,
    Joint,
    NonPrivateRelease,
    PoissonSampled,
    Repeated,
)
from fairveil.accounting.pricing import count_uses, total_magnitude
from fairveil.errors import InvalidParameterError
from fairveil.privacy.attribute import hides_attribute
from fairveil.privacy.ledger import Ledger, Receipt
from fairveil.privacy.noise import noise_distribution, public_scale

ALL = "all"
EVERYONE = ((-1, 1.0),)
"""Sampling rates that take every record."""


@dataclass(frozen=True)
class Release:
    """One noisy sum per step: its name, the law of its noise, and noise (std or scale) over sensitivity."""

    name: str
    law: str
    noise_multiplier: float

    def __post_init__(self) -> None:
        law = noise_distribution(self.law)
        if not self.noise_multiplier >= 0:
            raise InvalidParameterError(f"Expected noise_multiplier >= 0, got {self.noise_multiplier!r}.")
        if law.is_whole and self.noise_multiplier:
            # The exact samplers take fractions: account for the very scale that is used.
            object.__setattr__(self, "noise_multiplier", float(public_scale(self.noise_multiplier)))

    @property
    def event(self) -> Event:
        """What one use costs."""
        if self.noise_multiplier == 0:
            return NonPrivateRelease(f"{self.name} without noise")
        return noise_distribution(self.law).event(self.noise_multiplier)


@dataclass(frozen=True)
class Stage:
    """A stage of the run and what it releases: `n_steps` draws at public rates, each with the same releases.

    `subset` names the subset of the secret split that is read; empty means one of the stage's own name. Stages that
    read one subset (training steps, then one further count of the same people) compose in sequence, subsets in
    parallel. A stage of share 1 reads everyone. `by_group` says that, where an attribute alone is secret, the one
    release of a batch keeps sums apart by cells, and that what a record adds depends on its attribute only by the cell.
    """

    name: str
    releases: tuple[Release, ...]
    share: float = 1.0
    rates: Mapping[int, float] | tuple[tuple[int, float], ...] = EVERYONE
    n_steps: int = 1
    subset: str = ""
    by_group: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "subset", self.subset or self.name)
        check_number("share", self.share, at_most=1)
        check_number("n_steps", self.n_steps, whole=True)
        object.__setattr__(self, "rates", tuple(dict(self.rates).items()))
        for rate in self.sampling_rates.values():
            check_number("sampling_rate", rate, at_most=1)
        if self.by_group and len(self.releases) != 1:
            raise InvalidParameterError(
                f"Expected one release a batch where sums are kept apart by group, got {len(self.releases)}."
            )

    @property
    def sampling_rates(self) -> dict[int, float]:
        """The public rate of each cell; -1 stands for all others."""
        return dict(self.rates)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> "Stage":
        """Return the part that `to_dict` wrote."""
        releases = tuple(Release(r["name"], r["law"], r["noise_multiplier"]) for r in facts["releases"])
        rates = {-1 if cell == ALL else int(cell): rate for cell, rate in facts["sampling_rates"].items()}
        more = (facts["n_steps"], facts.get("piece", ""), facts.get("by_group", False))
        return cls(facts["part"], releases, facts["share"], rates, *more)

    @property
    def event(self) -> Event:
        """All steps of this part: one joint event a step, sampled at the largest rate of any cell."""
        events = tuple(release.event for release in self.releases)
        step = events[0] if len(events) == 1 else Joint(events)
        rate = max(self.sampling_rates.values())
        if rate < 1 and not any(isinstance(event, NonPrivateRelease) for event in events):
            step = PoissonSampled(rate, step)
        if self.by_group and not isinstance(step, NonPrivateRelease):
            step = DisjointCells(step)
        return Repeated(step, self.n_steps) if self.n_steps > 1 else step

    def to_dict(self) -> dict[str, Any]:
        """Return the public numbers as plain values."""
        subset = {"piece": self.subset} if self.subset != self.name else {}
        return {
            "part": self.name,
            **subset,
            **({"by_group": True} if self.by_group else {}),
            "share": self.share,
            "sampling_rates": {ALL if cell == -1 else str(cell): q for cell, q in self.sampling_rates.items()},
            "n_steps": self.n_steps,
            "releases": [
                {
                    "name": release.name,
                    "law": release.law,
                    "noise_multiplier": release.noise_multiplier,
                    "joint_batch": len(self.releases) > 1,
                }
                for release in self.releases
            ],
        }


@dataclass(frozen=True)
class Plan:
    """Stages on subsets that secret random numbers keep apart, and stages on all data (share 1).

    `epsilon` and `delta` are what the plan was calibrated to (`math.inf`: no privacy is claimed), `unit` whom one unit
    stands for: "record" or "person by COLUMN".
    """

    stages: tuple[Stage, ...]
    epsilon: float
    delta: float
    unit: str = "record"

    def __post_init__(self) -> None:
        shares = self.shares
        if any(stage.by_group for stage in self.stages) and not hides_attribute(self.unit):
            raise InvalidParameterError(
                f"Expected sums apart by group to hide an attribute alone, got the unit {self.unit!r}: a record that "
                "is replaced may stay in its group."
            )
        for stage in self.stages:
            if stage.share < 1 and stage.share != shares[stage.subset]:
                raise InvalidParameterError(
                    f"Expected all stages that read {stage.subset!r} to state one share, got "
                    f"{stage.share} and {shares[stage.subset]}."
                )
        split = sum(shares.values())
        if split and abs(split - 1) > 1e-9:
            raise InvalidParameterError(f"Expected the shares of a split to add up to 1, got {split}.")

    @property
    def is_private(self) -> bool:
        """Whether any guarantee is claimed."""
        return math.isfinite(self.epsilon)

    @property
    def shares(self) -> dict[str, float]:
        """The share of each subset of the secret split."""
        return {stage.subset: stage.share for stage in self.stages if stage.share < 1}

    def to_list(self) -> list[dict[str, Any]]:
        """Return all parts as plain values, each with what it costs by itself."""
        return [{**stage.to_dict(), **cost_by_itself(stage.event, self)} for stage in self.stages]

    def stage(self, name: str) -> Stage:
        """Return the part of that name."""
        return next(stage for stage in self.stages if stage.name == name)

    def charges(self, split: str = "split") -> tuple[Charge, ...]:
        """Return what the ledger debits: subsets of the split in parallel, stages on all data in sequence."""
        return tuple(
            Charge(stage.event, unit=self.unit)
            if stage.share == 1
            else Charge(stage.event, split, stage.subset, self.unit)
            for stage in self.stages
        )


class PublicPlan(Protocol):
    """The public numbers of a plan, which are debited before it is carried out."""

    @property
    def epsilon(self) -> float:
        """The epsilon that it was calibrated to."""

    @property
    def delta(self) -> float:
        """The delta that it is stated at."""

    @property
    def is_private(self) -> bool:
        """Whether it claims any guarantee."""

    def charges(self, split: str) -> tuple[Charge, ...]:
        """Return what the ledger debits."""


def debit_plan(plan: PublicPlan, ledger: Ledger, coins: Coins, purpose: str) -> Receipt:
    """Debit a plan under a new split name; with coins that are not secret, it is debited as not private."""
    split = uuid.uuid4().hex[:12]
    charges = plan.charges(split)
    if plan.is_private and not coins.is_secret:
        charges = only_nonprivate(charges, "seeded coins")
    details = {"epsilon": plan.epsilon if plan.is_private else None, "delta": plan.delta}
    return ledger.debit(charges, purpose, details, split)


def cost_by_itself(event: Event, claim: PublicPlan) -> dict[str, float | None]:
    """Return the epsilon and delta of one event as plain values, pure where it is, None where nothing is claimed."""
    if not claim.is_private:
        return {"epsilon": None, "delta": None}
    pure = total_magnitude(count_uses(event)).pure
    if math.isfinite(pure):
        return {"epsilon": pure, "delta": 0.0}
    return {"epsilon": epsilon_of([event], claim.delta), "delta": claim.delta}


def only_nonprivate(charges: Iterable[Charge], reason: str) -> tuple[Charge, ...]:
    """Return the same charges without any claim, for releases whose coins are not secret."""
    return tuple(replace(charge, event=NonPrivateRelease(reason)) for charge in charges)
