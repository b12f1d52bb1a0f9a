"""The probe kernel: find, narrow and expand ranges of sorted rows, all vectorised.

A probe of sorted hashes against a sorted segment reads an index of either (`hash_index`), so its cost follows
the shorter of the two and depends neither on the number of partition groups nor on the size of the state. What it
finds are ranges of rows; they are narrowed by event time while they are still ranges (`bisect_ranges`), so rows
outside a window are never touched, and expanded last, in chunks of bounded size (`expand`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.state.arrays.hash_index import HashIndex, Indices
from anabranch.state.runs.run import Segment


@dataclass(frozen=True, slots=True)
class Ranges:
    """Row ranges [start, stop), each belonging to the hash number `owner`."""

    owner: Indices
    start: Indices
    stop: Indices

    @classmethod
    def none(cls) -> Ranges:
        """No ranges."""
        nothing = np.empty(0, dtype=np.int64)
        return cls(nothing, nothing, nothing)

    @property
    def lengths(self) -> Indices:
        """Rows per range."""
        return self.stop - self.start

    def where(self, mask: NDArray[np.bool_]) -> Ranges:
        """The ranges selected by a mask."""
        return Ranges(self.owner[mask], self.start[mask], self.stop[mask])


def probe(wanted: HashIndex, segment: Segment) -> Ranges:
    """The non-empty ranges of the segment's rows that have each of the distinct wanted hashes.

    Whichever side is longer is looked up in the other's index, if it has one.
    """
    if len(segment) == 0:
        return Ranges.none()
    first = int(np.searchsorted(wanted.hashes, segment.hashes[0], side="left"))
    last = int(np.searchsorted(wanted.hashes, segment.hashes[-1], side="right"))
    if segment.index is None or len(segment) < last - first:
        ranges = _probe_rows(wanted, segment.hashes)
    else:
        owner, row = segment.index.locate(wanted.hashes[first:last])
        start, stop = row - segment.offset, segment.index.ends(row) - segment.offset
        if len(owner):
            # The index is that of the whole file; a slice may begin and end among the rows of one hash.
            start[0], stop[-1] = max(start[0], 0), min(stop[-1], len(segment))
        ranges = Ranges(owner + first, start, stop)
    return ranges if segment.groups is None else ranges.where(segment.groups.holds(wanted.hashes[ranges.owner]))


def _probe_rows(wanted: HashIndex, hashes: NDArray[np.uint64]) -> Ranges:
    """The same ranges, found by looking up the hashes of the rows in the index of the wanted ones."""
    rows, owner = wanted.locate(hashes)
    heads = np.flatnonzero(np.diff(owner, prepend=-1))
    start = rows[heads]
    return Ranges(owner[heads], start, start + np.diff(heads, append=len(owner)))


def bisect_ranges(
    values: NDArray[np.int64], start: Indices, stop: Indices, target: NDArray[np.int64], *, after_equal: bool
) -> Indices:
    """Per range of ascending values, the first row whose value is >= target (> target if `after_equal`)."""
    low, high = start.copy(), stop.copy()
    open_ranges = np.flatnonzero(low < high)
    while len(open_ranges):
        middle = (low[open_ranges] + high[open_ranges]) >> 1
        value, goal = values[middle], target[open_ranges]
        below = value <= goal if after_equal else value < goal
        low[open_ranges[below]] = middle[below] + 1
        high[open_ranges[~below]] = middle[~below]
        open_ranges = open_ranges[low[open_ranges] < high[open_ranges]]
    return low


def narrow(
    values: NDArray[np.int64],
    start: Indices,
    stop: Indices,
    lowest: NDArray[np.int64],
    highest: NDArray[np.int64],
) -> tuple[Indices, Indices]:
    """Ranges of ascending values cut down to lowest <= value <= highest."""
    start = bisect_ranges(values, start, stop, lowest, after_equal=False)
    return start, bisect_ranges(values, start, stop, highest, after_equal=True)


def ranges_to_rows(start: Indices, lengths: Indices) -> Indices:
    """The row numbers of all ranges, one range after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(start - ends + lengths, lengths) + np.arange(total, dtype=np.int64)


def expand(lengths: Indices, chunk_rows: int) -> Iterator[tuple[Indices, Indices]]:
    """Every (range, offset inside the range), at most `chunk_rows` at a time.

    A chunk may end inside a range, so one enormous range is no larger in memory than many small ones.
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    for low in range(0, total, chunk_rows):
        high = min(low + chunk_rows, total)
        first = int(np.searchsorted(ends, low, side="right"))
        last = int(np.searchsorted(ends, high, side="left"))
        begins = ends[first : last + 1] - lengths[first : last + 1]
        shares = np.minimum(ends[first : last + 1], high) - np.maximum(begins, low)
        owner = np.repeat(np.arange(first, last + 1, dtype=np.int64), shares)
        yield owner, np.arange(low, high, dtype=np.int64) - np.repeat(begins, shares)


def blocks(weights: Indices, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of hashes that have about so many rows together."""
    ends = np.cumsum(weights)
    first = 0
    while first < len(weights):
        done = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + most, side="right")))
        yield first, last
        first = last
