"""Figure 3 of paper 2 (section 4): a buffer lets the others go on while one machine is slow for a short time.

Four machines (`machines`) with external load that goes from one to the next, a few batches on each. Without a buffer
all of them wait for the loaded one all the time. With one, what it is late with waits there and is worked on later,
when it has no load any more. Each machine has external load for a quarter of the time, so the capacity left is that of
one loaded machine among four.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from anabranch.bench.experiments.experiment import Claim, Experiment
from anabranch.bench.experiments.machines import MACHINES, capacity, loaded, variant, workload
from anabranch.bench.experiments.trace import Trace
from anabranch.bench.experiments.variant import SlowDown
from anabranch.manager.policies.skew_buffer import SkewBuffer

TURN = 4  # batches
WARM = 4
BATCHES = WARM + TURN * MACHINES
SIZES = ("2m", "32m")
AT_LEAST = 0.8


def rotating() -> tuple[SlowDown, ...]:
    """External load on one machine after the other."""
    return (loaded(0), *(loaded(WARM + TURN * machine, machine) for machine in range(MACHINES)))


def throughput(trace: Trace) -> float:
    """Tuples per second from the first load on, with the time that it takes to empty the buffer in the end."""
    seconds = sum(trace.batch_seconds[WARM:]) + trace.last_seconds
    return (trace.moments[-1].rows - sum(trace.batch_rows[:WARM])) / seconds


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """More with a larger buffer."""
    unloaded, *others = ((trace.name, throughput(trace)) for trace in traces)
    shares = [(name, found / unloaded[1]) for name, found in others]
    measured = ", ".join(f"{name}: {share:.2f}" for name, share in shares)
    yield Claim(
        "the larger the buffer, the higher the throughput",
        all(less[1] < more[1] for less, more in pairwise(shares)),
        measured,
    )
    reached = shares[-1][1] / capacity(1)
    yield Claim(
        f"with the largest it is at least {AT_LEAST:.0%} of what the capacity left allows",
        reached >= AT_LEAST,
        f"{reached:.0%}: {shares[-1][1]:.2f} of the unloaded case, {capacity(1):.2f} possible",
    )


FLUX_03 = Experiment(
    "flux-03",
    "external load that goes round four machines: the larger the buffer, the closer throughput is to what is possible",
    workload(BATCHES),
    (
        variant("unloaded", (), loaded(0)),
        variant("no buffer", (), *rotating()),
        *(variant(f"buffer {size}", (SkewBuffer(size=size),), *rotating()) for size in SIZES),
    ),
    check,
    draws=("throughput", "held_rows", "seconds"),
    threads=MACHINES,
)
