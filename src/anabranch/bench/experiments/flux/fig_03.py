"""Figure 3 of paper 2 (section 4): a buffer lets the others go on while one machine is slow for a short time.

Four machines (`machines`) with external load that goes from one to the next, a few batches on each. Without a buffer
all of them wait for the loaded one all the time. With one, the tuples that it is late with wait in the buffer and are
worked on later, when it has no load any more. The small buffer is full before a machine's turn is over, the large one
is not. Each machine has external load for a quarter of the time, so the capacity left is that of one loaded machine
among four.

As in the paper a machine has 64 partitions. Load comes when histories are full and batches take as long as they will.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from anabranch.bench.experiments.rig.experiment import Claim, Experiment
from anabranch.bench.experiments.rig.machines import MACHINES, allowed_seconds, loaded, variant, workload
from anabranch.bench.experiments.rig.trace import Trace
from anabranch.bench.experiments.rig.variant import SlowDown
from anabranch.manager.policies.skew_buffer import SkewBuffer

WARM = 8
TURN = 8
BATCHES = WARM + TURN * MACHINES
GROUPS = 64 * MACHINES
TUPLES = 64_000  # per batch: what a loaded machine is late with in its turn fits into the larger buffer
SIZES = ("1m", "8m")
AT_LEAST = 0.75


def rotating() -> tuple[SlowDown, ...]:
    """External load on one machine after the other."""
    return (loaded(0), *(loaded(WARM + TURN * machine, machine) for machine in range(MACHINES)))


def rate(trace: Trace, seconds: Sequence[float]) -> float:
    """Tuples per second during the load; tuples that wait in the buffer at its end do not count."""
    return sum(trace.batch_rows[WARM:]) / sum(seconds[WARM:])


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Claim that throughput is the higher, the larger the buffer is."""
    unloaded, *others = traces
    most = rate(unloaded, unloaded.batch_seconds)
    shares = {trace.name: rate(trace, trace.batch_seconds) / most for trace in others}
    yield Claim(
        "the larger the buffer, the higher the throughput",
        all(smaller < larger for smaller, larger in pairwise(shares.values())),
        ", ".join(f"{name}: {share:.2f} of the unloaded case" for name, share in shares.items()),
    )
    largest, possible = max(shares.values()), rate(unloaded, allowed_seconds(unloaded, 1)) / most
    yield Claim(
        f"it comes to at least {AT_LEAST:.0%} of what the capacity left allows",
        largest >= AT_LEAST * possible,
        f"{largest / possible:.0%}: {largest:.2f} of the unloaded case, {possible:.2f} possible",
    )


FLUX_03 = Experiment(
    "flux-03",
    "external load that goes round four machines: the larger the buffer, the closer to what is possible",
    workload(BATCHES, TUPLES),
    (
        variant("unloaded", (), loaded(0), groups=GROUPS),
        variant("no buffer", (), *rotating(), groups=GROUPS),
        *(variant(f"buffer of {size}", (SkewBuffer(size),), *rotating(), groups=GROUPS) for size in SIZES),
    ),
    check,
    draws=("throughput", "held_rows"),
    abreast=True,
    threads=MACHINES,
)
