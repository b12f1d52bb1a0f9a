"""Fold many ranges of one array at once: sums, extremes and moments of windows, in logarithmic time each.

A tree of partial results is built over the array, pairs of neighbours merged level by level. A range is the union of at
most two nodes per level, so all ranges are folded together in one pass over the levels, with NumPy operations only. The
cost is O((n + ranges) log n) however long the ranges are, and floating point sums are as exact as pairwise summation:
differences of running totals would be neither exact nor the same in every batching.

What is folded is a *summary*: a tuple of arrays, one entry per row. `merge` combines two summaries entry by entry and
must be associative; `empty` has the value of no rows at all, and merging with it must change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Summary = tuple[NDArray[Any], ...]
Merge = Callable[[Summary, Summary], Summary]


def fold(rows: Summary, start: Indices, stop: Indices, merge: Merge, empty: tuple[Any, ...]) -> Summary:
    """The summary of rows start (included) to stop (excluded), for each range."""
    result = tuple(np.full(len(start), value, dtype=part.dtype) for part, value in zip(rows, empty, strict=True))
    right = tuple(part.copy() for part in result)
    low, high = start.copy(), stop.copy()
    level = rows
    while len(low) and bool((low < high).any()):
        inside = low < high
        # A range that begins at a right child, or ends behind a left one, takes that node and leaves its parent.
        first = np.flatnonzero(inside & (low & 1 == 1))
        _put(result, first, merge(_take(result, first), _take(level, low[first])))
        low[first] += 1
        last = np.flatnonzero(inside & (high & 1 == 1) & (low < high))
        _put(right, last, merge(_take(level, high[last] - 1), _take(right, last)))
        high[last] -= 1
        low >>= 1
        high >>= 1
        level = _parents(level, merge)
    return merge(result, right)


def _parents(level: Summary, merge: Merge) -> Summary:
    """The next level; a last node without a neighbour has no parent, since no range needs one."""
    pairs = len(level[0]) // 2
    left, right = (tuple(part[side : 2 * pairs : 2] for part in level) for side in (0, 1))
    return merge(left, right)


def _take(summary: Summary, rows: Indices) -> Summary:
    return tuple(part[rows] for part in summary)


def _put(summary: Summary, rows: Indices, values: Summary) -> None:
    for part, value in zip(summary, values, strict=True):
        part[rows] = value
