"""Rows bounded by bytes, not only by number: how much their values take, and columns that hold more than 2 GiB.

Arrow's strings, binaries and lists count their content in 32 bits, so an array of them ends at 2 GiB, and whatever
gathers or repeats rows may reach that with a few long values. Two things keep that from happening: work is cut into
pieces by the bytes that rows take (`content_of_ranges`, `longest_row`), and what cannot be cut, such as all rows of one
key, is put together in columns that count in 64 bits (`concatenated`). Those may be stored in runs. What leaves an
operator is in pieces that are small enough for the ordinary types again (`narrowed`).

Content is what a row takes beyond its fixed width; it is read off the offsets of the columns at the rows that are asked
for, so the cost does not depend on the size of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Change = Callable[[pa.DataType], pa.DataType]

# The content that one column may have before it is put into a type that counts in 64 bits.
MOST_CONTENT = 1 << 30
# The content of results that are made and handed on at once.
CHUNK_BYTES = 64 << 20


def content_of_ranges(rows: pa.RecordBatch, start: Indices, stop: Indices) -> Indices:
    """How many bytes of content the rows start to stop have, per range."""
    total = np.zeros(len(start), dtype=np.int64)
    for column in rows.columns:
        if _has_content(column.type):
            total += _content_before(column, stop) - _content_before(column, start)
    return total


def content(rows: pa.RecordBatch) -> int:
    """How many bytes of content all rows have."""
    ends = np.array([0, len(rows)])
    return int(content_of_ranges(rows, ends[:1], ends[1:])[0])


def longest_row(rows: pa.RecordBatch) -> int:
    """The content of the row that has most of it; 0 if no column has any."""
    if not len(rows) or not any(_has_content(column.type) for column in rows.columns):
        return 0
    places = np.arange(len(rows) + 1)
    return int(content_of_ranges(rows, places[:-1], places[1:]).max())


def rows_of_one_column(longest: int) -> int:
    """How many rows a column can have for sure, if one takes up to `longest` bytes."""
    return max(MOST_CONTENT // max(longest, 1), 1)


def rows_at_once(most: int, longest: int) -> int:
    """How many rows make a chunk, if one takes up to `longest` bytes: `most`, unless they would be too large."""
    return max(min(most, CHUNK_BYTES // max(longest, 1)), 1)


def concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows, in wide types if there is more content than ordinary ones should hold, or if some are wide already."""
    if len(batches) == 1:
        return batches[0]
    first = batches[0].schema
    mixed = any(not batch.schema.equals(first) for batch in batches[1:])
    if mixed or sum(map(content, batches)) > MOST_CONTENT:
        batches = [widened(batch) for batch in batches]
    return pa.concat_batches(batches)


def widened(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in types that hold any amount of content."""
    return _cast(rows, _wide)


def narrowed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in ordinary types, which have to be able to hold them."""
    return _cast(rows, _narrow)


def _cast(rows: pa.RecordBatch, change: Change) -> pa.RecordBatch:
    fields = [field.with_type(change(field.type)) for field in rows.schema]
    if all(field.type == other.type for field, other in zip(rows.schema, fields, strict=True)):
        return rows
    return rows.cast(pa.schema(fields, rows.schema.metadata))


def _wide(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.large_string()
    if pa.types.is_binary(kind):
        return pa.large_binary()
    if pa.types.is_list(kind):
        return pa.large_list(kind.value_field.with_type(_wide(kind.value_type)))
    return _inside(kind, _wide)


def _narrow(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_narrow(kind.value_type)))
    return _inside(kind, _narrow)


def _inside(kind: pa.DataType, change: Change) -> pa.DataType:
    """A nested type with the types in it changed; maps count their entries in 32 bits, but not what is in them."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(change(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(change(key.type)), item.with_type(change(item.type)), kind.keys_sorted)
    return kind


def _has_content(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_content(field.type) for field in kind)
    return _is_text(kind) or _is_listed(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )


def _is_listed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind))


def _content_before(column: pa.Array, rows: Indices) -> Indices:
    """How many bytes of content there are before each of some rows of a column."""
    kind = column.type
    if pa.types.is_struct(kind):
        return sum((_content_before(column.field(n), rows) for n in range(kind.num_fields)), np.zeros_like(rows))
    if not _has_content(kind):
        return np.zeros_like(rows)
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or pa.types.is_large_list(kind)
    buffer = column.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros_like(rows)
    offsets = np.frombuffer(buffer, dtype=np.int64 if large else np.int32)
    places: Indices = offsets[rows + column.offset].astype(np.int64)
    if _is_text(kind):
        return places
    parts = [column.keys, column.items] if pa.types.is_map(kind) else [column.values]
    return sum(
        (_content_before(part, places) + places * _fixed_width(part.type) for part in parts), np.zeros_like(rows)
    )


def _fixed_width(kind: pa.DataType) -> int:
    """Bytes of a value beside its content, about."""
    if pa.types.is_struct(kind):
        return sum(_fixed_width(field.type) for field in kind)
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return 4
