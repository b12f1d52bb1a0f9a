"""Figure 6 of paper 1 (section 3.5): a small plan gains nothing from more processors, and loses little by them.

Tuple range 50,000 and join ratio 1, as in the paper; memory is no limit. The paper's streams have some tens of tuples
per second, so any number of machines keeps up with them and all have the same throughput. Here batches have 5,000
tuples of each stream and follow each other at once, so the costs of more processors show: each is a task more, and they
share two cores. At a batch per second all must keep up, and as many as there are cores must cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.rig.experiment import Claim, Experiment
from anabranch.bench.experiments.rig.timing import typical_batches, typical_seconds
from anabranch.bench.experiments.rig.trace import Trace
from anabranch.bench.experiments.rig.variant import Variant
from anabranch.bench.experiments.rig.workload import JoinWorkload
from anabranch.sources.synthetic import Synthetic

PROCESSORS = (1, 2, 3, 4, 5)
CORES = 2
INTERVAL = 1.0  # seconds
TOLERANCE = 0.25


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Claim that the output is the same after every batch, in time for the next."""
    first = traces[0]
    yield Claim(
        "the output after every batch does not depend on the number of processors",
        all(trace.batch_results == first.batch_results for trace in traces),
        f"{first.results:,} results in {len(first.moments)} batches, {len(traces)} runs",
    )
    runs = {count: [trace for trace in traces if trace.name == name(count)] for count in PROCESSORS}
    longest = {count: max(typical_batches(own)) for count, own in runs.items()}
    yield Claim(
        f"any number of processors keeps up with a batch in {INTERVAL:g} s",
        all(took <= INTERVAL for took in longest.values()),
        ", ".join(f"{count}: {took:.2f} s at most" for count, took in longest.items()),
    )
    seconds = {count: typical_seconds(own) for count, own in runs.items()}
    yield Claim(
        f"{CORES} processors take no more than {1 + TOLERANCE:.2f}x the time of one when batches follow at once",
        seconds[CORES] <= (1 + TOLERANCE) * seconds[1],
        ", ".join(f"{count}: {took:.1f} s ({took / seconds[1]:.2f}x)" for count, took in seconds.items()),
    )


def name(processors: int) -> str:
    """The name of a variant, as in the figure."""
    return f"M{processors}"


LIU_06 = Experiment(
    "liu-06",
    "a small plan on 1 to 5 processors: the same output, and about the same throughput",
    JoinWorkload(rows=80_000, batch_count=16, stream=Synthetic(tuple_range=50_000, ratios=(1,))),
    tuple(Variant(name(count), processors=count) for count in PROCESSORS),
    check,
    draws=("results", "batch_seconds"),
    repeats=3,
    warm_up=True,
)
