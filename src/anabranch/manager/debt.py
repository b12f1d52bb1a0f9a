"""How many results are still owed, as far as that can be known.

Only clean-up finds out what spilled generations have in common. But an unbounded join of m inputs that has V results
among x rows has about V * (y / x)^m among y rows of the same group, so what the generations of a group gave by
themselves says about what all of them give together.

With windows the same number is an upper bound, about: rows that are too far apart in time are not told from others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch.state.groups import GroupSet
from anabranch.state.manifest import OperatorState

Vector = NDArray[np.float64]


def owed_results(state: OperatorState, count: int, inputs: int) -> int:
    """About how many results a join of so many inputs owes; there are `count` partition groups."""
    active = state.statistics.dense(count)
    sizes, produced = [active.bytes.astype(np.float64)], [active.produced.astype(np.float64)]
    for generation in state.generations:
        sizes.append(generation.dense(generation.sizes).astype(np.float64))
        produced.append(generation.dense(generation.produced).astype(np.float64))
    return estimate_owed(sizes, produced, inputs)


def estimate_owed(sizes: Sequence[Vector], produced: Sequence[Vector], inputs: int) -> int:
    """The results that span generations; `sizes` and `produced` are per generation, by group."""
    alone = np.add.reduce([size**inputs for size in sizes])
    given = np.add.reduce(list(produced))
    together = np.add.reduce(list(sizes)) ** inputs
    owed = given * np.divide(together, alone, out=np.ones_like(alone), where=alone > 0) - given
    return round(float(np.maximum(owed, 0).sum()))


def waiting_rows(state: OperatorState, count: int, owing: GroupSet) -> int:
    """How many rows of some groups of a grouping wait for their answers, at most: all that it has of them.

    Sizes are known by group, rows are not, so all rows are taken to be as large as those on disk are on average.
    """
    sizes = state.statistics.dense(count).bytes + sum(g.dense(g.sizes) for g in state.generations)
    rows = sum(generation.rows for generation in state.generations)
    size = sum(generation.bytes for generation in state.generations)
    return round(float(sizes[owing.mask()].sum()) * rows / max(size, 1))


def results_out(state: OperatorState) -> int:
    """The results that an operator's state has given so far, on disk or not."""
    return int(state.statistics.produced.sum()) + sum(sum(generation.produced) for generation in state.generations)
