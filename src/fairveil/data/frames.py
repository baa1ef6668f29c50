"""Tables and columns of any kind of data frame in, pandas out; how a column is read follows from its type alone.

Frames that narwhals knows (polars, PyArrow, Modin, cuDF and others) come with declared types, so they are read by the
rules of `arrow_columns`: no value decides how others are read, and text that spells a number stays text.
"""

from collections.abc import Collection
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import pyarrow as pa
from narwhals.exceptions import DuplicateError

from fairveil.data.arrow_columns import as_frame, is_supported
from fairveil.errors import BadStructureError

PLAIN = (pd.DataFrame, pd.Series, pd.Index, pd.api.extensions.ExtensionArray, np.ndarray, list, tuple, type(None))
"""What is read as it is."""


def as_pandas(values: Any, names: Collection[str] | None = None) -> Any:
    """Return a frame or a column of any kind as pandas; lists, and what pandas or NumPy holds, stay as they are.

    Parameters
    ----------
    values : any frame, series or array
    names : collection of str, optional
        The columns of a frame that are needed, blanks around a name aside; all of them by default. The others are left
        out, and may have any type.

    Examples
    --------
    >>> as_pandas(pa.table({"zip": ["01234", None], "age": [40, None]}), ["zip"]).to_dict("list")
    {'zip': ['01234', nan]}
    """
    if isinstance(values, PLAIN):
        return values
    if isinstance(values, pa.RecordBatch):
        values = pa.Table.from_batches([values])
    elif isinstance(values, pa.Array):
        values = pa.chunked_array([values])
    try:
        frame: Any = nw.from_native(values, allow_series=True, pass_through=True)
    except DuplicateError:
        raise BadStructureError("Expected each column of a table once, got a name twice; rename one.") from None
    if isinstance(frame, nw.LazyFrame):
        raise BadStructureError(
            f"Expected a table in memory, got a {type(values).__name__}, which is not computed yet; collect it first "
            "(polars: frame.collect())."
        )
    is_series = isinstance(frame, nw.Series)
    if not is_series and not isinstance(frame, nw.DataFrame):
        return values
    if frame.implementation.is_pandas_like():
        return frame.to_pandas()
    frame = frame.alias("values").to_frame() if is_series else frame
    wanted = [name for name in frame.columns if is_series or names is None or name.strip() in names]
    objects = [name for name in wanted if frame.schema[name] == nw.Object]  # Arrow would store addresses of these
    table = frame.select(wanted).drop(objects).to_arrow().combine_chunks()
    refused = [*objects, *(field.name for field in table.schema if not is_supported(field.type))]
    if refused:
        raise BadStructureError(
            f'Expected plain values in column "{refused[0]}", got the type {str(frame.schema[refused[0]])[:100]}; '
            "write it as text or numbers, or drop it."
        )
    batches = [batch.columns for batch in table.to_batches()]
    empty = [pa.nulls(0, field.type) for field in table.schema]
    plain = pd.concat([as_frame(columns, wanted) for columns in batches or [empty]], ignore_index=True)
    return plain.iloc[:, 0] if is_series else plain
