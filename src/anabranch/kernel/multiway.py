"""The m-way symmetric join of one batch (SPEC section 1; DESIGN "State").

For every combination that contains at least one new row there is a last new input i: the combination is
(new row of i) x (old or new rows of the inputs before i) x (old rows of the inputs after i). Enumerating by i
produces every new combination exactly once, in whatever order rows arrived.

The work is done per distinct hash of the batch ("wanted"):

1. probe each input's old segments and its delta with the wanted hashes; drop a hash as soon as some input lacks it;
2. gather the rows that remain into one small table per input, grouped by hash, sorted by time (`Candidates`); hashes
   are taken in blocks so that no more than about `gather_rows` are gathered at once;
3. enumerate combinations input by input, depth first, in chunks of at most `chunk_rows`, so that memory does not
   depend on the number of results.

Windows (SPEC section 0): a combination is a result iff for t* = max ts, every row of input i has ts >= t* - w_i.
While enumerating, a partial combination carries t* so far and the smallest ts + w, its expiry; the next input's range
is cut to [t* - w, expiry] by binary search before it is expanded. Untimed inputs take no part.

An input may hold results of another join. Such a row carries the times of all the rows it is made of, and is stored by
the newest of them (TSmax, paper 3). Its expiry is the smallest of its ts + w, so it can lie before TSmax + w for its
smallest window w, by which its range is cut: what remains is compared with t* one by one.

Rows with equal hashes are compared on the key columns, unless the hash is injective on the key (`verify` empty).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from anabranch.kernel.probe import Ranges, blocks, expand, narrow, probe, ranges_to_rows
from anabranch.state.hash_index import HashIndex, Indices
from anabranch.state.run import HASH, TS, Segment

# Half of what an int64 holds, twice: sums of a time and a window cannot overflow.
MAX_TIME = 1 << 60
UNBOUNDED = 1 << 61


@dataclass(frozen=True, slots=True)
class JoinShape:
    """What the kernel has to know of the query.

    `windows[i]` is the window of input i (`UNBOUNDED` if it has none), or None if the input has no event time or the
    query has no window at all. Where input i holds joined rows, it is the smallest of their windows, and `times[i]` has
    all of them: pairs of a column with a time, and its window. `verify` names the key columns to compare. Tables
    of results have the hash or the time only if they are to be kept (`keep`).
    """

    windows: tuple[int | None, ...]
    verify: tuple[str, ...] = ()
    times: tuple[tuple[tuple[str, int], ...], ...] = ()
    keep: tuple[str, ...] = ()
    chunk_rows: int = 65_536
    gather_rows: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Matches:
    """A chunk of results: row `rows[i][n]` of `tables[i]` is input i's part of result n."""

    tables: tuple[pa.RecordBatch, ...]
    rows: tuple[Indices, ...]

    def __len__(self) -> int:
        """How many results the chunk holds."""
        return len(self.rows[0])


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows of one input for a block of hashes. Old rows come first, then new ones; either part is grouped by hash and
    sorted by time. `old` and `new` are offsets: the rows of hash g are offsets[g] to offsets[g + 1]. `expiry` is known
    where it is not ts plus the window."""

    table: pa.RecordBatch
    ts: NDArray[np.int64] | None
    expiry: NDArray[np.int64] | None
    old: Indices
    new: Indices


def join_deltas(shape: JoinShape, old: Sequence[Sequence[Segment]], deltas: Sequence[Segment]) -> Iterator[Matches]:
    """All combinations of `old` state and `deltas` that contain at least one delta row.

    `old[i]` are the sorted segments of input i, `deltas[i]` its sorted new rows.
    """
    wanted = _distinct(np.concatenate([delta.hashes for delta in deltas]))
    if len(wanted) == 0:
        return
    found, totals = _probe_inputs(wanted, old, deltas)
    useful = np.flatnonzero(np.logical_and.reduce([total > 0 for total in totals]))
    for first, last in blocks(np.add.reduce(totals)[useful], shape.gather_rows):
        yield from _join_block(shape, old, deltas, found, useful[first:last], len(wanted))


def _probe_inputs(
    wanted: NDArray[np.uint64], old: Sequence[Sequence[Segment]], deltas: Sequence[Segment]
) -> tuple[list[list[Ranges]], list[Indices]]:
    """Per input, the ranges of wanted hashes in its segments and its delta, and how many rows each hash has there.

    Smallest input first, each asked only for the hashes that all inputs before it have: most arriving rows find no
    partner in some input, and are not looked for in the larger ones.
    """
    found: list[list[Ranges]] = [[] for _ in deltas]
    totals = [np.zeros(len(wanted), dtype=np.int64) for _ in deltas]
    alive = np.arange(len(wanted))
    sizes = [sum(map(len, segments)) for segments in old]
    for i in sorted(range(len(deltas)), key=sizes.__getitem__):
        if len(alive) == 0:
            break
        asked = HashIndex.of(wanted[alive])
        for segment in (*old[i], deltas[i]):
            ranges = probe(asked, segment)
            ranges = Ranges(alive[ranges.owner], ranges.start, ranges.stop)
            totals[i][ranges.owner] += ranges.lengths
            found[i].append(ranges)
        alive = alive[totals[i][alive] > 0]
    return found, totals


def _distinct(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Ascending distinct hashes; sorting beats the hash table of `np.unique` here."""
    hashes = np.sort(hashes)
    return hashes[np.flatnonzero(np.diff(hashes, prepend=hashes[:1] + np.uint64(1)))]


