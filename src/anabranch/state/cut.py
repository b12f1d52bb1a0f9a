"""Cutting a partition group's rows into parts, and putting parts together again: arithmetic on slices.

The rows of a group of one input are a few ranges of rows, one or more in each sorted run. When the group is diffused,
each of these runs is cut into one part per host, by the hosts' weights; a cut may fall inside one key. When it is
gathered, the parts are put together as they were before. Where a group begins in a file is known (`Cuts`), and within
the group a cut is a number of rows: so no file is read, whatever its size.

Each run is cut by itself, rather than all of them end to end: then every host has old rows and new ones, and as rows
expire the parts stay as large as the weights say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import floor

from anabranch.state.groups import GroupSet
from anabranch.state.runs.slice import Cuts, Slice, SortedRun, count_rows
from anabranch.state.runs.spine import Spine


def take_out(spine: Spine, group: int, cuts: Cuts) -> tuple[Spine, tuple[SortedRun, ...]]:
    """Part the active rows of a group from a spine: the spine without them, and their sorted runs.

    What a merge under way has of the group becomes plain runs, one of its target and one of each source.
    """
    merging = (run for merge in spine.merges for run in (merge.target, *merge.sources))
    runs = (tuple(_rows_of(run, group, cuts)) for run in (*spine.runs, *merging))
    taken = tuple(run for run in runs if run)
    return (_without(spine, group, cuts) if taken else spine), taken


def cut(runs: Sequence[SortedRun], weights: Sequence[float]) -> list[tuple[SortedRun, ...]]:
    """Cut sorted runs of a group into disjoint parts, one for each weight, which together have all rows.

    The parts of a run are ranges of it, one after the other. Rows that cannot be divided go where most are lacking.
    """
    total = sum(weights)
    shares = [weight / total for weight in weights]
    parts: list[list[SortedRun]] = [[] for _ in weights]
    lacking = [0.0] * len(weights)
    for run in runs:
        rows = count_rows(run)
        sizes = [floor(rows * share) for share in shares]
        lacking = [before + rows * share - size for before, share, size in zip(lacking, shares, sizes, strict=True)]
        for n in sorted(range(len(sizes)), key=lambda n: -lacking[n])[: rows - sum(sizes)]:
            sizes[n] += 1
            lacking[n] -= 1
        start = 0
        for part, size in zip(parts, sizes, strict=True):
            part.append(tuple(_range_of(run, start, start + size)))
            start += size
    return [tuple(run for run in part if run) for part in parts]


def put_together(parts: Iterable[Sequence[SortedRun]]) -> list[SortedRun]:
    """Put the parts of a group together, in the order in which they were cut: a run that goes on where another ends is
    one with it again."""
    runs: list[SortedRun] = []
    for run in (run for part in parts for run in part):
        place = next((n for n, other in enumerate(runs) if _touch(other[-1], run[0])), None)
        if place is None:
            runs.append(run)
        else:
            runs[place] = _mended((*runs[place], *run))
    return runs


def put_back(spine: Spine, runs: Iterable[SortedRun]) -> Spine:
    """Add sorted runs of a group to a spine; a single slice goes to the run that it was taken out of, if that is there
    and no merge has begun with it."""
    listed = list(spine.runs)
    for run in runs:
        beside = [n for n, other in enumerate(listed) if any(_are_neighbours(run[0], piece) for piece in other)]
        if len(run) == 1 and beside:
            listed[beside[0]] = _inserted(listed[beside[0]], run[0])
        else:
            listed.append(run)
    return replace(spine, runs=tuple(listed))


def _rows_of(run: SortedRun, group: int, cuts: Cuts) -> Iterator[Slice]:
    """The rows of one group, as slices without rows of others."""
    for piece in run:
        if piece.groups is None or piece.groups.bits >> group & 1:
            start, stop = cuts(piece.file)[group : group + 2].clip(piece.start, piece.stop).tolist()
            if start < stop:
                yield Slice(piece.file, start, stop)


def _without(spine: Spine, group: int, cuts: Cuts) -> Spine:
    """The spine without a group.

    `Spine.of_groups` would restrict slices, so that runs of which the group was the greater part would soon be written
    anew. Here they end before the group and go on after it.
    """

    def around(run: SortedRun) -> SortedRun:
        return tuple(part for piece in run for part in _around(piece, group, cuts))

    return spine.each_run(around)


def _around(piece: Slice, group: int, cuts: Cuts) -> Iterable[Slice]:
    count = len(cuts(piece.file)) - 1
    if piece.of_groups(GroupSet.of(count, [group]), cuts) is None:
        return [piece]
    before, after = GroupSet.of(count, range(group)), GroupSet.of(count, range(group + 1, count))
    parts = (piece.of_groups(groups, cuts) for groups in (before, after))
    return [part for part in parts if part is not None]


def _range_of(run: SortedRun, start: int, stop: int) -> Iterator[Slice]:
    """Rows start to stop of a run whose slices have no rows of other groups."""
    for piece in run:
        first, last = max(start, 0), min(stop, piece.rows)
        if first < last:
            yield Slice(piece.file, piece.start + first, piece.start + last)
        start, stop = start - piece.rows, stop - piece.rows


def _touch(before: Slice, after: Slice) -> bool:
    """Whether a slice goes on where another one ends, so that they can be one."""
    joined = before.file.name == after.file.name and before.stop == after.start
    return joined and before.only is None and after.only is None


def _are_neighbours(some: Slice, other: Slice) -> bool:
    return _touch(some, other) or _touch(other, some)


def _inserted(run: SortedRun, piece: Slice) -> SortedRun:
    """A run with one more slice, in the place where it touches others."""
    place = next(n for n, other in enumerate(run) if _are_neighbours(piece, other))
    place += _touch(run[place], piece)
    return _mended((*run[:place], piece, *run[place:]))


def _mended(run: SortedRun) -> SortedRun:
    """The run, with slices that touch as one."""
    mended: list[Slice] = []
    for piece in run:
        if mended and _touch(mended[-1], piece):
            mended[-1] = replace(mended[-1], stop=piece.stop)
        else:
            mended.append(piece)
    return tuple(mended)
