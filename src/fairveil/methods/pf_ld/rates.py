"""Parities as PF-LD states them: the rate of each group against the rate of everyone."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float64Array
from fairveil.errors import InvalidParameterError
from fairveil.fairness.constraints import Constraint, Parity, groups_of
from fairveil.fairness.groups import CLASSLESS, Population, Rate
from fairveil.fairness.histogram import Bound, HistogramConstraints, compile_bounds


@dataclass(frozen=True, eq=False)
class AgainstAll:
    """Differences "everyone's rate - a group's rate", which are to vanish.

    Attributes
    ----------
    bounds : tuple of Bound
        Each difference as a left side with the limit 0.
    groups, everyone : HistogramConstraints
        The two rates of each difference, over cells of (group, label) and over labels.
    """

    bounds: tuple[Bound, ...]
    groups: HistogramConstraints
    everyone: HistogramConstraints

    def __len__(self) -> int:
        return len(self.bounds)

    @property
    def n_cells(self) -> int:
        """The number of cells that hold the groups."""
        return self.groups.n_cells

    @cached_property
    def cell_labels(self) -> NDArray[np.bool_]:
        """Which labels a cell holds, shape (cells, labels)."""
        found = np.zeros((self.n_cells, self.groups.n_classes), dtype=bool)
        groups, labels = np.nonzero(self.groups.cells >= 0)
        found[self.groups.cells[groups, labels], labels] = True
        return found

    @cached_property
    def label_cells(self) -> NDArray[np.int64]:
        """The cell of each label in the histogram of everyone, -1 for a label that is not counted."""
        return self.everyone.cells[-1]

    def violations(
        self, group_counts: Float64Array, all_counts: Float64Array, minimum: float = 1.0
    ) -> Float64Array:
        """Return everyone's rate less the group's, for each difference."""
        ours = self.groups.weights @ self.groups.rates(group_counts, minimum)
        theirs = self.everyone.weights @ self.everyone.rates(all_counts, minimum)
        return theirs - ours


def against_all(constraint: Constraint | Sequence[Constraint], people: Population) -> AgainstAll:
    """Return the differences of one parity, or of several; tolerances have no part in it.

    Examples
    --------
    >>> from fairveil.fairness.groups import Attribute
    >>> from fairveil.fairness.constraints import DemographicParity
    >>> people = Population((Attribute("sex", ("f", "m")),), ("no", "yes"))
    >>> [str(bound) for bound in against_all(DemographicParity(), people).bounds]
    ['selection_rate - selection_rate[sex=f] <= 0', 'selection_rate - selection_rate[sex=m] <= 0']
    """
    several = list(constraint) if isinstance(constraint, Sequence) else [constraint]
    if not several or not all(isinstance(one, Parity) and one.ratio is None for one in several):
        raise InvalidParameterError(
            f"Expected differences between groups such as DemographicParity(), got {constraint!r}; caps, ratios and "
            "rules go with RateConstrainedClassifier."
        )
    pairs = list(dict.fromkeys(pair for one in several for pair in _pairs(one, people)))
    return AgainstAll(
        tuple(Bound(((1.0, all_), (-1.0, group)), 0.0) for group, all_ in pairs),
        compile_bounds([Bound(((1.0, group),), 1.0) for group, _ in pairs], people),
        compile_bounds([Bound(((1.0, all_),), 1.0) for _, all_ in pairs], people),
    )


def _pairs(parity: Constraint, people: Population) -> list[tuple[Rate, Rate]]:
    assert isinstance(parity, Parity)
    groups = groups_of(people, parity.attribute)
    if len(groups) < 2:
        raise InvalidParameterError(
            f"Expected at least two groups to compare for {parity.name}, got fewer; name more."
        )
    found = []
    for rate in parity.rates:
        classes = [None] if rate in CLASSLESS or people.n_classes == 2 else list(people.classes)
        found += [(Rate(rate, group, k), Rate(rate, (), k)) for k in classes for group in groups]
    return found