def _join_block(
    shape: JoinShape,
    old: Sequence[Sequence[Segment]],
    deltas: Sequence[Segment],
    found: Sequence[Sequence[Ranges]],
    block: Indices,
    hashes: int,
) -> Iterator[Matches]:
    number = np.full(hashes, -1, dtype=np.int64)
    number[block] = np.arange(len(block))

    def select(ranges: Ranges) -> Ranges:
        owner = number[ranges.owner]
        return Ranges(owner, ranges.start, ranges.stop).where(owner >= 0)

    selected = [[select(ranges) for ranges in parts] for parts in found]
    new = [parts[-1] for parts in selected]
    reach = _reach(shape, deltas, new, len(block))
    inputs = [
        _gather(shape, i, old[i], selected[i][:-1], deltas[i], new[i], reach[i], len(block)) for i in range(len(deltas))
    ]
    for i, part in enumerate(inputs):
        if part.new[-1] > part.new[0]:
            yield from _enumerate(shape, inputs, i)


Reach = tuple[NDArray[np.int64], NDArray[np.int64]] | None


def _reach(shape: JoinShape, deltas: Sequence[Segment], new: Sequence[Ranges], hashes: int) -> list[Reach]:
    """Per input and hash, the range of event time in which an old row can meet a new row of another input."""
    timed = [i for i, window in enumerate(shape.windows) if window is not None]
    earliest = np.full((len(deltas), hashes), UNBOUNDED, dtype=np.int64)
    latest = np.full((len(deltas), hashes), -UNBOUNDED, dtype=np.int64)
    for i in timed:
        ts, ranges, window = deltas[i].ts, new[i], shape.windows[i]
        if ts is None or window is None:
            continue
        earliest[i, ranges.owner] = ts[ranges.start]
        latest[i, ranges.owner] = np.minimum(ts[ranges.stop - 1] + window, UNBOUNDED)
    untimed_new = np.zeros(hashes, dtype=bool)
    for i in set(range(len(deltas))) - set(timed):
        untimed_new[new[i].owner] = True
    reach: list[Reach] = []
    for i, window in enumerate(shape.windows):
        others = [j for j in timed if j != i]
        if window is None or not others:
            reach.append(None)
            continue
        low = np.where(untimed_new, -UNBOUNDED, earliest[others].min(axis=0) - min(window, MAX_TIME * 2))
        high = np.where(untimed_new, UNBOUNDED, latest[others].max(axis=0))
        reach.append((low, high))
    return reach


