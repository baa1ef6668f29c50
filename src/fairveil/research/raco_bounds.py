"""Theorem 5.2 of RaCO-DP (Yaghini et al. 2025) in numbers: the constants of Appendix D, as printed and as provable.

The theorem speaks of Algorithm 1 without clipping, with multipliers from a bounded set, and of *some* iterate. No
training and no certificate uses these numbers. docs/errata.md says what is wrong with the printed ones. Where a printed
constant is too small, the corrected one is proved in the docstring; `docs/research/papers/raco.md` has the values at
the paper's settings, where the bound says nothing.
"""

import math
from dataclasses import dataclass

import numpy as np

from fairveil._validation import check_number

SLOPE, CURVATURE = 1 / (2 * math.sqrt(2)), 0.25
"""Of one coordinate p_k of a softmax: |gradient| <= sqrt(2) p_k (1 - p_k) <= 1 / (2 sqrt 2), |Hessian| <= 1/4.

For |u| = 1, with m and V the mean and the variance of u over the other classes and a = (u_k - m)^2 <= 2, the second
derivative along u is p (1 - p) ((1 - 2p) a - V). Its positive part is at most 2 p (1 - p) (1 - 2p) <= .193. As
V <= 1/2 and V + a <= 2, its negative part is at most p (1 - p) / 2 for p <= 1/2, else p (1 - p) (3p - 1) <= .236."""


@dataclass(frozen=True)
class Regularity:
    """What the Lagrangian is made of.

    Parameters
    ----------
    loss_lipschitz, loss_smoothness : float
        Of the mean loss as a function of the parameters (the paper's G_l and beta_l).
    model_lipschitz, model_smoothness : float
        Of the logits of a record (G_h, beta_h); a linear model has smoothness 0.
    temperature : float
    weight : float
        The largest sum of absolute weights of a bound (c_1); 2 for a difference of two rates.
    diameter : float
        The L1 diameter of the set of multipliers, which contains 0.
    n_bounds : int

    Examples
    --------
    >>> adult = Regularity(5.5, 7.5, 3.9, 0.0, 1.0, 2.0, 1.0, 4)
    >>> round(adult.printed_lipschitz, 1), round(adult.lipschitz, 1)
    (13.3, 8.3)
    """

    loss_lipschitz: float
    loss_smoothness: float
    model_lipschitz: float
    model_smoothness: float
    temperature: float
    weight: float
    diameter: float
    n_bounds: int

    @property
    def printed_lipschitz(self) -> float:
        """Lemma D.10's Lipschitz constant of the Lagrangian in the parameters; it holds."""
        return self.loss_lipschitz + self.weight * self.temperature * self.model_lipschitz * self.diameter

    @property
    def printed_smoothness(self) -> float:
        """Lemma D.10's smoothness of the Lagrangian; it fails for high temperatures and long inputs."""
        inner = self.diameter * (2 * self.model_lipschitz + self.temperature * self.model_smoothness)
        largest = max(self.model_lipschitz * math.sqrt(self.n_bounds), inner)
        return self.loss_smoothness + 2 * self.weight * self.temperature * largest

    @property
    def rate_lipschitz(self) -> float:
        """Of one soft rate: the slope of a softmax coordinate times that of its logits."""
        return SLOPE * self.temperature * self.model_lipschitz

    @property
    def rate_smoothness(self) -> float:
        """Of one soft rate: the chain rule of Lemma D.9's proof (its statement squares the other factor)."""
        bend = CURVATURE * (self.temperature * self.model_lipschitz) ** 2
        return bend + SLOPE * self.temperature * self.model_smoothness

    @property
    def lipschitz(self) -> float:
        """The Lipschitz constant with the softmax's own slope."""
        return self.loss_lipschitz + self.weight * self.diameter * self.rate_lipschitz

    @property
    def smoothness(self) -> float:
        """A smoothness that holds: the norm of [[A, B], [B', 0]] is at most |A| + |B|.

        A is the Hessian in the parameters; each of the J rows of B is the gradient of a bound's left side.
        """
        own = self.weight * self.diameter * self.rate_smoothness
        return self.loss_smoothness + own + math.sqrt(self.n_bounds) * self.weight * self.rate_lipschitz


