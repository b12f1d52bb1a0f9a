"""A spine: all active state of one join input on one processor, as a short list of sorted runs.

A `Slice` is a range of rows of a run file, or of those of them that belong to some partition groups: groups go to disk
or to another processor by changing these sets, and no row is copied. A `SortedRun` is a tuple of slices with ascending,
disjoint hash ranges: logically one sorted sequence, physically several files. Every batch adds one, and a second one if
rows come that have waited. When `FAN_IN` sorted runs of about equal size exist they are merged, so n rows lie in
O(log n) sorted runs and each row is rewritten O(log n) times. Runs of which most groups have gone, or few have come,
are written anew, as one, before they are used (`consolidate`).

A merge is spread over many batches: each moves a bounded number of rows, in hash order, from its sources to its
target, and between batches the target's slices and the remaining parts of the sources are all active state. So no
batch ever pays for the size of the state, and a crash leaves a spine that lists every row exactly once.

Rows past the purge threshold are dropped when their whole file has passed it, or when a merge meets them. A merge
does not join runs that together span more than `max_span` of event time, unless each is about as wide by itself, so
files do expire as a whole. Rows that spilled state has still to meet outlive their time: they are `retired`, no longer
probed but listed until clean-up has used them (`Spared`).

Nothing here does I/O: `open_slice` and `write` are passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.state.arrays.order import order_of
from anabranch.state.arrays.row_bytes import concatenated
from anabranch.state.groups import GroupSet
from anabranch.state.run import RunFile, Segment

FAN_IN = 8
SMALLEST_TIER = 4_096
MAX_FILE_ROWS = 1_000_000
MAX_FILE_BYTES = 256 << 20
CUTS = 256


@dataclass(frozen=True, slots=True)
class Only:
    """The groups whose rows a slice means, and how many rows these are."""

    groups: GroupSet
    rows: int


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows start to stop of a run file; if there is an `only`, those of some groups among them."""

    file: RunFile
    start: int
    stop: int
    only: Only | None = None

    @property
    def rows(self) -> int:
        """How many rows the slice lists."""
        return self.stop - self.start if self.only is None else self.only.rows

    @property
    def bytes(self) -> int:
        """The slice's share of its file."""
        return self.file.bytes * self.rows // max(self.file.rows, 1)

    @property
    def groups(self) -> GroupSet | None:
        """The groups whose rows are meant; None if all are."""
        return None if self.only is None else self.only.groups

    def of_groups(self, groups: GroupSet, cuts: Cuts) -> Slice | None:
        """What of the slice belongs to some groups; None if nothing does. If all of it does, no file is opened."""
        if groups.is_all:
            return self
        meant = groups if self.only is None else groups & self.only.groups
        if not meant:
            return None
        if meant == self.groups:
            return self
        edges = np.clip(cuts(self.file), self.start, self.stop)
        sizes = np.diff(edges)
        present = np.flatnonzero(meant.mask() & (sizes > 0))
        if len(present) == 0:
            return None
        start, stop = int(edges[present[0]]), int(edges[present[-1] + 1])
        rows = int(sizes[present].sum())
        only = None if rows == stop - start else Only(GroupSet.of(groups.count, present), rows)
        return Slice(self.file, start, stop, only)


