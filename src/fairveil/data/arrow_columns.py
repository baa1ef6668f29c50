r"""Columns of a Parquet file in, pandas columns out, by a rule for each Arrow type that no value can break.

======================================  =================================================================
Arrow type                              what its cells become
======================================  =================================================================
null                                    cells that hold nothing
bool, int, uint                         truth values and whole numbers that stay whole beside a null
half, float, double                     decimals, NaN for a null
string, binary (also large and view)    text; a byte that is not UTF-8 is written `\xNN`
binary of fixed size                    text, two hexadecimal digits a byte
date, time, timestamp                   text as Arrow writes it, to the digits of the unit, timestamps in
                                        UTC; beyond the calendar Arrow writes the number in words
duration                                whole numbers of its unit
decimal (any size)                      text with all its digits
dictionary                              as its type of values
extension (uuid, json, period, ...)     as its type of storage
list, struct, map, union, other types   refused as bad structure, whatever the cells hold
======================================  =================================================================

A byte that is not UTF-8 keeps its number, because ids that differ in such bytes are different persons.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow import types

__all__ = ["as_frame", "is_supported", "no_rows"]

# Plain pandas turns whole numbers into floats beside a null: one row would change the ids of others.
_NULLABLE = {
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}


def is_supported(kind: pa.DataType) -> bool:
    """Say whether cells of that Arrow type can be read."""
    if isinstance(kind, pa.BaseExtensionType):
        return is_supported(kind.storage_type)
    if types.is_dictionary(kind):
        return is_supported(kind.value_type)
    return _rule(kind) is not None


def as_frame(arrays: Sequence[pa.Array], names: Sequence[str]) -> pd.DataFrame:
    """Return columns of supported types as a pandas table with those names."""
    batch = pa.RecordBatch.from_arrays([_converted(array) for array in arrays], names=list(names))
    return batch.to_pandas(types_mapper=_NULLABLE.get)


def no_rows(schema: pa.Schema, names: Sequence[str]) -> list[pa.Array]:
    """Return the named columns of a schema without a row."""
    return [pa.nulls(0, schema.field(name).type) for name in names]


def _converted(array: pa.Array) -> pa.Array:
    if isinstance(array.type, pa.BaseExtensionType):
        return _converted(array.storage)
    if types.is_dictionary(array.type):
        return _converted(array.dictionary).take(array.indices)
    rule = _rule(array.type)
    if rule is None:
        raise TypeError(f"no rule for {array.type}")  # is_supported was not asked
    return rule(array)


def _rule(kind: pa.DataType) -> Callable[[pa.Array], pa.Array] | None:
    return next((rule for is_kind, rule in _RULES if is_kind(kind)), None)


def _is_number(kind: pa.DataType) -> bool:
    return types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)


def _is_text(kind: pa.DataType) -> bool:
    is_view = types.is_string_view(kind) or types.is_binary_view(kind)
    return is_view or any(
        is_kind(kind)
        for is_kind in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


def _is_calendar(kind: pa.DataType) -> bool:
    return types.is_date(kind) or types.is_time(kind)


def _unchanged(array: pa.Array) -> pa.Array:
    return array


def _decoded(array: pa.Array) -> pa.Array:
    raw = array.cast(pa.large_binary())
    try:
        return raw.cast(pa.large_string())
    except pa.ArrowInvalid:  # the slow way to the same texts, for the sake of one that is not UTF-8
        return _texts(raw, lambda cell: cell.decode("utf-8", "backslashreplace"))


def _hexadecimal(array: pa.Array) -> pa.Array:
    return _texts(array, lambda cell: cell.hex())


def _texts(array: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    cells = (None if cell is None else text(cell) for cell in array.to_pylist())
    return pa.array(cells, pa.large_string())


def _written(array: pa.Array) -> pa.Array:
    return array.cast(pa.large_string())


def _written_in_utc(array: pa.Array) -> pa.Array:
    # Arrow stores UTC; to write a zone's time it must know the zone, and it may leave the range on the way.
    return _written(array.view(pa.timestamp(array.type.unit)))


def _counted(array: pa.Array) -> pa.Array:
    return array.cast(pa.int64())


_RULES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    (_is_number, _unchanged),
    (_is_text, _decoded),
    (types.is_fixed_size_binary, _hexadecimal),
    (types.is_decimal, _written),
    (_is_calendar, _written),
    (types.is_timestamp, _written_in_utc),
    (types.is_duration, _counted),
)
