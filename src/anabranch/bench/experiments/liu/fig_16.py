"""Figure 16 of paper 1 (section 5.2): relocation evens out the memory of two processors under an alternating load.

The runs are those of figures 14 and 15 (`alternating`), with a difference of 90% and the shortest span. Without
relocation one processor is far ahead of the other at the end of a phase; with it they stay close.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.liu.alternating import NONE, PHASE, SHORTEST, WORKLOAD, adapting
from anabranch.bench.experiments.rig.experiment import Claim, Experiment
from anabranch.bench.experiments.rig.trace import Trace
from anabranch.observe.numbers import format_bytes

AT_MOST = 0.4


def differences(trace: Trace) -> list[int]:
    """The difference between the memory of the two at the end of each phase; the first phase is a half."""
    ends = range(PHASE // 2 - 1, len(trace.moments), PHASE)
    memory = [[one.active_bytes for one in trace.moments[end].processors] for end in ends]
    return [max(used) - min(used) for used in memory]


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Claim that the memory of the two stays close with relocation, and does not without."""
    still, adapted = (max(differences(trace)) for trace in traces)
    yield Claim(
        f"at the end of a phase memory is apart by at most {AT_MOST}x of what it is without relocation",
        adapted <= AT_MOST * still,
        f"{adapted / max(still, 1):.2f}x: {format_bytes(adapted)} against {format_bytes(still)}, "
        f"{len(traces[1].relocations)} relocations",
    )


LIU_16 = Experiment(
    "liu-16",
    "an alternating load: relocation keeps the memory of two processors even",
    WORKLOAD,
    (NONE, adapting("90%", 0.9, SHORTEST)),
    check,
    draws=("processor_bytes", "results"),
)
