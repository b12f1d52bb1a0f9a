"""Figure 3 of paper 2 (section 4): a buffer lets the others go on while one machine is slow for a short time.

Four machines (`machines`) with external load that goes from one to the next, a few batches on each. Without a buffer
all of them wait for the loaded one all the time. With one, what it is late with waits there and is worked on later,
when it has no load any more. The buffer of one size is full before a machine's turn is over, that of the other is not.
Each machine has external load for a quarter of the time, so the capacity left is that of one loaded machine among
four. At the end there is no load, when the JVM is fastest: that is the unloaded case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from anabranch.bench.experiments.experiment import Claim, Experiment
from anabranch.bench.experiments.machines import MACHINES, capacity, loaded, throughput, variant, workload
from anabranch.bench.experiments.trace import Trace
from anabranch.bench.experiments.variant import SlowDown
from anabranch.manager.policies.skew_buffer import SkewBuffer

WARM = 4
TURN = 6
LOADED_TO = WARM + TURN * MACHINES
BATCHES = LOADED_TO + TURN
SIZES = ("1m", "16m")
AT_LEAST = 0.8


def rotating() -> tuple[SlowDown, ...]:
    """External load on one machine after the other, and then on none."""
    turns = (loaded(WARM + TURN * machine, machine) for machine in range(MACHINES))
    return (loaded(0), *turns, loaded(LOADED_TO))


def while_loaded(trace: Trace) -> float:
    """Tuples per second while there is load; those that wait in the buffer at the end of it do not count."""
    return sum(trace.batch_rows[WARM:LOADED_TO]) / sum(trace.batch_seconds[WARM:LOADED_TO])


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """The more, the larger the buffer."""
    unloaded = throughput(traces[0], LOADED_TO, BATCHES)
    shares = {trace.name: while_loaded(trace) / unloaded for trace in traces}
    yield Claim(
        "the larger the buffer, the higher the throughput",
        all(smaller < larger for smaller, larger in pairwise(shares.values())),
        ", ".join(f"{name}: {share:.2f} of the unloaded case" for name, share in shares.items()),
    )
    largest = max(shares.values())
    yield Claim(
        f"it comes to at least {AT_LEAST:.0%} of what the capacity left allows",
        largest >= AT_LEAST * capacity(1),
        f"{largest / capacity(1):.0%}: {largest:.2f} of the unloaded case, {capacity(1):.2f} possible",
    )


FLUX_03 = Experiment(
    "flux-03",
    "external load that goes round four machines: the larger the buffer, the closer to what is possible",
    workload(BATCHES),
    (
        variant("no buffer", (), *rotating()),
        *(variant(f"buffer of {size}", (SkewBuffer(size),), *rotating()) for size in SIZES),
    ),
    check,
    draws=("throughput", "held_rows", "seconds"),
    threads=MACHINES,
)
