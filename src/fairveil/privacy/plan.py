"""The plan: every public number of a run, fixed before any data is touched.

A plan lists the parts of the data, how each is sampled, how often, and what is released at each step with how much
noise. From it follow the events that the ledger books, the sentences of `explain`, and what the veil lets through:
a batch refuses a release that its plan does not list.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from fairveil._validate import check_choice, check_integer, check_probability
from fairveil.errors import InvalidParameter
from fairveil.privacy.accounting import epsilon_of
from fairveil.privacy.events import (
    Charge,
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    Event,
    GaussianRelease,
    Joint,
    LaplaceRelease,
    NonPrivateRelease,
    PoissonSampled,
    Repeated,
)
from fairveil.privacy.mechanisms import public_scale

__all__ = ["EVERYONE", "LAWS", "Part", "Plan", "Release"]

LAWS: Mapping[str, Callable[[float], Event]] = MappingProxyType(
    {
        "gaussian": GaussianRelease,
        "laplace": LaplaceRelease,
        "discrete_laplace": DiscreteLaplaceRelease,
        "discrete_gaussian": DiscreteGaussianRelease,
    }
)

PURE_LAWS = frozenset({"laplace", "discrete_laplace"})

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
        check_choice("law", self.law, LAWS)
        if not self.noise_multiplier >= 0:
            raise InvalidParameter(f"Expected noise_multiplier >= 0, got {self.noise_multiplier!r}.")
        if self.law.startswith("discrete") and self.noise_multiplier:
            # The exact samplers take fractions: account for the very scale that is used.
            object.__setattr__(self, "noise_multiplier", float(public_scale(self.noise_multiplier)))

    @property
    def event(self) -> Event:
        """What one use costs."""
        if self.noise_multiplier == 0:
            return NonPrivateRelease(f"{self.name} without noise")
        return LAWS[self.law](self.noise_multiplier)


@dataclass(frozen=True)
class Part:
    """A part of the data and what is asked of it: `n_steps` draws at public rates, each with the same releases."""

    name: str
    releases: tuple[Release, ...]
    share: float = 1.0
    rates: Mapping[int, float] | tuple[tuple[int, float], ...] = EVERYONE
    n_steps: int = 1

    def __post_init__(self) -> None:
        check_probability("share", self.share)
        check_integer("n_steps", self.n_steps)
        object.__setattr__(self, "rates", tuple(dict(self.rates).items()))
        for rate in self.sampling_rates.values():
            check_probability("sampling_rate", rate)

    @property
    def sampling_rates(self) -> dict[int, float]:
        """The public rate of each cell; -1 stands for all others."""
        return dict(self.rates)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> "Part":
        """Return the part that `to_dict` wrote."""
        releases = tuple(Release(r["name"], r["law"], r["noise_multiplier"]) for r in facts["releases"])
        rates = {-1 if cell == ALL else int(cell): rate for cell, rate in facts["sampling_rates"].items()}
        return cls(facts["part"], releases, facts["share"], rates, facts["n_steps"])

    @property
    def event(self) -> Event:
        """All steps of this part: one joint event a step, sampled at the largest rate of any cell."""
        events = tuple(release.event for release in self.releases)
        step = events[0] if len(events) == 1 else Joint(events)
        rate = max(self.sampling_rates.values())
        if rate < 1 and not any(isinstance(event, NonPrivateRelease) for event in events):
            step = PoissonSampled(rate, step)
        return Repeated(step, self.n_steps) if self.n_steps > 1 else step

    def to_dict(self) -> dict[str, Any]:
        """Return the public numbers as plain values."""
        return {
            "part": self.name,
            "share": self.share,
            "sampling_rates": {
                ALL if cell == -1 else str(cell): q for cell, q in self.sampling_rates.items()
            },
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
    """Parts that a secret coin of each unit keeps apart, and parts that are the whole data (share 1).

    `epsilon` and `delta` are what the plan was calibrated to (`math.inf`: no privacy is claimed), `unit` whom one unit
    stands for: "record" or "person by COLUMN".
    """

    parts: tuple[Part, ...]
    epsilon: float
    delta: float
    unit: str = "record"

    def __post_init__(self) -> None:
        split = sum(part.share for part in self.parts if part.share < 1)
        if split and abs(split - 1) > 1e-9:
            raise InvalidParameter(f"Expected the shares of a split to add up to 1, got {split}.")

    @property
    def is_private(self) -> bool:
        """Whether any guarantee is claimed."""
        return math.isfinite(self.epsilon)

    @property
    def shares(self) -> dict[str, float]:
        """The parts that the secret split makes."""
        return {part.name: part.share for part in self.parts if part.share < 1}

    def to_list(self) -> list[dict[str, Any]]:
        """Return all parts as plain values, each with what it costs by itself."""
        return [{**part.to_dict(), **self._cost(part)} for part in self.parts]

    def _cost(self, part: Part) -> dict[str, float | None]:
        if not self.is_private:
            return {"epsilon": None, "delta": None}
        if all(release.law in PURE_LAWS for release in part.releases):
            pure = sum(1 / release.noise_multiplier for release in part.releases)
            return {"epsilon": part.n_steps * pure, "delta": 0.0}
        return {"epsilon": epsilon_of([part.event], self.delta), "delta": self.delta}

    def part(self, name: str) -> Part:
        """Return the part of that name."""
        return next(part for part in self.parts if part.name == name)

    def charges(self, split: str = "split") -> tuple[Charge, ...]:
        """Return what the ledger books: parts of the split in parallel, whole-data parts in sequence."""
        return tuple(self._charge_of(part, split) for part in self.parts)

    def _charge_of(self, part: Part, split: str) -> Charge:
        if part.share == 1:
            return Charge(part.event, unit=self.unit)
        return Charge(part.event, split, part.name, self.unit)


def only_nonprivate(charges: Iterable[Charge], reason: str) -> tuple[Charge, ...]:
    """Return the same charges without any claim, for releases whose coins are not secret."""
    return tuple(replace(charge, event=NonPrivateRelease(reason)) for charge in charges)
