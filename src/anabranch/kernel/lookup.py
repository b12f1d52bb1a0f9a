"""Look-ups in the state at a port: the keys that have rows of some time, and all rows of these keys.

Keys are known by their hashes. Different keys may share one, so whoever groups rows compares the key columns too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.kernel.join.combinations import UNBOUNDED
from anabranch.kernel.operator import Settled
from anabranch.kernel.probe import Ranges, bisect_ranges, probe, ranges_to_rows
from anabranch.state.arrays.hash_index import HashIndex, Indices
from anabranch.state.arrays.row_bytes import concatenated
from anabranch.state.groups import GroupSet, groups_of
from anabranch.state.runs.run import Segment

Hashes = NDArray[np.uint64]
Times = NDArray[np.int64]


def settled_at(settled: Settled, hashes: Hashes) -> tuple[Times, Times]:
    """For each hash, the time from which on and the time up to which its rows are settled."""
    ends = [(_time(own.since), _time(own.until)) for own in (settled, *(own for _, own in settled.others))]
    if not settled.others:
        since, until = ends[0]
        return np.full(len(hashes), since), np.full(len(hashes), until)
    count = settled.others[0][0].count
    by_group = np.tile(np.array(ends[0], dtype=np.int64), (count, 1))
    for (groups, _), own in zip(settled.others, ends[1:], strict=True):
        by_group[groups.mask()] = own
    ends_of = by_group[groups_of(hashes, count)]
    return ends_of[:, 0], ends_of[:, 1]


def settled_hashes(segments: Sequence[Segment], settled: Settled) -> Hashes:
    """The ascending hashes of rows that are settled; runs of other times, and groups that rest, are not looked at."""
    hashes_of = []
    for groups, own in _shares(settled):
        since, until = _time(own.since), _time(own.until)
        for segment in segments if since < until else ():
            outside = segment.span is not None and (segment.span[0] >= until or segment.span[1] < since)
            if segment.ts is not None and not outside:
                part = segment if groups is None else segment.among(groups)
                rows = slice(None) if part.groups is None else part.selected()
                hashes, times = segment.hashes[rows], segment.ts[rows]
                hashes_of.append(hashes[(times >= since) & (times < until)])
    return np.unique(np.concatenate(hashes_of)) if hashes_of else np.empty(0, dtype=np.uint64)


def hashes_between(segments: Sequence[Segment], since: int, until: int) -> Hashes:
    """The ascending hashes of rows with since <= ts < until."""
    return settled_hashes(segments, Settled(since, until))


def in_time(segments: Sequence[Segment]) -> list[Segment]:
    """The segments in the order of their last times. Rows that are gathered segment by segment then mostly are in the
    order of time already."""
    return sorted(segments, key=lambda segment: _span(segment)[::-1])


def ranges_of(segments: Sequence[Segment], hashes: Hashes, before: Times) -> list[Ranges]:
    """Per segment, the rows that have one of the hashes and are older than that hash's time."""
    index = HashIndex.of(hashes)
    return [_older(segment, probe(index, segment), before) for segment in segments]


def gather(segments: Sequence[Segment], matching: Sequence[Ranges]) -> pa.RecordBatch:
    """The rows of these ranges, segment by segment; at least one of them has some."""
    parts = [
        segment.rows.take(pa.array(ranges_to_rows(ranges.start, ranges.lengths)))
        for segment, ranges in zip(segments, matching, strict=True)
        if len(ranges.owner)
    ]
    return concatenated(parts)


def rows_of(segments: Sequence[Segment], hashes: Hashes, before: int) -> pa.RecordBatch | None:
    """All rows that have one of the hashes and are older than `before`; None if there are none."""
    matching = ranges_of(segments, hashes, np.full(len(hashes), before)) if len(hashes) else []
    return gather(segments, matching) if any(len(ranges.owner) for ranges in matching) else None


def first_at(segment: Segment, ranges: Ranges, time: Times) -> Indices:
    """Per range of a segment, the first row that is not older than its hash's time."""
    if segment.span is not None and len(time):
        first, last = segment.span
        if last < time.min():
            return ranges.stop
        if first >= time.max():
            return ranges.start
    return bisect_ranges(_times(segment), ranges.start, ranges.stop, time[ranges.owner], after_equal=False)


