"""Noisy counts of people kept apart from training -> which bounds hold, at a stated confidence.

Everything here is computed from counts that were released already, so that it costs no privacy.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from fairveil.certificates.forecast import check_confidence
from fairveil.certificates.sentences import sentence_of
from fairveil.fairness.constraints import Constraint, Parity, bounds_of
from fairveil.fairness.evaluation import Evaluation
from fairveil.fairness.histogram import Bound
from fairveil.fairness.intervals import LeftSide, left_side, range_of

MOST_TIMES_AS_MANY = 1e6
"""Beyond so many times the rows at hand, how many would be needed is not said."""


class Finding(StrEnum):
    """What held-out people say of what was asked."""

    HOLDS = "holds"
    BROKEN = "does not hold"
    TOO_LITTLE = "not enough data"
    MEASURED = "measured"
    NOTHING = "nothing was asked"


@dataclass(frozen=True)
class Claim:
    """One bound and what held-out people say of it.

    Attributes
    ----------
    bound : str
        The inequality, written out.
    limit : float
        What the left side may be at most.
    value : float or None
        The measured left side; None where it is of too few people to speak of.
    low, high : float
        Where the true left side is at this confidence, this bound taken by itself.
    upper : float
        What the true left side is at most at this confidence; of an unknown one the largest value possible.
    verdict : Finding
    rows_needed : int or None
        How many held-out rows would probably show the bound; None if it is shown, or if more rows would not help.
    """

    bound: str
    limit: float
    value: float | None
    low: float
    high: float
    upper: float
    verdict: Finding
    rows_needed: int | None


@dataclass(frozen=True)
class Certificate:
    """What is certified of a rule, for all bounds together.

    Attributes
    ----------
    confidence : float
    claims : tuple of Claim
    verdict : Finding
        "holds" says it of every bound at once.
    smallest_tolerance : float or None
        What no true left side exceeds, at this confidence: the smallest limit, common to all bounds, that holds.
    rows_needed : int or None
        How many held-out rows would probably show every bound; None if all are shown, or if more would not help.
    n_rows : int
        The noisy number of held-out rows.

    Guarantees
    ----------
    If the held-out rows are drawn independently from the people the claim is about and took no part in training, then
    "holds" is said falsely, and `smallest_tolerance` is too small, with probability at most 1 - `confidence` each, up
    to the approximation stated and measured in docs/proofs/certificates.md. It is post-processing of noisy counts.
    """

    confidence: float
    claims: tuple[Claim, ...]
    verdict: Finding
    smallest_tolerance: float | None
    rows_needed: int | None
    n_rows: int

    @property
    def sentence(self) -> str:
        """What is certified, or why not and how many held-out rows would probably do, in plain English."""
        return sentence_of(self.verdict, self.claims, self.confidence, self.n_rows, self.rows_needed)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        claims = [{**asdict(claim), "verdict": str(claim.verdict)} for claim in self.claims]
        return {**asdict(self), "claims": claims, "verdict": str(self.verdict), "sentence": self.sentence}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Certificate":
        """Return the certificate that `to_dict` wrote."""
        fields = {name: value for name, value in values.items() if name != "sentence"}
        claims = tuple(Claim(**{**claim, "verdict": Finding(claim["verdict"])}) for claim in values["claims"])
        return cls(**{**fields, "claims": claims, "verdict": Finding(values["verdict"])})


def certify(
    evaluation: Evaluation, constraints: Constraint | Sequence[Constraint], confidence: float = 0.95
) -> Certificate:
    """Return which of the constraints hold among the people that held-out rows were drawn from.

    Parameters
    ----------
    evaluation : Evaluation
        Noisy counts of held-out rows.
    constraints : Constraint or sequence of them
        What was asked; may be empty.
    confidence : float
        At least 0.5 and below 1.

    Examples
    --------
    >>> from fairveil.fairness.groups import Attribute, Population
    >>> from fairveil.fairness.constraints import DemographicParity
    >>> people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    >>> counts = np.array([[[2500, 500], [500, 500]], [[2500, 500], [470, 530]], [[0, 0], [0, 0]]])
    >>> found = certify(Evaluation(counts, 9.0, people), DemographicParity(0.05))
    >>> str(found.verdict), round(found.smallest_tolerance, 3)
    ('holds', 0.024)
    """
    confidence = check_confidence(confidence)
    bounds = bounds_of(constraints, evaluation.people) if _is_asked(constraints) else []
    n_rows = max(0, round(float(np.sum(evaluation.counts))))
    claims = tuple(_claim(bound, evaluation, confidence, len(bounds), n_rows) for bound in bounds)
    verdict = _together(claims)
    return Certificate(
        confidence=confidence,
        claims=claims,
        verdict=verdict,
        smallest_tolerance=max((claim.upper for claim in claims), default=None),
        rows_needed=_rows_for_all(claims) if verdict is Finding.TOO_LITTLE else None,
        n_rows=n_rows,
    )


def certify_measured(
    evaluation: Evaluation, parity: Parity | Sequence[Parity], confidence: float = 0.95
) -> Certificate:
    """Return what no gap exceeds, for rules of which no tolerance was asked: nothing is passed or failed.

    Examples
    --------
    >>> from fairveil.fairness.groups import Attribute, Population
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
    claims = tuple(replace(claim, verdict=Finding.MEASURED) for claim in found.claims)
    return replace(found, claims=claims, verdict=Finding.MEASURED, rows_needed=None)