SortedRun = tuple[Slice, ...]
OpenSlice = Callable[[Slice], Segment]
WriteRun = Callable[[Segment], RunFile]
# Where the partition groups of a file begin, and at last its number of rows.
Cuts = Callable[[RunFile], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Spared:
    """Rows that must outlive their time: of groups that have spilled state, and not newer than what that can meet."""

    groups: GroupSet
    until: int | None = None

    def holds(self, segment: Segment) -> NDArray[np.bool_]:
        """Which rows of a segment are spared."""
        held = self.groups.holds(segment.hashes)
        return held if self.until is None or segment.ts is None else held & (segment.ts <= self.until)


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge under way: `target` holds what has been merged, `sources` what has not."""

    target: SortedRun
    sources: tuple[SortedRun, ...]


@dataclass(frozen=True, slots=True)
class Spine:
    """The sorted runs of one input, the merges under way among them, and what is `retired`."""

    runs: tuple[SortedRun, ...] = ()
    merges: tuple[Merge, ...] = ()
    retired: tuple[Slice, ...] = ()

    def slices(self) -> Iterator[Slice]:
        """Every active slice; each row of the state is in exactly one."""
        for run in self.runs:
            yield from run
        for merge in self.merges:
            yield from merge.target
            for source in merge.sources:
                yield from source

    @property
    def rows(self) -> int:
        """Active rows."""
        return sum(piece.rows for piece in self.slices())

    @property
    def bytes(self) -> int:
        """Active bytes."""
        return sum(piece.bytes for piece in self.slices())

    def insert(self, file: RunFile) -> Spine:
        """The spine with one more sorted run."""
        return replace(self, runs=(*self.runs, (Slice(file, 0, file.rows),)))

    def purge(self, threshold: int | None, spared: Spared | None = None, cuts: Cuts | None = None) -> Spine:
        """The spine without the files whose every row is older than `threshold`; what of them is spared is retired."""
        if threshold is None:
            return self
        retired = list(self.retired)

        def keep(run: SortedRun) -> SortedRun:
            kept = []
            for piece in run:
                if piece.file.max_ts is None or piece.file.max_ts >= threshold:
                    kept.append(piece)
                elif spared is not None and not _is_newer(piece.file, spared.until):
                    assert cuts is not None, "groups are told apart by where they begin"
                    part = piece.of_groups(spared.groups, cuts)
                    retired.extend([] if part is None else [part])
            return tuple(kept)

        merges = tuple(
            Merge(keep(merge.target), _present(keep(source) for source in merge.sources)) for merge in self.merges
        )
        return _settle(_present(keep(run) for run in self.runs), merges, tuple(retired))

    def compact(
        self,
        budget: int,
        open_slice: OpenSlice,
        write: WriteRun,
        threshold: int | None = None,
        max_span: int | None = None,
        spared: Spared | None = None,
    ) -> Spine:
        """Start the merges that are due and move about `budget` rows, smallest merges first."""
        spine = self._start_merges(max_span)
        merges = _advance_all(spine.merges, budget, open_slice, write, threshold, spared)
        return _settle(spine.runs, merges, spine.retired)

    def consolidate(
        self,
        budget: int,
        open_slice: OpenSlice,
        write: WriteRun,
        threshold: int | None = None,
        max_span: int | None = None,
        spared: Spared | None = None,
    ) -> Spine:
        """Write runs anew that list less than half of what they span, as one, and move about `budget` rows for that.

        When groups move there is one for every run that another processor had, whatever their sizes, and for every part
        of the merges that it had under way. Looking rows up in all of them would cost more than writing them once. The
        same is done with what is left where groups have gone.
        """
        cut_up = [merge for merge in self.merges if _is_cut_up(merge)]
        parts = [run for merge in cut_up for run in (merge.target, *merge.sources) if run]
        sparse = [run for run in (*self.runs, *parts) if _is_sparse(run)]
        if not sparse:
            return self
        begun = [Merge((), runs) for runs in _close_in_time(sparse, max_span)]
        whole = tuple(run for run in (*self.runs, *parts) if not _is_sparse(run))
        left = tuple(merge for merge in self.merges if merge not in cut_up)
        merges = _advance_all(begun, budget, open_slice, write, threshold, spared)
        return _settle(whole, (*left, *merges), self.retired)

    def of_groups(self, groups: GroupSet, cuts: Cuts) -> Spine:
        """The part of the spine that belongs to some groups."""

        def cut(run: SortedRun) -> SortedRun:
            return slices_of_groups(run, groups, cuts)

        merges = tuple(
            Merge(cut(merge.target), _present(cut(source) for source in merge.sources)) for merge in self.merges
        )
        return _settle(_present(cut(run) for run in self.runs), merges, cut(self.retired))

    def union(self, other: Spine) -> Spine:
        """Both spines' runs and merges; used when state is listed anew for other processors."""
        return Spine(self.runs + other.runs, self.merges + other.merges, self.retired + other.retired)

    def _start_merges(self, max_span: int | None) -> Spine:
        waiting = sorted(self.runs, key=_last_time)
        alike: dict[tuple[int, int | None], list[SortedRun]] = {}
        for run in waiting:
            alike.setdefault(_kind(run, max_span), []).append(run)
        merges, taken = list(self.merges), list[SortedRun]()
        for kind in sorted(alike, key=lambda kind: kind[0], reverse=True):
            for due in _mergeable([run for run in alike[kind] if run not in taken], kind[1]):
                joined = _with_smaller(due, [run for run in waiting if run not in taken], max_span)
                merges.append(Merge((), joined))
                taken += joined
        return Spine(tuple(run for run in waiting if run not in taken), tuple(merges), self.retired)


def slices_of_groups(slices: Iterable[Slice], groups: GroupSet, cuts: Cuts) -> tuple[Slice, ...]:
    """What of some slices belongs to some groups."""
    found = (piece.of_groups(groups, cuts) for piece in slices)
    return tuple(piece for piece in found if piece is not None)


def _is_newer(file: RunFile, time: int | None) -> bool:
    return time is not None and file.min_ts is not None and file.min_ts > time


def _is_sparse(run: SortedRun) -> bool:
    """Whether a run lists less than half of what it spans, since groups have gone: it is worth writing anew."""
    return 2 * _rows(run) < sum(piece.stop - piece.start for piece in run)


def _is_cut_up(merge: Merge) -> bool:
    """Whether groups have gone from a merge, so that it is better begun anew."""
    return _is_sparse(merge.target) or (not merge.target and any(map(_is_sparse, merge.sources)))


def _rows(run: SortedRun) -> int:
    return sum(piece.rows for piece in run)


def _present(runs: Iterator[SortedRun]) -> tuple[SortedRun, ...]:
    return tuple(run for run in runs if run)


def _tier(rows: int) -> int:
    tier = 0
    while rows >= SMALLEST_TIER * FAN_IN:
        rows //= FAN_IN
        tier += 1
    return tier


def _kind(run: SortedRun, max_span: int | None) -> tuple[int, int | None]:
    """What runs have in common that are merged: their tier, and how much event time that may span."""
    return _tier(_rows(run)), _allowed_span(run, max_span)


def _allowed_span(run: SortedRun, max_span: int | None) -> int | None:
    """How much event time a merge of this run may span: `max_span`, or at least twice what the run spans already.

    Rows that arrive out of order make runs that are wide by themselves and overlap. If they were not merged, there
    would be one for every batch within the time that rows are kept. Runs that follow each other in time do not fit
    into twice their own span when there are `FAN_IN` of them, so these still expire one by one.
    """
    if max_span is None:
        return None
    oldest, newest = _span(run)
    allowed = max(max_span, 1)
    while allowed < 2 * (newest - oldest):
        allowed *= 2
    return allowed


def _mergeable(runs: list[SortedRun], max_span: int | None) -> Iterator[tuple[SortedRun, ...]]:
    """Batches of FAN_IN runs that are close enough in event time to be merged, of some in the order of last times."""
    batch: list[SortedRun] = []
    for run in runs:
        batch.append(run)
        if max_span is not None:
            newest = _span(run)[1]
            batch = [member for member in batch if newest - _span(member)[0] <= max_span]
        if len(batch) == FAN_IN:
            yield tuple(batch)
            batch = []


def _with_smaller(due: tuple[SortedRun, ...], runs: Sequence[SortedRun], max_span: int | None) -> tuple[SortedRun, ...]:
    """Runs that are due, with the smaller ones among all `runs` that lie between them or just before, if time allows.

    What a batch brings is of one tier before groups have come or gone, and of another afterwards. If only runs of one
    were merged, every key would go back in time between the result and the others. What is older than a run that is not
    smaller stays, to be merged with that.
    """
    tier, allowed = _kind(due[0], max_span)
    newest = max(_span(run)[1] for run in due)
    joined: list[SortedRun] = []
    for run in runs[: runs.index(due[-1]) + 1]:
        size, span = _kind(run, max_span)
        is_close = span == allowed and (allowed is None or newest - _span(run)[0] <= allowed)
        if run in due or (size < tier and is_close):
            joined.append(run)
        elif size >= tier and due[0] not in joined:
            joined.clear()
    return tuple(joined)


def _close_in_time(runs: list[SortedRun], max_span: int | None) -> Iterator[tuple[SortedRun, ...]]:
    """All runs, oldest first, in batches that are close enough in event time to be merged, by what each allows."""
    batch: list[SortedRun] = []
    for run in sorted(runs, key=_last_time):
        together = _span(tuple(piece for member in (*batch, run) for piece in member))
        allowed = (_allowed_span(member, max_span) for member in (*batch, run))
        if batch and any(most is not None and together[1] - together[0] > most for most in allowed):
            yield tuple(batch)
            batch = []
        batch.append(run)
    if batch:
        yield tuple(batch)


def _span(run: SortedRun) -> tuple[int, int]:
    return (
        min((piece.file.min_ts for piece in run if piece.file.min_ts is not None), default=0),
        max((piece.file.max_ts for piece in run if piece.file.max_ts is not None), default=0),
    )


def _last_time(run: SortedRun) -> tuple[int, int]:
    """By what runs are ordered before they are merged: so rows of a key need no sorting by time (`arrays/order`), even
    where groups have come that reach further back than the others."""
    return _span(run)[::-1]


def _settle(runs: tuple[SortedRun, ...], merges: tuple[Merge, ...], retired: tuple[Slice, ...]) -> Spine:
    """Turn merges that have no sources left into plain runs."""
    finished = _present(merge.target for merge in merges if not merge.sources)
    return Spine(runs + finished, tuple(merge for merge in merges if merge.sources), retired)


def _advance_all(
    merges: Iterable[Merge],
    budget: int,
    open_slice: OpenSlice,
    write: WriteRun,
    threshold: int | None,
    spared: Spared | None,
) -> tuple[Merge, ...]:
    """Move about `budget` rows, those of the smallest merges first."""
    advanced = []
    for merge in sorted(merges, key=lambda merge: sum(_rows(source) for source in merge.sources)):
        while budget > 0 and merge.sources:
            merge, moved = _advance(merge, min(budget, _file_rows(merge)), open_slice, write, threshold, spared)
            budget -= moved
        advanced.append(merge)
    return tuple(advanced)


def _file_rows(merge: Merge) -> int:
    """How many rows of a merge are written into one file: fewer if they are long."""
    files = [piece.file for source in merge.sources for piece in source]
    longest = max(file.bytes // max(file.rows, 1) for file in files)
    return max(min(MAX_FILE_ROWS, MAX_FILE_BYTES // max(longest, 1)), 1)


def _advance(
    merge: Merge, budget: int, open_slice: OpenSlice, write: WriteRun, threshold: int | None, spared: Spared | None
) -> tuple[Merge, int]:
    """Move the next rows in hash order to the target: about `budget` of them, and all that have the same hash.

    Sources are read across their slices, so the target's slices are as large as the budget allows, however
    small those of the sources were. A front that is not its whole source holds `budget` rows or more, so no row
    that lies beyond a front can be due before those that are moved.
    """
    fronts = [[(piece, open_slice(piece)) for piece in _front(source, budget)] for source in merge.sources]
    last_hash = _cut_hash([segment.first_hashes(budget) for front in fronts for _, segment in front], budget)
    moved, sources = [], []
    for front, source in zip(fronts, merge.sources, strict=True):
        rest = []
        for piece, segment in front:
            count = int(np.searchsorted(segment.hashes, last_hash, side="right"))
            taken = segment.slice(0, count).solid()
            if len(taken):
                moved.append(taken)
            left = piece.rows - len(taken)
            if left:
                only = None if piece.only is None else replace(piece.only, rows=left)
                rest.append(replace(piece, start=piece.start + count, only=only))
        sources.append((*rest, *source[len(front) :]))
    merged = merge_segments(moved, threshold, spared) if moved else None
    target = merge.target
    if merged is not None:
        file = write(merged)
        target = (*target, Slice(file, 0, file.rows))
    return Merge(target, _present(iter(sources))), sum(len(segment) for segment in moved)


def _front(source: SortedRun, budget: int) -> SortedRun:
    """The first slices of a sorted run that together hold `budget` rows, or all of it."""
    rows = 0
    for number, piece in enumerate(source, start=1):
        rows += piece.rows
        if rows >= budget:
            return source[:number]
    return source


def _cut_hash(segments: list[NDArray[np.uint64]], budget: int) -> np.uint64:
    """The hash up to which about `budget` rows lie: not fewer, if there are as many. Of each segment its first hashes.

    Candidates stand `budget / CUTS` rows apart in each segment, and at its end, so no more than that many rows of
    each are moved beyond the budget (apart from rows of one hash), and the cut is never beyond a segment that holds
    `budget` rows by itself.
    """
    step = max(budget // CUTS, 1)
    candidates = np.sort(np.concatenate([part for hashes in segments for part in (hashes[::step], hashes[-1:])]))
    rows = np.sum([np.searchsorted(hashes, candidates, side="right") for hashes in segments], axis=0)
    enough = int(np.searchsorted(rows, budget, side="left"))
    return np.uint64(candidates[min(enough, len(candidates) - 1)])


def merge_segments(segments: list[Segment], threshold: int | None, spared: Spared | None = None) -> Segment | None:
    """Sorted union of segments, without rows older than `threshold` but for those that are spared; None if nothing is
    left."""
    batch = concatenated([segment.rows for segment in segments])
    hashes = np.concatenate([segment.hashes for segment in segments])
    timed = [segment.ts for segment in segments if segment.ts is not None]
    ts = np.concatenate(timed) if timed else None
    merged = Segment.of(batch.take(pa.array(order_of(hashes, ts))))
    return keep_alive(merged, threshold, spared)


def keep_alive(rows: Segment, threshold: int | None, spared: Spared | None = None) -> Segment | None:
    """The rows of a segment that are not older than `threshold`, or are spared; None if there are none."""
    if threshold is not None and rows.ts is not None:
        alive = rows.ts >= threshold
        if spared is not None:
            alive |= spared.holds(rows)
        if not alive.all():
            rows = Segment.of(rows.rows.take(pa.array(np.flatnonzero(alive))))
    return rows if len(rows) else None
