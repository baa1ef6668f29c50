"""Values -> nice ticks and positions; long lines -> at most so many points."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Scale", "clip_text", "runs", "scale_over", "thin", "ticks"]

WIDE_FROM = 0x1100
SAME = 1e-6
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """A straight map from values to 0..1, with the ticks to draw.

    Examples
    --------
    >>> Scale(0.0, 2.0, (0.0, 1.0, 2.0)).at(0.5)
    0.25
    """

    low: float
    high: float
    ticks: tuple[float, ...] = ()

    def at(self, value: float) -> float:
        """Return where a value stands, 0 at the low end and 1 at the high end; what is outside stands at the end."""
        if self.high <= self.low:
            return 0.5
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)


def ticks(low: float, high: float, about: int = 5) -> tuple[float, ...]:
    """Return round numbers from at or below `low` to at or above `high`, roughly `about` of them.

    Examples
    --------
    >>> ticks(0.13, 0.88)
    (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """
    if high - low <= SAME * max(abs(low), abs(high), SAME):
        low, high = low - max(abs(low), 1.0) * 0.1, high + max(abs(high), 1.0) * 0.1
    rough = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in STEPS if power * factor >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(float(f"{number * step:.14g}") for number in range(first, last + 1))


def scale_over(
    values: Iterable[float | None],
    *,
    include: Sequence[float] = (),
    floor: float = -math.inf,
    ceiling: float = math.inf,
    about: int = 5,
) -> Scale:
    """Return a scale that covers all known values and those in `include`, but nothing beyond floor and ceiling."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    known = [min(max(value, floor), ceiling) for value in [*known, *include]] or [0.0, 1.0]
    marks = [one for one in ticks(min(known), max(known), about) if floor <= one <= ceiling]
    return Scale(min([*marks, *known]), max([*marks, *known]), tuple(marks))


def thin(count: int, most: int = 200) -> list[int]:
    """Return evenly spread positions of at most `most` among `count`, always the first and the last.

    Examples
    --------
    >>> thin(5, 3), thin(2, 200)
    ([0, 2, 4], [0, 1])
    """
    if count <= most:
        return list(range(count))
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})


def runs(known: Sequence[bool]) -> list[range]:
    """Return the stretches without a gap, so that no line is drawn across unknown values.

    Examples
    --------
    >>> runs([True, True, False, True])
    [range(0, 2), range(3, 4)]
    """
    found, start = [], None
    for place, one in enumerate([*known, False]):
        if one and start is None:
            start = place
        elif not one and start is not None:
            found.append(range(start, place))
            start = None
    return found


def clip_text(text: str, most: int = 24) -> str:
    """Return at most about `most` columns of a text, wide characters counting two; what is left out is in the middle.

    Examples
    --------
    >>> clip_text("race=Asian-Pac-Islander, age=30-50", 20)
    'race=Asian…age=30-50'
    """
    text = " ".join(text.split())
    if _columns(text) <= most:
        return text
    front = _fitting(text, most // 2)
    back = _fitting(text[::-1], most - most // 2 - 1)
    return f"{text[:front].rstrip()}…{text[len(text) - back :].lstrip()}"


def _columns(text: str) -> int:
    return sum(2 if ord(character) >= WIDE_FROM else 1 for character in text)


def _fitting(text: str, most: int) -> int:
    """Return how many characters from the start fit into so many columns."""
    return max(place for place in range(min(most, len(text)) + 1) if _columns(text[:place]) <= most)
