r"""Columns of Arrow arrays in, pandas out; what a cell becomes follows from its Arrow type alone.

Each Arrow type has one rule that no value can break:

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

from collections.abc import Sequence

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from fairveil.data.values import MAX_CELL

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

_KEPT_TYPES = (types.is_null, types.is_boolean, types.is_integer, types.is_floating)
_TEXT_TYPES = (
    types.is_string,
    types.is_large_string,
    types.is_string_view,
    types.is_binary,
    types.is_large_binary,
    types.is_binary_view,
)
_WRITTEN_TYPES = (types.is_decimal, types.is_date, types.is_time)
_OTHER_TYPES = (types.is_fixed_size_binary, types.is_timestamp, types.is_duration)


def is_supported(kind: pa.DataType) -> bool:
    """Say whether cells of that Arrow type can be read."""
    if isinstance(kind, pa.BaseExtensionType):
        return is_supported(kind.storage_type)
    if types.is_dictionary(kind):
        return is_supported(kind.value_type)
    if types.is_fixed_size_binary(kind) and kind.byte_width > MAX_CELL // 2:  # written with two digits a byte
        return False
    supported = (*_KEPT_TYPES, *_TEXT_TYPES, *_WRITTEN_TYPES, *_OTHER_TYPES)
    return any(is_kind(kind) for is_kind in supported)


def as_frame(arrays: Sequence[pa.Array], names: Sequence[str]) -> pd.DataFrame:
    """Return columns of supported types as a pandas table with those names."""
    batch = pa.RecordBatch.from_arrays([_convert(array) for array in arrays], names=list(names))
    return batch.to_pandas(types_mapper=_NULLABLE.get)


def _convert(array: pa.Array) -> pa.Array:
    """Return a column of a supported type as numbers or texts, by the table at the top of this module."""
    kind, text = array.type, pa.large_string()
    if isinstance(kind, pa.BaseExtensionType):
        return _convert(array.storage)
    if types.is_dictionary(kind):
        if len(array.dictionary) > len(array):  # that of a whole row group: only what the rows use is converted
            return _convert(array.dictionary.take(array.indices))
        return _convert(array.dictionary).take(array.indices)
    if not is_supported(kind):
        raise TypeError(f"no rule for {kind}")  # the caller must check with is_supported
    if any(is_kind(kind) for is_kind in _TEXT_TYPES):
        raw = array.cast(pa.large_binary())
        # a cell of more bytes than so many characters can take holds nothing, and its text is never made
        raw = pc.if_else(pc.greater(pc.binary_length(raw), 4 * MAX_CELL), None, raw)
        try:
            array = raw.cast(text)
        except pa.ArrowInvalid:  # slower, with the same texts, because one of them is not UTF-8
            cells = raw.to_pylist()
            decoded = [None if cell is None else cell.decode("utf-8", "backslashreplace") for cell in cells]
            array = pa.array(decoded, text)
    elif types.is_fixed_size_binary(kind):
        array = pa.array([None if cell is None else cell.hex() for cell in array.to_pylist()], text)
    elif types.is_timestamp(kind):
        # Arrow stores UTC; to write a zone's time it must know the zone, and the time may leave the range.
        array = array.view(pa.timestamp(kind.unit)).cast(text)
    elif types.is_duration(kind):
        array = array.cast(pa.int64())
    elif any(is_kind(kind) for is_kind in _WRITTEN_TYPES):
        array = array.cast(text)
    return array
