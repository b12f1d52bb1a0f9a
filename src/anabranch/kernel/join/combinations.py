"""Enumerating combinations of rows that have one hash, input by input, depth first, in chunks of bounded size.

Rows of every input are old or new (`CandidateRows`). Which of them an input contributes is its `Part`; a list of parts,
one per input, stands for a set of combinations. Whoever enumerates chooses lists whose sets do not meet, so every
wanted combination comes out once.

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
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from anabranch.kernel.probe import expand, narrow
from anabranch.state.arrays.hash_index import Indices
from anabranch.state.arrays.row_bytes import rows_at_once
from anabranch.state.groups import groups_of

# Half of what an int64 holds, twice: sums of a time and a window cannot overflow.
MAX_TIME = 1 << 60
UNBOUNDED = 1 << 61


class Part(Enum):
    """Which rows of an input take part."""

    OLD = "old"
    NEW = "new"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class JoinShape:
    """The shape of a join: all that the kernel has to know of the query.

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
    """A chunk of results: row `rows[i][n]` of `tables[i]` is input i's part of result n, whose hash is
    `hashes[owner[n]]`."""

    tables: tuple[pa.RecordBatch, ...]
    rows: tuple[Indices, ...]
    hashes: NDArray[np.uint64]
    owner: Indices

    def __len__(self) -> int:
        """How many results the chunk holds."""
        return len(self.owner)

    def counts(self, groups: int) -> NDArray[np.int64]:
        """How many results each partition group has."""
        return np.bincount(groups_of(self.hashes[self.owner], groups), minlength=groups)


@dataclass(frozen=True, slots=True)
class CandidateRows:
    """Rows of one input for a block of hashes. Old rows come first, then new ones; either part is grouped by hash and
    sorted by time. `old` and `new` are offsets: the rows of hash g are offsets[g] to offsets[g + 1]. `expiry` is known
    where it is not ts plus the window. No row has more than `longest` bytes of content."""

    table: pa.RecordBatch
    ts: NDArray[np.int64] | None
    expiry: NDArray[np.int64] | None
    old: Indices
    new: Indices
    longest: int = 0


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


def enumerate_parts(
    shape: JoinShape, inputs: Sequence[CandidateRows], parts: Sequence[Part], hashes: NDArray[np.uint64]
) -> Iterator[Matches]:
    """All combinations of these parts, from the smallest input that is not there as a whole to the largest."""
    sizes = [_size(entry, part) for entry, part in zip(inputs, parts, strict=True)]
    if 0 in sizes:
        return
    first = min((i for i, part in enumerate(parts) if part is not Part.BOTH), key=sizes.__getitem__)
    offsets = inputs[first].new if parts[first] is Part.NEW else inputs[first].old
    rows = np.arange(offsets[0], offsets[-1], dtype=np.int64)
    owner = np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))
    order = sorted((j for j in range(len(inputs)) if j != first), key=sizes.__getitem__)
    chunk_rows = rows_at_once(shape.chunk_rows, sum(entry.longest for entry in inputs))
    search = _Search(shape, inputs, parts, first, hashes, chunk_rows)
    yield from search.extend(tuple(order), search.choose(first, _Partial(owner, {}), rows))


def _size(entry: CandidateRows, part: Part) -> int:
    old, new = int(entry.old[-1] - entry.old[0]), int(entry.new[-1] - entry.new[0])
    return {Part.OLD: old, Part.NEW: new, Part.BOTH: old + new}[part]


@dataclass(frozen=True, slots=True)
class _Search:
    """What stays the same while combinations of some parts are enumerated, beginning with input `first`."""

    shape: JoinShape
    inputs: Sequence[CandidateRows]
    parts: Sequence[Part]
    first: int
    hashes: NDArray[np.uint64]
    chunk_rows: int

    def extend(self, order: tuple[int, ...], partial: _Partial) -> Iterator[Matches]:
        """Partial combinations with rows of the inputs in `order`."""
        if not order:
            if len(partial.owner):
                tables = tuple(entry.table for entry in self.inputs)
                combined = tuple(partial.rows[j] for j in range(len(self.inputs)))
                yield Matches(tables, combined, self.hashes, partial.owner)
            return
        j, rest = order[0], order[1:]
        entry, part, owner = self.inputs[j], self.parts[j], partial.owner
        offsets = entry.new if part is Part.NEW else entry.old
        start, stop = self._within(j, partial, offsets[owner], offsets[owner + 1])
        lengths = stop - start
        if part is Part.BOTH:
            new_start, new_stop = self._within(j, partial, entry.new[owner], entry.new[owner + 1])
            lengths = lengths + new_stop - new_start
        for chosen, offset in expand(lengths, self.chunk_rows):
            rows = start[chosen] + offset
            if part is Part.BOTH:
                beyond = offset - (stop - start)[chosen]
                rows = np.where(beyond >= 0, new_start[chosen] + beyond, rows)
            shorter = partial.pick(chosen)
            if entry.expiry is not None and shorter.span is not None:
                alive = entry.expiry[rows] >= shorter.span[0]
                shorter, rows = shorter.pick(alive), rows[alive]
            yield from self.extend(rest, self._verified(j, self.choose(j, shorter, rows)))

    def choose(self, j: int, partial: _Partial, rows: Indices) -> _Partial:
        """Combinations with a row of input j each."""
        chosen = {**partial.rows, j: rows}
        window, ts = self.shape.windows[j], self.inputs[j].ts
        if window is None or ts is None:
            return _Partial(partial.owner, chosen, partial.span)
        newest = ts[rows]
        expiries = self.inputs[j].expiry
        expiry = newest + window if expiries is None else expiries[rows]
        if partial.span is not None:
            newest = np.maximum(partial.span[0], newest)
            expiry = np.minimum(partial.span[1], expiry)
        return _Partial(partial.owner, chosen, (newest, expiry))

    def _within(self, j: int, partial: _Partial, start: Indices, stop: Indices) -> tuple[Indices, Indices]:
        window, ts = self.shape.windows[j], self.inputs[j].ts
        if window is None or ts is None or partial.span is None:
            return start, stop
        newest, expiry = partial.span
        return narrow(ts, start, stop, newest - window, expiry)

    def _verified(self, j: int, partial: _Partial) -> _Partial:
        """Only the combinations whose rows of the first input and of j agree on the key, not just on the hash."""
        if not self.shape.verify or len(partial.owner) == 0:
            return partial
        equal = np.ones(len(partial.owner), dtype=bool)
        for name in self.shape.verify:
            left = self.inputs[self.first].table.column(name).take(pa.array(partial.rows[self.first]))
            right = self.inputs[j].table.column(name).take(pa.array(partial.rows[j]))
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
