"""Fairness constraints: parity of rates between groups, caps on rates, and any combination of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import ClassVar, Protocol

import numpy as np

from fairveil._validation import check_choice, check_number
from fairveil.errors import InvalidParameterError
from fairveil.fairness.rates import CLASSLESS, Bound, HistogramConstraints, Population, Rate, compile_bounds

Groups = tuple[tuple[str, str], ...]


class Constraint(Protocol):
    """Something that becomes bounds on rates once the groups and classes are known."""

    def bounds(self, people: Population) -> Iterable[Bound]:
        """Return the inequalities."""


@dataclass(frozen=True)
class Parity:
    """Rates that must not differ between groups by more than `tolerance`, for every class: what parities share.

    Parameters
    ----------
    tolerance : float
        The largest allowed difference.
    against : {"pairs", "rest"}
        Whom a group is compared with: each other group (fairlearn's difference, the largest minus the smallest rate),
        or everybody else together.
    ratio : float, optional
        Bound ratios instead: each group's rate is at least `ratio` times the other's, less `tolerance`. 0.8 with
        tolerance 0 is the four-fifths rule.
    attribute : str, optional
        The one attribute whose groups are meant; by default all intersections of the sensitive attributes.
    """

    tolerance: float = 0.0
    against: str = "pairs"
    ratio: float | None = None
    attribute: str | None = None

    name: ClassVar[str] = ""
    rates: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        check_choice("against", self.against, ("pairs", "rest"))
        object.__setattr__(self, "tolerance", _plain_tolerance(self.tolerance))
        if self.ratio is not None:
            object.__setattr__(self, "ratio", check_number("ratio", self.ratio, at_most=1))

    def bounds(self, people: Population) -> Iterator[Bound]:
        """Return one inequality for each comparison; refuse fewer than two groups."""
        pairs = list(self.comparisons(people))
        if len({one.where for one, _ in pairs}) < 2:
            raise InvalidParameterError(
                f"Expected at least two groups to compare for {self.name}, got fewer; name more."
            )
        weight = 1.0 if self.ratio is None else float(self.ratio)
        for one, other in pairs:
            yield Bound(((weight, one), (-1.0, other)), float(self.tolerance))

    def comparisons(self, people: Population) -> Iterator[tuple[Rate, Rate]]:
        """Return the pairs of rates that should be equal, in both orders, for each rate and class."""
        groups = groups_of(people, self.attribute)
        # a rate is taken of the positive class of two, and of each class of many
        rates = [
            (rate, of_class)
            for rate in self.rates
            for of_class in ([None] if rate in CLASSLESS or people.n_classes == 2 else people.classes)
        ]
        for rate, of_class in rates:
            if self.against == "pairs":
                for one, other in permutations(groups, 2):
                    yield Rate(rate, one, of_class), Rate(rate, other, of_class)
                continue
            for group in groups:
                inside, outside = Rate(rate, group, of_class), Rate(rate, group, of_class, rest=True)
                yield inside, outside
                # Of two groups each is the other's rest, so that both orders are there already.
                if len(groups) > 2:
                    yield outside, inside


class DemographicParity(Parity):
    """Groups are selected at nearly equal rates.

    Examples
    --------
    >>> DemographicParity(tolerance=0.02)
    DemographicParity(tolerance=0.02, against='pairs', ratio=None, attribute=None)
    """

    name = "demographic_parity"
    rates = ("selection_rate",)


class EqualizedOdds(Parity):
    """Groups have nearly equal true positive and false positive rates."""

    name = "equalized_odds"
    rates = ("true_positive_rate", "false_positive_rate")


class TruePositiveRateParity(Parity):
    """Groups have nearly equal true positive rates: equal opportunity."""

    name = "true_positive_rate_parity"
    rates = ("true_positive_rate",)


class FalsePositiveRateParity(Parity):
    """Groups have nearly equal false positive rates."""

    name = "false_positive_rate_parity"
    rates = ("false_positive_rate",)


class FalseNegativeRateParity(Parity):
    """Groups have nearly equal false negative rates."""

    name = "false_negative_rate_parity"
    rates = ("false_negative_rate",)


class ErrorRateParity(Parity):
    """Decisions are wrong about equally often in each group."""

    name = "error_rate_parity"
    rates = ("error_rate",)


class PrecisionParity(Parity):
    """Among the selected people of each group, nearly the same share is truly positive."""

    name = "precision_parity"
    rates = ("precision",)


@dataclass(frozen=True)
class Cap:
    """A rate that must stay below a limit, for every class: what caps share.

    Parameters
    ----------
    tolerance : float
        The limit.
    each_group : bool
        Whether each group must keep it by itself, or everyone together.
    attribute : str, optional
        With `each_group`, the one attribute whose groups are meant; by default all intersections.
    """

    tolerance: float
    each_group: bool = False
    attribute: str | None = None

    name: ClassVar[str] = ""
    rate: ClassVar[str] = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tolerance", _plain_tolerance(self.tolerance))

    def bounds(self, people: Population) -> Iterator[Bound]:
        """Return one inequality for each class and group."""
        groups = groups_of(people, self.attribute) if self.each_group else [()]
        is_single = self.rate in CLASSLESS or people.n_classes == 2
        for of_class in [None] if is_single else people.classes:
            for group in groups:
                yield Bound(((1.0, Rate(self.rate, group, of_class)),), float(self.tolerance))


class FalseNegativeRateCap(Cap):
    """Decisions miss at most this share of the truly positive people."""

    name = "false_negative_rate_cap"
    rate = "false_negative_rate"


class FalsePositiveRateCap(Cap):
    """Decisions select at most this share of the truly negative people."""

    name = "false_positive_rate_cap"
    rate = "false_positive_rate"


def groups_of(people: Population, attribute: str | None = None) -> list[Groups]:
    """Return the groups of one attribute, or all intersections, as pairs of attribute and group."""
    if not people.attributes:
        raise InvalidParameterError("Expected a sensitive attribute that defines groups, got none; name one.")
    if attribute is not None:
        return [((attribute, group),) for group in people.attribute(attribute).groups]
    each = [[(one.name, group) for group in one.groups] for one in people.attributes]
    return list(product(*each))


def _plain_tolerance(tolerance: float) -> float:
    """Return the tolerance as a plain Python number; refuse anything else."""
    if not (isinstance(tolerance, (int, float, np.integer, np.floating)) and 0 <= tolerance <= 1):
        raise InvalidParameterError(f"Expected 0 <= tolerance <= 1, got {tolerance!r}.")
    return tolerance.item() if isinstance(tolerance, np.generic) else tolerance


CONSTRAINT_TYPES: dict[str, type] = {
    kind.name: kind
    for kind in (
        DemographicParity, EqualizedOdds, TruePositiveRateParity, FalsePositiveRateParity, FalseNegativeRateParity,
        ErrorRateParity, PrecisionParity, FalseNegativeRateCap, FalsePositiveRateCap,
    )
}  # fmt: skip
"""By the name used on the command line; parities have fairlearn's names."""

for _kind in CONSTRAINT_TYPES.values():  # each describes the parameters that all parities, or all caps, share
    _summary, _, _examples = (_kind.__doc__ or "").partition("    Examples\n")
    _, _heading, _parameters = (_kind.__base__.__doc__ or "").partition("    Parameters\n")
    _parts = [_summary, _heading + _parameters, f"    Examples\n{_examples}" if _examples else ""]
    _kind.__doc__ = "\n\n".join(part.rstrip() for part in _parts if part) + "\n    "


def constrain(constraint: Constraint | Sequence[Constraint], people: Population) -> HistogramConstraints:
    """Return one constraint, or several together, compiled for histograms of these people.

    Examples
    --------
    >>> from fairveil.fairness.rates import Attribute
    >>> people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    >>> ready = constrain([DemographicParity(0.1), FalseNegativeRateCap(0.3)], people)
    >>> [str(bound) for bound in ready.bounds][1:]
    ['selection_rate[sex=m] - selection_rate[sex=f] <= 0.1', 'false_negative_rate <= 0.3']
    """
    return compile_bounds(bounds_of(constraint, people), people)


def bounds_of(constraint: Constraint | Sequence[Constraint], people: Population) -> list[Bound]:
    """Return the inequalities of one constraint, or of several together, each once."""
    several = list(constraint) if isinstance(constraint, Sequence) else [constraint]
    if isinstance(constraint, str) or not all(hasattr(one, "bounds") and not isinstance(one, type) for one in several):
        raise InvalidParameterError(
            f"Expected constraints such as DemographicParity(0.05), got {constraint!r}; make one or several."
        )
    return list(dict.fromkeys(bound for one in several for bound in one.bounds(people)))
