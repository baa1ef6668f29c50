"""The dual ascent that all constrained methods share: excesses over limits in, multipliers out.

The multiplier of a bound is the sum of its past excesses, projected onto an interval, plus a share of the present one:
the sum finds the level that holds the bound, the share damps oscillations around it. Methods differ only in step sizes
and projection, which are data here (`DualAscent`). Everything is computed from released counts and public numbers.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairveil._typing import Float64Array


class Multipliers(NamedTuple):
    """The multipliers after some steps, and what the next step needs to know of the past.

    `values` are the multipliers, `integral` the projected sum of past excesses, `excess` the last one, and `brakes` the
    factor by which each bound has been slowed down.
    """

    values: Float64Array
    integral: Float64Array
    excess: Float64Array
    brakes: Float64Array
    n_steps: int = 0


@dataclass(frozen=True)
class DualAscent:
    """Step sizes and projection of a dual ascent; every method has its own.

    Parameters
    ----------
    rate : float
        What one unit of excess adds to the integral in the first step.
    decay : float
        The rate falls as (step + 1) ** -decay.
    gain : float
        The share of the present excess that is added to the integral for the moment.
    cap : float
        Multipliers are projected onto [0, cap], or onto [-cap, cap] if `is_signed`.
    is_signed : bool
    slack : float
        Excesses within [-slack, slack] count as zero, larger ones as so much smaller.
    brake : float
        A bound whose excess changes its sign, by more than twice its standard error on both sides, moves this many
        times as fast from then on.
    warm_up : float
        In the first steps, up to this number, multipliers do not move.
    """

    rate: float
    decay: float = 0.0
    gain: float = 0.0
    cap: float = math.inf
    is_signed: bool = False
    slack: float = 0.0
    brake: float = 1.0
    warm_up: float = 0.0

    def start(self, shape: int | tuple[int, ...]) -> Multipliers:
        """Return multipliers of 0."""
        return Multipliers(np.zeros(shape), np.zeros(shape), np.zeros(shape), np.ones(shape))

    def step(
        self,
        now: Multipliers,
        excess: Float64Array,
        speeds: Float64Array | float = 1.0,
        gain_speeds: Float64Array | float = 1.0,
        caps: Float64Array | float | None = None,
        errors: Float64Array | float = 0.0,
    ) -> Multipliers:
        """Return the multipliers after one more step.

        Parameters
        ----------
        now : Multipliers
        excess : array
            Left side less what it should come down to, for each bound.
        speeds, gain_speeds : array or float
            Factors of `rate` and `gain` for each bound.
        caps : array or float, optional
            The largest multiplier of each bound; None is `cap` for all.
        errors : array or float
            Standard errors of the excesses, for the brake.
        """
        if now.n_steps < self.warm_up:
            return now._replace(n_steps=now.n_steps + 1)
        if self.slack:
            excess = np.sign(excess) * np.maximum(np.abs(excess) - self.slack, 0.0)
        brakes, braked = now.brakes, excess
        if self.brake != 1.0:
            smaller = np.minimum(np.abs(now.excess), np.abs(excess))
            swings = (now.excess * excess < 0) & (smaller > 2 * errors)
            brakes = np.where(swings, self.brake * brakes, brakes)
            braked = brakes * excess
        high = self.cap if caps is None else caps
        low = -high if self.is_signed else 0.0
        rates = self.rate / (now.n_steps + 1) ** self.decay * speeds
        integral = np.minimum(np.maximum(rates * braked + now.integral, low), high)
        values = integral
        if self.gain:
            gains = gain_speeds if self.gain == 1 else self.gain * gain_speeds
            values = np.minimum(np.maximum(gains * excess + integral, low), high)
        return Multipliers(values, integral, excess, brakes, now.n_steps + 1)


class SmoothedCounts(NamedTuple):
    """An exponentially weighted mean of noisy counts, without bias from the first count on.

    `total` over `weight` is the mean; with noise of variance v on every count, that of the mean is
    v `squares` / `weight`^2.
    """

    total: Float64Array
    weight: float = 0.0
    squares: float = 0.0

    def add(self, counts: Float64Array, kept: float) -> "SmoothedCounts":
        """Return the mean after one more count; older ones then weigh `kept` times as much."""
        return SmoothedCounts(kept * self.total + counts, kept * self.weight + 1, kept**2 * self.squares + 1)
