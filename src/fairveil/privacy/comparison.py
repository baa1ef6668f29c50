"""Older ways to account, for comparison with papers: Rényi (a bound) and Gaussian (not a bound)."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatch

from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

from fairveil._validate import check_delta
from fairveil.errors import UnsupportedEvent
from fairveil.privacy.events import Charge, Event, GaussianRelease, Joint, LaplaceRelease, PoissonSampled
from fairveil.privacy.pricing import count_uses, gaussian_multiplier
from fairveil.privacy.sizes import normal_epsilon
from fairveil.privacy.ways import ways_through

__all__ = ["NotABound", "gdp_epsilon", "rdp_epsilon"]


@dataclass(frozen=True)
class NotABound:
    """An approximation that may lie below the true epsilon: quote it beside a paper, never as a guarantee."""

    epsilon: float


def rdp_epsilon(charges: Iterable[Charge | Event], delta: float) -> float:
    """Return epsilon by Rényi composition: a bound under add or remove one, looser than `epsilon_of`.

    Knows Gaussian and Laplace noise, joint releases of them, and sampled Gaussians; refuses all else.
    """
    delta = check_delta(delta)
    return max(_rdp(way, delta) for way in ways_through(charges).each())


def _rdp(uses: Counter[Event], delta: float) -> float:
    # add or remove only: under REPLACE_ONE this accountant forgets to double the sensitivity
    accountant = RdpAccountant()
    for event, count in uses.items():
        accountant.compose(_renyi(event), count)
    return float(accountant.get_epsilon(delta)) if uses else 0.0


@singledispatch
def _renyi(event: Event) -> dp_event.DpEvent:
    raise UnsupportedEvent(f"Expected Gaussian or Laplace noise to compare, got {type(event).__name__}.")


@_renyi.register
def _(event: GaussianRelease) -> dp_event.DpEvent:
    return dp_event.GaussianDpEvent(event.noise_multiplier)


@_renyi.register
def _(event: LaplaceRelease) -> dp_event.DpEvent:
    return dp_event.LaplaceDpEvent(event.noise_multiplier)


@_renyi.register
def _(event: Joint) -> dp_event.DpEvent:
    uses = [(inner, count) for release in event.releases for inner, count in count_uses(release).items()]
    parts = [dp_event.SelfComposedDpEvent(_renyi(inner), count) for inner, count in uses]
    return dp_event.ComposedDpEvent(parts)


@_renyi.register
def _(event: PoissonSampled) -> dp_event.DpEvent:
    return dp_event.PoissonSampledDpEvent(event.rate, dp_event.GaussianDpEvent(_gaussian(event.event)))


def gdp_epsilon(charges: Iterable[Charge | Event], delta: float) -> NotABound:
    """Return the central-limit approximation of epsilon (Gaussian DP): NOT a bound, and often too low.

    Knows Gaussian noise, sampled or not; refuses all else.
    """
    delta = check_delta(delta)
    ways = ways_through(charges).each()
    shifts = (math.sqrt(sum(count * _shift_squared(event) for event, count in way.items())) for way in ways)
    return NotABound(max(normal_epsilon(shift, delta) for shift in shifts))


def _shift_squared(event: Event) -> float:
    if isinstance(event, PoissonSampled) and event.rate < 1:
        # mu^2 of one step: q^2 (e^(1/sigma^2) - 1) (Bu, Dong, Long and Su 2020)
        return event.rate**2 * math.expm1(_gaussian(event.event) ** -2)
    return _gaussian(event) ** -2


def _gaussian(event: Event) -> float:
    inner = event.event if isinstance(event, PoissonSampled) and event.rate == 1 else event
    multiplier = gaussian_multiplier(inner)
    if multiplier is None:
        raise UnsupportedEvent(f"Expected Gaussian noise to compare, got {type(inner).__name__}.")
    return multiplier
