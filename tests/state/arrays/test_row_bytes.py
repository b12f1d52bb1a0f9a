"""Rows bounded by bytes: what values take is counted exactly, and wide columns hold the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.state.arrays import row_bytes
from anabranch.state.arrays.row_bytes import (
    concatenated,
    content,
    content_of_ranges,
    longest_row,
    narrowed,
    rows_at_once,
    widened,
)
from anabranch.state.runs.merge import merge_segments
from anabranch.state.runs.run import HASH, Segment
from tests.oracle.profiles import examples

TEXT = st.text("abé", max_size=5)
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "string": (pa.string(), TEXT),
    "binary": (pa.binary(), st.binary(max_size=5)),
    "list": (pa.list_(pa.string()), st.lists(st.none() | TEXT, max_size=3)),
    "map": (
        pa.map_(pa.string(), pa.binary()),
        st.lists(st.tuples(TEXT, st.none() | st.binary(max_size=3)), max_size=2),
    ),
    "struct": (
        pa.struct([("a", pa.string()), ("b", pa.list_(pa.int64()))]),
        st.fixed_dictionaries({"a": st.none() | TEXT, "b": st.lists(st.integers(0, 9), max_size=3)}),
    ),
    "number": (pa.int64(), st.integers(0, 9)),
}


def size(value: Any, kind: pa.DataType) -> int:
    """What a value takes beyond its fixed width, value by value."""
    if value is None or pa.types.is_integer(kind):
        return 0
    if pa.types.is_string(kind):
        return len(value.encode())
    if pa.types.is_binary(kind):
        return len(value)
    if pa.types.is_struct(kind):
        return sum(size(value[field.name], field.type) for field in kind)
    if pa.types.is_map(kind):
        return sum(size(key, kind.key_type) + size(item, kind.item_type) + 8 for key, item in value)
    width = 8 if pa.types.is_integer(kind.value_type) else 4
    return sum(size(item, kind.value_type) + width for item in value)


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Some columns of any type, as a slice of a longer batch."""
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3, unique=True))
    rows = draw(st.integers(0, 6))
    columns = {}
    for name in names:
        kind, values = TYPES[name]
        columns[name] = pa.array(draw(st.lists(st.none() | values, min_size=rows, max_size=rows)), kind)
    first = draw(st.integers(0, rows))
    return pa.record_batch(columns).slice(first, draw(st.integers(0, rows - first)))


@examples(200)
@given(batches())
def test_content_is_counted_as_value_by_value(rows: pa.RecordBatch) -> None:
    expected = [sum(size(row[f.name], f.type) for f in rows.schema) for row in rows.to_pylist(maps_as_pydicts=None)]
    places = np.arange(len(rows))
    assert content_of_ranges(rows, places, places + 1).tolist() == expected
    assert content(rows) == sum(expected)
    assert longest_row(rows) == max(expected, default=0)


@examples(100)
@given(st.lists(batches(), min_size=1, max_size=3), st.booleans())
def test_wide_columns_hold_the_same_values_and_come_back_as_they_were(parts: list[pa.RecordBatch], wide: bool) -> None:
    first = parts[0]
    same = [part for part in parts if part.schema == first.schema]
    mixed = [widened(part) if wide and n % 2 else part for n, part in enumerate(same)]
    expected = pa.Table.from_batches(same)
    assert pa.Table.from_batches([narrowed(concatenated(mixed))]).equals(expected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_bytes, "MOST_CONTENT", 0)
        assert pa.Table.from_batches([narrowed(concatenated(same))]).equals(expected)


def test_runs_of_wide_and_of_ordinary_columns_are_merged() -> None:
    def run(first: int) -> pa.RecordBatch:
        hashes = pa.array(range(first, first + 6, 2), pa.uint64())
        return pa.record_batch({HASH: hashes, "v": [str(n) for n in range(first, first + 6, 2)]})

    merged = merge_segments([Segment.of(run(0)), Segment.of(widened(run(1)))], None)

    assert merged is not None
    assert merged.hashes.tolist() == list(range(6))
    assert merged.rows.column("v").to_pylist() == list("012345")


def test_a_merge_takes_all_of_a_table_that_one_batch_cannot_hold() -> None:
    """More than 2 GiB of strings: Arrow gives such a table back as two batches."""
    values = pa.repeat("x" * (1 << 20), 1030)
    runs = [
        Segment.of(pa.record_batch({HASH: pa.array(np.arange(first, first + 1030, dtype=np.uint64)), "v": values}))
        for first in (0, 1030)
    ]

    merged = merge_segments(runs, None)

    assert merged is not None
    assert len(merged) == 2060
    assert merged.rows.column("v").type == pa.large_string()


@pytest.mark.parametrize(("longest", "rows"), [(0, 65_536), (1_000, 65_536), (50_000, 1_342), (1 << 30, 1)])
def test_a_chunk_has_fewer_rows_if_they_are_long(longest: int, rows: int) -> None:
    assert rows_at_once(65_536, longest) == rows
