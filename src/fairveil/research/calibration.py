"""Training noise calibrated by another accountant, for comparison with papers that used one.

The exact price stays the only one: whatever sets the noise, the plan is priced by privacy loss distributions, and the
ledger debits that. Rényi composition asks for more noise than the budget needs. The central limit of Gaussian DP often
asks for less: it is not a bound, and its noise can cost more than was meant, which is refused unless it is accepted.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fairveil._validation import check_choice, check_number
from fairveil.accounting.composition import calibrate, epsilon_of
from fairveil.accounting.events import Charge, Event
from fairveil.errors import InvalidParameterError
from fairveil.research.paper_bounds import gdp_epsilon, rdp_epsilon
from fairveil.training.run import size_stages

ACCOUNTANTS = ("pld", "renyi", "gdp")
"""Exact prices; Rényi composition (the moments accountant), a looser bound; Gaussian DP's central limit, no bound."""

FIRST_REACH, HIGHEST = 0.05, math.log(1e9)
"""How far from the exact price's noise the search begins, and where it ends (as logarithms)."""

SLACK = 1e-5
"""How far above the least noise the answer may lie, relatively."""

ABOVE = 1e-6
"""Rounding by which a price may exceed the budget, relatively."""

ChargesAt = Callable[[float], Iterable[Charge | Event]]


@dataclass(frozen=True)
class ComparisonNoise:
    """The noise that an accountant finds enough for a budget, and what it costs.

    Attributes
    ----------
    accountant : {"pld", "renyi", "gdp"}
    noise_multiplier : float
        The least noise over sensitivity at which the accountant states at most `requested`.
    requested, delta : float
        The budget.
    epsilon : float
        The exact price of that noise: what a ledger must debit, whatever the accountant stated.
    """

    accountant: str
    noise_multiplier: float
    requested: float
    delta: float
    epsilon: float

    @property
    def is_bound(self) -> bool:
        """Whether what the accountant states is an upper bound on the price."""
        return self.accountant != "gdp"

    @property
    def keeps_budget(self) -> bool:
        """Whether the exact price is within what was requested."""
        return self.epsilon <= self.requested * (1 + ABOVE)

    @property
    def sentence(self) -> str:
        """What the noise costs, and what the accountant's statement is worth."""
        label = "a bound" if self.is_bound else "NOT A BOUND"
        verdict = "within the budget" if self.keeps_budget else "ABOVE the budget"
        return (
            f"Noise {self.noise_multiplier:.4g} by {self.accountant} for epsilon {self.requested:g} ({label}) costs "
            f"exactly epsilon {self.epsilon:.4g} at delta {self.delta:g}: {verdict}."
        )


def stated_epsilon(accountant: str, charges: Iterable[Charge | Event], delta: float) -> float:
    """Return what an accountant states; by "gdp" it is not a bound.

    Examples
    --------
    >>> from fairveil.accounting.events import GaussianRelease, PoissonSampled, Repeated
    >>> steps = [Repeated(PoissonSampled(0.034, GaussianRelease(1.0)), 1500)]
    >>> [round(stated_epsilon(one, steps, 1e-5), 2) for one in ("pld", "renyi", "gdp")]
    [8.82, 9.62, 8.35]
    """
    check_choice("accountant", accountant, ACCOUNTANTS)
    if accountant == "gdp":
        return gdp_epsilon(charges, delta).epsilon
    return (rdp_epsilon if accountant == "renyi" else epsilon_of)(charges, delta)


