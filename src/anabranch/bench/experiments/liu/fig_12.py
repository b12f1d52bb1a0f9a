"""Figure 12 of paper 1: where all groups are alike, pushing by productivity is not worse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.liu.orders import VARIANTS, workload
from anabranch.bench.experiments.rig.experiment import Claim, Experiment
from anabranch.bench.experiments.rig.trace import Trace

AT_LEAST = 0.98


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Claim that pushing by productivity is not worse."""
    low, high = traces
    ratio = low.results / max(high.results, 1)
    yield Claim(
        f"with even join ratios pushing unproductive groups gives at least {AT_LEAST}x the output before clean-up",
        ratio >= AT_LEAST,
        f"{ratio:.3f}x: {low.results:,} against {high.results:,}",
    )


LIU_12 = Experiment(
    "liu-12",
    "all groups with join ratio 3: pushing the least productive is not worse than pushing the most productive",
    workload(3),
    VARIANTS,
    check,
)
