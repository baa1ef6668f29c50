"""For comparison: the noise of DP-FERMI as published, and what it costs by our accountant.

The published noise is that of a theorem for privacy of the sensitive attribute alone: with T steps of batches of m
among n rows, smallest group share rho, a bound L on the slope of the model's output and a bound D on W,

    sigma_w^2 = 16 T ln(1/delta) / (epsilon^2 n^2 rho),    sigma_theta^2 = L^2 D^2 sigma_w^2.

In the mean gradient of a batch, the attribute of one row has a term of length at most 2 lambda / (m sqrt(rho)) by W,
and L D times that by theta. So both noise multipliers are 2 (m/n) sqrt(T ln(1/delta)) / (epsilon lambda), whatever rho.
The published noise has no lambda.
"""

import math
from dataclasses import dataclass

from fairveil._validation import check_number
from fairveil.accounting.composition import epsilon_of
from fairveil.accounting.events import Event, GaussianRelease, Joint, PoissonSampled, Repeated
from fairveil.accounting.pricing import NeighboringRelation


@dataclass(frozen=True)
class PublishedNoise:
    """The noise of a published run, by its public settings.

    Parameters
    ----------
    n_rows, n_steps : int
        Training rows, and batches over all passes.
    epsilon, delta : float
        The claim; at infinity there is no noise.
    smallest_share : float
        rho. The published code computes it from the secret attribute: (rows of the smallest group - 1) / n.
    batch : int
    lipschitz, radius : float
        L and D.

    Examples
    --------
    >>> noise = PublishedNoise(45_243, 9_000, 3.0, 1 / 45_243**2, 0.32, 1024, 5.0, 5.0)
    >>> round(noise.std_w, 4), round(noise.std_theta, 4), round(noise.multiplier(), 3)
    (0.0229, 0.5721, 6.628)
    """

    n_rows: int
    n_steps: int
    epsilon: float
    delta: float
    smallest_share: float
    batch: int
    lipschitz: float = 5.0
    radius: float = 5.0

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, at_most=math.inf)
        check_number("delta", self.delta, below=1)
        check_number("smallest_share", self.smallest_share, at_most=1)

    @property
    def std_w(self) -> float:
        """The standard deviation of the noise on each entry of the gradient by W."""
        scale = self.n_steps * math.log(1 / self.delta) / self.smallest_share
        return 4 * math.sqrt(scale) / (self.epsilon * self.n_rows)

    @property
    def std_theta(self) -> float:
        """The standard deviation of the noise on each entry of the gradient by the model's parameters."""
        return self.lipschitz * self.radius * self.std_w

    def multiplier(self, weight: float = 1.0) -> float:
        """Return noise over what one known attribute can change, of either gradient, at this lambda."""
        return self.std_w / (2 * weight / (self.batch * math.sqrt(self.smallest_share)))

    def event(self, weight: float = 1.0) -> Event:
        """Return what all steps release, if every row is in a batch by its own coin of rate m / n."""
        one = GaussianRelease(self.multiplier(weight))
        return Repeated(PoissonSampled(self.batch / self.n_rows, Joint((one, one))), self.n_steps)

    def cost(self, weight: float = 1.0, relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE) -> float:
        """Return the epsilon at the claimed delta: of an attribute that is known or unknown, or that is replaced."""
        return epsilon_of([self.event(weight)], self.delta, relation)

    def cost_of_passes(self, weight: float = 1.0) -> float:
        """Return the epsilon of shuffled batches: each row is in one batch of every pass, and no sampling hides it."""
        one = GaussianRelease(self.multiplier(weight))
        passes = max(1, round(self.n_steps * self.batch / self.n_rows))
        return epsilon_of([Repeated(Joint((one, one)), passes)], self.delta)
