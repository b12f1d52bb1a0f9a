"""Figure 11 of paper 1: where groups differ, pushing the unproductive ones beats pushing the productive ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.liu.orders import VARIANTS, workload
from anabranch.bench.experiments.rig.experiment import Claim, Experiment
from anabranch.bench.experiments.rig.trace import Trace

AT_LEAST = 1.5
AT_MOST = 0.5


def check(traces: Sequence[Trace]) -> Iterator[Claim]:
    """Claim that there is more output at run time, and less left to clean up."""
    low, high = traces
    gain = low.results / max(high.results, 1)
    yield Claim(
        f"pushing unproductive groups gives at least {AT_LEAST}x the output before clean-up",
        gain >= AT_LEAST,
        f"{gain:.2f}x: {low.results:,} against {high.results:,}",
    )
    left = low.clean_up_results / max(high.clean_up_results, 1)
    yield Claim(
        f"it leaves at most {AT_MOST}x the results to clean-up",
        left <= AT_MOST,
        f"{left:.2f}x: {low.clean_up_results:,} in {low.clean_up_seconds:.1f} s against "
        f"{high.clean_up_results:,} in {high.clean_up_seconds:.1f} s",
    )


LIU_11 = Experiment(
    "liu-11",
    "groups with join ratios 4, 2 and 1: pushing the least productive beats pushing the most productive",
    workload(4, 2, 1),
    VARIANTS,
    check,
)
