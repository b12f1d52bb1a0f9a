"""Figure 7 of paper 2 (section 5.4): with load balancing, throughput falls with the capacity that is left, not at once.

Four machines (`machines`), of which none, one, two or three have external load. With balancing each case is a run of
its own, loaded from the beginning, and throughput is that of its last batches, when partitions have moved. Without,
nothing has to settle: one run has all cases one after the other, and ends with none, when the JVM is fastest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.experiment import Claim, Experiment
from anabranch.bench.experiments.machines import MACHINES, balancing, capacity, loaded, throughput, variant, workload
from anabranch.bench.experiments.trace import Trace

SLOW = (0, 1, 2, 3)
CASE = 5  # batches of a case without balancing
BATCHES = CASE * len(SLOW)
LAST = 4
AT_LEAST = 0.85
STATIC_AT_MOST = 0.65
STAYS = 0.8


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Linear with balancing, at once without."""
    together, *settled = traces
    ends = [BATCHES - CASE * slow for slow in SLOW]
    static = [throughput(together, end - LAST, end) for end in ends]
    balanced = [throughput(trace, BATCHES - LAST, BATCHES) / static[0] for trace in settled]
    yield Claim(
        f"with balancing, throughput is at least {AT_LEAST:.0%} of what the capacity left allows",
        all(share >= AT_LEAST * capacity(slow) for slow, share in zip(SLOW, balanced, strict=True)),
        ", ".join(f"{slow}: {share:.2f} of {capacity(slow):.2f}" for slow, share in zip(SLOW, balanced, strict=True)),
    )
    shares = [found / static[0] for found in static]
    yield Claim(
        f"without, one loaded machine takes it to {STATIC_AT_MOST:.0%} or less, and more of them take little more",
        shares[1] <= STATIC_AT_MOST and shares[3] >= STAYS * shares[1],
        ", ".join(f"{slow}: {share:.2f}" for slow, share in zip(SLOW, shares, strict=True)),
    )


FLUX_07 = Experiment(
    "flux-07",
    "external load on 0 to 3 of four machines: with load balancing throughput falls linearly, without it at once",
    workload(BATCHES),
    (
        variant("static, 3 to 0", (), *(loaded(BATCHES - CASE * (slow + 1), *range(slow)) for slow in SLOW)),
        *(variant(f"balanced, {slow} loaded", balancing(), loaded(0, *range(slow))) for slow in SLOW),
    ),
    check,
    draws=("throughput", "seconds"),
    threads=MACHINES,
)
