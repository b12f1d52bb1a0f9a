"""Figure 21 of paper 1 (section 6.1): active-disk overtakes lazy-disk where processors differ in productivity.

Three processors with equally many tuples. Those of processor 0 have join ratio 4, the others 1, so its groups give far
more results for their size. Lazy-disk does nothing as long as memory is balanced, and each processor then pushes its
own groups, productive or not. Active-disk pushes groups of the unproductive processors early, which costs output at
first, and lets productive groups have their room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.rig.experiment import Claim, Experiment
from anabranch.bench.experiments.rig.trace import Trace
from anabranch.bench.experiments.rig.variant import Variant
from anabranch.bench.experiments.rig.workload import JoinWorkload
from anabranch.manager.policies.active_disk import ActiveDisk
from anabranch.manager.policies.lazy_disk import LazyDisk
from anabranch.manager.policies.spill import Spill
from anabranch.sources.synthetic import Synthetic

# All state together is 4.3 MB at the end.
MEMORY = 800_000
SPILL = Spill(idle=None)
SPAN = "150 milliseconds"


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Claim that active-disk is ahead at the end."""
    lazy, active = traces
    yield Claim(
        "active-disk has more output than lazy-disk at the end of the run",
        active.results > lazy.results,
        f"{active.results / max(lazy.results, 1):.2f}x: {active.results:,} against {lazy.results:,}, "
        f"{len(active.relocations)} relocations against {len(lazy.relocations)}",
    )


LIU_21 = Experiment(
    "liu-21",
    "groups of one processor with join ratio 4, of the others 1: active-disk overtakes lazy-disk",
    JoinWorkload(rows=90_000, batch_count=30, stream=Synthetic(tuple_range=30_000, ratios=(4, 1, 1), contiguous=True)),
    (
        Variant("lazy-disk", MEMORY, (LazyDisk(difference=0.8, span=SPAN, spill=SPILL),), processors=3),
        Variant("active-disk", MEMORY, (ActiveDisk(difference=0.8, span=SPAN, spill=SPILL),), processors=3),
    ),
    check,
    draws=("results", "processor_bytes"),
)