@dataclass(frozen=True)
class Setting:
    """The sizes that Theorem D.1 depends on.

    Parameters
    ----------
    regularity : Regularity
    smallest, n_rows, n_params, n_classes : int
        Of the smallest part of the partition (n), all rows, parameters (d), classes (K).
    sampling_rate, epsilon, delta : float
    failure : float
        The probability rho that the theorem's event does not happen.
    """

    regularity: Regularity
    smallest: int
    n_rows: int
    n_params: int
    n_classes: int
    sampling_rate: float
    epsilon: float
    delta: float
    failure: float = 0.05

    def __post_init__(self) -> None:
        for name in ("sampling_rate", "delta", "failure"):
            check_number(name, getattr(self, name), at_most=1)

    @property
    def n_steps(self) -> int:
        """The number of steps T of Appendix D.3: the smaller of (n epsilon / sqrt d)^(4/3) and n epsilon / K."""
        power = self.smallest * self.epsilon
        return max(1, math.floor(min((power / math.sqrt(self.n_params)) ** (4 / 3), power / self.n_classes)))

    @property
    def gradient_noise(self) -> float:
        """The standard deviation sigma of Appendix D.3, without its universal constant."""
        steps = math.sqrt(self.n_steps) * math.log(self.n_steps / self.delta)
        return self.regularity.printed_lipschitz * steps / (self.smallest * self.epsilon)

    @property
    def histogram_noise(self) -> float:
        """The Laplace scale b of Appendix D.3."""
        return self.sampling_rate * math.sqrt(self.n_steps) * math.log(self.n_steps / self.delta) / self.epsilon

    @property
    def needed_rows(self) -> float:
        """The smallest part that Theorem D.1 asks for."""
        J, T, rho = self.regularity.n_bounds, self.n_steps, self.failure
        steps = math.log(2 * self.regularity.weight * J * T / rho)
        noise = 8 * self.n_classes * self.histogram_noise / self.sampling_rate * math.log(2 * T / rho)
        batch = 8 * math.log(J * self.n_rows * T * self.n_classes / rho)
        return max(steps, noise, batch) / self.sampling_rate

    @property
    def holds(self) -> bool:
        """Whether the conditions are met: enough rows, and a sampling rate of at least 1 / sqrt(T)."""
        return self.smallest >= self.needed_rows and self.sampling_rate >= self.n_steps**-0.5

    @property
    def dual_error(self) -> float:
        """Lemma D.4's bound on the error of every left side, in one step."""
        mean = self.sampling_rate * self.smallest
        count = self.regularity.n_bounds * self.n_classes * self.smallest / self.failure
        noise = 8 * self.n_classes * self.histogram_noise * math.log(64 * count) / mean
        return self.regularity.weight * (noise + math.sqrt(math.log(8 * count) / mean))

    @property
    def printed_primal_error(self) -> float:
        """Lemma D.4's bound on the error of the gradient; its first term fails for few parameters."""
        return self._primal_error(self.gradient_noise * math.sqrt(self.n_params * math.log(4 / self.failure)))

    @property
    def primal_error(self) -> float:
        """The same with `gaussian_radius` in the place of the first term."""
        return self._primal_error(self.gradient_noise * gaussian_radius(self.n_params, self.failure / 4))

    def _primal_error(self, noise: float) -> float:
        own, logs = self.regularity, math.sqrt(math.log(4 / self.failure))
        batch = 4 * own.loss_lipschitz * logs / math.sqrt(self.sampling_rate * self.n_rows)
        return noise + batch + own.diameter * own.temperature * own.model_lipschitz * self.dual_error


def gaussian_radius(n: int, failure: float) -> float:
    """Return a radius that a standard Gaussian vector of `n` numbers leaves with at most this probability.

    The norm is 1-Lipschitz and at most sqrt(n) on average.

    Examples
    --------
    >>> round(gaussian_radius(100, 0.01), 2)
    13.03
    """
    return math.sqrt(n) + math.sqrt(2 * math.log(1 / failure))


def ratio_error(mean: float, n_counts: int, scale: float, failure: float) -> float:
    """Return Lemma C.1's bound on the error of a rate whose denominator has this mean and so many Laplace noises.

    Infinite where its condition is not met.
    """
    if mean < 4 * n_counts * scale * math.log(1 / (2 * failure)):
        return math.inf
    return 4 * n_counts * scale * math.log(8 / failure) / mean


