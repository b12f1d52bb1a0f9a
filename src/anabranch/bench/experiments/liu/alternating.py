"""The runs behind figures 14, 15 and 16 of paper 1 (section 5.2): two processors with a load that alternates.

Partition groups of processor 0 get ten times as many tuples as those of processor 1 for half a phase, then the other
way round for a phase, and so on: memory that was evened out is soon uneven again. Memory is enough without any
relocation, so the figures show the costs of relocation and not its benefit.

The paper's phases are of 10 minutes and its time-spans of 15 to 45 seconds, with a relocation every other minute. Here
a phase has 30 batches of about half a second, and spans are a tenth of the paper's: relocations are far more frequent,
and their costs are easier to measure. Where variants run abreast, the policies' clock goes on in the turns of the
others, so their spans are multiplied by the number of variants.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from anabranch.bench.experiments.rig.experiment import Claim
from anabranch.bench.experiments.rig.timing import all_seconds
from anabranch.bench.experiments.rig.trace import Trace
from anabranch.bench.experiments.rig.variant import Variant
from anabranch.bench.experiments.rig.workload import JoinWorkload
from anabranch.manager.policies.lazy_disk import LazyDisk
from anabranch.sources.synthetic import Synthetic

ROWS_PER_BATCH = 33_000
PHASE = 30  # batches
BATCHES = 75
STREAM = Synthetic(
    tuple_range=ROWS_PER_BATCH * PHASE // 2, ratios=(1, 1), shift_every=2, contiguous=True, shares=(10, 1)
)
WORKLOAD = JoinWorkload(
    rows=ROWS_PER_BATCH * BATCHES, batch_count=BATCHES, stream=STREAM, first=ROWS_PER_BATCH * PHASE // 2
)
SHORTEST, LONGEST = 1.5, 4.5  # seconds
AT_MOST = 0.03

NONE = Variant("none", processors=2)


def adapting(name: str, difference: float, seconds: float, abreast: int = 1) -> Variant:
    """A variant that relocates below this difference, at most once in `seconds` of its own time. The number of variants
    that share the clock is `abreast`."""
    span = timedelta(seconds=seconds * abreast)
    return Variant(name, policies=(LazyDisk(difference=difference, span=span),), processors=2)


def overheads(traces: Sequence[Trace]) -> dict[str, float]:
    """The additional time of each variant over that without relocation, as a share."""
    seconds = {trace.name: all_seconds(trace) for trace in traces}
    return {name: took / seconds[NONE.name] - 1 for name, took in seconds.items() if name != NONE.name}


def costs_little(traces: Sequence[Trace]) -> Claim:
    """Claim that relocation hardly costs anything."""
    costs = overheads(traces)
    return Claim(
        f"relocation takes at most {AT_MOST:.0%} more time than none",
        all(cost <= AT_MOST for cost in costs.values()),
        ", ".join(f"{name}: {cost:+.1%}" for name, cost in costs.items()),
    )


def moves(traces: Sequence[Trace]) -> dict[str, int]:
    """The number of relocations of each variant."""
    return {trace.name: len(trace.relocations) for trace in traces if trace.name != NONE.name}
