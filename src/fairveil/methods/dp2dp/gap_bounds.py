"""What can be said of the gap: beforehand, from public sizes and the plan; afterwards, from noisy sizes; the papers'.

Let N_s be the people of group s that a rule is fitted to. The rate of new people differs from theirs because they are a
sample, and the rule saw their rate through noise. Nothing here depends on exact sizes of groups that are not public.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import erfc

from fairveil._typing import Float64Array
from fairveil._validation import check_number
from fairveil.errors import InvalidParameterError
from fairveil.fairness.rates import Population
from fairveil.privacy.plan import Plan


def dkw_mean(size: float) -> float:
    """Return a bound on the expected largest error of an empirical distribution function, over all thresholds.

    From the inequality of Dvoretzky, Kiefer and Wolfowitz with Massart's constant, P(error > e) <= 2 exp(-2 n e^2),
    integrated over e: 0.888 / sqrt(n).

    Examples
    --------
    >>> round(dkw_mean(10_000), 5)
    0.00888
    """
    half = math.sqrt(math.log(2))
    return (half / math.sqrt(2) + math.sqrt(math.pi / 2) * float(erfc(half))) / math.sqrt(size)


def rule_noise(plan: Plan) -> float:
    """Return the standard deviation of the noise in the counts that settled a rule, from the plan alone."""
    stage = plan.stage("rule")
    if any(other.name == "groups" for other in plan.stages):
        raise InvalidParameterError(
            "Expected a rule that settles, got DP2DP's own descent, whose last iterate has not; nothing is "
            "promised of it."
        )
    last = {release.name: release for release in stage.releases if release.name != "released"}
    release = list(last.values())[-1]
    spread = math.sqrt(2) if release.law in {"laplace", "discrete_laplace"} else 1.0
    return spread * release.noise_multiplier / (stage.largest_rate * math.sqrt(stage.n_steps))


@dataclass(frozen=True)
class ExpectedGap:
    """What to expect of the gap between two groups beyond the tolerance, before anything is fitted.

    Attributes
    ----------
    expected : float
        The typical gap, sqrt(2/pi (sum_s r (1 - r) / N_s + noise variance)): what users will see.
    bound : float or None
        A bound on the expected gap for two classes: the largest error over all thresholds (`dkw_mean`) and the noise.
        None for more classes, and for a rule found step by step.
    """

    expected: float
    bound: float | None

    @classmethod
    def of_plan(
        cls, plan: Plan, sizes: Float64Array, rates: Sequence[float] | float, people: Population
    ) -> "ExpectedGap":
        """Return the promise for the worst pair of groups of these sizes, all of them fitted and held to the rates."""
        if len(sizes) != len(people.codes) or np.min(sizes) < 1:
            raise InvalidParameterError(
                f"Expected the size of each of {len(people.codes)} groups, at least 1, got {list(sizes)}."
            )
        share = plan.stage("rule").share
        counted = np.maximum(np.asarray(sizes) * share, 1.0)
        r = np.broadcast_to(np.asarray(rates, dtype=float), counted.shape)
        noise = rule_noise(plan) if plan.is_private else 0.0
        people_variance = r * (1 - r) / counted
        noise_variance = noise**2 * (r**2 + (1 - r) ** 2) / counted**2
        single = np.array([dkw_mean(size) for size in counted]) + noise * math.sqrt(2 / math.pi) / counted
        variances = np.sort(people_variance + noise_variance)[-2:]
        is_settled = people.n_classes == 2 and plan.stage("rule").n_steps == 1
        bound = float(np.sort(single)[-2:].sum()) if is_settled else None
        return cls(math.sqrt(2 / math.pi * variances.sum()), bound)


@dataclass(frozen=True)
class FlipGapBounds:
    """Theorem 3 and Proposition 4 of decoupled parity for a fitted flipping rule, put right.

    With public sizes they are as printed (but for the theta-bar that Proposition 4 lacks). From the noisy 2 x 2 table,
    sizes are bounded from below by the noisy ones: with L the noise, a rate is off by ((1 - r) L1 - r L0) / noisy size.
    Both need rows that the model was not trained on (`part=`, or a classifier fitted elsewhere): on its own training
    rows a model may have another rate than among new people, by memory. What is said of noise holds in any case.

    Attributes
    ----------
    sizes : pair of float
        Public sizes, or the noisy ones.
    scales : pair of float
        Of the Laplace noise on the counts of each group.
    tolerance : float
    are_public : bool
        Whether the sizes are.
    """

    sizes: tuple[float, float]
    scales: tuple[float, float]
    tolerance: float = 0.0
    are_public: bool = False

    def gap_bound(self, confidence: float = 0.95) -> float:
        """Return a bound on the gap of the rule among new people, with this confidence (Theorem 3)."""
        failure = 1 - check_number("confidence", confidence, below=1)
        return min(1.0, self.tolerance + self._errors(failure))

    def changes_bound(self, confidence: float = 0.95) -> float:
        """Return by how much, at most, the rule changes more decisions than the best rule of its gap (Theorem 3)."""
        return 2.5 * self._errors(1 - check_number("confidence", confidence, below=1))

    def expected_gap_bound(self) -> float:
        """Return a bound on the expected gap (Proposition 4)."""
        return min(1.0, self.tolerance + self._expected_errors())

    def expected_changes_bound(self) -> float:
        """Return a bound on the expected number of further changes, as a share (Proposition 4)."""
        return 2.5 * self._expected_errors()

    def _errors(self, failure: float) -> float:
        if self.are_public:
            # two noises and two samples, failure / 4 each
            reaches = [scale * math.log(4 / failure) for scale in self.scales]
            return sum(reach / n + _hoeffding(n, failure / 4) for n, reach in self._groups(reaches))
        reaches = [_reach(scale, failure / 2) for scale in self.scales]
        return sum(min(1.0, reach / n) + _hoeffding(n - 2 * reach, failure / 4) for n, reach in self._groups(reaches))

    def _groups(self, values: Sequence[float]) -> Iterator[tuple[float, float]]:
        return zip(self.sizes, values, strict=True)

    def _expected_errors(self, failure: float = 1e-3) -> float:
        if self.are_public:
            return sum(scale / n + math.sqrt(1 / (4 * n)) for n, scale in self._groups(self.scales))
        total = 2 * failure
        for size, scale in self._groups(self.scales):
            reach = _reach(scale, failure)
            least = size - 2 * reach
            if least <= 2 * reach:
                return 1.0
            total += scale / (least - 2 * reach) + math.sqrt(1 / (4 * least))
        return total


def _reach(scale: float, failure: float) -> float:
    """Return what none of the four noises of the table exceeds, but with this probability.

    A discrete Laplace noise exceeds t with probability at most 2 q^t / (1 + q), q = exp(-1 / scale).
    """
    decay = 1 / scale
    return math.log(4 * 2 / ((1 + math.exp(-decay)) * failure)) / decay


def _hoeffding(size: float, failure: float) -> float:
    """Return how far the mean of so many numbers in [0, 1] may be off, on either side."""
    return min(1.0, math.sqrt(math.log(2 / failure) / (2 * size))) if size > 0 else 1.0
