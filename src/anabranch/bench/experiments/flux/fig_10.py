"""Figure 10 of paper 2 (section 6.2): memory balancing brings latency back after a processor has lost memory.

Latency is the time from a tuple's arrival to its answer. By Little's law its average is the number of tuples that wait
for an answer over the number that arrive per batch, in batches. It is one before memory is cut (`memory_cut`): an
answer is given when the next batch shows that it is complete. Tuples of partition groups on disk wait until they are in
memory again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.flux.memory_cut import BATCHES, CUT, LAST, VARIANTS, WARM, WORKLOAD
from anabranch.bench.experiments.rig.experiment import Claim, Experiment
from anabranch.bench.experiments.rig.trace import Trace

AT_MOST = 1.1
STATIC_AT_LEAST = 2.0


def latency(trace: Trace, first: int, stop: int) -> float:
    """The average time in some batches from arrival to answer, in batches."""
    waiting = [moment.rows - moment.results for moment in trace.moments[first:stop]]
    arrived = trace.moments[stop - 1].rows - trace.moments[first - 1].rows
    return sum(waiting) / arrived


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Claim that latency returns to its former value with balancing, and does not without it."""
    static, flux = traces
    ratios = [latency(trace, BATCHES - LAST, BATCHES) / latency(trace, WARM, CUT) for trace in (static, flux)]
    yield Claim(
        f"with memory balancing latency comes back to at most {AT_MOST}x of before the cut",
        ratios[1] <= AT_MOST,
        f"{ratios[1]:.2f}x: {latency(flux, BATCHES - LAST, BATCHES):.2f} batches",
    )
    yield Claim(
        f"with spilling alone it stays at {STATIC_AT_LEAST}x or more",
        ratios[0] >= STATIC_AT_LEAST,
        f"{ratios[0]:.2f}x: {latency(static, BATCHES - LAST, BATCHES):.2f} batches",
    )


FLUX_10 = Experiment(
    "flux-10",
    "the memory of one processor is cut in half: memory balancing brings latency back, spilling alone does not",
    WORKLOAD,
    VARIANTS,
    check,
    draws=("waiting", "processor_bytes"),
)
