"""The order of rows in a run: by hash, then by time.

Most of what is sorted consists of a few parts that are in order already: runs that are merged, rows that have waited,
or rows that were looked up run by run. Sorting by hash alone, stably, makes few passes over such parts, and leaves rows
of one hash in the order of the parts, which is that of time unless parts overlap in time. That takes a tenth of the
time of a sort by both. Where it was not enough is seen in one more pass, and only rows of these hashes are sorted
again: where groups have moved, some parts reach far back, but only for the keys of these groups.
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
    """An order by hash, with rows of those hashes sorted by time among which it goes back; all in this order."""
    falls = np.flatnonzero((ts[1:] < ts[:-1]) & (hashes[1:] == hashes[:-1]))
    if len(falls) == 0:
        return order
    wrong = np.unique(hashes[falls])
    edges = np.zeros(len(hashes) + 1, dtype=np.int64)
    edges[np.searchsorted(hashes, wrong, side="left")] += 1
    edges[np.searchsorted(hashes, wrong, side="right")] -= 1
    rows = np.flatnonzero(np.cumsum(edges[:-1]))
    order[rows] = order[rows[np.lexsort((ts[rows], hashes[rows]))]]
    return order
