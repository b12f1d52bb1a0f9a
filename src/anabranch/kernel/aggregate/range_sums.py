"""Aggregate rows over ranges of places: for every place, combine all rows whose range includes it, all places at once.

A tree stands over the places, pairs of neighbours under one node, level by level. A range of places is the union of at
most two nodes per level, so every row is added to logarithmically many nodes, and the value of a place is what its
nodes hold, from the root down. All rows are placed in one pass over the levels, with NumPy operations only, however
long their ranges are. The tree takes nothing back, so floating point sums lose nothing by it, and what has no inverse
(MIN, MAX) needs no other way. Only `running_sum`, of whole numbers, subtracts.

What is spread is a *summary*: a tuple of arrays, one entry per node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Summary = tuple[NDArray[Any], ...]
# The summary of some rows at a number of nodes: collect(rows, node of each, number of nodes).
Collect = Callable[[Indices, Indices, int], Summary]
Merge = Callable[[Summary, Summary], Summary]


@dataclass(frozen=True, slots=True)
class Reach:
    """Row n counts for the places start[n] (included) to stop[n] (excluded) of `places`."""

    start: Indices
    stop: Indices
    places: int


def spread(reach: Reach, collect: Collect, merge: Merge) -> Summary:
    """The merged summaries of all rows that count for a place, for every place. `merge` goes entry by entry."""
    rows = np.flatnonzero(reach.start < reach.stop)
    low, high, size = reach.start[rows], reach.stop[rows], reach.places
    levels: list[Summary] = []
    while True:
        # A range that begins at a right child, or ends behind a left one, takes that node and leaves its parent.
        first = np.flatnonzero(low & 1 == 1)
        left = low[first]
        low[first] += 1
        last = np.flatnonzero((low < high) & (high & 1 == 1))
        high[last] -= 1
        taken = np.concatenate([rows[first], rows[last]])
        levels.append(collect(taken, np.concatenate([left, high[last]]), size))
        remain = np.flatnonzero(low < high)
        if not len(remain):
            break  # all nodes above hold nothing
        rows, low, high, size = rows[remain], low[remain] >> 1, high[remain] >> 1, (size + 1) >> 1
    values = levels.pop()
    while levels:
        own = levels.pop()
        parents = np.arange(len(own[0])) >> 1
        values = merge(own, tuple(part[parents] for part in values))
    return values


def running_sum(numbers: NDArray[Any], reach: Reach) -> NDArray[Any]:
    """The sum of all rows that count for a place, for numbers that can be added and taken back without loss."""
    steps = np.zeros(reach.places + 1, dtype=numbers.dtype)
    np.add.at(steps, reach.start, numbers)
    np.subtract.at(steps, reach.stop, numbers)
    return np.cumsum(steps)[:-1]
