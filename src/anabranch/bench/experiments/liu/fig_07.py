"""Figure 7 of paper 1 (section 3.5): a large plan lasts longer with more processors, until their memory is enough.

Join ratio 2, a memory per processor, and nothing is pushed to disk. The paper's process dies when its memory is full.
Here the run goes on with an event (`memory`), so every variant produces all its results, and it "lasts" up to the batch
after which some processor holds more than its memory. The paper has 25 of 40 minutes with one machine, 35 with two, and
all of it with four and five.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from anabranch.bench.experiments.rig.experiment import Claim, Experiment
from anabranch.bench.experiments.rig.trace import Trace
from anabranch.bench.experiments.rig.variant import Variant
from anabranch.bench.experiments.rig.workload import JoinWorkload
from anabranch.sources.synthetic import Synthetic

WORKLOAD = JoinWorkload(rows=90_000, batch_count=20, stream=Synthetic(tuple_range=30_000, ratios=(2,)))
# All state together is 4.3 MB at the end.
MEMORY = 1_250_000
PROCESSORS = (1, 2, 3, 4, 5)
ENOUGH = 4


def lasts(trace: Trace) -> int:
    """The number of batches that end within memory."""
    return len(trace.moments) if trace.over_memory is None else trace.over_memory


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Claim that memory is exceeded later with more processors, and never with enough."""
    short = [trace for trace, count in zip(traces, PROCESSORS, strict=True) if count < ENOUGH]
    enough = [trace for trace, count in zip(traces, PROCESSORS, strict=True) if count >= ENOUGH]
    yield Claim(
        "the more processors, the later memory is exceeded, and the more output there is up to then",
        all(lasts(fewer) < lasts(more) and before(fewer) < before(more) for fewer, more in pairwise(short)),
        ", ".join(f"{trace.name}: batch {lasts(trace) + 1}, {before(trace):,} results before" for trace in short),
    )
    yield Claim(
        f"with {ENOUGH} processors and more it is never exceeded",
        all(trace.over_memory is None for trace in enough),
        ", ".join(f"{trace.name}: {lasts(trace)} of {len(trace.moments)} batches" for trace in enough),
    )


def before(trace: Trace) -> int:
    """The results before memory is exceeded."""
    return sum(trace.batch_results[: lasts(trace)])


LIU_07 = Experiment(
    "liu-07",
    "a large plan, nothing pushed to disk: the more processors, the later memory is exceeded, and never with enough",
    WORKLOAD,
    tuple(Variant(f"M{count}", MEMORY, processors=count) for count in PROCESSORS),
    check,
    draws=("results", "processor_bytes"),
)
