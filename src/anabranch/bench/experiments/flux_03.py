"""Figure 3 of paper 2 (section 4): a buffer lets the others go on while one machine is slow for a short time.

Four machines (`machines`) with external load that goes from one to the next, a few batches on each. Without a buffer
all of them wait for the loaded one all the time. With one, what it is late with waits there and is worked on later,
when it has no load any more. Each machine has external load for a quarter of the time, so the capacity left is that of
one loaded machine among four. The paper has buffers of many sizes; here there is one that is large enough, so that runs
are long enough to be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.experiment import Claim, Experiment
from anabranch.bench.experiments.machines import MACHINES, capacity, loaded, variant, workload
from anabranch.bench.experiments.trace import Trace
from anabranch.bench.experiments.variant import SlowDown
from anabranch.manager.policies.skew_buffer import SkewBuffer

TURN = 7  # batches, after which state has been merged once
WARM = TURN
BATCHES = WARM + TURN * MACHINES
AT_LEAST = 0.8


def rotating() -> tuple[SlowDown, ...]:
    """External load on one machine after the other."""
    return (loaded(0), *(loaded(WARM + TURN * machine, machine) for machine in range(MACHINES)))


def throughput(trace: Trace) -> float:
    """Tuples per second from the first load on, with the time that it takes to empty the buffer in the end."""
    seconds = sum(trace.batch_seconds[WARM:]) + trace.last_seconds
    return (trace.moments[-1].rows - sum(trace.batch_rows[:WARM])) / seconds


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """More with a buffer."""
    unloaded, without, buffered = map(throughput, traces)
    yield Claim(
        "with a buffer throughput is higher than without",
        buffered > without,
        f"{buffered / unloaded:.2f} of the unloaded case against {without / unloaded:.2f}",
    )
    reached = buffered / unloaded / capacity(1)
    yield Claim(
        f"it is at least {AT_LEAST:.0%} of what the capacity left allows",
        reached >= AT_LEAST,
        f"{reached:.0%}: {buffered / unloaded:.2f} of the unloaded case, {capacity(1):.2f} possible",
    )


FLUX_03 = Experiment(
    "flux-03",
    "external load that goes round four machines: with a buffer throughput is closer to what is possible",
    workload(BATCHES),
    (
        variant("unloaded", (), loaded(0)),
        variant("no buffer", (), *rotating()),
        variant("buffer", (SkewBuffer(),), *rotating()),
    ),
    check,
    draws=("throughput", "held_rows", "seconds"),
    threads=MACHINES,
)
