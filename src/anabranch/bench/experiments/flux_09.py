"""Figure 9 of paper 2 (section 6.2): memory balancing brings throughput back after a processor has lost memory.

Throughput is that of answers (`memory_cut`). With spilling alone the tuples of partition groups on disk are not
answered while the run goes on; with memory balancing they move to where there is room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.experiment import Claim, Experiment
from anabranch.bench.experiments.memory_cut import BATCHES, CUT, LAST, VARIANTS, WARM, WORKLOAD
from anabranch.bench.experiments.trace import Trace

AT_LEAST = 0.95
STATIC_AT_MOST = 0.85


def answered(trace: Trace, first: int, stop: int) -> float:
    """Answers per tuple that arrived, in some batches."""
    arrived = trace.moments[stop - 1].rows - trace.moments[first - 1].rows
    return sum(trace.batch_results[first:stop]) / arrived


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Back to what it was, and not without balancing."""
    recovered = {trace.name: answered(trace, BATCHES - LAST, BATCHES) / answered(trace, WARM, CUT) for trace in traces}
    measured = ", ".join(f"{name}: {share:.2f} of before" for name, share in recovered.items())
    yield Claim(
        f"with memory balancing answers come back to at least {AT_LEAST:.0%} of before the cut",
        recovered["flux"] >= AT_LEAST,
        measured,
    )
    yield Claim(
        f"with spilling alone they stay at {STATIC_AT_MOST:.0%} or less",
        recovered["static"] <= STATIC_AT_MOST,
        measured,
    )


FLUX_09 = Experiment(
    "flux-09",
    "the memory of one processor is cut in half: memory balancing brings throughput back, spilling alone does not",
    WORKLOAD,
    VARIANTS,
    check,
    draws=("answers", "processor_bytes"),
)
