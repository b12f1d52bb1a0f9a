"""The constants of the cost model, measured on the kernels themselves (paper 3, table 1: T_j and T_s).

Rows with random hashes are sorted and indexed, as rows are that come into a state, and joined with such a state, each
with about one partner. That takes a few hundredths of a second. The shortest of some repetitions counts: others were
interrupted. What is around kernels in a step (Spark, files, Python) is no part of it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from anabranch.kernel.delta import sort_rows
from anabranch.kernel.join.combinations import JoinShape
from anabranch.kernel.join.window_join import ResultColumn, WindowJoin
from anabranch.kernel.operator import Settled
from anabranch.plan.orders.migration_cost import Constants
from anabranch.state.runs.run import HASH, TS, Segment

ROWS = 20_000
REPEATS = 3
# No clock is finer than that; a constant of 0 would make work free.
LEAST = 1e-12


def measured_constants(clock: Callable[[], float]) -> Constants:
    """Seconds for each row that is looked up or made by a join, and for each that is put into a state, by a clock."""
    chance = np.random.default_rng(0)
    state, arriving = _rows(chance), _rows(chance)
    insert = _shortest(clock, lambda: len(_sorted(arriving)))
    old, new = _sorted(state), _sorted(arriving)
    join = WindowJoin(JoinShape(windows=(None, None)), (ResultColumn("a", 0, "v"), ResultColumn("b", 1, "v")))

    def joined() -> int:
        deltas = (new, old.slice(0, 0))
        return len(new) + sum(len(made) for made, _ in join.counted([[], [old]], deltas, Settled(), 1))

    return Constants(join=_shortest(clock, joined), insert=insert)


def _rows(chance: np.random.Generator) -> pa.RecordBatch:
    hashes = chance.integers(0, ROWS, ROWS).astype(np.uint64) * np.uint64(2**64 // ROWS)
    times, values = np.arange(ROWS), chance.integers(0, ROWS, ROWS)
    return pa.record_batch({HASH: pa.array(hashes), TS: pa.array(times), "v": pa.array(values)})


def _sorted(rows: pa.RecordBatch) -> Segment:
    return sort_rows(rows).indexed()


def _shortest(clock: Callable[[], float], work: Callable[[], int]) -> float:
    """The seconds per row of work that returns its rows."""
    seconds = []
    for _ in range(REPEATS):
        started = clock()
        rows = work()
        seconds.append((clock() - started) / rows)
    return max(min(seconds), LEAST)
