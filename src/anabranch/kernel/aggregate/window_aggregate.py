"""Windowed GROUP BY and DISTINCT: a row for every tuple whose window is complete.

The answer to a tuple at time t is an aggregate of the tuples of its group that are in their windows at t: those with
ts <= t <= expiry, where expiry is ts + w, or the smallest ts + w of the tuples that a joined one is made of; or the
last k up to the tuple itself (`rows`). Tuples with the same time are in each other's windows; for the last k they are
ordered by their content. So the answer depends on the input alone, but it is known only when no earlier tuple can come
any more: a batch answers the tuples that it settles (`Settled`), all of which are in the state by then.

Per block of hashes that have settled tuples: find the rows of these hashes, as far back as a window reaches; sort them
by group and time; say for which of the answered rows each of them counts (`Reach`), and let `functions` do the rest.

The same with no aggregate but "is it the only one?" is DISTINCT: a tuple is answered if no equal one is in its window
when it comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from anabranch.kernel.aggregate.functions import AGGREGATES
from anabranch.kernel.aggregate.range_sums import Indices, Reach
from anabranch.kernel.join.combinations import MAX_TIME, UNBOUNDED
from anabranch.kernel.join.gather import CONTENT_PER_ROW
from anabranch.kernel.lookup import (
    Hashes,
    Times,
    first_at,
    gather,
    in_time,
    last_rows,
    ranges_of,
    settled_at,
    settled_hashes,
    with_equals,
)
from anabranch.kernel.operator import EXPIRY, Counted, Settled
from anabranch.kernel.probe import Ranges, blocks, narrow, ranges_to_rows
from anabranch.state.arrays.order import order_of
from anabranch.state.arrays.row_bytes import content_of_ranges, longest_row, narrowed, rows_at_once, rows_of_one_column
from anabranch.state.groups import groups_of
from anabranch.state.runs.run import HASH, TS, Segment


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate function of a state column; of rows if `column` is None, as in COUNT(*)."""

    function: str
    column: str | None


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """GROUP BY `keys` over a window, or DISTINCT of them.

    `keys` are the state columns with the group's key. `results` are pairs of a name and the number of a key, or of an
    aggregate, counted after all keys. The window is the last `rows` tuples of a group, ordered by time, then by the
    columns `ties`; else a range of time: `width`, the longest that any tuple is in it. With `last_only` a batch gives
    one row per group, for the last of its settled tuples. Where results go on to another operator (`timed`) they have
    the time of the tuple they answer.
    """

    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    results: tuple[tuple[str, int], ...]
    width: int | None = None
    rows: int | None = None
    ties: tuple[str, ...] = ()
    distinct: bool = False
    last_only: bool = False
    timed: bool = False
    chunk_rows: int = 65_536
    gather_rows: int = 1_000_000

    @property
    def waits(self) -> bool:
        """Always: rows wait until they are settled."""
        return True

    @property
    def can_spill(self) -> bool:
        """Whether groups can be spilled: not with `last_only`, as several batches would be answered by one row
        afterwards."""
        return not self.last_only

    @property
    def freezes(self) -> bool:
        """Always: an answer needs all rows in its window, so a group gives none while some of its rows are spilled."""
        return True

    def counted(
        self, old: Sequence[Sequence[Segment]], deltas: Sequence[Segment], settled: Settled, groups: int
    ) -> Iterator[Counted]:
        """The answers to the tuples that are settled in this batch; its own rows are not among them."""
        for results, hashes in self._settle(old[0], settled):
            yield results, np.bincount(groups_of(hashes, groups), minlength=groups)

    def owed(
        self, generations: Sequence[Sequence[Sequence[Segment]]], settled: Settled, groups: int
    ) -> Iterator[Counted]:
        """The answers to the tuples that were settled since the groups were spilled, group by group in their order."""
        rows = [[segment for ports in generations for segment in ports[0]]]
        yield from self.counted(rows, (), settled, groups)

    def _settle(self, segments: Sequence[Segment], settled: Settled) -> Iterator[tuple[pa.RecordBatch, Hashes]]:
        """Answers, and the hash of the tuple that each is the answer to."""
        wanted = settled_hashes(segments, settled)
        if len(wanted) == 0:
            return
        segments = in_time(segments)
        since, until = settled_at(settled, wanted)
        if self.rows is None:
            matching = self._reaching(segments, ranges_of(segments, wanted, until), since)
        else:
            matching = last_rows(segments, wanted, since, until, self.rows - 1)
        weights = np.zeros(len(wanted), dtype=np.int64)
        for segment, ranges in zip(segments, matching, strict=True):
            content = content_of_ranges(segment.rows, ranges.start, ranges.stop)
            weights[ranges.owner] += ranges.lengths + content // CONTENT_PER_ROW
        for first, last in blocks(weights, self.gather_rows):
            rows = self._in_order(gather(segments, _between(matching, first, last)))
            if self.rows is not None and rows.collision:
                # Keys that share a hash may have pushed each other out of the last so many rows.
                rows = self._in_order(gather(segments, ranges_of(segments, wanted[first:last], until[first:last])))
            yield from self._answers(rows, settled)

    def keep(self, port: int, rows: Segment, settled: Settled) -> Segment:
        """Of the settled rows of a group, only the last so many are in a window of so many rows."""
        if self.rows is None or settled.until is None or rows.ts is None or not len(rows):
            return rows
        ends = np.flatnonzero(np.diff(rows.hashes, append=rows.hashes[-1:] + np.uint64(1)) != 0) + 1
        hashes = Ranges(np.arange(len(ends)), np.concatenate([[0], ends[:-1]]), ends)
        _, until = settled_at(settled, rows.hashes[hashes.start])
        settled_end = first_at(rows, hashes, until)
        first = np.maximum(settled_end - self.rows, hashes.start)
        # Tuples of one time are ordered by content, which is not looked at here: all of the first time stay. So do all
        # of a hash that different keys share.
        first = with_equals(rows.ts, hashes, first)
        shared = hashes.owner[np.searchsorted(ends, _collisions(rows.rows, self.keys), side="right")]
        first[shared] = hashes.start[shared]
        if (first == hashes.start).all():
            return rows
        return Segment.of(rows.rows.take(pa.array(ranges_to_rows(first, ends - first))))

    def _reaching(self, segments: Sequence[Segment], matching: Sequence[Ranges], since: Times) -> list[Ranges]:
        """The rows that are answered, or may be in a window of one that is."""
        low = since - min(self.width or 0, 2 * MAX_TIME)
        starts = [first_at(*pair, low) for pair in zip(segments, matching, strict=True)]
        return [
            replace(ranges, start=start).where(start < ranges.stop)
            for ranges, start in zip(matching, starts, strict=True)
        ]

    def _in_order(self, rows: pa.RecordBatch) -> _Sorted:
        """The rows sorted by group, time and ties, and where groups begin."""
        hashes, ts = (rows.column(name).to_numpy() for name in (HASH, TS))
        tied = self.ties if self.rows is not None else ()
        order = _break_ties(order_of(hashes, ts), hashes, ts, [rows.column(name) for name in tied])
        in_order = rows.take(pa.array(order))
        new_hash = np.diff(hashes[order], prepend=hashes[order[:1]]) != 0
        collision = len(_differing(in_order, self.keys, ~new_hash)) > 0
        if collision:
            codes = _codes([rows.column(key) for key in self.keys])
            ties = [_ranks(rows.column(name)) for name in reversed(tied)]
            order = np.lexsort((*ties, ts, codes, hashes))
            in_order = rows.take(pa.array(order))
            new_hash = (np.diff(hashes[order], prepend=hashes[order[:1]]) != 0) | (
                np.diff(codes[order], prepend=codes[order[:1]]) != 0
            )
        return _Sorted(in_order, ts[order], np.cumsum(new_hash), collision)

    def _answers(self, rows: _Sorted, settled: Settled) -> Iterator[tuple[pa.RecordBatch, Hashes]]:
        since, _ = settled_at(settled, rows.rows.column(HASH).to_numpy())
        answered = np.flatnonzero(rows.ts >= since)
        if self.distinct:
            answered = answered[~self._has_equal(rows)[answered]]
        elif self.last_only:
            answered = answered[np.diff(rows.group[answered], append=-1) != 0]
        # An answer is no longer than the row it is for and the longest values of its group, one per aggregate.
        longest = longest_row(rows.rows) * (1 + len(self.aggregates))
        at_once, chunk_rows = rows_of_one_column(longest), rows_at_once(self.chunk_rows, longest)
        for first in range(0, len(answered), at_once):
            results, hashes = self._answer(rows, answered[first : first + at_once])
            for start in range(0, len(results), chunk_rows):
                yield narrowed(results.slice(start, chunk_rows)), hashes[start : start + chunk_rows]

    def _answer(self, rows: _Sorted, answered: Indices) -> tuple[pa.RecordBatch, Hashes]:
        """The answers to some rows, and the hash of each."""
        picked = pa.array(answered)
        made = [rows.rows.column(key).take(picked) for key in self.keys]
        if self.aggregates:
            reach = self._reach(rows, answered)
            for aggregate in self.aggregates:
                values = None if aggregate.column is None else rows.rows.column(aggregate.column)
                made.append(AGGREGATES[aggregate.function](values, reach))
        arrays = {name: made[n] for name, n in self.results}
        if self.timed:
            arrays[TS] = pa.array(rows.ts[answered])
        results = pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))
        return results, rows.rows.column(HASH).to_numpy()[answered]

    def _reach(self, rows: _Sorted, answered: Indices) -> Reach:
        """For which of the answered rows each row counts: those of its group that come while it is in the window."""
        count = len(rows.ts)
        before = np.zeros(count + 1, dtype=np.int64)  # how many are answered before each row
        before[answered + 1] = 1
        before = np.cumsum(before)
        begins = np.flatnonzero(np.diff(rows.group, prepend=-1))
        last = before[np.append(begins[1:], count)][rows.group]
        if self.rows is None:
            first = before[begins][rows.group]
            start, stop = narrow(rows.ts[answered], first, last, rows.ts, self._expiry(rows))
        else:
            start = before[:-1]
            stop = np.minimum(before[np.minimum(np.arange(count) + self.rows, count)], last)
        return Reach(start, stop, len(answered))

    def _expiry(self, rows: _Sorted) -> NDArray[np.int64]:
        if EXPIRY in rows.rows.schema.names:
            expiry: NDArray[np.int64] = rows.rows.column(EXPIRY).to_numpy()
            return expiry
        return rows.ts + min(self.width or 0, UNBOUNDED)

    def _has_equal(self, rows: _Sorted) -> NDArray[np.bool_]:
        """Whether an earlier row of the group is still in its window when a row comes."""
        expiry = self._expiry(rows)
        order = np.argsort(expiry, kind="stable")
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        # The greatest expiry so far, group by group: ranks of later groups are greater than all before.
        so_far = np.maximum.accumulate(rows.group * len(order) + ranks) - rows.group * len(order)
        first = np.diff(rows.group, prepend=-1) != 0
        before = np.concatenate([so_far[:1], so_far[:-1]])
        before = np.where(first, 0, before)
        equal: NDArray[np.bool_] = ~first & (expiry[order[before]] >= rows.ts)
        return equal


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Rows by group and time; `group` numbers the groups, ascending from 0. In a `collision` two share a hash."""

    rows: pa.RecordBatch
    ts: NDArray[np.int64]
    group: Indices
    collision: bool


def _between(matching: Sequence[Ranges], first: int, last: int) -> list[Ranges]:
    """The ranges of a block of hashes."""
    return [ranges.where((ranges.owner >= first) & (ranges.owner < last)) for ranges in matching]


def _break_ties(order: Indices, hashes: Hashes, ts: NDArray[np.int64], columns: Sequence[pa.Array]) -> Indices:
    """An order by hash and time in which rows that have both in common are ordered by these columns."""
    same = (np.diff(hashes[order]) == 0) & (np.diff(ts[order]) == 0)
    if not columns or not same.any():
        return order
    places = np.flatnonzero(np.append(same, False) | np.append(False, same))
    rows = order[places]
    ranks = [_ranks(column.take(pa.array(rows))) for column in reversed(columns)]
    broken = order.copy()
    broken[places] = rows[np.lexsort((*ranks, ts[rows], hashes[rows]))]
    return broken


def _collisions(rows: pa.RecordBatch, keys: Sequence[str]) -> Indices:
    """Among rows sorted by hash, those that have the hash of the row before, but another key."""
    hashes = rows.column(HASH).to_numpy()
    return _differing(rows, keys, np.diff(hashes, prepend=hashes[:1]) == 0)


def _differing(rows: pa.RecordBatch, keys: Sequence[str], where: NDArray[np.bool_]) -> Indices:
    """The rows that differ in a key from the one before, among those in `where`."""
    places = np.flatnonzero(where[1:]) + 1
    differ = np.zeros(len(places), dtype=bool)
    here, before = pa.array(places), pa.array(places - 1)
    for key in keys if len(places) else ():
        column = rows.column(key)
        differ |= ~_null_safe_equal(column.take(here), column.take(before))
    differing: Indices = places[differ]
    return differing


def _null_safe_equal(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    """Equality in which null equals null, and NaN equals NaN."""
    both_null = pc.and_(left.is_null(), right.is_null())
    equal = pc.fill_null(pc.equal(left, right), False)
    if pa.types.is_floating(left.type):
        equal = pc.or_(equal, pc.fill_null(pc.and_(pc.is_nan(left), pc.is_nan(right)), False))
    same: NDArray[np.bool_] = pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
    return same


def _codes(columns: Sequence[pa.Array]) -> Indices:
    """A number for every combination of values."""
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values = pc.fill_null(column.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False)
        pairs = np.stack([codes, values.astype(np.int64)])
        codes = np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1)
    return codes


def _ranks(column: pa.Array) -> Indices:
    """The place of each value among the sorted ones, equal ones alike: nulls first, NaN last."""
    order = np.roll(pc.array_sort_indices(column, null_placement="at_end").to_numpy(), column.null_count)
    in_order = column.take(pa.array(order))
    step = np.ones(len(order), dtype=np.int64)
    if len(order):
        step[0] = 0
        step[1:] = ~_null_safe_equal(in_order.slice(1), in_order.slice(0, len(order) - 1))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.cumsum(step)
    return ranks
