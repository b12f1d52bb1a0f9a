"""The machine of figures 15 and 16 of paper 3: too slow for the old order of joins, fast enough for the new one.

Its speed is the mean of those that both orders need in their last batches. The paper's machine has 500 MHz, and its
joins compare all pairs.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.bench.experiments.zhu.parts.configurations import steady_work
from anabranch.bench.experiments.zhu.parts.trace import MigrationTrace
from anabranch.bench.experiments.zhu.parts.work_clock import WorkClock


def clock(traces: Sequence[MigrationTrace]) -> WorkClock:
    """The machine; the first two runs are those of the old and the new order."""
    old, new = (steady_work(trace) for trace in traces[:2])
    return WorkClock((old + new) / 2)


def described(traces: Sequence[MigrationTrace]) -> str:
    """The speed of the machine, in words."""
    speed = clock(traces).rows_per_second
    old, new = (steady_work(trace) / speed for trace in traces[:2])
    return f"{speed:,.0f} rows of work per second, of which the old order needs {old:.0%} and the new one {new:.0%}"
