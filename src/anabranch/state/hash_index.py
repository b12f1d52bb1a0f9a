"""Where to look for a hash among ascending hashes, without a binary search.

Hashes are spread evenly, so their leading bits nearly tell their row: the index keeps the first row of each of some
buckets of equal width, between half and twice as many as there are rows. A look-up reads one offset and compares one
or two rows, all vectorised; the few that are not settled by then (a bucket full of one hot key) are searched for.

An index is derived from a run when a process first maps it and is never stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
COMPARED_ROWS = 4


@dataclass(frozen=True, slots=True)
class HashIndex:
    """The index of at least one hash. Bucket b starts at row `offsets[b]`."""

    hashes: NDArray[np.uint64]
    shift: np.uint64
    offsets: NDArray[np.uint32]

    @classmethod
    def of(cls, hashes: NDArray[np.uint64]) -> HashIndex:
        """The index of ascending hashes, in one pass over them."""
        span = int(hashes[-1] - hashes[0])
        shift = np.uint64(max(span.bit_length() - len(hashes).bit_length(), 0))
        buckets = ((hashes - hashes[0]) >> shift).view(np.int64)
        counts = np.bincount(buckets)
        offsets = np.zeros(len(counts) + 1, dtype=np.uint32)
        np.cumsum(counts, out=offsets[1:])
        return cls(hashes, shift, offsets)

    def locate(self, wanted: NDArray[np.uint64]) -> tuple[Indices, Indices]:
        """Which of the ascending `wanted` are there, as positions in `wanted`, and the first row of each."""
        first = int(np.searchsorted(wanted, self.hashes[0], side="left"))
        last = int(np.searchsorted(wanted, self.hashes[-1], side="right"))
        wanted = wanted[first:last]
        bucket = ((wanted - self.hashes[0]) >> self.shift).view(np.int64)
        row = self.offsets[bucket].astype(np.int64)
        stop = self.offsets[1:][bucket]
        found = np.zeros(len(wanted), dtype=bool)
        open_ones = np.flatnonzero(row < stop)
        for _ in range(COMPARED_ROWS):
            value, goal = self.hashes[row[open_ones]], wanted[open_ones]
            found[open_ones[value == goal]] = True
            open_ones = open_ones[value < goal]
            row[open_ones] += 1
            open_ones = open_ones[row[open_ones] < stop[open_ones]]
            if len(open_ones) == 0:
                break
        else:
            row[open_ones] = np.searchsorted(self.hashes, wanted[open_ones], side="left")
            found[open_ones] = self.hashes[row[open_ones]] == wanted[open_ones]
        which = np.flatnonzero(found)
        return which + first, row[which]

    def ends(self, row: Indices) -> Indices:
        """For the first row of a hash, the row after its last."""
        hashes = self.hashes
        stop = row + 1
        open_ones = np.arange(len(row))
        for _ in range(COMPARED_ROWS):
            open_ones = open_ones[stop[open_ones] < len(hashes)]
            open_ones = open_ones[hashes[stop[open_ones]] == hashes[row[open_ones]]]
            if len(open_ones) == 0:
                return stop
            stop[open_ones] += 1
        stop[open_ones] = np.searchsorted(hashes, hashes[row[open_ones]], side="right")
        return stop
