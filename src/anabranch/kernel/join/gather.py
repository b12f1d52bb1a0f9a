"""Finding the rows of all inputs that have the wanted hashes, and gathering them for enumeration.

Every input has old segments and new ones. All of them are probed with the wanted hashes, smallest input first; a hash
is dropped as soon as some input lacks it. What remains is gathered block by block of hashes into one small table per
input (`CandidateRows`). A row can only matter if it can meet a row of the other kind at another input, so rows whose
time is out of reach of all of these are left out before anything is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.kernel.join.combinations import MAX_TIME, UNBOUNDED, CandidateRows, JoinShape
from anabranch.kernel.probe import Ranges, narrow, probe, ranges_to_rows
from anabranch.state.arrays.hash_index import HashIndex, Indices
from anabranch.state.arrays.row_bytes import concatenated, content_of_ranges, longest_row
from anabranch.state.runs.run import HASH, TS, Segment

# What counts as one more row when rows are gathered: bytes of strings, binaries and lists.
CONTENT_PER_ROW = 256

# Per input, its segments.
Segments = Sequence[Sequence[Segment]]
# Per hash, the first and the last time at which a row can meet one of the other kind at another input.
TimeBounds = tuple[NDArray[np.int64], NDArray[np.int64]] | None


def distinct(segments: Sequence[Segment]) -> NDArray[np.uint64]:
    """The ascending distinct hashes of all selected rows; sorting beats the hash table of `np.unique` here."""
    hashes_of = [s.hashes if s.groups is None else s.hashes[s.selected()] for s in segments]
    hashes = np.sort(np.concatenate(hashes_of)) if hashes_of else np.empty(0, dtype=np.uint64)
    return hashes[np.flatnonzero(np.diff(hashes, prepend=hashes[:1] + np.uint64(1)))]


@dataclass(frozen=True, slots=True)
class MatchingRows:
    """The rows with wanted hashes: per input and segment, ranges of them; per input, how many rows each hash has."""

    old: list[list[Ranges]]
    new: list[list[Ranges]]
    old_rows: list[Indices]
    new_rows: list[Indices]

    @property
    def rows(self) -> Indices:
        """How many rows each hash has in all."""
        total: Indices = np.add.reduce([*self.old_rows, *self.new_rows])
        return total

    def everywhere(self) -> NDArray[np.bool_]:
        """Which hashes all inputs have."""
        pairs = zip(self.old_rows, self.new_rows, strict=True)
        present: NDArray[np.bool_] = np.logical_and.reduce([old + new > 0 for old, new in pairs])
        return present


def find(wanted: NDArray[np.uint64], old: Segments, new: Segments) -> MatchingRows:
    """Probe all inputs, smallest first, each for the hashes that all before it have.

    Most arriving rows find no partner in some input, and are not looked for in the larger ones.
    """
    inputs = len(old)
    matching = MatchingRows(
        [[] for _ in range(inputs)],
        [[] for _ in range(inputs)],
        [np.zeros(len(wanted), dtype=np.int64) for _ in range(inputs)],
        [np.zeros(len(wanted), dtype=np.int64) for _ in range(inputs)],
    )
    alive = np.arange(len(wanted))
    sizes = [sum(map(len, segments)) for segments in old]
    for i in sorted(range(inputs), key=sizes.__getitem__):
        if len(alive) == 0:
            break
        index = HashIndex.of(wanted[alive])
        sides = ((old[i], matching.old[i], matching.old_rows[i]), (new[i], matching.new[i], matching.new_rows[i]))
        for segments, kept, rows in sides:
            for segment in segments:
                ranges = probe(index, segment)
                ranges = Ranges(alive[ranges.owner], ranges.start, ranges.stop)
                rows[ranges.owner] += ranges.lengths
                kept.append(ranges)
        alive = alive[(matching.old_rows[i] + matching.new_rows[i])[alive] > 0]
    return matching


def weights(shape: JoinShape, old: Segments, new: Segments, matching: MatchingRows) -> Indices:
    """How much there is to gather for each hash: its rows, and as many more as long values are worth."""
    total = matching.rows
    for side, there in ((old, matching.old), (new, matching.new)):
        for segments, parts in zip(side, there, strict=True):
            for segment, ranges in zip(segments, parts, strict=False):
                content = content_of_ranges(_columns(shape, segment), ranges.start, ranges.stop)
                np.add.at(total, ranges.owner, content // CONTENT_PER_ROW)
    return total


def gather(
    shape: JoinShape, old: Segments, new: Segments, matching: MatchingRows, block: Indices, *, narrow_new: bool
) -> list[CandidateRows]:
    """The rows of a block of hashes. New rows may be left out by their time only if they need old ones."""
    number = np.full(len(matching.old_rows[0]), -1, dtype=np.int64)
    number[block] = np.arange(len(block))

    def select(ranges: Ranges) -> Ranges:
        owner = number[ranges.owner]
        return Ranges(owner, ranges.start, ranges.stop).where(owner >= 0)

    old_ranges = [[select(ranges) for ranges in parts] for parts in matching.old]
    new_ranges = [[select(ranges) for ranges in parts] for parts in matching.new]
    old_bounds = _time_bounds(shape, new, new_ranges, len(block))
    new_bounds = _time_bounds(shape, old, old_ranges, len(block)) if narrow_new else [None] * len(old)
    return [
        _candidates(
            shape,
            i,
            _Side(old[i], old_ranges[i], old_bounds[i]),
            _Side(new[i], new_ranges[i], new_bounds[i]),
            len(block),
        )
        for i in range(len(old))
    ]


def _time_bounds(
    shape: JoinShape, others: Segments, matching: Sequence[Sequence[Ranges]], hashes: int
) -> list[TimeBounds]:
    """Per input, the first and last time at which a row can meet one of these others at another input."""
    timed = [i for i, window in enumerate(shape.windows) if window is not None]
    earliest = np.full((len(others), hashes), UNBOUNDED, dtype=np.int64)
    latest = np.full((len(others), hashes), -UNBOUNDED, dtype=np.int64)
    untimed = np.zeros(hashes, dtype=bool)
    for i, (segments, ranges) in enumerate(zip(others, matching, strict=True)):
        window = shape.windows[i]
        for segment, there in zip(segments, ranges, strict=True):
            if window is None:
                untimed[there.owner] = True
            elif segment.ts is not None:
                first, last = segment.ts[there.start], np.minimum(segment.ts[there.stop - 1] + window, UNBOUNDED)
                earliest[i, there.owner] = np.minimum(earliest[i, there.owner], first)
                latest[i, there.owner] = np.maximum(latest[i, there.owner], last)
    bounds: list[TimeBounds] = []
    for i, window in enumerate(shape.windows):
        elsewhere = [j for j in timed if j != i]
        if window is None or not elsewhere:
            bounds.append(None)
            continue
        low = np.where(untimed, -UNBOUNDED, earliest[elsewhere].min(axis=0) - min(window, MAX_TIME * 2))
        high = np.where(untimed, UNBOUNDED, latest[elsewhere].max(axis=0))
        bounds.append((low, high))
    return bounds


@dataclass(frozen=True, slots=True)
class _Side:
    """The old or the new segments of an input, the ranges of rows with wanted hashes, and the times that matter."""

    segments: Sequence[Segment]
    ranges: Sequence[Ranges]
    bounds: TimeBounds


def _candidates(shape: JoinShape, i: int, old: _Side, new: _Side, hashes: int) -> CandidateRows:
    tables: list[pa.RecordBatch] = []
    times: list[NDArray[np.int64]] = []
    orders, offsets, rows = [], [], 0
    ordered = True
    for side in (old, new):
        owner, ts, several = _take(shape, side, tables, times)
        if several:
            order = np.argsort(owner, kind="stable") if ts is None else np.lexsort((ts, owner))
            ordered = False
        else:
            order = np.arange(len(owner))
        orders.append(order + rows)
        offsets.append(_offsets(owner, np.ones(len(owner), dtype=np.int64), hashes) + rows)
        rows += len(owner)
    if not tables:
        some = next(segment for side in (old, new) for segment in side.segments)
        tables.append(_columns(shape, some).slice(0, 0))
        times += [] if some.ts is None else [some.ts[:0]]
    table = concatenated(tables)
    ts = np.concatenate(times) if times else None
    if not ordered:
        everything = np.concatenate(orders)
        table = table.take(pa.array(everything))
        ts = None if ts is None else ts[everything]
    return CandidateRows(table, ts, _expiry(shape, i, table), offsets[0], offsets[1], longest_row(table))


def _take(
    shape: JoinShape, side: _Side, tables: list[pa.RecordBatch], times: list[NDArray[np.int64]]
) -> tuple[Indices, NDArray[np.int64] | None, bool]:
    """Add the rows of a side to the tables and times; returns the hashes' numbers and times of its rows, and whether
    they come from several segments, so that they have to be put in order."""
    owners, own_times = [], []
    for segment, ranges in zip(side.segments, side.ranges, strict=True):
        start, stop = ranges.start, ranges.stop
        if side.bounds is not None and segment.ts is not None:
            low, high = side.bounds[0][ranges.owner], side.bounds[1][ranges.owner]
            start, stop = narrow(segment.ts, start, stop, low, high)
        rows = ranges_to_rows(start, stop - start)
        if len(rows) == 0:
            continue
        tables.append(_columns(shape, segment).take(pa.array(rows)))
        owners.append(np.repeat(ranges.owner, stop - start))
        if segment.ts is not None:
            own_times.append(segment.ts[rows])
    times += own_times
    owner = np.concatenate(owners) if owners else np.empty(0, dtype=np.int64)
    return owner, np.concatenate(own_times) if own_times else None, len(owners) > 1


def _expiry(shape: JoinShape, i: int, table: pa.RecordBatch) -> NDArray[np.int64] | None:
    """When rows of an input that holds joined rows expire: the smallest ts + w of the rows they are made of."""
    times = shape.times[i] if shape.times else ()
    if not times:
        return None
    expiry: NDArray[np.int64] = np.minimum.reduce([table.column(name).to_numpy() + w for name, w in times])
    return expiry


def _columns(shape: JoinShape, segment: Segment) -> pa.RecordBatch:
    """The columns that results and verification need: without the hash and the time, unless `keep` names them."""
    names = [name for name in segment.rows.schema.names if name not in (HASH, TS) or name in shape.keep]
    return segment.rows.select(names or [HASH])


def _offsets(owner: Indices, lengths: Indices, hashes: int) -> Indices:
    counts = np.bincount(owner, weights=lengths, minlength=hashes).astype(np.int64)
    return np.concatenate([[0], np.cumsum(counts)])
