"""Groups, rates and bounds: who is counted, which rates of them, and bounds on these rates over one histogram.

An *atom* is the finest unit of counting: one combination of groups (each attribute has one more level for people of
none of its groups) and one label. A *cell* is a set of atoms that no rate distinguishes. A *rate* is a ratio of two
sums of (group x label x decision) counts.

Bounds are compiled for a (cell x class) histogram, in closed form. The *pull* of a constraint is the gradient of the
weighted violations along every count. Denominators below a public `minimum` count as that minimum, so that a noisy
empty group cannot produce a huge rate.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float64Array
from fairveil._validation import check_choice
from fairveil.errors import InvalidParameterError

MAX_GROUPS = 2**15 - 1
"""Group codes are kept in 16 bits per row."""

MAX_BOUNDS = 10_000
"""More inequalities than this are refused: their tables would not fit into memory."""

SMALLEST_GROUP = 5.0
"""Rates of fewer people than this (plus three standard deviations of noise) are unknown."""

Mask = NDArray[np.bool_]

RATES = (
    "selection_rate",
    "true_positive_rate",
    "false_positive_rate",
    "true_negative_rate",
    "false_negative_rate",
    "error_rate",
    "accuracy",
    "precision",
)
"""Names as in fairlearn and scikit-learn, "accuracy" and "precision" without "_score"."""

CLASSLESS = frozenset({"error_rate", "accuracy"})
"""Rates that are about all classes at once."""

BARE_NAME = re.compile(r"[\w.+/-]+")
"""Groups, attributes and classes that are written without quotes."""


@dataclass(frozen=True)
class Attribute:
    """A sensitive attribute and its groups, in the schema's order."""

    name: str
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Population:
    """The public frame of all counts: attributes with their groups, classes, and which class is the positive one.

    Attributes
    ----------
    shape : tuple of int
        The number of levels of each attribute: its groups and, last, "none of them".
    names : tuple of str
        The intersections of groups, one group of each attribute, in the order of their codes; empty without any.
    codes : array of int
        The code of each intersection in `names`: people known in every attribute.
    n_groups : int
        The number of combinations of levels; the last is "none" in every attribute.
    n_classes : int
        The number of labels, which is also that of decisions.

    Examples
    --------
    >>> people = Population((Attribute("sex", ("f", "m")), Attribute("race", ("a", "b", "c"))), ("no", "yes"), 1)
    >>> people.shape, people.n_groups, people.names[:2]
    ((3, 4), 12, ('f, a', 'f, b'))
    """

    attributes: tuple[Attribute, ...]
    classes: tuple[str, ...]
    positive: int = -1
    shape: tuple[int, ...] = field(init=False, repr=False, compare=False)
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    codes: NDArray[np.int64] = field(init=False, repr=False, compare=False)
    n_groups: int = field(init=False, repr=False, compare=False)
    n_classes: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        lists = {"classes": self.classes, "attributes": tuple(attribute.name for attribute in self.attributes)}
        lists |= {f"groups of {attribute.name!r}": attribute.groups for attribute in self.attributes}
        for what, names in lists.items():
            twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
            if twice:
                raise InvalidParameterError(f"Expected distinct {what}, got {twice[0]!r} twice; name each once.")
        n_classes = len(self.classes)
        if not -n_classes <= self.positive < n_classes:
            raise InvalidParameterError(f"Expected positive to be the code of a class, got {self.positive!r}.")
        shape = tuple(len(attribute.groups) + 1 for attribute in self.attributes)
        n_groups = math.prod(shape)
        if n_groups > MAX_GROUPS:
            raise InvalidParameterError(
                f"Expected at most {MAX_GROUPS} combinations of groups, got {n_groups}; name fewer attributes."
            )
        intersections, codes = [], np.empty(0, dtype=np.int64)
        if self.attributes:
            intersections = list(product(*(attribute.groups for attribute in self.attributes)))
            is_known = [levels < size - 1 for levels, size in zip(np.indices(shape), shape, strict=True)]
            codes = np.flatnonzero(np.logical_and.reduce(is_known))
        derived = {
            "positive": self.positive % n_classes,
            "shape": shape,
            "names": tuple(map(", ".join, intersections)),
            "codes": codes,
            "n_groups": n_groups,
            "n_classes": n_classes,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def code(self, levels: Iterable[NDArray[np.integer]]) -> NDArray[np.int16]:
        """Return one code per row from its group in each attribute (-1: none of them); needs an attribute."""
        wrapped = [np.where(level < 0, size - 1, level) for level, size in zip(levels, self.shape, strict=True)]
        return np.ravel_multi_index(wrapped, self.shape).astype(np.int16)

    def members(self, where: Iterable[tuple[str, str]], *, rest: bool = False) -> NDArray[np.bool_]:
        """Return which group codes are meant by pairs of attribute and group; no pair means everyone.

        With `rest`, those of everyone else who belongs to some group of each named attribute.

        Examples
        --------
        >>> Population((Attribute("sex", ("f", "m")),), ("no", "yes")).members([("sex", "f")]).tolist()
        [True, False, False]
        """
        meant, known = np.ones((2, self.n_groups), dtype=bool)
        for name, group in where:
            attribute = self.attribute(name)
            groups = attribute.groups
            if group not in groups:
                raise InvalidParameterError(f"Expected a group of {name!r} ({', '.join(groups)}); got {group!r}.")
            levels = np.indices(self.shape)[self.attributes.index(attribute)].ravel()
            meant &= levels == groups.index(group)
            known &= levels < len(groups)
        return known & ~meant if rest else meant

    def attribute(self, name: str) -> Attribute:
        """Return the attribute of that name."""
        by_name = {attribute.name: attribute for attribute in self.attributes}
        if name not in by_name:
            raise InvalidParameterError(
                f"Expected a sensitive attribute of {', '.join(by_name) or 'none'}; got {name!r}; name it as sensitive."
            )
        return by_name[name]

    def class_code(self, name: str) -> int:
        """Return the code of a class."""
        if name not in self.classes:
            raise InvalidParameterError(f"Expected one of the classes {', '.join(self.classes)}; got {name!r}.")
        return self.classes.index(name)


@dataclass(frozen=True)
class Rate:
    """A rate of some people: those of the named groups, or (`rest`) everyone else whose groups are known.

    Examples
    --------
    >>> print(Rate("precision", where=(("sex", "Female"),), of_class=">50K"))
    precision(">50K")[sex=Female]
    """

    name: str
    where: tuple[tuple[str, str], ...] = ()
    of_class: str | None = None
    rest: bool = False

    def __post_init__(self) -> None:
        check_choice("rate", self.name, RATES)
        if self.name in CLASSLESS and self.of_class is not None:
            raise InvalidParameterError(f"Expected no class of {self.name}, which is about all, got {self.of_class!r}.")

    def __str__(self) -> str:
        of_class = "" if self.of_class is None else f"({_quoted(self.of_class)})"
        groups = ", ".join(f"{_quoted(name)}={_quoted(group)}" for name, group in self.where)
        people = f"[{'not ' if self.rest else ''}{groups}]" if groups else ""
        return f"{self.name}{of_class}{people}"

    def forms(self, people: Population) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the weights of numerator and denominator, each of shape (n_groups, n_labels, n_decisions)."""
        k = people.positive if self.of_class is None else people.class_code(self.of_class)
        above, below = rate_masks(self.name, people.n_classes, k)
        meant = people.members(self.where, rest=self.rest)
        return meant[:, None, None] * above.astype(float), meant[:, None, None] * below.astype(float)


def rate_masks(name: str, n_classes: int, k: int) -> tuple[Mask, Mask]:
    """Return which entries of the (label x decision) table are summed above and below, for class `k`.

    The false negative rate of class k is 1 - P(decision k | label k); P(decision k | label not k) is its *false
    positive* rate (RaCO-DP's formula swaps the two).
    """
    check_choice("rate", name, RATES)
    label, decision = np.indices((n_classes, n_classes))
    everyone = np.ones((n_classes, n_classes), dtype=bool)
    is_true, is_chosen = label == k, decision == k
    masks = {
        "selection_rate": (is_chosen, everyone),
        "true_positive_rate": (is_true & is_chosen, is_true),
        "false_positive_rate": (~is_true & is_chosen, ~is_true),
        "true_negative_rate": (~is_true & ~is_chosen, ~is_true),
        "false_negative_rate": (is_true & ~is_chosen, is_true),
        "error_rate": (label != decision, everyone),
        "accuracy": (label == decision, everyone),
        "precision": (is_true & is_chosen, is_chosen),
    }
    return masks[name]


def smallest_partition(memberships: NDArray) -> NDArray[np.int64]:
    """Return each atom's cell in the coarsest partition whose cells make up every subset (RaCO-DP, Remark 1).

    Parameters
    ----------
    memberships : array of shape (n_subsets, n_atoms)
        Who belongs to which subset; weights instead of truth values separate atoms by weight.

    Returns
    -------
    array of shape (n_atoms,)
        Cells 0, 1, ... in the order of their first atom; -1 for atoms that belong to no subset.

    Examples
    --------
    >>> smallest_partition(np.array([[1, 1, 0, 0], [0, 1, 0, 0]], dtype=bool)).tolist()
    [0, 1, -1, -1]
    """
    columns = np.asarray(memberships, dtype=np.float64).T
    cell_of: dict[bytes, int] = {}
    cells = [cell_of.setdefault(column.tobytes(), len(cell_of)) if column.any() else -1 for column in columns + 0.0]
    return np.array(cells, dtype=np.int64)


@dataclass(frozen=True)
class Bound:
    """One inequality: a weighted sum of rates is at most `limit`.

    Examples
    --------
    >>> men, women = (Rate("selection_rate", (("sex", group),)) for group in "mf")
    >>> print(Bound(((0.8, men), (-1.0, women)), 0.0))
    0.8 * selection_rate[sex=m] - selection_rate[sex=f] <= 0
    """

    terms: tuple[tuple[float, Rate], ...]
    limit: float

    def __str__(self) -> str:
        numbers = [*(abs(weight) for weight, _ in self.terms), self.limit]
        # the shortest text that reads back as this very number
        texts = [f"{n:g}" if float(f"{n:g}") == n else repr(float(n)) for n in numbers]
        words = ""
        for (weight, rate), text in zip(self.terms, texts[:-1], strict=True):
            sign = ("-" if weight < 0 else "") if not words else (" - " if weight < 0 else " + ")
            words += f"{sign}{rate}" if abs(weight) == 1 else f"{sign}{text} * {rate}"
        return f"{words} <= {texts[-1]}"


class Ratios(NamedTuple):
    """Rates, their denominators, and which of these are above the minimum (a minimum has no slope)."""

    rates: Float64Array
    below: Float64Array
    is_free: NDArray[np.bool_]


class Estimates(NamedTuple):
    """Rates from noisy counts, shape (n_rates,), and how well the left side of each bound is known, shape (n_bounds,).

    `noise_errors` are standard errors from the noise on the counts. `sampling_errors` are those because the counted
    people are a sample: rates of the same people are taken as independent, a rate near 0 or 1 as 0.02 from it.
    `smallest_denominators` are those among the rates of each bound, and a bound `has_enough_people` to be estimated
    where every denominator is well above its own noise.
    """

    rates: Float64Array
    noise_errors: Float64Array
    sampling_errors: Float64Array
    smallest_denominators: Float64Array
    has_enough_people: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class HistogramConstraints:
    """Bounds compiled for a histogram: everything costs O(rates x cells x classes), whatever the number of rows.

    Attributes
    ----------
    bounds : tuple of Bound
        The inequalities.
    cells : array of shape (n_groups, n_labels)
        The cell of each atom, -1 for atoms that no rate counts.
    above, below : arrays of shape (n_rates, n_cells * n_classes)
        Numerator and denominator of each rate as weights of the flat histogram.
    weights : array of shape (n_bounds, n_rates)
    limits : array of shape (n_bounds,)
    n_cells, n_classes : int
        The shape of the histogram; classes are decisions.
    """

    bounds: tuple[Bound, ...]
    cells: NDArray[np.int64]
    above: Float64Array
    below: Float64Array
    weights: Float64Array
    limits: Float64Array
    n_cells: int
    n_classes: int

    def ratios(self, histogram: Float64Array, minimum: float = 1.0) -> Ratios:
        """Return every rate with its denominator, from which all else follows."""
        flat = histogram.ravel()
        below = self.below.dot(flat)  # for small arrays faster than @, and called at every training step
        bounded = np.maximum(below, minimum)
        return Ratios(self.above.dot(flat) / bounded, bounded, below > minimum)

    def values(self, histogram: Float64Array, minimum: float = 1.0) -> Float64Array:
        """Return the left side of each bound."""
        return self.weights @ self.ratios(histogram, minimum).rates

    def violation(self, histogram: Float64Array, minimum: float = 1.0) -> Float64Array:
        """Return by how much each bound is broken (negative: how much slack is left)."""
        return self.values(histogram, minimum) - self.limits

    def pull(self, histogram: Float64Array, multipliers: Float64Array, minimum: float = 1.0) -> Float64Array:
        """Return d(sum_j multiplier_j Gamma_j)/d(histogram), shape (n_cells, n_classes), by the quotient rule."""
        return self.pull_of(self.ratios(histogram, minimum), multipliers)

    def pull_of(self, ratios: Ratios, multipliers: Float64Array) -> Float64Array:
        """Return the pull where the rates are known already."""
        slopes = multipliers.dot(self.weights) / ratios.below
        pulled = slopes.dot(self.above) - (slopes * ratios.rates * ratios.is_free).dot(self.below)
        return pulled.reshape(-1, self.n_classes)

    def estimate(self, histogram: Float64Array, noise_variance: float = 0.0, minimum: float = 1.0) -> Estimates:
        """Return each rate, and how well each left side is known, if there is noise of this variance on every count."""
        ratios, is_used = self.ratios(histogram, minimum), self.weights != 0
        noise_errors = np.zeros(len(self.bounds))
        if noise_variance:
            # the delta method: the derivative of a ratio n/d along a count is (above - rate below) / d
            slopes = (self.above - (ratios.rates * ratios.is_free)[:, None] * self.below) / ratios.below[:, None]
            noise_errors = np.sqrt(noise_variance * np.square(self.weights @ slopes).sum(axis=1))
        middle = np.clip(ratios.rates, 0.02, 0.98)
        noise_below = np.sqrt(noise_variance * np.count_nonzero(self.below, axis=1))
        is_small = self.below @ histogram.ravel() < SMALLEST_GROUP + 3 * noise_below
        return Estimates(
            ratios.rates,
            noise_errors,
            np.sqrt(np.square(self.weights) @ (middle * (1 - middle) / ratios.below)),
            np.where(is_used, ratios.below, np.inf).min(axis=1),
            ~(is_used & is_small).any(axis=1),
        )


def compile_bounds(bounds: Iterable[Bound], people: Population) -> HistogramConstraints:
    """Return the bounds, in their order, over the smallest partition of people that their rates need."""
    bounds = tuple(bounds)
    rates = list(dict.fromkeys(rate for bound in bounds for _, rate in bound.terms))
    if not rates:
        raise InvalidParameterError("Expected at least one rate to constrain, got none.")
    if len(bounds) > MAX_BOUNDS:
        raise InvalidParameterError(
            f"Expected at most {MAX_BOUNDS} bounds, got {len(bounds)}; compare groups against the rest, or attributes "
            "one by one."
        )
    for bound in bounds:
        least = sum(min(weight, 0.0) for weight, _ in bound.terms)
        if bound.limit < least:
            raise InvalidParameterError(
                f"Expected a bound that rates between 0 and 1 can meet, got {bound}; its left side is at least "
                f"{least:g}."
            )
    forms = np.array([rate.forms(people) for rate in rates])  # (R, 2, groups, labels, decisions)
    n_atoms = people.n_groups * people.n_classes
    by_atom = forms.transpose(0, 1, 4, 2, 3).reshape(-1, n_atoms)
    cells = smallest_partition(by_atom)
    first = np.array([np.flatnonzero(cells == cell)[0] for cell in range(cells.max() + 1)])
    tables = forms.reshape(len(rates), 2, n_atoms, people.n_classes)[:, :, first].reshape(len(rates), 2, -1)
    place = {rate: index for index, rate in enumerate(rates)}
    weights = np.zeros((len(bounds), len(rates)))
    for j, bound in enumerate(bounds):
        for weight, rate in bound.terms:
            weights[j, place[rate]] += weight
    return HistogramConstraints(
        bounds,
        cells.reshape(people.n_groups, people.n_classes),
        np.ascontiguousarray(tables[:, 0]),
        np.ascontiguousarray(tables[:, 1]),
        weights,
        np.array([bound.limit for bound in bounds]),
        len(first),
        people.n_classes,
    )


def aims_below(limits: Float64Array, margins: Float64Array, largest_share: float = 0.5) -> Float64Array:
    """Return what each left side should come down to, so that people who were not counted keep the limit too.

    That is the limit less a margin, but by at most `largest_share` of the limit.
    """
    return limits - np.minimum(margins, largest_share * np.abs(limits))


def minimum_size(size: float) -> float:
    """Return the smallest number of people that a rate is divided by: a thousandth of `size`, and at least 1."""
    return max(1.0, 1e-3 * size)


def _quoted(name: str) -> str:
    """Return a name as expressions read it: quoted unless it is plain."""
    if BARE_NAME.fullmatch(name):
        return name
    escaped = name.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'
