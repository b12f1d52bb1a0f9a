"""What an operator asks of the state at a port: which keys have rows of some time, and all rows of these keys.

Keys are known by their hashes. Different keys may share one, so whoever groups rows compares the key columns too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.kernel.probe import Ranges, bisect_ranges, probe, ranges_to_rows
from anabranch.state.hash_index import HashIndex, Indices
from anabranch.state.run import Segment

Hashes = NDArray[np.uint64]


def hashes_between(segments: Sequence[Segment], since: int, until: int) -> Hashes:
    """The ascending hashes of rows with since <= ts < until; runs of other times are not looked at."""
    found = []
    for segment in segments:
        outside = segment.span is not None and (segment.span[0] >= until or segment.span[1] < since)
        if segment.ts is not None and not outside:
            meant = (segment.ts >= since) & (segment.ts < until)
            if segment.groups is not None:
                meant &= segment.groups.holds(segment.hashes)
            found.append(segment.hashes[meant])
    return np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.uint64)


def ranges_of(segments: Sequence[Segment], hashes: Hashes, before: int) -> list[Ranges]:
    """Per segment, the rows that have one of the hashes and are older than `before`."""
    index = HashIndex.of(hashes)
    return [_older(segment, probe(index, segment), before) for segment in segments]


def gather(segments: Sequence[Segment], found: Sequence[Ranges]) -> pa.RecordBatch:
    """The rows of these ranges, segment by segment; at least one of them has some."""
    parts = [
        segment.rows.take(pa.array(ranges_to_rows(ranges.start, ranges.lengths)))
        for segment, ranges in zip(segments, found, strict=True)
        if len(ranges.owner)
    ]
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def rows_of(segments: Sequence[Segment], hashes: Hashes, before: int) -> pa.RecordBatch | None:
    """All rows that have one of the hashes and are older than `before`; None if there are none."""
    found = ranges_of(segments, hashes, before) if len(hashes) else []
    return gather(segments, found) if any(len(ranges.owner) for ranges in found) else None


def first_at(ts: NDArray[np.int64], ranges: Ranges, time: NDArray[np.int64]) -> Indices:
    """Per range, the first row that is not older than a time."""
    return bisect_ranges(ts, ranges.start, ranges.stop, time, after_equal=False)


def _older(segment: Segment, ranges: Ranges, before: int) -> Ranges:
    if segment.ts is None:
        return ranges
    stop = first_at(segment.ts, ranges, np.full(len(ranges.owner), before))
    return Ranges(ranges.owner, ranges.start, stop).where(ranges.start < stop)
