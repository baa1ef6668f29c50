"""What can probably be certified or learned, by public numbers alone: how many people to hold out, how far to aim.

A claim at confidence 95 % needs a measured gap that lies 1.645 standard errors of the held-out people below the limit.
The measured gap differs from the gap that the rule was trained for, because both the people trained on and those held
out are a sample. So training aims lower, and the more people are held out, the less it has to; but whoever is held out
is not trained on. `holdout_share` weighs the two before any data is read.

How much a private model learns depends on the signal epsilon x people / sqrt(parameters): noise on each of the
parameters of a linear model adds up, and is divided by the number of people.
"""

import math

from scipy.special import ndtr, ndtri

from fairveil._validation import check_number

CERTIFICATE_LEVEL = 0.95
SAMPLING_MARGIN = 1.65
"""Standard errors of both samples together by which training aims below what could just be certified: a rule whose true
gap is the one aimed at is then certified nineteen times out of twenty."""

SHARES = tuple(step / 100 for step in range(10, 55, 5))
"""The shares that are compared."""

DEFAULT_SHARE = 0.15
"""The share if nothing can be certified or nothing was requested: enough to measure accuracy and gaps."""

LEAST_CHANCE = 0.1
"""With a smaller chance at every share the table is too small for the request."""

LIKELY = 0.5
"""With a smaller chance, users are warned before anything is spent: the request will probably not be certified."""

CHANCE_PER_SHARE = 0.5
"""What a larger share must gain: two more percent of the people are held out for one more percent of chance."""


def headroom_for(share: float) -> float:
    """Return how many standard errors of the people trained on a rule must stay below a limit to be certified.

    Examples
    --------
    >>> round(headroom_for(0.15), 1), round(headroom_for(0.45), 1)
    (8.2, 4.3)
    """
    if not share:
        return 1.0
    ratio = math.sqrt((1 - share) / share)  # the error of those held out over that of those trained on
    return max(1.0, float(ndtri(CERTIFICATE_LEVEL)) * ratio + SAMPLING_MARGIN * math.hypot(ratio, 1.0))


def certification_chance(
    tolerance: float, share: float, n_rows: float, n_groups: int, epsilon: float = math.inf, delta: float = 1e-5
) -> float:
    """Return how probable it is that a tolerance will be certified, for groups of equal size selected half the time.

    Parameters
    ----------
    tolerance : float
        The largest allowed difference between two groups.
    share : float
        The share of the rows that is held out.
    n_rows : float
        The public number of rows that the compared rates are about.
    n_groups : int
    epsilon, delta : float
        The budget, which decides about the noise on counts of people held out; the plan calibrates it exactly.

    Examples
    --------
    >>> [round(certification_chance(0.02, share, 48842, 2), 2) for share in (0.15, 0.3, 0.45)]
    [0.05, 0.48, 0.67]
    """
    check_number("share", share, below=1)
    held, trained = (n_groups / (2 * part * n_rows) for part in (share, 1 - share))  # variances of a difference
    noise_std = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    noise = 2 * (noise_std * n_groups / (share * n_rows)) ** 2
    limit = tolerance - float(ndtri(CERTIFICATE_LEVEL)) * math.sqrt(held + noise)
    if limit <= 0:
        return 0.0
    aim = max(0.0, tolerance - headroom_for(share) * math.sqrt(trained))
    error = math.sqrt(held + trained + noise)
    # two groups differ by what is aimed at; the others lie between them, and differ by half of it on average
    widest, other = (float(ndtr((limit - gap) / error) - ndtr((-limit - gap) / error)) for gap in (aim, aim / 2))
    return widest * other ** (n_groups * (n_groups - 1) // 2 - 1)


def likely_tolerance(
    share: float, n_rows: float, n_groups: int, epsilon: float = math.inf, delta: float = 1e-5
) -> float | None:
    """Return the smallest tolerance, to two digits, that will probably be certified; None if none will.

    Examples
    --------
    >>> likely_tolerance(0.15, 750, 2), likely_tolerance(0.5, 48842, 2)
    (0.23, 0.017)
    """
    for tolerance in (digits / 10**power for power in (4, 3, 2) for digits in range(10, 100)):
        if certification_chance(tolerance, share, n_rows, n_groups, epsilon, delta) >= LIKELY:
            return tolerance
    return None


def holdout_share(tolerance: float, n_rows: float, n_groups: int, epsilon: float, delta: float) -> float:
    """Return the share of the rows to hold out: the best chance of a certificate, weighed against rows to train on.

    Examples
    --------
    >>> [holdout_share(tolerance, 48842, 2, 1.0, 1e-5) for tolerance in (0.0, 0.02, 0.05, 0.2)]
    [0.15, 0.5, 0.15, 0.1]
    """
    if not tolerance or n_groups < 2:
        return DEFAULT_SHARE
    chances = {share: certification_chance(tolerance, share, n_rows, n_groups, epsilon, delta) for share in SHARES}
    if max(chances.values()) < LEAST_CHANCE:
        return DEFAULT_SHARE
    return max(chances, key=lambda share: chances[share] - CHANCE_PER_SHARE * share)


POOR_SIGNAL, FAIR_SIGNAL = 50.0, 100.0
"""Below the first signal, private rules kept less than half of what a fair model gains over the best constant, and were
often worse than the constant; up to the second, one third to three quarters. Measured: docs/defaults.md."""


def learning_signal(n_people: float, n_params: int, epsilon: float) -> float:
    """Return epsilon x people / sqrt(parameters): how clearly a linear model is learned.

    Parameters
    ----------
    n_people : float
        The public number of people trained on.
    n_params : int
        The parameters of the linear model on the schema's own bins, intercepts included.
    epsilon : float

    Examples
    --------
    >>> round(learning_signal(750, 225, 1.0), 1), round(learning_signal(36_000, 225, 0.5))
    (50.0, 1200)
    """
    return epsilon * n_people / math.sqrt(n_params)


def people_to_learn(signal: float, n_params: int, epsilon: float, holdout: float = 0.0) -> int:
    """Return how many people a table needs for this signal, to two digits and rounded up; a share is held out.

    Examples
    --------
    >>> people_to_learn(50.0, 225, 1.0), people_to_learn(50.0, 225, 0.5, holdout=0.15)
    (750, 1800)
    """
    needed = signal * math.sqrt(n_params) / (epsilon * (1 - holdout))
    unit = 10.0 ** max(0, math.floor(math.log10(needed)) - 1)
    return round(math.ceil(needed / unit * (1 - 1e-12)) * unit)
