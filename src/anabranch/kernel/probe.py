"""The probe kernel: find, narrow and expand ranges of sorted rows, all vectorised.

A probe of sorted hashes against a sorted segment is two binary searches per hash, independent of the number of
partition groups and logarithmic in the size of the segment. What it finds are ranges of rows; they are narrowed by
event time while they are still ranges (`bisect_ranges`), so rows outside a window are never touched, and expanded
last, in chunks of bounded size (`expand`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ranges:
    """Row ranges [start, stop), each belonging to the hash number `owner`."""

    owner: Indices
    start: Indices
    stop: Indices

    @property
    def lengths(self) -> Indices:
        """Rows per range."""
        return self.stop - self.start

    def where(self, mask: NDArray[np.bool_]) -> Ranges:
        """The ranges selected by a mask."""
        return Ranges(self.owner[mask], self.start[mask], self.stop[mask])


def probe(wanted: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> Ranges:
    """The non-empty ranges of ascending `hashes` equal to each of the ascending, distinct `wanted`."""
    if len(hashes) == 0 or len(wanted) == 0:
        nothing = np.empty(0, dtype=np.int64)
        return Ranges(nothing, nothing, nothing)
    first = int(np.searchsorted(wanted, hashes[0], side="left"))
    last = int(np.searchsorted(wanted, hashes[-1], side="right"))
    candidates = wanted[first:last]
    if len(candidates) > len(hashes):
        return _probe_dense(candidates, hashes, first)
    start = np.searchsorted(hashes, candidates, side="left")
    found = np.flatnonzero(hashes[start] == candidates)
    start = start[found]
    stop = np.searchsorted(hashes, candidates[found], side="right")
    return Ranges(found + first, start, stop)


def _probe_dense(wanted: NDArray[np.uint64], hashes: NDArray[np.uint64], first: int) -> Ranges:
    """The same, searching the fewer hashes among the many wanted."""
    position = np.searchsorted(wanted, hashes, side="left")
    position = np.minimum(position, len(wanted) - 1)
    rows = np.flatnonzero(wanted[position] == hashes)
    if len(rows) == 0:
        return Ranges(rows, rows, rows)
    owner = position[rows]
    heads = np.flatnonzero(np.diff(owner, prepend=-1))
    start = rows[heads]
    stop = start + np.diff(heads, append=len(owner))
    return Ranges(owner[heads] + first, start, stop)


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
