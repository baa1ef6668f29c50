"""A certificate's findings -> one or two plain sentences."""

from collections.abc import Sequence
from typing import Protocol


class Told(Protocol):
    """What a sentence needs to know of a claim."""

    @property
    def bound(self) -> str:
        """The inequality, written out."""

    @property
    def limit(self) -> float:
        """What the left side may be at most."""

    @property
    def value(self) -> float | None:
        """The measured left side, if known."""

    @property
    def upper(self) -> float:
        """What the left side is at most."""

    @property
    def verdict(self) -> str:
        """What is found."""

    @property
    def rows_needed(self) -> int | None:
        """How many rows would probably show it."""


def sentence_of(
    verdict: str, claims: Sequence[Told], confidence: float, n_rows: int, rows_needed: int | None
) -> str:
    """Return what is certified, or why not and what would help."""
    if not claims:
        return "Nothing was asked, so nothing is certified."
    sure = f"{100 * confidence:g} % confidence, from about {n_rows:,} held-out rows"
    if verdict == "measured":
        largest = max(claim.upper for claim in claims)
        return (
            f"No bound was asked for. With {sure}, no difference exceeds {largest:.4f}: {_largest(claims)}."
        )
    if verdict == "holds":
        bounds = "the one bound asked for holds" if len(claims) == 1 else f"all {len(claims)} bounds hold"
        return f"With {sure}, {bounds}: {_closest(claims)}."
    if verdict == "does not hold":
        broken = max(_of(claims, verdict), key=_excess)
        return (
            f"With {sure}, this does not hold: {broken.bound}; measured {broken.value:.4f}. Loosen it, let decisions "
            "read the group if they may, or train with more people or a larger epsilon."
        )
    return f"Not enough data to say with {sure}: {_obstacle(_of(claims, verdict), rows_needed)}"


def _of(claims: Sequence[Told], verdict: str) -> list[Told]:
    return [claim for claim in claims if claim.verdict == verdict]


def _excess(claim: Told) -> float:
    return (claim.limit if claim.value is None else claim.value) - claim.limit


def _largest(claims: Sequence[Told]) -> str:
    largest = max(claims, key=lambda claim: claim.upper)
    left_side = largest.bound.rpartition(" <= ")[0]
    if largest.value is None:
        return f"too few people are behind {left_side} to say more"
    return f"the largest is {left_side}, measured at {largest.value:.4f}"


def _closest(claims: Sequence[Told]) -> str:
    closest = max(claims, key=lambda claim: claim.upper - claim.limit)
    return f"the closest is {closest.bound}, whose left side is at most {closest.upper:.4f}"


def _obstacle(open_claims: Sequence[Told], rows_needed: int | None) -> str:
    """Return which bound is the hardest to show, and whether more rows would do."""
    unknown = [claim for claim in open_claims if claim.value is None]
    if unknown:
        return (
            f"{unknown[0].bound} is about too few people to speak of; hold out more rows of these groups, and see with "
            "'fairveil check' whether the table names them as the schema does."
        )
    hopeless = [claim for claim in open_claims if claim.rows_needed is None]
    worst = max(hopeless or open_claims, key=lambda claim: claim.rows_needed or _excess(claim))
    found = f"{worst.bound} is measured at {worst.value:.4f} and may be up to {worst.upper:.4f}"
    if rows_needed is not None:
        return f"{found}; about {rows_needed:,} held-out rows would probably show it."
    return f"{found}; at this measured value more rows alone would not show it, a fairer rule or larger tolerance may."
