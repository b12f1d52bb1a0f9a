"""Typical times of a variant's batches, on a machine that other programs use, too.

Where runs follow each other, a variant runs several times, and the median of each batch over these runs counts, so that
a disturbance of one of them hardly matters. Where variants run abreast, each runs once and all batches count: a
disturbance meets all of them.

The first batches of a run wait for classes, code and workers and do not count. Nor does the last, which may be measured
together with the end of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from anabranch.bench.experiments.rig.trace import Trace

WARM_UP_BATCHES = 3


def all_seconds(trace: Trace) -> float:
    """The seconds of all batches of a run together."""
    return sum(_counted(trace))


def typical_batches(runs: Sequence[Trace]) -> list[float]:
    """The typical seconds of each batch of a variant."""
    return [median(batch) for batch in zip(*map(_counted, runs), strict=False)]


def typical_seconds(runs: Sequence[Trace]) -> float:
    """The typical seconds of all batches of a variant together."""
    return sum(typical_batches(runs))


def _counted(trace: Trace) -> list[float]:
    return trace.batch_seconds[WARM_UP_BATCHES:-1]
