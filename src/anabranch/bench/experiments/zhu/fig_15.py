"""Figure 15 of paper 3 (section 6.3): intermediate rows where the machine is too slow for the old order.

In the paper a parallel track has fewer intermediate rows at first: during the long recomputation of moving state
nothing is purged. Here moving state takes less than the work of a batch, and a parallel track makes the intermediate
rows of both orders, so it is the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.rig.experiment import Claim
from anabranch.bench.experiments.zhu.fig_13 import of_batches
from anabranch.bench.experiments.zhu.parts.configurations import HIGH, STEADY, cases, replay_share
from anabranch.bench.experiments.zhu.parts.experiment import MigrationExperiment
from anabranch.bench.experiments.zhu.parts.pictures import intermediate_rows
from anabranch.bench.experiments.zhu.parts.trace import MigrationTrace


def check(traces: Sequence[MigrationTrace]) -> Iterator[Claim]:
    """Claim that intermediate rows end as in the paper, and differ from it at first."""
    old, new, moving, parallel, _ = traces
    last = {trace.name: sum(of_batches(trace)[-STEADY:]) for trace in traces}
    yield Claim(
        "all ways come to the new order's intermediate rows, far fewer than the old one's",
        len({last[trace.name] for trace in traces[1:]}) == 1 and last[new.name] < last[old.name] / 2,
        f"{last[new.name]:,} and {last[old.name]:,} in the last {STEADY} batches",
    )
    times = {step.arrived for step in parallel.meanwhile}
    during = {
        trace.name: sum(step.intermediate for step in trace.steps if step.arrived in times or step.arrived is None)
        for trace in (moving, parallel)
    }
    yield Claim(
        "not reproduced: that a parallel track has fewer at first. It makes those of both orders, and moving state "
        "keeps nothing waiting for long",
        during[parallel.name] > during[moving.name],
        f"{during[parallel.name]:,} in the {len(times)} batches of the parallel track, {during[moving.name]:,} by "
        f"moving state, whose step is {replay_share(moving):.0%} of a batch",
    )


ZHU_15 = MigrationExperiment(
    "zhu-15",
    "high configuration: both strategies come to the new order's intermediate rows; moving state has fewer at first",
    cases(HIGH),
    check,
    draws=intermediate_rows(),
)
