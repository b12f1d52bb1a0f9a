"""Figure 9 of paper 2 (section 6.2): memory balancing keeps throughput up after a processor has lost memory.

Throughput is that of answers (`memory_cut`), batch by batch. In the paper spilling stalls the processor, and going
round the partitions on disk takes most of its time from then on. Here only tuples of groups on disk wait, a ninth of
all or more; a group that has its turn answers all tuples that wait for it. So with spilling alone throughput falls as
groups are pushed, and latency grows (`fig_10`). With memory balancing partitions move to processors with room, and
throughput does not fall.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean, median

from anabranch.bench.experiments.flux.memory_cut import CUT, VARIANTS, WARM, WORKLOAD
from anabranch.bench.experiments.rig.experiment import Claim, Experiment
from anabranch.bench.experiments.rig.trace import Trace

AS_BEFORE = 0.95


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Claim that throughput does not fall with balancing, and does without it."""
    static, flux = (_shares(trace) for trace in traces)
    yield Claim(
        f"with memory balancing each batch after the cut gives at least {AS_BEFORE:.0%} of the answers of one before",
        min(flux) >= AS_BEFORE,
        f"at least {min(flux):.2f}, {len(traces[1].relocations)} relocations and {traces[1].spills} pushes",
    )
    yield Claim(
        "with spilling alone most of them give less",
        median(static) < AS_BEFORE,
        f"{median(static):.2f} in the median, {min(static):.2f} at least, {traces[0].spills} pushes",
    )


def _shares(trace: Trace) -> list[float]:
    """The answers of each batch after the cut, as a share of those of a batch before."""
    before = mean(trace.batch_results[WARM:CUT])
    return [results / before for results in trace.batch_results[CUT:]]


FLUX_09 = Experiment(
    "flux-09",
    "the memory of one processor is cut in half: memory balancing keeps throughput up, spilling alone does not",
    WORKLOAD,
    VARIANTS,
    check,
    draws=("answers", "processor_bytes"),
)
