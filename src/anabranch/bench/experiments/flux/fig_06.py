"""Figure 6 of paper 2 (section 5.4): load balancing recovers from external load on one machine.

Four machines (`machines`), one of which gets external load after a while. Without balancing the whole stage goes as
fast as the slowest machine from then on. With it, partitions move to the others until all are equally busy; the
remaining capacity bounds the throughput that can be reached then. The paper's cluster of 32 machines is back in steady
state 9 s after the load begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.rig.experiment import Claim, Experiment
from anabranch.bench.experiments.rig.machines import (
    MACHINES,
    TURN,
    allowed,
    balancing,
    beside,
    loaded,
    throughput,
    variant,
    workload,
)
from anabranch.bench.experiments.rig.trace import Trace

LOADED = TURN
BATCHES = 6 * TURN
AT_LEAST = 0.85
FELL, STAYS = 0.75, 0.1


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Claim that throughput returns to what is possible with balancing, and does not without it."""
    first, last = range(LOADED, LOADED + 2 * TURN), range(BATCHES - 2 * TURN, BATCHES)
    unloaded, static, balanced = traces
    reached, possible = throughput(balanced, last), allowed(unloaded, 1, last)
    yield Claim(
        f"with balancing, throughput comes back to at least {AT_LEAST:.0%} of what the capacity left allows",
        reached >= AT_LEAST * possible,
        f"{reached / possible:.0%}: {reached / throughput(unloaded, last):.2f} of what it is without load, "
        f"{possible / throughput(unloaded, last):.2f} possible, "
        f"{sum(move.groups for move in balanced.relocations)} partitions moved",
    )
    # Beside the run without load, since all runs become faster in their first batches.
    fell, stays = (beside(static, unloaded, ((n, n) for n in batches)) for batches in (first, last))
    yield Claim(
        f"without, it falls to {FELL:.0%} or less, and is not more than {100 * STAYS:.0f} points above that in the end",
        fell <= FELL and stays <= fell + STAYS,
        f"{fell:.0%} in the first {2 * TURN} batches with load, {stays:.0%} in the last",
    )


FLUX_06 = Experiment(
    "flux-06",
    "external load on one of four machines: load balancing brings throughput back to what is possible",
    workload(BATCHES),
    (
        variant("unloaded", (), loaded(0)),
        variant("static", (), loaded(0), loaded(LOADED, 0)),
        variant("balanced", balancing(), loaded(0), loaded(LOADED, 0)),
    ),
    check,
    draws=("throughput", "busy"),
    abreast=True,
    threads=MACHINES,
)
