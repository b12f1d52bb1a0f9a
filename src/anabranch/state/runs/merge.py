"""A merge of sorted runs, carried out a bounded number of rows at a time.

Each batch moves some rows, in hash order, from the sources of a merge to its target. Between batches the target's
slices and the remaining parts of the sources are all active state. So no batch pays for the size of the state, and a
crash leaves every row listed exactly once.

Nothing here does I/O: how slices are opened and runs are written is passed in (`Rewriting`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.state.arrays.order import order_of
from anabranch.state.arrays.row_bytes import concatenated
from anabranch.state.runs.expiry import Spared, keep_alive
from anabranch.state.runs.run import RunFile, Segment
from anabranch.state.runs.slice import Slice, SortedRun, count_rows

MAX_FILE_ROWS = 1_000_000
MAX_FILE_BYTES = 256 << 20
CUTS = 256

OpenSlice = Callable[[Slice], Segment]
WriteRun = Callable[[Segment], RunFile]


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge under way: `target` holds the rows that were moved already, `sources` the others."""

    target: SortedRun
    sources: tuple[SortedRun, ...]


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How the rows of a merge are read and written, and which of them are dropped: those older than `threshold`,
    unless they are spared."""

    open_slice: OpenSlice
    write: WriteRun
    threshold: int | None = None
    spared: Spared | None = None


def advance_all(merges: Iterable[Merge], budget: int, rewriting: Rewriting) -> tuple[Merge, ...]:
    """Move about `budget` rows to the targets of their merges, those of the smallest merges first."""
    advanced = []
    for merge in sorted(merges, key=lambda merge: sum(count_rows(source) for source in merge.sources)):
        while budget > 0 and merge.sources:
            merge, moved = _advance(merge, min(budget, _file_rows(merge)), rewriting)
            budget -= moved
        advanced.append(merge)
    return tuple(advanced)


def _file_rows(merge: Merge) -> int:
    """The number of rows of a merge that are written into one file; fewer if rows are long."""
    files = [piece.file for source in merge.sources for piece in source]
    longest = max(file.bytes // max(file.rows, 1) for file in files)
    return max(min(MAX_FILE_ROWS, MAX_FILE_BYTES // max(longest, 1)), 1)


def _advance(merge: Merge, budget: int, rewriting: Rewriting) -> tuple[Merge, int]:
    """Move the next rows in hash order to the target: about `budget` of them, and all rows of the last hash.

    Sources are read across their slices, so the target's slices are as large as the budget allows, however
    small those of the sources were. A front that is not its whole source holds `budget` rows or more, so no row
    that lies beyond a front can be due before those that are moved.
    """
    fronts = [[(piece, rewriting.open_slice(piece)) for piece in _front(source, budget)] for source in merge.sources]
    last_hash = _cut_hash([segment.first_hashes(budget) for front in fronts for _, segment in front], budget)
    moved, sources = [], []
    for front, source in zip(fronts, merge.sources, strict=True):
        rest = []
        for piece, segment in front:
            count = int(np.searchsorted(segment.hashes, last_hash, side="right"))
            taken = segment.slice(0, count).only_selected()
            if len(taken):
                moved.append(taken)
            left = piece.rows - len(taken)
            if left:
                only = None if piece.only is None else replace(piece.only, rows=left)
                rest.append(replace(piece, start=piece.start + count, only=only))
        sources.append((*rest, *source[len(front) :]))
    merged = merge_segments(moved, rewriting.threshold, rewriting.spared) if moved else None
    target = merge.target
    if merged is not None:
        file = rewriting.write(merged)
        target = (*target, Slice(file, 0, file.rows))
    return Merge(target, drop_empty(sources)), sum(len(segment) for segment in moved)


def _front(source: SortedRun, budget: int) -> SortedRun:
    """The first slices of a sorted run that together hold `budget` rows, or all of it."""
    rows = 0
    for number, piece in enumerate(source, start=1):
        rows += piece.rows
        if rows >= budget:
            return source[:number]
    return source


def _cut_hash(segments: list[NDArray[np.uint64]], budget: int) -> np.uint64:
    """The hash up to which about `budget` rows lie, given the first hashes of each segment; not fewer if there are.

    Candidates stand `budget / CUTS` rows apart in each segment, and at its end, so no more than that many rows of
    each are moved beyond the budget (apart from rows of one hash), and the cut is never beyond a segment that holds
    `budget` rows by itself.
    """
    step = max(budget // CUTS, 1)
    candidates = np.sort(np.concatenate([part for hashes in segments for part in (hashes[::step], hashes[-1:])]))
    rows = np.sum([np.searchsorted(hashes, candidates, side="right") for hashes in segments], axis=0)
    enough = int(np.searchsorted(rows, budget, side="left"))
    return np.uint64(candidates[min(enough, len(candidates) - 1)])


def drop_empty(runs: Iterable[SortedRun]) -> tuple[SortedRun, ...]:
    """The runs that have slices."""
    return tuple(run for run in runs if run)


def merge_segments(segments: list[Segment], threshold: int | None, spared: Spared | None = None) -> Segment | None:
    """Merge segments into one sorted segment; drop rows older than `threshold` that are not spared; None if empty."""
    batch = concatenated([segment.rows for segment in segments])
    hashes = np.concatenate([segment.hashes for segment in segments])
    timed = [segment.ts for segment in segments if segment.ts is not None]
    ts = np.concatenate(timed) if timed else None
    merged = Segment.of(batch.take(pa.array(order_of(hashes, ts))))
    return keep_alive(merged, threshold, spared)
