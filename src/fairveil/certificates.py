"""Which bounds hold, at a stated confidence, from noisy counts of people held out from training.

Everything here is computed from counts that were already released, so it costs no further privacy. Before any data is
read, `expected_tolerance` predicts from public numbers alone what will probably be certified.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fairveil._validation import check_number
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint, Parity, bounds_of
from fairveil.fairness.evaluation import Evaluation, Verdict
from fairveil.fairness.limits import LeftSide, left_sides, range_of, times_as_many
from fairveil.fairness.rates import SMALLEST_GROUP, Bound
from fairveil.report.notebook import certificate_html

MOST_ROWS = 1e15
"""Predictions for larger groups are made for groups of this size: limits of more people are lost in rounding."""


@dataclass(frozen=True)
class Claim:
    """One bound, and whether the held-out people confirm it.

    Attributes
    ----------
    bound : str
        The inequality, written out.
    limit : float
        The largest value that the left side may have.
    value : float or None
        The measured left side; None if too few people were counted.
    low, high : float
        Interval that contains the true left side at this confidence, for this bound alone.
    upper : float
        Upper confidence limit of the true left side; if unknown, the largest possible value.
    verdict : Verdict
    rows_needed : int or None
        How many held-out rows would probably confirm the bound; None if it is confirmed, or if more rows would not
        help.
    """

    bound: str
    limit: float
    value: float | None
    low: float
    high: float
    upper: float
    verdict: Verdict
    rows_needed: int | None


@dataclass(frozen=True)
class Certificate:
    """What is certified about a decision rule, for all bounds together.

    Attributes
    ----------
    confidence : float
    claims : tuple of Claim
    verdict : Verdict
        "holds" is about every bound at once.
    smallest_tolerance : float or None
        The smallest limit, common to all bounds, that holds at this confidence.
    rows_needed : int or None
        How many held-out rows would probably confirm every bound; None if all are confirmed, or if more would not help.
    n_rows : int
        The noisy number of held-out rows.

    Notes
    -----
    If the held-out rows are drawn independently from the people that the claim is about and were not used in training,
    then a false "holds", and a `smallest_tolerance` that is too small, each have probability at most 1 - `confidence`,
    up to the approximation stated and measured in docs/proofs/certificates.md. It is post-processing of noisy counts.
    """

    confidence: float
    claims: tuple[Claim, ...]
    verdict: Verdict
    smallest_tolerance: float | None
    rows_needed: int | None
    n_rows: int

    @property
    def sentence(self) -> str:
        """What is certified, or why not and how many held-out rows would probably do, in plain English."""
        claims, verdict = self.claims, self.verdict
        if not claims:
            return "No bound was requested, so nothing is certified."
        sure = f"{100 * self.confidence:g} % confidence, from about {self.n_rows:,} held-out rows"
        if verdict is Verdict.MEASURED:
            largest = max(claims, key=lambda claim: claim.upper)
            left = largest.bound.rpartition(" <= ")[0]
            detail = f"there are too few people in {left} to say more"
            if largest.value is not None:
                detail = f"the largest is {left}, measured at {largest.value:.4f}"
            return f"No bound was requested. With {sure}, no difference exceeds {largest.upper:.4f}: {detail}."
        if verdict is Verdict.HOLDS:
            closest = max(claims, key=lambda claim: claim.upper - claim.limit)
            bounds = "the requested bound holds" if len(claims) == 1 else f"all {len(claims)} bounds hold"
            detail = f"the closest is {closest.bound}, whose left side is at most {closest.upper:.4f}"
            return f"With {sure}, {bounds}: {detail}."
        found = [claim for claim in claims if claim.verdict is verdict]
        if verdict is Verdict.BROKEN:
            broken = max(found, key=lambda claim: (claim.value or 0.0) - claim.limit)
            return (
                f"With {sure}, this does not hold: {broken.bound}; measured {broken.value:.4f}. Loosen it, let "
                "decisions read the group if they may, or train with more people or a larger epsilon."
            )
        return f"Not enough data to say with {sure}: {_obstacle(found, self.rows_needed)}"

    def __str__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        return certificate_html(str(self.verdict), self.sentence)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        facts = asdict(self)
        claims = [{**claim, "verdict": str(claim["verdict"])} for claim in facts["claims"]]
        return {
            **facts,
            "claims": claims,
            "verdict": str(self.verdict),
            "sentence": self.sentence,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Certificate":
        """Return the certificate whose `values` `to_dict` wrote."""
        fields = {name: value for name, value in values.items() if name != "sentence"}
        claims = tuple(Claim(**{**claim, "verdict": Verdict(claim["verdict"])}) for claim in values["claims"])
        return cls(**{**fields, "claims": claims, "verdict": Verdict(values["verdict"])})


def _obstacle(claims: Sequence[Claim], rows_needed: int | None) -> str:
    """Return which bound is the hardest to confirm, and whether more rows would do."""
    for claim in claims:
        if claim.value is None:
            return (
                f"{claim.bound} is about too few people; hold out more rows of these groups, and check with 'fairveil "
                "check' that the table names the groups as the schema does."
            )
    hopeless = [claim for claim in claims if claim.rows_needed is None]
    worst = max(hopeless or claims, key=lambda claim: claim.rows_needed or (claim.value or 0.0) - claim.limit)
    found = f"{worst.bound} is measured at {worst.value:.4f} and may be up to {worst.upper:.4f}"
    if rows_needed is not None:
        return f"{found}; about {rows_needed:,} held-out rows would probably confirm it."
    return (
        f"{found}; at this measured value more rows alone would not confirm it, but a fairer rule or a larger "
        "tolerance may."
    )


def certify(
    evaluation: Evaluation, constraints: Constraint | Sequence[Constraint], confidence: float = 0.95
) -> Certificate:
    """Certify which constraints hold for the population that the held-out rows were drawn from.

    Parameters
    ----------
    evaluation : Evaluation
        Noisy counts of held-out rows.
    constraints : Constraint or sequence of them
        The requested bounds; may be empty.
    confidence : float
        At least 0.5 and below 1.

    Examples
    --------
    >>> from fairveil.fairness.rates import Attribute, Population
    >>> from fairveil.fairness.constraints import DemographicParity
    >>> people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    >>> counts = np.array([[[2500, 500], [500, 500]], [[2500, 500], [470, 530]], [[0, 0], [0, 0]]])
    >>> found = certify(Evaluation(counts, 9.0, people), DemographicParity(0.05))
    >>> str(found.verdict), round(found.smallest_tolerance, 3)
    ('holds', 0.024)
    """
    confidence = check_confidence(confidence)
    is_requested = not isinstance(constraints, Sequence) or len(constraints) > 0
    bounds = bounds_of(constraints, evaluation.people) if is_requested else []
    n_rows = max(0, round(float(np.sum(evaluation.counts))))
    claims = tuple(_claim(bound, evaluation, confidence, len(bounds), n_rows) for bound in bounds)
    verdicts, rows_needed = {claim.verdict for claim in claims}, None
    if not verdicts:
        verdict = Verdict.NOT_REQUESTED
    elif Verdict.BROKEN in verdicts:
        verdict = Verdict.BROKEN
    elif Verdict.UNKNOWN in verdicts:
        verdict = Verdict.UNKNOWN
        rows = [claim.rows_needed for claim in claims if claim.verdict is Verdict.UNKNOWN]
        known = [count for count in rows if count is not None]
        rows_needed = max(known) if len(known) == len(rows) else None
    else:
        verdict = Verdict.HOLDS
    smallest = max((claim.upper for claim in claims), default=None)
    return Certificate(
        confidence=confidence,
        claims=claims,
        verdict=verdict,
        smallest_tolerance=smallest,
        rows_needed=rows_needed,
        n_rows=n_rows,
    )


def certify_measured(
    evaluation: Evaluation, parity: Parity | Sequence[Parity], confidence: float = 0.95
) -> Certificate:
    """Certify an upper limit of every gap for methods without a tolerance: nothing passes or fails.

    Examples
    --------
    >>> from fairveil.fairness.rates import Attribute, Population
    >>> from fairveil.fairness.constraints import DemographicParity
    >>> people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    >>> counts = np.array([[[2500, 500], [500, 500]], [[2500, 500], [470, 530]], [[0, 0], [0, 0]]])
    >>> found = certify_measured(Evaluation(counts, 9.0, people), DemographicParity())
    >>> str(found.verdict), found.claims[0].limit
    ('measured', 0.024)
    """
    several = parity if isinstance(parity, Sequence) else (parity,)
    smallest = certify(evaluation, several, confidence).smallest_tolerance or 0.0
    shown = min(1.0, max(0.0, math.ceil(smallest * 1e4) / 1e4))
    found = certify(evaluation, [replace(one, tolerance=shown) for one in several], confidence)
    claims = tuple(replace(claim, verdict=Verdict.MEASURED) for claim in found.claims)
    return replace(found, claims=claims, verdict=Verdict.MEASURED, rows_needed=None)


def _claim(bound: Bound, evaluation: Evaluation, confidence: float, n_bounds: int, n_rows: int) -> Claim:
    found, is_known = left_sides(bound.terms, evaluation.counts, evaluation.noise_variance, evaluation.people)
    if not is_known:
        low, high = range_of(bound.terms)
        verdict = Verdict.HOLDS if high <= bound.limit else Verdict.UNKNOWN
        return Claim(str(bound), bound.limit, None, low, high, high, verdict, None)
    each_end = (1 + confidence) / 2
    upper, rows_needed = float(found.upper(confidence)), None
    # Any of the bounds may be the one that seems broken by chance; "holds" needs no such correction.
    lower = float(found.lower(1 - (1 - confidence) / n_bounds))
    if upper <= bound.limit:
        verdict = Verdict.HOLDS
    elif lower > bound.limit:
        verdict = Verdict.BROKEN
    else:
        verdict, times = Verdict.UNKNOWN, times_as_many(found, bound.limit, confidence)
        rows_needed = None if times is None else math.ceil(n_rows * times)
    return Claim(
        bound=str(bound),
        limit=bound.limit,
        value=float(found.value),
        low=float(found.lower(each_end)),
        high=float(found.upper(each_end)),
        upper=upper,
        verdict=verdict,
        rows_needed=rows_needed,
    )


def expected_tolerance(
    sizes: Sequence[float], noise_std: float, aimed_gap: float, confidence: float = 0.95, n_cells: int = 4
) -> float:
    """Predict which tolerance will be certified for groups of these public sizes: the two smallest decide.

    Each group is assumed to be selected half the time: a rate of one half varies most, so real rates do better. There
    is an even chance of this or less if the measured gap is as likely above as below the one aimed for. If the groups
    are too small for the noise, or the gap is 1 or more, the answer is 1: nothing will be certified. Sizes, noise and
    gap may be any numbers, infinite ones too, because this is also computed after the ledger is debited.

    Parameters
    ----------
    sizes : sequence of float
        Held-out rows of each group.
    noise_std : float
        Standard deviation of the noise on each count.
    aimed_gap : float
        The gap that the rule is trained for; a negative one counts as 0.
    confidence : float
    n_cells : int
        Counts per group: labels times decisions.

    Examples
    --------
    >>> round(expected_tolerance([2400, 4900], 3.7, 0.01), 3)
    0.031
    >>> round(expected_tolerance([3663] * 2, 3.7, 0.01), 3)
    0.03
    """
    if len(sizes) < 2:
        raise InvalidParameterError(f"Expected the sizes of two groups or more, got {list(sizes)!r}; state each.")
    if noise_std < 0:
        raise InvalidParameterError(f"Expected noise_std >= 0, got {noise_std!r}.")
    check_confidence(confidence)
    check_number("n_cells", n_cells, whole=True, at_least=2)
    # What is not a number promises nothing.
    hardest = np.sort(np.nan_to_num(np.asarray(sizes, dtype=float), posinf=MOST_ROWS).clip(0.0, MOST_ROWS))[:2]
    if not (hardest[0] >= SMALLEST_GROUP + 3 * noise_std * np.sqrt(n_cells) and aimed_gap < 1):
        return 1.0
    noise = np.full(2, noise_std**2 * n_cells / 2)
    rates = 0.5 + np.array([0.5, -0.5]) * max(aimed_gap, 0.0)
    return float(LeftSide(np.array([1.0, -1.0]), rates, hardest, noise, noise).upper(confidence))


def check_confidence(confidence: float) -> float:
    """Return a confidence of at least one half and below one, where limits of many claims can still be computed."""
    if not (isinstance(confidence, (int, float, np.floating)) and 0.5 <= confidence < 1 - 1e-12):
        raise InvalidParameterError(f"Expected 0.5 <= confidence < 1, got {confidence!r}; 0.95 is usual.")
    return float(confidence)
