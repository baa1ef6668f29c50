"""A schema's row rule and a column in, which rows meet it out."""

import numpy as np
from numpy.typing import NDArray

from fairveil.data.facts import Where
from fairveil.data.values import Cells, MissingCells, canonical_text, map_cells, numbers_of

__all__ = ["meets"]


def meets(rule: Where, cells: Cells, missing: MissingCells) -> NDArray[np.bool_]:
    """Return for each cell whether it meets all conditions of the rule."""
    numbers = numbers_of(cells, missing)
    # A comparison with NaN is False, which is the stated rule for missing cells.
    conditions = [
        numbers >= rule.at_least if rule.at_least is not None else True,
        numbers <= rule.at_most if rule.at_most is not None else True,
        numbers > rule.above if rule.above is not None else True,
        numbers < rule.below if rule.below is not None else True,
        map_cells(cells, lambda cell: _meets_text(rule, canonical_text(cell), missing), np.bool_),
    ]
    return np.logical_and.reduce(np.broadcast_arrays(*conditions))


def _meets_text(rule: Where, text: str | None, missing: MissingCells) -> bool:
    is_listed = rule.one_of is None or text in rule.one_of
    is_barred = rule.none_of is not None and text in rule.none_of
    is_absent = rule.present is not None and missing.holds(text)
    return is_listed and not is_barred and not is_absent
