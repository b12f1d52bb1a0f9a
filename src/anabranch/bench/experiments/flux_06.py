"""Figure 6 of paper 2 (section 5.4): load balancing recovers from external load on one machine.

Four machines (`machines`), one of which gets external load after a while. Without balancing the whole stage goes as
fast as the slowest machine from then on. With it, partitions move to the others until all are equally busy; what can be
reached then is the capacity that is left. The paper's cluster of 32 machines is back in steady state 9 s after the load
is felt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.experiment import Claim, Experiment
from anabranch.bench.experiments.machines import (
    MACHINES,
    TURN,
    balancing,
    capacity,
    loaded,
    throughput,
    variant,
    workload,
)
from anabranch.bench.experiments.trace import Trace

LOADED = 2 * TURN
BATCHES = 6 * TURN
AT_LEAST = 0.85
STATIC_AT_MOST = 0.65


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Back to what is possible, and not without balancing."""
    # Before the load both are the same, and when the second begins the JVM is fast.
    before = throughput(traces[1], LOADED - TURN, LOADED)
    static, balanced = (throughput(trace, BATCHES - TURN, BATCHES) / before for trace in traces)
    possible = capacity(1)
    share = balanced / possible
    yield Claim(
        f"with balancing, throughput comes back to at least {AT_LEAST:.0%} of what the capacity left allows",
        share >= AT_LEAST,
        f"{share:.0%}: {balanced:.2f} of before, {possible:.2f} possible, "
        f"{sum(move.groups for move in traces[1].relocations)} partitions moved",
    )
    yield Claim(
        f"without, it stays at {STATIC_AT_MOST:.0%} of before or less",
        static <= STATIC_AT_MOST,
        f"{static:.0%}",
    )


FLUX_06 = Experiment(
    "flux-06",
    "external load on one of four machines: load balancing brings throughput back to what is possible",
    workload(BATCHES),
    (
        variant("static", (), loaded(0), loaded(LOADED, 0)),
        variant("balanced", balancing(), loaded(0), loaded(LOADED, 0)),
    ),
    check,
    draws=("throughput", "busy"),
    threads=MACHINES,
)
