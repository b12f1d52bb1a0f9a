"""Figure 9 of paper 1: the more state is pushed when memory runs short, the less output before clean-up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from anabranch.bench.experiments.liu.pushes import WORKLOAD, variants
from anabranch.bench.experiments.rig.experiment import Claim, Experiment
from anabranch.bench.experiments.rig.trace import Trace


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Claim that the output is the smaller, the more is pushed."""
    outputs = [trace.results for trace in traces]
    yield Claim(
        "the more is pushed, the less output there is before clean-up",
        all(more > less for more, less in pairwise(outputs)),
        ", ".join(f"{trace.name}: {trace.results:,}" for trace in traces),
    )


LIU_09 = Experiment(
    "liu-09",
    "the larger the share of state that is pushed to disk, the smaller the output before clean-up",
    WORKLOAD,
    variants(),
    check,
)