def _is_asked(constraints: Constraint | Sequence[Constraint]) -> bool:
    return not isinstance(constraints, Sequence) or len(constraints) > 0


def _claim(bound: Bound, evaluation: Evaluation, confidence: float, n_bounds: int, n_rows: int) -> Claim:
    found = left_side(bound.terms, evaluation.counts, evaluation.noise_variance, evaluation.people)
    if found is None:
        low, high = range_of(bound.terms)
        verdict = Finding.HOLDS if high <= bound.limit else Finding.TOO_LITTLE
        return Claim(str(bound), bound.limit, None, low, high, high, verdict, None)
    each_end = (1 + confidence) / 2
    upper = float(found.upper(confidence))
    # Any of the bounds may be the one that seems broken by chance; "holds" needs no such care.
    surely = float(found.lower(1 - (1 - confidence) / n_bounds))
    verdict = _finding(upper, surely, bound.limit)
    rows = _rows_needed(found, bound.limit, confidence, n_rows) if verdict is Finding.TOO_LITTLE else None
    return Claim(
        bound=str(bound),
        limit=bound.limit,
        value=float(found.value),
        low=float(found.lower(each_end)),
        high=float(found.upper(each_end)),
        upper=upper,
        verdict=verdict,
        rows_needed=rows,
    )


def _finding(upper: float, surely: float, limit: float) -> Finding:
    if upper <= limit:
        return Finding.HOLDS
    return Finding.BROKEN if surely > limit else Finding.TOO_LITTLE


def _together(claims: Sequence[Claim]) -> Finding:
    verdicts = {claim.verdict for claim in claims}
    if not verdicts:
        return Finding.NOTHING
    if Finding.BROKEN in verdicts:
        return Finding.BROKEN
    return Finding.TOO_LITTLE if Finding.TOO_LITTLE in verdicts else Finding.HOLDS


def _rows_needed(found: LeftSide, limit: float, confidence: float, n_rows: int) -> int | None:
    """Return at how many rows the same measured rates would show the bound, if ever."""
    if found.value >= limit or not found.enlarged(MOST_TIMES_AS_MANY).upper(confidence) <= limit:
        return None
    low, high = 0.0, math.log(MOST_TIMES_AS_MANY)
    while high - low > 1e-4:
        middle = (low + high) / 2
        is_shown = found.enlarged(math.exp(middle)).upper(confidence) <= limit
        low, high = (low, middle) if is_shown else (middle, high)
    return math.ceil(n_rows * math.exp(high))


def _rows_for_all(claims: Sequence[Claim]) -> int | None:
    """Return the rows that would show every bound; None as soon as rows would not help one of them."""
    rows = [claim.rows_needed for claim in claims if claim.verdict is not Finding.HOLDS]
    known = [count for count in rows if count is not None]
    return max(known) if known and len(known) == len(rows) else None
