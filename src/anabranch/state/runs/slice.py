"""Slices of run files, and sorted runs that are made of them.

A `Slice` is a range of rows of a run file, or only the rows of some partition groups within the range. Groups go to
disk or to another processor by changing these sets, and no row is copied. A `SortedRun` is a tuple of slices with
ascending, disjoint hash ranges: logically one sorted sequence, physically several files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.state.groups import GroupSet
from anabranch.state.runs.run import RunFile

# Where the partition groups of a file begin, and at last its number of rows.
Cuts = Callable[[RunFile], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Only:
    """The groups that a slice is restricted to, and how many of its rows belong to them."""

    groups: GroupSet
    rows: int


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows `start` to `stop` of a run file; with `only`, just those of some partition groups."""

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
        """The groups that the slice is restricted to; None if it lists every row of its range."""
        return None if self.only is None else self.only.groups

    def of_groups(self, groups: GroupSet, cuts: Cuts) -> Slice | None:
        """Restrict the slice to these groups; None if empty. If the slice stays as it is, no file is opened."""
        if groups.is_all:
            return self
        wanted = groups if self.only is None else groups & self.only.groups
        if not wanted:
            return None
        if wanted == self.groups:
            return self
        edges = np.clip(cuts(self.file), self.start, self.stop)
        sizes = np.diff(edges)
        present = np.flatnonzero(wanted.mask() & (sizes > 0))
        if len(present) == 0:
            return None
        start, stop = int(edges[present[0]]), int(edges[present[-1] + 1])
        rows = int(sizes[present].sum())
        only = None if rows == stop - start else Only(GroupSet.of(groups.count, present), rows)
        return Slice(self.file, start, stop, only)


SortedRun = tuple[Slice, ...]


def slices_of_groups(slices: Iterable[Slice], groups: GroupSet, cuts: Cuts) -> tuple[Slice, ...]:
    """Restrict slices to these groups; slices that become empty are left out."""
    restricted = (piece.of_groups(groups, cuts) for piece in slices)
    return tuple(piece for piece in restricted if piece is not None)


def count_rows(run: SortedRun) -> int:
    """The number of rows in a sorted run."""
    return sum(piece.rows for piece in run)


def time_span(run: SortedRun) -> tuple[int, int]:
    """The oldest and the newest event time of the files of a sorted run."""
    return (
        min((piece.file.min_ts for piece in run if piece.file.min_ts is not None), default=0),
        max((piece.file.max_ts for piece in run if piece.file.max_ts is not None), default=0),
    )


def merge_order(run: SortedRun) -> tuple[int, int]:
    """The order in which runs are merged: by newest time, then by oldest.

    In this order rows of one key need no sorting by time (`arrays/order`), even where groups have arrived that reach
    further back than the others.
    """
    return time_span(run)[::-1]
