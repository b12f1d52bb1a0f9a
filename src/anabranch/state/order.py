"""The order of rows in a run: by hash, then by time.

Most of what is sorted is made of a few parts that are in order already: runs that are merged, rows that have waited, or
that were found run by run. Sorting by hash alone, stably, makes few passes over such parts, and leaves rows of one hash
in the order of the parts, which is that of time unless parts overlap in time. That takes a fifth of the time of a sort
by both. Where it was not enough is seen in one more pass, and only rows of these hashes are sorted again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
# Rows that a part has at least, on average, for there to be few parts.
PART = 16


def order_of(hashes: NDArray[np.uint64], ts: NDArray[np.int64] | None) -> Indices:
    """The positions of rows in the order of a run; `ts` is None if rows have no time."""
    if np.count_nonzero(hashes[1:] < hashes[:-1]) * PART < len(hashes):
        order = np.argsort(hashes, kind="stable")
        return order if ts is None else _mend(order, hashes[order], ts[order])
    return np.argsort(hashes) if ts is None else np.lexsort((ts, hashes))


def _mend(order: Indices, hashes: NDArray[np.uint64], ts: NDArray[np.int64]) -> Indices:
    """An order by hash, with the rows of those hashes in the order of time among whom it goes back; both are in it."""
    falls = np.flatnonzero((ts[1:] < ts[:-1]) & (hashes[1:] == hashes[:-1]))
    if len(falls) == 0:
        return order
    wrong = np.unique(hashes[falls])
    first, last = (np.searchsorted(hashes, wrong, side=side) for side in ("left", "right"))
    lengths = last - first
    if 2 * lengths.sum() > len(hashes):
        return order[np.lexsort((ts, hashes))]
    rows = np.repeat(first - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
    order[rows] = order[rows[np.lexsort((ts[rows], hashes[rows]))]]
    return order
