"""Figure 13 of paper 3 (section 6.3): intermediate rows where the machine keeps up.

Intermediate rows are those that joins make and that are no answers, counted in each batch. Rows that a step between two
batches makes count to the batch after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.rig.experiment import Claim
from anabranch.bench.experiments.zhu.parts.configurations import LOW, STEADY, cases
from anabranch.bench.experiments.zhu.parts.experiment import MigrationExperiment
from anabranch.bench.experiments.zhu.parts.pictures import intermediate_rows
from anabranch.bench.experiments.zhu.parts.trace import MigrationTrace, StepCounts


def of_batches(trace: MigrationTrace) -> list[int]:
    """Intermediate rows of each batch alone."""
    return [step.intermediate for step in trace.batches]


def as_new_from(trace: MigrationTrace, new: MigrationTrace) -> int:
    """The first batch from which on a run makes as many intermediate rows as the new order, counted from 1."""
    pairs = list(zip(of_batches(trace), of_batches(new), strict=True))
    different = [nth for nth, (own, others) in enumerate(pairs, start=1) if own != others]
    return different[-1] + 1 if different else 1


def check(traces: Sequence[MigrationTrace]) -> Iterator[Claim]:
    """Claim that the new order makes fewer intermediate rows, and that all migrations come to as few."""
    old, new, moving, parallel, background = traces
    last = [sum(of_batches(trace)[-STEADY:]) for trace in (old, new)]
    yield Claim(
        "the new order makes fewer intermediate rows than the old one",
        last[1] < last[0],
        f"{last[1]:,} and {last[0]:,} in the last {STEADY} batches, {last[1] / last[0]:.2f}x",
    )
    begun = next(nth for nth, step in enumerate(moving.batches, start=1) if step.arrived == moving.began)
    yield Claim(
        "moving state makes as many as the new order from the next batch on, a parallel track once it has ended",
        as_new_from(moving, new) == begun + 1 < as_new_from(parallel, new) <= len(new.batches),
        f"from batch {as_new_from(moving, new)}, {as_new_from(parallel, new)}, in the background "
        f"{as_new_from(background, new)}; asked for after batch {begun}",
    )
    during = [sum(step.intermediate for step in run) for run in (parallel.meanwhile, _same(old, parallel))]
    yield Claim(
        "meanwhile a parallel track makes those of both orders",
        during[0] > during[1],
        f"{during[0]:,} in {len(parallel.meanwhile)} batches, the old order {during[1]:,}",
    )


def _same(trace: MigrationTrace, migrated: MigrationTrace) -> list[StepCounts]:
    """The batches of a run during which another one migrated."""
    times = {step.arrived for step in migrated.meanwhile}
    return [step for step in trace.batches if step.arrived in times]


ZHU_13 = MigrationExperiment(
    "zhu-13",
    "low configuration: moving state has the new order's few intermediate rows earlier than a parallel track",
    cases(LOW),
    check,
    draws=intermediate_rows(),
)
