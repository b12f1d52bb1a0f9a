"""An index that finds hashes among ascending hashes without a binary search.

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
        """Find the ascending `wanted` hashes. Returns the positions in `wanted` of those that occur, and the first row
        of each."""
        hashes = self.hashes
        first = int(np.searchsorted(wanted, hashes[0], side="left"))
        last = int(np.searchsorted(wanted, hashes[-1], side="right"))
        wanted = wanted[first:last]
        bucket = ((wanted - hashes[0]) >> self.shift).view(np.int64)
        row = self.offsets.take(bucket).astype(np.int64)
        # Nothing that is wanted lies behind the last row, so there is always a row to look at: in an empty bucket it is
        # that of a later one, which is not equal.
        value = hashes.take(row)
        behind = np.flatnonzero(value < wanted)
        for _ in range(COMPARED_ROWS):
            if len(behind) == 0:
                break
            row[behind] += 1
            value[behind] = hashes.take(row.take(behind))
            behind = behind[value.take(behind) < wanted.take(behind)]
        else:
            row[behind] = np.searchsorted(hashes, wanted.take(behind), side="left")
            value[behind] = hashes.take(row.take(behind))
        which = np.flatnonzero(value == wanted)
        return which + first, row.take(which)

    def ends(self, row: Indices) -> Indices:
        """For the first row of a hash, the row after its last."""
        hashes = self.hashes
        value, stop = hashes.take(row), row + 1
        same = np.arange(len(row))
        for _ in range(COMPARED_ROWS):
            # Beyond the end the last row is seen again, which does not count.
            here = stop.take(same)
            same = same[(hashes.take(here, mode="clip") == value.take(same)) & (here < len(hashes))]
            if len(same) == 0:
                return stop
            stop[same] += 1
        stop[same] = np.searchsorted(hashes, value.take(same), side="right")
        return stop
