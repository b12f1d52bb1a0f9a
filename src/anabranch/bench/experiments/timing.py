"""How long the batches of a variant take, on a machine that does other things as well.

A variant runs several times, in turn with the others. Of each batch the median over these runs counts, so that what
hits one of them hardly matters. The first batches of a run wait for classes, code and workers and count for nothing.
Nor does the last, which may be measured together with the end of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from anabranch.bench.experiments.trace import Trace

WARM_UP_BATCHES = 3


def typical_batches(runs: Sequence[Trace]) -> list[float]:
    """The seconds that each batch of a variant takes, warm-up and the last left out."""
    return [median(batch) for batch in zip(*(trace.batch_seconds[WARM_UP_BATCHES:-1] for trace in runs), strict=False)]


def typical_seconds(runs: Sequence[Trace]) -> float:
    """All of these batches together."""
    return sum(typical_batches(runs))


def by_variant(traces: Sequence[Trace]) -> dict[str, list[Trace]]:
    """The runs of each variant, in the order in which variants first ran."""
    found: dict[str, list[Trace]] = {}
    for trace in traces:
        found.setdefault(trace.name, []).append(trace)
    return found
