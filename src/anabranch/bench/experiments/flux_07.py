"""Figure 7 of paper 2 (section 5.4): with load balancing, throughput falls with the capacity that is left, not at once.

Four machines (`machines`), of which none, one, two or three have external load from the beginning; throughput is that
of the last batches, when partitions have moved. Without balancing the first loaded machine is enough to slow all down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.experiment import Claim, Experiment
from anabranch.bench.experiments.machines import MACHINES, balancing, capacity, loaded, throughput, variant, workload
from anabranch.bench.experiments.trace import Trace

BATCHES = 20
LAST = 6
SLOW = (0, 1, 2, 3)
AT_LEAST = 0.85
STATIC_AT_MOST = 0.65
STAYS = 0.8


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Linear with balancing, at once without."""
    steady = {trace.name: throughput(trace, BATCHES - LAST, BATCHES) for trace in traces}
    unloaded = steady[name("static", 0)]
    balanced = [steady[name("balanced", slow)] / unloaded for slow in SLOW]
    yield Claim(
        f"with balancing, throughput is at least {AT_LEAST:.0%} of what the capacity left allows",
        all(share >= AT_LEAST * capacity(slow) for slow, share in zip(SLOW, balanced, strict=True)),
        ", ".join(f"{slow}: {share:.2f} of {capacity(slow):.2f}" for slow, share in zip(SLOW, balanced, strict=True)),
    )
    static = [steady[name("static", slow)] / unloaded for slow in SLOW]
    yield Claim(
        f"without, one loaded machine takes it to {STATIC_AT_MOST:.0%} or less, and more of them take little more",
        static[1] <= STATIC_AT_MOST and static[3] >= STAYS * static[1],
        ", ".join(f"{slow}: {share:.2f}" for slow, share in zip(SLOW, static, strict=True)),
    )


def name(kind: str, slow: int) -> str:
    """What a variant is called."""
    return f"{kind}, {slow} loaded"


def _variants() -> Iterator[tuple[str, int]]:
    for kind in ("static", "balanced"):
        for slow in SLOW:
            yield kind, slow


FLUX_07 = Experiment(
    "flux-07",
    "external load on 0 to 3 of four machines: with load balancing throughput falls linearly, without it at once",
    workload(BATCHES),
    tuple(
        variant(name(kind, slow), balancing() if kind == "balanced" else (), loaded(0, *range(slow)))
        for kind, slow in _variants()
    ),
    check,
    draws=("throughput", "seconds"),
    threads=MACHINES,
)