def noise_by(accountant: str, charges_at: ChargesAt, epsilon: float, delta: float) -> ComparisonNoise:
    """Return the least noise at which an accountant states at most epsilon, and what that noise costs exactly.

    Parameters
    ----------
    accountant : {"pld", "renyi", "gdp"}
        "gdp" is not a bound: its noise may cost more than epsilon, which the answer says.
    charges_at : callable
        Returns the charges of the plan at a noise multiplier; more noise must cost less.
    epsilon, delta : float
        The budget.

    Examples
    --------
    >>> from fairveil.accounting.events import GaussianRelease, PoissonSampled, Repeated
    >>> steps = lambda z: [Repeated(PoissonSampled(0.034, GaussianRelease(z)), 1500)]
    >>> print(noise_by("gdp", steps, 2.9, 1e-5).sentence)
    Noise 2.01 by gdp for epsilon 2.9 (NOT A BOUND) costs exactly epsilon 2.973 at delta 1e-05: ABOVE the budget.
    """
    check_choice("accountant", accountant, ACCOUNTANTS)
    epsilon, delta = check_number("epsilon", epsilon), check_number("delta", delta, below=1)
    noise = calibrate(charges_at, epsilon, delta)
    if accountant != "pld":

        def is_enough(log_noise: float) -> bool:
            return stated_epsilon(accountant, charges_at(math.exp(log_noise)), delta) <= epsilon

        noise = math.exp(_least(is_enough, math.log(noise)))
    return ComparisonNoise(accountant, noise, epsilon, delta, epsilon_of(charges_at(noise), delta))


def _least(is_enough: Callable[[float], bool], near: float) -> float:
    """Return the least number that is enough, to `SLACK` and never below, from a bracket that grows around `near`."""
    low = high = near
    reach = FIRST_REACH
    while not is_enough(high):
        low, high, reach = high, high + reach, 2 * reach
        if high > HIGHEST:
            raise InvalidParameterError(
                "Expected a budget that more noise can meet by this accountant, got one that it cannot; raise epsilon "
                "or delta, or drop a release."
            )
    while low == high or is_enough(low):
        low, reach = low - reach, 2 * reach
    while high - low > SLACK:
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def training_noise(clf: Any, accountant: str) -> ComparisonNoise:
    """Return the noise that an accountant finds enough for the training of an unfitted classifier.

    The people whom the stage "train" reads meet all stages of their subset, and a noisy size if none is declared.
    Everything follows from public facts: no row is read.
    """
    recipe, task, share = clf.planned_recipe(), clf.planned_inputs().task, 1 - clf.holdout
    if not task.is_private:
        raise InvalidParameterError("Expected a finite epsilon to calibrate noise to, got infinity.")
    subset = next(stage.subset for stage in recipe.stages(1.0, share, task) if stage.name == "train")
    size = size_stages(task)

    def charges_at(noise: float) -> list[Event]:
        own = [stage for stage in recipe.stages(noise, share, task) if stage.subset == subset]
        return [stage.event for stage in (*size, *own)]

    return noise_by(accountant, charges_at, task.epsilon, task.delta)


def with_noise_by(clf: Any, accountant: str, *, accepts_more: bool = False) -> tuple[Any, ComparisonNoise]:
    """Return a copy of an unfitted classifier that trains at another accountant's noise, and what that costs.

    The copy has the exact price of that noise for its epsilon. So its plan is priced, debited and stated like any
    other; its noise is the accountant's to about 1e-4. Parts of the rows that train nothing get the same epsilon.

    Parameters
    ----------
    clf : estimator
        Not fitted; its epsilon is the budget that the accountant is to meet.
    accountant : {"pld", "renyi", "gdp"}
    accepts_more : bool
        Whether the exact price may exceed that budget, which happens by "gdp", whose statement is not a bound.

    Raises
    ------
    InvalidParameterError
        If the exact price exceeds the budget and `accepts_more` is False.
    """
    noise = training_noise(clf, accountant)
    if not (noise.keeps_budget or accepts_more):
        raise InvalidParameterError(
            f"Expected noise that keeps epsilon = {noise.requested:g}, got noise by {accountant!r}, which is not a "
            f"bound: it costs {noise.epsilon:.4g} exactly. Pass accepts_more=True to train at it; the ledger will "
            f"debit {noise.epsilon:.4g}."
        )
    # public facts alone decide: this is no search among fits, as clones are
    return type(clf)(**{**clf.get_params(deep=False), "epsilon": noise.epsilon}), noise
