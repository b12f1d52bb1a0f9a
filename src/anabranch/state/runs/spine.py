"""A spine: all active state of one operator input on one processor, as a short list of sorted runs.

Every batch adds a sorted run, and a second one if rows are inserted that have waited. Runs of about equal size are
merged (`merge_choice`), a bounded number of rows per batch (`merge`), so n rows lie in O(log n) sorted runs. Runs which
most groups have left are written anew, as one, before they are used (`consolidate`).

Rows past the purge threshold are dropped when their whole file has passed it, or when a merge meets them. Rows that
spilled state has still to meet outlive their time (`expiry`): they are `retired`, which means no longer probed but
listed until clean-up has used them.

Nothing here does I/O: `open_slice` and `write` are passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from anabranch.state.groups import GroupSet
from anabranch.state.runs.expiry import Spared, is_newer
from anabranch.state.runs.merge import Merge, OpenSlice, Rewriting, WriteRun, advance_all, drop_empty
from anabranch.state.runs.merge_choice import choose_merges, close_in_time, is_cut_up, is_sparse
from anabranch.state.runs.run import RunFile
from anabranch.state.runs.slice import Cuts, Slice, SortedRun, slices_of_groups


@dataclass(frozen=True, slots=True)
class Spine:
    """The sorted runs of one input, the merges under way among them, and the `retired` slices."""

    runs: tuple[SortedRun, ...] = ()
    merges: tuple[Merge, ...] = ()
    retired: tuple[Slice, ...] = ()

    def slices(self) -> Iterator[Slice]:
        """Every active slice; each active row is in exactly one."""
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
        """Drop the files whose every row is older than `threshold`; spared rows of them are retired."""
        if threshold is None:
            return self
        retired = list(self.retired)

        def keep(run: SortedRun) -> SortedRun:
            kept = []
            for piece in run:
                if piece.file.max_ts is None or piece.file.max_ts >= threshold:
                    kept.append(piece)
                elif spared is not None and not is_newer(piece.file, spared.until):
                    assert cuts is not None, "groups are told apart by where they begin"
                    part = piece.of_groups(spared.groups, cuts)
                    retired.extend([] if part is None else [part])
            return tuple(kept)

        merges = tuple(
            Merge(keep(merge.target), drop_empty(keep(source) for source in merge.sources)) for merge in self.merges
        )
        return _settle(drop_empty(keep(run) for run in self.runs), merges, tuple(retired))

    def compact(
        self,
        budget: int,
        open_slice: OpenSlice,
        write: WriteRun,
        threshold: int | None = None,
        max_span: int | None = None,
        spared: Spared | None = None,
    ) -> Spine:
        """Begin the merges that are due and move about `budget` rows, those of the smallest merges first."""
        runs, begun = choose_merges(self.runs, max_span)
        rewriting = Rewriting(open_slice, write, threshold, spared)
        return _settle(runs, advance_all((*self.merges, *begun), budget, rewriting), self.retired)

    def consolidate(
        self,
        budget: int,
        open_slice: OpenSlice,
        write: WriteRun,
        threshold: int | None = None,
        max_span: int | None = None,
        spared: Spared | None = None,
    ) -> Spine:
        """Merge the runs that list less than half of what they span, and move about `budget` rows for that.

        Groups that move bring a run for every run of the processor they leave, whatever its size, and for every part of
        the merges under way there. Looking rows up in all of them would cost more than writing them once. The same is
        done with the runs that groups have left.
        """
        cut_up = [merge for merge in self.merges if is_cut_up(merge)]
        parts = [run for merge in cut_up for run in (merge.target, *merge.sources) if run]
        sparse = [run for run in (*self.runs, *parts) if is_sparse(run)]
        if not sparse:
            return self
        begun = [Merge((), runs) for runs in close_in_time(sparse, max_span)]
        whole = tuple(run for run in (*self.runs, *parts) if not is_sparse(run))
        left = tuple(merge for merge in self.merges if merge not in cut_up)
        merges = advance_all(begun, budget, Rewriting(open_slice, write, threshold, spared))
        return _settle(whole, (*left, *merges), self.retired)

    def of_groups(self, groups: GroupSet, cuts: Cuts) -> Spine:
        """Restrict the spine to these groups."""
        return self.each_run(lambda run: slices_of_groups(run, groups, cuts))

    def each_run(self, restrict: Callable[[SortedRun], SortedRun]) -> Spine:
        """The spine with every run, those of merges and what is retired restricted to some of its rows."""
        merges = tuple(
            Merge(restrict(merge.target), drop_empty(restrict(source) for source in merge.sources))
            for merge in self.merges
        )
        return _settle(drop_empty(restrict(run) for run in self.runs), merges, restrict(self.retired))

    def union(self, other: Spine) -> Spine:
        """List the runs, merges and retired slices of both spines; their rows must be disjoint."""
        return Spine(self.runs + other.runs, self.merges + other.merges, self.retired + other.retired)


def _settle(runs: tuple[SortedRun, ...], merges: tuple[Merge, ...], retired: tuple[Slice, ...]) -> Spine:
    """Turn merges that have no sources left into plain runs."""
    finished = drop_empty(merge.target for merge in merges if not merge.sources)
    return Spine(runs + finished, tuple(merge for merge in merges if merge.sources), retired)
