"""Figure 14 of paper 1 (section 5.2): the difference at which memory is evened out hardly matters for throughput.

A load that alternates between two processors (`alternating`), and relocation whenever Ml/Mm < 50% to 90%. In the paper
90% has 24 relocations and 50% has 2, and all lines are on top of each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from anabranch.bench.experiments.liu.alternating import NONE, SHORTEST, WORKLOAD, adapting, costs_little, moves
from anabranch.bench.experiments.rig.experiment import Claim, Experiment
from anabranch.bench.experiments.rig.trace import Trace

DIFFERENCES = (50, 90)
ABREAST = 1 + len(DIFFERENCES)


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Claim that relocation is cheap, and more frequent at a higher percentage."""
    yield costs_little(traces)
    counts = moves(traces)
    yield Claim(
        "the higher the percentage, the more relocations",
        all(fewer < more for fewer, more in pairwise(counts.values())),
        ", ".join(f"{name}: {count}" for name, count in counts.items()),
    )


LIU_14 = Experiment(
    "liu-14",
    "an alternating load: throughput does not depend on the difference at which relocation starts, 50% to 90%",
    WORKLOAD,
    (NONE, *(adapting(f"{percent}%", percent / 100, SHORTEST, ABREAST) for percent in DIFFERENCES)),
    check,
    draws=("results", "batch_seconds", "relocations"),
    abreast=True,
)
