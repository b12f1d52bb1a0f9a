"""Figure 10 of paper 1: pushing keeps memory within its budget, and larger pushes are needed less often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from anabranch.bench.experiments.liu.pushes import MEMORY, WORKLOAD, variants
from anabranch.bench.experiments.rig.experiment import Claim, Experiment
from anabranch.bench.experiments.rig.trace import Trace
from anabranch.observe.numbers import format_bytes


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Claim that memory is bounded, and that pushes are fewer at higher percentages."""
    pushing = [trace for trace in traces if trace.spills]
    most = max((trace.most_active_bytes for trace in pushing), default=0)
    yield Claim(
        f"active state stays within {format_bytes(MEMORY)} after every batch",
        len(pushing) == len(traces) - 1 and most <= MEMORY,
        f"{format_bytes(most)} at most; {format_bytes(traces[0].most_active_bytes)} if nothing is pushed",
    )
    yield Claim(
        "the more is pushed at a time, the fewer pushes",
        all(more.spills > fewer.spills for more, fewer in pairwise(pushing)),
        ", ".join(f"{trace.name}: {trace.spills}" for trace in pushing),
    )


LIU_10 = Experiment(
    "liu-10",
    "pushing keeps the active state within its memory, and the more is pushed at a time the fewer pushes there are",
    WORKLOAD,
    variants(),
    check,
    draws=("active_bytes", "results"),
)
