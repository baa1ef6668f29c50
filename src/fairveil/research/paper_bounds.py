"""For comparison: the privacy accounting and the error bounds of the papers, as printed or corrected.

The ledger records none of these epsilons: it takes the exact price of all steps. No certificate uses these bounds.
docs/errata.md says what was wrong with those that are corrected.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from fairveil._typing import Float64Array
from fairveil._validation import check_choice, check_number
from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.events import (
    Charge,
    Event,
    GaussianRelease,
    Joint,
    LaplaceRelease,
    PoissonSampled,
    Repeated,
)
from fairveil.accounting.pricing import compositions_of, count_uses, gaussian_multiplier, normal_epsilon
from fairveil.errors import InvalidParameterError, UnsupportedEventError
from fairveil.fairness.diagnostics import quantile
from fairveil.fairness.rates import HistogramConstraints
from fairveil.methods.dp2dp.gap_bounds import dkw_mean
from fairveil.methods.fairdp.noise_certificate import worst_case_gap

ACCOUNTANTS = ("pld", "renyi", "last_iterate")
ORDERS = np.arange(2, 257)
_TERMS = np.arange(ORDERS[-1] + 1)
_LOG_BINOMIALS = np.where(
    ORDERS[:, None] >= _TERMS,
    gammaln(ORDERS[:, None] + 1) - gammaln(_TERMS + 1) - gammaln(np.maximum(ORDERS[:, None] - _TERMS, 0) + 1),
    -np.inf,
)


@dataclass(frozen=True)
class NotABound:
    """An approximation that may lie below the true epsilon: quote it beside a paper, never as a guarantee."""

    epsilon: float


def rdp_epsilon(charges: Iterable[Charge | Event], delta: float) -> float:
    """Return epsilon by Rényi composition: a bound under add or remove one, looser than `epsilon_of`.

    Knows Gaussian and Laplace noise, joint releases of them, and sampled Gaussians; refuses all else.
    """
    delta = check_number("delta", delta, below=1)
    return max(_rdp(way, delta) for way in compositions_of(charges).worst_cases())


def _rdp(uses: Counter[Event], delta: float) -> float:
    # add or remove only: under REPLACE_ONE this accountant forgets to double the sensitivity
    accountant = RdpAccountant()
    for event, count in uses.items():
        accountant.compose(_renyi(event), count)
    return float(accountant.get_epsilon(delta)) if uses else 0.0


@singledispatch
def _renyi(event: Event) -> dp_event.DpEvent:
    raise UnsupportedEventError(f"Expected Gaussian or Laplace noise to compare, got {type(event).__name__}.")


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
    delta = check_number("delta", delta, below=1)
    ways = compositions_of(charges).worst_cases()
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
        raise UnsupportedEventError(f"Expected Gaussian noise to compare, got {type(inner).__name__}.")
    return multiplier


@dataclass(frozen=True)
class LastIterate:
    """A descent for which the second branch of DP2DP's Theorem 4.1 may be used, and only such a one.

    Steps of one length of at most smoothing / 4, noise on the stacked gradient of both blocks, multipliers projected
    onto [0, `largest_multiplier`], and nothing but the last iterate ever seen: no trace, no average, no count on the
    way.
    Poisson batches vary: a step contracts while its batch is at most smoothing / (2 step size) times the expected
    one (the loss is 2 / smoothing - smooth), which is at least twice it here, and is assumed of all batches.

    Parameters
    ----------
    n_classes, batch_size : int
    smoothing, step_size, largest_multiplier : float
    """

    n_classes: int
    batch_size: int
    smoothing: float
    step_size: float
    largest_multiplier: float = 1.0

    def __post_init__(self) -> None:
        for name in ("smoothing", "step_size", "largest_multiplier", "batch_size"):
            check_number(name, getattr(self, name))
        if self.step_size > self.smoothing / 4:
            raise InvalidParameterError(
                f"Expected steps of at most smoothing / 4 = {self.smoothing / 4:g}, got {self.step_size:g}; longer "
                "ones need not contract, and only all steps together can be priced."
            )

    @property
    def sensitivity(self) -> float:
        """How far one record moves the stacked sum: both blocks of a centered vector of length 2 sqrt(1 - 1/K)."""
        return 2 * math.sqrt(2 * (1 - 1 / self.n_classes))

    def renyi(self, rate: float, noise_multiplier: float, n_steps: int) -> NDArray[np.float64]:
        """Return the Rényi divergence of each order by the second branch, at the best split of noise and of steps."""
        noise = noise_multiplier * self.sensitivity / self.batch_size  # on the mean gradient
        diameter = 2 * self.n_classes * self.largest_multiplier**2
        best = np.full(len(ORDERS), np.inf)
        least = ORDERS * diameter / (2 * self.step_size**2 * noise**2 * n_steps)
        if (least > n_steps * sampled_renyi(rate, noise_multiplier)).all():
            return best  # no split can come below the first branch
        counts = np.unique(np.geomspace(1, max(1, n_steps - 1), 60).astype(int))
        for share in np.linspace(0.05, 0.95, 19):
            step = sampled_renyi(rate, noise_multiplier * math.sqrt(1 - share))
            drift = ORDERS * diameter / (2 * self.step_size**2 * share * noise**2)
            best = np.minimum(best, (counts[:, None] * step + drift / counts[:, None]).min(axis=0))
        return best


def descent_epsilon(
    rate: float,
    noise_multiplier: float,
    n_steps: int,
    delta: float,
    accountant: str = "pld",
    last_iterate: LastIterate | None = None,
) -> float:
    """Return what a noisy descent costs for one record added or removed, by the accountant of one's choice.

    Parameters
    ----------
    rate, noise_multiplier, n_steps
        Of Poisson-sampled Gaussian steps; the multiplier is noise on the *sum* over its sensitivity.
    accountant : {"pld", "renyi", "last_iterate"}
        The exact price; the first branch of Theorem 4.1 (all steps, by Rényi composition, in the direction that is
        worse); the smaller of both branches, for descents that are a `LastIterate`.

    Examples
    --------
    >>> [round(descent_epsilon(0.064, 2.0, 100, 1e-5, one), 2) for one in ("pld", "renyi")]
    [1.44, 1.59]
    """
    check_choice("accountant", accountant, ACCOUNTANTS)
    if accountant == "pld":
        return epsilon_of([Repeated(PoissonSampled(rate, GaussianRelease(noise_multiplier)), n_steps)], delta)
    divergence = n_steps * sampled_renyi(rate, noise_multiplier)
    if accountant == "last_iterate":
        if last_iterate is None:
            raise InvalidParameterError(
                "Expected the conditions of the last iterate, got none; write LastIterate(...)."
            )
        divergence = np.minimum(divergence, last_iterate.renyi(rate, noise_multiplier, n_steps))
    log_delta = math.log(check_number("delta", delta, below=1))
    converted = divergence + np.log1p(-1 / ORDERS) - (log_delta + np.log(ORDERS)) / (ORDERS - 1)
    return max(0.0, float(converted.min()))


def sampled_renyi(rate: float, noise_multiplier: float) -> NDArray[np.float64]:
    """Return the Rényi divergence of one sampled Gaussian from its base, of whole orders (Mironov et al. 2019).

    This is the mixture against the base, which is the larger direction; the paper writes the smaller one.
    """
    if rate == 1:
        return ORDERS / (2 * noise_multiplier**2)
    log_odds = math.log(rate) - math.log1p(-rate)
    logs = _LOG_BINOMIALS + _TERMS * (_TERMS - 1) / (2 * noise_multiplier**2) + _TERMS * log_odds
    total: NDArray[np.float64] = logsumexp(logs, axis=1) + ORDERS * math.log1p(-rate)
    return total / (ORDERS - 1)


def half_widths(
    constraints: HistogramConstraints,
    histogram: Float64Array,
    noise_variance: float,
    law: str = "gaussian",
    confidence: float = 0.95,
    minimum: float = 1.0,
) -> Float64Array:
    """Return how far the noise may have moved each bound's left side, by the delta method.

    Parameters
    ----------
    noise_variance : float
        Of every count: std^2 for Gaussian noise, 2 scale^2 for Laplace noise; times the sum of squared weights if the
        histogram is a weighted mean of several.
    law : {"gaussian", "laplace"}
    """
    return quantile(law, confidence) * constraints.estimate(histogram, noise_variance, minimum).noise_errors


def laplace_half_width(
    below: float, scale: float, n_above: int = 1, n_below: int = 2, confidence: float = 0.95
) -> float:
    """Return how far Laplace noise may have moved one rate, without approximation: Lemma C.1 of RaCO-DP put right.

    With X and Y the noise above and below and r the true rate, the noisy rate is off by (X - r Y) / below, where
    `below` is the *noisy* denominator. X - r Y sums `n_above` noises times 1 - r and the rest times -r, so its variance
    is at most that at r = 0 or 1. This needs no lower bound on the true denominator.

    Parameters
    ----------
    below : float
        The noisy denominator.
    scale : float
        Of the Laplace noise on every count.
    n_above, n_below : int
        How many counts the numerator and the denominator add up; the numerator's are among the denominator's.
    """
    check_number("scale", scale)
    if not 1 <= n_above <= n_below:
        raise InvalidParameterError(f"Expected 1 <= n_above <= n_below, got {n_above!r} and {n_below!r}.")
    if below <= 0:
        return math.inf
    most = max(n_above, n_below - n_above)
    return quantile("laplace", confidence) * math.sqrt(2 * most) * scale / below


def printed_half_width(below: float, scale: float, n_below: int = 2, confidence: float = 0.95) -> float:
    """Return Lemma C.1 of RaCO-DP as printed, infinite where its condition fails; kept for comparison.

    `below` is the *true* denominator, which nobody may know. The statement held in every simulation, but its proof
    takes P(Y <= -below/2) for exp(-below/scale)/2 where a Laplace noise has exp(-below/(2 scale))/2. The width exceeds
    1, and so says nothing, up to below = 4 n_below scale log(8/failure): 41 scales for two counts at 95 %.
    """
    failure = 1 - check_number("confidence", confidence, below=1)
    if below <= 0 or below < 4 * n_below * scale * math.log(1 / (2 * failure)):
        return math.inf
    return 4 * n_below * scale / below * math.log(8 / failure)


def printed_gap_bound(
    n_steps: int, batch_size: int, smoothing: float, noise: float, n_classes: int = 2, tolerance: float = 0.0
) -> float:
    """Return the optimization term of DP2DP's Theorem 5.1 as printed, with multipliers in [0, 1]: vacuous.

    A gap is at most 1. At the paper's own settings (100 steps, smoothing 1e-5) this is about 2,000, and Corollary 5.1
    needs as many steps as the square of the number of people.

    Examples
    --------
    >>> printed_gap_bound(100, 128, 1e-5, noise=0.0) > 1000
    True
    """
    check_number("smoothing", smoothing)
    width = math.sqrt(2 * n_classes)
    slope = 2 * math.sqrt(2) + tolerance * width + noise * width / batch_size
    return tolerance + 4 * math.sqrt(width * math.log(n_steps) / (smoothing * math.sqrt(n_steps)) * slope)


@dataclass(frozen=True)
class GapTerms:
    """The terms of DP2DP's Theorem 5.1, each with a constant that the proof, put right, gives.

    Attributes
    ----------
    tolerance : float
        rho.
    sampling : float
        C_1 / sqrt(N): how far rates of new people are from those of the records, and records that tie.
    smoothing : float
        C_2 exp(-gamma / beta): the soft decision for the hard one.
    descent : float
        What the descent leaves of the gradient, its noise included (`printed_gap_bound`).
    """

    tolerance: float
    sampling: float
    smoothing: float
    descent: float

    @property
    def total(self) -> float:
        """The bound; above 1 it says nothing."""
        return self.tolerance + self.sampling + self.smoothing + self.descent


def gap_terms(
    sizes: tuple[float, float],
    n_classes: int,
    margin: float,
    n_steps: int,
    batch_size: int,
    smoothing: float,
    noise: float,
    tolerance: float = 0.0,
) -> GapTerms:
    """Return all terms of DP2DP's Theorem 5.1 for public sizes of the two groups.

    For two classes the sampling term is the inequality of Dvoretzky, Kiefer and Wolfowitz for each group; for more, its
    form for several thresholds (Naaman 2021), over all classes, because Lemma D.2's single threshold does not stand for
    K - 1. Lemma D.1 gives C_2 = 2 (K - 1).

    Parameters
    ----------
    sizes : pair of float
        Records of each group in the pool.
    margin : float
        gamma: the smallest difference between the best and the next score, over all records. It depends on the
        records, so a figure with the true margin is for research only; 0 gives the term that always holds.
    noise : float
        The standard deviation of the noise on the sum over a batch.

    Examples
    --------
    >>> terms = gap_terms((6500, 3200), 2, margin=0.0, n_steps=100, batch_size=128, smoothing=1e-5, noise=0.0)
    >>> round(terms.sampling, 3), terms.smoothing, terms.total > 2000
    (0.027, 2.0, True)
    """
    ties = (n_classes - 1) / min(sizes)
    sampling = sum(_rates_error(size, n_classes) for size in sizes) + ties
    excess = printed_gap_bound(n_steps, batch_size, smoothing, noise, n_classes, tolerance) - tolerance
    softness = 2 * (n_classes - 1) * math.exp(-margin / smoothing)
    return GapTerms(tolerance, sampling, softness, excess)


def _rates_error(size: float, n_classes: int) -> float:
    """Return a bound on the expected error of the rates of all classes among so many records, over all rules."""
    if n_classes == 2:
        return dkw_mean(size)
    # P(error > e) <= K (K - 1) (n + 1) exp(-2 n e^2): K classes, K - 1 thresholds each, integrated over e
    logs = math.log(n_classes * (n_classes - 1) * (size + 1))
    return min(1.0, math.sqrt(logs / (2 * size)) + 1 / math.sqrt(8 * size * logs))


def paper_worst_case_gap(M: float, C: float, sigma: float, eta: float, m: float, K: int, N: int = 1) -> float:
    """Return FairDP's Theorem 3.2 in the paper's letters; with N models the batch is shared among them (Equation 32).

    Examples
    --------
    >>> round(paper_worst_case_gap(M=0.1, C=1.0, sigma=100.0, eta=1.0, m=4, K=2), 3)
    0.024
    """
    check_number("K", K, whole=True)
    check_number("N", N, whole=True)
    check_number("sigma", sigma)
    return worst_case_gap(M, eta, C / K, m / N, sigma * C / math.sqrt(K))


def violation_error(bound: float, excess: float, noise_multiplier: float, size: float) -> float:
    """Return a bound on E|V - V~|, the error of one group's violation (PF-LD, Theorem 5).

    `bound` is C_d, `excess` the mean of max(0, |h| - C_d), `size` the public size of the group.
    """
    return math.sqrt(2 / math.pi) * noise_multiplier * bound / size + excess
