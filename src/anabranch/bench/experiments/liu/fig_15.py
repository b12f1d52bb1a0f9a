"""Figure 15 of paper 1 (section 5.2): how often memory is evened out hardly matters for throughput.

A load that alternates between two processors (`alternating`), relocation whenever Ml/Mm < 90%, and two minimal
time-spans between relocations, one three times the other. In the paper they are 15 and 45 s, with 31 and 24
relocations, and 30 s with 27 between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from anabranch.bench.experiments.liu.alternating import LONGEST, NONE, SHORTEST, WORKLOAD, adapting, costs_little, moves
from anabranch.bench.experiments.rig.experiment import Claim, Experiment
from anabranch.bench.experiments.rig.trace import Trace

SPANS = (SHORTEST, LONGEST)
ABREAST = 1 + len(SPANS)


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Claim that relocation is cheap, and more frequent with a shorter span."""
    yield costs_little(traces)
    counts = moves(traces)
    yield Claim(
        "the shorter the span, the more relocations",
        all(more > fewer for more, fewer in pairwise(counts.values())),
        ", ".join(f"{name}: {count}" for name, count in counts.items()),
    )


LIU_15 = Experiment(
    "liu-15",
    "an alternating load: throughput does not depend on the minimal time-span between relocations",
    WORKLOAD,
    (NONE, *(adapting(f"every {span} s", 0.9, span, ABREAST) for span in SPANS)),
    check,
    draws=("results", "batch_seconds", "relocations"),
    abreast=True,
)
