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


def last_rows(
    segments: Sequence[Segment], found: Sequence[Ranges], hashes: int, since: int, count: int
) -> list[Ranges]:
    """Of ranges of `hashes` hashes, the rows from `since` on and, of each hash, the last `count` before, or some more.

    Rows of one time are not told apart. A segment gives nothing of hashes that have enough rows in segments that are
    newer as a whole: so what is read does not grow with the number of runs, as long as time passes from run to run.
    """
    begins = [first_at(_times(s), r, np.full(len(r.owner), since)) for s, r in zip(segments, found, strict=True)]
    spans = [_span(segment) for segment in segments]
    newest_first = sorted(range(len(segments)), key=lambda n: spans[n][1], reverse=True)
    newer = sorted(range(len(segments)), key=lambda n: spans[n][0])
    known = np.zeros(hashes, dtype=np.int64)
    kept = {}
    for n in newest_first:
        while newer and spans[newer[-1]][0] > spans[n][1]:
            one = newer.pop()
            known[found[one].owner] += begins[one] - found[one].start
        ranges, times = found[n], _times(segments[n])
        start = np.maximum(begins[n] - count, ranges.start)
        # All that have the time of the first of these.
        start = first_at(times, ranges, times[np.minimum(start, ranges.stop - 1)])
        start = np.where(known[ranges.owner] >= count, begins[n], start)
        kept[n] = Ranges(ranges.owner, start, ranges.stop).where(start < ranges.stop)
    return [kept[n] for n in range(len(segments))]


def _times(segment: Segment) -> NDArray[np.int64]:
    assert segment.ts is not None, "what is asked for by time has one"
    return segment.ts


def _span(segment: Segment) -> tuple[int, int]:
    """The first and the last time in a segment, or in the run that it is a part of."""
    if segment.span is not None:
        return segment.span
    times = _times(segment)
    return (int(times.min()), int(times.max())) if len(times) else (0, 0)


def _older(segment: Segment, ranges: Ranges, before: int) -> Ranges:
    if segment.ts is None:
        return ranges
    stop = first_at(segment.ts, ranges, np.full(len(ranges.owner), before))
    return Ranges(ranges.owner, ranges.start, stop).where(ranges.start < stop)
