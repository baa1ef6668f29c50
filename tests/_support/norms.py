"""Norms of rows as records hand them to a model."""

import numpy as np

from fairveil.privacy.records import MemoryRecords


def row_norms(X):
    """Return the Euclidean norm of each row, in float32."""
    with np.errstate(all="ignore"):  # as records do while they answer a query
        return MemoryRecords(X, np.zeros(len(X), np.int16), np.zeros(len(X), np.int16)).norms
