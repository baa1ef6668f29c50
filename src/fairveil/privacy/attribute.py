"""When only the sensitive attribute of each record is secret: features and labels are public, the attribute is not.

Two data sets are neighbors if they differ in whether the attribute of one unit is known. A unit whose attribute is
unknown has no part in any noisy sum, so the veil works on the units whose attribute is known, one of them more or less;
the change from one group to another is one taken away and one added. What is computed from features and labels alone
crosses without noise, through `PublicRows`, which never hold an attribute.

Batches of the two sides are drawn apart: a public sum over a batch reveals its members, and coins that are known
amplify nothing (docs/proofs/attribute.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fairveil._random import Coins
from fairveil._typing import Float32Array
from fairveil.data.coded import Features, dense
from fairveil.models.base import Model, reads_codes
from fairveil.privacy.records import MemoryRecords
from fairveil.privacy.sampling import row_numbers

ATTRIBUTE = "attribute "
"""What the name of a unit of protection begins with if the unit is an attribute, not a whole record or person."""


def attribute_unit(names: Sequence[str], whose: str) -> str:
    """Return the unit of protection: the attributes of these names, of each record or person.

    Examples
    --------
    >>> attribute_unit(["sex", "race"], "person by id")
    'attribute sex + race of each person by id'
    """
    return f"{ATTRIBUTE}{' + '.join(names)} of each {whose}"


class PublicRows:
    """Features and labels of all units of a subset, without their attribute.

    Draws come from public coins: whatever is computed from them may be shown, their members included.

    Attributes
    ----------
    inputs : CodedRows, or array of float32 of shape (n_rows, n_features)
        What models read that can read codes.
    X : array of float32, shape (n_rows, n_features)
        The same, written out.
    y : array of int16, shape (n_rows,)
    persons : array of int64, shape (n_rows,), or None
    n_units : int
        The number of units; public, unlike the number of those whose attribute is known.
    """

    def __init__(self, records: MemoryRecords) -> None:
        rows = slice(None) if records.rows is None else records.rows
        self.inputs: Features = records.X if records.rows is None else records.X[rows]
        self.y = records.y[rows]
        self.persons = None if records.persons is None else records.persons[rows]
        self.n_units = records.n_units

    @cached_property
    def X(self) -> Float32Array:
        """The inputs, written out."""
        return dense(self.inputs)

    def inputs_of(self, model: Model) -> Features:
        """Return the inputs as this model reads them: codes, or written out."""
        return self.inputs if reads_codes(model) else self.X

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """What each row counts: 1, or one over the number of rows of its person."""
        if self.persons is None:
            return np.ones(len(self.y))
        _, places, sizes = np.unique(self.persons, return_inverse=True, return_counts=True)
        return 1 / sizes[places]

    def sample(self, n_rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return row numbers drawn by public coins, each row as often as its weight says."""
        if self.persons is None or not len(self.y):
            return rng.integers(0, max(1, len(self.y)), n_rows if len(self.y) else 0)
        return rng.choice(len(self.y), n_rows, p=self.weights / self.weights.sum())

    def __repr__(self) -> str:
        return f"PublicRows({self.n_units} units)"


@dataclass(frozen=True, eq=False)
class AttributeRecords:
    """Records whose cells alone are secret; -1 stands for an unknown attribute."""

    records: MemoryRecords

    @classmethod
    def of(cls, records: MemoryRecords, known: NDArray[np.integer]) -> "AttributeRecords":
        """Return the records with every cell that is not among the `known` ones taken as unknown.

        A person has one attribute: that of the first of their rows that tells it.
        """
        groups = np.where(np.isin(records.groups, known), records.groups, -1).astype(records.groups.dtype)
        if records.persons is not None:
            telling = np.flatnonzero(groups >= 0)
            persons, first = np.unique(records.persons[telling], return_index=True)
            places = np.searchsorted(persons, records.persons).clip(max=max(0, len(persons) - 1))
            is_known = np.isin(records.persons, persons)
            groups = np.full_like(groups, -1)
            groups[is_known] = records.groups[telling[first[places[is_known]]]]
        return cls(replace(records, groups=groups))

    @property
    def public(self) -> PublicRows:
        """What may be read without noise."""
        return PublicRows(self.records)

    @property
    def secret(self) -> MemoryRecords:
        """The records whose attribute is known: one of them more or less is what must not show."""
        records = self.records
        groups = records.groups if records.rows is None else records.groups[records.rows]
        return records._of_rows(row_numbers(groups >= 0))

    def split(self, shares: Mapping[str, float], coins: Coins) -> dict[str, "AttributeRecords"]:
        """Return disjoint subsets; which unit fell into which is no secret, since features and labels show it."""
        return {name: AttributeRecords(subset) for name, subset in self.records.split(shares, coins).items()}

    def __repr__(self) -> str:
        return "AttributeRecords(<private>)"