def last_rows(segments: Sequence[Segment], hashes: Hashes, since: Times, until: Times, count: int) -> list[Ranges]:
    """Of each hash, the rows from its time `since` on and the last `count` before, or some more; none from `until` on.

    Rows of one time are not told apart. Segments are looked into from the newest on. A hash is not looked for in one if
    those before have enough rows of it that are newer than the whole segment: so the work does not grow with the number
    of runs, as long as time passes from run to run, be it for each group of keys by itself.
    """
    ends = [_span(segment)[1] for segment in segments]
    newer_rows = np.zeros(len(hashes), dtype=np.int64)
    lacking, index = np.arange(len(hashes)), HashIndex.of(hashes)
    kept = [Ranges.none()] * len(segments)
    looked_into: list[_Earlier] = []
    for n in sorted(range(len(segments)), key=lambda n: ends[n], reverse=True):
        for rows in looked_into:
            rows.count_newer(ends[n], newer_rows)
        looked_into = [rows for rows in looked_into if len(rows.owner)]
        enough = newer_rows[lacking] >= max(count, 1)
        if enough.all():
            break
        if enough.any():
            lacking = lacking[~enough]
            index = HashIndex.of(hashes[lacking])
        ranges, times = probe(index, segments[n]), _times(segments[n])
        ranges = _older(segments[n], replace(ranges, owner=lacking[ranges.owner]), until)
        begins = first_at(segments[n], ranges, since)
        # What is counted is newer than all rows here: no more than the rest of them can be among the last.
        start = np.maximum(begins - (count - newer_rows[ranges.owner]), ranges.start)
        ranges = replace(ranges, start=with_equals(times, ranges, start))
        looked_into.append(_Earlier.of(ranges, begins, times))
        kept[n] = ranges.where(ranges.start < ranges.stop)
    return kept


@dataclass(slots=True)
class _Earlier:
    """How many rows before its hash's time `since` a segment has, per hash, and the time of the first of them."""

    owner: Indices
    rows: Indices
    first: Times

    @classmethod
    def of(cls, ranges: Ranges, begins: Indices, times: Times) -> _Earlier:
        some = np.flatnonzero(begins > ranges.start)
        start = ranges.start[some]
        return cls(ranges.owner[some], begins[some] - start, times[start])

    def count_newer(self, time: int, counts: Indices) -> None:
        """Add to the counts, once, the hashes whose rows here are all newer than a time."""
        newer = self.first > time
        counts[self.owner[newer]] += self.rows[newer]
        self.owner, self.rows, self.first = self.owner[~newer], self.rows[~newer], self.first[~newer]


def with_equals(times: Times, ranges: Ranges, start: Indices) -> Indices:
    """Of rows at `start`, one in each range or just behind it, the first of the range that has the same time."""
    within = np.flatnonzero((ranges.start < start) & (start < ranges.stop))
    tied = within[times[start[within] - 1] == times[start[within]]]
    first = start.copy()
    first[tied] = bisect_ranges(times, ranges.start[tied], start[tied], times[start[tied]], after_equal=False)
    return first


def _shares(settled: Settled) -> Iterator[tuple[GroupSet | None, Settled]]:
    """Groups, and what is settled for them; None for all of them."""
    if not settled.others:
        yield None, settled
        return
    yield from settled.others
    rest = GroupSet.all(settled.others[0][0].count)
    for groups, _ in settled.others:
        rest -= groups
    yield rest, settled


def _times(segment: Segment) -> Times:
    assert segment.ts is not None, "what is asked for by time has one"
    return segment.ts


def _span(segment: Segment) -> tuple[int, int]:
    """The first and the last time in a segment, or in the run that it is a part of."""
    if segment.span is not None:
        return segment.span
    times = _times(segment)
    return (int(times.min()), int(times.max())) if len(times) else (0, 0)


def _time(time: int | None) -> int:
    """A time that rows can be compared with; None is before all of them."""
    return -UNBOUNDED if time is None else min(time, UNBOUNDED)


def _older(segment: Segment, ranges: Ranges, before: Times) -> Ranges:
    if segment.ts is None:
        return ranges
    stop = first_at(segment, ranges, before)
    return Ranges(ranges.owner, ranges.start, stop).where(ranges.start < stop)
