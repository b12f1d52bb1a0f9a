"""Figure 7 of paper 2 (section 5.4): with load balancing, throughput falls with the capacity that is left, not at once.

Four machines (`machines`), of which none, one, two or three have external load. With balancing each case is a run of
its own, loaded from the beginning, and throughput is that of its last batches, when partitions have moved. Without,
nothing has to settle: one run has all cases in turn once histories are full, since all batches become faster with time;
in rounds, each of which has them in another order, since merges of state have a turn of their own, and is compared with
its own batch without load. In the end it has no load, in the same batches as what is compared with it. There balancing
has nothing to do.

A batch takes as long as its slowest machine. No two batches of a machine take the same time, and load stretches the
difference, too. So several loaded machines reach less than their mean speed would allow.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.rig.draw import Curves
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

SLOW = (3, 2, 1)
ROUNDS = 3
AT_LEAST = 0.85
STATIC_AT_MOST = 0.65
STAYS = 0.8


def _rounds() -> Iterator[int]:
    chance = random.Random(1)
    for _ in range(ROUNDS):
        yield from chance.sample((0, *SLOW), len(SLOW) + 1)


# The number of loaded machines in each batch of the run without balancing; the batches in rounds count.
STATIC = (*[0] * TURN, *_rounds(), *[0] * 2 * TURN)
BATCHES = len(STATIC)


def _batches(slow: int) -> list[int]:
    """The batch of each round in which this number of machines is loaded."""
    return [n for n in range(TURN, BATCHES - 2 * TURN) if STATIC[n] == slow]


BALANCED, WITHOUT, POSSIBLE = "with balancing", "without", "what the capacity left allows"


def figure(traces: Sequence[Trace]) -> dict[str, dict[int, float]]:
    """Throughput as a share of that without load, by the number of loaded machines."""
    *settled, together = traces
    last = range(BATCHES - 2 * TURN, BATCHES)
    unloaded = throughput(together, last)
    balanced = {slow: throughput(trace, last) / unloaded for slow, trace in zip(SLOW, settled, strict=True)}
    possible = {slow: allowed(together, slow, last) / unloaded for slow in SLOW}
    static = {slow: beside(together, together, zip(_batches(slow), _batches(0), strict=True)) for slow in SLOW}
    return {name: {0: 1.0, **curve} for name, curve in ((POSSIBLE, possible), (BALANCED, balanced), (WITHOUT, static))}


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Claim that throughput falls linearly with balancing, and at once without."""
    shares = figure(traces)
    balanced, possible, static = shares[BALANCED], shares[POSSIBLE], shares[WITHOUT]
    yield Claim(
        f"with balancing, throughput is at least {AT_LEAST:.0%} of what the capacity left allows",
        all(balanced[slow] >= AT_LEAST * possible[slow] for slow in SLOW),
        ", ".join(
            f"{slow}: {balanced[slow] / possible[slow]:.0%}, {balanced[slow]:.2f} of {possible[slow]:.2f}"
            for slow in SLOW
        ),
    )
    yield Claim(
        f"without, one loaded machine takes it to {STATIC_AT_MOST:.0%} or less, and more of them take little more",
        static[1] <= STATIC_AT_MOST and static[3] >= STAYS * static[1],
        ", ".join(f"{slow}: {share:.2f}" for slow, share in sorted(static.items())),
    )


FLUX_07 = Experiment(
    "flux-07",
    "external load on 0 to 3 of four machines: with load balancing throughput falls linearly, without it at once",
    workload(BATCHES),
    (
        *(variant(f"balanced, {slow} loaded", balancing(), loaded(0, *range(slow))) for slow in SLOW),
        variant("static", (), *(loaded(n, *range(slow)) for n, slow in enumerate(STATIC))),
    ),
    check,
    draws=(Curves("throughput, as a share of that without load", "loaded machines", figure), "throughput"),
    abreast=True,
    threads=MACHINES,
)
