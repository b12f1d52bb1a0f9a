"""Figure 6 of paper 1 (section 3.5): a small plan gains nothing from more processors, and loses little by them.

Tuple range 50,000 and join ratio 1, as in the paper; memory is no limit. The paper's streams arrive slowly, so that any
number of machines keeps up with them. Here batches follow each other at once, which is harder: what more processors
cost is seen in full. They share two cores, so they cannot be faster either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.experiment import Claim, Experiment
from anabranch.bench.experiments.timing import typical_seconds
from anabranch.bench.experiments.trace import Trace
from anabranch.bench.experiments.variant import Variant
from anabranch.bench.experiments.workload import JoinWorkload
from anabranch.sources.synthetic import Synthetic

PROCESSORS = (1, 2, 3, 4, 5)
TOLERANCE = 0.25


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """The same output after every batch, in about the same time."""
    first = traces[0]
    yield Claim(
        "the output after every batch does not depend on the number of processors",
        all(trace.batch_results == first.batch_results for trace in traces),
        f"{first.results:,} results in {len(first.moments)} batches, {len(traces)} runs",
    )
    seconds = {count: typical_seconds([trace for trace in traces if trace.name == name(count)]) for count in PROCESSORS}
    slowest = max(seconds[count] / seconds[1] for count in PROCESSORS)
    yield Claim(
        f"no number of processors takes more than {1 + TOLERANCE:.2f}x the time of one",
        slowest <= 1 + TOLERANCE,
        ", ".join(f"{count}: {took:.1f} s ({took / seconds[1]:.2f}x)" for count, took in seconds.items()),
    )


def name(processors: int) -> str:
    """What a variant is called, as in the figure."""
    return f"M{processors}"


LIU_06 = Experiment(
    "liu-06",
    "a small plan on 1 to 5 processors: the same output, and about the same throughput",
    JoinWorkload(rows=100_000, batch_count=20, stream=Synthetic(tuple_range=50_000, ratios=(1,))),
    tuple(Variant(name(count), processors=count) for count in PROCESSORS),
    check,
    draws=("results", "batch_seconds"),
    repeats=2,
    warm_up=True,
)
