"""Noisy histograms in, multipliers out: projected ascent on what the bounds still break.

The multiplier of a bound is the sum of its past violations, kept in [0, cap], plus a share of the present one: the sum
finds the level that holds the bound, the share damps the swings around it. Everything here is computed from released
counts and public numbers. The constants were set on public data sets: docs/defaults.md.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fairveil._typing import Float64Array
from fairveil.fairness.histogram import HistogramConstraints, Ratios

TRAVEL = 60.0
"""How far the sum goes in all for a bound that is broken by 1 all the time."""

GAIN = 1.0
"""The share of the present violation that is added."""

TYPICAL_SHARE = 0.3
"""A bound on fewer people than this share of a batch moves more slowly, by a square root: few people answer slowly."""

LARGEST_PULL = 10.0
"""A bound pulls at one record at most about so many times as hard as the loss can: no handful of people decides for
everyone."""

UNCLEAR = 0.05
"""Violations are left alone as far as they may be noise: all of it where the noise is far above this, little below."""

SMOOTHING = 0.9
WARM_UP = 0.1
REFRESH = 10
"""Aims and caps change slowly: they are computed anew after so many steps."""

PULL_EVERY = 2
"""The pull changes slowly too."""


class StepSizes(NamedTuple):
    """How the ascent goes for some steps.

    What each left side should come down to, how much of its excess is added to the sum and how much to the multiplier
    at once, the largest multipliers, and the standard error of each left side from noise of variance 1 on every count.
    """

    aims: Float64Array
    rates: Float64Array
    gains: Float64Array
    caps: Float64Array
    errors: Float64Array


class DualState(NamedTuple):
    """Where the ascent stands: smoothed counts and their rates, past violations, and the multipliers."""

    total: Float64Array
    weight: float
    squares: float
    ratios: Ratios
    values: Float64Array
    integral: Float64Array
    multipliers: Float64Array
    pace: StepSizes

    @property
    def spread(self) -> float:
        """The standard deviation of the smoothed noise over that of one batch."""
        return math.sqrt(self.squares) / self.weight


@dataclass(frozen=True, eq=False)
class Ascent:
    """The rule of the ascent, from public facts alone.

    Parameters
    ----------
    constraints : HistogramConstraints
    n_steps : int
    expected_batch, sampling_rate : float
    noise_variance : float
        Of each count of one batch.
    headroom : float
        How many standard errors of the people to stay below each limit.
    """

    constraints: HistogramConstraints
    n_steps: int
    expected_batch: float
    sampling_rate: float
    noise_variance: float
    headroom: float = 1.0

    @cached_property
    def floor(self) -> float:
        """The least number of people in a batch that a rate is divided by."""
        return max(1.0, 1e-3 * self.expected_batch)

    def start(self) -> DualState:
        """Return the state before any count: no multiplier."""
        counts = np.zeros((self.constraints.n_cells, self.constraints.n_classes))
        none = np.zeros(len(self.constraints.bounds))
        ratios = self.constraints.ratios(counts, self.floor)
        return DualState(counts, 0.0, 0.0, ratios, none, none, none, StepSizes(none, none, none, none, none))

    def observe(self, dual: DualState, counts: Float64Array, step: int) -> DualState:
        """Return the state after one more batch: counts smoothed without bias, multipliers moved (Algorithm 1).

        During the first steps, while the model leaves its start, multipliers rest.
        """
        total = SMOOTHING * dual.total
        total += counts
        weight, squares = SMOOTHING * dual.weight + 1, SMOOTHING**2 * dual.squares + 1
        average = total / weight
        pace = (
            dual.pace
            if step % REFRESH
            else self._pace(average, math.sqrt(self.noise_variance * squares) / weight)
        )
        ratios = self.constraints.ratios(average, self.floor)
        values = self.constraints.weights @ ratios.rates
        integral = multipliers = dual.integral
        if step >= WARM_UP * self.n_steps:
            excess = values - pace.aims
            integral = _within(pace.rates * excess + integral, pace.caps)
            multipliers = _within(pace.gains * excess + integral, pace.caps)
        return DualState(total, weight, squares, ratios, values, integral, multipliers, pace)

    def pull(self, dual: DualState) -> Float64Array:
        """Return the pull on each (cell, class), for sums over a batch of the expected size."""
        return self.expected_batch * self.constraints.pull_of(dual.ratios, dual.multipliers)

    def errors(self, dual: DualState) -> Float64Array:
        """Return the standard error of each left side from the noise on the smoothed counts."""
        return math.sqrt(self.noise_variance) * dual.spread * dual.pace.errors

    def _pace(self, average: Float64Array, noise: float) -> StepSizes:
        errors = self.constraints.standard_errors(average, 1.0, self.floor)
        people = self.constraints.sampling_errors(average, self.floor) * np.sqrt(self.sampling_rate)
        room = self.headroom * people
        shares = self.constraints.smallest_parts(average, self.floor) / self.expected_batch
        speeds = np.sqrt(np.minimum(shares / TYPICAL_SHARE, 1.0))
        aims = aims_of(self.constraints.limits, room, noise * errors)
        return StepSizes(aims, TRAVEL / self.n_steps * speeds, GAIN * speeds, prices_of(shares), errors)


def _within(multipliers: Float64Array, caps: Float64Array) -> Float64Array:
    """Project onto [0, cap]; overwrites its argument."""
    np.maximum(multipliers, 0.0, out=multipliers)
    return np.minimum(multipliers, caps, out=multipliers)


def aims_of(limits: Float64Array, room: Float64Array, noise: Float64Array) -> Float64Array:
    """Return what each left side should come down to.

    Below the limit by `room`, so that people who were not seen meet it too (but by no more than half of it); above it
    by what noise of this standard error can feign.
    """
    return limits - np.minimum(room, np.abs(limits) / 2) + noise**2 / (noise + UNCLEAR)


def prices_of(shares: Float64Array) -> Float64Array:
    """Return the largest multiplier of a bound, given the share of people behind its smallest rate."""
    return LARGEST_PULL * shares
