"""Figure 20 of paper 1 (section 6.1): lazy-disk uses all memory there is before anything is pushed to disk.

Three processors; one has two thirds of the partition groups at first, the others a sixth each. Memory is not enough for
all state. Without relocation only the first runs short; it has to push most of its state, and clean it up alone, while
the others have room. With lazy-disk all three fill up, and clean-up is shared. The paper has clean-up in 400 s instead
of 1,600 s (of a longer run with less memory).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.liu.uneven import variants
from anabranch.bench.experiments.rig.experiment import Claim, Experiment
from anabranch.bench.experiments.rig.trace import Trace
from anabranch.bench.experiments.rig.workload import JoinWorkload
from anabranch.manager.policies.spill import Spill
from anabranch.sources.synthetic import Synthetic

# All state together is 21.6 MB at the end. Clean-up takes seconds, so that the fixed time of a run's end hardly counts.
MEMORY = 6_510_000
SPILL = Spill(push=0.5, idle=None)
INITIAL = (4, 1, 1)
AT_LEAST = 1.5
AT_MOST = 0.5


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Claim that there is more output at run time, and a shorter clean-up."""
    spilling, lazy = traces
    gain = lazy.results / max(spilling.results, 1)
    yield Claim(
        f"lazy-disk gives at least {AT_LEAST}x the output before clean-up",
        gain >= AT_LEAST,
        f"{gain:.2f}x: {lazy.results:,} against {spilling.results:,}",
    )
    shorter = lazy.clean_up_seconds / max(spilling.clean_up_seconds, 1e-9)
    yield Claim(
        f"its clean-up takes at most {AT_MOST}x the time",
        shorter <= AT_MOST,
        f"{shorter:.2f}x: {lazy.clean_up_seconds:.1f} s for {lazy.clean_up_results:,} results against "
        f"{spilling.clean_up_seconds:.1f} s for {spilling.clean_up_results:,}",
    )


LIU_20 = Experiment(
    "liu-20",
    "two thirds of the groups on one of three processors, too little memory: lazy-disk beats spilling alone",
    JoinWorkload(rows=450_000, batch_count=30, stream=Synthetic(tuple_range=150_000, ratios=(3,))),
    variants("lazy-disk", MEMORY, SPILL, INITIAL),
    check,
    draws=("results", "processor_bytes"),
    warm_up=True,
    threads=3,
)
