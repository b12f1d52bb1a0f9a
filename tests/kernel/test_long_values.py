"""Joins and aggregates of long values: whatever the bounds in bytes are, the answer is the same, in small chunks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.kernel.aggregate.window_aggregate import Aggregate, WindowAggregate
from anabranch.kernel.join.combinations import UNBOUNDED, JoinShape
from anabranch.kernel.join.window_join import ResultColumn, WindowJoin
from anabranch.kernel.operator import Settled
from anabranch.state.arrays import row_bytes
from anabranch.state.arrays.row_bytes import content, widened
from anabranch.state.runs.run import HASH, TS, Segment
from tests.oracle.profiles import examples

JOIN = WindowJoin(
    JoinShape((UNBOUNDED,) * 3, verify=("key.0",)),
    tuple(ResultColumn(f"{name}.{port}", port, name) for port in range(3) for name in ("key.0", "v")),
)
GROUPS = WindowAggregate(
    ("key.0",), (Aggregate("max", "v"), Aggregate("count", None)), (("k", 0), ("most", 1), ("n", 2)), width=100
)
ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=8)


def segment(rows: list[tuple[int, int]], *, wide: bool = False) -> Segment:
    """Rows of (key, length of the value); keys are long, too, and share hashes."""
    rows = sorted(rows, key=lambda row: row[0] // 2)
    made = pa.record_batch(
        {
            HASH: pa.array([key // 2 for key, _ in rows], pa.uint64()),
            TS: pa.array(range(len(rows)), pa.int64()),
            "key.0": pa.array([str(key) * 20 for key, _ in rows], pa.string()),
            "v": pa.array(["v" * length for _, length in rows], pa.string()),
        }
    )
    return Segment.of(widened(made) if wide else made)


def results(chunks: list[tuple[pa.RecordBatch, np.ndarray]], most: int) -> Counter[tuple]:
    """All results; on the way, chunks must keep to their size, and to the ordinary types."""
    for chunk, _ in chunks:
        assert content(chunk) <= most or len(chunk) == 1
        assert all(not pa.types.is_large_string(field.type) for field in chunk.schema)
    return Counter(tuple(row.values()) for chunk, _ in chunks for row in chunk.to_pylist())


@examples(60)
@given(st.tuples(ROWS, ROWS, ROWS), st.tuples(ROWS, ROWS, ROWS), st.booleans())
def test_a_join_gives_the_same_in_chunks_of_few_bytes(old: tuple, new: tuple, wide: bool) -> None:
    deltas = [segment(rows) for rows in new]
    plain = [[segment(rows)] for rows in old]
    expected = results(list(JOIN.counted(plain, deltas, Settled(), 4)), 1 << 30)
    stored = [[segment(rows, wide=wide)] for rows in old]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_bytes, "CHUNK_BYTES", 300)
        patch.setattr(row_bytes, "MOST_CONTENT", 50)
        assert results(list(JOIN.counted(stored, deltas, Settled(), 4)), 300) == expected
        assert results(list(JOIN.owed([stored, [[delta] for delta in deltas]], Settled(), 4)), 300) == results(
            list(JOIN.owed([plain, [[delta] for delta in deltas]], Settled(), 4)), 1 << 30
        )


@examples(60)
@given(st.lists(ROWS, min_size=1, max_size=3), st.booleans())
def test_a_group_by_gives_the_same_in_chunks_of_few_bytes(parts: list, wide: bool) -> None:
    asked = Settled(None, 1_000)
    expected = results(list(GROUPS.counted([[segment(rows) for rows in parts]], (), asked, 4)), 1 << 30)
    stored = [segment(rows, wide=wide and n % 2 == 0) for n, rows in enumerate(parts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_bytes, "CHUNK_BYTES", 200)
        patch.setattr(row_bytes, "MOST_CONTENT", 50)
        assert results(list(GROUPS.counted([stored], (), asked, 4)), 200) == expected
