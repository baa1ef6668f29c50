"""Which bounds hold, at a stated confidence, from noisy counts of people held out from training.

Everything here is computed from counts that were already released, so it costs no further privacy. Before any data is
read, `expected_tolerance` predicts from public numbers alone what will probably be certified.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fairveil._validation import check_number
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint, Parity
from fairveil.fairness.evaluation import Evaluation, Verdict
from fairveil.fairness.limits import LeftSide, left_sides, times_as_many
from fairveil.fairness.rates import SMALLEST_GROUP
from fairveil.report.formatting import fixed, percent, points
from fairveil.report.notebook import certificate_html

MOST_ROWS = 1e15
"""Predictions for larger groups are made for groups of this size: limits of more people are lost in rounding."""

REMEDY = "Loosen it, let decisions read the group if they may, or train with more people or a larger epsilon."
"""What may help a rule whose bound does not hold, or was measured above its limit."""


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
        Confidence limits of the true left side, each at this confidence. They decide: the bound holds if `high` is
        within the limit, and is broken if `low` is above it. If the value is unknown, what rates can give.
    upper : float
        The same as `high`.
    verdict : Verdict
    rows_needed : int or None
        How many held-out rows would probably confirm the bound; None if it is confirmed, or if more rows would not
        help.
    words : str
        The left side in plain words with the measured rates, if it compares one rate of two groups; else empty.
    """

    bound: str
    limit: float
    value: float | None
    low: float
    high: float
    upper: float
    verdict: Verdict
    rows_needed: int | None
    words: str = ""


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
        found = [claim for claim in claims if claim.verdict is verdict] or claims
        # the one to name: unknown, or else the furthest above its limit
        worst = max(found, key=lambda claim: (claim.value is None, claim.high - claim.limit))
        if verdict in {Verdict.BROKEN, Verdict.ABOVE}:
            worst = max(found, key=lambda claim: (claim.value or 0.0) - claim.limit)
        # a difference between groups is in percentage points, what a rule adds up otherwise is a fraction
        amount: Any = partial(points, digits=2) if worst.words else fixed
        left = worst.words or worst.bound.rpartition(" <= ")[0]
        value, limit = amount(worst.value), amount(worst.limit)
        low, high = amount(worst.low, toward="down"), amount(worst.high, toward="up")
        sure = f"{100 * self.confidence:g} % confidence, from about {self.n_rows:,} held-out rows"
        more = "more rows alone would not confirm the bound, but a fairer rule or a larger tolerance may"
        if self.rows_needed is not None:
            more = f"about {self.rows_needed:,} held-out rows would probably confirm the bound"
        said = {
            Verdict.MEASURED: f"No bound was requested. With {sure}, no difference exceeds {high}: the largest is "
            f"{left}.",
            Verdict.HOLDS: f"With {sure}, {'the requested bound holds' if len(claims) == 1 else 'all bounds hold'}. "
            f"The closest to its limit is {left}: measured {value}, at most {high}; the limit is {limit}.",
            Verdict.BROKEN: f"With {sure}, a requested bound does not hold: {left} was measured at {value} and is at "
            f"least {low}; the limit is {limit}. {REMEDY}",
            Verdict.ABOVE: f"A requested bound was measured above its limit, but not certainly: {left} was measured "
            f"at {value}; the limit is {limit}. With {sure}, it is at most {high}, and it may still be within the "
            f"limit. {REMEDY}",
            Verdict.UNKNOWN: f"Not enough data to say with {sure}: {left} was measured at {value} and may be up to "
            f"{high}; the limit is {limit}; {more}.",
        }
        if worst.value is None and verdict is not Verdict.HOLDS:
            return (
                f"Not enough data to say with {sure}: too few people were held out to measure {left}. Hold out more "
                "rows of these groups, and check with 'fairveil check' that the table names the groups as the schema "
                "does."
            )
        return said[verdict]

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
    estimates, n_rows = evaluation.bounds(constraints, confidence), max(0, round(float(np.sum(evaluation.counts))))
    claims = []
    for one in estimates:
        verdict, rows_needed, value = one.verdict, None, one.left.value
        if verdict is Verdict.UNKNOWN and value is not None:
            side, _ = left_sides(one.bound.terms, evaluation.counts, evaluation.noise_variance, evaluation.people)
            times = times_as_many(side, one.bound.limit, confidence)
            rows_needed = None if times is None else math.ceil(n_rows * times)
        low, high, pair, words = one.left.low, one.left.high, one.pair, ""
        if pair is not None:
            of_class = "" if pair["of_class"] is None else f" (for {pair['of_class']})"
            ends = (pair["highest"], pair["lowest"])
            first, second = (end["group"] + ("" if value is None else f" ({percent(end['value'])})") for end in ends)
            words = f"the {pair['rate'].replace('_', ' ')}{of_class} of {first} minus that of {second}"
        claims.append(Claim(str(one.bound), one.bound.limit, value, low, high, high, verdict, rows_needed, words))
    found = {claim.verdict for claim in claims}
    order = (Verdict.BROKEN, Verdict.ABOVE, Verdict.UNKNOWN, Verdict.HOLDS)  # the worst of any bound is that of all
    verdict = next((one for one in order if one in found), Verdict.NOT_REQUESTED)
    rows = [claim.rows_needed for claim in claims if claim.verdict is Verdict.UNKNOWN]
    known = [count for count in rows if count is not None]
    rows_needed = max(known) if verdict is Verdict.UNKNOWN and len(known) == len(rows) else None
    smallest = max((claim.high for claim in claims), default=None)
    return Certificate(
        confidence=confidence,
        claims=tuple(claims),
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