def _gather(
    shape: JoinShape,
    i: int,
    segments: Sequence[Segment],
    found: Sequence[Ranges],
    delta: Segment,
    new: Ranges,
    reach: Reach,
    hashes: int,
) -> Candidates:
    tables, owners, times = [], [], []
    for segment, ranges in zip(segments, found, strict=True):
        start, stop = ranges.start, ranges.stop
        if reach is not None and segment.ts is not None:
            low, high = reach[0][ranges.owner], reach[1][ranges.owner]
            start, stop = narrow(segment.ts, start, stop, low, high)
        rows = ranges_to_rows(start, stop - start)
        if len(rows) == 0:
            continue
        tables.append(_columns(shape, segment).take(pa.array(rows)))
        owners.append(np.repeat(ranges.owner, stop - start))
        if segment.ts is not None:
            times.append(segment.ts[rows])
    new_rows = ranges_to_rows(new.start, new.lengths)
    tables.append(_columns(shape, delta).take(pa.array(new_rows)))
    new_ts = None if delta.ts is None else delta.ts[new_rows]
    new_offsets = _offsets(new.owner, new.lengths, hashes)

    owner = np.concatenate(owners) if owners else np.empty(0, dtype=np.int64)
    old_offsets = _offsets(owner, np.ones(len(owner), dtype=np.int64), hashes)
    table = _concat(tables)
    ts = None if new_ts is None else np.concatenate([*times, new_ts])
    if len(owners) > 1:
        old_ts = None if ts is None else ts[: len(owner)]
        order = np.argsort(owner, kind="stable") if old_ts is None else np.lexsort((old_ts, owner))
        everything = np.concatenate([order, np.arange(len(owner), table.num_rows)])
        table = table.take(pa.array(everything))
        ts = None if ts is None else ts[everything]
    return Candidates(table, ts, _expiry(shape, i, table), old_offsets, new_offsets + len(owner))


def _expiry(shape: JoinShape, i: int, table: pa.RecordBatch) -> NDArray[np.int64] | None:
    """When rows of an input that holds joined rows expire: the smallest ts + w of the rows they are made of."""
    times = shape.times[i] if shape.times else ()
    if not times:
        return None
    expiry: NDArray[np.int64] = np.minimum.reduce([table.column(name).to_numpy() + w for name, w in times])
    return expiry


def _columns(shape: JoinShape, segment: Segment) -> pa.RecordBatch:
    """What results and verification need: neither the hash nor the time, unless they are wanted."""
    names = [name for name in segment.rows.schema.names if name not in (HASH, TS) or name in shape.keep]
    return segment.rows.select(names or [HASH])


def _offsets(owner: Indices, lengths: Indices, hashes: int) -> Indices:
    counts = np.bincount(owner, weights=lengths, minlength=hashes).astype(np.int64)
    return np.concatenate([[0], np.cumsum(counts)])


def _concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


