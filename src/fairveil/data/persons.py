"""Ids of persons in, whole numbers that are equal where the person is the same out."""

import hashlib
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairveil.data.values import Cells, MissingCells, canonical_text, map_cells
from fairveil.errors import BadStructure

__all__ = ["person_codes"]

_SIXTY_THREE_BITS = (1 << 63) - 1


def person_codes(cells: Cells, missing: MissingCells) -> NDArray[np.int64]:
    """Return one number for each cell's person, -1 where the id is missing.

    The number is a hash of the id, so it is the same in every chunk, file and worker. Among n persons the
    chance that a given one shares a number with another is n / 2**63, about 1e-12 for ten million.

    A column of decimals is bad structure: pandas makes one out of whole numbers as soon as an id is missing,
    and large ids then fall together.
    """
    if _is_decimal(cells):
        raise BadStructure(
            "Expected ids as text or whole numbers, got a column of decimals; read it with dtype str or Int64."
        )

    def code(cell: Any) -> int:
        text = canonical_text(cell)
        if text is None or text in missing.texts:
            return -1
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "little") & _SIXTY_THREE_BITS

    return map_cells(cells, code, np.int64)


def _is_decimal(cells: Cells) -> bool:
    dtype: Any = cells.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    return pd.api.types.is_float_dtype(dtype) or pd.api.types.is_complex_dtype(dtype)