def printed_sample_error(n_rows: int, rate: float, failure: float) -> float:
    """Return Lemma C.2's bound on the error of a sampled mean, with the constant 1 that its uses take."""
    return math.sqrt(math.log(1 / failure) / (rate * n_rows))


def sample_error(n_rows: int, rate: float, failure: float) -> float:
    """Return Bernstein's bound on both tails of that error: variance at most (1 - rate) / (rate n), jumps 1 / (rate n).

    Examples
    --------
    >>> round(printed_sample_error(36_000, 0.0142, 0.05), 3), round(sample_error(36_000, 0.0142, 0.05), 3)
    (0.077, 0.122)
    """
    mean, logs = rate * n_rows, math.log(2 / failure)
    return logs / (3 * mean) + math.sqrt((logs / (3 * mean)) ** 2 + 2 * (1 - rate) * logs / mean)


def printed_stationarity(
    lipschitz: float, smoothness: float, diameter: float, n_steps: int, errors: tuple[float, float],
    gap: float, rise: float,
) -> float:  # fmt: skip
    """Return alpha by the last line of the proof of Theorem D.5, whose constants are printed there.

    Parameters
    ----------
    lipschitz, smoothness, diameter : float
        G, beta and the L1 diameter of the set of multipliers.
    n_steps : int
    errors : pair of float
        Of the gradient in the parameters (tau_theta) and of every left side (tau_lambda), in each step.
    gap, rise : float
        How far the envelope of the objective starts above its minimum, and how far the Lagrangian may rise.
    """
    primal, dual = errors
    descent = 16 * math.sqrt(gap * smoothness * (lipschitz**2 + primal**2) / n_steps)
    squares = descent + 4 * primal**2 + 16 * smoothness * diameter * dual + 16 * smoothness * rise / n_steps
    return math.sqrt(squares)


def stationarity(
    lipschitz: float, smoothness: float, diameter: float, n_steps: int, errors: tuple[float, float],
    gap: float, rise: float, dual_rate: float | None = None,
) -> float:  # fmt: skip
    """Return alpha by Equation 23 and Lemma D.7, added up without the slips of the last page.

    The descent along the envelope has 8 tau_theta^2, not 4 (Equation 23 times 4 / eta). The mean distance of the
    multipliers from the best ones is the smallest, over blocks of M steps, of eta G (G + tau_theta) M + diameter^2 /
    (M dual_rate) + 2 diameter tau_lambda + rise / T, where `rise` is how far the Lagrangian may come *above* its start
    (the paper subtracts the minimum). At the printed dual rate eta G (G + tau_theta) / tau_lambda the first two terms
    together are 2 diameter sqrt(tau_lambda), not tau_lambda, so a rate with tau_lambda^2 is taken if none is set.

    Parameters
    ----------
    lipschitz, smoothness, diameter, n_steps, errors, gap, rise
        As for `printed_stationarity`.
    dual_rate : float, optional
        The length of dual steps.
    """
    primal, dual = errors
    step = math.sqrt(gap / (2 * n_steps * smoothness * (lipschitz**2 + primal**2)))
    drift = step * lipschitz * (lipschitz + primal)
    rate = drift / dual**2 if dual_rate is None else dual_rate
    blocks = np.unique(np.geomspace(1, n_steps, 400).astype(int))
    lag = float((drift * blocks + diameter**2 / (blocks * rate)).min()) + 2 * diameter * dual + rise / n_steps
    squares = 4 * gap / (step * n_steps) + 8 * smoothness * step * (lipschitz**2 + primal**2) + 8 * primal**2
    return math.sqrt(squares + 8 * smoothness * lag)


def stationarity_of(setting: Setting, gap: float, rise: float) -> tuple[float, float]:
    """Return alpha as printed and as provable, each over its Lipschitz constant: from 1 on it says nothing.

    The gradient of the envelope is never longer than the Lipschitz constant G, because the objective is G-Lipschitz.
    """
    own, dual = setting.regularity, setting.dual_error
    printed = printed_stationarity(
        own.printed_lipschitz, own.printed_smoothness, own.diameter, setting.n_steps,
        (setting.printed_primal_error, dual), gap, rise,
    )  # fmt: skip
    proved = stationarity(
        own.lipschitz, own.smoothness, own.diameter, setting.n_steps, (setting.primal_error, dual), gap, rise
    )
    return printed / own.printed_lipschitz, proved / own.lipschitz
