"""The plan: every public number of a run, fixed before any data is touched.

A plan lists its stages: which subset of the data each reads, how it is sampled, how often, and what is released with
how much noise. From it follow the events that the ledger debits, the sentences of `explain`, and what the veil lets
through: a batch refuses a release that its plan does not list.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
from fairveil.privacy.attribute import ATTRIBUTE
from fairveil.privacy.ledger import PublicPlan
from fairveil.privacy.noise import noise_distribution, public_scale

ALL = "all"
EVERYONE = ((-1, 1.0),)
"""Sampling rates that take every record."""


@dataclass(frozen=True)
class Release:
    """One noisy sum per step: its name, the law of its noise, and noise (std or scale) over sensitivity.

    `event` is what one use costs.
    """

    name: str
    law: str
    noise_multiplier: float
    event: Event = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        law = noise_distribution(self.law)
        if not self.noise_multiplier >= 0:
            raise InvalidParameterError(f"Expected noise_multiplier >= 0, got {self.noise_multiplier!r}.")
        if law.is_whole and self.noise_multiplier:
            # The exact samplers take fractions: account for the very scale that is used.
            object.__setattr__(self, "noise_multiplier", float(public_scale(self.noise_multiplier)))
        has_noise = self.noise_multiplier > 0
        event = law.event(self.noise_multiplier) if has_noise else NonPrivateRelease(f"{self.name} without noise")
        object.__setattr__(self, "event", event)


@dataclass(frozen=True)
class Stage:
    """A stage of the run and what it releases: `n_steps` draws at public rates, each with the same releases.

    `subset` names the subset of the secret split that is read; empty means one of the stage's own name. Stages that
    read one subset (training steps, then one further count of the same people) compose in sequence, subsets in
    parallel. A stage of share 1 reads everyone. `by_group` says that, where an attribute alone is secret, the one
    release of a batch keeps sums apart by cells, and that what a record adds depends on its attribute only by the cell.

    Attributes
    ----------
    largest_rate : float
        The largest sampling rate of any cell, at which all cells are accounted for.
    noise_multipliers : dict
        Those of the releases, by name.
    precision : float
        About how precise the stage is: the squared signal over noise, 0 where there is no noise.
    event : Event
        What all steps cost: one joint event a step, sampled at the largest rate of any cell.
    """

    name: str
    releases: tuple[Release, ...]
    share: float = 1.0
    rates: Mapping[int, float] | tuple[tuple[int, float], ...] = EVERYONE
    n_steps: int = 1
    subset: str = ""
    by_group: bool = False
    largest_rate: float = field(init=False, repr=False, compare=False)
    noise_multipliers: Mapping[str, float] = field(init=False, repr=False, compare=False)
    precision: float = field(init=False, repr=False, compare=False)
    event: Event = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rates = dict(self.rates)
        check_number("share", self.share, at_most=1)
        check_number("n_steps", self.n_steps, whole=True)
        for rate in rates.values():
            check_number("sampling_rate", rate, at_most=1)
        if self.by_group and len(self.releases) != 1:
            raise InvalidParameterError(
                f"Expected one release a batch where sums are kept apart by group, got {len(self.releases)}."
            )
        largest = max(rates.values())
        noises = {release.name: release.noise_multiplier for release in self.releases}
        events = tuple(release.event for release in self.releases)
        step = events[0] if len(events) == 1 else Joint(events)
        if largest < 1 and not any(isinstance(event, NonPrivateRelease) for event in events):
            step = PoissonSampled(largest, step)
        if self.by_group and not isinstance(step, NonPrivateRelease):
            step = DisjointCells(step)
        derived = {
            "subset": self.subset or self.name,
            "releases": tuple(self.releases),
            "rates": tuple(rates.items()),
            "largest_rate": largest,
            "noise_multipliers": noises,
            "precision": self.n_steps * largest**2 * sum(1 / noise**2 for noise in noises.values() if noise**2 > 0),
            "event": Repeated(step, self.n_steps) if self.n_steps > 1 else step,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> "Stage":
        """Return the part that `to_dict` wrote."""
        releases = tuple(Release(r["name"], r["law"], r["noise_multiplier"]) for r in facts["releases"])
        rates = {-1 if cell == ALL else int(cell): rate for cell, rate in facts["sampling_rates"].items()}
        more = (facts["n_steps"], facts.get("piece", ""), facts.get("by_group", False))
        return cls(facts["part"], releases, facts["share"], rates, *more)

    def to_dict(self) -> dict[str, Any]:
        """Return the public numbers as plain values."""
        subset = {"piece": self.subset} if self.subset != self.name else {}
        return {
            "part": self.name,
            **subset,
            **({"by_group": True} if self.by_group else {}),
            "share": self.share,
            "sampling_rates": {ALL if cell == -1 else str(cell): q for cell, q in dict(self.rates).items()},
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

    Attributes
    ----------
    is_private : bool
        Whether any guarantee is claimed.
    hides_attribute : bool
        Whether one unit is the sensitive attribute alone of a record or person.
    shares : dict
        The share of each subset of the secret split.
    """

    stages: tuple[Stage, ...]
    epsilon: float
    delta: float
    unit: str = "record"
    is_private: bool = field(init=False, repr=False, compare=False)
    hides_attribute: bool = field(init=False, repr=False, compare=False)
    shares: Mapping[str, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shares = {stage.subset: stage.share for stage in self.stages if stage.share < 1}
        derived = {
            "is_private": math.isfinite(self.epsilon),
            "hides_attribute": self.unit.startswith(ATTRIBUTE),
            "shares": shares,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        if any(stage.by_group for stage in self.stages) and not self.hides_attribute:
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


def cost_by_itself(event: Event, claim: PublicPlan) -> dict[str, float | None]:
    """Return the epsilon and delta of one event as plain values, pure where it is, None where nothing is claimed."""
    if not claim.is_private:
        return {"epsilon": None, "delta": None}
    pure = total_magnitude(count_uses(event)).pure
    if math.isfinite(pure):
        return {"epsilon": pure, "delta": 0.0}
    return {"epsilon": epsilon_of([event], claim.delta), "delta": claim.delta}