@dataclass(frozen=True, slots=True)
class _Partial:
    """Partial combinations: hash number, the chosen row per input so far, and, once a timed row is chosen, t* and the
    smallest ts + w."""

    owner: Indices
    rows: dict[int, Indices]
    span: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def pick(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> _Partial:
        """Some of the combinations, possibly repeated."""
        rows = {i: picked[chosen] for i, picked in self.rows.items()}
        span = None if self.span is None else (self.span[0][chosen], self.span[1][chosen])
        return _Partial(self.owner[chosen], rows, span)


def _enumerate(shape: JoinShape, inputs: Sequence[Candidates], last_new: int) -> Iterator[Matches]:
    """Combinations whose last new input is `last_new`, cheapest input first."""
    seed = inputs[last_new]
    rows = np.arange(seed.new[0], seed.new[-1], dtype=np.int64)
    owner = np.repeat(np.arange(len(seed.new) - 1, dtype=np.int64), np.diff(seed.new))
    order = sorted(
        (j for j in range(len(inputs)) if j != last_new),
        key=lambda j: int(inputs[j].old[-1] + (inputs[j].new[-1] - inputs[j].new[0] if j < last_new else 0)),
    )
    yield from _extend(
        shape, inputs, last_new, tuple(order), _choose(shape, inputs, last_new, _Partial(owner, {}), rows)
    )


def _extend(
    shape: JoinShape, inputs: Sequence[Candidates], last_new: int, order: tuple[int, ...], partial: _Partial
) -> Iterator[Matches]:
    if not order:
        if len(partial.owner):
            yield Matches(tuple(part.table for part in inputs), tuple(partial.rows[j] for j in range(len(inputs))))
        return
    j, rest = order[0], order[1:]
    part, owner = inputs[j], partial.owner
    old_start, old_stop = _within(shape, part, j, partial, part.old[owner], part.old[owner + 1])
    lengths = old_stop - old_start
    if j < last_new:
        new_start, new_stop = _within(shape, part, j, partial, part.new[owner], part.new[owner + 1])
        lengths = lengths + new_stop - new_start
    for chosen, offset in expand(lengths, shape.chunk_rows):
        rows = old_start[chosen] + offset
        if j < last_new:
            beyond = offset - (old_stop - old_start)[chosen]
            rows = np.where(beyond >= 0, new_start[chosen] + beyond, rows)
        shorter = partial.pick(chosen)
        if part.expiry is not None and shorter.span is not None:
            alive = part.expiry[rows] >= shorter.span[0]
            shorter, rows = shorter.pick(alive), rows[alive]
        longer = _choose(shape, inputs, j, shorter, rows)
        yield from _extend(shape, inputs, last_new, rest, _verified(shape, inputs, last_new, j, longer))


def _within(
    shape: JoinShape, part: Candidates, j: int, partial: _Partial, start: Indices, stop: Indices
) -> tuple[Indices, Indices]:
    window = shape.windows[j]
    if window is None or part.ts is None or partial.span is None:
        return start, stop
    newest, expiry = partial.span
    return narrow(part.ts, start, stop, newest - window, expiry)


def _choose(shape: JoinShape, inputs: Sequence[Candidates], j: int, partial: _Partial, rows: Indices) -> _Partial:
    chosen = {**partial.rows, j: rows}
    window, ts = shape.windows[j], inputs[j].ts
    if window is None or ts is None:
        return _Partial(partial.owner, chosen, partial.span)
    newest = ts[rows]
    known = inputs[j].expiry
    expiry = newest + window if known is None else known[rows]
    if partial.span is not None:
        newest = np.maximum(partial.span[0], newest)
        expiry = np.minimum(partial.span[1], expiry)
    return _Partial(partial.owner, chosen, (newest, expiry))


def _verified(shape: JoinShape, inputs: Sequence[Candidates], i: int, j: int, partial: _Partial) -> _Partial:
    """Only the combinations whose rows of inputs i and j agree on the key columns, not just on the hash."""
    if not shape.verify or len(partial.owner) == 0:
        return partial
    equal = np.ones(len(partial.owner), dtype=bool)
    for name in shape.verify:
        left = inputs[i].table.column(name).take(pa.array(partial.rows[i]))
        right = inputs[j].table.column(name).take(pa.array(partial.rows[j]))
        equal &= keys_equal(left, right)
    return partial if equal.all() else partial.pick(equal)


def keys_equal(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    """Equality of canonical keys: floating point by bit pattern, so that NaN equals NaN."""
    if pa.types.is_floating(left.type):
        bits = np.dtype(f"i{left.type.bit_width // 8}")
        equal: NDArray[np.bool_] = left.to_numpy().view(bits) == right.to_numpy().view(bits)
    else:
        equal = pc.equal(left, right).to_numpy(zero_copy_only=False)
    return equal
