"""Figure 9 of paper 2 (section 6.2): memory balancing keeps throughput up after a processor has lost memory.

Throughput is that of answers (`memory_cut`), batch by batch. In the paper spilling stalls the processor, and spilling
alone never gets back to what was before: going round the partitions on disk takes all the time there is. Here a group
on disk that has its turn answers everything that waits for it, so throughput with spilling alone falls as groups are
pushed, and is back when each of them has had a turn; what stays is latency (`flux_10`). With memory balancing
partitions move to where there is room, and throughput does not fall.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean

from anabranch.bench.experiments.experiment import Claim, Experiment
from anabranch.bench.experiments.memory_cut import BATCHES, CUT, VARIANTS, WARM, WORKLOAD
from anabranch.bench.experiments.trace import Trace

AT_LEAST = 0.95
STATIC_AT_MOST = 0.85


def lowest(trace: Trace) -> float:
    """The fewest answers that a batch after the cut gave, as a share of those of a batch before."""
    results = trace.batch_results
    return min(results[CUT:BATCHES]) / mean(results[WARM:CUT])


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Nothing is seen of the cut, and something is without balancing."""
    static, flux = traces
    yield Claim(
        f"with memory balancing each batch after the cut gives at least {AT_LEAST:.0%} of the answers of one before",
        lowest(flux) >= AT_LEAST,
        f"{lowest(flux):.2f}, {len(flux.relocations)} relocations and {flux.spills} pushes",
    )
    yield Claim(
        f"with spilling alone they fall to {STATIC_AT_MOST:.0%} or less, until groups on disk have had their turns",
        lowest(static) <= STATIC_AT_MOST,
        f"{lowest(static):.2f}, {static.spills} pushes",
    )


FLUX_09 = Experiment(
    "flux-09",
    "the memory of one processor is cut in half: memory balancing keeps throughput up, spilling alone does not",
    WORKLOAD,
    VARIANTS,
    check,
    draws=("answers", "processor_bytes"),
)
